"""The room alone: Python and machine code that run freely where kernels are compiled reach nothing."""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.compiled.compiler import pool
from advisor.compiled.compiler.answers import INTERFERED
from advisor.compiled.compiler.pool import Worker
from advisor.system import sandbox

from .rooms import SECRET, kernel_request, listening, need_walls, python

REACHING = {
    "read a file": "return open('{there}/secret').read()",
    "read by number of a descriptor": "import os\nreturn [os.read(n, 100) for n in range(3, 64) if not os.get_inheritable(n) or True]",
    "list a folder": "import os\nreturn os.listdir('{there}')",
    "list the root": "import os\nreturn os.listdir('/')",
    "read the home folder": "import os\nreturn os.listdir(os.path.expanduser('~root'))",
    "read an environment": "return open('/proc/self/environ').read()",
    "read the parent's environment": "import os\nreturn open(f'/proc/{{os.getppid()}}/environ').read()",
    "read what is mounted": "return open('/proc/mounts').read()",
    "read a device": "return open('/dev/zero', 'rb').read(10)",
    "follow a link": "import os\nos.symlink('{there}/secret', 'link')\nreturn open('link').read()",
    "hard link": "import os\nos.link('{there}/secret', 'link')\nreturn open('link').read()",
    "climb": "return open('../' * 20 + '{there}/secret').read()",
    "write a file": "return open('{there}/canary', 'w').write('x')",
    "append to a file": "return open('{there}/secret', 'a').write('x')",
    "empty a file": "import os\nreturn os.truncate('{there}/secret', 0)",
    "empty a file as it is opened": "import os\nreturn os.open('{there}/secret', os.O_RDONLY | os.O_TRUNC)",
    "remove a file": "import os\nreturn os.unlink('{there}/secret')",
    "rename a file": "import os\nreturn os.rename('{there}/secret', '{there}/canary')",
    "make a folder": "import os\nreturn os.mkdir('{there}/canary')",
    "change a mode": "import os\nreturn os.chmod('{there}/secret', 0o777)",
    "change an owner": "import os\nreturn os.chown('{there}/secret', 1, 1)",
    "change times": "import os\nreturn os.utime('{there}/secret', (1, 1))",
    "set an attribute": "import os\nreturn os.setxattr('{there}/secret', 'user.canary', b'x')",
    "write to Triton": "import triton\nreturn open(triton.__file__, 'a').write('x')",
    "write to Python": "import os\nreturn open(os.__file__, 'a').write('x')",
    "write to the cache": "return open('{there}/cache/poison', 'w').write('x')",
    "connect": "import socket\nreturn socket.create_connection(('127.0.0.1', {port}), 5)",
    "connect with machine code": "import ctypes\nlibc = ctypes.CDLL(None)\nif libc.socket(2, 1, 0) < 0: raise OSError\nreturn 'socket'",
    "connect by io_uring": "import ctypes\nif ctypes.CDLL(None).syscall(425, 8, b'\\0' * 200) < 0: raise OSError\nreturn 'ring'",
    "talk to the machine's services": "import socket\nreturn socket.socket(socket.AF_UNIX)",
    "pair of sockets": "import socket\nreturn socket.socketpair()",
    "trace the parent": "import ctypes, os\nif ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) < 0: raise OSError\nreturn 'traced'",
    "read the parent's memory": "import os\nreturn open(f'/proc/{{os.getppid()}}/mem', 'rb').read(1)",
    "read memory by a call": "import ctypes, os\nif ctypes.CDLL(None).syscall(310, os.getppid(), 0, 0, 0, 0, 0) < 0: raise OSError\n"
    "return 'read'",
    "new namespaces": "import ctypes\nif ctypes.CDLL(None).unshare(0x10000000) < 0: raise OSError\nreturn 'unshared'",
    "clone with namespaces": "import ctypes\nif ctypes.CDLL(None).syscall(56, 0x10000011, 0, 0, 0, 0) < 0: raise OSError\nreturn 'cloned'",
    "keys": "import ctypes\nif ctypes.CDLL(None).syscall(250, 0, -3, 1) < 0: raise OSError\nreturn 'keyring'",
    "calls of another machine": "import ctypes\nif ctypes.CDLL(None).syscall(0x40000000 + 41, 2, 1, 0) < 0: raise OSError\nreturn 'x32'",
    "raise a limit": "import resource\nreturn resource.setrlimit(resource.RLIMIT_NPROC, (99999, 99999))",
    "become root": "import os\nreturn os.setuid(0)",
    "leave the group": "import os\nreturn os.setsid()",
    "a shell": "import subprocess\nreturn subprocess.run(['/bin/sh', '-c', 'cat {there}/secret'], capture_output=True)",
    "a program by Python": "import subprocess, sys\nreturn subprocess.run([sys.executable, '-c', "
    "'print(open(\"{there}/secret\").read())'], capture_output=True, check=True)",
    "signal the parent": "import os\nreturn os.kill(os.getppid(), 19)",
}  # fmt: skip
"""What runs -> each ends with an error."""


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A folder with a secret, open to everybody: only the room keeps it."""
    folder = tmp_path / "there"
    (folder / "cache").mkdir(parents=True)
    (folder / "secret").write_text(SECRET)
    for path in (tmp_path.parent, tmp_path, folder, folder / "cache"):
        path.chmod(0o777)
    (folder / "secret").chmod(0o666)
    return folder


def state(folder: Path) -> list[tuple[str, int, int, int, bytes]]:
    found = []
    for path in sorted(folder.rglob("*")):
        about = path.stat()
        found.append((path.name, about.st_mode, about.st_uid, about.st_mtime_ns, path.read_bytes() if path.is_file() else b""))
    return found


@pytest.mark.parametrize("how", list(REACHING))
def test_what_runs_in_the_room_reaches_nothing(how: str, room_worker: Worker, there: Path) -> None:
    before = state(there)
    with listening() as listener:
        answer = room_worker.ask(python(REACHING[how].format(there=there, port=listener.port)), 30)
        assert listener.visitors() == 0
    assert SECRET not in str(answer)
    assert state(there) == before
    assert "Error" in answer["error"].removeprefix("“ValueError: "), answer
    assert room_worker.ask({"walls": True}, 30)["walls"] == dict.fromkeys(sandbox.WALLS, "")  # it goes on


def test_machine_code_cannot_be_brought_along(room_worker: Worker, there: Path, tmp_path: Path) -> None:
    """A library whose constructor would write: it can be put nowhere, and is not loaded from where it lies."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    source = tmp_path / "e.c"
    source.write_text(
        "#include <fcntl.h>\n#include <sys/stat.h>\n__attribute__((constructor)) static void run(void) "
        f'{{ open("{there}/canary", O_CREAT | O_WRONLY, 0600); chmod("{there}/secret", 0); }}\n'
    )
    library = tmp_path / "e.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    library.chmod(0o777)
    before = state(there)
    for folder in ("/tmp", "/dev/shm", "/var/tmp", "/", "' + os.environ['HOME'] + '"):
        writing = f"import ctypes, os\nopen('{folder}/own.so', 'wb').write(bytes(9))\nreturn 'written'"
        assert "Error(" in room_worker.ask(python(writing), 30)["error"], folder
    assert "OSError(38" in room_worker.ask(python("import os\nreturn os.memfd_create('own')"), 30)["error"]
    assert "cannot open shared object" in room_worker.ask(python(f"import ctypes\nreturn ctypes.CDLL('{library}')"), 30)["error"]
    assert state(there) == before


