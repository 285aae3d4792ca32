"""Measured kernels of libraries: GEMM of cuBLAS, CUTLASS and DeepGEMM, attention of FlashAttention, FlashInfer, TRT-LLM and the stacks'
Triton kernels, AMD's tuned GEMM. Whose kernel a launch is, the problem says (`stack`, `stack_version`, `implementation`) or the newest
measured on that GPU answers.

A reference latency (`references`) is corrected by trees, of attention by a network besides, that see the launch and the
identity of the GPU; a GPU that was never measured goes by that of its measured relatives, with intervals from GPUs that were left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.learned import calibration
from advisor.learned.forest import BushyForest
from advisor.learned.library import references
from advisor.learned.library.moe_layers import kernel_class
from advisor.learned.library.series_model import ends, parts
from advisor.learned.machine import Chip, chip
from advisor.learned.network import Mixed
from advisor.pipelines import Array, ProblemBatch, column
from advisor.result.schema import Latency
from advisor.system.resources import OnDemand

PREFIX = "library"
PREFILL, DECODE, AMD_GEMM = "attention prefill", "attention decode", "gemm amd"
IMPLEMENTATIONS = (
    "triton",
    "vllm_triton_attn",
    "flash_attention",
    "vllm_flash_attn",
    "vllm_flash_attn_fa2",
    "flashinfer",
    "vllm_flashinfer_fiprefill",
    "vllm_flashinfer_fidecode",
    "fa3",
    "vllm_flash_attn_fa3",
    "vllm_flash_attn_fa4",
    "trtllm_mha",
    "vllm_flashinfer_trtllmprefill",
    "vllm_flashinfer_trtllmdecode",
)
"""Attention kernels as the publisher calls them (`kernel_source`); their place is a feature: neighbours run alike."""

NAMES = {
    "torch.nn.functional.linear": "cuBLAS",
    "sglang_torch_linear": "cuBLAS",
    "sglang": "cuBLAS",
    "CutlassFP8ScaledMMLinearKernel": "CUTLASS",
    "sglang_sgl_kernel_fp8_scaled_mm": "CUTLASS",
    "sglang_deepgemm_gemm_nt_f8f8bf16": "DeepGEMM",
    "tuned": "the best of AMD's tuner",
    "flash_attention": "FlashAttention",
    "vllm_flash_attn": "FlashAttention",
    "vllm_flash_attn_fa2": "FlashAttention 2",
    "fa3": "FlashAttention 3",
    "vllm_flash_attn_fa3": "FlashAttention 3",
    "vllm_flash_attn_fa4": "FlashAttention 4",
    "flashinfer": "FlashInfer",
    "vllm_flashinfer_fiprefill": "FlashInfer",
    "vllm_flashinfer_fidecode": "FlashInfer",
    "trtllm_mha": "TRT-LLM",
    "vllm_flashinfer_trtllmprefill": "TRT-LLM",
    "vllm_flashinfer_trtllmdecode": "TRT-LLM",
}
"""Whose kernels they are, for reports."""

APART = {PREFILL: 3, DECODE: 3}
"""The first features of a kind, which its network alone sees (`learned.network`)."""

LABELS = 10
"""Its last features, which are no quantities to a network: types, kernel, stack, version and the GPU's identity."""

TRITON = frozenset({"triton", "vllm_triton_attn"})
LARGEST = {"M": 32_768.0, "N": 65_536.0, "K": 65_536.0}
LONGEST = {PREFILL: 16_384.0, DECODE: 131_072.0}

REACHED = 0.945
"""Most of the matrix units' peak at the highest clock that a GPU never measured is said to reach: 99 % of the products of 2,048 and more in
each direction stay below it on every board measured (RTX PRO 6000 S 0.945, A100 0.93, others 0.75 to 0.82)."""


class Series(NamedTuple):
    """One series of measurements: a GPU, a stack and its version, the kernel's name, types of operands and KV cache."""

    gpu: str
    stack: str
    version: str
    implementation: str
    dtype: str = ""
    kv_dtype: str = ""

    @property
    def newness(self) -> tuple[int, ...]:
        """Sorts versions of one stack."""
        return tuple(int(part) for part in re.findall(r"\d+", self.version))

    @property
    def words(self) -> str:
        """Its name in reports: `vLLM 0.24.0 on H100`."""
        stack = {"vllm": "vLLM", "sglang": "SGLang", "aiter": "AITER"}.get(self.stack, self.stack)
        whose = f", {NAMES[self.implementation]}" if self.implementation in NAMES else ""
        return f"{stack} {self.version}".strip() + f" on {self.gpu}{whose}"


