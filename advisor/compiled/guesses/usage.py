"""How a kernel uses its parameters, read from its syntax tree: pointers, indices, block sizes, flags, types. Each kind of statement and
expression tells something of them, calls most: accesses to memory, sizes, types, options, and the helpers that a kernel calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from advisor.compiled.guesses.origins import (
    FLOAT_CALLS,
    OF_A_TENSOR,
    RANDOM_CALLS,
    SHORT,
    Origins,
    argument,
    converted,
    float_operands,
    is_bitcast,
    is_float,
    is_integer,
    is_load,
    made_of_floats,
    made_pointer,
    stored_as,
    to_float,
    type_given,
    walk,
)
from advisor.compiled.guesses.parameter_guesses import argument_type
from advisor.compiled.guesses.usage_marks import TEXTS, Marks, Usage
from advisor.python_source.bindings import call_arguments, is_none, names_in
from advisor.python_source.imported import function_meant, imported_file
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.language import dotted, last_name
from advisor.python_source.literal_values import Constexpr
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import SourceFile

MAX_DEPTH = 6
SHORTEST_TUPLE = 2
"""Items of a tuple of which only that it is one is known."""


_ORDER = (ast.Gt, ast.GtE, ast.Lt, ast.LtE)


MEMORY_CALLS = frozenset(
    {
        "load",
        "store",
        "atomic_add",
        "atomic_max",
        "atomic_min",
        "atomic_xchg",
        "atomic_cas",
        "atomic_and",
        "atomic_or",
        "atomic_xor",
        "make_block_ptr",
        "make_tensor_descriptor",
        "_experimental_make_tensor_descriptor",
    }
)
_MASKS = {"load": 1, "store": 2}
"""Where an operation takes its mask, if not by name."""
_DESCRIPTOR_CALLS = frozenset({"load", "store", "gather", "scatter"})
_SIZES: Mapping[str, slice] = {"arange": slice(None)} | dict.fromkeys(("zeros", "full", "zeros_like", "broadcast_to", "reshape"), slice(1))
"""The arguments of an operation that are sizes of a tensor."""
_TYPES = {"zeros": slice(1, None), "cast": slice(1, None), "full": slice(2, 3)}
"""The arguments of an operation that may be a type."""


def usage_of(source: SourceFile, function: JitFunction) -> Mapping[str, Usage]:
    """Usage by parameter, read once for all configurations of a kernel and kept with its file; not to be changed."""
    key = ("usage", function.node)
    if key not in source.kept:
        source.kept[key] = Reader(source).usage(function)
    return source.kept[key]


class Reader:
    """Reads the usage of a kernel's parameters, through the helpers that it calls, also of files that its own imports them from."""

    def __init__(self, source: SourceFile, readers: dict[Path, Reader] | None = None) -> None:
        self.source = source
        self.roots = source.module_names.triton_roots | {"tl", "triton"}
        self.done: dict[str, dict[str, Usage]] = {}
        self.readers = {} if readers is None else readers  # of all files
        self.readers[source.path] = self

    def helper(self, depth: int, name: str) -> Mapping[str, Usage] | None:
        """Usage by parameter of the kernel that the file calls `name`; None: there is none."""
        module, _, called = name.rpartition(".")
        if name.partition(".")[0] in self.roots:
            return None
        file_meant = imported_file(self.source, module) if module else self.source
        meant = function_meant(file_meant, called) if file_meant is not None else None
        if meant is None:
            return None
        file, there = meant
        reader = self.readers.get(file.path) or Reader(file, self.readers)
        function = file.functions.get(there)
        return None if function is None else reader.usage(function, depth)

    def usage(self, function: JitFunction, depth: int = 0) -> dict[str, Usage]:
        """Usage by parameter."""
        if function.name in self.done:
            return self.done[function.name]
        by_parameter = {p.name: Usage() for p in function.parameters}
        self.done[function.name] = by_parameter
        if depth < MAX_DEPTH:
            _KernelReader(self, function, by_parameter, depth).read()
        return by_parameter


