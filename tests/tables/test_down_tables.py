"""Tables of w2 beside those of w13."""

from __future__ import annotations

import json

import pytest

from advisor.tables.tables import read_table
from advisor.tables.tuned_table import entry_of_other, sibling

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
