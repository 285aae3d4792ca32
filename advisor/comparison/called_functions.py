"""Which files of a tree call functions of others that launch kernels: `from ops import invoke`, by whatever files hand it on."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from advisor.comparison.calling import calls_of
from advisor.comparison.changed_names import ALL, touched
from advisor.comparison.importers import located, taken
from advisor.comparison.kernel_source import LARGEST_SOURCE_BYTES, mentions_triton, parse
from advisor.comparison.objects import methods_of
from advisor.comparison.trees import Entry, Tree
from advisor.configs.bindings import bound_by
from advisor.configs.imported import MOST_HANDS
from advisor.configs.imports import Import
from advisor.configs.literals import dotted
from advisor.configs.source import SourceFile
from advisor.errors import AdvisorError

LAUNCH = re.compile(rb"\]\s*\(|\.run\s*\(")
"""Stands in every file that launches a kernel, and in few others: only these are parsed."""


@dataclass(kw_only=True)
class CalledFunctions:
    """Looks through the files of a tree; what it learns of one serves for all that call its functions."""

    tree: Tree
    _launching: dict[str, frozenset[str]] = field(default_factory=dict)  # by path: the functions that lead to launches
    _parsed: dict[str, SourceFile | None] = field(default_factory=dict)

    def of(self, entry: Entry, changed: Mapping[str, frozenset[str]]) -> dict[str, dict[str, str]]:
        """What a file calls of others that launches kernels, and may now be called otherwise.

        Args:
            entry: The file.
            changed: Names that may mean something else now, of all files that have some.

        Returns:
            By the path of the other file, the names of its functions, each by what the file calls it.
        """
        source = self._source(entry)
        found: dict[str, dict[str, str]] = {}
        for name in sorted({name for call in calls_of(source.tree) if (name := dotted(call.func))}) if source is not None else ():
            place = self._function(source, entry.path, name) if source is not None else None
            if place is not None and place[0] != entry.path:
                found.setdefault(place[0], {})[name] = place[1]
        if source is None or not found:
            return {}
        imported = taken(source, entry.path, changed, self.tree.entries())[1]
        fresh = changed.get(entry.path, frozenset()) | touched(source.module_names, imported)
        return found if ALL in fresh or _leads_to(source.tree, {name for names in found.values() for name in names}, fresh) else {}

    def _function(self, source: SourceFile, path: str, name: str, depth: int = 0) -> tuple[str, str] | None:
        """The path of the file that defines the function which a file names so, and its name there, where it leads to a launch."""
        root, _, rest = name.partition(".")
        for item in (*source.imports.get(root, ()), *source.inner_imports.get(root, ())):
            for led, function in _functions(item, rest):
                target = located(self.tree.entries(), path, led)
                if target is None:
                    continue
                if function in self._leading(target):
                    return target, function
                data = self._read(target)
                handing = self._source(self.tree.entries()[target]) if data is not None and function.encode() in data else None
                if handing is not None and depth < MOST_HANDS and function in handing.imports:
                    found = self._function(handing, target, function, depth + 1)
                    if found is not None:
                        return found
        return None

    def _leading(self, path: str) -> frozenset[str]:
        """The functions of a file that launch something, or call one that does."""
        if path not in self._launching:
            data = self._read(path)
            source = self._source(self.tree.entries()[path]) if mentions_triton(data) or _may_launch(data) else None
            self._launching[path] = _leading(source) if source is not None else frozenset()
        return self._launching[path]

    def _read(self, path: str) -> bytes | None:
        entry = self.tree.entries()[path]
        if entry.kind != "file":
            return None
        entry = self.tree.sized([entry])[0]
        return self.tree.read(entry) if entry.size_bytes <= LARGEST_SOURCE_BYTES else None

    def _source(self, entry: Entry) -> SourceFile | None:
        if entry.path not in self._parsed:
            try:
                self._parsed[entry.path] = parse(self._read(entry.path), entry.path)
            except AdvisorError:
                self._parsed[entry.path] = None
        return self._parsed[entry.path]


def _leads_to(tree: ast.Module, called: Set[str], names: Set[str]) -> bool:
    """Whether one of some names stands where functions are called, or where what calls these is named."""
    used = [({each.id for each in ast.walk(node) if isinstance(each, ast.Name)} | set(bound_by(node)),
             any(dotted(call.func) in called for call in calls_of(node)), getattr(node, "name", "")) for node in tree.body]  # fmt: skip
    leading = {place for place, (_, calls, _) in enumerate(used) if calls}
    while more := {place for place, (uses, _, _) in enumerate(used) if uses & {used[each][2] for each in leading} - {""}} - leading:
        leading |= more
    return any(used[place][0] & names for place in leading)


def _may_launch(data: bytes | None) -> bool:
    return data is not None and b"triton" in data and LAUNCH.search(data) is not None


def _functions(item: Import, rest: str) -> list[tuple[Import, str]]:
    """The modules that a name may be in which begins with an import, and the function's name there."""
    parts = rest.split(".") if rest else []
    if item.name is not None and not parts:
        return [(item, item.name)]
    if not parts:
        return []
    plain = item.name is None and item.alias == item.module.split(".")[0] and "." in item.module  # import a.b: names begin with a
    whole = ".".join([item.alias, *parts[:-1]]) if plain else ".".join(filter(None, (item.module, item.name, *parts[:-1])))
    return [(replace(item, module=whole, name=None), parts[-1])]


def _leading(source: SourceFile) -> frozenset[str]:
    """Functions at module level within which something is launched, or one of these is called; of classes, by their methods."""
    launches = {id(call) for _, call in source.launches}
    if not launches:
        return frozenset()
    calls: dict[str, set[str]] = {}
    found: set[str] = set()
    for node in source.tree.body:
        for function in methods_of(node) if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                name = node.name if isinstance(node, ast.ClassDef) else function.name
                inner = list(calls_of(function))
                found |= {name} if any(id(call) in launches for call in inner) else set()
                calls.setdefault(name, set()).update((dotted(call.func) or "").partition(".")[0] for call in inner)
    while more := {name for name, called in calls.items() if name not in found and called & found}:
        found |= more
    return frozenset(found - {node.name for node in source.tree.body if isinstance(node, ast.ClassDef)})
