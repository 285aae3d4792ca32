"""Both versions of a kernel are judged at one launch: known on either side, at typical sizes, with the flags that show a change."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from advisor.comparison.kernels import resources, time_verdict
from advisor.comparison.kernels.attempts import Compiling, alike_configurations
from advisor.comparison.kernels.kernel_version import KernelVersion, versions
from advisor.comparison.kernels.one_launch import both_launches, closest, following, typical_size
from advisor.comparison.kernels.time_verdict import MOST_PROGRAMS
from advisor.comparison.kernels.touched import touched
from advisor.comparison.settings import KernelSettings, read_settings
from advisor.comparison.static import pairs_that_stayed
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.launches.launch import JUDGED
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import parse_source
from advisor.rendering.comparison_files import to_comment, to_text
from advisor.result.comparison_schema import Resources
from advisor.result.schema import Configuration

from .repository import compared_files


@pytest.fixture(autouse=True)
def without_machine_code() -> None:
    """With it: some of these tests read its instructions."""


H100 = load_gpu("H100")
KERNEL = """
import triton
import triton.language as tl

@triton.jit
def scale(x_ptr, out_ptr, n_rows, n_cols, BLOCK: tl.constexpr, DOUBLE: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + offsets, mask=offsets < n_cols)
    if DOUBLE:
        x = x * 2.0
    tl.store(out_ptr + row * n_cols + offsets, x, mask=offsets < n_cols)

def settings(n):
    block = triton.next_power_of_2(n)
    return block, 8 if block >= 2048 else 4

def run(x, out, double=False):
    n_rows, n_cols = x.shape
    block, warps = settings(n_cols)
    scale[(n_rows,)](x, out, n_rows, n_cols, block, double, num_warps=warps)
"""


def test_what_a_grid_follows_from_is_asked_for_and_not_what_follows_itself():
    text = KERNEL.replace("(n_rows,)", "(programs,)").replace("def run(x, out, double=False):", "def run(x, out, BLOCK, double=False):")
    text = text.replace("    block, warps = settings(n_cols)\n", "    programs = triton.cdiv(n_rows, BLOCK)\n")
    text = text.replace("block, double, num_warps=warps", "BLOCK, double")
    pair = (version(text), version(text))
    sized, _ = both_launches(pair, (None, None), H100, "bf16", None, KernelSettings(args={"n_cols": 4096}))
    assert (sized.launch.grid, sized.grid_names) == (None, ("BLOCK",))


def test_what_both_sides_pass_otherwise_is_not_guessed_as_one():
    """Of a block that follows from another one, that is guessed."""
    text = KERNEL.replace("block, warps = settings(n_cols)", "BLOCK = block // 2").replace("DOUBLE: tl", "TILE: tl.constexpr, DOUBLE: tl")
    text = text.replace("def run(x, out, ", "def run(x, out, block, ").replace("block, double, num_warps=warps", "BLOCK, block, double")
    pair = (version(text), version(text.replace("block // 2", "block * 2")))
    base, head = (side.launch for side in both_launches(pair, (None, None), H100, "bf16", None, KernelSettings()))
    assert head.given.constexprs["BLOCK"] == 4 * base.given.constexprs["BLOCK"] and base.given.constexprs["TILE"] > 0
    assert base.origins["BLOCK"] == base.origins["TILE"] == "guessed"


def version(text, name="scale"):
    return versions(parse_source(text, "k.py").on(*H100.triton_target[:2]), {})[name]


def launched(old, new, **more):
    found = both_launches((version(old), version(new)), (None, None), H100, "bf16", None, more.pop("said", KernelSettings()), **more)
    return [each.launch for each in found]


@pytest.mark.parametrize(
    ("become", "blocks", "warps"),
    [
        (("num_warps=warps", "num_warps=warps"), (4096, 4096), (8, 8)),
        (("num_warps=warps", "num_warps=chosen(x)"), (4096, 4096), (8, 8)),  # known on one side alone
        (("    block, warps", "    block = min(64, 4 * n_cols)\n    _, warps"), (4096, 64), (8, 8)),  # computed from the problem
        (("block, double", "tuned(x), double"), (4096, 4096), (8, 8)),
    ],
)
def test_what_is_known_on_one_side_counts_for_both(become, blocks, warps):
    base, head = launched(KERNEL, KERNEL.replace(*become))
    assert (base.given.constexprs["BLOCK"], head.given.constexprs["BLOCK"]) == blocks
    assert (base.given.options["num_warps"], head.given.options["num_warps"]) == warps
    assert base.grid == head.grid == (8192,) and base.given.scalars["n_cols"] == 4096


def test_what_advisor_toml_says_goes_before_what_is_typical():
    text = 'kernels."k.py::scale" = {args = {n_cols = 512, n_rows = 7}, grid = "n_rows"}'
    (said,) = read_settings(text.encode()).kernels.values()
    base, head = launched(KERNEL, KERNEL, said=said)
    assert head.given.constexprs["BLOCK"] == 512 and head.given.options["num_warps"] == 4 and base.grid == (7,)


BACKWARD = """
@triton.jit
def scale_back(x_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + tl.program_id(0) * n_cols + offsets, 0.0, mask=offsets < n_cols)

