"""How a kernel uses its parameters, read from its syntax tree: pointers, indices, block sizes, flags, types."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from advisor.compiled.origins import Origins
from advisor.compiled.parameter_usage import Usage
from advisor.compiled.value_flow import (
    converted,
    float_operands,
    is_bitcast,
    is_float,
    is_integer,
    is_load,
    last_name,
    made_of_floats,
    made_pointer,
    summed,
    type_given,
)  # fmt: skip
from advisor.configs.imported import imported_kernel
from advisor.configs.jit_function import JitFunction
from advisor.configs.literals import Constexpr, NotLiteralError, Symbol, dotted
from advisor.configs.source import SourceFile

MEMORY_CALLS = frozenset(
    {
        "load", "store", "atomic_add", "atomic_max", "atomic_min", "atomic_xchg", "atomic_cas", "atomic_and", "atomic_or",
        "atomic_xor", "make_block_ptr", "make_tensor_descriptor", "_experimental_make_tensor_descriptor",
    }
)  # fmt: skip
TEXTS = {
    "input_precision": "ieee", "eviction_policy": "", "cache_modifier": "", "padding_option": "zero", "fp_downcast_rounding": "rtne",
    "sem": "acq_rel",
}  # fmt: skip
"""Options of operations that take a text, with one that every target knows."""
MAX_DEPTH = 6
_BYTE_SHIFTS = (3, 4, 7)
"""Distances at which a byte is taken apart: two values of 4 bits, and the fields of an fp8 number."""
_UNSIGNED = ("uint32", "uint64")
"""What is loaded to be hashed, or as bits: of a float it would be made a signed integer."""
_NARROW = {"int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16"}


class Reader:
    """Reads the usage of a kernel's parameters, through the helpers it calls, also those that its file imports."""

    def __init__(self, source: SourceFile, readers: dict[Path, Reader] | None = None) -> None:
        self.source = source
        self.done: dict[str, dict[str, Usage]] = {}
        self.readers = readers if readers is not None else {}
        """Of all files that are read, by path."""
        self.readers[source.path.absolute()] = self
        self.helpers: dict[str, tuple[Reader, JitFunction] | None] = {}

    def helper(self, name: str) -> tuple[Reader, JitFunction] | None:
        """The kernel that is called `name` in this file, and the reader of the file that defines it."""
        if name not in self.helpers:
            here = name in self.source.functions
            found = (self.source, name) if here else imported_kernel(self.source, name)
            if found is None:
                self.helpers[name] = None
            else:
                reader = self.readers.get(found[0].path.absolute()) or Reader(found[0], self.readers)
                self.helpers[name] = reader, reader.source.functions[found[1]]
        return self.helpers[name]

    def meant(self, name: str) -> str:
        """What is called by a name: a function of triton's by its own name, where the file gives it another or imports it from a file that
        does (`make_desc = tl.make_tensor_descriptor`)."""
        if name in self.source.functions or not (name in self.source.assignments or name in self.source.imports):
            return name
        with suppress(NotLiteralError):
            value = self.source.evaluator().evaluate(ast.Name(id=name, ctx=ast.Load()))
            if isinstance(value, Symbol):
                return value.text
        return name

    def usage(self, function: JitFunction, depth: int = 0) -> dict[str, Usage]:
        """Usage by parameter."""
        if function.name in self.done:
            return self.done[function.name]
        found = {p.name: Usage() for p in function.parameters}
        self.done[function.name] = found
        if depth < MAX_DEPTH:
            _Visitor(self, function, found, depth).read()
        return found


