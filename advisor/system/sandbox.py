"""The sandbox that untrusted code is compiled in: walls that the kernel of this machine holds, whatever runs within them.

The Python of a kernel is not to be trusted, and what looks through it for what it may not do can be outwitted. So the process that
compiles it gives up, before it reads a word of it, all that it does not need. `Sandbox` does that with what Linux gives to anyone:

- environment: the variables of `PASSED`, and no others;
- files: Landlock. Python, Triton and the system's libraries are read; one temporary folder is written, or none. What it does not hold is
  asking whether a path exists, and how large and old a file is;
- system: seccomp. Only the calls of `_CALLS`, which act on the process itself, on what it has open, and on files, where Landlock decides:
  no sockets, so no network; no owners, modes and times of files; no other process's memory; no namespaces, mounts, keys or clocks; no
  memory and no room on the disk that limits do not count; no signals by way of a descriptor. Another program is started only in the room
  with a folder, whose compiler starts the assembler;
- limits: memory, processor time, size of a file, number of processes and threads. What runs as root becomes a user without a name first.

A file of the standard library alone, for the Python that compiles need not have `advisor`. What an interpreter of another system or an
older kernel cannot build is said by `enter`, wall by wall.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import socket
import struct
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

try:
    import resource  # here, not where the limits are set: what is imported later could be another's file of that name
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

WALLS = ("environment", "files", "system", "limits")
"""The walls, in the order in which they are told of."""
PASSED = frozenset(
    ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "SYSTEMROOT", "ADVISOR_DEBUG", "ADVISOR_COMPILE_MEMORY_BYTES",
      "PTXAS_OPTIONS", "DISABLE_PTXAS_OPT", "AMDGCN_USE_BUFFER_OPS", "AMDGCN_USE_BUFFER_ATOMICS",
     "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "TRITON_CUOBJDUMP_PATH", "TRITON_NVDISASM_PATH", "TRITON_LIBDEVICE_PATH",
     "TRITON_AMD_CODEGEN_PATH", "TRITON_DEFAULT_FP_FUSION", "TRITON_F32_DEFAULT", "TRITON_DISABLE_LINE_INFO",
     "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS", "TRITON_HIP_USE_BLOCK_PINGPONG", "TRITON_HIP_USE_IN_THREAD_TRANSPOSE",
     "TRITON_HIP_USE_ASYNC_COPY")
)  # fmt: skip
"""Variables that a compiler is told: where its tools and libraries are, and what changes the code it makes. Nothing of Python's own, which
would name folders to import from."""
FOLDER_LISTS = ("PATH", "LD_LIBRARY_PATH")
"""Of these variables only absolute folders are handed on: others would mean whatever folder a process happens to stand in."""
FILE_BYTES = 1 << 28
MEMORY_BYTES = 12 << 30
PROCESSES = 512
"""Processes and threads at once: MLIR starts one for each core."""
MINIMUM_LANDLOCK = 3
"""Version of Landlock from which what may only be read cannot be emptied either (Linux 6.2)."""

_READ_FILE, _READ_FOLDER, _EXECUTE, _IOCTL = 1 << 2, 1 << 3, 1 << 0, 1 << 15
_WRITE = sum(1 << bit for bit in (1, 4, 5, 7, 8, 13, 14))  # write, remove and make files and folders, move, truncate: no devices, no links
_OF_FILES = _EXECUTE | 1 << 1 | _READ_FILE | 1 << 14 | _IOCTL
_KNOWN_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Version of Landlock -> kinds of access to files that it decides about; 16 from version 5 on. Source: linux/landlock.h."""
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same for all machines

