"""Whether the latencies of rows were measured: a row says of itself when nothing was run for it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from advisor.rows.rows import Rows

SIMULATED = "simulated"
_FAKE = re.compile(r'"gpu_uuid":\s*"fake"')


def simulated(cells: Mapping[str, str]) -> bool:
    """Whether the cells of a row say that nothing was run for its latency: by `origin`, the timer, or whose fingerprint it has."""
    if SIMULATED in (cells.get(name, "").strip().lower() for name in ("origin", "timer")):
        return True
    mark = cells.get("fingerprint", "")
    return "fake" in mark and _FAKE.search(mark) is not None


def simulated_rows(rows: Rows) -> np.ndarray:
    """Which rows of a file say so, [rows]."""
    names = [name for name in ("origin", "timer", "fingerprint") if name in rows.text]
    if not names:
        return np.zeros(len(rows), dtype=bool)
    told: dict[tuple[str, ...], bool] = {}
    cells = list(zip(*(rows.text[name] for name in names), strict=True))
    for cell in cells:
        if cell not in told:
            told[cell] = simulated(dict(zip(names, cell, strict=True)))
    return np.array([told[each] for each in cells], dtype=bool)
