"""What changed between two versions of a kernel in how its files launch it, and beside its body, in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from advisor.comparison.kernels.kernel_digest import arguments_changed, own_tree, without_local_names
from advisor.comparison.kernels.kernel_version import KernelVersion, Launching
from advisor.comparison.kernels.launch_digest import (
    ALWAYS,
    GRID,
    LONGEST,
    MOST_NAMED,
    SPREAD,
    LaunchDigest,
    Renamed,
    host_trees,
    launch_digest,
    parted,
    renamed_names,
    written,
)
from advisor.comparison.kernels.tuners import prunes_otherwise
from advisor.compiled.launches.provenance import named
from advisor.python_source.bindings import arguments, call_arguments, is_none, own_names
from advisor.python_source.jit_function import MISSING, JitFunction
from advisor.python_source.language import dotted
from advisor.python_source.launch_site import LaunchSite
from advisor.rendering.figures import shortened
from advisor.result.schema import LAUNCH_OPTIONS
from advisor.system import grouped
from advisor.system.resources import phrase


@dataclass(frozen=True, slots=True)
class Retyped:
    """A tensor of another type than before.

    Attributes:
        name: Which argument of the kernel.
        kinds: What the two sides say of its type: "int32", or "that of x".
        like: Which argument has the type that one of them does not say.
    """

    name: str
    kinds: tuple[str, str]
    like: str

    def types_for(self, side: int, types: Mapping[str, str]) -> dict[str, str]:
        """Types that are said of arguments, for the launch of a side (0: the base): what that says itself of the tensor stands."""
        if not self.kinds[side].startswith(_THAT_OF):
            return {name: kind for name, kind in types.items() if name != self.name}
        return {**types, self.name: types[self.like]} if self.like in types else {**types}


_THAT_OF = "that of"


def _of_types(types: Sequence[Retyped]) -> str:
    return ", and ".join(f"the type of {item.name} {' → '.join(item.kinds)}" for item in types)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedLaunch:
    """A file that launches a kernel otherwise than it did, or than the file did that it was launched in before.

    Attributes:
        old, new: Its launches.
        words: What changed.
        names: Options and constants that both take, and "grid", for which other expressions are passed, by name or among others in
            `**options`, or that hang on code that changed.
        code: Whether other code changed too that what is passed is worked out from.
        types: Which tensors of other types are passed.
    """

    old: Launching
    new: Launching
    words: str
    names: frozenset[str]
    code: bool
    types: tuple[Retyped, ...] = ()

    @property
    def retyped(self) -> str:
        """Which tensors of other types are passed, in words; "": none."""
        return _of_types(self.types)


@lru_cache(maxsize=4)
def changed_launches(old: KernelVersion, new: KernelVersion) -> tuple[ChangedLaunch, ...]:
    """What changed in how a kernel is launched.

    Files are compared with what they were. Where one no longer launches the kernel and one does that did not, the launch moved; what
    launches it besides, a test or a benchmark, say, or no longer does, changes no launch.
    """
    before, after = ({item.where: item for item in version.launching} for version in (old, new))
    pairs = [(before[where], launching) for where, launching in after.items() if where in before]
    lost, gained = ([one[where] for where in one if where not in other] for one, other in ((before, after), (after, before)))
    if len(lost) == len(gained) == 1:
        pairs.append((lost[0], gained[0]))
    if not pairs:
        return ()
    former, function = old.function, new.function
    constants = {*former.constants, *function.constants}  # what is one on one side alone is passed by both
    options = constants | {*LAUNCH_OPTIONS, SPREAD, GRID}
    out = []
    for one, other in pairs:
        more = (_none(former, one) ^ _none(function, other)) | _of_others(former, one) | _of_others(function, other)
        by_one = _given_by_one(former, one, function, other)
        more |= _worked_out(former, one, function, other) | by_one
        tunable = options | more
        renamed = renamed_names(one.source.module_names, other.source.module_names)
        digests = launch_digest(former, one, tunable, renamed), launch_digest(function, other, tunable)
        hangs = partial(_alone_differs, former, function, one, other, renamed)
        differing = _differing(*digests, hangs)
        if by_one and (differing is None or by_one.isdisjoint(differing[0])):  # whatever else has its value now
            gone = [name for name in [*digests[0].passed, *digests[1].passed] if (name in digests[0].passed) != (name in digests[1].passed)]
            differing = [*dict.fromkeys([*(differing or ([], []))[0], *gone])], (differing or ([], []))[1]
        retyped = _retyped(former, one, function, other)
        if differing is None and retyped:
            out.append(ChangedLaunch(old=one, new=other, words=_of_types(retyped), names=frozenset(), code=False, types=retyped))
        if differing is not None:
            names, code = differing
            handed = _handed(other, digests) if names else set()  # by functions that it moved to
            names = [name for name in names if name not in handed]
            otherwise: list[str] = []
            one_sided = digests[0].host.keys() ^ digests[1].host.keys()  # by one side alone: what both files have did not change for that
            texts = [{name: host_trees(side, name) for name in code} for side in (one, other)]
            same = {name for name in code if texts[0][name] == texts[1][name] or name in one_sided}
            code = [name for name in code if name not in same or not texts[0][name] or not texts[1][name]] or ([] if names else code)
            both = sorted(digests[0].passed.keys() & digests[1].passed.keys())
            hanging = list(filter(hangs, both)) if not names and SPREAD not in both else []
            whatever = (
                launch_digest(former, one, tunable, renamed, conditions=False),
                launch_digest(function, other, tunable, conditions=False),
            )
            anyway = _differing(*whatever, hangs)
            where_alone = code if names and not (anyway or ([], []))[1] else []  # where it is called under other conditions
            parts = [_in_words(*digests, names, code if not where_alone else [], hanging)] if names or not handed else []
            if handed:
                what = named("the grid" if name == GRID else name for name in sorted(handed))
                parts.append(f"it is made by {_listed(sorted(digests[1].launching - digests[0].launching))} now, which is handed {what}")
            words = ", and ".join(parts)
            words += f", and {_listed(where_alone)} makes it under other conditions" if where_alone else ""
            if words.startswith(CODE) and _alone_given(former, one, function) != _alone_given(function, other, former):
                words = f"{APART}{words}"
            anew = {name for name in both if _rebound(former, one, name) != _rebound(function, other, name)}
            by_name = {text for side in digests for name in names for text in side.passed.get(name, ())}  # of which it is said already
            anew |= {GRID} if names and GRID in both and hangs(GRID, apart=by_name) else set()
            if names and (otherwise := [name for name in both if name in anew and name not in names]):
                words += f", and {named('the grid' if name == GRID else name for name in otherwise)}, worked out otherwise"
            if not names and not handed:  # else the values that it passes changed
                where = [_where(side) for side in (one, other)]
                if where[0] != where[1]:
                    besides = f", and {words.removeprefix(APART)}" if _differing(*whatever) is not None else ""
                    words, code, hanging = f"it is made {where[0]} → {where[1]}{besides}", [], []
                elif _differing(*whatever) is None and where[1] != ALWAYS:
                    within = f" in {_listed(code)}" if code else ""
                    words, code, hanging = f"it is made {where[1]}, which is worked out otherwise than before{within}", [], []
            alone = {name for name in constants | more if not (former.parameter(name) and function.parameter(name))}
            spread = digests[0].unnamed | digests[1].unnamed if SPREAD in names else frozenset[str]()
            both_take = frozenset([*names, *otherwise, *spread, *handed] or hanging) - alone
            if retyped:
                words = f"{_of_types(retyped)}, and {words}"
            out.append(ChangedLaunch(old=one, new=other, words=words, names=both_take, code=bool(code) and not hanging, types=retyped))
    return tuple(out)


def _handed(launching: Launching, digests: tuple[LaunchDigest, LaunchDigest]) -> set[str]:
    """What both sides' launches pass, and the second one's functions, which launched nothing before, are handed by their callers."""
    moved = digests[1].launching - digests[0].launching
    functions = [scopes[0] for scopes, _ in launching.calls if scopes]
    if not moved or {getattr(function, "name", "") for function in functions} - moved:
        return set()
    given = set.intersection(*(arguments(function) for function in functions)) | {"triton", "cdiv"}
    both = digests[0].passed.keys() & digests[1].passed.keys() - {SPREAD}
    return {name for name in both if all(given.issuperset(re.findall(r"[A-Za-z_]\w*", text)) for text in digests[1].passed[name])}


def _none(function: JitFunction, launching: Launching) -> set[str]:
    """The arguments for which all launches of a file pass None: another code, where the others pass a tensor."""
    sides = [call_arguments(function.node, call)[0] for _, call in launching.calls]
    return {name for name in set().union(*sides) if all(name in side and is_none(side[name]) for side in sides)}


def _worked_out(former: JitFunction, one: Launching, function: JitFunction, other: Launching) -> set[str]:
    """The arguments of both kernels for which launches pass other expressions, whatever the names in these are: `x.stride(0)` where it was
    `x.stride(1)`. Of a name that a function gives its value that value is no part."""
    sides = []
    for kernel, launching in ((former, one), (function, other)):
        passed: dict[str, set[str]] = {}
        for scopes, call in launching.calls:
            for name, node in call_arguments(kernel.node, call)[0].items():
                local = {*own_names(scopes)}
                passed.setdefault(name, set()).update(without_local_names([node], local))
        sides.append(passed)
    return {name for name in sides[0].keys() & sides[1].keys() if sides[0][name] != sides[1][name]}


def _retyped(former: JitFunction, one: Launching, function: JitFunction, other: Launching) -> tuple[Retyped, ...]:
    """The tensors that all launches of a file pass, of another type than before, where one side at least says it, both where other
    functions launch it now: what these are given has the type that it had."""
    sides: list[dict[str, set[str]]] = []
    arguments_given, asserted = set[str](), dict[str, str]()
    for kernel, launching in ((former, one), (function, other)):
        passed: dict[str, set[str]] = {}
        for scopes, call in launching.calls:
            site = LaunchSite(launching.source, kernel, scopes, call, None, None)
            for name, tensor in site.tensors_passed().items():
                passed.setdefault(name, set()).add(tensor.kind)
                asserted |= {tensor.kind: tensor.element} if tensor.element and tensor.kind != tensor.element else {}
                arguments_given |= {name} if tensor.given else set()
        sides.append(passed)
    before, after = (
        {name: asserted.get(kind, kind) for name, kinds in side.items() if len(kinds) == 1 for kind in kinds} for side in sides
    )
    both = {name: (before[name], after[name]) for name in before if before[name] and after.get(name) and before[name] != after[name]}
    functions = [{getattr(scopes[-1], "name", "") for scopes, _ in launching.calls if scopes} for launching in (one, other)]
    same_functions = functions[0] == functions[1]
    out = []
    for name, kinds in both.items():
        open_kinds = [(kind, side) for kind, side in zip(kinds, (before, after), strict=True) if kind.startswith(_THAT_OF)]
        like = (
            argument for kind, side in open_kinds for argument, its in side.items() if its == kind and argument in arguments_given - {*both}
        )
        out += [Retyped(name, kinds, next(like, name))] if len(open_kinds) < (2 if same_functions else 1) else []
    return tuple(out)


def _alone_given(function: JitFunction, launching: Launching, other: JitFunction) -> set[str]:
    """What the launches of a file pass for arguments that another version of the kernel does not take, whatever the names in it are."""
    passed = [(scopes, call_arguments(function.node, call)[0]) for scopes, call in launching.calls]
    alone = ((scopes, node) for scopes, given in passed for name, node in given.items() if other.parameter(name) is None)
    return {text for scopes, node in alone for text in without_local_names([node], {*own_names(scopes)})}


def _given_by_one(former: JitFunction, one: Launching, function: JitFunction, other: Launching) -> set[str]:
    """The arguments of both kernels, no constants and without a default, that all launches of one side pass, and not those of the other:
    these fail."""
    sides = [[call_arguments(kernel.node, call) for _, call in it.calls] for kernel, it in ((former, one), (function, other))]
    if any(spread for side in sides for _, spread in side) or not all(sides):
        return set()
    given = [set.intersection(*({*passed} for passed, _ in side)) for side in sides]
    needed = [{item.name for item in kernel.parameters if item.default is MISSING} - kernel.constants for kernel in (former, function)]
    return (given[0] ^ given[1]) & needed[0] & needed[1]


def _of_others(function: JitFunction, launching: Launching) -> set[str]:
    """What launches pass by names that are no argument's, nor options': those of another vendor's Triton, say."""
    words = {word.arg for _, call in launching.calls for word in call.keywords if word.arg}
    return {word for word in words - {*LAUNCH_OPTIONS} if function.parameter(word) is None}


