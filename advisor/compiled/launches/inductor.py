"""Kernels that TorchInductor generated: what their files say of sizes and grids, and the blocks its heuristics begin with."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from advisor.compiled.launches.launch import KernelLaunch
from advisor.python_source.jit_function import JitFunction, as_dict
from advisor.python_source.literals import next_power_of_2
from advisor.python_source.source import SourceFile, parse_source, read_source
from advisor.system.errors import InputError, NothingMatchedError, UsageError

_NUMEL = re.compile(r"([xyz]|r\d*_?)_?numel")
MOST_Y_PROGRAMS = 65_535
"""Programs in y and z that a launch can have (CUDA C++ Programming Guide, compute capabilities); what is above goes into z."""
MOST_ROW_BLOCK = 2_048
"""Elements of a row that a looped reduction takes at once (torch 2.13, `_reduction_configs`)."""
MOST_PERSISTENT = 4_096
"""Elements that a block of a reduction without a loop holds at most, where it holds several rows (torch 2.13,
`_persistent_reduction_configs`)."""
PERSISTENT_ROWS = (128, 32, 8, 1)
_GRIDS = {"Grid1D": "x", "Grid2D": "xy", "Grid3D": "xyz", "Grid2DWithYZOverflow": "xy"}


def inductor_launches(path: str | Path) -> list[KernelLaunch]:
    """The kernels of a file that TorchInductor generated, those too that it holds as strings.

    Raises:
        InputError: It cannot be parsed.
        NothingMatchedError: It has no such kernel.
        UsageError: It has kernels that somebody wrote.
    """
    source = read_source(path)
    generated = [
        with_generated(KernelLaunch(source=part, kernel=function.name))
        for part in (source, *embedded(source))
        for function in part.functions.values()
        if function.inductor is not None
    ]
    if not generated:
        entry_points = [name for name in source.functions if name not in source.called] or list(source.functions)
        if entry_points:
            raise UsageError(
                f"{path}: which of its kernels is meant?", None, ", ".join(f"{Path(path).name}::{name}" for name in entry_points[:8])
            )
        raise NothingMatchedError(f"{path}: no kernel that TorchInductor generated, and no @triton.jit function")
    return generated


def embedded(source: SourceFile) -> Iterator[SourceFile]:
    """The kernels that a file of TorchInductor's holds as strings, to compile them when it runs, at the lines where they stand."""
    for line, text, as_written in source.texts("@triton.jit"):
        try:
            yield parse_source("\n" * (line - 1) * as_written + text, source.path)
        except InputError:
            continue


def with_generated(launch: KernelLaunch) -> KernelLaunch:
    """A launch of a generated kernel with what its file says of it, where nothing else is given: sizes, constants and the grid; and with
    the blocks and warps that TorchInductor's heuristics begin with, for which of their candidates it measured to be best is not in the
    file. A launch of any other kernel is left alone."""
    function = launch.source.kernel(launch.kernel)
    if function.inductor is None:
        return launch
    made = _Generated(function=function, recorded=function.inductor, given={**launch.given.scalars, **launch.given.constexprs})
    constants = {k: v for k, v in as_dict(as_dict(made.recorded.get("triton_meta")).get("constants")).items() if isinstance(k, str)}
    options = made.options()
    options = {name: value for name, value in options.items() if name not in launch.given.options}
    blocks = {name: value for name, value in made.blocks.items() if name not in made.given}
    given = replace(
        launch.given,
        constexprs={**constants, **blocks, **launch.given.constexprs},
        options={**options, **launch.given.options},
        scalars={**{f: n for f, n in made.numels.items() if f not in launch.given.constexprs}, **launch.given.scalars},
    )
    chosen = " ".join(f"{name}={value}" for name, value in {**blocks, **options}.items())
    assumed = [
        f"{name}={made.numels[name]}, the hint of TorchInductor, which is the size rounded up to a power of two" for name in made.hinted
    ]
    assumed += [f"{chosen}, about what the heuristics of TorchInductor begin with"] if blocks else []
    return replace(launch, given=given, grid=launch.grid or made.grid(), assumed=(*launch.assumed, *assumed))


