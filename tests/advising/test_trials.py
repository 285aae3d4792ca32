"""Where a kernel has one configuration, others are tried: its blocks, warps and stages, with the grid that follows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from advisor.advising.choice import NEAR_BEST
from advisor.advising.kernel_launches import KernelReports
from advisor.advising.kernel_report import _look_through, advise_compiled
from advisor.advising.trials import DOUBT, Trials, same_work
from advisor.compiled.launch_report import KernelTarget
from advisor.compiled.launches.launch_options import LaunchOptions, one_launch
from advisor.compiled.launches.written_values import numbers
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import parse_source
from advisor.rendering.figures import of_one_program
from advisor.rendering.page import to_html
from advisor.rendering.screen import screen
from advisor.rendering.views import group
from advisor.result.schema import Configuration, Result

pytestmark = pytest.mark.usefixtures("not_disassembled")
H100 = load_gpu("H100")
SCALE = """
import triton
import triton.language as tl

@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)

@triton.jit
def rows(x_ptr, y_ptr, WIDTH: tl.constexpr):
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at))
"""
N = 2**24


RUN = """
def run(x, y):
    n = x.numel()
    tiles = (triton.cdiv(n, 128),)
    scale[tiles](x, y, n, BLOCK=128)
"""


def advised(folder: Path, kernel: str, grid: str | None, seconds: float | None = 60.0, **constants: int) -> Result:
    path = folder / "scale.py"
    path.write_text(SCALE + (RUN if grid is None else ""))
    asked = LaunchOptions(constexprs=constants, arguments={"n": N} if kernel == "scale" else {}, grid=grid)
    return advise_compiled(f"{path}::{kernel}", H100, cache="cold", command="", launch_options=asked, try_s=seconds)


def said(result: Result, words: str) -> str:
    return next((text for text in result.verdict.unknowns if words in text), "")


def test_under_a_fixed_grid_no_block_is_varied(tmp_path: Path) -> None:
    """Also where its number is that of the blocks in a size: with half as large blocks it would be another launch."""
    result = advised(tmp_path, "scale", str(N // 128), BLOCK=128)
    assert {trial.configuration.parameters.get("BLOCK", 128) for search in result.searches for trial in search.trials} == {128}
    assert "BLOCK is fixed" in said(result, "is fixed")


def test_the_grid_follows_the_block(tmp_path: Path) -> None:
    result = advised(tmp_path, "scale", "cdiv(n, BLOCK)", BLOCK=128)
    (launch,), (search,) = result.launches, result.searches
    assert launch.configuration is not None and launch.configuration.parameters == {"BLOCK": 128}
    assert launch.recommendation is not None and launch.predicted is not None and launch.ceiling is not None
    # 131,072 programs of 128 elements take longer to start than the bytes to move; what is left is 67 MB through DRAM.
    assert launch.recommendation.speedup > 1.5 and launch.ceiling.us == pytest.approx(2 * 2 * N / 3.35e6 * 1.2, rel=0.25)
    blocks = {trial.configuration.parameters["BLOCK"] for trial in search.trials}
    assert {64, 128, 256, 1024} <= blocks, "neighbours, and what gives each thread one access of 16 bytes"
    config = launch.recommendation.triton_config
    assert config.startswith('triton.Config({"BLOCK": ') and config == result.actions[0].snippet
    assert str(len(search.trials)) in said(result, "configurations were evaluated")


def test_a_number_of_the_grid_that_is_the_block_changes_with_it(tmp_path: Path) -> None:
    (launch,) = advised(tmp_path, "scale", None).launches
    assert launch.recommendation is not None and launch.configuration is not None
    block = launch.recommendation.configuration.parameters["BLOCK"]
    assert launch.configuration.parameters == {"BLOCK": 128} and launch.recommendation.speedup > 1.5
    assert launch.recommendation.triton_config.startswith(f"BLOCK={block}")
    assert f"change the launch in line 18, and in its grid 128 to {block}" in launch.recommendation.reason


@pytest.mark.parametrize(
    ("assigned", "where"),
    [
        ("BLOCK = 128", "change BLOCK in line 17; then this costs too little"),
        ("BLOCK = 128 if n > 9 else 64", "change BLOCK in line 17; then this costs too little"),
        ("BLOCK = 128; BLOCK = min(BLOCK, n)", "change the launch in line 18; then this costs too little"),
    ],
)
def test_a_block_that_the_launch_has_a_name_for_is_changed_where_that_is_given_its_value(tmp_path: Path, assigned: str, where: str) -> None:
    """The grid hangs on the same name: changed in the launch alone there would be as many programs, most of them of nothing."""
    run = RUN.replace("    tiles = (triton.cdiv(n, 128),)", f"    {assigned}").replace("[tiles]", "[(triton.cdiv(n, BLOCK),)]")
    (tmp_path / "k.py").write_text(SCALE + run.replace("BLOCK=128", "BLOCK=BLOCK"))
    (launch,) = advise_compiled(
        f"{tmp_path / 'k.py'}::scale", H100, cache="cold", command="", launch_options=LaunchOptions(arguments={"n": N}), try_s=60.0
    ).launches
    assert launch.recommendation is not None and launch.configuration is not None and launch.configuration.parameters == {"BLOCK": 128}
    assert f"; {where}" in launch.recommendation.reason


HEADS = """
@triton.jit
def turn(q_ptr, heads, BLOCK_H: tl.constexpr):
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    at = q_ptr + tl.program_id(0) * heads * 64 + head[:, None] * 64 + tl.arange(0, 64)[None, :]
    tl.store(at, 2 * tl.load(at, mask=head[:, None] < heads), mask=head[:, None] < heads)
