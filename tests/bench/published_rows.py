"""How far `advisor predict` is off rows of measured operators as aiconfigurator publishes them.

    python tests/bench/published_rows.py [--rows N] [--operator NAME] SILICON

Of every file (<gpu>/<operator>/<stack>/<version>/*.parquet) N rows are drawn, the same at each run, and predicted through the command.
Prints for each operator the rows, the mean and median error in percent of the latency, how many of a hundred lie in their 80 % interval,
how many are below their bound (and which), and how many are of kernels without a measurement that counts (no other figure has them). The
shipped weights have seen most of these rows: what is said of models and GPUs left out stands in `ceilings/README.md`.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from advisor.cli import main as advisor_command  # noqa: E402
from advisor.training.silicon.operators import COMPILING  # noqa: E402

OPERATORS = ("moe_library", "linear_attention", "kda", "sparse_attention", "msa", "encoder_attention", "mla_bmm", "mhc")
OF_LAYER = ("moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "distribution")
UNMEASURED = {kernel for _, kernel in COMPILING}


def drawn(path: Path, count: int) -> list[dict[str, Any]]:
    """Rows of a file with the column gpu, named by the folder."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    chosen = np.sort(np.random.default_rng(0).permutation(table.num_rows)[:count])
    return [{"gpu": path.parts[-5], **row} for row in table.take(chosen).to_pylist()]


def predicted(rows: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """The rows with what the command adds; none where it refuses the file, which is said on stderr."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "rows.csv"), Path(folder, "out.csv")
        with source.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
        if advisor_command(["predict", str(source), "-o", str(out)]) == 0:
            with out.open(newline="") as stream:
                yield from csv.DictReader(stream)


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("--operator", choices=OPERATORS, action="append")
    parser.add_argument("silicon", type=Path)
    arguments = parser.parse_args()
    print(f"{'operator':18}{'rows':>6}{'MAPE':>8}{'median':>8}{'in 80 %':>9}{'below':>7}{'unmeasured':>12}{'refused':>9}")
    for operator in arguments.operator or OPERATORS:
        errors, inside, below, unmeasured, refused = [], 0, 0, 0, 0
        for path in sorted(arguments.silicon.glob(f"*/{operator}/*/*/*.parquet")):
            rows = drawn(path, arguments.rows)
            answered = [row for row in predicted(rows) if row["predicted_us"]]
            refused += len(rows) - len(answered)
            for row in answered:
                us = float(row["latency"]) * 1000
                if not us:
                    continue
                if row["kernel_source"] in UNMEASURED:
                    unmeasured += 1
                    continue
                errors.append(abs(float(row["predicted_us"]) / us - 1) * 100)
                inside += float(row["predicted_low_us"]) <= us <= float(row["predicted_high_us"])
                if us < float(row["bound_us"]):
                    below += 1
                    told = ("gpu", "framework", "version", "kernel_source", "bound_us", "latency")
                    print("  below its bound:", *(row[name] for name in told), {name: row.get(name) for name in OF_LAYER}, flush=True)
        if errors:
            share = 100 * inside / len(errors)
            figures = f"{len(errors):6}{np.mean(errors):8.1f}{np.median(errors):8.1f}{share:9.0f}{below:7}{unmeasured:12}{refused:9}"
            print(f"{operator:18}{figures}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
