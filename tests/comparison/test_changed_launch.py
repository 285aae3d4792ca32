"""What changed in how a kernel is launched is what a launch of it comes to, and what is not known of that is not compared."""

from __future__ import annotations

import re

import pytest

from advisor.comparison.kernels.attempts import Attempt, with_other_flags
from advisor.comparison.kernels.beside import calls_changed
from advisor.comparison.kernels.changed_launches import changed_launches, launch_notes
from advisor.comparison.kernels.kernel_version import versions
from advisor.comparison.kernels.resources import _why_refused
from advisor.comparison.kernels.time_verdict import CHANGED_LAUNCH
from advisor.compiled.compiler.kernel import CompileError
from advisor.python_source.source import parse_source
from advisor.rendering.figures import shortened
from advisor.result.comparison_schema import Resources

from .repository import compared_files
from .test_time_verdict import one, told_in

KERNEL = """import triton
import triton.language as tl


@triton.jit
def fill(x_ptr, stride, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.program_id(0) * stride + tl.arange(0, BLOCK), 1)


@triton.jit
def other(x_ptr, stride, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.program_id(0) * stride + tl.arange(0, BLOCK), 1)


"""


def words(base, head, kernel="fill"):
    """What changed in the launches of a kernel between two versions of a file."""
    sources = [parse_source(text, "fill.py") for text in (base, head)]
    changed = changed_launches(*(versions(source, {})[kernel] for source in sources))
    return [item.words for item in changed]


ARMS = """def run(x, n, decoding):
    if decoding:
        warps = 4
        fill[(n,)](x, x.stride(0), n, BLOCK=64, num_warps=warps)
    else:
        warps = max(2, n // 64)
        other[(n,)](x, x.stride(0), n, BLOCK=64, num_warps=warps)
"""
RETURNS = ARMS.replace("    else:\n        ", "        return\n    ").replace("        other", "    other")
CASES = """def run(x, n, decoding):
    match decoding:
      case True:
        warps = 4
        fill[(n,)](x, x.stride(0), n, BLOCK=64, num_warps=warps)
      case _:
        warps = max(2, n // 64)
        other[(n,)](x, x.stride(0), n, BLOCK=64, num_warps=warps)
"""


@pytest.mark.parametrize("text", [ARMS, RETURNS, CASES])
def test_what_is_run_on_no_way_to_a_call_is_no_part_of_its_launch(text):
    assert words(KERNEL + text, KERNEL + text.replace("warps = 4", "warps = 8"), "other") == []
    assert words(KERNEL + text, KERNEL + text.replace("warps = 4", "warps = 8")) == ["num_warps=4 → num_warps=8"]
    trips = text.replace("decoding):\n", "decoding):\n  for n in (1, n):\n").replace("\n    ", "\n      ")
    assert words(KERNEL + trips, KERNEL + trips.replace("warps = 4", "warps = 8"), "other"), "an earlier trip may have given it that"


def test_a_function_that_hands_a_launcher_its_arguments_on_changes_no_launch():
    text = "def run(x, n, block=64):\n    fill[(n,)](x, x.stride(0), n, BLOCK=block)\n\n\ndef forward(x, n):\n    run(x, n, 128)\n"
    wrapped = "def run(x, n, block=64):\n    return _run(x, n, block)\n\n\ndef forward"
    head = text.replace("def run", "def _run").replace("def forward", "@torch.library.custom_op('fill', mutates_args=())\n" + wrapped)
    assert words(KERNEL + text, KERNEL + head) == []
    assert words(KERNEL + text, KERNEL + head.replace("x, n, 128", "x, n, 256")) != []
    assert words(KERNEL + text, KERNEL + head.replace("x, n, block)\n\n\ndef", "x, n, 2 * block)\n\n\ndef")) != []


def test_what_a_file_does_as_a_script_is_no_part_of_a_launch():
    text = "import os\n\nMARGIN = int(os.environ.get('MARGIN', 0))\n\n\ndef run(x, n):\n    fill[(n - MARGIN,)](x, n, n, BLOCK=64)\n"
    script = "\n\nif __name__ == '__main__':\n    import os\n\n    os.environ[{}] = '8'\n    run(1, 8)\n"
    assert words(KERNEL + text + script.format("'x'"), KERNEL + text + script.format("'y'")) == []
    imported = script.replace("if __name__ == '__main__'", "if n > 1")
    assert words(KERNEL + text + imported.format("'x'"), KERNEL + text + imported.format("'y'")) != []
    assert words(KERNEL + text, KERNEL + text.replace("n - MARGIN", "n + MARGIN")) != []


def test_a_long_expression_is_cut_behind_a_name():
    text = "rows + " * 11 + "length_of_all"
    assert shortened(text, 80) == text[:76] + "…" and shortened(text[-80:], 80) == text[-80:]


def test_what_a_name_was_before_it_is_given_anew_is_no_part_of_a_launch():
    text = """def run(x, n, m):
    grid = (triton.cdiv(n, 64),)
    fill[grid](x, x.stride(0), n, BLOCK=64)
    block = 2 * m
    grid = (m, block)
    other[grid](x, x.stride(0), n, BLOCK=64)
"""
    head = text.replace("cdiv(n, 64)", "cdiv(n, 128)")
    assert words(KERNEL + text, KERNEL + head, "other") == []
    assert words(KERNEL + text, KERNEL + head) == ["grid=(triton.cdiv(n, 64),) → grid=(triton.cdiv(n, 128),)"]
    assert words(KERNEL + text, KERNEL + text.replace("2 * m", "3 * m"), "other") == ["the code of run, on which the grid depends"]
    pair = KERNEL + text.replace("    block = 2 * m\n", "    block, size = 2 * m, 3 * m\n")
    assert words(pair, pair.replace("3 * m", "4 * m"), "other") == [], "each name of a pair by itself"
    assert words(pair, pair.replace("2 * m", "4 * m"), "other") == ["the code of run, on which the grid depends"]
    wrapped = text.replace("run(", "filled(") + "\n\ndef forward(x, n, m):\n    filled(x, n + 1, m)\n"
    assert words(KERNEL + text, KERNEL + wrapped, "other") == [], "called by what is new"
    base = KERNEL + "LIMIT = 9\n\n\n" + text
    head = base.replace("2 * m", "less(m)") + "\n\ndef less(m):\n    return min(m, LIMIT)\n"
    assert words(base, head, "other") == ["the code of less, run, on which the grid depends"], "the limit is what it was"


def test_another_name_of_a_launchers_argument_is_no_change_of_its_launch():
    text = (
        "def run(x, y, n):\n    fill[(x.shape[0],)](x, x.stride(0), n, BLOCK=x.shape[1])\n\n\ndef forward(x, y, n):\n    run(x, y, n=n)\n"
    )
    head = re.sub(r"\bx\b", "grad", text.partition("\n\n\n")[0]) + "\n\n\n" + text.partition("\n\n\n")[2]
    assert words(KERNEL + text, KERNEL + head) == []
    assert words(KERNEL + text, KERNEL + head.replace("grad.shape", "y.shape")) == [
        "BLOCK=grad.shape[1] → BLOCK=y.shape[1], and grid=(grad.shape[0],) → grid=(y.shape[0],)"
    ]


