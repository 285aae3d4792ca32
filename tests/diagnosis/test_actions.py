"""What to do first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.diagnosis import actions, diagnose
from advisor.diagnosis.actions import ADVICE
from advisor.diagnosis.compiled_rules import COMPILED_RULES
from advisor.diagnosis.rule import microseconds
from advisor.rendering import figures
from advisor.result.schema import Configuration, Latency, LaunchReport, Problem, Recommendation

from .launches import launch, moe, tile


def report(
    problem: Problem,
    configuration: Configuration,
    *,
    gpu: str = "H20",
    key: int | None = None,
    better: Configuration | None = None,
    speedup: float = 2.0,
) -> LaunchReport:
    """A launch as `advise` would report it, as far as actions look at it."""
    context = launch(problem, configuration, gpu)
    diagnosis = diagnose(context)
    predicted = Latency(us=context.current_us, origin="predicted", source="analytical model")
    recommendation = None
    if better is not None:
        recommendation = Recommendation(
            configuration=better,
            latency=Latency(us=context.current_us / speedup, origin="predicted", source="analytical model"),
            speedup=speedup,
            p_speedup_10pct=None,
            reason="less padding",
            triton_config=f"triton.Config({dict(better.parameters)})",
            table_entry={"BLOCK_SIZE_M": int(better.parameters["BLOCK_SIZE_M"])} if key is not None else None,
        )
    return LaunchReport(
        id=f"{problem.op}-M{problem.sizes['M']}",
        kernel="fused_moe",
        problem=problem,
        configuration=configuration,
        configuration_source=f"table entry {key}" if key is not None else "kernel's own space",
        pipelines=(),
        binding_pipeline="dram",
        config_binding_pipeline="dram",
        bound=Latency(us=context.bound_us, origin="specified", source="bound"),
        config_bound=Latency(us=context.bound_us, origin="specified", source="bound"),
        predicted=predicted,
        ceiling=None,
        ceiling_configuration=None,
        measured=None,
        measured_rounds=None,
        occupancy=None,
        efficiency=None,
        headroom=None,
        p_speedup_10pct=None,
        gap=diagnosis.gap,
        findings=diagnosis.findings,
        passed_rules=diagnosis.passed,
        recommendation=recommendation,
    )


BAD, GOOD = tile(128, 64, 64, 32), tile(16, 128, 64)


def test_recommended_entries_are_one_action_with_a_snippet() -> None:
    launches = [report(moe(m, op), BAD, key=m, better=GOOD) for m in (256, 512) for op in ("w13", "w2")]
    first = actions(launches)[0]
    assert first.title == "Change entries M=256, 512"
    assert first.saving_us == pytest.approx(sum(one.predicted.us / 2 for one in launches if one.predicted))
    assert first.snippet is not None and first.snippet.startswith('"256": {') and '"512": {' in first.snippet
    assert first.origin == "predicted" and len(first.launches) == 4


@pytest.mark.parametrize(("first", "named"), [(1, "1, 2, 3, 4, 5, 6, 7, 8, 9"), (10**8, "100000000, 100000001")])
def test_all_entries_that_fit_a_line_are_named(first: int, named: str) -> None:
    title = actions([report(moe(m), BAD, key=m, better=GOOD) for m in range(first, first + 9)])[0].title
    assert title.startswith(f"Change entries M={named}") and title.endswith(" and 3 more") == (first > 1)


def test_sizes_without_an_entry_of_their_own_are_added() -> None:
    launches = [report(moe(256), BAD, key=256, better=GOOD), report(moe(384), BAD, key=256, better=GOOD)]
    assert actions(launches)[0].title == "Change entry M=256 and add entry M=384"


def test_without_a_table_the_snippet_is_triton_configs() -> None:
    first = actions([report(moe(512), BAD, better=GOOD)])[0]
    assert first.snippet is not None and first.snippet.startswith("triton.Config")


def test_a_saving_below_the_interval_says_that_errors_are_shared() -> None:
    certain = report(moe(256), BAD, key=256, better=GOOD)
    assert certain.predicted is not None
    us = certain.predicted.us
    doubtful = replace(certain, predicted=replace(certain.predicted, low_us=0.2 * us, high_us=1.8 * us))
    told = "share most of their error"
    assert told in actions([doubtful])[0].detail and told not in actions([certain])[0].detail


def test_a_cure_that_is_not_recommended_is_no_action_and_one_that_is_names_every_launch() -> None:
    first, second = (report(moe(tokens), BAD, key=tokens) for tokens in (256, 512))
    (plain, *_) = actions([first, second])
    assert len(plain.launches) == 2 and all(name in plain.detail for name in plain.launches), "those linked are those named"
    assert not actions([replace(launch, kept="no better one is sure enough") for launch in (first, second)])


def test_a_recommendation_that_is_no_faster_or_no_change_is_none() -> None:
    same = report(moe(64), GOOD, better=GOOD)
    slower = report(moe(64), tile(16, 64, 128), better=GOOD, speedup=0.9)
    assert actions([same, slower]) == ()


def test_what_one_launch_of_an_entry_loses_is_counted_and_named() -> None:
    w13 = replace(report(moe(256), BAD, key=256, better=GOOD), decision="M256")
    w2 = replace(report(moe(256, "w2"), BAD, key=256, better=GOOD, speedup=0.95), decision="M256")
    assert w13.predicted is not None and w2.predicted is not None
    (first, *_) = actions([w13, w2])
    won, lost = w13.predicted.us / 2, w2.predicted.us / 0.95 - w2.predicted.us
    assert first.saving_us == pytest.approx(won - lost) and first.launches == ("w13-M256", "w2-M256")
    assert "1 launch gets slower, which the saving includes: w2-M256 by " in first.detail
    losing = replace(w2, recommendation=replace(w2.recommendation, speedup=0.1)) if w2.recommendation else w2
    assert all(action.rule is not None for action in actions([w13, losing])), "an entry that loses in all is no action"


def test_a_saving_from_measured_to_predicted_says_so_and_how_far_it_may_be_off() -> None:
    """A prediction that is too fast here would pass for time that the change saves."""
    told = "The saving compares"
    guessed = report(moe(256), BAD, key=256, better=GOOD)
    assert guessed.predicted is not None and guessed.recommendation is not None and told not in actions([guessed])[0].detail
    then = replace(guessed.recommendation.latency, us=100.0, low_us=90.0, high_us=120.0)
    now = Latency(us=300.0, origin="measured", source="rows")
    known = replace(
        guessed,
        predicted=replace(guessed.predicted, us=150.0),
        measured=now,
        recommendation=replace(guessed.recommendation, latency=then, speedup=3.0),
    )
    (first, *_) = actions([known])
    assert first.saving_us == pytest.approx(200.0) and first.origin == "predicted"
    assert first.detail.endswith(
        f" {told} a measured time with a predicted one; predicted against predicted it is 50.0 µs. At the ends of the intervals it is "
        "180.0 µs to 210.0 µs."
    )
    reached = replace(known, recommendation=replace(guessed.recommendation, latency=replace(then, origin="measured"), speedup=3.0))
    assert told not in actions([reached])[0].detail, "both were measured"


def test_an_entry_takes_one_remedy_and_counts_what_it_saves_in_all() -> None:
    finding = report(moe(512), BAD).findings[0]
    w13 = replace(report(moe(512), GOOD), decision="M512", findings=(replace(finding, saving_us=100.0, net_saving_us=70.0),))
    w2 = replace(
        report(moe(512, "w2"), GOOD), decision="M512", findings=(replace(finding, rule="tail-wave", saving_us=90.0, net_saving_us=80.0),)
    )
    (only,) = actions([w13, w2])
    assert (only.rule, only.saving_us, only.launches) == ("tail-wave", 80.0, ("w2-M512",))


def test_a_remedy_that_is_no_configuration_stands_beside_a_recommended_one() -> None:
    """Another type saves most of the time: a recommended configuration for the type as it is must not hide it."""
    finding = replace(report(moe(512), BAD).findings[0], rule="not-tensor-dtype", saving_us=4953.0, net_saving_us=None)
    found = actions([replace(report(moe(512), BAD, key=512, better=GOOD), findings=(finding,))])
    assert (found[0].rule, found[0].saving_us) == ("not-tensor-dtype", 4953.0)
    assert found[1].title == "Change entry M=512"


@pytest.mark.parametrize("rule", ["not-tensor-dtype", "expert-padding"])
def test_a_measurement_below_the_bound_leaves_nothing_to_be_saved(rule: str) -> None:
    finding = report(moe(512), BAD).findings[0]
    known = replace(
        report(moe(512), BAD),
        findings=(replace(finding, rule=rule, saving_us=90.0, net_saving_us=90.0 if rule == "expert-padding" else None),),
    )
    faulty = replace(known, measured=Latency(us=0.9 * known.bound.us, origin="measured", source="rows"))
    assert actions([known]) and actions([faulty]) == ()


def test_a_measurement_below_the_bound_loses_nothing_by_what_another_launch_of_its_entry_saves() -> None:
    w13 = replace(report(moe(256), BAD, key=256, better=GOOD), decision="M256")
    w2 = replace(report(moe(256, "w2"), BAD, key=256, better=GOOD), decision="M256")
    assert w13.recommendation is not None and w2.predicted is not None
    faulty = replace(
        w13,
        measured=Latency(us=0.1 * w13.bound.us, origin="measured", source="rows"),
        recommendation=replace(w13.recommendation, speedup=0.1),
    )
    first = actions([faulty, w2])[0]
    assert first.saving_us == pytest.approx(w2.predicted.us / 2) and first.launches == ("w2-M256",) and "slower" not in first.detail


def test_what_was_searched_for_is_not_told_to_change() -> None:
    launches = [report(moe(512), BAD)]
    assert actions(launches) and actions(launches, settled={"w13-M512"}) == ()


def test_findings_of_launches_without_a_recommendation_are_actions_by_rule() -> None:
    found = actions([report(moe(512), BAD), report(moe(512, "w2"), BAD)])
    assert found and found[0].rule == "expert-padding" and len(found[0].launches) == 2
    assert [action.saving_us for action in found] == sorted((action.saving_us for action in found), reverse=True)


def test_what_cannot_launch_comes_first_and_at_most_three_are_given() -> None:
    broken = report(moe(64), tile(128, 256, 128, 1, 8, 5), gpu="L40S", key=64)
    others = [report(moe(512), BAD, key=512, better=GOOD), report(moe(1024), tile(128, 32, 32, 1, 4, 2))]
    finding = replace(others[1].findings[0], rule="another", saving_us=1.0)
    others.append(replace(report(moe(16), GOOD), findings=(finding,)))
    found = actions([*others, broken])
    assert found[0].rule == "cannot-launch" and found[0].title == "Replace entry M=64: it cannot launch"
    assert len(found) == 3


def test_an_action_does_not_say_its_title_again() -> None:
    finding = replace(report(moe(512), BAD).findings[0], saving_us=90.0, net_saving_us=None, remedy="read it once")
    (unknown, named) = (
        actions([replace(report(moe(16), GOOD), findings=(replace(finding, rule=rule),))])[0] for rule in ("another", "smem-bound")
    )
    assert unknown.title == finding.title and unknown.detail == "w13-M16: Read it once."
    assert named.detail == f"w13-M16: {finding.title}. Read it once."
    placed = replace(finding, rule="another", source_file="k.py", source_line=7)
    assert actions([replace(report(moe(16), GOOD), findings=(placed,))])[0].detail == "w13-M16 (k.py:7): Read it once."


def test_every_rule_of_code_says_what_to_do() -> None:
    """But for one whose remedy is each launch's own, and one that saves nothing to speak of."""
    assert {rule.id for rule in COMPILED_RULES} - set(ADVICE) == {"cannot-launch", "mask-never-binds"}


