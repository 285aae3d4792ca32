"""The share of public tables that are advised in full, whatever sample is looked at; each of the others says why."""

import runpy
from pathlib import Path

BENCH = Path(__file__).resolve().parent / "public_tables.py"


def test_each_table_is_in_full_or_says_why(corpus_dir):
    bench = runpy.run_path(str(BENCH))
    found = [bench["outcome"](path) for path in sorted(corpus_dir.rglob("*.json"))[5::67]]
    assert all(found) and found.count(bench["FULL"]) >= 0.5 * len(found)
