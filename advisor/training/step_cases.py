"""Measured whole steps (`data/steps`): read, told as requests, and priced once, so that constants can be fitted and judged on them."""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from advisor.gpus.hardware import GpuSpec, match_device_name
from advisor.learned.base import Predictor
from advisor.learned.library.series_model import number
from advisor.result.step import StepTime
from advisor.rows.silicon import GPUS
from advisor.steps.collectives import Constants
from advisor.steps.model_config import Architecture, architecture, load_architecture, with_experts_in
from advisor.steps.step import Priced, StepRequest, price
from advisor.steps.workload import Load, Split
from advisor.system.errors import InputError, UsageError

SERVING, FP32, SERVED = "serving.csv", "fp32_models.csv", "served.csv.gz"
PEERS = ("pipeweave", "neusight", "habitat", "linear", "roofline")
DECODE, PREFILL = "serving decode", "serving prefill"
TOTAL = "serving total"
SERVED_POINT, CACHED = "served point", "served point, prompts in the cache"
PREFILLS_BETWEEN = {"vllm": (1.0, 0.8), "sglang": (0.5, 0.0)}
"""Of the prefills of a user's companions, those between its own tokens, and what of a decode step each saves. vLLM computes a chunk of the
prompts that come in with every step of the others, reads the weights once for both, and its users drift apart: all of them. SGLang computes
all prompts that wait before it goes on, and users who came together stay together: those after its own."""
HOST_US, AHEAD = 30.0, 14_00
"""What vLLM's host took for each user between two steps, and the version, 0.14, from which it works a step ahead of the GPU."""
POINT = ("system", "backend", "model_path", "precision", "tp_size", "moe_ep_size", "batch_size", "isl", "osl")
"""Columns that make a served point; rows that differ in others are repetitions."""
INFERENCE, TRAINING, COMPILED, PARALLEL = "fp32 inference", "fp32 training", "torch.compile", "four GPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A measured step: what it belongs to, what was measured and what others predicted, microseconds, and our own priced operators.

    `run` names the run that a prefill and its decode steps share, `steps` how often the step was made in it.
    """

    suite: str
    gpu: str
    model: str
    run: str
    steps: int
    measured_us: float
    peers: dict[str, float]
    priced: Priced


def is_steps_folder(path: str | Path) -> bool:
    """Whether a folder holds measured whole steps."""
    return any((Path(path) / name).is_file() for name in (SERVING, FP32))


def read_cases(
    folder: str | Path, predictor: Predictor, fitted: Constants, progress: Callable[[str], None] = lambda text: None
) -> list[Case]:
    """Every measured step of a folder whose GPU is known and whose engine runs it; the others are told to `progress`."""
    cases: list[Case] = []
    for suite, gpu, model, run, steps, step, us, peers in (*_serving(Path(folder), progress), *_fp32(Path(folder), progress)):
        progress(f"{suite}: {model} on {gpu.name}")
        try:
            priced = price(step.operators(), gpu, predictor, fitted, engine=step.engine, eager=step.without_graph)
        except UsageError as error:
            progress(f"{suite}: {model} on {gpu.name} left out: {error}")
            continue
        cases.append(Case(suite=suite, gpu=gpu.name, model=model, run=run, steps=steps, measured_us=us, peers=peers, priced=priced))
    return cases


_Row = tuple[str, GpuSpec, str, str, int, StepRequest, float, dict[str, float]]


def _rows(path: Path, progress: Callable[[str], None]) -> Iterator[tuple[dict[str, str], GpuSpec]]:
    if not path.is_file():
        return
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            gpu = match_device_name(row["gpu"])
            if gpu is None:
                progress(f"{path.name}: no description of {row['gpu']}: its rows are left out")
            else:
                yield row, gpu


def _serving(folder: Path, progress: Callable[[str], None]) -> Iterator[_Row]:
    """Prefill and decode of each served run; the decode step in the middle of it."""
    path = folder / "serving_loads.json"
    loads: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for row, gpu in _rows(folder / SERVING, progress):
        load = loads.get(f"{row['model']}_{row['load']}")
        if load is None:
            progress(f"{SERVING}: no load {row['model']}_{row['load']}: left out")
            continue
        steps = int(row["output_tokens"])
        model = _served_model(row["model"], load["model_params"])
        split = Split(tensor=int(row["tp"]), pipeline=int(row["pp"]))
        middle = [max(keys - steps // 2, 1) for keys in load["decode_kv_lengths_last"]]
        requests = {
            PREFILL: ("prefill", Load(prompts=tuple((length, length) for length in load["prompt_lengths"])), row["prefill_ms"], 1),
            DECODE: ("decode", Load(contexts=tuple(middle)), row["decode_step_ms"], steps - 1),
        }
        run = f"{gpu.name} tp {row['tp']} {row['model']} {row['load']}"
        for suite, (which, request, ms, times) in requests.items():
            if not ms:
                continue
            peers = {name: 1e3 * float(row[f"{name}_{which}_ms"]) for name in PEERS if row.get(f"{name}_{which}_ms")}
            step = StepRequest(model=model, load=request, split=split, engine=row["engine"])
            yield suite, gpu, row["model"], run, times, step, 1e3 * float(ms), peers


def _served_model(name: str, sizes: dict[str, Any]) -> Architecture:
    try:
        return load_architecture(name)
    except UsageError:  # by its sizes; Qwen3 normalises queries and keys
        return architecture({**sizes, "model_type": "qwen3" if name.lower().startswith("qwen3") else "llama"}, name)


def _fp32(folder: Path, progress: Callable[[str], None]) -> Iterator[_Row]:
    for row, gpu in _rows(folder / FP32, progress):
        if not row["step_ms"]:  # it ran out of memory
            continue
        config = folder / "fp32_configs" / f"{row['model']}.json"
        model = load_architecture(str(config) if config.is_file() else row["model"])
        kind, ranks = _parallel(row["parallel"])
        replicas = ranks if kind == "dp" else 1
        prompts = ((int(row["sequence"]),) * 2,) * max(int(row["batch"]) // replicas, 1)
        step = StepRequest(
            model=model,
            load=Load(prompts=prompts),
            split=Split(tensor=ranks if kind == "tp" else 1, pipeline=ranks if kind == "pp" else 1),
            engine="inductor" if row["compiled"] == "True" else "torch",
            dtype="fp32",
            training=row["mode"] == "train",
            replicas=replicas,
        )
        suite = PARALLEL if kind else COMPILED if step.engine == "inductor" else TRAINING if step.training else INFERENCE
        peers = {"neusight": 1e3 * float(row["neusight_step_ms"])} if row.get("neusight_step_ms") else {}
        run = " ".join(row[name] for name in ("gpu", "model", "mode", "sequence", "batch", "compiled", "parallel"))
        yield suite, gpu, row["model"], run, 1, step, 1e3 * float(row["step_ms"]), peers


def _parallel(text: str) -> tuple[str, int]:
    """`dp4` or `tensor parallel, 4`: which of dp, tp and pp, and over how many GPUs (four where it does not say); ("", 1) for one."""
    match = re.match(r"\s*(d|t|p)[a-z _]*?(\d+)?", text.lower())
    digits = re.search(r"\d+", text)
    return (f"{match[1]}p", int(digits[0]) if digits else 4) if match else ("", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A served benchmark at a concurrency: its time to the first and per output token, microseconds, beside its decode step and prefill,
    priced, and what the host adds to a step for each user."""

    gpu: str
    model: str
    run: str
    users: int
    tokens: int
    measured_us: float
    first_us: float
    host_us: float
    decode: Priced
    prefill: Priced

    @property
    def cached(self) -> bool:
        """Whether users get more than the bounds allow: their prompts were computed before (prefix caching)."""
        least = self.users * self.prefill.bound_us + self.tokens * self.decode.bound_us
        return least > self.first_us + self.tokens * self.measured_us

    def time(self, fitted: Constants) -> StepTime:
        """Time per output token: a decode step, and the prefills of others that stand between two of them."""
        decode, prefill = self.decode.time(fitted), self.prefill.time(fitted)
        between, saved = PREFILLS_BETWEEN[self.decode.engine]
        share = between * (self.users - 1) / self.tokens
        more = self.users * self.host_us - share * saved * min(decode.us, prefill.us)
        us, high = decode.us + share * prefill.us + more, decode.high_us + share * prefill.high_us + more
        half = math.hypot(math.log(high / us), fitted.served.get(self.model, fitted.served[""]))
        return StepTime(us=us, low_us=us * math.exp(-half), high_us=us * math.exp(half))


