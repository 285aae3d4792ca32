"""Time launches on this machine's GPU, and append one row for each to a file as they come.

TARGET is a bundled kernel (fused_moe, gemm, gemm_kernel, …), FILE.py::KERNEL, a tuned table, a file of rows or shapes, or a record of
`advisor record` (each launch again as it was, on tensors of the same shapes, strides and types; LAUNCHES.jsonl::KERNEL for one kernel);
or give a campaign with --plan. What the output holds already is not measured again, so a run that was cut off goes on where it was.
Failures that may have been the machine's (a crash, full memory) are measured again.

examples:
  advisor measure fused_moe --model Qwen3-30B-A3B --tokens 1,64,4096 --configurations 32 -o rows.csv
  advisor measure 'my_kernels.py::scale_kernel' --sizes B=4096,H=8192 -o rows.csv
  advisor measure --plan tests/gpu/campaign.toml -o rows.csv --time-limit 9m
"""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.cli.options import (
    MODEL,
    add_options,
    existing_file,
    file_output,
    named_sizes,
    positive_integer,
    positive_integers,
    routing_of,
    values_of,
    warn,
)
from advisor.system.errors import NothingMatchedError, UsageError
from advisor.system.processes import sigterm_as_interrupt
from advisor.system.writing import StatusLine, temporary_folder

if TYPE_CHECKING:
    from advisor.measurement.launch import Launch
    from advisor.measurement.measuring import Progress, Summary
    from advisor.result.schema import Problem

PROBLEM_OPTIONS: Mapping[str, Any] = dict.fromkeys(
    ("op", "sizes", "tokens", "dtype", "routing", "gpu", "model", "hidden_size", "top_k", "tensor_parallel", "expert_parallel")
)
"""Options that name a target's problems, with their defaults."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor measure`."""
    parser.add_argument("target", nargs="?", help="a bundled kernel, FILE.py::KERNEL, a tuned table, rows or shapes (CSV), or a record")
    parser.add_argument("-o", "--output", required=True, type=file_output, metavar="ROWS.csv", help="the file rows are appended to")
    parser.add_argument("--plan", metavar="FILE", help="a campaign (TOML) instead of a target")
    parser.add_argument("--time-limit", type=duration_s, metavar="TIME", help="stop after this long: 90s, 9m, 1h")
    parser.add_argument("--device", default="auto", help="auto, cuda or fake[,OPTION=VALUE…] (default: auto)")
    parser.add_argument("--cache", choices=("warm", "cold"), help="what the L2 holds when a launch starts (default: warm)")
    parser.add_argument("--rounds", type=positive_integer, metavar="N", help="rounds that must count (default: 10)")
    parser.add_argument(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="go on with a file that has rows (--no-resume: refuse to)",
    )
    parser.add_argument(
        "--configurations",
        type=_configurations,
        default=1,
        metavar="N|all",
        help="per problem, most informative first; 1 is the kernel's default (default: 1)",
    )
    parser.add_argument("--op", metavar="OP", help="operator of the kernel, e.g. w13, w2, prefill (default: all)")
    parser.add_argument("--sizes", type=named_sizes, action="append", metavar="M=1,N=2,…", help="a problem; may be repeated")
    parser.add_argument("--tokens", type=positive_integers, nargs="+", metavar="M", help="token counts")
    parser.add_argument("--dtype", metavar="D", help="bf16, fp16, fp8, tf32, … (default: the kernel's first)")
    parser.add_argument(
        "--routing", metavar="NAME", help="random or power_law:A (one draw), balanced (the default), or a file of slots per expert"
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        help="GPU of a table whose name does not say it, or whose model orders the configurations (default: the device's)",
    )
    parser.add_argument("--timeout", type=duration_s, metavar="TIME", help="when a launch counts as hung (default: 60s)")
    parser.add_argument("--compile-workers", type=positive_integer, metavar="N", help="processes that compile ahead")
    parser.add_argument("--ceilings-dir", type=Path, metavar="DIR", help="where a campaign writes the GPU's own ceilings")
    parser.add_argument("--seed", type=int, default=0, help="of inputs and orders (default: 0)")
    add_options(parser, *MODEL)


