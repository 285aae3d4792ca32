"""How much of what another configuration wins the model of whole layers foresees, that of their products, and the mean of both.

Run it: `python tests/bench/layer_gains.py [SILICON TABLES]` (ten seconds; with folders two minutes).

Pairs of configurations of one layer of one rank. Of `ceilings/measurements/` both products were measured under both, so that the layer's
difference is known but for its other kernels: the layers' model never saw these rows, the products' did. With folders besides, defaults of
two stacks whose whole layers were measured: the layers' model saw those, the products' did not. Printed by tokens: the predictions' slope
against the measured logarithms, and their root mean square error.

Before it, what either makes of our own 16-bit launches over what these took, by the steps along K: the products of layers, and the model
that was learned of the published sweeps' best configurations.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from bench.natural_ranking import pairs  # noqa: E402

from advisor.gpus.hardware import load_gpu  # noqa: E402
from advisor.learned import load_predictor  # noqa: E402
from advisor.learned.base import predict_each  # noqa: E402
from advisor.learned.estimator import LearnedPredictor  # noqa: E402
from advisor.learned.layers import layer_model  # noqa: E402
from advisor.learned.layers.moe_layer import (  # noqa: E402
    BF16,
    FP8,
    FP8_BLOCK,
    KINDS,
    TunedTables,
    kind_of,
    layers_of,
)
from advisor.learned.weights import Weights  # noqa: E402
from advisor.pipelines import ConfigurationBatch, configuration_batch, problem_batch, token_draws  # noqa: E402
from advisor.result.schema import Configuration, Problem  # noqa: E402
from advisor.steps.latency import costs_of_layers  # noqa: E402
from advisor.tables.entries import FIELDS  # noqa: E402
from advisor.training.silicon.layer_tables import choose_launches  # noqa: E402
from advisor.training.silicon.layer_training import fit_time, read  # noqa: E402

SIZES = ("M", "E", "topk", "H", "N")
TOKENS = (1, 128, 2048, 10**9)
MOST = 300
Launch = tuple[int, ...]
Pair = tuple[str, tuple[Any, ...], Launch, Launch, float, float]
"""GPU; sizes, kind and routing (an exponent, or rows of each expert); two configurations; the layer's microseconds under each."""


def own_times() -> dict[Any, dict[str, dict[Launch, float]]]:
    """Measured microseconds of the H100's rows by sizes, kind and routing; by operator; by configuration."""
    times: dict[Any, dict[str, dict[Launch, float]]] = defaultdict(lambda: defaultdict(dict))
    for path in sorted((ROOT / "ceilings/measurements").glob("h100-tiles*.csv.gz")):
        with gzip.open(path, "rt") as file:
            for row in csv.DictReader(file):
                plain = row["family"] == "fused_moe" and row["latency_us"] and not row.get("weight_dtype")
                kind = kind_of(row["dtype"], None, (128, 128) if row["block_shape"] else None) if plain else None
                if kind is not None:
                    key = (*(int(row[name]) for name in SIZES), kind, row["routing"] or token_draws.BALANCED)
                    times[key][row["op"]][tuple(int(row[name] or 1) for name in FIELDS)] = float(row["latency_us"])
    return times


def own_pairs(predict: Any) -> Iterator[Pair]:
    """Pairs of the H100's rows, their other kernels as `predict` has them with the first configuration."""
    for key, of in own_times().items():
        both = sorted(of["w13"].keys() & of["w2"].keys())
        for one, other in itertools.combinations(both, 2):
            before, after = (of["w13"][item] + of["w2"][item] for item in (one, other))
            cost, products = predict("H100", key, one)
            yield "H100", key, one, other, before + max(cost - products, 0.0), after + max(cost - products, 0.0)


def default_pairs(folders: list[str]) -> Iterator[Pair]:
    """Pairs of two stacks' defaults, `MOST` a GPU, as one microsecond and its ratio."""
    parts = read(folders, per_file=4000)
    constants = fit_time([part.take(np.flatnonzero(part.launch.layers.ranks == 1)) for part in parts], steps=25)
    chosen, _ = choose_launches(parts, TunedTables(folders), constants)
    for before, part in zip(parts, chosen, strict=True):
        tuned = np.any([before.launch.configuration[name] != part.launch.configuration[name] for name in FIELDS], axis=0)
        some = [pair for pair in pairs(part, tuned) if "tuned" not in pair[4] and pair[0][5] in (BF16, FP8, FP8_BLOCK)]
        for i in np.random.default_rng(0).permutation(len(some))[:MOST].tolist():
            key, one, other, gain, _ = some[i]
            yield part.launch.gpu.name, key, one, other, float(np.exp(gain)), 1.0


