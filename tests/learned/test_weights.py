"""Weights: no pickle, same bytes for the same rows, and no crash on what is not weights."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from advisor.learned import load_predictor
from advisor.learned import weights as store
from advisor.system.errors import InputError
from advisor.training.training import train

ROWS_PER_FILE = 600


def test_round_trip(weights, tmp_path):
    store.save(weights, tmp_path / "w.npz")
    again = store.load(tmp_path / "w.npz")
    assert again.digest() == weights.digest()
    assert again.about == json.loads(json.dumps(weights.about))
    with zipfile.ZipFile(tmp_path / "w.npz") as archive:
        assert all(n.endswith(".npy") for n in archive.namelist())
    np.load(tmp_path / "w.npz", allow_pickle=False)["meta"]


def test_a_path_may_be_a_string(weights, tmp_path):
    store.save(weights, tmp_path / "w.npz")
    assert load_predictor(str(tmp_path / "w.npz")) is load_predictor(tmp_path / "w.npz")
    with pytest.raises(InputError, match=r"nosuch\.npz: cannot be read \(No such file or directory\).*check the path"):
        load_predictor("nosuch.npz")


@pytest.mark.slow
def test_same_rows_same_bits(world, weights, tmp_path):
    again = train([world])
    assert again.digest() == weights.digest()
    for name, value in (("a", weights), ("b", again)):
        store.save(value, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.slow
def test_same_published_rows_same_bits(data_dir, tmp_path):
    """Two processes, with different hash seeds, on a fixed part of the published rows: every file, two GPUs, a part of the rows."""
    rows = tmp_path / "rows"
    rows.mkdir()
    for path in sorted(data_dir.glob("*.csv.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            header, *lines = stream.read().splitlines()
        kept = [line for line in lines if line.startswith(("A100,", "H800,", "H20,", "Tesla T4,"))]
        step = max(1, len(kept) // ROWS_PER_FILE)
        # Whole sweeps: a sweep's lines follow each other, so blocks of lines are taken, not every nth.
        kept = [line for i, line in enumerate(kept) if (i // 40) % step == 0]
        (rows / path.name.removesuffix(".gz")).write_text("\n".join([header, *kept]) + "\n", encoding="utf-8")
    made = []
    for seed in ("1", "2"):
        out = tmp_path / f"{seed}.npz"
        subprocess.run(
            [sys.executable, "-m", "advisor", "train", str(rows), "-o", str(out)],
            check=True,
            capture_output=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        )
        made.append(out.read_bytes())
    assert made[0] == made[1]
    assert set(store.load(tmp_path / "1.npz").about["rows"]) >= {"served", "exact", "best", "gemm/fp8", "gemm/fp32"}


@pytest.mark.slow
def test_groups_left_out_are_left_out(world):
    made = train([world], exclude_gpus=["NVIDIA L40"], exclude_models=[(8, 2, 1024, 512)])
    assert made.moe.gpus["served"] == ("A100", "H800")
    assert [8, 2, 1024, 512] not in made.about["models"]
    assert made.about["excluded_models"] == [[8, 2, 1024, 512]]


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04" + b"\0" * 50])
def test_not_weights(tmp_path, content):
    (tmp_path / "w.npz").write_bytes(content)
    with pytest.raises(InputError):
        store.load(tmp_path / "w.npz")


def test_missing_and_pickled_are_refused(tmp_path):
    with pytest.raises(InputError):
        load_predictor(tmp_path / "nothing.npz")
    np.savez(tmp_path / "p.npz", meta=np.array({"format": 1}, dtype=object))
    with pytest.raises(InputError):
        store.load(tmp_path / "p.npz")
