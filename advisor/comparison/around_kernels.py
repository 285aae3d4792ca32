"""The functions of plain Python around kernels that a change touches. Of them launches, what these pass, and calls of torch beside them are
compared; what else they do is not, and a comparison names them so that nobody takes its silence for "nothing changed"."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from advisor.comparison.kernels.importers import TESTS, located, parsed
from advisor.comparison.kernels.kernel_digest import undocumented, without_local_names
from advisor.comparison.trees.trees import Entry, FileChange, Tree
from advisor.python_source.bindings import Definition, Function
from advisor.python_source.language import dotted
from advisor.python_source.source import SourceFile
from advisor.system import grouped

LARGEST_CHANGE = 200
"""Python files that are looked through: each takes some 20 ms."""
KERNELS = b"triton"
"""Stands in every file that holds kernels, or that imports them from where they lie."""

Sides = tuple[SourceFile | None, SourceFile | None]


def changed_functions(base: Tree, head: Tree, changed: Iterable[FileChange]) -> tuple[str, ...]:
    """`path::function`, or `path::Class.method`, of plain functions around kernels: first those that both sides have and that differ, then
    those that went, then those that came and launch no kernel. Comments, docstrings, annotations and tests aside.

    Args:
        base, head: The trees.
        changed: Their files that differ; the first `LARGEST_CHANGE` of Python are looked at.
    """
    files = [change for change in changed if change.path.endswith(".py") and not TESTS.search(change.path)][:LARGEST_CHANGE]
    of_kernels = {change.path: _sides(base, head, change) for change in files if _names_kernels(base, head, change)}
    imported = set(_imported(of_kernels, [change.path for change in files]))
    others = {change.path: _sides(base, head, change) for change in files if change.path in imported - of_kernels.keys()}
    differ, went, came = list[str](), list[str](), list[str]()
    for path, (old, new) in sorted({**of_kernels, **others}.items()):
        if new is None or (old is None and path in of_kernels):
            continue  # it went, cannot be read, or is a new file of kernels: said elsewhere
        before, after = (_functions(side) if side is not None else {} for side in (old, new))
        launching = _launching(new)
        differ += [f"{path}::{name}" for name in after if name in before and before[name] != after[name]]
        went += [f"{path}::{name}" for name in _whole(before, after)]
        came += [f"{path}::{name}" for name in _whole(after, before) if name not in launching]
    return (*differ, *went, *came)


def _names_kernels(base: Tree, head: Tree, change: FileChange) -> bool:
    sides = ((base, change.base), (head, change.head))
    return any(entry is not None and entry.kind == "file" and KERNELS in tree.read(entry) for tree, entry in sides)


def _sides(base: Tree, head: Tree, change: FileChange) -> Sides:
    def side(tree: Tree, entry: Entry | None) -> SourceFile | None:
        return parsed(tree, entry) if entry is not None else None

    return side(base, change.base), side(head, change.head)


def _imported(files: dict[str, Sides], paths: Sequence[str]) -> Iterator[str]:
    """Which of some paths the heads of files import."""
    for path, (_, new) in files.items():
        imports = [item for items in new.module_names.imports.values() for item in items] if new is not None else []
        yield from (place for item in imports if (place := located(paths, path, item)) is not None)


def _functions(source: SourceFile) -> dict[str, list[str]]:
    """What each function is that stands in no other one, by its name with its class; those of Triton aside."""
    graph = source.module_names
    found = []
    for node in (item for item in graph.nodes if isinstance(item, Function)):
        above = [item for item in graph.above(node) if isinstance(item, Definition)]
        if any(isinstance(item, Function) for item in above) or node.name in source.definitions:
            continue
        if any(dotted(getattr(item, "func", item)).endswith("jit") for item in node.decorator_list):
            continue  # Gluon's, or another language's
        name = ".".join([*(item.name for item in above), node.name])
        found.append((name, without_local_names([undocumented(node)], set())[0]))
    return grouped(found)


def _whole(one: Iterable[str], other: Collection[str]) -> list[str]:
    """The functions that one side alone has; of a class that it alone has, the class."""
    classes = {name.rpartition(".")[0] for name in other}
    names = dict.fromkeys(
        name if name.rpartition(".")[0] in classes else name.rpartition(".")[0] or name for name in one if name not in other
    )
    return [*names]


def _launching(source: SourceFile) -> set[str]:
    """The functions, and classes, that launch kernels."""
    graph = source.module_names
    names = set()
    for _, call in graph.launches:
        outer = [item.name for item in graph.above(call) if isinstance(item, Definition)]
        names |= {".".join(outer[:count]) for count in range(1, len(outer) + 1)}
    return names
