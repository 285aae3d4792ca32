"""`install()`: from then on libraries whose decorators are not ours are tuned by us, until `uninstall()`.

`triton.autotune` makes a `triton.runtime.Autotuner`, and libraries derive their own from that class: a `Tuner` takes its place, and
whatever they override is kept. A class with a policy of its own (its `run` never asks Triton's) keeps Triton's class beneath it.
"""

from __future__ import annotations

import abc
import atexit
import functools
import json
import os
import sys
import types
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import triton
from triton.runtime import autotuner

from advisor.autotuning.tuner import Tuner
from advisor.system import grouped
from advisor.system.errors import several

CENSUS = "ADVISOR_AUTOTUNE_CENSUS"
"""Environment variable: the file to which every process appends what became of its tuners, a JSON object a line."""

OWN_POLICY = "a policy of its own"
EARLIER = "of a class or a decorator from before install()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What became of one tuner of a program: taken, kept (as its library has it) or left; `why` where it was not taken.

    `how` is of its last decision, `measurements` and `seconds` of all; None and 0 where it was never called. `made`: the process that made
    it and its number there, which a forked child has too.
    """

    kernel: str
    of_class: str
    fate: str
    why: str = ""
    how: str | None = None
    measurements: int = 0
    seconds: float = 0.0
    default_us: float = 0.0  # of all its keys together, those of which both are known
    chosen_us: float = 0.0
    made: str = ""


_TRITONS = autotuner.Autotuner
_init = _TRITONS.__init__
_before: dict[tuple[types.ModuleType, str], Any] = {}
_made: list[tuple[weakref.ref[Any], str]] = []
_decided: dict[str, Fate] = {}  # of tuners that have decided, which need not be there any more


class _InPlaceOfTritons(abc.ABCMeta):  # a library may derive from an abstract class besides
    """Makes `isinstance(kernel, Autotuner)` hold for Triton's own too, and leaves classes with a policy of their own to Triton."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **more: Any) -> type:
        run = namespace.get("run")
        code = getattr(getattr(run, "__wrapped__", run), "__code__", None)
        if (
            code is not None
            and not {"super", "Autotuner"} & {*code.co_names}
            and any(isinstance(base, _InPlaceOfTritons) for base in bases)
        ):
            left = tuple(_TRITONS if base is Taken else base for base in bases)
            return types.new_class(name, left, more, lambda body: body.update(namespace))
        return super().__new__(mcs, name, bases, namespace, **more)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _TRITONS) if cls is Taken else super().__instancecheck__(instance)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, _TRITONS) if cls is Taken else super().__subclasscheck__(other)


class Taken(Tuner, metaclass=_InPlaceOfTritons):
    """A `Tuner` with the constructor of `triton.runtime.Autotuner`; timings are kept though the decorator says nothing of it."""

    def __init__(self, *args: Any, cache_results: bool | None = None, **kwargs: Any) -> None:
        super().__init__(*args, cache_results=cache_results or None, **kwargs)

    @property
    def says_what_it_won(self) -> bool:  # type: ignore[override]
        """Under `advisor run`."""
        return CENSUS in os.environ

    def _tell(self, decision: Any, timings: Any) -> None:
        super()._tell(decision, timings)
        if hasattr(self, "made"):
            _decided[self.made] = _fate(self, self.made)

    def __setstate__(self, state: dict[str, Any]) -> None:  # of a copy, as a library makes one for each card
        super().__setstate__(state)
        if hasattr(self, "made"):  # else it was made after uninstall()
            _made.append((weakref.ref(self), self.made))


def install() -> None:
    """Puts our tuner in the place of Triton's, for every decorator and class that comes after; a second call changes nothing.

    Under `advisor run`, what became of the program's tuners is written down when it ends.

    >>> import advisor
    >>> advisor.install()  # kernels that are decorated from here on are tuned by the advisor
    >>> advisor.uninstall()
    """
    if _before:
        return
    if (path := os.environ.get(CENSUS)) and not _made:
        atexit.register(_write, path)
    for module in (triton, triton.runtime, autotuner):
        if hasattr(module, "Autotuner"):
            _before[module, "Autotuner"] = module.Autotuner
            module.Autotuner = Taken

    @functools.wraps(_init)  # torch.compile reads its signature
    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        _init(self, *args, **kwargs)
        self.made = f"{os.getpid()}:{len(_made)}"
        _made.append((weakref.ref(self), self.made))

    _TRITONS.__init__ = counted