class _KernelReader(Marks):
    """Reads one kernel: each kind of statement and expression tells something else of the parameters in it."""

    def __init__(self, reader: Reader, function: JitFunction, by_parameter: dict[str, Usage], depth: int) -> None:
        super().__init__(by_parameter, Origins(function))
        self.reader, self.function, self.depth = reader, function, depth

    def read(self) -> None:
        for node in ast.walk(self.function.node):
            self._floats(node)
            note = _KINDS.get(type(node))
            if note is not None:
                note(self, node)
        for node in ast.walk(self.function.node):
            self._beside_floats(_sides(node))

    def _holds_floats(self, name: str) -> bool:
        """Whether what is loaded through a parameter are floats, as far as is known when all else is read."""
        parameter = next(item for item in self.function.parameters if item.name == name)
        return argument_type(parameter, self.found[name], {}, "fp16", element_given=False).startswith(("*fp", "*bf"))

    def _beside_floats(self, sides: Sequence[ast.expr]) -> None:
        """Note the arguments that stand beside a float: of operands that are of one type."""
        for place, side in enumerate(sides):
            if (use := self.parameter(side)) is not None:
                others = (inner for other in (*sides[:place], *sides[place + 1 :]) for inner in walk(other, self.origins.of_one_type))
                use.beside_floats |= any(map(self._gives_floats, others))

    def _gives_floats(self, node: ast.expr) -> bool:
        """Whether an expression by itself says that its value is of floats."""
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, ast.Div)
        if not isinstance(node, ast.Call) or is_float(node):
            return is_float(node)
        if is_load(node):
            return bool(node.args) and any(map(self._holds_floats, self.origins.roots(node.args[0])))
        if converted(node) is not None:
            return to_float(node)
        if last_name(node) == "dot":
            return not type_given(node).startswith("int")
        return last_name(node) in FLOAT_CALLS | {"rand", "randn"} or made_of_floats(node)

    def _floats(self, node: ast.AST) -> None:
        for operand in float_operands(node):
            for use in self.loaded(operand, handed=True):
                use.real = True

    def _call(self, node: ast.Call) -> None:
        for answers in _CALLS:
            if answers(self, node):
                break
        self._conversion(node)
        self._options(node)
        self._types(node)
        if last_name(node) in RANDOM_CALLS:
            for value in node.args:
                self.indices(value)
        if dotted(node.func) == "len":
            for use in self.named_in(node.args):
                use.items = max(use.items, SHORTEST_TUPLE)

    def _attribute(self, node: ast.Attribute) -> None:
        root = dotted(node)
        use = self.found.get(root.split(".")[0])
        # A helper may be handed a tile, which has a `type.element_ty`, too.
        if use is not None and "element_ty" in root and (not self.depth or ".dtype." in root):
            use.pointer = True

    def _item(self, node: ast.Subscript) -> None:
        """`strides[1]`: a tensor is never asked for an element."""
        if (use := self.parameter(node.value)) is not None and not isinstance(node.slice, (ast.Tuple, ast.Slice)):
            known = isinstance(node.slice, ast.Constant) and type(node.slice.value) is int
            use.items = max(use.items, int(node.slice.value) + 1 if known else SHORTEST_TUPLE)  # type: ignore[attr-defined,arg-type]

    def _branch(self, node: ast.If | ast.IfExp | ast.While) -> None:
        self.flag(node.test)
        for inner in ast.walk(node.test):
            if isinstance(inner, ast.Compare):
                self.decides(inner)

    def _either(self, node: ast.BoolOp) -> None:
        for value in node.values:
            self.flag(value)

    def _unary(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self.flag(node.operand)

    def _comparison(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        uses = [use for side in sides if (use := self.parameter(side)) is not None]
        for side in sides:
            of_triton = isinstance(side, ast.Attribute) and dotted(side).split(".")[0] in self.reader.source.module_names.triton_roots
            values = self._constants(side)
            for use in uses:
                use.element_type |= of_triton
                use.compared.extend(values)
                use.switch |= bool(values) and all(isinstance(op, _ORDER) for op in node.ops)
                use.optional |= isinstance(side, ast.Constant) and side.value is None
        self.counted(node)

    def _constants(self, side: ast.expr) -> list[Any]:
        """The constants that a side of a comparison is, or lists."""
        if isinstance(side, ast.Constant) and side.value is not None:
            return [side.value]
        if isinstance(side, (ast.Tuple, ast.List, ast.Set)):
            return [element_.value for element_ in side.elts if isinstance(element_, ast.Constant)]
        if isinstance(side, ast.Name) and side.id in self.reader.source.assignments:
            with suppress(NotLiteralError):
                constant = self.reader.source.constant(side.id)
                return [constant.value if isinstance(constant, Constexpr) else constant]
        return []

    def _arithmetic(self, node: ast.BinOp) -> None:
        sides = (node.left, node.right)
        if isinstance(node.op, (ast.LShift, ast.RShift)):
            self.shifted(node.left, node.op, node.right)
        elif isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)):
            for side, other in (sides, sides[::-1]):
                if is_integer(other):
                    self.bits(side)
        elif isinstance(node.op, ast.FloorDiv):  # which Triton has of integers only
            self.indices(node.left)
            for use in self.named_in([node]):
                use.whole = True
        elif isinstance(node.op, ast.Div) or any(isinstance(s, ast.Constant) and isinstance(s.value, float) for s in sides):
            for side in sides:
                if (number := self.parameter(side)) is not None:
                    number.number = True

    def _in_place(self, node: ast.AugAssign) -> None:
        if isinstance(node.op, (ast.LShift, ast.RShift)):
            self.shifted(node.target, node.op, node.value)

    def _loop(self, node: ast.For) -> None:
        self.indices(node.iter)
        for use in self.named_in([node.iter]):
            use.integer = True

    # ---------------------------------------------------------------------------- what is called: true, where it is that

    def _access(self, node: ast.Call) -> bool:
        """`tl.load(pointer, mask, other)` and others that take a pointer."""
        if last_name(node) not in MEMORY_CALLS or _root(node) not in self.reader.roots:
            return False
        pointer = argument(node, 0, "pointer", "base")
        if pointer is not None:
            atomic = last_name(node).startswith("atomic")
            for use in self.accessed(pointer):
                use.pointer = True
                use.bits |= atomic and is_integer(argument(node, 1, "val"))
                use.real |= last_name(node) == "load" and is_float(argument(node, 2, "other"))
            self.indices(pointer)
            self.offsets([pointer, *(node.args if last_name(node).startswith("make_") else ())])
        value = argument(node, 1, "value") if last_name(node) == "store" else None
        made = [item for item in (self.origins.values(value) if isinstance(value, ast.Name) else [value]) if isinstance(item, ast.Call)]
        for type_use in self.named_in(kind for item in made if converted(item) is not None for kind in item.args):
            type_use.stored = True
        written = stored_as({type_given(item) for item in made if converted(item) is not None})
        behind = walk(value, self.origins.passed_on) if value is not None else ()
        limited = any(isinstance(inner, ast.Call) and last_name(inner) == "clamp" for inner in behind)
        for use in self.accessed(pointer) if pointer is not None else ():
            use.written = written or use.written
            use.adapted |= limited and not use.written
        mask = argument(node, _MASKS.get(last_name(node)), "mask")
        if mask is not None:
            for use in self.loaded(mask):
                use.boolean = True
        return True

    def _descriptor(self, node: ast.Call) -> bool:
        """`descriptor.load([row, column])` of a descriptor that is a parameter."""
        use = self.found.get(_root(node))
        if last_name(node) not in _DESCRIPTOR_CALLS or use is None:
            return False
        place = argument(node, 0)
        use.descriptor = len(place.elts) if isinstance(place, (ast.List, ast.Tuple)) else 2
        return True

    def _sizes(self, node: ast.Call) -> bool:
        """`tl.arange(0, BLOCK)` and others that take the sizes of a tensor."""
        if last_name(node) not in _SIZES:
            return False
        for size in node.args[_SIZES[last_name(node)]]:
            self.extent(size)
        return True

    def _unrolled(self, node: ast.Call) -> bool:
        """`tl.static_range(begin, end, step)`: the step is no bound, and a size that is gone through in tiles no number of trips."""
        if last_name(node) != "static_range":
            return False
        step = argument(node, 2, "step")
        tiled = step is not None and not isinstance(step, ast.Constant)
        for use in self.named_in(node.args[:2]):
            use.range_bound |= not tiled
            use.integer |= tiled
        return True

    def _made_of_a_type(self, node: ast.Call) -> bool:
        """`x.to(type)` of a type that is a parameter."""
        if last_name(node) != "to" or (use := self.parameter(argument(node, 0))) is None:
            return False
        use.element_type = True
        return True

    def _helper(self, node: ast.Call) -> bool:
        """Another kernel, which does with its parameters what it does."""
        theirs = self.reader.helper(self.depth + 1, dotted(node.func))
        if theirs is None:
            return False
        pairs: list[tuple[str, ast.expr]] = list(zip(theirs, node.args, strict=False))
        for name, value in [*pairs, *((k.arg, k.value) for k in node.keywords if k.arg)]:
            if name not in theirs:
                continue
            if theirs[name].pointer:
                self.indices(value)
                self.offsets([value])
                for use in self.accessed(value):
                    use.take_pointer(theirs[name])
            else:
                for use in self.unchanged(value):
                    use.take_values(theirs[name])
            if (handed := self.parameter(value)) is not None:
                handed.take_argument(theirs[name])
        return True

    # ------------------------------------------------------------------------------------------ what any call may tell

    def _conversion(self, node: ast.Call) -> None:
        """What is made a pointer, and what is loaded of whatever type, for it is made one of another tensor's, or of 16 bits or less."""
        if (address := made_pointer(node)) is not None:
            for name in set(self.origins.unchanged(address)).difference(self.origins.roots(address)):
                self.found[name].addresses = True
        elif (value := converted(node)) is not None and not is_bitcast(node):
            kinds = [
                ast.Name(id=kind.partition(".")[0])
                for item in (*node.args, *(k.value for k in node.keywords))
                if OF_A_TENSOR.search(kind := dotted(item))
            ]
            ends = [inner for inner in walk(value, self.origins.passed_on) if not self.origins.passed_on(inner)]
            if (kinds or SHORT.match(type_given(node))) and all(isinstance(end, ast.Name | ast.Constant) or is_load(end) for end in ends):
                of_the_type = {name for kind in kinds for name in (*self.origins.unchanged(kind), *self.origins.roots(kind))}
                for name in set(self.origins.unchanged(value)) - of_the_type:
                    self.found[name].adapted = True

    def _options(self, node: ast.Call) -> None:
        """Options that a parameter is given for: a text, or a type."""
        given = [(keyword.arg, keyword.value) for keyword in node.keywords]
        if last_name(node) == "dot":
            given += [("input_precision", value) for value in node.args[3:4]]
        for option, value in given:
            if (use := self.parameter(value)) is not None:
                use.text = option if option in TEXTS else use.text
                use.element_type |= option in ("dtype", "out_dtype")

    def _types(self, node: ast.Call) -> None:
        """Types that a parameter is given for by place."""
        for kind in node.args[_TYPES.get(last_name(node), slice(0))]:
            if (use := self.parameter(kind)) is not None:
                use.element_type = True


