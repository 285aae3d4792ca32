"""GPU descriptions: every bundled file is sound, names are matched exactly, and bad files say what is wrong."""

from __future__ import annotations

import csv
import itertools
import pickle
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.options import gpu_names
from advisor.gpus.gpu_description import NUMERIC_KEYS
from advisor.gpus.hardware import FP16_ACCUMULATOR, GpuSpec, list_gpus, load_gpu, match_device_name, normalise
from advisor.system.errors import InputError, UnknownGpuError, UsageError
from advisor.system.reading import parse_toml
from advisor.system.resources import folder

GPUS = list_gpus()
ELEVEN = ("A100", "A40", "H100", "H20", "H200", "H800", "L20", "L40", "RTX 6000 Ada", "RTX A6000", "RTX PRO 6000 S")
OTHERS = (
    "V100",
    "V100-16GB",
    "V100-PCIe",
    "V100-PCIe-16GB",
    "T4",
    "L4",
    "L40S",
    "A10",
    "A30",
    "A800",
    "A800-PCIe",
    "RTX 4090",
    "RTX 5090",
    "B200",
    "GB200",
    "B300",
    "GB300",
    "P4",
    "P100",
    "P100-PCIe",
    "A100-PCIe",
    "A100-40GB",
    "A100-40GB-PCIe",
    "H100 PCIe",
    "H100 NVL",
    "H200 NVL",
    "H20-3e",
    "MI250X",
    "MI300X",
    "MI308X",
    "MI325X",
    "MI350X",
    "MI355X",
    "A10G",
    "RTX 3090",
    "RTX 4080",
    "RTX 5080",
    "GB10",
    "GH200-144GB",
    "RTX 2080 Ti",
    "TITAN RTX",
    "Jetson Thor",
)
FAMILIES = parse_toml((folder("ceilings") / "cards.toml").read_bytes(), "cards.toml")["families"]
CARDS = tuple(row for family in FAMILIES for row in family["cards"])


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


@pytest.mark.parametrize("name", ELEVEN + OTHERS)
def test_known_by_short_name(name: str) -> None:
    assert load_gpu(name).name == name
    assert load_gpu(name.lower()) is load_gpu(name)


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_file_is_sound(gpu: GpuSpec) -> None:
    assert (folder("ceilings") / f"{slug(gpu.name)}.toml").is_file() != (gpu.name in {row[0] for row in CARDS})
    given = {key for key in NUMERIC_KEYS if getattr(gpu, key) is not None}
    assert set(gpu.sources) == given
    for key, text in gpu.sources.items():
        assert len(text) > 5, key
    for name in (gpu.name, *gpu.device_names):
        assert load_gpu(name) is gpu
        assert load_gpu(name.replace(" ", "_").upper()) is gpu
        assert load_gpu(name.removeprefix("NVIDIA ")) is gpu
    assert gpu.registers_per_sm % gpu.register_allocation_unit == 0
    assert gpu.smem_bytes_per_cta + gpu.smem_reserved_bytes_per_cta <= gpu.smem_bytes_per_sm
    # A cache slower than the memory behind it, or more than the SMs could take, is a wrong unit.
    assert gpu.dram_bytes_per_s < gpu.l2_bytes_per_s <= 256 * gpu.num_sms * gpu.max_clock_mhz * 1e6
    assert gpu.l2_bytes < gpu.dram_bytes
    assert gpu.smem_reserved_bytes_per_cta == (1024 if gpu.architecture in _FROM_SM80 else 0)
    assert pickle.loads(pickle.dumps(gpu)) == gpu
    assert hash(replace(gpu)) == hash(gpu)


_FROM_SM80 = ("ampere", "ada", "hopper", "blackwell")


