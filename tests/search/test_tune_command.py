"""`advisor tune` on recorded rows: what it prints, writes and refuses."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.advising.targets import Request
from advisor.cli import main
from advisor.measurement.devices import probe
from advisor.measurement.devices.device import no_gpu
from advisor.measurement.devices.fake import unit
from advisor.measurement.devices.probe import Probe
from advisor.measurement.kernel_file import KernelRef, configurations, find_kernels
from advisor.rendering.markdown import fingerprint_rows, to_markdown
from advisor.result.result_json import from_json
from advisor.result.schema import Configuration, Problem
from advisor.search.sampler import CHOICE, LOST
from advisor.search.storage import Task
from advisor.tables.audit import audit_table
from advisor.tables.entries import default_configuration
from advisor.tables.tables import read_table, select
from advisor.tuning import Deadlines, Order, make_plan
from advisor.tuning.backends import MeasuringBackend
from tests.search.test_tuned_result import near_optimal

SWEEP = Path(__file__).resolve().parents[1] / "data" / "sweep.csv"
MODEL = ["--model", "Qwen3-30B-A3B", "--gpu", "H200"]
TABLE = "E=128,N=768,device_name=NVIDIA_H200.json"


def tune(folder: Path, *more: str, target: str = "fused_moe", tokens: str = "64") -> int:
    arguments = ["tune", target, *MODEL, "--tokens", tokens, "--recorded", str(SWEEP), "--output", str(folder / "out"), *more]
    return main(arguments)


def latencies(tokens: int) -> dict[tuple[str, ...], float]:
    with SWEEP.open() as file:
        return {tuple(r[n] for n in list(r)[7:13]): float(r["latency_us"]) for r in csv.DictReader(file) if int(r["M"]) == tokens}


def entry_us(tokens: int, entry: dict[str, int]) -> float:
    return latencies(tokens)[tuple(str(value) for value in entry.values())]


def test_replays_a_sweep_and_writes_everything(tmp_path, capsys):
    assert tune(tmp_path, "--trials", "20", "--export", str(tmp_path / "tables"), tokens="16,64,256") == 0
    printed = capsys.readouterr()
    assert "3 of 3 improved" in printed.out and "left out" in printed.err
    result = from_json((tmp_path / "out" / "result.json").read_text())
    assert [s.launch for s in result.searches] == ["w13-M16", "w13-M64", "w13-M256"]
    for launch in result.launches:
        assert launch.measured is not None and launch.measured.origin == "simulated"
        assert launch.recommendation is not None and launch.recommendation.latency.origin == "simulated"
        assert launch.recommendation.speedup == pytest.approx(launch.measured.us / launch.recommendation.latency.us)
        assert launch.ceiling.us <= launch.recommendation.latency.us  # what was measured is reached, whatever was predicted
        assert launch.headroom == pytest.approx(launch.measured.us / launch.ceiling.us - 1)
    (action,) = result.actions  # of what the search measured, not of what was predicted before it
    assert action.origin == "simulated" and action.launches == tuple(launch.id for launch in result.launches)
    assert action.saving_us == pytest.approx(sum(each.measured.us - each.recommendation.latency.us for each in result.launches))
    gaining = sum(launch.recommendation.speedup >= 1.1 for launch in result.launches)
    assert gaining and f"Changing {len(result.launches)} of {len(result.launches)} configurations would save " in result.verdict.sentence
    assert result.verdict.ceiling_us == pytest.approx(sum(launch.ceiling.us for launch in result.launches))
    assert not any("worth changing to" in each for each in result.verdict.unknowns), "the search is what found it"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Slices" in page and "Optimization history" not in page and "bdata" not in (tmp_path / "out" / "result.json").read_text()
    table = json.loads((tmp_path / "tables" / TABLE).read_text())
    for tokens in (16, 64, 256):
        assert entry_us(tokens, table[str(tokens)]) <= 1.05 * min(latencies(tokens).values())
    before_after = (tmp_path / "tables" / "before-after.md").read_text()
    assert before_after.count("improved") == 3 and "| speedup |" in before_after
    for text in (before_after, printed.err):  # the sweep has no rows of w2
        assert "w2 will run with what won for M = 16, 64, 256 as well, and was not measured" in text
    assert "triton.Config(" in (tmp_path / "tables" / "triton_configs.txt").read_text()


def test_a_new_table_changes_nothing_far_from_what_was_tuned(tmp_path, capsys):
    """The stacks take the nearest key: without the default's own entries a prefill would run what won for 256 tokens."""
    assert tune(tmp_path, "--trials", "4", "--export", str(tmp_path / "tables"), tokens="16,64,256") == 0
    assert f"{TABLE}: new; beside what won it has what runs without a table, at M = 1, 2, 4, 8, 24," in capsys.readouterr().err
    table, issues = audit_table(tmp_path / "tables" / TABLE)
    assert not [issue for issue in issues if issue.severity != "info"]
    ends = {32: 1, 64: 33, 96: 65, 128: 97, 512: 129, 16511: 513, 40_000: 16512}  # vLLM's default is the same from one to the other
    tuned = {16: range(13, 21), 64: range(57, 65), 256: range(193, 385)}
    for last, first in ends.items():
        today = default_configuration("vllm", first, 128)
        assert default_configuration("vllm", last, 128) == today
        for tokens in range(first, last + 1):
            won = any(tokens in near for near in tuned.values())
            assert (select(table, tokens).configuration == today) != won, tokens


