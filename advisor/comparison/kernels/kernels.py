"""Kernels whose source changed: what either version is predicted to take, and what else there is to say of the change.

The model knows a kernel by its family, sizes and configuration; it does not read the body. What a changed body does shows in the
compiled resources (`resources`), and to the clock.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from advisor.comparison.kernels import resources
from advisor.comparison.kernels.attempts import Compiling, same_body
from advisor.comparison.kernels.beside import in_its_place
from advisor.comparison.kernels.changed_launches import SAME, ChangedLaunch, changed_by_hand, changed_launches, launch_notes, unread_body
from advisor.comparison.kernels.importers import ODD
from advisor.comparison.kernels.kernel_digest import arguments_renamed, helpers_renamed, meaning, own_tree, renamed, with_other_names
from advisor.comparison.kernels.kernel_rows import kernel_row
from advisor.comparison.kernels.kernel_version import KernelVersion, constant_renamed, list_alike
from advisor.comparison.kernels.one_launch import POINTERS
from advisor.comparison.kernels.readings import Reading, as_one, judged_at_each, of_kernel, readings
from advisor.comparison.kernels.time_verdict import CHANGED_LAUNCH, CONTENTS, MOST_NAMED, TIME_VERDICTS, without_time
from advisor.comparison.kernels.tuners import hooks_anew, lists_anew, prunes_otherwise, tuned_by_one, tunes_otherwise
from advisor.comparison.settings import KernelSettings, Recorded, Settings, merged, problem_of, recorded_problems
from advisor.compiled.guesses.assumptions import shown_value
from advisor.compiled.launches.provenance import GRID
from advisor.compiled.launches.target import UNKNOWN_SIZE
from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import Predictor
from advisor.pipelines.batch import SIZES
from advisor.python_source.bindings import names_in
from advisor.python_source.language import dotted
from advisor.python_source.source import SourceFile
from advisor.result.comparison_schema import CHANGES, UNKNOWN, Failure, StaticRow, Subject
from advisor.result.schema import FAMILIES, Problem
from advisor.system.errors import AdvisorError, InputError
from advisor.system.resources import phrase

LARGEST_KERNELS = 40
LARGEST_PROBLEMS = 32
SPEED_KEYS = (
    "family",
    "ops",
    "dtype",
    "weight_dtype",
    "output_dtype",
    "precision",
    "space",
    "min_capability",
    "valid",
    "default",
    "arguments",
)
"""Keys of a KERNELS entry that bear on speed; tolerances and references do not."""


GLUON, MOST_GLUON = "gluon.jit", 4
"""How its kernels are decorated, and how many of them a note names."""


def kernel_subjects(
    path: str,
    change: CHANGES,
    base: SourceFile | None,
    head: SourceFile | None,
    *,
    settings: Settings,
    gpus: Sequence[GpuSpec],
    predictor: Predictor,
    compiling: Compiling,
    recorded: Recorded | None = None,
    origins: Mapping[str, tuple[str, SourceFile]] | None = None,
    left: Collection[str] = (),
    launchers: Sequence[Sequence[tuple[str, SourceFile]]] = ((), ()),
    renamed_only: list[str] | None = None,
) -> list[Subject]:
    """One subject per kernel of the file that differs between the versions.

    Args:
        path: Where the file lies in head, or lay in base.
        change: What happened to it.
        base: The old version, where there is one.
        head: The new version.
        settings: What advisor.toml says of kernels.
        gpus: The GPUs to predict and compile for.
        predictor: Where predictions come from.
        compiling: What may be compiled.
        recorded: Launches that name problems.
        origins: Kernels that lay in another file of the base, each with that file's path, and the file.
        left: Kernels of the base that lie in another file of the head, where they are compared.
        launchers: Of base and head, other files that launch kernels of the file, each with its path.
        renamed_only: Takes a text for every kernel that is the same under another name, or in another file.
    """
    origins = origins or {}
    kernel_readings = readings(base, head, gpus, launchers, origins, left)
    sides = kernel_readings[0].sides
    former = _former_names(sides[0], sides[1], base, head)
    names = [*sides[1], *(name for name in sides[0] if name not in sides[1] and name not in former.values())]
    out = []
    called_otherwise: set[str] = set()  # kernels of which arguments alone have other names
    unchanged: list[str] = []  # kernels of which nothing differs on these GPUs
    for name in names[:LARGEST_KERNELS]:
        called = (name, former[name]) if name in former else (name,)
        parts, arguments = [], ""
        for reading in of_kernel(kernel_readings, called[-1], name):
            old, new = reading.sides[0].get(called[-1]), reading.sides[1].get(name)
            same = old is not None and new is not None and _same_meaning(old, new, name)
            changed: tuple[ChangedLaunch, ...] = ()
            instead, alike = "", same
            if old is not None and new is not None:
                changed = changed_launches(old, new)
                other_names = {} if same else arguments_renamed(old.function, new.function)
                alike = same or (bool(other_names) and _meaning(old, name, other_names) == _meaning(new, name))
                compared_on = _of_vendor(path, reading.gpus)[0] if alike and not changed else ()
                instead = next((text for gpu in compared_on if (text := in_its_place(old, new, gpu, {}, former))), "")
                if alike and not changed and not instead:
                    arguments = ", ".join(f"{before} → {after}" for before, after in other_names.items())
                    continue
                if changed:  # others, a benchmark, say, are not what is compared
                    old = replace(old, launching=tuple(item.old for item in changed))
                    new = replace(new, launching=tuple(item.new for item in changed))
            origin = origins[name][0] if name in origins and old is not None else None
            both: CHANGES = "modified" if origin is not None else change
            word: CHANGES = both if old is not None and new is not None else "added" if old is None else "removed"
            paths = (path, origin) if origin is not None else (path,)
            kernel_settings = settings.kernel(paths, called)
            others = [_of_vendor(launch.new.where, reading.gpus)[0] for launch in changed] if alike and changed else [reading.gpus]
            made_on = [gpu for gpu in reading.gpus if any(gpu in some for some in others)]  # not by files for other machines alone
            subject = _subject(
                paths, called, word, old, new, kernel_settings, made_on, predictor, compiling, recorded or Recorded(), same, former
            )
            notes = (
                *((f"Moved here from {origin}.",) if origin is not None else ()),
                *(f"It was called {item}." for item in called[1:]),
                *(_uses_changed(old, new, name) if old is not None and new is not None else ()),
                *launch_notes(changed, same, any(row.change is not None for row in subject.static)),
                *((f"{SAME} may not be made: {instead}.",) if same and instead else ()),
                *(("Not compiled: what changed is launched by files for other machines alone.",) if reading.gpus and not made_on else ()),
            )
            parts.append((reading.gpus, replace(subject, notes=(*notes, *subject.notes))))
        if parts:
            out.append(as_one(parts))
            continue
        former_place = f"{origins[name][0] if name in origins else path}::{called[-1]}"
        if arguments:
            called_otherwise.add(name)
        else:
            unchanged.append(name)
        if renamed_only is not None and (arguments or former_place != f"{path}::{name}"):
            here = f"{path}::{name}" + f" ({arguments})" * bool(arguments)
            renamed_only.append(here if former_place == f"{path}::{name}" else f"{former_place} → {here}")
    rewritten = sorted({*_rewritten(base, head)} - called_otherwise - former.keys()) if base is not None and head is not None else []
    helpers = [name for name in rewritten if name not in sides[1] and not out]
    apart = [name for name in rewritten if name in names[:LARGEST_KERNELS] and f"{path}::{name}" not in {item.title for item in out}]
    of_any = readings(base, head, (), launchers, origins, left)[0] if gpus and unchanged else kernel_readings[0]
    apart += [name for name in _elsewhere_otherwise(of_any, unchanged, former) if name not in apart]
    importing = "files whose kernels import them are named or compared here, and where none is, none does"
    unread = [f"Helpers changed ({', '.join(helpers)}): {importing}."] if helpers else []
    if apart:
        unread.append(f"{', '.join(apart)} changed under a condition that does not hold for this Triton and these GPUs: not compared.")
    if gluon := _of_gluon_changed(base, head):
        shown = ", ".join(gluon[:MOST_GLUON]) + f" and {len(gluon) - MOST_GLUON} more" * (len(gluon) > MOST_GLUON)
        happened = "new" if base is None else "removed" if head is None else "changed"
        unread.append(f"{shown}: {happened}, written in Gluon, whose kernels are not compared.")
    if len(names) > LARGEST_KERNELS:
        unread.append(f"{len(names) - LARGEST_KERNELS} of {len(names)} kernels were left out.")
    if unread:
        out.append(Subject(kind="file", title=path, path=path, change=change, notes=tuple(unread)))
    return out


def _of_gluon_changed(base: SourceFile | None, head: SourceFile | None) -> list[str]:
    """The kernels of Gluon, Triton's lower language, that came, went or have another body."""
    sides = [
        {
            name: own_tree(node)
            for name, node in source.plain_functions.items()
            if any(dotted(getattr(item, "func", item)) == GLUON for item in node.decorator_list)
        }
        for source in (base, head)
        if source is not None
    ]
    names = set().union(*sides)
    return sorted(name for name in names if len({side.get(name) for side in sides}) > 1 or len(sides) == 1)


