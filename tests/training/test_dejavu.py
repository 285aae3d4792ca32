"""What can launch of public sweeps, and which of their launches are learned."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.training import dejavu

HEAD = "gpu,triton,M,N,K,dtypes,BLOCK_M,BLOCK_N,BLOCK_K,GROUP_M,num_warps,num_stages,num_ctas,latency_us,min_us,max_us,status"


def row(m: int, block: int, ran: bool, dtype: str = "float16", warps: int = 4) -> str:
    status = "100,99,101,ok" if ran else ",,,failed"
    types = f"{dtype}/{dtype}/float16"
    return f"V100-PCIE-16GB,3.2.0,{m},512,512,{types},{block},{block},32,8,{warps},2,1,{status}"


def sweep(folder: Path, *rows: str) -> Path:
    with gzip.open(folder / dejavu.PRODUCTS, "wt") as file:
        file.write("\n".join([HEAD, *rows]) + "\n")
    return folder


def test_what_was_broken_off_is_counted_and_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A launch that failed where one alike ran, and the launches of a problem that all failed."""
    kept = [row(512, 64, True), row(512, 128, True), row(512, 256, False), row(512, 64, True, warps=3)]
    lost = [row(1024, 64, True), row(1024, 128, False), row(2048, 32, False)]
    assert main(["evaluate", str(sweep(tmp_path, *kept, *lost)), "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out).values()
    assert found["V100-PCIe-16GB"] == {
        "launches": 5,
        "right_percent": 80.0,  # nothing of three warps is taken
        "odd_strides": {"launches": 0, "right_percent": None},
        "refused_that_ran": 1,
        "taken_that_failed": 0,
        "broken_off": 2,
        "of_all_percent": pytest.approx(100 * 4 / 7),
    }


def test_products_of_another_type_are_not_learned_as_fp16(tmp_path: Path) -> None:
    (part,) = dejavu.read(sweep(tmp_path, row(512, 64, True), row(1024, 64, True, "float32"), row(512, 128, False)))
    assert len(part) == 1 and part.problem.sizes["M"].tolist() == [512]


def test_what_can_launch_is_known(data_dir: Path) -> None:
    """Of every GPU 99 % and more, whose tiles, buffers, registers and warps decide."""
    found = dejavu.launchability(data_dir / "dejavu")
    assert set(found) == {"A100", "H100", "MI250X", "V100-PCIe-16GB"}
    assert all(each["right_percent"] >= 99 for each in found.values()), found
    assert min(each["odd_strides"]["right_percent"] for each in found.values()) > 98
