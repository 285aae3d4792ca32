"""The layers that a table's products belong to, whole: as the stack launches them, now and with the recommended configuration, and the
library reference beside them; also the linears around products that scale blocks."""

from __future__ import annotations

import shlex
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import replace
from functools import lru_cache
from typing import cast

import numpy as np

from advisor import pipelines
from advisor.advising.choice import Measured
from advisor.advising.targets import GEMM_OF_LAYER, STACKS, PlannedLaunch, Target
from advisor.advising.verdict import WIDE, changed_layers, layers_gain
from advisor.diagnosis import LEAST_GAIN_US
from advisor.diagnosis.rule import microseconds
from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import Predictor, predict_each
from advisor.learned.layers import layer_model, moe_layer
from advisor.learned.layers.layer_model import LayerModel
from advisor.learned.layers.moe_layer import AS_MEASURED, Layers, kind_of, layers_of, quantisation_us
from advisor.learned.library.moe_kernels import library_of_layers
from advisor.pipelines import configuration_batch, problem_batch, token_draws
from advisor.rendering.figures import share_text
from advisor.result.problem import microseconds as short_us
from advisor.result.schema import Action, Configuration, Latency, LaunchReport, LayerReport, Problem
from advisor.steps.latency import Cost, costs_of_layers
from advisor.steps.model_config import load_architecture
from advisor.system import grouped
from advisor.system.errors import AdvisorError, several
from advisor.system.resources import phrase
from advisor.tables.entries import DEFAULT_CHANGES, FIELDS, default_configuration, version_number, version_text
from advisor.tables.models import find_model
from advisor.tables.tuned_table import default_options

WORTH_A_BACKEND = 1.1
"""A change of backend is advised where the library is so much faster than the best configuration: errors of whole layers, on models that
were left out, are of this size (`advisor train --library` prints them)."""


def backends(layers: Sequence[LayerReport], stack: str) -> list[Action]:
    """The actions to change the backend for one of the same stack that beats what is recommended for the products."""
    faster: dict[str, list[LayerReport]] = {}
    for layer in layers:
        tile = min(item.us for item in (layer.now, layer.recommended) if item is not None)
        if layer.library is not None and _of_stack(layer.library, stack) and layer.library.us * WORTH_A_BACKEND < tile:
            faster.setdefault(layer.library.source, []).append(layer)
    made = []
    for source, its in faster.items():
        now, tile = sum(it.now.us for it in its), sum(min(it.now.us, (it.recommended or it.now).us) for it in its)
        library = sum(it.library.us for it in its if it.library is not None)
        tokens = ", ".join(str(it.tokens) for it in its[:6]) + (", …" if len(its) > 6 else "")
        made.append(
            Action(
                title=f"Change the backend: {source}",
                detail=f"{several(len(its), 'layer')} (M = {tokens}): {microseconds(now)} now, {microseconds(tile)} with the best tiles, "
                f"{microseconds(library)} with this library's kernel, as measured on other models; measure it before you change it",
                saving_us=now - library,
                layers_us=now,
                origin="predicted",
                launches=tuple(launch for it in its for launch in it.launches),
            )
        )
    return made


def layer_notes(layers: Sequence[LayerReport], others: Sequence[Action], launches: Sequence[LaunchReport]) -> tuple[str, ...]:
    """How well whole layers are known where their launches are not; and at which token counts no library is faster, where all are known
    and none of the `others` (`backends`) is advised."""
    notes = []
    ends = [(item.us, item.low_us, item.high_us) for item in (layer.now for layer in layers)]
    doubts = [(high - low) / 2 / us for us, low, high in ends if low is not None and high is not None]
    alone = [item.predicted for item in launches if item.predicted is not None and item.measured is None]
    if len(doubts) == len(layers) > 0 and any((item.high_us or 0) > WIDE * item.us for item in alone) and max(doubts) < WIDE - 1:
        notes.append(phrase("note.layers_known", share=f"{100 * max(doubts):.0f} %"))
    libraries = [layer.library for layer in layers if layer.library is not None]
    if libraries and len(libraries) == len(layers) and not others:
        tiles = {layer.tokens: min(layer.now.us, (layer.recommended or layer.now).us) for layer in layers}
        times = {layer.tokens: layer.library.us / tiles[layer.tokens] for layer in layers if layer.library is not None}
        faster = [tokens for tokens, ratio in times.items() if ratio < 1]
        beyond = min(times.values()) * WORTH_A_BACKEND < 1  # of another stack, or `others` would hold it
        ratios = " to ".join(dict.fromkeys(f"{end:.2f}" for end in (min(times.values()), max(times.values()))))
        tied = [tokens for tokens, ratio in times.items() if ratio < WORTH_A_BACKEND]
        key = "other_backend" if beyond else "near_backend" if faster else "tied_backend" if tied else "no_backend"
        which, share = ", ".join(map(str, faster or tied)), share_text(1 - min(times.values()))
        notes.append(phrase(f"note.{key}", source=libraries[0].source, times=ratios, which=which, share=share))
    return tuple(notes)


