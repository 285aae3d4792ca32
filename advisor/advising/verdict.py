"""The verdict: a headline of two clauses over all launches of a result (what limits them, what tuning wins), notes, and the numbers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from advisor.diagnosis import LEAST_GAIN_US
from advisor.diagnosis.diagnose import SAMPLED
from advisor.diagnosis.rule import microseconds
from advisor.learned.base import ANALYTICAL, EXTRAPOLATED
from advisor.rendering.figures import (
    UTILISED,
    changes,
    kept_alone,
    layers_apart,
    least_us,
    limited_by,
    padded,
    range_text,
    share_text,
)
from advisor.result.schema import (
    MOSTLY,
    PIPELINES,
    UNCERTAIN,
    Action,
    LaunchReport,
    LayerReport,
    Origin,
    PipelineTime,
    Recommendation,
    Verdict,
    nearest_to_peak,
)
from advisor.system import grouped
from advisor.system.resources import phrase

GAIN, LIKELY = 1.02, 0.5
"""A launch counts as gaining where its recommendation is that much faster (the noise floor of a good measurement), and surely so where
that is at least as likely as not (`p_speedup_10pct`, asked of gains of a tenth)."""
SURE_FROM = 1.1
ENOUGH = 0.8
"""Share of the bytes that keep DRAM busy from which on their number is no reason that it is not."""
AT_MOST_COUNTS = 2 / 3
"""Share of a table's token counts from which on one unit is said to limit most of them."""
KERNEL_WINS = 0.5
"""Share of the time above the bound from which on it is said beside what tuning cannot win, and of a peak below which."""
NAMED_CHANGES = 2
"""Parameters that a headline names; more are "another configuration"."""
MATTERS = 0.25
"""Share of what tuning saves at most, at one token count, from which on it matters at another."""
DECODE = 64
"""Token counts up to which a launch is one of decoding, as most steps of a server are."""
SIZES = 8
"""At which the models of layers and of launches disagree, that are named."""
NAMED = 4
"""Launches outside of what was learned that are named."""

TIED = 0.98
"""Two units are as near to their peaks where one needs this share of the other's time."""

WIDE = 1.4
"""Upper end of an interval over its prediction from which a report says why it is so far."""


def current_us(report: LaunchReport) -> float | None:
    """Measured where there is one, else predicted; None where the configuration cannot launch."""
    return now.us if (now := report.measured or report.predicted) is not None else None


