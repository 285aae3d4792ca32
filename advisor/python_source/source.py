"""A Python file with kernels, read by parsing: its imports, what its names stand for, which kernels it has. Nothing is imported or run."""

from __future__ import annotations

import ast
import io
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from advisor.python_source.bindings import imports_in, returns_a_value, statements_within
from advisor.python_source.functions import Evaluation, FunctionReader
from advisor.python_source.imports import MOST_HANDS, Import, locate, of_inductor
from advisor.python_source.jit_function import JitFunction, read_function
from advisor.python_source.kernel_forms import (
    called_functions,
    decorated,
    is_constexpr_function,
    means_jit,
)
from advisor.python_source.language import dotted
from advisor.python_source.literal_values import Constexpr
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.module_names import ModuleNames, kernel_bound_again, triton_bound_again
from advisor.python_source.syntax import declared_encoding, parse
from advisor.system import grouped
from advisor.system.errors import InputError, NothingMatchedError, UsageError
from advisor.system.reading import decode_text, read_bytes

MAX_FILE_BYTES = 8_000_000


Finder = Callable[[Path, Import], "SourceFile | None"]
"""Gives the file that an import of the file at a path leads to; None: there is none that can be read."""


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A parsed file.

    Attributes:
        backend: Triton's backend of the target (cuda, hip), which decides branches; None: not known.
        arch: Architecture of the target (90, gfx942), which answers `IS_NVIDIA_HOPPER`; None: not known.
        meant: The line of the kernel that is meant, where the file has several of its name; None: the file decides.
    """

    path: Path
    text: str
    tree: ast.Module = field(repr=False)
    values: Mapping[str, Any] = field(default_factory=dict)  # of globals, where a record has them
    siblings: Mapping[str, str] = field(default_factory=dict)  # path -> text of files that came with a record
    is_recorded: bool = False  # whether it came with a record itself: it imports from such alone, wherever it says that it lay
    backend: str | None = None
    arch: int | str | None = None
    meant: int | None = None
    find: Finder | None = field(default=None, repr=False)  # what finds the files that it imports; None: the disk
    callers: tuple[SourceFile, ...] = field(default=(), repr=False)  # other files, whose calls of its functions are read

    def on(self, backend: str | None, arch: int | str | None = None) -> SourceFile:
        """The file as it is read for a target."""
        if (backend, arch) == (self.backend, self.arch):
            return self
        return self._others.setdefault((backend, arch), self.given(backend=backend, arch=arch))

    @property
    def before_bf16(self) -> bool:
        """Whether the target's tensor cores do not take bf16: NVIDIA's before Ampere."""
        return self.backend == "cuda" and isinstance(self.arch, int) and self.arch < 80

    def given(self, **changes: Any) -> SourceFile:
        """The file with other attributes, and what its tree alone decides: that is worked out once."""
        file = replace(self, **changes)
        vars(file)["module_names"] = self.module_names
        return file

    @cached_property
    def _others(self) -> dict[tuple[str | None, int | str | None], SourceFile]:
        """The file for other targets, kept so that what was read of it is read once."""
        return {}

    @cached_property
    def module_names(self) -> ModuleNames:
        """What its names stand for, by place."""
        return ModuleNames(self.tree)

    @cached_property
    def kept(self) -> dict[tuple[str, ast.AST], Any]:
        """What others worked out of it, by what that is and of which node, so that it is worked out once."""
        return {}

    @cached_property
    def unset(self) -> set[str]:
        """Environment variables that what was read of the file so far depends on; they count as not set."""
        return set()

    def imported(self, item: Import) -> SourceFile | None:
        """The file that an import leads to, among those that came with a record or near the file itself, read for the same target; None:
        none that can be read."""
        parts = item.module.split(".") if item.module else []
        tails = {path: Path(path).with_suffix("").parts for path in self.siblings if parts}
        ends = (tuple(parts), (*parts, "__init__"))
        recorded = next(
            (path for path, tail in tails.items() if tail[-len(parts) :] == ends[0] or tail[-len(parts) - 1 :] == ends[1]), None
        )
        if self.find is not None:
            other = self.find(self.path, item)
            return other.on(self.backend, self.arch) if other is not None else None
        try:
            if recorded is not None:
                file = parse_source(self.siblings[recorded], recorded)
                file = replace(file, siblings=self.siblings, values=self.values, is_recorded=self.is_recorded)
                return file.on(self.backend, self.arch)
            path = (None if self.is_recorded else locate(self.path, item)) or of_inductor(item)
            return _read(path, path.stat().st_mtime_ns).on(self.backend, self.arch) if path is not None else None
        except (InputError, OSError):
            return None

    def imports_of(self, name: str, depth: int = 0) -> list[Import]:
        """Where it imports a name from; several where there are alternatives. Of the modules all of whose names it imports
        (`from module import *`), the last that has the name and can be read counts."""
        if name in self.module_names.imports or self.module_names.statements(name) or depth > MOST_HANDS:
            return self.module_names.imports.get(name, [])
        for star in self.module_names.stars:
            other = self.imported(star)
            if other is not None and other._gives(name, depth):
                return [replace(star, alias=name, name=name)]
        return []

    def bound_around(self, node: ast.FunctionDef, name: str) -> tuple[bool, list[Import]]:
        """Whether a function around another gives a name something, as a closure sees it, and where it imports it from."""
        for scope in reversed(self.module_names.place(node).scopes):
            if isinstance(scope, ast.FunctionDef) and self.module_names.assigned_in(scope, name):
                return True, [imported for inner in statements_within(scope) for imported in imports_in(inner) if imported.alias == name]
        return False, []

    def _gives(self, name: str, depth: int) -> bool:
        """Whether a name is among all that it gives."""
        listed = self.alternatives.get("__all__", [])
        try:
            public = name in ast.literal_eval(listed[-1]) if listed else not name.startswith("_")
        except (ValueError, TypeError):  # put together in some other way: what is asked for by name is taken to be in it
            public = True
        return public and bool(self.module_names.statements(name) or self.imports_of(name, depth + 1))

    def led(self, name: str, items: Iterable[Import] | None = None, depth: int = 0) -> Iterator[tuple[SourceFile, str]]:
        """The files that the imports of a name (`items`, where they are not those of the module) lead to, also where one hands on what
        another does, nearest first, and the name there; triton's own are left out."""
        for item in self.imports_of(name) if items is None else items:
            other = self.imported(item) if item.name is not None and not item.is_triton else None
            if other is not None and item.name is not None:
                yield other, item.name
                yield from other.led(item.name, depth=depth + 1) if depth < MOST_HANDS else ()

    def imported_value(self, asking: FunctionReader, name: str) -> Any:
        """What another file gives the name that it imports as `name`.

        Raises:
            NotLiteralError: It is not one of a file nearby, or not literal.
        """
        origin = next(((other, there) for other, there in self.led(name) if there in other.alternatives), None)
        if origin is None or (str(origin[0].path), origin[1]) in asking.evaluation.importing:
            statements = self.module_names.statements(name)
            where = f"imported in line {statements[0].lineno}" if statements else "not a literal of the file"
            raise NotLiteralError(f"{name} is {where}")
        return origin[0].constant(origin[1], asking)

    def imported_function(self, asking: FunctionReader, name: str) -> tuple[FunctionReader, ast.FunctionDef] | None:
        """The function that it imports as `name`, and a reader of its file for the one that asks; None: not to be found."""
        origins = ((other, there) for other, there in self.led(name) if there in other.plain_functions)
        return next(((other.evaluator(evaluation=asking.evaluation), other.plain_functions[there]) for other, there in origins), None)

    @cached_property
    def assignments(self) -> dict[str, ast.expr]:
        """The last expression that is assigned to each name at module level, whether or not it runs; `constant` says what counts.

        Functions of which it is not known which definition runs are among them: `constant` tells why.
        """
        return {**{name: ast.Name(id=name, ctx=ast.Load()) for name in self.undecided}, **self.module_names.last_given}

    @property
    def alternatives(self) -> dict[str, list[ast.expr]]:
        """All expressions that are assigned to each name at module level, in order, whether or not they run."""
        return self.module_names.alternatives

    @cached_property
    def _plain(self) -> tuple[dict[str, ast.FunctionDef], dict[str, str]]:
        """Functions that are not kernels, and why those are left out that are defined more than once."""
        nodes = grouped(
            (node.name, node) for node in self.module_names.module_level if isinstance(node, ast.FunctionDef) and not self._is_jit(node)
        )
        functions = {name: item[0] for name, item in nodes.items() if len(item) == 1 and not self.module_names.contested(item[0])}
        reasons: dict[str, str] = {}
        reader = FunctionReader(self, Evaluation(unset=self.unset), functions=functions)
        for name in set(nodes) - set(functions):
            try:
                functions[name] = self.module_names.definition(reader, name)
            except NotLiteralError as error:
                reasons[name] = str(error)
        return functions, reasons

    @property
    def plain_functions(self) -> dict[str, ast.FunctionDef]:
        """Functions that are not kernels."""
        return self._plain[0]

    @property
    def not_followed(self) -> dict[str, str]:
        """Why functions are left out of these that are defined more than once."""
        return self._plain[1]

    def evaluator(
        self, names: Mapping[str, Any] | None = None, at: ast.FunctionDef | None = None, evaluation: Evaluation | None = None
    ) -> FunctionReader:
        """An evaluator that knows the file's literals.

        Args:
            names: Values of other names.
            at: The function whose decorators it reads, with the file as they see it; None: as it is in the end.
            evaluation: What it shares with the reader that asks; None: nobody asks.
        """
        return FunctionReader(self, evaluation or Evaluation(unset=self.unset), names, self.module_names.place(at))

    @cached_property
    def stored(self) -> Counter[str]:
        """The names that lines of the file give a value, and how many lines do."""
        return Counter(node.id for node in self.module_names.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))

    def texts(self, part: str) -> Iterator[tuple[int, str, bool]]:
        """The strings of the file that contain something: the first line of each, the string, and whether each of its lines is one of the
        file."""
        for node in self.module_names.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and part in node.value:
                yield node.lineno, node.value, (node.end_lineno or node.lineno) - node.lineno == node.value.count("\n")

    @cached_property
    def definitions(self) -> dict[str, list[ast.FunctionDef]]:
        """The `@triton.jit` functions by name, also those that are defined several times."""
        by_name = grouped(
            (node.name, node) for node in statements_within(self.tree) if isinstance(node, ast.FunctionDef) and self._is_jit(node)
        )
        return {name: sorted(nodes, key=lambda n: n.lineno) for name, nodes in by_name.items()}

    @cached_property
    def _chosen(self) -> tuple[dict[str, ast.FunctionDef], dict[str, str]]:
        kernels: dict[str, ast.FunctionDef] = {}
        if (reason := triton_bound_again(self.module_names)) is not None:
            return {}, dict.fromkeys(self.definitions, reason)
        undecided: dict[str, str] = {}
        outer = {id(node) for node in self.module_names.module_level}
        meant = next((node for nodes in self.definitions.values() for node in nodes if node.lineno == self.meant), None)
        for name, nodes in self.definitions.items():
            candidates = [node for node in nodes if id(node) in outer] or nodes  # the file's name goes before those within functions
            if meant is not None and name == meant.name:
                kernels[name] = meant
            elif (reason := kernel_bound_again(self.module_names, candidates)) is not None:
                undecided[name] = reason
            elif len(candidates) == 1 and not self.module_names.contested(candidates[0]):
                kernels[name] = candidates[0]
            elif id(candidates[0]) not in outer:
                lines = ", ".join(str(node.lineno) for node in candidates)
                undecided[name] = (
                    f"{name} is defined in {len(candidates)} functions or classes (lines {lines}); which one is meant is unknown"
                )
            else:
                try:
                    last = self.module_names.last(self.evaluator(), name)
                    if isinstance(last, ast.FunctionDef) and last.name == name:
                        kernels[name] = last
                except NotLiteralError as error:
                    undecided[name] = str(error)
        return kernels, undecided

    @property
    def chosen(self) -> dict[str, ast.FunctionDef]:
        """The definition that counts of each `@triton.jit` function, without those that are `undecided`."""
        return self._chosen[0]

    @property
    def undecided(self) -> dict[str, str]:
        """Kernels that are defined several times, or that something is put in the place of, and why it is not known what counts."""
        return self._chosen[1]

    @cached_property
    def functions(self) -> dict[str, JitFunction]:
        """The `@triton.jit` functions, by name, without those that are `undecided`."""
        return {name: self.function(node) for name, node in self.chosen.items()}

    @cached_property
    def callees(self) -> dict[str, JitFunction]:
        """What kernels of the file may call: its kernels, its functions of `@triton.constexpr_function` and `@tl.constexpr`, and functions
        without a decorator that those call."""
        functions: dict[str, ast.FunctionDef] = {}
        waiting = [name for name, node in self.plain_functions.items() if is_constexpr_function(node)]
        while waiting:
            name = waiting.pop()
            functions[name] = self.plain_functions[name]
            called = (self.plain_functions.get(function) for function in called_functions(functions[name]) - set(functions))
            waiting += [node.name for node in called if node is not None and not node.decorator_list]
        return {**{name: self.function(node) for name, node in functions.items()}, **self.functions}

    def kernel_meant(self, name: str) -> str | None:
        """The one of `callees` that a name of the file stands for in the end: itself, or another, `rnd = round_up`; None: none."""
        for _ in range(MOST_HANDS):
            given = self.alternatives.get(name, ()) if name not in self.callees and len(self.module_names.statements(name)) == 1 else ()
            if len(given) != 1 or not isinstance(given[0], ast.Name):
                break
            name = given[0].id
        return name if name in self.callees else None

    @cached_property
    def called(self) -> frozenset[str]:
        """Kernels of the file that other kernels of it call: helpers."""
        names: set[str] = set()
        for name, definitions in self.definitions.items():
            for node in (inner for definition in definitions for inner in ast.walk(definition)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id != name:
                    names.add(node.func.id)
        names |= {meant for definition in names - set(self.definitions) if (meant := self.kernel_meant(definition)) is not None}
        return frozenset(names & set(self.definitions))

    @cached_property
    def launchable(self) -> tuple[str, ...]:
        """Kernels of the file that may be launched, in its order: no other calls them, and they do not return a value, which a launch would
        not take."""
        helpers = {name for name, nodes in self.definitions.items() if all(map(returns_a_value, nodes))}
        return tuple(name for name in self.definitions if name not in self.called | helpers)

    @property
    def launched(self) -> tuple[str, ...]:
        """The same; all kernels of a file that has none but helpers."""
        return self.launchable or tuple(self.definitions)

    @cached_property
    def kernels_literal(self) -> dict[str, Any]:
        """The `KERNELS` literal (triton_kernels/README.md); empty where there is none."""
        node = self.assignments.get("KERNELS")
        try:
            value = ast.literal_eval(node) if node is not None else {}
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            return {}
        return value if isinstance(value, dict) else {}

    def kernel(self, name: str) -> JitFunction:
        """The kernel `name`.

        Raises:
            UsageError: The file has none of that name; the message lists those it has. Or it has several, and it is not known which counts.
            NothingMatchedError: It has none at all.
        """
        if name in self.functions:
            return self.functions[name]
        if name in self.definitions:
            reason = self.undecided.get(name, f"{name} is in the end no kernel: the file gives the name another value")
            choices = " or ".join(f"{self.path.name}::{binder}" for binder in self._by_line(name))
            remedy = f"{'' if self.backend else 'give --gpu, or '}name the one that is meant: {choices}"
            if reason.startswith("cannot tell"):  # what Triton's own names stand for: no definition is the one that is meant
                remedy = "give what binds the name again another one"
            raise UsageError(f"{self.path.name}: {reason}", None, None, remedy)
        if not self.definitions:
            raise NothingMatchedError(f"{self.path.name}: no Triton kernel in this file", name, "functions decorated with @triton.jit")
        raise UsageError(f"{self.path.name}: no @triton.jit function of that name", name, f"one of {', '.join(self.definitions)}")

    def named(self, text: str) -> tuple[SourceFile, str]:
        """The file, read for the kernel that is named, and the kernel's plain name.

        Args:
            text: `kernel`, or where there are several of that name `kernel:12`, by a line of the one that is meant.

        Raises:
            UsageError: The file has none of that name, or none in that line.
            NothingMatchedError: It has none at all.
        """
        name, _, line = text.partition(":")
        if text in self.definitions or not line.isdecimal() or name not in self.definitions:
            if text not in self.definitions:
                self.kernel(text)  # says which there are
            return self, text  # which of several is meant is decided for the target
        for node in self.definitions[name]:
            if (
                min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                <= int(line)
                <= (node.end_lineno or node.lineno)
            ):
                return self.given(meant=node.lineno), name
        raise UsageError(f"{self.path.name}: no kernel of that name there", text, f"one of {', '.join(self._by_line(name))}")

    def _by_line(self, name: str) -> list[str]:
        """The kernels of a name, each as it is told from the others."""
        return [f"{name}:{node.lineno}" for node in self.definitions[name]]

    def constant(self, name: str, asking: FunctionReader | None = None) -> Any:
        """The literal value of a module-level name.

        Args:
            name: The name.
            asking: The reader of another file that imports it.

        Raises:
            NotLiteralError: It is not one.
        """
        if name in self.values:
            return Constexpr(self.values[name])
        if name in self.undecided:
            raise NotLiteralError(self.undecided[name])
        if name not in self.assignments:
            raise NotLiteralError(f"{name} is not assigned in {self.path.name}")
        evaluation = None
        if asking is not None:
            evaluation = replace(asking.evaluation, importing=asking.evaluation.importing | {(str(self.path), name)})
        return self.evaluator(evaluation=evaluation).evaluate(ast.Name(id=name, ctx=ast.Load()))

    def function(self, node: ast.FunctionDef) -> JitFunction:
        """A kernel from its definition."""
        return read_function(node, self.evaluator(at=node))

    def _is_jit(self, node: ast.FunctionDef) -> bool:
        names = (dotted(decorator.func if isinstance(decorator, ast.Call) else decorator) for decorator in node.decorator_list)
        imports, given = self.module_names.imports, self.module_names.last_given
        return any(means_jit(name, imports, given) for name in names if name.partition(".")[0] not in self._own - imports.keys())

    @cached_property
    def _own(self) -> set[str]:
        """The functions and classes of the file, by name: none of them is Triton's, whatever it is called."""
        return {node.name for node in self.module_names.module_level if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@lru_cache(maxsize=64)
def _read(path: Path, changed_ns: int) -> SourceFile:
    """A file, parsed once for all that asks for it until it changes."""
    del changed_ns
    return read_source(path)


def read_source(path: str | Path) -> SourceFile:
    """Parse a file.

    Raises:
        InputError: It cannot be read, or is not Python.
    """
    if str(path).endswith(".ipynb"):
        how = "write its cells to one (jupyter nbconvert --to script), or call advisor.advise(kernel, …) in it"
        raise InputError(f"{path}: a notebook is not read", None, "a Python file", how)
    text = source_text(read_bytes(path, str(path), "a Python file", MAX_FILE_BYTES), str(path))
    return parse_source(io.StringIO(text, newline=None).read(), path)  # with ends of lines as Python reads them


def source_text(data: bytes, label: str) -> str:
    """The text of a Python file, in the encoding that it declares.

    Raises:
        InputError: It is no text in it, or does not say which.
    """
    try:
        encoding = declared_encoding(data)
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{label}: is not Python", getattr(error, "msg", None) or str(error), "Python source") from None
    return decode_text(data, label, "a Python file", encoding)


def parse_source(text: str, path: str | Path) -> SourceFile:
    """Parse a text that comes from `path`.

    Raises:
        InputError: It is not Python.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in somebody's file are not ours to warn about
            tree = parse(text)
            assert isinstance(tree, ast.Module)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        command = isinstance(error, SyntaxError) and (error.text or "").lstrip().startswith(("%", "!"))
        remedy = "take out the notebook's commands, the lines that begin with % or !" if command else None
        raise InputError(f"{path}{where}: is not Python", getattr(error, "msg", None) or str(error), "Python source", remedy) from None
    return SourceFile(path=Path(path), text=text, tree=decorated(tree))
