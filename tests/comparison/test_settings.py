"""advisor.toml: what it names is there, or it says so."""

from __future__ import annotations

import re

import pytest

from advisor.comparison import Options, compare_trees
from advisor.comparison.kernels.kernels import EXAMPLES, _setting
from advisor.comparison.settings import matches, problem_of, read_settings
from advisor.comparison.trees.trees import RevisionTree
from advisor.result.schema import FAMILIES
from advisor.system.errors import InputError, UsageError

from .conftest import KERNEL, TABLE, entry, table
from .repository import compared, compared_files

BLOCKED = "vllm/configs/E=128,N=768,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"


def warnings(repository, predictor, settings):
    base = repository.commit({"advisor.toml": settings, f"vllm/configs/{TABLE}": table(M64=entry()), "k/matmul.py": KERNEL.format(m=16)})
    head = repository.commit({f"vllm/configs/{TABLE}": table(M64=entry(32))})
    trees = [RevisionTree(folder=repository.folder, label=name, revision=commit) for name, commit in (("base", base), ("head", head))]
    return compare_trees(*trees, Options(compiling=False), predictor).warnings


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("*/E=128,*,block_shape=[128,128].json", True),
        ("*,block_shape=[[]128,128].json", True),
        ("*/E=[1-9]*", True),
        (BLOCKED, True),
        ("*/E=128,*,block_shape=[64,128].json", False),
        ("configs/E=128,*.json", False),
    ],
)
def test_the_bracket_of_a_block_shape_is_one(pattern, matched):
    assert matches(BLOCKED, pattern) is matched


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('[tables."configs/E=128,*.json"]\nmodel = "Qwen3-30B-A3B"', r'tables\."configs/E=128.*matches no file'),
        ('[kernels."kernel/matmul.py::matmul"]\nfamily = "gemm"', r"neither side has a file kernel/matmul\.py$"),
        ('[kernels."*matmul.py::matmul"]\nfamily = "gemm"', r"neither side has a file \*matmul\.py$"),
    ],
)
def test_what_matches_nothing_is_said(repository, predictor, settings, said):
    (warning,) = warnings(repository, predictor, settings)
    assert re.search(said, warning)


def test_what_matches_is_not_warned_of(repository, predictor):
    settings = '[tables."*/E=128,*.json"]\nmodel = "Qwen3-30B-A3B"\n'
    settings += '[kernels."k/matmul.py::matmul"]\nfamily = "gemm"\n[kernels."k/matmul.py"]\nfamily = "gemm"'
    assert warnings(repository, predictor, settings) == ()


def test_an_unknown_model_is_an_error_of_the_file(repository, predictor):
    with pytest.raises(InputError, match=r'tables\."\*\.json": model; got Qwen3-30B-A3; .*Qwen3-30B-A3B.*correct it') as found:
        warnings(repository, predictor, '[tables."*.json"]\nmodel = "Qwen3-30B-A3"')
    assert "--hidden-size" not in str(found.value)


def test_a_condition_that_is_none_is_said_before_anything_is_compared():
    with pytest.raises(InputError, match=r"advisor\.toml: fail_on: no such condition; got slower; expected one of regressed"):
        read_settings(b'fail_on = ["slower"]')
    with pytest.raises(UsageError, match="--fail-on: no such condition; got slower"):
        Options(fail_on=("regressed", "slower"))


def test_what_a_change_says_of_itself_does_not_count_and_that_is_said(repository, predictor):
    base = repository.commit({"advisor.toml": 'gpus = ["H100"]\n', "k.py": KERNEL.format(m=16)})
    head = repository.commit({"advisor.toml": 'gpus = ["A100"]\n', "k.py": KERNEL.format(m=32)})
    (said,) = compared(repository, base, head, predictor).warnings
    assert said == "advisor.toml changed: what the base's says counts, and what it says now once that is the base's"
    assert compared(repository, base, repository.commit({"advisor.toml": 'gpus = ["H100"]\n'}), predictor).warnings == ()


@pytest.mark.parametrize("rest", ['gpus = ["H100"]\n', 'gpus = ["H100"]\n[kernels."other.py::matmul"]\nfamily = "gemm"\n'])
def test_a_kernel_without_family_is_predicted_once_advisor_toml_says_it(repository, predictor, rest):
    def compared_with(settings):
        same = {"advisor.toml": settings, "other.py": KERNEL.format(m=16)}
        base, head = ({**same, 'p/a "k".py': KERNEL.format(m=each)} for each in (64, 128))
        return next(each for each in compared_files(repository, predictor, base, head).subjects if each.kind == "kernel")

    (note,) = (each for each in compared_with(rest).notes if each.startswith("No prediction: "))
    assert note.endswith("say it by family and problems in advisor.toml") and not compared_with(rest).static
    known = _setting('p/a "k".py', "matmul", EXAMPLES["gemm"])
    assert list(read_settings(known.encode()).kernels) == ['p/a "k".py::matmul']
    assert compared_with(f"{known}\n{rest}").static


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_an_example_that_is_one(family):
    (said,) = read_settings(f"kernels.k = {{{EXAMPLES[family]}}}".encode()).kernels.values()
    assert said.family == family
    assert [problem_of(each, family, said.op or family, "k").family for each in said.problems] == [family]
