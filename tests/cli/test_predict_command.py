"""`advisor predict` of library kernels: our columns and the publisher's, any name of a GPU, what is said of GPUs never measured."""

import csv
from pathlib import Path

import pytest

from advisor.cli import main

OURS = """gpu,family,op,M,N,K,dtype,block_shape,B,H,H_kv,D,causal,window,stack,stack_version,implementation,cache
H100,gemm,,130,4096,7168,bf16,,,,,,,,vllm,0.24.0,torch.nn.functional.linear,cold
gb200,gemm,,130,4096,7168,fp8,128 128,,,,,,,sglang,0.5.14,,cold
rtx_pro_6000_server,attention,prefill,999,999,,bf16,,3,32,8,128,1,,vllm,0.24.0,vllm_flash_attn_fa2,
NVIDIA L40,attention,decode,1,4097,,bf16,,7,32,8,128,1,,,,,
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
    assert "outside of what was learned: 1;" in capsys.readouterr().err  # the L40 was never measured


def test_warps_that_are_no_power_of_two_cannot_launch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sweeps record such launches as failures; other rows of the file are predicted."""
    head = "gpu,M,N,K,dtype,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,num_warps,num_stages"
    fails, runs = predicted(f"{head}\nA100,512,512,512,fp16,64,64,32,3,3\nA100,512,512,512,fp16,64,64,32,4,0\n", tmp_path)
    assert (fails["predicted_us"], fails["num_warps"], runs["num_stages"]) == ("", "3", "0")
    assert float(runs["config_bound_us"]) < float(runs["predicted_us"]) and float(fails["bound_us"]) > 0
    assert "row 1 cannot launch on A100: num_warps=3" in capsys.readouterr().err


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


LAYERS = """gpu,framework,version,kernel_source,moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,distribution
b200_sxm,VLLM,0.24.0,vllm_compressedtensorsw4a4nvfp4moe_flashinfer_trtllm_trtllmnvfp4expertsmonolithic,nvfp4,64,4096,1536,8,128,1,power_law_1.2
b200_sxm,VLLM,0.24.0,vllm_unquantizedfusedmoe_flashinfer_trtllm_trtllmbf16experts,bfloat16,64,4096,1536,8,128,1,power_law_1.2
b200_sxm,VLLM,0.24.0,vllm_unquantizedfusedmoe_triton_tritonexperts,bfloat16,64,4096,1536,8,128,1,power_law_1.2
h100_sxm,TRTLLM,1.3.0rc20,moe_torch_flow_cutlass,fp8,64,4096,1536,8,128,1,balanced
l40s,SGLang,0.5.14,sglang_marlin_moe,int4_wo,64,4096,1536,8,128,1,balanced
gb300,SGLang,0.5.14,sglang_flashinfer_trtllm_moe,fp8_block,64,4096,1536,8,128,1,balanced
"""
"""Layers of Qwen3-235B, which was not measured: as the publisher's columns name them."""


def test_layers_of_library_kernels_are_predicted_with_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = predicted(LAYERS, tmp_path)
    for row in rows:
        low, us, high = (float(row[name]) for name in ("predicted_low_us", "predicted_us", "predicted_high_us"))
        assert float(row["bound_us"]) <= low <= us < high < 3 * us and row["binding_pipeline"] == "dram"
    fp4, library, triton, *_ = rows
    # weights of four ninths of a byte for every two: 120 of 128 experts of 18.9 million, of which DRAM needs 0.15 and 0.55 ms
    assert 3 < float(library["bound_us"]) / float(fp4["bound_us"]) < 4
    assert float(fp4["predicted_us"]) < 0.5 * float(library["predicted_us"])
    assert triton["p_speedup_10pct"] and not library["p_speedup_10pct"]  # a library chooses its own configuration
    assert float(library["ceiling_us"]) == float(library["predicted_us"])
    assert "measured on GB300" in capsys.readouterr().err


def test_layers_of_library_kernels_are_named_in_our_columns_too(tmp_path: Path) -> None:
    head = "gpu,op,M,E,topk,H,N,dtype,stack,stack_version,implementation,routing,gated,cache\n"
    line = "H100,layer,512,64,6,2048,1408,{},vllm,,{},random,{},{}\n"
    cells = [
        ("int4", "marlin", "", ""),
        ("awq", "", "", ""),
        ("bf16", "", "", ""),
        ("int4", "marlin", "0", "cold"),
        ("int4", "marlin", "", "cold"),
    ]
    named, spelled, triton, ungated, cold = predicted(head + "".join(line.format(*each) for each in cells), tmp_path)
    assert named["predicted_us"] == spelled["predicted_us"] and triton["p_speedup_10pct"] and not named["p_speedup_10pct"]
    assert float(ungated["bound_us"]) == pytest.approx(2 / 3 * float(cold["bound_us"]), rel=0.01)
    assert float(cold["predicted_us"]) >= float(named["predicted_us"])


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("dtype", "int7", "dtype"),
        ("stack", "aphrodite", "one of sglang, vllm, trtllm"),
        ("ep", "4", "one rank"),
        ("gpu", "MI300X", "the kinds measured: MI355X"),
    ],
)
def test_layers_of_library_kernels_that_were_not_measured_are_refused(
    tmp_path: Path, column: str, value: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = {
        "gpu": "H100",
        "op": "layer",
        "M": "8",
        "E": "64",
        "topk": "6",
        "H": "2048",
        "N": "1408",
        "dtype": "int4_wo",
        "stack": "",
        "ep": "1",
    }
    cells |= {"implementation": "marlin", column: value}
    (tmp_path / "rows.csv").write_text(f"{','.join(cells)}\n{','.join(cells.values())}\n")
    assert main(["predict", str(tmp_path / "rows.csv"), "-o", str(tmp_path / "out.csv")]) == 2
    assert said in capsys.readouterr().err