def backward(ctx, x):
    scale_back[(x.shape[0],)](x, x.shape[0], x.shape[1], ctx.block, num_warps=ctx.warps)
"""


def test_what_is_handed_from_elsewhere_is_as_in_other_launches_of_the_file():
    one = version(KERNEL + BACKWARD, "scale_back")
    base, _ = both_launches((one, one), (None, None), H100, "bf16", None, KernelSettings())
    assert (base.launch.given.constexprs["BLOCK"], base.launch.given.options["num_warps"]) == (4096, 8)


def test_warps_that_are_taken_from_another_launch_are_called_typical(repository, predictor):
    pytest.importorskip("triton")
    old, new = KERNEL + BACKWARD, KERNEL + BACKWARD.replace("0.0, mask", "1.0, mask")
    (found,) = compared_files(repository, predictor, {"k.py": old}, {"k.py": new}, compiling=True).subjects
    assert [row.label for row in found.resources] == ["BLOCK=4096 num_warps=8 (typical)"]


def test_a_caller_that_goes_leaves_both_sides_with_what_it_passed(repository, predictor):
    """Without it the head is launched with a default, of which nothing says that it is what runs."""
    pytest.importorskip("triton")
    old, caller = KERNEL, "from ops.k import run\n\n\ndef forward(x, out):\n    "
    new = old.replace("+ offsets, x, mask", "+ offsets, x + 1.0, mask")
    sides = ({"ops/k.py": old, "ops/use.py": f"{caller}run(x, out, double=True)\n"}, {"ops/k.py": new, "ops/use.py": f"{caller}pass\n"})
    (row,) = compared_files(repository, predictor, *sides, compiling=True).subjects[0].resources
    assert "DOUBLE=True" in row.label and "→" not in row.label


def test_a_constant_of_one_side_alone_is_an_argument_of_the_other(repository, predictor):
    """The one divides by a number that it is handed, the other by one that the compiler knows; which one is a guess, and no headline's."""
    pytest.importorskip("triton")
    old = KERNEL.replace("n_cols, BLOCK", "n_cols, cap, BLOCK").replace("    tl.store(", "    x = x / cap\n    tl.store(")
    old = old.replace("n_cols, block", "n_cols, cap, block").replace("double=False", "cap, double=False")
    new = old.replace("cap, BLOCK", "cap: tl.constexpr, BLOCK")
    found = compared_files(repository, predictor, {"k.py": old}, {"k.py": new}, compiling=True)
    (row,) = found.subjects[0].resources
    assert row.base.instruction_mix["fma"] > row.head.instruction_mix.get("fma", 0) and "cap" in row.guessed
    assert "Registers" not in found.headline


@pytest.mark.parametrize(
    ("old", "new", "flags"),
    [
        ("x * 2.0", "x + x", {"DOUBLE": True}),
        ("    if DOUBLE:\n        x = x * 2.0\n", "    x = x * 3.0 if DOUBLE else x\n", {"DOUBLE": True}),
        ("    if DOUBLE:\n", "    if not DOUBLE:\n        x = -x\n    if DOUBLE:\n", {"DOUBLE": False}),
        (", DOUBLE: tl.constexpr", ", DOUBLE: tl.constexpr, MODE: tl.constexpr = 0", {}),
        ("    if DOUBLE:\n", "    if BLOCK == 128:\n        x = -x\n    if DOUBLE:\n", {"BLOCK": 128}),
        ("x = tl.load(", "x = 1.0 * tl.load(", {}),
    ],
)
def test_the_flags_of_what_changed(old, new, flags):
    found = touched(version(KERNEL), version(KERNEL.replace(old, new, 1)))
    assert found.flags({}) == flags and bool(found.lines) is ("MODE" not in new)


def test_flags_of_what_is_not_seen_yet():
    """Where most of what changed is seen, those of the rest."""
    base = KERNEL.replace("    if DOUBLE:\n", "    if not DOUBLE:\n        x = -x\n        x = x - 1\n    if DOUBLE:\n")
    found = touched(version(base), version(base.replace("x = -x", "x = -x - 1").replace("x - 1\n", "x - 2\n").replace("* 2.0", "* 3.0")))
    assert (found.flags({}), found.flags({"DOUBLE": False})) == ({"DOUBLE": False}, {"DOUBLE": True})


