"""Kernels whose configuration stands where they are launched, and nowhere else: predicted as they are launched."""

from __future__ import annotations

import pytest

from advisor.comparison import Options, compare_trees
from advisor.comparison.trees.trees import RevisionTree

GEMM = """
import triton
import triton.language as tl

@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr = 0):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    tl.store(c + m, tl.load(a + m) + BN + BK)


def run(a, b, c, flag, most=None, **options):
    M, K = a.shape
    K, N = b.shape
    BODY
    matmul[(triton.cdiv(M, 128), triton.cdiv(N, 128))](a, b, c, M, N, K, LAUNCH)
"""
PLAIN = "BM=128, BN=128, BK=64, num_warps=8"
SETTINGS = """
gpus = ["H100"]
[kernels."ops.py::matmul"]
family = "gemm"
problems = [{M = 4096, N = 4096, K = 4096}, {M = 16, N = 4096, K = 4096}]
"""


def written(launch=PLAIN, body="pass"):
    return GEMM.replace("LAUNCH", launch).replace("BODY", body)


def compared(repository, predictor, base, head, settings=SETTINGS, **options):
    commits = [repository.commit({"advisor.toml": settings, "ops.py": text}) for text in (base, head)]
    trees = [RevisionTree(folder=repository.folder, label=commit, revision=commit) for commit in commits]
    return compare_trees(*trees, Options(compiling=False, **options), predictor)


def refusal(subject):
    assert not subject.static
    (note,) = (each for each in subject.notes if each.startswith("No prediction: "))
    return note


def test_a_changed_constant_is_predicted(repository, predictor):
    found = compared(repository, predictor, written(), written(PLAIN.replace("BM=128", "BM=16")))
    (subject,) = found.subjects
    large, small = subject.static
    assert large.verdict == "predicted-regressed" and small.verdict != "predicted-regressed" and large.compared_with == "base"
    assert large.base.configuration.flat() == {"BM": 128, "BN": 128, "BK": 64, "EVEN": 0, "num_warps": 8, "num_stages": 3}
    assert large.head.configuration.parameters["BM"] == 16 and large.head.source == "as it is launched"
    assert not any("lists no configurations" in note or "same configurations" in note for note in subject.notes)
    assert large.ceiling.us < large.base.predicted.us  # of the family's space: the file says nothing of the kernel's own


def test_a_kernel_that_another_file_launches_is_predicted_too(repository, predictor):
    head, _, host = written().partition("\n\ndef run")
    both = {"advisor.toml": SETTINGS.replace("ops.py", "kernels.py"), "kernels.py": head}
    imports = "import triton\nfrom kernels import matmul\n\ndef run"
    commits = [repository.commit({**both, "ops.py": f"{imports}{text}"}) for text in (host, host.replace("BM=128", "BM=16"))]
    trees = [RevisionTree(folder=repository.folder, label=commit, revision=commit) for commit in commits]
    (subject,) = compare_trees(*trees, Options(compiling=False), predictor).subjects
    assert [row.verdict for row in subject.static] == ["predicted-regressed", "predicted-improved"]
    body = repository.commit({"kernels.py": head.replace("BN + BK", "BN - BK")})  # its launch is the same, and found all the same
    trees = [RevisionTree(folder=repository.folder, label=commit, revision=commit) for commit in (commits[1], body)]
    (subject,) = compare_trees(*trees, Options(compiling=False), predictor).subjects
    assert {row.head.configuration.parameters["BM"] for row in subject.static} == {16}
    assert any("the model does not read a kernel's body" in note for note in subject.notes)


def test_a_file_that_launches_it_as_before_does_not_count(repository, predictor):
    """It changed besides: a benchmark, say, with constants of its own."""
    head, _, host = written().partition("\n\ndef run")
    imports = "import triton\nfrom kernels import matmul\n\ndef run"
    bench = f"{imports}{host.replace('BM=128', 'BM=32')}"
    base = {"advisor.toml": SETTINGS.replace("ops.py", "kernels.py"), "kernels.py": head, "ops.py": f"{imports}{host}", "bench.py": bench}
    changed = {"ops.py": base["ops.py"].replace("BM=128", "BM=16"), "bench.py": f"{bench}\n# longer\n"}
    commits = [repository.commit(each) for each in (base, changed)]
    trees = [RevisionTree(folder=repository.folder, label=commit, revision=commit) for commit in commits]
    (subject,) = compare_trees(*trees, Options(compiling=False), predictor).subjects
    assert {(row.base.configuration.parameters["BM"], row.head.configuration.parameters["BM"]) for row in subject.static} == {(128, 16)}


