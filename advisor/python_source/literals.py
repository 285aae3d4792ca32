"""A tiny evaluator for the literal parts of a Python file: constants, lists of `triton.Config`, simple arithmetic, lambdas of heuristics.

Nothing of the file is executed: the syntax tree is walked, only what is listed here is understood, and steps and sizes are limited.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from advisor.python_source.language import dotted
from advisor.python_source.literal_values import ConfigLiteral, Constexpr, Symbol, config_literal, plain
from advisor.python_source.syntax import parse
from advisor.result.schema import LAUNCH_OPTIONS

MAX_STEPS = 200_000
ITEMS_PER_STEP = 64
"""Of a long list or text: to make one takes as long as so many fewer steps. By count, and not by the clock, one file gives one answer."""
MAX_ITEMS = 20_000
MAX_ITEMS_WITHIN = 1_000_000
"""Of a collection with all within it: a tuple of one tuple twice, of one twice, … takes no room until it is written out or compared."""
MAX_INTEGER = 2**128


class NotLiteralError(Exception):
    """The expression is not one the evaluator understands; the text says why."""


@contextmanager
def reasons(name: str = "") -> Iterator[None]:
    """Whatever goes wrong while an expression, or the function `name`, is followed is a reason why its value is not known.

    Raises:
        NotLiteralError: In place of any other error: arithmetic on values of unexpected kinds is no description.
    """
    try:
        yield
    except NotLiteralError:
        raise
    except RecursionError:
        raise NotLiteralError("nested too deeply") from None
    except Exception as error:
        raise NotLiteralError(f"{name}: {type(error).__name__}: {error}".removeprefix(": ")) from None


class Unknown:
    """A value of which nothing is known: it can be handed on, but nothing can be worked out from it, or decided by it."""

    def _refuse(self, *_: object) -> Any:
        raise NotLiteralError(f"the value of {self} is unknown")

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __iter__ = __len__ = __contains__ = __getitem__ = _refuse
    __int__ = __float__ = __index__ = __neg__ = __pos__ = __abs__ = __invert__ = __add__ = __radd__ = __sub__ = __rsub__ = _refuse
    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _refuse
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse


def _is(one: Any, other: Any) -> bool:
    """Whether two values are one object.

    Raises:
        NotLiteralError: One of them is not known.
    """
    if isinstance(one, Unknown) or isinstance(other, Unknown):
        raise NotLiteralError(f"whether {one} is {other} is unknown")
    return one is other


@dataclass(slots=True)
class Allowance:
    """The steps that are `left` for all that one question of a file follows, through however many evaluators."""

    left: int = MAX_STEPS

    def take(self, steps: int = 1) -> None:
        """So many steps more.

        Raises:
            NotLiteralError: They are not left.
        """
        self.left -= steps
        if self.left < 0:
            raise NotLiteralError("too much to evaluate")


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Is: lambda a, b: _is(a, b),
    ast.IsNot: lambda a, b: not _is(a, b),
}


def cdiv(a: int, b: int) -> int:
    """ceil(a / b)."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The least power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


def _power_of_a_size(n: int) -> int:
    """The same of what a file says.

    Raises:
        NotLiteralError: It is no size: a default of -1, say, that every caller replaces.
    """
    if n < 0:
        raise NotLiteralError(f"{n} is no size")
    return next_power_of_2(n)


_KINDS: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}
"""What `isinstance` may ask for."""
_CALLS: dict[str, Callable[..., Any]] = {
    "range": range,
    "min": min,
    "max": max,
    "int": int,
    "float": float,
    "bool": bool,
    "len": len,
    "abs": abs,
    "list": list,
    "tuple": tuple,
    "dict": dict,
    "set": set,
    "sorted": sorted,
    "zip": zip,
    "enumerate": enumerate,
    "cdiv": cdiv,
    "next_power_of_2": _power_of_a_size,
    "product": lambda *lists: _product(*lists),
}


_HOLDERS = (list, tuple, set, dict, Constexpr, ConfigLiteral)


_PLAIN = frozenset({int, float, bool, type(None)})
"""Types of values that hold nothing."""


