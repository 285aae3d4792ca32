"""Kernels of which only the launch changed: its options, constants and grid are as much of its speed as the body."""

from __future__ import annotations

import re

import pytest

from advisor.comparison.kernels import kernel_digest
from advisor.comparison.kernels.beside import calls_changed, in_its_place
from advisor.comparison.kernels.changed_launches import _apart, changed_by_hand, changed_launches
from advisor.comparison.kernels.kernel_version import own_launches, versions
from advisor.comparison.kernels.launch_digest import launch_digest
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import parse_source

from .repository import compared_files

HELPERS = """
import triton
import triton.language as tl

def settings(n):
    return triton.next_power_of_2(n), 8 if n > 4096 else 4

@triton.jit
def doubled(x):
    return x * 2
"""
KERNEL = """
import torch
import triton
import triton.language as tl
from .helpers import doubled, settings

@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr = 1024):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, doubled(tl.load(x_ptr + offsets, mask=offsets < n)), mask=offsets < n)

SIZE = 256


def run(x):
    n = x.numel()
    block, warps = settings(n)
    if n < 64:
        warps = 1
    scale[(triton.cdiv(n, block),)](x, n, block, num_warps=warps)
    return torch.relu(x)
"""


def calls_beside(old, new) -> str:
    """What changed of the calls of the function that launches the kernel of two versions."""
    return calls_changed(*((version.source.module_names, version.source.plain_functions["run"]) for version in (old, new)))


BASE = {"ops/__init__.py": "", "ops/helpers.py": HELPERS, "ops/scale.py": KERNEL}


def test_a_size_that_is_taken_before_its_tensor_is_made_anew_is_another(repository, predictor):
    text = KERNEL.replace("n, block, num_warps", "n, BLOCK=x.shape[0], num_warps").replace(
        "    if n < 64", "    x = torch.cat([x, x])\n    if n < 64"
    )
    before = text.replace("    x = torch.cat", "    size = x.shape[0]\n    x = torch.cat").replace("BLOCK=x.shape[0]", "BLOCK=size")
    (subject,) = compared_files(repository, predictor, {**BASE, "ops/scale.py": text}, {**BASE, "ops/scale.py": before}).subjects
    assert "BLOCK" in subject.notes[0]


def test_a_block_that_has_a_name_of_a_pair_first_is_no_other_block(repository, predictor):
    text = KERNEL.replace("n, block, num_warps", "n, BLOCK=triton.next_power_of_2(n), num_warps")
    pair = text.replace("    if n < 64", "    size, two = triton.next_power_of_2(n), 2\n    if n < 64").replace(
        "BLOCK=triton.next_power_of_2(n)", "BLOCK=size"
    )
    assert pair.count("size") == 2
    found = compared_files(repository, predictor, {**BASE, "ops/scale.py": text}, {**BASE, "ops/scale.py": pair})
    assert found.subjects == ()


def test_torch_in_another_arm_than_the_launch_is_not_beside_it():
    text = KERNEL.replace("        warps = 1\n", "        warps = torch.zeros(1)\n    if n < 8:\n        return torch.ones(1)\n")
    old, new = (versions(parse_source(item, "k.py"), {})["scale"] for item in (KERNEL, text))
    said = "now calls torch.zeros(1) (if n < 64); torch.ones(1) (if n < 8) and now returns before it launches, if n < 8"
    assert calls_beside(old, new) == said
    text = KERNEL.replace("    n = x.numel()\n", "    n = x.numel()\n    found = torch.zeros(n) if n > 9 else None\n    torch.ones(n)\n")
    new = versions(parse_source(text, "k.py"), {})["scale"]
    assert calls_beside(old, new) == "now calls torch.zeros(n) (if n > 9); torch.ones(n)"


def test_a_return_before_the_launch_is_seen_within_what_holds_both():
    within = KERNEL.replace("    scale[", "    if n > 3:\n        if n < 8:\n            return x\n        scale[")
    condition = " and ".join(f"n > {number}" for number in range(2_000, 2_030))
    long, longer = (within.replace("n < 8", text) for text in (condition, f"{condition} and n > 7"))
    plain = within.replace("        if n < 8:\n            return x\n", "")
    sides = [versions(parse_source(item, "k.py"), {})["scale"] for item in (plain, within, long, longer)]
    assert calls_beside(sides[0], sides[1]) == "now returns before it launches, if n < 8"
    assert "returns before it launches, if n > 2000" in calls_beside(sides[1], sides[2])


def test_a_call_that_one_of_several_comes_to_is_no_call_of_all():
    one, two = "    a = torch.zeros(n)\n", "    b = torch.zeros(n)\n"
    texts = (one + two, one + two.replace("torch.zeros(n)", "torch.zeros(n) if n > 9 else None"), one + two + one.replace("a", "c", 1))
    old, seldom, more = (
        versions(parse_source(KERNEL.replace("    n = x.numel()\n", f"    n = x.numel()\n{text}"), "k.py"), {})["scale"] for text in texts
    )
    assert calls_beside(old, seldom) == "calls torch.zeros(n) if n > 9, where it was always"
    assert calls_beside(old, more) == "calls more often torch.zeros(n)"


def test_a_function_of_the_file_that_calls_torch_is_named():
    blocked = "\n\ndef blocked(x):\n    return torch.zeros(x.shape)\n\n\ndef sized(x):\n    return x.shape[0]\n"
    text = KERNEL.replace("    n = x.numel()\n", "    n = x.numel()\n    sized(blocked(x))\n")
    old, new = (versions(parse_source(item + blocked, "k.py"), {})["scale"] for item in (KERNEL, text))
    assert calls_beside(old, new) == "now calls sized(blocked(x))"
    assert calls_beside(new, old) == "no longer calls sized(blocked(x))"


