"""What hangs on data that are not given: it is named, with how to give it, and no distance to the bound is told."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from advisor.advising.kernel_report import advise_compiled
from advisor.advising.missing_options import say_contents
from advisor.compiled.demand.likely_places import NOT_TOLD, in_words
from advisor.compiled.launches.launch import content_option
from advisor.compiled.launches.launch_options import LaunchOptions
from advisor.compiled.launches.written_values import random_indices
from advisor.gpus.hardware import load_gpu
from advisor.rendering import figures
from advisor.result.schema import Result

pytest.importorskip("triton")

pytestmark = pytest.mark.usefixtures("not_disassembled")


SEQUENCES, HEADS, TOKENS, BLOCK, HEAD = 16, 8, 1024, 16, 128
PAGED = """import triton
import triton.language as tl


@triton.jit
def decode(out_ptr, q_ptr, cache_ptr, block_tables_ptr, lengths_ptr, blocks, BLOCK: tl.constexpr, HEAD: tl.constexpr):
    sequence, head = tl.program_id(0), tl.program_id(1)
    d, n = tl.arange(0, HEAD), tl.arange(0, BLOCK)
    place = (sequence * 8 + head) * HEAD + d
    q = tl.load(q_ptr + place)
    total = tl.zeros((HEAD,), tl.float32)
    for j in range(0, tl.cdiv(tl.load(lengths_ptr + sequence), BLOCK)):
        block = tl.load(block_tables_ptr + sequence * blocks + j).to(tl.int64)
        kv = tl.load(cache_ptr + (block * BLOCK + n[:, None]) * (8 * HEAD) + head * HEAD + d[None, :])
        total += tl.sum(tl.exp(tl.sum((kv * q[None, :]).to(tl.float32), axis=1))[:, None] * kv, axis=0)
    tl.store(out_ptr + place, total)
"""


def paged(folder: Path, contents: dict[str, object], sizes: dict[str, int] | None = None) -> Result:
    path = folder / "k.py"
    path.write_text(PAGED)
    asked = LaunchOptions(
        constexprs={"BLOCK": BLOCK, "HEAD": HEAD},
        arguments={"blocks": TOKENS // BLOCK},
        grid=f"{SEQUENCES},{HEADS}",
        signature="*bf16,*bf16,*bf16,*i32,*i32,i32,constexpr,constexpr",
        toml={"contents": contents, "sizes": sizes or {}},
    )
    return advise_compiled(f"{path}::decode", load_gpu("H100"), cache="cold", command="advisor advise", launch_options=asked)


def test_a_table_that_decides_which_blocks_are_read_is_asked_for(tmp_path: Path) -> None:
    result = paged(tmp_path, {"lengths_ptr": TOKENS})
    assert " about " in result.verdict.sentence
    assert (
        "Assumed: the contents of block_tables_ptr. The share of peak depends on that: say it with --arg or --content."
        in result.verdict.notes
    )
    first = next(action for action in result.actions if action.title == "Specify the contents of block_tables_ptr")
    assert first.launches == (result.launches[0].id,)
    assert "`advisor record --contents block_tables_ptr -o launches.jsonl -- python …`" in first.detail
    assert shlex.split(first.snippet or "") == ["advisor", "advise", "--content", "block_tables_ptr=permutation(…)"]
    notes = " ".join(result.verdict.unknowns)
    assert "assumes different rows for each index (from the contents of block_tables_ptr)" in notes
    assert "addresses depend on the contents of block_tables_ptr" in notes
    ways = notes.replace("--content 'block_tables_ptr=permutation(…)'", "")
    assert "block_tables_ptr=" not in ways, "one number for all of it would send every program to one block"


def test_a_table_that_is_given_is_asked_for_no_more(tmp_path: Path) -> None:
    table = np.random.default_rng(0).permutation(SEQUENCES * TOKENS // BLOCK).tolist()
    result = paged(tmp_path, {"lengths_ptr": TOKENS, "block_tables_ptr": table})
    assert not re.search(r"\b(at|above) about ", result.verdict.sentence) and not result.verdict.notes
    assert not [action for action in result.actions if action.title.startswith("Specify what")]
    assert not [text for text in result.verdict.unknowns if "block_tables_ptr" in text]


def test_trips_that_are_guessed_are_no_ground_for_a_distance(tmp_path: Path) -> None:
    result = paged(tmp_path, {"block_tables_ptr": list(range(SEQUENCES * TOKENS // BLOCK))})
    assert any("the contents of lengths_ptr (loops that depend on it are counted once)." in note for note in result.verdict.notes)
    assert "Specify the contents of lengths_ptr" in [action.title for action in result.actions]


GATHER = """import triton
import triton.language as tl


