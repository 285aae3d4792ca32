"""What one step is asked to do, over how many GPUs it is split, and whether it fits their memory."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines.batch import ELEMENT_BYTES
from advisor.result.step import Memory
from advisor.steps.model_config import Architecture
from advisor.system.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The sequences of one step. `prompts`: (new tokens, keys they see at the end) of those that are prefilled; `contexts`: the keys
    that the one new token of each decoding sequence sees."""

    prompts: tuple[tuple[int, int], ...] = ()
    contexts: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens that pass the layers in this step."""
        return sum(new for new, _ in self.prompts) + len(self.contexts)

    @property
    def sequences(self) -> int:
        """Sequences in the step, of each of which one token is sampled."""
        return len(self.prompts) + len(self.contexts)

    def keys(self, window: int | None = None) -> int:
        """Tokens that a layer's KV cache holds in this step: of one that sees a `window`, no more than that before the new ones, which is
        what vLLM's and SGLang's caches keep of such layers."""
        sequences = self.prompts + tuple((1, context) for context in self.contexts)
        return sum(keys if window is None else min(keys, window + new) for new, keys in sequences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """GPUs that the model is spread over: `tensor` ranks share every layer, `pipeline` stages share the layers; with `experts`, the
    tensor ranks hold whole experts instead of a slice of each."""

    tensor: int = 1
    pipeline: int = 1
    experts: bool = False

    def check(self, model: Architecture) -> None:
        """Raises:
        UsageError: The engines refuse the split.
        """
        sizes = [("query heads", model.heads), ("intermediate size", model.intermediate)]
        sizes += [("heads with a state", model.recurrence.value_heads)] if model.recurrence else []
        for what, size in sizes:
            if size % self.tensor:
                raise UsageError(f"--tp does not divide the {what} of {model.name}", self.tensor, f"a divisor of {size}", "another --tp")
        if model.latent is None and self.tensor % model.kv_heads and model.kv_heads % self.tensor:
            raise UsageError(
                f"--tp and the KV heads of {model.name} do not go into each other",
                self.tensor,
                f"a divisor or a multiple of {model.kv_heads}",
                "another --tp",
            )
        if model.experts and self.experts and model.experts.count % self.tensor:
            raise UsageError(
                f"--ep does not divide the experts of {model.name}", self.tensor, f"a divisor of {model.experts.count}", "another --tp"
            )
        if self.pipeline > model.layers:
            raise UsageError(f"--pp is more than the layers of {model.name}", self.pipeline, f"at most {model.layers}", "another --pp")


def memory(model: Architecture, load: Load, split: Split, gpu: GpuSpec, dtype: str | None = None, *, training: bool = False) -> Memory:
    """Bytes on the fullest rank: weights, KV cache and the states of layers that have one; `training`: weights, their gradients and the
    activations that backward needs, without those of unfused operators. Workspaces, CUDA graphs and an optimiser are not counted."""
    stages = -(-model.layers // split.pipeline) / model.layers
    width = ELEMENT_BYTES[dtype or model.dtype]
    plain = ELEMENT_BYTES["fp32"] if (dtype or model.dtype) == "fp32" else 2
    experts = expert_parameters(model)
    weight_bytes = ELEMENT_BYTES[model.experts.stored] if model.experts and model.experts.stored else width
    layers = ((parameters(model) - experts) * width + experts * weight_bytes) / split.tensor * stages
    embeddings = model.vocabulary * model.hidden * plain / split.tensor * (1 if model.tied or split.pipeline > 1 else 2)
    heads = max(model.kv_heads // split.tensor, 1) / model.kv_heads if model.latent is None else 1.0
    if training:
        cache_bytes = model.layers * stages * _kept_bytes(model, load, split.tensor, plain)
        return Memory(weights_bytes=2 * (layers + embeddings), kv_bytes=0.0, gpu_bytes=float(gpu.dram_bytes), activations_bytes=cache_bytes)
    cached = (model.cached_layers - model.windowed) * load.keys() + model.windowed * load.keys(model.window)
    return Memory(
        weights_bytes=layers + embeddings,
        kv_bytes=cached * model.kv_bytes_per_layer * plain / 2 * heads * stages,
        state_bytes=load.sequences * model.recurrence.state_bytes / split.tensor * stages if model.recurrence else 0.0,
        gpu_bytes=float(gpu.dram_bytes),
    )


def _kept_bytes(model: Architecture, load: Load, ranks: int, width: float) -> float:
    """Activations that a layer keeps for backward, by Korthikanti et al. (arXiv 2205.05198, equation 2), whose values have two bytes and
    whose dropout masks one: 10 of their 34 bytes a token and hidden value are not split among ranks."""
    longest = max(new for new, _ in load.prompts)
    tokens = len(load.prompts) * longest
    values = tokens * model.hidden * (width * (4 + 12 / ranks) + 2)
    return values + tokens * longest * model.heads / ranks * (2 * width + 1)


def parameters(model: Architecture) -> float:
    """Weights of all layers, without the embeddings."""
    if model.latent is not None:
        latent = model.latent
        query = model.heads * (latent.nope + latent.rope)
        queries = latent.query_rank * (model.hidden + query) if latent.query_rank else model.hidden * query
        attention = queries + model.hidden * (latent.kv_rank + latent.rope) + model.heads * latent.kv_rank * (latent.nope + latent.value)
        attention += model.heads * latent.value * model.hidden
    else:
        attention = model.hidden * model.head_dim * 2 * (model.heads + model.kv_heads)
    matrices = 3 if model.gated else 2
    attending = model.attention_layers + (model.sparse.layers if model.sparse else 0)
    if model.output_gate:
        attention += model.hidden * model.heads * (model.latent.value if model.latent else model.head_dim)
    total = attending * attention + model.dense_layers * matrices * model.hidden * model.intermediate
    if model.experts:
        total += model.experts.layers * matrices * model.hidden * model.experts.shared
        total += model.experts.layers * 2 * model.hidden * model.experts.hidden
    if model.recurrence:
        per_layer = sum(columns * depth for columns, depth in model.recurrence.matrices(model.hidden).values())
        total += model.recurrence.layers * per_layer
    return float(total) + expert_parameters(model)


def expert_parameters(model: Architecture) -> float:
    """Those of the routed experts."""
    moe = model.experts
    return float(moe.layers * moe.count * (moe.hidden or model.hidden) * (3 if moe.gated else 2) * moe.intermediate) if moe else 0.0