def test_a_function_of_the_file_that_calls_torch_no_longer_is_called_still():
    helper = "\n\ndef table(x):\n    return torch.tensor([x]).cuda()\n"
    text = KERNEL.replace("    n = x.numel()\n", "    n = x.numel()\n    table(x)\n")
    loud, quiet = (text + item for item in (helper, helper.replace("torch.tensor([x]).cuda()", "(x, x)")))
    old, new, bare = (versions(parse_source(item, "k.py"), {})["scale"] for item in (loud, quiet, KERNEL + helper))
    assert calls_beside(old, new) == calls_beside(new, old) == ""
    assert calls_beside(old, bare) == "no longer calls table(x)"


def test_a_tensor_that_may_have_one_of_two_types_is_another_tensor():
    one = "    y = torch.empty(n, dtype=x.dtype)\n"
    either = one.replace("x.dtype", "x.dtype if n > 9 else torch.float")
    old, new = (
        versions(parse_source(KERNEL.replace("    n = x.numel()\n", f"    n = x.numel()\n{item}"), "k.py"), {})["scale"]
        for item in (one, either)
    )
    said = "dtype=x.dtype if n > 9 else torch.float where it was dtype=x.dtype"
    assert calls_beside(old, new) == f"calls torch.empty with {said}"


def test_what_waits_for_the_gpu_is_named():
    old, new = (versions(parse_source(item, "k.py"), {})["scale"] for item in (KERNEL, KERNEL.replace("x.numel()", "int(x.sum().item())")))
    assert calls_beside(old, new) == "now calls x.sum().item()"
    host = KERNEL.replace("import torch\n", "import math\nimport torch\n").replace("x.numel()", "int(math.sqrt(x.numel())) // re.sub(2)")
    host = host.replace("def run(x):\n", "def run(x):\n    import re\n")
    assert calls_beside(old, versions(parse_source(host, "k.py"), {})["scale"]) == ""  # Python's own


def test_calls_are_told_by_their_conditions_and_counted_once():
    arms = "    if n > 7:\n        y = torch.zeros_like(x).sum()\n    elif n > 3:\n        y = torch.zeros_like(x).sum() / n\n"
    one = "    if n > 3:\n        y = torch.zeros_like(x).sum()\n"
    twice = one + one.replace("y =", "z =")
    old, new, more = (
        versions(parse_source(KERNEL.replace("    n = x.numel()\n", f"    n = x.numel()\n{item}"), "k.py"), {})["scale"]
        for item in (arms, one, twice)
    )
    assert calls_beside(old, new) == "no longer calls torch.zeros_like(x).sum() (if n > 7)"
    assert calls_beside(new, more) == "calls more often torch.zeros_like(x).sum() (if n > 3)"


LONG = f"first({', '.join(map(str, range(40)))}"
"""Begins a call that is cut off where it is shown."""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("merge(x, n)", "merge(x, n, out=z)", "calls merge with out=z"),
        ("merge(x, n, out=z)", "merge(x, n)", "calls merge no longer with out=z"),
        ("merge(x, n, z)", "merge(x, n, out=z)", "calls merge in another order"),
        ("merge(x, 8)", "merge(x, n)", "calls merge with n where it was 8"),
        ("merge(x)\n    merge(n)", "merge(n)", "no longer calls merge(x)"),
        ("y = merge(x)\n    merge(y)", "z = merge(x)\n    merge(z)", ""),  # a name of its own
        ("len(x) + math.ceil(n) + x.stride(0)", "x.size(1)", ""),  # launch nothing
        ("merge(x, a=1, b=2)", "merge(x, b=2, a=1)", ""),
        ("merge(x, 8, n)", "merge(x, 4, n, z)", "calls merge with 4 where it was 8 and also with z"),
        (
            "merge(x, 8)",
            "if n:\n        merge(x, n)",
            "calls merge with n where it was 8 if n, where it was always",
        ),
        ("merge(x)", "first(merge(x))", "now calls first(merge(x))"),  # still called
        ("Op.apply(x, 8)", "Op.apply(x, n)", "calls Op.apply with n where it was 8"),
        ("merge(x, n, False, 4, False)", "merge(x, n, 4, False)", "calls merge with one less False"),
        ("merge(x, False)", "merge(x, False, False)", "calls merge with one more False"),
        (f"merge({LONG}, x, 1))", f"merge({LONG}, x, 2))", "calls merge with …2) where it was …1)"),
        ("torch.cuda.synchronize()", "torch.is_tensor(x)", "no longer calls torch.cuda.synchronize() and now calls torch.is_tensor(x)"),
        ("self.merge(x)", "self.other(x)", "no longer calls self.merge(x) and now calls self.other(x)"),
        ("x.half()", "self.scale.half()", "no longer calls x.half() and now calls self.scale.half()"),
    ],
)
def test_calls_are_compared_as_they_are_written(old, new, said):
    texts = [
        KERNEL.replace("import torch\n", "import math\nimport torch\nclass Op:\n    pass\n").replace(
            "    n = x.numel()\n", f"    n = x.numel()\n    {item}\n"
        )
        for item in (old, new)
    ]
    sides = [versions(parse_source(text, "k.py"), {})["scale"] for text in texts]
    assert calls_beside(*sides) == said


def test_a_kernel_by_another_name_is_launched_as_before():
    """As in flash-linear-attention 465bc33079; not one of the same code beside it."""
    head = KERNEL.replace("scale", "scaled")
    old, new = (parse_source(text, "k.py") for text in (KERNEL, head))
    assert calls_changed(*((file.module_names, file.plain_functions["run"]) for file in (old, new))) == ""
    kernel = KERNEL[KERNEL.index("@triton.jit") : KERNEL.index("def run")]
    both = parse_source(head + "\n\n" + kernel, "k.py")
    beside = calls_changed(*((file.module_names, file.plain_functions["run"]) for file in (old, both)))
    assert beside == "no longer launches scale and now launches scaled"