def test_two_runs_export_into_one_folder(tmp_path, monkeypatch):
    """The second one began before the first had written."""
    from advisor import tuning

    folder, search = tmp_path / "tables", tuning.tune_order

    def meanwhile(*arguments, **options):
        monkeypatch.setattr(tuning, "tune_order", search)
        found = search(*arguments, **options)
        assert tune(tmp_path / "other", "--trials", "4", "--export", str(folder), tokens="16") == 0
        return found

    monkeypatch.setattr(tuning, "tune_order", meanwhile)
    assert tune(tmp_path, "--trials", "4", "--export", str(folder)) == 0
    table = json.loads((folder / TABLE).read_text())
    for tokens in (16, 64):
        assert entry_us(tokens, table[str(tokens)]) <= 1.05 * min(latencies(tokens).values())


def test_no_table_where_nothing_won(tmp_path):
    """One that pins today's default would keep a later one of the stack from running."""
    assert tune(tmp_path, "--trials", "1", "--export", str(tmp_path / "tables")) == 0
    assert not (tmp_path / "tables" / TABLE).exists() and (tmp_path / "tables" / "before-after.md").exists()


def test_an_existing_table_keeps_what_was_not_beaten(tmp_path):
    best = min(latencies(64), key=latencies(64).get)
    names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
    slow = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}
    old = {"1": slow, "16": slow, "64": dict(zip(names, map(int, best), strict=True))}
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / TABLE).write_text(json.dumps(old))
    assert tune(tmp_path, "--trials", "12", "--export", str(folder), tokens="16,64") == 0
    new = json.loads((folder / TABLE).read_text())
    assert new["1"] == slow and new["64"] == old["64"]
    assert entry_us(16, new["16"]) < entry_us(16, slow)
    assert "unchanged" in (folder / "before-after.md").read_text()
    read_table(folder / TABLE)


def test_a_table_as_target(tmp_path, capsys):
    slow = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4, "SPLIT_K": 1}
    (tmp_path / TABLE).write_text(json.dumps({"16": slow}))
    assert tune(tmp_path, "--format", "json", target=str(tmp_path / TABLE), tokens="16") == 0
    result = from_json(capsys.readouterr().out)
    entry = result.launches[0].recommendation.table_entry
    assert entry["SPLIT_K"] == 1 and entry != slow
    assert result.exports[0].name == TABLE


