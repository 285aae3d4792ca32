"""Launches of which part is guessed: what nobody said is no failure, and what the compiler calls an argument is no name of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.compiled.compiler.kernel import Target
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.demand import read_demand
from advisor.compiled.guesses.inference import Given
from advisor.compiled.ir.execution import Inputs
from advisor.compiled.launch_report import KernelTarget, analyse_targets
from advisor.compiled.launches.launch import KernelLaunch, inspect_launch
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import SourceFile, parse_source

pytestmark = pytest.mark.usefixtures("not_disassembled")
PRODUCT = """import triton
import triton.language as tl


@triton.jit
def product(a, b, c, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    m, n, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        total = tl.dot(tl.load(a + m[:, None] * K + start + k[None, :]), tl.load(b + (start + k[:, None]) * 64 + n[None, :]), total)
    tl.store(c + m[:, None] * 64 + n[None, :], total.to(tl.float16))
"""


def source(text: str) -> SourceFile:
    return parse_source(text, Path("k.py"))


@pytest.mark.parametrize(("blocks", "launches"), [({}, True), ({"BLOCK_M": 64, "BLOCK_N": 64}, False)])
def test_only_what_is_known_fails_to_launch(blocks: dict[str, int], launches: bool) -> None:
    pytest.importorskip("triton")
    given = Given(constexprs={"BLOCK_K": 512, **blocks}, scalars={"K": 4096})  # three stages of 128 kB do not fit
    launch = KernelLaunch(source=source(PRODUCT), kernel="product", given=given, grid=(1,))
    [(_, found)] = analyse_targets([KernelTarget(id="product", launch=launch)], load_gpu("H200"))
    assert (found.predicted is not None) is launches  # type: ignore[union-attr]
    said = " ".join(found.inspection.assumptions)  # type: ignore[union-attr]
    assert ("the most with which what is guessed can launch" in said) is launches


SEARCH = """import triton
import triton.language as tl


@triton.jit
def search(places, out, count: tl.int32, STEP: tl.constexpr):
    left = 0
    right = count
    while left < right:
        middle = (left + right) // 2
        if tl.load(places + middle) <= tl.program_id(0) * STEP:
            left = middle + 1
        else:
            right = middle
    tl.store(out + tl.program_id(0), left)
"""


def test_an_argument_has_the_name_of_the_source(pool: Pool) -> None:
    """Triton calls it by the variable that it is assigned to, where nothing else uses it."""
    launch = KernelLaunch(source=source(SEARCH), kernel="search", given=Given(constexprs={"STEP": 4}), grid=(8,))
    found = inspect_launch(launch, Target(backend="cuda", arch=90), pool, sass=False)
    assert "argument count" in found.demand.unknown
    assert not [reason for reason in found.demand.unknown if "right" in reason]


IR = """module {
  tt.func public @k(%last: i32, %x: !tt.ptr<f32>) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    scf.for %i = %c0 to %last step %c1  : i32 {
      %p = tt.addptr %x, %i : !tt.ptr<f32>, i32
      %v = tt.load %p : !tt.ptr<f32>
      tt.store %p, %v : !tt.ptr<f32>
    }
    tt.return
  }
}
"""


@pytest.mark.parametrize(("arguments", "known"), [(("count", "x"), True), ((), False), (("count", "x", "y"), False)])
def test_a_value_reaches_what_the_ir_calls_otherwise(arguments: tuple[str, ...], known: bool) -> None:
    [loop] = read_demand(IR, (1,), Inputs(scalars={"count": 12}, arguments=arguments)).loops
    assert (loop.trips == 12) is known
