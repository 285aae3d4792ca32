"""Values that an expression of a file can have besides Python's own: names of triton's, `tl.constexpr`, configurations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.result.schema import LAUNCH_OPTIONS


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name of triton that is kept as written: `tl.float32`."""

    text: str


@dataclass(frozen=True, slots=True)
class TorchType:
    """A type of torch's by its name: `torch.float8_e4m3fn`."""

    name: str


@dataclass(frozen=True, slots=True)
class Limits:
    """`torch.finfo(kind)` or `torch.iinfo(kind)`."""

    kind: Any


@dataclass(frozen=True, slots=True)
class Passed:
    """A jitted function that a kernel was given as a constant: its name in the file that was recorded as `path`."""

    name: str
    path: str

    @property
    def alias(self) -> str:
        """What it is called beside the kernel, whatever its own file and the kernel's call it."""
        return f"passed_{hashlib.sha256(self.path.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}_{self.name}"


def passed_in(values: Iterable[Any]) -> list[Passed]:
    """The functions among constants, those within tuples too."""
    functions: list[Passed] = []
    for value in values:
        functions += [value] if isinstance(value, Passed) else passed_in(value) if isinstance(value, (tuple, list)) else []
    return functions


@dataclass(frozen=True, slots=True)
class Constexpr:
    """`tl.constexpr(value)`."""

    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigLiteral:
    """A `triton.Config(...)` of literals; `hook` where it names a `pre_hook`."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    hook: bool = False

    @property
    def options(self) -> dict[str, int]:
        """Its launch options, those that few configurations set only where this one does."""
        rare = {"num_ctas": self.num_ctas if self.num_ctas != 1 else None, "maxnreg": self.maxnreg}
        return {"num_warps": self.num_warps, "num_stages": self.num_stages, **{name: value for name, value in rare.items() if value}}


def plain(value: Any) -> Any:
    """The value that a `tl.constexpr` holds; any other as it is."""
    return value.value if isinstance(value, Constexpr) else value


def config_literal(arguments: list, keywords: dict[str, Any], hook: bool = False) -> ConfigLiteral:
    """What `triton.Config(*arguments, **keywords)` is."""
    values = dict(zip(("kwargs", *LAUNCH_OPTIONS), map(plain, arguments), strict=False))
    values.update({k: plain(v) for k, v in keywords.items()})
    parameters = {str(k): plain(v) for k, v in dict(values.get("kwargs") or {}).items()}
    return ConfigLiteral(
        parameters=parameters,
        num_warps=int(values.get("num_warps") or 4),
        num_stages=int(values["num_stages"] if values.get("num_stages") is not None else 3),
        num_ctas=int(values.get("num_ctas") or 1),
        maxnreg=int(values["maxnreg"]) if values.get("maxnreg") else None,
        hook=hook,
    )
