"""What is known of one launch of a kernel in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLaunch:
    """A launch and where it stands.

    Attributes:
        grid: Programs; None: not known.
        line: Of the launch.
        text: The grid as it is written.
        constexprs: Constants that the launch passes, as far as they can be worked out.
        options: Options that it passes (num_warps, ...), the same.
        numbers: Values of its other arguments, the same.
        types: Types of the elements of tensors that it passes, where the function around it says which it makes them of: "int32".
        strides: Strides that it passes, were its tensors contiguous; None: not known, but not the innermost one, or not known to be it.
        presumed: Constants that follow where an argument which a call of the function around cannot leave out is not None:
            `HAS_BIAS=bias is not None`.
        blocks, shapes: Of tensor descriptors that it passes, where the function around makes them.
        passed: Whether arguments are given something, by the same, where what the function around says of them is that or None.
    """

    grid: tuple[int, ...] | None
    line: int
    text: str
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    strides: Mapping[str, int | None] = field(default_factory=dict)
    presumed: Mapping[str, bool] = field(default_factory=dict)
    passed: Mapping[str, bool] = field(default_factory=dict)
    blocks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
