"""What was learned of launches with a known configuration."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from advisor import pipelines
from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor, weights
from advisor.learned.analytical import LIKELY
from advisor.learned.configured.features import NAMES, features
from advisor.learned.configured.model import (
    ALIKE,
    LIKELY_FIRST,
    RELATIVE,
    SEEN,
    SURE,
    UNSEEN,
    ConfiguredModel,
    log_latency,
    related,
    unsure,
)
from advisor.learned.estimator import LearnedPredictor
from advisor.measurement.launch import problem_key
from advisor.measurement.measured_rows import MeasuredRow, read_measured
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch, column, configuration_batch, problem_batch
from advisor.pipelines.schedule import sustained_us
from advisor.pipelines.space import problem_space
from advisor.training import configured_training, data

H100 = load_gpu("H100")


def gemm(m: int, n: int, k: int, dtype: str = "bf16") -> ProblemBatch:
    return ProblemBatch(family="gemm", op="gemm", sizes={"M": column(m), "N": column(n), "K": column(k)}, dtype=dtype)


def shipped() -> ConfiguredModel:
    predictor = load_predictor()
    assert isinstance(predictor, LearnedPredictor)
    assert predictor.weights.configured is not None
    return predictor.weights.configured


def tile(m: int, n: int, k: int, warps: int = 4, stages: int = 3, **more: float) -> ConfigurationBatch:
    sides = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": 8, **more}
    return ConfigurationBatch(parameters={name: column(v) for name, v in sides.items()}, num_warps=column(warps), num_stages=column(stages))


def test_own_rows_are_predicted() -> None:
    """The rows that come with the project are in the weights: by far nearer than the analytical model's 25 %, and none below its bound."""
    errors = []
    for part in data.read([configured_training.own_measurements()]):
        found = load_predictor().predict(part.problem, part.configuration, part.gpu)
        errors.append(np.abs(found.us / part.latency_us - 1))
        least = pipelines.bound(pipelines.work(part.problem, part.gpu), part.gpu, part.problem.cache).us
        assert (found.us >= least - 1e-9).all()
        assert (part.latency_us >= least).all()
    assert np.concatenate(errors).size == 3104 + 6643 + 6605 + 3020
    assert np.concatenate(errors).mean() < 0.05


@pytest.mark.parametrize("sizes", [(16, 4096, 4096), (512, 7168, 2048), (4096, 4096, 4096)])
def test_types_of_one_width_take_the_same(sizes: tuple[int, int, int]) -> None:
    us = [load_predictor().predict(gemm(*sizes, dtype), tile(64, 128, 64), H100).us[0] for dtype in ("bf16", "fp16")]
    assert us[0] == pytest.approx(us[1], rel=0.03)


def test_the_first_of_a_space_is_the_one_predicted_to_be_fastest() -> None:
    problem = gemm(1024, 4096, 4096)
    space = problem_space(problem, "nvidia", splits=True)
    scores, us = load_predictor().scores(problem, space, H100), load_predictor().predict(problem, space, H100).us
    assert np.isfinite(scores).sum() > 2 * LIKELY_FIRST  # or the pipelines alone would put none behind
    assert np.array_equal(np.isfinite(scores), np.isfinite(us))
    assert us[np.argmin(scores)] == pytest.approx(us.min(), rel=0.01)


def test_what_all_of_the_model_looked_at_comes_first(monkeypatch) -> None:
    """Whatever the pipelines promise of the others: here of a tile that spills."""
    monkeypatch.setattr("advisor.learned.configured.model.LOOKED_AT", {SEEN: 2, UNSEEN: 2})
    tiles = [(128, 128, 64), (64, 256, 64), (64, 128, 128), (128, 256, 64), (16, 64, 64)]
    sides = {f"BLOCK_SIZE_{axis}": column([tile[i] for tile in tiles]) for i, axis in enumerate("MNK")}
    batch = ConfigurationBatch(parameters={**sides, "GROUP_SIZE_M": column([8] * 5)}, num_warps=column([4] * 5), num_stages=column([3] * 5))
    problem = gemm(4096, 4096, 4096)
    order = shipped().order(problem, batch, H100, pipelines.demand(problem, batch, H100), np.ones(5, dtype=bool))
    exact = shipped().log_us(problem, batch, H100, pipelines.demand(problem, batch, H100))[0]
    looked_at = np.isclose(order, exact)
    assert looked_at.sum() == 2 and order[looked_at].max() < order[~looked_at].min()


def test_a_larger_promise_is_likelier_to_hold() -> None:
    model, problem = shipped(), gemm(1024, 4096, 4096)
    likely = [model.p_gain(problem, H100, promised, SURE) for promised in (0.9, 1.0, 1.05, 1.3, 2.0, 5.0)]
    assert likely == sorted(likely)
    assert likely[1] < 0.5 < likely[-1]


