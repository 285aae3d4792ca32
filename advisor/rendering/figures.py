"""Numbers and names as every surface writes them: one place, so that no two surfaces differ.

Whatever came from outside (file names, kernel names, JSON keys) goes through `clean` before it is shown anywhere.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from advisor.result.problem import microseconds as microseconds
from advisor.result.schema import Action, Configuration, Finding, Latency, LaunchReport, LayerReport, Problem, Result
from advisor.system.resources import phrase

SEVERITIES = ("error", "warning", "advice", "info")
MEMORY_PIPELINES = ("dram", "l2", "smem")

# Control characters drive terminals, bidirectional and other format characters disguise names, line and paragraph
# separators break rows, and lone surrogates cannot be encoded at all.
_UNPRINTABLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_FILLERS = "\u115f\u1160\u3164\uffa0"  # letters of Hangul by category, and nothing to see
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def clean(text: object, *, lines: bool = False) -> str:
    """Text from outside with every unprintable character written out (`\\x1b`); `lines` keeps line ends and tabs."""

    def shown(character: str) -> str:
        hidden = unicodedata.category(character) in _UNPRINTABLE or character in _FILLERS
        return character.encode("unicode_escape").decode("ascii") if hidden and not (lines and character in "\n\t") else character

    raw = str(text)
    plain = raw.isprintable() and (raw.isascii() or not any(filler in raw for filler in _FILLERS))
    return raw if plain else "".join(map(shown, raw))


def shortened(text: str, longest: int) -> str:
    """A text of at most so many characters: a longer one up to its last whole name."""
    return text if len(text) <= longest else re.sub(r"[\w.]{1,60}$", "", text[: longest - 1]).rstrip() + "…"


def quantity(value: float, unit: str = "") -> str:
    """A demand or throughput with a decimal prefix: `148 TFLOP/s`, `1.21 GB`."""
    value = value if abs(value) >= 0.005 else 0.0  # what rounding left of nothing is nothing
    scale, prefix = next(((scale, prefix) for scale, prefix in _PREFIXES if abs(value) >= scale), (1.0, ""))
    scaled = value / scale
    number = f"{scaled:.0f}" if abs(scaled) >= 99.95 or scaled == int(scaled) else f"{scaled:.3g}"
    return f"{number} {prefix}{unit_name(unit)}".rstrip()


def unit_name(unit: str) -> str:
    """The unit of a demand as it is written: `flop` -> `FLOP`, `bytes` -> `B`."""
    return {"flop": "FLOP", "bytes": "B", "instruction": "instr", "op": "op", "launch": "launch"}.get(unit, unit)


def percent(fraction: float | None) -> str:
    """A share in per cent without decimals, `-` where there is none."""
    return "-" if fraction is None else f"{100 * fraction:.0f} %"


def probability(value: float | None) -> str:
    """A probability in per cent, `-` where there is none; `<1 %` and `>99 %` are not rounded to what would be certain."""
    if value is None:
        return "-"
    return "<1 %" if 0 < value < 0.005 else ">99 %" if 0.995 <= value < 1 else percent(value)


def share_of(limit_us: float, latency_us: float) -> float | None:
    """limit / latency, the share reached of a limit; None where the latency is not positive."""
    return limit_us / latency_us if latency_us > 0 else None


def share_text(share: float | None, *, passed: str = "beyond") -> str:
    """A share of a limit; never more than 100 %: a latency below its limit is a fault, and said in words."""
    if share is None:
        return "-"
    if share >= 1.005:
        return passed
    if share < 0.005:
        return "<1 %"
    # 99.6 % is not all of it.
    return "100 %" if share >= 0.9995 else f"{min(99, round(100 * share))} %"


def range_text(shares: Collection[float]) -> str:
    """The least and the most of some shares: `4 to 36 %`, `up to 36 %`, `12 %`."""
    least, most = share_text(min(shares)), share_text(max(shares))
    if min(shares) < 0.005 <= max(shares):
        return phrase("note.up_to", share=most)
    return most if least == most else f"{least.removesuffix(' %')} to {most}"


def interval(latency: Latency) -> str:
    """The interval relative to the latency: `±5 %` (half of it), `−10/+35 %` where its sides differ by much; empty where there is none."""
    if latency.low_us is None or latency.high_us is None or latency.us <= 0:
        return ""
    below, above = (max(0.0, side / latency.us) for side in (latency.us - latency.low_us, latency.high_us - latency.us))
    if abs(above - below) > 0.05 and max(above, below) > 1.5 * min(above, below):
        return f"−{100 * below:.0f}/+{100 * above:.0f} %"
    half = (latency.high_us - latency.low_us) / 2 / latency.us
    return f"±{100 * half:.1f} %" if half < 0.1 else f"±{100 * half:.0f} %"


def with_interval(us: float, latency: Latency | None) -> str:
    """`224.1 µs ±8.5 %`: a latency with the interval that is known of it."""
    return " ".join(filter(None, (f"{microseconds(us)} µs", interval(latency) if latency is not None else "")))


def interval_words(latency: Latency) -> str:
    """`470–540 µs (80 % interval)`; empty where there is none."""
    if latency.low_us is None or latency.high_us is None:
        return ""
    cover = f" ({percent(latency.coverage)} interval)" if latency.coverage is not None else ""
    return f"{microseconds(latency.low_us)}–{microseconds(latency.high_us)} µs{cover}"


def current(launch: LaunchReport) -> Latency:
    """The launch's latency now: measured where known, else predicted, else the bound of its configuration."""
    return launch.measured or launch.predicted or launch.config_bound