def test_what_went_is_told_by_the_names_that_it_had():
    """As in FBGEMM 72046859: `is_balanced` is called `is_padded`."""
    text = KERNEL.replace("def run(x):\n", "def run(x, keep=True):\n    if keep:\n        merge(x, keep=keep)\n    torch.sin(keep)\n")
    head = text.replace("keep", "own").replace("torch.sin(own)", "torch.cos(own)").replace("merge(x, own=own)", "merge(x, out=own)")
    old, new = (versions(parse_source(item, "k.py"), {})["scale"] for item in (text, head))
    said = "no longer calls torch.sin(keep) and now calls torch.cos(own) and calls merge with out=own and no longer with keep=keep"
    assert calls_beside(old, new) == said
    assert calls_beside(old, versions(parse_source(text.replace("keep", "own"), "k.py"), {})["scale"]) == (
        "calls merge with own=own and no longer with keep=keep"  # an argument of another function's
    )


def test_a_decorator_that_came_is_named():
    old, new = (versions(parse_source(KERNEL.replace("def run", f"{item}def run"), "k.py"), {})["scale"] for item in ("", "@contiguous\n"))
    assert calls_beside(old, new) == "is now decorated with contiguous"
    assert calls_beside(new, old) == "is no longer decorated with contiguous"


def test_of_a_function_that_launches_two_kernels_one_note_says_what_is_beside(repository, predictor):
    two = KERNEL.replace("def run(x):", "@triton.jit\ndef other(y_ptr):\n    tl.store(y_ptr, 1)\n\n\ndef run(x, once=False):")
    two = two.replace("    n = x.numel()\n", "    n = x.numel()\n    y = torch.empty(n, dtype=x.dtype)\n")
    two = two.replace("    return torch.relu(x)", "    if once:\n        other[(n,)](y)\n        return y\n    return y.sum(0)")
    head = (
        two.replace("=x.dtype", "=torch.float32").replace("sum(0)", "sum(0).to(x.dtype)").replace("doubled(tl.load", "1 + doubled(tl.load")
    )
    found = compared(repository, predictor, {"ops/scale.py": head}, {**BASE, "ops/scale.py": two})
    said = "now calls y.sum(0).to(x.dtype) and calls torch.empty with "
    said += "dtype=torch.float32 where it was dtype=x.dtype"
    assert [subject.title for subject in found.subjects] == ["ops/scale.py::scale", "ops/scale.py::other"]
    assert found.around == (f"ops/scale.py::run: {said}",)


def test_a_kernel_of_the_other_arm_is_not_launched_in_its_place():
    """Of `if cache is None`."""
    other = "@triton.jit\ndef OTHER(x_ptr):\n    tl.store(x_ptr, 1)\n\n\ndef run(x, cache=None):"
    text = KERNEL.replace("def run(x):", other).replace("    scale[", "    if cache is None:\n        scale[")
    text = text.replace("    return torch", "    else:\n        OTHER[(n,)](x)\n    return torch")
    head = text.replace("OTHER(x_ptr)", "first(x_ptr)").replace("OTHER[", "fresh[")
    head = head.replace("def first", "def fresh(x_ptr):\n    tl.store(x_ptr, 2)\n\n\n@triton.jit\ndef first")
    old, new = (versions(parse_source(item, "k.py"), {})["scale"] for item in (text, head))
    assert in_its_place(old, new, load_gpu("H100"), {}, {}) == ""
    plain = versions(parse_source(text.replace("    if cache is None:\n    ", "").replace("    else:\n    ", ""), "k.py"), {})["scale"]
    assert in_its_place(plain, new, load_gpu("H100"), {}, {})
    renamed = head.replace("def run(", "def run_common(")
    newer = versions(parse_source(renamed, "k.py"), {})["scale"]
    assert in_its_place(plain, newer, load_gpu("H100"), {}, {}) == "run_common launches fresh in its place"


def test_one_of_two_kernels_that_a_name_was_given_is_launched_in_no_place():
    """As in flash-linear-attention 156d7712: the same choice, written as `if` and `else`."""
    other = "@triton.jit\ndef other(x_ptr):\n    tl.store(x_ptr, 1)\n\n\ndef run(x):"
    text = KERNEL.replace("def run(x):", other)
    chosen = text.replace("    scale[", "    kernel = scale if n == 64 else other\n    kernel[")
    arms = text.replace("    scale[", "    if n == 64:\n        scale[").replace(
        "    return torch", "    else:\n        other[(n,)](x)\n    return torch"
    )
    old, new, plain = (versions(parse_source(item, "k.py"), {})["scale"] for item in (chosen, arms, text))
    assert in_its_place(old, new, load_gpu("H100"), {}, {}) == ""
    assert in_its_place(plain, new, load_gpu("H100"), {}, {}).startswith("run launches other in its place where")


