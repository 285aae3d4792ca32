"""A kernel whose list or launch hangs on the architecture is read for each GPU; one that has several problems is judged at each: what is
merged, what is left out, and what that takes of the compilations."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from advisor.comparison.assembling import counts, headline
from advisor.comparison.kernels.attempts import Compiling
from advisor.comparison.kernels.readings import MOST_PROBLEMS, judged_at_each, of_kernel, readings
from advisor.comparison.kernels.resources import Judged
from advisor.comparison.kernels.time_verdict import _changes_of_code
from advisor.gpus.hardware import load_gpu
from advisor.learned.analytical import AnalyticalPredictor
from advisor.python_source.source import parse_source
from advisor.rendering.comparison_words import resource_cells
from advisor.result.comparison_schema import ResourceRow, Resources
from tests.rendering import factory

from .repository import Repository, compared_files
from .test_headline import row

GPUS = tuple(load_gpu(name) for name in ("H100", "H200", "B200"))
TEXT = """
import torch
import triton
import triton.language as tl

WARPS = [8] if torch.cuda.get_device_capability()[0] >= 10 else [2, 4]

@triton.autotune(configs=[triton.Config({}, num_warps=w) for w in WARPS], key=[])
@triton.jit
def tuned(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)

@triton.autotune(configs=[triton.Config({}, num_warps=4)], key=[])
@triton.jit
def plain(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)
"""


def read(text=TEXT, gpus=GPUS):
    return readings(None, parse_source(text, "k.py"), gpus, ((), ()), {}, ())


def groups(found, kernel):
    return [tuple(gpu.name for gpu in each.gpus) for each in of_kernel(found, kernel, kernel)]


def test_of_kernel_by_architecture():
    """GPUs of one target are read once, and those that list the same are one."""
    found = read()
    assert [len(each.gpus) for each in found] == [2, 1]
    assert groups(found, "tuned") == [("H100", "H200"), ("B200",)]
    assert groups(found, "plain") == [("H100", "H200", "B200")]
    assert [len(each.sides[1]["tuned"].configurations) for each in found] == [2, 1]


def test_readings_without_gpus():
    """Without GPUs there is one reading, in which what hangs on one stays open."""
    (found,) = read(gpus=())
    assert found.gpus == () and found.sides[1]["tuned"].problem is not None and found.sides[1]["plain"].problem is None


HELD = Resources(
    origin="compiled",
    registers_per_thread=80,
    spill_bytes=0,
    shared_memory_bytes=0,
    resident_ctas_per_sm=1,
    resident_warps_per_sm=4,
    limiter="grid",
)
PROBLEM = factory.launch(64).problem


def problems(*rows):
    return [replace(PROBLEM, sizes={"M": count}) for count in rows]


def judge_of(compiling, registers=lambda rows: 80, failing=()):
    """A judge of launches: at 4,096 rows the grid limits no CTAs; it compiles two versions each time."""

    def judge(problem, first):
        compiling.left -= 2
        rows = problem.sizes["M"]
        if rows in failing:
            return Judged(notes=("Not compiled for H100: no.",))
        held = replace(HELD, registers_per_thread=registers(rows))
        held = replace(held, resident_ctas_per_sm=6, resident_warps_per_sm=24, limiter=None) if rows >= 4096 else held
        return Judged(
            rows=(ResourceRow(kernel="k", gpu="H100", label="BLOCK=16", base=held, head=held),),
            predicted=(replace(row(f"grid {rows}", "predicted-unchanged"), problems=(problem,)),),
            notes=("one note",),
        )

    return judge


def test_every_problem_has_a_row_and_one_code_is_shown_as_it_fits_and_compiled_once():
    compiling = Compiling(left=40)
    found = judged_at_each(judge_of(compiling), problems(16, 4096), compiling)
    assert [item.label for item in found.predicted] == ["grid 16", "grid 4096"] and found.notes == ("one note",)
    assert [item.base.resident_ctas_per_sm for item in found.rows] == [6] and compiling.left == 38
    other = judged_at_each(judge_of(compiling, registers=lambda rows: rows), problems(16, 64), compiling)
    assert [item.label for item in other.rows] == ["BLOCK=16", "BLOCK=16 at M=64 bf16"] and compiling.left == 34


def test_types_tell_problems_of_one_size_apart():
    found = judged_at_each(judge_of(Compiling()), [*problems(16), replace(*problems(16), dtype="fp16")], Compiling())
    assert [item.label for item in found.predicted] == ["grid 16", "grid 16 fp16"]


@pytest.mark.parametrize(
    ("sizes", "failing", "note"),
    [
        ((1, 2, 3, 4, 5), (), "Predicted for the first 4 of its 5 problems: it is compiled for each."),
        ((1, 2), (2,), "Not predicted at M=2 bf16: Not compiled for H100: no."),
        ((1, 1), (), "1 of its 2 problems is the same launch as another: `sizes` in advisor.toml names the arguments."),
    ],
)
def test_a_problem_without_a_row_of_its_own_is_named(sizes, failing, note):
    found = judged_at_each(judge_of(Compiling(), failing=failing), problems(*sizes), Compiling())
    assert note in found.notes and len(found.predicted) == min(len({*sizes} - {*failing}), MOST_PROBLEMS)


PRODUCT = """import triton
import triton.language as tl


