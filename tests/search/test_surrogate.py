"""What measurements teach: themselves exactly, their neighbours in part, and losses as well."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.search.sampler import LEAST_TRIALS, StoppingRule
from advisor.search.surrogate import Observation, expected_gain, posterior, propose
from tests.search.searches import small_prior, small_space, truth

SPACE = small_space()
PRIOR = small_prior(SPACE)


def seen(index: int) -> Observation:
    return Observation(index=index, kind="measured", log_us=float(np.log(truth(SPACE)[index])))


def test_nothing_seen_is_the_prior():
    mean, deviation = posterior(PRIOR, [])
    assert np.array_equal(mean, PRIOR.mean) and deviation == pytest.approx(PRIOR.sigma)


def test_a_measurement_is_believed_and_its_neighbours_follow():
    mean, deviation = posterior(PRIOR, [seen(0)])
    assert mean[0] == pytest.approx(np.log(truth(SPACE)[0]), abs=0.002)
    assert deviation[0] < 0.01
    error = np.log(truth(SPACE)) - PRIOR.mean
    assert abs(mean[1] - np.log(truth(SPACE)[1])) < 0.5 * abs(error[1])
    far = int(np.argmax(((PRIOR.features - PRIOR.features[0]) ** 2).sum(1)))
    assert abs(mean[far] - PRIOR.mean[far]) < abs(mean[1] - PRIOR.mean[1])
    assert deviation[far] > deviation[1]


def test_a_latency_as_predicted_leaves_the_order_as_it_is():
    order = replace(PRIOR, mean=PRIOR.mean.min() + 3 * (PRIOR.mean - PRIOR.mean.min()))  # spread wider than the latencies are
    index = int(np.argmax(order.mean))
    as_predicted = Observation(index=index, kind="measured", log_us=float(np.log(order.predicted_us[index])))
    mean, deviation = posterior(order, [as_predicted])
    others = np.arange(len(mean)) != index
    assert mean[others] == pytest.approx(order.mean[others])
    assert mean[index] == as_predicted.log_us < order.mean[index] - 0.1
    assert deviation[index] < 0.01 < order.sigma


def test_what_precedents_expect_is_where_measurements_start_from():
    moved = PRIOR.mean[::-1].copy()
    mean, deviation = posterior(PRIOR, [], expected=moved)
    assert np.array_equal(mean, moved) and deviation == pytest.approx(PRIOR.sigma)
    measured = seen(5)
    mean, _ = posterior(PRIOR, [measured], expected=moved)
    alone, _ = posterior(PRIOR, [measured])
    others = np.arange(len(mean)) != 5
    assert mean[others] - moved[others] == pytest.approx(alone[others] - PRIOR.mean[others])
    assert mean[5] == measured.log_us


def test_what_was_predicted_not_to_launch_and_did_counts_as_measured_and_teaches_nothing():
    predicted = PRIOR.predicted_us.copy()
    predicted[[3, 4]] = np.inf
    prior = replace(PRIOR, predicted_us=predicted, mean=np.where(np.isfinite(predicted), PRIOR.mean, np.inf))
    ran = Observation(index=3, kind="measured", log_us=0.0)
    lost = Observation(index=4, kind="slower")
    mean, deviation = posterior(prior, [ran, lost])
    others = np.isfinite(predicted)
    assert mean[3] == 0.0 and np.isinf(mean[4])
    assert np.array_equal(mean[others], prior.mean[others]) and np.isfinite(deviation).all()
    again = replace(ran, log_us=1.0)
    assert posterior(prior, [ran, again])[0][3] == posterior(prior, [again, ran])[0][3] == 0.0
    unrecorded = replace(PRIOR, mean=np.where(others, PRIOR.mean, np.inf))  # could launch, but may not be tried
    untouched, deviation = posterior(unrecorded, [Observation(index=3, kind="slower")])
    assert np.array_equal(untouched, unrecorded.mean) and np.isfinite(deviation).all()


def test_a_loss_moves_its_neighbours_back_and_never_forward():
    best = int(np.argmin(PRIOR.mean))
    mean, _ = posterior(PRIOR, [Observation(index=best, kind="slower")])
    assert mean[best] > PRIOR.mean[best] + 0.01
    assert (mean >= PRIOR.mean - 1e-9).all()


def test_a_running_trial_moves_nothing_but_its_uncertainty():
    mean, deviation = posterior(PRIOR, [Observation(index=3, kind="running")])
    assert mean == pytest.approx(PRIOR.mean)
    assert deviation[3] < 0.01 < PRIOR.sigma


@pytest.mark.parametrize("count", [1, 5, 48])
def test_many_observations_stay_finite(count):
    observations = [seen(i) if i % 2 else Observation(index=i, kind="slower") for i in range(count)] * 2
    mean, deviation = posterior(PRIOR, observations)
    assert np.isfinite(mean).all() and np.isfinite(deviation).all() and (deviation > 0).all()


def test_expected_gain():
    mean, deviation = np.array([0.0, 0.1, np.inf]), np.array([0.1, 0.1, 0.1])
    gain = expected_gain(mean, deviation, 0.0)
    assert gain[0] == pytest.approx(0.1 / np.sqrt(2 * np.pi), rel=1e-4)
    assert gain[0] > gain[1] > gain[2] == 0.0


def reason(rule: StoppingRule = StoppingRule(margin=0.02, noise_floor=0.005), **changes) -> str | None:  # noqa: B008  it is frozen
    values = {
        "best_us": 10.0,
        "ceiling_us": (5.0, 4.5, 5.5),
        "mean": np.log(np.array([8.0, 12.0])),
        "deviation": np.array([0.1, 0.1]),
        "usable": np.array([True, True]),
        "tried": 5,
    }
    stop = rule.reason(**{**values, **changes})
    return None if stop is None else f"{stop.cause}: {stop.why}"


def test_stopping_says_why():
    assert reason() is None
    assert reason(best_us=None) is None
    assert "tried all: every configuration" in reason(usable=np.array([False, False]))
    assert "ceiling: within 2 % of the ceiling" in reason(best_us=10.0, ceiling_us=(9.9, 9.5, 10.4), mean=np.log(np.array([10.5, 12.0])))
    reached = reason(StoppingRule(margin=0.0), best_us=10.0, ceiling_us=(10.1, 9.5, 10.4), mean=np.log(np.array([10.5, 12.0])))
    assert reached == "ceiling: at the ceiling (10 µs found, 10.1 µs predicted)"
    assert reason(ceiling_us=(11.0, 10.5, 11.5), mean=np.log(np.array([10.5, 12.0]))) is None  # a refuted ceiling stops nothing
    assert reason(best_us=10.0, ceiling_us=(9.9, 9.5, 10.4)) is None  # measurements say that something left is 20 % faster
    assert "what is worth one, 1 %" in reason(mean=np.log(np.array([14.0, 15.0])), deviation=np.array([0.05, 0.05]))
    noisy = StoppingRule(noise_floor=0.02)
    assert "the noise floor, 2 %" in reason(noisy, mean=np.log(np.array([14.0, 15.0])), deviation=np.array([0.05, 0.05]))
    assert reason(mean=np.log(np.array([14.0, 15.0])), deviation=np.array([0.05, 0.05]), tried=LEAST_TRIALS) is not None
    assert reason(mean=np.log(np.array([14.0, 15.0])), deviation=np.array([0.05, 0.05]), tried=LEAST_TRIALS - 1) is None
    close = {"mean": np.log(np.array([10.0, 15.0])), "deviation": np.array([0.03256, 1e-3])}  # 0.01299: told apart from the limit
    assert "another trial, 1.3 %, is below the noise floor, 1.31 %" in reason(StoppingRule(noise_floor=0.0131), **close)
    assert "less than 0.01 %" in reason(mean=np.log(np.array([24.0, 25.0])), deviation=np.array([0.05, 0.05]))


def lost(index: int) -> Observation:
    return Observation(index=index, kind="slower")


def gains(observations: list[Observation]) -> np.ndarray:
    """Expected gain over the best measured, or over the best belief, of what was not tried yet."""
    mean, deviation = posterior(PRIOR, observations)
    mean[[o.index for o in observations]] = np.inf
    best = min((o.log_us for o in observations if o.log_us is not None), default=float(mean.min()))
    return expected_gain(mean, deviation, best)


def untried(observations: list[Observation]) -> np.ndarray:
    usable = np.isfinite(PRIOR.mean)
    usable[[o.index for o in observations]] = False
    return usable


def test_what_to_try_next():
    order = np.argsort(PRIOR.mean, kind="stable")
    assert propose(PRIOR, [], untried([])) == order[0]
    # A measured best: the largest expected gain, and never what may not be tried.
    measured = [seen(int(order[0]))]
    first = propose(PRIOR, measured, untried(measured))
    assert first == int(np.argmax(gains(measured))) != order[0]
    usable = untried(measured)
    usable[first] = False
    assert propose(PRIOR, measured, usable) not in (first, order[0])


def test_losses_alone_leave_the_order():
    order, losses = np.argsort(PRIOR.mean, kind="stable"), []
    for expected in order[:6]:
        chosen = propose(PRIOR, losses, untried(losses))
        assert chosen == expected
        losses.append(lost(chosen))
    # Once something was measured, they say what to leave alone.
    with_losses, without = ([*losses, seen(int(order[6]))], [seen(int(order[6]))])
    assert posterior(PRIOR, with_losses)[0][order[7]] != posterior(PRIOR, without)[0][order[7]]
