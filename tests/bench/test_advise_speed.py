"""Prints what `advisor advise` takes: pytest -m bench -s tests/bench/test_advise_speed.py.

CPU seconds, so that a busy machine says the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rendering import factory

from advisor.rendering import page

pytestmark = pytest.mark.bench

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "reports" / "examples" / "E=128,N=768,device_name=NVIDIA_H20.json"


def seconds(*arguments: str) -> tuple[float, float]:
    """CPU (workers included) and wall time of a command."""
    before, start = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-m", "advisor", *arguments], check=True, capture_output=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return cpu, time.perf_counter() - start


def test_print_a_table_with_its_page(tmp_path: Path) -> None:
    runs = [seconds("advise", str(EXAMPLE), "--model", "Qwen3-30B-A3B", "--output", str(tmp_path)) for _ in range(3)]
    cpu, wall = min(runs)
    size = (tmp_path / "report.html").stat().st_size
    print(f"\n18 entries with page: {cpu:.2f} s CPU, {wall:.2f} s; page {size / 1e6:.2f} MB")


@pytest.mark.parametrize("count", [4, 8, 16, 32])
def test_print_a_folder(count: int, tmp_path: Path) -> None:
    for number in range(count):
        name = EXAMPLE.name.replace("N=768", f"N={512 + 64 * number}")
        (tmp_path / name).write_bytes(EXAMPLE.read_bytes())
    cpu, wall = seconds("advise", str(tmp_path), "--hidden-size", "2048", "--top-k", "8", "--output", str(tmp_path / "out"))
    print(f"\nfolder of {count} tables of 18 entries: {cpu / count:.2f} s CPU a table, {wall:.1f} s in all")


def test_print_pages() -> None:
    for tokens in (factory.TOKENS, tuple(range(1, 501))):
        result = factory.result(tokens)
        start = time.process_time()
        text = page.to_html(result)
        print(f"\npage of {len(result.launches)} launches: {time.process_time() - start:.2f} s CPU, {len(text.encode()) / 1e6:.2f} MB")
