"""What is guessed of kernels that nobody described."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.compiled.guesses.inference import Given, Guess, guesses
from advisor.compiled.guesses.usage import usage_of
from advisor.compiled.launches.launch_options import LaunchOptions, launches, one_launch
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import parse_source, read_source

HEAD = "import triton\nimport triton.language as tl\n"
JIT = HEAD + "@triton.jit\n"


def guessed(text: str) -> list[Guess]:
    source = parse_source(text, "k.py")
    return list(guesses(source, source.kernel("k")))


def test_helpers_that_import_each_other_end(tmp_path: Path) -> None:
    for ours, theirs in (("a", "b"), ("b", "a")):
        text = HEAD + f"from {theirs} import {theirs}\n@triton.jit\ndef {ours}(p, n):\n    tl.store(p, {theirs}(p, n))\n"
        (tmp_path / f"{ours}.py").write_text(text, encoding="utf-8")
    source = read_source(tmp_path / "a.py")
    assert next(guesses(source, source.kernel("a"))).signature["p"] == "*bf16"


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("cu_seqlens", "*i32"),
        ("cu_seqlens_q", "*i32"),
        ("block_tables_ptr", "*i32"),
        ("seq_lens", "*i32"),
        ("expert_ids", "*i32"),
        ("sorted_token_ids_ptr", "*i32"),
        ("labels", "*i64"),
        ("indices", "*i64"),
        ("lengths_of_labels", "*i64"),
    ],
)
def test_index_pointers_are_tried_in_both_widths(name: str, first: str) -> None:
    text = JIT + f"def k(x, {name}):\n    start = tl.load({name} + tl.program_id(0))\n    tl.store(x + start, 1.0)\n"
    kinds = [guess.signature[name] for guess in guessed(text)]
    assert kinds[0] == first
    assert set(kinds[:2]) == {"*i32", "*i64"}


@pytest.mark.parametrize("bounds", ["MAX_BLOCKS", "0, MAX_BLOCKS"])
def test_a_bound_of_an_unrolled_loop_is_no_tile(bounds: str) -> None:
    """64 copies of a loop's body do not compile in time, whatever it is called and sizes besides."""
    text = JIT + (
        f"def k(x, n, BLOCK: tl.constexpr, MAX_BLOCKS: tl.constexpr):\n    for i in tl.static_range({bounds}):\n"
        "        tl.store(x + i * BLOCK + tl.arange(0, BLOCK), 1.0)\n"
    )
    found = guessed(text)
    assert found[0].constexprs == {"BLOCK": 64, "MAX_BLOCKS": 4}
    assert max(guess.constexprs["MAX_BLOCKS"] for guess in found) <= 8
    sizes = [guess.constexprs["T"] for guess in guessed(text.replace("MAX_BLOCKS", "T"))]
    assert sizes[0] == max(sizes) == 8
    tiles = text.replace("1.0)", "tl.sum(tl.where(tl.arange(0, MAX_BLOCKS) == i, 1.0, 0.0)))")
    blocks = [guess.constexprs["MAX_BLOCKS"] for guess in guessed(tiles)]
    assert blocks[0] == 8 and max(blocks) == 16  # the least that tl.dot takes, should it be one of its operands


def test_a_block_of_what_a_loop_is_unrolled_by_covers_that_alone() -> None:
    text = JIT + (
        "def k(x, RATIO: tl.constexpr, BLOCK: tl.constexpr):\n    reps = tl.arange(0, BLOCK)\n"
        "    tl.store(x + reps, 1.0, mask=reps < RATIO)\n"
        "    for i in tl.static_range(0, RATIO):\n        tl.store(x + 64 + i, 1.0)\n"
    )
    assert guessed(text)[0].constexprs == {"RATIO": 4, "BLOCK": 4}


def test_the_step_of_an_unrolled_loop_is_a_tile() -> None:
    text = JIT + "def k(x, BLOCK: tl.constexpr):\n    for i in tl.static_range(0, 128, BLOCK):\n        tl.store(x + i, 1.0)\n"
    assert guessed(text)[0].constexprs == {"BLOCK": 64}


