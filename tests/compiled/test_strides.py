"""Strides that are not given: what is taken for them is said, and nothing is found that a call with real ones has not."""

from __future__ import annotations

import pytest

from advisor.compiled.analysis import kernel_analysis
from advisor.compiled.compiler.kernel import Target
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.assembly import read_facts
from advisor.compiled.guesses.inference import Given, guesses
from advisor.compiled.launches import written_values
from advisor.compiled.launches.configured import pinned
from advisor.compiled.launches.launch import inspect_launch, request_for
from advisor.compiled.launches.target import make_launch
from advisor.diagnosis.compiled_rules import check_compiled
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import SourceFile, parse_source
from advisor.python_source.stride_use import possible_unit_strides

HEAD = "import triton\nimport triton.language as tl\n"
SM_90 = Target(backend="cuda", arch=90)
GEMM = (
    HEAD
    + """
@triton.jit
def gemm(a, b, c, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(a + rows[:, None] * stride_am + (k * BK + inner)[None, :] * stride_ak)
        y = tl.load(b + (k * BK + inner)[:, None] * stride_bk + columns[None, :] * stride_bn)
        total = tl.dot(x, y, total)
    tl.store(c + rows[:, None] * stride_cm + columns[None, :], total.to(tl.float16))
"""
)
TRANSPOSED = (
    GEMM
    + """
def launch(x, y, out):
    gemm[(8, 8)](x, y, out, x.shape[1], x.stride(0), x.stride(1), y.stride(-1), y.stride(0), out.stride()[0], BM=64, BN=64, BK=64)
"""
)
NAMES = ("stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm")
BLOCKS = {"BM": 128, "BN": 128, "BK": 64}


def first(text: str, given: Given | None = None):
    source: SourceFile = parse_source(text, "k.py")
    given = given or make_launch(source, "gemm").given  # with what the file's launch passes
    return next(guesses(source, source.kernel("gemm"), given))


@pytest.mark.parametrize(("text", "unit"), [(GEMM, {"stride_ak", "stride_bn"}), (TRANSPOSED, {"stride_ak", "stride_bk"})])
def test_the_last_stride_of_a_tensor_is_one(text: str, unit: set[str]) -> None:
    """By the names of the arguments, and rather by what the launch passes for them; the only stride of a tensor is of its rows."""
    guess = first(text)
    assert {name for name in NAMES if guess.constexprs.get(name) == 1 and guess.signature[name] == "constexpr"} == unit
    assert guess.divisible == set(NAMES) - unit and guess.strides >= guess.divisible and guess.not_specialized == ("K",)
    said = [each for each in (*make_launch(parse_source(text, "k.py"), "gemm").assumed, *guess.assumed) if "multiples" in each]
    end = "as of contiguous tensors (so narrow-access is not judged)"
    if text is GEMM:
        assert said == [f"stride_ak, stride_bn = 1 and stride_am, stride_bk, stride_cm multiples of 16, {end}"]
    else:  # what the launch passes is said once
        assert said == [
            "contiguous tensors where line 17 passes strides: stride_ak = 1, stride_bk = 1 and stride_am, stride_bn multiples of 16 "
            "(so narrow-access is not judged)",
            f"stride_cm multiples of 16, {end}",
        ]


HEADS = (
    HEAD
    + """
@triton.jit
def gemm(q, k, o, stride_qm, stride_qh, stride_km, stride_kh, stride_om, stride_oh, stride_od, B: tl.constexpr, D: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    lanes = tl.arange(0, D)
    head = tl.program_id(1)
    q_ptrs = q + rows[:, None] * stride_qm + head * stride_qh + lanes[None, :]
    k_ptrs = k + (rows[:, None] * stride_km + (rows % 4)[:, None] * stride_kh + lanes[None, :])
    o_base = o + head * stride_oh
    tl.store(o_base + rows[:, None] * stride_om + lanes[None, :] * stride_od, tl.load(q_ptrs) + tl.load(k_ptrs))
"""
)
BLOCK_POINTER = (
    HEAD
    + """
@triton.jit
def gemm(q, stride_qm, stride_qd, M, D: tl.constexpr):
    tile = tl.make_block_ptr(q, (M, D), (stride_qm, stride_qd), (0, 0), (64, D), (1, 0))
    tl.store(tile, tl.load(tile) * 2)
"""
)


