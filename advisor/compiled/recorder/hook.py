"""Runs inside the recorded program: writes every Triton launch to a JSON Lines file. Needs the standard library only.

It looks at the arguments and changes nothing: a launch is written down before it runs, whatever goes wrong with that stays in here, and
each line is written whole by one `write`, so that a crash of the program loses nothing that came before, nor the launch that it is of.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import hashlib
import importlib.machinery
import inspect
import json
import linecache
import os
import sys
import threading
import time
from typing import Any

FORMAT = "triton-advisor launches 1"
MAX_CONTENT = 65_536
MAX_SOURCE_BYTES = 4_000_000
MAX_DISTINCT = 20_000
TIMED = 20

TYPES = {f"{kind}{bits}": f"{short}{bits}" for kind, short in (("int", "i"), ("uint", "u")) for bits in (8, 16, 32, 64)}
TYPES |= {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "bool": "i1"}
TYPES |= {"float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5", "float8_e4m3fnuz": "fp8e4b8", "float8_e5m2fnuz": "fp8e5b16"}
TORCH_NAMES = {name: kind for kind, name in TYPES.items()}
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim", "kpack")


class Recorder:
    """The state of one process."""

    def __init__(self, path: str, contents: str, first: int = 0) -> None:
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.contents = {part.strip() for part in contents.split(",") if part.strip()}
        self.lock = threading.Lock()
        self.sources: dict[str, str] = {}
        self.launches: dict[str, dict[str, Any]] = {}
        self.tuning = threading.local()
        self.process = process_name()
        self.complaints = 0
        self.said: set[tuple[str, str]] = set()
        self.path, self.incomplete = path, False
        self.full = False
        self.first, self.kept = first, dict[int, int]()  # of each kernel at most so many distinct launches that are no trials; 0: all

    def write(self, value: dict[str, Any]) -> None:
        """Append one line; what cannot be written is said once, for the program goes on."""
        line = (json.dumps(value, ensure_ascii=True, allow_nan=True) + "\n").encode()
        try:
            if os.write(self.descriptor, line) < len(line):  # so it ends on a full disk
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            if not self.incomplete:
                self.incomplete = True
                print(
                    f"advisor: warning: {self.path}: cannot be written ({error.strerror}), and launches are missing from it; make room, "
                    "then record again",
                    file=sys.stderr,
                )
            raise

    def start(self) -> None:
        """The first line of a process."""
        versions = {}
        for name in ("triton", "torch"):
            module = sys.modules.get(name)
            if module is not None:
                versions[name] = str(getattr(module, "__version__", ""))
        self.write({"format": FORMAT, "process": self.process, "versions": versions, "argv": list(getattr(sys, "argv", []))[:20]})

    def source(self, function: Any) -> str | None:
        """Hash of the file, or the notebook's cell, a kernel stands in; its text is written the first time."""
        path = inspect.getsourcefile(function)
        if path is None:
            return None
        if path in self.sources:
            return self.sources[path]
        if os.path.isfile(path):  # noqa: PTH113 - as little as possible is imported here
            with open(path, encoding="utf-8", errors="surrogateescape") as stream:  # noqa: PTH123
                text = stream.read(MAX_SOURCE_BYTES)
        elif text := "".join(linecache.getlines(path)):  # what a cell uses may be imported in another
            modules = {name: value.__name__ for name, value in function.__globals__.items() if inspect.ismodule(value)}
            text = text.rstrip() + "\n" + "".join(f"import {module} as {name}\n" for name, module in modules.items())
        else:
            return None
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        self.sources[path] = digest
        self.write({"source": digest, "path": path, "text": text})
        return digest

    def passes(self, kernel: Any) -> bool:
        """Whether a launch is not looked at: enough of its kernel are kept, or a trial makes it over and over, where it is counted."""
        if not getattr(self.tuning, "depth", 0):
            return 0 < self.first <= self.kept.get(id(kernel), 0)
        if (known := getattr(self.tuning, "known", None)) is not None:
            known["count"] += 1
        return known is not None

    def record(self, kernel: Any, arguments: tuple, grid: Any, keywords: dict[str, Any]) -> dict[str, Any] | None:
        """Write down one launch, or count it where it was there before: then what is kept of it, which takes a few times."""
        function = getattr(kernel, "fn", kernel)
        signature = inspect.signature(function)
        own = {k: v for k, v in keywords.items() if k in signature.parameters}
        bound = signature.bind_partial(*arguments, **own)
        bound.apply_defaults()
        values = dict(bound.arguments)
        launch = describe(values, signature, self.contents, self.passed)
        for name, reason in launch.pop("dropped").items():
            self.say_dropped(function.__name__, name, reason)
        launch["options"] = {k: keywords[k] for k in OPTIONS if isinstance(keywords.get(k), int)}
        launch["grid"] = grid_of(grid, values)
        launch["kernel"] = function.__name__
        launch["line"] = function.__code__.co_firstlineno
        launch["source"] = self.source(function)
        launch["files"] = sorted({*self.helpers(function), *self.passed_files(values.values())} - {launch["source"]})
        launch["constants"] = constants_of(function)
        launch["interpreted"] = type(kernel).__name__ == "InterpretedFunction"
        launch["tuning"] = bool(getattr(self.tuning, "depth", 0))
        launch["device"] = device_name(values)
        key = hashlib.sha256(json.dumps(launch, sort_keys=True, default=str).encode()).hexdigest()[:16]
        with self.lock:
            known = self.launches.get(key)
            if known is None:
                if len(self.launches) >= MAX_DISTINCT:
                    if not self.full:
                        self.full = True
                        self.write({"problem": f"there are more than {MAX_DISTINCT:,} distinct launches: those after them are missing"})
                    return None
                known = self.launches[key] = {"count": 1, "timers": []}
                self.write({"launch": key, "process": self.process, **launch})
                self.tuning.known = known
                self.kept[id(kernel)] = self.kept.get(id(kernel), 0) + (not launch["tuning"])
                return None  # the first one compiles: its time is not the kernel's
            self.tuning.known = known
            known["count"] += 1
            if known["count"].bit_count() == 1:  # a program that a signal ends is counted half at least
                self.write({"count_of": key, "process": self.process, "count": known["count"]})
            return known

    def helpers(self, function: Any) -> list[str]:
        """Hashes of the other files that hold kernels this one may call."""
        found = set()
        for name in function.__code__.co_names:
            value = function.__globals__.get(name)
            if not is_jitted(value):
                continue
            inner = value.fn
            digest = self.source(inner) if inner.__code__.co_filename != function.__code__.co_filename else None
            if digest:
                found.add(digest)
        return sorted(found)

    def passed(self, value: Any) -> dict[str, Any] | None:
        """A function that a kernel is given as a constant: where it stands, or its name in Triton's language; None: it is no jitted one."""
        name = getattr(getattr(value, "fn", value), "__name__", None)
        language = sys.modules.get("triton.language")
        if callable(value) and isinstance(name, str) and getattr(language, name, None) is value and not isinstance(value, type):
            return {"language": name}
        digest = self.source(value.fn) if is_jitted(value) else None
        return {"function": name, "source": digest} if digest is not None else None

    def passed_files(self, values: Any) -> set[str]:
        """Hashes of the files that hold the jitted functions among values, and the kernels that these may call."""
        found: set[str] = set()
        for value in values:
            if isinstance(value, (list, tuple)):
                found |= self.passed_files(value)
            elif (told := self.passed(value)) is not None and "source" in told:
                found |= {told["source"], *self.helpers(value.fn)}
        return found

    def finish(self, wait: bool = True) -> None:
        """Counts and times, when the program ends; without waiting for the GPU, only what it has done by now."""
        if not self.lock.acquire(timeout=-1 if wait else 1.0):
            return
        try:
            for key, known in self.launches.items():
                times: dict[str, list[float]] = {"times_us": [], "at_most_us": []}
                timers, known["timers"] = known["timers"], []
                for begin, end, waited in timers:
                    with contextlib.suppress(Exception):
                        if wait:
                            end.synchronize()
                        elif not end.query():
                            continue
                        times["at_most_us" if waited else "times_us"].append(1000.0 * begin.elapsed_time(end))
                line = {"count_of": key, "process": self.process, "count": known["count"]}
                line |= {name: values for name, values in times.items() if values}
                if known["count"]:
                    with contextlib.suppress(OSError):
                        self.write(line)
        finally:
            self.lock.release()

    def forked(self) -> None:
        """In a child that shares what is written down so far: it counts for itself, and the parent's times are not its own."""
        self.lock, self.process = threading.Lock(), process_name()
        for known in self.launches.values():
            known["count"], known["timers"] = 0, []

    def say_dropped(self, kernel: str, name: str, reason: str) -> None:
        """Say, once for each argument, that its contents were asked for in vain."""
        with self.lock:
            if (kernel, name) in self.said:
                return
            self.said.add((kernel, name))
            self.write({"problem": f"{kernel}: what {name} holds is not recorded: {reason}"})

    def complain(self, error: BaseException) -> None:
        """Say once that something could not be written down."""
        self.complaints += 1
        if self.complaints == 1:
            with contextlib.suppress(Exception):
                self.write({"problem": f"{type(error).__name__}: {error}"[:300]})


