"""What a kernel lacks is asked for at once, and what is given is taken as a launch of Triton's takes it."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

import pytest

from advisor import advise
from advisor.advising import live
from advisor.advising.kernel_report import advise_compiled
from advisor.compiled.guesses.inference import guesses
from advisor.compiled.launches import written_values
from advisor.compiled.launches.launch_options import LaunchOptions, one_launch
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import read_source
from advisor.system.errors import AdvisorError

H100 = load_gpu("H100")
GATHER = """
import triton
import triton.language as tl

@triton.jit
def rows(x_ptr, index_ptr, y_ptr, n_cols, stride_x, stride_y, HALF: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, HALF)
    source = x_ptr + tl.load(index_ptr + row) * stride_x
    low = tl.load(source + at, mask=at < n_cols)
    high = tl.load(source + HALF + at, mask=at < n_cols)
    tl.store(y_ptr + row * stride_y + at, low + high, mask=at < n_cols)

def run(x, index, y, n_rows, n_cols):
    rows[(n_rows,)](x, index, y, n_cols, x.stride(0), y.stride(0), triton.next_power_of_2(n_cols))
"""


def options(arguments: list[str]) -> LaunchOptions:
    """What a command line of these options says."""
    named: dict[str, dict[str, int]] = {"--arg": {}, "--constexpr": {}}
    for option, text in zip(arguments[::2], arguments[1::2], strict=True):
        name, _, value = text.partition("=")
        named.get(option, {})[name] = int(value)
    return LaunchOptions(arguments=named["--arg"], constexprs=named["--constexpr"])


SEQUENCES = """
import triton
import triton.language as tl

