"""What the operators of a step take on a GPU: one call of the predictor for all of a kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import Predictor
from advisor.learned.tunable_ceiling import tunable_ceiling
from advisor.pipelines.batch import ProblemBatch
from advisor.pipelines.power import least_sustained_us
from advisor.result.schema import PIPELINES
from advisor.steps.collectives import ENGINES
from advisor.steps.operators import Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One launch, microseconds: predicted with its 80 % interval, the bound and the pipeline that sets it, the tunable ceiling, and what
    the best library kernel takes, with where that was measured; None where none was.

    A library kernel chooses its own configuration: its ceiling is the prediction, and it is not `tunable`.
    """

    us: float
    low_us: float
    high_us: float
    bound_us: float
    binding: str
    ceiling_us: float
    tunable: bool
    library_us: float | None = None
    library: str = ""


def costs(operators: Sequence[Operator], gpu: GpuSpec, predictor: Predictor, engine: str) -> list[Cost]:
    """The cost of each operator of a family, in their order, with the kernels that the engine takes.

    Raises:
        UsageError: The GPU has no unit for a type.
    """
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for i, each in enumerate(operators):
        groups[each.family, each.op, each.dtype, each.block_shape, each.cache, tuple(each.sizes)].append(i)
    found: dict[int, Cost] = {}
    for members in groups.values():
        for i, cost in zip(members, _group([operators[i] for i in members], gpu, predictor, engine), strict=True):
            found[i] = cost
    return [found[i] for i in range(len(operators))]


def _group(operators: list[Operator], gpu: GpuSpec, predictor: Predictor, engine: str) -> list[Cost]:
    first = operators[0]
    problem = ProblemBatch(
        family=first.family,
        op=first.op,
        dtype=first.dtype,
        block_shape=first.block_shape,
        cache=first.cache,
        stack=engine if engine in ENGINES else None,
        sizes={name: np.array([float(each.sizes[name]) for each in operators]) for name in first.sizes},
    )
    work = pipelines.work(problem, gpu)
    bound = pipelines.bound(work, gpu, problem.cache)
    prediction = predictor.predict(problem, None, gpu)
    us, low, high = (np.maximum(each, least_sustained_us(work, gpu)) for each in (prediction.us, prediction.low_us, prediction.high_us))
    tunable = first.family == "fused_moe" and first.op in ("w13", "w2")
    ceiling = tunable_ceiling(predictor.ceiling(problem, gpu), bound.us, us).us if tunable else us
    columns = np.broadcast_arrays(us, low, high, bound.us, ceiling)
    found = []
    for i, (u, lo, hi, b, c) in enumerate(np.stack(columns, axis=-1).tolist()):
        library = predictor.library_reference(problem.take(np.array([i])), gpu)
        found.append(
            Cost(
                us=u,
                low_us=lo,
                high_us=hi,
                bound_us=b,
                binding=PIPELINES[int(np.broadcast_to(bound.binding, us.shape)[i])],
                ceiling_us=min(c, u),
                tunable=tunable,
                library_us=None if library is None else max(min(library.us, u), b),
                library="" if library is None else library.source,
            )
        )
    return found
