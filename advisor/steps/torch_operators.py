"""The kernels of one step of a PyTorch model, eager or compiled, for inference or training, as reference implementations launch them.

The models are those of Hugging Face's `transformers` (BERT, GPT-2, OPT; eager attention), whose operators NeuSight published by shape.
A training step is forward and backward; gradients are written, not added to older ones, and no optimiser runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from advisor.steps.model_config import Architecture
from advisor.steps.operators import Operator
from advisor.steps.workload import Load, Split
from advisor.system import grouped
from advisor.system.errors import UsageError

GELU_TANH = ("mulu", "powu", "mulu", "add", "mulu", "tanh", "addu", "mul")
"""Kernels of GPT-2's GELU: 0.5 x (1 + tanh(sqrt(2/π) (x + 0.044715 x³))), an operation each."""
BACKWARD: dict[str, tuple[str, ...]] = {
    "mulu": ("mulu",),
    "divu": ("mulu",),
    "addu": (),
    "add": (),
    "mul": ("mul", "mul"),
    "powu": ("powu", "mulu", "mul"),
    "tanh": ("mul",),
    "gelu": ("mul",),
    "relu": ("mul",),
    "silu": ("mul",),
    "where": ("mulu",),
    "softmax": ("mul", "mul"),
    "dropout": ("mulu", "mul", "mulu"),
    "layer_norm": ("mul", "mul"),
}
"""Kernels of the derivative, by what they move: autograd's formulas (`derivatives.yaml`). Softmax multiplies gradient and result before
its kernel; dropout turns the mask into numbers, scales and multiplies; a norm has one kernel for its input and one for its weights."""
FORWARD = {"where": "addu", "dropout": "addu"}
"""What these move, told as an operator that was measured."""


