"""`advisor inspect`, rules on compiled code, the cache, and killed workers."""

from __future__ import annotations

import json
import os
import re
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from advisor.cli import main
from advisor.compiled.analysis import KernelAnalysis, kernel_analysis
from advisor.compiled.compiler import compile
from advisor.compiled.compiler.compile import compile_kernels, version
from advisor.compiled.compiler.kernel import Target
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.assembly import read_facts
from advisor.compiled.guesses.inference import guesses
from advisor.compiled.launch_report import problem_of
from advisor.compiled.launches.launch import inspect_launch, request_for
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.diagnosis.compiled_rules import COMPILED_RULES, check_compiled
from advisor.diagnosis.compiled_rules.products import mma_instead_of_wgmma
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import SourceFile, parse_source
from advisor.result.schema import Latency
from advisor.system.errors import MissingDependencyError

pytest.importorskip("triton")
HEAD = "import triton\nimport triton.language as tl\n"
SM_90 = Target(backend="cuda", arch=90)

GEMM = (
    HEAD
    + """
@triton.jit
def gemm(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, lock_ptr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
         ATOMIC: tl.constexpr, DIVIDE: tl.constexpr, PRECISION: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        if DIVIDE:
            ks = ks // sc * sc + ks % sc
        a = tl.load(a_ptr + m[:, None] * sa + ks[None, :], mask=ks[None, :] < K, other=0.0)
        b = tl.load(b_ptr + ks[:, None] * sb + n[None, :], mask=ks[:, None] < K, other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        if ATOMIC:
            tl.atomic_add(lock_ptr, 1)
    tl.store(c_ptr + m[:, None] * sc + n[None, :], acc)
"""
)


@pytest.fixture(scope="module")
def source() -> SourceFile:
    return parse_source(GEMM, "gemm.py")


def rules(source: SourceFile, pool: Pool, *, element: str = "bf16", warps: int = 4, **changes: object) -> set[str]:
    constants = {"BM": 64, "BN": 64, "BK": 32, "ATOMIC": False, "DIVIDE": False, "PRECISION": "tf32"}
    arguments = {"M": 128, "N": 128, "K": 256, "sa": 256, "sb": 128, "sc": 128}
    arguments |= {k: v for k, v in changes.items() if k in arguments}
    constants |= {k: v for k, v in changes.items() if k in constants}
    launch = make_launch(
        source,
        "gemm",
        types={"a_ptr": f"*{element}", "b_ptr": f"*{element}", "c_ptr": "*fp32", "lock_ptr": "*i32"},
        constexprs=constants,
        arguments=arguments,
        options={"num_warps": warps, "num_stages": 3},
        grid=(2, 2),
    )
    inspection = inspect_launch(launch, SM_90, pool)
    found = check_compiled(inspection, read_facts(inspection.compiled), load_gpu("H200"))
    assert all(f.severity != "error" for f in found), found
    return {f.rule for f in found}


@pytest.mark.parametrize(("capability", "stored"), [(90, 4096), (80, 0)])
def test_a_kernel_that_asks_for_its_gpu_is_told_the_target(pool, capability, stored):
    """Triton would ask the driver of this machine."""
    text = (
        HEAD
        + """from triton.language.target_info import cuda_capability_geq

@triton.jit
def newer(x_ptr, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    if cuda_capability_geq(9, 0):
        tl.store(x_ptr + o, tl.load(x_ptr + o) * 2.0)
"""
    )
    launch = make_launch(
        parse_source(text, "newer.py"),
        "newer",
        types={"x_ptr": "*fp32"},
        constexprs={"BLOCK": 1024},
        arguments={},
        options={"num_warps": 4},
        grid=(1,),
    )
    inspection = inspect_launch(launch, Target(backend="cuda", arch=capability), pool, sass=False)
    assert ("st.global" in inspection.compiled.ptx) == (stored > 0)