def test_another_name_of_what_is_worked_out_is_no_change_of_a_launch():
    """An argument's name that is given something else beforehand is no longer what callers give."""
    text = """def run(x, n, BLOCK):
    parts = triton.cdiv(n, 4)
    other[(n,)](x, x.stride(0), n, BLOCK=BLOCK)
    BLOCK = triton.next_power_of_2(parts)
    BLOCK = min(max(BLOCK, 4), 128)
    fill[(parts,)](x, x.stride(0), n, BLOCK=BLOCK)


class Filled(Function):
    def backward(ctx, grad):
        run(grad, grad.shape[0], ctx.BLOCK)
"""
    first, last = text.partition("    BLOCK = t")[::2]
    head = first + "    block = t" + last.replace("    BLOCK = min", "    block = min").replace("max(BLOCK", "max(block")
    head = head.replace("n, BLOCK=BLOCK)\n\n\nclass", "n, BLOCK=block)\n\n\nclass")
    inner = head.replace("run(x", "_run(x").replace("\n\nclass", "\n\ndef run(x, n, BLOCK):\n    return _run(x, n, BLOCK)\n\n\nclass")
    for renamed in (head, inner):
        assert words(KERNEL + text, KERNEL + renamed) == [] == words(KERNEL + text, KERNEL + renamed, "other")
        smaller = renamed.replace("4), 128)", "4), 64)")
        assert words(KERNEL + text, KERNEL + smaller) == ["BLOCK=min(max(BLOCK, 4), 128) → BLOCK=min(max(block, 4), 64)"]


def test_a_conditional_expression_is_the_condition_that_it_stands_for():
    text = "def run(x, n, fast):\n    size = n // 2\n    if fast:\n        block = 64\n    else:\n        block = size\n"
    text += "    m = size + block\n    fill[(triton.cdiv(m, block),)](x, x.stride(0), n, BLOCK=block)\n"
    head = text.replace("    if fast:\n        block = 64\n    else:\n        block = size\n", "    block = 64 if fast else size\n")
    assert words(KERNEL + text, KERNEL + head) == []
    assert words(KERNEL + text, KERNEL + head.replace("64 if fast", "32 if fast")) != []


def test_what_is_passed_unnamed_is_not_called_gone():
    kernel = KERNEL.replace("stride, n", "stride: tl.constexpr, n")
    text = "def run(x, n, block):\n    fill[(n,)](x, x.stride(0), n, BLOCK=block)\n"
    (said,) = words(kernel + text, kernel + text.replace("x.stride(0)", "*x.stride()"))
    assert said == "the code of run"
    (said,) = words(kernel + text, kernel + text.replace("x.stride(0)", "*x.stride()").replace("=block)", "=64)"))
    assert said == "BLOCK=block → BLOCK=64"
    assert words(kernel + text, KERNEL + text) == [], "a stride that is no constant any more"


def test_what_a_changed_launch_passes_is_not_known_to_be_the_same(repository):
    """A file decides the block, which no reading of the source tells: one value for both sides would be no launch of them."""
    base = """def fill(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 1, mask=offsets < n)


def block_of(text):
    return int(text)


def run(x, n):
    block = block_of(open("tuned").read())
    fill[(triton.cdiv(n, block),)](x, n, BLOCK=block)
"""
    head = base.replace("return int(text)", "return 2 * int(text)")
    _, subject = one(repository, base, head)
    (row,), (compiled,) = subject.static, subject.resources
    assert (row.verdict, row.reason) == ("cannot-tell", f"{CHANGED_LAUNCH} BLOCK, which does not follow from the file")
    assert "passes what does not follow" in compiled.reason and compiled.base is None
    assert "block_of, on which BLOCK and the grid depend" in subject.notes[0] and not subject.hint
    _, subject = one(repository, base, head, 'kernels."k.py::fill" = {args = {BLOCK = 64, n = 4096}}')
    assert subject.static[0].verdict == "cannot-tell" and "whatever advisor.toml says" in subject.static[0].reason


def test_a_store_of_another_type_is_the_same_work(repository):
    base = """def above(x_ptr, score_ptr, n, limit, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    score = tl.load(x_ptr + offsets, mask=offsets < n) * 2.0
    tl.store(score_ptr + offsets, score, mask=offsets < n)


def run(x, y, n, limit):
    above[(triton.cdiv(n, 1024),)](x, y, n, limit, BLOCK=1024)
"""
    head = base.replace("score_ptr", "mask_ptr").replace("offsets, score,", "offsets, score > limit,")
    types = 'kernels."k.py::above" = {args = {n = 16777216, limit = 0.5}, types = {score_ptr = "*fp32", mask_ptr = "*i1"}}'
    _, subject = one(repository, base, head, types)
    assert subject.static[0].verdict == "predicted-improved", subject.static[0].reason


def test_what_cannot_be_read_was_not_refused_for_a_guess(repository):
    base = """def total(x_ptr, y_ptr, n, LEVEL: tl.constexpr):
    tl.store(y_ptr, tl.load(x_ptr) * n * FLOOR)


def run(x, y, n, level):
    total[(n,)](x, y, n, LEVEL=level)


FLOOR = tl.constexpr(float(open("floor").read()))
"""
    _, subject = one(repository, base, base.replace(" * FLOOR", " * LEVEL"))
    (compiled,) = subject.resources
    assert "FLOOR" in compiled.reason and "guessed" not in compiled.reason and compiled.head is not None and not subject.hint


def test_the_line_to_paste_lacks_what_follows_from_the_rest(repository):
    base = """def each(x_ptr, n, boxes, PADDED: tl.constexpr, BLOCK: tl.constexpr):
    for start in range(0, PADDED, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        tl.store(x_ptr + tl.program_id(0) * n + offsets, 1, mask=offsets < boxes)


def run(x, boxes):
    each[(4096,)](x, 4096, boxes, PADDED=triton.next_power_of_2(boxes), BLOCK=256)
"""
    _, subject = one(repository, base, base.replace("+ offsets, 1,", "+ offsets, 2 * start,"))
    assert set(subject.static[0].reason.removeprefix("without ").split(" and ")) == {"boxes", "PADDED"}
    assert told_in(subject.hint).args.keys() == {"boxes"}


def test_a_factor_of_one_side_alone_that_is_guessed_compares_nothing(repository):
    """As in ao 629e25d1: the base has the largest number of fp8 as a literal, the head takes it."""
    base = """def each(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(x_ptr + offsets, 448.0 / x, mask=offsets < n)


def run(x, n):
    each[(4096,)](x, n, BLOCK=256)
"""
    head = base.replace("BLOCK: tl", "FP8_MAX: tl.constexpr, BLOCK: tl").replace("448.0", "FP8_MAX")
    _, subject = one(repository, base, head.replace("n, BLOCK=256", "n, torch.finfo(x.dtype).max, BLOCK=256"))
    (compiled,) = subject.resources
    assert "a guess of FP8_MAX, which one side alone takes" in compiled.reason and compiled.base is compiled.head is None


