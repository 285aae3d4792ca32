"""What the functions around kernels call and launch, compared as it is written; and which other kernel may be launched in one's place."""

from __future__ import annotations

import builtins
import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from advisor.comparison.kernels.importers import TESTS
from advisor.comparison.kernels.kernel_digest import own_tree
from advisor.comparison.kernels.kernel_version import KernelVersion
from advisor.comparison.kernels.launch_digest import LONGEST, names_changed, parted, with_names, written
from advisor.gpus.hardware import GpuSpec
from advisor.python_source.bindings import (
    Call,
    Definition,
    Expression,
    Function,
    names_in,
    returns_before,
)
from advisor.python_source.kernel_forms import alternatives
from advisor.python_source.language import dotted
from advisor.python_source.launch_site import LaunchSite
from advisor.python_source.launch_sites import LaunchCall
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.module_names import ModuleNames
from advisor.rendering.figures import shortened
from advisor.system import grouped

MOST_NAMED = 8
"""Calls that a note names."""
PROBES = (0, 1, 2**20)
"""Stand for sizes and flags that are not known, to see whether a condition hangs on them."""
MOST_APART = 3
"""Names of a condition that get values of their own."""
_QUIET = frozenset(
    {"size", "stride", "dim", "numel", "nelement", "ndimension", "element_size", "data_ptr", "is_contiguous", "get_device"}
    | {"storage_offset", "view", "view_as", "expand", "expand_as", "transpose", "permute", "unsqueeze", "squeeze", "flatten"}
    | {"unflatten", "narrow", "select", "t", "detach", "requires_grad_", "save_for_backward", "mark_non_differentiable"}
    | {"mark_dirty", "set_materialize_grads", "append", "extend", "insert", "get", "items", "keys", "values", "pop", "update"}
    | {"setdefault", "add_argument", "join", "format", "split", "strip", "startswith", "endswith", "lower", "upper", "replace"}
    | {"index", "count", "debug", "info", "warning", "warn", "error"}
)
"""Methods that launch nothing, of tensors and of others."""
_ELSEWHERE = frozenset({*sys.stdlib_module_names, "triton"})
"""Packages whose functions launch nothing."""
_BUILT_IN = frozenset(dir(builtins))


def in_its_place(old: KernelVersion, new: KernelVersion, gpu: GpuSpec, known: Mapping[str, Any], former: Mapping[str, str]) -> str:
    """Which kernel the functions that launched the old version may launch now in its place on a GPU, in words; "": none, for sure.

    Args:
        old, new: The kernel's versions; of both only launches in their own file are looked at.
        gpu: On which the file's conditions are asked.
        known: What is said of sizes. Typical ones decide nothing here.
        former: What kernels were called before, by what they are called now.
    """
    before: dict[str, set[str]] = {}
    arms: dict[str, set[tuple[str, bool]]] = {}
    for graph, same_file, function, site, others in _functions(old):
        if same_file:
            before.setdefault(function, set()).update(kernel for kernel, _ in others)
            arms.setdefault(function, set()).update((written(test), wanted) for test, wanted in graph.conditions(site[1]))
    after = list(_functions(new)) if before else []
    heads = {function for _, same_file, function, _, _ in after if same_file}
    if not heads & before.keys():  # functions of other names launch it now
        before, arms = (dict.fromkeys(heads, set().union(*sets.values())) for sets in (before, arms))
    for graph, same_file, function, site, others in after:
        for kernel, call in others:
            if not same_file or function not in before or former.get(kernel, kernel) in before[function] or kernel == new.function.name:
                continue
            if not graph.excludes(site[1], call):
                continue  # it is launched besides
            source = new.source.on(*gpu.triton_target[:2])
            around = LaunchSite(source, source.kernel(new.function.name), site[0], site[1], gpu.num_sms, None)
            tests = graph.conditions(call)
            if any((written(test), not wanted) in arms[function] for test, wanted in tests):
                continue  # where the old version was not launched either
            answers = [_answer(around, test, wanted, known) for test, wanted in tests]
            if tests and {False} not in answers:
                names = sorted(names_in(*(test for test, _ in tests)) & set(around.own))
                texts = [
                    shortened(written(test), LONGEST) if wanted else f"not ({shortened(written(test), LONGEST)})" for test, wanted in tests
                ]
                unless = f" where {' and '.join(texts)}" if any(answer != {True} for answer in answers) else ""
                request = f" (give {', '.join(names)})" if unless and names and all(answers) else ""
                return f"{function} launches {kernel} in its place{unless}{request}"
    return ""


