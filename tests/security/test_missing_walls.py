"""Where a wall cannot be built, that is said, and a stranger's kernel is compiled only where that is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.compiled.compiler import pool
from advisor.system import sandbox
from tests.comparison.repository import Repository

KERNEL = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef k(x):\n    tl.store(x, 1.0)\n"


def lacking_landlock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers that are started from here on find a kernel without Landlock."""
    copy = folder / "room.py"
    text = Path(sandbox.__file__).read_text()
    assert text.count("self.version = landlock_version()") == 1
    copy.write_text(text.replace("self.version = landlock_version()", "self.version = 0"))
    monkeypatch.setattr(sandbox, "__file__", str(copy))


@pytest.fixture
def no_landlock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A kernel without Landlock, as far as workers can tell."""
    lacking_landlock(tmp_path, monkeypatch)
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))
    pool.walls.cache_clear()
    yield
    pool.walls.cache_clear()


def test_a_missing_wall_is_named(no_landlock: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Landlock" in pool.walls()["files"]
    assert main(["doctor"]) == 4
    assert "files        MISSING: the kernel has no Landlock" in capsys.readouterr().out


def test_revisions_are_compiled_only_where_that_is_asked_for(
    no_landlock: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit({"k.py": KERNEL})
    repository.commit({"k.py": KERNEL.replace("1.0", "2.0")})
    monkeypatch.chdir(repository.folder)
    command = ["compare", "HEAD^", "HEAD", "--gpu", "H100", "--format", "md"]
    assert main([*command, "--require-sandbox"]) == 4
    assert (
        "--require-sandbox: a layer of the sandbox does not work on this machine; got files: the kernel has no Landlock"
        in capsys.readouterr().err
    )
    main(command)
    said = capsys.readouterr()
    assert "not compiled; " in said.out and "trust-source compiles them" in said.out and "Compiled for" not in said.out
    assert "no sandbox for untrusted kernels on this machine: files: the kernel has no Landlock" in said.err
    main([*command, "--trust-source"])
    said = capsys.readouterr()
    assert "compiled all the same" in said.out and "Compiled for H100" in said.out


def test_a_strangers_file_is_refused_and_ones_own_is_not(no_landlock: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.py").write_text(KERNEL)
    command = ["inspect", f"{tmp_path / 'k.py'}::k", "--target", "sm_90"]
    assert main([*command, "--untrusted"]) == 4
    assert "--untrusted: this machine has no sandbox" in capsys.readouterr().err
    assert main(command) == 0


@pytest.mark.parametrize("programs", [True, False])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_leads_every_call_to_an_answer(machine: str, programs: bool) -> None:
    """The program is run here: what is listed is allowed, and nothing else, whatever its number."""
    column, audited, _ = sandbox._ARCHITECTURES[machine]
    table = f"{sandbox._CALLS},{sandbox._SIGNALS}" + (f",{sandbox._PROGRAMS}" if programs else "")
    listed = {int(row.split()[1 + column]) for row in table.split(",") if row.split()[1 + column] != "-"}
    program = sandbox.filter_program(machine, signals=True, programs=programs)

    def is_allowed(number: int, architecture: int = audited, arguments: tuple[int, ...] = (0x10000, 0, 0, 0, 0, 0)) -> bool:
        import struct

        data = struct.pack("IIQ6Q", number, architecture, 0, *arguments)
        steps = list(struct.iter_unpack("HBBI", program))
        accumulator = place = 0
        while True:
            code, yes, no, value = steps[place]
            place += 1
            if code == 0x20:
                (accumulator,) = struct.unpack_from("I", data, value)
            elif code == 0x06:
                return bool(value == 0x7FFF0000)
            else:
                held = accumulator == value if code == 0x15 else bool(accumulator & value)
                place += yes if held else no

    clone, limits = sandbox._CLONE[column], sandbox._PRLIMIT[column]
    fcntl, ioctl, prctl = (numbers[column] for numbers in sandbox._COMMANDS)
    assert {number for number in range(1024) if is_allowed(number)} == listed | {clone, limits, fcntl} - {prctl}
    assert not is_allowed(0x40000000 + min(listed)) and not is_allowed(min(listed), 0x40000003)
    assert is_allowed(clone, arguments=(0x11, 0, 0, 0, 0, 0)) == programs
    assert not is_allowed(clone, arguments=(0x10010011, 0, 0, 0, 0, 0))
    assert not is_allowed(limits, arguments=(0, 7, 1, 0, 0, 0)) and not is_allowed(limits, arguments=(0, 7, 1 << 32, 0, 0, 0))
    for call, place, allowed in (
        (fcntl, 1, sandbox._COMMANDS[72, 25][1]),
        (ioctl, 1, sandbox._COMMANDS[16, 29][1]),
        (prctl, 0, sandbox._COMMANDS[157, 167][1]),
    ):
        for command in (*range(64), 1024, 1026, 1030, 1031, 1032, 0x5401, 0x5412, 0x8901, 0x53564D41, *allowed):
            arguments = [0, 0, 0, 0, 0, 0]
            arguments[place] = command
            assert is_allowed(call, arguments=tuple(arguments)) == (command in allowed), (call, command)
    assert not {8, 10, 15} & set(sandbox._COMMANDS[72, 25][1])  # F_SETOWN, F_SETSIG, F_SETOWN_EX
    refused = {435, 319 if column == 0 else 279, 285 if column == 0 else 47, 41 if column == 0 else 198}
    assert refused.isdisjoint(listed)  # clone3, memfd_create, fallocate, socket
    assert programs or {57, 58, 59, 221}.isdisjoint(listed - {223, 221} if column == 0 else listed - {57, 58, 59})
