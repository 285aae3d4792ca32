"""The headline over all launches: what limits them, what tuning wins, and what it adds up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.advising.verdict import verdict
from advisor.learned.base import ANALYTICAL, EXTRAPOLATED
from advisor.rendering import markdown, page
from advisor.rendering.figures import UTILISED, share_text
from advisor.result.schema import UNCERTAIN, GapPart, LaunchReport
from tests.rendering import factory
from tests.rendering.terminal import to_text


def test_the_ceilings_of_some_launches_are_no_ceiling_of_all() -> None:
    result = factory.result((128, 256, 3072), ("w13",))
    first, second, third = result.launches
    launches = (first, second, replace(third, ceiling=None, recommendation=None))
    whole, found = verdict(result.launches, ()), verdict(launches, ())
    gains = "At M ≤ 256 better configurations save 53 %, at the other M examined nothing that is sure."
    assert whole.ceiling_us == pytest.approx(sum(launch.ceiling.us for launch in result.launches)) and whole.notes == (gains,)
    assert found.ceiling_us == 0.0 and found.current_us == whole.current_us
    reached = (first.ceiling.us + second.ceiling.us) / (first.predicted.us + second.predicted.us)
    assert found.percent_of_ceiling == pytest.approx(100 * reached)
    assert found.notes == (gains, "The share of the ceiling covers 2 of 3 launches.")

    partly = replace(result, launches=launches, verdict=found)
    assert "% (2 of 3 launches)" in to_text(partly) and "| unknown |" in markdown.to_markdown(partly)
    assert "(2 of 3 launches) |" in markdown.to_markdown(partly) and "2 of 3 launches" in page.to_html(partly)
    assert "(2 of 3" not in to_text(replace(result, verdict=whole))


def test_where_no_share_is_known_none_is_named() -> None:
    """What has a ceiling runs with an unknown configuration; what runs with a known one has no ceiling."""
    first, second = factory.result((64, 256), ("w13",)).launches
    unset, bare = replace(first, configuration=None, recommendation=None), replace(second, ceiling=None, recommendation=None)
    for launches in ((unset, bare), (bare, replace(first, ceiling=None, recommendation=None))):
        found = verdict(launches, ())
        assert found.percent_of_ceiling == 0.0 and found.sentence.endswith(" Only one configuration was evaluated.")


def test_a_share_of_some_launches_is_not_called_one_of_all() -> None:
    """One was measured below its bound, and its latency is in no sum."""
    first, second = factory.result((64, 256), ("w13",), measured=True).launches
    launches = (first, replace(second, measured=replace(second.measured, us=0.9 * second.bound.us)))
    found = verdict(launches, ())
    assert "1 launch was measured below the bound and is left out." in found.notes
    assert "The share of the ceiling covers 1 of 2 launches." in found.notes
    shown = page.to_html(replace(factory.result((64, 256), ("w13",), measured=True), launches=launches, verdict=found))
    assert 'beyond <span class="muted">ceiling' in shown and 'beyond <span class="muted">of ceiling' not in shown


@pytest.mark.parametrize(
    "units, expected",
    [
        (("dram", "dram", "tensor"), "Memory-bound at M ≤ 256, compute-bound at M = 3072."),
        (("dram", "tensor", "tensor"), "Memory-bound at M = 64, compute-bound at M ≥ 256."),
        (("dram", "dram", "tensor smem"), "Memory-bound at M ≤ 256, bound by tensor cores and shared memory at M = 3072."),
        (("tensor", "dram", "tensor"), "Compute-bound at 2 of 3 token counts."),
        (("tensor", "dram", "smem"), "Compute-bound at 1 of 3 token counts, memory-bound at 1."),
        (("tensor", "tensor", "tensor"), "Compute-bound at "),
    ],
)
def test_a_headline_says_from_which_token_count_on_another_unit_limits(units, expected) -> None:
    """A table's token counts run one at a time: what limits their sum limits none of them."""
    launches = []
    for unit, launch in zip(units, factory.result((64, 256, 3072), ("w13",)).launches, strict=True):
        busy = [replace(part, time_us=0.9 * launch.predicted.us if part.pipeline in unit.split() else 0.1) for part in launch.pipelines]
        parts = [replace(part, demand=part.time_us * 1e-6 * part.throughput_per_s) for part in busy]
        launches.append(replace(launch, pipelines=tuple(parts), peak_pipeline=unit.split()[0], share_of_peak=0.9))
    assert verdict(tuple(launches), ()).sentence.startswith(expected)


