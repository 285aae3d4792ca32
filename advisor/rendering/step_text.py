"""A step of a model: on the terminal, and as one HTML page that opens offline, asks the network for nothing, needs no JavaScript."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate, cycle, groupby

from markupsafe import Markup

from advisor.rendering.charts import Chart, Dash, Series
from advisor.rendering.figures import clean, percent, share_of
from advisor.rendering.page import _drawing, filled
from advisor.rendering.svg import SYMBOLS
from advisor.result.step import StepOperator, StepResult
from advisor.system.resources import phrase

COLUMNS = (
    *("operator", "total ms", "share", "gain", "gain at bound", "count", "µs each", "bound µs", "ceiling µs", "library µs"),
    *("bound by", "problem"),
)
"""Heads of the operators' table; gains are of the step: at the tunable ceiling or with the best library kernel, and at the bound."""
WORDS = ("operator", "bound by", "problem")
LEFT = ("kind", "step", *WORDS)
NAME = 60
"""Letters of a kernel's name that are shown."""


MEASURED_COLUMNS = ("operator", "count", "measured µs", "predicted µs", "total ms", "share", "bound µs", "bound by", "problem")
"""Those of the operators of a trace."""


def is_trace(result: StepResult) -> bool:
    """Whether a trace says which operators there are."""
    return result.measured_us is not None and not result.split


def verdict(result: StepResult) -> str:
    """What the step takes, in one line."""
    step = result.step
    if is_trace(result):
        known = sum(row.total_us for row in result.operators)
        measured, predicted = milliseconds(result.measured_us or 0.0), milliseconds(step.us)
        return phrase("step.measured", load=result.load, us=measured, known=milliseconds(known), predicted=predicted)
    share = percent(share_of(result.bound_us, step.us))
    return phrase("step.time", load=result.load, us=milliseconds(step.us), bound=milliseconds(result.bound_us), share=share)


def rate_line(result: StepResult) -> str:
    """Tokens per second and the step's interval; empty of a trace."""
    low, high = milliseconds(result.step.low_us), milliseconds(result.step.high_us)
    return "" if is_trace(result) else phrase("step.rate", tokens=f"{result.tokens_per_s:,.0f}", low=low, high=high)


def memory_line(result: StepResult) -> str:
    """What the GPU has to hold, and whether it can."""
    memory = result.memory
    if is_trace(result):
        return ""
    what = ("weights", memory.kv_bytes, "KV cache")
    if memory.activations_bytes:
        what = ("weights with gradients", memory.activations_bytes, "activations at least")
    amounts = [f"{memory.weights_bytes / 1e9:.1f} GB of {what[0]}", f"{what[1] / 1e9:.1f} GB of {what[2]}"]
    if memory.state_bytes:
        amounts.append(f"{memory.state_bytes / 1e9:.2f} GB of states")
    needed = f"{', '.join(amounts[:-1])} and {amounts[-1]}"
    held = memory.weights_bytes + memory.state_bytes + memory.activations_bytes
    if memory.fits:
        text = f"memory: {needed} of {memory.gpu_bytes / 1e9:.1f} GB"
        share = percent(max(VLLM_DEFAULT * memory.gpu_bytes - held, 0.0) / memory.kv_bytes) if above_default(result) else ""
        return f"{text}. {phrase('step.above_default', share=share)}" if share else text
    room = memory.gpu_bytes - held
    less = room > 0 and memory.kv_bytes > 0
    remedy = phrase("step.less_cache", share=percent(room / memory.kv_bytes)) if less else phrase("step.split")
    return f"does not fit: {needed} on each {result.gpu}, which has {memory.gpu_bytes / 1e9:.1f} GB. {remedy}"


VLLM_DEFAULT = 0.9
"""Share of a GPU's memory that vLLM takes: the default of its `--gpu-memory-utilization`; its newest versions take 0.92."""


def above_default(result: StepResult) -> bool:
    """Whether a KV cache fits the memory, and not what vLLM takes of it unless told to take more."""
    memory = result.memory
    needed = memory.weights_bytes + memory.kv_bytes + memory.state_bytes
    return memory.fits and memory.kv_bytes > 0 and result.engine == "vllm" and needed > VLLM_DEFAULT * memory.gpu_bytes


def cells(row: StepOperator) -> tuple[str, ...]:
    """A row of the table."""
    if row.measured_us is not None:
        times = (f"{row.measured_us:.1f}", f"{row.us:.1f}", f"{row.total_us / 1e3:.3f}")
        return (row.name[:NAME], f"{row.count}", *times, f"{100 * row.share:.1f} %", f"{row.bound_us:.1f}", row.binding, row.problem)
    gain = max(row.gain, row.gain_at_library)
    return (
        row.name,
        f"{row.total_us / 1e3:.3f}",
        f"{100 * row.share:.1f} %",
        f"{100 * gain:.1f} %" if row.tunable or row.library_us is not None else "-",
        f"{100 * row.gain_at_bound:.1f} %",
        f"{row.count}",
        f"{row.us:.1f}",
        f"{row.bound_us:.1f}",
        f"{row.ceiling_us:.1f}" if row.tunable else "-",
        "-" if row.library_us is None else f"{row.library_us:.1f}",
        row.binding,
        row.problem,
    )


