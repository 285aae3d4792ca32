"""Guesses that the compiler's words correct, one at a time, and tuples."""

from typing import Any

import pytest

from advisor.compiled.compiler.kernel import Target
from advisor.compiled.guesses.corrections import corrections
from advisor.compiled.guesses.inference import Given, guesses
from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.launch_options import LaunchOptions, one_launch
from advisor.compiled.launches.written_values import assignments, numbers, signature
from advisor.python_source.source import SourceFile, parse_source
from advisor.system.errors import UsageError
from tests.compiled.shared_pool import POOL

HEAD = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
EITHER = """def k(x, y, z, n, wide: tl.constexpr, packed: tl.constexpr, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    if packed:
        where = x + o // 2
    elif wide:
        where = x + o
    v = tl.load(where, mask=o < n, other=0.0)
    tl.store(z + o, v * tl.load(y + o, mask=o < n, other=0.0), mask=o < n)
"""
DECAY = """def k(q, k_, lse, out, B: tl.constexpr):
    o = tl.arange(0, B)
    at = o[:, None] * B + o[None, :]
    s = tl.dot(tl.load(q + at), tl.load(k_ + at))
    tl.store(out + at, s * tl.exp2(tl.load(lse + o) * 1.5)[:, None])
"""
BITS = """def k(packed, out, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    raw = tl.load(packed + o, mask=o < n, other=0)
    tl.store(out + o, raw.to(tl.float8e5, bitcast=True).to(tl.float32), mask=o < n)
"""
ASSERTED = """def k(x, y, GROUPS: tl.constexpr, PER: tl.constexpr):
    tl.static_assert(GROUPS * PER == 32)
    o = tl.arange(0, GROUPS * PER)
    tl.store(y + o, tl.load(x + o))
"""
TUPLES = """def k(x, y, steps, WEIGHTS: tl.constexpr, B: tl.constexpr):
    o = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * steps[0] + o * steps[1])
    for i in tl.static_range(len(WEIGHTS)):
        v += WEIGHTS[i]
    tl.store(y + tl.program_id(0) * B + o, v)
"""
PARTS = """def k(parts, y, COUNT: tl.constexpr, B: tl.constexpr):
    o = tl.arange(0, B)
    v = tl.load(parts[0] + o)
    for i in tl.static_range(1, COUNT):
        v += tl.load(parts[i] + o)
    tl.store(y + o, v)
"""
LIMITS = """def k(x, y, n, out_dtype_min: tl.constexpr, out_dtype: tl.constexpr, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + o, mask=o < n, other=0.0).to(tl.float32)
    tl.store(y + o, tl.maximum(v, out_dtype_min).to(out_dtype), mask=o < n)
"""
RATIO = """def k(x, y, HEADS: tl.constexpr, GROUPS_OF: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(0) // (HEADS // D)
    o = tl.arange(0, D)
    tl.store(y + o, tl.load(x + head * D + o))
"""


SCALED = """def k(x, amax, out, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(out + o, scaled(tl.load(x + o), tl.load(amax), B))

@triton.jit
def scaled(x, amax, B: tl.constexpr):
    return x * tl.div_rn(tl.full((1,), 6.0, amax.dtype), amax)
"""
PRODUCT = """def k(a, b, out, B: tl.constexpr):
    o = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(out + o, tl.dot(tl.load(a + o), tl.load(b + o).to(tl.int8)))
"""


@pytest.mark.parametrize(
    ("body", "text", "changed"),
    [
        (SCALED, "line 3 from `def scaled`: ValueError: Expected dtype ['fp32'] but got bf16", {"amax": "*fp32"}),
        (PRODUCT, "line 3 from `def k`: AssertionError: Both operands must be same dtype. Got fp16 and int8", {"a": "*i8"}),
    ],
)
def test_the_tensor_that_an_error_is_about_is_corrected(body: str, text: str, changed: dict[str, Any]) -> None:
    """And no block that is handed on beside it."""
    source = _source(body)
    function, given = source.kernel("k"), Given()
    assert corrections(text, next(guesses(source, function, given)), source, function, given) == changed


def _source(body: str) -> SourceFile:
    return parse_source(HEAD + body, "k.py")


@pytest.mark.parametrize(
    ("body", "types", "constants"),
    [
        (EITHER, {"x": "*bf16", "y": "*bf16"}, {"packed": True, "wide": False}),
        (DECAY, {"q": "*bf16", "k_": "*bf16", "lse": "*fp32", "out": "*bf16"}, {}),
        (BITS, {"packed": "*u8"}, {}),
        (TUPLES, {"x": "*bf16", "steps": "(i32,i32)"}, {"WEIGHTS": (1, 1)}),
        (LIMITS, {"x": "*bf16"}, {"out_dtype_min": 1}),
    ],
)
def test_the_one_guess_that_is_wrong_is_changed(body: str, types: dict[str, str], constants: dict[str, Any]) -> None:
    found = inspect_launch(one_launch(_source(body), "k", LaunchOptions()), Target(backend="cuda", arch=90), POOL, sass=False)
    assert {name: found.guess.signature[name] for name in types} == types
    assert {name: found.guess.constexprs[name] for name in constants} == constants
    assert found.demand.accesses


