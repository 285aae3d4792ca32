"""What a tuning cache says of a problem is checked before any model sees it."""

from __future__ import annotations

import json

import pytest

from advisor.cli import main

from .reports import EXPORT, edited


@pytest.mark.parametrize("size", ["1e30", str(10**30), "1.5", "0", "NaN"])
def test_sizes_that_no_tensor_has_get_no_bound(size, tmp_path, capsys):
    document = json.loads(EXPORT.read_text(encoding="utf-8"))
    problem = next(each for each in document["problems"] if each["key"].startswith("(4096, 4096, 4096"))
    path = edited(tmp_path, "problem", problem["problem"].replace('"M":4096', f'"M":{size}'))
    assert main(["advise", str(path), "--output", str(tmp_path / "out"), "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    (tuned,) = [each for each in result["tuned"] if each["key"].startswith("(4096, 4096, 4096")]
    assert tuned["launch"] is None and "size M of" in tuned["note"] and "2147483647" in tuned["note"]
