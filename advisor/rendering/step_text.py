"""A step of a model on the terminal: the verdict, what to do first, and the operators by time."""

from __future__ import annotations

from advisor.result.step import StepOperator, StepResult

COLUMNS = ("operator", "count", "µs each", "total ms", "share", "bound µs", "ceiling µs", "library µs", "gain", "bound by", "problem")
"""Heads of the operators' table; `gain` is of the step, at the tunable ceiling or with the best library kernel."""
WORDS = ("operator", "bound by", "problem")


def verdict(result: StepResult) -> str:
    """What the step takes, in one line."""
    step = result.step
    return (
        f"{result.load}: {milliseconds(step.us)} predicted ({milliseconds(step.low_us)} to {milliseconds(step.high_us)} in 80 % of cases), "
        f"{result.tokens_per_s:,.0f} tokens/s"
    )


def memory_line(result: StepResult) -> str:
    """What the GPU has to hold, and whether it can."""
    memory = result.memory
    held = f"{memory.weights_bytes / 1e9:.1f} GB of weights and {memory.kv_bytes / 1e9:.1f} GB of KV cache"
    if memory.fits:
        return f"memory: {held} of {memory.gpu_bytes / 1e9:.1f} GB"
    return f"does not fit: {held} on each {result.gpu}, which has {memory.gpu_bytes / 1e9:.1f} GB"


def cells(row: StepOperator) -> tuple[str, ...]:
    """A row under `COLUMNS`."""
    gain = max(row.gain, row.gain_at_library)
    return (
        row.name,
        f"{row.count}",
        f"{row.us:.1f}",
        f"{row.total_us / 1e3:.3f}",
        f"{row.share:.1%}",
        f"{row.bound_us:.1f}",
        f"{row.ceiling_us:.1f}" if row.tunable else "-",
        "-" if row.library_us is None else f"{row.library_us:.1f}",
        f"{gain:.1%}" if row.tunable or row.library_us is not None else "-",
        row.binding,
        row.problem,
    )


def step_text(result: StepResult) -> str:
    """Plain lines: what does not fit first, then the step, what to work on, and a row per operator."""
    said = [f"{result.model}  {result.gpu}  {result.split}  {result.engine}  {result.dtype}", verdict(result)]
    said.insert(len(said) if result.memory.fits else 0, memory_line(result))
    said += [f"> {line}" for line in result.advice] + [f"! {line}" for line in result.caveats] + [""]
    table = [COLUMNS, *map(cells, result.operators)]
    widths = [max(len(row[i]) for row in table) for i in range(len(COLUMNS))]
    for row in table:
        aligned = (
            f"{cell:<{width}}" if head in WORDS else f"{cell:>{width}}" for head, cell, width in zip(COLUMNS, row, widths, strict=True)
        )
        said.append("  ".join(aligned).rstrip())
    return "\n".join(said)


def milliseconds(us: float) -> str:
    """Three digits and the unit."""
    return f"{us / 1e3:.3g} ms" if us < 1e6 else f"{us / 1e3:,.0f} ms"