@pytest.mark.parametrize(
    ("name", "parameters", "body", "passed"),
    [
        ("GROUPS", "GROUPS: tl.constexpr", "o = GROUPS * offsets", "GROUPS=groups // 7"),
        ("PADDED", "groups, PADDED: tl.constexpr", "o = tl.arange(0, PADDED)", "groups=groups, PADDED=max(16, groups)"),
    ],
)
def test_a_number_of_one_side_alone_that_is_guessed_compares_nothing(repository, name, parameters, body, passed):
    """Also one that covers a size of which nothing is known."""
    base = """def each(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + tl.program_id(0) * n + offsets, 1, mask=offsets < n)


def run(x, n, groups):
    each[(4096,)](x, n, BLOCK=256)
"""
    head = base.replace("BLOCK: tl", f"{parameters}, BLOCK: tl").replace("BLOCK=256", f"{passed}, BLOCK=256")
    more = f"    {body}\n    tl.store(x_ptr + o, 2, mask=o < {'groups' if 'groups' in parameters else 'GROUPS'})\n"
    _, subject = one(repository, base, head.replace("\n\n\ndef run", f"\n{more}\n\ndef run"))
    (compiled,) = subject.resources
    assert f"a guess of {name}, which one side alone takes" in compiled.reason and compiled.base is compiled.head is None
    flagged = head.replace("BLOCK: tl", "ON: tl.constexpr, BLOCK: tl").replace("BLOCK=256", "ON=n > groups, BLOCK=256")
    _, subject = one(repository, base, flagged.replace("\n\n\ndef run", f"\n{more}    if ON:\n        tl.store(x_ptr, 3)\n\n\ndef run"))
    assert subject.resources[0].reason == compiled.reason and not any("registers" in note for note in subject.notes)


SCALED = """def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, x * tl.exp(x))


def run(x, y, n, scale):
    copy[(4096,)](x, y, n, BLOCK=256)
"""


@pytest.mark.parametrize(
    ("line", "compared_with", "other"),
    [
        ("    if SCALE:\n        x = tl.sin(x)\n", "SCALE=False", "SCALE=True"),
        ("    if not SCALE:\n        return\n", "SCALE=True", "SCALE=False"),
    ],
)
def test_a_flag_of_one_version_is_what_leaves_the_other_as_it_was(repository, line, compared_with, other):
    head = SCALED.replace("BLOCK: tl", "SCALE: tl.constexpr, BLOCK: tl").replace("    tl.store", f"{line}    tl.store")
    _, subject = one(repository, SCALED, head.replace("BLOCK=256", "SCALE=scale is not None, BLOCK=256"))
    (compiled,) = subject.resources
    assert compared_with in compiled.label and compiled.base == compiled.head and not compiled.reason
    (said,) = [note for note in subject.notes if note.startswith("Registers per thread")]
    assert re.fullmatch(rf"Registers per thread with {other}, which the base does not take: the head has \d+; the base has \d+\.", said)


def test_a_constant_that_may_be_none_is_guessed_to_be():
    from advisor.compiled.guesses.inference import Given, guesses

    text = KERNEL.replace(
        "BLOCK: tl.constexpr):",
        'ACT: tl.constexpr, BLOCK: tl.constexpr):\n    if ACT is not None:\n        tl.static_assert(ACT == "relu")',
        1,
    )
    source = parse_source(text, "fill.py")
    assert next(guesses(source, source.kernel("fill"), Given())).constexprs["ACT"] is None


def test_a_block_is_no_flag(repository):
    base = """def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr, TAIL: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets))
    if TAIL > 0:
        tail = tl.arange(0, TAIL)
        tl.store(y_ptr + BLOCK + tail, tl.load(x_ptr + BLOCK + tail))


def run(x, y, n, tails):
    copy[(4096,)](x, y, n, BLOCK=256, TAIL=tails[n])
"""
    _, subject = one(repository, base, base.replace("tl.load(x_ptr + BLOCK + tail)", "tl.load(x_ptr + tail + BLOCK)"))
    assert not any("TAIL=1" in note for note in (*subject.notes, *(row.label for row in subject.resources)))


@pytest.mark.parametrize(("passed", "is_compared"), [("tokens // batch", False), ("x.shape[1]", True)])
def test_a_typical_size_that_a_launch_works_out_is_no_size_of_one_side_alone(repository, passed, is_compared):
    """With 4,096 of a typical `seq_len`, 8,192 typical tokens would be two sequences, not the typical four."""
    base = """def fill(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.program_id(0) * n + tl.arange(0, BLOCK), 1)


def run(x, tokens, batch):
    fill[(4096,)](x, 64, BLOCK=64)
"""
    head = base.replace("n, BLOCK:", "n, seq_len: tl.constexpr, BLOCK:").replace("* n", "* n * seq_len + seq_len // 7")
    head = head.replace("    fill[", f"    seq_len = {passed}\n    fill[").replace("64, BLOCK=", "64, seq_len=seq_len, BLOCK=")
    _, subject = one(repository, base, head)
    (row,) = subject.resources
    assert (row.base is not None) is is_compared
    assert ("a guess of seq_len, which one side alone takes" in row.reason) is not is_compared


@pytest.mark.parametrize(
    ("got", "more"),
    [
        ("ImportError: cannot import name 'tlx' from 'rebuilt_0_prelude' (unknown location)", ""),
        (
            "line 6 from `def k`: CompilationError: RuntimeError('Unsupported function referenced: <function tlx>')",
            ", or lets no kernel call it",  # `core.get_int_dtype` is there, and is no function for kernels
        ),
    ],
)
def test_what_this_triton_lacks_was_not_refused_for_a_guess(got, more):
    refused = CompileError("triton cannot compile it", got, kind="failed")
    assert _why_refused(Attempt(refused=refused)) == f"the Triton at hand lacks tlx{more}"


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("BLOCK=64, num_warps=4", "BLOCK=64, num_stages=4", "num_warps=4 → no num_warps, and no num_stages → num_stages=4"),
        ("BLOCK=64, num_warps=4", "BLOCK=4, num_warps=64", "BLOCK=64 → BLOCK=4, and num_warps=4 → num_warps=64"),
    ],
)
def test_the_same_values_for_other_names_are_another_launch(one, other, said):
    text = "def run(x, n):\n    fill[(4,)](x, x.stride(0), n, VALUES)\n"
    assert words(KERNEL + text.replace("VALUES", one), KERNEL + text.replace("VALUES", other)) == [said]


def test_one_more_value_behind_those_that_a_launch_is_worked_out_from_changes_nothing():
    text = "def run(ctx, x):\n    q, n, MORE*rest = ctx.saved\n    fill[(4,)](x, x.stride(0), 8, BLOCK=n)\n"
    assert words(KERNEL + text.replace("MORE", ""), KERNEL + text.replace("MORE", "mean, ")) == []
    assert words(KERNEL + text.replace("n, MORE", "n, "), KERNEL + text.replace("q, n, MORE", "q, mean, n, ")) != []


