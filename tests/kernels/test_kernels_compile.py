"""Every kernel, cross-compiled for GPUs that are not here: it compiles, fits, and uses the instructions it should."""

import pytest
from kernel_harness import FILES, compile_function, compile_kernel, load

CAPABILITIES = (80, 90, 100, 120)
SHARED_MEMORY = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024, 120: 99 * 1024}
"""Most shared memory a CTA may have, in bytes (CUDA C++ Programming Guide, compute capabilities)."""

MOE = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8, "num_warps": 4, "num_stages": 3}
GEMM = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8, "num_warps": 4, "num_stages": 3}
PERSISTENT = {**GEMM, "EPILOGUE_SUBTILE": 1, "FLATTEN": True, "WARP_SPECIALIZE": False}

PRODUCTS = ("fused_moe_kernel", "gemm_kernel", "gemm_persistent_kernel", "attention_kernel")
"""Kernels whose code is another for each capability: their matrix instructions."""
ALIKE = (80, 120)
"""For the others: the oldest, and that with the least shared memory."""
MASKED = ({"op": "w2", "dtype": "fp16", "H": 2050, "N": 770}, {"dtype": "fp16", "D": 80, "causal": 0})
"""What differs in masks alone is compiled for the oldest: it takes the shared memory of the same tile without them."""

# (file, kernel, changes to the example, configuration; None: the default)
LAUNCHES = [
    ("fused_moe", "fused_moe_kernel", {"op": "w13", "dtype": "bf16"}, MOE),
    ("fused_moe", "fused_moe_kernel", {"op": "w2", "dtype": "fp8"}, MOE),
    ("fused_moe", "fused_moe_kernel", MASKED[0], MOE),
    ("fused_moe", "activation_kernel", {"op": "activation", "dtype": "bf16"}, None),
    ("fused_moe", "combine_kernel", {"op": "combine", "dtype": "bf16"}, None),
    ("gemm", "gemm_kernel", {"dtype": "bf16"}, {**GEMM, "SPLIT_K": 1}),
    ("gemm", "gemm_kernel", {"dtype": "tf32"}, {**GEMM, "SPLIT_K": 4}),
    ("gemm", "gemm_kernel", {"dtype": "fp8", "K": 4111}, {**GEMM, "SPLIT_K": 1}),
    ("gemm", "gemm_persistent_kernel", {"dtype": "bf16"}, PERSISTENT),
    ("gemm", "gemm_persistent_kernel", {"dtype": "fp8"}, PERSISTENT),
    ("attention", "attention_kernel", {"dtype": "bf16"}, None),
    ("attention", "attention_kernel", MASKED[1], None),
    ("attention", "decode_kernel", {"dtype": "bf16"}, None),
    ("rms_norm", "rms_norm_kernel", {"dtype": "bf16"}, None),
    ("rms_norm", "rms_norm_kernel", {"dtype": "bf16", "B": 65536, "H": 128}, None),
    ("layer_norm", "layer_norm_kernel", {"dtype": "fp16"}, None),
    ("layer_norm", "layer_norm_kernel", {"dtype": "bf16", "H": 40001}, None),
    ("softmax", "softmax_kernel", {"dtype": "fp32"}, None),
    ("softmax", "softmax_kernel", {"dtype": "bf16", "H": 40000}, None),
    ("silu_and_mul", "silu_and_mul_kernel", {"dtype": "bf16"}, None),
]
MODULES = {path.stem: load(path.stem) for path in FILES}


def compiled(file, kernel, changes, config, capability):
    module = MODULES[file]
    entry = module.KERNELS[kernel]
    problem = {"op": next(iter(entry["ops"])), **entry["example"], **changes}
    return compile_kernel(module, kernel, problem, config or getattr(module, entry["default"])(problem), capability)


def is_compiled_for(launch, capability):
    file, kernel, changes, _ = launch
    if capability != ALIKE[0] and (changes in MASKED or (capability not in ALIKE and kernel not in PRODUCTS)):
        return False
    needs = MODULES[file].KERNELS[kernel].get("min_capability", 0)
    return capability >= max(needs, 89 if changes["dtype"] == "fp8" else 0)  # e4m3 needs sm_89


CASES = [(launch, capability) for launch in LAUNCHES for capability in CAPABILITIES if is_compiled_for(launch, capability)]


@pytest.mark.parametrize(("launch", "capability"), CASES, ids=[f"{launch[1]}-{launch[2]['dtype']}-sm_{target}" for launch, target in CASES])
def test_compiles(launch, capability):
    file, kernel, changes, config = launch
    binary = compiled(file, kernel, changes, config, capability)
    assert binary.asm["cubin"]
    assert binary.metadata.shared <= SHARED_MEMORY[capability]
    if kernel in PRODUCTS:
        instruction = {80: "mma.sync", 90: "wgmma.mma_async", 100: "tcgen05.mma", 120: "mma.sync"}[capability]
        assert instruction in binary.asm["ptx"]


@pytest.mark.parametrize("rows", [1, 8])
def test_the_sum_of_splits_compiles(rows):
    """Of one row too: Triton folds arguments of 1 into plain numbers."""
    values = {
        "partial_ptr": "*fp32",
        "c_ptr": "*bf16",
        "M": rows,
        "N": 4096,
        "stride_cm": 4096,
        "stride_cn": 1,
        "SPLIT_K": 4,
        "BLOCK_SIZE": 1024,
    }
    assert compile_function(MODULES["gemm"].sum_splits_kernel, values, {}, 90).asm["cubin"]


@pytest.mark.parametrize("capability", [90, 100])
def test_the_default_persistent_gemm_is_what_it_is_meant_to_be(capability):
    """Tiles come and go by TMA, no register spills, and four stages beside the half tile of the end fit."""
    binary = compiled("gemm", "gemm_persistent_kernel", {"dtype": "bf16"}, None, capability)
    ptx = binary.asm["ptx"]
    assert "cp.async.bulk.tensor.2d.shared::cluster.global" in ptx or "cp.async.bulk.tensor.2d.shared::cta.global" in ptx
    assert "cp.async.bulk.tensor.2d.global.shared::cta" in ptx
    assert binary.metadata.shared <= SHARED_MEMORY[capability]
    assert binary.metadata.num_warps == 8


def test_warp_specialization_compiles_where_it_is_valid():
    module = MODULES["gemm"]
    problem = {"op": "gemm", "M": 8192, "N": 8192, "K": 8192, "dtype": "bf16", "capability": 100}
    config = {**module.default_persistent(problem), "WARP_SPECIALIZE": True, "num_stages": 3}
    assert module.valid_persistent(config, problem)
    assert not module.valid_persistent(config, {**problem, "capability": 90})
    assert not module.valid_persistent({**config, "FLATTEN": False}, problem)
    assert compile_kernel(module, "gemm_persistent_kernel", problem, config, 100).asm["cubin"]
