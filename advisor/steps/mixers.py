"""Layers that mix tokens by other means than attention to every key: gated delta rules, Kimi delta attention, Mamba2, sparse attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SPARSE = {
    "deepseek_v32": ("dsa", "DeepseekV32ForCausalLM"),
    "glm_moe_dsa": ("dsa", "GlmMoeDsaForCausalLM"),
    "minimax_m3": ("msa", "MiniMaxM3ForCausalLM"),
}
"""Model types whose attention is a sparse module: the publisher's name of it, and of the architecture it was measured with."""

DRAFTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
"""Keys of layers that draft tokens."""


LETTERS = {"mamba": "M", "attention": "*", "moe": "E", "mlp": "-"}
"""Nemotron-H's kinds of layers, and their letters in `hybrid_override_pattern`."""


def as_pattern(values: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of Nemotron-H whose `layers_block_type` names each layer, with the pattern of older ones; others as they are."""
    kinds = values.get("layers_block_type")
    if values.get("model_type") != "nemotron_h" or not kinds or any(kind not in LETTERS for kind in kinds):
        return dict(values)
    named = {"hybrid_override_pattern": "".join(LETTERS[kind] for kind in kinds), "num_hidden_layers": len(kinds)}
    return {**{key: value for key, value in values.items() if key != "layers_block_type"}, **named}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """Layers with a state instead of a cache of keys: `gdn`, `kda` or `mamba2`, sizes of the whole model before any split.

    Mamba2's `key_heads` are its groups and `key_dim` its state size.
    """

    kind: str
    layers: int
    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    conv: int
    chunk: int = 0

    @property
    def channels(self) -> int:
        """Values that the short convolution runs over."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def state_bytes(self) -> float:
        """What a sequence keeps in all layers: the state in fp32, the convolution's last inputs in two bytes a value."""
        return self.layers * (4.0 * self.value_heads * self.key_dim * self.value_dim + 2.0 * self.channels * (self.conv - 1))

    def matrices(self, hidden: int) -> dict[str, tuple[int, int]]:
        """Columns and depth of a layer's projections, by name."""
        inner = self.value_heads * self.value_dim
        if self.kind == "mamba2":
            return {"in_proj": (inner + self.channels + self.value_heads, hidden), "out_proj": (hidden, inner)}
        if self.kind == "kda":
            gates = {"decay_a_proj": (self.key_dim, hidden), "decay_b_proj": (inner, self.key_dim)}
            projections = {
                "qkv_proj": (self.channels, hidden),
                **gates,
                "beta_proj": (self.value_heads, hidden),
                "gate_proj": (inner, hidden),
            }
            return projections | {"out_proj": (hidden, inner)}
        return {
            "in_proj_qkvz": (self.channels + inner, hidden),
            "in_proj_ba": (2 * self.value_heads, hidden),
            "out_proj": (hidden, inner),
        }


def recurrence(values: Mapping[str, Any], layers: int) -> Recurrence | None:
    """The layers of a configuration that have a state; None where it has none."""
    kda = values.get("linear_attn_config")
    if isinstance(kda, Mapping):
        heads, size = int(kda["num_heads"]), int(kda["head_dim"])
        return Recurrence(
            kind="kda",
            layers=len(kda["kda_layers"]),
            key_heads=heads,
            key_dim=size,
            value_heads=heads,
            value_dim=size,
            conv=int(kda.get("short_conv_kernel_size", 4)),
        )
    if values.get("linear_num_value_heads"):
        every = int(values.get("full_attention_interval") or 4)
        kinds = values.get("layer_types")
        return Recurrence(
            kind="gdn",
            layers=sum(kind == "linear_attention" for kind in kinds) if kinds else layers - layers // every,
            key_heads=int(values["linear_num_key_heads"]),
            key_dim=int(values["linear_key_head_dim"]),
            value_heads=int(values["linear_num_value_heads"]),
            value_dim=int(values["linear_value_head_dim"]),
            conv=int(values.get("linear_conv_kernel_dim", 4)),
        )
    if values.get("model_type") == "nemotron_h" and values.get("hybrid_override_pattern"):
        return Recurrence(
            kind="mamba2",
            layers=str(values["hybrid_override_pattern"]).count("M"),
            key_heads=int(values["n_groups"]),
            key_dim=int(values["ssm_state_size"]),
            value_heads=int(values["mamba_num_heads"]),
            value_dim=int(values["mamba_head_dim"]),
            conv=int(values.get("conv_kernel", 4)),
            chunk=int(values.get("chunk_size", 128)),
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseAttention:
    """Attention to chosen keys, as one module with its projections: `dsa` or `msa`, as the publisher names it, and of which model."""

    kind: str
    architecture: str
    layers: int


def sparse_attention(values: Mapping[str, Any], layers: int) -> SparseAttention | None:
    """The layers of a configuration whose attention is a sparse module; None where it has none."""
    reader = SPARSE.get(str(values.get("model_type")))
    if reader is None:
        return None
    pattern = (values.get("sparse_attention_config") or {}).get("sparse_attention_freq")
    return SparseAttention(kind=reader[0], architecture=reader[1], layers=sum(map(bool, pattern)) if pattern else layers)


def unpriced(values: Mapping[str, Any]) -> tuple[str, ...]:
    """What a step has beside the operators that are predicted, in words."""
    mamba2 = values.get("model_type") == "nemotron_h" and "M" in str(values.get("hybrid_override_pattern"))
    parts = (
        (any(values.get(key) for key in DRAFTS), "drafted tokens (multi-token prediction)"),
        (values.get("attn_res_block_size"), "residuals between blocks of layers"),
        (mamba2, "Mamba2's decode beyond reading and writing its state"),
    )
    return tuple(what for present, what in parts if present)
