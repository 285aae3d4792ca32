"""A problem of the tuning cache as values of the result: its timings, its configurations, and the problem that was recognised.

What a cache holds may be damaged, or another program's: it is read as anything from a file.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from advisor.autotuning.decisions.exchange import Entry
from advisor.autotuning.triton_configs import parameters as flat_parameters
from advisor.pipelines import problem_batch
from advisor.result.schema import FAMILIES, Configuration, Origin, Problem, TunedProblem, TunedTiming
from advisor.tables.names import SIZE_LIMIT

ODD = (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, RecursionError)
"""What a damaged or foreign row can make the parsing raise, besides our own errors."""


def tuned_problem(entry: Entry) -> TunedProblem:
    """The entry as the result has it, before any model looks at it."""
    best, decided = entry.best, entry.decided[0][2] if entry.decided else "undecided"
    origin: Origin = "simulated" if entry.simulated else "measured"
    chosen = next((row for row in entry.rows if row.config == best), None)
    return TunedProblem(
        kernel=entry.key.kernel,
        key=entry.key.key,
        triton=entry.key.triton,
        decided=origin if decided == "measured" else decided,
        configuration=_configuration(best) if best is not None else None,
        latency_us=chosen.us if chosen else None,
        timings=tuple(
            TunedTiming(
                configuration=_configuration(row.config),
                state=row.state,
                us=row.us,
                low_us=row.low_us,
                high_us=row.high_us,
                predicted_us=finite(row.predicted_us),
                reason=row.reason,
            )
            for row in entry.rows
        ),
        origin=origin,
    )


def _configuration(identity: str) -> Configuration:
    """A configuration under the kernel's own names; an identity that is no JSON object is shown as it stands."""
    try:
        found = Configuration.from_flat(flat_parameters(identity))
    except ODD:
        return Configuration(parameters={"configuration": identity})
    plain = {name: value if isinstance(value, (bool, int, str)) else str(value) for name, value in found.parameters.items()}
    return replace(found, parameters=plain)


def finite(value: float | None) -> float | None:
    """A figure; None where it is none."""
    return value if value is not None and math.isfinite(value) else None


def recognised_problem(entry: Entry) -> Problem:
    """The recognised problem, checked as anything read from a file.

    Raises:
        UsageError, KeyError, TypeError, ValueError: It is none.
    """
    text = json.loads(entry.key.problem or "null")
    sizes = {str(name): _size(str(name), value) for name, value in text["sizes"].items()}
    if entry.key.family not in FAMILIES:
        raise ValueError(f"no family {entry.key.family}")
    block = text.get("block_shape")
    found = Problem(
        family=entry.key.family,  # type: ignore[arg-type]
        op=str(text["op"]),
        sizes=sizes,
        dtype=str(text["dtype"]),  # type: ignore[arg-type]
        weight_dtype=text.get("weight_dtype"),
        output_dtype=text.get("output_dtype"),
        block_shape=(int(block[0]), int(block[1])) if block else None,
    )
    problem_batch([found])  # raises where the model knows no such operator or type
    return found


def _size(name: str, value: Any) -> int:
    """A size of a problem, if a tensor can have it.

    Raises:
        ValueError: None can.
    """
    least = 0 if name == "causal" else 1
    if not isinstance(value, (int, float)) or value != value or not least <= value < SIZE_LIMIT or value != int(value):
        raise ValueError(f"size {name} of {value!r}; expected an integer from {least} to {SIZE_LIMIT - 1}")
    return int(value)
