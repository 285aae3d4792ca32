"""The layouts in which others publish their measurements."""

from __future__ import annotations

import gzip

import pytest

from advisor.errors import InputError
from advisor.learned import data

SWEEP = """weight_type,M,E,topk,H,N,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,GROUP_SIZE_M,num_warps,num_stages,avg_duration
w13,16,8,2,1024,512,16,64,128,1,4,3,9.5
w2,16,8,2,1024,512,16,64,128,1,4,3,7.25
"""


@pytest.mark.parametrize(("name", "gpu"), [("moe_dse_H20.csv", "H20"), ("moe_dse_PRO6000S.csv", "RTX PRO 6000 S")])
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


def test_neusight_milliseconds(tmp_path):
    (tmp_path / "ops.csv").write_text("Device,OPName,B,H,Latency\nTesla T4,softmax,64,1024,0.25\n")
    (part,) = data.read([tmp_path])
    assert part.latency_us.tolist() == [250.0]


@pytest.mark.parametrize("text", ["weight_type,M\nw13,1\n", "Latency,Device\nabc,Tesla T4\n", "", "a,b\n1,2\n", "\x00\x01"])
def test_anything_else_is_an_input_error(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InputError):
        data.read([tmp_path])


def test_no_files(tmp_path):
    with pytest.raises(InputError):
        data.read([tmp_path])
