"""What a decorator, a launch and a kernel's name in a file mean; and what the body of a kernel names: its own names, and those that it
reads from around it. What it may name is `language`'s to say."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

from advisor.python_source.bindings import Graph, arguments, bound_by, is_none
from advisor.python_source.imports import Import, is_triton_jit
from advisor.python_source.language import dotted, last_name
from advisor.system.errors import InputError

DEEPEST = 6
"""Names of names that are followed."""


def asserted(kernel: ast.FunctionDef) -> dict[str, int]:
    """Whole numbers that constants of a kernel have to be, whatever else they are: `tl.static_assert(n == 4)`."""
    calls = [node.value for node in kernel.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    tests = [call.args[0] for call in calls if last_name(call) == "static_assert" and call.args]
    equal = [(test.left, test.comparators[0]) for test in tests if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq)]
    return {
        name.id: value.value
        for name, value in equal
        if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and type(value.value) is int
    }


def grid_of(call: ast.Call) -> ast.expr:
    """The grid of a launch."""
    assert isinstance(call.func, ast.Subscript)
    return call.func.slice


_WRAPPERS = ("wrap_triton", "capture_triton")
"""Functions of torch that hand a kernel on for `torch.compile`: `wrap_triton(kernel)[grid](...)`."""


def launching_calls(graph: Graph) -> Iterator[tuple[str, ast.Call]]:
    """The calls of a file that launch something, each with what, as it is named there: `kernel`, `module.kernel`; where a function gives
    such names another, `kernel = fast if small else slow`, once for each of them. What a name in capitals has, or an attribute of
    `self`, is one of a table: of 2,734 calls of 25 public repositories like `kernel[grid](x)`, 471 are `BLOCKS[name](x)` or
    `self.layers[i](x)`, and one of these launches."""
    for node in graph.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            launched = node.func.value
            if isinstance(launched, ast.Call) and len(launched.args) == 1 and last_name(launched) in _WRAPPERS:
                launched = launched.args[0]
            name = dotted(launched)
            is_of_table = name.isupper() or name.startswith("self.")
            yield from ((item, node) for item in (_meant(graph, name, node) if name and not is_of_table else ()))


def _meant(graph: Graph, name: str, call: ast.Call) -> list[str]:
    """What a name that is launched stands for by plain assignments of the innermost function that binds it, less those in an arm of a
    condition that the launch is not in; else the name itself."""
    given = [value for value in graph.given(graph.scopes_around(call), name) if not graph.apart(value, call)]
    names = [dotted(choice) for value in given for choice in _choices(value)]
    return list(dict.fromkeys(names)) if names and all(names) else [name]


def alternatives(value: ast.AST) -> list[ast.AST]:
    """What an expression may be: `a if small else b` is one of two."""
    return [*alternatives(value.body), *alternatives(value.orelse)] if isinstance(value, ast.IfExp) else [value]


def _choices(value: ast.AST) -> list[ast.AST]:
    """What an expression may be: `a if small else b` is one of two, and None is nothing that can be launched."""
    return [item for item in alternatives(value) if not (isinstance(item, ast.expr) and is_none(item))]


def may_be_kernel(node: ast.AST, name: str) -> TypeGuard[ast.expr | ast.stmt]:
    """Whether a node gives something to a name that may be a kernel, or launches what has the name."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return node.name == name and (bool(node.decorator_list) or isinstance(node, ast.AsyncFunctionDef))
    if isinstance(node, ast.Call):
        called = node.func.value if isinstance(node.func, (ast.Subscript, ast.Attribute)) else None
        is_run = isinstance(node.func, ast.Subscript) or (isinstance(node.func, ast.Attribute) and node.func.attr in ("run", "warmup"))
        return is_run and isinstance(called, ast.Name) and called.id == name
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


JIT_DECORATORS = ("triton.jit", "jit", "triton.runtime.jit", "triton.jit.jit")


def means_jit(name: str, imports: Mapping[str, Sequence[Import]], assigned: Mapping[str, ast.expr], followed: int = 0) -> bool:
    """Whether a dotted name is `triton.jit`, by what the file imports its first part from: other packages have a `jit` too.

    Args:
        name: The name.
        imports: The file's imports by alias.
        assigned: What it gives its names last.
        followed: Names of names that were followed: they can go round in a circle.
    """
    root, _, rest = name.partition(".")
    if items := imports.get(root):
        return any(is_triton_jit(item, rest) for item in items)
    other = dotted(assigned[root]) if root in assigned and not rest else None  # jit = triton.jit
    if other and followed < DEEPEST:
        return means_jit(other, imports, assigned, followed + 1)
    return name in JIT_DECORATORS or name.endswith("triton.jit")


