"""Explain one rule: what it means, how it is computed, what to do about it, and where that comes from.

examples:
  advisor explain tail-wave
"""

from __future__ import annotations

import argparse
import difflib

from advisor.diagnosis.catalogue import TITLES, explanation
from advisor.system.errors import UsageError

HELP = "what a rule means and what to do about it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor explain`."""
    parser.add_argument("rule", help="a rule's id, as `advisor rules` lists them")


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation."""

    wanted = arguments.rule.lower()
    if wanted not in TITLES:
        close = difflib.get_close_matches(wanted, TITLES, n=3) or sorted(TITLES)[:3]
        raise UsageError("no such rule", arguments.rule, "one that `advisor rules` lists", f"closest: {', '.join(close)}")
    print(f"{wanted}: {TITLES[wanted]}\n\n{explanation(wanted).strip()}")
    return 0
