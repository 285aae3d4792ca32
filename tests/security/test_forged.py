"""What a kernel's author writes where words may stand changes nothing of what is said of the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.compiled.compiler.kernel import Target
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.costs import cost
from advisor.compiled.ir.ir import Operation, parse
from advisor.compiled.launches.launch import KernelLaunch, inspect_launch
from advisor.python_source.source import parse_source

from .rooms import need_walls

HEAD = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef k(x, N: tl.constexpr = 16):\n"
ASM = """    y = tl.program_id(0)
    z = tl.inline_asm_elementwise("{comment}add.u32 $0, $1, 1;", "=r,r", [y], tl.int32, True, 1)
    tl.store(x, z)
"""
NVIDIA = Target(backend="cuda", arch=90)


def assembly(comment: str, folder: Path) -> Operation:
    """The inline assembly of a kernel, as its IR is read."""
    launch = KernelLaunch(source=parse_source(HEAD + ASM.format(comment=comment), folder / "k.py"), kernel="k")
    with Pool(1, timeout_s=60) as workers:
        compiled = inspect_launch(launch, NVIDIA, workers, sass=False).compiled
    return next(each for each in parse(compiled.ttir).kernel.walk() if each.name == "tt.elementwise_inline_asm")


@pytest.mark.parametrize("comment", ["// packed_element = 4096\\n", "// constraints = none, pure = false\\n"])
def test_a_comment_in_assembly_says_nothing(comment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_walls()
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))
    plain, forged = assembly("", tmp_path), assembly(comment, tmp_path)
    for name in ("packed_element", "constraints", "pure"):
        assert forged.attribute(name) == plain.attribute(name) is not None
    assert forged.operands == plain.operands and cost(forged) == cost(plain)
