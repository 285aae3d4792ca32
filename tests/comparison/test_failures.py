"""What is certain to fail gates, whether or not anything could be predicted of it."""

from __future__ import annotations

import json
from pathlib import Path

import markupsafe
import pytest

from advisor.cli.compare_command import exit_code
from advisor.comparison import Options, compare_trees
from advisor.comparison.trees.trees import LARGEST_FILE_BYTES, FolderTree
from advisor.rendering.comparison_files import to_comment, to_page, to_sarif, to_text
from advisor.rendering.comparison_words import reasoned
from advisor.rendering.markdown import escape

from .conftest import KERNEL, TABLE, entry, table
from .repository import compared

SOUND = table(M1=entry(), M64=entry(), M256=entry())


def changed(repository, predictor, before, after, path=TABLE, **options):
    base = repository.commit({path: before})
    return compared(repository, base, repository.commit({path: after}), predictor, **options)


@pytest.mark.parametrize(
    ("content", "reason"),
    [('<<<<<<< HEAD\n{"64": {}}', "not valid JSON"), ("{}", "no entries"), ('{"64": {"BLOCK_SIZE_M": 16}}', "BLOCK_SIZE_N is missing")],
)
def test_a_table_that_cannot_be_read_fails(repository, predictor, content, reason):
    found = changed(repository, predictor, SOUND, content)
    (subject,) = found.subjects
    assert {row.verdict for row in subject.static} == {"failed"} and all(reason in row.reason for row in subject.static)
    assert not subject.cured_issues  # nothing is known of what it warned of before
    assert found.gate.failed and reason in found.gate.sentence and len(found.gate.triggered) == 1
    for surface in (to_comment(found), to_page(found), to_text(found), to_sarif(found)):
        assert "failed" in surface and reason in surface.replace("\\", "")
    back = changed(repository, predictor, content, SOUND)
    assert not back.gate.failed


def test_a_side_whose_kernel_is_not_known_is_refused_alone(repository, predictor):
    pytest.importorskip("triton")
    text = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef k(x_ptr):\n    tl.store(x_ptr, 1.0)\n\nk[(1,)](x)\n"
    found = changed(repository, predictor, f"{text}\ntriton = run(0)\n", text, "k.py", compiling=True, gpus=("H100",))
    (note,) = (note for note in found.subjects[0].notes if note.startswith("Not compiled"))
    assert note.startswith("Not compiled for H100: base: ") and "head" not in note and "triton is bound again" in note


def test_why_a_table_cannot_be_read_is_said_once_of_its_rows(repository, predictor):
    found = changed(repository, predictor, SOUND, SOUND.rstrip("}"))
    (subject,) = found.subjects
    reason = subject.static[0].reason
    assert reason and {row.reason for row in subject.static} == {reason} and len(subject.static) == 3
    said = f"failed**: {escape(reason)}"
    assert to_comment(found).count(said) == 1 and to_comment(found).count("failed**: as for M=1 |") == 2
    page = to_page(found)
    assert page.count(f'<span class="muted">{markupsafe.escape(reason)}</span>') == 1 and page.count(">as for M=1<") == 2
    assert to_text(found).count(f"M=1, M=64, M=256  H200  ({reason})") == 1
    results = [each for run in json.loads(to_sarif(found))["runs"] for each in run["results"] if each["ruleId"] == "failed"]
    assert [each["message"]["text"] for each in results] == [f"M=1, M=64, M=256 on H200: failed ({reason})"]


def test_no_name_is_a_line_of_its_own_where_the_gate_is_told(repository, predictor, capsys):
    """`::set-output name=code::5` in a line of its own is a command to a runner."""
    path = "a\n::set-output name=code::5\x1b[31m/kernels.py"
    found = changed(repository, predictor, KERNEL.format(m=64), KERNEL.format(m=64) + "(", path)
    assert found.gate.failed and exit_code(found) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("advisor: gate failed: Not passed: failed: a ::set-output name=code::5") and line.isprintable()


def test_two_reasons_are_both_said(repository, predictor):
    content = table(M1={**entry(), "num_warps": "4"}, M64=entry(), M256={**entry(), "BLOCK_SIZE_M": 48})
    (subject,) = changed(repository, predictor, SOUND, content).subjects
    assert all(reason in ("", row.reason) for row, reason in reasoned(subject.static))
    assert len({reason for _, reason in reasoned(subject.static)}) == 3


