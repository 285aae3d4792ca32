"""Judge predictions against measured rows.

Prints errors and bias per GPU and regime, coverage of the intervals, hit rates of the ranking, and the quality of "at least 10 % can
be won", each as far as the rows allow: ranking needs near-optimal rows of sweeps, the last their summaries. Without an option the
weights are judged as they are, and rows they were trained on are told apart. The honest figures are those of groups that were left
out: --leave-out and --test-gpu train anew on the other rows; --card runs all such splits and writes the model card.

Folders of aiconfigurator's or AITER's measured operators (`advisor train --help`) are always judged on groups left out: one in five weight
matrices and layouts of heads, models of layers, each GPU, and the newest versions of the stacks; --leave-out shape, model, gpu or version,
or --test-gpu, runs one of them. --given 50,300 judges the GPU after so many of its own rows, too. Layers are judged by fewer rows and trees
than serve; folders of the stacks' tuned tables say which of them ran.

A folder of measured steps is judged with constants fitted without the GPU, and with served points and all-reduces of a folder `silicon`
beside it; its --card FILE is a text in which the table is replaced.

A folder of sweeps of a GEMM's configurations (`advisor train`) is judged by what can launch of them. The folder of this project's own
measurements, ceilings/measurements, is judged with --leave-out kernel by what is told of kernels without any row of theirs, and with
--given 300 of a GPU without any row but so many.

A folder with launches.jsonl holds measured launches of kernels of published packages: the package's releases are fetched with pip and
parsed, never run, and each launch is compiled. The constants shipped are judged; with --leave-out gpu, those fitted without the GPU judged.

examples:
  advisor evaluate tests/data/rows.csv
  advisor evaluate rows.csv --weights mine.npz --format json
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from advisor.cli.options import check_writable, positive_integers, write_text
from advisor.system.errors import InputError, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor evaluate`."""
    parser.add_argument("data", nargs="+", metavar="DATA", help="CSV files of measured rows, or folders of them")
    parser.add_argument("--weights", metavar="FILE", help="weights that `advisor train` wrote (default: those shipped)")
    parser.add_argument(
        "--leave-out",
        choices=("model", "gpu", "sweep", "shape", "nk", "version", "kernel"),
        help="train again with each group left out. Fused MoE: model, gpu, or sweep (of one GPU). Library kernels: shape, or nk "
        "(a weight matrix or row length). Measured operators: also version (the newest of each stack). Own measurements: kernel",
    )
    parser.add_argument(
        "--test-gpu",
        action="append",
        default=[],
        metavar="NAME",
        help="train again without this GPU and evaluate on it (repeat it to leave out several)",
    )
    parser.add_argument(
        "--given",
        type=positive_integers,
        default=[],
        metavar="N,…",
        help="of folders of measured operators: correct the model by so many rows of the GPU left out, as `advisor calibrate` does",
    )
    parser.add_argument("--card", metavar="FILE", help="run all splits, and write the weights' model card")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """Evaluate and print."""
    from advisor.gpus.hardware import load_gpu
    from advisor.learned import weights
    from advisor.training import dejavu, judging, silicon
    from advisor.training import evaluate as evaluation
    from advisor.training.configured_training import own_measurements
    from advisor.training.published_kernels import is_layout, judge
    from advisor.training.step_cases import is_steps_folder

    warned = set()

    def progress(text: str) -> None:
        if text in warned:  # the rows of one kind come in many parts
            return
        warned.add(text)
        print(f"advisor: {text}", file=sys.stderr, flush=True)

    if any(map(is_steps_folder, arguments.data)):
        return _evaluate_steps(arguments, progress)
    if [Path(path).resolve() for path in arguments.data] == [own_measurements().resolve()] and (
        arguments.given or arguments.leave_out == "kernel"
    ):
        figures = judging.rows_given(arguments.given) if arguments.given else judging.kernels_left_out(progress)
        return _print(figures, arguments, show_splits)
    if all(map(is_layout, arguments.data)):
        if arguments.weights or arguments.card or arguments.leave_out not in (None, "gpu"):
            raise UsageError(
                "launches of published kernels are judged by the constants shipped, or with GPUs left out", None, "--leave-out gpu"
            )
        named = [load_gpu(name).name for name in arguments.test_gpu]
        figures = judge(arguments.data, named if named or arguments.leave_out == "gpu" else None, progress)
        return _print(figures, arguments, lambda shown: show_splits({"launches of published kernels": shown}))
    if all(map(dejavu.is_layout, arguments.data)):
        return _print({f"what can launch, {path}": dejavu.launchability(path) for path in arguments.data}, arguments, show_splits)
    if arguments.leave_out == "kernel":
        raise UsageError("kernels are left out of own measurements", " ".join(arguments.data), str(own_measurements()))
    layouts = [path for path in arguments.data if silicon.is_layout(path)]
    if layouts:
        if len(layouts) < len(arguments.data):
            raise UsageError("measured operators of whole stacks are judged by themselves", " ".join(arguments.data), " ".join(layouts))
        if arguments.weights or arguments.card:
            raise UsageError(
                "measured operators are judged by models fitted anew, beside the nearest shapes measured",
                "--weights or --card",
                "neither",
                "`advisor train … -o WEIGHTS --card FILE` writes their part of the card",
            )
        chosen_gpus = [load_gpu(name).name for name in arguments.test_gpu] or None
        wanted = {"nk": ("shape",), None: ("gpu",) if chosen_gpus else silicon.SPLITS}.get(arguments.leave_out, (arguments.leave_out,))
        return _print(silicon.judge(layouts, chosen_gpus, wanted, progress, arguments.given), arguments, show_splits)
    if arguments.given:
        raise UsageError(
            "--given is of folders of measured operators", " ".join(arguments.data), "folders of aiconfigurator's", "leave it out"
        )
    workers = os.cpu_count() or 1
    chosen = [
        name
        for name, value in (("--leave-out", arguments.leave_out), ("--test-gpu", arguments.test_gpu), ("--card", arguments.card))
        if value
    ]
    if len(chosen) > 1:
        raise UsageError("each asks for splits of its own", " ".join(chosen), "one of them", "run one after the other")
    if arguments.weights and chosen in (["--leave-out"], ["--test-gpu"]):
        raise UsageError(f"{chosen[0]} trains anew", "--weights", "one of the two", "leave one of them out")
    if arguments.leave_out:
        figures = evaluation.cross(arguments.data, arguments.leave_out, progress, workers)
    elif arguments.test_gpu:
        figures = evaluation.given_split(arguments.data, arguments.test_gpu, progress)
    else:
        path = arguments.weights or weights.shipped()
        if path is None:
            raise UsageError("no weights are shipped with this installation", None, None, "give --weights FILE, or run `advisor train`")
        if arguments.card:
            check_writable(arguments.card)
            weights.load(path)  # unreadable weights are told before the hour that follows
            figures = evaluation.group_splits(arguments.data, progress, workers)
            evaluation.write_card(path, arguments.card, figures)
        else:
            figures = evaluation.evaluate(arguments.data, weights.load(path), progress)
    if arguments.card and arguments.format != "json":
        print(f"{arguments.card}: model card of {path}, {len(figures)} splits")
        return 0
    return _print(figures, arguments, show)