@pytest.mark.parametrize("where", [["--recorded", str(SWEEP)], ["--device", "fake,gpu=H200", "--op", "w13"]])
def test_an_entry_that_a_launch_refuses_is_replaced_and_one_that_stays_is_named(tmp_path, capsys, where):
    """What makes the launch fail today is neither measured nor written again."""
    slow = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}
    path = tmp_path / TABLE
    path.write_text(json.dumps({"1": {**slow, "kpack": 1}, "16": {**slow, "waves_per_eu": 2}}))
    arguments = ["tune", str(path), "--model", "Qwen3-30B-A3B", "--tokens", "16", *where, "--trials", "4"]
    assert main([*arguments, "--output", str(tmp_path / "out"), "--export", str(tmp_path / "tables")]) == 0
    printed = capsys.readouterr()
    assert "improved: what runs today fails: waves_per_eu" in printed.out
    assert "entry 1 is kept as it was, and fails: kpack" in printed.err
    written = json.loads((tmp_path / "tables" / TABLE).read_text())
    assert written["1"] == {**slow, "kpack": 1} and set(written["16"]) == set(slow)
    _, issues = audit_table(tmp_path / "tables" / TABLE)
    assert {issue.key for issue in issues if issue.severity == "error"} == {"1"}
    result = from_json((tmp_path / "out" / "result.json").read_text())
    assert all("waves_per_eu" not in trial.configuration.parameters for search in result.searches for trial in search.trials)
    assert "waves_per_eu" not in result.launches[0].recommendation.configuration.parameters


def test_resumes_by_name_and_goes_on(tmp_path, capsys):
    for trials, printed in (("2", "2 trials"), ("2", "2 trials"), ("5", "trials")):
        assert tune(tmp_path, "--trials", trials, "--margin", "0", "--study", "mine") == 0
        assert printed in capsys.readouterr().out
    assert tune(tmp_path, "--study", "mine", tokens="16") == 0
    assert main(
        [
            "tune",
            "fused_moe",
            "--model",
            "Qwen3-30B-A3B",
            "--gpu",
            "H200",
            "--tokens",
            "64",
            "--dtype",
            "fp16",
            "--recorded",
            str(SWEEP),
            "--output",
            str(tmp_path / "out"),
            "--study",
            "mine",
        ]
    ) in (2, 5)


def other_rows(path: Path) -> Path:
    """The sweep, everything three times as slow."""
    with SWEEP.open() as file:
        rows = list(csv.DictReader(file))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({**row, "latency_us": 3 * float(row["latency_us"])} for row in rows)
    return path


def test_a_study_of_other_rows_is_not_gone_on_with(tmp_path, capsys):
    """Whatever their file is called: its trials are not the new file's."""
    common = ["tune", "fused_moe", *MODEL, "--tokens", "64", "--trials", "2", "--output", str(tmp_path / "out"), "--recorded"]
    copy = tmp_path / "copy.csv"
    copy.write_bytes(SWEEP.read_bytes())
    (tmp_path / "other").mkdir()
    assert main([*common, str(SWEEP)]) == 0 and main([*common, str(copy)]) == 0
    assert main([*common, str(other_rows(tmp_path / "other" / SWEEP.name))]) == 2
    error = capsys.readouterr().err
    assert "another space, problem, GPU or source" in error and "recorded rows" in error and "--study" in error


def test_a_study_of_another_kernel_or_device_is_not_gone_on_with(tmp_path, capsys):
    """A dry run on the fake device does not answer for the GPU, nor a kernel for what its file says today."""
    (tmp_path / "there").mkdir()
    mine, there = tmp_path / "mine.py", tmp_path / "there" / "mine.py"
    mine.write_text(Path(find_kernels("softmax")[0].file).read_text())
    there.write_text(mine.read_text())

    def again(file: Path = mine, device: str = "fake,gpu=H200,seed=1") -> int:
        return main(
            [
                "tune",
                f"{file}::softmax_kernel",
                "--device",
                device,
                "--sizes",
                "B=64,H=512",
                "--trials",
                "2",
                "--output",
                str(tmp_path / "out"),
            ]
        )

    assert again() == 0 and again(there) == 0
    assert again(device="fake,gpu=H200,seed=2") == 2 and "on fake gpu=H200 seed=2" in capsys.readouterr().err
    for changed in (there, mine):
        changed.write_text(changed.read_text() + "\n# another kernel\n")
        assert again(changed) == 2
        assert "another space, problem, GPU or source" in capsys.readouterr().err


