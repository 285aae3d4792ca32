"""A signature for a kernel that nobody described: pointers where it loads and stores, integers else, constexprs from its
autotune list or a small default. Several guesses are tried; what was guessed is said."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.compiled.descriptors import descriptor_type, said_blocks
from advisor.compiled.kernel import OPTION_NAMES
from advisor.compiled.parameter_usage import Usage
from advisor.compiled.row_blocks import block_sizes, row_sizes
from advisor.compiled.strides import INTEGERS, assumption, unit_strides, unknown_strides
from advisor.compiled.usage import TEXTS, Reader
from advisor.configs.jit_function import MISSING, JitFunction, Parameter
from advisor.configs.literals import Constexpr, Symbol, dotted
from advisor.configs.source import SourceFile

_FLOAT_NAMES = re.compile(
    r"(^|_)(eps|epsilon|alpha|beta[12]?|gamma|lr|scale|temperature|temp|prob|momentum|decay|softcap|threshold|dropout|rate|coef|"
    r"theta|smoothing|z_loss|multiplier|delta)($|_)|_p$",
    re.IGNORECASE,
)  # fmt: skip
_NO_FLOAT_NAMES = re.compile(
    r"stride|num|^n_|size|idx|offset|(^|_)(dim|len|cols?|rows?|blocks?|groups?|width|heads?|tokens?|seq)($|_)", re.IGNORECASE
)
_FLAG_NAMES = re.compile(
    r"^(HAS|IS|USE|DO|ENABLE|WITH|EVEN|COMPUTE|RETURN|STORE|APPLY|SAVE|NEED|CAUSAL|is|has|use)(_|$)|FLAG|_ENABLED$|"
    r"(?i:(^|_)(warp_specialize|flatten)$)"
)
_BLOCK_NAMES = re.compile(r"BLOCK|TILE|CHUNK|^B[A-Z]?$|^X?BLOCK$|^RBLOCK", re.IGNORECASE)
_TYPE_NAMES = re.compile(r"dtype", re.IGNORECASE)
_INDEX_NAMES = re.compile(
    r"(^|_)(ids?|idx|index|indices|indice|labels?|targets?|offsets?|lens?|lengths?|seqlens?|starts?|counts?|lut|map)(_|$)", re.IGNORECASE
)
_INDEX_32_NAMES = re.compile(
    r"cu_?seq|(^|_)(seq_?)?lens?(_|$)|(block|page)_?tables?|(experts?|tokens?|slots?)_(ids?|idx|indices)|req_to_tokens?", re.IGNORECASE
)
"""Indices that serving stacks keep in 32 bits (vLLM's and SGLang's attention metadata, the aligned slots of their fused MoE)."""
_SIZE_NAMES = re.compile(r"dim|head|hidden|width|size|rank|^[BCDHIKLMNSTV]$|stride|len|cols|rows|vocab|tokens|experts", re.IGNORECASE)
_ANNOTATED = {"tl.int32": "i32", "tl.int64": "i64", "int": "i32", "float": "fp32", "tl.float32": "fp32", "bool": "i1"}

NARROWER = {"*i64": "*i32"}
"""What else a guess is likely to be, of fewer bytes: indices are of 64 bits in torch, and of 32 in what serving stacks keep of them."""
MOST_ELEMENTS = 2**14
"""Of a tensor of guessed extents; a tensor of 64 x 64 x 64 takes minutes to compile."""
MOST_ROW = 2**16
"""Of a block that covers a row by itself: the kernels that do so (Liger's, Unsloth's `calculate_settings`) refuse longer ones."""
MOST_TRIPS = 64
"""Of a loop that is unrolled a guessed number of times; a thousand copies of its body take longer to compile than anyone waits."""
_SHAPES = (ast.Tuple, ast.List)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A signature, its constants and options, and what was guessed.

    Attributes:
        divisible: Arguments that are taken to be multiples of 16.
        strides: Strides whose values are not given: what the code does with memory may not be what it does in a call.
        untold: Integers of which the compiler was told nothing, neither that they are 1 nor that they are multiples of 16.
        invented: Constants of which nothing says what they are.
        guessed: Arguments of which the type is a guess: pointers and descriptors.
        unread: Why the list of `@triton.autotune`, which would say so, could not be read; empty: it has none, or it was.
    """

    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    options: Mapping[str, Any]
    assumed: tuple[str, ...]
    label: str = "first guess"
    divisible: frozenset[str] = frozenset()
    strides: frozenset[str] = frozenset()
    untold: tuple[str, ...] = ()
    invented: tuple[str, ...] = ()
    guessed: frozenset[str] = frozenset()
    unread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the user says, or the file's launch: types, constants, options and values of arguments, by name.

    Attributes:
        types, constexprs, options, scalars: By name.
        element: Type of the elements of tensors of which nothing is said.
        element_given: Whether the user says so: it then holds wherever the kernel only hints at another.
        multiples: Strides whose values are not known, but which are not 1: they are taken to be multiples of 16.
    """

    types: Mapping[str, str] = field(default_factory=dict)
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    scalars: Mapping[str, Any] = field(default_factory=dict)
    element: str = "fp16"
    element_given: bool = False
    multiples: frozenset[str] = frozenset()


def guesses(source: SourceFile, function: JitFunction, given: Given | None = None) -> Iterator[Guess]:
    """Signatures to try, the likeliest first."""
    given = given or Given()
    usage = Reader(source).usage(function)
    variants: list[tuple[str, dict[str, Any]]] = [
        ("first guess", {}),
        ("index pointers of 32 bits", {"index": "i32"}),
        ("index pointers of 64 bits", {"index": "i64"}),
        ("elements where only branches tell of integers", {"tested": "element"}),
        ("fp32 pointers", {"element": "fp32"}),
        ("flags set", {"flag": True}),
        ("small blocks", {"block": 16, "other": 4}),
        ("blocks of 128", {"block": 128, "other": 128}),
        ("integers as sizes", {"other": 16, "block": 16, "element": "fp32"}),
        ("flags set, fp32", {"flag": True, "element": "fp32", "other": 2}),
        ("wide sizes", {"other": 1024}),
        ("scalars of fp32", {"scalar": "fp32"}),
        ("scalars of 64 bits", {"scalar": "i64"}),
        ("integers where bits are taken apart", {"bitwise": "i32"}),
        ("integer pointers", {"element": "i32"}),
    ]
    rank = _rank(function.node)
    seen = set()
    for label, choice in variants:
        if rank > 2:
            choice = {**choice, "block": min(int(choice.get("block", 64)), 2 ** int(math.log2(MOST_ELEMENTS) // rank))}
        guess = _guess(source, function, usage, given, label, choice)
        key = (tuple(guess.signature.items()), repr(sorted(guess.constexprs.items(), key=lambda i: i[0])))
        if key not in seen:
            seen.add(key)
            yield guess


def _guess(
    source: SourceFile, function: JitFunction, usage: Mapping[str, Usage], given: Given, label: str, choice: Mapping[str, Any]
) -> Guess:
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    assumed: list[str] = []
    options: dict[str, Any] = {}
    tuned: dict[str, Any] = {}
    if function.autotune is not None and function.autotune.configs:
        config = function.autotune.configs[0]
        tuned = dict(config.parameters)
        options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
        if config.num_ctas != 1:
            options["num_ctas"] = config.num_ctas
        if config.maxnreg:
            options["maxnreg"] = config.maxnreg
        options = {name: value for name, value in options.items() if name not in function.heuristics}  # which have the last word
        if not set(tuned) <= set(given.constexprs):
            assumed.append("the first configuration of @triton.autotune")
    options |= given.options
    described: list[str] = []
    guessed: list[str] = []
    sizes: list[str] = []  # constants of which nothing is known but how they are used
    plain: dict[str, list[str]] = {}  # guessed type of numbers -> their names
    rows, known, rank = row_sizes(function.node), {**given.scalars, **given.constexprs}, _rank(function.node)
    inductor = function.inductor or {}
    recorded = (inductor.get("triton_meta") or {}).get("signature") or {}
    for parameter in function.parameters:
        name, use = parameter.name, usage[parameter.name]
        kind = given.types.get(name) or (_recorded(recorded, parameter, function) if recorded else None)
        if name in given.constexprs or (parameter.is_constexpr and kind in (None, "constexpr")) or kind == "constexpr" or (
            name in tuned and kind is None
        ):
            signature[name] = "constexpr"
            if name in given.constexprs:
                constants[name] = given.constexprs[name]
            elif name in tuned:
                constants[name] = tuned[name]
            elif name in given.scalars:
                constants[name] = given.scalars[name]
            elif name in options:
                constants[name] = options[name]
            else:
                row = max((v for n in rows.get(name, ()) if type(v := known.get(n)) is int), default=0)
                constants[name] = _row_block(row, rank, choice) or _constant(parameter, use, choice)
                if parameter.default is MISSING and not use.range_bound:
                    sizes.append(name)
                assumed.append(f"{name} = {shown_value(constants[name])}{_left_out(constants[name], row, rows.get(name, ()))}")
            continue
        if kind is None and use.descriptor:
            described.append(name)
            signature[name] = ""
            continue
        if kind is None:
            value = given.scalars.get(name)
            kind = _type(parameter, use, given, choice)
            if kind.startswith("*"):
                if not use.addresses and kind != parameter.annotation:
                    guessed.append(name)
                assumed.append(shown_type(name, kind, name in guessed))
            elif name not in given.scalars and parameter.annotation is None and parameter.default is MISSING:
                plain.setdefault(kind, []).append(name)
            elif parameter.annotation is None and value is not None and (
                kind == "i32" or (type(value) is int and not isinstance(parameter.default, float))
            ):
                kind = _type_of(value)
        signature[name] = kind
    for name, size in block_sizes({b: n for b, n in rows.items() if b not in function.heuristics}, constants, sizes).items():
        assumed = [f"{name} = {size}" if text == f"{name} = {shown_value(constants[name])}" else text for text in assumed]
        constants[name] = size
    said = said_blocks(function.node, described, constants) if described else {}
    for name in described:
        signature[name] = descriptor_type(usage[name], constants, str(choice.get("element", given.element)), said.get(name))
        assumed.append(f"{name}: {signature[name]}")
    strides = unknown_strides(signature, given.scalars)
    untyped = [n for n in strides if n not in given.types and n not in recorded and n not in function.unspecialized]
    launched = [n for n in given.multiples if signature.get(n) in INTEGERS and n not in given.types and n not in given.scalars]
    untyped = [name for name in untyped if name not in launched]
    unit = unit_strides(function, untyped, given.scalars)
    for name in unit:
        signature[name], constants[name] = "constexpr", 1  # as the runtime does
    divisible = [name for name in untyped if name not in unit and name not in function.unaligned]
    if unit or divisible:
        assumed.append(assumption(unit, divisible))
    divisible += launched  # which the launch's own assumptions say
    heuristic, unknown = source.heuristic_values(function, {**options, **given.scalars, **constants})
    for name, value in heuristic.items():
        if name not in given.constexprs and name in signature:
            signature[name], constants[name] = "constexpr", value
        elif name in OPTION_NAMES and name not in given.options:
            options[name] = value
    assumed = [text for text in assumed if text.split(" = ")[0] not in heuristic]
    for kind, names in plain.items():
        if left := [name for name in names if name not in heuristic and name not in unit]:
            assumed.append(f"{', '.join(left)}: {kind}")
    for name in unknown:
        if name in OPTION_NAMES and name not in signature and name not in given.options:
            line = getattr(function.heuristics[name], "lineno", function.line)
            assumed.append(unknown_option(name, f"@triton.heuristics (line {line})"))
        if name in signature and name not in given.constexprs and signature[name] != "constexpr":
            signature[name], constants[name] = "constexpr", False
    for name, value in given.scalars.items():
        if value is None and name in signature and not signature[name].startswith("*"):
            signature[name], constants[name] = "constexpr", None
        elif name in given.types or name in function.unspecialized:
            continue
        elif value == 1 and type(value) is int and signature.get(name) in ("i32", "i64"):
            signature[name], constants[name] = "constexpr", 1  # as the runtime does
    told = {*given.scalars, *divisible, *function.unaligned}
    invented = [p.name for p in function.parameters
                if p.default is MISSING and f"{p.name} = {shown_value(constants.get(p.name))}" in assumed]  # fmt: skip
    unread = function.autotune.problem if function.autotune is not None and not function.autotune.configs else None
    untold = [n for n, kind in signature.items() if kind in INTEGERS and n not in told]
    return Guess(signature=signature, constexprs=constants, options=options, assumed=tuple(assumed), label=label,
                 divisible=frozenset(divisible), strides=frozenset({*strides, *launched}), untold=tuple(untold),
                 invented=tuple(invented), guessed=frozenset((*guessed, *described)), unread=unread or "")  # fmt: skip


def unknown_option(name: str, where: str) -> str:
    """What is assumed of a launch option that the file sets, to a value that is not known."""
    assumed = f"{name} = 4" if name == "num_warps" else f"Triton's own {name}"
    return f"{assumed}, for what {where} sets it to is not known"


def _recorded(recorded: Any, parameter: Parameter, function: JitFunction) -> str | None:
    """Type in a signature that TorchInductor wrote: by name, or by position in older versions."""
    if not isinstance(recorded, dict):
        return None
    if parameter.name in recorded:
        return str(recorded[parameter.name])
    return recorded.get([p.name for p in function.parameters].index(parameter.name))


def _type_of(value: Any) -> str:
    """Triton's type of a number that is given, as the runtime would pass it."""
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, float):
        return "fp32"
    if isinstance(value, int) and not -(2**31) <= value < 2**31:
        return "i64" if value < 2**63 else "u64"
    return "i32"


