"""Launches that differ in one size only: the rows of one table, the points of one curve."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.schema import LaunchReport

from . import figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Launches of one kernel and operator; `size` is the one they differ in (None: a single launch)."""

    launches: tuple[LaunchReport, ...]
    size: str | None
    shown: str | None = None  # the size that names a single launch, where no other is of its kind

    @property
    def name(self) -> str:
        """`fused_moe w13`."""
        return figures.name_of(self.launches[0])

    @property
    def shared(self) -> str:
        """What the launches have in common: `E=128 topk=8 H=2048 N=768 bf16`."""
        problem = self.launches[0].problem
        return f"{figures.sizes_text(problem, without=self.size)} {figures.types_text(problem)}".strip()

    def label(self, launch: LaunchReport) -> str:
        """What sets one launch apart: `M=64`."""
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
        return [Group(launches=(launch,), size=None, shown=shown) for launch in members]
    size = "M" if "M" in differing else differing[0]
    parts: dict[tuple[int, ...], list[LaunchReport]] = {}
    for launch in members:
        rest = tuple(launch.problem.sizes[name] for name in names if name != size)
        parts.setdefault(rest, []).append(launch)
    return [Group(launches=tuple(part), size=size if len(part) > 1 else None) for part in parts.values()]