def saved(layer: LayerReport) -> str:
    """`saves 12 %`, or `no faster`: what a layer gains by what is recommended, like with like."""
    share = 0.0 if layer.recommended is None else 1 - layer.recommended.us / layer.predicted.us
    return f"saves {100 * share:.0f} %" if share >= 0.005 else "no faster"


def bound_words(launch: LaunchReport) -> str:
    """The reach of a bound in words: all kernels where the problem is known in closed form, else the work counted in the code."""
    return "no kernel can be faster" if launch.bound.origin == "specified" else "the work of this code cannot be done faster"


def known(launch: LaunchReport) -> bool:
    """Whether a latency of the launch as it is is known, measured or predicted."""
    return launch.measured is not None or launch.predicted is not None


def of_one_program(launch: LaunchReport, result: Result) -> bool:
    """Whether the launch's grid is not known, or the trips of all launches' loops are not, so that its figures are those of one program, or
    of one trip, and say nothing of how long it takes."""
    if result.verdict.current_us > 0 or launch.measured is not None or launch.predicted is None:
        return False
    return launch.problem.sizes == {"programs": 1} or all(item.problem.sizes != {"programs": 1} for item in result.launches)


def stuck(launch: LaunchReport) -> bool:
    """Whether the launch fails: not one CTA of its configuration fits the GPU, or the launch refuses it."""
    if known(launch) or launch.occupancy is None:
        return False
    return launch.occupancy.resident_ctas_per_sm == 0 or any(finding.rule == "cannot-launch" for finding in launch.findings)


def origins(result: Result) -> str:
    """The origins of the verdict's sum: `measured`, `simulated`, `predicted`, or `1 measured, 2 predicted`."""
    now = [launch.measured.origin if launch.measured is not None else "predicted" for launch in _summed(result)]
    return _named(result, _mixture(now) or result.verdict.origin)


def ceiling_origins(result: Result) -> str:
    """The same of its tunable ceiling, which a search may have reached or found by trying everything."""
    ceilings = [launch.ceiling.origin for launch in _summed(result) if launch.ceiling is not None]
    return _named(result, _mixture(ceilings) or next(iter(ceilings), "predicted"))


def _named(result: Result, origin: str) -> str:
    """The name of an origin in sums: `simulated` for what a fake device gave, never measured."""
    return origin.replace("measured", "simulated") if result.fingerprint.simulated else origin


def counted(result: Result) -> str:
    """The launches that the verdict's latency is a sum of: `all 4 launches`, or `2 of 4 launches` where some cannot or are faults."""
    count, whole = len(_summed(result)), len(result.launches)
    return f"all {whole} launches" if count == whole else f"{count} of {whole} launches"


def of_several_steps(result: Result) -> bool:
    """Whether its launches are of layers at several token counts, of which a step runs one: their sum is no time that anything takes."""
    return bool(result.layers) and len({launch.problem.sizes.get("M") for launch in result.launches}) > 1


APART = 0.15
"""From which share on two predictions of the same launches are told apart: more than what the intervals of both allow."""