def test_an_option_that_is_none_of_tritons_is_an_option_of_the_launch():
    """Of another vendor's, which gives its compiler a size of its buffers."""
    text = "def run(x, n):\n    fill[(4,)](x, x.stride(0), n, BLOCK=64LIMIT)\n"
    assert words(KERNEL + text.replace("LIMIT", ""), KERNEL + text.replace("LIMIT", ", buffer_limit=2048")) == [
        "no buffer_limit → buffer_limit=2048"
    ]


@pytest.mark.parametrize("listed", ["listed()", "[triton.Config({'BLOCK': 64})]"], ids=["unread", "read"])
def test_how_a_tuner_tunes_lists_no_configurations(repository, predictor, listed):
    start, _, rest = KERNEL.partition("@triton.jit")
    text = f"{start}from somewhere import listed\n\n\n@triton.autotune(configs={listed}, key=['n'])\n@triton.jit{rest}"
    head = text.replace("key=['n']", "key=['n'], warmup=5, rep=10")
    (subject,) = compared_files(repository, predictor, {"k.py": text}, {"k.py": head}).subjects
    assert "Other arguments of its tuner: rep, warmup." in subject.notes
    assert not any("lists its configurations" in note for note in subject.notes)


def test_a_list_is_told_where_the_other_sides_cannot_be_read(repository, predictor):
    """As in FBGEMM c699d57ee9; nor is a time told where something else prunes the configurations (generative-recommenders fb64fd4a3d)."""
    start, _, rest = KERNEL.partition("@triton.jit")
    listed = "[triton.Config({'BLOCK': 64}, num_warps=4), triton.Config({'BLOCK': 128}, num_warps=8)]"
    text = f"{start}from somewhere import listed\n\n\n@triton.autotune(configs=listed(), key=['n'])\n@triton.jit{rest}"
    head = text.replace("listed()", listed)
    (subject,) = compared_files(repository, predictor, {"k.py": text}, {"k.py": head}, compiling=True).subjects
    assert any("that of the head has 2: BLOCK=64 num_warps=4 num_stages=3; BLOCK=128" in note for note in subject.notes)
    assert {row.reason for row in subject.static} <= {"because the configurations of the base cannot be read"}
    pruned = "def fewer(configs, args, **more):\n    return configs[:1]\n\n\n@triton.autotune"
    pruned = head.replace("@triton.autotune", pruned).replace("key=['n']", "key=['n'], prune_configs_by={'early_config_prune': fewer}")
    (subject,) = compared_files(repository, predictor, {"k.py": head}, {"k.py": pruned}, compiling=True).subjects
    assert {row.verdict for row in subject.static} <= {"cannot-tell"}
    assert "What prunes its configurations changed: nothing → {'early_config_prune': fewer}." in subject.notes


def test_a_heuristic_by_another_name_changes_no_kernel(repository, predictor):
    """As in FlagGems 84d0d0e0e9; nor do variables of the kernel's own."""
    start, _, rest = KERNEL.partition("@triton.jit")
    text = f"{start}def one(args):\n    return 64\n\n\n@triton.heuristics({{'BLOCK': one}})\n@triton.jit{rest}"
    text = text.replace("    tl.store(x_ptr + tl.program_id(0)", "    row = tl.program_id(0)\n    tl.store(x_ptr + row")
    head = text.replace("one", "block_of").replace("row", "number")
    assert not compared_files(repository, predictor, {"k.py": text}, {"k.py": head}).subjects
    other = head.replace("return 64", "return 32")
    (subject,) = compared_files(repository, predictor, {"k.py": text}, {"k.py": other}).subjects
    assert "What @triton.heuristics gives for BLOCK is worked out otherwise." in subject.notes


BLOCKS = """

@triton.jit
def rows(x_ptr, stride, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.program_id(0) * stride, 1)


def run(x, n, many):
    size = triton.next_power_of_2(n)
    if size > 256 or n < 4096 * 8 or many:
        fill[(n,)](x, x.stride(0), n, BLOCK=64)
    else:
        rows[(n,)](x, x.stride(0), n, BLOCK=64)


def call(x, n):
    run(x, n, False)
"""


def test_a_kernel_that_is_launched_under_some_sizes_alone_is_not_launched_alike(repository, predictor):
    """As in Liger-Kernel e99bbb5414: of sizes and flags that hang together in one condition each counts by itself."""
    condition = "    if size > 256 or n < 4096 * 8 or many:\n        fill"
    base = BLOCKS.replace(condition, "    fill").replace("    else:\n        rows[(n,)](x, x.stride(0), n, BLOCK=64)\n", "")
    base = base.replace(", many", "").replace(", False", "")
    found = compared_files(repository, predictor, {"k.py": KERNEL + base}, {"k.py": KERNEL + BLOCKS}, compiling=True)
    subject = next(item for item in found.subjects if item.title == "k.py::fill")
    assert {row.verdict for row in subject.static} == {"cannot-tell"} and "rows in its place" in subject.static[0].reason
    assert any("its launch may not be made: run launches rows in its place" in note for note in subject.notes)


def test_a_tuner_that_went_is_told_though_its_list_cannot_be_read(repository, predictor):
    """As in FlagGems e34582055f."""
    start, _, rest = KERNEL.partition("@triton.jit")
    text = f"{start}from somewhere import listed\n\n\n@triton.autotune(configs=listed(), key=['n'])\n@triton.jit{rest}"
    for base, head, said in ((text, KERNEL, "It is not tuned any more."), (KERNEL, text, "It is tuned now.")):
        (subject,) = compared_files(repository, predictor, {"k.py": base}, {"k.py": head}).subjects
        assert said in subject.notes


def test_a_hook_that_changed_lists_no_configurations(repository, predictor):
    head = (
        KERNEL.partition("@triton.jit")[0] + "from somewhere import listed\n\n\ndef hook(args):\n    args['d'].block_shape = [SIZE]\n\n\n"
    )
    text = head + "@triton.autotune(configs=listed(pre_hook=hook), key=['n'])\n" + KERNEL[KERNEL.index("@triton.jit") :]
    sides = [{"k.py": text.replace("SIZE", size)} for size in ("args['BLOCK']", "args['BLOCK'] // 1")]
    found = compared_files(repository, predictor, *sides)
    (subject,) = found.subjects
    said = "The kernel is the same; its launch in its file changed: the code of hook, which runs before it and may set its blocks."
    assert said in subject.notes and not any("lists its configurations" in note for note in subject.notes)
    assert found.headline.startswith("1 unchanged kernel whose launch other code works out")
    other = {"k.py": text.replace("SIZE", "1").replace("listed(pre", "listed(2, pre")}
    (subject,) = compared_files(repository, predictor, sides[0], other).subjects
    assert "What lists its configurations changed, and cannot be read." in subject.notes
    tuner = {"k.py": sides[0]["k.py"].replace("@triton.autotune(", "@libtuner(")}
    (subject,) = compared_files(repository, predictor, sides[0], tuner).subjects
    assert "It is now decorated with libtuner." in subject.notes and not any("lists its" in note for note in subject.notes)