@dataclass(kw_only=True)
class _Generated:
    """One generated kernel: its decorator's arguments, and what somebody gave for its arguments."""

    function: JitFunction
    recorded: Mapping[str, Any]
    given: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.set_inside = self.function.numbers
        self.axes: dict[str, str] = {}  # axis -> parameter: x -> xnumel, r0_ -> r0_numel
        for parameter in self.function.parameters:
            if generated := _NUMEL.fullmatch(parameter.name):
                self.axes[generated.group(1)] = parameter.name
        hints = self.recorded.get("size_hints")
        if isinstance(hints, (list, tuple)):  # up to torch 2.5
            hints = dict(zip(self.axes, hints, strict=False))
        self.hints = as_dict(hints)
        self.numels: dict[str, int] = {}
        self.hinted: list[str] = []
        for axis, name in self.axes.items():
            self._size(axis, name)
        self.blocks = self._blocks()

    def _size(self, axis: str, name: str) -> None:
        hint = self.hints.get(axis, self.hints.get("r") if axis.startswith("r") else None)
        size = self.given.get(name, self.set_inside.get(name))
        if type(size) is int:
            self.numels[name] = size
        elif type(hint) is int:
            self.numels[name] = hint
            self.hinted.append(name)

    def options(self) -> dict[str, int]:
        """Warps and stages: a template's own, else what goes with the blocks; one stage, for nothing generated is pipelined."""
        recorded = {name: self.recorded[name] for name in ("num_warps", "num_stages") if type(self.recorded.get(name)) is int}
        if recorded or not (self.blocks or self.numels):
            return recorded
        return {"num_warps": self._warps(), "num_stages": 1}

    def grid(self) -> tuple[int, ...] | None:
        """Programs of the launch; None: of a template, or of a kind that the file alone does not tell."""
        kind = as_dict(self.recorded.get("inductor_meta")).get("grid_type")
        axes = _GRIDS.get(kind if isinstance(kind, str) else "") if kind else "".join(axis for axis in "xyz" if axis in self.axes)
        if not axes or any(axis not in self.axes or self.axes[axis] not in self.numels for axis in axes):
            return None
        programs = [-(-self.numels[self.axes[axis]] // self._block(axis)) for axis in axes]
        if len(programs) == 2 and programs[1] > MOST_Y_PROGRAMS:
            parts = -(-programs[1] // MOST_Y_PROGRAMS)
            programs = [programs[0], -(-programs[1] // parts), parts]
        return tuple(programs) if min(programs) > 0 else None

    def _block(self, axis: str) -> int:
        name = _block_name(axis)
        value = self.given.get(name, self.blocks.get(name, self.set_inside.get(name)))
        return value if type(value) is int and value > 0 else 1

    def _missing(self, axis: str) -> bool:
        """Whether a kernel takes a block of an axis that its file does not set."""
        return self.function.parameter(_block_name(axis)) is not None and _block_name(axis) not in self.set_inside

    def _extent(self, axes: Sequence[str]) -> int:
        return math.prod(next_power_of_2(self.numels.get(self.axes[axis], 1)) for axis in axes if axis in self.axes)

    def _blocks(self) -> dict[str, int]:
        """Blocks of the axes whose size nothing gives (torch 2.13, `triton_heuristics`, in outline)."""
        loops = [axis for axis in self.axes if axis.startswith("r")]
        outer = [axis for axis in self.axes if axis in "xyz"]
        extent = {axis: self._extent([axis]) for axis in self.axes}
        wanted = self._reduction(loops) if loops else _pointwise(outer, extent)
        return {_block_name(axis): min(size, extent[axis]) for axis, size in wanted.items() if self._missing(axis)}

    def _reduction(self, loops: Sequence[str]) -> dict[str, int]:
        rows, row = self._extent("xyz"), self._extent(loops)
        hint = self.recorded.get("reduction_hint", "DEFAULT")
        if not any(self._missing(axis) for axis in loops):  # the whole row at once
            if hint == "INNER" and row >= 256:
                several = row <= 1024 and rows >= 1024
                return {"x": min(1024 // row, 8) if several else 1}
            return {"x": next((n for n in PERSISTENT_ROWS if n * row <= MOST_PERSISTENT and n <= rows), 1)}
        if hint == "OUTER":  # of the columns' neighbours, for what lies beside each other is in other rows
            x, r = (max(min(rows // 128, 8), 2), 64) if rows <= 1024 else (16, 32) if rows <= 32_768 else (64, 8)
        else:
            x, r = 2 if row <= MOST_ROW_BLOCK else 1, MOST_ROW_BLOCK
        wanted = {"x": x}
        for axis in reversed(loops):
            wanted[axis] = min(r, self._extent([axis]))
            r = max(r // wanted[axis], 1)
        return wanted

    def _warps(self) -> int:
        loops = [axis for axis in self.axes if axis.startswith("r")]
        blocks = {axis: self._block(axis) for axis in self.axes}
        elements = math.prod(blocks.values())
        if not loops:
            return min(max(elements // 256, 4 if elements >= 128 else 1), 8)
        persistent = not any(self._missing(axis) for axis in loops)
        if persistent and self.recorded.get("reduction_hint") == "INNER" and blocks.get("x", 1) > 1:
            return 1
        counted = elements // blocks.get("x", 1) if self.recorded.get("reduction_hint") == "INNER" else elements
        return min(max(next_power_of_2(counted // 128), 2), 8 if persistent else 16)


def _pointwise(axes: Sequence[str], extent: Mapping[str, int]) -> dict[str, int]:
    if len(axes) == 1:
        return {axes[0]: max(256, min(extent[axes[0]] // 128, 1024))}
    side = 32 if len(axes) == 2 else 16
    blocks = {axis: min(side, extent[axis]) for axis in axes}
    for axis in axes:  # what one axis is too short for goes to the others
        while math.prod(blocks.values()) < side ** len(axes) and blocks[axis] < extent[axis]:
            blocks[axis] *= 2
    return blocks


def _block_name(axis: str) -> str:
    return f"{axis.upper()}BLOCK"


__all__ = ["embedded", "inductor_launches", "with_generated"]
