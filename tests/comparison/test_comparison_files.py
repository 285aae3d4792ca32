"""The answer of a comparison that has one: its first line, why, and that no check mark stands beside a predicted slowdown."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from advisor.advising.public import report_on
from advisor.comparison import Options, assemble
from advisor.comparison.assembling import counts, headline
from advisor.comparison.gate import DEFAULT, gate
from advisor.comparison.kernels.time_verdict import _near_spilling, _read_again
from advisor.comparison.settings import Settings
from advisor.comparison.static import pairs_that_went
from advisor.gpus.hardware import load_gpu
from advisor.learned.analytical import AnalyticalPredictor
from advisor.rendering.comparison_files import answer, to_comment, to_page, to_text, why
from advisor.rendering.comparison_words import compiled_cells, measuring, searching
from advisor.result.comparison_schema import Compared, ComparisonResult, ResourceRow, Resources, StaticRow, StaticSide, Subject
from advisor.result.schema import Latency
from tests.rendering import factory

from .repository import Repository, compared_files
from .test_headline import row


def side(us: float, low: float, high: float, unit: str | None = None, share: float | None = None) -> StaticSide:
    latency = Latency(us=us, origin="predicted", source="model", low_us=low, high_us=high, coverage=0.8)
    return StaticSide(configuration=None, source="compiled", predicted=latency, peak_pipeline=unit, share_of_peak=share)


def judged(before: float, after: float, gpu: str = "H100", label: str = "grid 8192") -> StaticRow:
    verdict = "predicted-improved" if after < before else "predicted-regressed"
    found = row(label, verdict, gpu, after / before - 1)
    sides = side(before, 0.9 * before, 1.1 * before, "dram", 0.16), side(after, 0.9 * after, 1.8 * after, "dram", 0.93)
    return replace(found, base=sides[0], head=sides[1])


def a_kernel(*rows: StaticRow) -> Subject:
    compiled = ResourceRow(kernel="k", gpu="H100", label="", base=None, head=None, changed=("BLOCK 128 → 4096",))
    return Subject(kind="kernel", title="k.py::k", path="k.py", change="modified", static=rows, resources=(compiled,))


def test_the_first_line_has_the_factor_the_times_and_the_change():
    subject = a_kernel(judged(253.0, 43.0))
    assert headline([subject], *counts([subject])) == (
        "Predicted about 6x faster on H100 (253.0 → 43.0 µs; 80 % intervals 227.7 to 278.3 → 38.7 to 77.4): BLOCK 128 → 4096; not measured"
    )
    cold = a_kernel(replace(judged(253.0, 43.0), problems=(replace(factory.launch(64).problem, cache="cold"),)))
    assert answer([cold]).endswith(": BLOCK 128 → 4096; cold L2 assumed, not measured")
    slower = a_kernel(judged(100.0, 120.0))
    assert answer([slower]).startswith("Predicted 20 % slower on H100 (100.0 → 120.0 µs; ")
    assert "about 2.0x slower" in answer([a_kernel(judged(100.0, 200.0))])
    untold = Subject(kind="kernel", title="k.py::other", path="k.py", change="modified")  # of which the time is not told
    assert answer([untold, subject]).startswith("Predicted k about 6x faster on H100 (")


def test_bytes_are_the_first_cause_and_spills_follow_the_time_that_counts_them():
    held = [Resources(origin="compiled", registers_per_thread=255, spill_bytes=each, shared_memory_bytes=0) for each in (0, 4)]
    reads = "reads x_ptr 3 times → once, 1.57 GB → 524 MB requested"
    subject = a_kernel(replace(judged(253.0, 43.0), cause=reads))
    for thread_bytes, spills in ((1024.0, ""), (100.0, "; New or more spills: k on H100 0 → 4 B per thread")):
        compiled = replace(subject.resources[0], base=held[0], head=held[1], thread_bytes=thread_bytes)
        line = headline(both := [replace(subject, resources=(compiled,))], *counts(both))
        assert line.startswith("Predicted about 6x") and line.endswith(f": {reads}; BLOCK 128 → 4096; not measured{spills}")


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ({"x": (300.0, 100.0), "y": (100.0, 100.0)}, {"x": (101.0, 100.0)}, "reads x 3 times → once, 300 B → 101 B requested"),
        (
            {"x": (300.0, 100.0), "r": (300.0, 100.0), "y": (200.0, 100.0)},
            {"x": (100.0, 100.0), "r": (100.0, 100.0), "y": (100.0, 100.0)},
            "reads x and r 3 times → once, 600 B → 200 B requested",
        ),
        ({"x": (100.0, 100.0)}, {"x": (200.0, 100.0)}, ""),
        ({"x": (250.0, 100.0)}, {"x": (100.0, 100.0)}, ""),
        ({"x": (100.0, 100.0)}, {"x": (100.0, 100.0)}, ""),
    ],
)
def test_a_tensor_read_again_is_named_where_it_is_read_whole_times(before, after, text):
    def demand(reads):
        accesses = [SimpleNamespace(kind="load", name=name, requested_bytes=asked, sector_ratio=1.0) for name, (asked, _) in reads.items()]
        return SimpleNamespace(accesses=accesses, likely_read_footprints={name: distinct for name, (_, distinct) in reads.items()})

    assert _read_again(demand(before), demand(after), fewer=True) == text
    more = _read_again(demand(before), demand(after), fewer=False)
    assert more == ("reads x once → twice, 100 B → 200 B requested" if after == {"x": (200.0, 100.0)} else "")


@pytest.mark.parametrize(
    ("gpu", "registers", "spilled", "near"),
    [("H100", 233, 0, True), ("H100", 233, 8, False), ("H100", 128, 0, False), ("MI300X", 233, 0, False)],
)
def test_a_thread_with_most_of_the_registers_is_near_spilling(gpu, registers, spilled, near):
    held = Resources(origin="compiled", registers_per_thread=registers, spill_bytes=spilled, shared_memory_bytes=0)
    assert ("has 233 of 255 registers" in _near_spilling(held, load_gpu(gpu))) is near


def test_a_row_has_one_cause_and_says_it_where_the_headline_does_not():
    """A finding that is new beside it need not be what takes the time."""
    finding = replace(factory.launch(64).findings[0], rule="mma-instead-of-wgmma", saving_us=None)
    slower = replace(judged(100.0, 290.0), new_findings=(finding,))
    caused = replace(slower, cause="11.3 GB → 33.9 GB requested of the L2")
    one = assembled(a_kernel(caused))
    assert "mma-instead-of-wgmma" in to_comment(assembled(a_kernel(slower))) and "mma-instead-of-wgmma" not in to_comment(one)
    saving = assembled(a_kernel(replace(caused, new_findings=(finding, replace(finding, rule="uncoalesced-access", saving_us=90.0)))))
    assert "uncoalesced-access" in to_comment(saving) and "mma-instead-of-wgmma" not in to_comment(saving)
    assert caused.cause in one.headline and to_text(one).count(caused.cause) == 1
    several = assembled(a_kernel(caused, replace(caused, id="2", label="grid 16", cause="32 CTAs on 132 SMs, before and now")))
    assert several.headline.endswith("Predicted slower: grid 8192, grid 16 (+190.0 %)"), "which of its launches"
    for text in (to_text(several), to_comment(several), re.sub(r'href="data:[^"]*"|<[^>]*>', "", to_page(several)).replace("\xa0", " ")):
        assert caused.cause in text and "32 CTAs on 132 SMs, before and now" in text


def test_two_gpus_are_one_answer_and_several_rows_are_none():
    both = a_kernel(judged(253.0, 43.0), judged(200.0, 50.0, "H200"))
    assert " on H100 (253.0 → " in answer([both]) and " and about 4x faster on H200 (200.0 → " in answer([both])
    assert answer([a_kernel(judged(253.0, 43.0), judged(20.0, 50.0, "H200"))]) == "", "one way on each"
    assert answer([a_kernel(judged(253.0, 43.0), judged(253.0, 43.0))]) == "", "two of one GPU"
    assert answer([a_kernel(row("grid 1", "within-doubt"))]) == "" == answer([])


def test_a_change_within_doubt_is_the_answer_and_why_says_how_often_such_pairs_went_that_way():
    reason = f"{pairs_that_went(-0.195)}; 22.8 GB → 11.5 GB requested of the L2"
    doubtful = replace(judged(2334.0, 1880.0), verdict="within-doubt", reason=reason, cause="22.8 GB → 11.5 GB requested of the L2")
    subject = a_kernel(doubtful)
    text = headline([subject], *counts([subject]))
    assert text.startswith(
        "Faster or slower is not certain on H100: −19.5 % predicted, less than the model's doubt of ±22 % (2,334 → 1,880 µs; 80 % "
    )
    assert text.endswith(": 22.8 GB → 11.5 GB requested of the L2; BLOCK 128 → 4096; not measured")
    assert why([subject]).startswith("Of 100 pairs of configurations predicted so far apart 76 were measured that way on an H100. Before: ")
    plain = a_kernel(replace(doubtful, reason="±22 % is what such a prediction can tell; 22.8 GB → 11.5 GB requested of the L2"))
    assert why([plain]).startswith("Before: "), "the headline has the doubt"
    other = replace(a_kernel(), title="k.py::other")
    assert answer([subject, other]).startswith("Faster or slower is not certain in k on H100: −19.5 % predicted, ")
    mixed = a_kernel(doubtful, judged(253.0, 43.0, "H200"))
    assert answer([mixed]).startswith("Predicted about 6x faster on H200 (253.0 → 43.0 µs; ")
    assert ", while faster or slower is not certain on H100: −19.5 % predicted, less than the model's doubt of ±22 %" in answer([mixed])
    nearer = a_kernel(replace(judged(100.0, 98.0), verdict="within-doubt"))
    assert answer([nearer]) == "" and headline([nearer], *counts([nearer])).endswith(
        " of k on H100; −2.0 % predicted, less than the model's doubt of ±22 %: measure both sides to know"
    )
    several = [nearer, replace(nearer, static=(replace(judged(100.0, 103.0), verdict="within-doubt"),))]
    assert "2 changes predicted, −2.0 % to +3.0 %, all less than the model's doubt of ±22 % or more: " in headline(
        several, *counts(several)
    )


def assembled(*subjects: Subject) -> ComparisonResult:
    return assemble(*(Compared(label=name) for name in "ab"), subjects, Options(), Settings(), AnalyticalPredictor(), ())


def test_the_tile_of_what_is_within_doubt_says_what_is():
    doubtful = replace(judged(100.0, 98.0), verdict="within-doubt")
    for found, words in (
        (assembled(a_kernel(doubtful)), "predicted change is"),
        (assembled(*2 * [a_kernel(doubtful)]), "predicted changes are"),
    ):
        assert f'<p class="level ">{words} less than the model&#39;s doubt</p>' in to_page(found)


def test_a_change_that_is_too_near_has_its_reason_above_the_rows():
    reason = "no difference that counts is predicted: both read and write as much, at 88 % of DRAM's peak or more; 1 MB requested of the L2"
    alike = side(100.0, 90.0, 110.0, "dram", 0.88), side(101.0, 90.0, 110.0, "dram", 0.88)
    subject = a_kernel(replace(judged(100.0, 101.0), verdict="within-doubt", reason=reason, base=alike[0], head=alike[1]))
    assert why([subject]) == (
        "No difference that counts is predicted: both read and write as much, at 88 % of DRAM's peak or more."
        " Before and now: memory-bound at 88 % of DRAM's peak."
    )
    assert why([subject, subject]) == "", "of several rows each has its own"


@pytest.mark.parametrize("verdict", ["within-doubt", "predicted-regressed", "cannot-tell"])
def test_what_the_l2_holds_is_said_once_above_the_rows(verdict):
    warm = replace(judged(100.0, 103.0), verdict=verdict, problems=(replace(factory.launch(64).problem, cache="warm"),))
    for rows in ((warm,), (warm, replace(warm, id="2"))):
        found = assembled(a_kernel(*rows))
        for text in (to_text(found), re.sub(r'href="data:[^"]*"', "", to_page(found))):
            assert text.count("warm L2") == (verdict != "cannot-tell"), text


def held(registers: int, ctas: int, warps: int, limiter: str | None = None, **mix: int) -> Resources:
    return Resources(
        origin="compiled",
        registers_per_thread=registers,
        spill_bytes=0,
        shared_memory_bytes=0,
        resident_ctas_per_sm=ctas,
        resident_warps_per_sm=ctas * warps,
        limiter=limiter,
        instruction_mix=mix,
    )


def test_of_other_numbers_of_warps_all_of_a_cta_are_counted_and_a_barrier_once():
    code = held(29, 2, 32, alu=73, shared=2, synchronisation=1), held(52, 4, 8, alu=174, shared=2, synchronisation=1)
    compiled = ResourceRow(kernel="k", gpu="H100", label="", base=code[0], head=code[1], work=4.0, changed=("num_warps 32 → 8",))
    assert compiled_cells(compiled)[1] == [
        ("alu instructions (for the same work)", "2,336", "1,392"),
        ("shared instructions (for the same work)", "64", "16"),
    ]
    assert "in the code of all warps of a CTA (for the same work)" in to_text(
        found := assembled(replace(a_kernel(), resources=(compiled,)))
    )
    assert '<th scope="col">of all warps of a CTA</th>' in to_page(found) and "in the code of all warps of a CTA" in to_comment(found)
    larger = replace(compiled, head=replace(code[1], resident_warps_per_sm=4 * 64), work=1.0)  # twice the warps, for twice the work
    assert compiled_cells(larger)[1][-1] == ("synchronisation instructions", "1", "0.5")


@pytest.mark.parametrize(("limiter", "grid"), [(None, ""), ("grid", ", as many as the grid has")])
def test_resident_warps_say_more_than_registers_and_whether_the_grid_limits_them(limiter, grid):
    compiled = replace(a_kernel().resources[0], base=held(29, 1, 32, limiter), head=held(52, 1, 8, limiter), changed=("num_warps 32 → 8",))
    subject = replace(a_kernel(replace(judged(100.0, 98.0), verdict="within-doubt")), resources=(compiled,))
    assert headline([subject], *counts([subject])).startswith(f"num_warps 32 → 8 of k on H100 (resident warps per SM 32 → 8{grid}); ")
    assert compiled_cells(compiled)[0][-1][0] == "resident CTAs per SM" + " (as many as the grid has)" * bool(limiter)
    alike = replace(compiled, head=held(52, 4, 8, limiter))
    assert "(registers 29 → 52)" in headline([replace(subject, resources=(alike,))], *counts([subject]))


@pytest.mark.parametrize(
    ("path", "kind", "verdict", "steps"),
    [
        ("k.py", "kernel", "within-doubt", "advisor record --contents all -o $side.jsonl -- $PROGRAM && advisor measure $side.jsonl::k"),
        ("E=8,a b.json", "table", "within-doubt", "advisor measure 'E=8,a b.json'"),
        ("k.py", "kernel", "predicted-improved", ""),
    ],
)
def test_measuring_is_a_command_for_both_revisions_where_predictions_cannot_tell(path, kind, verdict, steps):
    sides = [Compared(label=name, revision=name * 40) for name in "ab"]
    subject = replace(a_kernel(row("grid 1", verdict)), kind=kind, path=path)
    found = assemble(*sides, [subject], Options(), Settings(), AnalyticalPredictor(), ())
    assert (
        measuring(found)[-2:]
        == [
            f"for side in {'a' * 12} {'b' * 12}; do git checkout --quiet $side && {steps} -o $side.csv || break; done",
            f"advisor compare {'a' * 12}.csv {'b' * 12}.csv",
        ]
    ) is bool(steps)
    assert ("To measure both sides" in to_text(found)) is ("To measure both sides" in to_comment(found)) is bool(steps)
    assert measuring(replace(found, base=replace(sides[0], revision=None))) == []


def test_what_limits_both_sides_is_the_second_line():
    assert why([a_kernel(judged(253.0, 43.0))]) == (
        "Before: no unit is above 16 % of its peak (highest: DRAM). Now: memory-bound at 93 % of DRAM's peak."
    )
    unknown = judged(253.0, 43.0)
    assert unknown.base is not None
    assert why([a_kernel(replace(unknown, base=replace(unknown.base, peak_pipeline=None)))]) == ""
    l2 = replace(unknown, head=side(43.0, 40.0, 50.0, "l2", 0.7))
    assert why([a_kernel(l2)]).endswith(" Now: L2-bound at 70 % of the L2's peak.")
    in_trips = replace(unknown, base=replace(unknown.base, trips_in_turn=512))
    assert why([a_kernel(in_trips)]).startswith(
        "Before: latency-bound at 16 % of DRAM's peak: 512 trips of a loop, 0.49 µs each, in turn. Now:"
    )
    programs = replace(unknown, base=side(624.5, 569.0, 699.0, "launch", 0.99))
    assert why([a_kernel(programs)]).startswith("Before: bound by the start of its programs: each does too little. Now: ")


def test_a_gate_that_passes_names_what_is_predicted_slower():
    passed = gate([a_kernel(judged(100.0, 120.0))], DEFAULT)
    assert not passed.failed
    assert passed.sentence.endswith("Predicted slower, which does not gate: k.py::k grid 8192 on H100 (+20.0 %).")
    assert "does not gate:" not in gate([a_kernel(judged(120.0, 100.0))], DEFAULT).sentence


HEAD = """import torch
import triton
import triton.language as tl


