"""The file-name grammar: every shipped name, odd names, hostile names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.system.errors import InputError, NotOursError
from advisor.tables.names import SIZE_LIMIT, TableName, device_twins, is_table_name, operand_dtype, parse_table_name, unreachable_reasons


def test_every_shipped_name_is_written_back_to_the_letter(corpus_dir: Path) -> None:
    parsed = skipped = 0
    for path in corpus_dir.rglob("*.json"):
        if path.parent.name == "other":
            with pytest.raises(NotOursError):
                parse_table_name(path)
            skipped += 1
            continue
        name = parse_table_name(path)
        assert name.file_name() == path.name
        assert name.stack == path.relative_to(corpus_dir).parts[0]
        assert name.kind == path.relative_to(corpus_dir).parts[1]
        parsed += 1
    assert parsed >= 700 and skipped >= 30


def test_fields() -> None:
    name = parse_table_name("configs/triton_3_5_1/E=257,N=256,device_name=NVIDIA_H20-3e,dtype=fp8_w8a8,block_shape=[128, 128]_down.json")
    assert (name.E, name.N, name.K, name.block_shape, name.down) == (257, 256, None, (128, 128), True)
    assert (name.stack, name.triton_version, name.device_name) == ("sglang", "3.5.1", "NVIDIA_H20-3e")
    assert (name.operand_dtype, name.weight_dtype) == ("fp8", None)


@pytest.mark.parametrize(
    ("text", "stack"),
    [
        ("E=8,N=2,device_name=X.json", "unknown"),
        ("sglang/E=8,N=2,device_name=X.json", "sglang"),
        ("vllm/sglang/E=8,N=2,device_name=X.json", "sglang"),
        ("E=8,N=2,device_name=X,dtype=fp8_w8a8,block_shape=[128,128].json", "vllm"),
        ("E=8,N=2,device_name=X,dtype=fp8_w8a8,block_shape=[128, 128].json", "sglang"),
        ("E=8,N=2,device_name=X,dtype=fp8_w8a8,per_channel_quant=True.json", "sglang"),
        ("E=8,N=2,device_name=X,dtype=int4_w4a16,backend=flydsl.json", "vllm"),
    ],
)
def test_stack(text: str, stack: str) -> None:
    assert parse_table_name(text).stack == stack


@pytest.mark.parametrize(
    "text",
    [
        "E=0,N=2,device_name=X.json",
        "E=-1,N=2,device_name=X.json",
        "E=8.5,N=2,device_name=X.json",
        "E=08,N=2,device_name=X.json",
        f"E=8,N={SIZE_LIMIT},device_name=X.json",
        f"E=8,N={'9' * 5000},device_name=X.json",
        "E=,N=2,device_name=X.json",
        "E=8,device_name=X.json",
        "E=8,N=2.json",
        "E=8,N=2,device_name=.json",
        "E=8,N=2,device_name=X",
        "E=8,N=2,device_name=X.json.bak",
        "E=8,E=9,N=2,device_name=X.json",
        "N=2,E=8,device_name=X.json",
        "E=8,N=2,dtype=fp8_w8a8,device_name=X.json",
        "E=8,N=2,device_name=X,colour=red.json",
        "E=8,N=2,device_name=X,dtype.json",
        "E=8,N=2,device_name=X,block_shape=[128].json",
        "E=8,N=2,device_name=X,block_shape=[0,128].json",
        "E=8,N=2,device_name=X,block_shape=[100,128].json",
        "E=8,N=2,device_name=X,block_shape=[128,  128].json",
        "E=8,N=2,device_name=X,per_channel_quant=False.json",
        "N=8,K=2,device_name=X,dtype=fp8_w8a8,block_shape=[128,128]_down.json",
        "N=8,K=2,device_name=X,backend=flydsl.json",
        "table.json",
        "README.md",
        "",
    ],
)
def test_names_outside_the_grammar_say_what_is_wrong_in_one_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_table_name(text)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 12_000
    assert caught.value.remedy
    assert not is_table_name(text)


@pytest.mark.parametrize(
    "device", ['<img src=x onerror="alert(1)">', "A\nB", "A\tB", "GPU(TM)", "名前", "a'b\"c", "x=y", "..", "%s{0}", "\x1b[31m"]
)
def test_hostile_device_names_are_kept_as_text(device: str) -> None:
    text = f"E=8,N=2,device_name={device}.json"
    name = parse_table_name(text)
    assert name.device_name == device and name.file_name() == text
    assert all("\n" not in reason for reason in unreachable_reasons(parse_table_name("vllm/" + text)))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("headdim=64,dstate=128,device_name=X,cache_dtype=float16.json", "Mamba"),
        ("world=8,H=7168,device_name=X.json", "communication"),
        ("provider=cutedsl,E=256,N1=1,N2=2,K=3,device_name=X.json", "CuTe"),
        ("epilogue,E=896,topk=16,device_name=X.json", "epilogue"),
        ("inter_size=5,device_name=X.json", "another kernel"),
    ],
)
def test_siblings_are_recognised(text: str, what: str) -> None:
    with pytest.raises(NotOursError, match=what):
        parse_table_name(text)


sizes = st.integers(1, SIZE_LIMIT - 1)
devices = st.text(st.characters(blacklist_characters=",[]/\x00", blacklist_categories=["Cs"]), min_size=1).filter(
    lambda text: text.strip() and not text.endswith("_down")
)
blocks = st.none() | st.tuples(*[st.sampled_from([16, 32, 64, 128, 256])] * 2)


@given(st.booleans(), sizes, sizes, devices, st.sampled_from([None, "fp8_w8a8", "int8_w8a16"]), blocks, st.booleans(), st.booleans())
def test_round_trip(
    gemm: bool, a: int, b: int, device: str, dtype: str | None, block: tuple[int, int] | None, spaced: bool, flag: bool
) -> None:
    name = TableName(
        stack="unknown",
        kind="gemm" if gemm else "fused_moe",
        N=a,
        E=None if gemm else b,
        K=b if gemm else None,
        device_name=device,
        dtype=dtype,
        block_shape=block,
        block_shape_spaced=spaced and block is not None,
        per_channel_quant=flag and not gemm,
        down=flag and not gemm,
    )
    again = parse_table_name(name.file_name())
    assert again.file_name() == name.file_name()
    assert (again.kind, again.N, again.E, again.K, again.device_name) == (name.kind, a, name.E, name.K, device)
    assert (again.dtype, again.block_shape, again.down) == (dtype, block, name.down)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("vllm/E=8,N=2,device_name=X,dtype=bf16.json", "dtype=bf16"),
        ("vllm/E=8,N=2,device_name=X,dtype=int8_w8a8.json", "dtype=int8_w8a8"),
        ("vllm/E=8,N=2,device_name=X,dtype=float8.json", "dtype=float8"),
        ("vllm/E=8,N=2,device_name=NVIDIA_H200_NVL.json", "NVIDIA_H200"),
        ("vllm/E=8,N=2,device_name=X_down.json", "_down"),
        ("vllm/E=8,N=2,device_name=X,dtype=fp8_w8a8,block_shape=[128, 128].json", "without a blank"),
        ("vllm/E=8,N=2,device_name=My GPU.json", "blanks"),
        ("vllm/N=8,K=2,device_name=X,dtype=fp8_w8a8.json", "block_shape"),
        ("sglang/E=8,N=2,device_name=X,dtype=fp8_w8a8,block_shape=[128,128].json", "with a blank"),
        ("sglang/E=8,N=2,device_name=X,dtype=fp8_w8a16.json", "fp8_w8a16"),
        ("E=8,N=2,device_name=X,dtype=bf16.json", "vLLM never asks for dtype=bf16"),
        ("E=8,N=2,device_name=X,dtype=float16.json", "SGLang never asks for dtype=float16"),
        ("E=8,N=2,device_name=X,dtype=float8.json", "dtype=float8"),
        ("E=8,N=2,device_name=NVIDIA H200.json", "both stacks replace blanks"),
        ("N=8,K=2,device_name=X,dtype=fp8_w8a8.json", "block_shape"),
    ],
)
def test_unreachable(text: str, reason: str) -> None:
    assert any(reason in found for found in unreachable_reasons(parse_table_name(text)))


@pytest.mark.parametrize(
    "text",
    [
        "vllm/E=8,N=2,device_name=NVIDIA_H200.json",
        "vllm/E=8,N=2,device_name=NVIDIA_H20-3e,dtype=fp8_w8a16.json",
        "vllm/E=8,N=2,device_name=X,block_shape=[128,128].json",
        "vllm/N=8,K=2,device_name=NVIDIA_H200_NVL,dtype=fp8_w8a8,block_shape=[128,128].json",
        "sglang/E=8,N=2,device_name=NVIDIA_H200_NVL,dtype=int8_w8a8_down.json",
        "E=8,N=2,device_name=X.json",
        "E=8,N=2,device_name=X,dtype=int8_w8a8.json",  # SGLang asks for it
        "E=8,N=2,device_name=NVIDIA_H200_NVL.json",  # and for this one
    ],
)
def test_reachable(text: str) -> None:
    assert unreachable_reasons(parse_table_name(text)) == ()


def test_what_neither_stack_asks_for_is_said_once() -> None:
    assert len(unreachable_reasons(parse_table_name("E=8,N=2,device_name=X,dtype=bf16.json"))) == 1
    assert len(unreachable_reasons(parse_table_name("E=8,N=2,device_name=My GPU,dtype=int8_w8a8.json"))) == 1


def test_types_and_twins() -> None:
    assert [operand_dtype(d) for d in (None, "fp8_w8a8", "int8_w8a8", "int4_w4a16", "float32")] == [
        "bf16",
        "fp8",
        "int8",
        "bf16",
        "fp32",
    ]
    assert operand_dtype("fp8") == operand_dtype("float8") == "fp8"
    for unknown in ("mxfp4", "nvfp4", "fp8_w4a8"):
        with pytest.raises(InputError, match=f"dtype={unknown}.*unknown.*--dtype"):
            operand_dtype(unknown)
    assert parse_table_name("E=8,N=2,device_name=X,dtype=int4_w4a16.json").weight_dtype == "int4"
    assert parse_table_name("E=8,N=2,device_name=X,block_shape=[128,128].json").operand_dtype == "int8"
    # Triton's tl.dot makes tf32 of float32 where nothing else is said, but not on AMD GPUs.
    for device, operands in (("NVIDIA_H200", "tf32"), ("AMD_Instinct_MI300X", "fp32")):
        name = parse_table_name(f"E=8,N=2,device_name={device},dtype=float32.json")
        assert name.operand_dtype == operands and name.file_name().endswith("dtype=float32.json")
    assert device_twins("AMD_Instinct_MI325_OAM") == ("AMD_Instinct_MI325X",)
    assert device_twins("NVIDIA_H200") == ()
