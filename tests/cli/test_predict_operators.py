"""`advisor predict` of operators under the publisher's own columns: linear and sparse attention, encoders, MLA's products."""

import csv
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.learned.library.moe_kernels import LibraryLayers

HEADS = "num_k_heads,head_k_dim,num_v_heads,head_v_dim"
RULES = f"""framework,version,device,op_name,kernel_source,phase,batch_size,seq_len,num_tokens,d_model,d_conv,{HEADS},latency
vLLM,0.24.0,NVIDIA H200,gdn,chunk_gated_delta_rule_flashinfer,context,2,3000,6000,5120,4,16,128,48,128,0.1
vLLM,0.24.0,NVIDIA H200,gdn,causal_conv1d_fn,context,2,3000,6000,5120,4,16,128,48,128,
SGLang,0.5.16,NVIDIA B200,kda,chunk_kda,context,2,3000,6000,7168,4,48,128,48,128,
vLLM,0.24.0,NVIDIA GB300,gdn,fused_recurrent_gated_delta_rule_packed_decode,generation,24,1,24,5120,4,16,128,48,128,
"""
TYPES = "mla_dtype,kv_cache_dtype,gemm_type"
MODULES = f"""gpu,framework,version,op_name,kernel_source,model,architecture,{TYPES},num_heads,batch_size,isl,tp_size,step
h200_sxm,VLLM,0.24.0,dsa_generation_module,FLASHMLA_SPARSE,deepseek-ai/DeepSeek-V3.2,DeepseekV32ForCausalLM,bfloat16,bfloat16,fp8_block,16,24,1,1,3000
b200_sxm,SGLang,0.5.14,dsa_context_module,,zai-org/GLM-5,GlmMoeDsaForCausalLM,bfloat16,bfloat16,bfloat16,64,1,3000,1,0
b200_sxm,VLLM,0.24.0,msa_context_module,,MiniMaxAI/MiniMax-M3,MiniMaxM3ForCausalLM,bfloat16,bfloat16,bfloat16,64,1,3000,1,500
"""


def predicted(text: str, folder: Path) -> list[dict[str, str]]:
    (folder / "rows.csv").write_text(text)
    assert main(["predict", str(folder / "rows.csv"), "-o", str(folder / "out.csv")]) == 0
    with (folder / "out.csv").open() as stream:
        return list(csv.DictReader(stream))


def checked(rows: list[dict[str, str]]) -> list[float]:
    for row in rows:
        bound, low, us, high = (float(row[name]) for name in ("bound_us", "predicted_low_us", "predicted_us", "predicted_high_us"))
        assert bound <= low <= us < high < 3 * us and float(row["ceiling_us"]) == us
        assert row["p_speedup_10pct"] == "" and row["binding_pipeline"] in ("tensor", "dram", "l2")
    return [float(row["predicted_us"]) for row in rows]


def test_kernels_of_linear_attention_are_predicted_with_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chunk, convolution, kimi, decode = checked(predicted(RULES, tmp_path))
    assert chunk > convolution > decode and kimi > chunk  # a decode is of 24 tokens, the others of 6,000
    assert "measured on GB300" in capsys.readouterr().err


def test_modules_of_sparse_attention_are_predicted_with_intervals(tmp_path: Path) -> None:
    decode, prefill, blocks = checked(predicted(MODULES, tmp_path))
    assert 100 < decode < 500 < prefill and blocks > 100


