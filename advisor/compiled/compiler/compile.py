"""Compile kernels for GPUs that are not there, from source that is never run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from advisor.compiled.compiler import cache
from advisor.compiled.compiler.errors import CompileError
from advisor.compiled.compiler.kernel import CompiledKernel, CompileRequest, Resources, Target
from advisor.compiled.compiler.pool import Pool, borrowed
from advisor.system import triton_install
from advisor.system.errors import MissingDependencyError

Progress = Callable[[int, int], None]
"""Called with how many requests are done, and how many there are."""

NOT_KEPT = ("timeout", "crash", "missing", "refused", "absent")
"""Failures that are not kept: the machine's fault, maybe, or this program's own rules, which the cache does not know the version of."""
NO_VERDICT = {
    "timeout": "nothing is known of this configuration; smaller tiles compile sooner, and so does a machine with less to do",
    "crash": "nothing is known of this configuration; run it again with more room and memory, or smaller tiles",
}
"""What to do where the compiler did not come to an end: no word on the kernel."""
_RESOURCE = re.compile(r"\b(REG|STACK|SHARED|LOCAL|BAR):(\d+)")


def version() -> str:
    """Version of the triton that compiles.

    Raises:
        MissingDependencyError: There is none, here or in the Python that the environment names.
    """
    found = triton_install.version()
    if found is None:
        if (python := triton_install.named()) is not None:
            remedy = "correct or unset it, or pip install triton for it"
            raise MissingDependencyError("ADVISOR_TRITON_PYTHON: no triton is found with it", python, "a Python that has triton", remedy)
        raise MissingDependencyError("compiling a kernel needs triton, which is not installed", remedy="pip install triton")
    return found


def compile_kernel(request: CompileRequest, pool: Pool | None = None) -> CompiledKernel:
    """Compile one kernel, or take it from the cache.

    Raises:
        CompileError: The compiler refuses it; one line says why.
        MissingDependencyError: triton is not installed.
    """
    answer = compile_kernels([request], pool)[0]
    if isinstance(answer, CompileError):
        raise answer
    return answer


def compile_kernels(
    requests: Sequence[CompileRequest], pool: Pool | None = None, progress: Progress | None = None
) -> list[CompiledKernel | CompileError]:
    """Compile many kernels; each answer stands where its request stands, failures as values.

    Raises:
        MissingDependencyError: triton is not installed.
    """
    triton = version()
    answers: list[CompiledKernel | CompileError | None] = [None] * len(requests)
    open_: list[int] = []
    for i, request in enumerate(requests):
        found = cache.read(request.key(triton))
        if found is None and not request.sass:
            found = cache.read(replace(request, sass=True).key(triton))
        if found is None or found.get("kind") in NOT_KEPT:
            open_.append(i)
        else:
            answers[i] = _answer(request, found)
    finished = len(requests) - len(open_)
    if progress is not None:
        progress(finished, len(requests))

    def done(position: int, answer: dict[str, Any]) -> None:
        nonlocal finished
        i = open_[position]
        if answer.get("kind") not in NOT_KEPT:
            cache.write(requests[i].key(triton), answer)
        if answer.get("kind") == "missing":
            raise MissingDependencyError("compiling a kernel needs triton, which cannot be imported", answer["error"])
        answers[i] = _answer(requests[i], answer)
        finished += 1
        if progress is not None:
            progress(finished, len(requests))

    if open_:
        with borrowed(pool) as workers:
            workers.map([requests[i].message() for i in open_], done)
    return [answer for answer in answers if answer is not None]


def _answer(request: CompileRequest, answer: Mapping[str, Any]) -> CompiledKernel | CompileError:
    if "error" in answer:
        kind, kernel, target = str(answer.get("kind")), request.rebuilt.kernel, request.target.name
        if kind in NO_VERDICT:
            return CompileError(f"{kernel} was not compiled for {target}", answer["error"], None, NO_VERDICT[kind], kind)
        return CompileError(f"{kernel} does not compile for {target}", answer["error"], kind=kind)
    asm = answer["asm"]
    return CompiledKernel(
        name=request.rebuilt.kernel,
        target=request.target,
        triton_version=str(answer["triton"]),
        ttir=asm.get("ttir", ""),
        ttgir=asm.get("ttgir", ""),
        ptx=asm.get("ptx", ""),
        amdgcn=asm.get("amdgcn", ""),
        sass=answer.get("tools", {}).get("sass", ""),
        resources=resources_of(request, answer),
        metadata=answer["metadata"],
        origins=request.rebuilt.origins,
        signature=request.signature,
        constexprs=request.constexprs,
        options=request.options,
    )


def resources_of(request: CompileRequest, answer: Mapping[str, Any]) -> Resources:
    """What one CTA of a compiled request holds, from a worker's answer."""
    metadata = answer["metadata"]
    name = str(metadata.get("name", request.rebuilt.kernel))
    return read_resources(name, request.target, metadata, answer["asm"], answer.get("tools", {}), request.options)


def read_resources(
    name: str, target: Target, metadata: Mapping[str, Any], asm: Mapping[str, str], tools: Mapping[str, str], options: Mapping[str, Any]
) -> Resources:
    """What one CTA holds, from what `cuobjdump -res-usage` says of the cubin, or from the metadata of AMD's assembly.

    Few registers beside thousands of spilled bytes are no misreading: where a tile's accumulators alone exceed 255 registers a thread,
    ptxas may give up on keeping any (fused-MoE tiles of 128 x 256 on 4 warps for sm_80, ptxas 12.8 and 12.9: `Used 32 registers, 4120
    bytes stack frame, 9956 bytes spill stores`, and no register above R29 in the machine code).
    """
    text = tools.get("resources", "")
    block = text.split(f"Function {name}:", 1)[-1]
    found = {k: int(v) for k, v in _RESOURCE.findall(block.split("Function ")[0])}
    registers, spill = found.get("REG"), None
    if registers is not None:
        spill = found.get("STACK", 0) + found.get("LOCAL", 0)
    assembly = asm.get("amdgcn", "")
    if assembly:
        registers = _amd(assembly, "vgpr_count")
        spills = _amd(assembly, "vgpr_spill_count")
        spill = spills * 4 if spills is not None else _amd(assembly, "private_segment_fixed_size")
    reserved = re.search(r"\.reqntid\s+(\d+)", asm.get("ptx", ""))
    warps = int(metadata.get("num_warps") or options.get("num_warps") or 4)
    if reserved:  # with warp specialization more warps are launched than num_warps says
        warps = max(warps, int(reserved.group(1)) // target.warp_size)
    return Resources(
        registers=registers,
        spill_bytes=spill,
        shared_memory_bytes=int(metadata.get("shared") or 0),
        num_warps=warps,
        barriers=found.get("BAR"),
    )


def _amd(assembly: str, name: str) -> int | None:
    found = re.search(rf"^\s*\.{name}:\s*(\d+)", assembly, re.MULTILINE)
    return int(found.group(1)) if found else None
