"""Functions of plain Python around kernels that changed are named, whatever else is said."""

from __future__ import annotations

import textwrap

import pytest

from advisor.comparison import around_kernels
from advisor.comparison.around_kernels import changed_functions
from advisor.comparison.trees.trees import FolderTree, changes
from advisor.rendering.comparison_files import to_comment, to_text

from .repository import compared_files

KERNEL = """
    import torch
    import triton
    import triton.language as tl
    from .helpers import sized

    @triton.jit
    def double(x, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + at, tl.load(x + at) * 2)

    def run(x):
        double[(sized(x),)](x, BLOCK=64)

    def forward(x, fast: bool = True):
        return run(x) if fast else torch.mul(x, 2)

    class Op:
        def apply(self, x):
            return forward(x)
"""
HELPERS = "def sized(x):\n    return x.numel() // 64\n"
BASE = {"pkg/op.py": KERNEL, "pkg/helpers.py": HELPERS, "pkg/other.py": "def far():\n    return 1\n"}


def named(tmp_path, **edits: tuple[str, str]):
    """What is named of a change of files, each by what is replaced by what in it."""
    for side in ("base", "head"):
        for path, text in BASE.items():
            text = textwrap.dedent(text)
            for old, new in edits.values() if side == "head" else ():
                assert any(old in textwrap.dedent(item) for item in BASE.values()), old
                text = text.replace(old, new)
            (tmp_path / side / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / side / path).write_text(text)
    trees = [FolderTree(folder=tmp_path / side, label=side) for side in ("base", "head")]
    return [item.text(()) for item in changed_functions(*trees, changes(*trees))[0]]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("if fast else", "if not fast else", ["pkg/op.py::forward"]),
        ("return forward(x)", "return forward(x, False)", ["pkg/op.py::Op.apply"]),
        ("class Op:", "class Other:", ["pkg/op.py::Other (new)", "pkg/op.py::Op (removed)"]),
        ("    def apply(", "    def call(", ["pkg/op.py::Op.call (new)", "pkg/op.py::Op.apply (removed)"]),
        ("def forward(x, fast: bool = True):", 'def forward(x, fast=True) -> torch.Tensor:\n    """Twice."""', []),
        ("* 2)", "* 3)", []),  # a kernel's body: compared as such
        ("def forward(", "def launched(x):\n    double[(1,)](x, BLOCK=64)\n\ndef forward(", []),  # a new launch is
        ("def forward(", "def more(x):\n    return x\n\ndef forward(", ["pkg/op.py::more (new)"]),
        (
            "def forward(",
            "def more(x):\n    return torch.sum(x.clone())\n\ndef forward(",
            ["pkg/op.py::more (new; now calls .clone, torch.sum)"],
        ),
        ("return run(x) if", "return torch.mul(x, 3) if", ["pkg/op.py::forward (no longer calls run and calls more often torch.mul)"]),
        (
            "def forward(",
            "@triton.jit\ndef gate(x):\n    return x * 2\n\ndef forward(",
            ["pkg/op.py::gate (new, called by kernels)"],
        ),  # a helper
        ("return run(x) if fast else torch.mul(x, 2)", "f = torch.mul\n    return f(x, 2) if fast else run(x)", ["pkg/op.py::forward"]),
        ("BLOCK=64", "BLOCK=32", []),  # the launch itself: compared
        ("return 1", "return 2", []),  # nothing of kernels
    ],
)
def test_what_is_named(tmp_path, old, new, expected):
    assert list(named(tmp_path, only=(old, new))) == expected


def test_what_a_changed_file_of_kernels_imports_is_around_them(tmp_path):
    assert named(tmp_path, helper=("// 64", "// 32")) == []  # its own file alone changed, and names no kernel
    both = named(tmp_path, helper=("// 64", "// 32"), caller=("if fast", "if not fast"))
    assert both == ["pkg/op.py::forward", "pkg/helpers.py::sized"]  # files that name Triton first


def test_what_calls_torch_otherwise_is_named_first(tmp_path):
    more = ("def forward(", "def more(x):\n    return torch.sum(x)\n\ndef forward(")
    edits = {
        "calling": ("return run(x) if", "return torch.mul(x, 3) if"),
        "more": more,
        "other": ("return forward(x)", "return forward(x, True)"),
    }
    assert named(tmp_path, **edits) == [
        "pkg/op.py::forward (no longer calls run and calls more often torch.mul)",
        "pkg/op.py::more (new; now calls torch.sum)",
        "pkg/op.py::Op.apply",
    ]


def test_surfaces_say_it_with_and_without_kernels(repository, predictor):
    base = {"op.py": textwrap.dedent(KERNEL).replace("from .helpers import sized", "def sized(x): return 4")}
    other = base["op.py"].replace("if fast else", "if not fast else")
    alone = compared_files(repository, predictor, base, {"op.py": other}, compiling=False)
    assert alone.headline == "No kernel and no table changed; Python around kernels did, and its other work is not judged: forward"
    assert alone.around == ("op.py::forward",) and to_comment(alone).count("forward") == 1
    both = compared_files(repository, predictor, base, {"op.py": other.replace("* 2)", "* 3)")}, compiling=False)
    line = "Python around kernels changed: op.py: forward. Calls of torch and of functions that launch are compared"
    assert line in to_text(both) and line in to_comment(both)