def test_a_headline_has_two_short_sentences_with_the_share_of_peak_first() -> None:
    (launch,) = factory.result((64,), ("w13",)).launches
    found = verdict((launch,), ())
    assert found.peak_pipeline == "tensor" and found.share_of_peak is not None
    assert found.share_of_peak >= UTILISED
    assert found.sentence.startswith(f"Compute-bound at {share_text(found.share_of_peak)} of the tensor cores' peak. ")
    slow = verdict((replace(launch, predicted=replace(launch.predicted, us=4 * launch.predicted.us), recommendation=None),), ())
    assert slow.share_of_peak is not None and slow.share_of_peak < UTILISED
    assert slow.sentence.startswith(f"No unit is above {share_text(slow.share_of_peak)} of its peak (highest: tensor cores). ")
    for sentence in (*found.sentence.split(". "), *slow.sentence.split(". ")):
        assert len(sentence.split()) <= 14


def promising(*chances: float | None, speedup: float = 1.25) -> tuple[LaunchReport, ...]:
    """Launches whose recommendation is `speedup` times as fast, each with such a probability that a tenth can be won."""
    launches = factory.result(tuple(64 << i for i in range(len(chances))), ("w13",)).launches
    assert all(launch.recommendation is not None for launch in launches)
    return tuple(
        replace(launch, recommendation=replace(launch.recommendation, speedup=speedup, p_speedup_10pct=p))
        for launch, p in zip(launches, chances, strict=True)
    )


def test_no_gain_is_claimed_that_its_own_probability_denies() -> None:
    assert verdict(promising(0.9), ()).sentence.endswith("Another configuration should save 20 %.")
    assert verdict(promising(0.39), ()).sentence.endswith("Another configuration may save 20 %.")
    assert verdict(promising(None), ()).sentence.endswith("Another configuration should save 20 %."), "no probability is known"
    assert verdict(promising(0.9, 0.9), ()).sentence.endswith("Changing 2 of 2 configurations should save 20 %.")
    assert "save" not in verdict(promising(0.9, speedup=1.01), ()).sentence


@pytest.mark.parametrize(("share", "words"), [(0.3, "Loads are repeated: changing that should save 30 %."), (0.1, "should save 20 %.")])
def test_a_change_of_the_code_that_saves_more_than_the_configuration_is_the_headline(share: float, words: str) -> None:
    (launch,) = promising(0.9)
    assert launch.predicted is not None
    found = replace(
        launch.findings[0], scope="kernel", title="Loads are repeated", net_saving_us=None, saving_us=share * launch.predicted.us
    )
    assert verdict((replace(launch, findings=(found,)),), ()).sentence.endswith(words)


def test_few_changes_are_named() -> None:
    (launch,) = promising(0.9)
    one = replace(launch.configuration, num_warps=2 * launch.configuration.num_warps)
    found = verdict((replace(launch, recommendation=replace(launch.recommendation, configuration=one)),), ())
    assert found.sentence.endswith(f"Setting num_warps={one.num_warps} should save 20 %.")


def test_a_gain_that_was_measured_is_no_matter_of_probability() -> None:
    (launch,) = promising(0.1)
    took = replace(launch.predicted, origin="measured")
    advice = replace(launch.recommendation, latency=replace(launch.recommendation.latency, origin="measured"))
    for chance in (0.1, None):
        found = verdict((replace(launch, measured=took, recommendation=replace(advice, p_speedup_10pct=chance)),), ())
        assert found.sentence.endswith(" would save 20 %.")


def test_where_nothing_is_recommended_the_headline_says_what_is_left_to_win() -> None:
    (launch,) = factory.result((64,), ("w13",)).launches
    bare = replace(launch, recommendation=None)
    assert " but no single change is sure to." in verdict((bare,), ()).sentence
    near = replace(bare, ceiling=replace(bare.ceiling, us=0.99 * bare.predicted.us))
    assert verdict((near,), ()).sentence.endswith("Tuning cannot win more than 2 %.")
    small = replace(
        bare, **{name: replace(getattr(bare, name), us=us) for name, us in (("predicted", 3.0), ("ceiling", 2.91), ("bound", 1.0))}
    )
    assert verdict((small,), ()).sentence.endswith("Tuning cannot win more than 3 %."), "0.09 us are below what a benchmark sees"
    slow = verdict((replace(small, share_of_peak=0.3),), ()).sentence
    assert slow.endswith("Tuning cannot win more than 3 %, a better kernel up to 67 %.")


@pytest.mark.parametrize(("source", "words"), [(ANALYTICAL, "the analytical model alone"), (f"learned, {EXTRAPOLATED}", "extrapolated")])
def test_a_note_says_what_answers_outside_of_the_training_data(source: str, words: str) -> None:
    first, second = factory.result((128, 256), ("w13",)).launches
    beyond = [replace(each, predicted=replace(each.predicted, source=source)) for each in (first, second)]
    (both,), (one,) = verdict(tuple(beyond), ()).notes, verdict((first, beyond[1]), ()).notes
    assert both.startswith("2 of 2 times") and words in both and one.startswith("1 time ") and words in one
    assert words != "extrapolated" or (
        both.endswith("They are w13-M128, w13-M256. A change of these needs a larger gain.") and "that of w13-M256" in one
    )
    assert verdict((first, second), ()).notes == ()


