"""Correct the weights by rows measured on one's own GPU.

ROWS are launches of any kind that `advisor predict` reads, with latency_us: kernels of experts, whole layers, products and attention of
libraries. Fifty of a kind help; three hundred come near the errors of GPUs that were measured in full. Each kind of launch is corrected by
its own rows alone, and its intervals are those that hold four of five of them.

The weights are used with --weights, and by every command where they lie at $XDG_CONFIG_HOME/triton-advisor/weights.npz (or
~/.config/triton-advisor/weights.npz). Rows given later are added to earlier ones.

`advisor measure --plan tests/gpu/own_gpu.toml -o rows.csv --time-limit 5m` measures such rows of Triton's kernels.

examples:
  advisor calibrate rows.csv -o ~/.config/triton-advisor/weights.npz
  advisor calibrate rows.csv -o mine.npz --gpu H20
"""

from __future__ import annotations

import argparse
from pathlib import Path

from advisor.cli import options
from advisor.system.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor calibrate`."""
    parser.add_argument("rows", metavar="ROWS.csv", help="measured launches, one per line (.gz is fine)")
    parser.add_argument(
        "-o", "--output", required=True, type=options.file_output, metavar="WEIGHTS", help="where to write the corrected weights (.npz)"
    )
    parser.add_argument("--gpu", metavar="NAME", help="GPU of every row, in place of the column gpu")
    parser.add_argument("--weights", metavar="FILE", help="weights to correct (default: those in use)")


def run(arguments: argparse.Namespace) -> int:
    """Calibrate and write."""
    from advisor.learned import weights
    from advisor.rows.rows import read_rows
    from advisor.rows.types_and_origin import settle_dtypes
    from advisor.training.own_gpu import calibrate

    target = Path(arguments.output)
    if target.parent == weights.own_folder():
        target.parent.mkdir(parents=True, exist_ok=True)
    options.check_writable(target)
    options.check_not_read(arguments.output, [arguments.rows])
    base = arguments.weights or weights.in_use()
    if base is None:
        raise UsageError("no weights are shipped with this installation", None, None, "give --weights FILE")
    rows = read_rows(arguments.rows)
    if assumed := settle_dtypes(rows, Path(arguments.rows).name, arguments.gpu):
        options.note(assumed)
    calibrated = calibrate(rows, weights.load(base), arguments.gpu)
    for why, count in calibrated.left_out.items():
        if count:
            options.note(f"left out {count} of {len(rows)} rows: {why}")
    weights.save(calibrated.weights, target)
    for (gpu, kind), (count, before, after) in calibrated.errors.items():
        print(f"{gpu}, {kind}: {count} rows, error {before:.1f} % before, {after:.1f} % of rows left out one by one")
    print(f"{arguments.output}: weights {calibrated.weights.digest()}")
    return 0
