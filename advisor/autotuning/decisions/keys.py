"""Tuning keys: the slow one, which is Triton's own, and a generated function that reads a call's key in about a microsecond.

Triton's key of a call is the values of the arguments named in `key`, then the dtype (as text) of every argument that has one. The
generated function reads the same facts without building dictionaries or text; two calls whose facts are equal have equal keys, so
its result can stand in front of the slow key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from advisor.system.errors import UsageError

Bucket = str | Callable[[Any], Any]

ABSENT = type("Absent", (), {"__repr__": lambda self: "ABSENT"})()
"""Stands for an argument that was not passed."""


def round_up_to_power_of_two(value: Any) -> Any:
    """1000 → 1024. Anything but a positive integer stays as it is."""
    return 1 << (value - 1).bit_length() if type(value) is int and value > 0 else value


def bucket_function(bucket: Bucket, name: str) -> Callable[[Any], Any]:
    """A function from a value to its bucket: for "pow2", or a function.

    Raises:
        UsageError: It is none of these.
    """
    if bucket == "pow2":
        return round_up_to_power_of_two
    if callable(bucket):
        return bucket
    raise UsageError(f"key_buckets[{name!r}]", bucket, '"pow2", or a function')


def bucket_functions(key_buckets: Mapping[str, Bucket] | None, key: Sequence[str]) -> dict[str, Callable[[Any], Any]]:
    """One function per bucketed key.

    Raises:
        UsageError: A name is not in `key`, or its bucket is none.
    """
    for name in key_buckets or {}:
        if name not in key:
            raise UsageError("key_buckets names no key", name, f"one of {', '.join(key)}", "add it to key=")
    return {name: bucket_function(bucket, name) for name, bucket in (key_buckets or {}).items()}


def slow_key(named: Mapping[str, Any], arg_names: Iterable[str], key: Sequence[str], buckets: Mapping[str, Callable]) -> tuple:
    """Triton's key of a call. `named`: every argument that was passed, by name."""
    names = set(arg_names)
    passed = {name: value for name, value in named.items() if name in names}
    parts: list[Any] = []
    for name in key:
        if name in passed:
            parts.append(buckets[name](passed[name]) if name in buckets else passed[name])
    parts.extend(str(value.dtype) for value in passed.values() if hasattr(value, "dtype"))
    return tuple(parts)


def stable_text(key: tuple) -> str | None:
    """The key as the cache stores it; None where its text would differ between processes."""
    text = str(key)
    return text if is_stable(text) else None


def is_stable(text: str) -> bool:
    """Whether a text is the same in every process: it holds no address."""
    return " at 0x" not in text and " object at " not in text


def fast_reader(
    arg_names: Sequence[str],
    key: Sequence[str],
    buckets: Mapping[str, Callable],
    settled: frozenset[str],
    always: frozenset[str],
    sometimes: frozenset[str] = frozenset(),
) -> Callable[..., Any]:
    """Generates the function that reads a call's key.

    It is made for the calls seen so far: it reads the dtypes of the arguments that had one, and the class of those that never had, so
    that a call of another kind has a key of its own, or raises AttributeError (a tensor that is None for the first time).

    Args:
        arg_names: The kernel's arguments, in order.
        key: Those whose value counts.
        buckets: How some of them are rounded.
        settled: Arguments that every configuration sets, and so no call passes.
        always: Arguments that had a dtype in every call.
        sometimes: Arguments that had one in some.
    """
    # Names that no argument can have are given to what the function needs.
    scope: dict[str, Any] = {"ABSENT__": ABSENT, "getattr__": getattr}
    parts = []
    for name in (name for name in key if name in arg_names):
        if name in buckets:
            scope[f"bucket__{name}"] = buckets[name]
            parts.append(f"bucket__{name}({name})")
        else:
            parts.append(name)
    parts += [f"{name}.dtype" for name in arg_names if name in always]
    parts += [f"getattr__({name}, 'dtype', None)" for name in arg_names if name in sometimes]
    parts += [f"{name}.__class__" for name in arg_names if name not in (always | sometimes | settled) and name not in key]
    signature = ", ".join([*(f"{name}=ABSENT__" for name in arg_names), "*more__", "**options__"])
    body = f"({', '.join(parts)},)" if parts else "()"
    exec(f"def read_key({signature}):\n    return {body}\n", scope)
    return scope["read_key"]


def dtype_names(named: Mapping[str, Any], arg_names: Iterable[str]) -> frozenset[str]:
    """The arguments that have a dtype in a call."""
    return frozenset(name for name in arg_names if hasattr(named.get(name), "dtype"))