def layers_apart(layers: Iterable[LayerReport], launches: Iterable[LaunchReport]) -> dict[int, tuple[float, float]]:
    """By tokens the layers whose products are `APART` from the same launches predicted alone: by which share, and what the layer takes
    with the launches' times in it, in microseconds. Products `kept_alone` count as in the layer."""
    alone = {launch.id: (launch, launch.predicted.us) for launch in launches if launch.predicted is not None}
    apart = {}
    for layer in layers:
        products = [alone[name] for name in layer.launches if name in alone]
        if products and len(products) == len(layer.launches) and all(launch.problem.op in layer.parts for launch, _ in products):
            parts = [(layer.parts[launch.problem.op], launch, us) for launch, us in products]
            within = sum(part for part, _, _ in parts)
            us = sum(part if kept_alone(launch, part) else us for part, launch, us in parts)
            if (share := abs(within / us - 1)) >= APART:
                apart[layer.tokens] = share, layer.predicted.us - within + us
    return apart


def kept_alone(launch: LaunchReport, within_us: float) -> bool:
    """Whether the L2 keeps a launch's operands from run to run of it alone, as a benchmark loop runs it, and not in its layer, where it
    takes `within_us`: faster than DRAM could bring half of them, and as long as for half of them at least."""
    half_us = 0.5 * launch.passing_us
    return launch.predicted is not None and launch.predicted.us < half_us <= within_us < math.inf


def alone_texts(result: Result) -> dict[int, str]:
    """By tokens what layers that are apart from their launches take with these as predicted alone, in words."""
    apart = layers_apart(result.layers, result.launches)
    return {tokens: phrase("note.alone", us=f"{microseconds(us)} µs") for tokens, (_, us) in apart.items()}


def sum_interval(result: Result) -> Latency | None:
    """The verdict's latency with the ends of its interval; None where a prediction in it has none, or where nothing was predicted.

    The ends are added: errors of launches of one kernel on one GPU go together, and an interval that let them cancel would be too narrow.
    What was measured and has no interval of its own counts as it is.
    """
    parts = [current(launch) for launch in _summed(result)]
    ends = [(part.us, part.us) if _exact(part) else (part.low_us, part.high_us) for part in parts]
    lows, highs = [low for low, _ in ends if low is not None], [high for _, high in ends if high is not None]
    if not len(lows) == len(highs) == len(parts) or all(map(_exact, parts)):
        return None
    covered = {part.coverage for part in parts if not _exact(part)}
    coverage = covered.pop() if len(covered) == 1 else None
    return replace(parts[0], us=sum(part.us for part in parts), low_us=sum(lows), high_us=sum(highs), coverage=coverage)


def _exact(latency: Latency) -> bool:
    """Whether a latency was measured, or simulated, and nothing is said of how well."""
    return latency.origin in ("measured", "simulated") and latency.low_us is None


def rated(result: Result) -> str:
    """The launches that the verdict's share of the ceiling is of: `2 of 4 launches`; empty where all."""
    summed = _summed(result)
    count = sum(share_of_ceiling(launch) is not None for launch in summed)
    return f"{count} of {len(result.launches)} launches" if count < len(summed) else ""


def _summed(result: Result) -> list[LaunchReport]:
    """The launches whose figures add up to the verdict's."""
    return [launch for launch in result.launches if known(launch) and current(launch).us >= launch.bound.us]


def _mixture(origins: Sequence[str]) -> str | None:
    """`1 measured, 2 predicted`; None where all are the same."""
    counts = {word: origins.count(word) for word in ("measured", "simulated", "predicted", "specified") if word in origins}
    return ", ".join(f"{count} {word}" for word, count in counts.items()) if len(counts) > 1 else None


def compares(launch: LaunchReport) -> bool:
    """Whether a recommendation can be set against what the launch takes now.

    Not where no configuration is known, or none runs; nor where what was measured lies below the bound, a fault.
    """
    faulty = launch.measured is not None and launch.measured.us < launch.bound.us
    return launch.configuration is not None and known(launch) and not faulty


def unset(launch: LaunchReport) -> bool:
    """Whether nothing is known of the launch as it is: its latency is then that of the first-ranked configuration, not of what runs."""
    return launch.configuration is None and launch.measured is None


