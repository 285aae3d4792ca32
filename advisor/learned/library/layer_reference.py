"""The library reference of a mixture-of-experts layer: what the best library kernel takes for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.learned.layers.moe_layer import KINDS, MXFP4, Layers, nemotron
from advisor.learned.library import moe_kernels, moe_layers, series_model
from advisor.learned.library.moe_kernels import LEAST_MODELS, LibraryLayers
from advisor.learned.library.moe_layers import NAMES, MoeLayers
from advisor.pipelines import Array
from advisor.pipelines.token_draws import Loads
from advisor.result.schema import Latency

GPT_OSS_HIDDEN = 2880
"""H of gpt-oss, of which mxfp4 weights were measured, by most kernels of it alone: these answer for its layers."""


def library_of_layers(
    layers: Layers, loads: Loads, gpu: GpuSpec, stack: str, cold: bool, form: str = "", triton_us: Sequence[float] = ()
) -> list[Latency | None]:
    """What the fastest library kernel takes for each layer, measured or not on the GPU: of its own stack where one was measured there that
    is faster than Triton's kernels, else of any. None where no library was measured with the format.

    FlashInfer CUTLASS as vLLM 0.24 runs it in fp8 with a scale per tensor on Hopper takes four to eight times as long as Triton's kernels
    or as CUTLASS in TensorRT-LLM, of every model measured: it is no reference there.

    Args:
        layers: As the stack launches them with its Triton kernels.
        loads: Of their experts.
        gpu: Where.
        stack: vllm or sglang.
        cold: Whether the bound is that of layers of which nothing is in the L2 when they begin.
        form: Of `moe_layers.NAMES`, where they are not stored as the kind of `layers` says.
        triton_us: What Triton's kernels take for each; empty: its own stack's library is asked for, however slow.
    """
    model = moe_kernels.load_shipped(gpu)
    if not form and int(layers.kind[0]) >= len(KINDS):
        return [None] * len(layers)
    form = form or KINDS[int(layers.kind[0])]
    if model is None or (layers.ranks > 1).any() or form not in NAMES or not model.answers_for(gpu):
        return [None] * len(layers)
    of_measured = KINDS[MXFP4] == form and bool((layers.hidden == GPT_OSS_HIDDEN).all())
    gated = not bool(nemotron(layers.hidden, layers.topk).all())
    places = model.candidates(form, gpu, 1 if of_measured else LEAST_MODELS, gated=gated)
    candidates = [(model.series[i].stack != stack, _latencies(model, i, layers, loads, form, gpu, cold)) for i in places]
    if not candidates:
        return [None] * len(layers)
    most = triton_us or [np.inf] * len(layers)
    return [
        min((other or its[i].us >= us, its[i].us, n, its[i]) for n, (other, its) in enumerate(candidates))[-1] for i, us in enumerate(most)
    ]


def bound_of_layers(layers: Layers, loads: Loads, form: str, gpu: GpuSpec) -> tuple[Array, NDArray[np.str_]]:
    """Lower bounds in microseconds of layers stored in a format of `moe_layers.NAMES`, [n], with nothing in the L2 when they begin, and the
    pipeline of each."""
    return moe_layers.bound(_stored_as(layers, loads, form, layers.ungated), gpu, cold=True)


def _stored_as(layers: Layers, loads: Loads, form: str, ungated: NDArray[np.bool_]) -> MoeLayers:
    return MoeLayers(
        tokens=layers.tokens,
        experts=layers.experts,
        topk=layers.topk,
        hidden=layers.hidden,
        inner=layers.inner,
        ungated=ungated,
        form=np.full(len(layers), NAMES.index(form)),
        loads=loads,
        alpha=np.maximum(layers.routing, 0.0),
    )


def _latencies(model: LibraryLayers, place: int, layers: Layers, loads: Loads, form: str, gpu: GpuSpec, cold: bool) -> list[Latency]:
    series, ones = model.series[place], np.ones(len(layers))
    version = ones * series_model.number(series.version)
    kernel, whose = (np.full(len(layers), text) for text in (series.kernel, series.stack))
    moe = _stored_as(layers, loads, form, moe_layers.ungated(layers.hidden, layers.topk, kernel, whose, version))
    prediction = model.predict(moe, np.full(len(layers), place), gpu)
    least, _ = moe_layers.bound(moe, gpu, cold=cold)  # as that of the layer beside it
    source = series.words if prediction.seen else f"{series.words}; never measured on {gpu.name}"
    return [
        Latency(us=max(us, low_us), origin="predicted", source=source, low_us=max(low, low_us), high_us=max(high, low_us), coverage=0.8)
        for us, low, high, low_us in zip(
            *(item.tolist() for item in (prediction.us, prediction.low_us, prediction.high_us, least)), strict=True
        )
    ]
