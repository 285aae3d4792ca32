"""How well the findings agree with exhaustive sweeps (prints, asserts nothing about quality)."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.diagnosis import diagnose

from .launches import launch, tile

pytestmark = [pytest.mark.bench, pytest.mark.slow]

_BLOCKS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")


def test_findings_against_sweeps(data_dir: Path) -> None:
    """Share of near-optimal launches that are blamed, and whether savings tell slow defaults from good ones."""
    import pandas
    from sklearn.metrics import roc_auc_score

    from advisor.result.schema import Problem

    def largest_saving(row: object, prefix: str) -> float:
        sizes = {name: int(getattr(row, name)) for name in ("M", "E", "topk", "H", "N")}
        problem = Problem(family="fused_moe", op="w13", sizes=sizes)
        values = [int(getattr(row, prefix + name)) for name in _BLOCKS]
        context = launch(problem, tile(*values), str(getattr(row, "gpu")))  # noqa: B009
        return max((f.saving_us / context.current_us for f in diagnose(context).findings if f.saving_us), default=0.0)

    near = pandas.read_csv(data_dir / "fused_moe_near_optimal.csv.gz").sample(500, random_state=1)
    blamed = pandas.Series([largest_saving(row, "") for row in near.itertuples()])
    print(f"\nwithin 1 % of the best: {(blamed > 0).mean():.1%} blamed, {(blamed >= 0.1).mean():.1%} for a tenth or more")

    defaults = pandas.read_csv(data_dir / "fused_moe_sweep_summary.csv.gz").dropna(subset=["default_us"])
    saving = pandas.Series([largest_saving(row, "default_") for row in defaults.itertuples()])
    slowdown = (defaults.default_us / defaults.best_us).reset_index(drop=True)
    for limit in (1.1, 1.2, 1.5):
        slow = slowdown >= limit
        print(
            f"default {limit} x the best or slower ({slow.mean():.0%} of {len(slow)}): AUC {roc_auc_score(slow, saving):.3f}, "
            f"{(saving[slow] > 0).mean():.0%} blamed"
        )
