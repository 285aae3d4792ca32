"""A board's power limit, simulated: the clock falls with the energy that is drawn above it, and recovers with rest."""

from __future__ import annotations

from dataclasses import dataclass

STEP_S = 0.001


@dataclass(slots=True, kw_only=True)
class PowerLimit:
    """See the module.

    Attributes:
        cap_w: Power that the board may draw for long.
        burst_j: Energy above it that passes before the clock has fallen to what is sustained.
        idle_w: Power at rest; what does not depend on the clock.
        excess_j: Energy above the limit that was drawn and has not been made up for: from 0 (rested) to `burst_j`.
    """

    cap_w: float
    burst_j: float = 20.0
    idle_w: float = 100.0
    excess_j: float = 0.0

    def sustained(self, draw_w: float) -> float:
        """The share of the clock that is held for ever by what draws `draw_w` at the full clock; power goes by the clock's cube."""
        return 1.0 if draw_w <= self.cap_w else ((self.cap_w - self.idle_w) / (draw_w - self.idle_w)) ** (1 / 3)

    def run(self, draw_w: float, seconds: float) -> float:
        """Runs for so long what draws `draw_w` at the full clock; the mean share of the clock meanwhile, at most 1."""
        total, steps = 0.0, max(1, round(seconds / STEP_S))
        for _ in range(steps):
            share = 1 - (1 - self.sustained(draw_w)) * self.excess_j / self.burst_j
            total += share
            self._add(self.idle_w + (draw_w - self.idle_w) * share**3 - self.cap_w, seconds / steps)
        return total / steps

    def rest(self, seconds: float) -> None:
        """Runs nothing for so long."""
        self._add(self.idle_w - self.cap_w, seconds)

    def _add(self, excess_w: float, seconds: float) -> None:
        self.excess_j = min(max(self.excess_j + excess_w * seconds, 0.0), self.burst_j)
