"""Kernels whose own file is unchanged: what they import from another changed."""

from __future__ import annotations

import ast

import pytest

from advisor.comparison import Options, compare_trees
from advisor.comparison.kernels import importers
from advisor.comparison.kernels.importers import changed_names, located
from advisor.comparison.trees.trees import FolderTree
from advisor.python_source.imports import Import
from advisor.python_source.module_names import ModuleNames

from .repository import compared

HEAD = "import triton\nimport triton.language as tl\n"
HELPERS = (
    HEAD
    + """
CHUNK = tl.constexpr(FACTOR * 64)


@triton.jit
def scale(x):
    '''Scales.'''
    return x * FACTOR


@triton.jit
def other(x):
    return x + 1


def configs():
    return [triton.Config({"BLOCK": FACTOR * 32})]
"""
)
KERNELS = (
    HEAD
    + """IMPORT


@triton.jit
def body(x):
    tl.store(x, SCALE(tl.load(x)))


@triton.jit
def constant(x):
    tl.store(x + tl.arange(0, CHUNK), 0)


@triton.autotune(configs=configs(), key=[])
@triton.jit
def tuned(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 0)


@triton.jit
def apart(x):
    tl.store(x, OTHER(tl.load(x)))
"""
)
SETTINGS = '[kernels."pkg/k.py::body"]\nfamily = "gemm"\nproblems = [{M = 64, N = 512, K = 512}]\n'


def helpers(factor: int) -> str:
    return HELPERS.replace("FACTOR", str(factor))


def kernels(statement: str, prefix: str = "") -> str:
    text = KERNELS.replace("IMPORT", statement).replace("SCALE", f"{prefix}scale").replace("OTHER", f"{prefix}other")
    return text.replace("(0, CHUNK)", f"(0, {prefix}CHUNK)").replace("configs()", f"{prefix}configs()")


def titles(comparison) -> set[str]:
    return {subject.title for subject in comparison.subjects if not subject.path.endswith("helpers.py")}


@pytest.mark.parametrize(
    ("statement", "prefix", "files"),
    [
        ("from .helpers import scale, other, CHUNK, configs", "", {}),
        ("from pkg.helpers import scale, other, CHUNK, configs", "", {}),
        ("from .helpers import *", "", {}),
        ("from . import helpers", "helpers.", {}),
        ("import pkg.helpers as h", "h.", {}),
        (
            "from lib import scale, other, CHUNK, configs",
            "",
            {"lib/__init__.py": "from .inner import *\n", "lib/inner.py": "from pkg.helpers import scale, other, CHUNK, configs\n"},
        ),
    ],
)
def test_kernels_that_import_what_changed_are_compared(repository, predictor, statement, prefix, files):
    base = repository.commit({"pkg/__init__.py": "", "pkg/helpers.py": helpers(2), "pkg/k.py": kernels(statement, prefix), **files})
    head = repository.commit({"pkg/helpers.py": helpers(4)})
    found = compared(repository, base, head, predictor)
    assert titles(found) == {"pkg/k.py::body", "pkg/k.py::constant", "pkg/k.py::tuned"}
    notes = [subject.notes[0] for subject in found.subjects if subject.path == "pkg/k.py"]
    assert set(notes) == {"The file is unchanged; what it imports changed with pkg/helpers.py."}
    documented = repository.commit({"pkg/helpers.py": "# a comment\n" + helpers(4).replace("Scales.", "Scales it.")})
    assert not compared(repository, head, documented, predictor).subjects


def test_problems_of_an_unchanged_file_are_those_that_are_named(repository, predictor):
    text = kernels("from .helpers import scale, other, CHUNK, configs")
    space = "{'BLOCK_SIZE_M': [16], 'BLOCK_SIZE_N': [64], 'BLOCK_SIZE_K': [64], 'GROUP_SIZE_M': [1]}"
    described = f"{text}\nKERNELS = {{'body': {{'space': {space}}}}}\n"
    base = repository.commit({"pkg/helpers.py": helpers(2), "pkg/k.py": described, "advisor.toml": SETTINGS})
    head = repository.commit({"pkg/helpers.py": helpers(4)})
    subject = next(each for each in compared(repository, base, head, predictor).subjects if each.title == "pkg/k.py::body")
    assert subject.static and not any("neither advisor.toml" in note for note in subject.notes)


def test_a_helper_that_is_removed_or_in_another_folder(repository, predictor):
    text = kernels("from shared.helpers import scale, other, CHUNK, configs")
    base = repository.commit({"shared/helpers.py": helpers(2), "pkg/k.py": text})
    head = repository.commit({"shared/helpers.py": None})
    assert titles(compared(repository, base, head, predictor)) == {f"pkg/k.py::{n}" for n in ("body", "constant", "tuned", "apart")}


