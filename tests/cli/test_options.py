"""Options in the spellings that people write, and what contradicts itself."""

from __future__ import annotations

import argparse
import json

import pytest

from advisor.cli import COMMANDS, PLACES, build_parser, main, options

GEMM = ["advise", "gemm", "--gpu", "H100"]


@pytest.mark.parametrize(
    "sizes",
    [
        ["M=64,N=4096,K=512"],
        ["M=64 N=4096 K=512"],
        ["M=64, N = 4096  K=512"],
        ["M=64,N=4096", "K=512"],
        ["M=64,K=512", "N=4096,K=512"],
    ],
)
@pytest.mark.parametrize(("dtype", "name"), [("torch.float16", "fp16"), ("BF16", "bf16"), ("fp8_w8a8", "fp8")])
def test_sizes_and_types_as_people_write_them(tmp_path, capsys, sizes, dtype, name):
    given = [part for each in sizes for part in ("--sizes", each)]
    assert main([*GEMM, *given, "--dtype", dtype, "--format", "json", "--output", str(tmp_path)]) == 0
    (launch,) = json.loads(capsys.readouterr().out)["launches"]
    assert launch["problem"]["sizes"] == {"M": 64, "N": 4096, "K": 512} and launch["problem"]["dtype"] == name


def test_types_in_several_options_are_all_taken():
    given = ["--signature", "x_ptr=*i8", "--signature", "y_ptr=*fp32,n=i32"]
    assert build_parser("advise").parse_args(["advise", "k.py::k", "--gpu", "H100", *given]).signature == "x_ptr=*i8,y_ptr=*fp32,n=i32"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--sizes", "M=64,M=65,N=4096,K=512"], "says M twice, 64 and 65"),
        (["--sizes", "M=64,N=4096", "--sizes", "N=1"], "says N twice"),
        (["--sizes", "M=64,,N=4096"], "NAME=NUMBER"),
        (["--dtype", "int4"], "one of bf16, fp16, fp32, tf32, fp8, int8 (got 'int4')"),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path, capsys, given, words):
    """The last of two values would count, and nobody would know."""
    assert main([*GEMM, *given, "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_problem_to_measure_says_each_size_once(tmp_path, capsys):
    assert main(["measure", "softmax", "--device", "fake", "--sizes", "B=64,H=512,B=32", "-o", str(tmp_path / "rows.csv")]) == 2
    assert "says B twice, 64 and 32" in capsys.readouterr().err


def test_zero_is_a_size_of_one_option_alone():
    assert options.named_sizes("B=1 causal=0") == {"B": 1, "causal": 0}


def test_an_empty_name_of_a_file_or_folder_is_refused(tmp_path, capsys, monkeypatch):
    """`-o ""` would write into the current folder, and `--weights ""` take the weights shipped."""
    monkeypatch.chdir(tmp_path)
    for given in (
        ["advise", "fused_moe", "-o", ""],
        ["advise", "fused_moe", "--output="],
        ["compare", "a", "b", "--output", ""],
        ["tune", "fused_moe", "--export", ""],
        ["predict", "rows.csv", "-o", ""],
        ["rank", "shapes.csv", "-o", ""],
        ["train", "rows.csv", "-o", ""],
        ["measure", "softmax", "-o", ""],
        ["record", "-o", "", "--", "python"],
        ["evaluate", "rows.csv", "--card", ""],
        ["advise", "fused_moe", "--weights", ""],
        ["compare", "a", "b", "--launches", "a.jsonl", "--launches", ""],
    ):
        assert main(given) == 2
        error = capsys.readouterr().err
        assert "must name a f" in error and "(got '')" in error and error.count("\n") == 1, given
    assert not list(tmp_path.iterdir())


def test_every_option_that_takes_a_file_or_folder_is_known_as_one():
    """What help calls OUT.csv, DIR or the like is refused where it is empty; whoever adds an option under another name adds that."""
    listed = [each for name in COMMANDS for each in build_parser(name)._actions if isinstance(each, argparse._SubParsersAction)]
    commands = [parser for each in listed for parser in each.choices.values()]
    shown = {action.metavar for parser in commands for action in parser._actions if action.option_strings}
    told = {each for each in shown if isinstance(each, str) and ("." in each or each in ("DIR", "FILE", "WEIGHTS", "PATH", "FOLDER"))}
    assert told == set(PLACES)


def test_a_format_of_layers_is_no_type_of_operands(capsys: pytest.CaptureFixture[str]) -> None:
    """fp8 without its blocks is another layer: it has another default configuration."""
    assert main(["advise", "fused_moe", "--gpu", "RTX 5090", "--sizes", "E=256,topk=8,H=2048,N=256", "--dtype", "fp8_block"]) == 2
    assert "--dtype fp8 --block-shape 128,128" in capsys.readouterr().err
