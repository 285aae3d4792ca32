"""Prints what tuning a kernel costs and how well it chooses, without a GPU: `python tests/bench/autotune.py [PART …]`.

Parts (all of them, where none is named):

- race: CPU time of a kernel that nobody described, with 46 configurations: compiling all, the first choice, further keys, mode predict;
- known: CPU time of a new key whose decision is stored, 200 configurations;
- call: what a decided call adds (dispatch.py);
- hot: pairs that differ by more than 3 % rested, on a board at its power limit (tests/autotuning/test_hot_gpu.py);
- processes: several that tune at once, some killed (tests/autotuning/test_processes.py);
- replays: published sweeps as the GPU, problems left out of the weights (tests/autotuning/test_ranking.py; ADVISOR_DATA; takes long);
- public: calls of kernels of Liger, flash-linear-attention, FlagGems and unsloth (`liger-kernel`, `fla-core`, `einops`, `flag_gems`,
  `unsloth`, where on the path) in Triton's interpreter: under Triton's own tuner, after `install()`, and under `advisor run`, whether
  they give the same.

Each race runs in a process of its own with empty caches; CPU time is of the process and its children (ptxas), measuring is left out: the
latency of a configuration is the model's, disturbed by 5 %. Times hang on the machine: compare shares, or times of one machine.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import subprocess
import sys
import tempfile
import types
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

triton = pytest.importorskip("triton")
tl = triton.language

pytestmark = [pytest.mark.bench, pytest.mark.filterwarnings("ignore")]

PROBLEMS = ((4096, 4096, 4096), (64, 28672, 4096), (512, 4096, 14336), (16, 4096, 4096))
"""Rows, columns and depth of the products that are raced, in that order: the first key, then further ones."""
TILES = [
    (m, n, k, warps, stages)
    for m in (16, 64, 128)
    for n in (64, 128, 256)
    for k in (64, 128)
    for warps, stages in ((4, 3), (4, 4), (8, 3))
    if (m + n) * k * 2 * stages <= 227 * 1024
]
GPU, DISTURBED = "NVIDIA H100 80GB HBM3", 0.05


@triton.jit
def product(
    x, w, y, rows, cols, depth, sx, sxd, swd, sw, sy, syc,
    ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """A product in bands of row tiles; what lies beyond the last row or column wraps around and is not stored."""
    pid = tl.program_id(0)
    tiles_of_rows, tiles_of_cols = tl.cdiv(rows, ROWS), tl.cdiv(cols, COLS)
    band = pid // (BAND * tiles_of_cols)
    height = min(tiles_of_rows - band * BAND, BAND)
    within = pid % (BAND * tiles_of_cols)
    r = (band * BAND + within % height) * ROWS + tl.arange(0, ROWS)
    c = (within // height) * COLS + tl.arange(0, COLS)
    d = tl.arange(0, DEPTH)
    x_at = x + (r % rows)[:, None] * sx + d[None, :] * sxd
    w_at = w + d[:, None] * swd + (c % cols)[None, :] * sw
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for step in range(tl.cdiv(depth, DEPTH)):
        left = depth - step * DEPTH
        a = tl.load(x_at, mask=d[None, :] < left, other=0.0)
        b = tl.load(w_at, mask=d[:, None] < left, other=0.0)
        total = tl.dot(a, b, total)
        x_at += DEPTH * sxd
        w_at += DEPTH * swd
    tl.store(y + r[:, None] * sy + c[None, :] * syc, total.to(tl.bfloat16), mask=(r < rows)[:, None] & (c < cols)[None, :])


def cpu_s() -> float:
    """CPU time of this process and of its children that ended, seconds."""
    return sum(os.times()[:4])


def latencies() -> list[dict[str, float]]:
    """For each problem the latency of every configuration that is raced, milliseconds, by its tile as text."""
    from advisor.autotuning.ranking import Recognised, rank
    from advisor.result.schema import Configuration, Problem

    names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps", "num_stages")
    listed = [Configuration.from_flat({**dict(zip(names, tile, strict=True)), "GROUP_SIZE_M": 8}) for tile in TILES]
    found = []
    for m, n, k in PROBLEMS:
        problem = Problem(family="gemm", op="gemm", sizes={"M": m, "N": n, "K": k}, dtype="bf16")
        ranked = rank([str(tile) for tile in TILES], Recognised(problem=problem, how="here"), "", GPU, configurations=listed)
        draws = [np.random.default_rng(zlib.crc32(f"{m} {n} {k} {tile}".encode())).standard_normal() for tile in TILES]
        slowest = max(ranked.predicted_us.values())
        us = [ranked.predicted_us.get(place, 2 * slowest) * np.exp(DISTURBED * draw) for place, draw in enumerate(draws)]
        found.append({str(tile): latency / 1e3 for tile, latency in zip(TILES, us, strict=True)})
    return found


def raced(how: str, tables: Sequence[dict[str, float]]) -> list[dict[str, Any]]:
    """For each problem the CPU seconds of `all` compilations or of a decision of a mode, how many were compiled and what was chosen."""
    import torch
    from autotuning.fakes import FakeDriver
    from triton.runtime.driver import driver

    driver.set_active(FakeDriver(GPU))
    torch.empty(1, device="meta")
    configs = [
        triton.Config(dict(zip(("ROWS", "COLS", "DEPTH", "BAND"), (*t[:3], 8), strict=True)), num_warps=t[3], num_stages=t[4])
        for t in TILES
    ]
    real, launched = product.run, []

    def run(*args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        """A launch compiles, and launches nothing."""
        compiled = real(*args, grid=grid, warmup=True, **options)
        if not warmup:
            launched.append(str(tuple(options[name] for name in ("ROWS", "COLS", "DEPTH", "num_warps", "num_stages"))))
        return compiled

    product.run = run
    found = []
    tuned: Any = None
    for (m, n, k), table in zip(PROBLEMS, tables, strict=True):
        a, b, c = (torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in ((m, k), (n, k), (m, n)))
        arguments = (a, b.t(), c, m, n, k, *a.stride(), *b.t().stride(), *c.stride())
        grid = lambda meta: (triton.cdiv(m, meta["ROWS"]) * triton.cdiv(n, meta["COLS"]),)  # noqa: B023, E731
        before, known = cpu_s(), compiled_kernels()
        if how == "all":
            for config in configs:
                product.run(*arguments, grid=grid, warmup=True, **config.all_kwargs())
            found.append({"cpu_s": cpu_s() - before, "compiled": compiled_kernels() - known})
            continue
        if tuned is None:
            from advisor.autotuning.decorator import autotune

            bench = lambda call, quantiles: (call(), [table[launched[-1]]] * 3)[1]  # noqa: B023, E731
            tuned = autotune(configs, key=["rows", "cols", "depth"], do_bench=bench, mode=how)(product)
        decision = tuned.decide(*arguments, grid=grid)
        spent, options = cpu_s() - before, decision.config.all_kwargs()
        chosen = table[str(tuple(options[name] for name in ("ROWS", "COLS", "DEPTH", "num_warps", "num_stages")))]
        looked = sum(timing.predicted_us is not None for timing in decision.timings)
        found.append(
            {
                "cpu_s": spent,
                "compiled": compiled_kernels() - known,
                "measured": sum(timing.state == "measured" for timing in decision.timings),
                "looked": looked,
                "over_best": chosen / min(table.values()),
            }
        )
    return found


def compiled_kernels() -> int:
    """How many kernels this process has compiled."""
    return len(product.device_caches[0][0]) if product.device_caches else 0


def print_race() -> None:
    tables = latencies()

    def of(how: str) -> list[dict[str, Any]]:
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "TRITON_CACHE_DIR": f"{folder}/triton", "ADVISOR_CACHE_DIR": f"{folder}/advisor"}
            environment.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # what it is without a word, and a warning
            child = [sys.executable, __file__, "--child", how]
            return json.loads(subprocess.run(child, input=json.dumps(tables), env=environment, text=True, check=True, stdout=-1).stdout)

    everything, measured, predicted = of("all")[0], of("measure"), of("predict")
    whole = everything["cpu_s"]
    print(f"race: compiling all {everything['compiled']} of {len(TILES)} configurations {whole:.2f} s CPU")
    for number, (sizes, one) in enumerate(zip(PROBLEMS, measured, strict=True)):
        of_one = one["cpu_s"] / whole * everything["compiled"]
        goal = f"goal 0.5 s; {of_one:.1f} mean compilations" if number else f"{one['cpu_s'] / whole:.3f} of that, goal 0.25"
        print(
            f"  {'further' if number else 'first'} key {'x'.join(map(str, sizes))}: {one['cpu_s']:.2f} s CPU ({goal}), "
            f"{one['compiled']} compiled, {one['measured']} measured, {one['over_best']:.3f} of the best"
        )
    first, *further = predicted
    print(
        f"  mode predict: {first['cpu_s']:.2f} s CPU ({first['cpu_s'] / whole:.3f}, goal 0.25), {first['compiled']} compiled, "
        f"{first['looked']} of {len(TILES)} looked at; further keys {', '.join(format(one['cpu_s'], '.2f') for one in further)} s"
    )


def print_known() -> None:
    from autotuning.fakes import FakeDriver
    from autotuning.kernels import GEMM_SPACE, call_gemm, gemm_kernel, tuned
    from triton.runtime.driver import driver

    from advisor.autotuning.keys import expand

    keys, configs = range(512, 532), expand(GEMM_SPACE)[:200]
    driver.set_active(FakeDriver(GPU))
    with tempfile.TemporaryDirectory() as folder:
        first, again = (
            tuned(lambda launch: 0.1, gemm_kernel, configs, key=["M", "N", "K"], cache_dir=folder, compile_ahead=False)[0] for _ in range(2)
        )
        for rows in keys:
            call_gemm(first, M=rows)
        spent = []
        for rows in keys:
            before = os.times()
            call_gemm(again, M=rows)
            spent.append(sum(os.times()[:2]) - sum(before[:2]))
        assert all(decision.how == "cached" for decision in again.decisions.values())
    print(
        f"known: a new key whose decision is stored, {len(configs)} configurations: {1e3 * np.mean(spent):.1f} ms CPU in the mean, goal 6"
    )


def print_call() -> None:
    from bench.dispatch import with_fake_driver

    found = with_fake_driver()
    print(f"call: added to a launch by triton.autotune {found['triton']:.2f} us, by advisor.autotune {found['advisor']:.2f} us")


def print_hot() -> None:
    from autotuning.fakes import FakeDriver
    from autotuning.test_hot_gpu import decided
    from triton.runtime.driver import driver

    fake = FakeDriver()
    driver.set_active(fake)
    right, once, *_ = zip(*(decided(seed, fake) for seed in range(200)), strict=True)
    print(f"hot: {sum(right)} of {len(right)} pairs decided right, goal 99 %; measured once each in turn {sum(once)}")


PACKAGES = ("liger_kernel", "fla", "flag_gems", "unsloth")


def calls_of_liger_kernel() -> dict[str, Any]:
    import torch
    from liger_kernel.ops.dyt import LigerDyTFunction
    from liger_kernel.ops.grpo_loss import fused_selective_log_softmax

    of = torch.randn
    return {
        "DyT": lambda: LigerDyTFunction.apply(of(8, 256), torch.ones(1), of(256), of(256)),
        "selective log-softmax": lambda: fused_selective_log_softmax(of(2, 5, 512), torch.randint(0, 512, (2, 4)), 0.9),
    }


def calls_of_fla() -> dict[str, Any]:
    import torch
    from fla.modules.l2norm import l2norm_fwd
    from fla.modules.layernorm import rms_norm
    from fla.ops import utils
    from fla.ops.utils.logsumexp import logsumexp_fwd
    from fla.ops.utils.matmul import matmul

    of = torch.randn
    return {
        "cumsum of scalars": lambda: utils.chunk_local_cumsum(of(1, 64, 2), 32),
        "cumsum of vectors": lambda: utils.chunk_local_cumsum(of(1, 64, 2, 16), 32),
        "logsumexp": lambda: logsumexp_fwd(of(8, 64)),
        "matmul": lambda: matmul(of(1, 32, 64), of(64, 32)),
        "mean pooling": lambda: utils.mean_pooling(of(1, 64, 2, 16), 32),
        "l2 norm": lambda: l2norm_fwd(of(32, 64))[0],
        "RMS norm": lambda: rms_norm(of(16, 64), torch.ones(64), None),
    }


def calls_of_flag_gems() -> dict[str, Any]:
    """FlagGems asks an interpreted function for what only a compiled one has: it is told while its files are imported."""
    import torch
    from triton.runtime import jit
    from triton.runtime.interpreter import InterpretedFunction

    os.environ["GEMS_VENDOR"], os.environ["FLAGGEMS_DB_URL"] = "nvidia", "sqlite://"
    gpu = types.SimpleNamespace(name="NVIDIA A100-SXM4-80GB", major=8, minor=0, multi_processor_count=108, total_memory=80 << 30)
    of_cuda = {"is_available": True, "device_count": 1, "current_device": 0, "get_device_capability": (8, 0), "get_device_properties": gpu}
    for name, answer in of_cuda.items():
        setattr(torch.cuda, name, lambda *_, answer=answer: answer)

    def parameter(num: int, of: inspect.Parameter) -> Any:
        fixed = "constexpr" in str(of.annotation)
        return types.SimpleNamespace(num=num, name=of.name, default=of.default, is_constexpr=fixed, do_not_specialize=False)

    def parameters(function: Any) -> list[Any]:
        return [parameter(num, of) for num, of in enumerate(function.signature.parameters.values())]

    InterpretedFunction.signature = property(lambda function: inspect.signature(function.fn))
    InterpretedFunction.params = property(parameters)
    InterpretedFunction.src = InterpretedFunction.cache_key = property(lambda function: inspect.getsource(function.fn))
    compiled = jit.JITFunction
    triton.runtime.JITFunction = jit.JITFunction = InterpretedFunction
    import flag_gems as gems

    triton.runtime.JITFunction = jit.JITFunction = compiled
    sys.modules["flag_gems.utils.libentry"].LibEntry.run = lambda entry, *args, **named: (entry.fn.run(*args, **named), {})
    of = torch.randn
    return {
        "mm": lambda: gems.mm(of(32, 32), of(32, 32)),
        "bmm": lambda: gems.bmm(of(2, 32, 32), of(2, 32, 32)),
        "addmm": lambda: gems.addmm(of(32), of(16, 32), of(32, 32)),
        "mv": lambda: gems.mv(of(32, 64), of(64)),
        "softmax": lambda: gems.softmax(of(8, 64), -1),
        "log-softmax": lambda: gems.log_softmax(of(8, 64), -1),
        "sum": lambda: gems.sum_dim(of(8, 64), [1]),
        "cumsum": lambda: gems.cumsum(of(8, 64), 1),
        "layer norm": lambda: gems.layer_norm(of(8, 64), [64], of(64), of(64))[0],
        "dropout": lambda: gems.dropout(of(8, 64), 0.0, True)[0],
        "argmax": lambda: gems.argmax(of(8, 64), 1),
        "vdot": lambda: gems.vdot(of(64), of(64)),
        "convolution": lambda: gems.conv2d(of(1, 4, 8, 8), of(4, 4, 3, 3)),
        "standard deviation": lambda: gems.std(of(8, 64), [1]),
    }


def calls_of_unsloth() -> dict[str, Any]:
    """Of its grouped products, whose files are read without the package around them, which wants a GPU."""
    import torch

    for name in ("unsloth", "unsloth.kernels"):
        package = types.ModuleType(name)
        package.__path__ = list(importlib.util.find_spec(name).submodule_search_locations)
        sys.modules[name] = package
    sys.modules["unsloth"].DEVICE_TYPE = "cuda"
    torch.cuda.get_device_capability = lambda *_: (8, 0)
    experts, cols, depth, tokens, chosen = 4, 128, 128, 16, 2
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(multi_processor_count=experts)
    from unsloth.kernels.moe.grouped_gemm.kernels import backward, forward, tuning

    tuning._DEVICE_PROPERTIES = tuning.DeviceProperties(NUM_SM=experts, NUM_REGS=65536, SIZE_SMEM=166912, WARP_SIZE=32)
    sizes = torch.full((experts,), tokens * chosen // experts, dtype=torch.int32)
    order = torch.randperm(tokens * chosen).to(torch.int32)
    x, w, dy = torch.randn(tokens, depth), torch.randn(experts * cols, depth), torch.randn(tokens * chosen, cols)
    common = {
        "m_sizes_ptr": sizes, "gather_indices_ptr": order, "NUM_TOKENS": tokens, "NUM_EXPERTS": experts, "TOPK": chosen,
        "N": cols, "K": depth, "NUM_SMS": experts, "PERMUTE_X": True, "PERMUTE_Y": False, "FLATTEN": True,
    }  # fmt: skip

    def called(kernel: Any, output: Any, **pointers: Any) -> Any:
        kernel[(experts,)](**common, **pointers)
        return output

    y, dw, dx = torch.zeros(tokens * chosen, cols), torch.zeros_like(w), torch.zeros(tokens * chosen, depth)
    return {
        "grouped product": lambda: called(
            forward._autotuned_grouped_gemm_forward_kernel, y, x_ptr=x, w_ptr=w, y_ptr=y, topk_weights_ptr=None, FUSE_MUL_POST=False
        ),
        "its gradient by the weights": lambda: called(backward._autotuned_grouped_gemm_dW_kernel, dw, x_ptr=x, dY_ptr=dy, dW_ptr=dw),
        "its gradient by the input": lambda: called(backward._autotuned_grouped_gemm_dX_kernel, dx, dY_ptr=dy, w_ptr=w, dX_ptr=dx),
    }


def answers(package: str) -> dict[str, str]:
    """What each call of a package gives here, by name: a sum, or its error."""
    import contextlib

    import torch
    from autotuning.fakes import FakeDriver
    from kernels.kernel_harness import mend_interpreter
    from triton.runtime.driver import driver

    from advisor.autotuning.internals import one_run

    mend_interpreter()
    torch.manual_seed(0)
    calls = globals()[f"calls_of_{package}"]()  # imported without a driver, for the libraries ask torch about its GPU
    torch.cuda.device = lambda index: contextlib.nullcontext()
    fake = FakeDriver()
    fake.get_benchmarker = lambda: one_run
    driver.set_active(fake)
    found = {}
    for name, call in calls.items():
        try:
            found[name] = f"{float(call().double().abs().sum()):.4g}"
        except Exception as error:  # of the interpreter: the same has to come whoever tunes
            found[name] = f"{type(error).__name__}: {error}"
    return found


def print_public() -> None:
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            print(f"public: {package} not run, not installed")
            continue
        found = {}
        for how in ("none", "install", "run"):
            with tempfile.TemporaryDirectory() as folder:
                environment = {**os.environ, "TRITON_INTERPRET": "1", "ADVISOR_CACHE_DIR": folder}
                tuned = ("-m", "advisor", "run", "--", sys.executable) if how == "run" else ()
                command = [sys.executable, *tuned, __file__, "--child", how, package]
                out = subprocess.run(command, env=environment, text=True, check=True, stdout=-1, input="").stdout
            found[how] = json.loads(next(line for line in reversed(out.splitlines()) if line.startswith("{")))
        plain = found["none"]
        failed = [name for name, answer in plain.items() if ": " in answer]
        print(f"public: {package}, {len(plain)} calls, {len(failed)} that fail under Triton's own tuner too ({', '.join(failed)})")
        for how in ("install", "run"):
            other = [f"{name} {plain[name]} -> {answer}" for name, answer in found[how].items() if answer != plain[name]]
            print(f"  {how}: {len(plain) - len(other)} the same{''.join(f'; {each}' for each in other)}")


def print_processes() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(ROOT / "tests/autotuning/test_processes.py")]
    print(f"processes: {subprocess.run(command, cwd=ROOT, text=True, stdout=-1, stderr=-2).stdout.splitlines()[-1]}")


class FewSteps:
    """Weights that leave problems out are fitted in a third of the trees and a tenth of the steps, not to take hours."""

    @staticmethod
    def pytest_configure(config: pytest.Config) -> None:
        from advisor.training import configured_training as training

        training.TREES, training.STEPS = training.TREES // 3, training.STEPS // 10


def print_replays() -> None:
    print("replays:", flush=True)
    pytest.main(["-p", "no:cacheprovider", "-m", "slow", "-s", str(ROOT / "tests/autotuning/test_ranking.py")], plugins=[FewSteps()])


PARTS = {
    "race": print_race,
    "known": print_known,
    "call": print_call,
    "hot": print_hot,
    "processes": print_processes,
    "public": print_public,
    "replays": print_replays,
}


@pytest.mark.parametrize("part", [part for part in PARTS if part != "replays"])
def test_print(part: str) -> None:
    command = [sys.executable, __file__, part]
    print(subprocess.run(command, text=True, check=True, stdout=-1).stdout)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        if sys.argv[2] == "install":
            import advisor

            advisor.install()
        print(json.dumps(answers(sys.argv[3]) if sys.argv[3:] else raced(sys.argv[2], json.load(sys.stdin))))
    else:
        for name in sys.argv[1:] or PARTS:
            PARTS[name]()
