"""Read the text of Triton's IR (TTIR, TTGIR) as Triton 3.6 to 3.9 print it: operations, regions, types, source lines.

Own parser rather than the compiler's, so that what was compiled on one machine, or recorded by another program, is read anywhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

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

    def __init__(self, lines: list[str], own_files: tuple[str, ...]) -> None:
        self.definitions: dict[str, str] = {}
        self.own = own_files
        self.memory: dict[str, tuple[Location, ...]] = {}
        for line in lines:
            if line.startswith("#loc"):
                match = _LOC_DEFINITION.match(line)
                if match:
                    self.definitions[match.group(1)] = match.group(2)

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
        elif match := _FILE_LOC.match(text):
            result = (Location(match.group(1), int(match.group(2))),)
        elif text.startswith('"') and text.endswith(")"):
            result = self.frames(text[text.index("(", text.index('"', 1)) + 1 : -1], depth + 1)
        else:
            result = ()
        self.memory[text] = result
        return result

    def places(self, text: str) -> frozenset[str]:
        """The texts that a `#loc12` stands for: several where operations were folded into one."""
        definition = self.definitions.get(text[1:], "") if text.startswith("#") else text
        inside = (
            definition[definition.index("[") + 1 : definition.rindex("]")]
            if definition.startswith("fused") and "[" in definition and "]" in definition
            else text
        )
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


_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_QUOTED = r'"(?:[^"\\]|\\.)*"'
"""A text in the IR, which holds whatever the kernel's author liked: inline assembly, messages."""
_TENSOR = re.compile(r"tensor<((?:\d+x)*)(.*)>$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Type:
    """A type: shape (empty for scalars) and element (`f32`, `i1`, `!tt.ptr<bf16>`); `text` as printed."""

    text: str
    shape: tuple[int, ...]
    element: str

    @property
    def elements(self) -> int:
        """Elements of the tensor; 1 for scalars."""
        return math.prod(self.shape)

    @property
    def pointee(self) -> str:
        """What a pointer points to; the element itself where it is none."""
        return self.element[len("!tt.ptr<") : -1].split(",")[0].strip() if self.element.startswith("!tt.ptr<") else self.element


@dataclass(slots=True, eq=False)
class Block:
    """Operations in order. `arguments` are the block's own values."""

    label: str
    arguments: list[str] = field(default_factory=list)
    argument_types: list[Type] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Operation:
    """One operation. `text` is what stands between its name and its types, for the attributes in it; `places` those of its locations:
    what one expression of the source makes has the same, and what was folded those of all it stands for."""

    name: str
    results: list[str]
    operands: list[str]
    types: list[Type]  # all that are printed, in order
    result_types: list[Type]
    text: str
    location: Location | None = None
    places: frozenset[str] = frozenset()
    regions: list[list[Block]] = field(default_factory=list)
    successors: list[tuple[str, list[str]]] = field(default_factory=list)

    def attribute(self, name: str) -> str | None:
        """The text of `name = value` among the attributes, not within a text of theirs."""
        named = re.finditer(rf"(?<![\w.]){re.escape(name)} = ({_QUOTED}|[^,}}>\s]+)|{_QUOTED}", self.text)
        return next((match[1].strip('"') for match in named if match[1] is not None), None)

    @property
    def result(self) -> Type | None:
        """Type of the first result."""
        return self.result_types[0] if self.result_types else None

    @property
    def line(self) -> int | None:
        """Of the source; None: not known."""
        return self.location.line if self.location else None

    @property
    def in_line(self) -> str:
        """` in line 12`, where the line is known."""
        return f" in line {self.location.line}" if self.location else ""

    def walk(self) -> Iterator[Operation]:
        """The operation and all inside it."""
        yield self
        for region in self.regions:
            for block in region:
                for operation in block.operations:
                    yield from operation.walk()


@dataclass(slots=True, eq=False)
class Function:
    """A function: its arguments and blocks."""

    name: str
    public: bool
    arguments: list[str]
    argument_types: list[Type]
    blocks: list[Block]
    location: Location | None = None

    def walk(self) -> Iterator[Operation]:
        """Every operation."""
        for block in self.blocks:
            for operation in block.operations:
                yield from operation.walk()


@dataclass(slots=True, eq=False)
class Module:
    """A parsed module: the kernel, its public function. What Triton does not inline into that is not read."""

    kernel: Function

    def loops_around(self) -> dict[int, tuple[int, ...]]:
        """The loops that each operation stands in, the outermost first, all by `id` (a loop itself counts)."""
        loops: dict[int, tuple[int, ...]] = {}

        def visit(blocks: list[Block], around: tuple[int, ...]) -> None:
            for block in blocks:
                for operation in block.operations:
                    loops[id(operation)] = (*around, id(operation)) if operation.name in ("scf.for", "scf.while") else around
                    for region in operation.regions:
                        visit(region, loops[id(operation)])

        visit(self.kernel.blocks, ())
        return loops


def parse_type(text: str) -> Type:
    """A type from its text; encodings (layouts) of tensors are dropped."""
    text = text.strip()
    match = _TENSOR.match(text)
    if not match:
        inner = re.match(r"!tt\.tensordesc<(?:tensor<)?((?:\d+x)+)([^,>]+)", text)
        if inner:
            return Type(text, tuple(int(n) for n in inner.group(1).split("x") if n), inner.group(2))
        return Type(text, (), text)
    shape = tuple(int(n) for n in match.group(1).split("x") if n)
    return Type(text, shape, split_top(match.group(2), ",")[0].strip())


def parse(text: str, own_files: tuple[str, ...] = ()) -> Module:
    """Parse a module.

    Args:
        text: As `asm["ttir"]` or `asm["ttgir"]`.
        own_files: Names of the files whose lines count as the author's; empty: all.

    Raises:
        IrError: It is not the IR of a Triton kernel.
    """
    lines = text.splitlines()
    parser = _Parser(lines, Locations(lines, own_files))
    try:
        functions = parser.module()
    except (IndexError, ValueError, KeyError, RecursionError) as error:
        raise IrError(f"line {parser.position + 1} of the IR cannot be read", f"{type(error).__name__}: {error}") from None
    kernel = next((function for function in functions if function.public), None)
    if kernel is None:
        raise IrError("the IR has no public function", limit="the text of a compiled kernel")
    return Module(kernel)


class _Parser:
    def __init__(self, lines: list[str], locations: Locations) -> None:
        self.lines = [line.strip() for line in lines]
        self.locations = locations
        self.position = 0
        self.type_memory: dict[str, Type] = {}

    def type(self, text: str) -> Type:
        text = text.strip()
        if text not in self.type_memory:
            self.type_memory[text] = parse_type(text)
        return self.type_memory[text]

    def module(self) -> list[Function]:
        functions = []
        while self.position < len(self.lines):
            line = self.lines[self.position]
            if line.startswith("tt.func "):
                functions.append(self.function(line))
            else:
                self.position += 1
        return functions

    def function(self, line: str) -> Function:
        match = re.match(r"tt\.func\s+(public|private)?\s*@(\"[^\"]*\"|[\w$.-]+)\(", line)
        if not match:
            raise IrError("a function of the IR has an unknown form", line[:100])
        end = closing(line, match.end() - 1)
        arguments, types = self.arguments(line[match.end() : end])
        self.position += 1
        if not line.endswith("{"):
            return Function(match.group(2), match.group(1) == "public", arguments, types, [])
        blocks = self.region()
        location = self.locations.location(trailing_location(self.lines[self.position])[1])
        self.position += 1
        return Function(match.group(2).strip('"'), match.group(1) == "public", arguments, types, blocks, location)

    def arguments(self, text: str) -> tuple[list[str], list[Type]]:
        names, types = [], []
        for part in split_top(text, ","):
            if ":" not in part:
                continue
            name, _, rest = part.partition(":")
            names.append(name.strip())
            types.append(self.type(split_top(rest.split(" loc(")[0].strip(), " ")[0]))
        return names, types

    def region(self) -> list[Block]:
        """Blocks up to the line that begins with `}`, which is left for the caller."""
        blocks = [Block("")]
        while True:
            line = self.lines[self.position]
            if line.startswith("}"):
                return blocks
            if line.startswith("^"):
                match = re.match(r"\^(\w+)", line)
                assert match is not None
                block = Block(match.group(1))
                if line[match.end() : match.end() + 1] == "(":
                    end = closing(line, match.end())
                    block.arguments, block.argument_types = self.arguments(line[match.end() + 1 : end])
                if len(blocks) == 1 and not blocks[0].operations and not blocks[0].label:
                    blocks = [block]
                else:
                    blocks.append(block)
                self.position += 1
            elif not line or line.startswith("//"):
                self.position += 1
            else:
                blocks[-1].operations.append(self.operation(line))

    def operation(self, line: str) -> Operation:
        results: list[str] = []
        rest = line
        if line.startswith("%"):
            left, _, rest = line.partition(" = ")
            for part in left.split(","):
                name, _, count = part.strip().partition(":")
                results += [f"{name}#{i}" for i in range(int(count))] if count else [name]
        opens = rest.endswith("{")
        if rest.endswith(")") or " loc(" in rest:
            rest, location = trailing_location(rest)
        else:
            location = ""
        named = re.match(r'"?([\w.$]+)"?', rest)
        if not named:
            raise IrError("an operation of the IR has an unknown form", line[:100])
        head = rest[named.end() :]
        self.position += 1
        regions: list[list[Block]] = []
        tail = ""
        if opens:
            head = head.rstrip()[:-1].rstrip().removesuffix("(")  # generic form: `"tt.reduce"(%x) <{…}> ({`
            while True:
                regions.append(self.region())
                closing = self.lines[self.position]
                self.position += 1
                if closing.endswith("{"):
                    continue
                closing, location = trailing_location(closing)
                tail = closing[1:].lstrip(")").strip()
                break
        operation = self.build(named.group(1), results, head, tail)
        operation.regions = regions
        operation.location, operation.places = self.locations.location(location), self.locations.places(location)
        return operation

    def build(self, name: str, results: list[str], head: str, tail: str) -> Operation:
        text, types, result_types = head, [], []
        typed = head
        if tail.startswith(":") or " : " in tail:
            typed = f"{head} {tail}"
        body, signature = _split_types(typed)
        if signature:
            types = [self.type(t) for t in _types_in(signature)]
            arrow = split_top(signature, "->")
            if len(arrow) > 1:
                result_types = [self.type(t) for t in _types_in(arrow[-1])]
            elif " to " in signature:
                result_types = [self.type(split_top(signature, " to ")[-1])]
            elif types:
                result_types = [types[0]]
        if name in ("scf.for", "scf.if"):  # `-> (types)` comes before the type of the counter, or alone
            arrow = split_top(head, "->")
            result_types = [self.type(t) for t in _types_in(split_top(arrow[-1], " : ")[0])] if len(arrow) > 1 else []
        elif name == "arith.select" or name == "tt.addptr":
            result_types = types[-1:] if name == "arith.select" else types[:1]
        elif name in ("arith.cmpi", "arith.cmpf") and types:
            shape = "x".join(map(str, types[0].shape))
            result_types = [self.type(f"tensor<{shape}xi1>" if shape else "i1")]
        elif name == "tt.load" and types and len(split_top(signature, "->")) == 1:
            pointer = types[0]
            shape = "".join(f"{n}x" for n in pointer.shape)
            result_types = [self.type(f"tensor<{shape}{pointer.pointee}>" if pointer.shape else pointer.pointee)]
        if not results:
            result_types = []
        elif len(results) > len(result_types) and result_types:
            result_types = [*result_types, *[result_types[-1]] * (len(results) - len(result_types))]
        operands = _VALUE.findall(re.sub(_QUOTED, "", body) if '"' in body else body)
        successors: list[tuple[str, list[str]]] = []
        if name.startswith("cf."):
            operands, successors = _branches(body)
        text = f"{body} {tail}" if tail else body
        return Operation(name, results, operands, types, result_types, text, successors=successors)


def _branches(body: str) -> tuple[list[str], list[tuple[str, list[str]]]]:
    successors: list[tuple[str, list[str]]] = []
    for match in re.finditer(r"\^(\w+)(\(([^)]*)\))?", body):
        inner = (match.group(3) or "").split(" : ")[0].split(":")[0]
        successors.append((match.group(1), _VALUE.findall(inner)))
    first = body.split("^")[0]
    return _VALUE.findall(first), successors


def _split_types(text: str) -> tuple[str, str]:
    """What stands before the last top-level ` : `, and what after it."""
    parts = split_top(text, " : ")
    if len(parts) == 1:
        return text, ""
    return " : ".join(parts[:-1]), parts[-1]


def _types_in(text: str) -> list[str]:
    """The types a signature lists, brackets opened."""
    types: list[str] = []
    for arrow in split_top(text, "->"):
        for part in split_top(arrow, ","):
            for piece in split_top(part, " * "):
                for item in split_top(piece, " to "):
                    item = item.strip()
                    if item.startswith("(") and item.endswith(")"):
                        types += _types_in(item[1:-1])
                    elif item:
                        # Attributes may follow a type: `i32 {tt.num_stages = 3}`.
                        types.append(split_top(item, " ")[0])
    return types