def test_nothing_of_the_environment_is_handed_on(room_worker: Worker) -> None:
    answer = room_worker.ask(python("import ctypes, os\nreturn sorted(os.environ)"), 30)
    names = set(eval(answer["error"].strip("“”").removeprefix("ValueError: ")))
    assert names <= sandbox.PASSED | {"HOME", "TMPDIR", *sandbox.OURS}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return len(bytearray(1 << 40))", "MemoryError"),
        ("import mmap\nreturn [mmap.mmap(-1, 1 << 32) for _ in range(9)]", "OSError(12"),
        ("import os\nreturn open(os.environ['HOME'] + '/big', 'wb')", "Error("),
        ("import os\nreturn os.memfd_create('x')", "OSError(38"),
        ("import os\nr, w = os.pipe()\nreturn os.posix_fallocate(w, 0, 1 << 30)", "OSError("),
        ("import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(60,)).start()", "start new"),
        ("import os\nreturn os.fork()", "OSError(38"),
        ("import os\nreturn os.posix_spawn('/bin/true', ['true'], {})", "Error("),
        ("import os\nreturn os.execv('/bin/true', ['true'])", "OSError(38"),
    ],
    ids=["memory", "shared memory", "file", "file in memory", "disk", "threads", "fork", "spawn", "program"],
)
def test_limits_are_kept(room_worker: Worker, body: str, said: str) -> None:
    """Of all processes of a request together: there is one."""
    answer = room_worker.ask(python(body), 60)
    assert said in answer["error"], answer


