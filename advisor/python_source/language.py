"""The language of a rebuilt module: what its functions, defaults and decorators may contain, as lists of what is allowed.

A kernel's body is never run: Triton reads it. A constexpr function is run while a kernel compiles, and its language is the narrower one.
The reader of a file asks `check_module` of the tree that it writes out, and the process that compiles asks it again of the tree that it
reads; so this needs the standard library alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

PREFIX = "rebuilt_"
"""What the names of rebuilt modules begin with."""
CONSTEXPR_DECORATORS = ("triton.constexpr_function", "tl.constexpr")
DECORATORS = ("triton.jit", "triton.jit(noinline=True)", *CONSTEXPR_DECORATORS)
"""The decorators that rebuilt functions have, as they are written there."""
BUILTINS = frozenset(
    ("len", "list", "range", "float", "int", "isinstance", "print", "min", "max", "bool", "abs", "tuple", "str", "sum", "zip")
)
"""Of Python's own functions, those that a kernel may call."""
OF_TRITON = frozenset(("cdiv", "next_power_of_2", "language", "constexpr", "jit", "constexpr_function"))
"""What a rebuilt module takes from triton itself."""
BETWEEN = frozenset(
    ("language", "core", "math", "extra", "cuda", "hip", "libdevice", "standard", "random", "target_info", "utils", "gdc", "PropagateNan",
     "dtype")
)  # fmt: skip
"""What a chain of a literal may pass through: modules of triton's language, and what is data in it."""
TYPES = re.compile(r"(?:u?int|float|bfloat)\d+\w*")
OF_TYPES = frozenset(("name", "primitive_bitwidth", "itemsize", "fp_mantissa_width", "exponent_bias", "int_bitwidth"))
"""What a literal may ask of a type of elements."""
ATTRIBUTES = frozenset(
    ("value", "dtype", "type", "shape", "rank", "numel", "T", "element_ty", "address_space", "scalar", "name", "primitive_bitwidth",
     "itemsize", "nbytes", "fp_mantissa_width", "exponent_bias", "int_signedness", "int_bitwidth", "values")
)  # fmt: skip
"""What a constexpr function may ask of a value, beside names of a module of triton's or of `math`."""
METHODS = frozenset(("bit_length", "startswith", "endswith", "upper", "lower", "is_integer", "index", "count", "get_block_shapes"))
"""Methods that a constexpr function may call, beside questions: `is_…`."""

UNBOUND = ("tl", "triton", "float", "globals", "ImportError")
"""Names that the text of a rebuilt module itself relies on."""