def test_no_name_belongs_to_two_gpus() -> None:
    for one, other in itertools.combinations(GPUS, 2):
        names = [{normalise(name) for name in (gpu.name, *gpu.device_names)} for gpu in (one, other)]
        assert not names[0] & names[1], f"{one.name} and {other.name}"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA_H200", "H200"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA_H20-3e", "H20-3e"),
        ("nvidia h200 nvl", "H200 NVL"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA_A100-SXM4-80GB", "A100"),
        ("NVIDIA_A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-40GB-PCIe"),
        ("NVIDIA_A100_80GB_PCIe", "A100-PCIe"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA_L40S", "L40S"),
        ("NVIDIA L20Y", "L20Y"),
        ("NVIDIA L20", "L20"),
        ("NVIDIA H100", "H100"),
        ("NVIDIA_H100_80GB_HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("H100 NVL", "H100 NVL"),
        ("NVIDIA_B300_SXM6_AC", "B300"),
        ("NVIDIA_GB200", "GB200"),
        ("NVIDIA_B200", "B200"),
        ("Tesla V100-PCIE-32GB", "V100-PCIe"),
        ("Tesla P100-PCIE-16GB", "P100-PCIe"),
        ("Tesla T4", "T4"),
        ("Tesla P4", "P4"),
        ("NVIDIA_GeForce_RTX_4090", "RTX 4090"),
        ("AMD_Instinct_MI300X_OAM", "MI300X"),
        ("NVIDIA_A100-SXM-80GB", "A100"),
        ("NVIDIA A100-SXM-40GB", "A100-40GB"),
        ("NVIDIA_H200_141GB_HBM3e", "H200"),
        ("AMD_Instinct_MI350_OAM", "MI350X"),
        ("AMD Instinct MI325 OAM", "MI325X"),
        ("NVIDIA_RTX_PRO_6000_Blackwell_Max-Q_Workstation_Edition", "RTX PRO 6000 Max-Q"),
        ("RTX4090", "RTX 4090"),
        ("GeForce RTX5090", "RTX 5090"),
        ("A6000", "RTX A6000"),
        ("PRO6000S", "RTX PRO 6000 S"),
        ("B200-SXM", "B200"),
        ("V100-SXM2-16GB", "V100-16GB"),
        ("P100-PCIE-16GB", "P100-PCIe"),
        ("GH200-96GB", "GH200"),
        ("h100pcie", "H100 PCIe"),
        ("H20_3e", "H20-3e"),
        ("AMD Instinct MI300X VF", "MI300X"),
        ("H100-SXM5", "H100"),
        ("H200 SXM5", "H200"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("RTX4080", "RTX 4080"),
        ("GeForce RTX 5080", "RTX 5080"),
        ("NVIDIA_GB10", "GB10"),
        ("NVIDIA_GH200_144G_HBM3e", "GH200-144GB"),
        # Without a form factor the SXM part is meant: A100 and A100-40GB are, and the others say PCIe or NVL.
        ("A100-80GB", "A100"),
        ("a100_80gb", "A100"),
        ("A100-80GB-PCIe", "A100-PCIe"),
        ("A100-40GB-SXM", "A100-40GB"),
        ("A100-80GB-SXM4", "A100"),
        ("A800-80GB", "A800"),
        ("V100-32GB", "V100"),
        ("H100-80GB", "H100"),
        ("P100-16GB", "P100"),
        ("NVIDIA GeForce RTX 4060 Laptop GPU", "RTX 4060 Laptop"),
        ("NVIDIA_GeForce_RTX_4070_Ti_SUPER", "RTX 4070 Ti SUPER"),
        ("rtx 3060ti", "RTX 3060 Ti"),
        ("NVIDIA GeForce RTX 4090 D", "RTX 4090 D"),
        ("NVIDIA RTX 5000 Ada Generation", "RTX 5000 Ada"),
        ("NVIDIA Thor", "Jetson Thor"),
        ("Jetson AGX Thor", "Jetson Thor"),
        ("NVIDIA RTX PRO 5000 Blackwell", "RTX PRO 5000"),
        ("NVIDIA GeForce RTX 2080 SUPER", "RTX 2080 SUPER"),
        ("rtx2080ti", "RTX 2080 Ti"),
    ],
)
def test_device_names(text: str, name: str) -> None:
    gpu = match_device_name(text)
    assert gpu is not None and gpu.name == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "NVIDIA",
        "H2",
        "H2000",
        "A1",
        "A100 80",
        "L400",
        "AMD_Radeon_Graphics",
        "h*",
        "../a",
        "A100-SXM",
        "V100-SXM",
        "GH200_144",
        "RTX 5090 D",
        "H203e",
        "H20-0",
        "A1000",
        "RTX 4080 Ti",
        "RTX 4060 Laptop GPUs",
        "4090",
        "Tesla",
        "GeForce",
    ],
)
def test_part_of_a_name_is_not_enough(text: str) -> None:
    assert match_device_name(text) is None