def version_notes(target: Target, layers: Sequence[LayerReport], predictor: Predictor) -> tuple[str, ...]:
    """Which version of the stack the layers of one outside of the measured versions are predicted like, in a sentence; where none is named
    what the default of older ones takes, if that is another time."""
    model, number = _layer_model(cast(Hashable, predictor)), version_number(target.stack_version or "")
    if model is None or not layers or not layers[0].routing:
        return ()
    if not number:
        return _older_default(model, target, layers) if target.default_since else ()
    known = [version for pairs in model.versions.values() for theirs, version in pairs if bool(theirs) == (target.stack == "sglang")]
    ends = min(known), max(known), min(max(number, min(known)), max(known))
    first, last, nearest = (_stack_text(target, version).split()[-1] for version in ends)
    words = {"stack": STACKS[stack_of(target)], "version": target.stack_version, "first": first, "last": last, "nearest": nearest}
    return () if ends[2] == number else (phrase("note.version", **words),)


def _older_default(model: LayerModel, target: Target, layers: Sequence[LayerReport]) -> tuple[str, ...]:
    """How much longer or less long layers take with an older version's default, of the one that differs most, in a sentence; none where
    that is within what they are known to."""
    problems, stack = [launches[0].problem for launches in layer_launches(target).values()], stack_of(target)
    more: dict[tuple[int, int], float] = {}
    if (kind := _kind(problems[0], target.gpu)) is None:
        return ()
    for since in DEFAULT_CHANGES[stack]:
        options = default_options(problems[0], target.gpu, version_text(since - 100))
        before = [default_configuration(stack, item.sizes["M"], item.sizes["E"], **options) for item in problems]
        costs = _costs(model, *_layers(problems, kind, target, since - 100), target, before, problems[0].cache == "cold")
        more |= {(since, layer.tokens): cost.us / layer.predicted.us - 1 for layer, cost in zip(layers, costs, strict=True)}
    (since, tokens) = max(more, key=lambda at: abs(more[at]), default=(0, 0))
    if abs(share := more.get((since, tokens), 0.0)) < SEEN:
        return ()
    much = f"{100 * abs(share):.0f} % {'longer' if share > 0 else 'less long'}"
    words = {"stack": STACKS[stack], "since": version_text(since), "much": much, "most": tokens}
    return (phrase("note.older_default", **words, older=f"{stack}:{version_text(since - 100)}"),)


def _stack_text(target: Target, version: float) -> str:
    """`vLLM 0.24`, `SGLang 0.5.14`."""
    return f"{STACKS[stack_of(target)]} {version_text(version if target.stack == 'sglang' else version // 100 * 100)}"


def timed_like(target: Target, layers: Sequence[LayerReport], predictor: Predictor) -> tuple[str, ...]:
    """Which version was measured whose layers stand for those of the version that has today's default, in a sentence; else none."""
    model = _layer_model(cast(Hashable, predictor)) if layers and layers[0].routing else None
    if model is None or target.default_since <= (measured := _version(model, target)):
        return ()
    words = {"stack": STACKS[stack_of(target)], "since": version_text(target.default_since), "measured": version_text(measured)}
    return (phrase("note.timed_like", **words),)


MOST_OF_A_STEP = 512
"""Tokens up to which a count is one of sequences that decode together."""
SEEN = 0.05
"""A difference of two predicted layers that is said: each is known to about that."""


