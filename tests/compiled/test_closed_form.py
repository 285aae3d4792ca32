"""The demand read from the IR of every bundled kernel against the closed form of its family: exact for FLOP and bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from advisor import pipelines
from advisor.compiled.analysis import work_of
from advisor.compiled.compiler.kernel import Target
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.counts import KernelDemand
from advisor.compiled.launches.described import described_launch
from advisor.compiled.launches.launch import inspect_launch
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import read_source
from advisor.result.schema import Configuration, Problem
from tests.compiled.bundled import FOLDER, load

pytest.importorskip("triton")
TARGET = Target(backend="cuda", arch=90)
OPTIONS = ("num_warps", "num_stages")


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def read(file: str, kernel: str, problem: dict, config: dict, grid: tuple[int, ...], pool: Pool, **more: Any) -> KernelDemand:
    module, source = load(file), read_source(FOLDER / f"{file}.py")
    arguments = getattr(module, module.KERNELS[kernel]["arguments"])(problem, config)
    launch = described_launch(source, kernel, arguments, config, grid, **more)
    inspection = inspect_launch(launch, TARGET, pool, sass=False)
    assert not inspection.demand.approximations and inspection.demand.exact
    return inspection.demand


def closed(family: str, op: str, sizes: dict, config: dict, **more: Any) -> Any:
    problem = Problem(family=family, op=op, sizes=sizes, **more)  # type: ignore[arg-type]
    parameters = {k: v for k, v in config.items() if k not in OPTIONS}
    configuration = Configuration(parameters=parameters, **{k: config[k] for k in OPTIONS})
    return pipelines.demand(pipelines.problem_batch([problem]), pipelines.configuration_batch([configuration]), load_gpu("H200"))


def total(column: Any) -> float:
    return round(float(np.asarray(column).reshape(-1)[0]), 3)  # the model divides by CTAs and multiplies again


def bytes_of(demand: KernelDemand, *arguments: str, kind: str = "load", requested: bool = False) -> float:
    return sum(
        a.requested_bytes if requested else a.issued_bytes
        for a in demand.accesses
        if a.kind == kind and (not arguments or a.argument in arguments)
    )


GEMM = [
    ({"M": 256, "N": 512, "K": 384}, {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 4, "SPLIT_K": 1}),
    ({"M": 256, "N": 384, "K": 777}, {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1, "SPLIT_K": 1}),
    ({"M": 64, "N": 256, "K": 2048}, {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 8, "SPLIT_K": 4}),
    ({"M": 333, "N": 517, "K": 1001}, {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8, "SPLIT_K": 1}),
]


@pytest.mark.parametrize(("sizes", "config"), GEMM)
def test_gemm(sizes: dict, config: dict, pool: Pool) -> None:
    config = {**config, "num_warps": 4, "num_stages": 3}
    m, n, split = sizes["M"], sizes["N"], config["SPLIT_K"]
    tiles_m, tiles_n = cdiv(m, config["BLOCK_SIZE_M"]), cdiv(n, config["BLOCK_SIZE_N"])
    got = read("gemm", "gemm_kernel", {**sizes, "op": "gemm", "dtype": "bf16"}, config, (tiles_m * tiles_n, split), pool)
    # The kernel loads rows and columns past the end from the start instead of masking them: those bytes are issued too.
    wrapped = {**sizes, "M": tiles_m * config["BLOCK_SIZE_M"], "N": tiles_n * config["BLOCK_SIZE_N"]}
    want, want_wrapped = closed("gemm", "gemm", sizes, config), closed("gemm", "gemm", wrapped, config)
    assert got.tensor_flop == {"bf16": total(want.per_cta["tensor"] * want.ctas)}
    assert bytes_of(got) == total(want_wrapped.cta_load_bytes * want_wrapped.ctas)
    stored = m * n * (2 if split == 1 else 4 * split)
    assert bytes_of(got, kind="store") == stored
    assert got.loops[0].mean_trips == total(want.k_iterations)


def test_persistent_gemm(pool: Pool) -> None:
    sizes = {"M": 333, "N": 512, "K": 776}
    config = {
        "BLOCK_SIZE_M": 64,
        "BLOCK_SIZE_N": 128,
        "BLOCK_SIZE_K": 64,
        "GROUP_SIZE_M": 8,
        "EPILOGUE_SUBTILE": 1,
        "FLATTEN": False,
        "WARP_SPECIALIZE": False,
        "num_warps": 4,
        "num_stages": 3,
    }
    m, n, k = sizes["M"], sizes["N"], sizes["K"]
    shapes = {"a_desc": (m, k), "b_desc": (n, k), "c_desc": (m, n)}
    got = read("gemm", "gemm_persistent_kernel", {**sizes, "op": "gemm", "dtype": "bf16"}, config, (7,), pool, shapes=shapes)
    want = closed("gemm", "gemm", sizes, config)
    assert got.tensor_flop == {"bf16": total(want.per_cta["tensor"] * want.ctas)}
    assert bytes_of(got) == total(want.cta_load_bytes * want.ctas)
    assert bytes_of(got, kind="store") == m * n * 2
    assert got.footprint_bytes == {"a_desc": m * k * 2, "b_desc": n * k * 2, "c_desc": m * n * 2} and not got.unlocated


def alignment(ids: np.ndarray, experts: int, block: int) -> tuple[np.ndarray, np.ndarray, int, int]:
    """What `align_tokens` makes on the device: slots by expert, expert of each block, used length; whole length."""
    slots = ids.size
    counts = np.bincount(ids, minlength=experts)
    sorted_ids: list[int] = []
    owners: list[int] = []
    for expert in range(experts):
        mine = np.flatnonzero(ids == expert).tolist()
        padded = cdiv(int(counts[expert]), block) * block
        sorted_ids += mine + [slots] * (padded - len(mine))
        owners += [expert] * (padded // block)
    used = len(sorted_ids)
    worst = cdiv(min(slots + experts * (block - 1), slots * block), block) * block
    sorted_ids += [slots] * (worst - used)
    owners += [experts - 1] * (worst // block - len(owners))
    return np.array(sorted_ids), np.array(owners), used, worst


MOE = [
    ("w13", {"M": 67, "E": 8, "topk": 2, "H": 520, "N": 128}, (64, 128, 64, 4)),
    ("w13", {"M": 5, "E": 16, "topk": 3, "H": 256, "N": 64}, (16, 64, 128, 1)),
    ("w2", {"M": 130, "E": 4, "topk": 2, "H": 384, "N": 200}, (32, 64, 32, 8)),
]


@pytest.mark.parametrize(("op", "sizes", "blocks"), MOE)
def test_fused_moe(op: str, sizes: dict, blocks: tuple[int, ...], pool: Pool) -> None:
    names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
    config = {**dict(zip(names, blocks, strict=True)), "num_warps": 4, "num_stages": 3}
    generator = np.random.default_rng(0)
    ids = np.stack([generator.permutation(sizes["E"])[: sizes["topk"]] for _ in range(sizes["M"])]).reshape(-1)
    sorted_ids, owners, used, worst = alignment(ids, sizes["E"], blocks[0])
    width = 2 * sizes["N"] if op == "w13" else sizes["H"]
    assert width % blocks[1] == 0  # columns past the end wrap around, and their loads would be issued too
    grid = (worst // blocks[0] * cdiv(width, blocks[1]),)
    got = read(
        "fused_moe",
        "fused_moe_kernel",
        {**sizes, "op": op, "dtype": "bf16"},
        config,
        grid,
        pool,
        contents={"sorted_token_ids_ptr": sorted_ids, "expert_ids_ptr": owners, "num_tokens_post_padded_ptr": used},
    )
    routing = tuple(int(n) for n in np.bincount(ids, minlength=sizes["E"]))
    want = closed("fused_moe", op, sizes, config, routing=routing)
    assert got.tensor_flop == {"bf16": total(want.per_cta["tensor"] * want.ctas)}
    assert bytes_of(got, "a_ptr", "b_ptr") == total(want.cta_load_bytes * want.ctas)
    assert bytes_of(got, kind="store") == total(want.cta_store_bytes * want.ctas)
    assert got.programs == total(want.launched_ctas)
    assert not got.unknown


@pytest.mark.parametrize("kernel", ["rms_norm", "layer_norm", "softmax"])
@pytest.mark.parametrize(("rows", "length", "block"), [(37, 1000, 1024), (16, 4096, 4096), (65, 777, 1024)])
def test_normalization(kernel: str, rows: int, length: int, block: int, pool: Pool) -> None:
    config = {"BLOCK_SIZE": block, "ROWS_PER_CTA": 2, "num_warps": 4, "num_stages": 1}
    problem = {"B": rows, "H": length, "op": kernel, "dtype": "bf16"}
    got = read(kernel, f"{kernel}_kernel", problem, config, (cdiv(rows, 2),), pool)
    want = closed("normalization", kernel, {"B": rows, "H": length}, config)
    assert bytes_of(got) == pytest.approx(total(want.cta_load_bytes * want.ctas), rel=1e-12)
    assert bytes_of(got, kind="store") == total(want.cta_store_bytes * want.ctas)
    assert got.unknown == {}


@pytest.mark.parametrize(("rows", "length", "block"), [(37, 1000, 256), (3, 4096, 1024), (65, 777, 2048)])
def test_silu_and_mul(rows: int, length: int, block: int, pool: Pool) -> None:
    config = {"BLOCK_SIZE": block, "ROWS_PER_CTA": 1, "num_warps": 4, "num_stages": 1}
    problem = {"B": rows, "H": length, "op": "silu_and_mul", "dtype": "fp16"}
    got = read("silu_and_mul", "silu_and_mul_kernel", problem, config, (rows * cdiv(length, block),), pool)
    want = closed("elementwise", "silu_and_mul", {"B": rows, "H": length}, config, dtype="fp16")
    assert bytes_of(got) == total(want.cta_load_bytes * want.ctas)
    assert bytes_of(got, kind="store") == total(want.cta_store_bytes * want.ctas)


@pytest.mark.parametrize("op", ["activation", "combine"])
def test_moe_rows(op: str, pool: Pool) -> None:
    sizes = {"M": 33, "E": 8, "topk": 2, "H": 520, "N": 200}
    config = {"BLOCK_SIZE": 256, "num_warps": 4, "num_stages": 1}
    rows, length = (66, 200) if op == "activation" else (33, 520)
    got = read("fused_moe", f"{op}_kernel", {**sizes, "op": op, "dtype": "bf16"}, config, (rows * cdiv(length, 256),), pool)
    want = closed("fused_moe", op, sizes, config)
    assert bytes_of(got) == total(want.cta_load_bytes * want.ctas)
    assert bytes_of(got, kind="store") == total(want.cta_store_bytes * want.ctas)


ATTENTION = [
    ({"B": 1, "H": 4, "H_kv": 2, "M": 256, "N": 256, "D": 64, "causal": 0}, 64, 64),
    ({"B": 2, "H": 4, "H_kv": 4, "M": 256, "N": 256, "D": 128, "causal": 1}, 64, 64),
    ({"B": 1, "H": 2, "H_kv": 1, "M": 200, "N": 333, "D": 64, "causal": 0}, 64, 32),
]


@pytest.mark.parametrize(("sizes", "block_m", "block_n"), ATTENTION)
def test_prefill(sizes: dict, block_m: int, block_n: int, pool: Pool) -> None:
    config = {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": 4, "num_stages": 2}
    grid = (cdiv(sizes["M"], block_m) * sizes["H"] * sizes["B"],)
    got = read("attention", "attention_kernel", {**sizes, "op": "prefill", "dtype": "bf16"}, config, grid, pool)
    want = closed("attention", "prefill", sizes, config)
    assert got.tensor_flop == {"bf16": total(want.per_cta["tensor"] * want.ctas)}
    if sizes["N"] % block_n == 0:  # the closed form counts whole key blocks; the kernel masks the last one
        assert bytes_of(got) == total(want.cta_load_bytes * want.ctas)
    assert bytes_of(got, kind="store") == total(want.cta_store_bytes * want.ctas)


def test_decode(pool: Pool) -> None:
    sizes = {"B": 2, "H": 8, "H_kv": 2, "M": 1, "N": 512, "D": 64, "causal": 1}
    config = {"BLOCK_M": 16, "BLOCK_N": 64, "NUM_KV_SPLITS": 4, "num_warps": 4, "num_stages": 2}
    grid = (sizes["B"] * sizes["H_kv"] * config["NUM_KV_SPLITS"],)
    got = read("attention", "decode_kernel", {**sizes, "op": "decode", "dtype": "bf16"}, config, grid, pool)
    want = closed("attention", "decode", sizes, config)
    assert got.tensor_flop == {"bf16": total(want.per_cta["tensor"] * want.ctas)}
    keys = 2 * sizes["B"] * sizes["H_kv"] * sizes["N"] * sizes["D"] * 2
    assert bytes_of(got, "k_ptr", "v_ptr") == keys
    assert math.isfinite(total(want.cta_load_bytes))


def test_the_bound_of_a_kernel_is_that_of_its_operator(pool: Pool) -> None:
    """Special functions may be done on the fma pipeline too: a bound that counted them on xu alone could be beaten."""
    config = {"BLOCK_SIZE": 4096, "ROWS_PER_CTA": 4, "num_warps": 8, "num_stages": 1}
    demand = read("softmax", "softmax_kernel", {"B": 4096, "H": 4096, "op": "softmax", "dtype": "bf16"}, config, (1024,), pool)
    gpu = load_gpu("H200")
    operator = pipelines.problem_batch([Problem(family="normalization", op="softmax", sizes={"B": 4096, "H": 4096})])
    of_operator = pipelines.bound(pipelines.work(operator, gpu), gpu, "warm").us[0]
    of_kernel = pipelines.bound(work_of(demand, gpu), gpu, "warm").us[0]
    assert of_operator == pytest.approx(of_kernel, rel=0.1)
