"""The library reference of a layer: what the best library kernel takes for it, and what changing to that backend saves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.advising.targets import Target
from advisor.diagnosis.actions import MOST
from advisor.diagnosis.rule import microseconds
from advisor.learned.library import moe_kernels, moe_layers
from advisor.learned.library.moe_kernels import LibraryLayers
from advisor.learned.library.moe_layers import NAMES, MoeLayers
from advisor.pipelines.token_draws import Loads
from advisor.result.schema import Action, Latency, LayerReport
from advisor.steps.moe_layer import KINDS, Layers, nemotron
from advisor.system.errors import several

WORTH_A_BACKEND = 1.1
"""A change of backend is advised where the library is so much faster than the best configuration: errors of whole layers, on models that
were left out, are of this size (`advisor train --library` prints them)."""


def library_of_layers(layers: Layers, loads: Loads, target: Target, cold: bool) -> list[Latency | None]:
    """What the fastest library kernel takes for each layer, measured or not on the target's GPU: of its own stack where one was measured
    there, else of any. None where no library was measured with the format.

    Args:
        layers: As the stack launches them with its Triton kernels.
        loads: Of their experts.
        target: Names the GPU and the stack.
        cold: Whether the bound is that of layers of which nothing is in the L2 when they begin.
    """
    model = moe_kernels.load_shipped()
    form = KINDS[int(layers.kind[0])]
    if model is None or (layers.ranks > 1).any() or form not in NAMES or not model.answers_for(target.gpu):
        return [None] * len(layers)
    found = model.candidates(form, target.gpu)
    found = [i for i in found if "nongated" not in model.series[i].kernel or without_gate(layers)]
    found = [i for i in found if model.series[i].stack == stack_of(target)] or found
    told = [_latencies(model, i, layers, loads, form, target, cold) for i in found]
    return [min(each, key=lambda latency: latency.us) for each in zip(*told, strict=True)] if told else [None] * len(layers)


def _latencies(model: LibraryLayers, place: int, layers: Layers, loads: Loads, form: str, target: Target, cold: bool) -> list[Latency]:
    series, ones = model.series[place], np.ones(len(layers))
    version = ones * moe_kernels.number(series.version)
    kernel, stack = (np.full(len(layers), text) for text in (series.kernel, series.stack))
    asked = MoeLayers(
        tokens=layers.tokens,
        experts=layers.experts,
        topk=layers.topk,
        hidden=layers.hidden,
        inner=layers.inner,
        ungated=moe_layers.ungated(layers.hidden, layers.topk, kernel, stack, version),
        form=np.full(len(layers), NAMES.index(form)),
        loads=loads,
        alpha=np.maximum(layers.routing, 0.0),
    )
    told = model.predict(asked, np.full(len(layers), place), target.gpu)
    least, _ = moe_layers.bound(asked, target.gpu, cold=cold)
    source = series.words if told.seen else f"{series.words}; never measured on {target.gpu.name}"
    return [
        Latency(us=max(us, low_us), origin="predicted", source=source, low_us=max(low, low_us), high_us=max(high, low_us), coverage=0.8)
        for us, low, high, low_us in zip(*(each.tolist() for each in (told.us, told.low_us, told.high_us, least)), strict=True)
    ]


def with_backend(actions: tuple[Action, ...], layers: Sequence[LayerReport], stack: str) -> tuple[Action, ...]:
    """The actions, with a change of the backend among them where one of the same stack beats what is recommended for the products."""
    faster: dict[str, list[LayerReport]] = {}
    for layer in layers:
        tile = min(each.us for each in (layer.now, layer.recommended) if each is not None)
        if layer.library is not None and _of_stack(layer.library, stack) and layer.library.us * WORTH_A_BACKEND < tile:
            faster.setdefault(layer.library.source, []).append(layer)
    made = []
    for source, its in faster.items():
        now, tile = sum(each.now.us for each in its), sum(min(each.now.us, (each.recommended or each.now).us) for each in its)
        library = sum(each.library.us for each in its if each.library is not None)
        tokens = ", ".join(str(each.tokens) for each in its[:6]) + (", …" if len(its) > 6 else "")
        made.append(
            Action(
                title=f"Change the backend: {source}",
                detail=f"{several(len(its), 'layer')} (M = {tokens}): {microseconds(now)} now, {microseconds(tile)} with the best tiles, "
                f"{microseconds(library)} with this library's kernel, as measured on other models; measure it before you change it",
                saving_us=now - library,
                origin="predicted",
                launches=tuple(launch for each in its for launch in each.launches),
            )
        )
    return tuple(sorted((*actions, *made), key=lambda action: -action.saving_us))[:MOST] if made else actions


def _of_stack(library: Latency, stack: str) -> bool:
    return f"({'SGLang' if stack == 'sglang' else 'vLLM'} " in library.source


def stack_of(target: Target) -> str:
    """Whose layers a target's are: vLLM's unless SGLang's are asked for."""
    return "sglang" if target.stack == "sglang" else "vllm"


def without_gate(layers: Layers) -> bool:
    """Whether these are layers of a model whose activation has no gate."""
    return bool(nemotron(layers.hidden, layers.topk).all())
