"""Block shapes of tensor descriptors: they follow from the coordinates a descriptor is used at, and differ between configurations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.compiled.usage import Reader, Usage
from advisor.configs.source import SourceFile

_TYPE = re.compile(r"tensordesc<(?P<element>\w+)\[(?P<block>[\d, ]+)\](?P<rest>.*)>")


def descriptor_type(use: Usage, constants: Mapping[str, Any], element: str) -> str:
    """The type of a descriptor whose block follows from the coordinates it is used at: `[pid * BLOCK_M, k]`."""
    sizes = [_size(names, constants) for names in use.blocks]
    return f"tensordesc<{element}[{','.join(map(str, sizes or [64, 64]))}]>"


def own_blocks(
    source: SourceFile, kernel: str, types: Mapping[str, str], configurations: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, str]], tuple[str, ...]]:
    """The types of descriptors that are given, with the block of each configuration in place of the one that is given for all.

    Hooks of `triton.Config` set it so when a configuration is launched (`nargs["a_desc"].block_shape = ...`). Only where the block that is
    given is the one that a configuration would have is it known to follow the configuration.

    Args:
        source: The parsed file.
        kernel: Name of the kernel.
        types: Types by argument.
        configurations: Constants of each configuration.

    Returns:
        By configuration the types that take the place of those given, and a sentence on each descriptor that keeps its block although
        the configurations may differ in it.
    """
    given = {name: found for name, kind in types.items() if (found := _TYPE.fullmatch(kind))}
    usage = Reader(source).usage(source.kernel(kernel)) if given else {}
    tuned = {name for each in configurations for name, value in each.items() if any(other.get(name) != value for other in configurations)}
    out: list[dict[str, str]] = [{} for _ in configurations]
    notes = []
    for name, found in given.items():
        block = tuple(int(n) for n in found["block"].split(","))
        coordinates = usage[name].blocks
        fits = len(coordinates) == len(block)
        pairs = list(zip(coordinates, block, strict=True)) if fits else []
        own = [tuple(_size(names, each) if tuned & set(names) else size for names, size in pairs) for each in configurations]
        if block in own and len(set(own)) > 1:
            for types_here, size in zip(out, own, strict=True):
                types_here[name] = f"tensordesc<{found['element']}[{','.join(map(str, size))}]{found['rest']}>"
        elif (tuned and len(set(own)) > 1) or not fits:
            notes.append(f"The block of {name} is the one of the signature in every configuration: how it follows from them is not known.")
    return out, tuple(notes)


def _size(names: Sequence[str], constants: Mapping[str, Any]) -> int:
    """The largest power of two among the constants that a coordinate is a multiple of."""
    factors = [constants[n] for n in names if isinstance(constants.get(n), int) and not isinstance(constants.get(n), bool)]
    return max([f for f in factors if f & (f - 1) == 0], default=1)