def test_a_good_kernel_passes(source: SourceFile, pool: Pool) -> None:
    assert rules(source, pool) <= {"mask-never-binds", "wide-index-in-loop"}


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("mask-never-binds", {}),
        ("mma-instead-of-wgmma", {"BM": 16}),
        ("dot-without-tensor-instruction", {"element": "fp32", "PRECISION": "ieee"}),
        ("atomics-in-loop", {"ATOMIC": True}),
        ("integer-division-in-loop", {"DIVIDE": True, "sc": 127}),
        ("no-async-copy", {"K": 255, "sa": 255, "sb": 127}),
        ("narrow-access", {"K": 255, "sa": 255, "sb": 127}),
        ("register-spills", {"BM": 256, "BN": 256, "warps": 4}),
    ],
)
def test_rules_fire(rule: str, changes: dict, source: SourceFile, pool: Pool) -> None:
    assert rule in rules(source, pool, **changes)


@pytest.mark.parametrize(
    ("rows", "columns", "warps", "saving_us", "remedy"),
    [
        (16, 16, 4, 50.0, None),  # no side is as long as the instruction
        (16, 128, 4, 1.0, None),  # it waits for memory
        (16, 128, 4, 50.0, "swap the operands"),
        (64, 64, 2, 50.0, "4 or 8 warps"),
        (64, 64, 4, 50.0, "operands"),
    ],
)
def test_mma_instead_of_wgmma_is_told_with_what_can_be_done(
    rows: int, columns: int, warps: int, saving_us: float, remedy: str | None
) -> None:
    dot = SimpleNamespace(name="tt.dot", result=SimpleNamespace(shape=(rows, columns), elements=rows * columns), location=None)
    context = SimpleNamespace(
        capability=90,
        facts=SimpleNamespace(matrix_instruction="mma"),
        operations=[(dot, 1)],
        compiled=SimpleNamespace(num_warps=warps, target=SimpleNamespace(name="sm_90")),
        analysis=SimpleNamespace(predicted=Latency(us=100.0, origin="predicted", source="model")),
        saving=lambda change: saving_us,
        place=lambda file, line: ("kernel", file, line),
    )
    finding = mma_instead_of_wgmma.check(context)  # type: ignore[arg-type]
    assert finding is None if remedy is None else finding is not None and finding.remedy.find(remedy) >= 0


PERSISTENT = """
import triton
import triton.language as tl

@triton.jit
def k(a_ptr, b_ptr, c_ptr, M, N, K, SMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    columns = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * columns, SMS):
        m = tile // columns * BM + tl.arange(0, BM)
        n = tile % columns * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for i in range(0, K, BK):
            k = i + tl.arange(0, BK)
            acc += tl.dot(tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :]))
        tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(tl.float16))
"""


def test_what_costs_nothing_in_a_loop_over_tiles_is_no_finding(pool: Pool) -> None:
    launch = make_launch(
        parse_source(PERSISTENT, "k.py"),
        "k",
        arguments={"M": 2048, "N": 2048, "K": 2048},
        grid=(132,),
        constexprs={"SMS": 132, "BM": 128, "BN": 128, "BK": 64},
        options={"num_warps": 8},
    )
    inspection = inspect_launch(launch, compile_target("sm_90"), pool)
    gpu, facts = load_gpu("H100"), read_facts(inspection.compiled)
    unpriced = {f.rule for f in check_compiled(inspection, facts)}
    assert {"integer-division-in-loop", "convert-layout-in-loop"} <= unpriced
    priced = {f.rule for f in check_compiled(inspection, facts, gpu, kernel_analysis(inspection, gpu, "warm", facts))}
    assert not {"integer-division-in-loop", "convert-layout-in-loop"} & priced


def test_uncoalesced(pool: Pool) -> None:
    text = HEAD + (
        "@triton.jit\ndef t(x, y, s, B: tl.constexpr):\n    o = tl.arange(0, B)\n    p = tl.program_id(0)\n"
        "    tl.store(y + p * B + o, tl.load(x + p + o * s))\n"
    )
    launch = make_launch(parse_source(text, "t.py"), "t", constexprs={"B": 1024}, arguments={"s": 4096}, grid=(8,))
    inspection = inspect_launch(launch, SM_90, pool)
    found = check_compiled(inspection, read_facts(inspection.compiled))
    assert "uncoalesced-access" in {f.rule for f in found}


