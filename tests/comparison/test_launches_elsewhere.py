"""Kernels that another file launches than the one that defines them: `kernels.py` and `ops.py`."""

from __future__ import annotations

import pytest

from advisor.comparison import Options, compare_trees
from advisor.comparison.kernels import importers
from advisor.comparison.trees.trees import FolderTree
from advisor.rendering.comparison_files import to_comment, to_page, to_text

from .repository import compared_files

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)

@triton.jit
def other(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0)
"""
OPS = """
import torch
import triton
IMPORT
from pkg.tools import warps_for


def run(x):
    n = x.numel()
    block = 1024
    KERNEL[(triton.cdiv(n, block),)](x, n, BLOCK=block, num_warps=4, num_stages=warps_for(n))
    return torch.relu(x)
"""
TOOLS = "def warps_for(n):\n    return 8 if n > 4096 else 4\n"


def how(file: str, change: str) -> str:
    """How the note says that a launch in a file changed, where the kernel did not."""
    if change.startswith("the code"):
        comma = "," * (" depend" in change)
        change = f"is written as before, and {change}{comma} changed: whether other values come of it is not judged"
        return f"The kernel is the same; its launch in {file} {change}."
    return f"The kernel is the same; its launch in {file} changed: {change}."


def files(statement: str = "from .kernels import scale", kernel: str = "scale", **more: str) -> dict[str, str]:
    ops = OPS.replace("IMPORT", statement).replace("KERNEL", kernel)
    named = {path.replace("__", "/") + ".py": text for path, text in more.items()}
    return {"pkg/__init__.py": "", "pkg/kernels.py": KERNELS, "pkg/ops.py": ops, "pkg/tools.py": TOOLS, **named}


def edited(base, old, new, path="pkg/ops.py"):
    assert base[path].count(old) == 1
    return {path: base[path].replace(old, new)}


@pytest.mark.parametrize(
    ("statement", "kernel", "more"),
    [
        ("from .kernels import scale", "scale", {}),
        ("from pkg.kernels import scale as doubled", "doubled", {}),
        ("from . import kernels", "kernels.scale", {}),
        ("import pkg.kernels", "pkg.kernels.scale", {}),
        ("import pkg.kernels as k", "k.scale", {}),
        ("from .kernels import *", "scale", {}),
        ("from .handed import scale", "scale", {"pkg__handed": "from .kernels import scale\n"}),
        ("from . import handed", "handed.scale", {"pkg__handed": "from .kernels import scale\n"}),
        ("from torch.library import wrap_triton\nfrom .kernels import scale", "wrap_triton(scale)", {}),
        ("try:\n    from .kernels import scale\nexcept ImportError:\n    scale = None", "scale", {}),
    ],
)
def test_another_launch_in_another_file_is_a_change_of_the_kernel(repository, predictor, statement, kernel, more):
    base = files(statement, kernel, **more)
    found = compared_files(repository, predictor, base, edited(base, "num_warps=4", "num_warps=8"))
    (subject,) = found.subjects
    assert subject.title == "pkg/kernels.py::scale"
    assert subject.notes[0] == how(file="pkg/ops.py", change="num_warps=4 → num_warps=8")
    for surface in (to_text(found), to_comment(found), to_page(found)):
        assert "launch in pkg/ops.py changed" in surface.replace("\\", "")


@pytest.mark.parametrize(
    ("path", "statement", "found"),
    [
        ("pkg/ops.py", "from .kernels import scale", True),
        ("pkg/ops.py", "scale = None", False),
        ("tests/ops.py", "from .kernels import scale", False),
    ],
)
def test_a_launch_in_a_file_that_did_not_change_is_known(repository, predictor, path, statement, found):
    base = files(statement)
    base[path] = base.pop("pkg/ops.py")
    changed = compared_files(repository, predictor, base, edited(base, "* 2", "* 3", "pkg/kernels.py"))
    (subject,) = changed.subjects
    assert subject.title == "pkg/kernels.py::scale"
    assert any("No launch of it was found" in note for note in subject.notes) is not found


@pytest.mark.parametrize(("statement", "kernel"), [("from .kernels import scale", "scale"), ("from .kernels import scale as k", "k")])
def test_a_kernel_that_a_function_imports_is_launched_there(repository, predictor, statement, kernel):
    base = files("", kernel)
    base["pkg/ops.py"] = base["pkg/ops.py"].replace("    n = x.numel()\n", f"    {statement}\n\n    n = x.numel()\n")
    (subject,) = compared_files(repository, predictor, base, edited(base, "num_warps=4", "num_warps=8")).subjects
    assert subject.title == "pkg/kernels.py::scale"
    assert subject.notes[0] == how(file="pkg/ops.py", change="num_warps=4 → num_warps=8")


def test_what_a_function_imports_under_the_name_of_a_module_is_its_own(repository, predictor):
    """Another function's import says nothing of what the module has under the name."""
    other = "def scale():\n    from .tools import warps_for as scale\n    return scale\n"
    base = files() | {"pkg/more.py": other + "\n\ndef run(x):\n    scale[(1,)](x, 1, BLOCK=1, num_warps=1)\n"}
    assert not compared_files(repository, predictor, base, edited(base, "num_warps=1", "num_warps=2", "pkg/more.py")).subjects


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("num_warps=4)", "num_warps=8)", "the code of run"),
        ("**options", "**options, num_stages=2", "no num_stages → num_stages=2"),
        ("**options", "**dict(options)", "**options → **dict(options)"),
        (", **options", "", "**options → nothing"),
    ],
)
def test_options_that_are_spread_count(repository, predictor, old, new, change):
    base = files()
    ops = base["pkg/ops.py"].replace("BLOCK=block, num_warps=4, num_stages=warps_for(n))", "**options)")
    given = "    options = dict(BLOCK=block, num_warps=4)\n    options.update(num_ctas=1)\n"
    base["pkg/ops.py"] = ops.replace("    block = 1024\n", f"    block = 1024\n{given}")
    (subject,) = compared_files(repository, predictor, base, edited(base, old, new)).subjects
    assert subject.notes[0] == how(file="pkg/ops.py", change=change)


