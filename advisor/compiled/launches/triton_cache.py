"""Entries of Triton's own cache (`~/.triton/cache`, TRITON_CACHE_DIR): what was compiled, without the source and without the launch.

An entry holds the IR, the machine code and the options. It records neither grid nor sizes nor constants, so those stay unknown unless
they are given. The author's file is shown only where the IR's line numbers name a Python file that still has a `@triton.jit` function
of the kernel's name.
"""

from __future__ import annotations

import ast
import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.compiled.compiler.compile import read_resources
from advisor.compiled.compiler.kernel import OPTION_NAMES, CompiledKernel, CompileError, Target
from advisor.compiled.compiler.pool import Pool, borrowed
from advisor.compiled.demand.demand import read_demand
from advisor.compiled.guesses.inference import Given, Guess
from advisor.compiled.ir.ir import Module, parse
from advisor.compiled.launches.launch import Inspection, KernelLaunch, inputs_of, own_files
from advisor.compiled.launches.launch_options import LaunchOptions
from advisor.compiled.launches.target import grid_of
from advisor.python_source.source import SourceFile, read_source
from advisor.system.errors import InputError, NothingMatchedError, UsageError

MAX_BYTES = 64_000_000
"""Of one file of an entry."""
MOST_ENTRIES = 200
"""Newest entries of a cache that are looked at; name a folder of it, or a kernel, for others."""
UNRECORDED = "Triton's cache records neither grid nor sizes nor constants: where they are not given, figures are those of one program."
_ELEMENTS = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedKernel:
    """One entry: paths and metadata; the texts are read when it is looked at."""

    name: str
    folder: Path
    metadata: dict[str, Any]

    @property
    def id(self) -> str:
        """The kernel's name and the start of its hash."""
        return f"{self.name}-{str(self.metadata.get('hash') or self.folder.name)[:8]}"

    @property
    def target(self) -> Target:
        """What it was compiled for.

        Raises:
            InputError: The metadata do not say.
        """
        found = self.metadata.get("target")
        if not isinstance(found, dict) or found.get("backend") not in ("cuda", "hip") or not isinstance(found.get("arch"), (int, str)):
            raise InputError(f"{self.folder / self.name}.json names no target", str(found)[:80], "an entry of Triton's cache")
        return Target(backend=found["backend"], arch=found["arch"], warp_size=int(found.get("warp_size") or 32))

    def text(self, kind: str) -> str:
        """A text of the entry (`ttir`, `ptx`, ...); empty where there is none."""
        data = self.data(kind)
        return data.decode("utf-8", errors="replace") if data is not None else ""

    def data(self, kind: str) -> bytes | None:
        """A file of the entry; None where there is none, or it is too large."""
        path = self.folder / f"{self.name}.{kind}"
        try:
            return path.read_bytes() if path.is_file() and path.stat().st_size <= MAX_BYTES else None
        except OSError:
            return None


def is_cache_target(text: str) -> bool:
    """Whether a TARGET is a cache of Triton, a folder of one, or an entry's JSON; `::KERNEL` names one of its kernels."""
    path = Path(text.partition("::")[0])
    try:
        return next(_entries(path), None) is not None
    except (OSError, ValueError):
        return False


def cached_kernels(text: str) -> list[CachedKernel]:
    """The entries that a TARGET stands for, the newest first, at most MOST_ENTRIES.

    Raises:
        NothingMatchedError: None, or none of the kernel that is named.
    """
    name, _, kernel = text.partition("::")
    found = [entry for path in _entries(Path(name)) if (entry := _entry(path)) is not None and kernel in ("", entry.name)]
    if not found:
        raise NothingMatchedError(
            f"{name}: no entry of Triton's cache" + (f" for {kernel}" if kernel else ""),
            None,
            "folders with KERNEL.json and KERNEL.ttir",
            "name the cache's folder",
        )
    return found[:MOST_ENTRIES]


def _entries(path: Path) -> Iterator[Path]:
    """Paths of TTIR files at a path, newest first."""
    if path.suffix == ".json" and path.with_suffix(".ttir").is_file():
        yield path.with_suffix(".ttir")
    elif path.is_dir():
        here = [*path.glob("*.ttir"), *path.glob("*/*.ttir")]
        yield from sorted((p for p in here if p.with_suffix(".json").is_file()), key=lambda p: (-p.stat().st_mtime, p.name))


def _entry(path: Path) -> CachedKernel | None:
    try:
        described = path.with_suffix(".json")
        metadata = json.loads(described.read_bytes()) if described.stat().st_size <= MAX_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return CachedKernel(name=path.stem, folder=path.parent, metadata=metadata) if isinstance(metadata, dict) else None


