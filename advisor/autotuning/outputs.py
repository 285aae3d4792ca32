"""Comparing what a configuration writes with what the first one wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
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

    A configuration that leaves elements unwritten is found out only where they did not hold the right values already, as they do after
    another configuration's run, or in memory that an earlier call freed. So what is known to be output alone (`probe`) is overwritten
    before each run with values that differ from the right ones (`other_values`); the rest starts from what was there before.

    Args:
        tensors: By argument name.
        tolerance: Relative, and absolute as a share of the root mean square.
        named: The user named them as outputs: integers are then overwritten too. Others may be locks, counters or addresses.
    """

    def __init__(self, tensors: Mapping[str, Any], tolerance: Tolerance, named: bool = False) -> None:
        self.tensors = {name: tensor.data for name, tensor in tensors.items()}  # without autograd, which counts every change
        self.tolerance = tolerance
        self.named = named
        self.before = {name: tensor.clone() for name, tensor in self.tensors.items()}
        self.start = dict(self.before)
        self.wanted: dict[str, Any] | None = None
        self.right: dict[str, Any] | None = None  # as wanted, but for what was overwritten beforehand and then left alone
        self.written = False  # whether the first configuration was seen to write anything

    def prepare(self) -> None:
        """Put the tensors into the state that every compared run starts from."""
        self._set(self.start)

    def restore(self) -> None:
        """Back to what was there before."""
        self._set(self.before)

    def probe(self, run: Callable[[Callable[[], None]], None]) -> None:
        """Finds out, with the first configuration, what is right and what is output alone.

        Args:
            run: Prepares, runs the first configuration once, calls what it is given, and restores.
        """
        try:
            self._probe(run)
        except Exception:
            self.start, self.wanted, self.right = dict(self.before), None, None
            raise

    def _probe(self, run: Callable[[Callable[[], None]], None]) -> None:
        run(self.keep)
        assert self.wanted is not None
        right = self.right = self.wanted
        self.written = any(bool((~_alike(right[name], self.before[name])).any()) for name in right)
        overwritten = {}
        for name, wanted in right.items():
            if wanted.is_complex() or not (wanted.is_floating_point() or self.named) or not wanted.numel():
                continue
            self.start[name] = other_values(wanted, self.before[name], self.tolerance)
            alone: list[bool] = []
            run(partial(self._look, name, alone))
            if all(alone):
                overwritten[name] = self.start[name]
            self.start[name] = self.before[name]
        if overwritten:
            self.written = True
            self.start |= overwritten
            run(self._keep_marked)
            if self.wanted is None:  # together they matter: none is overwritten
                self.start, self.wanted = dict(self.before), right

    def _look(self, name: str, alone: list[bool]) -> None:
        """Appends whether a tensor that was overwritten beforehand is output alone, by what is there now."""
        alone.append(self._is_output(name))

    def _keep_marked(self) -> None:
        """What is there now is wanted, if it is right: with its marks where nothing wrote. What is right throughout is held once."""
        assert self.right is not None
        self.wanted = None
        if all(bool(self._settled(name).all()) for name in self.right):
            self.wanted = {
                name: right if not bool(self._off(name).any()) else self.tensors[name].clone() for name, right in self.right.items()
            }

    def keep(self) -> None:
        """Take the present output as right."""
        self.wanted = {name: tensor.clone() for name, tensor in self.tensors.items()}

    def compare(self) -> None:
        """Compares what is there now.

        Raises:
            OutputDiffersError: It is not what the first configuration wrote.
        """
        assert self.wanted is not None
        relative, absolute = self.tolerance
        for name, tensor in self.tensors.items():
            share = differing_share(tensor, self.wanted[name], relative, absolute, (self.right or self.wanted)[name])
            if share > 0:
                raise OutputDiffersError(
                    f"{name} differs from what the first configuration wrote",
                    f"{100 * share:.3g} % of its elements",
                    f"|difference| <= {relative:g} |wanted| + {absolute:g} rms(wanted) of its row or of all",
                )

    def _set(self, values: Mapping[str, Any]) -> None:
        for name, tensor in self.tensors.items():
            tensor.copy_(values[name])

    def _is_output(self, name: str) -> bool:
        """Whether what the tensor held before made no difference: it is not read, or it does not matter."""
        if bool(_alike(self.tensors[name], self.start[name]).all()):
            return False  # nothing wrote there
        return all(bool(self._settled(tensor).all()) for tensor in self.tensors)

    def _settled(self, name: str) -> Any:
        """Which elements are right now, or were overwritten beforehand and then left alone."""
        off = self._off(name)
        return ~off if self.start[name] is self.before[name] else ~off | _alike(self.tensors[name], self.start[name])

    def _off(self, name: str) -> Any:
        """Which elements are not right now."""
        assert self.right is not None
        relative, absolute = (min(pair) for pair in zip(self.tolerance, DEFAULT_TOLERANCE, strict=True))
        return differing(self.tensors[name], self.right[name], relative, absolute)


def other_values(wanted: Any, before: Any, tolerance: Tolerance) -> Any:
    """Values that differ from `wanted` by more than the tolerance, within the range of what the tensor holds where that is wide enough.

    Values from elsewhere could make a kernel that reads them do anything; NaN would pass for right where it spreads.
    """
    import torch

    if not wanted.dtype.is_floating_point:
        if wanted.dtype == torch.bool:
            return ~wanted
        both = torch.stack([wanted.long(), before.long()])
        low, high = int(both.min()), int(both.max())
        high += low == high and high <= 0
        low -= low == high
        return torch.where(both[0] > low, low, high).to(wanted.dtype)
    right, former = _computable(wanted), _computable(before)
    ends = [float(end) for each in (right, former) for end in each.nan_to_num(0.0, 0.0, 0.0).aminmax()]
    least, most = min(ends), max(ends)
    middle = (least + most) / 2
    apart = max(4 * min(sum(tolerance), 0.25) * (max(abs(least), abs(most)) or 1.0), (most - least) / 2)
    limit = torch.finfo(wanted.dtype).max
    return torch.where(right > middle, max(middle - apart, -limit), min(middle + apart, limit)).to(wanted.dtype)


def differing(got: Any, wanted: Any, relative: float, absolute: float, sized: Any = None) -> Any:
    """Which elements are outside the tolerance; NaN matches NaN, infinities of one sign match.

    `sized`: what the absolute tolerance is a share of, in place of `wanted`, which may hold values that only mark what nothing wrote.
    """
    if not got.dtype.is_floating_point:
        return got != wanted
    got, wanted = got.float(), wanted.float()
    sized = wanted if sized is None else sized.float()
    square = (sized * sized).nan_to_num(0.0, 0.0, 0.0)
    # Rows that see few keys of a causal attention are much larger than the others.
    size = (square.mean(-1, keepdim=True) if square.ndim > 1 else square.mean()).clamp(min=float(square.mean())).sqrt()
    close = (got - wanted).abs() <= relative * wanted.abs() + absolute * size
    return ~(_alike(got, wanted) | close)


def differing_share(got: Any, wanted: Any, relative: float, absolute: float, sized: Any = None) -> float:
    """Share of the elements outside the tolerance (`differing`)."""
    return float(differing(got, wanted, relative, absolute, sized).double().mean()) if got.numel() else 0.0


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
