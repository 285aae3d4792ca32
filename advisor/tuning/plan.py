"""The plan of a tuning run: launches, decisions, space and what runs today. Every worker makes the same plan from one order."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from advisor.advising.targets import PlannedLaunch, Target
from advisor.gpus.hardware import GpuSpec
from advisor.learned import load_predictor
from advisor.measurement.devices.device import find_device
from advisor.measurement.kernel_file import MAX_FILE_BYTES, KernelRef, configurations
from advisor.measurement.replay import Recording, read_recording
from advisor.pipelines.space import sound_depths
from advisor.rendering.figures import sizes_text, types_text
from advisor.result.schema import Configuration, Problem
from advisor.search.prior import prior_of
from advisor.search.space import SearchSpace
from advisor.search.storage import Task
from advisor.search.study import Decision
from advisor.system import grouped
from advisor.system.errors import InputError, NothingMatchedError
from advisor.system.reading import read_bytes
from advisor.tables.audit import entry_errors
from advisor.tables.tables import Table, clamp, read_table, select
from advisor.tables.tuned_table import replacement
from advisor.tuning.backends import holds_only_best
from advisor.tuning.order import (
    Order,
    check_exported,
    kernel_of,
    kernel_space,
    may_be_tried,
    of_own_table,
    restricted,
    table_name,
    target_of,
    with_fixed,
)

if TYPE_CHECKING:
    from advisor.learned.base import Predictor

NEUTRAL = {"SPLIT_K": 1}
"""Parameters that a table may carry beyond the space, with the value at which they change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An order, resolved."""

    order: Order
    target: Target
    predictor: Predictor
    space: SearchSpace
    decisions: tuple[Decision, ...]
    kernel: KernelRef | None  # what is measured; a recording need not say it
    recording: Recording | None
    base_table: Table | None  # what the export starts from
    about: str  # the layer or kernel, and the GPU
    name: str
    warnings: tuple[str, ...] = ()
    tokens: Mapping[str, int] = field(default_factory=dict)  # by task
    unjudged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by task: operators that share its entry, and have no say in it

    @property
    def problems(self) -> dict[str, Problem]:
        """The problems of the launches, by name."""
        return {launch.id: launch.problem for launch in self.target.launches}

    def launched(self, configuration: Configuration, launch: str) -> Configuration:
        """The configuration that is launched for one of the space: parameters outside the space stay as today (`replacement`)."""
        today = next(planned.configuration for planned in self.target.launches if planned.id == launch)
        if configuration == today:  # what runs today, refused or not
            return configuration
        return replacement(configuration, today, table=table_name(self.target), gpu=self.target.gpu, searched=self.space.names)


def make_plan(order: Order) -> Plan:
    """Resolves an order.

    Raises:
        UsageError, InputError: It makes no sense, or names what cannot be read.
        NothingMatchedError: The recording has none of the target's problems.
    """
    predictor = load_predictor(Path(order.weights) if order.weights else None)
    target, kernel = target_of(order)
    whole = target
    if order.op is not None:
        launches = tuple(launch for launch in target.launches if launch.problem.op == order.op)
        if not launches:
            known = ", ".join(dict.fromkeys(launch.problem.op for launch in target.launches))
            raise NothingMatchedError(f"{target.title}: no launch of this operator", order.op, f"one of {known}", "check --op")
        target = replace(target, launches=launches)
    if order.export is not None:
        check_exported(target)
    target, of_others = of_own_table(target, order.op)
    base = _base_table(order, target)
    if base is not None:
        target = _with_incumbents(target, base)
    warnings, recording = [*target.warnings, *filter(None, [target.refused]), *of_others], None
    if order.recorded is not None:
        recording = read_recording(order.recorded, target.gpu.name)
        target, left_out = _only_recorded(target, recording)
        warnings += left_out
    elif kernel is None:
        kernel = kernel_of(target)
    target = replace(target, warnings=tuple(warnings))
    shares = grouped((launch.decision_id, launch) for launch in target.launches)
    if recording is None:
        space, valid = space_of(target, kernel, shares, measuring=True)
    else:
        space, valid = recorded_space(recording, space_of(target, kernel, shares, measuring=False)[0], shares)
    sources = _sources(order, kernel, recording, shares)
    decisions = []
    for share, group in shares.items():
        prior = prior_of([launch.problem for launch in group], space, target.gpu, predictor)
        if share in valid:
            prior = restricted(prior, valid[share], "not recorded" if recording is not None else "refused by the kernel's file")
        prior = restricted(prior, may_be_tried(space, group[0]), f"another {', '.join(group[0].frozen_parameters)} than w13 and w2 share")
        today = group[0].configuration
        identity = "; ".join(
            f"{launch.problem.op} {sorted(launch.problem.sizes.items())} {launch.problem.dtype} {launch.problem.cache} "
            f"{launch.problem.block_shape} {launch.problem.routing or launch.problem.distribution}"
            for launch in group
        )
        decisions.append(
            Decision(
                task=Task(id=share, launches=tuple(launch.id for launch in group)),
                prior=prior,
                incumbent=None if today is None else within(space, today),
                identity=f"{target.gpu.name}; {sources[share]}; {identity}",
                kind=_kind(target.gpu, group),
                incumbent_fails=_why_today_fails(target, group[0]),
            )
        )
    about = _about(target)
    return Plan(
        order=order,
        target=target,
        predictor=predictor,
        space=space,
        decisions=tuple(decisions),
        kernel=kernel,
        recording=recording,
        base_table=base,
        about=about,
        name=order.study or about,
        warnings=tuple(warnings),
        tokens={share: group[0].tokens for share, group in shares.items() if group[0].tokens is not None},
        unjudged={share: ops for share, group in shares.items() if (ops := _unjudged(whole, group))},
    )


def _unjudged(whole: Target, group: Sequence[PlannedLaunch]) -> tuple[str, ...]:
    """The operators that run with a decision's table entry as well, and that nothing is measured of."""
    measured = {launch.id for launch in group}
    others = (
        launch
        for launch in whole.launches
        if launch.decision_id == group[0].decision_id and launch.id not in measured and launch.table is None
    )
    return tuple(dict.fromkeys(other.problem.op for other in others))


