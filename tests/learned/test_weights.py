"""Weights: no pickle, same bytes for the same rows, and no crash on what is not weights."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest

from advisor.errors import InputError
from advisor.learned import load_predictor
from advisor.learned import weights as store
from advisor.learned.training import train


def test_round_trip(weights, tmp_path):
    store.save(weights, tmp_path / "w.npz")
    again = store.load(tmp_path / "w.npz")
    assert again.digest() == weights.digest()
    assert again.about == json.loads(json.dumps(weights.about))
    with zipfile.ZipFile(tmp_path / "w.npz") as archive:
        assert all(n.endswith(".npy") for n in archive.namelist())
    np.load(tmp_path / "w.npz", allow_pickle=False)["meta"]


@pytest.mark.slow
def test_same_rows_same_bits(world, weights, tmp_path):
    again = train([world])
    assert again.digest() == weights.digest()
    for name, value in (("a", weights), ("b", again)):
        store.save(value, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


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
