"""Blocks that must cover a size in one program: `o = tl.arange(0, BLOCK)`, masked with `o < N`, leaves out what lies beyond the block."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from advisor.configs.literals import dotted


def row_sizes(kernel: ast.FunctionDef) -> dict[str, set[str]]:
    """The arguments that a block is masked against, by the argument that the block is of.

    Only of a range that starts at 0 and never moves: one that a program's number or a loop is added to covers more.
    """
    arguments = {each.arg for each in ast.walk(kernel.args) if isinstance(each, ast.arg)}
    stored = Counter(n.id for n in ast.walk(kernel) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    blocks: dict[str, str] = {}
    for node in ast.walk(kernel):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            block = _range_of(node.value)
            if block in arguments and stored[node.targets[0].id] == 1:
                blocks[node.targets[0].id] = block
    found: dict[str, set[str]] = {}
    for node in ast.walk(kernel):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt):
            left, right = _unsliced(node.left), node.comparators[0]
            block = blocks.get(left.id, "") if isinstance(left, ast.Name) else _range_of(left)
            if block in arguments and isinstance(right, ast.Name) and right.id in arguments - set(stored):
                found.setdefault(block, set()).add(right.id)
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


def _range_of(node: ast.expr) -> str:
    """The name of B in `tl.arange(0, B)`, also `[:, None]` of it; empty: it is something else."""
    node = _unsliced(node)
    if not (isinstance(node, ast.Call) and (dotted(node.func) or "").endswith("arange") and len(node.args) == 2):
        return ""
    first, last = node.args
    return last.id if isinstance(first, ast.Constant) and first.value == 0 and isinstance(last, ast.Name) else ""


def _unsliced(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Subscript) else node