def test_a_promise_that_forest_and_network_do_not_share_is_less_likely_to_hold() -> None:
    """They part most far from what was measured: there nothing is recommended."""
    model, problem = shipped(), gemm(1024, 4096, 4096)
    shared, torn = (float(unsure(np.log(1.3), np.log(1.3 * apart))) for apart in (1.0, 3.0))
    assert model.p_gain(problem, H100, 1.3, shared) > LIKELY > model.p_gain(problem, H100, 1.3, torn)


def test_other_gpus_are_known_less() -> None:
    problem = gemm(1024, 4096, 4096)
    one = tile(64, 128, 64)
    near, far = (load_predictor().predict(problem, one, load_gpu(name)) for name in ("A100", "L40S"))
    near, far = (float(np.log(each.high_us / each.low_us)[0]) for each in (near, far))
    assert near < far
    assert not load_predictor().predict(problem, tile(64, 128, 64), load_gpu("L40S")).learned.any()


def test_a_gpu_never_measured_takes_as_long_as_its_board_sustains() -> None:
    """An L40S has the power for three quarters of its peak, which no GPU that was learned is held down by."""
    problem, l40s, one = gemm(8192, 8192, 8192), load_gpu("L40S"), tile(128, 128, 64)
    base, matrix = features(problem, one, l40s)
    least = np.log(sustained_us(pipelines.demand(problem, one, l40s), l40s))
    assert log_latency(base, matrix, np.zeros(1), np.zeros(1), SEEN) < least + 0.05
    for correction in (np.zeros(1), np.full(1, -2.0)):
        assert log_latency(base, matrix, correction, correction, UNSEEN) > least - 1e-6


def test_the_weights_hold_it(tmp_path) -> None:
    before = shipped()
    weights.save(weights.Weights(moe=None, direct={}, configured=before), tmp_path / "w.npz")
    after = weights.load(tmp_path / "w.npz").configured
    assert after is not None
    problem, one = gemm(300, 4096, 1000), tile(64, 64, 32)
    for told, kept in zip(after.log_us(problem, one, H100), before.log_us(problem, one, H100), strict=True):
        assert told == pytest.approx(kept)
    assert after.interval(problem, H100) == pytest.approx(before.interval(problem, H100))
    assert after.record == before.record


def test_features_are_numbers_for_every_family() -> None:
    for part in data.read([configured_training.own_measurements()]):
        assert part.configuration is not None
        base, told = features(part.problem, part.configuration, part.gpu)
        assert told.shape == (len(part), len(NAMES))
        assert np.isfinite(told).all()
        assert np.isfinite(base).all()


def test_groups_of_all_row_tiles_and_more_are_one_launch() -> None:
    """GROUP_SIZE_M 4 and 16 of four row tiles order the CTAs alike, and are predicted alike; 1 is another order."""
    us = [float(load_predictor().predict(gemm(512, 4096, 4096), tile(128, 128, 64, GROUP_SIZE_M=g), H100).us[0]) for g in (1, 4, 16)]
    assert us[1] == us[2] != us[0]


def test_before_asynchronous_copies_there_is_one_buffer() -> None:
    """V100 with Triton 3.2: what fits in one buffer ran, whatever num_stages said."""
    for stages in (2, 3, 5):
        asked = pipelines.demand(gemm(1024, 1024, 1024, "fp16"), tile(128, 128, 64, stages=stages), load_gpu("V100-PCIe-16GB"))
        assert asked.resources.shared_memory_bytes[0] == 2 * (128 + 128) * 64


def test_a_launch_alone_is_predicted_to_the_bit_as_among_others() -> None:
    """Sums in single precision hang on their order, which numpy chooses by the shape."""
    forest, told = shipped().forest, np.random.default_rng(3).normal(size=(40, len(NAMES)))
    assert np.array_equal(forest(told), np.concatenate([forest(told[i : i + 1]) for i in range(40)]))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("H100", ("H100", 1.0)),
        ("H800", ("H100", 1.0)),
        ("H200", ("H200", 1.0)),
        ("H200 NVL", ("H200", RELATIVE)),
        ("A100-40GB", ("A100", RELATIVE)),
        ("L40S", None),
    ],
)
def test_what_was_measured_on_a_relative_counts(name: str, nearest: tuple[str, float] | None) -> None:
    """An H800 computes as an H100 does, an H200 NVL has the H200's memory and a lower clock, an L40S is of another kind."""
    problem, gpu = gemm(1024, 4096, 4096, "fp16"), load_gpu(name)
    assert shipped().nearest(problem, gpu) == nearest
    found = load_predictor().predict(problem, tile(128, 128, 64), gpu)
    assert bool(found.learned[0]) == (nearest is not None)
    low, high = shipped().interval(problem, gpu)
    if nearest is not None:
        assert np.allclose((low, high), nearest[1] * np.array(shipped().interval(problem, load_gpu(nearest[0]))))
    assert (load_predictor().record(problem, gpu).find(f"on {(nearest or ('other',))[0]}") > 0) == (nearest is None or nearest[1] == 1)


def test_a_relative_is_told_by_every_figure() -> None:
    assert related(H100, H100) == 1
    assert related(H100, replace(H100, dram_bytes_per_s=H100.dram_bytes_per_s * ALIKE)) == RELATIVE
    assert related(H100, replace(H100, dram_bytes_per_s=H100.dram_bytes_per_s * 1.6)) == np.inf
    assert related(load_gpu("A100"), H100) == np.inf


