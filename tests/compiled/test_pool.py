"""Compile workers end with whoever started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.compiled.compiler.pool import MOST_WORKERS, Pool, Worker
from tests.security.rooms import module, unguard

pytest.importorskip("triton")
SLOW_PTXAS = """#!{python} -SE
import os, sys, time
if "--version" in sys.argv:
    print('Cuda compilation tools, release 12.8, V12.8.93')
else:
    with open(os.environ["TMPDIR"] + "/pid", "w") as mark:
        print(os.getpid(), file=mark)
    time.sleep(600)
"""
"""It runs in the worker's room, and writes where a worker may."""
RUN = """
import os
from pathlib import Path
from advisor.compiled.guesses.inference import guesses
from advisor.compiled.compiler.kernel import Target
from advisor.compiled.launches.launch import KernelLaunch, compile_launch
from advisor.python_source.source import parse_source
text = "import triton\\nimport triton.language as tl\\n@triton.jit\\ndef k(x):\\n    tl.store(x, 1.0)\\n"
compile_launch(KernelLaunch(source=parse_source(text, "k.py"), kernel="k"), Target(backend="cuda", arch=90))
"""


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def eventually(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_leaves_no_compiler(how: signal.Signals, tmp_path: Path) -> None:
    """Neither the worker, nor the ptxas that it waits for, nor their files."""
    ptxas, temporary = tmp_path / "ptxas", tmp_path / "temporary"
    ptxas.write_text(SLOW_PTXAS.format(python=os.path.realpath(sys.executable)))
    ptxas.chmod(0o755)
    temporary.mkdir()
    environment = {
        **os.environ,
        "TRITON_PTXAS_PATH": str(ptxas),
        "TRITON_PTXAS_BLACKWELL_PATH": str(ptxas),
        "TMPDIR": str(temporary),
        "ADVISOR_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }

    def marks() -> list[str]:
        return [mark.read_text() for mark in temporary.glob("advisor-worker-*/*/pid")]

    with subprocess.Popen([sys.executable, "-c", RUN], env=environment) as run:
        try:
            assert eventually(lambda: bool(marks()) and marks()[0].endswith("\n"), 60)
            compiler = int(marks()[0])
            worker = os.getpgid(compiler)
        finally:
            run.send_signal(how)
    assert eventually(lambda: gone(compiler) and gone(worker), 10)
    assert not list(temporary.glob("advisor-*"))


def test_a_worker_without_memory_blames_itself_and_not_the_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a pull request's gate takes for a kernel that no longer compiles must be one."""
    unguard(tmp_path / "free", monkeypatch)
    worker = Worker()
    try:
        assert worker.ask(module("raise MemoryError"), 60)["kind"] == "crash"
        assert worker.ask(module("raise ValueError from MemoryError()"), 60)["kind"] == "crash"
        assert worker.ask(module("raise ValueError"), 60)["kind"] == "failed"
    finally:
        worker.close()


def test_a_worker_outlives_the_thread_that_started_it() -> None:
    """A pool's threads end with each batch of requests; its workers are kept."""
    worker = Worker()
    starter = threading.Thread(target=worker._start)
    starter.start()
    starter.join()
    try:
        assert worker.process is not None
        time.sleep(1.2)  # the worker has looked for its parent
        assert worker.process.poll() is None
    finally:
        worker.close()


def test_triton_is_not_hashed_to_name_what_is_compiled(tmp_path: Path) -> None:
    """Its own key is one of hundreds of megabytes, per process; one folder's keys are no other's, whatever cache Triton is given."""
    run = """
import sys
from triton.backends.compiler import GPUTarget
from triton.runtime import cache
from advisor.compiled.compiler import backend

def of_all_files():
    raise AssertionError("all of Triton is read")

ir = "module {\\n  tt.func public @k(%x: !tt.ptr<f32>) {\\n    %c = arith.constant 1.0 : f32\\n"
ir += "    tt.store %x, %c : !tt.ptr<f32>\\n    tt.return\\n  }\\n}\\n"
keys = set()
for folder in sys.argv[1:]:
    cache.triton_key = of_all_files
    made = backend.make_code({"options": {}, "sass": False, "kernel": "k"}, GPUTarget("cuda", 90, 32), ir, folder)
    assert "st.global" in made["asm"]["ptx"]
    keys.add(cache.triton_key())
assert len(keys) == 2, keys
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), "TRITON_DEFAULT_FP_FUSION": "1"}
    folders = [str(tmp_path / name) for name in ("one", "another")]
    for each in folders:
        Path(each).mkdir()
    done = subprocess.run([sys.executable, "-c", run, *folders], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_pool_has_a_worker_for_each_core_it_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, workers in ((1, 1), (3, 3), (96, MOST_WORKERS)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, cores=cores: set(range(cores)), raising=False)
        assert Pool().size == workers
    assert Pool(2).size == 2