def test_what_replaces_entries_that_cannot_launch_is_all_in_the_box() -> None:
    """The text names no other configuration than the box, which has an entry for each."""
    wide = tile(128, 256, 128, 1, 8, 5)
    (first, *_) = actions([report(moe(m), wide, gpu="L40S", key=m, better=GOOD) for m in (64, 128)])
    assert first.rule == "cannot-launch" and first.snippet is not None
    assert '"64": {' in first.snippet and '"128": {' in first.snippet
    assert "fits, and is" not in first.detail and "BLOCK_SIZE" not in first.detail


@pytest.mark.parametrize("of_configuration", [True, False])
def test_what_saves_next_to_nothing_is_no_action(of_configuration: bool) -> None:
    """24 bytes of spills cost 0.2 us of 530: a finding, and nothing to do first. Nor is 0.08 us of 2: no benchmark sees it."""
    finding = report(moe(512), BAD).findings[0]

    def saving(us: float, of: float = 510.0) -> LaunchReport:
        known = report(moe(512), GOOD)
        assert known.predicted is not None
        return replace(
            known,
            predicted=replace(known.predicted, us=of),
            findings=(replace(finding, rule="spills", saving_us=us, net_saving_us=us if of_configuration else None),),
        )

    assert actions([saving(0.2)]) == () and actions([saving(9.9)]) == () and actions([saving(0.08, 2.0)]) == ()
    assert [action.saving_us for action in actions([saving(10.1)])] == [10.1]


def test_a_remedy_without_a_price_stands_where_nothing_has_one() -> None:
    """What contention costs is not predicted, and "nothing worth changing" would be wrong."""
    priced = report(moe(512), BAD)
    unknown = replace(priced.findings[0], rule="contended-atomics", scope="kernel", severity="warning", saving_us=None, net_saving_us=None)
    (action,) = actions([replace(report(moe(64), GOOD), findings=(unknown,))])
    assert action.title == ADVICE["contended-atomics"] and action.saving_us == 0.0
    assert not [item for item in actions([replace(priced, findings=(*priced.findings, unknown))]) if item.rule == "contended-atomics"]


def test_nothing_to_do() -> None:
    assert actions([]) == ()
    assert actions([report(moe(64), GOOD)]) == ()


@pytest.mark.parametrize("us", [0.004, 0.5, 1.46, 9.994, 9.996, 12.34, 99.96, 105.1, 300.0, 999.94, 999.96, 12345.6])
def test_a_figure_in_a_sentence_reads_as_in_its_column(us):
    """1.46 µs beside `most is saved: 1.5 µs`, and 105.1 beside `re-reading costs 105 µs`, were one figure."""
    assert microseconds(us) == f"{figures.microseconds(us)} µs"