def step_notes(target: Target, layers: Sequence[LayerReport], predictor: Predictor) -> tuple[str, ...]:
    """Of layers of a named model: the command that says what a whole step gains; and, where experts are sliced over ranks, how much faster
    or slower whole experts on each rank are, the stack's own configurations in both."""
    model = _layer_model(cast(Hashable, predictor))
    if target.model is None or model is None or not layers or not layers[0].routing:
        return ()
    try:
        whole = find_model(target.model)
    except AdvisorError:  # guessed by the sizes of a table
        return ()
    problems = [launches[0].problem for launches in layer_launches(target).values()]
    first = problems[0]
    slices, sets, kind = whole.N // first.sizes["N"], whole.E // first.sizes["E"], _kind(first, target.gpu)
    try:
        load_architecture(target.model)
    except AdvisorError:  # a kind of layer that no step is predicted with
        notes = []
    else:
        tokens = [layer.tokens for layer in layers]
        decode = [count for count in tokens if count <= MOST_OF_A_STEP]
        name = target.model.partition(", ")[0]  # of a table's, how the model is split follows
        words = ["advisor", "model", name + ("-FP8" if first.block_shape else ""), "--gpu", target.gpu.name]
        words += ["--stack", ":".join(filter(None, (stack_of(target), target.stack_version)))]
        words += ["--tp", str(slices * sets)] * (slices * sets > 1) + ["--ep"] * (sets > 1)
        words += ["--dtype", first.dtype] * (first.dtype == "fp8" and first.block_shape is None)
        words += ["--batch", ",".join(map(str, decode))] if decode else ["--prefill", str(tokens[-1])]
        notes = [phrase("note.step", command=shlex.join(words), there=_in_a_step(model, target, layers, kind))]
    if slices > 1 and sets == 1 and whole.E % slices == 0 and kind is not None:
        apart = [replace(problem, sizes={**problem.sizes, "N": whole.N}) for problem in problems]
        totals = []
        for ranks, some in ((1, problems), (slices, apart)):
            every, loads = _layers(some, kind, target, _version(model, target), ranks)
            costs = costs_of_layers(model.launched(every, target.gpu, None, loads), model, first.cache == "cold")
            totals.append(sum(cost.us for cost in costs))
        more = totals[1] / totals[0] - 1
        much = "about as long" if abs(more) < SEEN else f"{100 * abs(more):.0f} % {'longer' if more > 0 else 'less long'}"
        notes.append(phrase("note.whole_experts", ranks=slices, much=much))
    return tuple(notes)


def _in_a_step(model: LayerModel, target: Target, reports: Sequence[LayerReport], kind: int | None) -> str:
    """What `advisor model` launches layers with where that is not what runs here, or where it finds their weights, in words; else empty."""
    if kind is None:
        return ""
    launches = [both[0] for both in layer_launches(target).values()]
    layers, loads = _layers([launch.problem for launch in launches], kind, target, version_number(target.stack_version or ""))
    step = model.launched(layers, target.gpu, None, loads, moe_layer.here() if target.table is None else None)
    here = _columns([launch.configuration for launch in launches])
    if any((step.configuration[name] != here[name]).any() for name in FIELDS):
        return phrase("note.step_table" if target.table is None else "note.step_without")
    pairs = zip(costs_of_layers(step, model, cold=True), reports, strict=True)
    apart = any(abs(cost.us / report.predicted.us - 1) >= SEEN for cost, report in pairs)
    return phrase("note.step_cold") if apart else ""


def _of_stack(library: Latency, stack: str) -> bool:
    name = STACKS[stack]
    return f"({name} " in library.source or library.source.startswith(f"{name} ")


def stack_of(target: Target) -> str:
    """Whose layers a target's are: vLLM's unless SGLang's are asked for."""
    return "sglang" if target.stack == "sglang" else "vllm"


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
    scaled = [item for item in reports if _scales(item)]
    if not scaled:
        return tuple(reports), ()
    problem = problem_batch([replace(item.problem, cache="cold") for item in scaled])
    more = quantisation_us(problem.sizes["M"], problem.sizes["K"], target.gpu) * np.ones(len(scaled))
    bounds = pipelines.bound(pipelines.work(problem, target.gpu), target.gpu, "cold").us * np.ones(len(scaled))
    chosen = [
        [item.configuration for item in scaled],
        [item.ceiling_configuration or item.configuration for item in scaled],
        [item.recommendation.configuration if item.recommendation else item.configuration for item in scaled],
    ]
    now, best, then = (_linears(configurations, scaled, more, target, predictor) for configurations in chosen)
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
                ceiling=min((today, after, ceiling), key=lambda item: item.us),
                recommended=after if report.recommendation else None,
                measured=its.latency if its is not None else None,
                parts={"gemm": today.us - quantisation, "quantisation": quantisation},
                library=report.library,
            )
        )
    return tuple(replace(item, library=None) if _scales(item) else item for item in reports), tuple(linears)


