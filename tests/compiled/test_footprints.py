"""Distinct bytes of arguments, where addresses are known, where some are, and where none are."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.compiled.analysis import kernel_analysis
from advisor.compiled.demand.assembly import read_facts
from advisor.compiled.demand.footprints import certain_footprint, likely_footprint
from advisor.compiled.launches.launch import Inspection, inspect_launch
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.diagnosis.compiled_rules import accesses, check_compiled, not_judged
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import read_source
from advisor.result.schema import Finding, PipelineTime

from .shared_pool import POOL

HEAD = "import triton\nimport triton.language as tl\n\n@triton.jit\n"
ROWS, COLUMNS = 4096, 8192


def inspected(kernel: str, tmp_path: Path, grid: int = ROWS, weights: int | None = None, **arguments: int) -> Inspection:
    path = tmp_path / "k.py"
    path.write_text(HEAD + textwrap.dedent(kernel))
    arguments = ({"cols": COLUMNS} if "cols" in kernel else {}) | arguments
    constants = {"BLOCK": 1024} | ({"WEIGHTS": weights} if weights else {})
    launch = make_launch(read_source(path), "k", arguments=arguments, constexprs=constants, grid=(grid,))
    return inspect_launch(launch, compile_target("sm_90"), POOL, sass=False)


def found(inspection: Inspection) -> dict[str, Finding]:
    gpu, facts = load_gpu("H100"), read_facts(inspection.compiled)
    return {f.rule: f for f in check_compiled(inspection, facts, gpu, kernel_analysis(inspection, gpu, "warm", facts))}


GATHER = """
    def k(x_ptr, label_ptr, out_ptr, cols, BLOCK: tl.constexpr):
        row = tl.program_id(0)
        total = 0.0
        for start in range(0, cols, BLOCK):
            total += tl.sum(tl.load(x_ptr + row * cols + start + tl.arange(0, BLOCK)).to(tl.float32))
        label = tl.load(label_ptr + row)
        tl.store(out_ptr + row, total - tl.load(x_ptr + row * cols + label))
"""


def test_what_is_known_of_a_tensor_counts_beside_a_gather(tmp_path: Path) -> None:
    inspection = inspected(GATHER, tmp_path)
    assert inspection.demand.read_footprints["x_ptr"] == ROWS * COLUMNS * 2
    assert inspection.demand.unlocated == {"x_ptr"}


EMBEDDING = """
    def k(x_ptr, label_ptr, out_ptr, cols, BLOCK: tl.constexpr):
        row, lanes = tl.program_id(0), tl.arange(0, BLOCK)
        tl.store(out_ptr + row * BLOCK + lanes, tl.load(x_ptr + tl.load(label_ptr + row) * cols + lanes))
"""


@pytest.mark.parametrize("sizes", [{}, {"x_ptr": ROWS * COLUMNS}])
def test_rows_that_labels_choose_are_likely_others_and_certainly_one(sizes: dict[str, int], tmp_path: Path) -> None:
    """Also where it is not known how many there are; what is assumed is said."""
    path = tmp_path / "k.py"
    path.write_text(HEAD + textwrap.dedent(EMBEDDING))
    given = {"cols": COLUMNS}
    launch = make_launch(read_source(path), "k", arguments=given, constexprs={"BLOCK": 1024}, grid=(ROWS,), sizes=sizes)
    demand = inspect_launch(launch, compile_target("sm_90"), POOL, sass=False).demand
    assert demand.read_footprints["x_ptr"] == 1024 * 2 and demand.unlocated == {"x_ptr"}
    assert demand.likely_read_footprints["x_ptr"] == 1024 * 2 * ROWS
    assert "assumes different rows for each index (from the contents of label_ptr)" in demand.unknown["the addresses of accesses to x_ptr"]


LOOKED_UP = """
    def k(x_ptr, label_ptr, out_ptr, cols, BLOCK: tl.constexpr):
        row, lanes = tl.program_id(0), tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        for t in range(0, 100):
            total += tl.load(x_ptr + tl.load(label_ptr + row * 100 + t) * cols + lanes)
        tl.store(out_ptr + row * BLOCK + lanes, total)