def _print(figures: dict[str, Any], arguments: argparse.Namespace, show: Callable[[dict[str, Any]], None]) -> int:
    """Print the figures, as JSON or in words."""
    print(json.dumps(_finite(figures), indent=2, default=_plain, allow_nan=False)) if arguments.format == "json" else show(figures)
    return 0


def _evaluate_steps(arguments: argparse.Namespace, progress: Callable[[str], None]) -> int:
    """Judge whole steps."""
    from advisor.learned import load_predictor
    from advisor.training.step_evaluation import evaluate_steps

    if len(arguments.data) > 1 or arguments.leave_out or arguments.test_gpu:
        raise UsageError(
            "a folder of measured steps is judged alone",
            " ".join(arguments.data),
            "the folder, and --weights, --card or --format",
            "run it by itself",
        )
    before, after = _around_table(Path(arguments.card)) if arguments.card else ("", "")
    figures = evaluate_steps(arguments.data[0], load_predictor(arguments.weights), progress)
    if arguments.card:
        write_text(Path(arguments.card), before + "\n".join([CARD_MARK, "", *steps_table(figures), ""]) + after)
    return _print(figures, arguments, show_steps)


def _around_table(path: Path) -> tuple[str, str]:
    """A text before the mark of its table of steps, and after the table.

    Raises:
        InputError: It has no place for one.
    """
    before, mark, after = path.read_text(encoding="utf-8").partition(CARD_MARK)
    if not mark:
        raise InputError(f"{path}: no place for the table", None, f"a line {CARD_MARK}, with the table below it", "add one")
    rest = itertools.dropwhile(lambda line: line.startswith("|"), after.lstrip("\n").splitlines(keepends=True))
    return before, "".join(rest)