@pytest.mark.parametrize(
    ("tensor", "block"),
    [
        ("tl.zeros((A, B, C), tl.float32)", 16),
        ("tl.zeros((A, B), tl.float32)", 64),
        ("tl.zeros((A, 2, B), tl.float32)", 64),
        ("tl.arange(0, A)[:, None, None] + tl.arange(0, B)[None, :, None] * tl.arange(0, C)[None, None, :]", 16),
    ],
)
def test_guessed_tensors_stay_small(tensor: str, block: int) -> None:
    text = JIT + (
        f"def k(x, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):\n    t = {tensor}\n    tl.store(x + tl.arange(0, C), tl.sum(t))\n"
    )
    found = guessed(text)
    assert found[0].constexprs["A"] == found[0].constexprs["C"] == block
    assert max(guess.constexprs["A"] for guess in found) == (16 if block == 16 else 128)


def test_a_question_about_blocks_is_a_flag() -> None:
    """As vLLM's `naive_block_assignment`."""
    text = JIT + (
        "def k(p, naive_block_assignment: tl.constexpr, BLOCK: tl.constexpr):\n    o = tl.arange(0, BLOCK)\n"
        "    if not naive_block_assignment:\n        o += BLOCK\n    tl.store(p + o, 0.0)\n"
    )
    first = guessed(text)[0].constexprs
    assert first["naive_block_assignment"] is False and first["BLOCK"] == 64


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        (
            "s = tl.load(q)\n    v = tl.load(p)\n    v = (v >> shift) & 0xF\n    v = ((v - 8) * s).to(tl.float16)\n    tl.store(o, v)",
            {"p": "*i32", "q": "*bf16", "o": "*bf16"},
        ),
        ("v = tl.load(p)\n    tl.store(o, (v & 0xF) * tl.load(q) + (v >> 4))", {"p": "*u8", "q": "*bf16", "o": "*bf16"}),
        ("v = tl.load(p + tl.load(q))\n    tl.atomic_add(o + v, 1)", {"p": "*i64", "q": "*i64", "o": "*i32"}),
        (
            "a = tl.load(p)\n    acc = tl.zeros([16, 16], tl.float32)\n    tl.store(o, tl.dot(a, tl.load(q), acc))",
            {"p": "*bf16", "q": "*bf16"},
        ),
        ("tl.atomic_add(o, tl.load(p) * tl.load(q))", {"p": "*bf16", "q": "*bf16", "o": "*bf16"}),
    ],
)
def test_what_is_taken_apart_or_counted_is_of_integers(body: str, kinds: dict[str, str]) -> None:
    found = guessed(JIT + f"def k(p, q, o, shift):\n    {body}\n")
    assert {name: found[0].signature[name] for name in kinds} == kinds


WARPS = (
    "def warps(n):\n    if n < 2048:\n        return 4\n    return 16\n\ndef stages(args):\n    return 2 if args['BLOCK'] > 64 else 5\n\n"
    "{tuned}@triton.heuristics({{'num_warps': lambda args: warps(args['n']), 'num_stages': stages}})\n"
    "@triton.jit\ndef k(x, n, BLOCK: tl.constexpr):\n    tl.store(x + tl.arange(0, BLOCK), 1.0)\n"
)


@pytest.mark.parametrize("tuned", ["", "@triton.autotune([triton.Config({'BLOCK': 64}, num_warps=2, num_stages=4)], key=[])\n"])
def test_heuristics_set_options_of_the_launch(tuned: str) -> None:
    source = parse_source(HEAD + WARPS.format(tuned=tuned), "k.py")
    launch = one_launch(source, "k", LaunchOptions(arguments={"n": 32000}))
    assert dict(next(guesses(source, source.kernel("k"), launch.given)).options) == {"num_warps": 16, "num_stages": 5}
    given = Given(scalars={"n": 32000}, constexprs={"BLOCK": 128}, options={"num_warps": 1})
    assert dict(next(guesses(source, source.kernel("k"), given)).options) == {"num_warps": 1, "num_stages": 2}
    found = launches(source, "k", LaunchOptions(arguments={"n": 1}), load_gpu("H200"))
    guess = next(guesses(source, source.kernel("k"), found[0].launch.given))
    assert dict(guess.options) == {"num_warps": 4, "num_stages": 5}