def test_the_refusal_names_what_differs(tmp_path, capsys):
    assert tune(tmp_path, "--trials", "1") == 0
    assert "stopped: the limit of 1 trial; " in (out := capsys.readouterr().out) and "1 trials" not in out
    assert tune(tmp_path, "--trials", "1", "--cache", "cold") == 2
    error = capsys.readouterr().err
    assert " bf16 cold " in error and " bf16 warm " in error and "; give another --study name" in error
    assert "recorded rows" not in error


def test_progress_says_which_decision_it_is_at(tmp_path):
    from advisor import tuning

    told: list[str] = []
    order = Order(
        target="fused_moe",
        request=Request(gpu="H200", model="Qwen3-30B-A3B", tokens=(16, 64)),
        recorded=str(SWEEP),
        trials=1,
        storage=str(tmp_path / "s.journal"),
    )
    tuning.tune_order(order, watch=lambda task, trials, best_us: told.append(task))
    assert told == ["M16 (1 of 2)", "M64 (2 of 2)"]


def test_rows_and_a_device_exclude_each_other(tmp_path, capsys):
    assert tune(tmp_path, "--device", "fake,gpu=H200") == 2
    error = capsys.readouterr().err
    assert "--recorded" in error and "--device fake,gpu=H200" in error and not (tmp_path / "out").exists()


def test_an_interrupt_before_anything_is_there_promises_nothing(tmp_path, capsys, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("advisor.tuning.tune_order", interrupted)
    assert tune(tmp_path) == 130
    assert "interrupted before anything was saved" in capsys.readouterr().err
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "study.journal").write_text("")
    assert tune(tmp_path) == 130
    assert f"what was finished is saved in {tmp_path / 'out' / 'study.journal'}; run the same" in capsys.readouterr().err


def test_a_real_gpu_is_no_fake_one():
    """No GPU is needed to tell them apart, nor is one looked for."""
    order = Order(target="softmax", request=Request(gpu="H200"), storage="none", sizes=({"B": 64, "H": 512},))
    fake, cuda, auto = (make_plan(replace(order, device=device)).decisions[0].identity for device in ("fake", "cuda", "auto"))
    assert fake != cuda == auto


def test_a_later_run_starts_from_what_lies_in_the_folder(tmp_path):
    """The first run's export is what runs at the second, and so is a table that somebody else wrote since."""
    export = ["--export", str(tmp_path / "tables")]
    assert tune(tmp_path, *export) == 0
    first = (tmp_path / "tables" / "before-after.md").read_text()
    table = (tmp_path / "tables" / TABLE).read_text()
    assert "1 of 1 decisions changed" in first and first.startswith("### fused_moe E=128,topk=8,H=2048,N=768 on H200\n")
    assert first.count("w2 will run with what won for M = 64 as well, and was not measured with it") == 1
    assert first.count(f"{TABLE}: new; beside what won it has what runs without a table, at M = 1, 2, 4,") == 1
    assert tune(tmp_path, *export) == 0
    assert "0 of 1 decisions changed" in (tmp_path / "tables" / "before-after.md").read_text()
    report = json.loads((tmp_path / "out" / "result.json").read_text())
    assert report["actions"] == [] and (tmp_path / "tables" / TABLE).read_text() == table, "what won runs now"
    other = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}
    (tmp_path / "tables" / TABLE).write_text(json.dumps({"64": other}))
    assert tune(tmp_path, *export) == 0
    third = (tmp_path / "tables" / "before-after.md").read_text()
    assert "| BLOCK_SIZE_M=16 BLOCK_SIZE_N=64 BLOCK_SIZE_K=128" in third and "what runs without a table" not in third