def compared(repository, predictor, changed, base=BASE, **options):
    return compared_files(repository, predictor, base, changed, **options)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("num_warps=warps", "num_warps=2", "num_warps=warps → num_warps=2"),
        (", num_warps=warps", "", "num_warps=warps → no num_warps"),
        ("x, n, block,", "x, n, 256,", "BLOCK=settings(n)[0] → BLOCK=256"),
        ("    if n < 64:\n        warps = 1\n", "    warps = 2\n", "the code of run, on which num_warps depends"),
        ("block, num_warps=warps", "SIZE, num_warps=warps", "BLOCK=settings(n)[0] → BLOCK=256"),
        ("    if n < 64:\n        warps = 1\n", "    most = 2\n    warps_now = most\n", "the code of run, on which num_warps depends"),
        ("triton.cdiv(n, block)", "n", "grid=(triton.cdiv(n, block),) → grid=(n,)"),
        ("warps = 1", "warps = 2", "the code of run, on which num_warps depends"),
        ("if n < 64", "if n < 128", "the code of run, on which num_warps depends"),
        ("    if n < 64:\n        warps = 1\n", "", "the code of run, on which num_warps depends"),
        (
            "return torch",
            "scale[(1,)](x, n, 64)\n    return torch",
            "also BLOCK=64, and also grid=(1,)",
        ),
    ],
)
def test_another_launch_is_a_change_and_is_named(repository, predictor, old, new, said):
    assert KERNEL.count(old) == 1
    found = compared(repository, predictor, {"ops/scale.py": KERNEL.replace(old, new)})
    (subject,) = found.subjects
    code = f"is written as before, and {said}, changed: whether other values come of it is not judged"
    changed = code if said.startswith("the code") else f"changed: {said}"
    assert f"The kernel is the same; its launch in its file {changed}." in subject.notes


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def run(x):", "def run(x):\n    # in place"),
        ("return torch", "x += 1\n    return torch"),
        ("    return torch.relu(x)\n", f"    return torch.relu(x)\n\n\ndef again(x):{KERNEL.partition('def run(x):')[2]}"),
        ("    return torch.relu(x)\n", f"    return torch.relu(x)\n\n\ndef test(x):{KERNEL.partition('def run(x):')[2]}".replace("4", "9")),
    ],
)
def test_what_has_no_part_in_the_launch_is_none(repository, predictor, old, new):
    assert not compared(repository, predictor, {"ops/scale.py": KERNEL.replace(old, new)}).subjects


def test_arguments_of_a_launcher_in_another_order_are_no_change(repository, predictor):
    launcher = KERNEL.replace("    block, warps = settings(n)\n", "").replace("def run(x)", "def run(x, block=64, warps=4)")
    again = launcher.replace("block=64, warps=4", "warps=4, block=64")
    assert not compared(repository, predictor, {"ops/scale.py": again}, {**BASE, "ops/scale.py": launcher}).subjects


def test_docstrings_of_functions_within_the_launcher_are_no_change(repository, predictor):
    inner = KERNEL.replace("    n = x.numel()\n", "    def size(y):\n        return y.numel()\n\n    n = size(x)\n")
    told = inner.replace("        return y", '        """The size."""\n        return y')
    assert not compared(repository, predictor, {"ops/scale.py": told}, {**BASE, "ops/scale.py": inner}).subjects


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("torch.relu(x)", "torch.sigmoid(x)", "no longer calls torch.relu(x) and now calls torch.sigmoid(x)"),
        (
            "    n = x.numel()\n",
            "    if not x.is_contiguous():\n        x = x.contiguous()\n    n = x.numel()\n",
            "now calls x.contiguous() (if not x.is_contiguous())",
        ),
    ],
)
def test_calls_of_torch_beside_the_launch_are_no_change_of_the_kernel(repository, predictor, old, new, said):
    found = compared(repository, predictor, {"ops/scale.py": KERNEL.replace(old, new)})
    assert not found.subjects and found.around == (f"ops/scale.py::run: {said}",)


PLAIN = """
import triton
import triton.language as tl

@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 1.0, mask=offsets < n)


def run(x, n):
    parts = 4
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]) * parts,)
    fill[grid](x, n, BLOCK=128)
"""


@pytest.mark.parametrize("constant", [", BLOCK=128", ""])
@pytest.mark.parametrize("named", [True, False])
def test_what_is_behind_the_grid_counts(repository, predictor, constant, named):
    text = PLAIN.replace(", BLOCK=128", constant)
    if not named:
        text = text.replace("fill[grid]", "fill[(parts, 1)]")
    (subject,) = compared(repository, predictor, {"fill.py": text.replace("parts = 4", "parts = 8")}, {"fill.py": text}).subjects
    said = "is written as before, and the code of run, on which the grid depends, changed: whether other values come of it is not judged."
    assert f"The kernel is the same; its launch in its file {said}" in subject.notes


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"warps": "num"}, None),
        ({"block": "size"}, None),
        ({"block": "size", "warps": "num"}, None),
        ({"block": "warps_", "warps": "block"}, None),  # the one as the other was called
        ({"numel": "size", "warps": "num"}, "num_warps=warps → num_warps=num"),
    ],
)
def test_what_the_function_calls_its_own_variables_is_no_change(repository, predictor, old, new):
    """But what they are worked out from is."""
    files = dict(BASE)
    for before, after in old.items():
        files = {path: re.sub(rf"\b{before}\b", after, text) for path, text in files.items()}
    found = compared(repository, predictor, files)
    assert not found.subjects if new is None else new in found.subjects[0].notes[0]


GUARDED = """
import triton
import triton.language as tl

CONDITION

    WARPS, OTHER_WARPS = 4, 4

    @triton.jit
    def fill(x_ptr, BLOCK: tl.constexpr):
        tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)

    @triton.jit
    def clear(x_ptr, BLOCK: tl.constexpr):
        tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)

    def run(x):
        \"\"\"Fills.\"\"\"
        fill[(1,)](x, BLOCK=128, num_warps=WARPS)
        clear[(1,)](x, BLOCK=128, num_warps=OTHER)

    OTHER = 4
"""


@pytest.mark.parametrize(("old", "new", "changed"), [("Fills.", "Fills x.", []), ("    OTHER = 4", "    OTHER = 8", ["clear"])])
def test_what_stands_in_one_branch_is_told_apart(repository, predictor, old, new, changed):
    """Of a file that is one `if has_triton():` no kernel changes with another."""
    text = GUARDED.replace("CONDITION", "if has_triton():")
    found = compared(repository, predictor, {"k.py": text.replace(old, new)}, {"k.py": text})
    assert [subject.title for subject in found.subjects] == [f"k.py::{name}" for name in changed]


def test_a_definition_that_is_not_taken_is_said_not_to_be_compared(repository, predictor):
    text = GUARDED.replace("CONDITION", "if triton.__version__ >= '2.1.0':")
    text += '\nelif triton.__version__ == "2.0.0":\n\n    @triton.jit\n    def fill(x_ptr):\n        tl.store(x_ptr, 1.0)\n'
    (subject,) = compared(repository, predictor, {"k.py": text.replace("(x_ptr, 1.0)", "(x_ptr, 2.0)")}, {"k.py": text}).subjects
    assert (subject.kind, subject.path) == ("file", "k.py")
    assert subject.notes == ("fill changed under a condition that does not hold for this Triton and these GPUs: not compared.",)


