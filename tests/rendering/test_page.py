"""The HTML page: whole, escaped, offline, and looked at by a real browser."""

from __future__ import annotations

import base64
import gzip
import html
import os
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from advisor.advising.verdict import verdict
from advisor.rendering import charts, figures, markdown, page, svg
from advisor.rendering.page import prose
from advisor.rendering.views import Anchors, group, launch_views
from advisor.result import result_json
from advisor.result.schema import GapPart, Latency, LayerReport, Result
from tests.rendering.terminal import to_text
from tests.rendering.test_screen import unsized

from . import factory

ROOT = Path(__file__).resolve().parents[2]

VOID = {"meta", "link", "br", "img", "input", "hr"}
SVG_LEAVES = {"path", "circle", "rect", "use"}
SECTIONS = ("verdict", "change", "time", "latency", "roofline", "findings", "all-sizes", "provenance")
RESULTS = {
    "table": lambda: factory.result(),
    "launch": lambda: factory.result((64,), ("w13",)),
    "measured": lambda: factory.result((1, 64, 1024), measured=True, searched=True),
    "hostile": factory.hostile,
    "empty": factory.empty,
}


class Document(HTMLParser):
    """Collects what the tests ask for, and checks that elements are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []  # tag, name, value
        self.scripts: list[str] = []
        self.text: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SVG_LEAVES | VOID
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> out of order"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif not self.open or self.open[-1] != "style":
            self.text.append(data)

    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module", params=RESULTS)
def case(request: pytest.FixtureRequest) -> tuple[Result, str, Document]:
    result = RESULTS[request.param]()
    text = page.to_html(result)
    return result, text, Document(text)


def said(result: Result) -> str:
    """The words on the page of a result."""
    return Document(re.sub('<span class="together">(.*?)</span>', r"\1", page.to_html(result))).words()


def test_sections_are_there(case: tuple[Result, str, Document]) -> None:
    result, _, document = case
    curves = any(part.size is not None for part in group(result.launches))
    expected = [name for name in SECTIONS if name != "latency" or curves]
    expected += ["search"] if result.searches else []
    expected += ["measurement"] if any(launch.measured_rounds for launch in result.launches) else []
    for name in ("search", "measurement", *SECTIONS):
        assert (name in document.ids) == (name in expected), name


def test_anchors_are_unique_and_links_lead_somewhere(case: tuple[Result, str, Document]) -> None:
    _, _, document = case
    assert len(document.ids) == len(set(document.ids))
    targets = [value[1:] for tag, name, value in document.attributes if name == "href" and value.startswith("#")]
    assert targets
    assert set(targets) <= set(document.ids)


def test_nothing_is_asked_of_the_network(case: tuple[Result, str, Document]) -> None:
    _, text, document = case
    for _, name, value in document.attributes:
        if name in ("src", "href", "srcset", "action", "data", "poster", "background", "formaction", "ping"):
            assert value.startswith(("#", "data:")), (name, value[:80])
        if name == "style":
            assert "url(" not in value
        assert not name.startswith("on"), name
    styles = "".join(re.findall(r"<style>.*?</style>", text, re.DOTALL))
    assert "@import" not in styles and "url(" not in styles
    policy = next(value for _, name, value in document.attributes if name == "content" and "default-src" in value)
    assert "default-src 'none'" in policy and "http" not in policy
    assert not {"iframe", "object", "embed", "img", "base", "form"} & set(document.tags)


def test_the_only_script_is_that_of_the_page(case: tuple[Result, str, Document]) -> None:
    _, text, document = case
    (script,) = document.scripts
    assert "</script" not in script.lower() and "plotly" not in text.lower()


def test_json_on_the_page_is_the_result(case: tuple[Result, str, Document]) -> None:
    result, _, document = case
    address = next(value for _, name, value in document.attributes if name == "href" and "base64" in value)
    assert result_json.from_json(gzip.decompress(base64.b64decode(address.split(",", 1)[1]))) == result


@pytest.mark.parametrize(("tokens", "most_bytes"), [(factory.TOKENS, 600_000), (tuple(range(1, 501)), 2_000_000)])
def test_a_page_is_light(tokens: tuple[int, ...], most_bytes: int) -> None:
    result = factory.result(tokens)
    text = page.to_html(result)
    document = Document(text)
    assert len(text.encode()) <= most_bytes
    targets = {value[1:] for _, name, value in document.attributes if name == "href" and value.startswith("#")}
    assert targets <= set(document.ids), "links to launches that have no waterfall lead to their row"


def test_numbers_say_where_they_come_from() -> None:
    words = Document(page.to_html(factory.result((64,), ("w13",), measured=True))).words()
    assert "518.0 µs measured" in words
    assert "224.5 µs predicted" in words
    assert "198.6 µs specified" in words
    assert "512.8–523.2 µs (99 % interval)" in words
    assert "Savings do not add up" in words


def test_a_sum_of_launches_has_the_interval_of_errors_that_go_together() -> None:
    result = factory.result((64, 256), ("w13",))
    taken = [launch.predicted for launch in result.launches]
    low, high = figures.microseconds(sum(each.low_us for each in taken)), figures.microseconds(sum(each.high_us for each in taken))
    shown = f"sum of all 2 launches, {low}–{high} µs ({100 * taken[0].coverage:.0f} % interval): their ends added"
    assert shown in said(result)
    assert "interval): their ends added" not in said(factory.result((64,), ("w13",))), "its own interval stands there"
    first, second = result.launches
    mixed = replace(result, launches=(first, replace(second, predicted=replace(second.predicted, coverage=0.9))))
    assert f"sum of all 2 launches, {low}–{high} µs: their ends added" in said(mixed)
    without = replace(result, launches=(first, replace(second, predicted=replace(second.predicted, low_us=None, high_us=None))))
    assert "sum of all 2 launches Tunable ceiling" in said(without)


def test_layers_say_how_far_their_products_are_from_the_launches_alone() -> None:
    result = factory.result((64,), ("w13", "w2"))
    alone = sum(launch.predicted.us for launch in result.launches)
    parts = {"w13": 1.2 * result.launches[0].predicted.us, "w2": 1.2 * result.launches[1].predicted.us}
    layer = LayerReport(
        id="layer-M64",
        tokens=64,
        stack="vLLM 0.24",
        routing="random",
        launches=tuple(launch.id for launch in result.launches),
        bound=result.launches[0].bound,
        predicted=Latency(us=1.3 * alone, origin="predicted", source="weights"),
        ceiling=Latency(us=1.3 * alone, origin="predicted", source="weights"),
        recommended=None,
        measured=None,
        parts=parts,
    )
    assert f"with its launches as predicted alone {figures.microseconds(1.1 * alone)} µs" in said(replace(result, layers=(layer,)))
    other = replace(layer, tokens=128)
    notes = [verdict(result.launches, (), layers=layers).notes for layers in ([layer], [layer, other])]
    assert notes[0][0].endswith(" At M = 64 they differ by 20 %: measure it first.")
    assert notes[1][0].endswith(" At M = 64, 128 they differ, by up to 20 % at M = 64: measure these first.")
    agreeing = replace(layer, parts={name: us / 1.2 for name, us in parts.items()})
    assert (
        "as predicted alone" not in said(replace(result, layers=(agreeing,))) and not verdict(result.launches, (), layers=[agreeing]).notes
    )
    assert "the weights from DRAM" not in said(replace(result, layers=(layer,))), "launches and layers are of a warm cache"


def test_what_was_measured_does_not_hide_how_sure_the_predictions_in_a_sum_are() -> None:
    """Rows of measurements have no intervals of their own; a sum of them and of predictions is as sure as the predictions are."""
    result = factory.result((64, 256), ("w13",))
    first, second = result.launches
    given = Latency(us=600.0, origin="measured", source="rows.csv")
    mixed = replace(result, launches=(replace(first, measured=given), second))
    assert second.predicted is not None and second.predicted.low_us is not None and second.predicted.high_us is not None
    low, high = (figures.microseconds(600 + end) for end in (second.predicted.low_us, second.predicted.high_us))
    assert f"sum of all 2 launches, {low}–{high} µs (80 % interval)" in said(mixed)
    whole = figures.sum_interval(mixed)
    assert whole is not None and whole.us == pytest.approx(600 + second.predicted.us)
    assert f"µs {figures.interval(whole)} (1 measured, 1 predicted)" in to_text(mixed)
    assert figures.sum_interval(replace(result, launches=(replace(first, measured=given),))) is None, "nothing in it is predicted"


def test_every_predicted_latency_of_the_table_has_its_interval() -> None:
    launch = factory.launch(64)
    assert launch.predicted is not None and launch.recommendation is not None
    then = replace(launch.recommendation.latency, us=233.5, low_us=222.0, high_us=270.0, coverage=0.8)
    launch = replace(launch, recommendation=replace(launch.recommendation, latency=then))
    result = replace(factory.result((64,), ("w13",)), launches=(launch,))
    words = said(result)
    for latency in (launch.predicted, then):
        assert f"{figures.microseconds(latency.us)} {figures.interval(latency)} " in words.split("P(≥10 %)")[1]
    assert "Recommended: 233.5 µs predicted 222.0–270.0 µs (80 % interval)" in words
    shown = figures.with_interval(launch.predicted.us, launch.predicted), "233.5 µs −5/+16 %"
    assert [markdown.to_markdown(result).count(f"{each} predicted") for each in shown] == [1, 1]
    assert "takes 233.5 µs −5/+16 % (predicted, " in to_text(result)


def test_a_size_can_be_held_against_its_source_and_a_chance_is_never_certain() -> None:
    result = factory.result((64,), ("w13",))
    assert result.launches[0].recommendation is not None
    figure = replace(result.gpu_figures[0], name="smem_bytes_per_cta", value=232448)
    sure = replace(result.launches[0], recommendation=replace(result.launches[0].recommendation, p_speedup_10pct=0.999))
    words = said(replace(result, gpu_figures=(figure,), launches=(sure,)))
    assert "smem_bytes_per_cta 232,448" in words
    assert "P(at least 10 % faster) >99 %" in words
    assert [figures.probability(p) for p in (None, 0.0, 0.001, 0.5, 0.999, 1.0)] == ["-", "0 %", "<1 %", "50 %", ">99 %", "100 %"]


def test_the_bound_of_a_kernels_own_work_is_none_for_other_kernels() -> None:
    """What was counted in the code of one kernel says nothing of another for the same problem."""
    closed = factory.result((64,), ("w13",))
    assert said(closed).count("no kernel can be faster") == 2
    (launch,) = closed.launches
    counted = said(replace(closed, launches=(replace(launch, bound=replace(launch.bound, origin="predicted")),)))
    assert "no kernel can be faster" not in counted and counted.count("the work of this code cannot be done faster") == 2


def test_a_single_launch_has_one_name_everywhere_and_changes_nothing_that_is_not_known() -> None:
    result = factory.result((64,), ("w13",))
    (launch,) = result.launches
    problem = replace(launch.problem, sizes={"stride_am": 2048, "M": 64})
    unset = replace(launch, problem=problem, configuration=None, measured=None)
    words = said(replace(result, launches=(unset,)))
    assert "to sort by it. M now µs" in words
    assert "128 changed" not in words and "32 changed" not in words
    assert "32 changed" in said(result)


def test_lines_of_a_chart_differ_in_more_than_colour() -> None:
    part = group(factory.result().launches)[0]
    latency = charts.latency_over_sizes(part, 1)
    assert latency is not None
    dashes = {series.name: series.dash for series in latency.series if series.kind == "line"}
    assert len({dashes[name] for name in ("bound", "tunable ceiling", "predicted")}) == 3
    for chart in charts.rooflines([part]):
        roofs = [series for series in chart.series if series.colour.startswith("roof-")]
        assert len(roofs) == len({series.dash for series in roofs}) > 1
        drawn = re.findall(r'class="line s-roof-[a-z0-9]+( dash| dot|)"', svg.draw(chart))
        assert {"", " dash", " dot"} <= set(drawn)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("come from DRAM (give --cache cold).", "--cache"),
        ("give --expert-parallel or --top-k", "--top-k"),
        ("88 % of the rows", "88 %"),
        ("it may be −10/+35 % off", "−10/+35 %"),
        ("1.27 GB through the L2", "1.27 GB"),
        ("saves 12.3 µs", "12.3 µs"),
        ("at <5 % of it", "5 %"),
    ],
)
def test_a_line_ends_neither_in_an_option_nor_before_a_unit(text: str, whole: str) -> None:
    shown = str(prose(text))
    assert f'<span class="together">{whole}</span>' in shown
    assert html.unescape(re.sub("<[^>]+>", "", shown)) == text, "what is copied is what was said"


def test_prose_is_no_markup() -> None:
    assert str(prose("<b>--x & 5 %\x1b")) == '&lt;b&gt;<span class="together">--x</span> &amp; <span class="together">5 %</span>\\x1b'
    assert str(prose("`a<b --x`, 5 %")) == '<code>a&lt;b <span class="together">--x</span></code>, <span class="together">5 %</span>'
    assert '-o f.csv <span class="together">--</span> python' in prose("-o f.csv -- python")
    assert max(map(len, re.findall('"together">([^<]*)', str(prose("9" * 50_000 + " % --" + "a" * 50_000))))) < 40
    for text in ("a--b", "1 Big", "M=1 GPU", "x - y"):
        assert "together" not in prose(text)


def test_where_nothing_was_searched_nothing_is_said_to_have_been() -> None:
    """Of a compiled kernel all configurations that are listed were looked at, and none was measured."""
    whole = factory.result((64,), ("w13",), searched=True)
    assert '<h2 id="search-title">Search</h2>' in page.to_html(whole)
    listed = [replace(trial, latency_us=None) for trial in whole.searches[0].trials]
    found = page.to_html(replace(whole, searches=(replace(whole.searches[0], trials=tuple(listed), study_name=None),)))
    assert '<h2 id="search-title">Configurations looked at</h2>' in found and '<a href="#search">Configurations</a>' in found
    assert f"<dd>{len(listed)}, none measured</dd>" in found and "with a latency" not in found
    failed = page.to_html(replace(whole, searches=(replace(whole.searches[0], trials=tuple(listed), study_name="a-study"),)))
    assert '<h2 id="search-title">Search</h2>' in failed and "with a latency" in failed, "all its trials failed"


def test_the_roof_of_the_vector_units_is_that_of_fp32() -> None:
    (launch,) = factory.result((64,), ("w13",)).launches
    on_fma = replace(
        launch,
        pipelines=tuple(replace(p, pipeline="fma") if p.pipeline == "tensor" else p for p in launch.pipelines if p.pipeline != "fma"),
    )
    assert launch.problem.dtype == "bf16"
    for one, name in ((launch, "tensor peak bf16: "), (on_fma, "fma peak fp32: ")):
        (chart,) = charts.rooflines(group((one,)))
        assert chart.series[0].name.startswith(name)


def test_times_that_look_at_odds_are_explained() -> None:
    """A pipeline's time is not demand / throughput, and what lies furthest from its ceiling is not what a change wins most in."""
    text = page.to_html(factory.result((64, 256), ("w13",)))
    assert "A time is that of the busiest SM" in text and "ALU and issue are estimates, and in no bound" in text
    assert "The launch with most to win comes first" in text


