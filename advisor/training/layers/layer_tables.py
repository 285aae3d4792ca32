"""Which tuned tables ran in place of the stacks' defaults while layers were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned.layers.layer_model import Ran
from advisor.learned.layers.layer_time import layer_time
from advisor.learned.layers.moe_layer import Launched
from advisor.learned.layers.tuned_tables import TunedTables, keys
from advisor.pipelines import Array
from advisor.system import grouped
from advisor.tables.entries import FIELDS

LEAST_GAIN = 0.02
"""Log error by which a table has to explain the rows better than the default, for it to be believed to have run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Layers of one GPU as they were launched, [n] each; `model` is (H, inter, topk, E) as one number."""

    launch: Launched
    latency_us: Array
    model: NDArray[np.int64]

    def __len__(self) -> int:
        return self.latency_us.size

    def take(self, rows: NDArray[Any]) -> Measured:
        """Some of them."""
        launch = self.launch
        loads = replace(launch.loads, **{name: getattr(launch.loads, name)[rows] for name in launch.loads.__slots__})
        some = replace(
            launch,
            layers=launch.layers.take(rows),
            loads=loads,
            kept=launch.kept[rows],
            configuration={name: values[rows] for name, values in launch.configuration.items()},
        )
        return Measured(launch=some, latency_us=self.latency_us[rows], model=self.model[rows])


def choose_launches(parts: Sequence[Measured], tuned: TunedTables, constants: Array) -> tuple[list[Measured], list[Ran]]:
    """The rows with the configuration that ran: of every table that there is, it or the default, whichever explains the rows better; and
    of which layers and versions which of the two ran."""
    out: list[Measured] = []
    ran: list[Ran] = []
    for part in parts:
        layers = part.launch.layers
        configuration = {name: values.copy() for name, values in part.launch.configuration.items()}
        groups = grouped(
            ((key, version), row)
            for row, (key, version) in enumerate(zip(keys(part.launch), layers.version.tolist(), strict=True))
            if key in tuned
        )
        for (key, version), members in groups.items():
            rows = np.array(members)
            some = part.take(rows)
            entry = tuned.running(key, version, some.launch.kept)
            if entry is None:
                continue
            theirs = replace(some.launch, configuration=entry)
            default, other = (
                np.median(np.abs(np.log(layer_time(launch, constants).total / some.latency_us))) for launch in (some.launch, theirs)
            )
            is_tuned = bool(other + LEAST_GAIN < default)
            for name in FIELDS if is_tuned else ():
                configuration[name][rows] = entry[name]
            ran.append(Ran(*key, int(version), is_tuned))
        out.append(replace(part, launch=replace(part.launch, configuration=configuration)))
    return out, ran
