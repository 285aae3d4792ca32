"""What the compiler's own words say of a wrong guess: the one type or constant to change, so that no other has to give way."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from advisor.compiled.compiler.failures import PLACE
from advisor.compiled.guesses.inference import Given, Guess
from advisor.compiled.guesses.origins import FLOAT_CALLS, Origins, converted, is_bitcast, is_load, walk
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.language import last_name
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import SourceFile

_VALUES = (True, False, 1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Tried for a guessed constant that an assertion names, besides what it is compared with."""
_ELEMENT = re.compile(r"\b(\w+)\.dtype\.element_ty\b")
"""How a kernel asks for the type of what it loads."""
_LANGUAGE = {"bf": "bfloat", "fp": "float", "i": "int", "u": "uint"}
"""What types begin with, and what their names in triton's language begin with."""
MOST_TRIED = 2
"""Constants of an assertion that are changed together."""


class _Failure:
    """One kernel, what was guessed of it, and where the compiler stopped."""

    def __init__(self, text: str, guess: Guess, source: SourceFile, function: JitFunction, given: Given) -> None:
        place = PLACE.search(text)
        self.text, self.guess, self.source, self.function = text, guess, source, function
        self.line = function.line - 1 + int(place.group(1)) if place and place.group(2) == function.name else 0
        self.helper = place.group(2) if place and not self.line else ""
        self.constants = {p.name for p in function.parameters if guess.signature.get(p.name) == "constexpr"} - set(given.constexprs)
        typed = {name: kind for name, kind in guess.signature.items() if kind != "constexpr"}
        self.types = typed.keys() - given.types.keys() - given.scalars.keys()

    def calls(self) -> Iterator[ast.Call]:
        """The calls in the line of the kernel where the compiler stopped, or of the helper in which it did."""
        for node in ast.walk(self.function.node):
            if isinstance(node, ast.Call) and (node.lineno <= self.line <= (node.end_lineno or 0) or last_name(node) == self.helper):
                yield node

    def pointers(self, node: ast.expr, behind: Callable[[ast.expr], list[ast.expr]], origins: Origins) -> list[str]:
        """Arguments with a guessed type that a value is loaded through or is itself, in the order of the source; `behind`: what it is made
        of."""
        addresses: dict[str, ast.expr] = {}
        for inner in walk(node, behind):
            if isinstance(inner, ast.Call) and is_load(inner) and inner.args:
                addresses |= dict.fromkeys(origins.roots(inner.args[0]), inner)
            elif isinstance(inner, ast.Name) and origins.is_parameter(inner):
                addresses[inner.id] = inner
        return sorted(
            (name for name in addresses if name in self.types), key=lambda name: (addresses[name].lineno, addresses[name].col_offset)
        )


def corrections(text: str, guess: Guess, source: SourceFile, function: JitFunction, given: Given) -> dict[str, Any]:
    """Types and values by argument that an error of the compiler asks for in place of guessed ones; empty: it says nothing of them.

    Args:
        text: The error, as the worker words it: `line 7 from `def k`: ...`, lines counted from the `def`.
        guess: What was compiled.
        source, function: The kernel.
        given: What was not guessed of it.
    """
    failure = _Failure(text, guess, source, function, given)
    for pattern, correct in _CORRECTIONS:
        if matched := re.search(pattern, text):
            return correct(failure, matched)
    return {}