@pytest.mark.parametrize(
    ("body", "scattered"),
    [
        ("    low = tl.where(x > tl.load(table + low), low + t, low)", False),  # all lanes at first, then where the data say
        ("    low = low + t * 64\n        x += tl.load(table + low)", False),
        ("    x += tl.load(table + low)\n        low = tl.arange(0, B) * 64", True),
    ],
)
def test_lanes_that_share_an_address_are_not_scattered(body: str, scattered: bool, pool: Pool) -> None:
    text = HEAD + (
        "@triton.jit\ndef t(table, xs, y, B: tl.constexpr):\n    o = tl.program_id(0) * B + tl.arange(0, B)\n    x = tl.load(xs + o)\n"
        f"    low = tl.zeros((B,), tl.int32)\n    for t in range(8):\n    {body}\n    tl.store(y + o, low + x)\n"
    )
    types = {"table": "*fp32", "xs": "*fp32", "y": "*fp32"}
    launch = make_launch(parse_source(text, "t.py"), "t", types=types, constexprs={"B": 256}, grid=(4096,))
    inspection = inspect_launch(launch, SM_90, pool)
    gpu, facts = load_gpu("H200"), read_facts(inspection.compiled)
    analysis = kernel_analysis(inspection, gpu, "cold", facts)
    assert ("uncoalesced-access" in {f.rule for f in check_compiled(inspection, facts, gpu, analysis)}) is scattered
    demand = inspection.demand
    rest = demand.requested_load_bytes + demand.requested_store_bytes
    assert (float(analysis.demand.l2_bytes[0]) > 2 * rest) is scattered


