"""`advisor models`, `explain`, `schema`."""

from __future__ import annotations

import json

import pytest

from advisor.cli import main
from advisor.system.resources import glossary
from advisor.tables.models import MODELS
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


def test_a_gpu_is_shown_as_it_is_read(capsys):
    """No value of Python's: neither `None`, nor a throughput with a decimal place."""
    assert main(["gpus", "H200"]) == 0
    shown = {line.split()[0]: line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()}
    assert shown["l2_near_bytes"] == "not given"
    assert shown["l2_bytes_per_s"].split()[0] == "10403000000000" and shown["dram_sustained_fraction"].split()[0] == "0.92"
    assert shown["tensor_flop_per_clock_per_sm"].startswith("bf16 4096, fp16 4096,")


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


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (["tunable", "ceiling"], "tunable ceiling: "),
        (["CTA"], "CTAs: "),
        (["partial", "last", "wave"], "partial last wave: "),
        (["tail-wave"], "tail-wave: "),
        (["expert-padding"], "expert-padding: "),
    ],
)
def test_explain_takes_terms_and_rules(words, begins, capsys):
    assert main(["explain", *words]) == 0
    assert capsys.readouterr().out.startswith(begins)


def test_explain_lists_all_terms_and_names_the_nearest(capsys):
    assert main(["explain"]) == 0
    listed = capsys.readouterr().out
    assert "tunable ceiling" in listed and "write-back" in listed
    assert main(["explain", "tunble"]) == 2
    assert "tunable ceiling" in capsys.readouterr().err
    assert main(["explain", "wihtin"]) == 2  # as one word of several
    assert "closest: within doubt" in capsys.readouterr().err
    assert main(["explain", "xyzzy"]) == 2
    assert "closest" not in capsys.readouterr().err


LETTERS = [term for term in sorted(glossary()) if len(term) > 4 and term[len(term) // 2] != " "]
"""Terms that lose a letter where their middle is left out; without a space they are understood."""


@pytest.mark.parametrize("term", LETTERS[::5])
def test_a_term_that_is_typed_wrongly_is_the_first_to_be_named(term, capsys):
    middle = len(term) // 2
    assert main(["explain", term[:middle] + term[middle + 1 :]]) == 2
    assert capsys.readouterr().err.partition("closest: ")[2].startswith(term)
