"""What is certain whatever the data are that decide: no more than what happens for any of them, listed one by one."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.advising.kernel_report import advise_compiled
from advisor.compiled.analysis import KernelAnalysis, kernel_analysis
from advisor.compiled.demand.counts import KernelDemand
from advisor.compiled.demand.demand import EXACT_PROGRAMS
from advisor.compiled.launches.launch import Inspection, inspect_launch
from advisor.compiled.launches.launch_options import LaunchOptions
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.compiled.report import as_text
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import read_source
from advisor.result.schema import UNCERTAIN

from .shared_pool import POOL

HEAD = "import triton\nimport triton.language as tl\n\n"
PROGRAMS, BLOCK = 24, 32


def inspected(kernel: str, tmp_path: Path, given: Any = None, programs: int = PROGRAMS) -> Inspection:
    path = tmp_path / "k.py"
    path.write_text(HEAD + textwrap.dedent(kernel))
    contents = {} if given is None else {"data": given}
    launch = make_launch(read_source(path), "k", constexprs={"BLOCK": BLOCK}, grid=(programs,), contents=contents)
    return inspect_launch(launch, compile_target("sm_90"), POOL, sass=False)


def demand_of(kernel: str, tmp_path: Path, given: Any = None) -> KernelDemand:
    return inspected(kernel, tmp_path, given).demand


EARLY = """
    @triton.jit
    def k(x, out, data, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, at)
        if tl.program_id(0) >= tl.load(data + tl.program_id(0)):
            return
        tl.store(out + 10_000 + at, tl.load(x + at) * 2.0)
"""
MASKED = """
    @triton.jit
    def k(x, out, data, BLOCK: tl.constexpr):
        lanes = tl.arange(0, BLOCK)
        at = tl.program_id(0) * BLOCK + lanes
        value = tl.load(x + at, mask=(lanes < 20) & (lanes < tl.load(data + tl.program_id(0))), other=0.0)
        tl.store(out + at, value * 2.0)
