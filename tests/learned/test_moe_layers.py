"""Library mixture-of-experts layers: formats, kernels, bounds and the reference latency, by hand."""

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.learned.library import moe_layers
from advisor.learned.library.moe_layers import CONSTANTS, FAMILIES, NAMES, MoeLayers
from advisor.pipelines import token_draws


def layers(tokens, form="bf16", experts=8, topk=2, hidden=1024, inner=512, ungated=False, alpha=0.0):
    m, e, k, h, n = (np.array([float(each)]) for each in (tokens, experts, topk, hidden, inner))
    return MoeLayers(
        tokens=m,
        experts=e,
        topk=k,
        hidden=h,
        inner=n,
        ungated=np.array([ungated]),
        form=np.array([NAMES.index(form)]),
        loads=token_draws.loads(m, e, k, np.ones(1), np.array([alpha])),
        alpha=np.array([alpha]),
    )


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("vllm_compressedtensorswna16marlinmoe_marlin_marlinexperts", "Marlin"),
        ("deepgemm", "DeepGEMM"),
        ("moe_torch_flow_cutlass", "TRT-LLM CUTLASS"),
        ("vllm_modeloptfp8moe_flashinfer_cutlass_flashinferexperts", "FlashInfer CUTLASS"),
        ("vllm_fp8moe_flashinfer_trtllm_trtllmfp8expertsmonolithic", "FlashInfer TRT-LLM"),
        ("sglang_flashinfer_cutedsl_moe", "FlashInfer CuTe DSL"),
    ],
)
def test_family_of_a_published_name(kernel, words):
    assert FAMILIES[moe_layers.family(kernel)][1] == words


@pytest.mark.parametrize(("form", "bytes_"), [("bf16", 2), ("fp8", 1), ("nvfp4", 0.5625), ("w4a16_mxfp4", 0.53125), ("int4_wo", 0.515625)])
def test_terms_weights_are_those_of_the_experts_in_use(form, bytes_):
    """Two of eight experts, each 3 x 512 x 1,024 weights."""
    need = moe_layers.terms(layers(1, form), load_gpu("H100"))
    assert need.weight_bytes[0] == pytest.approx(2 * 3 * 512 * 1024 * bytes_)
    assert need.flop[0] == pytest.approx(2 * 2 * 1024 * 3 * 512)


def test_bound_cold_weights_come_from_dram():
    """Of 64 experts two are used: 2 x 3 x 2,048 x 7,168 bytes of fp8 weights and a row in bf16, at 3.35 TB/s, and half a microsecond."""
    gpu = load_gpu("H100")
    us, binding = moe_layers.bound(layers(1, "fp8", experts=64, hidden=7168, inner=2048), gpu, cold=True)
    by_hand = (2 * 3 * 2048 * 7168 + 7168 * 2) / gpu.dram_bytes_per_s * 1e6 + 0.5
    assert us[0] == pytest.approx(by_hand) and binding[0] == "dram"


def test_bound_of_many_tokens_is_the_matrix_units():
    """65,536 tokens on two experts each: 2 x 131,072 x 1,024 x 1,536 FLOP at fp4's rate of a B200, four times bf16's."""
    gpu = load_gpu("B200")
    us, binding = moe_layers.bound(layers(65536, "nvfp4"), gpu)
    assert us[0] == pytest.approx(2 * 131072 * 1024 * 1536 / gpu.peak_tensor_flop_per_s("fp4") * 1e6 + 0.5) and binding[0] == "tensor"
    assert moe_layers.bound(layers(65536, "bf16"), gpu)[0][0] > 3 * us[0]


def test_bound_without_a_gate_is_less():
    assert moe_layers.bound(layers(1, ungated=True), load_gpu("H100"))[0] < moe_layers.bound(layers(1), load_gpu("H100"))[0]


def test_reference_grows_with_each_of_its_constants():
    some, gpu = layers(300), load_gpu("H100")
    need = moe_layers.terms(some, gpu)
    start = np.log(np.array(list(CONSTANTS.values())))
    us = moe_layers.reference(some, need, start).us[0]
    floor = list(CONSTANTS).index("floor")
    more = start.copy()
    more[floor] = np.log(30.0)
    assert moe_layers.reference(some, need, more).us[0] == pytest.approx(us + 20)
    assert moe_layers.reference(layers(600), moe_layers.terms(layers(600), gpu), start).us[0] > us


@pytest.mark.parametrize(
    ("stack", "version", "kernel", "plain"),
    [
        ("vllm", 2400, "a", True),
        ("vllm", 2200, "a", False),
        ("trtllm", 10300, "moe_torch_flow_nongated", True),
        ("sglang", 510, "a", False),
    ],
)
def test_ungated_by_who_launches_nemotron(stack, version, kernel, plain):
    found = moe_layers.ungated(np.array([2688.0]), np.array([6.0]), np.array([kernel]), np.array([stack]), np.array([version]))
    assert found[0] == plain


def test_kernel_class_by_matrix_instructions():
    assert [moe_layers.kernel_class(load_gpu(name)) for name in ("L40S", "H100", "GB300", "RTX PRO 6000 S")] == [0, 1, 2, 0]
