"""Compile kernels for GPUs that are not there, from source that is never run; those that were compiled are kept on disk.

The cache holds one compressed JSON per request, named by everything that decides it. Which targets the installed Triton compiles for is
listed nowhere, so they are found by compiling the smallest kernel: LLVM, Triton's passes and ptxas each know some of them; where one is
lacking, LLVM may end the compile process instead of saying so.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.compiled.compiler.answers import is_kept
from advisor.compiled.compiler.kernel import CompiledKernel, CompileError, CompileRequest, Resources, Target
from advisor.compiled.compiler.pool import Pool, borrowed
from advisor.gpus.hardware import list_gpus
from advisor.python_source.rebuild import rebuild
from advisor.python_source.source import parse_source
from advisor.system import triton_install
from advisor.system.errors import MissingDependencyError, NoSandboxError, UsageError
from advisor.system.settings import read_settings

MAX_BYTES = 64_000_000


def cache_folder() -> Path:
    """`compiled` in the cache folder that the environment names."""
    return read_settings().cache_dir / "compiled"


def read(key: str) -> dict[str, Any] | None:
    """The answer of an earlier run, or None; a damaged file counts as none."""
    path = cache_folder() / key[:2] / f"{key}.z"
    try:
        raw = path.read_bytes()
        decoder = zlib.decompressobj()
        value = json.loads(decoder.decompress(raw, MAX_BYTES))
    except (OSError, ValueError, RecursionError, zlib.error):
        return None
    return value if isinstance(value, dict) else None


def write(key: str, answer: dict[str, Any]) -> None:
    """Keep an answer; a cache that cannot be written to is no failure."""
    path = cache_folder() / key[:2] / f"{key}.z"
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(zlib.compress(json.dumps(answer).encode(), 1))
        temporary.replace(path)
    except OSError:
        return


Progress = Callable[[int, int], None]
"""Called with how many requests are done, and how many there are."""

NOT_KEPT = ("timeout", "crash", "missing", "refused", "absent", "unsure", "interfered", "walls")
"""Failures that are not kept: the machine's fault, maybe, or this program's own rules, which the cache does not know the version of."""
NO_VERDICT = {
    "timeout": "nothing is known of this configuration; smaller tiles compile sooner, and so does a machine with less to do",
    "crash": "nothing is known of this configuration; run it again with more room and memory, or smaller tiles",
}
"""What to do where the compiler did not come to an end: no word on the kernel."""
_RESOURCE = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d{1,9})\b")


def version() -> str:
    """Version of the triton that compiles.

    Raises:
        MissingDependencyError: There is none, here or in the Python that the environment names.
    """
    found = triton_install.version()
    if found is None:
        if (old := triton_install.too_old()) is not None:
            limit = "Python " + ".".join(map(str, triton_install.OLDEST_PYTHON)) + " or newer"
            raise MissingDependencyError("ADVISOR_TRITON_PYTHON: that Python is too old", old, limit, "name a newer one")
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
        NoSandboxError: A wall that stood (`pool.is_sealed`) does not stand any more.
    """
    triton = version()
    answers: list[CompiledKernel | CompileError | None] = [None] * len(requests)
    open_: list[int] = []
    for i, request in enumerate(requests):
        found = read(request.key(triton))
        if found is None and not request.sass:
            found = read(replace(request, sass=True).key(triton))
        if found is None or found.get("kind") in NOT_KEPT or not is_kept(found, request.rebuilt.kernel, request.only):
            open_.append(i)
        else:
            answers[i] = _answer(request, found)
    finished = len(requests) - len(open_)
    if progress is not None:
        progress(finished, len(requests))

    def done(position: int, answer: dict[str, Any]) -> None:
        nonlocal finished
        i = open_[position]
        if answer.get("kind") not in NOT_KEPT and answer.get("walled"):  # what had no walls around it could have been anybody's
            write(requests[i].key(triton), answer)
        if answer.get("kind") == "missing":
            raise MissingDependencyError("compiling a kernel needs triton, which cannot be imported", answer["error"])
        if answer.get("kind") == "walls":
            raise NoSandboxError(
                "a layer of the sandbox does not work, so no kernel is compiled", answer["error"], None, "see `advisor doctor`"
            )
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
        if kind == "interfered":
            return CompileError(f"{kernel}: {answer['error']}", None, None, "read it before anybody runs it", kind)
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
    """What one CTA of a compiled request holds, from a worker's answer: what `cuobjdump -res-usage` says of the cubin, or the metadata of
    AMD's assembly.

    Few registers beside thousands of spilled bytes are no misreading: where a tile's accumulators alone exceed 255 registers a thread,
    ptxas may give up on keeping any (fused-MoE tiles of 128 x 256 on 4 warps for sm_80, ptxas 12.8 and 12.9: `Used 32 registers, 4120
    bytes stack frame, 9956 bytes spill stores`, and no register above R29 in the machine code).
    """
    metadata, asm, target = answer["metadata"], answer["asm"], request.target
    text = answer.get("tools", {}).get("resources", "")
    block = text.split(f"Function {metadata.get('name', request.rebuilt.kernel)}:", 1)[-1]
    found = {k: int(v) for k, v in _RESOURCE.findall(block.split("Function ")[0])}
    registers, spill = found.get("REG"), None
    if registers is not None:
        spill = found.get("STACK", 0) + found.get("LOCAL", 0)
    assembly = asm.get("amdgcn", "")
    if assembly:
        registers = _amd(assembly, "vgpr_count")
        spills = _amd(assembly, "vgpr_spill_count")
        spill = spills * 4 if spills is not None else _amd(assembly, "private_segment_fixed_size")
    reserved = re.search(r"\.reqntid\s+(\d{1,9})\b", asm.get("ptx", ""))
    warps = int(metadata.get("num_warps") or request.options.get("num_warps") or 4)
    if reserved:  # with warp specialization more warps are launched than num_warps says
        warps = max(warps, int(reserved.group(1)) // target.warp_size)
    return Resources(
        registers=registers,
        spill_bytes=spill,
        shared_memory_bytes=int(metadata.get("shared") or 0),
        num_warps=warps,
    )


def _amd(assembly: str, name: str) -> int | None:
    metadata = assembly.rpartition(".amdgpu_metadata")[2]  # the last one is the compiler's own: inline assembly stands before it
    found = re.search(rf"^\s*\.{name}:\s*(\d{{1,9}})$", metadata, re.MULTILINE)
    return int(found.group(1)) if found else None


SMALLEST = "import triton\nimport triton.language as tl\n@triton.jit\ndef smallest(x):\n    tl.store(x, 1)\n"


def check_target(target: Target, pool: Pool) -> None:
    """Check that the installed Triton compiles anything for a target: asked where a kernel did not compile, which may be its own fault.

    Raises:
        UsageError: It compiles nothing for this one, and something for others: the targets of `ceilings/` that work are named.
    """
    if supported([target], pool):
        return
    known = {Target.of(gpu): None for gpu in list_gpus()}
    if working := supported(sorted(known, key=lambda each: (each.backend, str(each.arch).zfill(3))), pool):
        names = ", ".join(each.name for each in working)
        raise UsageError(f"Triton {version()} does not compile for this target", target.name, f"one that it does, such as {names}")


def supported(targets: Sequence[Target], pool: Pool) -> list[Target]:
    """Those for which the smallest kernel compiles. None at all, where no compiler can run on this machine."""
    rebuilt = rebuild(parse_source(SMALLEST, "smallest.py"), "smallest")
    requests = [CompileRequest(rebuilt=rebuilt, signature={"x": "*fp32"}, constexprs={}, target=each, sass=False) for each in targets]
    answers = compile_kernels(requests, pool)
    return [target for target, answer in zip(targets, answers, strict=True) if not isinstance(answer, CompileError)]
