"""Measuring the configurations of one call, shared with every process that tunes the same: claims, hooks, limits, failures, and whether a
configuration writes what the first one wrote.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from advisor.autotuning import internals, watching
from advisor.autotuning.decisions.cache import EXTEND_EVERY_S, LEASE_S, Cache, Row
from advisor.autotuning.decisions.decision import left_out
from advisor.autotuning.tunable import Tolerance, Tunable
from advisor.system.processes import repeating

if TYPE_CHECKING:
    from advisor.search.contest import Reading, Verdict

QUANTILES = (0.5, 0.2, 0.8)
POLL_S = (0.005, 0.2)
"""How often a process looks whether another has finished what it waits for: from often to rarely."""

QUICK_S = 0.05
"""What is measured in less is written down, and shared with other processes, together: writing it singly would take longer."""
MOST_AT_ONCE = 64
SAY_AFTER_S = 2.0
"""How long a process waits for others in silence."""


def _quantiles(result: Any) -> tuple[float, float, float]:
    """The three quantiles in a benchmark's return value, which may be one number."""
    values = [float(value) for value in result] if isinstance(result, (list, tuple)) else [float(result)]
    median, low, high = values[:3] if len(values) >= 3 else values[:1] * 3
    return median, low, high


@dataclass(kw_only=True)
class Call:
    """One call of a tuned kernel."""

    args: tuple
    kwargs: dict[str, Any]  # grid and warmup included
    named: Mapping[str, Any]  # every argument by name
    identities: list[str]  # of `configs`
    configs: list[Any]

    def launches(self, places: Iterable[int]) -> list[tuple[tuple, dict[str, Any]]]:
        """Positional and keyword arguments of the launches of configurations."""
        kwargs = {name: value for name, value in self.kwargs.items() if name != "warmup"}
        return [(self.args, {**kwargs, **self.configs[place].all_kwargs()}) for place in places]


