"""Predict the latency of every launch of a CSV file.

columns added to each row (empty where there is nothing to say):
  bound_us            no kernel can be faster; of an fp32 product on the vector units: tf32 and tf32x3 (dtype tf32) can go below it;
                      of an fp16 product on GeForce: one summed up in fp16 can
  config_bound_us     no launch with this configuration can be faster
  predicted_us        the latency; empty where the configuration cannot launch
  predicted_low_us    and predicted_high_us: where it lies in 80 % of cases
  ceiling_us          the best of the configurations, or predicted_us where that is lower; `advise` and `tune` rank them, and may name one
                      that is predicted faster still
  binding_pipeline    what the bound is made of
  p_speedup_10pct     the probability that another configuration wins at least 10 % of latency_us where that is given, else of predicted_us

columns read:
  gpu                 or --gpu for all rows
  family, op, dtype   where they do not follow from the others (E: fused_moe; M, N, K: gemm; op: that operator; bf16, but fp8 where the
                      file's name says so, fp32 for library operators as published; a line on stderr says what was assumed)
  sizes               M, N, K, E, topk, H, B, D, H_kv; gemm (w13 or w2); of attention also causal and window (the last keys it sees);
                      attention without op is decode where M = 1, else prefill
  whose kernel        stack (vllm, sglang), stack_version, implementation (fa3, trtllm_mha, … as aiconfigurator's kernel_source): of gemm
                      and attention without a configuration; where they are empty, the newest kernel measured on that GPU. They are
                      predicted as measured: weights mostly cold, KV cache as it fits the L2
  op = layer          a whole mixture-of-experts layer as a serving stack launches it: stack (vllm or sglang; else vllm), stack_version
                      (else the newest measured on that GPU), ep (expert-parallel ranks; M and E are of all, N of one), gated (0: w13 has
                      N columns), dtype (fp8_block and w4a16_mxfp4 too), routing; or all this as `ai-dynamo/aiconfigurator` names it.
                      With an implementation that is not Triton's (its kernel_source, or marlin, deepgemm, cutlass, trtllm, cutedsl), with
                      stack trtllm or aiter, or in nvfp4, int4_wo, mxfp8, w4afp8, w4a4_mxfp4 or w4a8_mxfp4_mxfp8: what that library
                      takes, on one rank
  op_name             of `ai-dynamo/aiconfigurator`, with its own columns: gated delta rule, KDA and Mamba2 kernel by kernel (gdn, kda,
                      mamba2), modules of sparse attention (dsa_…, dsv4_…, msa_…), encoder_attention, mla_gen_pre and _post, pre and post
                      of hyper-connections (with hc_mult)
  routing             random, balanced, power_law:A, or token slots per expert; empty: random for op = layer, else balanced, as the
                      published products were measured
  quantisation        1: of a configured product that scales blocks, with the quantisation of its activations before it, as the stacks'
                      linears run; a library's linear was measured with it
  storage             weight_dtype, output_dtype and block_shape (128 128), where these are not what dtype implies
  configuration       BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K, GROUP_SIZE_M (else 1), num_warps (else 4), num_stages (else 3); a
                      fused-MoE row without one is predicted as the serving stack would launch it
  latency_us          measured, if known

Rows of aiconfigurator under its own names (m, n, k, gemm_dtype, num_heads, isl, step, kernel_source, latency in ms) are read as they are.
Of a sweep's summary (best_us, default_us) the default is the launch: default_BLOCK_SIZE_M, … are its configuration, default_us its
latency_us. A library kernel (any family but fused MoE, without a configuration) chooses its own configuration: its ceiling is its
prediction, and p_speedup_10pct stays empty. For fp8 and fp32 products that is one that does not split the depth: of few tiles and a long
depth `rank` and `advise` may predict many times less. Warnings on stderr name rows that cannot launch, and those whose latency_us is
below the bound.

examples:
  advisor predict launches.csv -o predicted.csv
  advisor predict launches.csv --gpu H200 -o - | head
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.cli import options
from advisor.system.errors import InputError, several

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from advisor.gpus.hardware import GpuSpec
    from advisor.learned.base import Predictor
    from advisor.pipelines import Array, Demand
    from advisor.rows.rows import Rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor predict`."""
    parser.add_argument("rows", metavar="ROWS.csv", help="launches, one per line (.gz is fine)")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.csv", help="where to write them, predicted (-: standard output)")
    parser.add_argument("--gpu", metavar="NAME", help="GPU of every row, in place of the column gpu")
    parser.add_argument(
        "--routing", metavar="NAME", help="routing of every row, in place of the column: random, balanced, power_law:A or a file of loads"
    )
    parser.add_argument("--weights", metavar="FILE", help="weights that `advisor train` wrote (default: those shipped)")


