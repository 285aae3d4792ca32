"""What a report shows of a launch beside its latencies."""

from __future__ import annotations

import pytest

from advisor.advising import advise_target
from advisor.advising.launch_facts import occupancy
from advisor.advising.targets import Request
from advisor.advising.targets.resolve import resolve_target
from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.pipelines import ConfigurationBatch, ProblemBatch, analyse, column


@pytest.mark.parametrize(("warps", "most"), [(4, 255), (8, 255), (16, 128), (32, 64)])
def test_no_thread_has_more_registers_than_there_are(warps: int, most: int) -> None:
    """Tiles of 256 x 256 want more of an A100: 255 at most, and 65,536 among all threads of a CTA."""
    problem = ProblemBatch(family="gemm", op="gemm", sizes=dict.fromkeys("MNK", column(4096)))
    blocks = {f"BLOCK_SIZE_{name}": column(size) for name, size in (("M", 256), ("N", 256), ("K", 64))}
    gpu = load_gpu("A100")
    analysis = analyse(problem, ConfigurationBatch(parameters=blocks, num_warps=column(warps), num_stages=column(2)), gpu)
    assert analysis.demand.resources.registers[0] > most
    assert occupancy(analysis, gpu).registers_per_thread == most


SAID = "Assumes a warm L2"
ALIKE = "A cold L2 raises the bounds alone: the times are those of a warm one."


@pytest.mark.parametrize(
    ("tokens", "cache", "words"),
    [
        ((1,), "warm", "2 of 2 launches"),
        ((1, 1024), "warm", "2 of 4 launches"),
        ((1024,), "warm", None),
        ((1,), "cold", None),
        ((1024,), "cold", None),
    ],
)
def test_small_launches_find_their_operands_in_the_l2(tokens, cache, words):
    """One token asks for 8 experts, 50 MB of w13; 1,024 for all 128, more than any L2 holds."""
    target = resolve_target("fused_moe", Request(model="Qwen3-30B-A3B", gpu="H200", tokens=tokens, cache=cache))
    result = advise_target(target, load_predictor(), command="")
    said = [text for text in result.verdict.unknowns if SAID in text]
    assert len(said) == (words is not None) and all(str(words) in text for text in said)
    assert not (tokens == (1024,) and cache == "cold") or ALIKE in result.verdict.notes
    assert cache == "cold" or ALIKE not in result.verdict.notes
    if words is not None and len(tokens) == 1:
        cold = advise_target(
            resolve_target("fused_moe", Request(model="Qwen3-30B-A3B", gpu="H200", tokens=tokens, cache="cold")),
            load_predictor(),
            command="",
        )
        alike = [
            then.predicted.us == pytest.approx(now.predicted.us, rel=5e-3) for now, then in zip(result.launches, cold.launches, strict=True)
        ]
        assert (ALIKE in said[0]) == all(alike) == (ALIKE in cold.verdict.notes)
        assert all(then.bound.us > 1.2 * now.bound.us for now, then in zip(result.launches, cold.launches, strict=True)), "what it advises"
