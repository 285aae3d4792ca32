"""What a kernel comes down to, apart from how it is written: its own syntax tree, and those of all it names, in its file and in others
that it imports from."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence, Set
from copy import deepcopy
from dataclasses import replace
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

from advisor.comparison.kernels.importers import located
from advisor.compiled.launches.provenance import named
from advisor.python_source.bindings import Function, arguments, bound_by, names_in, own_names, shared_names
from advisor.python_source.imports import Import
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.kernel_forms import bound_names
from advisor.python_source.language import dotted, last_name
from advisor.python_source.module_names import importing
from advisor.python_source.source import SourceFile
from advisor.system import grouped
from advisor.system.errors import agree
from advisor.system.resources import phrase

MOST_NAMES = 2_000
"""Names of other files that a kernel's meaning is followed to."""

KEPT_TREES = 1_024
"""Statements of files of which it is kept what they come down to: each kernel and each launch of a file asks for most of them."""

KEPT_NAMES = 16_384
"""The same of the names in a statement, which take less memory: every file that imports another one asks for them again."""

TRITON = ("triton", "tl")
"""What files call it."""

Led = tuple[Import, frozenset[str]]
"""An import of a file, and the names there that are asked for."""


def meaning(
    source: SourceFile, names: Iterable[str], *, kernels: bool = True, imports: bool = True, within: Container[str] | None = None
) -> list[tuple[str, str]]:
    """The trees that names of a file come down to, comments and docstrings aside; imports that lead to no file nearby as written.

    Args:
        source: The file.
        names: The names.
        kernels: Whether kernels count, too, and what they name.
        imports: Whether to follow them to other files.
        within: The paths of the files whose trees count; None: of all.
    """
    out: list[tuple[str, str]] = []
    seen: set[tuple[str, str]] = set()
    waiting = [(source, frozenset(names))]
    while waiting and len(seen) < MOST_NAMES:
        file, wanted_attributes = waiting.pop()
        fresh = frozenset(name for name in wanted_attributes if (str(file.path), name) not in seen)
        seen |= {(str(file.path), name) for name in fresh}
        trees, imported = behind(file, fresh if kernels else fresh - file.definitions.keys(), kernels=kernels)
        if within is None or file.path.as_posix() in within:
            out += [(name, _dumped(tree)) for name, tree in trees]
        if within is not None and file.path.as_posix() in within:  # also what the file has no more, or has from elsewhere now
            out += [*((name, "") for name in fresh), *((item.alias, repr(item)) for item in imported)]
        for item, attributes in imported.items() if imports else ():
            leading = [(other, wanted) for led, wanted in leads(item, attributes) if (other := file.imported(led)) is not None]
            waiting += leading
            if not leading and (within is None or located(within, file.path.as_posix(), item) is not None):
                out.append((item.alias, repr(item)))
    return sorted(out)


def behind(
    source: SourceFile, names: Iterable[str], *, kernels: bool = True
) -> tuple[list[tuple[str, ast.AST]], Mapping[Import, set[str]]]:
    """What names of a file need.

    Returns:
        The trees of all that they name in the file, each with its name, and the imports among them, but for triton's own, with the
        attributes that are asked of each.
    """
    trees: list[tuple[str, ast.AST]] = []
    attributes: dict[str, set[str]] = {}
    imported: dict[str, list[Import]] = {}
    seen, waiting = set[str](), list(names)
    reader = source.evaluator() if source.backend is not None else None  # of branches for another target nothing counts
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        bound, definitions = source.module_names.deciding(name, reader), source.definitions.get(name, [])
        if name in source.chosen:  # which of several definitions counts is known
            definitions = [source.chosen[name]]
            bound = [node for node in bound if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef)]
        setting = [node for function in source.module_names.declaring.get(name, ()) for node in _assigning(function, name)]
        nodes: list[ast.AST] = [*definitions, *bound, *setting]
        for definition in definitions:
            around = source.module_names.place(definition).scopes[:1]  # a kernel within a function sees that function's names
            nodes += around if own_names(around).intersection(_named(definition)[0]) else ()
        # A kernel within a class does not see that one.
        for node in {id(entry): entry for entry in nodes if not (definitions and isinstance(entry, ast.ClassDef))}.values():
            of_triton = name in source.module_names.triton_roots
            items = source.module_names.imports.get(name, ())
            if isinstance(node, ast.Import | ast.ImportFrom | ast.Try) and items and all(item.is_triton for item in items):
                continue  # nor how something of triton's is
            if (of_triton and name in TRITON) or (isinstance(node, (ast.Import, ast.ImportFrom)) and (of_triton or len(bound) == 1)):
                continue  # how triton is imported, and what stands for it where it is not there, changes nothing
            node = importing(node, name) if isinstance(node, ast.stmt) else node  # what else it imports is no part of the name
            node = _attributes_of(node) if isinstance(node, ast.ClassDef) else node
            trees.append((name, node))
            names, asked_of = _named(node)
            waiting += names if kernels else [entry for entry in names if entry not in source.definitions]
            for owner, attribute in asked_of:
                attributes.setdefault(owner, set()).add(attribute)
        stars = () if nodes else tuple(replace(star, alias=name, name=name) for star in source.module_names.stars)
        inner = source.module_names.inner_imports.get(name, ())
        outer = source.module_names.last_imports(name) if definitions else source.module_names.imports.get(name, ())
        imported[name] = [import_ for import_ in (*outer, *inner, *stars) if not import_.is_triton]  # but for what it defines anew
    return trees, {item: attributes.get(name, set()) for name, items in imported.items() for item in items}