def rows(result: StepResult) -> list[tuple[str, ...]]:
    """The rows of the table: the operators by gain, each followed by the kernels it is made of, and the step as a whole."""
    table = []
    for row in result.operators:
        table.append(cells(row))
        for name, us in row.parts:
            share, part = us / row.us, {"operator": f"  {row.name} {name}", "count": f"{row.count}", "µs each": f"{us:.1f}"}
            part |= {"total ms": f"{share * row.total_us / 1e3:.3f}", "share": f"{100 * share * row.share:.1f} %"}
            table.append(tuple(part.get(column, "") for column in COLUMNS))
    if table and not is_trace(result):
        total = {"operator": "step", "total ms": f"{result.step.us / 1e3:.3f}", "share": "100.0 %"}
        total["bound µs"] = f"{result.bound_us / 1e3:.3f} ms"
        table.append(tuple(total.get(column, "") for column in COLUMNS))
    return table


def table(result: StepResult) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and rows of the operators' table, without columns in which no row has anything."""
    heads, lines = MEASURED_COLUMNS if is_trace(result) else COLUMNS, rows(result)
    shown = [i for i, _ in enumerate(heads) if any(line[i] not in ("", "-") for line in lines)] if lines else list(range(len(heads)))
    return tuple(heads[i] for i in shown), [tuple(line[i] for i in shown) for line in lines]


MEASURED = ("kind", "measured ms", "predicted ms", "bound ms")
"""Heads of the table of what a trace measured."""


def measured_rows(result: StepResult) -> list[tuple[str, ...]]:
    """The rows under `MEASURED`, the whole step last; none where nothing was measured."""
    if result.measured_us is None:
        return []
    table = [(row.kind, row.measured_us, row.predicted_us, row.bound_us) for row in result.measured]
    whole = (result.step.us, sum(row.bound_us for row in result.measured))
    table.append(("step", result.measured_us, *((0.0, 0.0) if is_trace(result) else whole)))
    return [(kind, *(f"{us / 1e3:.3f}" if us or i == 0 else "-" for i, us in enumerate(values))) for kind, *values in table]


def overview(results: Sequence[StepResult]) -> list[tuple[str, ...]]:
    """Steps beside each other, the heads first: a row per load, a column per GPU; nothing of a single one."""
    if len(results) < 2:
        return []
    gpus = list(dict.fromkeys(result.gpu for result in results))
    by_load = {(result.load, result.gpu): _in_short(result) for result in results}
    loads = dict.fromkeys(result.load for result in results)
    return [("step", *gpus), *((load, *(by_load[load, gpu] for gpu in gpus)) for load in loads)]


def _in_short(result: StepResult) -> str:
    fits = ", does not fit" if not result.memory.fits else phrase("step.over_share") if above_default(result) else ""
    return f"{milliseconds(result.step.us)}, {result.tokens_per_s:,.0f} tokens/s{fits}"


def steps_text(results: Sequence[StepResult], width: int | None = None) -> str:
    """Plain lines of one step or several, what they take beside each other first."""
    table = overview(results)
    return "\n\n".join((["\n".join(aligned(table, LEFT))] if table else []) + [step_text(result, width) for result in results])


def step_text(result: StepResult, width: int | None = None) -> str:
    """Plain lines: what does not fit first, then the step, what to work on, and a row per operator, of the columns that fit a terminal of
    `width`."""
    engine = f"{result.engine} {result.stack_version}".strip()
    subject = (result.model, result.gpu, result.split, engine, result.dtype)
    printed = ["  ".join(filter(None, subject)), verdict(result)]
    if not is_trace(result):
        printed.append(rate_line(result))
        printed.insert(len(printed) if result.memory.fits else 0, memory_line(result))
    printed += [f"> {line}" for line in result.advice] + [f"! {line}" for line in result.caveats] + [""]
    if result.measured:
        printed += [*aligned([MEASURED, *measured_rows(result)], LEFT), ""]
    heads, lines = table(result)
    wanted = fitting([heads, *lines], width)
    printed += aligned([row[:wanted] for row in (heads, *lines)], LEFT) if lines else []
    return "\n".join([*printed, *([phrase("step.columns", count=len(heads) - wanted)] if lines and wanted < len(heads) else [])])


def milliseconds(us: float) -> str:
    """Three digits and the unit."""
    return f"{us / 1e3:.3g} ms" if us < 1e6 else f"{us / 1e3:,.0f} ms"


