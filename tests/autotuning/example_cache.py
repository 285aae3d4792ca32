"""Writes `tests/data/tuned-cache.json`, the README's example: `python tests/autotuning/example_cache.py`.

There is no GPU in it: Triton's driver is a stand-in, and a latency is what the model predicts, up to half as much again (`scale`: made
up). Hence its `"origin"`, simulated.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[n]) for n in (1, 2)]


def main() -> None:
    """Tunes three gemms and a kernel that the model does not know, and exports what was found out."""
    from triton.runtime.driver import driver

    from advisor.autotuning.ranking import predictor
    from advisor.cli import main as advisor
    from advisor.gpus.hardware import load_gpu
    from advisor.pipelines import configuration_batch, problem_batch
    from advisor.result.schema import Configuration, Problem
    from autotuning import kernels
    from autotuning.fakes import FakeDriver

    driver.set_active(FakeDriver("NVIDIA H200"))

    def latency_ms(launch: dict) -> float:
        names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
        configuration = Configuration(
            parameters={name: launch[name] for name in names}, num_warps=launch["num_warps"], num_stages=launch["num_stages"]
        )
        problem = Problem(family="gemm", op="gemm", sizes={name: launch[name] for name in "MNK"}, cache="cold")
        us = float(predictor().predict(problem_batch([problem]), configuration_batch([configuration]), load_gpu("H200")).us[0])
        return us / 1e3 * (1.05 + 0.5 * random.Random(configuration.label()).random())

    kernel, _ = kernels.tuned(latency_ms, kernels.gemm_kernel, kernels.GEMM_SPACE, key=["M", "N", "K"])
    for tokens in (16, 512, 4096):
        kernels.call_gemm(kernel, tokens, 4096, 4096)
    kernels.call(kernels.tuned({512: 0.021, 1024: 0.019, 2048: 0.024})[0], 1 << 20)
    export = HERE.parents[1] / "data" / "tuned-cache.json"
    advisor(["cache", "export", str(export)])
    document = json.loads(export.read_text(encoding="utf-8"))
    head = {name: document.pop(name) for name in ("format", "version")}
    export.write_text(json.dumps({**head, "origin": "simulated", **document}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ADVISOR_CACHE_DIR"] = folder
        main()