def test_what_a_version_holds_with_other_flags_is_said_though_its_spills_are_not_known():
    """As in FBGEMM 6bdbc78f: blocks so large that registers are estimated."""
    version = versions(parse_source(KERNEL.replace("BLOCK: tl", "WIDE: tl.constexpr, BLOCK: tl"), "fill.py"), {})["fill"]
    held = [
        Attempt(resources=Resources(origin="estimated", registers_per_thread=registers, spill_bytes=spills, shared_memory_bytes=0))
        for registers, spills in ((255, None), (64, 1024), (None, None))
    ]
    said = [with_other_flags({"WIDE": True}, version, (base, held[0])) for base in held[1:]]
    assert ["has 64 and spills 1,024 bytes" in text for (text,) in said] == [True, False]
    assert all("255" in text and "None" not in text for (text,) in said)


@pytest.mark.parametrize("name", ["tl._experimental_load", "tl.extra.cuda.experimental_load"])
def test_experiments_of_another_triton_were_not_refused_for_a_guess(name):
    refused = CompileError("k does not compile", f"Triton 3.9.0 has no {name}: line 6 is written for another", kind="unsure")
    assert _why_refused(Attempt(refused=refused)) == f"the Triton at hand lacks {name}"


def test_warps_that_follow_of_one_version_alone_are_those_of_both(repository):
    """What the head's row is a constant of says its warps, and the base would have Triton's own four."""
    base = """def each(x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    offsets = tl.arange(0, BLOCK_SIZE)
    tl.store(x_ptr + tl.program_id(0) * n_cols + offsets, 1, mask=offsets < n_cols)


def run(x, settings):
    rows, vocab_size = x.shape
    BLOCK_SIZE, num_warps = settings(vocab_size)
    each[(rows,)](x, vocab_size, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps)
"""
    head = base.replace("n_cols, BLOCK_SIZE: tl", "VOCAB_SIZE: tl.constexpr, BLOCK_SIZE: tl").replace("n_cols", "VOCAB_SIZE")
    _, subject = one(repository, base, head.replace("x, vocab_size, BLOCK", "x, VOCAB_SIZE=vocab_size, BLOCK"))
    (compiled,) = subject.resources
    assert "num_warps=32" in compiled.label and compiled.work == 1.0


@pytest.mark.parametrize(("given", "shown"), [("ctx.num_warps", ", num_warps=2 (typical)"), ("chosen(x)", "")])
def test_warps_of_another_launch_of_the_file_are_those_of_one_that_is_handed_them(repository, given, shown):
    base = f"""def fill(x_ptr, stride: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.program_id(0) * stride + tl.arange(0, BLOCK), 1)


@triton.jit
def summed(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK))))


def run(ctx, x, y):
    num_warps = {given}
    fill[(64,)](x, 4096, BLOCK=64, num_warps=num_warps)
    num_warps = 2
    summed[(1,)](y, BLOCK=64, num_warps=num_warps)
"""
    _, subject = one(repository, base, base.replace("(0, BLOCK), 1)", "(0, BLOCK), 2 + tl.program_id(0) % 7)"))
    (compiled,) = subject.resources
    assert compiled.label == f"BLOCK=64{shown}"


def test_what_changed_under_a_flag_within_another_is_compiled_with_both(repository):
    base = """def fill(x_ptr, y_ptr, TRAIN: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    value = 1.0
    if TRAIN:
        scale = tl.load(y_ptr)
        if WIDE:
            value += tl.load(y_ptr + 1)
            value += tl.load(y_ptr + 2)
            value += tl.load(y_ptr + 3)
        value *= scale
    tl.store(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), value)


def run(x, y, train, wide):
    fill[(64,)](x, y, TRAIN=train, WIDE=wide, BLOCK=128)
"""
    head = base.replace("scale = ", "factor = ").replace("*= scale", "*= factor")
    kept = "            packed = tl.load(y_ptr + 1)\n            value += packed * 3\n"
    head = re.sub(r"( +value \+= tl.load.*\n){3}", kept, head)
    _, subject = one(repository, base, head)
    (note,) = (note for note in subject.notes if note.startswith("Compiled with"))
    assert note == "Compiled with TRAIN=True WIDE=True, for the change to show."
    (compiled,) = subject.resources
    assert compiled.base != compiled.head


def test_what_the_gpu_lacks_is_said_whatever_else_a_guess_of_the_other_side_breaks(repository):
    """The base guesses a mode that it compares with, with which the head misses a tensor; another mode shows what no mode mends."""
    base = """def pack(x_ptr, y_ptr, z_ptr, MODE: tl.constexpr):
    value = tl.load(x_ptr + tl.program_id(0)).to(tl.float32)
    if MODE == 3:
        value += tl.load(y_ptr)
    if MODE == 2:
        value += 1
    tl.store(z_ptr + tl.program_id(0), value)


def run(x, y, z, mode):
    pack[(64,)](x, y, z, MODE=mode)
"""
    asm = 'tl.inline_asm_elementwise("{ .reg .b8 p; cvt.rn.satfinite.e2m1x2.f32 p, $1, $1; mov.u32 $0, 0; }", "=r,f", [value], '
    head = base.replace("tl.load(y_ptr)", "None & 1").replace("0), value)", f"0), {asm}dtype=tl.int32, is_pure=True, pack=1))")
    head = head.replace("    if MODE == 2:\n        value += 1\n", "").replace(
        "    if MODE == 3", "    if MODE == 0:\n        value += 1\n    if MODE == 3"
    )
    _, subject = one(repository, base, head)
    (compiled,) = subject.resources
    assert "has no cvt.e2m1x2.f32" in compiled.reason


def test_a_condition_that_is_worked_out_otherwise_is_what_changed():
    text = """def run(x, n, lengths):
    short = n <= 4096
    if lengths is not None:
        n = lengths.max()
    if short:
        if lengths is None:
            parts = 1
        else:
            parts = n // 2
        fill[(n, parts)](x, x.stride(0), n, BLOCK=64)
    else:
        if lengths is None:
            parts = 1
        else:
            parts = n // 4
        other[(n, parts)](x, x.stride(0), n, BLOCK=64)
"""
    head = text.replace("    short = n <= 4096\n", "").replace("    if short", "    short = n <= 4096\n    if short")
    said = "it is made where short, which is worked out otherwise than before in run"
    assert words(KERNEL + text, KERNEL + head) == [said]
    assert words(KERNEL + text, KERNEL + head, "other") == [said.replace("where short", "where not (short)")]


