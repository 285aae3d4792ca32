"""Launches that differ in one size only: the rows of one table, the points of one curve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from advisor.rendering import figures
from advisor.result.schema import LaunchReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Launches of one kernel and operator; `size` is the one they differ in (None: a single launch, or several of one problem).

    `apart` says by id what tells launches of one problem apart: entries of a cache, recorded launches with other configurations.
    """

    launches: tuple[LaunchReport, ...]
    size: str | None
    apart: Mapping[str, str] = field(default_factory=dict)
    shown: str | None = None  # the size that names a single launch, where no other is of its kind

    @property
    def name(self) -> str:
        """`fused_moe w13`."""
        return figures.name_of(self.launches[0])

    @property
    def shared(self) -> str:
        """The sizes and types that the launches have in common: `E=128 topk=8 H=2048 N=768 bf16`."""
        problem = self.launches[0].problem
        return f"{figures.sizes_text(problem, without=self.size)} {figures.types_text(problem)}".strip()

    def label(self, launch: LaunchReport) -> str:
        """The size that sets one launch apart: `M=64`; with what tells it from others of its problem: `M=64 num_stages=4`."""
        return f"{self.by_size(launch)} {self.apart.get(launch.id, '')}".rstrip()

    def by_size(self, launch: LaunchReport) -> str:
        """`M=64`."""
        size = self.size or self.shown
        if size is None:
            return figures.sizes_text(launch.problem)
        return f"{figures.clean(size)}={launch.problem.sizes[size]}"


def group(launches: tuple[LaunchReport, ...]) -> list[Group]:
    """The launches by kernel, operator, types and all sizes but one, in order of first appearance.

    The one size is M where M differs, else the first that does.
    """
    kinds: dict[tuple[object, ...], list[LaunchReport]] = {}
    for launch in launches:
        problem = launch.problem
        key = (launch.kernel, problem.family, problem.op, figures.types_text(problem), tuple(sorted(problem.sizes)))
        kinds.setdefault(key, []).append(launch)
    return [part for members in kinds.values() for part in _by_size(members)]


def _by_size(members: list[LaunchReport]) -> list[Group]:
    names = list(members[0].problem.sizes)
    differing = [name for name in names if len({launch.problem.sizes[name] for launch in members}) > 1]
    if not differing:
        shown = ("M" if "M" in names else names[0]) if names and len(members) == 1 else None
        return [Group(launches=tuple(members), size=None, shown=shown, apart=_by_id(members))]
    size = "M" if "M" in differing else differing[0]
    parts: dict[tuple[int, ...], list[LaunchReport]] = {}
    for launch in members:
        rest = tuple(launch.problem.sizes[name] for name in names if name != size)
        parts.setdefault(rest, []).append(launch)
    groups = []
    for part in parts.values():
        alike: dict[int, list[LaunchReport]] = {}
        for launch in part:
            alike.setdefault(launch.problem.sizes[size], []).append(launch)
        apart = {name: text for some in alike.values() for name, text in _by_id(some).items()}
        groups.append(Group(launches=tuple(part), size=size if len(alike) > 1 else None, apart=apart))
    return groups


def _by_id(members: Sequence[LaunchReport]) -> dict[str, str]:
    return {launch.id: text for launch, text in zip(members, told_apart(members), strict=True)}


def told_apart(members: Sequence[LaunchReport]) -> list[str]:
    """Words that tell launches of one problem apart: where their configurations differ, and the id where that is not enough."""
    if len(members) < 2:
        return [""] * len(members)
    fields = [figures.fields_of(launch.configuration) if launch.configuration is not None else {} for launch in members]
    names = [name for name in dict.fromkeys(name for each in fields for name in each) if len({repr(each.get(name)) for each in fields}) > 1]
    texts = [" ".join(f"{figures.clean(name)}={figures.clean(str(each[name]))}" for name in names if name in each) for each in fields]
    count = Counter(texts)
    return [
        text if count[text] == 1 else f"{text} {figures.clean(launch.id.removeprefix(f'{launch.kernel}-'))}".strip()
        for launch, text in zip(members, texts, strict=True)
    ]
