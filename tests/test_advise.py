"""From a target to a result: what is recommended for a table can be launched, and is right."""

from __future__ import annotations

import json

import pytest

from advisor.advise import advise
from advisor.configs.audit import audit_table
from advisor.learned import load_predictor
from advisor.targets import Request, table_target

ENTRY = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 2}


def written(folder, name, entries):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(entries))
    return path


@pytest.mark.parametrize(
    "name",
    [
        "E=256,N=256,device_name=NVIDIA_B200,dtype=fp8_w8a8,block_shape=[128, 128].json",
        "E=512,N=320,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[64,64].json",
        "N=576,K=5120,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[32, 32].json",
        "E=128,N=768,device_name=NVIDIA_A100-SXM4-80GB,block_shape=[64,64].json",  # int8
    ],
)
def test_the_audit_finds_no_fault_in_what_is_recommended(tmp_path, name):
    tokens = (1, 64, 4096)
    path = written(tmp_path, name, {str(m): ENTRY for m in tokens})
    result = advise(table_target(path, Request(assume=True)), load_predictor(), command="")
    [export] = [export for export in result.exports if export.kind == "table"]
    path.write_text(export.content)
    table, issues = audit_table(path)
    assert table is not None
    assert {issue.check for issue in issues} & {"wrong-scales", "clamped-block-k", "does-not-fit"} == set()
    deepest = [launch.ceiling_configuration.parameters["BLOCK_SIZE_K"] for launch in result.launches if launch.ceiling_configuration]
    assert max(deepest) <= table.name.block_shape[1]
