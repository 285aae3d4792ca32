"""Compiled resources: for which GPU, with which configuration."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from advisor.comparison import Options, assemble, resources
from advisor.comparison.settings import Settings
from advisor.comparison_schema import Compared, Resources, Subject
from advisor.hardware import load_gpu
from advisor.rendering.comparison_text import to_text
from advisor.schema import Configuration


@pytest.fixture
def compile_of_warps(monkeypatch):
    """Instead of a compilation: as many registers as the configuration has warps."""

    def compiled(version, name, configuration, gpu, element, problem):
        return Resources(origin="compiled", registers_per_thread=configuration.num_warps, spill_bytes=0, shared_memory_bytes=0), ""

    monkeypatch.setattr(resources, "_compile", compiled)


@pytest.mark.parametrize(("warps", "rows"), [({"H100": 4, "H200": 8}, {"H100": 4, "H200": 8}), ({"H100": 4, "H200": 4}, {"H100, H200": 4})])
def test_every_gpu_gets_its_own_configuration(compile_of_warps, predictor, warps, rows):
    """Both GPUs have one compile target; what is fastest there differs."""
    best = {name: Configuration(parameters={"BLOCK_SIZE": 512}, num_warps=count) for name, count in warps.items()}
    version = SimpleNamespace(configurations=())
    found, notes = resources.resource_rows("k", version, version, best, [load_gpu(name) for name in warps], resources.Compiling(), "bf16")
    assert {row.gpu: row.head.registers_per_thread for row in found} == rows and not notes
    assert all(f"num_warps={rows[row.gpu]}" in row.label for row in found)
    subject = Subject(kind="kernel", title="k", path="k.py", change="modified", resources=found)
    shown = assemble(Compared(label="a"), Compared(label="b"), [subject], Options(), Settings(), predictor, ())
    for gpu, count in rows.items():
        assert f"compiled for {gpu} with BLOCK_SIZE=512 num_warps={count}" in to_text(shown)
