"""What stands in the place of what was compared before, and is not compared itself, does not pass: another text that git writes out, a link
or a submodule, an entry under an odd key, and a kernel that can no longer be read as one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.comparison import compare
from tests.comparison.conftest import TABLE, entry, table
from tests.comparison.repository import Content, Repository

Capture = pytest.CaptureFixture[str]
HEAD = "import triton\nimport triton.language as tl\n\n\n"
PLAIN = "def k(x, N: tl.constexpr = 16):\n    tl.store(x, 1.0)\n"
KERNEL = HEAD + "@triton.jit\n" + PLAIN
CHANGED = KERNEL.replace("1.0", "2.0")
SOUND, UNFIT = table(M1=entry(), M64=entry()), table(M1=entry(), M64={**entry(), "BLOCK_SIZE_M": 512, "BLOCK_SIZE_N": 512})
Files = dict[str, Content]
WRITTEN = "another text than is compared"
NOT_FOLLOWED = "is not followed"


def compared(base: Files, head: Files, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    repository = Repository(folder / "repository")
    repository.commit(base)
    repository.commit(head)
    monkeypatch.chdir(repository.folder)
    return main(["compare", "HEAD^", "HEAD", "--gpu", "H100", "--no-compile", "--format", "md"])


MACRO = "[attr]other working-tree-encoding=UTF-7\n*.txt other\n"
REWRITTEN: dict[str, tuple[Files, Files]] = {
    "a macro of the base": ({"k.py": KERNEL, ".gitattributes": MACRO}, {".gitattributes": MACRO + "*.py other\n"}),
    "a macro, from a folder": ({"a/k.py": KERNEL, ".gitattributes": "[attr]x ident\n"}, {"a/.gitattributes": "*.py x\n"}),
    "a macro's exception": ({"k.py": KERNEL, ".gitattributes": MACRO + "*.py other\n*.py !working-tree-encoding\n"},
                            {".gitattributes": MACRO + "*.py other\n"}),
    "the order": ({"k.py": KERNEL, ".gitattributes": "*.py ident\n*.py -ident\n"}, {".gitattributes": "*.py -ident\n*.py ident\n"}),
    "a move": ({"k.py": KERNEL, "d/.gitattributes": "* working-tree-encoding=UTF-7\n"}, {"k.py": None, "d/k.py": KERNEL}),
    "a new file": ({"d/.gitattributes": "* working-tree-encoding=UTF-7\n"}, {"d/k.py": KERNEL}),
    "a table": ({TABLE: SOUND, ".gitattributes": MACRO}, {".gitattributes": MACRO + "*.json other\n"}),
}  # fmt: skip


@pytest.mark.parametrize("how", list(REWRITTEN))
def test_attributes_that_reach_further_do_not_pass(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert compared(*REWRITTEN[how], tmp_path, monkeypatch) == 1
    assert WRITTEN in capsys.readouterr().out


@pytest.mark.parametrize("attributes", ["*.md working-tree-encoding=UTF-16\n", "*.py working-tree-encoding=utf-8\n", "*.py -ident\n"])
def test_attributes_that_rewrite_nothing_compared_pass(
    attributes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert compared({"k.py": KERNEL}, {"k.py": CHANGED, ".gitattributes": attributes}, tmp_path, monkeypatch) == 0
    assert WRITTEN not in capsys.readouterr().out


LINKED: dict[str, tuple[Files, Files]] = {
    "a folder of kernels": ({"a/k.py": KERNEL, "old/k.py": CHANGED}, {"a": Path("old")}),
    "a folder out of the tree": ({"a/k.py": KERNEL}, {"a": Path("/tmp")}),
    "a folder of tables": ({f"a/{TABLE}": SOUND}, {"a": Path("..")}),
    "a folder that a link led to": ({"a": Path("new"), "new/k.py": KERNEL, "old/k.py": CHANGED}, {"a": Path("old")}),
    "a new table": ({"x": UNFIT}, {TABLE: Path("x")}),
    "a new kernel": ({"x.txt": KERNEL}, {"k.py": Path("x.txt")}),
    "what a table's link leads to": ({"x": SOUND, TABLE: Path("x")}, {"x": UNFIT}),
    "what a kernel's link leads to": ({"x.txt": KERNEL, "k.py": Path("x.txt")}, {"x.txt": CHANGED}),
    "a link to a link": ({"x.txt": KERNEL, "y.txt": Path("x.txt"), "k.py": Path("y.txt"), "z.txt": CHANGED}, {"y.txt": Path("z.txt")}),
    "links in a circle": ({"a/k.py": KERNEL}, {"a": Path("b"), "b": Path("a")}),
}


def put(files: Files, repository: Repository) -> None:
    """A folder goes before a link takes its place."""
    for path, content in files.items():
        place = repository.folder / path
        if isinstance(content, Path) and place.is_dir() and not place.is_symlink():
            repository.git("rm", "-rq", path)
    repository.commit(files)


@pytest.mark.parametrize("how", list(LINKED))
def test_what_a_link_leads_to_does_not_pass(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    base, head = LINKED[how]
    repository = Repository(tmp_path / "repository")
    repository.commit(base)
    repository.git("branch", "base")
    put(head, repository)
    monkeypatch.chdir(repository.folder)
    assert main(["compare", "base", "HEAD", "--gpu", "H100", "--no-compile", "--format", "md"]) == 1
    assert NOT_FOLLOWED in capsys.readouterr().out


def test_a_submodule_in_a_folders_place_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    repository = Repository(tmp_path / "repository")
    first = repository.commit({"a/k.py": KERNEL})
    repository.git("rm", "-rq", "--cached", "a")
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{first},a")
    repository.git("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "x")
    monkeypatch.chdir(repository.folder)
    assert main(["compare", first, "HEAD", "--gpu", "H100", "--no-compile", "--format", "md"]) == 1
    assert NOT_FOLLOWED in capsys.readouterr().out


def test_a_table_in_a_links_place_is_judged_as_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert compared({"x": SOUND, TABLE: Path("x")}, {TABLE: UNFIT}, tmp_path, monkeypatch) == 1
    assert "cannot-launch" in capsys.readouterr().out


@pytest.mark.parametrize("moved", ["kept", "changed"])
def test_a_link_to_where_a_folder_went_is_a_move(moved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    repository = Repository(tmp_path / "repository")
    first = repository.commit({"a/k.py": KERNEL})
    repository.git("mv", "a", "b")
    repository.commit({"a": Path("b"), "b/k.py": KERNEL if moved == "kept" else CHANGED})
    monkeypatch.chdir(repository.folder)
    main(["compare", first, "HEAD", "--gpu", "H100", "--no-compile", "--format", "md"])
    assert NOT_FOLLOWED not in capsys.readouterr().out


@pytest.mark.parametrize("key", ["6_4", " 64", "+64", "064", "64\n", "٦٤", "-64", "0", "99999999999999999999"])
@pytest.mark.parametrize("fault", ["does not fit", "is no configuration"])
def test_an_entry_under_a_key_that_only_the_stacks_read_is_judged(
    key: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    bad = {**entry(), "BLOCK_SIZE_M": 512, "BLOCK_SIZE_N": 512} if fault == "does not fit" else {"BLOCK_SIZE_M": "x"}
    content = json.dumps({"1": entry(), "64": entry(), key: bad})
    assert compared({TABLE: SOUND}, {TABLE: content}, tmp_path, monkeypatch) == 1


@pytest.mark.parametrize("key", ["²", "x", "6 4", "9" * 5_000], ids=["square", "letter", "two numbers", "digits"])
def test_a_key_that_no_stack_reads_fails_in_words(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    content = json.dumps({"1": entry(), "64": entry(), key: entry()})
    assert compared({TABLE: SOUND}, {TABLE: content}, tmp_path, monkeypatch) == 1
    assert "internal failure" not in (said := capsys.readouterr().out) and "Certain to fail" in said


LOST = {
    "a list of decorators": HEAD + "@[triton.jit][0]\n" + PLAIN,
    "a part of a decorator": HEAD + "import functools\n\n\n@functools.partial(triton.jit)\n" + PLAIN,
    "a decorator of its own": HEAD + "def jit(function):\n    return triton.jit(function)\n\n\n@jit\n" + PLAIN,
    "getattr": HEAD + "@getattr(triton, 'jit')\n" + PLAIN,
    "another file's decorator": "from compat import jit, tl\n\n\n@jit\n" + PLAIN,
    "a plain function that is launched": HEAD + PLAIN + "\n\nk[(1,)](None)\n",
    "another file's kernel that is launched": "from other import bad as k\n\n\nk[(1,)](None)\n",
    "a coroutine": HEAD + "@triton.jit\nasync " + PLAIN,
    "another value": KERNEL + "k = make()\n",
    "a name that is given in passing": KERNEL + "print(k := bad)\n",
    "triton bound again": KERNEL + "tl = None\n",
    "deleted": KERNEL + "del k\n",
}


@pytest.mark.parametrize("how", list(LOST))
def test_a_kernel_that_can_no_longer_be_read_as_one_does_not_pass(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert compared({"k.py": KERNEL}, {"k.py": LOST[how]}, tmp_path, monkeypatch) == 1
    assert "failed: k.py::k" in capsys.readouterr().out


@pytest.mark.parametrize("text", [HEAD + PLAIN, "from other import k\n", "import triton  # jit\n", KERNEL.replace("def k(", "def other(")])
def test_a_kernel_may_go(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert compared({"k.py": KERNEL}, {"k.py": text}, tmp_path, monkeypatch) in (0, 5)


SHADOWS: dict[str, Content] = {
    "k/__init__.py": CHANGED,
    "k/__init__.cpython-311-x86_64-linux-gnu.so": "x",
    "k.so": "x",
    "k.abi3.so": "x",
    "__pycache__/k.cpython-311.pyc": "x",
    "__pycache__/k.cpython-312.opt-1.pyc": "x",
    "k": Path("b"),
}


@pytest.mark.parametrize("path", list(SHADOWS))
def test_what_python_takes_in_a_files_place_does_not_pass(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert compared({"k.py": KERNEL, "b/__init__.py": "x = 1\n"}, {path: SHADOWS[path]}, tmp_path, monkeypatch) == 1
    assert "failed: k.py" in (said := capsys.readouterr().out) and "in its place" in said


@pytest.mark.parametrize("path", ["z.so", "k2/__init__.py", "k.pyi", "a/k.so", "__pycache__/z.cpython-311.pyc"])
def test_what_python_takes_for_another_file_passes(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert compared({"k.py": KERNEL}, {path: "x"}, tmp_path, monkeypatch) == 5


def test_a_file_that_becomes_a_package_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert compared({"k.py": KERNEL}, {"k.py": None, "k/__init__.py": KERNEL}, tmp_path, monkeypatch) == 5


def test_a_new_file_of_kernels_that_is_no_python_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert compared({"k.py": KERNEL}, {"k.py": None, "z.py": KERNEL + "def (\n"}, tmp_path, monkeypatch) == 1
    assert "invalid syntax" in capsys.readouterr().out


@pytest.mark.parametrize("last", ["a table", "a kernel"])
def test_nothing_certain_hides_behind_many_files(last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(compare, "LARGEST_CHANGES", 2)
    base: Files = {f"{name}.py": KERNEL for name in "abcz"} | {f"z/{TABLE}": SOUND}
    worse: Files = {f"z/{TABLE}": UNFIT} if last == "a table" else {"z.py": KERNEL + "def (\n"}
    assert compared(base, {f"{name}.py": CHANGED for name in "abc"} | worse, tmp_path, monkeypatch) == 1
    assert "more files were not judged" in capsys.readouterr().out
