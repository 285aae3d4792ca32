"""Fits that need torch: on one thread, which is given back, and a remedy where it is missing."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from advisor.system.errors import MissingDependencyError
from advisor.training.grow import fit_correction, torch_on_one_thread


def test_threads_are_given_back_after_an_error():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(ZeroDivisionError), torch_on_one_thread("this test") as lent:
            assert lent.get_num_threads() == 1
            raise ZeroDivisionError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_missing_torch_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with (
        pytest.raises(MissingDependencyError, match=r"training needs torch; pip install 'triton-advisor\[train\]'"),
        torch_on_one_thread("training"),
    ):
        pass


def line(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """A feature that half of the rows do not have, one that all have, a label; and what follows from the second."""
    x = np.linspace(-1, 1, rows)
    return np.stack([np.where(np.arange(rows) % 2, x, -20.0), x, np.zeros(rows)], axis=1), 3 * x


def test_what_rows_do_not_have_does_not_count_for_its_spread():
    pytest.importorskip("torch")
    features, target = line(400)
    plain, told = (fit_correction(features, target, 1, 2, nothing=nothing) for nothing in (None, -20.0))
    assert plain.scale[0] > 5 > 1 > told.scale[0] > 0.4
    assert abs(told.middle[0]) < 0.1


def test_rows_that_are_drawn_more_often_are_learned_better():
    pytest.importorskip("torch")
    features, target = line(400)
    both = np.concatenate([features, features]), np.concatenate([target, -target])
    odds = np.repeat([9.0, 1.0], 400)
    found = fit_correction(*both, 1, 300, batch=128, odds=odds, nothing=-20.0)(features)
    assert np.abs(found - target).mean() < 0.3 < np.abs(found + target).mean()