def test_agrees_with_the_published_table(data_dir: Path) -> None:
    with (data_dir / "gpus.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert tuple(row["gpu"] for row in rows) == ELEVEN
    for row in rows:
        gpu = load_gpu(row["gpu"])
        assert load_gpu(row["device_name"]) is gpu
        assert gpu.architecture == row["architecture"]
        assert gpu.compute_capability == row["compute_capability"]
        assert gpu.num_sms == int(row["num_sms"])
        assert gpu.max_clock_mhz >= float(row["clock_mhz"])
        assert gpu.dram_bytes_per_s == pytest.approx(float(row["dram_gb_per_s"]) * 1e9)
        assert gpu.dram_bytes == int(row["dram_bytes"])
        # The device itself reports 60 MiB on H200, where the table has H100's 50.
        assert gpu.l2_bytes == (60 * 1024**2 if gpu.name == "H200" else int(row["l2_kib"]) * 1024)
        # The A100's 3235 is less than half of what its white paper says (5120 bytes per clock).
        l2_gb_per_s = 7219.2 if gpu.name == "A100" else float(row["l2_gb_per_s"])
        assert gpu.l2_bytes_per_s == pytest.approx(l2_gb_per_s * 1e9)
        assert gpu.smem_bytes_per_sm == int(row["smem_per_sm_kib"]) * 1024
        assert gpu.smem_bytes_per_clock_per_sm == float(row["smem_bytes_per_clock_per_sm"])
        assert gpu.registers_per_sm * 4 == int(row["registers_per_sm_kib"]) * 1024
        # PipeWeave's 516 for the L20 is 512 and a rounded clock.
        bf16 = float(row["tensor_bf16_flop_per_clock_per_sm"])
        assert gpu.tensor_flop_per_clock_per_sm["bf16"] == pytest.approx(bf16, rel=0.01)
        if row["tensor_fp8_flop_per_clock_per_sm"]:
            assert gpu.tensor_flop_per_clock_per_sm["fp8"] == float(row["tensor_fp8_flop_per_clock_per_sm"])
        assert gpu.xu_op_per_clock_per_sm == float(row["xu_fp32_op_per_clock_per_sm"])
        assert gpu.fma_flop_per_clock_per_sm["fp32"] == 2 * float(row["fma_fp32_lanes_per_sm"])


@pytest.mark.parametrize(
    ("name", "dtype", "clock_mhz", "teraflops"),  # dense figures of the datasheets, at the clock they are given for
    [
        ("V100", "fp16", 1530, 125),
        ("T4", "fp16", 1590, 65),
        ("T4", "int8", 1590, 130),
        ("A100", "bf16", 1410, 312),
        ("A100", "tf32", 1410, 156),
        ("A100", "int8", 1410, 624),
        ("A30", "bf16", 1440, 165),
        ("A40", "bf16", 1740, 149.7),
        ("A10", "bf16", 1695, 125),
        ("RTX A6000", "bf16", 1800, 154.8),
        ("L4", "bf16", 2040, 121),
        ("L4", "fp8", 2040, 242),
        ("L20", "bf16", 2520, 119.5),
        ("L20", "fp8", 2520, 239),
        ("L40", "bf16", 2490, 181),
        ("L40S", "bf16", 2520, 362),
        ("L40S", "fp8", 2520, 733),
        ("RTX 6000 Ada", "bf16", 2505, 364.2),
        ("RTX 6000 Ada", "fp8", 2505, 728.5),
        ("RTX 4090", "bf16", 2520, 165.2),
        ("RTX 4090", "int8", 2520, 660.6),
        ("RTX 4080", "bf16", 2505, 97.5),
        ("RTX 4080", "fp8", 2505, 194.9),
        ("A10G", "bf16", 1710, 70),
        ("RTX 3090", "bf16", 1695, 71),
        ("RTX 3090", "int8", 1695, 284),
        ("GH200-144GB", "bf16", 1830, 989.4),
        ("H100", "bf16", 1830, 989.4),
        ("H100", "fp8", 1830, 1978.9),
        ("H200", "tf32", 1830, 494.7),
        ("GH200", "bf16", 1830, 989.4),
        ("H100 PCIe", "bf16", 1620, 756),
        ("H20", "bf16", 1830, 148),
        ("H20", "fp8", 1830, 296),
        ("B200", "bf16", 1850, 2250),
        ("B200", "fp8", 1850, 4500),
        ("B200", "fp4", 1850, 9000),
        ("GB300", "fp4", 2000, 15000),
        ("RTX 5090", "bf16", 2407, 209.5),
        ("RTX 5090", "fp8", 2407, 838),
        ("RTX 5090", "fp4", 2407, 1676),
        ("RTX 5080", "bf16", 2617, 112.6),
        ("RTX 5080", "fp8", 2617, 450.2),
        ("RTX 5080", "fp4", 2617, 900.4),
        ("GB10", "fp4", 2543, 500),
        ("RTX PRO 6000 Workstation", "fp4", 2617, 2000),
        ("RTX PRO 6000 Max-Q", "fp4", 2280, 1755.5),
        ("MI355X", "fp4", 2400, 10066),
        ("MI250X", "fp16", 1700, 181.05),
        ("MI300X", "bf16", 2100, 1307.4),
        ("MI300X", "fp8", 2100, 2614.9),
        ("MI300X", "tf32", 2100, 653.7),
        ("MI325X", "bf16", 2100, 1307.4),
        ("MI350X", "fp16", 2200, 2306.9),
        ("MI355X", "fp8", 2400, 5033.2),
        ("RTX A5000", "fp16", 1695, 222.2 / 2),
        ("RTX A4000", "fp16", 1560, 153.4 / 2),
        ("RTX 4500 Ada", "fp8", 2580, 634 / 2),
        ("RTX 5000 Ada", "fp8", 2550, 1044.4 / 2),
        ("RTX PRO 5000", "fp4", 2290, 2064 / 2),
        ("Jetson Thor", "fp4", 1575, 2070 / 2),
        ("TITAN RTX", "fp16", 1770, 130.5),
        ("RTX 2080 Ti", "fp16", 1545, 53.8),
        ("RTX 2080 Ti", "int8", 1545, 215.2),
        ("RTX 2080 SUPER", "fp16", 1815, 89.2 / 2),
        ("RTX 2080", "fp16", 1710, 80.5 / 2),
        ("RTX 2070 SUPER", "fp16", 1770, 72.5 / 2),
        ("RTX 2070", "fp16", 1620, 59.7 / 2),
        ("RTX 2060 SUPER", "fp16", 1650, 57.4 / 2),
        ("RTX 2060", "fp16", 1680, 51.6 / 2),
    ],
)
def test_rates_give_the_datasheet_figure(name: str, dtype: str, clock_mhz: float, teraflops: float) -> None:
    gpu = load_gpu(name)
    rate = gpu.tensor_flop_per_clock_per_sm[dtype] * gpu.num_sms * clock_mhz * 1e6
    assert rate == pytest.approx(teraflops * 1e12, rel=0.025)
    # The bound must not lie above what the datasheet promises.
    assert gpu.peak_tensor_flop_per_s(dtype) >= 0.975 * teraflops * 1e12


@pytest.mark.parametrize(
    ("name", "clock_mhz", "teraflops"),
    [
        ("V100", 1530, 15.7),
        ("P100", 1480, 10.6),
        ("T4", 1590, 8.1),
        ("A100", 1410, 19.5),
        ("H100", 1980, 67),
        ("L40", 2490, 90.5),
        ("MI300X", 2100, 163.4),
        ("MI355X", 2400, 157.3),
        ("A10G", 1710, 35),
        ("RTX 3090", 1695, 35.6),
        ("RTX 4080", 2505, 48.7),
        ("RTX 5080", 2617, 56.3),
        ("GB10", 2520, 31),
    ],
)
def test_vector_rates_give_the_datasheet_figure(name: str, clock_mhz: float, teraflops: float) -> None:
    gpu = load_gpu(name)
    peak = gpu.fma_flop_per_clock_per_sm["fp32"] * gpu.num_sms * clock_mhz * 1e6
    assert peak == pytest.approx(teraflops * 1e12, rel=0.02)
    assert gpu.peak_fma_flop_per_s() == pytest.approx(peak * gpu.max_clock_mhz / clock_mhz)


def test_only_products_with_block_scales_reach_the_full_rate_of_geforce() -> None:
    """What cuBLASLt's MXFP8 was measured to take for 4096 x 4096 x 4096 on an RTX 5090 (NVIDIA/CUDALibrarySamples#283) is no fault."""
    gpu = load_gpu("RTX 5090")
    assert 2 * 4096**3 / gpu.peak_tensor_flop_per_s("fp8") < 210e-6
    assert gpu.plain_dot_share("fp8") == 0.5
    assert {other.name for other in list_gpus() if other.plain_dot_flop_per_clock_per_sm} == {
        other.name for other in GPUS if other.name.startswith("RTX 50") and "GeForce" in other.device_names[0]
    }
    assert gpu.plain_dot_share("bf16") == gpu.plain_dot_share("fp64") == 1.0


@pytest.mark.parametrize(
    ("name", "dtype", "clock_mhz", "teraflops"),  # dense figures of the white papers, with fp16 accumulation
    [
        ("RTX 3090", "fp16", 1695, 142),
        ("RTX 4080", "fp16", 2505, 194.9),
        ("RTX 4080", "fp8", 2505, 389.9),
        ("RTX 4090", "fp16", 2520, 330.3),
        ("RTX 4090", "fp8", 2520, 660.6),
        ("RTX 5080", "fp16", 2617, 225.1),
        ("RTX 5080", "fp8", 2617, 450.2),
        ("RTX 5090", "fp16", 2407, 419),
        ("RTX 5090", "fp8", 2407, 838),
        ("A100", "fp16", 1410, 312),
        ("A10G", "fp16", 1710, 140),  # not published: that of the same die in the RTX 3090
    ],
)
def test_rates_of_fp16_accumulation_give_the_white_papers_figure(name: str, dtype: str, clock_mhz: float, teraflops: float) -> None:
    gpu = load_gpu(name)
    assert gpu.tensor_rate(dtype + FP16_ACCUMULATOR) * gpu.num_sms * clock_mhz * 1e6 == pytest.approx(teraflops * 1e12, rel=0.005)
    assert gpu.tensor_rate(dtype) == gpu.tensor_flop_per_clock_per_sm[dtype]


@pytest.mark.parametrize(
    ("name", "published"),  # NVIDIA's "AI TOPS" at the boost clock, with sparsity: fp16 (RTX 30), int8 (RTX 40), fp4 (RTX 50)
    [
        ("RTX 3060", 101),
        ("RTX 3060 Ti", 129),
        ("RTX 3070", 163),
        ("RTX 3070 Ti", 174),
        ("RTX 3080", 238),
        ("RTX 3080 Ti", 273),
        ("RTX 3090 Ti", 320),
        ("RTX 4060", 242),
        ("RTX 4060 Ti", 353),
        ("RTX 4070", 466),
        ("RTX 4070 SUPER", 568),
        ("RTX 4070 Ti", 641),
        ("RTX 4070 Ti SUPER", 706),
        ("RTX 4080 SUPER", 836),
        ("RTX 4090 D", 1177),
        ("RTX 5050", 421),
        ("RTX 5060", 614),
        ("RTX 5060 Ti", 759),
        ("RTX 5070", 988),
        ("RTX 5070 Ti", 1406),
        ("RTX 4050 Laptop", 194),
        ("RTX 4060 Laptop", 233),
        ("RTX 4070 Laptop", 321),
        ("RTX 4080 Laptop", 542),
    ],
)
def test_cards_reach_the_figure_they_are_sold_with(name: str, published: float) -> None:
    assert ai_tops(load_gpu(name), load_gpu(name).boost_clock_mhz) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("RTX 4090 Laptop", 686),
        ("RTX 5060 Laptop", 572),
        ("RTX 5070 Laptop", 798),
        ("RTX 5070 Ti Laptop", 992),
        ("RTX 5080 Laptop", 1334),
        ("RTX 5090 Laptop", 1824),
    ],
)
def test_laptops_sold_with_a_figure_above_their_boost_clocks_reach_it_below_the_highest(name: str, published: float) -> None:
    gpu = load_gpu(name)
    assert ai_tops(gpu, gpu.boost_clock_mhz) < published < ai_tops(gpu, gpu.max_clock_mhz)


