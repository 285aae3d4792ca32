"""The sampler in anyone's own study, and the pruner."""

from __future__ import annotations

import math
import pickle
import time
from dataclasses import replace

import numpy as np
import optuna
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.result.schema import Problem
from advisor.search.sampler import AdvisorSampler, RoundsPruner
from advisor.search.space import SearchSpace
from advisor.system.errors import UsageError
from tests.search.searches import RANGES, small_prior, small_space, truth

SPACE = small_space()
LATENCY = truth(SPACE)


def objective(trial: optuna.Trial) -> float:
    return float(LATENCY[SPACE.index_of(SPACE.suggest(trial))])


def study_of(sampler=None, **options) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(sampler=sampler or AdvisorSampler(SPACE, small_prior(SPACE)), **options)


def test_finds_the_best_in_few_trials_and_never_repeats_one():
    study = study_of()
    study.optimize(objective, n_trials=10)
    assert study.best_value <= 1.01 * LATENCY.min()
    assert len({tuple(t.params.items()) for t in study.trials}) == 10


def test_first_trial_is_the_prior_s_best_and_runs_are_the_same():
    first, second = study_of(), study_of()
    for study in (first, second):
        study.optimize(objective, n_trials=6)
    assert [t.params for t in first.trials] == [t.params for t in second.trials]
    assert SPACE.find(first.trials[0].params) == int(np.argmin(small_prior(SPACE).mean))


def test_plain_suggestions_of_any_kind_and_foreign_parameters():
    def own(trial: optuna.Trial) -> float:
        values = {
            "BLOCK_SIZE_M": trial.suggest_int("BLOCK_SIZE_M", 16, 128, log=True),
            "BLOCK_SIZE_N": trial.suggest_categorical("BLOCK_SIZE_N", [32, 64, 128]),
            "num_warps": trial.suggest_int("num_warps", 4, 8, step=4),
            "num_stages": trial.suggest_int("num_stages", 2, 3),
        }
        trial.suggest_float("something_else", 0, 1)
        return float(LATENCY[SPACE.find(values)])

    study = study_of()
    study.optimize(own, n_trials=5)
    assert study.best_value <= 1.05 * LATENCY.min()


def test_wishes_are_granted():
    study = study_of()
    wish = {name: values[0] for name, values in RANGES.items()}
    study.enqueue_trial(wish)
    study.enqueue_trial({"BLOCK_SIZE_M": 128})
    study.optimize(objective, n_trials=2)
    assert study.trials[0].params == wish
    assert study.trials[1].params["BLOCK_SIZE_M"] == 128


@pytest.mark.parametrize(
    "suggest",
    [
        lambda trial: trial.suggest_int("BLOCK_SIZE_M", 1, 2),
        lambda trial: trial.suggest_categorical("BLOCK_SIZE_M", [48, "64"]),
    ],
)
def test_a_distribution_without_any_value_of_the_space_is_said(suggest):
    study = study_of()
    with pytest.raises(UsageError, match=r"BLOCK_SIZE_M: .*holds no value of the space; got .*; expected at least one of 16, 32, 64, 128"):
        study.optimize(suggest, n_trials=1)


@pytest.mark.parametrize("kind", ["categorical", "int"])
def test_a_space_narrower_than_the_sampler_s_is_searched_whole_and_once(kind):
    narrow = {"num_warps": (4,), "BLOCK_SIZE_M": (64, 128), "BLOCK_SIZE_N": (32, 128), "num_stages": (2, 3)}

    def own(trial: optuna.Trial) -> float:
        values = {
            name: trial.suggest_categorical(name, values)
            if kind == "categorical" or len(values) == 1
            else trial.suggest_int(name, values[0], values[1], step=values[1] - values[0])
            for name, values in narrow.items()
        }
        return 10 * LATENCY.max() + SPACE.find(values)  # above every bound, so that none is ruled out

    study = study_of()
    study.optimize(own, n_trials=10)
    done = [SPACE.find(t.params) for t in study.trials if t.state == optuna.trial.TrialState.COMPLETE]
    allowed = [i for i in range(len(SPACE)) if all(SPACE.row(i)[name] in values for name, values in narrow.items())]
    assert sorted(done) == allowed and len(allowed) == 8


def test_objectives_that_are_no_latency_are_refused():
    study = study_of()
    with pytest.raises(UsageError, match="must be a latency"):
        study.optimize(lambda trial: (SPACE.suggest(trial), -1.0)[1], n_trials=2)


@pytest.mark.parametrize("pruned", [False, True])
def test_a_value_that_is_not_finite_is_a_launch_that_failed(pruned):
    def failing_once(trial: optuna.Trial) -> float:
        latency = objective(trial)
        if trial.number != 1:
            return latency
        if not pruned:
            return math.inf
        trial.report(math.nan, step=3)
        raise optuna.TrialPruned

    study = study_of()
    study.optimize(failing_once, n_trials=10)
    assert study.best_value <= 1.01 * LATENCY.min()
    assert len({tuple(t.params.items()) for t in study.trials}) == 10


