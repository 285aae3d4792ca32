"""Everything that depends on Triton's internals, and so on its version (3.6 to 3.9): nothing else in the package looks inside it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from advisor.system.errors import NoGpuError

INTERPRETER = "interpreter"
NO_GPU = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The device a kernel would run on. `name` is the GPU model as CUDA prints it, or its architecture where nobody knows the name."""

    name: str
    target: str  # "cuda:90"

    @property
    def runs(self) -> bool:
        """Whether there is a GPU (or something that passes for one)."""
        return self.name not in (INTERPRETER, NO_GPU)


def triton_version() -> str:
    """`3.9.0`."""
    import triton

    return str(triton.__version__)


def is_interpreted() -> bool:
    """Whether kernels run in Triton's interpreter."""
    from triton import knobs

    return bool(knobs.runtime.interpret)


def jitted(fn: Any) -> Any:
    """The `JITFunction` (or the interpreter's stand-in) below heuristics and other wrappers."""
    while not inspect.isfunction(getattr(fn, "fn", None)) and hasattr(fn, "fn"):
        fn = fn.fn
    return fn


def heuristics_below(fn: Any) -> dict[str, Any]:
    """The functions of `@triton.heuristics` between a tuner and the kernel, by name; the first called of each name."""
    heuristics: dict[str, Any] = {}
    while not inspect.isfunction(getattr(fn, "fn", None)) and hasattr(fn, "fn"):
        values = getattr(fn, "values", None)
        if isinstance(values, Mapping):
            heuristics |= {str(name): function for name, function in values.items() if name not in heuristics}
        fn = fn.fn
    return heuristics


def active_driver() -> Any:
    """Triton's driver, or None where there is none."""
    from triton.runtime.driver import driver

    try:
        return driver.active
    except Exception:  # "0 active drivers": the type differs between versions
        return None


def has_started() -> bool:
    """Whether Triton's driver runs in this process, so that asking for it costs nothing."""
    from triton.runtime.driver import driver

    return getattr(driver, "_active", None) is not None


class NoDriverError(NoGpuError, RuntimeError):
    """No kernel can be launched in this process. Triton raises a RuntimeError there, which whoever catches it goes on doing."""


def need_driver(kernel: Any) -> None:
    """Raises what says that a kernel cannot be launched here, and what can be done all the same.

    Raises:
        NoDriverError: Triton has no driver, and does not interpret.
    """
    from triton.runtime.driver import driver

    if is_interpreted():
        return
    try:
        driver.active  # noqa: B018 (looks for one)
    except Exception as error:  # as in `active_driver`
        raise NoDriverError(
            f"{getattr(kernel, '__name__', 'kernel')} cannot be launched: Triton finds no GPU that it has a driver for",
            str(error),
            "a GPU, its driver, and a torch that sees it (torch.cuda.is_available())",
            "TRITON_INTERPRET=1 runs kernels without; for other GPUs use advisor.best_config(…, gpu=NAME) or "
            "`advisor advise FILE.py::KERNEL --gpu NAME`",
        ) from error


def current_device() -> Device:
    """The device a launch would go to now."""
    driver = active_driver()
    if driver is None or is_interpreted():
        return Device(name=INTERPRETER if is_interpreted() else NO_GPU, target=INTERPRETER if is_interpreted() else NO_GPU)
    target = driver.get_current_target()
    text = f"{target.backend}:{target.arch}"
    return Device(name=_device_name(driver) or text, target=text)


def _device_name(driver: Any) -> str | None:
    name_of = getattr(driver, "get_device_name", None)  # no driver of Triton's has it; fakes do
    if name_of is not None:
        return str(name_of())
    torch = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_available():
            return str(torch.cuda.get_device_name(driver.get_current_device()))
    except Exception:  # a driver that is not CUDA's
        return None
    return None


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured on the current stream: nothing may be measured then."""
    torch = sys.modules.get("torch")
    try:
        return torch is not None and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
    except Exception:
        return False


RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED (CUDA driver API, stream management): the thread may do what a capture otherwise forbids."""


@contextlib.contextmanager
def loading_while_capturing() -> Iterator[None]:
    """Lets this thread load a kernel that no launch has loaded yet while a CUDA graph is captured; else the driver ends the capture."""
    exchange = _capture_mode_exchange() if is_capturing() else None
    if exchange is None:
        yield
        return
    mode = ctypes.c_int(RELAXED)
    exchange(ctypes.byref(mode))  # leaves there what it was
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


