"""Measured operators in the publishers' layouts."""

from pathlib import Path

import numpy as np
import pytest

from advisor.rows import aiter, silicon
from advisor.rows.rows import parse_rows
from advisor.system.errors import InputError

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402


def write(folder: Path, columns: dict[str, list]) -> None:
    folder.mkdir(parents=True)
    parquet.write_table(pyarrow.table(columns), folder / "gemm_perf.parquet")


def gemm(latency: list[float]) -> dict[str, list]:
    count = len(latency)
    return {"kernel_source": ["vllm_default"] * count, "gemm_dtype": ["bfloat16"] * count, "m": [16] * count, "n": [33] * count,
            "k": [70] * count, "latency": latency}  # fmt: skip


def test_latency_is_microseconds_and_rows_without_one_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "h100_sxm" / "gemm" / "vllm" / "0.24.0", gemm([0.0125, float("nan"), 0.0]))
    assert silicon.is_layout(tmp_path)
    (file,) = silicon.read(tmp_path, "gemm", "gemm_perf")
    assert (file.gpu, file.stack, file.version) == ("H100", "vllm", "0.24.0")
    assert file.latency_us.tolist() == [12.5]
    assert file.columns["n"].tolist() == [33]
    assert not list(silicon.read(tmp_path, "gemm", "gemm_perf", ["H200"]))


def test_a_folder_of_no_gpu_and_a_file_that_is_no_parquet_are_named(tmp_path: Path) -> None:
    write(tmp_path / "h9000" / "gemm" / "vllm" / "0.24.0", gemm([1.0]))
    with pytest.raises(InputError, match="unknown GPU"):
        list(silicon.read(tmp_path, "gemm", "gemm_perf"))
    damaged = tmp_path / "a" / "l40s" / "gemm" / "vllm" / "0.24.0"
    damaged.mkdir(parents=True)
    (damaged / "gemm_perf.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="cannot be read as parquet"):
        list(silicon.read(tmp_path / "a", "gemm", "gemm_perf"))


def test_tuned_tables_of_amd(tmp_path: Path) -> None:
    head = "gfx,cu_num,M,N,K,libtype,us\n"
    rows = "gfx942,304,8,512,1024,ck,4.5\ngfx942,304,8,512,2048,triton,inf\ngfx1201,96,8,512,1024,ck,9\n"
    (tmp_path / "a8w8_blockscale_tuned_gemm_x.csv").write_text(head + rows)
    (table,) = aiter.read(tmp_path)
    assert (table.gpu, table.dtype, table.block_shape) == ("MI300X", "fp8", (128, 128))
    assert (table.m.tolist(), table.latency_us.tolist(), table.triton.tolist()) == ([8], [4.5], [False])


def test_tuned_experts_of_amd(tmp_path: Path) -> None:
    """By the units where no column names the target; other GPUs, formats and rows without a latency are left out."""
    head = "cu_num,token,model_dim,inter_dim,expert,topk,q_dtype_a,q_dtype_w,q_type,us\n"
    block, own = "torch.float8_e4m3fn,torch.float8_e4m3fn,QuantType.per_1x128", "torch.int8,torch.int8,QuantType.per_Token"
    rows = [f"256,24,3072,768,96,6,{block},51.5", f"256,24,3072,768,96,6,{own},40", f"80,24,3072,768,96,6,{block},90"]
    (tmp_path / "x_tuned_fmoe.csv").write_text(head + "\n".join([*rows, f"256,48,3072,768,96,6,{block},inf\n"]))
    assert aiter.holds_experts(tmp_path) and not aiter.is_layout(tmp_path)
    assert aiter.read_experts(tmp_path) == [("fp8_block", (24, 3072, 768, 6, 96), 51.5)]


def test_rows_with_the_publishers_columns_are_read_as_ours() -> None:
    text = (
        "gpu,framework,version,kernel_source,gemm_dtype,m,n,k,latency\n"
        "h100_sxm,VLLM,0.24.0,CutlassFP8ScaledMMLinearKernel,fp8,7,96,130,0.005\n"
        "h100_sxm,SGLang,0.5.14,sglang_deepgemm_gemm_nt_f8f8bf16,fp8_block,7,96,130,0.006\n"
        "h100_sxm,VLLM,0.24.0,CutlassFP8ScaledMMLinearKernel,fp8,7,96,130,0.0\n"
    )
    rows = parse_rows(text, "rows.csv")
    assert rows.header == tuple(text.splitlines()[0].split(","))  # what is written back is what was read
    assert rows.columns["K"].tolist() == [130, 130, 130]
    assert rows.text["block_shape"] == ["", "128 128", ""]
    assert list(rows.text["stack"]) == ["vllm", "sglang", "vllm"]
    assert rows.columns["latency_us"].tolist() == pytest.approx([5, 6, np.nan], nan_ok=True)  # 0 ms: not measured
    assert set(rows.dtype) == {"fp8"}


def test_attention_of_the_publisher_is_prefill_or_decode() -> None:
    text = (
        "gpu,op_name,kernel_source,batch_size,isl,num_heads,num_key_value_heads,head_dim,attn_dtype,kv_cache_dtype,step,window_size\n"
        "b300_sxm,context_attention,trtllm_mha,3,130,32,8,128,bfloat16,fp8,0,nan\n"
        "b300_sxm,generation_attention,trtllm_mha,3,1,32,0,128,bfloat16,bfloat16,511,128\n"
    )
    rows = parse_rows(text, "rows.csv")
    assert rows.op.tolist() == ["prefill", "decode"]
    assert (rows.columns["M"].tolist(), rows.columns["N"].tolist()) == ([130, 1], [130, 512])
    assert rows.columns["H_kv"].tolist() == [8, 32]
    assert (rows.columns["window"].tolist(), rows.columns["causal"].tolist()) == ([0, 128], [1, 1])
    assert list(rows.text["weight_dtype"]) == ["fp8", "bfloat16"]


def test_lower_case_sizes_of_other_files_are_still_told() -> None:
    with pytest.raises(InputError, match="rename it"):
        parse_rows("gpu,m,N,K\nH100,1,2,3\n", "rows.csv")


def test_duplicate_rows_are_kept_by_the_reader(tmp_path: Path) -> None:
    write(tmp_path / "gb200" / "gemm" / "sglang" / "0.5.14", gemm([0.01, 0.03]))
    (file,) = silicon.read(tmp_path, "gemm", "gemm_perf")
    assert np.allclose(file.latency_us, [10, 30])