SHADES = {
    "gemm": "#2463d6",
    "attention": "#7c3aed",
    "moe": "#178a55",
    "collective": "#b4531a",
    "norm": "#0f7f8c",
    "elementwise": "#717c8b",
    "unknown": "#b0226b",
    "gaps": "#c97a12",
}
"""Of the bar, by kind of operator; a word stands beside each."""


def step_page(results: Sequence[StepResult], version: str) -> str:
    """The page: per step the verdict, what to do first, a bar of its time by kind, and a row per operator.

    Args:
        results: Steps of one model, as they were asked for.
        version: Of the advisor.
    """
    return filled(
        "model.html.jinja",
        title=results[0].model,
        command=results[0].command,
        version=version,
        steps=[(result, verdict(result), rate_line(result), memory_line(result), kinds(result)) for result in results],
        table=table,
        words=WORDS,
        is_trace=is_trace,
        measured_columns=MEASURED,
        measured_rows=measured_rows,
        shade=shade,
        overview=overview(results),
        drawing=_drawing(curve(results)),
        symbols=Markup(SYMBOLS),
    )


COLOURS: tuple[tuple[str, Dash], ...] = (
    ("predicted", "solid"),
    ("measured", "dash"),
    ("ceiling", "dot"),
    ("bound", "solid"),
    ("recommended", "dash"),
)
"""Of the curves of several GPUs."""


def curve(results: Sequence[StepResult]) -> Chart:
    """Latency over the tokens of a step, a line per GPU and the 80 % interval of a single one; no series where there are no two sizes."""
    gpus = dict.fromkeys(result.gpu for result in results)
    series = []
    for gpu, (colour, dash) in zip(gpus, cycle(COLOURS), strict=False):
        mine = sorted((result for result in results if result.gpu == gpu), key=lambda result: result.tokens)
        x = tuple(float(result.tokens) for result in mine)
        if len(set(x)) > 1:
            ms, low, high = (tuple(getattr(result.step, name) / 1e3 for result in mine) for name in ("us", "low_us", "high_us"))
            if len(gpus) == 1:
                series.append(Series(name="80 % interval", kind="band", colour=colour, x=x, y=high, low=low))
            series.append(Series(name=gpu, kind="line", colour=colour, dash=dash, x=x, y=ms))
    rows = tuple((f"{r.tokens}", r.gpu, f"{r.step.us / 1e3:.3g}", f"{r.tokens_per_s:,.0f}") for r in results)
    return Chart(
        id="steps",
        title="Latency over the tokens of a step",
        summary=f"Latency in milliseconds over the tokens of a step, both logarithmic: {', '.join(gpus)}",
        x_title="tokens of a step",
        y_title="latency (ms)",
        series=tuple(series),
        columns=("tokens", "GPU", "ms", "tokens/s"),
        rows=rows,
        x_ticks=tuple(sorted({float(result.tokens) for result in results})),
        places=tuple((float(result.tokens), result.step.us / 1e3) for result in results),
    )


def shade(kind: str) -> str:
    """The background of a kind in CSS; hatched where the kind is not predicted."""
    colour = SHADES[kind.partition(",")[0]]
    return f"repeating-linear-gradient(45deg, {colour} 0 3px, transparent 3px 6px)" if "," in kind else colour


LEAST_SHARE = 5e-4
"""Of a kind of operator in the bar's key: less is 0.0 %."""


def kinds(result: StepResult) -> list[tuple[str, float]]:
    """Shares of the step by kind of operator, the largest first; gaps that take time are one. What ran at the same time shares its time."""
    if is_trace(result):
        whole = sum(row.measured_us for row in result.measured)
        return [(row.kind, row.measured_us / whole) for row in result.measured]
    rows = sorted(result.operators, key=lambda row: row.kind)
    shares = [(kind, sum(max(row.share, 0.0) for row in group)) for kind, group in groupby(rows, key=lambda row: row.kind)]
    return sorted((pair for pair in shares if pair[1] >= LEAST_SHARE), key=lambda pair: -pair[1])


def fitting(table: Sequence[Sequence[str]], width: int | None) -> int:
    """How many columns of a table fit into so many letters; all where `width` is None."""
    ends = accumulate(max(map(len, column)) + 2 for column in zip(*table, strict=True))
    return len(table[0]) if width is None else sum(end - 2 <= width for end in ends)


def aligned(table: Sequence[Sequence[str]], left: Collection[str]) -> list[str]:
    """A line for each row of a table in columns, the heads first; those under `left` begin alike, the others end alike."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            f"{clean(cell):<{width}}" if head in left else f"{clean(cell):>{width}}"
            for head, cell, width in zip(table[0], row, widths, strict=True)
        ).rstrip()
        for row in table
    ]
