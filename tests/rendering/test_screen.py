"""The first screen: what limits a result, at most three actions, one line for each launch."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from advisor.rendering import figures, markdown, page, terminal
from advisor.rendering.screen import COMMANDS, LINES, screen
from advisor.rendering.views import group
from advisor.result.schema import UNCERTAIN, Action, GapPart, Latency, LayerReport, PipelineTime, Result, Verdict
from advisor.system.resources import phrase
from tests.rendering import factory
from tests.rendering.terminal import to_text


def shown(result: Result) -> list[str]:
    return [line.plain for line in screen(result, group(result.launches), report="r.html")]


def unsized(*commands: str) -> Result:
    """A kernel without a grid, of which one program was counted."""
    result = factory.result((64,), ("w13",))
    (launch,) = result.launches
    problem = replace(launch.problem, sizes={"programs": 1})
    verdict = Verdict(
        sentence="Cannot predict a time yet: the launch size is missing.",
        current_us=0.0,
        ceiling_us=0.0,
        bound_us=0.0,
        percent_of_ceiling=0.0,
        binding_pipeline="dram",
        origin="predicted",
        unknowns=("One.", "Two."),
    )
    action = Action(title="Specify", detail="more", saving_us=0.0, origin="predicted", launches=(launch.id,), snippet="\n".join(commands))
    return replace(result, launches=(replace(launch, problem=problem),), verdict=verdict, actions=(action,))


def test_many_launches_fit_a_screen_and_those_left_out_are_counted() -> None:
    result = factory.result(tuple(range(1, 61)))
    lines = shown(result)
    assert len(lines) <= LINES and lines[0] == result.verdict.sentence and lines[-1] == "  report: r.html"
    rows = [line for line in lines if "tuning can win" in line and line.startswith("  M=")]
    left = next(line for line in lines if "less to win" in line)
    assert len(rows) + int(left.split()[0]) == len(result.launches) == 120


def test_what_is_left_out_has_least_to_win() -> None:
    result = factory.result(tuple(range(1, 61)), ("w13",))
    gains = sorted((launch.headroom * launch.ceiling.us for launch in result.launches), reverse=True)
    text = "\n".join(shown(result))
    first = max(result.launches, key=lambda launch: launch.headroom * launch.ceiling.us)
    assert f"M={first.problem.sizes['M']} " in text and gains[0] > gains[-1]


def test_a_change_is_never_left_out_for_a_launch_without_one_which_says_why() -> None:
    result = factory.result(tuple(range(1, 61)), ("w13",))
    *others, changing = sorted(result.launches, key=figures.to_win, reverse=True)
    kept = "No better configuration is sure enough: num_warps=8 may be faster: a gain of 2 % has a chance of 78 %, 80 % needed."
    launches = (*(replace(launch, recommendation=None, kept=kept) for launch in others), changing)
    rows = [line for line in shown(replace(result, launches=launches)) if line.startswith("  M=")]
    assert sum(" > " in row for row in rows) == 1
    assert all(row.endswith("· a gain of 2 % has a chance of 78 %, 80 % needed") for row in rows if " > " not in row) and len(rows) > 1


def test_what_the_recommended_change_cures_has_one_saving_that_of_the_change() -> None:
    """Beside what the change saves another figure for the same cause would have to be told apart from it."""
    result = factory.result((64,), ("w13",))
    (launch,) = result.launches
    finding, other = launch.findings[0], replace(launch.findings[0], rule="tail-wave", title="t")
    advice = replace(launch.recommendation, reason=f"best; {phrase('choice.cures', what=finding.title)}")
    cured = replace(result, launches=(replace(launch, findings=(finding, other), recommendation=advice),))
    lines = [line for line in shown(cured) if line.startswith("    ! ")]
    assert len(lines) == 2 and all((phrase("screen.cured") in line) == (finding.title in line) for line in lines)
    assert ["saves" in line for line in lines] == [phrase("screen.cured") not in line for line in lines]


def layered(tokens: tuple[int, ...], gain: float = 0.3) -> Result:
    """A table whose layers gain the more the more tokens they have, up to `gain`."""
    result = factory.result(tokens, ("w13", "w2"))
    launches = tuple(replace(launch, decision=f"M={launch.problem.sizes['M']}", kept=None) for launch in result.launches)
    layers = []
    for place, count in enumerate(tokens):
        now = Latency(us=100.0 + count, origin="predicted", source="layers", low_us=90.0 + count, high_us=110.0 + count, coverage=0.8)
        then = replace(now, us=now.us * (1 - gain * (place + 1) / len(tokens)))
        names = tuple(launch.id for launch in launches if launch.problem.sizes["M"] == count)
        kind = {"id": f"layer-M{count}", "tokens": count, "stack": "vLLM", "routing": "random", "launches": names, "measured": None}
        layers.append(LayerReport(**kind, bound=now, predicted=now, ceiling=then, recommended=then, parts={}))
    return replace(result, launches=launches, layers=tuple(layers))


def test_a_table_has_one_line_for_each_whole_layer() -> None:
    result = layered((8, 64, 512))
    rows = [line for line in shown(result) if line.startswith("  M=")]
    assert [row.split()[0] for row in rows] == ["M=8", "M=64", "M=512"]
    assert all(
        f"→ {figures.microseconds(layer.recommended.us):>8} µs, {figures.saved(layer)}" in row
        for row, layer in zip(rows, result.layers, strict=True)
    )
    assert any(line.startswith("MoE layers  E=") for line in shown(result))
    busy = replace(result, launches=tuple(replace(item, peak_pipeline="dram", share_of_peak=0.8) for item in result.launches))
    named = [line for line in shown(busy) if "w13: 80 % of DRAM's peak" in line]
    assert len(named) == 3, "whose share of a peak it is: the layer's is another"
    assert len([line for line in to_text(result).splitlines() if line.startswith("  M=")]) == 6, "-v has a line for each launch"
    apart = replace(result, launches=tuple(replace(launch, decision=launch.id) for launch in result.launches))
    assert len([line for line in shown(apart) if line.startswith("  M=")]) == 6, "products that are changed apart have lines of their own"


def test_token_counts_are_not_summed_on_any_surface() -> None:
    """A step runs one of them: a share of a peak, or a time, of all together is that of nothing."""
    for tokens, summed in (((8, 64), False), ((8,), True)):
        result = layered(tokens)
        surfaces = (page.to_html(result), 'class="tiles"'), (markdown.to_markdown(result), "| ceiling ("), (to_text(result), " launches: ")
        assert [words in text for text, words in surfaces] == [summed] * 3


def test_a_table_that_was_written_needs_no_further_option() -> None:
    result = layered((8, 64, 512))
    names = tuple(launch.id for launch in result.launches)
    snippet = "\n".join(f"line {number}" for number in range(9))
    action = Action(title="Write", detail="", saving_us=9.0, origin="predicted", launches=names, snippet=snippet)
    for command, told in (("advisor advise fused_moe", True), ("advisor advise fused_moe --export tables", False)):
        lines = shown(replace(result, actions=(action,), command=command))
        assert any("--export DIR writes the table" in line for line in lines) is told


def test_layers_that_gain_least_are_left_out_and_counted() -> None:
    result = layered(tuple(range(1, 61)))
    lines = shown(result)
    rows = [line for line in lines if line.startswith("  M=")]
    left = next(line for line in lines if "more layers with less to win" in line)
    assert len(lines) <= LINES and len(rows) + int(left.split()[0]) == 60 and rows[-1].split()[0] == "M=60"


def test_an_action_on_layers_saves_what_one_of_them_gains() -> None:
    """A step runs one token count: the sum over all is no time of anything."""
    result = layered((8, 64, 512))
    now, gains = [layer.predicted.us for layer in result.layers], [layer.predicted.us - layer.recommended.us for layer in result.layers]
    names = tuple(launch.id for launch in result.launches)
    action = Action(title="Write", detail="", saving_us=sum(gains), origin="predicted", launches=names, layers_us=sum(now))
    assert figures.saving(action, result) == ("10.8 to 183.6", "10 to 30 % of MoE layer time")
    library = replace(action, saving_us=2 * action.saving_us)
    assert figures.saving(library, result)[1] == "51 % of MoE layer time, summed over 3 token counts", (
        "what no recommendation saves is summed"
    )


def test_why_nothing_changes_is_said_once_of_a_single_launch() -> None:
    kept = "No better configuration is sure enough: num_warps=8 may be faster: predicted to save 12 %, 23 % needed."
    result = factory.result((64,), ("w13",))
    launch = replace(result.launches[0], recommendation=None, kept=kept)
    text = "\n".join(shown(replace(result, launches=(launch,))))
    assert text.count("23 % needed") == 1 and kept in text


def test_a_kernel_without_a_size_gets_one_sentence_and_one_command() -> None:
    lines = [line for line in shown(unsized("advisor advise k.py --arg n=…")) if line.strip()]
    assert lines == [
        "Cannot predict a time yet: the launch size is missing.",
        "  advisor advise k.py --arg n=…",
        "  2 assumptions: -v lists them.",
        "  report: r.html",
    ]
    result = unsized(*(f"advisor advise k.py::k{i} --arg n=…" for i in range(COMMANDS + 1)))
    several = shown(result)
    assert sum("advisor advise" in line for line in several) == COMMANDS
    assert "  1 more kernel has no size: -v shows its command." in several
    assert to_text(result).count("advisor advise") == COMMANDS + 1


@pytest.mark.parametrize(("snippet", "lines"), [("BLOCK=2048, num_warps=2", 0), ("triton.Config({'BLOCK': 2048}, num_warps=2)", 1)])
def test_what_an_action_s_title_says_is_not_printed_again_to_be_pasted(snippet: str, lines: int) -> None:
    result = factory.result((64,), ("w13",))
    action = Action(title="Use BLOCK=2048 and num_warps=2", detail="", saving_us=5.0, origin="predicted", launches=(), snippet=snippet)
    assert sum(snippet in line for line in shown(replace(result, actions=(action,)))) == lines


@pytest.mark.parametrize("headline", ["Loads are repeated: changing that should save 30 %.", "Memory-bound."])
def test_an_action_does_not_repeat_the_cause_that_the_headline_says(headline: str) -> None:
    """Once by the headline or the action, once with the finding."""
    result = factory.result((64,), ("w13",))
    (launch,) = result.launches
    found = replace(launch.findings[0], rule="redundant-loads", title="Loads are repeated")
    detail = "k (k.py:8): Loads are repeated. Load them once."
    action = Action(title="Load once", detail=detail, saving_us=5.0, origin="predicted", launches=(launch.id,), rule=found.rule)
    verdict = replace(result.verdict, sentence=headline)
    lines = shown(replace(result, launches=(replace(launch, findings=(found,)),), verdict=verdict, actions=(action,)))
    assert "\n".join(lines).count("Loads are repeated") == 2 and any("Load them once." in line for line in lines)


def test_assumptions_stand_behind_verbose() -> None:
    result = factory.result((64,), ("w13",))
    assert not any(unknown in line for unknown in result.verdict.unknowns for line in shown(result))
    whole = [line.plain for line in terminal.lines(result)]
    assert all(any(unknown in line for line in whole) for unknown in result.verdict.unknowns)


def test_the_order_is_share_of_peak_then_what_tuning_wins_then_the_change() -> None:
    (line,) = [line for line in shown(replace(factory.result((64,), ("w13",)), actions=())) if "tuning can win" in line]
    (launch,) = factory.result((64,), ("w13",)).launches
    assert launch.share_of_peak is None and line.index("tuning can win") < line.index("> BLOCK_SIZE_M 64→32")
    known = replace(launch, peak_pipeline="dram", share_of_peak=0.61)
    (line,) = [line for line in shown(replace(factory.result((64,), ("w13",)), launches=(known,), actions=())) if "tuning can win" in line]
    assert line.index("61 % of DRAM's peak") < line.index("tuning can win") < line.index("> BLOCK_SIZE_M")
    padding = replace(known, gap=(GapPart(cause="padding", us=0.3 * figures.current(launch).us, origin="predicted"),))
    assert any("61 % of DRAM's peak, 30 % padding" in line for line in shown(replace(factory.result((64,), ("w13",)), launches=(padding,))))


def test_the_record_of_a_recommendation_stands_beside_it() -> None:
    result = factory.result((64,), ("w13",))
    (launch,) = result.launches
    won = replace(launch, recommendation=replace(launch.recommendation, record="of 7 such recommendations 90 % won"))
    assert any("of 7 such recommendations 90 % won" in line for line in shown(replace(result, launches=(won,))))


def test_a_tuned_result_is_shown_as_before() -> None:
    result = factory.empty()
    assert [line.plain for line in terminal.lines(result, details=False)] == [line.plain for line in terminal.lines(result)]


def mostly_assumed() -> Result:
    """A launch of whose work the most hangs on data that nobody gave."""
    result = factory.result((64,), ("w13",))
    (launch,) = result.launches
    bound = replace(launch.bound, us=0.5)
    likely = GapPart(cause=UNCERTAIN, us=98.0, origin="predicted")
    return replace(
        result, launches=(replace(launch, bound=bound, gap=(likely,)),), verdict=replace(result.verdict, bound_us=0.5), actions=()
    )


@pytest.mark.parametrize(
    "surface",
    [
        lambda result: "\n".join(shown(result)),
        lambda result: re.sub("<[^>]*>|\\s+", " ", page.to_html(result)).replace("  ", " "),
        to_text,
        markdown.to_markdown,
        repr,
    ],
    ids=["screen", "page", "verbose", "markdown", "repr"],
)
def test_the_bound_counts_assumed_work_first_where_that_is_most_of_it(surface: Callable[[Result], str]) -> None:
    """On every surface the same, for one reads both the terminal and the page."""
    text = " ".join(surface(mostly_assumed()).split())
    assert "98.5 µs" in text and "with assumed work" in text.lower()
    assert "0.50 µs" not in text or "of certain work alone 0.50 µs" in text


def test_what_the_l2_may_hold_is_why_a_bound_lies_below_the_traffic() -> None:
    (launch,) = factory.result((64,), ("w13",)).launches
    dram = PipelineTime(
        pipeline="dram",
        unit="bytes",
        demand=1.1e9,
        problem_demand=1e9,
        busiest_sm_demand=None,
        throughput_per_s=3.35e12,
        time_us=330.0,
        problem_time_us=300.0,
        passing=1.1e9,
    )
    streamed = replace(launch, bound=replace(launch.bound, us=300.0), gap=(), pipelines=(dram,))
    assert figures.shown_bound(streamed).text.endswith("assumes a warm L2; 328.4 µs with all bytes to and from DRAM")
    assert "L2" not in figures.shown_bound(replace(streamed, bound=replace(launch.bound, us=327.0))).text


def test_savings_that_overlap_are_said_to() -> None:
    result = factory.result((64,), ("w13",))
    action = Action(title="Do", detail="it", saving_us=5.0, origin="predicted", launches=(result.launches[0].id,))
    words = "do not add up"
    assert words in " ".join(shown(replace(result, actions=(action, action))))
    assert words not in " ".join(shown(replace(result, actions=(action, replace(action, saving_us=0.0)))))


@pytest.mark.parametrize("surface", [shown, lambda result: markdown.to_markdown(result).splitlines()], ids=["screen", "markdown"])
def test_only_what_saves_time_is_numbered(surface: Callable[[Result], list[str]]) -> None:
    result = factory.result((64,), ("w13",))
    say = Action(title="Specify the sizes", detail="it", saving_us=0.0, origin="predicted", launches=(result.launches[0].id,))
    lines = surface(replace(result, actions=(say, replace(say, title="Do", saving_us=5.0))))
    assert any(re.match(r" *1\. +(\*\*)?Do", line) for line in lines)
    assert any(re.match(r" *[·-] +(\*\*)?Specify", line) for line in lines)


def test_a_finding_names_its_line() -> None:
    result = factory.result((64,), ("w13",))
    (launch,) = result.launches
    finding = replace(launch.findings[0], source_file="k.py", source_line=16)
    placed = replace(result, launches=(replace(launch, findings=(finding,)),))
    assert "k.py:16" in "\n".join(shown(placed)) and "k.py:16" in to_text(placed)
