"""Fit the learned model to measured launches.

DATA are CSV files (or folders of them) with the columns of ROWS.csv and latency_us, sweep summaries (best_us, default_us), or the
files PipeWeave and NeuSight publish. Needs scikit-learn, LightGBM and torch (pip install 'triton-advisor[train]'); what
it writes needs numpy only.

Folders of measured operators as aiconfigurator publishes them (<gpu>/<operator>/<stack>/<version>/*.parquet; needs pyarrow) and of AITER's
tuned tables give the weights of library kernels, silicon.npz of those shipped. Rows below the bound, or 2.5 times off their neighbours, are
left out and counted on stderr.

With --library the folders give the weights of library mixture-of-experts layers instead, library.npz of those shipped and, of AITER's
tables, aiter.npz; what was said of models and GPUs left out is printed beside a crude baseline (boosted trees on sizes, format, kernel
and GPU).

With --operators they give the weights of linear and sparse attention, encoders, MLA's products and hyper-connections, operators.npz of
those shipped; what was said of models, of pairs of batch and length and of GPUs left out is printed beside the same kind of baseline. The
file is written anew after each kind; --only KIND fits single ones.

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
    parser.add_argument(
        "--operators",
        action="store_true",
        help="fit linear and sparse attention and other published operators instead: DATA are folders of measured operators, the output "
        "is ceilings/operators.npz",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="KIND",
        help='with --operators: fit this kind alone, as "DSA decode", and keep the others that the output holds (may be repeated)',
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
    from advisor.training import published_kernels
    from advisor.training.evaluate import write_card
    from advisor.training.published_kernels import is_layout
    from advisor.training.training import train

    check_writable(arguments.output)
    check_not_read(arguments.output, arguments.data)
    if arguments.steps:
        return _train_steps(arguments)
    if arguments.card:
        check_writable(arguments.card)
    if arguments.library or arguments.operators:
        return _train_layers_or_operators(arguments)
    excluded = [load_gpu(name).name for name in arguments.exclude_gpu]

    def progress(text: str) -> None:
        print(f"advisor: {text}", file=sys.stderr, flush=True)

    if all(map(is_layout, arguments.data)):
        constants = published_kernels.train(arguments.data, excluded, progress)
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
    from advisor.training.step_evaluation import train_steps

    if len(arguments.data) != 2:
        raise UsageError("--steps takes two folders", " ".join(arguments.data), "measured collectives, then measured steps", None)
    collectives, steps = arguments.data
    progress = functools.partial(print, file=sys.stderr, flush=True)
    fitted = train_steps(collectives, steps, load_predictor(), lambda text: progress(f"advisor: {text}"))
    write_text(Path(arguments.output), json.dumps(fitted, separators=(",", ":")) + "\n")
    print(f"{arguments.output}: gaps and spread of {len(fitted['gpus'])} GPUs, collectives of {len(fitted['collectives']['curves'])}")
    return 0


def _train_layers_or_operators(arguments: argparse.Namespace) -> int:
    """Fit library layers or published operators, write them, and print what was said of what was left out."""
    from advisor.cli.evaluate_command import show_splits
    from advisor.gpus.hardware import load_gpu
    from advisor.learned import weights
    from advisor.learned.library import series_model
    from advisor.learned.operators import model as operator_model
    from advisor.learned.operators.work import KINDS
    from advisor.rows import aiter, silicon
    from advisor.training.silicon import moe_library as moe_fitting
    from advisor.training.silicon import operators as operator_fitting

    option, wanted = ("--library", "moe_library") if arguments.library else ("--operators", "linear_attention, sparse_attention, …")
    readable = [silicon.is_layout(path) or (arguments.library and aiter.holds_experts(path)) for path in arguments.data]
    if not all(readable):
        folders = f"folders of <gpu>/<operator>/<stack>/<version>/*.parquet ({wanted})"
        raise UsageError(f"{option} takes folders of measured operators", " ".join(arguments.data), folders, None)
    if unknown := [kind for kind in arguments.only if kind not in KINDS or not arguments.operators]:
        raise UsageError("--only is of kinds of operators", unknown[0], f"--operators, and one of {', '.join(KINDS)}", None)
    excluded = [load_gpu(name).name for name in arguments.exclude_gpu]

    def progress(text: str) -> None:
        print(f"advisor: {text}", file=sys.stderr, flush=True)

    if arguments.library:
        layers = moe_fitting.train(arguments.data, excluded, arguments.exclude_model, progress)
        weights.save_arrays(layers.arrays(), arguments.output)
        show_splits({f"library layers: {what} left out": figures for what, figures in layers.held_out.items()})
        print(f"{arguments.output}: {len(layers.series)} series of library layers on {len(layers.measured)} GPUs")
        return 0
    chosen = tuple(dict.fromkeys(arguments.only)) or tuple(KINDS)
    arrays = dict(series_model.shipped(operator_model.FILE, dict, Path(arguments.output)) or {}) if arguments.only else {}
    arrays = {name: values for name, values in arrays.items() if name.partition("/")[0] not in chosen}
    for model in operator_fitting.train(arguments.data, excluded, chosen, progress):
        arrays |= model.arrays()
        weights.save_arrays(arrays, arguments.output)
        show_splits({f"{model.kind}: {what} left out": figures for what, figures in model.held_out.items()})
    print(f"{arguments.output}: {', '.join(sorted({name.partition('/')[0] for name in arrays}))}")
    return 0
