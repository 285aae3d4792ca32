"""`Tuner`: a `triton.runtime.Autotuner` whose choosing is ours and whose decided calls cost little.

It is a subclass, so that whatever asks `isinstance(kernel, Autotuner)` (torch.compile, inspection tools) goes on working.

A decided call reads its key with a generated function and looks it up in one dictionary; everything else is behind that.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from triton.runtime.autotuner import Autotuner

from advisor.autotuning import choosing, internals, keys
from advisor.autotuning.decisions.decision import Decision
from advisor.autotuning.ranking import MOST
from advisor.autotuning.tunable import Tunable, new_serial
from advisor.system.errors import UsageError
from advisor.system.settings import read_settings

TORCH_READS = "torch._higher_order_ops.triton_kernel_wrap"
"""The module in which torch.compile reads the configurations of a kernel (torch 2.6 to 2.13)."""


class Tuner(Tunable):
    """See the module. The constructor's arguments are those of `Tunable`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.decision: Decision | None = None
        self.decisions: dict[tuple, Decision] = {}
        self.configs_timings: dict[Any, Any] = {}
        self._buckets = keys.bucket_functions(self.options.key_buckets, self.keys)
        self._lock = threading.RLock()
        _all.add(self)

    def _read_anew(self) -> None:
        """Nothing is known of what the keys of calls look like: `_hot` is what reads one, and fast key → (key, configuration)."""
        self._always: frozenset[str] | None = None  # arguments that had a dtype in every call
        self._sometimes: frozenset[str] = frozenset()
        self._hot: tuple[Callable[..., Any], dict[Any, Any]] | None = None  # changed together only

    # ------------------------------------------------------------------------------------------------------ a call

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """A launch; the grid is among the keywords."""
        if Autotuner.run is not _THEIRS and not kwargs.get("warmup"):
            return self._traced(args, kwargs)
        try:
            read_key, fast = self._hot  # type: ignore[misc]
            key, config = fast[read_key(*args, **kwargs)]
            if key is not None and self.cache[key] is not config:  # somebody put another there
                config = None
        except (KeyError, AttributeError, TypeError):  # of another kind, or wrong: then the kernel says so
            config = None
        if config is None:  # after the handler: what is raised there would seem to come of the lookup
            return self._slow(args, kwargs)
        return self._launch(config, args, kwargs)

    def _launch(self, config: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        self.best_config = config
        options = config.all_kwargs()  # of every launch, as triton.autotune: a configuration may be changed in place
        if config.pre_hook is not None:
            config.pre_hook({**dict(zip(self.arg_names, args, strict=False)), **kwargs, **options})
        return self.fn.run(*args, **kwargs, **options)

    def _traced(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A launch while another `run` is put on Triton's class, by a tracing tool: it calls Triton's, which finds what is decided here."""
        internals.need_driver(self.base_fn)
        config = self._decide(args, kwargs)
        key = keys.slow_key({**dict(zip(self.arg_names, args, strict=False)), **kwargs}, self.arg_names, self.keys, {})
        decided = self.cache
        if len(self.configs) > 1 and decided.get(key) != config:
            decided[key] = config
        try:
            return Autotuner.run(self, *args, **kwargs)
        finally:
            if self.decision is not None and self.decision.provisional:  # Triton keeps what we would decide anew
                decided.pop(key, None)

    def _slow(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A launch that must be looked at."""
        if kwargs.get("warmup"):
            compiled = self.warmup(*args, **{name: value for name, value in kwargs.items() if name != "warmup"})
            return compiled[0] if compiled else None
        with self._preparing():
            internals.need_driver(self.base_fn)
        config = self._decide(args, kwargs)
        with internals.loading_while_capturing():
            return self._launch(config, args, kwargs)

    @contextlib.contextmanager
    def _preparing(self) -> Iterator[None]:
        """Loads what ranks while the block runs, where the first call of a kernel that was never tuned starts Triton's driver: for that a C
        compiler runs."""
        if internals.has_started() or internals.is_interpreted() or len(self.configs) == 1:
            yield
            return
        mode = read_settings().mode or self.options.mode
        cache = self.options.cache or self.default_cache()
        if mode not in ("measure", "predict") or cache.knows(getattr(self.base_fn, "__name__", "kernel")):
            yield
            return
        from advisor.autotuning import compiled_ranking

        loading = threading.Thread(target=compiled_ranking.load, name="advisor-loading", daemon=True)
        loading.start()
        try:
            yield
        finally:
            loading.join()

    def warmup(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Compiles every configuration that pruning leaves, as triton.autotune; what pruning reads is no other thread's call."""
        with self._lock, internals.bound_arguments(self, args):
            return [self.fn.warmup(*args, **kwargs, **config.all_kwargs()) for config in self.prune_configs(kwargs)]

    def decide(self, *args: Any, **kwargs: Any) -> Decision:
        """The decision for a call, made now if it has not been; nothing is launched beyond what is measured.

        Raises:
            UsageError: The grid is not among the keywords.
            NoDriverError: Something has to be measured, and there is no GPU.
        """
        if kwargs.get("grid") is None:
            raise UsageError("decide: the call has no grid", None, "grid= among its keywords", "e.g. kernel.decide(x, n, grid=(64,))")
        with self._lock:  # or it is another thread's
            self._decide(args, {"warmup": False, **kwargs})
            assert self.decision is not None
            return self.decision

    def _decide(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The slow path: known under Triton's key, or chosen now."""
        with self._lock:
            named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
            key = keys.slow_key(named, self.arg_names, self.keys, self._buckets) if len(self.configs) > 1 else ()
            known = len(self.configs) > 1 and key in self.cache
            if not known:
                with internals.bound_arguments(self, args):
                    decision, timings = choosing.choose(self, args, kwargs, key)
                self.decision = decision
                config = decision.config
                if not decision.provisional:
                    self.decisions[key] = decision
                    if len(self.configs) > 1:
                        self.cache[key] = config
                self._tell(decision, timings)
                if decision.provisional:
                    return config
            else:
                config = self.cache[key]
                made = self.decisions.get(key)
                if made is None or made.config != config:  # the user put it there
                    made = Decision(config=config, how="cached", reason="kernel.cache holds it", key=key)
                self.decision = made
            self._remember(args, kwargs, named, key, config)
            return config

    def _remember(self, args: tuple, kwargs: dict[str, Any], named: dict[str, Any], key: tuple, config: Any) -> None:
        """Puts a decision where the next call of the kind finds it; a call of a new kind makes a new reader."""
        now = keys.dtype_names(named, self.arg_names)
        always = now if self._always is None else self._always & now
        sometimes = ((self._always or frozenset()) | self._sometimes | now) - always
        if self._hot is None or (always, sometimes) != (self._always, self._sometimes):
            self._always, self._sometimes = always, sometimes
            self._hot = (self._reader(always), {})
        read_key, fast = self._hot
        with contextlib.suppress(TypeError):  # an argument is given twice: the kernel itself says so
            fast[read_key(*args, **kwargs)] = (key or None, config)

    def _reader(self, always: frozenset[str]) -> Callable[..., Any]:
        if len(self.configs) == 1:
            return lambda *args, **kwargs: None
        settled = set(self.arg_names).intersection(*(config.kwargs for config in self.configs))
        return keys.fast_reader(self.arg_names, self.keys, self._buckets, frozenset(settled), always, self._sometimes)

    def _tell(self, decision: Decision, timings: Mapping[Any, Any]) -> None:
        """Triton's attributes, its listener and its line on the terminal."""
        if decision.how in ("only", "off"):
            return
        self.configs_timings = dict(timings)
        measured = decision.how == "measured"
        self.bench_time = decision.duration_s or 0.0
        tell = internals.listener()
        if tell is not None:
            tell(
                fn=internals.jitted(self.fn),
                key=decision.key,
                best_config=decision.config,
                configs_timings=self.configs_timings,
                duration=decision.duration_s if measured else None,
                cache_hit=decision.how in ("cached", "imported"),
            )
        if internals.prints() and measured:
            print(
                f"Triton autotuning for function {self.base_fn.__name__},\nwith key as {decision.key},\n"
                f"finished after {self.bench_time:.2f}s,\nbest config selected: {decision.config};"
            )

    @property
    def configs(self) -> list[Any]:
        """The configurations, as triton.autotune has them: another list takes effect at the next call.

        torch.compile, which tries all that it sees, sees the one that would be chosen, or the first few where the mode measures.
        """
        if sys._getframe(1).f_globals.get("__name__") == TORCH_READS and len(self._configs) > 1:
            return self._for_torch()
        return self._configs

    @configs.setter
    def configs(self, value: list[Any]) -> None:
        self._configs = value
        self._read_anew()

    def _for_torch(self) -> list[Any]:
        """What is decided, then the default and the others as they are given: one of them, or `top_k` where the mode measures.

        torch.compile asks without a call: sizes are not known, so that nothing can be ranked.
        """
        mode = read_settings().mode or self.options.mode
        if mode == "exhaustive":
            return self._configs
        decided = [] if mode == "off" else [decision.config for decision in self.decisions.values()]
        default = [self.options.default] if self.options.default is not None and mode != "measure" else []
        if mode in ("cached", "predict") and not decided:
            remedy = "call the kernel, or advisor.warmup, before it compiles"
            self.say_once("torch", f"{self.base_fn.__name__}: torch.compile gets a configuration that nothing speaks for: {remedy}")
        return list(dict.fromkeys([*decided, *default, *self._configs]))[: (self.options.top_k or MOST) if mode == "measure" else 1]

    # ------------------------------------------------------------------------------------------------------- copies

    def __getstate__(self) -> dict[str, Any]:
        """The state of a copy of this kernel: all but the lock, and what reads its calls."""
        left_out = ("_lock", "_hot", "serial")
        return {name: value for name, value in self.__dict__.items() if name not in left_out} | {"cache": dict(self.cache)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.serial = new_serial()
        self._lock = threading.RLock()
        _all.add(self)
        self._read_anew()


_all: weakref.WeakSet[Tuner] = weakref.WeakSet()


def _after_fork() -> None:
    """In a child there is no thread but this one: what another was deciding when the process forked is decided by nobody here."""
    for tuner in _all:
        if not tuner._lock._is_owned():  # type: ignore[attr-defined]
            tuner._lock, tuner.nargs = threading.RLock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

_THEIRS = Autotuner.run
