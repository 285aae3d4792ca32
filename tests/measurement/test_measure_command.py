"""`advisor measure`: targets, options, exit codes, and what it says."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
import types

import pytest

from advisor.cli import main, measure_command
from advisor.cli.measure_command import duration_s
from advisor.measurement.devices import nvml, probe
from advisor.measurement.devices.probe import Probe
from advisor.measurement.measured_rows import read_measured

from .conftest import KERNELS

DATA = "gpu,M,E,topk,H,N,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,GROUP_SIZE_M,num_warps,num_stages\n"


def rows(path):
    return list(read_measured(path))


def test_a_bundled_kernel(tmp_path, capsys):
    out = tmp_path / "rows.csv"
    assert (
        main(["measure", "fused_moe", "--model", "Qwen3-30B-A3B", "--tokens", "1,64", "--op", "w13", "--device", "fake", "-o", str(out)])
        == 0
    )
    captured = capsys.readouterr()
    assert "2 measured, 0 failed, 0 in the file already, on H200 (a fake device: latencies are simulated)\n" in captured.out
    assert "\x1b" not in captured.err
    assert [row.problem.sizes["M"] for row in rows(out)] == [1, 64] and rows(out)[0].problem.sizes["E"] == 128
    again = ["measure", "fused_moe", "--model", "Qwen3-30B-A3B", "--tokens", "1,64", "--op", "w13", "--device", "fake", "-o", str(out)]
    assert main(again) == 0 and "0 measured, 0 failed, 2 in the file already" in capsys.readouterr().out
    assert main([*again, "--no-resume"]) == 2 and "has rows already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["softmax", "--model", "Qwen3-30B-A3B"], 2, "softmax is not fused_moe, nor a table of it; got --model"),
        (["fused_moe", "--hidden-size", "2048", "--top-k", "8"], 2, "got --hidden-size, --top-k"),
        (["fused_moe", "--tensor-parallel", "2"], 2, "only a model is split over GPUs; got --tensor-parallel"),
        (["fused_moe", "--op", "nosuch"], 5, "no such operator; got nosuch; expected one of w13, w2, "),
        (["--plan", "nosuch.toml"], 2, "nosuch.toml: no such file; check the path"),
        (["rows.csv", "--op", "w13"], 2, "the rows say which problems are launched; got --op"),
    ],
)
def test_options_that_nothing_would_read_are_refused(arguments, code, message, tmp_path, capsys):
    """A latency of other problems than were asked for must not pass for theirs."""
    assert main(["measure", *arguments, "--device", "fake", "-o", str(tmp_path / "rows.csv")]) == code
    assert message in capsys.readouterr().err and not (tmp_path / "rows.csv").exists()


def test_an_interrupt_says_where_the_rows_are_and_promises_none_that_are_not(tmp_path, capsys, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("advisor.measurement.measuring.measure", interrupted)
    command = ["measure", "softmax", "--sizes", "B=1,H=2", "--device", "fake", "-o", str(tmp_path / "rows.csv")]
    assert main(command) == 130 and "interrupted before anything was saved" in capsys.readouterr().err
    (tmp_path / "rows.csv").touch()
    assert main(command) == 130
    assert f"what was finished is saved in {tmp_path / 'rows.csv'}; run the same command again" in capsys.readouterr().err


def test_the_end_of_a_batch_job_is_an_interrupt(tmp_path, capsys, monkeypatch):
    def terminated(*_: object, **__: object) -> None:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL, "it would end without a word"
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1.0)

    monkeypatch.setattr("advisor.measurement.measuring.measure", terminated)
    (tmp_path / "rows.csv").touch()
    assert main(["measure", "softmax", "--sizes", "B=1,H=2", "--device", "fake", "-o", str(tmp_path / "rows.csv")]) == 130
    assert "run the same command again to go on" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_launch_that_is_named_twice_is_measured_once(tmp_path):
    named = ["--sizes", "B=1,H=2"]
    assert main(["measure", "softmax", *named, *named, "--device", "fake", "-o", str(tmp_path / "rows.csv")]) == 0
    assert len(rows(tmp_path / "rows.csv")) == 1


def test_only_a_record_needs_a_temporary_folder(tmp_path, monkeypatch):
    """A killed run leaves nothing to clean up where nothing had to be written."""
    monkeypatch.setattr(measure_command, "temporary_folder", lambda purpose: pytest.fail(f"a folder to {purpose}"))
    assert main(["measure", "softmax", "--sizes", "B=1,H=2", "--device", "fake", "-o", str(tmp_path / "rows.csv")]) == 0


def test_a_users_file_with_many_configurations(tmp_path):
    out = tmp_path / "rows.csv"
    target = f"{KERNELS}::scale_kernel"
    assert main(["measure", target, "--configurations", "all", "--cache", "cold", "--device", "fake,execute=1", "-o", str(out)]) == 0
    assert (
        len(rows(out)) == 9
        and {row.problem.cache for row in rows(out)} == {"cold"}
        and {row.kernel for row in rows(out)} == {"scale_kernel"}
    )


@pytest.mark.parametrize(
    "wrong",
    [
        '"tolerance": [0.01, 0.01]',
        '"tolerance": {"fp32": 0.01}',
        '"tolerance": {"fp32": [0.01]}',
        '"tolerance": {"fp32": ["0", 1]}',
        '"tolerance": {"fp32": [-0.1, 0]}',
        '"tolerance": {"fp32": [1e999, 0]}',
        '"tolerance": {"float32": [0.01, 0.01]}',
        '"tolerance_beyond": 3',
        '"tolerance_beyond": {"fp32": [0.1, 0.1]}',
        '"tolerance_beyond": {"fp32": {"tolerance": [0.1, 0.1]}}',
        '"tolerance_beyond": {"fp32": {"H": 4}}',
        '"tolerance_beyond": {"fp32": {"H": "4", "tolerance": [0.1, 0.1]}}',
    ],
)
def test_a_users_file_with_a_tolerance_that_is_none(wrong, tmp_path, capsys):
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS.read_text().replace('"tolerance": {"fp32": [1e-6, 1e-6]}', wrong))
    assert main(["measure", str(path), "--sizes", "B=4,H=8", "--device", "fake", "-o", str(tmp_path / "rows.csv")]) == 2
    error = capsys.readouterr().err
    assert f"KERNELS: {wrong.split(chr(34))[1]}" in error and "triton_kernels/README.md" in error


@pytest.mark.parametrize("block_shape", [[128, 128], {"fp32": 128}, {"fp32": [128]}, {"fp32": [128, 0]}, {"fp32": [128.0, 128.0]}])
def test_a_users_file_with_a_block_shape_that_is_none(block_shape, tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(KERNELS.read_text().replace('"dtypes":', f'"block_shape": {block_shape}, "dtypes":'))
    assert main(["measure", f"{path}::scale_kernel", "--dtype", "fp32", "--device", "fake", "-o", str(tmp_path / "rows.csv")]) == 2
    error = capsys.readouterr().err
    assert "KERNELS: block_shape" in error and "[n, k]" in error and "triton_kernels/README.md" in error


def test_rows_are_measured_again(tmp_path):
    shapes, out = tmp_path / "shapes.csv", tmp_path / "rows.csv"
    shapes.write_text(DATA + "A100,64,128,8,2048,768,16,64,64,1,4,3\nA100,1,128,8,2048,768,,,,,,\n")
    assert main(["measure", str(shapes), "--device", "fake,gpu=A100", "-o", str(out)]) == 0
    first, second = rows(out)
    assert first.configuration.parameters["BLOCK_SIZE_N"] == 64 and first.gpu == second.gpu == "A100" and second.configuration is not None


def test_a_tuned_table(tmp_path, corpus_dir):
    table = next(
        path
        for path in sorted((corpus_dir / "vllm" / "fused_moe").rglob("E=128,N=768,device_name=NVIDIA_H*.json"))
        if "dtype" not in path.name
    )
    out = tmp_path / "rows.csv"
    assert main(["measure", str(table), "--model", "Qwen3-30B-A3B", "--tokens", "16", "--device", "fake", "-o", str(out)]) == 0
    assert {row.problem.op for row in rows(out)} == {"w13", "w2"}


def test_without_a_gpu_it_says_what_is_needed(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(["measure", "softmax", "-o", str(tmp_path / "rows.csv")]) == 4
    error = capsys.readouterr().err
    assert "no usable GPU" in error and "NVIDIA GPU" in error and not (tmp_path / "rows.csv").exists()
    monkeypatch.setattr(probe, "probe_gpu", lambda: Probe(error="torch sees no GPU"))
    assert main(["measure", "softmax", "--configurations", "3", "-o", str(tmp_path / "rows.csv")]) == 4
    assert "torch sees no GPU" in capsys.readouterr().err


def test_the_look_for_a_gpu_ends_with_an_answer():
    found = probe.probe_gpu()
    assert (found.error is None) != (found.name is None)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["softmax", "--plan", "x.toml"],
        ["--plan", "no such file"],
        ["no_such_kernel"],
        ["no_file.py::x"],
        ["softmax", "--device", "gpu"],
        ["softmax", "--time-limit", "soon"],
        ["softmax", "--sizes", "B"],
        ["softmax", "--configurations", "0"],
        ["softmax", "--rounds", "-1"],
        ["softmax", "--sizes", "B=64"],
        ["gemm", "--sizes", "M=64"],
        ["softmax", "--sizes", "B=64,H=0"],
        ["softmax", "--sizes", "B=64,H=8,Q=1"],
        ["softmax", "--tokens", "4"],
        ["gemm::gemm_kernel", "--sizes", "M=1,N=2,K=0"],
        [f"{KERNELS}::listed_only_kernel", "--sizes", "B=1,H=1"],
        [f"{KERNELS}::inputs_kernel"],
        ["missing.csv"],
        ["missing.json"],
    ],
)
def test_usage_errors(arguments, tmp_path, capsys):
    assert main(["measure", "--device", "fake", "-o", str(tmp_path / "rows.csv"), *arguments]) == 2
    error = capsys.readouterr().err
    assert "error:" in error and "Traceback" not in error and not list(tmp_path.iterdir())


@pytest.mark.parametrize("configurations", ["1", "2"])
def test_the_gpu_that_is_named_is_looked_up_and_never_taken_for_the_device(configurations, tmp_path, capsys):
    out = tmp_path / "rows.csv"
    common = ["measure", "softmax", "--sizes", "B=64,H=512", "--configurations", configurations, "--device", "fake", "-o", str(out)]
    assert main([*common, "--gpu", "banana"]) == 2
    assert "unknown GPU; got banana" in capsys.readouterr().err and not out.exists()
    assert main([*common, "--gpu", "nvidia_h200"]) == 0
    assert "warning" not in capsys.readouterr().err
    assert main([*common, "--gpu", "A100", "--no-resume", "--output", str(tmp_path / "other.csv")]) == 0
    assert "warning: measured on this device, H200" in (error := capsys.readouterr().err) and "A100" in error
    assert {row.gpu for row in rows(tmp_path / "other.csv")} == {"H200"}


def test_no_token_takes_more_experts_than_its_rank_holds(tmp_path, capsys):
    out = tmp_path / "rows.csv"
    common = ["--op", "w13", "--tokens", "4", "--device", "fake", "-o", str(out)]
    assert main(["measure", "fused_moe", "--model", "Qwen3-30B-A3B", "--expert-parallel", "32", *common]) == 0
    assert rows(out)[0].problem.sizes["E"] == rows(out)[0].problem.sizes["topk"] == 4
    assert main(["measure", "fused_moe", "--sizes", "E=4,topk=8,H=2048,N=768", *common]) == 2
    assert "got topk=8; expected at most E = 4" in capsys.readouterr().err


@pytest.mark.parametrize(
    "target, given, kernels, said",
    [
        ("fused_moe", ["--op", "w13", "--dtype", "fp8", "--model", "Qwen3-30B-A3B", "--tokens", "16"], {"fused_moe_kernel"}, ""),
        ("fused_moe", ["--dtype", "fp8", "--model", "Qwen3-30B-A3B", "--tokens", "16"], {"fused_moe_kernel"}, "activation_kernel"),
        ("gemm", ["--dtype", "fp32", "--sizes", "M=16,N=256,K=256"], {"gemm_kernel"}, "gemm_persistent_kernel"),
    ],
)
def test_a_file_is_measured_without_its_kernels_of_other_types(target, given, kernels, said, tmp_path, capsys):
    out = tmp_path / "rows.csv"
    assert main(["measure", target, *given, "--device", "fake", "-o", str(out)]) == 0
    assert {row.kernel for row in rows(out)} == kernels
    error = capsys.readouterr().err
    assert ("left out" in error) == bool(said) and said in error


def test_a_file_without_a_kernel_of_the_type_is_refused(tmp_path, capsys):
    assert main(["measure", "attention", "--dtype", "fp32", "--device", "fake", "-o", str(tmp_path / "rows.csv")]) == 2
    assert "not made for operands of this type; got fp32; expected one of bf16, fp16" in capsys.readouterr().err


def test_a_missing_size_is_named(tmp_path, capsys):
    assert main(["measure", "gemm::gemm_kernel", "--sizes", "M=64", "--device", "fake", "-o", str(tmp_path / "rows.csv")]) == 2
    error = capsys.readouterr().err
    assert "no N, K" in error and "M, N, K for gemm" in error and "--sizes M=…,N=…,K=…" in error


def test_durations():
    assert [duration_s(text) for text in ("90", "90s", "9m", "1.5h")] == [90, 90, 540, 5400]


def test_listing_a_kernel_imports_neither_torch_nor_triton():
    script = (
        "import sys; import advisor.measurement, advisor.measurement.importers, advisor.cli.measure_command\n"
        "from advisor.measurement.kernel_file import bundled_files, read_kernels\n"
        "assert all(read_kernels(f) for f in bundled_files())\n"
        "print(sorted({'torch', 'triton', 'optuna', 'plotly'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.stdout.strip() == "[]"


def test_nvml_is_asked_for_the_clock_first_and_for_nothing_twice(monkeypatch):
    """What a round times takes a millisecond, and so may each call: a clock that is read late is of an idle GPU."""
    calls = []

    def answer(name, value):
        return lambda *arguments: (calls.append((name, *arguments[1:])), value)[1]

    library = types.SimpleNamespace(NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, nvmlInit=lambda: None, nvmlDeviceGetHandleByUUID=lambda uuid: uuid)
    for name, value in {
        "ClockInfo": 1980,
        "CurrentClocksEventReasons": 0,
        "CurrentClocksThrottleReasons": 4,
        "PowerUsage": 512_340,
        "Temperature": 61,
    }.items():
        setattr(library, f"nvmlDeviceGet{name}", answer(name, value))
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monitor = nvml.Monitor("GPU-1")
    expected = nvml.Reading(sm_clock_mhz=1980, memory_clock_mhz=1980, temperature_c=61, power_w=512.34)
    assert monitor.read() == expected and calls[0] == ("ClockInfo", 1)
    calls.clear()
    assert monitor.read() == expected and calls == [("ClockInfo", 1), ("CurrentClocksEventReasons",)]
    del library.nvmlDeviceGetCurrentClocksEventReasons
    assert monitor.read().throttle == ("sw-power-cap",)


def test_a_gpu_that_says_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monitor = nvml.Monitor(None)
    assert monitor.read() == nvml.Reading() and monitor.facts().default_clock_mhz is None


@pytest.mark.parametrize(
    "given",
    [
        "--cache cold",
        "--configurations 4",
        "--op w13",
        "--sizes B=64",
        "--tokens 4",
        "--dtype bf16",
        "--routing r.json",
        "--gpu H200",
        "--seed 3",
        "--model Qwen3-30B-A3B",
        "--hidden-size 64",
        "--top-k 2",
        "--tensor-parallel 2",
        "--expert-parallel 2",
    ],
)
def test_a_campaign_leaves_no_option_unread(given, tmp_path, capsys):
    plan = tmp_path / "plan.toml"
    plan.write_text("")
    assert main(["measure", "--plan", str(plan), "--device", "fake", "-o", str(tmp_path / "rows.csv"), *given.split()]) == 2
    error = capsys.readouterr().err
    assert "the campaign's file says what is measured" in error and given.split()[0] in error and "leave them out" in error


def test_ceilings_are_a_campaigns(tmp_path, capsys):
    out = ["-o", str(tmp_path / "rows.csv"), "--device", "fake"]
    assert main(["measure", "softmax", "--sizes", "B=4,H=64", "--ceilings-dir", str(tmp_path), *out]) == 2
    assert "--ceilings-dir" in capsys.readouterr().err


def test_the_file_is_plain_csv(tmp_path):
    out = tmp_path / "rows.csv"
    main(["measure", "fused_moe::combine_kernel", "--device", "fake", "-o", str(out)])
    with out.open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert row["status"] == "ok" and row["parameters"] == '{"BLOCK_SIZE": 1024}' and float(row["bound_us"]) < float(row["latency_us"])


def test_a_failed_machine_is_forgiven_and_says_why(tmp_path, capsys):
    out = tmp_path / "rows.csv"
    common = ["measure", "softmax", "--sizes", "B=64,H=512", "--configurations", "4", "-o", str(out), "--device"]
    assert main([*common, "fake,faults=crash:1"]) == 3
    said = capsys.readouterr().out
    assert "0 measured, 4 failed" in said and "crash: 4 (launch: the worker was killed by SIGSEGV" in said
    assert main([*common, "fake"]) == 0
    assert "4 measured, 0 failed, 0 in the file already" in capsys.readouterr().out
    assert [row.status for row in rows(out)] == ["ok"] * 4


@pytest.mark.parametrize("module", ["jinja2", "optuna.study"])
def test_a_package_that_is_not_installed_is_named(module, tmp_path, capsys, monkeypatch):
    package = module.partition(".")[0]

    def run(arguments):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr("advisor.cli.measure_command.run", run)
    assert main(["measure", "softmax", "-o", str(tmp_path / "rows.csv")]) == 2
    error = capsys.readouterr().err
    assert f"pip install {package}" in error and "not installed" in error and "internal failure" not in error and error.count("\n") == 1


def test_tune_asks_for_optuna_first_and_draws_its_report_without_plotly(tmp_path):
    script = "import sys; sys.modules[sys.argv.pop(1)] = None; from advisor.cli import main; sys.exit(main())"
    common = ["tune", "softmax", "--sizes", "B=64,H=512", "--gpu", "H200", "--device", "fake", "--trials", "6"]

    def tune(package):
        command = [sys.executable, "-c", script, package, *common, "--output", str(tmp_path / package)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    without = tune("optuna")
    assert without.returncode == 2 and "pip install optuna" in without.stderr and not (tmp_path / "optuna").exists()
    without = tune("plotly")
    assert without.returncode == 0 and ">Slices</h4>" in (tmp_path / "plotly" / "report.html").read_text(encoding="utf-8")
