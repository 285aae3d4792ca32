"""Results as `advise` would make them, for the tests of the surfaces: plausible figures, closed formulas, no model."""

from __future__ import annotations

import math
from dataclasses import replace

from advisor.result.schema import (
    Action,
    Configuration,
    Export,
    Finding,
    Fingerprint,
    GapPart,
    Latency,
    LaunchReport,
    MeasuredRounds,
    Occupancy,
    PipelineTime,
    Problem,
    Recommendation,
    Result,
    Round,
    SearchReport,
    SearchTrial,
    SourcedFigure,
    Verdict,
)

TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
SMS, TENSOR, L2, DRAM, SMEM = 78, 148e12, 5.5e12, 4.0e12, 18e12
EXPERTS, TOPK, HIDDEN, INTERMEDIATE = 128, 8, 2048, 768
HOSTILE = "<img src=x onerror=alert(1)>"
ESCAPES = "\x1b[31mred\x1b[0m [bold red]markup[/] |pipe| @someone #1 `tick` </script><script>alert(1)</script>"


def configuration(block_m: int, block_n: int = 128, *, warps: int = 4, stages: int = 3, group: int = 1) -> Configuration:
    """One entry of a fused-MoE table."""
    parameters: dict[str, int | bool | str] = {
        "BLOCK_SIZE_M": block_m,
        "BLOCK_SIZE_N": block_n,
        "BLOCK_SIZE_K": 64,
        "GROUP_SIZE_M": group,
    }
    return Configuration(parameters=parameters, num_warps=warps, num_stages=stages)


def as_triton(value: Configuration) -> str:
    """The paste-ready `triton.Config`."""
    inner = ", ".join(f'"{key}": {number}' for key, number in value.parameters.items())
    return f"triton.Config({{{inner}}}, num_warps={value.num_warps}, num_stages={value.num_stages})"