def test_options_of_heuristics_that_are_not_known_are_said() -> None:
    guess = guessed(HEAD + WARPS.format(tuned=""))[0]
    assert "num_warps" not in guess.options
    assert "num_warps = 4, for what @triton.heuristics (line 11) sets it to is unknown" in guess.assumed


FLAGS = (
    "@triton.heuristics({{'GATED': lambda args: args['gate'] is not None}})\n@triton.jit\n"
    "def k(x, bias, gate, HAS_BIAS: tl.constexpr, GATED: tl.constexpr):\n    v = 1.0\n    if HAS_BIAS:\n        v += tl.load(bias)\n"
    "    if GATED:\n        v += tl.load(gate)\n    tl.store(x, v)\ndef run({arguments}):\n    {before}\n"
    "    k[(8,)](x, bias, gate, HAS_BIAS={flag})\n"
)


@pytest.mark.parametrize(
    ("arguments", "before", "flag", "has_bias", "gated"),
    [
        ("x, bias, gate", "pass", "bias is not None", True, True),
        ("x, bias, gate", "has = bias is not None", "True if has else False", True, True),
        ("x, bias, gate=None", "pass", "not (bias is None)", True, False),
        ("x, bias=None, gate=None", "pass", "bias is not None", False, False),
        ("x, ctx, gate", "bias = ctx.bias", "bias is not None", False, True),  # which may be None
        ("x, bias, gate", "gate = gate if x else None", "ctx.has_bias", False, False),
    ],
)
def test_flags_that_a_launch_asks_of_required_arguments_are_set(
    arguments: str, before: str, flag: str, has_bias: bool, gated: bool
) -> None:
    source = parse_source(HEAD + FLAGS.format(arguments=arguments, before=before, flag=flag), "k.py")
    launch = one_launch(source, "k", LaunchOptions())
    guess = next(guesses(source, source.kernel("k"), launch.given))
    assert dict(guess.constexprs) == {"HAS_BIAS": has_bias, "GATED": gated}
    said = " ".join((*launch.assumed, *guess.assumed))
    assert f"HAS_BIAS={has_bias}" in said or f"HAS_BIAS = {has_bias}" in said
    assert not gated or "GATED=True, by which arguments the launch requires or leaves out" in said


def test_flags_of_arguments_that_are_given_as_none_are_not_set() -> None:
    source = parse_source(HEAD + FLAGS.format(arguments="x, bias, gate", before="pass", flag="bias is not None"), "k.py")
    launch = one_launch(source, "k", LaunchOptions(arguments={"bias": None, "gate": None}))
    found = next(guesses(source, source.kernel("k"), launch.given)).constexprs
    assert found["HAS_BIAS"] is False and found["GATED"] is False


@pytest.mark.parametrize("times", [1, 2])
def test_options_of_launches_that_are_not_known_are_said(times: int) -> None:
    run = "def run(x, ctx):\n    k[(8,)](x, num_warps=ctx.num_warps)\n"
    source = parse_source(JIT + "def k(x):\n    tl.store(x, 1.0)\n" + run * times, "k.py")
    text = f"num_warps = 4, for what a launch (line {' or '.join(['7', '9'][:times])}) sets it to is unknown"
    assert text in one_launch(source, "k", LaunchOptions()).assumed
    assert text not in one_launch(source, "k", LaunchOptions(options={"num_warps": 8})).assumed


ROW = JIT + (
    "def k(x, n, m, BLOCK: tl.constexpr):\n    o = {0}\n    v = tl.load(x + o, mask={1} < n)\n    tl.store(x + o, v, mask={1} < n)\n"
)


