"""Search that needs few trials, and stops when the ceiling is reached.

`space` says what may be tried and what cannot launch, `prior` what is believed of it and what won for other problems, `surrogate` what is
known of every configuration after each measurement, `contest` tells those near the best apart, `sampler` is an Optuna sampler for anyone's
study, `stopping` says when enough is enough and cuts measurements short that already lose, `study` runs it all with workers on one storage.
Where latencies come from is an argument (`backend`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advisor.search.backend import Backend, Measurement, Versus
    from advisor.search.sampler import AdvisorSampler
    from advisor.search.space import SearchSpace
    from advisor.search.stopping import RoundsPruner, StoppingRule
    from advisor.search.study import Decision, Tuner

_HOMES = {
    "AdvisorSampler": "sampler",
    "Backend": "backend",
    "Decision": "study",
    "Measurement": "backend",
    "RoundsPruner": "stopping",
    "SearchSpace": "space",
    "StoppingRule": "stopping",
    "Tuner": "study",
    "Versus": "backend",
}

__all__ = [
    "AdvisorSampler",
    "Backend",
    "Decision",
    "Measurement",
    "RoundsPruner",
    "SearchSpace",
    "StoppingRule",
    "Tuner",
    "Versus",
]


def __getattr__(name: str) -> Any:
    """Loads a name when it is first asked for: half of them import Optuna."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
