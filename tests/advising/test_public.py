"""`advisor.advise`, `advisor.compare` and `advisor.tune` give what the commands write."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import advisor
from advisor.cli import main
from advisor.result.comparison_schema import comparison_to_json
from advisor.result.result_json import to_json
from advisor.system.errors import AdvisorError, NothingMatchedError, UsageError

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "reports/examples/E=128,N=768,device_name=NVIDIA_H20.json"
SCALE = f"{ROOT / 'tests/data/scale_kernel.py'}::scale_kernel"


def command_writes(command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> dict[str, object]:
    """The JSON that a command line prints."""
    assert main([*shlex.split(command)[1:], "--format", "json", "--output", str(tmp_path)]) in (0, 1)
    return json.loads(capsys.readouterr().out)


def without_command(document: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in document.items() if name not in ("command", "created_at")}


@pytest.mark.parametrize(
    ("target", "asked"),
    [
        (TABLE, {"model": "Qwen3-30B-A3B", "tokens": [64, 1, 64]}),
        ("fused_moe", {"hidden_size": 2048, "top_k": 8, "sizes": {"E": 64, "N": 96}, "tokens": 5, "gpu": "B200", "cache": "cold"}),
        ("attention", {"gpu": "H100", "sizes": {"B": 1, "H": 3, "H_kv": 1, "M": 97, "N": 97, "D": 64, "causal": False}, "dtype": "fp16"}),
        (SCALE, {"gpu": "H200", "arguments": {"n": 100_003}, "grid": "cdiv(n, BLOCK)", "element": "bf16", "num_warps": 8}),
    ],
)
def test_advise_gives_what_its_command_writes(target, asked, capsys, tmp_path):
    result = advisor.advise(target, **asked)
    assert isinstance(result, advisor.Result)
    written = command_writes(result.command, capsys, tmp_path)
    assert without_command(json.loads(to_json(result))) == without_command(written)


def test_a_routing_of_counts_has_no_command_that_repeats_it():
    asked = {"gpu": "H200", "model": "Mixtral-8x7B", "tokens": 64}
    skewed = advisor.advise("fused_moe", routing=[121, 1, 1, 1, 1, 1, 1, 1], **asked)
    assert skewed.command == ""
    assert skewed.launches[0].problem.routing != advisor.advise("fused_moe", **asked).launches[0].problem.routing


@pytest.mark.parametrize(
    ("target", "asked", "said"),
    [
        ("fused_moe", {"gpu": "H200", "model": "Mixtral-8x7B", "grid": "8"}, "grid is for kernels in a file"),
        ("fused_moe", {"gpu": "H200", "model": "Mixtral-8x7B", "tokenz": 8}, "no such keyword; got tokenz; expected one of constexprs"),
        (SCALE, {}, "a kernel needs a GPU"),
        (SCALE, {"gpu": "H200", "model": "Mixtral-8x7B"}, "model is for tables and bundled kernels"),
        (TABLE.parent, {}, "takes one target"),
        ("nothing", {"gpu": "H200"}, "nothing has this name"),
    ],
)
def test_advise_refuses_what_does_not_fit(target, asked, said):
    with pytest.raises(UsageError, match=said):
        advisor.advise(target, **asked)


def test_measured_latencies_that_match_nothing_are_refused():
    with pytest.raises(NothingMatchedError):
        advisor.advise(TABLE, model="Qwen3-30B-A3B", tokens=64, measured=ROOT / "tests/data/sweep.csv")


@pytest.mark.parametrize("sides", [("before.json", "after.json")])
def test_compare_gives_what_its_command_writes(sides, capsys, tmp_path):
    base, head = (str(ROOT / "tests/data/compare" / name) for name in sides)
    written = command_writes(f"advisor compare {base} {head}", capsys, tmp_path)
    result = advisor.compare(base, head)
    assert without_command(json.loads(comparison_to_json(result))) == without_command(written)


def test_compare_takes_conditions_of_its_gate(tmp_path):
    folder = ROOT / "tests/data/compare"
    assert advisor.compare(folder / "after.json", folder / "before.json", fail_on=["predicted-regressed"]).gate.failed
    assert not advisor.compare(folder / "before.json", folder / "after.json", fail_on=["failed"]).gate.failed
    with pytest.raises(AdvisorError):
        advisor.compare(folder / "before.json", folder)


def test_tune_searches_and_exports(tmp_path):
    asked = {"model": "Qwen3-30B-A3B", "gpu": "H200", "tokens": 16, "recorded": ROOT / "tests/data/sweep.csv", "trials": 3}
    result = advisor.tune("fused_moe", storage=tmp_path / "study.journal", export=tmp_path / "tables", **asked)
    assert isinstance(result, advisor.Result)
    assert [len(search.trials) for search in result.searches] == [3]
    table = json.loads((tmp_path / "tables" / "E=128,N=768,device_name=NVIDIA_H200.json").read_text())
    assert "16" in table
