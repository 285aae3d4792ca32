"""A resolved TARGET: its launches, their GPU, and which of them share a configuration. `resolve.py` finds it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, SupportsIndex, get_args

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import ConfigurationBatch
from advisor.result.schema import Cache, Configuration, Problem
from advisor.system.errors import UsageError
from advisor.system.resources import phrase
from advisor.tables.launchability import refused_dtype
from advisor.tables.names import SIZE_LIMIT
from advisor.tables.routing import Routing
from advisor.tables.tables import Table

GEMM_OF_LAYER = ("w13", "w2")
STACKS = {"vllm": "vLLM", "sglang": "SGLang"}
"""Serving stacks by the names that options take."""
CONFIGURATION_UNKNOWN = phrase("note.configuration_unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The user's options besides the target.

    Raises:
        UsageError: A number is no positive integer, or the cache neither warm nor cold.
    """

    gpu: str | None = None
    model: str | None = None
    hidden_size: int | None = None
    top_k: int | None = None
    tensor_parallel: int | None = None
    expert_parallel: int | None = None
    tokens: tuple[int, ...] | None = None
    dtype: str | None = None
    routing: tuple[int, ...] | None = None
    distribution: str | None = None  # the routing by name, as of `Problem`
    cache: str = "warm"
    sizes: Mapping[str, int] | None = None  # of a kernel that is no table's: M, N, K, ...; of fused_moe: E, topk, H, N
    stack: str | None = None  # whose table it is, or whose default runs where there is none: vllm (also where it is None) or sglang
    stack_version: str | None = None  # of the layers that are told; None: the newest measured
    block_shape: tuple[int, int] | None = None  # quantization block (n, k) of a layer without a table
    assume: bool = False  # batch use: take the commonest model where a table fits several, and say so

    def __post_init__(self) -> None:
        if self.cache not in get_args(Cache):
            raise UsageError("Request.cache: what the L2 holds when a launch starts", self.cache, " or ".join(get_args(Cache)))
        if self.stack not in (None, "vllm", "sglang"):
            raise UsageError("Request.stack", self.stack, "vllm or sglang")
        if self.stack_version is not None and self.stack is None:
            raise UsageError("Request.stack_version without a stack", self.stack_version, "vllm or sglang", "name the stack too")
        for name in ("hidden_size", "top_k", "tensor_parallel", "expert_parallel"):
            if (value := getattr(self, name)) is not None:
                _check_positive(f"Request.{name}", value)
        if self.tokens is not None:
            if isinstance(self.tokens, str) or not isinstance(self.tokens, Sequence):
                raise UsageError("Request.tokens: token counts", self.tokens, "a tuple of them, as in (1, 64)")
            for value in self.tokens:
                _check_positive("Request.tokens", value)
        for name, value in (self.sizes or {}).items():
            if name != "causal" or value not in (False, True):
                _check_positive(f"Request.sizes: {name}", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLaunch:
    """One launch to report on.

    `decision_id` names the decision the configuration belongs to: launches with the same one run with one configuration (w13 and
    w2 of one table entry), so a recommendation must suit them together. `table` is the one its entry stands in, where that is not the
    target's, and `frozen_parameters` are those that another launch's entry decides or needs too: they change for all launches of one
    `row_sort_id` together, and not at all where that is None.
    """

    id: str
    kernel: str
    problem: Problem
    configuration: Configuration | None
    source: str
    decision_id: str
    tokens: int | None = None
    entry: Configuration | None = None  # as written, before clamping
    entry_key: int | None = None
    table: Table | None = None
    frozen_parameters: tuple[str, ...] = ()
    row_sort_id: str | None = None
    default_configuration: Configuration | None = None  # what the kernel's file gives as reasonable without tuning


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target, resolved."""

    title: str
    gpu: GpuSpec
    launches: tuple[PlannedLaunch, ...]
    space: ConfigurationBatch  # what the kernel may be launched with
    model: str | None = None
    table: Table | None = None
    stack: str | None = None
    stack_version: str | None = None
    default_since: int = 0  # version from which on the stack's default is what runs, where none is named and others had another
    assumption: str | None = None  # what had to be assumed of the model, as a sentence
    unknowns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what was taken and decides, sentences for the first screen
    warnings: tuple[str, ...] = ()
    refused: str = ""  # why most versions of the stack do not load it, a sentence

    def __post_init__(self) -> None:
        for launch in self.launches:
            dtype, gpu = launch.problem.dtype, self.gpu
            if (refused := refused_dtype(dtype, gpu.name, gpu.compute_capability)) is not None:
                raise UsageError(
                    f"{self.title}: {refused}",
                    dtype,
                    "operands the GPU takes, such as bf16",
                    "give --dtype bf16, or another --gpu; serving stacks unpack fp8 weights there (Marlin)",
                )


def _check_positive(what: str, value: object) -> None:
    if not isinstance(value, SupportsIndex) or isinstance(value, bool) or not 0 < index(value) < SIZE_LIMIT:
        raise UsageError(what, value, f"an integer from 1 to {SIZE_LIMIT - 1}")


def routing_assumed(request: Request) -> str:
    """A sentence on a routing that was not given as loads."""
    key = {None: "note.routing_balanced", "random": "note.routing_random"}.get(request.distribution, "note.routing")
    return phrase(key, name=request.distribution)


def routing_given(given: Sequence[int] | str | os.PathLike[str] | None) -> dict[str, Any]:
    """The fields of a `Request` that a routing sets: a name (random, balanced, power_law:A), a file of loads, or these themselves.

    Raises:
        InputError: It is none of these.
    """
    if given is None:
        return {}
    routing = Routing.given(given)
    return {"distribution": routing.distribution, "routing": routing.slots}


def slots_of_a_rank(ranks: int | None) -> tuple[str, ...]:
    return () if ranks in (None, 1) else (phrase("note.rank", ranks=ranks),)
