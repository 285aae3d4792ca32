"""The room alone: Python and machine code that run freely where kernels are compiled reach nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from advisor.compiled.compiler.pool import Worker
from advisor.system import room

from .rooms import SECRET, listening, python

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
    assert "Error" in answer["error"].removeprefix("ValueError: "), answer
    assert room_worker.ask({"walls": True}, 30)["walls"] == dict.fromkeys(room.WALLS, "")  # it goes on


def test_machine_code_reaches_nothing(room_worker: Worker, there: Path, tmp_path: Path) -> None:
    """A library whose constructor writes, and changes a mode: loaded where libraries are read from, it finds the same walls."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    source = tmp_path / "e.c"
    source.write_text(
        "#include <fcntl.h>\n#include <stdlib.h>\n#include <sys/socket.h>\n#include <sys/stat.h>\n#include <unistd.h>\n"
        f'int wrote = 7, mode = 7, sock = 7;\n__attribute__((constructor)) static void run(void) {{ wrote = open("{there}/canary", '
        f'O_CREAT | O_WRONLY, 0600); mode = chmod("{there}/secret", 0); sock = socket(AF_INET, SOCK_STREAM, 0); }}\n'
    )
    library = tmp_path / "e.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    before = state(there)
    body = (
        "import ctypes, os\nos.chdir(os.environ['HOME'])\nwith open('own.so', 'wb') as file:\n"
        f"    file.write(bytes.fromhex('{library.read_bytes().hex()}'))\nlibrary = ctypes.CDLL(os.path.abspath('own.so'))\n"
        "return [ctypes.c_int.in_dll(library, name).value for name in ('wrote', 'mode', 'sock')]"
    )
    answer = room_worker.ask(python(body), 30)
    assert "[-1, -1, -1]" in answer["error"], answer
    assert state(there) == before
    assert "cannot open shared object" in room_worker.ask(python(f"import ctypes\nreturn ctypes.CDLL('{library}')"), 30)["error"]


def test_nothing_of_the_environment_is_handed_on(room_worker: Worker) -> None:
    answer = room_worker.ask(python("import ctypes, os\nreturn sorted(os.environ)"), 30)
    names = set(eval(answer["error"].removeprefix("ValueError: ")))
    assert names <= room.PASSED | {"HOME", "TMPDIR", *room.OURS}


FORKS = """import os, time
children = []
try:
    while len(children) < 50_000:
        child = os.fork()
        if child == 0:
            time.sleep(60)
        children.append(child)
except OSError:
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
    return f'stopped after {len(children)}'"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return len(bytearray(1 << 40))", "MemoryError"),
        (
            "import os\nwith open(os.environ['HOME'] + '/big', 'wb') as f:\n    for _ in range(2000):\n        f.write(bytes(1 << 20))",
            "OSError",
        ),
        ("import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(60,)).start()", "start new"),
        (FORKS, "stopped after"),
    ],
    ids=["memory", "file", "threads", "processes"],
)  # fmt: skip
def test_limits_are_kept(room_worker: Worker, body: str, said: str) -> None:
    answer = room_worker.ask(python(body), 60)
    assert said in answer["error"], answer


def test_time_is_limited_by_the_processor_and_by_the_clock(room_worker: Worker) -> None:
    began = time.monotonic()
    assert room_worker.ask(python("while True:\n    pass"), 2)["kind"] in ("timeout", "crash")
    assert room_worker.ask(python("import time\ntime.sleep(600)"), 2)["kind"] == "timeout"
    assert time.monotonic() - began < 30


def test_what_is_left_running_is_ended(room_worker: Worker, tmp_path: Path) -> None:
    """A process that outlives its request would see the next one."""
    body = (
        "import os\nif os.fork() == 0:\n    if os.fork() == 0:\n        __import__('time').sleep(600)\n    os._exit(0)\nreturn os.getpid()"
    )
    room_worker.ask(python(body), 3)
    worker = room_worker.process
    assert worker is None or worker.wait(10) == -signal.SIGKILL
    assert "a.b" in room_worker.ask(python("return 'a.b'"), 30)["error"]


def test_what_one_request_leaves_no_other_finds(room_worker: Worker) -> None:
    """Neither in the folder that it writes nor in the Python that it changes."""
    spoil = "import json, sys, tempfile\njson.dumps = None\nopen(tempfile.gettempdir() + '/left', 'w').write('x')\n"
    spoil += "sys.modules['triton'] = None\nreturn 'spoilt'"
    assert "spoilt" not in str(room_worker.ask(python(spoil), 30).get("asm"))
    assert "[]" in room_worker.ask(python("import os\nreturn [n for n in os.listdir(os.environ['HOME']) if n == 'left']"), 30)["error"]


ANSWERS = [
    b"not JSON", b"[" * 100_000, b'{"asm": {"ptx": 1}, "triton": "3"}', b'{"asm": {}, "triton": "3", "metadata": {"shared": "x"}}',
    b'{"error": 1, "kind": "failed"}', b"{}", b"null", b'{"walls": {}}\n{"asm": {}}', b"",
]  # fmt: skip


@pytest.mark.parametrize("forged", ANSWERS, ids=range(len(ANSWERS)))
def test_an_answer_that_is_none_is_said_to_be_none(room_worker: Worker, forged: bytes) -> None:
    """The process that compiles could write to its parent's pipe whatever it likes."""
    body = f"import os\nfor n in range(3, 64):\n    try:\n        os.write(n, {forged!r})\n    except OSError:\n        pass\nos._exit(0)"
    answer = room_worker.ask(python(body), 30)
    assert answer["kind"] == "crash", answer
    assert "a.b" in room_worker.ask(python("return 'a.b'"), 30)["error"]  # each request has its own answer


def test_an_answer_without_end_is_cut(room_worker: Worker) -> None:
    body = "import os\nwhile True:\n    for n in range(3, 64):\n        try:\n            os.write(n, bytes(1 << 20))\n"
    body += "        except OSError:\n            pass"
    assert "larger than" in room_worker.ask(python(body), 60)["error"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="of what root becomes")
def test_root_is_root_no_more(room_worker: Worker) -> None:
    answer = room_worker.ask(python("import os\nreturn os.getuid() * os.geteuid() * os.getgid() > 0 and not os.getgroups()"), 30)
    assert "True" in answer["error"]
