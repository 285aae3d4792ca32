"""Predicting configurations of a kernel whose family nobody knows: from what the compiler made of it.

Every configuration is compiled for it, which costs about as much as measuring it afterwards. So this serves mode predict, in which
nothing may be measured; mode measure measures such kernels in the given order.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from advisor.autotuning import internals
from advisor.autotuning.gpu_names import gpu_model
from advisor.autotuning.ranking import Ranking, given_order

BUDGET_S = 20.0
"""How long configurations are compiled, in the given order; the one that is being compiled then is the last."""


def rank_by_code(tuner: Any, call: Any, device: internals.Device, why_not_known: str) -> Ranking:
    """Ranks by the analytical model on the demand of the compiled code. Never raises: without it the given order stands."""
    count = len(call.configs)
    if not device.runs or internals.is_interpreted():
        return given_order(count, f"{why_not_known}; nothing is compiled here")
    from advisor.gpus.hardware import match_device_name

    gpu = match_device_name(device.name)
    if gpu is None:
        return given_order(count, f"{why_not_known}; ceilings/ describes no GPU {device.name}")
    kwargs = {name: value for name, value in call.kwargs.items() if name != "warmup"}
    launches = [(call.args, {**kwargs, **config.all_kwargs()}) for config in call.configs]
    predicted: dict[int, float] = {}
    trouble, started, looked = "", time.monotonic(), 0
    tuner.say_once("compiles", f"{tuner.base_fn.__name__}: {count} configurations are compiled to predict them, for {BUDGET_S:g} s at most")
    try:
        workers = internals.workers()
        for first in range(0, count, workers):
            if time.monotonic() - started > BUDGET_S:
                break
            batch = launches[first : first + workers]
            failed = internals.compile_ahead(tuner.fn, batch, workers=len(batch))
            for place, (args, options) in enumerate(batch, first):
                if failed[place - first] is not None:
                    continue
                try:
                    predicted[place] = _predicted_us(tuner.fn.warmup(*args, **options), call, call.configs[place], device, gpu)
                except Exception as error:
                    trouble = f"{type(error).__name__}: {error}"
            looked = min(first + workers, count)
    except Exception as error:  # compiling and reading code have many ways to go wrong; none is a reason for the kernel not to run
        trouble = f"{type(error).__name__}: {error}"
    finite = {place: us for place, us in predicted.items() if us == us and us != float("inf")}
    if not finite:
        return given_order(count, f"{why_not_known}; its code cannot be read ({trouble or 'it does not fit the GPU'})")
    order = sorted(finite, key=lambda place: (finite[place], place))
    rest = [place for place in range(count) if place not in finite]
    of_them = f"; {looked} of {count} within {BUDGET_S:g} s" if looked < count else ""
    return Ranking(
        order=(*order, *rest),
        by=f"analytical model, demand read from the compiled code ({gpu_model(device.name)}{of_them})",
        modelled=True,
        predicted_us=finite,
        unfit=frozenset(place for place in rest if place < looked),
    )


def _predicted_us(kernel: Any, call: Any, config: Any, device: internals.Device, gpu: Any) -> float:
    """Latency of one configuration, microseconds; infinite where it cannot be launched."""
    from advisor.compiled.analysis import kernel_analysis
    from advisor.compiled.compiler.backend import disassemble
    from advisor.compiled.compiler.compile import resources_of
    from advisor.compiled.compiler.kernel import CompiledKernel, CompileRequest, Target
    from advisor.compiled.demand.demand import read_demand
    from advisor.compiled.guesses.inference import Given, Guess
    from advisor.compiled.launches.launch import Inspection, KernelLaunch, inputs_of
    from advisor.python_source.source import parse_source

    kernel = kernel.result() if hasattr(kernel, "future_kernels") or type(kernel).__name__ == "FutureKernel" else kernel
    metadata = kernel.metadata._asdict() if hasattr(kernel.metadata, "_asdict") else vars(kernel.metadata)
    texts = {name: text for name, text in kernel.asm.items() if isinstance(text, str)}
    backend, _, arch = device.target.partition(":")
    target = Target(backend=backend, arch=int(arch) if arch.isdigit() else arch, warp_size=gpu.warp_size)
    values = {**call.named, **config.all_kwargs()}
    scalars = {name: value for name, value in values.items() if isinstance(value, (bool, int, float))}
    grid = _grid(call.kwargs.get("grid"), values)
    tools: dict[str, str] = {}
    if isinstance(kernel.asm.get("cubin"), bytes):
        with tempfile.TemporaryDirectory(prefix="advisor-code-") as folder:
            tools = disassemble(kernel.asm["cubin"], folder, sass=False)
    launch = KernelLaunch(
        source=parse_source("", "compiled.py"),  # compiled already: nothing of it is read
        kernel=str(metadata.get("name", "kernel")),
        given=Given(scalars=scalars),
        grid=grid,
        sizes={name: int(value.numel()) for name, value in values.items() if hasattr(value, "numel")},
    )
    guess = Guess(signature={}, constexprs=scalars, options=config.all_kwargs())
    named: Any = SimpleNamespace(kernel=launch.kernel)  # all that is read of a rebuilt module here
    request = CompileRequest(rebuilt=named, signature={}, constexprs={}, options=config.all_kwargs(), target=target)
    compiled = CompiledKernel(
        name=launch.kernel,
        target=target,
        triton_version=internals.triton_version(),
        ttir=texts["ttir"],
        ttgir=texts.get("ttgir", ""),
        ptx=texts.get("ptx", ""),
        amdgcn=texts.get("amdgcn", ""),
        metadata=metadata,
        options=config.all_kwargs(),
        resources=resources_of(request, {"asm": texts, "metadata": metadata, "tools": tools}),
    )
    demand = read_demand(compiled.ttir, grid, inputs_of(launch, guess))
    found = kernel_analysis(Inspection(launch=launch, compiled=compiled, demand=demand, guess=guess, attempts=()), gpu)
    return found.predicted.us if found.predicted is not None else float("inf")


def _grid(grid: Any, values: Mapping[str, Any]) -> tuple[int, ...]:
    found: Sequence[Any] = grid(dict(values)) if callable(grid) else grid
    return tuple(int(each) for each in found)