def process_name() -> str:
    """What no other process is called, nor the program that this one becomes by `exec`, which keeps its number."""
    return f"{os.getpid()}-{time.time_ns()}"


def ends(recorder: Recorder, original: Any) -> Any:
    """`os._exit` and `os.exec…`, at which Python calls nothing that was registered; a watchdog must not wait for the GPU there."""

    def end(*arguments: Any, **keywords: Any) -> Any:
        with contextlib.suppress(Exception):
            recorder.finish(wait=False)
        return original(*arguments, **keywords)

    end.__name__, end.__doc__ = original.__name__, original.__doc__
    return end


def is_jitted(value: Any) -> bool:
    """Whether it is a function of `@triton.jit` (or what stands for one), with the Python function in it."""
    kinds = ("JITFunction", "InterpretedFunction", "ConstexprFunction")
    return type(value).__name__ in kinds and inspect.isfunction(getattr(value, "fn", None))


def describe(values: dict[str, Any], signature: inspect.Signature, wanted: set[str], passed: Any = None) -> dict[str, Any]:
    """Types, constants, numbers and tensors of a launch; under `dropped`, why contents that were asked for are not among them.

    `passed` tells where a function among the constants stands.
    """
    types: dict[str, str] = {}
    constants: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    tensors: dict[str, Any] = {}
    contents: dict[str, Any] = {}
    dropped: dict[str, Any] = {}
    for name, value in values.items():
        annotation = signature.parameters[name].annotation
        text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
        if "constexpr" in text:
            types[name], constants[name] = "constexpr", plain(value, passed)
        elif value is None:
            types[name], constants[name] = "constexpr", None
        elif hasattr(value, "data_ptr") and hasattr(value, "dtype"):
            types[name] = "*" + element(value.dtype)
            tensors[name] = tensor(value)
            if (name in wanted or "all" in wanted) and types[name][1] in "iu":
                content = content_of(value)
                (contents if isinstance(content, list) else dropped)[name] = content
        elif hasattr(value, "base") and hasattr(value, "block_shape"):  # a tensor descriptor
            base = value.base
            types[name] = f"tensordesc<{element(base.dtype)}[{','.join(str(int(n)) for n in value.block_shape)}]>"
            tensors[name] = {**tensor(base), **view(value)}
        elif isinstance(value, bool):
            types[name], numbers[name] = "i1", value
        elif isinstance(value, int):
            types[name] = "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"
            numbers[name] = value
        elif isinstance(value, float):
            types[name], numbers[name] = "fp32", value
        else:
            types[name], constants[name] = "constexpr", plain(value, passed)
    note_same(values, tensors)
    return {"signature": types, "constexprs": constants, "arguments": numbers, "tensors": tensors, "contents": contents, "dropped": dropped}