def test_a_number_for_a_tensor_of_the_launcher_is_not_passed_as_one():
    """Nor is a grid asked for by one that no number tells."""
    text = KERNEL.replace("(n_rows,)", "(n_rows, x.numel())")
    sized, _ = both_launches((version(text),) * 2, (None, None), H100, "bf16", None, KernelSettings(args={"x": 64, "n_cols": 4096}))
    assert "x_ptr" not in sized.launch.given.scalars and (sized.launch.grid, sized.grid_names) == (None, ())


@pytest.mark.parametrize(("local", "said"), [("n_cols", False), ("columns", True)])
def test_sizes_that_one_side_takes_are_others_where_the_other_launcher_has_no_such_name(local, said):
    """A kernel that takes two sizes in place of one: those of the same launcher are of one problem."""
    kernel, launcher = KERNEL.split("def settings")
    text = kernel.replace("n_cols", "width").replace("width, BLOCK", "width, heads, BLOCK")
    head = f"{text}def settings{launcher}".replace("n_cols, block", f"{local}, 32, block").replace("n_rows, n_cols =", f"n_rows, {local} =")
    sides = resources.Attempt(sizes={"n_cols": 4096}), resources.Attempt(sizes={"width": 4096, "heads": 32})
    assert ("different problems" in resources._other_sizes(version(KERNEL), version(head), *sides)) is said


def test_a_constant_that_an_assertion_settles_is_no_typical_size():
    text = KERNEL.replace("n_cols, BLOCK: tl", "n_cols: tl.constexpr, BLOCK: tl").replace(
        "    row = tl", "    tl.static_assert(n_cols == 4)\n    row = tl"
    )
    base, _ = both_launches((version(text),) * 2, (None, None), H100, "bf16", None, KernelSettings())
    assert base.sizes["n_cols"] == base.launch.given.constexprs["n_cols"] == 4
    under = text.replace("    tl.static_assert", "    if DOUBLE:\n        tl.static_assert")
    assert both_launches((version(under),) * 2, (None, None), H100, "bf16", None, KernelSettings())[0].sizes["n_cols"] == 4096


def test_what_follows_from_typical_sizes_is_typical_too():
    text = KERNEL.replace("BLOCK: tl.constexpr,", "BLOCK: tl.constexpr, HALF: tl.constexpr, ").replace(
        "block, double,", "block, n_cols // 2, double,"
    )
    assert [*following(version(text), {"n_cols"})] == ["BLOCK", "HALF"]
    assert [*following(version(text), {"n_rows"})] == []


def test_a_block_that_follows_from_a_guessed_one_is_no_guess_of_its_own():
    """As in flash-linear-attention e1e920da14: `BC` is 16 with any `BT`."""
    text = """import triton
import triton.language as tl


@triton.jit
def chunked(x_ptr, n, BT: tl.constexpr, BC: tl.constexpr, NC: tl.constexpr):
    at = tl.program_id(0) * BT + tl.arange(0, BT)
    for part in range(NC):
        tl.store(x_ptr + at, tl.sum(tl.load(x_ptr + part * BC + tl.arange(0, BC))), mask=at < n)


def run(x, n, chunk_size):
    BT = min(chunk_size, max(16, triton.next_power_of_2(n)))
    BC = min(16, BT)
    chunked[(n,)](x, n, BT=BT, BC=BC, NC=triton.cdiv(BT, BC))
"""
    for item in both_launches((version(text, "chunked"),) * 2, (None, None), H100, "bf16", None, KernelSettings()):
        constants = item.launch.given.constexprs
        assert constants["BC"] == 16 and constants["NC"] == constants["BT"] // 16 > 1
        assert {item.launch.origins[name] for name in ("BT", "BC", "NC")} == {"guessed"}


def test_a_block_that_follows_from_a_typical_size_may_be_what_changed(repository, predictor):
    text = KERNEL.replace("block, double,", "min(64, n_cols), double,")
    found = compared_files(repository, predictor, {"k.py": text}, {"k.py": text.replace("min(64,", "min(32,")}, compiling=True)
    (row,) = found.subjects[0].resources
    assert row.changed == ("BLOCK 64 → 32 at typical sizes",) and "BLOCK=64 → 32 (typical)" in row.label