@pytest.mark.parametrize(("text", "unit"), [(HEADS, {"stride_od"}), (BLOCK_POINTER, {"stride_qd"})])
def test_a_stride_of_heads_is_not_the_last_one(text: str, unit: set[str]) -> None:
    """The kernel leaves out the last stride, which is always 1: the last that it takes is another."""
    guess = first(text)
    assert {name for name, value in guess.constexprs.items() if name.startswith("stride") and value == 1} == unit


LEFT_OUT = (
    HEADS
    + """
def launch(q, k, o):
    gemm[(8, 8)](q, k, o, q.stride(0), q.stride(1), k.stride(0), k.stride(1), o.stride(0), o.stride(1), o.stride(2), B=16, D=64)
"""
)


def test_a_stride_of_heads_that_a_launch_passes_last_is_not_the_last_one() -> None:
    """All but the last stride of a tensor of three dimensions; of `o` all."""
    guess = first(LEFT_OUT)
    strides = {name for name in guess.signature if name.startswith("stride")}
    assert {name for name in strides if guess.constexprs.get(name) == 1} == {"stride_od"}
    assert guess.divisible == guess.strides == strides - {"stride_od"} and not guess.not_specialized


def test_another_configuration_of_a_launch_has_the_strides_of_the_launch(pool: Pool) -> None:
    """Two outer strides of a tensor of three dimensions, the last of which by its name might be 1."""
    text = TRANSPOSED.replace("def launch(x, y, out):\n", "def launch(x, y, out):\n    G, N, K = y.shape\n").replace(
        "y.stride(-1)", "y.stride(1)"
    )
    launch = make_launch(parse_source(text, "k.py"), "gemm", arguments={"K": 4096})
    inspection = inspect_launch(launch, SM_90, pool, sass=False)
    assert {"stride_bk", "stride_bn"} <= inspection.guess.strides
    again = pinned(inspection)
    guess = next(guesses(again.source, again.source.kernel("gemm"), again.given))
    assert guess.signature == inspection.guess.signature and guess.constexprs == inspection.guess.constexprs


def test_a_stride_of_another_name_is_known_as_one_where_it_is_launched() -> None:
    text = LEFT_OUT.replace("stride_", "s_")
    guess = first(text)
    assert guess.constexprs["s_od"] == 1 and guess.signature["s_od"] == "constexpr" and not guess.not_specialized
    assert guess.divisible == guess.strides == {"s_qm", "s_qh", "s_km", "s_kh", "s_om", "s_oh"}


@pytest.mark.parametrize(
    ("lines", "unit"),
    [
        ("tl.store(x + off + d, 0.0)", set()),  # off stands for a sum with stride_xm
        ("tl.store(x + (off + d).to(tl.int64), 0.0)", set()),
        ("x += off\n    tl.store(x + d, 0.0)", set()),
        ("p = x + off\n    p += d\n    tl.store(p, 0.0)", set()),
        ("tl.store(x + off + d * D, 0.0)", set()),
        ("tl.store(x + off, 0.0)", {"stride_xm"}),
        ("x += off\n    tl.store(x, 0.0)\n    y = d + d", {"stride_xm"}),
        ("tl.store(tl.make_block_ptr(x, (D, D), (stride_xm, 1), (0, 0), (D, D), (1, 0)), 0.0)", set()),
        ("tl.store(tl.make_block_ptr(x, (D, D), strides=(stride_xm, stride_xb), offsets=(0, 0)), 0.0)", {"stride_xm"}),
        ("tl.store(x + tl.load(y + off) * stride_xb + d, 0.0)", {"stride_xm"}),  # off is of the index
    ],
)
def test_a_stride_beside_a_range_without_one_is_not_the_last_one(lines: str, unit: set[str]) -> None:
    text = HEAD + (
        "@triton.jit\ndef gemm(x, y, stride_xb, stride_xm, D: tl.constexpr):\n    d = tl.arange(0, D)\n"
        "    off = tl.program_id(0) * stride_xb + (tl.program_id(1) + d) * stride_xm\n    " + lines + "\n"
    )
    assert {name for name, value in first(text).constexprs.items() if name.startswith("stride") and value == 1} == unit


