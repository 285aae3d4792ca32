"""A step of a model on the terminal: the verdict, what to do first, and the operators by time."""

from __future__ import annotations

from advisor.result.step import StepResult


def step_text(result: StepResult) -> str:
    """Plain lines: what does not fit first, then the step, what to work on, and a row per operator."""
    memory, step = result.memory, result.step
    held = f"{memory.weights_bytes / 1e9:.1f} GB of weights and {memory.kv_bytes / 1e9:.1f} GB of KV cache"
    lines = []
    if not memory.fits:
        lines.append(f"does not fit: {held} on each {result.gpu}, which has {memory.gpu_bytes / 1e9:.1f} GB")
    lines += [
        f"{result.model}  {result.gpu}  {result.split}  {result.engine}  {result.dtype}",
        f"{result.load}: {_ms(step.us)} predicted ({_ms(step.low_us)} to {_ms(step.high_us)} in 80 % of cases), "
        f"{result.tokens_per_s:,.0f} tokens/s",
    ]
    if memory.fits:
        lines.append(f"memory: {held} of {memory.gpu_bytes / 1e9:.1f} GB")
    lines += [f"> {line}" for line in result.advice]
    lines += [f"! {line}" for line in result.caveats]
    width = max(len(row.name) for row in result.operators)
    lines.append("")
    heads = ("count", "µs each", "total ms", "share", "bound µs", "ceiling µs", "library µs", "gain")
    lines.append(f"{'operator':<{width}} " + " ".join(f"{head:>10}" for head in heads) + "  bound by  problem")
    for row in result.operators:
        library = "–" if row.library_us is None else f"{row.library_us:.1f}"
        ceiling = f"{row.ceiling_us:.1f}" if row.tunable else "–"
        gain = f"{row.gain:.1%}" if row.tunable else "–"
        cells = (
            f"{row.count}",
            f"{row.us:.1f}",
            f"{row.total_us / 1e3:.3f}",
            f"{row.share:.1%}",
            f"{row.bound_us:.1f}",
            ceiling,
            library,
            gain,
        )
        lines.append(f"{row.name:<{width}} " + " ".join(f"{cell:>10}" for cell in cells) + f"  {row.binding:<8}  {row.problem}")
    return "\n".join(lines)


def _ms(us: float) -> str:
    return f"{us / 1e3:.3g} ms" if us < 1e6 else f"{us / 1e3:,.0f} ms"
