"""Widths of global accesses, under the line of the author that makes them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from advisor.compiled.demand.assembly import access_widths, classify, loops_around_loads, read_facts
from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.python_source.source import read_source

from .shared_pool import POOL

PTX = """
	.loc	1 11 9                          // k.py:11:9
	// begin inline asm
	mov.u32 %r1, 0x0;
	.loc	1 12 9                          // k.py:12:9
	mov.u32 %r2, 0x0;
	@%p1 ld.global.L1::evict_last.v2.b32 { %r1, %r2 }, [ %rd1 + 0 ];
	// end inline asm
	// begin inline asm
	.loc	1 20 3                          // k.py:20:3
	cp.async.cg.shared.global [ %r29 + 0 ], [ %rd26 + 0 ], 0x10, %r31;
	// end inline asm
	.loc	2 40 9, function_name $L__info_string0, inlined_at 1 30 5 // other.py:40:9
	st.global.b16 	[%rd8], %rs1;
	.loc	2 41 9                          // other.py:41:9
	ld.global.u8 	%rs2, [%rd8];
	.file	1 "/tmp/somewhere/k.py"
	.file	2 "/lib/other.py"
"""


@pytest.mark.parametrize(
    ("opcode", "kind"), [("DFMA", "fp64"), ("DSETP", "fp64"), ("FFMA", "fma"), ("DMMA", "tensor"), ("DEPBAR", "synchronisation")]
)
def test_double_precision_is_counted_apart(opcode: str, kind: str) -> None:
    assert classify(opcode) == kind


def test_inline_assembly_belongs_to_its_first_line() -> None:
    assert access_widths(PTX, {"k.py"}) == {("load", 11): (8,), ("load", 20): (16,), ("store", 30): (2,)}


LOOP = """
	.file	1 "/tmp/somewhere/k.py"
$L__BB0_2:                              // =>This Inner Loop Header: Depth=1
	.loc	1 7 9                           // k.py:7:9
	ld.global.b16 	{ %rs1 }, [ %rd6 + 0 ];
	cvt.f32.bf16 	%r8, %rs1;
	add.f32 	%r10, %r10, %r8;
	add.s64 	%rd9, %rd9, -1;
	add.s32 	%r9, %r9, %r2;
	setp.ne.b64 	%p2, %rd9, 0;
	@%p2 bra 	$L__BB0_2;
"""


@pytest.mark.parametrize(
    ("old", "new", "together"),
    [
        ("", "", 4),
        ("	ld.global", "	ld.global.b64 	{ %rd7 }, [ %rd5 + 0 ];\n	ld.global", 4),  # a scalar of 64 bits goes with the row
        ("ld.global.b16", "ld.global.v4.b32", 1),  # more registers than four trips have at once
        ("add.f32 	%r10, %r10, %r8;", "st.global.b32 	[%rd8], %r8;", 1),  # the next load may be of what is stored
        ("add.f32 	%r10, %r10, %r8;", "div.full.f32 	%r10, %r10, %r8;\n" * 5, 1),  # long
        ("add.s64 	%rd9, %rd9, -1;", "sub.s64 	%rd9, %rd8, %rd7;", 1),  # a search, which does not count
        ("	.loc", '	.pragma "nounroll";\n	.loc', 1),
        # A loop with three stages and two loads in each trip.
        (
            "ld.global.b16 	{ %rs1 }, [ %rd6 + 0 ];",
            "cp.async.cg.shared.global [ %r1 + 0 ], [ %rd6 + 0 ], 0x10, %r2;\n	cp.async.commit_group ;\n	cp.async.commit_group ;\n"
            "	cp.async.wait_group 0x2;",
            2,
        ),
    ],
)
def test_trips_that_ptxas_makes_one_of(old: str, new: str, together: int) -> None:
    assert loops_around_loads(LOOP.replace(old, new) if old else LOOP, {"k.py"}) == {7: (1, together)}


@pytest.mark.parametrize("other", ["", ", other=0.0"])
@pytest.mark.parametrize(("n", "width"), [(4096, 16), (4095, 2)])
def test_masked_loads_of_a_compiled_kernel(other: str, n: int, width: int, tmp_path: Path) -> None:
    text = f"""
        import triton
        import triton.language as tl

        @triton.jit
        def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
            at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + at, mask=at < n{other})
            tl.store(y_ptr + at, x * 2.0, mask=at < n)
    """
    path = tmp_path / "k.py"
    path.write_text(textwrap.dedent(text))
    launch = make_launch(read_source(path), "k", arguments={"n": n}, constexprs={"BLOCK": 1024}, grid=(4,))
    facts = read_facts(inspect_launch(launch, compile_target("sm_90"), POOL, sass=False).compiled)
    assert set(facts.widths[("load", 8)]) == {width} and set(facts.widths[("store", 9)]) == {width}


POLICY = """
	.file	1 "/tmp/somewhere/k.py"
	.loc	1 36 13                         // k.py:36:13
	// begin inline asm
	.loc	1 36 13                         // k.py:36:13
	mov.u64 %rd13, 0x0;
	.loc	1 37 13                         // k.py:37:13
	createpolicy.fractional.L2::evict_first.b64 %rd13, 1.0;
	// end inline asm
	// begin inline asm
	@%p45 ld.global.L1::evict_first.L2::cache_hint.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd12 + 0 ], %rd13;
	// end inline asm
"""


def test_lines_counted_up_in_inline_assembly_do_not_outlast_it() -> None:
    assert access_widths(POLICY, {"k.py"}) == {("load", 36): (16,)}