@pytest.mark.parametrize(
    ("range_", "mask", "n", "block", "said"),
    [
        ("tl.arange(0, BLOCK)", "o", 16_000, 16_384, ""),
        ("tl.arange(0, BLOCK)", "tl.arange(0, BLOCK)", 100, 128, ""),
        ("tl.arange(0, BLOCK)", "o", None, 64, ""),
        ("tl.arange(0, BLOCK)", "o", 2**20, 64, ", which covers only 64 of n = 1,048,576, so that the work of the others is not counted"),
        ("tl.arange(0, BLOCK)[:, None] + 0 * tl.arange(0, 16)[None, :]", "tl.arange(0, BLOCK)[:, None]", 256, 256, ""),
        (
            "tl.arange(0, BLOCK)[:, None] + 0 * tl.arange(0, 16)[None, :]",
            "tl.arange(0, BLOCK)[:, None]",
            1000,
            64,
            ", which covers only 64 of n = 1,000, so that the work of the others is not counted",
        ),
        # What a program's number or a loop is added to need not cover the row by itself.
        ("tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "o", 16_000, 64, ""),
        ("tl.arange(0, BLOCK)\n    o += tl.program_id(0) * BLOCK", "o", 16_000, 64, ""),
    ],
)
def test_a_block_that_is_masked_against_a_row_covers_it(range_: str, mask: str, n: int | None, block: int, said: str) -> None:
    source = parse_source(ROW.format(range_, mask), "k.py")
    found = next(guesses(source, source.kernel("k"), Given(scalars={"n": n} if n else {})))
    assert found.constexprs["BLOCK"] == block and f"BLOCK = {block}{said}" in found.assumed and found.invented == ("BLOCK",)


def test_a_negative_constant_is_no_block() -> None:
    source = parse_source(JIT + "def k(x, MODE: tl.constexpr = -1):\n    if MODE == -1:\n        tl.store(x, 1.0)\n", "k.py")
    assert "MODE = -1" in next(guesses(source, source.kernel("k"))).assumed


@pytest.mark.parametrize("name", ["WARP_SPECIALIZE", "warp_specialize", "FLATTEN", "USE_TMA"])
def test_flags_are_not_set_unless_their_default_is(name: str) -> None:
    """With warp specialisation, guessed to be 1, Triton's own tutorial of a persistent matmul does not compile for an H200."""
    text = JIT + "def k(x, {0}: tl.constexpr{1}):\n    for i in tl.range(4, warp_specialize={0}):\n        tl.store(x + i, 1.0)\n"
    assert guessed(text.format(name, ""))[0].constexprs[name] is False
    assert guessed(text.format(name, " = True"))[0].constexprs[name] is True


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        # Floats that only decide: what was loaded is no index.
        (
            "v = tl.load(p, other=0.0).to(tl.float32)\n    a = tl.max(tl.abs(v))\n    if a > 1.0:\n        v = v / a\n    tl.store(o, v)",
            {"p": "*bf16", "o": "*bf16"},
        ),
        ("v = tl.load(p)\n    if v.dtype == tl.bfloat16:\n        v = v.to(tl.float32)\n    tl.store(o, v)", {"p": "*bf16"}),
        (
            "a = tl.load(p)\n    b = tl.load(q)\n    if a.dtype != b.dtype:\n        b = b.to(a.dtype)\n    tl.store(o, tl.dot(a, b))",
            {"p": "*bf16", "q": "*bf16"},
        ),
        ("s = tl.max(tl.abs(tl.load(p).to(tl.float32))) / 448.0\n    s = 1.0 if s == 0 else s\n    tl.store(o, s)", {"p": "*bf16"}),
        ("tl.store(o + tl.floor(tl.load(p) * 3).to(tl.int32), 1.0)", {"p": "*bf16"}),
        # Integers that only decide.
        ("if tl.load(p) == 0:\n        return\n    tl.store(o, tl.load(q))", {"p": "*i64", "q": "*bf16"}),
        ("if tl.program_id(0) >= tl.load(p):\n        return\n    tl.store(o, tl.load(q))", {"p": "*i64", "q": "*bf16"}),
    ],
)
def test_what_decides_is_an_integer_unless_it_is_used_as_a_float(body: str, kinds: dict[str, str]) -> None:
    source = parse_source(JIT + f"def k(p, q, o, n):\n    {body}\n", "k.py")
    found = next(guesses(source, source.kernel("k"), Given(element="bf16")))
    assert {name: found.signature[name] for name in kinds} == kinds