@dataclass(kw_only=True)
class Session:
    """The measurements of one decision. `rows` is by place in `call.configs`; failures that may pass are in it, not in the cache."""

    tuner: Tunable
    call: Call
    cache: Cache
    problem: str
    predicted_us: Mapping[int, float]
    rows: dict[int, Row] = field(default_factory=dict)
    errors: dict[int, Exception] = field(default_factory=dict)
    raw: dict[int, Any] = field(default_factory=dict)  # what do_bench returned
    measurements: int = 0
    outputs: Outputs | None = None
    prints: bool = field(default_factory=internals.prints)
    event: Callable[[], Any] | None = field(default_factory=internals.event_maker)
    clock: Callable[[], float | None] = field(default_factory=internals.clock_reader)
    together: frozenset[int] = frozenset()  # what was measured in the same rounds
    clocks_mhz: dict[int, tuple[float, float]] = field(default_factory=dict)  # lowest and highest, of what this process measured
    likely: Sequence[int] = ()  # what may be asked for next, and is compiled along where cores have nothing else to do

    def refresh(self, problem: str | None = None) -> None:
        """Takes over what the cache knows, of this problem unless of another."""
        known = self.cache.rows(problem or self.problem)
        for place, identity in enumerate(self.call.identities):
            row = known.get(identity)
            if row is not None:
                self.rows[place] = row

    def measure(self, places: Sequence[int]) -> None:
        """Resolves the configurations at `places`: measured here, by another process, or left out.

        Raises:
            Exception: A fault after which nothing runs in this process any more.
        """
        self.refresh()
        waiting = [place for place in places if place not in self.rows]
        if not waiting:
            return
        delay, idle_since = POLL_S[0], time.monotonic()
        names = self.call.identities
        place_of = {names[place]: place for place in waiting}
        # As many at once as are compiled at once; one by one where nothing is compiled, so that processes share evenly. More where that
        # takes no time worth sharing.
        size = least = internals.workers() if self._compiles else 1
        with repeating(lambda: self.cache.extend(self.problem), EXTEND_EVERY_S):
            while waiting:
                claimed = self.cache.claim_some(self.problem, [names[place] for place in waiting], size)
                started = time.monotonic()
                if claimed:
                    self._measure_claimed([place_of[name] for name in claimed], ahead=size == least)
                    delay, idle_since = POLL_S[0], time.monotonic()
                    quick = idle_since - started < QUICK_S and not self.errors  # it had been compiled before
                    size = max(size, min(4 * size, MOST_AT_ONCE)) if quick else least
                else:
                    if started - idle_since > SAY_AFTER_S:
                        self._say_waiting(len(waiting))
                    time.sleep(delay)
                    delay = min(2 * delay, POLL_S[1])
                    self.refresh()
                waiting = [place for place in waiting if place not in self.rows]

    def _say_waiting(self, count: int) -> None:
        self.tuner.say_once(
            "waiting",
            f"{getattr(self.tuner.base_fn, '__name__', 'kernel')}: waiting for another process that measures {count} of its configurations "
            f"({self.cache.path}); one that ended without a word is given up after {LEASE_S:g} s",
        )

    @property
    def _compiles(self) -> bool:
        return self.tuner.options.compile_ahead and not internals.is_interpreted() and internals.active_driver() is not None

    def _measure_claimed(self, places: Sequence[int], *, ahead: bool) -> None:
        open_claims = set(places)
        unwritten: list[Row] = []
        try:
            failed = self._compile(places) if ahead else {}
            since = time.monotonic()
            for place in places:
                row, lasting = self._row(place, failed.get(place))
                self.rows[place] = row
                if lasting:
                    unwritten.append(row)
                    open_claims.remove(place)
                fatal = self.errors.get(place)
                if fatal is not None and left_out(fatal, "launch").fatal:
                    raise fatal
                if unwritten and time.monotonic() - since > QUICK_S:
                    self.cache.record_all(self.problem, unwritten)
                    unwritten, since = [], time.monotonic()
        finally:
            if unwritten:
                self.cache.record_all(self.problem, unwritten)
            for place in open_claims:
                self.cache.release(self.problem, self.call.identities[place])

    def _row(self, place: int, compile_error: Exception | None) -> tuple[Row, bool]:
        """The row of one configuration, and whether the cache keeps it."""
        config, identity = self.call.configs[place], self.call.identities[place]
        predicted = self.predicted_us.get(place)
        if self.prints:
            print(f"Autotuning kernel {self.tuner.base_fn.__name__} with config {config}")
        try:
            # A hook of the user's is promised to see every failure: there the launch fails once more, with its hooks around it.
            if compile_error is not None and not self.tuner.user_defined_post_hook:
                raise compile_error
            if self.tuner.options.tolerance is not None:
                self._check_output(place)
            median, low, high = self._bench(place, config)
            if (clock := self.clock()) is not None:
                self.clocks_mhz[place] = (clock, clock)
        except Exception as error:
            why = left_out(error, "compile" if error is compile_error else "launch")
            self.errors[place] = error
            if self.prints:
                print(f"Autotuning failed with {error}")
            row = Row(identity, why.state, predicted_us=predicted, reason=why.reason, at=time.time())
            return row, why.lasting
        if not all(map(math.isfinite, (median, low, high))) or median < 0:
            reason = f"the benchmark gave {median}"
            return Row(config=identity, state="crash", predicted_us=predicted, reason=reason, at=time.time()), False
        self.measurements += 1
        return Row(
            config=identity, state="measured", us=1e3 * median, low_us=1e3 * low, high_us=1e3 * high, predicted_us=predicted, at=time.time()
        ), True

    # ------------------------------------------------------------------------------------------------------------ rounds

    @contextlib.contextmanager
    def alone(self, name: str, is_decided: Callable[[], bool]) -> Iterator[bool]:
        """Whether this process is to tell apart what was measured, for the list of that name: no other does, and none has decided."""
        claim, delay = f"rounds of {name}", POLL_S[0]
        while True:
            ours = bool(self.cache.claim_some(self.problem, [claim], 1))
            if ours or is_decided() or claim in self.cache.rows(self.problem):  # the last: processes died of it, time and again
                break
            time.sleep(delay)
            delay = min(2 * delay, POLL_S[1])
        try:
            with repeating(lambda: self.cache.extend(self.problem), EXTEND_EVERY_S):
                yield ours and not is_decided()
        finally:
            if ours:
                self.cache.release(self.problem, claim)

    def against(self, default: int, best: int) -> None:
        """Measures the default and the choice alternately, so that the default's row says by how much it is slower in the same rounds.

        Raises:
            Exception: A fault after which nothing runs in this process any more.
        """
        from advisor.search.contest import contest

        if default == best or {default, best} <= self.together:
            return
        self.measure([default])
        if self.rows[default].state != "measured" or not self.rows[best].us:
            return
        first = {place: reading for place in (best, default) if (reading := self._again(place)) is not None}
        if len(first) == 2 and all(reading.us > 0 for reading in first.values()):
            judged = contest(first, self._again).us
            ratio = judged[default] / judged[best] if len(judged) == 2 else first[default].us / first[best].us
            self.rows[default] = self.rows[default]._replace(us=ratio * (self.rows[best].us or 0.0))
            self.cache.record_all(self.problem, [self.rows[default]])

    def _again(self, place: int) -> Reading | None:
        """One measurement more of a configuration; None where it fails."""
        from advisor.search.contest import Reading

        raw = self.raw.get(place)
        try:
            median, *_ = self._bench(place, self.call.configs[place])
        except Exception as error:
            if left_out(error, "launch").fatal:
                raise
            return None
        finally:
            if raw is not None:
                self.raw[place] = raw  # as triton.autotune tells its listener: the first
        self.measurements += 1
        return Reading(us=1e3 * median, clock_mhz=self.clock()) if math.isfinite(median) and median > 0 else None

    def rounds(self) -> Verdict:
        """Measures what lies near the best again, alternately, until it is told apart; at most as often as was measured before.

        Raises:
            Exception: A fault after which nothing runs in this process any more.
        """
        from advisor.search.contest import EQUAL, Reading, contest

        measured_here = [place for place in self.raw if self.rows[place].state == "measured"]
        measured_elsewhere = [place for place, row in self.rows.items() if row.state == "measured" and place not in self.raw]
        clock = lambda place: self.clocks_mhz.get(place, (None, None))[0]  # noqa: E731
        first = {place: Reading(us=self.rows[place].us or 0.0, clock_mhz=clock(place)) for place in (*measured_elsewhere, *measured_here)}

        usable = all(reading.us > 0 for reading in first.values())  # a stand-in may give zeros
        judged = contest(first if usable else {}, self._again, most=len(measured_here), equal=max(EQUAL, self.tuner.options.noise))
        self.clocks_mhz |= judged.clocks_mhz
        self.together = frozenset(judged.us)
        if judged.measurements or judged.judged == "rested":
            for place, us in judged.us.items():
                row, ratio = self.rows[place], us / (self.rows[place].us or us)
                low, high = (None if bound is None else bound * ratio for bound in (row.low_us, row.high_us))
                self.rows[place] = row._replace(us=us, low_us=low, high_us=high)
            self.cache.record_all(self.problem, [self.rows[place] for place in judged.us])
        return judged

    # -------------------------------------------------------------------------------------------------------- one kernel

    def _launcher(self, config: Any, look: Callable[[], None] | None = None) -> Callable[[], None]:
        """One run with the hooks around it, as `triton.autotune` measures it; `look` sees what it wrote before they restore it."""
        tuner, call = self.tuner, self.call
        current = {**call.kwargs, **config.all_kwargs()}
        full = {**tuner.nargs, **current}

        def kernel_call() -> None:
            if config.pre_hook:
                config.pre_hook(full)
            tuner.pre_hook(full)
            try:
                tuner.fn.run(*call.args, **current)
                if look is not None:
                    look()
            except Exception as error:
                try:
                    tuner.post_hook(full, exception=error)
                finally:
                    raise
            tuner.post_hook(full, exception=None)

        return kernel_call

    def _bench(self, place: int, config: Any) -> tuple[float, float, float]:
        """Median, 20 % and 80 % quantile in milliseconds, of the launch with the hooks around it."""
        if self.tuner.stand_in is not None:
            self.raw[place] = result = self.tuner.stand_in(*self.call.args, config=config, **self.call.kwargs)
            return _quantiles(result)
        run = self._launcher(config)
        limit = self.tuner.options.time_limit_s
        runs = 0

        def limited() -> None:
            nonlocal runs
            runs += 1
            # The first run may compile, and is watched; the second is timed. A benchmark that captures a graph cannot be interrupted.
            if runs > 2 or limit is None or internals.is_capturing():
                return run()
            if runs == 2:
                self._wait(place)
            start = time.perf_counter()
            run()
            self._wait(place)
            taken = time.perf_counter() - start
            if runs == 2 and taken > limit:
                remedy = "raise time_limit_s=, and let `advisor cache prune --kernel` forget what was left out"
                raise watching.TooSlowError("one run takes too long: left out", f"{taken:.3g} s", f"at most {limit:g} s", remedy)
            return None

        row = self.rows.get(place)
        expected = row.us if row is not None and row.us else self.predicted_us.get(place)
        self.raw[place] = result = self.tuner.benchmark(expected)(limited, quantiles=QUANTILES)
        return _quantiles(result)

    def _wait(self, place: int) -> None:
        """Waits for what was launched; a kernel that never ends becomes an error."""
        what = lambda: f"{self.tuner.base_fn.__name__} with {self.call.configs[place]}"  # noqa: E731
        watching.wait(self.tuner.options.time_limit_s, self.event, what)

    def _check_output(self, place: int) -> None:
        """Runs it once and compares with the first configuration (which is run first, where it has not been)."""
        tuner, options = self.tuner, self.tuner.options
        if self.outputs is None:
            assert options.tolerance is not None
            tensors = tensors_of(self.call.named, options.outputs or [*tuner.restore_value, *tuner.reset_to_zero] or None)
            overwritten = {*(options.outputs or ())} & tensors.keys() - {*tuner.restore_value, *tuner.reset_to_zero}
            self.outputs = Outputs(tensors, options.tolerance, overwritten)
            failed = ""
            for first in range(len(self.call.configs)):
                try:  # the first that runs at all is what the others are compared with
                    self._run_and(first, self.outputs.keep)
                    break
                except watching.NeverEndsError:
                    raise
                except Exception as error:  # what else it says is found out when it is measured itself
                    if left_out(error, "launch").fatal:
                        raise
                    failed = left_out(error, "launch").reason
            self._warn_of_a_blind_check(failed)
        if self.outputs.wanted is not None:
            self._run_and(place, self.outputs.compare)

    def _warn_of_a_blind_check(self, failed: str) -> None:
        """A check that can find nothing must not pass for one that found nothing."""
        assert self.outputs is not None
        compared, why = ", ".join(self.outputs.tensors), ""
        if not compared:
            named = f" {', '.join(self.tuner.options.outputs)}" if self.tuner.options.outputs else ""
            why = f"compares nothing: no tensor is among the arguments{named}"
        elif self.outputs.wanted is None:
            why = f"compares nothing: no configuration ran to compare with ({failed})"
        elif not self.outputs.written:
            why = f"sees no change in {compared}: name the tensors it writes with outputs="
        if why:
            self.tuner.say_once("check", f"{getattr(self.tuner.base_fn, '__name__', 'kernel')}: check_output {why}")

    def _run_and(self, place: int, look: Callable[[], None]) -> None:
        """Runs a configuration once, looks at what it wrote before any hook restores it, and restores it.

        What timing another configuration left in the outputs must not pass for what this one wrote: they are prepared first.
        """
        assert self.outputs is not None

        def waited() -> None:
            self._wait(place)
            look()

        self.outputs.prepare()
        try:
            self._launcher(self.call.configs[place], waited)()
        finally:
            self.outputs.restore()

    def _compile(self, places: Sequence[int]) -> dict[int, Exception]:
        """Compiles several configurations at once; and on cores that have nothing to do what is likely to be asked for next."""
        if not self._compiles:
            return {}
        workers = internals.workers()
        along = [place for place in self.likely if place not in self.rows and place not in places] if len(places) < workers else []
        likely = (*places, *along[: 2 * workers - len(places)])
        chosen = [place for place in likely if self.call.configs[place].pre_hook is None]  # a hook may change what is compiled
        if len(chosen) < 2:
            return {}
        failed = internals.compile_ahead(self.tuner.fn, self.call.launches(chosen), min(len(chosen), workers))
        return {place: error for place, error in zip(chosen, failed, strict=True) if error is not None}


