"""Functions of a file, followed statement by statement: arithmetic, branches, loops and lists. Nothing of them is run."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from advisor.python_source import target_questions
from advisor.python_source.bindings import argument_defaults
from advisor.python_source.kernel_forms import DECORATORS
from advisor.python_source.language import dotted
from advisor.python_source.literal_values import Limits
from advisor.python_source.literals import CONSTANTS, MATH, MAX_ITEMS, Allowance, Evaluator, NotLiteralError, reasons

LONGEST_TEXT = 200
MOST_TRIPS = 1_000
DEEPEST_CALLS = 8

_NOTHING = object()
_BREAK = object()
_CONTINUE = object()
_NUMBER_METHODS = frozenset({"bit_length"})
"""Methods of numbers that may be called."""
_UNANSWERED = object()
_TEXT_METHODS = frozenset({"startswith", "endswith", "lower", "upper"})
_MAKING_TEXTS = frozenset({"format", "join", "split"})
"""By which files put the assembly together that their kernels have."""
_FORMATS = re.compile(r"\{[^{}]*[^\w{}]")
"""Fields of a text that do more than put a value in: `{x.y}`, `{x:8}`."""
_VIEWS = frozenset({"keys", "values", "items", "copy"})
_WITHOUT_EFFECT = (ast.Pass, ast.Global, ast.Assert)
"""Statements that are passed over: what is asserted holds."""
_METHODS = _TEXT_METHODS | _MAKING_TEXTS | _NUMBER_METHODS | _VIEWS | {"get", "pop", "element_size"}
_LIMITS = frozenset({"torch.finfo", "torch.iinfo"})
_ENVIRONMENT = frozenset({"os.environ.get", "os.getenv", "environ.get", "getenv"})
_VERSIONS = frozenset({"Version", "parse", "version.parse", "version.Version", "packaging.version.parse", "packaging.version.Version"})
_CACHES = DECORATORS | {"cache", "lru_cache", "functools.cache", "functools.lru_cache"}
"""Decorators that change nothing of what a function returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in a file an expression is evaluated: names stand for what was assigned before.

    Attributes:
        position: Line and column.
        scopes: Functions and classes around, the outermost first.
    """

    position: tuple[float, int] = (math.inf, 0)
    scopes: tuple[ast.FunctionDef | ast.ClassDef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One question of a file, for all readers that it takes: that of another file, for what a file imports.

    Attributes:
        unset: Takes the names of environment variables that were asked for: each counts as not set.
        allowance: The steps that are left for all of them.
        importing: Files and names whose values are being worked out: files import each other.
        num_sms: SMs of the GPU, for files that ask how many it has; None: not known.
        element_bytes: Of tensors, for `x.element_size()`; None: not known.
    """

    unset: set[str]
    allowance: Allowance = field(default_factory=Allowance)
    importing: frozenset[tuple[str, str]] = frozenset()
    num_sms: int | None = None
    element_bytes: int | None = None


SM_COUNTS = ("multiprocessor_count", "multi_processor_count")
"""What Triton's driver and torch call the number of SMs."""