def test_a_dictionary_that_stands_beside_the_launch_counts(repository, predictor):
    options = '{"x_ptr": x, "n": 9, "BLOCK": 64, "num_warps": 4}'
    launch = "scale[(9,)](**options)"
    base = files() | {"pkg/ops.py": f"from .kernels import scale\n\ndef run(x):\n    options = {options}\n    {launch}\n    return x\n"}
    (subject,) = compared_files(repository, predictor, base, edited(base, '"num_warps": 4', '"num_warps": 8')).subjects
    assert subject.notes[0] == how(file="pkg/ops.py", change="the code of run")


SERVING = """
import triton
from .kernels import scale
from .tools import warps_for


def default_config(n):
    return {"BLOCK": 1024 if n > 64 else 128, "num_stages": warps_for(n)}


def chosen(n, override=None):
    config = override or default_config(n)
    config["num_warps"] = 4
    return config


def invoke(x, config, activation):
    n = x.numel()
    config = config.copy()
    config.update(num_ctas=1)
    scale[(triton.cdiv(n, config["BLOCK"]),)](x, n, **config)
    return activation(x)


def prepared(x):
    return x.contiguous()


def run(x):
    x = prepared(x)
    config = chosen(x.numel())
    return invoke(x, config, activation=abs)


def again(x):
    return invoke(x, activation=abs, config=chosen(x.numel()))
"""


@pytest.mark.parametrize(
    ("old", "new", "function"),
    [
        ("else 128", "else 256", "default_config"),
        ('["num_warps"] = 4', '["num_warps"] = 8', "chosen"),
        ("num_ctas=1", "num_ctas=2", "invoke"),
        ("config = chosen(x.numel())", "config = chosen(64)", "run"),
    ],
)
def test_what_functions_hand_on_to_the_launch_counts(repository, predictor, old, new, function):
    base = files() | {"pkg/ops.py": SERVING}
    (subject,) = compared_files(repository, predictor, base, edited(base, old, new)).subjects
    assert subject.notes[0] == how(file="pkg/ops.py", change=f"the code of {function}")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x.contiguous()", "x.clone()"),
        ("config, activation=abs", "config, activation=round"),
        ("def prepared", "def unused():\n    pass\n\n\ndef prepared"),
        ("def again(x):", "def third(x):\n    return invoke(x, chosen(x.numel()), abs)\n\n\ndef again(x):"),
    ],
)
def test_what_functions_hand_on_besides_does_not(repository, predictor, old, new):
    """What makes the tensor, other arguments, and one more function that passes what another passes."""
    base = files() | {"pkg/ops.py": SERVING}
    assert not compared_files(repository, predictor, base, edited(base, old, new)).subjects


def test_a_call_of_torch_beside_a_launch_elsewhere_is_no_change_of_the_kernel(repository, predictor):
    base = files()
    found = compared_files(repository, predictor, base, edited(base, "relu", "sigmoid"))
    assert not found.subjects and found.around == ("pkg/ops.py::run: no longer calls torch.relu(x) and now calls torch.sigmoid(x)",)