@triton.jit
def gather(ids_ptr, table_ptr, out_ptr, stride_table, stride_out, hidden, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    token = tl.load(ids_ptr + row)
    for start in range(0, hidden, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(table_ptr + token * stride_table + cols, mask=cols < hidden, other=0.0)
        tl.store(out_ptr + row * stride_out + cols, x, mask=cols < hidden)


def run(ids, table):
    tokens, hidden = ids.numel(), table.shape[1]
    out = torch.empty((tokens, hidden), dtype=torch.bfloat16, device=table.device)
    gather[(tokens,)](ids, table, out, table.stride(0), out.stride(0), hidden, BLOCK=SIZE, num_warps=8)
    return out
"""


@pytest.fixture(scope="module")
def widened(tmp_path_factory):
    pytest.importorskip("triton")
    sides = [{"k.py": HEAD.replace("SIZE", block)} for block in ("128", "4096")]
    repository = Repository(tmp_path_factory.mktemp("widened"))
    return compared_files(repository, AnalyticalPredictor(), *sides, compiling=True), compared_files(
        repository, AnalyticalPredictor(), *reversed(sides), compiling=True
    )


def test_a_comparison_says_what_advise_says_of_the_same_launch(widened, tmp_path):
    """Rows that are gathered are other rows for each index, for both: that they follow one another would be too fast."""
    (tmp_path / "k.py").write_text(HEAD.replace("SIZE", "4096"))
    static = widened[0].subjects[0].static[0]
    values = {"gpu": static.gpu, "arguments": ["tokens=8192", "hidden=4096"], "element": "bf16", "try_for": 0.0}
    launch = report_on(f"{tmp_path / 'k.py'}::gather", values, command="", flags=True).launches[0]
    assert static.head.predicted.us == pytest.approx(launch.predicted.us)
    assert (static.head.predicted.low_us, static.head.predicted.high_us) == pytest.approx(
        (launch.predicted.low_us, launch.predicted.high_us)
    )
    assert (static.head.peak_pipeline, static.head.share_of_peak) == (launch.peak_pipeline, pytest.approx(launch.share_of_peak))


def test_where_a_launch_is_configured_anew_the_command_that_looks_for_better_ones_is_named(widened):
    """With the sizes that the row was judged at: what wins more than the head is no part of a comparison."""
    (command,) = [line.strip() for line in to_text(widened[0]).splitlines() if line.strip().startswith("advisor advise ")]
    static = widened[0].subjects[0].static[0]
    assert command.startswith(f"advisor advise k.py::gather --gpu {static.gpu} --arg ") and "hidden=4096" in command
    assert searching(replace(widened[0], subjects=widened[0].subjects * 2)) == "", "of several kernels none is named"
    typed = replace(widened[0], command="advisor compare a b --signature 'x_ptr=*fp16, w_ptr=i8' --gpu H100 --signature=y_ptr=*fp32")
    assert searching(typed) == f"{command} --signature 'x_ptr=*fp16, w_ptr=*i8' --signature 'y_ptr=*fp32'", "which a time hangs on"
    listed = replace(widened[0].subjects[0], configurations_added=("BLOCK=4096",))
    assert searching(replace(widened[0], subjects=(listed,))) == "", "a list says itself what is looked through"


def test_the_comment_puts_times_before_what_is_compiled_and_says_where_sizes_come_from(widened):
    faster, slower = widened
    comment = to_comment(faster)
    title = comment.splitlines()[1]
    assert (
        title.startswith("### Predicted about ")
        and "x faster on " in title
        and title.endswith("; 32 → 1 trips of its loop; BLOCK 128 → 4096; warm L2 assumed, not measured")
        and ": waits for loads " in title
    )
    assert comment.index("base µs (80 % interval)") < comment.index("| compiled | base | head |")
    assert " instructions" not in comment, "of a trip of 32 and of one they are no measure"
    assert "Sizes called typical are assumed" in comment and "**4096**" not in comment and "cured" not in comment
    assert "✅ **Gate.**" in comment and "✓ Gate passed" in to_page(faster)
    assert "✅" not in to_comment(slower) and "🟠 **Gate.**" in to_comment(slower) and "✓ Gate passed" not in to_page(slower)
    assert "▲ Gate passed, with a warning" in to_page(slower)
    assert why(faster.subjects) in to_text(faster) and why(faster.subjects)


REPEATED = """import triton
import triton.language as tl


@triton.jit
def decay(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n).to(tl.float32)
    for _ in range(96):
        x = x * 0.5 + 1.5
    tl.store(y_ptr + offsets, x, mask=offsets < n)


def run(x, y):
    n = 1 << 25
    decay[(triton.cdiv(n, 512),)](x, y, n, BLOCK=512, num_warps=WARPS)
"""
"""Of 32 warps every second one works out what another does."""


@pytest.fixture(scope="module")
def repeated(tmp_path_factory):
    pytest.importorskip("triton")
    sides = [{"k.py": REPEATED.replace("WARPS", warps)} for warps in ("32", "8")]
    repository = Repository(tmp_path_factory.mktemp("repeated"))
    return [compared_files(repository, AnalyticalPredictor(), *pair, compiling=True) for pair in (sides, sides[::-1])]


def test_instructions_are_what_moves_where_issuing_them_takes_the_time(repeated):
    faster, slower = repeated
    comment = to_comment(faster)
    assert re.search(r": [\d.]+ → [\d.]+ instructions per stored element; num\\_warps 32 → 8; warm L2 ", comment.splitlines()[1])
    assert comment.index("<summary>Instructions in the code") < comment.index(" instructions \\(for the same work\\) | ")
    assert "instructions in the code" in to_text(slower) and "instructions in the code" not in to_text(faster)


def test_the_page_says_what_a_bound_covers_and_has_no_empty_columns(widened):
    page = to_page(widened[0])
    assert "certain work only" in page and "Only part of the work is certain." in page
    assert ">ceiling µs<" not in page and ">of ceiling<" not in page
