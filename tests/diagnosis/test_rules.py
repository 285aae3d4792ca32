"""Every rule fires where it should, holds its tongue where it should, and keeps the contract."""

from __future__ import annotations

import importlib
import math
import pkgutil
import re
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from advisor.diagnosis import RULES, Change, LaunchContext, Pricing, Sharing, compiled_rules, diagnose, rules
from advisor.diagnosis.catalogue import TITLES, explanation
from advisor.diagnosis.compiled_rules import COMPILED_RULES
from advisor.diagnosis.context import THRESHOLD
from advisor.diagnosis.rule import Rule
from advisor.diagnosis.rules.filling import HELD
from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import Prediction
from advisor.pipelines import ConfigurationBatch, ProblemBatch
from advisor.pipelines.occupancy import LIMITERS
from advisor.result.schema import Configuration, Problem
from advisor.system.resources import folder

from .cases import CASES
from .launches import gemm, launch, moe, rows, tile

BY_ID = {rule.id: rule for rule in RULES}
ids = [rule.id for rule in RULES]


def test_every_rule_has_a_case() -> None:
    assert list(CASES) == ids


@pytest.mark.parametrize("rule", RULES, ids=ids)
def test_the_id_is_kebab_case_and_the_name_of_the_function(rule: Rule[LaunchContext]) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.id)
    assert rule.look.__name__ == rule.id.replace("-", "_")


@pytest.mark.parametrize(("package", "listed"), [(rules, RULES), (compiled_rules, COMPILED_RULES)])
def test_every_rule_of_the_modules_is_listed(package: ModuleType, listed: tuple[Rule[Any], ...]) -> None:
    modules = [importlib.import_module(f"{package.__name__}.{module.name}") for module in pkgutil.iter_modules(package.__path__)]
    defined = {rule.id for module in modules for rule in vars(module).values() if isinstance(rule, Rule)}
    assert defined == {rule.id for rule in listed}
    assert len(listed) == len({rule.id for rule in listed})


@pytest.mark.parametrize("rule", TITLES)
def test_the_explanation_says_what_how_and_whence(rule: str) -> None:
    text = explanation(rule)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["What it means", "How it is computed", "What to do", "Source"]
    assert all(len(part.strip()) > 20 for part in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:])
    assert TITLES[rule] and not TITLES[rule].endswith(".")


def test_every_text_is_of_a_rule() -> None:
    assert {path.stem for path in (folder("reports") / "rules").iterdir()} == set(TITLES)


@pytest.mark.parametrize("rule", RULES, ids=ids)
def test_it_fires(rule: Rule[LaunchContext]) -> None:
    context = CASES[rule.id][0]()
    findings = {finding.rule: finding for finding in diagnose(context).findings}
    assert rule.id in findings
    finding = findings[rule.id]
    assert finding.title and finding.evidence and finding.remedy and not finding.title.endswith(".")
    assert re.search(r"\d", finding.title + finding.evidence), "evidence is numbers"
    if finding.saving_us is not None:
        assert context.predicted_us is not None
        least = context.bound_us if rule.id != "not-tensor-dtype" else context.bound_of(replace(context.problem, dtype="tf32"))
        assert THRESHOLD * context.predicted_us <= finding.saving_us <= context.predicted_us - least + 1e-9
        assert finding.severity in ("warning", "advice")
    else:
        assert finding.severity in ("error", "info", "warning", "advice")


@pytest.mark.parametrize("rule", RULES, ids=ids)
def test_it_passes(rule: Rule[LaunchContext]) -> None:
    context = CASES[rule.id][1]()
    diagnosis = diagnose(context)
    assert rule.id in diagnosis.passed, [finding for finding in diagnosis.findings if finding.rule == rule.id]


@pytest.mark.parametrize("rule", RULES, ids=ids)
def test_the_remedy_saves_what_is_said(rule: Rule[LaunchContext]) -> None:
    """Parameters in the remedy, put into the configuration, are predicted as fast as the remedy says."""
    context = CASES[rule.id][0]()
    finding = rule.check(context)
    assert finding is not None
    said = re.search(r"((?:\w+=\d+(?: and )?)+)(?: fits)?:? \(?([\d.,]+) µs predicted", finding.remedy)
    if said is None or rule.id == "clamped-block-k":
        return
    changes = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", said.group(1))}
    after = context.what_if(**changes)
    assert after == pytest.approx(float(said.group(2).replace(",", "")), rel=0.01)
    if finding.saving_us is not None:
        assert finding.saving_us <= context.current_us - after + 1e-9


def test_errors_come_first_then_the_largest_saving() -> None:
    problem, configuration = gemm(4096, 1056, 4096), tile(128, 256, 64, 8, 8)
    crashing = Rule(id="crashing", title="Crashes", needs=(), changes_type=False, look=lambda context: 1 / 0)  # type: ignore[arg-type, return-value]
    diagnosis = diagnose(launch(problem, configuration, "H20"), (*RULES, crashing))
    assert diagnosis.findings[0].severity == "error"
    savings = [finding.saving_us or 0.0 for finding in diagnosis.findings[1:]]
    assert savings == sorted(savings, reverse=True)
    assert len(savings) >= 2