def kind_of(problem: ProblemBatch, vendor: str) -> str | None:
    """The group of problems that share a model; None where libraries were not measured."""
    dtype = "bf16" if problem.dtype == "fp16" else problem.dtype
    if problem.family == "gemm" and dtype in ("bf16", "fp8") and problem.weight_dtype in (None, problem.dtype):
        if vendor == "amd":
            return AMD_GEMM
        return f"gemm {references.BLOCKED}" if problem.block_shape else f"gemm {dtype}"
    if problem.family == "attention" and dtype in ("bf16", "fp8") and vendor == "nvidia":
        return {"prefill": PREFILL, "decode": DECODE}.get(problem.op)
    return None


def types_of(problem: ProblemBatch) -> tuple[str, str]:
    """Types of operands and KV cache, or of operands and their scales, as `Series` has them."""
    dtype = "bf16" if problem.dtype == "fp16" else problem.dtype
    if problem.family == "gemm":
        return dtype, "blocked" if problem.block_shape else ""
    kv = problem.weight_dtype or dtype
    return dtype, "bf16" if kv == "fp16" else kv


def reference(kind: str, problem: ProblemBatch, gpu: Chip, series: Series, cold: bool = False) -> tuple[Array, dict[str, Array]]:
    """Reference latency in microseconds and features, [n] each, of a launch of `series` on `gpu` as it was measured, again and again.

    Of one with `cold` weights or KV cache, which a step finds in DRAM, the latency alone counts: nothing of the kind was learned.
    """
    s = {name: np.asarray(values, dtype=np.float64) for name, values in problem.sizes.items()}
    alike: dict[str, float] = {}
    if kind.startswith("gemm"):
        m, n, k = np.broadcast_arrays(s["M"], s["N"], s["K"])
        product = references.BLOCKED if problem.block_shape else references.PLAIN if problem.operand_bytes == 2 else references.SCALED
        us, columns = references.gemm(m, n, k, gpu, product, tuned=kind == AMD_GEMM, cold=cold)
        if kind == AMD_GEMM:
            alike |= {"operand bytes": problem.operand_bytes, "blocked": float(problem.block_shape is not None)}
    else:
        length, kv_heads = s["M" if kind == PREFILL else "N"], np.where(s["H_kv"] > 0, s["H_kv"], s["H"])
        batch, length, heads, kv_heads, head_dim, window = np.broadcast_arrays(
            s["B"], length, s["H"], kv_heads, s["D"], s.get("window", column(0))
        )
        sizes = (batch, length, heads, kv_heads, head_dim, window, gpu, problem.weight_bytes)
        us, columns = references.prefill(*sizes) if kind == PREFILL else references.decode(*sizes, cold=cold)
        if kind in APART:
            columns = {"sequences": np.log(batch), "heads": np.log(heads), "kv heads": np.log(kv_heads)} | columns
        known = IMPLEMENTATIONS.index(series.implementation) if series.implementation in IMPLEMENTATIONS else 0
        alike |= {"operand bytes": problem.operand_bytes, "kv bytes": problem.weight_bytes, "implementation": float(known)}
    version = (*series.newness, 0, 0, 0)[:3]
    alike |= {"stack": float(series.stack == "vllm"), "version": 10_000.0 * version[0] + 100 * version[1] + version[2]}
    return us, {name: np.broadcast_to(np.asarray(values, dtype=np.float64), us.shape) for name, values in {**columns, **alike}.items()}


def of_unseen(kind: str, correction: BushyForest | Mixed) -> Callable[[Array], Array]:
    """What corrects launches on a GPU that was never measured: of decode the forest alone.

    B300 left out: 7.5 % by the forest, 8.4 with the network (H100 12.4, 11.6); of prefill 15.9 and 14.2 (14.0, 10.7).
    """
    return correction.by_trees if kind == DECODE and isinstance(correction, Mixed) else correction


def features(columns: Mapping[str, Array], identity: Mapping[str, float]) -> Array:
    """The columns and the identity of a GPU as one matrix, [n, f]."""
    shape = next(iter(columns.values())).shape
    return np.stack([*columns.values(), *(np.broadcast_to(value, shape) for value in identity.values())], axis=1)


