"""From the modules of a request to Triton's IR: all of a compilation that reads a stranger's source. Part of the worker.

What this makes is text, and is believed as little as the source: `backend` checks the IR, and the pool what failed and why. The modules are
kept in memory. Of kernels only the tree is there, which Triton reads: a kernel that is called as a Python function does nothing. Constexpr
functions do run, held to `guard.HOOKS`, with the few builtins of `BUILTINS`.
"""

from __future__ import annotations

import ast
import builtins
import copy
import hashlib
import importlib.abc
import importlib.machinery
import linecache
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

BUILTINS = ("len", "list", "range", "float", "int", "isinstance", "min", "max", "bool", "abs", "tuple", "str", "sum", "zip",
            "ImportError", "AssertionError")  # fmt: skip
"""What a rebuilt module finds under the names of Python's own; `globals` and imports only while it is loaded."""


class _Source(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the modules of a request, from memory."""

    def __init__(self, request: Mapping[str, Any], language: Any, guard: Any, interpreted: bool) -> None:
        self.guard, self.language, self.interpreted = guard, language, interpreted
        self.texts = texts = request["modules"]
        self.trees = {name.removesuffix(".py"): ast.parse(text) for name, text in texts.items()}
        for name, tree in self.trees.items():
            language.check_module(tree)
            if not interpreted:
                _place(tree, request["positions"].get(f"{name}.py", ()))

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Of a module of the request."""
        return importlib.machinery.ModuleSpec(name, self, origin=f"{name}.py") if name in self.trees else None

    def exec_module(self, module: types.ModuleType) -> None:
        """Run what a rebuilt module says besides the bodies of its kernels."""
        name = module.__name__
        tree = self.trees[name]
        kernels, run = {}, []
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                if self.language.decorator(node) in self.language.CONSTEXPR_DECORATORS:
                    node = self.guard.held(copy.deepcopy(node))
                elif not self.interpreted:
                    kernels[node.name] = node
                    node = _copied(node, body=[ast.copy_location(ast.Pass(), node)])
            run.append(node)
        _show_lines(f"{name}.py", self.texts[f"{name}.py"].splitlines(keepends=True) if self.interpreted else _headers(run))
        scope = vars(module)
        allowed = {each: getattr(builtins, each) for each in BUILTINS}
        scope["__builtins__"] = dict(vars(builtins)) if self.interpreted else allowed
        scope["__builtins__"] |= {"globals": lambda: scope, "__import__": self.imported}
        scope.update(self.guard.HOOKS)
        exec(compile(ast.Module(body=run, type_ignores=[]), f"{name}.py", "exec"), scope)
        if not self.interpreted:
            del scope["__builtins__"]["globals"], scope["__builtins__"]["__import__"]
        for each, value in list(scope.items()):
            if type(value).__name__ == "JITFunction" and each in kernels and value.__module__ == name:
                _give_body(value, kernels[each])
            is_constant = type(value).__name__ == "constexpr" and type(value).__module__.startswith("triton.language")
            function = value.value if is_constant else None
            if isinstance(function, types.FunctionType) and function.__module__ == name:
                self.guard.CONSTEXPR_BODIES.add(id(function))

    def imported(self, name: str, scope: Any = None, locals_: Any = None, names: Sequence[str] = (), level: int = 0) -> Any:
        """The import of a rebuilt module: of triton, `math` and other rebuilt ones, and of these modules, data and functions of the
        language alone: a chain of names may follow before anything else is looked at."""
        if level or (name.split(".")[0] not in ("triton", "math") and not name.startswith("rebuilt_")):
            raise ImportError(name)
        found = builtins.__import__(name, {}, {}, names, 0)
        for each in () if self.interpreted else names or ():
            if hasattr(found, each) and not (name == "triton" and each in self.language.OF_TRITON):
                self.guard.allowed(getattr(found, each), each, f"{name}.{each}")
        return found


def load(request: Mapping[str, Any], language: Any, guard: Any, interpreted: bool = False) -> types.ModuleType:
    """The module that holds the kernel of a request, once nothing in any of its modules leads out of triton's language.

    Args:
        request: Has `modules`, `positions`, `entry` and `kernel` (`advisor.python_source.rebuild.Rebuilt`).
        language: The module of what trees may contain.
        guard: The module of what names may turn out to be.
        interpreted: Whether Triton's interpreter is to run the kernels, as Python: only for sources that are trusted.
    """
    guard.watch()
    source = _Source(request, language, guard, interpreted)
    # Of another request, where one process loads several: all have the same names.
    sys.meta_path[:] = [source, *(each for each in sys.meta_path if not isinstance(each, _Source))]
    for known in [each for each in sys.modules if each.startswith(language.PREFIX)]:
        del sys.modules[known]
    module = importlib.import_module(request["entry"])
    for name in source.trees:
        if not name.endswith("_prelude"):
            tree = source.trees[name]
            functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and name == request["entry"]]
            always = {id(inner) for node in functions if node.name == request["kernel"] for inner in always_compiled(node)}
            guard.check_chains(importlib.import_module(name), tree, always)
    return module


