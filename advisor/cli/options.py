"""Options that several commands share, and what they accept."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from advisor.system.errors import NoRoomError, UsageError, printable
from advisor.system.settings import check_compile_limit
from advisor.system.writing import replacing

if TYPE_CHECKING:
    from advisor.advising.targets import Request
    from advisor.compiled.launches.launch_options import LaunchOptions
    from advisor.gpus.hardware import GpuSpec

FORMATS = ("text", "json", "md")
LARGEST_SIZE = 2**31 - 1
ROWS_SHOWN = 20
_BETWEEN_SIZES = re.compile(r",\s*|\s+(?=\w+\s*=)")


def positive_integers(text: str) -> list[int]:
    """`64` or `1,2,4`, as positive integers."""
    return [_positive(part, "whole numbers, as in 1,64,4096") for part in text.split(",")]


def positive_integer(text: str) -> int:
    """One positive integer."""
    return _positive(text, "one whole number, as in 64")


def _positive(text: str, expected: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be {expected} (got {text!r})") from None
    if not 0 < value <= LARGEST_SIZE:
        raise argparse.ArgumentTypeError(f"must be between 1 and {LARGEST_SIZE} (got {text})")
    return value


def amount_of_time(text: str) -> float:
    """A number of days, or of seconds, zero or more."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"must be a number of days or seconds, 0 or more, as in 30 or 0.5 (got {text!r})")
    return value


def gate_conditions(text: str) -> tuple[str, ...]:
    """The conditions of `--fail-on a,b`. Nothing is refused: an unset variable of a CI job must not switch its gate off."""
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise argparse.ArgumentTypeError(f"must name what the exit code is 1 for (got {text!r}); is a variable unset? leave the option out")
    return names


def named_sizes(text: str) -> dict[str, int]:
    """`M=4096,N=4096`, or with blanks between them, as positive integers by name; `causal=0` is the one that may be zero."""
    sizes: dict[str, int] = {}
    for part in _BETWEEN_SIZES.split(text.strip()):
        name, equals, value = (each.strip() for each in part.partition("="))
        if not equals or not name:
            raise argparse.ArgumentTypeError(f"must be NAME=NUMBER, as in M=4096,N=4096 (got {part!r})")
        zero = (name, value) == ("causal", "0")
        add_size(sizes, name, 0 if zero else _positive(value, f"NAME=NUMBER, as in {name}=4096"))
    return sizes


def add_size(sizes: dict[str, int], name: str, value: int) -> None:
    """Add a size by its name; one that is there already must be the same, for else nobody would know which of them counts."""
    if sizes.setdefault(name, value) != value:
        raise argparse.ArgumentTypeError(f"says {name} twice, {sizes[name]} and {value}: leave one out")