def _sources(
    order: Order, kernel: KernelRef | None, recording: Recording | None, shares: Mapping[str, list[PlannedLaunch]]
) -> dict[str, str]:
    """The source of each decision's latencies: another kernel's, another device's or other rows say nothing of it.

    By content: a file that was edited is another one, one that was copied or given more rows of other problems is the same.
    """
    if recording is None:
        assert kernel is not None
        device = find_device(order.device, look=False)
        on = " ".join([device.kind, *(f"{name}={value}" for name, value in sorted(device.options.items()))])
        digest = _digest(read_bytes(kernel.file, kernel.file, "a kernel file", MAX_FILE_BYTES))
        return dict.fromkeys(shares, f"{kernel.function} {digest} on {on}")
    how = "absent ones slower than the best" if holds_only_best(recording) else "absent ones are unknown"
    sources = {}
    for share, group in shares.items():
        rows = [sorted(repr((key, us)) for key, (us, _) in recording.rows(launch.problem).items()) for launch in group]
        sources[share] = f"recorded rows {_digest(repr(rows).encode())}, {how}"
    return sources


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _about(target: Target) -> str:
    """The target and the GPU: by default the name of its study, too. A layer without a table is known by its sizes, so that one storage
    keeps many of them."""
    sizes = target.launches[0].problem.sizes
    layer = ",".join(f"{name}={sizes[name]}" for name in ("E", "topk", "H", "N")) if target.title == "fused_moe" else ""
    return f"{target.title.removesuffix('.json')}{layer and ' '}{layer} on {target.gpu.name}"


def _kind(gpu: GpuSpec, group: Sequence[PlannedLaunch]) -> str:
    """A text that decisions share whose winners say something of each other."""
    first = group[0].problem
    blocks = "" if first.block_shape is None else f" in blocks of {first.block_shape[0]} x {first.block_shape[1]}"
    return f"{gpu.name}; {group[0].kernel}; {'+'.join(launch.problem.op for launch in group)}; {first.dtype}{blocks}"


def _why_today_fails(target: Target, launch: PlannedLaunch) -> str | None:
    """Why the table's entry that a launch runs with cannot be launched; None: nothing is known that would stop it.

    What gives wrong results can be launched: measuring finds that out, where outputs are checked.
    """
    name = table_name(target)
    if launch.entry is None or name is None:
        return None
    entry = with_fixed(launch.entry, launch)
    return "; ".join(issue.message for issue in entry_errors(entry, name, target.gpu) if issue.check != "wrong-scales") or None


def within(space: SearchSpace, configuration: Configuration) -> Configuration:
    """The configuration as the space names it, where what it has beyond that changes nothing; else as it is."""
    extra = {name: value for name, value in configuration.parameters.items() if name not in space.columns}
    if all(NEUTRAL.get(name) == value for name, value in extra.items()):
        parameters = {name: value for name, value in configuration.parameters.items() if name in space.columns}
        index = space.index_of(replace(configuration, parameters=parameters))
        if index is not None and _options(space.configurations[index]) == _options(configuration):
            return space.configurations[index]
    return configuration


def _options(configuration: Configuration) -> tuple[int, int | None]:
    """Launch options that a space names only where it varies them."""
    return configuration.num_ctas, configuration.maxnreg


