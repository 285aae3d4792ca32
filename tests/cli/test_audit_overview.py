"""What `advisor audit` says of many tables: which GPU and which table are worst."""

from __future__ import annotations

import json

from advisor.cli import main

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