def test_every_chart_has_a_table_and_a_drawing_for_each_width() -> None:
    text = page.to_html(factory.result((1, 64, 1024), measured=True, searched=True))
    charts = re.findall(r'<figure class="chart">.*?</figure>', text, re.DOTALL)
    assert len(charts) == 4 + 2  # w13, w2, roofline, best so far, and two slices
    for chart in charts:
        rows = len(re.findall(r'<th scope="row">', chart))
        drawings = re.findall(r'<svg class="static ?(wide|narrow|)".*? data-at="(.*?)"', chart)
        assert [style for style, _ in drawings] in (["wide", "narrow"], [""])  # a slice is small on any screen
        assert all(len(places.split(";")) == rows for _, places in drawings), "a tooltip says what its row says"


def test_findings_have_the_promised_anchors() -> None:
    document = Document(page.to_html(factory.result((64,))))
    assert "finding-w13-M64-expert-padding" in document.ids
    assert "finding-table-hole-in-table" in document.ids


def test_launch_with_the_least_known_is_shown() -> None:
    result = factory.result((1, 64), ("w13",))
    bare = tuple(
        replace(
            launch,
            configuration=None,
            pipelines=(),
            predicted=None,
            ceiling=None,
            ceiling_configuration=None,
            occupancy=None,
            efficiency=None,
            headroom=None,
            p_speedup_10pct=None,
            gap=(),
            findings=(),
            passed_rules=(),
            recommendation=None,
        )
        for launch in result.launches
    )
    document = Document(page.to_html(replace(result, launches=bare, actions=(), table_findings=())))
    assert "No rule found anything to change" in document.words()


