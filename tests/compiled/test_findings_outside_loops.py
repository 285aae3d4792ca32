"""Findings in code outside loops: what keeps the integer units busy, narrow accesses and their cause, blocks too large to compile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.advising.kernel_launches import compiled_report
from advisor.compiled.analysis import KernelAnalysis, kernel_analysis
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.machine_work import machine_work
from advisor.compiled.launch_report import problem_of
from advisor.compiled.launches.launch import JUDGED, inspect_launch
from advisor.compiled.launches.launch_options import KernelTarget
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.diagnosis.compiled_rules import check_compiled
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import read_source
from advisor.result.schema import Finding

H100 = load_gpu("H100")
HEAD = "import triton\nimport triton.language as tl\n\n@triton.jit{decorator}\ndef k({arguments}):\n"

WIDEN = """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = i // (2 * HALF)
    col = i % (2 * HALF)
    byte = tl.load(x_ptr + row * HALF + col // 2, mask=i < n)
    tl.store(y_ptr + i, tl.where(col % 2 == 0, byte & 15, byte >> 4).to(tl.float16) - 8, mask=i < n)
"""
FLAT = """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    byte = tl.load(x_ptr + i // 2, mask=i < n)
    tl.store(y_ptr + i, tl.where(i % 2 == 0, byte & 15, byte >> 4).to(tl.float16) - 8, mask=i < n)
"""
CHANNELS = """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for c in tl.static_range(4):
        total += tl.load(x_ptr + 4 * i + c, mask=i < n, other=0).to(tl.float32)
    tl.store(y_ptr + i, total.to(tl.uint8), mask=i < n)
"""
TAPS = """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    total = tl.zeros((BLOCK,), tl.float32)
    for tap in range(0, 32):
        total += x * tl.load(w_ptr + tap)
    tl.store(y_ptr + i, total)
"""
COPY = """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)
"""
BIAS = """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i).to(tl.float32) + tl.load(w_ptr + i % n).to(tl.float32)
    tl.store(y_ptr + i, (v * (1 + tl.erf(v))).to(tl.bfloat16))
