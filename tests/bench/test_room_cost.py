"""What the room costs a compilation: processor time of one within its walls, and of the same one without (`make bench` prints it)."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.compiled.compiler.kernel import Target
from advisor.compiled.compiler.pool import Pool, Worker
from advisor.compiled.launches.launch import KernelLaunch, compile_launch
from advisor.python_source.source import parse_source

ROOT = Path(__file__).resolve().parents[2]
KERNELS = (("fused_moe", "fused_moe_kernel"), ("gemm", "gemm_kernel"), ("softmax", "softmax_kernel"), ("attention", "attention_kernel"))
ROUNDS = 6
WITHOUT = """
import json, sys, tempfile
from advisor.compiled.compiler import backend, frontend, guard, worker
from advisor.python_source import language
for line in sys.stdin:
    request = json.loads(line)
    target = worker.target_of(request)
    worker.answer_for(target)
    with tempfile.TemporaryDirectory() as folder:
        backend.make_code(request, target, frontend.make_ir(request, target, language, guard), folder)
"""


class Recorded(Pool):
    """A pool that keeps what it is asked."""

    def one(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request)
        return super().one(request)


def used() -> float:
    """Seconds of processor time of the processes that ended."""
    times = resource.getrusage(resource.RUSAGE_CHILDREN)
    return times.ru_utime + times.ru_stime


def within(requests: list[dict[str, Any]]) -> float:
    before = used()
    worker = Worker()
    for request in requests:
        assert "error" not in worker.ask(request, 120)
    assert worker.process is not None and worker.process.stdin is not None
    worker.process.stdin.close()  # it ends by itself, and its time counts
    worker.process.wait(30)
    worker.close()
    return used() - before


def without(requests: list[dict[str, Any]]) -> float:
    before = used()
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    environment = {**os.environ, "TRITON_DEFAULT_FP_FUSION": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", WITHOUT], input=lines, text=True, check=True, env=environment, stderr=subprocess.DEVNULL)
    return used() - before


@pytest.mark.bench
def test_what_the_room_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path))
    print("\nseconds of processor time per compilation, least of", ROUNDS)
    total = [0.0, 0.0]
    for file, kernel in KERNELS:
        source = parse_source((ROOT / "triton_kernels" / f"{file}.py").read_text(), ROOT / "triton_kernels" / f"{file}.py")
        with Recorded(1) as pool:
            pool.asked = []  # type: ignore[attr-defined]
            compile_launch(KernelLaunch(source=source, kernel=kernel), Target(backend="cuda", arch=90), pool)
        (request,) = pool.asked[-1:]  # type: ignore[attr-defined]
        one, many = [request], [request] * 9
        # The difference is eight compilations of a worker that runs; starting it is told apart.
        times = [(without(one), without(many), within(one), within(many)) for _ in range(ROUNDS)]
        least = [min(each) for each in zip(*times, strict=True)]
        free, walled = (least[1] - least[0]) / 8, (least[3] - least[2]) / 8
        total = [total[0] + free, total[1] + walled]
        print(f"{kernel:<20} without {free:.3f}  within {walled:.3f}  {walled / free - 1:+.1%}   first, with its start: "
              f"{least[0]:.3f} -> {least[2]:.3f}")  # fmt: skip
    print(f"{'all':<20} without {total[0]:.3f}  within {total[1]:.3f}  {total[1] / total[0] - 1:+.1%}")