def _rewritten(base: SourceFile, head: SourceFile) -> Iterator[str]:
    """The functions of Triton that both versions of a file define, each in its own way, in whatever branch; one more that is written like
    another of its name, in one more test, say, is none, nor is one that calls helpers by other names alone."""
    former = {repr(name): repr(was) for name, was in helpers_renamed(base, head).items()}
    for name in base.definitions.keys() & head.definitions.keys():
        trees = {own_tree(node) for node in head.definitions[name]}
        for now, was in former.items():
            trees = {tree.replace(now, was) for tree in trees}
        if {own_tree(node) for node in base.definitions[name]} != trees:
            yield name


def _former_names(
    old: Mapping[str, KernelVersion], new: Mapping[str, KernelVersion], base: SourceFile | None, head: SourceFile | None
) -> dict[str, str]:
    """The former names of kernels that the file renames; one that is a helper on the other side is there all the same. A kernel may have
    the name now that another one had, where that is what it was under its new one."""
    if base is None or head is None:
        return {}
    before = {own_tree(version.function.node): name for name, version in old.items()}
    same = {name: before.get(own_tree(version.function.node), "") for name, version in new.items() if len(before) == len(old)}
    former = {name: was for name, was in same.items() if name not in old and was in new and same[was] != was}
    taken = {*former.values()}
    lost = {name for name in old if name not in taken | new.keys() | head.definitions.keys()}
    gained = {name for name in new if name in taken or name not in former.keys() | old.keys() | base.definitions.keys()}
    first = [
        {name: side[name].function.node for name in itertools.islice((name for name in side if name in names), LARGEST_KERNELS)}
        for side, names in ((old, lost), (new, gained))
    ]
    return former | renamed(*first)


