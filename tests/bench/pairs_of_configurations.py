"""How often the faster of two configurations as the analytical model has it is measured to be 2 % faster: what `trials.SURE` stands on.

    python tests/bench/pairs_of_configurations.py [DEJAVU]

Pairs are drawn from the launches of each problem of `ceilings/measurements`, and of a folder with dejavu's sweeps where one is given; so
are pairs of what the model holds for the fastest and another, or what runs untuned. A line for each family and GPU: for each range of
the predicted ratio of a hundred pairs how many were, and how many pairs there are; and of those predicted less than 5 % apart how many
were measured to be.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from advisor.training.configured_training import Launches, read_launches  # noqa: E402

RANGES = (1.05, 1.1, 1.2, 1.25, 1.3, 1.4, 1.5, 2.0, np.inf)
PAIRS = 60
"""Drawn of a problem at most."""
PICKS = 20
"""Configurations of a problem that its first pick is held against."""
NOTICED = np.log(1.02)


def main(folders: list[str]) -> None:
    """Print a line for each family and GPU."""
    rows = read_launches([Path(folder) for folder in folders], (), ())
    assert rows is not None
    rng = np.random.default_rng(0)
    pairs, picks = [], []
    for problem in np.unique(rows.problem):
        members = np.flatnonzero((rows.problem == problem) & np.isfinite(rows.physics))
        if len(members) > 1:
            pairs.append(rng.choice(members, (min(PAIRS, len(members) * (len(members) - 1) // 2), 2)))
            drawn = rng.choice(members, PICKS)
            picks.append(np.stack([drawn, np.full(PICKS, members[np.argmin(rows.physics[members])])], axis=1))
    for what, both in (("pairs", pairs), ("first picks against drawn ones", picks), ("against what runs untuned", picks)):
        first, second = np.concatenate(both).T
        if what == "against what runs untuned":
            at = {rows.problem[start]: start for start in np.flatnonzero(rows.start)}
            second = np.unique(second[np.isin(rows.problem[second], list(at))])
            first = np.array([at[problem] for problem in rows.problem[second]])
        print(what)
        _print(rows, first, second)


def _print(rows: Launches, first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
    predicted, measured = (column[first] - column[second] for column in (rows.physics, rows.log_us))
    measured, predicted = measured * np.sign(predicted), np.exp(np.abs(predicted))
    of = np.char.add(np.char.add(rows.family[first], " on "), rows.gpu[first])
    for name in [*np.unique(of), "all"]:
        cells = []
        for low, high in itertools.pairwise(RANGES):
            chosen = ((of == name) | (name == "all")) & (predicted >= low) & (predicted < high)
            share = f"{100 * (measured[chosen] > NOTICED).mean():.0f} of 100" if chosen.any() else "-"
            cells.append(f"{low:g} to {high:g}: {share} ({chosen.sum()})")
        near = ((of == name) | (name == "all")) & (predicted < RANGES[0]) & (first != second)
        share = f"{100 * (np.abs(measured[near]) < np.log(RANGES[0])).mean():.0f} of 100" if near.any() else "-"
        print(f"  {name}:  {'  '.join(cells)}  nearer, and measured to be: {share} ({near.sum()})")


if __name__ == "__main__":
    main(sys.argv[1:])