class _OneProblem(argparse.Action):
    """`--sizes M=64 --sizes N=4096`, collected as the sizes of one problem."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        sizes = dict(getattr(namespace, self.dest) or {})
        for name, value in values.items():
            try:
                add_size(sizes, name, value)
            except argparse.ArgumentTypeError as error:
                raise argparse.ArgumentError(self, str(error)) from None
        setattr(namespace, self.dest, sizes)


def add_sizes_argument(parser: argparse.ArgumentParser, help_: str) -> None:
    """`--sizes`, of one problem."""
    parser.add_argument("--sizes", type=named_sizes, action=_OneProblem, metavar="M=…,N=…", help=help_)


def operand_type(text: str) -> str:
    """The name of a type from what people write: `bf16`, `float16`, `torch.bfloat16`, `fp8_w8a8`."""
    from advisor.rows.rows import DTYPES

    name = DTYPES.get(text.strip().lower().removeprefix("torch."))
    if name is None:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(dict.fromkeys(DTYPES.values()))} (got {text!r})")
    return name


def add_model_arguments(parser: argparse.ArgumentParser, more: str = "") -> None:
    """`--model`, of which there may be `more` to say, `--hidden-size`, `--top-k`, `--tensor-parallel`, `--expert-parallel`."""
    parser.add_argument("--model", metavar="NAME", help=f"model the table belongs to, e.g. Qwen3-30B-A3B{more}")
    parser.add_argument("--hidden-size", type=positive_integer, metavar="H", help="hidden size (the K of w13)")
    parser.add_argument("--top-k", type=positive_integer, metavar="K", help="experts per token")
    parser.add_argument("--tensor-parallel", type=positive_integer, metavar="P", help="GPUs each expert is split over")
    parser.add_argument("--expert-parallel", type=positive_integer, metavar="P", help="GPUs the experts are spread over")


def block_shape(text: str) -> tuple[int, int]:
    """`128,128`: a quantization block, for argparse."""
    parts = positive_integers(text.strip("[]"))
    if len(parts) != 2 or any(part & (part - 1) for part in parts):
        raise argparse.ArgumentTypeError(f"must be two powers of two such as 128,128 (got {text!r})")
    return parts[0], parts[1]


def token_counts(groups: list[list[int]] | None, sizes: Sequence[Mapping[str, int]] = ()) -> tuple[int, ...] | None:
    """The token counts of `--tokens 1,2 4`, sorted and without repetition; None where it was left out.

    Raises:
        UsageError: One of the `sizes` that `--sizes` named says another M.
    """
    tokens = tuple(sorted({token for group in groups for token in group})) if groups else None
    if tokens and (said := [size["M"] for size in sizes if "M" in size]):
        raise UsageError(
            "--tokens and --sizes both say M", f"--tokens {','.join(map(str, tokens))} and M={said[0]}", "one of them", "leave one out"
        )
    return tokens


OF_A_TARGET = ("model", "hidden_size", "top_k", "tensor_parallel", "expert_parallel", "dtype")
"""Options that say the same of a target in every command."""


class Stack(NamedTuple):
    """A serving stack and its version; empty: the newest that was measured."""

    name: str
    version: str = ""


def stack(text: str) -> Stack:
    """`vllm` or `vllm:0.24`."""
    name, _, version = text.strip().lower().partition(":")
    if name not in ("vllm", "sglang") or (version and not re.fullmatch(r"v?\d+(\.\d+)*", version)):
        raise argparse.ArgumentTypeError(f"must be vllm or sglang, with a version after a colon, as in vllm:0.24 (got {text!r})")
    return Stack(name, version.removeprefix("v"))


def request_of(arguments: argparse.Namespace, sizes: Sequence[Mapping[str, int]], /, **more: Any) -> Request:
    """What the options say of a target with these `sizes`; `more` are fields of the request that the command reads its own way."""
    from advisor.advising.targets import Request

    asked = {name: getattr(arguments, name) for name in OF_A_TARGET}
    return Request(
        **{"gpu": arguments.gpu, **asked, "tokens": token_counts(arguments.tokens, sizes), "cache": arguments.cache or "warm", **more}
    )


def routing_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of a request or a problem that `--routing` sets; none where it is not given."""
    from advisor.advising.targets import routing_given

    return routing_given(arguments.routing)


def gpu_names(groups: Sequence[str]) -> list[str]:
    """The names of `--gpu A --gpu B,C`, each once; the path of a TOML file may have commas. What a near name is taken for is said.

    Raises:
        UsageError: One names nothing.
    """
    from advisor.gpus.hardware import gpus_with_words_of, match_device_name

    names: dict[str, None] = {}
    for group in groups:
        parts = [group] if group.endswith(".toml") and Path(group).is_file() else [part.strip() for part in group.split(",")]
        if not any(parts):
            raise UsageError("--gpu names no GPU", repr(group), "a name that `advisor gpus` lists", "leave the option out, or name one")
        names |= dict.fromkeys(filter(None, parts))
    for name in names:
        if match_device_name(name) is None and len(meant := gpus_with_words_of(name)) == 1:
            note(f"--gpu {name}: taken for {meant[0].name} ({meant[0].device_names[0]})")
    return list(names)


