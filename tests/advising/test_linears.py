"""The linears around products that scale blocks: quantisation and product, beside a library's."""

from __future__ import annotations

import pytest

import advisor
from advisor.rendering.markdown import to_markdown
from advisor.rendering.page import to_html
from tests.cli.command_line import table
from tests.rendering.terminal import to_text

SMALL = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 32, "num_warps": 4, "num_stages": 3}
NAME = "N=2112,K=7168,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128,128].json"


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> advisor.Result:
    return advisor.advise(table(tmp_path_factory.mktemp("t"), {"1": SMALL, "4096": SMALL}, NAME))


def test_a_linear_is_its_product_from_dram_and_the_quantisation_before_it(result):
    assert [linear.id for linear in result.layers] == ["linear-M1", "linear-M4096"]
    for launch, linear in zip(result.launches, result.layers, strict=True):
        assert sum(linear.parts.values()) == pytest.approx(linear.predicted.us) and linear.launches == (launch.id,)
        assert linear.parts["gemm"] >= launch.predicted.us and linear.parts["quantisation"] >= 2.5
        assert linear.bound.us >= launch.bound.us and linear.ceiling.us <= linear.predicted.us
        assert linear.library is not None and "DeepGEMM" in linear.library.source and launch.library is None


def test_linears_are_shown_everywhere(result):
    for shown in (to_text(result), to_markdown(result), to_html(result)):
        assert "quantisation" in shown and "routing" not in shown.partition("linear")[2][:200]
    assert 'id="layers-title">Linears<' in to_html(result)