def ai_tops(gpu: GpuSpec, clock_mhz: float | None) -> float:
    """What NVIDIA calls AI TOPS: the matrix units' fastest type of the generation, fp16 summed in fp16, with sparsity."""
    assert clock_mhz is not None
    kind = {"ampere": "fp16" + FP16_ACCUMULATOR, "ada": "int8", "blackwell": "fp4"}[gpu.architecture]
    return 2 * gpu.tensor_rate(kind) * gpu.num_sms * clock_mhz / 1e6


@pytest.mark.parametrize(
    ("like", "columns", "row"),
    [pytest.param(each["like"], each["columns"], row, id=row[0]) for each in FAMILIES for row in each["cards"]],
)
def test_a_card_is_its_row_and_the_rest_of_its_relative(like: str, columns: list[str], row: list[Any]) -> None:
    gpu, relative = load_gpu(row[1][0]), load_gpu(like)
    assert [gpu.name, list(gpu.device_names), gpu.num_sms, gpu.base_clock_mhz, gpu.boost_clock_mhz] == row[:5]
    assert gpu.tensor_flop_per_clock_per_sm == relative.tensor_flop_per_clock_per_sm
    assert gpu.sources["smem_bytes_per_sm"] == f"as {relative.name}: {relative.sources['smem_bytes_per_sm']}"
    if "l2_bytes_per_s" in columns:
        assert gpu.l2_bytes_per_s == row[columns.index("l2_bytes_per_s")] and gpu.sources["l2_bytes_per_s"].startswith("derived: ")
    else:
        assert gpu.l2_bytes_per_s / gpu.num_sms == pytest.approx(relative.l2_bytes_per_s / relative.num_sms)


