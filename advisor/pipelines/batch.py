"""Problems and configurations in columns: the vectorised form that the analytical model works on.

Every column is a float64 array; columns broadcast against each other, so one problem against a whole space is
`sizes` of shape [1] and configuration columns of shape [c], and many problems as they were launched is [n] and [n].
Float64 holds integers exactly up to 2**53, which no product of sizes of a real launch reaches.

Token slots per expert: the routing is part of an MoE problem.

A routing is a pair (rows, count): `count` experts hold `rows` token slots each, over a few groups g, because counting by
groups of equal experts is exact and does not grow with the number of experts. Idle experts need not be listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.pipelines import token_draws
from advisor.pipelines.columns import Array, column
from advisor.result.schema import Configuration, Problem, result_dtype
from advisor.system.errors import UsageError


def uniform(tokens: Array, experts: Array, topk: Array) -> tuple[Array, Array]:
    """Round-robin routing: min(E, M topk) experts are active, each with floor or ceil of the mean.

    Args:
        tokens: M, [n].
        experts: E, [n].
        topk: Experts per token, [n].

    Returns:
        rows [n, 2] and count [n, 2].
    """
    slots = tokens * topk
    low = np.floor(slots / experts)
    more = slots - low * experts  # experts with one slot more
    rows = np.stack([low, low + 1], axis=-1)
    count = np.stack([np.where(low > 0, experts - more, 0.0), more], axis=-1)
    return rows, count


def histogram(slots_per_expert: Sequence[int], slots: int) -> tuple[Array, Array]:
    """A histogram of expert loads, scaled to `slots` token slots in all by largest remainders.

    Args:
        slots_per_expert: One non-negative number per expert, not all zero.
        slots: M topk of the problem.

    Returns:
        rows [g] and count [g], over the distinct positive loads.
    """
    load = np.asarray(slots_per_expert, dtype=np.float64)
    if load.ndim != 1 or not load.size or load.min() < 0 or load.sum() <= 0:
        raise UsageError("a routing must be non-negative loads, one per expert, not all zero", slots_per_expert)
    exact = load * (slots / load.sum())
    whole = np.floor(exact)
    missing = int(slots - whole.sum())
    if missing > 0:
        whole[np.argsort(-(exact - whole), kind="stable")[:missing]] += 1
    rows, count = np.unique(whole[whole > 0], return_counts=True)
    return rows, count.astype(np.float64)


def of_problem(problem: Problem) -> tuple[Array, Array]:
    """The routing of one problem, [g] each."""
    sizes = problem.sizes
    if problem.distribution is not None:
        return token_draws.groups(sizes["M"], sizes["E"], sizes["topk"], token_draws.exponent(problem.distribution))
    if problem.routing is None:
        rows, count = uniform(column(sizes["M"]), column(sizes["E"]), column(sizes["topk"]))
        return rows[0], count[0]
    if len(problem.routing) != sizes["E"]:
        raise UsageError("a routing needs one load per expert", f"{len(problem.routing)} loads", f"E = {sizes['E']}")
    return histogram(problem.routing, sizes["M"] * sizes["topk"])


def least_used(problem: Problem) -> float:
    """Experts that 99 % of the draws of a problem's routing use at least."""
    sizes = problem.sizes
    if problem.distribution is None:
        return float(of_problem(problem)[1].sum())
    return token_draws.least_used(sizes["M"], sizes["E"], sizes["topk"], token_draws.exponent(problem.distribution))


