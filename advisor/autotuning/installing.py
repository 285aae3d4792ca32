"""Taking the place of `triton.autotune`, and of the class behind it, in programs whose decorators are not ours to change.

`triton.runtime.Autotuner` is replaced by a subclass of `Tuner`: Triton's own decorator makes that then, and what libraries derive from
it keeps all that it overrides. A class whose `run` never comes back to its base chooses by a policy of its own, and stays Triton's.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import json
import os
import weakref
from collections import Counter
from collections.abc import Mapping
from types import CodeType
from typing import Any

import triton
from triton.runtime import autotuner
from triton.runtime.autotuner import Autotuner as Theirs

from advisor.autotuning.decorator import autotune
from advisor.autotuning.tuner import Tuner

_replaced: list[tuple[Any, str, Any, Any]] = []  # owner, name, Triton's, ours
_seen: weakref.WeakKeyDictionary[Any, tuple[str, str]] = weakref.WeakKeyDictionary()  # tuner → what became of it, and where from or why
_inherited: Counter[tuple[str, str]] = Counter()  # of the process that this one was forked from, which counts it itself


def install() -> None:
    """Has `triton.autotune`, and the classes derived from Triton's tuner from now on, choose as `advisor.autotune` does.

    To be called before the libraries are imported whose kernels it is for; ADVISOR_AUTOTUNE names the mode. A second call does nothing.
    """
    if _replaced:
        return
    places: list[tuple[Any, str, Any]] = [(Theirs, "__init__", _counting)]
    for module in (autotuner, triton.runtime, triton):
        places += [(module, "Autotuner", Installed), (module, "autotune", autotune)]
    for owner, name, ours in places:
        if hasattr(owner, name):  # `triton` itself has no Autotuner
            _replaced.append((owner, name, getattr(owner, name), ours))
            setattr(owner, name, ours)


def uninstall() -> None:
    """Puts back what `install` replaced, but for what somebody else has replaced since; kernels decorated meanwhile stay as they are."""
    while _replaced:
        owner, name, before, ours = _replaced.pop()
        if getattr(owner, name) is ours:
            setattr(owner, name, before)


def is_own_policy(namespace: Mapping[str, Any]) -> bool:
    """Whether a class's body holds a `run` that launches without its base's: neither `super` nor the base is named in it."""
    code = getattr(namespace.get("run"), "__code__", None)
    return isinstance(code, CodeType) and not _named(code) & {"super", "Autotuner"}


def _named(code: CodeType) -> set[str]:
    return {*code.co_names}.union(*(_named(each) for each in code.co_consts if isinstance(each, CodeType)))


class _Kind(abc.ABCMeta):  # so that a class may derive from an abstract one besides
    """Whatever is one of Triton's class is one of the class in its place; who has a policy of their own derive from Triton's."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **more: Any) -> Any:
        if is_own_policy(namespace) and Installed in bases:
            return type(name, tuple(Theirs if base is Installed else base for base in bases), namespace, **more)
        return super().__new__(mcs, name, bases, namespace, **more)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Theirs) if cls is Installed else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, Theirs) if cls is Installed else super().__subclasscheck__(subclass)


class Installed(Tuner, metaclass=_Kind):
    """`triton.runtime.Autotuner`, where it is installed."""

    @functools.wraps(Theirs.__init__)  # the signature is Triton's, which torch.compile reads
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


_their_init = Theirs.__init__


@functools.wraps(_their_init)
def _counting(self: Any, *args: Any, **kwargs: Any) -> None:
    """`Autotuner.__init__`, which every tuner comes by, and what becomes of it."""
    _their_init(self, *args, **kwargs)
    chooses = next(kind for kind in type(self).__mro__ if "run" in vars(kind))
    if is_own_policy(vars(chooses)) and chooses not in (Theirs, Tuner):
        _seen[self] = ("kept", f"{chooses.__name__} has a policy of its own")
    elif isinstance(self, Tuner):
        _seen[self] = ("taken", str(getattr(self.base_fn, "__module__", "")).partition(".")[0])
    else:
        _seen[self] = ("left", f"{type(self).__name__} was there before install()")


def summary() -> Counter[tuple[str, str]]:
    """What this process did: how many tuners were taken (of which package), kept or left (why); keys decided (how), and their seconds."""
    found: Counter[tuple[str, str]] = Counter(_seen.values())
    for tuner in list(_seen):
        for decision in getattr(tuner, "decisions", {}).values():
            found["decided", decision.how] += 1
            found["seconds", decision.how] += decision.duration_s or 0.0  # type: ignore[assignment]
    return found - _inherited


def tell(path: str) -> None:
    """Appends the summary to a file, as one line."""
    line = json.dumps([[*name, count] for name, count in summary().items()]) + "\n"
    with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as stream:  # noqa: PTH123 - the program is ending
        stream.write(line)


def _forked() -> None:
    _inherited.clear()
    _inherited.update(summary())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

__all__ = ["Installed", "install", "is_own_policy", "summary", "tell", "uninstall"]
