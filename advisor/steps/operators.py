"""The operators of one step of a transformer, as vLLM and SGLang launch them on one rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from advisor.steps.model_config import Architecture, LatentAttention
from advisor.steps.workload import Load, Split

KINDS = ("gemm", "attention", "moe", "norm", "elementwise", "collective")
"""Groups of operators whose errors on one GPU go together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A kernel (or the few an engine launches for it) that a step launches `count` times: a problem of `pipelines`, of family `published`
    an operator of `learned.operators` with what its columns of `words` hold (of experts how many are shared), or a collective of
    `message_bytes` over `ranks`. Sizes need not be whole: a ragged batch is told as an even one of the same work (`_even`)."""

    name: str
    kind: str
    count: int
    family: str = ""
    op: str = ""
    sizes: Mapping[str, float] = field(default_factory=dict)
    words: tuple[tuple[str, str], ...] = ()
    dtype: str = "bf16"
    block_shape: tuple[int, int] | None = None
    cache: str = "warm"
    message_bytes: float = 0.0
    ranks: int = 1


def step_operators(model: Architecture, load: Load, split: Split, dtype: str | None = None) -> list[Operator]:
    """What one rank launches for one pass of all layers, pipeline stages in sequence.

    Weights and KV cache come from DRAM (`cold`): between two uses of either lies the whole model. What the operator before has written is
    still in the L2, as far as it fits (`warm`).
    """
    products = dtype or model.dtype
    rows = _Rows(model, load, split, products, model.block_shape if products == "fp8" else None)
    operators = [rows.stream("embedding", 1, load.tokens, model.hidden, "copy")]
    if split.tensor > 1:
        operators.append(rows.all_reduce("embedding all-reduce", 1))
    operators += rows.attention_block()
    operators += rows.dense_block()
    operators += rows.expert_block()
    operators.append(rows.norm("final norm", 1, load.sequences, model.hidden))
    operators.append(rows.product("lm_head", 1, load.sequences, -(-model.vocabulary // split.tensor), model.hidden, quantised=False))
    if split.tensor > 1:
        logits = 2.0 * load.sequences * model.vocabulary
        operators.append(
            Operator(name="logits all-gather", kind="collective", count=1, op="all_gather", message_bytes=logits, ranks=split.tensor)
        )
    if split.pipeline > 1:
        hidden = 2.0 * 2 * load.tokens * model.hidden / split.tensor  # hidden states and residual, each rank its share
        operators.append(
            Operator(name="stage to stage", kind="collective", count=split.pipeline - 1, op="send", message_bytes=hidden, ranks=2)
        )
    return [operator for operator in operators if operator.count]


@dataclass(frozen=True, slots=True)
class _Rows:
    model: Architecture
    load: Load
    split: Split
    dtype: str
    block_shape: tuple[int, int] | None

    @property
    def act(self) -> str:
        """Type of the activations between products."""
        return self.dtype if self.dtype in ("fp16", "fp32") else "bf16"

    def product(self, name: str, count: int, m: float, n: float, k: float, *, quantised: bool = True, cache: str = "cold") -> Operator:
        dtype, block = (self.dtype, self.block_shape) if quantised else (self.act, None)
        sizes = {"M": m, "N": n, "K": k}
        return Operator(
            name=name, kind="gemm", count=count, family="gemm", op="gemm", sizes=sizes, dtype=dtype, block_shape=block, cache=cache
        )

    def norm(self, name: str, count: int, rows: float, length: float, *, added: bool = False) -> Operator:
        """A norm; `added`: with the residual's addition, which reads and writes as much again and is told as twice the rows."""
        sizes = {"B": rows * (2 if added else 1), "H": length}
        return Operator(name=name, kind="norm", count=count, family="normalization", op=self.model.norm, sizes=sizes, dtype=self.act)

    def stream(self, name: str, count: int, rows: float, length: float, op: str) -> Operator:
        sizes = {"B": rows, "H": length}
        return Operator(name=name, kind="elementwise", count=count, family="elementwise", op=op, sizes=sizes, dtype=self.act)

    def all_reduce(self, name: str, count: int) -> Operator:
        size = 2.0 * self.load.tokens * self.model.hidden
        return Operator(name=name, kind="collective", count=count, op="all_reduce", message_bytes=size, ranks=self.split.tensor)

    def reduced(self, name: str, count: int) -> list[Operator]:
        return [self.all_reduce(name, count)] if self.split.tensor > 1 else []

    def attention_block(self) -> list[Operator]:
        """Norm, projections, positions and attention, which writes the new keys and values too, of every layer."""
        model, tokens, layers = self.model, self.load.tokens, self.model.attention_layers
        heads = model.heads // self.split.tensor
        others = self.recurrent_block() + self.sparse_block(heads)
        if not layers:
            return others
        if model.latent is not None:
            return others + self.latent_block(model.latent, heads)
        kv_heads = max(model.kv_heads // self.split.tensor, 1)
        width = (heads * (2 if model.output_gate else 1) + 2 * kv_heads) * model.head_dim
        operators = [
            self.norm("input norm", layers, tokens, model.hidden, added=True),
            self.product("qkv_proj", layers, tokens, width, model.hidden),
        ]
        if model.qk_norm:
            operators.append(self.norm("q norm", layers, tokens * heads, model.head_dim))
            operators.append(self.norm("k norm", layers, tokens * kv_heads, model.head_dim))
        operators.append(self.stream("rope", layers, tokens, (heads + kv_heads) * model.head_dim, "copy"))
        for name, count, window in (("attention", layers - model.windowed, None), ("window attention", model.windowed, model.window)):
            if count:
                operators += self._attention(name, count, window, heads, kv_heads)
        if model.output_gate:
            operators.append(self.stream("attention gate", layers, tokens, heads * model.head_dim, "mul"))
        operators.append(self.product("o_proj", layers, tokens, model.hidden, heads * model.head_dim))
        return others + operators + self.reduced("o_proj all-reduce", layers)

    def recurrent_block(self) -> list[Operator]:
        """Layers with a state: projections, the short convolution, the rule that reads and writes the state, a gated norm."""
        model, tokens, rule = self.model, self.load.tokens, self.model.recurrence
        if rule is None or not rule.layers:
            return []
        ranks = self.split.tensor
        heads, keys = max(rule.value_heads // ranks, 1), max(rule.key_heads // ranks, 1)
        operators = [self.norm("mixer input norm", rule.layers, tokens, model.hidden, added=True)]
        for name, (columns, depth) in rule.matrices(model.hidden).items():
            out = columns == model.hidden and name == "out_proj"
            n, k = (columns, depth // ranks) if out else (-(-columns // ranks), depth)
            if not out:
                operators.append(self.product(f"mixer {name}", rule.layers, tokens, n, k))
        sizes = {"d_conv": rule.conv}
        if rule.kind == "mamba2":
            sizes |= {"nheads": heads, "head_dim": rule.value_dim, "n_groups": keys, "d_state": rule.key_dim, "chunk_size": rule.chunk}
        else:
            sizes |= {"num_k_heads": keys, "head_k_dim": rule.key_dim, "num_v_heads": heads, "head_v_dim": rule.value_dim}
        prompts, decodes = self.load.prompts, len(self.load.contexts)
        if prompts:
            mean = sum(new for new, _ in prompts) / len(prompts)
            rows = {"batch_size": len(prompts), "seq_len": mean}
            operators.append(self._published("mixer convolution (prefill)", rule.layers, rule.kind, sizes | rows, "context", "conv1d"))
            kernel = {"gdn": "chunk_gated", "kda": "kda", "mamba2": "chunk_scan"}[rule.kind]
            operators.append(self._published("mixer rule (prefill)", rule.layers, rule.kind, sizes | rows, "context", kernel))
        if decodes:
            rows = {"batch_size": decodes, "seq_len": 1}
            operators.append(self._published("mixer convolution (decode)", rule.layers, rule.kind, sizes | rows, "generation", "conv1d"))
            if rule.kind == "mamba2":  # twice: a copy of two bytes a value, of a state of four
                operators.append(
                    self.stream("mixer rule (decode)", rule.layers, 2 * decodes, heads * rule.key_dim * rule.value_dim, "copy")
                )
            else:
                kernel = {"gdn": "fused_recurrent", "kda": "kda"}[rule.kind]
                operators.append(self._published("mixer rule (decode)", rule.layers, rule.kind, sizes | rows, "generation", kernel))
        operators.append(self.norm("mixer gated norm", rule.layers, tokens * heads, rule.value_dim, added=True))
        columns, depth = rule.matrices(model.hidden)["out_proj"]
        operators.append(self.product("mixer out_proj", rule.layers, tokens, columns, depth // ranks))
        return operators + self.reduced("mixer all-reduce", rule.layers)

    def _published(self, name: str, count: int, op: str, sizes: Mapping[str, float], phase: str, kernel: str) -> Operator:
        words = (("phase", phase), ("kernel_source", kernel))
        return Operator(
            name=name,
            kind="attention",
            count=count,
            family="published",
            op=op,
            sizes=sizes,
            words=words,
            dtype=self.act,
            cache="cold" if phase == "generation" and kernel != "conv1d" else "warm",  # a decode's state
        )

    def sparse_block(self, heads: int) -> list[Operator]:
        """Layers of sparse attention: the module with its projections, as it was measured."""
        sparse = self.model.sparse
        if sparse is None or not sparse.layers:
            return []
        form = self.dtype if self.dtype == "fp8" else "bf16"
        weights = {"bf16": "bfloat16", "fp8": "fp8_block"}[form]
        words = (("architecture", sparse.architecture), ("model", ""), ("gemm_type", weights), ("kv_cache_dtype", "bfloat16"))
        operators = [self.norm("input norm", sparse.layers, self.load.tokens, self.model.hidden, added=True)]

        def module(phase: str, sizes: dict[str, float]) -> Operator:
            return Operator(
                name=f"sparse attention ({'prefill' if phase == 'context' else 'decode'})",
                kind="attention",
                count=sparse.layers,
                family="published",
                op=f"{sparse.kind}_{phase}_module",
                sizes=sizes | {"num_heads": heads},
                words=words,
                dtype=form,
                cache="cold",
            )

        if self.load.prompts:
            new, keys = (sum(prompt[i] for prompt in self.load.prompts) / len(self.load.prompts) for i in (0, 1))
            operators.append(module("context", {"batch_size": len(self.load.prompts), "isl": new, "step": keys - new}))
        if self.load.contexts:
            mean = sum(self.load.contexts) / len(self.load.contexts)
            operators.append(module("generation", {"batch_size": len(self.load.contexts), "isl": 1, "step": mean - 1}))
        return operators + self.reduced("sparse attention all-reduce", sparse.layers)

    def _attention(self, name: str, count: int, window: int | None, heads: int, kv_heads: int) -> Iterator[Operator]:
        shared = {"H": heads, "H_kv": kv_heads, "D": self.model.head_dim}
        both = self.load.prompts and self.load.contexts
        if self.load.prompts:
            even = _even(self.load.prompts, window, self.model.causal)
            yield Operator(
                name=f"{name} (prefill)" if both else name,
                kind="attention",
                count=count,
                family="attention",
                op="prefill",
                sizes=shared | even,
                dtype=self.act,
            )
        if self.load.contexts:
            seen = self.load.contexts
            sizes = shared | {"B": len(seen), "M": 1, "N": sum(seen) / len(seen), "causal": 1} | ({"window": window} if window else {})
            yield Operator(
                name=f"{name} (decode)" if both else name,
                kind="attention",
                count=count,
                family="attention",
                op="decode",
                sizes=sizes,
                dtype=self.act,
                cache="cold",
            )

    def latent_block(self, latent: LatentAttention, heads: int) -> list[Operator]:
        """The same with latent attention: queries and keys are made of short vectors that every rank computes; decoding multiplies queries
        with the key projection and results with the value projection, head by head, instead of the keys and values."""
        model, tokens, layers = self.model, self.load.tokens, self.model.attention_layers
        head, key = latent.nope + latent.rope, latent.kv_rank + latent.rope
        new, old = sum(prompt for prompt, _ in self.load.prompts), len(self.load.contexts)
        operators = [self.norm("input norm", layers, tokens, model.hidden, added=True)]
        operators.append(self.product("qkv_a_proj", layers, tokens, latent.query_rank + key, model.hidden))
        operators.append(self.norm("q and kv norm", 2 * layers, tokens, max(latent.query_rank, latent.kv_rank)))
        operators.append(self.product("q_b_proj", layers, tokens, heads * head, latent.query_rank or model.hidden))
        operators.append(self.stream("rope and KV write", layers, tokens, heads * latent.rope + key, "copy"))
        shared = {"H": heads, "rank": latent.kv_rank, "rope": latent.rope, "nope": latent.nope, "value": latent.value}

        def attention(op: str, cache: str, sizes: dict[str, float]) -> Operator:
            return Operator(
                name=f"latent attention ({op})",
                kind="attention",
                count=layers,
                family="latent_attention",
                op=op,
                sizes=shared | sizes,
                dtype=self.act,
                cache=cache,
            )

        if new:
            operators.append(self.product("kv_b_proj", layers, new, heads * (latent.nope + latent.value), latent.kv_rank))
            operators.append(attention("prefill", "warm", _even(self.load.prompts, None, model.causal)))
        if old:
            mean = sum(self.load.contexts) / old
            for name, n, k in (("absorb keys", latent.kv_rank, latent.nope), ("absorb values", latent.value, latent.kv_rank)):
                sizes = {"M": old, "N": n, "K": k, "B": heads}
                operators.append(
                    Operator(name=name, kind="gemm", count=layers, family="gemm", op="gemm", sizes=sizes, dtype=self.act, cache="cold")
                )
            operators.append(attention("decode", "cold", {"B": old, "M": 1, "N": mean}))
        if model.output_gate:
            operators.append(self.product("gate_proj", layers, tokens, heads * latent.value, model.hidden))
            operators.append(self.stream("attention gate", layers, tokens, heads * latent.value, "mul"))
        operators.append(self.product("o_proj", layers, tokens, model.hidden, heads * latent.value))
        return operators + self.reduced("o_proj all-reduce", layers)

    def dense_block(self) -> list[Operator]:
        """The layers whose MLP is no mixture."""
        model, tokens = self.model, self.load.tokens
        count = model.dense_layers + (model.experts.layers if model.experts else 0) if model.mixers else model.norms - model.layers
        operators = [self.norm("post-attention norm", count, tokens, model.hidden, added=True)]
        return operators + self._mlp("", model.dense_layers, model.intermediate, model.gated)

    def _mlp(self, prefix: str, count: int, whole: int, gated: bool) -> list[Operator]:
        model, tokens, inner = self.model, self.load.tokens, whole // self.split.tensor
        if not count:
            return []
        activation = f"{model.activation}_and_mul" if gated else model.activation
        up = f"{prefix}gate_up_proj" if gated else f"{prefix}up_proj"
        operators = [self.product(up, count, tokens, inner * (2 if gated else 1), model.hidden)]
        operators.append(self.stream(f"{prefix}{activation}", count, tokens, inner, activation))
        operators.append(self.product(f"{prefix}down_proj", count, tokens, model.hidden, inner))
        return operators + ([] if prefix else self.reduced("down_proj all-reduce", count))

    def expert_block(self) -> list[Operator]:
        """Router, and the experts. Those that every token passes are of the same launches (SGLang adds them to the routed ones, vLLM runs
        them beside those on another stream) unless ranks hold whole experts."""
        model, tokens, moe = self.model, self.load.tokens, self.model.experts
        if moe is None or not moe.layers:
            return []
        ranks = self.split.tensor if self.split.experts else 1
        inner = moe.intermediate if self.split.experts else moe.intermediate // self.split.tensor
        apart = self.split.experts or moe.hidden or moe.shared % moe.intermediate
        shared = 0 if apart else moe.shared // moe.intermediate
        operators = self._mlp("shared expert ", moe.layers if moe.shared and not shared else 0, moe.shared, moe.gated)
        operators.append(self.product("router", moe.layers, tokens, moe.count, model.hidden, quantised=False))
        if moe.hidden:
            operators.append(self.product("experts down to latent", moe.layers, tokens, moe.hidden, model.hidden))
            operators.append(self.product("experts up from latent", moe.layers, tokens, model.hidden, moe.hidden))
        sizes = {"M": tokens, "E": moe.count + shared, "topk": moe.top_k + shared, "H": moe.hidden or model.hidden, "N": inner}
        sizes |= {"ranks": ranks, "gated": int(moe.gated)}
        operators.append(
            Operator(
                name="experts",
                kind="moe",
                count=moe.layers,
                family="fused_moe",
                op="layer",
                sizes=sizes,
                words=(("shared", str(shared)),) if shared else (),
                dtype=moe.stored or self.dtype,
                block_shape=None if moe.stored else self.block_shape,
                cache="cold",
            )
        )
        return operators + self.reduced("experts all-reduce", moe.layers)


def _even(prompts: tuple[tuple[int, int], ...], window: int | None, causal: bool) -> dict[str, float]:
    """A batch of equal sequences with as many queries and query-key pairs as a ragged one: M is the mean length as a query sees it."""
    queries = sum(new for new, _ in prompts)
    m = sum(new * new for new, _ in prompts) / queries
    n = sum(new * keys for new, keys in prompts) / queries
    return {"B": queries / m, "M": m, "N": n, "causal": int(causal)} | ({"window": window} if window else {})
