"""Which table the winners of a tuning run belong in, and which kernel measures them: what wins with one kernel says nothing of another,
and must not go under its name."""

from __future__ import annotations

from dataclasses import replace

from advisor.advising.exports import layer_table_name, table_name_on
from advisor.advising.targets import Target
from advisor.measurement import KernelRef, find_kernels
from advisor.measurement.kernel_file import block_shape_of, kernel_entry
from advisor.measurement.recorded import Recording
from advisor.result.schema import Problem
from advisor.system.errors import InputError, UsageError
from advisor.tables.entries import default_configuration
from advisor.tables.names import FLOAT32, TableName, row_dtypes, unreachable_reasons

_16_BIT = {"bf16", "fp16"}
"""Types that both stacks look up under one name, without a dtype."""


def table_name(target: Target) -> TableName | None:
    """The name the winners are looked up by: the target's table, else vLLM's for a fused-MoE layer. None: no launch asks for one."""
    if target.table is not None:
        return table_name_on(target.table.name, target.gpu)
    name = layer_table_name(target)
    return None if name is None or unreachable_reasons(name) else name


def check_exported(target: Target) -> None:
    """Refuses to export under a name that no launch asks for.

    Raises:
        UsageError: There would be one.
    """
    name = layer_table_name(target) if target.table is None else None
    if name is not None and (reasons := unreachable_reasons(name)):
        raise UsageError(
            f"{target.title}: there is no table to export to",
            name.file_name(),
            f"a name that vLLM asks for: {reasons[0]}",
            "leave out --export, or tune for operands that have one, such as --dtype bf16",
        )


def check_dtype(name: TableName, dtype: str | None) -> None:
    """Refuses operands that a table is not of.

    Raises:
        UsageError: What wins for those would be written under its name.
    """
    try:
        own = name.operand_dtype
    except InputError:  # --dtype is there to say it
        return
    if dtype not in (None, own) and {dtype, own} not in (_16_BIT, FLOAT32):
        raise UsageError(
            f"{name.file_name()}: --dtype contradicts the table",
            dtype,
            f"{own}, which its name says",
            "leave out --dtype; a layer has a table for each type: `advisor tune fused_moe --dtype` finds the other's name",
        )


def with_tables_types(recording: Recording, target: Target) -> Recording:
    """The recording, with rows of a table's float32 under the type its launches have; others keep theirs, and so do another target's."""
    for launch in target.launches if target.table is not None else ():
        for dtype in row_dtypes(launch.problem.dtype)[1:]:
            recording = recording.taken_for(launch.problem, replace(launch.problem, dtype=dtype))
    return recording


def kernel_of(target: Target, *, launches: bool) -> KernelRef:
    """The bundled kernel that runs a table's launches.

    Args:
        target: What is tuned.
        launches: Whether it will be launched: a device that replays rows knows whose they are.

    Raises:
        UsageError: There is none.
    """
    problem, remedy = target.launches[0].problem, "replay rows with --recorded, or tune your kernel as FILE.py::KERNEL"
    if problem.family != "fused_moe":
        raise UsageError(f"{target.title}: no bundled kernel runs these launches", problem.family, "a fused-MoE table", remedy)
    kernel = _bundled()
    entry = kernel_entry(kernel)
    dtypes = entry["dtypes"]
    runs = problem.dtype in dtypes and problem.weight_dtype is None and problem.block_shape == block_shape_of(entry, problem.dtype)
    if launches and not (runs and _is_known(target)):
        limit = ", ".join(
            _operands(
                Problem(family="fused_moe", op=problem.op, sizes=problem.sizes, dtype=dtype, block_shape=block_shape_of(entry, dtype))
            )
            for dtype in dtypes
        )
        got = _operands(problem) if _is_known(target) else "operands of an unknown type"
        raise UsageError(f"{target.title}: the bundled kernel is another than its launches'", got, f"one of {limit}", remedy)
    return kernel


def with_kernels_scales(target: Target) -> Target:
    """A layer without a table as the bundled kernel runs it: where that has operands with scales in blocks, so has the problem."""
    entry = kernel_entry(_bundled())
    block = block_shape_of(entry, target.launches[0].problem.dtype)
    if block is None:
        return target
    launches = tuple(
        replace(
            launch,
            problem=replace(launch.problem, block_shape=block),
            configuration=default_configuration(
                "vllm",
                launch.tokens or 1,
                launch.problem.sizes["E"],
                dtype=launch.problem.dtype,
                block_shape=block,
                amd=target.gpu.vendor == "amd",
            ),
        )
        for launch in target.launches
    )
    said = f"{_operands(launches[0].problem)}: so the bundled kernel has its operands, and so the table is named"
    return replace(target, launches=launches, warnings=(*target.warnings, said))


def _bundled() -> KernelRef:
    return find_kernels("fused_moe::fused_moe_kernel")[0]


def _is_known(target: Target) -> bool:
    """Whether the name of the target's table says a type that is known."""
    try:
        return target.table is None or bool(target.table.name.operand_dtype)
    except InputError:
        return False


def _operands(problem: Problem) -> str:
    """The operands of a problem, in words."""
    if problem.weight_dtype is not None:
        return f"{problem.dtype} with {problem.weight_dtype} weights"
    if problem.block_shape is not None:
        return f"{problem.dtype} with scales in blocks of {problem.block_shape[0]} x {problem.block_shape[1]}"
    return problem.dtype + (" with a scale per tensor or channel" if problem.dtype in ("fp8", "int8") else "")
