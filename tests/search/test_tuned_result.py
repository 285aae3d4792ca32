"""What the result of a search says: what was measured, and no prediction that the search has overtaken."""

from __future__ import annotations

import csv
import itertools
import json
import re
import statistics
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from advisor.cli import main
from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.pipelines import problem_batch
from advisor.pipelines.space import problem_space
from advisor.result.result_json import from_json
from advisor.result.schema import Problem, Recommendation, Result
from advisor.tables.entries import default_configuration

SWEEP = Path(__file__).resolve().parents[1] / "data" / "sweep.csv"
TABLE = "E=128,N=768,device_name=NVIDIA_H200.json"
SLOW = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}


def sweep_rows(tokens: int) -> tuple[list[str], list[dict[str, str]]]:
    """Header and rows of the recorded sweep, the fastest first."""
    with SWEEP.open() as file:
        rows = [row for row in csv.DictReader(file) if int(row["M"]) == tokens]
    return list(rows[0]), sorted(rows, key=lambda row: float(row["latency_us"]))


def write(path: Path, header: list[str], rows: list[dict[str, str]]) -> Path:
    path.write_text("\n".join([",".join(header), *(",".join(row[name] for name in header) for row in rows)]) + "\n")
    return path


def tuned(tmp_path: Path, *arguments: str) -> Result:
    assert main(["tune", *arguments, "--output", str(tmp_path / "out")]) == 0
    return from_json((tmp_path / "out" / "result.json").read_text())


def tuned_table(tmp_path: Path, entries: dict[str, dict[str, int]], *arguments: str, recorded: Path = SWEEP) -> Result:
    (tmp_path / TABLE).write_text(json.dumps(entries))
    return tuned(tmp_path, str(tmp_path / TABLE), "--model", "Qwen3-30B-A3B", "--recorded", str(recorded), *arguments)


def test_an_entry_that_cannot_be_launched_takes_no_time(tmp_path, capsys):
    result = tuned_table(tmp_path, {"16": {**SLOW, "waves_per_eu": 2}}, "--tokens", "16", "--trials", "4")
    (launch,) = result.launches
    assert launch.measured is None and launch.predicted is None and launch.headroom is None and launch.gap == ()
    assert launch.recommendation is not None and launch.recommendation.speedup == 1.0
    assert launch.recommendation.latency.origin == "simulated"
    assert launch.findings[0].rule == "cannot-launch" and "waves_per_eu" in launch.findings[0].evidence
    assert result.actions[0].title.startswith("Replace entry M=16") and "waves_per_eu" not in (result.actions[0].snippet or "waves_per_eu")
    assert not any(each.startswith("No launch was measured") for each in result.verdict.unknowns)


def test_what_was_kept_is_not_recommended_against(tmp_path, capsys):
    """The present entry is not in the recording: nothing is known to beat it, whatever was predicted."""
    header, rows = sweep_rows(64)
    recorded = write(tmp_path / "some.csv", header, rows[5:7] + rows[-2:])
    result = tuned_table(tmp_path, {"64": {**SLOW, "BLOCK_SIZE_M": 128}}, "--tokens", "64", recorded=recorded)
    assert "not recorded" in capsys.readouterr().out
    (launch,) = result.launches
    assert launch.recommendation is None and launch.measured is None
    assert result.actions == () and json.loads(result.exports[0].content)["64"]["BLOCK_SIZE_M"] == 128


def test_rows_that_do_not_say_they_are_simulated_are_measured(tmp_path, capsys):
    header, rows = sweep_rows(64)
    recorded = write(tmp_path / "some.csv", [name for name in header if name != "origin"], rows[40:42] + rows[-1:])
    result = tuned_table(tmp_path, {"64": {name: int(rows[-1][name]) for name in SLOW}}, "--tokens", "64", recorded=recorded)
    (launch,) = result.launches
    found = (launch.measured, launch.ceiling, launch.recommendation and launch.recommendation.latency, result.verdict, *result.actions)
    assert {each.origin for each in found} == {"measured"} and "simulated" not in capsys.readouterr().out


