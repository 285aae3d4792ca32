"""What the compiler makes of the bundled fused-MoE kernel over its configuration space: a table for `ceilings/`.

    python tests/bench/resource_table.py -o ceilings/compiled/fused_moe.csv.gz

compiles every configuration whose operand buffers can fit the target's shared memory (GROUP_SIZE_M only reorders CTAs, so one value
stands for all), needs no GPU, and takes about half a second a row with Triton 3.6, twice that with 3.9. A file that is there already is
continued. Columns: target, the configuration, registers per thread, spill_bytes, shared_memory_bytes, the matrix instruction, and the
static instruction counts of the machine code's hottest loop by class.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from advisor.compiled.compiler.kernel import CompileError
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.assembly import read_facts
from advisor.compiled.launches.described import described_launch
from advisor.compiled.launches.launch import compile_launch
from advisor.compiled.launches.target import compile_target
from advisor.pipelines.space import SPACES
from advisor.python_source.source import SourceFile, read_source
from advisor.system.resources import folder
from advisor.tables.launchability import shared_memory_bytes

TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
LARGEST_SHARED_MEMORY_BYTES = {
    "sm_80": 163 * 1024,
    "sm_86": 99 * 1024,
    "sm_89": 99 * 1024,
    "sm_90": 227 * 1024,
    "sm_100": 227 * 1024,
    "sm_120": 99 * 1024,
}
"""The most one CTA may have. Source: CUDA C++ Programming Guide, technical specifications per compute capability."""

CONFIGURATION = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps", "num_stages")
CLASSES = ("tensor", "shared", "global", "alu", "fma", "xu", "synchronisation", "conversion")
COLUMNS = (
    "target",
    *CONFIGURATION,
    "registers",
    "spill_bytes",
    "shared_memory_bytes",
    "matrix_instruction",
    "loop_instructions",
    *(f"loop_{name}" for name in CLASSES),
    "triton",
)
EXAMPLE = {"M": 4096, "E": 64, "topk": 8, "H": 2048, "N": 1024}
"""bf16 w13 at these sizes, which only decide divisibility (all multiples of 16) and EVEN_K; no size is compiled in."""


def space(target: str) -> Iterator[dict[str, int]]:
    """Configurations whose operand buffers fit the target, coarse tiles mixed with fine ones so that any cut-off is a fair sample."""
    values = SPACES["fused_moe"]
    capability = f"{target[3:-1]}.{target[-1]}"
    found = []
    for row in product(*(values[name] for name in CONFIGURATION)):
        chosen = dict(zip(CONFIGURATION, row, strict=True))
        need = shared_memory_bytes(
            chosen["BLOCK_SIZE_M"],
            chosen["BLOCK_SIZE_N"],
            chosen["BLOCK_SIZE_K"],
            chosen["num_stages"],
            compute_capability=capability,
            num_warps=chosen["num_warps"],
            a_bytes=2,
            b_bytes=2,
        )
        if need <= LARGEST_SHARED_MEMORY_BYTES[target]:
            found.append(chosen)
    stride = 7
    for start in range(stride):
        yield from found[start::stride]


def arguments(config: Mapping[str, int]) -> dict[str, Any]:
    """Arguments of `fused_moe_kernel` for the example: what the file's `arguments` returns, without importing it."""
    n, k = 2 * EXAMPLE["N"], EXAMPLE["H"]
    slots = EXAMPLE["M"] * EXAMPLE["topk"]
    return {
        "a_ptr": "*bf16",
        "b_ptr": "*bf16",
        "c_ptr": "*bf16",
        "a_scale_ptr": None,
        "b_scale_ptr": None,
        "topk_weights_ptr": "*fp32",
        "sorted_token_ids_ptr": "*i32",
        "expert_ids_ptr": "*i32",
        "num_tokens_post_padded_ptr": "*i32",
        "N": n,
        "K": k,
        "EM": slots,
        "num_slots": slots,
        "stride_am": k,
        "stride_ak": 1,
        "stride_be": n * k,
        "stride_bn": k,
        "stride_bk": 1,
        "stride_cm": n,
        "stride_cn": 1,
        "stride_asm": 0,
        "stride_ask": 0,
        "stride_bse": 0,
        "stride_bsn": 0,
        "stride_bsk": 0,
        "SLOTS_PER_ROW": EXAMPLE["topk"],
        "MUL_ROUTED_WEIGHT": False,
        "GROUP_N": 0,
        "GROUP_K": 0,
        "EVEN_K": k % config["BLOCK_SIZE_K"] == 0,
    }


def compiled_row(source: SourceFile, target: str, config: Mapping[str, int], pool: Pool) -> dict[str, Any]:
    """One row of the table; registers is empty where the compiler refuses the configuration."""
    launch = described_launch(source, "fused_moe_kernel", arguments(config), {**config, "GROUP_SIZE_M": 8})
    row: dict[str, Any] = {"target": target, **config}
    try:
        compiled, _, _ = compile_launch(launch, compile_target(target), pool)
    except CompileError:
        return row
    facts = read_facts(compiled)
    hottest = max(facts.loops, key=lambda loop: (loop.mix.get("tensor", 0), loop.instructions), default=None)
    row |= {
        "registers": compiled.resources.registers,
        "spill_bytes": compiled.resources.spill_bytes,
        "shared_memory_bytes": compiled.resources.shared_memory_bytes,
        "matrix_instruction": facts.matrix_instruction,
        "triton": compiled.triton_version,
    }
    if hottest is not None:
        row["loop_instructions"] = hottest.instructions
        row |= {f"loop_{name}": hottest.mix.get(name, 0) for name in CLASSES}
    return row


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a table, as text; none where there is no file."""
    if not path.exists():
        return []
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the table, sorted, so that the same rows make the same bytes."""
    order = sorted(rows, key=lambda row: (str(row["target"]), *(int(row[name]) for name in CONFIGURATION)))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
        lines = [COLUMNS, *(tuple("" if row.get(c) is None else row[c] for c in COLUMNS) for row in order)]
        packed.write("".join(",".join(map(str, line)) + "\n" for line in lines).encode())


def main() -> int:
    """Compile what is missing, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = list(read_table(options.output))
    known = {(str(row["target"]), *(int(row[name]) for name in CONFIGURATION)) for row in rows}
    targets = options.targets.split(",")
    todo = [
        (target, config)
        for target in targets
        for config in space(target)
        if (target, *(config[name] for name in CONFIGURATION)) not in known
    ]
    source = read_source(folder("triton_kernels") / "fused_moe.py")
    with Pool(options.workers) as pool:
        try:
            for number, (target, config) in enumerate(todo, start=1):
                rows.append(compiled_row(source, target, config, pool))
                if number % 50 == 0:
                    write_table(options.output, rows)
                    print(f"{number} of {len(todo)}", file=sys.stderr, flush=True)
        finally:
            write_table(options.output, rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
