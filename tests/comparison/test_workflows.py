"""The workflow that posts the comment and the action: their own scripts, run with stand-ins for `gh` and the installed `advisor`."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

import advisor
from tests import loaded

from .conftest import TABLE, entry, table
from .repository import Repository

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / "reports" / "workflows"
ACTION = ROOT / ".github" / "actions" / "advisor" / "action.yml"
COMPARE, COMMENT = (ROOT / ".github" / "workflows" / f"{name}.yml" for name in ("compare", "comment"))

GH = """#!/bin/sh
echo "$*" >> calls
case "$*" in
*/artifacts*) echo "$ARTIFACTS" ;;
*/pulls*) echo "${PULL-7}" ;;
*issues/7/comments\\ --jq*) echo "$MINE" ;;
esac
"""


def script(step: str, path: Path = COMMENT) -> str:
    """What a step of a workflow, or of the action, runs."""
    (found,) = re.findall(rf"- name: {step}\n(?: +.*\n)*?( +)run: \|\n((?:\1  .*\n)+)", path.read_text(encoding="utf-8"))
    return textwrap.dedent(found[1])


def ran(step: str, folder: Path, **environment: str) -> list[str]:
    """The calls of `gh` that a step makes."""
    (folder / "gh").write_text(GH)
    (folder / "gh").chmod(0o755)
    (folder / "rendered").mkdir(exist_ok=True)
    (folder / "rendered" / "comment.md").write_text("text")
    (folder / "rendered" / "comparison.sarif").write_text("{}")
    (folder / "calls").write_text("")
    given = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "REPOSITORY": "o/r",
        "RUN": "1",
        "HEAD_SHA": "a",
        "HEAD_LABEL": "o:b",
        "RUNNER_TEMP": str(folder),
        "GITHUB_OUTPUT": str(folder / "output"),
        "MINE": "",
        "CODE": "0",
        "NUMBER": "7",
        **environment,
    }
    subprocess.run(["bash", "-e", "-c", script(step)], check=True, env=given, cwd=folder, capture_output=True)
    return (folder / "calls").read_text().splitlines()


@pytest.mark.parametrize(
    ("code", "mine", "method"), [("0", "", "POST"), ("1", "", "POST"), ("5", "", None), ("5", "42", "PATCH"), ("0", "42", "PATCH")]
)
def test_a_comment_is_posted_only_where_there_is_something_to_say(tmp_path, code, mine, method):
    calls = ran("Post or edit the comment", tmp_path, CODE=code, MINE=mine)
    written = [word for call in calls for word in ("POST", "PATCH") if f"--method {word}" in call]
    assert written == ([method] if method else [])


@pytest.mark.parametrize(("artifacts", "said"), [("0", ""), ("1", "found=yes\n")])
def test_a_run_without_an_artifact_is_passed_over(tmp_path, artifacts, said):
    (tmp_path / "output").touch()
    ran("Look for the result", tmp_path, ARTIFACTS=artifacts)
    assert (tmp_path / "output").read_text() == said
    steps = COMMENT.read_text(encoding="utf-8").partition("id: look")[2].partition("\n  post:")[0]
    assert steps.count("if: steps.look.outputs.found == 'yes'") == 5


@pytest.mark.parametrize("pull", ["7", ""])
def test_the_pull_request_is_found_by_its_commit(tmp_path, pull):
    (tmp_path / "output").touch()
    ran("Find the pull request", tmp_path, PULL=pull)
    assert (tmp_path / "output").read_text() == f"number={pull}\n"


def test_the_sarif_is_uploaded(tmp_path):
    (call,) = ran("Upload the SARIF", tmp_path)
    assert "code-scanning/sarifs" in call and "refs/pull/7/head" in call
    assert json.loads(gzip.decompress(base64.b64decode((tmp_path / "packed").read_bytes()))) == {}


def jobs(path: Path) -> dict[str, str]:
    """The text of each job of a workflow."""
    parts = re.split(r"\n  (\w+):\n", path.read_text(encoding="utf-8").partition("\njobs:")[2])
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_token_that_may_write_meets_nothing_installed():
    """The job that may write installs, checks out and compares nothing; the others can only read."""
    found = jobs(COMMENT)
    assert "write" in found["post"] and not re.search(r"\bpip\b|uses:|advisor compare|checkout", found["post"])
    assert ": write" not in found["render"] and ": write" not in COMPARE.read_text(encoding="utf-8")


def test_all_that_is_used_is_pinned():
    """Actions of others by a commit, our own by the tag of this version; what is installed by a version."""
    tag = f"v{advisor.__version__}"
    files = [COMPARE, COMMENT, ACTION, *WORKFLOWS.glob("*.yml")]
    for text in (path.read_text(encoding="utf-8") for path in files):
        for used, reference in re.findall(r"uses: ([\w./-]+)@([\w.]+)", text):
            assert reference == tag if used.startswith("triton-advisor/") else re.fullmatch("[0-9a-f]{40}", reference), used
        assert "@main" not in text
    comment = COMMENT.read_text(encoding="utf-8")
    assert f"RELEASE: {tag}\n" in comment and '"triton-advisor==${RELEASE#v}" --constraint' in comment


def test_what_a_project_copies_is_three_lines():
    """Name, when, and the one job, beside what the token may do; and the default branch runs it too, which fills the cache."""
    for path in WORKFLOWS.glob("*.yml"):
        keys = [line.partition(":")[0] for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        assert keys == ["name", "on", "permissions", "jobs"]
    assert "push: {branches: [main]}" in (WORKFLOWS / "performance.yml").read_text(encoding="utf-8")
    assert "github.event_name == 'push' && 'none'" in COMPARE.read_text(encoding="utf-8")


def test_what_the_comparison_reads_starts_it():
    text = (WORKFLOWS / "performance.yml").read_text(encoding="utf-8")
    assert all(f'"{path}"' in text for path in ("**.py", "**.json", "**.jsonl", "advisor.toml", "**.gitattributes"))


def test_the_cache_of_the_action_is_renewed():
    action = ACTION.read_text(encoding="utf-8")
    assert re.search(r"key: \S.*\$\{\{ github\.sha \}\}\n\s+restore-keys: ", action)


def compared(folder: Path, output: str = "advisor-compare", base: str = "main", head: str = "HEAD") -> tuple[int, Path]:
    """The exit code of the action's step in the checkout `folder / "checkout"`, and the runner's temporary folder."""
    temporary = folder / "temporary"
    advisor = temporary / "triton-advisor" / "bin" / "advisor"
    advisor.parent.mkdir(parents=True)
    advisor.write_text(f'#!/bin/sh\nexec {shlex.join([*loaded.python(), "-m", "advisor"])} "$@"\n')
    advisor.chmod(0o755)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "RUNNER_TEMP": str(temporary),
        "GITHUB_OUTPUT": str(folder / "outputs"),
        "GITHUB_WORKSPACE": str(folder / "checkout"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        "BASE": base,
        "HEAD": head,
        "GPUS": "H200",
        "FAIL_ON": "none",
        "OUTPUT": output,
    }
    (folder / "summary").touch()
    with (folder / "log").open("wb") as log:
        step = ["bash", "-e", "-c", script("Compare", ACTION)]
        done = subprocess.run(step, env=environment, cwd=folder / "checkout", check=False, stdout=log, stderr=subprocess.STDOUT)
    return done.returncode, temporary


@pytest.mark.parametrize("output", ["advisor-compare", "", "below/advisor-compare", "triton-advisor"])
def test_the_action_writes_where_the_pull_request_has_no_say(tmp_path, output):
    repository, target = Repository(tmp_path / "checkout"), tmp_path / "target"
    target.mkdir()
    repository.commit({TABLE: table(M64=entry())})
    repository.git("checkout", "--quiet", "-b", "change")
    repository.commit({TABLE: table(M64=entry(32)), "advisor-compare": target, "below": target})
    code, temporary = compared(tmp_path, output)
    written = temporary / "advisor-output" / (output or "advisor-compare")
    assert code == 0 and {each.name for each in written.iterdir()} >= {"summary.md", "comment.md", "comparison.json"}
    assert f"folder={written}\n" in (tmp_path / "outputs").read_text()
    assert (tmp_path / "summary").read_text() == (written / "summary.md").read_text()
    assert not list(target.iterdir())


def test_what_the_pull_request_brings_is_no_result(tmp_path):
    repository = Repository(tmp_path / "checkout")
    repository.commit({"advisor-compare/summary.md": "brought", "advisor-compare/comparison.json": "{}"})
    absolute = tmp_path / "checkout" / "advisor-compare"
    code, temporary = compared(tmp_path, base="no-such-branch")
    assert code == 2 and not (tmp_path / "summary").read_text() and not (temporary / "advisor-output" / "advisor-compare").exists()
    assert "path: ${{ steps.compare.outputs.folder }}\n" in ACTION.read_text(encoding="utf-8")
    shutil.rmtree(temporary)
    assert compared(tmp_path, str(absolute), base="no-such-branch")[0] == 2
    assert not (tmp_path / "summary").read_text() and not absolute.exists()


@pytest.mark.parametrize(
    "output",
    [
        ".",
        "..",
        "a/../../triton-advisor",
        "./a",
        "/",
        "{folder}",
        "{folder}/",
        "{folder}/checkout",
        "{folder}//checkout/",
        "{folder}/temporary",
        "{folder}/temporary/triton-advisor",
        "{folder}/checkout/../checkout",
        "{folder}/link",
    ],
)
def test_the_action_deletes_neither_the_checkout_nor_itself(tmp_path, output, monkeypatch):
    """Exit code 1 would say that the gate failed."""
    stand_in = tmp_path / "commands" / "rm"  # `/` is among the folders: whatever the step does, nothing is deleted, nor written
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/sh\necho "$*" >> {shlex.quote(str(tmp_path / "deleted"))}\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}:{os.environ['PATH']}")
    Repository(tmp_path / "checkout").commit({TABLE: table(M64=entry())})
    (tmp_path / "link").symlink_to("checkout")
    assert compared(tmp_path, output.format(folder=tmp_path), base="no-such-branch")[0] == 2
    assert not (tmp_path / "deleted").exists() and not (tmp_path / "outputs").exists()


def test_the_action_empties_an_absolute_folder_of_its_own(tmp_path):
    Repository(tmp_path / "checkout").commit({TABLE: table(M64=entry())})
    own = tmp_path / "temporary" / "own"
    own.mkdir(parents=True)
    (own / "older").touch()
    assert compared(tmp_path, str(own), base="HEAD")[0] == 0 and not (own / "older").exists()


def test_the_commits_of_the_action_are_no_options(tmp_path):
    Repository(tmp_path / "checkout").commit({TABLE: table(M64=entry())})
    assert compared(tmp_path, head=f"--output={tmp_path / 'elsewhere'}")[0] == 2
    assert not (tmp_path / "elsewhere").exists()


def test_names_of_files_are_no_commands_to_the_runner(tmp_path):
    """It takes a line that begins with :: for one, and ##[ wherever it stands in a line."""
    repository = Repository(tmp_path / "checkout")
    kernel = "import triton\n@triton.jit\ndef k(x):\n    pass\n"
    names = ("::error::x.py", "a ##[error]x.py")
    repository.commit(dict.fromkeys(names, kernel))
    repository.git("checkout", "--quiet", "-b", "change")
    repository.commit(dict.fromkeys(names, kernel + "def (\n"))
    compared(tmp_path)
    heard, word = [], ""
    for line in (tmp_path / "log").read_text().splitlines():
        if line.strip() == f"::{word}::":
            word = ""
        elif not word and line.startswith("::stop-commands::"):
            word = line.removeprefix("::stop-commands::")
        elif not word and (line.strip().startswith("::") or "##[" in line):
            heard.append(line)
    assert not word and len(heard) == 2
    assert all(line.startswith("::error file=") and "can no longer be read" in line for line in heard), heard