def test_everything_that_was_recorded_is_the_ceiling(tmp_path, capsys):
    header, rows = sweep_rows(64)
    recorded = write(tmp_path / "some.csv", header, rows[40:42] + rows[-1:])
    entry = {name: int(rows[-1][name]) for name in SLOW}
    result = tuned_table(tmp_path, {"64": entry}, "--tokens", "64", recorded=recorded)
    assert "every configuration that could win was tried" in result.searches[0].stopped_because
    (launch,) = result.launches
    best, now = float(rows[40]["latency_us"]), float(rows[-1]["latency_us"])
    assert launch.ceiling is not None and (launch.ceiling.us, launch.ceiling.origin) == (best, "simulated")
    assert launch.headroom == pytest.approx(now / best - 1)
    assert launch.p_speedup_10pct == (1.0 if now / best >= 1.1 else None)
    assert result.verdict.ceiling_us == best


def near_optimal(path: Path) -> Path:
    """Latencies within 1 % of each other of the twelve predicted to be fastest for 64 tokens but `SLOW`, and the same for other token
    counts: a list of the best as published."""
    header, rows = sweep_rows(64)
    problem = problem_batch([Problem(family="fused_moe", op="w13", dtype="bf16", sizes={name: int(rows[0][name]) for name in header[2:7]})])
    space = problem_space(problem, "nvidia")
    fastest = np.argsort(load_predictor().predict(problem, space, load_gpu("H200")).us, kind="stable")[:12].tolist()
    columns = {**space.parameters, "num_warps": space.num_warps, "num_stages": space.num_stages}
    configurations = [{name: str(int(columns[name][i])) for name in SLOW} for i in fastest]
    absent = {name: str(value) for name, value in SLOW.items()}
    kept = [rows[0] | {**each, "latency_us": f"{184 + place / 10:.1f}"} for place, each in enumerate(configurations) if each != absent]
    return write(path, header, [{**row, "M": str(tokens)} for tokens in range(64, 72) for row in kept])


def test_a_present_latency_that_is_not_recorded_is_not_improved_on(tmp_path, capsys):
    """Rows of the best only: the present entry may be slower, or nobody tried it."""
    arguments = ["--tokens", "64", "--trials", "8", "--export", str(tmp_path / "tables")]
    result = tuned_table(tmp_path, {"64": SLOW}, *arguments, recorded=near_optimal(tmp_path / "near.csv"))
    printed = capsys.readouterr().out
    assert "0 of 1 improved, 1 not recorded as they run today" in printed and "not recorded: no row says whether" in printed
    lines = printed.splitlines()
    assert [line.split()[0] for line in lines[2:6]] == ["keeps", "best", "failed:", "stopped:"] and "unknown" not in printed
    (best,) = [each for each in result.searches[0].trials if each.configuration.label() == lines[3].split(maxsplit=1)[1]]
    assert lines[1].startswith(f"  M64  best found {best.latency_us:.1f} µs  {len(result.searches[0].trials)} trials  not recorded: ")
    listed = (tmp_path / "tables" / "before-after.md").read_text()
    assert f"the search's best: {best.configuration.label()} ({best.latency_us:.1f} µs) |" in listed
    (launch,) = result.launches
    assert launch.measured is None and launch.recommendation is None and result.actions == ()
    assert any(trial.state == "failed: not-recorded" for trial in result.searches[0].trials)  # what is absent is a trial that lost
    assert any("1 of 1 decisions were not compared with what runs today" in warning for warning in result.warnings)
    report = (tmp_path / "out" / "report.html").read_text()
    assert "What the search found was not compared with what runs" in report and "Nothing worth changing" not in report
    assert "offline: nothing was run<" not in report, "the search's latencies were measured by somebody"
    assert "did not win" not in printed
    assert not any("it found nothing better" in finding.remedy for finding in launch.findings)
    assert json.loads((tmp_path / "tables" / TABLE).read_text()) == {"64": SLOW}


