"""`advisor.best_config`."""

from __future__ import annotations

import weakref

import pytest

from advisor.autotuning import lookup
from advisor.autotuning.decorator import best_config
from advisor.system.errors import NoGpuError, UnknownGpuError, UsageError

MOE = {"M": 64, "E": 128, "topk": 8, "H": 2048, "N": 768}


def test_a_plain_dictionary():
    found = best_config("fused_moe", **MOE, gpu="H200")
    assert list(found) == ["BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages"]
    assert all(type(value) is int for value in found.values())
    found["BLOCK_SIZE_M"] = 0
    assert best_config("fused_moe", **MOE, gpu="H200")["BLOCK_SIZE_M"] != 0


def test_the_current_gpu_is_meant_where_none_is_named(fake_driver, monkeypatch):
    assert best_config("fused_moe", **MOE) == best_config("fused_moe", **MOE, gpu="NVIDIA H200")
    lookup.forget()
    from triton.runtime.driver import driver

    monkeypatch.setattr(driver, "_active", None)
    monkeypatch.setattr("advisor.autotuning.internals.active_driver", lambda: None)
    with pytest.raises(NoGpuError):
        best_config("fused_moe", **MOE)


def test_the_space_is_ranked_once_per_bucket(monkeypatch):
    asked = []
    predicted = lookup._predicted
    monkeypatch.setattr(lookup, "_predicted", lambda *args: asked.append(args) or predicted(*args))
    for tokens in (1000, 1001, 1024, 1100):
        best_config("fused_moe", **{**MOE, "M": tokens}, gpu="H200", block_shape=[128, 128], dtype="fp8")
    assert len(asked) == 1
    assert lookup._nearest(10**6) == 2**20


def test_a_server_that_never_stops_keeps_the_answers_it_asks_for_most(monkeypatch):
    class Answer(dict):
        """One that says whether it is still held."""

    made, asked = [], []

    def predicted(family, ops, sizes, types, gpu):
        answer = Answer(num_warps=sizes["M"])
        made.append(weakref.ref(answer))
        asked.append(sizes["M"])
        return answer

    monkeypatch.setattr(lookup, "_predicted", predicted)
    monkeypatch.setattr(lookup, "_measured", lambda *_: None)
    attention = {"op": "prefill", "B": 1, "H": 32, "H_kv": 8, "N": 4096, "D": 128, "gpu": "A100"}  # whose sizes are ranked as they are
    for queries in range(2, 20_002):
        assert best_config("attention", M=queries, **attention) == {"num_warps": queries}
        assert best_config("attention", M=1, **attention) == {"num_warps": 1}
    assert len(asked) == 20_001
    assert sum(each() is not None for each in made) <= 2 * lookup.MOST_ANSWERS < 20_000


@pytest.mark.parametrize("odd", [{}, [], {"a": 1}, [[1]]])
def test_what_no_size_can_be_is_said(odd):
    with pytest.raises(UsageError, match="best_config: M; got"):
        best_config("gemm", M=odd, N=64, K=64, gpu="H200")


def test_other_families():
    assert "BLOCK_SIZE_M" in best_config("gemm", M=512, N=4096, K=4096, gpu="H100")
    assert "BLOCK_M" in best_config("attention", op="prefill", B=1, H=32, H_kv=8, M=4096, N=4096, D=128, causal=1, gpu="A100")


@pytest.mark.parametrize(
    "family, problem",
    [
        ("convolution", {}),
        ("gemm", {"M": 1, "N": 1}),
        ("gemm", {"M": 0, "N": 1, "K": 1}),
        ("gemm", {"M": 1.5, "N": 1, "K": 1}),
        ("attention", {"M": 1}),
        ("gemm", {"M": 1, "N": 1, "K": 1, "dtype": "fp3"}),
        ("gemm", {"M": 1, "N": 1, "K": 1, "dtyp": "fp8"}),
        ("fused_moe", {**MOE, "foo": 1}),
    ],
)
def test_refuses(family, problem):
    with pytest.raises(UsageError):
        best_config(family, **problem, gpu="H200")


@pytest.mark.parametrize(("gpu", "dtype", "takes"), [("A100", "fp8", False), ("A100", "bf16", True), ("L40", "fp8", True)])
def test_operands_that_the_gpu_does_not_take(gpu, dtype, takes):
    """The audit's rule: below compute capability 8.9 no kernel takes fp8."""
    if takes:
        assert best_config("fused_moe", **MOE, gpu=gpu, dtype=dtype)
    else:
        with pytest.raises(UsageError, match=r"fp8 needs compute capability 8\.9, and A100"):
            best_config("fused_moe", **MOE, gpu=gpu, dtype=dtype)