DEFAULTS = """
from .kernels import scale
from .tools import warps_for

WARPS = 4


def launch(x, num_warps=WARPS, *, block=1024, stages=3, spare=1, tag=None):
    scale[(9,)](x, 9, BLOCK=block, num_warps=num_warps, num_stages=stages, num_ctas=spare)
    return tag


async def run(x, /, warps=2, options=(), **more):
    launch(x, warps, spare=2)
    launch(x, *options, spare=2, **more)
"""


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("warps=2", "warps=8", "the code of run, on which num_warps depends"),  # of the function that others call
        ("WARPS = 4", "WARPS = 8", "the code of WARPS, on which num_warps depends"),  # what is spread may lack it
        ("block=1024", "block=512", "the code of run, on which BLOCK depends"),
        ("stages=3", "stages=warps_for(9)", "the code of run, on which num_stages depends"),
        ("block=1024, stages=3", "block=3, stages=1024", "the code of run, on which BLOCK and num_stages depend"),
    ],
)
def test_what_arguments_are_unless_they_are_given_counts(repository, predictor, old, new, change):
    base = files() | {"pkg/ops.py": DEFAULTS}
    (subject,) = compared_files(repository, predictor, base, edited(base, old, new)).subjects
    assert subject.notes[0] == how(file="pkg/ops.py", change=change)


@pytest.mark.parametrize(("old", "new"), [("spare=1", "spare=4"), ("tag=None", "tag=1")])
def test_what_arguments_are_where_all_give_them_does_not(repository, predictor, old, new):
    base = files() | {"pkg/ops.py": DEFAULTS}
    assert not compared_files(repository, predictor, base, edited(base, old, new)).subjects


@pytest.mark.parametrize("calls", ["    run(x, config)\n", "    other(x, config)\n", "    run(x, *config)\n    run(x, **config)\n"])
def test_functions_that_call_each_other_are_followed_once(repository, predictor, calls):
    loop = f"\n\ndef run(x, config):\n{calls}    scale[(1,)](x, 9, **config)\n\n\ndef other(y, z):\n    run(y, z)\n"
    base = files() | {"pkg/ops.py": "from .kernels import scale\n" + loop * 6}
    head = {"pkg/ops.py": base["pkg/ops.py"].replace("x, 9", "x, 9, num_warps=8")}
    (subject,) = compared_files(repository, predictor, base, head).subjects
    assert subject.notes[0] == how(file="pkg/ops.py", change="no num_warps → num_warps=8")


@pytest.mark.parametrize(
    ("path", "old", "new", "change"),
    [
        ("pkg/ops.py", "block = 1024", "block = 512", "BLOCK=1024 → BLOCK=512"),
        ("pkg/ops.py", "(triton.cdiv(n, block),)", "(n,)", "grid=(triton.cdiv(n, block),) → grid=(n,)"),
        ("pkg/ops.py", "num_warps=4, ", "", "num_warps=4 → no num_warps"),
    ],
)
def test_all_that_a_launch_passes_counts(repository, predictor, path, old, new, change):
    base = files()
    (subject,) = compared_files(repository, predictor, base, edited(base, old, new, path)).subjects
    assert subject.title == "pkg/kernels.py::scale" and subject.notes[0] == how(file="pkg/ops.py", change=change)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return torch", "x += 1\n    return torch"),
        ("def run(x):", "def scaled(x):"),
        ("def run(x):\n", "def run(x, scale):\n"),
    ],
)
def test_what_has_no_part_in_the_launch_is_none(repository, predictor, old, new):
    """The last one launches its argument from now on, which is no kernel of the file as far as is known."""
    base = files()
    assert not compared_files(repository, predictor, base, edited(base, old, new)).subjects


def test_a_body_and_its_launch_elsewhere_are_one_change(repository, predictor):
    base = files()
    head = {**edited(base, "num_warps=4", "num_warps=8"), **edited(base, "* 2", "* 3", "pkg/kernels.py")}
    (subject,) = compared_files(repository, predictor, base, head).subjects
    assert subject.notes[0] == "The launch in pkg/ops.py changed: num_warps=4 → num_warps=8."


