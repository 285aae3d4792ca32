"""The options of advice: one table, from which come the command's arguments, the keywords of `advisor.advise`, what is refused for a
target, the command line that repeats a call, and the table of the reference."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from advisor.result.schema import LAUNCH_OPTIONS
from advisor.system.errors import UsageError

if TYPE_CHECKING:
    from advisor.advising.targets import Request
    from advisor.compiled.launches.launch_options import LaunchOptions

TargetKind = Literal["table", "bundled kernel", "kernel in a file", "record", "tuning cache", "trace"]
"""What a TARGET may be."""
Value = Literal["text", "integer", "integers", "sizes", "type", "by name", "seconds", "stack", "block", "cache", "types"]
"""What an option takes."""

EVERY: tuple[TargetKind, ...] = ("table", "bundled kernel", "kernel in a file", "record", "tuning cache", "trace")
KNOWN: tuple[TargetKind, ...] = ("table", "bundled kernel")
FILE: tuple[TargetKind, ...] = ("kernel in a file",)
SIZED: tuple[TargetKind, ...] = (*KNOWN, *FILE)


@dataclass(frozen=True, slots=True)
class Option:
    """One option of advice.

    Attributes:
        keyword: Its keyword in Python.
        metavar: What help calls its value.
        value: What it takes.
        targets: The kinds of target that it says something of.
        help: What it means.
        spelling: Its option on the command line where that is not the keyword's.
        aliases: What the serving stacks call it on theirs.
    """

    keyword: str
    metavar: str
    value: Value
    targets: tuple[TargetKind, ...]
    help: str
    spelling: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The option as the command line has it."""
        return self.spelling or "--" + self.keyword.replace("_", "-")


OPTIONS = (
    Option("gpu", "NAME", "text", EVERY, "GPU, by any name `advisor gpus` knows, or a TOML file that describes one"),
    Option("model", "NAME", "text", KNOWN, "model the table belongs to, e.g. Qwen3-30B-A3B"),
    Option("hidden_size", "H", "integer", KNOWN, "hidden size (the K of w13)"),
    Option("top_k", "K", "integer", KNOWN, "experts per token"),
    Option("tensor_parallel", "P", "integer", KNOWN, "GPUs each expert is split over", aliases=("--tp", "-tp", "--tensor-parallel-size")),
    Option("expert_parallel", "P", "integer", KNOWN, "GPUs the experts are spread over"),
    Option("constexprs", "NAME=VALUE", "by name", FILE, "a tl.constexpr argument", "--constexpr"),
    Option(
        "arguments",
        "NAME=VALUE",
        "by name",
        FILE,
        "a number or a tuple ('strides=(4096,1)') that the kernel takes, or a name of the function that launches it",
        "--arg",
    ),
    Option(
        "contents",
        "NAME=VALUE",
        "by name",
        FILE,
        "what an index tensor holds: a number, a list, range(…), random(N) for numbers below N, or permutation(N) for each once",
        "--content",
    ),
    Option("signature", "TYPES", "types", FILE, '"*fp16,*fp16,i32" in order, or "x_ptr=*fp16,n=i32"'),
    Option(
        "element",
        "TYPE",
        "text",
        FILE,
        "type behind pointers whose type is not given (default: bf16; fp16 where the file names it alone, or before Ampere)",
    ),
    Option("grid", "X[,Y[,Z]]", "text", FILE, "programs; an expression over arguments: 'cdiv(M, BLOCK_M),8'"),
    *(Option(name, "N", "integer", FILE, f"{name} of the launch") for name in LAUNCH_OPTIONS),
    Option("op", "NAME", "text", FILE, "operator of a kernel that its file describes (KERNELS)"),
    Option(
        "toml",
        "FILE",
        "text",
        FILE,
        "the same in a file: signature, constexprs, arguments, grid, num_warps, configs, …, and what only a file says: [contents] of "
        "index tensors, [sizes] in elements and [shapes] of tensors (x_ptr = [65536, 4096])",
    ),
    Option("tokens", "M", "integers", KNOWN, "token counts (default: the table's)"),
    Option("sizes", "M=…,N=…", "sizes", SIZED, "sizes of a bundled kernel's problem, or of one that its file describes"),
    Option("dtype", "TYPE", "type", SIZED, "operand type, in place of the table's: bf16, fp16, fp32, tf32, fp8 or int8"),
    Option(
        "routing",
        "NAME",
        "text",
        SIZED,
        "which experts the tokens choose: random (the default), balanced, power_law:A, or a file. The file has the token slots of each "
        "expert, as a JSON list or one per line; they are scaled to each launch.",
    ),
    Option("cache", "NAME", "cache", EVERY[:5], "what the L2 holds at launch (default: warm; for a tuning cache as the timings suggest)"),
    Option(
        "measured",
        "FILE",
        "text",
        (*KNOWN, "record"),
        "measured latencies to compare with: rows (CSV), or a profile of Nsight Compute (ncu --csv) or torch's profiler, whose kernels "
        "are matched by name, threads and CTAs",
    ),
    Option(
        "try_for",
        "SECONDS",
        "seconds",
        (*FILE, "record"),
        "where one configuration of a kernel is known: how long its warps, stages and blocks are varied, compiled and predicted, all "
        "launches together (default: ADVISOR_TRY_FOR, or else 24 configurations however long they take; 0: not at all)",
    ),
    Option("weights", "FILE", "text", (*KNOWN, "tuning cache", "trace"), "weights that `advisor train` wrote (default: those shipped)"),
    Option(
        "stack",
        "NAME[:VERSION]",
        "stack",
        KNOWN,
        "vllm or sglang, with a version as in vllm:0.24. Its table this is, or its default runs where there is none. The default is what "
        "the table's place says, else vllm; --export of fused_moe writes for both.",
    ),
    Option("block_shape", "N,K", "block", KNOWN, "of fused_moe: quantization block of the weights, such as 128,128"),
)
BY_KEYWORD = {option.keyword: option for option in OPTIONS}
OF_A_LAUNCH = tuple(option.keyword for option in OPTIONS if option.targets == FILE)
"""Keywords that say something of a kernel in a file alone."""
_OF_A_REQUEST = ("gpu", "model", "hidden_size", "top_k", "tensor_parallel", "expert_parallel", "dtype", "sizes", "block_shape")


