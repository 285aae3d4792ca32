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
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]

from advisor.learned import load_predictor  # noqa: E402
from advisor.learned.weights import load  # noqa: E402
from advisor.pipelines.space import family_space  # noqa: E402
from advisor.search.prior import Precedent  # noqa: E402
from advisor.search.sampler import StoppingRule  # noqa: E402
from advisor.search.space import SearchSpace  # noqa: E402
from advisor.search.surrogate import Observation, posterior, propose  # noqa: E402
from tests.bench.sweeps import NAMES, RECORDED_WITHIN, Case, agreement, read_cases, simulated  # noqa: E402

pytestmark = [pytest.mark.bench, pytest.mark.filterwarnings("ignore")]

FIXED_BUDGET = 20


def observed(case: Case, index: int) -> Observation:
    """What a trial of a configuration says."""
    us = case.latency_us(index)
    return Observation(index=index, kind="slower" if us is None else "measured", log_us=None if us is None else float(np.log(us)))


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search did for one problem.

    Attributes:
        first: Trials until the first within 1 % of the best; one more than the cap where there was none.
        spent: Trials until it ended.
    """

    case: Case
    first: int
    seen: Sequence[Observation]
    spent: int

    @property
    def best_us(self) -> float:
        """Of what it measured and what runs today."""
        return min([float(np.exp(o.log_us)) for o in self.seen if o.log_us is not None] + [self.case.default_us or np.inf])


def guided(case: Case, cap: int, rule: StoppingRule | None = None, precedents: Sequence[Precedent] = ()) -> Searched:
    """Our search of one problem, until the first success, or where a rule is given until that says so.

    What runs today is measured first where the sweep is simulated, and is none of the trials until success.
    """
    seen = [observed(case, case.incumbent)] if case.incumbent is not None else []
    before = len(seen)
    first = 0 if case.incumbent in case.good else None
    while len(seen) < cap + (before if rule is None else 0) and (first is None or rule is not None):
        usable = np.isfinite(case.prior.mean) & ~case.prior.repeats(o.index for o in seen)
        best = min((o.log_us for o in seen if o.log_us is not None), default=None)
        if best is not None:
            usable &= case.prior.bound_us < np.exp(best)
        if rule is not None and best is not None:
            expected = case.prior.after(precedents, (o.index for o in seen))
            mean, deviation = posterior(case.prior, seen, expected=expected)
            stop = rule.reason(
                best_us=float(np.exp(best)),
                ceiling_us=case.prior.ceiling_us,
                mean=mean,
                deviation=deviation,
                usable=usable,
                tried=len(seen),
            )
            if stop is not None:
                break
        if not usable.any():
            break
        chosen = propose(case.prior, seen, usable, precedents=precedents)
        seen.append(observed(case, chosen))
        if chosen in case.good and first is None:
            first = len(seen) - before
    return Searched(case, cap + 1 if first is None else first, seen, len(seen))


def in_tables(cases: Sequence[Case], cap: int, *, forgets: bool, rule: StoppingRule | None = None) -> list[Searched]:
    """Our search for one token count after the other, table by table; what won for earlier ones is known, unless a table `forgets` it."""
    found: list[Searched] = []
    precedents: list[Precedent] = []
    for model in sorted({case.model for case in cases}):
        precedents = [] if forgets else precedents
        for case in sorted((c for c in cases if c.model == model), key=lambda c: c.sizes["M"]):
            one = guided(case, cap, rule, precedents)
            found.append(one)
            first = next((o.index for o in one.seen if o.index in case.good), None)
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
            middle, low, high = (f">{cap}" if each > cap else f"{each:.1f}" for each in interval(values, quantile))
            shown.append(f"{middle:>5s} [{low:>5s}, {high:>5s}]")
        print(
            f"{name:28s} {gpu:6s} {len(values):4d}  median {shown[0]}  p90 {shown[1]}  first {np.mean(values <= 1):.2f}  "
            f"8 {np.mean(values <= 8):.2f}",
            flush=True,
        )


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
            show(name, {gpu: [trials(case, seed) for seed, case in enumerate(each[:count])] for gpu, each in by_gpu.items()}, options.cap)

    for name, forgets in (("ours, a table at a time", True), ("ours, all tables in turn", False)):
        show(
            name,
            {gpu: [one.first for one in in_tables(each[: options.ours], options.cap, forgets=forgets)] for gpu, each in by_gpu.items()},
            options.cap,
        )
    every("ours, one problem alone", options.ours, lambda case, seed: guided(case, options.cap).first)
    every("ranking without feedback", 10**9, lambda case, seed: ranked(case))
    every("exhaustive order", 10**9, lambda case, seed: in_order(case))
    stopping({gpu: each[: options.ours] for gpu, each in by_gpu.items()})
    print()
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every("Optuna random", options.problems, lambda c, s: optuna_trials(c, space, optuna.samplers.RandomSampler(seed=s), options.cap))
        every("Optuna TPE", options.problems, lambda c, s: optuna_trials(c, space, optuna.samplers.TPESampler(seed=s), options.cap))
        every("Optuna GP", options.gp, lambda c, s: optuna_trials(c, space, optuna.samplers.GPSampler(seed=s), options.cap))
    print(f"\n{time.monotonic() - start:.0f} s")


def stopping(by_gpu: Mapping[str, list[Case]]) -> None:
    """Speedup kept over the default, and trials spent, with the stopping rule against a fixed budget.

    Speedups are averaged as logarithms. Where no configuration of the file was found, none is counted: its latency is not recorded.
    """
    never = StoppingRule(margin=-1.0, noise_floor=0.0, least_gain=0.0)
    for name, search in (
        ("a table at a time", lambda cases, rule: in_tables(cases, FIXED_BUDGET, forgets=True, rule=rule)),
        ("one problem alone", lambda cases, rule: [guided(case, FIXED_BUDGET, rule) for case in cases]),
    ):
        print(f"\nstopping rule against a fixed budget of {FIXED_BUDGET} trials, {name}")
        rows = []
        for gpu, each in by_gpu.items():
            for kept, fixed in zip(search(each, StoppingRule()), search(each, never), strict=True):
                case = kept.case
                if case.default_us is not None and case.default_us > RECORDED_WITHIN * case.best_us:
                    speedups = [case.default_us / us for us in (kept.best_us, fixed.best_us, case.best_us)]
                    rows.append((gpu, *np.log(speedups), kept.spent))
        for gpu in [*by_gpu, "all"]:
            chosen = np.array([row[1:] for row in rows if gpu in (row[0], "all")], dtype=float)
            if len(chosen):
                kept, fixed, available, spent = chosen.mean(0)
                print(
                    f"{gpu:6s} {len(chosen):4d} problems: {100 * kept / fixed:5.1f} % of what the budget wins, with "
                    f"{100 * spent / FIXED_BUDGET:4.1f} % of its trials; {100 * kept / available:5.1f} % of all there is to win (the "
                    f"budget {100 * fixed / available:5.1f} %); speedup {np.exp(kept):.3f}, budget {np.exp(fixed):.3f}, all "
                    f"{np.exp(available):.3f}",
                    flush=True,
                )


def test_search_figures(data_dir: Path) -> None:
    """Prints the figures; asserts nothing."""
    run(["--data", str(data_dir), *shlex.split(os.environ.get("ADVISOR_BENCH_SEARCH", "--ours 20 --problems 6 --gp 1"))])


if __name__ == "__main__":
    run(sys.argv[1:])
