"""Two files with a table's entries, whatever they are called."""

from __future__ import annotations

import pytest

from advisor.cli import main
from advisor.comparison import Options, compare_files
from advisor.system.errors import InputError

from .conftest import TABLE, entry, table


@pytest.mark.parametrize("copy", ["base", "head"])
def test_one_name_says_what_both_are_for(tmp_path, predictor, copy):
    """`git show HEAD~1:… > old.json`, to compare it with what it became."""
    paths = {side: tmp_path / ("old.json" if side == copy else TABLE) for side in ("base", "head")}
    paths["base"].write_text(table(M64=entry(64)))
    paths["head"].write_text(table(M64=entry(16)))
    (subject,) = compare_files(paths["base"], paths["head"], Options(), predictor).subjects
    (row,) = subject.static
    assert subject.kind == "table" and (row.gpu, row.label) == ("H200", "M=64")
    assert [side.configuration.parameters["BLOCK_SIZE_M"] for side in (row.base, row.head)] == [64, 16]


def test_names_that_say_nothing_are_what_is_wrong(tmp_path, predictor, capsys):
    for name in ("old.json", "new.json"):
        (tmp_path / name).write_text(table(M64=entry()))
    with pytest.raises(InputError, match=r"new\.json: not the name of a tuned table; .* rename it by the pattern"):
        compare_files(tmp_path / "old.json", tmp_path / "new.json", Options(), predictor)
    assert main(["compare", str(tmp_path / "old.json"), str(tmp_path / "new.json")]) == 2
    assert "schema_version" not in capsys.readouterr().err
