"""`advisor models`, `explain`, `schema`."""

from __future__ import annotations

import json

import pytest

from advisor.cli import main
from advisor.configs.models import MODELS
from tests.cli.command_line import EXAMPLE, advise


def test_models_are_listed_with_the_sizes_of_their_experts(capsys):
    assert main(["models"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [model.name for model in MODELS]
    assert main(["models", "--format", "json"]) == 0
    for line, listed in zip(lines, json.loads(capsys.readouterr().out), strict=True):
        shown = dict(zip(head.split(), line.split(), strict=False))
        assert [int(shown[size]) for size in ("E", "topk", "H", "N")] == [listed[size] for size in ("E", "top_k", "H", "N")]
        assert all(alias in line for alias in listed["aliases"])


def test_every_rule_is_explained(capsys):
    from advisor.diagnosis.rules import RULES

    for rule in RULES:
        assert main(["explain", rule.id]) == 0
        assert rule.title in capsys.readouterr().out


def test_a_rule_is_explained_in_any_case(capsys):
    assert main(["explain", "TAIL-Wave"]) == 0
    assert capsys.readouterr().out.startswith("tail-wave: ")


def test_schema_describes_the_result(tmp_path, capsys):
    jsonschema = pytest.importorskip("jsonschema")
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert advise(EXAMPLE, tmp_path, "--tokens", "64") == 0
    jsonschema.validate(json.loads((tmp_path / "result.json").read_text()), schema)
