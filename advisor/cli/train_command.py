"""Fit the learned model to measured launches.

DATA are CSV files (or folders of them) with the columns of ROWS.csv and latency_us, sweep summaries (best_us, default_us), or the
files PipeWeave and NeuSight publish. Needs scikit-learn, LightGBM and torch (pip install 'triton-advisor[train]'); what
it writes needs numpy only.

Folders of measured operators as aiconfigurator publishes them (<gpu>/<operator>/<stack>/<version>/*.parquet; needs pyarrow) and of AITER's
tuned tables give the weights of library kernels, silicon.npz of those shipped. Rows below the bound, or 2.5 times off their neighbours, are
left out and counted on stderr.

With --library the folders give the weights of library mixture-of-experts layers instead, library.npz of those shipped, and what was said of
models and GPUs left out is printed beside a crude baseline (boosted trees on sizes, format, kernel and GPU).

A folder with launches.jsonl (kernels of published packages, fetched with pip and parsed) gives ceilings/kernels.json, the constants of
compiled kernels without matrix products.

examples:
  advisor train rows.csv -o mine.npz
  advisor train rows.csv -o mine.npz --exclude-gpu H20
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from pathlib import Path

from advisor.cli.options import check_not_read, check_writable, file_output, write_text
from advisor.system.errors import UsageError


def model(text: str) -> tuple[int, int, int, int]:
    """`E,topk,H,N` of a mixture-of-experts model."""
    try:
        experts, top_k, hidden, intermediate = (int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be E,topk,H,N, as in 128,8,2048,768 (got {text!r})") from None
    return experts, top_k, hidden, intermediate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor train`."""
    parser.add_argument("data", nargs="+", metavar="DATA", help="CSV files of measured rows, or folders of them")
    parser.add_argument("-o", "--output", required=True, type=file_output, metavar="WEIGHTS", help="where to write the weights (.npz)")
    parser.add_argument(
        "--steps",
        action="store_true",
        help="fit the constants of whole steps instead: DATA are the folder of measured collectives and that of measured steps, "
        "the output is ceilings/steps.json",
    )
    parser.add_argument(
        "--library",
        action="store_true",
        help="fit library mixture-of-experts layers instead: DATA are folders of measured operators, the output is ceilings/library.npz",
    )
    parser.add_argument("--card", metavar="FILE", help="write what training itself held out as a model card (Markdown)")
    parser.add_argument("--exclude-gpu", action="append", default=[], metavar="NAME", help="leave a GPU out (may be repeated)")
    parser.add_argument(
        "--exclude-model",
        action="append",
        default=[],
        type=model,
        metavar="E,topk,H,N",
        help="leave a mixture-of-experts model out (may be repeated)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Train and write."""
    from advisor.gpus.hardware import load_gpu
    from advisor.learned import weights
    from advisor.training.evaluate import write_card
    from advisor.training.published_kernels import fitting
    from advisor.training.published_kernels.launches import is_layout
    from advisor.training.training import train

    check_writable(arguments.output)
    check_not_read(arguments.output, arguments.data)
    if arguments.steps:
        return _train_steps(arguments)
    if arguments.card:
        check_writable(arguments.card)
    if arguments.library:
        return _train_library(arguments)
    excluded = [load_gpu(name).name for name in arguments.exclude_gpu]

    def progress(text: str) -> None:
        print(f"advisor: {text}", file=sys.stderr, flush=True)

    if all(map(is_layout, arguments.data)):
        constants = fitting.train(arguments.data, excluded, progress)
        write_text(Path(arguments.output), json.dumps(constants, indent=1) + "\n")
        print(f"{arguments.output}: constants of compiled kernels, fitted to launches on {', '.join(constants['gpus'])}")
        return 0
    fitted = train(arguments.data, exclude_gpus=excluded, exclude_models=arguments.exclude_model, progress=progress)
    weights.save(fitted, arguments.output)
    if arguments.card:
        write_card(arguments.output, arguments.card)
    rows = sum(fitted.about.get("rows", {}).values())
    print(f"{arguments.output}: weights {fitted.digest()}, fitted to {rows} rows of {len(fitted.about.get('gpus', []))} GPUs")
    return 0


def _train_steps(arguments: argparse.Namespace) -> int:
    """Fit the constants of whole steps and write them."""
    from advisor.learned import load_predictor
    from advisor.training.whole_steps.evaluation import train_steps

    if len(arguments.data) != 2:
        raise UsageError("--steps takes two folders", " ".join(arguments.data), "measured collectives, then measured steps", None)
    collectives, steps = arguments.data
    progress = functools.partial(print, file=sys.stderr, flush=True)
    fitted = train_steps(collectives, steps, load_predictor(), lambda text: progress(f"advisor: {text}"))
    write_text(Path(arguments.output), json.dumps(fitted, separators=(",", ":")) + "\n")
    print(f"{arguments.output}: gaps and spread of {len(fitted['gpus'])} GPUs, collectives of {len(fitted['collectives']['curves'])}")
    return 0


def _train_library(arguments: argparse.Namespace) -> int:
    """Fit library layers, write them, and print what was said of models and GPUs left out."""
    from advisor.gpus.hardware import load_gpu
    from advisor.learned import weights
    from advisor.rows import silicon
    from advisor.training.moe_library import fitting as moe_fitting

    if not all(map(silicon.is_layout, arguments.data)):
        wanted = "folders of <gpu>/moe_library/<stack>/<version>/*.parquet"
        raise UsageError("--library takes folders of measured operators", " ".join(arguments.data), wanted, None)
    excluded = [load_gpu(name).name for name in arguments.exclude_gpu]
    progress = functools.partial(print, file=sys.stderr, flush=True)
    fitted = moe_fitting.train(arguments.data, excluded, arguments.exclude_model, lambda text: progress(f"advisor: {text}"))
    weights.save_arrays(fitted.arrays(), arguments.output)
    print(f"{'left out':<10}{'group':<26}{'MAPE %':>8}{'median':>8}{'baseline':>10}{'rows':>8}")
    for what, groups in fitted.held_out.items():
        for name, figures in groups.items():
            print(f"{what:<10}{name:<26}{figures['mape']:>8.1f}{figures['median']:>8.1f}{figures['baseline']:>10.1f}{figures['rows']:>8}")
    print(f"{arguments.output}: {len(fitted.series)} series of library layers on {len(fitted.measured)} GPUs")
    return 0