CARD_MARK = "<!-- advisor evaluate STEPS --card -->"
GOALS = {
    "serving total": (4, 6),
    "serving prefill": (4, 7),
    "serving decode": (4, 7),
    "fp32 inference": (4, 5),
    "fp32 training": (4, 4),
    "torch.compile": (None, 7),
    "four GPUs": (None, 4),
    "served point": (15, 20),
}
"""Errors in percent to reach on GPUs whose operators the weights know, and on others; of served points the median."""


def steps_table(figures: dict[str, Any]) -> list[str]:
    """The errors of whole steps in percent as a Markdown table, a line each: GPUs seen and left out, what is to be reached, and others'."""
    from advisor.gpus.hardware import load_gpu

    suites, lines = figures["suites"], []
    for name, goal in GOALS.items():
        key = "median_percent" if name == "served point" else "mape_percent"
        whole = suites.get(f"{name}, others")
        parts = [suites.get(f"{name}, GPUs {which}") for which in ("seen", "left out")]
        cells = [f"{part[key]:.1f} ({part['cases']})" if part else "–" for part in parts]
        cells += [" / ".join("–" if item is None else f"{item}" for item in goal), f"{whole['coverage_percent']:.0f} %" if whole else "–"]
        peers = whole["peers_mape_percent"] if whole else {}
        cells += [f"{peers[peer]:.1f}" if peer in peers else "–" for peer in ("pipeweave", "neusight")]
        lines.append(f"| {name}{', median' if key == 'median_percent' else ''} | {' | '.join(cells)} |")
    for link in ("NVLink", "PCIe"):
        mine = [figure for gpu, figure in figures["all_reduce"].items() if (load_gpu(gpu).fabric_bytes_per_s is None) == (link == "PCIe")]
        if mine:
            cells = [f"{sum(item[which] for item in mine) / len(mine):.1f} ({len(mine)} GPUs)" for which in ("seen", "left out")]
            lines.append(f"| all-reduce, {link} | {' | '.join(cells)} | 5 / 10 | – | – | – |")
            hosts = [item["host known"] for item in mine if "host known" in item]
            if hosts:
                lines.append(
                    f"| the same, what the host passes known | – | {sum(hosts) / len(hosts):.1f} ({len(hosts)} GPUs) | – | – | – | – |"
                )
    heads = ("steps", "GPUs seen (cases)", "GPUs left out", "goal", "in 80 %", "PipeWeave", "NeuSight")
    return [f"| {' | '.join(heads)} |", "| " + " | ".join("---" for _ in heads) + " |", *lines]


