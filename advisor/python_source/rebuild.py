"""A module rebuilt from parsed kernels, literals and triton imports alone, so that compiling a kernel runs nothing of its file.

Triton reads a kernel's syntax tree, but while it does so it looks up attributes and calls functions that the tree names. So what
the tree may name is limited too (`kernel_forms`): attributes only of triton's language modules, no private names, no `getattr`. The
worker that compiles checks again what the names turn out to be.
"""

from __future__ import annotations

import ast
import builtins
import copy
import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from advisor.python_source.imported import function_meant, imported_file, triton_statement
from advisor.python_source.imports import INDUCTOR, Import
from advisor.python_source.jit_function import MISSING
from advisor.python_source.kernel_forms import RUNNING, ReachError, RebuildError, decorator_of, free_names
from advisor.python_source.language import BUILTINS, LanguageError, check_constexpr_function, check_module, dotted
from advisor.python_source.literal_values import Constexpr, Passed, Symbol
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import SourceFile, parse_source
from advisor.python_source.syntax import parse

MODULE_PREFIX = "rebuilt_"
MOST_FUNCTIONS = 500
"""Functions of a file that a kernel needs."""
READ = "a literal, arithmetic of literals"
"""What a global of a kernel's can be and still be read without running its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """Generated modules.

    Attributes:
        entry: The module that holds the kernel.
        kernel: Its name there.
        modules: File name of each module, e.g. `rebuilt_0.py` -> its text, which reads as a tree that `language.check_module` passed.
        positions: File name -> line and column in the author's file of each node of that tree that has some, in the order of `ast.walk`.
        origins: File name -> path of the author's file.
    """

    entry: str
    kernel: str
    modules: dict[str, str]
    positions: dict[str, list[list[int]]] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    @property
    def source_hash(self) -> str:
        """SHA-256 of all the text."""
        digest = hashlib.sha256()
        for name in sorted(self.modules):
            digest.update(name.encode() + b"\0" + self.modules[name].encode("utf-8", "surrogatepass") + b"\0")
        digest.update(json.dumps(self.positions, sort_keys=True).encode())
        return digest.hexdigest()


def rebuild(source: SourceFile, kernel: str, passed: Iterable[Passed] = ()) -> Rebuilt:
    """The modules that hold `kernel` and what it calls, and beside it the functions that are `passed` to it.

    Raises:
        RebuildError: It needs something that would have to be run.
    """
    source.kernel(kernel)
    builder = _Builder()
    entry = builder.module(source)
    builder.add_function(source, kernel)
    for item in passed:
        builder.add_passed(source, item)
    return builder.render(entry, kernel)


@dataclass
class _Module:
    name: str
    source: SourceFile
    functions: set[str] = field(default_factory=set)
    prelude: dict[str, str] = field(default_factory=dict)  # name -> statement
    links: dict[str, tuple[str, str]] = field(default_factory=dict)  # alias -> (module, name)
    other_names: dict[str, str] = field(default_factory=dict)  # of its functions
    files: dict[str, str] = field(default_factory=dict)  # alias -> module, where kernels are called as attributes of a file


class _Builder:
    def __init__(self) -> None:
        self.modules: dict[Path, _Module] = {}
        self.reasons: dict[tuple[Path, str], str] = {}  # why a name of a file could not be followed

    def module(self, source: SourceFile) -> str:
        path = source.path.absolute()
        if path not in self.modules:
            self.modules[path] = _Module(name=f"{MODULE_PREFIX}{len(self.modules)}", source=source)
        return self.modules[path].name

    def add_function(self, source: SourceFile, name: str) -> None:
        module = self.modules[source.path.absolute()]
        if name in module.functions:
            return
        if len(module.functions) > MOST_FUNCTIONS:
            raise RebuildError(
                f"{source.path.name}: too many functions call each other",
                len(module.functions),
                f"at most {MOST_FUNCTIONS}",
                "name a kernel that calls fewer",
            )
        module.functions.add(name)
        node = _folded(source, source.callees[name].node)
        if name not in source.functions:
            try:
                check_constexpr_function(node)
            except LanguageError as error:
                raise (ReachError if error.reaches else RebuildError)(
                    f"{source.path.name}: {error}",
                    remedy="leave it to arithmetic, or give the kernel its result as a tl.constexpr argument",
                ) from None
        for needed, line in free_names(node).items():
            if not self._follow_file(source, module, needed, node):
                self._need(source, module, needed, line, node)

    def add_passed(self, source: SourceFile, passed: Passed) -> None:
        """A function of the kernel's own file, or of one that came with the record."""
        other: SourceFile | None = source
        if Path(passed.path) != source.path:
            text = source.siblings.get(passed.path)
            read = replace(parse_source(text, passed.path), siblings=source.siblings, is_recorded=True) if text is not None else None
            other = read.on(source.backend, source.arch) if read is not None else None
        if other is None or passed.name not in other.callees:
            raise RebuildError(
                f"the kernel is given the function {passed.name} of {Path(passed.path).name}, which is not there",
                None,
                "a jitted function at the top of a recorded file",
            )
        self._link(self.modules[source.path.absolute()], passed.alias, other, passed.name)

    def _need(self, source: SourceFile, module: _Module, name: str, line: int, node: ast.FunctionDef) -> None:
        if name in module.functions or name in module.prelude or name in module.links or name in module.other_names:
            return
        around, inner = source.bound_around(node, name)
        if self._bring(source, module, name, inner if around else None):
            return
        if name in source.assignments or name in source.values or (around and not inner):
            # Where the only line that sets it stands under a condition, the kernel may stand under the same.
            within = node if around or (name not in source.values and source.stored[name] == 1) else None
            module.prelude[name] = f"{name} = {self._literal(source, module, name, line, within)}"
            return
        if self._literal_elsewhere(source, module, name, inner or None):
            return
        if name in BUILTINS:
            return
        if hasattr(builtins, name):
            raise (ReachError if name in RUNNING else RebuildError)(
                f"{source.path.name}:{line}: a kernel that calls {name} would run Python while it compiles",
                name,
                "one of " + ", ".join(sorted(BUILTINS)),
                "give the kernel its result as a tl.constexpr argument",
            )
        if any(imported.module.startswith(INDUCTOR) for imported in source.imports_of(name)):
            raise RebuildError(
                f"{source.path.name}:{line}: {name} is torch's, whose files are read for it",
                "no torch, or one without it",
                None,
                "install the torch that generated the kernel beside the advisor",
            )
        decorators = map(dotted, source.plain_functions[name].decorator_list) if name in source.plain_functions else ()
        if made := next((text for text in decorators if text.split(".")[0] in source.module_names.triton_roots), ""):
            why = f"is decorated with {made}: the Triton at hand has no such functions for kernels"
            raise RebuildError(f"{source.path.name}:{line}: {name} {why}")
        raise RebuildError(
            f"{source.path.name}:{line}: {name} is neither a literal of the file, nor triton's, nor another kernel",
            self.reasons.get((source.path, name)) or _starred(source),
            remedy="give the kernel what it needs as a tl.constexpr argument or a literal"
            + ("" if source.backend else ", and --gpu where it depends on the target"),
        )

    def _literal(self, source: SourceFile, module: _Module, name: str, line: int, within: ast.FunctionDef | None) -> str:
        """The text of the value that a name has in the file, or where a kernel stands within a function of it.

        Raises:
            RebuildError: It cannot be read; with the expression and the reason.
        """
        try:
            value = source.evaluator(at=within).evaluate(ast.Name(id=name, ctx=ast.Load())) if within else source.constant(name)
        except NotLiteralError as error:
            node = source.assignments.get(name)
            text = f"{ast.unparse(node)[:60]} ({error})" if node is not None and not isinstance(node, ast.Name) else str(error)
            remedy = f"write the value itself there ({name} = ...), or give it to the kernel as a tl.constexpr argument"
            raise RebuildError(
                f"{source.path.name}:{line}: the value of {name} is unknown without running the file",
                text,
                READ,
                remedy if source.backend else f"{remedy}; give --gpu where it depends on the target",
            ) from None
        return _expression(value, source, module, line, within)

    def _bring(self, source: SourceFile, module: _Module, name: str, items: Sequence[Import] | None) -> bool:
        """Bring what a file calls `name` into its module, if it is a function, its own or imported (by `items`), or Triton's."""
        meant = function_meant(source, name, items)
        if meant is not None:
            self._link(module, name, self._known(meant[0]), meant[1])
            return True
        statement = triton_statement(source, name, items)
        if statement is not None:
            module.prelude[name] = statement
        return statement is not None

    def _literal_elsewhere(self, source: SourceFile, module: _Module, name: str, items: Sequence[Import] | None) -> bool:
        """Import a literal from a file nearby, or what it imports of Triton's; nothing outside the file's own tree is looked for."""
        for file, there in source.led(name, items):
            other = self._known(file)
            if there in other.assignments:
                try:
                    module.prelude[name] = f"{name} = {_expression(other.constant(there), other, module, 0)}"
                except NotLiteralError as error:
                    self.reasons[source.path, name] = f"{there} of {other.path.name}: {error}"
                    continue
                return True
            # A package's `__init__` hands on what its files import of triton's.
            handed = other.imports_of(there)
            if any(item.is_triton for item in handed):
                module.prelude[name] = triton_statement(other, there, handed, name) or ""
                return True
        return False

    def _known(self, file: SourceFile) -> SourceFile:
        """The file as it was read first: what is known of it is asked for once."""
        known = self.modules.get(file.path.absolute())
        return known.source if known is not None else file

    def _link(self, module: _Module, alias: str, other: SourceFile, name: str) -> None:
        link = self.module(other)
        if link == module.name:
            module.other_names |= {alias: name} if alias != name else {}
        else:
            module.links[alias] = (link, name)
        self.add_function(self.modules[other.path.absolute()].source, name)

    def _follow_file(self, source: SourceFile, module: _Module, name: str, node: ast.FunctionDef) -> bool:
        """Import a file nearby as a whole, with those of its kernels that `node` calls as attributes of it."""
        other = imported_file(source, name) if name not in source.callees else None
        if other is None:
            return False
        other = self._known(other)
        wanted = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and dotted(n.value) == name}
        if not wanted or not wanted <= set(other.callees):
            return False
        module.files[name] = self.module(other)
        for item in sorted(wanted):
            self.add_function(other, item)
        return True

    def render(self, entry: str, kernel: str) -> Rebuilt:
        texts: dict[str, str] = {}
        positions: dict[str, list[list[int]]] = {}
        origins: dict[str, str] = {}
        for module in self.modules.values():
            functions = _functions(module)  # first: what defaults need of triton's comes into the prelude
            trees = {f"{module.name}_prelude.py": _prelude(module), f"{module.name}.py": functions}
            for name, tree in trees.items():
                texts[name] = _written(tree, module.source.path.name)
                positions[name] = [[n.lineno, n.col_offset] for n in ast.walk(tree) if hasattr(n, "lineno")]  # type: ignore[attr-defined]
            origins[f"{module.name}.py"] = str(module.source.path)
        return Rebuilt(entry=entry, kernel=kernel, modules=texts, positions=positions, origins=origins)


