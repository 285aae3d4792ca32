"""Dealing groups into folds."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from advisor.rows.types_and_origin import implied_dtype
from advisor.system.errors import InputError
from advisor.training import data
from advisor.training.data import leave_out


def test_every_label_is_left_out_once():
    labels = ["b", "a", "c", "a", "d", "e", "b"]
    folds = list(leave_out(labels, 3))
    assert sorted(label for out, _ in folds for label in out) == ["a", "b", "c", "d", "e"]
    for out, mask in folds:
        assert mask.tolist() == [label in out for label in labels]
    assert np.sum([mask for _, mask in folds], axis=0).tolist() == [1] * len(labels)


def test_labels_kept_apart_meet_in_no_fold_while_there_are_enough():
    labels = list("abcdefgh")
    together = [out for out, _ in leave_out(labels, 4)]
    assert ["a", "e"] in together
    apart = {"a", "e", "h"}
    for out, _ in leave_out(labels, 4, apart):
        assert len(apart & set(out)) <= 1
    assert max(len(apart & set(out)) for out, _ in leave_out(labels, 2, apart)) == 2


def test_one_label_cannot_be_left_out():
    assert list(leave_out(["a", "a"], 3)) == []


SWEEP = """weight_type,M,E,topk,H,N,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,GROUP_SIZE_M,num_warps,num_stages,avg_duration
w13,16,8,2,1024,512,16,64,128,1,4,3,9.5
w2,16,8,2,1024,512,16,64,128,1,4,3,7.25
"""


@pytest.mark.parametrize(
    ("name", "gpu"), [("moe_dse_H20.csv", "H20"), ("moe_dse_PRO6000S.csv", "RTX PRO 6000 S"), ("moe_dse_H800_99_5.csv", "H800")]
)
def test_pipeweave_sweep(tmp_path, name, gpu):
    (tmp_path / name).write_text(SWEEP)
    parts = data.read([tmp_path])
    assert {p.gpu.name for p in parts} == {gpu}
    assert sorted((p.problem.op, p.kind, p.latency_us.tolist()) for p in parts) == [("w13", "exact", [9.5]), ("w2", "exact", [7.25])]


def test_gzip_and_hardware_column(tmp_path):
    with gzip.open(tmp_path / "moe_test.csv.gz", "wt") as stream:
        stream.write("hardware,weight_type,M,E,topk,H,N,tensor_all_ops,duration\nNVIDIA A40,w13,4,8,2,1024,512,123,11.0\n")
    (part,) = data.read([tmp_path])
    assert (part.kind, part.gpu.name, part.latency_us.tolist()) == ("served", "A40", [11.0])


# The header of scripts/asplos/data/dataset/train/collect/bmm/p2.1.0/*.csv, and of the others with H in place of M, N, K.
NEUSIGHT = (
    "OPName,Latency,Device,Torch Version,CUDNN Version,Kernel Name,Warps per SM,Blocks per SM,Grid x,Grid y,Grid z,"
    "Block x,Block y,Block z,CUDA Version,Kernels,B,"
)


def test_neusight_operators(tmp_path):
    (tmp_path / "softmax.csv").write_text(
        NEUSIGHT + "H\nsoftmax,0.25,Tesla T4,p2.1.0,8902,softmax_warp_forward,1.3,0.2,16,1,1,32,4,1,cu121,;softmax_warp_forward,64,1024\n"
    )
    (part,) = data.read([tmp_path])
    assert (part.kind, part.gpu.name, part.latency_us.tolist()) == ("normalization/softmax/fp32", "T4", [250.0])
    assert part.problem.sizes["H"].tolist() == [1024]


def test_neusight_products_and_what_is_left_out(tmp_path):
    line = "Tesla V100-PCIE-32GB,p2.1.0,8902,volta_sgemm_128x32_nn,1.3,0.16,4,1,384,256,1,1,cu121,;volta_sgemm_128x32_nn,384,128,64,128"
    (tmp_path / "x.csv").write_text(f"{NEUSIGHT}M,N,K\nbmm,0.1117248,{line}\nconv,1.5,{line}\n")
    (part,) = data.read([tmp_path])
    assert (part.kind, part.gpu.name) == ("gemm/gemm/fp32", "V100-PCIe")
    assert part.latency_us.tolist() == pytest.approx([111.7248])
    assert [float(part.problem.sizes[n][0]) for n in "BMNK"] == [384, 128, 128, 64]  # theirs: 128 x 64 times 64 x 128


def test_pipeweave_dataset(tmp_path):
    # The header of dataset/gemm_fp8_train.csv, whose name tells the type.
    (tmp_path / "gemm_fp8_train.csv").write_text(
        "M,N,K,avg_duration,hardware,tc_bf16,num_sms,sm_freq,tensor_all_ops,overall_perf\n"
        "108,8192,1024,13.6596,NVIDIA H20,1024,78,1830,2147483648.0,0.5377\n"
    )
    (part,) = data.read([tmp_path])
    assert (part.kind, part.gpu.name, part.latency_us.tolist()) == ("gemm/gemm/fp8", "H20", [13.6596])


@pytest.mark.parametrize("text", ["weight_type,M\nw13,1\n", "Latency,Device\nabc,Tesla T4\n", "", "a,b\n1,2\n", "\x00\x01"])
def test_anything_else_is_an_input_error(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InputError):
        data.read([tmp_path])


def test_no_files(tmp_path):
    with pytest.raises(InputError):
        data.read([tmp_path])


LIBRARY = "gpu,op,B,M,N,K,H"


@pytest.mark.parametrize(
    ("header", "name", "operators", "dtype"),
    [
        (f"{LIBRARY},latency_us,kernel", "x.csv", (), "fp32"),
        (LIBRARY, "x.csv", ("bmm", "Softmax", "addu"), "fp32"),
        (f"{LIBRARY},latency_us,ref", "x.csv", ("linear",), "fp32"),
        (LIBRARY, "x.csv", ("bmm", "rms_norm"), None),  # never published: the user's own rows
        (LIBRARY, "x.csv", (), None),
        (f"{LIBRARY},family", "x.csv", ("bmm",), None),  # a column of ours
        ("gpu,op,M,N,K", "x.csv", ("bmm",), None),
        (f"{LIBRARY},dtype", "x.csv", ("bmm",), None),
        ("gpu,op,B,H,latency_us,kernel", "x.csv", ("softmax", "gelu"), "fp32"),
        ("gpu,op,kernel,M,E,topk,H,N", "x.csv", ("w13",), None),  # Triton's kernels have names too
        ("gpu,op,kernel,B,H,H_kv,M,N,D", "x.csv", ("prefill",), None),
        ("gpu,op,kernel,M,N,K", "x.csv", ("linear", "w13", ""), None),
        ("gpu,op,kernel,M,N,K,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K", "x.csv", ("linear",), None),
        (f"{LIBRARY},SPLIT_K", "x.csv", ("bmm",), None),
        (f"{LIBRARY},kernel,parameters", "x.csv", ("bmm",), None),
        ("gpu,M,N,K", "gemm_fp8.csv", (), "fp8"),
    ],
)
def test_types_that_published_layouts_imply(header, name, operators, dtype):
    assert implied_dtype(header.split(","), name, operators) == dtype


def test_fused_moe_that_names_its_kernel_is_bf16(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("gpu,op,kernel,M,E,topk,H,N,latency_us\nH100,w13,fused_moe_kernel,64,128,8,2048,768,300\n")
    (part,) = data.read([rows])
    assert part.problem.dtype == "bf16"


def test_a_type_that_is_assumed_is_told(tmp_path):
    rows, told = tmp_path / "rows.csv", []
    rows.write_text("gpu,M,N,K,dtype,latency_us\nT4,64,64,64,,9.5\nH100,64,64,64,,7.5\nP4,64,64,64,fp32,30\n")
    parts = data.read([rows], progress=told.append)
    assert sorted(part.problem.dtype for part in parts) == ["bf16", "bf16", "fp32"]
    (line,) = (text for text in told if "bf16" in text)
    assert "2 rows" in line and "which T4 has no matrix units for" in line and "column dtype" in line and "P4" not in line
    rows.write_text("gpu,M,E,topk,H,N,latency_us\nH100,64,8,2,1024,512,9.5\n")
    told.clear()
    data.read([rows], progress=told.append)
    assert not any("bf16" in text for text in told)  # as all that was published of fused MoE
