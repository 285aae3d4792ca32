"""The folders are the diagram: imports point one way, and heavy packages load where they are used."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "advisor"

LAYERS = (
    "system",
    "result",
    "gpus",
    "tables",
    "python_source",
    "rows",
    "pipelines",
    "compiled",
    "learned",
    "steps",
    "measurement",
    "search",
    "diagnosis",
    "rendering",
    "advising",
    "tuning",
    "autotuning",
    "comparison",
    "training",
    "cli",
)
"""The packages of advisor/, lowest first: each imports from itself and from those before it."""
APART = {"measurement", "search", "diagnosis"}
"""These do not know each other."""
RENDERING_MAY_IMPORT = {"system", "result", "rendering"}
MAY_IMPORT_TRAINING = {"train_command.py", "evaluate_command.py", "calibrate_command.py"}
"""Only the commands that train and judge load what fits."""


@functools.cache
def imported_modules(path: Path, root: Path = ROOT) -> set[str]:
    """The modules that a file imports, dotted and whole, `from . import x` included; `from a import b` gives both `a` and `a.b`."""
    package = path.relative_to(root).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, *([node.module] if node.module else [])))
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return found


def imports(root: Path = ROOT) -> set[tuple[str, str, str]]:
    """(file, package of advisor/ it lies in, package it imports), imports inside functions and for type checking included."""
    found = set()
    for path in sorted((root / "advisor").rglob("*.py")):
        inside = path.relative_to(root / "advisor")
        if len(inside.parts) == 1:
            continue  # __init__ and __main__: the faces
        for name in imported_modules(path, root):
            pieces = name.split(".")
            if pieces[0] == "advisor" and len(pieces) > 1 and (root / "advisor" / pieces[1]).is_dir():
                found.add((inside.as_posix(), inside.parts[0], pieces[1]))
    return found


def violations(root: Path = ROOT) -> set[str]:
    """Imports that go up a layer, between packages that stay apart, or from rendering into what computes."""
    found = set()
    for file, package, other in imports(root):
        if LAYERS.index(other) > LAYERS.index(package):
            found.add(f"{file}: {package} imports {other}, a layer above it")
        if package != other and {package, other} <= APART:
            found.add(f"{file}: {package} and {other} do not know each other")
        if other == "training" != package and Path(file).name not in MAY_IMPORT_TRAINING:
            found.add(f"{file}: what serves imports what fits")
        if package == "rendering" and other not in RENDERING_MAY_IMPORT:
            found.add(f"{file}: rendering renders the result and imports {other}")
    return found


def test_imports_point_one_way():
    assert not violations()


def test_every_package_has_a_layer():
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages <= set(LAYERS)


@pytest.fixture
def planted(tmp_path):
    """Makes a tree of modules of advisor/ from their texts, by path below advisor/."""

    def plant(**texts: str) -> Path:
        for name, text in texts.items():
            path = tmp_path / "advisor" / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            (path.parent / "__init__.py").touch()
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return plant


@pytest.mark.parametrize(
    "texts",
    [
        {"rendering__figures": "from ..cli import options\n", "cli__options": ""},
        {"rendering__figures": "from advisor import cli\n", "cli__options": ""},
        {"gpus__hardware": "def load():\n    import advisor.cli.options\n", "cli__options": ""},
        {"search__study": "from ..measurement.rows import read\n", "measurement__rows": ""},
        {"rendering__page": "from ..gpus import hardware\n", "gpus__hardware": ""},
        {"cli__predict_command": "def run():\n    from advisor.training import data\n", "training__data": ""},
    ],
)
def test_an_import_that_points_the_wrong_way_is_refused(planted, texts):
    assert len(violations(planted(**texts))) >= 1


FOLDERS = sorted({path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")})


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_files_of_a_folder_form_no_circle(folder):
    """Also not for type checking or inside a function: a file of a circle cannot be understood or tested without the others."""
    assert not circles_of(PACKAGE / folder)


def circles_of(folder: Path, root: Path = ROOT) -> set[frozenset[str]]:
    """The circles of imports among the files and sub-packages of a folder."""
    package = ".".join(folder.relative_to(root).parts)
    needs: dict[str, set[str]] = {}
    for path in folder.rglob("*.py"):
        name = path.relative_to(folder).parts[0].removesuffix(".py")
        below = {module.removeprefix(f"{package}.") for module in imported_modules(path, root) if module.startswith(f"{package}.")}
        needs.setdefault(name, set()).update({module.split(".")[0] for module in below} - ({name} if path.parent != folder else set()))
    return circles({name: others for name, others in needs.items() if name != "__init__"})


def test_a_planted_circle_is_refused(planted):
    root = planted(rendering__figures="from . import views\n", rendering__views="def draw():\n    from .figures import figure\n")
    assert circles_of(root / "advisor" / "rendering", root) == {frozenset({"figures", "views"})}


MOST_FILES = 25


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_is_no_heap(folder):
    allowed = {"python_source": 45}.get(folder, MOST_FILES)
    files = [path.name for path in (PACKAGE / folder).glob("*.py")]
    assert len(files) <= allowed, f"advisor/{folder} holds {len(files)} files (most: {allowed}): which of them make a package of their own?"


def circles(needs: dict[str, set[str]]) -> set[frozenset[str]]:
    """The files that lead to themselves, by what each imports, together with those on the way."""
    reached = {name: names_reached(name, needs) for name in needs}
    return {frozenset(other for other in reached[name] if name in reached[other]) for name in needs if name in reached[name]}


def names_reached(name: str, needs: dict[str, set[str]]) -> set[str]:
    """What a file imports, what that imports, and so on."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        fresh = (needs[waiting.pop()] & needs.keys()) - found
        found |= fresh
        waiting += fresh
    return found


