"""One launch of each bundled kernel's default, for Nsight Compute, whose file `advisor advise … --measured FILE` reads.

`ncu --profile-from-start off --clock-control none --cache-control none --csv --page raw --log-file FILE python tests/gpu/ncu_one.py`: that
profiles the launches alone, and not what makes their inputs and references. Another device than the GPU (`fake`) as argument.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from advisor.measurement.devices.device import open_device, parse_device
from advisor.measurement.kernel_file import KernelRef, bundled_files, configurations, read_kernels
from advisor.result.schema import Problem


def main(device: str) -> None:
    """Prints each launch before it is made."""
    opened = open_device(parse_device(device))
    for file in bundled_files():
        for function, entry in read_kernels(file).items():
            if "make_inputs" not in entry or "example" not in entry:
                continue
            for op in entry["ops"]:
                kernel = KernelRef(file=str(file), function=function)
                problem = Problem(family=entry["family"], op=op, sizes=dict(entry["example"]), dtype=entry["dtypes"][0])
                configuration = configurations(kernel, problem, opened.gpu)[0]
                print(function, op, dict(problem.sizes), configuration.label(), flush=True)
                bench = opened.open(kernel, problem, 0)
                launched = bench.launch(configuration)
                if torch := getattr(opened, "torch", None):
                    profiled(launched.run, torch.cuda)
                bench.close()


def profiled(run: Callable[[], Any], cuda: Any) -> None:
    """Launches so that a profiler sees it that waits for a start (`--profile-from-start off`)."""
    cuda.synchronize()
    cuda.profiler.start()
    run()
    cuda.synchronize()
    cuda.profiler.stop()


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["cuda"]))