def _rebound(function: JitFunction, launching: Launching, name: str) -> list[tuple[str, ...]]:
    """The statements, each under its conditions, that give something to a name which launches of a file pass as it is, where their
    function has several above the launch: what one alone gives it is passed in its place."""
    graph = launching.source.module_names
    out: list[tuple[str, ...]] = []
    for scopes, call in launching.calls:
        value = call_arguments(function.node, call)[0].get(name)
        binders = graph.binders(scopes[-1]).get(name, ()) if value is not None and written(value) == name and scopes else ()
        nodes = [node for node in binders if getattr(node, "lineno", 0) <= call.lineno]
        texts = [graph.giving(node) for node in nodes]
        tests = [[written(test) for test, _ in graph.conditions(node)] for node in nodes]
        out += [(*test, text) for test, text in zip(tests, texts, strict=True)] if len({*texts}) > 1 else [(text,) for text in {*texts}]
    return out


def _alone_differs(
    former: JitFunction,
    function: JitFunction,
    one: Launching,
    other: Launching,
    renamed: Renamed,
    name: str,
    *,
    apart: Set[str] = frozenset(),
) -> bool:
    """Whether what launches pass for one name changed, whatever else they pass, and whatever names that are `apart` are."""
    with_conditions = name != GRID
    old = launch_digest(former, one, {name}, renamed, conditions=with_conditions, apart=apart)
    return _differing(old, launch_digest(function, other, {name}, conditions=with_conditions, apart=apart)) is not None