def _meaning(version: KernelVersion, called: str, other_names: Mapping[str, str] | None = None) -> tuple[Any, ...]:
    """What the kernel is, as if it were called so, and its arguments as `other_names` says; comments, docstrings, tolerances and references
    aside."""
    entry = {key: version.entry[key] for key in SPEED_KEYS if key in version.entry}
    described = [str(entry[key]) for key in ("valid", "default", "arguments") if key in entry]
    kernel = version.function.name
    trees = meaning(version.source, [kernel, *described])
    if kernel != called:
        trees = sorted((called if name == kernel else name, tree.replace(repr(kernel), repr(called))) for name, tree in trees)
    if other_names:
        trees = sorted((name, with_other_names(tree, other_names) if name == called else tree) for name, tree in trees)
    return (trees, repr(sorted(entry.items())), version.named, kernel in version.source.undecided)


def _same_meaning(old: KernelVersion, new: KernelVersion, called: str) -> bool:
    """Whether a kernel is what it was, whatever those of its helpers are called that have other names alone."""
    (before, *more), (after, *others) = _meaning(old, called), _meaning(new, called)
    gone, came = [[item for item in one if item[0] not in dict(other)] for one, other in ((before, after), (after, before))]
    names = {was: name for was, tree in gone for name, code in came if tree.replace(repr(was), repr(name)) == code}
    for was, name in names.items():
        before = [(names.get(item, item), tree.replace(repr(was), repr(name))) for item, tree in before]
    return (sorted(before), more) == (after, others)


