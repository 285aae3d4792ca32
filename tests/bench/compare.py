"""Compares two files of write.py: python tests/bench/compare.py OLD.json NEW.json."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NOTABLE = 1.1
"""Times this many times the other are marked: the best of several runs scatters by some per cent."""


def comparison(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Lines: the commits, the statements, and of each action the best CPU milliseconds of both with their ratio."""
    lines = [f"{old['commit']} -> {new['commit']}", f"statements {old['statements']:,} -> {new['statements']:,}"]
    if old["machine"] != new["machine"]:
        lines.append(f"not the same machine ({old['machine']}; {new['machine']}): the times say nothing")
    for name in dict.fromkeys((*old["cpu_ms"], *new["cpu_ms"])):
        before, after = (side["cpu_ms"].get(name, {}).get("best") for side in (old, new))
        if before is None or after is None:
            lines.append(f"{name:32} {'new' if before is None else 'gone'}")
            continue
        ratio = after / before
        word = "slower" if ratio >= NOTABLE else "faster" if ratio <= 1 / NOTABLE else ""
        lines.append(f"{name:32} {before:9.1f} -> {after:9.1f} ms  {ratio:5.2f}x  {word}".rstrip())
    return lines


if __name__ == "__main__":
    print("\n".join(comparison(*(json.loads(Path(path).read_text(encoding="utf-8")) for path in sys.argv[1:3]))))
