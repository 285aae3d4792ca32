"""Dealing groups into folds."""

from __future__ import annotations

import numpy as np

from advisor.training.data import leave_out


def test_every_label_is_left_out_once():
    labels = ["b", "a", "c", "a", "d", "e", "b"]
    folds = list(leave_out(labels, 3))
    assert sorted(label for out, _ in folds for label in out) == ["a", "b", "c", "d", "e"]
    for out, mask in folds:
        assert mask.tolist() == [label in out for label in labels]
    assert np.sum([mask for _, mask in folds], axis=0).tolist() == [1] * len(labels)


def test_labels_kept_apart_meet_in_no_fold_while_there_are_enough():
    labels = list("abcdefgh")
    together = [out for out, _ in leave_out(labels, 4)]
    assert ["a", "e"] in together
    apart = {"a", "e", "h"}
    for out, _ in leave_out(labels, 4, apart):
        assert len(apart & set(out)) <= 1
    assert max(len(apart & set(out)) for out, _ in leave_out(labels, 2, apart)) == 2


def test_one_label_cannot_be_left_out():
    assert list(leave_out(["a", "a"], 3)) == []
