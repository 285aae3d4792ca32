"""What one step is asked to do, and over how many GPUs it is split."""

from __future__ import annotations

from dataclasses import dataclass

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

    @property
    def keys(self) -> int:
        """Tokens in the KV cache when the step ends."""
        return sum(keys for _, keys in self.prompts) + sum(self.contexts)


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
