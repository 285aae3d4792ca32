"""Reading and fitting library layers, on rows made by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

from advisor.gpus.hardware import load_gpu  # noqa: E402
from advisor.learned.library import moe_kernels, moe_layers  # noqa: E402
from advisor.pipelines import token_draws  # noqa: E402
from advisor.training.silicon import moe_library, series  # noqa: E402

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


def write(folder: Path, rows: list[tuple]) -> None:
    names = ("kernel_source", "moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "distribution")
    folder.mkdir(parents=True)
    columns = dict(zip((*names, "latency"), map(list, zip(*rows, strict=True)), strict=True))
    parquet.write_table(pyarrow.table(columns), folder / "moe_perf.parquet")


def rows(kernel="moe_torch_flow_cutlass", inter=768, hidden=2048, experts=128, form="fp8", routing="power_law_1.2", slow=1.0, gpu="H100"):
    """Layers that take what the reference says of them before it is fitted."""
    m = np.array(TOKENS, dtype=float)
    alpha, ones = np.full(m.size, token_draws.exponent(routing)), np.ones(m.size)
    layers = moe_layers.MoeLayers(
        tokens=m,
        experts=experts * ones,
        topk=8 * ones,
        hidden=hidden * ones,
        inner=inter * ones,
        ungated=np.zeros(m.size, dtype=bool),
        form=np.full(m.size, moe_layers.NAMES.index(form)),
        loads=token_draws.loads(m, experts * ones, 8 * ones, ones, alpha),
        alpha=alpha,
    )
    start = np.log(np.array(list(moe_layers.CONSTANTS.values())))
    us = moe_layers.reference(layers, moe_layers.terms(layers, load_gpu(gpu)), start).us
    return [
        (kernel, form, t, hidden, inter, 8, experts, 1, routing, slow * each / 1e3) for t, each in zip(TOKENS, us.tolist(), strict=True)
    ]


def test_read_merges_duplicates_and_names_the_series(tmp_path: Path) -> None:
    write(tmp_path / "h100_sxm" / "moe_library" / "trtllm" / "1.3.0rc20", rows() + rows(slow=1.02) + rows(slow=1.5))
    found = moe_library.read([tmp_path])
    assert len(found) == len(TOKENS)
    assert found.latency_us[0] == pytest.approx(1.02 * 1e3 * rows()[0][-1])
    assert found.series == (moe_kernels.LayerSeries("trtllm", "1.3.0rc20", "moe_torch_flow_cutlass", "fp8", 1),)
    assert moe_library.read([tmp_path], exclude_models=[(128, 8, 2048, 1)]).model.size == len(TOKENS)


def test_read_takes_what_amd_tuned(tmp_path: Path) -> None:
    head = "gfx,cu_num,token,model_dim,inter_dim,expert,topk,q_dtype_a,q_dtype_w,q_type,us\n"
    kinds = "torch.float4_e2m1fn_x2,torch.float4_e2m1fn_x2,QuantType.per_1x32"
    text = "".join(f"gfx950,256,{m},3072,768,96,6,{kinds},{us}\n" for m, us in ((24, 61.5), (24, 62.5), (48, 90.0)))
    (tmp_path / "tuned_fmoe.csv").write_text(head + text)
    found = moe_library.read([tmp_path])
    assert found.latency_us.tolist() == [62.0, 90.0] and set(found.gpu.tolist()) == {"MI355X"}
    assert [item.words for item in found.series] == ["AITER's fused MoE, as AMD tuned it"]


def test_read_leaves_out_what_cannot_be(tmp_path: Path) -> None:
    told: list[str] = []
    wrong = rows(inter=1024, gpu="B200")
    wrong[5] = (*wrong[5][:-1], 10 * wrong[5][-1])  # ten times its neighbours
    wrong[0] = (*wrong[0][:-1], 1e-4)  # a tenth of a microsecond
    write(
        tmp_path / "b200_sxm" / "moe_library" / "sglang" / "0.5.10",
        wrong + rows("sglang_flashinfer_cutedsl_moe", experts=512, slow=9, gpu="B200"),
    )
    write(
        tmp_path / "b200_sxm" / "moe_library" / "vllm" / "0.24.0",
        rows(hidden=7168, inter=2048, experts=256, routing="balanced", gpu="B200"),
    )
    found = moe_library.read([tmp_path], progress=told.append)
    assert len(found) == len(TOKENS) - 2
    assert [text.split()[2] for text in told] == [str(2 * len(TOKENS)), "1", "1"]


def test_fit_constants_finds_the_floor(tmp_path: Path) -> None:
    """Latencies made of the reference with a floor of 33 µs: it is found, and with it the latencies."""
    write(tmp_path / "h100_sxm" / "moe_library" / "vllm" / "0.24.0", [row for n in range(256, 2304, 256) for row in rows(inter=n)])
    found = moe_library.read([tmp_path])
    truth = np.log(np.array(list(moe_layers.CONSTANTS.values())))
    truth[list(moe_layers.CONSTANTS).index("floor")] = np.log(33.0)
    made = found.reference(truth[None]).us
    constants = moe_library.fit_constants(replace(found, latency_us=made), np.ones(len(found), dtype=bool))
    assert np.exp(constants[0][0]) == pytest.approx(33.0, rel=0.1)
    assert np.abs(found.reference(constants).us / made - 1).max() < 0.05


def test_figures_are_errors_in_percent(tmp_path: Path) -> None:
    write(tmp_path / "h100_sxm" / "moe_library" / "vllm" / "0.24.0", rows())
    found = moe_library.read([tmp_path])
    error = np.full(len(found), np.log(1.1))
    error[0] = np.nan
    inside = np.where(np.arange(len(found)) % 2 == 0, np.isfinite(error), 0.0)
    figures = series.figures(error, -error, moe_library.learnable(found).groups, inside)
    assert figures["all"] == figures["GPU H100"] == figures["format fp8"]
    assert figures["all"] == {"mape": 10.0, "median": 10.0, "baseline": 9.09, "rows": len(TOKENS) - 1, "held": 45.5}