@pytest.mark.parametrize(("gpu", "titles"), [("H100", ["k.py"]), ("MI300X", ["k.py::fill"])])
def test_a_list_of_another_vendors_branch_changes_no_kernel(repository, predictor, gpu, titles):
    text = """import torch
import triton
import triton.language as tl

if torch.version.hip is not None:
    WARPS = [4, 8]
else:
    WARPS = [4]

@triton.autotune(configs=[triton.Config({}, num_warps=w) for w in WARPS], key=[])
@triton.jit
def fill(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)
"""
    found = compared(repository, predictor, {"k.py": text}, {"k.py": text.replace("[4, 8]", "[2]")}, gpus=(gpu,)).subjects
    assert [subject.title for subject in found] == titles
    said = "fill changed under a condition that does not hold for this Triton and these GPUs: not compared."
    assert (said in found[0].notes) is (gpu == "H100")


BINDINGS = {
    "match": "    match n:\n        case [block, warps]:\n            pass\n",
    "with": "    with settings(n) as block:\n        warps = block.warps\n",
    "for": "    for block in settings(n):\n        warps = block\n",
    "function": "    def block(meta):\n        return meta\n    warps = block(n)\n",
}


@pytest.mark.parametrize(
    ("kind", "old", "new", "is_change"),
    [
        ("match", "[block, warps]", "[warps, block]", True),
        ("with", "settings", "other", True),
        ("for", "settings(n)", "settings(n, 2)", True),
        ("function", "return meta", "return meta + 1", True),
        ("with", "block", "got", False),
        ("for", "block", "each", False),
        ("function", "block", "inner", False),
        ("function", "meta", "m", False),
    ],
)
def test_however_a_variable_is_bound(kind, old, new, is_change):
    text = KERNEL.replace("    block, warps = settings(n)\n", BINDINGS[kind])
    body, _, host = text.partition("\n\ndef run")
    assert old in host
    other = re.sub(rf"\b{old}\b" if old.isidentifier() else re.escape(old), new, host)
    sources = [parse_source(f"{body}\n\ndef run{each}", "scale.py") for each in (host, other)]
    changed = changed_launches(*(versions(source, {})["scale"] for source in sources))
    assert bool(changed) is is_change


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("ops/scale.py", "def run(x):", "def run(x: torch.Tensor) -> torch.Tensor:"),
        ("ops/scale.py", "    n = x.numel()", "    n: int = x.numel()"),
    ],
)
def test_annotations_of_functions_that_are_no_kernels_change_nothing(repository, predictor, path, old, new):
    assert BASE[path].count(old) == 1
    assert not compared(repository, predictor, {path: BASE[path].replace(old, new)}).subjects


def test_those_of_kernels_do(repository, predictor):
    assert compared(repository, predictor, {"ops/scale.py": KERNEL.replace("n, BLOCK:", "n: tl.constexpr, BLOCK:")}).subjects


def test_of_a_grid_that_is_a_function_it_is_shown_what_it_returns(repository, predictor):
    text = PLAIN.partition("\n\ndef run")[0] + "\n\ndef run(x, n):\n    def grid(meta):\n        return (n, 1)\n    fill[grid](x, n, 64)\n"
    (subject,) = compared(repository, predictor, {"fill.py": text.replace("(n, 1)", "(n, 2)")}, {"fill.py": text}).subjects
    assert subject.notes[0].endswith("changed: grid=(n, 1) → grid=(n, 2).")


@pytest.mark.parametrize("swapped", ["x, n, warps, num_warps=block", "x, n, block, num_warps=block", "x, n, n, num_warps=warps"])
def test_another_variable_is_a_change(repository, predictor, swapped):
    (subject,) = compared(repository, predictor, {"ops/scale.py": KERNEL.replace("x, n, block, num_warps=warps", swapped)}).subjects
    assert "its launch in its file changed: " in subject.notes[0] and "→" in subject.notes[0]


def test_what_several_launches_ask_for_is_read_once(monkeypatch):
    run = "def run(x, n):\n    fill[(parts(n),)](x, n, BLOCK=parts(n))\n    other[(parts(n),)](x, n, BLOCK=parts(n))\n"
    text = PLAIN.partition("def run")[0]
    source = parse_source(f"{text}{text.replace('fill', 'other')}def parts(n):\n    return n + 1\n\n{run}", "fill.py")
    read, undocumented = [], kernel_digest.undocumented
    monkeypatch.setattr(kernel_digest, "undocumented", lambda node: read.append(node.name) or undocumented(node))
    for kernel in ("fill", "other"):
        (launching,) = own_launches(source, kernel)
        assert launch_digest(source.kernel(kernel), launching, {"BLOCK"}).host
    assert read == ["parts"]


def test_another_name_of_the_grid_is_no_change(repository, predictor):
    assert not compared(repository, predictor, {"fill.py": PLAIN.replace("grid", "blocks")}, {"fill.py": PLAIN}).subjects


def test_what_a_file_gives_names_of_its_own_functions_is_no_part_of_them(repository, predictor):
    """`x_ptr` of the kernel and `n` of its launcher are their own, whatever the file calls so when it is run by itself."""
    text = f'{PLAIN}\nif __name__ == "__main__":\n    x_ptr = n = len("some")\n    run(x_ptr, n)\n'
    assert not compared(repository, predictor, {"fill.py": text.replace("some", "other")}, {"fill.py": text}).subjects


