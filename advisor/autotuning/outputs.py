"""Comparing what a configuration writes with what the first one wrote."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from advisor.autotuning.tunable import Tolerance
from advisor.measurement.launch import WrongOutputError, compare, poison


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
        try:
            self._compare(self.start, (0.0, 0.0))
        except WrongOutputError:
            self.written = True

    def compare(self) -> None:
        """Compares what is there now.

        Raises:
            WrongOutputError: It is not what the first configuration wrote.
        """
        assert self.wanted is not None
        self._compare(self.wanted, self.tolerance)

    def _compare(self, wanted: Mapping[str, Any], tolerance: Tolerance) -> None:
        for name, tensor in self.tensors.items():
            relative, absolute = tolerance if tensor.dtype.is_floating_point else (0.0, 0.0)
            compare(tensor, wanted[name], relative, absolute, f"{name}, against what the first configuration wrote")


def tensors_of(named: Mapping[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    """The tensors among the arguments, or those of them that are named; none that was expanded, for it cannot be set."""
    return {
        name: value
        for name, value in named.items()
        if (names is None or name in names)
        and all(hasattr(value, method) for method in ("clone", "copy_", "numel", "stride"))
        and all(step or size < 2 for step, size in zip(value.stride(), value.shape, strict=True))
    }
