"""`advisor advise FOLDER`: a report for each table, and all of them at a glance."""

from __future__ import annotations

import json

import pytest

from advisor.cli import main

ENTRY = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}
NAMES = ("E=128,N=768,device_name=NVIDIA_H20.json", "E=128,N=768,device_name=NVIDIA_H200.json")


@pytest.fixture
def tables(tmp_path):
    """One that is good enough, and one with an entry far too large."""
    folder = tmp_path / "tables"
    folder.mkdir()
    large = {**ENTRY, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "num_stages": 2}
    for name, entry in zip(NAMES, (ENTRY, large), strict=True):
        (folder / name).write_text(json.dumps({"64": entry}), encoding="utf-8")
    return folder


def test_all_tables_and_gpus_stand_together(tables, tmp_path, capsys):
    assert main(["advise", str(tables), "--output", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if ".json" in line] == ["H200", "H20"]
    page = (tmp_path / "out" / "overview.html").read_text(encoding="utf-8")
    for name in NAMES:
        assert (tmp_path / "out" / name.removesuffix(".json") / "report.html").is_file() and name in page


def test_several_gpus_have_one_overview(tables, tmp_path, capsys):
    assert main(["advise", str(tables), "--gpu", "H100,L40S", "--output", str(tmp_path / "out"), "--format", "md"]) == 0
    assert capsys.readouterr().out.count("\n| L40S | ") == 2
    page = (tmp_path / "out" / "overview.html").read_text(encoding="utf-8")
    assert all(f'href="{gpu}/E%3D128' in page for gpu in ("h100", "l40s")) and (tmp_path / "out" / "l40s").is_dir()


def test_json_says_the_gpu_of_each_table(tables, tmp_path, capsys):
    assert main(["advise", str(tables), "--output", str(tmp_path / "out"), "--format", "json"]) == 0
    assert [(row["table"], row["gpu"]) for row in json.loads(capsys.readouterr().out)] == list(zip(NAMES, ("H20", "H200"), strict=True))


def test_what_was_found_is_shown_where_it_is_interrupted(tables, tmp_path, capsys, monkeypatch):
    from advisor.advising import public

    advise = public.report_on_launches

    def interrupted(target, *more, **options):
        if target.gpu.name == "H200":
            raise KeyboardInterrupt
        return advise(target, *more, **options)

    monkeypatch.setattr(public, "report_on_launches", interrupted)
    assert main(["advise", str(tables), "--output", str(tmp_path / "out")]) == 130
    assert NAMES[0] in capsys.readouterr().out and (tmp_path / "out" / "overview.html").is_file()


def test_a_table_that_is_skipped_is_named_once(tables, tmp_path, capsys):
    (tables / NAMES[0]).write_text("{", encoding="utf-8")
    assert main(["advise", str(tables), "--output", str(tmp_path / "out")]) == 0
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("advisor: skipped "))
    assert f"skipped {NAMES[0]}: not valid JSON" in line and line.count(NAMES[0]) == 1
