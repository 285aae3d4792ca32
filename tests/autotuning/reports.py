"""Reports on tuning caches, and the export that several tests change."""

from __future__ import annotations

import json
from pathlib import Path

from advisor.cli import main
from advisor.result.result_json import from_json

EXPORT = Path(__file__).resolve().parents[1] / "data" / "tuned-cache.json"


def advised(tmp_path, target, *more):
    """The result of `advisor advise TARGET`."""
    assert main(["advise", str(target), "-v", "--output", str(tmp_path / "out"), *more]) == 0
    return from_json((tmp_path / "out" / "result.json").read_bytes())


def edited(tmp_path, field, value):
    """The example export, its first timing of the largest gemm changed."""
    document = json.loads(EXPORT.read_text(encoding="utf-8"))
    problem = next(each for each in document["problems"] if each["key"].startswith("(4096, 4096, 4096"))
    target = problem if field in problem else problem["timings"][0]
    target[field] = value
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
