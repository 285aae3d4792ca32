"""What the commands write to: terminals, pipes, streams that are not UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from unittest.mock import Mock

import pytest

from advisor.cli import main
from advisor.system.writing import StatusLine
from tests import loaded
from tests.cli.command_line import EXAMPLE, ROOT
from tests.rendering.terminal import printed_on_a_terminal


@pytest.mark.parametrize(("term", "escapes"), [("xterm", True), ("dumb", False), ("", False), (None, False)])
def test_a_terminal_that_may_know_no_escapes_gets_none(term, escapes):
    """Where TERM is not set nothing is known of it."""
    shown = printed_on_a_terminal("explain", "--help", environment={} if term is None else {"TERM": term})
    assert "explain" in shown and ("\x1b" in shown) == escapes


def encoded(encoding: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([*loaded.python(), "-m", "advisor", *arguments], capture_output=True, env=environment, cwd=ROOT, check=False)


SIDES = [f"tests/data/compare/{side}.json" for side in ("before", "after")]


@pytest.fixture(scope="module")
def document():
    return json.loads(encoded("utf-8", "compare", *SIDES, "--format", "json").stdout)


@pytest.mark.parametrize(("encoding", "style"), [("ascii", "text"), ("cp1252", "md"), ("latin-1", "text")])
def test_a_stream_that_is_not_utf_8(encoding, style):
    """A character that the terminal or the pipe cannot show must not turn a gate's answer into a failure."""
    done = encoded(encoding, "compare", *SIDES, "--format", style)
    assert done.returncode == 0 and b"?" in done.stdout, done.stderr


def test_json_is_utf_8_whatever_the_stream_is(document):
    found = encoded("ascii", "compare", *SIDES, "--format", "json")
    assert found.returncode == 0 and json.loads(found.stdout.decode("utf-8")) == document


@pytest.mark.parametrize(("terminal", "live"), [("dumb", False), ("xterm", True)])
def test_progress_rewrites_its_line_only_where_the_terminal_can(monkeypatch, capsys, terminal, live):
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    line = StatusLine()
    line.say("measured 8/8")
    line.end()
    assert ("\x1b" in capsys.readouterr().err) == live


@pytest.mark.parametrize(
    "arguments", [["gpus"], ["schema"], ["advise", str(EXAMPLE), "--top-k", "8", "--hidden-size", "2048", "--tokens", "64"]]
)
def test_a_reader_that_goes_away_is_no_error(tmp_path, arguments):
    """`advisor … | head -1`: exit code 0 (1 would be a failed gate), and nothing on stderr."""
    read, write = os.pipe()
    os.close(read)
    run = "import sys; from advisor.cli import main; sys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", run, *arguments], stdout=write, stderr=subprocess.PIPE, cwd=tmp_path, env=environment)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_interrupt_before_a_command_begins_is_told_as_one(capsys, monkeypatch):
    monkeypatch.setattr("advisor.cli.build_parser", Mock(side_effect=KeyboardInterrupt))
    assert main(["gpus"]) == 130
    assert capsys.readouterr().err == "advisor: error: interrupted\n", "nothing was finished, and nothing is saved"
