"""Traces: kernels by kind, gaps as what no kernel covers, and what contradicts a bound."""

from __future__ import annotations

import gzip
import json

import pytest

from advisor.cli import main
from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.steps.model_config import load_architecture
from advisor.steps.step import StepRequest, predict_step
from advisor.steps.trace import is_trace, kind_of, problem_of, read_trace, with_measured
from advisor.steps.workload import Load
from advisor.system.errors import InputError


def span(name: str, ts: float, dur: float, cat: str = "kernel", tid: int = 7) -> dict:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 0, "tid": tid}


def written(path, events):
    text = json.dumps({"traceEvents": events})
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


EVENTS = [
    span("ProfilerStep#1", 0, 50, "user_annotation"),
    span("ProfilerStep#2", 50, 50, "user_annotation"),
    span("sm90_xmma_gemm_bf16", 10, 20),
    span("flash_fwd_splitkv_kernel", 25, 15),  # ten of them beside the product
    span("sm90_xmma_gemm_bf16", 60, 20),
    span("mystery<int>", 90, 10),
]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_gaps_are_what_no_kernel_covers(tmp_path, name):
    found = read_trace(written(tmp_path / name, EVENTS))
    assert (found.steps, found.wall_us, found.busy_us) == (2, 45, 30)
    assert found.kinds == {"gemm": 20, "attention": 7.5, "unknown": 5}
    assert found.unknown == (("mystery<int>", 5),) and not found.on_cpu


def test_on_the_cpu_the_innermost_operators_count(tmp_path):
    events = [span("aten::linear", 0, 30, "cpu_op"), span("aten::addmm", 5, 20, "cpu_op"), span("aten::add", 40, 5, "cpu_op")]
    events.append(span("aten::copy_", 6, 3, "cpu_op"))  # of the bias
    events.append(span("aten::view", 26, 1, "cpu_op"))
    found = read_trace(written(tmp_path / "t.json", events))
    assert found.on_cpu and found.kinds == {"gemm": 20, "elementwise": 5, "unknown": 1}
    assert [call.op for call in found.calls] == ["aten::addmm", "aten::add", "aten::view"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_tst_128x64_64x8_2x1_v_bz_TNT", "gemm"),
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90>", "attention"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "collective"),
        ("fused_moe_kernel", "moe"),
        ("vllm::fused_add_rms_norm_kernel", "norm"),
        ("vllm::act_and_mul_kernel", "elementwise"),
        ("triton_poi_fused_add_0", "elementwise"),
    ],
)
def test_kinds_by_name(name, kind):
    assert kind_of(name) == kind


def test_a_kind_below_its_bound_is_a_fault(tmp_path):
    asked = StepRequest(model=load_architecture("Qwen3-8B"), load=Load(contexts=(1000,) * 8))
    result = predict_step(asked, load_gpu("H100"), load_predictor())
    found = with_measured(result, read_trace(written(tmp_path / "t.json", EVENTS)))
    assert found.measured_us == 45
    assert any(line.startswith("gemm: measured 20 µs is below the bound") for line in found.caveats)
    assert any("mystery<int>" in line for line in found.caveats)


def launched(op: str, ts: float, dims: list, kernel: str, dur: float, kind: str = "float", values: tuple = ()) -> list[dict]:
    """An operator, the call within it that launches a kernel, and the kernel, later on the GPU."""
    said = {"Input Dims": dims, "Input type": [kind] * len(dims), "Concrete Inputs": list(values), "External id": int(ts)}
    return [
        span(f"aten::{op}", ts, 9, "cpu_op", tid=1) | {"args": said},
        span("cudaLaunchKernel", ts + 2, 1, "cuda_runtime", tid=1) | {"args": {"correlation": int(ts)}},
        span(kernel, 1000 + ts, dur) | {"args": {"correlation": int(ts)}},
    ]


