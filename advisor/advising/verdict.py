"""The verdict: one sentence over all launches of a result, and the numbers in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from advisor.learned.base import ANALYTICAL, EXTRAPOLATED
from advisor.rendering.figures import microseconds, share_text
from advisor.result.schema import PIPELINES, UNCERTAIN, LaunchReport, Origin, PipelineTime, Verdict, nearest_to_peak

GAIN, LIKELY = 1.1, 0.5
"""A launch counts as gaining where its recommendation is that much faster, and that (`p_speedup_10pct`) is at least as likely as not."""

LIMITS = {
    "tensor": "the rate of the tensor cores",
    "fma": "the rate of the vector units",
    "xu": "the rate of the special-function units",
    "alu": "the rate of integer instructions",
    "issue": "how fast instructions issue",
    "smem": "shared-memory bandwidth",
    "l2": "L2 bandwidth",
    "dram": "DRAM bandwidth",
    "launch": "the time a launch takes to start",
}
"""What binds, in words that need no glossary."""


def current_us(report: LaunchReport) -> float | None:
    """Measured where there is one, else predicted; None where the configuration cannot launch."""
    if report.measured is not None:
        return report.measured.us
    return report.predicted.us if report.predicted is not None else None


def verdict(
    launches: tuple[LaunchReport, ...], unknowns: tuple[str, ...], unsized: Collection[str] = (), guessed: Mapping[str, str] | None = None
) -> Verdict:
    """One sentence over all launches that can launch; what was measured below its bound is no latency to sum.

    Args:
        launches: All of a result.
        unknowns: What is not known, each a sentence.
        unsized: Ids of those whose grid is not known: the time of one program says nothing of theirs, nor of a sum with it.
        guessed: By id of a launch for what guesses stand on which it hangs how far its bound is away.
    """
    if missing := [report for report in launches if report.id in unsized and report.measured is None]:
        return Verdict(
            sentence=_without_grid(missing, len(launches)),
            current_us=0.0,
            ceiling_us=0.0,
            bound_us=0.0,
            percent_of_ceiling=0.0,
            binding_pipeline=missing[0].binding_pipeline,
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
    return Verdict(
        sentence=_sentence(
            launches,
            [report for report, _ in able],
            [report for report, _ in rated],
            percent,
            current,
            ceiling,
            bound,
            binding,
            _guesses([report for report, _ in able], guessed or {}),
        ),
        current_us=current,
        ceiling_us=ceiling,
        bound_us=bound,
        percent_of_ceiling=percent,
        binding_pipeline=binding,
        origin=_origin([report for report, _ in able]),
        unknowns=unknowns,
    )


def _without_grid(missing: list[LaunchReport], whole: int) -> str:
    """A sentence: no time can be given of launches whose grid is not known."""
    if len({report.kernel for report in missing}) == 1 and len(missing) == whole:
        each = f" of each of {whole} configurations" if whole > 1 else ""
        return f"How long this launch takes is not known: its grid is not, and one program{each} was counted."
    some = f"{len(missing)} of the {whole}" if len(missing) < whole else f"the {whole}"
    if len(missing) == 1:
        return f"How long {some} launches takes is not known: its grid is not, and one program was counted."
    return f"How long {some} launches take is not known: their grids are not, and one program of each was counted."


def _sentence(
    launches: tuple[LaunchReport, ...],
    able: list[LaunchReport],
    rated: list[LaunchReport],
    percent: float,
    current: float,
    ceiling_us: float,
    bound_us: float,
    binding: str,
    guess: str,
) -> str:
    """The verdict's sentence: on `able`, and on those of them, `rated`, that have a ceiling; `guess`: see `_guesses`."""
    one = len(launches) == 1
    binds = f"limited by {LIMITS.get(binding, binding)}"
    known = one and able and (able[0].configuration is not None or able[0].measured is None)  # whose pipelines are shown
    if known and able[0].config_binding_pipeline != binding:
        mine = able[0].config_binding_pipeline
        binds = f"its configuration is limited by {LIMITS.get(mine, mine)}, the bound by {LIMITS.get(binding, binding)}"
    words = "launch" if one else f"{len(launches)} launches"
    stuck = sum(1 for report in launches if current_us(report) is None)
    wrong = len(launches) - len(able) - stuck
    if stuck == len(launches):
        return f"{'This launch cannot' if one else f'None of the {words} can'} run with its configuration."
    if not able:
        sentence = "This launch was" if one else f"{wrong} of the {words} were"
        return f"{sentence} measured below the bound: a fault of the model or of the measurement."
    origin = _origins(able)
    if ceiling_us > 0 and all(report.configuration is None and report.measured is None for report in able):
        # What is shown is the best configuration itself: to say how close it comes to the ceiling would say nothing.
        sentence = f"With the best of {'its' if one else 'their'} configurations {'this' if one else 'the'} {words} would take "
        sentence += f"{microseconds(ceiling_us)} µs (predicted{_basis(able)}){_to_the_bound(able, ceiling_us, bound_us, guess)}; {binds}"
    elif not rated:
        sentence = f"{'This' if one else 'The'} {words} {'takes' if one else 'take'} {microseconds(current)} µs ({origin}{_basis(able)})"
        bare = sum(report.ceiling is None for report in able)
        whose = f"for {bare} of them " if bare < len(able) else ""
        sentence += f"{_to_the_bound(able, current, bound_us, guess)}; {binds}, and {whose}no other configuration is known to compare with"
    else:
        share = share_text(percent / 100, passed="")
        some = len(rated) < len(launches)
        who = f"Of the {words} {len(rated)} {'runs' if len(rated) == 1 else 'run'}" if some else f"The {words} run"
        sentence = f"{'This launch runs' if one else who} {f'at {share} of' if share else 'beyond'} "
        others = "; not known of the others" if len(rated) < len(able) else ""
        sentence += f"the tunable ceiling ({_origins(rated)}{_basis(rated)}{others}); {binds}"
        if gains := _gains(able, one):
            sentence += f", and {gains}"
        elif percent >= 98:
            sentence += ", and no other configuration promises much more"
        sentence += f"; {guess}" if guess else ""
    if stuck:
        sentence += f"; {stuck} cannot launch at all"
    if against := [report for report in able if report.contradicted]:
        most = max(against, key=lambda report: report.measured.us / report.predicted.us)  # type: ignore[union-attr]
        assert most.measured is not None and most.predicted is not None
        which = "the measurement" if one else f"{len(against)} of the measurements"
        sentence += (
            f"; {which} contradict{'s' if one or len(against) == 1 else ''} what is predicted ({microseconds(most.measured.us)} µs against "
        )
        sentence += f"{microseconds(most.predicted.us)}), and no configuration is credited with the difference"
    if wrong:
        sentence += f"; {wrong} measured below the bound, a fault, left out of this"
    return sentence + "."


