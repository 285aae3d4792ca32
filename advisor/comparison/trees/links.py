"""Where the symbolic links of a tree lead, as far as that lies in the tree. Their text says it: none is followed on a disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from advisor.comparison.trees.trees import Entry, FileChange, Tree

MOST_LINKS = 40
"""On the way to one file, as Linux has it."""
LONGEST_LINK_BYTES = 4_096
SHOWN = (".py", ".json")
"""What the names of files end in that are compared."""


def changes_behind_links(base: Tree, head: Tree, changed: tuple[FileChange, ...]) -> tuple[FileChange, ...]:
    """The changes, with those of files that a link leads to, or a submodule takes the place of: what stands in the head is then that link,
    or that submodule. Where a link of the head leads to what the base has, nothing changed; and to what is compared under its own name, a
    file was merely moved there."""
    odd = {path: entry for path, entry in head.entries().items() if entry.kind in ("symbolic link", "submodule")}
    if not odd and not any(change.base is not None and change.base.kind == "symbolic link" for change in changed):
        return changed
    differing = {change.path for change in changed}
    behind: list[FileChange] = []
    for change in changed:
        above = next((odd[str(folder)] for folder in PurePosixPath(change.path).parents if str(folder) in odd), None)
        if change.head is None and change.base is not None and above is not None:
            reached = reached_file(head, change.path)
            if reached is not None and reached.identity == change.base.identity:
                continue
            if reached is None or reached.path not in differing:
                change = FileChange(path=change.path, base=change.base, head=replace(above, path=change.path))
        behind.append(change)
        behind += _behind_a_folder(base, head, change)
    behind += _behind_a_file(base, head, [path for path in odd if path not in differing])
    return tuple(sorted(behind, key=lambda change: change.path))


def _behind_a_folder(base: Tree, head: Tree, change: FileChange) -> Iterator[FileChange]:
    """The files of the folder that a link of the base leads to, where it leads to others now."""
    if change.base is None or change.base.kind != "symbolic link" or change.head is None or change.head.kind == "file":
        return
    place = reached_path(base, change.path)
    for entry in [] if place is None else [item for item in base.entries().values() if item.path.startswith(f"{place}/")]:
        path = change.path + entry.path.removeprefix(place or "")
        reached = reached_file(head, path)
        if entry.kind == "file" and path.endswith(SHOWN) and (reached is None or reached.identity != entry.identity):
            yield FileChange(path=path, base=replace(entry, path=path), head=replace(change.head, path=path))


def _behind_a_file(base: Tree, head: Tree, links: list[str]) -> Iterator[FileChange]:
    """Links that stay as they are and lead to other contents, which are not compared under a name of their own."""
    for path in links:
        old, new = reached_file(base, path), reached_file(head, path)
        same_kind = new is not None and new.path.endswith(PurePosixPath(path).suffix) and (old is None or old.path == new.path)
        if path.endswith(SHOWN) and old != new and not same_kind:
            yield FileChange(path=path, base=base.entries()[path], head=head.entries()[path])


def reached_file(tree: Tree, path: str) -> Entry | None:
    """The file that a path of a tree comes to; None: it comes to none of the tree."""
    entry = tree.entries().get(reached_path(tree, path) or "")
    return entry if entry is not None and entry.kind == "file" else None


def reached_path(tree: Tree, path: str) -> str | None:
    """What a path comes to once every link on the way is followed; None: out of the tree, or nowhere."""
    waiting, reached, links = path.split("/")[::-1], list[str](), 0
    while waiting:
        part = waiting.pop()
        if part == ".." and not reached:
            return None
        if part == "..":
            reached.pop()
        elif part not in ("", "."):
            reached.append(part)
        entry = tree.entries().get("/".join(reached))
        if entry is not None and entry.kind == "symbolic link":
            links += 1
            text = tree.link(entry) if links <= MOST_LINKS and entry.size_bytes <= LONGEST_LINK_BYTES else "/"
            if text.startswith("/"):
                return None
            reached.pop()
            waiting += text.split("/")[::-1]
    return "/".join(reached)