def verdict(
    launches: tuple[LaunchReport, ...],
    unknowns: tuple[str, ...],
    unsized: Collection[str] = (),
    guessed: Mapping[str, str] | None = None,
    layers: Sequence[LayerReport] = (),
    one_trip: Mapping[str, str] | None = None,
    backend: Action | None = None,
) -> Verdict:
    """The headline and sums over all launches that can launch; what was measured below its bound is no latency to sum.

    Args:
        launches: All of a result.
        unknowns: What is assumed or unknown, each a sentence.
        unsized: Ids of those whose grid is unknown: the time of one program says nothing of theirs, nor of a sum with it.
        guessed: By id of a launch the assumed values that its distance to the bound depends on, in words.
        layers: The whole layers that the launches are of: what is saved is then told of those that change.
        one_trip: By id of a launch of which a loop is counted once, what its trips depend on, in words: its time is none to judge.
        backend: The change of the backend, where it saves more than any of a configuration.
    """
    missing = [report for report in launches if report.id in unsized and report.measured is None]
    undecided = [(one_trip or {}).get(report.id, "") for report in launches if report.measured is None]
    if missing or (len(undecided) == len(launches) and all(undecided)):
        few = "unsized_some" if len(missing) < len(launches) else "unsized"
        return Verdict(
            sentence=phrase(f"verdict.{few if missing else 'one_trip'}", count=len(missing), whole=len(launches), what=undecided[0]),
            notes=() if missing else _notes(launches, list(launches), [], guessed or {}),
            current_us=0.0,
            ceiling_us=0.0,
            bound_us=0.0,
            percent_of_ceiling=0.0,
            binding_pipeline=(missing or launches)[0].binding_pipeline,
            origin="predicted",
            unknowns=unknowns,
        )
    able = [(report, now) for report in launches if (now := current_us(report)) is not None and now >= report.bound.us]
    current = sum(now for _, now in able)
    # The ceilings of some are no ceiling of the sum over all.
    ceilings = [report.ceiling.us for report, _ in able if report.ceiling]
    ceiling = sum(ceilings) if len(ceilings) == len(able) else 0.0
    # What has no ceiling is at no share of one; nor is what runs with a configuration that nobody knows.
    rated = [
        (report, before.us)
        for report, _ in able
        if report.ceiling and (report.configuration or report.measured) and (before := report.before(None))
    ]
    reached = sum(report.ceiling.us for report, _ in rated if report.ceiling)
    percent = 100 * (reached / sum(now for _, now in rated)) if rated else 0.0
    bound = sum(report.bound.us for report, _ in able)
    # Of the bounds, for it is named as what their sum is made of: a slow launch does not change which pipeline that is.
    share: dict[str, float] = defaultdict(float)
    for report, _ in able:
        share[report.binding_pipeline] += report.bound.us
    binding = max(share, key=lambda name: share[name]) if share else launches[0].binding_pipeline
    reports = [report for report, _ in able]
    which = {report.id: (guessed or {})[report.id] for report in reports if report.id in (guessed or {})}
    unit, of_peak = nearest_to_peak(_together(reports), current)
    tunable = [report for report, _ in rated]
    saved_by_tokens = _saved_by_tokens(reports, layers)
    if backend is not None and backend.layers_us:
        saved = phrase("win.layers", share=share_text(backend.saving_us / backend.layers_us))
        to_win = phrase("win.backend", share=saved)
    else:
        to_win = _to_win(reports, tunable, percent, layers, _where(saved_by_tokens)) if reports else ""
    return Verdict(
        sentence=_headline(launches, reports, current, bound, unit, of_peak, bool(which), to_win),
        notes=(*_by_tokens(saved_by_tokens, reports), *_apart(layers, reports), *_notes(launches, reports, tunable, which)),
        current_us=current,
        ceiling_us=ceiling,
        bound_us=bound,
        percent_of_ceiling=percent,
        binding_pipeline=binding,
        origin=_origin(reports),
        unknowns=unknowns,
        peak_pipeline=unit,
        share_of_peak=of_peak,
    )


def _headline(
    launches: Sequence[LaunchReport],
    able: list[LaunchReport],
    current: float,
    bound_us: float,
    unit: str | None,
    of_peak: float | None,
    guessed: bool,
    to_win: str,
) -> str:
    """What limits the launches, and what a change wins (`to_win`): two short sentences."""
    stuck = sum(current_us(report) is None for report in launches)
    if stuck == len(launches):
        return phrase("verdict.stuck", count=stuck)
    if not able:
        return phrase("verdict.below_bound", count=len(launches) - stuck)
    if len(able) == 1 and (now := able[0].measured) is not None and (then := able[0].predicted) is not None and able[0].contradicted:
        return phrase("verdict.contradicted", measured=microseconds(now.us), predicted=microseconds(then.us))
    limits = _limits_by_tokens(able) if not guessed else ""
    return f"{limits or _limited_by(able, current, bound_us, unit, of_peak, guessed)} {to_win}"


def _limits_by_tokens(able: Sequence[LaunchReport]) -> str:
    """What limits launches at few token counts, and what at many: `Memory-bound at M ≤ 96, compute-bound at M ≥ 1024.` Where that changes
    more than once, what limits most of them, and what the next; empty where one unit limits all."""
    units = {}
    for tokens, reports in sorted(grouped((report.problem.sizes.get("M", 0), report) for report in able).items()):
        longest = max(reports, key=lambda report: current_us(report) or 0.0)  # as the rows say it
        unit, share = longest.peak_pipeline, longest.share_of_peak
        units[tokens] = "low" if unit is None or share is None or not UTILISED <= round(share, 2) < 1.005 else _with_smem(longest, unit)
    kinds = list(dict.fromkeys(units.values()))
    (common, count), *others = Counter(units.values()).most_common(2)
    last = max((tokens for tokens, unit in units.items() if unit == kinds[0]), default=0)
    if len(kinds) != 2 or any(unit != kinds[0] for tokens, unit in units.items() if tokens <= last):
        most = phrase(f"limited.{common}")
        if not others:
            return ""
        key, (unit, number) = "at_most_counts" if count >= AT_MOST_COUNTS * len(units) else "at_counts", others[0]
        parts = {"most": most[0].upper() + most[1:], "count": count, "whole": len(units)}
        return phrase(f"verdict.{key}", **parts, next=phrase(f"limited.{unit}"), others=number)
    few, many = (phrase(f"limited.{unit}") for unit in kinds)
    later = [tokens for tokens in units if tokens > last]
    at_few = phrase("where.one" if last == min(units) else "where.up_to", first=last, last=last)
    at_many = phrase("where.from" if later[1:] else "where.one", first=later[0])
    return phrase("verdict.by_tokens", few=few[0].upper() + few[1:], at_few=at_few, many=many, at_many=at_many)


