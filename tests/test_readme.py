"""What the README and the pages of the documentation print works as printed, and their site holds together."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
from pathlib import Path

import pytest

from advisor.cli import COMMANDS, build_parser, main

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "reports" / "docs").glob("*.md"))}
EVERYTHING = "\n".join([README, *DOCS.values()])
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", EVERYTHING, flags=re.DOTALL)
LINES = [line for language, block in BLOCKS if language == "console" for line in block.splitlines() if line.strip()]
COMMAND_LINES = list(dict.fromkeys(line for line in LINES if line.startswith("advisor ")))


def test_every_line_is_one_we_can_check():
    assert COMMAND_LINES
    for line in LINES:
        assert line.startswith(("advisor ", "make ", "pip install ")), line
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for line in LINES:
        if line.startswith("make "):
            assert set(line.split()[1:]) <= targets, line


SHOWN = dict(re.findall(r"```console\n(advisor [^\n]*)\n```\n\n```text\n(.*?)```", EVERYTHING, flags=re.DOTALL))
"""Command -> what is shown of it."""


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_commands_run_as_printed(line, tmp_path, monkeypatch, capsys):
    """And what is shown is what comes out."""
    for folder in ("reports", "tests", "triton_kernels"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    code, printed = main(shlex.split(line)[1:]), capsys.readouterr()
    assert code == 0, printed.err
    if line in SHOWN:
        assert printed.out == SHOWN[line]


def test_every_command_whose_output_is_shown_runs():
    assert SHOWN and set(SHOWN) <= set(COMMAND_LINES)


SAID = sorted({" ".join(said.split()) for said in re.findall(r"`(advisor [a-z][^`]*)`", EVERYTHING)})


@pytest.fixture(scope="module")
def commands():
    return {name: each.choices[name] for name in COMMANDS for each in build_parser(name)._actions if isinstance(each.choices, dict)}


@pytest.mark.parametrize("said", SAID)
def test_commands_in_a_sentence_are_ones_that_there_are(said, commands):
    """They name files of the reader's, so that they cannot run here; their options are those of the command."""
    words = shlex.split(said.partition(" -- ")[0])[1:]
    options = {word.partition("=")[0] for word in words if word.startswith("-")}
    parser = commands[words[0]]
    for action in parser._actions:  # `cache import` has options of its own
        parser = action.choices.get(words[1], parser) if isinstance(action.choices, dict) else parser
    assert options <= set(parser._option_string_actions)


def test_the_readme_is_short_and_says_how_to_install_first():
    assert len(README.splitlines()) < 150
    assert re.findall(r"^## (.*)$", README, re.MULTILINE)[0] == "Install"
    assert (ROOT / "reports/docs/page.png").stat().st_size <= 200_000


def test_the_accuracy_it_states_is_the_model_cards():
    card = (ROOT / "ceilings/MODEL_CARD.md").read_text(encoding="utf-8")
    row = card.partition("### GPUs left out")[2].partition("| known configuration |")[2].splitlines()[0]
    error, median, _, held = re.findall(r"([\d.-]+) %", row)[:4]
    stated = " ".join(README.partition("## How accurate")[2].partition("##")[0].split())
    assert f"within {float(error):.1f} % on average (median {float(median):.1f} %)" in stated
    assert f"holds {held} % of the measurements" in stated


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    return folder, runpy.run_path(str(ROOT / "reports/docs/build.py"))["build"](folder)


def test_every_page_is_in_the_site_and_another_page_leads_to_it(site):
    _, pages = site
    assert {page.name for page in pages} == {"index.html", *(Path(name).with_suffix(".html").name for name in DOCS)}
    texts = [page.read_text(encoding="utf-8").partition("<main>")[2] for page in pages]
    assert {page.name for page in pages[1:]} <= {name for text in texts for name in re.findall(r'href="([\w-]+\.html)', text)}


def test_links_of_the_site_lead_somewhere(site):
    """Between pages, to a section, to a file of the site, or to a file of the repository."""
    folder, pages = site
    texts = {page.name: page.read_text(encoding="utf-8") for page in pages}
    repository = "https://github.com/triton-advisor/triton-advisor/blob/main/"
    assert [(name, link) for name in texts for link in broken_links(texts[name], name, texts, folder, repository)] == []
    planted = '<a href="#nowhere"><a href="tables.html#nowhere"><img src="none.png"><a href="' + repository + 'none.py">'
    assert len(broken_links(planted, "tables.html", texts, folder, repository)) == 4


def broken_links(text, page, texts, folder, repository):
    found = []
    for link in re.findall(r'(?:href|src)="([^"]+)"', text):
        target, _, section = link.partition("#")
        if target.startswith(repository):
            there = (ROOT / target.removeprefix(repository)).exists()
        elif re.match(r"\w+:", target):
            continue
        else:
            there = not target or (folder / target).exists()
        if not there or (section and f' id="{section}"' not in texts[target or page]):
            found.append(link)
    return found


@pytest.mark.parametrize("block", [block for language, block in BLOCKS if language == "python"])
def test_python_runs_as_printed(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = tmp_path / "example.py"  # @triton.jit reads its source from a file
    example.write_text(block, encoding="utf-8")
    runpy.run_path(str(example))


def test_every_command_is_mentioned():
    from advisor.cli import _module

    missing = [command for command in COMMANDS if _module(command) and f"advisor {command}" not in EVERYTHING]
    assert not missing, f"neither README.md nor reports/docs mentions {missing}"


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
