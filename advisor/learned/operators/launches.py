"""Launches of published operators, and what their stages are made of: microseconds at the peak of each pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.learned.library.chip import Chip, missed_share
from advisor.pipelines import Array

TERMS = ("products", "dram", "l2", "chain")
"""What each stage has of each launch: microseconds at the GPU's peak; of a chain thousand clocks."""

HOST = "host"
"""A stage that is none of the GPU's: ten microseconds of the first of its terms where the host launches kernel by kernel."""

Stages = Mapping[str, tuple[Array, Array, Array, Array]]
Least = tuple[Array, Array]
"""Microseconds that the matrix units take at the least, and bytes that have to be moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """Launches of one kind: numbers (`sizes`) and words (`labels`) by the publisher's names of the columns, [n] each."""

    kind: str
    sizes: Mapping[str, Array]
    labels: Mapping[str, NDArray[np.str_]]

    def __len__(self) -> int:
        return next(iter(self.sizes.values())).size

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Operators:
        """Some of them."""
        return Operators(
            kind=self.kind,
            sizes={name: values[rows] for name, values in self.sizes.items()},
            labels={name: values[rows] for name, values in self.labels.items()},
        )


def together(parts: Sequence[Operators]) -> Operators:
    """The launches of all parts, which are of one kind."""
    sizes = {name: np.concatenate([part.sizes[name] for part in parts]) for name in parts[0].sizes}
    return Operators(
        kind=parts[0].kind, sizes=sizes, labels={name: np.concatenate([part.labels[name] for part in parts]) for name in parts[0].labels}
    )


class Kind(NamedTuple):
    """A kind of operators: its publisher's names of operators, columns of sizes (and what an absent one is), of words, its work, and the
    least that any kernel for it has to do."""

    operators: tuple[str, ...]
    sizes: Mapping[str, float]
    labels: tuple[str, ...]
    stages: Callable[[Operators, GpuSpec], Stages]
    least: Callable[[Operators, GpuSpec], Least]


def rate(figures: Chip) -> float:
    """FLOP per microsecond of the whole GPU."""
    return figures.rate * figures.sms * figures.clock


def stage(n: int, products: Array | float = 0.0, dram: Array | float = 0.0, l2: Array | float = 0.0, chain: Array | float = 0.0) -> tuple:
    """What a stage needs of each pipeline, [n] each."""
    return tuple(np.broadcast_to(np.asarray(product, dtype=np.float64), (n,)) for product in (products, dram, l2, chain))


def rounds(programs: Array) -> Array:
    """Rounds of programs over those that run at once, [n]: whole ones while they are few."""
    return np.where(programs < 6, np.ceil(programs), programs + 0.5)


def passes(bytes_moved: Array, figures: Chip, kept: Array | None = None) -> tuple[Array, Array]:
    """Microseconds of bytes in DRAM, as far as the L2 does not keep them, and in the L2."""
    missed = missed_share(bytes_moved if kept is None else kept, 0.8 * figures.l2_bytes)
    return bytes_moved / figures.dram * missed, bytes_moved / figures.l2_rate