@pytest.mark.parametrize(
    ("path", "before", "after", "reason"),
    [
        (TABLE, SOUND, Path("elsewhere.json"), "a symbolic link"),
        ("matmul.py", KERNEL.format(m=16), Path("elsewhere.py"), "a symbolic link"),
        ("matmul.py", KERNEL.format(m=16), KERNEL.format(m=16) + "# padding\n" * 110_000, "too large"),
        ("matmul.py", KERNEL.format(m=16), KERNEL.format(m=16) + "def f(:\n", "invalid syntax"),
        (TABLE, SOUND, SOUND + " " * (LARGEST_FILE_BYTES + 1), "too large"),
    ],
    ids=["link to a table", "link to a kernel", "large kernel", "no Python", "large table"],
)
def test_a_file_that_can_no_longer_be_read_fails(repository, predictor, path, before, after, reason):
    base = repository.commit({path: before})
    head = repository.commit({path: after})
    found = compared(repository, base, head, predictor)
    (subject,) = found.subjects
    assert subject.new_issues[0].rule == "unreadable"
    assert found.gate.failed and found.gate.sentence.startswith(f"Not passed: failed: {path}") and reason in found.gate.sentence
    for surface in (to_comment(found), to_page(found), to_text(found), to_sarif(found)):
        assert reason in surface
    assert not compared(repository, head, base, predictor).gate.failed


def test_a_dangling_link_in_place_of_a_table_of_a_folder_fails(tmp_path, predictor):
    for name in ("base", "head"):
        (tmp_path / name).mkdir()
    (tmp_path / "base" / TABLE).write_text(SOUND)
    (tmp_path / "head" / TABLE).symlink_to("nowhere.json")
    trees = [FolderTree(folder=tmp_path / name, label=name) for name in ("base", "head")]
    assert compare_trees(*trees, Options(compiling=False), predictor).gate.failed


@pytest.mark.parametrize(("path", "content"), [("matmul.py", "import triton # jit\ndef f(:\n"), ("tools.py", "import os\n")])
def test_a_link_in_place_of_what_could_not_be_read_does_not_gate(repository, predictor, path, content):
    assert not changed(repository, predictor, content, Path("elsewhere"), path=path).gate.failed


@pytest.mark.parametrize(
    ("broken", "reason"),
    [({"BLOCK_SIZE_M": 48}, "BLOCK_SIZE_M; got 48"), ({"num_warps": "4"}, 'num_warps; got "4"'), ({"BLOCK_SIZE_N": None}, "BLOCK_SIZE_N")],
)
def test_an_entry_that_cannot_be_read_fails(repository, predictor, broken, reason):
    content = table(M1=entry(), M64={**entry(), **broken}, M256=entry())
    found = changed(repository, predictor, SOUND, content)
    (subject,) = found.subjects
    assert {row.label: row.verdict for row in subject.static}["M=64"] == "failed"
    assert found.static_counts == {"failed": 1, "predicted-unchanged": 2} and "left out" not in to_text(found)
    assert found.gate.failed and reason in found.gate.sentence
    new = compared(repository, repository.commit({TABLE: None}), repository.commit({TABLE: content}), predictor)
    assert new.gate.failed and reason in new.gate.sentence


@pytest.mark.parametrize("odd", [{"num_warps": 3}, {"BLOCK_SIZE_M": 48}, {"BLOCK_SIZE_K": 256, "num_stages": 9}])
def test_what_the_audit_finds_in_one_entry_names_it_once(repository, predictor, odd):
    (subject,) = changed(repository, predictor, SOUND, table(M1=entry(), M64={**entry(), **odd}, M256=entry())).subjects
    (issue,) = (each for each in subject.new_issues if each.severity == "error")
    assert issue.evidence.count("entry 64: ") == 1


def test_what_failed_before_is_nothing_new(repository, predictor):
    worse = table(M1=entry(), M64={**entry(), "num_warps": "8"})
    assert not changed(repository, predictor, table(M1=entry(32), M64={**entry(), "num_warps": "4"}), worse).gate.failed


