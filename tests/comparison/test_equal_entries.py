"""Entries of a table that are the same on both sides: looked at once, and reported as if they had been twice."""

from __future__ import annotations

from collections import Counter

import pytest

from advisor.advising import table_report
from advisor.advising.targets import Request
from advisor.comparison import tables
from advisor.comparison.tables import table_subject
from advisor.diagnosis import diagnose

from .conftest import TABLE, entry, table

GEMM = "N=4096,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
TOO_LARGE = entry(256, 256, 128, stages=5)
BASE = table(M1=entry(16), M8=TOO_LARGE, M64=entry(64, stages=2), M256=entry(64), M2048=entry(128))
HEAD = table(M1=entry(16), M8=TOO_LARGE, M64=entry(128), M128=entry(64), M2048=entry(128))
"""M=1 and M=2048 are the same, M=8 too and launches nowhere; M=64 differs, M=256 has gone and M=128 is new: these run
with another entry on the other side."""


def compared(predictor, name, base_name=None):
    return table_subject(
        name,
        "modified",
        BASE.encode(),
        HEAD.encode(),
        request=Request(hidden_size=2048, top_k=8),
        gpus=(),
        predictor=predictor,
        base_path=base_name,
    )


@pytest.mark.parametrize("name", [TABLE, GEMM])
def test_what_is_reported_is_the_same_as_of_each_side_alone(predictor, monkeypatch, name):
    found = compared(predictor, name)
    monkeypatch.setattr(tables, "_alike", lambda old, new: False)
    assert found == compared(predictor, name)
    assert {row.label for row in found.static if row.changed} == {"M=64", "M=128"}
    assert next(row.verdict for row in found.static if row.label == "M=8") == "never-launches"


def test_no_causes_are_looked_for_of_what_did_not_change(predictor, monkeypatch):
    asked: Counter[int] = Counter()

    def counted(context):
        asked[context.M] += 1
        return diagnose(context)

    monkeypatch.setattr(table_report, "diagnose", counted)
    compared(predictor, TABLE)
    assert asked == {64: 4, 128: 4, 256: 4}  # of w13 and w2 of both sides; no launch of the other entries


def test_the_same_entries_for_another_gpu_are_another_thing(predictor):
    moved = compared(predictor, TABLE, TABLE.replace("H200", "H20"))
    here = compared(predictor, TABLE)
    assert [row.base for row in moved.static] == [row.base for row in here.static]  # both run on the head's
    assert [row.new_findings for row in moved.static] == [row.new_findings for row in here.static]
