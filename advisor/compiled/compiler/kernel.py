"""What to compile, what the compiler made of it, and why a kernel could not be compiled or read."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.gpus.hardware import GpuSpec
from advisor.python_source import language
from advisor.python_source.literal_values import Passed, Symbol
from advisor.python_source.rebuild import Rebuilt
from advisor.result.schema import LAUNCH_OPTIONS
from advisor.system.errors import InputError


class CompileError(InputError):
    """The compiler refused a kernel.

    Attributes:
        kind: "failed" (the compiler said no), "refused" (it would run Python), "absent" (whatever it is given, this Triton lacks what
            it names), "unsure" (the same of a name that it may not come to), "interfered" (what came back was no answer of the
            compiler's), "timeout", "crash".
    """

    longest_got = 400  # the compiler says what matters at the end

    def __init__(self, what: str, got: object = None, limit: str | None = None, remedy: str | None = None, kind: str = "failed") -> None:
        super().__init__(what, got, limit, remedy)
        self.kind = kind

    def __reduce__(self) -> tuple:
        return type(self), (self.what, self.got, self.limit, self.remedy, self.kind)


class IrError(InputError):
    """The compiler's text is not what this version of the advisor can read."""


AMD_OPTIONS = ("waves_per_eu", "matrix_instr_nonkdim", "kpack")
"""Options of AMD's compiler, which files write among the parameters of a `triton.Config`; on other GPUs a launch rejects them."""
OPTION_NAMES = (*LAUNCH_OPTIONS, *AMD_OPTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Arguments of `GPUTarget`."""

    backend: str
    arch: int | str
    warp_size: int = 32

    @classmethod
    def of(cls, gpu: GpuSpec) -> Target:
        """The target of a GPU."""
        backend, arch, warp_size = gpu.triton_target
        return cls(backend=backend, arch=arch, warp_size=warp_size)

    @property
    def name(self) -> str:
        """`sm_90` or `gfx942`."""
        return f"sm_{self.arch}" if self.backend == "cuda" else str(self.arch)


@dataclass(frozen=True, kw_only=True)
class CompileRequest:
    """One kernel with everything the compiler needs to know.

    Attributes:
        rebuilt: The modules that hold it.
        signature: Triton type per argument (`*fp16`, `i32`, `fp32`, `constexpr`, or a tuple's, `(i32,constexpr)`).
        constexprs: Value per argument of type `constexpr`, and per item of a tuple that is one (`strides.1`).
        divisible: Arguments known to be multiples of 16.
        options: num_warps, num_stages, num_ctas, maxnreg, ...
        sass: Whether the instruction mix is asked for too.
    """

    rebuilt: Rebuilt
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    divisible: frozenset[str] = frozenset()
    options: Mapping[str, Any] = field(default_factory=dict)
    target: Target
    sass: bool = True
    only: str | None = None  # "ttir": stop there (nothing of the target is known then)

    def message(self) -> dict[str, Any]:
        """The request as the worker reads it."""
        names = list(self.signature)
        return {
            "modules": self.rebuilt.modules,
            "positions": self.rebuilt.positions,
            "entry": self.rebuilt.entry,
            "kernel": self.rebuilt.kernel,
            "signature": {name: items_of(kind) or kind for name, kind in self.signature.items()},
            "constexprs": [[_path(k, names), encode(v)] for k, v in self.constexprs.items() if k.split(".")[0] in names],
            "attrs": [[_path(n, names), [["tt.divisibility", 16]]] for n in sorted(self.divisible) if n.split(".")[0] in names],
            "options": {k: v for k, v in self.options.items() if v is not None},
            "target": [self.target.backend, self.target.arch, self.target.warp_size],
            "sass": self.sass,
            "only": self.only,
        }

    def key(self, triton_version: str) -> str:
        """Name of the cached answer: everything that decides it."""
        text = json.dumps([_maker(), triton_version, self.message()], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def items_of(kind: str) -> list[str]:
    """The types in that of a tuple, `(i32,constexpr)`; none: it is no tuple's."""
    return kind[1:-1].split(",") if kind.startswith("(") else []


def _path(name: str, names: list[str]) -> list[int]:
    """The places by which Triton finds an argument (`n`), or an item of a tuple (`strides.1`)."""
    argument, _, item = name.partition(".")
    return [names.index(argument), *([int(item)] if item else [])]


@functools.cache
def _maker() -> str:
    """Digest of the program that compiles and answers: what another version of it answered is not taken from the cache."""
    here, names = Path(__file__), ("worker", "frontend", "backend", "guard", "failures", "block_pointers", "answers")
    parts = [here.with_name(f"{name}.py").read_bytes() for name in names] + [Path(language.__file__).read_bytes()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def encode(value: Any) -> Any:
    """A constant as JSON."""
    if isinstance(value, Symbol):
        return {"dtype": value.text.rsplit(".", 1)[-1]} if "." in value.text else {"name": value.text}
    if isinstance(value, Passed):
        return {"function": value.alias}
    if isinstance(value, (tuple, list)):
        return {"tuple": [encode(v) for v in value]}
    if isinstance(value, float) and value - value != 0:
        return {"float": str(value)}
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one CTA holds. None: the compiler does not say.

    `spill_bytes` is local memory per thread: spilled registers, and arrays that could not be kept in registers.
    """

    registers: int | None
    spill_bytes: int | None
    shared_memory_bytes: int
    num_warps: int


@dataclass(frozen=True, kw_only=True)
class CompiledKernel:
    """What the compiler made of one request."""

    name: str
    target: Target
    triton_version: str
    ttir: str = field(repr=False)
    ttgir: str = field(repr=False, default="")
    ptx: str = field(repr=False, default="")
    amdgcn: str = field(repr=False, default="")
    sass: str = field(repr=False, default="")
    resources: Resources
    metadata: Mapping[str, Any] = field(repr=False, default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)  # generated file name -> the author's file
    signature: Mapping[str, str] = field(default_factory=dict)
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_warps(self) -> int:
        """Warps per CTA, helper warps of warp specialization included."""
        return self.resources.num_warps

    @property
    def num_ctas(self) -> int:
        """CTAs that share the work of one program: a cluster."""
        return int(self.metadata.get("num_ctas") or self.options.get("num_ctas") or 1)

    @property
    def num_stages(self) -> int:
        """Depth of the software pipeline that was asked for."""
        return int(self.metadata.get("num_stages") or self.options.get("num_stages") or 3)