_KINDS: dict[type[ast.AST], Callable[[_KernelReader, Any], None]] = {
    ast.Call: _KernelReader._call,
    ast.Attribute: _KernelReader._attribute,
    ast.Subscript: _KernelReader._item,
    ast.If: _KernelReader._branch,
    ast.IfExp: _KernelReader._branch,
    ast.While: _KernelReader._branch,
    ast.BoolOp: _KernelReader._either,
    ast.UnaryOp: _KernelReader._unary,
    ast.Compare: _KernelReader._comparison,
    ast.BinOp: _KernelReader._arithmetic,
    ast.AugAssign: _KernelReader._in_place,
    ast.For: _KernelReader._loop,
}


_CALLS: tuple[Callable[[_KernelReader, ast.Call], bool], ...] = (
    _KernelReader._access,
    _KernelReader._descriptor,
    _KernelReader._sizes,
    _KernelReader._unrolled,
    _KernelReader._made_of_a_type,
    _KernelReader._helper,
)
"""What a call may be, in the order in which it is asked: a helper may have any name that none of the others goes by."""


_MIXED = (ast.Add, ast.Sub, ast.Mult)
"""Operations with a number that is what the other operand is; a division says nothing, for sums are divided by counts."""
_ALIKE = frozenset({"where", "maximum", "minimum", "clamp", "fma"})
"""Calls whose operands are of one type, but for the condition of `where`."""