def test_an_element_that_is_given_holds_where_a_branch_only_hints_at_an_integer() -> None:
    source = parse_source(JIT + "def k(p, o):\n    if tl.load(p) == 0:\n        tl.store(o, 1.0)\n", "k.py")
    given = one_launch(source, "k", LaunchOptions(element="bf16")).given
    assert next(guesses(source, source.kernel("k"), given)).signature["p"] == "*bf16"
    kinds = [guess.signature["p"] for guess in guesses(source, source.kernel("k"), Given(element="bf16"))]
    assert kinds[0] == "*i64" and "*bf16" in kinds  # which is tried where the integer does not compile


HANDED = (
    HEAD
    + """
@triton.jit
def tree(v):
    return tl.where((v & 0b1000) == 0b1000, -1.0, 1.0)

@triton.jit
def body(a, offsets, scales):
    high = a & 0xF
    low = a >> 4
    return (tree(high) + tree(low)) * tl.load(scales + offsets // 2)

@triton.jit
def k(p, o, q, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    a = tl.load(p + offsets, offsets < n)
    tl.store(o + offsets, body(a=a, offsets=offsets, scales=q))
"""
)


def test_bits_are_seen_where_a_helper_takes_them_apart() -> None:
    found = guessed(HANDED)[0].signature
    assert (found["p"], found["o"], found["q"]) == ("*u8", "*bf16", "*bf16")


@pytest.mark.parametrize(("shifts", "kind"), [("(v >> 3) & 15", "*u8"), ("(v >> 7) + (v >> 15)", "*i32"), ("(v >> 4) + (v << 24)", "*u8")])
def test_a_byte_is_one_that_is_shifted_by_less_than_its_bits(shifts: str, kind: str) -> None:
    assert guessed(JIT + f"def k(p, o):\n    v = tl.load(p)\n    tl.store(o, {shifts})\n")[0].signature["p"] == kind


def test_the_bits_of_a_number_of_another_type_tell_nothing_of_its_type() -> None:
    text = JIT + "def k(p, o):\n    tl.store(o, tl.load(p).to(tl.uint16, bitcast=True) & 0xFF)\n"
    assert guessed(text)[0].signature["p"] == "*bf16"


def test_only_what_is_computed_with_bits_becomes_an_integer_before_everything_does() -> None:
    text = JIT + "def k(p, q, o):\n    v = tl.load(p) + 1\n    tl.store(o, ((v ^ 3) & 0xF) * tl.load(q))\n"
    kinds = [tuple(guess.signature[n] for n in "pqo") for guess in guessed(text)]
    assert kinds.index(("*i32", "*bf16", "*bf16")) < kinds.index(("*i32", "*i32", "*i32"))


