"""A tuned problem as a launch of a report: what was measured beats what is predicted, and names stay the kernel's own."""

from __future__ import annotations

import pytest

from advisor.autotuning.decisions.cache import Cache, Row

from . import kernels
from .kernels import tuned
from .reports import EXPORT, advised, edited


def test_what_is_advised_was_not_tried_and_has_the_kernels_own_names(tmp_path, fresh_cache):
    import triton

    def short(a_ptr, b_ptr, c_ptr, M, N, K, BM, BN, BK):
        """A gemm with other names, and no grouping."""

    space = [triton.Config({"BM": 16, "BN": n, "BK": 32}, num_warps=4, num_stages=2) for n in (32, 64)]
    problem = lambda args: {"M": args["M"], "N": args["N"], "K": args["K"], "dtype": "bf16"}  # noqa: E731
    kernel, _ = tuned(lambda launch: 5.0, short, space, key=["M", "N", "K"], family="gemm", problem=problem)
    kernel[(1,)](kernels.Tensor(), kernels.Tensor(), kernels.Tensor(), 4096, 4096, 4096)
    (launch,) = advised(tmp_path, fresh_cache).launches
    advice = launch.recommendation
    assert set(advice.configuration.parameters) == {"BM", "BN", "BK"} and "BM" in advice.triton_config
    assert advice.latency.origin == "predicted" and "not tried" in advice.reason
    assert advice.configuration.label() not in {timing.configuration.label() for timing in advised(tmp_path, fresh_cache).tuned[0].timings}


def test_a_measured_ceiling_is_the_reports(produced, tmp_path):
    """A configuration measured below the predicted ceiling: no remedy promises more than that."""
    cache = Cache(produced)
    key = next(each for each in cache.problems() if each.key.startswith("(512,"))
    fast, slow, *_ = sorted((row for row in cache.rows(key.id).values() if row.us), key=lambda row: row.us)
    cache.record_all(key.id, [Row(config=fast.config, state="measured", us=20.0)])  # the bound is 16.5 µs, the predicted ceiling 24.4 µs
    cache.decide(key.id, "another list", slow.config, "measured")
    cache.close()
    launch = next(each for each in advised(tmp_path, produced).launches if each.problem.sizes["M"] == 512)
    assert launch.ceiling.us == 20.0 and launch.ceiling.origin == "measured" and launch.p_speedup_10pct == 1.0
    assert launch.recommendation.latency == launch.ceiling and launch.recommendation.configuration == launch.ceiling_configuration
    assert launch.headroom == pytest.approx(launch.measured.us / 20.0 - 1)


def test_a_faster_measurement_beats_what_was_decided(produced, tmp_path):
    cache = Cache(produced)
    key = next(each for each in cache.problems() if each.key.startswith("(512,"))
    slow = max((row for row in cache.rows(key.id).values() if row.us), key=lambda row: row.us)
    fast = min((row for row in cache.rows(key.id).values() if row.us), key=lambda row: row.us)
    cache.record_all(key.id, [Row(config=slow.config, state="measured", us=10 * fast.us)])
    cache.decide(key.id, "another list", slow.config, "measured")
    cache.close()
    launch = next(each for each in advised(tmp_path, produced).launches if each.problem.sizes["M"] == 512)
    assert launch.measured.us == 10 * fast.us and launch.ceiling.us <= fast.us
    assert launch.recommendation.latency.origin == "measured" and launch.recommendation.speedup == pytest.approx(10)


@pytest.mark.parametrize("odd", ['{"BLOCK_SIZE_M":"x","num_warps":4}', '{"BLOCK_SIZE_K":0,"BLOCK_SIZE_M":128,"BLOCK_SIZE_N":256}'])
def test_an_odd_configuration_leaves_the_predictions_of_others_alone(odd, tmp_path, recwarn):
    before = {str(t.configuration): t.predicted_us for p in advised(tmp_path, EXPORT).tuned for t in p.timings}
    result = advised(tmp_path, edited(tmp_path, "config", odd))
    after = {str(t.configuration): t.predicted_us for p in result.tuned for t in p.timings}
    new = set(after) - set(before)
    assert len(new) == 1 and after[new.pop()] is None
    assert all(after[name] == pytest.approx(before[name], rel=1e-3) for name in before if name in after and before[name] is not None)
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]
