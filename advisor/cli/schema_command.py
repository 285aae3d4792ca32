"""Print the JSON Schema of result.json.

examples:
  advisor schema
"""

from __future__ import annotations

import argparse
import json

from advisor.result.result_json import json_schema

HELP = "the JSON Schema of result.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`advisor schema` takes no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Print it."""

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0