"""


def test_a_program_may_look_up_the_same_entry_again_and_again(tmp_path: Path) -> None:
    demand = inspected(LOOKED_UP, tmp_path).demand
    assert demand.read_footprints["x_ptr"] == 1024 * 2
    assert demand.likely_read_footprints["x_ptr"] == pytest.approx(100 * 1024 * 2 * ROWS)


RAGGED = """
    def k(x_ptr, offsets_ptr, out_ptr, longest, BLOCK: tl.constexpr):
        row, lanes = tl.program_id(0), tl.arange(0, BLOCK)
        first, last = tl.load(offsets_ptr + row), tl.load(offsets_ptr + row + 1)
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, longest, BLOCK):
            at = first + start + lanes
            total += tl.load(x_ptr + at, mask=at < last, other=0.0)
        tl.store(out_ptr + row, tl.sum(total))
"""


def test_ragged_rows_likely_lie_one_behind_the_other(tmp_path: Path) -> None:
    """Where one begins and where it ends are no two indices of one row."""
    demand = inspected(RAGGED, tmp_path, longest=4096).demand
    assert demand.offsets == {"offsets_ptr"}
    assert demand.likely_read_footprints["x_ptr"] == pytest.approx(4096 * 2 * ROWS)


TWO_STRIDES = """
    def k(x_ptr, out_ptr, x_stride_h, x_stride_t, out_stride, D: tl.constexpr):
        t, h, lanes = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
        tl.store(out_ptr + (h * tl.num_programs(0) + t) * out_stride + lanes, tl.load(x_ptr + h * x_stride_h + t * x_stride_t + lanes))
"""


def test_rows_whose_strides_are_not_given_follow_one_another(tmp_path: Path) -> None:
    """For the bound too."""
    path = tmp_path / "k.py"
    path.write_text(HEAD + textwrap.dedent(TWO_STRIDES))
    found = inspect_launch(
        make_launch(read_source(path), "k", constexprs={"D": 128}, grid=(50, 8)), compile_target("sm_90"), POOL, sass=False
    )
    assert found.demand.likely_read_footprints["x_ptr"] == found.demand.likely_written_footprints["out_ptr"] == 50 * 8 * 128 * 2
    assert found.demand.read_footprints["x_ptr"] == found.demand.footprint_bytes["x_ptr"] == 50 * 8 * 128 * 2
    assert found.likely is not None
    assert (found.likely.scalars["x_stride_t"], found.likely.scalars["x_stride_h"]) == (128, 50 * 128)
    said = found.demand.unknown["the addresses of accesses to x_ptr"]
    assert "assumed contiguous rows" in said and "x_stride_h = 6,400" in said
    analysis = kernel_analysis(found, load_gpu("H100"), "cold")
    assert analysis.predicted is not None and analysis.doubt_us is not None
    assert analysis.doubt_us[0] < analysis.predicted.us <= analysis.doubt_us[1]


HALVES = """
    def k(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        rows = tl.num_programs(0)
        a = tl.load(x_ptr + at)
        b = tl.load(x_ptr + rows * BLOCK + at)
        tl.store(out_ptr + at, a * b)
"""


def test_parts_of_one_tensor_add_up(tmp_path: Path) -> None:
    assert inspected(HALVES, tmp_path).demand.read_footprints["x_ptr"] == 2 * ROWS * 1024 * 2


UNKNOWN_STRIDE = """
    def k(x_ptr, out_ptr, cols, stride, BLOCK: tl.constexpr):
        row = tl.program_id(0)
        total = tl.zeros([BLOCK], tl.float32)
        for start in range(0, cols, BLOCK):
            total += tl.load(x_ptr + row * stride + start + tl.arange(0, BLOCK)).to(tl.float32)
        tl.store(out_ptr + row * BLOCK + tl.arange(0, BLOCK), total)
"""


@pytest.mark.parametrize(("arguments", "repeats"), [({}, False), ({"stride": COLUMNS}, False), ({"stride": 0}, True)])
def test_bytes_of_unknown_place_are_not_said_to_be_loaded_again(arguments: dict[str, int], repeats: bool, tmp_path: Path) -> None:
    assert ("repeated-loads" in found(inspected(UNKNOWN_STRIDE, tmp_path, **arguments))) == repeats


TWO_TENSORS = """
    def k(x_ptr, weight_ptr, out_ptr, cols, BLOCK: tl.constexpr, WEIGHTS: tl.constexpr):
        row = tl.program_id(0)
        for start in range(0, cols, BLOCK):
            at = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + row * cols + at)
            w = tl.load(weight_ptr + row % WEIGHTS * cols + at)
            tl.store(out_ptr + row * cols + at, x * w)