def test_a_function_that_reads_a_name_which_it_declares_global_is_no_part_of_it(repository, predictor):
    text = PLAIN.replace("def run", "global SIZE\nSIZE = 128\n\ndef run").replace("BLOCK=128", "BLOCK=SIZE")
    text += "\n\ndef other():\n    global SIZE\n    return SIZE + 1\n"
    assert not compared(repository, predictor, {"fill.py": text.replace("SIZE + 1", "SIZE + 2")}, {"fill.py": text}).subjects


def test_what_else_is_imported_beside_a_constant_is_no_change_of_it(repository, predictor):
    head = "from .other import SIZE, first\n\nSIZE = 128\n"
    text = (head + PLAIN).replace("BLOCK=128", "BLOCK=SIZE")
    assert not compared(repository, predictor, {"fill.py": text.replace("first", "first, second")}, {"fill.py": text}).subjects


def test_a_number_that_becomes_a_constant_of_the_file_is_no_change_of_it():
    text = PLAIN.replace("def run", "SIZE = 128\n\ndef run").replace("BLOCK=128)", "BLOCK=SIZE, num_warps=8)")
    sources = [parse_source(item, "fill.py") for item in (PLAIN, text)]
    (changed,) = changed_launches(*(versions(source, {})["fill"] for source in sources))
    assert changed.words == "no num_warps → num_warps=8"


ARMS = "    if n > 64:\n        block = 256\n    else:\n        block = 128\n"
OF_ARMS = PLAIN.replace("    fill[", f"{ARMS}    fill[").replace("BLOCK=128", "BLOCK=block")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (OF_ARMS, PLAIN, "BLOCK=256 if n > 64 else 128 → BLOCK=128"),
        (PLAIN.replace("BLOCK=128", "**a(n)"), PLAIN.replace("BLOCK=128", "**b(n), **c(n)"), "**a(n) → **b(n), **c(n)"),
    ],
)
def test_changed_launches_says_what_is_passed_whole(old, new, words):
    sources = [parse_source(item, "fill.py") for item in (old, new)]
    (changed,) = changed_launches(*(versions(source, {})["fill"] for source in sources))
    assert changed.words == words


def test_a_kernel_that_is_launched_in_another_file_has_not_changed(repository, predictor):
    head, _, host = KERNEL.partition("\n\ndef run")
    imports = "import torch\nimport triton\nfrom .helpers import settings\nfrom .scale import scale\n\n"
    files = {"ops/scale.py": head, "ops/run.py": f"{imports}def run{host}"}
    assert not compared(repository, predictor, files).subjects


def test_both_launches_are_compiled(repository, predictor):
    pytest.importorskip("triton")
    text = KERNEL.replace("num_warps=warps", "num_warps=4")
    found = compared(
        repository, predictor, {"ops/scale.py": text.replace("num_warps=4", "num_warps=16")}, {**BASE, "ops/scale.py": text}, compiling=True
    )
    (row,) = found.subjects[0].resources
    assert row.label == "num_warps=4 → 16, BLOCK=4096 (typical)", "the block that the launcher computes for a typical size"
    assert row.base.resident_ctas_per_sm == 4 * row.head.resident_ctas_per_sm == 16


def test_a_key_that_changes_is_named(repository, predictor):
    tuned = KERNEL.replace("@triton.jit", '@triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=["n", "x_ptr"])\n@triton.jit')
    fewer = tuned.replace('key=["n", "x_ptr"]', 'key=["n"]')
    (subject,) = compared(repository, predictor, {"ops/scale.py": fewer}, {"ops/scale.py": tuned}).subjects
    (said,) = (note for note in subject.notes if note.startswith("The key of its autotuning changed: n, x_ptr → n."))
    assert "Calls that differ in x_ptr alone run with one configuration now" in said
    by_rule = [text.replace("@triton.jit", '@triton.heuristics({"x_ptr": lambda args: args["n"]})\n@triton.jit') for text in (tuned, fewer)]
    (subject,) = compared(repository, predictor, {"ops/scale.py": by_rule[1]}, {"ops/scale.py": by_rule[0]}).subjects
    assert not any("Calls that differ" in note for note in subject.notes), "a rule gives it, by what the key has still"


def test_configurations_that_are_written_otherwise_are_the_same(repository, predictor):
    """As in torchao b49178c6: a list that moved under a condition that holds."""
    listed = "configs = [triton.Config({'BLOCK': 64})]\n\n\n"
    text = KERNEL.replace("@triton.jit", f'{listed}@triton.autotune(configs=configs, key=["n"])\n@triton.jit')
    under = text.replace(listed, "if True:\n    configs = [triton.Config({'BLOCK': 64})]\n\n\n").replace("tl.load(", "1 + tl.load(")
    (subject,) = compared(repository, predictor, {"ops/scale.py": under}, {"ops/scale.py": text}).subjects
    assert not any("uses changed" in note for note in subject.notes)


def test_what_prunes_its_configurations_is_named(repository, predictor):
    tuned = KERNEL.replace("@triton.jit", '@triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=["n"])\n@triton.jit')
    prune = "def prune(configs, named, **more):\n    return [each for each in configs if each.num_stages == 1]\n\n\n@triton.autotune"
    pruned = tuned.replace("@triton.autotune", prune).replace('key=["n"]', 'key=["n"], prune_configs_by={"early_config_prune": prune}')
    (subject,) = compared(repository, predictor, {"ops/scale.py": pruned}, {"ops/scale.py": tuned}).subjects
    assert "What prunes its configurations changed: nothing → {'early_config_prune': prune}." in subject.notes
    assert compared(repository, predictor, {"ops/scale.py": pruned.replace("== 1", "<= 2")}, {"ops/scale.py": pruned}).subjects