def note_same(values: dict[str, Any], tensors: dict[str, Any]) -> None:
    """Say of a tensor that is passed twice (`kernel[grid](x, x)`) which argument it is as well: what both touch is there once."""
    first: dict[str, str] = {}
    for name, said in tensors.items():
        if hasattr(values[name], "data_ptr") and (address := int(values[name].data_ptr())):
            same = first.setdefault(json.dumps([address, said["dtype"], said["shape"], said["strides"]]), name)
            if same != name:
                said["same_as"] = same


def element(dtype: Any) -> str:
    """Triton's name of an element type of torch, or of Triton itself (`triton.reinterpret`)."""
    name = str(dtype).split(".")[-1]
    if name in TORCH_NAMES:
        return name
    if name not in TYPES:
        raise ValueError(f"a tensor of type {name}: not recorded, and so the launch is not")
    return TYPES[name]


def tensor(value: Any) -> dict[str, Any]:
    """Shape, strides and alignment of a tensor."""
    return {
        "shape": [int(n) for n in value.shape],
        "strides": [int(n) for n in value.stride()],
        "dtype": TORCH_NAMES[element(value.dtype)],
        "aligned": int(value.data_ptr()) % 16 == 0,
    }


def view(descriptor: Any) -> dict[str, Any]:
    """How a tensor descriptor sees its tensor; what Triton's version has no word for is left out."""
    found: dict[str, Any] = {f"descriptor_{name}": [int(n) for n in getattr(descriptor, name)] for name in ("shape", "strides")}
    if isinstance(getattr(descriptor, "padding", None), str):
        found["descriptor_padding"] = descriptor.padding
    if isinstance(getattr(descriptor, "round_f32_to_tf32", None), bool):
        found["descriptor_round_f32_to_tf32"] = descriptor.round_f32_to_tf32
    return found


