"""What the cache's key is made of: the tuning key of a call, the digest of a kernel's source, and the identity of `triton.Config` objects.

Triton's key of a call is the values of the arguments named in `key`, then the dtype (as text) of every argument that has one. A
generated function reads the same facts without building dictionaries or text, in about a microsecond; two calls whose facts are equal
have equal keys, so its result can stand in front of the slow key.

Triton's own hash of a source also changes with the line a kernel stands on. This one holds the kernel's text, that of every jitted
function it calls, and the values of the globals they read, so that a kernel that moved within its file is not tuned again.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import json
import math
import operator
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

from advisor.result.schema import LAUNCH_OPTIONS
from advisor.system.errors import UsageError

Bucket = str | Callable[[Any], Any]

ABSENT = type("Absent", (), {"__repr__": lambda self: "ABSENT"})()
"""Stands for an argument that was not passed."""


def round_up_to_power_of_two(value: Any) -> Any:
    """1000 → 1024. Anything but a positive integer stays as it is."""
    return 1 << (value - 1).bit_length() if type(value) is int and value > 0 else value


def bucket_functions(key_buckets: Mapping[str, Bucket], key: Sequence[str]) -> dict[str, Callable[[Any], Any]]:
    """One function from a value to its bucket per bucketed key: for "pow2", or a function.

    Raises:
        UsageError: A name is not in `key`, or its bucket is none of these.
    """
    for name, bucket in key_buckets.items():
        if name not in key:
            raise UsageError("key_buckets names no key", name, f"one of {', '.join(key)}", "add it to key=")
        if bucket != "pow2" and not callable(bucket):
            raise UsageError(f"key_buckets[{name!r}]", bucket, '"pow2", or a function')
    return {name: bucket if callable(bucket) else round_up_to_power_of_two for name, bucket in key_buckets.items()}


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


_PLAIN = (bool, int, float, str, bytes, type(None))


def source_hash(function: Any) -> str | None:
    """SHA-256 of a jitted function and its dependencies; None where its source is not at hand."""
    try:
        parts = _parts(function)
    except (OSError, TypeError, SyntaxError, AttributeError, ValueError):
        return None
    digest = hashlib.sha256()
    for name in sorted(parts):
        digest.update(f"{name}\x1f{parts[name]}\x1e".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def with_heuristics(digest: str, heuristics: Mapping[str, Any]) -> str:
    """The hash of a kernel whose constants functions compute from its arguments: with others it is another kernel."""
    if not heuristics:
        return digest
    parts = [digest, *(f"{name}={code_hash(heuristics[name])}" for name in sorted(heuristics))]
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()


def code_hash(function: Any) -> str:
    """Hash of a plain function that runs with a launch: a heuristic, a configuration's hook.

    It is of the bytecode, for the text of a lambda cannot be told from what stands around it (so another Python has another hash), the
    defaults, the plain values that it reads, and the functions of its module that it calls.
    """
    try:
        return _code_hash(function)
    except TypeError:  # of a kind that no dictionary takes
        return _code_hash.__wrapped__(function)


@functools.lru_cache(maxsize=256)  # a hook is usually that of hundreds of configurations
def _code_hash(function: Any) -> str:
    digest = hashlib.sha256()
    seen: set[int] = set()
    todo = [function]
    while todo:
        current = todo.pop(0)
        while isinstance(current, functools.partial):
            arguments = [*current.args, *sorted(current.keywords.items(), key=lambda keyword: keyword[0])]
            digest.update(repr([_plain_text(argument) for argument in arguments]).encode())
            current = current.func
        current = getattr(current, "__func__", current)
        if not inspect.isfunction(current):  # an object with __call__, a builtin: known by its type and name alone
            digest.update(f"{type(current).__qualname__} {getattr(current, '__qualname__', '')}".encode())
            continue
        if id(current) in seen:
            continue
        seen.add(id(current))
        defaults = [*(current.__defaults__ or ()), *sorted((current.__kwdefaults__ or {}).items())]
        scope, read = _scope(current), []
        for name in sorted(_names(current.__code__) & scope.keys()):
            value = scope[name]
            if inspect.isfunction(value) and value.__module__ == current.__module__:
                todo.append(value)
            else:
                read.append((name, _plain_text(value)))
        text = repr((_code_text(current.__code__), [_plain_text(default) for default in defaults], read))
        digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _code_text(code: CodeType) -> str:
    """Bytecode and constants as text that is the same in every process; a set of names has no order of its own."""
    constants = [
        _code_text(const) if isinstance(const, CodeType) else str(sorted(map(repr, const))) if isinstance(const, frozenset) else repr(const)
        for const in code.co_consts
    ]
    return repr((code.co_code, code.co_names, code.co_varnames, constants))


def _names(code: CodeType) -> set[str]:
    """The globals and outer variables that a function may read, those of functions within it included."""
    return {*code.co_names, *code.co_freevars}.union(*(_names(const) for const in code.co_consts if isinstance(const, CodeType)))


def _plain_text(value: Any) -> str:
    """A value that a hash can hold; of anything else its type."""
    if isinstance(value, tuple):
        return repr([_plain_text(element) for element in value])
    return _constant(value) or type(value).__qualname__


def passed_constants(function: Any, named: Mapping[str, Any], keys: Collection[str], options: Mapping[str, Any] | None = None) -> str:
    """The constants (`tl.constexpr`) and options of a call that the tuning key does not hold, as text: with others it is another kernel.

    Within a process the first call of a key decides for all of them, as triton.autotune has it. A process that passes other constants
    must not take over what was decided for these, which may not even fit.

    Args:
        function: The jitted function.
        named: Every argument that was passed, by name.
        keys: Arguments whose value is in the tuning key.
        options: What the call passes that is no argument of the kernel: num_warps, where a configuration leaves it open.
    """
    annotations = getattr(function.fn, "__annotations__", {})
    passed = (name for name in named if name not in keys and "constexpr" in str(annotations.get(name, "")))
    constants = {name: named[name] for name in passed} | dict(options or {})
    return ", ".join(f"{name}={_shown(constants[name])}" for name in sorted(constants))


def _shown(value: Any) -> str:
    """A constant as text that is the same in every process."""
    if _is_jitted(value):
        return source_hash(value) or type(value).__name__
    if isinstance(value, tuple) and _constant(value) is None:
        return f"({', '.join(map(_shown, value))})"
    return _constant(value) or type(value).__name__


def _parts(function: Any) -> dict[str, str]:
    from advisor.python_source.syntax import names_read

    parts: dict[str, str] = {}
    seen: set[int] = set()
    todo = [function]
    while todo:
        current = todo.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        plain = current.fn
        text = _text(current, plain)
        # The text is part of the name: two helpers of one name, from two modules, do not hide each other.
        name = f"{plain.__qualname__.rsplit('.', 1)[-1]}:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
        parts[name] = text
        scope = _scope(plain)
        for label in names_read(text):
            value = _resolved(label, scope)
            if _is_jitted(value):
                todo.append(value)
            elif label.partition(".")[0] in scope and (constant := _constant(value)) is not None:
                parts[f"{name}/{label}="] = constant
    return parts


def _text(function: Any, plain: Any) -> str:
    """Without decorators: changing the list of configurations does not change the kernel."""
    text = getattr(function, "src", None)
    if text is None:
        text = textwrap.dedent(inspect.getsource(plain))
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("def ")), 0)
    return "\n".join(lines[start:])


def _scope(plain: Any) -> dict[str, Any]:
    scope = dict(plain.__globals__)
    for name, cell in zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=False):
        try:
            scope[name] = cell.cell_contents
        except ValueError:
            continue
    return scope


def _resolved(label: str, scope: dict[str, Any]) -> Any:
    """What a chain of attributes of a name is in a scope; None: it has none such."""
    name, _, attributes = label.partition(".")
    try:
        return operator.attrgetter(attributes)(scope[name]) if attributes else scope[name]
    except (AttributeError, KeyError):
        return None


def _is_jitted(value: Any) -> bool:
    module = str(getattr(value, "__module__", "") or "")
    if module == "triton" or module.startswith("triton."):
        return False  # Triton's library: its version is in the key
    return inspect.isfunction(getattr(value, "fn", None)) and not isinstance(value, type)


def _constant(value: Any) -> str | None:
    if isinstance(value, _PLAIN):
        return repr(value)
    if type(value).__name__ in ("constexpr", "dtype"):
        return f"{type(value).__name__}({getattr(value, 'value', value)})"
    if isinstance(value, tuple) and all(isinstance(item, _PLAIN) for item in value):
        return repr(value)
    return None


CONFIG_OPTIONS = (*LAUNCH_OPTIONS, "ir_override")
MAX_SPACE = 200_000
as_text = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def identity(config: Any) -> str:
    """The name of a configuration in the cache: parameters and options as JSON, and its hook by name and code.

    The order of parameters does not matter, nor does the Triton version's set of options where they are at their default.
    """
    hook = getattr(config, "pre_hook", None)
    if hook is not None:  # it may set what the launch depends on: a descriptor's block
        hook = f"{getattr(hook, '__module__', '')}:{getattr(hook, '__qualname__', type(hook).__qualname__)}:{code_hash(hook)[:16]}"
    parameters, options = (*config.kwargs.items(),), (*map(vars(config).get, CONFIG_OPTIONS),)
    try:
        return _identity(parameters, (*map(type, config.kwargs.values()),), options, hook)
    except TypeError:  # a value that no dictionary takes as a key
        return _identity.__wrapped__(parameters, (), options, hook)


@lru_cache(maxsize=8192)
def _identity(parameters: tuple[tuple[str, Any], ...], types: tuple[type, ...], options: tuple[Any, ...], hook: str | None) -> str:
    """See `identity`; `types`, of the values, tell 1 from True."""
    values = {str(name): _plain(value) for name, value in parameters}
    values |= {name: _plain(value) for name, value in zip(CONFIG_OPTIONS, options, strict=True) if value is not None}
    if values.get("num_ctas") == 1:
        del values["num_ctas"]
    if hook is not None:
        values["pre_hook"] = hook
    return as_text(values)


def parameters(identity_text: str) -> dict[str, Any]:
    """Flat dictionary of an identity: parameters and options, without a hook."""
    values = json.loads(identity_text)
    if not isinstance(values, dict):
        raise TypeError(f"no configuration: {identity_text}")
    values.pop("pre_hook", None)
    return values


def list_hash(identities: Iterable[str], *also: object) -> str:
    """Name of a set of configurations, whatever their order."""
    text = json.dumps([sorted(identities), [str(part) for part in also]])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def check_config(config: Any, what: str) -> None:
    """Refuses what is no `triton.Config`, nor passes for one.

    Raises:
        UsageError: It is something else.
    """
    if hasattr(config, "kwargs") and hasattr(config, "all_kwargs"):
        return
    written = '{"BLOCK_SIZE_M": 64, …}, num_warps=4'
    if isinstance(config, Mapping):
        values = ", ".join(f'"{name}": {value!r}' for name, value in config.items() if name not in CONFIG_OPTIONS)
        written = ", ".join(["{" + values + "}", *(f"{name}={config[name]!r}" for name in CONFIG_OPTIONS if name in config)])
    raise UsageError(what, config, "a triton.Config", f"write triton.Config({written})")


def expand(configs: Any) -> Sequence[Any]:
    """The configurations of a list, or of a space: parameter → values.

    Raises:
        UsageError: The space is empty or too large, or something in the list is no configuration.
    """
    if not isinstance(configs, Mapping):
        if configs is not None and not isinstance(configs, Iterable):
            raise UsageError("configs", configs, 'a list of triton.Config, or a space: {"BLOCK_SIZE_M": [64, 128], …}')
        # The list itself: whoever changes it later changes the kernel's, as with triton.autotune.
        listed = configs if isinstance(configs, (list, tuple)) else list(configs or ())
        for config in listed:
            check_config(config, "configs: not a configuration")
        return listed
    from triton import Config

    columns: dict[str, Sequence[Any]] = {
        name: list(values) if isinstance(values, (list, tuple, set, range)) else [values] for name, values in configs.items()
    }
    count = math.prod(map(len, columns.values()))
    if not 0 < count <= MAX_SPACE:
        raise UsageError("configs: the space has an unusable number of configurations", count, f"1 to {MAX_SPACE}")
    expanded = []
    for values in itertools.product(*columns.values()):
        flat = dict(zip(columns, values, strict=True))
        options = {name: flat.pop(name) for name in CONFIG_OPTIONS if name in flat}
        expanded.append(Config(flat, **options))
    return expanded


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    return f"{type(value).__name__}:{value}"
