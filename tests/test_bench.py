"""`make bench` writes a file, and two of them are compared."""

from __future__ import annotations

import runpy
from pathlib import Path

BENCH = Path(__file__).resolve().parent / "bench"


def written(commit: str, **best: float) -> dict[str, object]:
    return {"commit": commit, "machine": "m", "statements": 7, "cpu_ms": {name: {"best": ms, "median": ms} for name, ms in best.items()}}


def test_two_files_are_compared():
    comparison = runpy.run_path(str(BENCH / "compare.py"))["comparison"]
    lines = comparison(
        written("a1", kept=10.0, worse=10.0, better=10.0, gone=1.0), written("b2", kept=10.4, worse=13.0, better=5.0, new=1.0)
    )
    assert lines[:2] == ["a1 -> b2", "statements 7 -> 7"]
    words = {line.split()[0]: line.split()[-1] for line in lines[2:]}
    assert words == {"kept": "1.04x", "worse": "slower", "better": "faster", "gone": "gone", "new": "new"}
    other = {**written("b2", kept=10.0), "machine": "n"}
    assert any("not the same machine" in line for line in comparison(written("a1", kept=10.0), other))


def test_what_is_timed_runs_and_is_counted(tmp_path):
    write = runpy.run_path(str(BENCH / "write.py"))
    timed = write["actions"](tmp_path)
    assert len(timed) > 8
    write["cpu_ms"].__globals__["RUNS"] = 2
    runs = write["cpu_ms"](timed["compare: two results"])
    assert len(runs) == 2 and min(runs) > 0
    assert 10_000 < write["statements"]() < 60_000