def run(arguments: argparse.Namespace) -> int:
    """Measure; 0 where everything was measured or found in the file, 3 where nothing could be."""
    from advisor.gpus.hardware import load_gpu
    from advisor.measurement.measuring import measure, run_plan
    from advisor.measurement.scheduler import Limits

    if (arguments.target is None) == (arguments.plan is None):
        raise UsageError("give a target or a campaign", "both" if arguments.target else "neither", "TARGET, or --plan FILE")
    if arguments.plan:
        _refuse(
            arguments,
            {**PROBLEM_OPTIONS, "cache": None, "configurations": 1, "seed": 0},
            "the campaign's file says what is measured",
            "leave them out, or write them into the file",
        )
    else:
        _refuse(arguments, {"ceilings_dir": None}, "only a campaign measures the GPU's own ceilings", "leave it out, or give --plan FILE")
    named = load_gpu(arguments.gpu).name if arguments.gpu else None
    if arguments.plan:
        existing_file(arguments.plan)
    watch = _Watch()
    common: dict[str, Any] = {
        "device": arguments.device,
        "rounds": arguments.rounds or (None if arguments.plan else 10),
        "resume": arguments.resume,
        "time_limit_s": arguments.time_limit,
        "limits": Limits.uniform(arguments.timeout) if arguments.timeout else None,
        "compile_workers": arguments.compile_workers,
        "watch": watch,
    }
    try:
        with sigterm_as_interrupt():  # what batch systems send at the end of their time
            if arguments.plan:
                summary = run_plan(arguments.plan, arguments.output, ceilings_folder=arguments.ceilings_dir, **common)
            else:
                with _folder_for(arguments.target) as folder:
                    launches = launches_of_target(arguments, folder)
                    summary = measure(launches, arguments.output, seed=arguments.seed, **common)
    except KeyboardInterrupt:
        if not Path(arguments.output).exists():
            raise KeyboardInterrupt("interrupted before anything was saved") from None
        saved = f"what was finished is saved in {arguments.output}"
        raise KeyboardInterrupt(f"interrupted; {saved}; run the same command again to go on") from None
    finally:
        watch.end()
    if named not in (None, summary.gpu):
        warn(f"measured on this device, {summary.gpu}: --gpu says what a table is for and whose model orders configurations, here {named}")
    return _report(summary)


def _report(summary: Summary) -> int:
    failed = sum(summary.failed.values())
    parts = [f"{summary.measured} measured", f"{failed} failed", f"{summary.skipped} in the file already"]
    where = f"{summary.gpu} (a fake device: latencies are simulated)" if summary.fingerprint.simulated else summary.gpu
    print(f"{summary.output}: {', '.join(parts)}, on {where}" + ("" if summary.finished else "; time is up, run it again to go on"))
    for kind, count in summary.failed.most_common():
        print(f"  {kind}: {count}" + (f" ({summary.reasons[kind]})" if kind in summary.reasons else ""))
    if summary.ceilings is not None:
        print(f"  ceilings: {summary.ceilings}")
    for text in summary.warnings:
        warn(text)
    for text in summary.faults[:20]:
        warn(f"faster than the bound (a fault of the model or the measurement): {text}")
    if len(summary.faults) > 20:
        warn(f"faster than the bound: {len(summary.faults) - 20} more, see the column `fault`")
    return 3 if failed and not summary.measured else 0


def _folder_for(target: str) -> contextlib.AbstractContextManager[Path | None]:
    """Where the kernels of a record are written, for as long as they are measured; other targets have files of their own."""
    from advisor.rows.launches import is_launch_record

    return temporary_folder("measure") if is_launch_record(target.partition("::")[0]) else contextlib.nullcontext()


def launches_of_target(arguments: argparse.Namespace, folder: Path | None) -> list[Launch]:
    """The launches that the target and its options name; `folder` takes the kernels of a record.

    Raises:
        UsageError, InputError: It names none, or cannot be read.
    """
    target = arguments.target
    if folder is not None:
        launches = _recorded_launches(arguments, folder)
    elif target.endswith(".json"):
        launches = _table_launches(arguments)
    elif target.endswith((".csv", ".csv.gz")):
        launches = _row_launches(arguments)
    else:
        launches = _kernel_launches(arguments)
    cache = arguments.cache
    launches = [replace(launch, problem=replace(launch.problem, cache=cache)) for launch in launches] if cache else launches
    return list({f"{launch.kernel.file}\x1f{launch.key()}": launch for launch in launches}.values())  # each once, however often it is named


