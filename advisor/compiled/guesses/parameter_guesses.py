"""What one parameter of a kernel may be, by its name and its use: the type of an argument, the value of a constant.

A block that must cover a size in one program (`o = tl.arange(0, BLOCK)`, masked with `o < N`) leaves out what lies beyond it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from advisor.compiled.guesses.usage_marks import TEXTS, Usage
from advisor.python_source.jit_function import MISSING, Parameter
from advisor.python_source.literal_values import Constexpr, Symbol


def block_sizes(rows: Mapping[str, Collection[str]], constants: Mapping[str, Any], names: Collection[str]) -> dict[str, int]:
    """Sizes that fill the blocks that are masked against them: of a size of 1, a block of 64 would be almost empty.

    Args:
        rows: What `row_sizes` finds.
        constants: Constants by name, the blocks and the sizes among them.
        names: The sizes that are asked for.

    Returns:
        Those that are larger than the constants say.
    """
    sizes: dict[str, int] = {}
    for block, masked in rows.items():
        size = constants.get(block)
        for name in masked:
            least = sizes.get(name, constants.get(name))
            if name in names and type(size) is int and isinstance(least, (int, float)) and size > least:
                sizes[name] = size
    return sizes


_FLOAT_NAMES = re.compile(
    r"(^|_)(eps|epsilon|alpha|beta[12]?|gamma|lr|scale|temperature|temp|prob|momentum|decay|softcap|threshold|dropout|rate|coef|"
    r"theta|smoothing|z_loss|multiplier|delta)($|_)|_p$",
    re.IGNORECASE,
)
_NO_FLOAT_NAMES = re.compile(
    r"stride|num|^n_|size|idx|offset|(^|_)(dim|len|cols?|rows?|blocks?|groups?|width|heads?|tokens?|seq)($|_)", re.IGNORECASE
)
_FLAG_NAMES = re.compile(
    r"^(HAS|IS|USE|DO|ENABLE|WITH|EVEN|COMPUTE|RETURN|STORE|APPLY|SAVE|NEED|CAUSAL|is|has|use)(_|$)|FLAG|_ENABLED$|"
    r"(?i:(^|_)(warp_specialize|flatten)$)"
)
BLOCK_NAMES = re.compile(r"(?<!NUM_)(?<!NUM)(?<!^N_)(BLOCK|TILE|CHUNK)|^B[A-Z]?$", re.IGNORECASE)  # `NUM_TILES` is a count
_TYPE_NAMES = re.compile(r"dtype(?!\w*_(min|max|eps|bits|bytes|size|width))", re.IGNORECASE)
_INDEX_NAMES = re.compile(
    r"(^|_)(ids?|idx|index|indices|indice|labels?|targets?|offsets?|lens?|lengths?|seqlens?|starts?|counts?|lut|map)(_|$)", re.IGNORECASE
)
_INDEX_32_NAMES = re.compile(
    r"cu_?seq|(^|_)(seq_?)?lens?(_|$)|(block|page)_?tables?|(experts?|tokens?|slots?)_(ids?|idx|indices)|req_to_tokens?", re.IGNORECASE
)
"""Indices that serving stacks keep in 32 bits (vLLM's and SGLang's attention metadata, the aligned slots of their fused MoE)."""
_SIZE_NAMES = re.compile(r"dim|head|hidden|width|size|rank|^[BCDHIKLMNSTV]$|stride|len|cols|rows|vocab|tokens|experts", re.IGNORECASE)
_ANNOTATED = {"tl.int32": "i32", "tl.int64": "i64", "int": "i32", "float": "fp32", "tl.float32": "fp32", "bool": "i1"}

LEAST_DEPTH = 16
"""Of the matrices that `tl.dot` takes: where fewer trips do not compile, a tensor of as many elements may be one of them."""
MOST_TRIPS = 8
"""Of a loop that is unrolled a guessed number of times; 64 copies of some bodies (Liger's, SGLang's) take minutes to compile."""


def type_of(value: Any) -> str:
    """Triton's type of a number, or a tuple of them, that is given, as the runtime would pass it."""
    if isinstance(value, tuple):
        return f"({','.join(map(type_of, value))})"
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, float):
        return "fp32"
    if isinstance(value, int) and not -(2**31) <= value < 2**31:
        return "i64" if value < 2**63 else "u64"
    return "i32"