_ARCHITECTURES = {"x86_64": (0, 0xC000003E, 317), "aarch64": (1, 0xC00000B7, 277)}
"""Machine -> column of `_CALLS`, what seccomp calls it (linux/audit.h), number of seccomp(2)."""
_CALLS = """
read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69, pwritev 296 70, preadv2 327 286,
pwritev2 328 287, lseek 8 62, close 3 57, close_range 436 436, dup 32 23, dup2 33 -, dup3 292 24, flock 73 32,
fsync 74 82, fdatasync 75 83, ftruncate 77 46, fadvise64 221 223, sendfile 40 71, copy_file_range 326 285,
pipe 22 -, pipe2 293 59, poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72, epoll_create 213 -, epoll_create1 291 20,
epoll_ctl 233 21, epoll_wait 232 -, epoll_pwait 281 22, eventfd2 290 19,
open 2 -, openat 257 56, openat2 437 437, creat 85 -, stat 4 -, fstat 5 80, lstat 6 -, newfstatat 262 79, statx 332 291, statfs 137 43,
fstatfs 138 44, access 21 -, faccessat 269 48, faccessat2 439 439, readlink 89 -, readlinkat 267 78, getdents 78 -, getdents64 217 61,
getcwd 79 17, chdir 80 49, fchdir 81 50, mkdir 83 -, mkdirat 258 34, rmdir 84 -, unlink 87 -, unlinkat 263 35, rename 82 -,
renameat 264 38, renameat2 316 276, umask 95 166,
mmap 9 222, munmap 11 215, mremap 25 216, mprotect 10 226, madvise 28 233, brk 12 214, mlock 149 228, munlock 150 229, mincore 27 232,
futex 202 98, set_robust_list 273 99, get_robust_list 274 100, rseq 334 293, set_tid_address 218 96, membarrier 324 283,
arch_prctl 158 -, gettid 186 178, getpid 39 172, getppid 110 173, getuid 102 174, geteuid 107 175, getgid 104 176,
getegid 108 177, getgroups 115 158, getresuid 118 148, getresgid 120 150, getpgrp 111 -, getpgid 121 155, getsid 124 156,
times 100 153, getrusage 98 165, sysinfo 99 179, uname 63 160, getcpu 309 168, getpriority 140 141, capget 125 90, getrlimit 97 163,
sched_yield 24 124, sched_getaffinity 204 123, sched_getparam 143 121, sched_getscheduler 145 120, sched_get_priority_min 147 126,
sched_get_priority_max 146 125, getrandom 318 278,
clock_gettime 228 113, clock_getres 229 114, clock_nanosleep 230 115, nanosleep 35 101, gettimeofday 96 169, time 201 -,
setitimer 38 103, getitimer 36 102,
exit 60 93, exit_group 231 94, wait4 61 260, waitid 247 95, rt_sigaction 13 134,
rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigsuspend 130 133, rt_sigpending 127 136, rt_sigtimedwait 128 137,
sigaltstack 131 132, restart_syscall 219 128, pause 34 -
"""
"""System calls that are allowed: name, number on x86_64, number on aarch64. Source: asm/unistd_64.h and asm-generic/unistd.h of Linux 6."""
_SIGNALS = "kill 62 129, tkill 200 130, tgkill 234 131"
"""Allowed where Landlock keeps signals within the room (from its version 6 on)."""
_PROGRAMS = "vfork 58 -, fork 57 -, execve 59 221"
"""Allowed where other programs are started."""
_CLONE, _PRLIMIT = (56, 220), (302, 261)
_NEW_NAMESPACES, _THREAD = 0x7E020000, 1 << 16
"""Flags of clone(2): those that make namespaces, and the one of a thread. clone3(2), whose flags no filter sees, is answered as by a kernel
that lacks it."""
_COMMANDS = {
    (72, 25): (1, (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1032)),
    (16, 29): (1, (0x5401, 0x5413, 0x541B, 0x5450, 0x5451)),
    (157, 167): (0, (3, 15, 16, 38, 39, 0x53564D41)),
}
"""Calls that do many things: number on x86_64 and aarch64 -> which argument says what is done, and what may be. fcntl: duplicates, flags
and locks of descriptors, not who gets their signals (F_SETOWN, F_SETSIG); ioctl: whether it is a terminal and how wide, how much can be
read, closing on exec; prctl: names of threads and of memory, and what was given up. Source: linux/fcntl.h, asm-generic/ioctls.h and
linux/prctl.h."""
_READ_SEARCH = 2
"""The capability to read what belongs to others, which what ran as root keeps: Landlock decides what of it is read."""


class SandboxUnavailable(Exception):  # noqa: N818
    """A wall that does not stand; the text says why."""


