"""The page in headless Chromium: it fits, it draws, it says nothing on the console, it asks nothing of the network."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from advisor import advise
from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.rendering import comparison_files, overview, page
from advisor.rendering.overview import Row
from advisor.rendering.step_text import step_page
from advisor.result.comparison_schema import Compared, ComparisonResult, Gate, StaticRow, StaticSide, Subject
from advisor.result.schema import Configuration
from advisor.result.step import StepResult
from advisor.steps.model_config import load_architecture
from advisor.steps.step import StepRequest, predict_step
from advisor.steps.workload import Load

from . import factory
from .browser import DRAWN_MS, FLAGS, Browser

# What only a laid-out page knows.
REPORT = """(function () {
  var root = document.documentElement;
  return {
    width: root.clientWidth, scroll: root.scrollWidth,
    drawn: Array.from(document.querySelectorAll(".static")).filter(function (each) { return each.clientHeight > 0; }).length,
    small: Array.from(document.querySelectorAll(".static text")).filter(function (text) {
      var box = text.getBoundingClientRect();
      return box.height > 0 && (box.height < 10 || box.right > text.ownerSVGElement.getBoundingClientRect().right + 1);
    }).map(function (text) { return text.textContent; }),
    sortable: document.querySelectorAll("th button").length,
    requests: performance.getEntriesByType("resource").length,
    attacked: Boolean(window.attacked),
    wide: Array.from(document.querySelectorAll("main *")).filter(function (node) {
      return node.getBoundingClientRect().right > root.clientWidth + 1 && !node.closest(".scroll, pre, nav, .plotted, svg");
    }).slice(0, 3).map(function (node) { return node.tagName + "." + node.className; }),
  };
})()"""


@pytest.fixture(scope="module")
def browser(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = Browser(chromium, tmp_path_factory.mktemp("browser"))
    yield started
    started.close()


@pytest.mark.parametrize("width", [1280, 500])
@pytest.mark.parametrize("name", ["table", "measured", "hostile"])
def test_page_fits_draws_and_is_quiet(name: str, width: int, browser: Browser) -> None:
    results = {
        "table": lambda: factory.result(),
        "measured": lambda: factory.result((1, 64, 1024), measured=True, searched=True),
        "hostile": factory.hostile,
    }
    browser.show(page.to_html(results[name]()).replace("alert(1)", "window.attacked=true"), width, height=9000)
    browser.pass_time(2 * DRAWN_MS)
    said = browser.evaluate(REPORT)
    assert said["scroll"] <= said["width"] == width, said
    assert said["wide"] == [], said
    assert said["drawn"] >= 1, said
    assert said["small"] == [], said
    assert said["sortable"] >= 8, said
    assert said["requests"] == 0, said
    assert said["attacked"] is False
    assert browser.console == []


@pytest.mark.parametrize("script", ["console.log('here')", "undefined()", "fetch('file:///nowhere')", "console.warn(1)"])
def test_what_a_page_says_on_the_console_is_heard(script: str, browser: Browser) -> None:
    browser.show(f"<script>setTimeout(function () {{ {script}; }}, 3000);</script>", 500)
    browser.pass_time(DRAWN_MS)
    assert browser.console


def measured(browser: Browser, text: str, width: int, expression: str, *, then: int | None = None) -> list[float]:
    """Numbers that a JavaScript expression gives on a page `width` wide.

    With `then` the page becomes that wide after it is drawn, and has scrollbars.
    """
    browser.show(text, width, scrollbars=then is not None)
    browser.pass_time(DRAWN_MS)
    if then is not None:
        browser.resize(then)
        # While virtual time stands still no frame may be rendered, with which the browser would send the event.
        browser.evaluate('dispatchEvent(new Event("resize"))')
        browser.pass_time(DRAWN_MS)
    return [float(number) for number in browser.evaluate(f"[].concat({expression})")]


def test_no_line_to_paste_is_cut_off(browser: Browser) -> None:
    """`# M=4` of `# M=4096` reads as a value."""
    blocks = ", ".join(f'"BLOCK_SIZE_{name}": 128' for name in ("M", "N", "K"))
    line = f'triton.Config({{{blocks}, "GROUP_SIZE_M": 16}}, num_warps=8, num_stages=4),  # M=4096, 8192, 16384'
    result = factory.result()
    actions = (replace(result.actions[0], snippet=f"{line}\n{line}"), *result.actions[1:])
    inside = 'document.querySelector(".snippet pre")'
    room, needed = measured(browser, page.to_html(replace(result, actions=actions)), 1000, f"[{inside}.clientWidth, {inside}.scrollWidth]")
    assert needed <= room


def test_every_column_of_all_sizes_is_on_a_printed_page(browser: Browser) -> None:
    paper = page.to_html(factory.result()).replace("@media print", "@media all")
    inside = 'document.querySelector("#all-sizes .scroll")'
    room, needed, pages = measured(
        browser, paper, 718, f"[{inside}.clientWidth, {inside}.scrollWidth, document.documentElement.scrollWidth]"
    )  # A4 without Chromium's margins of 1 cm
    assert needed <= room
    assert pages <= 718


def test_no_table_is_cut_off_on_paper(browser: Browser) -> None:
    result = advise("fused_moe", model="Qwen3-30B-A3B", gpu="H200", tokens=[1, 64, 4096])
    browser.print_media(True)
    browser.show(page.to_html(result), 718)
    browser.pass_time(DRAWN_MS)
    wide = """Array.from(document.querySelectorAll(".scroll")).filter(function (each) {
      return !each.closest("details:not([open])") && each.scrollWidth > each.clientWidth + 1;
    }).map(function (each) { return each.getAttribute("aria-label"); })"""
    cut = browser.evaluate(wide)
    browser.print_media(False)
    assert result.layers and cut == []


def test_rows_are_low_on_a_phone(browser: Browser) -> None:
    result = factory.result()
    source = "NVIDIA H20 datasheet, table of memory bandwidths, and a measurement of our own that agrees with it to a per cent"
    result = replace(result, gpu_figures=tuple(replace(figure, source=source) for figure in result.gpu_figures))
    highest = """["#all-sizes tbody tr", ".sources tbody tr"].map(function (rows) {
      return Math.max.apply(null, Array.from(document.querySelectorAll(rows)).map(function (row) { return row.offsetHeight; }));
    })"""
    size, figure = measured(browser, page.to_html(result), 390, highest)
    assert size < 60
    assert figure < 120


SMALLEST_PX = 320
"""Width to which a page must fold without scrolling both ways (WCAG 2, 1.4.10)."""


@pytest.mark.parametrize("width", [390, SMALLEST_PX])
def test_no_sentence_is_cut_off_on_a_phone(width: int, browser: Browser) -> None:
    """Where the time goes and what was found is read below each other there; only tables of figures alone scroll sideways."""
    result = factory.result((64, 1024), ("w13",), measured=True)
    result = replace(result, launches=tuple(replace(launch, kernel="fused_moe_kernel") for launch in result.launches))
    beyond = """[document.documentElement.scrollWidth - innerWidth].concat(
      Array.from(document.querySelectorAll("#time .scroll, #findings .scroll")).map(function (region) {
        return region.scrollWidth - region.clientWidth;
      }))"""
    open_all = "<script>document.querySelectorAll('details').forEach(function (part) { part.open = true; });</script></body>"
    text = page.to_html(result).replace("</body>", open_all)
    found = measured(browser, text, width, beyond)
    assert len(found) > 6 and max(found) <= 0
    touching = """Array.from(document.querySelectorAll(".waterfall tbody tr, .rule .finding-rows tbody tr")).map(function (row) {
      var boxes = Array.from(row.cells).filter(function (cell) { return cell.offsetWidth > 0; }).map(function (cell) {
        var text = document.createRange();
        text.selectNodeContents(cell);
        return text.getBoundingClientRect();
      });
      return boxes.filter(function (one, index) {
        return boxes.slice(index + 1).some(function (other) {
          return one.left < other.right - 1 && other.left < one.right - 1 && one.top < other.bottom - 1 && other.top < one.bottom - 1;
        });
      }).length;
    })"""
    assert max(measured(browser, text, width, touching)) == 0


def test_no_option_and_no_figure_is_torn_in_two(browser: Browser) -> None:
    """At whatever width a line of the sentence ends."""
    result = factory.result((64,), ("w13",))
    unknown = "The L2 is warm: 33 % of it holds operands of 36 launches (give --cache cold, or --expert-parallel 8); it takes 12.3 µs."
    result = replace(result, verdict=replace(result.verdict, sentence=unknown, unknowns=(unknown,)))
    browser.show(page.to_html(result), 500)
    browser.pass_time(DRAWN_MS)
    torn = """Array.from(document.querySelectorAll("h1, .note li")).flatMap(function (node) {
      var torn = [];
      var walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT), starts = [], whole = "";
      while (walker.nextNode()) { starts.push([walker.currentNode, whole.length]); whole += walker.currentNode.textContent; }
      function at(place) {
        var found = starts.filter(function (each) { return each[1] <= place; }).pop();
        var one = document.createRange();
        one.setStart(found[0], place - found[1]);
        one.setEnd(found[0], place - found[1] + 1);
        return one.getBoundingClientRect().top;
      }
      ["--cache", "--expert-parallel", "33 %", "12.3 µs"].forEach(function (words) {
        var first = whole.indexOf(words);
        if (first >= 0 && at(first) !== at(first + words.length - 1)) torn.push(words);
      });
      return torn;
    })"""
    for width in range(340, 620, 20):
        browser.resize(width)
        assert browser.evaluate(torn) == [], width


def test_every_table_of_an_overview_is_named_on_a_phone(browser: Browser) -> None:
    """The name leads to the report: beside the numbers it would be off the screen; a screen has room for both."""
    name = "E=257,N=256,device_name=NVIDIA_H20-3e,dtype=fp8_w8a8,block_shape=[128, 128]_down.json"
    rows = [
        Row(cells=(gpu, "50 %", "4,096 predicted", "2,048", "dram", "-", name), page="t/report.html", rank=(0.0, 0.5))
        for gpu in ("H20-3e", "RTX PRO 6000 Workstation")
    ]
    text = overview.to_page(rows, title="tables", command="advisor advise tables", version="1")
    said = """[document.documentElement.scrollWidth].concat(
      Array.from(document.querySelectorAll(".stacked tbody tr > *")).map(function (cell) { return cell.getBoundingClientRect().right; }),
      Array.from(document.querySelectorAll(".stacked thead")).map(function (head) { return head.offsetHeight; }))"""
    for width, headed in ((390, False), (1280, True)):
        widest, *found = measured(browser, text, width, said)
        assert widest <= width and len(found) == 2 * 7 + 1 and max(found[:-1]) <= width
        assert all((height > 0) is headed for height in found[-1:])


def test_why_a_search_stopped_has_the_width_of_its_card(browser: Browser) -> None:
    result = factory.result((64,), ("w13",), searched=True)
    result = replace(result, searches=(replace(result.searches[0], stopped_because="because " * 40),))
    said = """Array.from(document.querySelectorAll("#search dd")).map(function (cell) { return cell.offsetHeight; })"""
    assert max(measured(browser, page.to_html(result), 1400, said)) < 100


def comparison_of_a_table() -> ComparisonResult:
    """Two rows of a table: one that cannot launch, with nothing that it was, and one that is as it was."""
    launch = factory.launch(64)
    assert launch.configuration is not None
    doubled = Configuration.from_flat({name: 2 * value for name, value in launch.configuration.flat().items()})
    side = StaticSide(configuration=launch.configuration, source="table entry 64", predicted=launch.ceiling)
    row = StaticRow(
        id="M64",
        label="M=64",
        kernel="fused_moe",
        gpu="H20",
        problems=(launch.problem,),
        base=side,
        head=side,
        default=side,
        compared_with="base",
        bound=launch.bound,
        ceiling=launch.ceiling,
        change=0.0,
        verdict="predicted-unchanged",
        reason="",
        changed=False,
    )
    head = replace(side, configuration=doubled, predicted=None)
    stuck = replace(
        row,
        id="M1",
        label="M=1",
        head=head,
        verdict="cannot-launch",
        changed=True,
        reason="no CTA fits an SM (shared-memory: 960 KiB of shared memory, 307 registers per thread)",
    )
    subject = Subject(kind="table", title="table.json", path="table.json", change="modified", static=(stuck, row))
    return ComparisonResult(
        tool_version="0",
        command="",
        base=Compared(label="a"),
        head=Compared(label="b"),
        gpus=("H20",),
        predictor="analytical model",
        headline="One cannot launch",
        measured_counts={},
        static_counts={},
        measured_mean=None,
        static_mean=None,
        subjects=(subject,),
        gate=Gate(conditions=(), triggered=(), failed=False, sentence="Passed."),
    )


def test_shares_of_the_ceiling_stand_on_one_line_beside_each_other(browser: Browser) -> None:
    said = """[Math.max.apply(null, Array.from(document.querySelectorAll(".wraps")).map(function (cell) {
      return cell.lastElementChild.getBoundingClientRect().top - cell.firstElementChild.getBoundingClientRect().top;
    })), document.querySelector(".compare").offsetWidth - document.querySelector(".subject-card .scroll").clientWidth]"""
    for width in (1400, 1280):
        apart, beyond = measured(browser, comparison_files.to_page(comparison_of_a_table()), width, said)
        assert apart == 0
        assert beyond <= 0


def test_verdicts_of_a_comparison_are_on_the_screen_of_a_phone(browser: Browser) -> None:
    """Change and verdict are what it is read for, and stood beyond its edge."""
    said = """Array.from(document.querySelectorAll(".stacked tbody tr > *")).map(function (cell) {
      return cell.getBoundingClientRect().right;
    })"""
    right = measured(browser, comparison_files.to_page(comparison_of_a_table()), 390, said)
    assert len(right) >= 2 * 10 and max(right) <= 390


def test_what_is_wide_on_the_screen_is_whole_on_paper(browser: Browser) -> None:
    """A command, source lines and the rows of a comparison scroll on the screen; on A4 without Chromium's margins they are folded."""
    result = replace(factory.result(), command="advisor advise 'E=128,N=768,device_name=NVIDIA_H20.json' --tokens 1,64 " * 3)
    wide = "document.documentElement.scrollWidth"
    for text in (page.to_html(result), comparison_files.to_page(comparison_of_a_table())):
        browser.print_media(True)
        try:
            assert measured(browser, text, 718, wide)[0] <= 718
        finally:
            browser.print_media(False)