def _where(launching: Launching) -> str:
    """Under which conditions a file launches a kernel, in words: as they are written."""
    graph = launching.source.module_names
    tests = [[(written(test), wanted) for test, wanted in graph.conditions(call)] for _, call in launching.calls]
    every = [" and ".join(text if wanted else f"not ({text})" for text, wanted in each_call) for each_call in tests]
    return f"where {' or '.join(dict.fromkeys(shortened(text, LONGEST) for text in every))}" if all(every) else ALWAYS


def _differing(old: LaunchDigest, new: LaunchDigest, hangs: Callable[[str], bool] | None = None) -> tuple[list[str], list[str]] | None:
    """The names for which launches pass other expressions that `hangs` holds of, and the functions whose code changed besides; None:
    nothing changed, but for names of functions and of what they work out. Without `hangs` it does not matter for which name they pass
    what."""
    gone, came = old.host.keys() - new.host.keys(), new.host.keys() - old.host.keys()
    both = old.host.keys() & new.host.keys()
    elsewhere = [sorted(host[name] for name in names) for host, names in ((old.host, gone), (new.host, came))]
    same = elsewhere[0] == elsewhere[1] and all(old.host[name] == new.host[name] for name in both)
    if same and hangs is None:
        return None
    differ = {name for name in both if not _only_more(old.host[name], new.host[name])}
    if gone and came and not _only_more(*({host[name] for name in names} for host, names in ((old.host, gone), (new.host, came)))):
        differ |= gone | came
    names = [name for name in dict.fromkeys([*old.passed, *new.passed]) if len({*map(frozenset, _texts(old, new, name))}) > 1]
    if old.spread != new.spread:  # what one side names, the other may have there
        names = [name for name in names if name not in old.unnamed | new.unnamed]
    names = list(filter(hangs, names))
    if same:  # all that is passed, under other names: those of arguments alone are no change
        alone = [{name: side.passed[name] for name in side.passed if name not in other.passed} for side, other in ((old, new), (new, old))]
        renamed = sorted(alone[0].values()) == sorted(alone[1].values()) and {*names} <= {*alone[0], *alone[1]} - {*LAUNCH_OPTIONS}
        names = [] if renamed else names
        return (names, []) if names else None
    if not names and not differ:
        return None
    return names, sorted(((differ | gone | came) if not names else differ - old.launching - new.launching) - {""})


