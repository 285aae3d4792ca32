"""triton-advisor: how fast a Triton kernel can be, how far away it is, why, and what to change.

Names are loaded on first use: importing this package loads neither torch nor triton nor optuna.
"""

from __future__ import annotations

import os
import sys


def _leave_the_working_folder() -> None:
    """Import nothing from the working folder, from what it lies in or holds: the command looks at files there that may be a stranger's.

    `python -m` and PYTHONPATH, with an entry that is empty, relative (`src`) or of the checkout, would have their `json.py` imported in the
    place of Python's. A program that imports this package is left alone, and so is a checkout of it.
    """
    named = sys.argv[:1] == ["-m"] or os.path.basename(sys.argv[0] if sys.argv else "") in ("advisor", "advisor.exe")  # noqa: PTH119
    here, own = os.path.realpath(os.getcwd()), os.path.realpath(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH109, PTH120
    if not named or own == here:
        return
    strangers = set()
    for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        place = os.path.realpath(entry)
        around = any(f"{inner}{os.sep}".startswith(f"{outer}{os.sep}") for inner, outer in ((here, place), (place, here)))
        if around or not os.path.isabs(entry):  # noqa: PTH117
            strangers.add(place)
    strangers = strangers - {own} | {here}
    sys.path[:] = [each for each in sys.path if os.path.isabs(each) and os.path.realpath(each) not in strangers]  # noqa: PTH117


_leave_the_working_folder()

from importlib import import_module  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

if TYPE_CHECKING:
    from advisor.advising.live import record as record
    from advisor.advising.public import advise as advise
    from advisor.autotuning.decorator import autotune as autotune
    from advisor.autotuning.decorator import best_config as best_config
    from advisor.autotuning.decorator import warmup as warmup
    from advisor.autotuning.installing import install as install
    from advisor.autotuning.installing import uninstall as uninstall
    from advisor.comparison.sides import compare as compare
    from advisor.gpus.hardware import list_gpus as list_gpus
    from advisor.gpus.hardware import load_gpu as load_gpu
    from advisor.learned import load_predictor as load_predictor
    from advisor.result.schema import Problem as Problem
    from advisor.result.schema import Result as Result
    from advisor.search.sampler import AdvisorSampler as AdvisorSampler
    from advisor.system.errors import AdvisorError as AdvisorError
    from advisor.tuning import tune as tune

__version__ = "0.1.0"

_HOMES = {
    "AdvisorError": "system.errors",
    "AdvisorSampler": "search.sampler",
    "Problem": "result.schema",
    "Result": "result.schema",
    "advise": "advising.public",
    "autotune": "autotuning.decorator",
    "best_config": "autotuning.decorator",
    "compare": "comparison.sides",
    "install": "autotuning.installing",
    "list_gpus": "gpus.hardware",
    "load_gpu": "gpus.hardware",
    "load_predictor": "learned",
    "record": "advising.live",
    "tune": "tuning",
    "uninstall": "autotuning.installing",
    "warmup": "autotuning.decorator",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'advisor' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