def test_a_key_that_the_stacks_cannot_turn_into_a_number_fails(repository, predictor):
    found = changed(repository, predictor, SOUND, json.dumps({**json.loads(SOUND), "many": entry()}))
    assert found.gate.failed and "entry many" in found.gate.sentence


@pytest.mark.parametrize("odd", ['"triton_version": 3', '"64": {0}, "64": {0}', '"0": {0}', '"-1": {0}'])
def test_what_the_stacks_put_up_with_does_not_gate(repository, predictor, odd):
    content = SOUND[:-1] + ", " + odd.replace("{0}", json.dumps(entry())) + "}"
    found = changed(repository, predictor, SOUND, content)
    assert any(issue.severity == "error" for issue in found.subjects[0].new_issues) and not found.gate.failed


def test_a_version_gates_where_the_loader_takes_it_for_a_token_count(repository, predictor):
    path = "N=5120,K=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
    sound = table(M1=entry(), M64=entry())
    found = changed(repository, predictor, sound, '{"triton_version": "3.6.0", ' + sound[1:], path=path)
    assert found.gate.failed and "entry triton_version" in found.gate.sentence
    assert not changed(repository, predictor, SOUND, '{"triton_version": "3.6.0", ' + SOUND[1:]).gate.failed


def test_a_split_k_gates_where_the_kernel_has_none(repository, predictor):
    path = "N=5120,K=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
    split = table(M1=entry(), M64={**entry(), "SPLIT_K": 2})
    found = changed(repository, predictor, table(M1=entry(), M64=entry()), split, path=path)
    assert found.gate.failed and found.gate.sentence.count("cannot-launch") == 1
    assert "SPLIT_K 2: the kernel has no such" in found.gate.sentence
    assert not changed(repository, predictor, split, split[:-1] + "\n}", path=path).gate.failed
    ignored = changed(repository, predictor, SOUND, table(M1=entry(), M64={**entry(), "SPLIT_K": 2}, M256=entry()))
    assert any("SPLIT_K 2 has no effect" in issue.title + issue.evidence for issue in ignored.subjects[0].new_issues)
    assert not ignored.gate.failed


def test_the_reason_of_a_row_is_the_audits(repository, predictor):
    found = changed(repository, predictor, SOUND, table(M1=entry(), M64=entry(warps=3), M256=entry()))
    assert found.static_counts["cannot-launch"] == 1
    assert "num_warps 3 is no power of two" in found.gate.sentence and "no CTA fits" not in found.gate.sentence


def test_a_cluster_that_no_launch_has_cannot_launch(repository, predictor):
    found = changed(repository, predictor, SOUND, table(M1=entry(), M64={**entry(), "num_ctas": 3}, M256=entry()))
    assert found.static_counts["cannot-launch"] == 1
    assert found.gate.failed and "num_ctas 3: no power of two" in found.gate.sentence


def test_what_does_not_fit_gates_though_nothing_could_be_predicted(repository, predictor):
    base = repository.commit({"advisor.toml": '[tables."*.json"]\nmodel = "Mixtral-8x7B"', TABLE: SOUND})  # of 8 experts, not 128
    found = compared(repository, base, repository.commit({TABLE: table(M64=entry(block_k=256, stages=9))}), predictor)
    (subject,) = found.subjects
    assert subject.static == () and any("No prediction" in note for note in subject.notes)
    assert found.gate.failed and "entry 64 (needs" in found.gate.sentence
    assert not compared(repository, base, "HEAD", predictor, fail_on=("failed",)).gate.failed


def test_a_kernel_file_that_is_no_longer_python_fails(repository, predictor):
    text = KERNEL.format(m=16)
    found = changed(repository, predictor, text, text.replace("def matmul(", "def matmul(:"), path="matmul.py")
    assert found.gate.failed and "matmul.py (line" in found.gate.sentence
    still = changed(repository, predictor, text + "\n(", text + "\n((", path="other.py")
    assert not still.gate.failed and still.subjects[0].notes
    latin = b"# -*- coding: latin-1 -*-\n" + text.encode() + b"# \xe9\n"
    assert not changed(repository, predictor, text, latin, path="latin.py").gate.failed