def _in_words(old: LaunchDigest, new: LaunchDigest, names: Sequence[str], code: Sequence[str], hanging: Sequence[str]) -> str:
    parts = [_way(name, *_texts(old, new, name)) for name in names]
    if code:
        what = [f"the {name}" if name == GRID else name for name in hanging]
        parts.append(f"{CODE}of {_listed(code)}" + (f", on which {named(what)} depend" + "s" * (len(what) == 1)) * bool(what))
    return ", and ".join(parts or [f"{CODE}around it"])


def _only_more(one: Iterable[Any], other: Iterable[Any]) -> bool:
    """Whether there is nothing but launches more or less: those of a test, say, which pass what others pass."""
    return set(one) <= set(other) or set(other) <= set(one)


def _texts(old: LaunchDigest, new: LaunchDigest, name: str) -> list[tuple[str, ...]]:
    """What the launches of two sides pass for a name: what its names are given, but as it is written where that is not known of both."""
    values = [side.assigned.get(name, ()) for side in (old, new)]
    written = [side.passed.get(name, ()) for side in (old, new)]
    unknown = any(text.isidentifier() and text in texts for side, texts in zip(values, written, strict=True) for text in side)
    return written if unknown and written[0] == written[1] else values


def _way(name: str, old: Sequence[str], new: Sequence[str]) -> str:
    """From what to what, of several launches those that pass something else."""
    gone, came = [text for text in old if text not in new], [text for text in new if text not in old]
    if (gone and came) or not (old and new):
        return " → ".join(_apart(name, gone, came))
    return f"no longer {_text(name, gone)}" if gone else f"also {_text(name, came)}"


