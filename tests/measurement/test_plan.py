"""Campaigns: what they hold, in which order, and what they refuse."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.measurement.kernel_file import configurations
from advisor.measurement.launch import problem_key
from advisor.measurement.plan import (
    RECOMMENDED,
    SKEW,
    batches_of,
    informative_order,
    low_discrepancy,
    predicted_latency_us,
    problems_of,
    read_plan,
    visiting_order,
)
from advisor.pipelines import configuration_batch, problem_batch, token_draws
from advisor.system.errors import AdvisorError, InputError
from advisor.tables.entries import default_configuration

from .conftest import KERNELS, configuration, elementwise

CAMPAIGN = Path(__file__).parents[1] / "gpu" / "campaign.toml"
GPU = load_gpu("H200")
PLAN = replace(read_plan(CAMPAIGN), recommended=0)
"""Without asking the predictor, which takes its time: for what is measured, in whatever order within a problem."""


def test_the_campaign_has_what_it_should():
    plan = read_plan(CAMPAIGN)
    moe = [p for sweep in plan.sweeps for p in problems_of(sweep) if p.family == "fused_moe" and p.dtype == "bf16" and p.cache == "warm"]
    models = {tuple(p.sizes[name] for name in ("E", "topk", "H", "N")) for p in moe if p.op in ("w13", "w2")}
    for op, skewed in itertools.product(("w13", "w2"), (False, True)):
        cells = {
            (*(p.sizes[n] for n in ("E", "topk", "H", "N")), p.sizes["M"]) for p in moe if p.op == op and (p.routing is not None) == skewed
        }
        assert len(models) >= 12 and len({cell[-1] for cell in cells}) >= 18 and len(cells) >= 12 * 18
    kernels = {sweep.kernel.function for sweep in plan.sweeps}
    assert {"fused_moe_kernel", "gemm_kernel", "gemm_persistent_kernel", "attention_kernel", "decode_kernel"} < kernels and len(
        kernels
    ) >= 10


@pytest.fixture(scope="module")
def campaign():
    """The first batches of the campaign, ordered without the predictor."""
    return list(itertools.islice(batches_of(PLAN, GPU), 150))


@pytest.fixture(scope="module")
def recommended():
    """The first with what is recommended."""
    return list(itertools.islice(batches_of(read_plan(CAMPAIGN), GPU), 25))


def test_any_cut_off_leaves_a_useful_set(campaign):
    batches = campaign[:120]
    kernels = Counter(batch.launches[0].kernel.function for batch in batches)
    assert kernels["fused_moe_kernel"] > 60 and len(kernels) >= 10
    moe = [b.problem for b in batches if b.launches[0].kernel.function == "fused_moe_kernel" and b.problem.dtype == "bf16"]
    assert len({p.sizes["M"] for p in moe[:40]}) >= 14 and len({tuple(p.sizes[n] for n in "EHN") for p in moe[:40]}) >= 13
    assert 10 < sum(p.routing is not None for p in moe[:40]) < 30 and 10 < sum(p.op == "w2" for p in moe[:40]) < 30
    assert all(len(b.launches) <= 8 and len({x.key() for x in b.launches}) == len(b.launches) for b in batches)


def learnable(batch):
    """Whether `advisor train` learns from the rows of a batch: products of fused MoE, warm and in 16 bits."""
    problem = batch.problem
    return problem.op in ("w13", "w2") and problem.dtype in ("bf16", "fp16") and problem.cache == "warm"


def test_three_of_four_launches_can_be_learned(campaign):
    assert sum(len(b.launches) for b in campaign if learnable(b)) >= 0.75 * sum(len(b.launches) for b in campaign)


def test_a_first_visit_has_what_runs_untuned_and_what_is_recommended(recommended):
    first = {}
    for batch in recommended:
        first.setdefault(batch.launches[0].kernel.function, batch)
    for batch in first.values():
        kernel, problem = batch.launches[0].kernel, batch.problem
        tried = configurations(kernel, problem, GPU)
        space = [c for c, can in zip(tried, np.isfinite(predicted_latency_us(problem, tried, GPU)), strict=True) if can]
        scores = load_predictor().scores(problem_batch([problem]), configuration_batch(space), GPU)
        best = [space[i] for i in np.argsort(scores, kind="stable")[:RECOMMENDED]]
        chosen = [launch.configuration for launch in batch.launches]
        untuned = default_configuration("vllm", problem.sizes["M"], problem.sizes["E"]) if problem.op in ("w13", "w2") else space[0]
        assert chosen[0] == untuned or problem.dtype == "fp8"
        assert all(each in chosen[: RECOMMENDED + 1] for each in best if each != chosen[0]), kernel.function


def test_whole_spaces_come_one_problem_after_the_other():
    plans = {name: read_plan(CAMPAIGN.with_name(f"{name}.toml")) for name in ("exhaustive", "whole", "proofs")}
    kernels = Counter()
    for sweep in (sweep for name in ("exhaustive", "whole") for sweep in plans[name].sweeps):
        alone = replace(plans["whole"], sweeps=(sweep,), recommended=0)
        launches = [launch for batch in batches_of(alone, GPU) for launch in batch.launches]
        for problem, group in itertools.groupby(launches, key=lambda launch: problem_key(launch.problem)):
            group = list(group)
            space = configurations(sweep.kernel, group[0].problem, GPU)
            can = np.isfinite(predicted_latency_us(group[0].problem, space, GPU))
            assert len({each.key() for each in group}) == len(group) == can.sum(), problem
            kernels[sweep.kernel.function] += 1
    assert kernels["fused_moe_kernel"] >= 2 and kernels["gemm_persistent_kernel"] >= 2 and len(kernels) >= 8
    proofs = list(batches_of(replace(plans["proofs"], recommended=0), GPU))
    assert len(proofs) == 55 and all(len(batch.launches) <= 16 for batch in proofs)


def test_the_order_is_the_same_everywhere(recommended):
    again = itertools.islice(batches_of(read_plan(CAMPAIGN), GPU), 15)
    assert [b.launches for b in recommended[:15]] == [b.launches for b in again]


def test_what_a_gpu_cannot_run_is_left_out():
    batches = list(itertools.islice(batches_of(PLAN, load_gpu("A100")), 60))
    assert all(b.launches[0].kernel.function != "gemm_persistent_kernel" and b.problem.dtype != "fp8" for b in batches)


def test_every_launch_of_a_small_plan_comes_once(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(
        "version = 1\nconfigurations_per_visit = 3\n"
        f"[[sweep]]\nkernel = '{KERNELS}::scale_kernel'\nB = [1, 2]\nH = [3, 4]\ndtype = 'fp32'\n"
    )
    found = [launch for batch in batches_of(read_plan(path), GPU) for launch in batch.launches]
    assert len(found) == len({launch.key() for launch in found}) == 4 * 9  # valid ones: 9 of 12
    visits = [batch.problem for batch in batches_of(read_plan(path), GPU)]
    assert len({str(p.sizes) for p in visits[:4]}) == 4  # every problem once before any twice
    done = {launch.key() for launch in found[:17]}
    left = [launch for batch in batches_of(read_plan(path), GPU, done=done, key=lambda x: x.key()) for launch in batch.launches]
    assert left == found[17:]


@pytest.mark.parametrize("lengths", [(1,), (7,), (3, 4), (12, 18, 2, 2), (2, 2, 2, 2, 2)])
def test_low_discrepancy_orders_are_permutations(lengths):
    cells = low_discrepancy(lengths)
    assert len(cells) == len(set(cells)) == np.prod(lengths)
    assert set(cells) == set(itertools.product(*map(range, lengths)))


def test_informative_orders_are_permutations_dense_near_the_best():
    assert informative_order(0) == ()
    for count in (1, 2, 5, 100, 1777):
        assert sorted(informative_order(count)) == list(range(count))
    first = informative_order(1000)[:24]
    assert first[0] == 0 and sum(rank < 250 for rank in first) >= 10 and max(first) > 700


def test_without_a_model_the_order_is_a_shuffle_that_starts_with_the_default():
    space = [configuration(block, warps) for block in (256, 512, 1024) for warps in (1, 2, 4)]
    order = visiting_order(elementwise(), space, None, seed=1)
    assert order[0] == space[0] and order != space and sorted(map(str, order)) == sorted(map(str, space))


@pytest.mark.parametrize(("tokens", "experts", "topk"), [(1, 8, 2), (1, 8, 8), (7, 60, 6), (4096, 128, 8), (3, 4, 4), (1, 1, 1)])
def test_skewed_routing_is_a_routing(tokens, experts, topk):
    slots = token_draws.one_draw(tokens, experts, topk, SKEW)
    assert len(slots) == experts and sum(slots) == tokens * topk and min(slots) >= 0 and max(slots) <= tokens
    assert list(slots) == sorted(slots, reverse=True)


HEAD = "version = 1\n[[sweep]]\nkernel = 'fused_moe::fused_moe_kernel'\n"
SIZES = "problems = [{E = 8, topk = 2, H = 64, N = 64}]\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version = 2",
        "version = 1",
        "version = 1\nsweep = 3",
        "not toml",
        "version = 1\nspeed = 3\n[[sweep]]\nkernel = 'gemm::gemm_kernel'",
        HEAD,
        HEAD + SIZES,
        HEAD + "M = [1]\n",
        HEAD + SIZES + "M = [0]\n",
        HEAD + SIZES + "M = []\n",
        HEAD + SIZES + "M = ['a']\n",
        HEAD + SIZES + "M = [1]\nop = ['w4']\n",
        HEAD + SIZES + "M = [1]\ndtype = ['fp64']\n",
        HEAD + SIZES + "M = [1]\nrouting = ['odd']\n",
        HEAD + SIZES + "M = [1]\ncache = ['hot']\n",
        HEAD + SIZES + "M = [1]\nshare = -1\n",
        HEAD + SIZES + "M = [1]\nQ = [1]\n",
        HEAD + "M = [1]\nproblems = [{E = 8, topk = 2, H = 64, X = 1}]\n",
        HEAD + SIZES + "M = [1]\nconfigurations = 'all'\n",
        HEAD + SIZES + "M = [1]\nwhole = 1\n",
        "version = 1\nrecommended = -1\n" + HEAD.partition("\n")[2] + SIZES + "M = [1]\n",
        "version = 1\n[[sweep]]\nkernel = 'no such'\n",
        "version = 1\n[[sweep]]\nkernel = 'fused_moe'\nM = [1]\n",
        "version = 1\n[[sweep]]\nkernel = 'no_file.py::x'\n",
    ],
)
def test_a_plan_that_is_none_is_refused_with_a_reason(tmp_path, text):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(AdvisorError):
        read_plan(path)


def test_a_kernel_that_is_listed_only_cannot_be_swept(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(f"version = 1\n[[sweep]]\nkernel = '{KERNELS}::listed_only_kernel'\nB = [1]\nH = [1]\n")
    with pytest.raises(InputError, match="without make_inputs, prepare, reference"):
        read_plan(path)
