"""Times a pull request with a spill, a block change, a rename, a compilation that does not end, and a table: `pytest -m bench -s` with this
file. The repository knows the advisor only by its advisor.toml; what is written lies in the folder that is printed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import TABLE, entry, table
from .repository import Repository

ROOT = Path(__file__).parents[2]
HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
GELU = """@triton.jit
def bias_gelu(x_ptr, bias_ptr, out_ptr, n_elements, n_cols, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32) + tl.load(bias_ptr + offsets % n_cols, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, x * tl.sigmoid(1.702 * x), mask=mask)


def gelu(x, bias):
    out = torch.empty_like(x)
    bias_gelu[(triton.cdiv(x.numel(), 1024),)](x, bias, out, x.numel(), x.shape[-1], BLOCK=1024)
    return out
"""
NORM = """@triton.jit
def row_norm(x_ptr, out_ptr, stride, n_cols, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * stride + offsets, mask=offsets < n_cols, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + 1e-6)
    tl.store(out_ptr + tl.program_id(0) * stride + offsets, x * scale, mask=offsets < n_cols)


def norm(x):
    out = torch.empty_like(x)
    row_norm[(x.shape[0],)](x, out, x.stride(0), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=8)
    return out
"""
ATTENTION = """@triton.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, N_CTX, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns, depth = tl.arange(0, BLOCK_N), tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + depth[None, :])
    total, most = tl.zeros([BLOCK_M, D], tl.float32), tl.full([BLOCK_M], -1e9, tl.float32)
    weight = tl.zeros([BLOCK_M], tl.float32)
    for start in range(0, N_CTX, BLOCK_N):
        k = tl.load(k_ptr + (start + columns)[None, :] * D + depth[:, None])
        scores = tl.dot(q, k)
        now = tl.maximum(most, tl.max(scores, 1))
        p = tl.exp(scores - now[:, None])
        shrink = tl.exp(most - now)
        weight = weight * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + (start + columns)[:, None] * D + depth[None, :])
        total = total * shrink[:, None] + tl.dot(p.to(v.dtype), v)
        most = now
    tl.store(out_ptr + rows[:, None] * D + depth[None, :], (total / weight[:, None]).to(out_ptr.dtype.element_ty))


def attend(q, k, v):
    out = torch.empty_like(q)
    attention[(q.shape[0] // 64,)](q, k, v, out, k.shape[0], D=128, BLOCK_M=64, BLOCK_N=64, num_warps=4)
    return out
"""
SORT = """@triton.jit
def add_all(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    for _ in tl.static_range(3):
        x = tl.cumsum(x, 0)
    tl.store(out_ptr + offsets, x, mask=offsets < n)


def run(x):
    out = torch.empty_like(x)
    add_all[(1,)](x, out, x.numel(), BLOCK=1024, num_warps=4)
    return out
"""
BASE = {
    "advisor.toml": 'gpus = ["H100", "A100"]\nfail_on = ["regressed", "failed", "cannot-launch", "spills"]\n',
    "ops/gelu.py": HEAD + GELU,
    "ops/norm.py": HEAD + NORM,
    "ops/attention.py": HEAD + ATTENTION,
    "ops/sums.py": HEAD + SORT,
    f"configs/{TABLE}": table(M1=entry(), M64=entry(), M1024=entry(64, 128)),
}
CHANGE = {
    "ops/gelu.py": HEAD + GELU.replace("1024", "64"),
    "ops/norm.py": HEAD + NORM.replace("row_norm", "rms_norm_rows"),
    "ops/attention.py": HEAD + ATTENTION.replace("// 64", "// 128").replace("BLOCK_M=64, BLOCK_N=64", "BLOCK_M=128, BLOCK_N=128"),
    "ops/sums.py": HEAD + SORT.replace("static_range(3)", "static_range(4000)"),
    f"configs/{TABLE}": table(M1=entry(), M64=entry(32), M1024=entry(256, 128)),
}


@pytest.mark.bench
def test_print_how_long_a_pull_request_takes(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    base, head = repository.commit(BASE), repository.commit(CHANGE)
    out = tmp_path / "out"
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "advisor", "compare", base, head, "--require-sandbox", "--output", str(out), "--format", "github"],
        cwd=repository.folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "ADVISOR_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    took = time.monotonic() - began
    comparison = json.loads((out / "comparison.json").read_text())
    print(f"\n{took:.1f} s, exit code {done.returncode}, {out}\n{comparison['headline']}\n{done.stdout}{done.stderr}")
    subjects = {subject["title"].rpartition("::")[2]: subject for subject in comparison["subjects"]}
    spills = [(row["base"], row["head"]) for row in subjects["attention"]["resources"]]
    assert all(after["spill_bytes"] > (before["spill_bytes"] or 0) for before, after in spills)
    assert any("BLOCK=1024 → 64" in row["label"] for row in subjects["bias_gelu"]["resources"])
    assert comparison["renamed"] == ["ops/norm.py::row_norm → ops/norm.py::rms_norm_rows"]
    assert "no longer compile" not in comparison["headline"]
    results = json.loads((out / "comparison.sarif").read_text())["runs"][0]["results"]
    places = [each["locations"][0]["physicalLocation"] for each in results]
    assert {(place["artifactLocation"]["uri"], place["region"]["startLine"]) for place in places} >= {("ops/attention.py", 7)}
    for each, place in zip(results, places, strict=True):
        print(each["ruleId"], place["artifactLocation"]["uri"], place["region"]["startLine"])