def test_fp16_accumulation_is_faster_on_geforce_alone() -> None:
    """And perhaps on the A10G, whose die is the RTX 3090's and whose rates are: its file takes the optimistic figure."""
    faster = {gpu.name for gpu in GPUS if gpu.fp16_accumulator_flop_per_clock_per_sm}
    assert faster == {gpu.name for gpu in GPUS if "GeForce" in gpu.device_names[0]} | {"A10G"}


def test_special_functions_of_cdna4_run_at_twice_the_rate() -> None:
    """The white paper of CDNA 4 doubles the transcendental rate: a bound at CDNA 3's would lie above what a kernel takes."""
    rates = {gpu.name: gpu.xu_op_per_clock_per_sm for gpu in GPUS if gpu.vendor == "amd"}
    assert rates == {"MI250X": 16, "MI300X": 16, "MI308X": 16, "MI325X": 16, "MI350X": 32, "MI355X": 32}


def test_types_a_gpu_does_not_have() -> None:
    assert load_gpu("T4").supports("fp16") and not load_gpu("T4").supports("bf16")
    assert not load_gpu("P100").tensor_flop_per_clock_per_sm
    with pytest.raises(UsageError, match=r"matrix units of A100.*fp8.*bf16"):
        load_gpu("A100").peak_tensor_flop_per_s("fp8")
    with pytest.raises(UsageError, match="no type at all"):
        load_gpu("P4").peak_tensor_flop_per_s("fp16")


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("H200", ("cuda", 90, 32)),
        ("L40", ("cuda", 89, 32)),
        ("B300", ("cuda", 103, 32)),
        ("RTX 5090", ("cuda", 120, 32)),
        ("MI250X", ("hip", "gfx90a", 64)),
        ("MI300X", ("hip", "gfx942", 64)),
        ("MI355X", ("hip", "gfx950", 64)),
    ],
)
def test_triton_target(name: str, target: tuple[object, ...]) -> None:
    assert load_gpu(name).triton_target == target