_PLURAL: dict[TargetKind, str] = {
    "table": "tables",
    "bundled kernel": "bundled kernels",
    "kernel in a file": "kernels in a file",
    "record": "records",
    "tuning cache": "tuning caches",
    "trace": "traces",
}
_INSTEAD: dict[TargetKind, str] = {"table": "tokens", "bundled kernel": "sizes", "kernel in a file": "arguments"}
"""The option with which each kind of target is given its sizes."""


def refuse_unfit(kind: TargetKind, target: str, values: Mapping[str, Any], *, flags: bool) -> None:
    """Refuse what says nothing of a kind of target, and would be read past; `flags`: in the words of the command line.

    Raises:
        UsageError: Something of that is given.
    """
    unfit = [option for option in OPTIONS if kind not in option.targets and given(values.get(option.keyword))]
    if not unfit:
        return
    fits = [item for item in unfit[0].targets if all(item in option.targets for option in unfit)] or list(unfit[0].targets)
    names = ", ".join(option.flag if flags else option.keyword for option in unfit)
    instead = BY_KEYWORD[_INSTEAD[kind]] if kind in _INSTEAD else None
    raise UsageError(
        f"{names} is for {' and '.join(_PLURAL[fit] for fit in fits)}",
        f"{target}, a {kind}",
        None,
        f"give {instead.flag if flags else instead.keyword} instead" if instead else "leave it out",
    )


def given(value: Any) -> bool:
    """Whether an option is given: an empty list, name or mapping says nothing; 0 does."""
    return value is not None and (isinstance(value, int | float) or bool(value))


def request_from(values: Mapping[str, Any], **more: Any) -> Request:
    """The `Request` that options by keyword make; `more` are its fields that a caller reads its own way.

    Args:
        values: Options by their keywords. `tokens` may be one count, several, or groups of them; `routing` a name, counts or a file;
            `stack` as on the command line.

    Raises:
        UsageError, InputError: See `Request` and `read_routing`; or tokens and sizes both say M.
    """
    from advisor.advising.targets import Request, routing_given

    fields = {name: values.get(name) for name in _OF_A_REQUEST}
    if isinstance(fields["sizes"], Mapping):
        fields["sizes"] = {name: int(value) for name, value in fields["sizes"].items()}  # causal may be a truth value
    sizes = values.get("sizes") or ()
    tokens = token_counts(values.get("tokens"), [sizes] if isinstance(sizes, Mapping) else sizes)
    if values.get("stack"):
        name, version = read_stack(values["stack"])
        fields |= {"stack": name, "stack_version": version or None}
    fields |= {"tokens": tokens, "cache": values.get("cache") or "warm"}
    return Request(**{**fields, **(routing_given(values["routing"]) if values.get("routing") is not None else {}), **more})