def _scales(report: LaunchReport) -> bool:
    problem = report.problem
    in_blocks = problem.family == "gemm" and problem.dtype in ("fp8", "int8") and problem.block_shape is not None
    return in_blocks and report.predicted is not None and report.configuration is not None


def _linears(
    configurations: Sequence[Configuration | None], reports: Sequence[LaunchReport], more: np.ndarray, target: Target, predictor: Predictor
) -> list[Latency]:
    """Linears with one configuration each; `more` is their quantisation, [n]."""
    launches = [
        (replace(report.problem, cache="cold"), configuration_batch([configuration]))
        for report, configuration in zip(reports, configurations, strict=True)
        if configuration is not None  # none is (`_scales`)
    ]
    out = []
    for prediction, us in zip(predict_each(predictor, launches, target.gpu), more.tolist(), strict=True):
        low, high = prediction.low_us[0] + us * np.exp(-SPREAD), prediction.high_us[0] + us * np.exp(SPREAD)
        source = prediction.source(0, predictor.name)
        out.append(
            Latency(
                us=float(prediction.us[0] + us), origin="predicted", source=source, low_us=float(low), high_us=float(high), coverage=0.8
            )
        )
    return out


def layer_id(tokens: int) -> str:
    """The id of the layer of so many tokens."""
    return f"layer-M{tokens}"


def layer_launches(target: Target) -> dict[int, tuple[PlannedLaunch, ...]]:
    """The products of each layer of a target, by tokens; none where w13 and w2 do not stand side by side."""
    by_tokens = grouped(
        (launch.tokens, launch)
        for launch in target.launches
        if launch.problem.family == "fused_moe" and launch.tokens is not None and launch.problem.op in GEMM_OF_LAYER
    )
    return {m: tuple(token) for m, token in by_tokens.items() if [launch.problem.op for launch in token] == list(GEMM_OF_LAYER)}


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
    by_tokens = layer_launches(target) if model is not None and target.gpu.vendor == "nvidia" else {}
    of = {report.id: report for report in reports}
    by_tokens = {m: token for m, token in by_tokens.items() if all(of[launch.id].configuration is not None for launch in token)}
    kind = _kind(next(iter(by_tokens.values()))[0].problem, target.gpu) if by_tokens else None
    if model is None or kind is None:
        return ()
    first = [of[token[0].id] for token in by_tokens.values()]
    now = [report.configuration for report in first]
    then = [report.recommendation.configuration if report.recommendation else report.configuration for report in first]
    layers, loads = _layers([report.problem for report in first], kind, target, _version(model, target))
    cold = first[0].problem.cache == "cold"
    sides = [_costs(model, layers, loads, target, some, cold) for some in (now, then)]
    libraries = library_of_layers(layers, loads, target.gpu, stack_of(target), cold, triton_us=[cost.us for cost in sides[0]])
    products = [[of[launch.id] for launch in token] for token in by_tokens.values()]
    # What is known of its products says more than layers of other kinds, and no layer was measured whose products differ.
    apart = [AS_MEASURED[kind] != kind or some[0].configuration != some[1].configuration for some in products]
    ran = [[report.predicted for report in some] for some in products]
    after = [[report.recommendation.latency if report.recommendation else report.predicted for report in some] for some in products]
    sides[1] = [_by_both(cost, changed, _gain(*some)) for cost, changed, *some in zip(*sides, ran, after, strict=True)]
    sides = [
        [_of_products(cost, some) if alone else cost for cost, some, alone in zip(*side, apart, strict=True)]
        for side in ((sides[0], ran), (sides[1], after))
    ]
    able = [launch for some in products for launch in some if launch.predicted is not None]
    considered = [item for launch in able for item in (launch.configuration, launch.ceiling_configuration)]
    considered += dict(target.table.entries).values() if target.table is not None else ()
    least = _least_us(model, [report.problem for report in first], kind, target, considered)
    stack = _stack_text(target, max(_version(model, target), target.default_since))
    out = []
    for (tokens, launches), report, today, after, library, best in zip(by_tokens.items(), first, *sides, libraries, least, strict=True):
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
                ceiling=Latency(us=min(today.ceiling_us, after.us, best), origin="predicted", source=predictor.name),
                recommended=_latency(after, predictor.name) if any(of[launch.id].recommendation for launch in launches) else None,
                measured=its.latency if its is not None else None,
                parts=dict(today.parts),
                library=library,
            )
        )
    return tuple(out)


