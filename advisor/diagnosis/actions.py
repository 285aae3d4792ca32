"""At most three things to do, out of the findings and recommendations of many launches."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from advisor.diagnosis.rule import LEAST_SHOWN_US, as_sentences, microseconds
from advisor.result.schema import Action, Finding, LaunchReport, Origin
from advisor.system import grouped
from advisor.system.resources import phrase

WORTH_CHANGING = 1.02
"""A speedup below this is no reason to change anything: the noise floor of a good measurement (report-spec: 2 %)."""
LEAST_GAIN_US = 0.1
"""Nor is a gain below this of a kernel's own: launches of one small kernel back to back scatter by as much (1.1 to 1.3 us, `bound.py`)."""

MOST = 3
_SHOWN = 6
_LETTERS = 70
"""Of a list that is never cut: with a title it fits a line of 100."""
_NAMED = 3
_ENTRY = re.compile(r"\bentry (?:M=)?(\d+)")

ADVICE: dict[str, str] = {
    "not-tensor-dtype": "Run the products on the matrix pipeline",
    "too-few-ctas": "Give every SM a CTA",
    "tail-wave": "Fill the last wave",
    "expert-padding": "Pad experts to smaller blocks",
    "edge-padding": "Choose blocks that divide the sizes",
    "operand-traffic": "Read the operands less often",
    "group-size-l2": "Change the order of the tiles",
    "smem-bound": "Move less data through shared memory",
    "few-stages": "Hide the loads behind a deeper pipeline",
    "low-occupancy": "Fit more CTAs on an SM",
    "tile-below-matrix-instruction": "Use the faster matrix instruction",
    "k-loop-shorter-than-pipeline": "Shorten the software pipeline",
    "clamped-block-k": "Write the BLOCK_SIZE_K that the launcher uses",
    "entry-far-from-m": "Add entries for the sizes that have none",
    "index-arithmetic": "Do less arithmetic on indices and masks",
    "packable-loads": "Load adjacent elements as words",
    "scalar-loads": "Load scalars once",
    "single-stage-loop": "Prefetch with more stages",
    "block-exceeds-registers": "Spread the block over more threads, or split it",
    "masked-lanes": "Give every lane an element of its own",
    "small-programs": "Give each program more work",
    "register-spills": "Use fewer registers",
    "dot-without-tensor-instruction": "Run the dot on the tensor cores",
    "mma-instead-of-wgmma": "Use the warp-group matrix instruction",
    "no-async-copy": "Copy asynchronously",
    "uncoalesced-access": "Let neighbouring threads touch neighbouring addresses",
    "narrow-access": "Move 16 bytes per thread and access",
    "second-pass": "Read each row once",
    "loads-in-turn": "Load several rows at a time",
    "repeated-loads": "Share operands between programs",
    "convert-layout-in-loop": "Keep one layout in the loop",
    "atomics-in-loop": "Move the atomics out of the loop",
    "contended-atomics": "Spread the atomics over more addresses",
    "integer-division-in-loop": "Move the division out of the loop",
    "double-precision": "Compute in single precision",
    "wide-index-in-loop": "Index with 32 bits in the loop",
}
"""What to do about a rule, in the imperative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gain:
    """Microseconds that the recommendation of a launch saves; negative: costs."""

    launch: LaunchReport
    us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cure:
    """Microseconds that the remedy of a finding saves, over all launches it changes."""

    launch: LaunchReport
    finding: Finding
    us: float


def actions(launches: Sequence[LaunchReport], settled: Collection[str] = ()) -> tuple[Action, ...]:
    """The actions that save most over all launches, none of which gains less than `WORTH_CHANGING`.

    Launches that run with one configuration (a decision) gain and lose together: a change counts with what it saves over all of
    them, and is left out where it saves nothing. Launches that have a recommendation are one action: to take the recommended
    configurations. Other configurations that rules name would replace it, so they only make an action of their own where there is
    none, each decision counting for the one that saves most, and those too unsure to be recommended make none.
    Remedies that are no configuration (another type) do not depend on it: each launch counts for the one that saves most there. What
    cannot launch comes first: no time can be given for it. What was measured below its bound has no remedy and loses nothing by
    another's: how long it takes is not known, nor what a change would save or cost.

    Args:
        launches: All of a result.
        settled: Ids of those whose configuration was searched for: no rule names another.

    Returns:
        At most three, broken launches first, then by time saved; where nothing is known to save time, the remedies of compiled code that
        have no price.
    """
    decisions = grouped((launch.decision or launch.id, launch) for launch in launches)
    gains: list[_Gain] = []
    cures: list[_Cure] = []
    for group in decisions.values():
        won = [gain for gain in map(_gain, group) if gain is not None]
        if sum(gain.us for gain in won) > 0:
            gains += won
        else:
            cures += _best(
                [
                    _Cure(launch=item, finding=f, us=f.net_saving_us)
                    for item in group
                    if not _faulty(item) and item.kept is None
                    for f in item.findings
                    if f.net_saving_us is not None and item.id not in settled
                ],
                group,
            )
        for launch in group:
            if _faulty(launch):
                continue
            cures += _best(
                [
                    _Cure(launch=launch, finding=f, us=f.saving_us)
                    for f in launch.findings
                    if f.saving_us is not None and f.net_saving_us is None
                ],
                [launch],
            )
    proposed: list[Action] = []
    broken = [(launch, f) for launch in launches for f in launch.findings if f.rule == "cannot-launch" and f.severity == "error"]
    if broken:
        proposed.append(_repair(broken))
    if gains:
        proposed.append(_change(gains, launches))
    by_rule = grouped((cure.finding.rule, cure) for cure in cures)
    proposed += [_cure(rule, group) for rule, group in by_rule.items()]
    proposed = proposed or _unpriced(launches)
    proposed.sort(key=lambda action: (action.rule != "cannot-launch", -action.saving_us))
    return tuple(proposed[:MOST])


def _unpriced(launches: Sequence[LaunchReport]) -> list[Action]:
    """The remedies of what slows compiled code by more than the prediction knows, by rule."""
    by_rule: dict[str, list[_Cure]] = {}
    for launch in launches:
        for item in launch.findings:
            if item.scope == "kernel" and item.severity == "warning" and item.saving_us is None and item.rule in ADVICE:
                by_rule.setdefault(item.rule, []).append(_Cure(launch=launch, finding=item, us=0.0))
    return [_cure(rule, group) for rule, group in by_rule.items()]


def _faulty(launch: LaunchReport) -> bool:
    return launch.measured is not None and launch.measured.us < launch.bound.us


def _best(cures: list[_Cure], launches: Sequence[LaunchReport]) -> list[_Cure]:
    """The one that saves most, of those that save anything worth a change of what all `launches` take."""
    now = sum(latency.us for launch in launches if (latency := launch.measured or launch.predicted) is not None)
    least = max(now * (1 - 1 / WORTH_CHANGING), LEAST_GAIN_US)
    saving = [cure for cure in cures if cure.us > 0 and cure.us >= least and cure.finding.severity != "error"]
    return [max(saving, key=lambda cure: cure.us)] if saving else []


def _gain(launch: LaunchReport) -> _Gain | None:
    """The saving of a launch's recommendation, or its cost; None where there is none, or it is not known."""
    recommendation = launch.recommendation
    current = launch.before(recommendation.latency if recommendation is not None else None)
    if current is None or _faulty(launch) or recommendation is None or recommendation.configuration == launch.configuration:
        return None
    known = 0 < recommendation.speedup < math.inf
    return _Gain(launch=launch, us=current.us - current.us / recommendation.speedup) if known else None