"""


def test_the_line_named_is_that_of_what_is_loaded_again(tmp_path: Path) -> None:
    """Where all fits the L2, which then binds; where rows stream from DRAM, reading the weights again costs nothing. Weights of one row,
    which every program needs, are none that are loaded again."""
    finding = found(inspected(TWO_TENSORS, tmp_path, grid=512, weights=4)).get("repeated-loads")
    assert finding is not None and finding.source_line == 11
    assert "repeated-loads" not in found(inspected(TWO_TENSORS, tmp_path, grid=4 * ROWS, weights=4))
    assert "repeated-loads" not in found(inspected(TWO_TENSORS, tmp_path, grid=512, weights=1))


def test_what_stays_in_the_l2_is_not_charged_for_what_others_read_from_dram(tmp_path: Path) -> None:
    """Rows that are passed over twice, each with one of four rows of weights: a second reading of the rows is none of the weights."""
    twice = TWO_TENSORS.replace(
        "for start",
        "total = 0.0\n        for start in range(0, cols, BLOCK):\n"
        "            total += tl.sum(tl.load(x_ptr + row * cols + start + tl.arange(0, BLOCK)))\n        for start",
        1,
    ).replace("x * w", "x * w * total")
    assert "repeated-loads" not in found(inspected(twice, tmp_path, grid=4 * ROWS, weights=4, cols=65536))


PADDED = """
    def k(x_ptr, y_ptr, out_ptr, cols, rows, BLOCK: tl.constexpr):
        row = tl.program_id(0) * 8 + tl.arange(0, 8)
        total = tl.zeros((8,), tl.float32)
        for start in range(0, cols, BLOCK):
            at = row[:, None] * cols + start + tl.arange(0, BLOCK)[None, :]
            total += tl.sum(tl.load(x_ptr + at, mask=row[:, None] < rows, other=0.0).to(tl.float32), axis=1)
        none = tl.load(y_ptr + row, mask=row < rows - 1000000, other=0.0)
        tl.store(out_ptr + row, total + none, mask=row < rows)
"""


@pytest.mark.parametrize("rows", [3, 8, 203, ROWS * 8])
def test_rows_that_a_mask_leaves_out_are_not_touched(rows: int, tmp_path: Path) -> None:
    """A loop over whole tiles asks for the last rows' tile in every program, of which most lanes are off."""
    demand = inspected(PADDED, tmp_path, rows=rows).demand
    assert demand.read_footprints == {"x_ptr": rows * COLUMNS * 2, "y_ptr": 0}
    assert demand.footprint_bytes["out_ptr"] == rows * 2 and not demand.unlocated


SHARED_ROWS = """
    def k(x_ptr, out_ptr, cols, rows, BLOCK: tl.constexpr):
        row = tl.arange(0, 16)
        at = row[:, None] * cols + tl.program_id(0) % 8 * BLOCK + tl.arange(0, BLOCK)[None, :]
        x = tl.load(x_ptr + at, mask=row[:, None] < rows, other=0.0)
        tl.store(out_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.sum(x, axis=0))
"""


def test_a_tile_taller_than_its_tensor_counts_no_more_than_there_is(tmp_path: Path) -> None:
    demand = inspected(SHARED_ROWS, tmp_path, rows=3).demand
    assert demand.read_footprints["x_ptr"] == 3 * COLUMNS * 2


PRODUCT = """
    def k(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr):
        a_desc = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[64, 64])
        b_desc = tl.make_tensor_descriptor(b_ptr, shape=[N, K], strides=[K, 1], block_shape=[128, 64])
        c_desc = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[64, 128])
        total = tl.zeros((64, 128), tl.float32)
        m, n = tl.program_id(0) % 3 * 64, tl.program_id(0) // 3 * 128
        for k in range(0, K, 64):
            total = tl.dot(a_desc.load([m, k]), b_desc.load([n, k]).T, total)
        c_desc.store([m, n], total.to(c_ptr.dtype.element_ty))
"""


