"""Where configurations with one buffer (`num_stages=2`) win: by how large the launch's set is beside the L2.

Run it: `python tests/bench/one_buffer.py [--data DIR]`. Prints, per GPU, the mean over the sweeps' problems of the share that such
configurations have among the near-optimal ones (`ranker.OUTGROWN` rests on it), for problems of few rows per expert.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]

from advisor.gpus.hardware import load_gpu  # noqa: E402
from advisor.learned.machine import machine  # noqa: E402
from advisor.learned.moe.launch import as_configuration, moe_launch  # noqa: E402
from advisor.learned.moe.ranker import FEW_ROWS, OUTGROWN  # noqa: E402
from advisor.pipelines import problem_batch  # noqa: E402
from advisor.result.schema import Problem  # noqa: E402
from tests.bench.identical_launches import read  # noqa: E402
from tests.bench.sweeps import NAMES, SIZES  # noqa: E402

ANY = as_configuration(np.array([[16.0, 64.0, 128.0, 1.0, 4.0, 3.0]]))
STAGES = [name for name in NAMES if name != "GROUP_SIZE_M"].index("num_stages")


def run(arguments: list[str]) -> None:
    """Prints the shares."""
    parser = argparse.ArgumentParser()
    default = os.environ.get("ADVISOR_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data"
    parser.add_argument("--data", default=default, type=Path)
    found = []
    for (gpu, *sizes), near in read(parser.parse_args(arguments).data).items():
        problem = Problem(family="fused_moe", op="w13", sizes=dict(zip(SIZES, sizes, strict=True)))
        launch = moe_launch(problem_batch([problem]), ANY, machine(load_gpu(gpu), problem.dtype))
        if launch.slots[0] <= FEW_ROWS * launch.experts[0]:
            counts = [(blocks[STAGES] <= 2, len(groups)) for blocks, groups in near.items()]
            share = sum(count for one, count in counts if one) / sum(count for _, count in counts)
            found.append((gpu, float(launch.compulsory_bytes[0] / launch.l2_capacity[0]), share))
    edges = (0.0, *OUTGROWN, 3 * OUTGROWN[1], np.inf)
    for gpu in (*sorted({gpu for gpu, _, _ in found}), "all"):
        shown = []
        for low, high in itertools.pairwise(edges):
            shares = [share for name, fill, share in found if gpu in (name, "all") and low <= fill < high]
            shown.append(f"{low:g} to {high:g} of the L2: {100 * float(np.mean(shares)):3.0f} % of {len(shares):3d}" if shares else "none")
        print(f"{gpu:6s} " + "   ".join(shown))


if __name__ == "__main__":
    run(sys.argv[1:])