def savings(source: SourceFile, pool: Pool, size: int = 2048, **changes: object) -> tuple[dict[str, float | None], KernelAnalysis]:
    """What each rule that fires says it would save, for a product of `size`."""
    constants = {"BM": 64, "BN": 64, "BK": 32, "ATOMIC": False, "DIVIDE": False, "PRECISION": "tf32"}
    arguments = dict.fromkeys(("M", "N", "K", "sa", "sb", "sc"), size)
    arguments |= {k: v for k, v in changes.items() if k in arguments}  # type: ignore[misc]
    constants |= {k: v for k, v in changes.items() if k in constants}  # type: ignore[misc]
    element = changes.get("element", "bf16")
    grid = (size // constants["BM"], size // constants["BN"]) if changes.get("grid", True) else None  # type: ignore[operator]
    launch = make_launch(
        source,
        "gemm",
        types={"a_ptr": f"*{element}", "b_ptr": f"*{element}", "c_ptr": "*fp32", "lock_ptr": "*i32"},
        constexprs=constants,
        arguments=arguments,
        options={"num_warps": 4, "num_stages": 3},
        grid=grid,
    )
    inspection = inspect_launch(launch, SM_90, pool)
    analysis = kernel_analysis(inspection, load_gpu("H200"))
    found = check_compiled(inspection, analysis.facts, analysis.gpu, analysis)
    return {f.rule: f.saving_us for f in found}, analysis


@pytest.mark.parametrize(
    ("rule", "changes", "least"),
    [
        ("register-spills", {"BM": 256, "BN": 256}, 0.3),
        ("no-async-copy", {"size": 256, "K": 8191, "sa": 8191, "sb": 257}, 0.3),
        ("dot-without-tensor-instruction", {"element": "fp32", "PRECISION": "ieee"}, 0.3),
    ],
)
def test_savings_are_what_is_predicted_without_the_cause(rule: str, changes: dict, least: float, source: SourceFile, pool: Pool) -> None:
    found, analysis = savings(source, pool, **changes)
    saving = found[rule]
    assert analysis.predicted is not None and saving is not None
    most = analysis.predicted.us - (0.0 if rule == "dot-without-tensor-instruction" else analysis.bound.us)  # tf32 has another bound
    assert least * analysis.predicted.us < saving <= most


def test_loads_of_what_others_load_are_found_and_bind(source: SourceFile, pool: Pool) -> None:
    found, analysis = savings(source, pool, size=4096)
    assert "repeated-loads" in found and found["repeated-loads"] is None  # no tile reads everything once
    times = {part.pipeline: part.time_us for part in analysis.pipelines}
    assert analysis.config_binding_pipeline == max(times, key=lambda name: times[name]) != analysis.binding_pipeline
    one_program, _ = savings(source, pool, size=64)
    assert "repeated-loads" not in one_program


def test_what_is_printed_is_not_said_to_spill(pool: Pool) -> None:
    text = HEAD + "@triton.jit\ndef t(x):\n    pid = tl.program_id(0)\n    tl.device_print('pid', pid)\n    tl.store(x + pid, pid)\n"
    inspection = inspect_launch(make_launch(parse_source(text, "t.py"), "t", types={"x": "*i32"}), SM_90, pool)
    assert inspection.compiled.resources.spill_bytes  # the stack that the values are handed over on
    assert "register-spills" not in {each.rule for each in check_compiled(inspection, read_facts(inspection.compiled))}


def test_no_saving_is_named_where_it_cannot_be_said(source: SourceFile, pool: Pool) -> None:
    assert savings(source, pool, BM=256, BN=256, grid=False)[0]["register-spills"] is None
    assert savings(source, pool, ATOMIC=True)[0]["atomics-in-loop"] is None


def test_scattered_accesses_cost_their_sectors(pool: Pool) -> None:
    text = HEAD + (
        "@triton.jit\ndef t(x, y, s, B: tl.constexpr):\n    o = tl.arange(0, B)\n    p = tl.program_id(0)\n"
        "    tl.store(y + p * B + o, tl.load(x + p + o * s))\n"
    )
    gpu = load_gpu("H200")
    kernel = parse_source(text, "t.py")
    found = {}
    for step in (1, 4096):
        launch = make_launch(kernel, "t", constexprs={"B": 4096}, arguments={"s": step}, grid=(4096,))
        inspection = inspect_launch(launch, SM_90, pool)
        analysis = kernel_analysis(inspection, gpu)
        found[step] = (analysis, check_compiled(inspection, analysis.facts, gpu, analysis))
    slow, findings = found[4096]
    asked = 2 * 4096 * 4096  # fp16
    assert float(slow.demand.l2_bytes[0]) == pytest.approx(asked * 16 + asked)  # a sector of 32 bytes for every 2 loaded
    saving = next(f.saving_us for f in findings if f.rule == "uncoalesced-access")
    assert slow.predicted is not None and saving is not None and 0.5 * slow.predicted.us < saving < slow.predicted.us
    assert not [f for f in found[1][1] if f.rule == "uncoalesced-access"]


@pytest.mark.parametrize(("tile", "target"), [((128, 256), 80), ((256, 256), 90), ((64, 64), 80)])
def test_registers_are_those_of_the_machine_code(tile: tuple[int, int], target: int, source: SourceFile, pool: Pool) -> None:
    """Also where ptxas gives up on keeping a tile in registers and leaves few of them beside huge spills."""
    launch = make_launch(
        source,
        "gemm",
        types={"a_ptr": "*bf16", "b_ptr": "*bf16", "c_ptr": "*fp32", "lock_ptr": "*i32"},
        constexprs={"BM": tile[0], "BN": tile[1], "BK": 32, "ATOMIC": False, "DIVIDE": False, "PRECISION": "tf32"},
        arguments={"M": 128, "N": 128, "K": 256, "sa": 256, "sb": 128, "sc": 128},  # as above: the largest is compiled once
        options={"num_warps": 4, "num_stages": 3},
        grid=(2, 2),
    )
    compiled = inspect_launch(launch, Target(backend="cuda", arch=target), pool).compiled
    used = max(int(n) for n in re.findall(r"\bR(\d+)\b", compiled.sass))
    assert compiled.resources.registers is not None and used < compiled.resources.registers <= used + 9
    spills = len(re.findall(r"\b(?:STL|LDL)\b", compiled.sass))
    assert (spills > 0) == bool(compiled.resources.spill_bytes)


def test_every_rule_has_a_function_of_its_name() -> None:
    assert len({rule.id for rule in COMPILED_RULES}) == len(COMPILED_RULES)
    for rule in COMPILED_RULES:
        assert rule.look.__name__ == rule.id.replace("-", "_")


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gemm.py"
    file.write_text(GEMM)
    arguments = [
        "inspect",
        f"{file}::gemm",
        "--gpu",
        "H200",
        "--arg",
        "M=128",
        "--arg",
        "N=128",
        "--arg",
        "K=100",
        "--arg",
        "sa=100",
        "--arg",
        "sb=128",
        "--arg",
        "sc=128",
        "--constexpr",
        "BM=64",
        "--constexpr",
        "BN=64",
        "--constexpr",
        "BK=32",
        "--constexpr",
        "PRECISION=tf32",
        "--grid",
        "cdiv(M, BM), cdiv(N, BN)",
        "--element",
        "bf16",
    ]
    assert main([*arguments, "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["demand"]["tensor_flop"] == {"bf16": 2 * 128 * 128 * 128}
    assert result["demand"]["load_bytes"] == 2 * 100 * (128 + 128) * 2
    assert result["resources"]["registers"] > 0 and result["grid"] == [2, 2, 1]
    assert {line["line"] for line in result["lines"]} >= {14, 15, 16}
    assert main(arguments) == 0
    assert "tl.dot(a, b, acc" in capsys.readouterr().out


def test_one_program_is_not_counted_in_the_plural(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gemm.py"
    file.write_text(GEMM)
    sizes = [part for text in ("M=64", "N=64", "K=256", "sa=256", "sb=64", "sc=64") for part in ("--arg", text)]
    blocks = [part for text in ("BM=64", "BN=64", "BK=32", "PRECISION=tf32") for part in ("--constexpr", text)]
    assert main(["inspect", f"{file}::gemm", "--gpu", "H200", *sizes, *blocks, "--grid", "1", "--element", "bf16"]) == 0
    text = capsys.readouterr().out
    assert "Demand of 1 program," in text and "  1 program, full" in text and "all lanes active in the one program" in text
    assert "1 programs" not in text


def test_pipelines_above_the_bounds_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """They would contradict the bound of this configuration, but that an estimate is in no bound."""
    kernel = Path(__file__).resolve().parents[2] / "triton_kernels" / "softmax.py"
    note = "The bounds count neither alu and issue"
    assert main(["inspect", f"{kernel}::softmax_kernel", "--target", "sm_90", "--sizes", "B=4096,H=4096"]) == 0
    text = capsys.readouterr().out
    us = {name: float(time) for name, time in re.findall(r"^  (\w+) +([\d.]+) µs", text, re.MULTILINE)}
    assert us["alu"] > float(re.search(r"of this configuration ([\d.]+) µs", text).group(1)) and note in text
    marked = re.findall(r"^  (\w+) +[\d.]+ µs .* estimated$", text, re.MULTILINE)
    assert marked == ["alu", "issue"]
    assert main(["inspect", f"{kernel}::softmax_kernel", "--target", "sm_90", "--sizes", "B=1,H=4096"]) == 0
    assert note not in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["{f}::nothing", "--target", "sm_90"],
        ["{f}::gemm"],
        ["{f}::gemm", "--target", "vax"],
        ["{f}::gemm", "--target", "sm_90", "--arg", "q=1"],
        ["{f}::gemm", "--target", "sm_90", "--arg", "M=99999999999999999999"],
        ["{f}::gemm", "--target", "sm_90", "--signature", "*fp13"],
        ["{f}::gemm", "--target", "sm_90", "--constexpr", "BM=100"],
        ["missing.py::gemm", "--target", "sm_90"],
        ["{f}::gemm", "--target", "sm_90", "--grid", "0"],
    ],
)
def test_mistakes_are_one_line(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gemm.py"
    file.write_text(GEMM)
    assert main(["inspect", *(a.replace("{f}", str(file)) for a in arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.strip().splitlines()[-1].startswith("advisor: error: ")


def test_answers_are_cached(source: SourceFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path))
    launch = make_launch(source, "gemm", constexprs={"PRECISION": "tf32"})
    guess = next(guesses(source, source.kernel("gemm"), launch.given))
    request = request_for(launch, guess, SM_90, sass=False)
    seen: list[tuple[int, int]] = []
    compile_kernels([request], progress=lambda done, all_: seen.append((done, all_)))
    assert seen == [(0, 1), (1, 1)]
    with monkeypatch.context() as without:
        without.setattr(Pool, "map", lambda *_: pytest.fail("what is cached is not compiled again"))
        compile_kernels([request])
    for path in tmp_path.rglob("*.z"):
        path.write_bytes(b"damaged")
    assert len(compile_kernels([request])) == 1


def test_a_refusal_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: Pool) -> None:
    """What this version refuses, another may read: the cache outlives the rules."""
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path))
    source = parse_source(HEAD + "@triton.jit\ndef k(x):\n    tl.store(x, 1.0)\n", "k.py")
    launch = make_launch(source, "k")
    request = request_for(launch, next(guesses(source, source.kernel("k"), launch.given)), SM_90, sass=False)
    compile.write(request.key(version()), {"error": "refused: something that is read today", "kind": "refused"})
    assert compile_kernels([request], pool)[0].name == "k"
    hostile = parse_source(HEAD + "@triton.jit\ndef k(x):\n    tl.store(x, tl.core)\n", "k.py")
    launch = make_launch(hostile, "k")
    request = request_for(launch, next(guesses(hostile, hostile.kernel("k"), launch.given)), SM_90, sass=False)
    assert compile_kernels([request], pool)[0].kind == "refused"
    assert compile.read(request.key(version())) is None


def test_a_slow_compile_is_killed(source: SourceFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path))
    launch = make_launch(source, "gemm", constexprs={"PRECISION": "tf32"})
    guess = next(guesses(source, source.kernel("gemm"), launch.given))
    with Pool(1, timeout_s=0.01) as pool:
        failure = compile_kernels([request_for(launch, guess, SM_90)], pool)[0]
        assert getattr(failure, "kind", None) == "timeout"
        assert all(worker.process is None for worker in pool.idle)
        pool.until = 0.0  # the time for all together
        assert "timed out: the time for all compilations" in str(compile_kernels([request_for(launch, guess, SM_90)], pool)[0])
    assert not list(tmp_path.rglob("*.z"))


def test_a_killed_compile_leaves_no_files(source: SourceFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    launch = make_launch(source, "gemm", constexprs={"PRECISION": "tf32"})
    guess = next(guesses(source, source.kernel("gemm"), launch.given))
    with Pool(1) as pool:
        compile_kernels([request_for(launch, guess, SM_90, sass=False)], pool)  # now Triton is loaded, the next one starts at once
        pool.timeout_s = 0.1
        failure = compile_kernels([request_for(launch, guess, Target(backend="cuda", arch=80), sass=False)], pool)[0]
        assert getattr(failure, "kind", None) == "timeout"
        assert "gemm was not compiled for sm_80; got timed out: no end after 0.1 s, which --compile-limit sets" in str(failure)
        assert "nothing is known of this configuration" in str(failure) and pool.given_up == 1
        assert not list((tmp_path / "temporary").iterdir())


def test_a_compile_without_room_is_no_verdict_on_the_kernel(source: SourceFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit on files, which workers inherit, is to them what a full disk is."""
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path))
    launch = make_launch(source, "gemm", constexprs={"PRECISION": "tf32"})
    guess = next(guesses(source, source.kernel("gemm"), launch.given))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Pool(1) as pool:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        try:
            failure = compile_kernels([request_for(launch, guess, SM_90)], pool)[0]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert getattr(failure, "kind", None) == "crash" and "was not compiled" in str(failure) and "temporary folder" in str(failure)


def test_a_slow_compile_says_that_it_is_at_work(
    source: SourceFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("advisor.compiled.compiler.pool.SLOW_S", 0.01)
    launch = make_launch(source, "gemm", constexprs={"PRECISION": "tf32"})
    guess = next(guesses(source, source.kernel("gemm"), launch.given))
    with Pool(1, timeout_s=0.5) as pool:
        compile_kernels([request_for(launch, guess, SM_90)], pool)
    (said,) = caplog.messages
    assert said.startswith("advisor: Triton is still at work on gemm after 0.01 s; it is given up after 0.5 s (--compile-limit)")
    assert "left out" in said


def test_without_triton(source: SourceFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    launch = make_launch(source, "gemm", constexprs={"PRECISION": "tf32"})
    for named in (python, tmp_path / "nonsense"):
        monkeypatch.setenv("ADVISOR_TRITON_PYTHON", os.fspath(named))
        with pytest.raises(MissingDependencyError, match=f"ADVISOR_TRITON_PYTHON: .* got {named}; .* correct or unset it"):
            inspect_launch(launch, SM_90)
    monkeypatch.delenv("ADVISOR_TRITON_PYTHON")
    monkeypatch.setattr("advisor.system.triton_install._installed", lambda python: {})
    with pytest.raises(MissingDependencyError, match="not installed; pip install triton"):
        inspect_launch(launch, SM_90)


@pytest.mark.parametrize(
    ("left", "name", "runs_in", "share"),
    [
        ("e2m1", "RTX 5090", "fp4", 1.0),
        ("e4m3", "RTX 5090", "fp8", 0.25),
        ("e2m1", "B200", "fp4", 1.0),
        ("e2m1", "H200", "fp8", 0.5),
        ("e2m1", "A100", "bf16", 1.0),
        ("e4m3", "B200", "fp8", 1.0),
        ("bf16", "B200", "bf16", 1.0),
        ("e4m3", "H200", "fp8", 0.5),
        ("bf16", "H200", "bf16", 1.0),
    ],
)
def test_a_scaled_product_runs_on_the_matrix_units(pool: Pool, left: str, name: str, runs_in: str, share: float) -> None:
    """4-bit operands too, in a wider type where the GPU has no instruction for them; the wider operand decides."""
    text = (
        HEAD
        + """
@triton.jit
def mx(a_ptr, b_ptr, sb_ptr, c_ptr, K, BK: tl.constexpr, LEFT: tl.constexpr, PACK: tl.constexpr):
    m = tl.arange(0, 128)
    acc = tl.zeros((128, 128), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] * (K // PACK) + k // PACK + tl.arange(0, BK // PACK)[None, :])
        b = tl.load(b_ptr + m[None, :] * (K // 2) + k // 2 + tl.arange(0, BK // 2)[:, None])
        s = tl.load(sb_ptr + m[:, None] * (K // 32) + k // 32 + tl.arange(0, BK // 32)[None, :])
        acc = tl.dot_scaled(a, None if LEFT == "bf16" else s, LEFT, b, s, "e2m1", acc)
    tl.store(c_ptr + m[:, None] * 128 + m[None, :], acc)
"""
    )
    if name == "B200" and left != "bf16" and version().startswith("3.6."):
        pytest.skip("Triton 3.6 does not compile it: an assertion of its pass NVWSInsertTmemAref fails")
    gpu = load_gpu(name)
    element = {"e2m1": "u8", "e4m3": "fp8e4nv", "bf16": "bf16"}[left]
    launch = make_launch(
        parse_source(text, "mx.py"),
        "mx",
        types={"a_ptr": f"*{element}", "b_ptr": "*u8", "sb_ptr": "*u8", "c_ptr": "*fp32"},
        constexprs={"BK": 128, "LEFT": left, "PACK": 2 if left == "e2m1" else 1},
        arguments={"K": 1024},
        options={"num_warps": 4, "num_stages": 2},
        grid=(4,),
    )
    inspection = inspect_launch(launch, Target.of(gpu), pool, sass=False)
    analysis = kernel_analysis(inspection, gpu)
    assert problem_of(inspection).dtype == {"e2m1": "fp4", "e4m3": "fp8"}.get(left, left)
    assert (analysis.work.tensor_dtype, float(analysis.work.fma_flop[0])) == (runs_in, 0)
    assert float(analysis.work.tensor_flop[0]) == 2 * 4 * 128 * 128 * 1024
    assert float(analysis.demand.tensor_rate[0]) == share  # of the rate: Triton unpacks to bf16 where the GPU cannot scale blocks


def test_a_plain_product_takes_the_rate_without_block_scales(source: SourceFile, pool: Pool) -> None:
    constants = {"BM": 128, "BN": 128, "BK": 64, "ATOMIC": False, "DIVIDE": False, "PRECISION": "tf32"}
    types = {"a_ptr": "*fp8e4nv", "b_ptr": "*fp8e4nv", "c_ptr": "*fp32", "lock_ptr": "*i32"}
    launch = make_launch(source, "gemm", types=types, constexprs=constants, grid=(64, 1, 1))
    gpu = load_gpu("RTX 5090")
    analysis = kernel_analysis(inspect_launch(launch, Target.of(gpu), pool, sass=False), gpu)
    assert (analysis.work.tensor_dtype, float(analysis.demand.tensor_rate[0])) == ("fp8", 0.5)


@pytest.mark.parametrize("num_ctas", [1, 2])
def test_the_ctas_of_a_cluster_share_a_program(num_ctas: int, source: SourceFile, pool: Pool) -> None:
    constants = {"BM": 128, "BN": 128, "BK": 32, "ATOMIC": False, "DIVIDE": False, "PRECISION": "tf32"}
    launch = make_launch(
        source,
        "gemm",
        types={"a_ptr": "*bf16", "b_ptr": "*bf16", "c_ptr": "*fp32", "lock_ptr": "*i32"},
        constexprs=constants,
        arguments={"M": 2048, "N": 2048, "K": 256, "sa": 256, "sb": 2048, "sc": 2048},
        grid=(16, 16),
        options={"num_warps": 4, "num_stages": 3, "num_ctas": num_ctas},
    )
    got = kernel_analysis(inspect_launch(launch, compile_target("sm_90"), pool, sass=False), load_gpu("H200"))
    assert got.occupancy.ctas == 256 * num_ctas
    assert got.occupancy.waves == pytest.approx(256 * num_ctas / (132 * got.occupancy.resident_ctas_per_sm))
    assert float(got.demand.per_cta["tensor"][0]) * num_ctas == 2 * 128 * 128 * 256
    assert got.demand.totals()["tensor"][0] == 2 * 2048 * 2048 * 256


def test_atomics_are_shown_where_most_lanes_update(pool: Pool) -> None:
    """Not where a lock is waited for."""
    text = HEAD + (
        "@triton.jit\ndef t(lock, y, n, B: tl.constexpr):\n    for i in range(n):\n        tl.atomic_add(lock, 1)\n"
        "        tl.atomic_add(lock, 2)\n"
        "        tl.atomic_add(y + tl.arange(0, B), 1.0)\n"
    )
    types = {"lock": "*i32", "y": "*fp32"}
    launch = make_launch(parse_source(text, "t.py"), "t", types=types, constexprs={"B": 1024}, arguments={"n": 8}, grid=(8,))
    inspection = inspect_launch(launch, SM_90, pool)
    (found,) = [f for f in check_compiled(inspection, read_facts(inspection.compiled)) if f.rule == "atomics-in-loop"]
    assert found.source_line == 8 and "1024 lanes on y" in found.evidence


def test_lines_of_integer_work_alone_are_shown_where_it_is_most(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As where packed weights are taken apart; not every line that computes an address."""
    file = tmp_path / "t.py"
    file.write_text(
        HEAD
        + (
            "@triton.jit\ndef t(x, y, B: tl.constexpr):\n    o = tl.program_id(0) * B + tl.arange(0, B)\n    v = tl.load(x + o)\n"
            "    start = tl.program_id(1) * 3\n    v = ((v >> 4) & 15) ^ (v & 15) ^ (v << 3) ^ (v >> 9)\n    tl.store(y + o + start, v)\n"
        )
    )
    arguments = ["--gpu", "H200", "--signature", "*i32,*i32", "--constexpr", "B=1024", "--grid", "64"]
    assert main(["inspect", f"{file}::t", *arguments]) == 0
    shown = capsys.readouterr().out.partition("Source lines")[2]
    assert "^ (v << 3)" in shown and "tl.program_id(1) * 3" not in shown


def test_shared_memory_beyond_the_limit_is_an_error(source: SourceFile, pool: Pool) -> None:
    launch = make_launch(
        source,
        "gemm",
        types={"a_ptr": "*bf16", "b_ptr": "*bf16", "c_ptr": "*fp32", "lock_ptr": "*i32"},
        constexprs={"BM": 128, "BN": 128, "BK": 256, "ATOMIC": False, "DIVIDE": False, "PRECISION": "tf32"},
        arguments={"M": 1024, "N": 1024, "K": 1024, "sa": 1024, "sb": 1024, "sc": 1024},
        options={"num_warps": 8, "num_stages": 3},
        grid=(8, 8),
    )
    inspection, gpu = inspect_launch(launch, SM_90, pool), load_gpu("H200")
    facts = read_facts(inspection.compiled)
    found = check_compiled(inspection, facts, gpu, kernel_analysis(inspection, gpu, "warm", facts))[0]
    assert found.rule == "cannot-launch" and found.severity == "error"
    assert "of shared memory, H200 allows 227 KiB" in found.title and "num_stages" in found.remedy
