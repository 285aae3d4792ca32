"""Models of measured library kernels: whose kernel answers, what is outside, and that references follow the physics."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.learned.library import kernels, references
from advisor.learned.library.kernels import Series
from advisor.learned.machine import chip
from advisor.pipelines import ProblemBatch, column


def gemm(m: float, n: float, k: float, **more: object) -> ProblemBatch:
    return ProblemBatch(family="gemm", op="gemm", sizes={"M": np.array([m]), "N": np.array([n]), "K": np.array([k])}, **more)


def attention(op: str, batch: float, length: float, **more: object) -> ProblemBatch:
    sizes = {"B": batch, "H": 32.0, "H_kv": 8.0, "M": 1.0 if op == "decode" else length, "N": length, "D": 128.0, "causal": 1.0}
    return ProblemBatch(family="attention", op=op, sizes={name: np.array([value]) for name, value in sizes.items()}, **more)


@pytest.fixture(scope="module")
def predictor():
    return load_predictor()


def test_kinds_are_those_measured() -> None:
    assert kernels.kind_of(gemm(1, 2, 3), "nvidia") == "gemm bf16"
    assert kernels.kind_of(gemm(1, 2, 3, dtype="fp8", block_shape=(128, 128)), "nvidia") == "gemm fp8 block"
    assert kernels.kind_of(gemm(1, 2, 3, dtype="fp8"), "amd") == kernels.AMD_GEMM
    assert kernels.kind_of(gemm(1, 2, 3, dtype="int8"), "nvidia") is None
    assert kernels.kind_of(attention("decode", 3, 99), "nvidia") == kernels.DECODE
    assert kernels.kind_of(attention("decode", 3, 99), "amd") is None


@pytest.mark.parametrize("name", ["A100", "H100", "L40S", "B200", "GB300", "RTX PRO 6000 S"])
def test_references_grow_with_the_problem(name: str) -> None:
    gpu = chip(load_gpu(name), "bf16")
    m = np.array([1.0, 33, 257, 4097, 32769])
    us, _ = references.gemm(m, np.full(5, 4096.0), np.full(5, 7168.0), gpu, references.PLAIN)
    assert (np.diff(us) >= 0).all()
    length = np.array([1.0, 130, 1025, 16000])
    one, heads = np.ones(4), np.full(4, 32.0)
    us, _ = references.prefill(one, length, heads, one * 8, one * 128, one * 0, gpu, 2.0)
    assert (np.diff(us) > 0).all()
    short, _ = references.prefill(one, length, heads, one * 8, one * 128, one * 128, gpu, 2.0)
    assert (short <= us + 1e-9).all() and short[-1] < us[-1] / 4  # a window leaves most pairs out


def test_flash_attention_splits_as_its_heuristic_does() -> None:
    splits = references.flash_splits(np.array([1.0, 8, 64, 120, 500]), np.array([32.0, 32, 32, 32, 32]), 132.0)
    assert splits.tolist() == [32, 16, 2, 1, 1]


def test_deep_gemm_takes_the_fewest_waves_then_the_fullest() -> None:
    hopper = chip(load_gpu("H100"), "fp8")
    rows, columns, waves, used = references.deep_gemm_blocks(np.array([2561.0, 2817.0]), np.array([1024.0, 1024.0]), hopper)
    assert (rows.tolist(), columns.tolist()) == ([128, 256], [192, 96])
    assert (waves.tolist(), used.tolist()) == ([1, 1], [126, 132])


def test_the_newest_kernel_answers_unless_another_is_asked_for(predictor) -> None:
    model = predictor.weights.library[kernels.PREFILL]
    found = model.answering(attention("prefill", 3, 999), "H100")
    assert (found.stack, found.version) == ("vllm", "0.24.0")
    found = model.answering(attention("prefill", 3, 999, stack="sglang"), "H100")
    assert (found.stack, found.implementation) == ("sglang", "fa3")
    found = model.answering(attention("prefill", 3, 999, implementation="triton"), "H100")
    assert (found.stack, found.implementation) == ("sglang", "triton")


def test_every_measured_kind_is_predicted_with_an_interval(predictor) -> None:
    for problem in (gemm(130, 4096, 7168, stack="vllm"), attention("prefill", 3, 999), attention("decode", 3, 999)):
        for name in ("H100", "L40S", "L40", "GB300"):
            found = predictor.predict(problem, None, load_gpu(name))
            assert found.low_us[0] < found.us[0] < found.high_us[0]
            assert found.learned[0] == (name in ("H100", "L40S"))  # the others were never measured
            assert 2 < found.us[0] < 1000


def test_intervals_of_gpus_never_measured_are_wider(predictor) -> None:
    problem = gemm(130, 4096, 7168, stack="vllm")
    measured, other = (predictor.predict(problem, None, load_gpu(name)) for name in ("B300", "GB300"))
    assert other.high_us[0] / other.low_us[0] > measured.high_us[0] / measured.low_us[0]


def test_another_kernel_is_left_to_the_analytical_model(predictor) -> None:
    model = predictor.weights.library[kernels.PREFILL]
    chunked = attention("prefill", 1, 512)
    chunked = replace(chunked, sizes={**chunked.sizes, "N": np.array([4096.0])})
    assert np.isinf(model.beyond(chunked)).all()
    assert predictor.predict(chunked, None, load_gpu("H100")).analytical == 1
    assert predictor.library_reference(chunked, load_gpu("H100")) is None


def test_a_batch_of_products_is_another_kernel_and_one_product_is_not(predictor) -> None:
    model, one = predictor.weights.library["gemm bf16"], gemm(16, 8192, 8192, stack="vllm")
    batches = [replace(one, sizes={**one.sizes, "B": np.array([count])}) for count in (1.0, 3.0)]
    assert [model.beyond(each)[0] for each in batches] == [1, np.inf]
    alone, same = (predictor.predict(each, None, load_gpu("B200")).us[0] for each in (one, batches[0]))
    assert alone == same


def test_the_library_reference_is_no_triton_kernel_and_says_where_it_was_measured(predictor) -> None:
    found = predictor.library_reference(attention("prefill", 1, 4096), load_gpu("B200"))
    assert found.origin == "predicted" and "on B200" in found.source and "riton" not in found.source
    assert found.low_us < found.us < found.high_us
    assert "never measured on L40" in predictor.library_reference(gemm(512, 4096, 4096), load_gpu("L40")).source
    assert "on L40S" in predictor.library_reference(gemm(512, 4096, 4096), load_gpu("L40S")).source
    assert predictor.library_reference(gemm(512, 4096, 4096, dtype="fp8", block_shape=(128, 128)), load_gpu("MI300X"))
    assert predictor.library_reference(gemm(512, 4096, 4096), load_gpu("MI300X")) is None  # never measured there in bf16


def test_names_in_words() -> None:
    assert Series("H100", "sglang", "0.5.14", "fa3").words == "SGLang 0.5.14 on H100, FlashAttention 3"


def test_what_a_step_finds_in_dram_takes_longer_than_what_is_read_again(predictor) -> None:
    for gpu in (load_gpu("H100"), load_gpu("L20")):
        warm, cold = (attention("decode", 8, 1000, cache=cache) for cache in ("warm", "cold"))  # 33 MB, in the L2 of both
        assert predictor.predict(cold, None, gpu).us > 1.05 * predictor.predict(warm, None, gpu).us
        warm, cold = (gemm(8, 2048, 1024, stack="vllm", cache=cache) for cache in ("warm", "cold"))
        assert predictor.predict(cold, None, gpu).us > predictor.predict(warm, None, gpu).us
    large = [gemm(8, 28_672, 8192, stack="vllm", cache=cache) for cache in ("warm", "cold")]
    first, second = (float(predictor.predict(each, None, load_gpu("H100")).us[0]) for each in large)
    assert first == pytest.approx(second, rel=0.02)


def test_a_gpu_runs_the_kernels_of_its_own_target(predictor) -> None:
    references, decode = (predictor.weights.library[kind] for kind in ("gemm bf16", kernels.DECODE))
    assert set(references.relatives(load_gpu("H20"))) == {"H100", "H200"}  # though its SMs multiply as fast as those of the RTX PRO 6000
    assert decode.relatives(load_gpu("L4")) == ["L40S"] and decode.relatives(load_gpu("RTX 5090")) == ["RTX PRO 6000 S"]
    for name in ("RTX 4090", "RTX 5090"):  # products without a generation's own instructions
        assert set(references.relatives(load_gpu(name))) == {"L40S", "RTX PRO 6000 S"}
    for name in ("L4", "A40", "L20"):  # sums in fp32 at the full rate: not at the L40S's power limit
        assert references.relatives(load_gpu(name)) == ["RTX PRO 6000 S"]
    assert references.relatives(load_gpu("A100-40GB")) == ["A100"]


def test_small_tiles_keep_slow_matrix_units_busy() -> None:
    m, n, k = (np.array([each]) for each in (8.0, 27_648.0, 5120.0))
    h20, h100 = (chip(load_gpu(name), "bf16") for name in ("H20", "H100"))
    ours, theirs = (float(references.gemm(m, n, k, each, references.PLAIN)[0][0]) for each in (h20, h100))
    assert ours > theirs  # 64 rows of 8, at a quarter of the rate
    padded = 2 * 64 * 27_648 * 5120 / (h20.rate * h20.sms * h20.clock)
    assert padded < ours < 1.3 * padded


def test_fp16_is_what_was_measured_of_bf16(predictor) -> None:
    for asked in (gemm(16, 4096, 4096), gemm(512, 4096, 4096), attention("decode", 8, 4096)):
        found = [predictor.predict(replace(asked, dtype=dtype), None, load_gpu("H100")) for dtype in ("bf16", "fp16")]
        assert found[0].us[0] == pytest.approx(found[1].us[0], rel=0.03) and found[0].low_us[0] < found[1].high_us[0]


def test_a_gpu_of_a_measured_target_is_answered_for_by_what_was_measured_there(predictor) -> None:
    """Posted of an RTX 5090, fp8, N=6144 K=4096: 12.2 µs of one token, 40.3 of 256; the model of H20 and H800 says 59 of both."""
    us = [float(predictor.predict(gemm(m, 6144, 4096, dtype="fp8"), None, load_gpu("RTX 5090")).us[0]) for m in (1, 256)]
    assert us[0] < 25 and us[0] * 1.3 < us[1] < 45


def test_fp8_on_blackwell_of_workstations_is_the_kernel_measured_there():
    sizes = {"M": column(1), "N": column(6144), "K": column(4096)}
    problem = ProblemBatch(family="gemm", op="gemm", sizes=sizes, dtype="fp8")
    gpu, predictor = load_gpu("RTX 5090"), load_predictor()
    library = predictor.library_reference(problem, gpu)
    assert library is not None and predictor.predict(problem, None, gpu).us[0] == pytest.approx(library.us, rel=0.01)
