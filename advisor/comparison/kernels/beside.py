"""What else the functions do that launch a kernel, or call one that does: other kernels that they launch in its place, calls of torch that
came or went, and what they are called with."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from advisor.comparison.kernels.importers import TESTS
from advisor.comparison.kernels.kernel_version import KernelVersion
from advisor.comparison.kernels.launch_digest import LONGEST, written
from advisor.gpus.hardware import GpuSpec
from advisor.python_source.bindings import (
    Call,
    Definition,
    Expression,
    Function,
    Scope,
    names_in,
    operations,
    plainly_given,
    returns_before,
)
from advisor.python_source.kernel_forms import alternatives
from advisor.python_source.language import dotted
from advisor.python_source.launch_site import LaunchSite
from advisor.python_source.launch_sites import LaunchCall
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.module_names import ModuleNames
from advisor.python_source.source import SourceFile
from advisor.python_source.tensors import LIKE, MADE
from advisor.rendering.figures import shortened
from advisor.system import grouped

MOST_NAMED = 4
"""Calls that a note names."""
PROBES = (0, 1, 2**20)
"""Stand for sizes and flags that are not known, to see whether a condition hangs on them."""
SOMETIMES = " under a condition"
"""Ends what names a call that not every launch comes with."""
_METHODS = frozenset(
    {"sum", "mean", "amax", "max", "min", "to", "contiguous", "clone", "zero_", "fill_", "copy_", "float", "half", "bfloat16"}
    | {"repeat", "cumsum", "index_select", "gather", "scatter_", "masked_fill", "masked_fill_", "mul", "mul_", "add", "add_", "div"}
    | {"div_", "matmul", "item", "tolist", "cpu", "cuda", "pin_memory", "sub", "sub_", "pow", "exp", "sqrt", "rsqrt", "abs", "neg"}
    | {"clamp", "clamp_", "square", "eq", "ne", "lt", "gt", "le", "ge", "all", "any", "logical_and", "logical_or", "logical_not"}
    | {"where", "nonzero", "isnan", "isinf", "argmax", "argmin", "argsort", "topk", "prod", "std", "var", "norm", "softmax", "sigmoid"}
    | {"tanh", "relu", "bmm", "mm", "cumprod", "index_add_", "index_copy_", "index_fill_", "index_put_", "scatter_add_"}
    | {"scatter_reduce_", "repeat_interleave", "roll", "flip", "bool", "int", "long", "double", "type_as", "new_tensor", "new_full"}
    | {"new_zeros", "new_ones", "tril", "triu", "diff", "bincount"}
)
"""Methods of a tensor that launch a kernel of torch's, copy, or wait for the GPU."""
_QUIETLY = "quietly "
"""Begins what names a call of a function of the file that calls no torch: on the other side it may."""
ONE_TYPE = {
    "torch.float": "torch.float32",
    "torch.half": "torch.float16",
    "torch.double": "torch.float64",
    "torch.int": "torch.int32",
    "torch.long": "torch.int64",
}
"""Types by other names of theirs."""
EMPTY = "torch.empty"
"""Makes a tensor of no contents: another type of its elements is another launch."""
_FUNCTIONS = ("torch.nn.functional", "torch.special", "torch.linalg", "torch.fft")
"""Modules of torch's whose functions launch kernels."""
_OF_HOST = (
    "torch.cuda",
    "torch.empty",
    "torch.finfo",
    "torch.iinfo",
    "torch.is_",
    "torch.device",
    "torch.no_grad",
    "torch.enable_grad",
    "torch.inference_mode",
    "torch.autograd",
    "torch.library",
    "torch.Size",
    "torch.compiler",
    "torch._",
)
"""Begin what of torch launches none."""


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


