"""Kernels that their file describes: arguments, configuration and grid follow from sizes, without running the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.advising.choice import NEAR_BEST
from advisor.cli import main
from advisor.compiled.launches.described import Described, described_launch, launch_from_description
from advisor.compiled.launches.launch_options import LaunchOptions, launches, one_launch
from advisor.gpus.hardware import load_gpu
from advisor.python_source.described import call_function, expression
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import SourceFile, parse_source, read_source
from advisor.system.errors import UsageError
from tests.compiled.bundled import FOLDER, load

pytestmark = pytest.mark.usefixtures("not_disassembled")
FILES = sorted(FOLDER.glob("*.py"))
KERNELS = [(path.stem, name) for path in FILES for name in read_source(path).kernels_literal]
H200 = load_gpu("H200")


def source_of(file: str) -> SourceFile:
    return read_source(FOLDER / f"{file}.py")


def problems(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for op in entry["ops"]:
        for dtype in entry["dtypes"]:
            yield {**entry["example"], "op": op, "dtype": dtype}


@pytest.mark.parametrize(("file", "kernel"), KERNELS, ids=[k for _, k in KERNELS])
def test_functions_are_followed_as_python_would(file: str, kernel: str) -> None:
    pytest.importorskip("triton")
    source, module = source_of(file), load(file)
    entry = source.kernels_literal[kernel]
    for problem in problems(entry):
        config = getattr(module, entry["default"])(problem)
        assert call_function(source, entry["default"], dict(problem)) == config
        arguments, valid = getattr(module, entry["arguments"]), getattr(module, entry["valid"])
        assert call_function(source, entry["arguments"], dict(problem), dict(config)) == arguments(problem, config)
        assert bool(call_function(source, entry["valid"], dict(config), dict(problem))) == bool(valid(config, problem))


@pytest.mark.parametrize(("file", "kernel"), KERNELS, ids=[k for _, k in KERNELS])
def test_every_kernel_has_a_grid(file: str, kernel: str) -> None:
    source = source_of(file)
    entry = source.kernels_literal[kernel]
    for op in entry["ops"]:
        launch = one_launch(source, kernel, LaunchOptions(op=op), H200)
        assert launch.grid is not None and launch.problem is not None and launch.problem.op == op
        assert launch.problem.sizes == entry["example"]
        assert launch.tunable == frozenset(entry["space"])


GRIDS = [
    ("gemm", "gemm_kernel", {"M": 100, "N": 200, "K": 300}, {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "SPLIT_K": 2}, (8, 2)),
    ("gemm", "gemm_persistent_kernel", {"M": 100, "N": 200, "K": 300}, {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64}, (8,)),
    ("gemm", "gemm_persistent_kernel", {"M": 9000, "N": 9000, "K": 64}, {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64}, (132,)),
    ("attention", "attention_kernel", {"B": 3, "H": 8, "H_kv": 2, "M": 70}, {"BLOCK_M": 32}, (72,)),
    ("attention", "decode_kernel", {"B": 3, "H": 64, "H_kv": 2, "M": 1}, {"BLOCK_M": 16, "NUM_KV_SPLITS": 4}, (48,)),
    ("rms_norm", "rms_norm_kernel", {"B": 7, "H": 100}, {"ROWS_PER_CTA": 2}, (4,)),
    ("silu_and_mul", "silu_and_mul_kernel", {"B": 7, "H": 300}, {"ROWS_PER_CTA": 2, "BLOCK_SIZE": 256}, (8,)),
]


@pytest.mark.parametrize(("file", "kernel", "sizes", "config", "grid"), GRIDS)
def test_grids(file: str, kernel: str, sizes: dict, config: dict, grid: tuple[int, ...]) -> None:
    assert one_launch(source_of(file), kernel, LaunchOptions(sizes=sizes, constexprs=config), H200).grid == grid


def test_arguments_are_typed_as_the_runtime_would() -> None:
    values = {"x": "*bf16", "n": 5, "far": 2**40, "scale": 0.5, "flag": True, "one": 1, "none": None}
    source = parse_source(f"import triton\n@triton.jit\ndef k({', '.join(values)}):\n    pass\n", "k.py")
    given = described_launch(source, "k", values, {"num_warps": 8}).given
    assert given.types == {"x": "*bf16", "n": "i32", "far": "i64", "scale": "fp32", "flag": "i1", "one": "constexpr", "none": "constexpr"}
    assert given.constexprs == {"one": 1, "none": None} and given.options == {"num_warps": 8}


def test_a_grid_that_needs_the_gpu_is_not_known_without_one() -> None:
    assert one_launch(source_of("gemm"), "gemm_persistent_kernel", LaunchOptions()).grid is None


def test_sizes_follow_from_arguments() -> None:
    launch = one_launch(source_of("gemm"), "gemm_kernel", LaunchOptions(arguments={"M": 64, "N": 128, "K": 256}), H200)
    assert launch.problem is not None and launch.problem.sizes == {"M": 64, "N": 128, "K": 256}
    assert launch.given.scalars["stride_am"] == 256


@pytest.mark.parametrize("routing", [None, [9, 0, 1, 0, 0, 0, 2, 4]])
@pytest.mark.parametrize(("tokens", "experts", "block"), [(64, 8, 16), (5, 8, 64), (1, 8, 16)])
def test_routing_is_aligned_as_on_the_device(tokens: int, experts: int, block: int, routing: list[int] | None) -> None:
    asked = LaunchOptions(
        sizes={"M": tokens, "E": experts, "topk": 2, "H": 256, "N": 128}, constexprs={"BLOCK_SIZE_M": block}, op="w13", routing=routing
    )
    launch = one_launch(source_of("fused_moe"), "fused_moe_kernel", asked, H200)
    slots, owners = launch.contents["sorted_token_ids_ptr"], launch.contents["expert_ids_ptr"]
    used, count = launch.contents["num_tokens_post_padded_ptr"], tokens * 2
    assert sorted(slots[slots < count].tolist()) == list(range(count))
    assert (slots[slots >= count] == count).all() and len(slots) == launch.given.scalars["EM"] == len(owners) * block
    assert (slots[used:] == count).all() and used % block == 0
    loads = np.zeros(experts, int)
    for start in range(0, used, block):
        loads[owners[start // block]] += int((slots[start : start + block] < count).sum())
    if routing is None:
        assert sorted(loads)[-1] - sorted(loads)[0] <= 1
    else:
        assert loads.sum() == count and (loads > 0).sum() <= sum(n > 0 for n in routing)


def test_nominated_configurations_are_valid_and_differ() -> None:
    source = source_of("gemm")
    named = launches(source, "gemm_kernel", LaunchOptions(sizes={"M": 512, "N": 512, "K": 512}), H200)
    assert named[0].chosen and not any(each.chosen for each in named[1:]) and len(named) > 4
    chosen = [(each.launch.given.constexprs, each.launch.given.options) for each in named]
    assert all(chosen.count(each) == 1 for each in chosen)
    given = launches(source, "gemm_kernel", LaunchOptions(constexprs={"BLOCK_SIZE_M": 64}), H200)
    assert len(given) == 1


@pytest.mark.parametrize(("gpu", "specialized"), [("H200", False), ("B200", True)])
def test_what_is_nominated_is_valid_on_the_gpu(gpu: str, specialized: bool) -> None:
    asked = LaunchOptions(sizes={"M": 4096, "N": 4096, "K": 4096})
    named = launches(source_of("gemm"), "gemm_persistent_kernel", asked, load_gpu(gpu))
    assert any(each.launch.given.constexprs["WARP_SPECIALIZE"] for each in named) == specialized


def test_every_function_of_a_file_is_told_of_the_gpu(tmp_path: Path) -> None:
    text = (
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
        "def kernel(x_ptr, N, BLOCK: tl.constexpr, SLOTS: tl.constexpr):\n    tl.store(x_ptr, N)\n\n\n"
        "def valid(config, problem):\n"
        "    return config['BLOCK'] == problem['capability'] and problem['compute_capability'] == '9.0'\n\n\n"
        "def arguments(problem, config):\n"
        "    return {'x_ptr': '*bf16', 'N': problem['capability'], 'SLOTS': problem['routing'][0]}\n\n\n"
        "KERNELS = {'kernel': {'family': 'fused_moe', 'ops': {'w13': {}}, 'space': {'BLOCK': [80, 90, 100]}, 'valid': 'valid',\n"
        "                      'arguments': 'arguments', 'example': {'M': 8, 'E': 2, 'topk': 1, 'H': 64, 'N': 64}}}\n"
    )
    path = tmp_path / "kernel.py"
    path.write_text(text)
    launch = one_launch(read_source(path), "kernel", LaunchOptions(routing=[7, 1]), H200)
    assert launch.given.constexprs == {"BLOCK": 90, "SLOTS": 7} and launch.given.scalars["N"] == 90


@pytest.mark.parametrize(
    "asked",
    [
        LaunchOptions(sizes={"Q": 1}),
        LaunchOptions(op="nothing"),
        LaunchOptions(constexprs={"NOTHING": 1}),
        LaunchOptions(arguments={"q": 1}),
        LaunchOptions(sizes={"M": 0}),
    ],
)
def test_mistakes_are_named(asked: LaunchOptions) -> None:
    with pytest.raises(UsageError):
        one_launch(source_of("gemm"), "gemm_kernel", asked, H200)


HOSTILE = {
    "import": "import os\n    return {'a': 1}",
    "call": "return {'a': open('/etc/passwd')}",
    "dunder": "return {'a': ().__class__}",
    "endless": "n = 0\n    while True:\n        n += 0\n    return {'a': n}",
    "deep": "return arguments(problem, config)",
    "huge": "return {'a': 'x' * 10**9}",
    "power": "return {'a': 10 ** 10 ** 10}",
    "with": "with problem:\n        return {'a': 1}",
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_only_what_describes_is_followed(name: str) -> None:
    source = parse_source(f"def arguments(problem, config):\n    {HOSTILE[name]}\n", "k.py")
    with pytest.raises(NotLiteralError):
        call_function(source, "arguments", {}, {})


def test_expressions_are_arithmetic() -> None:
    source = parse_source("A = 3\n", "k.py")
    assert expression(source, "cdiv(n, A) * min(2, n)", {"n": 7}) == 6
    for text in ("n +", "open('x')", "missing", "().__class__"):
        with pytest.raises(NotLiteralError):
            expression(source, text, {"n": 7})


def test_inspect_needs_no_grid(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton")
    target = f"{FOLDER / 'gemm.py'}::gemm_kernel"
    assert main(["inspect", target, "--gpu", "H200", "--sizes", "M=256,N=384,K=512", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["demand"]["tensor_flop"] == {"bf16": 2 * 256 * 384 * 512}
    assert found["predicted_us"] > found["bound_us"] > 0
    assert not any("Not known" in text or "grid is not given" in text for text in found["assumptions"])


def test_advise_finds_a_ceiling_in_the_files_space(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton")
    target = f"{FOLDER / 'rms_norm.py'}::rms_norm_kernel"
    assert main(["advise", target, "--gpu", "H200", "--sizes", "B=512,H=1024", "--output", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    (launch,), (search,) = result["launches"], result["searches"]
    assert launch["problem"]["sizes"] == {"B": 512, "H": 1024} and launch["ceiling"]["us"] <= launch["predicted"]["us"]
    times = [trial["predicted_us"] for trial in search["trials"] if trial["predicted_us"] is not None]
    near = [time for time in times if time <= NEAR_BEST * min(times)]  # of equals the one most like what runs is the ceiling
    assert any(launch["ceiling"]["us"] == pytest.approx(time) for time in near) and search["launch"] == launch["id"]
    for latency in (launch["predicted"], launch["ceiling"]):
        assert launch["bound"]["us"] <= latency["low_us"] < latency["us"] < latency["high_us"] and latency["coverage"] == 0.8
    assert launch["gap"] and all(part["note"] for part in launch["gap"])
    advice = launch["recommendation"]
    assert advice is None or advice["demand"]["dram"] > 0
    assert main(["advise", "rms_norm", "--gpu", "H200", "--grid", "4", "--output", str(tmp_path)]) == 2
    assert "--grid" in capsys.readouterr().err


def test_products_on_matrix_units_are_not_exact_ones(tmp_path: Path) -> None:
    """A file may compile what it calls fp32 with tf32x3: a launch of it is no fp32 problem, whose bound it beats."""
    text = (FOLDER / "gemm.py").read_text(encoding="utf-8")
    (tmp_path / "gemm3x.py").write_text(text.replace('return "ieee" if dtype', 'return "tf32x3" if dtype'), encoding="utf-8")
    asked = Described(sizes={"M": 256, "N": 256, "K": 256}, dtype="fp32", arguments={}, constexprs={}, options={})
    for path, dtype in ((FOLDER / "gemm.py", "fp32"), (tmp_path / "gemm3x.py", "tf32")):
        problem = launch_from_description(read_source(path), "gemm_kernel", asked).problem
        assert problem is not None and problem.dtype == dtype


@pytest.mark.parametrize("target", ["fused_moe::combine_kernel", str(FOLDER / "fused_moe.py") + "::combine_kernel"])
@pytest.mark.parametrize("command", ["advise", "tune", "measure"])
def test_types_that_a_kernel_is_not_made_for_are_refused(
    command: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = str(Path(__file__).parents[1] / "data" / "sweep.csv")
    where = {"advise": ["--gpu", "H100"], "tune": ["--recorded", recorded], "measure": ["-o", str(tmp_path / "rows.csv")]}[command]
    assert main([command, target, "--dtype", "fp8", *where]) == 2
    said = capsys.readouterr().err
    assert "not made for operands of this type; got fp8" in said and "one of bf16, fp16, fp32" in said and "`dtypes`" in said


@pytest.mark.parametrize("blocks", ["[256, 512]", "[256, 4096]"])
def test_a_default_outside_the_space_is_said_to_lie_there(tmp_path: Path, blocks: str) -> None:
    """It counts for the ceiling all the same: "100 % of the ceiling" alone would say that nothing of the space is faster."""
    path = tmp_path / "k.py"
    text = (FOLDER / "softmax.py").read_text(encoding="utf-8")
    path.write_text(re.sub(r'"BLOCK_SIZE": \[.*\]', f'"BLOCK_SIZE": {blocks}', text, count=1))
    said = "; ".join(launches(read_source(path), "softmax_kernel", LaunchOptions(), H200)[0].launch.assumed)
    outside = " (it is outside the file's space, by BLOCK_SIZE=4096, and counts as one of it)"
    assert f"the configuration that the file gives untuned{outside if '4096' not in blocks else ''}: BLOCK_SIZE=4096" in said


def test_without_a_default_the_first_valid_configuration_is_assumed(tmp_path: Path) -> None:
    text = (FOLDER / "rms_norm.py").read_text(encoding="utf-8")
    (tmp_path / "norm.py").write_text(re.sub(r'\n\s+"default": "default",', "", text), encoding="utf-8")
    source = read_source(tmp_path / "norm.py")
    entry = source.kernels_literal["rms_norm_kernel"]
    assert "default" not in entry
    asked = Described(sizes={"B": 512, "H": 1024}, arguments={}, constexprs={}, options={"num_warps": 8})
    launch = launch_from_description(source, "rms_norm_kernel", asked)
    (said,) = (text for text in launch.assumed if "default" in text)
    assert said.startswith("the first valid configuration of the space, as KERNELS names no `default`: ")
    taken = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", said)}
    assert set(taken) == set(entry["space"]) - {"num_warps"}  # which was given
    assert all(value in entry["space"][name] for name, value in taken.items())
    problem = {"B": 512, "H": 1024, "op": "rms_norm", "dtype": "bf16"}
    assert call_function(source, "valid", {**taken, "num_warps": 8}, problem)
