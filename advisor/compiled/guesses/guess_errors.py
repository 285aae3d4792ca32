"""What a guess may get wrong: what to give where it does not compile, types corrected by what is stored, and bytes of a bound."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from advisor.compiled.compiler.failures import PLACE
from advisor.compiled.compiler.kernel import CompileError
from advisor.compiled.demand.costs import element_bytes
from advisor.compiled.demand.counts import AccessDemand, KernelDemand
from advisor.compiled.guesses.assumptions import NARROWER, narrower_note, shown_value
from advisor.compiled.guesses.inference import Given, Guess
from advisor.compiled.ir.ir import Operation, parse
from advisor.compiled.ir.slicing import MEMORY, Flow
from advisor.python_source.source import SourceFile

MOST_SHOWN = 4
_OTHER_WIDTH = {"*i64": "*i32", "*i32": "*i64"}
"""What integers are that turn out not to be as wide as was guessed, which is likelier than that they are none."""
_OF_ANOTHER_TRITON = re.compile(r"unexpected keyword argument|cannot import name|module '?triton\S* has no attribute")
"""In errors that no argument mends: `tl.dot(..., trans_b=True)`."""
WHATEVER_IS_PASSED = re.compile(
    r"Cannot access global variable|UnsupportedLanguageConstruct|unsupported AST node|got an unexpected keyword argument"
)
"""What Triton says of source that it compiles with no arguments (`code_generator.py`, Triton 3.9)."""
OF_ANY_TYPE = re.compile(r"too many indices for tensor of rank|(too many|not enough) values to unpack")
"""What it says that hangs on constants at most, and on the type of no tensor."""
_FLOAT_NAMES = re.compile(r"\b(?:bf16|fp16|fp32|fp64)\b")


def with_guess(error: CompileError, guess: Guess, given: Given) -> CompileError:
    """The error of a guess, with the guessed types and constants that may explain it, and how to give others.

    Args:
        error: What the compiler said.
        guess: What it was given.
        given: What was not guessed of it.
    """
    if error.kind != "failed" or error.remedy is not None:
        return error
    if _OF_ANOTHER_TRITON.search(str(error.got)):
        return CompileError(error.what, error.got, error.limit, "the kernel is written for another version of Triton", error.kind)
    if WHATEVER_IS_PASSED.search(str(error.got)):
        return error
    guessed = {name: kind for name, kind in guess.signature.items() if name not in given.types}
    descriptors = [name for name, kind in guessed.items() if kind.startswith("tensordesc")]
    integers = [name for name, kind in guessed.items() if kind.startswith(("*i", "*u"))]
    doubtful = [*descriptors, *integers][:MOST_SHOWN]
    texts: list[str] = []
    options: list[str] = []
    floats = list(dict.fromkeys(_FLOAT_NAMES.findall(str(error.got))))
    elements = [name for name, kind in guessed.items() if kind == f"*{given.element}"][:MOST_SHOWN]
    if elements and len(floats) > 1 and not given.element_given:  # no integer is to blame
        other = next(kind for kind in floats if kind != given.element)
        texts.append(f"types were guessed ({', '.join(f'{name}: {guessed[name]}' for name in elements)})")
        options.append(f"--element {other}")
    elif doubtful:
        texts.append(f"types were guessed ({', '.join(f'{name}: {guessed[name]}' for name in doubtful)})")
        other = f"tensordesc<{given.element}[128,64]>" if descriptors else _OTHER_WIDTH.get(guessed[doubtful[0]], f"*{given.element}")
        options.append(f'--signature "{doubtful[0]}={other}"')
    if constants := guess.invented[:MOST_SHOWN]:
        why = f", for the list of @triton.autotune is not read ({guess.unread})" if guess.unread else ""
        shown = ", ".join(f"{name} = {shown_value(guess.constexprs[name])}" for name in constants)
        more = f", and {len(guess.invented) - MOST_SHOWN} more" if len(guess.invented) > MOST_SHOWN else ""
        texts.append(f"constants were guessed ({shown}{more}){why}")
        options.append(f'--constexpr "{constants[0]}=..."')
    if not texts:
        return error
    remedy = f"{'; '.join(texts)}; if one is wrong, give it: {' or '.join(options)}"
    return CompileError(error.what.replace("does not compile", "does not compile as guessed"), error.got, error.limit, remedy, error.kind)


def in_lines_of_file(text: str, source: SourceFile) -> str:
    """What a compiler said, with lines of the file in place of those counted from a function's `def`."""

    def line(match: re.Match[str]) -> str:
        function = source.functions.get(match[2])
        return match[0] if function is None else f"line {function.line + int(match[1]) - 1}"

    return PLACE.sub(line, text)


def certain_of_guesses(demand: KernelDemand, guess: Guess) -> KernelDemand:
    """The demand with less of it certain: of each guessed type that may be narrower, what is asked for if it is.

    A prediction goes on with the guess, which is the likelier type.
    """
    shares = {
        name: element_bytes(NARROWER[kind][1:]) / element_bytes(kind[1:])
        for name in guess.guessed
        if (kind := guess.signature[name]) in NARROWER
    }
    if not shares:
        return demand

    def share(access: AccessDemand) -> float:
        return shares.get(access.argument or "", 1.0)

    unasked = sum((1.0 - share(a)) * a.certain_bytes for a in demand.accesses if a.kind == "load")
    certain = replace(demand.certain, requested_load_bytes=demand.certain.requested_load_bytes - unasked)
    footprints = (demand.footprint_bytes, demand.read_footprints, demand.written_footprints)
    all_, read, written = ({name: shares.get(name, 1.0) * count for name, count in footprint.items()} for footprint in footprints)
    return replace(demand, certain=certain, footprint_bytes=all_, read_footprints=read, written_footprints=written)