def test_a_grid_that_is_returned_by_a_name_is_what_that_is_given():
    text = """def run(x, n):
    def grid(META):
        ret = (triton.cdiv(n, META["BLOCK"]), 4)
        return ret
    fill[grid](x, x.stride(0), n, BLOCK=64)
"""
    other = text.replace('triton.cdiv(n, META["BLOCK"]), 4', "n, 4")
    assert words(KERNEL + text, KERNEL + other) == ["grid=(triton.cdiv(n, META['BLOCK']), 4) → grid=(n, 4)"]
    twice = text.replace("        return ret", "        if n > 4:\n            ret = (1, 4)\n        return ret")
    assert "→ grid=(1, 4)" not in str(words(KERNEL + text, KERNEL + twice))


def test_a_part_of_what_a_call_returns_is_the_same_by_any_name():
    """As in conch 30320e2fad: the function returns one value less."""
    text = """def sizes(n):
    first = n // 4
    second = n // 8
    return first, second


def run(x, n):
    block_one, block_two = sizes(n)
    fill[(n,)](x, x.stride(0), n, BLOCK=block_one)
"""
    head = (
        text.replace("    second = n // 8\n", "")
        .replace("first, second", "first, n")
        .replace("block_one", "block")
        .replace("block_two", "more")
    )
    assert not any("BLOCK=" in item for item in words(KERNEL + text, KERNEL + head))
    other = head.replace("block, more", "more, block")
    assert words(KERNEL + text, KERNEL + other) == ["BLOCK=sizes(n)[0] → BLOCK=sizes(n)[1], and the code of sizes"]


def test_a_grid_that_is_a_function_stands_for_what_the_name_was_before():
    """As in flash-linear-attention a4a2624b0f."""
    text = """def run(x, n):
    grid = (n, 4)
    other[grid](x, x.stride(0), n, BLOCK=64)
    def grid(META): return (triton.cdiv(n, META["BLOCK"]), 4)
    fill[grid](x, x.stride(0), n, BLOCK=64)
"""
    head = text.replace('"]), 4)', '"]) * 4,)')
    said = ["grid=(triton.cdiv(n, META['BLOCK']), 4) → grid=(triton.cdiv(n, META['BLOCK']) * 4,)"]
    assert words(KERNEL + text, KERNEL + head) == said
    assert words(KERNEL + text, KERNEL + head, "other") == []


OTHERWISE = """def run(x, n, shared):
    BLOCK = triton.next_power_of_2(n)
    fill[(n,)](x, x.stride(0), n, BLOCK=BLOCK, num_warps=4)
"""


@pytest.mark.parametrize(("more", "said"), [(", y.stride(0)", "but for arguments that came or went, and "), ("", "and ")])
def test_a_launch_that_passes_more_is_not_written_as_before(more, said):
    """As in conch 70d15a1fc8."""
    base = KERNEL + OTHERWISE.replace("    fill", "    if shared:\n        BLOCK = 16\n    fill")
    taken = base.replace("stride, n,", "stride, n, more,", 1) if more else base
    head = taken.replace("x.stride(0), n", f"x.stride(0), n{more}").replace("BLOCK = 16", "BLOCK = 32")
    changed = changed_launches(*(versions(parse_source(text, "fill.py"), {})["fill"] for text in (base, head)))
    rest = "the code of run, on which BLOCK depends, changed: whether other values come of it is not judged."
    assert launch_notes(changed, same=False, compared=False) == [f"The launch in its file is written as before, {said}{rest}"]


def test_a_constant_that_is_worked_out_otherwise_decides_beside_an_option_that_is_gone():
    head = OTHERWISE.replace("    fill", "    if shared:\n        BLOCK = 16\n    fill").replace(", num_warps=4", "")
    sources = [parse_source(KERNEL + text, "fill.py") for text in (OTHERWISE, head)]
    (changed,) = changed_launches(*(versions(source, {})["fill"] for source in sources))
    assert changed.words == "num_warps=4 → no num_warps, and BLOCK, worked out otherwise"
    assert changed.names == {"BLOCK", "num_warps"}


def test_a_grid_that_is_worked_out_otherwise_is_named_beside_an_option():
    """As in lmdeploy 9def35e4; not where that is all that the option's own name changes of it."""
    text = """def run(x, n, sms):
    warps = 4
    programs = min(n, sms * 8 // warps)
    fill[(programs,)](x, x.stride(0), n, BLOCK=64, num_warps=warps)
"""
    fewer = text.replace("warps = 4", "warps = 1")
    assert words(KERNEL + text, KERNEL + fewer) == ["num_warps=4 → num_warps=1"]
    shared = fewer.replace("min(n, sms * 8 // warps)", "min(n, sms * 8 // warps // 4)")
    assert words(KERNEL + text, KERNEL + shared) == ["num_warps=4 → num_warps=1, and the grid, worked out otherwise"]


def test_an_argument_of_the_launcher_that_has_another_name_and_place_is_the_same():
    """As in flash-linear-attention 20277368e8: `g_cumsum` is `g` now, behind others and None where nothing is passed."""
    text = """def run(x, g_cumsum, lengths):
    size = len(lengths) if lengths is not None else g_cumsum.shape[0]
    fill[(size,)](x_ptr=x, stride=g_cumsum, n=lengths, BLOCK=64)
"""
    head = text.replace("g_cumsum, lengths", "new, g=None, lengths=None").replace("g_cumsum", "g")
    assert words(KERNEL + text, KERNEL + head) == []


def test_what_a_name_is_given_after_the_launch_is_no_part_of_it():
    more = "    BLOCK = 16\n    other[(n,)](x, x.stride(0), n, BLOCK=BLOCK)\n"
    head = OTHERWISE.replace(", num_warps=4", "") + more.replace("BLOCK = 16", "LATER = 16").replace("BLOCK=BLOCK", "BLOCK=LATER")
    assert words(KERNEL + OTHERWISE + more, KERNEL + head) == ["num_warps=4 → no num_warps"]


def test_new_kernels_of_gluon_are_called_new(repository, predictor):
    text = "from triton.experimental import gluon\n\n\n@gluon.jit\ndef low(x):\n    pass\n"
    (subject,) = compared_files(repository, predictor, {"a.py": "x = 1\n"}, {"a.py": "x = 1\n", "g.py": text}).subjects
    assert subject.notes == ("low: new, written in Gluon, whose kernels are not compared.",)


def test_kernels_of_gluon_are_named(repository, predictor):
    kept = "@gluon.jit(noinline=True)\ndef kept(x):\n    pass\n"
    text = f"from triton.experimental import gluon\n\n\n@gluon.jit\ndef low(x):\n    pass\n\n\n{kept}"
    (subject,) = compared_files(
        repository, predictor, {"g.py": text}, {"g.py": text.replace("low(x):\n    pass", "low(x):\n    x + 1")}
    ).subjects
    assert subject.notes == ("low: changed, written in Gluon, whose kernels are not compared.",)


def test_a_list_of_configurations_that_is_named_is_the_same(repository, predictor):
    listed = "@triton.autotune([triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 128})], ['n'])\n@triton.jit\ndef fill"
    base = KERNEL.replace("@triton.jit\ndef fill", listed)
    head = base.replace("autotune([", "autotune(configs=[").replace("], ['n']", "], key=['n']")
    assert not compared_files(repository, predictor, {"k.py": base}, {"k.py": head}).subjects


