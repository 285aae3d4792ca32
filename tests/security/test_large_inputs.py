"""Plain files that a few bytes make endless are refused in words, soon, and without much memory."""

from __future__ import annotations

import gzip
import json
import subprocess
import time
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.comparison.trees import git
from advisor.steps.trace import is_trace
from advisor.system.errors import InputError
from advisor.system.reading import MOST_MEMBERS, read_bytes, read_start
from tests.comparison.repository import Repository

from .test_doors import FORKED, MOST_BYTES, MOST_S, loaded, run

__all__ = ["FORKED", "loaded"]
KERNEL = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef k(x):\n    tl.store(x, 1.0)\n"
EVENT = {"ph": "X", "cat": "kernel", "name": "k", "ts": 0, "pid": 1, "tid": 1}


def test_a_tree_of_a_few_objects_and_four_million_files(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "r")
    repository.commit({"k.py": KERNEL})
    identity = repository.git("rev-parse", "HEAD^{tree}").strip()
    for _ in range(22):
        identity = _tree(repository, f"040000 tree {identity}\ta\n040000 tree {identity}\tb\n")
    head = repository.git("commit-tree", identity, "-p", "HEAD", "-m", "large").strip()
    code, words, seconds, memory = run(("compare", "HEAD", head, "--gpu", "H100", "--no-compile"), repository.folder)
    assert code == 2 and "4,194,304 files; expected at most 300,000 files" in words, words
    assert seconds < MOST_S and memory < MOST_BYTES, f"{seconds:.1f} s, {memory / 1e6:.0f} MB"


def _tree(repository: Repository, listing: str) -> str:
    done = subprocess.run(["git", "-C", str(repository.folder), "mktree"], input=listing, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_files_of_a_commit_are_counted(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "r")
    repository.commit(
        {"k.py": KERNEL, "a/k.py": KERNEL, "a/b/c/k.py": KERNEL, "a/b/c/l.py": KERNEL, "d/k.py": KERNEL, "link": Path("k.py")}
    )
    head = repository.git("rev-parse", "HEAD").strip()
    assert git._count_files(repository.folder, head) == 6 == len(git.entries(repository.folder, head))


def test_a_packed_file_of_many_empty_ones(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"") * 1_600_000)
    code, words, seconds, memory = run(("predict", "rows.csv.gz", "-o", "OUT.csv"), tmp_path)
    assert code == 2 and "holds too many files in one; got over 20,000" in words, words
    assert seconds < MOST_S and memory < MOST_BYTES, f"{seconds:.1f} s, {memory / 1e6:.0f} MB"
    path.rename(tmp_path / "trace.json.gz")
    assert not is_trace(tmp_path / "trace.json.gz")


@pytest.mark.parametrize("tail", [b"", bytes(1000), gzip.compress(b"")], ids=["as it is", "filled up", "an empty one behind"])
def test_packed_files_of_several_are_read(tail: bytes, tmp_path: Path) -> None:
    lines = [b"%d,%d\n" % (i, i * i) for i in range(5_000)]
    path = tmp_path / "a.gz"
    path.write_bytes(b"".join(gzip.compress(line) for line in lines) + tail)
    whole = b"".join(lines)
    assert read_bytes(path, "a.gz", "lines", 1 << 20, unpack=True) == whole
    assert read_start(path, 100) == whole[:100]
    path.write_bytes(gzip.compress(whole)[:-9])
    with pytest.raises(InputError, match="damaged gzip file"):
        read_bytes(path, "a.gz", "lines", 1 << 20, unpack=True)
    path.write_bytes(b"".join([gzip.compress(b"")] * (MOST_MEMBERS + 1)))
    with pytest.raises(InputError, match="too many files"):
        read_bytes(path, "a.gz", "lines", 1 << 20, unpack=True)


@pytest.mark.parametrize("odd", [{"dur": 1e308}, {"dur": -1.0}, {"dur": 1.0, "ts": 1e300}, {"dur": float("inf")}, {"dur": float("nan")}])
def test_a_trace_of_impossible_times(odd: dict[str, float], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"traceEvents": [{**EVENT, "dur": 5.0}, {**EVENT, **odd}]}))
    command = ["model", "Qwen3-30B-A3B", "--gpu", "H100", "--batch", "1", "--context", "1024", "--measured", str(trace)]
    assert main(command) == 2
    assert "an event of no time that is one; got ts" in capsys.readouterr().err