def test_a_typical_size_is_one_that_the_launcher_takes():
    text = KERNEL.replace("def scale", "def cross_entropy").replace("scale[", "cross_entropy[")
    refusing = text.replace("    cross_entropy[", "    if block > 65536:\n        raise ValueError(block)\n    cross_entropy[")
    sizes = []
    for item in (text, refusing):
        base, _ = both_launches((version(item, "cross_entropy"),) * 2, (None, None), H100, "bf16", None, KernelSettings())
        sizes.append((base.sizes["n_cols"], base.launch.given.constexprs["BLOCK"]))
    assert sizes == [(128256, 131072), (32064, 32768)]
    other = text.replace("    n_rows, n_cols =", "    if not double:\n        raise ValueError(double)\n    n_rows, n_cols =")
    base, _ = both_launches((version(other, "cross_entropy"),) * 2, (None, None), H100, "bf16", None, KernelSettings())
    assert base.sizes["n_cols"] == 128256  # refused for something else


@pytest.mark.parametrize(("condition", "size"), [("D > 512", 1024), ("D <= 512", 128), ("D > 2**40", 128)])
def test_a_typical_size_is_one_with_which_it_is_launched(condition, size):
    """As in flash-linear-attention 83845577: `if D > 512` launches another kernel."""
    text = KERNEL.replace("n_cols", "D").replace("    scale[", f"    if {condition}:\n        scale[")
    sized, _ = both_launches((version(text), version(text)), (None, None), H100, None, None, KernelSettings())
    assert sized is not None and sized.sizes["D"] == size


def test_a_kernel_that_a_gpu_is_never_launched_on_is_not_compiled_for_it(repository, predictor):
    """As in generative-recommenders a9cf8ea7; with other conditions beside it, of which nothing is known."""
    asks = "def is_sm100():\n    props = torch.cuda.get_device_properties(0)\n    return props.major == 10\n\n\ndef run("
    text = KERNEL.replace("import triton\n", "import torch\nimport triton\n", 1).replace("def run(", asks)
    text = text.replace("    scale[", "    if x.is_contiguous() and is_sm100() and not double:\n        scale[")
    (subject,) = compared_files(repository, predictor, {"k.py": text}, {"k.py": text.replace("* 2.0", "* 3.0")}, compiling=True).subjects
    said = "is not launched: its launches are under x.is_contiguous() and is_sm100() and (not double)."
    assert any(note.endswith(said) for note in subject.notes) and not subject.resources


def test_one_side_that_is_an_estimate_is_not_compared():
    sizes = {"registers_per_thread": 32, "spill_bytes": None, "shared_memory_bytes": None}
    held = {origin: Resources(origin=origin, **sizes) for origin in ("compiled", "estimated")}
    judged = SimpleNamespace(metadata={JUDGED: 131072})
    compiled, estimated = resources.Attempt(resources=held["compiled"]), resources.Attempt(resources=held["estimated"], compiled=judged)
    said = resources._one_estimated(compiled, estimated)
    assert said.startswith("where the head was not compiled, for its block of 131,072 elements")
    assert resources._one_estimated(estimated, estimated) == resources._one_estimated(compiled, compiled) == ""


def test_what_one_side_alone_tunes_is_not_compared():
    sides = tuned(1).configurations[0], Configuration(parameters={"GROUPS": 2}, num_warps=1)
    run = resources.Run(configuration=sides[1], former=sides[0], problem=None, element="bf16")
    assert resources._tuned_alone(run, None, None).startswith("where B and GROUPS are tuned on one side alone")
    assert resources._tuned_alone(resources.Run(configuration=sides[1], problem=None, element="bf16"), None, None) == ""


def test_a_cast_of_what_is_guessed_to_be_wide_is_compiled_of_what_is_not(repository, predictor):
    pytest.importorskip("triton")
    base = """
import triton
import triton.language as tl

@triton.jit
def clear(x_ptr, rows_ptr, n):
    tl.store(x_ptr + tl.load(rows_ptr + tl.program_id(0)) * n, 0.0)
"""
    head = base.replace("(0))", "(0)).to(tl.int64)")
    found = compared_files(repository, predictor, {"k.py": base}, {"k.py": head}, compiling=True)
    assert "Compiled with rows_ptr: *i32; with *i64 both versions are the same code." in found.subjects[0].notes


def test_a_flag_that_is_gone_is_not_set():
    without = (
        KERNEL.replace("    if DOUBLE:\n        x = x * 2.0\n", "").replace(", DOUBLE: tl.constexpr", "").replace("block, double", "block")
    )
    assert touched(version(KERNEL), version(without)).flags({}) == {}