_APPLIED = frozenset({"triton.jit", "triton.autotune", "triton.heuristics"})


def decorated(tree: ast.Module) -> ast.Module:
    """A file in which what it applies to its functions, `kernel = triton.jit(kernel)`, stands above them: the same, as Python reads it. So
    does what it tries to apply, as to a tuner without a GPU at hand."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    tree.body = _without_applied(tree.body, functions)
    for attempt in (node for node in tree.body if isinstance(node, ast.Try)):
        attempt.body = _without_applied(attempt.body, functions) or [ast.copy_location(ast.Pass(), attempt)]
    return tree


def _without_applied(body: Sequence[ast.stmt], functions: Mapping[str, ast.FunctionDef]) -> list[ast.stmt]:
    """Statements without those that apply a decorator to a function, which it has then."""
    kept = []
    for node in body:
        names = [target.id for target in node.targets if isinstance(target, ast.Name)] if isinstance(node, ast.Assign) else []
        call = node.value if isinstance(node, ast.Assign) else None
        function = functions.get(names[0]) if len(names) == 1 else None
        if function is None or not isinstance(call, ast.Call) or call.keywords or [dotted(argument) for argument in call.args] != names:
            kept.append(node)
        elif dotted(call.func.func if isinstance(call.func, ast.Call) else call.func) in _APPLIED:
            function.decorator_list.insert(0, ast.copy_location(call.func, function))
        else:
            kept.append(node)
    return kept


RUNNING = frozenset({"getattr", "setattr", "eval", "exec", "compile", "open", "globals", "locals", "vars", "__import__", "input"})
"""Of Python's own functions, those that run what they are told, or lead to what does."""


class RebuildError(InputError):
    """A kernel names something that is neither a literal, nor triton's, nor another kernel."""


class ReachError(RebuildError):
    """A kernel, or what it calls, asks a value for what leads into Python.

    Attributes:
        kind: As of a `CompileError` that is refused for that.
    """

    kind = "refused"


def free_names(node: ast.FunctionDef) -> dict[str, int]:
    """Names the body reads that are not its own, with the first line of each. Defaults and annotations are evaluated apart."""
    bound = bound_names(node)
    read: dict[str, int] = {}
    waiting: list[ast.AST] = list(reversed(node.body))
    while waiting:
        item = waiting.pop()
        if isinstance(item, ast.Raise):  # triton refuses `raise` where it gets there, and looks up nothing of it
            continue
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load):
            read.setdefault(item.id, item.lineno)
        waiting += reversed(list(ast.iter_child_nodes(item)))
    # A name that is assigned somewhere may still be read as a global before; triton has no such kernels in practice.
    return {name: line for name, line in read.items() if name not in bound}


def bound_names(node: ast.FunctionDef) -> set[str]:
    """Parameters of a function and of those within it, and all that it stores."""
    nodes = [inner for statement in node.body for inner in ast.walk(statement)]
    inner = {item.arg for item in nodes if isinstance(item, ast.arg)}
    return arguments(node) | inner | {name for item in nodes for name in bound_by(item)}


_VALUES = frozenset({"tl.constexpr", "triton.language.constexpr", "language.constexpr", "constexpr"})
"""`tl.constexpr` of a function: a kernel calls it as it is, and it is given what stands in the call as it is (`o.value`)."""
DECORATORS = frozenset({"triton.constexpr_function", "constexpr_function"}) | _VALUES


def is_constexpr_function(node: ast.FunctionDef) -> bool:
    """Whether a function is one of these."""
    return any(dotted(decorator) in DECORATORS for decorator in node.decorator_list)


def decorator_of(node: ast.FunctionDef) -> str:
    """The decorator that a copy of a function has which is no kernel, as `language.CONSTEXPR_DECORATORS` writes it."""
    return "tl.constexpr" if {dotted(decorator) for decorator in node.decorator_list} & _VALUES else "triton.constexpr_function"


def called_functions(node: ast.FunctionDef) -> set[str]:
    """Names of what a function calls by a name alone."""
    return {
        n.func.id
        for inner_statement in node.body
        for n in ast.walk(inner_statement)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }
