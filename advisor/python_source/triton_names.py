"""What the triton that compiles has: the answer to `hasattr(tl, "gather")`, read from its files. Nothing of it is imported."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from advisor.python_source.literals import NotLiteralError
from advisor.system import triton_install

_USUAL = {"triton": ("triton",), "tl": ("triton", "language")}
"""Names that stand for triton's modules wherever they come from."""


def has(module: str, name: str) -> bool:
    """Whether a module of triton has a name.

    Args:
        module: By what it is called where it comes from: `triton.language`, `vllm.triton_utils.tl.math`.
        name: Of what is asked for.

    Raises:
        NotLiteralError: It is no module of triton whose names are known, or whether it has this one is not known.
    """
    parts = module.split(".")
    first = next((i for i, part in enumerate(parts) if part in _USUAL), len(parts))
    names, inner = _names((*_USUAL.get("".join(parts[first : first + 1]), ()), *parts[first + 1 :]), triton_install.folder())
    if name in names:
        return True
    if name in inner or "*" in names or name.startswith("__"):  # there if something imported it
        raise NotLiteralError(f"whether {module} has {name} is not known")
    return False


@cache
def _names(module: tuple[str, ...], installed: Path | None) -> tuple[frozenset[str], frozenset[str]]:
    """The names that a module's file binds, and those of files and folders in its folder, where triton is `installed`."""
    shown = ".".join(module)
    if not module or installed is None:
        raise NotLiteralError(f"what {shown or 'a module other than triton'} has is not known")
    folder = installed.joinpath(*module[1:])
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    try:
        waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, SyntaxError):
        raise NotLiteralError(f"what {shown} has is not known: {path.name} of it cannot be read") from None
    names: set[str] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {item.asname or item.name.split(".")[0] for item in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        waiting += ast.iter_child_nodes(node)
    return frozenset(names), frozenset(each.stem for each in folder.iterdir()) if folder.is_dir() else frozenset()
