"""The analytical model as a predictor: what is used where no learned model applies.

The configuration a serving stack launches, where nobody recorded it.

The published launches "as served" were configured by shape alone: PipeWeave's analytical model (arXiv 2601.14910; repository
`zksainx/pipeweave`, `triton_moe_calculator.py`) names the block sizes per number of tokens, hidden size, experts and class of
shared memory, and the steps of the measured latencies lie where it says. Warps and stages are not known; the values here are
plausible, and the forest that corrects the physics has learned with them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from advisor import pipelines
from advisor.compiled.phases import with_phases
from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import ANALYTICAL, Prediction, Ranking, ranking_of
from advisor.learned.calibration import CERTAIN
from advisor.learned.machine import Machine, machine
from advisor.pipelines import Array, ConfigurationBatch, Demand, ProblemBatch, column
from advisor.pipelines.space import library_configurations, together, typical_configurations
from advisor.tables.entries import default_fields

SMALL_SMEM_BYTES = 128 * 1024
LARGE_SMEM_BYTES = 200 * 1024


def served_configuration(problem: ProblemBatch, gpu: Machine) -> ConfigurationBatch:
    """Configuration columns [n] for fused-MoE problems of `gpu`."""
    tokens, experts, hidden = np.broadcast_arrays(problem.sizes["M"], problem.sizes["E"], problem.sizes["H"])
    small = gpu.smem_bytes_per_sm < SMALL_SMEM_BYTES
    medium = not small and gpu.smem_bytes_per_sm < LARGE_SMEM_BYTES
    largest = np.full(tokens.shape, 64.0 if medium else 128.0)
    if small:
        largest = np.where((tokens > 2048) & (experts < 64), 64.0, largest)
    block_m = np.select([tokens <= 128, tokens <= 256, tokens <= 512], [16.0, 32.0, 64.0], largest)
    if small:
        block_n = np.where((hidden <= 1536) & (tokens <= 128), 16.0, 64.0)
    else:
        block_n = np.full(tokens.shape, 128.0)
    block_k = np.where(tokens <= 256, 256.0 if small else 128.0, 64.0)
    wide = 1.0 if not (small or medium) else (16.0 if small else 32.0)
    group = np.select([hidden <= 2048, hidden <= 3072], [1.0, 1.0 if not (small or medium) else 16.0], wide)
    return ConfigurationBatch(
        parameters={"BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": block_n, "BLOCK_SIZE_K": block_k, "GROUP_SIZE_M": group},
        num_warps=np.where(block_m * block_n >= 128 * 128, 8.0, 4.0),
        num_stages=np.full(tokens.shape, 3.0),
    )


WEIGHT_ONLY = {"int4": "int4_w4a16", "int8": "int8_w8a16", "fp8": "fp8_w8a16"}
"""How tables name types of weights that meet wider activations."""


def stack_configuration(problem: ProblemBatch, gpu: GpuSpec) -> ConfigurationBatch:
    """Configuration columns [n] of fused-MoE products of any types: `served_configuration`, and vLLM's default for quantised ones.

    Nothing was measured of those as served; the stacks' defaults follow the types.
    """
    quantised = problem.block_shape is not None or problem.operand_bytes != 2 or problem.weight_bytes != 2
    if not quantised:
        return served_configuration(problem, machine(gpu, problem.dtype))
    dtype = problem.dtype if problem.weight_dtype in (None, problem.dtype) else WEIGHT_ONLY.get(problem.weight_dtype, problem.dtype)
    fields = default_fields(
        "vllm", problem.sizes["M"], problem.sizes["E"], dtype=dtype, block_shape=problem.block_shape, amd=gpu.vendor == "amd"
    )
    columns = {name: column.astype(np.float64) for name, column in fields.items()}
    return ConfigurationBatch(num_warps=columns.pop("num_warps"), num_stages=columns.pop("num_stages"), parameters=columns)


SPREAD = 0.30
"""Half-width of the 80 % interval in log latency: of what could not be checked, other types and vendors. Where the analytical model can be,
its error has a smaller 10 % to 90 % range: -0.05 to +0.02 (best configurations of the published sweeps), -0.18 to +0.08 (fused MoE as
served, ten GPUs), about -0.1 to +0.1 (torch.mm of twenty GPUs), up to +0.3 (attention). With 0.2 here, a fifth of the entries of
block-scaled GEMM tables that a search found would be called slow."""

AMD_PRODUCTS = (1.86, 3.51, 7.55)
"""Measured over analytical latency of Triton products on AMD GPUs: exceeded by 90, 50 and 10 % of the 876 launches of an MI250X (every
fourth of dejavu's `gemm.csv.gz`) that are within 1.2 of the best of their problem. Four fp8 launches posted for an MI300X took 2.3 to 12.5
times as long. On NVIDIA GPUs the model needs no such factor for launches as good (H100: 0.98 in the median)."""

MOE_PRODUCTS = ("w13", "w2")
"""Operators of a fused MoE that a tuned configuration is for."""

Z_80 = 1.2816
"""Standard deviations that the 80 % interval of a normal distribution reaches to either side."""

NOTICED, LIKELY = 1.02, 0.8
"""A configuration is recommended where it is that many times faster with that probability."""

SIGMA = SPREAD / Z_80
"""Standard deviation of log latency."""


LAUNCHES_AT_ONCE = 131_072
"""Of a ceiling, each counted once for every group of experts of its routing: 2,000 w13 problems with routings of their own over 256 experts
(numpy 2.4.6, one core) take 1.7 s at 4,096, 0.3 s at 65,536, 0.2 s and 10 MB at 262,144; without routing a launch takes 1.2 kB."""


class AnalyticalPredictor:
    """`pipelines.latency_us` with a fixed relative interval."""

    name = ANALYTICAL

    def __init__(self) -> None:
        self._recent: deque[tuple[ProblemBatch, ConfigurationBatch, GpuSpec, Array]] = deque(maxlen=4)

    def predict(self, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec) -> Prediction:
        """Latency of the configurations. Where the launched one is unknown, that of a fused-MoE product is the stack's rule
        (`stack_configuration`; the ceiling's where the GPU cannot launch that), and that of any other kernel the best that a library
        chooses from (`library_configurations`)."""
        if configuration is not None:
            return _of_configurations(problem, configuration, gpu)
        least = _least(problem, library_configurations(problem, gpu), gpu)
        if problem.family != "fused_moe" or problem.op not in MOE_PRODUCTS:
            return least
        served = _of_configurations(problem, stack_configuration(problem, gpu), gpu)
        launches = np.isfinite(served.us)
        us, low, high = (np.where(launches, np.maximum(a, b), b) for a, b in zip(_columns(served), _columns(least), strict=True))
        return Prediction(us=us, low_us=low, high_us=high, learned=served.learned)

    def predict_first(self, problem: ProblemBatch, gpu: GpuSpec) -> Prediction:
        """Latency of the first configuration that a library chooses from: where it is finite, `predict`'s is, for 20 times the work."""
        return _least(problem, library_configurations(problem, gpu)[:1], gpu)

    def library_reference(self, problem: ProblemBatch, gpu: GpuSpec) -> None:
        """Nothing: no library's kernel is known."""

    def ceiling(self, problem: ProblemBatch, gpu: GpuSpec) -> Prediction:
        """The least predicted latency over a few dozen configurations that cover the space."""
        least = least_of(problem, gpu, lambda some, members: _of_configurations(some, members, gpu))
        return replace(least, share=None)

    def scores(self, problems: ProblemBatch | Sequence[ProblemBatch], configuration: ConfigurationBatch, gpu: GpuSpec) -> Array:
        """The log of the predicted latency, in all."""
        return np.log(
            sum(
                self._latency_us(problem, configuration, gpu)
                for problem in ([problems] if isinstance(problems, ProblemBatch) else problems)
            )
        )

    def rankings(self, groups: Sequence[Sequence[ProblemBatch]], configuration: ConfigurationBatch, gpu: GpuSpec) -> list[Ranking]:
        """The `scores` of several groups."""
        return [ranking_of(lambda some: self.scores(some, configuration, gpu), group) for group in groups]

    def _latency_us(self, problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec) -> Array:
        """The latencies of a problem's configurations; remembered for the next few: whoever ranks for each of several problems ranks for
        all of them together next."""
        for *key, us in self._recent:
            if all(mine is yours for mine, yours in zip(key, (problem, configuration, gpu), strict=True)):
                return us
        us = configured_us(pipelines.demand(problem, configuration, gpu), gpu, problem.cache)
        self._recent.append((problem, configuration, gpu, us))
        return us

    def p_gain(self, problem: ProblemBatch, gpu: GpuSpec, now: Prediction, then: Prediction) -> float:
        """By the intervals alone, as if both errors were independent."""
        margin = (np.log(now.us[0] / then.us[0]) - np.log(NOTICED)) / (SIGMA * np.sqrt(2))
        return float(normal_cdf(np.clip(np.array([margin]), -30, 30))[0])

    def record(self, problem: ProblemBatch, gpu: GpuSpec) -> str:
        """Nothing: no choice was measured."""
        return ""

    def p_speedup(
        self,
        problem: ProblemBatch,
        gpu: GpuSpec,
        latency_us: Array | None,
        prediction: Prediction,
        ceiling: Prediction,
        configuration: ConfigurationBatch | None = None,
        at_least: float = 1.1,
    ) -> Array:
        """Normal in log latency; a measured latency has no uncertainty of its own.

        Errors of two configurations count as independent. Of fused-MoE sweeps they correlate by 0.8, but reckoned with that more than a
        quarter of the entries of B200's block-scaled GEMM tables, which a search found, would be called slow.
        """
        now = prediction.us if latency_us is None else latency_us
        sigma = SIGMA * (np.sqrt(2) if latency_us is None else 1.0)
        with np.errstate(invalid="ignore"):
            margin = (np.log(now / ceiling.us) - np.log(at_least)) / sigma
        p = normal_cdf(np.clip(np.nan_to_num(margin, nan=0.0), -30, 30))
        return within_bound(p, problem, gpu, latency_us, at_least)


def least_of(problem: ProblemBatch, gpu: GpuSpec, ask: Callable[[ProblemBatch, ConfigurationBatch], Prediction]) -> Prediction:
    """What is predicted of the fastest of a few dozen configurations that cover the space, for each problem, [n].

    Args:
        problem: The problems.
        gpu: The GPU.
        ask: What is predicted of launches, given one by one.
    """
    members, problems = together(typical_configurations(problem, gpu.vendor)), np.arange(len(problem))
    groups = 1 if problem.expert_rows is None else problem.expert_rows.shape[-1]
    at_once = max(LAUNCHES_AT_ONCE // len(members) // groups, 1)
    parts = []
    for some in np.split(problems, np.arange(at_once, problems.size, at_once)):
        prediction = ask(problem.take(np.repeat(some, len(members))), members.take(np.tile(np.arange(len(members)), some.size)))
        first = np.arange(some.size) * len(members) + prediction.us.reshape(some.size, len(members)).argmin(axis=1)
        parts.append((prediction.us[first], prediction.low_us[first], prediction.high_us[first], prediction.learned[first]))
    us, low, high, learned = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Prediction(us=us, low_us=low, high_us=high, learned=learned, share=np.ones(us.shape))


def within_bound(p: Array, problem: ProblemBatch, gpu: GpuSpec, latency_us: Array | None, at_least: float) -> Array:
    """Probabilities [n] of a launch `at_least` times faster than measured: next to none where that would be below the bound."""
    if latency_us is None:
        return p
    least = pipelines.bound(pipelines.work(problem, gpu), gpu, problem.cache).us
    return np.where(latency_us / at_least < least, np.minimum(p, CERTAIN[0]), p)


def _least(problem: ProblemBatch, configurations: Iterable[ConfigurationBatch], gpu: GpuSpec) -> Prediction:
    least = pipelines.bound(pipelines.work(problem, gpu), gpu, problem.cache).us
    best = np.full(least.shape, np.inf)
    for configuration in configurations:
        best = np.minimum(best, pipelines.latency_us(pipelines.demand(problem, configuration, gpu), gpu))
    return _with_interval(np.maximum(best, least), least, gpu, False)  # of libraries, whose products were tuned by hand


def interval(us: Array, gpu: GpuSpec, products: bool) -> tuple[Array, Array, Array]:
    """The latencies that are predicted where the analytical model says `us` [n], and both ends of their 80 % interval, microseconds.

    `products`: whether the launches multiply matrices, which Triton does on AMD far slower than the model says.
    """
    times = AMD_PRODUCTS if gpu.vendor == "amd" and products else (np.exp(-SPREAD), 1.0, np.exp(SPREAD))
    low, middle, high = (factor * us for factor in times)
    return middle, low, high


def written_by_hand(predicted: Prediction) -> Prediction:
    """What was predicted of Triton's products on an AMD GPU, as kernels take that were written by hand (AITER's, of engines)."""
    us = predicted.us / AMD_PRODUCTS[1]
    return replace(predicted, us=us, low_us=us * np.exp(-SPREAD), high_us=us * np.exp(SPREAD))


def _of_configurations(problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec) -> Prediction:
    needed, needs = pipelines.work(problem, gpu), pipelines.demand(problem, configuration, gpu)
    least = pipelines.config_bound(needed, needs, gpu, problem.cache).us
    products = bool(needs.per_cta["tensor"].any())
    return _with_interval(np.maximum(configured_us(needs, gpu, problem.cache), least), least, gpu, products)


def configured_us(demand: Demand, gpu: GpuSpec, cache: str) -> Array:
    """The latency [n] of Triton launches, microseconds: those that only move rows follow each other as compiled ones were measured to."""
    return pipelines.latency_us(with_phases(demand, gpu, cache), gpu)


def _columns(prediction: Prediction) -> tuple[Array, Array, Array]:
    return prediction.us, prediction.low_us, prediction.high_us


def _with_interval(us: Array, floor: Array, gpu: GpuSpec, products: bool) -> Prediction:
    us, low, high = interval(column(us), gpu, products)
    return Prediction(us=us, low_us=np.maximum(low, np.minimum(floor, us)), high_us=high, learned=np.zeros(us.shape, dtype=bool))


def normal_cdf(x: Array) -> Array:
    """The standard normal distribution function (Abramowitz and Stegun 26.2.17, absolute error below 7.5e-8)."""
    t = 1 / (1 + 0.2316419 * np.abs(x))
    poly = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    upper = np.exp(-x * x / 2) / np.sqrt(2 * np.pi) * poly
    return np.where(x >= 0, 1 - upper, upper)