def torch_operators(
    model: Architecture,
    load: Load,
    split: Split,
    *,
    training: bool = False,
    compiled: bool = False,
    replicas: int = 1,
    dtype: str | None = None,
) -> list[Operator]:
    """What one rank launches; the prompts are padded to the longest.

    Args:
        model: The whole model.
        load: Prompts alone.
        split: Tensor ranks split every layer as Megatron does; pipeline stages follow one another.
        training: Forward and backward.
        compiled: Kernels as `torch.compile` makes them: what stands between two products is one kernel.
        replicas: Data-parallel copies, which add up their gradients.
        dtype: None: as the model is stored.

    Raises:
        UsageError: The load decodes, or the model is none that these operators describe.
    """
    if load.contexts or not load.prompts:
        raise UsageError("--engine torch runs whole sequences", None, "--prefill LENGTHS", "leave out --batch and --context")
    if model.experts or model.latent or model.gated:
        raise UsageError(f"{model.name}: --engine torch knows BERT, GPT-2 and OPT", model.model_type, None, "take --engine vllm or sglang")
    step = _Step(
        model=model,
        batch=len(load.prompts),
        sequence=max(new for new, _ in load.prompts),
        ranks=split.tensor,
        training=training,
        compiled=compiled,
        dtype=dtype or model.dtype,
    )
    operators = [*step.embeddings(), *step.layers(), *step.head(), *step.communication(split, replicas)]
    alike = grouped(((operator.name, operator.op, tuple(operator.sizes.items())), operator) for operator in operators)
    merged = [replace(some[0], count=sum(item.count for item in some)) for some in alike.values()]
    return [item for item in merged if item.count]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    model: Architecture
    batch: int
    sequence: int
    ranks: int
    training: bool
    compiled: bool
    dtype: str

    @property
    def rows(self) -> int:
        return self.batch * self.sequence

    def linear(self, name: str, count: int, n: float, k: float, m: float | None = None, *, bias: bool = True) -> Iterator[Operator]:
        """A product with weights [n, k]; backward: the gradients of its input and weights, and the sum over rows of its bias."""
        m = m or self.rows
        yield self.product(name, count, m, n, k)
        if self.training:
            yield self.product(f"{name} backward, input", count, m, k, n)
            yield self.product(f"{name} backward, weights", count, n, k, m)
            if bias:
                yield self.moved(f"{name} backward, bias", count, m * n, 1)

    def product(self, name: str, count: int, m: float, n: float, k: float, batch: float | None = None) -> Operator:
        sizes = {"M": m, "N": n, "K": k} | ({"B": batch} if batch else {})
        return Operator(
            name=name, kind="attention" if batch else "gemm", count=count, family="gemm", op="gemm", sizes=sizes, dtype=self.dtype
        )

    def kernel(self, op: str, name: str, count: int, rows: float, length: float) -> Operator:
        row = op in ("softmax", "layer_norm")
        family = "normalization" if row else "elementwise"
        sizes = {"B": rows, "H": length}
        return Operator(name=name, kind="norm" if row else "elementwise", count=count, family=family, op=op, sizes=sizes, dtype=self.dtype)

    def moved(self, name: str, count: int, elements: float, tensors: float) -> Operator:
        """A kernel that moves so many tensors of that size: a copy of half as many elements."""
        length = float(self.model.hidden)
        return self.kernel("addu", name, count, max(elements * tensors / 2 / length, 1.0), length)

    def op(self, op: str, name: str, count: int, rows: float, length: float) -> Iterator[Operator]:
        """An operator and, in training, the kernels of its derivative."""
        yield self.kernel(FORWARD.get(op, op), name, count, rows, length)
        if self.training:
            for item in BACKWARD[op]:
                yield self.kernel(item, f"{name} backward", count, rows, length)

    def fused(self, name: str, count: int, elements: float, forward: float, backward: float) -> Iterator[Operator]:
        """A kernel of `torch.compile` by the tensors that cross its border, forward and backward."""
        yield self.moved(name, count, elements, forward)
        if self.training:
            yield self.moved(f"{name} backward", count, elements, backward)

    def embeddings(self) -> Iterator[Operator]:
        """Tokens, positions (and BERT's kinds of token), summed."""
        model, hidden = self.model, self.model.hidden
        tables = 3 if model.model_type == "bert" else 2
        if self.compiled:
            yield from self.fused("embeddings", 1, self.rows * hidden, tables + 1, 2)
        else:
            for _ in range(tables):
                yield self.kernel("addu", "embedding", 1, self.rows, hidden)
            yield self.kernel("add", "sum of embeddings", tables - 1, self.rows, hidden)
            if model.model_type == "bert":
                yield from self.op("layer_norm", "embeddings norm", 1, self.rows, hidden)
            if self.training:
                yield from self.op("dropout", "embeddings dropout", 1, self.rows, hidden)
        if self.training:  # gathered by token, and a table of zeros to add to
            yield self.moved("embedding backward", tables, self.rows * hidden, 3)
            yield self.moved("embedding backward, table", 1, model.vocabulary * hidden, 1)

    def layers(self) -> Iterator[Operator]:
        """Attention and MLP of every layer."""
        model, count, rows, hidden = self.model, self.model.layers, self.rows, self.model.hidden
        heads, inner = model.heads // self.ranks, model.intermediate // self.ranks
        width = heads * model.head_dim
        pairs = self.batch * heads * self.sequence
        together = model.model_type == "gpt2"
        if together:
            yield from self.linear("qkv_proj", count, 3 * width, hidden)
        else:
            yield from self.linear("q, k, v_proj", 3 * count, width, hidden)
        yield self.moved("heads apart", 3 * count, rows * width, 2)
        if self.training:
            yield self.moved("heads together backward", count, 3 * rows * width, 2)
        yield from self.scores(count, pairs, heads)
        yield self.moved("heads together", count, rows * width, 2)
        yield from self.linear("o_proj", count, hidden, width)
        yield from self.residual("attention", count)
        yield from self.linear("up_proj", count, inner, hidden)
        yield from self.activation(count, inner)
        yield from self.linear("down_proj", count, hidden, inner)
        yield from self.residual("mlp", count)
        if self.training:  # what is used more than once adds its gradients up
            uses = (1 if together else 3) + 1
            yield self.kernel("add", "residual backward", count * uses, rows, hidden)

    def scores(self, count: int, pairs: float, heads: int) -> Iterator[Operator]:
        """Products of queries and keys, scaled, masked, normalised, and applied to the values."""
        sequence, head_dim, batch = self.sequence, self.model.head_dim, self.batch * heads
        yield self.product("scores", count, sequence, sequence, head_dim, batch)
        yield self.product("attended values", count, sequence, head_dim, sequence, batch)
        if self.training:
            yield self.product("scores backward", 2 * count, sequence, head_dim, sequence, batch)
            yield self.product("attended values backward, scores", count, sequence, sequence, head_dim, batch)
            yield self.product("attended values backward, values", count, sequence, head_dim, sequence, batch)
        if self.compiled:
            yield from self.fused("scale, mask and softmax", count, pairs * sequence, 2.0, 3.0)
            if self.training:
                yield self.moved("attention dropout", 2 * count, pairs * sequence, 2.25)
            return
        yield from self.op("divu", "scale", count, pairs, sequence)
        yield from self.op("add" if self.model.model_type == "bert" else "where", "mask", count, pairs, sequence)
        yield from self.op("softmax", "softmax", count, pairs, sequence)
        if self.training:
            yield from self.op("dropout", "attention dropout", count, pairs, sequence)

    def residual(self, name: str, count: int) -> Iterator[Operator]:
        """The addition to the residual, and the norm before or after it."""
        rows, hidden = self.rows, self.model.hidden
        if self.compiled:
            yield from self.fused(f"{name} residual and norm", count, rows * hidden, 4, 5)
            return
        if self.training:
            yield from self.op("dropout", f"{name} dropout", count, rows, hidden)
        yield from self.op("add", f"{name} residual", count, rows, hidden)
        yield from self.op("layer_norm", f"{name} norm", count, rows, hidden)

    def activation(self, count: int, inner: int) -> Iterator[Operator]:
        rows = self.rows
        if self.compiled:
            yield from self.fused("activation", count, rows * inner, 2, 3)
        elif self.model.model_type == "gpt2":
            for op in GELU_TANH:
                yield from self.op(op, "gelu", count, rows, inner)
            if self.training:
                yield self.kernel("add", "gelu backward, sum", 2 * count, rows, inner)
        else:
            yield from self.op(self.model.activation, self.model.activation, count, rows, inner)

    def head(self) -> Iterator[Operator]:
        """The last norm and the logits of every token; BERT without training classifies the first token alone."""
        model, rows, hidden = self.model, self.rows, self.model.hidden
        if model.model_type == "bert":
            if not self.training:
                yield from self.linear("pooler", 1, hidden, hidden, self.batch)
                return
            yield from self.linear("transform", 1, hidden, hidden)
            yield from self.op("gelu", "transform activation", 1, rows, hidden)
        yield from self.op("layer_norm", "final norm", 1, rows, hidden)
        yield from self.linear("lm_head", 1, -(-model.vocabulary // self.ranks), hidden, bias=model.model_type == "bert")

    def communication(self, split: Split, replicas: int) -> Iterator[Operator]:
        """All-reduces of tensor ranks (after attention and MLP of a layer and after the embedding, as many backward), of gradients, and
        what stages hand on."""
        element = 4 if self.dtype == "fp32" else 2
        activations = float(element * self.rows * self.model.hidden)
        passes = 2 if self.training else 1
        if split.tensor > 1:
            name, count = "activations all-reduce", (2 * self.model.layers + 1) * passes
            yield Operator(name=name, kind="collective", count=count, op="all_reduce", message_bytes=activations, ranks=split.tensor)
        if split.pipeline > 1:
            count = (split.pipeline - 1) * passes
            yield Operator(name="stage to stage", kind="collective", count=count, op="send", message_bytes=activations, ranks=2)
        if replicas > 1 and self.training:
            from advisor.steps.workload import parameters

            weights = parameters(self.model) + self.model.vocabulary * self.model.hidden
            size = float(element * weights / (split.tensor * split.pipeline))
            yield Operator(name="gradients all-reduce", kind="collective", count=1, op="all_reduce", message_bytes=size, ranks=replicas)
