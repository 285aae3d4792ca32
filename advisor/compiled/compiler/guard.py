"""What a kernel may ask for and call while it is compiled: a short list. Needs the standard library only, as the process that compiles.

Triton looks up, and calls, what the tree of a kernel names, and runs constexpr functions. What a tree may contain at all is said by
`advisor.python_source.language`. Here two looks are taken at what names turn out to be: `check_chains` at those that a module starts from,
before anything is compiled, and `watch` (of kernels) and `held` (of constexpr functions) at each attribute, call and operator, wherever it
came from. What is not on the list is refused in words. A list can be outwitted; then the room holds (`advisor.system.sandbox`).
"""

from __future__ import annotations

import ast
import difflib
import functools
import operator
import re
import types
from collections.abc import Callable, Container, Iterable
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
MOST_STEPS = 1_000_000
"""Rounds of loops, calls and numbers of a range of the constexpr functions of one kernel. A call of one by another, on whose way Triton
looks at each argument, takes as long as ten rounds, and is as many."""
MOST_BITS = 1 << 16
"""Of a whole number that is reckoned while a kernel compiles."""
MOST_ITEMS = 1 << 16
"""Of a text or a tuple that is made while a kernel compiles, with all within it: a tuple of one tuple twice, of one twice, … takes no room
until it is written out or compared."""
CHARACTERS_PER_ITEM, ITEMS_PER_STEP = 16, 8
"""Of a text as much as one item of a tuple, and of a value as much as one step: so that neither time nor memory run out before steps do."""
TOO_LARGE = f"makes a text or a tuple of more than {MOST_ITEMS:,} items"
HOLDERS = frozenset({"tuple", "list", "dict", "constexpr"})
COUNTED = HOLDERS | {"str", "bytes", "range"}
"""Names of the types, Python's and Triton's, that hold others; and of those too that have items of their own."""
OPERATORS: dict[str, Any] = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and_", "or_", "xor", "matmul")
}
ENDLESS = ("factorial", "comb", "perm", "prod", "sumprod")
"""Functions of `math` that make numbers of any size."""
LANGUAGE = ("triton.language", "advisor_block_pointers")
CONSTEXPR_FUNCTIONS = ("ConstexprFunction", "BoundConstexprFunction")
JIT_FUNCTIONS = ("JITFunction", "InterpretedFunction", "ConstexprFunction")
CONSTEXPR_BODIES: set[int] = set()
"""`id` of the functions of rebuilt modules that `tl.constexpr` was written before."""
MOST_NODES = 3_000_000
"""Nodes of kernels' trees that are read for one kernel, with its loops unrolled: half a minute's."""
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
        kind: "absent" where every compilation comes to the name; "unsure" where it may stand in what is left out.
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


def check_chains(module: types.ModuleType, tree: ast.Module, always: Container[int] = ()) -> None:
    """Resolve every attribute chain that starts at a global; refuse what leads out of triton's language.

    Names that the kernel assigns itself shadow globals; a chain is refused all the same, which is the safe side. `always` holds the `id` of
    the nodes that every compilation comes to.
    """
    check_held(module)
    inside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
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
                    kind = "absent" if id(node) in always else "unsure"
                    public = [name for name in dir(value) if name[0] != "_" != part[0]]
                    near = difflib.get_close_matches(part, public, n=1, cutoff=0.75)
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
        harmless(value, name)
        function = value.fn if type(value).__name__ in JIT_FUNCTIONS else value
        if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
            for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
                harmless(default, f"a default of {name}")


def harmless(value: Any, what: str) -> None:
    """Raise where a value is, or holds, anything but data and functions of triton's language: a kernel that is given it could ask it for
    anything."""
    if not is_plain(value):
        raise RefusedError(f"{what}, a {type(value).__name__},")


def is_plain(value: Any) -> bool:
    """Whether a value is data of Python's or Triton's, a function of triton's language or of a rebuilt module, or holds only such."""
    kind = type(value)
    if value is None or kind in (int, float, str, bool, type(...)):
        return True
    if kind in (tuple, list):
        return all(map(is_plain, value))
    if kind is dict:
        return all(map(is_plain, (*value, *value.values())))
    if isinstance(value, type):
        return value.__module__.startswith(LANGUAGE) or _is_enumeration(value) or any(value is each for each in BUILTINS)
    if kind.__name__ == "constexpr" and kind.__module__.startswith(LANGUAGE):
        return is_plain(value.value)
    if kind.__name__ in JIT_FUNCTIONS and kind.__module__.startswith("triton.runtime."):
        return True
    if isinstance(value, types.FunctionType):
        return is_marked(value) or str(value.__module__).startswith(("rebuilt_", "triton.language", "triton.runtime.jit"))
    if isinstance(value, types.BuiltinFunctionType):
        return (value.__module__ == "math" and value.__name__ not in ENDLESS) or any(value is each for each in BUILTINS)
    return kind.__module__.startswith(LANGUAGE) or _is_enumeration(kind)


