"""Which targets the installed Triton compiles for. It lists them nowhere, so they are found by compiling the smallest kernel.

LLVM, Triton's passes and ptxas each know some of them; where one is lacking, LLVM may end the compile process instead of saying so.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.compiled.compiler.compile import compile_kernels, version
from advisor.compiled.compiler.errors import CompileError
from advisor.compiled.compiler.kernel import CompileRequest, Target
from advisor.compiled.compiler.pool import Pool
from advisor.gpus.hardware import list_gpus
from advisor.python_source.rebuild import rebuild
from advisor.python_source.source import parse_source
from advisor.system.errors import UsageError

SMALLEST = "import triton\nimport triton.language as tl\n@triton.jit\ndef smallest(x):\n    tl.store(x, 1)\n"


def check_target(target: Target, pool: Pool) -> None:
    """Check that the installed Triton compiles anything for a target: asked where a kernel did not compile, which may be its own fault.

    Raises:
        UsageError: It compiles nothing for this one, and something for others: the targets of `ceilings/` that work are named.
    """
    if supported([target], pool):
        return
    known = {Target.of(gpu): None for gpu in list_gpus()}
    if working := supported(sorted(known, key=lambda each: (each.backend, str(each.arch).zfill(3))), pool):
        names = ", ".join(each.name for each in working)
        raise UsageError(f"Triton {version()} does not compile for this target", target.name, f"one that it does, such as {names}")


def supported(targets: Sequence[Target], pool: Pool) -> list[Target]:
    """Those for which the smallest kernel compiles. None at all, where no compiler can run on this machine."""
    rebuilt = rebuild(parse_source(SMALLEST, "smallest.py"), "smallest")
    requests = [CompileRequest(rebuilt=rebuilt, signature={"x": "*fp32"}, constexprs={}, target=each, sass=False) for each in targets]
    answers = compile_kernels(requests, pool)
    return [target for target, answer in zip(targets, answers, strict=True) if not isinstance(answer, CompileError)]