def show_steps(figures: dict[str, Any]) -> None:
    """Every suite of whole steps, ours beside the published predictors, and every case."""
    print("\n".join([*steps_table(figures), ""]))
    print("mean absolute errors of the measured latency, percent; constants of every GPU are fitted without it")
    print(f"throttled boards: {', '.join(figures['throttled'])} (nothing is fitted to them)")
    show_table("steps", figures["suites"])
    print()
    for figure in figures["cases"]:
        off = 100 * (figure["predicted_ms"] / figure["measured_ms"] - 1)
        times = f"{figure['measured_ms']:>12.2f} ms measured{figure['predicted_ms']:>12.2f} predicted{off:>8.1f} %"
        print(f"{figure['suite']:<18}{figure['run']:<52}{times}")


def _plain(value: Any) -> Any:
    """A value that JSON has no word for, as one that it has."""
    return value.item() if hasattr(value, "item") else str(Path(value) if isinstance(value, Path) else value)


def _finite(value: Any) -> Any:
    """NaN (a figure that the rows do not allow, such as the AUC of one class) as null: JSON has no NaN."""
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def show(figures: dict[str, Any]) -> None:
    """The figures as tables."""
    if figures.get("in_sample"):
        print("the weights were trained on models and GPUs of these rows: the figures flatter them (--leave-out does not)\n")
    print(
        "errors are shares of the measured latency, bias the mean of log(predicted / measured): above 0, predicted too slow; "
        "bound alone: the error of taking the bound for the latency"
    )
    show_table("task", {TITLES.get(task, task): figure for task, figure in figures.get("tasks", {}).items()})
    for title, key in (
        ("ranking: share of problems with a configuration within 1 % of the best among the first k", "ranking"),
        ('"at least 10 % can be won", given the measured latency of the default', "diagnosis"),
    ):
        if figure := figures.get(key):
            show_table(title, {"all": {**figure.get("all", {}), **figure}})
    for note in figures.get("notes", ()):
        print(f"\nnote: {note}")


def show_splits(splits: dict[str, Any]) -> None:
    """Figures of kinds of kernels whose shapes or GPU were left out, as tables."""
    for split, kinds in splits.items():
        show_table(split, kinds)


TITLES = {"served": "as served", "exact": "known configuration", "best": "best of a sweep (the ceiling)"}


def show_table(title: str, groups: Mapping[str, Mapping[str, Any]]) -> None:
    """A line for each group of figures, those that it is made of (`per_gpu`, …) below it, and a column for each figure that any has;
    last what is said of them in words (`words`)."""
    lines = [(name, dict(_cells(figures)), figures.get("words", "")) for name, figures in _with_parts(groups)]
    columns = list(dict.fromkeys(column for _, cells, _ in lines for column in cells))
    width = max([len(title), *(len(name) for name, _, _ in lines)])
    print(f"\n{title:<{width}}" + "".join(f"  {column:>8}" for column in columns))
    for name, cells, words in lines:
        print(
            f"{name:<{width}}" + "".join(f"  {cells.get(column, '–'):>{max(8, len(column))}}" for column in columns) + f"  {words}".rstrip()
        )


def _with_parts(groups: Mapping[str, Mapping[str, Any]], indent: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, figures in groups.items():
        yield indent + name, figures
        for part in (figure for key, figure in figures.items() if key.startswith("per_") and isinstance(figure, Mapping)):
            yield from _with_parts(part, indent + "  ")


def _cells(figures: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """The figures with what heads their columns: `bias %`, `bound alone MAPE %`."""
    for key, value in figures.items():
        head = before + key.replace("mape", "MAPE").replace("_percent", " %").replace("_", " ")
        if isinstance(value, Mapping) and not key.startswith("per_"):
            yield from _cells(value, f"{head} ")
        elif isinstance(value, int | float):
            yield head, f"{value:.2f}" if isinstance(value, float) else str(value)