def test_faster_than_bound_is_a_fault_and_never_more_than_all() -> None:
    result = factory.result((64,), ("w13",), measured=True)
    launch = result.launches[0]
    assert launch.measured is not None
    fast = replace(
        launch,
        measured=replace(launch.measured, us=0.5 * launch.bound.us, low_us=None, high_us=None),
        efficiency=2.0,
        faults=("measured 99.3 µs is below the bound 198.6 µs: a fault of the model or of the measurement",),
    )
    verdict = replace(result.verdict, percent_of_ceiling=226.0, current_us=99.3)
    words = Document(page.to_html(replace(result, launches=(fast,), verdict=verdict))).words()
    assert "Faults of the model or of the measurement" in words
    assert "below the bound" in words
    assert not re.search(r"\b(?:1[0-9][1-9]|[2-9]\d\d) %", words)


def test_a_launch_with_a_remedy_is_not_told_that_nothing_is_known() -> None:
    result = factory.result((64,), ("w13",))
    (launch,) = result.launches
    kept = replace(result, launches=(replace(launch, recommendation=None),), actions=())
    assert "nothing is ranked before it" in Document(page.to_html(kept)).words()  # though the ceiling lies below
    best = replace(launch, recommendation=None, ceiling=launch.measured or launch.predicted)
    assert "nothing better known" in Document(page.to_html(replace(kept, launches=(best,)))).words()
    action = next(each for each in result.actions if each.rule)
    told = Document(page.to_html(replace(kept, actions=(replace(action, launches=(launch.id,)),)))).words()
    assert "nothing better known" not in told and "nothing is ranked" not in told and "see what to change" in told