def test_lists_are_compared_at_the_nearest_configuration(repository, predictor):
    """A configuration of four warps with one of sixteen would be other code for that alone."""
    wide = "".join(f"    v{i} = tl.load(x_ptr + tl.arange(0, BLOCK) * {i + 1})\n" for i in range(4))
    kernel = KERNEL.replace("@triton.jit\ndef fill", "@triton.autotune(configs=LIST, key=['n'])\n@triton.jit\ndef fill")
    kernel = kernel.replace("tl.arange(0, BLOCK), 1)\n\n\n@triton.jit\ndef other", "tl.arange(0, BLOCK), SUM)\n\n\n@triton.jit\ndef other")
    kernel = kernel.replace("BLOCK: tl.constexpr):\n", f"BLOCK: tl.constexpr):\n{wide}", 1).replace("SUM", "v0 + v1 + v2 + v3")
    listed = "[triton.Config({'BLOCK': 2048}, num_warps=w, num_stages=s) for w in WARPS for s in STAGES]"
    base = kernel.replace("LIST", listed.replace("WARPS", "(2, 4, 16)").replace("STAGES", "(3,)"))
    head = kernel.replace("LIST", listed.replace("WARPS", "(2, 4)").replace("STAGES", "(3, 2)"))
    found = compared_files(repository, predictor, {"k.py": base}, {"k.py": head}, compiling=True)
    (subject,) = found.subjects
    (row,) = subject.resources
    assert "num_warps=4 num_stages=3 → 2" in row.label and row.base.registers_per_thread == row.head.registers_per_thread


def test_what_is_tritons_is_the_same_however_it_is_imported(repository, predictor):
    base = "from triton.language.standard import _log2\n" + KERNEL.replace("tl.arange(0, BLOCK), 1)", "tl.arange(0, BLOCK), _log2(BLOCK))")
    guarded = base.replace("from triton.language.s", "try:\n    from triton.language.s", 1).replace(
        "_log2\n", "_log2\nexcept ImportError:\n    pass\n", 1
    )
    assert not compared_files(repository, predictor, {"k.py": base}, {"k.py": guarded}).subjects


def test_of_a_list_that_both_have_the_middle_one_is_compared(repository, predictor):
    """Of blocks of 16 to 256 the smallest hides what a change does to registers."""
    listed = "@triton.autotune(configs=[triton.Config({'BLOCK': b}) for b in (16, 32, 64, 128, 256)], key=['n'])\n@triton.jit\ndef fill"
    base = KERNEL.replace("@triton.jit\ndef fill", listed)
    head = base.replace("tl.arange(0, BLOCK), 1)", "tl.arange(0, BLOCK), tl.program_id(0) // 3)", 1)
    (subject,) = compared_files(repository, predictor, {"k.py": base}, {"k.py": head}, compiling=True).subjects
    (row,) = subject.resources
    assert row.label.startswith("BLOCK=64")


def test_an_option_that_one_side_works_out_in_a_way_that_is_not_followed_is_a_guess(repository):
    base = """def fill(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 1)


def run(x, settings):
    num_warps = 4
    fill[(64,)](x, BLOCK=1024, num_warps=num_warps)
"""
    _, subject = one(repository, base, base.replace("num_warps = 4", "num_warps = settings(x)").replace("BLOCK=1024", "BLOCK=2048"))
    (compiled,) = subject.resources
    assert compiled.label == "BLOCK=1024 → 2048, num_warps=4 (guessed)"


OF_TWO = (
    KERNEL
    + """class Norm:
    def forward(self, x, n):
        other[(n,)](x, 64, n, BLOCK=64)

    def backward(self, x, n):
        fill[(n,)](x, 64, n, BLOCK=64)
"""
)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("        other[", "        fill[", "no longer launches other and now launches fill"),
        (
            "        other[",
            "        if n < 8:\n            return fill[(n,)](x, 64, n, BLOCK=64)\n        other[",
            "now launches fill (if n < 8)",
        ),
        ("        fill[(n,)](x, 64, n, BLOCK=64)", "        pass", "no longer launches fill"),
    ],
)
@pytest.mark.parametrize("folder", ["", "hip/"], ids=["ours", "another vendor's"])
def test_which_kernel_a_function_launches_is_said_of_kernels_that_are_the_same(repository, predictor, old, new, said, folder):
    assert old in OF_TWO
    path = f"{folder}k.py"
    found = compared_files(repository, predictor, {path: OF_TWO}, {path: OF_TWO.replace(old, new)})
    whole = "; ".join([*found.around, *(note for subject in found.subjects for note in subject.notes)])
    reasons = [row.reason for subject in found.subjects for row in subject.static]
    assert said in whole or any("forward launches fill in" in reason for reason in reasons)
    assert not folder or not any(subject.kind == "kernel" for subject in found.subjects)


def launched(old: str, new: str) -> str:
    """What changed of the calls and launches of `run`."""
    sides = [parse_source(text, "k.py") for text in (old, new)]
    return calls_changed(*((side.module_names, side.plain_functions["run"]) for side in sides))


def test_a_kernel_that_is_launched_where_another_was_is_named():
    new = KERNEL.replace("def other", "def fresh") + "def run(x, n):\n    fresh[(n,)](x, 64, n, BLOCK=64)\n"
    old = KERNEL + "def run(x, n):\n    fill[(n,)](x, 64, n, BLOCK=64)\n"
    assert launched(old, new) == "no longer launches fill and now launches fresh"
    assert launched(old, old + "    if n > 8:\n        other[(n,)](x, 64, n, BLOCK=64)\n") == "now launches other (if n > 8)"
    assert launched(old, old + "    fill[(n,)](x, 64, n, BLOCK=64)\n") == "launches more often fill"
    always = "always, where it was if n > 8"
    assert launched(old.replace("    fill", "    if n > 8:\n        fill"), old) == f"launches fill {always}"


def test_a_launcher_that_is_called_in_place_of_another_is_named():
    """As where a function calls one launching function or another: `if compact: … else: …`."""
    launchers = "".join(f"def launch_{name}(x, n):\n    {name}[(n,)](x, 64, n, BLOCK=64)\n\n\n" for name in ("fill", "other"))
    old = KERNEL + launchers + "def run(x, n):\n    launch_fill(x, n)\n"
    new = old.replace("    launch_fill(x, n)\n", "    if n > 8:\n        launch_other(x, n)\n    else:\n        launch_fill(x, n)\n")
    assert launched(old, new) == "now calls launch_other(x, n) (if n > 8) and calls launch_fill(x, n) if not (n > 8), where it was always"


def test_a_kernel_by_another_name_is_launched_still():
    """As in aiter 7e0d1162: a kernel is imported by another name."""
    imported = "import triton\nfrom kernels import fill{}\n\n\ndef run(x, n):\n    {}[(n,)](x, 64, n, BLOCK=64)\n"
    assert launched(imported.format("", "fill"), imported.format(" as written", "written")) == ""


