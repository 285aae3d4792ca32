"""What the tests of `triton_kernels/` share: reading, loading, compiling and checking a kernel file as any other file."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from advisor.measurement.kernel_file import tolerance_of
from advisor.measurement.launch import compare as compare_outputs
from advisor.measurement.launch import poison

FOLDER = Path(__file__).parents[2] / "triton_kernels"
FILES = sorted(path for path in FOLDER.glob("*.py") if path.name != "__init__.py")
_counter = itertools.count()


def read_kernels(path: Path) -> dict[str, Any]:
    """The `KERNELS` literal of a file, without importing it."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "KERNELS" for t in node.targets):
            return ast.literal_eval(node.value)
    raise AssertionError(f"{path.name} has no KERNELS literal")


def load(name: str) -> ModuleType:
    """A fresh module from `triton_kernels/NAME.py`, under a name no one else uses."""
    spec = importlib.util.spec_from_file_location(f"kernel_file_{name}_{next(_counter)}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def compile_kernel(module: ModuleType, kernel: str, problem: dict, config: dict, capability: int) -> Any:
    """Cross-compiles one launch, specialized as Triton's runtime would: ones folded, multiples of 16 declared."""
    launch_options = ("num_warps", "num_stages", "num_ctas", "maxnreg")
    options = {key: config[key] for key in launch_options if key in config}
    values = getattr(module, module.KERNELS[kernel]["arguments"])(problem, config)
    values = {**values, **{key: value for key, value in config.items() if key not in launch_options}}
    return compile_function(getattr(module, kernel), values, options, capability)


def compile_function(function: Any, values: dict, options: dict, capability: int) -> Any:
    """The same of any function: `values` of all its arguments, a type's name ("*bf16") for a tensor."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    assert set(values) == set(function.arg_names), set(values) ^ set(function.arg_names)
    signature, constants, attributes = {}, {}, {}
    for index, parameter in enumerate(function.params):
        value = values[parameter.name]
        if parameter.is_constexpr or value is None or (type(value) is int and value == 1):
            signature[parameter.name] = "constexpr"
            constants[parameter.name] = value
        elif isinstance(value, str):
            signature[parameter.name] = value
            if value.startswith("*"):
                attributes[(index,)] = [["tt.divisibility", 16]]
        elif isinstance(value, float):
            signature[parameter.name] = "fp32"
        else:
            signature[parameter.name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            if value % 16 == 0:
                attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attributes)
    options = {**options, "enable_fp_fusion": True}  # today's default, which Triton 3.9 wants to hear said
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def check(module: ModuleType, kernel: str, problem: dict, config: dict, device: str = "cpu", seed: int = 0) -> None:
    """Fresh random inputs, a poisoned output, one launch, and the reference."""
    import torch

    entry = module.KERNELS[kernel]
    generator = torch.Generator(device=device).manual_seed(seed)
    inputs = getattr(module, entry["make_inputs"])(problem, device, generator)
    check_inputs(module, kernel, inputs, config)


def check_inputs(module: ModuleType, kernel: str, inputs: dict, config: dict) -> None:
    """One launch on given inputs, with a poisoned output, against the reference."""
    entry = module.KERNELS[kernel]
    outputs = inputs["output"] if isinstance(inputs["output"], tuple) else (inputs["output"],)
    for tensor in outputs:
        poison(tensor)
    got = getattr(module, entry["prepare"])(inputs, config)()
    want = getattr(module, entry["reference"])(inputs)
    got, want = (value if isinstance(value, tuple) else (value,) for value in (got, want))
    for index, (one, other) in enumerate(zip(got, want, strict=True)):
        compare(one, other, tolerance_of(entry, inputs["problem"]["dtype"], inputs["problem"]), f"{kernel} output {index} {config}")


def compare(got: Any, want: Any, tolerance: Sequence[float], what: str) -> None:
    """As the measurement does before it times anything: (relative, absolute), by rows."""
    compare_outputs(got, want, *tolerance, what)


def mend_interpreter() -> None:
    """Mends two things in the interpreter of Triton 3.6 and 3.9, which the compiler does right.

    `tl.dot` multiplies the bits of bf16 as 16-bit integers. Rounding fp32 to e4m3 drops the carry into the exponent, so
    that 1.97 becomes 1.0; to bf16 it truncates.
    """
    import numpy as np
    import torch
    import triton.language as tl
    from triton.runtime import interpreter

    original = interpreter.InterpreterBuilder.create_dot

    def widen(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16 or handle.data.dtype != np.uint16:
            return handle
        bits = handle.data.astype(np.uint32) << 16
        return interpreter.TensorHandle(bits.view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return original(self, widen(a), widen(b), *rest)

    interpreter.InterpreterBuilder.create_dot = create_dot
    convert = interpreter._convert_float
    narrow = {tl.float8e4nv: (torch.float8_e4m3fn, torch.uint8), tl.bfloat16: (torch.bfloat16, torch.int16)}

    def convert_float(data: Any, source: Any, target: Any, rounding: Any) -> Any:
        if source != tl.float32 or target not in narrow:
            return convert(data, source, target, rounding)
        dtype, bits = narrow[target]
        values = torch.from_numpy(np.ascontiguousarray(data).view(np.float32)).to(dtype).view(bits).numpy()
        return values.view(np.uint8 if bits == torch.uint8 else np.uint16)

    interpreter._convert_float = convert_float


def far_apart(tensor: Any, stride: int, dim: int = 0) -> Any:
    """The same values with `stride` elements from one index of `dim` to the next; the gaps are never touched.

    With a stride below 2**31 and more than 2**31 elements spanned, 32-bit offsets would wrap.
    """
    import torch

    strides = list(tensor.contiguous().stride())
    strides[dim] = stride
    spread = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return spread.copy_(tensor)