"""
NIBBLES = """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, at = i // n, i % n
    word = tl.load(x_ptr + row * (n // 8) + at // 8)
    scale = tl.load(w_ptr + row * (n // 128) + at // 128).to(tl.float32)
    tl.store(y_ptr + i, (((word >> (4 * (at % 8))) & 15).to(tl.float32) * scale).to(tl.bfloat16))
"""
PRODUCT = """
    m, d = tl.arange(0, 64), tl.arange(0, 64)
    total = tl.zeros((64, 64), tl.float32)
    for at in range(0, n, 64):
        a = tl.load(x_ptr + (tl.program_id(0) * 64 + m[:, None]) * n + at + d[None, :])
        total += tl.dot(a, tl.load(w_ptr + (at + d[:, None]) * 64 + m[None, :]))
    tl.store(y_ptr + tl.program_id(0) * 4096 + m[:, None] * 64 + d[None, :], total)
"""
ROWS = """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range({trips}):
        total += tl.load(x_ptr + row * 16384 + i{more}).to(tl.float32){times}
    tl.store(y_ptr + i, total)
"""
XY = "x_ptr, y_ptr, n, BLOCK: tl.constexpr"
XWY = "x_ptr, w_ptr, y_ptr, n, BLOCK: tl.constexpr"


def found(
    folder: Path,
    pool: Pool,
    body: str,
    arguments: str,
    types: str,
    grid: int,
    decorator: str = "",
    n: int = 2**24,
    sass: bool = False,
    **said: Any,
) -> tuple[dict[str, Finding], KernelAnalysis]:
    """The findings in a kernel on an H100 by rule, and what is predicted of it; from its IR alone where `sass` is false."""
    path = folder / "k.py"
    path.write_text(HEAD.format(decorator=decorator, arguments=arguments) + body.lstrip("\n"))
    options = {name: said.pop(name) for name in ("num_warps", "num_stages") if name in said}
    launch = make_launch(
        read_source(path),
        "k",
        types=dict(each.split("=") for each in types.split(",")),
        arguments={"n": n},
        constexprs={"BLOCK": 1024, **said},
        options=options,
        grid=(grid,),
    )
    inspection = inspect_launch(launch, compile_target("sm_90"), pool, sass=sass)
    analysis = kernel_analysis(inspection, H100, "cold")
    return {each.rule: each for each in check_compiled(inspection, analysis.facts, H100, analysis)}, analysis


def test_division_of_indices_costs_what_the_flat_form_saves(tmp_path: Path, pool: Pool) -> None:
    types, grid = "x_ptr=*u8,y_ptr=*fp16", 2**14
    split, of_split = found(tmp_path, pool, WIDEN, XY + ", HALF: tl.constexpr", types, grid, HALF=48)
    flat, of_flat = found(tmp_path, pool, FLAT, XY, types, grid)
    assert of_split.predicted is not None and of_flat.predicted is not None
    saved = split["index-arithmetic"].saving_us
    assert saved == pytest.approx(of_split.predicted.us - of_flat.predicted.us, rel=0.2)
    # The two lines that divide by 96.
    assert split["index-arithmetic"].source_line in (7, 8) and "division" in split["index-arithmetic"].evidence
    assert "index-arithmetic" not in flat


def test_one_division_serves_all_that_a_thread_loads_at_once(tmp_path: Path, pool: Pool) -> None:
    """Eight elements of bf16 for each thread: the IR divides for each of them, the machine code once."""
    types = "x_ptr=*bf16,w_ptr=*bf16,y_ptr=*bf16"
    rules, analysis = found(tmp_path, pool, BIAS, XWY, types, 2**15, n=14336, sass=True, BLOCK=2048, num_warps=8)
    assert "index-arithmetic" not in rules
    by_ir = check_compiled(analysis.inspection, replace(analysis.facts, code=()), H100, analysis)
    assert "index-arithmetic" in {finding.rule for finding in by_ir}


@pytest.mark.parametrize("columns", [4096, 5120])
def test_a_divisor_that_could_be_a_constant_is_named_with_what_that_saves(tmp_path: Path, pool: Pool, columns: int) -> None:
    """Weights of four bits in words of eight: rows and columns are taken apart by an argument, which as a constant takes shifts, and where
    it is no power of two multiplications."""
    types, grid = "x_ptr=*i32,w_ptr=*bf16,y_ptr=*bf16", 2**15
    (rules, before), (_, after) = (
        found(tmp_path, pool, NIBBLES, arguments, types, grid, n=columns, sass=True)
        for arguments in (XWY, XWY.replace("n,", "n: tl.constexpr,"))
    )
    finding = rules["index-arithmetic"]
    assert finding.remedy.startswith("make n tl.constexpr: ") and finding.title.startswith("Index arithmetic, mostly divisions, ")
    assert before.predicted is not None and after.predicted is not None
    assert finding.saving_us == pytest.approx(before.predicted.us - after.predicted.us, rel=0.5)
    parts = {part.cause: part.us for part in before.gap_parts}
    assert parts["instructions"] > 3 * parts["efficiency"], "what is above the bound is the code's own integer work, not a low rate"


@pytest.mark.parametrize(("given", "mark"), [({"HALF": 64}, ""), ({}, " (guessed: HALF)")])
def test_a_finding_names_the_guess_that_it_hangs_on(given: dict[str, int], mark: str, tmp_path: Path, pool: Pool) -> None:
    arguments, types = "x_ptr, y_ptr, n, HALF: tl.constexpr, BLOCK: tl.constexpr", "x_ptr=*u8,y_ptr=*fp16"
    title = found(tmp_path, pool, WIDEN, arguments, types, 2**14, **given)[0]["index-arithmetic"].title
    assert title.partition(" (")[0] + mark == title


def test_bytes_of_one_word_that_are_loaded_apart(tmp_path: Path, pool: Pool) -> None:
    rules, analysis = found(tmp_path, pool, CHANNELS, XY, "x_ptr=*u8,y_ptr=*u8", 2**14)
    assert problem_of(analysis.inspection).dtype == "int8"
    assert "4 loads of x_ptr take 1 byte each" in rules["packable-loads"].title and "tl.uint32" in rules["packable-loads"].remedy
    one = CHANNELS.replace("static_range(4)", "static_range(1)")
    assert "packable-loads" not in found(tmp_path, pool, one, XY, "x_ptr=*u8,y_ptr=*u8", 2**14)[0]  # what lies between is nobody's


@pytest.mark.parametrize(
    ("body", "weights", "fires"),
    [
        (ROWS.format(trips="0, 4096", more="", times=" * tl.load(w_ptr + row)"), "fp32", "4,096 1 row (256 bytes)"),
        (ROWS.format(trips="0, n", more="", times=" * tl.load(w_ptr + row)"), "fp32", "1,024 4 rows (1.02 kB)"),  # as ptxas has it
        (ROWS.format(trips="0, n", more="", times=" * tl.load(w_ptr + row)"), "i64", "1,024 4 rows (1.02 kB)"),  # of 64 bits
        (ROWS.format(trips="0, n, BLOCK", more="", times=""), "fp32", ""),  # a larger block makes fewer trips: that is for the search
        (ROWS.format(trips="0, 1024", more=" + tl.load(w_ptr + row)", times=""), "i64", ""),  # rows that another load names
    ],
    ids=["a row in each trip", "four rows in each trip", "four rows by a mask", "a block in each trip", "rows by index"],
)
def test_rows_that_a_loop_waits_for_one_after_another(body: str, weights: str, fires: str, tmp_path: Path, pool: Pool) -> None:
    """128 columns of 4,096 rows in each program: 256 bytes at a time, where 8 KB give each thread 64."""
    types = f"x_ptr=*bf16,w_ptr=*{weights},y_ptr=*fp32"
    rules, analysis = found(tmp_path, pool, body, XWY, types, 128, n=4096, BLOCK=128, num_warps=4)
    assert ("loads-in-turn" in rules) == bool(fires)
    assert "narrow-access" not in compiled_report(KernelTarget(id="0", launch=analysis.inspection.launch), analysis, H100).passed_rules
    if fires:
        rule, (waits, _, rows) = rules["loads-in-turn"], fires.partition(" ")
        assert rule.title == f"Each program waits {waits} times for loads of x_ptr, {rows} at a time"
        assert rule.source_line == 9 and "load 32 rows" in rule.remedy and "reduce it along the rows once after the loop" in rule.remedy
        assert analysis.predicted is not None and 0.8 * analysis.predicted.us < rule.saving_us < analysis.predicted.us


def test_scalars_that_every_warp_loads(tmp_path: Path, pool: Pool) -> None:
    types = "x_ptr=*fp32,w_ptr=*fp32,y_ptr=*fp32"
    rules, analysis = found(tmp_path, pool, TAPS, XWY, types, 2**17, sass=True, BLOCK=128, num_warps=8)
    loop = analysis.inspection.demand.loops[0]
    assert loop.mean_trips == 32 and analysis.facts.unrolled(loop.line, loop.depth)
    issued = 8 * len(analysis.facts.code)  # none of a loop: once by every warp, also by those whose threads have no element of their own
    padding = 8 * sum(item.opcode == "NOP" for item in analysis.facts.code)
    assert float(analysis.demand.per_cta["issue"][0]) == pytest.approx(issued - padding)
    assert rules["masked-lanes"].title == "128 elements fill 4 of 8 warps; the others repeat their work"
    assert "num_warps=4" in rules["masked-lanes"].remedy and rules["masked-lanes"].saving_us
    assert rules["scalar-loads"].title == "32 scalar loads in a program, each issued by all 256 threads"
    assert rules["scalar-loads"].source_line == 10
    once = TAPS.replace("range(0, 32)", "range(0, 1)")
    assert "scalar-loads" not in found(tmp_path, pool, once, XWY, types, 2**17, BLOCK=128)[0]


@pytest.mark.parametrize(("decorator", "cause"), [('(do_not_specialize=["n"])', True), ("", False)])
def test_do_not_specialize_is_named_as_the_cause_of_narrow_accesses(tmp_path: Path, pool: Pool, decorator: str, cause: bool) -> None:
    rules, _ = found(tmp_path, pool, COPY, XY, "x_ptr=*fp16,y_ptr=*fp16", 2**14, decorator)
    assert ("narrow-access" in rules) is cause
    if cause:
        assert rules["narrow-access"].remedy.startswith("remove n from do_not_specialize")
    # A size that is none of 16 is narrow whatever the compiler is told.
    other, _ = found(tmp_path, pool, COPY, XY, "x_ptr=*fp16,y_ptr=*fp16", 2**14, decorator, n=2**24 - 3)
    assert "do_not_specialize" not in other["narrow-access"].remedy


@pytest.mark.parametrize(("stride", "cause"), [("s: tl.int64", True), ("s: int", True), ("s", False)])
def test_the_type_of_a_stride_is_named_as_the_cause_of_narrow_accesses(tmp_path: Path, pool: Pool, stride: str, cause: bool) -> None:
    """Of a 1 whose type is annotated Triton makes no constant."""
    body = COPY.replace("x_ptr + i,", "x_ptr + i * s,")
    assert body != COPY
    path = tmp_path / "k.py"
    path.write_text(HEAD.format(decorator="", arguments=f"{XY}, {stride}") + body.lstrip("\n"))
    launch = make_launch(
        read_source(path),
        "k",
        types={"x_ptr": "*fp16", "y_ptr": "*fp16"},
        arguments={"n": 2**24, "s": 1},
        constexprs={"BLOCK": 1024},
        options={},
        grid=(2**14,),
    )
    inspection = inspect_launch(launch, compile_target("sm_90"), pool, sass=False)
    analysis = kernel_analysis(inspection, H100, "cold")
    rules = {item.rule: item for item in check_compiled(inspection, analysis.facts, H100, analysis)}
    assert ("narrow-access" in rules) is cause
    if cause:
        assert rules["narrow-access"].title.endswith("for the type of s") and rules["narrow-access"].remedy.startswith(
            "leave out the type of s (`s`"
        )


LOOPED = """
    row = tl.program_id(0).to(tl.int64) * n
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(y_ptr + row + at, 2 * tl.load(x_ptr + row + at, mask=at < n), mask=at < n)
"""


@pytest.mark.parametrize(("block", "warps", "repeats"), [(128, 8, True), (64, 8, True), (128, 2, False), (2048, 8, False)])
def test_threads_that_repeat_the_work_of_others_in_a_loop(tmp_path: Path, pool: Pool, block: int, warps: int, repeats: bool) -> None:
    rules, _ = found(tmp_path, pool, LOOPED, XY, "x_ptr=*bf16,y_ptr=*bf16", 2**10, n=4096, BLOCK=block, num_warps=warps)
    assert ("narrow-access" in rules) is repeats
    if repeats:
        finding = rules["narrow-access"]
        assert "2 bytes per thread" in finding.title and f"{100 - 100 * block // 256} % of the threads repeat" in finding.evidence
        assert "2,048 elements with 8 warps" in finding.remedy and (finding.saving_us or 0) > 0


@pytest.mark.parametrize(("stages", "waits"), [(1, True), (3, False)])
def test_a_loop_with_a_product_and_one_stage(tmp_path: Path, pool: Pool, stages: int, waits: bool) -> None:
    types = "x_ptr=*fp16,w_ptr=*fp16,y_ptr=*fp32"
    rules, _ = found(tmp_path, pool, PRODUCT, XWY, types, 132, n=4096, num_stages=stages)
    assert ("single-stage-loop" in rules) is waits
    if waits:
        assert (rules["single-stage-loop"].saving_us or 0) > 0 and "num_stages=3" in rules["single-stage-loop"].remedy


def test_a_block_beyond_the_registers_is_judged_without_compiling(tmp_path: Path, pool: Pool) -> None:
    types = "x_ptr=*fp32,y_ptr=*fp32"
    rules, analysis = found(tmp_path, pool, COPY, XY, types, 64, BLOCK=2**18)
    assert analysis.inspection.compiled.metadata[JUDGED] == 2**18 and not analysis.inspection.compiled.ptx
    assert rules["block-exceeds-registers"].title == "BLOCK of 262,144 elements: 2,048 for each of 128 threads"
    assert (rules["block-exceeds-registers"].saving_us or 0) > 0 and "register-spills" not in rules
    # What the code does is counted all the same: every byte once in and once out.
    assert analysis.inspection.demand.requested_load_bytes == 4 * 2**24
    wide, spread = found(tmp_path, pool, COPY, XY, types, 1024, BLOCK=2**14, num_warps=16)
    assert "block-exceeds-registers" not in wide and spread.inspection.compiled.ptx


@pytest.mark.parametrize(
    ("at", "programs", "told"), [("tl.arange(0, BLOCK)", 2**10, True), ("tl.arange(0, BLOCK)", 32, False), ("i", 2**10, False)]
)
def test_atomics_that_meet_are_told(at: str, programs: int, told: bool, tmp_path: Path, pool: Pool) -> None:
    body = f"""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr + {at}, tl.load(x_ptr + i, mask=i < n), mask=i < n)
"""
    rules, _ = found(tmp_path, pool, body, XY, "x_ptr=*fp32,y_ptr=*fp32", programs, n=1024 * programs)
    assert ("contended-atomics" in rules) == told
    if told:
        assert rules["contended-atomics"].title == "1,024 atomics meet at each of 1,024 addresses of y_ptr"


@pytest.mark.parametrize(("value", "live", "touched"), [("x", 1, 2), ("x * x + tl.exp(x)", 2, 10)])
def test_spills_of_a_block_that_is_not_compiled_are_of_every_value(tmp_path: Path, pool: Pool, value: str, live: int, touched: int) -> None:
    """2,048 registers of a thread for each value: it is written once and read at every use, but for the 255 that a thread has."""
    body = f"    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    x = tl.load(x_ptr + i)\n    tl.store(y_ptr + i, {value})\n"
    _, analysis = found(tmp_path, pool, body, XY, "x_ptr=*fp32,y_ptr=*fp32", 64, BLOCK=2**18)
    moved = 4 * 2048 * touched * (1 - 255 / (2048 * live))
    inspection = analysis.inspection
    extra = machine_work(inspection.compiled, inspection.demand, analysis.facts, H100, 64, 2)
    assert extra.spill_bytes == pytest.approx(64 * 128 * moved)


def test_arithmetic_of_fp64_is_bound_by_its_units(tmp_path: Path, pool: Pool) -> None:
    body = """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = x
    for _ in tl.static_range(192):
        y = y * x + 1.0
    tl.store(y_ptr + i, y)
"""
    _, analysis = found(tmp_path, pool, body, XY, "x_ptr=*fp64,y_ptr=*fp64", 2**12)
    times = {each.pipeline: each.time_us for each in analysis.pipelines}
    assert analysis.config_binding_pipeline == "fma" and times["issue"] < 0.8 * times["fma"]  # two instructions in three clocks, at most


@pytest.mark.parametrize(("n", "told"), [(1024, True), (4000, False)])
def test_lanes_beyond_a_row_are_told(n: int, told: bool, tmp_path: Path, pool: Pool) -> None:
    body = """
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + i, mask=i < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x))
    tl.store(y_ptr + tl.program_id(0) * n + i, e / tl.sum(e), mask=i < n)
"""
    rules, _ = found(tmp_path, pool, body, XY, "x_ptr=*fp16,y_ptr=*fp16", 2**12, n=n, BLOCK=4096)
    assert ("masked-lanes" in rules) == told
    if told:
        assert rules["masked-lanes"].title == "75 % of the lanes that load are masked off" and rules["masked-lanes"].saving_us
