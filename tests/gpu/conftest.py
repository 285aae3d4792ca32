"""Tests that need a GPU: `pytest -m gpu tests/gpu -s`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))


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
