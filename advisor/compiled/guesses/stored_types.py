"""Guessed types of tensors that a kernel only stores to, corrected by what it stores: a quantized value, a packed one, an index.

`tl.store` converts what it is given to its pointer's type. Where that type is a guess, an integer that the store itself makes a float, or
a value that it widens, is of the type that the tensor really has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from advisor.compiled.demand.costs import element_bytes
from advisor.compiled.guesses.assumptions import narrower_note
from advisor.compiled.guesses.inference import Guess
from advisor.compiled.ir.ir import Operation, parse
from advisor.compiled.ir.slicing import MEMORY, Flow, flow_of

_ADDRESSES = frozenset(
    {
        "tt.addptr",
        "tt.splat",
        "tt.broadcast",
        "tt.expand_dims",
        "tt.reshape",
        "tt.trans",
        "tt.make_tensor_ptr",
        "tt.advance",
        "tt.make_tensor_descriptor",
    }
)
"""Operations that give an address made of their first operand's."""
_UNSIGNED = frozenset({"arith.uitofp", "arith.extui"})
_WIDENING = _UNSIGNED | {"arith.sitofp", "arith.extsi", "arith.extf", "tt.fp_to_fp"}
_FLOATS = {
    "f16": "fp16",
    "bf16": "bf16",
    "f32": "fp32",
    "f8E4M3FN": "fp8e4nv",
    "f8E5M2": "fp8e5",
    "f8E4M3FNUZ": "fp8e4b8",
    "f8E5M2FNUZ": "fp8e5b16",
    "f8E4M3B11FNUZ": "fp8e4b15",
}
_AS_GUESSED = ""


def with_stored_types(guess: Guess, ttir: str, element: str) -> Guess:
    """The guess with the types of what is stored, where they contradict it; as it is where nothing does.

    Args:
        guess: What `ttir` was compiled with.
        ttir: The kernel's.
        element: What a tensor of floats of which nothing is said is taken to be.

    Raises:
        IrError: The IR cannot be read.
    """
    signature, assumptions = dict(guess.signature), list(guess.assumptions)
    for name, kind in _stored(ttir, element).items():
        old = signature.get(name, "")
        if name not in guess.guessed or not kind:
            continue
        signature[name] = f"*{kind}" if old.startswith("*") else re.sub(r"(?<=tensordesc<)\w+", kind, old)
        note = f"{narrower_note(signature[name])} (what is stored there)"
        assumptions = [
            replace(each, value=signature[name], note=note) if each.kind == "type" and each.name == name else each for each in assumptions
        ]
    return replace(guess, signature=signature, assumptions=tuple(assumptions))


def _stored(ttir: str, element: str) -> dict[str, str]:
    """By argument that is only stored to, the type of what is stored; of several the widest, and empty where the guess fits."""
    function = parse(ttir).kernel
    flow = flow_of(function)
    arguments = {name: name.removeprefix("%") for name in function.arguments}
    accesses = [op for op in function.walk() if op.name in MEMORY]
    stores = [op for op in accesses if not op.name.endswith(("load", "gather"))]
    # Stores of one value to several tensors may share a conversion.
    places = frozenset().union(*(op.places for op in stores))
    found: dict[str, set[str]] = {}
    for op in accesses:
        kinds = {_AS_GUESSED}
        if op in stores and not op.name.endswith(("cas", "reduce", "scatter")):
            value = op.operands[-1] if "descriptor" in op.name else op.operands[1]
            makers = flow.producers.get(value, ())
            kinds = {_type(each, places) for each in makers if each.name != "arith.constant"} if makers else kinds
        for name, plain in _starts(op.operands[0], flow):
            if name in arguments:
                found.setdefault(arguments[name], set()).update(kinds if plain else {_AS_GUESSED})
    return {name: _widest(kinds) for name, kinds in found.items()}


def _type(conversion: Operation, places: frozenset[str]) -> str:
    """What a store converts: its type before; empty where it is no conversion of a store's alone, or only rounds."""
    # One that stands elsewhere too is (also) the author's own `.to`, which says nothing of the tensor.
    if not conversion.places or not conversion.places <= places or not conversion.types or conversion.result is None:
        return _AS_GUESSED
    before, after = conversion.types[0].element, conversion.result.element
    if conversion.name not in _WIDENING or (conversion.name == "tt.fp_to_fp" and element_bytes(before) >= element_bytes(after)):
        return _AS_GUESSED
    if re.fullmatch(r"i\d+", before):
        return f"u{before[1:]}" if conversion.name in _UNSIGNED and before != "i1" else before
    return _FLOATS.get(before, _AS_GUESSED)


def _widest(kinds: set[str]) -> str:
    if not kinds or _AS_GUESSED in kinds or len({kind.startswith(("fp", "bf")) for kind in kinds}) > 1:
        return _AS_GUESSED
    return max(sorted(kinds), key=lambda kind: int(re.findall(r"\d+", kind)[0]))


def _starts(address: str, flow: Flow) -> Iterator[tuple[str, bool]]:
    """The values that an address starts from, and whether it still is of their type."""
    waiting, seen = [(address, True)], set()
    while waiting:
        name, plain = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        yield name, plain
        waiting += [(each, plain) for each in flow.feeds.get(name, ())]
        for op in flow.producers.get(name, ()):
            if op.name in _ADDRESSES or op.name == "tt.bitcast":
                waiting.append((op.operands[0], plain and op.name != "tt.bitcast"))
            elif op.name == "arith.select":
                waiting += [(each, plain) for each in op.operands[1:]]
