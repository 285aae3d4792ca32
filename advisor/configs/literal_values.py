"""Values that an expression of a file can have besides Python's own: names of triton's, `tl.constexpr`, enumerations, configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.schema import LAUNCH_OPTIONS


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name of triton that is kept as written: `tl.float32`."""

    text: str


@dataclass(frozen=True, slots=True)
class Constexpr:
    """`tl.constexpr(value)`."""

    value: Any


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an enumeration."""

    value: Any


@dataclass(frozen=True, slots=True)
class Enumeration:
    """A class of constants, as of `enum`."""

    members: Mapping[str, Member]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigLiteral:
    """A `triton.Config(...)` of literals; `hook` where it names a `pre_hook`."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    hook: bool = False


def plain(value: Any) -> Any:
    """The value that a `tl.constexpr` or a member of an enumeration holds; any other as it is."""
    return value.value if isinstance(value, (Constexpr, Member)) else value


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
