"""List the rules of the diagnosis: what each looks for, in one line. `advisor explain RULE` says how, and what to do about it.

examples:
  advisor rules
"""

from __future__ import annotations

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor rules`."""
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """Print the list."""
    from advisor.diagnosis.catalogue import TITLES

    if arguments.format == "json":
        print(json.dumps([{"rule": rule, "title": title} for rule, title in TITLES.items()], indent=2, ensure_ascii=False))
        return 0
    width = max(map(len, TITLES))
    for rule, title in TITLES.items():
        print(f"{rule:<{width}}  {title}")
    return 0