def _change(gains: list[_Gain], launches: Sequence[LaunchReport]) -> Action:
    """Take the recommended configurations: entries of a table, or `triton.Config`s."""
    origins = {origin for gain in gains for origin in _origins(gain.launch)}
    entries, snippet = _entries(gains), _snippet(gains)
    untabled = bool(entries) and all(_key(gain.launch) is None for gain in gains)
    whole = phrase("action.whole_table") if untabled else ""  # what to heed of entries where there is no table to add them to
    best = max(gains, key=lambda gain: gain.us)
    if untabled:
        title = phrase("action.new_table", entries=_plural(sorted({tokens for table in entries.values() for tokens in table})))
    elif entries:
        parts = []
        for table in sorted(entries):
            tokens = sorted(entries[table])
            keys = {_key(gain.launch) for gain in gains if _table(gain.launch) == table}
            added = [m for m in tokens if m not in keys]
            changed = [m for m in tokens if m in keys]
            where = f" of the {table} table" if table else ""
            parts += [f"change {_plural(changed)}{where}"] if changed else []
            parts += [f"add {_plural(added)}{' to' + where.removeprefix(' of') if where else ''}"] if added else []
        title = " and ".join(parts)
    else:
        title = phrase("action.use", what=_named_configuration(gains), where=_where(gains))
    if len(gains) > 1:
        detail = phrase("action.most", launch=best.launch.id, us=microseconds(best.us))
    else:
        detail = as_sentences(best.launch.recommendation.reason if best.launch.recommendation else "")
    return Action(
        title=title[:1].upper() + title[1:],
        detail=" ".join(filter(None, (detail, _losers(gains), _measured_against_predicted(gains), _shared_error(gains, launches), whole))),
        saving_us=sum(gain.us for gain in gains),
        origin="measured" if origins == {"measured"} else "simulated" if origins <= {"measured", "simulated"} else "predicted",
        launches=tuple(gain.launch.id for gain in gains),
        snippet=snippet,
    )


