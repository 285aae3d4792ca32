"""What leads from a user's program to a GPU: `record`, measuring a record, `tune` and `@advisor.autotune`, each in processes of its own.

`tests/gpu/test_doors_gpu.py` goes through them on a GPU, `tests/measurement/test_doors_on_a_stand_in.py` on a stand-in for `torch.cuda`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from advisor.measurement.measured_rows import read_measured

ROOT = Path(__file__).resolve().parents[2]
PYTHON = (sys.executable,)
PROGRAM = """
import torch, triton
import triton.language as tl

@triton.jit
def scaled(x_ptr, y_ptr, n, scale, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * scale, mask=offsets < n)

for n in (1000, 5000):
    x = torch.randn(n, device="cuda")
    y = torch.empty_like(x)
    scaled[(triton.cdiv(n, 512),)](x, y, n, 3.0, BLOCK=512, num_warps=4)
    assert torch.allclose(y, 3 * x)
"""
TUNED = """
import json, sys
import torch, triton, advisor
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b in (256, 1024) for w in (2, 4)]

@advisor.autotune(configs=CONFIGS, key=["n"], restore_value=["x_ptr"])
@triton.jit
def add_one(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 1, mask=offsets < n)

x = torch.zeros(5000, device="cuda")
add_one[lambda meta: (triton.cdiv(5000, meta["BLOCK"]),)](x, 5000)
right = bool((x == 1).all())
print(json.dumps({"right": right, "how": add_one.decision.how, "measurements": add_one.decision.measurements}))
"""


def run(folder: Path, environment: dict[str, str], python: Sequence[str], *arguments: str) -> str:
    """Runs Python, a command of these words, with arguments; what it printed.

    Raises:
        AssertionError: It failed; holds what it said.
    """
    found = {**os.environ, "ADVISOR_CACHE_DIR": str(folder / "cache"), "TRITON_DEFAULT_FP_FUSION": "1", **environment}
    done = subprocess.run(
        [*python, *arguments],
        cwd=folder,
        env=found,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def record_and_replay(folder: Path, environment: dict[str, str], python: Sequence[str] = PYTHON) -> None:
    """A program's launches are recorded, and measured again as they were."""
    (folder / "program.py").write_text(PROGRAM)
    run(folder, environment, python, "-m", "advisor", "record", "-o", "launches.jsonl", "--", *python, "program.py")
    run(folder, environment, python, "-m", "advisor", "measure", "launches.jsonl", "-o", "replayed.csv", "--device", "cuda")
    rows = list(read_measured(folder / "replayed.csv"))
    assert len(rows) == 2 and all(
        row.kernel == "scaled" and row.latency_us > 0 and row.cells["timer"] in ("graph", "events") for row in rows
    )
    assert all(row.fingerprint.mode == "gpu" for row in rows)


def tune(folder: Path, environment: dict[str, str], python: Sequence[str] = PYTHON) -> None:
    """A kernel is tuned, and says what was measured."""
    arguments = ["--sizes", "B=2,H=64", "--trials", "3", "--device", "cuda", "-o", "tuned", "--export", "tuned", "--format", "json"]
    found = json.loads(run(folder, environment, python, "-m", "advisor", "tune", "softmax", *arguments))
    assert "H200" in json.dumps(found) or environment == {}
    assert (folder / "tuned" / "result.json").exists() and '"measured"' in json.dumps(found)


def autotune(folder: Path, environment: dict[str, str], python: Sequence[str] = PYTHON) -> None:
    """A decorated kernel measures at its first call, and writes what it should."""
    (folder / "tuned.py").write_text(TUNED)
    found = json.loads(run(folder, environment, python, "tuned.py").splitlines()[-1])
    assert found["right"] and found["how"] == "measured" and found["measurements"] >= 2, found