def items_within(value: Any, counts: dict[int, int] | None = None) -> int:
    """Items of a value and of all that it holds, each as often as it occurs, texts by their length; at most `MAX_ITEMS_WITHIN` + 1.
    `counts`: of what was counted, by identity."""
    counts = {} if counts is None else counts
    if id(value) not in counts:
        parts = _parts(value)
        larger = [item for item in parts if type(item) not in _PLAIN]  # lists of numbers alone are gone through once
        texts = sum(len(item) // ITEMS_PER_STEP for item in larger if isinstance(item, (str, bytes)))
        inner = sum(items_within(item, counts) for item in larger if isinstance(item, _HOLDERS))
        counts[id(value)] = min(len(parts) + texts + inner, MAX_ITEMS_WITHIN + 1)
    return counts[id(value)]


def _parts(value: Any) -> Any:
    if isinstance(value, Constexpr):
        return (value.value,)
    if isinstance(value, ConfigLiteral):
        return tuple(value.parameters.values())
    return (*value, *value.values()) if isinstance(value, dict) else value


def _product(*lists: Any) -> Any:
    """`itertools.product`, of as many as there may be."""
    if math.prod(len(operand) for operand in lists) > MAX_ITEMS:
        raise NotLiteralError("a collection too large")
    return itertools.product(*lists)


MATH = {name: getattr(math, name) for name in ("e", "pi", "inf", "log", "log2", "sqrt", "exp", "ceil", "floor")}
"""What of the standard module `math` is worked out."""
CONSTANTS = {f"{module}.{name}": getattr(math, name) for module in ("math", "torch", "numpy") for name in ("e", "pi", "inf", "nan")}
"""Constants by what they are called where they come from."""


class Evaluator:
    """Evaluates literal expressions over given names.

    Args:
        names: Values of names; a value may be a function without arguments that makes it (evaluated on use).
        roots: Names that stand for triton's own modules (`tl`, `triton`); attributes of them become `Symbol`s.
        functions: Functions that may be called, where a subclass follows them.
        allowance: The steps that are left; None: all.
    """

    def __init__(
        self,
        names: Mapping[str, Any] | None = None,
        roots: frozenset[str] = frozenset(),
        functions: Mapping[str, ast.FunctionDef] | None = None,
        allowance: Allowance | None = None,
    ) -> None:
        self.names = dict(names or {})
        self.roots = roots
        self.functions = dict(functions or {})
        self.allowance = allowance if allowance is not None else Allowance()

    def evaluate(self, node: ast.AST) -> Any:
        """The value of an expression.

        Raises:
            NotLiteralError: It is not one of literals.
        """
        with reasons():
            return self.visit(node)

    def evaluate_text(self, text: str) -> Any:
        """The value of an expression that is written somewhere else than in a file; of a function of one argument
        (`lambda meta: cdiv(n, meta["BLOCK"])`) what it returns for the names as a dictionary.

        Raises:
            NotLiteralError: It is not one of literals.
            SyntaxError, ValueError: It is no expression.
        """
        tree = parse(f"({text}\n)", "eval")
        node = tree.body if isinstance(tree, ast.Expression) else tree
        if isinstance(node, ast.Lambda) and len(node.args.args) == 1:
            self.names[node.args.args[0].arg] = dict(self.names)
            node = node.body
        return self.evaluate(node)

    def visit(self, node: ast.AST) -> Any:
        """The value of an expression within another.

        Raises:
            NotLiteralError: It is not one of literals, or too much of one.
        """
        self.allowance.take()
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise NotLiteralError(f"{type(node).__name__} in line {getattr(node, 'lineno', '?')} is not a literal")
        value = method(node)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_INTEGER:
            raise NotLiteralError("an integer too large")
        if isinstance(value, (list, tuple, str, dict, set, bytes)) and len(value) > MAX_ITEMS:
            raise NotLiteralError("a collection too large")
        if isinstance(value, _HOLDERS):
            within = items_within(value)
            if within > MAX_ITEMS_WITHIN:
                raise NotLiteralError("a collection too large")
            if within > ITEMS_PER_STEP:
                self.allowance.take(within // ITEMS_PER_STEP)
        elif isinstance(value, (str, bytes, range)) and len(value) > ITEMS_PER_STEP:
            self.allowance.take(len(value) // ITEMS_PER_STEP)
        return value

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        if node.id in self.names:
            value = self.names[node.id]
            if callable(value) and not isinstance(value, type):
                value = value()
                self.names[node.id] = value
            return value
        if node.id in self.roots:
            return Symbol(node.id)
        return self._outer(node.id)

    def _attribute(self, node: ast.Attribute) -> Any:
        text = dotted(node)
        if text and text.split(".")[0] in self.roots:
            return Symbol(text)
        if text and text.startswith("math.") and "math" not in self.names and isinstance(MATH.get(node.attr), float):
            return MATH[node.attr]
        return self._member(self.visit(node.value), node)

    def _member(self, value: Any, node: ast.Attribute) -> Any:
        """What an attribute of a value is."""
        if isinstance(value, Constexpr) and node.attr == "value":
            return value.value
        if isinstance(value, ConfigLiteral) and node.attr in ("kwargs", *LAUNCH_OPTIONS):
            return dict(value.parameters) if node.attr == "kwargs" else getattr(value, node.attr)
        raise NotLiteralError(f".{node.attr} in line {node.lineno} is not a literal")

    def _tuple(self, node: ast.Tuple) -> tuple:
        return tuple(self.elements(node.elts))

    def _list(self, node: ast.List) -> list:
        return self.elements(node.elts)

    def elements(self, nodes: list[ast.expr]) -> list:
        """The values of expressions, what is starred unpacked.

        Raises:
            NotLiteralError: One is not of literals.
        """
        out: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                out.extend(self.visit(node.value))
            else:
                out.append(self.visit(node))
        return out

    def _dict(self, node: ast.Dict) -> dict:
        out: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                out.update(self.visit(value))
            else:
                out[self.visit(key)] = self.visit(value)
        return out

    def _binop(self, node: ast.BinOp) -> Any:
        left, right = plain(self.visit(node.left)), plain(self.visit(node.right))
        if isinstance(node.op, (ast.Pow, ast.LShift)) and not (isinstance(right, (int, float)) and -64 <= right <= 256):
            raise NotLiteralError("an exponent too large")
        if isinstance(node.op, ast.Mult):
            for a, b in ((left, right), (right, left)):
                if isinstance(a, (str, bytes, list, tuple)) and isinstance(b, int) and len(a) * b > MAX_ITEMS:
                    raise NotLiteralError("a collection too large")
        if isinstance(node.op, ast.Mod) and isinstance(left, (str, bytes)):
            raise NotLiteralError("string formatting is not a literal")
        if type(node.op) not in _BINARY:
            raise NotLiteralError(f"operator in line {node.lineno} is not a literal")
        return _BINARY[type(node.op)](left, right)

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return not self._true(node.operand)
        return _UNARY[type(node.op)](plain(self.visit(node.operand)))

    def _boolop(self, node: ast.BoolOp) -> Any:
        value = None
        for operand in node.values:
            value = plain(self.visit(operand))
            if bool(value) != isinstance(node.op, ast.And):
                return value
        return value

    def _compare(self, node: ast.Compare) -> bool:
        left = plain(self.visit(node.left))
        for op, item in zip(node.ops, node.comparators, strict=True):
            right = plain(self.visit(item))
            try:
                holds = _COMPARE[type(op)](left, right)
            except TypeError:
                raise NotLiteralError(f"{ast.unparse(node)[:60]} compares what cannot be compared here") from None
            if not holds:
                return False
            left = right
        return True

    def _ifexp(self, node: ast.IfExp) -> Any:
        return self.visit(node.body if self._true(node.test) else node.orelse)

    def _subscript(self, node: ast.Subscript) -> Any:
        return self._item(self.visit(node.value), node)

    def _item(self, value: Any, node: ast.Subscript) -> Any:
        """What an item of a value is."""
        if isinstance(node.slice, ast.Slice):
            parts = (node.slice.lower, node.slice.upper, node.slice.step)
            return value[slice(*(self.visit(p) if p is not None else None for p in parts))]
        return value[self.visit(node.slice)]

    def _listcomp(self, node: ast.ListComp) -> list:
        out: list[Any] = []
        self._comprehend(node.generators, 0, lambda: out.append(self.visit(node.elt)), out)
        return out

    _generatorexp = _listcomp  # type: ignore[assignment]

    def _dictcomp(self, node: ast.DictComp) -> dict:
        pairs: list[Any] = []
        self._comprehend(node.generators, 0, lambda: pairs.append((self.visit(node.key), self.visit(node.value))), pairs)
        return dict(pairs)

    def _comprehend(self, generators: list[ast.comprehension], i: int, emit: Callable[[], None], out: list) -> None:
        if i == len(generators):
            if len(out) >= MAX_ITEMS:
                raise NotLiteralError("a collection too large")
            emit()
            return
        generator = generators[i]
        before = dict(self.names)
        for value in self.visit(generator.iter):
            self._bind(generator.target, value)
            if all(self._true(test) for test in generator.ifs):
                self._comprehend(generators, i + 1, emit, out)
        self.names = before

    def _bind(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for item, part in zip(target.elts, value, strict=True):
                self._bind(item, part)
        else:
            raise NotLiteralError(f"{ast.unparse(target)} is given something, which is not followed")

    def _call(self, node: ast.Call) -> Any:
        name = dotted(node.func)
        last = name.rsplit(".", 1)[-1]
        if name == "isinstance" and len(node.args) == 2 and (kind := _KINDS.get(dotted(node.args[1]))) is not None:
            value = plain(self.visit(node.args[0]))
            return bool(value) if isinstance(value, Unknown) else isinstance(value, kind)
        keywords: dict[str, Any] = {}
        hook = False
        for keyword in node.keywords:
            if keyword.arg == "pre_hook":
                hook = not (isinstance(keyword.value, ast.Constant) and keyword.value.value is None)
            elif keyword.arg is None:
                keywords.update(self.visit(keyword.value))
            else:
                keywords[keyword.arg] = self.visit(keyword.value)
        arguments = self.elements(node.args)
        if last == "Config":
            return config_literal(arguments, keywords, hook)
        if last == "constexpr":
            return Constexpr(plain(arguments[0]))
        if last == "range" and (len(range(*map(plain, arguments))) > MAX_ITEMS):
            raise NotLiteralError("a range too large")
        if last in _CALLS and (name == last or name.split(".")[0] in {*self.roots, "itertools"}):
            value = _CALLS[last](*map(plain, arguments), **keywords)
            return list(itertools.islice(value, MAX_ITEMS + 1)) if last in ("zip", "enumerate", "product") else value
        if name.startswith("math.") and not {"math"} & {*self.names, *self.roots} and callable(MATH.get(last)) and not keywords:
            return MATH[last](*map(plain, arguments))
        if name in self.functions:
            return self._file_function(self.functions[name], arguments, keywords)
        raise NotLiteralError(f"a call of {name or 'something'} in line {node.lineno} is not a literal")

    def _file_function(self, function: ast.FunctionDef, arguments: list, keywords: dict[str, Any]) -> Any:
        raise NotLiteralError(f"a call of {function.name} is not a literal")

    def _outer(self, name: str) -> Any:
        """What a name stands for that is none of `names`."""
        raise NotLiteralError(f"{name} is not a literal of the file")

    def _true(self, node: ast.expr) -> bool:
        """Whether a condition holds; a name of triton's, kept as written, is neither true nor false."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return not self._true(node.operand)
        if isinstance(node, ast.BoolOp):
            return self._any_or_all(node)
        value = plain(self.visit(node))
        if isinstance(value, (Symbol, ConfigLiteral)):
            raise NotLiteralError(f"the condition {ast.unparse(node)[:60]} is not a literal")
        return bool(value)

    def _any_or_all(self, node: ast.BoolOp) -> bool:
        """Whether `a and b`, or `a or b`, holds; one part may decide it whatever the others are."""
        deciding = isinstance(node.op, ast.Or)
        unknown: NotLiteralError | None = None
        for part in node.values:
            try:
                if self._true(part) is deciding:
                    return deciding
            except NotLiteralError as error:
                unknown = unknown or error
        if unknown is not None:
            raise unknown
        return not deciding