def _type(parameter: Parameter, use: Usage, given: Given, choice: Mapping[str, Any]) -> str:
    if parameter.annotation:
        known = _ANNOTATED.get(parameter.annotation)
        if known:
            return known
        if re.fullmatch(r"\*?(i|u|fp|bf)\d+", parameter.annotation):
            return parameter.annotation
    if use.addresses:
        return "*i64"
    if use.pointer:
        narrow = _INDEX_32_NAMES.search(parameter.name)
        hinted = (use.counted or (use.tested and not given.element_given)) and not use.real and "tested" not in choice
        named = _INDEX_NAMES.search(parameter.name) and not (use.real or use.chosen)  # `target_probs` are no indices
        if use.narrow and "index" not in choice:
            return f"*{use.narrow}"
        if use.index or hinted or narrow or named:
            return f"*{choice.get('index', 'i32' if narrow else 'i64')}"
        if use.int8 and not use.bits:
            return "*i8"
        if use.bits:
            return "*u8" if use.narrow_bits and not use.wide_bits else "*i32"
        if use.bitwise and "bitwise" in choice:
            return f"*{choice['bitwise']}"
        if use.boolean and re.search(r"mask", parameter.name, re.IGNORECASE):
            return "*i1"
        return f"*{choice.get('element', given.element)}" if choice.get("element") != "i32" else "*i32"
    if isinstance(parameter.default, float):
        return "fp32"
    if isinstance(parameter.default, bool):
        return "i1"
    if re.search(r"(^|_)(ptr|pointer)s?($|_)", parameter.name, re.IGNORECASE) and not re.search("stride|offset", parameter.name):
        return f"*{choice.get('element', given.element)}"
    if type(parameter.default) is int:
        return _type_of(parameter.default)
    return "fp32" if _is_float(parameter.name, use) else str(choice.get("scalar", "i32"))


