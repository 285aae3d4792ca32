"""Reading, selecting, clamping, merging and writing tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.result.schema import Configuration
from advisor.system.errors import InputError, NotOursError, UsageError
from advisor.tables.names import parse_table_name
from advisor.tables.tables import (
    ENTRY_LIMIT,
    clamp,
    down_configuration,
    inspect_table,
    merge,
    new_table,
    read_table,
    render_table,
    select,
)

NAME = "E=128,N=768,device_name=NVIDIA_H20.json"
ENTRY: dict[str, Any] = {
    "BLOCK_SIZE_M": 16,
    "BLOCK_SIZE_N": 64,
    "BLOCK_SIZE_K": 128,
    "GROUP_SIZE_M": 1,
    "num_warps": 4,
    "num_stages": 3,
}


def put(folder: Path, body: Any, name: str = NAME) -> Path:
    path = folder / name
    path.write_text(body if isinstance(body, str) else json.dumps(body), encoding="utf-8")
    return path


def test_every_shipped_table(corpus_dir: Path) -> None:
    read = skipped = same = 0
    for path in corpus_dir.rglob("*.json"):
        try:
            table = read_table(path)
        except NotOursError as error:
            assert "\n" not in str(error)
            skipped += 1
            continue
        read += 1
        text = path.read_text()
        assert json.loads(render_table(table)) == json.loads(text)
        assert list(json.loads(text)) == [key for key, _ in table.document]
        same += render_table(table) == text
        for tokens in (1, 3, 37, 5000):
            expected = min((int(k) for k in json.loads(text) if k != "triton_version"), key=lambda k: abs(k - tokens))
            assert select(table, tokens).key == expected
    assert read >= 690 and skipped >= 39
    assert same >= 500  # as vLLM writes them; the others have another indentation, or no newline at the end


def test_fields(tmp_path: Path) -> None:
    body = {"triton_version": "3.6.0", "8": {**ENTRY, "waves_per_eu": 0, "USE_TMA": True, "grf_mode": "256", "num_ctas": 1}}
    table = read_table(put(tmp_path, body))
    assert table.triton_version == "3.6.0"
    ((tokens, configuration),) = table.entries
    assert tokens == 8
    assert configuration.parameters == {
        "BLOCK_SIZE_M": 16,
        "BLOCK_SIZE_N": 64,
        "BLOCK_SIZE_K": 128,
        "GROUP_SIZE_M": 1,
        "waves_per_eu": 0,
        "USE_TMA": True,
        "grf_mode": "256",
    }
    assert (configuration.num_warps, configuration.num_stages, configuration.num_ctas) == (4, 3, 1)


@pytest.mark.parametrize(("device", "stages"), [("NVIDIA_H200", 3), ("AMD_Instinct_MI300X", 2)])
def test_fields_left_out_get_tritons_defaults(tmp_path: Path, device: str, stages: int) -> None:
    entry = {key: value for key, value in ENTRY.items() if not key.startswith("num_")}
    table = read_table(put(tmp_path, {"1": entry}, f"E=8,N=2,device_name={device}.json"))
    assert (table.entries[0][1].num_warps, table.entries[0][1].num_stages) == (4, stages)
    assert json.loads(render_table(table)) == {"1": entry}


def test_ties_go_to_the_first_in_the_file(tmp_path: Path) -> None:
    up = read_table(put(tmp_path, {"8": ENTRY, "16": ENTRY}))
    down = read_table(put(tmp_path, {"16": ENTRY, "8": ENTRY}))
    assert (select(up, 12).key, select(down, 12).key) == (8, 16)
    assert select(up, 10**9).key == 16


@pytest.mark.parametrize("tokens", [0, -1, 2**31, True, 1.5, "8"])
def test_a_token_count_has_to_be_one(tmp_path: Path, tokens: Any) -> None:
    with pytest.raises(UsageError, match="--tokens"):
        select(read_table(put(tmp_path, {"8": ENTRY})), tokens)


BAD_ENTRIES: list[tuple[str, Any]] = [
    ("BLOCK_SIZE_M", 0),
    ("BLOCK_SIZE_M", -16),
    ("BLOCK_SIZE_M", 16.0),
    ("BLOCK_SIZE_N", 24),
    ("BLOCK_SIZE_N", 2**40),
    ("BLOCK_SIZE_N", 10**400),
    ("BLOCK_SIZE_K", True),
    ("BLOCK_SIZE_K", None),
    ("BLOCK_SIZE_K", "64"),
    ("BLOCK_SIZE_K", [64]),
    ("GROUP_SIZE_M", 0),
    ("GROUP_SIZE_M", 10**9),
    ("num_warps", 0),
    ("num_warps", 4.5),
    ("num_stages", 0),
    ("num_stages", {}),
    ("num_ctas", 0),
    ("SPLIT_K", 0),
    ("waves_per_eu", 0.5),
    ("matrix_instr_nonkdim", [16]),
    ("note", "x" * 1000),
]


@pytest.mark.parametrize(("field", "value"), BAD_ENTRIES)
def test_a_bad_value_names_file_key_and_remedy(tmp_path: Path, field: str, value: Any) -> None:
    path = put(tmp_path, {"1": ENTRY, "64": {**ENTRY, field: value}})
    with pytest.raises(InputError) as caught:
        read_table(path)
    message = str(caught.value)
    assert NAME in message and "entry 64" in message and field in message
    assert caught.value.remedy and caught.value.limit and "\n" not in message and len(message) < 600
    table, problems = inspect_table(path)
    assert table is not None and [k for k, _ in table.entries] == [1]
    assert [problem.key for problem in problems] == ["64"]


@pytest.mark.parametrize("field", ["BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M"])
def test_a_missing_field(tmp_path: Path, field: str) -> None:
    entry = {key: value for key, value in ENTRY.items() if key != field}
    with pytest.raises(InputError, match=f"entry 1: {field} is missing"):
        read_table(put(tmp_path, {"1": entry}))


@pytest.mark.parametrize("key", ["0", "-1", "08", "+8", " 8", "1.5", "+", "1_0", "00", "", "M", "null", str(2**31), "9" * 30, "<b>", "８"])
def test_keys_have_to_be_token_counts(tmp_path: Path, key: str) -> None:
    with pytest.raises(InputError, match="not a token count"):
        read_table(put(tmp_path, {key: ENTRY}))


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        '{"1": {"BLOCK_SIZE_M": 16,}}',
        "[]",
        "null",
        '"text"',
        "3",
        "{}",
        '{"triton_version": "3.6.0"}',
        '{"triton_version": 3, "1": {}}',
        '{"1": null}',
        '{"1": []}',
        '{"1": 7}',
        '{"1": {}}',
        '{"1": {"BLOCK_SIZE_M": NaN}}',
        '{"1": {"BLOCK_SIZE_M": Infinity}}',
        '{"1": {"BLOCK_SIZE_M": ' + "9" * 5000 + "}}",
        "[" * 100_000,
        '{"1":' * 50_000,
        "\ufeff{}",
        "\x00\x01",
    ],
)
def test_files_that_are_no_tables(tmp_path: Path, body: str) -> None:
    with pytest.raises(InputError) as caught:
        read_table(put(tmp_path, body))
    message = str(caught.value)
    assert NAME in message and "\n" not in message and len(message) < 500


def test_a_byte_order_mark_is_told_from_broken_json(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"byte order mark.*the stacks' reader refuses it.*save it as plain UTF-8"):
        read_table(put(tmp_path, "\ufeff" + json.dumps({"1": ENTRY})))


def test_a_block_that_is_no_integer_is_told_what_it_has_to_be(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"BLOCK_SIZE_M; got 16\.0; expected an integer from 1 to 8192, a power of two"):
        read_table(put(tmp_path, json.dumps({"1": {**ENTRY, "BLOCK_SIZE_M": 16.0}})))


def test_duplicate_keys_are_found_at_both_levels(tmp_path: Path) -> None:
    entry = json.dumps(ENTRY)
    path = put(tmp_path, f'{{"1": {entry}, "2": {entry}, "1": {entry}}}')
    with pytest.raises(InputError, match="'1' occurs twice"):
        read_table(path)
    table, problems = inspect_table(path)
    assert table is not None and table.keys == (1, 2) and len(problems) == 1
    with pytest.raises(InputError, match="'num_warps' occurs twice"):
        read_table(put(tmp_path, '{"1": ' + entry[:-1] + ', "num_warps": 8}}'))


def test_limits(tmp_path: Path) -> None:
    many = {str(key): ENTRY for key in range(1, ENTRY_LIMIT + 2)}
    with pytest.raises(InputError, match="too many entries"):
        read_table(put(tmp_path, many))
    with pytest.raises(InputError, match="file too large"):
        read_table(put(tmp_path, " " * (16 * 1024 * 1024 + 1)))
    with pytest.raises(InputError, match="too many keys"):
        read_table(put(tmp_path, {"1": {**ENTRY, **{f"k{i}": 1 for i in range(40)}}}))


def test_places_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    for path, what in [(tmp_path / NAME, "directory"), (tmp_path / "x" / NAME, "cannot be read"), (Path("\0" + NAME), "not")]:
        with pytest.raises(InputError, match=what):
            read_table(path, parse_table_name(NAME))
    latin = tmp_path / ("N=8,K=2," + NAME.split(",", 2)[2])
    latin.write_bytes(b"\xff\xfe{}")
    with pytest.raises(InputError, match="UTF-8"):
        read_table(latin)


def test_tables_of_other_kernels(tmp_path: Path) -> None:
    tile = {"tile_m": 16, "tile_n": 64, "tile_k": 512}
    with pytest.raises(NotOursError, match="flydsl"):
        read_table(put(tmp_path, {"1": tile}, "E=8,N=2,device_name=X,dtype=int4_w4a16,backend=flydsl.json"))
    with pytest.raises(NotOursError, match="another kernel"):
        read_table(put(tmp_path, {"1": tile}))


def test_channelwise_tables_are_another_kernels(tmp_path: Path) -> None:
    with pytest.raises(NotOursError, match="channel-wise"):
        read_table(put(tmp_path, {"1": ENTRY, "512": None}, "N=8,K=2,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json"))


CONFIGURATION = Configuration(parameters={"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 256, "GROUP_SIZE_M": 1, "SPLIT_K": 4})


@pytest.mark.parametrize(
    ("name", "block_k", "split"),
    [
        ("E=8,N=2,device_name=X,dtype=fp8_w8a8,block_shape=[64,128].json", 64, 1),
        ("E=8,N=2,device_name=X,block_shape=[128,128].json", 128, 1),
        ("E=8,N=2,device_name=X,dtype=int4_w4a16,block_shape=[128,128].json", 256, 1),
        ("E=8,N=2,device_name=X.json", 256, 1),
        ("E=8,N=2,device_name=X,dtype=fp8_w8a8,block_shape=[128, 128].json", 256, 4),
        ("N=8,K=2,device_name=X,dtype=fp8_w8a8,block_shape=[128,128].json", 256, 4),
        ("N=8,K=2,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[512, 512].json", 512, 4),
        ("N=8,K=2,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[512, 512].json", 256, 4),
    ],
)
def test_clamp(name: str, block_k: int, split: int) -> None:
    launched = clamp(CONFIGURATION, parse_table_name(name))
    assert (launched.parameters["BLOCK_SIZE_K"], launched.parameters["SPLIT_K"]) == (block_k, split)
    assert CONFIGURATION.parameters["BLOCK_SIZE_K"] == 256


def test_w2_takes_the_row_block_of_w13() -> None:
    up = Configuration(parameters={**CONFIGURATION.parameters, "BLOCK_SIZE_M": 64})
    down = down_configuration(up, CONFIGURATION)
    assert down.parameters == {**CONFIGURATION.parameters, "BLOCK_SIZE_M": 64}
    assert down_configuration(up, None) is up


def test_merge_keeps_order_and_version(tmp_path: Path) -> None:
    table = read_table(put(tmp_path, {"triton_version": "3.6.0", "1": {**ENTRY, "num_ctas": 1}, "64": ENTRY}))
    merged = merge(table, {16: CONFIGURATION, 1: CONFIGURATION})
    document = json.loads(render_table(merged))
    assert list(document) == ["triton_version", "1", "16", "64"]
    assert list(document["1"]) == [*ENTRY, "num_ctas", "SPLIT_K"]
    assert list(document["16"]) == [*CONFIGURATION.parameters, "num_warps", "num_stages"]
    assert document["64"] == ENTRY and merged.entries[1] == (16, CONFIGURATION)
    disordered = read_table(put(tmp_path, {"64": ENTRY, "1": ENTRY}))
    assert merge(disordered, {16: CONFIGURATION}).keys == (64, 1, 16)
    with pytest.raises(UsageError):
        merge(table, {0: CONFIGURATION})


def test_render_table(tmp_path: Path) -> None:
    assert render_table(read_table(put(tmp_path, {"1": ENTRY}))) == json.dumps({"1": ENTRY}, indent=4) + "\n"


configurations = st.builds(
    lambda m, n, k, group, warps, stages, extra: Configuration(
        parameters={"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": group, **extra},
        num_warps=warps,
        num_stages=stages,
    ),
    *[st.sampled_from([16, 32, 64, 128, 256])] * 3,
    st.integers(1, 128),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(1, 8),
    st.dictionaries(st.sampled_from(["SPLIT_K", "kpack"]), st.integers(1, 16)),
)


@given(st.dictionaries(st.integers(1, 2**31 - 1), configurations, min_size=1), st.none() | st.just("3.9.0"))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, entries: dict[int, Configuration], version: str | None) -> None:
    table = new_table(parse_table_name(NAME), entries, version)
    path = tmp_path_factory.mktemp("table") / NAME
    path.write_text(render_table(table), encoding="utf-8")
    again = read_table(path)
    assert dict(again.entries) == entries and again.triton_version == version
    assert again.keys == tuple(sorted(entries))
    assert render_table(again) == render_table(table)
