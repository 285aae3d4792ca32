"""Reading, selecting from and writing the tuned tables of vLLM and SGLang.

A table maps a token count M (before top-k) to the configuration its launcher passes to the kernel. Both stacks take the
entry whose key is nearest to M, ties going to the first in file order, without interpolation (vLLM 0.33 and SGLang
0.5.23, `try_get_optimal_moe_config`: `configs[min(configs.keys(), key=lambda x: abs(x - M))]`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from advisor.result.schema import Configuration
from advisor.system.errors import AdvisorError, InputError, NotOursError, UsageError
from advisor.system.reading import read_bytes, read_text
from advisor.tables.entries import RETUNE as _RETUNE
from advisor.tables.entries import read_entry
from advisor.tables.launchability import raised_block_k
from advisor.tables.names import SIZE_LIMIT, TableName, is_table_name, parse_table_name, vendor_of

FILE_SIZE_LIMIT_BYTES = 16 * 1024 * 1024
ENTRY_LIMIT = 10_000
REMOVE_DUPLICATES = "remove all duplicates"
_KEY = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One tuned table.

    `entries` keep the file's order, because ties are decided by it.
    `unreadable_keys` are the token counts whose entry no launcher can use; what needs fewer or more tokens may still be nearest to it.
    `others` are sound entries under keys that are spelled as no token count ("064", "-1"), which the stacks read as numbers all the same.
    `document` is the parsed file, key by key, from which the table is written back without loss, less what cannot be read.
    """

    name: TableName
    path: str
    entries: tuple[tuple[int, Configuration], ...]
    triton_version: str | None = None
    duplicate_keys: tuple[str, ...] = ()
    unreadable_keys: tuple[int, ...] = ()
    others: tuple[tuple[str, Configuration], ...] = ()
    document: tuple[tuple[str, Any], ...] = ()

    @property
    def keys(self) -> tuple[int, ...]:
        """The token counts of the table in file order, those of unreadable entries included."""
        return tuple(int(key) for key, _ in self.document if key != "triton_version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The entry that runs for a token count; `configuration` is None where it cannot be read."""

    key: int
    configuration: Configuration | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProblem:
    """A value of a table that cannot be read, and the key it stands under (None: the file as a whole)."""

    key: str | None
    check: Literal["unreadable", "bad-entry", "odd-key", "duplicate-key"]
    """The check of `advisor.tables.audit.CHECKS` that it fails."""
    error: InputError


def read_table(path: str | os.PathLike[str], name: TableName | None = None) -> Table:
    """Read a tuned table.

    Args:
        path: The file.
        name: What the table is for; parsed from the file name where None.

    Raises:
        NotOursError: The table of another kernel, recognised by its name or its keys.
        InputError: The file cannot be read; names file, key, value, limit and remedy.
    """
    table, problems = inspect_table(path, name)
    if problems:
        raise problems[0].error
    assert table is not None
    return table


def inspect_table(path: str | os.PathLike[str], name: TableName | None = None) -> tuple[Table | None, tuple[TableProblem, ...]]:
    """Read what can be read of a table, and list what cannot.

    Raises:
        NotOursError: The table of another kernel.

    Returns:
        The table with its sound entries (None where there are none), and the problems in file order.
    """
    try:
        name = name or parse_table_name(path)
        label = Path(path).name
        other = f"the {name.backend} backend" if name.backend is not None else "SGLang's channel-wise GEMM"
        if name.backend is not None or (name.dtype or "").endswith("_channelwise"):
            raise NotOursError(f"{label}: tuned for {other}, a kernel the advisor has no model of", None, None, "skip it")
        document, duplicates = _load(path, label)
    except NotOursError:
        raise
    except InputError as error:
        return None, (TableProblem(key=None, check="unreadable", error=error),)
    return _interpret(os.fspath(path), label, name, document, duplicates)


def is_own_result(path: Path) -> bool:
    """Whether a file is a result that `advise`, `model`, `tune` or `compare` wrote: beside the tables it is about, and none itself."""
    document = None if is_table_name(path) else _document(path)
    return isinstance(document, dict) and "schema_version" in document and bool({"tool_version", "operators"} & document.keys())


def is_of_another_kernel(path: Path) -> bool:
    """Whether a file is a table by token count whose name is none of ours and whose entries are not either: tables of other kernels are
    kept in the same folders (`moe_sum_reduce_…`, LoRA's), and nothing is wrong with them."""
    document = None if path.name.startswith(("E=", "N=")) or path.suffix != ".json" else _document(path)
    if not isinstance(document, dict):
        return False
    entries = [entry for key, entry in document.items() if is_token_count(key) and isinstance(entry, dict)]
    return bool(entries) and not any("BLOCK_SIZE_M" in entry for entry in entries)


def _document(path: Path) -> Any:
    """The parsed JSON of a file; None where it cannot be read."""
    try:
        return json.loads(read_bytes(path, path.name, "a tuned table", FILE_SIZE_LIMIT_BYTES))
    except (InputError, ValueError, RecursionError):
        return None


def _interpret(
    path: str, label: str, name: TableName, document: list[tuple[str, Any]], duplicates: tuple[str, ...]
) -> tuple[Table | None, tuple[TableProblem, ...]]:
    problems = [
        TableProblem(
            key=key,
            check="duplicate-key",
            error=InputError(f"{label}: key {key!r} occurs twice", key, "each key once", REMOVE_DUPLICATES),
        )
        for key in duplicates
    ]
    values: dict[int, Configuration] = {}
    fields: dict[str, Any] = {}
    triton_version: str | None = None
    others: dict[str, Configuration] = {}
    for key, value in document:
        try:
            if key == "triton_version":
                triton_version = _triton_version(label, value)
                if not takes_triton_version(name):
                    raise InputError(
                        f"{label}: key 'triton_version'",
                        value,
                        "token counts alone: the loader takes every key of this table for one, so that every launch raises a ValueError",
                        "remove it",
                    )
                fields[key] = triton_version
                continue
            tokens = _token_count(label, key)
            fields[key] = value
            values[tokens] = read_entry(label, key, value, name)
        except InputError as error:
            problems.append(TableProblem(key=key, check="bad-entry", error=error))
            if key not in fields and is_number(key):
                try:
                    others[key] = read_entry(label, key, value, name)
                except InputError as worse:
                    problems.append(TableProblem(key=key, check="odd-key", error=worse))
    order = [int(key) for key in fields if key != "triton_version"]
    entries = tuple((tokens, values[tokens]) for tokens in order if tokens in values)
    if not entries and len(problems) == len(others):
        empty = InputError(f"{label}: the table has no entries", None, "at least one token count", _RETUNE)
        problems.append(TableProblem(key=None, check="unreadable", error=empty))
    if not entries:
        return None, tuple(problems)
    table = Table(
        name=name,
        path=path,
        entries=entries,
        triton_version=triton_version or name.triton_version,
        duplicate_keys=duplicates,
        unreadable_keys=tuple(tokens for tokens in order if tokens not in values),
        others=tuple(others.items()),
        document=tuple(fields.items()),
    )
    return table, tuple(problems)


def _load(path: str | os.PathLike[str], label: str) -> tuple[list[tuple[str, Any]], tuple[str, ...]]:
    """The top level of the JSON file in file order (last value of a repeated key), and the repeated keys."""
    text = read_text(path, label, "a tuned table", FILE_SIZE_LIMIT_BYTES, encoding="utf-8")  # the stacks take no mark before it
    if text.startswith("\ufeff"):
        raise InputError(
            f"{label}: a byte order mark stands before the JSON, and the stacks' reader refuses it",
            None,
            "UTF-8 without one",
            "save it as plain UTF-8",
        )
    duplicates: list[str] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    duplicates.append(key)
                seen.add(key)
        return result

    def reject(constant: str) -> Any:
        raise InputError(f"{label}: {constant} is not JSON", constant, "a number", _RETUNE)

    try:
        document = json.loads(text, object_pairs_hook=collect, parse_constant=reject)
    except AdvisorError:
        raise
    except json.JSONDecodeError as error:
        raise InputError(
            f"{label}: not valid JSON, line {error.lineno} column {error.colno}: {error.msg}",
            None,
            "a JSON object of token counts",
            "the file may be cut short or merged badly; restore it or tune again",
        ) from None
    except (ValueError, RecursionError):  # a number of thousands of digits, or thousands of nested brackets
        raise InputError(
            f"{label}: not a tuned table (a number too long, or brackets nested too deep)",
            None,
            "a JSON object of token counts",
            "restore the file or tune again",
        ) from None
    if not isinstance(document, dict):
        raise InputError(f"{label}: not a tuned table", document, 'a JSON object {"<tokens>": {"BLOCK_SIZE_M": …}, …}', _RETUNE)
    if len(document) > ENTRY_LIMIT:
        raise InputError(
            f"{label}: too many entries",
            len(document),
            f"at most {ENTRY_LIMIT:,}",
            "keep one entry per token count that matters; the stacks take the nearest",
        )
    return list(document.items()), tuple(dict.fromkeys(duplicates))


def is_token_count(key: str) -> bool:
    """Whether a key is a number of tokens that there can be, spelled as one."""
    return _KEY.fullmatch(key) is not None and 0 < int(key) < SIZE_LIMIT


def is_number(key: str) -> bool:
    """Whether the stacks, which ask no more of a key, can read it: "0" and "-1" too, though no launch has so many tokens."""
    try:
        int(key)
    except ValueError:
        return False
    return True


def _token_count(label: str, key: str) -> int:
    """The token count of a key; other spellings of a number ("+1", "064"), which the stacks read too, no tuner writes."""
    if not is_token_count(key):
        raise InputError(
            f"{label}: key {key!r} is not a token count",
            key,
            f"an integer from 1 to {SIZE_LIMIT - 1} (or triton_version)",
            "the stacks turn every key into a token count; rename or remove it",
        )
    return int(key)


def takes_triton_version(name: TableName) -> bool:
    """Whether the loader of a table takes out `triton_version` before it turns the keys into token counts.

    vLLM's of fused MoE alone does (vLLM 0.33, `get_moe_configs`, and not `get_w8a8_block_fp8_configs`; SGLang 0.5.23, none).
    """
    return name.kind == "fused_moe" and name.stack != "sglang"


def _triton_version(label: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 64:
        raise InputError(f"{label}: triton_version", value, 'a short text such as "3.6.0"', "correct or remove triton_version")
    return value


def nearest_key(keys: tuple[int, ...], M: int) -> int:
    """The key whose entry runs for M tokens: the nearest, ties to the first in file order."""
    return min(keys, key=lambda key: abs(key - M))


def select(table: Table, M: int) -> Selection:
    """The entry that vLLM and SGLang launch with for M tokens (before top-k).

    Raises:
        UsageError: M is no token count.
    """
    if type(M) is not int or not 0 < M < SIZE_LIMIT:
        raise UsageError("token count", M, f"an integer from 1 to {SIZE_LIMIT - 1}", "give token counts as --tokens 1 64 4096")
    key = nearest_key(table.keys, M)
    return Selection(key=key, configuration=dict(table.entries).get(key))


def clamp(configuration: Configuration, name: TableName) -> Configuration:
    """The configuration as its launcher passes it to the kernel.

    vLLM's fused-MoE launcher caps BLOCK_SIZE_K at the smaller side of the quantization block and sets SPLIT_K to 1
    (vLLM 0.33, `invoke_fused_moe_triton_kernel`). SGLang's loader of fp8 GEMM tables raises it to the quantization block, but for CUDA
    (SGLang 0.5.23, `get_w8a8_block_fp8_configs`). All others pass the entry on as it is.
    """
    operands = "fp8" if name.dtype == "fp8_w8a8" else None
    least = raised_block_k(name.kind, name.stack, operands, name.block_shape, vendor_of(name.device_name))
    if int(configuration.parameters["BLOCK_SIZE_K"]) < least:
        return replace(configuration, parameters={**configuration.parameters, "BLOCK_SIZE_K": least})
    if name.kind != "fused_moe" or name.stack == "sglang":
        return configuration
    parameters = dict(configuration.parameters)
    if name.block_shape is not None and name.weight_dtype is None:  # weight-only quantization has a launcher of its own
        parameters["BLOCK_SIZE_K"] = min(int(parameters["BLOCK_SIZE_K"]), *name.block_shape)
    if "SPLIT_K" in parameters:
        parameters["SPLIT_K"] = 1
    return configuration if parameters == configuration.parameters else replace(configuration, parameters=parameters)


def down_configuration(up: Configuration, down: Configuration | None) -> Configuration:
    """The configuration of w2 in SGLang: the `_down` table's, with w13's BLOCK_SIZE_M, since both share one sort.

    Args:
        up: The entry that w13 runs with.
        down: The entry of the `_down` table; None where there is no such table, and w13's entry serves both.
    """
    if down is None:
        return up
    parameters = {**down.parameters, "BLOCK_SIZE_M": up.parameters["BLOCK_SIZE_M"]}
    return replace(down, parameters=parameters)


def entry_of(configuration: Configuration, like: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A configuration as a table entry, its keys in the order of the entry it replaces where there is one."""
    entry: dict[str, Any] = dict(configuration.parameters)
    entry["num_warps"] = configuration.num_warps
    entry["num_stages"] = configuration.num_stages
    if configuration.num_ctas != 1 or (like is not None and "num_ctas" in like):
        entry["num_ctas"] = configuration.num_ctas
    if configuration.maxnreg is not None:
        entry["maxnreg"] = configuration.maxnreg
    if like is None:
        return entry
    return {**{key: entry[key] for key in like if key in entry}, **entry}


def merge(table: Table, updates: Mapping[int, Configuration]) -> Table:
    """The table with entries replaced or added; old keys keep their place, new ones are put in ascending order."""
    document = dict(table.document)
    known = dict(table.entries)
    for tokens in sorted(updates):
        if type(tokens) is not int or not 0 < tokens < SIZE_LIMIT:
            raise UsageError("token count", tokens, f"an integer from 1 to {SIZE_LIMIT - 1}", "correct it")
        old = document.get(str(tokens)) if tokens not in table.unreadable_keys else None
        document[str(tokens)] = entry_of(updates[tokens], old)
        known[tokens] = updates[tokens]
    items = list(document.items())
    before = [int(key) for key, _ in table.document if key != "triton_version"]
    if before == sorted(before):  # a table in order stays in order; a disordered one keeps its ties
        items.sort(key=lambda item: (item[0] != "triton_version", int(item[0]) if item[0] != "triton_version" else 0))
    entries = tuple((int(key), known[int(key)]) for key, _ in items if key != "triton_version" and int(key) in known)
    unreadable = tuple(key for key in table.unreadable_keys if key not in updates)
    return replace(table, document=tuple(items), entries=entries, unreadable_keys=unreadable, duplicate_keys=())


def new_table(name: TableName, entries: Mapping[int, Configuration], triton_version: str | None = None) -> Table:
    """A table that was not read from a file."""
    names_version = triton_version is not None and takes_triton_version(name)
    head: tuple[tuple[str, Any], ...] = (("triton_version", triton_version),) if names_version else ()
    empty = Table(name=name, path=name.file_name(), entries=(), triton_version=triton_version, document=head)
    return merge(empty, entries)


def render_table(table: Table) -> str:
    """The text of a table as vLLM's tuner writes it: four blanks of indentation, a newline at the end. No entry that cannot be read."""
    left_out = {str(key) for key in table.unreadable_keys}
    return json.dumps({key: value for key, value in table.document if key not in left_out}, indent=4) + "\n"
