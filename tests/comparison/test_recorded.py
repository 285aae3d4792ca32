"""Recorded launches as the problems that a changed kernel is compared on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.comparison import Options, compare_trees
from advisor.comparison.settings import read_recorded, read_settings
from advisor.comparison.trees.trees import RevisionTree
from advisor.system.errors import InputError

from .conftest import KERNEL as TEMPLATE

KERNEL, CHANGED = TEMPLATE.format(m=64), TEMPLATE.format(m=128)

FORMAT = {"format": "triton-advisor launches 1"}
PATH = "kernels/matmul.py"
DESCRIBED = """launches = ["bench/launches.jsonl"]
[kernels."kernels/matmul.py::matmul"]
family = "gemm"
sizes = {M = "M", N = "N", K = "a.shape[1]"}
dtype = "a"
"""


def launch(number, M=64, N=256, K=512, dtype="bfloat16", **more):
    """One line of a record: of the kernel `matmul`."""
    tensors = {
        "a": {"shape": [M, K], "strides": [K, 1], "dtype": dtype},
        "b": {"shape": [K, N], "strides": [N, 1], "dtype": dtype},
        "c": {"shape": [M, N], "strides": [N, 1], "dtype": dtype},
    }
    return {
        "launch": f"l{number}",
        "kernel": "matmul",
        "line": 1,
        "source": "s",
        "signature": {},
        "constexprs": {"BLOCK_M": 64},
        "arguments": {"M": M, "N": N, "K": K},
        "tensors": tensors,
        "options": {"num_warps": 4},
        "grid": [1],
        **more,
    }


def record(*launches, counts=(), path=f"/home/somebody/project/{PATH}"):
    lines = [FORMAT, {"source": "s", "path": path, "text": "import triton"}, *launches]
    lines += [{"count_of": name, "process": 1, "count": count} for name, count in counts]
    return "".join(json.dumps(line) + "\n" for line in lines)


def compared(repository, predictor, before, after, **options):
    base, head = repository.commit(before), repository.commit(after)
    trees = [RevisionTree(folder=repository.folder, label=name, revision=commit) for name, commit in (("base", base), ("head", head))]
    return compare_trees(*trees, Options(gpus=("H100",), compiling=False, **options), predictor)


def test_the_launches_that_advisor_toml_names_are_the_problems(repository, predictor):
    trial = launch(4, M=999, tuning=True)
    lines = record(launch(1), launch(2, M=4096), launch(3), trial, counts=[("l2", 50), ("l1", 3)])
    found = compared(repository, predictor, {PATH: KERNEL, "advisor.toml": DESCRIBED, "bench/launches.jsonl": lines}, {PATH: CHANGED})
    (subject,) = found.subjects
    assert [row.label for row in subject.static] == ["gemm M=4096 N=256 K=512 bf16", "gemm M=64 N=256 K=512 bf16"]
    assert any("2 problems of 54 recorded launches (bench/launches.jsonl)" in note for note in subject.notes)


def test_named_problems_come_first_and_a_kernels_own_literal_does_as_well(repository, predictor, tmp_path):
    literal = '\nKERNELS = {"matmul": {"family": "gemm", "ops": {"gemm": {"sizes": {"M": "M", "N": "N", "K": "K"}}}, "dtype": "a"}}\n'
    file = tmp_path / "launches.jsonl"
    file.write_text(record(launch(1), launch(2, M=7), path="/elsewhere/site-packages/matmul.py"))
    settings = '[kernels."kernels/matmul.py::matmul"]\nproblems = [{M = 64, N = 256, K = 512}, {M = 1, N = 256, K = 512}]\n'
    found = compared(repository, predictor, {PATH: KERNEL + literal, "advisor.toml": settings}, {PATH: CHANGED + literal}, launches=(file,))
    assert [row.label.split()[1] for row in found.subjects[0].static] == ["M=64", "M=1", "M=7"]


def test_what_no_description_covers_is_said(repository, predictor, tmp_path):
    file = tmp_path / "launches.jsonl"
    file.write_text(record(launch(1), launch(2)))
    (subject,) = compared(repository, predictor, {PATH: KERNEL}, {PATH: CHANGED}, launches=(file,)).subjects
    assert not subject.static and any("2 recorded launches were not used" in note for note in subject.notes)
    odd = record(launch(1), launch(2, tensors={}), launch(3, dtype="complex64"))
    found = compared(repository, predictor, {PATH: KERNEL, "advisor.toml": DESCRIBED, "bench/launches.jsonl": odd}, {PATH: CHANGED})
    (subject,) = found.subjects
    assert len(subject.static) == 1 and any("2 of 3 recorded launches were not understood" in note for note in subject.notes)


@pytest.mark.parametrize("content", ["no record", b"\xff\xfe", Path("/etc/passwd"), None])
def test_a_hostile_record_is_a_warning(repository, predictor, content):
    before = {PATH: KERNEL, "advisor.toml": DESCRIBED, "bench/launches.jsonl": content}
    found = compared(repository, predictor, before, {PATH: CHANGED})
    assert len(found.subjects) == 1 and any("launches" in warning for warning in found.warnings)


def test_only_paths_of_the_tree_may_be_named():
    for path in ("/etc/passwd", "../up.jsonl", "a/../../b", "~/x"):
        with pytest.raises(InputError, match="inside the repository"):
            read_settings(f"launches = ['{path}']".encode())
    assert read_settings(b'launches = ["a..b/c.jsonl"]').launches == ("a..b/c.jsonl",)


def test_the_file_whose_path_ends_alike_is_the_kernels(tmp_path):
    here, there = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    here.write_text(record(launch(1, M=1)))
    there.write_text(record(launch(2, M=2), path="/other/place/matmul.py"))
    recorded = read_recorded([("a", here), ("b", there)])
    assert [each.arguments["M"] for each in recorded.of(PATH, "matmul")] == [1]
    assert [each.arguments["M"] for each in recorded.of("other/place/matmul.py", "matmul")] == [2]
    assert not recorded.of(PATH, "another") and not recorded.of("kernels/conv.py", "matmul")


def test_two_files_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, text in (("old", KERNEL), ("new", CHANGED)):
        (tmp_path / folder / "kernels").mkdir(parents=True)
        (tmp_path / folder / PATH).write_text(text)
    (tmp_path / "launches.jsonl").write_text(record(launch(1, M=48)))
    (tmp_path / "advisor.toml").write_text(DESCRIBED.split("\n", 1)[1].replace('"kernels', '"new/kernels'))
    arguments = ["compare", f"old/{PATH}", f"new/{PATH}", "--no-compile", "--gpu", "H100"]
    assert main([*arguments, "--launches", "launches.jsonl"]) == 0
    assert "M=48" in capsys.readouterr().out
    assert main([*arguments, "--launches", "missing.jsonl"]) == 2
    (tmp_path / "odd.jsonl").write_text("{}")
    assert main([*arguments, "--launches", "odd.jsonl"]) == 2
    assert "is not a launch record" in capsys.readouterr().err