def test_page_loads_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from rendering import factory\n"
        "from advisor.rendering import page\n"
        "result = factory.result()\n"
        "page.to_html(result)\n"
        "print('optuna' in sys.modules or 'torch' in sys.modules)\n"
    )
    root = Path(__file__).resolve().parent.parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "tests")])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False"]


def test_measurements_that_were_given_are_not_denied() -> None:
    given = factory.result((1, 64), measured=True)
    given = replace(given, fingerprint=replace(given.fingerprint, mode="offline"))
    said = "nothing was run for this report; what is measured was given to it"
    assert page.to_html(given).count(said) == 2  # in the head and in the fingerprint
    assert "offline: nothing was run<" in page.to_html(factory.result((1,)))
    text = markdown.to_markdown(given)
    assert said in text and "what is *measured* was given to it" in text


def test_trials_are_counted_in_whole_numbers() -> None:
    whole = factory.result((64,), ("w13",), searched=True)
    search = replace(whole.searches[0], trials=whole.searches[0].trials[:2])
    chart = charts.best_so_far(search, 1)
    assert chart is not None
    assert ">0.5<" not in svg.draw(chart) and ">1<" in svg.draw(chart)


def test_slices_of_a_search_are_charts_of_the_page() -> None:
    search = factory.result((64,), ("w13",), searched=True).searches[0]
    blocks, stages = charts.slices(search, 1)
    assert blocks.x_names == ("16", "32", "64", "128"), "in the order of the numbers" and stages.x_title == "num_stages"
    done = [trial for trial in search.trials if trial.latency_us is not None]
    assert len(blocks.rows) == len(stages.rows) == len(done)
    assert blocks.rows[0] == (str(done[0].configuration.parameters["BLOCK_SIZE_M"]), f"{done[0].latency_us:.4g}", str(done[0].number))
    assert charts.slices(replace(search, trials=()), 1) == []


