"""The identity of a study, and the differences to the one asked for, in the words of the command.

A study keeps `SPACE GPU; SOURCE; LAUNCH[; LAUNCH…]` (`Decision.identity`); of two such texts only what differs is told.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

_LAUNCH = re.compile(
    r"(?P<op>\S+) (?P<sizes>\[.*?\]) (?P<dtype>\S+) (?P<cache>cold|warm) (?P<blocks>None|\(.*?\)) "
    r"(?P<routing>None|\(.*\))"
)
_RECORDED = re.compile(r"recorded rows (?P<rows>[0-9a-f]+), (?P<how>.*)")
_KERNEL = re.compile(r"(?P<kernel>\S+) (?P<file>[0-9a-f]+) on (?P<device>.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Identity:
    space: str
    gpu: str
    source: str
    launches: tuple[dict[str, str], ...]


def differences(known: str, own: str) -> tuple[str, str] | None:
    """Differences between how a study was made and what this run asks for; None: they are not such texts, or nothing differs."""
    before, now = _read(known), _read(own)
    if before is None or now is None:
        return None
    found: list[tuple[str, str]] = []
    if before.gpu != now.gpu:
        found.append((f"for {before.gpu}", now.gpu))
    if len(before.launches) == len(now.launches):
        for old, new in zip(before.launches, now.launches, strict=True):
            found += _of_launches(old, new)
    else:
        found.append((f"of {_count(before)}", _count(now)))
    problem = bool(found)
    found += _of_sources(before.source, now.source, rows=not problem)
    if before.space != now.space and not found:  # else it follows from that
        found.append((f"over other configurations ({before.space})", f"those of {now.space}"))
    found = list(dict.fromkeys(found))
    return (" and ".join(was for was, _ in found), " and ".join(asks for _, asks in found)) if found else None


def _count(identity: _Identity) -> str:
    operators = ", ".join(launch["op"] for launch in identity.launches)
    return f"{len(identity.launches)} launch{'es' if len(identity.launches) > 1 else ''} ({operators})"


def _read(text: str) -> _Identity | None:
    space, _, rest = text.partition(" ")
    gpu, *parts = rest.split("; ")
    if len(parts) < 2:
        return None
    launches = [_LAUNCH.fullmatch(part) for part in parts[1:]]
    if any(launch is None for launch in launches):
        return None
    return _Identity(space=space, gpu=gpu, source=parts[0], launches=tuple(launch.groupdict() for launch in launches if launch is not None))


def _of_launches(old: dict[str, str], new: dict[str, str]) -> list[tuple[str, str]]:
    found = []
    if old["op"] != new["op"]:
        found.append((f"of operator {old['op']}", new["op"]))
    if old["sizes"] != new["sizes"]:
        sizes = [dict(ast.literal_eval(each["sizes"])) for each in (old, new)]
        names = [name for name in {**sizes[0], **sizes[1]} if sizes[0].get(name) != sizes[1].get(name)]
        was, asks = (",".join(f"{name}={side.get(name, 'none')}" for name in names) for side in sizes)
        found.append((f"with {was}", asks))
    for name in ("dtype", "cache"):
        if old[name] != new[name]:
            found.append((f"with --{name} {old[name]}", new[name]))
    if old["blocks"] != new["blocks"]:
        found.append((_blocks(old["blocks"]), _blocks(new["blocks"])))
    if old["routing"] != new["routing"]:
        was = "uniform routing" if old["routing"] == "None" else "a --routing"
        asks = "uniform routing" if new["routing"] == "None" else "another --routing" if old["routing"] != "None" else "a --routing"
        found.append((f"with {was}", asks))
    return found


def _blocks(text: str) -> str:
    return "without blocks of scales" if text == "None" else f"with scales in blocks of {text.strip('()').replace(', ', ' x ')}"


def _of_sources(old: str, new: str, *, rows: bool) -> list[tuple[str, str]]:
    """`rows`: whether other recorded rows say something; those of another problem are others."""
    if old == new:
        return []
    kinds = [(_RECORDED.fullmatch(each), _KERNEL.fullmatch(each)) for each in (old, new)]
    (recorded, kernel), (recorded_now, kernel_now) = kinds
    if recorded and recorded_now:
        found = []
        if rows and recorded["rows"] != recorded_now["rows"]:
            found.append((f"on recorded rows {recorded['rows']}", f"rows {recorded_now['rows']}"))
        if rows and recorded["how"] != recorded_now["how"]:
            found.append((f"with {recorded['how']}", recorded_now["how"]))
        return found
    if kernel and kernel_now:
        found = []
        if kernel["kernel"] != kernel_now["kernel"]:
            found.append((f"with the kernel {kernel['kernel']}", kernel_now["kernel"]))
        elif kernel["file"] != kernel_now["file"]:
            found.append((f"with another version of the file of {kernel['kernel']}", "the file as it is now"))
        if kernel["device"] != kernel_now["device"]:
            found.append((f"on {kernel['device']}", f"on {kernel_now['device']}"))
        return found
    return [(f"on {_where(old)}", _where(new))]


def _where(source: str) -> str:
    if (kernel := _KERNEL.fullmatch(source)) is not None:
        return f"the device {kernel['device']}"
    return "recorded rows" if _RECORDED.fullmatch(source) else source