@pytest.mark.parametrize(
    ("launch", "body", "found"),
    [
        ("BM=block, BN=128, BK=64", "block = 32 * 2", {"BM": 64, "num_warps": 4, "num_stages": 3}),
        ("BM=16 if M < 64 else 128, BN=128, BK=64", "pass", {"BM": 128}),  # by the problem: M is 4096
        ("16, 128, 64, 1", "pass", {"BM": 16, "EVEN": 1}),
        ("BM=64, BN=64, BK=64, num_stages=5, num_ctas=2", "pass", {"num_stages": 5, "num_ctas": 2}),
        ("**own", 'own = {"BM": 16 if M < 64 else 64, "BN": 64, "BK": 64, "num_warps": 2}', {"BM": 64, "num_warps": 2}),
    ],
)
def test_what_is_passed_is_worked_out(repository, predictor, launch, body, found):
    (subject,) = compared(repository, predictor, written(), written(launch, body)).subjects
    flat = subject.static[0].head.configuration.flat()
    assert {name: flat[name] for name in found} == found


@pytest.mark.parametrize(
    ("launch", "body", "said"),
    [
        ("BM=flag, BN=128, BK=64", "pass", "head: what the launch in line 15 passes for BM is not known"),
        ("BM=64, BN=128, BK=64, num_warps=flag", "pass", "what the launch in line 15 passes for num_warps is not known"),
        ("BM=most, BN=128, BK=64", "pass", "what the launch in line 15 passes for BM is not known"),
        ("BM=64, BN=128, BK=64, maxnreg=most", "pass", "what the launch in line 15 passes for maxnreg is not known"),
        ("BM=64, BN=128, BK=64, **options", "pass", "what the launch in line 15 passes for **options is not known"),
        ("BM=64, BN=128, BK=64, **own", "own = dict(num_warps=2); own.update(most)", "passes for **own is not known"),
        ("BM=0, BN=128, BK=64", "pass", "a launch passes what is no size; got BM=0; expected 1 or more"),
        ("BM=64, BN=128, BK=64, num_warps=0", "pass", "got num_warps=0; expected 1 or more"),
        ("BM=64, BN=128", "pass", "what the launch in line 15 passes for BK is not known"),
        (PLAIN, "matmul[(1,)](a, b, c, M, N, K, 16, 16, 16)", "its launches pass different constants, and which one runs is not known"),
    ],
)
def test_what_is_not_known_is_not_guessed(repository, predictor, launch, body, said):
    (subject,) = compared(repository, predictor, written(), written(launch, body)).subjects
    assert said in refusal(subject)


def test_heuristics_have_the_last_word(repository, predictor):
    text = written().replace("@triton.jit", '@triton.heuristics({"BK": lambda args: 32})\n@triton.jit')
    (subject,) = compared(repository, predictor, text, text.replace("BM=128", "BM=64")).subjects
    assert "passes for BK is not known" in refusal(subject)


def test_constants_that_the_model_does_not_read_are_named_where_they_changed(repository, predictor):
    text = written("BM=128, BN=128, BK=64, EVEN=1")
    (subject,) = compared(repository, predictor, text, text.replace("EVEN=1", "EVEN=2")).subjects
    assert {row.verdict for row in subject.static} == {"predicted-unchanged"}
    assert "The model of gemm does not read EVEN: no prediction shows what it changes." in subject.notes
    (subject,) = compared(repository, predictor, text, text.replace("BM=128", "BM=64")).subjects
    assert not any("does not read" in note for note in subject.notes)


