"""The library reference of a layer: what the best library kernel takes for it, and what changing to that backend saves."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.advising.targets import Target
from advisor.diagnosis.actions import MOST
from advisor.diagnosis.rule import microseconds
from advisor.result.schema import Action, Latency, LayerReport
from advisor.system.errors import several

WORTH_A_BACKEND = 1.1
"""A change of backend is advised where the library is so much faster than the best configuration: errors of whole layers, on models that
were left out, are of this size (`advisor train --library` prints them)."""


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
    name = "SGLang" if stack == "sglang" else "vLLM"
    return f"({name} " in library.source or library.source.startswith(f"{name} ")


def stack_of(target: Target) -> str:
    """Whose layers a target's are: vLLM's unless SGLang's are asked for."""
    return "sglang" if target.stack == "sglang" else "vllm"
