"""Diagnose launches and recommend configurations.

TARGET is one of
  a tuned table       of vLLM or SGLang: E=…,N=…,device_name=….json, or a block-scaled GEMM table
  a folder            of such tables: a line each, the worst first, of all GPUs together; DIR/overview.html leads to the report of each
  a bundled kernel    fused_moe, gemm, attention, …
  a kernel of yours   FILE.py::KERNEL, or FILE.py for all of its kernels; parsed and compiled, never imported
  a record            that `advisor record` wrote
  a cache             of @advisor.autotune (`cache`: the one of this machine; its file; an export of `advisor cache export`);
                      CACHE::KERNEL is one kernel of it
  a trace             of torch's profiler (.json, .json.gz): what its operators took beside their predictions, and the gaps; best with
                      record_shapes=True

Writes DIR/report.html and DIR/result.json (--output FILE.html: FILE.html and FILE.json); with several GPUs, a folder below DIR for each,
and a table of them, a line each, at the end, which DIR/overview.html has too (--format json prints one list of their results).

examples:
  advisor advise 'E=128,N=768,device_name=NVIDIA_H20.json' --model Qwen3-30B-A3B --tokens 1,64,4096
  advisor advise fused_moe --model DeepSeek-V3 --gpu H100 --gpu H200 --tensor-parallel 8
  advisor advise my_kernels.py::scale_kernel --sizes B=4096,H=8192 --gpu A100
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.cli import options
from advisor.cli.advise_reports import (
    OVERVIEW,
    exported,
    folder_of_tables,
    note_of_unsure,
    report_folders,
    show_commands,
    show_gpus,
    shown,
    tell_of_others,
    warn_of_target,
    write,
)
from advisor.system.errors import InputError, NothingMatchedError, UsageError
from advisor.system.resources import phrase
from advisor.system.writing import progress_bar

if TYPE_CHECKING:
    from advisor.advising.targets import Target
    from advisor.result.schema import Result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor advise`."""
    parser.add_argument("target", metavar="TARGET", help="a table, a kernel, a record of launches, or a cache: see above")
    options.add_options(
        parser,
        "gpu",
        action="append",
        default=[],
        help="GPU, by any name `advisor gpus` knows, or a TOML file that describes one; repeat it, or separate with commas",
    )
    options.add_options(
        parser, "model", help="model the table belongs to, e.g. Qwen3-30B-A3B; several, separated by commas, have a report each"
    )
    options.add_options(parser, *options.MODEL[1:])
    options.add_kernel_arguments(parser)
    options.add_options(parser, "tokens", "sizes", "dtype", "routing", "cache", "measured", "try_for")
    options.add_compiling_arguments(parser)
    options.add_options(parser, "weights", "stack", "block_shape")
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        help="folder for report.html and result.json, or a page FILE.html (its JSON beside it); of several GPUs a folder in it each, and "
        "overview.html (default: one below advisor-out for each target)",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="print every launch and assumption (default: the first screen)")
    parser.add_argument(
        "--export",
        metavar="DIR",
        help="write the predicted table here, under the name that the serving stack loads. An existing table keeps entries whose "
        "gain is uncertain; predicted.json has the source of each entry",
    )
    parser.add_argument("--format", choices=options.FORMATS, default="text", help="what to print")


def run(arguments: argparse.Namespace) -> int:
    """Advise, for every model and GPU asked for."""
    from advisor.tables.models import find_model

    gc.set_threshold(50_000)  # nearly all that is made stays to the end: going through it again and again takes a twentieth of the time
    options.require_sandbox(arguments)
    if not arguments.target.strip():  # else it would be this folder
        raise UsageError("no target is named", repr(arguments.target), "a file, a folder, or a kernel", "see `advisor advise --help`")
    arguments.gpu = options.gpu_names(arguments.gpu)
    _refuse_soon(arguments)
    models = [name.strip() for name in (arguments.model or "").split(",") if name.strip()] or [arguments.model]
    if len(models) > 1:  # a misspelt one is told before the first report is written
        models = [find_model(str(name)).name for name in models]
    if str(arguments.output).endswith(".html") and (len(models) > 1 or len(arguments.gpu) > 1 or Path(arguments.target).is_dir()):
        raise UsageError("--output names one page, and there are several reports", arguments.output, "a folder", "leave out .html")
    documents = []
    for model in models:
        output = Path(arguments.output) / str(model) if arguments.output and len(models) > 1 else arguments.output
        documents += _documents(argparse.Namespace(**{**vars(arguments), "model": model, "output": output}))
    if arguments.format == "json":
        sys.stdout.write(documents[0] if len(documents) == 1 else "[\n" + ",\n".join(document.rstrip() for document in documents) + "\n]\n")
    return 0


def _refuse_soon(arguments: argparse.Namespace) -> None:
    """What is misspelt is refused before the packages that would read it are loaded: a file that is not there, a GPU that nobody knows.

    Raises:
        InputError, UnknownGpuError: One of them is.
    """
    from advisor.gpus.hardware import load_gpu

    file = Path(arguments.target.partition("::")[0])
    if file.suffix in (".py", ".json") and not os.path.lexists(file):
        raise InputError(f"{file}: no such file", None, None, "check the path")
    if file.suffix == ".py" or (not file.suffix and arguments.target != "cache" and not os.path.lexists(file)):
        for name in arguments.gpu:
            load_gpu(name)