def argument_type(parameter: Parameter, use: Usage, choice: Mapping[str, Any], element: str, element_given: bool) -> str:
    """The type of an argument.

    Args:
        parameter: The argument.
        use: What the kernel does with it.
        choice: What this guess tries.
        element: Type of the elements of tensors of which nothing is said.
        element_given: Whether the user says so.
    """
    if parameter.annotation:
        known = _ANNOTATED.get(parameter.annotation)
        if known:
            return known
        if re.fullmatch(r"\*?(i|u|fp|bf)\d+", parameter.annotation):
            return parameter.annotation
    if use.items:
        return f"({','.join([f'*{element}' if use.pointer else 'i32'] * use.items)})"
    if use.addresses:
        return "*i64"
    if use.pointer:
        narrow = _INDEX_32_NAMES.search(parameter.name)
        real = use.real or "grad" in parameter.name.lower()  # `target_probs` are no indices, nor is `target_grad`
        named = _INDEX_NAMES.search(parameter.name) and not real
        hinted = use.tested and not use.real and not element_given and "tested" not in choice
        if use.index or hinted or narrow or named:
            return f"*{choice.get('index', 'i32' if narrow else 'i64')}"
        if use.bits:
            return "*u8" if use.narrow_bits and not use.wide_bits else "*i32"
        if use.bitwise and "bitwise" in choice:
            return f"*{choice['bitwise']}"
        if use.boolean and re.search(r"mask", parameter.name, re.IGNORECASE):
            return "*i1"
        return f"*{choice.get('element', element)}" if choice.get("element") != "i32" else "*i32"
    if isinstance(parameter.default, float):
        return "fp32"
    if isinstance(parameter.default, bool):
        return "i1"
    if re.search(r"(^|_)(ptr|pointer)s?($|_)", parameter.name, re.IGNORECASE) and not re.search("stride|offset", parameter.name):
        return f"*{choice.get('element', element)}"
    if type(parameter.default) is int:
        return type_of(parameter.default)
    beside_floats = use.beside_floats and "scalar" not in choice and not _is_whole(parameter.name, use)
    return "fp32" if beside_floats or _is_float(parameter.name, use) else str(choice.get("scalar", "i32"))


def _is_whole(name: str, use: Usage) -> bool:
    """Whether a number is an integer by its use or its name, whatever it is multiplied by: `total * N`."""
    return bool(use.integer or use.offset or use.extent or use.whole or _NO_FLOAT_NAMES.search(name) or re.fullmatch("[A-Z]+", name))


def _is_float(name: str, use: Usage) -> bool:
    """Whether a number is a float by its name, and nothing says that it is an integer."""
    return bool(_FLOAT_NAMES.search(name)) and not (use.integer or use.offset or _NO_FLOAT_NAMES.search(name))


def constant_value(parameter: Parameter, use: Usage, choice: Mapping[str, Any]) -> Any:
    """A value for a constant of which nothing is said: its default, one that it is compared with, or a small one of its kind."""
    name = parameter.name
    if parameter.default is not MISSING and not (choice.get("flag") and isinstance(parameter.default, bool)):
        return parameter.default.value if isinstance(parameter.default, Constexpr) else parameter.default
    if use.optional and not (use.extent or use.range_bound or choice.get("flag")):  # off, as flags are
        return None
    texts = [v for v in use.compared if isinstance(v, str)]
    if texts or use.text:
        return texts[0] if texts else TEXTS[use.text]
    numbers = [v for v in use.compared if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if use.items:
        return (int(choice.get("block", 16)) if use.extent else 1,) * use.items
    if use.element_type or (_TYPE_NAMES.search(name) and not numbers):
        return Symbol("tl.float32")
    if use.range_bound:  # whatever it is called and sizes besides: copies of a loop's body are not a tile
        if use.extent and "block" in choice:
            return LEAST_DEPTH
        return min(int(choice.get("other", MOST_TRIPS if use.extent or _SIZE_NAMES.search(name) else 4)), MOST_TRIPS)
    tested = use.boolean and not use.integer  # `naive_block_assignment` is no block
    if use.extent or (BLOCK_NAMES.search(name) and not tested):
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
