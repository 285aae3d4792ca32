"""What a decorator is, whatever it is called: other names of `triton.autotune`, a decorator that was kept, `functools.partial`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from advisor.python_source.bindings import Scope, arguments, bound_by, own_nodes, scopes_around
from advisor.python_source.imports import module_level
from advisor.python_source.literals import dotted

DEEPEST = 6
"""Names of names that are followed."""

MOST_NODES = 20_000
"""Of the syntax of a decorator, after what a function is given stands in place of its arguments: each may be used many times over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decorators:
    """What names of one file stand for, as far as decorators go.

    Attributes:
        imported: Alias -> the name that is imported under it.
        assigned: All expressions that are assigned to a name at module level.
        functions: Functions of the file.
    """

    imported: Mapping[str, str]
    assigned: Mapping[str, Sequence[ast.expr]]
    functions: Mapping[str, ast.FunctionDef]

    def meant(self, node: ast.expr, depth: int = 0) -> ast.expr:
        """The expression that a decorator stands for: a call of what it is called where it comes from, as far as that can be followed."""
        if depth > DEEPEST:
            return node
        if isinstance(node, ast.Name):
            values = self.assigned.get(node.id, ())
            if len(values) == 1 and node.id not in self.imported:
                return self.meant(values[0], depth + 1)
            return ast.copy_location(ast.Name(id=self.imported.get(node.id, node.id), ctx=ast.Load()), node)
        if not isinstance(node, ast.Call):
            return node
        function = self.meant(node.func, depth + 1)
        if isinstance(function, ast.Call) and last_name(function) == "partial" and function.args:
            named = {keyword.arg for keyword in node.keywords}
            kept = [keyword for keyword in function.keywords if keyword.arg not in named]
            call = ast.Call(func=function.args[0], args=[*function.args[1:], *node.args], keywords=[*kept, *node.keywords])
            return self.meant(ast.copy_location(call, node), depth + 1)
        return ast.copy_location(ast.Call(func=function, args=node.args, keywords=node.keywords), node)


def last_name(node: ast.expr) -> str:
    """The last part of the name that is called, or of a name itself."""
    return (dotted(node.func if isinstance(node, ast.Call) else node) or "").rsplit(".", 1)[-1]


_Blocks = tuple[int, ...]  # ids of the blocks around a statement, the file's own first


def layers_of(node: ast.expr, is_jit: Callable[[str], bool] = lambda name: False) -> tuple[list[ast.expr], str] | None:
    """Decorators, the outermost first, and the name of the function that they are applied to; None: this is not what it is."""
    found: list[ast.expr] = []
    while isinstance(node, ast.Call):
        if len(node.args) != 1 or (node.keywords and not is_jit(dotted(node.func) or "")):
            return None
        # triton.jit(f, noinline=True) is triton.jit(noinline=True)(f)
        found.append(ast.copy_location(ast.Call(func=node.func, args=[], keywords=node.keywords), node) if node.keywords else node.func)
        node = node.args[0]
    return (found, node.id) if isinstance(node, ast.Name) else None


def made_of(kernel: str, assigned: Mapping[str, Sequence[ast.expr]]) -> set[str]:
    """A kernel's name, and those that a file gives what it makes of it, also by way of others.

    Args:
        kernel: The name.
        assigned: All expressions that are assigned to each name of the file.
    """
    found = {kernel}
    sources = {name: {layers[1] for value in values if (layers := layers_of(value)) is not None} for name, values in assigned.items()}
    while more := {name for name, made in sources.items() if name not in found and made & found}:
        found |= more
    return found


def is_redefined(tree: ast.Module, name: str, line: int) -> bool:
    """Whether a file defines or assigns a name below a line: what was made of it there was made of another function."""
    later = [node for node in module_level(tree) if node.lineno > line]
    if any(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name for node in later):
        return True
    targets = (target for node in later if isinstance(node, ast.Assign) for target in node.targets)
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for each in targets for n in ast.walk(each))


RUN = "run"
"""What triton calls for a subscript (`KernelInterface.__getitem__`, Triton 3.6 and 3.9); autotuners and heuristics have it as well."""


def launched_by(call: ast.Call) -> ast.expr | None:
    """What a call launches if that is a kernel; None: it is written as no launch is."""
    if isinstance(call.func, ast.Subscript):
        return call.func.value
    named = isinstance(call.func, ast.Attribute) and call.func.attr == RUN and any(each.arg == "grid" for each in call.keywords)
    return call.func.value if named and isinstance(call.func, ast.Attribute) and not _only_compiles(call) else None


def grid_of(call: ast.Call) -> ast.expr:
    """The grid of a launch."""
    if isinstance(call.func, ast.Subscript):
        return call.func.slice
    return next(each.value for each in call.keywords if each.arg == "grid")


def _only_compiles(call: ast.Call) -> bool:
    return any(each.arg == "warmup" and isinstance(each.value, ast.Constant) and each.value.value is True for each in call.keywords)


_WRAPPERS = ("wrap_triton", "capture_triton")
"""Functions of torch that hand a kernel on for `torch.compile`: `wrap_triton(kernel)[grid](...)`."""


def launching_calls(tree: ast.Module) -> list[tuple[str, ast.Call]]:
    """The calls of a file that launch something, each with what, as it is named there: `kernel`, `module.kernel`."""
    calls = []
    for node in ast.walk(tree):
        launched = launched_by(node) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and launched is not None:
            if isinstance(launched, ast.Call) and len(launched.args) == 1 and (dotted(launched.func) or "").rsplit(".", 1)[-1] in _WRAPPERS:
                launched = launched.args[0]
            name = dotted(launched)
            if name is not None:
                calls.append((name, node))
    return calls


