"""Entries of tables in production were found by a search: a model that calls many of them slow is wrong about the kernel."""

from __future__ import annotations

import pytest

from advisor.advising.audit_regret import regrets
from advisor.learned import load_predictor
from advisor.learned.weights import shipped
from advisor.system.errors import AdvisorError
from advisor.tables.tables import read_table

SURE = 0.8
"""Probability that at least 10 % can be won from which on `advisor audit` reports an entry."""


def tables(folder, pattern):
    found = []
    for path in sorted(folder.rglob(pattern)):
        try:
            found.append(read_table(path))
        except AdvisorError:
            continue
    return found


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        # Block-scaled: two accumulators, and a product that waits for the scaling of the one before.
        ("N=*device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=*.json", 0.12),
        ("N=*device_name=NVIDIA_B200,dtype=fp8_w8a8,block_shape=*.json", 0.05),
        ("N=*device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=*.json", 0.10),  # two stages on ROCm
        ("E=*device_name=NVIDIA_H100_80GB_HBM3.json", 0.03),
        ("E=*device_name=NVIDIA_A100-SXM4-80GB.json", 0.03),
    ],
)
def test_few_entries_that_a_search_found_are_called_slow(corpus_dir, pattern, most):
    found = [entry for of_table in regrets(tables(corpus_dir, pattern), load_predictor(shipped())) for entry in of_table]
    assert len(found) > 100
    assert sum(entry.probability >= SURE for entry in found) <= most * len(found)
