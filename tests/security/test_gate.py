"""A pull request whose kernel would run Python, or interferes with its compiler, does not pass the gate, and is said to be what it is."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.compiled.compiler import compile, pool
from advisor.compiled.compiler.answers import INTERFERED
from advisor.compiled.compiler.compile import SMALLEST, compile_kernel
from advisor.compiled.compiler.kernel import CompileRequest, Target
from advisor.compiled.compiler.pool import Worker
from advisor.python_source.rebuild import rebuild
from advisor.python_source.source import parse_source
from advisor.system.errors import NoSandboxError
from tests.comparison.conftest import TABLE, entry, table
from tests.comparison.repository import Repository

from .rooms import kernel_request, need_walls, unguard
from .test_missing_walls import lacking_landlock

PLAIN = "import triton\nimport triton.language as tl\n\n\n@triton.constexpr_function\ndef f(n):\n    return n\n"
KERNEL = "\n\n@triton.jit\ndef k(x, N: tl.constexpr = 16):\n    tl.store(x, f(N))\n"
FORGE = """    import os
    for d in range(3, 64):
        try:
            os.write(d, {answer!r})
        except:
            pass
    os._exit(0)
"""
ASSEMBLY = "y = tl.inline_asm_elementwise('call f;', '=r', [], tl.int32, False, 1)\n    tl.store(x, y)"
HEADS = {
    "an attribute": PLAIN.replace("return n", "return n.fn") + KERNEL,
    "a private attribute": PLAIN + KERNEL.replace("f(N)", "N.value.__class__"),
    "a function of Python's": PLAIN + KERNEL.replace("f(N)", "getattr(N, '__class__')"),
    "a lambda": PLAIN + KERNEL.replace("f(N)", "(lambda: 1)()"),
    "a class": PLAIN + KERNEL.replace("    tl.store", "    class C:\n        pass\n    tl.store"),
    "an import": PLAIN + KERNEL.replace("    tl.store", "    import os\n    tl.store"),
    "what is yielded": PLAIN + KERNEL.replace("f(N)", "(yield)"),
    "a handler": PLAIN + KERNEL.replace("    tl.store(x, f(N))", "    try:\n        tl.store(x, f(N))\n    finally:\n        pass"),
    "a module": PLAIN + KERNEL.replace("f(N)", "f(tl.core.knobs)"),
    "an endless number": PLAIN.replace("return n", "return 10 ** (10 ** 9) % n") + KERNEL,
    "assembly": PLAIN + KERNEL.replace("tl.store(x, f(N))", ASSEMBLY),
}
REASONS = ("refused", "is not read", "nothing but reckon", "would run Python")
ANSWERS = {
    "no triton": b'E{"error": "CANARY", "kind": "missing"}',
    "nothing": b'{"triton": "3.9.0", "asm": {}}',
    "walls": b'E{"error": "CANARY", "kind": "walls"}',
    "no IR": b"Imodule {}",
}


Capture = pytest.CaptureFixture[str]


def compared(
    head: str | bytes, folder: Path, monkeypatch: pytest.MonkeyPatch, form: str = "md", cache: str = "../compared", **others: str
) -> int:
    """The exit code of a comparison with the plain kernel, which is compiled once for all tests of a run but those with a `cache`."""
    repository = Repository(folder / "repository")
    repository.commit({"k.py": PLAIN + KERNEL})
    repository.commit({"k.py": head, **others})
    monkeypatch.chdir(repository.folder)
    monkeypatch.setenv("ADVISOR_CACHE_DIR", os.path.normpath(folder / cache))
    return main(["compare", "HEAD^", "HEAD", "--gpu", "H100", "--require-sandbox", "--format", form])


@pytest.mark.parametrize("how", list(HEADS))
def test_what_is_refused_does_not_pass(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need_walls()
    assert compared(HEADS[how], tmp_path, monkeypatch) == 1
    said = capsys.readouterr()
    assert "Not passed" in said.out and any(words in said.out for words in REASONS), said.out


DEEP = {
    "deeper than Python's stack": "A = " + "-" * 200_000 + "1\n",
    "a sum": "A = " + "1 + " * 400 + "1\n",
    "a chain of branches": "if 0:\n    A = 0\n" + "".join(f"elif {i}:\n    A = {i}\n" for i in range(400)),
    "a number that cannot be written": f"A = 0x{'f' * 20_000}\n",
}


@pytest.mark.parametrize("how", list(DEEP))
def test_a_file_that_cannot_be_walked_does_not_pass(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need_walls()
    assert compared(PLAIN + KERNEL + DEEP[how], tmp_path, monkeypatch) == 1
    said = capsys.readouterr()
    assert "Not passed" in said.out and ("nested deeper than" in said.out or "digits" in said.out), said.out
    assert "internal" not in said.out + said.err


@pytest.mark.parametrize("said", ['fail_on = ["none"]', 'fail_on = ["spills"]', "fail_on = []"])
def test_a_change_does_not_say_what_gates_it(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new advisor.toml makes more gate, not less."""
    need_walls()
    assert compared(HEADS["an attribute"], tmp_path, monkeypatch, **{"advisor.toml": said}) == 1
    assert "Not passed" in capsys.readouterr().out


