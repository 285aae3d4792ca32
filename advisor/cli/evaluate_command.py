"""Judge predictions against measured rows.

Prints errors and bias per GPU and regime, coverage of the intervals, hit rates of the ranking, and the quality of "at least 10 % can
be won". With --leave-out the model is trained anew for every group left out (whole models, or whole GPUs), which is the only honest
figure for what it was not trained on; without it, rows the weights were trained on are in the sample, and the output says so.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

HELP = "errors, coverage, ranking and diagnosis quality on measured rows"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor evaluate`."""
    parser.add_argument("data", nargs="+", metavar="DATA", help="CSV files of measured rows, or folders of them")
    parser.add_argument("--weights", metavar="FILE", help="weights that `advisor train` wrote (default: those shipped)")
    parser.add_argument("--leave-out", choices=("model", "gpu"), help="train anew with each model, or each GPU, left out")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """Evaluate and print."""
    from advisor.errors import UsageError
    from advisor.learned import evaluate as evaluation
    from advisor.learned import weights

    def progress(text: str) -> None:
        print(f"advisor: {text}", file=sys.stderr, flush=True)

    if arguments.leave_out:
        if arguments.weights:
            raise UsageError("--leave-out trains anew", "--weights", "one of the two", "leave one of them out")
        figures = evaluation.cross(arguments.data, by=arguments.leave_out, progress=progress)
    else:
        path = arguments.weights or weights.shipped()
        if path is None:
            raise UsageError("no weights are shipped with this installation", None, None, "give --weights FILE, or run `advisor train`")
        figures = evaluation.evaluate(arguments.data, weights.load(path), progress)
    if arguments.format == "json":
        print(json.dumps(figures, indent=2, default=str, allow_nan=True))
    else:
        show(figures)
    return 0


def show(figures: dict[str, Any]) -> None:
    """The figures as tables."""
    if figures.get("in_sample"):
        print("the weights were trained on models and GPUs of these rows: the figures flatter them (--leave-out does not)\n")
    heads = f"{'task':<28}{'rows':>8}{'MAPE %':>9}{'median %':>10}{'bias %':>8}"
    print(f"{heads}{'in 80 % interval':>18}{'bound alone':>13}{'below bound':>13}")
    for task, f in figures.get("tasks", {}).items():
        print(f"{task:<28}{f['rows']:>8}{f['mape_percent']:>9.2f}{f['median_percent']:>10.2f}{f['bias_percent']:>8.2f}"
              f"{f['coverage_percent']:>17.1f} {f['bound_alone']['mape_percent']:>12.1f} {f['bound_violations']:>12}")  # fmt: skip
        for gpu, g in f.get("per_gpu", {}).items():
            print(f"  {gpu:<26}{g['rows']:>8}{g['mape_percent']:>9.2f}{g['median_percent']:>10.2f}{g['bias_percent']:>8.2f}"
                  f"{g['coverage_percent']:>17.1f}")  # fmt: skip
        for regime, g in f.get("per_regime", {}).items():
            print(f"  {regime:<26}{g['rows']:>8}{g['mape_percent']:>9.2f}{g['median_percent']:>10.2f}{g['bias_percent']:>8.2f}")
    for title, key in (("ranking", "ranking"), ('"at least 10 % can be won"', "diagnosis")):
        found = figures.get(key)
        if not found:
            continue
        print(f"\n{title}")
        total = found.get("all") or {k: v for k, v in found.items() if k != "per_gpu"}
        for name, row in {"all": total, **found.get("per_gpu", {})}.items():
            shown = "  ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
            print(f"  {name:<26}{shown}")