def untuned(tokens: int = 64) -> LaunchReport:
    """A launch of which the best configuration is shown, of those it has."""
    (launch,) = factory.result((tokens,), ("w13",)).launches
    return replace(launch, configuration=None, recommendation=None)


def test_the_best_configuration_is_called_so() -> None:
    assert verdict((untuned(),), ()).sentence.endswith("The configuration is not set: the time is of the best one.")
    assert verdict((untuned(), untuned(256)), ()).sentence.endswith("The configurations are not set: times are of the best ones.")


def test_work_that_is_not_certain_makes_the_share_approximate() -> None:
    launch = untuned()
    likely = GapPart(cause=UNCERTAIN, us=launch.bound.us, origin="predicted")
    found = verdict((replace(launch, gap=(likely, *launch.gap)),), ())
    assert " about " in found.sentence and found.notes == (
        "Only part of the work is certain. The rest depends on data that were not specified.",
    )
    assert " about " not in verdict((launch,), ()).sentence


def test_assumed_values_are_named_beside_the_share_of_peak() -> None:
    tuned, other = factory.result((128, 256), ("w13",)).launches
    guess = "the contents of table"
    found = verdict((tuned,), (), guessed={tuned.id: guess})
    assert " about " in found.sentence and found.notes == (
        "Assumed: the contents of table. The share of peak depends on that: say it with --arg or --content.",
    )
    assert verdict((tuned,), (), guessed={"another": guess}).notes == ()
    some = verdict((tuned, other), (), guessed={tuned.id: guess})
    assert some.notes == (
        "Assumed in 1 of 2 launches: the contents of table. The share of peak depends on that: say it with --arg or --content.",
    )
    several = verdict((tuned, other), (), guessed={tuned.id: guess, other.id: "the contents of lengths"})
    assert several.notes == ("Assumed: data that were not specified. The share of peak depends on that: say it with --arg or --content.",)


def test_a_measurement_that_contradicts_its_prediction_is_the_headline() -> None:
    (launch,) = factory.result((64,), ("w13",), measured=True).launches
    far = replace(launch, measured=replace(launch.measured, us=9 * launch.predicted.us))
    found = verdict((far,), ())
    assert found.sentence.startswith("Measurement contradicts prediction: ")
    assert any("No configuration is credited with the difference." in note for note in found.notes)


def test_a_launch_without_a_size_has_no_time() -> None:
    first, second = factory.result((64, 256), ("w13",)).launches
    assert verdict((first,), (), {first.id}).sentence == "Cannot predict a time yet: the launch size is missing."
    some = verdict((first, second), (), {first.id})
    assert some.sentence == "Cannot predict a time yet: 1 of 2 launches have no size." and some.current_us == 0.0


def test_the_pipeline_named_beside_the_sum_of_bounds_makes_up_most_of_it() -> None:
    """However slowly the launch of another one runs: that is no bound."""
    first, second = factory.result((64, 256), ("w13",), measured=True).launches
    large = replace(first, binding_pipeline="dram", bound=replace(first.bound, us=150.0), measured=replace(first.measured, us=160.0))
    slow = replace(second, binding_pipeline="tensor", bound=replace(second.bound, us=100.0), measured=replace(second.measured, us=900.0))
    found = verdict((large, slow), ())
    assert found.bound_us == 250.0 and found.binding_pipeline == "dram"


def test_a_launch_with_too_little_in_flight_is_called_latency_bound() -> None:
    """Little's law: DRAM is busy where bytes in flight reach its rate times its latency."""
    (launch,) = factory.result((64,), ("w13",)).launches
    pipelines = tuple(replace(part, demand=part.demand * (1.0 if part.pipeline == "dram" else 1e-3)) for part in launch.pipelines)
    slow = replace(launch.predicted, us=10 * next(part.time_us for part in launch.pipelines if part.pipeline == "dram"))
    gap = (GapPart(cause="latency", us=0.9 * slow.us, origin="predicted"),)
    starved = replace(launch.occupancy, in_flight_bytes=2048.0, needed_bytes=15_500.0)
    waiting = replace(launch, pipelines=pipelines, predicted=slow, recommendation=None, gap=gap, occupancy=starved)
    sentence = verdict((waiting,), ()).sentence
    assert sentence.startswith("Latency-bound at ") and "about 2 KB are in flight per SM, about 16 KB keep DRAM busy." in sentence
    enough = replace(waiting, occupancy=replace(starved, in_flight_bytes=15_500.0))
    assert "in flight" not in verdict((enough,), ()).sentence
    elsewhere = replace(waiting, gap=(replace(gap[0], cause="traffic"),))
    assert "in flight" not in verdict((elsewhere,), ()).sentence


