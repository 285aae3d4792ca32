"""Bytes per thread of the global accesses of each source line, read from the PTX.

The machine code cannot tell: in inline assembly of several lines, as Triton writes a load with a mask, the compiler counts the source line
up with each of them, and the load at its end stands under a line that has none. In the PTX the first line of the assembly is known.
"""

from __future__ import annotations

import re

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]+)"')
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*\binlined_at\s+(\d+)\s+(\d+))?")
_ACCESS = re.compile(r"\b(ld|st)\.global((?:\.[\w:]+)*)")
_COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global\b[^\[]*\[[^\]]*\],\s*\[[^\]]*\],\s*(0x[0-9a-fA-F]+|\d+)")


def access_widths(ptx: str, own: set[str]) -> dict[tuple[str, int], tuple[int, ...]]:
    """(load | store, line) -> bytes per thread of each access there, copies to shared memory among the loads.

    Args:
        ptx: Text of the module.
        own: Names of the author's files; accesses of other files count where they were inlined.
    """
    files = {int(m[1]): m[2].rsplit("/", 1)[-1] for text in ptx.splitlines() if (m := _FILE.match(text))}
    found: dict[tuple[str, int], list[int]] = {}
    current: int | None = None
    held: int | None = None  # line of the inline assembly that is being read
    inside = started = False
    for text in ptx.splitlines():
        if "// begin inline asm" in text or "// end inline asm" in text:
            if inside:  # lines counted up in it hold no longer
                current = held
            inside, started, held = "begin" in text, False, current
        elif match := _LOC.match(text):
            current = _own_line(match, files, own)
            if not started:  # what comes after its first instruction is the count
                held = current
        elif text.strip():
            started = inside
            line = held if inside else current
            if (access := _access(text)) is not None and line is not None:
                found.setdefault((access[0], line), []).append(access[1])
    return {place: tuple(widths) for place, widths in found.items()}


def _own_line(match: re.Match[str], files: dict[int, str], own: set[str]) -> int | None:
    """The author's line that a `.loc` speaks of; None: it is of another file."""
    for file, line in ((match[1], match[2]), (match[3], match[4])):
        if file is not None and files.get(int(file)) in own:
            return int(line)
    return None


def _access(text: str) -> tuple[str, int] | None:
    """Kind and bytes of the global access that an instruction makes; None: it makes none."""
    if match := _COPY.search(text):
        return "load", int(match[1], 0)
    match = _ACCESS.search(text)
    if match is None:
        return None
    parts = match[2].split(".")
    bits = next((int(found[1]) for part in reversed(parts) if (found := re.fullmatch(r"[busf](\d+)", part))), None)
    words = next((int(part[1:]) for part in parts if re.fullmatch(r"v\d", part)), 1)
    return None if bits is None else ("load" if match[1] == "ld" else "store", words * bits // 8)
