"""The closed forms of every family against a count over all CTAs."""

from __future__ import annotations

import brute_force
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.gpus.hardware import load_gpu
from advisor.pipelines import ConfigurationBatch, ProblemBatch, batch, column, demand, work
from advisor.pipelines.attention import scored_pairs
from advisor.pipelines.elementwise import OPERATORS

GPU = load_gpu("H100")
FEW = settings(max_examples=25, derandomize=True, deadline=None)
SIZE = st.integers(1, 13)
BLOCK = st.sampled_from([1, 2, 4, 8])
DTYPE_BYTES = {"bf16": 2, "fp32": 4, "fp8": 1}


def sizes_of(**sizes: int) -> dict[str, np.ndarray]:
    return {name: column(value) for name, value in sizes.items()}


def config_of(**parameters: int) -> ConfigurationBatch:
    return ConfigurationBatch(
        parameters={name: column(value) for name, value in parameters.items()},
        num_warps=column(4),
        num_stages=column(3),
    )


def check(problem: ProblemBatch, config: ConfigurationBatch, counted: brute_force.Count, *, loop: bool = True) -> None:
    """Everything a count and a demand both know."""
    d, w = demand(problem, config, GPU), work(problem, GPU)
    assert d.ctas[0] == counted.ctas
    assert d.cta_load_bytes[0] * d.ctas[0] == pytest.approx(counted.load_bytes)
    assert d.cta_store_bytes[0] * d.ctas[0] == pytest.approx(counted.store_bytes)
    assert d.compulsory_bytes[0] == pytest.approx(counted.distinct_bytes)
    assert w.compulsory_bytes[0] == pytest.approx(counted.distinct_bytes)
    totals = d.totals()
    assert totals["tensor"][0] + (totals["fma"][0] if d.tensor_dtype is None else 0) == pytest.approx(counted.flop + counted.fma)
    assert totals["xu"][0] == pytest.approx(counted.xu)
    if loop:
        assert d.k_iterations[0] * d.ctas[0] == pytest.approx(counted.steps)


@FEW
@given(SIZE, SIZE, SIZE, st.integers(1, 3), BLOCK, BLOCK, BLOCK, st.sampled_from([1, 2, 3]), st.sampled_from(["bf16", "fp32"]))
def test_gemm(m, n, k, batch, block_m, block_n, block_k, split, dtype) -> None:
    width = DTYPE_BYTES[dtype]
    problem = ProblemBatch(family="gemm", op="gemm", sizes=sizes_of(M=m, N=n, K=k, B=batch), dtype=dtype)
    config = config_of(BLOCK_SIZE_M=block_m, BLOCK_SIZE_N=block_n, BLOCK_SIZE_K=block_k, SPLIT_K=split)
    check(problem, config, brute_force.gemm(m, n, k, batch, block_m, block_n, block_k, split, width, width))
    w = work(problem, GPU)
    assert w.tensor_flop[0] + w.fma_flop[0] == 2 * m * n * k * batch


@FEW
@given(SIZE, SIZE, SIZE, BLOCK, BLOCK)
def test_block_scaled_gemm(m, n, k, block_m, block_k) -> None:
    """A column tile that spans whole scale blocks reads each once."""
    problem = ProblemBatch(family="gemm", op="gemm", sizes=sizes_of(M=m, N=n, K=k), dtype="fp8", block_shape=(4, 4))
    config = config_of(BLOCK_SIZE_M=block_m, BLOCK_SIZE_N=8, BLOCK_SIZE_K=block_k)
    check(problem, config, brute_force.gemm(m, n, k, 1, block_m, 8, block_k, 1, 1, 2, (4, 4)))


@FEW
@given(st.sampled_from(["w13", "w2"]), st.integers(1, 9), st.integers(1, 6), st.integers(1, 3), SIZE, SIZE, BLOCK, BLOCK, BLOCK)
def test_fused_moe_uniform(op, tokens, experts, topk, h, n, block_m, block_n, block_k) -> None:
    """Also with fewer slots than experts."""
    topk = min(topk, experts)
    problem = ProblemBatch(family="fused_moe", op=op, sizes=sizes_of(M=tokens, E=experts, topk=topk, H=h, N=n))
    config = config_of(BLOCK_SIZE_M=block_m, BLOCK_SIZE_N=block_n, BLOCK_SIZE_K=block_k)
    held = brute_force.route_round_robin(tokens, experts, topk)
    check(problem, config, brute_force.moe_product(op, held, topk, h, n, block_m, block_n, block_k, 2, 2))
    d = demand(problem, config, GPU)
    assert d.launched_ctas[0] >= d.ctas[0]
    assert work(problem, GPU).tensor_flop[0] == 2 * tokens * topk * 2 * n * h / (1 if op == "w13" else 2)