@pytest.mark.parametrize(
    ("name", "vllm", "sglang"),
    [
        ("H100", "NVIDIA_H100_80GB_HBM3", "NVIDIA_H100_80GB_HBM3"),
        ("H200", "NVIDIA_H200", "NVIDIA_H200"),
        ("H200 NVL", "NVIDIA_H200", "NVIDIA_H200_NVL"),
        ("H20-3e", "NVIDIA_H20-3e", "NVIDIA_H20-3e"),
        ("GH200", "NVIDIA_GH200_480GB", "NVIDIA_GH200_480GB"),
        ("A100", "NVIDIA_A100-SXM4-80GB", "NVIDIA_A100-SXM4-80GB"),
        ("MI300X", "AMD_Instinct_MI300X", "AMD_Instinct_MI300X"),
    ],
)
def test_names_in_file_names(name: str, vllm: str, sglang: str) -> None:
    assert (load_gpu(name).vllm_device_name(), load_gpu(name).sglang_device_name()) == (vllm, sglang)


def test_gddr_with_inline_ecc_keeps_fifteen_sixteenths() -> None:
    shares = {gpu.name: gpu.dram_achievable_fraction for gpu in GPUS}
    less = {name for name, share in shares.items() if share != 1.0}
    assert less == {"A10", "A10G", "A40", "L4", "L20", "L40", "L40S", "RTX PRO 6000 S"}
    assert {shares[name] for name in less} == {15 / 16}