def never_launched(version: KernelVersion, gpu: GpuSpec) -> str:
    """The condition that all launches of a version are under and that does not hold on a GPU, as it is written; "": it may be launched
    there."""
    texts = []
    for launching in version.launching:
        source = launching.source.on(*gpu.triton_target[:2])
        for scopes, call in launching.calls:
            walk = LaunchSite(source, version.function, scopes, call, gpu.num_sms, None).first
            tests = ((test, wanted, *walk.decided(test)) for test, wanted in source.module_names.conditions(call))
            texts.append(next((written(test) for test, wanted, holds, hangs in tests if holds is (not wanted) and not hangs), ""))
    return texts[0] if all(texts) and texts else ""


@dataclass(frozen=True, slots=True)
class _Made:
    """A call that a function makes, as it is written.

    Attributes:
        name: What is called; "": the method of a value.
        text: The call; of a launch the kernel.
        places, names: What it gives arguments by their place and by their name.
        where: The innermost condition that it stands under; "": none.
        launch: Whether it launches a kernel.
    """

    name: str
    text: str
    places: tuple[str, ...]
    names: tuple[tuple[str, str], ...]
    where: str
    launch: bool

    @property
    def when(self) -> str:
        return f"if {shortened(self.where, LONGEST)}" if self.where else "always"

    @property
    def given(self) -> tuple[tuple[str, ...], frozenset[tuple[str, str]]]:
        """What it gives, by name in any order."""
        return self.places, frozenset(self.names)

    def called(self, names: Mapping[str, str]) -> _Made:
        """The call with other names in place of some, as it is shown."""
        return replace(self, text=_with_names_in(self.text, names), where=_with_names_in(self.where, names))


def calls_changed(old: tuple[ModuleNames, Function] | None, new: tuple[ModuleNames, Function]) -> str:
    """Which calls of a function came or went, as they are written but for its own names that changed, in words; "": none.

    Compared are calls of torch, of methods of tensors that launch something, and of functions that are neither Python's own nor of a
    package that launches nothing; of launches which kernels they are of. What the functions do that it calls is not followed.

    Args:
        old, new: Its versions, each with the graph of its file; None: it is new.
    """
    names = {**_kernels_renamed(old[0], new[0]), **names_changed(old[0], new[0], old[1], new[1])} if old is not None else {}
    (before, had), (after, has) = _calls_made(*old, names) if old is not None else ([], set[str]()), _calls_made(*new)
    gone = [made for made in (Counter(before) - Counter(after)).elements() if made.launch or made.text not in has]
    came = [made for made in (Counter(after) - Counter(before)).elements() if made.launch or made.text not in had]
    moved = _pairs(gone, came, "text")
    given = [pair for pair in _pairs(gone, came, "name") if pair[0].given != pair[1].given or pair[0].where != pair[1].where]
    former = {now: was for was, now in names.items()}
    parts = []
    for launch, verb in ((True, "launches"), (False, "calls")):
        words = (
            (f"no longer {verb}", [made.called(former) for made in gone if made not in after]),
            (f"{verb} less often", [made for made in gone if made in after]),
            (f"now {verb}", [made for made in came if made not in before]),
            (f"{verb} more often", [made for made in came if made in before]),
        )
        parts += [f"{word} {text}" for word, calls in words if (text := _listed([made for made in calls if made.launch == launch]))]
        otherwise = [f"{_cut(two.text)} {two.when}, where it was {one.called(former).when}" for one, two in moved if two.launch == launch]
        for one, two in (pair for pair in given if pair[1].launch == launch):
            where = f" {two.when}, where it was {one.called(former).when}" if one.where != two.where else ""
            otherwise.append(f"{one.name} {_given_otherwise(one, two, former)}{where}")
        parts += [f"{verb} {_first([*dict.fromkeys(otherwise)], '; ')}"] if otherwise else []
    if old is not None:
        returns = [_returning(*side) for side in (old, new)]
        parts += [f"now returns before it launches, if {text}" for text in returns[1] if text not in returns[0]]
        parts += [f"no longer returns before it launches, if {text}" for text in returns[0] if text not in returns[1]]
        decorators = [[*map(written, side[1].decorator_list)] for side in (old, new)]
        parts += [f"is no longer decorated with {text}" for text in decorators[0] if text not in decorators[1]]
        parts += [f"is now decorated with {text}" for text in decorators[1] if text not in decorators[0]]
    return " and ".join(parts)


