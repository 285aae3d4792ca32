"""Which table runs in place of one that a side does not have: SGLang looks further before it takes its default.

SGLang 0.5.23, `fused_moe_triton_config.get_moe_configs`: a fused-MoE table that the folder of the running Triton version lacks is looked
for in the folders of all other versions, newest first; in place of a `_down` table that none of them has, the table of the other GEMM runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from advisor.comparison.trees.trees import Entry
from advisor.tables.names import parse_table_name

_VERSION = re.compile(r"triton_[0-9]+(?:_[0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """The table that runs in place of one that is not there."""

    path: str
    data: bytes

    @property
    def label(self) -> str:
        """`triton_3_5_1/E=….json`: the version is in the folder, not in the name."""
        return "/".join(PurePosixPath(self.path).parts[-2:])


def version_folders(paths: Iterable[str]) -> dict[PurePosixPath, list[PurePosixPath]]:
    """The folders of Triton versions in a tree, by the folder they lie in, the newest version first."""
    found: dict[PurePosixPath, list[PurePosixPath]] = {}
    for place in {PurePosixPath(path).parent for path in paths}:
        if _VERSION.fullmatch(place.name):
            found.setdefault(place.parent, []).append(place)
    for places in found.values():
        places.sort(key=lambda place: [int(part) for part in place.name.removeprefix("triton_").split("_")], reverse=True)
    return found


def fallback_entry(path: str, entries: Mapping[str, Entry], versions: Mapping[PurePosixPath, Sequence[PurePosixPath]]) -> Entry | None:
    """The table that runs in place of one that is not there; None where the stack's default does.

    Args:
        path: Where the table would lie.
        entries: Everything in the tree, by path.
        versions: Its `version_folders`.
    """
    name = parse_table_name(path)
    if name.kind != "fused_moe" or name.stack != "sglang":  # vLLM, and SGLang for GEMMs, open one file or none
        return None
    folder = PurePosixPath(path).parent
    others = versions.get(folder.parent, ()) if _VERSION.fullmatch(folder.name) else ()
    folders = [folder, *(place for place in others if place != folder)]
    for wanted in (name, replace(name, down=False)) if name.down else (name,):
        for place in folders:
            entry = entries.get(str(place / wanted.file_name()))
            if entry is not None and entry.kind == "file":
                return entry
    return None
