"""Wrong command lines, and outputs that cannot be written."""

from __future__ import annotations

import os
import stat
import sys

import pytest

from advisor.cli import COMMANDS, _module, main
from tests.cli.command_line import ENTRY, EXAMPLE, ROOT, advise, table


@pytest.mark.parametrize(("gpus", "word"), [("H200,A1000", "A1000"), ("", "--gpu"), (",", "--gpu")])
def test_gpus_are_checked_before_anything_is_written(tmp_path, capsys, gpus, word):
    assert advise(EXAMPLE, tmp_path / "out", "--tokens", "64", "--gpu", gpus) == 2
    assert word in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["advise", "nowhere.json"], ["nowhere.json"]),
        (["advise", "no-such-kernel"], ["no-such-kernel"]),
        (["advise", "fused_moe", "--model", "Qwen3-30B-A3B"], ["--gpu"]),
        (["advise", "fused_moe", "--gpu", "H200"], ["--model"]),
        (["advise", "fused_moe", "--gpu", "H2000", "--model", "Qwen3-30B-A3B"], ["H200"]),
        (["advise", "fused_moe", "--gpu", "H200", "--model", "Qwen9"], ["Qwen"]),
        (["advise", "fused_moe", "--gpu", "H200", "--model", "Mixtral 8x7B", "--tokens", "0"], ["--tokens", "0"]),
        (["advise", "fused_moe", "--gpu", "H200", "--model", "Mixtral 8x7B", "--tokens", "1.5"], ["--tokens"]),
        (["advise", "fused_moe", "--gpu", "H200", "--model", "Mixtral 8x7B", "--tensor-parallel", "9"], ["14336"]),
        (["advise", "fused_moe", "--gpu", "H200", "--model", "Qwen3-30B-A3B", "--top-k", "500"], ["top-k 500", "at most 128"]),
        (["advise", "fused_moe", "--gpu", "H200", "--sizes", "E=8,N=512,H=1024,topk=9"], ["top-k 9", "at most 8"]),
        (["advise", str(ROOT / "triton_kernels/gemm.py"), "--gpu", "H200", "--sizes", "M=1"], ["gemm.py::KERNEL", "gemm_persistent"]),
        (["tune", "gemm", "--gpu", "H200", "--device", "fake"], ["gemm::gemm_kernel, gemm::gemm_persistent_kernel"]),
        (["tune", "gemm.py::gemm_kernel", "--gpu", "H200", "--device", "fake"], ["gemm.py: no such file", "gemm::gemm_kernel"]),
        (["advise", "gemm", "--gpu", "H200", "--sizes", "M=64,N=64,K=64", "--tokens", "4,8"], ["--tokens 4,8 and M=64", "leave one out"]),
        (["tune", "gemm::gemm_kernel", "--gpu", "H200", "--device", "fake", "--sizes", "M=64,N=64,K=64", "--tokens", "4"], ["--tokens 4"]),
        (["measure", "gemm", "--device", "fake", "--sizes", "M=64,N=64,K=64", "--tokens", "4", "-o", "x.csv"], ["--tokens 4 and M=64"]),
        (["advise", "fused_moe", "--gpu", "H200", "--model", "Foo"], ["got Foo", "--sizes E=…", "advisor models", "OLMoE"]),
        (["explain", "tail-waves"], ["tail-wave"]),
        (["predict", "nowhere.csv", "-o", "x.csv"], ["nowhere.csv"]),
        (["predict"], ["ROWS.csv"]),
        (["frobnicate"], ["frobnicate"]),
        (["audit", "nowhere"], ["nowhere"]),
    ],
)
def test_usage_errors(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1, message
    for word in words:
        assert word in message


def test_an_output_that_cannot_be_written(tmp_path, capsys):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert advise(EXAMPLE, blocked / "out", "--tokens", "64") == 2
    assert "--output" in capsys.readouterr().err
    if os.geteuid() != 0:
        closed = tmp_path / "closed"
        closed.mkdir()
        closed.chmod(stat.S_IRUSR | stat.S_IXUSR)
        assert advise(EXAMPLE, closed / "out", "--tokens", "64") == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["advise", "fused_moe", "--modell", "X"], "advisor advise: error: unrecognized arguments: --modell X; did you mean --model?; "),
        (["advise", "fused_moe", "--out-put=x"], "did you mean --output?"),
        (["gpus", "H200", "H100"], "advisor gpus: error: unrecognized arguments: H100; see `advisor gpus --help`"),
        (["cache", "ls", "--fromat", "json"], "did you mean --format?"),
        (["--verion"], "did you mean --version?"),
        (["model", "Qwen3-30B-A3B", "--gpu", "H100", "--tokens", "8"], "did you mean --batch, --prefill?"),
    ],
)
def test_an_unknown_option_is_told_the_nearest_of_its_command(arguments, words, capsys):
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_every_command_has_help(capsys):
    for command in COMMANDS:
        if _module(command) is None:
            continue
        code = main([command, "--help"])
        printed = capsys.readouterr()
        assert code == 0, f"{command}: {printed.err}"
        assert command in printed.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["advise", "x" * 5000], "nothing has this name"),
        (["advise", str(ROOT / "Makefile")], "nothing the advisor reads"),
        (["advise", ""], "no target is named"),
        (["compare", "--arg", "M", "HEAD~1", "HEAD"], "--arg takes NAME=VALUE; got M"),
        (["compare", "--arg", "M=8192,4096", "HEAD~1", "HEAD"], "give one size a command (M=8192)"),
        (["compare", "--arg", "HEAD~1", "HEAD"], "--arg takes NAME=VALUE; got HEAD~1"),
        (["compare", str(EXAMPLE), str(EXAMPLE), "--launches", str(EXAMPLE)], "--launches is for kernels that changed"),
        (["advise", "gemm::gemm_persistent_kernel", "--gpu", "MI300X"], "sm_90 or later"),
        (["advise", "gemm::gemm_persistent_kernel", "--gpu", "A100"], "sm_90 or later"),
        (["advise", str(ROOT / "reports"), "--grid", "1"], "--grid is for kernels in a file"),
        (["advise", "x" * 5000 + ".json"], "no such file"),
        (["audit", "x" * 5000], "no such file"),
        (["predict", str(ROOT / "tests/data/rows.csv"), "-o", "a\0b"], "cannot be written"),
        (["advise", "softmax", "--gpu", "H200", "--tokens", "64"], "--tokens"),
        (["advise", "attention", "--gpu", "H200", "--sizes", "H=8,H_kv=3"], "H_kv"),
        (["advise", "fused_moe", "--gpu", "H200", "--sizes", "E=8,N=512"], "no topk, H"),
        (["advise", "fused_moe", "--gpu", "H200", "--sizes", "E=8,N=512,H=64,topk=2", "--tensor-parallel", "8"], "--model NAME"),
        (["advise", "fused_moe", "--gpu", "H200", "--sizes", "E=128,N=768", "--model", "Mixtral-8x7B"], "no rank of Mixtral-8x7B"),
        (["advise", "fused_moe", "--gpu", "H200", "--sizes", "N=7168", "--model", "Mixtral-8x7B", "--tensor-parallel", "4"], "N=7168"),
        (["advise", "fused_moe", "--gpu", "H200", "--hidden-size", "2048", "--model", "Mixtral-8x7B"], "contradicts Mixtral-8x7B"),
        (["advise", "gemm", "--gpu", "H200", "--model", "Mixtral-8x7B"], "--model is for fused_moe"),
        (["advise", "fused_moe", "--gpu", "H200", "--sizes", "E=8,Q=512"], "Q"),
        (["advise", "gemm", "--gpu", "H200", "--sizes", "M=4k,N=8,K=8"], "--sizes: must be NAME=NUMBER, as in M=4096 (got '4k')"),
        (["tune", "gemm", "--gpu", "H200", "--trials", "1,2"], "--trials: must be one whole number, as in 64 (got '1,2')"),
    ],
)
def test_odd_arguments_get_one_line(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and words in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"\x1b[31mred\x07\x9b2J", b"{}\n", bytes(range(256))])
@pytest.mark.parametrize("command", ["advise", "measure", "compare"])
def test_a_damaged_record_is_called_one_and_steers_no_terminal(tmp_path, capsys, command, content):
    record = tmp_path / "launches.jsonl"
    record.write_bytes(content)
    arguments = {
        "advise": [str(record), "--gpu", "H200"],
        "measure": [str(record), "--device", "fake", "-o", str(tmp_path / "rows.csv")],
        "compare": [str(EXAMPLE.parent), str(EXAMPLE.parent), "--launches", str(record)],
    }
    assert main([command, *arguments[command]]) == 2
    error = capsys.readouterr().err
    assert "launch record" in error and error.count("\n") == 1 and error.strip("\n").isprintable()