def test_strides_that_are_given_are_not_guessed() -> None:
    guess = first(GEMM, Given(scalars={"stride_am": 1, "stride_ak": 4096, "stride_bk": 4096, "stride_bn": 1, "stride_cm": 4096}))
    assert not guess.strides and not guess.divisible and not any("contiguous" in text for text in guess.assumed)
    partly = first(GEMM, Given(scalars={"stride_am": 1}))
    assert partly.constexprs.get("stride_ak") is None and partly.constexprs["stride_bn"] == 1 and "stride_ak" in partly.divisible
    typed, plain = first(GEMM, Given(types=dict.fromkeys(NAMES, "i32"))), first(GEMM)
    assert (typed.constexprs, typed.divisible, typed.strides) == (plain.constexprs, plain.divisible, plain.strides), "a type is no value"


def found(pool: Pool, **given) -> dict[str, str]:
    launch = make_launch(parse_source(GEMM, "k.py"), "gemm", constexprs=BLOCKS, options={"num_stages": 3, "num_warps": 4}, **given)
    inspection = inspect_launch(launch, SM_90, pool, sass=False)
    return {each.rule: each.evidence for each in check_compiled(inspection, read_facts(inspection.compiled))}


def test_no_finding_hangs_on_a_stride_that_is_not_given(pool: Pool) -> None:
    decided = {"no-async-copy", "register-spills", "narrow-access", "uncoalesced-access", "wide-index-in-loop", "convert-layout-in-loop"}
    packed = found(pool, arguments={"K": 4096, "stride_am": 4096, "stride_ak": 1, "stride_bk": 4096, "stride_bn": 1, "stride_cm": 4096})
    assert decided & set(found(pool)) <= set(packed) <= {"wide-index-in-loop"}  # Triton 3.6 steps 64-bit addresses whatever the strides
    assert not decided & set(found(pool, types=dict.fromkeys(NAMES, "i32")))
    odd = found(pool, arguments={"K": 4095, **dict.fromkeys(NAMES, 4095)})  # told, and so
    assert {"no-async-copy", "uncoalesced-access"} <= set(odd) and "without the values" not in odd["no-async-copy"]


COLUMNS = (
    HEAD
    + """
@triton.jit
def gated(packed, out, tokens, half, stride_packed, stride_out, BLOCK: tl.constexpr):
    column = tl.program_id(0)
    rows = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(packed + rows * stride_packed + column, mask=rows < tokens, other=0.0).to(tl.float32)
    up = tl.load(packed + rows * stride_packed + half + column, mask=rows < tokens, other=0.0).to(tl.float32)
    tl.store(out + rows * stride_out + column, (gate * up).to(tl.bfloat16), mask=rows < tokens)
"""
)


def test_rows_taken_for_contiguous_are_read_across_as_given_ones_are(pool: Pool) -> None:
    """A block that runs along rows: each element is in a sector of its own, with strides given or those of contiguous tensors."""
    took, rules = [], []
    for strides in ({}, {"stride_packed": 8192, "stride_out": 4096}):
        given = {"arguments": {"tokens": 8192, "half": 4096, **strides}, "constexprs": {"BLOCK": 1024}, "grid": (4096, 8)}
        launch = make_launch(parse_source(COLUMNS, "k.py"), "gated", types={"packed": "*bf16", "out": "*bf16"}, **given)
        inspection = inspect_launch(launch, SM_90, pool, sass=False)
        analysis = kernel_analysis(inspection, load_gpu("H100"))
        assert analysis.predicted is not None
        took.append(analysis.predicted.us)
        found = check_compiled(inspection, analysis.facts, load_gpu("H100"), analysis)
        rules.append(next(finding for finding in found if finding.rule == "uncoalesced-access"))
    assert took[0] == pytest.approx(took[1], rel=0.02)
    assert "stride_packed = 8,192: are two strides swapped?" in rules[1].remedy and "stride_packed = " in rules[0].evidence
    title = "The load of packed and 2 other accesses are not coalesced"
    assert rules[1].title == title and rules[0].title == f"{title} (guessed: stride_out, stride_packed)"
    assert (rules[1].saving_us or 0.0) > 0.5 * took[1], "of all of them, for one order of threads is that of all"


