"""The calls by which what a launch passes gets into the function around it: `config = default_config(M)` in one function of a file, and
`kernel[grid](…, **config)` in another."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from advisor.configs.bindings import SCOPES, Scope, scopes_around

MOST_PATHS = 32
"""Ways to a launch that are followed."""
MOST_CALLERS = 6
"""Functions that are followed on one of them."""

Step = tuple[Sequence[Scope], ast.Call]
"""A call, and the scopes around it, the outermost first."""


class Callers:
    """The calls of a file's functions, by name. Methods are not among them: whose they are is not known."""

    def __init__(self, tree: ast.Module) -> None:
        functions = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
        nodes = list(ast.walk(tree))
        self._scopes = [node for node in nodes if isinstance(node, SCOPES)]
        self._calls: dict[str, list[ast.Call]] = {}
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
                self._calls.setdefault(node.func.id, []).append(node)
        self._steps: dict[str, list[Step]] = {}

    def paths(self, launch: Step) -> list[list[Step]]:
        """The ways to a launch: itself, the call of the function around it, and so on; at least one."""
        found: list[list[Step]] = []
        waiting = [[launch]]
        while waiting and len(found) + len(waiting) <= MOST_PATHS:
            path = waiting.pop()
            more = [[*path, step] for step in self._of(path)] if len(path) <= MOST_CALLERS else []
            waiting += more
            found += [] if more else [path]
        return found + waiting

    def _of(self, path: Sequence[Step]) -> list[Step]:
        """The calls of the function around the last step, but from functions that are on the way already."""
        known = [scopes[0] for scopes, _ in path if scopes]
        function = known[-1] if path[-1][0] else None
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return []
        if function.name not in self._steps:
            calls = self._calls.get(function.name, [])[:MOST_PATHS]
            self._steps[function.name] = [(scopes_around(self._scopes, call), call) for call in calls]
        return [step for step in self._steps[function.name] if not (step[0] and step[0][0] in known)]


def passed(function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call, name: str) -> Iterator[ast.expr]:
    """What a call gives an argument of a function; where it spreads a list or a dictionary, that as well."""
    positional = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    for place, value in enumerate(call.args):
        if isinstance(value, ast.Starred):
            yield value.value
            break
        if positional[place : place + 1] == [name]:
            yield value
    yield from (keyword.value for keyword in call.keywords if keyword.arg in (name, None))