@pytest.mark.parametrize(("m", "k"), [(16, 256), (130, 8192), (192, 200)])
def test_a_descriptor_made_in_the_kernel_touches_what_lies_inside_its_tensor(m: int, k: int, tmp_path: Path) -> None:
    n, columns = 480, 4
    demand = inspected(PRODUCT, tmp_path, grid=3 * columns, M=m, N=n, K=k).demand
    assert demand.footprint_bytes == {"a_ptr": m * k * 2, "b_ptr": n * k * 2, "c_ptr": m * n * 2}
    assert demand.store_bytes == m * n * 2
    assert demand.load_bytes == (columns * m + 3 * n) * k * 2
    assert not demand.unlocated and not demand.unknown


COPY = """
    def k(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + at, tl.load(x_ptr + at))
"""


def test_a_compiled_kernel_may_end_with_its_results_in_the_l2(tmp_path: Path) -> None:
    inspection, gpu = inspected(COPY, tmp_path), load_gpu("H100")
    one_way = float(ROWS * 1024 * 2)
    analysis = kernel_analysis(inspection, gpu, "cold")
    (dram,) = (each for each in analysis.pipelines if each.pipeline == "dram")
    assert (dram.problem_demand, dram.demand) == (one_way, 2 * one_way)  # certain, and likely
    assert dram.problem_time_us == pytest.approx(one_way / gpu.dram_bytes_per_s * 1e6)
    warm = kernel_analysis(inspection, gpu, "warm")
    assert {each.pipeline: each for each in warm.pipelines}["dram"].problem_demand == 0


