"""`best_config`: a plain dictionary of meta-parameters for kernels that are launched without a decorator, as vLLM's and SGLang's are."""

from __future__ import annotations

import functools
import math
from typing import Any

from advisor.system.errors import NoGpuError, UsageError

MetaParameters = dict[str, int]

OPS: dict[str, tuple[str, ...]] = {
    "fused_moe": ("w13", "w2"),  # both products of a layer are launched with one configuration
    "gemm": ("gemm",),
}
"""Operators that share a configuration, per family; others name theirs with op=."""

TYPES = ("dtype", "weight_dtype", "output_dtype", "block_shape")
OPTIONAL = {"attention": ("causal",), "elementwise": ("inputs",)}
"""Sizes that a problem of a family may name, beyond those it must."""

# Sizes that change from call to call in serving, and so are rounded for ranking: ranking a space anew for every token count would
# cost milliseconds in the middle of serving. Between two entries the best configuration seldom changes (vLLM's tables have as many).
_ROUNDED = {"fused_moe": "M", "gemm": "M"}
_STEPS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 16384, 32768)

MOST_ANSWERS = 8192
"""Problems whose answers are kept, half a kilobyte each, the most recently asked: a server asks for every token count of every layer, and
never stops. One that was dropped is looked up again, which takes a fraction of a millisecond while its step is ranked."""


def best_config(family: str, /, *, gpu: str | None = None, **problem: Any) -> MetaParameters:
    """The best configuration for a problem: measured if the cache has it, else predicted; ≤ 5 µs from the second call on.

    Args:
        family: fused_moe, gemm, attention, normalization or elementwise.
        gpu: Any name `advisor gpus` knows (default: the current GPU).
        problem: The family's sizes (fused_moe: M, E, topk, H, N; gemm: M, N, K; …), and op, dtype, weight_dtype, block_shape where they
            are not the default.

    Returns:
        A dictionary of its own: {"BLOCK_SIZE_M": 64, …, "num_warps": 4, "num_stages": 3}.

    Raises:
        UsageError: The family or a size is unknown or missing, no configuration fits, or the GPU takes no such operands.
        NoGpuError: No GPU is named, and there is none.

    >>> import advisor
    >>> best = advisor.best_config("gemm", gpu="H100", M=4096, N=4096, K=4096)
    >>> {"BLOCK_SIZE_M", "num_warps", "num_stages"} <= set(best)
    True
    """
    try:
        # In the order of the call: a call site writes its arguments in one order.
        return _answer((family, gpu, *problem.items())).copy()
    except TypeError:  # a list as block_shape; of what else cannot be a key, the search says what is wrong
        hashable = {name: tuple(v) if isinstance(v, list) else v for name, v in problem.items()}
    return best_config(family, gpu=gpu, **hashable) if hashable != problem else _find(family, gpu, hashable)


@functools.lru_cache(maxsize=MOST_ANSWERS)
def _answer(key: tuple[Any, ...]) -> MetaParameters:
    family, gpu, *problem = key
    return _find(family, gpu, dict(problem))


def look_again() -> None:
    """Makes the next calls look in the cache again, where something was decided; what was predicted stays so."""
    _answer.cache_clear()


def forget() -> None:
    """Makes the next calls find everything out again."""
    look_again()
    _ranked.cache_clear()
    _this_gpu.cache_clear()


def _find(family: str, gpu: str | None, problem: dict[str, Any]) -> MetaParameters:
    from advisor.pipelines.batch import SIZES
    from advisor.pipelines.space import SPACES
    from advisor.tables.names import SIZE_LIMIT

    if family not in SPACES:
        raise UsageError("best_config: no such family", family, f"one of {', '.join(SPACES)}")
    op = problem.pop("op", None)
    ops = (str(op),) if op is not None else OPS.get(family)
    if ops is None:
        known = sorted(operator for kind, operator in SIZES if kind == family) or ["silu_and_mul", "…"]
        raise UsageError(f"best_config: family {family} has several operators", None, f"op= one of {', '.join(known)}")
    types = {str(name): problem.pop(name) for name in TYPES if name in problem}
    named = [*(name for operator in ops for name in SIZES.get((family, operator), ("B", "H"))), *OPTIONAL.get(family, ())]
    if unknown := [name for name in problem if name not in named]:
        listed = ", ".join(dict.fromkeys([*named, "op", *TYPES, "gpu"]))
        raise UsageError("best_config: no such keyword", ", ".join(map(str, unknown)), f"among {listed}")
    sizes = {}
    for name, value in problem.items():
        least = 0 if name == "causal" else 1
        if (isinstance(value, bool) and least) or not isinstance(value, int) or not least <= value < SIZE_LIMIT:
            raise UsageError(f"best_config: {name}", value, f"an integer from {least} to {SIZE_LIMIT - 1}", "give the problem's size")
        sizes[name] = int(value)
    if sizes.get("topk", 0) > sizes.get("E", SIZE_LIMIT):
        raise UsageError(
            "best_config: a token cannot take more experts than there are",
            f"topk {sizes['topk']}",
            f"at most {sizes['E']}",
            "correct topk=, or E=",
        )
    name = gpu or _this_gpu()
    measured = _measured(family, ops, sizes, types, name)
    if measured is not None:
        return measured
    rounded = dict(sizes)
    if (size := _ROUNDED.get(family)) in rounded:
        rounded[size] = _nearest(rounded[size])
    return _ranked(family, ops, tuple(sorted(rounded.items())), tuple(sorted(types.items(), key=str)), name)