def tuned(*warps, body="pass"):
    listed = tuple(Configuration(parameters={"B": 64}, num_warps=count) for count in warps)
    node = parse_source(f"def k():\n    {body}\n", "k.py").tree.body[0]
    return KernelVersion(source=None, function=SimpleNamespace(autotune=object(), node=node), entry={}, configurations=listed, named=())


@pytest.mark.parametrize(
    ("old", "new", "same_body", "warps"),
    [
        ((2, 4, 8), (8, 16), False, (8, 8)),  # one that both try
        ((2, 4), (2, 8), True, (4, 8)),  # the lists are all that changed
        ((2,), (8,), False, (2, 8)),
        ((1, 4, 8), (1, 4, 16), False, (4, 4)),  # of several the one nearest to what Triton takes by itself
    ],
)
def test_the_same_configuration_is_compiled_on_both_sides(old, new, same_body, warps):
    former, chosen = alike_configurations(tuned(*old), tuned(*new, body="pass" if same_body else "return"))
    assert ((former or chosen).num_warps, chosen.num_warps) == warps


def test_a_list_that_gave_way_to_one_launch_is_compared_at_the_nearest_of_its_configurations():
    launch, _ = launched(KERNEL, KERNEL)
    assert closest(tuned(2, 4, 8).configurations, launch, H100).num_warps == 8


@pytest.mark.parametrize(
    ("name", "kernel", "others", "size"),
    [
        ("n_cols", "row_norm", (), 4096),
        ("feat_dim", "rms_norm", ("batch_dim",), 4096),
        ("n_cols", "cross_entropy_kernel", (), 128_256),
        ("hidden_size", "cross_entropy_kernel", ("vocab_size",), 4096),  # the vocabulary has a name of its own
        ("K", "chunk_fwd", (), 128),
        ("K", "matmul", ("M", "N", "K"), 4096),
        ("K", "fused_moe_kernel", ("N", "K", "EM"), 4096),
        ("K", "recurrent", ("N", "K", "V"), 128),
        ("k", "attention", (), None),  # a tensor, most likely
        ("BT", "chunk_fwd", (), None),  # a block
        ("seqlen_q", "attention", (), 4096),
        ("ignore_index", "cross_entropy_kernel", (), None),
        ("H", "rms_norm", ("x_ptr", "B", "H", "eps", "P"), 4096),  # a row's length
        ("H", "rope", ("B", "T", "H", "D"), 32),  # heads
        ("num_query_heads", "attention", ("num_queries_per_kv",), 32),
    ],
)
def test_sizes_that_nothing_says_are_typical_large_ones(name, kernel, others, size):
    assert typical_size(name, kernel, others) == size


def test_a_size_is_typical_by_the_name_that_the_launch_passes_for_it():
    text = KERNEL.replace("n_rows, n_cols = x.shape", "n_rows, head_size = x.shape").replace("settings(n_cols)", "settings(head_size)")
    text = text.replace("n_rows, n_cols, block", "n_rows, head_size, block").replace("n_cols", "extent")
    (launch, _) = launched(text, text)
    assert (launch.given.scalars["extent"], launch.given.constexprs["BLOCK"]) == (128, 128)


TILE = """import triton
import triton.language as tl

@triton.jit
def scale(x_ptr, y_ptr, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets))

def run(x, y, block, width):
    scale[(len(x),)](x, y, block, width)
"""


@pytest.mark.parametrize(("text", "typical"), [(TILE, 1024), (TILE.replace("BLOCK)\n", "BLOCK)[:, None] + tl.arange(0, WIDTH)\n"), None)])
def test_both_launches_take_a_block_for_long_where_it_is_the_only_extent(text, typical):
    launch, _ = launched(text, text)
    assert launch.given.constexprs.get("BLOCK") == typical


FILL = """import triton
import triton.language as tl


@triton.jit
def fill(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < N).to(tl.float32)
    tl.store(y_ptr + offsets, x * 2.0, mask=offsets < N)


def run(x, y):
    N = COUNT
    fill[(triton.cdiv(N, 1024),)](x, y, N, BLOCK=1024)
"""


@pytest.mark.parametrize(
    ("count", "size", "most", "verdict"),
    [
        ("x.numel()", 2**24, MOST_PROGRAMS, "predicted-regressed"),
        ("x.numel()", 2**24, 2**14 - 1, "cannot-tell"),
        ("len(x)", 4096, MOST_PROGRAMS, "cannot-tell"),
    ],
)
def test_of_a_launch_smaller_than_the_gpu_or_endless_no_size_is_typical(repository, predictor, monkeypatch, count, size, most, verdict):
    pytest.importorskip("triton")
    monkeypatch.setattr(time_verdict, "MOST_PROGRAMS", most)
    base = FILL.replace("COUNT", count)
    head = base.replace("x * 2.0", " + ".join(f"tl.exp(x * {i}.0)" for i in range(1, 40)))
    found = compared_files(repository, predictor, {"k.py": base}, {"k.py": head}, compiling=True)
    (row,) = found.subjects[0].static
    assert (row.verdict, row.label) == (verdict, f"grid {-(-size // 1024)}, typical N={size}")
    assert verdict != "cannot-tell" or row.reason == "without N"