def test_what_was_compared_for_some_launches_says_nothing_of_the_others(tmp_path, capsys):
    best = {name: int(sweep_rows(16)[1][0][name]) for name in SLOW}
    result = tuned_table(tmp_path, {"16": best, "64": {**SLOW, "GROUP_SIZE_M": 2}}, "--tokens", "16,64")
    assert [launch.measured is None for launch in result.launches] == [False, True] and result.actions == ()
    report = (tmp_path / "out" / "report.html").read_text()
    assert "What the search found for 1 of 2 launches was not compared with what runs, so that nothing is recommended for them." in report
    assert "Nothing worth changing" not in report


def test_a_faster_entry_that_is_not_recorded_is_kept(tmp_path, capsys):
    """Two rows within 1 % of each other are no sweep: the entry, which the sweep has as faster, stays."""
    header, rows = sweep_rows(64)
    entry = {name: int(rows[0][name]) for name in SLOW}
    two = next([one, other] for one, other in itertools.pairwise(rows[1:]) if float(other["latency_us"]) <= 1.01 * float(one["latency_us"]))
    recorded = write(tmp_path / "two.csv", header, two)
    tuned_table(tmp_path, {"64": entry}, "--tokens", "64", "--export", str(tmp_path / "tables"), recorded=recorded)
    assert "improved:" not in capsys.readouterr().out
    assert json.loads((tmp_path / "tables" / TABLE).read_text()) == {"64": entry}


def test_where_nothing_ran_before_the_report_is_of_what_was_found(tmp_path, capsys):
    result = tuned(tmp_path, "softmax", "--device", "fake,gpu=H200", "--sizes", "B=4096,H=2048", "--trials", "4")
    (launch,) = result.launches
    fastest = min(trial.latency_us for trial in result.searches[0].trials if trial.latency_us is not None)
    assert launch.measured is not None and launch.measured.us == pytest.approx(fastest, rel=0.02)
    assert launch.configuration is not None and launch.configuration_source == "found by the search"
    (action,) = result.actions
    assert action.title == "Use the configuration that the search found" and action.snippet in result.exports[0].content
    assert not any(each.startswith("No launch was measured") for each in result.verdict.unknowns)
    first, decision, *_ = capsys.readouterr().out.splitlines()
    assert re.search(r", \d trials: 1 of 1 new \(", first)
    assert re.fullmatch(rf"  softmax-B4096-H2048  {launch.measured.us:.2f} µs  \d trials  new: nothing ran before", decision)


def test_the_printed_study_opens_with_optunas_own_interface(tmp_path, capsys):
    result = tuned(tmp_path, "softmax", "--device", "fake,gpu=H200", "--sizes", "B=4096,H=2048", "--trials", "2", "--study", "mine")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  study: ")]
    name, _, path = line.removeprefix("  study: ").rpartition(" in ")
    study = optuna.load_study(study_name=name, storage=JournalStorage(JournalFileBackend(path)))
    assert study.best_value == min(trial.latency_us for trial in result.searches[0].trials if trial.latency_us is not None)


def test_no_finding_promises_what_a_configuration_would_bring(tmp_path, capsys):
    slow = {**SLOW, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "num_warps": 8, "num_stages": 2}
    arguments = [str(tmp_path / TABLE), "--model", "Qwen3-30B-A3B", "--tokens", "4096"]
    (tmp_path / TABLE).write_text(json.dumps({"4096": slow}))
    assert main(["advise", *arguments, "--output", str(tmp_path / "before")]) == 0
    before = from_json((tmp_path / "before" / "result.json").read_text())
    assert any(finding.net_saving_us is not None for launch in before.launches for finding in launch.findings)
    result = tuned(tmp_path, *arguments, "--device", "fake,gpu=H200", "--trials", "5")
    findings = [finding for launch in result.launches for finding in launch.findings]
    assert all(finding.net_saving_us is None for finding in findings)
    assert any(finding.remedy.startswith("the search has tried other configurations") for finding in findings)
    assert all(action.origin == "simulated" for action in result.actions)
    for launch in result.launches:
        assert launch.p_speedup_10pct == 1.0 and launch.recommendation is not None