def _capture_mode_exchange() -> Any:
    """The driver's function that swaps the thread's capture mode; None where there is no CUDA driver."""
    try:
        return ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        return None


def _device_interface() -> Any:
    """The active driver's interface to its device (torch.cuda), or None: where nothing runs asynchronously, or the driver has none."""
    driver = None if is_interpreted() else active_driver()
    interface = getattr(driver, "get_device_interface", None)  # drivers outside Triton's own need not have one
    return interface() if interface is not None else None


def synchronizer() -> Callable[[], None] | None:
    """A function that waits for the GPU; None where nothing runs asynchronously."""
    return getattr(_device_interface(), "synchronize", None)


def event_maker() -> Callable[[], Any] | None:
    """A function that makes an event to record on the current stream and to ask whether it has passed; None where there is none."""
    event = getattr(_device_interface(), "Event", None)
    return event if hasattr(event, "query") else None


def clock_reader() -> Callable[[], float | None]:
    """A function that reads the SM clock of the device in MHz, just after it was busy; it gives None where that cannot be read."""
    driver = active_driver()
    read = getattr(driver, "get_sm_clock_mhz", None)  # no driver of Triton's has it; fakes do
    if read is not None:
        return read
    torch = sys.modules.get("torch")
    try:
        if is_interpreted() or torch is None or not torch.cuda.is_available() or torch.version.cuda is None:
            return lambda: None
        return _monitor(f"GPU-{torch.cuda.get_device_properties(driver.get_current_device()).uuid}").sm_clock_mhz
    except Exception:  # a driver that is not CUDA's, or a torch that does not say which GPU it is
        return lambda: None


@functools.lru_cache(maxsize=8)
def _monitor(uuid: str) -> Any:
    from advisor.measurement.devices.nvml import Monitor

    return Monitor(uuid)


def listener() -> Any:
    """`triton.knobs.autotuning.listener` (from 3.7 on), or None."""
    from triton import knobs

    return getattr(knobs.autotuning, "listener", None)


def prints() -> bool:
    """Whether TRITON_PRINT_AUTOTUNING asks for a word."""
    from triton import knobs

    return bool(knobs.autotuning.print)


def one_run(call: Callable[[], Any], quantiles: Sequence[float]) -> list[float]:
    """A benchmark for what runs on the CPU, in milliseconds: one run, which is every quantile."""
    start = time.perf_counter()
    call()
    return [1e3 * (time.perf_counter() - start)] * len(quantiles)


WARMUP_MS, REP_MS, MOST_REP_MS, RUNS = 3.0, 15.0, 100.0, 5
"""How long `triton.testing.do_bench` warms up and measures for us, in place of its 25 and 100 ms, and the runs that are to fit into it:
what lies near the best is measured again, alternately, and several short measurements tell configurations apart better than a long one on a
GPU whose clock moves."""


def shortened(bench: Callable[..., Any], expected_us: float | None) -> Callable[..., Any]:
    """A benchmark that measures for a shorter time, where it is Triton's own; else the same. `expected_us`: of one run, where known."""
    from triton.testing import do_bench

    if bench is not do_bench:
        return bench
    return functools.partial(do_bench, warmup=WARMUP_MS, rep=min(max(REP_MS, RUNS * (expected_us or 0.0) / 1e3), MOST_REP_MS))


def environment() -> str:
    """The environment variables that change what Triton compiles, as text."""
    from triton._C.libtriton import get_cache_invalidating_env_vars

    variables = get_cache_invalidating_env_vars()
    return str(sorted(variables.items())) if variables else ""


class _Recording:
    """An executor as `AsyncCompileMode` wants it, which remembers what it was given.

    What is compiled first is loaded at once, while others compile: for the first launch of a signature Triton 3.6 runs a C compiler.
    """

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.pool = pool
        self.futures: list[Future] = []
        self.driver = active_driver()
        self.device = self.driver.get_current_device()

    def submit(self, work: Callable[[], Any]) -> Future:
        future = self.pool.submit(work if self.futures else functools.partial(self._loaded, work))
        self.futures.append(future)
        return future

    def _loaded(self, work: Callable[[], Any]) -> Any:
        compiled = work()
        with contextlib.suppress(Exception):  # the launch says it
            if self.driver.get_current_device() == self.device:  # each thread has its own
                compiled.run  # noqa: B018 (makes its launcher)
        return compiled


def workers() -> int:
    """The number of kernels compiled at once."""
    return min(max(1, (os.cpu_count() or 2) - 1), 16)