def launches_besides(old: KernelVersion, new: KernelVersion, former: Mapping[str, str]) -> list[str]:
    """The other kernels that functions which launch a kernel launch besides in one version alone, a note each function.

    Args:
        old, new: The kernel's versions.
        former: What kernels were called before, by what they are called now.
    """
    sides: list[dict[str, set[str]]] = []
    reached: list[dict[str, set[str]]] = []  # also by way of other functions
    for version, names in ((old, {}), (new, former)):
        kernels: dict[str, set[str]] = {}
        all_of: dict[str, set[str]] = {}
        for graph, _, function, site, others in _functions(version):
            around_launch, either = {written(test) for test, _ in graph.conditions(site[1])}, _of_either(graph)
            besides = set()
            for kernel, calls in grouped(others).items():
                places = [node for node in calls if not graph.excludes(site[1], node)]
                tests = [{(written(test), wanted) for test, wanted in graph.conditions(node)} for node in places]
                tests = [{(text, wanted) for text, wanted in places_tests if text not in around_launch} for places_tests in tests]
                tests = [of_place | ({(kernel, True)} if node in either else set()) for of_place, node in zip(tests, places, strict=True)]
                always = set() in tests or any({(text, not wanted)} in tests for one in tests if len(one) == 1 for text, wanted in one)
                if places and kernel not in (old.function.name, new.function.name):
                    besides.add(names.get(kernel, kernel) + SOMETIMES * (not always))
            kernels.setdefault(function, set()).update(besides)
            all_of.setdefault(function, set()).update(names.get(kernel, kernel) for kernel in _reached(graph, function))
        sides.append(kernels)
        reached.append(all_of)
    notes = []
    for function in sides[0].keys() & sides[1].keys():
        gone, came = sides[0][function] - sides[1][function], sides[1][function] - sides[0][function]
        firmly, seldom = ({text for text in one if text + SOMETIMES in other} for one, other in ((came, gone), (gone, came)))
        moved = {name for text in firmly | seldom for name in (text, text + SOMETIMES)}
        words = (
            ("no longer launches", {text for text in gone - moved if text.removesuffix(SOMETIMES) not in reached[1][function]}),
            ("launches", {text for text in came - moved if text.removesuffix(SOMETIMES) not in reached[0][function]}),
            ("always launches", firmly),
            ("launches under a condition alone", seldom),
        )
        parts = [f"{word} {_first(sorted(item))}" for word, item in words if item]
        notes += [f"Besides, {function} {' and '.join(parts)}."] if parts else []
    return sorted(notes)


def torch_calls(old: KernelVersion, new: KernelVersion) -> list[str]:
    """The calls of torch that came or went in the functions that launch a kernel, and where these return before the launch in one version
    alone, a note each function."""
    sides = [dict(_torch_calls(version)) for version in (old, new)]
    both = {name: name for name in sides[0].keys() & sides[1].keys()}
    if not both and len(sides[0]) == len(sides[1]) == 1:  # it is called otherwise now
        both = {next(iter(sides[1])): next(iter(sides[0]))}
    calls = {f"{name}{f' (was {former})' * (former != name)}": (sides[0][former], sides[1][name]) for name, former in both.items()}
    notes = [f"Beside the launch, {name} {text}." for name, pair in calls.items() if (text := came_or_went(*pair))]
    left = [dict(_returning(version)) for version in (old, new)]
    for name in left[0].keys() & left[1].keys():
        for word, tests in (("now", left[1][name] - left[0][name]), ("no longer", left[0][name] - left[1][name])):
            texts = [shortened(test, 2 * LONGEST) for test in sorted(tests)]
            notes += [f"Before its launch, {name} {word} returns where {' or '.join(texts)}."] if tests else []
    return sorted(notes)


def _returning(version: KernelVersion) -> Iterator[tuple[str, set[str]]]:
    """By function around a launch of a version under which conditions it returns before that."""
    for _, _, (scopes, launch) in _launches(version):
        if scopes and (function := getattr(scopes[-1], "name", "")):
            yield function, {written(test) for test in returns_before(scopes[-1], launch)}


