"""Two launches of one problem against each other, interleaved: did the change help?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from advisor.measurement.devices.device import DeviceSpec, find_device
from advisor.measurement.launch import Batch, Launch, Outcome
from advisor.measurement.scheduler import Limits, Scheduler
from advisor.measurement.statistics import MAX_ROUNDS, MIN_ROUNDS, Comparison, Side, verdict
from advisor.result.schema import Fingerprint
from advisor.system.errors import MeasurementError


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredComparison:
    """A verdict, and what both sides measured."""

    comparison: Comparison
    base: Outcome
    head: Outcome
    fingerprint: Fingerprint


def compare_launches(
    base: Launch,
    head: Launch,
    *,
    device: str | DeviceSpec = "auto",
    seed: int = 0,
    floor: bool = True,
    limits: Limits | None = None,
    scheduler: Scheduler | None = None,
) -> MeasuredComparison:
    """Measures two launches in the same rounds (of two revisions of a kernel, or two configurations) and gives the verdict.

    At least 10 rounds; 30 where 10 do not settle it.

    Args:
        base: What is compared to.
        head: What is judged; of the same problem.
        device: As for `measure`.
        seed: Of inputs and order.
        floor: Measure the A/A floor in the same rounds.
        limits: How long a launch may take.
        scheduler: One that is open already (then `device` and `limits` are its).

    Raises:
        MeasurementError: The problems differ.
        NoGpuError: There is no device to measure on.
    """
    if base.problem != head.problem:
        raise MeasurementError("only launches of one problem can be compared", f"{base.problem.sizes} and {head.problem.sizes}")
    if scheduler is None:
        with Scheduler(find_device(device, look=False), limits=limits) as opened:
            return compare_launches(base, head, seed=seed, floor=floor, scheduler=opened)
    fingerprint = scheduler.description.fingerprint
    batch = Batch(launches=(base, head), rounds=MIN_ROUNDS, max_rounds=MIN_ROUNDS, together=True, seed=seed, floor=floor)
    found = _verdict(scheduler, batch, fingerprint)
    if found.comparison.wants_more_rounds:
        found = _verdict(scheduler, replace(batch, rounds=MAX_ROUNDS, max_rounds=MAX_ROUNDS), fingerprint)
    return found


def _verdict(scheduler: Scheduler, batch: Batch, fingerprint: Fingerprint) -> MeasuredComparison:
    (_, (base, head)) = next(iter(scheduler.run([batch])))
    sides = [Side(rounds=o.rounds, failure=o.failure, fingerprint=fingerprint, session="interleaved") for o in (base, head)]
    return MeasuredComparison(comparison=verdict(sides[0], sides[1], floor=base.noise_floor), base=base, head=head, fingerprint=fingerprint)
