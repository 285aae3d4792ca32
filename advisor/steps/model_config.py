"""What a Hugging Face `config.json` says of the kernels that a model launches. Nothing of the model is imported or run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from advisor.steps.mixers import SPARSE, Recurrence, SparseAttention, as_pattern, recurrence, sparse_attention, unpriced
from advisor.system.errors import InputError, UsageError, shorten
from advisor.tables.models import find_model, stored_as

ALIASES: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "kv_n_heads", "multi_query_group_num", "num_attention_groups"),
    "head_dim": ("head_dim", "kv_channels", "attention_head_dim"),
    "intermediate": ("intermediate_size_mlp", "dense_intermediate_size", "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "top_k": ("num_experts_per_tok", "moe_top_k", "moe_topk", "moe_k", "top_k_experts", "num_experts_per_token"),
    "expert_intermediate": ("moe_intermediate_size", "expert_intermediate_size"),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"),
    "shared_intermediate": ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"),
    "dense_layers": ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"),
    "activation": ("hidden_act", "activation_function", "hidden_activation", "ffn_act_fn"),
}
"""What a size is called, by who wrote the configuration."""

NO_GATE = ("bert", "gpt2", "opt", "gptj", "gpt_neox", "falcon", "bloom", "phi", "roberta", "starcoder2", "nemotron", "nemotron_h")
"""Model types whose MLP is two matrices with an activation between them; others multiply it with a gate (SwiGLU)."""
LAYER_NORM = ("bert", "gpt2", "opt", "gptj", "gpt_neox", "falcon", "bloom", "phi", "phimoe", "roberta", "starcoder2", "dbrx", "cohere")
QK_NORM = (
    "qwen3",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_5_text",
    "qwen3_5_moe_text",
    "gemma3",
    "gemma3_text",
    "gemma4",
    "gemma4_text",
    "olmoe",
    "olmo2",
    "minimax_m2",
    "hunyuan_v1_moe",
)
"""Model types that normalise queries and keys, always; others where `use_qk_norm` says so."""
FOUR_NORMS = ("gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text", "grok-1", "grok_1")
"""Model types that also normalise what attention and MLP give back."""
ENCODERS = ("bert", "roberta")
KNOWN_LAYERS = ("full_attention", "sliding_attention", "attention", "chunked_attention")

SPARSE_KEYS = ("index_topk", "index_n_heads", "sparse_attention_config", "compress_ratios")
"""Keys of attention to chosen keys: predicted of the models that `mixers.SPARSE` lists."""

UNKNOWN: dict[str, tuple[str, ...]] = {
    "a state-space scan (Mamba)": (
        "mamba_d_state",
        "mamba_n_heads",
        "mamba_num_heads",
        "ssm_state_size",
        "mamba",
        "mamba2",
        "falcon_mamba",
    ),
    "a recurrence (RWKV)": ("attention_hidden_size", "rwkv"),
    "lightning attention": ("attn_type_list", "layernorm_linear_attention_alpha"),
    "a short convolution": ("conv_L_cache",),
    "layers that differ from one another": ("block_configs",),
    "cross attention of an encoder": ("decoder_layers", "num_decoder_layers", "is_encoder_decoder"),
}
"""Operators no model of ours predicts, by the keys or the model types that betray them."""
LEFT_OUT = {"gemma3_text": {"vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}}
"""Sizes that published configurations of a model type leave to the defaults of `transformers`."""


FOUR_BITS = ("mxfp4", "nvfp4")
"""Formats of four bits: mxfp4 with activations of 16, nvfp4 with activations of four, where the GPU multiplies such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of experts: of `layers` layers, each with a router and experts of `intermediate`; `shared` is the intermediate size of
    the experts that see every token, together; `stored`: of `FOUR_BITS`, where their weights have four bits and the other products have
    not; `hidden`: what the routed experts take and give, where it is not the model's: two more projections lie around them."""

    count: int
    top_k: int
    intermediate: int
    layers: int
    shared: int = 0
    gated: bool = True
    stored: str = ""
    hidden: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (MLA): ranks and head sizes as DeepSeek's configurations name them; `query_rank` 0: not compressed."""

    query_rank: int
    kv_rank: int
    nope: int
    rope: int
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A transformer, sizes of the whole model before any split.

    `window`, where it is not None, limits the keys that a query of `windowed` of the layers sees. `recurrence`: layers with a state in
    place of attention; `sparse`: layers that attend to chosen keys; `output_gate`: attention's result is multiplied with a gate; `mixers`:
    layers of attention and of dense MLPs, where each layer is one or the other. `unpriced`: what else a step has, in words.
    """

    name: str
    model_type: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    activation: str
    gated: bool
    norm: str
    norms_per_layer: int
    qk_norm: bool
    causal: bool
    tied: bool
    window: int | None = None
    windowed: int = 0
    experts: Experts | None = None
    latent: LatentAttention | None = None
    recurrence: Recurrence | None = None
    sparse: SparseAttention | None = None
    output_gate: bool = False
    mixers: tuple[int, int] | None = None
    unpriced: tuple[str, ...] = ()
    dtype: str = "bf16"
    block_shape: tuple[int, int] | None = None

    @property
    def dense_layers(self) -> int:
        """Layers whose MLP is no mixture."""
        return self.mixers[1] if self.mixers else self.layers - (self.experts.layers if self.experts else 0)

    @property
    def attention_layers(self) -> int:
        """Layers with attention to all keys, or all of a window."""
        if self.mixers:
            return self.mixers[0]
        return self.layers - (self.recurrence.layers if self.recurrence else 0) - (self.sparse.layers if self.sparse else 0)

    @property
    def norms(self) -> int:
        """Norms of all layers: where a layer is either attention or an MLP, one of each."""
        return self.layers * (1 if self.mixers else self.norms_per_layer)

    @property
    def cached_layers(self) -> int:
        """Layers with a KV cache."""
        return self.attention_layers + (self.sparse.layers if self.sparse else 0)

    @property
    def kv_bytes_per_layer(self) -> int:
        """What a token leaves in the cache of one of them, 2 bytes a value."""
        return 2 * (self.latent.kv_rank + self.latent.rope if self.latent else 2 * self.kv_heads * self.head_dim)


def load_architecture(name: str) -> Architecture:
    """The architecture of a `config.json` (its path, or that of the folder it lies in) or of a bundled name.

    Raises:
        InputError: The file is no such configuration, or needs an operator that nothing here predicts.
        UsageError: No such file or name.
    """
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json" or path.is_file():
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            quantised = path.with_name("hf_quant_config.json")  # as ModelOpt writes it beside the configuration
            quantisation = json.loads(quantised.read_text(encoding="utf-8")) if quantised.is_file() else {}
        except FileNotFoundError:
            raise UsageError(f"{name}: no such file", None, "a config.json or a bundled name", "check the path") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name}: no JSON ({shorten(str(error))})", None, "a Hugging Face config.json", None) from None
        if not isinstance(values, dict):
            raise InputError(f"{name}: a configuration", type(values).__name__, "a JSON object", None)
        values.setdefault("quantization_config", quantisation.get("quantization"))
        return architecture(values, path.parent.name if path.stem == "config" and path.parent.name else path.stem)
    source = _find(name)
    return _stored_as_named(architecture(bundled()[source], source), name)


@cache
def bundled() -> dict[str, dict[str, Any]]:
    """The configurations that come with the advisor, by name: the keys of the published `config.json` that decide a step."""
    models: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "models.json").read_text(encoding="utf-8"))
    return models


def _find(name: str) -> str:
    """The bundled name that is meant; case, organisation, separators and what follows a whole name (`-Instruct`) do not matter."""

    def plain(text: str) -> str:
        return re.sub(r"[^a-z0-9]", "", text.rsplit("/", 1)[-1].lower())

    known = {plain(item): item for item in bundled()}
    wanted = plain(name)
    fits = [item for item in known if wanted == item or (len(item) >= 6 and wanted.startswith(item))]
    if fits:
        return known[max(fits, key=len)]
    try:
        model = find_model(name).name
    except UsageError as error:
        raise UsageError(
            "unknown model", name, "a config.json or a bundled name, such as " + ", ".join(list(bundled())[:4]), "give its config.json"
        ) from error
    if model not in bundled():
        raise UsageError(f"{model}: only the sizes of its experts are known", None, "its config.json", "download it and name the file")
    return model


def _stored_as_named(model: Architecture, name: str) -> Architecture:
    """A bundled model with its weights stored as the name says.

    Raises:
        UsageError: Such weights are not predicted.
    """
    form, block = stored_as(name)
    if form in FOUR_BITS:
        return with_experts_in(model, form)
    if form and form != "fp8":
        raise UsageError(f"{name}: weights in {form} are not predicted", form, f"fp8, {', '.join(FOUR_BITS)} or none of them", None)
    if not form or model.dtype == "fp8":
        return model
    return replace(model, dtype="fp8", block_shape=block)


def architecture(values: Mapping[str, Any], name: str) -> Architecture:
    """The architecture of a configuration's values.

    Raises:
        InputError: A size is missing or no positive number, or a layer needs an operator that nothing here predicts.
    """
    seen = any(isinstance(values.get(key), dict) for key in ("vision_config", "audio_config"))
    for nested in ("text_config", "llm_config", "language_config"):
        if isinstance(values.get(nested), dict):  # of a model that sees or hears: its language model
            values = {**{key: values[key] for key in ("quantization_config", "tie_word_embeddings") if key in values}, **values[nested]}
    values = as_pattern({**LEFT_OUT.get(str(values.get("model_type")), {}), **values})
    flat = {**values, **{k: v for part in ("ffn_config", "attn_config") for k, v in (values.get(part) or {}).items()}}
    _refuse_unknown(flat, name)
    kind = str(flat.get("model_type", "")).lower()

    def size(key: str, default: int | None = None) -> int:
        for alias in ALIASES[key]:
            value = flat.get(alias)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
            if value is not None and value != 0 and not isinstance(value, list):
                raise InputError(f"{name}: {alias}", value, "a positive whole number", "correct the configuration")
        if default is None:
            raise InputError(f"{name}: no {ALIASES[key][0]}", None, "the sizes of a transformer", "give the model's own config.json")
        return default

    hidden, layers, heads = size("hidden"), size("layers"), size("heads")
    intermediate = size("intermediate", 4 * hidden)
    gated = kind not in NO_GATE
    windows = flat.get("sliding_window") if flat.get("use_sliding_window", True) else None
    windowed = _windowed(flat, layers) if windows else 0
    dtype, block = _types(flat, name)
    experts = _experts(flat, size, layers, intermediate, gated)
    if experts is None and (four_bits := _four_bits(flat.get("quantization_config") or {})):
        limit = "bf16, fp16, fp32 or fp8, or experts of four bits"
        raise InputError(
            f"{name}: products in {four_bits} are not predicted", four_bits, limit, "give the config.json of the model that was quantised"
        )
    pattern = str(flat.get("hybrid_override_pattern") or "") if kind == "nemotron_h" else ""
    return Architecture(
        name=name,
        model_type=kind,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=size("kv_heads", heads),
        head_dim=size("head_dim", hidden // heads),
        intermediate=intermediate,
        vocabulary=size("vocabulary"),
        activation=_activation(flat),
        gated=gated,
        norm="layer_norm" if kind in LAYER_NORM else "rms_norm",
        norms_per_layer=4 if kind in FOUR_NORMS else 2,
        qk_norm=kind in QK_NORM or bool(flat.get("use_qk_norm")),
        causal=kind not in ENCODERS,
        tied=bool(flat.get("tie_word_embeddings", False)),
        window=int(windows) if windows and windowed else None,
        windowed=windowed,
        experts=experts,
        latent=_latent(flat),
        recurrence=recurrence(flat, layers),
        sparse=sparse_attention(flat, layers),
        output_gate=bool(flat.get("attn_output_gate") or flat.get("mla_use_output_gate") or kind == "qwen3_next"),
        mixers=(pattern.count("*"), pattern.count("-")) if pattern else None,
        unpriced=(*unpriced(flat), *(("the tower that sees or hears",) if seen else ())),
        dtype=dtype,
        block_shape=block,
    )


def _refuse_unknown(values: Mapping[str, Any], name: str) -> None:
    kind = values.get("model_type")
    if kind not in SPARSE and any(values.get(key) for key in SPARSE_KEYS):
        operator = "sparse attention by an indexer"
        known = f"that of {', '.join(SPARSE)}"
        raise InputError(f"{name}: needs an operator that is not predicted: {operator}", None, known, None)
    if kind == "nemotron_h" and values.get("hybrid_override_pattern"):
        return
    if all(values.get("attn_type_list") or ()):  # 1 is attention
        values = {**values, "attn_type_list": None}
    unknown = next((operator for operator, keys in UNKNOWN.items() if kind in keys or any(values.get(key) for key in keys)), None)
    layer_types = values.get("layer_types") or values.get("layers_block_type") or ()
    layers = {*KNOWN_LAYERS, *(["linear_attention"] if values.get("linear_num_value_heads") else [])}
    strange = sorted({str(item) for item in layer_types} - layers)
    if unknown is None and strange:
        unknown = f"a layer of type {strange[0]}"
    if unknown is not None:
        raise InputError(
            f"{name}: needs an operator that is not predicted: {unknown}", None, "attention, dense or mixture-of-experts MLPs", None
        )


def _windowed(values: Mapping[str, Any], layers: int) -> int:
    """Of how many layers the queries see a window alone."""
    kinds = values.get("layer_types")
    if kinds:
        return sum(kind in ("sliding_attention", "chunked_attention") for kind in kinds)
    if isinstance(values.get("hybrid_layer_pattern"), list):
        return sum(values["hybrid_layer_pattern"])
    pattern = values.get("sliding_window_pattern") or {"gemma2": 2, "gemma3": 6, "gemma3_text": 6}.get(str(values.get("model_type")))
    if pattern:
        return layers - layers // int(pattern)
    full = values.get("max_window_layers")
    return layers if full is None else max(layers - int(full), 0)


def _types(values: Mapping[str, Any], name: str) -> tuple[str, tuple[int, int] | None]:
    """Type of the products' operands, and the block of weights that share a scale."""
    stored = values.get("quantization_config") or {}
    method = str(stored.get("quant_algo") or stored.get("quant_method", "")).lower()
    if method in ("fp8", "fbgemm_fp8") or (method == "compressed-tensors" and '"float"' in json.dumps(stored)):
        block = stored.get("weight_block_size")
        return "fp8", tuple(block) if block else None
    if method and not _four_bits(stored):
        raise InputError(
            f"{name}: quantization {method} is not predicted",
            method,
            "bf16, fp16, fp32 or fp8",
            "give the config.json of the model that was quantised",
        )
    kind = str(values.get("torch_dtype") or values.get("dtype") or "bfloat16").removeprefix("torch.")
    return {"float16": "fp16", "float32": "fp32"}.get(kind, "bf16"), None


