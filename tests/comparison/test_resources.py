"""Compiled resources: for which GPU, with which configuration."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from advisor.comparison import Options, assemble, compare_files
from advisor.comparison.kernels import attempts, lists, resources
from advisor.comparison.kernels.attempts import Compiling, described_arguments
from advisor.comparison.kernels.kernel_version import KernelVersion
from advisor.comparison.settings import Settings
from advisor.compiled.compiler.kernel import Resources as Held
from advisor.gpus.hardware import load_gpu
from advisor.learned.analytical import AnalyticalPredictor
from advisor.python_source.source import parse_source
from advisor.rendering.comparison_files import to_comment, to_text
from advisor.result.comparison_schema import Compared, ResourceRow, Resources, Subject
from advisor.result.schema import Configuration, Problem


@pytest.fixture(autouse=True)
def without_machine_code() -> None:
    """With it: some of these tests read its instructions."""


@pytest.fixture
def compile_of_warps(monkeypatch):
    """Instead of a compilation: as many registers as the configuration has warps."""

    def compiled(old, new, run, *_):
        held = [
            Resources(origin="compiled", registers_per_thread=each.num_warps, spill_bytes=0, shared_memory_bytes=0)
            for each in (run.former or run.configuration, run.configuration)
        ]
        return *(resources.Attempt(resources=each) for each in held), []

    def alone(old, new, run, *_):
        warps = run.configuration.num_warps
        held = {"registers_per_thread": 9, "spill_bytes": 520 if warps == 2 else 0, "shared_memory_bytes": 245_760 if warps == 32 else 0}
        return resources.Attempt(), resources.Attempt(resources=Resources(origin="compiled", resident_ctas_per_sm=int(warps != 32), **held))

    monkeypatch.setattr(resources, "_compile", compiled)
    monkeypatch.setattr(lists, "compiled_pair", alone)


def run(warps: int) -> resources.Run:
    configuration = Configuration(parameters={"BLOCK_SIZE": 512}, num_warps=warps)
    return resources.Run(configuration=configuration, problem=None, element="bf16")


@pytest.mark.parametrize(("spills", "shown"), [((0, 0, 0, 0), "01"), ((0, 0, 0, 8), "30"), ((0, 4, 4, 4), "123")])
def test_of_many_compiled_configurations_a_comment_folds_those_that_decide_nothing(spills, shown):
    rows = []
    for number, count in enumerate(spills):
        before, after = (
            Resources(origin="compiled", registers_per_thread=30 + number, spill_bytes=each, shared_memory_bytes=0) for each in (0, count)
        )
        rows.append(ResourceRow(kernel="k", gpu="H100", label=f"BLOCK={number}", base=before, head=after, reason=""))
    subject = Subject(kind="kernel", title="k", path="k.py", change="modified", resources=tuple(rows))
    found = assemble(Compared(label="a"), Compared(label="b"), [subject], Options(), Settings(), AnalyticalPredictor(), ())
    visible, _, folded = to_comment(found).partition(f"{4 - len(shown)} more compiled configuration")
    assert re.findall(r"BLOCK=(\d)", visible) == list(shown) and len(re.findall(r"BLOCK=\d", folded)) == 4 - len(shown)


@pytest.mark.parametrize(("warps", "rows"), [({"H100": 4, "H200": 8}, {"H100": 4, "H200": 8}), ({"H100": 4, "H200": 4}, {"H100, H200": 4})])
def test_every_gpu_gets_its_own_configuration(compile_of_warps, predictor, warps, rows):
    """Both GPUs have one compile target; what is fastest there differs."""
    best = {name: run(count) for name, count in warps.items()}
    version = KernelVersion(source=None, function=None, entry={}, configurations=(), named=())
    gpus = [load_gpu(name) for name in warps]
    found = resources.judged("k", version, version, best, gpus, Compiling(), "bf16")
    assert {row.gpu: row.head.registers_per_thread for row in found.rows} == rows and not found.notes and not found.failures
    assert all(f"num_warps={rows[row.gpu]}" in row.label for row in found.rows)
    subject = Subject(kind="kernel", title="k", path="k.py", change="modified", resources=found.rows)
    shown = assemble(Compared(label="a"), Compared(label="b"), [subject], Options(), Settings(), predictor, ())
    for gpu, count in rows.items():
        assert f"compiled for {gpu} with BLOCK_SIZE=512 num_warps={count}" in to_text(shown)


def test_a_file_is_told_all_of_the_problem():
    asked = ("weight_dtype", "output_dtype", "block_shape", "routing", "compute_capability", "capability")
    text = "def arguments(problem, config):\n    return {" + ", ".join(f"'{name}': problem['{name}']" for name in asked) + "}\n"
    problem = Problem(
        family="fused_moe",
        op="w13",
        sizes={"M": 8, "E": 2, "topk": 1, "H": 64, "N": 64},
        dtype="fp8",
        weight_dtype="fp8",
        output_dtype="bf16",
        block_shape=(128, 128),
        routing=(7, 1),
    )
    found = described_arguments(parse_source(text, "k.py"), {"arguments": "arguments"}, problem, Configuration(parameters={}), "9.0")
    assert found == dict(zip(asked, ("fp8", "bf16", (128, 128), [7, 1], "9.0", 90), strict=True))


@pytest.mark.parametrize(
    ("gpu", "registers", "warps", "shared", "resident"),
    [("H100", 80, 1, 0, 24), ("A10", 168, 16, 0, 1), ("H100", 64, 4, 228 * 1024, 0), ("H100", 64, 64, 0, 0), ("H100", None, 4, 0, None)],
)
def test_resident_ctas_are_those_of_the_occupancy_model(gpu, registers, warps, shared, resident):
    """A warp lives in one partition's registers; a CTA's threads share them out; 64 warps are more than a CTA has."""
    held = Held(registers=registers, spill_bytes=0, shared_memory_bytes=shared, num_warps=warps)
    assert attempts._resident(held, load_gpu(gpu)) == resident


SCALE = """
import triton
import triton.language as tl

