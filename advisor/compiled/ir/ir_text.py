"""The text of Triton's IR below its grammar: splitting at brackets, and what source line a `loc(...)` stands for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from advisor.compiled.compiler.kernel import IrError

_LOC_DEFINITION = re.compile(r"^#(loc\d*) = loc\((.*)\)$")
_FILE_LOC = re.compile(r'^"((?:[^"\\]|\\.)*)":(\d+):(\d+)')


@dataclass(frozen=True, slots=True)
class Location:
    """File and line; None where the compiler made the operation up."""

    file: str
    line: int


def split_top(text: str, separator: str) -> list[str]:
    """Split at separators that no bracket or string encloses."""
    parts, depth, start, i, length = [], 0, 0, 0, len(separator)
    quoted = False
    while i < len(text):
        c = text[i]
        if quoted:
            if c == "\\":
                i += 1
            elif c == '"':
                quoted = False
        elif c == '"':
            quoted = True
        elif depth == 0 and text.startswith(separator, i):
            parts.append(text[start:i])
            i += length
            start = i
            continue
        elif c in "([{<":
            depth += 1
        elif c in ")]}" or (c == ">" and text[i - 1] != "-"):
            depth -= 1
        i += 1
    parts.append(text[start:])
    return parts


class Locations:
    """Resolves `#loc12` to file and line, preferring the author's files."""

    def __init__(self, lines: list[str], own: tuple[str, ...]) -> None:
        self.definitions: dict[str, str] = {}
        self.own = own
        self.memory: dict[str, tuple[Location, ...]] = {}
        for line in lines:
            if line.startswith("#loc"):
                found = _LOC_DEFINITION.match(line)
                if found:
                    self.definitions[found.group(1)] = found.group(2)

    def frames(self, text: str, depth: int = 0) -> tuple[Location, ...]:
        """The call stack, innermost first."""
        text = text.strip()
        if depth > 60:
            return ()
        if text in self.memory:
            return self.memory[text]
        if text.startswith("#"):
            result = self.frames(self.definitions.get(text[1:], ""), depth + 1)
        elif text.startswith("callsite("):
            inner = text[len("callsite(") : -1]
            callee, _, caller = inner.partition(" at ")
            result = self.frames(callee, depth + 1) + self.frames(caller, depth + 1)
        elif text.startswith("fused"):
            inside = text[text.index("[") + 1 : text.rindex("]")] if "[" in text and "]" in text else ""
            result = next((f for f in (self.frames(p, depth + 1) for p in split_top(inside, ",")) if f), ())
        elif found := _FILE_LOC.match(text):
            result = (Location(found.group(1), int(found.group(2))),)
        elif text.startswith('"') and text.endswith(")"):
            result = self.frames(text[text.index("(", text.index('"', 1)) + 1 : -1], depth + 1)
        else:
            result = ()
        self.memory[text] = result
        return result

    def places(self, text: str) -> frozenset[str]:
        """The texts that a `#loc12` stands for: several where operations were folded into one."""
        said = self.definitions.get(text[1:], "") if text.startswith("#") else text
        inside = said[said.index("[") + 1 : said.rindex("]")] if said.startswith("fused") and "[" in said and "]" in said else text
        return frozenset(part.strip() for part in split_top(inside, ","))

    def location(self, text: str) -> Location | None:
        """The innermost frame in a file of the author's; else the innermost."""
        frames = self.frames(text)
        for frame in frames:
            name = frame.file.rsplit("/", 1)[-1]
            if not self.own or name in self.own or frame.file in self.own:
                return frame
        return frames[-1] if frames else None


def closing(text: str, start: int) -> int:
    """Index of the bracket that closes the one at `start`.

    Raises:
        IrError: None does.
    """
    inside, *behind = split_top(text[start + 1 :], {"(": ")", "[": "]", "{": "}"}[text[start]])
    if not behind:
        raise IrError("a bracket of the IR is not closed", text[:100])
    return start + 1 + len(inside)


def trailing_location(line: str) -> tuple[str, str]:
    """A line without its trailing `loc(...)`, and what stands in it."""
    if not line.endswith(")"):
        return line, ""
    start = line.rfind(" loc(")
    while start >= 0:
        if closing(line, start + 4) == len(line) - 1:
            return line[:start].rstrip(), line[start + 5 : -1]
        start = line.rfind(" loc(", 0, start)
    return line, ""