@pytest.mark.parametrize("family", ["gemm", "fused_moe"])
def test_a_cold_launch_is_predicted_by_what_it_asks_for(family: str) -> None:
    """A few microseconds more where the L2 held the operands, which DRAM has to bring, and hardly more where it cannot hold them."""
    kind = (
        {"family": "fused_moe", "op": "w13", "dtype": "bf16"}
        if family == "fused_moe"
        else {"family": "gemm", "op": "gemm", "dtype": "bf16"}
    )
    sizes = [{"E": 8, "topk": 2, "H": 2048, "N": 512}, {"E": 128, "topk": 8, "H": 4096, "N": 1536}]
    if family == "gemm":
        sizes = [{"N": 2048, "K": 2048}, {"N": 28672, "K": 8192}]
    times = []
    for item in sizes:
        columns = {"M": column(64)} | {name: column(value) for name, value in item.items()}
        warm, cold = (ProblemBatch(**kind, sizes=columns, cache=cache) for cache in ("warm", "cold"))
        found = [load_predictor().predict(problem, tile(64, 128, 64), load_gpu("H200")) for problem in (warm, cold)]
        assert found[1].learned.all() and found[1].us[0] >= found[0].us[0]
        assert load_predictor().ceiling(cold, load_gpu("H200")).us[0] >= load_predictor().ceiling(warm, load_gpu("H200")).us[0]
        times.append(found[1].us[0] / found[0].us[0])
    assert times[0] > 1.15 and times[1] < 1.03


@pytest.mark.parametrize(("name", "answers"), [("H200 NVL", True), ("H100", True), ("H800", False), ("A100", False), ("L4", False)])
def test_relatives_of_a_gpu_with_launches_of_fused_moe_are_asked_of_these(name: str, answers: bool) -> None:
    """Sweeps of other GPUs hold good configurations alone; those of the H800 are its own."""
    sizes = {"M": column(64), "E": column(64), "topk": column(6), "H": column(2048), "N": column(1408)}
    problem, gpu = ProblemBatch(family="fused_moe", op="w13", dtype="bf16", sizes=sizes), load_gpu(name)
    found = load_predictor().predict(problem, tile(16, 64, 128), gpu).us[0]
    assert (found == pytest.approx(np.exp(shipped().log_us(problem, tile(16, 64, 128), gpu)[0][0]))) == answers


H200 = load_gpu("H200")


def sized(row: MeasuredRow) -> tuple[object, ...]:
    return row.kernel, row.problem.op, row.problem.dtype, *sorted(row.problem.sizes.items())


@pytest.fixture(scope="module")
def left_out() -> list[tuple[list[MeasuredRow], Array, Array, Array]]:
    """Launches on an H200 that nothing was learned of: of each problem the rows, what runs untuned first, and the latencies predicted of
    them, with both ends of their intervals."""
    rows = defaultdict(list)
    for row in read_measured(configured_training.own_measurements() / "held_out" / "h200-proofs.csv.gz"):
        rows[row.kernel, problem_key(row.problem)].append(row)
    out = []
    for group in rows.values():
        tried = configuration_batch([row.configuration for row in group if row.configuration is not None])
        found = load_predictor().predict(problem_batch([group[0].problem]), tried, H200)
        out.append((group, *(np.broadcast_to(item, (len(group),)) for item in (found.us, found.low_us, found.high_us))))
    return out


def test_no_size_that_is_left_out_was_learned(left_out) -> None:
    learned = {sized(row) for path in configured_training.own_measurements().glob("*.csv.gz") for row in read_measured(path)}
    assert len(left_out) == 57 and sum(len(group) for group, *_ in left_out) == 798
    assert not {sized(row) for group, *_ in left_out for row in group} & learned


def test_latencies_of_sizes_left_out_are_near_and_in_their_intervals(left_out) -> None:
    errors, inside = [], []
    for group, us, low, high in left_out:
        took = np.array([row.latency_us for row in group])
        least = pipelines.bound(pipelines.work(problem_batch([group[0].problem]), H200), H200, group[0].problem.cache).us
        assert (took >= least).all() and (us >= least).all()
        errors.append(np.abs(us / took - 1))
        inside.append((took >= low) & (took <= high))
    assert np.concatenate(errors).mean() < 0.045
    assert 0.74 < np.concatenate(inside).mean() < 0.88


def test_first_picks_of_sizes_left_out_win(left_out) -> None:
    won, over = [], []
    for group, us, *_ in left_out:
        took = np.array([row.latency_us for row in group])
        first = took[np.argmin(us)]
        won.append(np.log(took[0] / first))
        over.append(np.log(first / took.min()))
    assert np.exp(np.mean(won)) > 1.08 and np.exp(np.mean(over)) < 1.015
    assert np.mean(np.array(won) < -0.01) < 4 / 49 and np.exp(min(won)) > 0.97
