"""What a load gives of memory that the launch describes."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.compiled.ir import values
from advisor.compiled.ir.execution import loaded, not_given
from advisor.compiled.ir.values import Value


def pointer(*offsets: int, base: str = "data") -> Value:
    return Value((np.array([offsets]),), (len(offsets),), False, base)


def test_what_is_not_described_is_named() -> None:
    got = loaded([pointer(0, 1)], (2,), {})
    assert not got.known and not_given(got.reasons) == ["data"]
    nowhere = loaded([values.unknown({"anything"}, (2,))], (2,), {}, " in line 4")
    assert nowhere.reasons == {"values loaded in line 4"}


@pytest.mark.parametrize(("content", "array"), [([5, 6, 7], [7, 5]), (3, [3]), ([], [0]), ([0.5, 0.5, 0.25], [0.25, 0.5])])
def test_what_is_described_is_read(content: object, array: list[float]) -> None:
    assert loaded([pointer(2, 0)], (2,), {"data": content}).array().reshape(-1).tolist() == array


def test_of_more_than_is_described_a_list_keeps_its_last_and_an_array_is_repeated() -> None:
    for content, array in (([5, 6, 7], [6, 7, 7, 7]), (np.array([5, 6, 7]), [6, 7, 5, 6])):
        assert loaded([pointer(1, 2, 3, 4)], (4,), {"data": content}).array().reshape(-1).tolist() == array


def test_of_an_unknown_address_the_same_everywhere_is_known() -> None:
    unknown = values.unknown({"why"}, (2,), "data")
    assert loaded([unknown], (2,), {"data": [4, 4, 4]}).array().reshape(-1).tolist() == [4]
    assert loaded([unknown], (2,), {"data": [4, 4, 5]}).reasons == {"why"}


def test_masked_lanes_give_the_other_value() -> None:
    mask = values.of(np.array([[True, False]]), (2,))
    with_other = loaded([pointer(1, 900), mask, values.number(-1, (2,))], (2,), {"data": [5, 6]})
    assert with_other.array().tolist() == [[6, -1]] and with_other.certain
    without = loaded([pointer(1, 900), values.unknown({"why"}, (2,))], (2,), {"data": [5, 6]})
    assert without.known and without.assumed
