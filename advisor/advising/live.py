"""A live kernel: what its call says of its launch, read without running it."""

from __future__ import annotations

import inspect
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.advising.trials import Regrid
from advisor.compiled.compiler.kernel import OPTION_NAMES
from advisor.compiled.recorder.hook import Recorder
from advisor.gpus.hardware import load_gpu
from advisor.result.schema import Result
from advisor.system.errors import UsageError

LAUNCH_KEYWORDS = frozenset({*OPTION_NAMES, "stream", "debug", "launch_cooperative_grid", "enable_fp_fusion", "sanitize_overflow"})
"""Keywords of a launch that are no arguments of its kernel (`CUDAOptions`, `HIPOptions`, `JITFunction.run`, Triton 3.6 and 3.9)."""


def is_kernel(target: object) -> bool:
    """Whether it is what `@triton.jit`, `@triton.heuristics` or `@triton.autotune` give."""
    return hasattr(target, "fn") and inspect.isfunction(_function(target))


def _function(kernel: Any) -> Any:
    while not inspect.isfunction(kernel) and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


class Recording:
    """The launches of live kernels, as `advisor record` writes them down; `advise` reports on them."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="advisor-live-")
        self.path = Path(self._folder) / "launches.jsonl"
        self._recorder = Recorder(str(self.path), "")
        self._recorder.start()

    def add(self, kernel: Any, grid: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        """Write down a launch; of an autotuned kernel with each of its configurations, the first as what runs."""
        jitted = kernel
        configurations: list[dict[str, Any]] = [{}]
        while not inspect.isfunction(jitted.fn):
            if tuned := getattr(jitted, "configs", None):
                configurations = [dict(item.all_kwargs()) for item in tuned]
            jitted = jitted.fn
        for number, configuration in enumerate(configurations):
            self._recorder.tuning.depth = int(number > 0)  # the others are trials
            self._recorder.record(jitted, tuple(args), grid, {**keywords, **configuration})
        self._recorder.tuning.depth = 0

    def advise(self, *, gpu: str, cache: str = "warm", try_for: float | None = None, regrid: Regrid | None = None) -> Result:
        """The report on all launches, each once.

        Args:
            gpu: Any name that `advisor gpus` knows.
            cache: What the L2 holds when a launch starts: warm or cold.
            try_for: Seconds for which other configurations are tried where one is known; None: as the settings say.
            regrid: The grid of the one launch with other constants, where a function gives it.

        Raises:
            AdvisorError: Nothing was launched, or a kernel cannot be compiled.
        """
        from advisor.advising.kernel_report import advise_compiled
        from advisor.compiled.launches.launch_options import LaunchOptions

        result = advise_compiled(
            str(self.path), load_gpu(gpu), cache=cache, command="", launch_options=LaunchOptions(), try_s=try_for, regrid=regrid
        )
        return replace(result, target=", ".join(dict.fromkeys(launch.kernel for launch in result.launches)) or "live kernel")

    def __del__(self) -> None:
        if hasattr(self, "_recorder"):
            os.close(self._recorder.descriptor)
            shutil.rmtree(self._folder, ignore_errors=True)


def advise_call(
    kernel: Any, *, gpu: str | None, grid: Any, args: Sequence[Any], cache: str, keywords: Mapping[str, Any], try_for: float | None = None
) -> Result:
    """The report on `kernel[grid](*args, **keywords)`, which is not run.

    Raises:
        UsageError: No GPU or no grid is named, or the call does not fit the kernel.
        AdvisorError: The kernel cannot be compiled.
    """
    name = _function(kernel).__name__
    if gpu is None or grid is None:
        missing = "gpu" if gpu is None else "grid"
        raise UsageError(
            f"advise({name}): {missing} is missing", None, None, 'give it as in advise(kernel, grid=(64,), args=(x, n), gpu="H100")'
        )
    _check_call(kernel, args, keywords)
    recording = Recording()
    try:
        recording.add(kernel, grid, args, keywords)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UsageError(
            f"advise({name}): the call cannot be read", str(error), "the arguments of a launch", "correct args and keywords"
        ) from None

    def regrid(values: Mapping[str, int]) -> tuple[int, ...]:
        named = dict(zip(inspect.signature(_function(kernel)).parameters, args, strict=False))
        return tuple(grid({**named, **keywords, **values}))

    return recording.advise(gpu=gpu, cache=cache, try_for=try_for, regrid=regrid if callable(grid) else None)


def _check_call(kernel: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Refuse a call that Triton would refuse: it lacks an argument, or has one that the kernel and its launch do not know.

    Raises:
        UsageError: It is one.
    """
    function = _function(kernel)
    parameters = inspect.signature(function).parameters
    given = {*list(parameters)[: len(args)], *keywords}
    while not inspect.isfunction(kernel) and hasattr(kernel, "fn"):
        given |= {name for item in getattr(kernel, "configs", None) or () for name in item.all_kwargs()}
        given |= set(getattr(kernel, "values", None) or ()) if isinstance(getattr(kernel, "values", None), Mapping) else set()
        kernel = kernel.fn
    missing = [name for name, parameter in parameters.items() if parameter.default is inspect.Parameter.empty and name not in given]
    unknown = [name for name in keywords if name not in parameters and name not in LAUNCH_KEYWORDS]
    for what, names in (("lacks", missing), ("does not take", unknown)):
        if names:
            raise UsageError(
                f"advise({function.__name__}): the call {what} {', '.join(names)}",
                None,
                f"what {function.__name__} takes: {', '.join(parameters)}",
                "give the arguments of the launch as it is written",
            )


@contextmanager
def record() -> Iterator[Recording]:
    """Within it every Triton launch is written down; it runs only where a tensor of it lies on a GPU.

    So tensors of torch's `meta` device do, and nothing need exist::

        with advisor.record() as recording:
            kernel[grid](x, y, n, BLOCK=1024)
        recording.advise(gpu="H100")

    >>> import advisor
    >>> with advisor.record() as recording:
    ...     pass  # kernel[grid](x, y, n, BLOCK=1024)
    >>> type(recording).__name__
    'Recording'
    """
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    recording, inside = Recording(), False
    originals = {kind: kind.run for kind in (Autotuner, Heuristics, JITFunction)}

    def recorded(original: Any) -> Any:
        def run(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **keywords: Any) -> Any:
            nonlocal inside
            outermost, inside = not inside, True
            try:
                if outermost and not warmup:
                    recording.add(kernel, grid, args, keywords)
                if not outermost or any(_on_gpu(value) for value in (*args, *keywords.values())):
                    return original(kernel, *args, grid=grid, warmup=warmup, **keywords)
            finally:
                inside = inside and not outermost
            return None

        return run

    try:
        for kind, original in originals.items():
            kind.run = recorded(original)  # type: ignore[method-assign]
        yield recording
    finally:
        for kind, original in originals.items():
            kind.run = original  # type: ignore[method-assign]


def _on_gpu(value: Any) -> bool:
    return getattr(getattr(value, "device", None), "type", "cpu") not in ("cpu", "meta")