@pytest.mark.parametrize(("given", "size"), [({}, 64), ({"BLOCK": 128}, 128), ({"Lk": 72}, 72)])
@pytest.mark.parametrize("half", ["", " // 2"])
def test_a_size_that_only_masks_a_block_fills_it(half: str, given: dict[str, int], size: int) -> None:
    """As the head sizes of SGLang's attention, and of rotary embeddings by halves: of one element of 64, no work would be counted."""
    text = JIT + (
        f"def k(x, Lk: tl.constexpr, BLOCK: tl.constexpr):\n    o = tl.arange(0, BLOCK{half})\n    m = o < Lk{half}\n"
        "    tl.store(x + o, 1.0, mask=m)\n"
    )
    source = parse_source(text, "k.py")
    found = next(guesses(source, source.kernel("k"), Given(constexprs=given)))
    assert found.constexprs["Lk"] == size
    assert "Lk" in given or f"Lk = {size}" in found.assumed


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    if N_TOTAL:\n        tl.store(x + tl.program_id(0) * N_TOTAL, 1.0)\n", False),  # a flag, too
        ("    tl.store(x + tl.program_id(0) * N_TOTAL, tl.load(x) / N_TOTAL)\n", 1),
        ("    p = x + tl.program_id(0) * 4\n    p += N_TOTAL\n    tl.store(p, tl.load(x) / N_TOTAL)\n", 1),
        ("    row = tl.program_id(0) * N_TOTAL\n    store(x + row)\n    tl.store(x, tl.load(x) / N_TOTAL)\n", 1),
        ("    tl.store(tl.make_block_ptr(x, (N_TOTAL,), (1,), (0,), (16,), (0,)), tl.zeros((16,), tl.float32) / N_TOTAL)\n", 1),
        ("    tl.store(x, tl.load(x) / N_TOTAL)\n", 1.0),
    ],
)
@pytest.mark.parametrize("name", ["D_TOTAL", "SCALE_OFFSET_F32"])
def test_a_constant_of_an_address_is_an_integer(body: str, expected: float, name: str) -> None:
    helper = "@triton.jit\ndef store(p):\n    tl.store(p, 0.0)\n"
    text = HEAD + helper + f"@triton.jit\ndef k(x, N_TOTAL: tl.constexpr):\n{body}"
    found = guessed(text.replace("N_TOTAL", name))[0]
    assert found.constexprs == {name: expected} and type(found.constexprs[name]) is type(expected)


def test_an_offset_that_is_added_to_a_pointer_again_is_no_pointer() -> None:
    for step in ("p += n", "p = p + n"):
        text = JIT + f"def k(x, n):\n    p = x + tl.program_id(0)\n    for i in range(4):\n        tl.store(p, 0.0)\n        {step}\n"
        assert guessed(text)[0].signature == {"x": "*bf16", "n": "i32"}


@pytest.mark.parametrize("use", ["tl.dot(a, a, input_precision=P)", "tl.dot(a, a, None, P)", "product(a, P)"])
def test_a_constant_that_is_given_for_a_text_is_one(use: str) -> None:
    helper = "@triton.jit\ndef product(a, HOW: tl.constexpr):\n    return tl.dot(a, a, input_precision=HOW)\n"
    body = f"    a = tl.zeros((16, 16), tl.float32)\n    tl.store(x, tl.sum({use}))\n"
    text = HEAD + helper + f"@triton.jit\ndef k(x, P: tl.constexpr):\n{body}"
    assert guessed(text)[0].constexprs == {"P": "ieee"}


def test_what_is_made_a_pointer_is_an_address_in_every_guess() -> None:
    """As in Triton's tutorial of grouped GEMMs, whose sizes are of 32 bits."""
    text = HEAD + (
        "@triton.jit\ndef at(addresses, i):\n    return tl.load(addresses + i).to(tl.pointer_type(tl.float16))\n"
        "@triton.jit\ndef k(a, b, sizes, one):\n    g = tl.program_id(0)\n    p = tl.load(a + g).to(tl.pointer_type(tl.float16))\n"
        "    q = one.to(tl.pointer_type(tl.float32))\n    size = tl.load(sizes + g)\n"
        "    for i in range(size):\n        tl.store(p + i, tl.load(at(b, g) + i) + tl.load(q))\n"
    )
    found = guessed(text)
    assert all(each.signature | {"a": "*i64", "b": "*i64"} == each.signature for each in found)
    assert found[0].signature["one"] == "*bf16"  # a pointer to something else, for all that is known
    assert {each.signature["sizes"] for each in found[:2]} == {"*i64", "*i32"}


