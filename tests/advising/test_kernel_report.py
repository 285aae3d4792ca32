"""Fourteen launches of the kinds that public libraries make, counted by hand: FLOP, bytes, and advice on each.

Bytes are those that each tensor has. FLOP of products are 2 for each pair; besides, per element: an exponential takes the product with
log2(e), a quotient two beside the reciprocal, a sum one addition; what a product of matrices adds to is added by it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from advisor.advising.kernel_report import _best, _near, _with_ceiling, advise_compiled
from advisor.compiled.analysis import SOURCE
from advisor.compiled.compiler.kernel import Target
from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.launch_options import LaunchOptions, one_launch
from advisor.compiled.launches.target import open_kernel
from advisor.diagnosis import actions
from advisor.gpus.hardware import load_gpu
from advisor.result.schema import Configuration, Finding, Latency, LaunchReport
from advisor.system.resources import phrase
from tests.compiled.shared_pool import POOL
from tests.rendering import factory

H100 = load_gpu("H100")
FILE = Path(__file__).resolve().parents[1] / "data" / "hand_counted.py"
GATHER = Path(__file__).resolve().parents[2] / "reports" / "examples" / "gather_rows.py"
SHUFFLED = random.Random(0).sample(range(200_000), 200_000)
BF16, FP32 = 2, 4


@dataclass(frozen=True, kw_only=True)
class Counted:
    """A launch, and what was counted: FLOP of products, other FLOP, bytes read and written."""

    kernel: str
    grid: str
    read: int
    written: int
    products: int = 0
    other: int = 0
    types: str = "bf16"
    sizes: dict[str, int] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    warps: int = 4
    contents: dict[str, Any] = field(default_factory=dict)

    def asked(self) -> LaunchOptions:
        typed = {"signature": self.types} if "=" in self.types else {"element": self.types}
        return LaunchOptions(
            grid=self.grid,
            constexprs=self.constants,
            arguments=self.sizes,
            options={"num_warps": self.warps},
            contents=self.contents,
            **typed,
        )  # type: ignore[arg-type]


def typed(**types: str) -> str:
    return ",".join(f"{name}=*{kind}" for name, kind in types.items())


SCORES, ROWS = 64 * 8 * 16 * 4096, 64 * 8 * 16  # of decode: each query against each key, and queries
PAIRS, QUERIES = 64 * 1024**2, 64 * 1024  # of prefill
LOWER = 64 * 128**2 * 8 * 9 // 2  # pairs in the blocks on and below the diagonal
SOFTMAX = 4  # scale, less the greatest, times log2(e), summed
LAUNCHES = {
    "decode": Counted(
        kernel="decode",
        grid="64,8",
        constants={"HEADS": 8, "GROUP": 16, "D": 128, "BLOCK": 64},
        sizes={"length": 4096},
        products=2 * 2 * SCORES * 128,
        other=SCORES * (SOFTMAX + 128 // 64),  # the sums so far are scaled once a block
        read=(ROWS * 128 + 2 * 64 * 4096 * 8 * 128) * BF16,
        written=ROWS * 128 * BF16,
    ),
    "prefill": Counted(
        kernel="prefill",
        grid="cdiv(length, BLOCK_M),64",
        constants={"D": 128, "CAUSAL": False, "BLOCK_M": 128, "BLOCK_N": 64},
        sizes={"length": 1024},
        products=2 * 2 * PAIRS * 128,
        other=PAIRS * (SOFTMAX + 128 // 64) + 2 * QUERIES * 128,  # which are divided by their sums
        read=3 * QUERIES * 128 * BF16,
        written=QUERIES * 128 * BF16,
    ),
    "prefill, causal": Counted(
        kernel="prefill",
        grid="cdiv(length, BLOCK_M),64",
        constants={"D": 128, "CAUSAL": True, "BLOCK_M": 128, "BLOCK_N": 64},
        sizes={"length": 1024},
        products=2 * 2 * LOWER * 128,
        other=LOWER * (SOFTMAX + 128 // 64) + 2 * QUERIES * 128,
        read=3 * QUERIES * 128 * BF16,
        written=QUERIES * 128 * BF16,
    ),
    "scan": Counted(
        kernel="scan",
        grid="cdiv(width, BLOCK_C),8",
        types="fp32",
        constants={"BLOCK_T": 64, "BLOCK_C": 64},
        sizes={"length": 4096, "width": 2048},
        other=3 * 8 * 4096 * 2048,  # within a block, to what came before it, and for what comes behind
        read=8 * 4096 * 2048 * FP32,
        written=8 * 4096 * 2048 * FP32,
    ),
    "int4 experts": Counted(
        kernel="int4_experts",
        grid="8,cdiv(N, BLOCK_N)",
        types=typed(a_ptr="bf16", b_ptr="u8", s_ptr="bf16", c_ptr="bf16", expert_ptr="i32"),
        constants={"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP": 128},
        sizes={"N": 4096, "K": 4096},
        contents={"expert_ptr": [0, 0, 1, 2, 5, 5, 6, 7]},
        products=2 * 8 * 16 * 4096**2,
        other=2 * 8 * 4096**2,  # less 8, times the scale, in each block of rows
        read=8 * 16 * 4096 * BF16 + 6 * (4096 * 4096 // 2 + 4096 // 128 * 4096 * BF16) + 8 * 4,  # six experts are in use
        written=8 * 16 * 4096 * BF16,
    ),
    "layer norm, backward": Counted(
        kernel="layer_norm_backward",
        grid="128",
        warps=8,
        types=typed(
            x_ptr="bf16", dy_ptr="bf16", w_ptr="bf16", mean_ptr="fp32", rstd_ptr="fp32", dx_ptr="bf16", dw_ptr="fp32", db_ptr="fp32"
        ),
        constants={"WIDTH": 4096, "ROWS": 64},
        other=13 * 8192 * 4096,  # 2 for unit, 1 for weighed, 3 for the sums, 4 for dx, 2 for dw, 1 for db
        read=2 * 8192 * 4096 * BF16 + 4096 * BF16 + 2 * 8192 * FP32,
        written=8192 * 4096 * BF16 + 2 * 128 * 4096 * FP32,
    ),
    "top-k": Counted(
        kernel="top_k",
        grid="16384",
        types="fp32",
        constants={"WIDTH": 128, "K": 8},
        read=16384 * 128 * FP32,
        written=16384 * 8 * FP32,
    ),
    "rotary": Counted(
        kernel="rotary",
        grid="8192",
        constants={"HEADS": 32, "HALF": 64},
        other=6 * 8192 * 32 * 64,
        read=8192 * 32 * 128 * BF16 + 2 * 8192 * 64 * BF16,
        written=8192 * 32 * 128 * BF16,
    ),
    "linear attention, states of chunks": Counted(
        kernel="chunk_states",
        grid="cdiv(V, BLOCK_V),128",
        types=typed(k_ptr="bf16", v_ptr="bf16", g_ptr="fp32", h_ptr="bf16"),
        constants={"K": 128, "V": 128, "BLOCK_T": 64, "BLOCK_V": 64},
        sizes={"length": 4096},
        products=2 * 128 * 4096 * 128 * 128,
        other=128 * 64 * 128 * 128,  # the decay
        read=2 * 128 * 4096 * 128 * BF16 + 128 * 64 * FP32,
        written=128 * 64 * 128 * 128 * BF16,
    ),
    "linear attention, outputs": Counted(
        kernel="chunk_outputs",
        grid="cdiv(V, BLOCK_V),length // BLOCK_T,128",
        constants={"K": 128, "V": 128, "BLOCK_T": 64, "BLOCK_V": 64},
        sizes={"length": 4096},
        products=2 * 128 * 4096 * (128 * 128 + 2 * 64 * 128 + 64 * 128),  # scores once for each of the two blocks of V
        read=(3 * 128 * 4096 * 128 + 128 * 64 * 128 * 128) * BF16,
        written=128 * 4096 * 128 * BF16,
    ),
    "state-space update": Counted(
        kernel="state_update",
        grid="cdiv(D, BLOCK_D),128,80",
        types=typed(state_ptr="fp32", x_ptr="bf16", dt_ptr="fp32", a_ptr="fp32", b_ptr="bf16", c_ptr="bf16", o_ptr="bf16"),
        constants={"HEADS": 80, "D": 64, "STATE": 128, "BLOCK_D": 16},
        other=5 * 128 * 80 * 64 * 128,
        read=128 * 80 * 64 * (128 * FP32 + BF16) + 128 * 80 * FP32 + 80 * FP32 + 2 * 128 * 128 * BF16,
        written=128 * 80 * 64 * (128 * FP32 + BF16),
    ),
    "state passing": Counted(
        kernel="state_passing",
        grid="cdiv(width, BLOCK),640",
        types="fp32",
        constants={"CHUNKS": 64, "BLOCK": 256},
        sizes={"width": 8192},
        other=2 * 640 * 64 * 8192,
        read=640 * 64 * 8192 * FP32 + 640 * 64 * FP32,
        written=640 * 64 * 8192 * FP32,
    ),
    "RMS norm": Counted(
        kernel="rms_norm",
        grid="8192",
        warps=8,
        constants={"WIDTH": 4096},
        other=4 * 8192 * 4096,
        read=(8192 + 1) * 4096 * BF16,
        written=8192 * 4096 * BF16,
    ),
    "softmax": Counted(
        kernel="softmax",
        grid="4096",
        warps=16,
        constants={"WIDTH": 8192},
        other=4 * 4096 * 8192,
        read=4096 * 8192 * BF16,
        written=4096 * 8192 * BF16,
    ),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_work_is_what_is_counted_by_hand(name: str) -> None:
    """Other FLOP within 3 %: a few for each row or program were left out."""
    launch = LAUNCHES[name]
    demand = inspect_launch(
        one_launch(*open_kernel(f"{FILE}::{launch.kernel}"), launch.asked(), H100), Target.of(H100), POOL, sass=False
    ).demand
    assert not demand.unknown and demand.total_tensor_flop == launch.products
    assert demand.fma_flop == pytest.approx(launch.other, rel=0.03)
    assert sum(demand.likely_read_footprints.values()) == pytest.approx(launch.read, rel=1e-3)
    assert sum(demand.likely_written_footprints.values()) == pytest.approx(launch.written, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCHES)
def test_each_gets_advice_from_what_was_tried(name: str) -> None:
    launch = LAUNCHES[name]
    result = advise_compiled(f"{FILE}::{launch.kernel}", H100, cache="cold", command="", launch_options=launch.asked(), try_s=12.0)
    (report,), (search,) = result.launches, result.searches
    assert len(search.trials) >= 2
    nothing = any("none is predicted to be faster" in text for text in result.verdict.unknowns)
    assert (report.recommendation is None) == nothing and (report.findings or report.recommendation or nothing)
    assert report.predicted is not None and report.bound.us <= report.predicted.us


@pytest.mark.parametrize(
    ("contents", "key", "other"),
    [({"index_ptr": SHUFFLED}, "sampled", "uncertain"), ({}, "uncertain", "sampled")],
    ids=["all is given", "an index is not"],
)
def test_work_that_only_a_sample_leaves_open_is_not_called_a_matter_of_data(contents: dict[str, list[int]], key: str, other: str) -> None:
    """The grid is large, so a sample of its programs is counted, whose rows say nothing certain of all."""
    options = LaunchOptions(
        grid="200000",
        constexprs={"D": 4096},
        arguments={"stride_x": 4096},
        signature=typed(x_ptr="bf16", index_ptr="i64", y_ptr="bf16"),
        contents=contents,
    )
    result = advise_compiled(f"{GATHER}::gather_rows", H100, cache="cold", command="", launch_options=options, try_s=0)
    assert phrase(f"note.{key}") in result.verdict.notes and phrase(f"note.{other}") not in result.verdict.notes


def _of_warps(warps: int, us: float, *saving_us: float) -> LaunchReport:
    """A launch with so many warps, and a finding of too small programs where something is saved."""
    small = [Finding(rule="small-programs", severity="warning", title="s", evidence="e", remedy="r", saving_us=us, scope="kernel")]
    found = [replace(small[0], saving_us=us) for us in saving_us]
    return replace(
        factory.launch(64),
        id=str(warps),
        configuration=Configuration(parameters={}, num_warps=warps),
        predicted=Latency(us=us, origin="predicted", source="m"),
        recommendation=None,
        findings=tuple(found),
        passed_rules=() if found else ("small-programs",),
    )


@pytest.mark.parametrize("now", [(), (100.0,)], ids=["found only then", "found already"])
def test_rules_are_judged_in_the_recommended_configuration(now: tuple[float, ...]) -> None:
    """What the recommended configuration still suffers from is an action beside it, with what both take; no rule is said to have passed."""
    report = _with_ceiling(_of_warps(8, 800.0, *now), _of_warps(2, 240.0, 110.0), 2, 1.05)
    assert report.recommendation is not None and [item.rule for item in report.findings] == ["small-programs"]
    assert not report.passed_rules
    assert "130.0 µs" in report.findings[0].remedy
    assert report.findings[0].title == ("s" if now else "With the recommended change: s")
    assert [action.rule for action in actions([report])] == [None, "small-programs"]


def test_what_the_recommended_configuration_cures_is_said_to_be_cured() -> None:
    report = _with_ceiling(_of_warps(8, 800.0, 100.0), _of_warps(2, 240.0), 2, 1.05)
    (action,) = actions([report])
    assert action.rule is None and action.detail.endswith(" Then this costs too little to count: s.")


def test_configurations_as_good_as_the_best_are_named_by_what_they_differ_in_the_fastest_first() -> None:
    best, *others = (_of_warps(warps, us) for warps, us in ((8, 100.0), (2, 104.0), (16, 101.0), (32, 103.5), (4, 102.0), (1, 110.0)))
    which = "num_warps=16, or num_warps=4, or num_warps=32, and 1 more"
    assert _near(best, (best, *others)) == f"4 others are within 5 % of the best, too near to tell apart: the same with {which}"
    assert _near(best, (best, others[-1])) == "No other is within 5 % of the best"


def test_two_changes_together_are_never_slower_than_one_alone() -> None:
    """A cure that alone takes less than with the recommended configuration says so, and that configuration that it is instead of it."""
    report = _with_ceiling(_of_warps(4, 400.0, 225.0), _of_warps(16, 258.0, 61.0), 2, 1.05)
    told = report.findings[0].remedy
    assert report.recommendation is not None and report.recommendation.reason.endswith(phrase("remedy.instead"))
    assert "175.0 µs" in told and "197.0 µs" in told and "ogether" not in told
    assert actions([report])[0].rule == "small-programs"


@pytest.mark.parametrize(("source", "us", "changes"), [(SOURCE, 90.0, False), (SOURCE, 75.0, True), ("learned", 90.0, True)])
def test_of_the_analytical_model_a_change_is_likely_to_win_or_not_recommended(source: str, us: float, changes: bool) -> None:
    """Of configurations that it holds 11 % apart too many are as fast: what runs is kept, and the page says what is not sure enough."""
    now, best = (replace(item, predicted=replace(item.predicted, source=source)) for item in (_of_warps(8, 100.0), _of_warps(2, us)))
    report = _with_ceiling(now, best, 2, 1.05)
    assert (report.recommendation is not None) == changes and report.ceiling is not None and report.ceiling.us == us
    assert report.kept is None if changes else report.kept is not None and "predicted to save 10 %, 23 % needed" in report.kept


@pytest.mark.parametrize(("launched", "chosen"), [(8, "1"), (2, "2")], ids=["fewest", "what runs"])
def test_fewer_warps_win_a_tie(launched: int, chosen: str) -> None:
    tied = [_of_warps(8, 800.0), _of_warps(2, 240.0), _of_warps(1, 240.1)]
    assert _best(tied, Configuration(parameters={}, num_warps=launched), 1.01).id == chosen
