"""The product's timers beside CUPTI's (through torch's profiler) and Triton's, on one GPU; `fake` as argument goes through the cases only.

A warm launch is timed by what each further launch of a graph takes, which in CUPTI's trace is the distance between the starts of two
neighbours. A cold one is timed between two events less what two events around nothing show: in the trace it lies between what its kernels
take by themselves and what they add to the time line after the flush before them, which has the gap between two kernels in it. Both should
agree within 1 % or 0.3 us.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

from advisor.measurement.devices.device import open_device, parse_device
from advisor.measurement.kernel_file import configurations, find_kernels
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
REPEATS = 20


ENQUEUED_US = 200.0
"""What Python takes at most to enqueue a flush and a launch while a profiler listens: the GPU is held as long, and waits for none."""

Span = tuple[float, float, str]
"""Start and end in microseconds, and the name, of what ran on the GPU."""


def traced(runs: Callable[[], None]) -> list[Span]:
    """What ran on the GPU, by CUPTI, in the order in which it began."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        runs()
        torch.cuda.synchronize()
    return sorted((e.time_range.start, e.time_range.end, e.name) for e in found.events() if "cuda" in str(e.device_type).lower())


def times_of(spans: Sequence[Span], function: str, flush: Collection[str]) -> tuple[float, float]:
    """Medians in microseconds: what the kernels of a launch took by themselves, and what the launch added to the time line.

    Args:
        spans: In the order in which they began.
        function: Part of the name of the kernel that each launch begins with; others may follow it (a sum of parts).
        flush: Names of what makes the L2 cold before each launch; none: the launches are warm.
    """
    first = [place for place, (_, _, name) in enumerate(spans) if function in name and name not in flush]
    launches = [[span for span in spans[one:other] if span[2] not in flush] for one, other in itertools.pairwise([*first, len(spans)])]
    alone = [sum(end - start for start, end, _ in launch) for launch in launches]
    if flush:
        added = [launch[-1][1] - spans[place - 1][1] for place, launch in zip(first, launches, strict=True) if place]
    else:  # between two replays lies more than a launch: the median leaves those out
        added = [other[0][0] - one[0][0] for one, other in itertools.pairwise(launches)]
    return statistics.median(alone), statistics.median(added)


def traced_us(device: Any, launched: Any, function: str, cold: bool) -> tuple[float, float]:
    """From CUPTI's trace, medians in microseconds: what a launch took by itself, and what it added to the time line."""

    def runs() -> None:
        device.hold_queue(ENQUEUED_US * REPEATS)
        for _ in range(REPEATS):
            if cold:
                device.flush_l2()
            (launched.graphs[0].replay if launched.graphs else launched.run)()

    flush = {name for _, _, name in traced(device.flush_l2)} if cold else set()
    return times_of(traced(runs), function, flush)


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
                least, most = (alone, added) if cache == "cold" else (added, added)
                good = least - max(RELATIVE * least, ABSOLUTE_US) <= ours <= most + max(RELATIVE * most, ABSOLUTE_US)
                off += not good
                line += f", CUPTI {added:.2f} (the kernel alone {alone:.2f}), {others(launched, cache)}{'' if good else '  OFF'}"
            print(line, flush=True)
            bench.close()
    return int(off > 0)


def others(launched: Any, cache: str) -> str:
    """What Triton's own timers say."""
    from triton.testing import do_bench, do_bench_cudagraph

    if cache == "warm":
        return f"do_bench_cudagraph {1e3 * do_bench_cudagraph(launched.run, rep=5, return_mode='median'):.2f}"
    return f"do_bench {1e3 * do_bench(launched.run, warmup=3, rep=15, return_mode='median'):.2f}"


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ["cuda"])))