POINT = """(function () {
  var drawing = Array.from(document.querySelectorAll("#roofline .static")).find(function (each) { return each.clientWidth > 0; });
  var box = drawing.getBoundingClientRect(), view = drawing.viewBox.baseVal;
  function say(kind, x, y, type) {
    drawing.dispatchEvent(new PointerEvent(kind, { bubbles: true, pointerId: 1, pointerType: type || "mouse", button: 0,
      clientX: box.left + x * box.width / view.width, clientY: box.top + y * box.height / view.height }));
  }
  drawing.setPointerCapture = function () {};
  ACTION
})()"""


def test_a_tooltip_says_what_the_row_of_a_point_says(browser: Browser) -> None:
    browser.show(page.to_html(factory.result((1, 64, 1024), ("w13",))), 1280)
    browser.pass_time(DRAWN_MS)
    action = """var at = drawing.dataset.at.split(";")[1].split(",").map(Number);
      say("pointermove", at[0], at[1]);
      var row = drawing.closest("figure").querySelectorAll(".twin tbody tr")[1];
      var shown = Array.from(document.querySelectorAll(".tip b")).map(function (each) { return each.textContent; });
      return [getComputedStyle(document.querySelector(".tip")).display, 
              shown.every(function (text) { return row.textContent.includes(text); }), shown.length];"""
    display, same, count = browser.evaluate(POINT.replace("ACTION", action))
    assert (display, same) == ("block", True) and count >= 6


