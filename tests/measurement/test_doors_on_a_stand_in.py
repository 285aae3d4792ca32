"""`advisor record`, replaying it, `advisor tune` and `@advisor.autotune` where torch finds a GPU that is none (`tests/gpu/stand_in`)."""

from __future__ import annotations

import os

import pytest

from tests import loaded
from tests.gpu import doors

pytest.importorskip("torch")
pytest.importorskip("triton")


@pytest.fixture
def environment():
    """Of processes that find the stand-in."""
    paths = [str(doors.ROOT / "tests" / "gpu" / "stand_in"), str(doors.ROOT), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("door", [doors.record_and_replay, doors.tune, doors.autotune], ids=lambda door: door.__name__)
def test_through(door, environment, tmp_path):
    door(tmp_path, environment, loaded.python())
