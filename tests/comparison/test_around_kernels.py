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
    return [item.text for item in changed_functions(*trees, changes(*trees))[0]]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "if fast else",
            "if not fast else",
            ["pkg/op.py::forward: calls run(x) if not fast, where it was if fast; torch.mul(x, 2) if fast, where it was if not fast"],
        ),
        ("return forward(x)", "return forward(x, False)", ["pkg/op.py::Op.apply: calls forward with False"]),
        ("class Op:", "class Other:", ["pkg/op.py::Other.apply (was Op.apply)"]),
        ("    def apply(", "    def call(", ["pkg/op.py::Op.call (was Op.apply)"]),
        ("def forward(x, fast: bool = True):", 'def forward(x, fast=True) -> torch.Tensor:\n    """Twice."""', []),
        ("* 2)", "* 3)", []),  # a kernel's body: compared as such
        (
            "def forward(",
            "def launched(x):\n    double[(1,)](x, BLOCK=64)\n\ndef forward(",
            ["pkg/op.py::launched (new): now launches double"],
        ),
        ("def forward(", "def more(x):\n    return torch.sum(x)\n\ndef forward(", []),  # launches nothing, and nothing that does
        ("def forward(", "def more(x):\n    return forward(x)\n\ndef forward(", ["pkg/op.py::more (new): now calls forward(x)"]),
        (
            "def forward(",
            "def more(x):\n    return Op().apply(torch.sum(x.clone()))\n\ndef forward(",
            ["pkg/op.py::more (new): now calls Op().apply(torch.sum(x.clone()))"],
        ),
        (
            "return run(x) if",
            "return torch.mul(x, 3) if",
            ["pkg/op.py::forward: no longer calls run(x) (if fast) and now calls torch.mul(x, 3) (if fast)"],
        ),
        (
            "def forward(",
            "@triton.jit\ndef gate(x):\n    return x * 2\n\ndef forward(",
            ["pkg/op.py::gate (new, a helper of kernels)"],
        ),  # a helper
        ("return run(x)", "x = x.view(-1)\n    return run(x)", ["pkg/op.py::forward"]),
        (
            "    return run(x) if fast",
            "    try:\n        x = torch.sort(x)\n    except Exception:\n        x = torch.mean(x)\n    return run(x) if fast",
            ["pkg/op.py::forward: now calls torch.sort(x); torch.mean(x) (if Exception is raised)"],
        ),
        ("BLOCK=64", "BLOCK=32", []),  # the launch itself: compared
        ("double[(sized(x),)](x,", "double[(sized(x),)](x.contiguous(),", ["pkg/op.py::run: now calls x.contiguous()"]),
        ("return 1", "return 2", []),  # nothing of kernels
    ],
)
def test_what_is_named(tmp_path, old, new, expected):
    assert list(named(tmp_path, only=(old, new))) == expected


def test_what_a_changed_file_of_kernels_imports_is_around_them(tmp_path):
    assert named(tmp_path, helper=("// 64", "// 32")) == []  # its own file alone changed, and names no kernel
    both = named(tmp_path, helper=("// 64", "// 32"), caller=("return forward", "x = x.view(1)\n        return forward"))
    assert both == ["pkg/helpers.py::sized", "pkg/op.py::Op.apply"]


def test_what_calls_torch_otherwise_is_named_first(tmp_path):
    more = ("def forward(", "def more(x):\n    return run(x)\n\ndef forward(")
    edits = {
        "calling": ("return run(x) if", "return torch.mul(x, 3) if"),
        "more": more,
        "other": ("return forward(x)", "x = x.view(1)\n        return forward(x)"),
    }
    assert named(tmp_path, **edits) == [
        "pkg/op.py::forward: no longer calls run(x) (if fast) and now calls torch.mul(x, 3) (if fast)",
        "pkg/op.py::more (new): now calls run(x)",
        "pkg/op.py::Op.apply",
    ]


