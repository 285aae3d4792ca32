"""Trials until within 1 % of the exhaustive best, and what the stopping rule saves, on the published near-optimal rows.

Run it: `python tests/bench/search.py [--weights FILE …] [--models E,topk,H,N …] [--gpus NAME …] [--problems N] [--cap N] [--simulated]`, or
`pytest -m bench -s tests/bench/search.py` with ADVISOR_BENCH_SEARCH holding such options. Each of the weights is asked about the GPUs or
models alone that it was trained without (`--exclude-gpu`, `--exclude-model`): those of a GPU or of a fold of models each give the figures
of all of them in one run. Of weights that know everything the figures are of what they saw.

Every method searches the same space (the family's, what cannot launch left out for all) on the same problems with the same seeds. A trial
is one configuration; it succeeds when the file has it. Ours searches the token counts of a table one after the other, as `advisor tune`
does; all tables of a GPU, models in the order of their sizes, what won for one known to the next, as it does where its storage holds
earlier searches; and each problem on its own, where nothing can be learned but that it lost. Ours never tries a launch twice,
though the file may have one of two configurations that make it and not the other. What the file lacks is slower than the best by more
than 1 %, by how much is not recorded: ours is told that it lost and nothing else, Optuna's samplers are told the sweep's median latency,
ordinal parameters as integers, and configurations that cannot launch cost them nothing.

On a GPU every trial has a latency, and what runs today is measured first. `--simulated` tries that: what runs today is measured before
anything else (and costs no trial where trials are counted), and what the file lacks takes as long as other weights say, which saw
the sweep (the shipped ones), never less than 1 % above the best, with 3 % of each configuration's own. How well such sweeps agree
with the recorded medians is printed first. These figures are simulated, whatever weights search.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]

from advisor.learned import load_predictor  # noqa: E402
from advisor.learned.weights import load  # noqa: E402
from advisor.pipelines.space import family_space  # noqa: E402
from advisor.search.precedents import Precedent  # noqa: E402
from advisor.search.space import SearchSpace  # noqa: E402
from advisor.search.stopping import StoppingRule  # noqa: E402
from advisor.search.surrogate import Observation, nearest, posterior, propose  # noqa: E402
from tests.bench.sweeps import NAMES, Case, agreement, read_cases, simulated  # noqa: E402

pytestmark = [pytest.mark.bench, pytest.mark.filterwarnings("ignore")]

FIXED_BUDGET = 20


def observed(case: Case, index: int) -> Observation:
    """What a trial of a configuration says."""
    us = case.latency_us(index)
    return Observation(prior=case.prior, index=index, kind="slower" if us is None else "measured",
                       log_us=None if us is None else float(np.log(us)))  # fmt: skip


def guided(case: Case, cap: int, known: list[Observation], rule: StoppingRule | None = None,
           precedents: Sequence[Precedent] = ()) -> tuple[int, list[Observation], int | None]:  # fmt: skip
    """Our search: trials until the first success, what it saw, and (with a rule) trials until it stopped.

    What runs today is measured first where the sweep is simulated, and is none of the trials until success.
    """
    seen = [observed(case, case.incumbent)] if case.incumbent is not None else []
    before = len(seen)
    first = 0 if case.incumbent in case.good else None
    if first is not None and rule is None:
        return first, seen, None
    while len(seen) < cap + (before if rule is None else 0):
        usable = np.isfinite(case.prior.mean) & ~case.prior.repeats(o.index for o in seen)
        best = min((o.log_us for o in seen if o.log_us is not None), default=None)
        if best is not None:
            usable &= case.prior.bound_us < np.exp(best)
        if rule is not None and best is not None:
            expected = case.prior.after(precedents, (o.index for o in seen))
            mean, deviation = posterior(case.prior, [*known, *seen], expected=expected)
            stop = rule.reason(best_us=float(np.exp(best)), ceiling_us=case.prior.ceiling_us, mean=mean, deviation=deviation,
                               usable=usable, tried=len(seen))  # fmt: skip
            if stop is not None:
                return cap + 1 if first is None else first, seen, len(seen)
        if not usable.any():
            break
        chosen = propose(case.prior, known, seen, usable, precedents=precedents)
        seen.append(observed(case, chosen))
        if chosen in case.good and first is None:
            first = len(seen) - before
            if rule is None:
                break
    return cap + 1 if first is None else first, seen, None if rule is None else cap


def in_tables(cases: Sequence[Case], cap: int, *, forgets: bool) -> list[int]:
    """Our search for one token count after the other, table by table; what won for earlier ones is known, unless a table `forgets` it."""
    found, precedents = [], []
    for model in sorted({case.model for case in cases}):
        known: list[Observation] = []
        precedents = [] if forgets else precedents
        for case in sorted((c for c in cases if c.model == model), key=lambda c: c.sizes["M"]):
            trials, seen, _ = guided(case, cap, nearest(case.prior, known), precedents=precedents)
            known += seen
            found.append(trials)
            first = next((o.index for o in seen if o.index in case.good), None)
            if first is not None:
                precedents.append(Precedent(where=case.prior.where, index=first, rank=case.prior.rank(first)))
    return found


def ranked(case: Case) -> int:
    """Trials in the order of the prior, without feedback."""
    if case.incumbent in case.good:
        return 0
    order = np.argsort(case.prior.mean, kind="stable")
    order = order[order != case.incumbent]
    return 1 + int(np.flatnonzero(np.isin(order, list(case.good)))[0])


def in_order(case: Case) -> int:
    """Trials in the order in which the space lists what can launch."""
    if case.incumbent in case.good:
        return 0
    usable = np.flatnonzero(np.isfinite(case.prior.mean))
    usable = usable[usable != case.incumbent]
    return 1 + int(np.flatnonzero(np.isin(usable, list(case.good)))[0])


ASKED_PER_TRIAL = 4
"""What cannot launch costs no trial; but a sampler that asks for little else (each time a fit, for the GP sampler) has lost."""


def optuna_trials(case: Case, space: SearchSpace, sampler: object, cap: int) -> int:
    """Trials of one of Optuna's samplers."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=sampler)  # type: ignore[arg-type]
    choices = {name: space.choices(name) for name in NAMES}
    trials, asked = 0, 0
    if case.incumbent is not None:
        study.enqueue_trial({name: choices[name].index(value) for name, value in space.row(case.incumbent).items() if name in NAMES})
        trials = asked = -1
    while trials < cap and asked < ASKED_PER_TRIAL * cap:
        asked += 1
        trial = study.ask()
        values = {name: choices[name][trial.suggest_int(name, 0, len(choices[name]) - 1)] for name in NAMES}
        index = space.find(values)
        if index is None or not np.isfinite(case.prior.mean[index]):
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        trials += 1
        if index in case.good:
            return trials
        study.tell(trial, float(np.log(case.latency_us(index) or case.median_us)))
    return cap + 1


