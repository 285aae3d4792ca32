"""`advisor audit`: options that contradict each other, and what its predictions rest on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.cli import main

EXAMPLE = Path(__file__).resolve().parents[2] / "reports" / "examples" / "E=128,N=768,device_name=NVIDIA_H20.json"


@pytest.mark.parametrize("gates", ["predicted-regret", "error,predicted-regret"])
def test_a_gate_on_what_is_left_out_is_refused(capsys, gates):
    """It would pass whatever the tables hold."""
    assert main(["audit", str(EXAMPLE), "--no-regret", "--fail-on", gates]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert "--no-regret" in printed.err and "--fail-on predicted-regret" in printed.err


def test_other_gates_need_no_predictions():
    assert main(["audit", str(EXAMPLE), "--no-regret", "--fail-on", "error"]) == 0


def test_a_line_names_its_file_and_entries_once(tmp_path, capsys):
    entry = json.loads(EXAMPLE.read_text())["1"]
    path = tmp_path / EXAMPLE.name
    path.write_text(json.dumps({"1": {**entry, "BLOCK_SIZE_M": 48}, "2": {**entry, "BLOCK_SIZE_M": 48}, "4096": entry}))
    assert main(["audit", str(path), "--no-regret"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("error"))
    assert f"{path} entries 1, 2: BLOCK_SIZE_M; got 48" in line and line.count(EXAMPLE.name) == 1 and "entry 1" not in line


def test_regret_by_the_analytical_model_is_marked(tmp_path, capsys):
    """No 8-bit GEMM of this kernel was measured on that GPU; of the others the learned model speaks."""
    slow = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 2}
    known = "E=128,N=768,device_name=NVIDIA_H20.json"
    beyond = "E=256,N=256,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,128].json"
    for name in (known, beyond):
        (tmp_path / name).write_text(json.dumps({"1": slow, "4096": slow}), encoding="utf-8")
    assert main(["audit", str(tmp_path), "--all"]) == 0
    printed = capsys.readouterr().out
    listed = printed.partition("largest predicted regret:")[2].splitlines()
    assert all("(by the analytical model)" in line for line in listed if beyond in line)
    assert any(beyond in line for line in listed) and any(line.endswith(known) for line in listed)
    assert any(f"{beyond} entry 1" in line and ", by the analytical model)" in line for line in printed.splitlines())


def test_entries_with_the_same_fault_are_one_line(tmp_path, capsys):
    """A table with one mistake in every entry is no screenful; a gate and JSON count each."""
    entry = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}
    name = "E=256,N=256,device_name=NVIDIA_H20,dtype=fp8_w8a8,block_shape=[128,128].json"
    blocks = {"1": 256, "64": 256, "128": 512, "256": 128, "4096": 256}
    table = {tokens: {**entry, "BLOCK_SIZE_K": block} for tokens, block in blocks.items()}
    (tmp_path / name).write_text(json.dumps(table), encoding="utf-8")
    assert main(["audit", str(tmp_path), "--no-regret"]) == 0
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if line.startswith("warning clamped-block-k")]
    assert [line.split(name)[1].partition(":")[0] for line in lines] == [" entries 1, 64, 4096", " entry 128"]
    assert "\n1 file, 1 table read, 0 predicted\n" in printed and "4 in   1 file   clamped-block-k" in printed
    assert main(["audit", str(tmp_path), "--no-regret", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["clamped-block-k"] == 4


ENTRY = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}
SLOW = {**ENTRY, "BLOCK_SIZE_M": 128, "num_stages": 2}
NEVER = {**ENTRY, "num_stages": 90}


def tables(folder, **bodies):
    for name, entries in bodies.items():
        gpu, _, width = name.partition("_")
        path = folder / f"E=128,N={width},device_name=NVIDIA_{gpu}.json"
        path.write_text(json.dumps({str(tokens): entry for tokens, entry in entries.items()}), encoding="utf-8")
    return str(folder)


def audited(folder, capsys):
    main(["audit", folder])
    return capsys.readouterr().out.splitlines()


def test_gpus_have_a_line_each_those_with_errors_first(tmp_path, capsys):
    folder = tables(tmp_path, H20_768={1: SLOW, 4096: ENTRY}, H200_768={1: ENTRY, 4096: SLOW}, H200_384={1: NEVER, 4096: ENTRY})
    lines = audited(folder, capsys)
    start = next(number for number, line in enumerate(lines) if line.startswith("  by GPU"))
    assert [line.split()[:3] for line in lines[start + 1 : start + 3]] == [["H200", "2", "1"], ["H20", "1", "-"]]


def test_a_table_that_cannot_be_read_counts_for_its_gpu(tmp_path, capsys):
    folder = tables(tmp_path, H20_768={4096: ENTRY}, H200_768={4096: ENTRY})
    (tmp_path / "E=128,N=384,device_name=NVIDIA_H200.json").write_text("{")
    lines = audited(folder, capsys)
    start = next(number for number, line in enumerate(lines) if line.startswith("  by GPU"))
    assert lines[start + 1].split()[:3] == ["H200", "2", "1"]


def test_one_gpu_has_no_line_of_its_own(tmp_path, capsys):
    assert not any(line.startswith("  by GPU") for line in audited(tables(tmp_path, H20_768={1: SLOW}, H20_384={1: ENTRY}), capsys))


def test_a_table_is_listed_once_with_its_largest_regret(tmp_path, capsys):
    lines = audited(tables(tmp_path, H20_768={1: SLOW, 8: SLOW, 64: SLOW}, H20_384={1: SLOW}), capsys)
    start = lines.index("  tables with the largest predicted regret:")
    listed = [line for line in lines[start:] if ".json" in line]
    assert len(listed) == 2 and sorted("and 2 more" in line for line in listed) == [False, True]
    regrets = [int(line.split("%")[0]) for line in listed]
    assert regrets == sorted(regrets, reverse=True)


def test_only_what_is_listed_is_said_to_be_listed(tmp_path, capsys):
    """Regret alone is advice, which --all lists; a table without any issue has nothing more to list."""
    whole = dict.fromkeys((1, 4, 16, 64, 256, 1024, 4096), ENTRY)
    slow = audited(tables(tmp_path, H20_768={**whole, 1024: SLOW, 4096: SLOW}), capsys)
    assert not any(line.startswith(("error", "warning")) for line in slow)
    assert slow[-1] == "  (no error and no warning; --all lists the rest)"
    failing = audited(tables(tmp_path, H20_768={**whole, 1: NEVER, 4096: SLOW}), capsys)
    assert failing[0].startswith("error ") and failing[-2] == "  (errors and warnings are listed above; --all lists the rest)"
    assert failing[-1].startswith("1 error in 1 file: ") and "--fail-on error" in failing[-1]


def test_errors_stand_first_whatever_their_path(tmp_path, capsys):
    whole = dict.fromkeys((1, 4, 16, 64, 256, 1024, 4096), ENTRY)
    lines = audited(tables(tmp_path, A100_768={**whole, 3: ENTRY}, H20_768={**whole, 1: NEVER}), capsys)
    severities = [line.split()[0] for line in lines if line.startswith(("error", "warning"))]
    assert severities and severities == sorted(severities) and severities[0] == "error"