def test_a_launch_that_does_not_fit_is_told_once() -> None:
    diagnosis = diagnose(launch(gemm(4096, 4096, 4096), tile(128, 256, 128, 8, 8, 4), "L40S"))
    assert [finding.rule for finding in diagnosis.findings] == ["cannot-launch"]
    assert "288 KiB" in diagnosis.findings[0].title and "99 KiB" in diagnosis.findings[0].title
    assert diagnosis.gap == ()


def test_every_limit_of_the_resident_ctas_has_words() -> None:
    """The grid limits nothing that a CTA holds; the last limit is that of sm_100."""
    assert set(HELD) == set(LIMITERS) - {"none", "grid"}
    sizes = {"B": 8, "H": 32, "H_kv": 8, "M": 512, "N": 8192, "D": 64, "causal": 1}
    configuration = Configuration(parameters={"BLOCK_M": 64, "BLOCK_N": 64}, num_warps=4, num_stages=2)
    context = launch(Problem(family="attention", op="prefill", sizes=sizes), configuration, "B200")
    (finding,) = (each for each in diagnose(context).findings if each.rule == "low-occupancy")
    assert finding.title == "2 resident CTAs per SM, limited by tensor-memory"
    assert finding.evidence.startswith("256 columns of tensor memory each of 512")


def test_too_many_threads_cannot_launch() -> None:
    finding = diagnose(launch(gemm(4096, 4096, 4096), tile(128, 128, 32, 8, 64, 2), "A100")).findings[0]
    assert finding.rule == "cannot-launch" and "2,048 threads" in finding.title


def test_a_measurement_below_the_bound_is_a_fault() -> None:
    diagnosis = diagnose(launch(moe(64), None, "H100", measured_us=5.0))
    assert diagnosis.findings[0].rule == "below-bound"
    assert any("model or measurement fault" in fault for fault in diagnosis.faults)


def test_what_is_below_the_bound_of_its_configuration_alone_may_have_run_with_another() -> None:
    tiles = tile(128, 64, 64, 32, 4, 4)
    for us, named in ((5.0, False), (230.0, True)):
        finding = diagnose(launch(moe(512), tiles, "H20", measured_us=us)).findings[0]
        assert finding.rule == "below-bound" and ("configuration" in finding.title) == named == ("configuration" in finding.remedy)


@pytest.mark.parametrize("us", [5.0, 5000.0])
@pytest.mark.parametrize("origin", ["measured", "simulated"])
def test_what_was_simulated_is_not_called_measured(us: float, origin: str) -> None:
    diagnosis = diagnose(launch(moe(64), tile(16, 64, 128), "H100", measured_us=us, measured_origin=origin))
    rule = "below-bound" if us < 100 else "slower-than-predicted"
    finding = next(finding for finding in diagnosis.findings if finding.rule == rule)
    assert finding.title.startswith(origin.capitalize())
    said = " ".join([finding.title, finding.evidence, finding.remedy, *(part.note for part in diagnosis.gap)]).lower()
    assert ("measured" in said or "measurement" in said) == (origin == "measured"), said
    assert {part.origin for part in diagnosis.gap} == {"predicted", origin}


@pytest.mark.parametrize("gpu", ["A100", "H100", "H200", "B200", "MI300X"])
def test_a_tiny_kernel_timed_in_a_graph_is_not_below_the_bound(gpu: str) -> None:
    tiny = rows(1, 1024, "elementwise", "add")
    diagnosis = diagnose(launch(tiny, None, gpu, measured_us=1.2))
    assert "below-bound" in diagnosis.passed and not diagnosis.faults
    launched = next(finding for finding in diagnosis.findings if finding.rule == "launch-bound")
    assert "launch in a stream 2" in launched.evidence  # what a launch costs there, not what the bound counts of it


def test_a_prediction_below_the_bound_is_a_fault() -> None:
    diagnosis = diagnose(launch(moe(64), tile(16, 64, 128), "H100", predicted_us=50.0))
    assert any("model fault" in fault for fault in diagnosis.faults)
    assert all(not finding.saving_us for finding in diagnosis.findings)


def test_savings_follow_the_prediction_that_is_shown() -> None:
    problem, configuration = gemm(4096, 1056, 4096), tile(128, 256, 64, 8, 8)
    plain = launch(problem, configuration, "H20")
    doubled = launch(problem, configuration, "H20", predicted_us=2 * plain.current_us)
    assert doubled.what_if(BLOCK_SIZE_N=64) == pytest.approx(2 * plain.what_if(BLOCK_SIZE_N=64))
    assert doubled.what_if() == pytest.approx(doubled.current_us)


def test_the_scope_names_the_entry_and_the_place() -> None:
    context = launch(gemm(4096, 1056, 4096), tile(128, 256, 64, 8, 8), "H20", entry_m=4096, source_file="gemm.py", source_line=12)
    finding = diagnose(context).findings[0]
    assert (finding.scope, finding.source_file, finding.source_line) == ("entry M=4096", "gemm.py", 12)


