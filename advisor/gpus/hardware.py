"""The GPUs the advisor knows: one TOML file per GPU in `ceilings/`, and rows of `cards.toml`, each read into a `GpuSpec`.

Every figure is *specified* (a datasheet, a white paper or a derivation that the file's `[sources]` spells out). Rates are
peak rates: the bound needs figures that no kernel can exceed, so where a source leaves a choice the files take the
optimistic one. A GPU is found by its exact name, normalised for case and separators, never by a part of a word: H20 and H200,
A10 and A100, L4, L40 and L40S differ by more than a suffix.
"""

from __future__ import annotations

import difflib
import platform
import re
import sys
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from advisor.gpus.gpu_description import REAL, TABLES, accepted, check_sources, check_values
from advisor.result.schema import Fingerprint
from advisor.system import triton_install
from advisor.system.errors import InputError, UnknownGpuError, UsageError
from advisor.system.reading import parse_toml, read_bytes
from advisor.system.resources import folder

MAX_FILE_BYTES = 1_000_000

CARDS = "cards.toml"
"""The file of `ceilings/` whose rows are GPUs."""

INTEL = re.compile(r"\b(?:intel|xe|arc|b60|b70|b5[78]0|a7[57]0|pvc|data_center_gpu_max)(?:\b|_)")
"""Names of Intel's GPUs: Arc Pro B60 and B70, Arc B570, B580, A750, A770, Data Center GPU Max."""

_NOT_DESCRIBED = (
    (
        INTEL,
        "Intel's GPUs are not modelled: what Triton builds for them (intel-xpu-backend-for-triton) runs on units that no ceiling describes",
    ),
    (re.compile(r"^amd_radeon_graphics$"), "the driver calls many Radeon and Instinct GPUs by this one name: which it is, it does not say"),
    (
        re.compile(r"radeon|_r9700"),
        "AMD's RDNA GPUs are not modelled: their matrix instructions (WMMA) and caches are described in no ceiling",
    ),
    (re.compile(r"^amd_instinct_mi4"), "AMD has not published the rates of its CUs and caches"),
)
"""Normalised names of GPUs that people have and `ceilings/` leaves out, and why."""

