"""Whether an output is right: poisoned before the launch, compared with the reference after it."""

from __future__ import annotations

import math

import pytest

from advisor.measurement import launch
from advisor.measurement.launch import WrongOutputError, compare, poison

torch = pytest.importorskip("torch")


def test_poison_and_compare():
    for dtype in (torch.bfloat16, torch.float32, torch.float8_e4m3fn):
        tensor = torch.zeros(3, 5).to(dtype)
        poison(tensor)
        assert tensor.float().isnan().all()
    whole = torch.zeros(3, dtype=torch.int32)
    poison(whole)
    assert (whole == torch.iinfo(torch.int32).min).all()
    want = torch.tensor([1.0, 2.0, math.inf, math.nan, 0.0], dtype=torch.float64)
    compare(want.float(), want, 1e-3, 1e-3, "same")
    compare(torch.tensor([1.0005, 2.0, math.inf, math.nan, 1e-4]), want, 1e-3, 1e-3, "close")
    for index, value in [(0, 1.1), (1, math.nan), (2, 3.0), (2, -math.inf), (3, 0.0), (4, 1.0), (0, math.inf)]:
        got = want.clone()
        got[index] = value
        with pytest.raises(WrongOutputError, match=f"1 of 5 elements .* at {index}"):
            compare(got, want, 1e-3, 1e-3, f"{index} {value}")
    with pytest.raises(WrongOutputError, match="shape"):
        compare(torch.zeros(2), want, 1, 1, "wrong")
    compare(torch.zeros(0), torch.zeros(0), 0, 0, "empty")


def test_rows_are_compared_by_their_own_size(monkeypatch):
    """Rows of a causal attention that see few keys are much larger than the rest."""
    want = torch.full((3, 4, 8), 0.01, dtype=torch.float64)
    want[1, 2] = 5.0
    want[1, 2, 3] = 0.0
    rounded = want.clone()
    rounded[1, 2, 3] = 0.04  # 1 % of this row's rms is 0.047, of the tensor's 0.0135
    compare(rounded, want, 1e-2, 1e-2, "the large row")
    rounded[0, 0, 0] += 0.02
    with pytest.raises(WrongOutputError, match=r"1 of 96 elements .* 0.03 at 0"):
        compare(rounded, want, 1e-2, 1e-2, "a small row")
    monkeypatch.setattr(launch, "CHECK_ELEMENTS", 20)  # two rows at once, and a rest
    with pytest.raises(WrongOutputError, match=r"1 of 96 elements .* 0.03 at 0"):
        compare(rounded, want, 1e-2, 1e-2, "in pieces")
    with pytest.raises(WrongOutputError, match=r"2 of 96 elements .* at 51"):
        compare(rounded.flatten(), want.flatten(), 1e-2, 1e-2, "without rows")