_COLUMNS = ("bound_us", "config_bound_us", "predicted_us", "predicted_low_us", "predicted_high_us", "ceiling_us", "p_speedup_10pct")


@dataclass(kw_only=True)
class _Predicted:
    """The columns appended to the rows, and the notes on them for stderr.

    Attributes:
        columns: By name, [rows]; NaN where there is nothing to say.
        binding: The pipeline that binds the bound, [rows].
        untunable: Launches of library kernels, which choose their own configuration.
        extrapolated: Launches outside of what was learned.
        analytical: Launches so far outside that the analytical model answers.
        stuck: A sentence for each launch that cannot be made.
        gpus: Of the rows, but for products of libraries.
        unmeasured: GPUs of layers on which no layer was measured.
        stand_ins: Operators of kernels that were never measured.
    """

    columns: dict[str, NDArray[np.float64]]
    binding: NDArray[np.object_]
    untunable: int = 0
    extrapolated: int = 0
    analytical: int = 0
    stuck: list[str] = field(default_factory=list)
    gpus: list[GpuSpec] = field(default_factory=list)
    unmeasured: list[str] = field(default_factory=list)
    stand_ins: int = 0

    def fill(self, rows: NDArray[np.int64], columns: dict[str, Array], binding: NDArray[Any], unseen: str | None = None) -> None:
        """The columns of some rows, and the pipelines that bind their bounds; what cannot launch has no latency, and gets an empty cell.

        `unseen`: the GPU of layers or operators of which none was measured there.
        """
        import numpy as np

        self.untunable += 0 if "p_speedup_10pct" in columns else rows.size
        self.unmeasured += [unseen] if unseen else []
        for name, values in columns.items():
            self.columns[name][rows] = np.where(np.isfinite(values), values, np.nan)
        self.binding[rows] = binding.astype(object)


def run(arguments: argparse.Namespace) -> int:
    """Predict and write."""
    from advisor.learned import load_predictor
    from advisor.rows.rows import read_rows, write_rows
    from advisor.rows.types_and_origin import settle_dtypes

    output = options.rows_output(arguments.output, arguments.rows)
    rows = read_rows(arguments.rows, defaults=True)
    if arguments.routing:
        rows.text["routing"] = [_routing(arguments.routing)] * len(rows)
    assumed = settle_dtypes(rows, Path(arguments.rows).name, arguments.gpu)
    predictor = load_predictor(Path(arguments.weights) if arguments.weights else None)
    predicted = _predict(rows, predictor, arguments.gpu)
    *latencies, probability = _COLUMNS
    appended: dict[str, Any] = {name: predicted.columns[name] for name in latencies}
    appended |= {"binding_pipeline": predicted.binding, probability: predicted.columns[probability]}
    for text in (assumed, *_filled_in(rows)):
        if text:
            options.note(text)
    write_rows(rows, output, appended | options.gpu_column(arguments.gpu, len(rows)))
    _tell(predicted, rows.columns.get("latency_us"))
    return 0


