"""A whole step: operators, collectives and gaps, summed, with the interval of the sum."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import Predictor
from advisor.learned.layers import layer_model
from advisor.result.step import StepOperator, StepResult, StepTime
from advisor.steps import collectives
from advisor.steps.collectives import Constants, Gaps, load_constants
from advisor.steps.latency import Cost, costs, takes_other_kernels
from advisor.steps.model_config import Architecture
from advisor.steps.operators import Operator, step_operators
from advisor.steps.torch_operators import torch_operators
from advisor.steps.workload import Load, Split, memory
from advisor.system.errors import UsageError
from advisor.system.resources import phrase
from advisor.tables.entries import default_since, version_number, version_text

GAP_SPREAD = 0.35
"""Half an 80 % interval of the log of what gaps take together: hosts differ more than GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """The operators of a step with what each launch costs, before they are added up."""

    kernels: tuple[tuple[Operator, Cost], ...]
    engine: str
    eager: bool

    @property
    def launcher(self) -> str:
        """The engine, `-eager` where it launches every kernel."""
        return f"{self.engine}-eager" if self.eager else self.engine

    @property
    def count(self) -> int:
        """Launches, collectives among them."""
        return sum(operator.count for operator, _ in self.kernels)

    @property
    def busy_us(self) -> float:
        """All of them, one after the other."""
        return sum(operator.count * cost.us for operator, cost in self.kernels)

    @property
    def bound_us(self) -> float:
        """All of them at their bounds."""
        return sum(operator.count * cost.bound_us for operator, cost in self.kernels)

    def on_gpu(self, fitted: Constants) -> tuple[Cost, ...]:
        """What a launch of each takes within a step: less than alone, where PyTorch's kernels were timed one by one."""
        gaps = fitted.gaps[self.engine]
        return tuple(cost if kernel.kind == "collective" else _within(cost, gaps) for kernel, cost in self.kernels)

    def gap_us(self, fitted: Constants) -> float:
        """What comes on top of them, microseconds: the GPU between two kernels, and where it waits for a host that launches more slowly."""
        gaps = fitted.gaps[self.engine]
        within = sum(kernel.count * cost.us for (kernel, _), cost in zip(self.kernels, self.on_gpu(fitted), strict=True))
        on_gpu = within + max(gaps.kernel_us, 0.0) * self.count
        least = gaps.launch_us * self.count if self.eager else 0.0
        return max(on_gpu, least) - self.busy_us

    def time(self, fitted: Constants) -> StepTime:
        """The step and its 80 % interval: errors of one kind on one GPU go together, those of different kinds do not."""
        gap = self.gap_us(fitted)
        total = self.busy_us + gap
        by_kind: dict[str, float] = defaultdict(float)
        for operator, cost in self.kernels:
            by_kind[operator.kind] += operator.count * cost.us * math.log(max(cost.high_us, cost.us) / min(cost.low_us, cost.us)) / 2
        by_kind["gaps"] = GAP_SPREAD * abs(gap)
        half = fitted.spread[self.launcher] * math.sqrt(sum(item * item for item in by_kind.values())) / total
        return StepTime(us=total, low_us=total * math.exp(-half), high_us=total * math.exp(half))


def _within(cost: Cost, gaps: Gaps) -> Cost:
    """A cost as `gaps` have it, no less than its bound."""
    share = max(gaps.busy * cost.us + min(gaps.kernel_us, 0.0), cost.bound_us) / cost.us
    # What is tunable is not the library's: that may take longer.
    library = cost.library_us if cost.library_us is None or cost.tunable else min(cost.library_us, share * cost.us)
    ceiling = max(share * cost.ceiling_us, cost.bound_us)
    return replace(
        cost, us=share * cost.us, low_us=share * cost.low_us, high_us=share * cost.high_us, ceiling_us=ceiling, library_us=library
    )


