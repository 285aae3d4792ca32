"""`advisor.advise`: what the command of that name does for one target and one GPU, as a function."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.advising.targets import Request, routing_given
from advisor.advising.targets.resolve import is_code
from advisor.gpus.hardware import load_gpu
from advisor.result.schema import LAUNCH_OPTIONS, Result
from advisor.system.errors import UsageError

OF_A_KERNEL = {"constexprs": "--constexpr", "arguments": "--arg", "contents": "--content"}
"""Keywords that take values by name, and the option of the command that takes one of them."""
OF_A_MODEL = ("model", "hidden_size", "top_k", "tensor_parallel", "expert_parallel", "tokens")
"""What a `Request` says of tables and bundled kernels alone."""
OF_A_LAUNCH = (*OF_A_KERNEL, "signature", "element", "grid", "op", *LAUNCH_OPTIONS)


def advise(
    target: Any,
    *,
    args: Sequence[Any] = (),
    gpu: str | None = None,
    model: str | None = None,
    tokens: int | Iterable[int] | None = None,
    sizes: Mapping[str, int] | None = None,
    hidden_size: int | None = None,
    top_k: int | None = None,
    tensor_parallel: int | None = None,
    expert_parallel: int | None = None,
    dtype: str | None = None,
    routing: Sequence[int] | str | os.PathLike[str] | None = None,
    cache: str = "warm",
    measured: str | os.PathLike[str] | None = None,
    weights: str | os.PathLike[str] | None = None,
    try_for: float | None = None,
    **launch: Any,
) -> Result:
    """How fast each launch of a target could be, what holds it back, and what to run instead. Needs no GPU and runs nothing.

    Args:
        target: A live kernel (then `grid`, `args` and the launch's keywords are those of its call `kernel[grid](*args, **keywords)`, whose
            tensors may lie on torch's `meta` device), or a tuned table's file,
            a bundled kernel (`fused_moe`), `FILE.py::KERNEL`, or a record of `advisor record`.
        args: Of a live kernel: what it is called with.
        gpu: Any name that `advisor gpus` knows, or a TOML file that describes one; None: the table's.
        model: A name that `advisor models` lists; else `hidden_size` and `top_k`. Where a table fits several models and neither is given,
            the commonest is taken, and the verdict's unknowns say so.
        tokens: Token counts; None: those of the table.
        sizes: Of the problem of a bundled kernel or of one that its file describes: M, N, K, ...
        tensor_parallel: GPUs that each expert is split over.
        expert_parallel: GPUs that the experts are spread over.
        dtype: Operand type, in place of the table's: bf16, fp16, fp32, tf32, fp8 or int8.
        routing: "random" (what None stands for), "balanced" or "power_law:A"; or token slots per expert, or a file of them.
        cache: What the L2 holds when a launch starts: warm or cold.
        measured: A file of measured latencies: rows, or a profile.
        weights: A file that `advisor train` wrote; None: the weights shipped.
        try_for: Seconds for which other configurations of a kernel are compiled and predicted where one is known; None: 20, or what
            ADVISOR_TRY_FOR says.
        launch: Of a kernel in a file, as for the command: `arguments`, `constexprs` and `contents` (values by name), `grid` (such as
            "cdiv(n, BLOCK)"), `signature`, `element`, `op`, and `num_warps`, `num_stages`, `num_ctas`, `maxnreg`.

    Returns:
        What `advisor advise --format json` prints; latencies are in microseconds.

    Raises:
        AdvisorError: What is given is not known, cannot be read, or does not fit the target; it says what, and what would do.

    >>> import advisor
    >>> result = advisor.advise("fused_moe", model="Mixtral-8x7B", gpu="H100", tokens=64)
    >>> [launch.id for launch in result.launches]
    ['w13-M64', 'w2-M64']
    >>> result.verdict.bound_us < result.verdict.current_us
    True
    """
    from advisor.advising import live

    if live.is_kernel(target):
        _of_no_call(target, {"model": model, "tokens": tokens, "sizes": sizes, "hidden_size": hidden_size, "top_k": top_k, "dtype": dtype})
        keywords = {name: value for name, value in launch.items() if name != "grid"}
        return live.advise_call(target, gpu=gpu, grid=launch.get("grid"), args=args, cache=cache, keywords=keywords, try_for=try_for)
    if not isinstance(target, str | os.PathLike):
        what = f"{type(target).__name__} {getattr(target, '__name__', '')}".strip()
        raise UsageError("advise() takes no such target", what, "a kernel of @triton.jit, or the name of a table, a kernel or a record")
    text = os.fspath(target)
    if unknown := [name for name in launch if name not in OF_A_LAUNCH]:
        raise UsageError("advise() has no such keyword", ", ".join(unknown), "one of " + ", ".join(OF_A_LAUNCH))
    request = request_from(
        gpu=gpu,
        model=model,
        hidden_size=hidden_size,
        top_k=top_k,
        tensor_parallel=tensor_parallel,
        expert_parallel=expert_parallel,
        tokens=tokens,
        dtype=dtype,
        routing="random" if routing is None else routing,
        cache=cache,
        sizes=sizes and {name: int(value) for name, value in sizes.items()},
        assume=not (model or (hidden_size and top_k)),
    )
    command = _command(text, request, {"routing": routing, "measured": measured, "weights": weights, **launch})
    if is_code(text):
        return _advise_code(text, request, command, launch, try_for, measured=measured, weights=weights)
    if launch:
        raise UsageError(f"{', '.join(launch)} is for a kernel in a file", text, "FILE.py::KERNEL", "give sizes or tokens instead")
    if Path(text).is_dir():
        raise UsageError("advise() takes one target", f"the folder {text}", "a table in it", "call it for each of the folder's files")
    from advisor.advising.measured.profiles import match_file
    from advisor.advising.of_target import advise_target
    from advisor.advising.targets.resolve import resolve_target
    from advisor.learned import load_predictor

    resolved, latencies = resolve_target(text, request), None
    if measured is not None:
        matched = match_file(resolved, measured)
        resolved, latencies = matched.target, matched.measured
        if matched.unmatched:
            resolved = replace(resolved, warnings=(*resolved.warnings, matched.unmatched))
    return advise_target(resolved, load_predictor(None if weights is None else Path(weights)), command=command, measured=latencies)


def _of_no_call(kernel: Any, given: Mapping[str, Any]) -> None:
    """Refuse what says nothing of a live kernel's call, and would be read past.

    Raises:
        UsageError: Some of it is given.
    """
    if names := [name for name, value in given.items() if value is not None]:
        raise UsageError(
            f"{', '.join(names)} says nothing of a live kernel", None, "its call: grid, args and keywords", "leave it out, or name a table"
        )


def request_from(*, tokens: int | Iterable[int] | None, routing: Sequence[int] | str | os.PathLike[str] | None, **asked: Any) -> Request:
    """A `Request` from what a caller gives: one token count or several, sorted; a routing by name, as counts or in a file.

    Raises:
        UsageError, InputError: See `Request` and `read_routing`.
    """
    counts = None if tokens is None else (tokens,) if isinstance(tokens, int) else tuple(sorted(set(tokens)))
    return Request(tokens=counts, **routing_given(routing), **asked)


def _advise_code(text: str, request: Request, command: str, launch: Mapping[str, Any], try_for: float | None, **unfit: Any) -> Result:
    """The report of a kernel in source or a record of launches."""
    from advisor.advising.of_compiled import advise_compiled
    from advisor.compiled.launches.launch_options import LaunchOptions
    from advisor.compiled.launches.written_values import type_name

    unfit |= {name: getattr(request, name) for name in OF_A_MODEL}
    if refused := [name for name, value in unfit.items() if value]:
        raise UsageError(f"{', '.join(refused)} is for tables and bundled kernels", text, None, "give sizes, or arguments")
    if request.gpu is None:
        raise UsageError("a kernel needs a GPU to be compiled for", None, None, "give gpu=NAME (advisor.list_gpus() lists them)")
    element = launch.get("element")
    asked = LaunchOptions(
        **{name: value for name, value in launch.items() if name not in (*LAUNCH_OPTIONS, "element")},
        options={name: value for name, value in launch.items() if name in LAUNCH_OPTIONS},
        element=type_name(element) if element else None,
        sizes=request.sizes or {},
        dtype=request.dtype,
        routing=request.routing,
    )
    return advise_compiled(text, load_gpu(request.gpu), cache=request.cache, command=command, asked=asked, try_s=try_for)


def _command(text: str, request: Request, options: Mapping[str, Any]) -> str:
    """The command line that does the same; "": there is none, for the routing is no file."""
    if not isinstance(options["routing"], (str, os.PathLike, type(None))):
        return ""
    words = ["advisor", "advise", text]
    asked = {name: getattr(request, name) for name in ("gpu", *OF_A_MODEL, "dtype", "cache", "sizes")}
    for name, value in {**asked, **options}.items():
        if name in OF_A_KERNEL:
            words += [word for key, one in value.items() for word in (OF_A_KERNEL[name], f"{key}={one}")]
        elif value and (name, value) != ("cache", "warm"):
            parts = [f"{key}={one}" for key, one in value.items()] if isinstance(value, Mapping) else value
            words += ["--" + name.replace("_", "-"), ",".join(map(str, parts)) if isinstance(parts, (list, tuple)) else str(value)]
    return shlex.join(words)


def _in_a_notebook(result: Result) -> str:
    """The page of a result, for IPython."""
    from html import escape

    from advisor.rendering.page import to_html

    return f'<iframe srcdoc="{escape(to_html(result))}" style="width:100%;height:900px;border:0"></iframe>'


setattr(Result, "_repr_html_", _in_a_notebook)  # noqa: B010 - here, for results know nothing of their pages