def launched_names(calls: Iterable[tuple[str, ast.Call]], scopes: Sequence[Scope]) -> Iterator[tuple[str, ast.Call]]:
    """The same calls, as the file names what they launch; where a function gives such names another, `kernel = fast if small else slow`,
    each of them."""
    for name, node in calls:
        yield from ((each, node) for each in _meant(name, scopes_around(scopes, node)))


def _meant(name: str, around: Sequence[Scope]) -> list[str]:
    """What a name that is launched stands for by plain assignments of the innermost function that binds it; else the name itself."""
    for scope in reversed(around):
        binding = [each for each in own_nodes(scope) if name in bound_by(each)]
        if name in arguments(scope) or binding:
            given = [each.value for each in own_nodes(scope) if isinstance(each, ast.Assign) and each.targets[0] in binding]
            names = [dotted(each) for value in given for each in _choices(value)]
            plain = [each for each in names if each is not None]
            return list(dict.fromkeys(plain)) if names and len(plain) == len(names) and len(given) == len(binding) else [name]
    return [name]


def _choices(value: ast.expr) -> list[ast.expr]:
    """What an expression may be: `a if small else b` is one of two, and None is nothing that can be launched."""
    if isinstance(value, ast.IfExp):
        return [*_choices(value.body), *_choices(value.orelse)]
    return [] if isinstance(value, ast.Constant) and value.value is None else [value]


_LINE = re.compile(r"(?P<name>.+):(?P<line>\d{1,9})")
_OWNERS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def distinct_names(tree: ast.Module, nodes: Sequence[ast.FunctionDef]) -> list[str]:
    """A name for each of several kernels of one name that none of the others has."""
    qualified = [_qualified(tree, node) for node in nodes]
    return [text if qualified.count(text) == 1 else f"{node.name}:{node.lineno}" for text, node in zip(qualified, nodes, strict=True)]


def plain_name(text: str) -> str:
    """The kernel's own name in `kernel`, `outer.kernel` or `kernel:12`."""
    found = _LINE.fullmatch(text)
    return (found["name"] if found else text).rsplit(".", 1)[-1]


def named_kernels(tree: ast.Module, nodes: Sequence[ast.FunctionDef], text: str) -> list[ast.FunctionDef]:
    """Those of several kernels of one name that `text` names: by any line from the first decorator on, or by what they stand in."""
    found = _LINE.fullmatch(text)
    asked, line = (found["name"], int(found["line"])) if found else (text, None)
    return [
        node
        for node in nodes
        if f".{_qualified(tree, node)}".endswith(f".{asked}") and (line is None or _first_line(node) <= line <= _last_line(node))
    ]


def nearest_kernel(tree: ast.Module, wanted: ast.FunctionDef, nodes: Sequence[ast.FunctionDef]) -> ast.FunctionDef | None:
    """Of several kernels of one name the one in the same branch or function as `wanted`, or the next around; None: none, or several."""
    inner = _blocks_to(tree, wanted)[1:]  # in the file's own block the file decides
    for _, block in reversed(inner):
        within = [node for node in nodes if any(node is each for statement in block for each in ast.walk(statement))]
        if within:
            return within[0] if len(within) == 1 else None
    return None


def visible_kernels(tree: ast.Module, nodes: Sequence[ast.FunctionDef], line: int) -> list[ast.FunctionDef]:
    """Those of several kernels of one name that the name can stand for in a line: of the innermost function around it that has any."""
    depths: dict[int, list[ast.FunctionDef]] = {}
    for node in nodes:
        owners = [owner for owner, _ in _blocks_to(tree, node) if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef))]
        if not owners or _first_line(owners[-1]) <= line <= _last_line(owners[-1]):
            depths.setdefault(len(owners), []).append(node)
    return depths[max(depths)] if depths else []


def _qualified(tree: ast.Module, node: ast.FunctionDef) -> str:
    owners = dict.fromkeys(owner for owner, _ in _blocks_to(tree, node) if isinstance(owner, _OWNERS))
    return ".".join([*(owner.name for owner in owners), node.name])


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min(each.lineno for each in (node, *node.decorator_list))


def _last_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return node.end_lineno or node.lineno


def _blocks_to(tree: ast.Module, node: ast.FunctionDef) -> list[tuple[ast.AST, Sequence[ast.stmt]]]:
    """The blocks around a function with what they belong to, the file's own first."""
    found: list[tuple[ast.AST, Sequence[ast.stmt]]] = [(tree, tree.body)]
    while True:
        around = next((s for s in found[-1][1] if s.lineno <= node.lineno <= (s.end_lineno or s.lineno) and s is not node), None)
        inner = next((b for b in _blocks(around) if b[1] and _holds(b[1], node)), None) if around is not None else None
        if inner is None:
            return found
        found.append(inner)


def _blocks(statement: ast.stmt) -> Iterator[tuple[ast.AST, Sequence[ast.stmt]]]:
    for part in ("body", "orelse", "finalbody"):
        yield statement, getattr(statement, part, ())
    for handler in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield handler, handler.body


def _holds(block: Sequence[ast.stmt], node: ast.FunctionDef) -> bool:
    return block[0].lineno <= node.lineno <= (block[-1].end_lineno or block[-1].lineno)
