"""Print the JSON Schema of result.json.

examples:
  advisor schema
"""

from __future__ import annotations

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`advisor schema` takes no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    from advisor.result.result_json import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0