def test_a_kernel_of_ones_own_is_predicted_with_its_doubt_and_with_what_changed(repository, predictor):
    pytest.importorskip("triton")
    load = "    x = tl.load(x_ptr + row * n_cols + offsets, mask=offsets < n_cols)\n"
    other = "    y = tl.load(x_ptr + offsets, mask=offsets < n_cols)\n"
    base = KERNEL.replace(load, load + other).replace("offsets, x,", "offsets, x + y,")
    moved = base.replace(load + other, other + load)  # other code, though no line of it is new
    head = moved.replace("x * 2.0", "x * tl.exp(x.to(tl.float32))")
    found = compared_files(repository, predictor, {"k.py": base}, {"k.py": head}, compiling=True)
    (subject,) = found.subjects
    (row,), (compiled,) = subject.static, subject.resources
    assert row.label == "grid 8192, typical n_rows=8192 n_cols=4096" and (row.head, row.change) == (None, None)
    assert (row.verdict, row.reason) == ("cannot-tell", "without DOUBLE")
    assert "DOUBLE=True" in compiled.label and compiled.base.instruction_mix != compiled.head.instruction_mix
    assert "Compiled with DOUBLE=True, for the change to show." in subject.notes
    assert subject.hint == 'kernels."k.py::scale" = {args = {DOUBLE = true, n_cols = 4096, n_rows = 8192}}' and subject.hint in to_comment(
        found
    )
    assert found.gpus == ("H100",) and subject.line == 6


NORMALISED = KERNEL.replace("n_cols + offsets, x,", "n_cols + offsets, x * tl.rsqrt(tl.sum(x.to(tl.float32) * x)),")


@pytest.mark.parametrize(
    ("text", "rows", "reason"),
    [
        (KERNEL, 64, "less than the model's doubt of ±[0-9]+ %; {cause}; {stayed}"),
        (NORMALISED, 64, "less than the model's doubt of ±[0-9]+ %, most of it: exposed latency [0-9.]+ → [0-9.]+ µs; {cause}; {stayed}"),
        (
            KERNEL,
            16384,
            "no difference that counts is predicted: both read and write as much, at [0-9]+ % of DRAM's peak or more; {cause}; {stayed}",
        ),
        (
            NORMALISED,
            1024,
            "of 100 pairs of configurations predicted so far apart [0-9]+ were measured that way on an H100; most of it: [^;]+ µs; {cause}",
        ),
    ],
)
def test_a_literal_of_a_launch_is_a_change_of_configuration(repository, predictor, text, rows, reason):
    pytest.importorskip("triton")
    sides = [text.replace("num_warps=warps", f"num_warps={warps}") for warps in (32, 8)]
    args = {"n_rows": rows, "n_cols": 5120, "DOUBLE": True}
    found = compared_files(repository, predictor, {"k.py": sides[0]}, {"k.py": sides[1]}, compiling=True, args=args)
    (row,), (compiled,) = found.subjects[0].static, found.subjects[0].resources
    assert row.verdict == "within-doubt" and " requested of the L2; DRAM moves " in row.cause
    assert re.fullmatch(reason.format(cause=re.escape(row.cause), stayed=pairs_that_stayed()), row.reason), row.reason
    assert (compiled.base.limiter, compiled.head.limiter) == (("grid",) * 2 if rows == 64 else (None, None))


def test_nothing_is_said_of_lines_that_no_launch_here_compiles(repository, predictor):
    pytest.importorskip("triton")
    base = KERNEL.replace("    if DOUBLE:", "    if BLOCK > 2 ** 20:\n        x = -x\n    if DOUBLE:")
    found = compared_files(repository, predictor, {"k.py": base}, {"k.py": base.replace("x = -x", "x = x + 1")}, compiling=True)
    (row,), (compiled,) = found.subjects[0].static, found.subjects[0].resources
    assert compiled.reason == "With what is guessed the compiler leaves out what changed (line 11): it is not compared."
    assert (row.verdict, row.reason) == ("cannot-tell", "without DOUBLE")
    assert "the same resources" not in to_comment(found)
    told = {"k.py": base.replace("x = -x", "x = x + 1"), "advisor.toml": 'kernels."k.py::scale".args = {DOUBLE = false}\n'}
    found = compared_files(repository, predictor, {"k.py": base, "advisor.toml": told["advisor.toml"]}, told, compiling=True)
    assert found.subjects[0].static[0].verdict == "within-doubt"
    given = {"DOUBLE": False, "DUOBLE": 1}  # as `compare --arg DOUBLE=False` does
    again = compared_files(repository, predictor, {"k.py": base, "advisor.toml": None}, {"k.py": told["k.py"]}, compiling=True, args=given)
    assert again.subjects[0].static == found.subjects[0].static
    assert again.warnings == ("--arg DUOBLE: no changed Python file has this name",)


