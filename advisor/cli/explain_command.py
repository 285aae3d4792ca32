"""Explain a rule, or a term of the reports: what it means, how it is computed, and what to do about it.

examples:
  advisor explain tail-wave
  advisor explain "tunable ceiling"
"""

from __future__ import annotations

import argparse
import difflib
import re

from advisor.system.errors import UsageError
from advisor.system.resources import glossary

CLOSE = 0.6
"""Likeness of what is suggested, as of `difflib.get_close_matches`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor explain`."""
    parser.add_argument("term", nargs="*", help="a rule's id (`advisor rules` lists them) or a term; without one, all terms")


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation."""
    from advisor.diagnosis.catalogue import TITLES, explanation

    terms = glossary()
    wanted = " ".join(arguments.term).strip().lower()
    if not wanted:
        width = max(map(len, terms))
        print("\n".join(f"{term:<{width}}  {meaning}" for term, meaning in sorted(terms.items(), key=lambda pair: pair[0].lower())))
        return 0
    rules = {rule.lower(): rule for rule in TITLES}
    spoken = {_plain(term): term for term in terms}
    entry = spoken.get(_plain(wanted))
    rule = rules.get(wanted) or rules.get(wanted.replace(" ", "-"))
    if rule is None and entry is None:
        alike = {term: _likeness(wanted, term) for term in (*rules, *terms)}
        close = [term for term in sorted(alike, key=lambda term: alike[term], reverse=True)[:3] if alike[term][0] >= CLOSE]
        remedy = f"closest: {', '.join(close)}" if close else "see `advisor explain` for all terms"
        raise UsageError("no such rule or term", wanted, "one that `advisor rules` or `advisor explain` lists", remedy)
    if entry is not None and wanted not in rules:
        print(f"{entry}: {terms[entry]}")
    if rule is not None:
        print(f"{rule}: {TITLES[rule]}\n\n{explanation(rule).strip()}")
    return 0


def _likeness(wanted: str, term: str) -> tuple[float, float]:
    """How alike the likest of a term's words, or all of it, is to what was asked for, and then all of it: 0 to 1."""
    whole, *words = (difflib.SequenceMatcher(None, wanted, part).ratio() for part in (term.lower(), *re.split("[ -]", term.lower())))
    return max(whole, *words), whole


def _plain(term: str) -> str:
    """`cta` of `CTAs`: in lower case, without blanks and plural."""
    return "".join(term.lower().split()).removesuffix("s")