def test_a_launch_that_waits_in_each_of_many_trips_is_called_latency_bound() -> None:
    """A reader's decode: enough in flight, and 2,048 trips of 1.9 us; no unit above 28 % said nothing of why."""
    (launch,) = factory.result((64,), ("w13",)).launches
    slow = replace(launch.predicted, us=1024.0)
    gap = (GapPart(cause="latency", us=300.0, origin="predicted"), GapPart(cause="occupancy", us=400.0, origin="predicted"))
    loop = replace(launch.occupancy, in_flight_bytes=15_500.0, needed_bytes=15_500.0, k_iterations=512, waves=0.9)
    waiting = replace(launch, predicted=slow, recommendation=None, gap=gap, occupancy=loop, share_of_peak=0.2)
    sentence = verdict((waiting,), ()).sentence
    assert sentence.startswith("Latency-bound at ") and "peak: 512 trips of a loop, 2.00 µs each, in turn." in sentence
    for other in (
        replace(waiting, occupancy=replace(loop, k_iterations=8)),
        replace(waiting, occupancy=replace(loop, waves=2.0)),
        replace(waiting, gap=gap[:1]),
    ):
        assert "trips" not in verdict((other,), ()).sentence


def test_what_decoding_gains_stands_beside_a_sum_over_token_counts() -> None:
    """A sum over both is mostly that of the larger."""
    small, first, between, large = factory.result((16, 128, 256, 2048), ("w13",)).launches
    kept = [replace(launch, recommendation=None) for launch in (small, between)]
    without = replace(small, recommendation=None, problem=replace(small.problem, sizes={"programs": 4}))
    found = verdict((kept[0], first, kept[1], large, without), ())
    (note,) = found.notes
    result = replace(factory.result((16, 2048), ("w13",)), verdict=found)
    assert all("configurations save nothing" in show(result) for show in (to_text, markdown.to_markdown, page.to_html))
    assert note.startswith("At M ≤ 64 (decode) better configurations save nothing that is sure. At larger M they save up to ")
    assert "configurations save up to" in verdict((small, large), ()).notes[0]
    assert verdict((large, replace(large, id="other")), ()).notes == () == verdict((small,), ()).notes


@pytest.mark.parametrize(
    ("saved", "where", "shares"),
    [
        ((0.04, 0.0, 0.3, 0.4), "M ≥ 256", "30 to 40 %, at the other M examined up to 4 %"),
        ((0.4, 0.3, 0.0, 0.0), "M ≤ 64", "30 to 40 %, at the other M examined nothing that is sure"),
        ((0.0, 0.2, 0.2, 0.02), "M = 64 to 256", "20 %, at the other M examined up to 2 %"),
        ((0.0, 0.0, 0.4, 0.05), "M = 256", "40 %, at the other M examined up to 5 %"),
    ],
)
def test_the_headline_names_the_token_counts_at_which_tuning_matters(saved: tuple[float, ...], where: str, shares: str) -> None:
    launches = [
        replace(launch, recommendation=replace(launch.recommendation, speedup=1 / (1 - share)) if share else None)
        for launch, share in zip(factory.result((16, 64, 256, 2048), ("w13",)).launches, saved, strict=True)
    ]
    found = verdict(tuple(launches), ())
    assert found.notes[0] == f"At {where} better configurations save {shares}."
    assert found.sentence.endswith(f", most at {where}.") and " at those sizes" not in found.sentence
    same = [replace(launch, recommendation=replace(factory.result().launches[0].recommendation, speedup=1.25)) for launch in launches]
    assert "most at" not in verdict(tuple(same), ()).sentence, "where all gain alike none is named"


@pytest.mark.parametrize(("of_small", "of_large", "alone"), [(16, 64, True), (64, 64, False)], ids=["other blocks", "the same"])
def test_blocks_that_a_default_has_where_tuning_matters_are_named(of_small: int, of_large: int, alone: bool) -> None:
    small, large = (
        replace(launch, configuration=replace(launch.configuration, parameters={"BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": 64}))
        for launch, rows in zip(factory.result((16, 2048), ("w13",)).launches, (of_small, of_large), strict=True)
    )
    launches = (replace(small, recommendation=None), replace(large, recommendation=replace(large.recommendation, speedup=1.25)))
    untuned = tuple(replace(launch, configuration_source="vLLM's default, as without a table") for launch in launches)
    assert verdict(untuned, ()).notes[0].endswith(": the default's blocks are 64x64 there alone.") is alone
    assert "blocks" not in verdict(launches, ()).notes[0], "a table's entries are no default"