def test_a_finding_says_which_values_it_may_hang_on(pool: Pool) -> None:
    text = HEAD + (
        "@triton.jit\ndef copy(x, y, n, B: tl.constexpr):\n    o = tl.program_id(0) * B + tl.arange(0, B)\n"
        "    tl.store(y + o, tl.load(x + o, mask=o < n), mask=o < n)\n"
    )
    for given in ({}, {"n": 8191}):
        launch = make_launch(parse_source(text, "k.py"), "copy", constexprs={"B": 4096}, arguments=given)
        inspection = inspect_launch(launch, SM_90, pool, sass=False)
        evidence = {each.rule: each.evidence for each in check_compiled(inspection, read_facts(inspection.compiled))}["narrow-access"]
        assert ("compiled without the values of n: multiples of 16 may cure it" in evidence) == (not given)


@pytest.mark.parametrize(
    ("option", "kinds", "divisible"),
    [
        ("", ["i32", "constexpr", "i32", "constexpr"], {"x", "n", "stride_m"}),
        ("(do_not_specialize=['n', 'one', 3, 4])", ["i32", "i32", "i32", "i32"], {"x"}),
        ("(do_not_specialize=NAMES)", ["i32", "i32", "i32", "constexpr"], {"x", "stride_m"}),
        ("(do_not_specialize_on_alignment=['n', 'one', 'stride_m', 'x'])", ["i32", "constexpr", "i32", "constexpr"], set()),
    ],
)
def test_what_is_not_specialized_is_not_told(option: str, kinds: list[str], divisible: set[str]) -> None:
    """As Triton's binder: without it a `do_not_specialize` that makes copies narrow was not seen."""
    body = "    o = tl.arange(0, 64)\n    tl.store(x + o[:, None] * stride_m + o[None, :] * stride_n, n + one)\n"
    text = f"{HEAD}NAMES = ('n', 'one')\n@triton.jit{option}\ndef k(x, n, one, stride_m, stride_n):\n{body}"
    launch = make_launch(parse_source(text, "k.py"), "k", arguments={"n": 4096, "one": 1})
    guess = next(guesses(launch.source, launch.source.kernel("k"), launch.given))
    assert [guess.signature[name] for name in ("n", "one", "stride_m", "stride_n")] == kinds
    assert request_for(launch, guess, SM_90).divisible == divisible
    assert not guess.not_specialized


def test_strides_of_a_launch_that_are_not_specialized_are_not_told() -> None:
    run = "def run(a):\n    k[(4,)](a, a.stride(0), a.stride(1))\n"
    for option, multiples in (("", {"stride_m"}), ("(do_not_specialize=['stride_m'])", set())):
        body = "    o = tl.arange(0, 64)\n    tl.store(x + o[:, None] * stride_m + o[None, :] * stride_n, 1)\n"
        text = f"{HEAD}@triton.jit{option}\ndef k(x, stride_m, stride_n):\n{body}{run}"
        assert make_launch(parse_source(text, "k.py"), "k").given.multiples == multiples


ROWS = (
    HEAD
    + """
@triton.jit
def gemm(x, y, x_row_stride: tl.constexpr, y_row_stride: tl.constexpr, n: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, B)
    tl.store(y + row * y_row_stride + o, tl.load(x + row * x_row_stride + o, mask=o < n), mask=o < n)
"""
)