@pytest.mark.parametrize("first", ["", "os.closerange(3, 64)\n"], ids=["as it is", "its answer given up"])
def test_memory_is_shared_by_all_that_is_compiled_at_once(room_worker: Worker, first: str) -> None:
    """Each worker has its share of the machine's, which no limit of a process counts."""
    body = f"import os, time\n{first}held = [bytearray(b'x') * (1 << 20) for _ in range(600)]\ntime.sleep(60)\nreturn len(held)"
    answer = room_worker.ask(python(body) | {"memory": 500_000_000}, 30)
    assert answer["kind"] == "crash" and "share of the memory, 500,000,000 bytes" in answer["error"], answer
    assert "a.b" in room_worker.ask(python("return 'a.b'"), 30)["error"]  # the worker goes on


def test_a_process_that_has_said_all_ends(room_worker: Worker) -> None:
    """It is ended long before the request's time is over, which is another answer."""
    answer = room_worker.ask(python("import os, time\nos.closerange(3, 64)\ntime.sleep(600)"), 60)
    assert "error" in answer and answer["kind"] != "timeout"


@pytest.mark.parametrize("command", [8, 10, 15, 1024, 1026, 1031])
def test_no_descriptor_sends_signals(room_worker: Worker, command: int) -> None:
    """F_SETOWN, F_SETSIG, F_SETOWN_EX, leases and notes: Landlock holds no signal back before its sixth version."""
    body = f"import fcntl, os\nr, w = os.pipe()\nreturn fcntl.fcntl(r, {command}, os.getppid())"
    assert "OSError(38" in room_worker.ask(python(body), 30)["error"]
    assert "OSError(38" in room_worker.ask(python("import fcntl\nreturn fcntl.ioctl(0, 0x8901, bytes(8))"), 30)["error"]


def test_time_is_limited_by_the_processor_and_by_the_clock(room_worker: Worker) -> None:
    assert room_worker.ask(python("while True:\n    pass"), 2)["kind"] in ("timeout", "crash")
    assert room_worker.ask(python("import time\ntime.sleep(600)"), 2)["kind"] == "timeout"


LEAVING = """#!{python} -SE
import os, sys, time
if "--version" in sys.argv:
    print('Cuda compilation tools, release 12.8, V12.8.93')
elif os.fork() == 0:
    time.sleep(600)
"""


