"""Distinct bytes of small launches against every address, listed one by one."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.compiled.demand.counts import KernelDemand
from advisor.compiled.ir import values
from advisor.compiled.ir.execution import Places, Remembered, Running
from advisor.compiled.ir.lattices import Lattice, distinct_bytes
from advisor.compiled.ir.places import Family, PlaceRecorder, families
from advisor.compiled.ir.values import Value
from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.python_source.source import read_source

from .shared_pool import POOL

HEAD = "import triton\nimport triton.language as tl\n\n@triton.jit\n"
Grid = tuple[int, ...]


def demand_of(kernel: str, tmp_path: Path, grid: Grid, contents: dict[str, Any] | None = None, **arguments: int) -> KernelDemand:
    path = tmp_path / "k.py"
    path.write_text(HEAD + textwrap.dedent(kernel))
    constants = {name: value for name, value in arguments.items() if name.isupper()}
    scalars = {name: value for name, value in arguments.items() if not name.isupper()}
    launch = make_launch(read_source(path), "k", arguments=scalars, constexprs=constants, grid=grid, contents=contents or {})
    return inspect_launch(launch, compile_target("sm_90"), POOL, sass=False).demand


def listed(grid: Grid, elements: Callable[..., Iterable[Any]]) -> int:
    """Distinct bf16 bytes of what `elements` gives for the programs of a grid, an array per access and trip."""
    found: set[int] = set()
    for z in range((*grid, 1, 1)[2]):
        for y in range((*grid, 1, 1)[1]):
            for x in range(grid[0]):
                for array in elements(x, y, z):
                    found.update(np.asarray(array).reshape(-1).tolist())
    return 2 * len(found)


DECODE = """
    def k(x, out, batch_stride, row_stride, head_stride, length, GROUP: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
        b, h = tl.program_id(0), tl.program_id(1)
        total = tl.zeros((BLOCK, WIDTH), tl.float32)
        for t in range(0, length, BLOCK):
            rows = t + tl.arange(0, BLOCK)
            at = b * batch_stride + rows[:, None] * row_stride + (h // GROUP) * head_stride + tl.arange(0, WIDTH)[None, :]
            total += tl.load(x + at, mask=(rows < length)[:, None], other=0.0)
        tl.store(out + b * tl.num_programs(1) + h, tl.sum(total))
"""


@pytest.mark.parametrize("length", [64, 100, 2_000])
@pytest.mark.parametrize("batch_stride", [2_000 * 64, 2_000 * 64 + 8, 2**22, -(2**22)])
@pytest.mark.parametrize("row_stride", [64, 96])
def test_heads_that_share_rows_of_a_cache_count_them_once(length: int, batch_stride: int, row_stride: int, tmp_path: Path) -> None:
    """A cache with room for more than its length; also trips that are sampled (2,000 rows, 16 at once)."""
    demand = demand_of(
        DECODE,
        tmp_path,
        (3, 8),
        batch_stride=batch_stride,
        row_stride=row_stride,
        head_stride=32,
        length=length,
        GROUP=4,
        WIDTH=32,
        BLOCK=16,
    )

    def elements(b: int, h: int, _: int) -> list[Any]:
        return [b * batch_stride + np.arange(length)[:, None] * row_stride + h // 4 * 32 + np.arange(32)]

    assert demand.read_footprints["x"] == listed((3, 8), elements)


PASSES = """
    def k(x, out, stride, cols, BLOCK: tl.constexpr):
        row, lanes = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        for c in range(0, cols, BLOCK):
            total += tl.load(x + row * stride + c + lanes, mask=c + lanes < cols, other=0.0).to(tl.float32)
        mean = tl.sum(total) / cols
        for c in range(0, cols, BLOCK):
            tl.store(out + row * stride + c + lanes, tl.load(x + row * stride + c + lanes, mask=c + lanes < cols) - mean)
"""


@pytest.mark.parametrize("rows", [5, 40_000])
@pytest.mark.parametrize("cols", [96, 200])
@pytest.mark.parametrize("stride", [600, 200])
def test_passes_over_padded_rows_count_once(rows: int, cols: int, stride: int, tmp_path: Path) -> None:
    """Stores are not masked: their last block runs over the end of the row. Of many rows only some are looked at."""
    demand = demand_of(PASSES, tmp_path, (rows,), stride=stride, cols=cols, BLOCK=32)
    stored = -(-cols // 32) * 32
    end = stored if stride > stored else stride
    assert demand.read_footprints["x"] == pytest.approx(2 * rows * cols, rel=1e-3)
    assert sum(demand.written_footprints.values()) == pytest.approx(2 * (rows * end + stored - end), rel=1e-3)
    if rows < 16_384:
        assert demand.read_footprints["x"] == 2 * rows * cols


IDLE = """
    def k(x, out, heads, length, BLOCK: tl.constexpr):
        bh = tl.program_id(2)
        b, h = bh // heads, bh % heads
        rows = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        at = (b * length + rows[:, None]) * heads * 16 + h * 16 + tl.arange(0, 8)[None, :]
        value = tl.load(x + at, mask=rows[:, None] < length, other=0.0)
        tl.store(out + at + tl.program_id(0) * 8, value, mask=rows[:, None] < length)
"""


@pytest.mark.parametrize("grid", [(2, 5, 12), (2, 5, 4_096)])
def test_axes_that_addresses_do_not_depend_on_count_once(grid: Grid, tmp_path: Path) -> None:
    demand = demand_of(IDLE, tmp_path, grid, heads=4, length=70, BLOCK=16)
    once = grid[2] * 70 * 8 * 2
    assert demand.footprint_bytes["x"] == once
    assert demand.footprint_bytes["out"] == pytest.approx(2 * once, rel=1e-3)  # the first and last looked at are not those of the grid
    assert demand.footprint_bytes["out"] <= 2 * once


HALVES = """
    def k(x, out, stride, shift, BLOCK: tl.constexpr):
        row, lanes = tl.program_id(0) // 2, tl.arange(0, BLOCK)
        first = tl.load(x + row * stride + lanes)
        second = tl.load(x + row * stride + shift + lanes)
        reverse = tl.load(x + row * stride + shift + 2 * BLOCK - lanes)
        tl.store(out + row * BLOCK + lanes, first * second * reverse)
"""


@pytest.mark.parametrize("shift", [64, 40, 0, 300])
@pytest.mark.parametrize("stride", [1_000, 300, 130, 7, 0, -500])
def test_parts_of_the_same_rows_add_up_where_they_do_not_overlap(shift: int, stride: int, tmp_path: Path) -> None:
    demand = demand_of(HALVES, tmp_path, (30,), stride=stride, shift=shift, BLOCK=64)
    lanes = np.arange(64)

    def elements(x: int, *_: int) -> list[Any]:
        return [x // 2 * stride + each for each in (lanes, shift + lanes, shift + 128 - lanes)]

    assert demand.read_footprints["x"] == listed((30,), elements)


WINDOWS = """
    def k(x, out, step, cols, BLOCK: tl.constexpr, TAPS: tl.constexpr):
        at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) * step
        taps = tl.arange(0, TAPS)
        window = tl.load(x + tl.program_id(1) * 5_000 + at[:, None] + taps[None, :], mask=at[:, None] + taps[None, :] < cols, other=0.0)
        wrapped = tl.load(x + tl.program_id(1) * 5_000 + (at + 3) % cols)
        tl.store(out + at, tl.sum(window, axis=1) + wrapped)
"""


@pytest.mark.parametrize("step", [1, 2, 3, 4, 11])
@pytest.mark.parametrize("cols", [77, 240, 2_500])
def test_windows_that_overlap_and_wrap_count_once(step: int, cols: int, tmp_path: Path) -> None:
    demand = demand_of(WINDOWS, tmp_path, (6, 3), step=step, cols=cols, BLOCK=16, TAPS=4)

    def elements(x: int, y: int, _: int) -> list[Any]:
        at = (x * 16 + np.arange(16)) * step
        window = at[:, None] + np.arange(4)
        return [y * 5_000 + window[window < cols], y * 5_000 + (at + 3) % cols]

    assert demand.read_footprints["x"] == listed((6, 3), elements)


PAGES = """
    def k(x, pages, length_of, out, BLOCK: tl.constexpr):
        row, lanes = tl.program_id(0), tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK, 8), tl.float32)
        for t in range(0, tl.load(length_of + row)):
            page = tl.load(pages + row * 300 + t)
            total += tl.load(x + page * 1_000 + lanes[:, None] * 16 + tl.arange(0, 8)[None, :])
        last = tl.load(pages + row * 300 + lanes)
        total += tl.load(x + last[:, None] * 1_000 + 900 + tl.arange(0, 8)[None, :])
        tl.store(out + row, tl.sum(total))