def test_unknown_name_lists_the_closest() -> None:
    with pytest.raises(UnknownGpuError) as caught:
        load_gpu("NVIDIA H2OO")
    message = str(caught.value)
    assert "H2OO" in message and "H200" in message and "advisor gpus" in message and "--gpu my.toml" in message
    for text in ("", "x" * 5000, "a\0b", "\n<script>"):
        with pytest.raises(UnknownGpuError) as caught:
            load_gpu(text)
        assert len(str(caught.value)) < 500 and "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["Intel Arc Pro B60", "Arc B70", "b60", "Intel(R) Arc(TM) B580 Graphics", "Data Center GPU Max 1550"])
def test_gpus_of_intel_are_refused_in_one_line_with_why(text: str) -> None:
    with pytest.raises(UnknownGpuError, match=r"intel-xpu-backend-for-triton.*got") as caught:
        load_gpu(text)
    assert len(str(caught.value)) < 250 and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("4090", "RTX 4090"),
        ("5090", "RTX 5090"),
        (" 3090 ", "RTX 3090"),
        ("4060", "RTX 4060"),
        ("4070 super", "RTX 4070 SUPER"),
        ("3080ti", "RTX 3080 Ti"),
    ],
)
def test_a_number_names_the_card_of_that_number_alone(text: str, name: str) -> None:
    assert load_gpu(text).name == name
    assert match_device_name(text) is None, "what a driver or a row says is a whole name"


@pytest.mark.parametrize("text", ["100", "200", "30", "40", "80", "4", "4090 E", "40900"])
def test_a_number_that_is_part_of_a_word_names_none(text: str) -> None:
    with pytest.raises(UnknownGpuError, match="unknown GPU"):
        load_gpu(text)