"""
SIDES = """
    @triton.jit
    def k(x, out, data, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        if tl.load(data + tl.program_id(0)) > 5:
            shift = 5_000
            tl.store(out + at + 20_000, tl.load(x + at) * 2.0)
        else:
            shift = 8_000
        tl.store(out + at + shift, tl.load(x + 5_000 + at) + 1.0)
"""
TRIPS = """
    @triton.jit
    def k(x, out, data, BLOCK: tl.constexpr):
        at = tl.program_id(0) * 50 * BLOCK + tl.arange(0, BLOCK)
        where = x + at
        total = tl.zeros((BLOCK,), tl.float32)
        for t in range(0, tl.load(data + tl.program_id(0))):
            total += tl.load(where)
            where += BLOCK
        tl.store(out + at, total + tl.load(where))
"""
UNTIL = """
    @triton.jit
    def k(x, out, data, BLOCK: tl.constexpr):
        at = tl.program_id(0) * 50 * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        t = 0
        while t < tl.load(data + tl.program_id(0)):
            total += tl.load(x + at + t * BLOCK)
            t += 1
        tl.store(out + at, total)
"""
HELPER = """
    @triton.jit
    def chosen(x, data, at):
        if tl.load(data + tl.program_id(0)) > 5:
            return tl.load(x + at).to(tl.float32)
        return at.to(tl.float32)

    @triton.jit
    def k(x, out, data, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, chosen(x, data, at) + 1.0)
"""
CARRIED = """
    @triton.jit
    def k(x, out, data, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        shift = 0
        for t in range(0, 200):
            if tl.load(data + tl.program_id(0)) > 5:
                shift += 1
            total += tl.load(x + at + shift)
        tl.store(out + at, total)
"""
LANES = np.arange(BLOCK)
Touched = Callable[[int, int], Iterable[tuple[str, Any]]]


def sides(pid: int, value: int) -> list[tuple[str, Any]]:
    at = pid * BLOCK + LANES
    heavy = [("out", at + 20_000), ("x", at)] if value > 5 else []
    return [*heavy, ("out", at + (5_000 if value > 5 else 8_000)), ("x", 5_000 + at)]


def trips(pid: int, value: int) -> list[tuple[str, Any]]:
    at = pid * 50 * BLOCK + LANES
    return [("out", at), *(("x", at + t * BLOCK) for t in range(value + 1))]


def early(pid: int, value: int) -> list[tuple[str, Any]]:
    at = pid * BLOCK + LANES
    return [("out", at), *([("out", 10_000 + at), ("x", at)] if pid < value else [])]


CASES: dict[str, tuple[str, Touched]] = {
    "early return": (EARLY, early),
    "mask": (MASKED, lambda pid, value: [("out", pid * BLOCK + LANES), ("x", pid * BLOCK + LANES[: min(value, 20)])]),
    "both sides": (SIDES, sides),
    "trips": (TRIPS, trips),
    "while": (UNTIL, lambda pid, value: trips(pid, value)[:-1]),
    "helper": (HELPER, lambda pid, value: [("out", pid * BLOCK + LANES), *([("x", pid * BLOCK + LANES)] if value > 5 else [])]),
    "carried": (
        CARRIED,
        lambda pid, value: [("out", pid * BLOCK + LANES), *(("x", pid * BLOCK + LANES + t * (value > 5)) for t in range(1, 201))],
    ),
}
ALL = PROGRAMS * BLOCK
CERTAIN = {  # elements of x and out that any data have touched; where only the address hangs on them, those of one execution
    "early return": (0, ALL),
    "mask": (0, ALL),
    "both sides": (ALL, BLOCK),
    "trips": (0, ALL),
    "while": (0, ALL),
    "helper": (0, ALL),
    "carried": (0, ALL),
}


def listed(touched: Touched, data: list[int]) -> dict[str, int]:
    """Distinct fp16 bytes by argument for what `data` holds."""
    found: dict[str, set[int]] = {"x": set(), "out": set()}
    for pid, value in enumerate(data):
        for name, elements in touched(pid, value):
            found[name].update(np.asarray(elements).tolist())
    return {name: 2 * len(elements) for name, elements in found.items()}


@pytest.mark.parametrize("case", CASES)
def test_no_data_do_less_than_is_certain(case: str, tmp_path: Path) -> None:
    kernel, touched = CASES[case]
    certain = demand_of(kernel, tmp_path)
    generator = np.random.default_rng(7)
    for data in ([0] * PROGRAMS, [30] * PROGRAMS, *(generator.integers(0, 40, PROGRAMS).tolist() for _ in range(3))):
        there = listed(touched, data)
        known = demand_of(kernel, tmp_path, data)
        assert known.footprint_bytes["out"] == there["out"]
        assert known.footprint_bytes.get("x", 0) == there["x"]
        assert known.exact
        assert certain.footprint_bytes["out"] <= there["out"]
        assert certain.footprint_bytes.get("x", 0) <= there["x"]
        assert certain.certain.fma_flop <= known.certain.fma_flop == known.fma_flop
    assert not certain.exact
    of_x, of_out = CERTAIN[case]
    assert certain.read_footprints.get("x", 0) == 2 * of_x
    assert sum(certain.written_footprints.values()) == 2 * of_out
    assert sum(certain.likely_footprint_bytes.values()) > sum(certain.footprint_bytes.values())  # what is predicted assumes more


ANYWHERE = """
    @triton.jit
    def k(x, out, data, BLOCK: tl.constexpr):
        lanes = tl.arange(0, BLOCK)
        row = tl.load(data + tl.program_id(0))
        value = tl.load(x + row * BLOCK + lanes, mask=lanes < row, other=0.0)
        tl.store(out + tl.program_id(0) * BLOCK + lanes, value)
"""


@pytest.mark.parametrize(
    ("last", "line", "counted"),
    [("", 9, "none, as no execution is certain"), ("tl.store(out + lanes, tl.load(x + row + lanes))", 11, "those of one execution")],
)
def test_what_the_bound_counts_at_unknown_addresses_is_said(last: str, line: int, counted: str, tmp_path: Path) -> None:
    demand = demand_of(f"{ANYWHERE}        {last}\n", tmp_path)
    assert f"line {line}: the bound counts {counted}," in demand.unknown["the addresses of accesses to x"]
    assert bool(demand.footprint_bytes["x"]) == bool(last)


RAGGED = """
    @triton.jit
    def k(x, out, data, BLOCK: tl.constexpr):
        if tl.program_id(0) >= tl.load(data):
            return
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at) * 2.0)
"""
MANY = 2_000_000


def analysed(tmp_path: Path, given: Any = None) -> KernelAnalysis:
    return kernel_analysis(inspected(RAGGED, tmp_path, given, programs=MANY), load_gpu("H200"))


def test_a_bound_that_hangs_on_data_says_so(tmp_path: Path) -> None:
    """And is no more than that of any data; what is predicted assumes the heavier side, as if the data said it."""
    unknown, none, every = (analysed(tmp_path, given) for given in (None, 0, MANY))
    assert unknown.bound.us <= none.bound.us < every.bound.us / 10 and unknown.config_bound.us <= none.config_bound.us
    assert unknown.predicted is not None and every.predicted is not None
    assert unknown.predicted.us == pytest.approx(every.predicted.us) and unknown.likely_bound.us == pytest.approx(every.bound.us)
    assert every.likely_bound.us == pytest.approx(every.bound.us) and UNCERTAIN not in {part.cause for part in every.gap_parts}
    causes = {part.cause: part.us for part in unknown.gap_parts}
    assert causes[UNCERTAIN] == pytest.approx(unknown.likely_bound.us - unknown.bound.us)
    assert sum(causes.values()) == pytest.approx(unknown.predicted.us - unknown.bound.us)
    text = as_text(unknown.inspection, unknown.facts, unknown, ())
    assert f"were all work certain that is likely, it would be {unknown.likely_bound.us:.2f} µs" in text
    assert "--content data=VALUE" in text
    assert "were all work" not in as_text(every.inspection, every.facts, every, ())


def test_the_verdict_does_not_take_assumed_work_for_distance_to_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text(HEAD + textwrap.dedent(RAGGED))
    asked = LaunchOptions(constexprs={"BLOCK": BLOCK}, grid=str(MANY))
    result = advise_compiled(f"{path}::k", load_gpu("H200"), cache="warm", command="", launch_options=asked)
    assert any("Only part of the work is certain" in note for note in result.verdict.notes)
    assert any("--content data=VALUE" in text for text in result.verdict.unknowns)


LOOKED_UP = """
    @triton.jit
    def k(x, out, data, stride_row, BLOCK: tl.constexpr):
        lanes = tl.arange(0, BLOCK)
        index = tl.load(data + tl.program_id(0) * stride_row + lanes)
        tl.store(out + tl.program_id(0) * BLOCK + lanes, tl.load(x + index, mask=index >= 0, other=0.0))
"""


def test_what_hangs_on_contents_that_are_given_is_certain_in_contiguous_rows(tmp_path: Path) -> None:
    unknown, given = (demand_of(LOOKED_UP, tmp_path, contents) for contents in (None, np.arange(PROGRAMS * BLOCK) % 100 - 1))
    assert not unknown.exact and unknown.certain.per_program["load"].sum() < unknown.per_program["load"].sum()
    assert given.exact and given.certain.per_program["load"].sum() == given.per_program["load"].sum()
    assert not any("a mask" in text for text in given.unknown.values())
    assert "contiguous rows with stride_row = 32" in given.unknown["the addresses of accesses to data"]


def test_every_program_of_a_large_grid_is_counted_where_contents_say_what_it_looks_up(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).permutation(EXACT_PROGRAMS * 2 * BLOCK)
    text = LOOKED_UP.replace("stride_row", "BLOCK").replace("BLOCK, BLOCK", "BLOCK")
    demand = inspected(text, tmp_path, rows, programs=EXACT_PROGRAMS * 2).demand
    assert demand.scale == 1 and demand.exact and demand.footprint_bytes["x"] == rows.size * 2
    assert inspected(text, tmp_path, 3, programs=EXACT_PROGRAMS * 2).demand.scale > 1
