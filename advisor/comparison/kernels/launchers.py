"""Which files of two trees launch kernels that others define: a change of the one is a change of how the other's kernels run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from advisor.comparison.kernels.called_functions import LAUNCH, CalledFunctions, Changed, Link
from advisor.comparison.kernels.kernel_source import LARGEST_SOURCE_BYTES, ODD
from advisor.comparison.kernels.reading import Reading
from advisor.comparison.trees import git
from advisor.comparison.trees.trees import Entry, FileChange, Tree, sized
from advisor.python_source.launch_calls import imported_launches
from advisor.system.errors import AdvisorError

LARGEST_LAUNCHERS = 1_000
"""Files of a tree that are looked through for launches: each takes some 20 ms."""
LARGEST_CALLERS = 400
"""The same for calls of functions of other files that launch kernels."""

Launchers = Mapping[str, Sequence[Entry]]
"""By the path of a file that defines kernels: the files that launch some of them, among those that were looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingEntry:
    """A file that calls functions which lead to launches of kernels: itself, that of the functions, and the functions' names by what it
    calls them."""

    caller: Entry
    called: Entry
    names: Mapping[str, str]
    compared: bool = True  # else it is only on the way of others there


Calls = Mapping[str, Sequence[CallingEntry]]
"""By the path of a file that defines kernels: the files that call functions which lead to launches of some of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedElsewhere:
    """Launches by other files than the kernels' own, of both trees; and what was left out."""

    base: Launchers = field(default_factory=dict)
    head: Launchers = field(default_factory=dict)
    base_calls: Calls = field(default_factory=dict)
    head_calls: Calls = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def unchanged(self, base: Tree, head: Tree, known: Iterable[FileChange]) -> list[FileChange]:
        """The files whose kernels these launch, that are not among those which are looked at anyway."""
        before, after = base.entries(), head.entries()
        looked_at = {each.path for change in known for each in (change.base, change.head) if each is not None}
        paths = sorted({*self.base, *self.head, *self.base_calls, *self.head_calls} - looked_at)
        return sized([FileChange(path=path, base=before.get(path), head=after.get(path)) for path in paths], base, head)


def launched_elsewhere(base: Tree, head: Tree, changed: Sequence[FileChange], names: Mapping[str, frozenset[str]]) -> LaunchedElsewhere:
    """Of files that changed, or that import what did: the kernels of others that they launch, by themselves or by what they call.

    Args:
        base, head: The trees.
        changed: The files.
        names: By path, their names that may mean something else now.
    """
    sides: list[dict[str, list[Entry]]] = []
    calls: list[dict[str, list[CallingEntry]]] = []
    left_out = few = 0
    known = Changed(base=base, head=head, names=names)
    for tree, entries in ((base, [change.base for change in changed]), (head, [change.head for change in changed])):
        sources = [each for each in entries if each is not None and _is_source(each)]
        left_out, few = max(left_out, len(sources) - LARGEST_LAUNCHERS), max(few, len(sources) - LARGEST_CALLERS)
        try:
            sides.append(_launchers(tree, sources[:LARGEST_LAUNCHERS]))
            calls.append(_calls(tree, sources[:LARGEST_CALLERS], known))
        except git.PartialCloneError:
            told = "Kernels that changed files launch were not looked for in others: a partial clone may lack them (clone without --filter)"
            return LaunchedElsewhere(left_out=(told,))
    told = f"{left_out} files were not looked through for launches of other files' kernels: there are more than {LARGEST_LAUNCHERS:,}."
    told_of_calls = (
        f"{few} files were not looked through for calls of functions that launch other files' kernels: there are more than "
        f"{LARGEST_CALLERS:,}."
    )
    return LaunchedElsewhere(
        base=sides[0],
        head=sides[1],
        base_calls=calls[0],
        head_calls=calls[1],
        left_out=(*((told,) if left_out > 0 else ()), *((told_of_calls,) if few > 0 else ())),
    )


def _is_source(entry: Entry) -> bool:
    return entry.kind == "file" and entry.path.endswith(".py") and entry.size_bytes <= LARGEST_SOURCE_BYTES


def _launchers(tree: Tree, entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    with tempfile.TemporaryDirectory(prefix="advisor-compare-") as folder:
        reading = Reading(tree, Path(folder))
        for entry in entries:
            if LAUNCH.search(tree.read(entry)):
                for path in _launched_by(reading, entry):
                    found.setdefault(path, []).append(entry)
    return found


def _launched_by(reading: Reading, entry: Entry) -> list[str]:
    """The paths of the files whose kernels a file launches."""
    try:
        source = reading.launches(entry, whole=False)
        files = [file for file, *_ in imported_launches(source)] if source is not None else []
    except git.PartialCloneError:
        raise
    except (AdvisorError, *ODD):  # told where the file itself is compared
        return []
    places = dict.fromkeys(file.path for file in files if file.path.is_relative_to(reading.folder))
    return [place.relative_to(reading.folder).as_posix() for place in places]


def _calls(tree: Tree, entries: Sequence[Entry], changed: Changed) -> dict[str, list[CallingEntry]]:
    found: dict[str, dict[tuple[str, str], CallingEntry]] = {}
    functions = CalledFunctions(tree=tree, changed=changed)
    defining: dict[str, list[str]] = {}  # by a file that launches kernels, the files that define these
    with tempfile.TemporaryDirectory(prefix="advisor-compare-") as folder:
        reading = Reading(tree, Path(folder))
        for entry in entries:
            try:
                called = functions.of(entry.path)
            except git.PartialCloneError:
                raise
            except (AdvisorError, *ODD):
                continue
            for end, links in called.items():
                if end not in defining:
                    defining[end] = [end, *_launched_by(reading, _entry(tree, end))]
                for place in defining[end]:
                    _add(found.setdefault(place, {}), tree, links, entry)
    return {place: list(each.values()) for place, each in found.items()}


def _add(known: dict[tuple[str, str], CallingEntry], tree: Tree, links: Sequence[Link], compared: Entry) -> None:
    """Unite the calls by which one file gets to launches with those of others, which may have some in common."""
    for link in links:
        key = (link.caller, link.called)
        names = {**(known[key].names if key in known else {}), **link.names}
        its = link.caller == compared.path or (key in known and known[key].compared)
        known[key] = CallingEntry(caller=_entry(tree, link.caller), called=_entry(tree, link.called), names=names, compared=its)


def _entry(tree: Tree, path: str) -> Entry:
    return tree.sized([tree.entries()[path]])[0]