@pytest.mark.parametrize("options", [{"direction": "maximize"}, {"directions": ["minimize", "minimize"]}])
def test_studies_that_do_not_minimise_one_latency_are_refused(options):
    study = study_of(**options)
    with pytest.raises(UsageError, match=r"must minimise a latency; got .*; expected minimize; create it with"):
        study.optimize(objective, n_trials=1)


def test_threads_of_one_study_never_measure_the_same():
    class Hesitating(AdvisorSampler):
        """Takes its time between choosing and having chosen."""

        def choose(self, *arguments, **options):
            index = super().choose(*arguments, **options)
            time.sleep(0.02)
            return index

    study = study_of(Hesitating(SPACE, small_prior(SPACE)))
    study.optimize(objective, n_trials=12, n_jobs=4)
    assert len({tuple(t.params.items()) for t in study.trials}) == 12


def test_a_sampler_can_be_stored_with_its_study():
    sampler = pickle.loads(pickle.dumps(AdvisorSampler(SPACE, small_prior(SPACE))))
    study_of(sampler).optimize(objective, n_trials=2)


def test_when_nothing_is_left_trials_are_pruned():
    space = SearchSpace.from_ranges({"BLOCK_SIZE_M": (16, 32), "BLOCK_SIZE_N": (32,), "num_warps": (4,), "num_stages": (2,)})
    study = study_of(AdvisorSampler(space, small_prior(space)))
    study.optimize(lambda trial: (space.suggest(trial), 10.0)[1], n_trials=4)
    states = [t.state for t in study.trials]
    assert states == [optuna.trial.TrialState.COMPLETE] * 2 + [optuna.trial.TrialState.PRUNED] * 2


def test_configurations_whose_bound_is_above_the_best_are_never_tried():
    study = study_of()
    study.optimize(objective, n_trials=48)
    done = [t for t in study.trials if t.state == optuna.trial.TrialState.COMPLETE]
    assert len(done) < 40
    tried = {SPACE.find(t.params) for t in done}
    skipped = [i for i in range(len(SPACE)) if i not in tried]
    assert min(LATENCY[skipped]) > study.best_value  # provably safe


def test_a_bound_that_a_measurement_refutes_skips_nothing():
    wrong = replace(small_prior(SPACE), bound_us=2 * LATENCY)
    study = study_of(AdvisorSampler(SPACE, wrong))
    study.optimize(objective, n_trials=48)
    assert sum(t.state == optuna.trial.TrialState.COMPLETE for t in study.trials) == 48


def test_infeasible_configurations_are_never_proposed():
    cannot = tuple(int(i) for i in np.argsort(LATENCY)[:5])
    study = study_of(AdvisorSampler(SPACE, small_prior(SPACE, cannot=cannot)))
    study.optimize(objective, n_trials=30)
    assert not {SPACE.find(t.params) for t in study.trials if t.params} & set(cannot)


def test_what_makes_a_tried_launch_is_not_tried_again():
    space = small_space()
    prior = small_prior(space)
    twins = np.arange(len(space))
    twins[1::2] = twins[::2][: len(twins[1::2])]  # every second makes the launch of the one before
    sampler = AdvisorSampler(space, replace(prior, launch=twins))
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: truth(space)[space.index_of(space.suggest(trial))], n_trials=10)
    tried = [sampler.index_of(trial) for trial in study.trials]
    assert len({int(twins[i]) for i in tried}) == 10
    assert not sampler.open_to_trial(study.trials)[[i ^ 1 for i in tried if i ^ 1 < len(space)]].any()


@pytest.mark.parametrize("gpu", [load_gpu("H100"), "NVIDIA H100 80GB HBM3"])
def test_for_problem_needs_no_more_than_a_problem_and_a_gpu(gpu):
    problem = Problem(family="gemm", op="gemm", sizes={"M": 512, "N": 4096, "K": 4096})
    sampler = AdvisorSampler.for_problem(problem, gpu=gpu)
    study = study_of(sampler)
    study.optimize(lambda trial: (sampler.space.suggest(trial), 100.0 + trial.number)[1], n_trials=3)
    assert len(study.trials) == 3


def test_pruner_cuts_what_has_lost_and_nothing_else():
    study = study_of(optuna.samplers.RandomSampler(seed=0), pruner=RoundsPruner(margin=0.05, first=3))
    study.add_trial(optuna.trial.create_trial(value=100.0))

    def rounds(latency: float) -> optuna.Trial:
        trial = study.ask()
        trial.report(latency, step=3)
        return trial

    assert rounds(106.0).should_prune()
    assert not rounds(104.0).should_prune()
    early = study.ask()
    early.report(500.0, step=1)
    assert not early.should_prune()
