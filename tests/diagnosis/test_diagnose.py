"""Running the rules: crashes, rules that do not apply, launches of which little is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor import pipelines
from advisor.diagnosis import RULES, LaunchContext, context, diagnose, gap_parts
from advisor.diagnosis.context import Modelled
from advisor.diagnosis.rule import microseconds, rule
from advisor.gpus.hardware import list_gpus, load_gpu
from advisor.result.schema import GAP_CAUSES, Configuration, Finding, Problem

from .launches import gemm, launch, moe, rows, tile


@rule("Always crashes")
def broken_rule(context: LaunchContext) -> Finding | None:
    """A rule that crashes."""
    raise ZeroDivisionError("float division by zero")


def test_a_crash_becomes_an_error_finding_and_the_run_goes_on() -> None:
    case = launch(gemm(4096, 1056, 4096), tile(128, 256, 64, 8, 8), "H20")
    diagnosis = diagnose(case, (broken_rule, *RULES))
    assert diagnosis.findings[0].rule == "broken-rule"
    assert diagnosis.findings[0].severity == "error"
    assert "ZeroDivisionError: float division by zero" in diagnosis.findings[0].evidence
    assert any("broken-rule crashed" in fault for fault in diagnosis.faults)
    assert diagnosis.findings[1:] == diagnose(case).findings


def test_without_a_configuration_only_the_problem_is_judged() -> None:
    diagnosis = diagnose(launch(moe(64), None, "H100"))
    assert set(diagnosis.passed) | {f.rule for f in diagnosis.findings} == {"launch-bound", "low-rows-per-expert"}
    assert diagnosis.gap == ()


def test_rules_that_do_not_apply_are_neither_passed_nor_found() -> None:
    diagnosis = diagnose(launch(rows(4096, 4096), Configuration(parameters={"BLOCK_SIZE": 4096}), "H100"))
    said = set(diagnosis.passed) | {finding.rule for finding in diagnosis.findings}
    assert not said & {"expert-padding", "group-size-l2", "below-bound", "clamped-block-k", "entry-far-from-m"}


def test_a_row_of_a_batch_is_diagnosed_as_the_launch_alone() -> None:
    gpu, configurations = load_gpu("H20"), [tile(16, 64, 128), tile(64, 64, 64, 32)]
    problems = [moe(64), moe(512)]
    analysis = pipelines.analyse(pipelines.problem_batch(problems), pipelines.configuration_batch(configurations), gpu)
    for i, (problem, configuration) in enumerate(zip(problems, configurations, strict=True)):
        batched = diagnose(context(problem, configuration, gpu, modelled=Modelled(analysis, gpu), i=i))
        alone = diagnose(context(problem, configuration, gpu))
        assert [f.rule for f in batched.findings] == [f.rule for f in alone.findings]
        assert [f.saving_us for f in batched.findings] == pytest.approx([f.saving_us for f in alone.findings])
        assert [part.us for part in batched.gap] == pytest.approx([part.us for part in alone.gap])


def test_a_whole_space_against_one_problem_can_be_the_batch() -> None:
    gpu, configurations = load_gpu("A100"), [tile(16, 64, 128), tile(64, 64, 64, 32), tile(128, 128, 64)]
    analysis = pipelines.analyse(pipelines.problem_batch([moe(512)]), pipelines.configuration_batch(configurations), gpu)
    for i, configuration in enumerate(configurations):
        batched = context(moe(512), configuration, gpu, modelled=Modelled(analysis, gpu), i=i)
        assert batched.current_us == pytest.approx(context(moe(512), configuration, gpu).current_us)


def test_what_if_needs_a_configuration() -> None:
    with pytest.raises(ValueError, match="configuration"):
        launch(moe(64), None, "H100").what_if(BLOCK_SIZE_M=32)


SIZES = st.sampled_from([1, 2, 3, 7, 16, 17, 64, 100, 129, 512, 1000, 4096])
WIDTHS = st.sampled_from([16, 100, 128, 512, 1408, 2048, 7168])
BLOCKS = st.sampled_from([16, 32, 64, 128, 256])


@st.composite
def launches(draw: st.DrawFn) -> tuple[Problem, Configuration]:
    dtype = draw(st.sampled_from(["bf16", "fp16", "fp8", "int8", "fp32", "tf32"]))
    cache = draw(st.sampled_from(["cold", "warm"]))
    kind = draw(st.sampled_from(["gemm", "moe", "attention", "normalization", "elementwise"]))
    warps, stages = draw(st.sampled_from([1, 2, 4, 8, 16, 32])), draw(st.integers(1, 6))
    if kind == "attention":
        heads = draw(st.sampled_from([(32, 8), (8, 8), (16, 1)]))
        keys = draw(SIZES)
        op = draw(st.sampled_from(["prefill", "decode"]))
        sizes = {"B": draw(st.integers(1, 4)), "H": heads[0], "H_kv": heads[1], "N": keys, "D": draw(st.sampled_from([64, 128]))}
        sizes |= {"M": 1 if op == "decode" else keys, "causal": draw(st.integers(0, 1)) if op == "prefill" else 0}
        problem = Problem(family="attention", op=op, sizes=sizes, dtype=dtype, cache=cache)
        blocks = {"BLOCK_M": draw(BLOCKS), "BLOCK_N": draw(BLOCKS)}
    elif kind in ("normalization", "elementwise"):
        op = "rms_norm" if kind == "normalization" else "silu_and_mul"
        problem = Problem(family=kind, op=op, sizes={"B": draw(SIZES), "H": draw(WIDTHS)}, dtype=dtype, cache=cache)
        blocks = {"BLOCK_SIZE": draw(st.sampled_from([128, 1024, 8192]))}
    else:
        blocks = {"BLOCK_SIZE_M": draw(BLOCKS), "BLOCK_SIZE_N": draw(BLOCKS), "BLOCK_SIZE_K": draw(BLOCKS)}
        blocks["GROUP_SIZE_M"] = draw(st.sampled_from([1, 3, 16, 64]))
        if kind == "gemm":
            sizes = {"M": draw(SIZES), "N": draw(WIDTHS), "K": draw(WIDTHS)}
            problem = Problem(family="gemm", op="gemm", sizes=sizes, dtype=dtype, cache=cache)
            blocks |= draw(st.sampled_from([{}, {"SPLIT_K": 1}, {"SPLIT_K": 8}]))
        else:
            experts = draw(st.sampled_from([1, 8, 60]))
            sizes = {"M": draw(SIZES), "E": experts, "topk": min(4, experts), "H": draw(WIDTHS), "N": draw(WIDTHS)}
            routing = draw(st.none() | st.lists(st.integers(0, 50), min_size=experts, max_size=experts).filter(any).map(tuple))
            op = draw(st.sampled_from(["w13", "w2"]))
            problem = Problem(family="fused_moe", op=op, sizes=sizes, dtype=dtype, cache=cache, routing=routing)
    return problem, Configuration(parameters=dict(blocks), num_warps=warps, num_stages=stages)


@settings(max_examples=120, deadline=None)
@given(
    case=launches(),
    gpu=st.sampled_from(list_gpus()),
    factor=st.none() | st.floats(0.2, 20),
    measured=st.none() | st.floats(0.5, 1e6),
    ceiling=st.none() | st.floats(0.5, 1e6),
    entry_m=st.none() | st.sampled_from([1, 64, 4096]),
)
def test_any_launch_is_diagnosed(case, gpu, factor, measured, ceiling, entry_m) -> None:  # type: ignore[no-untyped-def]
    problem, configuration = case
    plain = context(problem, configuration, gpu)
    predicted = None if factor is None or plain.predicted_us is None else factor * plain.predicted_us
    launched = context(
        problem,
        configuration,
        gpu,
        predicted_us=predicted,
        measured_us=measured,
        ceiling_us=ceiling,
        entry=configuration,
        entry_m=entry_m,
    )
    diagnosis = diagnose(launched)
    assert not [finding for finding in diagnosis.findings if "crashed" in finding.title], diagnosis.faults
    assert not set(diagnosis.passed) & {finding.rule for finding in diagnosis.findings}
    assert launched.predicted_us is not None
    for finding in diagnosis.findings:
        if finding.saving_us is not None:
            least = 0.0 if finding.rule == "not-tensor-dtype" else launched.bound_us  # in another type the bound is another
            assert 0 <= finding.saving_us <= max(launched.predicted_us - least, 0) + 1e-6
        assert "nan" not in f"{finding.title} {finding.evidence} {finding.remedy}".split()
        assert "inf" not in f"{finding.title} {finding.evidence} {finding.remedy}".split()
    total = math.fsum(part.us for part in diagnosis.gap)
    assert all(math.isfinite(part.us) for part in diagnosis.gap)
    assert all(part.us >= 0 or part.cause == "unexplained" for part in diagnosis.gap)
    order = [GAP_CAUSES.index(part.cause) for part in diagnosis.gap]
    assert order == sorted(order)
    if measured is not None:
        assert total == pytest.approx(measured - launched.bound_us, rel=1e-9, abs=1e-9)
    elif launched.runs:
        assert total == pytest.approx(launched.predicted_us - launched.bound_us, rel=1e-9, abs=1e-9)
    else:
        assert diagnosis.gap == ()


def test_no_change_promises_less_than_the_tunable_ceiling() -> None:
    """Neighbours are members of the space whose best the ceiling is."""
    problem, configuration = moe(64), tile(128, 32, 32, 1, 8, 2)
    plain = launch(problem, configuration, "A100").neighbours()
    free = plain.best(np.ones(len(plain.changes), dtype=bool))
    assert free is not None
    ceiling_us = 1.2 * free.us
    limited = launch(problem, configuration, "A100", ceiling_us=ceiling_us)
    assert ceiling_us < limited.current_us
    held = limited.neighbours().best(np.ones(len(plain.changes), dtype=bool))
    assert held is not None and held.parameters == free.parameters and held.us == ceiling_us


def parts(**options: float) -> dict[str, float]:
    return {part.cause: part.us for part in gap_parts(launch(moe(512), tile(128, 64, 64, 32), "H20", **options))}


def test_predicted_minus_bound_is_split_over_all_causes_in_order() -> None:
    context = launch(moe(512), tile(128, 64, 64, 32), "H20")
    split = gap_parts(context)
    assert [part.cause for part in split] == list(GAP_CAUSES[:-1])
    assert math.fsum(part.us for part in split) == pytest.approx(context.current_us - context.bound_us)
    assert max(split, key=lambda part: part.us).cause == "padding"
    assert all(part.note and part.origin == "predicted" for part in split)


@pytest.mark.parametrize(("cache", "kept"), [("warm", True), ("cold", False)])
def test_what_a_warm_l2_would_keep_is_extra_traffic_of_a_warm_launch_alone(cache: str, kept: bool) -> None:
    split = gap_parts(launch(replace(moe(512), cache=cache), tile(128, 64, 64, 32), "H20"))
    assert ("would keep between launches" in next(part.note for part in split if part.cause == "traffic")) is kept


@pytest.mark.parametrize("predicted", [250.0, 400.0, 4000.0])
def test_another_prediction_scales_the_parts(predicted: float) -> None:
    bound = launch(moe(512), tile(128, 64, 64, 32), "H20").bound_us
    plain, scaled = parts(), parts(predicted_us=predicted)
    assert math.fsum(scaled.values()) == pytest.approx(predicted - bound)
    assert scaled["padding"] / (predicted - bound) == pytest.approx(plain["padding"] / math.fsum(plain.values()))


def test_a_measurement_adds_what_is_unexplained() -> None:
    slower, faster = parts(measured_us=5000.0), parts(measured_us=300.0)
    assert slower["unexplained"] > 0 > faster["unexplained"]
    context = launch(moe(512), tile(128, 64, 64, 32), "H20")
    assert math.fsum(faster.values()) == pytest.approx(300.0 - context.bound_us)
    assert faster["unexplained"] == pytest.approx(300.0 - context.current_us)


def test_a_prediction_at_or_below_the_bound_has_nothing_to_split() -> None:
    bound = launch(moe(512), tile(128, 64, 64, 32), "H20").bound_us
    at, below = parts(predicted_us=bound), parts(predicted_us=bound - 10)
    assert math.fsum(at.values()) == 0
    assert below.pop("unexplained") == pytest.approx(-10) and not any(below.values())
    both = parts(predicted_us=bound - 10, measured_us=bound + 30)
    assert both["unexplained"] == pytest.approx(30)


def test_without_a_prediction_all_is_unexplained() -> None:
    split = gap_parts(launch(moe(64), None, "H100", measured_us=500.0))
    assert [part.cause for part in split] == ["unexplained"]
    assert gap_parts(launch(moe(64), None, "H100")) == ()


@pytest.mark.parametrize("predicted", [None, 450.0, 2000.0])
def test_padding_costs_the_same_in_the_waterfall_and_in_its_finding(predicted: float | None) -> None:
    """Whatever is predicted: the bound is no part of what a cause costs, and is not scaled."""
    context = launch(moe(512), tile(128, 64, 64, 32), "H20", predicted_us=predicted)
    padding = next(part.us for part in gap_parts(context) if part.cause == "padding")
    assert context.costs(relax=("padding",)) == pytest.approx(padding)
    (finding,) = [finding for finding in diagnose(context).findings if finding.rule == "expert-padding"]
    assert f"padding costs {microseconds(padding)} in all" in finding.evidence
    assert finding.saving_us is not None and finding.saving_us <= padding * (1 + 1e-9)
