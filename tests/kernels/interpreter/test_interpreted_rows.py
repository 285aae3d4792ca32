"""rms_norm.py, layer_norm.py, softmax.py and silu_and_mul.py in Triton's interpreter, against their references."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_harness import check, check_inputs, far_apart, load

NAMES = ["rms_norm", "layer_norm", "softmax", "silu_and_mul"]
MODULES = {name: load(name) for name in NAMES}
CONFIGS = st.fixed_dictionaries(
    {
        "BLOCK_SIZE": st.sampled_from([16, 64, 512]),
        "ROWS_PER_CTA": st.sampled_from([1, 2, 8, 64]),
        "num_warps": st.just(4),
        "num_stages": st.just(1),
    }
)
ONE_PASS = {"BLOCK_SIZE": 64, "ROWS_PER_CTA": 2, "num_warps": 4, "num_stages": 1}
TWO_PASSES = {**ONE_PASS, "BLOCK_SIZE": 16}


def inputs_of(name, rows=5, columns=50, dtype="fp32"):
    problem = {"op": name, "B": rows, "H": columns, "dtype": dtype}
    return MODULES[name].make_inputs(problem, "cpu", torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", NAMES)
@given(st.integers(1, 20), st.integers(1, 300), st.sampled_from(["bf16", "fp16", "fp32"]), CONFIGS)
def test_matches_reference(name, rows, columns, dtype, config):
    check(MODULES[name], f"{name}_kernel", {"op": name, "B": rows, "H": columns, "dtype": dtype}, config)


@pytest.mark.parametrize("config", [ONE_PASS, TWO_PASSES])
@pytest.mark.parametrize("name", NAMES)
def test_any_strides(name, config):
    inputs = inputs_of(name)
    inputs["x"] = inputs["x"].T.contiguous().T
    inputs["output"] = torch.empty(5, 100)[:, ::2]
    check_inputs(MODULES[name], f"{name}_kernel", inputs, config)


@pytest.mark.parametrize("config", [ONE_PASS, TWO_PASSES])
@pytest.mark.parametrize("name", NAMES)
def test_offsets_past_2_31(name, config):
    for dim in (0, 1):
        inputs = inputs_of(name, rows=3, columns=3 if dim else 40, dtype="fp16")
        stride = 2**30 + 64 if dim == 0 else 2**29 + 64
        inputs["x"] = far_apart(inputs["x"], stride, dim)
        inputs["output"] = far_apart(inputs["output"], stride, dim)
        check_inputs(MODULES[name], f"{name}_kernel", inputs, config)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (2, 3, 40), (7,)])
@pytest.mark.parametrize("name", NAMES)
def test_functions(name, shape):
    x = torch.randn(*shape[:-1], shape[-1] * (2 if name == "silu_and_mul" else 1))
    weight, bias = torch.randn(shape[-1]), torch.randn(shape[-1])
    functional = torch.nn.functional
    if name == "rms_norm":
        got, want = MODULES[name].rms_norm(x, weight), functional.rms_norm(x, shape[-1:], weight, 1e-6)
    elif name == "layer_norm":
        got = MODULES[name].layer_norm(x, weight, bias)
        want = functional.layer_norm(x, shape[-1:], weight, bias) if x.numel() else x
    elif name == "softmax":
        got, want = MODULES[name].softmax(x), x.softmax(-1)
    else:
        gate, up = x.chunk(2, -1)
        got, want = MODULES[name].silu_and_mul(x), functional.silu(gate) * up
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_layer_norm_without_weight_and_bias():
    for config in (ONE_PASS, TWO_PASSES):
        check_inputs(MODULES["layer_norm"], "layer_norm_kernel", {**inputs_of("layer_norm"), "weight": None, "bias": None}, config)


@pytest.mark.parametrize("config", [ONE_PASS, TWO_PASSES])
def test_layer_norm_of_a_small_variance_beside_a_large_mean(config):
    inputs = inputs_of("layer_norm")
    inputs["x"] = inputs["x"] * 1e-2 + 1000  # in fp32, the squares would differ in their last bits only
    inputs["epsilon"] = 1e-12
    # What fp32 leaves of x - mean is 1e-2 of 1000 with 24 bits: 1.7 digits fewer than usual.
    got = MODULES["layer_norm"].prepare(inputs, config)()
    torch.testing.assert_close(got.double(), MODULES["layer_norm"].reference(inputs), rtol=2e-2, atol=2e-2)


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero")
@pytest.mark.parametrize("config", [ONE_PASS, TWO_PASSES])
def test_softmax_of_infinities(config):
    inputs = inputs_of("softmax")
    inputs["x"][0] = -torch.inf
    inputs["x"][1, :20] = -torch.inf  # more than a block of the two-pass configuration
    inputs["x"][2, 1:] = -torch.inf
    check_inputs(MODULES["softmax"], "softmax_kernel", inputs, config)
    assert torch.isnan(inputs["output"][0]).all() and inputs["output"][2, 0] == 1


@pytest.mark.parametrize("config", [ONE_PASS, TWO_PASSES])
def test_softmax_of_large_values_does_not_overflow(config):
    inputs = inputs_of("softmax")
    inputs["x"] *= 100
    check_inputs(MODULES["softmax"], "softmax_kernel", inputs, config)
