"""`Tuner`: a `triton.runtime.Autotuner` whose choosing is ours and whose decided calls cost little.

It is a subclass, so that whatever asks `isinstance(kernel, Autotuner)` (torch.compile, inspection tools) goes on working.

A decided call reads its key with a generated function and looks it up in one dictionary; everything else is behind that.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import AutotunerError

from advisor.autotuning import cache as caches
from advisor.autotuning import choosing, internals, keys, source
from advisor.autotuning.decision import Decision
from advisor.autotuning.outputs import Tolerance
from advisor.autotuning.recognise import ProblemHint
from advisor.errors import UsageError
from advisor.settings import Mode

log = logging.getLogger("advisor.autotune")
_serials = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `advisor.autotune` takes beyond `triton.autotune`; documented there."""

    mode: Mode = "measure"
    top_k: int = 8
    key_buckets: Mapping[str, keys.Bucket] = field(default_factory=dict)
    family: str | None = None
    problem: ProblemHint | None = None
    tolerance: Tolerance | None = None
    outputs: Sequence[str] | None = None
    default: Any = None  # triton.Config
    distributed: bool = False
    noise: float = 0.005
    time_limit_s: float | None = 10.0
    compile_ahead: bool = True
    cache_results: bool | None = None
    cache: caches.Cache | None = None


class Decided(dict):
    """Key → configuration, as `kernel.cache` of triton.autotune; whoever changes it makes every call look at it again."""

    def __init__(self, forget: Callable[[], None]) -> None:
        super().__init__()
        self._forget = forget

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self._forget()

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        self._forget()

    def clear(self) -> None:
        super().clear()
        self._forget()

    def pop(self, *args: Any) -> Any:
        value = super().pop(*args)
        self._forget()
        return value

    def popitem(self) -> tuple[Any, Any]:
        item = super().popitem()
        self._forget()
        return item

    def update(self, *args: Any, **kwargs: Any) -> None:
        super().update(*args, **kwargs)
        self._forget()


