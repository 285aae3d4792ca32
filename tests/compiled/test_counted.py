"""Configurations of one kernel that differ in nothing that is counted are counted once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from advisor.compiled.demand import demand as module
from advisor.compiled.demand.demand import Counted, read_demand
from advisor.compiled.ir.execution import Inputs
from advisor.compiled.launch_report import Unreadable, analyse_targets, targets_from
from advisor.compiled.launches.launch_options import LaunchOptions
from advisor.gpus.hardware import load_gpu

pytestmark = pytest.mark.usefixtures("not_disassembled")
COPY = """module {
  tt.func public @copy(%x: !tt.ptr<f32>, %n: i32) {
    %c64 = arith.constant 64 : i32
    %pid = tt.get_program_id x : i32
    %start = arith.muli %pid, %c64 : i32
    %lanes = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %starts = tt.splat %start : i32 -> tensor<64xi32>
    %offsets = arith.addi %starts, %lanes : tensor<64xi32>
    %bound = tt.splat %n : i32 -> tensor<64xi32>
    %mask = arith.cmpi slt, %offsets, %bound : tensor<64xi32>
    %base = tt.splat %x : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %at = tt.addptr %base, %offsets : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %value = tt.load %at, %mask : tensor<64x!tt.ptr<f32>>
    tt.store %at, %value, %mask : tensor<64x!tt.ptr<f32>>
    tt.return
  }
}
"""
SCALE = """import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=w) for b in (128, 256) for w in (1, 2, 4)], key=["n"])
@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
"""


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is counted each time: the whole grid, or some of its programs."""
    found: list[str] = []

    def note(ttir: str, grid: tuple[int, ...], inputs: Inputs, own_files: tuple[str, ...], programs: np.ndarray | None) -> object:
        found.append("all" if programs is None else "some")
        return read_demand(ttir, grid, inputs, own_files, programs)

    monkeypatch.setattr(module, "read_demand", note)
    return found


def test_the_same_is_counted_once_and_whatever_differs_anew(readings: list[str]) -> None:
    counted, hundred = Counted(), Inputs(scalars={"n": 100})
    first = counted.demand(COPY, (4,), hundred)
    assert counted.demand(COPY, (4,), Inputs(scalars={"n": 100})) is first and len(readings) == 1
    assert first.requested_load_bytes == 400
    assert counted.demand(COPY, (4,), Inputs(scalars={"n": 10})).requested_load_bytes == 40
    assert counted.demand(COPY, (1,), hundred).requested_load_bytes == 256
    assert counted.demand(COPY, (4,), hundred, programs=np.array([1])).requested_load_bytes == 144
    assert len(readings) == 4


def test_contents_are_the_same_only_if_they_are_the_same_array(readings: list[str]) -> None:
    counted = Counted()
    for _ in range(20):  # each would come to lie where the one before lay, were that not kept
        counted.demand(COPY, (1,), Inputs(scalars={"n": 1}, contents={"x": np.zeros(3)}))
    assert len(readings) == 20
    for _ in range(2):
        counted.demand(COPY, (1,), Inputs(scalars={"n": 1}, contents={"x": 5}))
    assert len(readings) == 21


def test_configurations_with_other_warps_share_what_is_counted(readings: list[str], tmp_path: Path) -> None:
    """Also when they come from different compilations, each in a folder of its own."""
    pytest.importorskip("triton")
    path = tmp_path / "k.py"
    path.write_text(SCALE)
    gpu = load_gpu("H100")
    targets = targets_from(f"{path}::scale", LaunchOptions(arguments={"n": 1 << 20}, grid="cdiv(n, BLOCK)"), gpu)
    found = analyse_targets(targets, gpu)
    assert len(found) == 6 and not any(isinstance(each, Unreadable) for _, each in found)
    assert readings.count("all") == 2  # one for each block
