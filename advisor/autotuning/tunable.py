"""`Tunable`: a kernel with its configurations, hooks and options, as choosing among them sees it; it decides and launches nothing."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton.runtime.autotuner import Autotuner

from advisor.autotuning import internals, keys
from advisor.autotuning.decisions import cache as caches
from advisor.autotuning.ranking import ProblemHint
from advisor.system.errors import UsageError
from advisor.system.settings import Mode

log = logging.getLogger("advisor.autotune")
_serials = itertools.count()
Tolerance = tuple[float, float]
"""Relative to each element, and absolute as a share of the root mean square of its row or of the output, whichever is larger."""


def new_serial() -> int:
    """Number of a kernel object in this process; unlike id(), never used again."""
    return next(_serials)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `advisor.autotune` beyond those of `triton.autotune`; documented there."""

    mode: Mode = "measure"
    top_k: int | None = None
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
        self.foreseen = False  # whether what other keys ask for was compiled as far as cores had nothing else to do
        self._said: set[str] = set()
        self._source: tuple[str | None] | None = None
        # A check that compares nothing would pass everything.
        if unknown := [name for name in self.options.outputs or () if name not in self.arg_names]:
            limit = f"among {', '.join(self.arg_names)}"
            raise UsageError("outputs= names no argument of the kernel", ", ".join(map(str, unknown)), limit, "correct the name")

    says_what_it_won = False
    """Whether the default is measured against each choice, in the same rounds, as `advisor run` does to say what was won."""

    @property
    def has_hooks(self) -> bool:
        """Whether something runs around the kernel while it is measured, and only then."""
        return bool(self.user_defined_pre_hook or self.user_defined_post_hook or self.reset_to_zero or self.restore_value)

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

    def benchmark(self, expected_us: float | None = None) -> Callable[..., Any]:
        """`do_bench`; the driver's for a shorter time; in the interpreter of a machine without a GPU the clock of one run.

        Args:
            expected_us: Microseconds that one run is expected to take, where that is known.
        """
        if self._do_bench is not None:
            return self._do_bench
        if internals.is_interpreted() and internals.active_driver() is None:
            return internals.one_run
        return internals.shortened(self.do_bench, expected_us)

    def source_hash(self) -> str | None:
        """Hash of the kernel's source and dependencies, and of the heuristics below this tuner; computed once."""
        if self._source is None:
            function = internals.jitted(self.fn)
            digest = keys.source_hash(function) if hasattr(function, "fn") else None
            self._source = (keys.with_heuristics(digest, internals.heuristics_below(self.fn)) if digest else None,)
        return self._source[0]

    def default_cache(self) -> caches.Cache:
        """The cache that the environment names."""
        return caches.default_cache()

    def say_once(self, topic: str, message: str) -> None:
        """A warning, once per kernel and topic."""
        if topic not in self._said:
            self._said.add(topic)
            log.warning("%s", message)