"""


@pytest.mark.parametrize(("now", "grid", "largest"), [(1, "cdiv(heads, BLOCK_H)", 32), (8, "cdiv(heads, BLOCK_H)", 32), (4, "6", 4)])
def test_a_block_covers_its_extent_and_no_more(tmp_path: Path, now: int, grid: str, largest: int) -> None:
    """Beyond the next power of two there are lanes alone that are masked off. A block of one is one that was made small."""
    (tmp_path / "k.py").write_text(SCALE + HEADS)
    asked = LaunchOptions(constexprs={"BLOCK_H": now}, arguments={"heads": 24}, grid=f"8192, {grid}")
    result = advise_compiled(f"{tmp_path / 'k.py'}::turn", H100, cache="cold", command="", launch_options=asked, try_s=60.0)
    (launch,), (search,) = result.launches, result.searches
    blocks = {trial.configuration.parameters.get("BLOCK_H", now) for trial in search.trials}
    assert max(blocks) == largest, "the least block that covers 24 heads"
    if now == 1:
        assert launch.recommendation is not None and "Setting BLOCK_H=" in result.verdict.sentence
    elif grid == "6":
        assert "BLOCK_H is fixed" in said(result, "is fixed")


def test_more_work_for_each_program_is_what_there_is_to_win_where_no_block_can_be_larger(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(SCALE + HEADS)
    asked = LaunchOptions(constexprs={"BLOCK_H": 1}, arguments={"heads": 24}, grid="8192, 24")
    result = advise_compiled(f"{tmp_path / 'k.py'}::turn", H100, cache="cold", command="", launch_options=asked, try_s=60.0)
    (action,) = result.actions
    share = f"{100 * action.saving_us / result.verdict.current_us:.0f} %"
    assert action.rule == "small-programs"
    assert result.verdict.sentence == f"Bound by the start of its programs: each does too little. More work for each should save {share}."


def test_nothing_is_credited_against_a_block_that_nobody_named(tmp_path: Path) -> None:
    """What runs is not known, so the time is that of the best, and no sentence takes the guess for a launch."""
    (launch,) = (result := advised(tmp_path, "scale", "cdiv(n, BLOCK)")).launches
    assert launch.configuration is None and "configuration is not set" in result.verdict.sentence
    assert launch.predicted is not None and launch.ceiling is not None and launch.predicted.us == launch.ceiling.us
    assert said(result, "its configuration is unknown") and "BLOCK" not in said(result, "assumed")


def test_a_launch_of_tiny_programs_is_not_called_shorter_than_a_launch(tmp_path: Path) -> None:
    assert "start of its programs" in advised(tmp_path, "scale", "cdiv(n, BLOCK)", 0.0, BLOCK=32).verdict.sentence


def test_without_a_grid_no_time_is_shown_whatever_the_sizes(tmp_path: Path) -> None:
    path = tmp_path / "scale.py"
    path.write_text(SCALE)
    asked = LaunchOptions(arguments={"n": N})
    (launch,) = (result := advise_compiled(f"{path}::scale", H100, cache="cold", command="", launch_options=asked, try_s=0.0)).launches
    assert result.verdict.current_us == 0 and of_one_program(launch, result)


def test_what_changes_the_work_is_left_alone(tmp_path: Path) -> None:
    """A row's width is no block, and what is tried of the warps is within the doubt: the sentence says both."""
    result = advised(tmp_path, "rows", "16384", WIDTH=1024)
    assert "WIDTH is fixed" in said(result, "is fixed")
    (launch,), (search,) = result.launches, result.searches
    assert {trial.configuration.num_warps for trial in search.trials} > {4} and launch.recommendation is None
    assert all(trial.configuration.parameters == {} for trial in search.trials)
    least = min(trial.predicted_us for trial in search.trials if trial.predicted_us is not None)
    assert launch.predicted is not None and launch.predicted.us < DOUBT * least
    assert "None is predicted to be over 5 % faster" in said(result, "configurations were evaluated")
    # A step is taken for more than 0.5 %, so the best of all may have neighbours that were not tried.
    assert f"no neighbour is predicted over {100 * (NEAR_BEST - 1):.1f} % faster" in said(result, "configurations were evaluated")
    assert search.stopped_because in said(result, "configurations were evaluated")