def gpu_column(name: str | None, count: int) -> dict[str, list[object]]:
    """The column that says which GPU rows are for, where `--gpu` says so in place of theirs; nothing where it does not."""
    from advisor.gpus.hardware import load_gpu

    return {} if name is None else {"gpu": [load_gpu(name).name] * count}


def write_text(path: Path, text: str, remedy: str = "name a folder you may write to with --output") -> None:
    """Write a file whole or not at all, making its folder where there is none.

    Raises:
        UsageError: It cannot be written.
    """
    with replacing(path, remedy) as place:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


def rows_output(output: str, source: str) -> str | TextIO:
    """Where `-o` says that rows go, which are read from `source`: a file, or standard output for `-`.

    Raises:
        UsageError: It is the file they are read from.
    """
    if output == "-":
        return sys.stdout
    check_not_read(output, [source], ", or - for standard output")
    return output


def check_not_read(output: str, sources: Sequence[str], otherwise: str = "") -> None:
    """Refuse to write over what is read; a terminal or a pipe may be both.

    Raises:
        UsageError: `output` is one of `sources`.
    """
    for source in sources:
        try:
            same = Path(output).is_file() and Path(output).samefile(source)
        except (OSError, ValueError):  # not there, or no path at all: told where it is opened
            continue
        if same:
            raise UsageError("-o would replace the file that is read", output, "another file", f"name another one{otherwise}")


def file_output(text: str) -> str:
    """The path of `-o` where its content is no text, or is read again while it is written: a file, and not standard output."""
    if text == "-":
        raise argparse.ArgumentTypeError("must be a file, not standard output (got '-'; ./- is a file of that name)")
    return text


def check_writable(path: str | Path) -> None:
    """Fail before the work, not after it, where a file cannot be written.

    Raises:
        UsageError: The folder is not there, or may not be written to.
    """
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise UsageError(f"cannot write {path}", None, "a file in a folder you may write to", "choose another place with -o")


def note(message: str) -> None:
    """A remark on stderr, beside what goes to stdout."""
    print(f"advisor: {message}", file=sys.stderr)


def add_compiling_arguments(parser: argparse.ArgumentParser) -> None:
    """`--compile-limit` and `--untrusted`, which `require_room` reads."""
    parser.add_argument(
        "--compile-limit",
        metavar="S[,ALL]",
        help="seconds that one compilation may take (120), and all of them together; what is not compiled by then timed out",
    )
    parser.add_argument(
        "--untrusted", action="store_true", help="a stranger's kernel: refuse to compile it where nothing holds it (`advisor doctor`)"
    )


def require_room(arguments: argparse.Namespace) -> None:
    """Sets how long compilations may take, and raises where what is to be compiled is a stranger's and this machine has no room for it.

    Raises:
        NoRoomError: A wall does not stand.
        UsageError: The limit is none.
    """
    from advisor.compiled.compiler.pool import room_lacks

    limit_compilations(arguments)
    if not arguments.untrusted:
        return

    if lacks := room_lacks():
        raise NoRoomError("--untrusted: this machine cannot hold a stranger's kernel", lacks, None, "see `advisor doctor`")


def limit_compilations(arguments: argparse.Namespace) -> None:
    """Sets how long compilations may take.

    Raises:
        UsageError: The limit is none.
    """
    if arguments.compile_limit:
        check_compile_limit(arguments.compile_limit, "--compile-limit")
        os.environ["ADVISOR_COMPILE_LIMIT"] = arguments.compile_limit


def warn(message: str) -> None:
    """A warning on stderr."""
    print(f"advisor: warning: {printable(' '.join(message.split()))}", file=sys.stderr)


def warn_of_rows(told: Sequence[str]) -> None:
    """A warning on stderr for each of the first rows; the rest is counted."""
    for text in told[:ROWS_SHOWN]:
        warn(text)
    if len(told) > ROWS_SHOWN:
        warn(f"{len(told) - ROWS_SHOWN} more rows are like the last")


