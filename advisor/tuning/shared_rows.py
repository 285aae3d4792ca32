"""w13 and w2 with a table each (`tables.down_tables`): which of them a run tunes, and what the other's table decides for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from advisor.advising.targets import PlannedLaunch, Target
from advisor.result.schema import Configuration
from advisor.search.prior import Prior
from advisor.search.space import SearchSpace
from advisor.system.errors import NothingMatchedError
from advisor.tables.down_tables import SHARED
from advisor.tables.tables import down_configuration


def of_own_table(target: Target, op: str | None) -> tuple[Target, tuple[str, ...]]:
    """The launches that run with the target's own entries, and a sentence on the others: those are tuned by naming their table.

    Args:
        target: What is tuned.
        op: The operator that was asked for; None: all of them.

    Raises:
        NothingMatchedError: There are none.
    """
    others = [launch for launch in target.launches if launch.table is not None]
    if not others or others[0].table is None:
        return target, ()
    name, ops = others[0].table.name.file_name(), "+".join(dict.fromkeys(launch.problem.op for launch in others))
    kept = tuple(launch for launch in target.launches if launch.table is None)
    if not kept:
        raise NothingMatchedError(
            f"{target.title}: nothing of this table runs for the operator that was asked for",
            op,
            f"an operator other than {ops}, which runs with the entries of {name}",
            f"tune that table: `advisor tune {name}`, by the path beside this one",
        )
    said = f"{ops} runs with the entries of {name}: left out here, and tuned by naming that table"
    if op is None and any(launch.fixed for launch in kept):
        said += f"; {'+'.join(dict.fromkeys(launch.problem.op for launch in kept))} keeps its {SHARED}, which {ops} runs with as well "
        said += "(without that table beside it, a copy of this one is tuned for both, and over all of them)"
    return replace(target, launches=kept), (said,) if op is None else ()


def with_fixed(configuration: Configuration, launch: PlannedLaunch) -> Configuration:
    """An entry of a `_down` table as w2 is launched with it: in what w13's entry decides, as the launch runs today."""
    if not launch.fixed or launch.configuration is None:
        return configuration
    return down_configuration(launch.configuration, configuration)


def may_be_tried(space: SearchSpace, launch: PlannedLaunch) -> NDArray[np.bool_]:
    """Which configurations leave what another launch's entry decides or needs too as it is today, [c].

    The other launch is not measured here, so that nothing is known of what another value would do to it; and w2's is overridden.
    """
    today = launch.configuration
    return space.matching({} if today is None else {name: today.parameters[name] for name in launch.fixed})


def restricted(prior: Prior, allowed: NDArray[np.bool_], why: str) -> Prior:
    """The prior of a decision for which only the `allowed` configurations [c] may be tried."""
    out = int((np.isfinite(prior.mean) & ~allowed).sum())
    return replace(prior, mean=np.where(allowed, prior.mean, np.inf), stopped_by={**prior.stopped_by, why: out}) if out else prior