def _assigning(function: ast.AST, name: str) -> list[ast.AST]:
    """The statements of a function that declares a name global which give it something: the rest of it is no part of the name."""
    kinds = (ast.Assign, ast.AugAssign, ast.AnnAssign)
    return [node for node in ast.walk(function) if isinstance(node, kinds) and any(name in bound_by(inner) for inner in ast.walk(node))]


@lru_cache(maxsize=KEPT_TREES)
def _attributes_of(node: ast.ClassDef) -> ast.ClassDef:
    """A class without its methods: what it gives is its attributes."""
    body = [
        inner_statement
        for inner_statement in _without_texts(node.body)
        if not isinstance(inner_statement, ast.FunctionDef | ast.AsyncFunctionDef) or inner_statement.decorator_list
    ]
    return ast.ClassDef(name=node.name, bases=node.bases, keywords=node.keywords, body=body, decorator_list=node.decorator_list)


@lru_cache(maxsize=KEPT_TREES)
def _dumped(tree: ast.AST) -> str:
    if isinstance(tree, ast.FunctionDef) and not tree.decorator_list:  # no kernel: annotations are for its reader
        return without_local_names([undocumented(tree)], frozenset())[0]
    if isinstance(tree, ast.FunctionDef):
        tree = _without_variables(_with_named_lists(undocumented(tree)))
    return ast.dump(tree)


def _without_variables(function: ast.FunctionDef) -> ast.FunctionDef:
    """A function with numbers for the names of its variables, in the order in which they come up: what they are called is no part of it."""
    function, names = deepcopy(function), dict[str, str]()
    variables = _local(function) - arguments(function)
    for node in ast.walk(ast.Module(function.body, [])):
        if isinstance(node, ast.Name) and node.id in variables:
            node.id = names.setdefault(node.id, f"local {len(names)}")
    return function


def _with_named_lists(kernel: ast.FunctionDef) -> ast.FunctionDef:
    """A kernel with the arguments of `@triton.autotune(configurations, key)` by name, as most files have them."""
    decorators = [
        ast.Call(item.func, [], [*map(ast.keyword, ("configs", "key"), item.args), *item.keywords])
        if isinstance(item, ast.Call) and last_name(item) == "autotune"
        else item
        for item in kernel.decorator_list
    ]
    kernel.decorator_list = decorators
    return kernel


@lru_cache(maxsize=KEPT_NAMES)
def _named(tree: ast.AST) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The names in a tree, but for those of a function itself, and the attributes that are asked of names, and of those:
    `package.module.name`."""
    local = _local(tree) if isinstance(tree, ast.FunctionDef) else frozenset[str]()
    nodes = list(ast.walk(tree))
    chains = ((dotted(node).partition(".")[0], node.attr) for node in nodes if isinstance(node, ast.Attribute))
    attributes = (chain for chain in chains if chain[0] and chain[0] not in local)
    names = (node.id for node in nodes if isinstance(node, ast.Name) and node.id not in local)
    return tuple(dict.fromkeys(names)), tuple(dict.fromkeys(attributes))


def _local(function: ast.FunctionDef) -> Set[str]:
    """A function's own names, its arguments among them, but for those that its decorators and defaults name, too."""
    return bound_names(function) - shared_names(function) - names_in(function.args, *function.decorator_list)


def leads(item: Import, attributes: Collection[str]) -> tuple[Led, ...]:
    """The files that an import may lead to: the module that has the name, or the one of that name, whose attributes are used."""
    if item.name is None:
        return ((item, frozenset(attributes)),)
    whole = replace(item, module=".".join(filter(None, (item.module, item.name))), name=None)
    return (item, frozenset({item.name})), (whole, frozenset(attributes))


def undocumented(node: Function) -> ast.FunctionDef:
    """The function without its docstring, other strings that stand by themselves, and `pass`."""
    body = _without_texts(node.body)
    return ast.FunctionDef(name=node.name, args=node.args, body=body, decorator_list=node.decorator_list, returns=node.returns)


