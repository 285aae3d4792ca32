"""Every door that takes a file: pipes, devices, folders, broken links and bombs are refused in words, soon, and without much memory."""

from __future__ import annotations

import gzip
import io
import json
import multiprocessing
import os
import sqlite3
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from advisor.learned import weights
from advisor.rows.launches import FORMAT, read_launches

from . import door_process

TABLE = "E=8,N=1024,device_name=NVIDIA_H100.json"
KERNEL = "import triton\nimport triton.language as tl\n@triton.jit\ndef k(x):\n    tl.store(x, 1.0)\n"
MOE = ("advise", "fused_moe", "--model", "Qwen3-30B-A3B", "--gpu", "H100", "--tokens", "64", "--output", "OUT")
DOORS: dict[str, tuple[str, ...]] = {
    "a table": ("advise", TABLE, "--output", "OUT"),
    "a table to audit": ("audit", TABLE),
    "a kernel": ("inspect", "DOOR.py::k", "--target", "sm_90"),
    "a kernel to advise on": ("advise", "DOOR.py::k", "--gpu", "H100", "--output", "OUT"),
    "a record": ("advise", "DOOR.jsonl", "--gpu", "H100", "--output", "OUT"),
    "a tuning cache": ("advise", "cache.sqlite3", "--gpu", "H100", "--output", "OUT"),
    "a cache to import": ("cache", "import", "DOOR.json", "--dir", "OUT"),
    "a description of a GPU": ("advise", "fused_moe", "--model", "Qwen3-30B-A3B", "--gpu", "DOOR.toml", "--output", "OUT"),
    "a description of a launch": ("inspect", "own.py::k", "--target", "sm_90", "--toml", "DOOR.toml"),
    "a routing": (*MOE, "--routing", "DOOR.json"),
    "measurements": (*MOE, "--measured", "DOOR.csv"),
    "weights": (*MOE, "--weights", "DOOR.npz"),
    "rows": ("predict", "DOOR.csv", "-o", "OUT.csv"),
    "shapes": ("rank", "DOOR.csv", "-o", "OUT.csv"),
    "rows to evaluate": ("evaluate", "DOOR.csv"),
    "rows to train on": ("train", "DOOR.csv", "-o", "OUT.npz"),
    "a plan": ("measure", "--plan", "DOOR.toml", "-o", "OUT.csv"),
    "a recording": ("tune", "fused_moe", "--model", "Qwen3-30B-A3B", "--gpu", "H100", "--recorded", "DOOR.csv", "--output", "OUT"),
    "results": ("compare", "DOOR.json", "DOOR.json"),
    "rows to compare": ("compare", "DOOR.csv", "DOOR.csv"),
    "kernels to compare": ("compare", "DOOR.py", "DOOR.py"),
    "launches": ("compare", "own.py", "other.py", "--launches", "DOOR.jsonl"),
    "a comparison": ("compare", "--render", "DOOR.json"),
    "rows of one's own GPU": ("calibrate", "DOOR.csv", "-o", "OUT.npz"),
    "a model": ("model", "DOOR.json", "--gpu", "H100"),
    "a trace of its step": ("model", "Qwen3-30B-A3B", "--gpu", "H100", "--measured", "DOOR.json"),
    "a packed trace": ("advise", "DOOR.json.gz", "--gpu", "H100", "--output", "OUT"),
    "a log of TritonParse": ("advise", "DOOR.ndjson", "--gpu", "H100", "--output", "OUT"),
    "a GPU to show": ("gpus", "DOOR.toml"),
}  # fmt: skip
DEEP = "[" * 200_000
BOMBS: dict[str, bytes] = {
    ".json": b'{"1": ' + DEEP.encode(),
    ".jsonl": f"{DEEP}\n".encode() * 20,
    ".toml": b"a" + b".a" * 20_000 + b" = 1",
    ".csv": gzip.compress(b"a," * 50_000_000, 1),
    ".py": b"x = " + b"(" * 100_000,
    ".npz": b"",
    ".gz": gzip.compress(b" " * 100_000_000, 1),
    ".ndjson": f"{DEEP}\n".encode() * 20,
    ".sqlite3": b"SQLite format 3\0" + b"\xff" * 100_000,
}
MOST_S, MOST_BYTES = 2.0, 300_000_000
LOADED = (
    "advisor.advising.table_report",
    "advisor.advising.kernel_report",
    "advisor.autotuning.tuned_result",
    "advisor.comparison",
    "advisor.measurement",
    "advisor.rendering.page",
    "advisor.rendering.terminal",
    "advisor.steps.trace",
    "advisor.tables.audit",
)


def npz(**arrays: bytes) -> bytes:
    """An archive of the arrays of which the bytes are given."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in arrays.items():
            archive.writestr(f"{name}.npy", data)
    return buffer.getvalue()


def claims(shape: str, kind: str = "<f8", data: bytes = b"") -> bytes:
    """An array's head, whatever follows it."""
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + data


BOMBS[".npz"] = npz(meta=claims("(8589934592,)"))


