"""What a recommendation won: per problem of a file of rows, what runs untuned, what was recommended, and the best that was measured.

`python tests/gpu/judge.py ROWS.csv…` prints a line per problem (losses included), then the errors of the predictions.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from advisor import pipelines
from advisor.gpus.hardware import match_device_name
from advisor.learned import load_predictor
from advisor.measurement.kernel_file import find_kernels
from advisor.measurement.launch import problem_key
from advisor.measurement.measured_rows import MeasuredRow, bound_us, read_measured
from advisor.measurement.plan import campaign_space, foremost, predicted_latency_us
from advisor.result.schema import Configuration, Problem

TRIED = (1, 4, 8)
"""Of how many of the first recommendations the fastest is taken."""
NAN = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One problem of one kernel; microseconds, NaN where it was not measured.

    `measured` of `launchable` configurations have a latency; `recommended` is the fastest of the first n, by n.
    """

    gpu: str
    kernel: str
    problem: Problem
    measured: int
    launchable: int
    bound_us: float
    default_us: float
    recommended_us: dict[int, float]
    best_us: float

    @property
    def complete(self) -> bool:
        """Whether the default, the first recommendation and a best beside them are known."""
        return bool(np.isfinite(self.default_us) and np.isfinite(self.recommended_us[1]))

    @property
    def whole(self) -> bool:
        """Whether the best is the best of all: launches that failed aside, everything was measured."""
        return self.measured >= 0.98 * self.launchable


def _key(configuration: Configuration) -> tuple[object, ...]:
    return tuple(sorted(configuration.flat().items(), key=str))


def _problems(rows: Iterable[MeasuredRow]) -> list[list[MeasuredRow]]:
    """Rows by GPU, kernel and problem; without those that lack a latency, a configuration or a known GPU."""
    groups: dict[tuple[str, str, str], list[MeasuredRow]] = defaultdict(list)
    for row in rows:
        if row.latency_us is not None and row.configuration is not None and match_device_name(row.gpu) is not None:
            groups[row.gpu, row.kernel, problem_key(row.problem)].append(row)
    return list(groups.values())


def judge(rows: Iterable[MeasuredRow]) -> list[Judged]:
    """Every problem of the rows, in their order."""
    return [_judged(each[0].gpu, each[0].kernel, each) for each in _problems(rows)]


def _judged(gpu_name: str, kernel: str, rows: list[MeasuredRow]) -> Judged:
    gpu, problem = match_device_name(gpu_name), rows[0].problem
    space = tuple(campaign_space(find_kernels(kernel)[0], problem, gpu))
    model = predicted_latency_us(problem, space, gpu)
    runs = [each for each, us in zip(space, model if model is not None else [0.0] * len(space), strict=True) if np.isfinite(us)]
    first = [runs[i] for i in foremost(problem, runs, gpu, max(TRIED))]
    took = {_key(row.configuration): row.latency_us for row in rows}

    def fastest(configurations: Iterable[Configuration]) -> float:
        return min((took[_key(each)] for each in configurations if _key(each) in took), default=NAN)

    return Judged(
        gpu=gpu_name,
        kernel=kernel,
        problem=problem,
        measured=len(took),
        launchable=len(runs),
        bound_us=bound_us(problem, gpu) or NAN,
        default_us=fastest(space[:1]),
        recommended_us={count: fastest(first[:count]) for count in TRIED},
        best_us=min(took.values()),
    )


def errors(rows: Iterable[MeasuredRow]) -> list[str]:
    """Of every kernel, type and cache state: how far the predictions lie from the rows, and how many rows are below the bound."""
    found: dict[tuple[str, ...], list[tuple[float, bool]]] = defaultdict(list)
    for group in _problems(rows):
        one, gpu = group[0], match_device_name(group[0].gpu)
        tried = pipelines.configuration_batch([row.configuration for row in group])
        said = np.broadcast_to(load_predictor().predict(pipelines.problem_batch([one.problem]), tried, gpu).us, (len(group),))
        took, least = np.array([row.latency_us for row in group]), bound_us(one.problem, gpu) or 0.0
        key = (one.gpu, one.kernel, one.problem.dtype, one.problem.cache)
        found[key] += zip(np.log(said / took).tolist(), (took < least).tolist(), strict=True)
    lines = []
    for key, each in found.items():
        error = np.array([log for log, _ in each if np.isfinite(log)])
        mape, bias, below = 100 * np.mean(np.abs(np.expm1(error))), 100 * error.mean(), sum(low for _, low in each)
        lines.append(f"{' '.join(key)}: {len(each)} rows, error {mape:.1f} %, bias {bias:+.1f} %, {below} below the bound")
    return lines


def summary(judged: list[Judged]) -> str:
    """How many problems have what, and what the first recommendation won of the default and lost of the best."""
    known = [each for each in judged if each.complete]
    text = (
        f"{len(judged)} problems, {len(known)} with default, recommended and best, {sum(each.whole for each in known)} of them whole spaces"
    )
    if known:
        won = np.array([each.default_us / each.recommended_us[1] for each in known])
        left = np.array([each.recommended_us[1] / each.best_us for each in known])
        text += f"; recommended over default x{np.exp(np.log(won).mean()):.3f} on average, slower on {int((won < 1).sum())}"
        text += f" (least x{won.min():.3f}), x{np.exp(np.log(left).mean()):.3f} of the best"
    return text


def main(paths: list[str]) -> None:
    """Prints what the module says of each file."""
    for path in paths:
        rows = list(read_measured(path))
        judged = judge(rows)
        tried = ", ".join(map(str, TRIED))
        print(f"{path}\nkernel problem | measured/launchable | bound, default, first of {tried} recommended, best (us) | won, left")
        for each in judged:
            sizes = " ".join(f"{name}={value}" for name, value in each.problem.sizes.items())
            recommended = " ".join(f"{us:.2f}" for us in each.recommended_us.values())
            print(
                f"{each.kernel} {each.problem.op} {each.problem.dtype} {each.problem.cache} {sizes} | {each.measured}/{each.launchable} | "
                f"{each.bound_us:.2f} {each.default_us:.2f} {recommended} {each.best_us:.2f} | "
                f"x{each.default_us / each.recommended_us[1]:.3f} x{each.recommended_us[1] / each.best_us:.3f}"
                + ("  BELOW THE BOUND" if each.best_us < each.bound_us else "")
            )
        print(*errors(rows), summary(judged), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