def test_what_an_assembler_leaves_running_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that outlives its request would see the next one."""
    need_walls()
    ptxas = tmp_path / "ptxas"
    ptxas.write_text(LEAVING.format(python=os.path.realpath(sys.executable)))
    ptxas.chmod(0o755)
    for name in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        monkeypatch.setenv(name, str(ptxas))
    worker = Worker()
    try:
        assert "error" in worker.ask(kernel_request(), 20)
        process = worker.process
        assert process is None or process.wait(10) == -signal.SIGKILL
        for name in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
            monkeypatch.delenv(name)
        worker.close()
        assert "asm" in worker.ask(kernel_request(), 60)
    finally:
        worker.close()


def test_what_one_request_leaves_no_other_finds(room_worker: Worker) -> None:
    """Of the Python that it changes; files it makes none."""
    spoil = "import json, sys\njson.dumps = None\nsys.modules['triton'] = None\nreturn 'spoilt'"
    assert "spoilt" not in str(room_worker.ask(python(spoil), 30).get("asm"))
    assert "a.b" in room_worker.ask(python("return 'a.b'"), 30)["error"]


ANSWERS = [
    b"not JSON", b"[" * 100_000, b'{"asm": {"ptx": 1}, "triton": "3"}', b'{"triton": "3.9.0", "asm": {}}', b"E{}", b"E[]", b"Enull",
    b'E{"error": 1, "kind": "failed"}', b'E{"error": "CANARY", "kind": "missing"}', b'E{"error": "CANARY", "kind": "walls"}',
    b'E{"error": "CANARY", "kind": "failed", "walled": true}', b'E{"error": "a", "kind": "failed"}E{"error": "b", "kind": "failed"}',
    b"I", b"Inot IR", b"I\xff\xfe", b"Imodule {}", b"", b"E" + b"[" * 100_000,
    b'Imodule attributes {"llvm.module_asm" = [".incbin \\22/etc/passwd\\22"]} {}',
    b"Imodule attributes {llvm.module_asm = [\".rept 9\"]} {tt.func public @k() {tt.return}}",
    b'I// "\nmodule attributes {llvm.module_asm = [".incbin"]} { // "\n}',
    b'Imodule attributes {"llvm.module_asm" // x\n = [".incbin"]} {tt.func public @k() {tt.return}}',
    b'Imodule {tt.func public @k() attributes {"llvm.emit_c_interface"} {tt.return}}',
    b'Imodule {tt.func public @k() attributes {section = ".init_array"} {tt.return}}',
    b'Imodule {tt.func public @k() attributes {noinline = false, passthrough = [["a", "b"]]} {tt.return}}',
    b'I// tt.func public @k(\nmodule {tt.func private @k() {tt.return}}',
    b'Imodule {tt.func public @k() {tt.call @"a\\0D.incbin"() : () -> ()\n tt.return}\n'
    b'tt.func private @"a\\0D.incbin"() attributes {noinline = true} {tt.return}}',
    b'Imodule {tt.func public @k() {tt.return loc("foo\\0D.incbin":1:1)} loc("foo\\0D.incbin":1:1)} loc(unknown)',
    b"Imodule {llvm.func @k() {llvm.return}}", b'Imodule {"llvm.func"() ({}) : () -> ()}',
    b'Imodule {tt.func public @k(%x: f32) {%a = tt.extern_elementwise %x {libname = "a", libpath = "/tmp/e.so", pure = true, symbol = "f"} '
    b": (f32) -> f32\n tt.return}}",
]  # fmt: skip


@pytest.mark.parametrize("forged", ANSWERS, ids=range(len(ANSWERS)))
def test_an_answer_that_is_none_is_said_to_be_none(room_worker: Worker, forged: bytes) -> None:
    """The process that reads a source may write whatever it likes where its IR is expected."""
    body = f"import os\nfor n in range(3, 64):\n    try:\n        os.write(n, {forged!r})\n    except OSError:\n        pass\nos._exit(0)"
    answer = room_worker.ask(python(body), 30)
    assert answer["kind"] == "interfered" and answer["error"].startswith(INTERFERED), answer
    assert "a.b" in room_worker.ask(python("return 'a.b'"), 30)["error"]  # each request has its own answer


def test_what_the_walls_lack_cannot_be_said_by_a_source(room_worker: Worker) -> None:
    """The descriptor that takes it is closed before a word of the source is read."""
    body = "import os\nopen_ = []\nfor n in range(3, 4096):\n    try:\n        os.fstat(n)\n        open_.append(n)\n"
    body += "    except OSError:\n        pass\nreturn len(open_)"
    assert room_worker.ask(python(body), 30)["error"] == "“ValueError: 1”"


def test_an_answer_without_end_is_cut(room_worker: Worker) -> None:
    body = "import os\nwhile True:\n    for n in range(3, 64):\n        try:\n            os.write(n, bytes(1 << 20))\n"
    body += "        except OSError:\n            pass"
    assert "larger than" in room_worker.ask(python(body), 60)["error"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="of what root becomes")
def test_root_is_root_no_more(room_worker: Worker) -> None:
    answer = room_worker.ask(python("import os\nreturn os.getuid() * os.geteuid() * os.getgid() > 0 and not os.getgroups()"), 30)
    assert "True" in answer["error"]


def test_folders_deeper_than_any_compilation_makes_are_too_large(tmp_path: Path) -> None:
    """What is written there is not counted, so nothing is to be there."""
    worker = runpy.run_path(str(pool.WORKER))
    (tmp_path / "cache" / "a" / "b").mkdir(parents=True)
    assert worker["disk_bytes"](str(tmp_path)) < 100_000
    (tmp_path / "cache" / "a" / "b" / "c").mkdir()
    assert worker["disk_bytes"](str(tmp_path)) > worker["MOST_DISK_BYTES"]