def compile_ahead(fn: Any, launches: Sequence[tuple[tuple, dict[str, Any]]], workers: int) -> list[Exception | None]:
    """Compiles launches in threads (the compiler leaves Python's lock); the exception of each that failed, else None.

    Compiled kernels land where the launch looks for them. `launches`: positional and keyword arguments (with the grid) of each.
    """
    failed: list[Exception | None] = [None] * len(launches)
    if is_interpreted() or active_driver() is None or not hasattr(fn, "warmup"):
        return failed
    from triton.runtime._async_compile import AsyncCompileMode

    owner: dict[int, int] = {}
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="advisor-compile") as pool:
        recording = _Recording(pool)
        with contextlib.suppress(Exception), AsyncCompileMode(recording, ignore_errors=True):  # type: ignore[arg-type]
            for index, (args, kwargs) in enumerate(launches):
                before = len(recording.futures)
                try:
                    fn.warmup(*args, **kwargs)
                except Exception as error:
                    failed[index] = error
                owner.update((number, index) for number in range(before, len(recording.futures)))
    for number, index in owner.items():
        raised = recording.futures[number].exception()
        if isinstance(raised, Exception):
            failed[index] = raised
    return failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What the compiler is given of one launch. `key` tells those apart whose TTIR differs."""

    key: str
    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    make_ttir: Callable[[], str]


def sources_of(fn: Any, launches: Sequence[tuple[tuple, dict[str, Any]]]) -> list[Source | Exception]:
    """What the compiler would be given of launches, which are positional and keyword arguments; nothing is compiled or launched.

    An exception is what the binding of that launch raised.
    """
    function = jitted(fn)
    return [binding if isinstance(binding, Exception) else _source(function, *binding[1:]) for binding in _bound(fn, launches)]


def compiled(fn: Any, launches: Sequence[tuple[tuple, dict[str, Any]]]) -> frozenset[int]:
    """The places of the launches whose code this process has compiled."""
    caches = getattr(jitted(fn), "device_caches", None)
    if caches is None or is_interpreted() or (driver := active_driver()) is None or not caches:
        return frozenset()
    known = caches[driver.get_current_device()][0]
    return frozenset(
        place for place, binding in enumerate(_bound(fn, launches)) if not isinstance(binding, Exception) and binding[0] in known
    )


def _bound(fn: Any, launches: Sequence[tuple[tuple, dict[str, Any]]]) -> list[tuple[Any, ...] | Exception]:
    """For each launch the key of its code, signature, constants, options and attributes; or what binding it raised."""
    function = jitted(fn)
    do_compile, thread, caught = getattr(function, "_do_compile", None), threading.get_ident(), list[Any]()
    if do_compile is None or not hasattr(fn, "warmup"):
        return [TypeError("it is no jitted function")] * len(launches)

    def catch(key: Any, signature: Any, device: Any, constants: Any, options: Any, attributes: Any, warmup: bool) -> Any:
        if threading.get_ident() != thread:
            return do_compile(key, signature, device, constants, options, attributes, warmup)
        caught.append((key, signature, constants, options, attributes))
        return None

    bindings: list[tuple[Any, ...] | Exception] = []
    device_caches = function.device_caches
    function.device_caches = defaultdict(function.create_binder)  # what was compiled before is asked for too
    function._do_compile = catch
    try:
        for args, kwargs in launches:
            caught.clear()
            try:
                fn.warmup(*args, **kwargs)
                bindings.append(caught[0])
            except Exception as error:
                bindings.append(error)
    finally:
        del function._do_compile
        function.device_caches = device_caches
    return bindings


def _source(function: Any, signature: Any, constants: Any, options: Any, attributes: Any) -> Source:
    from triton.runtime.driver import driver

    target = driver.active.get_current_target()

    def make_ttir() -> str:
        from triton.compiler import ASTSource

        from advisor.compiled.compiler.frontend import ttir_of

        return ttir_of(ASTSource(function, signature, constants, attributes), target, dict(options.__dict__))

    named = {function.arg_names[path[0]]: value for path, value in constants.items() if len(path) == 1}
    key = f"{function.cache_key} {target} {signature} {sorted(named.items(), key=str)} {sorted(attributes.items())}"
    return Source(key=key, constants=named, options=dict(options.__dict__), make_ttir=make_ttir)


@contextlib.contextmanager
def bound_arguments(tuner: Any, args: tuple) -> Iterator[None]:
    """`tuner.nargs` as Triton sets it while it tunes: its hooks and pruning functions read it."""
    before = tuner.nargs
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    try:
        yield
    finally:
        tuner.nargs = before
