"""Kernels that an earlier version got wrong or could not answer (`../shared/cases/kernels`), each with what is right.

All are asked for as `advisor inspect FILE::KERNEL --gpu H100` does; `cases/README.md` says what came out once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from advisor.advising.missing_options import missing_options
from advisor.compiled.analysis import KernelAnalysis, kernel_analysis
from advisor.compiled.compiler.kernel import Target
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.launches.launch import JUDGED, Inspection, inspect_launch
from advisor.compiled.launches.launch_options import LaunchOptions, one_launch
from advisor.compiled.launches.target import open_kernel
from advisor.diagnosis.compiled_rules import check_compiled
from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.result.schema import Finding
from advisor.system.errors import UsageError
from tests.conftest import missing

H100 = load_gpu("H100")
A100, GB300 = load_gpu("A100"), load_gpu("GB300")
GUESSED_TYPES = {"*fp16", "constexpr", "i32", "*i32", "*u8", "fp32"}

Inspect = Callable[..., Inspection]


@pytest.fixture(scope="module")
def folder(data_dir: Path) -> Path:
    path = data_dir.parent / "cases" / "kernels"
    if not path.is_dir():
        missing("beside the folder of ADVISOR_DATA there is no cases/kernels")
    return path


@pytest.fixture(scope="module")
def inspect(folder: Path, pool: Pool) -> Inspect:
    """`inspect("gather.py::k", grid="64", constexprs={"D": 4096})`, inspected, of an H100 where no other `gpu` is given. What is right of
    them is told by the IR: nothing is disassembled."""

    def inspected(target: str, gpu: GpuSpec = H100, **asked: Any) -> Inspection:
        return inspect_launch(one_launch(*open_kernel(str(folder / target)), LaunchOptions(**asked), gpu), Target.of(gpu), pool, sass=False)

    return inspected


analysed = functools.partial(kernel_analysis, gpu=H100, cache="cold")


def findings(inspection: Inspection, analysis: KernelAnalysis) -> Mapping[str, Finding]:
    return {each.rule: each for each in check_compiled(inspection, analysis.facts, H100, analysis)}


@pytest.mark.parametrize("data", [{}, {"shapes": {"x_ptr": [65536, 4096]}}])  # as in g2.toml
def test_indices_that_are_not_known_are_distinct(data: dict[str, Any], inspect: Inspect) -> None:
    found = inspect("gather_sum.py::k", constexprs={"D": 4096}, grid="65536", toml=data)
    analysis = analysed(found)
    assert float(analysis.demand.dram_bytes[0]) == pytest.approx(65536 * 4096 * 2, rel=0.01)
    assert analysis.predicted is not None and analysis.predicted.low_us is not None and analysis.predicted.high_us is not None
    assert analysis.predicted.low_us < 174 < analysis.predicted.high_us
    assert any("[sizes] and [shapes]" in each for each in found.assumptions)


@pytest.mark.parametrize(
    ("target", "constants", "stride"),
    [("gather.py::s", {"D": 4096}, "stride_b"), ("row_stride.py::rows", {"n": 4096, "BLOCK": 4096}, "stride")],
)
def test_strides_that_are_not_given_are_of_contiguous_rows(target: str, constants: dict[str, int], stride: str, inspect: Inspect) -> None:
    found = inspect(target, constexprs=constants, grid="16384")
    analysis = analysed(found)
    assert float(analysis.demand.dram_bytes[0]) == pytest.approx(2 * 16384 * 4096 * 2, rel=0.01)
    assert analysis.predicted is not None and analysis.predicted.us == pytest.approx(94.5, rel=0.05)
    assert missing_options(found) == ()  # which is what nearly every call passes
    assert any(f"contiguous rows with {stride} = 4,096" in each for each in found.assumptions)


@pytest.mark.parametrize(("n", "rows", "l2_passes", "dram_passes"), [(1024, 65536, 2.12, 2), (16384, 132, 2.12, 2), (131072, 8192, 3, 3)])
def test_a_second_pass_comes_from_where_its_row_is_still_held(
    n: int, rows: int, l2_passes: float, dram_passes: int, inspect: Inspect
) -> None:
    """Of the L1, all but an eighth, where rows are little more than a quarter of it; of DRAM where those in flight exceed the L2."""
    found = inspect("second_pass.py::two_pass", constexprs={"BLOCK": 1024}, arguments={"n": n}, element="fp32", grid=str(rows))
    asked = analysed(found).demand
    assert float(asked.l2_bytes[0]) / (4 * n * rows) == pytest.approx(l2_passes, rel=0.01)
    assert float(asked.dram_bytes[0]) / (4 * n * rows) == pytest.approx(dram_passes, rel=0.01)


def test_one_operand_of_fp32_makes_no_other_so(inspect: Inspect) -> None:
    types = inspect("exp_guess.py::k").guess.signature
    assert {name: types[name] for name in ("a_ptr", "b_ptr", "g_ptr")} == {"a_ptr": "*bf16", "b_ptr": "*bf16", "g_ptr": "*fp32"}


@pytest.mark.parametrize("constants", [{}, {"LO": -448.0}])
def test_a_default_that_cannot_be_worked_out_is_not_asked_for_where_any_number_takes_as_long(
    constants: dict[str, float], inspect: Inspect
) -> None:
    found = inspect("default_unknown.py::k", constexprs=constants)
    assert found.compiled.ptx and missing_options(found) == ("--grid …",)
    assert found.guess.constexprs["LO"] == constants.get("LO", found.guess.constexprs["LO"])


@pytest.mark.parametrize(
    "file",
    [
        "local_import",
        "local_alias",
        "reexport/use",
        "third/foo/use",
        "pkg/const",
        "direct_info",
        "cond_const",
        "cexpr_call",
        "spec",
        "syntax",
    ],
)
def test_names_are_found_as_python_finds_them(file: str, inspect: Inspect) -> None:
    found = inspect(f"{file}.py::k")
    assert found.compiled.ptx and found.demand.requested_load_bytes > 0


@pytest.mark.parametrize(
    ("file", "right"),
    [
        ("either", lambda c, t: c["use_int4"] != c["use_int8"]),
        ("guessR", lambda c, t: c["HV"] >= c["H"] > 0 and c["BD"] >= c["R"]),
        ("dtype_name", lambda c, t: all(isinstance(c[f"fp8_dtype_{end}"], (int, float)) for end in ("min", "max"))),
        ("bitcast8", lambda c, t: t["bytes_ptr"] in ("*u8", "*i8")),
        ("static_assert", lambda c, t: c["HC"] == 4),
        ("tuple_param", lambda c, t: len(c["SIZES"]) > 0),
    ],
)
def test_guesses_compile_do_work_and_are_said(file: str, right: Callable[[Any, Any], bool], inspect: Inspect) -> None:
    found = inspect(f"{file}.py::k")
    assert right(found.guess.constexprs, found.guess.signature)
    assert found.demand.requested_load_bytes > 0 and found.demand.requested_store_bytes > 0
    constants = {parameter.name for parameter in found.launch.source.kernel("k").parameters if parameter.is_constexpr}
    said = " ".join(found.assumptions)
    assert all(f"Assumed {name} = " in said for name in constants)


@pytest.mark.parametrize("given", [{}, {"signature": "strides=(i32,i32)", "arguments": {"strides": (4096, 1)}}])
def test_arguments_may_be_tuples(given: dict[str, Any], inspect: Inspect) -> None:
    found = inspect("tuple_arg.py::k", constexprs={"BLOCK": 4096}, grid="8192", **given)
    assert float(analysed(found).demand.dram_bytes[0]) == pytest.approx((8192 * 4096 + 4096) * 2, rel=0.01)
    assert missing_options(found) == ()


def test_a_number_for_a_tuple_is_refused_with_how_to_give_one(inspect: Inspect) -> None:
    with pytest.raises(UsageError, match=r"a tuple; got 4096; expected 2 values; --arg 'strides=\(…,…\)'"):
        inspect("tuple_arg.py::k", constexprs={"BLOCK": 4096}, grid="8192", arguments={"strides": 4096})


@pytest.mark.parametrize(("kernel", "cause"), [("k", True), ("k2", False)])
def test_do_not_specialize_is_named(kernel: str, cause: bool, inspect: Inspect) -> None:
    found = inspect(f"nospec.py::{kernel}", arguments={"n": 2**24}, constexprs={"BLOCK": 1024}, grid="cdiv(n, BLOCK)")
    narrow = findings(found, analysed(found)).get("narrow-access")
    assert (narrow is not None and narrow.remedy.startswith("remove n from do_not_specialize")) is cause


def test_arithmetic_of_masks_and_indices_that_binds_is_named_with_its_lines(inspect: Inspect) -> None:
    types = "src_ptr=*u8,dst_ptr=*u8,weight_ptr=*fp32"
    sizes = {"width": 1920, "height": 135}
    found = inspect(
        "filter_u8.py::filter5", signature=types, arguments=sizes, constexprs={"BLOCK": 1024}, grid="cdiv(width * height, BLOCK)"
    )
    analysis = analysed(found)
    finding = findings(found, analysis)["index-arithmetic"]
    assert analysis.predicted is not None and analysis.config_binding_pipeline == "alu"
    assert finding.source_line == 17 and (finding.saving_us or 0) > 0.1 * analysis.predicted.us and "line 18: " in finding.evidence


def test_divisions_of_indices_save_what_the_flat_form_does(inspect: Inspect) -> None:
    n = 2**26
    split, flat = (
        inspect(f"widen.py::widen_{form}", arguments={"n": n}, constexprs={"BLOCK": 1024, **more}, grid="cdiv(n, BLOCK)")
        for form, more in (("split", {"HALF": 64}), ("flat", {}))
    )
    before, after = analysed(split), analysed(flat)
    assert before.predicted is not None and after.predicted is not None
    finding = findings(split, before)["index-arithmetic"]
    assert 9 <= (finding.source_line or 0) <= 12
    assert finding.saving_us == pytest.approx(before.predicted.us - after.predicted.us, rel=0.5)


def test_a_block_of_a_whole_image_is_judged_without_compiling(inspect: Inspect) -> None:
    found = inspect("whole_image_block.py::mix_whole_image", arguments={"size": 2**18}, constexprs={"BLOCK": 2**18}, grid="64")
    finding = findings(found, analysed(found))["block-exceeds-registers"]
    assert found.compiled.metadata[JUDGED] == 2**18 and "2,048 for each of 128 threads" in finding.title
    assert finding.remedy.startswith("blocks of ") and finding.saving_us is not None


def test_doubles_take_the_time_of_the_fp64_rate_and_are_named(inspect: Inspect) -> None:
    found = inspect("double.py::scale", GB300, arguments={"n": 10**9}, constexprs={"BLOCK": 1024}, grid="cdiv(n, BLOCK)", element="fp32")
    analysis = kernel_analysis(found, GB300, "warm")
    finding = {each.rule: each for each in check_compiled(found, analysis.facts, GB300, analysis)}["double-precision"]
    assert analysis.predicted is not None and analysis.predicted.us == pytest.approx(30_000, rel=0.1)
    assert finding.source_line == 9 and (finding.saving_us or 0) > 0.9 * analysis.predicted.us


@pytest.mark.parametrize("target", ["shared_vectors.py::with_vectors", "reread.py::thrice"])
def test_rows_in_flight_that_fit_the_l2_are_read_from_dram_once_whatever_vectors_all_rows_share(target: str, inspect: Inspect) -> None:
    found = inspect(target, A100, arguments={"N": 8192, "stride": 8192}, constexprs={"BLOCK": 8192}, grid="4096", element="fp16")
    analysis = kernel_analysis(found, A100, "cold")
    assert float(analysis.demand.dram_bytes[0]) == pytest.approx(2 * 4096 * 8192 * 2, rel=0.035)
    assert analysis.predicted is not None and analysis.predicted.us == pytest.approx(92, rel=0.06)