def test_an_axis_of_any_span_has_marks_enough_to_read_it() -> None:
    assert svg.ticks(145, 235, True) == [160, 180, 200, 220]
    assert svg.ticks(1, 99, True) == [1, 2, 5, 10, 20, 50]


def test_token_counts_are_written_in_full() -> None:
    [part] = group(factory.result((1024, 12288, 16384, 1048576), ("w13",)).launches)
    chart = charts.latency_over_sizes(part, 1)
    assert chart is not None
    drawn = svg.draw(chart)
    assert ">12288<" in drawn or ">16384<" in drawn  # one of two that would touch
    assert ">1048576<" in drawn


def test_a_recommended_point_stands_at_its_own_intensity() -> None:
    launch = factory.launch(64)
    advice = launch.recommendation
    assert advice is not None
    memory = {part.pipeline: part.demand for part in launch.pipelines if part.pipeline in figures.MEMORY_PIPELINES}
    halved = replace(launch, recommendation=replace(advice, demand={name: value / 2 for name, value in memory.items()}))
    [chart] = charts.rooflines(group((halved,)))
    points = {series.name.split(",")[0]: series.x for series in chart.series if series.kind == "points"}
    assert points["recommended"][0] == pytest.approx(2 * points["now"][0])
    [unknown] = charts.rooflines(group((launch,)))
    assert "recommended" not in [series.name for series in unknown.series]
    assert unknown.rows[0][-1] == "unknown"