def test_a_launch_that_moved_to_another_file_is_compared_with_what_it_was(repository, predictor):
    base = files()
    moved = {"pkg/ops.py": None, "pkg/run.py": base["pkg/ops.py"]}
    assert not compared_files(repository, predictor, base, moved).subjects
    changed = {"pkg/ops.py": base["pkg/ops.py"], "pkg/run.py": None}
    head = {"pkg/ops.py": None, "pkg/run.py": base["pkg/ops.py"].replace("num_warps=4", "num_warps=16")}
    (subject,) = compared_files(repository, predictor, changed, head).subjects
    assert subject.notes[0] == how(file="pkg/run.py", change="num_warps=4 → num_warps=16")


def test_a_kernel_whose_file_moved_is_launched_as_before(repository, predictor):
    base = files()
    moved = {"pkg/kernels.py": None, "pkg/jit.py": KERNELS, "pkg/ops.py": base["pkg/ops.py"].replace(".kernels", ".jit")}
    assert not compared_files(repository, predictor, base, moved).subjects
    again = {"pkg/jit.py": None, "pkg/kernels.py": KERNELS, "pkg/ops.py": base["pkg/ops.py"].replace("num_warps=4", "num_warps=8")}
    (subject,) = compared_files(repository, predictor, {}, again).subjects
    assert subject.notes == (
        "Moved here from pkg/jit.py.",
        how(file="pkg/ops.py", change="num_warps=4 → num_warps=8"),
        *subject.notes[2:],
    )


@pytest.mark.parametrize("other", ["tests/test_ops.py", "pkg/bench.py"])
def test_a_file_that_launches_it_besides_changes_no_launch(repository, predictor, other):
    base = files()
    text = base["pkg/ops.py"].replace("from .kernels", "from pkg.kernels").replace("num_warps=4", "num_warps=16")
    assert not compared_files(repository, predictor, base, {other: text}).subjects
    assert not compared_files(repository, predictor, {}, {other: None}).subjects


def test_each_file_is_compared_with_what_it_was(repository, predictor):
    base = files()
    base["pkg/more.py"] = base["pkg/ops.py"].replace("num_warps=4", "num_warps=2")
    head = {path: base[path].replace("num_warps=", "num_warps=2 * ") for path in ("pkg/ops.py", "pkg/more.py")}
    (subject,) = compared_files(repository, predictor, base, head).subjects
    assert {
        how(file="pkg/ops.py", change="num_warps=4 → num_warps=2 * 4"),
        how(file="pkg/more.py", change="num_warps=2 → num_warps=2 * 2"),
    } <= set(subject.notes)


def test_folders_are_compared_alike(tmp_path, predictor):
    base = files()
    for side, changed in (("base", {}), ("head", edited(base, "num_warps=4", "num_warps=8"))):
        for path, text in {**base, **changed}.items():
            place = tmp_path / side / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
    trees = [FolderTree(folder=tmp_path / side, label=side) for side in ("base", "head")]
    (subject,) = compare_trees(*trees, Options(gpus=("H100",), compiling=False), predictor).subjects
    assert subject.notes[0] == how(file="pkg/ops.py", change="num_warps=4 → num_warps=8")


def test_both_are_compiled_as_they_are_launched(repository, predictor):
    pytest.importorskip("triton")
    base = files()
    (subject,) = compared_files(repository, predictor, base, edited(base, "num_warps=4", "num_warps=16"), compiling=True).subjects
    (row,) = subject.resources
    assert row.label.startswith("BLOCK=1024 num_warps=4 → 16")
    assert row.base.resident_ctas_per_sm == 4 * row.head.resident_ctas_per_sm == 16


def test_what_a_kernels_own_file_launches_beside_is_not_what_is_compiled(repository, predictor):
    pytest.importorskip("triton")
    base = files()
    base["pkg/kernels.py"] += "\n\nif __name__ == '__main__':\n    scale[(1,)](None, 16, BLOCK=16, num_warps=1)\n"
    base["pkg/more.py"] = base["pkg/ops.py"]
    head = {**edited(base, "num_warps=4", "num_warps=16"), "pkg/more.py": base["pkg/more.py"] + "\n# again\n"}
    (subject,) = compared_files(repository, predictor, base, head, compiling=True).subjects
    assert [row.label.split(" num_stages")[0] for row in subject.resources] == ["BLOCK=1024 num_warps=4 → 16"]


@pytest.mark.parametrize(
    "odd", ["x[0](", "from .kernels import scale\nscale[0](", "import os\nos[0](1)\na.b[1](2)\n(lambda: 1)[0]()\n", "\0](", "[](1)\n"]
)
def test_odd_files_hide_nothing(repository, predictor, odd):
    base = {**files(), "pkg/odd.py": "x = 1\n"}
    found = compared_files(repository, predictor, base, {**edited(base, "num_warps=4", "num_warps=8"), "pkg/odd.py": odd})
    assert [subject.title for subject in found.subjects] == ["pkg/kernels.py::scale"]