class _Visitor:
    def __init__(self, reader: Reader, function: JitFunction, found: dict[str, Usage], depth: int) -> None:
        self.reader = reader
        self.function = function
        self.found = found
        self.depth = depth
        self.origins = Origins(function, frozenset(found), self._address_of)

    def read(self) -> None:
        for node in ast.walk(self.function.node):
            for operand in float_operands(node):
                for leaf in self.origins.loaded(operand, handed=True):
                    self.found[leaf].real = True
            for term in self._added_to_floats(node):
                for leaf in self.origins.unchanged(term):
                    self.found[leaf].real = True
            if isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, ast.Attribute):
                root = dotted(node) or ""
                name = root.split(".")[0]
                if name in self.found and "element_ty" in root and (not self.depth or ".dtype." in root):
                    self.found[name].pointer = True  # a helper may be handed a tile, which has a `type.element_ty`, too
            elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
                self._flag(node.test)
                for inner in ast.walk(node.test):
                    if isinstance(inner, ast.Compare):
                        self._decides(inner)
            elif isinstance(node, ast.BoolOp):
                for value in node.values:
                    self._flag(value)
            elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
                self._flag(node.operand)
            elif isinstance(node, ast.Compare):
                self._compare(node)
                self._counted(node)
            elif isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, (ast.LShift, ast.RShift)):
                self._bits(node.target if isinstance(node, ast.AugAssign) else node.left, distance=node)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)):
                for side, other in ((node.left, node.right), (node.right, node.left)):
                    if is_integer(other):
                        self._bits(side)
            elif isinstance(node, ast.For):
                self._indices(node.iter)
                for inner in ast.walk(node.iter):
                    if (use := self._parameter(inner)) is not None:
                        use.integer = True
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):  # which Triton has of integers only
                for leaf in (*self.origins.loaded(node.left), *self.origins.loaded(node.right)):
                    self.found[leaf].counted = True
            elif isinstance(node, ast.BinOp) and (isinstance(node.op, ast.Div) or any(
                isinstance(s, ast.Constant) and isinstance(s.value, float) for s in (node.left, node.right)
            )):
                for side in (node.left, node.right):
                    if (use := self._parameter(side)) is not None:
                        use.number = True

    def _added_to_floats(self, node: ast.AST) -> list[ast.expr]:
        """The terms and factors of a sum or a product with a name that is given a float: of `acc += x * y` after `acc = 0.0`."""
        terms = summed(node)
        values = [value for term in terms if isinstance(term, ast.Name) for value in self.origins.reaching.values(term)]
        return terms if len(terms) > 1 and any(is_float(value) or made_of_floats(value) for value in values) else []

    def _bits(self, node: ast.expr, distance: ast.BinOp | ast.AugAssign | None = None) -> None:
        """Mark the tensors whose loaded values are taken apart, as packed numbers are."""
        by = None if distance is None else distance.right if isinstance(distance, ast.BinOp) else distance.value
        for leaf in self.origins.loaded(node, handed=True):
            self.found[leaf].bitwise = True
        for leaf in self.origins.unchanged(node):
            self.found[leaf].bits = True
            self.found[leaf].narrow_bits |= isinstance(by, ast.Constant) and by.value in _BYTE_SHIFTS
            right = distance is not None and isinstance(distance.op, ast.RShift)
            self.found[leaf].wide_bits |= right and isinstance(by, ast.Constant) and isinstance(by.value, int) and by.value >= 8

    def _is_int32_sum(self, dot: ast.Call, keywords: dict[str, ast.expr]) -> bool:
        """Whether a dot gives int32: it says so, or adds to a tensor that was made so."""
        if "out_dtype" in keywords:
            return (dotted(keywords["out_dtype"]) or "").endswith(".int32")
        sums = [*dot.args[2:3], *(v for k, v in keywords.items() if k == "acc")]
        sums += [n.target for n in ast.walk(self.function.node) if isinstance(n, ast.AugAssign) and n.value is dot]
        made = [value for each in sums if isinstance(each, ast.Name) for value in self.origins.reaching.values(each)]
        types = [t for call in made if isinstance(call, ast.Call) for t in (*call.args[1:], *(k.value for k in call.keywords))]
        return any((dotted(t) or "").endswith(".int32") for t in types)

    def _flag(self, node: ast.expr) -> None:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            node = node.operand
        if (use := self._parameter(node)) is not None:
            use.boolean = True

    def _compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        names = [s.id for s in sides if isinstance(s, ast.Name) and s.id in self.found]
        for side in sides:
            values: list[Any] = []
            if isinstance(side, ast.Constant) and side.value is not None:
                values = [side.value]
            elif isinstance(side, (ast.Tuple, ast.List, ast.Set)):
                values = [e.value for e in side.elts if isinstance(e, ast.Constant)]
            elif isinstance(side, ast.Name) and side.id in self.reader.source.assignments:
                with suppress(NotLiteralError):
                    constant = self.reader.source.constant(side.id)
                    values = [constant.value if isinstance(constant, Constexpr) else constant]
            elif isinstance(side, ast.Attribute) and (dotted(side) or "").split(".")[0] in self.reader.source.triton_roots:
                for name in names:
                    self.found[name].element_type = True
            for name in names:
                self.found[name].compared.extend(values)

    def _call(self, node: ast.Call) -> None:
        name = self.reader.meant(dotted(node.func) or "")
        last = name.rsplit(".", 1)[-1] if name else (node.func.attr if isinstance(node.func, ast.Attribute) else "")
        root = name.split(".")[0]
        keywords = {k.arg: k.value for k in node.keywords if k.arg}
        if last == "dot":
            self._dot(node, keywords)
        if last in MEMORY_CALLS and root in self.reader.source.triton_roots | {"tl", "triton"}:
            self._memory(last, node, keywords)
        elif last in ("load", "store", "gather", "scatter") and root in self.found:
            self._described(self.found[root], node)
        elif last in ("arange", "zeros", "full", "zeros_like", "broadcast_to", "reshape"):
            for inner in (each for size in (node.args if last == "arange" else node.args[:1]) for each in ast.walk(size)):
                self._extent(inner)
        elif last == "static_range":
            for inner in (each for bound in node.args[:2] for each in ast.walk(bound)):  # the third is the step
                if (use := self._parameter(inner)) is not None:
                    use.range_bound = True
        elif last == "to" and node.args and (use := self._parameter(node.args[0])) is not None:
            use.element_type = True
        elif helper := self.reader.helper(name):
            self._helper(*helper, node)
        self._converted(node)
        self._options(last, node, keywords)

    def _parameter(self, node: ast.AST) -> Usage | None:
        """What is known of the parameter that an expression names; None: it names none."""
        return self.found.get(node.id) if isinstance(node, ast.Name) else None

    def _dot(self, node: ast.Call, keywords: dict[str, ast.expr]) -> None:
        integers = self._is_int32_sum(node, keywords)
        for leaf in (each for operand in node.args[:2] for each in self.origins.unchanged(operand)):
            self.found[leaf].int8 |= integers
            self.found[leaf].real |= not integers

    def _memory(self, operation: str, node: ast.Call, keywords: dict[str, ast.expr]) -> None:
        """A load, a store or an atomic operation, or what makes a pointer to a block."""
        first, second, third = (*node.args, None, None, None)[:3]
        pointer = first if first is not None else keywords.get("pointer", keywords.get("base"))
        if pointer is not None:
            atomic, roots = operation.startswith("atomic"), self.origins.roots(pointer)
            for leaf in roots:
                self.found[leaf].pointer = True
                self.found[leaf].chosen |= len(set(roots)) > 1
                self.found[leaf].atomic |= atomic
                self.found[leaf].bits |= atomic and is_integer(second if second is not None else keywords.get("val"))
                self.found[leaf].real |= operation == "load" and is_float(keywords.get("other", third))
            self._indices(pointer)
            self._offsets([pointer, *(node.args if operation.startswith("make_") else ())])
        mask = keywords.get("mask") or {"store": third, "load": second}.get(operation)
        if mask is not None:
            self._mark_loaded(mask, "boolean")

    def _described(self, use: Usage, node: ast.Call) -> None:
        """What goes through a descriptor that is a parameter."""
        use.descriptor = True
        if node.args and isinstance(node.args[0], (ast.List, ast.Tuple)) and not use.blocks:
            use.blocks = [self.origins.coordinate(each) for each in node.args[0].elts]

    def _converted(self, node: ast.Call) -> None:
        """What is made an integer of a type that is named, or a pointer, as it is loaded."""
        value = None if is_bitcast(node) else converted(node)
        if isinstance(value, ast.Call) and is_load(value) and value.args:
            leaves, kind = self.origins.roots(value.args[0]), type_given(node)
            self._narrowed(leaves, _NARROW.get(kind, ""))
            for leaf in leaves if kind in _UNSIGNED else ():
                self.found[leaf].counted = True
        if (address := made_pointer(node)) is not None:
            for leaf in set(self.origins.unchanged(address)).difference(self.origins.roots(address)):
                self.found[leaf].addresses = True

    def _options(self, last: str, node: ast.Call, keywords: dict[str, ast.expr]) -> None:
        """Types and texts that a call is given."""
        types = {"zeros": node.args[1:], "cast": node.args[1:], "full": node.args[2:3]}.get(last, [])
        texts = [("input_precision", value) for value in node.args[3:4] if last == "dot"]
        for key, value in [*keywords.items(), *texts, *(("dtype", value) for value in types)]:
            if (use := self._parameter(value)) is None:
                continue
            if key in TEXTS:
                use.text = key
            elif key in ("dtype", "out_dtype"):
                use.element_type = True

    def _narrowed(self, leaves: Iterable[str], kind: str) -> None:
        """Mark tensors whose values are made of a narrow type as they are loaded; of several, the widest."""
        for leaf in leaves:
            self.found[leaf].narrow = max(self.found[leaf].narrow, kind, key=lambda each: int(each[1:] or 0))

    def _extent(self, node: ast.AST) -> None:
        if (use := self._parameter(node)) is not None:
            use.extent = True
        elif isinstance(node, ast.Name):
            for inner in (each for value in self.origins.reaching.values(node) for each in ast.walk(value)):
                if (use := self._parameter(inner)) is not None:
                    use.extent = True

    def _helper(self, reader: Reader, helper: JitFunction, node: ast.Call) -> None:
        theirs = reader.usage(helper, self.depth + 1)
        pairs: list[tuple[str, ast.expr]] = list(zip((p.name for p in helper.parameters), node.args, strict=False))
        pairs += [(k.arg, k.value) for k in node.keywords if k.arg]
        for name, value in pairs:
            use = theirs.get(name)
            if use is None:
                continue
            if use.pointer:
                self._indices(value)
                self._offsets([value])
                roots = self.origins.roots(value)
                for leaf in roots:
                    self.found[leaf].pointer = True
                    self.found[leaf].chosen |= len(set(roots)) > 1
                    self.found[leaf].index |= use.index
                    self.found[leaf].counted |= use.counted
                    self.found[leaf].tested |= use.tested
                    self._values_of(leaf, use)
            else:
                for leaf in self.origins.unchanged(value):
                    self._values_of(leaf, use)
            if (mine := self._parameter(value)) is not None:
                mine.extent |= use.extent
                mine.range_bound |= use.range_bound
                mine.boolean |= use.boolean
                mine.element_type |= use.element_type
                mine.descriptor |= use.descriptor
                mine.number |= use.number
                mine.integer |= use.integer
                mine.offset |= use.offset
                mine.text = mine.text or use.text
                if use.blocks and not mine.blocks:
                    mine.blocks = use.blocks
                mine.compared.extend(use.compared)

    def _values_of(self, name: str, use: Usage) -> None:
        """Note what a helper does with the values that are loaded through a parameter, by itself or by who calls it."""
        mine = self.found[name]
        self._narrowed([name], use.narrow)
        mine.bits |= use.bits
        mine.narrow_bits |= use.narrow_bits
        mine.wide_bits |= use.wide_bits
        mine.bitwise |= use.bitwise
        mine.int8 |= use.int8
        mine.real |= use.real
        mine.addresses |= use.addresses

    def _address_of(self, call: ast.Call) -> tuple[bool, ast.expr | None]:
        """Whether a helper is called, and the argument that is its pointer."""
        helper = self.reader.helper(dotted(call.func) or "")
        if helper is None:
            return False, None
        reader, function = helper
        theirs = reader.usage(function, self.depth + 1)
        pairs = zip(function.parameters, call.args, strict=False)
        return True, next((value for p, value in pairs if theirs[p.name].pointer or p.name.endswith("ptr")), None)

    def _indices(self, node: ast.expr) -> None:
        """Mark the tensors whose loaded values are used as numbers in an address, a loop bound or an index.

        What only chooses among indices may be anything that can be compared: it is a number where it is compared with one.
        """
        self._mark_loaded(node, "index")
        for inner in self.origins.inside(node):
            if isinstance(inner, ast.Call) and last_name(inner) == "where" and inner.args:
                for each in self.origins.inside(inner.args[0]):
                    if isinstance(each, ast.Compare) and any(is_integer(side) for side in (each.left, *each.comparators)):
                        self._decides(each)

    def _offsets(self, addresses: Sequence[ast.expr]) -> None:
        """Mark the arguments that an address is worked out with."""
        for inner in (each for address in addresses for each in self.origins.inside(address, rounded=False)):
            if (use := self._parameter(inner)) is not None:
                use.offset = True

    def _decides(self, node: ast.Compare) -> None:
        """Mark the tensors whose loaded values decide: integers, unless it turns out that they are floats."""
        for side in _compared(node):
            for leaf in self.origins.loaded(side, reductions=False):
                self.found[leaf].tested = True

    def _counted(self, node: ast.Compare) -> None:
        """Mark the tensors whose loaded values are compared with an index."""
        sides = _compared(node)
        if any(self.origins.counts(side) for side in sides):
            for side in sides:
                for leaf in self.origins.loaded(side, bits=False):  # a digit of a number says nothing of its type
                    self.found[leaf].counted = True

    def _mark_loaded(self, node: ast.expr, what: str) -> None:
        for leaf in self.origins.loaded(node, truths=what == "boolean"):
            setattr(self.found[leaf], what, True)


def _compared(node: ast.Compare) -> list[ast.expr]:
    """The sides of a comparison of numbers that may be integers; none: it is of floats, or of something else."""
    sides = [node.left, *node.comparators]
    orders = all(isinstance(op, (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in node.ops)
    return sides if orders and not any(is_float(side) or float_operands(side) for side in sides) else []
