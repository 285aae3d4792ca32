"""At most three things to do, out of the findings and recommendations of many launches."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.schema import Action, Finding, LaunchReport, Origin

MOST = 3
_SHOWN = 6
_ENTRY = re.compile(r"\bentry (?:M=)?(\d+)")

ADVICE: dict[str, str] = {
    "not-tensor-dtype": "Run the products on the matrix pipeline",
    "rows-read-twice": "Read each row once",
    "split-k-traffic": "Lower SPLIT_K",
    "too-few-ctas": "Give every SM a CTA",
    "tail-wave": "Fill the last wave",
    "expert-padding": "Pad experts to smaller blocks",
    "edge-padding": "Choose blocks that divide the sizes",
    "operand-traffic": "Read the operands less often",
    "group-size-l2": "Change the order of the tiles",
    "smem-bound": "Take load off shared memory",
    "few-stages": "Hide the loads behind a deeper pipeline",
    "low-occupancy": "Fit more CTAs on an SM",
    "tile-below-matrix-instruction": "Use the faster matrix instruction",
    "k-loop-shorter-than-pipeline": "Shorten the software pipeline",
    "clamped-block-k": "Write the BLOCK_SIZE_K that runs",
    "entry-far-from-m": "Add entries for the sizes that have none",
}
"""What to do about a rule, in the imperative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gain:
    launch: LaunchReport
    us: float


def actions(launches: Sequence[LaunchReport]) -> tuple[Action, ...]:
    """The actions that save most over all launches.

    Launches that have a recommendation are one action: to take the recommended configurations. Savings of findings about the
    same launches overlap with it, so rules only make an action of their own from launches without a recommendation, each launch
    counting for the rule that saves most there. What cannot launch comes first: no time can be given for it.

    Returns:
        At most three, broken launches first, then by time saved.
    """
    gains = [gain for gain in map(_gain, launches) if gain is not None]
    recommended = {gain.launch.id for gain in gains}
    found: list[Action] = []
    broken = [(launch, f) for launch in launches for f in launch.findings if f.rule == "cannot-launch" and f.severity == "error"]
    if broken:
        found.append(_repair(broken))
    if gains:
        found.append(_change(gains))
    by_rule: dict[str, list[tuple[LaunchReport, Finding]]] = {}
    for launch in launches:
        savings = [f for f in launch.findings if f.saving_us and f.severity != "error"]
        if savings and launch.id not in recommended:
            best = max(savings, key=lambda f: f.saving_us or 0.0)
            by_rule.setdefault(best.rule, []).append((launch, best))
    found += [_cure(rule, group) for rule, group in by_rule.items()]
    found.sort(key=lambda action: (action.rule != "cannot-launch", -action.saving_us))
    return tuple(found[:MOST])


def _gain(launch: LaunchReport) -> _Gain | None:
    """What the recommendation of a launch saves; None where there is none, or it is no faster."""
    current, recommendation = launch.measured or launch.predicted, launch.recommendation
    if current is None or recommendation is None or recommendation.configuration == launch.configuration:
        return None
    saved = current.us - current.us / recommendation.speedup if recommendation.speedup > 1 else 0.0
    return _Gain(launch=launch, us=saved) if 0 < saved < float("inf") else None


def _change(gains: list[_Gain]) -> Action:
    """Take the recommended configurations: entries of a table, or `triton.Config`s."""
    origins: set[Origin] = {gain.launch.recommendation.latency.origin for gain in gains if gain.launch.recommendation}
    total = sum(gain.us for gain in gains)
    entries = _entries(gains)
    if entries:
        tokens = sorted(entries)
        keys = {_key(gain.launch) for gain in gains}
        added = [m for m in tokens if m not in keys]
        changed = [m for m in tokens if m in keys]
        parts = [f"change {_plural(changed)}"] if changed else []
        parts += [f"add {_plural(added)}"] if added else []
        title = " and ".join(parts)
        snippet = ",\n".join(f'"{m}": {json.dumps(entries[m], indent=4)}' for m in tokens)
    else:
        configs = list(dict.fromkeys(gain.launch.recommendation.triton_config for gain in gains if gain.launch.recommendation))
        title = "use the recommended configuration" + ("s" if len(configs) > 1 else "")
        snippet = ",\n".join(configs)
    best = max(gains, key=lambda gain: gain.us)
    return Action(
        title=title[:1].upper() + title[1:],
        detail=f"{len(gains)} launch{'es' if len(gains) > 1 else ''} would be faster; most is saved in {best.launch.id}: "
        f"{best.us:,.1f} µs ({best.launch.recommendation.reason if best.launch.recommendation else ''})",
        saving_us=total,
        origin="measured" if origins == {"measured"} else "predicted",
        launches=tuple(gain.launch.id for gain in gains),
        snippet=snippet,
    )


def _entries(gains: list[_Gain]) -> dict[int, dict[str, int | str]]:
    """Table entries by token count; where launches of one size disagree, that of the larger saving."""
    entries: dict[int, dict[str, int | str]] = {}
    for gain in sorted(gains, key=lambda gain: gain.us):
        recommendation, tokens = gain.launch.recommendation, gain.launch.problem.sizes.get("M")
        if recommendation is not None and recommendation.table_entry is not None and tokens is not None:
            entries[tokens] = recommendation.table_entry
    return entries


def _key(launch: LaunchReport) -> int | None:
    """The token count of the table entry that a launch runs with."""
    match = _ENTRY.search(launch.configuration_source)
    return int(match.group(1)) if match else None


def _plural(tokens: list[int]) -> str:
    shown = ", ".join(map(str, tokens[:_SHOWN])) + (f" and {len(tokens) - _SHOWN} more" if len(tokens) > _SHOWN else "")
    return f"{'entry' if len(tokens) == 1 else 'entries'} M={shown}"


def _repair(broken: list[tuple[LaunchReport, Finding]]) -> Action:
    first, finding = broken[0]
    tokens = sorted({launch.problem.sizes["M"] for launch, _ in broken if "M" in launch.problem.sizes})
    where = _plural(tokens) if tokens else f"{len(broken)} launches"
    return Action(
        title=f"Replace {where}: {'it' if len(tokens) == 1 else 'they'} cannot launch",
        detail=f"{first.id}: {finding.title}; {finding.remedy}",
        saving_us=0.0,
        origin="predicted",
        launches=tuple(launch.id for launch, _ in broken),
        rule="cannot-launch",
        snippet=first.recommendation.triton_config if first.recommendation else None,
    )


def _cure(rule: str, group: list[tuple[LaunchReport, Finding]]) -> Action:
    launch, finding = max(group, key=lambda pair: pair[1].saving_us or 0.0)
    return Action(
        title=ADVICE.get(rule, finding.title),
        detail=f"{len(group)} launch{'es' if len(group) > 1 else ''}; in {launch.id}: {finding.title}; {finding.remedy}",
        saving_us=sum(f.saving_us or 0.0 for _, f in group),
        origin="predicted",
        launches=tuple(report.id for report, _ in group),
        rule=rule,
    )
