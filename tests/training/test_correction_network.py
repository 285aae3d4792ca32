"""Fits that need torch: on one thread, which is given back, and a remedy where it is missing."""

from __future__ import annotations

import sys

import pytest

from advisor.system.errors import MissingDependencyError
from advisor.training.correction_network import torch_on_one_thread


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
