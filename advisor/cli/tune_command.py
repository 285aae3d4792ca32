"""Search for better configurations, measuring as few as possible.

TARGET is a tuned table, fused_moe, a bundled kernel (softmax, gemm::gemm_kernel, …) or FILE.py::KERNEL. Measures on this machine's GPU,
or replays rows with --recorded. The study is kept in a file (or any Optuna storage): run the same command again to go on with it, on as
many machines as share the storage. A winner is measured against what runs today, in the same rounds, and used only if it wins.

examples:
  advisor tune fused_moe --model Qwen3-30B-A3B --tokens 1,64,4096 --export tables
  advisor tune 'E=128,N=768,device_name=NVIDIA_H200.json' --model Qwen3-30B-A3B --storage postgresql://me@host/studies --study qwen
  advisor tune fused_moe --model Mixtral-8x7B --gpu A100 --recorded sweep.csv
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli import options
from advisor.cli.advise_reports import write
from advisor.cli.measure_command import duration_s
from advisor.result.problem import microseconds
from advisor.system.errors import InputError, UsageError, several
from advisor.system.processes import sigterm_as_interrupt
from advisor.system.writing import StatusLine

if TYPE_CHECKING:
    from advisor.search.search_report import Winner
    from advisor.tuning import Order, Tuned


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor tune`."""
    parser.add_argument("target", metavar="TARGET", help="a tuned table, fused_moe, a bundled kernel, or FILE.py::KERNEL")
    parser.add_argument("--trials", type=options.positive_integer, metavar="N", help="trials per decision, at most (default: no limit)")
    parser.add_argument("--time-limit", type=duration_s, metavar="TIME", help="for all of it, comparisons included: 90s, 9m, 1h")
    parser.add_argument("--margin", type=_share, default=0.01, metavar="X", help="stop within this of the ceiling (default: 0.01)")
    parser.add_argument("--storage", metavar="URL", help="a file, or any Optuna storage URL (default: DIR/study.journal)")
    parser.add_argument("--study", metavar="NAME", help="name under which it is kept and resumed (default: target and GPU)")
    parser.add_argument("--recorded", metavar="ROWS.csv", help="replay measured rows in place of a GPU")
    parser.add_argument("--device", help="as `advisor measure --device` (default: auto)")
    parser.add_argument("--export", metavar="DIR", help="write the table (merged into the one there), configurations, before-after.md")
    parser.add_argument("--gpu", metavar="NAME", help="GPU, by any name `advisor gpus` knows (default: the table's, or this machine's)")
    options.add_options(parser, *options.MODEL)
    parser.add_argument("--tokens", type=options.positive_integers, nargs="+", metavar="M", help="token counts (default: the table's)")
    parser.add_argument(
        "--sizes",
        type=options.named_sizes,
        action="append",
        metavar="M=1,N=2,…",
        help="a problem of a kernel, may be repeated; for fused_moe its layer: E=128,topk=8,H=2048,N=768",
    )
    parser.add_argument("--op", metavar="OP", help="only launches of this operator, e.g. w13")
    parser.add_argument(
        "--dtype", type=options.operand_type, metavar="TYPE", help="operand type of a layer or kernel, such as bf16 (a table is of its own)"
    )
    parser.add_argument(
        "--routing",
        metavar="NAME",
        help="random or power_law:A (one draw is measured), balanced (the default), or a file. A file has token slots per expert "
        "(JSON list, or one number per line), scaled to each launch",
    )
    parser.add_argument("--cache", choices=("cold", "warm"), default="warm", help="what the L2 holds at launch (default: warm)")
    parser.add_argument("--weights", metavar="FILE", help="weights that `advisor train` wrote (default: those shipped)")
    parser.add_argument("-o", "--output", metavar="DIR", default="advisor-out", help="folder for report.html, result.json and the study")
    parser.add_argument("--format", choices=options.FORMATS, default="text", help="what to print")


