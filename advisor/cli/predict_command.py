"""Predict the latency of every launch of a CSV file.

Adds to each row bound_us, config_bound_us, predicted_us, predicted_low_us, predicted_high_us, ceiling_us, binding_pipeline and
p_speedup_10pct. Columns: gpu; family, op and dtype where they do not follow from the others (E: fused_moe; M, N, K: gemm; op: that
operator; bf16, but fp8 where the file's name says so, fp32 for published library operators with the published columns or the kernel that
ran, and no configuration); the sizes M, N, K, E, topk, H, B, D, H_kv; gemm (w13 or w2); weight_dtype, output_dtype and block_shape (128
128) where the weights, the output or blocks of scales are not as dtype implies; BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K, GROUP_SIZE_M,
num_warps, num_stages. A row without a configuration is predicted as the serving stack would launch it. Where bf16 is assumed of rows that
are no fused MoE, a line on stderr says so. ceiling_us is what the model gives for the best of the space, or predicted_us where that is
lower; `advise` and `tune` rank the space, and may name a configuration that is predicted faster still. bound_us of an fp32 product is that
of an exact one, on the vector units: tf32 and tf32x3 (dtype tf32) can go below it. Where latency_us is given, p_speedup_10pct is the
probability that at least 10 % of it can be won. Of a sweep's summary (best_us, default_us) the default is the launch: its columns
default_BLOCK_SIZE_M, … are read as the configuration, default_us as latency_us. A library kernel (any family but fused MoE, without a
configuration) chooses its own configuration: its ceiling is its prediction, and p_speedup_10pct stays empty. For fp8 and fp32
products, which library launches were learned from, that is none that splits the depth: of few tiles and a long depth `rank` and `advise`
may predict many times less. Of a configuration that cannot launch nothing is predicted. Warnings on stderr name such rows, and those
whose latency_us is below the bound.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.cli import options
from advisor.hardware import GpuSpec, load_gpu

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from advisor.pipelines import Demand

HELP = "predict the latency of every row of a CSV file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor predict`."""
    parser.add_argument("rows", metavar="ROWS.csv", help="launches, one per line (.gz is fine)")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.csv", help="where to write them with predictions")
    parser.add_argument("--gpu", metavar="NAME", help="GPU of every row, in place of the column gpu")
    parser.add_argument("--weights", metavar="FILE", help="weights that `advisor train` wrote (default: those shipped)")