def _without_texts(items: Sequence[Any]) -> list[Any]:
    """Statements without those that do nothing: strings that stand by themselves, and `pass`."""
    return [
        item
        for item in items
        if not isinstance(item, ast.Pass)
        and not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str))
    ]


class _Unconverted(ast.NodeTransformer):
    """A function with `x` in place of `x.to(…)` and `tl.cast(x, …)`, but for its own arguments: a number that a launch passes."""

    def __init__(self, node: ast.FunctionDef) -> None:
        self.passed = {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in ("to", "cast"):
            return node
        value = node.args[0] if dotted(node.func.value) in ("tl", "triton.language") and node.args else node.func.value
        return node if isinstance(value, ast.Name) and value.id in self.passed else value


def converts_otherwise(old: ast.FunctionDef, new: ast.FunctionDef) -> bool:
    """Whether two functions differ in nothing but conversions of what they compute: then the types of tensors decide whether their code
    differs."""
    if own_tree(old) == own_tree(new):
        return False
    sides = [_Unconverted(node).visit(deepcopy(undocumented(node))) for node in (old, new)]
    return own_tree(sides[0]) == own_tree(sides[1])


def helpers_renamed(base: SourceFile, head: SourceFile) -> dict[str, str]:
    """What functions of Triton that a file has alone now were called in another version of it, which has these alone."""
    sides = [
        grouped((own_tree(nodes[0]), name) for name, nodes in one.definitions.items() if name not in other.definitions)
        for one, other in ((base, head), (head, base))
    ]
    return {sides[1][tree][0]: sides[0][tree][0] for tree in sides[0].keys() & sides[1] if len(sides[0][tree]) == len(sides[1][tree]) == 1}


def own_tree(node: Function, *, used: bool = False) -> str:
    """What the function itself does, whatever it and its variables are called, and what it is decorated with: arguments, or those alone
    that are `used`, and body."""
    tree = _without_variables(undocumented(node))
    if used:
        names = names_in(*tree.body)
        arguments_used = [item for item in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs) if item.arg in names]
        return "\n".join(map(ast.dump, (*arguments_used, *tree.body)))
    return "\n".join(ast.dump(argument) for argument in (tree.args, *tree.body))


def without_local_names(trees: Iterable[ast.AST], local: Set[str]) -> list[str]:
    """Trees as texts in which local names are numbers, in the order in which the names come up: two that are alike differ in no more than
    these names."""
    numbers: dict[str, str] = {}
    return ["\x1f".join(_parts(tree, local, numbers)) for tree in trees]


def _is_constant(annotation: object) -> bool:
    """Whether an annotation is one that triton goes by: `tl.constexpr`."""
    nodes = ast.walk(annotation) if isinstance(annotation, ast.AST) else ()
    return any("constexpr" in (getattr(node, "attr", ""), getattr(node, "id", "")) for node in nodes)


def _parts(tree: ast.AST, local: Set[str], numbers: dict[str, str]) -> Iterator[str]:
    """The kinds and values of a tree's nodes, each before what is within it: with the lengths of lists that says the whole tree, but for
    what annotations tell a reader alone."""
    waiting: list[object] = [tree]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    while waiting:
        node_ = waiting.pop()
        if isinstance(node_, ast.AnnAssign) and node_.value is not None and not _is_constant(node_.annotation):
            node_ = ast.Assign(targets=[node_.target], value=node_.value)
        if isinstance(node_, ast.AST):
            yield type(node_).__name__
            fields = [
                (name, value)
                for name, value in ast.iter_fields(node_)
                if name not in ("type_comment", "kind") and not (name in ("annotation", "returns") and not _is_constant(value))
            ]
            named = {"id", "arg"} if isinstance(node_, ast.Name | ast.arg) else {"name"} if isinstance(node_, kinds) else ()
            waiting += reversed(
                [
                    numbers.setdefault(value, f"local {len(numbers)}") if name in named and value in local else value
                    for name, value in fields
                ]
            )
        elif isinstance(node_, list):
            node_ = _without_texts(node_)
            yield f"{len(node_)} in a list"
            waiting += reversed(node_)
        else:
            yield repr(node_)


