"""What peers would have said of library kernels: PipeWeave's network, and our weights from before these kernels were measured.

Run it: `python tests/bench/silicon_peers.py SILICON` (about ten minutes of a core; needs torch). Prints a table in Markdown, in percent.

PipeWeave's features and network (`peers.py`) are fitted anew to four fifths of the weight matrices, of one kind, one stack and
all GPUs at once, and judged on the others, which are those that `advisor evaluate SILICON --leave-out shape` leaves out; its features are
of products alone. `ceilings/learned.npz` without `silicon.npz` knows fp8 products of H20 and H800, and answers the rest by the
analytical model.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]

from advisor.gpus.hardware import load_gpu  # noqa: E402
from advisor.learned import load_predictor  # noqa: E402
from advisor.training import data  # noqa: E402
from advisor.training.silicon.library_kernels import MOST_JUDGED, SHARE, Measured, bound_us, read  # noqa: E402
from tests.bench import peers  # noqa: E402

BEFORE = Path(__file__).resolve().parents[2] / "ceilings" / "learned.npz"
MOST_FITTED = 15_000


def some(part: Measured, of_those_left_out: bool, most: int) -> Measured:
    """Rows of one side of the split, at random where there are more than `most`."""
    rows = np.flatnonzero((part.group // 11 % SHARE == 0) == of_those_left_out)
    return part.take(np.sort(np.random.default_rng(0).permutation(rows)[:most]))


def as_pipeweave(part: Measured) -> data.Measured:
    return data.Measured(
        kind=part.kind, gpu=load_gpu(part.series.gpu), problem=part.problem, configuration=None, latency_us=part.latency_us
    )


def percent(predicted: np.ndarray, measured: np.ndarray) -> str:
    return f"{100 * np.abs(predicted / measured - 1).mean():.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="+", help="folders of measured operators")
    parts = read(parser.parse_args().folder)
    with tempfile.TemporaryDirectory() as alone:  # beside it silicon.npz would be found
        before = load_predictor(shutil.copy(BEFORE, alone))
    print("| kind | GPU | rows | PipeWeave's network | our weights of before | bound |\n| --- | --- | --- | --- | --- | --- |", flush=True)
    for kind in sorted({part.kind for part in parts}):
        mine = [part for part in parts if part.kind == kind]
        gone = [asked for part in mine if len((asked := some(part, True, MOST_JUDGED)).latency_us)]
        networks = {}
        for stack in sorted({part.series.stack for part in mine}) if kind.startswith("gemm") and kind != "gemm amd" else ():
            kept = [some(part, False, MOST_FITTED) for part in mine if part.series.stack == stack]
            counts, tensor_us = peers._counts([as_pipeweave(part) for part in kept])
            networks[stack] = peers.fit_network(counts, tensor_us / np.concatenate([part.latency_us for part in kept]))
        for gpu in sorted({part.series.gpu for part in gone}):
            of_gpu = [part for part in gone if part.series.gpu == gpu]
            measured = np.concatenate([part.latency_us for part in of_gpu])
            theirs = "–"
            if networks:
                counted = [(networks[part.series.stack], *peers._counts([as_pipeweave(part)])) for part in of_gpu]
                theirs = percent(
                    np.concatenate([tensor_us / np.maximum(net(counts), 1e-9) for net, counts, tensor_us in counted]), measured
                )
            ours = percent(np.concatenate([before.predict(part.problem, None, load_gpu(gpu)).us for part in of_gpu]), measured)
            bound = percent(np.concatenate([bound_us(part) for part in of_gpu]), measured)
            print(f"| {kind} | {gpu} | {measured.size:,} | {theirs} | {ours} | {bound} |", flush=True)


if __name__ == "__main__":
    main()