def test_no_value_is_made_up_for_a_stride_that_is_a_constant(pool: Pool) -> None:
    """64 for the stride of rows of 8,192 elements let 4,096 rows be one long row."""
    source = parse_source(ROWS, "k.py")
    launch = make_launch(source, "gemm", constexprs={"n": 8192}, grid=(4096,))
    inspection = inspect_launch(launch, SM_90, pool, sass=False)
    assert inspection.guess.strides == {"x_row_stride", "y_row_stride"} and inspection.demand.unlocated == {"x", "y"}
    assert any("x_row_stride, y_row_stride multiples of 16" in each for each in inspection.assumptions)
    strides = {"x_row_stride": 8192, "y_row_stride": 8192}
    told = inspect_launch(make_launch(source, "gemm", constexprs={"n": 8192, **strides}, grid=(4096,)), SM_90, pool, sass=False)
    assert not told.demand.unlocated and told.demand.footprint_bytes == dict.fromkeys("xy", 4096 * 8192 * 2)
    assert told.demand.requested_load_bytes == inspection.demand.requested_load_bytes


@pytest.mark.parametrize("use", ["if x_stride > 1:\n        tl.store(x, 2.0)", "tl.store(x + tl.arange(0, x_stride), 2.0)"])
def test_a_stride_that_must_be_a_constant_is_one(use: str) -> None:
    text = f"{HEAD}@triton.jit\ndef gemm(x, x_stride: tl.constexpr):\n    tl.store(x + tl.program_id(0) * x_stride, 1.0)\n    {use}\n"
    assert first(text).signature["x_stride"] == "constexpr"
    free = list(guesses(source := parse_source(text.replace(use, "pass"), "k.py"), source.kernel("gemm")))
    assert [each.signature["x_stride"] for each in free[:2]] == ["i32", "constexpr"]  # should it not compile


PAGES = (
    HEAD
    + """
@triton.jit
def pages(cache, table, out, stride_table, BLOCK: tl.constexpr, D: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    page = tl.load(table + tl.program_id(1) * stride_table + at).to(tl.int64)
    rows = (tl.program_id(1) * 512 + at)[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(out + rows, tl.load(cache + page[:, None] * D + tl.arange(0, D)[None, :]))
"""
)


def test_a_stride_is_as_long_as_rows_of_its_own_tensor_whatever_those_hold(pool: Pool) -> None:
    """Once the contents of the table are given, accesses to the cache hang on the table's stride alone."""
    demands = []
    for strides in ({}, {"stride_table": 512}):
        launch = make_launch(
            parse_source(PAGES, "k.py"),
            "pages",
            arguments=strides,
            constexprs={"BLOCK": 64, "D": 128},
            contents={"table": written_values.numbers(["table=random(20000)"], "--content")["table"]},
            grid=(8, 32),
        )
        demands.append(inspect_launch(launch, SM_90, pool, sass=False).demand)
    assert demands[0].unknown["the addresses of accesses to cache"] == "line 9: assumed contiguous rows with stride_table = 512"
    assert demands[0].likely_read_footprints["cache"] == pytest.approx(demands[1].likely_read_footprints["cache"], rel=0.01)


def test_a_stride_that_has_another_name_in_the_kernel_is_the_argument() -> None:
    """As in aiter 3c71009c: `stride_ak = stride_ak_in`, or cast, by a flag."""
    taken = GEMM.replace("stride_ak,", "stride_ak_in,", 1).replace(
        "    rows = tl",
        "    if K > 64:\n        stride_ak = tl.cast(stride_ak_in, tl.int64)\n    else:\n        stride_ak = stride_ak_in\n    rows = tl",
        1,
    )
    before, after = (possible_unit_strides(parse_source(text, "k.py").kernel("gemm").node) for text in (GEMM, taken))
    assert "stride_ak" in before and after == before - {"stride_ak"} | {"stride_ak_in"}
    guess = first(taken)
    assert {name for name in guess.constexprs if name.startswith("stride") and guess.constexprs[name] == 1} == {"stride_ak_in", "stride_bn"}
