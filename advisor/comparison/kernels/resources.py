"""Both versions of a kernel, compiled for one launch where triton is at hand: what the compiler made of them, and what that is predicted
to take. They are built from parsed source, never from the file itself.

What nothing says of the launch (types of arguments, flags) is guessed once, for both, so that a difference is the source's.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from advisor.comparison.kernels.attempts import (
    MOST_SHOWN,
    Attempt,
    Compiling,
    Run,
    alike_configurations,
    compiled_pair,
    flags_of_one,
    with_other_flags,
)
from advisor.comparison.kernels.beside import in_its_place, never_launched
from advisor.comparison.kernels.changed_launches import changed_launches
from advisor.comparison.kernels.kernel_digest import converts_otherwise
from advisor.comparison.kernels.kernel_version import KernelVersion, constant_renamed
from advisor.comparison.kernels.launch_digest import LONGEST
from advisor.comparison.kernels.lists import best_of_lists, of_added, passed_over
from advisor.comparison.kernels.one_launch import POINTERS, both_launches, following
from advisor.comparison.kernels.time_verdict import (
    MOST_NAMED,
    by_assembly,
    guessed_code,
    machine_code,
    stores,
    time_verdict,
    without_time,
)
from advisor.comparison.kernels.touched import Touched, of_stores, touched
from advisor.comparison.settings import KernelSettings
from advisor.compiled.compiler.compile import version as triton_version
from advisor.compiled.compiler.failures import PLACE
from advisor.compiled.compiler.kernel import OPTION_NAMES, Target
from advisor.compiled.compiler.pool import Pool, borrowed
from advisor.compiled.guesses.assumptions import shown_value
from advisor.compiled.guesses.inference import guesses
from advisor.compiled.guesses.parameter_guesses import LEAST_DEPTH
from advisor.compiled.guesses.usage import row_sizes_through, usage_of
from advisor.compiled.launches.launch import JUDGED, KernelLaunch, author_file
from advisor.compiled.launches.provenance import NO_DECISION, TOLD, named
from advisor.compiled.launches.target import without_followers
from advisor.gpus.hardware import GpuSpec
from advisor.python_source.launch_sites import names_around_launches, types_called_with
from advisor.rendering.figures import shortened
from advisor.result.comparison_schema import BEST_OF_LISTS, Failure, ResourceRow, StaticRow
from advisor.result.schema import Configuration, Problem
from advisor.rows.launches import RecordedLaunch
from advisor.system import grouped
from advisor.system.errors import AdvisorError, agree
from advisor.system.resources import phrase

GUESSES_MATTER = frozenset({"failed", "unsure"})
"""Kinds of `CompileError` that other arguments may mend."""
TOO_FLAT = "and K >= 16"
"""What Triton says of operands of `tl.dot` that are too small (`semantic.py`, Triton 3.6 and 3.9)."""
ONE_GUESS = (
    "not compared: its launch, which changed or follows from code that did, passes what does not follow from the file, and both sides are "
    "given the same"
)
UNSEEN = "the compiler leaves out what changed"
_LACKING = re.compile(
    r"cannot import name '(\w+)' from 'rebuilt_|(?:Feature|Instruction) '([^']+)' not supported on \.target '(\w+)'"
    r"|Unsupported function referenced: <function (\w+)|Triton \S+ has no ([\w.]+\._?experimental_\w+)"
)
"""What Python says of an import that Triton lacks (a file may do without it: `except ImportError`), ptxas of what a GPU lacks, Triton of
a function of its own that its kernels do not call, and what is said of experiments of other Tritons: no guess makes up for them."""
_OF_TWO = re.compile(r"\b(\w+)=\w+ (?://|[-+*]) \w+(?=,|$| →)")
"""What a launch passes that is worked out from two names, `seq_len=tokens // batch`, in the words for a launch that changed."""
_PLACES = re.compile(r'loc\("([^"]*)":(\d+):\d+\)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What compiling both versions says of a change."""

    rows: tuple[ResourceRow, ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    predicted: tuple[StaticRow, ...] = ()
    sizes: Mapping[str, Any] = field(default_factory=dict)  # typical ones that it was judged at, and values that decide and were guessed
    best_of_lists: bool = False  # whether times are of the best configuration of each version's list


def judged(
    name: str,
    old: KernelVersion | None,
    new: KernelVersion | None,
    best: Mapping[str, Run],
    gpus: Sequence[GpuSpec],
    compiling: Compiling,
    element: str | None,
    problem: Problem | None = None,
    settings: KernelSettings | None = None,
    *,
    predicting: bool = False,
    recorded: RecordedLaunch | None = None,
    same: bool = False,
    called_before: Mapping[str, str] | None = None,
) -> Judged:
    """One row per compile target and configuration among the GPUs, why there are none where there are none, what is certain to fail of
    what did not before, and what the launch is predicted to take.

    `best` has what each GPU would run its first problem with, by name; `element` and `problem` are what it is compiled for where nothing
    is known of that; `settings` is what advisor.toml says of the kernel; `same`: the kernel's body and its helpers are on both
    sides; `called_before`: what kernels of its file were called before, by their names now.
    """
    if not compiling.wanted or ((old is None or new is None) and not best):
        return Judged()  # on one side only, and with nothing to say what it is launched with: no figure would mean anything
    try:
        triton_version()
    except AdvisorError as error:
        return Judged(notes=(f"Not compiled: {error}",))
    relaunched = changed_launches(old, new) if old is not None and new is not None else ()
    former, configuration = alike_configurations(old, new)
    unknown = Run(configuration=configuration, problem=problem, element=element, former=former, recorded=recorded)
    alike: dict[tuple[Any, ...], tuple[Run, list[GpuSpec]]] = {}
    notes: list[str] = []
    for gpu in gpus:
        run, version = best.get(gpu.name, unknown), new or old
        if version is not None and (where := never_launched(version, gpu)):
            notes.append(f"Not compiled for {gpu.name}, where it is not launched: its launches are under {shortened(where, 2 * LONGEST)}.")
        else:
            alike.setdefault((gpu.triton_target, repr((run.former, run.configuration))), (run, []))[1].append(gpu)
    wanted: list[tuple[Run, list[GpuSpec]]] = []
    needed = (old is not None) + (new is not None)
    for run, group in alike.values():
        if spent := compiling.spent(needed):
            notes.append(f"Not compiled for {', '.join(gpu.name for gpu in group)}: {spent}.")
        else:
            compiling.left -= needed
            wanted.append((run, group))
    rows: list[ResourceRow] = []
    predicted: list[StaticRow] = []
    by_lists = False
    sizes: dict[str, Any] = {}
    lines: dict[str, int | None] = {}
    refusals: dict[str, list[str]] = {}  # the GPUs for which a head is certainly refused, by why: most errors are every target's
    with borrowed(compiling.shared) as workers, ThreadPoolExecutor(2) as threads:
        futures = [
            threads.submit(_compile, old, new, run, group[0], settings or KernelSettings(), workers, compiling) for run, group in wanted
        ]
        compiled = [future.result() for future in futures]  # all, before more of the budget is used
        for (run, group), (base, head, remarks) in zip(wanted, compiled, strict=True):
            compiled_by, timed, best_run = (group[0], settings or KernelSettings(), workers), (base, head), None
            devices = ", ".join(gpu.name for gpu in group)
            unseen = next((note for note in remarks if UNSEEN in note), "")
            reason = unseen or _reason(base, head)
            refused = [side for side in (base, head) if side.refused is not None]
            by_guess = all(side.kind in GUESSES_MATTER and not side.certain and not _LACKING.search(str(side.refused)) for side in refused)
            if by_guess and not _tuned_alone(run, old, new):
                sizes |= {**base.sizes, **head.sizes}
                for side in refused:
                    sizes |= {item: "None" if value is None else value for item, value in side.invented.items()}
            if base.resources is None and head.resources is None and head.kind != "interfered":
                notes.append(f"Not compiled for {group[0].name}: {reason}")
                continue
            if head.kind == "interfered" or (base.resources is not None and head.refused is not None and head.certain):
                why = str(head.refused).replace(f" for {Target.of(group[0]).name}", "", 1)
                refusals.setdefault(why, []).extend(gpu.name for gpu in group)
                lines[why] = refused_line(new, head.refused)
            if predicting and not remarks and (best_run := best_of_lists(old, new, run, *compiled_by, threads, compiling)) is not None:
                timed, by_lists = compiled_pair(old, new, best_run, *compiled_by, {}), True
                labels = [item.label() for item in (best_run.former, best_run.configuration) if item is not None]
                notes.append(phrase("answer.best_of_lists", base=labels[0], head=labels[1], gpus=devices))
            fits = head.resources is None or head.resources.resident_ctas_per_sm != 0
            if run.former is not None and run.configuration is not None and new is not None and len(new.configurations) > 1 and not fits:
                notes += passed_over(run.configuration.label(), head, group)
                if best_run is None:
                    continue
            if run.former is not None and best_run is not None:
                run, (base, head) = best_run, timed
            label, differing = _label(run, old, new, base, head)
            guessed_alone = _guessed_of_one(old, new, base, head)
            notes += [note for note in remarks if note != unseen and not guessed_alone]
            empty = [word for word, item in (("base", base), ("head", head)) if item.compiled is not None and not stores(item)]
            if empty and old is not None and new is not None:
                flags = " ".join(f"{name}{value}" for side in (base, head) for name, value in side.guessed.items() if "*" not in value)
                reason = f"nothing is stored in the {' and the '.join(empty)}" + (f" with guessed {flags}" if flags else "")
                if all(stores(item) or by_assembly(item) for item in (base, head)):
                    by = agree(len(empty), "stores", "store")
                    reason = f"the {' and the '.join(empty)} {by} by inline assembly alone, which is not counted"
            verdicts = (
                time_verdict(name, *timed, gpu, notes, counted=compiling.counted, unseen=bool(unseen), same=same, relaunched=relaunched)
                for gpu in (group if predicting else ())
            )
            predictions = [item for item in verdicts if item is not None]
            what = BEST_OF_LISTS if best_run is not None else ""
            predicted += [replace(item.row, label=what + item.row.label) for item in predictions]
            without = {str(value)[:1] for item in predictions for value in item.lacking.values()}
            if _types_decide(old, new, base, head):
                notes += _assumed_types(base, head, "same_for_types")
            elif "*" in without or any(item.row.change for item in predictions):
                notes += _assumed_types(base, head, "types")
            others = _other_sizes(old, new, base, head) or _tuned_alone(run, old, new) or _one_estimated(base, head)
            one_guess = ONE_GUESS if same and any(item.one_guess for item in predictions) else ""
            if incomparable := others or guessed_alone or one_guess:
                empty, reason = ["base", "head"], incomparable
            estimated = grouped(
                (f"{int(item.compiled.metadata[JUDGED]):,}", word)
                for word, item in (("base", base), ("head", head))
                if not incomparable and item.resources is not None and item.resources.origin == "estimated" and item.compiled is not None
            )
            for elements, sides in estimated.items():
                which = f"The {' and the '.join(sides)} {agree(len(sides), 'is', 'are')}"
                notes.append(phrase("answer.estimated", which=which, gpus=devices, elements=elements))
            instead = in_its_place(old, new, group[0], (settings or KernelSettings()).args, called_before or {}) if old and new else ""
            if untimed := others or (instead and f"because {instead}"):
                predicted = [without_time(row, "cannot-tell", untimed) if row.gpu in devices.split(", ") else row for row in predicted]
            rows.append(
                ResourceRow(
                    kernel=name,
                    gpu=devices,
                    label=label,
                    changed=differing,
                    base=base.resources if not empty else None,
                    head=head.resources if not empty else None,
                    reason=reason,
                    unfinished=any(side.refused is not None and not side.certain for side in (base, head)),
                    line=refused_line(new, head.refused),
                    work=next((item.work for item in predictions), 1.0) if timed == (base, head) else 1.0,
                    thread_bytes=next((item.thread_bytes for item in predictions), None),
                    guessed=(*guessed_code(base, head), *_folded(base, head)),
                )
            )
            for entry in predictions:  # of what a changed launch passes no one value is both sides'
                lacking = entry.lacking if not _tuned_alone(run, old, new) else {}
                sizes = {name: value for name, value in {**sizes, **lacking}.items() if name not in entry.passed}
        notes += of_added(old, new, wanted, settings or KernelSettings(), workers, threads, compiling, same=same)
    if sizes and old is not None and new is not None:
        sizes = _to_say(sizes, (old, new), wanted[0][0], gpus[0], settings or KernelSettings())
    failures = (
        Failure(condition="failed", what=f"on {', '.join(dict.fromkeys(names))}", reason=why, line=lines[why])
        for why, names in refusals.items()
    )
    return Judged(
        rows=tuple(rows),
        notes=tuple(dict.fromkeys(notes)),
        failures=tuple(failures),
        predicted=tuple(predicted),
        sizes=sizes,
        best_of_lists=by_lists,
    )


def _to_say(
    sizes: Mapping[str, Any], versions: tuple[KernelVersion, KernelVersion], run: Run, gpu: GpuSpec, settings: KernelSettings
) -> dict[str, Any]:
    """Values that are not known, without the constants that both launches work out once the others are."""
    listed = (run.former or run.configuration, run.configuration)

    def made(others: Mapping[str, Any]) -> list[KernelLaunch]:
        numbers = {name: value for name, value in others.items() if isinstance(value, int | float)}
        given = replace(settings, args={**numbers, **settings.args})
        return [
            side.launch for side in both_launches(versions, listed, gpu, run.element, run.problem, given, run.recorded) if side is not None
        ]

    return without_followers(sizes, versions[0].function.constants | versions[1].function.constants, made)


def _other_sizes(old: KernelVersion | None, new: KernelVersion | None, base: Attempt, head: Attempt) -> str:
    """That each version was compiled for sizes that the other does not take, in words: nothing says that they are one problem.

    "": they were not, or the sizes are the same under other names, or names of both launchers.
    """
    if old is None or new is None or not base.sizes or not head.sizes:
        return ""
    taken = [{*version.function.names} | names_around_launches(version.source, version.function.name) for version in (old, new)]
    sides = [
        {name: size for name, size in attempt.sizes.items() if name in version.function.names and name not in others}
        for attempt, version, others in zip((base, head), (old, new), reversed(taken), strict=True)
    ]
    if not all(sides) or {*sides[0].values()} == {*sides[1].values()}:
        return ""
    texts = [" ".join(f"{name}={size}" for name, size in side.items()) for side in sides]
    return f"with typical sizes of {texts[0]} in the base and of {texts[1]} in the head, which may be different problems"


def _guessed_of_one(old: KernelVersion | None, new: KernelVersion | None, base: Attempt, head: Attempt) -> str:
    """That a number or a text which one version alone takes is guessed, and decides its code, in words; flags are off where nothing says
    so."""
    if old is None or new is None or base.compiled is None or head.compiled is None:
        return ""
    names = [*guessed_code(base, head)]
    values: dict[str, Any] = {}
    for side in (base, head):  # a block that covers a size of which nothing is known is as guessed as that
        assert side.launch is not None and side.guess is not None
        rows = row_sizes_through(side.launch.source, side.launch.source.kernel(side.launch.kernel))
        known = {*side.launch.given.scalars, *side.launch.given.constexprs}
        settled = {
            name for name in side.guess.settled if type(side.guess.constexprs.get(name)) is float
        }  # no size: the other has a literal
        names += sorted(settled | {name for name in side.guess.settled if rows.get(name) and known.isdisjoint(rows[name])})
        values |= side.guess.constexprs
    both = {parameter.name for parameter in old.function.parameters} & {parameter.name for parameter in new.function.parameters}
    worked_out = {name for item in changed_launches(old, new) for name in _OF_TWO.findall(item.words)}  # of typical ones it is none
    names += sorted(worked_out & {*base.sizes, *head.sizes})
    alone = [name for name in dict.fromkeys(names) if type(values.get(name)) in (int, float, str) and name not in both]
    return f"not compared, for it depends on a guess of {named(alone)}, which one side alone takes" if alone else ""


def _folded(base: Attempt, head: Attempt) -> list[str]:
    """Arguments that are constants of one version alone, and whose value is guessed: there the compiler works with it, as with none."""
    constants = [side.launch.source.kernel(side.launch.kernel).constants for side in (base, head) if side.launch is not None]
    alone = constants[0] ^ constants[1] if len(constants) == 2 else set()
    return sorted({name for side in (base, head) if side.guess is not None for name in side.guess.settled} & alone)


def _reason(base: Attempt, head: Attempt) -> str:
    """Why versions were not compiled, once where both are refused alike; "": they were."""
    refused = [str(getattr(side.refused, "got", None) or side.refused) for side in (base, head) if side.refused]
    texts = [re.sub(rf"{PLACE.pattern}|\d+", "", text) for text in refused]
    if len(texts) == 2 and (texts[0] == texts[1] or _why_refused(base) == _why_refused(head)):
        return f"{'base and head' if refused[0] == refused[1] else 'head, and base alike'}: {_why_refused(head)}"
    return "; ".join(f"{word}: {_why_refused(item)}" for word, item in (("base", base), ("head", head)) if item.refused)


def _tuned_alone(run: Run, old: KernelVersion | None, new: KernelVersion | None) -> str:
    """That a version tunes constants which the other does not, in words: no configuration of the one is like one of the other; ""."""
    sides = [item.parameters for item in (run.former, run.configuration) if item is not None]
    names = sorted(sides[0].keys() ^ sides[1].keys()) if len(sides) == 2 else []
    if (called := constant_renamed(old, new)) and names == sorted(called) and sides[0][called[0]] == sides[1][called[1]]:
        return ""  # the same value by another name
    return (
        f"where {named(names)} {agree(len(names), 'is', 'are')} tuned on one side alone: nothing says which values compare" if names else ""
    )


def _one_estimated(base: Attempt, head: Attempt) -> str:
    """That one side alone was compiled, in words: of the other, whose block Triton may take minutes for, registers are an estimate; ""."""
    origins_ = [item.resources.origin if item.resources is not None else "" for item in (base, head)]
    if set(origins_) != {"compiled", "estimated"}:
        return ""
    side, blamed = ("base", base) if origins_[0] == "estimated" else ("head", head)
    assert blamed.compiled is not None
    elements = f"{int(blamed.compiled.metadata[JUDGED]):,}"
    return f"where the {side} was not compiled, for its block of {elements} elements exceeds the registers and takes Triton minutes"


def _types_decide(old: KernelVersion | None, new: KernelVersion | None, base: Attempt, head: Attempt) -> bool:
    """Whether two versions came out as the same code, and differ in what they convert, so that it may be the same for these types alone."""
    if old is None or new is None or base.compiled is None or machine_code(base) != machine_code(head):
        return False
    return converts_otherwise(old.function.node, new.function.node)


def _assumed_types(base: Attempt, head: Attempt, sentence: str) -> list[str]:
    """The tensors whose types a time rests on, or that both are the same code, and nothing says, in a sentence; none where all are said."""
    typed = {name for side in (base, head) if side.launch is not None for name in types_called_with(side.launch.source, side.launch.kernel)}
    invented = {name: str(kind) for name, kind in {**base.invented, **head.invented}.items() if name not in typed}
    kinds = grouped((kind.lstrip("*"), name) for name, kind in invented.items() if kind.startswith(POINTERS))
    return [phrase(f"answer.{sentence}", which="; ".join(f"{', '.join(names)}: {kind}" for kind, names in kinds.items()))] if kinds else []


def _why_refused(attempt: Attempt) -> str:
    """Why a version was not compiled: for certain, or with what was guessed. What no compiler has seen was not refused for a guess."""
    guessed = [f"{name}{value}" for name, value in attempt.guessed.items()]
    got = getattr(attempt.refused, "got", None)
    if not attempt.kind and attempt.refused is not None:
        return f"{attempt.refused.what}: {got}" if got else attempt.refused.what
    if lacking := _LACKING.search(str(got)):
        absent = lacking[1] or lacking[4] or lacking[5]
        uncalled = ", or lets no kernel call it" if lacking[4] else ""
        return f"the Triton at hand lacks {absent}{uncalled}" if absent else f"{lacking[3]} has no {lacking[2]}"
    if attempt.certain and guessed and got and attempt.refused is not None:
        return f"{attempt.refused.what}: {got}"  # whatever was guessed
    if attempt.certain or attempt.kind not in GUESSES_MATTER or not guessed:
        return str(attempt.refused)
    more = f" and {len(guessed) - MOST_NAMED} more" if len(guessed) > MOST_NAMED else ""
    return f"could not be compiled with guessed {', '.join(guessed[:MOST_NAMED])}{more}{f': {got}' if got else ''}"


def refused_line(version: KernelVersion | None, error: AdvisorError | None) -> int | None:
    """The line of a version's file at which the compiler refuses it; None: it does not, or elsewhere."""
    matched = PLACE.search(str(getattr(error, "got", "")))
    if version is None or matched is None:
        return None
    nodes = version.source.definitions.get(matched[2], ())
    return nodes[-1].lineno + int(matched[1]) - 1 if nodes else None


def _label(run: Run, old: KernelVersion | None, new: KernelVersion | None, base: Attempt, head: Attempt) -> tuple[str, tuple[str, ...]]:
    """With what either side was compiled: its configuration, or else what its launch passes; and what of that is a guess. Beside it what
    of the configuration, or of what is passed, is another on the head: `BLOCK 64 → 32`."""
    guesses = [side.guess for side in (base, head) if side.guess is not None]
    constants = {name for guess in guesses for name in guess.constexprs}
    invented = dict.fromkeys(name for side in (base, head) for name in side.guessed if name in constants)
    sides = [{name: value for name, value in side.launched.items() if name not in invented} for side in (base, head)]
    one_sided = {*sides[0]} ^ {*sides[1]} if old is not None and new is not None else set()
    for side, passed in zip((base, head), sides, strict=True):  # the other has the default of what one alone passes
        passed |= {"num_warps": side.compiled.num_warps} if side.compiled is not None and "num_warps" in one_sided else {}
    if run.configuration is not None and (run.problem is not None or not any(sides)):
        sides = [item.flat() for item in (run.former or run.configuration, run.configuration)]
    sizes = {*base.sizes, *head.sizes, *(name for guess in guesses for name in guess.settled)}
    launches = [side.launch for side in (base, head) if side.launch is not None]
    typical_options = {name for launch in launches for name in OPTION_NAMES if launch.origins.get(name) == "typical"}
    invariant = sizes | typical_options - one_sided  # what follows from them may be worked out otherwise on the head
    sizes |= {name for launch in launches for name, origin in launch.origins.items() if origin == "typical"}
    sizes |= {name for version in (old, new) if version is not None for name in following(version, sizes)}
    names = dict.fromkeys([*sides[0], *sides[1]])
    taken = [name for name in names if name in OPTION_NAMES and any(launch.origins.get(name) in NO_DECISION for launch in launches)]
    followers = {name for version in (old, new) if version is not None for name in following(version, {*invented})} - sizes - {*taken}
    texts = [_sided(name, sides) for name in names if name not in sizes and name not in taken and name not in followers]
    typical = [_sided(name, sides) for name in names if name in sizes and name not in taken]
    shown = [_sided(name, sides) for name in taken]  # as the other side passes them
    shown += [_sided(name, [guess.constexprs for guess in guesses]) for name in invented]
    shown += [_sided(name, sides) for name in names if name in followers]
    guessed = f"{_fitting(shown, len(taken) + MOST_SHOWN)} (guessed)" if shown else ""
    assumed = f"{_fitting(typical)} (typical)" if typical else ""
    others = [name for name in names if name not in invariant and all(name in side for side in sides) and sides[0][name] != sides[1][name]]
    assumed_of = dict.fromkeys(sizes - invariant, " at typical sizes")
    differing = tuple(f"{name} {shown_value(sides[0][name])} → {shown_value(sides[1][name])}{assumed_of.get(name, '')}" for name in others)
    return ", ".join(filter(None, (_fitting(texts), assumed, guessed))) or "no constants", differing


LONGEST_PART = 120
"""Characters of a label's constants of one kind."""


def _fitting(texts: Sequence[str], most: int = 2**20) -> str:
    """Constants, as many as a label holds, of too many those that differ first, and how many more there are."""
    if sum(map(len, texts)) + len(texts) > LONGEST_PART:
        texts = sorted(texts, key=lambda text: " → " not in text)
    lengths = itertools.accumulate(len(text) + 1 for text in texts)
    count = min(max(sum(length <= LONGEST_PART for length in lengths), 1), most)
    return " ".join([*texts[:count], *([f"{len(texts) - count} more"] if len(texts) > count else [])])


def _sided(name: str, sides: Sequence[Mapping[str, Any]]) -> str:
    """A constant as it is on both sides, where both have it."""
    return f"{name}={' → '.join(dict.fromkeys(shown_value(side[name]) for side in sides if name in side))}"


MOST_ROUNDS = 2
"""Of asking which flags let the compiler see what changed: some do so within what others let it see."""


def _compile(
    old: KernelVersion | None,
    new: KernelVersion | None,
    run: Run,
    gpu: GpuSpec,
    settings: KernelSettings,
    workers: Pool,
    compiling: Compiling,
) -> tuple[Attempt, Attempt, list[str]]:
    """Both versions at one launch, and what is to be said of that.

    Where they differ, and that does not show in what the compiler made of them, or nothing is stored, once more with the flags that the
    changed lines stand under.
    """
    base, head = compiled_pair(old, new, run, gpu, settings, workers, {})
    if larger := _for_products(base, head):
        compiling.left -= 2
        base, head = compiled_pair(old, new, run, gpu, settings, workers, larger)
    if old is None or new is None or base.compiled is None or head.compiled is None:
        return base, head, []
    if (wider := _with_more_warps(old, new, run, base, head)) is not None and not compiling.spent(2):
        compiling.left -= 2
        pair = compiled_pair(old, new, replace(run, configuration=wider), gpu, settings, workers, {})
        if all(side.resources is not None and not _spills(side) for side in pair):
            (base, head), run = pair, replace(run, configuration=wider)
    change, notes = touched(old, new), []
    chosen: dict[str, bool] = {}
    if (flags_alone := flags_of_one(old, new, base, head)) and not compiling.spent(2):
        compiling.left -= 2
        pair = compiled_pair(old, new, run, gpu, settings, workers, flags_alone)
        if pair[0].compiled is not None and pair[1].compiled is not None:
            nearer = _apart(pair) < _apart((base, head))  # a flag put around what was there is on, one of something new is off
            reverse, chosen = ((base, head), flags_alone) if nearer else (pair, {name: not value for name, value in flags_alone.items()})
            notes += with_other_flags(chosen, new, reverse)
            base, head = pair if nearer else (base, head)
    assert head.launch is not None
    usage = usage_of(head.launch.source, head.launch.source.kernel(head.launch.kernel))
    blocks = {name for name, use in usage.items() if use.extent}  # are no flags: of 1, as `if BLOCK > 0` would have it, nothing compiles
    before, empty = {**base.launched, **head.launched}, not stores(base) or not stores(head)
    sure = TOLD if new.launching else TOLD - {"literal"}  # a default, where no launch says more
    origins = {name for side in (base, head) if side.launch is not None for name, whence in side.launch.origins.items() if whence in sure}
    flags: dict[str, Any] = dict(chosen)
    for _ in range(MOST_ROUNDS):  # flags may be asked for within what others let the compiler see
        known = {**base.launched, **head.launched, **flags}
        alike = machine_code(base) == machine_code(head) or _hidden(base, head, change)
        wanted = {**(change.flags(known) if alike or empty else {}), **(of_stores(old, new) if empty else {})}
        wanted = {**{name: value for name, value in wanted.items() if name not in origins | blocks}, **flags}
        fresh = {name: value for name, value in wanted.items() if known.get(name) != value and name not in flags}
        if not fresh or not change.lines or compiling.spent(2):
            break
        compiling.left -= 2
        pair = compiled_pair(old, new, run, gpu, settings, workers, wanted)
        if pair[0].compiled is None or pair[1].compiled is None:
            other = " ".join(f"{name}={value}" for name, value in fresh.items())
            notes.append(f"With {other}, under which the changed lines stand, it was not compiled: {_reason(*pair)}")
            break
        (base, head), flags = pair, wanted
    other = " ".join(f"{name}={value}" for name, value in flags.items() if before.get(name) != value and name not in chosen)
    if other and (empty or machine_code(base) != machine_code(head)):
        notes.append(f"Compiled with {other}, for {'something to be stored' if empty else 'the change to show'}.")
    wide = {name: "*i32" for name, kind in head.invented.items() if kind == "*i64"}
    if wide and change.lines and machine_code(base) == machine_code(head) and not compiling.spent(2):  # a cast to int64 is none of one
        compiling.left -= 2
        pair = compiled_pair(old, new, run, gpu, replace(settings, types={**wide, **settings.types}), workers, flags)
        if all(side.compiled is not None for side in pair) and machine_code(pair[0]) != machine_code(pair[1]):
            base, head = pair
            types = ", ".join(f"{name}: {kind}" for name, kind in wide.items())
            notes.append(f"Compiled with {types}; with *i64 both versions are the same code.")
    if machine_code(base) == machine_code(head) and change.lines and not chosen and not _seen(head, change):
        lines = ", ".join(map(str, sorted(change.lines)[:MOST_SHOWN]))
        how = "With what is guessed" if guessed_code(base, head) else "As it is launched here"
        notes.append(f"{how} {UNSEEN} (line {lines}): it is not compared.")
    return base, head, notes


def _apart(pair: tuple[Attempt, Attempt]) -> int:
    """By how much the code of one version is longer than that of the other."""
    return abs(len(machine_code(pair[0])) - len(machine_code(pair[1])))


SPILLS_TOO_MUCH = 256
"""Bytes per thread: of two configurations of a list that one is not the fastest, which spills so much while the other does not spill."""


def _spills(attempt: Attempt) -> bool:
    return attempt.resources is not None and (attempt.resources.spill_bytes or 0) >= SPILLS_TOO_MUCH


def _with_more_warps(old: KernelVersion, new: KernelVersion, run: Run, base: Attempt, head: Attempt) -> Configuration | None:
    """Of the configurations that both versions list, the one of the most warps, where the one that was compiled spills on both sides."""
    if run.configuration is None or run.former is not None or run.problem is not None or not (_spills(base) and _spills(head)):
        return None
    both = {configuration.label() for configuration in old.configurations} & {configuration.label() for configuration in new.configurations}
    with_more = [
        configuration
        for configuration in new.configurations
        if configuration.label() in both and configuration.num_warps > run.configuration.num_warps
    ]
    return max(with_more, key=lambda item: item.num_warps, default=None)


def _for_products(*attempts: Attempt) -> dict[str, int]:
    """Constants that make the operands of `tl.dot` as large as it takes them, where a version is refused because one of them is not, as of
    heads that share others (`assert G >= 16`): sizes of the file's launch at typical sizes, and not said."""
    small_sizes: dict[str, int] = {}
    for attempt in attempts:
        if attempt.launch is not None and TOO_FLAT in str(getattr(attempt.refused, "got", "")):
            launch = attempt.launch
            usage = usage_of(launch.source, launch.source.kernel(launch.kernel))
            constants = next(guesses(launch.source, launch.source.kernel(launch.kernel), launch.given)).constexprs
            small = {name for name, value in constants.items() if type(value) is int and 0 < value < LEAST_DEPTH and usage[name].extent}
            small_sizes |= dict.fromkeys((name for name in small if launch.origins.get(name) not in ("said", "recorded")), LEAST_DEPTH)
    return small_sizes


OTHER_SIZE = 0.25
"""By how much of the longer code two versions differ, from which on one of them lacks work that stands under a flag in the other."""


def _hidden(base: Attempt, head: Attempt, change: Touched) -> bool:
    """Whether nothing of what changed is in the code, or little, and one version's is much the shorter: what was done in any case is done
    under flags now."""
    seen, longest = _seen(head, change), max(len(machine_code(side)) for side in (base, head))
    return not seen or (2 * seen < len(change.lines) and _apart((base, head)) > OTHER_SIZE * longest)


def _seen(head: Attempt, change: Touched) -> int:
    """Of how many lines of the head that changed the compiler's code has something."""
    if head.compiled is None or head.launch is None:
        return 0
    file = str(head.launch.source.path)
    places = {(author_file(head.compiled, path), int(line)) for path, line in _PLACES.findall(head.compiled.ttir)}
    return sum((file, line) in places for line in change.lines)