def _sides(node: ast.AST) -> list[ast.expr]:
    """The operands of an operation that are of one type; none: it is something else."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, _MIXED):
        return [node.left, node.right]
    if isinstance(node, ast.AugAssign) and isinstance(node.op, _MIXED):
        return [node.target, node.value]
    if isinstance(node, ast.Compare) and all(isinstance(op, _ORDER) for op in node.ops):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Call) and last_name(node) in _ALIKE:
        return node.args[1:3] if last_name(node) == "where" else [*node.args, *(k.value for k in node.keywords)]
    return []


def row_sizes(function: JitFunction) -> dict[str, set[str]]:
    """The arguments that a block is masked against, by the argument that the block is of; also half of one against half of the other.

    Only of a range that starts at 0 and never moves: one that a program's number or a loop is added to covers more. And not one that is
    masked against more of the same size as well (`n`, and `N = 2 * n + n * n`).
    """
    origins = Origins(function)
    sizes_by_block: dict[str, set[str]] = {}
    beyond: dict[str, set[str]] = {}
    for node in ast.walk(function.node):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt):
            left, right = _unsliced(node.left), node.comparators[0]
            ranges = origins.values(left) if isinstance(left, ast.Name) else [left]
            block, part = _range_of(ranges[0]) if len(ranges) == 1 else ("", 1)
            size, same_part = _part_of(right)
            if {block, size} <= origins.parameters and part == same_part and not origins.assigned.get(size):
                sizes_by_block.setdefault(block, set()).add(size)
            else:
                values = origins.values(right) if isinstance(right, ast.Name) else [right]
                beyond.setdefault(block, set()).update(names_in(*(more for more in values if isinstance(more, ast.BinOp))))
    covered = {block: sizes - beyond.get(block, set()) for block, sizes in sizes_by_block.items()}
    return {block: sizes for block, sizes in covered.items() if sizes}


def row_sizes_through(source: SourceFile, function: JitFunction) -> dict[str, set[str]]:
    """`row_sizes` of a kernel, also of what it hands to helpers of its file; kept with the file, and not to be changed."""
    if (key := ("rows", function.node)) in source.kept:
        return source.kept[key]
    rows = source.kept[key] = row_sizes(function)
    for call in (node for node in ast.walk(function.node) if isinstance(node, ast.Call)):
        if (helper := source.functions.get(last_name(call))) is not None and helper is not function:
            given, _ = call_arguments(helper.node, call)
            handed = {name: node.id for name, node in given.items() if isinstance(node, ast.Name) and node.id in function.names}
            for block, sizes in row_sizes(helper).items():
                if block in handed and sizes & handed.keys():
                    rows.setdefault(handed[block], set()).update(handed[size] for size in sizes & handed.keys())
    return rows


def _range_of(node: ast.expr) -> tuple[str, int]:
    """B and 1 of `tl.arange(0, B)`, B and 2 of `tl.arange(0, B // 2)`, also `[:, None]` of it; no name: it is something else."""
    node = _unsliced(node)
    if not (isinstance(node, ast.Call) and last_name(node) == "arange" and len(node.args) == 2):
        return "", 1
    first, last = node.args
    return _part_of(last) if isinstance(first, ast.Constant) and first.value == 0 else ("", 1)


def _part_of(node: ast.expr) -> tuple[str, int]:
    """The name in `N` or `N // 2`, and what it is divided by; no name: it is something else."""
    if isinstance(node, ast.Name):
        return node.id, 1
    match node:
        case ast.BinOp(left=ast.Name(id=name), op=ast.FloorDiv(), right=ast.Constant(value=int(part))):
            return name, part
    return "", 1


def _unsliced(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Subscript) else node


def whole_quotients(node: ast.FunctionDef, constants: Mapping[str, Any], names: Collection[str]) -> dict[str, int]:
    """Of guessed constants those that are divided by a larger one (`HV // H`), which gives 0 and nothing to divide by: as large as that."""
    sizes_needed: dict[str, int] = {}
    for inner in ast.walk(node):
        match inner:
            case ast.BinOp(left=ast.Name(id=left), op=ast.FloorDiv(), right=ast.Name(id=right)) if left in names:
                size, by = constants.get(left), constants.get(right)
                sizes_needed |= {left: by} if type(size) is int and type(by) is int and size < by else {}
    return sizes_needed


@lru_cache(maxsize=256)
def rank_of(node: ast.FunctionDef) -> int:
    """Dimensions of the kernel's tensor with the most: of a shape, sizes that are literals aside, or of `x[:, None, None]`."""
    ranks = [1]
    for inner in ast.walk(node):
        if isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Tuple):
            ranks += [len(inner.slice.elts)] if any(map(is_none, inner.slice.elts)) else []
        elif isinstance(inner, ast.Call) and last_name(inner) in ("zeros", "full"):
            shapes = (shape.elts for shape in inner.args[:1] if isinstance(shape, ast.Tuple | ast.List))
            ranks += [sum(not isinstance(size, ast.Constant) for size in shape) for shape in shapes]
    return max(ranks)


def _root(call: ast.Call) -> str:
    """The first part of the name that is called."""
    return dotted(call.func).partition(".")[0]
