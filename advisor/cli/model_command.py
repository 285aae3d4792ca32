"""Predict one whole step of a model: every operator, the collectives and the gaps, and which kernel to work on first.

MODEL is a Hugging Face config.json (or the folder it lies in) or a bundled name, such as Qwen3-30B-A3B; nothing of the model is imported.
--prefill gives the lengths of one batch's prompts, --batch and --context (or --contexts) one decode step; both together are one mixed step,
as chunked prefill makes them.

examples:
  advisor model Qwen3-30B-A3B --gpu H200 --prefill 2048
  advisor model Qwen3-30B-A3B --gpu H200 --batch 8 --context 4096
  advisor model Qwen3-30B-A3B --gpu L40S --tp 4 --batch 8 --bus-bandwidth 3.7
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import __version__
from advisor.cli import options
from advisor.system.errors import UsageError
from advisor.system.resources import phrase

if TYPE_CHECKING:
    from advisor.gpus.hardware import GpuSpec
    from advisor.result.step import StepResult
    from advisor.steps.workload import Load


CONTEXT = 4096
"""Keys of each decoding sequence where none are given: the middle of the lengths that serving benchmarks use."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor model`."""
    parser.add_argument("model", metavar="MODEL", help="a config.json, or a bundled name")
    parser.add_argument("--gpu", action="append", required=True, metavar="NAME", help="GPU, or several: A,B (see `advisor gpus`)")
    parser.add_argument("--prefill", type=options.positive_integers, metavar="LENGTHS", help="prompt lengths of one batch, as in 2648,3740")
    parser.add_argument("--batch", type=options.positive_integers, metavar="B", help="sequences that decode; several, 1,8,32, are a curve")
    parser.add_argument("--context", type=options.positive_integer, metavar="N", help=f"keys that each of them sees (default: {CONTEXT})")
    parser.add_argument("--contexts", type=options.positive_integers, metavar="LENGTHS", help="those of each sequence, as in 2900,3100")
    parser.add_argument(
        "--tp",
        "-tp",
        "--tensor-parallel",
        "--tensor-parallel-size",
        type=options.positive_integer,
        default=1,
        metavar="N",
        help="tensor parallel ranks",
    )
    parser.add_argument(
        "--bus-bandwidth",
        type=float,
        metavar="GBPS",
        help="what the host passes between GPUs over PCIe, GB/s: nccl-tests' busbw of large messages (default: a share of the link)",
    )
    parser.add_argument("--pp", "--pipeline-parallel-size", type=options.positive_integer, default=1, metavar="N", help="pipeline stages")
    parser.add_argument("--ep", "--enable-expert-parallel", action="store_true", help="ranks hold whole experts, not slices of each")
    parser.add_argument("--dp", type=options.positive_integer, default=1, metavar="N", help="data-parallel copies of a training step")
    parser.add_argument("--train", action="store_true", help="forward and backward of --prefill LENGTHS (engines torch and inductor)")
    parser.add_argument(
        "--engine",
        choices=("vllm", "sglang", "torch", "inductor"),
        default="vllm",
        help="who launches the kernels; inductor is torch.compile (default: vllm)",
    )
    parser.add_argument(
        "--stack", type=options.stack, metavar="NAME[:VERSION]", help="vllm or sglang, and its version, as in vllm:0.24, for --engine"
    )
    parser.add_argument("--eager", "--enforce-eager", "--disable-cuda-graph", action="store_true", help="no CUDA graphs")
    parser.add_argument(
        "--dtype",
        type=_operand_type,
        metavar="D",
        help="of the products' operands, or of the experts alone, nvfp4 or mxfp4 (default: as the model is stored)",
    )
    parser.add_argument("--weights", metavar="FILE", help="weights that `advisor train` wrote (default: those shipped)")
    parser.add_argument("--measured", metavar="TRACE", help="a torch profiler trace of this step (.json or .json.gz), to stand beside it")
    parser.add_argument("--output", metavar="DIR", help="also write DIR/model.html and DIR/model.json, or FILE.html and FILE.json")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def _operand_type(text: str) -> str:
    from advisor.steps.model_config import FOUR_BITS

    return text.lower() if text.lower() in FOUR_BITS else options.operand_type(text)


def _with_host(gpu: GpuSpec, bandwidth: float) -> GpuSpec:
    if not 0.1 <= bandwidth <= 1000:
        raise UsageError("--bus-bandwidth", f"{bandwidth:g}", "0.1 to 1000 GB/s", "give what nccl-tests prints as busbw")
    if gpu.fabric_bytes_per_s is not None:
        raise UsageError(
            f"--bus-bandwidth is of hosts, and {gpu.name} has links of its own", f"{bandwidth:g}", "GPUs over PCIe", "leave it out"
        )
    return dataclasses.replace(gpu, host_bytes_per_s=bandwidth * 1e9)