def share_of_ceiling(launch: LaunchReport) -> float | None:
    """Tunable ceiling / latency now; None where one of them is not known."""
    if launch.ceiling is None or stuck(launch) or unset(launch):
        return None
    return share_of(launch.ceiling.us, current(launch).us)


PADDED = 0.25
"""Share of the time from which on padding is named beside the share of a peak, which counts it as work."""


def padded(launches: Sequence[LaunchReport]) -> str:
    """`35 %` of the time that padding takes; empty where it is less than `PADDED`."""
    us = sum(part.us for launch in launches for part in launch.gap if part.cause == "padding")
    share = us / max(sum(current(launch).us for launch in launches), 1e-9)
    return share_text(share) if share >= PADDED else ""


def to_win(launch: LaunchReport) -> float:
    """Microseconds between now and the tunable ceiling (or the bound, where no ceiling is known)."""
    return current(launch).us - (launch.ceiling or launch.bound).us


def saving(action: Action, result: Result) -> tuple[str, str]:
    """Microseconds that an action saves and their share: `232.6`, `12 %`, with the number of token counts that are summed where there are
    several; no share: no time. Of whole layers it is the share of these, and the least and the most that one layer gains: `10.6 to 256.3`,
    `4 to 36 % of MoE layer time`."""
    whole = action.layers_us or result.verdict.current_us
    us, share = microseconds(action.saving_us), share_text(action.saving_us / whole) if whole > 0 else ""
    gains = _layer_gains(action, result.layers)
    if gains:
        ends = [microseconds(end) for end in (min(gains)[0], max(gains)[0])]
        us, share = " to ".join(dict.fromkeys(ends)), range_text([saved / now for saved, now in gains])
    if action.layers_us:
        share = phrase("action.of_layers" if result.layers[0].routing else "action.of_linears", share=share)
    summed = [report.problem for report in result.launches if report.id in action.launches and not gains]
    tokens = {problem.sizes.get("M") for problem in summed if problem.family in ("fused_moe", "gemm")}
    return us, phrase("action.summed", count=len(tokens), share=share) if len(tokens) > 1 and share else share


def _layer_gains(action: Action, layers: Iterable[LayerReport]) -> list[tuple[float, float]]:
    """What each layer saves by the action and takes now, in microseconds; empty where it is not the sum of these."""
    touched = [layer for layer in layers if layer.recommended is not None and set(layer.launches) & set(action.launches)]
    gains = [(layer.predicted.us - layer.recommended.us, layer.predicted.us) for layer in touched if layer.recommended is not None]
    return gains if action.layers_us and math.isclose(sum(saved for saved, _ in gains), action.saving_us) else []


def numbered(actions: Sequence[Action]) -> list[tuple[str, Action]]:
    """The actions, each with its number; `·` stands before one without a saving that is known, such as a size to give."""
    numbers = count(1)
    return [(str(next(numbers)) if action.saving_us > 0 or action.rule == "cannot-launch" else "·", action) for action in actions]


def overlap(result: Result) -> str:
    """That the savings of its actions do not add up; empty where at most one saves anything."""
    return phrase("screen.overlap") if sum(action.saving_us > 0 for action in result.actions) > 1 else ""


UTILISED = 0.6
"""Share of a pipeline's peak from which on it is named as what limits: Nsight Compute's rule of thumb for its Speed of Light section
(utilisation below 60 % of peak "typically indicates latency issues", Kernel Profiling Guide)."""
UNITS = {
    "tensor": "tensor cores",
    "fma": "vector units",
    "xu": "special functions",
    "alu": "integer units",
    "issue": "instruction issue",
    "smem": "shared memory",
    "l2": "L2",
    "dram": "DRAM",
}
"""Pipelines as people write them; the others as they are."""


LONGEST_LAUNCH_US = 10.0
"""No launch takes so long by itself (`launch_latency_us` of `ceilings/`: 2 to 4): then it is the start of its many programs."""


