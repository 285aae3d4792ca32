"""`ceilings/MODEL_CARD.md`, written from an evaluation: what the weights were trained on, how well they do, where not to trust them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.learned.layers import layer_model
from advisor.learned.weights import Weights

TASKS = {"served": "as served", "exact": "known configuration", "best": "best of a sweep"}
"""How people call the tasks of fused MoE; a kind of library kernels is called by its own name."""

LIMITS = (
    "Warps and stages of launches as served were never recorded; the block sizes follow a published rule.",
    "The A40's served rows contain long stretches of throttling (up to five times slower): no model of the launch can tell them.",
    "Only w13 was measured. w2 runs the same kernel and is predicted with the same model, with the interval of a GPU never seen.",
    "Routing was uniform and the cache warm in every published row of fused MoE. Where no launch of it was measured alone, other routings "
    "enter through the physics alone, and a cold cache adds what it adds in the analytical model. Of configured launches those that begin "
    "with a cold cache were measured on an H200 alone.",
    "Launches as served whose few active experts fit a large L2 while all experts do not took up to three times as long as in a sweep, as "
    "if every third had been cold (31 rows of L20, L40, RTX 6000 Ada and RTX PRO 6000 S, M up to 8): they are predicted as warm.",
    "Sizes more than twice beyond those learned are extrapolated (`advise` and `predict` say how many), with wider "
    "intervals that nothing was left out to check; from eight times on the analytical model takes over.",
    "With a known configuration data-centre Blackwell (sm_100, tcgen05) was never measured, AMD in fp16 GEMMs of an MI250X alone: of fused "
    "MoE, attention and fp8 gemm there the analytical model answers, on AMD 3.5 times slower (1.9 to 7.6), as those GEMMs were.",
    "What power limits sustain is reckoned from published rates of large products, one figure per compute capability; small launches in a "
    "burst can be faster (L4: by half).",
    "FP8 gemm was measured on Hopper alone: on Ada and RTX Blackwell the intervals are as wide as the analytical model's. "
    "Those of the H100 and H200 rest on how much they differ from the H800 in fused MoE.",
    "The rank of a configuration outside those that won a published sweep is only physics.",
)


def card(weights: Weights, evaluations: Mapping[str, Mapping[str, Any]], size_bytes: int) -> str:
    """Markdown.

    Args:
        weights: Which.
        evaluations: Title -> figures of `evaluate.cross` or `evaluate.given_split`; the title names the command that prints them.
        size_bytes: Of the weights' file.
    """
    about = weights.about
    lines = [
        "# Model card of the learned weights",
        "",
        f"Weights `{weights.digest()}`, {size_bytes / 1e6:.1f} MB. "
        "Written by `advisor evaluate DATA --weights WEIGHTS --card FILE`: do not edit.",
        "",
        "## Trained on",
        "",
        *(f"- {kind}: {count:,} rows" for kind, count in sorted(about.get("rows", {}).items())),
        f"- GPUs: {', '.join(about.get('gpus', []))}",
        "- MoE models (E, topk, H, N): " + "; ".join(", ".join(map(str, m)) for m in about.get("models", [])),
        f"- files: {', '.join(about.get('files', []))}",
        "- versions: " + ", ".join(f"{n} {v}" for n, v in about.get("versions", {}).items()),
        "",
        "Reproduce: `advisor train DATA DEJAVU -o ceilings/learned.npz` (same rows, same machine: same bits).",
        "",
        "## How well it does",
        "",
    ]
    lines += ["DATA: the folder of measured rows. Errors are shares of the measured latency, bias the mean of log(predicted / measured)."]
    lines += [""]
    for title, figures in evaluations.items():
        lines += [f"### {title}", "", *_figures(figures)]
    if weights.direct:
        rows = [(kind, *(_one(model.held_out.get(by)) for by in ("shape", "gpu"))) for kind, model in sorted(weights.direct.items())]
        lines += ["### Library kernels, held out by training (`advisor train DATA -o WEIGHTS --card FILE`; MAPE, a third of the trees)", ""]
        lines += _table(("kind", "shapes left out", "one GPU left out"), rows)
    lines += [NEXT, "", *(f"- {text}" for text in LIMITS), "", "What was tried, and what it gave: [ATTEMPTS.md](ATTEMPTS.md).", ""]
    return with_section("\n".join(lines), weights)


def with_section(text: str, weights: Weights) -> str:
    """A card with what these weights say of layers and library kernels (`SECTION`)."""
    before, _, after = text.partition(NEXT)
    return before.partition(SECTION)[0] + section(weights) + NEXT + after


SECTION, NEXT = "## Layers and library kernels of the serving stacks", "## Where not to trust it"


def section(weights: Weights) -> str:
    """What training saw of layers and library kernels on rows that it left out, under the heading `SECTION`; nothing where it saw none."""
    layers = layer_model.load(weights.silicon)
    held_out = {**(layers.held_out if layers else {}), **{kind: model.held_out for kind, model in sorted(weights.library.items())}}
    tables = {kind: by_gpu for kind, by_gpu in held_out.items() if not isinstance(by_gpu, str)}
    if not any(tables.values()):
        return _configured(weights)
    columns = list(dict.fromkeys(name for by_gpu in tables.values() for figures in by_gpu.values() for name in figures if name != "rows"))
    rows = [
        (kind, gpu, f"{figures['rows']:,}", *(f"{figures[name]:.1f}" if name in figures else "–" for name in columns))
        for kind, by_gpu in tables.items()
        for gpu, figures in by_gpu.items()
    ]
    lines = [SECTION, "", SECTION_WORDS, "", *_table(("kind", "GPU", "rows", *columns), rows)]
    return "\n".join(
        [*lines, *(f"- {kind}: {words}" for kind, words in held_out.items() if isinstance(words, str)), "", _configured(weights)]
    )


CONFIGURED = """## Configured launches