def test_without_a_configuration_there_is_no_share_of_the_ceiling() -> None:
    result = factory.result((64,), ("w13",))
    launch = replace(result.launches[0], configuration=None, recommendation=None)
    found = verdict((launch,), ())
    assert found.percent_of_ceiling == 0.0 and found.current_us > 0
    unset = replace(result, launches=(launch,), verdict=found, actions=())
    document = Document(page.to_html(unset))
    assert "the configuration is not set" in document.words() and "tunable ceiling takes" not in document.words()
    assert "tuning can win" not in to_text(unset)
    assert "| unknown |" in markdown.to_markdown(unset)


def test_the_slowest_pipeline_binds_the_configuration() -> None:
    """What takes longest and yet little of the time binds nothing: it is the highest."""
    launch = replace(factory.launch(64), binding_pipeline="tensor", config_binding_pipeline="l2")
    busy_us = next(part.time_us for part in launch.pipelines if part.pipeline == "l2")
    for now_us, mark in ((1.2 * busy_us, "binding now"), (3 * busy_us, "highest now")):
        timed = replace(launch, measured=None, predicted=replace(launch.predicted, us=now_us))
        result = replace(factory.result((64,), ("w13",)), launches=(timed,))
        words = Document(page.to_html(result)).words()
        assert f"l2 {mark}" in words and "tensor sets the bound" in words


