"""What files import from others of their tree: helpers of kernels."""

from __future__ import annotations

import pytest

from advisor.comparison.kernels import importers
from advisor.comparison.kernels.importers import located
from advisor.comparison.unseen import NOT_COMPARED
from advisor.python_source.imports import Import
from advisor.rendering.comparison_files import to_text

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
    tl.store(x, scale(tl.load(x)))
"""
)


def helpers(factor: int) -> str:
    return HELPERS.replace("FACTOR", str(factor))


def kernels(statement: str) -> str:
    return KERNELS.replace("IMPORT", statement)


def test_a_helper_that_stands_in_one_more_place_is_no_helper_that_changed(repository, predictor):
    inner = "\n\ndef test_NUMBER():\n    @triton.jit\n    def added(x, y):\n        return x + y\n"
    sides = [helpers(2) + "".join(inner.replace("NUMBER", str(number)) for number in range(count)) for count in (1, 2)]
    base, head = (repository.commit({"tests.py": text}) for text in sides)
    assert compared(repository, base, head, predictor).subjects == ()


def test_a_helper_that_a_file_defines_anew_is_its_own(repository, predictor):
    own = "\n\n@triton.jit\ndef scale(x):\n    return x\n"
    files = {"pkg/__init__.py": "", "pkg/helpers.py": helpers(2), "pkg/k.py": kernels("from .helpers import scale") + own}
    base, head = repository.commit(files), repository.commit({"pkg/helpers.py": helpers(4)})
    assert {subject.path for subject in compared(repository, base, head, predictor).subjects} == {"pkg/helpers.py"}


def test_what_else_stands_in_a_try_is_no_part_of_a_name(repository, predictor):
    guarded = """
try:
    from far import tuned
except ImportError:
    def tuned(kernel):
        return kernel
"""
    more = guarded.replace("    from far", "    from far import other\n    from far").replace(
        "    def tuned", "    other = None\n    def tuned"
    )
    files = {"pkg/__init__.py": "", "pkg/helpers.py": helpers(2) + guarded}
    files["pkg/k.py"] = kernels("from .helpers import scale, tuned").replace("@triton.jit", "@tuned\n@triton.jit")
    base, head = repository.commit(files), repository.commit({"pkg/helpers.py": helpers(2) + more})
    assert compared(repository, base, head, predictor).subjects == ()
    turned = guarded.replace("from far import tuned", "tuned = 1").replace("    def tuned(kernel):\n        return kernel", "    tuned = 2")
    first = repository.commit({"pkg/helpers.py": helpers(2) + turned})
    second = repository.commit({"pkg/helpers.py": helpers(2) + turned.replace("= 2", "= 3").replace("= 1", "= 2").replace("= 3", "= 1")})
    assert compared(repository, first, second, predictor).subjects
    head = repository.commit({"pkg/helpers.py": helpers(2) + more.replace("return kernel", "return None")})
    (subject,) = compared(repository, base, head, predictor).subjects
    assert "What it takes from other files changed: tuned." in subject.notes


def test_helpers_that_changed_are_named_and_who_imports_them_is_not_compared(repository, predictor):
    files = {"pkg/__init__.py": "", "pkg/helpers.py": helpers(2), "pkg/k.py": kernels("from .helpers import scale")}
    base, head = repository.commit(files), repository.commit({"pkg/helpers.py": helpers(4)})
    subject, other = compared(repository, base, head, predictor).subjects
    assert subject.kind == "file" and subject.path == "pkg/helpers.py"
    assert subject.notes == (
        "Helpers changed (scale): files whose kernels import them are named or compared here, and where none is, none does.",
    )
    assert (other.path, other.notes) == ("pkg/k.py", (NOT_COMPARED, "What it takes from other files changed: scale."))
    found = compared(repository, base, head, predictor)
    assert "1 unchanged file importing what changed" in found.headline and "pkg/k.py: not compared\n" in to_text(found)
    documented = repository.commit({"pkg/helpers.py": "# a comment\n" + helpers(4).replace("Scales.", "Scales it.")})
    assert not compared(repository, head, documented, predictor).subjects


def test_a_file_that_launches_a_kernel_which_changed_is_not_named_beside_it(repository, predictor):
    launcher = HEAD + "from .k import body\n\n\ndef run(x, n):\n    body[(n,)](x, n)\n"
    base = repository.commit({"pkg/helpers.py": helpers(2), "pkg/k.py": kernels("from .helpers import scale"), "pkg/run.py": launcher})
    head = repository.commit({"pkg/helpers.py": helpers(4), "pkg/k.py": kernels("from .helpers import scale, other")})
    assert "pkg/run.py" not in {subject.path for subject in compared(repository, base, head, predictor).subjects}


def test_a_kernel_that_changed_with_what_it_imports_is_compared_whole(repository, predictor):
    base = repository.commit({"pkg/helpers.py": helpers(2), "pkg/k.py": kernels("from .helpers import scale")})
    head = repository.commit({"pkg/helpers.py": helpers(4), "pkg/k.py": kernels("from .helpers import scale, other")})
    assert "pkg/k.py::body" in {subject.title for subject in compared(repository, base, head, predictor).subjects}


def test_what_limits_leave_out_is_said(repository, predictor, monkeypatch):
    monkeypatch.setattr(importers, "LARGEST_IMPORTED", 0)
    base = repository.commit({"pkg/helpers.py": helpers(2), "pkg/k.py": kernels("from .helpers import scale")})
    head = repository.commit({"pkg/k.py": kernels("from .helpers import scale").replace("tl.store(x, ", "tl.store(x + 1, ")})
    found = compared(repository, base, head, predictor)
    assert any("need more than" in note for subject in found.subjects for note in subject.notes)


def test_hostile_imports_are_not_followed_out_of_the_tree(repository, predictor, tmp_path):
    (tmp_path / "outside.py").write_text(helpers(2))
    text = kernels("from ...outside import scale\nfrom .k import *\nfrom .link import *")
    base = repository.commit({"pkg/k.py": text, "pkg/link.py": tmp_path / "outside.py"})
    assert not compared(repository, base, repository.commit({"pkg/k.py": f"{text}\n# more\n"}), predictor).subjects


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
