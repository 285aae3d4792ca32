"""Launches of published packages: which release they are of, and the constants fitted to them."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from advisor.compiled.phases import Chain, shipped
from advisor.gpus.hardware import load_gpu
from advisor.pipelines.demand import SM_PIPELINES, Demand
from advisor.pipelines.occupancy import Resources
from advisor.system.errors import InputError
from advisor.training import published_kernels
from advisor.training.published_kernels import Release, Rows, as_defined, calibrated

KERNEL = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef k({}):\n    pass\n"


def release(folder: Path, built: str, parameters: str) -> Release:
    (folder / built / "pkg").mkdir(parents=True)
    (folder / built / "pkg" / "ops.py").write_text(KERNEL.format(parameters))
    return Release(built=date.fromisoformat(built), folder=folder / built)


def test_a_launch_is_of_the_release_that_fits_it_and_is_nearest(tmp_path: Path) -> None:
    old = release(tmp_path, "2024-01-01", "x_ptr, r_ptr, n, BLOCK: tl.constexpr")
    new = release(tmp_path, "2025-01-01", "x_ptr, rstd_ptr, n, BLOCK: tl.constexpr")
    last = release(tmp_path, "2026-01-01", "x_ptr, rstd_ptr, n, eps, BLOCK: tl.constexpr")
    signature = {"x_ptr": "*fp32", "r_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr", "num_warps": "constexpr"}
    row = {"file": "pkg/ops.py", "kernel": "k", "signature": signature, "constexprs": {"BLOCK": 64, "num_warps": 4}}
    row |= {"arguments": {"n": 3}, "tensors": {}, "contents": {}}

    def chosen(as_of: str) -> tuple[dict[str, str], str]:
        found, source = as_defined({**row, "as_of": as_of}, [old, new, last])
        return found["signature"], source.path.parent.parent.name

    assert chosen("2024-03-01")[1] == "2024-01-01"
    renamed, where = chosen("2025-02-01")  # nearer to a release with another name at the same place
    assert where == "2025-01-01" and list(renamed) == ["x_ptr", "rstd_ptr", "n", "BLOCK"]
    assert chosen("HEAD")[1] == "2024-01-01"  # none has num_warps: the oldest


def test_a_launch_says_its_release_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "pkg-1.2-py3-none-any"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "ops.py").write_text(KERNEL.format("x_ptr"))
    releases = [Release(built=date(2025, 1, 1), folder=folder), release(tmp_path, "2026-01-01", "x_ptr")]
    row = {"file": "pkg/ops.py", "kernel": "k", "signature": {"x_ptr": "*fp32"}, "constexprs": {}, "arguments": {}}
    row |= {"tensors": {}, "contents": {}, "as_of": "pkg 1.2"}
    assert as_defined(row, releases)[1].path.is_relative_to(folder)
    with pytest.raises(InputError, match="NAME VERSION"):
        as_defined({**row, "as_of": "pkg 7.0"}, releases)


@pytest.mark.parametrize(
    ("there", "name", "fetched"),
    [
        ("pkg-1.0", "", ["2.0"]),
        ("", "", ["1.0", "2.0"]),
        ("other_pkg-1.0", "", []),
        ("other_pkg-1.0", "other-pkg", ["2.0"]),
        ("", "other-pkg", ["1.0", "2.0"]),
    ],
)
def test_releases_that_a_broken_off_fetch_left_out_are_fetched(
    there: str, name: str, fetched: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for a package whose wheels were put there under another name: which of the index it is nobody says."""
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path))
    folder = tmp_path / "releases" / "pkg"
    folder.mkdir(parents=True)

    def wheel(name: str) -> None:
        with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as archive:
            archive.writestr("pkg/ops.py", KERNEL.format("x_ptr"))

    def pip(arguments: list[str], wheels: Path) -> str:
        if arguments[0] == "download":
            distribution, _, version = arguments[-1].partition("==")
            asked.append(version)
            wheel(f"{distribution}-{version}")
        return "Available versions: 1.0, 2.0\n" if arguments[0] == "index" else ""

    asked: list[str] = []
    monkeypatch.setattr(published_kernels, "_pip", pip)
    if there:
        wheel(there)
    assert len(published_kernels.releases("pkg", lambda text: None, name)) == len(fetched) + bool(there) and asked == fetched


def rows(gpu_name: str) -> Rows:
    """Launches that take what the shipped constants say."""
    gpu, n = load_gpu(gpu_name), 24
    sizes, one = np.geomspace(1e6, 1e9, n), np.ones(n)
    ctas = np.full(n, 4096.0)
    demand = Demand(
        per_cta=dict.fromkeys(SM_PIPELINES, 0 * one),
        ctas=ctas,
        launched_ctas=ctas,
        cta_load_bytes=sizes / ctas / 2,
        cta_store_bytes=sizes / ctas / 2,
        l2_bytes=sizes,
        dram_bytes=sizes,
        compulsory_bytes=sizes,
        useful_fraction=one,
        k_iterations=one,
        tensor_dtype=None,
        tensor_rate=one,
        num_stages=one,
        resources=Resources(registers=32 * one, shared_memory_bytes=0 * one, num_warps=4 * one),
    )
    chains = tuple(Chain(rounds=1.0 + i % 3, reductions=i % 2, from_dram=1.0) for i in range(n))
    made = Rows(gpu=gpu, cache="cold", kernels=tuple(f"k{i % 6}" for i in range(n)), chains=chains, demand=demand, us=one, bound_us=one)
    return replace(made, us=made.predicted_us(shipped()))


def test_the_constants_that_made_the_latencies_are_found_again() -> None:
    part = rows("A100")
    found = calibrated([part])
    assert np.abs(np.log(part.predicted_us(found) / part.us)).max() < 0.02
    low, high = found.errors["nvidia, long, known"]
    assert -0.15 < low < 0 < high < 0.15
    assert found.errors["amd, long, known"] == (3 * low, 3 * high)  # no GPU of that vendor