def _routing(text: str) -> str:
    """A cell of the column routing: a name as it is, the loads of a file as they stand there.

    Raises:
        InputError: It is neither.
    """
    from advisor.tables.routing import Routing

    return str(Routing.given(text))


def _filled_in(rows: Rows) -> list[str]:
    """Parameters that configurations leave out, with the value taken: a misspelt column passes through, and is otherwise missed unseen."""
    import numpy as np

    from advisor.rows.columns import CONFIG_DEFAULTS, OF_DEFAULTS
    from advisor.rows.rows import is_tiled

    tiled = np.array([is_tiled(*kind) for kind in zip(rows.family, rows.op, strict=True)], dtype=bool)
    out = []
    for name, default in CONFIG_DEFAULTS.items():
        cells = rows.text.get(name, rows.text.get(OF_DEFAULTS + name))
        empty = np.array([not cell.strip() for cell in cells], dtype=bool) if cells is not None else np.ones(len(rows), dtype=bool)
        read = rows.has_configuration & (tiled if name == "GROUP_SIZE_M" else True)
        if count := int(np.count_nonzero(read & empty)):
            out.append(f"{name} is not given by {several(count, 'configuration')}: {default} is assumed")
    return out


def _predict(rows: Rows, predictor: Predictor, gpu: str | None) -> _Predicted:
    """Predict all rows; `gpu` stands in place of their column."""
    import numpy as np

    from advisor import pipelines
    from advisor.gpus.hardware import load_gpu
    from advisor.learned.base import ANALYTICAL, tunable_ceiling
    from advisor.learned.layers.moe_layer import quantisation_us, scales_blocks
    from advisor.pipelines.from_rows import batches
    from advisor.result.schema import PIPELINES

    out = _Predicted(columns={name: np.full(len(rows), np.nan) for name in _COLUMNS}, binding=np.full(len(rows), "", dtype=object))
    measured = rows.columns.get("latency_us", np.full(len(rows), np.nan))
    for batch in batches(rows, load_gpu, gpu):
        index, problem, configuration = batch.rows, batch.problem, batch.configuration
        columns: dict[str, Array] = {}
        work = pipelines.work(problem, batch.gpu)
        bound = pipelines.bound(work, batch.gpu, problem.cache)
        columns["bound_us"] = bound.us
        prediction = predictor.predict(problem, configuration, batch.gpu)
        launches = np.isfinite(prediction.us)
        if configuration is not None:
            demand = pipelines.demand(problem, configuration, batch.gpu)
            columns["config_bound_us"] = pipelines.config_bound(work, demand, batch.gpu, problem.cache).us
            out.stuck += _stuck(index, np.broadcast_to(~launches, index.shape), demand, batch.gpu, problem.dtype)
        else:
            stuck = index[np.broadcast_to(~launches, index.shape)].tolist()
            out.stuck += [options.nothing_launches(row, batch.gpu) for row in stuck]
        if problem.family != "fused_moe" and configuration is None:  # what a library launches was tuned by others, and cannot be tuned here
            ceiling = prediction
        else:
            calibrated = predictor.ceiling(problem, batch.gpu)
            ceiling = tunable_ceiling(calibrated, bound.us, prediction.us)
            p = predictor.p_speedup(problem, batch.gpu, None, prediction, calibrated, configuration)
            known = np.isfinite(measured[index])
            if known.any():
                now = np.where(known, measured[index], prediction.us)
                p = np.where(known, predictor.p_speedup(problem, batch.gpu, now, prediction, calibrated, configuration), p)
            columns["p_speedup_10pct"] = np.where(launches, p, np.nan)  # what cannot launch has no speed to gain on
        columns |= {
            "predicted_us": prediction.us,
            "predicted_low_us": prediction.low_us,
            "predicted_high_us": prediction.high_us,
            "ceiling_us": ceiling.us,
        }
        if configuration is not None and scales_blocks(problem) and "quantisation" in rows.text:
            wanted = np.array([rows.text["quantisation"][row].strip().lower() in ("1", "yes", "true") for row in index.tolist()])
            more = np.where(wanted, quantisation_us(problem.sizes["M"], problem.sizes["K"], batch.gpu), 0.0)
            columns |= {name: columns[name] + more for name in ("predicted_us", "predicted_low_us", "predicted_high_us", "ceiling_us")}
        out.fill(index, columns, np.array(PIPELINES)[bound.binding])
        out.extrapolated += prediction.extrapolated
        out.analytical += prediction.analytical if predictor.name != ANALYTICAL else 0
        if problem.family != "gemm" or configuration is not None:  # AMD's library products were measured
            out.gpus.append(batch.gpu)
    _predict_layers(rows, out, predictor, gpu)
    _predict_library_layers(rows, out, gpu)
    _predict_operators(rows, out, gpu)
    return out