def test_files_that_are_too_many_or_too_large_are_said_or_passed(tmp_path, monkeypatch):
    for side in ("base", "head"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "large.py").write_text(f"# triton {side}\n" + "# comment\n" * 2_000_000)
        for name in ("a", "b"):
            (tmp_path / side / f"{name}.py").write_text(
                f"import triton\n\ndef run(n):\n    return triton.cdiv(n, {len(side) + (side == 'head')})\n"
            )
    trees = [FolderTree(folder=tmp_path / side, label=side) for side in ("base", "head")]
    monkeypatch.setattr(around_kernels, "LARGEST_CHANGE", 1)
    functions, warnings = changed_functions(*trees, changes(*trees))
    assert [item.title for item in functions] == ["a.py::run"]
    assert warnings == ["1 changed Python files were not looked through for functions around kernels."]
    monkeypatch.setattr(around_kernels, "LARGEST_CHANGE", 3)
    assert [item.title for item in changed_functions(*trees, changes(*trees))[0]] == ["a.py::run", "b.py::run"]


@pytest.mark.parametrize("line", ["# the kernel doesn't mask its tl.load", 'raise ValueError("tl.arange needs a power of 2")'])
def test_what_speaks_of_kernels_writes_none(tmp_path, line):
    assert named(tmp_path, only=("    return run(x) if", f"    if x is None:\n        {line}\n        return x\n    return run(x) if")) == [
        "pkg/op.py::forward"
    ]


def test_a_file_that_cannot_be_followed_hides_no_other(tmp_path, monkeypatch):
    """Whatever reading one raises, what changed in the others is named."""
    whole = around_kernels._of_file

    def failing(path, old, new):
        if path.endswith("helpers.py"):
            raise RecursionError
        return whole(path, old, new)

    monkeypatch.setattr(around_kernels, "_of_file", failing)
    both = named(tmp_path, helper=("// 64", "// 32"), caller=("if fast", "if not fast"))
    assert both == ["pkg/op.py::forward"]


def test_code_of_kernels_as_text_is_said_not_to_be_compared(repository, predictor):
    """As FlagGems writes its kernels of any rank."""
    lines = """def written(code):
    code.writeline("@triton.jit")
    code.writeline("def copy(x, y):")
    code.writeline("    tl.store(y, tl.load(x))")
"""
    found = compared_files(repository, predictor, {"op.py": lines}, {"op.py": lines.replace("load(x))", "load(x) + 1)")}, compiling=False)
    said = "Code that writes kernels as text changed, which cannot be compared: written"
    assert found.headline == said and found.around == ("op.py::written (writes code of kernels)",)
    both = {"op.py": lines + "\n\ndef run(x):\n    return x\n"}
    head = {"op.py": both["op.py"].replace("load(x))", "load(x) + 1)").replace("return x", "return -x")}
    found = compared_files(repository, predictor, both, head, compiling=False)
    assert found.headline == f"{said}; other Python around kernels changed, too: run"


def test_a_file_of_which_a_call_of_torch_is_all_that_changed_is_the_headline(repository, predictor):
    base = {"op.py": textwrap.dedent(KERNEL).replace("from .helpers import sized", "def sized(x): return 4")}
    head = base["op.py"].replace("BLOCK=64)", "BLOCK=64)\n    x.clone()")
    found = compared_files(repository, predictor, base, {"op.py": head}, compiling=False)
    assert found.headline == "Beside the launch, run now calls .clone"


@pytest.mark.parametrize(("decorator", "language"), [("cute.jit", "CuTe DSL"), ("cute.kernel", "CuTe DSL"), ("T.prim_func", "TileLang")])
def test_kernels_of_other_languages_are_said_to_be_that(repository, predictor, decorator, language):
    """Also within the function that makes them, and beside Python that changed."""
    text = f"""import cutlass.cute as cute, tilelang.language as T

@{decorator}
def low(x):
    return x

def made(n):
    @{decorator}
    def inner(x):
        return x + n
    return inner

def run(x):
    return low(x)
"""
    head = text.replace("return x\n", "return -x\n").replace("x + n", "x - n")
    found = compared_files(repository, predictor, {"c.py": text}, {"c.py": head}, compiling=False)
    said = f"low (written in {language}), made (written in {language})"
    assert found.headline == f"Kernels that are not Triton's changed, which are not compared: {said}"
    both = compared_files(repository, predictor, {"c.py": text}, {"c.py": head.replace("return low(x)", "return low(-x)")}, compiling=False)
    assert both.headline == f"{found.headline}; other Python around kernels changed, too: run"
    fresh = compared_files(repository, predictor, {"c.py": text}, {"c.py": text + f"\n@{decorator}\ndef more(x):\n    pass\n"})
    assert fresh.around == (f"c.py::more (new, written in {language})",)