def test_a_list_that_its_pruning_makes_anew_is_not_read(repository, predictor):
    tuned = KERNEL.replace("@triton.jit", '@triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=["n"])\n@triton.jit')
    prune = "def prune(configs, named, **more):\n    return [triton.Config({'BLOCK': 128})]\n\n\n@triton.autotune"
    pruned = tuned.replace("@triton.autotune", prune).replace('key=["n"]', 'key=["n"], prune_configs_by={"early_config_prune": prune}')
    (subject,) = compared(repository, predictor, {"ops/scale.py": pruned}, {"ops/scale.py": tuned}).subjects
    assert "head: the configurations: prune, which prunes them, makes others" in subject.notes
    assert not (subject.configurations_added or subject.configurations_removed)


def test_an_argument_that_is_none_now_is_named(repository, predictor):
    text = (
        KERNEL.replace("def scale(x_ptr,", "def scale(x_ptr, work,")
        .replace("](x, n,", "](x, work=x, n=n, BLOCK=")
        .replace("BLOCK= block", "BLOCK=block")
    )
    (subject,) = compared(repository, predictor, {"ops/scale.py": text.replace("work=x", "work=None")}, {"ops/scale.py": text}).subjects
    assert subject.notes[0] == "The kernel is the same; its launch in its file changed: work=x → work=None."


def test_constants_that_a_launch_does_not_name_are_named():
    """Launched with `**options`, of which it is not known what they hold."""
    text = KERNEL.replace("x, n, block, num_warps=warps", "x, n, **options(n)")
    more = text.replace("BLOCK: tl.constexpr = 1024", "BLOCK: tl.constexpr = 1024, SPLIT: tl.constexpr = 1")
    old, new = (versions(parse_source(item, "k.py"), {})["scale"] for item in (text, more))
    assert changed_by_hand(old, new) == ["The kernel takes SPLIT."]


@pytest.mark.parametrize(
    ("imported", "call", "named"),
    [
        ("import torch.nn.functional as F", "F.pad(x)", "torch.nn.functional.pad(x)"),
        ("from torch.nn.functional import pad", "pad(x)", "torch.nn.functional.pad(x)"),
        ("from torch import stack", "stack(x)", "torch.stack(x)"),
        ("from torch import nn", "nn.Parameter(x)", "torch.nn.Parameter(x)"),
        ("from math import ceil", "ceil(x)", ""),
        ("import torch.nn.functional", "torch.cuda.current_device()", "torch.cuda.current_device()"),
        ("import torch.nn.functional", "torch.nn.functional.pad(x)", "torch.nn.functional.pad(x)"),
        ("from torch.nn import Parameter", "Parameter(x)", "torch.nn.Parameter(x)"),
        ("from ctypes import c_int32", "c_int32(x)", ""),
        ("import ctypes\nnumber = ctypes.c_int32", "number(x)", ""),
        ("import triton", "torch._grouped_mm(x)", "torch._grouped_mm(x)"),
    ],
)
def test_functions_of_torch_are_known_by_what_the_file_imports(imported, call, named):
    text = KERNEL.replace("import torch\n", f"import torch\n{imported}\n").replace(
        "    return torch.relu", f"    {call}\n    return torch.relu"
    )
    old, new = (versions(parse_source(item, "k.py"), {})["scale"] for item in (KERNEL, text))
    assert calls_beside(old, new) == (f"now calls {named}" if named else "")


def test_a_return_before_the_launch_is_named():
    text = KERNEL.replace("    n = x.numel()\n", "    n = x.numel()\n    if n < 8:\n        return x\n")
    old, new = (versions(parse_source(item, "k.py"), {})["scale"] for item in (KERNEL, text))
    assert calls_beside(old, new) == "now returns before it launches, if n < 8"
    assert calls_beside(new, old) == "no longer returns before it launches, if n < 8"
    body = text[text.index("    n = x") :]
    within = text.replace(body, "    with torch.cuda.device(0):\n" + "".join(f"    {line}\n" for line in body.splitlines()))
    assert calls_beside(new, versions(parse_source(within, "k.py"), {})["scale"]) == "now calls torch.cuda.device(0)"
    after = KERNEL.replace("    return torch.relu(x)", "    if n < 8:\n        return x\n    return torch.relu(x)")
    assert "returns" not in calls_beside(old, versions(parse_source(after, "k.py"), {})["scale"])


def test_a_function_of_torch_by_a_name_of_the_file_is_the_same():
    """As in unsloth d27e4e44: `torch_matmul = torch.matmul` at the top."""
    text = KERNEL.replace("torch.relu(x)", "relu(x)").replace("@triton.jit", "relu = torch.relu\n\n\n@triton.jit")
    old, new = (versions(parse_source(item, "k.py"), {})["scale"] for item in (KERNEL, text))
    assert calls_beside(old, new) == ""


def test_what_a_heuristic_gives_now_is_named():
    given = KERNEL.replace("@triton.jit", '@triton.heuristics({"BLOCK": lambda args: 64})\n@triton.jit')
    other = versions(parse_source(given.replace("args: 64", "named: 128"), "k.py"), {})["scale"]
    same = versions(parse_source(given.replace("args: 64", "named: 64"), "k.py"), {})["scale"]
    first = versions(parse_source(given, "k.py"), {})["scale"]
    assert changed_by_hand(first, other) == ["What @triton.heuristics gives for BLOCK is worked out otherwise."]
    assert changed_by_hand(first, same) == []
    asked = given.replace("args: 64", 'args: args["n"]')
    renamed = asked.replace('args["n"]', 'args["size"]').replace("x_ptr, n,", "x_ptr, size,").replace("< n", "< size")
    sides = [versions(parse_source(text, "k.py"), {})["scale"] for text in (asked, renamed)]
    assert changed_by_hand(*sides) == ["The kernel takes size in place of n."]
    old, new = (versions(parse_source(text, "k.py"), {})["scale"] for text in (KERNEL, given))
    assert changed_by_hand(old, new) == ["@triton.heuristics gives BLOCK."]
    assert changed_by_hand(new, old) == ["@triton.heuristics no longer gives BLOCK."]