def _refuse(arguments: argparse.Namespace, options: Mapping[str, Any], why: str, remedy: str) -> None:
    """Options that would be left unread must not pass for obeyed.

    Args:
        arguments: The command line's.
        options: Which, by their names as attributes, with their defaults.
        why: What says otherwise.
        remedy: What to do.

    Raises:
        UsageError: One was given.
    """
    if given := [f"--{name.replace('_', '-')}" for name, usual in options.items() if getattr(arguments, name) != usual]:
        raise UsageError(why, ", ".join(given), None, remedy)


def _recorded_launches(arguments: argparse.Namespace, folder: Path) -> list[Launch]:
    """The launches of a record, as they were."""
    from advisor.autotuning.ranking import problem_of_record
    from advisor.measurement.replay import NOT_CHECKED, recorded_launches

    _refuse(arguments, PROBLEM_OPTIONS, "a record says what was launched", "leave them out, or measure the kernel itself")
    _refuse(arguments, {"configurations": 1}, "a record has one configuration per launch", "measure the kernel itself for others")
    path, _, kernel = arguments.target.partition("::")
    launches, remarks = recorded_launches(path, folder, problem_of_record)
    for remark in remarks:
        warn(remark)
    warn(NOT_CHECKED)
    chosen = [launch for launch in launches if kernel in ("", launch.kernel.function)]
    if not chosen:
        raise NothingMatchedError(
            f"{path}: no launch of this kernel", kernel, ", ".join(sorted({launch.kernel.function for launch in launches}))
        )
    return chosen


def _table_launches(arguments: argparse.Namespace) -> list[Launch]:
    """The launches that the serving stack makes with a tuned table."""
    from advisor.advising.options import request_from
    from advisor.advising.targets.resolve import resolve_target
    from advisor.measurement.kernel_file import find_kernels
    from advisor.measurement.launch import Launch
    from advisor.measurement.plan import as_launched

    resolved = resolve_target(arguments.target, request_from(values_of(arguments), sizes=None))
    for text in resolved.warnings:
        warn(text)
    launches = []
    for planned in resolved.launches:
        if planned.problem.family != "fused_moe":
            raise UsageError(f"{arguments.target}: no bundled kernel runs these launches", planned.kernel, "a fused-MoE table")
        kernel = find_kernels("fused_moe::fused_moe_kernel")[0]
        if planned.configuration is not None and (arguments.op is None or planned.problem.op == arguments.op):
            launches.append(Launch(kernel=kernel, problem=as_launched(planned.problem), configuration=planned.configuration))
    return launches


def _row_launches(arguments: argparse.Namespace) -> list[Launch]:
    """The launches of a file of rows; a row without a configuration gets the kernel's default ones."""
    from advisor.measurement.launch import Launch
    from advisor.measurement.measured_rows import read_measured
    from advisor.measurement.plan import launches_of

    specified = {name: usual for name, usual in PROBLEM_OPTIONS.items() if name != "gpu"}
    _refuse(arguments, specified, "the rows say which problems are launched", "leave them out, or keep those rows only that are wanted")
    launches, gpu = [], _ordering_gpu(arguments)
    for row in read_measured(arguments.target):
        kernel = _kernel_for(row.kernel, row.problem)
        if row.configuration is not None:
            launches.append(Launch(kernel=kernel, problem=row.problem, configuration=row.configuration))
        else:
            launches += launches_of(kernel, [row.problem], gpu, arguments.configurations)
    return launches


def _kernel_for(name: str, problem: Problem) -> Any:
    """The bundled kernel of that name, else the first that does the problem's operator."""
    from advisor.measurement.kernel_file import KernelRef, bundled_files, find_kernels, read_kernels

    if name:
        return find_kernels(name)[0]
    for file in bundled_files():
        for function, entry in read_kernels(file).items():
            if entry["family"] == problem.family and problem.op in entry["ops"] and "make_inputs" in entry:
                return KernelRef(file=str(file), function=function)
    raise UsageError("no bundled kernel does this operator", f"{problem.family} {problem.op}", None, "name the kernel in a column `kernel`")