def test_a_kernel_without_measurements_has_the_interval_of_all_its_like(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """TRT-LLM's MSA prefill was compiled while it was timed: no row of it was learned."""
    head, *_, blocks = MODULES.splitlines()
    (known,) = checked(predicted(f"{head}\n{blocks}\n", tmp_path))
    assert "without a measurement" not in capsys.readouterr().err
    unknown, sglang = predicted(
        f"{head}\n{blocks.replace('module,,', 'module,msa_fmha_sm100,')}\n"
        f"{blocks.replace('VLLM,0.24.0', 'SGLang,0.5.16').replace('module,,', 'module,sglang_minimax_prefill_triton_sparse,')}\n",
        tmp_path,
    )
    low, us, high = (float(unknown[name]) for name in ("predicted_low_us", "predicted_us", "predicted_high_us"))
    assert us == pytest.approx(known) and low < us and high >= float(sglang["predicted_high_us"]) > 2 * us
    assert "1 launch of kernels without a measurement" in capsys.readouterr().err


def test_products_of_mla_and_encoders_and_hyper_connections_are_read_by_their_columns(tmp_path: Path) -> None:
    head = "gpu,framework,version,op_name,kernel_source,"
    one, other = "h100_sxm,SGLang,0.5.14,mla_gen_pre,,fp8,500,16", "h100_sxm,VLLM,,mla_gen_post,,bfloat16,500,128"
    products = f"{head}bmm_dtype,num_tokens,num_heads\n{one}\n{other}\n"
    few, many = checked(predicted(products, tmp_path))
    assert many > few
    seen = f"{head}attn_dtype,batch_size,isl,num_heads,head_dim\nh100_sxm,VLLM,0.24.0,encoder_attention,,bfloat16,3,3000,16,80\n"
    checked(predicted(seen, tmp_path))
    checked(predicted(f"{head}num_tokens,hidden_size,hc_mult\nb200_sxm,VLLM,0.24.0,pre,,3000,7168,4\n", tmp_path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RULES.replace("causal_conv1d_fn", ""), "kernel_source"),
        (RULES.replace("causal_conv1d_fn", "another_step"), "another_step"),
        (RULES.replace("NVIDIA H200", "NVIDIA A40"), "of the kinds measured"),
        (RULES.replace(",3000,", ",long,"), "seq_len"),
        (MODULES.replace("GlmMoeDsaForCausalLM", "Mine"), "architecture"),
        ("gpu,op_name,kernel_source,bmm_dtype,num_tokens\nH100,mla_gen_pre,,fp8,500\n", "num_heads"),
        ("gpu,op_name,kernel_source,batch_size,seq_len\nH100,gdn,causal_conv1d_fn,1,1\n", "no heads"),
    ],
)
def test_what_rows_of_operators_lack_is_said(text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text(text)
    assert main(["predict", str(tmp_path / "rows.csv"), "-o", str(tmp_path / "out.csv")]) == 2
    assert said in capsys.readouterr().err


def test_a_library_format_below_its_baseline_is_not_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.csv").write_text("gpu,op,M,E,topk,H,N,dtype\nB200,layer,64,128,4,2880,2880,w4a8_mxfp4_mxfp8\n")
    asked = ["predict", str(tmp_path / "rows.csv"), "-o", str(tmp_path / "out.csv")]
    assert main(asked) == 0
    monkeypatch.setattr(LibraryLayers, "beats_baseline", lambda *what: False)
    assert main(asked) == 2
    said = capsys.readouterr().err
    assert "w4a8_mxfp4_mxfp8" in said and "too poorly" in said


def test_layers_of_aiter_are_predicted_where_amd_tuned_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = "gpu,op,implementation,stack,M,E,topk,H,N,dtype\n"
    named, plain, more = predicted(
        head + "MI355X,layer,aiter,,24,192,6,5120,384,fp8_block\n"
        "MI355X,layer,,aiter,24,192,6,5120,384,w4a4_mxfp4\nMI355X,layer,,,2400,192,6,5120,384,w4a4_mxfp4\n",
        tmp_path,
    )
    us = checked([named, plain, more])
    assert us[1] < us[0] and us[1] < us[2]  # half as many bytes, a hundred times the tokens
    (tmp_path / "rows.csv").write_text(head + "MI300X,layer,aiter,,24,192,6,5120,384,fp8_block\n")
    assert main(["predict", str(tmp_path / "rows.csv"), "-o", str(tmp_path / "out.csv")]) == 2
    assert "GPUs of the kinds measured: MI355X" in capsys.readouterr().err
