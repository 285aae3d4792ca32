"""The type of elements that a file names where it launches a kernel: `torch.bfloat16` of its tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from advisor.python_source.source import SourceFile

HALF = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
"""Types of 16 bits by their names in torch. Others (fp32 of scales and sums) say nothing of the rest."""


def named_element(source: SourceFile, kernel: str) -> str | None:
    """bf16 or fp16, where one of them alone is named by the functions that launch the kernel, or else by the module's own statements;
    None: none is, or both are. A type that the kernel itself names may be that of a step between.

    >>> from advisor.python_source.source import parse_source
    >>> named_element(parse_source("def f(x):\\n    k[(1,)](x.to(torch.bfloat16))", "f.py"), "k")
    'bf16'
    """
    functions = [node for node in ast.walk(source.tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    launching = [node for node in functions if node.name != kernel and _launches(node, kernel)]
    within = {id(inner) for function in functions for inner in ast.walk(function)}
    module = [node for node in ast.walk(source.tree) if id(node) not in within]
    for nodes in ((node for function in launching for node in ast.walk(function)), module):
        if names := set(_named(nodes)):
            return names.pop() if len(names) == 1 else None
    return None


def _launches(function: ast.AST, kernel: str) -> bool:
    """Whether something in a function is `kernel[grid](...)`."""
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(isinstance(called, ast.Subscript) and ast.unparse(called.value).rpartition(".")[2] == kernel for called in calls)


def _named(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in HALF and isinstance(node.value, ast.Name) and node.value.id == "torch":
            yield HALF[node.attr]