def _elsewhere_otherwise(reading: Reading, names: Iterable[str], former: Mapping[str, str]) -> Iterator[str]:
    """Those of kernels that differ where what decides a branch is not known: nothing that holds for the GPUs at hand, another list of
    configurations for another vendor's."""
    for name in names:
        old, new = reading.sides[0].get(former.get(name, name)), reading.sides[1].get(name)
        if old is not None and new is not None and not _same_meaning(old, new, name):
            yield name


def _uses_changed(old: KernelVersion, new: KernelVersion, called: str) -> Iterator[str]:
    """What else changed that the kernel comes down to: helpers, constants, what makes its configurations."""
    sides = [_meaning(side, called)[0] for side in (old, new)]
    both = {name for name, _ in sides[0]} & {name for name, _ in sides[1]}
    if old.named == new.named and not (old.unread or new.unread):  # the same configurations, however they are written
        both &= {name for side in (old, new) for name, _ in _of_body(side)}
    if names := sorted({name for name, _ in set(sides[0]) ^ set(sides[1])} & both - {called}):
        yield phrase(
            "answer.uses", which=", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if names[MOST_NAMED:] else "")
        )


def _subject(
    paths: Sequence[str],
    names: Sequence[str],
    change: CHANGES,
    old: KernelVersion | None,
    new: KernelVersion | None,
    settings: KernelSettings,
    gpus: Sequence[GpuSpec],
    predictor: Predictor,
    compiling: Compiling,
    recorded: Recorded,
    same: bool,
    former: Mapping[str, str],
) -> Subject:
    """What there is to say of the kernel `names[0]` in the file `paths[0]`; both may have been called something else before. `same`: only
    how it is launched differs."""
    path, name, shown = paths[0], names[0], new or old
    assert shown is not None
    notes = changed_by_hand(old, new)
    gpus, left_out = _of_vendor(path, gpus)
    if new is not None and (old is not None or gpus):
        odd = {word: side.problem for word, side in (("base", old), ("head", new)) if side is not None and side.problem}
        one = len(odd) == 2 and len(set(odd.values())) == 1
        notes += [odd["head"]] if one else [f"{word}: {why}" for word, why in odd.items()]
    rows: list[StaticRow] = []
    best: dict[str, resources.Run] = {}
    problems: Sequence[Problem] = ()
    unpredicted = ""
    notes += left_out
    try:
        launched, notes_of_records = recorded_problems(recorded, paths, names, shown.entry, settings)
        notes += notes_of_records
        problems = problems_of(shown, settings, name, launched, path)
        if len(problems) > LARGEST_PROBLEMS:
            notes.append(f"{len(problems) - LARGEST_PROBLEMS} of {len(problems)} problems were left out.")
        gpus, left_out = _runs_on(gpus, old, new)
        notes += left_out
        for gpu in gpus:
            for number, problem in enumerate(problems[:LARGEST_PROBLEMS]):
                row = kernel_row(number, name, problem, gpu, old, new, settings, predictor)
                rows.append(row)
                for side, version in ((row.head, new), (row.base, old)):
                    its = side.configuration if side is not None and version is not None and version.configurations else None
                    if its is not None:
                        element = _element(shown, problem, settings)
                        best.setdefault(gpu.name, resources.Run(configuration=its, problem=problem, element=element))
                        break
        if rows and not same:
            notes += unread_body(old, new, any(row.changed for row in rows))
    except (AdvisorError, *ODD) as error:
        unpredicted = f"No prediction: {error}"
    alike = same or (old is not None and new is not None and same_body(old, new) and _of_body(old) == _of_body(new))
    listing = lists_anew(old, new)
    if hooks := hooks_anew(old, new) if listing else []:
        notes += [phrase("answer.hook", same=SAME if alike else "The launch", which=", ".join(hooks))]
    elif listing:
        notes.append("What lists its configurations changed, and cannot be read.")
    if tuned_otherwise := tunes_otherwise(old, new):
        notes.append(f"Other arguments of its tuner: {', '.join(tuned_otherwise)}.")
    notes += tuned_by_one(old, new)
    once = next((recorded_launches[0] for item in paths for known in names if (recorded_launches := recorded.of(item, known))), None)

    def judged_at(problem: Problem | None, is_first: bool) -> resources.Judged:
        return resources.judged(
            name,
            old,
            new,
            best,
            gpus,
            compiling,
            _element(shown, problem, settings),
            problem,
            settings,
            predicting=not rows,
            recorded=once if is_first else None,  # of which the grid is that of one problem
            same=alike,
            called_before=former,
        )

    judged = (
        judged_at_each(judged_at, problems, compiling)
        if gpus and not (listing and alike)  # of the same kernel, with one guess for both
        else resources.Judged()
    )
    notes += judged.notes
    at_one = [_at_one_launch(row, old, new, listing, judged.best_of_lists) for row in judged.predicted]
    settled = bool(at_one) and all(
        row is not other or row.reason.startswith(CHANGED_LAUNCH) for row, other in zip(at_one, judged.predicted, strict=True)
    )  # by the lists, or for a launch of each side's own: no size tells of that
    rows += at_one
    described = old is not None or shown.entry or settings != KernelSettings()
    if unpredicted and described and new is not None and gpus and not (rows or listing or judged.rows or judged.notes):
        notes.append(unpredicted)
    before, after = (set(side.named) if side is not None else set() for side in (old, new))
    listed = not any(side.unread for side in (old, new) if side is not None)  # else what came or went is not known
    pruned = any(side is not None and side.function.autotune is not None and side.function.autotune.prunes for side in (old, new))
    if pruned and listed and before != after:
        notes.append(phrase("answer.pruned"))
    if called := constant_renamed(old, new):
        notes.append(phrase("answer.constant_renamed", before=called[0], after=called[1]))
        before, after = after, before
    return Subject(
        kind="kernel",
        title=f"{path}::{name}",
        path=path,
        change=change,
        static=tuple(rows),
        resources=judged.rows,
        configurations=(len(old.configurations) if old and listed else 0, len(new.configurations) if new and listed else 0),
        line=new.function.node.lineno if new is not None else None,
        hint=_setting(path, name, _sizes_to_give(judged.sizes)) if judged.sizes and not settled else "",
        notes=tuple(notes),
        failures=(*judged.failures, *_lost(old, new)),
        configurations_added=tuple(text for text in (new.named if new else ()) if text not in before) if old and listed else (),
        configurations_removed=tuple(text for text in (old.named if old else ()) if text not in after) if new and listed else (),
    )


