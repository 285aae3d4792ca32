"""Comparing what a configuration writes with what the first one wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.autotuning.failures import OutputDiffersError
from advisor.errors import UsageError

DEFAULT_TOLERANCE = (1e-2, 1e-2)
"""Relative to each element, and absolute as a share of the root mean square of its row or of the output, whichever is larger. Two right
bf16 attentions with blocks of different sizes lie that far apart where elements cancel."""

Tolerance = tuple[float, float]


def check_tolerance(given: Any) -> Tolerance | None:
    """The `check_output=` argument: False or None, True, or (relative, absolute).

    Raises:
        UsageError: It is neither.
    """
    if given is None or given is False:
        return None
    if given is True:
        return DEFAULT_TOLERANCE
    try:
        relative, absolute = (float(each) for each in given)
    except (TypeError, ValueError):
        raise UsageError("check_output", given, "True, False or (relative, absolute)") from None
    if relative < 0 or absolute < 0:
        raise UsageError("check_output: a tolerance is negative", given, "(relative, absolute)")
    return relative, absolute


class Outputs:
    """Holds the tensors a kernel may write, as they were before and as the first configuration left them."""

    def __init__(self, tensors: Mapping[str, Any], tolerance: Tolerance) -> None:
        self.tensors = dict(tensors)
        self.tolerance = tolerance
        self.before = {name: tensor.clone() for name, tensor in self.tensors.items()}
        self.wanted: dict[str, Any] | None = None

    def restore(self) -> None:
        """Back to what was there before."""
        for name, tensor in self.tensors.items():
            tensor.copy_(self.before[name])

    def keep(self) -> None:
        """What is there now is right."""
        self.wanted = {name: tensor.clone() for name, tensor in self.tensors.items()}

    def compare(self) -> None:
        """Compares what is there now.

        Raises:
            OutputDiffersError: It is not what the first configuration wrote.
        """
        assert self.wanted is not None
        relative, absolute = self.tolerance
        for name, tensor in self.tensors.items():
            share = differing_share(tensor, self.wanted[name], relative, absolute)
            if share > 0:
                raise OutputDiffersError(
                    f"{name} differs from what the first configuration wrote", f"{100 * share:.3g} % of its elements",
                    f"|difference| <= {relative:g} |wanted| + {absolute:g} rms(wanted) of its row or of all",
                )  # fmt: skip


def differing_share(got: Any, wanted: Any, relative: float, absolute: float) -> float:
    """Share of the elements outside the tolerance; NaN matches NaN, infinities of one sign match."""
    if got.numel() == 0:
        return 0.0
    if not got.dtype.is_floating_point:
        return float((got != wanted).double().mean())
    got, wanted = got.float(), wanted.float()
    same = (got == wanted) | ((got != got) & (wanted != wanted))
    square = (wanted * wanted).nan_to_num(0.0, 0.0, 0.0)
    # Rows that see few keys of a causal attention are much larger than the others.
    size = (square.mean(-1, keepdim=True) if square.ndim > 1 else square.mean()).clamp(min=float(square.mean())).sqrt()
    close = (got - wanted).abs() <= relative * wanted.abs() + absolute * size
    return float((~(same | close)).double().mean())


def tensors_of(named: Mapping[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    """The tensors among the arguments, or those of them that are named."""
    return {
        name: value
        for name, value in named.items()
        if (names is None or name in names) and all(hasattr(value, each) for each in ("clone", "copy_", "numel"))
    }