def _least_us(
    model: LayerModel, problems: Sequence[Problem], kind: int, target: Target, considered: Sequence[Configuration | None]
) -> list[float]:
    """The least microseconds that each layer takes with any of the `considered` configurations: those of a table's entries and of other
    sizes are known for every size, whichever it is that one starts with."""
    configurations = list({item.label(): item for item in considered if item is not None}.values())
    layers, loads = _layers([problem for problem in problems for _ in configurations], kind, target, _version(model, target))
    costs = _costs(model, layers, loads, target, configurations * len(problems), problems[0].cache == "cold")
    return np.reshape([cost.us for cost in costs], (len(problems), -1)).min(axis=1).tolist()


MOST_NAMED = 4
"""Layers of which a note names the library's time."""


def libraries_alone(target: Target) -> tuple[str, ...]:
    """What a library takes for the layers of a target of whose stack no layer was measured on GPUs like its own, in a sentence; none where
    no library was measured either."""
    by_tokens = layer_launches(target) if target.gpu.vendor != "nvidia" else {}
    problems = [launches[0].problem for launches in by_tokens.values()]
    kind = _kind(problems[0], target.gpu) if problems else None
    if kind is None:
        return ()
    layers, loads = _layers(problems, kind, target, 0.0)
    libraries = library_of_layers(layers, loads, target.gpu, stack_of(target), problems[0].cache == "cold")
    known = [(tokens, library) for tokens, library in zip(by_tokens, libraries, strict=True) if library is not None]
    named = known if len(known) <= MOST_NAMED else [known[i * (len(known) - 1) // (MOST_NAMED - 1)] for i in range(MOST_NAMED)]
    if not named:
        return ()
    times = "; ".join(f"{microseconds(item.us)} for {tokens} tokens ({_range(item)})" for tokens, item in named)
    return (phrase("note.library_alone", gpu=target.gpu.name, library=named[0][1].source, times=times),)


def _range(latency: Latency) -> str:
    return " to ".join(short_us(us) for us in (latency.low_us, latency.high_us) if us is not None)


def slower_layers(then: Mapping[str, Configuration], target: Target, predictor: Predictor) -> dict[str, float]:
    """Microseconds that whole layers take longer by their own model where their launches run `then`, by the id of each launch of theirs.

    Only of layers that do, both of whose products change alike: others are told by their products.
    """
    model, by_tokens = _layer_model(cast(Hashable, predictor)), layer_launches(target)
    changing = []
    for first, second in by_tokens.values():
        alike = then[first.id] == then[second.id] and first.configuration == second.configuration
        if alike and first.configuration not in (None, then[first.id]):
            changing.append((first, second))
    kind = _kind(changing[0][0].problem, target.gpu) if changing else None
    if model is None or kind is None or target.gpu.vendor != "nvidia" or AS_MEASURED[kind] != kind:
        return {}
    layers, loads = _layers([first.problem for first, _ in changing], kind, target, _version(model, target))
    sides = ([first.configuration for first, _ in changing], [then[first.id] for first, _ in changing])
    costs = [_costs(model, layers, loads, target, side, changing[0][0].problem.cache == "cold") for side in sides]
    longer = [after.us - before.us for before, after in zip(*costs, strict=True)]
    return {launch.id: us for both, us in zip(changing, longer, strict=True) for launch in both if us >= LEAST_GAIN_US}


@lru_cache(maxsize=2)
def _layer_model(predictor: Hashable) -> LayerModel | None:
    return layer_model.load(getattr(getattr(predictor, "weights", None), "silicon", {}))


def _latency(cost: Cost, source: str) -> Latency:
    return Latency(us=cost.us, origin="predicted", source=source, low_us=cost.low_us, high_us=cost.high_us, coverage=0.8)


def weighed(actions: tuple[Action, ...], layers: Sequence[LayerReport], measured: Set[str]) -> list[Action]:
    """The actions, those that change configurations with what the layers gain by it.

    `measured` are the launches with a latency of their own: what is left to them is known better than the layer, which is predicted.
    """
    out = []
    for action in actions:
        touched = changed_layers(layers, action.launches, measured)
        now, then = layers_gain(touched)
        if action.rule is None and action.origin == "predicted" and touched:
            layer = phrase(
                "action.layers" if touched[0].routing else "action.linears",
                count=len(touched),
                now=microseconds(now),
                then=microseconds(then),
            )
            action = replace(action, detail=" ".join(filter(None, (action.detail, layer, phrase("action.doubt") if then >= now else ""))))
            if now > then:
                action = replace(action, saving_us=now - then, layers_us=now)
        out.append(action)
    return out


def _gain(ran: Sequence[Latency | None], after: Sequence[Latency | None]) -> float | None:
    """How many times as long products take after a change as they ran before it, all predicted; None where not all are."""
    known = [latency.us for latency in (*ran, *after) if latency is not None and latency.origin == "predicted"]
    return sum(known[len(ran) :]) / sum(known[: len(ran)]) if len(known) == len(ran) + len(after) else None


def _by_both(now: Cost, then: Cost, gain: float | None) -> Cost:
    """A layer after its configuration changed: the mean of two predictions, where both are known.

    One is `then`, of the model of whole layers, which learned from defaults and sees 0.57 of what measured products of an H100 gain from
    2,048 tokens on. The other is the layer as it runs `now` with products that take `gain` times as long, which sees 0.54 to 0.67 of
    what whole layers gain between two stacks' defaults. Their mean sees 0.71 to 0.98 of either (`tests/bench/layer_gains.py`).
    """
    if gain is None:
        return then
    products = sum(us for name, us in now.parts if name in GEMM_OF_LAYER)
    us = max(float(np.sqrt(then.us * (now.us - products * (1 - gain)))), then.bound_us)
    factor = us / then.us
    return replace(then, us=us, low_us=then.low_us * factor, high_us=then.high_us * factor, ceiling_us=min(then.ceiling_us, us))


def _of_products(cost: Cost, products: Sequence[Latency | None]) -> Cost:
    """A layer whose products take what is predicted of them alone, where they can launch, and the rest what it does in `cost`."""
    known = [latency for latency in products if latency is not None]
    if len(known) < len(products):
        return cost
    rest = tuple((name, us) for name, us in cost.parts if name not in GEMM_OF_LAYER)
    alone = tuple(zip(GEMM_OF_LAYER, (latency.us for latency in known), strict=True))
    us, low, high = (
        sum(item) + sum(part for _, part in rest)
        for item in zip(*((latency.us, latency.low_us or latency.us, latency.high_us or latency.us) for latency in known), strict=True)
    )
    least = max(us, cost.bound_us)
    return replace(cost, us=least, low_us=max(low, cost.bound_us), high_us=max(high, least), ceiling_us=least, parts=(*alone, *rest))


def _kind(problem: Problem, gpu: GpuSpec) -> int | None:
    """How operands are stored; None where none of the kind was learned, or the GPU lacks the matrix units of all that were."""
    return kind_of(problem.dtype, problem.weight_dtype, problem.block_shape) if gpu.supports("bf16") else None


def _version(model: LayerModel, target: Target) -> float:
    """Of the target's stack: the one asked for, or the newest that was measured."""
    return version_number(target.stack_version or "") or model.newest(target.gpu.name, target.stack == "sglang")


def _layers(problems: Sequence[Problem], kind: int, target: Target, version: float, ranks: int = 1) -> tuple[Layers, token_draws.Loads]:
    """The layers of these problems, whose experts are spread over so many `ranks`, as this version of the target's stack launches them, and
    the loads of their experts."""
    size = {name: np.array([float(problem.sizes[name]) for problem in problems]) for name in ("M", "E", "topk", "H", "N")}
    drawn = problems[0].distribution
    drawn_as = token_draws.BALANCED if drawn is None else token_draws.exponent(drawn)
    layers = layers_of(size, kind, target.stack == "sglang", version, drawn_as, ranks=ranks)
    loads = token_draws.loads(layers.tokens, layers.experts, layers.topk, layers.ranks, layers.routing)
    routing = problems[0].routing
    if routing is not None:
        given = np.array([token_draws.of_histogram(routing, slots) for slots in size["M"] * size["topk"]])
        loads = token_draws.Loads(slots=given[:, 0], used=given[:, 1], least_used=given[:, 2], hottest=given[:, 3], blocks=given[:, 4:])
    return layers, loads


def _costs(
    model: LayerModel, layers: Layers, loads: token_draws.Loads, target: Target, configurations: Sequence[Configuration | None], cold: bool
) -> list[Cost]:
    return costs_of_layers(model.launched(layers, target.gpu, _columns(configurations), loads), model, cold)


def _columns(configurations: Sequence[Configuration | None]) -> dict[str, np.ndarray]:
    """The configurations by the names of `FIELDS`, [n] each."""
    some = [configuration for configuration in configurations if configuration is not None]
    rows = [[*(item.parameters.get(name, 1) for name in FIELDS[:4]), item.num_warps, item.num_stages] for item in some]
    return dict(zip(FIELDS, np.array(rows, dtype=float).T, strict=True))
