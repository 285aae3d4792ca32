"""Show what the compiler makes of a kernel: registers, spills, shared memory, instructions, and the demand of every source line.

FILE.py is parsed, never run. What is not given is guessed and said: types by how arguments are used, constants from
@triton.autotune or a small default. Without --grid one program is counted.
"""

from __future__ import annotations

import argparse
import json
import sys

HELP = "compiled resources and demand per source line of any kernel"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor inspect`."""
    from advisor.cli.options import positive_integer

    parser.add_argument("kernel", metavar="FILE.py::KERNEL")
    parser.add_argument("--target", metavar="ARCH", help="what to compile for: sm_80, sm_90, sm_100, gfx942, …")
    parser.add_argument("--gpu", metavar="NAME", help="a GPU of ceilings/ (`advisor gpus`): compiles for it, and adds times and bounds")
    parser.add_argument("--constexpr", action="append", default=[], metavar="NAME=VALUE", help="a tl.constexpr argument")
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="value of a numeric argument")
    parser.add_argument("--content", action="append", default=[], metavar="NAME=VALUE", help="what an index tensor holds everywhere")
    parser.add_argument("--signature", metavar="TYPES", help='"*fp16,*fp16,i32" in order, or "x_ptr=*fp16,n=i32"')
    parser.add_argument("--element", default="fp16", metavar="TYPE", help="type behind pointers whose type is not given (fp16)")
    parser.add_argument("--grid", metavar="X[,Y[,Z]]", help="programs; an expression over arguments: 'cdiv(M, BLOCK_M),8'")
    parser.add_argument("--num-warps", type=positive_integer, metavar="N")
    parser.add_argument("--num-stages", type=positive_integer, metavar="N")
    parser.add_argument("--num-ctas", type=positive_integer, metavar="N")
    parser.add_argument("--maxnreg", type=positive_integer, metavar="N")
    parser.add_argument("--toml", metavar="FILE", help="the same in a file: signature, constexprs, arguments, grid, num_warps, …")
    parser.add_argument("--cache", choices=("cold", "warm"), default="warm", help="what the L2 holds when the kernel starts")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """Compile, count, show."""
    from advisor.compiled import target as targets
    from advisor.compiled.analysis import kernel_analysis
    from advisor.compiled.assembly import read_facts
    from advisor.compiled.kernel import Target
    from advisor.compiled.launch import inspect_launch
    from advisor.compiled.report import as_json, as_text
    from advisor.diagnosis.compiled_rules import check_compiled
    from advisor.errors import UsageError
    from advisor.hardware import load_gpu

    source, kernel = targets.open_kernel(arguments.kernel)
    gpu = load_gpu(arguments.gpu) if arguments.gpu else None
    if arguments.target:
        target = targets.compile_target(arguments.target)
        if gpu is not None and Target.of(gpu) != target:
            raise UsageError(f"{gpu.name} does not run code for {target.name}", arguments.target, Target.of(gpu).name)
    elif gpu is not None:
        target = Target.of(gpu)
    else:
        raise UsageError("inspect needs to know what to compile for", None, "--target sm_90 or --gpu NAME")
    gpu = gpu or targets.gpu_of(target)
    options = {name: getattr(arguments, name) for name in ("num_warps", "num_stages", "num_ctas", "maxnreg")}
    given = {
        "types": targets.signature(arguments.signature, source, kernel) if arguments.signature else {},
        "constexprs": targets.assignments(arguments.constexpr, "--constexpr"),
        "arguments": targets.assignments(arguments.arg, "--arg"),
        "contents": targets.assignments(arguments.content, "--content"),
        "options": {k: v for k, v in options.items() if v is not None},
        "grid": arguments.grid, "element": targets.type_name(arguments.element),
    }  # fmt: skip
    data = targets.read_toml(arguments.toml) if arguments.toml else {}
    launch = targets.launch_from_toml(source, kernel, data, given)
    inspection = inspect_launch(launch, target)
    for attempt in inspection.attempts:
        print(f"advisor: note: {attempt}", file=sys.stderr)
    facts = read_facts(inspection.compiled)
    analysis = kernel_analysis(inspection, gpu, arguments.cache, facts) if gpu is not None else None
    findings = check_compiled(inspection, facts, gpu)
    if arguments.format == "json":
        print(json.dumps(as_json(inspection, facts, analysis, findings), indent=2, ensure_ascii=False))
    else:
        print(as_text(inspection, facts, analysis, findings))
    return 0