@triton.jit
def k(x_ptr, label_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, cols, BLOCK):
        total += tl.sum(tl.load(x_ptr + row * cols + start + tl.arange(0, BLOCK)).to(tl.float32))
    tl.store(out_ptr + row, total - tl.load(x_ptr + row * cols + tl.load(label_ptr + row)))
"""


def test_one_element_that_a_label_chooses_changes_no_distance(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text(GATHER)
    asked = LaunchOptions(constexprs={"BLOCK": 1024}, arguments={"cols": 4096}, grid="512")
    result = advise_compiled(f"{path}::k", load_gpu("H100"), cache="cold", command="advisor advise", launch_options=asked)
    assert " at about " not in result.verdict.sentence and not result.verdict.notes
    assert not [action for action in result.actions if action.title.startswith("Specify what")]


GROUPED = """import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 32})], key=["groups"])
@triton.jit
def grouped(a_ptrs, c_ptrs, rows_ptr, groups, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    for g in range(groups):
        a = tl.load(a_ptrs + g).to(tl.pointer_type(tl.float16))
        c = tl.load(c_ptrs + g).to(tl.pointer_type(tl.float16))
        for row in range(tl.program_id(0), tl.load(rows_ptr + g), 132):
            tile = tl.load(a + row * BLOCK * BLOCK + lanes[:, None] * BLOCK + lanes[None, :])
            tl.store(c + row * BLOCK * BLOCK + lanes[:, None] * BLOCK + lanes[None, :], tl.dot(tile, tl.load(
                a + row * BLOCK * BLOCK + lanes[:, None] * BLOCK + lanes[None, :])).to(tl.float16))
"""
ROWS = [132, 264]


def grouped(folder: Path, contents: dict[str, object]) -> Result:
    path = folder / "k.py"
    path.write_text(GROUPED)
    asked = LaunchOptions(
        arguments={"groups": 2}, grid="132", toml={"contents": contents}, signature="a_ptrs=*i64,c_ptrs=*i64,rows_ptr=*i32,groups=i32"
    )
    return advise_compiled(f"{path}::grouped", load_gpu("H100"), cache="cold", command="advisor advise", launch_options=asked)


def test_the_best_of_several_configurations_is_no_ground_either(tmp_path: Path) -> None:
    result = grouped(tmp_path, {})
    assert "yet: a loop's trips depend on the contents of rows_ptr. One trip is counted." in result.verdict.sentence
    assert result.actions[0].title.startswith("Specify the contents of")
    assert any("the contents of a_ptrs, c_ptrs and rows_ptr" in note for note in result.verdict.notes)
    assert all(figures.of_one_program(launch, result) for launch in result.launches) and not result.verdict.current_us  # no time is shown
    assert "Specify the contents of a_ptrs, c_ptrs and rows_ptr" in [action.title for action in result.actions]


def test_addresses_that_are_given_tell_where_loads_through_them_go(tmp_path: Path) -> None:
    """What two lines load is counted once, also where it is known by its address alone."""
    step = 1 << 28
    result = grouped(tmp_path, {"rows_ptr": ROWS, "a_ptrs": [step, 2 * step], "c_ptrs": [3 * step, 4 * step]})
    assert " at about " not in result.verdict.sentence and not result.verdict.notes
    (launch,) = result.launches
    dram = next(part for part in launch.pipelines if part.pipeline == "dram")
    block = launch.ceiling_configuration.parameters["BLOCK"] if launch.ceiling_configuration else 0
    tiles = 2 * sum(ROWS) * int(block) ** 2 * 2
    assert dram.demand == pytest.approx(tiles, rel=0.01)


def test_what_a_guess_stands_for_is_put_in_words() -> None:
    assert in_words({"values loaded from b", "values loaded from a"}) == "the contents of a and b"
    assert in_words({"argument n", "values loaded from a"}) == "the contents of a, and the value of n"
    assert in_words({f"argument {name}" for name in "abcd"}) == "the values of a, b, c and d"
    assert in_words({f"argument {name}" for name in "abcdef"}) == "the values of a, b, c and 3 more"
    assert in_words({"the result of a loop"}) == NOT_TOLD


def test_data_that_likely_work_hangs_on_are_asked_for_too(tmp_path: Path) -> None:
    """Where the size of the cache is known, all blocks are taken for distinct: a distance is told, to what is likely."""
    sizes = {"cache_ptr": SEQUENCES * TOKENS * HEADS * HEAD}
    result = paged(tmp_path, {"lengths_ptr": TOKENS}, sizes)
    assert "Only part of the work is certain. The rest depends on data that were not specified." in result.verdict.notes
    assert "Specify the contents of block_tables_ptr" in [action.title for action in result.actions]


def test_what_a_record_lacks_is_recorded_again() -> None:
    reasons = {"first": frozenset({"values loaded from table"}), "second": frozenset({"the result of a loop"})}
    deciding, names = {"k": {"k-1": reasons["first"]}, "other": {"other-1": reasons["second"]}}, {"k": frozenset({"table"})}
    (action,) = say_contents(
        deciding, names, {"k": frozenset()}, "launches.jsonl", "advisor advise launches.jsonl", recorded=True, alone=False
    )
    assert action.title == "Specify the contents of table in k" and action.launches == ("k-1",)
    assert action.detail.endswith("Record the launch again with the command below.")
    assert action.snippet == "advisor record --contents table -o launches.jsonl -- python …"
    assert say_contents({"other": {"other-1": reasons["second"]}}, {}, {}, "k.py::other", "", recorded=True, alone=True) == ()


def test_contents_of_several_kernels_are_given_in_a_command_each() -> None:
    deciding = {
        name: {f"{name}-1": frozenset({"values loaded from " + tensor})} for name, tensor in (("k", "table"), ("other", "seq_lens"))
    }
    names = {"k": frozenset({"n", "table"}), "other": frozenset({"m", "seq_lens"})}
    offsets = {"k": frozenset({"table"}), "other": frozenset[str]()}
    command = "advisor advise f.py --arg n=5 --arg m=6"
    (action,) = say_contents(deciding, names, offsets, "f.py", command, recorded=False, alone=False)
    assert (action.snippet or "").splitlines() == [
        "advisor advise f.py::k --arg n=5 --content 'table=range(0,…,…)'",
        "advisor advise f.py::other --arg m=6 --content seq_lens=…",
    ]


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("ids", "--content 'ids=random(…)'"),
        ("page_table", "--content 'page_table=permutation(…)'"),
        ("kv_page_indices", "--content 'kv_page_indices=permutation(…)'"),
        ("seq_lens", "--content seq_lens=…"),
        ("starts", "--content 'starts=range(0,…,…)'"),
    ],
)
def test_content_option_by_what_a_tensor_holds(name: str, option: str) -> None:
    assert content_option(name, {"starts"}) == option


LOCKED = """import triton
import triton.language as tl


@triton.jit
def add(x_ptr, sum_ptr, lock_ptr, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + o)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(sum_ptr + o, x + tl.load(sum_ptr + o))
    tl.atomic_xchg(lock_ptr, 0)
"""


def test_a_lock_is_taken_to_be_free(tmp_path: Path) -> None:
    """As in Triton's own layer norm: nobody can say what a lock holds, and the time of the rest is told all the same."""
    path = tmp_path / "k.py"
    path.write_text(LOCKED)
    asked = LaunchOptions(constexprs={"BLOCK": 1024}, grid="4096")
    result = advise_compiled(f"{path}::add", load_gpu("H100"), cache="cold", command="", launch_options=asked)
    assert "Cannot predict" not in result.verdict.sentence and result.launches[0].predicted is not None
    assert not [text for text in result.verdict.unknowns if "Nothing is moved" in text or "nothing is moved" in text]
    assert "atomics-in-loop" not in {finding.rule for finding in result.launches[0].findings}


LOOKED_UP = """import triton
import triton.language as tl


@triton.jit
def decoded(out_ptr, codes_ptr, table_ptr, stride_codes, N: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, N)
    codes = tl.load(codes_ptr + row * stride_codes + column).to(tl.int32)
    tl.store(out_ptr + row * N + column, tl.load(table_ptr + (codes & 15)))
"""


def test_what_is_looked_up_by_rows_whose_stride_is_assumed_is_as_if_it_were_given(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text(LOOKED_UP)
    predicted, bounds = [], []
    for arguments in ({}, {"stride_codes": 4096}):
        asked = LaunchOptions(
            constexprs={"N": 4096},
            arguments=arguments,
            grid="16384",
            signature="*fp16,*u8,*fp16,i32,constexpr",
            toml={"contents": {"codes_ptr": random_indices(256, 2**20)}},
        )
        result = advise_compiled(f"{path}::decoded", load_gpu("H100"), cache="cold", command="advisor advise", launch_options=asked)
        (launch,) = result.launches
        assert launch.predicted is not None
        predicted.append(launch.predicted.us)
        bounds.append(launch.bound.us)
        assert bool(arguments) or any("stride_codes = 4,096" in note for note in result.verdict.unknowns)
    assert predicted[0] == pytest.approx(predicted[1]) and bounds[0] <= bounds[1] * (1 + 1e-9)
