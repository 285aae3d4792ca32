"""What two versions of a kernel give their tuners otherwise: what lists the configurations, and how these are run."""

from __future__ import annotations

import ast

from advisor.comparison.kernels.kernel_digest import meaning
from advisor.comparison.kernels.kernel_version import KernelVersion
from advisor.python_source.bindings import names_in
from advisor.python_source.language import dotted

_HOW_TO_TUNE = frozenset(["warmup", "rep", "strategy", "use_cuda_graph", "do_bench", "cache_results", "restore_value", "reset_to_zero"])
"""What tuners take besides a list of configurations, its key and what prunes it: how each is run (Triton's, FlagGems' libtuner)."""


MOST_LISTED = 6
"""Configurations of a list that are named where the other side's cannot be read."""


def lists_anew(old: KernelVersion | None, new: KernelVersion | None) -> bool:
    """Whether lists of configurations that cannot be read on either side come from something else."""
    if old is None or new is None or not (old.unread and new.unread):
        return False
    sides = [(meaning(side.source, names_in(*_listing(side))), [ast.dump(part) for part in _listing(side)]) for side in (old, new)]
    return sides[0] != sides[1]


def hooks_anew(old: KernelVersion | None, new: KernelVersion | None) -> list[str]:
    """The hooks of a list of configurations (`pre_hook=…`) that changed, where nothing else that lists them did; none else."""
    if old is None or new is None or [ast.dump(part) for part in _listing(old)] != [ast.dump(part) for part in _listing(new)]:
        return []
    words = [node for part in _listing(new) for node in ast.walk(part) if isinstance(node, ast.keyword) and node.arg == "pre_hook"]
    hooks = sorted(names_in(*words))
    others = [meaning(side.source, names_in(*_listing(side)) - {*hooks}) for side in (old, new)]
    return hooks if others[0] == others[1] else []


def _tuners(version: KernelVersion) -> list[ast.Call]:
    calls = [node for node in version.function.node.decorator_list if isinstance(node, ast.Call)]
    return [node for node in calls if dotted(node.func).endswith("autotune") or any(word.arg == "configs" for word in node.keywords)]


def tunes_otherwise(old: KernelVersion | None, new: KernelVersion | None) -> list[str]:
    """What the tuners of both sides are given otherwise that lists no configurations: `warmup, rep`."""
    if old is None or new is None or not (_tuners(old) and _tuners(new)):
        return []
    given = [
        {word.arg: ast.dump(word) for node in _tuners(side) for word in node.keywords if word.arg in _HOW_TO_TUNE} for side in (old, new)
    ]
    return sorted({name or "" for name, _ in given[0].items() ^ given[1].items()})


def tuned_by_one(old: KernelVersion | None, new: KernelVersion | None) -> list[str]:
    """That one side alone has a tuner, whose list cannot be read, or a list that can; of two that can be the configurations are told."""
    if old is None or new is None or not (old.unread or new.unread):
        return []
    if bool(_tuners(old)) != bool(_tuners(new)):
        return ["It is not tuned any more." if _tuners(old) else "It is tuned now."]
    if old.unread == new.unread:
        return []
    names = (old if new.unread else new).named
    listed = "; ".join(names[:MOST_LISTED]) + f" and {len(names) - MOST_LISTED} more" * (len(names) > MOST_LISTED)
    return [f"Its list of configurations is another: that of the {'base' if new.unread else 'head'} has {len(names)}: {listed}."]


def prunes_otherwise(old: KernelVersion, new: KernelVersion) -> str:
    """What prunes the configurations of either side, where that is something else, in words; "": it is the same."""
    pruning = [side.function.autotune.prunes if side.function.autotune is not None else "" for side in (old, new)]
    return f"{pruning[0] or 'nothing'} → {pruning[1] or 'nothing'}" if pruning[0] != pruning[1] else ""


def _listing(version: KernelVersion) -> list[ast.AST]:
    """What a kernel's configurations are listed by: what its tuner is given, but for the key, what prunes them, and how it tunes."""
    apart = {"key", "prune_configs_by", *_HOW_TO_TUNE}
    return [part for node in _tuners(version) for part in (*node.args, *(word for word in node.keywords if word.arg not in apart))]