def content_of(value: Any) -> list | str:
    """What a small integer tensor holds, or why that is not written down."""
    if int(value.numel()) > MAX_CONTENT:
        return f"it has {int(value.numel())} elements, and at most {MAX_CONTENT} are"
    if capturing():
        return "a CUDA graph was being captured"
    if tuple(value.stride()) != tuple(value.contiguous().stride()):
        return "its strides leave gaps"
    return value.detach().cpu().reshape(-1).tolist()


def plain(value: Any, passed: Any = None) -> Any:
    """A constant as JSON: types of triton as {"dtype": name}, functions as `passed` tells."""
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return {"tuple": [plain(v, passed) for v in value]}
    if type(value).__name__ == "dtype" and type(value).__module__.startswith("triton"):
        return {"dtype": str(getattr(value, "name", value))}
    told = passed(value) if passed is not None else None
    return told if told is not None else {"unknown": type(value).__name__}


def constants_of(function: Any) -> dict[str, Any]:
    """Values of the globals a kernel reads, where they are constants."""
    found = {}
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, (bool, int, float, str)) or type(value).__name__ == "constexpr":
            inner = plain(value)
            if not isinstance(inner, dict):
                found[name] = inner
    return found


def grid_of(grid: Any, values: dict[str, Any]) -> list[int]:
    """The programs along each axis."""
    found = grid(values) if callable(grid) else grid
    found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    return [int(n) for n in found]


def device_name(values: dict[str, Any]) -> str | None:
    """The GPU the first tensor lies on."""
    for value in values.values():
        device = getattr(value, "device", None)
        if device is not None and getattr(device, "type", "") == "cuda":
            torch = sys.modules.get("torch")
            return str(torch.cuda.get_device_name(device)) if torch is not None else None
        if device is not None:
            return None
    return None