@lru_cache(maxsize=4)
def _kernels_renamed(old: ModuleNames, new: ModuleNames) -> dict[str, str]:
    """What kernels that a file launches are called now, of those that are the same under another name."""
    names = [{node.name for node in graph.nodes if isinstance(node, Function)} for graph in (old, new)]
    alone = ({kernel for kernel, _ in old.launches} - names[1], {kernel for kernel, _ in new.launches} - names[0])
    trees = [
        grouped((own_tree(node), node.name) for node in graph.nodes if isinstance(node, Function) and node.name in side)
        for graph, side in zip((old, new), alone, strict=True)
    ]
    return {trees[0][tree][0]: trees[1][tree][0] for tree in trees[0].keys() & trees[1] if len(trees[0][tree]) == len(trees[1][tree]) == 1}


def _listed(calls: Sequence[_Made]) -> str:
    """Calls as they are written, those under one condition together; of many those of functions that are not torch's first, which may
    launch."""
    every = [*dict.fromkeys(calls)]
    if len(every) > MOST_NAMED:
        every.sort(key=lambda made: (not made.name, made.name.startswith("torch.")))
    some = every[:MOST_NAMED]
    texts = grouped((made.when, _cut(made.text)) for made in some)
    listed = [f"{', '.join(items)}{f' ({when})' * (when != 'always')}" for when, items in texts.items()]
    return "; ".join(listed) + f" and {len({*calls}) - MOST_NAMED} more" * (len({*calls}) > MOST_NAMED)


def _returning(graph: ModuleNames, function: Function) -> list[str]:
    """Under which conditions a function returns before it launches a kernel."""
    launch = next((call for _, call in graph.launches if function in graph.above(call)), None)
    return [shortened(written(test), 2 * LONGEST) for test in returns_before(function, launch)] if launch is not None else []


def _pairs(gone: list[_Made], came: list[_Made], field: str) -> list[tuple[_Made, _Made]]:
    """The calls that went and came of which a field is the same, in their order, where as many went as came; they are taken out of the
    lists."""
    sides = [grouped((getattr(made, field), made) for made in calls) for calls in (gone, came)]
    alike = [name for name in sides[1] if name and len(sides[0].get(name, ())) == len(sides[1][name])]
    out = [pair for name in alike for pair in zip(sides[0][name], sides[1][name], strict=True)]
    for pair in out:
        gone.remove(pair[0])
        came.remove(pair[1])
    return out


