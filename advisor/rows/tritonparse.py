"""Logs of TritonParse (0.6: NDJSON, an event a line) as the lines of a launch record.

`compilation` events hold a kernel's own source and where it stands; `launch` events hold the grid, every argument and the options. What the
log does not hold is read from the kernel's file where that lies on this machine as it was, and asked for elsewhere.
"""

from __future__ import annotations

import builtins
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from advisor.python_source.jit_function import JitFunction
from advisor.python_source.kernel_forms import free_names
from advisor.python_source.source import SourceFile, parse_source
from advisor.system.errors import AdvisorError

SHORT = {"float": "fp", "bfloat": "bf", "int": "i", "uint": "u"}
FLOAT8 = {"float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5", "float8_e4m3fnuz": "fp8e4b8", "float8_e5m2fnuz": "fp8e5b16", "bool": "i1"}
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim", "kpack")
TRIALS = {"_bench", "do_bench", "do_bench_cudagraph"}
"""Functions in the stack of a launch that is a trial of an autotuner."""


def is_tritonparse(line: str) -> bool:
    """Whether a file's first line is an event of TritonParse."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and "event_type" in event and "pid" in event


def as_record(lines: Iterable[str], first: str) -> Iterator[str]:
    """The lines of a launch record, `first` first: sources, versions, launches with their counts, and what is missing."""
    yield first
    kernels: dict[str, dict[str, Any]] = {}
    launches: list[dict[str, Any]] = []
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            yield line  # the reading of the record says so
            continue
        kind = event.get("event_type") if isinstance(event, dict) else None
        payload = event.get("payload") if kind == "compilation" else None
        if isinstance(payload, dict) and isinstance(payload.get("metadata"), dict):
            kernels[str(payload["metadata"].get("hash"))] = payload
        elif kind == "launch":
            launches.append(event)
    if not launches:
        yield _problem(
            "the log holds compilations and no launch, whose grid and arguments a prediction needs: set TRITON_TRACE_LAUNCH=1 "
            "(tritonparse.structured_logging.init(…, enable_trace_launch=True)) and record again"
        )
    counts: dict[str, int] = {}
    written: set[str] = set()
    for event in launches:
        name, metadata = str(event.get("name")), event.get("compilation_metadata") or {}
        compiled = kernels.get(str(metadata.get("hash")), {})
        source = compiled.get("python_source") or {}
        if not source.get("code"):
            yield _problem(f"{name}: its source is not in the log, for it was compiled before; clear Triton's cache and record again")
            continue
        try:
            path, text = str(source.get("file_path", "kernel.py")), _text(source)
            file = parse_source(text, path)
            kernel = file.kernel(name)
            launch = _launch(event, metadata, source, kernel.constants)
            missing = ", ".join(_missing(file, kernel))
        except (KeyError, TypeError, ValueError, AttributeError, AdvisorError) as error:
            yield _problem(f"{name}: a launch is left out ({type(error).__name__}: {error})")
            continue
        if missing:
            yield _problem(f"{name} calls {missing}, and the log holds a kernel without what it calls; run this where {path} is as it was")
            continue
        digest = launch["source"] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if digest not in written:
            written.add(digest)
            yield json.dumps({"source": digest, "path": path, "text": text})
            yield json.dumps({"versions": {"triton": str(metadata.get("triton_version", ""))}})
        key = hashlib.sha256(json.dumps(launch, sort_keys=True).encode()).hexdigest()[:16]
        counts[key] = counts.get(key, 0) + 1
        if counts[key] == 1:
            yield json.dumps({"launch": key, **launch})
    for key, count in counts.items():
        yield json.dumps({"count_of": key, "count": count})


def _problem(text: str) -> str:
    return json.dumps({"problem": text})


def _launch(event: Mapping[str, Any], metadata: Mapping[str, Any], source: Mapping[str, Any], constant: Set[str]) -> dict[str, Any]:
    """A launch as `advisor record` writes it, but for its source; `constant`: the parameters that are constants by their annotation.

    Raises:
        ValueError: Its arguments were not written down (a CUDA graph was being captured), or one has a type that Triton has no word for.
    """
    given = event.get("extracted_args") or {}
    if not given or "_note" in given:
        raise ValueError(f"its arguments were not written down: {given.get('_note', 'none is there')}")
    types: dict[str, str] = {}
    constants: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    tensors: dict[str, Any] = {}
    for name, value in given.items():
        kind = value["type"]
        if kind == "tensor":
            types[name], tensors[name] = "*" + _element(value["dtype"]), _tensor(value)
        elif kind == "TensorDescriptor":
            block = ",".join(str(int(size)) for size in value["block_shape"])
            types[name] = f"tensordesc<{_element(value['base']['dtype'])}[{block}]>"
            tensors[name] = _tensor(value["base"]) | {"descriptor_shape": value["shape"], "descriptor_strides": value["strides"]}
        elif name in constant or kind not in ("int", "float", "bool"):
            types[name], constants[name] = "constexpr", _constant(kind, value)
        elif kind == "int":
            number = numbers[name] = value["value"]
            types[name] = "i32" if -(2**31) <= number < 2**31 else "i64" if number < 2**63 else "u64"
        else:
            types[name], numbers[name] = "fp32" if kind == "float" else "i1", value["value"]
    grid = event["grid"]
    stack = event.get("stack") or ()
    return {
        "kernel": event["name"],
        "line": int(source.get("start_line", 0)),
        "signature": types,
        "constexprs": constants,
        "arguments": numbers,
        "tensors": tensors,
        "options": {name: metadata[name] for name in OPTIONS if isinstance(metadata.get(name), int)},
        "grid": [int(size) for size in (grid if isinstance(grid, list) else [grid])],
        "tuning": any(isinstance(frame, dict) and frame.get("name") in TRIALS for frame in stack),
    }


def _constant(kind: str, value: Mapping[str, Any]) -> Any:
    if kind == "NoneType":
        return None
    if "value" in value:
        return value["value"]
    return {"dtype": value["repr"]} if kind == "dtype" else {"unknown": kind}


def _tensor(value: Mapping[str, Any]) -> dict[str, Any]:
    """Shape, strides, type and alignment of a tensor; an address that is not given is taken as aligned, as torch's are."""
    return {
        "shape": list(value["shape"]),
        "strides": list(value["stride"]),
        "dtype": value["dtype"].removeprefix("torch."),
        "aligned": int(str(value.get("data_ptr", "0")), 0) % 16 == 0,
    }


def _element(dtype: str) -> str:
    """`fp16` of `torch.float16`."""
    name = dtype.removeprefix("torch.")
    word = name.rstrip("0123456789")
    if name not in FLOAT8 and word not in SHORT:
        raise ValueError(f"a tensor of type {name}")
    return FLOAT8.get(name) or SHORT[word] + name[len(word) :]


def _text(source: Mapping[str, Any]) -> str:
    """The kernel's file where it still holds the kernel; else the kernel alone, on its lines."""
    code, path = str(source["code"]), Path(str(source.get("file_path", "")))
    try:
        text = path.read_text(encoding="utf-8")
        if code.strip() in text:
            return text
    except (OSError, ValueError):
        pass
    head = ["import triton", "import triton.language as tl"]
    return "\n".join([*head, *[""] * (int(source.get("start_line", 0)) - 1 - len(head)), code])


def _missing(source: SourceFile, kernel: JitFunction) -> list[str]:
    """Names that a kernel reads and that its file gives nothing."""
    names = free_names(kernel.node).keys() - set(dir(builtins))
    return sorted(name for name in names if not source.module_names.statements(name))
