"""Whether a launch wrote what the reference says: outputs poisoned before it, compared after it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from advisor.measurement.failures import WrongOutputError

CHECK_ELEMENTS = 1 << 25  # compared at once, so that fp64 copies stay small: half a dozen of a quarter of a GiB each


def poison(tensor: Any) -> None:
    """Fills an output with what no right result holds."""
    import torch

    if tensor.dtype.is_floating_point and tensor.element_size() == 1:
        tensor.view(torch.uint8).fill_(0x7F)  # NaN in e4m3
    elif tensor.dtype.is_floating_point:
        tensor.fill_(math.nan)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).min)


def compare(got: Any, want: Any, relative: float, absolute: float, what: str) -> None:
    """|got - want| <= relative |want| + absolute rms(want), everywhere; NaN only where the reference has it.

    The rms is that of the element's row (last dimension) or of the whole tensor, whichever is larger: rows of a causal attention that
    see few keys are much larger than the others, and a short row may be near zero by cancellation.

    Raises:
        WrongOutputError: Not so; says how much of it is wrong, and the worst place.
    """
    import torch

    if tuple(got.shape) != tuple(want.shape):
        raise WrongOutputError(f"{what}: shape", tuple(got.shape), str(tuple(want.shape)))
    if got.numel() == 0:
        return
    rms = math.sqrt(sum(float(_finite_square(part).sum()) for part in _parts(want)) / want.numel())
    wrong, worst, first = 0, (0.0, 0, 0.0, 0.0), 0
    for one, other in zip(map(torch.Tensor.double, _parts(got)), map(torch.Tensor.double, _parts(want)), strict=True):
        size = rms if other.ndim == 1 else _finite_square(other).mean(-1, keepdim=True).sqrt_().clamp_(min=rms)
        # Where the reference is infinite the limit is too, and would let anything pass.
        close = other.isfinite() & ((one - other).abs_() <= relative * other.abs() + absolute * size)
        right = close | (one == other) | (one.isnan() & other.isnan())
        bad = int((~right).sum())
        if bad:
            wrong += bad
            excess = torch.where(right, torch.zeros_like(one), torch.nan_to_num((one - other).abs_(), nan=math.inf)).reshape(-1)
            place = int(excess.argmax())
            if float(excess[place]) >= worst[0]:
                worst = (float(excess[place]), first + place, float(one.reshape(-1)[place]), float(other.reshape(-1)[place]))
        first += one.numel()
    if wrong:
        raise WrongOutputError(
            f"{what}: {wrong} of {got.numel()} elements differ from the reference",
            f"{worst[2]:.6g} at {worst[1]}",
            f"{worst[3]:.6g} ± {relative:g} relative, {absolute:g} of the rms",
        )


def _parts(tensor: Any) -> Iterator[Any]:
    """The tensor in pieces of some `CHECK_ELEMENTS`: whole rows [r, n] where it has any, else [n]."""
    if tensor.ndim < 2:
        return iter(tensor.reshape(-1).split(CHECK_ELEMENTS))
    return iter(tensor.reshape(-1, tensor.shape[-1]).split(max(1, CHECK_ELEMENTS // tensor.shape[-1])))


def _finite_square(part: Any) -> Any:
    """Squares in fp64, 0 where the value is not finite."""
    import torch

    return torch.nan_to_num(part.double(), nan=0.0, posinf=0.0, neginf=0.0).square_()
