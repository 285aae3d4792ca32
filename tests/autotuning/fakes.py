"""A driver without a GPU, and kernels without a compiler, for everything around measuring."""

from __future__ import annotations

import inspect
import time
from types import SimpleNamespace
from typing import Any


class Event:
    """A CUDA event on the CPU's clock; the GPU is busy until `busy_until`."""

    busy_until = 0.0

    def __init__(self, enable_timing: bool = True) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

    def query(self) -> bool:
        return time.perf_counter() >= Event.busy_until

    def elapsed_time(self, other: Event) -> float:
        return 1e3 * (other.at - self.at) + 1e-6


class FakeDriver:
    """What Triton and the tuner ask of a driver. `name` is the GPU it passes for."""

    def __init__(self, name: str = "NVIDIA H200", arch: int = 90) -> None:
        from triton.backends.compiler import GPUTarget

        self.name = name
        self.target = GPUTarget("cuda", arch, 32)

    def get_device_name(self) -> str:
        return self.name

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_interface(self) -> Any:
        return SimpleNamespace(Event=Event, synchronize=lambda: None)

    def get_empty_cache_for_benchmark(self) -> None:
        return None

    def clear_cache(self, cache: Any) -> None:
        return None

    def get_benchmarker(self) -> Any:
        from triton.testing import do_bench

        return lambda call, quantiles: do_bench(call, quantiles=quantiles, warmup=1, rep=1)


class FakeKernel:
    """Stands for a jitted function: `run` calls a plain function with the launch's arguments by name."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.__name__ = fn.__name__
        self.arg_names = list(inspect.signature(fn).parameters)
        self.launches: list[dict[str, Any]] = []

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        options = {name: kwargs.pop(name, None) for name in ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")}
        named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        self.launches.append({**named, **{k: v for k, v in options.items() if v is not None}})
        return self.fn(**{name: value for name, value in named.items() if name in self.arg_names})

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)


class Bench:
    """A `do_bench` that runs once and gives latencies in milliseconds from a function of the last launch.

    `measured` holds the launches in order, `repeated` those that were measured again straight away, in rounds.
    """

    def __init__(self, kernel: FakeKernel, latency_ms: Any) -> None:
        self.kernel = kernel
        self.latency_ms = latency_ms
        self.measured: list[dict[str, Any]] = []
        self.repeated: list[dict[str, Any]] = []

    def __call__(self, call: Any, quantiles: Any = None) -> list[float]:
        call()
        launch = self.kernel.launches[-1]
        (self.repeated if any(each == launch for each in self.measured) else self.measured).append(launch)
        median = self.latency_ms(launch)
        return [median, median, median]


class Tensor:
    """As much of a tensor as a key needs."""

    def __init__(self, dtype: str = "torch.bfloat16", shape: tuple[int, ...] = (1,)) -> None:
        self.dtype = dtype
        self.shape = shape