def test_a_circle_is_found_without_what_only_leads_to_it():
    needs = {"leads": {"a"}, "a": {"b"}, "b": {"c", "end"}, "c": {"a"}, "end": {"elsewhere"}, "x": {"y"}, "y": {"x", "end"}}
    assert circles(needs) == {frozenset({"a", "b", "c"}), frozenset({"x", "y"})}


HEAVY = ("torch", "triton", "optuna", "plotly", "sklearn", "lightgbm", "pandas", "scipy")


@pytest.mark.parametrize("statement", ["import advisor", "import advisor.cli", "from advisor import load_gpu; load_gpu('H200')"])
def test_heavy_packages_load_where_they_are_used(statement):
    check = f"{statement}; import sys; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_advise_of_a_table_loads_neither_torch_nor_what_reads_compiled_code(tmp_path):
    unused = (*HEAVY, "advisor.compiled.analysis")
    check = (
        "import sys; from advisor.cli import main; "
        "code = main(['advise', 'fused_moe', '--model', 'Qwen3-30B-A3B', '--gpu', 'H200', '--tokens', '64', '--output', sys.argv[1]]); "
        f"print(code, sorted(set({unused!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", check, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stderr.strip().endswith("0 []")


def test_public_names_are_there_and_documented():
    import advisor

    for name in advisor.__all__:
        value = getattr(advisor, name)
        if name != "__version__":
            assert value.__doc__, f"advisor.{name} has no docstring"
    pages = [ROOT / "README.md", *(ROOT / "reports" / "docs").glob("*.md")]
    missing = set(advisor.__all__) - {"__version__"} - names_documented_in("\n".join(page.read_text(encoding="utf-8") for page in pages))
    assert not missing, f"neither README.md nor reports/docs says what {sorted(missing)} are for"


def test_no_module_hides_a_public_name(tmp_path):
    """Importing a module binds its name in its package: a function of that name would be gone after, as that of a planted one is."""
    (tmp_path / "advise.py").touch()
    check = (
        "import advisor, importlib, pkgutil, sys\n"
        "first = {name: getattr(advisor, name) for name in advisor.__all__}\n"
        "for folder in (None, sys.argv[1]):\n"
        "    advisor.__path__.extend([folder] if folder else [])\n"
        "    for module in pkgutil.walk_packages(advisor.__path__, 'advisor.'):\n"
        "        if module.name != 'advisor.__main__':\n"
        "            importlib.import_module(module.name)\n"
        "    print([name for name in advisor.__all__ if getattr(advisor, name) is not first[name]])"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", check, tmp_path], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines()[-2:] == ["[]", "['advise']"]


def names_documented_in(readme: str) -> set[str]:
    """What a README shows of `advisor`: imported or used in its Python, or in its text as `advisor.NAME`."""
    text = re.sub(r"```.*?```", "", readme, flags=re.DOTALL)
    names = set(re.findall(r"`advisor\.(\w+)", text))
    for block in re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module == "advisor":
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "advisor":
                names.add(node.attr)
    return names


def test_a_name_of_another_package_documents_none_of_ours():
    readme = "`@triton.autotune`\n```python\nfrom advisor import load_gpu\nadvisor.warmup(kernel)\n```\n`advisor.best_config` says"
    assert names_documented_in(readme) == {"load_gpu", "warmup", "best_config"}


def test_a_type_checker_sees_the_public_names_where_they_are_loaded_from():
    import advisor

    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    seen = {
        alias.asname: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {name: f"advisor.{home}" for name, home in advisor._HOMES.items()}
    assert (PACKAGE / "py.typed").exists()


NAMES_THAT_SAY_NOTHING = {"looked", "told", "said", "asked", "inquiry", "surroundings", "unbuilt", "passing", "effort", "room", "of_target"}
"""Names of classes and modules that no field of engineering knows; house style: a name is the field's noun for the thing it holds."""
VARIABLES_THAT_SAY_NOTHING = {"found", "each", "told", "said", "untold", "unsaid", "asked", "own"}
"""Of variables, parameters and functions."""
RENAMED = (
    *(
        "advising",
        "autotuning",
        "cli",
        "diagnosis",
        "gpus",
        "learned",
        "measurement",
        "pipelines",
        "rendering",
        "result",
        "rows",
        "search",
        "steps",
    ),
    *("system", "tables", "training", "tuning"),
    *("comparison", "compiled/demand", "compiled/guesses", "compiled/ir", "compiled/launches", "python_source"),
)
"""Packages whose names were gone through."""


def names_that_say_nothing(path: Path) -> list[str]:
    """Those of a file: its own, its classes' and functions', its variables' and parameters'."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    classes = {node.name.lower() for node in nodes if isinstance(node, ast.ClassDef)}
    variables = {node.id for node in nodes if isinstance(node, ast.Name)}
    variables |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    variables |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    return sorted(({path.stem} | classes) & NAMES_THAT_SAY_NOTHING) + sorted(variables & VARIABLES_THAT_SAY_NOTHING)


@pytest.mark.parametrize("package", RENAMED)
def test_no_name_says_nothing(package):
    assert {path.name: names for path in (PACKAGE / package).rglob("*.py") if (names := names_that_say_nothing(path))} == {}


def test_a_planted_name_that_says_nothing_is_seen(tmp_path):
    (tmp_path / "room.py").write_text("class Told: ...\ndef f(asked):\n    return [each for each in asked if (found := each)]\n")
    assert names_that_say_nothing(tmp_path / "room.py") == ["room", "told", "asked", "each", "found"]


NAMED_AFTER_NO_MODULE = 108
"""Test files of packages that are named after what is tested, not after a module: no more shall come."""


def test_files_are_named_after_their_modules():
    modules = {name for path in PACKAGE.rglob("*.py") for name in (path.stem, path.parent.name)}
    files = [path for package in LAYERS for path in (ROOT / "tests" / package).rglob("test_*.py")]
    unnamed = [path.name for path in files if path.stem.removeprefix("test_") not in modules]
    assert len(unnamed) <= NAMED_AFTER_NO_MODULE, f"name a new test file test_MODULE.py: {sorted(unnamed)}"