def _prelude(module: _Module) -> ast.Module:
    """Triton's imports, and the globals that functions of a module read."""
    return _parsed(["import triton, triton.language", "import triton.language as tl", *module.prelude.values()])


def _functions(module: _Module) -> ast.Module:
    """The functions of a module, with what they read from other modules.

    A cycle of two files that call each other's kernels is closed late: names are looked up when compiling.
    """
    nodes = sorted((module.source.callees[name].node for name in module.functions), key=lambda n: n.lineno)
    copies = [_plain(node, module) for node in nodes]
    names = ", ".join(f"{n} as {n}" for n in {"triton": 0, "tl": 0, **module.prelude})
    tail = [f"from {link} import {name} as {alias}" for alias, (link, name) in module.links.items()]
    tail += [f"{alias} = {name}" for alias, name in module.other_names.items()]
    tail += [f"import {link} as {alias}" for alias, link in module.files.items()]
    tree = _parsed([f"from {module.name}_prelude import {names}"])
    tree.body += [*copies, *_parsed(tail).body]
    return tree


def _parsed(statements: Iterable[str]) -> ast.Module:
    tree = parse("\n".join(statements))
    assert isinstance(tree, ast.Module)
    return tree


def _written(tree: ast.Module, where: str) -> str:
    """The text of a tree, which reads as that tree.

    Raises:
        RebuildError: The tree contains what is not of the language, or cannot be written so.
    """
    try:
        check_module(tree)
        text = ast.unparse(tree) + "\n"
        same = ast.dump(parse(text)) == ast.dump(tree)
    except LanguageError as error:
        raise (ReachError if error.reaches else RebuildError)(
            f"{where}: {error}", remedy="leave it to Triton's language and arithmetic"
        ) from None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        same = False
    if not same:
        raise RebuildError(f"{where}: a kernel, or what it calls, does not read the same once it is written out again")
    return text


