"""How long a claim on a configuration stands.

A process claims a configuration by writing its name and a lease beside it. While it measures, it extends its leases
(`system.owners.repeating`). A claim whose process died (seen at once on the same machine) or whose lease ran out may be taken over.
"""

from __future__ import annotations

from advisor.system.owners import is_alive

LEASE_S = 30.0
"""How long a claim stands that is not extended: the longest a stopped process keeps others waiting."""

EXTEND_EVERY_S = 5.0

ATTEMPTS = 3
"""A configuration that so many processes died on is recorded as a crash."""


def may_take_over(owner: str, lease_until: float, now: float) -> bool:
    """Whether a claim no longer stands."""
    return lease_until < now or is_alive(owner) is False