def _with_smem(report: LaunchReport, unit: str) -> str:
    """The unit nearest to its peak; `tensor_smem` where shared memory is as near as the tensor cores."""
    times = {part.pipeline: part.time_us for part in report.pipelines}
    return "tensor_smem" if unit == "tensor" and times.get("smem", 0.0) >= TIED * times["tensor"] else unit


def _limited_by(able: list[LaunchReport], current: float, bound_us: float, unit: str | None, of_peak: float | None, guessed: bool) -> str:
    origin = _origin(able).capitalize()
    if len(able) == 1 and _by_launch(able[0]):
        starting = any(finding.rule == "small-programs" for finding in able[0].findings)
        return limited_by("launch", "", 1.0, math.inf if starting else current)
    if unit is None or of_peak is None or of_peak >= 1.005:
        times = f"{current / bound_us:.2f}" if bound_us > 0 else ""
        return phrase("verdict.takes" if times else "verdict.takes_only", origin=origin, us=microseconds(current), times=times)
    assumed = guessed or any(report.assumed_us for report in able)
    share = phrase("verdict.about", share=share_text(of_peak)) if assumed else share_text(of_peak)
    if unit == "dram" and round(of_peak, 2) < UTILISED and len(able) == 1 and (in_flight := _too_few_in_flight(able[0])) is not None:
        return phrase("verdict.in_flight", share=share, bytes=f"{in_flight[0] / 1e3:.2g}", needed=f"{in_flight[1] / 1e3:.2g}")
    if len(able) > 1:
        return limited_by(unit, share, of_peak, current)
    nearest = _with_smem(able[0], unit) if round(of_peak, 2) >= UTILISED else unit
    return limited_by(nearest, share, of_peak, current, able[0].trips_in_turn)


def _by_launch(report: LaunchReport) -> bool:
    """Whether the launch limits: the start of its programs, or what any launch takes, its bound and what starts and fills it."""
    if report.config_binding_pipeline == "launch":
        return True
    now, launch_us = current_us(report), sum(part.us for part in report.gap if part.cause == "launch")
    return report.binding_pipeline == "launch" and now is not None and report.bound.us + launch_us >= MOSTLY * now


def _too_few_in_flight(report: LaunchReport) -> tuple[float, float] | None:
    """Bytes in flight per SM, and those that keep DRAM busy, of a launch that mostly waits for loads of too few."""
    occupancy = report.occupancy
    if occupancy is None or occupancy.in_flight_bytes is None or occupancy.needed_bytes is None:
        return None
    waits = max(report.gap, key=lambda part: part.us, default=None)
    if waits is None or waits.cause != "latency" or occupancy.in_flight_bytes > ENOUGH * occupancy.needed_bytes:
        return None
    return occupancy.in_flight_bytes, occupancy.needed_bytes