@pytest.mark.parametrize("seconds", [0.0, 1e-6])
def test_without_time_nothing_is_tried(tmp_path: Path, seconds: float) -> None:
    result = advised(tmp_path, "scale", "cdiv(n, BLOCK)", seconds, BLOCK=128)
    assert not result.searches and result.launches[0].ceiling is None


def test_configurations_are_named_as_they_are_pasted(tmp_path: Path) -> None:
    asked = advised(tmp_path, "scale", "cdiv(n, BLOCK)", BLOCK=1024)
    tried = [trial.configuration for trial in asked.searches[0].trials]
    assert tried[0] == Configuration(parameters={"BLOCK": 1024}) and len(set(map(str, tried))) == len(tried)


LOOKUP = """
import torch
import triton
import triton.language as tl

@triton.jit
def lookup(ids_ptr, table_ptr, out_ptr, stride_table, stride_out, hidden, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    token = tl.load(ids_ptr + row)
    for start in range(0, hidden, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(table_ptr + token * stride_table + cols, mask=cols < hidden, other=0.0)
        tl.store(out_ptr + row * stride_out + cols, x, mask=cols < hidden)
"""


def looked_up(folder: Path, seconds: float = 120.0) -> Result:
    path = folder / "lookup.py"
    path.write_text(LOOKUP)
    asked = LaunchOptions(constexprs={"BLOCK": 128}, arguments={"hidden": 4096, "stride_out": 4096}, grid="8192")
    return advise_compiled(f"{path}::lookup", H100, cache="warm", command="", launch_options=asked, try_s=seconds)


def test_the_step_of_a_loop_over_rows_that_data_choose_is_a_block(tmp_path: Path) -> None:
    """Neither the ids nor the stride is given: what is unknown of both launches is no proof that another step computes something else."""
    result = looked_up(tmp_path)
    assert "BLOCK is fixed" not in said(result, "is fixed")
    blocks = {trial.configuration.parameters.get("BLOCK") for search in result.searches for trial in search.trials}
    assert {64, 128, 256, 512} <= blocks
    (launch,) = result.launches
    assert launch.recommendation is not None and int(launch.recommendation.configuration.parameters["BLOCK"]) > 128


def stop_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Let the time end once so many constants and batches were tried."""
    left = iter(range(steps))
    monkeypatch.setattr(Trials, "_in_time", lambda trials, until: next(left, None) is not None)


@pytest.mark.parametrize(("steps", "varied"), [(0, False), (2, True)])
def test_a_search_that_was_cut_off_says_so_and_names_no_ceiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, varied: bool
) -> None:
    """Without time for BLOCK at all, and with time for it and one batch of neighbours of a launch that is the best of them."""
    stop_after(monkeypatch, steps)
    result = advised(tmp_path, "scale", "cdiv(n, BLOCK)", BLOCK=1024)
    (launch,) = result.launches
    assert launch.ceiling is None and launch.recommendation is None and launch.unsearched in result.verdict.notes
    assert ("BLOCK not varied" in launch.unsearched) != varied and "--try-for " in launch.unsearched
    assert "Tuning cannot" not in result.verdict.sentence and "search was cut off" in result.verdict.sentence
    shown = "\n".join(text.plain for text in screen(result, group(result.launches), report=None))
    assert launch.unsearched in shown and "ceiling" not in shown and "can win <" not in shown


def test_unless_time_is_limited_configurations_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADVISOR_TRY_FOR")
    monkeypatch.setattr("advisor.advising.kernel_report.MOST_TRIED", 4)
    (launch,) = advised(tmp_path, "scale", "cdiv(n, BLOCK)", None, BLOCK=128).launches
    assert launch.unsearched.startswith("The search was cut off: 5 of") and "--try-for 60" in launch.unsearched


def test_a_search_that_was_cut_off_wins_at_least_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks come first: one batch is enough to see that 128 elements are too few, one for each thread; 1,024 are eight."""
    stop_after(monkeypatch, 2)
    result = advised(tmp_path, "scale", "cdiv(n, BLOCK)", BLOCK=128)
    (launch,) = result.launches
    assert launch.recommendation is not None and launch.recommendation.configuration.parameters == {"BLOCK": 1024}
    shown = "\n".join(text.plain for text in screen(result, group(result.launches), report=None))
    assert "or more" in shown and "best so far" in shown and launch.unsearched in shown
    page = to_html(result)
    assert "Best so far" in page and "or more" in page
    assert "out of reach of tuning" not in page and "┊ tunable ceiling" not in page


