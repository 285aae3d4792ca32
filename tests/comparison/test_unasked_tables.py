"""Tables that nothing runs: under a name that no launch asks for, of a GPU that is not described, or removed."""

from __future__ import annotations

import pytest

from advisor.comparison import Options, compare_files

from .conftest import TABLE, entry, table
from .repository import compared

HUGE = table(M64=entry(256, 256, 128, 5, 8))


def test_a_table_of_a_gpu_without_a_description_is_judged_on_no_other(repository, predictor, tmp_path):
    name = TABLE.replace("NVIDIA_H200", "AMD_Instinct_MI455X")
    base = repository.commit({"README": "x"})
    found = compared(repository, base, repository.commit({name: HUGE}), predictor, gpus=("H100", "MI300X"))
    (subject,) = found.subjects
    assert subject.static == () and not found.gate.failed and any("nothing is predicted" in note for note in subject.notes)
    found = compared(repository, base, repository.commit({name: table(M64=entry(warps=3))}), predictor)
    assert found.gate.failed and "no power of two" in found.gate.sentence  # that no GPU launches

    paths = [tmp_path / side / name for side in ("base", "head")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(table(M64=entry()))
    assert compare_files(*paths, Options(), predictor).subjects[0].static == ()
    (subject,) = compare_files(*paths, Options(gpus=("H100",)), predictor).subjects
    assert {row.gpu for row in subject.static} == {"H100"}


@pytest.mark.parametrize("name", [TABLE.replace(".json", ",dtype=bf16.json")])
def test_a_name_that_no_launch_asks_for_improves_nothing(repository, predictor, name):
    good = table(M64=entry(), M4096=entry(128, 128, 64, 3, 8))
    base = repository.commit({f"vllm/{TABLE}": good})
    found = compared(repository, base, repository.commit({f"vllm/{TABLE}": None, f"vllm/{name}": good}), predictor)
    gone, new = sorted(found.subjects, key=lambda subject: subject.change, reverse=True)
    assert new.static == () and any("No launch asks" in note for note in new.notes)
    assert "unreachable-name" in {issue.rule for issue in new.new_issues}
    assert [row.head.source for row in gone.static] == ["vLLM's default"] * 2 and all(row.change is not None for row in gone.static)
    assert not compared(repository, base, repository.commit({f"vllm/{name}": HUGE}), predictor).gate.failed