def capturing() -> bool:
    """Whether a CUDA graph is being captured: nothing may synchronise then."""
    torch = sys.modules.get("torch")
    with contextlib.suppress(Exception):
        return bool(torch is not None and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())
    return False


def timer_pair() -> Any:
    """Two events around a launch, or None where there is no GPU."""
    torch = sys.modules.get("torch")
    with contextlib.suppress(Exception):
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized() and not capturing():
            return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    return None


def wrap_run(recorder: Recorder, original: Any) -> Any:
    """`JITFunction.run` or `InterpretedFunction.run` with a look at what was launched."""

    def run(self: Any, *arguments: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
        known = None
        if warmup or recorder.passes(self):
            return original(self, *arguments, grid=grid, warmup=warmup, **keywords)
        try:
            known = recorder.record(self, arguments, grid, dict(keywords))
        except Exception as error:
            recorder.complain(error)
        timer = timer_pair()
        if timer is not None:
            timer[0].record()
        result = original(self, *arguments, grid=grid, warmup=warmup, **keywords)
        if timer is not None and known is not None and len(known["timers"]) < TIMED:
            with contextlib.suppress(Exception):
                # Where the GPU had come to the first event before the kernel was enqueued, it then waited for the launch from Python.
                waited = timer[0].query()
                timer[1].record()
                with recorder.lock:
                    known["timers"].append((*timer, waited))
        return result

    run.__name__, run.__doc__ = original.__name__, original.__doc__
    return run


def wrap_bench(recorder: Recorder, original: Any) -> Any:
    """`Autotuner._bench`, and what `@advisor.autotune` measures and checks in: what runs inside is a trial."""

    def bench(self: Any, *arguments: Any, **keywords: Any) -> Any:
        recorder.tuning.depth = getattr(recorder.tuning, "depth", 0) + 1
        recorder.tuning.known = None  # the launch of this trial, once it is written down
        try:
            return original(self, *arguments, **keywords)
        finally:
            recorder.tuning.depth -= 1
            recorder.tuning.known = None

    return bench


PATCHES = {
    "triton.runtime.jit": ("JITFunction", ("run",), wrap_run),
    "triton.runtime.interpreter": ("InterpretedFunction", ("run",), wrap_run),
    "triton.runtime.autotuner": ("Autotuner", ("_bench",), wrap_bench),
    "advisor.autotuning.measuring": ("Session", ("measure", "rounds", "_bench"), wrap_bench),
}


class Finder:
    """Lets the ordinary finders load the modules, and patches them once they are there."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        loader, recorder = spec.loader, self.recorder
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            patch(recorder, name, module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def patch(recorder: Recorder, name: str, module: Any) -> None:
    """Replace the methods of one class."""
    owner, methods, wrap = PATCHES[name]
    kind = getattr(module, owner, None)
    for method in methods:
        if kind is None or not hasattr(kind, method):
            continue
        setattr(kind, method, wrap(recorder, getattr(kind, method)))
        if name == "triton.runtime.jit":
            with contextlib.suppress(OSError):
                recorder.start()


def install() -> None:
    """Start recording in this process."""
    first = os.environ.get("ADVISOR_RECORD_FIRST", "")
    recorder = Recorder(os.environ["ADVISOR_RECORD"], os.environ.get("ADVISOR_RECORD_CONTENTS", ""), int(first) if first.isdigit() else 0)
    sys.meta_path.insert(0, Finder(recorder))  # type: ignore[arg-type]
    for name in PATCHES:
        if name in sys.modules:
            patch(recorder, name, sys.modules[name])
    atexit.register(recorder.finish)
    for name in ("_exit", "execv", "execve"):
        setattr(os, name, ends(recorder, getattr(os, name)))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=recorder.forked)
