"""Every rule fires where it should, holds its tongue where it should, and keeps the contract."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path

import pytest

from advisor.diagnosis import RULES, diagnose
from advisor.diagnosis.context import THRESHOLD
from advisor.diagnosis.rule import Rule

from .cases import CASES
from .launches import gemm, launch, moe, tile

BY_ID = {rule.id: rule for rule in RULES}
ids = [rule.id for rule in RULES]


def test_every_rule_has_a_case() -> None:
    assert list(CASES) == ids


@pytest.mark.parametrize("rule", RULES, ids=ids)
def test_the_id_is_kebab_case_and_the_name_of_the_file(rule: Rule) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.id)
    assert Path(inspect.getfile(type(rule))).stem == rule.id.replace("-", "_")


def test_every_file_of_rules_is_listed() -> None:
    folder = Path(inspect.getfile(type(RULES[0]))).parent
    files = {path.stem.replace("_", "-") for path in folder.glob("*.py") if path.stem != "__init__"}
    assert files == set(ids)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("rule", RULES, ids=ids)
def test_the_explanation_says_what_how_and_whence(rule: Rule) -> None:
    headings = re.findall(r"^## (.+)$", rule.explanation, re.MULTILINE)
    assert headings == ["What it means", "How it is computed", "What to do", "Source"]
    assert all(len(part.strip()) > 20 for part in re.split(r"^## .+$", rule.explanation, flags=re.MULTILINE)[1:])
    assert rule.title and not rule.title.endswith(".")


@pytest.mark.parametrize("rule", RULES, ids=ids)
def test_it_fires(rule: Rule) -> None:
    context = CASES[rule.id][0]()
    findings = {finding.rule: finding for finding in diagnose(context).findings}
    assert rule.id in findings
    finding = findings[rule.id]
    assert finding.title and finding.evidence and finding.remedy and not finding.title.endswith(".")
    assert re.search(r"\d", finding.title + finding.evidence), "evidence is numbers"
    if finding.saving_us is not None:
        assert context.predicted_us is not None
        assert THRESHOLD * context.predicted_us <= finding.saving_us <= context.predicted_us - context.bound_us + 1e-9
        assert finding.severity in ("warning", "advice")
    else:
        assert finding.severity in ("error", "info", "warning", "advice")


@pytest.mark.parametrize("rule", RULES, ids=ids)
def test_it_passes(rule: Rule) -> None:
    context = CASES[rule.id][1]()
    diagnosis = diagnose(context)
    assert rule.id in diagnosis.passed, [finding for finding in diagnosis.findings if finding.rule == rule.id]


@pytest.mark.parametrize("rule", RULES, ids=ids)
def test_the_remedy_saves_what_is_said(rule: Rule) -> None:
    """Parameters in the remedy, put into the configuration, are predicted as fast as the remedy says."""
    context = CASES[rule.id][0]()
    finding = rule.check(context)
    assert finding is not None
    said = re.search(r"((?:\w+=\d+(?: and )?)+)(?: fits)?: ([\d.,]+) µs predicted", finding.remedy)
    if said is None or rule.id == "clamped-block-k":
        return
    changes = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", said.group(1))}
    after = context.what_if(**changes)
    assert after == pytest.approx(float(said.group(2).replace(",", "")), rel=0.01)
    if finding.saving_us is not None:
        assert finding.saving_us <= context.current_us - after + 1e-9


def test_errors_come_first_then_the_largest_saving() -> None:
    diagnosis = diagnose(launch(gemm(4096, 1056, 4096), tile(128, 256, 64, 8, 8), "H20", measured_us=1.0))
    assert diagnosis.findings[0].severity == "error"
    savings = [finding.saving_us or 0.0 for finding in diagnosis.findings[1:]]
    assert savings == sorted(savings, reverse=True)
    assert len(savings) >= 2


def test_a_launch_that_does_not_fit_is_told_once() -> None:
    diagnosis = diagnose(launch(gemm(4096, 4096, 4096), tile(128, 256, 128, 8, 8, 4), "L40S"))
    assert [finding.rule for finding in diagnosis.findings] == ["cannot-launch"]
    assert "288 KiB" in diagnosis.findings[0].title and "99 KiB" in diagnosis.findings[0].title
    assert diagnosis.gap == ()


def test_results_in_tensor_memory_take_no_registers() -> None:
    wide, problem = tile(256, 128, 32, warps=4), gemm(4096, 4096, 4096)
    fired = {name: [f.rule for f in diagnose(launch(problem, wide, name)).findings] for name in ("H200", "B200")}
    assert "register-spills-likely" in fired["H200"]
    assert "register-spills-likely" not in fired["B200"]


def test_too_many_threads_cannot_launch() -> None:
    finding = diagnose(launch(gemm(4096, 4096, 4096), tile(128, 128, 32, 8, 64, 2), "A100")).findings[0]
    assert finding.rule == "cannot-launch" and "2,048 threads" in finding.title


def test_a_measurement_below_the_bound_is_a_fault() -> None:
    diagnosis = diagnose(launch(moe(64), None, "H100", measured_us=5.0))
    assert diagnosis.findings[0].rule == "below-bound"
    assert any("model or measurement fault" in fault for fault in diagnosis.faults)


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


def test_a_better_known_ceiling_is_what_a_far_entry_is_measured_against() -> None:
    context = launch(moe(4096), tile(16, 64, 64), "H100", entry_m=64, ceiling_us=500.0)
    finding = BY_ID["entry-far-from-m"].check(context)
    assert finding is not None and finding.saving_us == pytest.approx(context.current_us - 500.0)
    assert math.isfinite(finding.saving_us)
