"""What a file's own `KERNELS` entry says of a call, worked out by walking the syntax tree: nothing of the file is run.

`triton_kernels/README.md` has the convention. Entries whose `arguments` function does more than the evaluator understands are left
to the compiler's guesses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.python_source.described import call_function, kernel_problem
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import SourceFile
from advisor.result.schema import Configuration, Problem


def described_arguments(
    source: SourceFile, entry: Mapping[str, Any], problem: Problem, configuration: Configuration, compute_capability: str
) -> dict[str, Any] | None:
    """Every argument of a call but the configuration's: pointers as Triton types, the rest as values; None: not known."""
    flat = kernel_problem(problem, compute_capability)
    options = {"num_warps": configuration.num_warps, "num_stages": configuration.num_stages}
    try:
        found = call_function(source, entry.get("arguments"), flat, {**configuration.parameters, **options})
    except NotLiteralError:
        return None
    return found if isinstance(found, dict) and all(isinstance(name, str) for name in found) else None