"""


@pytest.mark.parametrize("most", [3, 30, 290])
def test_pages_from_a_table_count_once_each(most: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    pages, lengths = generator.integers(0, 400, (9, 300)), generator.integers(1, most + 1, 9)
    demand = demand_of(PAGES, tmp_path, (9,), contents={"pages": pages, "length_of": lengths}, BLOCK=16)

    def elements(x: int, *_: int) -> list[Any]:
        inner = np.arange(16)[:, None] * 16 + np.arange(8)
        return [*(p * 1_000 + inner for p in pages[x, : lengths[x]]), pages[x, :16, None] * 1_000 + 900 + np.arange(8)]

    assert demand.read_footprints["x"] == listed((9,), elements)


CAUSAL = """
    def k(x, out, stride, BLOCK: tl.constexpr):
        m, h = tl.program_id(0), tl.program_id(1)
        total = tl.zeros((BLOCK, 16), tl.float32)
        for t in range(0, (m + 1) * BLOCK, BLOCK):
            rows = t + tl.arange(0, BLOCK)
            total += tl.load(x + (rows[:, None] * 8 + h) * stride + tl.arange(0, 16)[None, :])
        tl.store(out + m * BLOCK + tl.arange(0, BLOCK), tl.sum(total, axis=1))
"""


@pytest.mark.parametrize(("blocks", "heads", "rows"), [(7, 4, 7 * 16 * 4), (150, 4, 150 * 16 * 4), (150, 500, (150 * 16 - 1) * 8 + 500)])
def test_loops_of_different_lengths_count_the_longest(blocks: int, heads: int, rows: int, tmp_path: Path) -> None:
    """Eight heads fill a row; of more, the last are in the rows that follow."""
    assert demand_of(CAUSAL, tmp_path, (blocks, heads), stride=64, BLOCK=16).read_footprints["x"] == rows * 16 * 2


SWIZZLED = """
    def k(a, out, rows, cols, group, BLOCK: tl.constexpr):
        pid = tl.program_id(0)
        wide = group * cols
        first = pid // wide * group
        height = min(rows - first, group)
        m, n = first + pid % wide % height, pid % wide // height
        lanes = tl.arange(0, BLOCK)
        value = tl.load(a + m * 100 + lanes)
        tl.store(out + (m * cols + n) * 100 + lanes, value)