def passed(environment: Mapping[str, str], folder: str) -> dict[str, str]:
    """The variables of an environment that may enter a room, with `folder` as home and place of temporary files."""
    variables = {name: value for name, value in environment.items() if name.upper() in PASSED}
    for name in FOLDER_LISTS:
        if name in variables:
            variables[name] = os.pathsep.join(part for part in variables[name].split(os.pathsep) if os.path.isabs(part))  # noqa: PTH117
    return variables | {"HOME": folder, "TMPDIR": folder}


def landlock_version() -> int:
    """The version of Landlock that the kernel has; 0: none."""
    if sys.platform != "linux":
        return 0
    return max(0, ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, 1))


class Sandbox:
    """What is the same for every process that enters: made once, by a process that nothing untrusted runs in.

    Args:
        readable: Files and folders that may be read beside Python's own, the system's libraries and the tools of the environment.
    """

    def __init__(self, readable: Iterable[str] = ()) -> None:
        self.version = landlock_version()
        self.looked_at = tuple(dict.fromkeys((*_python(), *_tools(), *readable)))
        self.is_root = hasattr(os, "geteuid") and os.geteuid() == 0
        self.others = 0 if self.is_root else _own_threads()

    def _ruleset(self, folder: str | None) -> int:
        """Descriptor of Landlock's rules for a process that may write `folder`, or nothing."""
        if self.version < 1:
            raise SandboxUnavailable("the kernel has no Landlock (Linux 5.13 and newer have it, where it is not switched off)")
        rights = (1 << _KNOWN_RIGHTS.get(self.version, 16)) - 1
        attributes = struct.pack("QQQ", rights, 3, 3)[: 8 if self.version < 4 else 16 if self.version < 6 else 24]
        libc = ctypes.CDLL(None, use_errno=True)
        rules = libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0)
        if rules < 0:
            raise SandboxUnavailable(f"Landlock: {os.strerror(ctypes.get_errno())}")
        looked_at = _READ_FILE | _READ_FOLDER | _EXECUTE
        for allowed, paths in (
            (looked_at, self.looked_at), (_READ_FILE | 1 << 1 | _IOCTL, ("/dev/null",)),
            (_READ_FILE, ("/dev/urandom", "/dev/random")), (_READ_FOLDER, _libraries()),
            (_READ_FILE | _READ_FOLDER | _WRITE, (folder,) if folder is not None else ()),
        ):  # fmt: skip
            for path in paths:
                _allow(libc, rules, path, allowed & rights)
        return rules

    def enter(self, folder: str | None, seconds: float) -> dict[str, str]:
        """Shut this process, and what it starts, in. It must have one thread.

        Args:
            folder: The one that may be written, empty and of this process alone. None: none is, and no other program is started.
            seconds: The processor time it gets.

        Returns:
            What each of `WALLS` lacks; "": it stands.
        """
        lacking = {"environment": "" if set(os.environ) <= PASSED | {"HOME", "TMPDIR", *OURS} else "variables of others were given"}
        for name, build in (
            ("limits", lambda: self._limit(folder, seconds)), ("files", lambda: self._shut(folder)),
            ("system", lambda: self._filter(programs=folder is not None)),
        ):  # fmt: skip
            try:
                build()
                lacking[name] = ""
            except SandboxUnavailable as error:
                lacking[name] = str(error)
            except (OSError, ValueError, AttributeError, ImportError) as error:
                lacking[name] = f"{type(error).__name__}: {error}"
        return {name: lacking[name] for name in WALLS}

    def _limit(self, folder: str | None, seconds: float) -> None:
        memory = int(os.environ.get("ADVISOR_COMPILE_MEMORY_BYTES", MEMORY_BYTES))
        processes = max(PROCESSES, 8 * (os.cpu_count() or 1)) + self.others
        for which, limit in (
            (resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, int(seconds) + 1), (resource.RLIMIT_FSIZE, FILE_BYTES),
            (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NPROC, processes),
        ):  # fmt: skip
            limit = min([limit, *(other for other in resource.getrlimit(which) if other != resource.RLIM_INFINITY)])
            resource.setrlimit(which, (limit, limit))
        if self.is_root and (user := _nobody_with(folder)) is not None:
            _become(user)
        elif self.is_root:
            raise SandboxUnavailable("root is not held to a limit on processes, and may become nobody else here")

    def _shut(self, folder: str | None) -> None:
        """Landlock, from here on."""
        _no_new_privileges()
        rules = self._ruleset(folder)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(_RESTRICT_SELF, rules, 0):
            raise SandboxUnavailable(f"Landlock: {os.strerror(ctypes.get_errno())}")
        os.close(rules)
        if self.version < MINIMUM_LANDLOCK:
            raise SandboxUnavailable(
                f"Landlock stands, but its version {self.version} lets files be emptied, which {MINIMUM_LANDLOCK} (Linux 6.2) does not"
            )

    def _filter(self, *, programs: bool) -> None:
        """seccomp, from here on."""
        _no_new_privileges()
        machine = platform.machine()
        if sys.platform != "linux" or machine not in _ARCHITECTURES or struct.calcsize("P") != 8:
            raise SandboxUnavailable(f"the system calls of {sys.platform} on {machine} are unknown here")
        program = filter_program(machine, signals=self.version >= 6, programs=programs)
        buffer = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(_ARCHITECTURES[machine][2], 1, 0, header):
            raise SandboxUnavailable(f"seccomp: {os.strerror(ctypes.get_errno())}")


