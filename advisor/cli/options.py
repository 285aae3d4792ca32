"""Options that several commands share, and what they accept."""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from advisor.system.errors import NoSandboxError, UsageError, printable
from advisor.system.settings import check_compile_limit
from advisor.system.writing import replacing

if TYPE_CHECKING:
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
        name, equals, value = (item.strip() for item in part.partition("="))
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


class _Together(argparse.Action):
    """`--signature x_ptr=*i8 --signature y_ptr=*fp32`, as one text with a comma between."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        setattr(namespace, self.dest, ",".join(filter(None, (getattr(namespace, self.dest), values))))


def operand_type(text: str) -> str:
    """The name of a type from what people write: `bf16`, `float16`, `torch.bfloat16`, `fp8_w8a8`."""
    from advisor.rows.rows import DTYPES, LAYER_FORMATS

    written = text.strip().lower().removeprefix("torch.")
    if written in LAYER_FORMATS:  # more than a type: to take the operands' alone would be another layer
        raise argparse.ArgumentTypeError(f"must be a type of operands (got {text!r}): {LAYER_FORMATS[written]}")
    name = DTYPES.get(written)
    if name is None:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(dict.fromkeys(DTYPES.values()))} (got {text!r})")
    return name


MODEL = ("model", "hidden_size", "top_k", "tensor_parallel", "expert_parallel")
"""Options that say which layer of which model a table or kernel is of."""


def add_options(parser: argparse._ActionsContainer, *keywords: str, **more: Any) -> None:
    """Arguments for options of advice (`advisor.advising.options`), by their keywords; `more` are for argparse, in place of the table's."""
    from advisor.advising.options import BY_KEYWORD

    for keyword in keywords:
        option = BY_KEYWORD[keyword]
        settings: dict[str, Any] = (
            {"dest": keyword, "metavar": option.metavar, "help": option.help} | ARGUMENTS.get(option.value, {}) | more
        )
        if "choices" in settings:
            settings.pop("metavar")
        parser.add_argument(option.flag, *option.aliases, **settings)


def add_kernel_arguments(parser: argparse.ArgumentParser) -> None:
    """Constants, arguments, types, grid and launch options of a kernel."""
    from advisor.advising.options import OF_A_LAUNCH

    add_options(parser.add_argument_group("a kernel in a file"), *OF_A_LAUNCH)


def values_of(arguments: argparse.Namespace, **more: Any) -> dict[str, Any]:
    """The options of advice among a command's arguments, by their keywords; `more` in place of some."""
    from advisor.advising.options import BY_KEYWORD

    return {keyword: getattr(arguments, keyword) for keyword in BY_KEYWORD if hasattr(arguments, keyword)} | more


def block_shape(text: str) -> tuple[int, int]:
    """`128,128`: a quantization block, for argparse."""
    parts = positive_integers(text.strip("[]"))
    if len(parts) != 2 or any(part & (part - 1) for part in parts):
        raise argparse.ArgumentTypeError(f"must be two powers of two such as 128,128 (got {text!r})")
    return parts[0], parts[1]


def routing_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of a request or a problem that `--routing` sets; none where it is not given."""
    from advisor.advising.targets import routing_given

    return routing_given(arguments.routing)


def stack(text: str) -> str:
    """`vllm` or `vllm:0.24`, for argparse."""
    from advisor.advising.options import read_stack

    try:
        read_stack(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


ARGUMENTS: dict[str, dict[str, Any]] = {
    "integer": {"type": positive_integer},
    "integers": {"type": positive_integers, "nargs": "+"},
    "sizes": {"type": named_sizes, "action": _OneProblem},
    "type": {"type": operand_type},
    "by name": {"action": "append", "default": []},
    "types": {"action": _Together},
    "seconds": {"type": amount_of_time},
    "stack": {"type": stack},
    "block": {"type": block_shape},
    "cache": {"choices": ("cold", "warm")},
}
"""What argparse is told of an option by what it takes."""


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


def terminal_width() -> int | None:
    """Columns of the terminal that standard output is; None: it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def page_and_document(output: Path, page: str, document: str) -> tuple[Path, Path]:
    """Paths of a page and of its JSON: in the folder `output`, or, where that names a page (`.html`), there and beside it."""
    return (output, output.with_suffix(".json")) if output.suffix == ".html" else (output / page, output / document)


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
    """`--compile-limit` and `--untrusted`, which `require_sandbox` reads."""
    parser.add_argument(
        "--compile-limit",
        metavar="S[,ALL]",
        help="time limit in seconds of one compilation (default: 120), and of all together",
    )
    parser.add_argument("--untrusted", action="store_true", help="refuse to compile without a sandbox (`advisor doctor`)")


def require_sandbox(arguments: argparse.Namespace) -> None:
    """Sets how long compilations may take, and raises where what is to be compiled is a stranger's and this machine has no room for it.

    Raises:
        NoSandboxError: A wall does not stand.
        UsageError: The limit is none.
    """
    limit_compilations(arguments)
    if not arguments.untrusted:
        return
    from advisor.compiled.compiler.pool import sandbox_lacks

    if lacks := sandbox_lacks():
        raise NoSandboxError("--untrusted: this machine has no sandbox", lacks, None, "see `advisor doctor`")


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


def warn_of_rows(warnings: Sequence[str]) -> None:
    """A warning on stderr for each of the first rows; the rest is counted."""
    for text in warnings[:ROWS_SHOWN]:
        warn(text)
    if len(warnings) > ROWS_SHOWN:
        warn(f"{len(warnings) - ROWS_SHOWN} more rows are like the last")


def nothing_launches(row: int, gpu: GpuSpec) -> str:
    """The error that no configuration fits the GPU, for a row (counted from 0) that names none."""
    return f"row {row + 1}: nothing is predicted: no configuration known for it can launch on {gpu.name}"


def existing_file(path: str) -> Path:
    """The path of a file that is there.

    Raises:
        UsageError: It is not, or is a folder.
    """
    file = Path(path)
    if file.is_dir():
        raise UsageError(f"{path} is a folder", None, "a file", "name a file in it")
    if not file.exists():
        raise UsageError(f"{path}: no such file", None, None, "check the path")
    return file
