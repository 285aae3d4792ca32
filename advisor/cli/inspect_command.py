"""Show what the compiler makes of a kernel: registers, spills, shared memory, instructions, and the demand of every source line.

FILE.py is parsed, never run. What is not given comes from the file's own description (KERNELS) where it has one, and is else guessed
and said: types by how arguments are used, constants from @triton.autotune or a small default, the grid from where the file launches
the kernel. Without a grid one program is counted.

examples:
  advisor inspect gemm::gemm_kernel --gpu H200 --sizes M=64,N=4096,K=4096
  advisor inspect my_kernels.py::scale_kernel --target sm_90
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from typing import TYPE_CHECKING

from advisor.cli import options
from advisor.system.errors import UsageError

if TYPE_CHECKING:
    from advisor.compiled.compiler.kernel import Target
    from advisor.compiled.launches.launch import Inspection
    from advisor.gpus.hardware import GpuSpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor inspect`."""
    parser.add_argument("kernel", metavar="FILE.py::KERNEL", help="a kernel in a file")
    parser.add_argument("--target", metavar="ARCH", help="what to compile for: sm_80, sm_90, sm_100, gfx942, …")
    parser.add_argument("--gpu", metavar="NAME", help="a GPU of ceilings/ (`advisor gpus`): compiles for it, and adds times and bounds")
    options.add_options(parser, "sizes", help="problem of a kernel that its file describes (KERNELS)")
    options.add_options(parser, "dtype", help="its type: bf16, fp16, fp32, tf32, fp8 or int8")
    options.add_options(parser, "routing", metavar="FILE", help="its token slots per expert; default balanced")
    options.add_kernel_arguments(parser)
    options.add_options(parser, "cache", default="warm", help="what the L2 holds when the kernel starts")
    options.add_compiling_arguments(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """Compile, count, show."""
    from advisor.advising.missing_options import missing_options, options_besides
    from advisor.advising.options import launch_options
    from advisor.advising.targets.resolve import bundled_kernel
    from advisor.compiled.launches.launch import inspect_launch
    from advisor.compiled.launches.launch_options import one_launch
    from advisor.compiled.launches.target import compile_target, gpu_of, open_kernel
    from advisor.gpus.hardware import load_gpu

    options.require_sandbox(arguments)
    arguments.kernel = bundled_kernel(arguments.kernel)
    gpu = load_gpu(arguments.gpu) if arguments.gpu else None
    target = compile_target(arguments.target) if arguments.target else None
    source, kernel = open_kernel(arguments.kernel)
    target = _agreed(target, gpu)
    if target is None:
        raise UsageError("inspect needs to know what to compile for", None, "--target sm_90 or --gpu NAME")
    gpu = gpu or gpu_of(target)
    launch = one_launch(source, kernel, launch_options(options.values_of(arguments)), gpu)
    inspection = inspect_launch(launch, target)
    print(_shown(inspection, gpu, arguments))
    if arguments.format == "text" and (lacking := missing_options(inspection)):
        lacking = tuple(option for option in lacking if not option.startswith("--signature"))  # which those besides ask for
        print(f"  To say it: {' '.join([shlex.join(['advisor', *sys.argv[1:]]), *options_besides(inspection), *lacking])}")
    return 0


def _agreed(target: Target | None, gpu: GpuSpec | None) -> Target | None:
    """The target to compile for; None: neither is given."""
    from advisor.compiled.compiler.kernel import Target

    if gpu is None:
        return target
    of_gpu = Target.of(gpu)
    if target not in (None, of_gpu):
        assert target is not None
        raise UsageError(f"{gpu.name} does not run code for {target.name}", target.name, of_gpu.name)
    return of_gpu


def _shown(inspection: Inspection, gpu: GpuSpec | None, arguments: argparse.Namespace) -> str:
    """One inspection as text or as JSON."""
    from advisor.compiled.demand.assembly import read_facts
    from advisor.compiled.report import as_json, as_text
    from advisor.diagnosis.compiled_rules import check_compiled
    from advisor.learned.compiled_launch import launch_analysis

    for attempt in inspection.attempts:
        print(f"advisor: note: {attempt}", file=sys.stderr)
    facts = read_facts(inspection.compiled)
    analysis = launch_analysis(inspection, gpu, arguments.cache, facts) if gpu is not None else None
    findings = check_compiled(inspection, facts, gpu, analysis)
    if arguments.format == "json":
        return json.dumps(as_json(inspection, facts, analysis, findings), indent=2, ensure_ascii=False)
    return as_text(inspection, facts, analysis, findings)
