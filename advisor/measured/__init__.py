"""Measured latencies that a user has, matched to the launches of a target: rows of a CSV file, or a profile."""

from advisor.measured.profiles import match_file
from advisor.measured.rows import Matched, match

__all__ = ["Matched", "match", "match_file"]
