"""The drop-in for `@triton.autotune`: `autotune`, `warmup` and `best_config`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.autotuning.keys import Bucket, check_config, expand
from advisor.autotuning.lookup import best_config
from advisor.result.schema import FAMILIES
from advisor.system.errors import MissingDependencyError, UsageError
from advisor.system.settings import check_mode

if TYPE_CHECKING:
    from advisor.autotuning.decisions.decision import Decision
    from advisor.autotuning.tuner import Tuner


DEFAULT_TOLERANCE = (1e-2, 1e-2)
"""Relative to each element, and absolute as a share of the root mean square of its row or of the output, whichever is larger. Two right
bf16 attentions with blocks of different sizes lie that far apart where elements cancel."""


def autotune(
    configs: Any,
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable | None = None,
    post_hook: Callable | None = None,
    warmup: int | None = None,
    rep: int | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable | None = None,
    cache_results: bool | None = None,
    *,
    mode: str = "measure",
    top_k: int | None = None,
    key_buckets: Mapping[str, Bucket] | None = None,
    family: str | None = None,
    problem: Callable[[dict[str, Any]], Any] | None = None,
    check_output: Any = None,
    outputs: Sequence[str] | None = None,
    default: Any = None,
    distributed: bool = False,
    noise: float = 0.005,
    time_limit_s: float | None = 10.0,
    compile_ahead: bool = True,
    cache_dir: str | Path | None = None,
) -> Callable[[Any], Tuner]:
    """Decorates a `@triton.jit` function (or `@triton.heuristics` on one) so that its configuration is chosen for it.

    The arguments up to `cache_results` are those of `triton.autotune` (3.6 to 3.9) and mean the same. What differs: configurations are
    ranked first, only the most promising are compiled and measured, each measurement moves the order, and what lies near the best is
    measured again, alternately, until it is told apart; timings are kept between processes.

    A kernel's problem is known from `problem=`, a `KERNELS` literal in its module (triton_kernels/README.md), or its code: the compiler's
    front end shows a product or attention, whatever it is called, and the demand of anything else. Where the code cannot be read, every
    configuration is measured in the given order, as triton.autotune would. `print(kernel.decision)` says what happened and why.

    Args:
        configs: A list of `triton.Config`, or a space: {"BLOCK_SIZE_M": [64, 128], …, "num_warps": [4, 8]}.
        key: Names of the arguments whose change asks for a new decision.
        prune_configs_by: early_config_prune, perf_model, top_k, as Triton has them; applied before the model ranks.
        reset_to_zero: Arguments zeroed before every measured run.
        restore_value: Arguments restored after every measured run.
        pre_hook: Called before every measured run, instead of the two above.
        post_hook: Called after every measured run. What these four take is part of a latency, as of triton.autotune.
        warmup: Milliseconds, deprecated by Triton.
        rep: Milliseconds, deprecated by Triton.
        use_cuda_graph: Measure in a CUDA graph, deprecated by Triton.
        do_bench: `do_bench(launch, quantiles)` → milliseconds, in place of the driver's, which measures for 15 ms (five runs at least).
        cache_results: None: timings of a GPU are kept, those of the interpreter are not. True, False: they are, they are not.
        mode: measure; predict (the model decides, nothing is measured); cached (never measures: an undecided key gets `default`, and
            a warning); exhaustive (measures every configuration); off (`default` always). ADVISOR_AUTOTUNE overrides it.
        top_k: How many configurations are measured at most, the most promising first; what another trial promises less of than noise hides
            is not tried. None: of a list of a family that a learned model ranks one in five, from 4 to 8; of one that is ranked by its code
            alone one in three, and at least 8; of one that nothing ranks all.
        key_buckets: {"M": "pow2"}: M counts by the power of two it rounds up to. Also a function.
        family: The kernel's family, where `problem` does not name it.
        problem: Takes the arguments by name; returns the sizes (and op, dtype, …) of the family's problem.
        check_output: Leave out what does not write what the first configuration writes: True, or (relative, absolute) tolerance. Every
            compared run starts from what the tensors held before.
        outputs: Names of the tensors compared (default: those reset or restored, else all). Those that are neither are taken for output
            alone and overwritten before every compared run, so that what is left unwritten shows.
        default: `triton.Config` for modes cached and off, and while a CUDA graph is captured (default there: the model's choice, else
            the first configuration).
        distributed: Rank 0 of torch.distributed decides for all ranks; every rank must make the same calls.
        noise: Latencies within this share of the fastest are a tie; the better ranked configuration wins it.
        time_limit_s: A configuration one run of which takes longer is left out (`advisor cache prune --kernel` forgets that). A running
            kernel cannot be stopped: one that has not ended after six times as long (at least 30 s) is recorded, so that no process tries
            it again, and raises NeverEndsError; until it ends, if ever, later calls of this process measure nothing and take the best
            known configuration. None: no limit, and a kernel that never ends blocks the process; after three processes ended on it, it is
            left out.
        compile_ahead: Compile in threads what will be measured, and on idle cores what other keys are likely to ask for. For a further key,
            two of those that this process has compiled are measured first; another must promise more than its compilation costs.
        cache_dir: Folder of the cache, in place of ADVISOR_CACHE_DIR.

    Raises:
        UsageError: An argument makes no sense.

    >>> import advisor, triton
    >>> @advisor.autotune(configs=[triton.Config({"BLOCK": block}) for block in (256, 1024)], key=["n"])
    ... @triton.jit
    ... def scale(x, y, n, BLOCK: "tl.constexpr"):
    ...     pass
    >>> len(scale.configs)
    2
    """
    _require(top_k is None or (type(top_k) is int and top_k >= 1), "top_k", top_k, "a positive integer, or None")
    _require(_is_number(noise) and 0 <= noise < 1, "noise", repr(noise), "a share: a number from 0 to below 1", "0.005 is half a per cent")
    limited = time_limit_s is None or (_is_number(time_limit_s) and time_limit_s > 0)
    _require(limited, "time_limit_s", repr(time_limit_s), "a positive number of seconds, or None", "None sets no limit")
    known = f"one of {', '.join(FAMILIES)}"
    _require(family is None or family in FAMILIES, "family: no such family", family, known, "leave it out where the kernel is of none")
    function = problem is None or callable(problem)
    _require(function, "problem", problem, "a function of the arguments by name", 'e.g. lambda args: {"M": args["M"], …}')
    _require(not isinstance(outputs, str), "outputs", outputs, "a list of names", f"write outputs=[{outputs!r}]")
    if default is not None:
        check_config(default, "default: not a configuration")
    options: dict[str, Any] = {
        "mode": check_mode(mode, "mode="),
        "top_k": top_k,
        "key_buckets": dict(key_buckets or {}),
        "family": family,
        "problem": problem,
        "tolerance": _tolerance(check_output),
        "outputs": tuple(outputs) if outputs is not None else None,
        "default": default,
        "distributed": distributed,
        "noise": noise,
        "time_limit_s": time_limit_s,
        "compile_ahead": compile_ahead,
        "cache_results": cache_results,
    }

    def decorator(fn: Any) -> Tuner:
        from advisor.autotuning.decisions.cache import Cache
        from advisor.autotuning.tunable import Options
        from advisor.autotuning.tuner import Tuner

        return Tuner(
            fn,
            fn.arg_names,
            expand(configs),
            key,
            reset_to_zero,
            restore_value,
            pre_hook=pre_hook,
            post_hook=post_hook,
            prune_configs_by=prune_configs_by,
            warmup=warmup,
            rep=rep,
            use_cuda_graph=use_cuda_graph,
            do_bench=do_bench,
            cache_results=cache_results,
            options=Options(**options, cache=Cache(Path(cache_dir).absolute()) if cache_dir else None),
        )

    return decorator


def _require(right: bool, what: str, got: object, limit: str, remedy: str | None = None) -> None:
    if not right:
        raise UsageError(what, got, limit, remedy)


def _tolerance(check_output: Any) -> tuple[float, float] | None:
    """The `check_output=` argument: False or None, True, or (relative, absolute).

    Raises:
        UsageError: It is neither.
    """
    if check_output is None or check_output is False:
        return None
    if check_output is True:
        return DEFAULT_TOLERANCE
    try:
        relative, absolute = (float(value) for value in check_output)
    except (TypeError, ValueError):
        raise UsageError("check_output", check_output, "True, False or (relative, absolute)") from None
    if relative < 0 or absolute < 0:
        raise UsageError("check_output: a tolerance is negative", check_output, "(relative, absolute)")
    return relative, absolute


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def warmup(kernel: Any, shapes: Iterable[Mapping[str, Any]], *, grid: Any = None, device: str = "cuda") -> tuple[Decision, ...]:
    """Decides ahead of time, so that nothing is tuned while requests wait or a CUDA graph is captured.

    Args:
        kernel: A kernel decorated with `advisor.autotune`, or the heuristics around one.
        shapes: One mapping per call: argument name → value. A tensor is given as itself, or as (shape, dtype), e.g.
            ((4096, 4096), torch.bfloat16): then one of random numbers (zeros for integers) is made. "grid" may be among them.
        grid: The grid of calls that do not name one.
        device: Where tensors are made.

    Returns:
        One decision per call.

    Raises:
        UsageError: The kernel is not tuned, or a call has no grid.

    >>> import advisor
    >>> advisor.warmup(print, [])
    Traceback (most recent call last):
    ...
    advisor.system.errors.UsageError: ...
    """
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
        for wrapper in heuristics:
            for name, heuristic in wrapper.values.items():
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


__all__ = ["autotune", "best_config", "warmup"]