def _unbound(failure: _Failure, matched: re.Match[str]) -> dict[str, Any]:
    """A name that only branches give a value that were not taken: the first of them is."""
    for node in ast.walk(failure.function.node):
        if isinstance(node, ast.If):
            stored = (n for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
            if any(n.id == matched.group(1) for n in stored) and (values := _to_hold(failure, node.test)):
                return values
    return {}


def _asserted(failure: _Failure, matched: re.Match[str]) -> dict[str, Any]:
    """An assertion that does not hold: constants with which it does."""
    for call in failure.calls():
        if last_name(call) == "static_assert" and call.args:
            written = _ELEMENT.sub(
                lambda chain: _named_type(failure.guess.signature.get(chain[1], "")) or chain[0], ast.unparse(call.args[0])
            )
            return _to_hold(failure, ast.parse(written, mode="eval").body)
    return {}


def _named_type(kind: str) -> str:
    """The type of a pointer's elements in triton's language, `tl.int32` of `*i32`; "": it is no pointer."""
    matched = re.match(r"\*([a-z]+)(\w+)$", kind)
    return f"tl.{_LANGUAGE.get(matched[1], matched[1])}{matched[2]}" if matched is not None else ""


def _to_hold(failure: _Failure, test: ast.expr) -> dict[str, Any]:
    """The fewest guessed constants to change so that a condition holds; empty: none are known, or it holds already."""
    names = [n.id for n in ast.walk(test) if isinstance(n, ast.Name) and n.id in failure.constants]
    compared = [n.value for n in ast.walk(test) if isinstance(n, ast.Constant) and n.value is not None]
    values = [value for _, value in dict.fromkeys((type(constant), constant) for constant in (*compared, *_VALUES))]

    def in_order(name: str) -> list[Any]:
        """No size of 0 before others: it fits any assertion, and no launch. Of a block first the largest that is no larger than guessed."""
        size = failure.guess.constexprs.get(name)
        if type(size) is not int or size <= 1:
            return sorted(values, key=lambda value: value == 0)
        return sorted(values, key=lambda value: (value == 0, type(value) is not int, value > size, abs(value - size)))

    for count in range(MOST_TRIED + 1):
        for chosen in itertools.combinations(dict.fromkeys(names), count):
            for tried in itertools.product(*map(in_order, chosen)):
                changed = dict(zip(chosen, tried, strict=True))
                if _holds(failure, test, changed):
                    return changed
    return {}


def _holds(failure: _Failure, test: ast.expr, changed: Mapping[str, Any]) -> bool:
    try:
        return bool(failure.source.evaluator({**failure.guess.constexprs, **changed}).evaluate(test))
    except (NotLiteralError, TypeError, ValueError, ArithmeticError):
        return False


def _float_wanted(failure: _Failure, matched: re.Match[str]) -> dict[str, Any]:
    """An operation of fp32 alone (`tl.exp`): of what it is given, the last that was loaded is of it (`tl.exp(s - lse)`)."""
    origins = Origins(failure.function)
    for call in failure.calls():
        if last_name(call) in FLOAT_CALLS or last_name(call) == failure.helper:
            names = [name for argument in call.args for name in failure.pointers(argument, origins.of_one_type, origins)]
            if names := [name for name in names if not failure.guess.signature[name].endswith("fp32")]:
                return {names[-1]: "*fp32" if failure.guess.signature[names[-1]].startswith("*") else "fp32"}
    return {}


def _width_wanted(failure: _Failure, matched: re.Match[str]) -> dict[str, Any]:
    """Bits that are taken for a type of another width: what is loaded is of that width."""
    origins, kind = Origins(failure.function), "u8" if matched.group(2) == "8" else f"i{matched.group(2)}"
    for call in failure.calls():
        value = converted(call) if is_bitcast(call) else None
        for argument in [value] if value is not None else call.args if last_name(call) == failure.helper else []:
            if names := failure.pointers(argument, lambda n: [*origins.of_one_type(n), *origins.passed_on(n)], origins):
                return {names[-1]: f"*{kind}"}
    return {}


def _operand_wanted(failure: _Failure, matched: re.Match[str]) -> dict[str, Any]:
    """Operands of `tl.dot` of two types: one that is loaded as it is has the type of the other."""
    origins = Origins(failure.function)
    types = [_TYPES.get(kind, kind) for kind in matched.groups()]
    for call in failure.calls():
        if last_name(call) == "dot" and len(call.args) > 1:
            for operand, wanted in zip(call.args[:2], reversed(types), strict=False):
                if names := failure.pointers(operand, origins.of_one_type, origins):
                    return {names[-1]: f"*{wanted}"}
    return {}


_TYPES = {"int8": "i8", "uint8": "u8", "int16": "i16", "int32": "i32"}
"""Of the names of types in the compiler's errors those that signatures write otherwise."""
_CORRECTIONS: tuple[tuple[str, Callable[[_Failure, re.Match[str]], dict[str, Any]]], ...] = (
    (r"NameError\(['\"](\w+) is not defined", _unbound),
    (r"CompileTimeAssertionFailure", _asserted),
    (r"Expected dtype \[['\"]fp32", _float_wanted),
    (r"Both operands must be same dtype. Got (\w+) and (\w+)", _operand_wanted),
    (r"Unsupported rhs dtype (\w+)", _operand_wanted),
    (r"Cannot bitcast data-type of size (\d+) to data-type of size (\d+)", _width_wanted),
)
"""What the compiler says, by a pattern of it, and what follows."""