class FunctionReader(Evaluator):
    """The evaluator of literals, with what functions do besides: branches, loops, lists that grow, f-strings of plain
    values, methods of dictionaries, and questions about the target.

    Args:
        source: The file, a `source.SourceFile`, which makes its readers.
        evaluation: What is shared with the readers that it asks, or that ask it.
        names: As for Evaluator; names of the expression's own scope.
        place: Where in the file the expression stands.
        functions: Those of the file, while it is being found out which these are; None: all that can be followed.
    """

    def __init__(
        self,
        source: Any,
        evaluation: Evaluation,
        names: Mapping[str, Any] | None = None,
        place: Place | None = None,
        functions: Mapping[str, ast.FunctionDef] | None = None,
    ) -> None:
        around = source.plain_functions if functions is None else functions
        super().__init__(names, source.module_names.triton_roots | {"tl", "triton"}, around, evaluation.allowance)
        self.source, self.evaluation = source, evaluation
        self.reasons = source.not_followed if functions is None else {}
        self.place = place or Place()
        self.depth = 0
        self.known: dict[tuple[str, int], Any] = {}  # what names of the file were found to be, for `outer`

    def origin(self, node: ast.expr) -> str:
        """What a dotted name is called where it comes from: `torch.finfo` for `th.finfo` after `import torch as th`; "": not known."""
        root, dot, rest = dotted(node).partition(".")
        modules = self.source.module_names.modules
        return f"{modules[root]}{dot}{rest}" if root in modules and root not in self.names else ""

    def has(self, node: ast.Attribute) -> bool:
        """Whether a module of triton's has a name: `tl.gather`, or `hasattr(tl, "gather")`.

        Raises:
            NotLiteralError: It is no module of triton's, or that is not known.
        """
        owner = dotted(node.value)
        root = owner.partition(".")[0]
        if root not in self.roots or root in self.names:
            raise NotLiteralError(f"whether {ast.unparse(node.value)[:60]} has an attribute, as line {node.lineno} asks, is unknown")
        return target_questions.has(self.origin(node.value) or owner, str(node.attr))

    def call(
        self,
        function: ast.FunctionDef,
        arguments: Sequence[Any],
        keywords: Mapping[str, Any] | None = None,
    ) -> Any:
        """What a function of the file returns.

        Args:
            function: Its definition.
            arguments: What it is given in order.
            keywords: What it is given by name.

        Raises:
            NotLiteralError: It does more than the evaluator understands.
        """
        with reasons(function.name):
            return self._file_function(function, list(arguments), dict(keywords or {}))

    def follow(self, function: ast.FunctionDef) -> Any:
        """What the body of a function returns that sees the reader's names: one within the function that these are of.

        Raises:
            NotLiteralError: It does more than the evaluator understands.
        """
        with reasons(function.name):
            value = self._body(function.body)
        return None if value is _NOTHING else value

    @contextmanager
    def at(self, place: Place, names: dict[str, Any]) -> Iterator[None]:
        """Evaluate at another place, with its own names: those of whoever asks are not seen there."""
        before = self.names, self.place
        self.names, self.place = names, place
        try:
            yield
        finally:
            self.names, self.place = before

    def _outer(self, name: str) -> Any:
        constant = CONSTANTS.get(self.source.module_names.modules.get(name, ""))
        if constant is not None:
            return constant
        try:
            return self.source.module_names.value(self, name)
        except NotLiteralError:
            answer = self._asked_target(name)
            if answer is None:
                raise
            return answer

    def _asked_target(self, name: str) -> bool | int | str | None:
        return target_questions.asked_target(name, self.source.backend, self.source.arch)

    def _file_function(self, function: ast.FunctionDef, arguments: list, keywords: dict[str, Any]) -> Any:
        if self.depth > DEEPEST_CALLS:
            raise NotLiteralError("calls nested too deeply")
        for decorator in function.decorator_list:
            if dotted(decorator.func if isinstance(decorator, ast.Call) else decorator) not in _CACHES:
                raise NotLiteralError(f"{function.name} has a decorator that may change what it returns")
        names = self._arguments(function, arguments, keywords)
        self.depth += 1
        try:
            with self.at(replace(self.place, scopes=()), names):
                value = self._body(function.body)
        finally:
            self.depth -= 1
        return None if value is _NOTHING else value

    def _arguments(self, function: ast.FunctionDef, arguments: list, keywords: dict[str, Any]) -> dict[str, Any]:
        signature = function.args
        positional = [a.arg for a in (*signature.posonlyargs, *signature.args)]
        if signature.vararg or signature.kwarg or len(arguments) > len(positional):
            raise NotLiteralError(f"the arguments of {function.name} are not followed")
        given = {**dict(zip(positional, arguments, strict=False)), **keywords}
        defaults, names = argument_defaults(function), dict[str, Any]()
        for name in (*positional, *(a.arg for a in signature.kwonlyargs)):
            if name in given:
                names[name] = given.pop(name)
            elif name not in defaults:
                raise NotLiteralError(f"{function.name} is called without {name}")
            else:
                with self.at(replace(self.place, scopes=()), {}):
                    names[name] = self.visit(defaults[name])
        if given:
            raise NotLiteralError(f"{function.name} has no argument {next(iter(given))}")
        return names

    def _body(self, statements: Sequence[ast.stmt]) -> Any:
        """The value returned; _NOTHING where the end is reached, _BREAK or _CONTINUE where a loop around is left or goes on."""
        for statement in statements:
            value = self.execute(statement)
            if value is not _NOTHING:
                return value
        return _NOTHING

    def execute(self, statement: ast.stmt) -> Any:
        """Follow one statement; what its function returns there, or a mark of how it goes on.

        Raises:
            NotLiteralError: It does more than the evaluator understands.
        """
        self.allowance.take()  # loops around `pass` evaluate nothing
        if isinstance(statement, ast.Return):
            return self.visit(statement.value) if statement.value is not None else None
        if isinstance(statement, ast.If):
            return self._body(statement.body if self._true(statement.test) else statement.orelse)
        if isinstance(statement, ast.Try):  # what is caught does not happen, as far as is known
            return self._body([*statement.body, *statement.orelse, *statement.finalbody])
        if isinstance(statement, (ast.While, ast.For)):
            return self._loop(statement)
        if isinstance(statement, (ast.Break, ast.Continue)):
            return _BREAK if isinstance(statement, ast.Break) else _CONTINUE
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            self._bind(statement.targets[0], self.visit(statement.value))
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self._bind(statement.target, self.visit(statement.value))
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            self._add(statement.target, statement)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._grow(statement.value)
        elif not (
            isinstance(statement, _WITHOUT_EFFECT) or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        ):
            raise NotLiteralError(f"{type(statement).__name__} in line {statement.lineno} is not followed")
        return _NOTHING

    def _loop(self, statement: ast.While | ast.For) -> Any:
        """The value that is returned within a loop; _NOTHING where none is."""
        for _ in self._trips(statement):
            value = self._body(statement.body)
            if value is _BREAK:
                return _NOTHING
            if value is not _NOTHING and value is not _CONTINUE:
                return value
        return self._body(statement.orelse)

    def _trips(self, statement: ast.While | ast.For) -> Iterator[None]:
        """One item for each trip of a loop, its target bound."""
        if isinstance(statement, ast.For):
            for item in self.visit(statement.iter):
                self._bind(statement.target, item)
                yield
            return
        for _ in range(MOST_TRIPS):
            if not self._true(statement.test):
                return
            yield
        raise NotLiteralError(f"a loop in line {statement.lineno} does not end")

    def _add(self, target: ast.Name, statement: ast.AugAssign) -> None:
        name = ast.Name(id=target.id, ctx=ast.Load(), lineno=statement.lineno)
        if isinstance(statement.op, ast.Add) and isinstance(self.visit(name), list):
            return self._extend(target.id, self.visit(statement.value))  # a list takes anything that can be walked
        return self._bind(target, self.visit(ast.BinOp(left=name, op=statement.op, right=statement.value, lineno=statement.lineno)))

    def _grow(self, call: ast.Call) -> None:
        """`name.append(value)` and `name.extend(values)` of a list of this scope."""
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend" as how), args=[given], keywords=[]):
                value = self.visit(given)
                return self._extend(name, [value] if how == "append" else value)
        raise NotLiteralError(f"{ast.unparse(call)[:60]} in line {call.lineno} is not understood")

    def _extend(self, name: str, values: Any) -> None:
        # A new list, for the old one may be the value of another name; where it is, Python would change that one too.
        owner = self.names.get(name)
        others = [*(value for other, value in self.names.items() if other != name), *self.known.values()]
        if not isinstance(owner, list) or any(value is owner for value in others):
            raise NotLiteralError(f"{name} is changed, and is no list of its own scope, or has a second name")
        self._bind(ast.Name(id=name, ctx=ast.Store()), [*owner, *values])

    def _attribute(self, node: ast.Attribute) -> Any:
        origin = self.origin(node)
        constant = CONSTANTS.get(origin)
        if constant is not None:
            return constant
        name = origin or dotted(node)
        if name in ("torch.version.cuda", "torch.version.hip"):
            return target_questions.torch_version(node.attr, self.source.backend)
        if node.attr == "__version__" and name == "triton.__version__":
            return target_questions.triton_version()
        if name.startswith("torch.") and (kind := target_questions.torch_type(name.removeprefix("torch."))):
            return kind
        if node.attr == "type" and name.endswith(".device.type") and self.source.backend is not None:
            return "cuda"  # torch calls AMD's GPUs so too
        if node.attr == "multi_processor_count" and self.evaluation.num_sms is not None:  # torch.cuda.get_device_properties(...)
            return self.evaluation.num_sms
        if node.attr == "value" and isinstance(node.value, ast.Attribute):  # of an Enum of the file: `Kind.GENERAL.value`
            with suppress(NotLiteralError):
                owner = self.visit(node.value.value)
                for item in owner.body if isinstance(owner, ast.ClassDef) else ():
                    if isinstance(item, ast.Assign) and [dotted(target) for target in item.targets] == [node.value.attr]:
                        return self.evaluate(item.value)
        called = node.value if isinstance(node.value, ast.Call) else None
        if called is not None and (dotted(called.func).endswith("get_current_target") or self.origin(called.func) in _LIMITS):
            return self._member(self.visit(node.value), node)
        return super()._attribute(node)

    def _member(self, value: Any, node: ast.Attribute) -> Any:
        if (
            isinstance(value, target_questions.CurrentTarget | target_questions.DeviceProperties)
            and (answer := getattr(value, node.attr, None)) is not None
        ):
            return answer
        if isinstance(value, Limits):
            return target_questions.limit_of_type(value.kind, node.attr)
        return super()._member(value, node)

    def _subscript(self, node: ast.Subscript) -> Any:
        # driver.active.utils.get_device_properties(...)["multiprocessor_count"]
        if isinstance(node.slice, ast.Constant) and node.slice.value in SM_COUNTS and self.evaluation.num_sms is not None:
            return self.evaluation.num_sms
        return super()._subscript(node)

    def _joinedstr(self, node: ast.JoinedStr) -> str:
        text = "".join(str(self.visit(part)) for part in node.values)
        if len(text) > LONGEST_TEXT:
            raise NotLiteralError("a text too long")
        return text

    def _formattedvalue(self, node: ast.FormattedValue) -> str:
        value = self.visit(node.value)
        if node.format_spec is not None or not isinstance(value, (str, int)):
            raise NotLiteralError("a formatted value is not a literal")
        return str(value)

    def _compare(self, node: ast.Compare) -> bool:
        if isinstance(node.ops[0], ast.In | ast.NotIn) and dotted(node.comparators[0]) in ("os.environ", "environ"):
            self.evaluation.unset.add(str(self.visit(node.left)))
            return isinstance(node.ops[0], ast.NotIn)
        return super()._compare(node)

    def _call(self, node: ast.Call) -> Any:
        name = dotted(node.func)
        answered = self._answered(node, name)
        if answered is not _UNANSWERED:
            return answered
        try:
            if name in self.reasons:
                raise NotLiteralError(self.reasons[name])
            outside = self.source.imported_function(self, name) if name not in self.functions else None
            if outside is not None and all(k.arg for k in node.keywords):
                reader, function = outside
                given, named = self.elements(node.args), {str(k.arg): self.visit(k.value) for k in node.keywords}
                try:
                    return reader.call(function, given, named)
                except NotLiteralError as error:
                    raise NotLiteralError(f"{reader.source.path.name}: {error}") from None
            return super()._call(node)
        except NotLiteralError:
            question = "" if node.keywords else name.rsplit(".", 1)[-1]
            if question == "check_shared_mem":
                kind = self.visit(node.args[0]) if node.args else "none"
                answer: Any = target_questions.enough_shared_memory(kind, self.source.backend, self.source.arch)
            else:
                answer = self._asked_target(question) if not node.args else None
            if answer is None:
                raise
            return answer

    def _answered(self, node: ast.Call, name: str) -> Any:
        """What a call gives that is answered without following a function; _UNANSWERED: it is none of those that are known.

        Known are functions of `math`, `hasattr(tl, "gather")`, the environment (every variable counts as not set), questions about the
        device of a known target, versions, `next(...)` of a generator, and methods of values.

        Raises:
            NotLiteralError: It is one, and its value is not known.
        """
        origin, count, plain = self.origin(node.func), len(node.args), not node.keywords
        if plain and origin.startswith("math.") and callable(function := MATH.get(origin.removeprefix("math."))):
            return function(*self.elements(node.args))
        if plain and name == "hasattr" and count == 2 and not {"hasattr"} & {*self.names, *self.functions}:
            return self.has(ast.Attribute(value=node.args[0], attr=self.visit(node.args[1]), ctx=ast.Load(), lineno=node.lineno))
        if plain and name in _ENVIRONMENT and count in (1, 2):
            self.evaluation.unset.add(str(self.visit(node.args[0])))
            return self.visit(node.args[1]) if count == 2 else None
        if plain and origin in _LIMITS and count == 1:
            return Limits(self.visit(node.args[0]))
        if origin == "torch.cuda.get_device_capability":
            return target_questions.capability(self.source.backend, self.source.arch)
        if origin == "torch.cuda.get_device_properties":
            return target_questions.DeviceProperties(*target_questions.capability(self.source.backend, self.source.arch))
        if origin == "torch.cuda.is_available" and self.source.backend in target_questions.VENDORS and not node.args:
            return True
        if count == 1 and _VERSIONS & {name, origin}:
            return target_questions.version(self.visit(node.args[0]))
        if name.endswith("get_current_target") and not count and self.source.backend is not None:
            return target_questions.CurrentTarget(self.source.backend, self.source.arch)
        if plain and name == "next" and count in (1, 2):
            value = self.visit(node.args[0])
            return _UNANSWERED if not isinstance(value, list) else value[0] if value or count == 1 else self.visit(node.args[1])
        return self._of_method(node, node.func) if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS else _UNANSWERED

    def _of_method(self, node: ast.Call, function: ast.Attribute) -> Any:
        """What a dictionary holds, methods of texts, `n.bit_length()`, and `x.element_size()` of all tensors."""
        method, size = function.attr, self.evaluation.element_bytes
        if method == "element_size":
            return size if size is not None and not node.args and not node.keywords else _UNANSWERED
        if node.keywords and (method != "format" or not all(item.arg for item in node.keywords)):
            return _UNANSWERED
        owner, arguments = self.visit(function.value), self.elements(node.args)
        if isinstance(owner, str) and method in _MAKING_TEXTS:
            return _text_made(owner, method, arguments, {str(item.arg): self.visit(item.value) for item in node.keywords}, node.lineno)
        if isinstance(owner, int) and method in _NUMBER_METHODS and not arguments:
            return getattr(owner, method)()
        if isinstance(owner, dict) and method in _VIEWS and not arguments:
            return dict(owner) if method == "copy" else list(getattr(owner, method)())
        if isinstance(owner, dict) and method in ("get", "pop") and len(arguments) in (1, 2):
            return getattr(owner, method)(*arguments)
        if isinstance(owner, str) and method in _TEXT_METHODS and len(arguments) <= 1:
            return getattr(owner, method)(*map(str, arguments))
        return _UNANSWERED


def _text_made(owner: str, method: str, arguments: Sequence[Any], keywords: Mapping[str, Any], line: int) -> Any:
    """What a method of `_MAKING_TEXTS` gives.

    Raises:
        NotLiteralError: It is given other things than texts and numbers, or does more with them than to put them in; or it is too long.
    """
    flat = [part for item in (*arguments, *keywords.values()) for part in (item if isinstance(item, list | tuple) else [item])]
    if not all(isinstance(part, str | int) for part in flat) or (method == "format" and _FORMATS.search(owner)):
        raise NotLiteralError(f"a call of {method} in line {line} is not a literal")
    try:
        if (len(owner) + 1) * (sum(len(str(part)) for part in flat) + len(flat) + 1) > MAX_ITEMS * 10:
            raise NotLiteralError("a text too long")
        return getattr(owner, method)(*arguments, **keywords)
    except (TypeError, ValueError, LookupError) as error:
        raise NotLiteralError(f"a call of {method} in line {line} fails: {error}") from None