def limited_by(unit: str | None, shown: str, share: float, us: float, trips: int | None = None) -> str:
    """What limits a launch, a sentence: the unit nearest to its peak, or that none is near; empty where none is known.

    Args:
        unit: The unit, as in `PIPELINES`.
        shown: The share of its peak in words.
        share: The same, as a number.
        us: What it takes, in microseconds.
        trips: Of a loop, one after the other, in which it mostly waits; None: it does not.
    """
    if unit is None or not 0 < share < 1.005:
        return ""
    if unit == "launch":
        return phrase("verdict.programs" if us > LONGEST_LAUNCH_US else "verdict.launch")
    if trips is not None and round(share, 2) < UTILISED:
        return phrase("verdict.trips", share=shown, peak=unit_peak(unit), trips=f"{trips:,}", us=microseconds(us / trips))
    return phrase(f"verdict.{'low' if round(share, 2) < UTILISED else unit}", share=shown, unit=UNITS.get(unit, unit))


def unit_peak(pipeline: str | None) -> str:
    """`DRAM's peak`, `tensor cores' peak`."""
    name = clean(UNITS.get(pipeline or "", pipeline))
    return f"{name}' peak" if name.endswith("s") else f"{name}'s peak"


def beyond_bound(*launches: LaunchReport) -> str:
    """What the launches' own work takes at the peak where that is more than their bound, in words; else the bound with what is assumed."""
    (us, key), assumed_us = _own_work(launches), sum(launch.assumed_us for launch in launches)
    if assumed_us:
        us, key = sum(launch.bound.us for launch in launches) + assumed_us, "with_assumed"
    shown = key and not any(map(stuck, launches)) and (len(launches) == 1 or key != "own_work")
    return phrase(f"bound.{key}", us=microseconds(us)) if shown else ""


def _own_work(launches: Sequence[LaunchReport]) -> tuple[float, str]:
    """Microseconds of the launches' own work at the peak, and what makes it more than their bound, a phrase; empty: rounding alone."""
    bound_us, parts = sum(launch.bound.us for launch in launches), [(launch.bound.us, launch.pipelines) for launch in launches]
    peaks = [[(1e6 * it.demand / it.throughput_per_s - us, it.pipeline) for it in its if it.throughput_per_s > 0] for us, its in parts]
    more = [most for most in (max(item, default=(0.0, "")) for item in peaks) if most[0] > 0]
    more_us = sum(us for us, _ in more)
    # The bound leaves out what the L2 may hold, and what another configuration spares.
    if not more or more_us < 0.02 * bound_us:
        return bound_us, ""
    warm = launches[0].problem.cache == "warm"
    of_problem_us = sum(max(launch.passing_us, launch.bound.us) for launch in launches)
    if any(unit != "dram" for _, unit in more):
        return bound_us + more_us, "own_work"
    if bound_us + more_us <= 1.02 * of_problem_us:
        return bound_us + more_us, "from_warm" if warm else "from_dram"
    return (of_problem_us, "from_warm") if warm and of_problem_us >= 1.02 * bound_us else (bound_us + more_us, "own_work")