_EXPRESSIONS = (
    ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare, ast.Call, ast.Attribute, ast.Subscript, ast.Name, ast.Constant, ast.Tuple,
    ast.List, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
_STATEMENTS = (
    ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If, ast.While, ast.For, ast.Break, ast.Continue, ast.Pass, ast.Assert,
    ast.Expr,
)  # fmt: skip
_OF_KERNELS = (
    *_STATEMENTS, *_EXPRESSIONS, ast.With, ast.withitem, ast.Raise, ast.Delete, ast.FunctionDef, ast.arguments, ast.arg, ast.NamedExpr,
    ast.keyword, ast.Starred, ast.Slice, ast.JoinedStr, ast.FormattedValue, ast.Dict, ast.Set, ast.ListComp, ast.GeneratorExp,
    ast.comprehension, ast.Global, ast.Nonlocal,
)  # fmt: skip
LEADING = frozenset(("handle", "builder", "semantic", "func_globals", "gi_frame", "f_globals", "tb_frame"))
"""Attributes of triton's values that lead into the compiler itself."""
KEPT_NAMES = frozenset(("getattr", "hasattr", "tl", "triton"))
"""Names that no kernel binds: what they mean is known, also to Triton (`CodeGenerator.builtin_namespace`)."""
STANDARD = ("tl.standard", "triton.language.standard")
"""The module of triton's functions that are kernels themselves; kernels elsewhere use private ones too (flash-linear-attention)."""
LANGUAGE = ("tl", "triton.language")
EXPERIMENTAL = "_experimental_"
"""Begins what some versions of Triton offer kernels under such a name, and later ones under another (`make_tensor_descriptor`)."""
IN_A_KERNEL = "in a kernel"
"""Of what no Triton compiles there: more than it does is listed."""
_OF_CONSTEXPR_FUNCTIONS = (*_STATEMENTS, *_EXPRESSIONS)
"""What has no scope of its own: every name that is stored is the function's, so that none can hide what another one means. Calls take no
keywords, for `max(values, key=...)` would call what it is given."""
_OF_LITERALS = (
    ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.UnaryOp, ast.USub, ast.UAdd, ast.Invert, ast.Not, ast.Attribute, ast.Name, ast.Load,
    ast.Call,
)  # fmt: skip
_CONSTANTS = (int, float, str, bool, type(None), type(...))


class LanguageError(Exception):
    """A tree contains what is not of the language.

    Attributes:
        reaches: Whether that is an attribute or a private name, which lead from values into what made them, a text to hide code in, or what
            no Triton compiles: nothing that a guess could have caused.
    """

    def __init__(self, text: str, reaches: bool = False) -> None:
        super().__init__(text)
        self.reaches = reaches


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a chain of names; "": it is none."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return ".".join((node.id, *parts)) if isinstance(node, ast.Name) else ""


def last_name(node: ast.AST) -> str:
    """The last part of the name that is called, or of a name itself, whatever it is asked of: `to` of `load(p).to(tl.int32)`; "": none."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def decorator(node: ast.FunctionDef) -> str:
    """The decorator of a rebuilt function; "": it has none, which no function of ours has."""
    return ast.unparse(node.decorator_list[0]) if len(node.decorator_list) == 1 else ""


def check_module(tree: ast.Module) -> None:
    """Check that a rebuilt module contains nothing but its language.

    Raises:
        LanguageError: It does; the text names what, and the line.
    """
    roots = {"tl", "triton"} | set(_names_of_language(tree))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            _check_function(node, roots)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            _check_import(node)
        elif isinstance(node, ast.If):
            _check_tried_import(node)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            _check_bound(node.targets[0].id, node)
            if not isinstance(node.value, ast.Name):  # another name of a function
                _check_literal(node.value, roots)
        else:
            _require(False, node, "a statement of a module")


def _names_of_language(tree: ast.Module) -> Iterator[str]:
    """What a module imports of triton's language, and what it is given of its prelude."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.asname for name in node.names if name.asname and name.name.split(".")[0] == "triton")
        elif isinstance(node, ast.ImportFrom):
            yield from (name.asname or name.name for name in node.names)


def _check_bound(name: str, node: ast.AST) -> None:
    """Check a name that a module binds: none that its own text relies on."""
    _require(not name.startswith("__") and name not in UNBOUND, node, "the name")


def _check_function(node: ast.FunctionDef, roots: set[str]) -> None:
    _require(decorator(node) in DECORATORS, node, "a decorator")
    _check_bound(node.name, node)
    _require(node.returns is None and not getattr(node, "type_params", None), node, "a header")
    for argument in _arguments(node):
        _require(not argument.arg.startswith("__"), argument, "the name of a parameter")
        if argument.annotation is not None:
            _require(dotted(argument.annotation) == "tl.constexpr" or _is_text(argument.annotation), argument, "an annotation")
    for default in (*node.args.defaults, *(item for item in node.args.kw_defaults if item is not None)):
        _check_literal(default, roots)
        texts = (child.value for child in ast.walk(default) if isinstance(child, ast.Constant) and isinstance(child.value, str))
        # Names and options fit a line; no public kernel has a longer text, and strangers hide code in one.
        if not all(text.isprintable() for text in texts):
            raise LanguageError(f"line {node.lineno}: a text of several lines, as a default of {node.name}, is not read", reaches=True)
    if decorator(node) in CONSTEXPR_DECORATORS:
        check_constexpr_function(node)
    else:
        for inner in _within(node):
            _check_of_kernel(inner)


def _check_of_kernel(node: ast.AST) -> None:
    """Check a node of a body that Triton reads. What names and attributes turn out to be is looked at while it does."""
    _require(isinstance(node, _OF_KERNELS), node, IN_A_KERNEL)
    if isinstance(node, ast.Name):
        read = isinstance(node.ctx, ast.Load)
        _require(not node.id.startswith("__") and (read or node.id not in KEPT_NAMES), node, "the name")
    elif isinstance(node, ast.Attribute):
        known = dotted(node.value) in STANDARD or (dotted(node.value) in LANGUAGE and node.attr.startswith(EXPERIMENTAL))
        private = node.attr.startswith("__") or (node.attr.startswith("_") and not known)
        _require(not private and node.attr not in LEADING, node, "the attribute")
    elif isinstance(node, ast.Constant):
        _require(isinstance(node.value, _CONSTANTS), node, "a constant")


def check_constexpr_function(node: ast.FunctionDef) -> None:
    """Check a function that is run while a kernel compiles: it may do nothing but reckon.

    Raises:
        LanguageError: It does more; the text names what, and the line.
    """
    parameters = {argument.arg for argument in _arguments(node)}
    parameters |= {child.id for child in ast.walk(node) if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)}
    called = {id(child.func) for child in _within(node) if isinstance(child, ast.Call)}

    def is_read(attribute: ast.Attribute) -> bool:
        root = dotted(attribute).split(".")[0]
        if attribute.attr.startswith("_") or not isinstance(attribute.ctx, ast.Load):
            return False
        if root and root not in parameters and root not in BUILTINS:  # of a module: what it is, is looked at when it is there
            return True
        return attribute.attr in (METHODS if id(attribute) in called else ATTRIBUTES) or attribute.attr.startswith("is_")

    for inner in _within(node):
        good = isinstance(inner, _OF_CONSTEXPR_FUNCTIONS)
        if isinstance(inner, ast.Attribute):
            good = is_read(inner)
        elif isinstance(inner, ast.Subscript):
            good = isinstance(inner.ctx, ast.Load)
        elif isinstance(inner, ast.Name):
            good = not inner.id.startswith("__")
        elif isinstance(inner, ast.Constant):
            good = isinstance(inner.value, _CONSTANTS)
        elif isinstance(inner, ast.Call):
            name = isinstance(inner.func, ast.Name) and inner.func.id not in parameters
            good = not inner.keywords and (name or isinstance(inner.func, ast.Attribute))
        _require(good, inner, f"in {node.name}, which runs while a kernel compiles and may do nothing but reckon,")