class Tuner(Autotuner):
    """See the module. The constructor's arguments are those of `triton.runtime.Autotuner`, and `options`."""

    def __init__(
        self, fn: Any, arg_names: Sequence[str], configs: Any, key: Sequence[str], reset_to_zero: Any = None, restore_value: Any = None,
        pre_hook: Any = None, post_hook: Any = None, prune_configs_by: Any = None, warmup: Any = None, rep: Any = None,
        use_cuda_graph: bool = False, do_bench: Any = None, cache_results: bool | None = None, *, options: Options | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            fn, arg_names, configs, key, reset_to_zero, restore_value, pre_hook=pre_hook, post_hook=post_hook,
            prune_configs_by=prune_configs_by, warmup=warmup, rep=rep, use_cuda_graph=use_cuda_graph, do_bench=do_bench,
            cache_results=bool(cache_results),
        )  # fmt: skip
        self.options = options or Options(cache_results=cache_results)
        self.nargs: Any = None
        self.serial = next(_serials)  # of this process; unlike id(), never used again
        self.decision: Decision | None = None
        self.decisions: dict[tuple, Decision] = {}
        self.configs_timings: dict[Any, Any] = {}
        self._warn_of_unknown_names()
        self._own_hooks()
        self._buckets = keys.bucket_functions(self.options.key_buckets, self.keys)
        self._lock = threading.RLock()
        self._said: set[str] = set()
        self._source: tuple[str | None] | None = None
        self._always: frozenset[str] | None = None  # arguments that had a dtype in every call
        self._sometimes: frozenset[str] = frozenset()
        # What reads a call's key, and fast key → (configuration, its options as keywords, its hook): changed together only.
        self._hot: tuple[Callable[..., Any], dict[Any, tuple[Any, dict[str, Any], Any]]] = (self._reader(frozenset(), None), {})
        self.cache = {}

    # ------------------------------------------------------------------------------------------------------ a call

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """`kernel[grid]`: a function that launches."""

        def launch(*args: Any, **kwargs: Any) -> Any:
            try:
                read_key, fast = self._hot
                found = fast[read_key(*args, **kwargs)]
            except (KeyError, AttributeError, TypeError):  # of another kind, or wrong: then the kernel says so
                found = None
            if found is None:  # after the handler: what is raised there would seem to come of the lookup
                return self._slow(args, {"grid": grid, "warmup": False, **kwargs})
            self.best_config, options, hook = found
            if hook is not None:
                hook({**dict(zip(self.arg_names, args, strict=False)), "grid": grid, "warmup": False, **kwargs, **options})
            return self.fn.run(*args, grid=grid, warmup=False, **kwargs, **options)

        return launch

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """A launch; the grid is among the keywords."""
        try:
            read_key, fast = self._hot
            found = fast[read_key(*args, **kwargs)]
        except (KeyError, AttributeError, TypeError):
            found = None
        if found is None:
            return self._slow(args, kwargs)
        self.best_config, options, hook = found
        if hook is not None:
            hook({**dict(zip(self.arg_names, args, strict=False)), **kwargs, **options})
        return self.fn.run(*args, **kwargs, **options)

    def _slow(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A launch that must be looked at."""
        if kwargs.get("warmup"):
            compiled = self.warmup(*args, **{name: value for name, value in kwargs.items() if name != "warmup"})
            return compiled[0] if compiled else None
        internals.need_driver(self.base_fn)
        self.best_config, options, hook = self._decide(args, kwargs)
        if hook is not None:
            hook({**dict(zip(self.arg_names, args, strict=False)), **kwargs, **options})
        with internals.loading_while_capturing():
            return self.fn.run(*args, **kwargs, **options)

    def decide(self, *args: Any, **kwargs: Any) -> Decision:
        """The decision for a call, made now if it has not been; nothing is launched beyond what is measured.

        Raises:
            UsageError: The grid is not among the keywords.
            NoDriverError: Something has to be measured, and there is no GPU.
        """
        if kwargs.get("grid") is None:
            raise UsageError("decide: the call has no grid", None, "grid= among its keywords", "e.g. kernel.decide(x, n, grid=(64,))")
        self._decide(args, {"warmup": False, **kwargs})
        assert self.decision is not None
        return self.decision

    def _decide(self, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any], Any]:
        """The slow path: known under Triton's key, or chosen now."""
        with self._lock:
            several = internals.has_several_models()
            named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
            key = keys.slow_key(named, self.arg_names, self.keys, self._buckets) if len(self.configs) > 1 else ()
            if several:
                key = (*key, internals.current_device().name)
            config = self.cache.get(key)
            if config is None:
                with internals.bound_arguments(self, args):
                    decision, told = choosing.choose(self, args, kwargs, key)
                self.decision = decision
                config = decision.config
                if not decision.provisional:
                    self.decisions[key] = decision
                    if len(self.configs) > 1:
                        self.cache[key] = config
                self._tell(decision, told)
                if decision.provisional:
                    return config, config.all_kwargs(), config.pre_hook
            else:
                self.decision = self.decisions.get(key, self.decision)
            found = (config, config.all_kwargs(), config.pre_hook)
            self._remember(args, kwargs, named, found, internals.device_index if several else None)
            return found

    def _remember(self, args: tuple, kwargs: dict[str, Any], named: dict[str, Any], found: Any, device: Any) -> None:
        """Puts a decision where the next call of the kind finds it; a call of a new kind makes a new reader."""
        now = keys.dtype_names(named, self.arg_names)
        always = now if self._always is None else self._always & now
        sometimes = ((self._always or frozenset()) | self._sometimes | now) - always
        if (always, sometimes) != (self._always, self._sometimes):
            self._always, self._sometimes = always, sometimes
            self._hot = (self._reader(always, device), {})
        read_key, fast = self._hot
        with contextlib.suppress(TypeError):  # an argument is given twice: the kernel itself says so
            fast[read_key(*args, **kwargs)] = found

    def _forget(self) -> None:
        if hasattr(self, "_hot"):  # Triton's constructor sets the cache before ours is done
            self._hot = (self._hot[0], {})

    def _tell(self, decision: Decision, told: Mapping[Any, Any]) -> None:
        """Triton's attributes, its listener and its line on the terminal."""
        if decision.how in ("only", "off"):
            return
        self.configs_timings = dict(told)
        measured = decision.how == "measured"
        self.bench_time = decision.duration_s or 0.0
        tell = internals.listener()
        if tell is not None:
            tell(
                fn=internals.jitted(self.fn), key=decision.key, best_config=decision.config, configs_timings=self.configs_timings,
                duration=decision.duration_s if measured else None, cache_hit=decision.how in ("cached", "imported"),
            )  # fmt: skip
        if internals.prints() and measured:
            print(f"Triton autotuning for function {self.base_fn.__name__},\nwith key as {decision.key},\n"
                  f"finished after {self.bench_time:.2f}s,\nbest config selected: {decision.config};")  # fmt: skip

    @property
    def cache(self) -> Decided:
        """Key → configuration, as triton.autotune has it: clearing, changing or replacing it takes effect."""
        return self._decided

    @cache.setter
    def cache(self, value: Mapping[Any, Any]) -> None:
        self._decided = Decided(self._forget)
        dict.update(self._decided, value)
        self._forget()

    @property
    def configs(self) -> list[Any]:
        """The configurations, as triton.autotune has them: another list takes effect at the next call."""
        return self._configs

    @configs.setter
    def configs(self, value: list[Any]) -> None:
        self._configs = value
        if hasattr(self, "_hot"):  # how a key is read depends on them, too
            self._always, self._sometimes = None, frozenset()
            self._hot = (self._reader(frozenset(), None), {})

    # --------------------------------------------------------------------------------------------- what choosing asks for

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Any]:
        """`prune_configs_by`, as Triton 3.9 has it (3.6 counts a fraction of the list before pruning, and may leave none).

        Raises:
            AutotunerError: `early_config_prune` leaves none.
            TypeError: `top_k` is neither a count nor a fraction.
        """
        assert self.nargs is not None
        pruned = self.configs
        if self.early_config_prune:
            pruned = self.early_config_prune(self.configs, self.nargs, **kwargs)
            if not pruned:
                raise AutotunerError(
                    "No valid autotuner configs after pruning. `early_config_prune` should return at least one config."
                )
        if self.perf_model:
            count = self.configs_top_k
            if isinstance(count, float) and count <= 1.0:
                count = max(1, int(len(pruned) * count))
            elif not isinstance(count, int):
                raise TypeError("Error while pruning configs, top_k must be either 1) a float <= 1.0 or 2) an int")
            if len(pruned) > count:
                model = self.perf_model
                # By place: two configurations may be equal, and an estimate need not be hashable.
                estimated = [model(**self.nargs, **kwargs, **config.all_kwargs()) for config in pruned]
                pruned = [pruned[i] for i in sorted(range(len(pruned)), key=estimated.__getitem__)[:count]]
        return list(pruned)

    @property
    def has_hooks(self) -> bool:
        """Whether something runs around the kernel while it is measured, and only then."""
        return bool(self.user_defined_pre_hook or self.user_defined_post_hook or self.reset_to_zero or self.restore_value)

    @property
    def leaves_hooks_out(self) -> bool:
        """Whether what is timed is the launch without them: within a CUDA graph nothing tells them apart, and they count."""
        return self.has_hooks and not self.use_cuda_graph

    @property
    def times_itself(self) -> bool:
        """Whether the driver's benchmark measures, and no other that was asked for."""
        return self._do_bench is None

    def source_hash(self) -> str | None:
        """Hash of the kernel's source and dependencies, computed once."""
        if self._source is None:
            function = internals.jitted(self.fn)
            self._source = (source.source_hash(function) if hasattr(function, "fn") else None,)
        return self._source[0]

    def default_cache(self) -> caches.Cache:
        """The cache that the environment names."""
        return caches.default_cache()

    def say_once(self, topic: str, message: str) -> None:
        """A warning, once per kernel and topic."""
        if topic not in self._said:
            self._said.add(topic)
            log.warning("%s", message)

    # --------------------------------------------------------------------------------------------------------- set-up

    def _reader(self, always: frozenset[str], device: Callable[[], Any] | None) -> Callable[..., Any]:
        if len(self.configs) == 1:
            return keys.fast_reader((), (), {}, frozenset(), frozenset())
        settled = set(self.arg_names).intersection(*(config.kwargs for config in self.configs))
        named = [name for name in self.keys if name in self.arg_names]
        return keys.fast_reader(self.arg_names, named, self._buckets, frozenset(settled), always, self._sometimes, device)

    def _warn_of_unknown_names(self) -> None:
        """Triton 3.9 raises for those of its own; earlier versions tune once and never again, which is worth a word.

        Raises:
            UsageError: `outputs` names no argument.
        """
        for parameter, names in (("key", self.keys), ("reset_to_zero", self.reset_to_zero), ("restore_value", self.restore_value)):
            unknown = [name for name in names if name not in self.arg_names]
            if unknown:
                log.warning("%s: %s contains names that are not kernel arguments: %s", getattr(self.base_fn, "__name__", "kernel"),
                            parameter, ", ".join(unknown))  # fmt: skip
        # Unlike those, it is no argument of triton.autotune; and a check that compares nothing would pass everything.
        unknown = [name for name in self.options.outputs or () if name not in self.arg_names]
        if unknown:
            raise UsageError("outputs= names no argument of the kernel", ", ".join(map(str, unknown)), f"among {', '.join(self.arg_names)}",
                             "correct the name")  # fmt: skip

    def _own_hooks(self) -> None:
        """The default hooks of Triton 3.9, which leave arguments that are None alone, for every version."""
        self.restore_copies: dict[str, Any] = {}
        if not self.user_defined_pre_hook and (self.reset_to_zero or self.restore_value):
            self.pre_hook = self._reset_and_keep
        if not self.user_defined_post_hook and self.restore_value:
            self.post_hook = self._restore

    def _reset_and_keep(self, kwargs: dict[str, Any], reset_only: bool = False) -> None:
        for name in self.reset_to_zero:
            if kwargs.get(name) is not None:
                kwargs[name].zero_()
        if not reset_only:
            self.restore_copies = {name: kwargs[name].clone() for name in self.restore_value if kwargs.get(name) is not None}

    def _restore(self, kwargs: dict[str, Any], exception: Exception | None = None) -> None:
        for name, value in self.restore_copies.items():
            kwargs[name].copy_(value)
        self.restore_copies = {}