def test_nothing_is_predicted_of_operands_that_the_gpu_does_not_take():
    """The kernel runs (or not) as its author wrote it: the model has no say."""
    from triton import Config

    from advisor.autotuning.keys import identity
    from advisor.autotuning.ranking import Recognised, rank
    from advisor.result.schema import Problem

    configs = [identity(Config({"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1})) for n in (64, 128)]
    problem = Problem(family="gemm", op="gemm", sizes={"M": 512, "N": 512, "K": 512}, dtype="fp8")
    for gpu, modelled in (("A100", False), ("H100", True)):
        ranked = rank(configs, Recognised(problem=problem, how="hint"), "", gpu)
        assert ranked.modelled == modelled and ("fp8 needs" in ranked.by) != modelled


@pytest.mark.parametrize("size", [10**30, 2**31, -1])
def test_a_size_that_no_tensor_has(size):
    with pytest.raises(UsageError, match=r"best_config: M; got .*; expected an integer from 1 to 2147483647"):
        best_config("gemm", M=size, N=64, K=64, gpu="H200")


def test_a_token_takes_no_more_experts_than_there_are():
    assert best_config("fused_moe", **{**MOE, "E": 8}, gpu="H200")
    with pytest.raises(UsageError, match="more experts than there are; got topk 8; expected at most 4"):
        best_config("fused_moe", **{**MOE, "E": 4}, gpu="H200")


def test_an_unknown_keyword_is_told_with_the_known_ones():
    with pytest.raises(UsageError, match="dtyp; expected among M, N, K, op, dtype, weight_dtype, output_dtype, block_shape, gpu"):
        best_config("gemm", M=1, N=1, K=1, dtyp="fp8", gpu="H200")


def test_an_unknown_gpu():
    with pytest.raises(UnknownGpuError):
        best_config("gemm", M=1, N=1, K=1, gpu="H9000")


def test_what_was_measured_comes_first():
    from . import kernels

    kernel, _ = kernels.tuned(
        lambda launch: launch["BLOCK_SIZE_M"] + launch["num_stages"],
        kernels.gemm_kernel,
        kernels.GEMM_SPACE,
        key=["M", "N", "K"],
        mode="exhaustive",
    )
    kernels.call_gemm(kernel, 300, 512, 512)
    found = best_config("gemm", M=300, N=512, K=512, gpu="H200")
    assert found["BLOCK_SIZE_M"] == 16 and found["num_stages"] == 2


GEMM = {"M": 300, "N": 512, "K": 512, "gpu": "H200"}


def test_what_was_measured_since_the_last_call_is_seen():
    from . import kernels

    assert best_config("gemm", **GEMM)["BLOCK_SIZE_M"] != 17
    space = {"BLOCK_SIZE_M": [17, 19], "BLOCK_SIZE_N": [32], "BLOCK_SIZE_K": [32], "GROUP_SIZE_M": [1]}
    kernel, _ = kernels.tuned(lambda launch: launch["BLOCK_SIZE_M"], kernels.gemm_kernel, space, key=["M", "N", "K"])
    kernels.call_gemm(kernel, 300, 512, 512)
    assert best_config("gemm", **GEMM)["BLOCK_SIZE_M"] == 17


def ungrouped(a_ptr, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K):
    """A gemm by other names, that does not group its tiles."""


def split(a_ptr, M, N, K, BM, BN, BK, GROUP_M, SPLIT_K):
    """One with a parameter that the family does not have."""


def flat(a_ptr, M, N, K, BM, BN):
    """One that does not say how deep its K loop's blocks are."""


TILE = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32}
LAUNCH = {"num_warps": 4, "num_stages": 3}


@pytest.mark.parametrize(
    "fn, space, answer",
    [
        (ungrouped, {"BLOCK_M": [16, 32], "BLOCK_N": [32], "BLOCK_K": [32]}, {**TILE, "GROUP_SIZE_M": 1, **LAUNCH}),
        (
            split,
            {"BM": [16, 32], "BN": [32], "BK": [32], "GROUP_M": [8], "SPLIT_K": [2]},
            {**TILE, "GROUP_SIZE_M": 8, **LAUNCH, "SPLIT_K": 2},
        ),
        (flat, {"BM": [16, 32], "BN": [32]}, None),
    ],
)
def test_what_was_measured_has_the_familys_names(fn, space, answer):
    from . import kernels
    from .fakes import Tensor

    predicted = best_config("gemm", **GEMM)
    kernel, _ = kernels.tuned(
        lambda launch: launch[next(iter(space))],
        fn,
        space,
        key=["M", "N", "K"],
        family="gemm",
        problem=lambda args: {name: args[name] for name in "MNK"},
    )
    kernel[(1,)](Tensor(), 300, 512, 512)
    assert list(best_config("gemm", **GEMM).items()) == list((answer or predicted).items())


@pytest.mark.parametrize(
    ("family", "sizes", "gpu", "block"),
    [
        ("fused_moe", {"M": 64, "E": 256, "topk": 8, "H": 7168, "N": 256}, "B200", 128),
        ("gemm", {"M": 65, "N": 576, "K": 5120}, "H200", 32),
    ],
)
def test_no_step_spans_two_quantization_blocks(family, sizes, gpu, block):
    assert best_config(family, **sizes, gpu=gpu, dtype="fp8", block_shape=(block, block))["BLOCK_SIZE_K"] <= block
