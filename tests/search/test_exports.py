"""What a tuning run writes, where others write as well."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.gpus.hardware import load_gpu
from advisor.result.schema import Configuration
from advisor.tables.names import parse_table_name
from advisor.tables.tables import Table, new_table, read_table, render_table, select
from advisor.tuning.export import TunedTable, write_exports

TABLE = "E=128,N=768,device_name=NVIDIA_H200.json"


def blocks(m: int) -> Configuration:
    parameters = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
    return Configuration(parameters=parameters, num_warps=4, num_stages=3)


def table_of(**entries: int) -> Table:
    """A table of token counts (M16=…) and their BLOCK_SIZE_M."""
    return new_table(parse_table_name(TABLE), {int(key[1:]): blocks(m) for key, m in entries.items()})


def tuned_table(before: Table, winners: dict[int, Configuration], *others: int) -> TunedTable:
    """What won, where `others` were tuned as well."""
    return TunedTable(before=before, winners=winners, tuned=(*winners, *others), gpu=load_gpu("H200"))


def written(folder: Path) -> dict[str, int]:
    return {key: entry["BLOCK_SIZE_M"] for key, entry in json.loads((folder / TABLE).read_text()).items()}


@pytest.mark.parametrize(
    ("before", "now", "winners", "after", "left"),
    [
        (table_of(M16=16, M64=16), table_of(M16=32, M64=16), {64: 64}, {"16": 32, "64": 64}, ""),  # another entry was tuned
        (table_of(M16=16, M64=16), table_of(M16=32, M64=16), {16: 64}, {"16": 32, "64": 16}, "M = 16"),  # this one was
        (table_of(M16=16, M64=16), table_of(M16=64, M64=16), {16: 64}, {"16": 64, "64": 16}, ""),  # to the same
        (table_of(M16=16), table_of(M16=16, M40=32), {48: 64}, {"16": 16, "40": 32}, "M = 48"),  # and what is nearest now is another
        (
            table_of(M1=16, M64=32),
            table_of(M1=16, M16=128, M64=32),
            {64: 64},
            {"1": 16, "16": 128, "64": 64},
            "",
        ),  # a new table, by two runs
        (table_of(), table_of(M16=32), {16: 64, 24: 64}, {"16": 32}, "M = 16, 24"),  # nothing ran before
    ],
)
def test_winners_go_into_the_table_that_is_there_by_now(tmp_path, before, now, winners, after, left):
    (tmp_path / TABLE).write_text(render_table(now), encoding="utf-8")
    tuned = tuned_table(before, {tokens: blocks(m) for tokens, m in winners.items()})
    paths, warnings = write_exports(tmp_path, (), "# what won\n", tuned)
    assert written(tmp_path) == after
    assert len(warnings) == bool(left) and all(f"what won for {left} is not written" in warning for warning in warnings)
    assert (tmp_path / "before-after.md").read_text().count("is not written") == len(warnings)
    assert sorted(paths) == sorted(tmp_path.iterdir())  # and no lock stays


def test_a_table_that_is_not_there_is_written_whole(tmp_path):
    folder = tmp_path / "new" / "tables"
    write_exports(folder, (), "", tuned_table(table_of(M48=16, M64=16), {64: blocks(64)}))
    assert written(folder) == {"48": 16, "64": 64}


def test_waits_for_another_run_that_is_writing(tmp_path):
    path, tuned = tmp_path / TABLE, tuned_table(table_of(M16=16, M64=16), {64: blocks(64)})
    path.write_text(render_table(tuned.before), encoding="utf-8")
    lock = tmp_path / f"{TABLE}.lock"
    lock.touch()
    writer = threading.Thread(target=write_exports, args=(tmp_path, (), "", tuned))
    writer.start()
    writer.join(timeout=0.3)
    assert writer.is_alive() and read_table(path).entries == tuned.before.entries
    path.write_text(render_table(table_of(M16=32, M64=16)), encoding="utf-8")
    lock.unlink()
    writer.join(timeout=60)
    assert written(tmp_path) == {"16": 32, "64": 64}


def runs(table: Table, tokens: int) -> int:
    """BLOCK_SIZE_M of what runs."""
    return select(table, tokens).configuration.parameters["BLOCK_SIZE_M"]


@pytest.mark.parametrize(
    ("before", "winner", "others", "reach"),
    [
        (table_of(M2048=128), 1, (), (1, 1)),
        (table_of(M64=16, M2048=128), 512, (), (385, 768)),  # what runs changes at 1057, between 1024 and 1536
        (table_of(M64=16, M2048=128), 1024, (), (769, 1280)),  # and here beside the winner
        (table_of(M32=16, M64=128), 40, (), (37, 44)),
        (table_of(M32=16, M48=128), 40, (), (37, 44)),  # nothing usual in between
        (table_of(M32=16, M48=128), 40, (44,), (37, 42)),  # but something that was tuned as well, and did not win
        (table_of(M1=16, M1024=16), 4096, (), (3585, 99999)),
        (table_of(M1=16, M1024=128), 1024, (600,), (813, 99999)),  # what did not win beside an entry that is replaced
    ],
)
def test_a_winner_is_kept_to_its_neighbourhood(before, winner, others, reach):
    after = tuned_table(before, {winner: blocks(64)}, *others).table
    moved = [tokens for tokens in range(1, 5000) if runs(after, tokens) != runs(before, tokens)]
    assert (moved[0], moved[-1]) == (reach[0], min(reach[1], 4999)) and len(moved) == moved[-1] - moved[0] + 1
    assert {runs(after, tokens) for tokens in moved} == {64}


def test_a_winner_is_kept_to_its_neighbourhood_in_the_table_that_is_there_by_now(tmp_path):
    (tmp_path / TABLE).write_text(render_table(table_of(M16=16, M2048=16)), encoding="utf-8")
    write_exports(tmp_path, (), "", tuned_table(table_of(M16=16), {1024: blocks(64)}))
    now = read_table(tmp_path / TABLE)
    assert [runs(now, tokens) for tokens in (512, 768, 1024, 1280, 1536)] == [16, 16, 64, 64, 16]


def test_an_entry_that_fails_is_not_said_again():
    huge = {2048: replace(blocks(128), num_stages=40)}
    after = tuned_table(new_table(parse_table_name(TABLE), huge), {1: blocks(64)}).table
    assert after.keys == (1, 2048)
