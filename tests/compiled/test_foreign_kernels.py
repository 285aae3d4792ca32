"""Kernels nobody here wrote: the `liger-kernel` wheel, parsed and compiled but never imported.

The folder of an unpacked wheel in ADVISOR_LIGER, or an installed `liger-kernel`.
"""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from advisor.compiled.compiler.kernel import Target
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.launches.launch import KernelLaunch, inspect_launch
from advisor.python_source.rebuild import rebuild
from advisor.python_source.source import SourceFile, read_source
from advisor.system.errors import AdvisorError

pytest.importorskip("triton")
SAMPLE = 10


def folder() -> Path:
    given = os.environ.get("ADVISOR_LIGER")
    if given:
        return Path(given)
    spec = importlib.util.find_spec("liger_kernel")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("liger-kernel is not installed (pip install liger-kernel --no-deps)")
    return Path(next(iter(spec.submodule_search_locations)))


def kernels() -> list[tuple[SourceFile, str]]:
    return [(source, name) for path in sorted(folder().rglob("*.py")) for source in [read_source(path)] for name in source.functions]


def attempt(source: SourceFile, name: str, pool: Pool) -> str:
    try:
        inspection = inspect_launch(KernelLaunch(source=source, kernel=name), Target(backend="cuda", arch=90), pool, sass=False)
    except AdvisorError as error:
        assert "\n" not in str(error) and "Traceback" not in str(error)
        return "failed"
    for loop in inspection.demand.loops:
        assert loop.trips == loop.trips and loop.trips < float("inf")
    return "counted"


def test_kernels_parse() -> None:
    good = Counter()  # type: ignore[var-annotated]
    for source, name in kernels():
        try:
            rebuild(source, name)
            good["yes"] += 1
        except AdvisorError:
            good["no"] += 1
    assert good["yes"] >= 0.95 * good.total()


@pytest.mark.slow
def test_a_sample_compiles() -> None:
    found = [k for k in kernels() if "_ascend" not in str(k[0].path)]
    chosen = found[:: max(1, len(found) // SAMPLE)][:SAMPLE]
    with Pool(2, timeout_s=60) as pool:
        outcomes = Counter(attempt(source, name, pool) for source, name in chosen)
    assert outcomes["counted"] >= 0.8 * len(chosen)


@pytest.mark.bench
def test_all_compile() -> None:
    found = kernels()
    with Pool(2, timeout_s=60) as pool, ThreadPoolExecutor(2) as threads:
        outcomes = Counter(threads.map(lambda k: attempt(*k, pool), found))
    print(f"liger-kernel: {outcomes['counted']} of {len(found)} kernels counted")
    assert outcomes["counted"] >= 0.8 * len(found)
