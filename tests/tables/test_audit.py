"""The offline audit."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from advisor.gpus.hardware import GpuSpec, load_gpu, match_device_name
from advisor.result.schema import Configuration
from advisor.system.errors import InputError, NothingMatchedError
from advisor.tables.audit import CHECKS, Audit, audit, audit_table, entry_errors, refusal
from advisor.tables.launchability import BACK_END_OPTIONS
from advisor.tables.names import parse_table_name

ENTRY: dict[str, Any] = {
    "BLOCK_SIZE_M": 64,
    "BLOCK_SIZE_N": 128,
    "BLOCK_SIZE_K": 64,
    "GROUP_SIZE_M": 1,
    "num_warps": 4,
    "num_stages": 3,
}
KEYS = [str(4**i) for i in range(7)]  # 1 .. 4096, without holes


GPU = replace(load_gpu("H200"), name="G", device_names=("NVIDIA G",), smem_bytes_per_cta=72 * 1024)


def run(folder: Path, tables: dict[str, Any], gpu: GpuSpec | None = None) -> Audit:
    for name, body in tables.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body if isinstance(body, str) else json.dumps(body))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("advisor.tables.audit.match_device_name", lambda _: gpu)
        return audit([folder])


def table(**changes: Any) -> dict[str, Any]:
    return {key: {**ENTRY, **changes} for key in KEYS}


def test_a_sound_table_has_no_issue(tmp_path: Path) -> None:
    found = run(tmp_path, {"vllm/E=8,N=2,device_name=NVIDIA_H200.json": table()}, GPU)
    assert found.issues == () and found.files == 1 and len(found.tables) == 1


@pytest.mark.parametrize(
    ("name", "body", "check", "severity"),
    [
        ("vllm/E=8,N=2,device_name=X.json", "{", "unreadable", "error"),
        ("vllm/nonsense.json", table(), "unreadable", "error"),
        ("vllm/headdim=64,device_name=X.json", table(), "not-ours", "info"),
        ("vllm/E=8,N=2,device_name=X.json", {**table(), "0": ENTRY}, "bad-entry", "error"),
        ("vllm/E=8,N=2,device_name=X.json", {**table(), "2": {**ENTRY, "BLOCK_SIZE_M": 3}}, "bad-entry", "error"),
        ("vllm/E=8,N=2,device_name=X.json", {**table(), "occurs twice": ENTRY}, "bad-entry", "error"),
        ("vllm/E=8,N=2,device_name=X,dtype=bf16.json", table(), "unreachable-name", "warning"),
        ("E=8,N=2,device_name=X,dtype=bf16.json", table(), "unreachable-name", "warning"),
        ("vllm/E=8,N=2,device_name=AMD_Instinct_MI325_OAM.json", table(num_stages=1), "device-alias", "info"),
        ("vllm/E=8,N=2,device_name=X.json", '{"1": 1, "1": 2}', "duplicate-key", "error"),
        ("vllm/E=8,N=2,device_name=X.json", {**table(), "+8": ENTRY}, "bad-entry", "error"),
        ("vllm/E=8,N=2,device_name=X.json", table(num_stages=4), "does-not-fit", "error"),
        (  # 32 rows, which the kernel swaps for the 128 columns: a buffer for each of four stages
            "E=8,N=2,device_name=X,dtype=fp8_w8a8.json",
            table(BLOCK_SIZE_M=32, BLOCK_SIZE_K=128, num_stages=4),
            "does-not-fit",
            "error",
        ),
        ("vllm/E=8,N=2,device_name=X.json", table(num_warps=3), "num-warps", "error"),
        ("vllm/E=8,N=2,device_name=NVIDIA_H200,dtype=fp8_w8a8.json", table(BLOCK_SIZE_K=16), "shallow-dot", "error"),
        ("vllm/E=8,N=2,device_name=NVIDIA_H200,dtype=int8_w8a16.json", table(BLOCK_SIZE_K=8), "shallow-dot", "error"),
        ("vllm/E=8,N=2,device_name=X.json", table(num_warps=64), "num-warps", "error"),
        ("vllm/E=8,N=2,device_name=X.json", table(num_ctas=3), "num-ctas", "error"),
        (
            "vllm/E=8,N=2,device_name=X,dtype=fp8_w8a8,block_shape=[128,128].json",
            table(BLOCK_SIZE_K=256, num_stages=1),
            "clamped-block-k",
            "warning",
        ),
        (
            "vllm/N=8,K=2,device_name=X,dtype=fp8_w8a8,block_shape=[128,128].json",
            table(BLOCK_SIZE_K=256, num_stages=1),
            "wrong-scales",
            "error",
        ),
        ("vllm/E=8,N=2,device_name=X.json", table(SPLIT_K=4), "split-k", "warning"),
        ("sglang/E=8,N=2,device_name=X.json", table(SPLIT_K=4), "split-k", "error"),
        ("vllm/E=8,N=2,device_name=X.json", {"1": ENTRY, "5": ENTRY, "4096": ENTRY}, "hole", "warning"),
        ("vllm/E=8,N=2,device_name=X.json", dict.fromkeys(KEYS[1:], ENTRY), "starts-late", "warning"),
        ("vllm/E=8,N=2,device_name=X.json", dict.fromkeys(KEYS[:-1], ENTRY), "stops-early", "warning"),
        ("E=8,N=2,device_name=X,dtype=mxfp4.json", table(), "unknown-dtype", "warning"),
    ],
)
def test_check(tmp_path: Path, name: str, body: Any, check: str, severity: str) -> None:
    found = run(tmp_path, {name: body}, GPU)
    matching = [issue for issue in found.issues if issue.check == check]
    assert matching and {issue.severity for issue in matching} == {severity}
    assert all(issue.message and "\n" not in issue.message and issue.path.endswith(".json") for issue in found.issues)
    assert found.counts[check] == len(matching)


def test_the_ends_of_the_keys_are_told_once(tmp_path: Path) -> None:
    found = run(tmp_path, {"vllm/E=8,N=2,device_name=X.json": {"256": ENTRY}}, GPU)
    told = {issue.check: (issue.key, issue.message) for issue in found.issues}
    assert told["starts-late"] == ("256", "no key is smaller: decoding with fewer tokens runs with what was tuned for 256")
    assert told["stops-early"] == ("256", "no key is larger: prefill of any size runs with what was tuned for 256 tokens")


def test_a_place_that_is_not_there_is_told_as_it_was_given(tmp_path: Path) -> None:
    missing = str(tmp_path / "nonexist")
    with pytest.raises(InputError) as caught:
        audit([missing])
    assert str(caught.value).count(missing) == 1 and "got" not in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "capability", "refused"),
    [
        ("fp8_w8a8", "8.0", True),
        ("fp8_w8a8", "8.9", False),
        ("fp8_w8a16", "8.0", False),
        ("int8_w8a8", "8.0", False),
        ("fp8_w8a8", "gfx942", False),
    ],
)
def test_fp8_operands_need_a_gpu_that_has_them(tmp_path: Path, dtype: str, capability: str, refused: bool) -> None:
    gpu = replace(GPU, compute_capability=capability, vendor="amd" if capability.startswith("gfx") else "nvidia")
    found = run(tmp_path, {f"E=8,N=2,device_name=X,dtype={dtype}.json": table(num_stages=2)}, gpu)
    messages = [(issue.severity, issue.message) for issue in found.issues if issue.check == "refused-dtype"]
    assert bool(messages) == refused
    if refused:
        assert messages[0][0] == "error" and "fp8 needs compute capability 8.9, and G has 8.0" in messages[0][1]


@pytest.mark.parametrize(
    ("device", "stack", "changes", "words"),
    [
        ("NVIDIA_H200", "vllm", {"waves_per_eu": 2, "kpack": 2}, "waves_per_eu, kpack: no parameter"),
        ("NVIDIA_H200", "sglang", {"num_consumer_groups": 2}, "num_consumer_groups: no parameter"),
        ("AMD_Instinct_MI300X", "vllm", {"maxnreg": 128}, "on AMD GPUs"),
        ("AMD_Instinct_MI300X", "vllm", {"matrix_instr_nonkdim": 48}, "matrix_instr_nonkdim 48: no such matrix instruction"),
        ("AMD_Instinct_MI300X", "vllm", {"matrix_instr_nonkdim": 16, "kpack": 2, "waves_per_eu": 0}, None),
        ("NVIDIA_H200", "sglang", {"USE_TMA": True, "num_ctas": 1}, None),
        ("NVIDIA_H200", "sglang", {"maxnreg": 128}, None),
        ("NVIDIA_H200", "sglang", {"SWAP_AB": True}, "SWAP_AB: no parameter"),
        ("NVIDIA_H200", "vllm", {"USE_TMA": True}, "USE_TMA: no parameter"),
        ("NVIDIA_H200", "vllm", {"SPLIT_K": 1}, None),
        ("MI308X", "vllm", {"maxnreg": 128}, "on AMD GPUs"),
        ("Intel(R)_Arc(TM)_Pro_B60_Graphics", "vllm", {"USE_TMA": True}, "USE_TMA: no parameter of the kernel, so"),
        ("Intel(R)_Arc(TM)_Pro_B60_Graphics", "vllm", {"grf_mode": 256}, None),
    ],
)
def test_options_the_launch_refuses(tmp_path: Path, device: str, stack: str, changes: dict[str, Any], words: str | None) -> None:
    found = run(tmp_path, {f"{stack}/E=8,N=2,device_name={device}.json": table(**changes)})
    issues = [issue for issue in found.issues if issue.check == "unknown-option"]
    assert len(issues) == (len(KEYS) if words else 0)
    assert all(issue.severity == "error" and words and words in issue.message for issue in issues)


@pytest.mark.parametrize(
    ("name", "capability", "changes", "refused"),
    [  # SGLang 0.5.23 has a kernel for these two on compute capability 9.0 alone, and passes them to another where neither asks for it
        ("sglang/N=8,K=2,device_name=X,dtype=fp8_w8a8,block_shape=[32, 32].json", "9.0", {"SWAP_AB": True, "SPLIT_K": 4}, set()),
        ("sglang/N=8,K=2,device_name=X,dtype=fp8_w8a8,block_shape=[32, 32].json", "9.0", {"SPLIT_K": 4}, set()),
        (
            "sglang/N=8,K=2,device_name=X,dtype=fp8_w8a8,block_shape=[32, 32].json",
            "9.0",
            {"SWAP_AB": False, "SPLIT_K": 1},
            {"unknown-option", "split-k"},
        ),
        (
            "sglang/N=8,K=2,device_name=X,dtype=fp8_w8a8,block_shape=[32, 32].json",
            "10.0",
            {"SWAP_AB": True, "SPLIT_K": 4},
            {"unknown-option", "split-k"},
        ),
        ("sglang/N=8,K=2,device_name=X,dtype=int8_w8a8,block_shape=[32, 32].json", "9.0", {"SWAP_AB": True}, {"unknown-option"}),
        ("vllm/N=8,K=2,device_name=X,dtype=fp8_w8a8,block_shape=[32,32].json", "9.0", {"SPLIT_K": 4}, {"split-k"}),
        ("sglang/E=8,N=2,device_name=X.json", "9.0", {"SPLIT_K": 1}, {"split-k"}),
        ("vllm/E=8,N=2,device_name=X.json", "9.0", {"SPLIT_K": 1}, set()),
        ("vllm/E=8,N=2,device_name=X,dtype=int4_w4a16.json", "9.0", {}, {"split-k"}),
        ("vllm/E=8,N=2,device_name=X,dtype=int4_w4a16.json", "9.0", {"SPLIT_K": 1}, set()),
        ("vllm/E=8,N=2,device_name=NVIDIA_X,dtype=int4_w4a16.json", "9.0", {}, set()),
    ],
)
def test_each_launcher_takes_keys_of_its_own(
    tmp_path: Path, name: str, capability: str, changes: dict[str, Any], refused: set[str]
) -> None:
    found = run(tmp_path, {name: table(BLOCK_SIZE_K=32, **changes)}, replace(GPU, compute_capability=capability))
    assert {issue.check for issue in found.issues if issue.severity == "error"} == refused


@pytest.mark.parametrize(
    ("name", "sound"),
    [
        ("vllm/E=8,N=2,device_name=X.json", True),
        ("E=8,N=2,device_name=X.json", True),
        ("sglang/E=8,N=2,device_name=X.json", False),
        ("N=8,K=2,device_name=X,dtype=fp8_w8a8,block_shape=[128,128].json", False),
    ],
)
def test_a_version_among_the_token_counts_breaks_all_loaders_but_one(tmp_path: Path, name: str, sound: bool) -> None:
    found = run(tmp_path, {name: {"triton_version": "3.6.0", **table()}}, GPU)
    issues = [(issue.key, issue.check, issue.severity) for issue in found.issues if issue.severity == "error"]
    assert issues == ([] if sound else [("triton_version", "bad-entry", "error")])
    assert len(found.tables[0].entries) == len(KEYS)


@pytest.mark.parametrize(
    ("name", "raised"),
    [
        ("sglang/N=8,K=2,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128, 128].json", True),
        ("sglang/N=8,K=2,device_name=AMD_Instinct_MI300X,dtype=int8_w8a8,block_shape=[128, 128].json", False),
        ("sglang/N=8,K=2,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json", False),
        ("vllm/N=8,K=2,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,128].json", False),
    ],
)
def test_a_depth_that_the_loader_raises(tmp_path: Path, name: str, raised: bool) -> None:
    found = run(tmp_path, {name: table()}, GPU)
    issues = [issue for issue in found.issues if issue.check in ("raised-block-k", "clamped-block-k")]
    assert len(issues) == (len(KEYS) if raised else 0)
    assert all("raises it to 128" in issue.message and issue.severity == "warning" for issue in issues)


@pytest.mark.parametrize(
    ("name", "body", "check"),
    [
        ("moe_sum_reduce_NVIDIA-H200_t8_h2048_bfloat16.json", {"1": {"BLOCK_M": 1}}, "not-ours"),
        ("lora_shrink,K=4096,R=16,S=64,device=NVIDIA_H200.json", {"16": {"BLOCK_N": 32}}, "not-ours"),
        ("N=8,K=2,device_name=X,dtype=fp8_w8a8_per_token,input_dtype=float8_e4m3fn,out_dtype=bfloat16.json", {"1": ENTRY}, "not-ours"),
        ("N=8,K=2,device_name=X,dtype=fp8_w8a8,blockshape=[128,128].json", {"1": ENTRY}, "unreadable"),
        ("copy of H200.json", {"1": ENTRY}, "unreadable"),
        ("something.json", "{", "unreadable"),
        ("E=8.json", {"1": {"BLOCK_M": 1}}, "unreadable"),
    ],
)
def test_tables_of_other_kernels_are_no_faults(tmp_path: Path, name: str, body: Any, check: str) -> None:
    (only,) = run(tmp_path, {name: body}).issues
    assert only.check == check and only.severity == ("info" if check == "not-ours" else "error")


def test_options_are_those_of_triton() -> None:
    compiler = pytest.importorskip("triton.backends.nvidia.compiler")
    amd = pytest.importorskip("triton.backends.amd.compiler")
    for vendor, options in (("nvidia", compiler.CUDAOptions), ("amd", amd.HIPOptions)):
        assert BACK_END_OPTIONS[vendor] <= {field.name for field in fields(options)}


def test_copies(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        {
            "vllm/E=8,N=2,device_name=X.json": table(),
            "sglang/triton_3_1_0/E=8,N=2,device_name=X.json": table(),
        },
    )
    assert "copied" not in found.counts
    found = run(tmp_path, {"vllm/E=8,N=4,device_name=Y.json": table()})
    assert found.counts["copied"] == 1


def test_a_twin_beside_it_is_no_issue(tmp_path: Path) -> None:
    names = [f"vllm/E=8,N=2,device_name=AMD_Instinct_{device}.json" for device in ("MI325X", "MI325_OAM")]
    assert "device-alias" not in run(tmp_path, {names[0]: table(), names[1]: table(num_warps=8)}).counts


def test_unknown_gpus_are_checked_for_everything_else(tmp_path: Path) -> None:
    (only,) = run(tmp_path, {"vllm/E=8,N=2,device_name=X.json": table(num_stages=9)}).issues
    assert (only.check, only.severity) == ("unknown-gpu", "info") and "X is not described in ceilings/" in only.message


def test_places(tmp_path: Path) -> None:
    with pytest.raises(NothingMatchedError):
        audit([tmp_path])
    with pytest.raises(InputError, match="no such"):
        audit([tmp_path / "missing"])
    path = tmp_path / "README.md"
    path.write_text("text")
    assert audit_table(path)[1][0].check == "unreadable"


@pytest.mark.parametrize(
    ("body", "key", "said"),
    [
        ("{", None, "not valid JSON"),
        (json.dumps({"1": {**ENTRY, "BLOCK_SIZE_M": 48}, "4096": ENTRY}), "1", "entry 1: BLOCK_SIZE_M; got 48"),
        (json.dumps({"x": ENTRY, "4096": ENTRY}), "x", "key 'x' is not a token count"),
    ],
)
def test_a_message_does_not_repeat_the_file_of_its_issue(tmp_path, body, key, said):
    path = tmp_path / "E=8,N=64,device_name=NVIDIA_H200.json"
    path.write_text(body)
    issue = audit_table(path)[1][0]
    assert issue.key == key and issue.message.startswith(said)


def test_the_whole_corpus(corpus_dir: Path) -> None:
    found = audit([corpus_dir])
    assert found.files == 738 or found.files > 700
    assert len(found.tables) + found.counts["not-ours"] + found.counts.get("unreadable", 0) == found.files
    assert found.counts["clamped-block-k"] > 200
    assert found.counts["unreachable-name"] >= 4
    assert "unknown-option" not in found.counts  # nothing that is served is called impossible
    assert set(found.counts) <= set(CHECKS)


@pytest.mark.parametrize(
    ("name", "depth"),
    [
        ("E=8,N=2,device_name=NVIDIA_H200,dtype=fp8_w8a8.json", 32),
        ("E=8,N=2,device_name=NVIDIA_H200.json", 16),
        ("E=8,N=2,device_name=NVIDIA_H200,dtype=int8_w8a16.json", 16),  # multiplied as bf16
        ("E=8,N=2,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8.json", 16),
    ],
)
def test_the_least_depth_that_compiles(tmp_path: Path, name: str, depth: int) -> None:
    found = run(tmp_path, {f"vllm/{name}": table(BLOCK_SIZE_K=depth, num_stages=2)}, GPU)
    assert not any(issue.check == "shallow-dot" for issue in found.issues)


@pytest.mark.parametrize(
    ("device", "ctas", "said"),
    [
        ("NVIDIA_L40S", 1, ""),
        ("NVIDIA_L40S", 2, "no clusters of CTAs (8.9"),
        ("AMD_Instinct_MI300X", 2, "no clusters of CTAs (gfx942"),
        ("NVIDIA_H200", 2, ""),
        ("NVIDIA_H200", 16, ""),
        ("NVIDIA_H200", 3, "no power of two"),
        ("NVIDIA_H200", 32, "at most 16 CTAs"),
    ],
)
def test_clusters_that_no_launch_has(device: str, ctas: int, said: str) -> None:
    blocks = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
    configuration = Configuration(parameters=dict(blocks), num_stages=2, num_ctas=ctas)
    name = parse_table_name(f"E=8,N=512,device_name={device}.json")
    issues = entry_errors(configuration, name, match_device_name(device))
    assert [issue.check for issue in issues] == (["num-ctas"] if said else []) and all(said in issue.message for issue in issues)
    assert (said in refusal(configuration, name, match_device_name(device))) if said else not issues
