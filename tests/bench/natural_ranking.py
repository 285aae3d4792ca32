"""Whether the ranking puts the configuration that measured faster first, where one layer was measured under several.

Run it: `python tests/bench/natural_ranking.py SILICON TABLES` (two minutes).

Layers of one rank that were measured with more than one configuration of the product w13: the defaults of vLLM and SGLang, and tuned
tables that ran (`training.layer_tables`). Where a layer was measured several times with one, its median counts. A pair counts where
the layer has more tokens than experts; the measured times are of whole layers, and of different stacks, so what else differs in them
(activation, combination of the experts' rows) is noise here. What is judged is the order of `advisor rank`: the places of both in the
whole space of w13. It was trained without these rows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]

from advisor.gpus.hardware import load_gpu  # noqa: E402
from advisor.learned import load_predictor  # noqa: E402
from advisor.learned.layers.moe_layer import (  # noqa: E402
    KINDS,
    MXFP4,
    TunedTables,
)
from advisor.pipelines.from_rows import batches, one_problem  # noqa: E402
from advisor.pipelines.space import problem_space  # noqa: E402
from advisor.pipelines.token_draws import BALANCED, RANDOM  # noqa: E402
from advisor.rows.rows import read_rows  # noqa: E402
from advisor.tables.entries import FIELDS  # noqa: E402
from advisor.training.silicon.layer_tables import Measured, choose_launches  # noqa: E402
from advisor.training.silicon.layer_training import fit_time, read  # noqa: E402

GAINS = (1.0, 1.05, 1.2)
Sizes = tuple[Any, ...]
Pair = tuple[Sizes, tuple[int, ...], tuple[int, ...], float, str]


def pairs(part: Measured, tuned: np.ndarray) -> list[Pair]:
    """Layer, slower and faster configuration, log of the gain, and which kind of pair; `tuned`: rows that a table's entry ran, [n]."""
    layers = part.launch.layers
    found: dict[Sizes, dict[tuple[int, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    configuration = np.stack([part.launch.configuration[name] for name in FIELDS], axis=1).astype(int)
    for row in np.flatnonzero((layers.ranks == 1) & (layers.tokens > layers.experts) & (layers.kind != MXFP4) & ~layers.ungated):
        columns = (layers.tokens, layers.experts, layers.topk, layers.hidden, layers.inner, layers.kind, layers.routing)
        found[tuple(column[row] for column in columns)][tuple(configuration[row].tolist())].append(row)
    out: list[Pair] = []
    for sizes, by_configuration in found.items():
        medians = {key: float(np.median(np.log(part.latency_us[rows]))) for key, rows in by_configuration.items()}
        table = {key: bool(tuned[rows].any()) for key, rows in by_configuration.items()}
        for one in medians:
            for other in medians:
                gain = medians[one] - medians[other]
                if gain > 0 and one[:4] != other[:4]:
                    kind = "tuned entry above default" if table[other] and not table[one] else "default above tuned entry"
                    if table[one] == table[other]:
                        kind = "two tuned entries" if table[one] else _by_size(one, other)
                    out.append((sizes, one, other, gain, kind))
    return out


def _by_size(slower: tuple[int, ...], faster: tuple[int, ...]) -> str:
    larger = np.prod(faster[:2]) > np.prod(slower[:2])
    return "larger default above small" if larger else "small default above larger"


def places(gpu: str, problems: list[Sizes]) -> dict[Sizes, dict[tuple[int, ...], float]]:
    """By layer, the score of every configuration of the space of w13: less is better."""
    names = {BALANCED: "balanced", RANDOM: "random"}
    lines = ["gpu,op,dtype,M,E,topk,H,N,routing"]
    for m, experts, topk, hidden, inner, kind, routing in problems:
        sizes = ",".join(str(int(size)) for size in (m, experts, topk, hidden, inner))
        lines.append(f"{gpu},w13,{KINDS[int(kind)]},{sizes},{names.get(routing, f'power_law:{routing:g}')}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problems.csv"
        path.write_text("\n".join(lines) + "\n")
        rows = read_rows(path, problems_only=True)
    predictor, found = load_predictor(), {}
    for batch in batches(rows, load_gpu):
        space = problem_space(batch.problem, batch.gpu.vendor)
        values = [np.broadcast_to(space.parameters[name], len(space)) for name in FIELDS[:4]]
        keys = np.stack([*values, space.num_warps, space.num_stages], axis=1).astype(int).tolist()
        for i, row in enumerate(batch.rows.tolist()):
            scores = predictor.scores(one_problem(batch.problem, i), space, batch.gpu)
            found[problems[row]] = dict(zip(map(tuple, keys), scores.tolist(), strict=True))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="measured operators, and the stacks' tuned tables")
    parser.add_argument("--per-file", type=int, default=4000, help="rows of a file to take (default: 4000)")
    parser.add_argument("--problems", type=int, default=400, help="pairs of a GPU to rank, at most (default: 400)")
    arguments = parser.parse_args()
    parts = read(arguments.folders, per_file=arguments.per_file)
    constants = fit_time([part.take(np.flatnonzero(part.launch.layers.ranks == 1)) for part in parts], steps=25)
    chosen, _ = choose_launches(parts, TunedTables(arguments.folders), constants)
    verdicts: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    outside = 0
    for before, part in zip(parts, chosen, strict=True):
        gpu = part.launch.gpu.name
        changed = [before.launch.configuration[name] != part.launch.configuration[name] for name in FIELDS]
        some = pairs(part, np.any(changed, axis=0))
        picked = np.random.default_rng(0).permutation(len(some))[: arguments.problems]
        some = [some[i] for i in np.sort(picked)]
        scores = places(gpu, list(dict.fromkeys(pair[0] for pair in some)))
        for sizes, slower, faster, gain, kind in some:
            of = scores.get(sizes, {})
            if slower not in of or faster not in of:
                outside += 1
                continue
            verdicts[kind].append((gain, of[faster] < of[slower]))
    print(f"{outside} pairs have a configuration that is not in the space of `advisor rank`")
    for kind, found in sorted(verdicts.items()):
        gains, right = (np.array(column) for column in zip(*found, strict=True))
        words = []
        for least in GAINS:
            rows = gains > np.log(least)
            words.append(f"faster by {100 * (least - 1):.0f} %: {100 * right[rows].mean():.1f} % of {rows.sum()}" if rows.any() else "")
        print(f"{kind}: ranked above, where it measured " + "; ".join(filter(None, words)))


if __name__ == "__main__":
    main()
