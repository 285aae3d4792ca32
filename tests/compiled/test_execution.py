"""Who runs an operation, and in which programs that is certain."""

from __future__ import annotations

import numpy as np

from advisor.compiled.ir.execution import Active, Execution, Running
from advisor.compiled.ir.ir import parse


def programs(text: str) -> Active:
    return np.array([each == "x" for each in text])


def running(text: str) -> Running:
    return Running(programs(text), np.array([2.0, 3.0, 4.0]))


def test_what_is_certain_is_one_part() -> None:
    assert [(assumed, part.counts.tolist()) for assumed, part in running("x-x").parts()] == [(False, [2, 0, 4])]


def test_what_is_assumed_in_some_programs_is_apart() -> None:
    parts = running("x-x").assuming(programs("xx-")).parts()
    assert [(assumed, part.counts.tolist()) for assumed, part in parts] == [(False, [0, 0, 4]), (True, [2, 0, 0])]


def test_a_part_that_no_program_runs_is_none() -> None:
    assert [assumed for assumed, _ in running("x--").assuming(True).parts()] == [True]
    assert [assumed for assumed, _ in running("--x").assuming(programs("xx-")).parts()] == [False]


def test_what_was_assumed_before_stays_assumed() -> None:
    before = running("xxx").assuming(programs("x--"))
    assert before.assuming(programs("--x")).assumed.tolist() == [True, False, True]  # type: ignore[union-attr]
    assert before.assuming(False) is before


LOOP = """
module {
  tt.func public @k(%n: i32) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32 loc("k.py":7:1)
    tt.return
  }
}
"""


def test_a_reason_is_named_where_it_mattered_first() -> None:
    operation = next(parse(LOOP, ("k.py",)).kernel.walk())
    found = Execution(1)
    found.assume({"b", "a"}, "a mask", operation, "all hold")
    found.assume({"a"}, "a branch", operation, "none")
    assert list(found.unknown.items()) == [("a", "a mask in line 7: all hold"), ("b", "a mask in line 7: all hold")]
