"""One `@triton.jit` function as its definition says it: parameters, `@triton.autotune`, `@triton.heuristics`, TorchInductor's decorator."""

from __future__ import annotations

import ast
import contextlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.python_source.bindings import argument_defaults, plainly_given
from advisor.python_source.functions import FunctionReader
from advisor.python_source.language import dotted, last_name
from advisor.python_source.literal_values import ConfigLiteral, config_literal
from advisor.python_source.literals import MAX_ITEMS, NotLiteralError
from advisor.result.schema import LAUNCH_OPTIONS

INDUCTOR_DECORATORS = (
    "pointwise",
    "reduction",
    "persistent_reduction",
    "split_scan",
    "template",
    "foreach",
    "user_autotune",
    "cooperative_reduction",
    "fixed_config",
)
"""Decorators of TorchInductor's generated kernels (`torch/_inductor/runtime/triton_heuristics.py`)."""


_NO_TUNERS = frozenset({"jit", "constexpr_function", "constexpr", "staticmethod", "libentry", "cache", "lru_cache"})
"""Decorators that leave a launch's configuration alone."""


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


_INTEGER = re.compile(r"(?:[\w.]+\.)?(?:u?int(?:8|16|32|64)?|[iu](?:8|16|32|64))")
"""Annotations by which Triton takes an argument's type as said, and makes no constant of 1 (`create_function_from_signature`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a kernel. `default` is MISSING where there is none, or where it is not a literal."""

    name: str
    is_constexpr: bool
    annotation: str | None = None
    default: Any = MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Autotune:
    """What `@triton.autotune` says.

    Attributes:
        configs: Its list.
        key: Arguments whose change makes it tune anew.
        problem: Why the configurations could not be read from the source.
        prunes: What leaves some of the list out, as written (`prune_configs_by`); empty: nothing does.
    """

    configs: tuple[ConfigLiteral, ...]
    key: tuple[str, ...]
    problem: str | None = None
    prunes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JitFunction:
    """A `@triton.jit` function.

    Attributes:
        heuristics: The functions that set parameters and options, by name.
        inductor: The literal arguments of TorchInductor's decorator, where it has one.
        unspecialized: Arguments of which Triton tells the compiler neither that they are 1 nor that they are multiples of 16
        unfolded: These, and those whose type is annotated (`stride: tl.int64`, `n: int`): of 1 no constant is made
            (`do_not_specialize`).
        unread: Decorators of which it is not known what they do.
        unaligned: These, and those of which it does not tell it the latter (`do_not_specialize_on_alignment`).
    """

    name: str
    line: int
    end_line: int
    parameters: tuple[Parameter, ...]
    autotune: Autotune | None = None
    heuristics: Mapping[str, ast.FunctionDef] = field(default_factory=dict)
    inductor: Mapping[str, Any] | None = None
    unspecialized: frozenset[str] = frozenset()
    unfolded: frozenset[str] = frozenset()
    unaligned: frozenset[str] = frozenset()
    unread: tuple[str, ...] = ()
    node: ast.FunctionDef = field(repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Its parameters, in order."""
        return tuple(parameter.name for parameter in self.parameters)

    @property
    def constants(self) -> frozenset[str]:
        """The parameters that are constants."""
        return frozenset(parameter.name for parameter in self.parameters if parameter.is_constexpr)

    @property
    def reads(self) -> frozenset[str]:
        """The names that its body reads."""
        return frozenset(node.id for node in ast.walk(self.node) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))

    @property
    def only_stored(self) -> set[str]:
        """The names that its body uses in no other way than to store at `name + offsets`."""
        nodes = list(ast.walk(self.node))
        stores = [node.args[0] for node in nodes if isinstance(node, ast.Call) and node.args and dotted(node.func) == "tl.store"]
        places = [place for place in stores if not any(isinstance(node, ast.Call) for node in ast.walk(place))]
        stored = Counter(node.id for place in places for node in ast.walk(place) if isinstance(node, ast.Name))
        used = Counter(node.id for node in nodes if isinstance(node, ast.Name))
        return {name for name, count in stored.items() if count == used[name]}

    @property
    def numbers(self) -> dict[str, int]:
        """Whole numbers that it gives names at its beginning: `xnumel = 4096`, `R0_BLOCK: tl.constexpr = 64`."""
        given = (pair for node in self.node.body for pair in plainly_given(node))
        return {name: value.value for name, value in given if isinstance(value, ast.Constant) and type(value.value) is int}

    def parameter(self, name: str) -> Parameter | None:
        """The parameter of that name."""
        return next((p for p in self.parameters if p.name == name), None)


def read_function(node: ast.FunctionDef, evaluator: FunctionReader) -> JitFunction:
    """A kernel from its definition; the evaluator knows the file's literals as the decorators see them."""
    autotune: Autotune | None = None
    heuristics: dict[str, Any] = {}
    inductor: dict[str, Any] | None = None
    unread: list[str] = []
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        imported = evaluator.origin(called) if isinstance(called, ast.Name) else ""
        last = imported.rpartition(".")[2] or last_name(called)  # whatever the file calls it
        if last in _NO_TUNERS:
            continue
        if isinstance(decorator, ast.Call) and last in INDUCTOR_DECORATORS:
            inductor = _inductor(decorator, evaluator)
        elif isinstance(decorator, ast.Call) and last == "heuristics":
            heuristics.update(_heuristics(decorator, evaluator))
        elif isinstance(decorator, ast.Call) and (last == "autotune" or any(keyword.arg == "configs" for keyword in decorator.keywords)):
            autotune = _autotune(decorator, evaluator)  # flag_gems' `libtuner` is one, too
        else:
            unread.append(ast.unparse(called)[:60])
    unspecialized = frozenset(_named(node, "do_not_specialize", evaluator))
    parameters = tuple(_parameters(node, evaluator))
    return JitFunction(
        name=node.name,
        line=node.lineno,
        end_line=node.end_lineno or node.lineno,
        node=node,
        autotune=autotune,
        heuristics=heuristics,
        inductor=inductor,
        parameters=parameters,
        unspecialized=unspecialized,
        unfolded=unspecialized | {item.name for item in parameters if item.annotation and _INTEGER.fullmatch(item.annotation)},
        unaligned=unspecialized | frozenset(_named(node, "do_not_specialize_on_alignment", evaluator)),
        unread=tuple(unread),
    )


def _named(node: ast.FunctionDef, option: str, evaluator: FunctionReader) -> Iterator[str]:
    """The arguments that an option of `@triton.jit` names, or counts."""
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    for keyword in (k for d in node.decorator_list if isinstance(d, ast.Call) for k in d.keywords):
        if keyword.arg == option:
            with contextlib.suppress(NotLiteralError):
                value = evaluator.evaluate(keyword.value)
                listed = value if isinstance(value, (list, tuple, set)) else ()
                yield from (name for number, name in enumerate(names) if number in listed or name in listed)


def _as_function(name: str, value: ast.Lambda) -> ast.FunctionDef:
    """A `lambda` that has a name, as a function of that name."""
    returned = ast.copy_location(ast.Return(value=value.body), value)
    return ast.copy_location(ast.FunctionDef(name=name, args=value.args, decorator_list=[], body=[returned]), value)


def _heuristics(decorator: ast.Call, evaluator: FunctionReader) -> dict[str, Any]:
    value: ast.expr | None = decorator.args[0] if decorator.args else None
    value = value or next((k.value for k in decorator.keywords if k.arg == "values"), None)
    if isinstance(value, ast.Name):
        value = evaluator.source.assignments.get(value.id)
    rules: dict[str, Any] = {}
    if isinstance(value, ast.Dict):
        for key, item in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                rules[key.value] = _as_function(key.value, item if isinstance(item, ast.Lambda) else _calling(item))
    return rules


def _calling(function: ast.expr) -> ast.Lambda:
    """`lambda args: f(args)`, for a function that the file may import."""
    arguments = ast.arguments(posonlyargs=[], args=[ast.arg("args")], kwonlyargs=[], kw_defaults=[], defaults=[])
    body = ast.Call(func=function, args=[ast.Name("args", ast.Load())], keywords=[])
    return ast.fix_missing_locations(ast.copy_location(ast.Lambda(args=arguments, body=ast.copy_location(body, function)), function))


def _parameters(node: ast.FunctionDef, evaluator: FunctionReader) -> Iterator[Parameter]:
    defaults = argument_defaults(node)
    for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        annotation = ast.unparse(argument.annotation) if argument.annotation is not None else None
        if isinstance(argument.annotation, ast.Constant) and isinstance(argument.annotation.value, str):
            annotation = argument.annotation.value
        value: Any = MISSING
        with contextlib.suppress(NotLiteralError):
            value = evaluator.evaluate(defaults[argument.arg]) if argument.arg in defaults else MISSING
        yield Parameter(
            name=argument.arg,
            annotation=annotation,
            default=value,
            is_constexpr=bool(annotation) and annotation.split(".")[-1].startswith("constexpr"),  # type: ignore[union-attr]
        )


def _autotune(decorator: ast.Call, evaluator: FunctionReader) -> Autotune:
    arguments = {k.arg: k.value for k in decorator.keywords if k.arg}
    arguments |= dict(zip(("configs", "key", "prune_configs_by"), decorator.args, strict=False))
    key: tuple[str, ...] = ()
    problem = None
    configs: tuple[ConfigLiteral, ...] = ()
    try:
        key = tuple(str(k) for k in evaluator.evaluate(arguments["key"])) if "key" in arguments else ()
    except NotLiteralError as error:
        problem = f"the key: {error}"
    listed, pruning = _unfiltered(arguments.get("configs"), arguments.get("prune_configs_by"))
    try:
        value = evaluator.evaluate(listed) if listed is not None else []
        value = _space(value) if isinstance(value, dict) else value
        configs = tuple(c for c in value if isinstance(c, ConfigLiteral))
        if not configs:
            problem = "no literal triton.Config in the list"
    except NotLiteralError as error:
        problem = f"the configurations: {error}"
    prunes = ast.unparse(pruning) if pruning is not None else "None"
    names = {node.id for node in ast.walk(pruning) if isinstance(node, ast.Name)} if pruning is not None else set()
    if making := [name for name in sorted(names) if name in evaluator.functions and _makes_configurations(evaluator.functions[name])]:
        configs, problem = (), f"the configurations: {making[0]}, which prunes them, makes others"
    return Autotune(configs=configs, key=key, problem=problem, prunes="" if prunes == "None" else prunes)


def _makes_configurations(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] == "Config" for node in ast.walk(function))


