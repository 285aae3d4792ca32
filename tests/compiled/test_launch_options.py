"""The launches that a kernel's `@triton.autotune` list stands for, and what is said where the list is not all there is to know."""

from __future__ import annotations

import pytest

from advisor.advising.kernel_report import advise_compiled
from advisor.compiled.guesses.inference import guesses
from advisor.compiled.launches.launch_options import LaunchOptions, launches, one_launch, options_by_kernel
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import SourceFile, parse_source
from advisor.system.errors import UsageError

HEAD = "import triton\nimport triton.language as tl\n"
BODY = """@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + o, 2 * tl.load(x_ptr + o, mask=o < n), mask=o < n)
"""
AMD = '[triton.Config({"BLOCK": 1024, "waves_per_eu": w, "kpack": 2}) for w in (0, 1, 4)]'


def tuned(configs: str, more: str = "") -> SourceFile:
    return parse_source(f'{HEAD}@triton.autotune(configs={configs}, key=["n"]{more})\n{BODY}', "k.py")


def test_options_of_amd_are_options_of_the_launch() -> None:
    found = launches(tuned(AMD), "k", LaunchOptions(), load_gpu("MI300X"))
    assert [each.launch.given.options["waves_per_eu"] for each in found] == [0, 1, 4]
    assert all(each.launch.given.options["kpack"] == 2 and not each.launch.notes for each in found)
    assert one_launch(tuned(AMD), "k", LaunchOptions(), load_gpu("MI300X")).given.options == {"waves_per_eu": 0, "kpack": 2}


def test_options_of_amd_are_said_to_be_rejected_elsewhere() -> None:
    (found,) = launches(tuned(AMD), "k", LaunchOptions(), load_gpu("H200"))
    assert set(found.launch.given.options) == {"num_warps", "num_stages"}
    (note,) = found.launch.notes
    assert note == "waves_per_eu, kpack: options of AMD's compiler, which a launch on H200 would reject; they are left out."


@pytest.mark.parametrize(
    ("source", "note"),
    [
        (tuned("make()"), "The list of @triton.autotune cannot be read (a call of make in line 3 is not a literal), so its"),
        (tuned('[triton.Config({"BLOCK": 64})]', ', prune_configs_by={"early_config_prune": prune}'), "The kernel prunes this list"),
    ],
)
def test_what_is_not_known_of_a_list_is_said(source: SourceFile, note: str) -> None:
    for launch in (one_launch(source, "k", LaunchOptions()), launches(source, "k", LaunchOptions(), load_gpu("H200"))[0].launch):
        assert [text[: len(note)] for text in launch.notes] == [note]
    given = LaunchOptions(toml={"configs": [{"BLOCK": 64}]})
    assert not any(each.launch.notes for each in launches(source, "k", given, load_gpu("H200")))


CLUSTERS = '[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 64}, num_ctas=2), triton.Config({"BLOCK": 32}, num_ctas=2)]'


def test_a_list_at_which_autotuning_ends_is_said_to() -> None:
    found = launches(tuned(CLUSTERS), "k", LaunchOptions(), load_gpu("A100"))
    said = "@triton.autotune fails on A100, whatever else is in its list; num_ctas 2: the GPU has no clusters of CTAs (8.0; "
    assert len(found) == 3 and all(len(each.launch.notes) == 1 and each.launch.notes[0].startswith(said) for each in found)
    for source, gpu in ((tuned(CLUSTERS), "H200"), (tuned(CLUSTERS, ', prune_configs_by={"early_config_prune": prune}'), "A100")):
        assert not any("fails on" in note for each in launches(source, "k", LaunchOptions(), load_gpu(gpu)) for note in each.launch.notes)


@pytest.mark.parametrize("grid", ["64", None])
def test_reports_say_it(grid: str | None, tmp_path) -> None:
    pytest.importorskip("triton")
    path = tmp_path / "k.py"
    path.write_text(tuned("make()").text)
    result = advise_compiled(f"{path}::k", load_gpu("H200"), cache="warm", command="", launch_options=LaunchOptions(grid=grid))
    assert any("k: the list of @triton.autotune cannot be read (a call of make" in text for text in result.verdict.unknowns)


def test_configurations_of_amd_are_told_apart(tmp_path) -> None:
    pytest.importorskip("triton")
    path = tmp_path / "k.py"
    path.write_text(tuned(AMD).text)
    result = advise_compiled(f"{path}::k", load_gpu("MI300X"), cache="warm", command="", launch_options=LaunchOptions(grid="64"))
    assert any("which of its 3 configurations runs is unknown" in text for text in result.verdict.unknowns)
    assert {trial.configuration.parameters["waves_per_eu"] for trial in result.searches[0].trials} == {0, 1, 4}


