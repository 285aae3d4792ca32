"""An exported table is read by the stacks' own loaders. Skipped where vLLM or SGLang is not installed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from tests.search.test_tune_command import TABLE, tune


@pytest.fixture
def exported(tmp_path) -> Path:
    assert tune(tmp_path, "--trials", "6", "--export", str(tmp_path / "tables"), tokens="16,64") == 0
    return tmp_path / "tables" / TABLE


def installed(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


def test_vllm_loads_the_table(exported, monkeypatch):
    installed("vllm")
    from vllm.model_executor.layers.fused_moe import fused_moe

    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(exported.parent))
    monkeypatch.setattr(fused_moe.current_platform, "get_device_name", lambda *a: "NVIDIA H200", raising=False)
    fused_moe.get_moe_configs.cache_clear()
    found = fused_moe.get_moe_configs(128, 768, None)
    assert found == {int(key): entry for key, entry in json.loads(exported.read_text()).items()}


def test_sglang_loads_the_table(exported, monkeypatch):
    installed("sglang")
    from sglang.srt.layers.moe.fused_moe_triton import fused_moe_triton_config as stack

    folder = exported.parent / "configs" / f"triton_{__import__('triton').__version__.replace('.', '_')}"
    folder.mkdir(parents=True)
    (folder / exported.name).write_text(exported.read_text())
    monkeypatch.setenv("SGLANG_MOE_CONFIG_DIR", str(exported.parent))
    monkeypatch.setattr(stack, "get_device_name", lambda *a: "NVIDIA H200")
    stack.get_moe_configs.cache_clear()
    found = stack.get_moe_configs(128, 768, None)
    assert found == {int(key): entry for key, entry in json.loads(exported.read_text()).items()}