def _unfiltered(listed: ast.expr | None, pruning: ast.expr | None) -> tuple[ast.expr | None, ast.expr | None]:
    """The list within `list(filter(keep, configs))` and what leaves some of it out; both as they are where it is no such thing."""
    match listed:
        case ast.Call(func=ast.Name(id="list"), args=[ast.Call() as inner]):
            return _unfiltered(inner, pruning) if dotted(inner.func) == "filter" else (listed, pruning)
        case ast.Call(func=ast.Name(id="filter"), args=[keep, within]):
            return within, pruning or keep
    return listed, pruning


def _space(columns: Mapping[str, Any]) -> list[ConfigLiteral]:
    """The configurations of `advisor.autotune`'s other form: {"BLOCK": [64, 128], "num_warps": [4, 8]}."""
    lists = {name: list(v) if isinstance(v, (list, tuple, set, range)) else [v] for name, v in columns.items()}
    count = math.prod(len(values) for values in lists.values())
    if count > MAX_ITEMS:
        raise NotLiteralError(f"a space of {count} configurations")
    rows = (dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values()))
    return [config_literal([], {**{k: row.pop(k) for k in LAUNCH_OPTIONS if k in row}, "kwargs": row}) for row in rows]


def as_dict(value: Any) -> dict[Any, Any]:
    """An argument of TorchInductor's decorator that is a dictionary; empty where a file says anything else there."""
    return value if isinstance(value, dict) else {}


def _inductor(decorator: ast.Call, evaluator: FunctionReader) -> dict[str, Any]:
    """Literal arguments of TorchInductor's decorator; `triton_meta` holds a call of `DeviceProperties`, which is left out."""
    settings: dict[str, Any] = {}
    for keyword in decorator.keywords:
        node = keyword.value
        if isinstance(node, ast.Dict):
            part: dict[Any, Any] = {}
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant):
                    with contextlib.suppress(NotLiteralError):
                        part[key.value] = evaluator.evaluate(value)
            settings[str(keyword.arg)] = part
        else:
            try:
                settings[str(keyword.arg)] = evaluator.evaluate(node)
            except NotLiteralError:
                if keyword.arg == "reduction_hint" and isinstance(node, ast.Attribute):  # ReductionHint.INNER
                    settings[str(keyword.arg)] = node.attr
    return settings
