"""What a report gives to paste."""

from __future__ import annotations

import json

import pytest

from advisor.advising import advise_target
from advisor.advising.targets import Request
from advisor.advising.targets.resolve import resolve_target
from advisor.learned import load_predictor
from advisor.tables.tables import read_table, select

NAME = "E=8,N=7168,device_name=NVIDIA_H200.json"
PREFILL = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 16, "num_warps": 8, "num_stages": 4}


@pytest.mark.parametrize("tokens", [2, 3, 512, 1000, 2048, 8192])
def test_an_added_entry_is_kept_to_its_neighbourhood(tmp_path, tokens):
    """A table with one entry runs it at every token count: a recommendation for one token is none for a thousand."""
    path = tmp_path / NAME
    path.write_text(json.dumps({"2048": PREFILL}))
    target = resolve_target(str(path), Request(model="Mixtral-8x7B", tensor_parallel=2, tokens=(1,)))
    (export,) = (each for each in advise_target(target, load_predictor(), command="").exports if each.kind == "table")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / NAME).write_text(export.content)
    before, after = read_table(path), read_table(tmp_path / "new" / NAME)
    assert select(after, 1).configuration != select(before, 1).configuration
    assert select(after, tokens).configuration == select(before, tokens).configuration
