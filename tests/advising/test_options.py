"""The table of options: what it says is what the command, the function and the reference say."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import advisor
from advisor.advising.options import BY_KEYWORD, EVERY, OF_A_LAUNCH, OPTIONS, command_line, reference, refuse_unfit, request_from
from advisor.cli import build_parser
from advisor.cli.options import ARGUMENTS
from advisor.system.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_has_the_table():
    assert reference() in (ROOT / "reports/docs/reference.md").read_text(encoding="utf-8"), "paste what reference() returns"


def test_command_and_function_take_every_option():
    words = [word for option in OPTIONS for word in (option.flag, EXAMPLES[option.value])]
    arguments = build_parser("advise").parse_args(["advise", "gemm", *words])
    assert all(getattr(arguments, keyword) for keyword in BY_KEYWORD)
    named = set(inspect.signature(advisor.advise).parameters) - {"target", "args", "launch"}
    assert named == set(BY_KEYWORD) - set(OF_A_LAUNCH)
    assert all(f"{keyword}:" in str(advisor.advise.__doc__) for keyword in named - {"hidden_size", "top_k"})


@pytest.mark.parametrize("spelling", ["--tp", "-tp", "--tensor-parallel", "--tensor-parallel-size"])
@pytest.mark.parametrize(
    "words",
    [
        ["advise", "fused_moe"],
        ["compare", "a", "b"],
        ["tune", "fused_moe"],
        ["measure", "x", "-o", "rows.csv"],
        ["model", "M", "--gpu", "H200"],
    ],
)
def test_tensor_parallelism_is_spelled_as_the_stacks_spell_it(words: list[str], spelling: str) -> None:
    arguments = build_parser(words[0]).parse_args([*words, spelling, "2"])
    assert getattr(arguments, "tp" if words[0] == "model" else "tensor_parallel") == 2


EXAMPLES = dict.fromkeys(ARGUMENTS, "1") | {
    "text": "x",
    "sizes": "M=1",
    "type": "bf16",
    "by name": "A=1",
    "stack": "vllm:0.24",
    "block": "128,128",
    "cache": "cold",
}


@pytest.mark.parametrize("kind", EVERY)
def test_refuse_unfit_names_what_says_nothing_of_a_target(kind):
    for option in OPTIONS:
        if kind in option.targets:
            refuse_unfit(kind, "it", {option.keyword: 1}, flags=True)
        else:
            with pytest.raises(UsageError, match=f"{option.flag} is for .*got it, a {kind}"):
                refuse_unfit(kind, "it", {option.keyword: 1}, flags=True)
            refuse_unfit(kind, "it", {option.keyword: None}, flags=False)


def test_request_from_and_command_line_read_the_same_values():
    values = {"gpu": "H200", "tokens": [[4, 1], [4]], "sizes": {"E": 8, "causal": False}, "stack": "sglang:0.5", "cache": None}
    request = request_from(values)
    assert (request.tokens, request.stack, request.stack_version, request.cache) == ((1, 4), "sglang", "0.5", "warm")
    asked = {"gpu": "H200", "tokens": (1, 4), "arguments": {"n": 3}, "try_for": 0}
    assert command_line("t.json", asked) == "advisor advise t.json --gpu H200 --arg n=3 --tokens 1,4 --try-for 0"
    with pytest.raises(UsageError, match="both say M"):
        request_from({"tokens": 4, "sizes": {"M": 5}})
