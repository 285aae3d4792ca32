"""Blocks that must cover a size in one program: `o = tl.arange(0, BLOCK)`, masked with `o < N`, leaves out what lies beyond the block."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from advisor.python_source.literals import dotted


def row_sizes(kernel: ast.FunctionDef) -> dict[str, set[str]]:
    """The arguments that a block is masked against, by the argument that the block is of; also half of one against half of the other.

    Only of a range that starts at 0 and never moves: one that a program's number or a loop is added to covers more.
    """
    arguments = {each.arg for each in ast.walk(kernel.args) if isinstance(each, ast.arg)}
    stored = Counter(n.id for n in ast.walk(kernel) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    blocks: dict[str, tuple[str, int]] = {}
    for node in ast.walk(kernel):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            made = _range_of(node.value)
            if made[0] in arguments and stored[node.targets[0].id] == 1:
                blocks[node.targets[0].id] = made
    found: dict[str, set[str]] = {}
    for node in ast.walk(kernel):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt):
            left, right = _unsliced(node.left), node.comparators[0]
            block, part = blocks.get(left.id, ("", 1)) if isinstance(left, ast.Name) else _range_of(left)
            size, same_part = _part_of(right)
            if block in arguments and part == same_part and size in arguments - set(stored):
                found.setdefault(block, set()).add(size)
    return found


def block_sizes(rows: Mapping[str, Collection[str]], constants: Mapping[str, Any], names: Collection[str]) -> dict[str, int]:
    """Sizes that fill the blocks that are masked against them: of a size of 1, a block of 64 would be almost empty.

    Args:
        rows: What `row_sizes` finds.
        constants: Constants by name, the blocks and the sizes among them.
        names: The sizes that are asked for.

    Returns:
        Those that are larger than the constants say.
    """
    found: dict[str, int] = {}
    for block, masked in rows.items():
        size = constants.get(block)
        for name in masked:
            least = found.get(name, constants.get(name))
            if name in names and type(size) is int and isinstance(least, (int, float)) and size > least:
                found[name] = size
    return found


def longest_product(kernel: ast.FunctionDef, constants: Mapping[str, Any]) -> int:
    """The longest `tl.arange(0, A * B)`, also by a name that the kernel gives the product, where both are known; 0: there is none."""
    named: dict[str, ast.expr | None] = {}
    for node in ast.walk(kernel):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=value):
                named[name] = value
    found = [0]
    for node in ast.walk(kernel):
        if isinstance(node, ast.Call) and (dotted(node.func) or "").endswith("arange") and len(node.args) == 2:
            last = node.args[1]
            match named.get(last.id) if isinstance(last, ast.Name) else last:
                case ast.BinOp(left=ast.Name(id=left), op=ast.Mult(), right=ast.Name(id=right)):
                    sizes = constants.get(left), constants.get(right)
                    found += [sizes[0] * sizes[1]] if type(sizes[0]) is int and type(sizes[1]) is int else []
    return max(found)


def _range_of(node: ast.expr) -> tuple[str, int]:
    """B and 1 of `tl.arange(0, B)`, B and 2 of `tl.arange(0, B // 2)`, also `[:, None]` of it; no name: it is something else."""
    node = _unsliced(node)
    if not (isinstance(node, ast.Call) and (dotted(node.func) or "").endswith("arange") and len(node.args) == 2):
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