def read_points(path: Path, predictor: Predictor, fitted: Constants, progress: Callable[[str], None] = lambda text: None) -> list[Point]:
    """Served benchmarks of vLLM and SGLang, not split further (`agg`, one attention replica), whose model and types are
    known; repetitions are one, with their median."""
    measured: dict[tuple[str, ...], list[tuple[float, ...]]] = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            whole = row["mode"] == "agg" and float(row["attention_dp_size"] or 1) <= 1 and float(row["tp_size"]) <= 8
            if whole and row["backend"] in ("vllm", "sglang"):
                host_us = HOST_US if row["backend"] == "vllm" and 0 < number(row["backend_version"]) < AHEAD else 0.0
                times = 1e3 * float(row["silicon_tpot_ms"]), 1e3 * float(row["silicon_ttft_ms"] or 0), host_us
                measured[tuple(row[name] for name in POINT)].append(times)
    points = []
    for (system, engine, name, precision, ranks, experts, batch, prompt, output), us in measured.items():
        gpu = match_device_name(GPUS.get(system, system))
        try:
            model = load_architecture(name.removesuffix("-FP8"))
            if gpu is None:
                continue
            if precision == "fp4":
                model = with_experts_in(model, "nvfp4")
            split = Split(tensor=int(float(ranks)), experts=float(experts or 1) > 1)
            dtype = "fp8" if precision == "fp8" else model.dtype
            requests = [
                StepRequest(model=model, load=load, split=split, engine=engine, dtype=dtype)
                for load in (
                    Load(contexts=(int(prompt) + int(output) // 2,) * int(float(batch))),
                    Load(prompts=((int(prompt), int(prompt)),)),
                )
            ]
            decode, prefill = (
                price(request.operators(), gpu, predictor, fitted, engine=engine, eager=request.without_graph) for request in requests
            )
        except (UsageError, InputError) as error:
            progress(f"{SERVED}: {name} on {system} left out: {error}")
            continue
        progress(f"{SERVED}: {name} on {gpu.name}")
        run = f"{gpu.name} tp {split.tensor} {model.name} {engine} {batch.removesuffix('.0')} x {prompt}+{output}"
        token, first, host = map(median, zip(*us, strict=True))
        points.append(
            Point(
                gpu=gpu.name,
                model=model.name,
                run=run,
                users=int(float(batch)),
                tokens=int(output),
                measured_us=token,
                first_us=first,
                host_us=host,
                decode=decode,
                prefill=prefill,
            )
        )
    return points
