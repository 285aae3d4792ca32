"""What two versions of a kernel choose among, where an autotuner's list changed: what is new in it, and the best of either."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import prod

from advisor.comparison.kernels.attempts import Attempt, Compiling, Run, compiled_pair
from advisor.comparison.kernels.kernel_version import KernelVersion, list_alike
from advisor.comparison.kernels.one_launch import POINTERS
from advisor.comparison.kernels.time_verdict import guessed_code
from advisor.comparison.settings import KernelSettings
from advisor.compiled.compiler.kernel import IrError
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.demand import Counted
from advisor.compiled.launches.launch import inspection_of
from advisor.compiled.launches.provenance import named
from advisor.gpus.hardware import GpuSpec
from advisor.learned.compiled_launch import analysed_alike
from advisor.result.schema import Configuration
from advisor.system.resources import phrase

MOST_ADDED = 3
"""Configurations new to a list that are compiled beside those that both versions are compared with."""
NARROWEST = 2
"""Times less shared memory that operands take where they are of 8 bits and not of the 16 that are guessed."""
MOST_LISTED = 6
"""Configurations of a list that are all compiled, for the best of them."""


def best_of_lists(
    old: KernelVersion | None,
    new: KernelVersion | None,
    run: Run,
    gpu: GpuSpec,
    settings: KernelSettings,
    workers: Pool,
    threads: ThreadPoolExecutor,
    compiling: Compiling,
) -> Run | None:
    """With the configuration of each version's own list that is predicted to be the fastest of those that can launch; None: the lists are
    alike, cannot be read or are pruned, one is long, or the time of one of them is not known."""
    if old is None or new is None or old.function.autotune is None or new.function.autotune is None:
        return None
    if list_alike(old, new) or old.function.autotune.prunes or new.function.autotune.prunes:
        return None
    listed = [(version, item) for version in (old, new) for item in version.configurations]
    longest = max(len(old.configurations), len(new.configurations))
    readable = not (old.unread or new.unread) and old.configurations and new.configurations
    if not readable or longest > MOST_LISTED or compiling.spent(len(listed)):
        return None
    compiling.left -= len(listed)
    futures = [
        threads.submit(
            compiled_pair,
            old if version is old else None,
            new if version is new else None,
            replace(run, configuration=item, former=None),
            gpu,
            settings,
            workers,
            {},
        )
        for version, item in listed
    ]
    attempts = [future.result()[version is new] for (version, _), future in zip(listed, futures, strict=True)]
    launchable = [attempt.resources is None or attempt.resources.resident_ctas_per_sm != 0 for attempt in attempts]
    runs = [(*item, attempt) for item, attempt, can in zip(listed, attempts, launchable, strict=True) if can]
    times = _times_us([attempt for *_, attempt in runs], gpu, compiling.counted)
    sides = [[(us, item) for us, (version, item, _) in zip(times, runs, strict=False) if version is side] for side in (old, new)]
    if not all(sides):
        return None
    base, head = (min(side, key=lambda timed: timed[0])[1] for side in sides)
    return replace(run, former=base, configuration=head)


def _times_us(attempts: Sequence[Attempt], gpu: GpuSpec, counted: Counted) -> list[float]:
    """What each is predicted to take; nothing where one of them is not known."""
    inspections = []
    for attempt in attempts:
        if attempt.launch is None or attempt.launch.grid is None or attempt.compiled is None or attempt.guess is None:
            return []
        inspections.append(inspection_of(attempt.launch, attempt.compiled, attempt.guess, counted=counted))
    try:
        latencies = [item.predicted for item in analysed_alike(inspections, gpu)[0]]
    except (IrError, ArithmeticError, ValueError, KeyError, IndexError):
        return []
    return [item.us for item in latencies if item is not None] if None not in latencies else []


def of_added(
    old: KernelVersion | None,
    new: KernelVersion | None,
    runs: Sequence[tuple[Run, list[GpuSpec]]],
    settings: KernelSettings,
    workers: Pool,
    threads: ThreadPoolExecutor,
    compiling: Compiling,
    *,
    same: bool,
) -> list[str]:
    """What is certain of configurations of the autotuner's list, beside the one that both versions are compared with: of those that came
    to it, the first `MOST_ADDED`, that they cannot launch, or spill; of the largest of the others that it cannot launch any more, where
    the kernel changed (not `same`)."""
    if old is None or new is None or not (old.configurations and new.configurations) or new.function.autotune is None:
        return []
    former = {configuration.label() for configuration in old.configurations}
    added = [configuration for configuration in new.configurations if configuration.label() not in former][:MOST_ADDED]
    kept = [configuration for configuration in new.configurations if configuration.label() in former]
    listed = [*added, *([max(kept, key=_size)] if kept and not same else [])]
    attempts = []
    for run, group in runs:
        for configuration in (item for item in listed if item != run.configuration and not compiling.spent(1)):
            versions = (None if configuration in added else old, new)
            compiling.left -= 1
            alone = replace(run, configuration=configuration, former=None)
            attempts.append(
                (configuration.label(), group, threads.submit(compiled_pair, *versions, alone, group[0], settings, workers, {}))
            )
    notes = []
    for label, group, future in attempts:
        base, head = future.result()
        held, devices = head.resources, ", ".join(gpu.name for gpu in group)
        could = base.resources is not None and base.resources.resident_ctas_per_sm != 0
        if held is not None and held.resident_ctas_per_sm == 0 and (label not in former or could):
            notes += passed_over(label, head, group, anew=label in former)
        elif label not in former and held is not None and held.spill_bytes:
            guesses = named(guessed_code(head))
            which = f"{label}, {guesses} guessed," if guesses else label
            notes.append(phrase("answer.added_spills", configuration=which, gpus=devices, spills=f"{held.spill_bytes:,}"))
    return notes


def _size(configuration: Configuration) -> int:
    """How much a CTA works on at a time, about: blocks and stages."""
    blocks = [value for value in configuration.parameters.values() if type(value) is int and value > 0]
    return prod(blocks) * (configuration.num_stages or 1)


def passed_over(configuration: str, attempt: Attempt, gpus: Sequence[GpuSpec], *, anew: bool = False) -> list[str]:
    """That an autotuner skips a configuration of which no CTA fits an SM, and how much it lacks; nothing where types are guessed of
    which narrower ones would fit, but where it fits the base with the same ones (`anew`)."""
    held, largest = attempt.resources, max(gpu.smem_bytes_per_cta for gpu in gpus)
    needed = (held.shared_memory_bytes if held is not None else 0) or 0
    guessed = not anew and any(str(kind).startswith(POINTERS) for kind in attempt.invented.values())
    if guessed and largest < needed <= NARROWEST * largest:
        return []
    note = phrase(
        "answer.passed_over_for_memory" if needed > largest else "answer.passed_over",
        configuration=configuration,
        gpus=", ".join(gpu.name for gpu in gpus),
        needed=f"{needed / 1024:.0f}",
        most=f"{largest / 1024:.0f}",
    )
    return [f"Now {note[0].lower()}{note[1:]}" if anew else note]