@pytest.mark.parametrize(
    "body",
    [
        "y = x * s",
        "y = s * x",
        "y = x + s",
        "y = x - s",
        "x += s\n    y = x",
        "y = tl.where(x > 0, x, s)",
        "y = tl.where(x > s, x, 0)",
        "y = tl.maximum(x, s)",
        "y = tl.exp(x) + s",
        "y = tl.rsqrt(tl.sum(x * x, axis=0) / n + s)",
        "y = x.to(tl.float32)[:, None] * s",
        "y = x\n    y = y * 2\n    y *= s",
        "y = tl.zeros((64,), tl.float32) + s",
        "z = (x if n > 4 else -x)\n    y = z * s",
    ],
)
def test_a_number_beside_floats_is_a_float(body: str) -> None:
    loaded = "def k(p, q, s, n):\n    o = tl.arange(0, 64)\n    x = tl.load(p + o, mask=o < n)\n"
    text = JIT + f"{loaded}    {body}\n    tl.store(q + o, y, mask=o < n)\n"
    first = guessed(text)[0].signature
    assert first["s"] == "fp32" and first["n"] == "i32"


@pytest.mark.parametrize(
    ("adapted", "body"),
    [
        ("p", "tl.dot(x.to(y.dtype), y)"),
        ("p", "tl.dot(y, x.to(r.dtype.element_ty))"),
        ("p", "tl.dot(y, tl.trans(x).to(y.dtype))"),
        ("p", "z = x\n    tl.dot(y, tl.cast(z, y.dtype))"),
        ("p", "z = helper(x, y)"),
        ("pq", "tl.dot(x.to(tl.bfloat16), y.to(tl.float16))"),
        ("", "tl.dot(x.to(tl.float32), y)"),
        ("", "tl.dot((x * 2.0).to(y.dtype), y)"),
        ("", "x = x * 2.0\n    tl.dot(x.to(y.dtype), y)"),
        ("", "tl.dot(tl.exp(x).to(y.dtype), y)"),
        ("", "tl.store(p + o, x.to(p.dtype.element_ty))"),
        ("", "tl.dot(x.to(tl.int16, bitcast=True), y)"),
    ],
)
def test_what_is_converted_to_anothers_type_tells_nothing_of_its_own(adapted: str, body: str) -> None:
    helper = "def helper(a, b):\n    return tl.dot(a.to(b.dtype), b)\n\n\n"
    text = JIT + helper + JIT + f"def k(p, q, r):\n    o = tl.arange(0, 64)\n    x = tl.load(p + o)\n    y = tl.load(q + o)\n    {body}\n"
    source = parse_source(text, "k.py")
    assert "".join(name for name, use in usage_of(source, source.kernel("k")).items() if use.adapted) == adapted


@pytest.mark.parametrize(
    "body",
    [
        "i = tl.load(ids + o)\n    tl.store(q + i * s, x)",  # what is loaded is an index
        "tl.store(q + o * s, x)",
        "tl.store(q + o, x * s, mask=o < s)",
        "tl.store(q + o, x / s)",
        "tl.store(q + o, x * s + o // s)",
        "for i in range(s):\n        x = x * s\n    tl.store(q + o, x)",
        "tl.store(q + o, o + s)",
        "tl.store(q + o, x.to(tl.int32) * s)",
    ],
)
def test_a_number_that_counts_is_none(body: str) -> None:
    text = JIT + f"def k(p, q, ids, s):\n    o = tl.arange(0, 64)\n    x = tl.load(p + o)\n    {body}\n"
    assert guessed(text)[0].signature["s"] == "i32"
    sized = JIT + "def k(p, q, N, num_rows):\n    o = tl.arange(0, 64)\n    tl.store(q + o, tl.load(p + o) * N + num_rows)\n"
    assert {guessed(sized)[0].signature[name] for name in ("N", "num_rows")} == {"i32"}


def test_a_number_beside_floats_after_a_long_way_is_a_float() -> None:
    """Of thousands of statements too: generated kernels have as many."""
    steps = "".join("    x = x + x\n" for _ in range(2000))
    text = JIT + f"def k(p, q, s):\n    x = tl.load(p)\n{steps}    tl.store(q, x * s)\n"
    assert guessed(text)[0].signature["s"] == "fp32"