def _starred(source: SourceFile) -> str | None:
    """What may give a file a name that was not found, where it imports all names of modules that cannot be followed."""
    unread = [star for star in source.module_names.stars if source.imported(star) is None]
    texts = [f"from {'.' * star.level}{star.module} import *" for star in reversed(unread)]
    return f"a name that may come with {' or '.join(texts)}, of which no file is nearby" if texts else None


class _Folder(ast.NodeTransformer):
    """Puts numbers in the place of what a kernel asks torch: `torch.finfo(torch.float32).max`, `torch.version.hip`."""

    def __init__(self, source: SourceFile) -> None:
        self.reader, self.modules = source.evaluator(), source.module_names.modules

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """The number, or the expression as it is."""
        root: ast.expr = node
        while isinstance(root, ast.Attribute | ast.Call):
            root = root.value if isinstance(root, ast.Attribute) else root.func
        if isinstance(root, ast.Name) and self.modules.get(root.id) == "torch":
            with suppress(NotLiteralError):
                value = self.reader.evaluate(node)
                if value is None or isinstance(value, int | float):
                    number = ast.Constant(value if value is None else abs(value))
                    return ast.copy_location(number if value is None or value >= 0 else ast.UnaryOp(ast.USub(), number), node)
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """The answer to `torch.version.hip is not None`, of which only that it is there is known."""
        root = (dotted(node.left) or "").partition(".")[0]
        if self.modules.get(root) == "torch" and isinstance(node.ops[0], ast.Is | ast.IsNot):
            with suppress(NotLiteralError):
                return ast.copy_location(ast.Constant(bool(self.reader.evaluate(node))), node)
        return self.generic_visit(node)