def test_where_the_start_of_programs_takes_longest_all_tables_say_so_and_how_many_start() -> None:
    launch = factory.launch(64)
    pipelines = tuple(replace(part, time_us=80.0) if part.pipeline == "launch" else part for part in launch.pipelines)
    limited = replace(launch, pipelines=pipelines, binding_pipeline="dram", config_binding_pipeline="launch")
    result = replace(factory.result((64,), ("w13",)), launches=(limited,))
    words, ctas = Document(page.to_html(result)).words(), launch.occupancy.ctas
    assert f"{ctas:,} programs 1 launch {80_000 / ctas:.2g} ns each" in words and "1 launch fixed" not in words
    assert "1 launch 1 launch fixed" in Document(page.to_html(factory.result((64,), ("w13",)))).words()
    assert "| launch |" in markdown.to_markdown(result)
    assert re.search(r"\d+ % launch \d", words[words.index("P(≥10") :][:200]), "the table of all sizes"


def test_what_the_power_limit_takes_no_better_kernel_is_promised():
    plain = factory.result()
    held = replace(
        plain,
        launches=tuple(
            replace(each, gap=(GapPart(cause="power", us=each.ceiling.us - each.bound.us, origin="predicted"),)) for each in plain.launches
        ),
    )
    promise, limit = "a better kernel could win it", "mostly out of reach, for the board"
    assert promise in page.to_html(plain) and limit not in page.to_html(plain)
    assert promise not in page.to_html(held) and limit in page.to_html(held)


def test_an_action_for_every_launch_does_not_list_them() -> None:
    """Sixteen links to all there is are no help; of a few, each is one."""
    result = factory.result(tuple(1 << i for i in range(5)))
    assert len(result.launches) == 10
    ids, action = tuple(launch.id for launch in result.launches), result.actions[0]
    shown = {count: page.to_html(replace(result, actions=(replace(action, launches=ids[:count]),))) for count in (9, 10)}
    assert "touches all 10 launches</p>" in shown[10] and "touches 9 of 10 launches:\n<a" in shown[9]


def test_no_text_on_a_screen_is_smaller_than_twelve_pixels() -> None:
    """Paper is no screen: what is printed has sizes of its own."""
    sheets = "".join((ROOT / "reports" / name).read_text(encoding="utf-8") for name in ("page.css", "comparison.css"))
    screen = re.sub(r"@media print \{.*?\n\}", "", sheets, flags=re.DOTALL)
    sizes = [float(size) for size in re.findall(r"font(?:-size)?:[^;{}]*?\b(\d+(?:\.\d+)?)px", screen)]
    assert len(sizes) > 40 and min(sizes) >= 12


def test_the_first_action_stands_above_the_figures_and_its_configuration_stands_once() -> None:
    result = factory.result((64,), ("w13",))
    text = page.to_html(result)
    assert text.index("<h1") < text.index('class="actions first"') < text.index('class="tiles"') < text.index('class="note assumptions"')
    shown = re.sub(r'href="data:[^"]*"', "", text)
    assert shown.count(html.escape(result.actions[0].snippet, quote=False).replace('"', "&#34;")) == 1


def test_the_waterfall_runs_from_bound_to_predicted_with_the_ceiling_as_a_line() -> None:
    (view,) = launch_views(factory.result((64,), ("w13",)), Anchors())
    names = [step.name for step in view.steps]
    assert names[0] == "Bound" and names[-1] == "Predicted" and "Tunable ceiling" not in names
    assert view.ceiling_at is not None and 0 < view.ceiling_at < 100


def test_a_kernel_without_a_size_has_no_time_on_the_page_either() -> None:
    """Its figures are those of one program."""
    result = unsized("advisor advise k.py --arg n=…")
    document = Document(page.to_html(result))
    assert {"verdict", "change", "provenance"} <= {*document.ids} and {"time", "roofline", "all-sizes"}.isdisjoint(document.ids)
    targets = {value[1:] for tag, name, value in document.attributes if name == "href" and value.startswith("#")}
    assert targets <= {*document.ids}
    assert not re.search(r"\d µs predicted", " ".join(document.text))
