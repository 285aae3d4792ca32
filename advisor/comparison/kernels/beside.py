"""What else the functions do that launch a kernel: other kernels that they launch in its place, and calls of torch that came or went."""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advisor.comparison.kernels.importers import TESTS
from advisor.comparison.kernels.kernel_version import KernelVersion, Launching
from advisor.gpus.hardware import GpuSpec
from advisor.python_source.bindings import Scope, names_in
from advisor.python_source.language import dotted
from advisor.python_source.launch_site import LaunchSite
from advisor.python_source.literals import NotLiteralError

MOST_NAMED = 4
"""Calls that a note names."""
PROBES = (1, 2**20)
"""Stand for sizes that are not known, to see whether a condition hangs on them."""
_OF_TORCH = frozenset(
    {"sum", "mean", "amax", "max", "min", "to", "contiguous", "clone", "zero_", "fill_", "copy_", "float", "half", "bfloat16", "repeat"}
    | {"cumsum", "index_select", "gather", "scatter_", "masked_fill", "masked_fill_", "mul", "mul_", "add", "add_", "div", "div_", "matmul"}
)
"""Methods of a tensor that launch a kernel of torch's."""
_OF_HOST = (
    "torch.cuda",
    "torch.empty",
    "torch.finfo",
    "torch.iinfo",
    "torch.is_",
    "torch.device",
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
    before = {name: {kernel for kernel, _ in others} for launching, name, _, others in _functions(old) if not launching.where}
    for launching, function, site, others in _functions(new) if before else ():
        for kernel, call in others:
            if launching.where or function not in before or former.get(kernel, kernel) in before[function] or kernel == new.function.name:
                continue
            if not _excludes(launching, site[1], call):
                continue  # it is launched besides
            source = new.source.on(*gpu.triton_target[:2])
            around = LaunchSite(source, source.kernel(new.function.name), site[0], site[1], gpu.num_sms, None)
            tests = list(_conditions(launching, call))
            answers = [_answer(around, test, wanted, known) for test, wanted in tests]
            if tests and {False} not in answers:
                names = sorted(names_in(*(test for test, _ in tests)) & set(around.own))
                texts = [ast.unparse(test)[:60] if wanted else f"not ({ast.unparse(test)[:60]})" for test, wanted in tests]
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
    for version, names in ((old, {}), (new, former)):
        kernels: dict[str, set[str]] = {}
        for launching, function, site, others in _functions(version):
            besides = {names.get(kernel, kernel) for kernel, call in others if not _excludes(launching, site[1], call)}
            kernels.setdefault(function, set()).update(besides - {old.function.name, new.function.name})
        sides.append(kernels)
    notes = []
    for function in sides[0].keys() & sides[1].keys():
        gone, came = sides[0][function] - sides[1][function], sides[1][function] - sides[0][function]
        parts = [
            f"{word} {', '.join(sorted(item)[:MOST_NAMED])}" for word, item in (("no longer launches", gone), ("launches", came)) if item
        ]
        notes += [f"Besides, {function} {' and '.join(parts)}."] if parts else []
    return sorted(notes)


def _excludes(launching: Launching, launch: ast.Call, other: ast.Call) -> bool:
    """Whether a run of the function around two calls makes one of them alone: they stand in two arms of a condition, or the one in an
    arm that leaves the function."""
    graph = launching.source.module_names
    chains = [[*graph.above(item), item] for item in (launch, other)]
    depth = next((number for number, pair in enumerate(zip(*chains, strict=False)) if pair[0] is not pair[1]), 0)
    if not depth:  # one is an argument of the other
        return False
    around, children = chains[0][depth - 1], [chain[depth] for chain in chains]
    if isinstance(around, ast.If):
        return around.test not in children and (children[0] in around.body) != (children[1] in around.body)
    return any(
        isinstance(child, ast.If) and isinstance(_arm(child, chain[depth + 1])[-1], ast.Return | ast.Raise)
        for child, chain in zip(children, chains, strict=True)
    )


def _arm(node: ast.If, inner: ast.AST) -> Sequence[ast.AST]:
    """The block of a condition that holds a node."""
    return node.body if inner in node.body else node.orelse or [node.test]


def torch_calls(old: KernelVersion, new: KernelVersion) -> list[str]:
    """The calls of torch that came or went in the functions that launch a kernel, a note each function."""
    sides = [{name: (site, counts) for name, site, counts in _torch_calls(version)} for version in (old, new)]
    notes = []
    for name in sides[0].keys() & sides[1].keys():
        gone, came = sides[0][name][1] - sides[1][name][1], sides[1][name][1] - sides[0][name][1]
        parts = [f"{word} {_counted(calls)}" for word, calls in (("no longer calls", gone), ("now calls", came)) if calls]
        notes += [f"Beside the launch, {name} {' and '.join(parts)}."] if parts else []
    return sorted(notes)


def _counted(calls: Counter[str]) -> str:
    listed = [f"{name} ({count} times)" if count > 1 else name for name, count in sorted(calls.items())]
    more = f" and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else ""
    return ", ".join(listed[:MOST_NAMED]) + more


Launch = tuple[Sequence[Scope], ast.Call]
"""A launch, with the functions around it."""


def _launches(version: KernelVersion) -> Iterator[tuple[Launching, Launch]]:
    """The launches of a version; those of tests and benchmarks aside."""
    for launching in version.launching:
        if not TESTS.search(launching.where):
            yield from ((launching, launch) for launch in launching.calls)


def _functions(version: KernelVersion) -> Iterator[tuple[Launching, str, Launch, list[tuple[str, ast.Call]]]]:
    """The functions around a version's launches: the file, name, the launch, and the launches of other kernels within."""
    for launching, (scopes, call) in _launches(version):
        if scopes and isinstance(scopes[0], ast.FunctionDef | ast.ClassDef):
            inside = {id(node) for node in ast.walk(scopes[-1])}
            others = [(name, node) for name, node in launching.source.module_names.launches if id(node) in inside and node is not call]
            yield launching, getattr(scopes[-1], "name", ""), (scopes, call), others


def _torch_calls(version: KernelVersion) -> Iterator[tuple[str, Sequence[Scope], Counter[str]]]:
    for launching, (scopes, launch) in _launches(version):
        if scopes and isinstance(scopes[-1], ast.FunctionDef):
            nodes = (node for node in ast.walk(scopes[-1]) if isinstance(node, ast.Call) and node is not launch)
            calls = (node.func for node in nodes if not _excludes(launching, launch, node))
            names = [(dotted(call), call.attr if isinstance(call, ast.Attribute) else "") for call in calls]
            called = (
                name if name.startswith("torch.") else f".{method}" for name, method in names if name[:6] == "torch." or method in _OF_TORCH
            )
            yield scopes[-1].name, scopes, Counter(item for item in called if not item.startswith(_OF_HOST))


def _conditions(launching: Launching, call: ast.Call) -> Iterator[tuple[ast.expr, bool]]:
    """The conditions that a call of a file stands under within its function, each with what it has to be."""
    graph = launching.source.module_names
    chain = [*graph.above(call), call]
    for node, inner in itertools.pairwise(chain):
        if isinstance(node, ast.If):
            yield node.test, inner in node.body


def _answer(site: LaunchSite, test: ast.expr, wanted: bool, known: Mapping[str, Any]) -> set[bool]:
    """Whether a condition is as wanted, for small and for large values of what is not known in it; empty: no value tells."""
    names = names_in(test) & set(site.own)
    answers = set()
    for probe in PROBES:
        try:
            answers.add(bool(site.evaluate(test, {**dict.fromkeys(names, probe), **known})) is wanted)
        except NotLiteralError:
            return set()
    return answers
