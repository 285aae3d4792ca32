"""`triton.Config` objects: their identity in the cache, and spaces of them."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from advisor.autotuning.keys import code_hash
from advisor.result.schema import LAUNCH_OPTIONS
from advisor.system.errors import UsageError

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