def put(path: Path, kind: str) -> None:
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a broken link":
        path.symlink_to("nowhere")
    else:
        path.write_bytes(BOMBS[path.suffix])


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Commands are forked from a process that has loaded what they need: that takes longer than most of them."""
    os.environ["OMP_NUM_THREADS"] = "1"
    FORKED.set_forkserver_preload(["advisor.cli", "numpy", "rich.console", *LOADED])


FORKED = multiprocessing.get_context("forkserver")


def run(command: tuple[str, ...], folder: Path) -> tuple[int, str, float, int]:
    """Exit code, words, seconds of processor time, and bytes of memory at most. A command that hangs is killed."""
    process = FORKED.Process(target=door_process.go, args=(command, str(folder)))
    process.start()
    process.join(60)
    if process.is_alive():
        process.kill()
        process.join()
        pytest.fail(f"{' '.join(command)}: no end")
    words = (folder / "words").read_text(encoding="utf-8")
    assert process.exitcode == 0, words
    code, seconds, most = json.loads((folder / "ended").read_text(encoding="utf-8"))
    return code, words, seconds, most


@pytest.mark.parametrize("kind", ["a pipe", "a device", "a folder", "a broken link", "a bomb"])
@pytest.mark.parametrize("door", list(DOORS))
def test_what_is_no_file_is_refused(door: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(KERNEL)
    (tmp_path / "other.py").write_text(KERNEL.replace("1.0", "2.0"))
    names = {word.partition("::")[0] for word in DOORS[door] if "DOOR" in word or word in (TABLE, "cache.sqlite3")}
    for name in names:
        put(tmp_path / name, kind)
    code, words, seconds, memory = run(DOORS[door], tmp_path)
    assert code == 2 or (kind == "a folder" and code == 5), words  # many a door takes folders, and finds nothing in this one
    assert "Traceback" not in words and "internal" not in words, words
    assert "advisor: " in words, words
    assert seconds < MOST_S, f"{seconds:.1f} s: {words}"
    assert memory < MOST_BYTES, f"{memory / 1e6:.0f} MB: {words}"


def edited(change: Callable[[dict[str, np.ndarray]], None]) -> bytes:
    """The shipped weights with a change, kept so that they say what they hold."""
    place = weights.shipped()
    assert place is not None
    with np.load(place, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    change(arrays)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def spoil(name: str, value: float) -> Callable[[dict[str, np.ndarray]], None]:
    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name].flat[0] = value

    return change


def meta(text: str) -> Callable[[dict[str, np.ndarray]], None]:
    return lambda arrays: arrays.update(meta=np.array(text))


WEIGHTS: dict[str, Callable[[], bytes]] = {
    "64 GiB": lambda: npz(meta=claims("(8589934592,)")),
    "more than there is": lambda: npz(meta=claims("(2, 2)", data=bytes(8))),
    "a negative size": lambda: npz(meta=claims("(-1,)", data=bytes(8))),
    "objects": lambda: npz(meta=claims("(1,)", "|O", b"cos\nsystem\n(S'echo'\ntR.")),
    "zeros without end": lambda: npz(meta=claims("(300000000,)", "|u1", bytes(300_000_000))),
    "a deep meta": lambda: edited(meta(DEEP)),
    "a meta that is no object": lambda: edited(meta("[]")),
    "no number": lambda: edited(spoil("moe/common/leaf", float("nan"))),
    "an infinite one": lambda: edited(spoil("moe/physics", float("inf"))),
    "a feature out of range": lambda: edited(spoil("moe/common/feature", 200)),
    "a win out of range": lambda: edited(spoil("moe/wins/configuration", 60_000)),
    "a leaf out of range": lambda: edited(spoil("moe/common/ruled_out", 65_535)),
    "counts that do not add up": lambda: edited(spoil("moe/common/edge_counts", 250)),
    "an archive that is none": lambda: b"PK\x03\x04" + bytes(100),
    "text": lambda: b"weights",
}


@pytest.mark.parametrize("how", list(WEIGHTS))
def test_weights_are_checked_before_they_are_read(how: str, tmp_path: Path) -> None:
    (tmp_path / "DOOR.npz").write_bytes(WEIGHTS[how]())
    code, words, seconds, memory = run(DOORS["weights"], tmp_path)
    assert code == 2 and "DOOR.npz" in words, words
    assert seconds < MOST_S and memory < MOST_BYTES, f"{seconds:.1f} s, {memory / 1e6:.0f} MB"


def test_many_launches_are_read_soon(tmp_path: Path) -> None:
    """A record of 20,000 launches, each of several processes."""
    about = {"kernel": "k", "signature": {"x": "*fp32"}, "constexprs": {}, "arguments": {}, "tensors": {}, "grid": [1]}
    with (tmp_path / "r.jsonl").open("w") as record:
        record.write(json.dumps({"format": FORMAT}) + "\n")
        for source in range(500):
            record.write(json.dumps({"source": f"s{source}", "path": f"{source}.py", "text": ""}) + "\n")
        for number in range(20_000):
            record.write(json.dumps({"launch": f"l{number}", "process": "1", **about}) + "\n")
            for process in ("1", "2"):
                record.write(json.dumps({"count_of": f"l{number}", "process": process, "count": 2, "times_us": [1.0]}) + "\n")
    began = time.process_time()
    found = read_launches(tmp_path / "r.jsonl")
    assert time.process_time() - began < MOST_S
    assert len(found.launches) == 20_000 and {launch.count for launch in found.launches} == {4}


def test_a_database_is_opened_and_nothing_in_it_is_run(tmp_path: Path) -> None:
    """A view, a trigger and a table of another name in the file of a tuning cache."""
    path = tmp_path / "cache.sqlite3"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE VIEW problems AS SELECT load_extension('e.so') AS id; PRAGMA user_version = 2;")
    connection.close()
    code, words, *_ = run(("advise", "cache.sqlite3", "--gpu", "H100", "--output", "OUT"), tmp_path)
    assert code in (2, 5) and "Traceback" not in words and "internal" not in words, words