def _predict_layers(rows: Rows, out: _Predicted, predictor: Predictor, gpu: str | None) -> None:
    """Predict the rows that are whole mixture-of-experts layers."""
    import numpy as np

    from advisor.gpus.hardware import load_gpu
    from advisor.learned.layers import layer_model
    from advisor.result.schema import PIPELINES
    from advisor.steps.batches_of_rows import has_layers, layer_batches
    from advisor.steps.latency import layer_bound

    if not has_layers(rows):
        return
    model = layer_model.load(getattr(getattr(predictor, "weights", None), "silicon", {}))
    if model is None:
        raise InputError("the weights know no layers", "op = layer", "weights fitted to measured layers", "leave --weights out")
    for batch in layer_batches(rows, model, load_gpu, gpu):
        bound, predicted = layer_bound(batch.launch, batch.cold), model.predict(batch.launch, batch.cold)
        raised = np.maximum(1.0, bound.us / predicted.us)
        columns = {
            "bound_us": bound.us,
            "config_bound_us": bound.config_us,
            "predicted_us": predicted.us * raised,
            "predicted_low_us": np.maximum(predicted.low_us * raised, bound.us),
            "predicted_high_us": predicted.high_us * raised,
            "ceiling_us": np.maximum(predicted.ceiling_us, bound.us),
            "p_speedup_10pct": predicted.p_speedup,
        }
        out.fill(batch.rows, columns, np.array(PIPELINES)[bound.binding], None if predicted.seen else batch.launch.gpu.name)
        out.gpus.append(batch.launch.gpu)


def _predict_library_layers(rows: Rows, out: _Predicted, gpu: str | None) -> None:
    """Predict the rows that are whole layers of a library's kernels, which choose their own configuration."""
    import numpy as np

    from advisor.gpus.hardware import load_gpu
    from advisor.learned.library import moe_kernels, moe_layers
    from advisor.steps.batches_of_rows import library_batches, library_layers

    if not library_layers(rows).any():
        return
    for batch in library_batches(rows, moe_kernels.load_shipped, load_gpu, gpu):
        least, binding = moe_layers.bound(batch.layers, batch.gpu, batch.cold)
        predicted = batch.model.predict(batch.layers, batch.which, batch.gpu, batch.cold)
        us = np.maximum(predicted.us, least)
        columns = {
            "bound_us": least,
            "predicted_us": us,
            "predicted_low_us": np.clip(predicted.low_us, least, us),
            "predicted_high_us": np.maximum(predicted.high_us, us),
            "ceiling_us": us,
        }
        out.fill(batch.rows, columns, binding, None if predicted.seen else batch.gpu.name)


