"""What a kernel may ask for and call while it is compiled: a short list. Needs the standard library only, as the process that compiles.

Triton looks up, and calls, what the tree of a kernel names. Two looks are taken: `check_chains` at the names that a module starts from,
before anything is compiled, and `watch` at what each attribute, call and operator turns out to be, wherever it came from. What is not on
the list is refused in words. A list can be outwitted; then the room holds (`advisor.system.room`).
"""

from __future__ import annotations

import ast
import difflib
import re
import types
from collections.abc import Iterator
from typing import Any

ALLOWED_TRITON = {"cdiv", "next_power_of_2", "language", "constexpr", "jit"}
METHODS: dict[type, frozenset[str]] = {
    str: frozenset({"startswith", "endswith", "upper", "lower"}),
    bool: frozenset({"bit_length"}),
    int: frozenset({"bit_length"}),
    float: frozenset({"is_integer"}),
    tuple: frozenset({"index", "count"}),
    list: frozenset({"index", "count"}),
}
"""What may be asked of Python's own values. Not `str.format`: its fields walk from any value to all of Python."""
DATA = re.compile(
    "dtype|type|shape|rank|numel|T|element_ty|address_space|const|scalar|name|primitive_bitwidth|itemsize|nbytes|fp_mantissa_width|"
    "exponent_bias|int_signedness|int_bitwidth|types|fields|values?|block_type|block_shape|strides|base|offsets|order"
)
"""What may be asked of Triton's own values and types, beside what Triton marks as a part of its language."""
ASKED = re.compile(r"is_\w+|get_block_shapes|get_int_max_value|get_int_min_value|with_element_ty")
"""Methods of Triton's types that may be called."""
CLASSES = re.compile("constexpr|tuple|range|static_range|pointer_type|block_type|dtype|condition|slice")
"""Classes of Triton's language that may be called."""
BUILTINS = (len, list, range, float, int, bool, isinstance, min, max, abs, tuple, str, sum, zip)
DIRECTIVES = re.compile(r"(?<![A-Za-z0-9_])\.\s*([A-Za-z_]\w*)")
"""What begins with a dot in assembly, and is not the rest of an instruction's name."""
PTX_DIRECTIVES = re.compile(r"reg|pred|[bsuf](8|16|32|64|128)|f16x2|bf16|bf16x2|v[248]")
"""Those that may stand in PTX: they declare registers and name types. AMD's assembler, which reads files, is given none."""
LANGUAGE = ("triton.language", "advisor_block_pointers")


REFUSED: list[RefusedError] = []
"""What was refused in this process, in turn. Triton may put an error of its own in the place of one."""


class RefusedError(Exception):
    """The kernel names something that is not triton's language.

    Attributes:
        harm: What it would do.
    """

    def __init__(self, name: str, harm: str = "would run Python while compiling") -> None:
        super().__init__(name)
        self.harm = harm
        REFUSED.append(self)

    def __repr__(self) -> str:
        return f"refused: {self} is not triton's language, and {self.harm}"  # as Triton's own error quotes it


class AbsentError(RefusedError):
    """The kernel names something that a module of triton's language does not have: another version's.

    Attributes:
        kind: "absent" where every compilation comes to the name; "refused" where it may stand in what is left out.
        line: Where the name stands in its file.
        near: A name that the module does have, and that is almost the same; None: there is none.
    """

    def __init__(self, name: str, kind: str, line: int, near: str | None) -> None:
        super().__init__(name)
        self.kind, self.line, self.near = kind, line, near

    def reason(self, version: str) -> str:
        """What is absent from which triton, and what that may come from, in one line."""
        said = f"Triton {version} has no {self}: line {self.line} "
        if self.near is not None:
            said += f"misspells {self.near}, or "
        return said + "is written for another version, whose Python ADVISOR_TRITON_PYTHON can name"


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


