"""List the mixture-of-experts models that `--model` knows, with the sizes of their experts.

examples:
  advisor models
"""

from __future__ import annotations

import argparse
import dataclasses
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor models`."""
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """Print the list, the commonest first."""
    from advisor.tables.models import MODELS

    if arguments.format == "json":
        print(json.dumps([dataclasses.asdict(model) for model in MODELS], indent=2, ensure_ascii=False))
        return 0
    width = max(len(model.name) for model in MODELS)
    print(f"{'name':<{width}} {'E':>5} {'topk':>5} {'H':>6} {'N':>6}  also known as")
    for model in MODELS:
        line = f"{model.name:<{width}} {model.E:>5} {model.top_k:>5} {model.H:>6} {model.N:>6}  {', '.join(model.aliases)}"
        print(line.rstrip())
    return 0