def _lost(old: KernelVersion | None, new: KernelVersion | None) -> Iterator[Failure]:
    """That it can no longer be told what a kernel is: as of a file that can no longer be read."""
    reasons = [side.source.undecided.get(side.function.name, "") if side is not None else "" for side in (old, new)]
    if old is not None and reasons[1] and not reasons[0]:
        yield Failure(condition="failed", what="", reason=f"{UNKNOWN}{reasons[1].removeprefix(UNKNOWN)}")


_OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1}
"""What stands for an option of which nothing is known, as Triton's own."""


def _of_body(version: KernelVersion) -> list[tuple[str, str]]:
    """What the names in a kernel's arguments and body come down to."""
    node = version.function.node
    return meaning(version.source, names_in(node.args, *node.body))


def _at_one_launch(
    row: StaticRow, old: KernelVersion | None, new: KernelVersion | None, listed_anew: bool, best_of_lists: bool
) -> StaticRow:
    """A prediction, without a verdict where a side's configurations cannot be read, or neither's and what lists them changed; and without
    one that nothing changes, or little, where the two do not choose among the same, and the best of either is not known."""
    if old is None or new is None:
        return row
    timed = row.verdict in (*TIME_VERDICTS, "cannot-tell")
    if listed_anew or (old.unread != new.unread and timed):
        whose = "its configurations" if listed_anew else f"the configurations of the {'base' if old.unread else 'head'}"
        return without_time(row, "cannot-tell", f"because {whose} cannot be read")
    if timed and prunes_otherwise(old, new):
        return without_time(row, "cannot-tell", "because what prunes its configurations changed")
    if row.verdict == "predicted-unchanged" and best_of_lists:
        return replace(row, verdict="within-doubt", reason="which configuration of a list is the best is a prediction")
    if row.verdict in ("predicted-unchanged", "within-doubt") and not list_alike(old, new) and not best_of_lists:
        return without_time(row, "cannot-tell", "because the two sides do not choose among the same configurations")
    return row


