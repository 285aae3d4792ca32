"""Static evidence: what a row advises."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from advisor.advising import advise_target
from advisor.advising.targets import Request
from advisor.advising.targets.resolve import resolve_target
from advisor.cli import main
from advisor.comparison import Options, assemble
from advisor.comparison.settings import Settings
from advisor.comparison.static import both_near_peak, judge, largest_step, pairs_that_went, side_of, static_row
from advisor.rendering.comparison_files import to_comment
from advisor.rendering.markdown import escape
from advisor.result.comparison_schema import Compared, StaticSide, Subject
from advisor.result.schema import Configuration, GapPart, Latency, LaunchReport

from .conftest import TABLE, entry, table


@pytest.fixture
def reports(tmp_path, predictor, monkeypatch):
    """(base, head): an entry, and a slower one in its place, as `advise` reports them, with what it would recommend however likely."""
    monkeypatch.setattr(type(predictor), "p_gain", lambda *anything: 1.0)

    def of(name: str, block_m: int) -> list[LaunchReport]:
        (tmp_path / name).mkdir()
        path = tmp_path / name / TABLE
        path.write_text(table(M64=entry(block_m)))
        return list(advise_target(resolve_target(str(path), Request(model="Qwen3-30B-A3B")), predictor, command="").launches)

    return of("base", 64), of("head", 128)


def predicted(reports: list[LaunchReport], factor: float) -> list[LaunchReport]:
    """As if each were predicted `factor` times the recommendation of `reports`."""
    return [replace(each, predicted=replace(each.predicted, us=factor * each.recommendation.latency.us)) for each in reports]


@pytest.mark.parametrize(("factor", "goes_back"), [(1.1, False), (0.9, True)])
def test_what_is_advised_is_no_slower_than_the_base(reports, factor, goes_back):
    base, head = reports
    base = [replace(mine, predicted=theirs.predicted) for mine, theirs in zip(base, predicted(head, factor), strict=True)]
    row = static_row("M64", "M=64", "H200", base, head)
    assert row.advice is not None
    assert row.advice.latency.us <= row.base.predicted.us
    assert (row.advice.configuration == row.base.configuration) is goes_back
    assert row.advice.speedup == pytest.approx(row.head.predicted.us / row.advice.latency.us)
    if goes_back:
        assert row.advice.table_entry == entry(64)


@pytest.mark.parametrize(
    ("blocks", "spread", "verdict"),
    [((64, 128), 1.5, "within-doubt"), ((64, 64), 1.5, "predicted-unchanged"), ((64, 128), 1.01, "predicted-unchanged")],
)
def test_other_launches_that_a_prediction_cannot_tell_apart_are_not_called_unchanged(blocks, spread, verdict):
    sides = [
        StaticSide(
            configuration=Configuration(parameters={"BLOCK_SIZE_M": block}, num_warps=4, num_stages=3),
            source="",
            predicted=Latency(us=us, origin="predicted", source="", low_us=us / spread, high_us=us * spread, coverage=0.8),
        )
        for block, us in zip(blocks, (100.0, 101.0), strict=True)
    ]
    assert judge(*sides, in_base=True)[0] == verdict
    assert judge(*sides, in_base=True, compiled=True)[0] == "predicted-unchanged", "whether the code is the same tells"


def test_static_row_within_doubt_names_the_part_of_the_prediction_that_changed_most(reports):
    base = [replace(report, predicted=replace(report.predicted, low_us=1.0, high_us=1e6)) for report in reports[0]]
    head = [
        replace(
            report,
            configuration=other.configuration,
            predicted=replace(report.predicted, us=1.2 * report.predicted.us),
            gap=(
                *report.gap,
                *(GapPart(cause=name, us=us, origin="predicted") for name, us in (("tail-wave", 30.0), ("power", -40.0), ("launch", 20.0))),
            ),
        )
        for report, other in zip(base, reports[1], strict=True)
    ]
    row = static_row("M64", "M=64", "H200", base, head)
    assert row.verdict == "within-doubt" and re.search(r"can tell; most of it: partial last wave [\d.]+ → [\d.]+ µs$", row.reason)


@pytest.mark.parametrize("cause", ["efficiency", "unexplained"])
def test_what_no_cause_explains_is_not_named_as_one(reports, cause):
    base = [replace(report, gap=()) for report in reports[0]]
    head = [replace(report, gap=(GapPart(cause=cause, us=30.0, origin="predicted"),)) for report in base]
    assert largest_step((base, head), 0.2) == ""
    traffic = [replace(report, gap=(GapPart(cause="traffic", us=30.0, origin="predicted"),)) for report in base]
    assert largest_step((base, traffic), 0.2)
    assert largest_step((base, traffic), 0.001) == "", "what other parts undo is no cause"


@pytest.mark.parametrize(("change", "went"), [(-0.22178, 84), (0.285, 84), (-0.06, 72), (0.05, 72), (-0.6, 99), (0.03, None), (None, None)])
def test_pairs_that_went_their_predicted_way(change, went):
    assert pairs_that_went(change) == (
        f"of 100 pairs of configurations predicted so far apart {went} were measured that way on an H100" * bool(went)
    )


def test_a_head_faster_than_the_base_is_not_told_to_go_back(reports):
    _, head = reports
    assert static_row("M64", "M=64", "H200", predicted(head, 1.5), predicted(head, 1.2)).advice is not None
    assert static_row("M64", "M=64", "H200", predicted(head, 0.9), predicted(head, 0.8)).advice is None


def test_what_cannot_launch_cures_no_finding_and_next_to_it_none_is_new(reports):
    base, head = reports
    broken = [replace(each, predicted=None, findings=each.findings[:1]) for each in head]
    assert {finding.rule for each in base for finding in each.findings}
    assert static_row("M64", "M=64", "H200", base, broken).cured_findings == ()
    assert static_row("M64", "M=64", "H200", broken, base).new_findings == ()


def test_a_finding_of_several_launches_names_its_own(reports):
    base, head = reports
    row = static_row("M64", "M=64", "H200", base, head)
    assert row.new_findings and all(finding.evidence.startswith(("w13: ", "w2: ")) for finding in row.new_findings)
    alone = static_row("M64", "M=64", "H200", base[:1], head[:1])
    assert alone.new_findings and not any(finding.evidence.startswith("w13: ") for finding in alone.new_findings)


def test_every_latency_of_a_line_has_its_unit(tmp_path, capsys):
    for name, block_m in (("base", 64), ("head", 128)):
        (tmp_path / name).mkdir()
        (tmp_path / name / TABLE).write_text(table(M64=entry(block_m)))
    main(["compare", str(tmp_path / "base" / TABLE), str(tmp_path / "head" / TABLE), "--format", "text"])
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("  predicted slower "))
    assert re.search(r"[\d.,]+ µs predicted \(base\) -> [\d.,]+ µs predicted  \+[\d.]+ %  ceiling [\d.,]+ µs  BLOCK_SIZE_M 64→128", line)


def test_a_likely_cause_is_a_sentence(reports):
    """A finding's evidence may go on from its title (`4.2 times what is loaded`) and says nothing alone."""
    base, head = reports
    row = static_row("M64", "M=64", "H200", base, head)
    assert row.new_findings
    subject = Subject(kind="table", title="t", path="t", change="compared", static=(replace(row, verdict="predicted-regressed"),))
    predictor = type("P", (), {"name": "analytical model"})()
    said = to_comment(assemble(Compared(label="a"), Compared(label="b"), [subject], Options(), Settings(), predictor, ()))
    for finding in row.new_findings[:3]:
        assert escape(f"{finding.title}: {finding.evidence}") in said