def test_surfaces_say_it_with_and_without_kernels(repository, predictor):
    base = {"op.py": textwrap.dedent(KERNEL).replace("from .helpers import sized", "def sized(x): return 4")}
    other = base["op.py"].replace("return run(x) if fast", "y = x.view(1)\n    return run(y) if fast")
    alone = compared_files(repository, predictor, base, {"op.py": other}, compiling=False)
    assert alone.headline == "No kernel and no table changed; Python around kernels did, and its other work is not judged: forward"
    said = "forward calls run with y where it was x"
    assert alone.around == (f"op.py::{said}".replace(" calls", ": calls"),) and said in to_text(alone) and said in to_comment(alone)
    quiet = {"op.py": base["op.py"].replace("return forward(x)", "x = x.view(1)\n        return forward(x)")}
    alone = compared_files(repository, predictor, base, quiet, compiling=False)
    assert alone.around == ("op.py::Op.apply",) and to_comment(alone).count("Op.apply") == 1
    both = compared_files(repository, predictor, base, {"op.py": other.replace("* 2)", "* 3)")}, compiling=False)
    line = "Python around kernels changed: op.py: forward. The calls that each makes itself are compared as they are written"
    assert all(text in surface for text in (line, said) for surface in (to_text(both), to_comment(both)))