@st.composite
def routed(draw: st.DrawFn) -> tuple[int, list[int]]:
    """Tokens, and a histogram that each token's distinct choices make; some experts stay idle."""
    tokens, experts = draw(st.integers(1, 6)), draw(st.integers(2, 6))
    topk = draw(st.integers(1, experts))
    histogram = [0] * experts
    for _ in range(tokens):
        for expert in draw(st.permutations(range(experts)))[:topk]:
            histogram[expert] += 1
    return tokens, histogram


@FEW
@given(st.sampled_from(["w13", "w2"]), routed(), SIZE, SIZE, BLOCK, BLOCK, st.booleans())
def test_fused_moe_histogram(op, tokens_and_histogram, h, n, block_m, block_n, block_scaled) -> None:
    tokens, histogram = tokens_and_histogram
    topk = sum(histogram) // tokens
    rows, count = batch.histogram(histogram, tokens * topk)
    problem = ProblemBatch(
        family="fused_moe",
        op=op,
        sizes=sizes_of(M=tokens, E=len(histogram), topk=topk, H=h, N=n),
        dtype="fp8" if block_scaled else "bf16",
        block_shape=(1, 4) if block_scaled else None,
        expert_rows=rows,
        expert_count=count,
    )
    held = brute_force.route_histogram(histogram, tokens)
    width, quantum = (1, (1, 4)) if block_scaled else (2, None)
    counted = brute_force.moe_product(op, held, topk, h, n, block_m, block_n, 4, width, 2, quantum)
    check(problem, config_of(BLOCK_SIZE_M=block_m, BLOCK_SIZE_N=block_n, BLOCK_SIZE_K=4), counted)


@FEW
@given(st.sampled_from(["activation", "combine"]), st.integers(1, 9), st.integers(1, 6), st.integers(1, 3), SIZE, SIZE, BLOCK)
def test_fused_moe_row_operators(op, tokens, experts, topk, h, n, block) -> None:
    topk = min(topk, experts)
    problem = ProblemBatch(family="fused_moe", op=op, sizes=sizes_of(M=tokens, E=experts, topk=topk, H=h, N=n))
    if op == "activation":
        counted = brute_force.rows_of_blocks(tokens * topk, n, 2, block, 1, 2, OPERATORS["silu_and_mul"].fma_flop, 2)
    else:
        counted = brute_force.rows_of_blocks(tokens, h, topk, block, 1, 2, topk - 1, 0)
    check(problem, config_of(BLOCK_SIZE=block), counted, loop=False)


@FEW
@given(st.sampled_from(sorted(set(OPERATORS) - {"sum"})), SIZE, SIZE, BLOCK, st.sampled_from([None, 1, 2, 4]))
def test_elementwise(op, rows, columns, block, rows_per_cta) -> None:
    problem = ProblemBatch(family="elementwise", op=op, sizes=sizes_of(B=rows, H=columns), dtype="fp32")
    known = OPERATORS[op]
    if rows_per_cta is None:
        counted = brute_force.flat_blocks(rows * columns, known.inputs, block, 4, known.fma_flop, known.xu_op)
        check(problem, config_of(BLOCK_SIZE=block), counted, loop=False)
        return
    counted = brute_force.rows_of_blocks(rows, columns, known.inputs, block, rows_per_cta, 4, known.fma_flop, known.xu_op)
    check(problem, config_of(BLOCK_SIZE=block, ROWS_PER_CTA=rows_per_cta), counted, loop=False)