def _to_win(
    able: list[LaunchReport],
    rated: list[LaunchReport],
    percent: float,
    layers: Sequence[LayerReport],
    matters: tuple[str, Collection[int]] | None,
) -> str:
    """What another configuration saves, of the time of all launches, and at which sizes tuning `matters`; how much tuning can win where no
    change is recommended."""
    if all(report.configuration is None and report.measured is None and report.ceiling is not None for report in able):
        return phrase("win.best", count=len(able))
    gains, saved, whole = _gains(able)
    decided = {_decision(report) for report, *_ in gains}
    changing = {report.id for report in able if report.recommendation is not None}
    touched = changed_layers(layers, changing, {report.id for report in able if report.measured is not None})
    now, then = layers_gain(touched)
    of_layers = 1 - then / now if now > 0 else 0.0
    if len(able) == 1 and whole > 0 and (change := _change_of_code(able[0])) is not None:
        saving_us, title, rule = change
        key = "win.code" if not _by_launch(able[0]) else "win.programs" if rule == "small-programs" else ""
        if key and saving_us > max(saved, (GAIN - 1) * whole, LEAST_GAIN_US):
            return phrase(key, what=title, share=share_text(saving_us / whole))
    if gains and whole > 0 and max(saved / whole, of_layers) >= 0.005:
        chance, share = _chance(gains), share_text(saved / whole)
        if len(able) > 1:
            count = len({_decision(report) for report in able})
            most_at = phrase("win.most_at", where=matters[0]) if matters is not None and len(decided) > 1 else ""
            if of_layers > 0:
                gained = [1 - layer.recommended.us / layer.predicted.us for layer in touched if layer.recommended is not None]
                share = phrase("win.layers" if layers[0].routing else "win.linears", share=range_text(gained))
            elif layers:
                share = phrase("win.products", share=share)
            share += most_at
            key = "win.entries" if not layers else "win.table" if count > 1 else "win.entry"
            return phrase(key, count=len(decided), whole=count, chance=chance, share=share)
        changed = changes(gains[0][0].configuration, gains[0][2].configuration)
        if gains[0][0].configuration is None or len(changed) > NAMED_CHANGES:
            return phrase("win.configuration", chance=chance, share=share)
        named = " and ".join(f"{name}={after}" for name, after in (_changed(text) for text in changed))
        return phrase("win.set", change=named, chance=chance, share=share)
    if any(report.unsearched for report in able):
        return phrase("win.cut")
    if not rated:
        return phrase("win.unknown")
    if percent >= 100.5:
        return phrase("win.faster")
    left = 1 - percent / 100
    if left >= 0.02 and left * whole >= LEAST_GAIN_US:
        return phrase("win.unsure", share=share_text(left))
    most = 1 - least_us(able) / whole if whole > 0 else 0.0
    slow = all((report.share_of_peak or 1.0) < KERNEL_WINS and not _by_launch(report) for report in able)
    key = "win.kernel" if slow and most >= KERNEL_WINS else "win.nothing"
    return phrase(key, share=share_text(max(left, 0.02)), most=share_text(most))


def _gains(reports: Sequence[LaunchReport]) -> tuple[list[tuple[LaunchReport, float, Recommendation]], float, float]:
    """The launches that gain, with their microseconds before and the recommendation; how much they save together, and what all take."""
    gains = [
        (report, before.us, advice)
        for report in reports
        if (advice := report.recommendation) is not None
        and (before := report.before(advice.latency)) is not None
        and advice.configuration != report.configuration
        and advice.speedup >= GAIN
    ]
    whole = sum(before.us for report in reports if (before := report.before(None)) is not None)
    return gains, sum(before - before / advice.speedup for _, before, advice in gains), whole


def _saved_by_tokens(able: Sequence[LaunchReport], layers: Sequence[LayerReport]) -> dict[int, float]:
    """Which share of the time better configurations save, by token count in rising order: of the layer where it is known."""
    groups = grouped(
        (report.problem.sizes["M"], report)
        for report in able
        if report.problem.family in ("fused_moe", "gemm") and "M" in report.problem.sizes
    )
    shares = {tokens: saved / whole for tokens, reports in groups.items() for _, saved, whole in [_gains(reports)]}
    shares |= {layer.tokens: 1 - layer.recommended.us / layer.predicted.us for layer in layers if layer.recommended is not None}
    return dict(sorted(shares.items()))


def _where(shares: Mapping[int, float]) -> tuple[str, frozenset[int]] | None:
    """At which token counts tuning matters, in words (`M ≥ 65`) and which these are: counts in a row that save at least `MATTERS` of what
    is saved at most, where all others save less. None where gains are everywhere, or of no such counts."""
    counts, most = list(shares), max(shares.values(), default=0.0)
    inside = [number for number, share in enumerate(shares.values()) if share >= MATTERS * most]
    if most < 0.005 or len(inside) == len(counts) or len(inside) <= inside[-1] - inside[0]:
        return None
    first, last = counts[inside[0]], counts[inside[-1]]
    key = "one" if first == last else "from" if last == counts[-1] else "up_to" if first == counts[0] else "between"
    return phrase(f"where.{key}", first=first, last=last), frozenset(counts[number] for number in inside)


