"""Layers in rows, through the command that users call: measured ones of others, and what may be said of them."""

import csv

import pytest

from advisor.cli import main

A100 = {1: 109, 2: 160, 4: 269, 8: 403, 16: 611, 24: 730, 32: 809, 48: 886, 64: 917, 96: 943}
"""A100-PCIE-40GB, Qwen3-30B-A3B in bf16 as `benchmark_moe` times it, random routing, tile 16 x 32 x 64: posted by a vLLM user (µs)."""

H20 = {1: 189, 4: 428, 64: 607, 128: 778, 512: 1871}
"""H20, Mixtral 8x7B in block-scaled fp8 with vLLM's default of then, likewise."""

L40S = {2: 39, 4: 205, 8: 377, 16: 592, 32: 800, 64: 903, 512: 1034, 2048: 1375, 8192: 3196}
"""L40S, a quarter of Qwen3-VL-235B in block-scaled fp8, a tuned table, likewise."""


def predict(tmp_path, rows):
    source, target = tmp_path / "rows.csv", tmp_path / "out.csv"
    names = list(dict.fromkeys(name for row in rows for name in row))
    with source.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, names)
        writer.writeheader()
        writer.writerows(rows)
    assert main(["predict", str(source), "-o", str(target)]) == 0
    with target.open() as stream:
        return list(csv.DictReader(stream))


def layer(gpu, tokens, **more):
    return {
        "gpu": gpu,
        "op": "layer",
        "M": tokens,
        "E": 128,
        "topk": 8,
        "H": 2048,
        "N": 768,
        "stack": "vllm",
        "stack_version": "0.14.0",
    } | more


TILE = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}


def test_a_posted_layer_lies_above_the_bound_and_near_the_prediction(tmp_path):
    found = predict(tmp_path, [layer("A100-PCIE-40GB", m, **TILE) for m in A100])
    for row, measured in zip(found, A100.values(), strict=True):
        assert float(row["bound_us"]) < measured
        if int(row["M"]) > 1:  # of one token, where launches count most, a quarter less is predicted
            assert float(row["predicted_us"]) == pytest.approx(measured, rel=0.15), row["M"]


def test_bounds_lie_below_layers_of_gpus_that_were_never_measured(tmp_path):
    rows = [layer("H20", m, E=8, topk=2, H=4096, N=14336, dtype="fp8_block") for m in H20]
    for row, measured in zip(predict(tmp_path, rows), H20.values(), strict=True):
        assert float(row["bound_us"]) < measured
        assert float(row["predicted_low_us"]) < float(row["predicted_us"]) < float(row["predicted_high_us"])


def test_a_tuned_layer_of_a_gpu_never_measured(tmp_path):
    rows = [layer("l40s", m, H=4096, N=384, dtype="fp8_block", stack_version="0.19.0") for m in L40S]
    near = []
    for row, measured in zip(predict(tmp_path, rows), L40S.values(), strict=True):
        assert float(row["bound_us"]) < measured
        near.append(abs(float(row["predicted_us"]) / measured - 1) <= 0.2)
    assert sum(near) >= len(near) - 1  # all but the two tokens whose weights just fit the L2


def test_rows_as_the_publisher_names_them_are_the_same_layers(tmp_path):
    ours = layer("H100", 64, routing="power_law:1.2", stack="sglang", stack_version="0.5.14", dtype="bf16")
    theirs = {"gpu": "h100_sxm", "framework": "SGLang", "version": "0.5.14", "moe_dtype": "bfloat16", "num_tokens": 64, "hidden_size": 2048}
    theirs |= {"inter_size": 1536, "topk": 8, "num_experts": 128, "moe_tp_size": 2, "moe_ep_size": 1, "distribution": "power_law_1.2"}
    (mine,), (other,) = predict(tmp_path, [ours]), predict(tmp_path, [theirs])
    assert mine["predicted_us"] == other["predicted_us"]
    assert mine["bound_us"] == other["bound_us"]


def test_random_is_the_default_and_a_configuration_counts(tmp_path):
    bare, named, balanced, tiled = predict(
        tmp_path,
        [layer("H200", 64), layer("H200", 64, routing="random"), layer("H200", 64, routing="balanced"), layer("H200", 64, **TILE)],
    )
    assert bare["predicted_us"] == named["predicted_us"]
    assert float(named["bound_us"]) < float(balanced["bound_us"])
    assert tiled["predicted_us"] != bare["predicted_us"]


def test_a_layer_of_a_vendor_none_of_whose_layers_was_measured_is_refused_in_words(tmp_path, capsys):
    source = tmp_path / "rows.csv"
    source.write_text("gpu,op,M,E,topk,H,N\nMI300X,layer,64,8,2,4096,14336\n")
    assert main(["predict", str(source), "-o", "-"]) == 2
    assert "row 1: op; got layer on MI300X" in capsys.readouterr().err