def test_the_work_of_programs_of_other_sizes_is_counted_alike(repository, predictor):
    pytest.importorskip("triton")
    flat = KERNEL.replace("row * n_cols + ", "row * BLOCK + ").replace("(n_rows,)", "(triton.cdiv(x.numel(), block),)")
    flat = flat.replace("block, warps = settings(n_cols)", "block, warps = 1024, 4").replace("n_rows, n_cols, block", "1, x.numel(), block")
    flat = flat.replace("    offsets = tl.arange(0, BLOCK)", "    offsets = row * 0 + tl.arange(0, BLOCK)")
    found = compared_files(repository, predictor, {"k.py": flat}, {"k.py": flat.replace("1024, 4", "256, 4")}, compiling=True)
    (compiled,) = found.subjects[0].resources
    assert compiled.label.startswith("BLOCK=1024 → 256") and compiled.work == pytest.approx(0.25, rel=0.01)
    assert "instructions \\(for the same work\\)" in to_comment(found)
    assert to_text(found).count("for the same work") == 1
    found = compared_files(repository, predictor, {"k.py": flat}, {"k.py": flat.replace("1024, 4", "1024, 8")}, compiling=True)
    assert found.subjects[0].resources[0].work == pytest.approx(0.5, rel=0.01)  # by twice the threads
    parting = flat.replace("    x = tl.load", "    if row > 7:\n        return\n    x = tl.load")
    other = parting.replace("1024, 4", "256, 4").replace("x * 2.0", "x * 3.0")
    for base in (flat, parting):
        found = compared_files(repository, predictor, {"k.py": base}, {"k.py": other}, compiling=True)
        assert found.subjects[0].resources[0].work == 0.0  # programs that return at once, and others: no one of them is a measure
        assert "for the same work" not in to_text(found)


def test_a_change_that_shows_needs_no_flag_for_that(repository, predictor):
    """Names within a flag's arm changed, too; the code differs without it, by a constant alone."""
    pytest.importorskip("triton")
    arm = "    if DOUBLE:\n        factor = 2.0\n        x = x * factor\n"
    base = KERNEL.replace("    if DOUBLE:\n        x = x * 2.0\n", arm).replace("offsets, x,", "offsets, x * 3.0,")
    assert arm in base
    head = base.replace("factor", "scaling").replace("x * 3.0", "x * 5.0")
    (subject,) = compared_files(repository, predictor, {"k.py": base}, {"k.py": head}, compiling=True).subjects
    (compiled,) = subject.resources
    assert "DOUBLE=False" in compiled.label and not any("for the change to show" in note for note in subject.notes)


def test_work_that_a_flag_decides_now_is_compared_with_the_flag_on(repository, predictor):
    """Without it the head would be taken for half the work."""
    pytest.importorskip("triton")
    lines = [f"x = x * tl.exp(x.to(tl.float32) * {n}.5)\n" for n in range(8)]
    base = KERNEL.replace("    if DOUBLE:\n        x = x * 2.0\n", "".join(f"    {line}" for line in lines))
    under = "".join(f"        {line.replace(' * tl.exp', ' * 1.0 * tl.exp')}" for line in lines)
    head = KERNEL.replace("        x = x * 2.0\n", under)
    (subject,) = compared_files(repository, predictor, {"k.py": base}, {"k.py": head}, compiling=True).subjects
    (compiled,) = subject.resources
    assert "DOUBLE=True" in compiled.label and compiled.head.instruction_mix["xu"] >= compiled.base.instruction_mix["xu"] > 0


def given_up(times: int) -> Pool:
    pool = Pool(1)
    pool.given_up = times
    return pool


@pytest.mark.parametrize(
    ("compiling", "said"),
    [
        (Compiling(left=1), "compilations of one"),
        (Compiling(until=0.0), "the time that a comparison takes"),
        (Compiling(shared=given_up(3)), "given up 3 times"),
    ],
)
def test_the_budget_of_a_comparison_is_kept_and_said(compiling, said):
    found = resources.judged("k", tuned(4), tuned(8), {}, [H100], compiling, "bf16")
    assert not found.rows and len(found.notes) == 1 and said in found.notes[0] and "H100" in found.notes[0]


