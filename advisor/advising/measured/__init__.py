"""Measured latencies that a user has, matched to the launches of a target: rows of a CSV file, or a profile."""

from advisor.advising.measured.profiles import match_file
from advisor.advising.measured.row_matching import Matched, match

__all__ = ["Matched", "match", "match_file"]