def test_a_kernel_is_the_problem_of_the_operator_that_launched_it(tmp_path):
    events = [
        span("aten::linear", 5, 30, "cpu_op", tid=1) | {"args": {"Input Dims": [[7, 512], [96, 512]], "Input type": ["float", "float"]}}
    ]
    events += launched("addmm", 10, [[96], [7, 512], [512, 96]], "cutlass_80_tensorop_s1688gemm_64x64", 5)
    events += launched("addmm", 20, [[96], [7, 512], [512, 96]], "cutlass_80_tensorop_s1688gemm_64x64", 7)
    qkv = [[2, 8, 64, 128], [2, 4, 64, 128], [2, 4, 64, 128]]
    events += launched("_scaled_dot_product_flash_attention", 40, qkv, "flash_fwd", 3, "c10::BFloat16", ("", "", "", "0.", "True"))
    events += launched("mul_", 60, [[3, 100], []], "vectorized_elementwise_kernel", 3)
    events += launched("copy_", 80, [[3, 100], [3, 100]], "Memcpy HtoD (Pinned -> Device)", 90)
    events += launched("mystery", 100, [[3, 100]], "mystery_kernel", 2)
    trace = read_trace(written(tmp_path / "t.json.gz", events))
    assert is_trace(tmp_path / "t.json.gz") and sum(call.us for call in trace.calls) == 110
    found = {call.op: problem_of(call) for call in trace.calls}
    product, scores = found["aten::addmm"], found["aten::_scaled_dot_product_flash_attention"]
    assert (product.sizes, product.dtype, product.count) == ({"M": 7, "N": 96, "K": 512}, "tf32", 2)
    assert scores.op == "prefill" and scores.sizes == {"B": 2, "H": 8, "H_kv": 4, "D": 128, "M": 64, "N": 64, "causal": 1}
    assert (found["aten::mul_"].op, found["aten::mul_"].sizes) == ("mulu", {"B": 3, "H": 100})
    assert found["aten::copy_"] is None and found["aten::mystery"] is None


def test_advice_on_a_trace(tmp_path, capsys):
    events = launched("mm", 10, [[4096, 4096], [4096, 4096]], "ampere_bf16_s16816gemm_bf16", 900, "c10::BFloat16")
    events += launched("mm", 20, [[8192, 8192], [8192, 8192]], "ampere_bf16_s16816gemm_bf16", 10, "c10::BFloat16")
    path = written(tmp_path / "t.json", events + launched("mystery", 40, [], "mystery<kernel>", 50))
    assert main(["advise", str(path), "--gpu", "A100", "--output", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "M=4096 N=4096 K=4096 bf16" in out and "mystery<kernel> 50 µs" in out and "5.2 % of the measured time" in out
    assert "below the bound" in out and "Replace or fuse aten::mm" in out
    page, found = (tmp_path / "report.html").read_text(), json.loads((tmp_path / "result.json").read_text())
    assert "mystery&lt;kernel&gt;" in page and found["operators"][0]["measured_us"] == 900
    assert main(["advise", str(path), "--output", str(tmp_path)]) == 2
    assert "which GPU" in capsys.readouterr().err
    assert main(["advise", str(written(tmp_path / "u.json", EVENTS)), "--gpu", "A100", "--output", str(tmp_path)]) == 0
    assert "record_shapes=True" in capsys.readouterr().out and "gemm, not predicted" in (tmp_path / "report.html").read_text()
    assert "repeating-linear-gradient(45deg, #2463d6" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("text", ["", "[1", '{"a": 1}', '{"traceEvents": []}'])
def test_what_is_no_trace_is_refused(tmp_path, text):
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(InputError):
        read_trace(path)


def test_a_recorded_trace_stands_beside_the_step(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    layer = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True).eval()
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        layer(torch.zeros(2, 16, 64))
    profile.export_chrome_trace(str(tmp_path / "t.json"))
    out = tmp_path / "out"
    arguments = ["model", "bert", "--gpu", "A100", "--engine", "torch", "--prefill", "16,16", "--measured", str(tmp_path / "t.json")]
    assert main([*arguments, "--output", str(out)]) == 0
    text = capsys.readouterr().out
    assert "measured ms" in text and "no GPU kernel" in text
    assert "Measured beside predicted" in (out / "model.html").read_text()
    assert main(["advise", str(tmp_path / "t.json"), "--gpu", "A100", "--output", str(out)]) == 0
    assert "aten::addmm" in capsys.readouterr().out
