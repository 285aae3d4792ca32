"""The folders are the diagram: imports point one way, and heavy packages load where they are used."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "advisor"

# Lower layers first; a module may import from its own layer's package and from layers below it.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"schema", "errors", "resources", "folders", "reading", "writing", "settings", "comparison_schema", "worker_processes"})
    | frozenset({"processes", "temporary", "triton_install", "gpu_description", "counting"}),
    frozenset({"result_json", "comparison_json", "hardware"}),
    frozenset({"configs"}),
    frozenset({"pipelines", "compiled"}),
    frozenset({"learned", "fingerprint"}),
    frozenset({"measurement", "search", "diagnosis"}),
    frozenset({"rendering"}),
    frozenset({"advise", "audit_regret", "autotune", "autotuning", "comparison", "measured", "targets", "tuning"}),
    frozenset({"cli"}),
)
APART = frozenset({"measurement", "search", "diagnosis"})
"""These do not know each other."""

RENDERING_MAY_IMPORT = frozenset(
    {"schema", "comparison_schema", "errors", "resources", "result_json", "comparison_json", "rendering"}
)


def layer_of(part: str) -> int:
    for number, parts in enumerate(LAYERS):
        if part in parts:
            return number
    raise AssertionError(f"advisor/{part} belongs to no layer: name its place in LAYERS")


def imports() -> list[tuple[str, str, str]]:
    """(file, part it lies in, part it imports), imports inside functions and for type checking included."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        if relative.name in ("__init__.py", "__main__.py") and len(relative.parts) == 1:
            continue
        part = relative.parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                if node.module == "advisor":
                    names = [f"advisor.{alias.name}" for alias in node.names]
                else:
                    names = [node.module]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                pieces = name.split(".")
                if pieces[0] == "advisor" and len(pieces) > 1 and pieces[1] not in ("__version__",):
                    found.append((str(relative), part, pieces[1]))
    return found


def test_imports_point_one_way():
    wrong = [f"{file}: {part} imports {other}" for file, part, other in imports() if layer_of(other) > layer_of(part)]
    assert not wrong, "\n".join(wrong)


def test_measurement_search_and_diagnosis_do_not_know_each_other():
    wrong = [f"{file} imports {other}" for file, part, other in imports() if {part, other} <= APART and part != other]
    assert not wrong, "\n".join(wrong)


def test_rendering_knows_only_the_schema():
    wrong = [f"{file} imports {other}" for file, part, other in imports() if part == "rendering" and other not in RENDERING_MAY_IMPORT]
    assert not wrong, "\n".join(wrong)


FOLDERS = sorted({path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")})
KNOWN_CIRCLES: dict[str, set[frozenset[str]]] = {
    "configs": {
        # An expression may call a function of the file, whose body is read as expressions are.
        frozenset({"callables", "calls", "constexpr_functions", "functions", "literal_values", "literals", "string_methods",
                   "surroundings", "target_questions", "triton_names"}),
        # What a name of a file stands for may lie in another file, which is read as this one is.
        frozenset({"imported", "source"}),
    },
}  # fmt: skip


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_files_of_a_folder_form_no_circle(folder):
    """Also not for type checking or inside a function: a file of a circle cannot be understood or tested without the others."""
    found = circles({path.stem: imported_beside(path) for path in (PACKAGE / folder).glob("*.py")})
    assert found == KNOWN_CIRCLES.get(folder, set())


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


def imported_beside(path: Path) -> set[str]:
    """The files of its own package that a file imports."""
    package = ".".join(path.relative_to(ROOT).parts[:-1])
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
            found.add(node.module.removeprefix(f"{package}.").split(".")[0])
    return found


HEAVY = ("torch", "triton", "optuna", "plotly", "sklearn", "lightgbm", "pandas", "scipy")


@pytest.mark.parametrize("statement", ["import advisor", "import advisor.cli", "from advisor import load_gpu; load_gpu('H200')"])
def test_heavy_packages_load_where_they_are_used(statement):
    check = f"{statement}; import sys; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_advise_loads_neither_torch_nor_triton(tmp_path):
    check = (
        "import sys; from advisor.cli import main; "
        "code = main(['advise', 'fused_moe', '--model', 'Qwen3-30B-A3B', '--gpu', 'H200', '--tokens', '64', '--output', sys.argv[1]]); "
        f"print(code, sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", check, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stderr.strip().endswith("0 []")


def test_public_names_are_there_and_documented():
    import advisor

    for name in advisor.__all__:
        value = getattr(advisor, name)
        if name != "__version__":
            assert value.__doc__, f"advisor.{name} has no docstring"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = set(advisor.__all__) - {"__version__"} - names_documented_in(readme)
    assert not missing, f"README.md does not say what {sorted(missing)} are for"


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
    seen = {alias.asname: node.module for block in tree.body if isinstance(block, ast.If)
            for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}  # fmt: skip
    assert seen == {name: f"advisor.{home}" for name, home in advisor._HOMES.items()}
    assert (PACKAGE / "py.typed").exists()