def test_sizes_of_a_layer(tmp_path, capsys):
    arguments = ["tune", "fused_moe", "--gpu", "H200", "--tokens", "64", "--recorded", str(SWEEP), "--output", str(tmp_path / "out")]
    assert main([*arguments, "--sizes", "E=128,topk=8,H=2048,N=768", "--trials", "3"]) == 0
    assert "1 of 1 improved" in capsys.readouterr().out
    assert main([*arguments, "--sizes", "E=128", "--sizes", "E=64"]) == 2
    assert "a table is of one layer" in capsys.readouterr().err


def test_without_a_gpu_the_remedy_is_one_that_tune_knows(tmp_path, capsys, monkeypatch):
    def find_device(spec: str) -> None:
        raise no_gpu(f"nothing at {spec}")

    monkeypatch.setattr("advisor.tuning.find_device", find_device)
    assert main(["tune", "fused_moe", *MODEL, "--tokens", "64", "--output", str(tmp_path / "out")]) == 4
    assert "--recorded ROWS.csv" in capsys.readouterr().err


def test_the_gpu_is_looked_for_once(tmp_path, monkeypatch):
    """Seconds each time, and of the time limit."""
    looked, opened = [], []

    def probe_gpu() -> Probe:
        looked.append(1)
        return Probe(name="NVIDIA H200", capability=90)

    def scheduler(device, **_):
        opened.append(device.gpu)
        raise no_gpu("only told that it would be opened")

    monkeypatch.setattr(probe, "probe_gpu", probe_gpu)
    monkeypatch.setattr("advisor.tuning.order.Scheduler", scheduler)
    monkeypatch.setattr("advisor.tuning.backends.Scheduler", scheduler)
    assert main(["tune", "fused_moe", *MODEL, "--tokens", "64", "--output", str(tmp_path / "out")]) == 4
    assert len(looked) == 1 and opened == ["NVIDIA H200"]


def test_goes_on_where_an_entry_outside_the_space_was_replaced(tmp_path, capsys):
    """By an export, by hand: the study's space stays the same."""
    slow = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}
    for entry, printed in (({**slow, "GROUP_SIZE_M": 2}, "0 of 1 improved"), (slow, "1 of 1 improved")):
        (tmp_path / TABLE).write_text(json.dumps({"64": entry}))
        assert tune(tmp_path, "--trials", "6", "--export", str(tmp_path)) == 0
        assert printed in capsys.readouterr().out