def test_a_side_that_starts_programs_most_of_its_time_says_so_instead_of_a_unit(reports):
    (launch, *_), _ = reports
    starting = launch.predicted.us / 2
    parts = [replace(part, time_us=starting) if part.pipeline == "launch" else part for part in launch.pipelines]
    side = side_of([replace(launch, config_binding_pipeline="launch", pipelines=tuple(parts))])
    assert (side.peak_pipeline, side.share_of_peak) == ("launch", pytest.approx(0.5))


def test_two_sides_near_one_peak_say_why_they_tie(reports):
    base, head = (
        [replace(each, peak_pipeline="dram", share_of_peak=share) for each in side]
        for side, share in zip(reports, (0.9, 0.94), strict=True)
    )
    assert both_near_peak(*base, *head) == "both at 90 % of DRAM's peak or more"
    moved = "no difference that counts is predicted: both read and write as much, at 90 % of DRAM's peak or more"
    assert both_near_peak(base[0], replace(head[0], pipelines=base[0].pipelines)) == moved
    more = tuple(replace(part, demand=1.1 * part.demand) for part in base[0].pipelines)
    assert both_near_peak(base[0], replace(head[0], pipelines=more)) == "both at 90 % of DRAM's peak or more"
    products = [replace(each, peak_pipeline="tensor") for each in (base[0], replace(head[0], pipelines=base[0].pipelines))]
    assert ": both compute as much, at 90 % of tensor cores" in both_near_peak(*products)
    assert not both_near_peak(*base, *(replace(each, peak_pipeline="tensor") for each in head))
    assert not both_near_peak(*base, *(replace(each, share_of_peak=0.3) for each in head))