def test_of_a_long_list_some_of_the_whole_and_those_like_the_best_are_looked_at() -> None:
    source = parse_source(SCALE, "k.py")
    launches = [one_launch(source, "scale", LaunchOptions(constexprs={"BLOCK": 16 + 16 * number}, grid="64")) for number in range(100)]
    targets = [KernelTarget(id=f"scale-{number}", launch=launch, space="scale") for number, launch in enumerate(launches)]
    gathered = KernelReports()

    def look(several: Sequence[KernelTarget]) -> None:
        for target in several:
            gathered.targets[target.id] = target
            us = abs(target.launch.given.constexprs["BLOCK"] - 800.0)
            gathered.reports[target.id] = SimpleNamespace(predicted=SimpleNamespace(us=us))  # type: ignore[assignment]

    _look_through(targets, gathered, look, None)
    assert len(gathered.targets) == 24 and "scale-0" in gathered.targets and "scale-49" in gathered.targets
    assert "24 of at least 100" in gathered.unsearched["scale"]


@pytest.mark.parametrize(("block", "product", "first"), [(128, 0.0, 1024), (32768, 0.0, 1024), (512, 0.0, 1024), (128, 1.0, 256)])
def test_the_first_step_gives_each_thread_an_access_of_16_bytes(block: int, product: float, first: int) -> None:
    """A norm of a sum (128 elements, 4 warps) seems best with 2 warps until 1,024 elements are tried: half the time."""
    trials = Trials(gpu=H100, cache="warm", workers=SimpleNamespace(), counted=SimpleNamespace(), left=24)  # type: ignore[arg-type]
    analysis = SimpleNamespace(inspection=SimpleNamespace(demand=SimpleNamespace(total_tensor_flop=product)))
    steps = list(trials._neighbours({"BLOCK": block, "num_warps": 4}, analysis))  # type: ignore[arg-type]
    assert steps[0] == {"BLOCK": first, "num_warps": 4}
    assert ({"BLOCK": 2048, "num_warps": 8} in steps[:2]) is (not product and block != 512)


def test_a_block_of_rows_that_a_sample_tells_is_not_said_to_compute_something_else(tmp_path: Path) -> None:
    """Half as many rows a program in a sample of as many programs are other rows, and no proof of other work."""
    path = tmp_path / "gather.py"
    path.write_text(
        SCALE.partition("@triton.jit")[0]
        + "@triton.jit\ndef gather(ids_ptr, table_ptr, out_ptr, ROWS: tl.constexpr):\n"
        + "    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, 128)\n"
        + "    found = tl.load(table_ptr + tl.load(ids_ptr + rows)[:, None] * 128 + columns[None, :])\n"
        + "    tl.store(out_ptr + rows[:, None] * 128 + columns[None, :], found)\n"
    )
    contents = numbers(["ids_ptr=random(2000000)"], "--content")
    asked = LaunchOptions(constexprs={"ROWS": 32}, grid="cdiv(1048576, ROWS)", contents=contents)
    result = advise_compiled(f"{path}::gather", H100, cache="warm", command="", launch_options=asked, try_s=120.0)
    assert not said(result, "ROWS is") and len(result.searches[0].trials) > 6
    assert not any("other work" in trial.state for trial in result.searches[0].trials)


@pytest.mark.parametrize(
    ("exact", "table", "asked", "same"),
    [(True, 64.3, 67.1, False), (False, 64.3, 67.1, True), (False, 64.3, 80.0, False), (False, 62.3, 80.0, True)],
)
def test_a_sample_of_programs_tells_what_they_ask_for(exact: bool, table: float, asked: float, same: bool) -> None:
    """8,192 rows of a table drawn at random are 62.01 MB, and by a sample of the programs 64.34; 67.1 are asked for."""

    def demand(table_mb: float, asked_mb: float, exact: bool) -> SimpleNamespace:
        writes = {"y": 67.1}
        return SimpleNamespace(
            exact=exact,
            unlocated=frozenset(),
            likely_footprint_bytes={"table": table_mb} | writes,
            likely_read_footprints={"table": table_mb},
            likely_written_footprints=writes,
            accesses=[SimpleNamespace(name="table", requested_bytes=asked_mb), SimpleNamespace(name="y", requested_bytes=67.1)],
            total_tensor_flop=0.0,
            padding=SimpleNamespace(tensor_flop={}),
        )

    assert same_work(demand(62.01, 67.1, True), demand(table, asked, exact)) is same  # type: ignore[arg-type]