class Outputs:
    """Holds the tensors a kernel may write: as they were before, as every compared run finds them, and as the first one left them.

    A configuration that leaves elements unwritten is found out only where they do not hold the right values already: what the user names
    as output alone is filled with NaN (integers: the least there is) before each run.

    Args:
        tensors: By argument name.
        tolerance: Relative, and absolute as a share of the root mean square.
        overwritten: Names of those that the kernel writes and does not read.
    """

    def __init__(self, tensors: Mapping[str, Any], tolerance: Tolerance, overwritten: Collection[str] = ()) -> None:
        from advisor.measurement.launch import poison

        self.tensors = {name: tensor.data for name, tensor in tensors.items()}  # without autograd, which counts every change
        self.tolerance = tolerance
        self.before = {name: tensor.clone() for name, tensor in self.tensors.items()}
        self.start = dict(self.before)
        for name in overwritten:
            if re.match(r"torch\.(b?float|u?int)", str(self.tensors[name].dtype)):  # of others, no value is always wrong
                self.start[name] = self.tensors[name].clone()
                poison(self.start[name])
        self.wanted: dict[str, Any] | None = None
        self.written = False  # whether the first configuration was seen to write anything

    def prepare(self) -> None:
        """Put the tensors into the state that every compared run starts from."""
        self._set(self.start)

    def restore(self) -> None:
        """Back to what was there before."""
        self._set(self.before)

    def _set(self, values: Mapping[str, Any]) -> None:
        for name, tensor in self.tensors.items():
            tensor.copy_(values[name])

    def keep(self) -> None:
        """Take the present output as right."""
        from advisor.measurement.launch import WrongOutputError

        self.wanted = {name: tensor.clone() for name, tensor in self.tensors.items()}
        try:
            self._compare(self.start, (0.0, 0.0))
        except WrongOutputError:
            self.written = True

    def compare(self) -> None:
        """Compares what is there now.

        Raises:
            WrongOutputError: It is not what the first configuration wrote.
        """
        assert self.wanted is not None
        self._compare(self.wanted, self.tolerance)

    def _compare(self, wanted: Mapping[str, Any], tolerance: Tolerance) -> None:
        from advisor.measurement.launch import compare

        for name, tensor in self.tensors.items():
            relative, absolute = tolerance if tensor.dtype.is_floating_point else (0.0, 0.0)
            compare(tensor, wanted[name], relative, absolute, f"{name}, against what the first configuration wrote")


def tensors_of(named: Mapping[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    """The tensors among the arguments, or those of them that are named; none that was expanded, for it cannot be set."""
    return {
        name: value
        for name, value in named.items()
        if (names is None or name in names)
        and all(hasattr(value, method) for method in ("clone", "copy_", "numel", "stride"))
        and all(step or size < 2 for step, size in zip(value.stride(), value.shape, strict=True))
    }