@triton.jit
def down(x, w, out, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        left = tl.load(x + rows[:, None] * K + start + depth[None, :], mask=rows[:, None] < M, other=0.0)
        right = tl.load(w + columns[None, :] * K + start + depth[:, None], mask=columns[None, :] < N, other=0.0)
        total = tl.dot(left, right, total)
    at = out + rows[:, None] * N + columns[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


def run(x, w, out, M, N, K):
    grid = (triton.cdiv(M, SIZE), triton.cdiv(N, 128))
    down[grid](x, w, out, M, N, K, BLOCK_M=SIZE, BLOCK_N=128, BLOCK_K=64, num_warps=4, num_stages=3)
"""


@pytest.fixture(autouse=True)
def without_machine_code() -> None:
    """With it: its matrix instructions are read."""


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    """At 16 rows, slower and faster within doubt, and at 4,096."""
    pytest.importorskip("triton")
    sides = [{"k.py": PRODUCT.replace("SIZE", rows)} for rows in ("64", "16")]
    repository = Repository(tmp_path_factory.mktemp("product"))
    sizes = [(16, 2048, 7168), (4096, 4096, 14336), (16, 4096, 2048)]
    args = [dict(zip("MNK", item, strict=True)) for item in sizes]
    found = [compared_files(repository, AnalyticalPredictor(), *sides, compiling=True, args=item) for item in args]
    return [item.subjects[0] for item in found]


def test_few_ctas_and_what_the_compiler_made_otherwise_are_the_cause_where_no_bytes_are(subjects):
    (row,) = subjects[0].static
    assert row.cause == "matrix instruction wgmma → mma.sync; buffers of its loop 3 → 2; 16 CTAs on 132 SMs, before and now"
    assert row.verdict == "within-doubt" and row.reason.endswith(f"; {row.cause}") and "below peak rate" not in row.reason
    assert headline(subjects[2:], *counts(subjects[2:])).startswith("Faster or slower is not certain on H100: ")


@pytest.mark.parametrize(
    ("warps", "slower", "changes"),
    [
        (4, True, ["matrix instruction wgmma → mma.sync", "buffers of its loop 3 → 2"]),
        (4, False, ["matrix instruction wgmma → mma.sync", "resident CTAs per SM 3 → 6"]),
        (8, False, ["matrix instruction wgmma → mma.sync"]),  # of CTAs of other sizes
    ],
)
def test_fewer_buffers_are_no_cause_of_what_is_faster_and_more_ctas_none_of_what_is_slower(warps, slower, changes):
    def attempt(instruction, buffers, resident, num_warps):
        text = f"%1 = ttg.local_alloc : () -> !ttg.memdesc<{buffers}x64x64xbf16, #shared, #smem, mutable>"
        of_code = SimpleNamespace(ttgir=text, ptx=instruction, amdgcn="", resources=SimpleNamespace(num_warps=num_warps))
        return SimpleNamespace(compiled=of_code, resources=replace(HELD, resident_ctas_per_sm=resident))

    assert _changes_of_code(attempt("wgmma.mma_async", 3, 3, 4), attempt("mma.sync", 2, 6, warps), slower=slower) == changes


def test_bytes_that_explain_the_time_are_the_cause_alone(subjects):
    (row,) = subjects[1].static
    assert row.verdict == "predicted-regressed" and row.cause.startswith("reads w 64 times → 256 times, ")
    assert "SMs" not in row.cause and "wgmma" not in row.cause


ROTARY = """import triton
import triton.language as tl


@triton.jit
def rotary(q, cos, heads, HALF: tl.constexpr, BLOCK_H: tl.constexpr):
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    pair = tl.arange(0, HALF)
    turn = tl.load(cos + tl.program_id(0) * HALF + pair)[None, :]
    at = q + tl.program_id(0) * heads * HALF + head[:, None] * HALF + pair[None, :]
    mask = head[:, None] < heads
    tl.store(at, tl.load(at, mask=mask, other=0.0) * turn, mask=mask)


def run(q, cos, tokens, heads):
    rotary[(tokens, triton.cdiv(heads, SIZE))](q, cos, heads, HALF=64, BLOCK_H=SIZE)
"""


@pytest.mark.parametrize(("sizes", "cause"), [("18", "262,144 → 32,768 programs"), ("81", "32,768 → 262,144 programs")])
def test_where_the_start_of_programs_binds_their_number_is_the_cause_and_no_bytes(repository, sizes, cause):
    sides = [{"k.py": ROTARY.replace("SIZE", size)} for size in sizes]
    found = compared_files(repository, AnalyticalPredictor(), *sides, compiling=True, args={"tokens": 8192, "heads": 32})
    (row,) = found.subjects[0].static
    assert row.cause == cause and f": {cause}; BLOCK_H" in found.headline


def test_assumed_types_are_named_at_every_size(subjects):
    for subject in subjects:
        assert "Types of tensors that nothing says are assumed: x, w, out: bf16. Say them by `types` in advisor.toml." in subject.notes


def test_two_matrix_instructions_are_not_counted_as_one(subjects):
    for subject in subjects:
        tensor = {name.partition(" instr")[0]: cells for name, *cells in resource_cells(subject.resources[0]) if "tensor" in name}
        assert list(tensor) == ["tensor (HGMMA.64x128x16)", "tensor (HMMA.16816)"]
        assert tensor["tensor (HGMMA.64x128x16)"][1] == tensor["tensor (HMMA.16816)"][0] == "0"
