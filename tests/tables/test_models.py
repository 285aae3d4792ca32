"""The models, and which of them a table fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.system.errors import UsageError
from advisor.tables.models import MODELS, ModelChoice, candidates, find_model, fused_experts, resolve
from advisor.tables.names import parse_table_name

QWEN = parse_table_name("E=128,N=768,device_name=NVIDIA_H20.json")


def name(E: int, N: int, rest: str = "") -> str:
    return f"E={E},N={N},device_name=X{rest}.json"


@pytest.mark.parametrize(
    ("model", "E", "top_k", "H", "N"),
    [
        ("Qwen3-30B-A3B", 128, 8, 2048, 768),
        ("Mixtral-8x7B", 8, 2, 4096, 14336),
        ("Mixtral-8x22B", 8, 2, 6144, 16384),
        ("deepseek-ai/DeepSeek-R1", 256, 8, 7168, 2048),
        ("deepseek_v2_lite", 64, 6, 2048, 1408),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", 128, 8, 2048, 768),
        ("gpt-oss-120b", 128, 4, 2880, 2880),
        ("Kimi-K2", 384, 8, 7168, 2048),
        ("Llama-4-Scout", 16, 1, 5120, 8192),
        ("GLM-4.5-Air", 128, 8, 4096, 1408),
    ],
)
def test_find_model(model: str, E: int, top_k: int, H: int, N: int) -> None:
    found = find_model(model)
    assert (found.E, found.top_k, found.H, found.N) == (E, top_k, H, N)


def test_names_are_unique_and_sizes_sound() -> None:
    names = [known.lower() for model in MODELS for known in (model.name, *model.aliases)]
    assert len(names) == len(set(names))
    assert all(0 < model.top_k <= model.E and model.H % 64 == 0 and model.N % 32 == 0 for model in MODELS)
    assert all(find_model(known).name == model.name for model in MODELS for known in (model.name, *model.aliases))


@pytest.mark.parametrize("unknown", ["Qwen", "", "GPT-5", "<b>"])
def test_unknown_model(unknown: str) -> None:
    with pytest.raises(UsageError, match="--hidden-size") as caught:
        find_model(unknown)
    message = str(caught.value)
    assert "advisor models" in message and len(message) < 400
    assert 1 <= sum(model.name in message for model in MODELS) <= 4


def test_an_unknown_model_is_told_the_nearest() -> None:
    with pytest.raises(UsageError, match="such as Qwen3-30B-A3B, "):
        find_model("Qwen3-30B")


def test_a_table_that_fits_several_models_asks() -> None:
    with pytest.raises(UsageError) as caught:
        resolve(QWEN, ModelChoice())
    message = str(caught.value)
    assert "Qwen3-30B-A3B (H=2048" in message and "Qwen3-235B-A22B, tensor-parallel 2" in message
    assert "--model NAME" in message and "--hidden-size H --top-k K" in message


def test_what_the_user_says_settles_it() -> None:
    assert resolve(QWEN, ModelChoice(model="Qwen3-30B-A3B")).H == 2048
    assert resolve(QWEN, ModelChoice(tensor_parallel=2)).model == "Qwen3-235B-A22B, tensor-parallel 2"
    assert resolve(QWEN, ModelChoice(hidden_size=2048)).top_k == 8
    given = resolve(QWEN, ModelChoice(hidden_size=1000, top_k=3))
    assert (given.H, given.top_k, given.model) == (1000, 3, None)


def test_candidates() -> None:
    (mixtral,) = [c for c in candidates(8, 3584) if c.model.name == "Mixtral-8x7B"]
    assert (mixtral.tensor_parallel, mixtral.expert_parallel) == (4, 1)
    fused = next(c for c in candidates(257, 256) if c.model.name == "DeepSeek-V3")
    assert (fused.H, fused.top_k, fused.tensor_parallel, fused.fused_shared) == (7168, 9, 8, 1)
    early = next(c for c in candidates(272, 128) if c.model.name == "DeepSeek-V3")
    assert (early.tensor_parallel, early.fused_shared) == (16, 16)
    local = next(c for c in candidates(32, 2048) if c.model.name == "DeepSeek-V3")
    assert local.expert_parallel == 8
    assert candidates(7, 13) == ()


def test_one_candidate_and_several_that_agree() -> None:
    assert resolve(parse_table_name(name(64, 1280)), ModelChoice()).model == "Qwen2-57B-A14B, tensor-parallel 2"
    local = parse_table_name(name(1, 14336))  # one expert per rank, two experts per token
    assert resolve(local, ModelChoice(model="Mixtral-8x7B")).top_k == 2
    assert resolve(local, ModelChoice(hidden_size=4096, top_k=2, expert_parallel=8)).H == 4096
    nemotron = resolve(parse_table_name(name(128, 1856)), ModelChoice())
    assert (nemotron.H, nemotron.top_k, nemotron.gated) == (2688, 6, False)


def test_none_fits() -> None:
    with pytest.raises(UsageError, match="fits no model"):
        resolve(parse_table_name(name(7, 13)), ModelChoice())
    assumed = resolve(parse_table_name(name(7, 13)), ModelChoice(), assume=True)
    assert (assumed.H, assumed.top_k) == (4096, 7) and "assumed" in (assumed.assumption or "")


def test_assume_takes_the_commonest_and_says_so() -> None:
    assumed = resolve(QWEN, ModelChoice(), assume=True)
    assert assumed.model == "Qwen3-30B-A3B" and "is assumed" in (assumed.assumption or "")
    assert resolve(QWEN, ModelChoice(model="Qwen3-30B-A3B"), assume=True).assumption is None
    assert (resolve(parse_table_name(name(256, 256)), ModelChoice(), assume=True).model or "").startswith("DeepSeek-V3")


@pytest.mark.parametrize(
    "options",
    [
        {"hidden_size": 0},
        {"top_k": 0},
        {"top_k": 129},
        {"hidden_size": 2**31},
        {"tensor_parallel": -1},
        {"model": "Mixtral-8x7B"},
        {"model": "Qwen3-30B-A3B", "tensor_parallel": 2},
        {"model": "Qwen3-30B-A3B", "hidden_size": 4096},
    ],
)
def test_contradictions(options: dict[str, object]) -> None:
    for assume in (False, True):
        with pytest.raises(UsageError):
            resolve(QWEN, ModelChoice(**options), assume=assume)  # type: ignore[arg-type]


def test_a_gemm_table_has_no_model() -> None:
    with pytest.raises(UsageError, match="GEMM"):
        resolve(parse_table_name("N=8,K=2,device_name=X,dtype=fp8_w8a8,block_shape=[128,128].json"), ModelChoice())


def test_every_shipped_table_gets_an_answer(corpus_dir: Path) -> None:
    known = total = 0
    for path in corpus_dir.glob("*/fused_moe/**/*.json"):
        resolution = resolve(parse_table_name(path), ModelChoice(), assume=True)
        assert resolution.H > 0 and resolution.top_k > 0
        known += resolution.model is not None
        total += 1
    assert known / total > 0.9


def test_a_split_that_does_not_fit_says_what_to_pass():
    local = parse_table_name("E=16,N=2048,device_name=NVIDIA_H20.json")
    for given, said in (({"expert_parallel": 8}, "--expert-parallel 8"), ({"tensor_parallel": 8}, "--tensor-parallel 8")):
        with pytest.raises(UsageError) as raised:
            resolve(local, ModelChoice(model="DeepSeek-V3", **given))
        text = str(raised.value)
        assert said in text and "expected --tensor-parallel 1 --expert-parallel 16" in text and "on a rank" in text
    assert resolve(local, ModelChoice(model="DeepSeek-V3", expert_parallel=16)).expert_parallel == 16
    other = parse_table_name("E=128,N=768,device_name=NVIDIA_H20.json")
    with pytest.raises(UsageError, match=r"no table of DeepSeek-V3.*256 / expert-parallel.*--model Qwen3-30B-A3B"):
        resolve(other, ModelChoice(model="DeepSeek-V3"))
    odd = parse_table_name("E=7,N=77,device_name=NVIDIA_H20.json")
    with pytest.raises(UsageError, match="another --model"):
        resolve(odd, ModelChoice(model="DeepSeek-V3"))


@pytest.mark.parametrize(
    ("name", "stack", "ranks", "fused"),
    [
        ("DeepSeek-R1", "sglang", 1, 1),
        ("GLM-4.5-Air-FP8", "sglang", 1, 1),
        ("DeepSeek-R1", "vllm", 1, 0),
        ("DeepSeek-R1", "sglang", 8, 0),
        ("DeepSeek-V3.2-Exp", "sglang", 1, 0),
        ("Kimi-K2", "sglang", 1, 0),
        ("Qwen3-30B-A3B", "sglang", 1, 0),
    ],
)
def test_sglang_runs_some_shared_experts_as_routed_ones(name: str, stack: str, ranks: int, fused: int) -> None:
    """Its tables of DeepSeek-V3 are named E=257, those of GLM-4.5 E=161; under expert parallelism the shared expert stays apart."""
    assert fused_experts(name, stack, ranks) == fused
