"""List the rules of the diagnosis: what each looks for, in one line. `advisor explain RULE` says how, and what to do about it."""

from __future__ import annotations

import argparse
import json

HELP = "what the diagnosis looks for"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor rules`."""
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """Print the list."""
    from advisor.diagnosis.catalogue import all_rules

    rules = all_rules()
    if arguments.format == "json":
        print(json.dumps([{"rule": rule.id, "title": rule.title} for rule in rules], indent=2, ensure_ascii=False))
        return 0
    width = max(len(rule.id) for rule in rules)
    for rule in rules:
        print(f"{rule.id:<{width}}  {rule.title}")
    return 0