@triton.jit
def means(x_ptr, lengths_ptr, y_ptr, longest, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(tl.load(lengths_ptr + tl.program_id(0))):
        total += tl.load(x_ptr + (tl.program_id(0) * longest + row) * BLOCK + at)
    tl.store(y_ptr + tl.program_id(0) * BLOCK + at, total)

def run(x, lengths, y, sequences, longest):
    means[(sequences,)](x, lengths, y, longest, BLOCK=128)
"""


def test_what_says_how_often_a_loop_runs_is_asked_for_with_the_sizes(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    path = tmp_path / "k.py"
    path.write_text(SEQUENCES)
    first = advise_compiled(f"{path}::means", H100, cache="cold", command="advisor advise", launch_options=LaunchOptions(), try_s=0.0)
    assert {"sequences=…", "lengths_ptr=…"} <= set(shlex.split(first.actions[0].snippet or ""))


DEQUANTISED = """
import torch
import triton
import triton.language as tl

@triton.jit
def scaled(codes_ptr, other_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(codes_ptr + at) * tl.load(other_ptr + at))

def run(codes, other, y, blocks):
    assert codes.dtype == torch.int8
    scaled[(blocks,)](codes, other, y, BLOCK=128)
"""


@pytest.mark.parametrize(
    ("asserted", "asked"),
    [
        ("codes.dtype == torch.int8", ["other_ptr=*…,y_ptr=*…"]),
        ("codes.dtype == torch.bfloat16 and other.dtype == torch.float32", ["y_ptr=*…"]),
        ("codes.dtype == torch.float32", []),
    ],
)
def test_types_that_nothing_says_are_asked_for_where_those_of_others_differ(tmp_path: Path, asserted: str, asked: list[str]) -> None:
    pytest.importorskip("triton")
    path = tmp_path / "k.py"
    path.write_text(DEQUANTISED.replace("codes.dtype == torch.int8", asserted))
    first = advise_compiled(f"{path}::scaled", H100, cache="cold", command="advisor advise", launch_options=LaunchOptions(), try_s=0.0)
    words = shlex.split(first.actions[0].snippet or "")
    assert [word for option, word in itertools.pairwise(words) if option == "--signature"] == asked


def test_what_is_lacking_is_asked_for_in_one_round(tmp_path: Path) -> None:
    """With a value for all that the first report asks for, the second asks for nothing more by name; strides are taken for contiguous, and
    what the launcher works out is not asked for."""
    pytest.importorskip("triton")
    path = tmp_path / "k.py"
    path.write_text(GATHER)
    first = advise_compiled(f"{path}::rows", H100, cache="cold", command="advisor advise", launch_options=LaunchOptions(), try_s=0.0)
    asked = re.findall(r"(--(?:arg|constexpr)) (\w+)=…", first.actions[0].snippet or "")
    assert {name for _, name in asked} == {"n_rows", "n_cols"}
    given = shlex.split(" ".join(f"{option} {name}={512 if name != 'n_rows' else 4096}" for option, name in asked))
    second = advise_compiled(f"{path}::rows", H100, cache="cold", command="advisor advise", launch_options=options(given), try_s=0.0)
    assert second.launches[0].predicted is not None
    assert not re.findall(r"--(?:arg|constexpr) \w+=…", " ".join(f"{each.title} {each.snippet or ''}" for each in second.actions))


def test_a_stride_is_that_of_which_all_accesses_agree(tmp_path: Path) -> None:
    """Two halves of a row are a row of both."""
    pytest.importorskip("triton")
    path = tmp_path / "k.py"
    path.write_text(GATHER.replace("def run", "def unused").replace("    rows[", "    launcher["))
    asked = LaunchOptions(arguments={"n_cols": 512}, constexprs={"HALF": 512}, grid="4096")
    result = advise_compiled(f"{path}::rows", H100, cache="cold", command="", launch_options=asked, try_s=0.0)
    assert any("stride_x = 1,024" in text for text in result.verdict.unknowns)


@pytest.mark.parametrize("types", ["*fp16,*i32,*fp16,i32,i32,i32", "x_ptr=*fp16,stride_x=i32,stride_y=i32"])
def test_types_that_are_given_are_specialized_as_by_a_launch(tmp_path: Path, types: str) -> None:
    """1 is a constant, and a stride that is not known a multiple of 16: without, loads are narrower than any launch's."""
    path = tmp_path / "k.py"
    path.write_text(GATHER)
    source = read_source(path)
    launch = one_launch(source, "rows", LaunchOptions(signature=types, arguments={"stride_x": 1, "n_cols": 512}, constexprs={"HALF": 512}))
    guess = next(guesses(launch.source, source.kernel("rows"), launch.given))
    assert guess.signature["stride_x"] == "constexpr" and guess.constexprs["stride_x"] == 1
    assert guess.signature["n_cols"] == "i32" and "stride_y" in guess.divisible


@pytest.mark.parametrize(("text", "last"), [("range(65536)", 65535), ("range(4, 65540)", 65539), ("range(0, 131072, 2)", 131070)])
def test_a_long_range_is_what_a_tensor_holds(text: str, last: int) -> None:
    held = written_values.numbers([f"positions_ptr={text}"], "--content")["positions_ptr"]
    assert len(held) == 65536 and held[-1] == last


def test_what_decides_the_work_is_asked_for_and_limits_of_floats_are_not(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text(
        "import triton\nimport triton.language as tl\n\n@triton.jit\n"
        "def k(q, o, LOW: tl.constexpr, HIGH: tl.constexpr, BLOCK_DMODEL: tl.constexpr, BLOCK_M: tl.constexpr, NUM_TILES: tl.constexpr, "
        "IN_DTYPE: tl.constexpr, OUT_DTYPE: tl.constexpr):\n"
        "    r = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None] * BLOCK_DMODEL + tl.arange(0, BLOCK_DMODEL)[None, :]\n"
        "    for i in range(NUM_TILES):\n        x = tl.load(q + i * 4096 + r).to(IN_DTYPE).to(tl.float32)\n"
        "        y = tl.clamp(x, min=LOW, max=HIGH).to(OUT_DTYPE)\n        tl.store(o + i * 4096 + r, y)\n"
    )
    (action, *_) = advise(f"{path}::k", gpu="H100").actions
    asked = [name for name in ("BLOCK_DMODEL", "NUM_TILES", "OUT_DTYPE", "IN_DTYPE", "LOW", "HIGH", "BLOCK_M=") if name in action.title]
    assert asked == ["BLOCK_DMODEL", "NUM_TILES", "OUT_DTYPE"]


def test_a_range_that_is_too_long_is_refused_with_the_limit() -> None:
    with pytest.raises(AdvisorError, match="at most 1,048,576 numbers"):
        written_values.numbers(["positions_ptr=range(2000000)"], "--content")


def test_a_function_that_is_no_kernel_is_refused() -> None:
    with pytest.raises(AdvisorError, match="no such target"):
        advise(lambda x: x, grid=(1,), gpu="H100")


class Kernel:
    """What `@triton.jit` gives, as far as a call is checked."""

    def __init__(self, fn) -> None:
        self.fn = fn


def scale(x, y, n, eps, BLOCK, FLAG=False):
    """The arguments of a kernel."""


@pytest.mark.parametrize(
    ("args", "keywords", "said"),
    [
        ((1, 2, 3), {"BLOCK": 64}, "the call lacks eps"),
        ((1, 2, 3, 0.1), {}, "the call lacks BLOCK"),
        ((1, 2, 3, 0.1), {"BLOCK": 64, "tokens": [3]}, "the call does not take tokens"),
    ],
)
def test_a_call_that_triton_would_refuse_is_refused(args, keywords, said) -> None:
    with pytest.raises(AdvisorError, match=said):
        live._check_call(Kernel(scale), args, keywords)
    live._check_call(Kernel(scale), (1, 2, 3, 0.1), {"BLOCK": 64, "num_warps": 4})


def test_what_says_nothing_of_a_call_is_refused() -> None:
    with pytest.raises(AdvisorError, match="tokens says nothing of a live kernel"):
        advise(Kernel(scale), grid=(1,), args=(1, 2, 3, 0.1), BLOCK=64, tokens=[3], gpu="H100")
