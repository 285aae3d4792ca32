"""What a comparison's surfaces lead with, where they point, and what they fold."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from advisor.comparison import Options, assemble
from advisor.comparison.assembling import counts, headline
from advisor.comparison.settings import Settings
from advisor.comparison.static import judge
from advisor.rendering.comparison_files import to_annotations, to_comment, to_sarif
from advisor.rendering.comparison_words import resource_cells, the_same
from advisor.result.comparison_schema import Compared, Failure, ResourceRow, Resources, StaticSide, Subject
from advisor.result.schema import Latency

from .conftest import TABLE, entry, table
from .repository import compared_files


def held(spills):
    return Resources(origin="compiled", registers_per_thread=32, spill_bytes=spills, shared_memory_bytes=0)


def kernel(name, base=None, head=None, reason="", **more):
    rows = ()
    if base is not None or head is not None:
        sides = [held(each) if each is not None else None for each in (base, head)]
        unfinished = "no end" in reason
        rows = (ResourceRow(kernel=name, gpu="H100", label="", base=sides[0], head=sides[1], reason=reason, unfinished=unfinished),)
    return Subject(kind="kernel", title=f"k.py::{name}", path="k.py", change=more.pop("change", "modified"), resources=rows, **more)


def said(*subjects):
    return headline(subjects, *counts(subjects)).partition("; compiled resources")[0]


def test_a_headline_leads_with_what_is_certain_and_large():
    again = kernel("again", None, 0, "base: it does not compile")
    tuned = kernel("tuned", configurations_added=("a", "b"), configurations_removed=("c",), configurations=(18, 90))
    passed = kernel("passed", configurations_added=("a",), notes=("Autotuning passes over a on H100: as compiled, no CTA fits an SM.",))
    parts = said(tuned, kernel("gone", 2560, 0), kernel("new", 0, 6232), kernel("more", 8, 16), again).split("; ")
    assert [part.partition(" (")[0].partition(":")[0] for part in parts] == [
        "1 kernel compiles again",
        "New or more spills",
        "Spills gone or fewer",
        "Other configurations to tune over",
    ]
    assert parts[1].endswith("new on H100 0 → 6,232 B per thread, more on H100 8 → 16 B per thread") and "2,560 → 0 B" in parts[2]
    assert parts[3].endswith("tuned (18 → 90)")
    for counts_, words in (((1, 0), "1 → no longer tuned"), ((0, 4), "not tuned → 4")):
        alone = kernel(
            "alone", configurations_added=("a",) * counts_[1], configurations_removed=("b",) * counts_[0], configurations=counts_
        )
        assert said(alone).startswith(f"Other configurations to tune over: alone ({words})")
    assert said(passed).startswith("Other configurations to tune over: passed (1 more, 0 fewer, 1 of the new cannot launch)")


@pytest.mark.parametrize(
    ("mixes", "told"), [(({}, {}), "; instructions were not counted"), (({"alu": 3},) * 2, ", and as many instructions")]
)
def test_instructions_that_were_not_counted_are_not_the_same(mixes, told):
    """As of code for AMD's; nor are those of one side shown alone."""
    row = ResourceRow(
        kernel="k", gpu="MI300X", label="", base=replace(held(0), instruction_mix=mixes[0]), head=replace(held(0), instruction_mix=mixes[1])
    )
    assert the_same(row) == the_same(replace(row, work=0.0)) == f"the same resources{told}"  # of their code
    if mixes[0]:
        other = the_same(replace(row, head=replace(held(0), instruction_mix={"alu": 4}), work=0.0))
        assert other == "the same resources; instructions are not compared, for programs do not all do the same"
    assert resource_cells(replace(row, head=held(0))) == resource_cells(replace(row, base=held(0)))
    alone = resource_cells(replace(row, head=None))  # no count to compare with
    assert alone and not any("instructions" in name for name, _, _ in alone)


@pytest.mark.parametrize(
    ("warps", "cells"), [(64, ("16 (64 warps)", "4 (64 warps)")), (16, ("16", "4"))], ids=["larger CTAs", "as large as before"]
)
def test_resident_ctas_of_other_sizes_come_with_their_warps(warps, cells):
    """A quarter of the CTAs of four times the warps is the same occupancy."""
    sides = [replace(held(0), resident_ctas_per_sm=ctas, resident_warps_per_sm=held_warps) for ctas, held_warps in ((16, 64), (4, warps))]
    row = ResourceRow(kernel="k", gpu="H100", label="", base=sides[0], head=sides[1])
    assert ("resident CTAs per SM", *cells) in resource_cells(row)