def _documents(arguments: argparse.Namespace) -> list[str]:
    """Advise for one model, or none, and every GPU; the JSON documents, where they are asked for."""
    from advisor.advising.targets.resolve import is_folder
    from advisor.gpus.hardware import load_gpu
    from advisor.tables.names import is_table_name

    arguments.output = str(arguments.output or Path("advisor-out") / _folder_name(arguments))
    if not is_table_name(Path(arguments.target)) and (measured := _of_measurements(arguments)) is not None:
        documents = measured
    elif is_folder(Path(arguments.target)):
        documents = folder_of_tables(arguments)
    elif len(arguments.gpu) > 1:
        gpus = [load_gpu(name) for name in arguments.gpu]  # a misspelt one is told before the first report is written
        folders = report_folders(Path(arguments.output), [gpu.name for gpu in gpus])
        reports = [_for_gpu(arguments, name, folder) for name, folder in zip(arguments.gpu, folders, strict=True)]
        documents = [document for document, _ in reports]
        show_gpus([(result, folder) for (_, result), folder in zip(reports, folders, strict=True)], arguments)
        tell_of_others(Path(arguments.output), "report.html", "result.json")
    else:
        documents = [_for_gpu(arguments, next(iter(arguments.gpu), None), Path(arguments.output))[0]]
        tell_of_others(Path(arguments.output), OVERVIEW)
    return documents


def _of_measurements(arguments: argparse.Namespace) -> list[str] | None:
    """The reports on a tuning cache or a trace; None where the target is neither."""
    from advisor.autotuning.decisions.exchange import cache_file
    from advisor.steps.trace import is_trace

    if (cache := cache_file(arguments.target)) is not None:
        return _tuned(arguments, *cache)
    return [_traced(arguments)] if is_trace(arguments.target) else None


def _traced(arguments: argparse.Namespace) -> str:
    """Write and print what a trace measured, beside what is predicted; its JSON document."""
    from advisor.advising.options import refuse_unfit
    from advisor.cli.model_command import as_json, write_steps
    from advisor.gpus.hardware import load_gpu, match_device_name
    from advisor.learned import load_predictor
    from advisor.rendering.step_text import step_text
    from advisor.steps.trace import read_trace, traced_step

    refuse_unfit("trace", arguments.target, options.values_of(arguments), flags=True)
    trace = read_trace(arguments.target)
    named_gpu = match_device_name(trace.gpu)
    named = [load_gpu(name) for name in arguments.gpu] or ([named_gpu] if named_gpu else [])
    if len(named) != 1:
        raise UsageError(f"{arguments.target}: which GPU it ran on", trace.gpu or None, "one of `advisor gpus`", "give one --gpu")
    predictor = load_predictor(Path(arguments.weights) if arguments.weights else None)
    name = Path(arguments.target).name
    result = traced_step(trace, named[0], predictor, name, shlex.join(["advisor", "advise", arguments.target, "--gpu", named[0].name]))
    page = write_steps([result], Path(arguments.output), "report.html", "result.json")
    if arguments.format != "json":
        print(step_text(result, options.terminal_width()))
        print(f"report: {page}")
    return as_json([result])


def _folder_name(arguments: argparse.Namespace) -> str:
    """The folder of a target's reports: its name, the model's, how that is split and computed where it is said, and the GPU's where one is
    named, so that one run does not overwrite another's."""
    stem, _, kernel = arguments.target.rstrip("/").partition("::")
    gpu = arguments.gpu[0] if len(arguments.gpu) == 1 else ""
    parts = [Path(stem).name.removesuffix(".json").removesuffix(".py"), kernel, arguments.model or "", *_apart(arguments), Path(gpu).stem]
    return re.sub(r"[^\w.,=+-]+", "-", "-".join(filter(None, parts))).strip("-.")[:120] or "report"


def _apart(arguments: argparse.Namespace) -> list[str]:
    """`tp8`, `fp8`, `block128,128`: what is said of a layer and its stack, as parts of a name."""
    names = {"tensor_parallel": "tp", "expert_parallel": "ep", "dtype": "", "block_shape": "block", "stack": "", "cache": ""}
    values = {name: vars(arguments).get(name) for name in names}
    return [f"{names[name]}{','.join(map(str, value)) if isinstance(value, tuple) else value}" for name, value in values.items() if value]


def _for_gpu(arguments: argparse.Namespace, gpu: str | None, output: Path) -> tuple[str, Result]:
    """Resolve the target for one GPU, advise, write and print; the JSON document, where that is asked for, and the result."""
    from advisor.advising.targets.resolve import is_code

    values = options.values_of(arguments, gpu=gpu)
    if arguments.export:
        return _exporting(arguments, values, output)
    result = _reported(arguments.target, values, shlex.join(["advisor", *sys.argv[1:]]))
    code = is_code(arguments.target)
    if code:
        for warning in result.warnings:
            options.warn(warning)
    document = shown(result, arguments.format, str(write(result, output)), verbose=arguments.verbose)
    if not code:
        note_of_unsure(result, arguments)
    if code and arguments.format == "md":
        show_commands(result)
    return document, result