def _with_names_in(text: str, names: Mapping[str, str]) -> str:
    """A text of Python with other names in place of some, also of attributes (".rows")."""
    return re.sub(r"\.?\b[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), text) if names else text


def _cut(text: str) -> str:
    """A call as it is shown: of a long one its beginning and its end."""
    return text if len(text) <= 2 * LONGEST else f"{text[:LONGEST]} … {text[-LONGEST:]}"


def _given_otherwise(old: _Made, new: _Made, former: Mapping[str, str]) -> str:
    """What one call is given otherwise than another one of the same function, in words; whether by place or by name makes no difference;
    `former`: what the function's names were called before."""
    gone, came = (
        {
            **dict(enumerate((Counter(one.places) - Counter(other.places)).elements())),
            **{name: text for name, text in one.names if (name, text) not in other.names},
        }
        for one, other in ((old, new), (new, old))
    )
    for name, text in [*gone.items()]:
        again = next((key for key, value in came.items() if value == text and isinstance(key, int) is not isinstance(name, int)), None)
        if again is not None:
            del gone[name], came[again]
    was = {key: _with_names_in(_argument(key, text), former) for key, text in gone.items()}
    now = {key: _argument(key, text) for key, text in came.items()}
    texts = [" where it was ".join(parted(now.pop(key), was.pop(key))) for key in [*was] if key in now]
    both = {*old.places} & {*new.places}  # at another place, too
    lists = [[_cut(text) for text in side.values() if (text in both) is again] for again in (False, True) for side in (now, was)]
    verbs = ("with", "also with" if texts else "with", "no longer with", "with one more", "with one less")
    words = zip(verbs, (texts, *lists), strict=True)
    return " and ".join(f"{word} {_first(some)}" for word, some in words if some) or "in another order"


def _argument(key: int | str, text: str) -> str:
    return f"{key}={text}" if isinstance(key, str) else text


def _calls_made(graph: ModuleNames, function: Function, names: Mapping[str, str] | None = None) -> tuple[list[_Made], set[str]]:
    """The launches of a function, and its calls that are compared, those within others of them aside, with other names in place of some;
    and those within others, as they are written."""
    of_torch = {name: text for name, text in _stands_for(graph).items() if text.startswith("torch.")}
    names, decorators = {**of_torch, **(names or {})}, {*function.decorator_list}
    inside = [call for call in _calls_within(graph).get(function, ()) if _is_compared(graph, call) and call not in decorators]
    made, within = [], set()
    for call in inside:
        whole = with_names(call, names)
        if not {*inside}.isdisjoint(graph.above(call)):
            within.add(written(whole))
        else:
            text = dotted(whole.func)
            root, *rest = text.split(".")
            of_file = root == "torch" or root in graph.imports or bool(graph.statements(root))
            of_function = text and (of_file or len(rest) <= (root in ("self", "cls")) or len(written(whole)) > 2 * LONGEST)  # else cut
            given = tuple((item.arg or "**", written(item.value)) for item in whole.keywords)
            where = _condition(graph, call, names)
            made.append(_Made(text if of_function else "", written(whole), tuple(map(written, whole.args)), given, where, False))
    launches = grouped((call, names.get(kernel, kernel)) for kernel, call in _launched(graph) if function in graph.above(call))
    launched = [_Made("", " or ".join(kernels), (), (), _condition(graph, call, names), True) for call, kernels in launches.items()]
    return launched + made, within


def _condition(graph: ModuleNames, call: Call, names: Mapping[str, str]) -> str:
    """The innermost condition that a call stands under, as it is written, or which error it is made after; "": it stands under none."""
    if error := graph.after_error(call):
        return f"{error} is raised"
    test, wanted = next(reversed(graph.conditions(call)), (None, True))
    text = written(with_names(test, names)) if test is not None else ""
    return text if wanted else _negated(text)


@lru_cache(maxsize=4)
def _launched(graph: ModuleNames) -> list[tuple[str, Call]]:
    """The launches of a file, each with what the kernel is called where it is from; of a name that a function gives several things, with
    each as it is written."""
    imported = {name: items[-1].name or name for name, items in {**graph.inner_imports, **graph.imports}.items() if items}
    out = []
    for kernel, call in graph.launches:
        given = [value for value in graph.given(graph.scopes_around(call), kernel) if not graph.apart(value, call)]
        every = [value for item in given for value in alternatives(item)]
        names = [getattr(value, "name", "") or dotted(value) or shortened(written(value), LONGEST) for value in every]
        out += [(imported.get(name, name), call) for name in dict.fromkeys(names or [kernel])]
    return out


def _negated(condition: str) -> str:
    opposite = condition.removeprefix("not ")
    if opposite != condition and opposite.isidentifier():
        return opposite
    return f"not ({condition})" if " " in condition else f"not {condition}"


@lru_cache(maxsize=4)
def _calls_within(graph: ModuleNames) -> dict[Definition, list[Call]]:
    """By function, or class, the calls within it in their order, launches of kernels aside."""
    launches = {call for _, call in graph.launches}
    calls = [call for items in graph.calls.values() for call in items if call not in launches]
    ordered = sorted(calls, key=lambda call: (call.lineno, call.col_offset))
    return grouped((outer, call) for call in ordered for outer in graph.above(call) if isinstance(outer, Definition))


@lru_cache(maxsize=4)
def _stands_for(graph: ModuleNames) -> dict[str, str]:
    """By names of a file what is imported by them, with its package, or given them once at its top: `torch.nn.functional` for `F`."""
    imported = {alias: items[-1].full for alias, items in graph.inner_imports.items() if items} | graph.modules
    given = {name: dotted(values[0]) for name, values in graph.alternatives.items() if len(values) == 1 and name not in imported}
    roots = {name: text.partition(".") for name, text in given.items()}
    return imported | {name: f"{imported[root]}{dot}{rest}" for name, (root, dot, rest) in roots.items() if root in imported and rest}


def _is_compared(graph: ModuleNames, call: Call) -> bool:
    """Whether a call is one that `calls_changed` compares."""
    root, dot, rest = dotted(call.func).partition(".")
    full = _stands_for(graph).get(root, root) + dot + rest
    if full.startswith("torch."):
        return True
    if full.partition(".")[0] in _ELSEWHERE:
        return False
    if root and not rest:
        return root not in _BUILT_IN
    return getattr(call.func, "attr", "") not in _QUIET


def is_literal(text: str) -> bool:
    """Whether an argument, as `NAME=` or not, is a number, a text or one of Python's constants."""
    return re.fullmatch(r"(\w+=)?(-?[\d.]\S*|True|False|None|'.*'|\".*\")", text) is not None


def _first(names: Sequence[str], between: str = ", ") -> str:
    """The first of some names, and how many more there are."""
    return between.join(names[:MOST_NAMED]) + f" and {len(names) - MOST_NAMED} more" * (len(names) > MOST_NAMED)


def _launches(version: KernelVersion) -> Iterator[tuple[ModuleNames, bool, LaunchCall]]:
    """The launches of a version, each with the graph of its file and whether that is the kernel's own; those of tests and benchmarks
    aside."""
    for launching in version.launching:
        if not TESTS.search(launching.where):
            yield from ((launching.source.module_names, not launching.where, launch) for launch in launching.calls)


def _functions(version: KernelVersion) -> Iterator[tuple[ModuleNames, bool, str, LaunchCall, list[tuple[str, Call]]]]:
    """The functions around a version's launches: as of `_launches`, and the name, the launch, and the launches of other kernels within."""
    for graph, same_file, (scopes, call) in _launches(version):
        if any(getattr(scope, "name", "") for scope in scopes[:1]):
            inside = [(name, node) for name, node in graph.launches if scopes[-1] in graph.scopes_around(node)]
            function: str = getattr(scopes[-1], "name", "")
            yield (
                graph,
                same_file,
                function,
                (scopes, call),
                [pair for pair in inside if pair[1] is not call or pair[0] != version.function.name],
            )


def _answer(site: LaunchSite, test: Expression, wanted: bool, known: Mapping[str, Any]) -> set[bool]:
    """Whether a condition is as wanted, for values of what is not known in it: small and large ones, and those that it asks for; empty: no
    value tells."""
    names, text = names_in(test) & set(site.own), written(test)
    if names and any(quote in text for quote in "'\""):
        return set()  # `mode == "fast"`
    alike = ((probe,) * len(names) for probe in (*PROBES, *map(int, re.findall(r"\b\d+\b", text))))
    apart = itertools.product(PROBES, repeat=len(names)) if 1 < len(names) <= MOST_APART else ()
    answers = set()
    for values in (*alike, *apart):
        try:
            answers.add(bool(site.evaluate(test, {**dict(zip(sorted(names), values, strict=True)), **known})) is wanted)
        except NotLiteralError:
            return set()
    return answers
