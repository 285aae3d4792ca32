"""A signature for a kernel that nobody described: pointers where it loads and stores, integers else, constexprs from its
autotune list or a small default. Several guesses are tried; what was guessed is said."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.compiled.compiler.kernel import OPTION_NAMES, items_of
from advisor.compiled.guesses.assumptions import INTEGERS, Assumption, assumption, narrower_note, unit_strides, unknown_strides
from advisor.compiled.guesses.parameter_guesses import (
    argument_type,
    block_sizes,
    constant_value,
    type_of,
)
from advisor.compiled.guesses.usage import rank_of, row_sizes_through, usage_of, whole_quotients
from advisor.compiled.guesses.usage_marks import Usage
from advisor.python_source.described import heuristic_values
from advisor.python_source.jit_function import MISSING, JitFunction, Parameter, as_dict
from advisor.python_source.literals import next_power_of_2
from advisor.python_source.source import SourceFile
from advisor.python_source.stride_use import STRIDE_NAME
from advisor.system.errors import UsageError

MOST_ELEMENTS = 2**14
"""Of a tensor of guessed extents; a tensor of 64 x 64 x 64 takes minutes to compile."""
MOST_ROW = 2**16
"""Of a block that covers a row by itself: the kernels that do so (Liger's, Unsloth's `calculate_settings`) refuse longer ones."""
DESCRIBED = 64
"""Elements along each dimension of the block of a descriptor that neither the user nor the file's launch says."""
UNKNOWN_STAGES = "Triton's own num_stages"
"""What is assumed where the file sets them to what is not known."""
_SOMETHING = object()
"""Stands for an argument of which only that it is not None is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A signature, its constants and options, and what was guessed.

    Attributes:
        divisible: Arguments that are taken to be multiples of 16.
        strides: Strides whose values are not given: what the code does with memory may not be what it does in a call.
        not_specialized: Integers of which the compiler was told nothing, neither that they are 1 nor that they are multiples of 16.
        invented: Constants of which nothing says what they are.
        settled: Those of them whose guess is no doubt of the work: blocks that cover a size, and switches that are off.
        units: Strides that are taken to be 1, of which Triton makes no constant.
        guessed: Arguments of which the type is a guess: pointers and descriptors.
        undecided: Constants that heuristics of the file set, to what does not follow from what is known.
        presumed: Constants that heuristics set by which arguments the launch requires or leaves out.
        unread: Why the list of `@triton.autotune`, which would say so, could not be read; empty: it has none, or it was.
    """

    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    options: Mapping[str, Any]
    assumptions: tuple[Assumption, ...] = ()
    label: str = "first guess"
    divisible: frozenset[str] = frozenset()
    strides: frozenset[str] = frozenset()
    not_specialized: tuple[str, ...] = ()
    invented: tuple[str, ...] = ()
    settled: frozenset[str] = frozenset()
    units: tuple[str, ...] = ()
    guessed: frozenset[str] = frozenset()
    undecided: frozenset[str] = frozenset()
    presumed: frozenset[str] = frozenset()
    unread: str = ""

    @property
    def assumed(self) -> tuple[str, ...]:
        """What was guessed, as shown to people."""
        return tuple(item.text for item in self.assumptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the user says, or the file's launch: types, constants, options and values of arguments, by name.

    Attributes:
        types, constexprs, options, scalars: By name.
        element: Type of the elements of tensors of which nothing is said.
        element_given: Whether the user says so: it then holds wherever the kernel only hints at another.
        multiples: Strides whose values are not known, but which are not 1: they are taken to be multiples of 16.
        passed: Whether arguments without a value are given something rather than None, which heuristics ask.
        switched: Of these arguments and constants, those of which that hangs on a switch that nothing says.
        by_default: Those that hang on defaults of the function around.
        likely: What is guessed first of constants, as launches that are under conditions pass it together.
    """

    types: Mapping[str, str] = field(default_factory=dict)
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    scalars: Mapping[str, Any] = field(default_factory=dict)
    element: str = "bf16"
    element_given: bool = False
    multiples: frozenset[str] = frozenset()
    passed: Mapping[str, bool] = field(default_factory=dict)
    switched: frozenset[str] = frozenset()
    by_default: frozenset[str] = frozenset()
    likely: Mapping[str, int | str] = field(default_factory=dict)


def guesses(
    source: SourceFile, function: JitFunction, given: Given | None = None, corrected: Mapping[str, Any] | None = None
) -> Iterator[Guess]:
    """Signatures to try, the likeliest first. `corrected`: types and values by argument that take the place of guessed ones."""
    given = given or Given()
    usage = usage_of(source, function)
    variants: list[tuple[str, dict[str, Any]]] = [
        ("first guess", {}),
        ("strides as constants", {"stride": "constant"}),
        ("index pointers of 32 bits", {"index": "i32"}),
        ("index pointers of 64 bits", {"index": "i64"}),
        ("elements where only branches tell of integers", {"tested": "element"}),
        ("fp32 pointers", {"element": "fp32"}),
        ("bf16 pointers", {"element": "bf16"}),
        ("fp16 pointers", {"element": "fp16"}),
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
    rank, rows = rank_of(function.node), row_sizes_through(source, function)
    seen = set()
    for label, choice in variants:
        choice["corrected"] = corrected or {}
        if rank > 2:
            choice = {**choice, "block": min(int(choice.get("block", 64)), 2 ** int(math.log2(MOST_ELEMENTS) // rank))}
        draft = _Draft(source=source, function=function, usage=usage, given=given, choice=choice, rank=rank, rows=rows)
        guess = _guess(draft, label)
        key = (tuple(guess.signature.items()), repr(sorted(guess.constexprs.items(), key=lambda i: i[0])))
        if key not in seen:
            seen.add(key)
            yield guess


@dataclass(slots=True, kw_only=True)
class _Draft:
    """A guess in the making. Its steps need one another's results, so their order matters.

    Attributes:
        rows: By constant, the sizes that a block of it is masked against.
        numbers: Guessed type of numbers -> their names.
        unit, divisible, strides: Strides that are taken to be 1, to be multiples of 16, and all of which nothing is given.
    """

    source: SourceFile
    function: JitFunction
    usage: Mapping[str, Usage]
    given: Given
    choice: Mapping[str, Any]
    rank: int
    rows: Mapping[str, Collection[str]]
    signature: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    assumptions: list[Assumption] = field(default_factory=list)
    guessed: list[str] = field(default_factory=list)
    numbers: dict[str, list[str]] = field(default_factory=dict)
    unit: tuple[str, ...] = ()
    divisible: list[str] = field(default_factory=list)
    strides: frozenset[str] = frozenset()
    undecided: frozenset[str] = frozenset()
    presumed: frozenset[str] = frozenset()

    def take_configuration(self) -> Mapping[str, Any]:
        """Set the launch options; returns the constants of the configuration that they come from."""
        function, tuned = self.function, {}
        if function.autotune is not None and function.autotune.configs:
            config = function.autotune.configs[0]
            tuned = dict(config.parameters)
            self.options = {n: value for n, value in config.options.items() if n not in function.heuristics}  # which have the last word
            if not set(tuned) <= set(self.given.constexprs):
                self.assumptions.append(Assumption(note="the first configuration of @triton.autotune"))
        self.options |= self.given.options
        return tuned

    def type_parameters(self, tuned: Mapping[str, Any], recorded: Any) -> None:
        """Set the types of arguments, and the values of constants."""
        for parameter in self.function.parameters:
            name = parameter.name
            kind = self.given.types.get(name) or (_recorded(recorded, parameter, self.function) if recorded else None)
            if (
                name in self.given.constexprs
                or (parameter.is_constexpr and kind in (None, "constexpr"))
                or kind == "constexpr"
                or (name in tuned and kind is None)
            ):
                unknown = self._is_unknown_stride(parameter, tuned)
                self.signature[name] = "i32" if unknown else "constexpr"
                if not unknown:
                    self.constants[name] = self._constant(parameter, tuned)
            else:
                self.signature[name] = kind or self._type(parameter)

    def _constant(self, parameter: Parameter, tuned: Mapping[str, Any]) -> Any:
        name = parameter.name
        for known in (self.given.constexprs, tuned, self.given.scalars, self.options):
            if name in known:
                return known[name]
        likely = self.given.likely.get(name) if self.choice.keys().isdisjoint(("block", "other")) else None
        value = _row_block(self._row(name), self.rank, self.choice) or likely or constant_value(parameter, self.usage[name], self.choice)
        value = self.choice["corrected"].get(name, value)
        self.assumptions.append(self._assumed_constant(name, value))
        return value

    def _is_unknown_stride(self, parameter: Parameter, tuned: Mapping[str, Any]) -> bool:
        """Whether a constant is a stride of which nothing is said: its value decides which bytes are touched, so that none is made up for
        it where the kernel only computes with it. It is then compiled as a stride that is no constant is."""
        name, use = parameter.name, self.usage[parameter.name]
        known = {*self.given.constexprs, *tuned, *self.given.scalars, *self.options, *self.function.heuristics}
        decides = use.extent or use.range_bound or use.boolean or use.element_type or use.text or use.compared
        return bool(
            STRIDE_NAME.search(name)
            and parameter.default is MISSING
            and name not in known
            and use.offset
            and not decides
            and not {"stride", "other"} & set(self.choice)
        )

    def _row(self, name: str) -> int:
        """The largest size that is given of those that a block is masked against; 0: none is."""
        known = {**self.given.scalars, **self.given.constexprs}
        return max((size for item in self.rows.get(name, ()) if type(size := known.get(item)) is int), default=0)

    def _assumed_constant(self, name: str, value: Any) -> Assumption:
        note = _left_out(value, self._row(name), self.rows.get(name, ()))
        return Assumption(kind="constant", name=name, value=value, note=note)

    def _type(self, parameter: Parameter) -> str:
        name, use, value = parameter.name, self.usage[parameter.name], self.given.scalars.get(parameter.name)
        if use.descriptor and not use.pointer:  # which a helper makes a descriptor of, if it is none (Triton's own attention)
            block = ",".join([str(DESCRIBED)] * use.descriptor)
            kind = f"tensordesc<{self.choice.get('element', self.given.element)}[{block}]>"
            self.guessed.append(name)
            self.assumptions.append(Assumption(kind="type", name=name, value=kind))
            return kind
        kind = argument_type(parameter, use, self.choice, self.given.element, self.given.element_given)
        kind = self.choice["corrected"].get(name, kind)
        if items_of(kind):
            return type_of(value) if isinstance(value, tuple) else kind
        absent = name in self.given.scalars and value is None and use.optional and name not in self.given.switched
        if kind.startswith("*") and (absent or isinstance(value, (bool, int, float))):
            return type_of(value)  # it is loaded from where it is a tensor, in a branch that this launch does not take
        if kind.startswith("*"):
            is_guess = not use.addresses and kind != parameter.annotation
            if is_guess:
                self.guessed.append(name)
            self.assumptions.append(Assumption(kind="type", name=name, value=kind, note=narrower_note(kind) if is_guess else ""))
        elif name not in self.given.scalars and parameter.annotation is None and parameter.default is MISSING:
            self.numbers.setdefault(kind, []).append(name)
        elif (
            parameter.annotation is None
            and value is not None
            and (kind == "i32" or (type(value) is int and not isinstance(parameter.default, float)))
        ):
            return type_of(value)
        return kind

    def invented(self) -> list[str]:
        """Constants of which nothing is known but how they are used."""
        constants = {item.name for item in self.assumptions if item.kind == "constant"}
        return [p.name for p in self.function.parameters if p.default is MISSING and p.name in constants]

    def settled(self) -> Iterator[str]:
        """Constants of which a guess is as good as being told: a block that covers all that it is masked against, and a number that turns
        something on where it is above another, taken for that one (`if cap > 0`: off), if it neither counts nor addresses anything; and one
        that only takes part in arithmetic of floats (`tl.clamp(x, fp8_min, fp8_max)`), which takes as long with any number.

        Which mode is meant of several (`if reduction == 1`) is another question, and no guess.
        """
        for name in self.invented():
            value, use = self.constants.get(name), self.usage[name]
            works = use.extent or use.range_bound or use.integer or use.offset or use.whole
            covers = bool(self.rows.get(name)) and not _left_out(value, self._row(name), self.rows[name])
            computed = (use.number or use.beside_floats) and not (works or use.boolean or use.compared or use.element_type)
            if (
                covers
                or computed
                or (use.switch and not works and any(type(constant) is type(value) and constant == value for constant in use.compared))
            ):
                yield name

    def fill_blocks(self) -> None:
        """Widen sizes to the blocks that cover them; a block of what a loop is unrolled by covers no more than that."""
        rows = {block: names for block, names in self.rows.items() if block not in self.function.heuristics}
        invented = [name for name in self.invented() if name not in self.choice["corrected"]]
        names = [name for name in invented if not self.usage[name].range_bound]
        trips = {block: [self.constants[name] for name in masked if name in set(invented) - set(names)] for block, masked in rows.items()}
        sizes = {
            block: next_power_of_2(max(counts)) for block, counts in trips.items() if block in names and len(counts) == len(rows[block])
        }
        sizes |= block_sizes(rows, {**self.constants, **sizes}, names)
        sizes |= whole_quotients(self.function.node, {**self.constants, **sizes}, names)
        self.constants |= sizes
        self.assumptions = [
            self._assumed_constant(item.name, sizes[item.name]) if item.kind == "constant" and item.name in sizes else item
            for item in self.assumptions
        ]

    def set_strides(self, recorded: Any) -> None:
        """Take strides that are not given for those of contiguous tensors."""
        function, given, signature = self.function, self.given, self.signature
        unknown = unknown_strides(signature, given.scalars)
        launched = [n for n in given.multiples if signature.get(n) in INTEGERS and n not in given.types and n not in given.scalars]
        fixed = {*function.unspecialized, *given.multiples}
        untyped = [name for name in unknown if name not in fixed and name not in recorded]
        self.unit = unit_strides(function, untyped, given.scalars)
        for name in self.unit:
            if name not in function.unfolded:
                signature[name], self.constants[name] = "constexpr", 1  # as the runtime does
        self.divisible = [name for name in untyped if name not in self.unit and name not in function.unaligned]
        if self.unit or self.divisible:
            self.assumptions.append(Assumption(note=assumption(self.unit, self.divisible)))
        self.divisible += launched  # which the launch's own assumptions say
        self.strides = frozenset({*unknown, *launched})

    def apply_heuristics(self) -> None:
        """Take what `@triton.heuristics` makes of all this, which has the last word but for what is given."""
        function, given, signature = self.function, self.given, self.signature
        passed = {name: _SOMETHING if there_is else None for name, there_is in given.passed.items()}
        typed = {name: _SOMETHING for name, kind in given.types.items() if kind.startswith("*")}  # who says of what type it is passes it
        values = {**typed, **self.options, **given.scalars, **self.constants}
        ruled, unknown = heuristic_values(self.source, function, {**passed, **values})
        corrected = {name: value for name, value in self.choice["corrected"].items() if name in ruled and value != ruled[name]}
        ruled = {name: value for name, value in ruled.items() if name not in corrected}  # with what they set, it does not compile
        unknown |= dict.fromkeys(corrected, "it does not compile with what the file sets")
        certain = {name: value for name, value in {**passed, **values}.items() if name not in given.switched}
        ruled_before, required = (
            (heuristic_values(self.source, function, part_value)[0] for part_value in (values, certain)) if passed else (ruled, ruled)
        )
        self.presumed = frozenset(ruled.keys() - ruled_before.keys() - given.constexprs.keys())
        unsure = {*unknown, *(ruled.keys() - required.keys())}
        self.undecided = frozenset((unsure & signature.keys()) - given.constexprs.keys())
        if presumed := [f"{name}={value}" for name, value in ruled.items() if name in self.presumed]:
            self.assumptions.append(Assumption(note=f"{' '.join(presumed)}, by which arguments the launch requires or leaves out"))
        for name, value in ruled.items():
            if name not in given.constexprs and name in signature:
                signature[name], self.constants[name] = "constexpr", value
            elif name in OPTION_NAMES and name not in given.options:
                self.options[name] = value
        self.assumptions = [item for item in self.assumptions if item.kind != "constant" or item.name not in ruled]
        for kind, names in self.numbers.items():
            if left := [name for name in names if name not in ruled and name not in self.unit]:
                self.assumptions.append(Assumption(note=f"{', '.join(left)}: {kind}"))
        for name in unknown:
            if name in OPTION_NAMES and name not in signature and name not in given.options:
                line = getattr(function.heuristics[name], "lineno", function.line)
                self.assumptions.append(Assumption(note=unknown_option(name, f"@triton.heuristics (line {line})")))
            if name in corrected:
                signature[name], self.constants[name] = "constexpr", corrected[name]
            elif name in signature and name not in given.constexprs and signature[name] != "constexpr":
                signature[name], self.constants[name] = "constexpr", False

    def fold_scalars(self) -> None:
        """Make constants of the values that the runtime makes constants of: None, and 1, also in tuples; strides of which nothing is
        given are those of contiguous rows."""
        for name, kinds in [(name, units) for name, kind in self.signature.items() if (units := items_of(kind))]:
            strides = name not in self.given.scalars and bool(STRIDE_NAME.search(name))
            values = self.given.scalars.get(name, (None,) * (len(kinds) - strides) + (1,) * strides)
            if not isinstance(values, tuple | list):
                raise UsageError(f"{name} is a tuple", values, f"{len(kinds)} values", f"--arg '{name}=({','.join('…' * len(kinds))})'")
            ones = [i for i, value in enumerate(values[: len(kinds)]) if type(value) is int and value == 1]
            self.signature[name] = f"({','.join('constexpr' if i in ones else kind for i, kind in enumerate(kinds))})"
            self.constants |= {f"{name}.{i}": 1 for i in ones}
            pointers = [kind.startswith("*") for kind in kinds]  # aligned, as tensors are
            whole = [strides or pointer or (value or 1) % 16 == 0 for value, pointer in zip(values, pointers, strict=False)]
            self.divisible += [f"{name}.{i}" for i, item in enumerate(whole) if item and i not in ones]
            if name not in self.given.scalars and name not in self.given.types:
                written = f" = ({', '.join('?' if i not in ones else '1' for i in range(len(kinds)))})" if ones else ""
                what = "pointers" if all(pointers) else "numbers"
                self.assumptions.append(Assumption(note=f"{name}{written}: a tuple of {len(kinds)} {what}"))
        for name, value in self.given.scalars.items():
            if value is None and name in self.signature and not self.signature[name].startswith("*"):
                self.signature[name], self.constants[name] = "constexpr", None
            elif name in self.function.unfolded:
                continue
            elif value == 1 and type(value) is int and self.signature.get(name) in ("i32", "i64"):
                self.signature[name], self.constants[name] = "constexpr", 1


def _guess(draft: _Draft, label: str) -> Guess:
    function, given = draft.function, draft.given
    recorded = as_dict(as_dict((function.inductor or {}).get("triton_meta")).get("signature"))
    draft.type_parameters(draft.take_configuration(), recorded)
    draft.fill_blocks()
    draft.set_strides(recorded)
    draft.apply_heuristics()
    draft.fold_scalars()
    known = {*given.scalars, *draft.divisible, *function.unaligned}
    unread = function.autotune.problem if function.autotune is not None and not function.autotune.configs else None
    return Guess(
        signature=draft.signature,
        constexprs=draft.constants,
        options=draft.options,
        assumptions=tuple(draft.assumptions),
        label=label,
        divisible=frozenset(draft.divisible),
        strides=draft.strides,
        not_specialized=tuple(n for n, kind in draft.signature.items() if kind in INTEGERS and n not in known),
        invented=tuple(draft.invented()),
        settled=frozenset(draft.settled()),
        units=tuple(name for name in draft.unit if name in function.unfolded),
        guessed=frozenset(draft.guessed),
        undecided=draft.undecided,
        presumed=draft.presumed,
        unread=unread or "",
    )


def unknown_option(name: str, where: str) -> str:
    """What is assumed of a launch option that the file sets, to a value that is not known."""
    assumed = f"{name} = 4" if name == "num_warps" else UNKNOWN_STAGES if name == "num_stages" else f"Triton's own {name}"
    return f"{assumed}, for what {where} sets it to is unknown"


def _recorded(recorded: Any, parameter: Parameter, function: JitFunction) -> str | None:
    """Type in a signature that TorchInductor wrote: by name, or by position in older versions."""
    if not isinstance(recorded, dict):
        return None
    if parameter.name in recorded:
        return str(recorded[parameter.name])
    return recorded.get(function.names.index(parameter.name))


def _row_block(row: int, rank: int, choice: Mapping[str, Any]) -> int:
    """The block that covers a row of a size that is given; 0: none is, or the block would be too large."""
    block = next_power_of_2(row)
    return block if row > 0 and "block" not in choice and block <= (MOST_ROW if rank == 1 else MOST_ELEMENTS // 64) else 0


def _left_out(block: Any, row: int, names: Collection[str]) -> str:
    """What a block leaves out of the row that it is masked against, in words; empty: nothing."""
    if type(block) is not int or not 0 < block < row:
        return ""
    return f", which covers only {block:,} of {' and '.join(sorted(names))} = {row:,}, so that the work of the others is not counted"
