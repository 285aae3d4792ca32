"""Compiling ahead: the cache it fills is the one the launch looks into; and what cannot be compiled is told apart."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.measurement.devices.device import parse_device
from advisor.measurement.kernel_file import find_kernels
from advisor.measurement.launch import Batch, Launch
from advisor.measurement.scheduler import Scheduler, compile_ahead
from advisor.result.schema import Configuration, Problem
from advisor.system.processes import Worker

from .conftest import configuration, elementwise, kernel, launches

SCRIPT = """
import os, sys
sys.path[:0] = [sys.argv[1]]
from advisor.python_source.described import kernel_problem
from advisor.measurement.kernel_file import KernelRef, find_kernels
from advisor.measurement.scheduler import compile_launch, use_offline_target
from advisor.measurement.kernel_file import configurations, function_of
from advisor.result.schema import Problem
import torch

use_offline_target("cuda", 90, 32)
for name, problem in {problems}:
    kernel = find_kernels(name)[0]
    problem = Problem(**problem)
    configuration = configurations(kernel, problem)[0]
    assert compile_launch(kernel, problem, configuration)
    before = set(os.listdir(os.environ["TRITON_CACHE_DIR"]))
    inputs = function_of(kernel, "make_inputs")(kernel_problem(problem, None), "cpu", torch.Generator().manual_seed(0))
    try:
        function_of(kernel, "prepare")(inputs, configuration.flat())()
    except Exception as error:  # there is no GPU to load it on
        assert "CompilationError" not in type(error).__name__, error
    assert set(os.listdir(os.environ["TRITON_CACHE_DIR"])) == before, f"{{name}}: the launch compiled something else"
print("same")
"""
PROBLEMS = [
    ("fused_moe_kernel", {"family": "fused_moe", "op": "w13", "sizes": {"M": 8, "E": 4, "topk": 2, "H": 128, "N": 64}}),
    ("rms_norm_kernel", {"family": "normalization", "op": "rms_norm", "sizes": {"B": 8, "H": 256}}),
]


def test_the_launch_finds_what_was_compiled_ahead(tmp_path):
    """The launch of a bundled kernel, up to loading it on a GPU that is not there, adds nothing to Triton's disk cache."""
    pytest.importorskip("torch")
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_DEFAULT_FP_FUSION": "1"}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(problems=PROBLEMS), str(root)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "same", done.stderr[-2000:]


def ask(worker, reference, problem, config):
    worker.send(compile_ahead, ("cuda", 90, 32), Launch(kernel=reference, problem=problem, configuration=config))
    return worker.receive()


def test_compiling_workers_answer_whatever_they_are_given(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    moe = find_kernels("fused_moe_kernel")[0]
    problem = Problem(family="fused_moe", op="w13", sizes={"M": 8, "E": 4, "topk": 2, "H": 128, "N": 64})
    good = Configuration(parameters={"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1})
    odd = Configuration(parameters={"BLOCK_SIZE_M": 17, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1})
    worker = Worker()
    try:
        assert ask(worker, moe, problem, good) == ("done", None) and any(tmp_path.rglob("*.cubin"))
        assert ask(worker, moe, problem, odd)[1].kind == "compile-error"  # 17 is no power of two
        assert ask(worker, kernel("scale_kernel"), elementwise(), configuration()) == ("done", None)  # does not say its arguments
    finally:
        worker.kill()


def test_what_is_compiled_overtakes_what_is_not():
    """One compilation that takes minutes does not keep the GPU waiting."""

    released = threading.Event()

    class Waiting(Scheduler):
        def _compile(self, launch):
            assert launch.problem.sizes["B"] != 16 or released.wait(60)

    batches = [Batch(launches=tuple(group)) for _, group in itertools.groupby(launches(3), key=lambda launch: launch.problem.sizes["B"])]
    with Waiting(parse_device("fake")) as scheduler:
        scheduler.compile_workers, scheduler.description = 1, replace(scheduler.description, target=("cuda", 90, 32))
        scheduler._pool = ThreadPoolExecutor(8)
        order = []
        for batch, _ in scheduler.run(batches):
            order.append(batch.problem.sizes["B"])
            released.set()
    assert sorted(order) == [16, 32, 48] and order[0] == 32