def test_what_a_limit_leaves_out_is_said(repository, predictor, monkeypatch):
    monkeypatch.setattr(importers, "LARGEST_LAUNCHERS", 1)
    base = {**files(), "pkg/a.py": "x = 1\n"}
    found = compared_files(repository, predictor, base, {**edited(base, "num_warps=4", "num_warps=8"), "pkg/a.py": "x = 2\n"})
    assert not found.subjects and found.warnings == (
        "1 files were not looked through for launches of other files' kernels: there are more than 1.",
    )


LAYER = """
from pkg.ops import run


class Layer:
    def forward(self, x, w):
        y = x.t().contiguous().t()
        return run(y.reshape(-1, 4)), run(w)
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("y.reshape(-1, 4)", "x", "calls run with x where it was y.reshape(-1, 4)"),
        ("run(w)", "run(w.contiguous())", "calls run with w.contiguous() where it was w"),
        ("run(w)", "run(w, out=y)", "calls run with out=y"),
        ("run(w)", "run(w, out=w.t()), 0", "calls run with out=w.t()"),
        ("run(w)", "run(x=w)", "calls run in another order"),
        ("x, w):", "x, w, *, out=None):", ""),
        ("run(w)", "run(x)", "calls run with x where it was w"),
        ("run(w)", "run(w), run(w.t())", "now calls run(w.t())"),
        (
            "return run(y.reshape(-1, 4)), run(w)",
            "return run(y.reshape(-1, 4), keep=x), run(w, keep=x), run(x, keep=x)",
            "no longer calls run(y.reshape(-1, 4)), run(w) and now calls run(y.reshape(-1, 4), keep=x), run(w, keep=x), run(x, keep=x)",
        ),
    ],
)
def test_callers_of_a_launcher_in_another_file(repository, predictor, old, new, said) -> None:
    base = files(pkg__layer=LAYER)
    found = compared_files(repository, predictor, base, edited(base, old, new, "pkg/layer.py"))
    assert found.around == (f"pkg/layer.py::Layer.forward{f': {said}' * bool(said)}",) and not found.subjects
    assert (f"Layer.forward {said}" in to_text(found)) == bool(said)


def test_a_kernel_whose_launch_changed_for_another_vendor_alone_is_not_compiled(repository, predictor) -> None:
    """As in FlagGems 9dae4c36, where a folder of another vendor's launches the kernels of all."""
    base = files()
    base["hip/ops.py"] = base.pop("pkg/ops.py").replace("from .", "from pkg.")
    (subject,) = compared_files(
        repository, predictor, base, edited(base, "num_warps=4", "num_warps=8", "hip/ops.py"), compiling=True
    ).subjects
    assert not subject.resources and "Not compiled: what changed is launched by files for other machines alone." in subject.notes


def test_a_function_that_launches_itself_calls_others_otherwise(repository, predictor) -> None:
    """As in flash-linear-attention cdf73bf6."""
    base = files(
        pkg__layer="from pkg.ops import run\nfrom pkg.kernels import scale\n\n\ndef step(x):\n    scale[(1,)](x, 4)\n    return run(x)\n"
    )
    head = edited(base, "run(x)", "run(x, out=x.t())", "pkg/layer.py")
    assert compared_files(repository, predictor, base, head).around == ("pkg/layer.py::step: calls run with out=x.t()",)


def test_a_constant_that_several_statements_work_out_otherwise_is_named(repository, predictor) -> None:
    """Beside what is passed otherwise; of one statement alone the value is named."""
    base = files()
    base["pkg/ops.py"] = (
        base["pkg/ops.py"]
        .replace("    block = 1024\n", "    BLOCK = first(n)\n    if n > 4096:\n        BLOCK = BLOCK * 2\n")
        .replace("BLOCK=block", "BLOCK=BLOCK")
    )
    head = edited(base, "BLOCK = BLOCK * 2", "BLOCK = BLOCK * 4")
    head["pkg/ops.py"] = head["pkg/ops.py"].replace("num_warps=4", "num_warps=8")
    (subject,) = compared_files(repository, predictor, base, head).subjects
    said = "num_warps=4 → num_warps=8, and BLOCK, worked out otherwise"
    assert any(said in note for note in subject.notes), subject.notes
    alone = compared_files(repository, predictor, base, edited(base, "num_warps=4", "num_warps=8")).subjects
    assert all("worked out otherwise" not in note for subject in alone for note in subject.notes)