def test_a_part_of_a_chart_is_enlarged_and_all_of_it_shown_again(browser: Browser) -> None:
    browser.show(page.to_html(factory.result((1, 64, 1024), ("w13",))), 1280)
    browser.pass_time(DRAWN_MS)
    action = """var before = drawing.querySelector(".x-ticks").innerHTML, use = drawing.querySelector(".area use");
      var place = use.getAttribute("x");
      say("pointerdown", 300, 120); say("pointermove", 420, 200); say("pointerup", 420, 200);
      var moved = use.getAttribute("x"), ticks = drawing.querySelectorAll(".x-ticks text").length;
      var changed = drawing.querySelector(".x-ticks").innerHTML !== before;
      drawing.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
      return [moved !== place, changed, ticks, use.getAttribute("x") === place, drawing.querySelector(".x-ticks").innerHTML === before,
              document.querySelectorAll(".zoom-box").length];"""
    moved, changed, ticks, back, same, boxes = browser.evaluate(POINT.replace("ACTION", action))
    assert moved and changed and ticks >= 2 and back and same and boxes == 0
    assert browser.console == []


def test_a_word_is_explained_where_the_keyboard_stops(browser: Browser) -> None:
    browser.show(page.to_html(factory.result((64,), ("w13",))), 390)
    browser.pass_time(DRAWN_MS)
    said = """(function () {
      document.querySelector("#verdict abbr").focus();
      var tip = document.querySelector(".tip"), box = tip.getBoundingClientRect();
      return [tip.textContent, box.left >= 0 && box.right <= innerWidth];
    })()"""
    text, inside = browser.evaluate(said)
    assert text.startswith("The best latency that any configuration of this kernel reaches") and inside


