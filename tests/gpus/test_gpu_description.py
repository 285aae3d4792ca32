"""What a description of a GPU may say: bad files are refused with the file, the key, the value and what is accepted."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from advisor.gpus.hardware import load_gpu
from advisor.system.errors import InputError


@pytest.mark.parametrize(
    ("pattern", "replacement", "parts"),
    [
        (r"^num_sms = 132$", "", ("num_sms is missing", "whole number", "add num_sms")),
        (r"^num_sms =", "nun_sms =", ("unknown key", "nun_sms", "closest: num_sms")),
        (r"^num_sms = 132$", 'num_sms = "132"', ("num_sms", "'132'|132", "whole number")),
        (r"^num_sms = 132$", "num_sms = 132.5", ("num_sms", "132.5", "whole number")),
        (r"^num_sms = 132$", "num_sms = true", ("num_sms", "True", "whole number")),
        (r"^num_sms = 132$", "num_sms = 0", ("num_sms", "got 0", "from 1")),
        (r"^num_sms = 132$", "num_sms = -132", ("num_sms", "got -132")),
        (r"^num_sms = 132$", "num_sms = 0x1" + "0" * 9000, ("num_sms", "more than 1e30")),
        (r"^num_sms = 132$", "num_sms = 1" + "0" * 9000, ("is not TOML",)),
        (r"^max_clock_mhz = 1980$", "max_clock_mhz = nan", ("max_clock_mhz", "nan", "a number from")),
        (r"^max_clock_mhz = 1980$", "max_clock_mhz = inf", ("max_clock_mhz", "inf")),
        (r"^max_clock_mhz = 1980$", "max_clock_mhz = 1.98e9", ("max_clock_mhz", "1980000000", "correct the figure and its unit")),
        (r"^max_clock_mhz = 1980$", "max_clock_mhz = 1000", ("base_clock_mhz", "1590", "at most max_clock_mhz")),
        (r"^smem_bytes_per_cta = .*$", "smem_bytes_per_cta = 999_999", ("smem_bytes_per_cta", "at most smem_bytes_per_sm")),
        (r"^dram_achievable_fraction = 1.0$", "dram_achievable_fraction = 1.5", ("dram_achievable_fraction", "1.5", "to 1")),
        (r"^l2_bytes_per_s = .*$", "l2_bytes_per_s = 10403", ("l2_bytes_per_s", "10403", "unit")),
        (r"^bf16 = 4096$", "bf17 = 4096", ("tensor_flop_per_clock_per_sm", "bf17", "bf16, fp16, tf32, fp8, fp4, int8")),
        (r"^bf16 = 4096$", 'bf16 = "fast"', (r"tensor_flop_per_clock_per_sm\.bf16", "fast")),
        (
            r"^launch_latency_us = .*$",
            "launch_latency_us = 2.0\n[plain_dot_flop_per_clock_per_sm]\nfp8 = 8193",
            ("plain_dot_flop_per_clock_per_sm.fp8", "got 8193", "at most tensor_flop_per_clock_per_sm.fp8"),
        ),
        (
            r"^launch_latency_us = .*$",
            "launch_latency_us = 2.0\n[fp16_accumulator_flop_per_clock_per_sm]\nfp8 = 8191",
            ("fp16_accumulator_flop_per_clock_per_sm.fp8", "got 8191", r"at least tensor_flop_per_clock_per_sm\.fp8 \(8192\)"),
        ),
        (
            r"^launch_latency_us = .*$",
            "launch_latency_us = 2.0\n[fp16_accumulator_flop_per_clock_per_sm]\nbf16 = 8192",
            ("fp16_accumulator_flop_per_clock_per_sm", "bf16", "entries of fp16, fp8"),
        ),
        (r"^fp32 = 256$", "", ("fma_flop_per_clock_per_sm", "fp32 is required")),
        (r'^vendor = "nvidia"$', 'vendor = "intel"', ("vendor", "intel", "nvidia, amd")),
        (r'^architecture = "hopper"$', 'architecture = "Hopper"', ("architecture", "Hopper", "pascal")),
        (r'^compute_capability = "9.0"$', "compute_capability = 9.0", ("compute_capability", "9.0", "text")),
        (r'^compute_capability = "9.0"$', 'compute_capability = "sm_90"', ("compute_capability", "sm_90")),
        (r"^device_names = .*$", "device_names = []", ("device_names", "at least one")),
        (r"^device_names = .*$", 'device_names = "H200"', ("device_names", "list")),
        (r'^name = "H200"$', 'name = ""', ("name", "short text")),
        (r'^name = "H200"$', "name = ", ("is not TOML", "line 1")),
        (r'^name = "H200"$', 'name = "H200"\nsources = 3', ("sources", "table of texts")),
    ],
)
def test_bad_file_names_key_value_and_limit(own_gpu, pattern: str, replacement: str, parts: tuple[str, ...]) -> None:
    path = own_gpu((pattern, replacement))
    with pytest.raises(InputError) as caught:
        load_gpu(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message and len(message) < 1500
    for part in parts:
        assert re.search(part, message), f"{part!r} not in {message!r}"


def test_sources_are_all_or_none(own_gpu) -> None:
    with pytest.raises(InputError, match=r"sources\.num_sms.*leave out"):
        load_gpu(own_gpu((r'^num_sms = "NVIDIA.*$', ""), sources=True))
    with pytest.raises(InputError, match=r"sources\.l2_bytes;.*got 3"):
        load_gpu(own_gpu((r'^l2_bytes = "cuda.*$', "l2_bytes = 3"), sources=True))
    with pytest.raises(InputError, match=r"no figure.*colour"):
        load_gpu(own_gpu((r"^\[sources\]$", '[sources]\ncolour = "green"'), sources=True))


def test_values_are_checked_where_they_are_made() -> None:
    with pytest.raises(InputError, match="GPU 'H200': num_sms"):
        replace(load_gpu("H200"), num_sms=0)
    with pytest.raises(InputError, match="l2_bytes_per_s"):
        replace(load_gpu("H200"), l2_bytes_per_s=None)
    with pytest.raises(InputError, match=r"l2_near_bytes.*together with l2_far_bytes_per_s"):
        replace(load_gpu("MI300X"), l2_near_bytes=None)
