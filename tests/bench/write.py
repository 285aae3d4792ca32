"""Writes what the advisor costs as JSON: CPU time of what people wait for, and the size of the code.

python tests/bench/write.py bench.json; `compare.py OLD NEW` compares the files of two commits, made on one machine.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import advisor
from advisor.cli import main
from advisor.python_source.source import read_source
from advisor.rendering.page import to_html
from tests.rendering.terminal import to_text

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "reports/examples/E=128,N=768,device_name=NVIDIA_H20.json"
DATA = ROOT / "tests/data"
RUNS = 7


def actions(folder: Path) -> dict[str, Callable[[], object]]:
    """What is timed, by name; `folder` takes what it writes."""
    result = advisor.advise(TABLE, model="Qwen3-30B-A3B")
    tables = folder / "tables"
    tables.mkdir()
    for inner in (512, 768):
        shutil.copy(TABLE, tables / TABLE.name.replace("N=768", f"N={inner}"))

    def command(*words: str) -> Callable[[], None]:
        def run() -> None:
            code = main(list(words))
            assert code == 0, f"{words}: {code}"

        return run

    return {
        "start: import advisor": lambda: subprocess.run([sys.executable, "-c", "import advisor"], check=True),
        "start: advisor --help": lambda: subprocess.run([sys.executable, "-m", "advisor", "--help"], check=True, capture_output=True),
        "advise: a table, 18 entries": lambda: advisor.advise(TABLE, model="Qwen3-30B-A3B"),
        "advise: a folder, 2 tables with pages": command(
            "advise", str(tables), "--hidden-size", "2048", "--top-k", "8", "--output", str(folder)
        ),
        "advise: gemm, 1 launch": lambda: advisor.advise("gemm", gpu="H200", sizes={"M": 4096, "N": 4096, "K": 4096}),
        "render: page of a table": lambda: to_html(result),
        "render: terminal of a table": lambda: to_text(result),
        "predict: rows.csv": command("predict", str(DATA / "rows.csv"), "-o", str(folder / "predicted.csv")),
        "rank: shapes.csv": command("rank", str(DATA / "shapes.csv"), "-o", str(folder / "ranked.csv")),
        "audit: examples": command("audit", str(TABLE.parent)),
        "compare: two results": lambda: advisor.compare(DATA / "compare/before.json", DATA / "compare/after.json"),
        "read: kernels from source": lambda: [read_source(path).kernels_literal for path in (ROOT / "triton_kernels").glob("*.py")],
    }


def cpu_ms(action: Callable[[], object]) -> list[float]:
    """CPU time of each of `RUNS` runs after a first, in milliseconds, ended child processes included."""
    taken = []
    for _ in range(RUNS + 1):
        began = _cpu_s()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            action()
        taken.append(1e3 * (_cpu_s() - began))
    return taken[1:]


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def statements() -> int:
    """Statements of `advisor/`, docstrings apart, so that formatting does not matter."""
    nodes = [node for path in (ROOT / "advisor").rglob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    return sum(isinstance(node, ast.stmt) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in nodes)


def commit() -> str:
    """The commit, with + where files differ from it; empty outside a repository."""
    done = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def bench() -> dict[str, object]:
    """The document that is written."""
    with tempfile.TemporaryDirectory() as folder:
        taken = {name: cpu_ms(action) for name, action in actions(Path(folder)).items()}
    return {
        "commit": commit(),
        "machine": f"{platform.processor() or platform.machine()}, Python {platform.python_version()}",
        "statements": statements(),
        "cpu_ms": {name: {"best": min(runs), "median": statistics.median(runs)} for name, runs in taken.items()},
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(bench(), indent=1) + "\n", encoding="utf-8")
    print(f"written: {sys.argv[1]}")
