"""Compiles a launch without launching it, so that Triton's disk cache holds it before the GPU needs it.

Runs in worker processes that never touch the GPU: an offline driver tells Triton the target, and the kernel goes through
`JITFunction.warmup`, the runtime's own path to the compiler, so that the cache key is the runtime's own too.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from advisor.compiled.compiler.worker import answer_for
from advisor.measurement.kernel_file import KernelRef, function_of, load_module
from advisor.python_source.described import kernel_problem
from advisor.result.schema import Configuration, Problem

_TORCH_NAMES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
    "i1": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
}
_DESCRIPTOR = re.compile(r"tensordesc<(\w+)\[([\d, ]+)\]>")


class _DType:
    """A torch type as Triton asks for it: how it prints, and its size."""

    def __init__(self, name: str, itemsize: int) -> None:
        self.name, self.itemsize = name, itemsize

    def __str__(self) -> str:
        return f"torch.{self.name}"


@lru_cache(maxsize=64)
def _dtype(triton_type: str) -> _DType:
    bits = re.search(r"\d+", triton_type)
    return _DType(_TORCH_NAMES.get(triton_type, triton_type), max(1, int(bits[0]) // 8) if bits else 4)


class _Tensor:
    """A tensor argument as Triton asks for it when it only compiles: a type, an aligned address, and a range of addresses."""

    def __init__(self, triton_type: str) -> None:
        self.dtype = _dtype(triton_type)
        self.shape = (1,)

    @staticmethod
    def data_ptr() -> int:
        return 0

    @staticmethod
    def ptr_range() -> int:
        return 0

    @staticmethod
    def stride() -> tuple[int, ...]:
        return (1,)


def _argument(value: Any) -> Any:
    """A stand-in for one argument that a kernel file's `arguments` describes."""
    if not isinstance(value, str):
        return value
    if value.startswith("*"):
        return _Tensor(value[1:].removeprefix("k"))
    if found := _DESCRIPTOR.fullmatch(value):
        from triton.tools.tensor_descriptor import TensorDescriptor

        block = [int(size) for size in found[2].split(",")]
        strides = [1]
        for size in reversed(block[1:]):
            strides.insert(0, strides[0] * max(size, 16))
        return TensorDescriptor(_Tensor(found[1]), block, strides, block)
    return value  # a constexpr that is a text


def use_offline_target(backend: str, architecture: int | str, warp_size: int) -> None:
    """Tells Triton, in this process, to compile for this target; no GPU is looked for from here on."""
    from triton.backends.compiler import GPUTarget

    answer_for(GPUTarget(backend, architecture, warp_size))


def _compute_capability() -> str:
    """The capability of the target that Triton compiles for, as `GpuSpec` has it: "9.0", or "gfx942"."""
    from triton.runtime import driver

    target = driver.active.get_current_target()
    return f"{target.arch // 10}.{target.arch % 10}" if target.backend == "cuda" else str(target.arch)


def compile_launch(kernel: KernelRef, problem: Problem, configuration: Configuration) -> bool:
    """Compiles one launch into Triton's disk cache; False where the kernel file does not say its arguments.

    `use_offline_target` comes first. Raises what the compiler raises.
    """
    describe = function_of(kernel, "arguments")
    if describe is None:
        return False
    flat = configuration.flat()
    asked = kernel_problem(problem, _compute_capability())
    values = {name: _argument(value) for name, value in describe(asked, flat).items()}
    getattr(load_module(kernel.file), kernel.function).warmup(grid=(1,), **{**flat, **values})
    return True