def token_counts(
    tokens: int | Iterable[int] | Iterable[Iterable[int]] | None, problems: Iterable[Mapping[str, int]] = ()
) -> tuple[int, ...] | None:
    """Token counts, sorted and each once, from one count, several, or groups of them; None where none are given.

    Raises:
        UsageError: One of the `problems`, whose sizes are given by name, says another M.
    """
    if tokens is None:
        return None
    groups = (tokens,) if isinstance(tokens, int) else tokens
    counts = tuple(sorted({count for group in groups for count in ((group,) if isinstance(group, int) else group)}))
    if counts and (specified := [problem["M"] for problem in problems if "M" in problem]):
        both = f"--tokens {','.join(map(str, counts))} and M={specified[0]}"
        raise UsageError("--tokens and --sizes both say M", both, "one of them", "leave one out")
    return counts


def read_stack(text: str) -> tuple[str, str]:
    """A serving stack and its version ("": the newest measured) from `vllm` or `vllm:0.24`.

    Raises:
        UsageError: It is neither vllm nor sglang, or the version is none.
    """
    name, _, version = text.strip().lower().partition(":")
    if name not in ("vllm", "sglang") or (version and not re.fullmatch(r"v?\d+(\.\d+)*", version)):
        raise UsageError("a serving stack", text, "vllm or sglang, with a version after a colon, as in vllm:0.24")
    return name, version.removeprefix("v")


def launch_options(values: Mapping[str, Any]) -> LaunchOptions:
    """What options by keyword say of a kernel's launch; `constexprs`, `arguments` and `contents` by name, or as the command line has them.

    Raises:
        UsageError, InputError: Something is malformed.
    """
    from advisor.compiled.launches import written_values
    from advisor.compiled.launches.launch_options import LaunchOptions
    from advisor.tables.routing import read_routing

    def by_name(keyword: str) -> Mapping[str, Any]:
        value = values.get(keyword) or {}
        if isinstance(value, Mapping):
            return value
        read = written_values.assignments if keyword == "constexprs" else written_values.numbers
        return read(value, BY_KEYWORD[keyword].flag)

    routing, element, toml = values.get("routing"), values.get("element"), values.get("toml")
    counts = read_routing(routing) if isinstance(routing, str | os.PathLike) else routing
    return LaunchOptions(
        signature=values.get("signature"),
        constexprs=by_name("constexprs"),
        arguments=by_name("arguments"),
        contents=by_name("contents"),
        options={name: values[name] for name in LAUNCH_OPTIONS if values.get(name) is not None},
        grid=values.get("grid"),
        element=written_values.type_name(element) if element else None,
        toml=written_values.read_toml(toml) if toml else {},
        sizes=values.get("sizes") or {},
        op=values.get("op"),
        dtype=values.get("dtype"),
        routing=counts,
    )


def command_line(target: str, values: Mapping[str, Any]) -> str:
    """The command that repeats a call; "": there is none, for the routing is no name and no file."""
    if not isinstance(values.get("routing"), (str, os.PathLike, type(None))):
        return ""
    words = ["advisor", "advise", target]
    for option in OPTIONS:
        value: Any = values.get(option.keyword)
        if not given(value) or (option.keyword, value) == ("cache", "warm"):
            continue
        if option.value == "by name":
            words += [word for name, one in value.items() for word in (option.flag, f"{name}={one}")]
        else:
            parts = [f"{name}={int(one)}" for name, one in value.items()] if isinstance(value, Mapping) else value
            words += [option.flag, str(parts) if isinstance(parts, str | int | float | os.PathLike) else ",".join(map(str, parts))]
    return shlex.join(words)


def reference() -> str:
    """The options as a table in Markdown."""
    lines = ["| option | keyword | of a | |", "| --- | --- | --- | --- |"]
    for option in OPTIONS:
        targets = "any" if option.targets == EVERY else ", ".join(option.targets)
        flags = ", ".join((option.flag, *option.aliases))
        lines.append(f"| `{flags} {option.metavar}` | `{option.keyword}` | {targets} | {option.help.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"
