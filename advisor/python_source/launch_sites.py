"""Where a file, or others, launch its kernels: which of the launches is the one that is asked about. Read by parsing."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from advisor.python_source.bindings import Scope, arguments, call_arguments, names_in, other_values, own_names, own_nodes
from advisor.python_source.imported import function_meant, imported_file
from advisor.python_source.imports import Import
from advisor.python_source.kernel_forms import grid_of
from advisor.python_source.language import dotted
from advisor.python_source.launch_site import Known, LaunchSite
from advisor.python_source.launch_walk import DEFAULT, SWITCH
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import SourceFile
from advisor.python_source.tensors import Stride, Tensor

LaunchCall = tuple[Sequence[Scope], ast.Call]
"""The scopes around a launch, the outermost first, and the call."""
LaunchCalls = Sequence[tuple[SourceFile, Sequence[Scope], ast.Call]]
"""Launches by other files than the kernel's: the file, the scopes around the launch, the outermost first, and the call."""

PROBE = 1024
"""Stands for a size that is not known, to see what would follow from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLaunch:
    """A launch and where it stands.

    Attributes:
        grid: Programs; None: not known.
        line: Of the launch.
        text: The grid as it is written.
        blocks_in_grid: Numbers in it that are a block's too, as in `k[(cdiv(n, 256),)](..., BLOCK=256)`: they change with the block.
        assigned: Lines that give names their values which it passes, by the argument: those given one value alone.
        constexprs: Constants that the launch passes, as far as they can be worked out.
        options: Options that it passes (num_warps, ...), the same.
        numbers: Values of its other arguments, the same.
        types: Types of the elements of tensors that it passes, where the function around it says which it makes them of: "int32".
        strides: Strides that it passes, were its tensors contiguous; None: not known, but not the innermost one, or not known to be it.
        presumed: Constants that follow where an argument which a call of the function around cannot leave out is not None:
            `HAS_BIAS=bias is not None`.
        passed: Whether arguments are given something, by the same, where what the function around says of them is that or None.
        likely: Of constants that are not known what one of several arms passes.
        of_elements: Constants that are passed as the type of a tensor's elements, or what a dictionary has for that: `TYPES[x.dtype]`.
        by_default: Of all these values, those that hang on defaults of the function around, which a call may give something else.
        switched: Of all these names, those whose values hang on a flag, or on what may be None, that no call says, or on whether gradients
            are wanted.
    """

    grid: tuple[int, ...] | None
    line: int
    text: str
    blocks_in_grid: frozenset[int] = frozenset()
    assigned: Mapping[str, int] = field(default_factory=dict)
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    strides: Mapping[str, int | None] = field(default_factory=dict)
    presumed: Mapping[str, bool] = field(default_factory=dict)
    passed: Mapping[str, bool] = field(default_factory=dict)
    likely: Mapping[str, int | str] = field(default_factory=dict)
    of_elements: frozenset[str] = frozenset()
    by_default: frozenset[str] = frozenset()
    switched: frozenset[str] = frozenset()


def found_launch(site: LaunchSite, values: Mapping[str, Any], defaults: Mapping[str, Any], options: Sequence[str]) -> FoundLaunch:
    """What is known of the launch; its grid only where it follows from what is known."""
    constants, launched = site.constants(values, options)
    known = {**defaults, **plain_values(constants), **values}
    try:
        grid = site.grid(known)
    except NotLiteralError:
        grid = None
    numbers = site.other_numbers(values, known)
    presumed, passed = site.presumed({**constants, **values}, known), site.tensors(known)
    certain = [constants, launched, numbers]
    return FoundLaunch(
        switched=_hanging_on(SWITCH, *certain, presumed, passed),
        by_default=_hanging_on(DEFAULT, *certain) | typed_by_callers(site),
        grid=grid,
        line=site.call.lineno,
        text=ast.unparse(grid_of(site.call))[:120],
        blocks_in_grid=frozenset(site.walk(known).divided_by),
        assigned=_assigned_lines(site),
        constexprs=plain_values(constants),
        options=plain_values(launched),
        numbers=plain_values(numbers),
        types=site.types(),
        strides=site.strides(values, known),
        presumed=plain_values(presumed),
        passed=plain_values(passed),
        likely=site.likely({**constants, **presumed, **values}, known),
        of_elements=site.of_elements().difference(constants),
    )


def typed_by_callers(site: LaunchSite) -> frozenset[str]:
    """The parameters for which a launch passes a tensor that the callers of the function around it make, of a type that they name."""
    return frozenset(name for name, node in site.passed.items() if isinstance(node, ast.Name) and node.id in site.elements)


def types_called_with(source: SourceFile, kernel: str) -> frozenset[str]:
    """The same of all launches of a kernel in its file."""
    sites = (LaunchSite(source, source.kernel(kernel), scopes, call, None, None) for scopes, call in launches(source, kernel))
    return frozenset[str]().union(*map(typed_by_callers, sites))


def _assigned_lines(site: LaunchSite) -> dict[str, int]:
    graph, names = site.source.module_names, {name: node.id for name, node in site.passed.items() if isinstance(node, ast.Name)}
    given = [(name, graph.given(site.scopes, local)) for name, local in names.items()]
    return {name: values[0].lineno for name, values in given if len(values) == 1 and isinstance(values[0], ast.expr)}


def plain_values(known: Mapping[str, Known]) -> dict[str, Any]:
    """Values by name, without what they hang on."""
    return {name: item.value for name, item in known.items()}


def _hanging_on(what: str, *groups: Mapping[str, Known]) -> frozenset[str]:
    """The names whose values hang on something, wherever else they do not."""
    return frozenset(name for item in groups for name, known in item.items() if what in known.hangs)


def launch_sites(
    source: SourceFile, kernel: str, num_sms: int | None = None, element_bytes: int | None = None, elsewhere: LaunchCalls = ()
) -> Iterator[LaunchSite]:
    """The launches of a kernel in its file, or those elsewhere in place of them; the arguments as of `grid_from_launches`."""
    calls = elsewhere or ((source, scopes, call) for scopes, call in launches(source, kernel))
    return (LaunchSite(file, source.kernel(kernel), scopes, call, num_sms, element_bytes) for file, scopes, call in calls)


def grid_from_launches(
    source: SourceFile,
    kernel: str,
    values: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
    num_sms: int | None = None,
    element_bytes: int | None = None,
    elsewhere: LaunchCalls = (),
) -> FoundLaunch | None:
    """The first launch in the file whose grid follows from what is known; None: there is none. One that passes other numbers than those
    given, with a grid that does not depend on them (a check of one small size), counts only where it is the only launch.

    A name in the grid's expression counts as the argument that it is passed for, as what the function around the launch assigns to it,
    or, where that function has no such name, as the argument of that name.

    Args:
        source: The parsed file.
        kernel: Name of the kernel.
        values: Arguments and constants by name.
        defaults: Those that count where neither `values` nor the launch itself says more.
        options: Names of launch options.
        num_sms: SMs of the GPU, for files that ask torch or Triton for them; None: not known.
        element_bytes: Of its tensors, for files that ask one of them; None: not known.
        elsewhere: Launches by other files, which count in place of its own.
    """
    of_others, count = None, 0
    for site in launch_sites(source, kernel, num_sms, element_bytes, elsewhere):
        count += 1
        launch = found_launch(site, values, defaults or {}, options)
        if launch.grid is None:
            continue
        if not site.is_for_others(values, {**(defaults or {}), **launch.constexprs}, launch.grid):
            return launch
        of_others = of_others or launch
    return of_others if count == 1 else None


MOST_LAUNCHES = 8
"""Of one kernel that are looked at for what they agree on."""


def common_launch(
    source: SourceFile,
    kernel: str,
    values: Mapping[str, Any],
    options: Sequence[str] = (),
    num_sms: int | None = None,
    element_bytes: int | None = None,
    elsewhere: LaunchCalls = (),
) -> FoundLaunch | None:
    """What all launches of the kernel in the file pass alike, without the grid; None: there is none.

    Args:
        source, kernel, values, options, num_sms, element_bytes, elsewhere: As for `grid_from_launches`.
    """
    sites = itertools.islice(launch_sites(source, kernel, num_sms, element_bytes, elsewhere), MOST_LAUNCHES)
    launches_read = [found_launch(site, values, {}, options) for site in sites]
    if not launches_read:
        return None
    first = launches_read[0]
    fields = ("constexprs", "options", "numbers", "types", "strides", "presumed", "passed", "likely")
    alike: dict[str, Any] = {
        field: {
            name: value
            for name, value in getattr(first, field).items()
            if all(name in getattr(item, field) and _same(getattr(item, field)[name], value) for item in launches_read)
        }
        for field in fields
    }
    of_elements = first.of_elements.intersection(*(item.of_elements for item in launches_read))
    hanging: dict[str, Any] = {
        name: frozenset[str]().union(*(getattr(item, name) for item in launches_read)) for name in ("by_default", "switched")
    }
    return replace(first, grid=None, of_elements=of_elements, **hanging, **alike)


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


def needed_for_grid(
    source: SourceFile,
    kernel: str,
    values: Mapping[str, Any],
    unknown: Sequence[str],
    defaults: Mapping[str, Any],
    options: Sequence[str] = (),
    num_sms: int | None = None,
    element_bytes: int | None = None,
) -> tuple[int, tuple[str, ...]] | None:
    """The line of the first launch whose grid follows once more arguments are known, and which these are, with names of the function
    around the launch where it, or what strides are, does not follow without (`B, T, H = q.shape`); None: there is none.

    Args:
        source, kernel, values, defaults, options, num_sms, element_bytes: As for `grid_from_launches`.
        unknown: Names of the numbers among its arguments that are not known.
    """
    for site in launch_sites(source, kernel, num_sms, element_bytes):
        if (needed := _needed(site, values, unknown, defaults, options)) is not None:
            return site.call.lineno, needed
    return None


def _needed(
    site: LaunchSite, values: Mapping[str, Any], unknown: Sequence[str], defaults: Mapping[str, Any], options: Sequence[str]
) -> tuple[str, ...] | None:
    """The names on which the grid of a launch hangs, and the strides that it passes; None: it does not follow from any."""
    # Arguments are left out first, then what is assigned last, for it follows from other names; the extents of tensors remain.
    # What an attribute is read of is a tensor, and no number.
    objects = {n.value.id for n in ast.walk(site.function) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)}
    names, walk = site.local - {*values, *unknown, *objects, dotted(grid_of(site.call)), "_"}, site.first
    assigned = {name: -line for name, line in walk.lines.items()} | dict.fromkeys(walk.unpacked, 1)
    around = sorted(names, key=lambda name: (assigned.get(name, -math.inf), name))

    def tells_grid(names: Sequence[str]) -> bool:
        return site.tells_grid({**values, **dict.fromkeys(names, PROBE)}, defaults, options)

    def strides(names: Sequence[str]) -> frozenset[str]:
        return site.strides_told({**values, **dict.fromkeys([*numbers, *names], PROBE)}, defaults, options)

    needed = next((names for names in (unknown, [*around, *unknown]) if tells_grid(names)), None)
    if needed is None:
        return None
    needed = _fewest(needed, tells_grid)
    numbers = [*needed, *(name for name in unknown if not isinstance(site.asked.get(name), Stride))]
    more = [name for name in around if name not in needed and assigned.get(name, 1) > 0]  # what is assigned may be a shape
    every = strides(more)
    return *needed, *([] if strides(()) >= every else _fewest(more, lambda names: strides(names) >= every))


def _fewest(names: Sequence[str], enough: Callable[[Sequence[str]], bool]) -> list[str]:
    """Names that are enough, of which none can be left out; the first of those that can are."""
    fewest = [*names]
    for name in names:
        fewer = [item for item in fewest if item != name]
        fewest = fewer if enough(fewer) else fewest
    return fewest


LONGEST_GRID = 120
"""Characters of a grid that is shown as it is written."""


def names_around_launches(source: SourceFile, kernel: str) -> frozenset[str]:
    """Names of the functions around the launches of a kernel, whose values may be given for a grid that hangs on them."""
    around = (own_names(scopes) for scopes, _ in launches(source, kernel))
    return frozenset[str]().union(*around) - {*source.kernel(kernel).names}


def grid_as_written(source: SourceFile, kernel: str) -> tuple[int, str] | None:
    """The line of the first launch in the file that says its grid in one expression, and that; None: there is none, or it is too long.

    `grid`, where the function around it assigns that once, is what it assigns: a tuple, or what a lambda or a function of one line returns.
    """
    for scopes, call in launches(source, kernel):
        grid: ast.AST = grid_of(call)
        given = source.module_names.given(scopes, grid.id) if isinstance(grid, ast.Name) else [grid]
        match given:
            case [ast.Lambda(body=grid) | ast.FunctionDef(body=[ast.Return(value=ast.expr() as grid)]) | (ast.expr() as grid)]:
                text = ast.unparse(grid)
                if len(text) <= LONGEST_GRID:
                    return call.lineno, text
    return None


def passed_elements(site: LaunchSite) -> set[str]:
    """The parameters for which a launch passes how many elements a tensor has, `x.numel()`; none where it works out a constant, which may
    be a block as long as that."""
    values = {name: _assigned(site, node) for name, node in site.passed.items()}
    if any(
        isinstance(value, ast.Call | ast.Subscript | ast.BinOp) for name in values.keys() & site.kernel.constants for value in values[name]
    ):
        return set()
    calls = {name: value.func for name, (value, *_) in values.items() if isinstance(value, ast.Call) and not value.args}
    return {name for name, function in calls.items() if isinstance(function, ast.Attribute) and function.attr == "numel"}


def _assigned(site: LaunchSite, node: ast.expr) -> list[ast.expr]:
    """The values of the statements by which the function around a launch gives a name something; of anything else itself."""
    graph = site.source.module_names
    binders = graph.binders(site.function).get(node.id, []) if isinstance(node, ast.Name) else []
    around = [outer for binder in binders for outer in (graph.parent(binder), *graph.above(graph.parent(binder))[-1:])]
    return [outer.value for outer in around if isinstance(outer, ast.Assign)] or [node]


def handed_on(site: LaunchSite) -> set[str]:
    """The parameters for which a launch passes what the function around it was given."""
    given = arguments(site.function) - other_values(site.function)
    return {name for name, node in site.passed.items() if isinstance(node, ast.Name) and node.id in given}


def is_handed(site: LaunchSite, name: str) -> bool:
    """Whether what a launch passes is an argument of the function around it, or an attribute of one, and not known: `ctx.BLOCK_SIZE`."""
    value = site.first.evaluated(site.passed[name])[0] if name in site.passed else None
    root = dotted(site.passed[name]).partition(".")[0] if name in site.passed else ""
    handed = root in arguments(site.function) - site.first.lines.keys()  # whatever the caller's name for it is
    return isinstance(value, Tensor) and (handed or ":" not in value.name)


def split_grid(text: str) -> tuple[str, set[str]]:
    """A grid as it is written, `(a, b)`, as the expression of its sizes, `a,b`, and the names in it.

    Raises:
        SyntaxError: It is no expression.
    """
    tree = ast.parse(text, mode="eval").body
    return ",".join(map(ast.unparse, tree.elts)) if isinstance(tree, ast.Tuple) else text, names_in(tree)


def passed_by_launches(source: SourceFile, kernel: str, elsewhere: LaunchCalls = ()) -> dict[str, list[int]]:
    """The parameters and options for which launches of the kernel pass something, whatever that is, with the lines of those that do; all
    parameters where one spreads a list or a dictionary."""
    function = source.kernel(kernel)
    lines: dict[str, list[int]] = {}
    for _, call in [(scopes, call) for _, scopes, call in elsewhere] or launches(source, kernel):
        given, spread = call_arguments(function.node, call)
        for name in dict.fromkeys([*(function.names if spread else ()), *given]):
            lines.setdefault(name, []).append(call.lineno)
    return lines


def launches(source: SourceFile, kernel: str) -> Iterator[tuple[list[Scope], ast.Call]]:
    """The scopes around each launch of a kernel, the outermost first, and the call.

    Where a function binds the kernel's name, by an argument or an assignment, it launches something else, as far as is known.
    """
    kernels = source.definitions.get(kernel, [])
    kernels = [source.kernel(kernel).node] if len(kernels) > 1 else kernels
    for name, node in source.module_names.launches:
        if name in source.module_names.declaring or kernel not in (name, source.kernel_meant(name)):
            continue
        around = source.module_names.scopes_around(node)
        if not any(name in _bound(outer, source, kernels) for outer in around):
            yield around, node


HALF = {
    "torch.bfloat16": "bf16",
    "torch.float16": "fp16",
    "torch.half": "fp16",
    "tl.bfloat16": "bf16",
    "tl.float16": "fp16",
}
"""Types of 16 bits by their names. Others (fp32 of scales and sums) say nothing of the rest."""


def named_element(source: SourceFile, kernel: str) -> str | None:
    """The type of a tensor's elements, where one of `HALF` alone is named by the functions that launch the kernel, or else by the module's
    own statements, or else by the kernel; None: none is, or several are.

    >>> from advisor.python_source.source import parse_source
    >>> named_element(parse_source("def f(x):\\n    k[(1,)](x.to(torch.bfloat16))\\n\\n@triton.jit\\ndef k(x): pass", "f.py"), "k")
    'bf16'
    """
    launching = (node for scopes, _ in launches(source, kernel) for scope in scopes[:1] for node in ast.walk(scope))
    kernels = (node for definition in source.definitions.get(kernel, ()) for node in ast.walk(definition))
    for nodes in (launching, own_nodes(source.tree), kernels):
        if names := {HALF[name] for node in nodes if (name := dotted(node)) in HALF}:
            return names.pop() if len(names) == 1 else None
    return None


def imported_launches(source: SourceFile) -> Iterator[tuple[SourceFile, str, list[Scope], ast.Call]]:
    """The launches of kernels that a file imports: the kernel's file, its name there, the scopes around the launch, and the call.

    As in `launches`, what a function binds itself is something else; what it imports for itself is what that leads to.
    """
    kernels_by_name: dict[tuple[str, bool], tuple[SourceFile, str] | None] = {}
    graph = source.module_names
    kernels = [node for nodes in source.definitions.values() for node in nodes]
    for name, node in source.module_names.launches:
        root = name.partition(".")[0]
        around = graph.scopes_around(node)
        binding = [outer for outer in around if root in _bound(outer, source, kernels)]
        items = graph.inner_imports.get(root) if all(_imports_alone(source, outer, root) for outer in binding) else None
        if root in graph.declaring or (binding and items is None) or (root in source.definitions and not binding):
            continue
        if (name, bool(binding)) not in kernels_by_name:
            kernels_by_name[name, bool(binding)] = _imported(source, name, items if binding else None)
        if (kernel := kernels_by_name[name, bool(binding)]) is not None and kernel[0].path != source.path:
            yield *kernel, around, node


def _imports_alone(source: SourceFile, scope: Scope, name: str) -> bool:
    """Whether all that a scope binds a name to is imported."""
    nodes = source.module_names.binders(scope).get(name, ())
    return name not in arguments(scope) and all(isinstance(node, ast.alias) for node in nodes)


def _imported(source: SourceFile, name: str, items: Sequence[Import] | None = None) -> tuple[SourceFile, str] | None:
    """The file that defines the kernel which another one names so, and the kernel's name there; `items`: the imports of the name, where a
    function has its own."""
    module, _, kernel = name.rpartition(".")
    file = imported_file(source, module) if module else source
    meant = function_meant(file, kernel, items) if file is not None else None
    return meant if meant is not None and meant[1] in meant[0].functions else None


def _bound(scope: Scope, source: SourceFile, kernels: Sequence[ast.AST]) -> set[str]:
    """Names that a scope binds to something else than some kernels that it defines: what it declares global it only may."""
    bound = ((name, node) for name, nodes in source.module_names.binders(scope).items() for node in nodes)
    return arguments(scope) | {name for name, node in bound if node not in kernels and not isinstance(node, (ast.Global, ast.Nonlocal))}