def _base_table(order: Order, target: Target) -> Table | None:
    """The table that the export is merged into: the one already in its folder, else the target's."""
    if order.export is not None:
        name = table_name(target)
        if name is not None and (path := Path(order.export) / name.file_name()).exists():
            return read_table(path)
    return None if target.table is None else replace(target.table, name=table_name(target) or target.table.name)


def _with_incumbents(target: Target, base: Table) -> Target:
    """The target's launches, run with what the base table says."""
    launches = []
    for launch in target.launches:
        chosen = select(base, launch.tokens or 1)
        if launch.tokens is None or chosen.configuration is None:
            launches.append(launch)
            continue
        configuration = clamp(chosen.configuration, base.name)
        launches.append(
            replace(
                launch,
                configuration=with_fixed(configuration, launch) if base.name.down else configuration,
                entry=chosen.configuration,
                entry_key=chosen.key,
                source=f"table entry {chosen.key}",
            )
        )
    return replace(target, launches=tuple(launches), table=target.table)


def _only_recorded(target: Target, recording: Recording) -> tuple[Target, list[str]]:
    """The launches whose problem the recording has, and a sentence on the others."""
    recorded = tuple(launch for launch in target.launches if launch.problem in recording)
    if not recorded:
        wanted = target.launches[0].problem
        others = f", and {len(target.launches) - 1} more" if len(target.launches) > 1 else ""
        raise NothingMatchedError(
            f"{recording.source}: has no rows of {target.title}",
            f"{wanted.op} {sizes_text(wanted)} {types_text(wanted)}{others}",
            f"one of {len(list(recording))} problems that have rows",
            "check --model, --tokens, --dtype, --gpu and --cache",
        )
    if len(recorded) == len(target.launches):
        return target, []
    gone = [launch.id for launch in target.launches if launch not in recorded]
    shown = ", ".join(gone[:6]) + (", …" if len(gone) > 6 else "")
    return replace(target, launches=recorded), [f"{recording.source} has no rows of {shown}: left out, and not part of any decision"]


def space_of(
    target: Target, kernel: KernelRef | None, shares: Mapping[str, list[PlannedLaunch]], *, measuring: bool
) -> tuple[SearchSpace, dict[str, np.ndarray]]:
    """The space, and per decision which of it the kernel's file accepts.

    What runs today is not added to it: an export changes that, and a study's space stays the same for as long as it is gone on with.
    """
    if measuring and kernel is not None:
        accepted = {share: [configurations(kernel, launch.problem) for launch in group] for share, group in shares.items()}
        listed = [configuration for of_launches in accepted.values() for space in of_launches for configuration in space]
        if not listed:
            raise InputError(f"{kernel.label}: has no space", None, "KERNELS[…]['space']", "see triton_kernels/README.md")
        union = SearchSpace.of(listed)
        return union, _of_all_launches(union, accepted)
    space = SearchSpace.from_batch(target.space) if kernel is None else kernel_space(kernel)
    if kernel is not None:
        sound = sound_depths(space.batch, target.launches[0].problem, target.gpu.vendor, target.stack)
        space = space if sound.all() else SearchSpace.of(c for c, is_sound in zip(space.configurations, sound, strict=True) if is_sound)
    return space, {}


def recorded_space(
    recording: Recording, space: SearchSpace, shares: Mapping[str, list[PlannedLaunch]]
) -> tuple[SearchSpace, dict[str, np.ndarray]]:
    """The space with what was recorded beyond it; where a sweep was recorded, nothing but that can be tried.

    Rows that name other parameters than the kernel's file (another kernel's sweep, without SPLIT_K) are a space of their own, of the names
    that most of them have.
    """
    recorded = {share: [recording.configurations(launch.problem) for launch in group] for share, group in shares.items()}
    listed = [configuration for of_launches in recorded.values() for rows in of_launches for configuration in rows]
    names = frozenset(space.configurations[0].flat(all_options=True))
    common = Counter(frozenset(c.flat(all_options=True)) for c in listed)
    separate = bool(common) and names not in common
    if separate:
        names = common.most_common(1)[0][0]
    beyond = [c for c in listed if frozenset(c.flat(all_options=True)) == names]
    wider = SearchSpace.of([*(() if separate else space.configurations), *beyond])
    return wider, {} if holds_only_best(recording) else _of_all_launches(wider, recorded)


def _of_all_launches(space: SearchSpace, listed: Mapping[str, Sequence[Sequence[Configuration]]]) -> dict[str, np.ndarray]:
    """Per decision which configurations of the space are listed for each of its launches, [c]."""
    return {share: np.all([space.among(of_launch) for of_launch in of_launches], axis=0) for share, of_launches in listed.items()}