@pytest.mark.parametrize(("text", "name"), [("4090-laptop", "RTX 4090 Laptop"), ("4090 D", "RTX 4090 D"), ("H100 94GB NVL", None)])
def test_the_one_gpu_that_has_every_word_is_taken_and_said(text: str, name: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    assert match_device_name(text) is None
    assert gpu_names([text, "H200"]) == [text, "H200"]
    said = capsys.readouterr().err
    if name is None:
        assert said == ""
        return
    assert load_gpu(text).name == name
    assert said == f"advisor: --gpu {text}: taken for {name} ({load_gpu(name).device_names[0]})\n"


def test_a_number_of_several_gpus_lists_them() -> None:
    with pytest.raises(UnknownGpuError, match="several GPUs go by this name") as caught:
        load_gpu("6000")
    assert "RTX 6000 Ada" in str(caught.value) and "RTX PRO 6000 S" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("NVIDIA_A100-SXM", ("A100 (NVIDIA A100-SXM4-80GB)", "A100-40GB (NVIDIA A100-SXM4-40GB)")),
        ("A100 SXM4", ("A100 (NVIDIA A100-SXM4-80GB)", "A100-40GB (NVIDIA A100-SXM4-40GB)")),
    ],
)
def test_a_name_of_several_gpus_lists_them(text: str, names: tuple[str, ...]) -> None:
    with pytest.raises(UnknownGpuError, match="several GPUs go by this name") as caught:
        load_gpu(text)
    assert ", ".join(names) in str(caught.value)


def test_own_file(own_gpu) -> None:
    path = own_gpu((r'^name = "H200"$', 'name = "Mine"'), (r"^num_sms = 132$", "num_sms = 7"))
    gpu = load_gpu(path)
    assert (gpu.name, gpu.num_sms) == ("Mine", 7)
    assert gpu.sources["num_sms"] == f"specified by {path}"
    assert load_gpu(str(path)) == gpu
    bare = path.rename(path.with_suffix(""))
    assert load_gpu(str(bare)).name == "Mine"
    assert match_device_name("Mine") is None


def test_files_that_are_no_descriptions(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_gpu(tmp_path / "absent.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InputError, match="is a directory"):
        load_gpu(tmp_path / "folder.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not TOML"):
        load_gpu(tmp_path / "binary.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * 1_000_001)
    with pytest.raises(InputError, match=r"too large.*at most 1,000,000 bytes"):
        load_gpu(tmp_path / "large.toml")
    (tmp_path / "deep.toml").write_text("a = " + "[" * 50_000, encoding="utf-8")
    with pytest.raises(InputError, match="is not TOML"):
        load_gpu(tmp_path / "deep.toml")


def test_corpus_names(corpus_dir: Path) -> None:
    """Every device name of the public tables is known, but for those whose figures nobody published."""
    unknown = set()
    for path in corpus_dir.rglob("*device_name=*.json"):
        found = re.search(r"device_name=(.*?)(?:_down)?(?:,|\.json)", path.name)
        assert found
        if match_device_name(found[1]) is None:
            unknown.add(found[1])
    assert unknown <= {
        "AMD_Instinct_MI455X",
        "AMD_Radeon_Graphics",
        "AMD_Radeon_R9700",
        "Radeon_8060S_Graphics",
        "NVIDIA_GB10",
        "Intel(R)_Arc(TM)_Pro_B60_Graphics",
        "Intel(R)_Arc(TM)_Pro_B70_Graphics",
    }


@pytest.mark.bench
def test_load_times() -> None:
    from advisor.gpus import hardware

    for label, action in (("by slug", lambda: load_gpu("H200")), ("by device name", lambda: load_gpu("Tesla T4"))):
        for function in (hardware.match_device_name, hardware._bundled, hardware._files, hardware._normalised_text):
            function.cache_clear()
        start = time.perf_counter()
        action()
        print(f"load_gpu {label}: {(time.perf_counter() - start) * 1e3:.1f} ms")