def _reported(target: str, values: Mapping[str, Any], command: str) -> Result:
    """The report on a target for one GPU, with a progress bar while kernels are compiled."""
    from advisor.advising.public import report_on

    def resolved(target: Target) -> None:
        if target.assumption:
            options.warn(f"{target.assumption}; say which with --model NAME, or --hidden-size H --top-k K")
        warn_of_target(target)

    with progress_bar("compiling") as advance:
        return report_on(target, values, command=command, flags=True, progress=advance, resolved=resolved)


def _exporting(arguments: argparse.Namespace, values: Mapping[str, Any], output: Path) -> tuple[str, Result]:
    """Advise on a table or layer and write the predicted tables that the serving stacks look for."""
    from advisor.advising.options import refuse_unfit, request_from
    from advisor.advising.targets.resolve import is_code, resolve_target
    from advisor.learned import load_predictor

    if is_code(arguments.target):
        raise UsageError("--export is for tables and fused_moe", arguments.target, None, "leave it out")
    refuse_unfit("table" if arguments.target.endswith(".json") else "bundled kernel", arguments.target, values, flags=True)
    settled = arguments.model or (values["hidden_size"] and values["top_k"])
    request = request_from({**values, "routing": arguments.routing or "random"}, assume=not settled)
    predictor = load_predictor(Path(arguments.weights) if arguments.weights else None)
    command = shlex.join(["advisor", *sys.argv[1:]])
    wanted = [resolve_target(arguments.target, request)]
    if wanted[0].table is None and arguments.stack is None:  # a layer's: each stack looks for a table of its own
        wanted.append(resolve_target(arguments.target, replace(request, stack="sglang")))
    written = [exported(target, request, predictor, arguments, command) for target in wanted]
    result = written[0][0]
    document = shown(result, arguments.format, str(write(result, output)), verbose=arguments.verbose)
    for path in dict.fromkeys(path for _, paths in written for path in paths):
        options.note(f"written: {path}")
    folder = shlex.quote(str(Path(arguments.export).resolve()))
    for target in wanted:
        if target.launches[0].problem.family == "fused_moe":  # tables of GEMMs have no folder of their own
            options.note(phrase("export.served_sglang" if target.stack == "sglang" else "export.served_vllm", folder=folder))
    if wanted[0].table is None and wanted[0].launches[0].problem.family == "fused_moe":
        options.note(phrase("export.named"))
    if not any(row.changed for export in result.exports for row in export.rows):
        options.note(phrase("export.default", stack="SGLang" if wanted[0].stack == "sglang" else "vLLM"))
    note_of_unsure(result, arguments)
    return document, result


def _tuned(arguments: argparse.Namespace, file: Path, kernel: str | None) -> list[str]:
    """Report on the cache of `@advisor.autotune`, for each GPU, and on several in a table; the JSON documents, where asked for."""
    from advisor.advising.options import refuse_unfit
    from advisor.autotuning.decisions.exchange import read_cache_file
    from advisor.autotuning.tuned_result import advise_tuned
    from advisor.gpus.hardware import gpu_model, match_device_name
    from advisor.learned import load_predictor

    refuse_unfit("tuning cache", arguments.target, options.values_of(arguments), flags=True)
    cache = read_cache_file(file)
    if not cache:
        raise NothingMatchedError(f"{file.name}: the cache is empty", None, None, "run a kernel with @advisor.autotune first")
    everything = [entry for entry in cache if kernel in (None, entry.key.kernel)]
    wanted = [gpu_model(name) for name in arguments.gpu] or list(dict.fromkeys(entry.key.gpu for entry in everything))
    if not wanted or not any(entry.key.gpu in wanted for entry in everything):
        there = ", ".join(sorted({f"{entry.key.kernel} on {entry.key.gpu}" for entry in cache})[:8])
        raise NothingMatchedError(
            f"{file.name}: nothing like it was tuned",
            " on ".join(filter(None, (kernel, ", ".join(wanted)))) or None,
            there or "a cache with problems",
            "`advisor cache ls` shows what there is",
        )
    predictor = load_predictor(Path(arguments.weights) if arguments.weights else None)
    command = shlex.join(["advisor", *sys.argv[1:]])
    documents, reports = [], []
    for gpu, output in zip(wanted, report_folders(Path(arguments.output), wanted), strict=True):
        tuned = [entry for entry in everything if entry.key.gpu == gpu]
        with progress_bar("reading the tuning cache") as advance:
            result = advise_tuned(
                tuned,
                gpu,
                match_device_name(gpu),
                predictor,
                title=arguments.target,
                command=command,
                cache=arguments.cache,
                progress=advance,
            )
        documents.append(shown(result, arguments.format, str(write(result, output)), verbose=arguments.verbose))
        reports.append((result, output))
    show_gpus(reports, arguments)
    return documents
