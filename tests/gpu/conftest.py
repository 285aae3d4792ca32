"""Tests that need a GPU: `pytest -m gpu tests/gpu -s`.

A borrowed machine ends a command after ten minutes, and is gone with all that lies on it: after `ADVISOR_TEST_SECONDS` (540) what is left
is skipped, so that what was found is reported, and `ADVISOR_TEST_OUTPUT` names the folder for the rows that tests measure.
"""

import os
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))


SECONDS = float(os.environ.get("ADVISOR_TEST_SECONDS") or 540)
BEGIN = time.monotonic()


def pytest_runtest_setup(item):
    """Skips what would begin after the time is up."""
    if item.get_closest_marker("gpu") and time.monotonic() - BEGIN > SECONDS:
        pytest.skip(f"the {SECONDS:g} s are over: run what is left with -k, or give more in ADVISOR_TEST_SECONDS")


@pytest.fixture
def results(tmp_path):
    """The folder for measured rows."""
    folder = Path(os.environ.get("ADVISOR_TEST_OUTPUT") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def device(monkeypatch):
    """The GPU, as torch names it."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # today's default, which Triton 3.9 wants to hear said
    torch.manual_seed(0)
    yield "cuda"
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


@pytest.fixture
def capability(device):
    """Compute capability x 10: 90 for sm_90."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor
