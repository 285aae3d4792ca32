"""One sentence over all launches: what it adds up, and what it does not."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from advisor.advising.verdict import verdict
from advisor.learned.base import ANALYTICAL, EXTRAPOLATED
from advisor.rendering import markdown, page, terminal
from advisor.result.schema import UNCERTAIN, GapPart, LaunchReport
from tests.rendering import factory


def test_the_ceilings_of_some_launches_are_no_ceiling_of_all() -> None:
    result = factory.result((64, 256, 3072), ("w13",))
    first, second, third = result.launches
    launches = (first, second, replace(third, ceiling=None, recommendation=None))
    whole, found = verdict(result.launches, ()), verdict(launches, ())
    assert whole.ceiling_us == pytest.approx(sum(launch.ceiling.us for launch in result.launches))
    assert found.ceiling_us == 0.0 and found.current_us == whole.current_us
    reached = (first.ceiling.us + second.ceiling.us) / (first.predicted.us + second.predicted.us)
    assert found.percent_of_ceiling == pytest.approx(100 * reached)
    assert found.sentence.startswith("Of the 3 launches 2 run at ") and "(predicted; not known of the others)" in found.sentence

    partly = replace(result, launches=launches, verdict=found)
    assert "of ceiling (2 of 3 launches)" in terminal.to_text(partly) and "| not known |" in markdown.to_markdown(partly)
    assert "(2 of 3 launches) |" in markdown.to_markdown(partly) and "2 of 3 launches" in page.to_html(partly)
    complete = replace(result, verdict=whole)
    assert "(2 of 3" not in terminal.to_text(complete) and whole.sentence.startswith("The 3 launches run at ")


def test_where_no_share_is_known_none_is_told() -> None:
    """What has a ceiling runs with a configuration that nobody knows; what runs with a known one has no ceiling."""
    first, second = factory.result((64, 256), ("w13",)).launches
    unset, bare = replace(first, configuration=None, recommendation=None), replace(second, ceiling=None, recommendation=None)
    found = verdict((unset, bare), ())
    assert found.percent_of_ceiling == 0.0 and "of the tunable ceiling" not in found.sentence and "the bound" in found.sentence
    assert ", and for 1 of them no other configuration is known to compare with" in found.sentence, "of the one that has a ceiling one is"
    for configuration in (unset.configuration, second.configuration):
        found = verdict((unset, replace(bare, configuration=configuration)), ())
        assert ", and for 1 of them no other" in found.sentence
    assert ", and no other configuration is known" in verdict((bare, replace(first, ceiling=None, recommendation=None)), ()).sentence


def test_a_share_of_some_launches_is_not_called_one_of_all() -> None:
    """One was measured below its bound, and its latency is in no sum."""
    first, second = factory.result((64, 256), ("w13",), measured=True).launches
    launches = (first, replace(second, measured=replace(second.measured, us=0.9 * second.bound.us)))
    found = verdict(launches, ())
    assert found.sentence.startswith("Of the 2 launches 1 runs at ") and "not known of the others" not in found.sentence
    shown = page.to_html(replace(factory.result((64, 256), ("w13",), measured=True), launches=launches, verdict=found))
    assert 'beyond <span class="muted">ceiling' in shown and 'beyond <span class="muted">of ceiling' not in shown


def promising(*chances: float | None, speedup: float = 1.13) -> tuple[LaunchReport, ...]:
    """Launches whose recommendation is `speedup` times as fast, each with such a probability that a tenth can be won."""
    launches = factory.result(tuple(64 << i for i in range(len(chances))), ("w13",)).launches
    assert all(launch.recommendation is not None for launch in launches)
    return tuple(
        replace(launch, recommendation=replace(launch.recommendation, speedup=speedup, p_speedup_10pct=p))
        for launch, p in zip(launches, chances, strict=True)
    )


def test_no_gain_is_claimed_that_its_own_probability_denies() -> None:
    what = "at least 10 % from another configuration"
    assert f", and 2 of them would gain {what} (1 more might)." in verdict(promising(0.9, 0.39, 0.5), ()).sentence
    assert f", and 2 of them would gain {what}." in verdict(promising(0.9, 0.6), ()).sentence
    assert f", and 2 of them might gain {what}." in verdict(promising(0.2, 0.39), ()).sentence
    assert f", and it might gain {what}." in verdict(promising(0.39), ()).sentence
    assert what not in verdict(promising(0.9, 0.9, speedup=1.05), ()).sentence
    assert f", and it is predicted to gain {what}." in verdict(promising(None), ()).sentence, "no probability is known"
    assert f", and 2 of them are predicted to gain {what} (1 more might)." in verdict(promising(None, 0.9, 0.1), ()).sentence


def test_a_gain_that_was_measured_is_no_matter_of_probability() -> None:
    (launch,) = promising(0.1)
    took = replace(launch.predicted, origin="measured")
    advice = replace(launch.recommendation, latency=replace(launch.recommendation.latency, origin="measured"))
    for chance in (0.1, None):
        found = verdict((replace(launch, measured=took, recommendation=replace(advice, p_speedup_10pct=chance)),), ())
        assert ", and it would gain at least 10 %" in found.sentence


@pytest.mark.parametrize(("source", "words"), [(ANALYTICAL, "by the analytical model"), (f"learned, {EXTRAPOLATED}", "extrapolated")])
def test_the_sentence_says_what_answers_outside_of_what_was_learned(source: str, words: str) -> None:
    first, second = factory.result((64, 256), ("w13",)).launches
    beyond = [replace(each, predicted=replace(each.predicted, source=source)) for each in (first, second)]
    assert f"of the tunable ceiling (predicted, {words});" in verdict(tuple(beyond), ()).sentence
    assert f"(predicted, 1 of 2 {words});" in verdict((first, beyond[1]), ()).sentence
    assert "of the tunable ceiling (predicted);" in verdict((first, second), ()).sentence
    unset = tuple(replace(each, configuration=None, recommendation=None) for each in beyond)
    assert re.search(rf"µs \(predicted, {words}\), \d\.\d\d times the bound;", verdict(unset, ()).sentence)
    bare = tuple(replace(each, ceiling=None, recommendation=None) for each in beyond)
    assert f"µs (predicted, {words})," in verdict(bare, ()).sentence


def untuned(tokens: int = 64) -> LaunchReport:
    """A launch of which the best configuration is shown, of those it has."""
    (launch,) = factory.result((tokens,), ("w13",)).launches
    return replace(launch, configuration=None, recommendation=None)


def test_the_ceiling_is_so_many_times_the_likely_work_where_that_is_not_certain() -> None:
    launch = untuned()
    likely = GapPart(cause=UNCERTAIN, us=launch.bound.us, origin="predicted")
    sentence = verdict((replace(launch, gap=(likely, *launch.gap)),), ()).sentence
    assert f", {launch.ceiling.us / (2 * launch.bound.us):.2f} times the least its likely work takes, of which " in sentence
    assert "times the bound" not in sentence and "µs are certain" in sentence
    both = verdict((replace(launch, gap=(likely, *launch.gap)), untuned(256)), ()).sentence
    assert "times the least their likely work takes, of which " in both


def test_where_a_guess_decides_no_distance_to_the_bound_is_told() -> None:
    tuned, told = factory.result((64, 256), ("w13",)).launches
    bare, guess = replace(tuned, ceiling=None, recommendation=None), "what table holds"
    for launch in (untuned(), bare):
        sentence = verdict((launch,), (), guessed={launch.id: guess}).sentence
        assert "times" not in sentence
        assert "; how far that is from the bound is not known, for a guess stands for what table holds; " in sentence
        assert "times the bound" in verdict((launch,), (), guessed={"another": guess}).sentence
    assert verdict((tuned,), (), guessed={tuned.id: guess}).sentence.endswith("; a guess stands for what table holds.")
    some = verdict((tuned, told), (), guessed={tuned.id: guess}).sentence
    assert some.endswith("; in 1 of them a guess stands for what table holds.")
    several = verdict((tuned, told), (), guessed={tuned.id: guess, told.id: "what lengths holds"}).sentence
    assert several.endswith("; a guess stands for data that are not given.")


def test_the_pipeline_named_beside_the_sum_of_bounds_makes_up_most_of_it() -> None:
    """However slowly the launch of another one runs: that is no bound."""
    first, second = factory.result((64, 256), ("w13",), measured=True).launches
    large = replace(first, binding_pipeline="dram", bound=replace(first.bound, us=150.0), measured=replace(first.measured, us=160.0))
    slow = replace(second, binding_pipeline="tensor", bound=replace(second.bound, us=100.0), measured=replace(second.measured, us=900.0))
    found = verdict((large, slow), ())
    assert found.bound_us == 250.0 and found.binding_pipeline == "dram" and "; limited by DRAM bandwidth" in found.sentence
