"""Rows and columns of a product's tile that hold nothing of the problem: demand of the configuration, not of the bound."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from advisor.compiled.analysis import PROBLEM_NOTE, KernelAnalysis, kernel_analysis
from advisor.compiled.demand.counts import KernelDemand
from advisor.compiled.launches.launch import Inspection, inspect_launch
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.compiled.report import as_text
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import read_source
from advisor.system.resources import folder

from .shared_pool import POOL

HEAD = "import triton\nimport triton.language as tl\n\n"
GEMM = """
    @triton.jit
    def k(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        m = tl.program_id(0) * BM + tl.arange(0, BM)
        n = tl.program_id(1) * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            at = start + tl.arange(0, BK)
            x = tl.load(a + m[:, None] * K + at[None, :], mask=LEFT, other=0.0)
            y = tl.load(b + n[:, None] * K + at[None, :], mask=(n[:, None] < N) & (at[None, :] < K), other=0.0)
            total += tl.dot(x, tl.trans(y))
        tl.store(c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))
"""
LEFT = {"both": "(m[:, None] < M) & (at[None, :] < K)", "depth alone": "at[None, :] < K"}
ATTENTION = """
    @triton.jit
    def k(q, v, out, n, HEADS: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
        h = tl.arange(0, ROWS)
        d = tl.arange(0, D)
        x = tl.load(q + tl.program_id(0) * HEADS * D + h[:, None] * D + d[None, :], mask=h[:, None] < HEADS, other=0.0)
        most = tl.full((ROWS,), -1e30, tl.float32)
        total = tl.zeros((ROWS, D), tl.float32)
        for start in range(0, n, BN):
            at = start + tl.arange(0, BN)
            y = tl.load(v + at[:, None] * D + d[None, :], mask=at[:, None] < n, other=0.0)
            scores = tl.dot(x, tl.trans(y)) + tl.where(h[:, None] >= at[None, :] - n, 0.0, -1.0)
            now = tl.maximum(most, tl.max(scores, 1))
            total = total * tl.exp(most - now)[:, None] + tl.dot(tl.exp(scores - now[:, None]).to(y.dtype), y)
            most = now
        tl.store(out + tl.program_id(0) * HEADS * D + h[:, None] * D + d[None, :], total, mask=h[:, None] < HEADS)
"""


def inspected(kernel: str, tmp_path: Path, arguments: dict[str, int], constexprs: dict[str, int], grid: tuple[int, ...]) -> Inspection:
    path = tmp_path / "k.py"
    path.write_text(HEAD + textwrap.dedent(kernel))
    source = read_source(path)
    types = {p.name: "*bf16" for p in source.kernel("k").parameters[:3]}
    launch = make_launch(source, "k", types=types, arguments=arguments, constexprs=constexprs, grid=grid)
    return inspect_launch(launch, compile_target("sm_90"), POOL, sass=False)


def needed(demand: KernelDemand) -> float:
    assert demand.certain.padding == demand.padding
    return demand.total_tensor_flop - sum(demand.padding.tensor_flop.values())


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 96, 256), (17, 130, 100), (70, 40, 6_500), (64, 128, 64)])
def test_a_matrix_product_needs_what_its_problem_does(m: int, n: int, k: int, left: str, tmp_path: Path) -> None:
    kernel = GEMM.replace("LEFT", LEFT[left])
    grid = (-(-m // 64), -(-n // 128))
    demand = inspected(kernel, tmp_path, {"M": m, "N": n, "K": k}, {"BM": 64, "BN": 128, "BK": 64}, grid).demand
    assert needed(demand) == pytest.approx(2 * m * n * k)
    assert demand.total_tensor_flop == 2 * 64 * grid[0] * 128 * grid[1] * 64 * -(-k // 64)


def test_padded_heads_are_no_part_of_attention(tmp_path: Path) -> None:
    found = inspected(ATTENTION, tmp_path, {"n": 1_000}, {"HEADS": 3, "ROWS": 16, "D": 64, "BN": 64}, (8,))
    assert needed(found.demand) == pytest.approx(8 * 2 * 2 * 3 * 1_000 * 64)
    assert found.demand.total_tensor_flop == 8 * 2 * 2 * 16 * 1_024 * 64


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("mask=(m[:, None] < M) & (n[None, :] < N))", "mask=n[None, :] < N)"), "all rows are stored"),
        (("tl.store(c", "tl.store(c + m, tl.sum(total, 1))\n        tl.store(c"), "all rows are used"),
    ],
)
def test_what_is_used_is_no_padding(change: tuple[str, str], why: str, tmp_path: Path) -> None:
    kernel = GEMM.replace("LEFT", LEFT["depth alone"]).replace(*change)
    found = inspected(kernel, tmp_path, {"M": 1, "N": 128, "K": 128}, {"BM": 64, "BN": 128, "BK": 64}, (1, 1))
    assert needed(found.demand) == found.demand.total_tensor_flop, why


def test_lanes_that_are_not_zero_are_no_padding(tmp_path: Path) -> None:
    kernel = GEMM.replace("LEFT, other=0.0", f"{LEFT['both']}, other=1.0").replace("mask=(m[:, None] < M) & (n[None", "mask=(n[None")
    found = inspected(kernel, tmp_path, {"M": 1, "N": 128, "K": 128}, {"BM": 64, "BN": 128, "BK": 64}, (1, 1))
    assert needed(found.demand) == found.demand.total_tensor_flop


def test_the_bound_leaves_padding_out_and_the_configuration_keeps_it(tmp_path: Path) -> None:
    kernel, gpu = GEMM.replace("LEFT", LEFT["both"]), load_gpu("H200")
    analyses = []
    for block in (16, 256):
        found = inspected(kernel, tmp_path, {"M": 1, "N": 4096, "K": 4096}, {"BM": block, "BN": 64, "BK": 64}, (1, 64))
        analyses.append(kernel_analysis(found, gpu))
    small, large = analyses
    assert large.bound.us == pytest.approx(small.bound.us)
    assert large.work.tensor_flop[0] == pytest.approx(2 * 4096 * 4096)
    assert large.demand.totals()["tensor"][0] == 2 * 256 * 4096 * 4096
    assert large.config_bound.us > small.config_bound.us and large.binding_pipeline != "tensor"
    assert next(part.us for part in large.gap_parts if part.cause == "padding") > 0
    text = as_text(large.inspection, large.facts, large, ())
    assert PROBLEM_NOTE in text


UNPACKED = """
    @triton.jit
    def k(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        m = tl.arange(0, BM)
        n = tl.program_id(0) * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            at = start + tl.arange(0, BK)
            x = tl.load(a + m[:, None] * K + at[None, :], mask=m[:, None] < M, other=0.0)
            y = tl.load(b + at[:, None] * N + n[None, :])
            total = tl.dot(x, (RIGHT).to(tl.bfloat16), total)
        tl.store(c + m[:, None] * N + n[None, :], total, mask=m[:, None] < M)
"""


def unpacked(tmp_path: Path, m: int, right: str) -> KernelAnalysis:
    """A product with a tile of 64 rows of which `m` are the problem's."""
    kernel = UNPACKED.replace("RIGHT", right)
    found = inspected(kernel, tmp_path, {"M": m, "N": 4096, "K": 4096}, {"BM": 64, "BN": 64, "BK": 64}, (64,))
    return kernel_analysis(found, load_gpu("H200"))


def test_what_is_done_to_weights_is_no_padding(tmp_path: Path) -> None:
    asked = unpacked(tmp_path, 4, right="tl.exp(y.to(tl.float32))").demand
    assert asked.useful_share("xu")[0] == 1.0
    assert asked.useful_share("tensor")[0] == pytest.approx(4 / 64)
    assert asked.useful_share("smem")[0] > 0.4, "half of what is staged are weights, of which none is padding"


def test_weights_are_unpacked_for_few_rows_as_for_many(tmp_path: Path) -> None:
    """Work that all rows share is no padding, also where it is most of the time."""
    steps = "tl.exp(tl.exp(tl.exp(tl.exp(tl.exp(tl.exp(tl.exp(tl.exp(y.to(tl.float32)))))))))"
    few, many = (unpacked(tmp_path, m, right=steps) for m in (1, 64))
    assert few.predicted is not None and many.predicted is not None
    assert few.predicted.us == pytest.approx(many.predicted.us, rel=0.02)
    parts = [{part.cause: part.us for part in each.gap_parts} for each in (few, many)]
    assert parts[1]["padding"] == pytest.approx(0, abs=0.01) and parts[0]["padding"] < 0.05 * few.predicted.us


MASKED = """
    @triton.jit
    def k(a, b, c, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(a + at, mask=at < n).to(tl.float32) + tl.load(b + at, mask=at < n).to(tl.float32)
        tl.store(c + at, x, mask=at < n)
"""


def test_outside_of_products_the_work_includes_masked_lanes_and_the_page_says_so(tmp_path: Path) -> None:
    full, masked = (inspected(MASKED, tmp_path, {"n": n}, {"BLOCK": 1024}, (64,)) for n in (64 * 1024, 63 * 1024 + 1))
    flop = [float(kernel_analysis(side, load_gpu("H100"), "warm").work.amounts()["fma"].flat[0]) for side in (full, masked)]
    assert flop == [64 * 1024] * 2
    hint = (folder("reports") / "sections" / "roofline.html.jinja").read_text(encoding="utf-8")
    assert "Outside of products, those of a kernel of your own include masked lanes." in hint and "without padding" not in hint