def _sizes_to_give(sizes: Mapping[str, Any]) -> str:
    """What advisor.toml may say of a kernel: typical sizes that it was judged at, and what decides and is not known (None: a number)."""
    kinds = {name: value for name, value in sizes.items() if isinstance(value, str) and value.startswith(POINTERS)}
    held = [name for name, value in sizes.items() if value == CONTENTS]
    plain = {
        name: _OPTIONS.get(name, UNKNOWN_SIZE) if value is None else value
        for name, value in sizes.items()
        if name not in (*kinds, *held, GRID)
    }
    parts = [f"args = {{{', '.join(f'{name} = {_toml(value)}' for name, value in sorted(plain.items()))}}}"] if plain else []
    parts += ['grid = "1024"'] if GRID in sizes else []
    parts += [f"types = {{{', '.join(f'{name} = {_toml(kind)}' for name, kind in sorted(kinds.items()))}}}"] if kinds else []
    parts += [f"contents = {{{', '.join(f'{name} = {UNKNOWN_SIZE}' for name in sorted(held))}}}"] if held else []
    return ", ".join(parts)


def _toml(value: Any) -> str:
    """A value as TOML has it; of a type of Triton's (`tl.float32`) its name."""
    return json.dumps(value) if isinstance(value, bool | int | float | str) else json.dumps(shown_value(value))


OTHER_VENDORS = re.compile(
    r"(?:^|[/_.])(ascend\w*|npu|cann|kunlunxin|xpu|intel|cambricon|mlu|metax|maca|mthreads|musa|iluvatar|hygon|tsingmicro|sunrise|aipu|enflame|"
    r"spacemit|tpu|mps|arm|amd|hip|rocm|gfx\w+|cuda|nvidia|hopper|blackwell)(?=[/_.]|$)",
    re.IGNORECASE,
)
"""Parts of a path that say whose machine a kernel is written for."""
_OWN = {"amd": ("amd", "hip", "rocm", "gfx"), "nvidia": ("cuda", "nvidia", "hopper", "blackwell")}


def _of_vendor(path: str, gpus: Sequence[GpuSpec]) -> tuple[list[GpuSpec], list[str]]:
    """The GPUs of the vendor that a kernel's path names, if it names one, and a note on the others."""
    named = [item.lower() for item in OTHER_VENDORS.findall(path)]
    fit = [gpu for gpu in gpus if not named or any(item.startswith(_OWN[gpu.vendor]) for item in named)]
    others = ", ".join(gpu.name for gpu in gpus if gpu not in fit)
    return fit, [f"Not compiled for {others}: by its path it is for {named[-1]}."] if others else []


def _runs_on(gpus: Sequence[GpuSpec], *versions: KernelVersion | None) -> tuple[list[GpuSpec], list[str]]:
    """The GPUs that one of the versions runs on by its KERNELS entry, and a note on the others."""
    least = [version.entry.get("min_capability") for version in versions if version is not None]
    fit = [gpu for gpu in gpus if any(gpu.reaches(item) for item in least)]
    others = ", ".join(gpu.name for gpu in gpus if gpu not in fit)
    if not others:
        return fit, []
    least_capability = min(item for item in least if isinstance(item, int))
    return fit, [f"Left out: {others}, for the kernel's file asks for sm_{least_capability} or later."]


