"""What published operators need, their bounds, and who answers for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.learned.operators import model as operator_model
from advisor.learned.operators.sparse import HOST
from advisor.learned.operators.work import KIND_OF, KINDS, columns_of
from advisor.rows.columns import CONNECTIONS, PUBLISHED_OPERATORS

GPU = load_gpu("H200")


def sparse(op="dsa_context_module", architecture="DeepseekV32ForCausalLM", kernel="FLASHMLA_SPARSE", form="fp8_block", **sizes):
    sizes = {"batch_size": 1, "isl": 4096, "step": 0, "num_heads": 128} | sizes
    words = {
        "op_name": op,
        "kernel_source": kernel,
        "architecture": architecture,
        "model": "",
        "gemm_type": form,
        "kv_cache_dtype": "bfloat16",
    }
    n = max(np.size(each) for each in sizes.values())
    cells = {name: np.broadcast_to(np.asarray(each, dtype=float), (n,)) for name, each in sizes.items()}
    return columns_of(KIND_OF[op], cells | {name: np.full(n, each) for name, each in words.items()}, n)


def rule(kernel, **sizes):
    sizes = {"batch_size": 4, "seq_len": 1, "num_k_heads": 16, "head_k_dim": 128, "num_v_heads": 32, "head_v_dim": 128} | sizes
    words = {"op_name": "gdn", "kernel_source": kernel, "phase": "generation"}
    cells = {name: np.array([float(each)]) for name, each in sizes.items()} | {name: np.array([each]) for name, each in words.items()}
    return columns_of("linear attention", cells, 1)


def test_rows_and_weights_name_the_same_operators():
    assert set(KIND_OF) == PUBLISHED_OPERATORS | set(CONNECTIONS.values())
    models = operator_model.load_shipped()
    assert set(models) == set(KINDS) and all(model.is_better for model in models.values())


def test_work_of_a_decoding_rule_is_its_state_read_and_written():
    rows = rule("fused_recurrent_gated_delta_rule_packed_decode")
    (_, dram, l2, _) = KINDS["linear attention"].stages(rows, GPU)["kernel"]
    _, least = KINDS["linear attention"].least(rows, GPU)
    assert least[0] == pytest.approx(2 * 4 * 32 * 128 * 128 * 2 + 4 * (2 * 16 * 128 + 2 * 32 * 128) * 2)  # two bytes a value at the least
    assert dram[0] > 0 and l2[0] > 0
    cold, warm = (operator_model.bound(rows, GPU, cold=each)[0][0] for each in (True, False))
    assert cold > 1.5 * warm  # 8 MB fit the L2


def test_keys_beyond_those_chosen_cost_the_indexer_alone():
    rows = sparse(op="dsa_generation_module", isl=1, batch_size=64, step=[4096, 65536])
    stages = KINDS[rows.kind].stages(rows, GPU)
    assert stages["attention"][0][0] == stages["attention"][0][1] > 0  # 2,048 keys either way
    assert stages["scores"][0][1] == pytest.approx(16 * stages["scores"][0][0], rel=0.01)
    skipped = sparse(op="dsa_generation_module_skip_indexer", isl=1, batch_size=64, step=65536)
    assert KINDS[rows.kind].stages(skipped, GPU)["scores"][0][0] == 0


def test_queries_of_a_sequence_may_choose_the_same_keys():
    """An H100 took 2,215 us for 16 tokens of each of 256 sequences, less than reading 2,048 keys for every token would take it."""
    rows = sparse("dsa_context_module_skip_indexer", "GlmMoeDsaForCausalLM", batch_size=256, isl=[1, 16], step=65536, num_heads=8)
    _, moved = KINDS[rows.kind].least(rows, GPU)
    assert moved[0] == moved[1] > 256 * 2048 * 576 * 2
    assert operator_model.bound(rows, load_gpu("H100"))[0][1] < 2215


def test_short_prompts_are_dense_where_the_kernel_is():
    dense = sparse(kernel="sglang_dsa_dense_mha_fa3", isl=1024)
    stages = KINDS[dense.kind].stages(dense, GPU)
    assert stages["dense"][0][0] > 0 == stages["attention"][0][0] == stages["scores"][0][0]


def test_matrices_of_heads_are_apart_from_those_that_every_rank_holds():
    """Half the heads on a rank halve the one stage and leave the other."""
    rows = sparse(num_heads=[128, 64])
    stages = KINDS[rows.kind].stages(rows, GPU)
    fixed, of_heads = (stages[name][0] for name in ("projections", "projections of heads"))
    assert fixed[0] == fixed[1] > 0 and of_heads[0] == pytest.approx(2 * of_heads[1])
    per_head, shared = 1536 * 192 + 512 * 256 + 128 * 7168, 7168 * 2112 + 64 * 128 * 1536 + 7168 * 192  # with the indexer's
    assert of_heads[0] / fixed[0] == pytest.approx(128 * per_head / shared)


def test_selections_alone_go_in_rounds_of_the_queries_that_choose():
    """SGLang's kernel has a thread for each key that it chooses, so that an SM takes three blocks at once of 512 and two of 1,024."""
    rounds = {}
    for module in ("DeepseekV4Flash", "DeepseekV4ForCausalLM"):
        rows = sparse("dsv4_csa_topk_calib", module, "topk_transform_v1", isl=1, batch_size=6 * GPU.num_sms, step=[2047, 65535])
        rounds[module] = KINDS[rows.kind].stages(rows, GPU)["rounds of selection"][3]
        assert rounds[module][0] == 0 and set(rows.sizes["num_heads"]) == {1}  # 512 keys of 512 or 1,024: none is left
    flash, pro = (each[1] for each in rounds.values())
    assert flash / pro == pytest.approx(2 * (40 + 2 * 16384 / 512) / (3 * (40 + 2 * 16384 / 1024)), rel=0.001)