@FEW
@given(st.sampled_from(["rms_norm", "layer_norm", "softmax"]), SIZE, st.integers(1, 40), st.sampled_from([4, 16, 64]), BLOCK)
def test_normalization(op, rows, length, block, rows_per_cta) -> None:
    problem = ProblemBatch(family="normalization", op=op, sizes=sizes_of(B=rows, H=length), dtype="fp32")
    config = config_of(BLOCK_SIZE=block, ROWS_PER_CTA=rows_per_cta)
    counted = brute_force.normalization(op, rows, length, block, rows_per_cta, 4)
    d = demand(problem, config, GPU)
    counted.fma = int(d.totals()["fma"][0])  # an estimate of the arithmetic, not a count
    check(problem, config, counted)
    assert d.useful_fraction[0] == pytest.approx(rows * length / (-(-rows // rows_per_cta) * rows_per_cta * -(-length // block) * block))


@FEW
@given(
    st.sampled_from(["prefill", "decode"]),
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 11),
    st.integers(1, 11),
    st.sampled_from([1, 3, 4]),
    st.booleans(),
    BLOCK,
    BLOCK,
    st.sampled_from([1, 2, 4]),
)
def test_attention(op, batch, group, kv_heads, m, n, d, causal, block_m, block_n, splits) -> None:
    """With more keys than queries, fewer, and as many; grouped heads; split keys; head sizes that are no power of two."""
    heads = group * kv_heads
    splits = splits if op == "decode" else 1
    problem = ProblemBatch(family="attention", op=op, sizes=sizes_of(B=batch, H=heads, H_kv=kv_heads, M=m, N=n, D=d, causal=int(causal)))
    config = config_of(BLOCK_M=block_m, BLOCK_N=block_n, NUM_KV_SPLITS=splits)
    counted = brute_force.attention(op, batch, heads, kv_heads, m, n, d, causal, block_m, block_n, splits, 2)
    check(problem, config, counted)
    asked = demand(problem, config, GPU)
    assert asked.largest_cta_ratio is not None
    assert asked.largest_cta_ratio[0] * asked.k_iterations[0] == pytest.approx(counted.most_steps)
    assert scored_pairs(column(m), column(n), column(int(causal)))[0] == brute_force.pairs_seen(m, n, causal)
    assert work(problem, GPU).tensor_flop[0] == 4 * batch * heads * d * brute_force.pairs_seen(m, n, causal)


@FEW
@given(st.integers(1, 500), st.integers(1, 300), st.integers(1, 16))
def test_uniform_routing(tokens, experts, topk) -> None:
    rows, count = batch.uniform(column(tokens), column(experts), column(topk))
    assert (rows * count).sum() == tokens * topk
    assert count.sum() == min(experts, tokens * topk)
    assert sorted(np.repeat(rows[0], count[0].astype(int))) == sorted(
        len(slots) for slots in brute_force.route_round_robin(tokens, experts, topk) if slots
    )


@FEW
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40).filter(any), st.integers(1, 5000))
def test_histogram_routing_sums_exactly(loads, slots) -> None:
    rows, count = batch.histogram(loads, slots)
    assert (rows * count).sum() == slots
    assert rows.min() > 0
    assert count.sum() <= sum(load > 0 for load in loads)


@pytest.mark.parametrize("dtype", ["fp8", "int8"])
@pytest.mark.parametrize("op", ["activation", "combine"])
def test_what_the_products_of_a_quantised_layer_store_is_bf16(op: str, dtype: str) -> None:
    """And is read by the operators after them."""
    sizes = {"M": 64, "E": 8, "topk": 2, "H": 512, "N": 256}
    found, plain = (
        work(ProblemBatch(family="fused_moe", op=op, sizes={n: column(v) for n, v in sizes.items()}, dtype=each), load_gpu("H100"))
        for each in (dtype, "bf16")
    )
    assert (found.compulsory_bytes == plain.compulsory_bytes).all() and (found.result_bytes == plain.result_bytes).all()


@pytest.mark.parametrize(("warps", "at_once"), [(1, 132 * 12), (16, 132 * 4), (32, 132 * 2)])
def test_rows_read_again_leave_the_l2_to_all_rows_under_way(warps: int, at_once: int) -> None:
    """Blocks of 2,048: an SM holds 12 CTAs of one warp for their registers, two of 32 for their warps. All read their rows at once."""
    problem = ProblemBatch(family="normalization", op="softmax", sizes=sizes_of(B=4096, H=32768))
    configuration = ConfigurationBatch(parameters={"BLOCK_SIZE": column(2048)}, num_warps=column(warps))
    asked = demand(problem, configuration, GPU)
    row_bytes = 2 * 32768
    missed = np.clip(at_once * row_bytes / GPU.l2_bytes - 0.5, 0, 1) * 4096 * row_bytes
    assert asked.dram_bytes[0] == pytest.approx(2 * 4096 * row_bytes + missed)
