"""What a configuration takes over from the one whose place it takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.gpus.hardware import load_gpu, match_device_name
from advisor.result.schema import Configuration
from advisor.tables.audit import entry_errors
from advisor.tables.names import parse_table_name
from advisor.tables.tables import read_table
from advisor.tables.tuned_table import entry_of_other, replacement, sibling

BLOCKS = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
FOUND = Configuration(parameters={**BLOCKS, "BLOCK_SIZE_N": 32}, num_warps=8)
MOE, GEMM = "E=8,N=512,device_name={}.json", "N=512,K=512,device_name={},dtype=fp8_w8a8,block_shape=[128,128].json"


@pytest.mark.parametrize(
    ("name", "device", "extra", "left"),
    [
        (MOE, "NVIDIA_H200", {"waves_per_eu": 2, "kpack": 1}, {}),
        (MOE, "AMD_Instinct_MI300X", {"waves_per_eu": 2, "maxnreg": 64}, {"waves_per_eu": 2}),
        (MOE, "AMD_Instinct_MI300X", {"matrix_instr_nonkdim": 5}, {}),
        (MOE, "AMD_Instinct_MI300X", {"matrix_instr_nonkdim": 16}, {"matrix_instr_nonkdim": 16}),
        (MOE, "NVIDIA_H200", {"SPLIT_K": 1, "USE_TMA": True}, {"SPLIT_K": 1, "USE_TMA": True}),
        (GEMM, "NVIDIA_H200", {"SPLIT_K": 2}, {}),
    ],
)
def test_an_entry_keeps_what_was_not_searched_unless_a_launch_refuses_it(
    name: str, device: str, extra: dict[str, Any], left: dict[str, Any]
) -> None:
    table = parse_table_name(name.format(device))
    gpu = match_device_name(device)
    assert gpu is not None
    today = Configuration(parameters={**extra, **BLOCKS}, num_ctas=2)
    found = replacement(FOUND, today, table=table, gpu=gpu)
    assert found.parameters == {**FOUND.parameters, **left} and list(found.parameters)[: len(left)] == list(left)
    assert (found.num_warps, found.num_ctas) == (8, 2 if gpu.vendor == "nvidia" else 1)
    assert entry_errors(found, table, gpu) == ()
    assert bool(entry_errors(today, table, gpu)) == (left != extra or gpu.vendor == "amd")


def test_an_entry_gets_what_its_kernel_asks_for() -> None:
    table, gpu = parse_table_name("vllm/E=8,N=512,device_name=AMD_Instinct_MI300X,dtype=int4_w4a16.json"), load_gpu("MI300X")
    today = Configuration(parameters=dict(BLOCKS))
    found = replacement(FOUND, today, table=table, gpu=gpu)
    assert found.parameters == {**FOUND.parameters, "SPLIT_K": 1}
    assert entry_errors(today, table, gpu) and not entry_errors(found, table, gpu)


def test_what_is_no_entry_has_parameters_of_its_own() -> None:
    today = Configuration(parameters={"BLOCK_M": 64, "EVEN": True}, num_ctas=2)
    found = Configuration(parameters={"BLOCK_M": 32})
    kept = replacement(found, today, table=None, gpu=load_gpu("H200"), searched=("num_ctas",))
    assert kept.parameters == {"BLOCK_M": 32, "EVEN": True} and kept.num_ctas == 1
    assert replacement(found, None, table=None, gpu=load_gpu("H200")) == found


@pytest.mark.parametrize(
    ("device", "ctas", "kept"), [("L40S", 4, 1), ("MI300X", 2, 1), ("H200", 3, 1), ("H200", 32, 1), ("H200", 16, 16), ("B200", 8, 8)]
)
def test_clusters_that_no_launch_has_are_not_kept(device: str, ctas: int, kept: int) -> None:
    today = Configuration(parameters=dict(BLOCKS), num_ctas=ctas)
    assert replacement(FOUND, today, table=None, gpu=load_gpu(device)).num_ctas == kept


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        (Configuration(parameters={**BLOCKS, "GROUP_SIZE_M": 8}, num_stages=5), True),
        (Configuration(parameters=BLOCKS, num_warps=8), False),
        (Configuration(parameters={**BLOCKS, "BLOCK_SIZE_M": 128}), False),
    ],
)
def test_registers_are_limited_for_the_tile_that_they_were_counted_for(found: Configuration, kept: bool) -> None:
    gpu, table = load_gpu("H200"), parse_table_name(MOE.format("NVIDIA_H200"))
    entry = Configuration(parameters={**BLOCKS, "maxnreg": 64})
    assert ("maxnreg" in replacement(found, entry, table=table, gpu=gpu).parameters) == kept
    of_kernel = Configuration(parameters=dict(BLOCKS), maxnreg=64)
    assert replacement(found, of_kernel, table=None, gpu=gpu).maxnreg == (64 if kept else None)


UP = "E=256,N=512,device_name=NVIDIA_H20-3e.json"
DOWN = "E=256,N=512,device_name=NVIDIA_H20-3e_down.json"
ENTRY = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}


def write(folder, **entries):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in entries.items():
        (folder / {"up": UP, "down": DOWN}[name]).write_text(text if isinstance(text, str) else json.dumps(text))


@pytest.mark.parametrize(("name", "other"), [(UP, DOWN), (DOWN, UP)])
def test_the_other_table_of_a_layer(tmp_path, name, other):
    write(tmp_path / "triton_3_5_1", up={"1": ENTRY}, down={"1": ENTRY})
    found = sibling(read_table(tmp_path / "triton_3_5_1" / name))
    assert found is not None and found.name.file_name() == other


@pytest.mark.parametrize(("folder", "down"), [("vllm", {"1": ENTRY}), ("triton_3_5_1", None), ("triton_3_5_1", "{")])
def test_no_other_table(tmp_path, folder, down):
    write(tmp_path / folder, up={"1": ENTRY}, **({} if down is None else {"down": down}))
    assert sibling(read_table(tmp_path / folder / UP)) is None


def test_the_nearest_entry_runs(tmp_path):
    write(tmp_path / "triton_3_5_1", up={"1": ENTRY}, down={"1": ENTRY, "64": {**ENTRY, "BLOCK_SIZE_N": 128}})
    other = sibling(read_table(tmp_path / "triton_3_5_1" / UP))
    found = entry_of_other(other, 100)
    assert found is not None
    key, entry = found
    assert (key, entry.parameters["BLOCK_SIZE_N"]) == (64, 128)
    assert entry_of_other(None, 100) is None
