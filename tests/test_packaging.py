"""The wheel holds the package and nothing else, and works from anywhere."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from advisor.system import triton_install

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_only_the_package(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert {entry for entry in top if not entry.endswith(".dist-info")} == {"advisor"}
    assert "advisor/py.typed" in names
    assert any(name.startswith("advisor/_ceilings/") for name in names)
    assert any(name.startswith("advisor/_triton_kernels/") for name in names)
    assert "aiconfigurator" in zipfile.ZipFile(wheel).read("advisor/_ceilings/NOTICE").decode()
    assert any(name.startswith("advisor/_reports/") for name in names)
    assert sum(entry.file_size for entry in zipfile.ZipFile(wheel).infolist()) < 20e6


def test_the_oldest_python_is_said_alike_and_reads_every_file():
    oldest = ".".join(map(str, triton_install.OLDEST_PYTHON))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["requires-python"] == f">={oldest}"
    assert f"Programming Language :: Python :: {oldest}" in project["project"]["classifiers"]
    assert project["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert f'python: ["{oldest}",' in (ROOT / ".github/workflows/ci.yml").read_text()
    assert f"| Python | {oldest} to" in (ROOT / "README.md").read_text()
    for path in (ROOT / "advisor").rglob("*.py"):
        ast.parse(path.read_text(), feature_version=triton_install.OLDEST_PYTHON)


def test_an_installed_wheel_advises_from_another_folder(wheel, tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    # The dependencies are installed already: what is tested is our wheel, not the network.
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    outside = next(path for path in sys.path if path.endswith("site-packages"))
    site = next((environment / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(outside + "\n")
    for finder in Path(outside).glob("__editable__*triton_advisor*"):
        assert finder.exists()
    (tmp_path / "elsewhere").mkdir()
    command = [environment / "bin" / "advisor", "advise", "fused_moe", "--model", "Qwen3-30B-A3B", "--gpu", "H200", "--tokens", "64"]
    done = subprocess.run(command, cwd=tmp_path / "elsewhere", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "elsewhere" / "advisor-out" / "fused_moe-Qwen3-30B-A3B-H200" / "report.html").stat().st_size > 80_000
    where = subprocess.run([python, "-c", "import advisor; print(advisor.__file__)"], cwd=tmp_path, capture_output=True, text=True)
    assert str(site) in where.stdout
    probe = subprocess.run(
        [python, "-c", "import importlib.util as u; print(u.find_spec('triton_kernels'))"], cwd=tmp_path, capture_output=True, text=True
    )
    assert probe.stdout.strip() == "None"