def _folded(source: SourceFile, node: ast.FunctionDef) -> ast.FunctionDef:
    """The function with what it asks torch answered."""
    if not any(isinstance(n, ast.Name) and source.module_names.modules.get(n.id) == "torch" for n in ast.walk(node)):
        return node
    folded = ast.fix_missing_locations(_Folder(source).visit(copy.deepcopy(node)))
    assert isinstance(folded, ast.FunctionDef)
    return folded


def _plain(node: ast.FunctionDef, module: _Module) -> ast.FunctionDef:
    """The function with our decorator, and a header whose defaults are literals and whose annotations are constexpr or a name of a type:
    everything that decorators, defaults and annotations could run is evaluated here instead."""
    function, written = module.source.callees[node.name], node.args

    def expression(text: str) -> ast.expr:
        tree = parse(text, "eval")
        assert isinstance(tree, ast.Expression)
        expression_ = tree.body
        for inner in ast.walk(expression_):
            if hasattr(inner, "lineno"):
                inner.lineno, inner.col_offset = node.lineno, node.col_offset  # type: ignore[attr-defined]
        return expression_

    def plain(argument: ast.arg) -> ast.arg:
        parameter = function.parameter(argument.arg)
        annotation = parameter.annotation if parameter is not None and parameter.annotation in _TYPE_ANNOTATIONS else None
        kind = "tl.constexpr" if parameter is not None and parameter.is_constexpr else repr(annotation) if annotation else None
        return ast.copy_location(ast.arg(arg=argument.arg, annotation=expression(kind) if kind else None), argument)

    def default(argument: ast.arg) -> ast.expr | None:
        value = getattr(function.parameter(argument.arg), "default", MISSING)
        known = isinstance(value, (int, float, str, bool, type(None), tuple, list, Symbol, Constexpr))
        return expression(_expression(value, module.source, module, node.lineno)) if known else None

    given = [default(posonlyarg) for posonlyarg in (*written.posonlyargs, *written.args)]
    least = next((place for place, value in enumerate(given) if value is not None), len(given))
    arguments = ast.arguments(
        posonlyargs=[plain(posonlyarg) for posonlyarg in written.posonlyargs],
        args=[plain(item) for item in written.args],
        vararg=plain(written.vararg) if written.vararg is not None else None,
        kwonlyargs=[plain(kwonlyarg) for kwonlyarg in written.kwonlyargs],
        kw_defaults=[default(kwonlyarg) for kwonlyarg in written.kwonlyargs],
        defaults=[value or expression("None") for value in given[least:]],  # a default that is not known: a launch gives a value
    )
    jit = "triton.jit(noinline=True)" if _noinline(node) else "triton.jit"
    ours = jit if node.name in module.source.functions else decorator_of(node)
    written_as = _parsed([f"@{ours}", f"def {node.name}(): pass"]).body[0]
    assert isinstance(written_as, ast.FunctionDef)
    written_as.decorator_list, written_as.args, written_as.body = [expression(ours)], arguments, _folded(module.source, node).body
    return ast.copy_location(written_as, node)


