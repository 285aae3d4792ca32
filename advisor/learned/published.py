"""The layouts in which PipeWeave and NeuSight publish their measurements, turned into ROWS.

PipeWeave (repository `zksainx/pipeweave`): `pipetuning_test/moe_dse/moe_dse_<GPU>.csv` with weight_type, M, E, topk, H, N, the six
configuration columns and avg_duration (microseconds), the GPU in the file's name; `dataset/*.csv` with the GPU in `hardware`.
NeuSight (repository `sitar-lab/NeuSight`): operators with `OPName`, `Device` and `Latency` in milliseconds.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from advisor.configs.rows import Rows, parse_rows
from advisor.errors import InputError

# Their name of a column (lower case) -> ours.
COLUMNS = {
    "hardware": "gpu", "device": "gpu", "weight_type": "gemm", "avg_duration": "latency_us", "duration": "latency_us",
    "opname": "op", "latency": "latency_us",
}  # fmt: skip
FILE_GPUS = {"PRO6000S": "RTX PRO 6000 S"}
"""GPUs that file names spell in a way no device does."""

_SWEEP = re.compile(r"moe_dse_(?P<gpu>[A-Za-z0-9-]+)\.csv(\.gz)?$")


def is_published(header: tuple[str, ...]) -> bool:
    """Whether a header is one of theirs rather than ours."""
    return "latency_us" not in header and "best_us" not in header and any(name.lower() in COLUMNS for name in header)


def read(path: Path, text: str) -> Rows:
    """Rows of a file in one of the published layouts.

    Args:
        path: Its name tells the GPU, where no column does.
        text: Its content.

    Raises:
        InputError: No GPU or no latency is to be found, or a latency is not a number.
    """
    reader = csv.reader(io.StringIO(text))
    theirs = next(reader, [])
    header = [COLUMNS.get(name.lower(), name) for name in theirs]
    # A file may hold latencies under two names, and many columns of features: the first latency counts, unknown columns go.
    keep = [i for i, name in enumerate(header) if name not in header[:i] and (name in _ours() or name in COLUMNS.values())]
    milliseconds = "Latency" in theirs or "latency" in theirs
    found = _SWEEP.search(path.name)
    gpu = FILE_GPUS.get(found["gpu"], found["gpu"]) if found else None
    names = [header[i] for i in keep]
    if "latency_us" not in names or ("gpu" not in names and gpu is None):
        raise InputError(f"{path.name}: not a published layout", ", ".join(theirs), "a column of latencies, and a GPU",
                         "rename the columns as in data/README.md")  # fmt: skip
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    add_gpu = "gpu" not in names
    writer.writerow([*names, "gpu"] if add_gpu else names)
    at = names.index("latency_us")
    for line, row in enumerate(reader, start=2):
        if not row:
            continue
        cells = [row[i] if i < len(row) else "" for i in keep]
        if milliseconds and cells[at]:
            try:
                cells[at] = repr(float(cells[at]) * 1e3)
            except ValueError:
                raise InputError(f"{path.name}: line {line}: latency", cells[at], "a number of milliseconds", "correct it") from None
        writer.writerow([*cells, gpu] if add_gpu else cells)
    return parse_rows(out.getvalue(), path.name, str(path), required=("gpu",))


def _ours() -> tuple[str, ...]:
    from advisor.configs.rows import CONFIG_COLUMNS, SIZE_COLUMNS, TEXT_COLUMNS

    return (*SIZE_COLUMNS, *CONFIG_COLUMNS, *TEXT_COLUMNS)