def nothing_launches(row: int, gpu: GpuSpec) -> str:
    """The error that no configuration fits the GPU, for a row (counted from 0) that names none."""
    return f"row {row + 1}: nothing is predicted: no configuration known for it can launch on {gpu.name}"


def existing_file(path: str) -> Path:
    """The path of a file that is there.

    Raises:
        UsageError: It is not, or is a folder.
    """
    found = Path(path)
    if found.is_dir():
        raise UsageError(f"{path} is a folder", None, "a file", "name a file in it")
    if not found.exists():
        raise UsageError(f"{path}: no such file", None, None, "check the path")
    return found


def add_kernel_arguments(parser: argparse.ArgumentParser) -> None:
    """Constants, arguments, types, grid and launch options of a kernel."""
    from advisor.result.schema import LAUNCH_OPTIONS

    group = parser.add_argument_group("a kernel in a file")
    group.add_argument("--constexpr", action="append", default=[], metavar="NAME=VALUE", help="a tl.constexpr argument")
    group.add_argument(
        "--arg", action="append", default=[], metavar="NAME=VALUE", help="value of a number, or of a tuple: 'strides=(4096,1)'"
    )
    group.add_argument(
        "--content", action="append", default=[], metavar="NAME=VALUE", help="what an index tensor holds: a number, list or range(…)"
    )
    group.add_argument("--signature", metavar="TYPES", help='"*fp16,*fp16,i32" in order, or "x_ptr=*fp16,n=i32"')
    group.add_argument("--element", metavar="TYPE", help="type behind pointers whose type is not given (fp16)")
    group.add_argument("--grid", metavar="X[,Y[,Z]]", help="programs; an expression over arguments: 'cdiv(M, BLOCK_M),8'")
    for name in LAUNCH_OPTIONS:
        group.add_argument("--" + name.replace("_", "-"), type=positive_integer, metavar="N")
    group.add_argument("--op", metavar="NAME", help="operator of a kernel that its file describes (KERNELS)")
    group.add_argument(
        "--toml",
        metavar="FILE",
        help="the same in a file: signature, constexprs, arguments, grid, num_warps, configs, …, and what only a file says: [contents] of "
        "index tensors, [sizes] in elements and [shapes] of tensors (x_ptr = [65536, 4096])",
    )


def launch_options(arguments: argparse.Namespace) -> LaunchOptions:
    """The options of a kernel's launch.

    Raises:
        UsageError, InputError: It is malformed.
    """
    from advisor.compiled.launches import written_values
    from advisor.compiled.launches.launch_options import LaunchOptions
    from advisor.result.schema import LAUNCH_OPTIONS
    from advisor.tables.routing import read_routing

    given = {name: getattr(arguments, name) for name in LAUNCH_OPTIONS}
    routing = getattr(arguments, "routing", None)
    return LaunchOptions(
        signature=arguments.signature,
        constexprs=written_values.assignments(arguments.constexpr, "--constexpr"),
        arguments=written_values.numbers(arguments.arg, "--arg"),
        contents=written_values.numbers(arguments.content, "--content"),
        options={k: v for k, v in given.items() if v is not None},
        grid=arguments.grid,
        element=written_values.type_name(arguments.element) if arguments.element else None,
        toml=written_values.read_toml(arguments.toml) if arguments.toml else {},
        sizes=arguments.sizes or {},
        op=arguments.op,
        dtype=arguments.dtype,
        routing=read_routing(routing) if routing else None,
    )


def given_for_a_kernel(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Options given that only a kernel in a file has, as they are written."""
    from advisor.result.schema import LAUNCH_OPTIONS

    named = [
        ("constexpr", "--constexpr"),
        ("arg", "--arg"),
        ("content", "--content"),
        ("signature", "--signature"),
        ("element", "--element"),
        ("grid", "--grid"),
        ("op", "--op"),
        ("toml", "--toml"),
    ]
    named += [(name, "--" + name.replace("_", "-")) for name in LAUNCH_OPTIONS]
    return tuple(option for name, option in named if getattr(arguments, name))