def test_an_output_that_is_a_file(tmp_path, capsys):
    (tmp_path / "out").write_text("")
    assert advise(EXAMPLE, tmp_path / "out", "--tokens", "16") == 2
    assert f"{tmp_path}/out/result.json: cannot be written" in capsys.readouterr().err


def test_an_output_whose_name_is_too_long(tmp_path, capsys):
    assert advise(EXAMPLE, tmp_path / ("x" * 300), "--tokens", "64") == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_options_that_do_not_apply_are_refused(tmp_path, capsys):
    routing = tmp_path / "routing.json"
    routing.write_text("[1, 2, 3]")
    gemm = table(tmp_path, {"1": ENTRY}, "N=512,K=512,device_name=NVIDIA_H20,dtype=fp8_w8a8,block_shape=[128,128].json")
    for arguments in ((gemm, "--routing", str(routing)), (EXAMPLE, "--routing", str(routing)), (EXAMPLE, "--sizes", "M=1")):
        assert advise(arguments[0], tmp_path / "out", *arguments[1:]) == 2
        message = capsys.readouterr().err
        assert message.count("\n") == 1 and arguments[1] in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["measure", "--help"]])
def test_help_needs_no_package_that_only_colours_it(arguments, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich_argparse", None)
    monkeypatch.setattr(sys, "argv", ["advisor", *arguments])
    assert main(arguments) == 0
    assert "advisor" in capsys.readouterr().out
