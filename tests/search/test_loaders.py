"""Tables that `tune` and `advise` export are read by the stacks' own loaders, taken from their wheels as files of their own: importing a
whole serving stack would need a GPU. Skipped where a stack is neither installed nor unpacked where ADVISOR_VLLM or ADVISOR_SGLANG says.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from advisor.cli import main
from advisor.gpus.hardware import list_gpus
from tests.search.test_tune_command import TABLE, tune

VLLM = ("model_executor/layers/fused_moe/fused_moe.py",)
SGLANG = (
    "srt/layers/moe/moe_runner/triton_utils/fused_moe_triton_config.py",  # 0.5.23
    "srt/layers/moe/fused_moe_triton/fused_moe_triton_config.py",  # before
)


@pytest.fixture
def exported(tmp_path) -> Path:
    assert tune(tmp_path, "--trials", "6", "--export", str(tmp_path / "tables"), tokens="16,64") == 0
    return tmp_path / "tables" / TABLE


class Stub(types.ModuleType):
    """A module of which every name exists and does nothing."""

    __path__ = ()  # a package: modules below it may be imported

    def __getattr__(self, name: str) -> MagicMock:
        if name.startswith("__"):
            raise AttributeError(name)
        value = MagicMock(name=name)
        setattr(self, name, value)
        return value


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for every module of one package."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        mine = name.split(".")[0] == self.package
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if mine else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None: ...


@contextmanager
def loader(package: str, files: tuple[str, ...]) -> Iterator[types.ModuleType]:
    """The first of the package's files that is there, executed among stubs of the rest of the package."""
    folder = os.environ.get(f"ADVISOR_{package.upper()}")
    found = importlib.util.find_spec(package)
    roots = [Path(folder)] if folder else [Path(p) for p in (found.submodule_search_locations or [])] if found else []
    path = next((root / file for root in roots for file in files if (root / file).is_file()), None)
    if path is None:
        pytest.skip(f"{package} is not installed, and ADVISOR_{package.upper()} names no folder with {files[0]}")
    finder = Stubs(package)
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == package}
    sys.meta_path.insert(0, finder)
    try:
        spec = importlib.util.spec_from_file_location(f"{package}_loader", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] == package]:
            del sys.modules[name]
        sys.modules.update(before)


def entries(table: Path) -> dict[int, dict[str, int]]:
    return {int(key): entry for key, entry in json.loads(table.read_text()).items()}


def test_vllm_loads_the_table(exported):
    with loader("vllm", VLLM) as stack:
        stack.envs.VLLM_BATCH_INVARIANT = False
        stack.envs.VLLM_TUNED_CONFIG_FOLDER = str(exported.parent)
        stack.get_device_name_as_file_name = lambda: "NVIDIA_H200"
        assert stack.get_moe_configs(128, 768, None) == entries(exported)


def test_sglang_loads_the_table(exported, monkeypatch):
    with loader("sglang", SGLANG) as stack:
        folder = exported.parent / "configs" / f"triton_{stack.triton.__version__.replace('.', '_')}"
        folder.mkdir(parents=True)
        (folder / exported.name).write_text(exported.read_text())
        monkeypatch.setenv("SGLANG_MOE_CONFIG_DIR", str(exported.parent))
        stack.get_device_name = lambda: "NVIDIA H200"
        if hasattr(stack, "get_exec"):
            stack.get_exec().deterministic.enable_deterministic_inference = False
        assert stack.get_moe_configs(128, 768, None) == entries(exported)


LAYER = ((128, 704, 4096), (128, 4096, 352), 8, "fp8_w8a8")
"""Shapes of w13 and w2, top-k and type of GLM-4.5-Air on four GPUs, as the stacks ask for a configuration."""
TOKENS = (1, 5, 64, 700, 4096, 10**5)


def no_override(*modules: str) -> None:
    """Nobody has set a configuration for all launches."""
    for name in modules:
        importlib.import_module(name).get_config = lambda: None  # type: ignore[attr-defined]


def predicted(folder: Path, block: list[int] | None) -> Path:
    """The folder, with what the README's command writes into it."""
    command = "advise fused_moe --model GLM-4.5-Air --tensor-parallel 4 --gpu H200 --dtype fp8 --tokens 1,64,4096"
    shape = ["--block-shape", ",".join(map(str, block))] if block else []
    assert main([*command.split(), *shape, "--export", str(folder), "--output", str(folder / "out")]) == 0
    return folder


def nearest(entries: dict[int, dict[str, int]], tokens: int) -> dict[str, int]:
    return entries[min(entries, key=lambda each: abs(each - tokens))]


@pytest.mark.parametrize("block", [None, [128, 128]])
def test_vllm_asks_for_a_predicted_table(block, tmp_path):
    with loader("vllm", VLLM) as stack:
        folder = predicted(tmp_path, block)
        no_override("vllm.model_executor.layers.fused_moe")
        stack.envs.VLLM_BATCH_INVARIANT = False
        stack.envs.VLLM_TUNED_CONFIG_FOLDER = str(folder)
        stack.get_device_name_as_file_name = lambda: "NVIDIA_H200"
        written = entries(folder / stack.get_config_file_name(128, 352, "fp8_w8a8", block))
        for tokens in TOKENS:
            assert stack.try_get_optimal_moe_config(*LAYER, tokens, block) == nearest(written, tokens)


@pytest.mark.parametrize("block", [None, [128, 128]])
def test_sglang_asks_for_a_predicted_table(block, tmp_path, monkeypatch):
    with loader("sglang", SGLANG) as stack:
        folder = predicted(tmp_path, block)
        no_override("sglang.srt.layers.moe.moe_runner.triton_utils", "sglang.srt.layers.moe.fused_moe_triton")
        monkeypatch.setenv("SGLANG_MOE_CONFIG_DIR", str(folder))
        stack.get_device_name = lambda: "NVIDIA H200"
        if hasattr(stack, "get_exec"):
            stack.get_exec().deterministic.enable_deterministic_inference = False
        (version,) = (folder / "configs").iterdir()
        up, down = (
            entries(version / stack.get_config_file_name(128, 352, "fp8_w8a8", block, False, down_moe=down)) for down in (False, True)
        )
        for tokens in TOKENS:
            found = stack.try_get_optimal_moe_config(*LAYER, tokens, block_shape=block, return_down_config=True)
            assert found == (nearest(up, tokens), (nearest(down, tokens), max(each["BLOCK_SIZE_M"] for each in down.values())))


@pytest.mark.parametrize(("package", "files"), [("vllm", VLLM), ("sglang", SGLANG)])
def test_every_gpu_is_spelled_as_the_stack_does(package, files):
    with loader(package, files) as stack:
        for gpu in list_gpus():
            stack.get_device_name = lambda gpu=gpu: gpu.device_names[0]
            stack.get_device_name_as_file_name = lambda gpu=gpu: re.sub(r"[\s/]+", "_", gpu.device_names[0])  # vLLM's platform_utils.py
            ours = gpu.vllm_device_name() if package == "vllm" else gpu.sglang_device_name()
            assert stack.get_config_file_name(128, 352, None, None) == f"E=128,N=352,device_name={ours}.json"