def launch(tokens: int, op: str = "w13", *, measured: bool = False) -> LaunchReport:
    """One launch of the fused MoE of Qwen3-30B-A3B on an H20."""
    width, depth = (2 * INTERMEDIATE, HIDDEN) if op == "w13" else (HIDDEN, INTERMEDIATE)
    slots = tokens * TOPK
    busy = EXPERTS * (1 - (1 - 1 / EXPERTS) ** slots)
    block_m = 64 if tokens >= 32 else 16
    padded = max(slots, busy * block_m)
    flop, padded_flop = 2.0 * slots * width * depth, 2.0 * padded * width * depth
    dram = 2.0 * (busy * width * depth + slots * (width + depth))
    ctas = math.ceil(padded / block_m) * math.ceil(width / 128)
    l2 = ctas * depth * (block_m + 128) * 2.0
    demands = {
        "tensor": ("flop", padded_flop, flop, TENSOR),
        "issue": ("instruction", padded_flop / 2048, flop / 4096, 5.5e11),
        "smem": ("bytes", 1.6 * l2, dram, SMEM),
        "l2": ("bytes", l2, dram, L2),
        "dram": ("bytes", dram * 1.04, dram, DRAM),
    }
    pipelines = [
        PipelineTime(
            pipeline=name,
            unit=unit,
            demand=demand,
            problem_demand=least,
            busiest_sm_demand=None if name in ("l2", "dram") else demand / SMS * 1.2,
            throughput_per_s=rate,
            time_us=demand / rate * 1e6 * (1.0 if name in ("l2", "dram") else 1.2),
            problem_time_us=least / rate * 1e6,
        )
        for name, (unit, demand, least, rate) in demands.items()
    ]
    pipelines.append(
        PipelineTime(
            pipeline="launch",
            unit="launch",
            demand=1.0,
            problem_demand=1.0,
            busiest_sm_demand=None,
            throughput_per_s=0.0,
            time_us=2.0,
            problem_time_us=2.0,
        )
    )
    bound_us = max(part.problem_time_us for part in pipelines)
    config_us = max(part.time_us for part in pipelines)
    binding = max(pipelines, key=lambda part: part.problem_time_us).pipeline
    config_binding = max(pipelines, key=lambda part: part.time_us).pipeline
    predicted_us = 1.22 * config_us + 2.3
    ceiling_us = 1.12 * bound_us + 2.1
    current_us = 1.03 * predicted_us if measured else predicted_us
    saving = predicted_us - ceiling_us
    resident = 3 if block_m == 16 else 2
    waves = ctas / (SMS * resident)
    now, better = configuration(block_m, stages=2), configuration(max(16, block_m // 2), 64, stages=4, group=8)
    shares = {"padding": 0.4, "tail-wave": 0.2, "occupancy": 0.1, "latency": 0.1, "traffic": 0.15, "launch": 0.05}
    gap = [
        GapPart(cause=cause, us=(predicted_us - bound_us) * share, origin="predicted", note=f"{cause} of the blocks")
        for cause, share in shares.items()
    ]
    if measured:
        gap.append(GapPart(cause="unexplained", us=current_us - predicted_us, origin="measured"))
    findings = []
    if tokens < 1024:
        findings.append(
            Finding(
                rule="expert-padding",
                severity="warning",
                title=f"{100 * (1 - slots / padded):.0f} % of the rows the matrix pipeline works on are padding",
                evidence=f"{slots} token slots over {busy:.0f} experts fill blocks of {block_m} rows to {padded:.0f}",
                remedy="Take a smaller BLOCK_SIZE_M",
                saving_us=0.4 * saving,
                scope=f"entry M={tokens}",
            )
        )
    if waves % 1 < 0.5:
        findings.append(
            Finding(
                rule="tail-wave",
                severity="advice",
                title=f"The last wave is {100 * (waves % 1):.0f} % full",
                evidence=f"{ctas} CTAs over {SMS} SMs with {resident} resident each make {waves:.2f} waves",
                remedy="Choose blocks so that the CTAs fill whole waves, or make the kernel persistent",
                saving_us=0.2 * saving,
                source_file="triton_kernels/fused_moe.py",
                source_line=87,
            )
        )
    if tokens == 1:
        findings.append(
            Finding(
                rule="launch-bound",
                severity="info",
                title="Launch latency is a third of the time",
                evidence="2.0 µs of the bound are launch",
                remedy="Fuse with the neighbouring kernel, or launch from a CUDA graph",
            )
        )
    speedup = 0.98 if tokens == 3072 else predicted_us / (1.04 * ceiling_us)
    recommended = None
    if saving > 0.5:
        recommended = Recommendation(
            configuration=better,
            latency=Latency(us=current_us / speedup, origin="predicted", source="analytical model"),
            speedup=speedup,
            p_speedup_10pct=0.83,
            reason="less padding, one more stage",
            triton_config=as_triton(better),
            table_entry={**better.parameters, "num_warps": better.num_warps, "num_stages": better.num_stages},
        )
    return LaunchReport(
        id=f"{op}-M{tokens}",
        kernel="fused_moe",
        problem=Problem(
            family="fused_moe",
            op=op,
            sizes={"M": tokens, "E": EXPERTS, "topk": TOPK, "H": HIDDEN, "N": INTERMEDIATE},
        ),
        configuration=now,
        configuration_source=f"table entry {tokens}",
        pipelines=tuple(pipelines),
        binding_pipeline=binding,
        config_binding_pipeline=config_binding,
        bound=Latency(us=bound_us, origin="specified", source="analytical model on specified throughput"),
        config_bound=Latency(us=config_us, origin="specified", source="analytical model on specified throughput"),
        predicted=Latency(
            us=predicted_us,
            origin="predicted",
            source="learned model",
            low_us=0.93 * predicted_us,
            high_us=1.08 * predicted_us,
            coverage=0.8,
        ),
        ceiling=Latency(us=ceiling_us, origin="predicted", source="learned model, best of 1,920 configurations"),
        ceiling_configuration=better,
        measured=Latency(
            us=current_us,
            origin="measured",
            source="rows.csv",
            low_us=0.99 * current_us,
            high_us=1.01 * current_us,
            coverage=0.99,
        )
        if measured
        else None,
        measured_rounds=rounds(current_us) if measured else None,
        occupancy=Occupancy(
            ctas=ctas,
            resident_ctas_per_sm=resident,
            limiter="shared-memory",
            waves=waves,
            last_wave_fill=waves % 1,
            registers_per_thread=168,
            registers_origin="estimated",
            shared_memory_bytes=73728,
            spill_bytes=None,
            k_iterations=depth // 64,
        ),
        efficiency=bound_us / current_us,
        headroom=current_us / ceiling_us - 1,
        p_speedup_10pct=0.83,
        gap=tuple(gap),
        findings=tuple(findings),
        passed_rules=("cannot-launch", "clamped-block-k", "tile-too-small", "group-size"),
        recommendation=recommended,
    )


def rounds(us: float) -> MeasuredRounds:
    """Ten rounds around a latency, one of them throttled and dropped."""
    values = [
        Round(
            samples_us=tuple(us * (1 + 0.004 * ((7 * number + sample) % 5 - 2)) for sample in range(5)),
            sm_clock_mhz=1980.0 - 15 * (number % 3) if number != 6 else 1305.0,
            discarded="SM clock below 75 % of the default" if number == 6 else None,
        )
        for number in range(10)
    ]
    return MeasuredRounds(rounds=tuple(values), noise_floor=0.013, source="measured on this machine")


def search(of: LaunchReport) -> SearchReport:
    """A search with every kind of outcome."""
    states = ("complete", "complete", "failed: out of shared memory", "pruned", "complete")
    trials = []
    for number in range(40):
        state = states[number % len(states)]
        latency = of.bound.us * (1.3 + 0.9 / (1 + number) + 0.2 * (number % 7)) if state == "complete" else None
        block = (16, 32, 64, 128)[number % 4]
        trials.append(
            SearchTrial(
                number=number,
                configuration=configuration(block, stages=2 + number % 3),
                state=state,
                latency_us=latency,
                predicted_us=None if latency is None else 1.05 * latency,
            )
        )
    return SearchReport(
        launch=of.id,
        sampler="TPE, seeded with the model's ranking",
        stopped_because="within 3 % of the ceiling",
        trials=tuple(trials),
        failures={"out of shared memory": 8, "pruned: predicted 2x the best": 8},
        study_name="fused_moe w13",
    )


def result(
    tokens: tuple[int, ...] = TOKENS,
    ops: tuple[str, ...] = ("w13", "w2"),
    *,
    measured: bool = False,
    searched: bool = False,
) -> Result:
    """The result of `advise` on a table, or on a kernel where `tokens` is one size."""
    launches = tuple(launch(size, op, measured=measured) for op in ops for size in tokens)
    current = sum((entry.measured or entry.predicted or entry.bound).us for entry in launches)
    ceiling = sum((entry.ceiling or entry.bound).us for entry in launches)
    bound = sum(entry.bound.us for entry in launches)
    touched = tuple(entry.id for entry in launches if entry.recommendation)
    percent = 100 * ceiling / current if current else 100.0
    actions = (
        Action(
            title="Replace the table by the recommended one",
            detail=f"{len(touched)} of {len(launches)} launches change; blocks get smaller where experts see few tokens.",
            saving_us=0.7 * (current - ceiling),
            origin="predicted",
            launches=touched,
            snippet=launches[0].recommendation.triton_config if launches and launches[0].recommendation else None,
        ),
        Action(
            title="Cure expert padding below M=1024",
            detail="Take BLOCK_SIZE_M=16 up to M=64 and 32 up to M=512.",
            saving_us=0.3 * (current - ceiling),
            origin="predicted",
            launches=touched[:6],
            rule="expert-padding",
        ),
        Action(
            title="Fill the last wave",
            detail="Make the kernel persistent.",
            saving_us=0.1 * (current - ceiling),
            origin="predicted",
            launches=touched[2:5],
            rule="tail-wave",
        ),
    )
    return Result(
        tool_version="0.1.0",
        command="advisor advise E=128,N=768,device_name=NVIDIA_H20.json --model Qwen3-30B-A3B",
        target="E=128,N=768,device_name=NVIDIA_H20.json",
        fingerprint=Fingerprint(
            mode="gpu" if measured else "offline",
            gpu="H20",
            gpu_uuid="GPU-00000000-1111-2222-3333-444444444444" if measured else None,
            driver="580.65.06" if measured else None,
            cuda="13.0" if measured else None,
            triton="3.9.0",
            python="3.11.2",
            sm_clock_mhz=1980.0 if measured else None,
            mig=False if measured else None,
        ),
        gpu="H20",
        gpu_figures=(
            SourcedFigure(name="num_sms", value=78, source="CUDA device query on an H20"),
            SourcedFigure(name="dram_bytes_per_s", value=4.0e12, source="NVIDIA H20 datasheet, 4.0 TB/s HBM3"),
            SourcedFigure(name="l2_bytes_per_s", value=5.5e12, source="https://example.com/chips/h20-microbenchmarks"),
            SourcedFigure(name="architecture", value="hopper", source="compute capability 9.0"),
        ),
        model="Qwen3-30B-A3B",
        verdict=Verdict(
            sentence=f"This table runs at {percent:.0f} % of what its kernel can reach on an H20; "
            f"changing {len(touched)} of {len(launches)} entries wins most of it.",
            current_us=current,
            ceiling_us=ceiling,
            bound_us=bound,
            percent_of_ceiling=percent,
            binding_pipeline="dram",
            origin="measured" if measured else "predicted",
            unknowns=(
                "Nothing was measured: every latency is a prediction.",
                "The routing is taken as uniform; a skewed one makes the busiest expert slower.",
            ),
        ),
        actions=actions if touched else (),
        launches=launches,
        table_findings=(
            Finding(
                rule="hole-in-table",
                severity="advice",
                title="No entry between M=4096 and the longest prefill",
                evidence="the last entry is M=4096; 8192 tokens run with it",
                remedy="Add entries for M=8192 and M=16384",
                scope="table",
            ),
        ),
        exports=(
            Export(name="E=128,N=768,device_name=NVIDIA_H20.json", kind="table", content='{\n    "64": {}\n}\n'),
            Export(name="configs.py", kind="triton-configs", content=as_triton(configuration(16)) + ",\n"),
        ),
        searches=tuple(search(entry) for entry in launches[:1]) if searched else (),
        warnings=("entry 3072 is slower with the recommended configuration of its neighbour",),
    )


def hostile() -> Result:
    """A result in which every text that can come from outside attacks the surface that shows it."""
    base = result((64, 128), ("w13",), measured=True, searched=True)
    bad = HOSTILE + ESCAPES
    first = base.launches[0]
    poisoned = replace(
        first,
        id=f'x" onmouseover="alert(1) {HOSTILE}',
        kernel=bad,
        problem=replace(first.problem, op=bad, dtype=HOSTILE),
        configuration=Configuration(parameters={bad: 1, "K": HOSTILE}),
        configuration_source=bad,
        findings=(
            replace(first.findings[0], title=bad, evidence=bad, remedy=bad, scope=bad, source_file=bad, source_line=3),
            replace(first.findings[0], rule=HOSTILE),
        ),
        passed_rules=(bad,),
        gap=tuple(replace(part, note=bad) for part in first.gap),
        faults=(bad,),
    )
    return replace(
        base,
        target=bad,
        command=f"advisor advise '{bad}'",
        gpu=HOSTILE,
        model=bad,
        fingerprint=replace(base.fingerprint, gpu=HOSTILE, driver=bad),
        gpu_figures=(SourcedFigure(name=bad, value=bad, source=bad),),
        verdict=replace(base.verdict, sentence=bad, binding_pipeline=HOSTILE, unknowns=(bad,)),
        actions=tuple(replace(entry, title=bad, detail=bad, snippet=f"```\n{bad}", rule=HOSTILE) for entry in base.actions),
        launches=(poisoned, *base.launches[1:]),
        table_findings=(replace(base.table_findings[0], title=bad, evidence=bad, rule=bad),),
        exports=(Export(name=bad, kind="table", content=f"````\n{bad}"),),
        searches=(replace(base.searches[0], sampler=bad, launch=poisoned.id, failures={bad: 1}, study_name=bad),),
        warnings=(bad,),
    )


def empty() -> Result:
    """A result without a single launch."""
    base = result((), ())
    return replace(base, table_findings=(), exports=(), warnings=(), launches=(), actions=())
