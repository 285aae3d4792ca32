"""Predictions of measured tiles with their problems left out, in place of those of weights that learned them.

    advisor predict ceilings/measurements/h100-tiles.csv.gz -o predicted.csv
    python tests/bench/tiles_left_out.py DEJAVU h100-tiles.csv.gz predicted.csv -o left_out.csv

Fits the model of configured launches five times, as `advisor train` does to judge itself (half an hour on two cores). `left_out.csv` is
`predicted.csv` with another `predicted_us`, in microseconds, each by the fit that saw no row of its problem, on any GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import pandas
from numpy.typing import NDArray

from advisor.learned.configured.model import SEEN, log_latency
from advisor.training import configured_training as training
from advisor.training import data


def rows_of(source: str) -> Iterator[tuple[slice, NDArray[np.int64]]]:
    """Where `training.read_launches` has the launches of a file of the project's own measurements, and their rows in it."""
    first = 0
    for part in data.read([training.own_measurements()]):
        if part.configuration is not None and len(part):
            learned = training._columns(part, np.zeros(np.max(part.rows) + 1, dtype=bool)).base.size
            if part.source == source:
                assert learned == len(part), f"{len(part) - learned} rows of {source} are not learned: leave them out of it"
                yield slice(first, first + learned), part.rows
            first += learned


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("dejavu")
    arguments.add_argument("source", help="name of a file in ceilings/measurements")
    arguments.add_argument("predicted", help="what `advisor predict` writes of it")
    arguments.add_argument("-o", dest="out", required=True)
    options = arguments.parse_args()
    rows = training.read_launches([options.dejavu], (), ())
    folds = [rows.fold % training.FOLDS == fold for fold in range(training.FOLDS)]
    forest, networks = np.fmax.reduce(training._left_out(rows, [(~out, out) for out in folds], print))
    latency = np.exp(log_latency(rows.base, rows.features, forest, networks, SEEN))
    table = pandas.read_csv(options.predicted, low_memory=False)
    parts = list(rows_of(options.source))
    if not parts:
        raise SystemExit(f"{options.source}: no launches of it are learned: give the name alone of a file in {training.own_measurements()}")
    for launches, of_file in parts:
        assert np.allclose(np.exp(rows.log_us[launches]), table.latency_us[of_file]), "the launches are not in the order of the file"
        table.loc[of_file, "predicted_us"] = latency[launches]
    table.to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
