"""Taking over what another tuner found for the same kernel, key and GPU: Triton's own cache, or triton-dejavu's."""

from __future__ import annotations

from advisor.autotuning import internals, lookup
from advisor.autotuning.decisions import foreign
from advisor.autotuning.decisions.foreign import ForeignTiming
from advisor.autotuning.gpu_names import gpu_model
from advisor.autotuning.situation import Situation
from advisor.system.settings import read_settings


def adopt(situation: Situation) -> bool:
    """Takes over what Triton or triton-dejavu found for this kernel, key and GPU; whether that settles the decision."""
    cache, problem, call = situation.cache, situation.problem, situation.call
    timings = _imported(situation)
    if not timings and situation.device.runs:
        timings = _on_this_machine(situation)
    timings = [timing for timing in timings if timing.row.config in call.identities]
    if not timings:
        return False
    # Others time the hooks as part of the launch: what they found best is, but their latencies are none to compare ours with.
    unlike = ("not-measured", "measured") if situation.tuner.leaves_hooks_out else ("not-measured",)
    rows = [timing.row for timing in timings if timing.row.state not in unlike]
    cache.record_all(problem.id, rows, replace_existing=False)
    best = [timing.row.config for timing in timings if timing.best]
    if not best:
        return False
    cache.decide(problem.id, situation.list_name, best[0], "imported")
    lookup.look_again()
    return True


def _imported(situation: Situation) -> list[ForeignTiming]:
    """Timings that `advisor cache import` read of a kernel known by name only."""
    cache, problem = situation.cache, situation.problem
    by_name = foreign.by_name(problem.kernel, problem.gpu, problem.key).id
    best, _ = cache.decision(by_name, [""]) or (None, "")
    rows = cache.rows(by_name).values()
    return [ForeignTiming(kernel=problem.kernel, key=problem.key, gpu=problem.gpu, row=row, best=row.config == best) for row in rows]


def _on_this_machine(situation: Situation) -> list[ForeignTiming]:
    """Timings from the first file of another tuner's cache that knows the problem."""
    problem, dejavu = situation.problem, read_settings().dejavu_storage
    own = internals.triton_timings_file(situation.tuner.fn, situation.key, situation.call.configs)
    for file in ([own] if own else []) + (foreign.dejavu_files(dejavu, problem.kernel) if dejavu else []):
        try:
            read = foreign.read_foreign(file, foreign.read_json(file))
        except Exception:  # a damaged file of somebody else's is no reason to stop
            continue
        if foreign.dejavu_triton_version(file) not in (None, internals.triton_version()):
            continue
        timings = [
            each
            for each in read
            if each.kernel == problem.kernel
            and (file == own or each.key == problem.key)
            and (each.gpu is None or gpu_model(each.gpu) == problem.gpu)
        ]
        if timings:
            return timings
    return []
