"""Adding entries to a table without changing what runs elsewhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from advisor.gpus.hardware import load_gpu
from advisor.result.schema import Configuration
from advisor.tables.names import parse_table_name
from advisor.tables.tables import merge, new_table
from advisor.tables.tuned_table import STANDARD_TOKENS, TunedTable, restated, running

NAME = parse_table_name("E=8,N=14336,device_name=NVIDIA_H200.json")
GPU = load_gpu("H200")
BLOCKS = (16, 32, 64, 128)


def entry(block_m: int, block_n: int = 64) -> Configuration:
    blocks = {"BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": block_n, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
    return Configuration(parameters=blocks, num_warps=4, num_stages=3)


def telling(keys: set[int]) -> list[int]:
    """Token counts up to 4,500 around every place where what runs can change (a key, the middle of any two), and some in between."""
    places = {*keys, *((one + other) // 2 for one in keys for other in keys)}
    near = {place + away for place in places for away in range(-3, 4)}
    return sorted(tokens for tokens in near | set(range(1, 4500, 41)) if tokens > 0)


def moved(table: dict[int, int], winners: tuple[int, ...]) -> dict[int, Configuration | None]:
    """Token counts that run neither what they ran before nor a winner, with what they run."""
    before = new_table(NAME, {tokens: entry(block) for tokens, block in table.items()})
    won = {tokens: entry(16, 256) for tokens in winners}
    after = merge(before, {**restated(before, won, GPU, winners), **won})
    runs = {tokens: running(after, tokens) for tokens in telling({*table, *winners, *(key for key, _ in after.entries)})}
    return {tokens: its for tokens, its in runs.items() if its not in (running(before, tokens), entry(16, 256))}


def test_what_changes_between_two_entries_changes_where_it_did():
    """Of the two token counts at the change one is as near to the winner as to its entry: restating the other alone would reach across."""
    assert moved({1024: 16, 4096: 128}, (2048,)) == {} and moved({2: 16, 48: 128}, (16,)) == {}


def test_untried_next_to_winners():
    """Beside 64, which won, 96 runs as before though nobody tried it; between 256 and 1,024, which did not win, that is as it should be."""
    before = new_table(NAME, dict.fromkeys(STANDARD_TOKENS, entry(64)))
    tuned = TunedTable(before=before, winners={64: entry(16)}, tuned=(64, 64, 256, 1024), gpu=GPU, new=True)
    assert tuned.untried == (96, 128)


@given(
    st.dictionaries(st.integers(1, 4300) | st.sampled_from(STANDARD_TOKENS), st.sampled_from(BLOCKS), min_size=1, max_size=4),
    st.lists(st.sampled_from(STANDARD_TOKENS) | st.integers(1, 4300), min_size=1, max_size=3, unique=True),
)
def test_every_token_count_runs_a_winner_or_what_it_ran(table, winners):
    assert moved(table, tuple(winners)) == {}
