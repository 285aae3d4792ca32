"""List the GPUs that ceilings/ describes, or show every figure of one with its source.

examples:
  advisor gpus
  advisor gpus H200
"""

from __future__ import annotations

import argparse
import dataclasses
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor gpus`."""
    parser.add_argument("name", nargs="?", help="show one GPU in full (a name, or the path of a TOML file)")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """Print the list, or one GPU."""
    from advisor.gpus.hardware import list_gpus, load_gpu

    if arguments.name:
        gpu = load_gpu(arguments.name)
        values = dataclasses.asdict(gpu)
        if arguments.format == "json":
            print(json.dumps(values, indent=2, ensure_ascii=False))
            return 0
        sources = values.pop("sources")
        width = max(map(len, values))
        for key, value in values.items():
            source = sources.get(key)
            print(f"{key:<{width}}  {_shown(value)}" + (f"   [{source}]" if source else ""))
        return 0
    gpus = list_gpus()
    if arguments.format == "json":
        print(json.dumps([dataclasses.asdict(gpu) for gpu in gpus], indent=2, ensure_ascii=False))
        return 0
    print(f"{'name':<24} {'target':<8} {'SMs':>4} {'max MHz':>8} {'bf16 TFLOP/s':>13} {'DRAM GB/s':>10} {'L2 MB':>7}  device names")
    for gpu in gpus:
        rate = gpu.peak_tensor_flop_per_s("bf16") / 1e12 if gpu.supports("bf16") else 0.0
        shown = f"{rate:13.0f}" if rate else f"{'-':>13}"
        print(
            f"{gpu.name:<24} {gpu.compute_capability:<8} {gpu.num_sms:>4} {gpu.max_clock_mhz:>8.0f} {shown}"
            f" {gpu.dram_bytes_per_s / 1e9:>10.0f} {gpu.l2_bytes / 1e6:>7.1f}  {', '.join(gpu.device_names)}"
        )
    return 0


def _shown(value: object) -> str:
    """A figure as it is read: its unit is in its name."""
    if value is None:
        return "not given"
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:g}" for name, number in value.items())
    if isinstance(value, (tuple, list)):
        return ", ".join(value)
    return f"{value:.15g}" if isinstance(value, float) else str(value)
