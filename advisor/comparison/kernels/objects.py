"""What methods find in their objects: `self.num_warps`, which another method or the class gives, and `self.warps_for(n)`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from advisor.python_source.bindings import argument_defaults, arguments, bound_by
from advisor.python_source.changes import CHANGING

OF_DICTIONARIES = CHANGING | {"get", "copy", "items", "keys", "values"}
"""Attributes of dictionaries and lists."""
_OF_CONFIGURATIONS = re.compile(
    r"(num_)?(warps|stages|ctas)|maxnreg|(all_)?kwargs|(block|tile)(_?size)?(_?[a-z]{1,2})?\d*|"
    r"(chunk|group)_?size(_?[a-z])?|group_?m|(num_)?(kv_)?splits|split_?k|b[dkmnqtv]",
    re.I,
)
"""Attributes of objects that are configurations: `config.BLOCK_M`, `flags.num_warps`, `triton.Config(…).kwargs`."""
MOST_STATEMENTS = 200

Function = ast.FunctionDef | ast.AsyncFunctionDef


def passed_on(attribute: str) -> bool:
    """Whether what an attribute is asked of is passed on as it is: a dictionary, a configuration. Other attributes are asked of tensors
    more often than not, of which a launch takes the shape."""
    return attribute in OF_DICTIONARIES or _OF_CONFIGURATIONS.fullmatch(attribute) is not None


def first_argument(function: Function) -> str | None:
    """How a method calls its object; None: it takes nothing by position."""
    positional = [*function.args.posonlyargs, *function.args.args]
    return positional[0].arg if positional else None


def methods_of(node: ast.ClassDef) -> Iterator[Function]:
    """The methods that a class defines itself."""
    yield from (each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))


def family_of(tree: ast.Module) -> dict[str, list[ast.ClassDef]]:
    """The classes of a file at module level, each with those that it inherits from in the file, nearest first."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    found: dict[str, list[ast.ClassDef]] = {}
    for name, node in classes.items():
        line: list[ast.ClassDef] = []
        waiting = [node]
        while waiting:
            each = waiting.pop(0)
            if each not in line:
                line.append(each)
                waiting += [classes[base.id] for base in each.bases if isinstance(base, ast.Name) and base.id in classes]
        found[name] = line
    return found


class Objects:
    """The objects of a file's classes."""

    def __init__(self, tree: ast.Module) -> None:
        self._classes: dict[int, list[ast.ClassDef]] = {}  # of methods
        families = family_of(tree)
        for line in families.values():
            for method in methods_of(line[0]):
                self._classes[id(method)] = line

    def behind(self, function: Function | None, trees: Sequence[ast.AST]) -> tuple[list[ast.AST], set[str]]:
        """What decides the attributes that a method asks of its object in some trees: the statements that give them, and methods; and the
        names in these, but for what the methods around them are given."""
        line = self._classes.get(id(function))
        if line is None or function is None:
            return [], set()
        deciding: dict[int, ast.AST] = {}
        known: set[str] = set()
        names: set[str] = set()
        waiting = _asked(trees, first_argument(function))
        while waiting and len(deciding) < MOST_STATEMENTS:
            known |= waiting
            fresh = [each for each in self._giving(line, waiting) if id(each[0]) not in deciding]
            deciding |= {id(node): node for node, _ in fresh}
            waiting = set()
            for node, method in fresh:
                waiting |= _asked([node], first_argument(method) if method is not None else None)
                own = arguments(method) if method is not None else set()
                names |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - own
            waiting -= known
        return sorted(deciding.values(), key=lambda node: getattr(node, "lineno", 0)), names

    def _giving(self, line: Sequence[ast.ClassDef], attributes: set[str]) -> Iterator[tuple[ast.AST, Function | None]]:
        """What gives objects of a class some attributes, each with the method that does."""
        for node in line:
            for statement in node.body:
                if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    if statement.name in attributes:
                        yield statement, statement
                    yield from ((each, statement) for each in _given(statement, attributes))
                elif attributes & {name for each in ast.walk(statement) for name in bound_by(each)}:
                    yield statement, None


def _given(method: Function, attributes: set[str]) -> Iterator[ast.AST]:
    """The statements by which a method gives its object attributes, those that give variables in these, and defaults of arguments."""
    own = first_argument(method)
    statements = [node for node in ast.walk(method) if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign))]
    found = [node for node in statements if attributes & set(_targets(node, own))]
    asked = {each.id for node in found for each in ast.walk(node) if isinstance(each, ast.Name)} - {own}
    yield from found
    yield from (node for node in statements if node not in found and asked & {name for each in ast.walk(node) for name in bound_by(each)})
    yield from (default for name, default in argument_defaults(method).items() if name in asked)


def _targets(node: ast.Assign | ast.AnnAssign | ast.AugAssign, own: str | None) -> Iterator[str]:
    """The attributes of its object that a statement of a method gives."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for each in ast.walk(target):
            if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == own:
                yield each.attr


def _asked(trees: Sequence[ast.AST], own: str | None) -> set[str]:
    """The attributes of an object that stand for themselves in some trees."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    shaped = {id(each.value) for each in nodes if isinstance(each, ast.Attribute) and not passed_on(each.attr)}
    return {
        each.attr
        for each in nodes
        if isinstance(each, ast.Attribute)
        and isinstance(each.value, ast.Name)
        and each.value.id == own
        and isinstance(each.ctx, ast.Load)
        and id(each) not in shaped
    }