OURS = ("TRITON_INTERPRET", "TRITON_CACHE_DIR", "LC_CTYPE")
"""Variables that the pool sets for a worker, or a worker for itself."""


def filter_program(machine: str, *, signals: bool, programs: bool) -> bytes:
    """The program of seccomp's that allows `_CALLS` of a machine: classic BPF (linux/filter.h), eight bytes an instruction."""
    column, audited, _ = _ARCHITECTURES[machine]
    table = ", ".join([_CALLS, *([_SIGNALS] if signals else []), *([_PROGRAMS] if programs else [])])
    numbers = [int(row.split()[1 + column]) for row in table.split(",") if row.split()[1 + column] != "-"]
    load, equal, any_bit, answer = 0x20, 0x15, 0x45, 0x06
    allow, refuse = (answer, 0, 0, 0x7FFF0000), (answer, 0, 0, 0x00050000 | errno.ENOSYS)
    first = 16  # arguments of eight bytes follow the number, the architecture and the address of the call
    thread = [] if programs else [(any_bit, 1, 0, _THREAD), refuse]
    steps = [
        (load, 0, 0, 4), (equal, 1, 0, audited), refuse, (load, 0, 0, 0),
        (equal, 0, 4 + len(thread), _CLONE[column]), (load, 0, 0, first), (any_bit, 0, 1, _NEW_NAMESPACES), refuse, *thread, allow,
        # limits are asked for, not set: the address of new ones is null
        (equal, 0, 7, _PRLIMIT[column]), (load, 0, 0, first + 16), (equal, 1, 0, 0), refuse, (load, 0, 0, first + 20), (equal, 1, 0, 0),
        refuse, allow,
    ]  # fmt: skip
    for call, (argument, values) in _COMMANDS.items():
        steps += [
            (equal, 0, len(values) + 3, call[column]), (load, 0, 0, first + 8 * argument),
            *((equal, len(values) - i, 0, value) for i, value in enumerate(values)), refuse, allow,
        ]  # fmt: skip
    steps += [*((equal, len(numbers) - i, 0, number) for i, number in enumerate(numbers)), refuse, allow]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def remove_folder(folder: str) -> None:
    """Remove a folder and all within, however deep, and whatever modes its folders have. No link is followed.

    Each folder within is moved up before it is looked into, so that no path grows. Nothing may write there meanwhile.

    Raises:
        OSError: Something cannot be removed.
    """
    waiting, moved = [folder], 0
    while waiting:
        place = waiting.pop()
        os.chmod(place, 0o700)  # noqa: PTH101
        with os.scandir(place) as entries:
            within = list(entries)
        for entry in within:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)  # noqa: PTH108
            elif place == folder:
                waiting.append(entry.path)
            else:
                os.chmod(entry.path, 0o700)  # noqa: PTH101
                while os.path.lexists(f"{folder}/{moved}"):
                    moved += 1
                os.rename(entry.path, f"{folder}/{moved}")  # noqa: PTH104
                waiting.append(f"{folder}/{moved}")
        if place != folder:
            os.rmdir(place)  # noqa: PTH106
    os.rmdir(folder)  # noqa: PTH106