def test_what_counts_as_not_set_is_said(tmp_path) -> None:
    pytest.importorskip("triton")
    path = tmp_path / "k.py"
    path.write_text(f"import os\n{HEAD}FACTOR = tl.constexpr(1 if os.environ.get('FAST') else 2)\n{BODY.replace('2 *', 'FACTOR *')}")
    result = advise_compiled(f"{path}::k", load_gpu("H200"), cache="warm", command="", launch_options=LaunchOptions(grid="64"))
    assert "k: what the file asks of the environment counts as not set: FAST." in result.verdict.unknowns


DESCRIPTORS = (
    HEAD
    + """@triton.autotune(configs=[triton.Config({"BM": m, "BK": k}) for m in (64, 128) for k in (32, 64)], key=["K"])
@triton.jit
def k(a_desc, b_desc, c_ptr, K, BM: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM
    total = tl.zeros((BM,), tl.float32)
    for i in range(0, K, BK):
        total += tl.sum(a_desc.load([row, i]).to(tl.float32), 1) + tl.sum(b_desc.load([0, 0]).to(tl.float32))
    tl.store(c_ptr + row + tl.arange(0, BM), total)
"""
)


@pytest.mark.parametrize("given", ["", "a_desc=tensordesc<fp16[128, 32]>,b_desc=tensordesc<fp16[16,32]>"])
def test_configurations_are_not_compared_where_their_blocks_of_descriptors_are_not_known(given: str) -> None:
    """One signature for all compiled the loops of the others with the block of one: they did less than the work."""
    asked = LaunchOptions(signature=given or None)
    (found,) = launches(parse_source(DESCRIPTORS, "k.py"), "k", asked, load_gpu("H200"))
    assert found.launch.notes[0].startswith("The configurations of k are not compared: how the blocks of its descriptors follow")


def test_what_a_helper_describes_is_a_pointer_and_a_filtered_list_is_read() -> None:
    """As in Triton's own attention, which takes descriptors or pointers and filters its list by a function of the file."""
    helper = "@triton.jit\ndef described(x, B: tl.constexpr):\n    return tl.make_tensor_descriptor(x, [B, B], [B, 1], [B, B])\n"
    text = DESCRIPTORS.replace("@triton.autotune(configs=[", "keep = lambda c: True\nCONFIGS = [", 1).replace(
        ', key=["K"])\n', '\n@triton.autotune(configs=list(filter(keep, CONFIGS)), key=["K"])\n'
    )
    text = text.replace("    row =", "    a_desc, b_desc = described(a_desc, BM), described(b_desc, BM)\n    row =")
    source = parse_source(text.replace("keep =", f"{helper}\n\nkeep ="), "k.py")
    found = launches(source, "k", LaunchOptions(), load_gpu("H200"))
    assert len(found) == 4 and next(guesses(source, source.kernel("k"))).signature["a_desc"] == "*bf16"
    assert "The kernel prunes this list" in found[0].launch.notes[0]


def test_an_argument_around_the_launches_of_several_kernels_is_given_to_each_that_it_decides() -> None:
    """As the rows of Triton's own layer norm, which only the grid says."""
    kernels = "".join(f"@triton.jit\ndef {name}(x, N):\n    tl.store(x + tl.program_id(0) * N, 1.0)\n\n\n" for name in "ab")
    source = parse_source(f"{HEAD}{kernels}def f(x, M, N):\n    a[(M,)](x, N)\n    b[(N,)](x, N)\n", "k.py")
    given = options_by_kernel(source, ("a", "b"), LaunchOptions(arguments={"M": 8, "N": 4}))
    assert [launches(source, name, given[name])[0].launch.grid for name in "ab"] == [(8,), (4,)]
    with pytest.raises(UsageError, match="has an argument of that name"):
        options_by_kernel(source, ("a", "b"), LaunchOptions(arguments={"Q": 8}))


def test_configurations_that_do_not_compile_for_one_reason_are_told_in_one_line(tmp_path) -> None:
    pytest.importorskip("triton")
    path = tmp_path / "k.py"
    lists = '[triton.Config({"BLOCK": b}) for b in (48, 96, 1024)]'  # no powers of 2
    path.write_text(tuned(lists).text)
    result = advise_compiled(f"{path}::k", load_gpu("H200"), cache="warm", command="", launch_options=LaunchOptions(grid="64"))
    (warning,) = result.warnings
    assert warning.startswith("2 configurations of k: k does not compile") and "line 6: " in warning
    assert "2 of 3 listed configurations cannot run here, such as BLOCK=48 num_warps=4 num_stages=3." in result.verdict.notes
