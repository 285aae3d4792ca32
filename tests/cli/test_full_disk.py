"""A disk that is full, or a device that always is: one line that names the file and what to do, and nothing half written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.cli import main
from tests import loaded

DATA = Path(__file__).resolve().parents[1] / "data"
FULL = Path("/dev/full")
MODEL = ["--model", "Qwen3-30B-A3B", "--gpu", "H200", "--tokens", "64"]
TUNE = ["tune", "fused_moe", *MODEL, "--recorded", str(DATA / "sweep.csv"), "--trials", "3"]
MEASURE = ["measure", "softmax", "--device", "fake", "--sizes", "B=64,H=512", "-o"]
MAIN = "from advisor.cli import main\nsys.exit(main(sys.argv[1:]))"
SIDES = [str(DATA / "compare" / f"{name}.json") for name in ("before", "after")]


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A link to the device that is always full: were it replaced by a file, the device itself would stay."""
    if not FULL.exists():
        pytest.skip("this system has no /dev/full")
    link = tmp_path / "full"
    link.symlink_to(FULL)
    return link


def with_small_files(most: int, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, where no file may grow beyond so many bytes: to a program as a disk that fills up while it writes."""
    # A module's bytecode would be cut off too, and its place taken: no later process could import it.
    limited = f"import resource, sys\nsys.dont_write_bytecode = True\nresource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))\n{code}"
    return subprocess.run([*loaded.python(), "-c", limited, *arguments], capture_output=True, text=True, check=False)


def one_line(error: str, *words: str) -> bool:
    lines = [line for line in error.splitlines() if line.startswith("advisor: error: ")]
    return len(lines) == 1 and "Traceback" not in error and all(word in lines[0] for word in words)


@pytest.mark.parametrize(
    "command",
    [
        ["predict", str(DATA / "rows.csv"), "-o"],
        ["rank", str(DATA / "shapes.csv"), "-o"],
        [*MEASURE],
        ["cache", "export", "--dir", "{cache}"],
    ],
    ids=lambda command: command[0],
)
def test_a_file_on_a_full_device(tmp_path, capsys, full, command):
    if command[0] == "cache":
        measured = tmp_path / "export.json"
        measured.write_text((DATA / "tuned-cache.json").read_text().replace(' "origin": "simulated",\n', ""))
        assert main(["cache", "import", str(measured), "--dir", str(tmp_path)]) == 0
    command = [str(tmp_path) if word == "{cache}" else word for word in command]
    assert main([*command, str(full)]) == 2
    assert one_line(capsys.readouterr().err, f"{full}: cannot be written (No space left on device)", "make room")
    assert full.is_symlink() and not list(tmp_path.glob(".full*"))


def test_a_record_on_a_full_device_is_told_before_the_program_runs(tmp_path, capsys, full):
    ran = tmp_path / "ran"
    assert main(["record", "-o", str(full), "--", sys.executable, "-c", f"open({str(ran)!r}, 'w')"]) == 2
    assert one_line(capsys.readouterr().err, str(full), "make room") and not ran.exists()


def test_launches_that_find_no_room_are_told(tmp_path):
    script = (
        "import resource, sys; sys.dont_write_bytecode = True; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); import errno\n"
        "from advisor.compiled.recorder.hook import Recorder\n"
        "recorder = Recorder(sys.argv[1], '')\n"
        "for _ in range(2):\n"
        "    try: recorder.write({'launch': 'x' * 200})\n"
        "    except OSError: pass\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "launches.jsonl")], capture_output=True, text=True, check=True)
    assert done.stderr.count("\n") == 1 and "launches.jsonl: cannot be written" in done.stderr and "record again" in done.stderr


@pytest.mark.parametrize("command", [["advise", "fused_moe", *MODEL], ["compare", *SIDES], TUNE], ids=lambda command: command[0])
def test_a_folder_whose_disk_fills_up(tmp_path, command):
    output = tmp_path / "out"
    done = with_small_files(4096, MAIN, *command, "--output", str(output))
    assert done.returncode == 2
    assert one_line(done.stderr, f"{output}/", "cannot be written", "make room")
    assert not list(output.glob(".*"))


def test_exports_that_find_no_room(tmp_path, capsys, full):
    assert main([*TUNE, "--output", str(tmp_path / "out"), "--export", str(full)]) == 2
    assert one_line(capsys.readouterr().err, f"{full}/", "cannot be written (a file stands where its folder would be)", "--export")


@pytest.mark.parametrize("storage", ["full", "."])
def test_a_study_is_not_kept_in_a_device_or_a_folder(tmp_path, capsys, full, storage):
    """A device is read without end."""
    assert main([*TUNE, "--output", str(tmp_path / "out"), "--storage", str(tmp_path / storage)]) == 2
    assert one_line(capsys.readouterr().err, str(tmp_path / storage), "--storage")


def test_a_study_that_found_no_room_goes_on_later(tmp_path):
    storage = tmp_path / "study.journal"
    command = [*TUNE, "--output", str(tmp_path / "out"), "--storage", str(storage)]
    done = with_small_files(3000, MAIN, *command)
    assert done.returncode == 2
    assert one_line(done.stderr, f"{storage}: cannot be written", "make room", "run it again")
    assert all(json.loads(line) for line in storage.read_text().splitlines()) and storage.read_text().endswith("\n")
    assert main(command) == 0


def test_a_database_that_fails_is_named_without_its_password():
    import optuna

    from advisor.search.storage import database_errors_named
    from advisor.system.errors import UsageError

    said = r"postgresql://me@host/db: the storage failed \(disk full\)"
    with pytest.raises(UsageError, match=said) as caught, database_errors_named("postgresql://me:secret@host/db"):
        raise optuna.exceptions.StorageInternalError("commit") from OSError("disk full")
    assert "same command again" in str(caught.value)


@pytest.mark.parametrize("command", [["gpus"], ["schema"]])
def test_standard_output_on_a_full_device(command):
    if not FULL.exists():
        pytest.skip("this system has no /dev/full")
    with FULL.open("w") as stream:
        done = subprocess.run([sys.executable, "-m", "advisor", *command], stdout=stream, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert one_line(done.stderr, "standard output", "No space left on device", "make room") and done.stderr.count("\n") == 1


def test_weights_that_find_no_room(tmp_path):
    save = "from advisor.learned import weights\nweights.save(weights.load(weights.shipped()), sys.argv[1])"
    done = with_small_files(4096, save, str(tmp_path / "w.npz"))
    assert done.returncode == 1
    assert re.search(r"UsageError: .*w\.npz: cannot be written", done.stderr), done.stderr
    assert not list(tmp_path.iterdir())
