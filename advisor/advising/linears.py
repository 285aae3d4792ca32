"""The linears around products that scale blocks, as stacks launch them: quantisation of the activations and product, weights from DRAM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor import pipelines
from advisor.advising.choice import Measured
from advisor.advising.targets import Target
from advisor.learned.base import Predictor
from advisor.learned.scaled_products import quantisation_us
from advisor.pipelines import configuration_batch, problem_batch
from advisor.result.schema import Configuration, Latency, LaunchReport, LayerReport

SPREAD = 0.3
"""Of the quantisation's logarithm, to either side in four of five cases: as much as of a kernel whose interval nobody measured."""


def linear_reports(
    target: Target, reports: Sequence[LaunchReport], predictor: Predictor, measured: Mapping[str, Measured]
) -> tuple[tuple[LaunchReport, ...], tuple[LayerReport, ...]]:
    """The launches, and the linears around those that scale blocks of 8-bit operands.

    A library's latency was measured with the quantisation in it, and with weights that take turns: it moves from the launch to the linear.

    Args:
        target: What was asked for.
        reports: Of its launches.
        predictor: Where predictions come from.
        measured: Latencies by id, of launches and of linears.
    """
    scaled = [each for each in reports if _scales(each)]
    if not scaled:
        return tuple(reports), ()
    problem = problem_batch([replace(each.problem, cache="cold") for each in scaled])
    more = quantisation_us(problem.sizes["M"], problem.sizes["K"], target.gpu) * np.ones(len(scaled))
    bounds = pipelines.bound(pipelines.work(problem, target.gpu), target.gpu, "cold").us * np.ones(len(scaled))
    now = _linears([each.configuration for each in scaled], scaled, more, target, predictor)
    best = _linears([each.ceiling_configuration or each.configuration for each in scaled], scaled, more, target, predictor)
    then = _linears(
        [each.recommendation.configuration if each.recommendation else each.configuration for each in scaled],
        scaled,
        more,
        target,
        predictor,
    )
    linears = []
    for report, today, after, ceiling, quantisation, bound in zip(scaled, now, then, best, more.tolist(), bounds.tolist(), strict=True):
        tokens = report.problem.sizes["M"]
        its = measured.get(f"linear-M{tokens}")
        linears.append(
            LayerReport(
                id=f"linear-M{tokens}",
                tokens=tokens,
                stack="SGLang" if target.stack == "sglang" else "vLLM",
                routing="",
                launches=(report.id,),
                bound=Latency(us=bound, origin="specified", source=report.bound.source),
                predicted=today,
                ceiling=min((today, after, ceiling), key=lambda each: each.us),
                recommended=after if report.recommendation else None,
                measured=its.latency if its is not None else None,
                parts={"gemm": today.us - quantisation, "quantisation": quantisation},
                library=report.library,
            )
        )
    return tuple(replace(each, library=None) if _scales(each) else each for each in reports), tuple(linears)


def _scales(report: LaunchReport) -> bool:
    problem = report.problem
    in_blocks = problem.family == "gemm" and problem.dtype in ("fp8", "int8") and problem.block_shape is not None
    return in_blocks and report.predicted is not None and report.configuration is not None


def _linears(
    configurations: Sequence[Configuration | None], reports: Sequence[LaunchReport], more: np.ndarray, target: Target, predictor: Predictor
) -> list[Latency]:
    """Linears with one configuration each; `more` is their quantisation, [n]."""
    out = []
    for report, configuration, us in zip(reports, configurations, more.tolist(), strict=True):
        assert configuration is not None  # `_scales`
        problem = problem_batch([replace(report.problem, cache="cold")])
        found = predictor.predict(problem, configuration_batch([configuration]), target.gpu)
        low, high = found.low_us[0] + us * np.exp(-SPREAD), found.high_us[0] + us * np.exp(SPREAD)
        source = found.source(0, predictor.name)
        out.append(
            Latency(us=float(found.us[0] + us), origin="predicted", source=source, low_us=float(low), high_us=float(high), coverage=0.8)
        )
    return out