def test_files_that_are_too_many_or_too_large_are_said_or_passed(tmp_path, monkeypatch):
    for side in ("base", "head"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "large.py").write_text(f"# triton {side}\n" + "# comment\n" * 2_000_000)
        for name in ("a", "b"):
            (tmp_path / side / f"{name}.py").write_text(
                f"import triton\n\ndef run(n):\n    kernel[(1,)](n)\n    return triton.cdiv(n, {len(side) + (side == 'head')})\n"
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
    whole = around_kernels._functions

    def failing(source):
        if source.path.name == "helpers.py":
            raise RecursionError
        return whole(source)

    monkeypatch.setattr(around_kernels, "_functions", failing)
    both = named(tmp_path, helper=("// 64", "// 32"), caller=("x, 2)", "x, 4)"))
    assert both == ["pkg/op.py::forward: calls torch.mul with 4 where it was 2"]


def test_a_function_whose_calls_cannot_be_followed_hides_no_file(tmp_path, monkeypatch):
    def failing(old, new):
        raise RecursionError

    monkeypatch.setattr(around_kernels, "calls_changed", failing)
    fresh = ("def forward(", "def more(x):\n    return x\n\ndef forward(")
    assert named(tmp_path, fresh=fresh, call=("class Op:\n    def apply(self, x)", "class Op:\n    def apply(self, y)")) == []


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
    both = {"op.py": lines + "\n\ndef run(x):\n    copy[(1,)](x, x)\n    return x\n"}
    head = {"op.py": both["op.py"].replace("load(x))", "load(x) + 1)").replace("return x", "return -x")}
    found = compared_files(repository, predictor, both, head, compiling=False)
    assert found.headline == f"{said}; other Python around kernels changed, too: run"


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
    functions = [item.text for item in changed_functions(*trees, changes(*trees))[0]]
    assert functions == ["pkg/caller.py::call: calls forward with torch.ones(4) where it was torch.zeros(4)"]


def test_a_function_that_moved_to_another_file_is_not_removed(tmp_path):
    """As in conch cb8a8472: with the kernels that it launches."""
    text = textwrap.dedent(KERNEL)
    place = text.index("def forward")
    sides = {
        "base": {"pkg/op.py": text, "pkg/more.py": "import triton\n"},
        "head": {"pkg/op.py": text[:place], "pkg/more.py": "import triton\nfrom .op import run\n" + text[place:].replace("x, 2)", "x, 4)")},
    }
    for side, files in sides.items():
        (tmp_path / side / "pkg").mkdir(parents=True)
        for path, content in files.items():
            (tmp_path / side / path).write_text(content)
    trees = [FolderTree(folder=tmp_path / side, label=side) for side in sides]
    assert [item.text for item in changed_functions(*trees, changes(*trees))[0]] == [
        "pkg/more.py::forward (moved from pkg/op.py): calls torch.mul with 4 where it was 2",
        "pkg/more.py::Op.apply (moved from pkg/op.py)",
    ]


def test_what_launches_the_kernels_of_a_new_file_is_named(tmp_path):
    """As in FlagGems 87e7ff6b4e."""
    for side, text in (("base", None), ("head", textwrap.dedent(KERNEL))):
        (tmp_path / side).mkdir()
        if text:
            (tmp_path / side / "op.py").write_text(text)
    trees = [FolderTree(folder=tmp_path / side, label=side) for side in ("base", "head")]
    assert [item.text for item in changed_functions(*trees, changes(*trees))[0]] == [
        "op.py::run (new): now launches double and now calls sized(x)",
        "op.py::forward (new): now calls run(x) (if fast); torch.mul(x, 2) (if not fast)",
        "op.py::Op.apply (new): now calls forward(x)",
    ]


def test_a_function_by_another_name_is_the_same(tmp_path):
    """As in flash-linear-attention 465bc33079."""
    found = named(tmp_path, one=("def run(", "def launched("), other=("return run(", "return launched("))
    assert found == [
        "pkg/op.py::forward: no longer calls run(x) (if fast) and now calls launched(x) (if fast)",
        "pkg/op.py::launched (was run)",
    ]


def test_what_calls_what_launches_a_kernel_is_around_it_by_two_hands(tmp_path):
    """As in axolotl 45a17e9251: by an import within a function."""
    more = {
        "pkg/far.py": "def far(x):\n    from .layer import layer\n    return layer(x)\n",
        "pkg/layer.py": "from .op import forward\n\n\ndef layer(x):\n    return forward(x)\n",
        "pkg/apart.py": "def apart(x):\n    return x.sum()\n",
    }
    for side in ("base", "head"):
        (tmp_path / side / "pkg").mkdir(parents=True)
        for path, text in {**BASE, **more}.items():
            text = textwrap.dedent(text)
            (tmp_path / side / path).write_text(text.replace("(x)\n", "(x) + 1\n").replace("sum()", "mean()") if side == "head" else text)
    trees = [FolderTree(folder=tmp_path / side, label=side) for side in ("base", "head")]
    functions = [item.text.partition(" ")[0].rstrip(":") for item in changed_functions(*trees, changes(*trees))[0]]
    assert "pkg/far.py::far" in functions and not any("apart" in name for name in functions)


def test_what_a_library_makes_kernels_of_is_named_where_that_is_given_something_else(tmp_path):
    """As in FlagGems dea29abd: a configuration by a name of the file, for a function that a decorator of its own makes a kernel of."""
    text = "import triton\nfrom made import Config, pointwise\n\nconfig = Config(512, wide=True)\n\n\n"
    text += "@pointwise(config=config)\n@triton.jit\ndef copy(x):\n    return x\n"
    for side, content in (("base", text), ("head", text.replace(", wide=True", ""))):
        (tmp_path / side).mkdir()
        (tmp_path / side / "copy.py").write_text(content)
    trees = [FolderTree(folder=tmp_path / side, label=side) for side in ("base", "head")]
    functions = [item.text for item in changed_functions(*trees, changes(*trees))[0]]
    assert functions == ["copy.py::copy (its decorators are given something else, which is not compared)"]


def test_a_file_of_configurations_that_is_not_read_is_named(repository, predictor):
    text = {"runtime/tune_configs.yaml": "fill:\n- BLOCK: 64\n"}
    found = compared_files(repository, predictor, text, {"runtime/tune_configs.yaml": "fill:\n- BLOCK: 128\n"}, compiling=False)
    assert "runtime/tune_configs.yaml changed: what kernels are tuned over is not read from it." in found.warnings


def test_of_a_new_class_the_methods_that_call_something_are_named(tmp_path):
    """As in FlagGems 4478beb9: what a function did is done by an operator's `forward`."""
    text = textwrap.dedent(KERNEL)
    operator = "class Scale:\n    def forward(ctx, x):\n        double[(1,)](x, BLOCK=64)\n\n    def plain(ctx, x):\n        return x\n"
    head = text.replace("    double[(sized(x),)](x, BLOCK=64)\n", "    Scale.apply(x)\n") + "\n" + operator
    for side, content in (("base", text), ("head", head)):
        (tmp_path / side).mkdir()
        (tmp_path / side / "k.py").write_text(content)
    trees = [FolderTree(folder=tmp_path / side, label=side) for side in ("base", "head")]
    assert [item.text for item in changed_functions(*trees, changes(*trees))[0]] == [
        "k.py::run: no longer launches double and no longer calls sized(x) and now calls Scale.apply(x)",
        "k.py::Scale.forward (new): now launches double",
    ]


def test_a_function_that_is_defined_twice_is_compared_twice(tmp_path):
    """As in unsloth 144190bd: of two definitions, one for each version of a library, both changed."""
    body = "    return kernel[(1,)](torch.{}(x))\n"
    twice = "import torch, triton\n\nif NEW:\n    def run(x):\n    " + body + "else:\n    def run(x):\n    " + body
    for side, names in (("base", ("sin", "cos")), ("head", ("tan", "exp"))):
        (tmp_path / side).mkdir()
        (tmp_path / side / "k.py").write_text(twice.format(*names))
    trees = [FolderTree(folder=tmp_path / side, label=side) for side in ("base", "head")]
    said = "no longer calls torch.{0}(x) (if {2}) and now calls torch.{1}(x) (if {2})"
    functions = [item.text for item in changed_functions(*trees, changes(*trees))[0]]
    assert functions == [f"k.py::run: {said.format('sin', 'tan', 'NEW')}; defined again, it {said.format('cos', 'exp', 'not NEW')}"]


def test_a_file_that_calls_what_launches_is_around_kernels_by_that_alone(tmp_path):
    """Whatever it is called by; kernels and the file between are as before."""
    between = "from .op import run as launch\n"
    for side, call in (("base", "launch(x)"), ("head", "launch(x.contiguous())")):
        (tmp_path / side / "pkg").mkdir(parents=True)
        (tmp_path / side / "pkg" / "op.py").write_text(textwrap.dedent(KERNEL))
        (tmp_path / side / "pkg" / "between.py").write_text(between)
        (tmp_path / side / "pkg" / "layer.py").write_text(f"from .between import launch\n\ndef layer(x):\n    return {call}\n")
    trees = [FolderTree(folder=tmp_path / side, label=side) for side in ("base", "head")]
    functions = [item.text for item in changed_functions(*trees, changes(*trees))[0]]
    assert functions == ["pkg/layer.py::layer: calls launch with x.contiguous() where it was x"]


def test_decorators_are_no_calls_and_methods_that_launch_are(tmp_path):
    decorated = ("def forward(x, fast: bool = True):", "@torch.compile(fullgraph=True)\ndef forward(x, fast: bool = True):")
    assert named(tmp_path, all=decorated) == ["pkg/op.py::forward: is now decorated with torch.compile(fullgraph=True)"]
    method = ("        return forward(x)", "        return self.twice(x)\n\n    def twice(self, x):\n        return run(run(x))")
    assert "pkg/op.py::Op.apply: no longer calls forward(x) and now calls self.twice(x)" in named(tmp_path, all=method)


def test_a_helper_that_has_another_name_is_neither_new_nor_a_change_of_what_calls_it(repository, predictor):
    """Under a flag that no launch sets."""
    text = textwrap.dedent(KERNEL).replace("from .helpers import sized", "def sized(x): return 4")
    helper = "@triton.jit\ndef gate(x):\n    return x * 2\n\n@triton.jit\ndef double"
    text = text.replace("@triton.jit\ndef double", helper).replace("BLOCK: tl.constexpr)", "BLOCK: tl.constexpr, FLAG: tl.constexpr = '')")
    text = text.replace("    tl.store(", "    if FLAG == 'on':\n        x = gate(x)\n    tl.store(")
    found = compared_files(repository, predictor, {"op.py": text}, {"op.py": text.replace("gate(x)", "gated(x)")}, compiling=False)
    assert found.around == ("op.py::gated (was gate)",) and not found.subjects


def test_a_long_call_says_what_it_is_given_otherwise_and_a_cut_list_folds(repository, predictor):
    """As in MagiAttention a77026d3c4 and vllm-triton-backend 3422877c6f."""
    given = ", ".join(f"argument_{number}=x" for number in range(40))
    base = {"op.py": textwrap.dedent(KERNEL).replace("from .helpers import sized", "def sized(x): return 4")}
    base["op.py"] = base["op.py"].replace(
        "    return run(x) if", f"    out = sized(x)\n    out.group({given}, barrier=x)\n    return run(x) if"
    )
    other = base["op.py"].replace("barrier=x", "barrier=True")
    found = compared_files(repository, predictor, base, {"op.py": other}, compiling=False)
    assert found.around == ("op.py::forward: calls out.group with barrier=True where it was barrier=x",)
    conditions = "".join(f"    if x.shape[{number}] > {number}:\n        torch.cat({given}, dim={number})\n" for number in range(8))
    head = {"op.py": base["op.py"].replace("    return run(x) if", f"{conditions}    return run(x) if")}
    comments = [to_comment(compared_files(repository, predictor, base, side, compiling=False)) for side in (head, {"op.py": other})]
    long, short = (comment.partition("- forward ")[2].partition("\n")[0] for comment in comments)
    assert long.endswith("…") and not short.endswith("…")
    assert ["1 function around kernels that changed" in comment for comment in comments] == [True, False]
    assert "if x.shape\\[7\\] &gt; 7" in comments[0].partition("1 function around")[2] and "&gt; 7" not in long
