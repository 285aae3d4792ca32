"""Shared memory of a product on tensor descriptors, as Triton 3.9.0 compiled `gemm_persistent_kernel`; and what is recommended fits."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.cli import main
from advisor.gpus.hardware import load_gpu
from advisor.pipelines import analyse, configuration_batch, problem_batch
from advisor.result.result_json import from_json
from advisor.result.schema import Configuration, Problem

# GPU, type, BLOCK_SIZE_M, N, K, EPILOGUE_SUBTILE, FLATTEN, num_warps, num_stages, `metadata.shared`
COMPILED = [
    ("H200", "bf16", 256, 128, 64, 1, 0, 8, 4, 262176),  # what was once recommended: 232,448 are all there is
    ("H200", "bf16", 256, 128, 64, 2, 0, 8, 4, 229408),
    ("H200", "bf16", 128, 256, 64, 2, 1, 4, 3, 180248),
    ("H200", "bf16", 64, 128, 64, 1, 1, 8, 2, 65552),
    ("H200", "bf16", 64, 64, 128, 2, 1, 8, 4, 143392),
    ("H200", "bf16", 64, 64, 128, 2, 0, 8, 2, 69648),
    ("H200", "bf16", 64, 256, 128, 2, 1, 8, 5, 458792),
    ("H200", "fp8", 128, 64, 32, 1, 1, 4, 2, 29200),
    ("H200", "fp8", 256, 64, 32, 1, 1, 4, 4, 74784),
    ("H200", "fp8", 64, 256, 128, 2, 1, 8, 3, 172056),
    ("H200", "fp8", 128, 256, 64, 1, 0, 8, 4, 163872),
    ("RTX 5090", "bf16", 256, 64, 128, 2, 0, 4, 2, 98312),
    ("RTX 5090", "bf16", 128, 64, 64, 1, 0, 8, 4, 90136),
    ("B200", "bf16", 128, 128, 32, 2, 0, 8, 5, 98368),
    ("B200", "bf16", 64, 128, 64, 2, 1, 8, 3, 86064),
    ("B200", "bf16", 64, 256, 128, 2, 1, 4, 2, 188484),
    ("B200", "fp8", 128, 256, 64, 2, 1, 8, 5, 172164),
    ("B200", "fp8", 128, 64, 128, 2, 1, 8, 3, 86064),
]


@pytest.mark.parametrize("case", COMPILED)
def test_shared_memory_is_what_was_compiled(case):
    gpu, dtype, m, n, k, parts, flatten, warps, stages, compiled = case
    parameters = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": 8, "EPILOGUE_SUBTILE": parts, "FLATTEN": flatten}
    batch = configuration_batch([Configuration(parameters=parameters, num_warps=warps, num_stages=stages)])
    problem = problem_batch([Problem(family="gemm", op="gemm", sizes={"M": 8192, "N": 8192, "K": 8192}, dtype=dtype)])
    found = float(np.ravel(analyse(problem, batch, load_gpu(gpu)).demand.resources.shared_memory_bytes)[0])
    if gpu == "B200":  # an upper limit there
        assert compiled <= found <= compiled + 12500
    else:
        assert found == compiled


@pytest.mark.parametrize("gpu", ["H200", "B200"])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_what_is_recommended_compiles_and_fits(gpu, dtype, tmp_path, capsys):
    """Compiled here, for a GPU that need not be there."""
    pytest.importorskip("triton")
    from advisor.comparison.kernels.attempts import described_arguments
    from advisor.compiled.compiler.kernel import Target
    from advisor.compiled.launches.described import described_launch
    from advisor.compiled.launches.launch import compile_launch
    from advisor.python_source.source import read_source
    from advisor.system.resources import folder

    assert main(["advise", "gemm::gemm_persistent_kernel", "--gpu", gpu, "--dtype", dtype, "--output", str(tmp_path)]) == 0
    (launch,) = from_json((tmp_path / "result.json").read_bytes()).launches
    best = launch.recommendation.configuration
    source = read_source(folder("triton_kernels") / "gemm.py")
    entry = source.kernels_literal["gemm_persistent_kernel"]
    spec = load_gpu(gpu)
    described = described_arguments(source, entry, launch.problem, best, spec.compute_capability)
    chosen = {**best.parameters, "num_warps": best.num_warps, "num_stages": best.num_stages}
    compiled, _, _ = compile_launch(described_launch(source, "gemm_persistent_kernel", described, chosen), Target.of(spec))
    assert compiled.resources.shared_memory_bytes <= spec.smem_bytes_per_cta
    assert launch.occupancy is None or launch.occupancy.shared_memory_bytes <= spec.smem_bytes_per_cta


def test_a_configuration_that_the_kernel_forbids_is_not_recommended(tmp_path):
    """On sm_90 warp specialization does not compile: `valid_persistent` says so."""
    from advisor.advising.targets import Request
    from advisor.advising.targets.resolve import resolve_target

    space = resolve_target("gemm::gemm_persistent_kernel", Request(gpu="H200")).space
    assert len(space) == 2016 and not space.parameters["WARP_SPECIALIZE"].any()
    blackwell = resolve_target("gemm::gemm_persistent_kernel", Request(gpu="B200")).space
    assert blackwell.parameters["WARP_SPECIALIZE"].any()