def _check_import(node: ast.Import | ast.ImportFrom) -> None:
    if isinstance(node, ast.Import):
        for item in node.names:
            name = item.asname or item.name.split(".")[0]
            _require(_is_of_language(item.name), node, "an import")
            standard = (name, item.name) in (("tl", "triton.language"), ("triton", "triton"))
            if not standard and (name, item.asname) != ("triton", None):
                _check_bound(name, node)
        return
    module = node.module or ""
    _require(not node.level and (_is_of_language(module) or module == "triton"), node, "an import")
    for alias in node.names:
        name = alias.asname or alias.name
        _require(alias.name != "*" and not alias.name.startswith("__"), node, "an import")
        _require(module != "triton" or alias.name in OF_TRITON, node, "an import")
        standard = (module.startswith(PREFIX) and module.endswith("_prelude")) or (module, alias.name) == ("triton", "language")
        if not (standard and name in ("tl", "triton")):
            _check_bound(name, node)


def _is_of_language(module: str) -> bool:
    """Whether a module is one that rebuilt ones import: triton's language, `math`, or a rebuilt one."""
    if module.startswith(PREFIX):
        return "." not in module
    return module in ("triton", "math") or module == "triton.language" or (module.startswith("triton.language.") and "._" not in module)


def _check_tried_import(node: ast.If) -> None:
    """`if 'x' not in globals():` before an import that is tried."""
    test = isinstance(node.test, ast.Compare) and isinstance(node.test.left, ast.Constant)
    _require(test and ast.unparse(node.test) == f"{node.test.left.value!r} not in globals()", node, "a condition")  # type: ignore[attr-defined]
    match node.body:
        case [ast.Try(body=[ast.Import() | ast.ImportFrom() as tried], handlers=[handler], orelse=[], finalbody=[])] if not node.orelse:
            _check_import(tried)
            _require(ast.unparse(handler) in ("except ImportError:\n    pass",), node, "a handler")
        case _:
            _require(False, node, "a condition")


def _check_literal(node: ast.expr, roots: set[str]) -> None:
    """Check an expression that is run as a module is imported: data, and names of triton's language, whose chains pass no other object."""
    for inner in ast.walk(node):
        good = isinstance(inner, _OF_LITERALS)
        if isinstance(inner, ast.Call):
            good = dotted(inner.func) in ("tl.constexpr", "float") and len(inner.args) == 1 and not inner.keywords
            good = good and (dotted(inner.func) == "tl.constexpr" or _is_text(inner.args[0]))
        elif isinstance(inner, ast.Attribute):
            root, *between = dotted(inner).split(".")[:-1] or [""]
            *within, last = between or [""]
            of_type = inner.attr in OF_TYPES and TYPES.fullmatch(last) is not None and set(within) <= BETWEEN
            good = root in roots and not inner.attr.startswith("_") and (set(between) <= BETWEEN or of_type)
            good = good and (root != "triton" or bool(between) or inner.attr in OF_TRITON)
        elif isinstance(inner, ast.Name):
            good = not inner.id.startswith("__")
        elif isinstance(inner, ast.Constant):
            good = isinstance(inner.value, _CONSTANTS)
        _require(good, inner, "a literal")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _arguments(node: ast.FunctionDef) -> Iterator[ast.arg]:
    written = node.args
    yield from (*written.posonlyargs, *written.args, *written.kwonlyargs)
    yield from (argument for argument in (written.vararg, written.kwarg) if argument is not None)


def _within(node: ast.FunctionDef) -> Iterator[ast.AST]:
    """What stands in a function's body."""
    for statement in node.body:
        yield from ast.walk(statement)


def _require(good: bool, node: ast.AST, what: str) -> None:
    if not good:
        line = getattr(node, "lineno", None)
        where = f"line {line}: " if line is not None else ""
        text = ast.unparse(node).split("\n")[0][:60] if isinstance(node, (ast.expr, ast.stmt)) else ""
        reaches = what == IN_A_KERNEL or isinstance(node, ast.Attribute) or (isinstance(node, ast.Name) and node.id.startswith("_"))
        raise LanguageError(f"{where}{what} {text or type(node).__name__} ({type(node).__name__}) is not read", reaches)