def test_a_number_beside_floats_in_a_helper_is_a_float() -> None:
    text = JIT + "def scaled(p, s):\n    return tl.load(p) * s\n@triton.jit\ndef k(p, q, s):\n    tl.store(q, scaled(p, s))\n"
    assert guessed(text)[0].signature["s"] == "fp32"
    # Where it does not compile so, it is tried as an integer.
    assert "i64" in {guess.signature["s"] for guess in guessed(text)}


def test_a_number_is_no_pointer_whatever_a_branch_that_is_not_taken_loads() -> None:
    text = JIT + (
        "def k(x, start, IS_TENSOR: tl.constexpr):\n    if IS_TENSOR:\n        at = tl.load(start + tl.program_id(0))\n"
        "    else:\n        at = start\n    tl.store(x + at, 1.0)\n"
    )
    source = parse_source(text, "k.py")
    assert next(guesses(source, source.kernel("k"))).signature["start"].startswith("*")
    given = Given(scalars={"start": 7}, constexprs={"IS_TENSOR": False})
    assert next(guesses(source, source.kernel("k"), given)).signature["start"] == "i32"


def test_a_pointer_whose_type_is_said_is_passed() -> None:
    """Heuristics that ask whether there is one are told so, and that is no guess."""
    text = HEAD + (
        "@triton.heuristics({'GATED': lambda args: args['gate'] is not None})\n@triton.jit\n"
        "def k(x, gate, GATED: tl.constexpr):\n    if GATED:\n        tl.store(x, tl.load(gate))\n"
    )
    source = parse_source(text, "k.py")
    guess = next(guesses(source, source.kernel("k"), Given(types={"gate": "*fp32"})))
    assert guess.constexprs["GATED"] is True and not any("GATED" in text for text in guess.assumed)
    none = next(guesses(source, source.kernel("k"), Given(types={"gate": "*fp32"}, scalars={"gate": None})))
    assert none.constexprs["GATED"] is False


def test_a_block_is_not_taken_to_cover_a_size_that_it_is_masked_against_more_of() -> None:
    body = "    h = tl.arange(0, B)\n    N = 2 * n + n * n\n    v = tl.where(h < n, tl.load(x + h), 0.0)\n"
    masks = body + "    tl.store(x + h, v, mask=h < {})\n"
    texts = [HEAD + "@triton.jit\ndef k(x, n, B: tl.constexpr):\n" + masks.format(mask) for mask in ("n", "N", "2 * n")]
    found = [next(guesses(source, source.kernel("k"), Given(scalars={"n": 4}))) for source in (parse_source(t, "k.py") for t in texts)]
    assert [guess.constexprs["B"] == 4 for guess in found] == [True, False, False]
    assert ["B" in guess.settled for guess in found] == [True, False, False]


def test_an_argument_that_may_be_none_is_so_where_the_launch_passes_none(tmp_path: Path) -> None:
    """Also where it is a tensor in calls that pass one."""
    text = (
        HEAD + "@triton.jit\ndef k(x, y, n):\n    v = tl.load(x)\n    if y is not None:\n        v += tl.load(y)\n    tl.store(x, v)\n\n"
        "def run(x, y=None):\n    k[(4,)](x, {}, 8)\n"
    )
    kinds = []
    for passed in ("None", "x"):
        launch = one_launch(parse_source(text.format(passed), "k.py"), "k", LaunchOptions())
        kinds.append(next(guesses(launch.source, launch.source.kernel("k"), launch.given)).signature["y"])
    assert kinds == ["constexpr", "*bf16"]


def test_a_block_covers_a_size_that_a_helper_masks_it_against() -> None:
    helper = (
        "@triton.jit\ndef copy(p, size, WIDE: tl.constexpr):\n    at = tl.arange(0, WIDE)\n    tl.store(p + at, 0.0, mask=at < size)\n\n"
    )
    source = parse_source(HEAD + helper + "@triton.jit\ndef k(x, n, B: tl.constexpr):\n    copy(x, n, WIDE=B)\n", "k.py")
    assert next(guesses(source, source.kernel("k"), Given(scalars={"n": 250}))).constexprs["B"] == 256