def test_the_rounds_of_what_runs_against_the_best_are_shown(tmp_path, capsys):
    """What decides whether the search's best is used must be there to look at."""
    (tmp_path / TABLE).write_text(json.dumps({"4096": {**SLOW, "BLOCK_SIZE_N": 32, "num_stages": 2}}))
    arguments = [str(tmp_path / TABLE), "--model", "Qwen3-30B-A3B", "--tokens", "4096", "--op", "w13"]
    result = tuned(tmp_path, *arguments, "--device", "fake,gpu=H200,throttle=0.2", "--trials", "5")
    (launch,) = result.launches
    measured, shown = launch.measured, launch.measured_rounds
    assert measured is not None and shown is not None and launch.recommendation is not None
    assert measured.us == statistics.median(statistics.median(each.samples_us) for each in shown.rounds if each.discarded is None)
    assert measured.low_us < measured.us < measured.high_us and measured.coverage == 0.99
    best = launch.recommendation
    assert shown.source.endswith(f"in the same rounds as {best.configuration.label()}: {best.latency.us:.1f} µs, improved")
    assert shown.noise_floor is not None and any(each.discarded for each in shown.rounds)
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"{len(shown.rounds)} rounds, {sum(each.discarded is not None for each in shown.rounds)} discarded" in page


def test_what_is_within_noise_of_the_fastest_is_not_called_the_best(tmp_path, capsys):
    """Of what noise alone could have ordered, what is ranked first is taken: here it is recorded as barely slower than the fastest."""
    header, rows = sweep_rows(16)
    today = default_configuration("vllm", 16, 128).flat()
    (present,) = [row for row in rows if all(int(row[name]) == value for name, value in today.items())]
    alike = [{**row, "latency_us": "195.0"} for row in rows[:2]]

    def searched(name: str) -> Recommendation:
        recorded = write(tmp_path / f"{name}.csv", header, [present, *alike])
        arguments = ["--model", "Qwen3-30B-A3B", "--gpu", "H200", "--tokens", "16", "--margin", "0", "--recorded", str(recorded)]
        (launch,) = tuned(tmp_path / name, "fused_moe", *arguments).launches
        assert launch.recommendation is not None
        return launch.recommendation

    first = searched("as-fast").configuration
    (ranked_first,) = [row for row in alike if all(int(row[name]) == value for name, value in first.flat().items())]
    ranked_first["latency_us"] = "195.2"
    found = searched("noisy")
    assert found.configuration == first and found.latency.us == 195.2
    assert found.reason == (
        "within noise of the search's fastest (195.0 µs), and ranked before it; faster than the present configuration "
        "(by recorded latencies)"
    )


def test_rows_of_another_kernel_are_a_space_of_their_own(tmp_path, capsys):
    """A sweep whose rows name no SPLIT_K: of the file's space none was recorded, and all the same its own can be tried."""
    rows = tmp_path / "rows.csv"
    head = "gpu,family,op,dtype,M,N,K,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,GROUP_SIZE_M,num_warps,num_stages,latency_us"
    tiles = [(m, n, k, g) for m in (16, 64, 128) for n in (64, 128) for k in (32, 64) for g in (1, 8)]
    lines = [f"H100,gemm,gemm,bf16,1024,2048,4096,{m},{n},{k},{g},4,3,{100 + abs(m - 128) + abs(n - 128) + g}" for m, n, k, g in tiles]
    rows.write_text("\n".join([head, *lines]) + "\n")
    command = ["tune", "gemm_kernel", "--recorded", str(rows), "--sizes", "M=1024,N=2048,K=4096", "--dtype", "bf16"]
    assert main([*command, "--storage", str(tmp_path / "s.log"), "--trials", "24"]) == 0
    said = capsys.readouterr().out
    assert "of 24 configurations" in said and "101.0 µs" in said
