"""Kernel files need no GPU to be found and loaded: these run on the CPU (numpy), and go wrong in every way a kernel can."""

import os
import signal
import time

import numpy as np

KERNELS = {
    "scale_kernel": {
        "family": "elementwise",
        "ops": {"gelu": {"sizes": {"B": "rows", "H": "columns"}}},
        "dtypes": ["fp32"],
        "space": {"BLOCK_SIZE": [256, 512, 1024, 2048], "num_warps": [1, 2, 4], "num_stages": [1]},
        "example": {"B": 16, "H": 32},
        "valid": "valid",
        "default": "default",
        "make_inputs": "make_inputs",
        "prepare": "prepare",
        "reference": "reference",
        "tolerance": {"fp32": [1e-6, 1e-6]},
    },
    "faulty_kernel": {
        "family": "elementwise",
        "ops": {"gelu": {"sizes": {"B": "rows", "H": "columns"}}},
        "dtypes": ["fp32"],
        "space": {
            "MODE": ["right", "illegal", "hang", "oom", "resources", "compile", "wrong", "unwritten", "segfault", "exit", "raise", "late"],
            "num_warps": [4],
            "num_stages": [1],
        },
        "make_inputs": "make_inputs",
        "prepare": "prepare_faulty",
        "reference": "reference",
        "tolerance": {"fp32": [1e-6, 1e-6]},
    },
    "inputs_kernel": {
        "family": "elementwise",
        "ops": {"gelu": {"sizes": {"B": "rows", "H": "columns"}}},
        "space": {"BLOCK_SIZE": [256, 512], "num_warps": [4], "num_stages": [1]},
        "make_inputs": "too_large_inputs",
        "prepare": "prepare",
        "reference": "reference",
    },
    "listed_only_kernel": {"family": "elementwise", "ops": {"gelu": {"sizes": {"B": "rows", "H": "columns"}}}},
}


class OutOfResources(Exception):  # noqa: N818
    """Named as triton's."""


class CompilationError(Exception):
    """Named as triton's."""


def valid(config, problem):
    return config["BLOCK_SIZE"] <= 512 * config["num_warps"]


def default(problem):
    return {"BLOCK_SIZE": 512, "num_warps": 4, "num_stages": 1}


def make_inputs(problem, device, generator):
    x = np.array([generator.gauss(0, 1) for _ in range(problem["B"] * problem["H"])])
    return {"problem": problem, "x": x, "output": np.empty_like(x)}


def too_large_inputs(problem, device, generator):
    raise MemoryError("CUDA out of memory. Tried to allocate 900 GiB")


def reference(inputs):
    return 2 * inputs["x"]


def prepare(inputs, config):
    def run():
        np.multiply(inputs["x"], 2, out=inputs["output"])
        return inputs["output"]

    return run


def prepare_faulty(inputs, config):
    right, mode = prepare(inputs, config), config["MODE"]
    runs = inputs.setdefault("runs", {})

    def run():
        runs[mode] = runs.get(mode, 0) + 1
        if mode == "illegal":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if mode == "hang":
            time.sleep(600)
        if mode == "oom":
            raise MemoryError("CUDA out of memory. Tried to allocate 200 GiB")
        if mode == "resources":
            raise OutOfResources("out of resource: shared memory, Required: 300000, Hardware limit: 232448")
        if mode == "compile":
            raise CompilationError("at 3:4: no")
        if mode == "wrong":
            return right() + (np.arange(inputs["x"].size) == 7)
        if mode == "unwritten":
            return inputs["output"]
        if mode == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if mode == "exit":
            print("what it said last", flush=True)
            os._exit(3)
        if mode == "raise":
            raise ValueError("something else")
        if mode == "late" and runs[mode] > 3:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return right()

    return run