def cached_launch(entry: CachedKernel, asked: LaunchOptions | None = None) -> KernelLaunch:
    """What is known of an entry's launch: nothing but what is given.

    Raises:
        UsageError: An option does not fit what is compiled already.
        IrError: The entry's IR cannot be read.
    """
    asked = asked or LaunchOptions()
    for option, value in (
        ("--constexpr", asked.constexprs),
        ("--signature", asked.signature),
        ("--element", asked.element),
        ("a launch option", asked.options),
        ("--toml", asked.toml),
        ("--sizes", asked.sizes),
        ("--op", asked.op),
        ("--dtype", asked.dtype),
    ):
        if value:
            raise UsageError(f"{option} is compiled in already", entry.id, "--arg, --content and --grid for an entry of Triton's cache")
    module = parse(entry.text("ttir"))
    names = _arguments(module)
    for name in (*asked.arguments, *asked.contents):
        if name not in names:
            raise UsageError(f"{entry.name} has no argument of that name", name, "one of " + ", ".join(names))
    source = _author(entry, module)
    return KernelLaunch(
        source=source,
        kernel=entry.name,
        given=Given(scalars=asked.arguments),
        contents=asked.contents,
        grid=grid_of(asked.grid, asked.arguments, source) if asked.grid else None,
    )


def _arguments(module: Module) -> dict[str, str]:
    """Triton's type by argument, as the IR has it."""
    found = {}
    for name, kind in zip(module.kernel.arguments, module.kernel.argument_types, strict=False):
        text = kind.text
        pointee = kind.pointee if text.startswith("!tt.ptr") else ""
        found[name.lstrip("%")] = f"*{_ELEMENTS.get(pointee, pointee)}" if pointee else _ELEMENTS.get(text, text)
    return found


def _author(entry: CachedKernel, module: Module) -> SourceFile:
    """The author's file, where it is there and still has the kernel; else an empty one in its place."""
    where = module.kernel.location
    if where is not None and where.file.endswith(".py"):
        try:
            source = read_source(where.file)
        except InputError:
            source = None
        if source is not None and entry.name in source.functions:
            return source
    return SourceFile(path=entry.folder / f"{entry.name}.ttir", text="", tree=ast.Module(body=[], type_ignores=[]))


def inspect_cached(entry: CachedKernel, launch: KernelLaunch, pool: Pool | None = None) -> Inspection:
    """Read an entry and count what a launch of it asks for.

    Raises:
        CompileError: Its machine code cannot be read.
        InputError, IrError: Its metadata or IR cannot be read.
    """
    ttir = entry.text("ttir")
    module = parse(ttir)
    compiled = _compiled(entry, launch, module, ttir, pool)
    guess = Guess(signature=compiled.signature, constexprs={}, options=compiled.options)
    demand = read_demand(ttir, launch.grid or (1,), inputs_of(launch, guess), own_files(compiled))
    return Inspection(launch=launch, compiled=compiled, demand=demand, guess=guess, attempts=())


def _compiled(entry: CachedKernel, launch: KernelLaunch, module: Module, ttir: str, pool: Pool | None) -> CompiledKernel:
    target, metadata, tools = entry.target, entry.metadata, {}
    asm = {kind: entry.text(kind) for kind in ("ttgir", "ptx", "amdgcn")}
    cubin = entry.data("cubin")
    if cubin is not None:
        with borrowed(pool) as workers:
            answer = workers.one({"cubin": base64.b64encode(cubin).decode(), "sass": True})
        if "error" in answer or "resources_error" in answer["tools"]:
            why = answer.get("error") or answer["tools"]["resources_error"]
            raise CompileError(f"{entry.id}: its machine code cannot be read", why, kind=str(answer.get("kind", "failed")))
        tools = answer["tools"]
    options = {name: metadata[name] for name in OPTION_NAMES if isinstance(metadata.get(name), int)}
    own = str(launch.source.path) if launch.source.text else None
    where = module.kernel.location
    return CompiledKernel(
        name=entry.name,
        target=target,
        triton_version=str(metadata.get("triton_version") or "unknown"),
        ttir=ttir,
        ttgir=asm["ttgir"],
        ptx=asm["ptx"],
        amdgcn=asm["amdgcn"],
        sass=tools.get("sass", ""),
        signature=_arguments(module),
        options=options,
        resources=read_resources(entry.name, target, metadata, asm, tools, options),
        metadata=metadata,
        origins={Path(where.file).name: own or where.file} if where is not None else {},
    )


def staleness(entry: CachedKernel, launch: KernelLaunch) -> str | None:
    """A warning where the source that is shown may not be what was compiled."""
    try:
        newer = launch.source.text and launch.source.path.stat().st_mtime > (entry.folder / f"{entry.name}.ttir").stat().st_mtime
    except OSError:
        return None
    return f"{entry.id}: {launch.source.path} has changed since this was compiled; its lines may not be those shown." if newer else None