"""


@pytest.mark.parametrize(("rows", "cols"), [(7, 5), (300, 200)])
def test_programs_in_an_order_of_their_own(rows: int, cols: int, tmp_path: Path) -> None:
    """Of more programs than are looked at, no more than what these store is certain."""
    demand = demand_of(SWIZZLED, tmp_path, (rows * cols,), rows=rows, cols=cols, group=8, BLOCK=64)
    assert demand.footprint_bytes["a"] == rows * 64 * 2
    stored = demand.footprint_bytes["out"]
    assert stored <= rows * cols * 64 * 2
    assert (stored == rows * cols * 64 * 2) == (rows * cols <= 16_384) == (not demand.unknown)


TRIANGLE = """
    def k(x, out, size, tiles, BLOCK: tl.constexpr):
        m, n = tl.program_id(0), tl.program_id(1)
        if n <= m:
            at = (m * BLOCK + tl.arange(0, BLOCK))[:, None] * size + n * BLOCK + tl.arange(0, BLOCK)[None, :]
            tl.store(out + at, 2 * tl.load(x + at))
"""
SLIDING = """
    def k(x, out, size, tiles, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.program_id(1) * tiles * BLOCK
        odd = (tl.program_id(0) * tl.program_id(0)) % 3
        tl.store(out + at, tl.sum(tl.load(x + at + odd + tl.arange(0, 4 * BLOCK))))
"""
ONE_TABLE = """
    def k(x, out, size, tiles, BLOCK: tl.constexpr):
        m, n = tl.program_id(0), tl.program_id(1)
        tl.store(out + (m * tiles + n) * BLOCK + tl.arange(0, BLOCK), tl.load(x + (m * m + n) % 64 * BLOCK + tl.arange(0, BLOCK)))
"""


@pytest.mark.parametrize(
    ("kernel", "touched"),
    [(TRIANGLE, 256 * 257 // 2 * 16 * 16), (SLIDING, 256 * 256 * 16), (ONE_TABLE, 64 * 16)],
    ids=["triangle", "windows", "one table"],
)
def test_what_programs_touch_that_were_not_looked_at_is_expected_of_those_that_were(kernel: str, touched: int, tmp_path: Path) -> None:
    """Their own each, what the neighbours have too, what all have; the bound counts no more than what is certain."""
    demand = demand_of(kernel, tmp_path, (256, 256), size=256 * 16, tiles=256, BLOCK=16)
    assert demand.read_footprints["x"] <= 2.001 * touched
    assert demand.likely_read_footprints["x"] == pytest.approx(2 * touched, rel=0.1)


@pytest.mark.parametrize("seed", range(40))
def test_sums_of_sets_are_counted_as_listed(seed: int) -> None:
    generator = np.random.default_rng(seed)
    every: set[int] = set()
    found = []
    for _ in range(int(generator.integers(1, 4))):
        each, elements = Lattice(int(generator.integers(-50, 50))), np.zeros(1, np.int64)
        elements = elements + each.offset
        for _ in range(int(generator.integers(1, 4))):
            if generator.random() < 0.7:
                part = int(generator.integers(-9, 30)) * np.arange(int(generator.integers(1, 9)))
            else:
                part = generator.integers(-40, 40, 6)
            each.add(part)
            elements = (elements[:, None] + part[None, :]).reshape(-1)
        each.close()
        found.append(each)
        every.update(elements.tolist())
    assert distinct_bytes(found) == len(every)


def test_places_beyond_64_bits_are_counted() -> None:
    """Where guessed strides lead that are too large."""
    assert distinct_bytes([Lattice(2**70, [(1, 4)]), Lattice(2**70 + 2, [(1, 4)]), Lattice(2**80 + 64, [(1, 8)])]) == 14


@pytest.mark.parametrize("order", ["rows", "groups"])
def test_tiles_of_a_flat_grid_too_large_to_look_at_whole_count_all_of_them(order: str, tmp_path: Path) -> None:
    """313 x 313 tiles, the last of a row and of a column masked, numbered row by row, or in groups of rows the last of which is smaller."""
    number = {
        "rows": "m, n = pid // tiles_n, pid % tiles_n",
        "groups": "first = pid // (8 * tiles_n) * 8\\n"
        "        in_group = tl.minimum(tl.cdiv(rows, SIZE) - first, 8)\\n"
        "        m, n = first + (pid % (8 * tiles_n)) % in_group, (pid % (8 * tiles_n)) // in_group",
    }[order].replace("\\n", "\n")
    kernel = f"""
    def k(out, rows, SIZE: tl.constexpr):
        pid = tl.program_id(0)
        tiles_n = tl.cdiv(rows, SIZE)
        {number}
        row, column = m * SIZE + tl.arange(0, SIZE), n * SIZE + tl.arange(0, SIZE)
        inside = (row < rows)[:, None] & (column < rows)[None, :]
        tl.store(out + row[:, None] * rows + column[None, :], tl.zeros((SIZE, SIZE), tl.float32), mask=inside)
    """
    found = demand_of(kernel, tmp_path, (313 * 313,), rows=20_000, SIZE=64).footprint_bytes["out"]
    assert 0.99 * 2 * 20_000**2 < found <= 2 * 20_000**2


LANES = np.arange(4)[None, :]
STARTS = np.array([[0], [100], [300]])


def recorded(pointer: Value, mask: Value | None = None, listable: int = 1_000) -> tuple[PlaceRecorder, list[Family]]:
    """What one execution in three programs touches, by itself."""
    recorder = PlaceRecorder(np.arange(3), Remembered(), listable=listable)
    found: Places = {}
    recorder.record(pointer, mask, Running(np.ones(3, bool), np.ones(3)), found)
    return recorder, families(found, recorder.sets)


def elements(found: list[Family]) -> set[int]:
    return {int(sum(each)) for family in found for each in itertools.product(family.starts, family.shifts, *family.patterns)}


def test_lanes_that_all_programs_share_are_kept_once() -> None:
    _, (family,) = recorded(Value((STARTS, LANES), (4,), False, "x"))
    assert family.patterns[0].tolist() == [0, 1, 2, 3] and elements([family]) == {*range(4), *range(100, 104), *range(300, 304)}


def test_masks_that_differ_make_families_that_do() -> None:
    length = np.array([[4], [4], [2]])
    _, found = recorded(Value((STARTS, LANES), (4,), False, "x"), values.of(length > LANES, (4,)))
    assert len(found) == 2 and elements(found) == {*range(4), *range(100, 104), 300, 301}


def test_lanes_of_each_program_are_listed_as_far_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.compiled.ir.places.MOST_PATTERNS", 1)
    scattered = Value((np.array([[0, 5, 9, 11], [1, 2, 3, 40], [7, 7, 7, 7]]),), (4,), False, "x")
    recorder, found = recorded(scattered)
    assert elements(found) == {0, 5, 9, 11, 1, 2, 3, 40, 7} and recorder.listable == 1_000 - 12
    recorder, found = recorded(scattered, listable=11)
    assert not found and recorder.listable == 11


@pytest.mark.parametrize("first", ["load", "store"])
def test_as_many_programs_as_lanes(first: str, tmp_path: Path) -> None:
    """Where programs start is then the same numbers as what their lanes add to it, and is not taken for it."""
    load, store = "total = tl.sum(tl.load(x + pid * BLOCK + tl.arange(0, BLOCK)))", "tl.store(sums + pid, {})"
    body = [load, store.format("total")] if first == "load" else [store.format("1.0"), load, "tl.store(other + 2 * pid, total)"]
    kernel = "def k(x, sums, other, BLOCK: tl.constexpr):\n    pid = tl.program_id(0)\n    " + "\n    ".join(body) + "\n"
    demand = demand_of(kernel, tmp_path, (64,), BLOCK=64)
    assert demand.read_footprints["x"] == 2 * 64 * 64 and demand.written_footprints["sums"] == 2 * 64


def test_distinct_bytes_halves_of_many_rows() -> None:
    pages = np.random.default_rng(0).permutation(40_000).astype(np.int64) * 4096  # of 16 rows each: 1.28 million halves of rows
    halves = [Lattice(offset, [(1, 128), (256, 16)], [np.sort(pages)]) for offset in (0, 128)]
    assert distinct_bytes(halves) == 40_000 * 16 * 256