def came_or_went(before: Counter[str], after: Counter[str]) -> str:
    """Which of the calls of a function came or went, in words; empty: none."""
    before, after = _heard(before, after), _heard(after, before)
    gone, came = _only_in(before, after), _only_in(after, before)
    if not all(any(text.startswith(EMPTY) for text in calls) for calls in (gone, came)):  # one more of them takes no time
        gone, came = (Counter({text: n for text, n in calls.items() if not text.startswith(EMPTY)}) for calls in (gone, came))
    always = Counter({text: 1 for text in came if gone[text + SOMETIMES] and not before[text]})  # where it was under a condition
    seldom = Counter({text: 1 for text in gone if came[text + SOMETIMES] and not after[text]})
    moved = {name for text in (*always, *seldom) for name in (text, text + SOMETIMES)}
    gone, came = (Counter({text: n for text, n in calls.items() if text not in moved}) for calls in (gone, came))
    fewer = Counter({text: n for text, n in gone.items() if after[text]})
    more = Counter({text: n for text, n in came.items() if before[text]})
    parts = (
        ("no longer calls", gone - fewer),
        ("calls less often", fewer),
        ("now calls", came - more),
        ("calls more often", more),
        ("always calls", always),
        ("calls under a condition alone", seldom),
    )
    return " and ".join(f"{word} {_counted(calls)}" for word, calls in parts if calls)


def _heard(calls: Counter[str], others: Counter[str]) -> Counter[str]:
    """The calls of one version, without those of functions that call torch in neither."""
    loud = {text.removesuffix(SOMETIMES) for text in (*calls, *others)}
    heard: Counter[str] = Counter()
    for text, count in calls.items():
        name = text.removeprefix(_QUIETLY)
        heard[name] += count if name.removesuffix(SOMETIMES) in loud else 0
    return +heard


def other_launches(old: SourceFile, new: SourceFile, former: Mapping[str, str]) -> dict[str, str]:
    """By function of a file, with its class, which kernels it launches in one version alone, a note each, where one of them is in both.

    Args:
        old, new: The versions of the file.
        former: What kernels were called before, by what they are called now.
    """
    sides = [_kernels_launched(side, names) for side, names in ((old, {}), (new, former))]
    notes = {}
    for function in sides[0].keys() & sides[1].keys():
        before, after = (side[function] for side in sides)
        reached = [_reached(side.module_names, function) for side in (old, new)]
        gone = {text for name, text in before.items() if name not in after.keys() | {former.get(kernel, kernel) for kernel in reached[1]}}
        came = {text for name, text in after.items() if name not in before.keys() | reached[0]}
        stays = {name for name in before.keys() ^ after.keys() if name in old.definitions and former.get(name, name) in new.definitions}
        seldom = {name for name in before.keys() & after.keys() if len(before[name]) < len(after[name])}  # under a condition now
        graphs = old.module_names, new.module_names
        through = _through_same(*graphs, function) | _through_same(*graphs[::-1], function)
        gone, came = ({text for text in texts if text.removesuffix(SOMETIMES) not in through} for texts in (gone, came))
        seldom -= through
        words = (("no longer launches", gone), ("launches", came), ("launches under a condition alone", seldom))
        parts = [f"{word} {_first(sorted(names))}" for word, names in words if names]
        if parts and (stays or (seldom and came)):
            notes[function] = f"{function} {' and '.join(parts)}."
    return dict(sorted(notes.items()))


