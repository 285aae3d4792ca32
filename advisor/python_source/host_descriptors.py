"""Tensor descriptors that a function makes for a launch: `TensorDescriptor(x, shape, strides, block_shape=[BLOCK_M, BLOCK_K])`. Read by
parsing."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from advisor.python_source.literals import dotted

_PLACES = {"TensorDescriptor": ("base", "shape", "strides", "block_shape"), "from_tensor": ("tensor", "block_shape")}
"""What Triton's class, and its way to make one of a whole tensor, take by position."""


@dataclass(frozen=True, slots=True)
class HostDescriptor:
    """A descriptor as it is made.

    Attributes:
        tensor: The tensor that it is of, all of it; None: it is made with a shape of its own, or that is not known.
        shape: Extents, as expressions; None: those of the tensor.
        block: Extents of its block, the same.
    """

    tensor: str | None
    shape: tuple[ast.expr, ...] | None
    block: tuple[ast.expr, ...]


def host_descriptor(node: ast.expr | None) -> HostDescriptor | None:
    """The descriptor that a call makes; None: it makes none whose block is written out."""
    if not isinstance(node, ast.Call) or any(isinstance(each, ast.Starred) for each in node.args):
        return None
    made = (dotted(node.func) or "").rsplit(".", 1)[-1]
    if made not in _PLACES:
        return None
    given = {**dict(zip(_PLACES[made], node.args, strict=False)), **{k.arg: k.value for k in node.keywords if k.arg}}
    block, shape = _listed(given.get("block_shape")), _listed(given.get("shape"))
    if block is None:
        return None
    whole = given.get("tensor") if made == "from_tensor" else None
    if isinstance(asked := given.get("shape"), ast.Attribute) and asked.attr == "shape":  # TensorDescriptor(x, x.shape, x.stride(), ...)
        whole = asked.value
    return HostDescriptor(dotted(whole) if whole is not None else None, shape, block)


def _listed(node: ast.expr | None) -> tuple[ast.expr, ...] | None:
    return tuple(node.elts) if isinstance(node, (ast.List, ast.Tuple)) else None
