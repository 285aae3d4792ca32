"""What a file says of its own kernels: its `KERNELS` literal, and the functions that it names, worked out by walking the syntax tree.

`triton_kernels/README.md` has the convention. Nothing of the file is run: functions are followed statement by statement by the
evaluator of literals, which knows arithmetic, branches, loops and dictionaries, and nothing else; steps and sizes are limited.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from advisor.python_source.bindings import keys_read
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import SourceFile
from advisor.result.schema import Problem
from advisor.system.errors import UsageError

MATRIX_PRECISIONS = ("tf32", "tf32x3", "bf16x3", "bf16x6")
"""Input precisions of `tl.dot` with which fp32 operands run on matrix units: what is measured of such a product is no launch of an exact
one. The tf32 bound holds for all of them, if loosely: none is faster than tf32."""


def call_function(source: SourceFile, name: Any, *arguments: Any) -> Any:
    """What a plain function of the file returns.

    Raises:
        NotLiteralError: There is no such function, or it does more than the evaluator understands.
    """
    function = source.plain_functions.get(str(name))
    if function is None:
        raise NotLiteralError(f"{source.path.name} has no function {name}")
    return source.evaluator().call(function, arguments)


def valid_configurations(
    source: SourceFile, name: Any, configurations: Iterable[dict[str, int]], problem: Mapping[str, Any]
) -> list[dict[str, int]]:
    """Those that a plain function of the file takes for a problem; it is asked once for those that are alike in all it reads.

    Raises:
        NotLiteralError: As `call_function`.
    """
    read = keys_read(source.plain_functions.get(str(name)))
    answers: dict[tuple[Any, ...], bool] = {}
    kept = []
    for configuration in configurations:
        key = tuple(configuration.get(item) for item in (configuration if read is None else read))
        if key not in answers:
            answers[key] = bool(call_function(source, name, dict(configuration), dict(problem)))
        if answers[key]:
            kept.append(configuration)
    return kept


def kernel_problem(problem: Problem, compute_capability: str | None) -> dict[str, Any]:
    """A problem as the functions of a kernel file take it: one flat dictionary.

    Args:
        problem: What is computed.
        compute_capability: Of the GPU, "9.0" or "gfx942", as `GpuSpec` has it; None: no GPU is named, and the file is told of none.
    """
    flat: dict[str, Any] = {**problem.sizes, "op": problem.op, "dtype": problem.dtype}
    for name in ("weight_dtype", "output_dtype", "block_shape", "routing"):
        value = getattr(problem, name)
        if value is not None:
            flat[name] = list(value) if name == "routing" else value
    if compute_capability is not None:
        flat["compute_capability"] = compute_capability
        if "." in compute_capability:  # NVIDIA's
            flat["capability"] = int(compute_capability.replace(".", ""))
    return flat


def problem_dtype(entry: Mapping[str, Any], kernel: str, wanted: str | None) -> str:
    """The type of a kernel's problem: the one asked for, or else the first that it is made for.

    Raises:
        UsageError: It is not made for the type that is asked for.
    """
    types = [str(dtype) for dtype in entry.get("dtypes") or ()]
    if wanted is None:
        return types[0] if types else "bf16"
    if types and wanted not in types:
        raise UsageError(
            f"{kernel} is not made for operands of this type",
            wanted,
            f"one of {', '.join(types)}",
            "give another --dtype, or add it to the `dtypes` of its KERNELS entry",
        )
    return wanted


def product_type(entry: Mapping[str, Any], dtype: str, arguments: Mapping[str, Any]) -> str:
    """The type whose bound holds for a described launch with these arguments: tf32 for fp32 operands that run on matrix units."""
    precision = arguments.get(str(entry.get("precision")))
    return "tf32" if dtype == "fp32" and isinstance(precision, str) and precision in MATRIX_PRECISIONS else dtype


def expression(source: SourceFile, text: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression of a description over given names.

    Raises:
        NotLiteralError: It is not one.
    """
    try:
        return source.evaluator(names).evaluate_text(text)
    except (SyntaxError, ValueError):
        raise NotLiteralError(f"{text!r} is not an expression") from None


def heuristic_values(source: SourceFile, function: JitFunction, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """What the heuristics of a kernel give for arguments.

    Args:
        source: The kernel's file.
        function: The kernel.
        arguments: Values of its arguments, as far as they are known.

    Returns:
        Values by name, and for those that cannot be evaluated the reason.
    """
    values: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for name, rule in function.heuristics.items():
        try:
            values[name] = source.evaluator().call(rule, [{**arguments, **values}])
        except NotLiteralError as error:
            unknown[name] = str(error)
    return values, unknown
