"""What changes what Python runs, and not the lines that are compared, is said; and what lies outside of a tree or a record is not read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.compiled.compiler import pool
from advisor.compiled.launches.records import record_target
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import parse_source, read_source
from advisor.rows.launches import read_launches
from tests.comparison.repository import Repository

HEAD = "import triton\nimport triton.language as tl\n"
KERNEL = "@triton.jit\ndef k(x, N: tl.constexpr = 16):\n    tl.store(x, FACTOR)\n"
LAUNCH = "def run(x):\n    k[(1,)](x, N=B)\n"
FILES = {
    "k.py": HEAD + "from consts import FACTOR\n" + KERNEL,
    "consts.py": "FACTOR = 1.0\n",
    "end.py": HEAD + "x = 1; from one import FACTOR\n" + KERNEL,
    "one.py": "FACTOR = 1.0\n",
    "chain.py": HEAD + "import q.two\n" + KERNEL.replace("FACTOR", "q.two.FACTOR"),
    "q/two.py": "FACTOR = 1.0\n",
    "p/__init__.py": "from .a import B\n",
    "p/a.py": "B = 16\n",
    "p/b.py": "B = 32\n",
    "p/run.py": HEAD + "from . import B\n" + KERNEL.replace("FACTOR", "1.0") + LAUNCH,
}
BEHIND = {
    "a constant": {"consts.py": "FACTOR = 2.0\n"},
    "a package in a file's place": {"consts/__init__.py": "FACTOR = 2.0\n"},
    "another file that is handed on": {"p/__init__.py": "from .b import B\n"},
    "what stands at the end of a line": {"one.py": "FACTOR = 2.0\n"},
    "a chain of names": {"q/two.py": "FACTOR = 2.0\n"},
}
BOUND_AGAIN = {
    "triton": "import shim as triton\n" + KERNEL,
    "triton.jit": "triton.jit = print\n" + KERNEL,
    "tl.store": "setattr(tl.store, 'fn', print)\n" + KERNEL,
    "tl": "def f():\n    global tl\n    tl = print\n" + KERNEL,
    "k": KERNEL + "k = print\n",
    "vars(tl)['store']": "vars(tl)['store'] = print\n" + KERNEL,
    **{
        f"tl is bound again in line {line}": text + KERNEL
        for line, text in {
            "3": "for tl in (1,):\n    pass\n",
            "03": "with f() as tl:\n    pass\n",
            "003": "del tl\n",
            "4": "if f():\n    tl = print\n",
            "04": "try:\n    import shim as tl\nexcept ImportError:\n    pass\n",
        }.items()
    },
    **{
        f"k is bound again in line {line}": KERNEL + text
        for line, text in {
            "6": "print(k := 3)\n",
            "7": "if f():\n    k = print\n",
            "06": "def f():\n    global k\n    k = print\n",
            "006": "from shim import k\n",
        }.items()
    },
}
REBOUND = {
    "a sum": "B *= 4\n",
    "an expression": "print(B := 64)\n",
    "a case": "match 64:\n    case B:\n        pass\n",
    "a context": "with f() as B:\n    pass\n",
    "an exception": "try:\n    f()\nexcept E as B:\n    pass\n",
    "a function": "def f():\n    global B\n    B = 64\n",
    "an import": "from shim import B\n",
    "a class": "class C:\n    global B\n    B = 64\n",
}
Capture = pytest.CaptureFixture[str]


def compared(base: dict[str, str], head: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    repository = Repository(folder / "repository")
    repository.commit(base)
    repository.commit(head)
    monkeypatch.chdir(repository.folder)
    return main(["compare", "HEAD^", "HEAD", "--gpu", "H100", "--no-compile", "--format", "md"])


@pytest.mark.parametrize("how", list(BEHIND))
def test_what_a_kernel_imports_does_not_change_unnoticed(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    compared(FILES, BEHIND[how], tmp_path, monkeypatch)
    assert "what its kernels or launches import did: they are not compared" in capsys.readouterr().out


@pytest.mark.parametrize("line", ["# *.py ident", "ident/*.py text", "*.py text=auto"])
def test_other_attributes_are_nobodys_concern(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert compared(FILES, {".gitattributes": f"{line}\n"}, tmp_path, monkeypatch) == 5


def test_what_a_kernel_does_not_import_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert compared(FILES, {"consts.py": "FACTOR = 1.0\nOTHER = 3\n"}, tmp_path, monkeypatch) == 5
    assert "not compared" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    [
        "*.py working-tree-encoding=UTF-7",
        "[k#].py  text\tident",
        '"k.py" -working-tree-encoding',
        "*.py\rident",
        '"*.py"ident',
        "*.py ident\0x",
    ],
)
def test_files_that_git_writes_out_otherwise_do_not_pass(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert compared(FILES, {".gitattributes": f"*.txt text\n{line}\n"}, tmp_path, monkeypatch) == 1
    assert "another text than is compared" in capsys.readouterr().out


@pytest.mark.parametrize("what", list(BOUND_AGAIN))
def test_what_is_put_in_tritons_place_is_not_judged_as_tritons(what: str) -> None:
    source = parse_source(HEAD + BOUND_AGAIN[what], "k.py")
    assert not source.functions and f"cannot tell: {re.sub('line 0+', 'line ', what)}" in source.undecided["k"]


@pytest.mark.parametrize("text", [
    "try:\n    import triton\n    import triton.language as tl\nexcept ImportError:\n    triton = tl = None\n" + KERNEL,
    HEAD + "from vllm.triton_utils import tl, triton\n" + KERNEL,
    HEAD + "tl = triton.language\n" + KERNEL,
    HEAD + KERNEL + "k = wrapped(k)\n",
    "if f():\n    import triton\n    import triton.language as tl\nelse:\n    from shim import triton, tl\n    tl = print\n" + KERNEL,
    "def k():\n    pass\n" + HEAD + KERNEL,
    HEAD + "if not hasattr(tl, 'insert'):\n    tl.insert = f\n" + KERNEL,
])  # fmt: skip
def test_what_is_triton_all_the_same_is_read(text: str) -> None:
    assert list(parse_source(text, "k.py").functions) == ["k"]


@pytest.mark.parametrize("how", list(REBOUND))
def test_a_constant_of_a_launch_that_is_bound_again_is_noticed(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    text = HEAD + "B = 16\n" + KERNEL.replace("FACTOR", "1.0")
    compared({"k.py": text + LAUNCH}, {"k.py": text + REBOUND[how] + LAUNCH}, tmp_path, monkeypatch)
    out = capsys.readouterr().out
    assert any(
        f"The kernel is the same; its launch in its file {word}" in out for word in ("changed", "is written as before, and the code")
    )
    with pytest.raises(NotLiteralError):
        parse_source(text + REBOUND[how] + LAUNCH, "k.py").constant("B")


@pytest.mark.parametrize("text", ["    k[(1,)](x)\n" * 1_001, "    k[(1,)](" + "x, " * 1_001 + ")\n"], ids=["launches", "arguments"])
def test_more_than_is_followed_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    kernel = HEAD + KERNEL.replace("FACTOR", "1.0")
    assert compared({"k.py": kernel}, {"k.py": kernel + "def run(x):\n" + text}, tmp_path, monkeypatch) == 1
    assert "more than 1,000" in capsys.readouterr().out


@pytest.mark.parametrize("way", ["above", "a link", "a record"])
def test_what_lies_outside_is_not_read(way: str, tmp_path: Path) -> None:
    (tmp_path / "creds.py").write_text("TOKEN = 'secret'\n")
    (tmp_path / "stranger" / ".git").mkdir(parents=True)
    place = tmp_path / "stranger" / "k.py"
    text = HEAD + "from creds import TOKEN\n" + KERNEL.replace("FACTOR", "TOKEN")
    if way == "a link":
        (tmp_path / "stranger" / "creds.py").symlink_to(tmp_path / "creds.py")
    place.write_text(text)
    source = read_source(place)
    if way == "a record":
        launch = {"kernel": "k", "source": "s", "signature": {"x": "*fp32"}, "constexprs": {"N": 16}, "arguments": {}, "tensors": {}}
        lines = [{"format": "triton-advisor launches 1"}, {"source": "s", "path": str(tmp_path / "x.py"), "text": text}]
        (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, [*lines, {"launch": "l", "grid": [1], **launch}])))
        source = record_target(tmp_path / "r.jsonl")[0].launch.source
    with pytest.raises(NotLiteralError):
        source.evaluator().evaluate(parse_source("TOKEN", "x").tree.body[0].value)  # type: ignore[attr-defined]


def test_a_record_of_tensors_that_nobody_has_is_damaged(tmp_path: Path) -> None:
    launch = {"kernel": "k", "source": "s", "signature": {"x": "*fp32"}, "constexprs": {"N": 16}, "arguments": {}, "grid": [1]}
    tensors = {"x": {"shape": [2**63] * 60, "strides": [1] * 60, "dtype": "fp32"}}
    lines = [
        {"format": "triton-advisor launches 1"},
        {"source": "s", "path": "k.py", "text": HEAD + KERNEL},
        {"launch": "l", **launch, "tensors": tensors},
    ]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert main(["advise", str(tmp_path / "r.jsonl"), "--gpu", "H100"]) == 2


@pytest.mark.parametrize("said", ['"count": ' + "9" * 400, '"count": 3, "times_us": [1e308, 1e308]'], ids=["count", "times"])
def test_a_record_of_runs_that_nobody_made_is_damaged(said: str, tmp_path: Path) -> None:
    launch = {
        "kernel": "k",
        "source": "s",
        "signature": {"x": "*fp32"},
        "constexprs": {"N": 16},
        "arguments": {},
        "tensors": {},
        "grid": [1],
    }
    lines = [{"format": "triton-advisor launches 1"}, {"source": "s", "path": "k.py", "text": HEAD + KERNEL}, {"launch": "l", **launch}]
    text = "\n".join([*map(json.dumps, lines), '{"count_of": "l", "process": "1", ' + said + "}"])
    (tmp_path / "r.jsonl").write_text(text)
    records = read_launches(tmp_path / "r.jsonl")
    assert records.damaged and records.launches[0].cost_us < 1e40


def test_an_attributes_file_that_is_too_large_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compared(FILES, {".gitattributes": "#" * 17_000_000}, tmp_path, monkeypatch) == 1


def test_a_worker_that_starts_is_not_taken_for_an_abandoned_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another start looks into the folder between the making of the file and its lock."""
    import fcntl

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    lock, others = fcntl.flock, []

    def late(descriptor: int, how: int) -> None:
        if not others:
            others.append(descriptor)
            pool.remove_abandoned()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    worker = pool.Worker()
    worker._start()
    assert worker.folder is not None and Path(worker.folder).is_dir()
    worker.close()