def _is_float(name: str, use: Usage) -> bool:
    """Whether a number is a float by its name, and nothing says that it is an integer."""
    return bool(_FLOAT_NAMES.search(name)) and not (use.integer or use.offset or _NO_FLOAT_NAMES.search(name))


def _constant(parameter: Parameter, use: Usage, choice: Mapping[str, Any]) -> Any:
    name = parameter.name
    if parameter.default is not MISSING and not (choice.get("flag") and isinstance(parameter.default, bool)):
        return parameter.default.value if isinstance(parameter.default, Constexpr) else parameter.default
    texts = [v for v in use.compared if isinstance(v, str)]
    if texts or use.text:
        return texts[0] if texts else TEXTS[use.text]
    numbers = [v for v in use.compared if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if use.element_type or (_TYPE_NAMES.search(name) and not numbers):
        return Symbol("tl.float32")
    if use.range_bound and not use.extent:  # whatever it is called: MAX_BLOCKS copies of a loop's body are not a tile
        return min(int(choice.get("other", 64 if _SIZE_NAMES.search(name) else 4)), MOST_TRIPS)
    asked = use.boolean and not use.integer  # `naive_block_assignment` is no block
    if use.extent or (_BLOCK_NAMES.search(name) and not asked):
        return int(choice.get("block", 64))
    if use.boolean or _FLAG_NAMES.search(name):
        return bool(choice.get("flag", False))
    if numbers and not _SIZE_NAMES.search(name):
        return numbers[0] if not choice.get("flag") else numbers[-1]
    if any(isinstance(v, bool) for v in use.compared):
        return bool(choice.get("flag", False))
    if _is_float(name, use) or (use.number and not (use.integer or use.offset or _SIZE_NAMES.search(name))):
        return 1.0
    if re.search(r"group|num_warps|_warps", name, re.IGNORECASE):
        return 4
    if re.search(r"stage|split|^num_|^n_|top_?k", name, re.IGNORECASE):
        return int(choice.get("other", 2))
    if _SIZE_NAMES.search(name):
        return int(choice.get("other", 64))
    return int(choice.get("other", 1))


def _row_block(row: int, rank: int, choice: Mapping[str, Any]) -> int:
    """The block that covers a row of a size that is given; 0: none is, or the block would be too large."""
    block = 1 << max(row - 1, 0).bit_length()
    return block if row > 0 and "block" not in choice and block <= (MOST_ROW if rank == 1 else MOST_ELEMENTS // 64) else 0


def _left_out(block: Any, row: int, names: Collection[str]) -> str:
    """What a block leaves out of the row that it is masked against, in words; empty: nothing."""
    if type(block) is not int or block >= row:
        return ""
    return f", which covers only {block:,} of {' and '.join(sorted(names))} = {row:,}, so that the work of the others is not counted"


def _rank(node: ast.FunctionDef) -> int:
    """Dimensions of the kernel's tensor with the most: of a shape, sizes that are literals aside, or of `x[:, None, None]`."""
    ranks = [1]
    for inner in ast.walk(node):
        if isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Tuple):
            if any(isinstance(each, ast.Constant) and each.value is None for each in inner.slice.elts):
                ranks.append(len(inner.slice.elts))
        elif isinstance(inner, ast.Call) and (dotted(inner.func) or "").rsplit(".", 1)[-1] in ("zeros", "full"):
            ranks += [sum(not isinstance(n, ast.Constant) for n in shape.elts) for shape in inner.args[:1] if isinstance(shape, _SHAPES)]
    return max(ranks)


def shown_type(name: str, kind: str, is_guess: bool) -> str:
    """A type that is taken for an argument as shown to people."""
    least = NARROWER.get(kind) if is_guess else None
    return f"{name}: {kind}" + (f", of which the bound counts the bytes of {least}" if least else "")


def shown_value(value: Any) -> str:
    """A guessed constant as shown to people."""
    return value.text if isinstance(value, Symbol) else repr(value)
