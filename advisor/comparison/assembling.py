"""What every comparison comes down to: what was asked for, and from its subjects the counts, the headline and the gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from advisor import __version__
from advisor.advising.targets import Request
from advisor.comparison import gate as gates
from advisor.comparison.headline import counts, headline, means
from advisor.comparison.settings import Settings
from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.learned.base import Predictor
from advisor.result.comparison_schema import Compared, ComparisonResult, ResourceRow, Subject

DEFAULT_GPUS = ("H100", "H200")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked for besides the sides.

    Raises:
        UsageError: There is no such condition in `fail_on`.
    """

    gpus: tuple[str, ...] = ()  # empty: advisor.toml's, else DEFAULT_GPUS
    fail_on: tuple[str, ...] | None = None  # None: advisor.toml's, else the default conditions
    compiling: bool = True
    launches: tuple[Path, ...] = ()  # records of `advisor record`, besides those that advisor.toml names
    request: Request = field(default_factory=Request)
    command: str = ""
    room: str = ""  # what is said of the room that kernels are compiled in

    def __post_init__(self) -> None:
        gates.conditions(self.fail_on or ())  # here, and not after minutes of comparing

    @property
    def records(self) -> list[tuple[str, Path | bytes]]:
        """The records of launches, each with its name."""
        return [(str(path), path) for path in self.launches]


def chosen_gpus(options: Options, settings: Settings) -> tuple[GpuSpec, ...]:
    """The GPUs to predict and compile for: those asked for, else advisor.toml's.

    Raises:
        UnknownGpuError: One is not described.
    """
    return tuple(load_gpu(name) for name in dict.fromkeys(options.gpus or settings.gpus or DEFAULT_GPUS))


def assemble(
    base: Compared,
    head: Compared,
    subjects: Sequence[Subject],
    options: Options,
    settings: Settings,
    predictor: Predictor,
    gpus: Sequence[GpuSpec],
    *,
    warnings: Sequence[str] = (),
    skipped: Sequence[str] = (),
    unjudged: int = 0,
    renamed: Sequence[str] = (),
) -> ComparisonResult:
    """The result of the subjects: counts, headline and gate."""
    subjects = _told_apart(subjects)
    wanted = options.fail_on if options.fail_on is not None else settings.fail_on
    conditions = gates.conditions(wanted if wanted is not None else gates.DEFAULT)
    measured, static = counts(subjects)
    measured_mean, static_mean = means(subjects)
    groups = [rows for subject in subjects for rows in (subject.measured, subject.static, subject.resources)]
    shown = dict.fromkeys(gpu for rows in groups for row in cast(Sequence[ResourceRow], rows) for gpu in row.gpu.split(", "))
    return ComparisonResult(
        tool_version=__version__,
        command=options.command,
        base=base,
        head=head,
        gpus=tuple(sorted(shown, key=[*(gpu.name for gpu in gpus), *shown].index)) or tuple(gpu.name for gpu in gpus),
        predictor="; ".join(_sources(subjects)) or predictor.name,
        headline=headline(subjects, measured, static),
        measured_counts=measured,
        static_counts=static,
        measured_mean=measured_mean,
        static_mean=static_mean,
        subjects=tuple(subjects),
        gate=gates.gate(subjects, conditions, unjudged=unjudged),
        warnings=tuple(warnings),
        room=options.room,
        skipped=tuple(skipped),
        renamed=tuple(renamed),
    )


def _told_apart(subjects: Sequence[Subject]) -> list[Subject]:
    """The subjects, tables of one name under their paths: SGLang keeps one for each of several versions of Triton."""
    alike = Counter(subject.title for subject in subjects if subject.kind == "table")
    return [replace(subject, title=subject.path) if alike[subject.title] > 1 else subject for subject in subjects]


def _sources(subjects: Sequence[Subject]) -> list[str]:
    """Where the predictions of the rows come from: of a launch far outside what was learned, not from the predictor asked for."""
    sides = [side for subject in subjects for row in subject.static for side in (row.base, row.head, row.default)]
    return list(dict.fromkeys(side.predicted.source for side in sides if side is not None and side.predicted is not None))
