"""Whole mixture-of-experts layers as serving stacks launch them: what is launched, what it takes, and what was learned of it."""