_ADDRESSES = frozenset(
    {
        "tt.addptr",
        "tt.splat",
        "tt.broadcast",
        "tt.expand_dims",
        "tt.reshape",
        "tt.trans",
        "tt.make_tensor_ptr",
        "tt.advance",
        "tt.make_tensor_descriptor",
    }
)
"""Operations that give an address made of their first operand's."""
_UNSIGNED = frozenset({"arith.uitofp", "arith.extui"})
_WIDENING = _UNSIGNED | {"arith.sitofp", "arith.extsi", "arith.extf", "tt.fp_to_fp"}
_FLOATS = {
    "f16": "fp16",
    "bf16": "bf16",
    "f32": "fp32",
    "f8E4M3FN": "fp8e4nv",
    "f8E5M2": "fp8e5",
    "f8E4M3FNUZ": "fp8e4b8",
    "f8E5M2FNUZ": "fp8e5b16",
    "f8E4M3B11FNUZ": "fp8e4b15",
}
_AS_GUESSED = ""


def with_stored_types(guess: Guess, ttir: str, element: str) -> Guess:
    """The guess with the types of what is stored, where they contradict it; as it is where nothing does.

    Args:
        guess: What `ttir` was compiled with.
        ttir: The kernel's.
        element: What a tensor of floats of which nothing is said is taken to be.

    Raises:
        IrError: The IR cannot be read.
    """
    signature, assumptions = dict(guess.signature), list(guess.assumptions)
    for name, kind in _stored(ttir, element).items():
        old = signature.get(name, "")
        if name not in guess.guessed or not kind:
            continue
        signature[name] = f"*{kind}" if old.startswith("*") else re.sub(r"(?<=tensordesc<)\w+", kind, old)
        note = f"{narrower_note(signature[name])} (what is stored there)"
        assumptions = [
            replace(assumption, value=signature[name], note=note) if assumption.kind == "type" and assumption.name == name else assumption
            for assumption in assumptions
        ]
    return replace(guess, signature=signature, assumptions=tuple(assumptions))


def _stored(ttir: str, element: str) -> dict[str, str]:
    """By argument that is only stored to, the type of what is stored; of several the widest, and empty where the guess fits."""
    function = parse(ttir).kernel
    flow = Flow(function)
    arguments = {name: name.removeprefix("%") for name in function.arguments}
    accesses = [op for op in function.walk() if op.name in MEMORY]
    stores = [op for op in accesses if not op.name.endswith(("load", "gather"))]
    # Stores of one value to several tensors may share a conversion.
    places = frozenset().union(*(op.places for op in stores))
    stored_types: dict[str, set[str]] = {}
    for op in accesses:
        kinds = {_AS_GUESSED}
        if op in stores and not op.name.endswith(("cas", "reduce", "scatter")):
            value = op.operands[-1] if "descriptor" in op.name else op.operands[1]
            makers = flow.producers.get(value, ())
            kinds = {_type(maker, places) for maker in makers if maker.name != "arith.constant"} if makers else kinds
        for name, plain in _starts(op.operands[0], flow):
            if name in arguments:
                stored_types.setdefault(arguments[name], set()).update(kinds if plain else {_AS_GUESSED})
    return {name: _widest(kinds) for name, kinds in stored_types.items()}


def _type(conversion: Operation, places: frozenset[str]) -> str:
    """What a store converts: its type before; empty where it is no conversion of a store's alone, or only rounds."""
    # One that stands elsewhere too is (also) the author's own `.to`, which says nothing of the tensor.
    if not conversion.places or not conversion.places <= places or not conversion.types or conversion.result is None:
        return _AS_GUESSED
    before, after = conversion.types[0].element, conversion.result.element
    if conversion.name not in _WIDENING or (conversion.name == "tt.fp_to_fp" and element_bytes(before) >= element_bytes(after)):
        return _AS_GUESSED
    if re.fullmatch(r"i\d+", before):
        return f"u{before[1:]}" if conversion.name in _UNSIGNED and before != "i1" else before
    return _FLOATS.get(before, _AS_GUESSED)


def _widest(kinds: set[str]) -> str:
    if not kinds or _AS_GUESSED in kinds or len({kind.startswith(("fp", "bf")) for kind in kinds}) > 1:
        return _AS_GUESSED
    return max(sorted(kinds), key=lambda kind: int(re.findall(r"\d+", kind)[0]))


def _starts(address: str, flow: Flow) -> Iterator[tuple[str, bool]]:
    """The values that an address starts from, and whether it still is of their type."""
    waiting, seen = [(address, True)], set()
    while waiting:
        name, plain = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        yield name, plain
        waiting += [(item, plain) for item in flow.feeds.get(name, ())]
        for op in flow.producers.get(name, ()):
            if op.name in _ADDRESSES or op.name == "tt.bitcast":
                waiting.append((op.operands[0], plain and op.name != "tt.bitcast"))
            elif op.name == "arith.select":
                waiting += [(operand, plain) for operand in op.operands[1:]]