def price(
    operators: Sequence[Operator],
    gpu: GpuSpec,
    predictor: Predictor,
    fitted: Constants,
    *,
    engine: str,
    eager: bool,
    references: bool = False,
    version: str = "",
) -> Priced:
    """The operators with their costs on a GPU, and with what libraries take where `references` are asked for.

    Raises:
        UsageError: The GPU lacks a type or a link.
    """
    local = [operator for operator in operators if operator.kind != "collective"]
    by_id = dict(zip(map(id, local), costs(local, gpu, predictor, engine, references=references, version=version), strict=True))
    library = f"{engine}-eager" if eager else engine
    return Priced(
        kernels=tuple((operator, by_id.get(id(operator)) or _collective(operator, gpu, fitted, library)) for operator in operators),
        engine=engine,
        eager=eager,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """A step that is asked for.

    `engine` is `vllm`, `sglang`, `torch` or `inductor` (`torch.compile`); `version` of it, or the newest that was measured. `dtype` of the
    products' operands; None: as the model is stored. `eager`: without CUDA graphs; None: as the engine does, whose graphs are of steps that
    decode alone. `training`: forward and backward, over `replicas` data-parallel copies (PyTorch alone).
    """

    model: Architecture
    load: Load
    split: Split = field(default_factory=Split)
    engine: str = "vllm"
    version: str = ""
    dtype: str | None = None
    eager: bool | None = None
    training: bool = False
    replicas: int = 1

    @property
    def without_graph(self) -> bool:
        """Whether the host launches every kernel."""
        return bool(self.load.prompts) if self.eager is None else self.eager

    def operators(self) -> list[Operator]:
        """What one rank launches.

        Raises:
            UsageError: The engine refuses the split or does not run such a step.
        """
        self.split.check(self.model)
        if self.engine in ("torch", "inductor"):
            if self.model.recurrence or self.model.sparse or self.model.mixers:
                limit = "models of attention and MLPs alone"
                raise UsageError(f"{self.model.name}: --engine {self.engine}", self.model.model_type, limit, "--engine vllm or sglang")
            return torch_operators(
                self.model,
                self.load,
                self.split,
                training=self.training,
                compiled=self.engine == "inductor",
                replicas=self.replicas,
                dtype=self.dtype,
            )
        if self.training or self.replicas > 1:
            raise UsageError(f"--engine {self.engine} does not train", None, "--engine torch or inductor", "name one of them")
        return step_operators(self.model, self.load, self.split, self.dtype)


def predict_step(request: StepRequest, gpu: GpuSpec, predictor: Predictor, command: str = "") -> StepResult:
    """What a step of a model takes on a GPU, or on each of those that share it.

    Args:
        request: The step.
        gpu: Each of the GPUs.
        predictor: Of the operators.
        command: What the user typed, for the result.

    Raises:
        UsageError: The split is refused, or the GPU lacks a type or a link.
    """
    fitted = load_constants()
    priced = price(
        request.operators(),
        gpu,
        predictor,
        fitted,
        engine=request.engine,
        eager=request.without_graph,
        references=True,
        version=request.version,
    )
    step = priced.time(fitted)
    rows = [_row(operator, cost, step.us) for (operator, _), cost in zip(priced.kernels, priced.on_gpu(fitted), strict=True)]
    rows.append(_gap_row(step.us - sum(row.total_us for row in rows), step.us, request.without_graph))
    at_once = request.replicas * (1 if request.training else request.split.pipeline)  # stages that serve work on other batches meanwhile
    experts = request.model.experts
    stored = f", experts {experts.stored}" if experts is not None and experts.stored else ""
    result = StepResult(
        model=request.model.name,
        gpu=gpu.name,
        load=describe(request.load, request.training),
        split=_split(request),
        engine=request.engine,
        dtype=f"{request.dtype or request.model.dtype}{stored}",
        step=step,
        tokens_per_s=request.load.tokens * at_once / step.us * 1e6,
        memory=memory(request.model, request.load, request.split, gpu, request.dtype, training=request.training),
        operators=tuple(sorted(rows, key=_gain, reverse=True)),
        command=command,
        predictor=predictor.name,
        tokens=request.load.tokens,
        bound_us=priced.bound_us,
        stack_version=request.version or measured_version(request.engine, gpu, predictor),
    )
    other = any(takes_other_kernels(operator, gpu) and not cost.source for operator, cost in priced.kernels)
    tuned = any(cost.launched == "table" for _, cost in priced.kernels)
    missing = [f"not priced: {', '.join(request.model.unpriced)}"] if request.model.unpriced else []
    known = [phrase("step.tuned")] * tuned + [OTHER_KERNELS] * other
    launched = launched_by_default(result, request.version, priced)
    caveats = (*overlaps(result, request), *of_other_versions(result, priced), *launched, *known, *missing)
    return replace(result, advice=tuple(advice(result)), caveats=caveats)


def measured_version(engine: str, gpu: GpuSpec, predictor: Predictor) -> str:
    """The newest version of an engine whose layers were measured on a GPU, or on any: `0.24`; empty where none was."""
    model = layer_model.load(getattr(getattr(predictor, "weights", None), "silicon", {}))
    if model is None or engine not in collectives.ENGINES:
        return ""
    return version_text(model.newest(gpu.name, engine == "sglang"))


def launched_by_default(result: StepResult, version: str, priced: Priced) -> list[str]:
    """A line that says which version's default experts run without a table, where no `version` is asked for and the newest measured has
    another; none elsewhere."""
    layers = [operator for operator, cost in priced.kernels if cost.launched == "default"]
    since = 0
    for layer in layers:
        options = {"dtype": layer.dtype, "block_shape": layer.block_shape}
        since = max(since, default_since(result.engine, layer.sizes["M"], layer.sizes["E"] // layer.sizes["ranks"], **options))
    if version or since <= version_number(result.stack_version):
        return []
    return [phrase("step.default", engine=result.engine, since=version_text(since), measured=result.stack_version)]


def of_other_versions(result: StepResult, priced: Priced) -> list[str]:
    """A line that names the operators whose kernels were measured in another version of the engine than the step's; none where none was."""
    version = result.stack_version
    others = [operator.name for operator, cost in priced.kernels if cost.source and f" {version}" not in cost.source]
    names = dict.fromkeys(others if version else [])
    return [f"measured in another version than {result.engine} {version}, which their rows name: {', '.join(names)}"] if names else []


OTHER_KERNELS = (
    "experts: on this GPU the engines take no Triton kernels for fp8, and those they take were not measured: kernels near their bounds "
    "are assumed"
)


def overlaps(result: StepResult, request: StepRequest) -> list[str]:
    """What a training step over several GPUs could do at the same time and is counted one after the other here, a line each."""
    if not request.training:
        return []
    total = {row.name: row.total_us for row in result.operators}
    backward = sum(us for name, us in total.items() if " backward" in name)
    lines = []
    for name, part, how in (
        ("gradients all-reduce", 1.0, "backward, as DistributedDataParallel runs it"),
        ("activations all-reduce", 0.5, "the products that make gradients of weights, as Megatron runs those of backward"),
    ):
        hidden = min(part * total.get(name, 0.0), backward)
        if hidden:
            lines.append(f"{name}: counted in sequence; behind {how}, the step takes up to {hidden / 1e3:.3g} ms less")
    stages = request.split.pipeline
    if stages > 1:
        lines.append(
            f"pipeline: one batch passes {stages} stages, which wait for it {100 - 100 / stages:.0f} % of the time; of m equal ones in "
            f"turn each takes 1/m of the work and the step (m + {stages - 1}) / {stages}m of this"
        )
    return lines


def _split(request: StepRequest) -> str:
    split = request.split
    parts = [
        f"tp {split.tensor}",
        f"pp {split.pipeline}",
        *(["ep"] if split.experts else []),
        *([f"dp {request.replicas}"] * (request.replicas > 1)),
    ]
    return ", ".join(parts)


def describe(load: Load, training: bool = False) -> str:
    """The load in words: `prefill of 8 prompts, 27,966 tokens`."""
    lines = []
    if load.prompts:
        new, what = sum(prompt for prompt, _ in load.prompts), "training step" if training else "prefill"
        lines.append(f"{what} of {len(load.prompts)} prompt{'s' if len(load.prompts) > 1 else ''}, {new:,} tokens")
    if load.contexts:
        mean = sum(load.contexts) / len(load.contexts)
        lines.append(f"decode of {len(load.contexts)} sequence{'s' if len(load.contexts) > 1 else ''}, context {mean:,.0f}")
    return " and ".join(lines)


def _collective(operator: Operator, gpu: GpuSpec, fitted: Constants, engine: str) -> Cost:
    library = engine if operator.op == "all_reduce" and engine.partition("-")[0] in collectives.ENGINES else "nccl"
    us, half = fitted.curves.latency_us(operator.op, operator.message_bytes, operator.ranks, gpu, library)
    moved = operator.message_bytes * (operator.ranks - 1) / operator.ranks
    bound = moved * (2 if operator.op == "all_reduce" else 1) / collectives.link_rate(gpu) * 1e6
    bound = min(bound / (2 if operator.op == "all_reduce" and gpu.fabric_bytes_per_s else 1), us)  # a switch may add up on the way
    return Cost(
        us=us, low_us=us * math.exp(-half), high_us=us * math.exp(half), bound_us=bound, binding="link", ceiling_us=us, tunable=False
    )


def _row(operator: Operator, cost: Cost, total: float) -> StepOperator:
    all_us = operator.count * cost.us
    library = f"library: {cost.library}" if cost.tunable and cost.library else ""
    return StepOperator(
        name=operator.name,
        kind=operator.kind,
        problem="; ".join(filter(None, (problem_words(operator), cost.source, library))),
        count=operator.count,
        cache=operator.cache if operator.kind != "collective" else "",
        us=cost.us,
        low_us=cost.low_us,
        high_us=cost.high_us,
        bound_us=cost.bound_us,
        binding=cost.binding,
        ceiling_us=cost.ceiling_us,
        library_us=cost.library_us,
        library=cost.library,
        parts=cost.parts,
        tunable=cost.tunable,
        total_us=all_us,
        share=all_us / total,
        gain=operator.count * (cost.us - cost.ceiling_us) / total if cost.tunable else 0.0,
        gain_at_library=operator.count * max(cost.us - cost.library_us, 0.0) / total if cost.library_us else 0.0,
        gain_at_bound=operator.count * (cost.us - cost.bound_us) / total,
    )


def problem_words(operator: Operator) -> str:
    """Its sizes and type, or its bytes and ranks."""
    if operator.kind == "collective":
        mb = operator.message_bytes / 1e6
        return f"{mb:{',.0f' if mb >= 1e3 else '.4g'}} MB over {operator.ranks} GPUs"
    number = int(dict(operator.words).get("shared", 0))  # experts that every token passes: counted with the routed ones, told apart
    sizes = {name: value - number * (name in ("E", "topk")) for name, value in operator.sizes.items()}
    shown = " ".join(f"{name}={value:.6g}" for name, value in sizes.items() if value)
    shared = f", and {number} shared" if number else ""
    scaled = "" if (operator.op, operator.dtype) != ("layer", "fp8") else " in blocks" if operator.block_shape else " per tensor"
    return f"{shown} {operator.dtype}{scaled}{shared}"


def _gap_row(gap: float, total: float, eager: bool) -> StepOperator:
    how = "host time, eager" if eager else "CUDA graph, and the host around it"
    return StepOperator(
        name="gaps",
        kind="gaps",
        problem=how,
        count=1,
        cache="",
        us=gap,
        low_us=gap * math.exp(-GAP_SPREAD),
        high_us=gap * math.exp(GAP_SPREAD),
        bound_us=0.0,
        binding="launch",
        ceiling_us=gap,
        library_us=None,
        library="",
        parts=(),
        tunable=False,
        total_us=gap,
        share=gap / total,
        gain=0.0,
        gain_at_library=0.0,
        gain_at_bound=gap / total,
    )


LEAST_GAIN = 0.005
"""Of a step: less is not worth a line."""


def _gain(row: StepOperator) -> float:
    """What the step gains, as `advice` counts it: by tuning or another library where that is worth a line, else at the bound."""
    sure = max(row.gain, row.gain_at_library)
    return sure if sure >= LEAST_GAIN else row.gain_at_bound


NEAR_BOUND = 0.85
"""Share of its bound from which on a kernel is not worth replacing: what is left is within what a kernel sustains of the peak."""
MOST_ADVICE = 4


def advice(result: StepResult) -> list[str]:
    """Which kernel first: a line each, by what the step gains at most. Nothing is advised for a kernel above `NEAR_BOUND` of its bound.

    One line for a kernel: what a new one could win, and how much of that tuning it or the best library for it does.
    """
    advised: dict[str, tuple[float, str]] = {}
    for row in result.operators:
        now = row.us if row.measured_us is None else row.measured_us
        near = now > 0 and NEAR_BOUND < row.bound_us / now <= 1.0
        if row.kind == "gaps" or near:
            continue
        tune = (row.gain, "tune", phrase("step.tuning"))
        sure, key, how = max(tune, (row.gain_at_library, "replace", phrase("step.library", library=row.library)))
        most = max(row.gain_at_bound, sure)
        part = phrase("step.sure", how=how, sure=f"{100 * sure:.1f} %") if sure >= LEAST_GAIN else ""
        key = key if part else "hide" if row.kind == "collective" else "replace"
        if most >= (LEAST_GAIN if part else 2 * LEAST_GAIN) and most > advised.get(row.name, (0.0, ""))[0]:
            what, share = phrase(f"step.{key}", name=row.name), f"{100 * row.share:.0f} %"
            advised[row.name] = most, phrase("step.gain", what=what, gain=f"{100 * most:.1f} %", sure=part, share=share)
    return [f"{line[:1].upper()}{line[1:]}" for _, line in sorted(advised.values(), reverse=True)[:MOST_ADVICE]]