def _gains(able: list[LaunchReport], one: bool) -> str:
    """A clause on how many launches would gain a tenth; empty where no recommendation promises it."""
    promised = [(report, advice) for report in able if (advice := report.recommendation) is not None and advice.speedup >= GAIN]
    if not promised:
        return ""
    # Both measured is no promise but a fact, whatever the probability was.
    known = [report.measured is not None and advice.latency.origin != "predicted" for report, advice in promised]
    chances = [advice.p_speedup_10pct for _, advice in promised]
    likely = sum(fact or chance is None or chance >= LIKELY for fact, chance in zip(known, chances, strict=True))
    unrated = any(not fact and chance is None for fact, chance in zip(known, chances, strict=True))
    rest, what = len(promised) - likely, "at least 10 % from another configuration"
    if not likely:
        return f"{'it' if one else f'{rest} of them'} might gain {what}"
    verb = f"{'is' if likely == 1 else 'are'} predicted to gain" if unrated else "would gain"
    return f"{'it' if one else f'{likely} of them'} {verb} {what}" + (f" ({rest} more might)" if rest else "")


def _guesses(able: list[LaunchReport], guessed: Mapping[str, str]) -> str:
    """A clause on guesses that the distance to the bound hangs on; empty where none does."""
    which = [guessed[report.id] for report in able if report.id in guessed]
    if not which:
        return ""
    what = which[0] if len(set(which)) == 1 else "data that are not given"
    return f"{f'in {len(which)} of them ' if len(which) < len(able) else ''}a guess stands for {what}"


def _to_the_bound(able: list[LaunchReport], us: float, bound_us: float, guess: str) -> str:
    """The distance from `us` to the bound in words; from the likely work where the work is not certain."""
    if guess:
        return f"; how far that is from the bound is not known, for {guess}"
    uncertain = sum(part.us for report in able for part in report.gap if part.cause == UNCERTAIN)
    if not uncertain:
        return f", {us / bound_us:.2f} times the bound{_of_peak(able, us)}"
    certain = f"{microseconds(bound_us)} µs are certain"
    whose = "its" if len(able) == 1 else "their"
    return f", {us / (bound_us + uncertain):.2f} times the least {whose} likely work takes, of which {certain}"


def _of_peak(able: list[LaunchReport], us: float) -> str:
    """`, with dram at 82 % of its peak`, of all launches together, which take `us`."""
    name, share = nearest_to_peak(_together(able), us)
    return f", with {name} at {share_text(share)} of its peak" if share is not None and share < 1.005 else ""


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
    if not able or len(known) < len(able):
        return "predicted"
    return "simulated" if "simulated" in known else "measured"


def _origins(able: list[LaunchReport]) -> str:
    """The origins of the sum: `measured`, or `1 measured, the rest predicted`."""
    known = [report.measured.origin for report in able if report.measured and not (report.contradicted and report.ceiling)]
    parts = {word: known.count(word) for word in ("measured", "simulated") if word in known}
    if not known:
        return "predicted"
    if len(known) == len(able) and len(parts) == 1:
        return known[0]
    listed = [f"{count} {word}" for word, count in parts.items()]
    return ", ".join([*listed, "the rest predicted"] if len(known) < len(able) else listed)


def _basis(able: list[LaunchReport]) -> str:
    """The model behind predictions that no learned model vouches for: `, by the analytical model`, `, 3 of 8 extrapolated`."""
    sources = [report.predicted.source for report in able if report.measured is None and report.predicted is not None]
    found = (
        ("by the analytical model", sum(source == ANALYTICAL for source in sources)),
        ("extrapolated", sum(source.endswith(EXTRAPOLATED) for source in sources)),
    )
    return "".join(f", {words}" if count == len(sources) else f", {count} of {len(sources)} {words}" for words, count in found if count)