def _kernels_launched(source: SourceFile, names: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """By function of a file, with its class, the kernels that it launches, or functions of the file that it calls, as they are told: with
    whether under a condition."""
    graph, kernels = source.module_names, dict[str, dict[str, str]]()

    def add(call: Call, kernel: str, sometimes: bool) -> None:
        function = ".".join(item.name for item in graph.above(call) if isinstance(item, Definition))
        text = kernel + SOMETIMES * sometimes
        inside = kernels.setdefault(function, {})
        name = names.get(kernel, kernel)
        inside[name] = min(text, inside.get(name, text), key=len)

    for kernel, call in graph.launches:
        others = (other for _, other in graph.launches if graph.scopes_around(other) == graph.scopes_around(call))
        instead = call in _of_either(graph) or any(graph.excludes(other, call) for other in others)  # also where that returns before
        add(call, kernel, instead or bool(graph.conditions(call)))
    for launcher, inside in [*kernels.items()]:
        for call in graph.calls.get(launcher, ()) if launcher else ():
            for kernel, text in inside.items() if dotted(call.func) == launcher else ():
                add(call, kernel, bool(graph.conditions(call)) or text.endswith(SOMETIMES))
    return {function: inside for function, inside in kernels.items() if function}


def _through_same(graph: ModuleNames, other: ModuleNames, function: str) -> set[str]:
    """The kernels of one version of a file that a function does not launch itself, but functions do which it calls in both versions, under
    the same conditions: of these it is told."""
    called = [
        {
            (name, *sorted(written(test) for call in inside for test, _ in side.conditions(call)))
            for name, calls in side.calls.items()
            if (inside := [call for call in calls if function in _paths(side, [call])])
        }
        for side in (graph, other)
    ]
    both, launches = {name for name, *_ in called[0] & called[1]}, grouped(graph.launches)
    launching = {kernel: {path.rpartition(".")[2] for path in _paths(graph, calls)} for kernel, calls in launches.items()}
    return {name for name, calls in launches.items() if launching[name] & both and function not in _paths(graph, calls)}


def _paths(graph: ModuleNames, calls: Iterable[Call]) -> set[str]:
    """The functions around calls, each with its class."""
    return {".".join(_outer(graph, call)) for call in calls}


def _of_either(graph: ModuleNames) -> set[Call]:
    """The launches of which a name says which kernel it is: `kernel = fused if few else plain`."""
    counts = Counter(call for _, call in graph.launches)
    return {call for call, count in counts.items() if count > 1}


def _reached(graph: ModuleNames, function: str) -> set[str]:
    """The kernels that other functions of a file launch which a function, named with its class, names, also by way of others: a launch
    that moved into a new function is still its own."""
    named = grouped((item.name, item) for item in graph.nodes if isinstance(item, Definition))
    whole = function.rpartition(".")[2]
    waiting = [node for node in named.get(whole, ()) if ".".join([*_outer(graph, node), whole]).endswith(function)]
    itself, seen = [*waiting], list[Definition]()
    while waiting:
        seen.append(node := waiting.pop())
        called = _called_within(graph).get(node, ())
        waiting += [item for name in {*names_in(node), *called} for item in named.get(name, ()) if item not in (*seen, *waiting)]
    others = {node for node in seen if node not in itself}
    return {kernel for kernel, call in graph.launches if not others.isdisjoint(graph.above(call))}


@lru_cache(maxsize=4)
def _called_within(graph: ModuleNames) -> dict[Definition, list[str]]:
    """By function, or class, the last parts of the names that are called within it."""
    calls = ((name, call) for name, items in graph.calls.items() for call in items)
    return grouped((item, name) for name, call in calls for item in graph.above(call) if isinstance(item, Definition))


def _outer(graph: ModuleNames, node: Definition | Call) -> list[str]:
    return [item.name for item in graph.above(node) if isinstance(item, Definition)]


def launchers_called(old: SourceFile, new: SourceFile) -> list[str]:
    """What functions that launch kernels are called with otherwise by the functions of a file, where that takes a call to work out or is
    another literal; and the calls of torch that came or went beside a call of one of the same file. A note each, in the order of their
    names."""
    sides = [dict(_calls_of_launchers(source)) for source in (old, new)]
    with_others: dict[tuple[str, str], list[str]] = {}  # by function and how it calls others now: which these are
    beside: dict[tuple[str, str], str] = {}  # by function and what changed: the first of the functions that it calls
    for key in sorted(sides[0].keys() & sides[1].keys()):
        function, launcher = key
        (before, besides), (after, now) = (side[key] for side in sides)
        if how := _called_otherwise(before, after):
            with_others.setdefault((function, how), []).append(launcher)
        if text := came_or_went(besides, now):
            beside.setdefault((function, text), launcher)
    notes = [f"{function} calls {_first(launchers)} {how}." for (function, how), launchers in with_others.items()]
    return notes + [f"Beside its call of {launcher}, {function} {text}." for (function, text), launcher in beside.items()]


def _called_otherwise(before: Sequence[Mapping[str, str]], after: Sequence[Mapping[str, str]]) -> str:
    """With what calls of one function are made otherwise, in words: each in its order, or of more or fewer calls what all of one version
    are given and none of the other; "": with nothing."""
    texts = []
    if len(before) == len(after):
        pairs = [(one[name], other[name]) for one, other in zip(before, after, strict=True) for name in one.keys() & other.keys()]
        differ = dict.fromkeys(sorted(pair for pair in pairs if pair[0] != pair[1] and _worked_out(pair)))
        texts = [f"{shortened(new, LONGEST)} where it was {shortened(old, LONGEST)}" for old, new in differ]
        came, gone = _in_one_alone(after, before), _in_one_alone(before, after)
    else:
        came, gone = _in_all_alone(after, before), _in_all_alone(before, after)
    texts += [shortened(text, LONGEST) for text in came]
    words = (("with", texts), ("no longer with", [text.partition("=")[0] for text in gone]))
    return " and ".join(f"{word} {', '.join(some[:MOST_NAMED])}" for word, some in words if some)


def _in_all_alone(calls: Sequence[Mapping[str, str]], others: Sequence[Mapping[str, str]]) -> list[str]:
    """The arguments, as `NAME=VALUE`, that all of some calls are given and none of the other ones, by no place either."""
    alike = {name: text for name, text in calls[0].items() if not name.isdigit() and all(one.get(name) == text for one in calls)}
    given = {text.partition("=")[2] or text for one in others for text in one.values()}
    return [text for name, text in alike.items() if not any(name in one for one in others) and text.partition("=")[2] not in given]


def _worked_out(pair: tuple[str, str]) -> bool:
    """Whether one of two arguments takes a call to work out, or is a literal where the other is none but the name of a constant."""
    values = [text.rpartition("=")[2] for text in pair]
    return "(" in "".join(pair) or (any(map(is_literal, pair)) and not any(value.isidentifier() and value.isupper() for value in values))


def _in_one_alone(calls: Sequence[Mapping[str, str]], others: Sequence[Mapping[str, str]]) -> list[str]:
    """The arguments of some calls, as `NAME=VALUE`, that the other ones, in their order, are not given, by no place either."""
    pairs = list(zip(calls, others, strict=True))
    alone = [text for one, other in pairs for name, text in one.items() if name not in other and not name.isdigit()]
    given = {text for _, other in pairs for name, text in other.items() if name.isdigit()}
    return [text for text in dict.fromkeys(alone) if text.partition("=")[2] not in given]


def _calls_of_launchers(source: SourceFile) -> Iterator[tuple[tuple[str, str], tuple[list[dict[str, str]], Counter[str]]]]:
    """By a function of a file and one that launches kernels, which it calls: the arguments of each call, by place or name, as they are
    written; and where both are of the file the calls of torch beside them."""
    graph = source.module_names
    launching, at_once = launching_functions(source), _launch_in(source)
    for name, calls in graph.calls.items():
        elsewhere = name not in launching and any(there in launching_functions(file) for file, there in source.led(name))
        if name not in launching and not elsewhere:
            continue
        plain = [(graph.scopes_around(call), call) for call in calls if dotted(call.func) in (name, f"self.{name}")]
        for scope, inside in grouped((scopes[-1], call) for scopes, call in plain if scopes).items():
            function = ".".join(item.name for item in graph.above(inside[0]) if isinstance(item, Definition))
            given = [
                {str(place): _given(graph, scope, value) for place, value in enumerate(call.args)}
                | {item.arg: f"{item.arg}={_given(graph, scope, item.value)}" for item in call.keywords if item.arg}
                for call in inside
            ]
            around = getattr(scope, "name", "")
            if around != name and (elsewhere or around not in at_once):
                yield (function, name), (given, Counter() if elsewhere else _calls_beside(graph, scope, inside[0]))


def _given(graph: ModuleNames, scope: Scope, value: Expression) -> str:
    """An argument as it is written; of a name that its function gives one literal alone, that."""
    text = written(value)
    nodes = graph.binders(scope).get(text, ()) if text.isidentifier() else ()
    assigned = [written(item) for node in nodes for name, item in plainly_given(graph.parent(node)) if name == text]
    return assigned[0] if len(nodes) == len(assigned) == 1 and is_literal(assigned[0]) else text


def is_literal(text: str) -> bool:
    """Whether an argument, as `NAME=` or not, is a number, a text or one of Python's constants."""
    return re.fullmatch(r"(\w+=)?(-?[\d.]\S*|True|False|None|'.*'|\".*\")", text) is not None


def launching_functions(source: SourceFile) -> set[str]:
    """The functions at the top of a file that launch kernels, or call those of its own or of others that do, or `Operator.apply` of a
    class of which a method does."""
    graph, launches = source.module_names, _launch_in(source)
    imported = (
        name for name in graph.calls.keys() & graph.imports.keys() if any(there in _launch_in(file) for file, there in source.led(name))
    )
    calling = [call for name in {*imported, *launches} for call in graph.calls.get(name, ())]
    inside = [*calling, *(call for _, call in graph.launches)]
    around = (item for call in inside for item in graph.above(call) if isinstance(item, Definition))
    classes = {item.name for item in around if not isinstance(item, Function)}
    applied = [call for call in graph.calls.get("apply", ()) if dotted(call.func).removesuffix(".apply") in classes]
    return launches | _at_top(graph, [*calling, *applied])


def _launch_in(source: SourceFile) -> set[str]:
    """The functions at the top of a file that launch kernels themselves."""
    graph = source.module_names
    return _at_top(graph, (call for _, call in graph.launches))


def _at_top(graph: ModuleNames, calls: Iterable[Call]) -> set[str]:
    return {name for call in calls for scope in graph.scopes_around(call)[:1] if (name := getattr(scope, "name", ""))}


def _only_in(one: Counter[str], other: Counter[str]) -> Counter[str]:
    """The calls that one version has and the other has not; of those under conditions, of which one of several arms is run, where the other
    has less than half as many."""
    more = (one - other).items()
    return Counter({text: count for text, count in more if not text.endswith(SOMETIMES) or 2 * other[text] < one[text]})


def _counted(calls: Counter[str]) -> str:
    first = sorted(calls.items(), key=lambda item: (not item[0].startswith(EMPTY), item[0]))  # one for another, not one less
    listed = [f"{name} ({count} times)" if count > 1 else name for name, count in first]
    return _first(listed)


def _first(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    return ", ".join(names[:MOST_NAMED]) + f" and {len(names) - MOST_NAMED} more" * (len(names) > MOST_NAMED)


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
            yield graph, same_file, function, (scopes, call), [(name, node) for name, node in inside if node is not call]


def _torch_calls(version: KernelVersion) -> Iterator[tuple[str, Counter[str]]]:
    for graph, _, (scopes, launch) in _launches(version):
        if scopes and (function := getattr(scopes[-1], "name", "")):
            yield function, _calls_beside(graph, scopes[-1], launch)


def _calls_beside(graph: ModuleNames, scope: Scope, launch: Call) -> Counter[str]:
    """The calls of torch in a function that a launch within it, or a call that launches, comes with."""
    calls = [(name, call) for name, items in graph.calls.items() for call in items if scope in graph.scopes_around(call)]
    inside: list[tuple[Expression, str]] = [(call, of_torch(graph, name, call) or _of_file(graph, name, call)) for name, call in calls]
    inside += [(call, text) for name, call in calls for text in by_another_name(graph, scope, name, call)]
    inside += [(node, f"torch.{operation} of {name}") for node, operation, name in operations(scope, MADE | LIKE)]
    inside = [(node, text) for node, text in inside if text and node is not launch and not handed_on(graph, scope, node)]
    beside = [(node, text) for node, text in inside if not graph.excludes(launch, node)]
    around = {written(test) for test, _ in graph.conditions(launch)}
    tests = {id(node): [(test, wanted) for test, wanted in graph.conditions(node) if written(test) not in around] for node, _ in beside}
    arms = grouped(((text, id(item[0])), item[1]) for node, text in beside for item in tests[id(node)][-1:])
    in_both = {key for key, wanted in arms.items() if len(set(wanted)) == 2}  # whatever the condition: once
    beside = [item for item in beside if not any((item[1], id(test)) in in_both and not wanted for test, wanted in tests[id(item[0])][-1:])]
    open_ = {id(node) for node, text in beside if [test for test, _ in tests[id(node)] if (text, id(test)) not in in_both]}
    return Counter(text.removesuffix(SOMETIMES) + SOMETIMES * (text.endswith(SOMETIMES) or id(node) in open_) for node, text in beside)


def _as_torch(graph: ModuleNames, text: str) -> str:
    """A dotted name, with the module of torch that its first part stands for: of `F.pad`, after `import torch.nn.functional as F`."""
    root, _, rest = text.partition(".")
    items = [item for item in graph.imports.get(root, ()) if not item.level and (item.name or item.module.partition(".")[0] != root)]
    of_torch_itself = [f"torch.{item.name}" for item in items if item.module == "torch" and item.name and not rest]
    modules = [f"{item.module}.{item.name}" if item.name else item.module for item in items]
    module = next(iter([module for module in modules if module.startswith(_FUNCTIONS)] or of_torch_itself), "")
    return ".".join(filter(None, (module, rest))) if module else text


def by_another_name(graph: ModuleNames, scope: Scope, name: str, call: Call) -> list[str]:
    """The functions of torch that a name of a function stands for, `product = torch.bmm if big else torch.mm`, where a call is of it."""
    values = (graph.given([scope], name) or graph.given([graph.tree], name)) if dotted(call.func) == name else []
    names = [_as_torch(graph, dotted(value)) for given in values for value in alternatives(given)]
    of_torch_ = [text for text in names if text.startswith("torch.") and not text.startswith(_OF_HOST)]
    return [text + SOMETIMES * (len(names) > 1) for text in of_torch_]


def functions_named(graph: ModuleNames, scope: Scope, name: str, call: Call, functions: Collection[str]) -> list[str]:
    """Those of some functions that a call may be of, by their own name or by one that its function gives them: `sort = fused if few else
    plain`."""
    if dotted(call.func) in (f"self.{name}", f"cls.{name}"):
        return [name] if name in functions else []
    if dotted(call.func) != name:
        return []
    named = [dotted(value) for given in graph.given([scope], name) for value in alternatives(given)]
    return [function for function in dict.fromkeys([name, *named]) if function in functions]


def handed_on(graph: ModuleNames, scope: Scope, node: Expression) -> bool:
    """Whether a node stands in a function within another one that this never calls: it is handed on, as an allocator is."""
    scopes = graph.scopes_around(node)
    inner = scopes[scopes.index(scope) + 1 :] if scope in scopes else []
    names = [item.name for item in inner if isinstance(item, Function)]
    return any(not any(dotted(call.func) == name for call in graph.calls.get(name, ())) for name in names)


def _of_file(graph: ModuleNames, name: str, call: Call) -> str:
    """The function of the file that a call is of, where that launches no kernel of its own; "": it is no such call."""
    functions = [node for node in graph.statements(name) if isinstance(node, Function)] if dotted(call.func) == name else []
    if len(functions) != 1 or any(functions[0] in graph.scopes_around(node) for _, node in graph.launches):
        return ""
    inside = ((inner, node) for inner, calls in graph.calls.items() for node in calls if functions[0] in graph.scopes_around(node))
    return _QUIETLY * (not any((text := of_torch(graph, inner, node)) and not text.startswith(EMPTY) for inner, node in inside)) + name


def of_torch(graph: ModuleNames, name: str, call: Call) -> str:
    """What a call of torch is called, by the last part of its name; "": it is none that launches something."""
    text = _as_torch(graph, dotted(call.func))
    element = next((item.value for item in call.keywords if item.arg == "dtype"), None)
    if text == EMPTY and element is not None:
        return f"{text} of {' or '.join(sorted({_kind(written(item)) for item in alternatives(element)}))}"
    if text.startswith("torch."):
        return "" if text.startswith(_OF_HOST) else text
    of_module = text.partition(".")[0] in {*graph.imports, *graph.inner_imports}  # `math.sqrt`, `re.sub`
    return f".{name}" if name in _METHODS and text != name and not of_module else ""


def _kind(element: str) -> str:
    """The type that a tensor is made of, as it is told."""
    if element.startswith("torch."):
        return ONE_TYPE.get(element, element)
    return "a tensor's type" if element.endswith(".dtype") else "a type that has a name"


def _answer(site: LaunchSite, test: Expression, wanted: bool, known: Mapping[str, Any]) -> set[bool]:
    """Whether a condition is as wanted, for small and for large values of what is not known in it; empty: no value tells."""
    names = names_in(test) & set(site.own)
    answers = set()
    for probe in PROBES:
        try:
            answers.add(bool(site.evaluate(test, {**dict.fromkeys(names, probe), **known})) is wanted)
        except NotLiteralError:
            return set()
    return answers