EXAMPLES = {
    "gemm": "family = 'gemm', problems = [{M = 4096, N = 4096, K = 4096}]",
    "fused_moe": "family = 'fused_moe', op = 'w13', problems = [{M = 64, E = 128, topk = 8, H = 2048, N = 768}]",
    "attention": "family = 'attention', op = 'prefill', problems = [{B = 1, H = 32, H_kv = 8, M = 4096, N = 4096, D = 128}]",
    "normalization": "family = 'normalization', op = 'rms_norm', problems = [{B = 4096, H = 4096}]",
    "elementwise": "family = 'elementwise', op = 'silu_and_mul', problems = [{B = 4096, H = 4096}]",
}
"""What advisor.toml may say of a kernel of a family that it names without problems."""


def _described(path: str, name: str, says: str) -> str:
    """What to do about a kernel of which advisor.toml says nothing."""
    return f"put at the top of advisor.toml (that of the base counts, or --settings), with your own sizes: {_setting(path, name, says)}"


def _setting(path: str, name: str, says: str) -> str:
    """A line to paste above the first table of advisor.toml."""
    key = json.dumps(f"{path}::{name}", ensure_ascii=False)
    for sign in "`<]":  # which would begin code, HTML or a link in Markdown
        key = key.replace(sign, f"\\u{ord(sign):04x}")
    return f"kernels.{key} = {{{says}}}"


def problems_of(
    version: KernelVersion, settings: KernelSettings, name: str, launched: Sequence[Problem] = (), path: str = ""
) -> list[Problem]:
    """The problems that advisor.toml names, and those of recorded launches; else the example of the kernel's own KERNELS entry, once
    per operator.

    Raises:
        InputError: There is none, or one is not of the family.
    """
    family = settings.family or version.entry.get("family")
    if family is None:
        raise InputError(
            f"{name}: neither advisor.toml nor a KERNELS literal says which family it is",
            None,
            "one of " + ", ".join(FAMILIES),
            "say it by family and problems in advisor.toml",
        )
    if family not in FAMILIES:
        raise InputError(f"{name}: family", family, "one of " + ", ".join(FAMILIES))
    operators = version.entry.get("ops")
    named = [str(operator) for operator in operators] if isinstance(operators, dict) else []
    if settings.problems:
        op = settings.op or (named[0] if named else str(family))
        known = [of for kind, of in SIZES if kind == family]
        if len(known) > 1 and op not in known and not all("op" in problem for problem in settings.problems):
            raise InputError(
                f"{name}: advisor.toml does not say which operator of {family} it is",
                settings.op,
                "one of " + ", ".join(known),
                f'add op = "{known[0]}", say, to its table',
            )
        return merged([problem_of(problem, str(family), op, f"advisor.toml: {name}") for problem in settings.problems], launched)
    if launched:
        return list(launched)
    example = version.entry.get("example")
    if not isinstance(example, dict) or not named:
        raise InputError(
            f"{name}: no problems to compare on",
            None,
            None,
            f"{_described(path, name, EXAMPLES[str(family)])}; or give recorded launches (--launches)",
        )
    types = version.entry.get("dtypes")
    dtype = str(types[0]) if isinstance(types, (list, tuple)) and types else "bf16"
    return [problem_of({"dtype": dtype, **example}, str(family), op, f"{name}: example") for op in named[:LARGEST_PROBLEMS]]


def _element(version: KernelVersion, problem: Problem | None, settings: KernelSettings) -> str | None:
    """Triton's name of the element type that is compiled for: that of the problem, else the first that advisor.toml names (in problems
    that could not be read), else the first that the kernel's description names; None: nothing says so."""
    types = version.entry.get("dtypes")
    dtype_of_settings = next((item["dtype"] for item in settings.problems[:1] if "dtype" in item), None)
    named = dtype_of_settings or (types[0] if isinstance(types, (list, tuple)) and types else None)
    dtype = problem.dtype if problem is not None else named
    return {"tf32": "fp32", "fp8": "fp8e4nv", "int8": "i8"}.get(str(dtype), str(dtype)) if dtype is not None else None