def interval(values: np.ndarray, quantile: float) -> tuple[float, float, float]:
    """A quantile and its 95 % bootstrap interval over problems."""
    rng = np.random.default_rng(0)
    drawn = np.quantile(values[rng.integers(0, len(values), (1000, len(values)))], quantile, axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(np.quantile(values, quantile)), float(low), float(high)


def show(name: str, results: Mapping[str, list[int]], cap: int) -> None:
    """One line per GPU and one for all."""
    everything = [trials for each in results.values() for trials in each]
    for gpu, trials in [*results.items(), ("all", everything)]:
        values = np.minimum(np.array(trials, dtype=float), cap + 1)
        shown = []
        for quantile in (0.5, 0.9):
            middle, low, high = interval(values, quantile)
            more = ">" if middle > cap else ""
            shown.append(f"{more}{min(middle, cap):6.1f} [{low:5.1f}, {min(high, cap):5.1f}]")
        print(f"{name:28s} {gpu:6s} {len(values):4d}  median {shown[0]}  p90 {shown[1]}  first {np.mean(values <= 1):.2f}  "
              f"8 {np.mean(values <= 8):.2f}", flush=True)  # fmt: skip


def left_out(path: Path | None) -> set[object] | None:
    """GPUs and models that weights were trained without; None where they know everything."""
    about = load(path).about if path is not None else {}
    found = {*about.get("excluded_gpus", ()), *(tuple(model) for model in about.get("excluded_models", ()))}
    return found or None


def run(arguments: list[str]) -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser()
    default = os.environ.get("ADVISOR_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data"
    parser.add_argument("--data", default=default, type=Path)
    parser.add_argument("--weights", type=Path, nargs="*", help="what to ask, each about what it was trained without")
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--gpus", nargs="*", default=[])
    parser.add_argument("--problems", type=int, default=40, help="problems per GPU for Optuna's samplers (ours: all)")
    parser.add_argument("--cap", type=int, default=60)
    parser.add_argument("--gp", type=int, default=6, help="problems per GPU for Optuna's GP sampler, which is slow")
    parser.add_argument("--simulated", nargs="?", const="", help="simulate what the file lacks with these weights (the shipped ones)")
    parser.add_argument("--ours", type=int, default=10**9, help="problems per GPU for ours")
    options = parser.parse_args(arguments)
    space = SearchSpace.from_batch(family_space("fused_moe"))
    models = {tuple(int(part) for part in model.split(",")) for model in options.models}
    cases = []
    for path in options.weights or [None]:
        predictor = load_predictor(path)
        asked, of = read_cases(options.data, space, predictor, models, set(options.gpus)), left_out(path)
        asked = [case for case in asked if of is None or case.gpu in of or case.model in of]
        print(f"{predictor.name}: {len(asked)} problems, {'seen' if of is None else 'of what it was trained without'}")
        cases += asked
    if options.simulated is not None:
        cases = simulated(cases, space, load_predictor(options.simulated or None))
        print(f"simulated sweeps: {agreement(cases)}")
    rng = np.random.default_rng(0)
    by_gpu: dict[str, list[Case]] = {}
    for i in rng.permutation(len(cases)):
        by_gpu.setdefault(cases[i].gpu, []).append(cases[i])
    print(f"{len(cases)} problems, cap {options.cap} trials, space of {len(space)}\n")
    start = time.monotonic()

    def every(name: str, count: int, trials: Callable[[Case, int], int]) -> None:
        if count:
            show(name, {gpu: [trials(case, seed) for seed, case in enumerate(each[:count])] for gpu, each in by_gpu.items()},
                 options.cap)  # fmt: skip

    for name, forgets in (("ours, a table at a time", True), ("ours, all tables in turn", False)):
        show(name, {gpu: in_tables(each[: options.ours], options.cap, forgets=forgets) for gpu, each in by_gpu.items()}, options.cap)
    every("ours, one problem alone", options.ours, lambda case, seed: guided(case, options.cap, [])[0])
    every("ranking without feedback", 10**9, lambda case, seed: ranked(case))
    every("exhaustive order", 10**9, lambda case, seed: in_order(case))
    stopping(by_gpu, options.ours)
    print()
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every("Optuna random", options.problems, lambda c, s: optuna_trials(c, space, optuna.samplers.RandomSampler(seed=s), options.cap))
        every("Optuna TPE", options.problems, lambda c, s: optuna_trials(c, space, optuna.samplers.TPESampler(seed=s), options.cap))
        every("Optuna GP", options.gp, lambda c, s: optuna_trials(c, space, optuna.samplers.GPSampler(seed=s), options.cap))
    print(f"\n{time.monotonic() - start:.0f} s")


def stopping(by_gpu: Mapping[str, list[Case]], count: int) -> None:
    """Speedup kept over the default, and trials spent, with the stopping rule against a fixed budget.

    Where no configuration of the file was found, no speedup is counted at all: its latency is not recorded.
    """
    print(f"\nstopping rule against a fixed budget of {FIXED_BUDGET} trials, share of the speedup over the default")
    never = StoppingRule(margin=-1.0, noise_floor=0.0, least_gain=0.0)
    rows = []
    for gpu, each in by_gpu.items():
        for case in each[:count]:
            if case.default_us is None or case.default_us <= 1.01 * case.best_us:
                continue
            gained = []
            for rule in (StoppingRule(), never):
                _, seen, stopped = guided(case, FIXED_BUDGET, [], rule)
                found = min([float(np.exp(o.log_us)) for o in seen if o.log_us is not None] + [case.default_us])
                gained.append((np.log(case.default_us / found), FIXED_BUDGET if stopped is None else stopped))
            rows.append((gpu, gained[0][0], gained[1][0], np.log(case.default_us / case.best_us), gained[0][1]))
    for gpu in [*by_gpu, "all"]:
        chosen = np.array([row[1:] for row in rows if gpu in (row[0], "all")], dtype=float)
        if len(chosen):
            kept, fixed, available, spent = chosen.sum(0)
            print(f"{gpu:6s} {len(chosen):4d} problems: {100 * kept / fixed:5.1f} % of what the fixed budget reaches, with "
                  f"{100 * spent / len(chosen) / FIXED_BUDGET:5.1f} % of its trials (of all there is: {100 * kept / available:5.1f} %, "
                  f"fixed budget {100 * fixed / available:5.1f} %)", flush=True)  # fmt: skip


def test_search_figures(data_dir: Path) -> None:
    """Prints the figures; asserts nothing."""
    run(["--data", str(data_dir), *shlex.split(os.environ.get("ADVISOR_BENCH_SEARCH", "--ours 20 --problems 6 --gp 1"))])


if __name__ == "__main__":
    run(sys.argv[1:])
