"""`advisor predict` of library kernels: our columns and the publisher's, any name of a GPU, what is said of GPUs never measured."""

import csv
from pathlib import Path

import pytest

from advisor.cli import main

OURS = """gpu,family,op,M,N,K,dtype,block_shape,B,H,H_kv,D,causal,window,stack,stack_version,implementation,cache
H100,gemm,,130,4096,7168,bf16,,,,,,,,vllm,0.24.0,torch.nn.functional.linear,cold
gb200,gemm,,130,4096,7168,fp8,128 128,,,,,,,sglang,0.5.14,,cold
rtx_pro_6000_server,attention,prefill,999,999,,bf16,,3,32,8,128,1,,vllm,0.24.0,vllm_flash_attn_fa2,
NVIDIA L40S,attention,decode,1,4097,,bf16,,7,32,8,128,1,,,,,
"""
THEIRS = """gpu,framework,version,kernel_source,gemm_dtype,m,n,k
a100_sxm,VLLM,0.14.0,vllm_default,bfloat16,130,4096,7168
b300_sxm,SGLang,0.5.14,sglang_deepgemm_gemm_nt_f8f8bf16,fp8_block,130,4096,7168
"""


def predicted(text: str, folder: Path) -> list[dict[str, str]]:
    (folder / "rows.csv").write_text(text)
    assert main(["predict", str(folder / "rows.csv"), "-o", str(folder / "out.csv")]) == 0
    with (folder / "out.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_rows_of_libraries_are_predicted_with_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = predicted(OURS, tmp_path)
    for row in rows:
        low, us, high = (float(row[name]) for name in ("predicted_low_us", "predicted_us", "predicted_high_us"))
        assert float(row["bound_us"]) <= low < us < high
        assert float(row["ceiling_us"]) == us and row["p_speedup_10pct"] == "" and row["binding_pipeline"]
    assert "outside of what was learned: 1;" in capsys.readouterr().err  # the L40S was never measured


def test_the_publishers_columns_pass_through(tmp_path: Path) -> None:
    rows = predicted(THEIRS, tmp_path)
    assert list(rows[0])[:8] == THEIRS.splitlines()[0].split(",")
    assert float(rows[0]["predicted_us"]) > float(rows[1]["predicted_us"]) > 5


def test_a_window_is_less_work(tmp_path: Path) -> None:
    head, *_, last = OURS.splitlines()
    windowed = last.replace(",1,,,,,", ",1,128,,,,")
    assert windowed != last
    all_keys, some = predicted("\n".join([head, last.replace("4097", "65537"), windowed.replace("4097", "65537")]) + "\n", tmp_path)
    assert float(some["bound_us"]) < float(all_keys["bound_us"]) / 5
    assert float(some["predicted_us"]) < float(all_keys["predicted_us"]) / 2