def test_folders_are_compared_alike(tmp_path, predictor):
    for side, factor in (("base", 2), ("head", 4)):
        (tmp_path / side / "pkg").mkdir(parents=True)
        (tmp_path / side / "pkg" / "helpers.py").write_text(helpers(factor))
        (tmp_path / side / "pkg" / "k.py").write_text(kernels("from .helpers import scale, other, CHUNK, configs"))
    trees = [FolderTree(folder=tmp_path / side, label=side) for side in ("base", "head")]
    found = compare_trees(*trees, Options(compiling=False), predictor)
    assert titles(found) == {"pkg/k.py::body", "pkg/k.py::constant", "pkg/k.py::tuned"}


def test_who_imports_nothing_that_changed_is_not_looked_at(repository, predictor):
    text = kernels("from .helpers import scale, other, CHUNK, configs")
    base = repository.commit({"pkg/helpers.py": helpers(2), "pkg/k.py": text})
    head = repository.commit({"pkg/helpers.py": helpers(2) + "\nNEW = 1\n"})
    assert not [title for title in titles(compared(repository, base, head, predictor)) if title.startswith("pkg/k.py")]


@pytest.mark.parametrize(
    ("base", "head", "changed"),
    [
        ("A = 1\nB = A + 1\nC = 3", "A = 2\nB = A + 1\nC = 3", {"A", "B"}),
        ("L = []\nM = L", "L = []\nL.append(1)\nM = L", {"L", "M"}),
        ("def f():\n    return g()\ndef g():\n    return 1", "def f():\n    return g()\ndef g():\n    return 2", {"f", "g"}),
        ("if X:\n    A = 1\nelse:\n    A = 2", "if Y:\n    A = 1\nelse:\n    A = 2", {"A"}),
        ("from m import a", "from n import a", {"a"}),
        ("A = 1", None, {"*"}),
        ("A = 1\nclass C:\n    x = A", "A = 2\nclass C:\n    x = A", {"A", "C"}),
        ("A = 1\nclass C:\n    def f(self): return A", "A = 2\nclass C:\n    def f(self): return A", {"A"}),
    ],
)
def test_names_that_a_change_touches(base, head, changed):
    versions = (ModuleNames(ast.parse(text)) if text is not None else None for text in (base, head))
    assert changed_names(*versions) == changed


def test_what_limits_leave_out_is_said(repository, predictor, monkeypatch):
    files = {f"far/a{n}.py": "helpers = scale = 1\n" for n in range(5)}
    text = kernels("from .helpers import scale, other, CHUNK, configs")
    base = repository.commit({"pkg/helpers.py": helpers(2), "pkg/k.py": text, **files})
    head = repository.commit({"pkg/helpers.py": helpers(4)})
    monkeypatch.setattr(importers, "LARGEST_IMPORTERS", 2)
    found = compared(repository, base, head, predictor)
    assert "pkg/k.py::body" in titles(found)  # the nearest are read first
    assert found.warnings == ("4 files that may import a changed one were not read: more than 2 mention one.",)
    monkeypatch.setattr(importers, "LARGEST_IMPORTED", 0)
    found = compared(repository, base, repository.commit({"pkg/k.py": kernels("from .helpers import *")}), predictor)
    assert any("need more than" in note for subject in found.subjects for note in subject.notes)


def test_hostile_imports_are_not_followed_out_of_the_tree(repository, predictor, tmp_path):
    (tmp_path / "outside.py").write_text(helpers(2))
    text = kernels("from ...outside import scale, other, CHUNK, configs\nfrom .k import *\nfrom .link import *")
    base = repository.commit({"pkg/k.py": text, "pkg/helpers.py": "from .k import *\n", "pkg/link.py": tmp_path / "outside.py"})
    head = repository.commit({"pkg/helpers.py": "from .k import *\nx = 1\n"})
    assert not compared(repository, base, head, predictor).subjects


@pytest.mark.parametrize(
    ("module", "level", "found"),
    [
        ("b", 0, "a/c/b.py"),
        ("b", 1, "a/c/b.py"),
        ("b", 2, "a/b/__init__.py"),
        ("a.b", 0, "a/b/__init__.py"),
        ("", 2, "a/__init__.py"),
        ("b", 4, None),
        ("x", 0, None),
    ],
)
def test_where_an_import_leads(module, level, found):
    paths = {"a/__init__.py", "a/b/__init__.py", "a/c/b.py", "a/c/k.py"}
    assert located(paths, "a/c/k.py", Import(alias="n", module=module, name="n", level=level)) == found
