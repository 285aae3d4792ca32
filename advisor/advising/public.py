"""`advisor.advise`, and what the command of that name does for one target and one GPU: `report_on` is behind both."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.advising.options import OF_A_LAUNCH, command_line, given, launch_options, refuse_unfit, request_from
from advisor.advising.targets.resolve import is_code
from advisor.gpus.hardware import load_gpu
from advisor.result.schema import Result
from advisor.system.errors import UsageError

if TYPE_CHECKING:
    from advisor.advising.targets import Target
    from advisor.learned.base import Predictor


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
    stack: str | None = None,
    block_shape: tuple[int, int] | None = None,
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
        try_for: Seconds for which other configurations of a kernel are compiled and predicted where one is known; None: what
            ADVISOR_TRY_FOR says, or else 24 configurations however long they take.
        stack: "vllm" or "sglang", with a version after a colon: whose table it is, or whose default runs where there is none.
        block_shape: Of fused_moe: the quantization block (n, k) of the weights.
        launch: Of a kernel in a file, as for the command: `arguments`, `constexprs` and `contents` (values by name), `grid` (such as
            "cdiv(n, BLOCK)"), `signature`, `element`, `op`, `toml` (a file), and `num_warps`, `num_stages`, `num_ctas`, `maxnreg`.

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
    values = {
        "gpu": gpu,
        "model": model,
        "tokens": tokens,
        "sizes": sizes,
        "hidden_size": hidden_size,
        "top_k": top_k,
        "tensor_parallel": tensor_parallel,
        "expert_parallel": expert_parallel,
        "dtype": dtype,
        "routing": routing,
        "cache": cache,
        "measured": measured,
        "weights": weights,
        "try_for": try_for,
        "stack": stack,
        "block_shape": block_shape,
    }
    from advisor.advising import live

    if live.is_kernel(target):
        of_its_call = ("gpu", "cache", "try_for")
        if names := [name for name, value in values.items() if value is not None and name not in of_its_call]:
            raise UsageError(
                f"{', '.join(names)} says nothing of a live kernel",
                None,
                "its call: grid, args and keywords",
                "leave it out, or name a table",
            )
        keywords = {name: value for name, value in launch.items() if name != "grid"}
        return live.advise_call(target, gpu=gpu, grid=launch.get("grid"), args=args, cache=cache, keywords=keywords, try_for=try_for)
    if not isinstance(target, str | os.PathLike):
        what = f"{type(target).__name__} {getattr(target, '__name__', '')}".strip()
        raise UsageError("advise() takes no such target", what, "a kernel of @triton.jit, or the name of a table, a kernel or a record")
    text = os.fspath(target)
    if unknown := [name for name in launch if name not in OF_A_LAUNCH]:
        raise UsageError("advise() has no such keyword", ", ".join(unknown), "one of " + ", ".join(OF_A_LAUNCH))
    if Path(text).is_dir():
        raise UsageError("advise() takes one target", f"the folder {text}", "a table in it", "call it for each of the folder's files")
    values |= launch
    return report_on(text, values, command=command_line(text, values))


def report_on(
    target: str,
    values: Mapping[str, Any],
    *,
    command: str,
    flags: bool = False,
    progress: Callable[[int, int], None] | None = None,
    resolved: Callable[[Target], None] | None = None,
) -> Result:
    """Advise on a table, a bundled kernel, a kernel in a file or a record, for one GPU.

    Args:
        target: Its name or path.
        values: The options given, by their keywords (`advisor.advising.options`).
        command: The command line that repeats this.
        flags: Whether errors name options as the command line does.
        progress: Called with (done, total) launches that are compiled.
        resolved: Called with a table or bundled kernel once its launches are known.

    Raises:
        AdvisorError: See `advise`.
    """
    if is_code(target):
        return _report_on_code(target, values, command, flags, progress)
    from advisor.advising.targets.resolve import resolve_target
    from advisor.learned import load_predictor

    refuse_unfit("table" if target.endswith(".json") else "bundled kernel", target, values, flags=flags)
    settled = values.get("model") or (values.get("hidden_size") and values.get("top_k"))
    request = request_from({"routing": "random"} | {name: value for name, value in values.items() if given(value)}, assume=not settled)
    launches = resolve_target(target, request)
    weights = values.get("weights")
    predictor = load_predictor(Path(weights) if weights else None)
    return report_on_launches(launches, predictor, values.get("measured"), command=command, resolved=resolved)


def report_on_launches(
    target: Target,
    predictor: Predictor,
    measured: str | os.PathLike[str] | None,
    *,
    command: str,
    resolved: Callable[[Target], None] | None = None,
) -> Result:
    """Advise on launches that are known, with the rows of a file that were measured of them.

    Raises:
        InputError, NothingMatchedError: The file cannot be read, or has none of these launches.
    """
    from advisor.advising.table_report import advise_target

    latencies = None
    if measured:
        from advisor.advising.measured.profiles import match_file  # it knows compiled kernels too, which takes its time

        matched = match_file(target, measured)
        target, latencies = matched.target, matched.measured
        if matched.unmatched:
            target = replace(target, warnings=(*target.warnings, matched.unmatched))
    if resolved is not None:
        resolved(target)
    return advise_target(target, predictor, command=command, measured=latencies)


def _report_on_code(
    target: str, values: Mapping[str, Any], command: str, flags: bool, progress: Callable[[int, int], None] | None
) -> Result:
    """The report of a kernel in source or a record of launches, by what the compiler makes of it."""
    from advisor.advising.kernel_report import advise_compiled
    from advisor.rows.launches import is_launch_record

    refuse_unfit("record" if is_launch_record(target) else "kernel in a file", target, values, flags=flags)
    if not values.get("gpu"):
        raise UsageError("a kernel needs a GPU to be compiled for", None, None, "add --gpu NAME (`advisor gpus` lists them)")
    return advise_compiled(
        target,
        load_gpu(values["gpu"]),
        cache=values.get("cache") or "warm",
        command=command,
        launch_options=launch_options(values),
        progress=progress,
        try_s=values.get("try_for"),
        measured=values.get("measured"),
    )


def _in_a_notebook(result: Result) -> str:
    """The page of a result, for IPython."""
    from html import escape

    from advisor.rendering.page import to_html

    return f'<iframe srcdoc="{escape(to_html(result))}" style="width:100%;height:900px;border:0"></iframe>'


setattr(Result, "_repr_html_", _in_a_notebook)  # noqa: B010 - here, for results know nothing of their pages
