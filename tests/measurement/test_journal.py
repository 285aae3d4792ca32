"""Rows on the disk: whole lines, repaired ends, one writer, and a run killed anywhere resumes to the same file."""

from __future__ import annotations

import csv
import errno
import os
import random
import signal
import sys
import time

import pytest

from advisor.measurement.measured_rows import HEADER, Journal, read_measured
from advisor.measurement.measuring import measure
from advisor.system.errors import AdvisorError, InputError, UsageError

from .conftest import launches

FAKE = "fake,outliers=0.1"
PROBLEMS = 20


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """A whole file of rows."""
    path = tmp_path_factory.mktemp("recording") / "recorded.csv"
    summary = measure(launches(PROBLEMS), path, device=FAKE)
    assert summary.measured == 6 * PROBLEMS and summary.finished
    return path


def rows_of(path):
    """The rows of a file, by launch."""
    with path.open(newline="") as stream:
        return {row.key(): cells for row, cells in zip(read_measured(path), csv.DictReader(stream), strict=True)}


def go_on(rows, path, pause_s=0.0):
    """Appends the rows that the file lacks, a few at a time, as a run does that takes `pause_s` to measure them."""
    with Journal(path) as journal:
        done = journal.keys()
        left = [cells for key, cells in rows.items() if key not in done]
        for begin in range(0, len(left), 6):
            journal.append(left[begin : begin + 6])
            time.sleep(pause_s)


def test_a_line_cut_anywhere_is_repaired(recording, tmp_path):
    """Cut at every byte of the last row, header included in turn: nothing whole is lost, and the run completes the file."""
    whole = recording.read_bytes()
    lines = whole.splitlines(keepends=True)
    ends = len(b"".join(lines[:3]))
    todo, reference = dict([*rows_of(recording).items()][:2]), b"".join(lines[:3])
    for cut in [*range(0, len(lines[0]) + 2, 37), *range(ends - len(lines[2]), ends + 1, 23), ends]:
        path = tmp_path / "cut.csv"
        path.write_bytes(reference[:cut])
        go_on(todo, path)
        assert path.read_bytes() == reference
        path.unlink()


def test_killed_at_twenty_random_moments(recording, tmp_path):
    """SIGKILL, twenty times, then once to the end: the same bytes as one undisturbed run. Where the machine is too busy for kills between
    the first row and the last, slower writers are killed."""
    places = (kill_twenty(recording, tmp_path / f"{pause_s}.csv", pause_s) for pause_s in (0.0, 0.004, 0.02))
    assert any(count > 8 for count in places), "the kills came too early or too late to show anything"


def kill_twenty(recording, path, pause_s):
    """Kills a run twenty times and lets it end; at how many places the kills found it."""
    todo, whole = rows_of(recording), recording.read_bytes()
    generator, counts = random.Random(7), [0]

    def size():
        return path.stat().st_size if path.exists() else 0

    for kill in range(20):
        pid = os.fork()
        if pid == 0:
            try:
                os.nice(10)  # on a busy machine it would write many rows between two looks of ours
                go_on(todo, path, pause_s)
            finally:
                os._exit(0)
        # Wait for the file to grow by a random piece (not every time: some kills come before anything happens), and a little more.
        target = size() + generator.randint(0, len(whole) // 12) * (kill % 4 != 3)
        ended = False
        while size() < target and not ended:
            time.sleep(2e-4)
            ended = os.waitpid(pid, os.WNOHANG) != (0, 0)
        if not ended:
            time.sleep(generator.uniform(0, 0.004))
            os.kill(pid, signal.SIGKILL)  # not reaped yet: the number is still its own
            os.waitpid(pid, 0)
        counts.append(path.read_bytes().count(b"\n") if path.exists() else 0)
    assert sorted(counts) == counts, "a row was lost"
    go_on(todo, path)
    assert path.read_bytes() == whole
    return len(set(counts))


def test_killed_with_a_worker(tmp_path):
    """The same through the command line and a worker process; the fake device's noise does not depend on what ran before."""
    import subprocess

    command = [sys.executable, "-c", "import sys; from advisor.cli import main; sys.exit(main())", "measure"]
    command += [
        str(launches(1)[0].kernel.file) + "::scale_kernel",
        "--configurations",
        "all",
        "--sizes",
        "B=16,H=32",
        "--sizes",
        "B=32,H=32",
    ]
    command += ["--dtype", "fp32", "--timeout", "20s"]
    whole, killed = tmp_path / "whole.csv", tmp_path / "killed.csv"
    subprocess.run([*command, "--device", "fake", "-o", str(whole)], check=True, capture_output=True)
    for wait in (0.9, 1.3):
        with subprocess.Popen([*command, "--device", "fake,sleep_ms=4", "-o", str(killed)], stderr=subprocess.DEVNULL) as run:
            time.sleep(wait)
            run.kill()
    subprocess.run([*command, "--device", "fake", "-o", str(killed)], check=True, capture_output=True)
    assert killed.read_bytes() == whole.read_bytes() and whole.read_bytes().count(b"\n") > 10


def test_one_writer_at_a_time(tmp_path):
    with Journal(tmp_path / "rows.csv"), pytest.raises(UsageError, match="another run"):
        Journal(tmp_path / "rows.csv")
    Journal(tmp_path / "rows.csv").close()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_a_file_system_without_locks_is_written_to(tmp_path, monkeypatch, number):
    def flock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", flock)
    assert measure(launches(1), tmp_path / "rows.csv", device=FAKE).measured == 6


@pytest.mark.parametrize("content", ["gpu,M,latency_us\nA100,1,2.0\n", "something else", "x\ny\n", "\x00\x01", ",".join(HEADER) + "x"])
def test_a_file_of_somebody_else_is_left_alone(tmp_path, content):
    path = tmp_path / "other.csv"
    path.write_text(content)
    with pytest.raises(InputError, match="advisor measure"):
        Journal(path)
    assert path.read_text() == content


def test_no_resume_refuses_rows(recording, tmp_path):
    with pytest.raises(UsageError, match="has rows already"):
        Journal(recording, resume=False)
    Journal(tmp_path / "new.csv", resume=False).close()
    Journal(tmp_path / "new.csv", resume=False).close()  # a header alone is no row


@pytest.mark.parametrize("name", ["rows.csv.gz", "folder"])
def test_places_that_cannot_be_appended_to(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(AdvisorError):
        Journal(tmp_path / name)


def test_a_full_disk_leaves_whole_rows(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "rows.csv")
    before = (tmp_path / "rows.csv").read_bytes()
    written = []

    def write(descriptor, data, real=os.write):
        if written:
            raise OSError(28, "No space left on device")
        written.append(real(descriptor, data[:10]))
        return 10

    with monkeypatch.context() as patch:
        patch.setattr("advisor.measurement.measured_rows.os.write", write)
        with pytest.raises(UsageError, match="No space"):
            journal.append([dict.fromkeys(HEADER, "x")])
    assert (tmp_path / "rows.csv").read_bytes() == before
    journal.close()