def _kernel_launches(arguments: argparse.Namespace) -> list[Launch]:

    from advisor.measurement.kernel_file import check_runnable, find_kernels, kernels_made_for
    from advisor.measurement.plan import launches_of

    _refuse_unread_by_kernels(arguments)
    launches, gpu = [], _ordering_gpu(arguments)
    kernels, left_out = kernels_made_for(find_kernels(arguments.target), arguments.op, arguments.dtype)
    for text in left_out:
        warn(text)
    for kernel in kernels:
        problems = _problems(kernel, arguments)
        if problems or len(kernels) == 1:
            check_runnable(kernel)
        launches += launches_of(kernel, problems, gpu, arguments.configurations)
    return launches


def _refuse_unread_by_kernels(arguments: argparse.Namespace) -> None:
    """Options that name the problems of a table, or of another family's kernels."""
    from advisor.measurement.kernel_file import find_kernels, kernel_entry

    table = ("hidden_size", "top_k")
    split = ("tensor_parallel", "expert_parallel")
    if all(kernel_entry(kernel)["family"] != "fused_moe" for kernel in find_kernels(arguments.target)):
        _refuse(
            arguments,
            dict.fromkeys((*table, *split, "model", "routing")),
            f"{arguments.target} is not fused_moe, nor a table of it",
            "leave them out, and give --sizes NAME=VALUE,…",
        )
    _refuse(arguments, dict.fromkeys(table), "the table does not specify these sizes", "give --model NAME, or --sizes")
    if arguments.model is None:
        _refuse(arguments, dict.fromkeys(split), "only a model is split over GPUs", "give --model NAME, or the sizes of one GPU's part")


def _problems(kernel: Any, arguments: argparse.Namespace) -> list[Problem]:
    """The problems of a kernel that the options name; its own example where they name no sizes."""
    from advisor.advising.options import token_counts
    from advisor.measurement.kernel_file import kernel_entry
    from advisor.measurement.plan import as_launched, kernel_problems
    from advisor.tables.models import find_model

    sizes = [dict(size) for size in arguments.sizes or ()]
    tokens = token_counts(arguments.tokens, sizes)
    if arguments.model and kernel_entry(kernel)["family"] == "fused_moe":
        model, split, ranks = find_model(arguments.model), arguments.tensor_parallel or 1, arguments.expert_parallel or 1
        experts = model.E // ranks  # of one rank: where they are fewer than a token takes, all of them
        sizes.append({"M": 1, "E": experts, "topk": min(model.top_k, experts), "H": model.H, "N": model.N // split})
    problems = kernel_problems(kernel, sizes, tokens=tokens, op=arguments.op, dtype=arguments.dtype, routing=routing_of(arguments))
    return [as_launched(problem) for problem in problems]


def _ordering_gpu(arguments: argparse.Namespace) -> Any:
    """The GPU whose model orders the configurations: none where only the default one is asked for."""
    from advisor.gpus.hardware import load_gpu, match_device_name
    from advisor.measurement.devices.device import find_device

    if arguments.configurations == 1:
        return None

    if arguments.gpu:
        return load_gpu(arguments.gpu)
    device = find_device(arguments.device)
    if device.kind == "cuda":
        return match_device_name(device.gpu or "")
    name = device.options.get("gpu", "H200" if device.kind == "fake" else "")
    return match_device_name(str(name))


def duration_s(text: str) -> float:
    """`90`, `90s`, `9m` or `1.5h`, in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", text.strip())
    if not match or not 0 < float(match[1]) < 1e7:
        raise argparse.ArgumentTypeError(f"must be a time such as 90s, 9m or 1h (got {text!r})")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _configurations(text: str) -> int | None:
    return None if text == "all" else positive_integer(text)


class _Watch(StatusLine):
    """Progress on stderr."""

    def __call__(self, progress: Progress) -> None:
        share = progress.done / progress.total if progress.total else 0.0
        of = f"/{progress.total}" if progress.total else ""
        left = f", {progress.elapsed_s * (1 - share) / share:.0f} s left" if 0 < share < 1 else ""
        self.say(f"measured {progress.done}{of}, {progress.failed} failed, {progress.elapsed_s:.0f} s{left}: {progress.last}", share)
