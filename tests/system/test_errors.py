"""Numbers of things in words."""

from __future__ import annotations

import pytest

from advisor.system.errors import agree, part, several


@pytest.mark.parametrize(
    ("count", "noun", "words"),
    [
        (0, "row", "0 rows"),
        (1, "row", "1 row"),
        (2, "row", "2 rows"),
        (1, "launch", "1 launch"),
        (3, "launch", "3 launches"),
        (2, "entry", "2 entries"),
    ],
)
def test_one_thing_reads_as_one(count, noun, words):
    assert several(count, noun) == words


@pytest.mark.parametrize(
    ("count", "whole", "words"),
    [
        (1, 1, "the launch has"),
        (1, 4, "1 of 4 launches has"),
        (3, 4, "3 of 4 launches have"),
        (4, 4, "4 of 4 launches have"),
        (0, 1, "0 of 1 launch have"),
    ],
)
def test_the_verb_goes_with_the_part(count, whole, words):
    assert f"{part(count, whole, 'launch')} {agree(count, 'has', 'have')}" == words