def test_near_optimal_rows_count_what_they_lack_as_slower(tmp_path, capsys):
    near_optimal(tmp_path / "near.csv")
    code = main(
        [
            "tune",
            "fused_moe",
            *MODEL,
            "--tokens",
            "64",
            "--recorded",
            str(tmp_path / "near.csv"),
            "--trials",
            "3",
            "--output",
            str(tmp_path / "out"),
        ]
    )
    result = from_json((tmp_path / "out" / "result.json").read_text())
    trials = result.searches[0].trials
    assert len(trials) <= 3 and code == (0 if any(t.latency_us for t in trials) else 3)
    lacking = [t for t in trials if t.latency_us is None]
    assert all(t.state == "failed: not-recorded" for t in lacking)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["fused_moe", *MODEL, "--tokens", "64"], 4, "no usable GPU"),
        (["fused_moe", *MODEL, "--recorded", "nosuch.csv"], 2, "no such file"),
        (
            ["fused_moe", *MODEL, "--tokens", "7", "--recorded", str(SWEEP)],
            5,
            "has no rows of fused_moe; got w13 M=7 E=128 topk=8 H=2048 N=768 bf16, and 1 more; expected one of 3 problems that have rows",
        ),
        (
            ["fused_moe", *MODEL, "--tokens", "200", "--op", "w13", "--recorded", str(SWEEP)],
            5,
            "has no rows of fused_moe; got w13 M=200 E=128 topk=8 H=2048 N=768 bf16; expected one of 3 problems that have rows",
        ),
        (["fused_moe", "--model", "Qwen3-30B-A3B", "--gpu", "A40", "--recorded", str(SWEEP)], 2, "no rows of this GPU"),
        (
            ["fused_moe", *MODEL, "--op", "nosuch", "--recorded", str(SWEEP)],
            5,
            "no launch of this operator; got nosuch; expected one of w13, w2; check --op",
        ),
        (["softmax", "--device", "fake", "--op", "nosuch"], 5, "no such operator; got nosuch; expected one of softmax; check --op"),
        (["softmax", "--device", "fake", "--model", "Qwen3-30B-A3B"], 2, "--model is for fused_moe and its tables; got softmax"),
        (["nosuch", *MODEL, "--recorded", str(SWEEP)], 2, "no such kernel"),
        ([str(SWEEP.parent), *MODEL, "--recorded", str(SWEEP)], 2, "tune one table at a time; got the folder"),
        (["fused_moe", *MODEL, "--tokens", "64", "--recorded", str(SWEEP), "--storage", "nosuch://x"], 2, "storage cannot be opened"),
    ],
)
def test_errors(arguments, code, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(["tune", *arguments, "--output", str(tmp_path)]) == code
    assert message in capsys.readouterr().err


def test_a_kernel_on_the_fake_device(tmp_path, capsys):
    arguments = ["tune", "softmax", "--device", "fake,gpu=H200", "--sizes", "B=4096,H=2048", "--trials", "4", "--output", str(tmp_path)]
    assert main(arguments) == 0
    assert "softmax" in capsys.readouterr().out
    result = from_json((tmp_path / "result.json").read_text())
    assert result.searches[0].trials[0].latency_us


def test_a_problem_that_is_named_twice_is_tuned_once(tmp_path):
    sizes = ["--sizes", "B=64,H=512"]
    for named in (sizes, [*sizes, *sizes]):  # the second goes on with the first's study
        assert main(["tune", "softmax", "--device", "fake,gpu=H200", *named, "--trials", "2", "--output", str(tmp_path)]) == 0
    (launch,) = from_json((tmp_path / "result.json").read_text()).launches
    assert launch.id == "softmax-B64-H512"


def test_failures_are_printed_by_class(tmp_path, capsys):
    device = ["--device", "fake,gpu=H200,faults=compile-error:1"]
    assert main(["tune", "softmax", *device, "--sizes", "B=64,H=512", "--trials", "3", "--output", str(tmp_path)]) == 3
    printed = capsys.readouterr().out
    assert "  no latency  3 trials  unchanged: no trial gave a latency\n    failed: compile-error 3\n    stopped: " in printed


def test_a_file_is_tuned_without_its_kernels_of_other_types(tmp_path, capsys):
    sizes = ["--sizes", "M=16,E=8,topk=2,H=256,N=256", "--gpu", "H200", "--device", "fake", "--trials", "2"]
    file = find_kernels("fused_moe")[0].file
    assert main(["tune", file, "--op", "w13", "--dtype", "fp8", *sizes, "--output", str(tmp_path / "w13")]) == 0
    assert "left out" not in capsys.readouterr().err
    assert main(["tune", "gemm", "--dtype", "fp32", "--sizes", "M=16,N=256,K=256", *sizes[2:], "--output", str(tmp_path / "gemm")]) == 0
    assert "left out: gemm.py::gemm_persistent_kernel is not made for" in capsys.readouterr().err


def test_a_simulated_run_does_not_pass_for_one_on_a_gpu(tmp_path, capsys):
    arguments = ["tune", "softmax", "--device", "fake,gpu=H200", "--sizes", "B=64,H=512", "--trials", "2", "--output", str(tmp_path)]
    assert main(arguments) == 0
    result = from_json((tmp_path / "result.json").read_text())
    assert result.fingerprint.mode == "offline" and result.fingerprint.simulated and result.launches[0].measured is not None
    page = (tmp_path / "report.html").read_text()
    head = re.sub(r"<[^>]*>", " ", page[page.index('<p class="subject">') : page.index("the best configuration</p>")])
    assert "simulated: what is called measured comes from a fake device" in head
    assert "run on a GPU" not in head.replace("nothing was run on a GPU", "") and "simulated " in head
    assert to_markdown(result).partition("<details>")[0].count("simulated") >= 2
    assert "on a GPU" not in dict(fingerprint_rows(result.fingerprint))["mode"].replace("nothing was run on a GPU", "")


@pytest.mark.parametrize(
    ("latencies_us", "only_best"),
    [
        ({tokens: (7.383, 7.394, 7.457)[: 1 + tokens % 3] for tokens in range(1, 18)}, True),  # as published: some rows of every problem
        ({tokens: (7.383, 7.394, 8.0)[: 1 + tokens % 3] for tokens in range(1, 18)}, False),
        ({1: (7.383,)}, False),
        ({1: (207.6, 208.3)}, False),
        ({1: (7.383, 7.394, 7.457), 2: (8.0, 8.01)}, False),
    ],
)
def test_a_few_rows_are_no_list_of_the_best(tmp_path, latencies_us, only_best):
    """What they lack may be faster: the present configuration must not lose to it unmeasured."""
    from advisor.measurement.replay import read_recording
    from advisor.tuning.backends import holds_only_best

    rows = ["gpu,gemm,M,E,topk,H,N,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,GROUP_SIZE_M,num_warps,num_stages,latency_us"]
    for tokens, each in latencies_us.items():
        rows += [f"H200,w13,{tokens},8,2,1024,512,16,32,128,{place + 1},4,3,{us}" for place, us in enumerate(each)]
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    assert holds_only_best(read_recording(tmp_path / "rows.csv")) == only_best


def test_a_slow_clock_in_the_first_rounds_rules_nothing_out(tmp_path, capsys):
    """With this seed the first three rounds of every measurement are at a low clock."""
    device = "fake,gpu=H200,throttle=0.2,seed=408"
    assert all(unit("throttle", 408.0, number) < 0.2 for number in range(3))
    assert main(["tune", "softmax", "--device", device, "--sizes", "B=4096,H=2048", "--trials", "2", "--output", str(tmp_path)]) == 0
    result = from_json((tmp_path / "result.json").read_text())
    assert [trial.state for trial in result.searches[0].trials] == ["complete", "complete"]


@pytest.fixture
def softmax() -> tuple[Task, tuple[KernelRef, dict[str, Problem]], tuple[Configuration, ...]]:
    """A task, its kernel and problems, and configurations for it."""
    (kernel,), problem = find_kernels("softmax"), Problem(family="normalization", op="softmax", sizes={"B": 4096, "H": 2048})
    return Task(id="softmax", launches=("softmax",)), (kernel, {"softmax": problem}), configurations(kernel, problem)


def test_a_clock_that_stays_slow_is_not_the_configurations_failure_at_once(softmax):
    """It may be tried again, until it looks as if it were what draws the clock down."""
    task, launches, known = softmax
    with MeasuringBackend("fake,gpu=H200,throttle=1", *launches, lambda configuration, launch: configuration) as backend:
        found = [backend.measure(task, known[0], lambda rounds, us: False) for _ in range(3)]
    assert [each.again for each in found] == [True, True, False]
    assert all(each.failure == "no-round-counts" and "all of 30 rounds" in each.message for each in found)


@pytest.mark.parametrize("seconds", [-1.0, 1.0])
def test_what_runs_at_the_deadline_is_left(softmax, seconds):
    """A round takes longer than what is left; the limit of a round is 30 s."""
    task, launches, known = softmax
    began = time.monotonic()
    device, until = "fake,gpu=H200,sleep_ms=60000", began + seconds
    with MeasuringBackend(device, *launches, lambda configuration, launch: configuration, until) as backend:
        found = backend.measure(task, known[0], lambda rounds, us: False)
        assert found.again and found.failure == "out-of-time" and found.us is None
        versus = backend.compare(task, known[0], known[1], began + 2 * seconds)
        assert versus.verdict == "not compared"


def test_time_is_kept_for_the_comparisons():
    request = Request(model="Qwen3-30B-A3B", gpu="H200", tokens=(64, 128))
    order = Order(target="fused_moe", request=request, storage="unused", device="fake,gpu=H200", time_limit_s=100)
    plan = make_plan(order)
    assert len(plan.target.launches) == 4
    for limit_s, search in ((None, None), (100, 1080.0), (1000, 1880.0)):
        deadlines = Deadlines.of(replace(plan, order=replace(order, time_limit_s=limit_s)), began=1000.0)
        assert (deadlines.search, deadlines.compare) == (search, None if limit_s is None else 1000.0 + limit_s)


def test_what_was_not_compared_in_time_is_said_and_not_exported(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Deadlines, "of", lambda plan, began: Deadlines(compare=began))
    slow = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}
    (tmp_path / TABLE).write_text(json.dumps({"4096": slow}))
    arguments = [str(tmp_path / TABLE), "--model", "Qwen3-30B-A3B", "--tokens", "4096", "--op", "w13", "--device", "fake,gpu=H200"]
    output = ["--time-limit", "9m", "--trials", "3", "--output", str(tmp_path / "out"), "--export", str(tmp_path / "tables")]
    assert main(["tune", *arguments, *output]) == 0
    printed = capsys.readouterr()
    assert "0 of 1 improved" in printed.out and "not compared: the time limit ended it; what runs today is kept" in printed.out
    assert "1 of 1 decisions were not compared" in printed.err and "540 s" in printed.err
    assert json.loads((tmp_path / "tables" / TABLE).read_text()) == {"4096": slow}
    assert "it found nothing better" not in (tmp_path / "out" / "result.json").read_text()


