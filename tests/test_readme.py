"""What the README prints works as printed."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
from pathlib import Path

import pytest

from advisor.cli import COMMANDS, main

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
LINES = [line for language, block in BLOCKS if language == "console" for line in block.splitlines() if line.strip()]
COMMAND_LINES = [line for line in LINES if line.startswith("advisor ")]


def test_every_line_is_one_we_can_check():
    assert COMMAND_LINES
    for line in LINES:
        assert line.startswith(("advisor ", "make ", "pip install ")), line
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for line in LINES:
        if line.startswith("make "):
            assert set(line.split()[1:]) <= targets, line


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_commands_run_as_printed(line, tmp_path, monkeypatch, capsys):
    for folder in ("reports", "tests", "triton_kernels"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)[1:]) == 0, capsys.readouterr().err


def test_what_is_shown_is_what_comes_out(tmp_path, monkeypatch, capsys):
    shown = re.findall(r"```console\n(advisor .*)\n```\n\n```text\n(.*?)```", README, flags=re.DOTALL)
    assert shown
    (tmp_path / "reports").symlink_to(ROOT / "reports")
    monkeypatch.chdir(tmp_path)
    for line, text in shown:
        assert main(shlex.split(line)[1:]) == 0
        assert capsys.readouterr().out == text


def test_links_lead_to_a_section():
    sections = {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^##+ (.*)$", README, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]*)\)", README)) <= sections


@pytest.mark.parametrize("block", [block for language, block in BLOCKS if language == "python"])
def test_python_runs_as_printed(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = tmp_path / "example.py"  # @triton.jit reads its source from a file
    example.write_text(block, encoding="utf-8")
    runpy.run_path(str(example))


def test_every_command_is_mentioned():
    from advisor.cli import _module

    missing = [command for command in COMMANDS if _module(command) and f"advisor {command}" not in README]
    assert not missing, f"README.md does not mention {missing}"


def test_make_targets_of_the_contract_are_there():
    assert "make advise" in README and "make test" in README
    assert shutil.which("make") is None or (ROOT / "Makefile").exists()


def paths_of(page: Path) -> dict[str, Path]:
    """The paths that a page names in backticks, with where they should be; in a table's row about `package/`, paths in that package."""
    found = {}
    for line in page.read_text(encoding="utf-8").splitlines():
        row = re.match(r"\| `([\w/.]+)` \|", line)
        below = page.parent / row[1] if row and row[1].endswith("/") else page.parent
        for name in re.findall(r"`([\w./-]*(?:/|\.py|\.md|\.jinja))`", line):
            if not re.search(r"[A-Z]{2,}(_command)?\.(py|md)$", name) or (page.parent / name).exists():
                places = (below / name, page.parent / name, ROOT / name)
                found[name] = next((place for place in places if place.exists()), places[0])
    return found


@pytest.mark.parametrize("page", ["advisor/README.md", "ceilings/README.md", "triton_kernels/README.md", ".github/CONTRIBUTING.md"])
def test_paths_of_other_pages_lead_somewhere(page):
    named = paths_of(ROOT / page)
    assert named and [name for name, path in named.items() if not path.exists()] == []


def test_every_package_has_a_line_in_the_architecture():
    text = (ROOT / "advisor/README.md").read_text(encoding="utf-8")
    packages = {f"{path.parent.name}/" for path in (ROOT / "advisor").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+/)` \|", text, flags=re.MULTILINE)) == packages
