"""What is said of a changed kernel in words: what changed that no row shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from advisor.comparison.kernels.kernel_digest import own_tree
from advisor.comparison.kernels.kernel_version import KernelVersion
from advisor.comparison.kernels.launch_digest import ChangedLaunch
from advisor.python_source.jit_function import MISSING

SAME = "The kernel is the same; how"
"""Begins the note on a launch that changed where the kernel did not."""
FILES_NAMED = 3
"""Of those that launch a kernel otherwise in the same way."""


def launch_notes(changed: Sequence[ChangedLaunch], same: bool, importing: Mapping[str, str]) -> list[str]:
    """How launches of a kernel changed, `same`: while it did not; and what of theirs changed with another file (`importing`)."""
    how = SAME if same else "How"
    alike: dict[str, list[str]] = {}
    for launch in changed:
        alike.setdefault(launch.said, []).append(launch.new.where or "its file")
    notes = [f"{how} {_listed(files)} {'launches' if len(files) == 1 else 'launch'} it changed: {said}." for said, files in alike.items()]
    changed_with: dict[str, list[str]] = {}
    for each in dict.fromkeys(each.new.where for each in changed):
        if each in importing:
            changed_with.setdefault(importing[each], []).append(each)
    for path, unchanged in changed_with.items():
        are, import_ = ("are", "they import") if len(unchanged) > 1 else ("is", "it imports")
        notes.append(f"{_listed(unchanged)} {are} unchanged; what {import_} changed with {path}.")
    return notes


def _listed(files: Sequence[str]) -> str:
    """The first of some files, and how many more there are."""
    more = f" and {len(files) - FILES_NAMED} more files" if len(files) > FILES_NAMED + 1 else ""
    return ", ".join(files[:FILES_NAMED] if more else files) + more


def changed_by_hand(old: KernelVersion | None, new: KernelVersion | None) -> list[str]:
    """What changed beside the body: the key by which a kernel is tuned anew, and defaults of its constants."""
    if old is None or new is None:
        return []
    notes = []
    keys = [side.function.autotune.key if side.function.autotune is not None else None for side in (old, new)]
    if keys[0] is not None and keys[1] is not None and set(keys[0]) != set(keys[1]):
        less = ", ".join(name for name in keys[0] if name not in keys[1])
        told = f" Calls that differ in {less} alone run with one configuration now, that of the first of them." if less else ""
        notes.append(f"The key of its autotuning changed: {', '.join(keys[0]) or 'none'} → {', '.join(keys[1]) or 'none'}.{told}")
    before = {each.name: each.default for each in old.function.parameters if each.is_constexpr}
    after = {each.name: each.default for each in new.function.parameters if each.is_constexpr}
    defaults = [
        f"{name} {before[name]} → {value}"
        for name, value in after.items()
        if name in before and MISSING not in (value, before[name]) and value != before[name]
    ]
    return [*notes, *([f"Defaults of its constants changed: {', '.join(defaults)}."] if defaults else [])]


def unread_body(old: KernelVersion | None, new: KernelVersion | None, differ: bool) -> list[str]:
    """That no prediction tells of a body that changed, alone or beside the configurations (`differ`: of those that are compared)."""
    if old is None or new is None:
        return []
    if old.named == new.named and not differ:
        known = "Both versions may be launched with the same configurations"
    elif own_tree(old.function.node) != own_tree(new.function.node):
        known = "The body changed too"
    else:
        return []
    return [
        f"{known}, and the model does not read a kernel's body: what changed in it shows in the compiled resources and in measurements."
    ]