def _apart(name: str, old: Sequence[str], new: Sequence[str]) -> tuple[str, str]:
    """What two sides pass for a name, in words; where those are the same up to where they are cut off, from where they part."""
    texts = _text(name, old), _text(name, new)
    if texts[0] != texts[1] or len(old) != 1 or len(new) != 1:
        return texts
    former, now = parted(old[0], new[0])
    return f"{name}={former}", f"{name}={now}"


def _text(name: str, passed: Sequence[str]) -> str:
    values = " or ".join(shortened(text.strip("{}") if name == SPREAD else text, LONGEST) for text in passed)
    return (values or "nothing") if name == SPREAD else f"{name}={values}" if values else f"no {name}"


SAME = "The kernel is the same; its launch"
"""Begins the note on a launch that changed where the kernel did not."""
CODE, WORKED_OUT = "the code ", " changed: whether other values come of it is not judged"
"""Begin and end that code changed which works out what a launch passes, and that is written as before."""
COMPARED = " changed: what it gives at the sizes above is compared"
"""Ends that where both sides were predicted with what it gives."""
APART = "but for arguments that came or went, and "
"""Begins that in place of `CODE` where the launch passes other ones for arguments that one version of the kernel alone takes."""


def launch_notes(changed: Sequence[ChangedLaunch], same: bool, compared: bool) -> list[str]:
    """How launches of a kernel changed, `same`: while it did not; `compared`: both sides were predicted as they launch it."""
    end = COMPARED if compared else WORKED_OUT
    how = SAME if same else "The launch"
    alike = grouped((launch.words, launch.new.where or "its file") for launch in changed)
    notes = []
    for words, files in alike.items():
        code = f"is written as before, {'' if words.startswith(APART) else 'and '}{words}{',' * (' depend' in words)}{end}"
        notes.append(f"{how} in {_listed(files)} {code if words.startswith((CODE, APART)) else f'changed: {words}'}.")
    return notes