def probe() -> dict[str, str]:
    """Wall -> what a process inside a room still reached behind it, "" where it was stopped. Tried, not believed."""
    reached = dict.fromkeys(WALLS, "")
    with contextlib.suppress(OSError):
        next(Path("/").iterdir())
        reached["files"] = "the root folder can be read"
    with contextlib.suppress(OSError):
        socket.socket().close()
        reached["system"] = "a socket can be made"
    return reached


def _no_new_privileges() -> None:
    if sys.platform != "linux" or ctypes.CDLL(None).prctl(38, 1, 0, 0, 0):
        raise SandboxUnavailable("the kernel does not let a process give up its privileges")


def _allow(libc: Any, rules: int, path: str, allowed: int) -> None:
    """Add a rule for a file or for all below a folder; what is not there needs none."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        allowed = allowed if Path(path).is_dir() else allowed & _OF_FILES
        libc.syscall(_ADD_RULE, rules, 1, struct.pack("=Qi", allowed, descriptor), 0)
    finally:
        os.close(descriptor)


def _python() -> list[str]:
    """The interpreter, its standard library without what is installed beside it, and the libraries that it and its tools load."""
    paths = [sys.executable, os.path.realpath(sys.executable), "/etc/ld.so.cache"]
    for library in _libraries():
        with contextlib.suppress(OSError):
            paths += [item.path for item in os.scandir(library) if item.name not in ("site-packages", "dist-packages")]
    with contextlib.suppress(OSError):
        paths += [str(item) for item in Path(sys.base_prefix, "lib").glob("*.so*")]
    mapped = []
    with contextlib.suppress(OSError):
        mapped = [line.split(maxsplit=5)[5].strip() for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line]
    for path in dict.fromkeys(mapped):
        if path.startswith("/"):  # the folder of the system's own libraries: programs that are started load theirs from it
            paths.append(os.path.dirname(path) if os.path.basename(path).startswith(("libc.so", "libc-", "ld-")) else path)  # noqa: PTH119, PTH120
    return paths


def _libraries() -> set[str]:
    """The folders of the standard library, of which a module that is imported is looked for in all names."""
    return {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}


def _tools() -> list[str]:
    """Paths of the compiler's tools that the environment names; where one is a script, its interpreter too."""
    paths = [path for name, path in os.environ.items() if name in PASSED and name.startswith("TRITON_") and name.endswith("_PATH")]
    for path in tuple(paths):
        with contextlib.suppress(OSError), open(path, "rb") as tool:  # noqa: PTH123
            if tool.read(2) == b"#!":
                paths += [os.fsdecode(word) for word in tool.readline(256).split()[:1]]
    return paths


def _own_threads() -> int:
    """Processes and threads of this user, which a limit on them counts; 0 where they cannot be counted."""
    count = 0
    with contextlib.suppress(OSError, AttributeError):
        for item in os.scandir("/proc"):
            with contextlib.suppress(OSError):
                if item.name.isdigit() and item.stat().st_uid == os.getuid():
                    count += len(list(Path("/proc", item.name, "task").iterdir()))
    return count


def _nobody_with(folder: str | None) -> int | None:
    """The number of a user that nobody has, who is given a folder, if there is one: one for this process alone where there are as many
    numbers, for a limit on processes counts all of a user's. None: root may not become any such."""
    numbers = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    for user in (2_000_000_000 + os.getpid(), 40_000 + os.getpid() % 20_000):
        if any(inside <= user < inside + count for inside, _, count in numbers):
            with contextlib.suppress(OSError):
                if folder is not None:
                    os.chown(folder, user, user)
                return user
    return None


def _become(user: int) -> None:
    """Be a user that is not root, with no capability but to read."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    header, bit = struct.pack("Ii", 0x20080522, 0), 1 << _READ_SEARCH
    if libc.capset(header, struct.pack("IIIIII", bit, bit, bit, 0, 0, 0)) or libc.prctl(47, 2, _READ_SEARCH, 0, 0):  # PR_CAP_AMBIENT_RAISE
        raise SandboxUnavailable(f"capabilities: {os.strerror(ctypes.get_errno())}")