def test_a_file_that_calls_what_changed_is_around_kernels_though_it_does_not_name_triton(tmp_path):
    base = BASE | {"pkg/caller.py": "import torch\nfrom .op import forward\n\ndef call(x):\n    return forward(torch.zeros(4))\n"}
    for side in ("base", "head"):
        for path, text in base.items():
            text = textwrap.dedent(text)
            text = text.replace("* 2)", "* 3)").replace("torch.zeros(4)", "torch.ones(4)") if side == "head" else text
            (tmp_path / side / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / side / path).write_text(text)
    trees = [FolderTree(folder=tmp_path / side, label=side) for side in ("base", "head")]
    functions = [item.text(()) for item in changed_functions(*trees, changes(*trees))[0]]
    assert functions == ["pkg/caller.py::call (no longer calls torch.zeros and now calls torch.ones)"]


def test_calls_of_which_one_run_makes_one_are_one(tmp_path):
    arms = "    if fast:\n        return torch.mul(x, 3)\n    elif not x:\n        return torch.mul(x, 4)\n    return torch.mul(x, 2)"
    assert named(tmp_path, arms=("    return run(x) if fast else torch.mul(x, 2)", arms)) == ["pkg/op.py::forward (no longer calls run)"]
    inner = "    if fast:\n        x = torch.mul(x, 3) if fast else x\n    return torch.mul(x, 2)"
    both = "    y = torch.mul(x, 3)\n    return torch.mul(y, 2)"
    for body in (inner, both):
        more = named(tmp_path, arms=("    return run(x) if fast else torch.mul(x, 2)", body))
        assert more == ["pkg/op.py::forward (no longer calls run and calls more often torch.mul)"]


def test_calls_of_functions_that_launch_are_named(tmp_path):
    """Of its own file, or of another one."""
    own = named(tmp_path, call=("return run(x) if fast else torch.mul(x, 2)", "return run(run(x)) if fast else run(x)"))
    assert own == ["pkg/op.py::forward (no longer calls torch.mul and calls more often run (2 times))"]
    caller = "import torch\nfrom .op import forward\n\ndef call(x):\n    return x\n"
    for side in ("base", "head"):
        for path, text in (BASE | {"pkg/caller.py": caller}).items():
            text = textwrap.dedent(text).replace("* 2)", "* 3)") if side == "head" else textwrap.dedent(text)
            (tmp_path / side / path).write_text(text.replace("    return x\n", "    return forward(x)\n") if side == "head" else text)
    trees = [FolderTree(folder=tmp_path / side, label=side) for side in ("base", "head")]
    functions = [item.text(()) for item in changed_functions(*trees, changes(*trees))[0]]
    assert functions == ["pkg/caller.py::call (now calls forward)"]


def test_an_operator_that_is_applied_launches_what_its_methods_do(tmp_path):
    """As in flash-linear-attention 3daf8534b2; what launches on one side alone is called on both."""
    operator = "class Scale(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return run(x)\n\n"
    kernels = textwrap.dedent(KERNEL) + "\n" + operator + "def scale(x):\n    return Scale.apply(x)\n\ndef plain(x):\n    return run(x)\n"
    caller = "from .op import plain, scale\n\ndef call(x):\n    return {}\n"
    sides = {
        "base": {"pkg/op.py": kernels, "pkg/caller.py": caller.format("abs(plain(x))")},
        "head": {
            "pkg/op.py": kernels.replace("def plain(x):\n    return run(x)\n", "def plain(x):\n    return x\n"),
            "pkg/caller.py": caller.format("scale(plain(plain(x)))"),
        },
    }
    for side, files in sides.items():
        (tmp_path / side / "pkg").mkdir(parents=True)
        for path, text in files.items():
            (tmp_path / side / path).write_text(text)
    trees = [FolderTree(folder=tmp_path / side, label=side) for side in sides]
    functions = [item.text(()) for item in changed_functions(*trees, changes(*trees))[0]]
    assert functions == [
        "pkg/op.py::plain (no longer calls run)",
        "pkg/caller.py::call (now calls scale and calls more often plain)",
    ]


def test_a_function_that_launches_is_called_by_another_name(tmp_path):
    """As in aiter 3ffb5e47: `sort = fused if few else plain`."""
    new = "    launch = run if fast else torch.sin\n    return launch(x)"
    said = "pkg/op.py::forward (no longer calls torch.mul and now calls torch.sin under a condition)"
    assert named(tmp_path, call=("    return run(x) if fast else torch.mul(x, 2)", new)) == [said]


def test_decorators_are_no_calls_and_methods_that_launch_are(tmp_path):
    decorated = ("def forward(x, fast: bool = True):", "@torch.compile(fullgraph=True)\ndef forward(x, fast: bool = True):")
    assert named(tmp_path, all=decorated) == ["pkg/op.py::forward"]
    method = ("        return forward(x)", "        return self.twice(x)\n\n    def twice(self, x):\n        return run(run(x))")
    assert "pkg/op.py::Op.apply (no longer calls forward and now calls twice)" in named(tmp_path, all=method)
