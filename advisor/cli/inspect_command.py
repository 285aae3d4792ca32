"""Show what the compiler makes of a kernel: registers, spills, shared memory, instructions, and the demand of every source line.

FILE.py is parsed, never run. What is not given comes from the file's own description (KERNELS) where it has one, and is else guessed
and said: types by how arguments are used, constants from @triton.autotune or a small default, the grid from where the file launches
the kernel. Without a grid one program is counted. A cache of Triton (a folder such as ~/.triton/cache, one of its folders, an entry's
JSON; ::KERNEL names a kernel of it) is read as it lies there, and needs no source.

examples:
  advisor inspect gemm::gemm_kernel --gpu H200 --sizes M=64,N=4096,K=4096
  advisor inspect my_kernels.py::scale_kernel --target sm_90
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys

from advisor.advising.missing_options import missing_options, options_besides
from advisor.advising.targets.resolve import bundled_kernel
from advisor.cli import options
from advisor.cli.options import add_kernel_arguments, launch_options
from advisor.compiled.analysis import kernel_analysis
from advisor.compiled.compiler.kernel import Target
from advisor.compiled.compiler.pool import borrowed
from advisor.compiled.demand.assembly import read_facts
from advisor.compiled.launches.launch import Inspection, inspect_launch
from advisor.compiled.launches.launch_options import one_launch
from advisor.compiled.launches.target import compile_target, gpu_of, is_kernel_target, open_kernel
from advisor.compiled.launches.triton_cache import UNRECORDED, cached_kernels, cached_launch, inspect_cached, is_cache_target, staleness
from advisor.compiled.report import as_json, as_text
from advisor.diagnosis.compiled_rules import check_compiled
from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.system.errors import AdvisorError, InputError, UsageError

HELP = "compiled resources and demand per source line of any kernel"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor inspect`."""
    parser.add_argument("kernel", metavar="FILE.py::KERNEL", help="a kernel in a file, or a cache of Triton")
    parser.add_argument("--target", metavar="ARCH", help="what to compile for: sm_80, sm_90, sm_100, gfx942, …")
    parser.add_argument("--gpu", metavar="NAME", help="a GPU of ceilings/ (`advisor gpus`): compiles for it, and adds times and bounds")
    options.add_sizes_argument(parser, "problem of a kernel that its file describes (KERNELS)")
    parser.add_argument("--dtype", type=options.operand_type, metavar="TYPE", help="its type: bf16, fp16, fp32, tf32, fp8 or int8")
    parser.add_argument("--routing", metavar="FILE", help="its token slots per expert; default uniform")
    add_kernel_arguments(parser)
    parser.add_argument("--cache", choices=("cold", "warm"), default="warm", help="what the L2 holds when the kernel starts")
    options.add_compiling_arguments(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """Compile, count, show."""

    options.require_room(arguments)
    arguments.kernel = bundled_kernel(arguments.kernel)
    gpu = load_gpu(arguments.gpu) if arguments.gpu else None
    target = compile_target(arguments.target) if arguments.target else None
    if not is_kernel_target(arguments.kernel) and is_cache_target(arguments.kernel):
        return _cached(arguments, target, gpu)
    source, kernel = open_kernel(arguments.kernel)
    target = _agreed(target, gpu)
    if target is None:
        raise UsageError("inspect needs to know what to compile for", None, "--target sm_90 or --gpu NAME")
    gpu = gpu or gpu_of(target)
    launch = one_launch(source, kernel, launch_options(arguments), gpu)
    inspection = inspect_launch(launch, target)
    print(_shown(inspection, gpu, arguments))
    if arguments.format == "text" and (lacking := missing_options(inspection)):
        print(f"  To say it: {' '.join([shlex.join(['advisor', *sys.argv[1:]]), *options_besides(inspection), *lacking])}")
    return 0


def _agreed(target: Target | None, gpu: GpuSpec | None) -> Target | None:
    """The target to compile for; None: neither is given."""

    if gpu is None:
        return target
    own = Target.of(gpu)
    if target not in (None, own):
        assert target is not None
        raise UsageError(f"{gpu.name} does not run code for {target.name}", target.name, own.name)
    return own


def _cached(arguments: argparse.Namespace, target: Target | None, gpu: GpuSpec | None) -> int:
    """Every entry of a cache that runs on the target, one after the other; the others are counted on stderr."""

    wanted = _agreed(target, gpu)
    shown: list[str] = []
    others: dict[str, int] = {}
    asked = launch_options(arguments)
    with borrowed(None) as pool:
        for entry in cached_kernels(arguments.kernel):
            try:
                if wanted not in (None, entry.target):
                    others[entry.target.name] = others.get(entry.target.name, 0) + 1
                    continue
                launch = cached_launch(entry, asked)
                inspection = inspect_cached(entry, launch, pool)
            except UsageError:
                raise
            except AdvisorError as error:
                if error.exit_code != 2:
                    raise
                options.warn(f"{entry.id}: {error}")
                continue
            if stale := staleness(entry, launch):
                options.warn(stale)
            shown.append(_shown(inspection, gpu or gpu_of(entry.target), arguments))
    if others:
        assert wanted is not None
        counts = ", ".join(f"{count} for {name}" for name, count in sorted(others.items()))
        options.warn(f"entries that are not for {wanted.name} are left out: {counts}")
    if not shown:
        raise InputError(f"{arguments.kernel}: no entry that can be shown", None, None, "see the lines above")
    if arguments.format == "json":
        print(shown[0] if len(shown) == 1 else "[" + ",\n".join(shown) + "]")
    else:
        print("\n\n".join(shown))
        print(f"\n{UNRECORDED}")
    return 0


def _shown(inspection: Inspection, gpu: GpuSpec | None, arguments: argparse.Namespace) -> str:
    """One inspection as text or as JSON."""

    for attempt in inspection.attempts:
        print(f"advisor: note: {attempt}", file=sys.stderr)
    facts = read_facts(inspection.compiled)
    analysis = kernel_analysis(inspection, gpu, arguments.cache, facts) if gpu is not None else None
    findings = check_compiled(inspection, facts, gpu, analysis)
    if arguments.format == "json":
        return json.dumps(as_json(inspection, facts, analysis, findings), indent=2, ensure_ascii=False)
    return as_text(inspection, facts, analysis, findings)