def test_of_a_kernel_that_went_nothing_is_asked(repository, predictor):
    found = compared(repository, predictor, {"ops/scale.py": None})
    assert [(subject.change, subject.notes) for subject in found.subjects] == [("removed", ())]


def test_constants_that_were_guessed_are_named(repository, predictor):
    """What gives the launch its block is not known: the registers are those of a typical one."""
    pytest.importorskip("triton")
    text = KERNEL.replace("num_warps=warps", "num_warps=4").replace("tl.constexpr = 1024", "tl.constexpr")
    text = text.replace("x, n, block,", "x, n, tuned(x),")
    found = compared(
        repository, predictor, {"ops/scale.py": text.replace("num_warps=4", "num_warps=16")}, {**BASE, "ops/scale.py": text}, compiling=True
    )
    (row,) = found.subjects[0].resources
    assert row.label == "num_warps=4 → 16, BLOCK=1024 (typical)"
    assert found.headline.endswith("; no time can be predicted for scale without n and BLOCK"), "at typical sizes the GPU is all but idle"


def test_methods_of_classes_are_no_launch(repository, predictor):
    base = "class Base:\n    def forward(self, x):\n        return x\n\n    block = 64\n\n\ndef run(x):"
    before = KERNEL.replace("num_warps=warps", "num_warps=warps if x is not None else 1").replace("x, n, block,", "x, n, Base.block,")
    before = before.replace("def run(x):", base)
    after = before.replace("return x\n", "return x + 1\n").replace("class Base:\n", 'class Base:\n    """Documented."""\n\n')
    assert before != after and not compared(repository, predictor, {"ops/scale.py": after}, {**BASE, "ops/scale.py": before}).subjects


def test_changed_by_hand_names_arguments_and_keeps_to_keys_that_are_passed_still():
    text = KERNEL.replace("@triton.jit", '@triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=["n"])\n@triton.jit')
    other = text.replace("x_ptr, n,", "x_ptr, size,").replace('key=["n"]', 'key=["size"]').replace("< n", "< size")
    old, new = (versions(parse_source(item, "k.py"), {})["scale"] for item in (text, other))
    assert changed_by_hand(old, new) == ["The kernel takes size in place of n.", "The key of its autotuning changed: n → size."]
    wrapped = versions(parse_source(text.replace("@triton.autotune", "@library.entry\n@triton.autotune"), "k.py"), {})["scale"]
    assert changed_by_hand(wrapped, wrapped) == [] and changed_by_hand(wrapped, versions(parse_source(text, "k.py"), {})["scale"]) == [
        "It is no longer decorated with library.entry."
    ]
    turned = versions(parse_source(text.replace("x_ptr, n,", "n, x_ptr,"), "k.py"), {})["scale"]
    assert changed_by_hand(old, turned) == ["The arguments of the kernel stand in another order."]
    plain, constant = (KERNEL.replace("x_ptr, n,", f"x_ptr, {n},") for n in ("n", "n: tl.constexpr"))
    old, new = (versions(parse_source(item, "k.py"), {})["scale"] for item in (plain, constant))
    assert changed_by_hand(old, new) == ["n is constant now: each value is compiled by itself."]
    assert changed_by_hand(new, old) == ["n is no longer constant: values share compiled code."]
    hidden = KERNEL.replace("@triton.jit", '@triton.jit(do_not_specialize=["n"])')
    untold = versions(parse_source(hidden, "k.py"), {})["scale"]
    assert changed_by_hand(old, untold) == ["Triton no longer tells the compiler where n is a multiple of 16 (do_not_specialize)."]
    assert changed_by_hand(untold, old) == ["Triton tells the compiler where n is a multiple of 16, no longer in do_not_specialize."]
    assert changed_by_hand(new, untold) == ["n is no longer constant: values share compiled code."]


def test_constants_that_came_or_went_are_named_where_no_launch_tells_of_them():
    texts = (KERNEL, KERNEL.replace("BLOCK", "WIDTH"))
    old, new = (versions(parse_source(item.partition("def run")[0], "k.py"), {})["scale"] for item in texts)
    assert changed_by_hand(old, new) == ["The kernel takes WIDTH and no longer takes BLOCK."]
    old, new = (versions(parse_source(item, "k.py"), {})["scale"] for item in texts)
    assert old.launching and changed_by_hand(old, new) == []


def test_the_condition_of_a_launch_is_said_and_not_what_it_passes(repository, predictor):
    guarded = KERNEL.replace("    block, warps", "    if x.numel():\n        block, warps")
    guarded = guarded.replace("    if n < 64:\n        warps = 1\n    scale[", "        scale[")
    head = guarded.replace("if x.numel():", "if x.numel() and n > 2:")
    (subject,) = compared(repository, predictor, {"ops/scale.py": head}, {**BASE, "ops/scale.py": guarded}).subjects
    said = "it is made where x.numel() → where x.numel() and n > 2."
    assert subject.notes[0] == f"The kernel is the same; its launch in its file changed: {said}"


def test_what_stands_for_triton_where_it_is_not_there_changes_no_kernel(repository, predictor):
    absent = "except ImportError:\n    from unittest.mock import MagicMock\n\n    triton = MagicMock()\n    tl = MagicMock()\n"
    tried = "try:\n    import triton\n    import triton.language as tl\n" + absent
    head = KERNEL.replace("import triton\nimport triton.language as tl\n", tried)
    assert head != KERNEL and not compared(repository, predictor, {"ops/scale.py": head}).subjects


def test_long_values_that_differ_beyond_where_they_are_cut_off_are_told_from_where_they_part() -> None:
    first = " or ".join(f"x.stride({place}) >= 1 << 31" for place in range(8))
    assert _apart("WIDE", [first], [f"{first} or y.stride(0) >= 1 << 31"]) == ("WIDE=…31", "WIDE=…31 or y.stride(0) >= 1 << 31")
    assert _apart("WIDE", ["8"], ["16"]) == ("WIDE=8", "WIDE=16")