def _named_configuration(gains: list[_Gain]) -> str:
    """`num_warps=1` where one configuration is recommended and differs in few parameters, else `the recommended configurations`."""
    if len(_configs(gains)) > 1:
        return "the recommended configurations"
    differences = set()
    for gain in gains:
        then = gain.launch.recommendation
        if then is None or gain.launch.configuration is None:
            return "the recommended configuration"
        now = gain.launch.configuration.flat()
        differences.add(" and ".join(f"{name}={value}" for name, value in then.configuration.flat().items() if now.get(name) != value))
    named = differences.pop() if len(differences) == 1 else ""
    return named if 0 < named.count("=") <= _NAMED else "the recommended configuration"


def _where(gains: list[_Gain]) -> str:
    """` for M=2048, 4096`: the token counts that a configuration is for; empty for a single launch."""
    tokens = sorted({gain.launch.problem.sizes["M"] for gain in gains if "M" in gain.launch.problem.sizes})
    return f" for M={_listed(tokens)}" if len(gains) > 1 and tokens else ""


def _origins(launch: LaunchReport) -> set[Origin]:
    """The origins of the two figures that a gain is the difference of."""
    then = launch.recommendation.latency if launch.recommendation is not None else None
    both = (launch.before(then), then)
    return {latency.origin for latency in both if latency is not None}


def _measured_against_predicted(gains: list[_Gain]) -> str:
    """What a saving is that takes a predicted latency from a measured one: how far off the prediction is here counts as saved, or lost.

    Says what it is where every prediction lies at an end of its interval, and what of predictions alone.
    """
    mixed = [
        (gain, now, gain.launch.predicted, then.latency)
        for gain in gains
        if (now := gain.launch.measured) is not None
        and not gain.launch.contradicted
        and (then := gain.launch.recommendation) is not None
        and then.latency.origin == "predicted"
        and gain.launch.predicted is not None
    ]
    if not mixed:
        return ""
    rest = sum(gain.us for gain in gains) - sum(gain.us for gain, *_ in mixed)
    predicted_saving = rest + sum(predicted.us - then.us for _, _, predicted, then in mixed if predicted is not None)
    text = phrase("action.mixed", origin=mixed[0][1].origin, us=_signed(predicted_saving))
    known = [(now.us, then.low_us, then.high_us) for _, now, _, then in mixed if then.low_us is not None and then.high_us is not None]
    if len(known) == len(mixed):
        least, most = (rest + sum(now - ends[side] for now, *ends in known) for side in (1, 0))
        text += " " + phrase("action.between", least=_signed(least), most=_signed(most))
    return text


def _shared_error(gains: list[_Gain], launches: Sequence[LaunchReport]) -> str:
    """Why a predicted saving may be less than half of how wide the interval of the latency is that stands beside it."""
    predicted = [launch.predicted for launch in launches if launch.measured is None and launch.predicted is not None]
    doubt = sum(now.high_us - now.low_us for now in predicted if now.low_us is not None and now.high_us is not None) / 2
    return phrase("action.shared_error") if sum(gain.us for gain in gains if gain.launch.measured is None) < doubt else ""


def _signed(us: float) -> str:
    """Microseconds; a loss with a minus."""
    return f"−{microseconds(-us)}" if us < 0 else microseconds(us)


def _losers(gains: list[_Gain]) -> str:
    """Which launches get slower, the worst first, and by how much."""
    slower = sorted((gain for gain in gains if -gain.us >= LEAST_SHOWN_US), key=lambda gain: gain.us)
    if not slower:
        return ""
    named = ", ".join(f"{gain.launch.id} by {microseconds(-gain.us)}" for gain in slower[:_SHOWN])
    more = f" and {len(slower) - _SHOWN} more" if len(slower) > _SHOWN else ""
    return phrase("action.slower", count=len(slower), which=named + more)


def _entries(gains: list[_Gain]) -> dict[str, dict[int, dict[str, int | str]]]:
    """Entries by table (`_table`) and token count; where launches of one size and table disagree, that of the larger saving."""
    entries: dict[str, dict[int, dict[str, int | str]]] = {}
    for gain in sorted(gains, key=lambda gain: gain.us):
        recommendation, tokens = gain.launch.recommendation, gain.launch.problem.sizes.get("M")
        if recommendation is not None and recommendation.table_entry is not None and tokens is not None:
            entries.setdefault(_table(gain.launch), {})[tokens] = recommendation.table_entry
    return entries