def check_chains(module: types.ModuleType, text: str, kernel: str = "") -> None:
    """Resolve every attribute chain that starts at a global; refuse what leads out of triton's language.

    Names that the kernel assigns itself shadow globals; a chain is refused all the same, which is the safe side.
    """
    check_held(module)
    tree = ast.parse(text)
    inside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    always = {id(node) for function in functions if function.name == kernel for node in always_compiled(function)}
    for node in (n for function in functions for statement in function.body for n in ast.walk(statement)):
        if not isinstance(node, (ast.Attribute, ast.Name)) or id(node) in inside:
            continue
        parts: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            parts.insert(0, inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name) or inner.id not in vars(module):
            continue
        value: Any = vars(module)[inner.id]
        allowed(value, inner.id, inner.id)
        for part in parts:
            if isinstance(value, types.ModuleType) and value.__name__ == "triton" and part not in ALLOWED_TRITON:
                raise RefusedError(f"{inner.id}.{'.'.join(parts)}")
            if not hasattr(value, part):
                if isinstance(value, types.ModuleType):  # also in a branch left out: a module may gain names while it compiles
                    kind = "absent" if id(node) in always else "refused"
                    near = difflib.get_close_matches(part, [name for name in dir(value) if name[0] != "_"], n=1, cutoff=0.75)
                    raise AbsentError(".".join((inner.id, *parts)), kind, node.lineno, near[0] if near else None)
                break
            if not isinstance(value, types.ModuleType) and callable(value) and not isinstance(value, type):
                raise RefusedError(f"{inner.id}.{'.'.join(parts)}")  # attributes of functions lead anywhere
            value = getattr(value, part)
            allowed(value, part, f"{inner.id}.{'.'.join(parts)}")
        if isinstance(value, types.ModuleType):  # a module that is passed around could be asked for anything later
            raise RefusedError(".".join((inner.id, *parts)))


def check_held(module: types.ModuleType) -> None:
    """Refuse what globals and defaults hold within them: of a parameter or of an element, no chain tells where its attributes lead."""
    for name, value in vars(module).items():
        if name.startswith("__") or isinstance(value, types.ModuleType):
            continue
        if isinstance(value, (tuple, list, dict)) or type(value).__name__ == "constexpr":
            harmless(value, name)
        function = getattr(value, "fn", value)
        if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
            for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
                harmless(default, f"a default of {name}")


def harmless(value: Any, what: str) -> None:
    """Raise where a value is, or holds, a module or a callable from elsewhere: a kernel that is given it could ask it for anything."""
    if isinstance(value, dict):
        value = (*value, *value.values())
    if type(value).__name__ == "constexpr":
        value = value.value
    if isinstance(value, (tuple, list)):
        for each in value:
            harmless(each, what)
    elif isinstance(value, types.ModuleType):
        raise RefusedError(f"{what}, a module,")
    else:
        allowed(value, getattr(value, "__name__", ""), what)


def allowed(value: Any, name: str, chain: str) -> None:
    """Raise where `value` is a module outside triton.language (`math` and rebuilt ones aside), or a callable from elsewhere."""
    if isinstance(value, types.ModuleType):
        if value.__name__ not in ("triton", "math") and not value.__name__.startswith(("triton.language", "rebuilt_")):
            raise RefusedError(chain)
        return
    if callable(value) and not isinstance(value, type):
        home = str(getattr(value, "__module__", "") or "")
        if type(value).__name__ in ("JITFunction", "InterpretedFunction", "constexpr", "dtype", "ConstexprFunction"):
            return
        if name not in ALLOWED_TRITON and not home.startswith(("triton.language", "rebuilt_")) and home != "math":
            raise RefusedError(chain)
    if isinstance(value, type) and value.__module__.startswith("triton._C.") and hasattr(value, "__members__"):
        return  # an enumeration that triton's language takes over from its C++, such as tl.PropagateNan
    if isinstance(value, type) and not value.__module__.startswith("triton.language") and value.__module__ != "builtins":
        raise RefusedError(chain)


