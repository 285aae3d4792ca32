"""Block shapes of tensor descriptors: they follow from the coordinates a descriptor is used at, and differ between configurations."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from advisor.compiled.guesses.usage import usage_of
from advisor.compiled.guesses.usage_marks import Usage
from advisor.python_source.literals import Evaluator, NotLiteralError
from advisor.python_source.source import SourceFile

GUESSED = 64
"""Elements of a block along a dimension of which nothing is known."""

_TYPE = re.compile(r"tensordesc<(?P<element>\w+)\[(?P<block>[\d, ]+)\](?P<rest>.*)>")


def descriptor_type(use: Usage, constants: Mapping[str, Any], element: str, said: Sequence[int] | None = None) -> str:
    """The type of a descriptor whose block the kernel says, or follows from the coordinates it is used at: `[pid * BLOCK_M, k]`."""
    sizes = list(said or [_size(names, constants) for names in use.blocks])
    if not said and sizes[-1:] == [1]:
        sizes[-1] = GUESSED  # `[row, 0]`: the whole row; a block of one element would be less than what can be copied
    return f"tensordesc<{element}[{','.join(map(str, sizes or [GUESSED, GUESSED]))}]>"


def said_blocks(kernel: ast.FunctionDef, names: Collection[str], constants: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The blocks that a kernel makes descriptors of where it is given pointers in their place: `q = make(q, block_shape=[BLOCK_M, D])`.

    Args:
        kernel: Its definition.
        names: Descriptors.
        constants: Constants of the kernel, which also decide its branches; of one that they do not decide, the last counts.
    """
    found: dict[str, tuple[int, ...]] = {}
    for name, call in _made(kernel.body, constants):
        for keyword in call.keywords:
            if name in names and keyword.arg == "block_shape":
                with contextlib.suppress(NotLiteralError):
                    block = Evaluator(constants).evaluate(keyword.value)
                    if isinstance(block, (list, tuple)) and block and all(type(n) is int and n > 0 for n in block):
                        found[name] = tuple(block)
    return found


def _made(body: Sequence[ast.stmt], constants: Mapping[str, Any]) -> Iterator[tuple[str, ast.Call]]:
    """The calls of which the result takes the place of their first argument, with its name."""
    for statement in body:
        if isinstance(statement, ast.If):
            try:
                taken = [statement.body] if Evaluator(constants).evaluate(statement.test) else [statement.orelse]
            except NotLiteralError:
                taken = [statement.body, statement.orelse]
            for each in taken:
                yield from _made(each, constants)
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call) and statement.value.args:
            first, target = statement.value.args[0], statement.targets[0]
            if isinstance(first, ast.Name) and isinstance(target, ast.Name) and first.id == target.id:
                yield target.id, statement.value


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
    usage = usage_of(source, source.kernel(kernel)) if given else {}
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
