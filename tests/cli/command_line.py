"""What the tests of several commands share: a table, and how to ask for advice on it."""

from __future__ import annotations

import json
from pathlib import Path

from advisor.cli import main

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "reports" / "examples" / "E=128,N=768,device_name=NVIDIA_H20.json"
ENTRY = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}
NAME = "E=128,N=768,device_name=NVIDIA_H20.json"


def table(folder: Path, body: object, name: str = NAME) -> Path:
    path = folder / name
    path.write_text(body if isinstance(body, str) else json.dumps(body), encoding="utf-8")
    return path


def advise(path: object, out: Path, *more: str) -> int:
    return main(["advise", str(path), "--hidden-size", "2048", "--top-k", "8", "--output", str(out), *more])