def test_the_wide_drawing_is_printed(browser: Browser) -> None:
    browser.print_media(True)
    try:
        said = """["wide", "narrow"].map(function (style) { return document.querySelector(".static." + style).clientHeight; })"""
        wide, narrow = measured(browser, page.to_html(factory.result()), 718, said)
    finally:
        browser.print_media(False)
    assert wide > 100 and narrow == 0


def test_the_tag_of_a_finding_stays_in_view_beside_a_long_line(browser: Browser) -> None:
    from .test_source_view import with_source

    said = """(function () {
      var tag = document.querySelector(".at-line"), region = tag.closest(".scroll");
      tag.closest("details").open = true;
      return [region.getBoundingClientRect().right - tag.getBoundingClientRect().right];
    })()"""
    (room,) = measured(browser, page.to_html(with_source()), 390, said)
    assert room >= 0


def test_a_long_scope_leaves_room_for_what_was_found(browser: Browser) -> None:
    result = factory.result((64,), ("w13",))
    far = replace(result.table_findings[0], scope="k" * 180)
    said = """(function () {
      var row = Array.from(document.querySelectorAll(".finding-rows th")).find(function (head) {
        return head.textContent.startsWith("kkk");
      }).parentElement;
      return [row.offsetHeight, row.cells[0].offsetWidth, row.cells[1].offsetWidth];
    })()"""
    for width in (1400, 800):
        high, where, what = measured(browser, page.to_html(replace(result, table_findings=(far,))), width, said)
        assert high < 300 and where < 450 and what >= 260