@dataclass(frozen=True, kw_only=True)
class LibraryModel:
    """The learned model of one kind of library kernels.

    Attributes:
        kind: See `kind_of`.
        correction: log(latency / reference).
        spread: log of the error to expect of that.
        calibration: Quantiles of errors over what is expected; task "seen" and "unseen" is the GPU, by GPU where it was measured.
        series: What was measured.
        held_out: By GPU, errors in percent that training saw on rows left out (`training.peers`).
    """

    kind: str
    correction: BushyForest | Mixed
    spread: BushyForest
    calibration: calibration.Calibration
    series: tuple[Series, ...]
    held_out: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def gpus(self) -> tuple[str, ...]:
        """Names of the GPUs measured."""
        return tuple(dict.fromkeys(series.gpu for series in self.series))

    def candidates(self, problem: ProblemBatch, gpu: str) -> list[Series]:
        """The series measured for such problems on a GPU, one per kernel, each in its newest version."""
        alike = [s for s in self.series if s.gpu == gpu and (not s.dtype or (s.dtype, s.kv_dtype) == types_of(problem))]
        newest: dict[tuple[str, str], Series] = {}
        for series in sorted(alike, key=lambda s: s.newness):
            newest[(series.stack, series.implementation if self.kind.startswith("attention") else "")] = series
        return list(newest.values())

    def answering(self, problem: ProblemBatch, gpu: str) -> Series | None:
        """The series that stands for a launch: with what the problem says of stack, version and kernel as it says it."""
        stack, implementation = (problem.stack or "").lower(), problem.implementation or ""
        if not implementation.strip() or implementation not in IMPLEMENTATIONS:
            implementation = ""
        candidates = self.candidates(problem, gpu) or [s for s in self.series if s.gpu == gpu]
        libraries = [s for s in candidates if s.implementation not in TRITON] or candidates
        mine = [s for s in candidates if implementation and s.implementation == implementation] or libraries
        mine = [s for s in mine if stack and s.stack == stack] or mine
        if not mine:
            return None
        chosen = max(mine, key=lambda s: (s.stack == "vllm", len([t for t in self.series if t[:4] == s[:4]]), s.newness))
        return chosen._replace(
            stack=stack or chosen.stack,
            version=problem.stack_version or chosen.version,
            implementation=implementation or chosen.implementation,
        )

    def relatives(self, gpu: GpuSpec) -> list[str]:
        """The GPUs whose kernels a GPU that was never measured runs: those of its own target, else of the nearest generation among those
        whose SMs multiply most nearly as fast.

        Products of GPUs without matrix instructions of their own generation run the same kernels on all of these. GeForce cards, which sum
        in fp32 at half the rate, take them as the mean of all whose SMs multiply most nearly as fast; others as the one with most watts for
        what it multiplies, for the L40S would lend them its power limit (prefills of an A40 and a L20, which it made 20 and 14 % too slow).
        """
        asked_chip = chip(gpu, "bf16")
        measured = {name: chip(load_gpu(name), "bf16") for name in self.gpus}
        rate = {name: abs(np.log2(item.rate / asked_chip.rate)) for name, item in measured.items()}
        generation = {name: abs(item.capability - asked_chip.capability) for name, item in measured.items()}
        alike = [name for name in measured if gpu.vendor == "nvidia" and kernel_class(load_gpu(name)) == kernel_class(gpu) == 0]
        if alike and not self.kind.startswith("attention"):
            nearest = [name for name in alike if rate[name] == min(rate[other] for other in alike)]
            watts = {name: (load_gpu(name).board_power_w or 0.0) / (measured[name].sms * measured[name].clock) for name in nearest}
            return nearest if gpu.fp16_accumulator_flop_per_clock_per_sm else [max(nearest, key=watts.__getitem__)]
        far = {name: (generation[name] > 0, rate[name], generation[name]) for name in measured}
        return [name for name, distance in far.items() if distance == min(far.values())]

    def predict(self, problem: ProblemBatch, gpu: GpuSpec, series: Series | None = None) -> tuple[tuple[Array, Array, Array], bool]:
        """Prediction and both ends of the 80 % interval (microseconds, [n]), and whether this GPU was measured.

        Args:
            problem: Problems of this kind.
            gpu: The GPU.
            series: Whose kernel; None: as the problem says (`answering`).
        """
        seen = gpu.name in self.gpus
        correction = self.correction if seen else of_unseen(self.kind, self.correction)
        figures = chip(gpu, problem.dtype if problem.dtype != "fp16" else "bf16")
        centres, sizes = [], []
        for name in (gpu.name,) if seen else self.relatives(gpu):
            chosen = series or self.answering(problem, name)
            assert chosen is not None  # `gpus` are those of the series
            relative = chip(load_gpu(name), problem.dtype)
            us, columns = reference(self.kind, problem, figures, chosen)
            if not seen and self.kind in (PREFILL, DECODE):
                # What the trees see is the launch on the relative. With GB200 and B300 left out: 6.1 and 7.4 % in place of 7.2 and 7.7 %
                # (decode, prefill of GB200), 10.7 in place of 12.5 % (prefill of B300); for products it is the other way round.
                columns = reference(self.kind, problem, relative, chosen)[1]
            x = features(columns, relative.identity)
            least = 0.0 if seen or not self.kind.startswith("gemm") else columns.get("compute", 0.0) * us / REACHED
            if problem.cache == "cold":
                us = reference(self.kind, problem, figures, chosen, cold=True)[0]
            centres.append(np.log(np.maximum(us * np.exp(correction(x)), least)))
            sizes.append(self.spread(x))
        centre = np.mean(centres, axis=0)
        down, up = ends(self.calibration, np.mean(sizes, axis=0), self.kind, gpu.name, seen)
        return (np.exp(centre), np.exp(centre + down), np.exp(centre + up)), seen

    def best(self, problem: ProblemBatch, gpu: GpuSpec) -> Latency | None:
        """The fastest library kernel for one problem, and where that was measured; None outside of what was measured.

        Triton's kernels are no library's; on a GPU that was never measured it is the best of its relatives' kernels.
        """
        if not (self.beyond(problem) <= 1).all():
            return None
        of = gpu.name if gpu.name in self.gpus else self.relatives(gpu)[0]
        predictions = [
            (self.predict(problem, gpu, series)[0], series)
            for series in self.candidates(problem, of)
            if series.implementation not in TRITON
        ]
        if not predictions:
            return None
        (us, low, high), series = min(predictions, key=lambda item: float(item[0][0][0]))
        source = series.words if gpu.name in self.gpus else f"{series.words}; never measured on {gpu.name}"
        return Latency(us=float(us[0]), origin="predicted", source=source, low_us=float(low[0]), high_us=float(high[0]), coverage=0.8)

    def beyond(self, problem: ProblemBatch) -> Array:
        """The largest factor by which a size lies outside of what was measured, [n]; 1 within; infinite for what is another kernel."""
        s = {name: np.asarray(values, dtype=np.float64) for name, values in problem.sizes.items()}
        if self.kind.startswith("gemm"):
            beyond = np.maximum.reduce(np.broadcast_arrays(1.0, *(s[name] / most for name, most in LARGEST.items())))
            return np.where(s.get("B", column(1)) > 1, np.inf, beyond)
        if self.kind == PREFILL:
            other = (s["M"] != s["N"]) | (s.get("causal", column(0)) <= 0)
        else:
            other = s["M"] != 1
        return np.where(other, np.inf, np.maximum(1.0, s["N"] / LONGEST[self.kind])) * np.ones(len(problem))

    def arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """As named arrays and JSON values."""
        prefix = f"{PREFIX}/{self.kind}"
        out = self.correction.arrays(f"{prefix}/correction") | self.spread.arrays(f"{prefix}/spread")
        out |= self.calibration.arrays(f"{prefix}/calibration")
        return out, {"series": [list(series) for series in self.series], "held_out": self.held_out}


def load(stored: Mapping[str, NDArray[Any]], kind: str, meta: Mapping[str, Any]) -> LibraryModel:
    """The reverse of `LibraryModel.arrays`."""
    prefix = f"{PREFIX}/{kind}"
    return LibraryModel(
        kind=kind,
        **parts(stored, prefix),
        series=tuple(Series(*item) for item in meta["series"]),
        held_out=meta.get("held_out", {}),
    )


def load_all(stored: Mapping[str, NDArray[Any]]) -> Mapping[str, LibraryModel]:
    """The models in a file of weights, by kind."""
    meta = json.loads(str(stored.get(f"{PREFIX}/meta", "{}")))
    return OnDemand(meta, lambda kind: load(stored, kind, meta[kind]))


def arrays_of(models: Sequence[LibraryModel]) -> dict[str, NDArray[Any]]:
    """The reverse of `load_all`."""
    out: dict[str, NDArray[Any]] = {}
    meta = {}
    for model in models:
        arrays, meta[model.kind] = model.arrays()
        out |= arrays
    return out | {f"{PREFIX}/meta": np.array(json.dumps(meta, sort_keys=True))}
