"""The layers that a table's products belong to: whole, as the stack launches them, with today's and with the recommended configuration."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import replace
from functools import lru_cache
from typing import cast

import numpy as np

from advisor.advising.backends import stack_of
from advisor.advising.choice import Measured
from advisor.advising.targets import GEMM_OF_LAYER, PlannedLaunch, Target
from advisor.diagnosis.rule import microseconds
from advisor.learned.base import Predictor
from advisor.learned.layers import layer_model
from advisor.learned.layers.layer_model import LayerModel
from advisor.learned.layers.moe_layer import AS_MEASURED, Layers, kind_of, version_number, without_gate
from advisor.learned.library.layer_reference import library_of_layers
from advisor.pipelines import token_draws
from advisor.result.schema import Action, Configuration, Latency, LaunchReport, LayerReport, Problem
from advisor.steps.latency import Cost, costs_of_layers
from advisor.system.phrases import phrase
from advisor.tables.entries import FIELDS


def layer_id(tokens: int) -> str:
    """The id of the layer of so many tokens."""
    return f"layer-M{tokens}"


def layer_launches(target: Target) -> dict[int, tuple[PlannedLaunch, ...]]:
    """The products of each layer of a target, by tokens; none where w13 and w2 do not stand side by side."""
    found: dict[int, list[PlannedLaunch]] = {}
    for launch in target.launches:
        if launch.problem.family == "fused_moe" and launch.tokens is not None and launch.problem.op in GEMM_OF_LAYER:
            found.setdefault(launch.tokens, []).append(launch)
    return {m: tuple(each) for m, each in found.items() if [launch.problem.op for launch in each] == list(GEMM_OF_LAYER)}


def layer_reports(
    target: Target, reports: Sequence[LaunchReport], predictor: Predictor, measured: Mapping[str, Measured]
) -> tuple[LayerReport, ...]:
    """The layers of a target; none where no layer of the kind was learned.

    Args:
        target: What was asked for.
        reports: Of its launches.
        predictor: Where predictions come from.
        measured: Latencies by id, of launches and of layers.
    """
    model = _layer_model(cast(Hashable, predictor))
    found = layer_launches(target) if model is not None and target.gpu.vendor == "nvidia" else {}
    of = {report.id: report for report in reports}
    found = {m: each for m, each in found.items() if all(of[launch.id].configuration is not None for launch in each)}
    kind = _kind(next(iter(found.values()))[0].problem) if found else None
    if model is None or kind is None:
        return ()
    first = [of[each[0].id] for each in found.values()]
    now = [report.configuration for report in first]
    then = [report.recommendation.configuration if report.recommendation else report.configuration for report in first]
    layers, loads = _layers(model, [report.problem for report in first], kind, target)
    cold = first[0].problem.cache == "cold"
    sides = [_costs(model, layers, loads, target, some, cold) for some in (now, then)]
    libraries = library_of_layers(layers, loads, target.gpu, stack_of(target), cold)
    products = [[of[launch.id] for launch in each] for each in found.values()]
    # What is known of its products says more than layers of other kinds, and no layer was measured whose products differ.
    apart = [AS_MEASURED[kind] != kind or some[0].configuration != some[1].configuration for some in products]
    ran = [[report.predicted for report in some] for some in products]
    after = [[report.recommendation.latency if report.recommendation else report.predicted for report in some] for some in products]
    sides = [
        [_of_products(cost, some) if alone else cost for cost, some, alone in zip(*side, apart, strict=True)]
        for side in ((sides[0], ran), (sides[1], after))
    ]
    sglang, version = target.stack == "sglang", _version(model, target)
    stack = f"{'SGLang' if sglang else 'vLLM'} 0.{f'5.{version % 100:.0f}' if sglang else f'{version / 100:.0f}'}"
    out = []
    for (tokens, launches), report, today, after, library in zip(found.items(), first, *sides, libraries, strict=True):
        its = measured.get(layer_id(tokens))
        out.append(
            LayerReport(
                id=layer_id(tokens),
                tokens=tokens,
                stack=stack,
                routing="given" if report.problem.routing is not None else report.problem.distribution or "balanced",
                launches=tuple(launch.id for launch in launches),
                bound=Latency(
                    us=today.bound_us, origin="specified", source=f"bound for this routing from the figures of {target.gpu.name}"
                ),
                predicted=_latency(today, predictor.name),
                ceiling=Latency(us=min(today.ceiling_us, after.us), origin="predicted", source=predictor.name),
                recommended=_latency(after, predictor.name) if any(of[launch.id].recommendation for launch in launches) else None,
                measured=its.latency if its is not None else None,
                parts=dict(today.parts),
                library=library,
            )
        )
    return tuple(out)


def slower_as_a_layer(launches: Sequence[PlannedLaunch], then: Configuration, target: Target, predictor: Predictor, worth: float) -> bool:
    """Whether the layer that these launches make takes over `worth` times as long under another configuration than it does today.

    Only layers measured on the same GPU know that. False where the launches are no whole layer, or nothing of the kind was learned.
    """
    model = _layer_model(cast(Hashable, predictor))
    now, kind = launches[0].configuration, _kind(launches[0].problem)
    whole = [launch.problem.op for launch in launches] == list(GEMM_OF_LAYER)
    if model is None or kind is None or now is None or not whole or target.gpu.name not in model.versions or AS_MEASURED[kind] != kind:
        return False
    layers, loads = _layers(model, [launches[0].problem] * 2, kind, target)
    before, after = _costs(model, layers, loads, target, [now, then], launches[0].problem.cache == "cold")
    return after.us > before.us * worth


@lru_cache(maxsize=2)
def _layer_model(predictor: Hashable) -> LayerModel | None:
    return layer_model.load(getattr(getattr(predictor, "weights", None), "silicon", {}))


def _latency(cost: Cost, source: str) -> Latency:
    return Latency(us=cost.us, origin="predicted", source=source, low_us=cost.low_us, high_us=cost.high_us, coverage=0.8)


def weighed(actions: tuple[Action, ...], layers: Sequence[LayerReport], measured: Set[str]) -> tuple[Action, ...]:
    """The actions, those that change configurations with what the layers gain by it, the largest savings first.

    `measured` are the launches with a latency of their own: what is left to them is known better than the layer, which is predicted.
    """
    out = []
    for action in actions:
        touched = [each for each in layers if each.recommended is not None and set(each.launches) <= set(action.launches) - measured]
        now, then = (
            (sum(latency.us for latency in side if latency) for side in zip(*((e.predicted, e.recommended) for e in touched), strict=True))
            if touched
            else (0, 0)
        )
        if action.rule is None and action.origin == "predicted" and touched:
            layer = phrase(
                "action.layers" if touched[0].routing else "action.linears",
                count=len(touched),
                now=microseconds(now),
                then=microseconds(then),
            )
            whole = " ".join((action.detail, layer, *((phrase("action.doubt"),) if then >= now else ())))
            action = replace(action, saving_us=now - then if now > then else action.saving_us, detail=whole)
        out.append(action)
    return tuple(sorted(out, key=lambda action: -action.saving_us)) if layers else actions


def _of_products(cost: Cost, products: Sequence[Latency | None]) -> Cost:
    """A layer whose products take what is predicted of them alone, where they can launch, and the rest what it does in `cost`."""
    known = [latency for latency in products if latency is not None]
    if len(known) < len(products):
        return cost
    rest = tuple((name, us) for name, us in cost.parts if name not in GEMM_OF_LAYER)
    alone = tuple(zip(GEMM_OF_LAYER, (latency.us for latency in known), strict=True))
    us, low, high = (
        sum(each) + sum(part for _, part in rest)
        for each in zip(*((latency.us, latency.low_us or latency.us, latency.high_us or latency.us) for latency in known), strict=True)
    )
    least = max(us, cost.bound_us)
    return replace(cost, us=least, low_us=max(low, cost.bound_us), high_us=max(high, least), ceiling_us=least, parts=(*alone, *rest))


def _kind(problem: Problem) -> int | None:
    return kind_of(problem.dtype, problem.weight_dtype, problem.block_shape)


def _version(model: LayerModel, target: Target) -> float:
    """Of the target's stack: the one asked for, or the newest that was measured."""
    return version_number(target.stack_version or "") or model.newest(target.gpu.name, target.stack == "sglang")