def test_kernels_of_other_vendors_are_not_compiled(repository, predictor):
    paths = ("ops/backends/_ascend/k.py", "runtime/_kunlunxin/k.py")
    base = dict.fromkeys(paths, KERNEL)
    found = compared_files(repository, predictor, base, dict.fromkeys(paths, KERNEL.replace("2.0", "3.0")), compiling=True)
    assert len(found.subjects) == 2 and not any(subject.resources for subject in found.subjects)
    assert all(any(note.startswith("Not compiled for H100: by its path it is for ") for note in each.notes) for each in found.subjects)


def test_of_a_new_kernel_for_other_machines_no_more_is_said_and_many_are_counted(repository, predictor):
    elsewhere = KERNEL.replace("@triton.jit", "@triton.autotune(configs=elsewhere(), key=[])\n@triton.jit")
    kernel = elsewhere[elsewhere.index("@triton.autotune") : elsewhere.index("\n\n", elsewhere.index("@triton.autotune"))]
    files = {f"_ascend/{number}.py": elsewhere + "\n\n" + kernel.replace("def ", "def other_") for number in range(51)}
    found = compared_files(repository, predictor, {"README": ""}, {"README": "", **files}, compiling=True)
    assert {subject.notes for subject in found.subjects} == {("Not compiled for H100: by its path it is for ascend.",)}
    comment = to_comment(found)
    assert comment.count("####") == 0 and comment.count("Not compiled") == 1 and comment.partition("Python around")[0].count("py::") == 100
    assert "<summary>102 kernels: new; Not compiled for H100" in comment and "2 of 102 changed files left out for length." in comment


def test_of_both_versions_the_same_is_taken_of_strides_that_nothing_gives(repository, predictor):
    """Compiled with other alignments, a comment would be worth a fifth of the registers."""
    pytest.importorskip("triton")
    strided = KERNEL.replace("n_rows, n_cols, BLOCK", "n_rows, n_cols, stride_x, stride_out, BLOCK").replace(
        "row * n_cols", "row * stride_x"
    )
    strided = strided.replace("out_ptr + row * stride_x", "out_ptr + row * stride_out").replace("    scale[(n_rows,)](", "    launcher(")
    head = strided.replace("    row = tl.program_id(0)\n", "    row = tl.program_id(axis=0)\n")
    found = compared_files(repository, predictor, {"k.py": strided}, {"k.py": head}, compiling=True)
    (compiled,) = found.subjects[0].resources
    assert compiled.base == compiled.head is not None


def test_a_flag_around_what_was_there_shows_the_change_where_it_is_off():
    base = KERNEL.replace("DOUBLE: tl.constexpr", "DOUBLE: tl.constexpr, ROUND: tl.constexpr")
    (line,) = [line for line in base.splitlines() if "tl.store(" in line]
    head = base.replace(line, f"    if ROUND:\n    {line}")
    assert touched(version(base), version(head)).flags({}) == {"ROUND": False}
    more = head.replace(f"    {line}", f"        tl.store(out_ptr, 0.0)\n    {line}")
    assert touched(version(base), version(more)).flags({}) == {"ROUND": True}, "what is new stands under it"


def test_what_changed_within_a_helper_counts_there_and_under_its_flags():
    helper = "@triton.jit\ndef doubled(x, DOUBLE: tl.constexpr):\n    if DOUBLE:\n        x = x * 2.0\n    return x\n\n"
    base = KERNEL.replace("@triton.jit\n", helper + "@triton.jit\n").replace(
        "    if DOUBLE:\n        x = x * 2.0\n    tl.", "    x = doubled(x, DOUBLE)\n    tl."
    )
    head = base.replace("x * 2.0", "x * 3.0")
    change = touched(version(base), version(head))
    assert head.splitlines()[min(change.lines) - 1] == "        x = x * 3.0" and len(change.lines) == 1
    assert change.flags({}) == {"DOUBLE": True}


def test_a_line_that_is_written_like_an_earlier_one_is_the_one_that_came():
    text = """import triton
import triton.language as tl

@triton.jit
def fill(x, n, B: tl.constexpr):
    at = tl.arange(0, B)
    at = at % n
    tl.store(x + at, 1)
    at = at + 1
    tl.store(x + at, 2)
"""
    head = text.replace("    at = at + 1\n", "    at = at + 1\n    at = at % n\n")
    old, new = (versions(parse_source(item, "k.py"), {})["fill"] for item in (text, head))
    assert touched(old, new).lines == {10}