Written by `advisor train DATA DEJAVU -o ceilings/learned.npz`: kernels with a known configuration, good and bad ones, as measured for this
project (`measurements/`) and in public sweeps of one GEMM (`besteguney/vllm-triton-backend`, Apache-2.0; fp16), a fifth of the problems
left out in turn, or every sweep of a GPU. Interval: how many rows lie within what holds 80 % by the rows of the other folds. First pick:
its latency over that of the best measured (geometric mean, worst), of problems with six configurations and more. Recommended: how many
first picks were so likely faster than what runs untuned (of a sweep, which names none, than the configuration at a tenth of its order)
that they would have been recommended, the share of those that won, what they won, the worst.
"""


def _configured(weights: Weights) -> str:
    """What first picks of configured launches won on rows left out; nothing where none were learned."""
    if weights.configured is None:
        return ""
    rows = []
    for name, record in weights.configured.record.items():
        kind, gpu, left_out = name.split(", ")
        made = ["0", "–", "–", "–"]
        if "recommended" in record:
            made = [str(record["recommended"]), f"{100 * record['won']:.0f} %", f"{record['gain']:.2f}", f"{record['worst']:.2f}"]
        rows.append(
            (
                *(kind, gpu, left_out.removesuffix(" left out"), f"{record['rows']:,}", f"{record['mape_percent']:.1f} %"),
                f"{record['interval_holds_percent']:.0f} %",
                *(str(record["problems"]), f"{record['first_over_best']:.3f}", f"{record['worst_over_best']:.2f}"),
                *made,
            )
        )
    heads = (
        "kind",
        "GPU",
        "left out",
        "rows",
        "MAPE",
        "interval",
        "problems",
        "first pick",
        "worst",
        "recommended",
        "won",
        "gain",
        "worst of them",
    )
    return "\n".join([CONFIGURED, *_table(heads, rows), ""])


SECTION_WORDS = """Written by `advisor train SILICON AITER TABLES -o ceilings/silicon.npz --card ceilings/MODEL_CARD.md`. Mean absolute
errors in percent of the latency, of layers on one rank with whole models left out (models of 150,000 rows), of library kernels with a
fifth of the weight matrices or layouts of heads left out (models as large as those that serve), and with all rows of the GPU left out
(smaller models). Beside them on the same rows: the nearest shapes measured in the same series, which is how the publisher of the
measurements predicts; the physics that is corrected, alone; and the bound."""


def of_training(held_out: Mapping[str, Any]) -> dict[str, Any]:
    """Figures that training kept (`MoeModel.held_out`) in the form of an evaluation."""
    tasks = {k: f for k, f in held_out.items() if k != "diagnosis"}
    diagnosis = held_out.get("diagnosis")
    figures: dict[str, Any] = {"tasks": tasks}
    if diagnosis:
        figures["diagnosis"] = {"all": {k: v for k, v in diagnosis.items() if k != "per_gpu"}, "per_gpu": diagnosis["per_gpu"]}
    return figures


def _one(figures: Mapping[str, Any] | None) -> str:
    if not figures:
        return "–"
    return f"{figures['mape_percent']:.2f} % (" + ", ".join(f"{gpu} {value:.1f}" for gpu, value in figures["per_gpu"].items()) + ")"


def _bound_alone(figures: Mapping[str, Any]) -> str:
    return f"{figures['bound_alone']['mape_percent']:.0f} %" if "bound_alone" in figures else "–"


def _figures(figures: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    rows: list[tuple[str, ...]]
    tasks = figures.get("tasks", {})
    if tasks:
        rows = []
        for kind, f in sorted(tasks.items()):
            worst = sorted(f.get("per_gpu", {}).items(), key=lambda item: -item[1]["mape_percent"])
            rows.append(
                (
                    TASKS.get(kind, kind),
                    f"{f['rows']:,}",
                    f"{f['mape_percent']:.2f} %",
                    f"{f['median_percent']:.2f} %",
                    f"{f['bias_percent']:+.2f} %",
                    f"{f['coverage_percent']:.0f} %",
                    _bound_alone(f),
                    ", ".join(f"{gpu} {g['mape_percent']:.1f}" for gpu, g in worst),
                    ", ".join(f"{gpu} {g['coverage_percent']:.0f}" for gpu, g in worst if "coverage_percent" in g),
                )
            )
        lines += _table(
            ("task", "rows", "MAPE", "median", "bias", "in the 80 % interval", "bound alone", "MAPE per GPU", "in the interval, per GPU"),
            rows,
        )
    if kinds := figures.get("diagnosis"):
        rows = [
            (name, f"{d['auc']:.3f}", f"{d['precision']:.2f}", f"{d['recall']:.2f}", f"{d['calibration_error']:.3f}", f"{d['rows']:,}")
            for name, d in (("all", kinds["all"]), *kinds["per_gpu"].items())
        ]
        lines += _table(("at least 10 % can be won", "AUC", "precision", "recall", "calibration error", "rows"), rows)
    if ranking := figures.get("ranking"):
        ranks = [name for name in ranking if name.startswith("hit_at_")]
        rows = [
            (name, *(f"{r[k]:.1f} %" for k in ranks), str(r["problems"])) for name, r in (("all", ranking), *ranking["per_gpu"].items())
        ]
        heads = ("within 1 % of the best", *(f"first {k.split('_')[2]}" for k in ranks), "problems")
        lines += _table(heads, rows)
    return lines


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rows = [tuple("–" if cell in ("nan", "nan %") else cell for cell in row) for row in rows]
    return [f"| {' | '.join(heads)} |", "| " + " | ".join("---" for _ in heads) + " |", *(f"| {' | '.join(row)} |" for row in rows), ""]
