"""Deciding ahead of time, on tensors made for the purpose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from advisor.autotuning.decisions.decision import Decision
from advisor.system.errors import MissingDependencyError, UsageError


def decide_ahead(kernel: Any, shapes: Iterable[Mapping[str, Any]], grid: Any, device: str) -> tuple[Decision, ...]:
    """See `advisor.warmup`."""
    tuner, heuristics = _tuner(kernel)
    decisions = []
    for shape in shapes:
        if not isinstance(shape, Mapping):
            raise UsageError("warmup: a call", shape, "a mapping of argument name to value")
        values = {name: _made(value, device) for name, value in shape.items() if name != "grid"}
        unknown = [name for name in values if name not in tuner.arg_names]
        if unknown:
            raise UsageError("warmup: no such argument", unknown[0], f"one of {', '.join(tuner.arg_names)}")
        where = shape.get("grid", grid)
        if where is None:
            raise UsageError("warmup: a call has no grid", sorted(values), 'a "grid" among its values, or grid=')
        for each in heuristics:
            for name, heuristic in each.values.items():
                values[name] = heuristic(dict(values))
        # In the kernel's order, as a call passes them: Triton's key holds the element types in the order of the call.
        ordered = {name: values[name] for name in tuner.arg_names if name in values} | values
        decisions.append(tuner.decide(grid=where, warmup=False, **ordered))
    return tuple(decisions)


def _tuner(kernel: Any) -> tuple[Any, list[Any]]:
    """The tuner, and the heuristics around it, outermost first."""
    around = []
    while kernel is not None and not hasattr(kernel, "decisions"):
        if not isinstance(getattr(kernel, "values", None), Mapping):
            raise UsageError("warmup: the kernel is not decorated with advisor.autotune", kernel)
        around.append(kernel)
        kernel = getattr(kernel, "fn", None)
    return kernel, around


def _made(value: Any, device: str) -> Any:
    """A tensor where the value describes one."""
    if not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], (tuple, list))):
        return value
    try:
        import torch
    except ImportError as error:
        remedy = "pip install 'triton-advisor[torch]'"
        raise MissingDependencyError("warmup: making tensors needs torch", str(error), None, remedy) from None
    shape, dtype = value
    if isinstance(dtype, str):
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}.get(dtype) or getattr(torch, dtype)
    if not dtype.is_floating_point:
        return torch.zeros(tuple(shape), dtype=dtype, device=device)
    return torch.randn(tuple(shape), device=device).to(dtype)
