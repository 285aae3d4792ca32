"""Guessed types of tensors that are only stored to, corrected by what is stored."""

from __future__ import annotations

import pytest

from advisor.compiled.compiler.pool import Pool
from advisor.compiled.launches.launch import Inspection, inspect_launch
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.python_source.source import parse_source

HEAD = """
import triton
import triton.language as tl

@triton.jit
def packed(x):
    left, right = (x * 7).to(tl.uint8).reshape(32, 2).split()
    return left << 4 | (right & 0xF)

@triton.jit
def k(p, q, n, idx_out=None):
    r = tl.program_id(0) * 64 + tl.arange(0, 64)
    half = tl.program_id(0) * 32 + tl.arange(0, 32)
    x = tl.load(p + r).to(tl.float32)
"""


def inspected(body: str, pool: Pool, **given: object) -> Inspection:
    text = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    launch = make_launch(parse_source(text, "k.py"), "k", grid=(4,), **given)  # type: ignore[arg-type]
    return inspect_launch(launch, compile_target("sm_90"), pool, sass=False)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("tl.store(q + r, (x / 3).to(tl.int8))", "*i8"),
        ("tl.store(q + r, x.to(tl.float8e4nv))", "*fp8e4nv"),
        ("tl.store(q + r, x.to(tl.float8e5), mask=r < n)", "*fp8e5"),
        ("tl.store(q + half, packed(x))", "*u8"),
        ("tl.store(q + r, x > 0)", "*i1"),
        ("tl.store(q + tl.program_id(0), tl.argmax(x, 0))", "*i32"),
        ("tl.atomic_add(q + tl.program_id(0), tl.sum((x > 0).to(tl.int32)))", "*i32"),
        ("w = q + r\nfor i in range(n):\n    tl.store(w, x.to(tl.int8))\n    w += 256", "*i8"),
        ("tl.store(q + r, x.to(tl.int8))\ntl.store(q + 4096 + r, x.to(tl.int16))", "*i16"),
        # What follows from nothing, or is a float for all that is known.
        ("tl.store(q + r, x)", "*bf16"),
        ("tl.store(q + r, tl.zeros((64,), tl.int8))", "*bf16"),
        ("tl.store(q + r, (x > 0).to(tl.float16))", "*fp16"),
        ("tl.store(q + r, (x > 0).to(tl.float32))", "*bf16"),  # folded with what the store does
        ("tl.store(q + r, (r - 8).to(tl.float32))", "*bf16"),
        ("tl.store(q + r, x.to(tl.int8))\ntl.store(q + 4096 + r, x)", "*bf16"),
        ("tl.store(q + r, (tl.load(q + r) + x).to(tl.int8))", "*bf16"),
        ("tl.store((q + r).to(tl.pointer_type(tl.float32)), x.to(tl.int8))", "*bf16"),
    ],
)
def test_a_tensor_is_of_the_type_of_what_is_widened_only_to_be_stored(body: str, kind: str, pool: Pool) -> None:
    found = inspected(body, pool)
    assert found.compiled.signature["q"] == found.guess.signature["q"] == kind
    half = "*fp16" if "tl.float16" in body else "*bf16"  # the one of two bytes that the kernel names
    said = "" if kind == half else " (what is stored there)"
    assert found.guess.assumed[:2] == (f"p: {half}", f"q: {kind}{said}")


def test_names_of_indices_stand_against_floats_that_may_be_guessed_themselves(pool: Pool) -> None:
    found = inspected("tl.store(idx_out + r, tl.load(p + r))", pool)
    assert found.compiled.signature["idx_out"] == "*i64"


def test_what_an_index_stores_is_no_wider_than_it_is(pool: Pool) -> None:
    found = inspected("tl.store(q + tl.program_id(0), tl.program_id(0).to(tl.int64) * n)", pool)
    assert "q: *i64, of which the bound counts the bytes of *i32 (what is stored there)" in found.guess.assumed


@pytest.mark.parametrize("given", [{"element": "bf16"}, {"types": {"q": "*bf16"}}])
def test_only_a_type_that_is_given_holds_against_what_is_stored(given: dict[str, object], pool: Pool) -> None:
    found = inspected("tl.store(q + r, x.to(tl.int8))", pool, **given)
    assert found.compiled.signature["q"] == ("*i8" if "element" in given else "*bf16")
