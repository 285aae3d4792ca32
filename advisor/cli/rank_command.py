"""Rank the configuration space for every problem of a CSV file, with no measurement.

For each row of SHAPES.csv (a problem: gpu, and its sizes, as `advisor predict --help` has them) writes the K best configurations, best
first: adds rank, the columns of the configuration and predicted_us. The order is learned for itself, apart from the latencies, because it
finds the best configuration sooner than they do: so predicted_us need not grow with rank. Configurations of one tile that score the same
stand apart, so that a short list names different tiles.

Attention without op is decode where M = 1, else prefill. Products may be split (SPLIT_K; not block-scaled ones), and so may the keys of
decoding (NUM_KV_SPLITS): for a kernel that cannot, take the rows with 1, and raise --top. A problem that no configuration fits has no line;
a warning on stderr names it.

examples:
  advisor rank shapes.csv -o ranked.csv
  advisor rank shapes.csv --gpu A100 --top 20 -o -
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.cli import options
from advisor.system.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor rank`."""
    parser.add_argument("shapes", metavar="SHAPES.csv", help="problems, one per line (.gz is fine)")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.csv", help="where to write the ranking (-: standard output)")
    parser.add_argument("--top", type=options.positive_integer, default=8, metavar="K", help="configurations per problem (default: 8)")
    parser.add_argument("--gpu", metavar="NAME", help="GPU of every row, in place of the column gpu")
    parser.add_argument("--weights", metavar="FILE", help="weights that `advisor train` wrote (default: those shipped)")


def run(arguments: argparse.Namespace) -> int:
    """Rank and write."""
    import numpy as np

    from advisor.gpus.hardware import load_gpu
    from advisor.learned import load_predictor
    from advisor.learned.base import unmeasured_vendor
    from advisor.pipelines.from_rows import LAYER, batches, one_problem
    from advisor.pipelines.space import problem_space
    from advisor.rows.rows import read_rows, write_rows
    from advisor.rows.types_and_origin import settle_dtypes

    output = options.rows_output(arguments.output, arguments.shapes)
    rows = read_rows(arguments.shapes, problems_only=True)
    if (rows.op == LAYER).any():
        raise InputError(f"{rows.path}: op", LAYER, "single kernels, such as w13", "predict takes whole layers")
    assumed = settle_dtypes(rows, Path(arguments.shapes).name, arguments.gpu)
    predictor = load_predictor(Path(arguments.weights) if arguments.weights else None)
    rankings: dict[int, dict[str, NDArray[np.generic]]] = {}  # row of the file -> columns of its lines
    beyond = 0
    gpus, stuck = [], []
    for batch in batches(rows, load_gpu, arguments.gpu):
        gpus.append(batch.gpu)
        space = problem_space(batch.problem, batch.gpu.vendor, splits=True)
        columns = {**space.parameters, "num_warps": space.num_warps, "num_stages": space.num_stages}
        at_once = max(LAUNCHES_AT_ONCE // arguments.top, 1)
        for begin in range(0, batch.rows.size, at_once):
            places = np.arange(begin, min(begin + at_once, batch.rows.size))
            chosen = []
            for i in places.tolist():
                scores = predictor.scores(one_problem(batch.problem, i), space, batch.gpu)
                chosen.append(_best(scores, [values for name, values in space.parameters.items() if name != "GROUP_SIZE_M"], arguments.top))
            rows_of, best = np.repeat(places, [some.size for some in chosen]), np.concatenate(chosen)
            stuck += [options.nothing_launches(batch.rows[i], batch.gpu) for i, some in zip(places, chosen, strict=True) if not some.size]
            if not best.size:
                continue
            prediction = predictor.predict(batch.problem.take(rows_of if places.size > 1 else places), space.take(best), batch.gpu)
            beyond += np.unique(rows_of[prediction.extrapolates]).size
            for i in np.unique(rows_of).tolist():
                mine = rows_of == i
                lines = {name: values[best[mine]].astype(np.int64) for name, values in columns.items()}
                rankings[int(batch.rows[i])] = lines | {"rank": np.arange(1, mine.sum() + 1), "predicted_us": prediction.us[mine]}
    if assumed:
        options.note(assumed)
    ranked = {row: rankings[row] for row in sorted(rankings)}
    index = np.array([row for row, lines in ranked.items() for _ in lines["rank"]], dtype=np.int64)
    appended: dict[str, Any] = {**options.gpu_column(arguments.gpu, len(index)), "rank": _column("rank", ranked.values())}
    if "dtype" not in rows.header:  # which was settled by what the ranked rows no longer tell: their columns, the file's name
        appended["dtype"] = rows.dtype[index]
    names = dict.fromkeys(name for lines in ranked.values() for name in lines if name not in ("rank", "predicted_us"))
    appended |= {name: _column(name, ranked.values()) for name in (*names, "predicted_us")}
    write_rows(rows, output, appended, index=index)
    if beyond:
        options.note(f"problems outside of what was learned: {beyond}; their latencies are extrapolated")
    options.warn_of_rows(stuck)
    for caveat in unmeasured_vendor(gpus):
        options.warn(caveat)
    return 0


def _column(name: str, ranked: Collection[Mapping[str, NDArray[np.generic]]]) -> list[object]:
    """A column of all problems, one after the other; None where the configurations of one have no such parameter."""
    return [value for lines in ranked for value in (lines[name].tolist() if name in lines else [None] * lines["rank"].size)]


LAUNCHES_AT_ONCE = 2048
"""The most that are predicted together, of several problems: a call of the model takes 3 ms for 8, most of it whatever their number."""

TIES_APART = 8
"""Other tiles that come before a tile's next configuration with the very same score: as many as a list has by default."""


def _best(scores: NDArray[np.float64], tile: Sequence[NDArray[np.float64]], count: int) -> NDArray[np.int64]:
    """The `count` best configurations that can launch, by their `scores` [n]; ties of one `tile` (parameters, [n] each) stand apart.

    Learned orders have none. The analytical model often cannot tell GROUP_SIZE_M or num_stages apart: a short list is not to be spent on
    one tile because of that.
    """
    import numpy as np

    order = np.argsort(scores, kind="stable")
    order = order[np.isfinite(scores[order])]
    places: list[int] = []
    ties: dict[tuple[float, ...], int] = {}
    distinct = 0
    for i in order.tolist():
        if distinct == count:  # none that follows has a better place
            break
        key = (round(float(scores[i]), 4), *(float(values[i]) for values in tile))  # 0.01 % of a latency is no difference
        ties[key] = ties.get(key, -1) + 1
        places.append(distinct + TIES_APART * ties[key])
        distinct += ties[key] == 0
    return order[np.argsort(places, kind="stable")[:count]]
