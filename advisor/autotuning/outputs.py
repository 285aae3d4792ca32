"""Comparing what a configuration writes with what the first one wrote."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from advisor.autotuning.decisions.failures import OutputDiffersError
from advisor.system.errors import UsageError

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
    """Holds the tensors a kernel may write: as they were before, as every compared run finds them, and as the first one left them.

    A configuration that leaves elements unwritten is found out only where they do not hold the right values already: what the user names
    as output alone is filled with NaN (integers: the least there is) before each run.

    Args:
        tensors: By argument name.
        tolerance: Relative, and absolute as a share of the root mean square.
        overwritten: Names of those that the kernel writes and does not read.
    """

    def __init__(self, tensors: Mapping[str, Any], tolerance: Tolerance, overwritten: Collection[str] = ()) -> None:
        from advisor.measurement.launch import poison  # loads the models

        self.tensors = {name: tensor.data for name, tensor in tensors.items()}  # without autograd, which counts every change
        self.tolerance = tolerance
        self.before = {name: tensor.clone() for name, tensor in self.tensors.items()}
        self.start = dict(self.before)
        for name in overwritten:
            if re.match(r"torch\.(b?float|u?int)", str(self.tensors[name].dtype)):  # of others, no value is always wrong
                self.start[name] = self.tensors[name].clone()
                poison(self.start[name])
        self.wanted: dict[str, Any] | None = None
        self.written = False  # whether the first configuration was seen to write anything

    def prepare(self) -> None:
        """Put the tensors into the state that every compared run starts from."""
        self._set(self.start)

    def restore(self) -> None:
        """Back to what was there before."""
        self._set(self.before)

    def _set(self, values: Mapping[str, Any]) -> None:
        for name, tensor in self.tensors.items():
            tensor.copy_(values[name])

    def keep(self) -> None:
        """Take the present output as right."""
        self.wanted = {name: tensor.clone() for name, tensor in self.tensors.items()}
        self.written = any(bool((~_alike(self.wanted[name], self.start[name])).any()) for name in self.wanted)

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
                    f"{name} differs from what the first configuration wrote",
                    f"{100 * share:.3g} % of its elements",
                    f"|difference| <= {relative:g} |wanted| + {absolute:g} rms(wanted) of its row or of all",
                )


def differing_share(got: Any, wanted: Any, relative: float, absolute: float) -> float:
    """Share of the elements outside the tolerance; NaN matches NaN, infinities of one sign match."""
    if not got.numel():
        return 0.0
    if not got.dtype.is_floating_point:
        return float((got != wanted).double().mean())
    got, wanted = got.float(), wanted.float()
    square = (wanted * wanted).nan_to_num(0.0, 0.0, 0.0)
    # Rows that see few keys of a causal attention are much larger than the others.
    size = (square.mean(-1, keepdim=True) if square.ndim > 1 else square.mean()).clamp(min=float(square.mean())).sqrt()
    close = (got - wanted).abs() <= relative * wanted.abs() + absolute * size
    return float((~(_alike(got, wanted) | close)).double().mean())


def _alike(one: Any, other: Any) -> Any:
    """Which elements are equal, or both NaN."""
    one, other = _computable(one), _computable(other)
    return (one == other) | ((one != one) & (other != other))


def _computable(tensor: Any) -> Any:
    """The tensor in a type that PyTorch computes with: it compares no fp8."""
    return tensor.float() if tensor.dtype.is_floating_point and tensor.element_size() < 4 else tensor


def tensors_of(named: Mapping[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    """The tensors among the arguments, or those of them that are named; none that was expanded, for it cannot be set."""
    return {
        name: value
        for name, value in named.items()
        if (names is None or name in names)
        and all(hasattr(value, each) for each in ("clone", "copy_", "numel", "stride"))
        and all(step or size < 2 for step, size in zip(value.stride(), value.shape, strict=True))
    }
