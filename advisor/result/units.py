"""Latencies as text: one place, so that no two surfaces differ."""

from __future__ import annotations


def microseconds(us: float) -> str:
    """A latency with the digits that matter: `1,234`, `123.4`, `12.3`, `1.23`, `0.01`.

    >>> microseconds(1234.5), microseconds(12.34), microseconds(0.001)
    ('1,234', '12.3', '0.00')
    """
    size = abs(us)
    if size >= 999.95:
        return f"{us:,.0f}"
    if size >= 9.995:
        return f"{us:.1f}"
    return f"{us:.2f}" if size >= 0.005 else "0.00"  # no latency is known to less than 10 ns
