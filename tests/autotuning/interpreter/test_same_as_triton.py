"""Calls of all kinds under our decorator and under `triton.autotune`: the same launches, hooks, benchmarks, outputs, errors and keys.

Left out is where ours is meant to differ (`autotune.md`): failures that are not the configuration's, all configurations failing, and
compiling an undecided kernel through heuristics around it, which Triton benchmarks without running.
"""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from advisor.autotuning.decorator import autotune  # noqa: E402

VERSION = tuple(map(int, triton.__version__.split(".")[:2]))


@triton.jit
def kernel(x_ptr, y_ptr, z_ptr, n, scale, flag=3, BLOCK: tl.constexpr = 16, ADD: tl.constexpr = 0, EIGHTHS: tl.constexpr = 0):
    offsets = tl.arange(0, BLOCK)
    y = tl.load(y_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(y_ptr + offsets, y + scale + ADD + EIGHTHS, mask=offsets < n)
    if z_ptr is not None:
        tl.store(z_ptr + offsets, y, mask=offsets < n)


class Watched:
    """A kernel that writes down what is launched with which block, and fails with one of them."""

    def __init__(self, log, failing):
        self.fn, self.arg_names, self.log, self.failing = kernel, kernel.arg_names, log, failing

    def run(self, *args, **kwargs):
        self.log.append(("run", kwargs.get("BLOCK"), kwargs.get("num_warps")))
        if self.failing is not None and kwargs.get("BLOCK") == self.failing:
            raise triton.runtime.errors.OutOfResources(300000, 232448, "shared memory")
        return self.fn.run(*args, **kwargs)

    def warmup(self, *args, **kwargs):
        self.log.append(("warmup", kwargs.get("BLOCK")))
        return "compiled"


class Scenario:
    """A decorated kernel and calls of it, drawn at random."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.blocks = draw.sample([16, 32, 64, 128], draw.randint(0, 4))
        # Far from what a launch takes here: neither are these taken for its latency nor corrected by it.
        self.ms = {block: draw.choice([1e7, 2e7, 3e7, 3e7]) for block in self.blocks}
        self.failing = draw.choice([None, None, *self.blocks[1:]])
        self.one_number = self.failing is None and draw.random() < 0.4
        self.own_hooks, self.added, self.around = draw.random() < 0.3, draw.random() < 0.3, draw.choice([None, "below", "above"])
        self.pre, self.post = draw.random() < 0.2, draw.random() < 0.2
        self.key = draw.choice([["n"], ["n", "scale"], ["flag"], [], ["scale", "flag"]])
        self.options = {}
        if draw.random() < 0.4:
            self.options["reset_to_zero"] = draw.choice([["y_ptr"], ["z_ptr"], ["y_ptr", "z_ptr"]])
        if draw.random() < 0.4:
            self.options["restore_value"] = draw.choice([["y_ptr"], ["z_ptr"]])
        self.prune = draw.choice([None, None, "early", "none", "model", "fraction", "both"])
        self.calls = [
            {
                "n": draw.choice([8, 16]),
                "scale": draw.choice([1.0, 2.0, 2]),
                "flag": draw.choice([None, 3, 4]),
                "z": draw.random() < 0.7,
                "names": draw.choice(["none", "none", "some", "all"]),
                "dtype": draw.choice([torch.float32, torch.float64]),
                "twice": draw.random() < 0.1,
                "how": draw.choice(["index", "index", "run", "warmup" if self.around != "above" else "run"]),
            }
            for _ in range(draw.randint(1, 6))
        ]

    def pruning(self, log):
        def early(configs, named, **kwargs):
            log.append(("early", sorted(named), sorted(kwargs)))
            return [] if self.prune == "none" else configs[:2]

        def model(**kwargs):
            log.append(("model", kwargs["BLOCK"]))
            return -kwargs["BLOCK"]

        chosen = {"early_config_prune": early} if self.prune in ("early", "none", "both") else {}
        if self.prune in ("model", "both"):
            chosen |= {"perf_model": model, "top_k": 2}
        return chosen | ({"perf_model": model, "top_k": 0.5} if self.prune == "fraction" else {})

    def play(self, tune):
        log, said = [], []

        def bench(run, quantiles):
            run()
            block = next(entry[1] for entry in reversed(log) if entry[0] == "run")
            log.append(("bench", block, quantiles))
            return self.ms[block] if self.one_number else [self.ms[block]] * 3

        def own_hook(named):
            log.append(("own", named["BLOCK"], sorted(named)))

        options = dict(self.options)
        if self.pre:
            options["pre_hook"] = lambda named, reset_only=False: log.append(("pre", named.get("BLOCK"), reset_only))
        if self.post:
            options["post_hook"] = lambda named, exception: log.append(("post", named.get("BLOCK"), type(exception).__name__))
        if self.prune:
            options["prune_configs_by"] = self.pruning(log)
        more = {"ADD": 1} if self.added else {}
        hook = own_hook if self.own_hooks else None
        configs = [
            triton.Config({"BLOCK": block, **more}, num_warps=warps, pre_hook=hook)
            for block, warps in zip(self.blocks, (4, 8, 4, 2), strict=False)
        ]
        eighths = triton.heuristics({"EIGHTHS": lambda named: named["n"] // 8})
        watched = Watched(log, self.failing)
        tuner = tune(configs, key=self.key, do_bench=bench, **options)(eighths(watched) if self.around == "below" else watched)
        launched = eighths(tuner) if self.around == "above" else tuner
        for call in self.calls:
            said.append(outcome(launched, tuner, call))
        return log, said, {key: config.kwargs for key, config in tuner.cache.items()}


def outcome(launched, tuner, call):
    """What a call leaves in its tensors and in the tuner, or its error."""
    x, y = torch.ones(16, dtype=call["dtype"]), torch.arange(16, dtype=call["dtype"])
    z = torch.zeros(16, dtype=call["dtype"]) if call["z"] else None
    args, kwargs = [x, y, z, call["n"], call["scale"]], {}
    if call["names"] == "some":
        args, kwargs = args[:1], {"y_ptr": y, "z_ptr": z, "n": call["n"], "scale": call["scale"]}
    elif call["names"] == "all":
        args, kwargs = [], {"n": call["n"], "scale": call["scale"], "z_ptr": z, "y_ptr": y, "x_ptr": x}
    kwargs |= ({"flag": call["flag"]} if call["flag"] is not None else {}) | ({"BLOCK": 16} if call["twice"] else {})
    try:
        if call["how"] == "warmup":
            return launched.warmup(*args, grid=(1,), **kwargs)
        if call["how"] == "run":
            launched.run(*args, grid=lambda meta: (1,), warmup=False, **kwargs)
        else:
            launched[(1,)](*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)[:40]
    return y.tolist(), z.tolist() if z is not None else None, tuner.best_config.kwargs, tuner.best_config.num_warps


@pytest.mark.skipif(VERSION < (3, 9), reason="the hooks and the pruning of earlier versions differ, and ours are those of 3.9")
@pytest.mark.parametrize("seed", range(60))
def test_the_same_as_triton(seed):
    scenario = Scenario(seed)
    theirs, ours = scenario.play(triton.autotune), scenario.play(autotune)
    assert ours == theirs