def _by_tokens(shares: Mapping[int, float], able: Sequence[LaunchReport]) -> Iterator[str]:
    """At which token counts tuning matters; else what decoding gains and what larger counts do, where there are both: a sum over both is
    mostly that of the largest."""
    where, inside = _where(shares) or ("", frozenset(tokens for tokens in shares if tokens > DECODE))
    there, elsewhere = ([share for tokens, share in shares.items() if (tokens in inside) is within] for within in (True, False))
    if where:
        yield phrase("note.where", where=where, share=range_text(there), rest=_up_to(elsewhere), blocks=_default_blocks(inside, able))
    elif there and elsewhere and max(shares.values()) >= 0.005:
        yield phrase("note.by_tokens", most=DECODE, decode=_up_to(elsewhere), above=_up_to(there))


def _default_blocks(inside: Collection[int], able: Sequence[LaunchReport]) -> str:
    """That a stack's default has other blocks at the token counts `inside` than at all others, in words; empty where it has not."""
    here, elsewhere = ({_blocks(item) for item in able if (item.problem.sizes.get("M") in inside) is within} for within in (True, False))
    return phrase("note.default_blocks", blocks=next(iter(here))) if len(here) == 1 and not here & elsewhere and "" not in here else ""


def _blocks(report: LaunchReport) -> str:
    """`64x64x32`, of a stack's default; else empty."""
    of = report.configuration if "default" in report.configuration_source else None
    return "x".join(str(value) for name, value in (of.parameters.items() if of is not None else ()) if name.startswith("BLOCK"))


def _up_to(shares: Sequence[float]) -> str:
    return phrase("note.up_to", share=share_text(max(shares))) if max(shares) >= 0.005 else phrase("note.nothing")


def _change_of_code(report: LaunchReport) -> tuple[float, str, str] | None:
    """Microseconds that the remedy of compiled code saves most which is no configuration, the cause and its rule; None: no rule names
    one."""
    remedies = [item for item in report.findings if item.scope == "kernel" and item.net_saving_us is None]
    return max(((item.saving_us, item.title, item.rule) for item in remedies if item.saving_us is not None), default=None)


def changed_layers(layers: Sequence[LayerReport], changing: Collection[str], measured: Collection[str]) -> list[LayerReport]:
    """The layers of which a launch changes and none was `measured`, which says more than what is predicted of the layer."""
    predicted = (layer for layer in layers if layer.recommended is not None and not set(layer.launches) & set(measured))
    return [layer for layer in predicted if set(layer.launches) & set(changing)]


def layers_gain(layers: Sequence[LayerReport]) -> tuple[float, float]:
    """Microseconds that layers take, now and as recommended, together; zeros where there are none."""
    return sum(layer.predicted.us for layer in layers), sum(layer.recommended.us for layer in layers if layer.recommended is not None)


def _apart(layers: Sequence[LayerReport], able: Sequence[LaunchReport]) -> list[str]:
    """At which sizes layers are far from their launches alone, and how far, and at which only the launches alone find their operands in
    the L2, a sentence each; none where they agree, or no layer is split into products."""
    shares = {tokens: share for tokens, (share, _) in layers_apart(layers, able).items()}
    most = max(shares, key=lambda tokens: shares[tokens], default=0)
    out = []
    if shares:
        out.append(phrase("note.products_apart", count=len(shares), which=_sizes(shares), share=f"{100 * shares[most]:.0f} %", most=most))
    within = {name: (layer.tokens, layer.parts) for layer in layers for name in layer.launches}
    pairs = [(within[report.id], report) for report in able if report.id in within]
    kept = {tokens for (tokens, parts), report in pairs if kept_alone(report, parts.get(report.problem.op, 0.0))}
    return out + [phrase("note.kept_alone", which=_sizes(kept))] * bool(kept)


def _sizes(counts: Collection[int]) -> str:
    return ", ".join(map(str, sorted(counts)[:SIZES])) + (", …" if len(counts) > SIZES else "")