FP16_ACCUMULATOR = " into fp16"
"""What follows an input type of the matrix units where their products are summed in fp16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """One GPU: its rates per clock and per second, and the limits on occupancy.

    "SM" stands for a compute unit on AMD, "warp" for a wavefront, "CTA" for a workgroup. Every rate is dense (no
    structured sparsity). `ceilings/README.md` explains each figure.

    Attributes:
        name: Short name, as results print it: `H200`, `RTX 6000 Ada`.
        vendor: `nvidia` or `amd`.
        architecture: One of `gpu_description.ARCHITECTURES`.
        compute_capability: `9.0`, or the target of an AMD GPU: `gfx942`.
        device_names: What CUDA or ROCm prints for it, most usual first, and aliases.
        num_sms: SMs in use.
        max_clock_mhz: The highest SM clock the part can run at; the bound uses it.
        base_clock_mhz: The clock the vendor guarantees.
        tensor_flop_per_clock_per_sm: Matrix units, FLOP (int8: operations) by input type; the types the GPU has.
        fma_flop_per_clock_per_sm: Vector units, FLOP by type.
        xu_op_per_clock_per_sm: Special functions (exp2, reciprocal, …) per clock.
        alu_op_per_clock_per_sm: 32-bit integer operations per clock.
        issue_instruction_per_clock_per_sm: Warp instructions issued per clock.
        smem_bytes_per_clock_per_sm: Shared-memory bytes per clock.
        l2_bytes_per_s: L2 to SMs, whole GPU.
        l2_bytes: Capacity of the last cache before DRAM.
        l2_near_bytes: Capacity of the L2s, where that last cache is another one behind them (AMD's Infinity Cache).
        l2_far_bytes_per_s: What that cache gives the L2s; `l2_bytes_per_s` is what they give the SMs.
        dram_bytes_per_s: Pin rate of the memory.
        dram_achievable_fraction: Share of the pin rate left for data (inline ECC takes 1/16 of GDDR).
        dram_sustained_fraction: Share of the pin rate that kernels which only read were measured to get, where it is known; predictions
            use it (`pipelines.dram`), bounds do not.
        dram_bytes: Capacity of the memory.
        smem_bytes_per_sm: Shared memory of an SM.
        smem_bytes_per_cta: The most one CTA may ask for.
        smem_reserved_bytes_per_cta: What the system takes of the SM's shared memory for each CTA.
        registers_per_sm: 32-bit registers.
        max_registers_per_thread: 32-bit registers.
        register_allocation_unit: Registers are given to a warp in multiples of this.
        max_warps_per_sm: Resident warps.
        max_ctas_per_sm: Resident CTAs.
        warp_size: Threads.
        launch_latency_us: Cost of a launch in a stream, in microseconds; a bound counts less (`pipelines.bound.LEAST_LAUNCH_US`).
        boost_clock_mhz: The boost clock of the datasheet, where it is known; for display.
        board_power_w: The power limit as delivered, in watts, where it is known; predictions use it (`pipelines.schedule`), bounds do not.
        fabric_bytes_per_s: What NVLink or Infinity Fabric carries one way, all links of the GPU together, where it has them.
        pcie_bytes_per_s: What PCIe carries one way, of GPUs that reach others over it alone.
        host_bytes_per_s: What the host passes between such GPUs in large messages (nccl-tests' `busbw`), where it is known.
        plain_dot_flop_per_clock_per_sm: Matrix units without block scales, FLOP by input type, where only instructions that scale blocks
            reach `tensor_flop_per_clock_per_sm`.
        fp16_accumulator_flop_per_clock_per_sm: Matrix units that sum in fp16, FLOP by input type, where that is faster than summing in
            fp32: GeForce's (the white papers of GA102, Ada and RTX Blackwell give both figures; those of A100 and H100 one for both).
        sources: Where each figure is from, by key.

    Raises:
        InputError: A value is out of range, or two contradict each other.
    """

    name: str
    vendor: str
    architecture: str
    compute_capability: str
    device_names: tuple[str, ...]
    num_sms: int
    max_clock_mhz: float
    base_clock_mhz: float
    tensor_flop_per_clock_per_sm: dict[str, float]
    fma_flop_per_clock_per_sm: dict[str, float]
    xu_op_per_clock_per_sm: float
    alu_op_per_clock_per_sm: float
    issue_instruction_per_clock_per_sm: float
    smem_bytes_per_clock_per_sm: float
    l2_bytes_per_s: float
    l2_bytes: int
    dram_bytes_per_s: float
    dram_achievable_fraction: float
    dram_bytes: int
    smem_bytes_per_sm: int
    smem_bytes_per_cta: int
    smem_reserved_bytes_per_cta: int
    registers_per_sm: int
    max_registers_per_thread: int
    register_allocation_unit: int
    max_warps_per_sm: int
    max_ctas_per_sm: int
    warp_size: int
    launch_latency_us: float
    boost_clock_mhz: float | None = None
    board_power_w: float | None = None
    fabric_bytes_per_s: float | None = None
    pcie_bytes_per_s: float | None = None
    host_bytes_per_s: float | None = None
    dram_sustained_fraction: float | None = None
    l2_near_bytes: float | None = None
    l2_far_bytes_per_s: float | None = None
    plain_dot_flop_per_clock_per_sm: dict[str, float] | None = None
    fp16_accumulator_flop_per_clock_per_sm: dict[str, float] | None = None
    sources: dict[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_values({f.name: getattr(self, f.name) for f in fields(self)}, f"GPU {self.name!r}")

    def __hash__(self) -> int:
        # The dictionaries keep the generated hash from working; equal specs still hash alike.
        return hash((self.name, self.compute_capability, self.num_sms, self.max_clock_mhz, self.dram_bytes))

    @property
    def triton_target(self) -> tuple[str, int | str, int]:
        """Arguments of `triton.backends.compiler.GPUTarget`: backend, architecture, warp size."""
        if self.vendor == "amd":
            return "hip", self.compute_capability, self.warp_size
        return "cuda", int(self.compute_capability.replace(".", "")), self.warp_size

    def supports(self, dtype: str) -> bool:
        """Whether the matrix units take inputs of `dtype`."""
        return dtype in self.tensor_flop_per_clock_per_sm

    def tensor_rate(self, kind: str) -> float:
        """FLOP per clock and SM of the matrix units for an input type, or one with `FP16_ACCUMULATOR` behind it; 0: they lack it."""
        dtype, summed, _ = kind.partition(FP16_ACCUMULATOR)
        rate = self.tensor_flop_per_clock_per_sm.get(dtype, 0.0)
        return (self.fp16_accumulator_flop_per_clock_per_sm or {}).get(dtype, rate) if summed else rate

    def plain_dot_share(self, dtype: str) -> float:
        """Share of the matrix units' rate that a product without block scales (`tl.dot`) can reach."""
        rate = self.tensor_rate(dtype)
        return (self.plain_dot_flop_per_clock_per_sm or {}).get(dtype, rate) / rate if rate else 1.0

    def reaches(self, least: object) -> bool:
        """Whether the GPU has the `min_capability` of a KERNELS entry: compute capability × 10, NVIDIA's; None: any GPU has."""
        if not isinstance(least, int):
            return True
        return self.vendor == "nvidia" and int(self.compute_capability.replace(".", "")) >= least

    def peak_tensor_flop_per_s(self, dtype: str) -> float:
        """Peak of the matrix units at the highest clock, FLOP/s.

        Raises:
            UsageError: The GPU has no matrix unit for `dtype`.
        """
        rates = self.tensor_flop_per_clock_per_sm
        if dtype not in rates:
            known = ", ".join(rates) or "no type at all"
            raise UsageError(f"the matrix units of {self.name} have no rate for this type", got=dtype, limit=known)
        return rates[dtype] * self.num_sms * self.max_clock_mhz * 1e6

    def peak_fma_flop_per_s(self) -> float:
        """Peak of the vector units at the highest clock, FLOP/s of fp32."""
        return self.fma_flop_per_clock_per_sm["fp32"] * self.num_sms * self.max_clock_mhz * 1e6

    def vllm_device_name(self) -> str:
        """The GPU as vLLM spells it in file names: blanks and slashes become `_`; every H200 is `NVIDIA_H200`."""
        name = re.sub(r"[\s/]+", "_", self.device_names[0])
        return "NVIDIA_H200" if "H200" in name.split("_") else name

    def sglang_device_name(self) -> str:
        """The GPU as SGLang spells it in file names: blanks become `_`."""
        return self.device_names[0].replace(" ", "_")


def load_gpu(name_or_path: str | Path) -> GpuSpec:
    """The GPU of that short name, device name (any case; blanks, `_` or `-`, none needed before or after a number;
    `NVIDIA`, `Tesla` and `GeForce` may be left out; the number alone, as `4090`), TOML file, or the one GPU that has every word of it.

    Raises:
        UnknownGpuError: No GPU has that name; the message lists the closest.
        InputError: The file does not describe a GPU; the message names file, key, value and remedy.

    >>> import advisor
    >>> advisor.load_gpu("NVIDIA_H100_80GB_HBM3").num_sms
    132
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.lower().endswith(".toml"):
        return _read(Path(name_or_path), users=True)
    gpu = match_device_name(text)
    if gpu is not None:
        return gpu
    try:
        is_file = Path(text).is_file()
    except (OSError, ValueError):  # too long for a path, or with a NUL in it
        is_file = False
    if is_file:
        return _read(Path(text), users=True)
    if (reason := why_not_described(text)) is not None:
        raise UnknownGpuError(reason, got=text, limit="a GPU of NVIDIA or AMD (`advisor gpus`)", remedy="describe it in a TOML file")
    remedy = "list all with `advisor gpus`, or describe another in a file and pass it with `--gpu my.toml`"
    meant = gpus_with_words_of(text)
    if len(meant) == 1:
        return meant[0]
    if len(meant) > 1:
        which = ", ".join(f"{gpu.name} ({gpu.device_names[0]})" for gpu in meant)
        raise UnknownGpuError("several GPUs go by this name", got=text, limit=f"one of {which}", remedy=f"say which; or {remedy}")
    raise UnknownGpuError("unknown GPU", got=text, limit=f"a known name, such as {', '.join(_closest(text))}", remedy=remedy)


def why_not_described(name: str) -> str | None:
    """Why `ceilings/` has no file for a GPU of this name; None where nothing is known of it.

    >>> why_not_described("AMD_Radeon_R9700")[:33]
    "AMD's RDNA GPUs are not modelled:"
    """
    text = _separated(name)
    return next((reason for pattern, reason in _NOT_DESCRIBED if pattern.search(text)), None)


def list_gpus() -> tuple[GpuSpec, ...]:
    """Every GPU of `ceilings/`, by name.

    >>> import advisor
    >>> "H100" in [gpu.name for gpu in advisor.list_gpus()]
    True
    """
    return tuple(sorted((gpu for path in _files() for gpu in _bundled(path)), key=lambda gpu: gpu.name.lower()))


@lru_cache(maxsize=4096)
def match_device_name(text: str) -> GpuSpec | None:
    """The GPU that has exactly this name (normalised; no part of a name is enough), or None."""
    key = normalise(text)
    if not key:
        return None
    direct = folder("ceilings") / f"{_separated(text).replace('_', '-')}.toml"
    for path in (*(path for path in _files() if path == direct), *_files()):
        # Parsing every file would take tens of milliseconds; a file that has the name contains its letters.
        for gpu in _bundled(path) if path == direct or key in _normalised_text(path) else ():
            if key in _keys(gpu):
                return gpu
    return None


@lru_cache(maxsize=256)
def gpu_model(name: str) -> str:
    """One name per model, however CUDA, a path or a user spells it: the short one of `ceilings/`, else the name as it is."""
    matched = match_device_name(name)
    return name if matched is None else matched.name


def normalise(name: str) -> str:
    """A device name without case, separators and brand: `NVIDIA A100-SXM4-80GB` and `a100_sxm4_80gb` are the same.

    Between a letter and a digit a separator may be left out, as in `RTX4090`; between two digits or two letters it may not (`H20-3e` is
    not `H203e`).
    """
    return re.sub(r"(?<=[a-z])_(?=[0-9])|(?<=[0-9])_(?=[a-z])", "", _separated(name))


def _separated(name: str) -> str:
    """A device name in lower case, with single `_` between its words, without the brands that drivers and people leave out at will."""
    words = re.sub(r"[\s_/-]+", "_", name.lower()).strip("_")
    return re.sub(r"^(?:nvidia_)?(?:tesla_|geforce_)?", "", words)


def _keys(gpu: GpuSpec) -> frozenset[str]:
    return frozenset(normalise(name) for name in (gpu.name, *gpu.device_names))


def gpus_with_words_of(text: str) -> list[GpuSpec]:
    """The GPUs of which one name has every word of `text`, where it names the chip and more: both SXM parts for `A100-SXM`.

    A number alone names the chip where it is a word of its own, and `RTX 4090` rather than its variants, as `4070 super` is none of `RTX
    4070 Ti SUPER`: `100` stands in many a name, and is said of none.
    """
    if text.strip()[:1].isdigit() and (gpu := match_device_name(f"RTX {text}")):
        return [gpu]
    words = set(_separated(text).split("_"))
    if len(words) < 2 and not text.strip().isdecimal():
        return []
    return [gpu for gpu in list_gpus() if any(words < set(_separated(name).split("_")) for name in gpu.device_names)]


def _closest(text: str) -> list[str]:
    """At most five short names whose names come closest to `text`."""
    names = {normalise(name): gpu.name for gpu in list_gpus() for name in (*gpu.device_names, gpu.name)}
    close = difflib.get_close_matches(normalise(text)[:100], names, n=12, cutoff=0.4)
    return list(dict.fromkeys(names[key] for key in close))[:5] or ["H100", "H200", "A100", "L40S", "B200"]


@lru_cache(maxsize=1)
def _files() -> tuple[Path, ...]:
    return tuple(sorted(folder("ceilings").glob("*.toml")))


@cache
def _normalised_text(path: Path) -> str:
    return normalise(path.read_text(encoding="utf-8"))


@cache
def _bundled(path: Path) -> tuple[GpuSpec, ...]:
    if path.name != CARDS:
        return (_read(path, users=False),)
    return tuple(_card(family, row) for family in _parsed(path)["families"] for row in family["cards"])


def _card(family: dict[str, Any], row: list[Any]) -> GpuSpec:
    """A card of a family: its row's figures, the rest as of the GPU it is `like`, whose L2 bandwidth, where the row has none, is scaled by
    the SMs."""
    relative = _bundled(folder("ceilings") / f"{_separated(family['like']).replace('_', '-')}.toml")[0]
    card = dict(zip(family["columns"], row, strict=True))
    card["device_names"] = tuple(card["device_names"])
    sources = {key: f"as {relative.name}: {text}" for key, text in relative.sources.items()} | family["sources"]
    if "l2_bytes_per_s" not in card:
        card["l2_bytes_per_s"] = relative.l2_bytes_per_s * card["num_sms"] / relative.num_sms
        scaled = (
            f"derived: {relative.name}'s {relative.l2_bytes_per_s / 1e9:.0f} GB/s scaled by SMs ({card['num_sms']} / {relative.num_sms})"
        )
        sources["l2_bytes_per_s"] = scaled
    return replace(relative, **card, sources=sources)


def _read(path: Path, *, users: bool) -> GpuSpec:
    """Reads one file; files of users may leave out the sources."""
    return _from_dict(_parsed(path), str(path), users=users)


def _parsed(path: Path) -> dict[str, Any]:
    return parse_toml(
        read_bytes(path, str(path), "a GPU description", MAX_FILE_BYTES), str(path), "mend it, or start from a file of ceilings/"
    )


def _from_dict(data: dict[str, Any], origin: str, *, users: bool) -> GpuSpec:
    known = [f.name for f in fields(GpuSpec)]
    for key in data:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=3, cutoff=0.5)
            limit = f"one of the known keys (closest: {', '.join(close)})" if close else f"one of {', '.join(known)}"
            raise InputError(f"{origin}: unknown key", got=key, limit=limit, remedy="rename or remove it")
    for f in fields(GpuSpec):
        if f.name not in data and f.default is MISSING and f.default_factory is MISSING:
            raise InputError(f"{origin}: the key {f.name} is missing", limit=accepted(f.name), remedy=f"add {f.name} = …")
    values = dict(data)
    values["sources"] = check_sources(data, origin, users=users)
    check_values(values, origin)  # before anything is converted, so that the message shows what the file says
    values["device_names"] = tuple(values["device_names"])
    values.update({key: float(values[key]) for key in REAL if values.get(key) is not None})
    values.update({key: {dtype: float(rate) for dtype, rate in values[key].items()} for key in TABLES if key in values})
    return GpuSpec(**values)


def offline(gpu: GpuSpec) -> Fingerprint:
    """Nothing was run: the GPU is a description."""
    torch = triton_install.package_version("torch", sys.path)
    return Fingerprint(mode="offline", gpu=gpu.name, torch=torch, triton=triton_install.version(), python=platform.python_version())