def _predict_operators(rows: Rows, out: _Predicted, gpu: str | None) -> None:
    """Predict the rows that are published operators, whose kernels choose their own configuration."""
    from advisor.gpus.hardware import load_gpu
    from advisor.learned.operators import model as operator_model
    from advisor.steps.batches_of_rows import has_operators, operator_batches

    if not has_operators(rows):
        return
    for batch in operator_batches(rows, operator_model.load_shipped(), load_gpu, gpu):
        predicted = batch.predict()
        out.stand_ins += int(batch.unmeasured.sum())
        least, binding = operator_model.bound(batch.operators, batch.gpu)
        columns = {
            "bound_us": least,
            "predicted_us": predicted.us,
            "predicted_low_us": predicted.low_us,
            "predicted_high_us": predicted.high_us,
            "ceiling_us": predicted.us,
        }
        out.fill(batch.rows, columns, binding, None if predicted.seen else batch.gpu.name)


def _tell(predicted: _Predicted, measured: Array | None) -> None:
    """Say on stderr what the rows do not: where nothing is known, where the model is far from what it learned, and what cannot be."""
    import numpy as np

    from advisor.learned.base import unmeasured_vendor

    if predicted.untunable:
        options.note(
            f"p_speedup_10pct is left empty for {several(predicted.untunable, 'launch')} of library kernels: these choose their own "
            "configuration, so there is nothing to tune"
        )
    if predicted.unmeasured:
        names = ", ".join(dict.fromkeys(predicted.unmeasured))
        options.note(f"no layer or operator of this kind was measured on {names}: their intervals are those of GPUs left out, and wider")
    if predicted.stand_ins:
        options.note(
            f"{several(predicted.stand_ins, 'launch')} of kernels without a measurement that counts: the nearest kernel answers, and the "
            "intervals reach over all that were measured"
        )
    if predicted.extrapolated:
        options.note(
            f"launches outside of what was learned: {predicted.extrapolated}; their latencies are extrapolated, their intervals a guess"
        )
    if predicted.analytical:
        options.note(f"launches far outside of what was learned: {predicted.analytical}; the analytical model answers for them")
    options.warn_of_rows(predicted.stuck)
    if measured is not None:
        bound = predicted.columns["bound_us"]
        options.warn_of_rows(
            [
                f"row {i + 1}: measured {measured[i]:.6g} µs is below the bound {bound[i]:.6g} µs: a fault of the "
                "model or of the measurement"
                for i in np.flatnonzero(measured < bound)
            ]
        )
    for caveat in unmeasured_vendor(predicted.gpus):
        options.warn(caveat)


def _stuck(rows: NDArray[np.int64], chosen: NDArray[np.bool_], demand: Demand, gpu: GpuSpec, dtype: str) -> list[str]:
    """Why the `chosen` [n] launches of a batch cannot be made, by their numbers `rows` [n] in the file."""
    import numpy as np

    from advisor import pipelines
    from advisor.pipelines.occupancy import LIMITERS, MAX_THREADS_PER_CTA
    from advisor.tables.launchability import least_block_k

    if not chosen.any():
        return []
    plan, resources = pipelines.schedule(demand, gpu), demand.resources
    columns = (resources.shared_memory_bytes, resources.num_warps, plan.limiter, True if resources.compiles is None else resources.compiles)
    memory, warps, limiters, compiles = (np.broadcast_to(column, rows.shape)[chosen].tolist() for column in columns)
    out = []
    for row, needed, warp_count, limiter, compiled in zip(rows[chosen].tolist(), memory, warps, limiters, compiles, strict=True):
        if not compiled:
            why = f"tl.dot takes a BLOCK_SIZE_K of {least_block_k(dtype, gpu.vendor)} or more of {dtype} operands"
        elif LIMITERS[limiter] == "shared-memory":
            why = f"a CTA needs {needed / 1024:.0f} KiB of shared memory, at most {gpu.smem_bytes_per_cta / 1024:.0f} KiB are allowed"
        elif LIMITERS[limiter] == "warps":
            why = f"num_warps={warp_count:.0f} of {gpu.warp_size} threads, allowed are powers of two up to {MAX_THREADS_PER_CTA:,} threads"
        else:
            why = f"no CTA fits an SM ({LIMITERS[limiter]})"
        out.append(f"row {row + 1} cannot launch on {gpu.name}: {why}")
    return out