def always_compiled(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """What of a kernel is compiled whatever its constants are: what stands under no condition, and after no return."""
    for statement in function.body:
        nodes = list(ast.walk(statement))
        under = {id(inner) for node in nodes if is_conditional(node) for inner in ast.walk(node)}
        yield from (node for node in nodes if id(node) not in under)
        if any(isinstance(node, ast.Return) for node in nodes):
            return


def is_conditional(node: ast.AST) -> bool:
    """Whether constants may leave out what stands below a node; a `static_range` may be of no rounds."""
    if isinstance(node, ast.For):
        return "static_range" in ast.unparse(node.iter)
    return isinstance(node, (ast.If, ast.IfExp, ast.BoolOp))


def make_ir(request: Mapping[str, Any], target: Any, language: Any, guard: Any) -> str:
    """Triton's IR of the kernel of a request, before anything depends on layouts.

    Raises:
        Exception: Whatever Triton, or the guard, has against it.
    """
    from triton.compiler import ASTSource

    module = load(request, language, guard)
    function = vars(module)[request["kernel"]]
    constants = {tuple(path): decode(value, module, guard) for path, value in request["constexprs"]}
    attributes = {tuple(path): value for path, value in request["attrs"]}
    signature = {name: tuple(kind) if isinstance(kind, list) else kind for name, kind in request["signature"].items()}
    return ttir_of(ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attributes), target, request["options"])


def ttir_of(source: Any, target: Any, options: Mapping[str, Any]) -> str:
    """Triton's IR of an `ASTSource` for a `GPUTarget`, after the passes that know nothing of layouts."""
    from triton._C.libtriton import ir
    from triton.compiler.compiler import make_backend

    backend = make_backend(target)
    parsed = backend.parse_options(dict(options))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    made = source.make_ir(target, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed, source.language)
    return str(stages["ttir"](made, {}))


def decode(value: Any, module: types.ModuleType, guard: Any) -> Any:
    """A constant of a request: JSON, with types of triton as {"dtype": "fp32"}, or as {"name": "f32"} by the name that the rebuilt module
    has for one, tuples as {"tuple": [...]}, and functions of the rebuilt module as {"function": name}."""
    if isinstance(value, dict) and "function" in value:
        function = vars(module)[value["function"]]
        if type(function).__name__ not in ("JITFunction", "ConstexprFunction"):
            raise guard.RefusedError(value["function"])
        return function
    if isinstance(value, dict) and ("dtype" in value or "name" in value):
        import triton.language as tl

        name = value.get("dtype") or value["name"]
        named = vars(module)[name] if name == value.get("name") and name in vars(module) else getattr(tl, name)
        guard.harmless(named, name)
        return named
    if isinstance(value, dict) and "tuple" in value:
        return tuple(decode(v, module, guard) for v in value["tuple"])
    if isinstance(value, dict) and "float" in value:
        return float(value["float"])
    return value


def _place(tree: ast.Module, positions: Sequence[Sequence[int]]) -> None:
    """Give the nodes of a tree their lines and columns in the author's file."""
    nodes: list[Any] = [node for node in ast.walk(tree) if hasattr(node, "lineno")]
    for node, (line, column) in zip(nodes, positions, strict=True):
        node.lineno = node.end_lineno = line
        node.col_offset = node.end_col_offset = column


def _copied(node: ast.FunctionDef, **changed: Any) -> ast.FunctionDef:
    """A copy of a function's node, with the same parts but those that are given."""
    parts = dict(ast.iter_fields(node)) | changed
    return ast.copy_location(ast.FunctionDef(**parts), node)


def _headers(nodes: Sequence[ast.stmt]) -> list[str]:
    """Lines with a header where each function says that it begins."""
    functions = {node.lineno: f"def {node.name}(): pass\n" for node in nodes if isinstance(node, ast.FunctionDef)}
    return [functions.get(line, "\n") for line in range(1, max(functions, default=0) + 1)]


def _show_lines(name: str, lines: list[str]) -> None:
    """Let Python find lines as those of a file: Triton asks for the source of each function."""
    linecache.cache[name] = (sum(map(len, lines)), None, lines, name)


def _give_body(function: Any, node: ast.FunctionDef) -> None:
    """Have Triton read the tree of a kernel in the place of its source."""
    first, margin = node.lineno, node.col_offset
    body = copy.deepcopy(_copied(node, decorator_list=[]))
    for each in ast.walk(body):
        if hasattr(each, "lineno"):
            each.lineno = each.end_lineno = max(1, each.lineno - first + 1)  # type: ignore[attr-defined]
            each.col_offset = each.end_col_offset = max(0, each.col_offset - margin)  # type: ignore[attr-defined]
    tree = ast.Module(body=[body], type_ignores=[])
    last = max(each.lineno for each in ast.walk(body) if hasattr(each, "lineno"))
    # What an error quotes, and what tells functions of one name apart.
    digest = hashlib.sha256(ast.dump(body).encode("utf-8", "surrogatepass")).hexdigest()
    function._src = f"def {node.name}():  # {digest}\n" + "\n" * last
    function.parse = lambda: tree