def test_a_faster_recommendation_is_what_a_far_entry_is_measured_against() -> None:
    context = launch(moe(4096), tile(16, 64, 64), "H100", entry_m=64, recommended=Change(parameters={}, us=500.0))
    finding = BY_ID["entry-far-from-m"].check(context)
    assert finding is not None and finding.saving_us == pytest.approx(context.current_us - 500.0)
    assert math.isfinite(finding.saving_us) and "the recommended configuration (500.0 µs" in finding.remedy


class Priced:
    """A predictor that knows what each operator takes with each GROUP_SIZE_M."""

    name = "priced"

    def __init__(self, us: dict[str, dict[int, float]]) -> None:
        self.us = us

    def predict(self, problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec) -> Prediction:
        known = self.us[problem.op]
        groups = np.broadcast_to(configuration.get("GROUP_SIZE_M", 1), len(configuration))
        us = np.array([known.get(int(group), 1000.0) for group in groups])
        return Prediction(us=us, low_us=us, high_us=us, learned=np.ones(us.size, dtype=bool))


def shared(w13: dict[int, float], w2: dict[int, float], **options: float) -> LaunchContext:
    """w13 with GROUP_SIZE_M=32, in an entry that w2 runs with too; the bounds lie near 140 and 70 µs."""
    pricing = Pricing(predictor=Priced({"w13": w13, "w2": w2}), sharing=(Sharing(id="w2-M64", problem=moe(64, "w2"), now_us=w2[32]),))
    return launch(moe(64), tile(16, 64, 128, 32), "H200", predicted_us=w13[32], pricing=pricing, **options)


def test_a_remedy_is_priced_by_the_predictor() -> None:
    finding = BY_ID["group-size-l2"].check(shared({32: 400.0, 8: 300.0}, {32: 200.0, 8: 200.0}))
    assert finding is not None and finding.remedy == "use GROUP_SIZE_M=8 (300.0 µs predicted)"
    assert finding.saving_us == finding.net_saving_us == pytest.approx(100.0)
    finding = BY_ID["group-size-l2"].check(shared({32: 400.0, 8: 300.0}, {32: 200.0, 8: 200.0}, ceiling_us=320.0))
    assert finding is not None and finding.remedy == "use GROUP_SIZE_M=8 (reaches the tunable ceiling)"


def test_what_the_launches_of_an_entry_lose_together_is_no_remedy() -> None:
    """w13 wins 100 µs and w2 loses 150 µs: no remedy; where w2 loses 30 µs, it is said and counted."""
    assert BY_ID["group-size-l2"].check(shared({32: 400.0, 8: 300.0}, {32: 200.0, 8: 350.0})) is None
    finding = BY_ID["group-size-l2"].check(shared({32: 400.0, 8: 300.0, 4: 299.0}, {32: 200.0, 8: 230.0, 4: 290.0}))
    assert finding is not None
    assert finding.remedy == "use GROUP_SIZE_M=8 (300.0 µs predicted); w2-M64 shares the configuration and takes 30.0 µs longer"
    assert finding.saving_us == pytest.approx(100.0) and finding.net_saving_us == pytest.approx(70.0)


@pytest.mark.parametrize("measured", [50.0, 290.0])
def test_what_was_measured_faster_than_a_remedy_is_left_alone(measured: float) -> None:
    """Below the bound or not: nothing slower than what was measured is a remedy."""
    w13, w2 = {32: 400.0, 8: 300.0}, {32: 200.0, 8: 200.0}
    assert BY_ID["group-size-l2"].check(shared(w13, w2, measured_us=measured)) is None
    finding = BY_ID["group-size-l2"].check(shared(w13, w2, measured_us=320.0))
    assert finding is not None and finding.saving_us == pytest.approx(20.0), "against what was measured, not what was predicted"


def test_what_another_type_saves_may_lie_below_the_bound_of_exact_products() -> None:
    """tf32x3, the remedy that keeps most of the accuracy, has not the bound of the vector units."""
    context = CASES["not-tensor-dtype"][0]()
    (finding,) = (each for each in diagnose(context).findings if each.rule == "not-tensor-dtype")
    assert finding.saving_us is not None and context.now_us - context.bound_us < finding.saving_us
    assert finding.saving_us <= context.now_us - context.bound_of(replace(context.problem, dtype="tf32"))


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        ("A100", "A100 has no matrix instruction for fp32"),
        ("MI300X", "the fp32 matrix instructions of MI300X are as fast as its vector units"),
    ],
)
def test_fp32_is_slow_for_the_reason_that_is_given(gpu: str, why: str) -> None:
    finding = BY_ID["not-tensor-dtype"].check(launch(gemm(8192, 8192, 8192, dtype="fp32"), tile(64, 64, 32, 8, stages=2), gpu))
    assert finding is not None and finding.evidence.startswith(f"{why}; tf32 would take ")