def test_large_decodes_are_launched_by_the_host():
    rows = sparse(op="dsa_generation_module", isl=1, step=64, batch_size=[256, 512])
    assert KINDS[rows.kind].stages(rows, GPU)[HOST][0].tolist() == [0.0, 10.0]


def test_reference_is_the_sum_of_stages_behind_the_host():
    one = np.ones(1)
    stages = {"a": (10 * one, 0 * one, 0 * one, 0 * one), "b": (0 * one, 20 * one, 0 * one, 0 * one)}
    constants = np.log(np.array([2.0, 1e-6, *[1.0] * 8]))
    us, parts = operator_model.reference(stages, constants)
    assert us[0] == pytest.approx(32) and parts[0].tolist() == pytest.approx([10, 20])
    constants[1] = np.log(1000.0)
    assert operator_model.reference(stages, constants)[0][0] == pytest.approx(1000, rel=1e-4)


def test_a_gpu_never_measured_is_told_as_its_relatives():
    found = operator_model.load_shipped()["DSA decode"]
    assert found.relatives(load_gpu("GB300")) == ("B300",) and found.answers_for(load_gpu("GB300"))
    assert not found.answers_for(load_gpu("MI300X")) and not found.answers_for(load_gpu("RTX 4090"))
    # Below the crude baseline on GPUs left out, only those that were measured are answered.
    gpus = found.held_out["gpus"]
    below = replace(found, held_out={**found.held_out, "gpus": {**gpus, "all": {**gpus["all"], "mape": gpus["all"]["baseline"] + 1.0}}})
    assert below.answers_for(load_gpu("B300")) and not below.answers_for(load_gpu("GB300"))
    place = found.answering("dsa_generation_module", "vllm", "", "", ("fp8_block", "bfloat16"), load_gpu("GB300"))
    series = found.series[place]
    assert (series.stack, series.words) == ("vllm", ("fp8_block", "bfloat16"))
    rows = sparse(op="dsa_generation_module", isl=1, step=4096, batch_size=[1, 16, 256])
    told = found.predict(rows, np.full(3, place), load_gpu("GB300"))
    assert not told.seen and (told.low_us < told.us).all() and (told.us < told.high_us).all() and (np.diff(told.us) > 0).all()
    least, _ = operator_model.bound(rows, load_gpu("GB300"))
    assert (told.low_us >= least).all()


@pytest.mark.parametrize(
    ("name", "measured", "expected"),
    [
        ("GB200", ("B200", "GB200"), [(1, "GB200")]),
        ("GB300", ("B200", "B300", "GB200", "H100"), [(1, "B300"), (1, "GB200"), (-1, "B200")]),
        ("B300", ("B200", "GB200"), [(0.5, "B200"), (0.5, "GB200"), (0.5, "B200"), (-0.5, "GB200")]),
        ("GB200", ("B200", "B300"), [(1, "B200")]),  # nothing is known of its host
        ("MI300X", ("B200",), []),
    ],
)
def test_relatives_answer_as_beside_the_host_of_the_gpu_asked_for(name, measured, expected):
    answering = operator_model.answering_for(load_gpu(name), measured)
    assert [share for share, _ in answering] == [share for share, _ in expected]
    for (_, told), (_, other) in zip(answering, expected, strict=True):
        np.testing.assert_array_equal(told, operator_model.identity(load_gpu(other)))


def test_a_host_that_was_measured_beside_another_gpu_is_known():
    """vLLM launches a short prompt's kernels one by one: 2.6 ms beside Grace where a B200's host takes 1.3."""
    found = operator_model.load_shipped()["DSA prefill"]
    rows = sparse(isl=[32, 256], kernel="FLASHINFER_MLA_SPARSE")
    place = found.answering("dsa_context_module", "vllm", "0.24.0", "FLASHINFER_MLA_SPARSE", ("fp8_block", "bfloat16"), load_gpu("B300"))
    us = {name: found.predict(rows, np.full(2, place), load_gpu(name)).us for name in ("B200", "GB200", "B300", "GB300")}
    assert (us["GB200"] > 1.4 * us["B200"]).all() and us["GB300"] / us["B300"] == pytest.approx(us["GB200"] / us["B200"], rel=0.15)


def test_models_are_stored_and_read_to_the_bit():
    found = operator_model.load_shipped()["hyper-connections"]
    again = operator_model.load(found.arrays())["hyper-connections"]
    assert again.series == found.series and again.measured == found.measured and again.held_out == found.held_out


def test_intervals_of_models_never_measured_are_those_of_models_left_out():
    """Heads that nobody measured: the interval is that of the errors on models left out, which are larger than on pairs left out."""
    found = operator_model.load_shipped()["MSA decode"]
    sizes = {"op": "msa_generation_module", "architecture": "MiniMaxM3ForCausalLM", "kernel": "", "isl": 1, "step": 4096, "batch_size": 16}
    place = found.answering("msa_generation_module", "vllm", "", "", ("bfloat16", "bfloat16"), GPU)
    rows = {heads: sparse(**sizes, num_heads=heads, form="bfloat16") for heads in (16, 20)}
    known, other = (found.predict(each, np.array([place]), GPU) for each in rows.values())
    assert [np.isin(operator_model.model_of(each), found.models).all() for each in rows.values()] == [True, False]
    assert found.held_out["models"]["all"]["mape"] > found.held_out["pairs"]["all"]["mape"]
    assert other.high_us / other.low_us > known.high_us / known.low_us