@pytest.mark.parametrize("said", ["", "[kernels.'k.py::k']\nargs = {N = 16}", "[kernels.'k.py']\nargs = {N = 32}", "gpus = ['A100']"])
def test_a_change_does_not_say_at_which_launch_it_is_judged(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need_walls()
    kernel = KERNEL.replace(" = 16", "").replace("    tl.store", "    tl.static_assert(N < 64)\n    tl.store")
    launch = "\nimport torch\n\ndef run():\n    k[(1,)](torch.empty(64, dtype=torch.float32, device='cuda'), N=64, num_warps=4)\n"
    assert compared(PLAIN + kernel + launch, tmp_path, monkeypatch, **{"advisor.toml": said}) == 1
    assert "CompileTimeAssertionFailure" in capsys.readouterr().out


ENCODED = {
    "bytes that are no text": b"# \xff\n" + (PLAIN + KERNEL).encode(),
    "an encoding that is none of text": b"# coding: rot13\n" + (PLAIN + KERNEL).encode(),
}


@pytest.mark.parametrize("how", list(ENCODED))
def test_a_file_that_cannot_be_read_does_not_pass(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need_walls()
    assert compared(ENCODED[how], tmp_path, monkeypatch) == 1
    assert "Not passed" in capsys.readouterr().out


NO_WORDS = {
    "no Python": b"x = = 1\n",
    "another encoding": b"# coding: utf-7\n" + (PLAIN + KERNEL).replace("triton", "+AHQ-riton").replace("tl.store", "tl.nothing").encode(),
    "letters of another width": (PLAIN + KERNEL).replace("triton", "\uff54riton").replace("tl.store", "tl.nothing").encode(),
}


@pytest.mark.parametrize("how", list(NO_WORDS))
def test_a_file_without_the_words_of_kernels_does_not_pass(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python runs what is no word of Triton's as bytes, or refuses it: neither is a kernel that was taken out."""
    need_walls()
    assert compared(NO_WORDS[how], tmp_path, monkeypatch) == 1
    assert "Not passed" in capsys.readouterr().out


def test_the_same_kernel_in_another_encoding_is_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_walls()
    assert compared(b"# coding: utf-7\n" + (PLAIN + KERNEL).replace("triton", "+AHQ-riton").encode(), tmp_path, monkeypatch) == 5


def test_a_file_is_read_in_the_encoding_that_it_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What stands in a comment for who reads it as UTF-8 is a line of its own for Python."""
    need_walls()
    again = "\n@triton.jit\ndef k(x, N: tl.constexpr = 16):\n    tl.store(x, f(tl.core.knobs))\n".replace("\n", "+AAo-")
    text = f"# -*- coding: utf-7 -*-\n{PLAIN}{KERNEL}# {again}\n"
    assert compared(text.encode(), tmp_path, monkeypatch) == 1
    assert "Not passed" in capsys.readouterr().out


@pytest.mark.parametrize("how", list(ANSWERS))
def test_a_forged_answer_does_not_pass(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The guard is off: the head's constexpr function is Python that writes to every descriptor it finds."""
    need_walls()
    unguard(tmp_path / "free", monkeypatch)
    for name in ("check_constexpr_function", "check_module"):
        monkeypatch.setattr(f"advisor.python_source.rebuild.{name}", lambda *anything: None)
    head = PLAIN.replace("    return n\n", FORGE.format(answer=ANSWERS[how])) + KERNEL
    assert compared(head, tmp_path, monkeypatch, cache="cache") == 1
    said = capsys.readouterr()
    assert INTERFERED in said.out and "Not passed" in said.out, said.out
    assert "CANARY" not in said.out + said.err and "internal" not in said.err


def test_words_from_inside_are_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    need_walls()
    words = "the compiler crashed; run `curl x | sh` ” <b> @all"
    compared(
        PLAIN + KERNEL.replace("tl.store(x, f(N))", f"tl.static_assert(False, {words!r})\n    tl.store(x, 1)"),
        tmp_path,
        monkeypatch,
        "json",
    )
    document = json.loads(capsys.readouterr().out)
    texts = [row["reason"] for subject in document["subjects"] for row in subject["resources"]]
    assert texts
    assert all("“line 2 from" in text and 'sh` " <b> @all”' in text for text in texts), texts


def test_what_had_no_walls_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a wall that falls after it was asked for is an error, not an answer."""
    need_walls()
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))
    request = CompileRequest(
        rebuilt=rebuild(parse_source(SMALLEST, "k.py"), "smallest"),
        signature={"x": "*fp32"},
        constexprs={},
        target=Target(backend="cuda", arch=90),
    )
    assert pool.is_sealed()
    lacking_landlock(tmp_path, monkeypatch)
    with pytest.raises(
        NoSandboxError, match="a layer of the sandbox does not work, so no kernel is compiled; got files: the kernel has no Landlock"
    ):
        compile_kernel(request)
    monkeypatch.setattr(pool, "is_sealed", lambda: False)
    assert compile_kernel(request).ptx
    assert not list((tmp_path / "cache").rglob("*.z"))
    monkeypatch.undo()
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))
    assert compile_kernel(request).ptx
    assert len(list((tmp_path / "cache").rglob("*.z"))) == 1
    lacking_landlock(tmp_path, monkeypatch)
    worker = Worker()
    try:
        assert worker.ask(kernel_request(), 60)["walled"] is False
        answer = worker.ask(kernel_request() | {"sealed": True}, 60)
        assert answer["kind"] == "walls" and "Landlock" in answer["error"] and "asm" not in answer
    finally:
        worker.close()


def test_a_cache_folder_may_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit({"k.py": KERNEL})
    repository.commit({"k.py": KERNEL.replace("1.0", "2.0")})
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    monkeypatch.chdir(repository.folder)
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "loop"))
    assert main(["compare", "main~1", "main", "--gpu", "H100", "--no-compile", "--format", "md"]) in (0, 5)


@pytest.mark.parametrize("how", ["its folder", "a link to it"])
def test_a_cache_that_a_change_brings_along_is_not_read(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where ADVISOR_CACHE_DIR is a folder of the checkout: what it keeps of another kernel's compilation would be believed."""
    repository = Repository(tmp_path / "repository")
    kept = ".kept" if how == "its folder" else "other"
    repository.commit({"k.py": KERNEL})
    repository.commit({"k.py": KERNEL.replace("1.0", "2.0"), f"{kept}/compiled/ab/ab.z": b"forged"})
    if kept != ".kept":
        repository.commit({".kept": Path("other")})
    monkeypatch.chdir(repository.folder)
    monkeypatch.setenv("ADVISOR_CACHE_DIR", ".kept")
    assert main(["compare", "main~1", "main", "--gpu", "H100", "--no-compile", "--format", "md"]) == 2
    assert "the cache of compiled kernels is a part of what is compared" in capsys.readouterr().err


def test_a_change_does_not_have_records_read_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit({"k.py": KERNEL})
    named = ", ".join(["'records.jsonl'"] * 10_000)
    repository.commit({"k.py": KERNEL.replace("1.0", "2.0"), "records.jsonl": "", "advisor.toml": f"launches = [{named}]"})
    monkeypatch.chdir(repository.folder)
    assert main(["compare", "main~1", "main", "--gpu", "H100", "--no-compile", "--format", "md"]) == 2
    assert "launches; got 10,000 files; expected at most 20" in capsys.readouterr().err


@pytest.mark.parametrize(
    "kept", [{}, {"kind": "failed"}, {"error": 1, "kind": "failed"}, {"asm": [], "metadata": {}}, {"asm": {}}], ids=str
)
@pytest.mark.parametrize("only", [None, "ttir"])
def test_what_the_cache_holds_is_an_answer_or_nothing(
    kept: dict[str, object] | None, only: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_walls()
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))
    rebuilt = rebuild(parse_source(SMALLEST, "k.py"), "smallest")
    request = CompileRequest(
        rebuilt=rebuilt, signature={"x": "*fp32"}, constexprs={}, target=Target(backend="cuda", arch=90), sass=False, only=only
    )
    key = request.key(compile.version())
    compile.write(key, {"triton": "3.9.0", "walled": True, **(kept or {})})
    if kept is None:
        (compile.cache_folder() / key[:2] / f"{key}.z").write_bytes(zlib.compress(b"[" * 100_000))
    assert compile_kernel(request).ttir
    again = compile_kernel(request)
    assert again.ttir and (again.ptx or only)


def test_types_of_a_comparison_that_others_wrote_are_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit({TABLE: table(M64=entry())})
    repository.commit({TABLE: table(M64=entry(32))})
    monkeypatch.chdir(repository.folder)
    main(["compare", "main~1", "main", "--gpu", "H100", "--output", str(tmp_path / "out")])
    document = json.loads((tmp_path / "out" / "comparison.json").read_text())
    document["subjects"][0]["static"][0]["problems"][0]["dtype"] = "<img src=x>\n[x](https://x)"
    (tmp_path / "forged.json").write_text(json.dumps(document))
    capsys.readouterr()
    main(["compare", "--render", str(tmp_path / "forged.json"), "--format", "md"])
    told = capsys.readouterr().out
    assert "img" in told and "<img" not in told and "](https" not in told
