"""The layout in which `ai-dynamo/aiconfigurator` publishes measured operators: `<gpu>/<operator>/<stack>/<version>/*.parquet`,
latency in milliseconds.

Needs pyarrow, which comes with the extra `train`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.system.errors import InputError, MissingDependencyError

GPUS = {
    "a100_sxm": "A100",
    "h100_sxm": "H100",
    "h200_sxm": "H200",
    "b200_sxm": "B200",
    "b300_sxm": "B300",
    "gb200": "GB200",
    "gb300": "GB300",
    "l40s": "L40S",
    "rtx_pro_6000_server": "RTX PRO 6000 S",
}
"""Their folders and our names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiliconFile:
    """Rows of one file.

    Attributes:
        gpu: Our name of the GPU.
        stack: `vllm`, `sglang`, `nccl`, …
        version: Of the stack.
        columns: By the publisher's name, [n].
        latency_us: [n].
    """

    gpu: str
    stack: str
    version: str
    columns: dict[str, NDArray]
    latency_us: NDArray[np.float64]

    def __len__(self) -> int:
        return self.latency_us.size


def is_layout(path: Path | str) -> bool:
    """Whether a folder holds files in this layout."""
    return Path(path).is_dir() and next(Path(path).glob("*/*/*/*/*.parquet"), None) is not None


def read(folder: Path | str, operator: str, name: str, gpus: Sequence[str] | None = None) -> Iterator[SiliconFile]:
    """The files `<gpu>/<operator>/<stack>/<version>/<name>.parquet`; rows without a positive latency are left out.

    Args:
        folder: Holds the folders of GPUs.
        operator: `gemm`, `attention`, `moe`, …
        name: Of the files, without the extension.
        gpus: Our names of the GPUs to read; None: all.

    Raises:
        InputError: A file cannot be read, or a folder is no GPU.
        MissingDependencyError: pyarrow is not installed.
    """
    try:
        import pyarrow.lib
        from pyarrow import parquet
    except ImportError:
        raise MissingDependencyError("reading parquet files needs pyarrow", remedy="pip install 'triton-advisor[train]'") from None
    for path in sorted(Path(folder).glob(f"*/{operator}/*/*/{name}.parquet")):
        theirs, _, stack, version = path.relative_to(folder).parts[:4]
        if theirs not in GPUS:
            raise InputError(f"{path.relative_to(folder)}: unknown GPU", theirs, f"one of {', '.join(GPUS)}", "rename or remove the folder")
        if gpus is not None and GPUS[theirs] not in gpus:
            continue
        try:
            table = parquet.read_table(path)
        except (OSError, pyarrow.lib.ArrowInvalid) as error:
            raise InputError(
                f"{path.relative_to(folder)}: cannot be read as parquet ({error})", limit="a parquet file", remedy="download it again"
            ) from None
        columns = {column: table[column].to_numpy() for column in table.column_names}
        if "latency" not in columns:
            raise InputError(f"{path.relative_to(folder)}: no column latency", ", ".join(columns), "latencies in milliseconds", "add it")
        good = np.isfinite(columns["latency"]) & (columns["latency"] > 0)
        positive = {column: values[good] for column, values in columns.items()}
        yield SiliconFile(gpu=GPUS[theirs], stack=stack, version=version, columns=positive, latency_us=positive["latency"] * 1e3)