def run(arguments: argparse.Namespace) -> int:
    """Predict and write."""
    import numpy as np

    from advisor import pipelines
    from advisor.configs.rows import read_rows, write_rows
    from advisor.learned import load_predictor
    from advisor.learned.base import ANALYTICAL
    from advisor.learned.caveats import unmeasured_vendor
    from advisor.learned.data import settle_dtypes
    from advisor.learned.reached import tunable_ceiling
    from advisor.pipelines.from_rows import batches
    from advisor.schema import PIPELINES

    rows = read_rows(arguments.rows, defaults=True)
    assumed = settle_dtypes(rows, Path(arguments.rows).name, arguments.gpu)
    predictor = load_predictor(Path(arguments.weights) if arguments.weights else None)
    names = ("bound_us", "config_bound_us", "predicted_us", "predicted_low_us", "predicted_high_us", "ceiling_us", "p_speedup_10pct")
    out = {name: np.full(len(rows), np.nan) for name in names}
    binding = np.full(len(rows), "", dtype=object)
    measured = rows.columns.get("latency_us")
    blank = beyond = fallen = 0
    gpus: list[GpuSpec] = []
    stuck: list[str] = []
    for batch in batches(rows, load_gpu, arguments.gpu):
        gpus.append(batch.gpu)
        index, problem, gpu = batch.rows, batch.problem, batch.gpu
        work = pipelines.work(problem, gpu)
        bound = pipelines.bound(work, gpu, problem.cache)
        out["bound_us"][index] = bound.us
        binding[index] = np.array(PIPELINES, dtype=object)[bound.binding]
        if batch.configuration is not None:
            demand = pipelines.demand(problem, batch.configuration, gpu)
            out["config_bound_us"][index] = pipelines.config_bound(work, demand, gpu, problem.cache).us
        prediction = predictor.predict(problem, batch.configuration, gpu)
        launches = np.isfinite(prediction.us)
        beyond += prediction.extrapolated
        fallen += prediction.analytical if predictor.name != ANALYTICAL else 0
        if batch.configuration is not None:
            stuck += _stuck(index, np.broadcast_to(~launches, index.shape), demand, gpu)
        else:
            stuck += [options.nothing_launches(row, gpu) for row in index[np.broadcast_to(~launches, index.shape)].tolist()]
        # What a library launches was tuned by others, and cannot be tuned here.
        library = problem.family != "fused_moe" and batch.configuration is None
        ceiling = prediction if library else predictor.ceiling(problem, gpu)
        out["predicted_us"][index] = prediction.us
        out["predicted_low_us"][index] = prediction.low_us
        out["predicted_high_us"][index] = prediction.high_us
        out["ceiling_us"][index] = (prediction if library else tunable_ceiling(ceiling, bound.us, prediction.us)).us
        if library:
            blank += index.size
            continue
        latency = measured[index] if measured is not None else np.full(index.size, np.nan)
        p = predictor.p_speedup(problem, gpu, None, prediction, ceiling)
        known = np.isfinite(latency)
        if known.any():
            now = np.where(known, latency, prediction.us)
            p = np.where(known, predictor.p_speedup(problem, gpu, now, prediction, ceiling, batch.configuration), p)
        out["p_speedup_10pct"][index] = np.where(launches, p, np.nan)  # what cannot launch has no speed to gain on
    if assumed:
        print(f"advisor: {assumed}", file=sys.stderr)
    if blank:
        print(f"advisor: p_speedup_10pct is left empty for {blank} launches of library kernels: they choose their own configuration, so "
              "there is nothing to tune", file=sys.stderr)  # fmt: skip
    # A configuration that cannot launch has no latency: an empty cell, not infinity.
    for name in names:
        out[name][~np.isfinite(out[name])] = np.nan
    appended: dict[str, Any] = {**{n: out[n] for n in names[:6]}, "binding_pipeline": binding, names[6]: out[names[6]]}
    write_rows(rows, arguments.output, appended | options.gpu_column(arguments.gpu, len(rows)))
    if beyond:
        print(f"advisor: launches outside of what was learned: {beyond}; their latencies are extrapolated, their intervals a guess",
              file=sys.stderr)  # fmt: skip
    if fallen:
        print(f"advisor: launches far outside of what was learned: {fallen}; the analytical model answers for them", file=sys.stderr)
    options.warn_of_rows(stuck)
    if measured is not None:
        options.warn_of_rows([f"row {i + 1}: measured {measured[i]:.6g} µs is below the bound {out['bound_us'][i]:.6g} µs: a fault of the "
                              "model or of the measurement" for i in np.flatnonzero(measured < out["bound_us"])])  # fmt: skip
    for caveat in unmeasured_vendor(gpus):
        options.warn(caveat)
    return 0


def _stuck(rows: NDArray[np.int64], chosen: NDArray[np.bool_], demand: Demand, gpu: GpuSpec) -> list[str]:
    """Why not one CTA of the `chosen` [n] launches of a batch fits the GPU, by their numbers `rows` [n] in the file."""
    import numpy as np

    from advisor import pipelines
    from advisor.pipelines.occupancy import LIMITERS, MAX_THREADS_PER_CTA

    if not chosen.any():
        return []
    plan, held = pipelines.schedule(demand, gpu), demand.resources
    columns = (held.shared_memory_bytes, held.num_warps, plan.limiter)
    memory, warps, limiters = (np.broadcast_to(column, rows.shape)[chosen].tolist() for column in columns)
    out = []
    for row, needed, warp_count, limiter in zip(rows[chosen].tolist(), memory, warps, limiters, strict=True):
        if LIMITERS[limiter] == "shared-memory":
            why = f"a CTA needs {needed / 1024:.0f} KiB of shared memory, at most {gpu.smem_bytes_per_cta / 1024:.0f} KiB are allowed"
        elif LIMITERS[limiter] == "warps":
            why = f"num_warps={warp_count:.0f} of {gpu.warp_size} threads, allowed are powers of two up to {MAX_THREADS_PER_CTA:,} threads"
        else:
            why = f"no CTA fits an SM ({LIMITERS[limiter]})"
        out.append(f"row {row + 1} cannot launch on {gpu.name}: {why}")
    return out
