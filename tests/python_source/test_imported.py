"""Names that a file takes from others, or gives a second time: followed in files nearby, parsed and never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.python_source.imported import function_meant
from advisor.python_source.rebuild import RebuildError, rebuild
from advisor.python_source.source import SourceFile, parse_source

HEAD = "import triton\nimport triton.language as tl\n"
TWICE = HEAD + "\n\n@triton.jit\ndef twice(x):\n    return x + x\n"
KERNEL = "\n\n@triton.jit\ndef k(x):\n    tl.store(x, BODY)\n"
ROUND = "\n\n@triton.jit\ndef up(x):\n    return x + 1\n\n\n@triton.jit\ndef down(x):\n    return x - 1\n\n\n"


def source_of(folder: Path, body: str, head: str = "", **files: str) -> SourceFile:
    """A file with a kernel that stores `body`, and others beside it."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return parse_source(HEAD + head + KERNEL.replace("BODY", body), folder / "k.py").on("cuda")


def rebuilt(source: SourceFile) -> str:
    return "\n".join(rebuild(source, "k").modules.values())


@pytest.mark.parametrize("module", [".helpers", "helpers"])
def test_all_names_of_a_file_may_be_imported(module: str, tmp_path: Path) -> None:
    helpers = TWICE + "SIZE = tl.constexpr(64)\n\n\ndef run(x):\n    raise SystemExit\n"
    source = source_of(tmp_path, "twice(SIZE)", f"from {module} import *\nLIMIT = SIZE\n", helpers=helpers)
    found = rebuilt(source)
    assert "return x + x" in found and "SIZE = tl.constexpr(64)" in found and "SystemExit" not in found
    assert source.constant("LIMIT").value == 64
    kernel = function_meant(source, "twice")
    assert kernel is not None and kernel[1] == "twice" and kernel[0].path == tmp_path / "helpers.py"


def test_files_hand_on_all_names_and_the_last_that_has_one_counts(tmp_path: Path) -> None:
    other = TWICE.replace("x + x", "x * 2")
    files = {"first": TWICE, "second": "from inner import *\n", "inner": other, "third": "from missing import *\n"}
    head = "from first import *\nfrom second import *\nfrom third import *\n"
    found = rebuilt(source_of(tmp_path, "twice(1)", head, **files))
    assert "x * 2" in found and "x + x" not in found


@pytest.mark.parametrize(
    ("name", "listed"), [("_twice", ""), ("twice", "__all__ = ['other']\n"), ("twice", "from helpers import *\n")], ids=str
)
def test_names_that_a_file_does_not_give_are_not_found_in_it(name: str, listed: str, tmp_path: Path) -> None:
    helpers = TWICE.replace("def twice", f"def {name}" if "__all__" in listed or name != "twice" else "def other") + listed
    with pytest.raises(RebuildError, match=rf"{name} is neither a literal of the file, nor triton's, nor another kernel") as caught:
        rebuilt(source_of(tmp_path, f"{name}(1)", "from helpers import *\n", helpers=helpers))
    assert "import *" not in str(caught.value)


def test_modules_that_are_not_nearby_are_named(tmp_path: Path) -> None:
    with pytest.raises(RebuildError, match=r"twice.* got a name that may come with from \.far import \*, of which no file is nearby"):
        rebuilt(source_of(tmp_path, "twice(1)", "from .far import *\nfrom .near import *\n", near=TWICE.replace("twice", "thrice")))


@pytest.mark.parametrize(
    "head",
    [
        ROUND + "rounded = up\n",
        ROUND + "other = up\nrounded = other\n",
        "from helpers import up\nrounded = up\n",
        "from helpers import named as rounded\n",
        "from helpers import *\nrounded = named\n",
    ],
)
def test_another_name_of_a_kernel_is_the_kernel(head: str, tmp_path: Path) -> None:
    source = source_of(tmp_path, "rounded(1.0)", head, helpers=HEAD + ROUND + "named = up\n")
    found = rebuilt(source)
    assert "x + 1" in found and "x - 1" not in found
    kernel = function_meant(source, "rounded")
    assert kernel is not None and kernel[1] == "up"
    assert source.called == ({"up"} if "up" in source.definitions else set())


@pytest.mark.parametrize("head", ["import tools\ndouble = tools.twice\n", "from handed import double\n"])
def test_a_name_for_a_kernel_of_a_whole_file_is_the_kernel(head: str, tmp_path: Path) -> None:
    found = rebuilt(source_of(tmp_path, "double(1)", head, tools=TWICE, handed="import tools as t\ndouble = t.twice\n"))
    assert "return x + x" in found
    with pytest.raises(RebuildError, match="double"):
        rebuilt(source_of(tmp_path, "double(1)", head.replace("twice", "thrice"), tools=TWICE, handed="import tools\ndouble = tools.no\n"))


def test_which_of_two_kernels_a_name_is_must_be_known(tmp_path: Path) -> None:
    head = ROUND + "import torch\nif torch.backends.cudnn.enabled:\n    rounded = down\nelse:\n    rounded = up\n"
    with pytest.raises(RebuildError, match="rounded is defined in 2 branches"):
        rebuilt(source_of(tmp_path, "rounded(1.0)", head))


@pytest.mark.parametrize(("backend", "kept", "other"), [("cuda", "x + 1", "x - 1"), ("hip", "x - 1", "x + 1")])
def test_a_branch_for_the_target_says_which_of_two_kernels_a_name_is(backend: str, kept: str, other: str, tmp_path: Path) -> None:
    """As flash-linear-attention names its softplus, in a file that others import it from."""
    head = "import torch\n" + ROUND + "if torch.version.hip is None:\n    rounded = up\nelse:\n    rounded = down\n"
    for files in ({"head": head}, {"head": "from helpers import rounded\n", "helpers": HEAD + head}):
        source = source_of(tmp_path, "rounded(1.0)", files.pop("head"), **files)
        assert kept in rebuilt(source.on(backend)) and other not in rebuilt(source.on(backend))


def test_another_name_of_a_kernel_compiles(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    from advisor.compiled.compiler.kernel import Target
    from advisor.compiled.launches.launch import KernelLaunch, inspect_launch

    head = "from helpers import *\n" + ROUND + "rounded = up\n"
    source = source_of(tmp_path, "rounded(twice(tl.load(x)))", head, helpers=TWICE)
    assert inspect_launch(KernelLaunch(source=source, kernel="k"), Target(backend="cuda", arch=90)).compiled.ttir.count("addf") == 2


@pytest.mark.parametrize("configs", ["spaces()", "spaces(warps=8)"])
def test_configurations_may_be_made_by_a_function_of_another_file(configs: str, tmp_path: Path) -> None:
    files = {
        "spaces": "from sizes import SIZES\nimport triton\n\n\ndef spaces(warps=4):\n"
        "    return [triton.Config({'BLOCK': size}, num_warps=warps) for size in SIZES]\n",
        "sizes": "SIZES = [64, 128]\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    kernel = f"@triton.autotune(configs={configs}, key=['n'])\n@triton.jit\ndef k(x, n, BLOCK: tl.constexpr):\n    pass\n"
    tuned = parse_source(f"{HEAD}from spaces import spaces\n{kernel}", tmp_path / "k.py").kernel("k").autotune
    assert tuned is not None and tuned.problem is None
    assert [(c.parameters["BLOCK"], c.num_warps) for c in tuned.configs] == [(b, 8 if "8" in configs else 4) for b in (64, 128)]