def watch() -> None:
    """Hold every attribute, call and operator of a rebuilt kernel to the list, while it is compiled: also of a parameter, of an element
    and of a result, where no chain of names tells beforehand what is asked."""
    from triton.compiler.code_generator import CodeGenerator

    if getattr(CodeGenerator, "is_watched", False):
        return
    ask, attribute, call = CodeGenerator.get_Attribute, CodeGenerator.visit_Attribute, CodeGenerator.call_Function
    within, operate, formatted = CodeGenerator.visit_With, CodeGenerator._apply_binary_method, CodeGenerator.visit_JoinedStr

    def get_Attribute(self: Any, owner: Any, name: str) -> Any:
        self.asked_of = owner
        return ask(self, owner, name)

    def visit_Attribute(self: Any, node: ast.Attribute) -> Any:
        value = attribute(self, node)
        if is_rebuilt(self):
            try:
                check_attribute(self.asked_of, node.attr, value)
            except RefusedError:
                raise RefusedError(ast.unparse(node)) from None
        return value

    def call_Function(self: Any, node: ast.AST, function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        if is_rebuilt(self) and isinstance(node, ast.Call):
            check_call(function, node, arguments, keywords, self.builder.options)
        return call(self, node, function, arguments, keywords)

    def visit_With(self: Any, node: ast.With) -> Any:
        if is_rebuilt(self):
            raise RefusedError(ast.unparse(node.items[0]))
        return within(self, node)

    def _apply_binary_method(self: Any, node: ast.AST, operator: Any, left: Any, right: Any) -> Any:
        is_formatting = isinstance(getattr(node, "op", None), ast.Mod) and isinstance(getattr(left, "value", left), (str, bytes))
        if is_formatting and is_rebuilt(self):
            raise RefusedError(ast.unparse(node))
        return operate(self, node, operator, left, right)

    def visit_JoinedStr(self: Any, node: ast.JoinedStr) -> Any:
        if is_rebuilt(self) and any(getattr(each, "format_spec", None) is not None for each in node.values):
            raise RefusedError(ast.unparse(node))
        return formatted(self, node)

    for each in (get_Attribute, visit_Attribute, call_Function, visit_With, _apply_binary_method, visit_JoinedStr):
        setattr(CodeGenerator, each.__name__, each)
    CodeGenerator.is_watched = True


def is_rebuilt(generator: Any) -> bool:
    """Whether what is compiled is of a rebuilt module; else it is Triton's own."""
    return str(generator.gscope.get("__name__", "rebuilt_")).startswith("rebuilt_")


def check_attribute(owner: Any, name: str, value: Any) -> None:
    """Raise where an attribute of `owner`, which turned out to be `value`, is not on the list."""
    if type(owner).__name__ == "constexpr" and name not in ("value", "type"):
        owner = owner.value
    if isinstance(owner, types.ModuleType):
        if name.startswith("_") and owner.__name__ != "triton.language.standard":
            raise RefusedError(name)
        allowed(value, name, name)
    elif type(owner) in METHODS:
        if name not in METHODS[type(owner)]:
            raise RefusedError(name)
    elif isinstance(owner, type):
        if name not in getattr(owner, "__members__", ()):
            raise RefusedError(name)
    elif (
        name.startswith("_")
        or not type(owner).__module__.startswith(LANGUAGE)
        or not (
            DATA.fullmatch(name)
            or name in (getattr(getattr(owner, "type", None), "fields", None) or ())
            or is_marked(value)
            or ASKED.fullmatch(name)
        )
    ):
        raise RefusedError(name)


def check_call(function: Any, node: ast.Call, arguments: list[Any], keywords: dict[str, Any], options: Any) -> None:
    """Raise where what is called is not on the list, or is given what it may not be."""
    written = ast.unparse(node.func)
    if not is_callable_here(function) or any(str(name).startswith("_") for name in keywords):
        raise RefusedError(written)
    name = getattr(function, "__name__", "")
    if name in ("extern_elementwise", "dispatch"):
        raise RefusedError(written, "would link a library")
    if name == "inline_asm_elementwise":
        text = next(iter(arguments), keywords.get("asm"))
        check_assembly(getattr(text, "value", text), is_ptx=getattr(options, "backend_name", "") == "cuda")


def is_callable_here(function: Any) -> bool:
    """Whether a kernel may call a function: another kernel, a part of Triton's language, a method on the list, or a type."""
    if type(function).__name__ in ("JITFunction", "BoundJITMethod", "ConstexprFunction", "BoundConstexprFunction") or is_marked(function):
        return True
    if isinstance(function, type) and function.__module__.startswith(LANGUAGE):
        return CLASSES.fullmatch(function.__name__) is not None
    owner = getattr(function, "__self__", None)
    if isinstance(function, types.BuiltinMethodType) and type(owner) in METHODS:
        return function.__name__ in METHODS[type(owner)]
    if isinstance(function, types.MethodType) and type(owner).__module__.startswith(LANGUAGE):
        return ASKED.fullmatch(function.__name__) is not None
    if str(getattr(function, "__module__", "")) == "math" and isinstance(function, types.BuiltinFunctionType):
        return True
    if isinstance(function, types.FunctionType) and function.__module__ == "triton.language.core":
        return function.__name__ == "get_int_dtype"
    return type(function).__name__ == "dtype" or any(function is each for each in BUILTINS) or is_of_constexpr(function)


def is_of_constexpr(function: Any) -> bool:
    """Whether a function of a rebuilt module is one that `tl.constexpr` was written before, which was read to do nothing but reckon."""
    return isinstance(function, types.FunctionType) and str(function.__module__).startswith("rebuilt_")


def is_marked(value: Any) -> bool:
    """Whether Triton marks a function as a part of its language."""
    return getattr(value, "__triton_builtin__", False) is True or type(value).__name__ in ("JITFunction", "BoundJITMethod")


def check_assembly(text: Any, *, is_ptx: bool) -> None:
    """Raise where inline assembly holds a directive: what is no instruction may read files, and never ends with some."""
    for found in DIRECTIVES.finditer(text if isinstance(text, str) else ""):
        if not is_ptx or not PTX_DIRECTIVES.fullmatch(found[1]):
            raise RefusedError(f"the directive .{found[1]} of inline assembly", "may read files")
