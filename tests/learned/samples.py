"""Synthetic measurements: a small world with known laws, so that training is tested in seconds and without the published data."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from advisor.gpus.hardware import load_gpu
from advisor.learned.analytical import served_configuration
from advisor.learned.machine import machine
from advisor.learned.moe import moe_physics
from advisor.learned.moe.launch import as_columns, as_configuration, fits, moe_launch
from advisor.pipelines import ProblemBatch, column

GPUS = ("A100", "H800", "L40")
MODELS = ((8, 2, 1024, 512), (32, 4, 2048, 768), (64, 6, 3072, 2048))
TOKENS = (1, 3, 16, 48, 130, 300, 700, 1500, 4096)
CONFIGURATIONS = np.array(
    [
        (bm, bn, bk, gm, w, s)
        for bm, bn, bk in ((16, 64, 128), (16, 128, 128), (64, 64, 64), (128, 128, 64))
        for gm in (1, 16)
        for w in (4, 8)
        for s in (3, 4)
    ],
    dtype=np.float64,
)
FIELDS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")


def problems(model: tuple[int, int, int, int] = MODELS[1], tokens: tuple[int, ...] = TOKENS) -> ProblemBatch:
    """One model at several numbers of tokens."""
    experts, topk, hidden, inter = model
    sizes = {"M": column(tokens), "E": column(experts), "topk": column(topk), "H": column(hidden), "N": column(inter)}
    count = len(tokens)
    return ProblemBatch(family="fused_moe", op="w13", sizes={n: np.broadcast_to(c, (count,)).copy() for n, c in sizes.items()})


def latency(problem: ProblemBatch, configuration, gpu_name: str, noise: np.random.Generator) -> np.ndarray:
    """What this world measures: the start values of the physics, a trait per warp count, and 0.3 % noise."""
    launch = moe_launch(problem, configuration, machine(load_gpu(gpu_name), "bf16"))
    us = moe_physics.terms(launch, moe_physics.start())[0]
    trait = 1 + 0.05 * (launch.warps == 8) + 0.02 * np.log2(launch.group_m) / 4
    return us * trait * np.exp(0.003 * noise.standard_normal(us.size))


def write(folder: Path, gpus: tuple[str, ...] = GPUS, models: tuple[tuple[int, int, int, int], ...] = MODELS) -> Path:
    """The three files of the published layout."""
    noise = np.random.default_rng(1)
    served, near, summary = [], [], []
    for name in gpus:
        gpu = machine(load_gpu(name), "bf16")
        for model in models:
            tokens = tuple(sorted({*TOKENS, *range(2, 60, 6), *range(100, 2000, 150)}))
            problem = problems(model, tokens)
            us = latency(problem, served_configuration(problem, gpu), name, noise)
            served += [(name, "w13", m, *model, round(float(t), 4)) for m, t in zip(tokens, us, strict=True)]
            problem = problems(model)
            usable = CONFIGURATIONS[fits(gpu, as_configuration(CONFIGURATIONS))]
            table = np.stack([latency(problem, as_configuration(usable[i : i + 1]), name, noise) for i in range(len(usable))])
            for j, m in enumerate(TOKENS):
                best = float(table[:, j].min())
                near += [
                    (name, "w13", m, *model, *map(int, usable[i]), round(float(table[i, j]), 4))
                    for i in range(len(usable))
                    if table[i, j] <= 1.01 * best
                ]
                default = int(np.flatnonzero((usable[:, 0] == 64) & (usable[:, 4] == 8))[0])
                summary.append((name, "w13", m, *model, best, float(table[default, j]), *map(int, usable[default])))
    problem_columns = ("gpu", "gemm", "M", "E", "topk", "H", "N")
    _csv(folder / "default.csv", (*problem_columns, "latency_us"), served)
    _csv(folder / "near.csv", (*problem_columns, *FIELDS, "latency_us"), near)
    _csv(folder / "summary.csv", (*problem_columns, "best_us", "default_us", *(f"default_{f}" for f in FIELDS)), summary)
    return folder


def _csv(path: Path, header: tuple[str, ...], rows: list[tuple]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(header)
        writer.writerows(rows)


__all__ = ["CONFIGURATIONS", "GPUS", "MODELS", "TOKENS", "as_columns", "latency", "problems", "write"]
