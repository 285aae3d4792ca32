"""What is told of a kernel's parameters by how it uses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.compiled.guesses.inference import Given, guesses
from advisor.python_source.source import parse_source

HEAD = "import triton\nimport triton.language as tl\n"
JIT = HEAD + "@triton.jit\n"


def types(text: str, **given: object) -> dict[str, str]:
    """Of the first guess."""
    source = parse_source(text, "k.py")
    return dict(next(guesses(source, source.kernel("k"), Given(**given))).signature)  # type: ignore[arg-type]


@pytest.mark.parametrize("call", ["tl.interleave(v, v)", "tl.reshape(v, (16,))", "v.trans()", "tl.join(v, v)"])
def test_bits_are_seen_behind_what_only_moves_them(call: str) -> None:
    """As in AWQ's dequantization."""
    assert types(JIT + f"def k(p, o):\n    v = tl.load(p)\n    v = {call}\n    tl.store(o, (v >> shift) & 0xF)\n")["p"] == "*i32"


def test_conditional_steps_of_a_pointer_are_followed_once_each() -> None:
    steps = "    if n > 1:\n        q = q + n\n    else:\n        q += 2 * n\n" * 40
    assert types(JIT + f"def k(p, n):\n    q = p\n{steps}    tl.store(q, 1.0)\n") == {"p": "*bf16", "n": "i32"}


@pytest.mark.parametrize(
    "chosen",
    [
        "tl.where(tl.program_id(0) < 4, a, b)",
        "a if tl.program_id(0) < 4 else b",
        "a if FIRST else b",
        "tl.where(n > 1, a, tl.where(n > 2, a + n, b + n))",
    ],
)
def test_of_two_pointers_that_are_chosen_from_both_are_pointers(chosen: str) -> None:
    text = JIT + f"def k(a, b, o, n, FIRST: tl.constexpr):\n    p = {chosen}\n    tl.store(o, tl.load(p + tl.arange(0, 16)))\n"
    assert types(text) == {"a": "*bf16", "b": "*bf16", "o": "*bf16", "n": "i32", "FIRST": "constexpr"}


def test_an_offset_that_is_chosen_is_no_pointer() -> None:
    text = JIT + "def k(a, n):\n    o = tl.where(tl.arange(0, 16) < 4, 0, n)\n    tl.store(o + a, 1.0)\n"
    assert types(text) == {"a": "*bf16", "n": "i32"}


@pytest.mark.parametrize(("given", "said"), [({}, True), ({"types": {"p": "*i64"}}, False)])
def test_of_an_index_the_bound_counts_no_more_than_32_bits(given: dict[str, object], said: bool) -> None:
    text = JIT + "def k(p, o):\n    tl.store(o + tl.load(p + tl.arange(0, 16)), 1.0)\n"
    source = parse_source(text, "k.py")
    found = next(guesses(source, source.kernel("k"), Given(**given)))  # type: ignore[arg-type]
    assert found.signature["p"] == "*i64" and ("p" in found.guessed) == said
    assert ("p: *i64, of which the bound counts the bytes of *i32" in found.assumed) == said


@pytest.mark.parametrize("tile", ["v.type.element_ty", "v.dtype"])
def test_a_tile_that_a_helper_asks_for_its_type_is_no_pointer(tile: str) -> None:
    """As in AITER's backward kernels of attention."""
    text = HEAD + (
        f"@triton.jit\ndef inner(v, w):\n    return tl.dot(w.to({tile}), v)\n"
        "@triton.jit\ndef k(p, q, o):\n    r = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]\n"
        "    v = tl.load(p + r)\n    tl.store(o + r, inner(v, tl.load(q + r)))\n"
    )
    assert types(text) == {"p": "*bf16", "q": "*bf16", "o": "*bf16"}


def test_the_seed_of_random_numbers_is_an_integer_and_what_they_meet_is_not() -> None:
    text = JIT + (
        "def k(scores, seeds, o):\n    r = tl.arange(0, 16)\n    u = tl.rand(tl.load(seeds), r)\n"
        "    tl.store(o + r, tl.load(scores + r) > u)\n"
    )
    assert types(text) == {"scores": "*bf16", "seeds": "*i64", "o": "*bf16"}


@pytest.mark.parametrize("asked", ["q.dtype.element_ty", "q.type.element_ty"])
def test_a_parameter_of_a_kernel_that_is_asked_for_its_element_is_a_pointer(asked: str) -> None:
    assert types(JIT + f"def k(p, q):\n    tl.store(p, tl.zeros((16,), {asked}))\n")["q"] == "*bf16"


@pytest.mark.parametrize(
    ("name", "use", "kind"),
    [
        ("scale_cols", "tl.load(p + r * scale_cols)", "i32"),
        ("scale", "tl.load(p + r * scale)", "i32"),
        ("beta", "tl.load(p + r) * beta", "fp32"),
        ("P_SEQ", "tl.where(r + P_SEQ < 7, tl.load(p + r), 0.0)", "i32"),
        ("dropout_p", "tl.where(tl.rand(1, r) > dropout_p, tl.load(p + r), 0.0)", "fp32"),
        ("alpha", "tl.sum(tl.load(p + r))\n    for i in range(alpha):\n        v += i", "i32"),
    ],
)
def test_a_number_is_a_float_by_its_name_unless_it_is_used_as_an_integer(name: str, use: str, kind: str) -> None:
    text = JIT + f"def k(p, o, {name}):\n    r = tl.arange(0, 16)\n    v = {use}\n    tl.store(o + r, v)\n"
    source = parse_source(text, "k.py")
    found = next(guesses(source, source.kernel("k")))
    assert found.signature[name] == kind and f"{name}: {kind}" in found.assumed


@pytest.mark.parametrize(
    ("value", "default", "kind"), [(5, "", "i32"), (0.5, "", "fp32"), (2**40, "", "i64"), (5, " = 1.0", "fp32"), (None, " = 2", "i32")]
)
def test_a_value_that_is_given_decides_what_its_name_only_hints_at(value: float | None, default: str, kind: str) -> None:
    scalars = {} if value is None else {"alpha": value}
    assert types(JIT + f"def k(p, alpha{default}):\n    tl.store(p, tl.load(p) * alpha)\n", scalars=scalars)["alpha"] == kind


@pytest.mark.parametrize("how", ["from tools import applied", "from tools import applied as changed", "import tools"])
def test_what_an_imported_helper_does_with_an_argument_is_what_the_kernel_does(how: str, tmp_path: Path) -> None:
    """A text that is compared in another file, as attorch's names of activations are."""
    inner = JIT + "def inner(v, kind: tl.constexpr):\n    if kind == 'relu':\n        v = v * (0 < v)\n    return v\n"
    (tmp_path / "inside.py").write_text(inner, encoding="utf-8")
    helper = "from inside import inner\n" + JIT + "def applied(p, kind: tl.constexpr):\n    return inner(tl.load(p), kind)\n"
    (tmp_path / "tools.py").write_text(helper, encoding="utf-8")
    called = "tools.applied" if how == "import tools" else how.rpartition(" ")[2]
    text = f"{how}\n{JIT}def k(x, o, act: tl.constexpr):\n    tl.store(o, {called}(x, act))\n"
    source = parse_source(text, tmp_path / "k.py")
    guess = next(guesses(source, source.kernel("k"), Given()))
    assert guess.constexprs == {"act": "relu"} and guess.signature["x"] == "*bf16"