def run(arguments: argparse.Namespace) -> int:
    """Search, write and print; 3 where nothing could be measured."""
    from advisor.result.result_json import to_json
    from advisor.search.storage import opened_by_optuna, without_password
    from advisor.tuning import tune_order
    from advisor.tuning.export import markdown, write_exports

    order = _order(arguments)
    command = shlex.join(["advisor", *(without_password(item) for item in sys.argv[1:])])  # reports are passed on
    watch = _Watch()
    try:
        with sigterm_as_interrupt():  # what batch systems send at the end of their time
            tuned = tune_order(order, command=command, watch=watch)
    except json.JSONDecodeError as error:  # Optuna's journal: a line of JSON for every step, read again whenever one is added
        raise InputError(
            f"{without_password(order.storage)}: the study is damaged",
            error.doc.strip() or "an empty line",
            "lines of JSON, as Optuna writes",
            "remove that line, or start anew with another --storage",
        ) from None
    except KeyboardInterrupt:
        if "://" not in order.storage and not Path(order.storage).exists():
            raise KeyboardInterrupt("interrupted before anything was saved") from None
        saved = f"what was finished is saved in {without_password(order.storage)}"
        raise KeyboardInterrupt(f"interrupted; {saved}; run the same command again to go on") from None
    finally:
        watch.end()
    for warning in tuned.result.warnings:
        options.warn(warning)
    output = Path(arguments.output)
    page = write(tuned.result, output)
    before_after = markdown(tuned.winners, tuned.about, tuned.source, tuned.warnings)
    written: list[Path] = []
    if arguments.export:
        written, warnings = write_exports(Path(arguments.export), tuned.result.exports, before_after, tuned.table)
        for warning in warnings:
            options.warn(warning)
    if arguments.format == "json":
        sys.stdout.write(to_json(tuned.result))
    elif arguments.format == "md":
        sys.stdout.write(before_after)
    else:
        _print(tuned, opened_by_optuna(order.storage), [str(path) for path in [*written, page]])
    return 0 if any(trial.latency_us is not None for search in tuned.result.searches for trial in search.trials) else 3


def _order(arguments: argparse.Namespace) -> Order:
    from advisor.advising.options import request_from
    from advisor.tuning import Order

    request = request_from(options.values_of(arguments), sizes=None)
    if arguments.recorded and arguments.device is not None:
        raise UsageError(
            "--recorded replays rows and --device measures", f"both, with --device {arguments.device}", "one of them", "leave one out"
        )
    if arguments.recorded:
        options.existing_file(arguments.recorded)
    return Order(
        target=arguments.target,
        request=request,
        recorded=arguments.recorded,
        device=arguments.device or "auto",
        op=arguments.op,
        sizes=tuple(arguments.sizes or ()),
        trials=arguments.trials,
        time_limit_s=arguments.time_limit,
        margin=arguments.margin,
        storage=arguments.storage or str(Path(arguments.output) / "study.journal"),
        study=arguments.study,
        export=arguments.export,
        weights=arguments.weights,
    )


def _print(tuned: Tuned, storage: str, files: list[str]) -> None:
    """A line per decision, losses included; plain rows that any tool can cut."""
    winners = tuned.winners
    print(f"{tuned.about}, {several(sum(winner.tried for winner in winners), 'trial')}: {_counted(winners)} ({tuned.source})")
    failures = {search.study_name: search.failures for search in tuned.result.searches}
    for winner in winners:
        task, before = winner.decision.task.id, winner.decision.incumbent
        print(f"  {task}  {_latencies(winner)}  {several(winner.tried, 'trial')}  {winner.outcome}: {winner.note}")
        chosen = {"before": before, "after": winner.configuration} if winner.changed else {"keeps": before, "best": winner.candidate}
        for name, configuration in chosen.items():
            if configuration is not None:
                print(f"    {name:6} {configuration.label()}")
        if failed := failures.get(f"{tuned.study}/{task}"):
            print(f"    failed: {', '.join(f'{kind} {count}' for kind, count in failed.items())}")
        print(f"    stopped: {winner.stopped}")
    print(f"  study: {tuned.study}/{winners[0].decision.task.id}{', …' if len(winners) > 1 else ''} in {storage}")
    for path in files:
        print(f"  written: {path}")


def _counted(winners: Sequence[Winner]) -> str:
    """A clause on the outcomes of the decisions."""
    from advisor.search.storage import NOT_RECORDED

    improved, new, unknown = (sum(winner.outcome == outcome for winner in winners) for outcome in ("improved", "new", NOT_RECORDED))
    if new == len(winners):
        return f"{new} of {len(winners)} new"
    counted = f"{improved} of {len(winners)} improved" + (f", {new} new" if new else "")
    return counted + (f", {unknown} not recorded as they run today" if unknown else "")


def _latencies(winner: Winner) -> str:
    """The latencies of a decision, as far as known; for one that stays as it is, the search's best too."""
    if winner.changed:
        now = "no latency" if winner.us is None else f"{microseconds(winner.us)} µs"
        if winner.before_us is None or winner.speedup is None:
            return now
        return f"{microseconds(winner.before_us)} -> {now}  speedup {winner.speedup:.3f}"
    known = [] if winner.before_us is None else [f"{microseconds(winner.before_us)} µs"]
    known += [] if winner.candidate is None or winner.best_us is None else [f"best found {microseconds(winner.best_us)} µs"]
    return ", ".join(known) or "no latency"


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 10:
        raise argparse.ArgumentTypeError(f"must be a share such as 0.02 (got {text!r})")
    return value


class _Watch(StatusLine):
    """Progress on stderr."""

    def __call__(self, task: str, trials: int, best_us: float | None) -> None:
        best = "nothing yet" if best_us is None else f"best {microseconds(best_us)} µs"
        self.say(f"tuning {task}: {several(trials, 'trial')}, {best}")