@functools.lru_cache(maxsize=MOST_ANSWERS)
def _ranked(
    family: str, ops: tuple[str, ...], sizes: tuple[tuple[str, int], ...], types: tuple[tuple[str, Any], ...], gpu: str
) -> MetaParameters:
    return _predicted(family, ops, dict(sizes), dict(types), gpu)


def _nearest(size: int) -> int:
    """The step nearest in ratio; beyond the last, as it is."""
    if size > _STEPS[-1]:
        return 1 << round(math.log2(size))
    return min(_STEPS, key=lambda step: (abs(math.log(step / size)), step))


@functools.lru_cache(maxsize=1)
def _this_gpu() -> str:
    from advisor.autotuning.internals import current_device

    device = current_device()
    if not device.runs:
        raise NoGpuError("best_config: no GPU is named, and there is none", None, "a name that `advisor gpus` lists", "give gpu=")
    return device.name


def _problems(family: str, ops: tuple[str, ...], sizes: dict[str, int], types: dict[str, Any]) -> list[Any]:
    from advisor.result.schema import Problem

    block = types.get("block_shape")
    operand_types = {**types, "block_shape": tuple(block) if block else None}
    return [Problem(family=family, op=op, sizes=sizes, **operand_types) for op in ops]  # type: ignore[arg-type]


def _measured(family: str, ops: tuple[str, ...], sizes: dict[str, int], types: dict[str, Any], gpu: str) -> MetaParameters | None:
    """Decisions of `@advisor.autotune` for such a problem, most recently used kernel first."""
    from advisor.autotuning.decisions.cache import default_cache
    from advisor.autotuning.keys import parameters
    from advisor.autotuning.ranking import canonical_problem
    from advisor.gpus.hardware import gpu_model

    cache = default_cache()
    model = gpu_model(gpu)
    for problem in _problems(family, ops, sizes, types):
        text = canonical_problem(problem)
        for known in cache.of_problem(family, text):
            decided = cache.decisions(known.id) if known.gpu == model else []
            if decided and (named := _under_family_names(parameters(decided[0][1]), family)) is not None:
                return named
    return None


def _under_family_names(values: dict[str, Any], family: str) -> MetaParameters | None:
    """A kernel's own configuration as kernels of the family take it; None where it lacks a block size that they need."""
    from advisor.pipelines.space import SPACES
    from advisor.rows.columns import family_names, needed_parameters

    names = family_names(values, family)
    renamed = {names[name]: value for name, value in values.items()}
    if any(name not in renamed for name in needed_parameters(family)):
        return None
    if "GROUP_SIZE_M" in SPACES[family]:
        renamed.setdefault("GROUP_SIZE_M", 1)  # a kernel that does not group its tiles
    return {name: renamed[name] for name in sorted(renamed, key=[*SPACES[family], *renamed].index)}


def _predicted(family: str, ops: tuple[str, ...], sizes: dict[str, int], types: dict[str, Any], gpu: str) -> MetaParameters:
    import numpy as np

    from advisor.autotuning.ranking import predictor
    from advisor.gpus.hardware import load_gpu
    from advisor.pipelines import problem_batch
    from advisor.pipelines.space import configuration_at, problem_space
    from advisor.tables.launchability import refused_dtype

    spec, model = load_gpu(gpu), predictor()
    dtype = str(types.get("dtype", "bf16"))
    if (refused := refused_dtype(dtype, spec.name, spec.compute_capability)) is not None:
        raise UsageError(f"best_config: {refused}", dtype, "operands the GPU takes, such as bf16", "give dtype=, or another gpu=")
    problems = _problems(family, ops, sizes, types)
    space = problem_space(problems[0], spec.vendor)
    scores = np.broadcast_to(model.scores([problem_batch([problem]) for problem in problems], space, spec), (len(space),))
    if not np.isfinite(scores).any():
        raise UsageError(f"best_config: no configuration of the space fits {spec.name}", sizes)
    chosen = configuration_at(space, int(np.argmin(scores)))
    return {
        **{name: int(value) for name, value in chosen.parameters.items()},
        "num_warps": chosen.num_warps,
        "num_stages": chosen.num_stages,
    }
