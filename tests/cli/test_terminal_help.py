"""What a terminal gives who does not know the words yet: near names, completion, one screen, a folder for each target."""

from __future__ import annotations

import shlex
from importlib import import_module

import pytest

from advisor.cli import COMMANDS, build_parser, completions, main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["advize", "fused_moe"], "did you mean advise?"),
        (["frobnicate"], "it is one of advise, model, "),
        (["advise", "fused-moe", "--gpu", "H200"], "did you mean fused_moe?"),
        (["advise", "sofmax", "--gpu", "H200"], "did you mean softmax?"),
        (["advise", "fused_moe", "--token", "16"], "did you mean --tokens?"),
    ],
)
def test_a_misspelt_word_names_the_one_that_was_meant(arguments, said, capsys):
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("advisor ", {"advise", "tune", "compare"}),
        ("advisor adv", {"advise"}),
        ("advisor advise fu", {"fused_moe"}),
        ("advisor advise fused_moe --exp", {"--expert-parallel", "--export"}),
        ("advisor advise fused_moe --gpu h2", {"H20", "H200"}),
        ("advisor advise fused_moe --model GLM", {"GLM-4.5-Air"}),
        ("advisor advise fused_moe --stack ", {"vllm", "sglang"}),
    ],
)
def test_the_shell_completes(line, holds):
    found = completions(line)
    assert holds <= set(found) and all(each.lower().startswith(line.rpartition(" ")[2].lower()) for each in found)


def test_no_command_completes_to_nothing():
    assert completions("advisor nonsense --g") == [] and completions("") != []


def test_the_shell_asks_through_its_variables(monkeypatch, capsys):
    line = "advisor advise fused_moe --gpu H20"
    monkeypatch.setenv("COMP_LINE", line + " --model")
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    monkeypatch.setattr("sys.argv", ["advisor", "complete", "advisor", "H20", "--gpu"])
    assert main() == 0
    assert {"H20", "H200"} <= set(capsys.readouterr().out.split())


def test_a_second_target_does_not_overwrite_the_first_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for model in ("Qwen3-30B-A3B", "GLM-4.5-Air"):
        assert main(["advise", "fused_moe", "--model", model, "--gpu", "H200", "--tokens", "64"]) == 0
    folders = sorted(path.parent.name for path in tmp_path.rglob("report.html"))
    assert folders == [
        "fused_moe-GLM-4.5-Air-H200",
        "fused_moe-Qwen3-30B-A3B-H200",
    ]


def test_inspect_takes_a_bundled_kernel(capsys):
    assert main(["inspect", "gemm::gemm_kernel", "--gpu", "H200", "--sizes", "M=64,N=256,K=256"]) == 0
    assert "gemm_kernel" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_examples_that_it_would_take(command):
    """As argparse reads them: options that there are not would be refused."""
    lines = [
        line.strip() for line in (import_module(f"advisor.cli.{command}_command").__doc__ or "").partition("examples:")[2].splitlines()
    ]
    examples = [line for line in lines if line.startswith("advisor ")]
    assert examples
    for line in examples:  # up to what the shell does with it
        line = line.partition(" | ")[0]
        assert build_parser(command).parse_args(shlex.split(line)[1:]).run
