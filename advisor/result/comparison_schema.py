"""The values a comparison of two sides passes around, and the versioned JSON that every surface of it renders.

As `advisor.result.schema` (frozen, slotted, keyword-only, units in names). Static evidence (predictions, compiled resources) and measured
evidence (rounds) stand in rows of their own and are never mixed in one column.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from advisor.result.result_json import check_version, converted, document_text, read_document
from advisor.result.schema import Configuration, Finding, Fingerprint, Latency, Problem, Recommendation
from advisor.system.errors import InputError

COMPARISON_SCHEMA_VERSION = "1.9"
"""1.4: the verdict cannot-tell. 1.5: what of a compiled configuration is another on the head. 1.6: the share of a
pipeline's peak on either side, and whether the bound covers certain work only. 1.7: what a thread
moves beside what it spills, and the bytes behind a predicted change. 1.9: changed functions around kernels."""

BASE_IS_FASTER = "the configuration of the base, no slower than anything else that is known"
"""The reason of advice that goes back to what the base had."""
PREDICTED_TAU = 0.05
"""A predicted change counts from here on; smaller differences are shown, and called unchanged, or within doubt where two
configurations differ and the prediction could not tell them apart. Predictions of one problem share most
of their error. On the published sweeps (default against nearly best configurations, analytical model,
`tests/bench/test_predicted_changes.py`): of the changes that measured at least 10 % faster 82 % are called improved and none
regressed; of those that measured 2 to 10 % faster 2 % are called regressed, of those within 2 % 9 %. Hence it gates only on request."""
SHARED_ERROR = 0.7
"""Of a prediction's error, what two configurations of one problem do not share, at most."""

BEST_OF_LISTS = "best of each list, "
"""Begins the label of a row of which either side has the configuration of its own list that is predicted to be the fastest."""
WRITES = "writes code of kernels"
ELSEWISE = "written in"
"""Stands behind a function around kernels that holds code of kernels as text."""
SAME_CODE = "the same code, launched alike"
"""The reason of a row of which nothing changes for certain."""

StaticVerdict = Literal[
    "failed",
    "predicted-regressed",
    "predicted-improved",
    "predicted-unchanged",
    "within-doubt",
    "cannot-launch",
    "launches-again",
    "never-launches",
    "new",
    "missing",
    "not comparable",
    "cannot-tell",
]
FailureCondition = Literal["failed", "cannot-launch"]
MeasuredVerdict = Literal["regressed", "improved", "unchanged", "inconclusive", "not comparable", "new", "missing", "failed"]

STATIC_WORDS: dict[str, str] = {
    "failed": "failed",
    "cannot-launch": "cannot launch",
    "predicted-regressed": "predicted slower",
    "launches-again": "launches again",
    "predicted-improved": "predicted faster",
    "new": "new",
    "missing": "missing",
    "not comparable": "not comparable",
    "cannot-tell": "cannot tell",
    "never-launches": "never launches",
    "within-doubt": "within doubt",
    "predicted-unchanged": "predicted unchanged",
}
"""Static verdicts in words, in the order in which surfaces list them; the last four tell of no change."""

MEASURED_WORDS = ("failed", "regressed", "inconclusive", "not comparable", "improved", "missing", "new", "unchanged")
"""Measured verdicts in the order in which surfaces list them."""