def uninstall() -> None:
    """Restores Triton's; kernels that were decorated meanwhile stay as they are.

    >>> import advisor
    >>> advisor.install()
    >>> advisor.uninstall()
    """
    for (module, name), value in _before.items():
        setattr(module, name, value)
    _before.clear()
    _TRITONS.__init__ = _init


def fates() -> list[Fate]:
    """What became of every tuner that was made since `install()` and has decided something, or is still there."""
    there = [_fate(tuner, made) for tuner, made in ((tuner(), made) for tuner, made in _made) if tuner is not None]
    return _one_each([*there, *_decided.values()])


def _fate(tuner: Any, made: str) -> Fate:
    kind = type(tuner)
    kernel, of_class = getattr(tuner.base_fn, "__name__", "?"), f"{kind.__module__}.{kind.__qualname__}"
    if not isinstance(tuner, Tuner):
        overrides = kind is not _TRITONS and any("run" in vars(base) for base in kind.__mro__[: kind.__mro__.index(_TRITONS)])
        fate, why = ("kept", OWN_POLICY) if overrides else ("left", EARLIER)
        return Fate(kernel=kernel, of_class=of_class, fate=fate, why=why, made=made)
    decided = [*tuner.decisions.values()]
    return Fate(
        kernel=kernel,
        of_class=of_class,
        fate="taken",
        how=tuner.decision.how if tuner.decision else None,
        measurements=sum(decision.measurements for decision in decided),
        seconds=sum(decision.duration_s or 0.0 for decision in decided),
        default_us=sum(decision.default_us for decision in decided if decision.default_us and decision.chosen_us),
        chosen_us=sum(decision.chosen_us for decision in decided if decision.default_us and decision.chosen_us),
        made=made,
    )


def read_census(lines: Iterable[str]) -> list[Fate]:
    """The fates that processes wrote down."""
    return _one_each(Fate(**json.loads(line)) for line in lines)


def _one_each(fates: Iterable[Fate]) -> list[Fate]:
    """Of a tuner that was copied, or that a forked child has too, what whoever did most with it says."""
    by_tuner: dict[str, Fate] = {}
    for fate in fates:
        by_tuner[fate.made] = max(
            by_tuner.get(fate.made, fate), fate, key=lambda candidate: (candidate.how is not None, candidate.measurements)
        )
    return [*by_tuner.values()]


def in_words(fates: Sequence[Fate]) -> str:
    """The fates of all tuners of a program in one line."""
    if not fates:
        return "no tuner was made: the program decorates no kernel with triton.autotune, or imports no Triton"
    taken = [fate for fate in fates if fate.fate == "taken"]
    text = f"{several(len(fates), 'tuner')}: {len(taken)} taken"
    for fate in ("kept", "left"):
        alike = [entry for entry in fates if entry.fate == fate]
        if alike:
            classes = sorted({entry.of_class for entry in alike})
            text += f", {len(alike)} {fate} ({', '.join(classes)}: {alike[0].why})"
    called = [entry for entry in taken if entry.how is not None]
    hows = {how: sum(entry.how == how for entry in called) for how in dict.fromkeys(entry.how for entry in called)}
    text += f"; {several(len(called), 'kernel')} decided"
    if called:
        text += f" ({', '.join(f'{count} {how}' for how, count in hows.items())})"
        text += f", {several(sum(entry.measurements for entry in called), 'measurement')} in {sum(entry.seconds for entry in called):.1f} s"
    return text


def won_in_words(fates: Sequence[Fate]) -> str:
    """What tuning won, kernel by kernel: the first configuration of its list against the chosen one, all keys together; empty where no
    kernel has both measured."""
    from advisor.rendering.figures import microseconds

    kernels = grouped((fate.kernel, fate) for fate in fates if fate.default_us and fate.chosen_us)
    clauses = []
    for kernel, tuners in kernels.items():
        default, chosen, seconds = (sum(getattr(entry, name) for entry in tuners) for name in ("default_us", "chosen_us", "seconds"))
        took = f", tuned in {seconds:.1f} s" if seconds else ", tuned before"
        clauses.append(f"{kernel} {microseconds(default)} to {microseconds(chosen)} µs ({default / chosen:.2f} times as fast{took})")
    return f"default to chosen configuration: {'; '.join(clauses)}" if clauses else ""


def _write(path: str) -> None:
    try:
        with open(path, "a", encoding="utf-8") as stream:  # noqa: PTH123 - one write, so that processes do not mix their lines
            stream.write("".join(json.dumps(asdict(fate)) + "\n" for fate in fates()))
    except OSError as error:
        print(f"advisor: warning: the summary of tuning failed ({error})", file=sys.stderr)