def arguments_changed(old: JitFunction, new: JitFunction, passed: Collection[str] | None) -> Iterator[str]:
    """Which arguments came or went, or that they stand in another order; of constants that launches pass by name (`passed`; None: no launch
    is known on one side) these tell."""
    before, after = ([parameter.name for parameter in side.parameters] for side in (old, new))
    values = {
        parameter.name
        for side in (old, new)
        for parameter in side.parameters
        if passed is None or not parameter.is_constexpr or parameter.name not in passed
    }
    came, gone = ([name for name in one if name in values and name not in other] for one, other in ((after, before), (before, after)))
    if other_names := arguments_renamed(old, new):
        yield phrase("answer.in_place", before=named([*other_names]), after=named([*other_names.values()]))
    elif came or gone:
        words = (f"takes {', '.join(came)}" * bool(came), f"no longer takes {', '.join(gone)}" * bool(gone))
        yield phrase("answer.arguments", what=" and ".join(filter(None, words)))
    elif set(before) == set(after) and before != after:
        yield phrase("answer.order")
    constants = [{parameter.name for parameter in side.parameters if parameter.is_constexpr} for side in (old, new)]
    for word, names in (("constant", constants[1] - constants[0]), ("value", constants[0] - constants[1])):
        if both := [name for name in after if name in names and name in before]:
            yield phrase(f"answer.now_a_{word}", which=named(both), are=agree(len(both), "is", "are"))
    values_of_both = {parameter.name for parameter in old.parameters if not parameter.is_constexpr} - constants[1]
    for word, hidden in (("untold", new.unaligned - old.unaligned), ("told", old.unaligned - new.unaligned)):
        if both := [name for name in after if name in hidden & values_of_both]:
            yield phrase(f"answer.multiples_{word}", which=named(both), are=agree(len(both), "is a multiple", "are multiples"))


def branches(function: JitFunction) -> bool:
    """Whether programs of a kernel may part ways: it asks for something that is no constant of it."""
    return any(isinstance(node, ast.If) and not names_in(node.test) <= function.constants for node in ast.walk(function.node))


def arguments_renamed(old: JitFunction, new: JitFunction) -> dict[str, str]:
    """What arguments, but for constants, are called now that stand in the same places under other names; empty: others came or went."""
    pairs = list(zip(old.parameters, new.parameters, strict=False))
    differ = {before.name: after.name for before, after in pairs if before.name != after.name}
    if len(old.parameters) != len(new.parameters) or any(one.is_constexpr for pair in pairs for one in pair if pair[0].name in differ):
        return {}
    return differ if differ.keys().isdisjoint({parameter.name for parameter in new.parameters}) else {}


def with_other_names(tree: str, names: Mapping[str, str]) -> str:
    """The text of a kernel's tree (`meaning`) with its arguments called otherwise, also in texts, as keys name them."""
    every = "|".join(map(re.escape, names))
    return re.sub(rf"\b((?:id|arg|value)=')({every})'", lambda named_in: f"{named_in[1]}{names[named_in[2]]}'", tree)


LEAST_ALIKE = 0.8
"""Share of parameters and lines in common from which on two bodies are versions of one kernel. Of the 7,535 pairs of different kernels
in one file of Liger-Kernel, FlagGems and flash-linear-attention 5 % are as alike; half in common, git's measure of files, have 18 %."""


LEAST_ALIKE_OF_A_NAME = 0.3
"""The same for two of nearly the same name, which a rename with a rewrite leaves; of nearly the same name are those that share as much
of their letters as `CLOSE_NAMES` says: `celoss_indice_kernel`, `celoss_indices_kernel`."""
CLOSE_NAMES = 0.9


def renamed(lost: Mapping[str, ast.FunctionDef], gained: Mapping[str, ast.FunctionDef]) -> dict[str, str]:
    """Of kernels of a file that are gone and those that are new: the old name of each new one, as far as that is clear.

    Two are a pair where either is more like the other than any further one is.
    """
    shares = {(old, new): _alike(lines, others) for old, lines in _lines(lost).items() for new, others in _lines(gained).items()}
    likely = [pair for pair, share in shares.items() if share >= LEAST_ALIKE_OF_A_NAME]
    close = {pair for pair in likely if SequenceMatcher(None, *pair, autojunk=False).ratio() >= CLOSE_NAMES}
    shares = {pair: share + (pair in close) for pair, share in shares.items()}
    pairs = {}
    for (old, new), share in shares.items():
        rivals = [other for pair, other in shares.items() if (pair[0] == old) != (pair[1] == new)]
        if share >= LEAST_ALIKE and all(share > rival for rival in rivals):
            pairs[new] = old
    return pairs


def _lines(functions: Mapping[str, ast.FunctionDef]) -> dict[str, Counter[str]]:
    """Parameters and lines of each body, as often as they occur; comments, docstrings and decorators aside."""
    return {name: Counter(_statements(undocumented(node))) for name, node in functions.items()}


def _statements(function: ast.FunctionDef) -> Iterator[str]:
    yield from ast.unparse(function.args).split(", ")
    for statement in function.body:
        yield from ast.unparse(statement).splitlines()


def _alike(lines: Counter[str], others: Counter[str]) -> float:
    return (lines & others).total() / max(lines.total(), others.total(), 1)