def run(arguments: argparse.Namespace) -> int:
    """Predict and print."""
    from advisor.advising.options import read_stack
    from advisor.gpus.hardware import load_gpu
    from advisor.learned import load_predictor
    from advisor.rendering.step_text import steps_text
    from advisor.steps.collectives import ENGINES
    from advisor.steps.model_config import FOUR_BITS, load_architecture, with_experts_in
    from advisor.steps.step import StepRequest, predict_step
    from advisor.steps.trace import read_trace, with_measured
    from advisor.steps.workload import Split

    loads = _loads(arguments)
    model = load_architecture(arguments.model)
    if arguments.dtype in FOUR_BITS:
        model, arguments.dtype = with_experts_in(model, arguments.dtype), None
    split = Split(tensor=arguments.tp, pipeline=arguments.pp, experts=arguments.ep)
    gpus = [load_gpu(name) for name in options.gpu_names(arguments.gpu)]
    if arguments.bus_bandwidth is not None:
        gpus = [_with_host(gpu, arguments.bus_bandwidth) for gpu in gpus]
    halved = model.dtype == "fp32" and (arguments.stack or arguments.engine in ENGINES)  # the engines load such weights in 16 bits
    predictor = load_predictor(arguments.weights)
    engine, version = read_stack(arguments.stack) if arguments.stack else (arguments.engine, "")
    command = shlex.join(["advisor", *sys.argv[1:]])
    results = [
        predict_step(
            StepRequest(
                model=model,
                load=load,
                split=split,
                engine=engine,
                version=version,
                dtype=arguments.dtype or ("bf16" if halved else None),
                eager=True if arguments.eager else None,
                training=arguments.train,
                replicas=arguments.dp,
            ),
            gpu,
            predictor,
            command,
        )
        for gpu in gpus
        for load in loads
    ]
    if arguments.batch and not arguments.context:
        assumed = phrase("step.context", context=f"{CONTEXT:,}")
        results = [dataclasses.replace(result, caveats=(assumed, *result.caveats)) for result in results]
    if arguments.measured:
        if len(results) > 1:
            raise UsageError("--measured is of one step", f"{len(results)} steps", "one GPU and one batch", "name one of each")
        results = [with_measured(results[0], read_trace(arguments.measured))]
    if arguments.output:
        write_steps(results, Path(arguments.output), "model.html", "model.json")
    print(as_json(results) if arguments.format == "json" else steps_text(results, options.terminal_width()))
    return 0


def write_steps(results: Sequence[StepResult], output: Path, page: str, document: str) -> Path:
    """Write the page and the JSON document of steps, under these names in a folder, or as `output` names the page; the page's path."""
    from advisor.rendering.step_text import step_page

    written, path = options.page_and_document(output, page, document)
    options.write_text(written, step_page(results, __version__))
    options.write_text(path, as_json(results))
    return written


def as_json(results: Sequence[StepResult]) -> str:
    """One step as an object, several as a list."""
    from advisor.result.step import STEP_SCHEMA_VERSION

    documents = [{"schema_version": STEP_SCHEMA_VERSION, **dataclasses.asdict(result)} for result in results]
    return json.dumps(documents[0] if len(documents) == 1 else documents, indent=2, ensure_ascii=False)


def _loads(arguments: argparse.Namespace) -> list[Load]:
    """The steps that are asked for: one, or one per batch size.

    Raises:
        UsageError: Nothing is asked for, or the lengths and the batch contradict each other.
    """
    from advisor.steps.workload import Load

    prompts = tuple((length, length) for length in arguments.prefill or ())
    if arguments.contexts:
        if arguments.context or arguments.batch not in (None, [len(arguments.contexts)]):
            raise UsageError("--contexts says how many sequences decode, and what each sees", None, None, "leave out --batch and --context")
        return [Load(prompts=prompts, contexts=tuple(arguments.contexts))]
    if arguments.context and not arguments.batch:
        raise UsageError("--context says what each decoding sequence sees", None, "--batch too", "as in --batch 64 --context 4096")
    if arguments.batch:
        return [Load(prompts=prompts, contexts=(arguments.context or CONTEXT,) * batch) for batch in arguments.batch]
    if not prompts:
        raise UsageError("no step is named", None, "--prefill LENGTHS, or --batch B --context N", "give one, or both for a mixed step")
    return [Load(prompts=prompts)]