def least_us(launches: Sequence[LaunchReport]) -> float:
    """Microseconds that another kernel may come down to: the bound, of operands that come from DRAM and results that go there."""
    us, key = _own_work(launches)
    return us if key == "from_warm" else sum(launch.bound.us for launch in launches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The bound as every surface shows it first.

    Attributes:
        name: `bound`, or `bound with assumed work`.
        us: Microseconds.
        unit: The pipeline that sets it; empty where work is assumed.
        more: What else to know of it, if anything.
    """

    name: str
    us: float
    unit: str
    more: str

    @property
    def text(self) -> str:
        """`bound 305.1 µs (dram)   assumes a warm L2; 320.3 µs with all bytes to and from DRAM`."""
        return f"{self.name} {microseconds(self.us)} µs{f' ({self.unit})' if self.unit else ''}   {self.more}".rstrip()


def shown_bound(of: Result | LaunchReport) -> Bound:
    """The bound of a launch or of all. Where most work is assumed, the bound of what is certain says little, and comes second."""
    launches = _summed(of) if isinstance(of, Result) else [of]
    certain_us, unit = (of.verdict.bound_us, of.verdict.binding_pipeline) if isinstance(of, Result) else (of.bound.us, of.binding_pipeline)
    unit, assumed_us = clean(unit), sum(launch.assumed_us for launch in launches)
    if assumed_us > certain_us:
        more = phrase("bound.certain", us=microseconds(certain_us), unit=unit)
        return Bound(name=phrase("bound.assumed"), us=certain_us + assumed_us, unit="", more=more)
    return Bound(name=phrase("bound.name"), us=certain_us, unit=unit, more=beyond_bound(*launches))


def speedup_text(speedup: float) -> str:
    """`1.25x faster`, `1.02x slower`, `no faster`: the word carries what a colour would, and both count how many times."""
    word = speedup_word(speedup)
    times = 1 / speedup if 0 < speedup < 1 else speedup
    return "no faster" if word == "same" else f"{times:.2f}x {word}"


def speedup_word(speedup: float) -> str:
    """faster, slower or same, at the two decimals that are shown."""
    shown = round(speedup, 2)
    return "faster" if shown > 1 else "slower" if shown < 1 else "same"


def sizes_text(problem: Problem, without: str | None = None) -> str:
    """`M=64 E=128 topk=8`, optionally without one size."""
    return " ".join(f"{clean(key)}={value}" for key, value in problem.sizes.items() if key != without)


def types_text(problem: Problem) -> str:
    """`bf16`, or every type and option that differs from the plain case."""
    tensor = problem.family == "fused_moe" and problem.dtype == "fp8" and problem.block_shape is None
    others = {"weights": problem.weight_dtype, "output": problem.output_dtype}
    parts = (
        "fp8 per tensor" if tensor else problem.dtype,
        *(f"{name} {dtype}" for name, dtype in others.items() if dtype and dtype != problem.dtype),
        f"block_shape=[{problem.block_shape[0]},{problem.block_shape[1]}]" if problem.block_shape else "",
        "routing given" if problem.routing is not None else "",
        f"{problem.distribution} routing" if problem.distribution is not None else "",
        "cold cache" if problem.cache == "cold" else "",
    )
    return clean(" ".join(filter(None, parts)))


def name_of(launch: LaunchReport) -> str:
    """Kernel and operator: `fused_moe w13`."""
    operator = launch.problem.op
    return clean(launch.kernel if operator == launch.kernel else f"{launch.kernel} {operator}".strip())


def changes(now: Configuration | None, then: Configuration) -> list[str]:
    """The differences of two configurations: `BLOCK_SIZE_M 64→16`; the whole second one where the first is not known."""
    after = fields_of(then)
    if now is None:
        return [f"{key}={value}" for key, value in after.items()]
    before = fields_of(now)
    return [
        f"{key} {before.get(key, 'unset')}→{after.get(key, 'unset')}" for key in {**before, **after} if before.get(key) != after.get(key)
    ]


def fields_of(value: Configuration) -> dict[str, str]:
    """Every tunable of a configuration by name, in the order of a table entry."""
    return {clean(key): clean(number) for key, number in value.flat().items()}


SIMULATED = "simulated: what is called measured comes from a fake device, nothing was run on a GPU"
GIVEN_SIMULATED = "offline: nothing was run for this report; what was given to it says that it is simulated"


def where_run(result: Result) -> str:
    """Whether anything ran for this result, in a few words."""
    if result.fingerprint.simulated:
        return SIMULATED
    if result.fingerprint.mode != "offline":
        return "run on a GPU"
    given = {launch.measured.origin for launch in result.launches if launch.measured is not None}
    given |= {item.origin for item in result.tuned if item.latency_us is not None}
    if given == {"simulated"}:
        return GIVEN_SIMULATED
    if not given and any(trial.latency_us is not None for search in result.searches for trial in search.trials):
        return "offline: nothing was run for this report; the latencies of its search were given to it"
    return "offline: nothing was run" + (" for this report; what is measured was given to it" if given else "")


def source_text(finding: Finding) -> str:
    """`file.py:87`, or nothing."""
    line = f":{finding.source_line}" if finding.source_line is not None else ""
    return clean(finding.source_file) + line if finding.source_file else ""


def subject(result: Result) -> str:
    """The subject of the result, in one line."""
    return " · ".join(filter(None, (clean(result.target), clean(result.model or ""), work_text(result), clean(result.gpu))))


def work_text(result: Result) -> str:
    """`E=128 topk=8 H=4096 N=192 fp8 block_shape=[128,128]`: the sizes and types of all launches but for what differs; empty where theirs
    do."""
    texts = {f"{sizes_text(launch.problem, without='M')} {types_text(launch.problem)}".strip() for launch in result.launches}
    return texts.pop() if len(texts) == 1 else ""
