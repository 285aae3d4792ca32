"""The workflow that posts the comment: its own scripts, run with a stand-in for `gh`."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / "reports" / "workflows"

GH = """#!/bin/sh
echo "$*" >> calls
case "$*" in
*/artifacts*) echo "$ARTIFACTS" ;;
*/pulls*) echo 7 ;;
*issues/7/comments\\ --jq*) echo "$MINE" ;;
esac
"""


def script(step: str) -> str:
    """What a step of the workflow runs."""
    text = (WORKFLOWS / "performance-comment.yml").read_text(encoding="utf-8")
    (found,) = re.findall(rf"- name: {step}\n(?:        .*\n)*?        run: \|\n((?:          .*\n)+)", text)
    return textwrap.dedent(found)


def ran(step: str, folder: Path, **environment: str) -> list[str]:
    """The calls of `gh` that a step makes."""
    (folder / "gh").write_text(GH)
    (folder / "gh").chmod(0o755)
    (folder / "comment.md").write_text("text")
    (folder / "calls").write_text("")
    given = {"PATH": f"{folder}:{os.environ['PATH']}", "REPOSITORY": "o/r", "RUN": "1", "HEAD_SHA": "a", "HEAD_LABEL": "o:b",
             "RUNNER_TEMP": str(folder), "GITHUB_OUTPUT": str(folder / "output"), "MINE": "", "CODE": "0", **environment}  # fmt: skip
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
    steps = (WORKFLOWS / "performance-comment.yml").read_text(encoding="utf-8").partition("id: look")[2]
    assert steps.count("if: steps.look.outputs.found == 'yes'") == 5


def test_what_the_comparison_reads_starts_it():
    text = (WORKFLOWS / "performance.yml").read_text(encoding="utf-8")
    assert all(f'"{path}"' in text for path in ("**.py", "**.json", "**.jsonl", "advisor.toml"))


def test_the_cache_of_the_action_is_renewed():
    action = (ROOT / ".github" / "actions" / "advisor" / "action.yml").read_text(encoding="utf-8")
    assert re.search(r"key: \S.*\$\{\{ github\.sha \}\}\n\s+restore-keys: ", action)
