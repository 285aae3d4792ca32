"""`Tunable`: a kernel with its configurations, hooks and options, as choosing among them sees it; it decides and launches nothing."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import AutotunerError

from advisor.autotuning import internals, source
from advisor.autotuning.decisions import cache as caches
from advisor.autotuning.decisions import keys
from advisor.autotuning.outputs import Tolerance
from advisor.autotuning.recognise import ProblemHint
from advisor.system.errors import UsageError
from advisor.system.settings import Mode

log = logging.getLogger("advisor.autotune")
_serials = itertools.count()


def new_serial() -> int:
    """Number of a kernel object in this process; unlike id(), never used again."""
    return next(_serials)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `advisor.autotune` beyond those of `triton.autotune`; documented there."""

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

    def __deepcopy__(self, memo: dict[int, Any]) -> Options:
        """Nothing of them changes, and a copy of a kernel keeps its timings in the same cache."""
        return self


class Tunable(Autotuner):
    """See the module. The constructor's arguments are those of `triton.runtime.Autotuner`, and `options`."""

    def __init__(
        self,
        fn: Any,
        arg_names: Sequence[str],
        configs: Any,
        key: Sequence[str],
        reset_to_zero: Any = None,
        restore_value: Any = None,
        pre_hook: Any = None,
        post_hook: Any = None,
        prune_configs_by: Any = None,
        warmup: Any = None,
        rep: Any = None,
        use_cuda_graph: bool = False,
        do_bench: Any = None,
        cache_results: bool | None = None,
        *,
        options: Options | None = None,
    ) -> None:
        super().__init__(
            fn,
            arg_names,
            configs,
            key,
            reset_to_zero,
            restore_value,
            pre_hook=pre_hook,
            post_hook=post_hook,
            prune_configs_by=prune_configs_by,
            warmup=warmup,
            rep=rep,
            use_cuda_graph=use_cuda_graph,
            do_bench=do_bench,
            cache_results=bool(cache_results),
        )
        self.options = options or Options(cache_results=cache_results)
        self.nargs: Any = None
        self.serial = new_serial()
        self._said: set[str] = set()
        self._source: tuple[str | None] | None = None
        self._warn_of_unknown_names()
        self._own_hooks()

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Any]:
        """`prune_configs_by`, as Triton 3.9 has it (3.6 counts a fraction of the list before pruning, and may leave none).

        Raises:
            AutotunerError: `early_config_prune` leaves none.
            TypeError: `top_k` is neither a count nor a fraction.
            UsageError: It counts none.
        """
        named = self.nargs if self.nargs is not None else {}  # of whoever asks without a call
        pruned = self.configs
        if self.early_config_prune:
            pruned = self.early_config_prune(self.configs, named, **kwargs)
            if not pruned:
                raise AutotunerError("No valid autotuner configs after pruning. `early_config_prune` should return at least one config.")
        if self.perf_model:
            count = self.configs_top_k
            if isinstance(count, float) and count <= 1.0:
                count = max(1, int(len(pruned) * count))
            elif not isinstance(count, int):
                raise TypeError("Error while pruning configs, top_k must be either 1) a float <= 1.0 or 2) an int")
            if count < 1:
                raise UsageError('prune_configs_by: "top_k" leaves no configuration', count, "a positive count, or a fraction up to 1.0")
            if len(pruned) > count:
                model = self.perf_model
                # By place: two configurations may be equal, and an estimate need not be hashable.
                estimated = [model(**named, **kwargs, **config.all_kwargs()) for config in pruned]
                pruned = [pruned[i] for i in sorted(range(len(pruned)), key=estimated.__getitem__)[:count]]
        return list(pruned)

    @property
    def has_hooks(self) -> bool:
        """Whether something runs around the kernel while it is measured, and only then."""
        return bool(self.user_defined_pre_hook or self.user_defined_post_hook or self.reset_to_zero or self.restore_value)

    @property
    def leaves_hooks_out(self) -> bool:
        """Whether what is timed is the launch without them: within a CUDA graph nothing tells them apart, and they count."""
        return self.has_hooks and not self.use_cuda_graph and self.stand_in is None

    @property
    def times_itself(self) -> bool:
        """Whether the driver's benchmark measures, and no other that was asked for."""
        return self._do_bench is None

    @property
    def stand_in(self) -> Callable[..., Any] | None:
        """The `_bench` of a subclass, or one that was assigned, in place of triton.autotune's: it measures then, hooks and all."""
        bench = self._bench
        return None if getattr(bench, "__func__", None) is Autotuner._bench else bench

    @property
    def do_bench(self) -> Callable[..., Any]:
        """The function that times a launch, as triton.autotune has it: another one that is assigned takes effect."""
        return self._do_bench if self._do_bench is not None else internals.active_driver().get_benchmarker()

    @do_bench.setter
    def do_bench(self, value: Callable[..., Any]) -> None:
        self._do_bench = value

    def benchmark(self) -> Callable[..., Any]:
        """`do_bench`, or in the interpreter of a machine without a GPU the clock of one run."""
        if self.times_itself and internals.is_interpreted() and internals.active_driver() is None:
            return internals.one_run
        return self.do_bench

    def source_hash(self) -> str | None:
        """Hash of the kernel's source and dependencies, and of the heuristics below this tuner; computed once."""
        if self._source is None:
            function = internals.jitted(self.fn)
            digest = source.source_hash(function) if hasattr(function, "fn") else None
            self._source = (source.with_heuristics(digest, internals.heuristics_below(self.fn)) if digest else None,)
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

    def _warn_of_unknown_names(self) -> None:
        """Triton 3.9 raises for those of its own; earlier versions tune once and never again, which is worth a word.

        Raises:
            UsageError: `outputs` names no argument.
        """
        for parameter, names in (("key", self.keys), ("reset_to_zero", self.reset_to_zero), ("restore_value", self.restore_value)):
            unknown = [name for name in names if name not in self.arg_names]
            if unknown:
                log.warning(
                    "%s: %s contains names that are not kernel arguments: %s",
                    getattr(self.base_fn, "__name__", "kernel"),
                    parameter,
                    ", ".join(unknown),
                )
        # Unlike those, it is no argument of triton.autotune; and a check that compares nothing would pass everything.
        unknown = [name for name in self.options.outputs or () if name not in self.arg_names]
        if unknown:
            raise UsageError(
                "outputs= names no argument of the kernel",
                ", ".join(map(str, unknown)),
                f"among {', '.join(self.arg_names)}",
                "correct the name",
            )

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