def test_the_name_of_a_kernel_is_not_broken_on_a_phone(browser: Browser) -> None:
    result = factory.result((64, 1024), ("w13",))
    result = replace(result, launches=tuple(replace(launch, kernel="fused_moe_kernel") for launch in result.launches))
    lines = """Array.from(document.querySelectorAll(".finding-rows th a:not(.permalink)")).map(function (link) {
      var name = document.createRange();
      name.setStart(link.firstChild, 0);
      name.setEnd(link.firstChild, "fused_moe_kernel".length);
      return name.getClientRects().length;
    })"""
    assert set(measured(browser, page.to_html(result), 390, lines)) - {0} == {1}


def test_the_key_of_the_ceiling_can_be_read(browser: Browser) -> None:
    said = """[document.querySelector(".ceiling-key"), document.querySelector(".launch")].flatMap(function (node, index) {
      var style = getComputedStyle(node);
      return (index ? style.backgroundColor : style.color).match(/[0-9]+/g);
    })"""
    channels = [value / 255 for value in measured(browser, page.to_html(factory.result()), 1400, said)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    ink, card = (0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in (linear[:3], linear[3:]))
    assert (card + 0.05) / (ink + 0.05) >= 4.5  # WCAG 2, AA


def test_screenshot_can_be_taken(chromium: str, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text(page.to_html(factory.result((1, 64, 1024))), encoding="utf-8")
    picture = tmp_path / "report.png"
    subprocess.run(
        [
            chromium,
            *FLAGS,
            "--hide-scrollbars",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=1280,2000",
            "--virtual-time-budget=5000",
            f"--screenshot={picture}",
            target.as_uri(),
        ],
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert picture.stat().st_size > 50_000


def test_the_gate_of_a_comparison_is_read_in_full_on_a_phone(browser: Browser) -> None:
    from dataclasses import replace

    from advisor.comparison import Options, new_result
    from advisor.learned.analytical import AnalyticalPredictor
    from advisor.rendering.comparison_files import to_page

    found = new_result(factory.result(), Options(), AnalyticalPredictor(), "nowhere")
    sentence = f"Not passed: cannot-launch: {'E=128,N=768,device_name=NVIDIA_H200,' * 4}.json M=64."
    text = to_page(replace(found, gate=replace(found.gate, failed=True, sentence=sentence)))
    ends = '["b", "span"].map(each => document.querySelector(".gate > " + each).getBoundingClientRect().right)'
    (mark, end) = measured(browser, text, 400, ends)
    assert mark < end <= 400
    longest = 'document.querySelector(".gate > b").textContent = "▲ Gate passed, with a warning"'
    (width,) = measured(browser, text, 390, f'({longest}, [document.querySelector(".gate > span").getBoundingClientRect().width])')
    assert width > 250, "the sentence stands below a mark that leaves it no room"


@pytest.fixture(scope="module")
def step() -> StepResult:
    asked = StepRequest(model=load_architecture("Qwen3-0.6B"), load=Load(contexts=(4096,)))
    found = predict_step(asked, load_gpu("H100"), load_predictor())
    return replace(found, operators=found.operators[:4])


@pytest.mark.parametrize("width", [1280, 390])
def test_steps_fit_beside_each_other(width: int, step: StepResult, browser: Browser) -> None:
    full = replace(step, load="decode of 64 sequences, context 4,096", tokens=64, memory=replace(step.memory, kv_bytes=1e12))
    gpus = ("H20", "RTX PRO 6000 S", "B200", "MI300X", "A100")
    browser.show(step_page([replace(each, gpu=gpu) for gpu in gpus for each in (step, full)], "0"), width, height=9000)
    browser.pass_time(DRAWN_MS)
    said = browser.evaluate(REPORT)
    assert said["scroll"] <= width and said["wide"] == said["small"] == browser.console == [] and said["requests"] == 0, said
    hidden = "(function (each) { return each.scrollWidth - each.clientWidth; })(document.querySelector('main .scroll'))"
    assert width < 1280 or browser.evaluate(hidden) <= 0
