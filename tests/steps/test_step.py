"""A step adds up: operators, collectives and gaps; its interval holds what errors of one kind do together."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.steps.collectives import load_constants
from advisor.steps.model_config import load_architecture, with_experts_in
from advisor.steps.step import StepRequest, predict_step, price
from advisor.steps.workload import Load, Split
from advisor.system.errors import UsageError


@pytest.fixture(scope="module")
def predictor():
    return load_predictor()


def asked(name: str = "Qwen2.5-14B", **more) -> StepRequest:
    return StepRequest(**{"model": load_architecture(name), "load": Load(contexts=(3000,) * 8)} | more)


def test_rows_add_up_to_the_step(predictor):
    found = predict_step(asked(split=Split(tensor=8), engine="sglang"), load_gpu("H800"), predictor)
    assert sum(row.total_us for row in found.operators) == pytest.approx(found.step.us)
    assert sum(row.share for row in found.operators) == pytest.approx(1)
    assert found.step.low_us < found.step.us < found.step.high_us
    assert found.tokens_per_s == pytest.approx(8e6 / found.step.us)
    assert all(row.bound_us <= row.us * 1.0001 for row in found.operators)
    assert all(row.library_us is None or row.library_us <= row.us for row in found.operators)


def test_without_graphs_the_host_is_waited_for(predictor):
    graph = predict_step(asked(), load_gpu("B200"), predictor)
    eager = predict_step(asked(eager=True), load_gpu("B200"), predictor)
    launches = sum(row.count for row in eager.operators if row.kind != "gaps")
    assert eager.step.us == pytest.approx(max(launches * load_constants().gaps["vllm"].launch_us, graph.step.us), rel=0.01)


def test_errors_of_one_kind_add_up_and_those_of_two_do_not(predictor):
    constants = replace(load_constants(), spread={"vllm": 1.0})
    priced = price(asked().operators(), load_gpu("H100"), predictor, constants, engine="vllm", eager=False)

    def half(kinds: set[str]) -> float:
        """Half the interval of the kernels of these kinds, in microseconds."""
        some = [(operator, cost) for operator, cost in priced.kernels if operator.kind in kinds]
        time = replace(priced, kernels=tuple(some)).time(constants)
        return time.us * math.log(time.high_us / time.us)

    products = [(o.count * c.us, c) for o, c in priced.kernels if o.kind == "gemm"]
    assert half({"gemm"}) == pytest.approx(sum(us * math.log(cost.high_us / cost.low_us) / 2 for us, cost in products), rel=0.02)
    assert half({"gemm", "attention"}) < 0.95 * (half({"gemm"}) + half({"attention"}))


def test_what_does_not_fit_is_known(predictor):
    small = predict_step(asked("Llama-3.1-70B"), load_gpu("L40S"), predictor)
    assert not small.memory.fits and small.memory.weights_bytes == pytest.approx(141e9, rel=0.01)
    assert predict_step(asked("Llama-3.1-70B", split=Split(tensor=4)), load_gpu("H100"), predictor).memory.fits


def test_stages_follow_one_another_and_share_the_work(predictor):
    one = predict_step(asked(), load_gpu("H100"), predictor)
    two = predict_step(asked(split=Split(pipeline=2)), load_gpu("H100"), predictor)
    assert two.step.us > one.step.us and two.tokens_per_s > 1.8 * one.tokens_per_s
    assert two.memory.kv_bytes == one.memory.kv_bytes / 2


def training(**more) -> StepRequest:
    """A training step of GPT-2 Large in fp32 on sequences of 1,024."""
    prompts = ((1024, 1024),) * more.pop("batch", 1)
    return asked("gpt2_large", load=Load(prompts=prompts), engine="torch", dtype="fp32", training=True, **more)


def test_what_could_run_at_the_same_time_is_said(predictor):
    copies = predict_step(training(replicas=4), load_gpu("A100"), predictor)
    reduced = next(row for row in copies.operators if row.kind == "collective")
    assert copies.caveats[0].startswith("gradients all-reduce: counted in sequence; behind backward") and (
        f"up to {reduced.total_us / 1e3:.3g} ms less" in copies.caveats[0]
    )
    assert copies.tokens_per_s == pytest.approx(4 * 1024e6 / copies.step.us)
    ranks = predict_step(training(split=Split(tensor=4)), load_gpu("A100"), predictor)
    assert ranks.caveats[0].startswith("activations all-reduce")
    stages = predict_step(training(split=Split(pipeline=4)), load_gpu("A100"), predictor)
    assert "75 % of the time" in stages.caveats[0] and stages.tokens_per_s == pytest.approx(1024e6 / stages.step.us)
    assert not predict_step(training(), load_gpu("A100"), predictor).caveats


def test_rows_of_pytorch_are_what_kernels_take_within_the_step(predictor):
    found = predict_step(training(split=Split(tensor=4)), load_gpu("A100"), predictor)
    gap = next(row for row in found.operators if row.kind == "gaps")
    assert sum(row.total_us for row in found.operators) == pytest.approx(found.step.us) and abs(gap.share) < 0.01
    assert all(row.bound_us <= row.us * 1.0001 and row.low_us <= row.us <= row.high_us for row in found.operators if row.kind != "gaps")
    alone = load_constants().curves.latency_us("all_reduce", 4 * 1024 * 1280, 4, load_gpu("A100"), "nccl")[0]
    assert next(row.us for row in found.operators if row.kind == "collective") == pytest.approx(alone)


def test_a_training_step_keeps_gradients_and_activations(predictor):
    found = predict_step(training(batch=4), load_gpu("A100-40GB"), predictor).memory
    assert found.weights_bytes == pytest.approx(2 * 4 * 774e6, rel=0.02) and found.kv_bytes == 0
    a_layer = 4 * 1024 * 1280 * (16 * 4 + 2) + 4 * 20 * 1024**2 * 9
    assert found.activations_bytes == pytest.approx(36 * a_layer) and not found.fits
    assert predict_step(training(), load_gpu("A100-40GB"), predictor).memory.fits


def test_an_engine_that_does_not_train_says_so(predictor):
    with pytest.raises(UsageError, match="does not train"):
        asked(training=True).operators()


def test_advice_names_the_largest_gain_first(predictor):
    found = predict_step(asked("Qwen3-30B-A3B", load=Load(contexts=(4096,) * 64)), load_gpu("H200"), predictor)
    assert found.advice and all("the step" in line for line in found.advice)
    gains = [float(re.search(r"gains at most ([\d.]+) %", line)[1]) for line in found.advice]
    assert gains == sorted(gains, reverse=True) and gains[0] >= 0.5
    near = [row.name for row in found.operators if row.us > 0 and row.bound_us / row.us > 0.85]
    assert not any(f" {name}:" in line for name in near for line in found.advice), "above 85 % of a bound nothing is advised"
    tuned = [line for line in found.advice if "tuning" in line]
    assert tuned and all(re.search(r", of it [\d.]+ % at most by tuning \(", line) for line in tuned), (
        "it is the ceiling, which no table reaches"
    )


def test_sglang_runs_flashinfer_on_the_a100(predictor):
    def attention_us(engine: str) -> float:
        found = predict_step(asked(engine=engine), load_gpu("A100"), predictor)
        return next(row.us for row in found.operators if row.kind == "attention")

    assert attention_us("sglang") == attention_us("vllm")


def test_block_products_on_blackwell_are_those_of_one_scale(predictor):
    load = Load(contexts=(1500,) * 4)
    found = predict_step(asked("DeepSeek-V3", load=load, split=Split(tensor=8), engine="sglang"), load_gpu("B200"), predictor)
    assert next(row.us for row in found.operators if row.name == "q_b_proj") < 10  # 15 with scales turned in every call
    assert not any(row.name.startswith("shared expert") or "quantisation" in row.name for row in found.operators)


def test_shared_experts_read_their_weights_once(predictor):
    """As routed ones of 66 they would make 42 used at eight tokens, not 37: a sixth more than the routed ones and theirs need."""
    operator, cost = experts_of("DeepSeek-V2-Lite", "L40S", predictor, batch=8)
    assert dict(operator.words)["shared"] == "2" and operator.sizes["E"] == 66
    weights = 3 * operator.sizes["H"] * operator.sizes["N"] * 2
    used = cost.bound_us * load_gpu("L40S").dram_bytes_per_s * load_gpu("L40S").dram_achievable_fraction / 1e6 / weights
    assert 30 < used < 36  # one draw in a hundred uses fewer


def experts_of(name: str, gpu: str, predictor, stored: str = "", **more):
    spec, load, model = load_gpu(gpu), Load(contexts=(512,) * more.pop("batch", 64)), load_architecture(name)
    request = StepRequest(model=with_experts_in(model, stored) if stored else model, load=load, split=Split(**more), engine="vllm")
    priced = price(request.operators(), spec, predictor, load_constants(), engine="vllm", eager=False)
    return next((operator, cost) for operator, cost in priced.kernels if operator.name == "experts")


def test_weights_of_four_bits_cost_their_bytes_on_amd(predictor):
    """By AITER's layers, which were measured: gpt-oss-120b's of 64 tokens take an MI355X 290 µs, 1.4 times what its weights do."""
    _, cost = experts_of("gpt-oss-20b", "MI355X", predictor)
    gpu = load_gpu("MI355X")
    least = 32 * 3 * 2880 * 2880 * 0.53125 / (gpu.dram_bytes_per_s * gpu.dram_achievable_fraction) * 1e6
    assert least < cost.bound_us * 1.02 and cost.us < 1.8 * least and "AITER" in cost.source


@pytest.mark.parametrize(("name", "tensor"), [("gpt-oss-120b", 1), ("DeepSeek-V3", 8)])
def test_layers_on_blackwell_are_those_of_the_kernels_that_engines_take(name, tensor, predictor):
    _, cost = experts_of(name, "B200", predictor, tensor=tensor)
    assert "TRT-LLM" in cost.source and not cost.tunable and cost.bound_us <= cost.low_us <= cost.us <= cost.high_us


@pytest.mark.parametrize("ranks", [{"tensor": 8}, {"tensor": 4, "experts": True}])
def test_experts_in_nvfp4_are_those_of_libraries_by_their_bytes_also_where_ranks_hold_whole_ones(ranks, predictor):
    eight, four = (experts_of("DeepSeek-V3", "B200", predictor, stored, **ranks)[1] for stored in ("", "nvfp4"))
    assert "(vLLM " in four.source and not four.tunable and four.bound_us <= four.low_us <= four.us <= four.high_us
    assert four.bound_us == pytest.approx(0.5625 * eight.bound_us, rel=0.1) and 0.4 < four.us / eight.us < 1


def test_a_model_without_experts_has_none_in_four_bits():
    with pytest.raises(UsageError, match="without experts"):
        with_experts_in(load_architecture("Qwen3-32B"), "nvfp4")


def test_the_bound_of_a_sum_of_kernels_counts_the_experts_that_random_tokens_use(predictor):
    operator, cost = experts_of("DeepSeek-V3", "MI300X", predictor, batch=8, tensor=8)
    sizes, gpu = operator.sizes, load_gpu("MI300X")
    assert sizes["M"] * sizes["topk"] < sizes["E"]
    used = sizes["E"] * (1 - (1 - sizes["topk"] / sizes["E"]) ** sizes["M"])
    weights = used * 3 * sizes["H"] * sizes["N"] * (1 if operator.dtype == "fp8" else 2)
    assert cost.bound_us < 1.05 * weights / gpu.dram_bytes_per_s * 1e6 + 3


def test_layers_that_triton_runs_stand_beside_the_best_library_of_their_format():
    """Faster or not: a library that takes longer gains nothing, and is named all the same."""
    request = StepRequest(model=load_architecture("Qwen3-30B-A3B"), load=Load(contexts=(4096,) * 8), engine="vllm")
    rows = {row.name: row for row in predict_step(request, load_gpu("H100"), load_predictor()).operators}
    experts = rows["experts"]
    assert experts.tunable and experts.library and f"library: {experts.library}" in experts.problem
    assert experts.bound_us < experts.library_us and experts.gain_at_library == pytest.approx(
        max(experts.us - experts.library_us, 0.0) * experts.count / sum(row.total_us for row in rows.values()), rel=1e-3
    )
