"""Blocks that descriptors are used at, at the edges of their tensors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.compiled.compiler.kernel import Target
from advisor.compiled.demand.accesses import block_addresses, block_elements
from advisor.compiled.ir import values
from advisor.compiled.ir.ir import Operation, parse
from advisor.compiled.ir.values import Value
from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.target import make_launch
from advisor.python_source.source import parse_source

from .shared_pool import POOL

LOAD = """
module {
  tt.func public @k(%d: !tt.tensordesc<4x8xf16>, %i: i32) attributes {noinline = false} {
    %v = tt.descriptor_load %d[%i, %i] : !tt.tensordesc<4x8xf16> -> tensor<4x8xf16>
    tt.return
  }
}
"""
COPY = """import triton
import triton.language as tl
@triton.jit
def k(x, y, B: tl.constexpr):
    y.store([tl.program_id(0) * B, 0], x.load([tl.program_id(0) * B, 0]))
"""
LOOP = """import triton
import triton.language as tl
@triton.jit
def k(x, y, B: tl.constexpr):
    total = tl.zeros([B, 64], tl.float16)
    for start in range(0, x.shape[1], 64):
        total += x.load([tl.program_id(0) * B, start])
    at = (tl.program_id(0) * B + tl.arange(0, B))[:, None] * 64 + tl.arange(0, 64)[None, :]
    tl.store(y + at, total)
"""
TENSOR = (10, 20)
DESCRIPTOR = Value((np.zeros(1, np.int64),), (), False, "d")


@pytest.fixture(scope="module")
def load() -> Operation:
    return next(op for op in parse(LOAD).kernel.walk() if op.name == "tt.descriptor_load")


def starts(*numbers: int) -> list[Value]:
    return [values.number(number) for number in numbers]


def test_a_block_inside_has_all_its_lanes(load: Operation) -> None:
    found = block_addresses(load, DESCRIPTOR, starts(2, 8), TENSOR)
    assert found is not None and found[1] is None
    assert (found[0].array()[0] == (2 + np.arange(4))[:, None] * 20 + 8 + np.arange(8)).all() and found[0].base == "d"


@pytest.mark.parametrize(("row", "column", "lanes"), [(8, 16, 2 * 4), (-1, 0, 3 * 8), (0, 19, 4), (12, 0, 0)])
def test_a_block_over_an_edge_has_those_inside(row: int, column: int, lanes: int, load: Operation) -> None:
    found = block_addresses(load, DESCRIPTOR, starts(row, column), TENSOR)
    assert found is not None and values.lanes(found[1], (4, 8), 1).tolist() == [lanes]
    assert block_elements(load, DESCRIPTOR, starts(row, column), TENSOR, 1)[0].tolist() == [lanes]


def test_the_layout_that_the_kernel_gave_counts(load: Operation) -> None:
    made = Value(DESCRIPTOR.parts, (), False, "p", layout=(tuple(starts(10, 20)), tuple(starts(1_000, 1))))
    found = block_addresses(load, made, starts(1, 0), None)
    assert found is not None and int(found[0].array().max()) == 4 * 1_000 + 7


def test_of_a_place_that_is_not_known_elements_are_counted(load: Operation) -> None:
    unknown = [values.unknown({"why"}), values.number(16)]
    assert block_addresses(load, DESCRIPTOR, unknown, TENSOR) is None
    assert block_elements(load, DESCRIPTOR, unknown, TENSOR, 2)[0].tolist() == [16, 16]
    elements, reasons = block_elements(load, DESCRIPTOR, unknown, None, 2)
    assert elements.tolist() == [32, 32] and reasons == {"the shape of descriptor d"}


@pytest.mark.parametrize("arch", [80, 90])
def test_a_descriptor_is_the_same_with_and_without_a_copy_engine(arch: int) -> None:
    """Without one, Triton makes arguments of its extents and strides, and compares with them."""
    pytest.importorskip("triton")
    launch = make_launch(
        parse_source(COPY, "k.py"),
        "k",
        types=dict.fromkeys("xy", "tensordesc<fp16[16,64]>"),
        constexprs={"B": 16},
        shapes=dict.fromkeys("xy", (40, 64)),
        grid=(4,),
    )
    demand = inspect_launch(launch, Target(backend="cuda", arch=arch), POOL, sass=False).demand
    assert not demand.unknown and demand.footprint_bytes == {"x": 40 * 64 * 2, "y": 40 * 64 * 2}


@pytest.mark.parametrize("arch", [80, 90])
def test_a_loop_over_a_descriptors_extent_has_its_trips(arch: int) -> None:
    """`x.shape[1]` is an argument behind the descriptor where there is a copy engine, and behind the base where there is none."""
    pytest.importorskip("triton")
    launch = make_launch(
        parse_source(LOOP, "k.py"),
        "k",
        types={"x": "tensordesc<fp16[16,64]>", "y": "*fp16"},
        constexprs={"B": 16},
        shapes={"x": (64, 512)},
        grid=(4,),
    )
    demand = inspect_launch(launch, Target(backend="cuda", arch=arch), POOL, sass=False).demand
    assert not demand.unknown and demand.footprint_bytes["x"] == 64 * 512 * 2


@pytest.mark.parametrize(("shapes", "said"), [({}, ["x = [rows, columns], y = [rows, columns]."]), ({"x": (64, 8), "y": (64, 8)}, [])])
def test_how_large_tensors_of_descriptors_are_is_asked_for(shapes: dict[str, tuple[int, ...]], said: list[str]) -> None:
    types = dict.fromkeys("xy", "tensordesc<fp16[16,8]>")
    launch = make_launch(parse_source(COPY, "k.py"), "k", types=types, constexprs={"B": 16}, grid=(4,))
    found = inspect_launch(replace(launch, shapes=shapes), Target(backend="cuda", arch=90), POOL, sass=False).assumptions
    assert [text.partition("(--toml): ")[2] for text in found if "[shapes]" in text] == said