def test_an_assertion_says_what_a_guessed_constant_must_be() -> None:
    source = _source(ASSERTED)
    function = source.kernel("k")
    text = "line 2 from `def k`: CompileTimeAssertionFailure: at 2:4"
    values = next(guesses(source, function)).constexprs | corrections(text, next(guesses(source, function)), source, function, Given())
    assert values["GROUPS"] * values["PER"] == 32
    given = Given(constexprs={"GROUPS": 3, "PER": 5})  # is not overruled
    assert corrections(text, next(guesses(source, function, given)), source, function, given) == {}


@pytest.mark.parametrize(("kind", "packed"), [("*i32", 8), ("*bf16", 1)])
def test_an_assertion_of_the_type_of_a_tensor_says_what_a_constant_must_be(kind: str, packed: int) -> None:
    text = """def k(x, y, PACKED: tl.constexpr):
    tl.static_assert((PACKED == 1 and tl.constexpr(x.dtype.element_ty != tl.int32)) or (PACKED == 8 and x.dtype.element_ty == tl.int32))
    o = tl.arange(0, 64 // PACKED)
    tl.store(y + o, tl.load(x + o))
"""
    source = parse_source(HEAD + text, "k.py")
    function, given = source.kernel("k"), Given(types={"x": kind})
    words = "line 2 from `def k`: CompileTimeAssertionFailure"
    assert corrections(words, next(guesses(source, function, given)), source, function, given) == {"PACKED": packed}


def test_a_guessed_quotient_is_no_zero() -> None:
    constants = next(guesses(_source(RATIO), _source(RATIO).kernel("k"))).constexprs
    assert constants["HEADS"] // constants["D"] > 0


def test_tuples_and_types_are_given_as_they_are_written() -> None:
    source = _source(TUPLES)
    arguments = numbers(["steps=(4096,1),n=3"], "--arg")
    assert arguments == {"steps": (4096, 1), "n": 3}
    assert signature("x=*fp16,steps=(i64,i32)", source, "k") == {"x": "*fp16", "steps": "(i64,i32)"}
    with pytest.raises(UsageError, match="NAME=NUMBER"):
        numbers(["steps=(4096,w)"], "--arg")
    asked = LaunchOptions(arguments={"steps": (4096, 1)}, constexprs={"WEIGHTS": (3, 4, 5)}, grid="100")
    found = inspect_launch(one_launch(source, "k", asked), Target(backend="cuda", arch=90), POOL, sass=False)
    assert found.compiled.constexprs["steps.1"] == 1
    assert found.demand.footprint_bytes["x"] == (99 * 4096 + 64) * 2 - 99 * (4096 - 64) * 2
    assert not found.demand.unknown


def test_pointers_in_a_tuple_are_aligned_as_others_are() -> None:
    asked = LaunchOptions(signature="parts=(*bf16,*bf16,*bf16)", constexprs={"COUNT": 3})
    for launch, said in ((asked, False), (LaunchOptions(constexprs={"COUNT": 3}), True)):
        found = next(guesses(_source(PARTS), _source(PARTS).kernel("k"), one_launch(_source(PARTS), "k", launch).given))
        count = found.signature["parts"].count("*")
        assert {f"parts.{i}" for i in range(count)} <= found.divisible
        assert any(f"parts: a tuple of {count} pointers" in note for note in map(str, found.assumptions)) == said


def test_the_name_of_a_type_is_a_type_where_one_is_meant() -> None:
    constants = one_launch(_source(LIMITS), "k", LaunchOptions(constexprs=assignments(["out_dtype=bf16"], "--constexpr"))).given.constexprs
    assert getattr(constants["out_dtype"], "text", "") == "tl.bfloat16"


def test_an_assertion_of_a_block_keeps_it_a_block() -> None:
    """`BLOCK <= WIDTH` also holds for True and 1: of those the largest that is no larger than guessed is taken."""
    text = "def k(x, y, WIDTH: tl.constexpr, BLOCK: tl.constexpr):\n    tl.static_assert(BLOCK <= WIDTH)\n    o = tl.arange(0, BLOCK)\n"
    source = parse_source(f"{HEAD}{text}    tl.store(y + o, tl.load(x + o))\n", "k.py")
    function, given = source.kernel("k"), Given(constexprs={"WIDTH": 32})
    words = "line 2 from `def k`: CompileTimeAssertionFailure"
    assert corrections(words, next(guesses(source, function, given)), source, function, given) == {"BLOCK": 32}
