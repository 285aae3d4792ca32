"""`advisor record`, measuring a record, `advisor tune` and `@advisor.autotune` on a GPU."""

from __future__ import annotations

import os

import pytest

from tests.gpu import doors

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _gpu():
    if os.environ.get("ADVISOR_TEST_DEVICE", "cuda") != "cuda":
        pytest.skip("there is no GPU: tests/measurement/test_doors_on_a_stand_in.py goes through the same")
    if not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("torch sees no GPU")


def test_record_and_replay(tmp_path):
    doors.record_and_replay(tmp_path, {})


def test_tune(tmp_path):
    pytest.importorskip("optuna")
    doors.tune(tmp_path, {})


def test_autotune(tmp_path):
    doors.autotune(tmp_path, {})