def _four_bits(stored: Mapping[str, Any]) -> str:
    """As which of `FOUR_BITS` weights are stored: by gpt-oss's method, by ModelOpt's, or packed by compressed-tensors; empty where not."""
    written = [str(stored.get(key, "")).lower() for key in ("quant_method", "quant_algo", "format")]
    return next((form for form in FOUR_BITS if any(text.startswith(form) for text in written)), "")


def with_experts_in(model: Architecture, stored: str) -> Architecture:
    """The model with the weights of its experts stored as one of `FOUR_BITS`, and its other products in 16 bits.

    Raises:
        UsageError: It has no experts.
    """
    if model.experts is None:
        raise UsageError(
            f"{model.name} in {stored}", "a model without experts", "products of four bits were measured of experts alone", None
        )
    return replace(model, experts=replace(model.experts, stored=stored), dtype="bf16", block_shape=None)


def _activation(values: Mapping[str, Any]) -> str:
    named = next((values[key] for key in ALIASES["activation"] if values.get(key)), "silu")
    text = str(named.get("name") if isinstance(named, Mapping) else named).lower()
    return "gelu" if "gelu" in text else "relu" if "relu" in text else "silu"


def _experts(values: Mapping[str, Any], size: Any, layers: int, intermediate: int, gated: bool) -> Experts | None:
    count = size("experts", 1)
    if count == 1:
        return None
    expert_intermediate = size("expert_intermediate", intermediate)
    if values.get("model_type") in ("llama4_text", "llama4"):
        expert_intermediate = int(values["intermediate_size"])
    shared = size("shared_intermediate", 0) if any(values.get(key) for key in ALIASES["shared_intermediate"]) else 0
    if not shared:
        shared = expert_intermediate * next((int(values[key]) for key in ALIASES["shared_experts"] if isinstance(values.get(key), int)), 0)
    if not shared and values.get("model_type") in ("llama4_text", "llama4"):
        shared = expert_intermediate
    dense = next((int(values[key]) for key in ALIASES["dense_layers"] if isinstance(values.get(key), int)), 0)
    frequency = values.get("moe_layer_freq")
    step = values.get("interleave_moe_layer_step") or values.get("decoder_sparse_step") or values.get("expert_layer_period") or 1
    if isinstance(frequency, list):
        routed = sum(map(bool, frequency))
    else:
        routed = (layers - dense) // int(step) - len(values.get("mlp_only_layers") or ())
    pattern = str(values.get("hybrid_override_pattern") or "")
    routed = pattern.count("E") if pattern else routed
    stored = _four_bits(values.get("quantization_config") or {})
    hidden = int(values.get("routed_expert_hidden_size") or values.get("moe_latent_size") or 0)
    return Experts(
        count=count,
        top_k=size("top_k", 1),
        intermediate=expert_intermediate,
        layers=routed,
        shared=shared,
        gated=gated,
        stored=stored,
        hidden=hidden,
    )


def _latent(values: Mapping[str, Any]) -> LatentAttention | None:
    rank = values.get("kv_lora_rank")
    if not rank:
        return None
    return LatentAttention(
        query_rank=int(values.get("q_lora_rank") or 0),
        kv_rank=int(rank),
        nope=int(values["qk_nope_head_dim"]),
        rope=int(values["qk_rope_head_dim"]),
        value=int(values["v_head_dim"]),
    )