@triton.jit
def scale_kernel(x_ptr, n, TWICE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(x_ptr + offsets, x, mask=offsets < n)
"""


@pytest.mark.parametrize(
    ("line", "fails"),
    [
        ("x = tl.no_such_thing(x)", True),
        ("for i in range(n):\n        x += tl.no_such_thing(i)", True),
        ("if TWICE:\n        x = tl.no_such_thing(x)", False),
        ("x = x if TWICE else tl.no_such_thing(x)", False),
        ("for i in tl.static_range(TWICE):\n        x = tl.no_such_thing(x)", False),
        ("if TWICE:\n        return\n    x = tl.no_such_thing(x)", False),
        ("x = x << 1", False),
    ],
)
def test_a_name_that_triton_lacks_fails_where_every_launch_comes_to_it(tmp_path, predictor, line, fails):
    """Only what no type, constant or configuration can mend is certain: the float that is shifted may be an integer."""
    pytest.importorskip("triton")
    sides = [tmp_path / name / "scale.py" for name in ("base", "head")]
    for path, text in zip(sides, (SCALE, SCALE.replace("    tl.store", f"    {line}\n    tl.store")), strict=True):
        path.parent.mkdir()
        path.write_text(text)
    found = compare_files(*sides, Options(gpus=("H200",)), predictor, Settings())
    (row,) = found.subjects[0].resources
    assert row.base is not None and (row.head is None or "<<" in line)
    told = f"Certain to fail: {sides[1]}::scale_kernel on H200 (" if fails else "as the head could not be compiled"
    assert (told in found.headline) is (row.head is None)
    assert ("could not be compiled with guessed TWICE = " in row.reason) is (row.head is None and not fails)
    assert found.gate.failed == fails and ("on H200 (" in found.gate.sentence and "has no tl.no_such_thing" in found.gate.sentence) == fails
    back = compare_files(*reversed(sides), Options(gpus=("H200",)), predictor, Settings())
    assert not back.gate.failed and "no longer" not in back.headline and back.headline.startswith("1 kernel compiles again") is fails


def test_what_every_target_refuses_alike_is_said_once(tmp_path, predictor):
    pytest.importorskip("triton")
    sides = [tmp_path / name / "scale.py" for name in ("base", "head")]
    for path, text in zip(sides, (SCALE, SCALE.replace("x = tl.load", "x = tl.no_such_thing")), strict=True):
        path.parent.mkdir()
        path.write_text(text)
    found = compare_files(*sides, Options(gpus=("H200", "A100")), predictor, Settings())
    (failure,) = found.subjects[0].failures
    assert (failure.what, failure.reason.count("has no tl.no_such_thing")) == ("on H200, A100", 1)
    assert "sm_" not in found.gate.sentence and found.gate.sentence.count("has no tl.no_such_thing") == 1
    rows = {row.gpu: row.reason for row in found.subjects[0].resources}
    assert "sm_90" in rows["H200"] and "sm_80" in rows["A100"]


@pytest.mark.parametrize(
    ("line", "become", "fails"),
    [
        ("exponentials = tl.exp2(", "exponentials = tl.arange(0, 100) + tl.exp2(", True),
        ("exponentials = tl.exp2(", "tl.static_assert(KIND * KIND == 35)\n        exponentials = tl.exp2(", False),
    ],
)
def test_a_described_kernel_that_no_longer_compiles_fails(tmp_path, predictor, line, become, fails):
    """Its file gives every argument of the launch, and the base compiled with them: unless the head has one more, which is guessed."""
    pytest.importorskip("triton")
    source = (Path(__file__).parents[2] / "triton_kernels" / "softmax.py").read_text()
    broken = source.replace(line, become)
    if "KIND" in become:
        broken = broken.replace("    BLOCK_SIZE: tl.constexpr,\n", "    BLOCK_SIZE: tl.constexpr,\n    KIND: tl.constexpr,\n")
    assert broken.count("KIND") in (0, 3)
    sides = [tmp_path / name / "softmax.py" for name in ("base", "head")]
    for path, text in zip(sides, (source, broken), strict=True):
        path.parent.mkdir()
        path.write_text(text)
    found = compare_files(*sides, Options(gpus=("H200",)), predictor, Settings())
    (row,) = found.subjects[0].resources
    assert row.base is not None and row.head is None
    assert found.gate.failed is fails and ("softmax_kernel" in found.gate.sentence) is fails


GUESSED = SCALE.replace("    tl.store", "    if TWICE:\n        x += x\n    tl.store")


@pytest.mark.parametrize(
    ("become", "fails"),
    [
        ("x = x + tl.arange(0, 2 * BLOCK)\n    tl.store", False),
        ("x += tl.load(x_ptr, evict=offsets)\n    tl.store", True),
        ("tl.static_assert(BLOCK % 3 == 0)\n    tl.store", False),
        ("x = x + tl.load(n + offsets)\n    tl.static_assert(False)\n    tl.store", False),
    ],
    ids=["shapes", "no such argument", "an assertion of a guessed constant", "other types are inferred"],
)
def test_what_compiles_no_longer_with_the_same_guesses_fails(tmp_path, predictor, become, fails):
    """Only what no type, constant or flag could mend does: other shapes may come of another BLOCK."""
    pytest.importorskip("triton")
    sides = [tmp_path / name / "scale.py" for name in ("base", "head")]
    for path, text in zip(sides, (GUESSED, GUESSED.replace("tl.store", become)), strict=True):
        path.parent.mkdir()
        path.write_text(text)
    found = compare_files(*sides, Options(gpus=("H200",)), predictor, Settings())
    (row,) = found.subjects[0].resources
    assert row.base is not None and row.head is None
    assert found.gate.failed is fails
    told = "could not be compiled with guessed TWICE = False, x_ptr: *bf16"
    assert (told in row.reason) is not fails and ("unexpected keyword" in found.gate.sentence) is fails
    assert not compare_files(*reversed(sides), Options(gpus=("H200",)), predictor, Settings()).gate.failed


def test_what_only_other_types_have_does_not_fail(tmp_path, predictor):
    """Nothing says that the numbers are bf16, of which there is no exp2."""
    pytest.importorskip("triton")
    sides = [tmp_path / name / "scale.py" for name in ("base", "head")]
    for path, text in zip(sides, (GUESSED, GUESSED.replace("    tl.store", "    x = tl.exp2(x)\n    tl.store")), strict=True):
        path.parent.mkdir()
        path.write_text(text)
    found = compare_files(*sides, Options(gpus=("H200",)), predictor, Settings())
    assert found.subjects[0].resources[0].head is not None and not found.gate.failed


def tuned(*warps):
    configurations = tuple(Configuration(parameters={"BLOCK_SIZE": 512}, num_warps=count) for count in warps)
    named = tuple(each.label() for each in configurations)
    node = parse_source("def k(x):\n    pass\n", "k.py").tree.body[0]
    function = SimpleNamespace(autotune=object(), node=node)
    return KernelVersion(source=None, function=function, entry={}, configurations=configurations, named=named)


@pytest.mark.parametrize(
    ("old", "new", "label", "registers"),
    [
        ((4, 8), (4, 16), "BLOCK_SIZE=512 num_warps=8 → 16 num_stages=3", (8, 16)),
        ((4, 8), (4, 8, 16), "BLOCK_SIZE=512 num_warps=4 num_stages=3", (4, 4)),
        ((4, 8), (8,), "BLOCK_SIZE=512 num_warps=8 num_stages=3", (8, 8)),
    ],
)
def test_configurations_that_took_the_place_of_others_are_compiled(compile_of_warps, old, new, label, registers):
    (row,) = resources.judged("k", tuned(*old), tuned(*new), {}, [load_gpu("H100")], Compiling(), "bf16").rows
    assert row.label == label and (row.base.registers_per_thread, row.head.registers_per_thread) == registers


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (
            (4, 32),
            "Autotuning passes over BLOCK_SIZE=512 num_warps=32 num_stages=3 on H100: a CTA needs 240 KiB of shared memory",
        ),
        ((4, 2), "With the new configuration BLOCK_SIZE=512 num_warps=2 num_stages=3 each thread spills 520 bytes on H100."),
        ((4, 16), None),
    ],
)
def test_configurations_new_to_a_list_are_compiled_too(compile_of_warps, new, said):
    notes = resources.judged("k", tuned(4), tuned(*new), {}, [load_gpu("H100")], Compiling(), "bf16").notes
    assert [note.startswith(said or "?") for note in notes] == [True] * bool(said)


@pytest.mark.parametrize(("fits", "same"), [(False, False), (True, False), (False, True)])
def test_the_largest_configuration_is_said_not_to_launch_any_more(monkeypatch, fits, same):
    """Also where it is not the one that both versions are compared with; where the kernel is the same, it launches as it did."""

    def compiled(old, new, run, *_):
        large = (run.former or run.configuration).num_warps == 16
        held = [
            Resources(origin="compiled", registers_per_thread=9, spill_bytes=0, shared_memory_bytes=240 * 1024, resident_ctas_per_sm=each)
            for each in (1, 0 if large and not fits else 1)
        ]
        return *(resources.Attempt(resources=each) for each in held), []

    monkeypatch.setattr(resources, "_compile", compiled)
    monkeypatch.setattr(lists, "compiled_pair", lambda *given: compiled(*given)[:2])
    monkeypatch.setattr(lists, "_size", lambda configuration: configuration.num_warps)
    notes = resources.judged("k", tuned(4, 8, 16), tuned(4, 8, 16), {}, [load_gpu("H100")], Compiling(), "bf16", same=same).notes
    said = "Now autotuning passes over BLOCK_SIZE=512 num_warps=16 num_stages=3 on H100: a CTA needs 240 KiB"
    assert any(note.startswith(said) for note in notes) is (not fits and not same)


@pytest.mark.parametrize(
    ("needed_kib", "invented", "is_said"),
    [
        (240, {}, True),
        (240, {"BLOCK": 64}, True),
        (240, {"x_ptr": "*bf16"}, False),
        (500, {"x_ptr": "*bf16"}, True),
        (0, {"x_ptr": "*bf16"}, True),
    ],
    ids=["types said", "a guessed constant", "guessed types", "more than narrower types need", "registers"],
)
def test_shared_memory_of_guessed_types_is_no_reason_to_pass_over(needed_kib, invented, is_said):
    """Operands of 8 bits, for which a configuration may be made, take half."""
    held = Resources(
        origin="compiled", registers_per_thread=9, spill_bytes=0, shared_memory_bytes=needed_kib * 1024, resident_ctas_per_sm=0
    )
    attempt = SimpleNamespace(resources=held, invented=invented)
    assert bool(resources.passed_over("BLOCK=64", attempt, [load_gpu("H100")])) is is_said


@pytest.mark.parametrize(("warps", "passed_over"), [((4, 16), True), ((16,), False)])
def test_what_autotuning_passes_over_does_not_gate(monkeypatch, warps, passed_over):
    def compiled(old, new, run, *_):
        resident = [0 if each.num_warps == 16 else 2 for each in (run.former or run.configuration, run.configuration)]
        held = [
            Resources(origin="compiled", registers_per_thread=9, spill_bytes=0, shared_memory_bytes=0, resident_ctas_per_sm=each)
            for each in resident
        ]
        return *(resources.Attempt(resources=each) for each in held), []

    monkeypatch.setattr(resources, "_compile", compiled)
    monkeypatch.setattr(lists, "compiled_pair", lambda *given: compiled(*given)[:2])
    given = tuned(4, 8), tuned(*warps), {}, [load_gpu("H100")], Compiling(), "bf16"
    found = resources.judged("k", *given)
    said = "Autotuning passes over BLOCK_SIZE=512 num_warps=16 num_stages=3 on H100: as compiled, no CTA fits an SM."
    assert (said in found.notes, not found.rows) == (passed_over, passed_over)


@pytest.mark.parametrize(("origin", "alike"), [("guessed", True), ("literal", False)])
def test_a_grid_that_one_side_alone_has_limits_neither(monkeypatch: pytest.MonkeyPatch, origin: str, alike: bool) -> None:
    """One program before and a guessed number now is no occupancy 16 times as high."""
    monkeypatch.setattr(attempts, "_held", lambda compiled, gpu, grid: "code" if grid is None else "grid")
    sides = [
        attempts.Attempt(launch=SimpleNamespace(grid=(count,), origins={"grid": whence}), compiled=SimpleNamespace(), resources="grid")
        for count, whence in ((1, "literal"), (64, origin))
    ]
    held = attempts._of_code_where_one_grid_is_known(*sides, load_gpu("H100"))
    assert [side.resources for side in held] == (["code", "code"] if alike else ["grid", "grid"])