def test_what_did_not_end_no_longer_compiles_is_not_said():
    assert "compile" not in said(kernel("slow", 0, None, "head: slow was not compiled; got no end after 20 s")).lower().replace(
        "compiled", ""
    )


def latency(us, spread):
    return StaticSide(
        configuration=None, source="", predicted=Latency(us=us, origin="predicted", source="", low_us=us / spread, high_us=us * spread)
    )


@pytest.mark.parametrize(
    ("change", "spread", "verdict"),
    [
        (1.03, 1.35, "predicted-unchanged"),
        (1.0505, 1.35, "within-doubt"),  # from 5 % on, as from 4.88 % of a logarithm
        (1.12, 1.35, "within-doubt"),
        (0.88, 1.35, "within-doubt"),
        (1.12, 1.05, "predicted-regressed"),
        (1.5, 1.35, "predicted-regressed"),
        (0.5, 1.35, "predicted-improved"),
    ],
)
def test_a_difference_within_the_models_doubt_is_no_verdict(change, spread, verdict):
    assert judge(latency(100.0, spread), latency(100.0 * change, spread), in_base=True)[0] == verdict


def assembled(*subjects, **more):
    return assemble(Compared(label="a"), Compared(label="b"), subjects, Options(), Settings(), _Named(), (), **more)


class _Named:
    name = "model"


def test_results_stand_at_the_lines_they_are_about():
    failing = kernel("bad", failures=(Failure(condition="failed", what="on H100", reason="it does not compile: 100 %", line=12),), line=7)
    found = assembled(failing, kernel("wide", 0, 64, line=30))
    results = json.loads(to_sarif(found))["runs"][0]["results"]
    assert [(each["ruleId"], each["locations"][0]["physicalLocation"]["region"]["startLine"]) for each in results] == [
        ("failed", 12),
        ("spills", 30),
    ]
    lines = to_annotations(found).splitlines()
    assert lines[0] == "::error file=k.py,line=12,title=failed::bad on H100: it does not compile: 100 %25"
    assert lines[1].startswith("::warning file=k.py,line=30,title=spills::wide with ")


def test_an_entry_of_a_table_is_pointed_at(repository, predictor):
    files = [{TABLE: table(M1=entry(), M1024=entry(block)).replace('"1024"', '\n"1024"')} for block in (64, 256)]
    (subject,) = compared_files(repository, predictor, *files).subjects
    assert {row.label: row.line for row in subject.static} == {"M=1": 1, "M=1024": 2}


def test_a_long_comment_folds_and_what_came_or_went_takes_a_line():
    came = [kernel(f"came{number}", change="added") for number in range(3)]
    found = assembled(
        *came,
        *(kernel(f"k{number}", 0, 0, notes=tuple(f"{number}{each} is long. " * 30 for each in "abcd")) for number in range(9)),
        renamed=["a → b"],
    )
    text = to_comment(found)
    assert len(text.partition("<details>")[0]) < 8_000 and text.count("<summary><code>k.py::k") >= 5
    assert "- `k.py::came1`: new\n" in text and "The same under another name or in another file: `a → b`" in text


def test_the_same_under_another_name_is_said(repository, predictor):
    text = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef one(x):\n    tl.store(x, 1)\n"
    found = compared_files(repository, predictor, {"k.py": text}, {"k.py": text.replace("one", "other")})
    assert not found.subjects and found.renamed == ("k.py::one → k.py::other",)


def test_tables_past_the_time_of_a_comparison_are_audited(repository, predictor, monkeypatch):
    monkeypatch.setenv("ADVISOR_COMPILE_LIMIT", "5,0.000001")
    (subject,) = compared_files(repository, predictor, {TABLE: table(M1=entry())}, {TABLE: table(M1=entry(32))}).subjects
    assert not subject.static and subject.notes[-1].startswith("Audited, and not predicted: the time")


def test_of_many_configurations_the_first_are_named():
    comment = to_comment(assembled(kernel("tuned", configurations_added=tuple(f"B={n}" for n in range(9)))))
    assert comment.count("`B=") == 3 and "and 6 more" in comment