def stack(routings: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Routings of several problems, padded with empty groups to [n, g]."""
    width = max(rows.size for rows, _ in routings)
    rows_out, count_out = np.zeros((len(routings), width)), np.zeros((len(routings), width))
    for i, (rows, count) in enumerate(routings):
        rows_out[i, : rows.size], count_out[i, : count.size] = rows, count
    return rows_out, count_out


ELEMENT_BYTES: dict[str, float] = {
    "fp64": 8,
    "fp32": 4,
    "tf32": 4,
    "bf16": 2,
    "fp16": 2,
    "fp8": 1,
    "int8": 1,
    "int4": 0.5,
    "mxfp4": 0.53125,
    "nvfp4": 0.5625,
}
"""Bytes per element as stored. tf32 is stored as fp32; 32 elements of mxfp4, and 16 of nvfp4, share a scale of one byte."""

SIZES: dict[tuple[str, str], tuple[str, ...]] = {
    ("fused_moe", "w13"): ("M", "E", "topk", "H", "N"),
    ("fused_moe", "activation"): ("M", "E", "topk", "H", "N"),
    ("fused_moe", "w2"): ("M", "E", "topk", "H", "N"),
    ("fused_moe", "combine"): ("M", "E", "topk", "H", "N"),
    ("gemm", "gemm"): ("M", "N", "K"),
    ("attention", "prefill"): ("B", "H", "H_kv", "M", "N", "D"),
    ("attention", "decode"): ("B", "H", "H_kv", "M", "N", "D"),
    ("normalization", "rms_norm"): ("B", "H"),
    ("normalization", "layer_norm"): ("B", "H"),
    ("normalization", "softmax"): ("B", "H"),
}
"""Sizes a problem must name, per family and operator; elementwise operators all take (B, H)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemBatch:
    """Problems of one family, operator and set of types; `sizes` are columns.

    `expert_rows` and `expert_count` ([g] or [n, g], fused_moe only) hold the routing: `expert_count` experts with
    `expert_rows` token slots each, on average over draws where the routing is random; 99 % of draws use `least_used` experts [n] at least.
    None means uniform (see `uniform`). `stack`, `stack_version` and `implementation` say whose
    kernel a launch without a configuration is.
    """

    family: str
    op: str
    sizes: Mapping[str, Array]
    dtype: str = "bf16"
    weight_dtype: str | None = None
    output_dtype: str | None = None
    block_shape: tuple[int, int] | None = None
    cache: str = "warm"
    expert_rows: Array | None = None
    expert_count: Array | None = None
    least_used: Array | None = None
    stack: str | None = None
    stack_version: str | None = None
    implementation: str | None = None

    def __post_init__(self) -> None:
        needed = ("B", "H") if self.family == "elementwise" else SIZES.get((self.family, self.op))
        if needed is None:
            operators = sorted(op for family, op in SIZES if family == self.family)
            known = operators or sorted({f"{family}/{op}" for family, op in SIZES} | {"elementwise/*"})
            raise UsageError(
                f"no such operator{f' of {self.family}' if operators else ''}",
                self.op if operators else f"{self.family}/{self.op}",
                "one of " + ", ".join(known),
            )
        missing = [name for name in needed if name not in self.sizes]
        if missing:
            raise UsageError(
                f"{self.family}/{self.op} needs the sizes {', '.join(needed)}", f"no {', '.join(missing)}", remedy="give every size"
            )
        for name in (self.dtype, self.weight_dtype, self.output_dtype):
            if name is not None and name not in ELEMENT_BYTES:
                raise UsageError("unknown data type", name, "one of " + ", ".join(ELEMENT_BYTES))

    def __len__(self) -> int:
        groups = [self.expert_rows] if self.expert_rows is not None and self.expert_rows.ndim == 2 else []
        return max(size.shape[0] for size in [*self.sizes.values(), *groups])

    @property
    def operand_bytes(self) -> float:
        """Bytes per element of the activations."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def weight_bytes(self) -> float:
        """Bytes per element of the weights."""
        return ELEMENT_BYTES[self.weight_dtype or self.dtype]

    @property
    def result_bytes(self) -> float:
        """Bytes per element of the output: bf16 where the operands are quantised, unless said otherwise."""
        return ELEMENT_BYTES[result_dtype(self.dtype, self.output_dtype)]

    @property
    def routing(self) -> tuple[Array, Array]:
        """Rows and count of the experts, of shape [n, g]."""
        if self.expert_rows is None or self.expert_count is None:
            return uniform(self.sizes["M"], self.sizes["E"], self.sizes["topk"])
        return np.atleast_2d(self.expert_rows), np.atleast_2d(self.expert_count)

    def take(self, index: NDArray) -> ProblemBatch:
        """The rows `index` (an integer or boolean index) of every column."""
        rows, count = self.expert_rows, self.expert_count
        if rows is not None and rows.ndim == 2 and rows.shape[0] > 1:
            rows, count = rows[index], (count[index] if count is not None else None)
        sizes = {name: column[index] if column.size > 1 else column for name, column in self.sizes.items()}
        least = self.least_used[index] if self.least_used is not None and self.least_used.size > 1 else self.least_used
        return replace(self, sizes=sizes, expert_rows=rows, expert_count=count, least_used=least)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationBatch:
    """Configurations in columns: the kernel's parameters, and the launch options."""

    parameters: Mapping[str, Array]
    num_warps: Array = field(default_factory=lambda: np.array([4.0]))
    num_stages: Array = field(default_factory=lambda: np.array([3.0]))

    def get(self, name: str, default: float) -> Array:
        """The column `name`, or `default` as an array of one."""
        column = self.parameters.get(name)
        return column if column is not None else np.array([float(default)])

    def __len__(self) -> int:
        return max([self.num_warps.size, self.num_stages.size, *(c.size for c in self.parameters.values())])

    def take(self, index: NDArray) -> ConfigurationBatch:
        """The rows `index` of every column."""
        return ConfigurationBatch(
            parameters={k: v[index] if v.size > 1 else v for k, v in self.parameters.items()},
            num_warps=self.num_warps[index] if self.num_warps.size > 1 else self.num_warps,
            num_stages=self.num_stages[index] if self.num_stages.size > 1 else self.num_stages,
        )


SHARED = ("family", "op", "dtype", "weight_dtype", "output_dtype", "block_shape", "cache")
"""What the problems of one batch must share."""


def problem_batch(problems: Sequence[Problem]) -> ProblemBatch:
    """Problems that share family, operator, types, cache state and (if any) routing, as one batch.

    Raises:
        UsageError: They do not share what a batch must share.
    """
    first = problems[0]
    if any(getattr(p, name) != getattr(first, name) for p in problems for name in SHARED):
        raise UsageError("problems of one batch must share " + ", ".join(SHARED), f"{len(problems)} problems that do not")
    rows = count = least = None
    if first.family == "fused_moe" and any(p.routing is not None or p.distribution is not None for p in problems):
        rows, count = stack([of_problem(p) for p in problems])
        least = np.array([least_used(p) for p in problems])
    sizes = {name: column([p.sizes[name] for p in problems]) for name in first.sizes}
    return ProblemBatch(
        family=first.family,
        op=first.op,
        sizes=sizes,
        dtype=first.dtype,
        weight_dtype=first.weight_dtype,
        output_dtype=first.output_dtype,
        block_shape=first.block_shape,
        cache=first.cache,
        expert_rows=rows,
        expert_count=count,
        least_used=least,
    )


def configuration_batch(configurations: Sequence[Configuration]) -> ConfigurationBatch:
    """Configurations as columns; a parameter that is missing or not a number in one of them is an error.

    Raises:
        UsageError: The configurations do not name the same parameters.
    """
    names = [n for n, v in configurations[0].parameters.items() if isinstance(v, (int, float))]
    try:
        parameters = {name: column([float(c.parameters[name]) for c in configurations]) for name in names}
    except KeyError as error:
        raise UsageError("configurations of one batch must name the same parameters", f"one without {error}") from None
    return ConfigurationBatch(
        parameters=parameters,
        num_warps=column([c.num_warps for c in configurations]),
        num_stages=column([c.num_stages for c in configurations]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """Launches of one kind in one batch, row by row: a problem with each of its configurations, then the next.

    Attributes:
        places: Where each problem stood in what was asked, [k].
        rows: The rows of each.
        problem: Columns [n], or [1] where there is one problem.
        configuration: Columns [n].
    """

    places: tuple[int, ...]
    rows: tuple[slice, ...]
    problem: ProblemBatch
    configuration: ConfigurationBatch


def by_kind(launches: Sequence[tuple[Problem, ConfigurationBatch]]) -> list[Launches]:
    """Problems with the configurations of each in as few batches as hold them."""
    kinds: dict[tuple[object, ...], list[int]] = {}
    for i, (problem, configuration) in enumerate(launches):
        kind = *(getattr(problem, name) for name in SHARED), tuple(problem.sizes), problem.routing is problem.distribution is None
        kinds.setdefault((*kind, tuple(configuration.parameters)), []).append(i)
    return [_one_kind([launches[i] for i in places], tuple(places)) for places in kinds.values()]


def _one_kind(launches: Sequence[tuple[Problem, ConfigurationBatch]], places: tuple[int, ...]) -> Launches:
    counts = [len(configuration) for _, configuration in launches]
    ends = np.cumsum(counts)

    def joined(columns: Sequence[Array]) -> Array:
        return np.concatenate([np.broadcast_to(column, (count,)) for column, count in zip(columns, counts, strict=True)])

    configurations = [configuration for _, configuration in launches]
    return Launches(
        places=places,
        rows=tuple(slice(int(end) - count, int(end)) for end, count in zip(ends, counts, strict=True)),
        problem=problem_batch([problem for problem, _ in launches]).take(np.repeat(np.arange(len(launches)), counts)),
        configuration=ConfigurationBatch(
            parameters={name: joined([c.parameters[name] for c in configurations]) for name in configurations[0].parameters},
            num_warps=joined([c.num_warps for c in configurations]),
            num_stages=joined([c.num_stages for c in configurations]),
        ),
    )


GROUPED = ("gemm", "fused_moe")
"""Families whose kernels walk GROUP_SIZE_M blocks of rows before the next block of columns."""


def most_row_blocks(columns: Mapping[str, Sequence[object]], problem: Problem) -> Array:
    """The most blocks along M that each configuration can have, [c]; inf where that is not known.

    Args:
        columns: Values of the configurations by parameter, each of length c; at least one parameter.
        problem: Its sizes.
    """
    block = next((name for name in columns if name.upper() in ("BLOCK_SIZE_M", "BLOCK_M")), None)
    rows = problem.sizes.get("M", 0) * problem.sizes.get("topk", 1)
    if block is None or not rows:
        return np.full(len(next(iter(columns.values()))), np.inf)
    # Every active expert has a block of its own, and however the rows are routed its last one holds at least one row.
    active = min(problem.sizes.get("E", 1), rows) if problem.family == "fused_moe" else 1
    return active + (rows - active) // np.array(columns[block], dtype=np.float64)


def launch_numbers(columns: Mapping[str, Sequence[object]], problems: Sequence[Problem]) -> NDArray[np.int64]:
    """Numbers of the launches that the configurations make, [c]; equal where no problem tells two of them apart.

    GROUP_SIZE_M orders CTAs: at or above the number of blocks along M all its values order them alike.

    Args:
        columns: Values of the configurations by parameter, launch options among them, each of length c; at least one.
        problems: What they are launched for.
    """
    count = len(next(iter(columns.values())))
    group = next((name for name in columns if name in ("GROUP_SIZE_M", "GROUP_M")), None)
    if group is None or any(problem.family not in GROUPED for problem in problems):
        return np.arange(count)
    sizes = np.array(columns[group], dtype=np.float64)
    groups = [np.minimum(sizes, most_row_blocks(columns, problem)).tolist() for problem in problems]
    others = [values for name, values in columns.items() if name != group]
    first: dict[tuple[object, ...], int] = {}
    return np.array([first.setdefault(key, i) for i, key in enumerate(zip(*groups, *others, strict=True))])


def one_row_ungrouped(problem: ProblemBatch, configuration: ConfigurationBatch) -> NDArray[np.bool_]:
    """Which configurations [n] make a product of one row of tiles, in one part, with a GROUP_SIZE_M of 1.

    It orders nothing there, but with 1 the compiler makes other code: of 36 such launches measured with both on an H100
    (`ceilings/measurements/`) none ran more than 0.6 % faster with 1, four 2 to 12 % slower. Of 21 in several parts three ran 3 to 7 %
    faster with 1, and none more than 1.6 % slower.
    """
    parameters = configuration.parameters
    if problem.family != "gemm" or not {"BLOCK_SIZE_M", "GROUP_SIZE_M"} <= parameters.keys():
        return np.zeros(len(configuration), dtype=bool)
    one_row = (parameters["BLOCK_SIZE_M"] >= problem.sizes["M"]) & (configuration.get("SPLIT_K", 1) == 1)
    return np.broadcast_to(one_row & (parameters["GROUP_SIZE_M"] == 1), (len(configuration),))


def repeats(launches: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of the launches [c], or [c, d], equal one before them, [c]."""
    first: dict[tuple[object, ...], int] = {}
    rows = map(tuple, launches.reshape(len(launches), -1).tolist())
    return np.array([first.setdefault(row, i) < i for i, row in enumerate(rows)], dtype=bool)