def _decision(report: LaunchReport) -> str:
    """What is changed as one, and counted so: an entry that several launches run with."""
    return report.decision or report.id


def _changed(text: str) -> tuple[str, str]:
    """Name and new value of `num_warps 4→1`."""
    name, _, values = text.rpartition(" ")
    return name, values.partition("→")[2]


def _chance(gains: Sequence[tuple[LaunchReport, float, object]]) -> str:
    """`would` where both figures were measured, `should` where a prediction is likely enough, else `may`."""
    measured = all(
        report.measured is not None and report.recommendation is not None and report.recommendation.latency.origin != "predicted"
        for report, *_ in gains
    )
    if measured:
        return "would"
    longest = max(gains, key=lambda gain: gain[1])[0].recommendation
    chance = longest.p_speedup_10pct if longest is not None and longest.speedup >= SURE_FROM else None
    return "should" if chance is None or chance >= LIKELY else "may"


def _notes(
    launches: Sequence[LaunchReport], able: list[LaunchReport], rated: list[LaunchReport], guessed: Mapping[str, str]
) -> tuple[str, ...]:
    """What else to know of the headline's figures: launches left out, contradictions, models that extrapolate, assumed values."""
    out = []
    stuck = sum(current_us(report) is None for report in launches)
    wrong = len(launches) - len(able) - stuck
    if 0 < stuck < len(launches):
        out.append(phrase("note.stuck", count=stuck))
    if wrong and able:
        out.append(phrase("note.below_bound", count=wrong))
    against = [report for report in able if report.contradicted]
    if len(against) == 1 and against[0].measured is not None and against[0].predicted is not None:
        measured, predicted = microseconds(against[0].measured.us), microseconds(against[0].predicted.us)
        out.append(phrase("note.contradicted", launch=against[0].id, measured=measured, predicted=predicted))
    elif against:
        out.append(phrase("note.contradicted_several", count=len(against)))
    if rated and len(rated) < len(launches):
        out.append(phrase("note.rated", count=len(rated), whole=len(launches)))
    known = {report.id: report.predicted for report in able if report.measured is None and report.predicted is not None}
    if count := sum(item.source == ANALYTICAL for item in known.values()):
        out.append(phrase("note.analytical", count=count, whole=len(launches)))
    if outside := [name for name, item in known.items() if item.source.endswith(EXTRAPOLATED)]:
        named = ", ".join(outside[:NAMED]) + ", …" * (len(outside) > NAMED)
        out.append(phrase("note.extrapolated", count=len(outside), whole=len(launches), which=named))
    vouched = [item for item in known.values() if not item.source.startswith(ANALYTICAL) and not item.source.endswith(EXTRAPOLATED)]
    if count := sum((item.high_us or 0) > WIDE * item.us for item in vouched):
        out.append(phrase("note.wide", count=count, whole=len(launches)))
    out += dict.fromkeys(report.unsearched for report in able if report.unsearched)
    if padding := padded(able):
        out.append(phrase("note.padding", share=padding))
    if why := {part.note for report in able for part in report.gap if part.cause == UNCERTAIN and part.us}:
        out.append(phrase("note.sampled" if why == {SAMPLED} else "note.uncertain"))
    which = [guessed[report.id] for report in able if report.id in guessed]
    if which:
        what = which[0] if len(set(which)) == 1 else phrase("note.data")
        some = len(which) < len(able)
        out.append(phrase("note.guessed_some" if some else "note.guessed", count=len(which), whole=len(able), what=what))
    return tuple(out)


def _together(able: list[LaunchReport]) -> Iterator[PipelineTime]:
    """The pipelines of launches one after another, whatever rates those have that run at several."""
    for name in PIPELINES:
        parts = [part for report in able for part in report.pipelines if part.pipeline == name and part.throughput_per_s > 0]
        if parts:
            rate = parts[0].throughput_per_s
            yield replace(parts[0], demand=sum(part.demand * rate / part.throughput_per_s for part in parts))


def _origin(able: list[LaunchReport]) -> Origin:
    """The origin of the sum: that of the least certain of its parts."""
    known = [report.measured.origin for report in able if report.measured]
    return "predicted" if not able or len(known) < len(able) else "simulated" if "simulated" in known else "measured"