def test_a_warm_l2_holds_what_is_overwritten_once(tmp_path: Path) -> None:
    """Of 60 MB read and written in place an L2 of 50 MB can keep 50: the rest at least is read, and written back, and likely all."""
    path, gpu, elements = tmp_path / "k.py", load_gpu("H100"), 60 * 1024 * 1024 // 4
    path.write_text(
        HEAD
        + """
def k(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)
"""
    )

    def of_dram(count: int) -> PipelineTime:
        launch = make_launch(
            read_source(path), "k", types={"x_ptr": "*fp32"}, arguments={"n": count}, constexprs={"BLOCK": 1024}, grid=(-(-count // 1024),)
        )
        (dram,) = (
            each
            for each in kernel_analysis(inspect_launch(launch, compile_target("sm_90"), POOL, sass=False), gpu, "warm").pipelines
            if each.pipeline == "dram"
        )
        return dram

    small, large = of_dram(int(gpu.l2_bytes * 0.4) // 4), of_dram(elements)
    assert small.problem_demand == 0 and small.demand < 0.01 * gpu.l2_bytes
    assert large.problem_demand == 2 * (elements * 4 - gpu.l2_bytes)
    assert large.demand == pytest.approx(2 * elements * 4, rel=0.02)


def test_the_bound_of_guessed_integers_in_place_is_that_of_the_narrower_type(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text(
        HEAD
        + """
def k(counts_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(counts_ptr + at, tl.load(counts_ptr + at, mask=at < n) + 1, mask=at < n)
"""
    )

    def bound_us(types: dict[str, str]) -> float:
        launch = make_launch(read_source(path), "k", types=types, arguments={"n": 60_000_000}, constexprs={"BLOCK": 1024}, grid=(58594,))
        return kernel_analysis(inspect_launch(launch, compile_target("sm_90"), POOL, sass=False), load_gpu("H200"), "warm").bound.us

    assert bound_us({}) == bound_us({"counts_ptr": "*i32"})


@pytest.mark.parametrize(
    ("update", "certain"),
    [
        ("tl.atomic_add(out_ptr + at, tl.load(x_ptr + at))", 2),
        ("tl.atomic_xchg(out_ptr + at, tl.load(x_ptr + at))", 1),
        ("tl.store(out_ptr + at, tl.load(x_ptr + at) + tl.load(out_ptr + at))", 2),
        ("tl.store(out_ptr + at, 1.0)\n    tl.atomic_add(out_ptr + at, tl.load(x_ptr + at))", 1),
    ],
)
def test_a_cold_launch_reads_what_it_updates(update: str, certain: int, tmp_path: Path) -> None:
    """By atomic operations or in place: of the old values nothing is in the L2. What is overwritten needs none."""
    kernel = f"""
def k(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {update}
"""
    types = {"x_ptr": "*fp32", "out_ptr": "*fp32"}
    path = tmp_path / "k.py"
    path.write_text(HEAD + kernel)
    launch = make_launch(read_source(path), "k", types=types, constexprs={"BLOCK": 1024}, grid=(ROWS,))
    analysis = kernel_analysis(inspect_launch(launch, compile_target("sm_90"), POOL, sass=False), load_gpu("H100"), "cold")
    (dram,) = (each for each in analysis.pipelines if each.pipeline == "dram")
    assert dram.problem_demand == certain * ROWS * 1024 * 4


LOADED_POINTER = """
    def k(pointers, out_ptr, BLOCK: tl.constexpr):
        x_ptr = tl.load(pointers + tl.program_id(0)).to(tl.pointer_type(tl.float16))
        lanes = tl.arange(0, BLOCK)
        tl.store(out_ptr + tl.program_id(0) * BLOCK + lanes, tl.load(x_ptr + lanes))
"""


def test_what_is_assumed_behind_a_loaded_pointer_is_said(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text(HEAD + textwrap.dedent(LOADED_POINTER))
    launch = make_launch(read_source(path), "k", constexprs={"BLOCK": 1024}, grid=(ROWS,))
    demand = inspect_launch(launch, compile_target("sm_90"), POOL, sass=False).demand
    behind = next(a for a in demand.accesses if a.argument is None)
    said = demand.unknown[f"the tensor and addresses of line {behind.line}"]
    assert "assumes different rows for each index (from the contents of pointers)" in said
    assert max(demand.likely_read_footprints.values()) == ROWS * 1024 * 2  # each program has a tensor of its own


@pytest.mark.parametrize(("cols", "said"), [(0, True), (8, False)])
def test_work_that_vanishes_is_remarked_on(cols: int, said: bool, tmp_path: Path) -> None:
    kernel = """
        def k(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
            lanes = tl.arange(0, BLOCK)
            tl.store(out_ptr + lanes, tl.load(x_ptr + lanes, mask=lanes < cols), mask=lanes < cols)
    """
    path = tmp_path / "k.py"
    path.write_text(HEAD + textwrap.dedent(kernel))
    launch = make_launch(read_source(path), "k", arguments={"cols": cols}, constexprs={"BLOCK": 64}, grid=(1,))
    notes = inspect_launch(launch, compile_target("sm_90"), POOL, sass=False).assumptions
    assert any(text.startswith("Nothing is moved in line 8,") for text in notes) == said


@pytest.mark.parametrize(("offsets", "said"), [(7, True), ((0, 3, 5), False)])
def test_a_loop_that_never_runs_is_remarked_on(offsets: int | tuple[int, ...], said: bool, tmp_path: Path) -> None:
    kernel = """
        def k(offsets, out_ptr):
            at = tl.load(offsets + tl.program_id(0))
            end = tl.load(offsets + tl.program_id(0) + 1)
            while at < end:
                tl.store(out_ptr + at, 1.0)
                at += 1
    """
    path = tmp_path / "k.py"
    path.write_text(HEAD + textwrap.dedent(kernel))
    launch = make_launch(read_source(path), "k", types={"offsets": "*i32"}, grid=(2,))
    notes = inspect_launch(replace(launch, contents={"offsets": offsets}), compile_target("sm_90"), POOL, sass=False).assumptions
    assert any(text.startswith("Nothing is moved in line 9,") for text in notes) == said


TWO_PASSES = """
    def k(x_ptr, sum_ptr, out_ptr, cols, BLOCK: tl.constexpr):
        base = tl.program_id(0) * cols
        total = tl.zeros([BLOCK], tl.float32)
        for start in range(0, cols, BLOCK):
            x = tl.load(x_ptr + base + start + tl.arange(0, BLOCK)).to(tl.float32)
            tl.store({kept} + base + start + tl.arange(0, BLOCK), x.to(tl.bfloat16))
            total += x * x
        scale = tl.rsqrt(tl.sum(total, 0))
        for start in range(0, cols, BLOCK):
            again = tl.load({again} + base + start + tl.arange(0, BLOCK))
            tl.store(out_ptr + base + start + tl.arange(0, BLOCK), again * scale)
"""


@pytest.mark.parametrize("again", ["sum_ptr", "x_ptr"])
def test_a_second_pass_over_a_row_is_one_cause_with_its_own_remedy(again: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was stored is read from DRAM as predicted; what was loaded where the rows in flight no longer fit the L2. A row in registers
    spares the addresses and masks of the second load, too."""
    spared: list[float] = []
    once = accesses._once
    monkeypatch.setattr(accesses, "_once", lambda *given: spared.append(given[3]["alu"] if len(given) > 3 else 0.0) or once(*given))
    inspection = inspected(TWO_PASSES.format(kept="sum_ptr", again=again), tmp_path, grid=4 * ROWS)
    rules = found(inspection)
    assert rules["second-pass"].source_line == 15 and again in rules["second-pass"].title and rules["second-pass"].saving_us > 0
    assert "repeated-loads" not in rules and max(spared) > 0
    never = inspected(TWO_PASSES.format(kept="sum_ptr", again="out_ptr"), tmp_path, grid=4 * ROWS)
    assert "second-pass" not in found(never)  # what was there before the launch, and nobody had


def test_a_second_pass_is_judged_where_rows_are_taken_for_contiguous(tmp_path: Path) -> None:
    """Their stride is not given; what hangs on how the compiler was told of it is not judged, nor called passed."""
    kernel = (
        TWO_PASSES.format(kept="sum_ptr", again="x_ptr")
        .replace("* cols", "* stride_row")
        .replace("cols, BLOCK:", "cols, stride_row, BLOCK:")
    )
    inspection = inspected(kernel, tmp_path, grid=4 * ROWS)
    known = inspected(kernel, tmp_path, grid=4 * ROWS, stride_row=COLUMNS)
    guessed, told = found(inspection)["second-pass"], found(known)["second-pass"]
    assert guessed.title == told.title and guessed.saving_us == pytest.approx(told.saving_us, rel=0.02)
    assert told.remedy.startswith("take one block of 8,192 elements for the row's 8,192,")
    assert not_judged(inspection) >= {"narrow-access"} and not not_judged(known)


@pytest.mark.parametrize(("second", "exponentials"), [("x", 1), ("z", 0)], ids=["the same line", "another"])
def test_a_row_in_registers_spares_what_the_second_pass_works_out_again(
    second: str, exponentials: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that says what one of the first pass does: its results are kept, as the row is."""
    spared: list[float] = []
    once = accesses._once
    monkeypatch.setattr(accesses, "_once", lambda *given: spared.append(given[3]["xu"] if len(given) > 3 else 0.0) or once(*given))
    kernel = f"""
        def k(x_ptr, sum_ptr, out_ptr, cols, BLOCK: tl.constexpr):
            base = tl.program_id(0) * cols
            most = 0.0
            for start in range(0, cols, BLOCK):
                x = tl.load(x_ptr + base + start + tl.arange(0, BLOCK)).to(tl.float32)
                y = tl.exp(x)
                most = tl.maximum(most, tl.max(y, 0))
            for start in range(0, cols, BLOCK):
                {second} = tl.load(x_ptr + base + start + tl.arange(0, BLOCK)).to(tl.float32)
                y = tl.exp({second})
                tl.store(out_ptr + base + start + tl.arange(0, BLOCK), y - most)
    """
    assert "second-pass" in found(inspected(kernel, tmp_path, grid=4 * ROWS))
    assert max(spared) == exponentials * 4 * ROWS * COLUMNS


@pytest.mark.parametrize("stores", [False, True])
def test_a_second_pass_over_a_long_row_needs_one_loop_unless_it_stores_each_element(
    stores: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of 128 KiB, which no block holds; programs may end at once, so that nothing of them is certain. One loop of both spares what the
    second load converts, too."""
    spared: list[float] = []
    once = accesses._once
    monkeypatch.setattr(accesses, "_once", lambda *given: spared.append(given[3]["alu"] if len(given) > 3 else 0.0) or once(*given))
    store = "tl.store(out_ptr + base + start + tl.arange(0, BLOCK), x * highest)"
    kernel = f"""
        def k(x_ptr, sum_ptr, out_ptr, cols, BLOCK: tl.constexpr):
            base = tl.program_id(0) * cols
            if tl.load(sum_ptr + tl.program_id(0)) == -100.0:
                return
            highest = -float("inf")
            for start in range(0, cols, BLOCK):
                highest = tl.maximum(highest, tl.max(tl.load(x_ptr + base + start + tl.arange(0, BLOCK)).to(tl.float32), 0))
            total = 0.0
            for start in range(0, cols, BLOCK):
                x = tl.load(x_ptr + base + start + tl.arange(0, BLOCK)).to(tl.float32)
                total += tl.sum(tl.exp(x - highest), 0)
                {store if stores else ""}
            tl.store(sum_ptr + tl.program_id(0), total)
    """
    rules = found(inspected(kernel, tmp_path, grid=ROWS, cols=65_536))
    assert ("second-pass" in rules) != stores
    assert stores or "one loop of both" in rules["second-pass"].remedy
    assert ROWS * 65_536 <= max(spared) < 3 * ROWS * 65_536


def test_a_second_pass_over_two_halves_of_a_row_is_one(tmp_path: Path) -> None:
    """Gate and values of a gated unit lie side by side in one tensor: each load asks for half of it."""
    load = "tl.load(x_ptr + 2 * base + {}start + tl.arange(0, BLOCK)).to(tl.float32)"
    kernel = TWO_PASSES.replace(
        "tl.load(x_ptr + base + start + tl.arange(0, BLOCK)).to(tl.float32)", f"{load.format('')} * {load.format('cols + ')}"
    )
    kernel = "\n".join(line for line in kernel.splitlines() if "{kept}" not in line)
    again = "tl.load({again} + base + start + tl.arange(0, BLOCK))"
    rules = found(inspected(kernel.replace(again, f"{load.format('')} * {load.format('cols + ')}"), tmp_path, grid=4 * ROWS))
    assert "x_ptr" in rules["second-pass"].title and "repeated-loads" not in rules
    assert "second-pass" not in found(inspected(kernel.replace(again, "1.0"), tmp_path, grid=4 * ROWS))


QUERY_OR_KEY = """
    def k(q_ptr, k_ptr, out_ptr, cols, stride_k, BLOCK: tl.constexpr):
        row, head, lanes = tl.program_id(0), tl.program_id(1), tl.arange(0, BLOCK)
        if head < 3:
            base = q_ptr + (row * 3 + head) * BLOCK
        else:
            base = k_ptr + row * stride_k
        tl.store(out_ptr + (row * 4 + head) * BLOCK + lanes, tl.load(base + lanes) * 2)
"""


@pytest.mark.parametrize("rows", [100, ROWS])
@pytest.mark.parametrize("given", [{"stride_k": 1024}, {}])
def test_a_pointer_into_one_of_two_arguments_counts_in_both(given: dict[str, int], rows: int, tmp_path: Path) -> None:
    """Of all programs, and where a sample is looked at; a stride that is not given is that of contiguous rows."""
    path = tmp_path / "k.py"
    path.write_text(HEAD + textwrap.dedent(QUERY_OR_KEY))
    launch = make_launch(read_source(path), "k", arguments=given, constexprs={"BLOCK": 1024}, grid=(rows, 4))
    demand = inspect_launch(launch, compile_target("sm_90"), POOL, sass=False).demand
    assert demand.read_footprints == demand.likely_read_footprints
    assert sum(demand.read_footprints.values()) == rows * 4 * 1024 * 2
    assert certain_footprint(demand).read == likely_footprint(demand).read == certain_footprint(demand).written == rows * 4 * 1024 * 2


ALSO_ALONE = """
    def k(q_ptr, k_ptr, out_ptr, cols, BLOCK: tl.constexpr):
        row, lanes = tl.program_id(0), tl.arange(0, BLOCK)
        if row % 2 == 0:
            base = q_ptr
        else:
            base = k_ptr
        both = tl.load(base + row * BLOCK + lanes) + tl.load(q_ptr + row * BLOCK + lanes)
        tl.store(out_ptr + row * BLOCK + lanes, both)
"""


def test_what_may_be_read_of_one_argument_twice_is_counted_once_for_certain(tmp_path: Path) -> None:
    demand = inspected(ALSO_ALONE, tmp_path).demand
    assert certain_footprint(demand).read == ROWS * 1024 * 2
    assert "whether what k_ptr or q_ptr reads is one of the other tensors" in demand.unknown