def _layers(model: LayerModel, problems: Sequence[Problem], kind: int, target: Target) -> tuple[Layers, token_draws.Loads]:
    """The layers of these problems as the target's stack launches them, and the loads of their experts."""
    size = {name: np.array([float(problem.sizes[name]) for problem in problems]) for name in ("M", "E", "topk", "H", "N")}
    ones, sglang = np.ones(len(problems)), np.full(len(problems), target.stack == "sglang")
    version = ones * _version(model, target)
    layers = Layers(
        tokens=size["M"],
        experts=size["E"],
        topk=size["topk"],
        hidden=size["H"],
        inner=size["N"],
        ranks=ones,
        kind=np.full(len(problems), kind),
        sglang=sglang,
        version=version,
        ungated=without_gate(size["H"], size["topk"], sglang, version),
        routing=ones * (token_draws.BALANCED if problems[0].distribution is None else token_draws.exponent(problems[0].distribution)),
    )
    loads = token_draws.loads(layers.tokens, layers.experts, layers.topk, ones, layers.routing)
    routing = problems[0].routing
    if routing is not None:
        given = np.array([token_draws.of_histogram(routing, slots) for slots in size["M"] * size["topk"]])
        loads = token_draws.Loads(slots=given[:, 0], used=given[:, 1], least_used=given[:, 2], hottest=given[:, 3], blocks=given[:, 4:])
    return layers, loads


def _costs(
    model: LayerModel, layers: Layers, loads: token_draws.Loads, target: Target, configurations: Sequence[Configuration | None], cold: bool
) -> list[Cost]:
    some = [configuration for configuration in configurations if configuration is not None]
    rows = [[*(each.parameters.get(name, 1) for name in FIELDS[:4]), each.num_warps, each.num_stages] for each in some]
    columns = dict(zip(FIELDS, np.array(rows, dtype=float).T, strict=True))
    return costs_of_layers(model.launched(layers, target.gpu, columns, loads), model, cold)