def asked(key: tuple[Any, ...], launch: Launch) -> tuple[Problem, ConfigurationBatch]:
    """A layer's first product, and its configuration."""
    *sizes, kind, routing = key
    given = {token_draws.BALANCED: None, token_draws.RANDOM: "random"}
    problem = Problem(
        family="fused_moe",
        op="w13",
        dtype=KINDS[int(kind)].split("_")[0],
        sizes=dict(zip(SIZES, map(int, sizes), strict=True)),
        block_shape=(128, 128) if kind == FP8_BLOCK else None,
        routing=tuple(int(x) for x in routing.split()) if isinstance(routing, str) else None,
        distribution=None if isinstance(routing, str) else given.get(routing, f"power_law:{routing:g}"),
    )
    parameters = dict(zip(FIELDS[:4], launch[:4], strict=True))
    return problem, configuration_batch([Configuration(parameters=parameters, num_warps=launch[4], num_stages=launch[5])])


def print_products(weights: Weights) -> None:
    """Prints what both models make of the H100's 16-bit launches over what these took: median, and 10 and 90 %."""
    assert weights.layer_products is not None
    swept = LearnedPredictor(replace(weights, configured=None, silicon={}))
    errors: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for key, of in own_times().items():
        for op, launch, us in ((op, *item) for op, some in of.items() if key[5] == BF16 for item in some.items()):
            problem, configuration = asked(key, launch)
            batch = problem_batch([replace(problem, op=op)])
            answers = (some.predict(batch, configuration, load_gpu("H100")).us[0] for some in (weights.layer_products, swept))
            error = tuple(np.log(answer / us) for answer in answers)
            steps = f"K steps of {launch[2]}"
            for name in (steps, f"{steps}, tile of 64x64") if launch[:3] == (64, 64, 32) else (steps,):
                errors[name].append(error)  # type: ignore[arg-type]
    for name, values in sorted(errors.items()):
        layers, sweeps = (
            "{:.2f} ({:.2f} to {:.2f})".format(*np.exp(np.quantile(column, (0.5, 0.1, 0.9)))) for column in np.array(values).T
        )
        print(f"predicted over measured, {name}, {len(values)} launches: layers {layers}; sweeps {sweeps}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="measured operators, and the stacks' tuned tables")
    folders = parser.parse_args().folders
    predictor = load_predictor()
    model = layer_model.load(predictor.weights.silicon)

    def whole(gpu: str, key: tuple[Any, ...], launch: Launch) -> tuple[float, float]:
        """The layer by its own model, and its products in it."""
        *sizes, kind, routing = key
        size = {name: np.array([float(value)]) for name, value in zip(SIZES, sizes, strict=True)}
        layers = layers_of(size, int(kind), False, model.newest(gpu, False), routing if not isinstance(routing, str) else 0.0)
        loads = token_draws.loads(layers.tokens, layers.experts, layers.topk, layers.ranks, layers.routing)
        if isinstance(routing, str):
            given = np.array([token_draws.of_histogram([int(x) for x in routing.split()], int(sizes[0] * sizes[2]))])
            loads = replace(loads, slots=given[:, 0], used=given[:, 1], least_used=given[:, 2], hottest=given[:, 3], blocks=given[:, 4:])
        columns = dict(zip(FIELDS, np.array([launch], dtype=float).T, strict=True))
        cost = costs_of_layers(model.launched(layers, load_gpu(gpu), columns, loads), model, False)[0]
        return cost.us, sum(us for name, us in cost.parts if name in ("w13", "w2"))

    def products(gpu: str, key: tuple[Any, ...], launch: Launch) -> float:
        problem, configuration = asked(key, launch)
        both = [(replace(problem, op=op), configuration) for op in ("w13", "w2")]
        return float(sum(item.us[0] for item in predict_each(predictor, both, load_gpu(gpu))))

    print_products(predictor.weights)
    sets = {"products measured": own_pairs(whole)} | ({"layers measured": default_pairs(folders)} if folders else {})
    for name, found in sets.items():
        rows: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
        for gpu, key, one, other, before, after in found:
            (now, parts), (then, _) = whole(gpu, key, one), whole(gpu, key, other)
            ratio = products(gpu, key, other) / products(gpu, key, one)
            answers = np.log(then / now), np.log(1 - parts / now * (1 - ratio))
            if np.isfinite(answers).all():
                rows[int(np.searchsorted(TOKENS, key[0], side="right"))].append((np.log(after / before), *answers))
        for place, values in sorted(rows.items()):
            measured, by_layer, by_products = np.array(values).T
            words = []
            for label, said in (("layers", by_layer), ("products", by_products), ("mean", (by_layer + by_products) / 2)):
                slope = (said * measured).sum() / (measured**2).sum()
                words.append(f"{label}: slope {slope:.2f}, error {np.sqrt(((said - measured) ** 2).mean()):.3f}")
            print(f"{name}, from {TOKENS[place - 1]} tokens, {measured.size} pairs: " + "; ".join(words))


if __name__ == "__main__":
    main()