def _is_enumeration(kind: type) -> bool:
    """Whether a type is one of those that triton's language takes over from its C++, such as tl.PropagateNan."""
    return kind.__module__.startswith("triton._C.") and hasattr(kind, "__members__")


def allowed(value: Any, name: str, chain: str) -> None:
    """Raise where `value` is a module outside triton.language (`math` and rebuilt ones aside), or neither data nor of the language."""
    if isinstance(value, types.ModuleType):
        if value.__name__ not in ("triton", "math") and not value.__name__.startswith(("triton.language", "rebuilt_")):
            raise RefusedError(chain)
    elif not is_plain(value) and not (callable(value) and name in ALLOWED_TRITON):
        raise RefusedError(chain)


def watch() -> None:
    """Hold every attribute, call and operator of a rebuilt kernel to the list, while it is compiled: also of a parameter, of an element
    and of a result, where no chain of names tells beforehand what is asked."""
    from triton.compiler.code_generator import CodeGenerator

    if getattr(CodeGenerator, "is_watched", False):
        return
    ask, attribute, call = CodeGenerator.get_Attribute, CodeGenerator.visit_Attribute, CodeGenerator.call_Function
    look = CodeGenerator.visit
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
            check_call(function, ast.unparse(node.func), keywords)
        result = call(self, node, function, arguments, keywords)
        if is_rebuilt(self) and (type(function).__name__ in CONSTEXPR_FUNCTIONS or is_of_constexpr(function)):
            harmless(result, f"the result of {ast.unparse(node)}")
        return result

    def visit_With(self: Any, node: ast.With) -> Any:
        if is_rebuilt(self):
            raise RefusedError(ast.unparse(node.items[0]))
        return within(self, node)

    def _apply_binary_method(self: Any, node: ast.AST, method: Any, left: Any, right: Any) -> Any:
        sign = _SIGNS.get(type(getattr(node, "op", None)))  # type: ignore[arg-type]
        STEPS.take_items((left, right), IN_KERNELS, MOST_NODES)
        if sign is not None and is_rebuilt(self):
            check_operands(left, sign, right, lambda: ast.unparse(node))
        return operate(self, node, method, left, right)

    def visit_JoinedStr(self: Any, node: ast.JoinedStr) -> Any:
        if is_rebuilt(self) and any(getattr(each, "format_spec", None) is not None for each in node.values):
            raise RefusedError(ast.unparse(node))
        return formatted(self, node)

    def visit(self: Any, node: ast.AST) -> Any:
        STEPS.take(1, IN_KERNELS, MOST_NODES)
        value = look(self, node)
        if STEPS.take_items(value, IN_KERNELS, MOST_NODES) > MOST_ITEMS:
            raise RefusedError(ast.unparse(node)[:60], TOO_LARGE)
        return value

    for each in (get_Attribute, visit_Attribute, call_Function, visit_With, _apply_binary_method, visit_JoinedStr, visit):
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
        experimental = owner.__name__ == "triton.language" and name.startswith("_experimental_")
        if name.startswith("_") and owner.__name__ != "triton.language.standard" and not experimental:
            raise RefusedError(name)
        allowed(value, name, name)
    elif type(owner) in METHODS:
        if name not in METHODS[type(owner)]:
            raise RefusedError(name)
    elif isinstance(owner, type):
        if name not in getattr(owner, "__members__", ()) and not (hasattr(value, "__members__") and is_plain(value)):  # dtype.SIGNEDNESS
            raise RefusedError(name)
    else:
        fields = getattr(getattr(owner, "type", None), "fields", None) or ()
        known = DATA.fullmatch(name) or ASKED.fullmatch(name) or name in fields or is_marked(value)
        if not known or name.startswith("_") or not type(owner).__module__.startswith(LANGUAGE):
            raise RefusedError(name)


def check_call(function: Any, written: str, keywords: Iterable[Any] = ()) -> None:
    """Raise where what is called is not on the list, or is given what it may not be."""
    if not is_callable_here(function) or any(str(name).startswith("_") for name in keywords):
        raise RefusedError(written)
    if getattr(function, "__name__", "") in ("extern_elementwise", "dispatch"):
        raise RefusedError(written, "would link a library")