def test_a_list_that_a_function_prunes_is_said_to_be(repository, predictor):
    tuned = (
        "@triton.autotune(configs=[triton.Config({'BLOCK': 64})], key=['n'], prune_configs_by={'early_config_prune': fit})\n@triton.jit\n"
    )
    text = KERNEL.replace("@triton.jit\ndef fill", f"def fit(configs, values):\n    return configs[:2]\n\n\n{tuned}def fill")
    head = text.replace("{'BLOCK': 64})]", "{'BLOCK': 64}), triton.Config({'BLOCK': 128})]")
    said = "A function prunes the list before it is tuned over, so that some of these may be left out."
    (subject,) = compared_files(repository, predictor, {"k.py": text}, {"k.py": head}).subjects
    assert subject.configurations_added and said in subject.notes
    (subject,) = compared_files(repository, predictor, {"k.py": text}, {"k.py": text.replace("x_ptr + tl", "x_ptr + 1 + tl", 1)}).subjects
    assert said not in subject.notes


def test_configurations_that_cannot_be_read_and_changed_are_asked_for_by_no_value(repository, predictor):
    """A line in another file is named with that."""
    text = """import triton
import triton.language as tl
from helpers import listed

@triton.autotune(configs=[triton.Config({"BLOCK": n}) for n in listed(8)], key=["n"])
@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 1, mask=offsets < n)


def run(x, n):
    fill[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, n)
"""
    helpers = "def listed(n):\n    return [open('list').read(n)]\n"
    found = compared_files(
        repository,
        predictor,
        {"k.py": text, "helpers.py": helpers},
        {"k.py": text.replace("listed(8)", "listed(9)"), "helpers.py": helpers},
        compiling=True,
    )
    (subject,) = found.subjects
    assert any(note.startswith("the configurations: helpers.py: ") for note in subject.notes) and not subject.hint
    assert all((row.verdict, row.reason) == ("cannot-tell", "because its configurations cannot be read") for row in subject.static)


def test_options_that_are_handed_in_a_dictionary_that_is_not_read_are_compared_with_none(repository):
    """As in aiter d813de0c23: the head reads from a file what the base had in a dictionary; four warps are none of either's."""
    kernel = KERNEL[KERNEL.index("@triton.jit") :]
    launch = "{}\n    fill[(n,)](x, 64, n, **{})\n"
    old = kernel + "def run(x, n):\n    " + launch.format('options = {"BLOCK": 64, "num_warps": 8}', "options")
    new = kernel + "def run(x, n):\n    " + launch.format("config = load()", "config")
    for head in (new, new.replace("config = load()", 'config = load()["fill"]')):
        _, subject = one(repository, old, head)
        (row,) = subject.static
        assert row.verdict == "cannot-tell" and "num_warps" in row.reason and "do not follow from the file" in row.reason
        assert not [item for item in subject.resources if item.base is not None or item.head is not None]
    _, subject = one(repository, old, new.replace("load()", '{"BLOCK": 64, "num_warps": 4}'))
    assert any("num_warps 8 → 4" in item.changed for item in subject.resources)
    for kind, told in (("xpu", True), ("cuda", False)):  # as Liger-Kernel does; no GPU of ours is an xpu
        grown = f'"num_warps": 8}}\n    if x.device.type == "{kind}":\n        grow(options)'
        _, subject = one(repository, *(old.replace('"num_warps": 8}', text) for text in (grown, grown.replace("8}", "4}"))))
        assert any("num_warps 8 → 4" in item.changed for item in subject.resources) == told


def test_a_launch_that_moved_to_a_function_that_is_handed_its_values_lost_none(repository):
    """As in generative-recommenders 0494285f: two functions call one that launches."""
    launch = "    fill[({m},)](x, 64, {n}, BLOCK=BLOCK)\n"
    old = (
        KERNEL
        + "def run(x, n, BLOCK):\n"
        + launch.format(m="n", n="n")
        + "\n\ndef back(ctx, x, BLOCK):\n"
        + launch.format(m="ctx.n", n="ctx.n")
    )
    head = KERNEL + "def made(x, m, BLOCK):\n" + launch.format(m="m", n="m")
    head += "\n\ndef run(x, n, BLOCK):\n    made(x, n, BLOCK)\n\n\ndef back(ctx, x, BLOCK):\n    made(x, ctx.n, BLOCK)\n"
    sides = [versions(parse_source(item, "k.py"), {})["fill"] for item in (old, head)]
    (changed,) = changed_launches(*sides)
    assert changed.words == "it is made by made now, which is handed BLOCK, the grid and n" and {"BLOCK", "grid"} <= changed.names


def test_an_argument_that_one_side_does_not_pass_is_named():
    """As in flash-linear-attention 866dbba3: the base passes by another name what the kernel needs, and fails."""
    text = KERNEL + "def run(x, n, m):\n    fill[(n,)](x, 64, n=n, BLOCK=64)\n"
    sides = [versions(parse_source(item, "k.py"), {})["fill"] for item in (text.replace("n=n", "m=n"), text)]
    (changed,) = changed_launches(*sides)
    assert changed.words == "m=n → no m, and no n → n=n"


def test_a_block_that_conditions_decide_now_is_worked_out_otherwise():
    """As in aiter 96c1a199: by place in the base; and one that has the same value in all arms is not."""
    text = KERNEL + "def run(x, n):\n    BLOCK = 64\n    num_warps = 4\n    fill[(n,)](x, 64, n, BLOCK, num_warps=num_warps)\n"
    arms = "    if n > 8:\n        BLOCK = 32\n        num_warps = 4\n    else:\n        BLOCK = 64\n        num_warps = 4\n"
    head = text.replace("    BLOCK = 64\n    num_warps = 4\n", arms).replace("x, 64, n,", "x, n, n,")
    sides = [versions(parse_source(item, "k.py"), {})["fill"] for item in (text, head)]
    (changed,) = changed_launches(*sides)
    assert "BLOCK" in changed.words and "num_warps" not in changed.words


def test_a_launch_by_a_name_that_is_not_followed_is_of_what_it_is_given():
    """As in aiter 7e0d1162: of two kernels one is looked up."""
    old = KERNEL + "def run(x, n, small):\n    fill[(n,)](x, 64, n, BLOCK=64)\n"
    chosen = "    if small:\n        kernel = KERNELS[n]\n    else:\n        kernel = fill\n    kernel["
    assert launched(old, old.replace("    fill[", chosen)) == "no longer launches fill and now launches fill or KERNELS[n]"


def test_a_launch_by_a_name_of_either_of_two_kernels_is_of_either():
    """As in flash-linear-attention 720238d3."""
    old = KERNEL + "def run(x, n, small):\n    fill[(n,)](x, 64, n, BLOCK=64)\n"
    assert launched(old, old.replace("    fill[", "    kernel = other if small else fill\n    kernel[")) == (
        "no longer launches fill and now launches other or fill"
    )