def _configs(gains: list[_Gain]) -> list[str]:
    """The distinct recommended configurations, as `triton.Config`s."""
    return list(dict.fromkeys(gain.launch.recommendation.triton_config for gain in gains if gain.launch.recommendation))


def _snippet(gains: list[_Gain]) -> str:
    """All that is recommended, to paste: entries of a table, or `triton.Config`s."""
    by_table = _entries(gains)
    listed = {
        table: ",\n".join(f'"{m}": {json.dumps(by_table[table][m], indent=4)}' for m in sorted(by_table[table]))
        for table in sorted(by_table)
    }
    entries = "\n\n".join(f"{table} table:\n{text}" if table else text for table, text in listed.items())
    return entries or "\n".join(_labelled_configs(gains))


def _labelled_configs(gains: list[_Gain]) -> list[str]:
    """The distinct configurations; where there are several, each with the token counts that it is for."""
    configs = _configs(gains)
    if len(configs) == 1:
        return configs
    tokens: dict[str, set[int]] = {config: set() for config in configs}
    for gain in gains:
        if gain.launch.recommendation is not None and "M" in gain.launch.problem.sizes:
            tokens[gain.launch.recommendation.triton_config].add(gain.launch.problem.sizes["M"])
    return [f"{config},{f'  # M={_listed(sorted(tokens[config]))}' if tokens[config] else ''}" for config in configs]


def _key(launch: LaunchReport) -> int | None:
    """The token count of the table entry that a launch runs with."""
    match = _ENTRY.search(launch.configuration_source)
    return int(match.group(1)) if match else None


def _table(launch: LaunchReport) -> str:
    """Which table the launch's entry stands in: empty, or `_down` for one of w2 alone beside the target's."""
    return "_down" if launch.configuration_source.startswith("_down ") else ""


def _plural(tokens: list[int]) -> str:
    return f"{'entry' if len(tokens) == 1 else 'entries'} M={_listed(tokens)}"


def _listed(tokens: Sequence[int | str]) -> str:
    """`64, 128`; of more than fit a line the first, and how many more."""
    whole = ", ".join(map(str, tokens))
    cut = len(tokens) > _SHOWN and len(whole) > _LETTERS
    return f"{', '.join(map(str, tokens[:_SHOWN]))} and {len(tokens) - _SHOWN} more" if cut else whole


def _repair(broken: list[tuple[LaunchReport, Finding]]) -> Action:
    first, finding = broken[0]
    tokens = sorted({launch.problem.sizes["M"] for launch, _ in broken if "M" in launch.problem.sizes})
    where = _plural(tokens) if tokens else f"{len(broken)} launches"
    given = [_Gain(launch=launch, us=0.0) for launch, _ in broken if launch.recommendation is not None]
    # One configuration in the text and in the box: what is recommended, where there is anything.
    cure = phrase("action.take") if first.recommendation is not None else as_sentences(finding.remedy)
    title = f"Replace {where}: {'it' if len(tokens) == 1 else 'they'} cannot launch"
    if finding.scope == "kernel":  # of a table there is no word
        names = list(dict.fromkeys(launch.kernel for launch, _ in broken))
        listed = " and ".join([*names[:_NAMED], *(["others"] if len(names) > _NAMED else [])])
        title = f"Change how {listed} {'is launched: it' if len(names) == 1 else 'are launched: they'} cannot run"
    return Action(
        title=title,
        detail=f"{first.kernel if finding.scope == 'kernel' else first.id}: {as_sentences(finding.title)} {cure}",
        saving_us=0.0,
        origin="predicted",
        launches=tuple(launch.id for launch, _ in broken),
        rule="cannot-launch",
        snippet=_snippet(given) or None,
    )


def _cure(rule: str, group: list[_Cure]) -> Action:
    most = max(group, key=lambda cure: cure.us)
    launch, finding = most.launch, most.finding
    title = ADVICE.get(rule, finding.title)
    why = [as_sentences(finding.title)] if title != finding.title else []
    why += [] if most.us else [as_sentences(finding.evidence)]
    others = [cure.launch.id for cure in group if cure is not most]
    likewise = phrase("action.likewise", which=_listed(others)) if others else ""
    line = f" ({finding.source_file}:{finding.source_line})" if finding.source_line is not None else ""
    return Action(
        title=title,
        detail=" ".join(filter(None, (f"{launch.id}{line}:", *why, as_sentences(finding.remedy), likewise))),
        saving_us=sum(cure.us for cure in group),
        origin="predicted",
        launches=tuple(cure.launch.id for cure in group),
        rule=rule,
    )