def check_operands(left: Any, name: str, right: Any, written: Callable[[], str]) -> None:
    """Raise where an operator would format, or make a number or a text that only a time limit ends.

    Args:
        left: A value of Python's, as it is or in a constexpr, which hands it on to Python's operator; or anything.
        name: The operator's, of `OPERATORS`.
        right: As `left`.
        written: The expression, where it is refused.
    """
    left, right = (each.value if type(each).__name__ == "constexpr" else each for each in (left, right))
    if name == "mod" and isinstance(left, (str, bytes)):
        raise RefusedError(written())
    size = 0.0
    if isinstance(left, int) and isinstance(right, int):
        if name == "pow":
            size = left.bit_length() * max(right, 0)
        elif name == "lshift":
            size = left.bit_length() + max(right, 0)
        elif name == "mul":
            size = left.bit_length() + right.bit_length()
        if size > MOST_BITS:
            raise RefusedError(written(), f"makes a number of more than {MOST_BITS:,} bits")
        return
    times = next((each for each in (left, right) if isinstance(each, int)), 1) if name == "mul" else 1
    characters = times * sum(len(each) for each in (left, right) if isinstance(each, (str, bytes)))
    if max(characters // CHARACTERS_PER_ITEM, times * (items_of(left) + items_of(right))) > MOST_ITEMS:
        raise RefusedError(written(), TOO_LARGE)


def items_of(value: Any) -> int:
    """Items of a value and of all that it holds, each as often as it occurs; of what has more than `MOST_ITEMS`, some number above."""
    count, waiting = 0, [value]
    while waiting and count <= MOST_ITEMS:
        each = waiting.pop()
        if isinstance(each, (str, bytes)):
            count += len(each) // CHARACTERS_PER_ITEM
        elif isinstance(each, range):
            count += max(0, (each.stop - each.start) // each.step)
        elif type(each).__name__ in HOLDERS:
            inner = getattr(each, "values", None) if type(each).__name__ != "constexpr" else (each.value,)
            inner = (*each, *each.values()) if isinstance(each, dict) else each if isinstance(each, (tuple, list)) else inner or ()
            count += len(inner)
            waiting += inner if len(inner) <= MOST_ITEMS else ()
    return count


class Steps:
    """Counts what is done while kernels of this process are compiled, so that what never ends does."""

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}

    def take(self, count: int, what: str, most: int) -> None:
        """Raise where more than `most` steps are taken of one kind."""
        self.taken[what] = self.taken.get(what, 0) + count
        if self.taken[what] > most:
            raise RefusedError(what, f"takes more than {most:,} steps")

    def take_items(self, value: Any, what: str, most: int) -> int:
        """Count a value that is made or read through, and say of how many items it is."""
        value = value.value if type(value).__name__ == "constexpr" else value
        items = items_of(value) if type(value).__name__ in COUNTED else 0
        self.take(items // ITEMS_PER_STEP, what, most)
        return items


STEPS = Steps()


def held(function: ast.FunctionDef) -> ast.FunctionDef:
    """A constexpr function whose attributes, calls, operators and loops ask the functions of `HOOKS` first."""
    return ast.fix_missing_locations(_Held().visit(function))


class _Held(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self._asked("attribute", node, [self.visit(node.value), ast.Constant(node.attr)])

    def visit_Call(self, node: ast.Call) -> ast.expr:
        return self._asked("call", node, [ast.Constant(ast.unparse(node.func)), self.visit(node.func), *map(self.visit, node.args)])

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        return self._operated(node, node.left, node.op, node.right)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        assert isinstance(node.target, ast.Name)
        value = self._operated(node, ast.Name(id=node.target.id, ctx=ast.Load()), node.op, node.value)
        return ast.copy_location(ast.Assign(targets=[node.target], value=value), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.body = [self.visit(each) for each in node.body]  # not its decorator and defaults, which are ours
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign(targets=[node.target], value=self.visit(node.value)), node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        each = [part if isinstance(part, ast.Constant) else self._asked("read", part, [part]) for part in (node.left, *node.comparators)]
        node.left, *node.comparators = each
        return node

    def visit_Tuple(self, node: Any) -> Any:
        self.generic_visit(node)
        return self._asked("made", node, [node]) if isinstance(node.ctx, ast.Load) else node

    visit_List = visit_Tuple  # noqa: N815

    def _operated(self, node: ast.AST, left: ast.expr, sign: ast.operator, right: ast.expr) -> ast.expr:
        name = _SIGNS[type(sign)]
        return self._asked("operate", node, [ast.Constant(ast.unparse(node)), ast.Constant(name), self.visit(left), self.visit(right)])

    def _counted(self, node: Any) -> Any:
        self.generic_visit(node)
        node.body.insert(0, ast.copy_location(ast.Expr(self._asked("step", node, [])), node))
        return node

    visit_For = visit_While = _counted  # noqa: N815

    def _asked(self, hook: str, node: ast.AST, arguments: list[ast.expr]) -> ast.expr:
        call = ast.Call(func=ast.Name(id=f"__{hook}", ctx=ast.Load()), args=arguments, keywords=[])
        return ast.copy_location(call, node)  # type: ignore[arg-type]


_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod", ast.Pow: "pow",
    ast.LShift: "lshift", ast.RShift: "rshift", ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor", ast.MatMult: "matmul",
}  # fmt: skip
IN_FUNCTIONS, IN_KERNELS = "a constexpr function", "the kernel, read with its loops unrolled,"


def _attribute(owner: Any, name: str) -> Any:
    if not isinstance(owner, types.ModuleType) and not is_plain(owner):
        raise RefusedError(name)
    value = getattr(owner, name)
    check_attribute(owner, name, value)
    return value


def _call(written: str, function: Any, *arguments: Any) -> Any:
    check_call(function, written)
    STEPS.take(10 if type(function).__name__ in CONSTEXPR_FUNCTIONS else 1, IN_FUNCTIONS, MOST_STEPS)
    _read((getattr(function, "__self__", None), *arguments))  # what a method searches through, too
    if function is sum:
        return functools.reduce(lambda total, each: _operate(written, "add", total, each), arguments[0], *(arguments[1:] or (0,)))
    if function is range:
        value = range(*arguments)
        STEPS.take(items_of(value), IN_FUNCTIONS, MOST_STEPS)
        return value
    return _made(function(*arguments))


def _operate(written: str, name: str, left: Any, right: Any) -> Any:
    check_operands(left, name, right, lambda: written)
    return _made(OPERATORS[name](left, right))


def _read(value: Any) -> Any:
    STEPS.take_items(value, IN_FUNCTIONS, MOST_STEPS)
    return value


def _made(value: Any) -> Any:
    if type(value).__name__ in COUNTED and STEPS.take_items(value, IN_FUNCTIONS, MOST_STEPS) > MOST_ITEMS:
        raise RefusedError(IN_FUNCTIONS, TOO_LARGE)
    return value


def _step() -> None:
    STEPS.take(1, IN_FUNCTIONS, MOST_STEPS)


HOOKS = {"__attribute": _attribute, "__call": _call, "__operate": _operate, "__step": _step, "__read": _read, "__made": _made}
"""What `held` functions ask, under names that no author's may have."""


def is_callable_here(function: Any) -> bool:
    """Whether a kernel may call a function: another kernel, a part of Triton's language, a method on the list, or a type."""
    if type(function).__name__ in ("JITFunction", "BoundJITMethod", *CONSTEXPR_FUNCTIONS) or is_marked(function):
        return True
    if isinstance(function, type) and function.__module__.startswith(LANGUAGE):
        return CLASSES.fullmatch(function.__name__) is not None
    owner = getattr(function, "__self__", None)
    if isinstance(function, types.BuiltinMethodType) and type(owner) in METHODS:
        return function.__name__ in METHODS[type(owner)]
    if isinstance(function, types.MethodType) and type(owner).__module__.startswith(LANGUAGE):
        return ASKED.fullmatch(function.__name__) is not None
    if str(getattr(function, "__module__", "")) == "math" and isinstance(function, types.BuiltinFunctionType):
        return function.__name__ not in ENDLESS
    if isinstance(function, types.FunctionType) and function.__module__ == "triton.language.core":
        return function.__name__ in ("get_int_dtype", "_unwrap_if_constexpr")
    return type(function).__name__ == "dtype" or any(function is each for each in BUILTINS) or is_of_constexpr(function)


def is_of_constexpr(function: Any) -> bool:
    """Whether a function of a rebuilt module is one that `tl.constexpr` was written before, which is held to reckoning."""
    return isinstance(function, types.FunctionType) and id(function) in CONSTEXPR_BODIES


def is_marked(value: Any) -> bool:
    """Whether Triton marks a function as a part of its language."""
    return getattr(value, "__triton_builtin__", False) is True or type(value).__name__ in ("JITFunction", "BoundJITMethod")