UNKNOWN = "cannot tell: "
"""Begins the reason of a failure where what runs is not known, so that nothing says that it fails."""
CHANGES = Literal["modified", "added", "removed", "type changed", "compared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resources of one CTA, and how many CTAs fit an SM.

    `compiled`: read from the binary; `estimated`: by the model. None: not known.
    """

    origin: Literal["compiled", "estimated"]
    registers_per_thread: int | None
    spill_bytes: int | None  # per thread
    shared_memory_bytes: int | None
    resident_ctas_per_sm: int | None = None
    resident_warps_per_sm: int | None = None
    limiter: str | None = None
    instruction_mix: dict[str, int] = field(default_factory=dict)  # instructions of the binary by class, matrix instructions by shape too


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticSide:
    """One side of a row, without a GPU. `predicted` None: the configuration cannot launch.

    `predicted` and `resources.resident_ctas_per_sm` are those of all launches that share the configuration: times add up, the
    resources are the first launch's.
    """

    configuration: Configuration | None
    source: str  # "table entry 64", "vLLM's default", "best of 24 configurations"
    predicted: Latency | None
    resources: Resources | None = None
    peak_pipeline: str | None = None  # that of a single launch's which is nearest to its peak
    share_of_peak: float | None = None  # of that peak
    trips_in_turn: int | None = None  # of a single launch that mostly waits in a loop, as in `LaunchReport`


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticRow:
    """One problem (or the launches of one table entry) on one GPU, as predicted.

    `change` is head / base - 1 of the predictions (0.03: head is predicted to take 3 % longer); against `default` where the base
    has no such row. Savings and times are microseconds.
    """

    id: str
    label: str  # "M=64"
    kernel: str
    gpu: str
    problems: tuple[Problem, ...]
    base: StaticSide | None
    head: StaticSide | None  # of a removed table: what the stack runs without it
    default: StaticSide | None  # what runs where there is no table
    compared_with: Literal["base", "default", "nothing"]
    bound: Latency | None
    ceiling: Latency | None
    change: float | None
    verdict: StaticVerdict
    reason: str
    changed: bool  # whether the configuration differs between the sides
    new_findings: tuple[Finding, ...] = ()
    cured_findings: tuple[Finding, ...] = ()
    advice: Recommendation | None = None  # what to try in place of the head's configuration
    line: int | None = None  # of the head's file, where its entry stands
    cause: str = ""  # why a prediction changes, in bytes: "reads x_ptr 3 times → once, 1.57 GB → 524 MB requested"
    bound_of_certain: bool = False  # whether the bound covers certain work only: the rest depends on data that were not specified


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRow:
    """One kernel with one configuration, compiled on both sides for one GPU. `reason`: why a side is missing; `unfinished`: for its
    compiler came to no end, or was given guesses, which says nothing of the kernel."""

    kernel: str
    gpu: str
    label: str  # the configuration
    base: Resources | None
    head: Resources | None
    reason: str = ""
    unfinished: bool = False
    line: int | None = None  # of the head's file, where the compiler refuses it
    work: float = 1.0  # what a thread of the head does, to one of the base: other blocks, grids, warps; 0: not known
    thread_bytes: float | None = None  # what a thread of the head moves in a trip of its longest loop: spills weigh by it
    guessed: tuple[str, ...] = ()  # constants and options that decide what code there is, and were guessed: nothing is certain of it then
    changed: tuple[str, ...] = ()  # of the configuration, "BLOCK 64 → 32", where nothing of that is guessed


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEffect:
    """A relative change, head over base minus 1, its 99 % interval, and the rounds that counted."""

    relative: float
    low: float
    high: float
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """One launch that was run on both sides."""

    id: str
    label: str
    kernel: str
    gpu: str
    problem: Problem
    base: Latency | None
    head: Latency | None
    base_configuration: Configuration | None
    head_configuration: Configuration | None
    effect: MeasuredEffect | None
    tau: float  # a change counts from here on
    verdict: MeasuredVerdict
    reason: str
    bound: Latency | None = None
    ceiling: Latency | None = None
    faults: tuple[str, ...] = ()
    likely_cause: tuple[Finding, ...] = ()  # findings that are new in head
    advice: Recommendation | None = None


def evidence(rows: Iterable[MeasuredRow]) -> str:
    """Origin of the latencies of rows: `measured`, `simulated`, or both."""
    origins = {latency.origin for row in rows for latency in (row.base, row.head) if latency is not None}
    return "measured" if "simulated" not in origins else "measured and simulated" if "measured" in origins else "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something certain to fail in head that did not in base: known without a prediction, and not from a measured row."""

    condition: FailureCondition  # what it triggers
    what: str  # "entry 64"; empty: the file as a whole
    reason: str
    line: int | None = None  # of the head's file


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One thing compared: a table, a kernel, two results, or two files of rows."""

    kind: Literal["table", "kernel", "result", "rows", "file"]
    title: str
    path: str
    change: CHANGES
    static: tuple[StaticRow, ...] = ()
    measured: tuple[MeasuredRow, ...] = ()
    resources: tuple[ResourceRow, ...] = ()
    new_issues: tuple[Finding, ...] = ()  # of the table or file as a whole
    cured_issues: tuple[Finding, ...] = ()
    failures: tuple[Failure, ...] = ()
    configurations_added: tuple[str, ...] = ()
    configurations_removed: tuple[str, ...] = ()
    configurations: tuple[int, int] = (0, 0)  # how many either side tunes over
    notes: tuple[str, ...] = ()  # what was assumed, and what could not be compared and why
    line: int | None = None  # of the head's file, where it begins
    hint: str = ""  # what to say of it in advisor.toml


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One side, as the user named it."""

    label: str  # "main", "a.json"
    revision: str | None = None  # commit id
    fingerprint: Fingerprint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The conditions that make the exit code 1, and whether one of them holds."""

    conditions: tuple[str, ...]
    triggered: tuple[str, ...]  # each a sentence
    failed: bool
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """Everything that a surface of `advisor compare` may show."""

    tool_version: str
    command: str
    base: Compared
    head: Compared
    gpus: tuple[str, ...]
    predictor: str  # where the predictions of the rows come from
    headline: str
    measured_counts: dict[str, int]
    static_counts: dict[str, int]
    measured_mean: float | None  # geometric mean of the measured changes, where there is more than one row; never gates
    static_mean: float | None
    subjects: tuple[Subject, ...]
    gate: Gate
    warnings: tuple[str, ...] = ()
    room: str = ""  # what holds the kernels that were compiled, which may be anyone's; "": none was to be compiled
    skipped: tuple[str, ...] = ()  # changed files that are neither kernel nor table, and why they were left out
    renamed: tuple[str, ...] = ()  # "old.py::a → new.py::b": kernels that are the same under another name or in another file
    around: tuple[str, ...] = ()  # "ops.py::forward": changed functions around kernels, of which little is compared
    schema_version: str = COMPARISON_SCHEMA_VERSION


__all__ = [
    "BASE_IS_FASTER",
    "COMPARISON_SCHEMA_VERSION",
    "ELSEWISE",
    "MEASURED_WORDS",
    "SAME_CODE",
    "STATIC_WORDS",
    "WRITES",
    "Compared",
    "ComparisonResult",
    "Failure",
    "Gate",
    "MeasuredEffect",
    "MeasuredRow",
    "ResourceRow",
    "Resources",
    "StaticRow",
    "StaticSide",
    "Subject",
]


LARGEST_BYTES = 64 * 1024 * 1024


def comparison_to_json(comparison: ComparisonResult) -> str:
    """The comparison as canonical JSON text, ending in a newline."""
    return document_text(comparison, "comparison")


def comparison_from_json(text: str | bytes, *, name: str = "comparison.json") -> ComparisonResult:
    """The comparison that JSON text describes. Unknown keys are ignored.

    Raises:
        InputError: Not a comparison, of an unknown major version, or a field is missing or of the wrong type.
    """
    if len(text) > LARGEST_BYTES:
        raise InputError(f"{name}: too large", f"{len(text):,} bytes", f"at most {LARGEST_BYTES:,} bytes")
    wanted = "a comparison.json of `advisor compare`"
    data = read_document(text, name, wanted)
    if not isinstance(data, dict) or "subjects" not in data or "gate" not in data:
        raise InputError(f"{name}: not a comparison", remedy=f"give {wanted}")
    check_version(data.get("schema_version"), COMPARISON_SCHEMA_VERSION, name=name)
    return converted(data, ComparisonResult, name, reading=True)