def test_sizes_that_advisor_toml_names_are_those_of_the_arguments(repository, predictor):
    text = written("BM=16 if rows < 64 else 128, BN=128, BK=64").replace("M, K = a", "rows, K = a").replace("cdiv(M", "cdiv(rows")
    text = text.replace("b, c, M, N, K, BM=", "b, c, rows, N, K, BM=").replace("matmul(a, b, c, M,", "matmul(a, b, c, rows,")
    head = text.replace("else 128", "else 64")
    (subject,) = compared(repository, predictor, text, head).subjects
    assert "passes for BM is not known" in refusal(subject)
    (subject,) = compared(repository, predictor, text, head, SETTINGS + 'sizes = {M = "rows"}\n').subjects
    assert [row.head.configuration.parameters["BM"] for row in subject.static] == [64, 16]


def test_a_launch_that_a_gpu_refuses_cannot_launch(repository, predictor):
    found = compared(repository, predictor, written(), written(f"{PLAIN}, num_ctas=2"), gpus=("A100",))
    assert {row.verdict for row in found.subjects[0].static} == {"cannot-launch"} and found.gate.failed


def test_of_a_list_that_cannot_be_read_launches_say_nothing(repository, predictor):
    tuned = written("").replace("@triton.jit", "@triton.autotune(configs=CONFIGS, key=[])\n@triton.jit", 1)
    (subject,) = compared(repository, predictor, tuned, tuned.replace("cdiv(M, 128)", "cdiv(M, 64)")).subjects
    assert "neither version lists configurations" in refusal(subject)


def test_listed_configurations_go_before_what_is_passed(repository, predictor):
    tuned = written("BM=16, BN=16, BK=16").replace(
        "@triton.jit", '@triton.autotune(configs=[triton.Config({"BM": 64, "BN": 64, "BK": 64})], key=[])\n@triton.jit', 1
    )
    (subject,) = compared(repository, predictor, written(), tuned).subjects
    assert {row.head.configuration.parameters["BM"] for row in subject.static} == {64}
    assert {row.base.configuration.parameters["BM"] for row in subject.static} == {128}


ROWS = """
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, width, BLOCK_SIZE: tl.constexpr):
    at = tl.arange(0, BLOCK_SIZE)
    for start in range(0, width, BLOCK_SIZE):
        tl.store(x_ptr + start + at, tl.load(x_ptr + start + at, mask=start + at < width) * 2, mask=start + at < width)

def run(x, rows, width):
    double[(rows,)](x, width, BLOCK_SIZE=min(LIMIT, triton.next_power_of_2(width)), num_warps=8)
"""
OF_ROWS = """
gpus = ["H100"]
[kernels."ops.py::double"]
family = "normalization"
op = "rms_norm"
problems = [{B = 4096, H = 4096}]
sizes = {H = "width"}
"""


def test_what_is_compiled_is_what_is_predicted(repository, predictor):
    pytest.importorskip("triton")
    base, head = (repository.commit({"advisor.toml": OF_ROWS, "ops.py": ROWS.replace("LIMIT", each)}) for each in ("8192", "1024"))
    trees = [RevisionTree(folder=repository.folder, label=commit, revision=commit) for commit in (base, head)]
    (subject,) = compare_trees(*trees, Options(), predictor).subjects
    (row,) = subject.static
    assert [side.configuration.parameters["BLOCK_SIZE"] for side in (row.base, row.head)] == [4096, 1024]
    (compiled,) = subject.resources
    assert compiled.label.startswith("BLOCK_SIZE=4096 → 1024") and compiled.base != compiled.head


def test_expressions_of_recorded_launches_are_told_from_names_of_arguments(repository, predictor):
    """A shape of a tensor is none that a launch in source tells."""
    settings = OF_ROWS.replace('"width"', '"x.shape[1]"')
    base, head = (repository.commit({"advisor.toml": settings, "ops.py": ROWS.replace("LIMIT", each)}) for each in ("8192", "1024"))
    trees = [RevisionTree(folder=repository.folder, label=commit, revision=commit) for commit in (base, head)]
    (subject,) = compare_trees(*trees, Options(compiling=False), predictor).subjects
    assert 'by name (no expressions, as x.shape[1]): sizes = {B = "…", H = "…"}' in refusal(subject)