_TYPE_ANNOTATIONS = frozenset({"i1", "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64", "fp16", "bf16", "fp32", "fp64"})


def _expression(value: Any, source: SourceFile, module: _Module, line: int, within: ast.FunctionDef | None = None) -> str:
    """Python source of a literal value, with the imports it needs in the prelude; `within`: the kernel, where it stands in a function."""
    if isinstance(value, Constexpr):
        return f"tl.constexpr({_expression(value.value, source, module, line)})"
    if isinstance(value, Symbol):
        root = value.text.split(".")[0]
        if any(part.startswith("_") for part in value.text.split(".")):
            raise RebuildError(
                f"{source.path.name}:{line}: private names are not allowed",
                value.text,
                "a public name of triton's",
                "give the kernel what it needs as a tl.constexpr argument",
            )
        around = source.bound_around(within, root)[1] if within is not None else None
        statement = triton_statement(source, root, around or None) if root not in module.prelude and root not in ("tl", "triton") else None
        if statement is not None:
            module.prelude = {root: statement, **module.prelude}
        return value.text
    if isinstance(value, (list, tuple)):
        inner = ", ".join(_expression(v, source, module, line) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)" if value else "()"
    if isinstance(value, dict):
        pairs = (f"{_expression(k, source, module, line)}: {_expression(v, source, module, line)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, float):
        return f"float({str(value)!r})" if value != value or value in (float("inf"), float("-inf")) else repr(value)
    if value is None or isinstance(value, (bool, int, str)):
        return repr(value)
    raise RebuildError(
        f"{source.path.name}:{line}: a {type(value).__name__} is not a literal a kernel can use",
        None,
        "a number, a text, None, a type of triton's, or a tuple of them",
        "give the kernel its parts as literals",
    )


def _noinline(node: ast.FunctionDef) -> bool:
    keywords = [keyword for decorator in node.decorator_list if isinstance(decorator, ast.Call) for keyword in decorator.keywords]
    return any(item.arg == "noinline" and isinstance(item.value, ast.Constant) and item.value.value is True for item in keywords)