def _listed(names: Sequence[str]) -> str:
    """The first of some names."""
    return f"{', '.join(names[:MOST_NAMED])}{', …' if len(names) > MOST_NAMED else ''}"


def changed_by_hand(old: KernelVersion | None, new: KernelVersion | None) -> list[str]:
    """What changed beside the body: the arguments, the key by which a kernel is tuned anew, and what prunes its list."""
    if old is None or new is None:
        return []
    named_elsewhere = _passed(old) | _passed(new) if old.launching and new.launching else None
    notes = list(arguments_changed(old.function, new.function, named_elsewhere))
    keys = [side.function.autotune.key if side.function.autotune is not None else None for side in (old, new)]
    if keys[0] is not None and keys[1] is not None and set(keys[0]) != set(keys[1]):
        less = ", ".join(name for name in keys[0] if name not in keys[1])
        less = less if set(keys[1]) < set(keys[0]) <= {parameter.name for parameter in new.function.parameters} else ""
        less = less if new.function.heuristics.keys().isdisjoint(set(keys[0]) - set(keys[1])) else ""  # it hangs on other arguments
        consequence = f" Calls that differ in {less} alone run with one configuration now, that of the first of them." if less else ""
        notes.append(f"The key of its autotuning changed: {', '.join(keys[0]) or 'none'} → {', '.join(keys[1]) or 'none'}.{consequence}")
    heuristics = [side.function.heuristics.keys() for side in (old, new)]
    for word, names in (("gives", heuristics[1] - heuristics[0]), ("no longer gives", heuristics[0] - heuristics[1])):
        notes += [f"@triton.heuristics {word} {', '.join(sorted(names))}."] if names else []
    rules = [{name: _rule(node) for name, node in side.function.heuristics.items()} for side in (old, new)]
    gone, came = ({*one.function.names} - {*other.function.names} for one, other in ((old, new), (new, old)))
    called = [(repr(before), repr(after)) for before in gone for after in came]  # an argument of another name is another no more
    alike = {name for name, rule in rules[0].items() if any(rule.replace(*pair) == rules[1].get(name) for pair in (*called, ("", "")))}
    if otherwise := sorted(rules[0].keys() & rules[1].keys() - alike):
        notes.append(f"What @triton.heuristics gives for {', '.join(otherwise)} is worked out otherwise.")
    others = [_decorators(side.function) for side in (old, new)]
    for word, names in (("It is now decorated with", others[1] - others[0]), ("It is no longer decorated with", others[0] - others[1])):
        notes += [f"{word} {', '.join(sorted(names))}."] if names else []
    if pruning := prunes_otherwise(old, new):
        notes.append(f"What prunes its configurations changed: {pruning}.")
    return notes


def _passed(version: KernelVersion) -> set[str]:
    """The arguments that launches of a kernel name, or its configurations and heuristics do."""
    calls = [call for launching in version.launching for _, call in launching.calls]
    tuned = {name for configuration in version.configurations for name in configuration.parameters}
    return tuned.union(version.function.heuristics, *(call_arguments(version.function.node, call)[0] for call in calls))


def _rule(function: Any) -> str:
    """What a function of `@triton.heuristics` does, whatever it and its argument are called."""
    return "".join(without_local_names([function], arguments(function) | {getattr(function, "name", "")}))


def _decorators(function: JitFunction) -> set[str]:
    """The names of a kernel's decorators, but for Triton's own."""
    names = {dotted(getattr(item, "func", item)) for item in function.node.decorator_list}
    return {name for name in names if name.rpartition(".")[2] not in ("jit", "autotune", "heuristics")} - {""}


def unread_body(old: KernelVersion | None, new: KernelVersion | None, differ: bool) -> list[str]:
    """That no prediction tells of a body that changed, alone or beside the configurations (`differ`: of those that are compared)."""
    if old is None or new is None:
        return []
    alone = old.named == new.named and not differ
    return [phrase("answer.body")] if alone or own_tree(old.function.node) != own_tree(new.function.node) else []