def test_another_gpu_than_the_one_tuned_for_is_refused(tmp_path, capsys):
    """Its latencies would go into that one's table."""
    common = ["--model", "Qwen3-30B-A3B", "--tokens", "16", "--trials", "2", "--output", str(tmp_path)]
    assert main(["tune", "fused_moe", "--gpu", "H100", "--device", "fake,gpu=H200", *common]) == 2
    error = capsys.readouterr().err
    assert "the GPU that measures is not the one that is tuned for; got H200; expected H100" in error and "--gpu 'H200'" in error


@pytest.mark.parametrize("sizes", ["B=64", "B=64,H=8,Q=1"])
def test_sizes_that_are_not_the_kernels(tmp_path, capsys, sizes):
    assert main(["tune", "softmax", "--gpu", "H200", "--device", "fake", "--sizes", sizes, "--output", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "softmax.py::softmax_kernel" in error and "--sizes" in error


@pytest.mark.parametrize("size", [0, 10**30])
def test_a_size_that_no_tensor_has(tmp_path, capsys, size):
    assert main(["tune", "softmax", "--device", "fake", "--sizes", f"B=64,H={size}", "--output", str(tmp_path)]) == 2
    assert f"--sizes: must be between 1 and 2147483647 (got {size})" in capsys.readouterr().err


def test_a_damaged_study_is_named(tmp_path, capsys):
    arguments = ["tune", "softmax", "--gpu", "H200", "--device", "fake", "--sizes", "B=64,H=512", "--output", str(tmp_path)]
    assert main([*arguments, "--trials", "2"]) == 0
    with (tmp_path / "study.journal").open("a") as journal:
        journal.write("garbage\n")
    capsys.readouterr()
    assert main([*arguments, "--trials", "4"]) == 2
    error = capsys.readouterr().err
    assert "study.journal" in error and "got garbage" in error and "--storage" in error


def test_a_search_that_is_terminated_leaves_its_trial_as_interrupted(tmp_path):
    """Not as what killed its worker: after three of those the configuration would not be tried again."""
    command = [
        sys.executable,
        "-m",
        "advisor",
        "tune",
        "fused_moe",
        *MODEL,
        "--tokens",
        "64",
        "--op",
        "w13",
        "--output",
        str(tmp_path),
        "--device",
        "fake,gpu=H200,sleep_ms=1000",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    journal, began = tmp_path / "study.journal", time.monotonic()
    while not (journal.exists() and CHOICE in journal.read_text()) and time.monotonic() - began < 60:
        time.sleep(0.05)
    process.terminate()
    assert process.wait(30) == 130
    assert process.stderr is not None and "interrupted" in process.stderr.read()
    process.stderr.close()
    assert f'"{LOST}":"interrupted"' in journal.read_text()
