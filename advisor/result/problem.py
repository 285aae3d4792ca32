"""A problem, a configuration and a latency: what is launched, how, and what it takes, in the words that every package uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal


def microseconds(us: float) -> str:
    """A latency with the digits that matter: `1,234`, `123.4`, `12.3`, `1.23`, `0.01`.

    >>> microseconds(1234.5), microseconds(12.34), microseconds(0.001)
    ('1,234', '12.3', '0.00')
    """
    size = abs(us)
    if size >= 999.95:
        return f"{us:,.0f}"
    if size >= 9.995:
        return f"{us:.1f}"
    return f"{us:.2f}" if size >= 0.005 else "0.00"  # no latency is known to less than 10 ns


SPELLINGS: dict[str, str] = {
    **{name: name for name in ("bf16", "fp16", "fp32", "tf32", "fp8", "int8", "fp64")},
    "bfloat16": "bf16",
    "float16": "fp16",
    "f16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "f32": "fp32",
    "float": "fp32",
    "float64": "fp64",
    "f64": "fp64",
    "double": "fp64",
    "float8": "fp8",
    "e4m3": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e4m3fn": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float8_e5m2": "fp8",
    "float8_e5m2fnuz": "fp8",
    "fp8e4nv": "fp8",
    "fp8e5": "fp8",
    "fp8_w8a8": "fp8",
    "int8_w8a8": "int8",
}
"""Every way in which an operand's type is written, whatever the command, the column or the library -> the advisor's name."""


def dtype_of(text: str) -> str | None:
    """The advisor's name of a type, as `bf16` of `torch.bfloat16`; None: it is none.

    >>> [dtype_of(text) for text in ("torch.bfloat16", "Half", "f16", "fp8e4nv", "int3")]
    ['bf16', 'fp16', 'fp16', 'fp8', None]
    """
    return SPELLINGS.get(text.strip().lower().removeprefix("torch."))


Origin = Literal["measured", "simulated", "predicted", "specified"]
"""What a number is. Simulated: it stands where a measurement would, and comes from a fake device or from rows that say so."""

Family = Literal["gemm", "fused_moe", "attention", "normalization", "elementwise"]

Cache = Literal["cold", "warm"]

FAMILIES: tuple[str, ...] = ("gemm", "fused_moe", "attention", "normalization", "elementwise")

PIPELINES: tuple[str, ...] = ("tensor", "fma", "xu", "alu", "issue", "smem", "l2", "dram", "launch")

PIPELINE_UNITS: dict[str, str] = {
    "tensor": "flop",
    "fma": "flop",
    "xu": "op",
    "alu": "op",
    "issue": "instruction",
    "smem": "bytes",
    "l2": "bytes",
    "dram": "bytes",
    "launch": "launch",
}
"""Unit of the demand on each pipeline; its throughput is that unit per second."""


def result_dtype(dtype: str, given: str | None = None) -> str:
    """Type of a problem's result: as given, else that of its operands, or bf16 where they are quantised."""
    return given or ("bf16" if dtype in ("fp8", "int8") else dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A computation, whatever computes it: family, operator within it, sizes, types, routing and cache state.

    `sizes` per family (all positive integers):
      gemm           M, N, K, optional B (batch)
      fused_moe      M (tokens), E, topk, H (hidden), N (intermediate per expert); op w13 | activation | w2 | combine
      attention      B, H (query heads), H_kv, M (queries), N (keys), D (head size), causal (0/1); op prefill | decode
      normalization  B (rows), H (row length); op rms_norm | layer_norm | softmax
      elementwise    B (rows), H (row length); op silu_and_mul | gelu | add | mul | ...

    >>> import advisor
    >>> advisor.Problem(family="gemm", op="gemm", sizes={"M": 64, "N": 4096, "K": 4096}).dtype
    'bf16'
    """

    family: Family
    op: str
    sizes: dict[str, int]
    dtype: str = "bf16"  # operand type of the tensor pipeline (and of activations)
    weight_dtype: str | None = None  # type the weights are stored in; None: as dtype
    output_dtype: str | None = None  # None: as dtype, or bf16 where dtype is fp8 / int8
    block_shape: tuple[int, int] | None = None  # quantization block (n, k), block-scaled fp8 / int8 only
    routing: tuple[int, ...] | None = None  # token slots per expert; None: as `distribution` says
    distribution: str | None = None  # the routing by name, random or power_law:A; None: balanced, or `routing` says it
    cache: Cache = "warm"  # what the L2 holds when the launch starts


LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""What a configuration holds beside the kernel's own parameters: options of `triton.Config`, in the order of its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The tunable part of a launch.

    `parameters` holds the kernel's own constexprs (BLOCK_SIZE_M, GROUP_SIZE_M, SPLIT_K, ...).
    """

    parameters: dict[str, int | bool | str]
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None

    def label(self) -> str:
        """`BLOCK_SIZE_M=16 ... num_warps=4 num_stages=3`, the order of the table entry."""
        return " ".join(f"{key}={value}" for key, value in self.flat().items())

    def flat(self, *, all_options: bool = False) -> dict[str, Any]:
        """One dictionary, launch options last; `num_ctas` and `maxnreg` are in it where they are not the default, or `all_options`."""
        flat: dict[str, Any] = {**self.parameters, "num_warps": self.num_warps, "num_stages": self.num_stages}
        if all_options or self.num_ctas != 1:
            flat["num_ctas"] = self.num_ctas
        if all_options or self.maxnreg is not None:
            flat["maxnreg"] = self.maxnreg
        return flat

    def to_triton(self) -> Any:
        """As a `triton.Config`, for `@triton.autotune`."""
        import triton

        options = {name: value for name, value in self.flat().items() if name not in self.parameters}
        return triton.Config(dict(self.parameters), **options)

    @classmethod
    def from_flat(cls, flat: Mapping[str, Any]) -> Configuration:
        """The reverse of `flat`: what is left out, or None, has its default.

        Raises:
            TypeError, ValueError: A launch option is no number.
        """
        options = {name: int(flat[name]) for name in LAUNCH_OPTIONS if flat.get(name) is not None}
        return cls(parameters={name: value for name, value in flat.items() if name not in LAUNCH_OPTIONS}, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A latency in microseconds and where it comes from.

    `low_us`..`high_us` is the interval that `coverage` (0..1) of cases fall into; None where there is none.
    """

    us: float
    origin: Origin
    source: str  # "analytical model", "learned model (weights 1a2b)", "measured rows.csv", "datasheet ..."
    low_us: float | None = None
    high_us: float | None = None
    coverage: float | None = None


CONTRADICTION = 2.0
"""From so many times the upper end of a prediction's interval on, a measurement and the prediction contradict each other."""


def contradicts(measured: Latency | None, predicted: Latency | None) -> bool:
    """Whether a latency was measured that the prediction cannot explain: the host's launches were timed, the clock was held down, another
    kernel ran, or the model is wrong. No configuration is credited with the difference."""
    if measured is None or predicted is None:
        return False
    return measured.us > CONTRADICTION * max(predicted.us, predicted.high_us or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTime:
    """Work of one launch on one pipeline, and the microseconds it takes at the pipeline's full throughput.

    `demand` is the whole GPU's; `busiest_sm_demand` that of the SM that finishes last (None for dram, l2, launch).
    `problem_demand` is the least any configuration needs; the difference is what the configuration adds. `passing` is of dram alone: the
    bytes of the problem that are read and those that are written, each once, whatever the L2 keeps of them.
    """

    pipeline: str
    unit: str
    demand: float
    problem_demand: float
    busiest_sm_demand: float | None
    throughput_per_s: float  # of the whole GPU, specified; 0 where the pipeline is the fixed launch latency
    time_us: float  # of this configuration, busiest SM included
    problem_time_us: float  # of the problem alone, perfectly spread
    passing: float = 0.0


ASKED = frozenset({"l2", "alu", "issue"})
"""Pipelines of which a launch asks for more than must reach them: the L1 serves bytes that two CTAs of an SM share, and instructions are
estimates. 251 of the 9,747 launches of `ceilings/measurements` ask the L2 for more than it can give in their time, products for up to
1.7 times as much."""


def nearest_to_peak(pipelines: Iterable[PipelineTime], us: float | None) -> tuple[str | None, float | None]:
    """The pipeline that a launch of `us` microseconds drives nearest to its peak, and the share of its throughput that is, on the average
    over the launch and the whole GPU; None where `us` is not known. Above 1 is a fault, of the model or of a measurement."""
    times = {part.pipeline: 1e6 * part.demand / part.throughput_per_s for part in pipelines if part.throughput_per_s > 0}
    if not us or not times:
        return None, None
    shares = {name: min(time / us, 1.0) if name in ASKED else time / us for name, time in times.items()}
    name = max(shares, key=lambda item: shares[item])
    return name, shares[name]
