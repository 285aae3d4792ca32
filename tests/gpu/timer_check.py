"""The product's timers beside CUPTI's (through torch's profiler) and Triton's, on one GPU; `fake` as argument goes through the cases only.

A warm launch is timed by what each further launch of a graph takes, which in CUPTI's trace is the distance between the starts of two
neighbours; a cold one by events, in the trace from the end of the flush before it to its own end. Both should agree within 1 % or 0.3 us.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from typing import Any

from advisor.measurement import configurations, find_kernels, open_device, parse_device
from advisor.result.schema import Problem

QWEN3 = {"E": 128, "topk": 8, "H": 2048, "N": 768}
CASES: tuple[tuple[str, str, str, dict[str, int]], ...] = (
    ("rms_norm_kernel", "normalization", "rms_norm", {"B": 16, "H": 4096}),
    ("rms_norm_kernel", "normalization", "rms_norm", {"B": 4096, "H": 4096}),
    ("fused_moe_kernel", "fused_moe", "w13", {"M": 1, **QWEN3}),
    ("fused_moe_kernel", "fused_moe", "w13", {"M": 64, **QWEN3}),
    ("fused_moe_kernel", "fused_moe", "w13", {"M": 4096, **QWEN3}),
    ("gemm_kernel", "gemm", "gemm", {"M": 16, "N": 4096, "K": 4096}),
    ("gemm_persistent_kernel", "gemm", "gemm", {"M": 2048, "N": 4096, "K": 4096}),
    ("gemm_persistent_kernel", "gemm", "gemm", {"M": 8192, "N": 8192, "K": 8192}),
)
RELATIVE, ABSOLUTE_US = 0.01, 0.3
REPEATS = 30


def traced_us(device: Any, launched: Any, function: str, cold: bool) -> tuple[float, float]:
    """From CUPTI's trace, medians in microseconds: what a launch took by itself, and what it added to the time line."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(REPEATS):
            if cold:
                device.flush_l2()
            (launched.graphs[0].replay if launched.graphs else launched.run)()
        torch.cuda.synchronize()
    spans = sorted((e.time_range.start, e.time_range.end, e.name) for e in found.events() if "cuda" in str(e.device_type).lower())
    own = [end - start for start, end, name in spans if function in name]
    neighbours = [(one, other) for one, other in itertools.pairwise(spans) if function in other[2]]
    if cold:
        added = [other[1] - one[1] for one, other in neighbours]
    else:  # between two replays lies more than a launch: the median leaves those out
        added = [other[0] - one[0] for one, other in neighbours if function in one[2]]
    return statistics.median(own), statistics.median(added)


def main(name: str) -> int:
    """A line per case; 1 where one is further off than it should be."""
    device: Any = open_device(parse_device(name))
    print(device.gpu_name, device.fingerprint())
    off = 0
    for kernel_name, family, op, sizes in CASES:
        for cache in ("warm", "cold"):
            (kernel,) = find_kernels(kernel_name)
            problem = Problem(family=family, op=op, sizes=sizes, cache=cache)
            bench = device.open(kernel, problem, 0)
            launched = bench.launch(configurations(kernel, problem, device.gpu)[0])
            bench.check(launched)
            ours = statistics.median(sample for number in range(12) for sample in bench.time(launched, number, 0).samples_us)
            line = f"{kernel_name} {' '.join(map(str, sizes.values()))} {cache}: {bench.timer(launched)} {ours:.2f} us"
            if device.fingerprint().mode == "gpu":
                alone, added = traced_us(device, launched, kernel.function, cache == "cold")
                good = abs(ours - added) <= max(RELATIVE * added, ABSOLUTE_US)
                off += not good
                line += f", CUPTI {added:.2f} (the kernel alone {alone:.2f}), {others(launched, cache)}{'' if good else '  OFF'}"
            print(line, flush=True)
            bench.close()
    return int(off > 0)


def others(launched: Any, cache: str) -> str:
    """What Triton's own timers say."""
    from triton.testing import do_bench, do_bench_cudagraph

    if cache == "warm":
        return f"do_bench_cudagraph {1e3 * do_bench_cudagraph(launched.run, rep=20, return_mode='median'):.2f}"
    return f"do_bench {1e3 * do_bench(launched.run, warmup=10, rep=50, return_mode='median'):.2f}"


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ["cuda"])))