SLOW = {
    "a power": "return (10 ** (10 ** 9)) % 7",
    "a shift": "return 1 << (1 << 40)",
    "a product": "a = 3\n    for i in range(60):\n        a = a * a\n    return a % 7",
    "a text": "return len('x' * (1 << 40))",
    "a sum of texts": "a = 'x'\n    for i in range(60):\n        a = a + a\n    return len(a)",
    "a loop": "a = 0\n    while True:\n        a += 1\n    return a",
    "a range": "return sum(range(10 ** 12))",
    "a recursion": "return 1 if n < 2 else f(n - 1) + f(n - 1)",
    "a factorial": "return math.factorial(10 ** 9) % 7",
    "a tuple of tuples": "a = (1, 2)\n    for i in range(40):\n        a = (a, a)\n    return len(str(a))",
    "tuples that are compared": "a = b = 0\n    for i in range(40):\n        a = (a, a)\n        b = (b, b)\n    return a == b",
    "many texts": "a = 'x' * 1000000\n    b = ()\n    for i in range(900000):\n        b = (b, a + str(i))\n    return 1",
    "many searches": "a = (1,) * 60000\n    b = 0\n    for i in range(900000):\n        b = b + a.count(7)\n    return b",
    "a power of a constexpr": "return (tl.constexpr(10) ** (10 ** 9)) % 7",
    "a shift of a constexpr": "return 1 << tl.constexpr(1 << 40)",
    "a tuple times a constexpr": "return len(tl.constexpr((1,)) * tl.constexpr(1 << 40))",
    "a width that a constexpr is formatted to": "return tl.constexpr('%9000000000d') % n",
    "a sum of many texts": "return sum((tl.constexpr('x' * 16),) * 16000, tl.constexpr(''))",
    "many reads": "a = [1] * 60000\n    for i in range(900000):\n        b = -1 in a\n    return 1",
}
TEXTS = "\n    ".join(f"s{i + 1}: tl.constexpr = f'{{s{i}}}{{s{i}}}'" for i in range(40))
TUPLES = "\n    ".join(f"t{i + 1} = (t{i}, t{i})" for i in range(40))
WITHIN = {
    "a text": f"s0: tl.constexpr = 'ten letters'\n    {TEXTS}\n    tl.static_assert(s40 == 'x')",
    "a tuple": f"t0 = (N, N)\n    {TUPLES}\n    tl.static_print(t40)",
    "a tuple times": "t = (N, N) * (1 << 40)",
    "a list of a range": "t = list(range(2000000000))",
    "a range to add up": "tl.static_assert(f(range(10 ** 12)) == 1)",
}


@pytest.mark.parametrize("how", list(SLOW))
def test_a_constexpr_function_that_does_not_end(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it reckons is counted; no limit of time is needed."""
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))
    text = f"import math\nimport triton\nimport triton.language as tl\n\n\n@triton.constexpr_function\ndef f(n):\n    {SLOW[how]}\n\n\n"
    text += "@triton.jit\ndef k(x, N: tl.constexpr = 64):\n    tl.store(x, f(N))\n"
    (tmp_path / "k.py").write_text(text)
    began = time.process_time()
    assert main(["inspect", f"{tmp_path / 'k.py'}::k", "--target", "sm_90", "--untrusted"]) == 2
    said = capsys.readouterr().err
    assert "refused" in said and any(word in said for word in ("more than", "would run")), said
    assert time.process_time() - began < 30


@pytest.mark.parametrize("how", list(WITHIN))
def test_a_kernel_that_makes_values_without_end(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it makes is counted as what a constexpr function makes, with all that it holds."""
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))
    text = "import triton\nimport triton.language as tl\n\n\n@triton.constexpr_function\ndef f(n):\n    return sum(n)\n\n\n"
    text += f"@triton.jit\ndef k(x, N: tl.constexpr = 64):\n    {WITHIN[how]}\n    tl.store(x, N)\n"
    (tmp_path / "k.py").write_text(text)
    began = time.process_time()
    assert main(["inspect", f"{tmp_path / 'k.py'}::k", "--target", "sm_90", "--untrusted"]) == 2
    said = capsys.readouterr().err
    assert "refused" in said and "more than" in said, said
    assert time.process_time() - began < 30


READ = {
    "a range that is read again and again": "A = [max(range(20000)) for i in range(20000)]",
    "a number without end": f"A = tl.constexpr(0x{'f' * 20_000})",
}


@pytest.mark.parametrize("how", list(READ))
def test_a_constant_that_takes_long(how: str, tmp_path: Path) -> None:
    text = KERNEL.replace("\n\n\n@", f"\n{READ[how]}\n\n\n@").replace("1.0", "A")
    (tmp_path / "k.py").write_text(text)
    code, words, seconds, memory = run(("inspect", "k.py::k", "--target", "sm_90"), tmp_path)
    assert code == 2 and any(word in words for word in ("too much to evaluate", "digits")), words
    assert "internal" not in words and seconds < 5 * MOST_S and memory < MOST_BYTES, f"{seconds:.1f} s, {memory / 1e6:.0f} MB"
