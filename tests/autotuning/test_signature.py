"""The decorator takes what triton.autotune takes, and refuses what makes no sense."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.autotuning import decorator as face
from advisor.system.errors import UsageError

from .kernels import call, tuned


def test_parameters_are_those_of_triton_in_their_order():
    import triton

    theirs = inspect.signature(triton.autotune).parameters
    ours = inspect.signature(face.autotune).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    different = {name for name, each in theirs.items() if ours[name].default != each.default}
    assert different == {"cache_results"}  # None here: timings of a GPU are kept unless one says False
    assert all(each.kind is inspect.Parameter.KEYWORD_ONLY for name, each in ours.items() if name not in theirs)


def test_a_tuner_passes_for_tritons():
    import triton

    kernel, _ = tuned({32: 1.0, 64: 2.0})
    assert isinstance(kernel, triton.runtime.Autotuner)
    assert kernel.keys == ["n"] and len(kernel.configs) == 2 and kernel.base_fn.__name__ == "scale"


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "fastest"},
        {"top_k": 0},
        {"top_k": 2.0},
        {"noise": 1.5},
        {"key_buckets": {"m": "pow2"}},
        {"key_buckets": {"n": "log"}},
        {"key_buckets": {"n": [4, 2]}},
        {"check_output": "close"},
        {"check_output": (-1, 0)},
        {"space": {"BLOCK": []}},
        {"noise": "a"},
        {"noise": float("nan")},
        {"noise": True},
        {"time_limit_s": -5},
        {"time_limit_s": 0},
        {"time_limit_s": "10"},
        {"time_limit_s": float("nan")},
        {"family": "nonsense"},
        {"problem": "gemm"},
        {"default": "x"},
        {"default": {"BLOCK": 16}},
        {"space": [{"BLOCK": 16}, {"BLOCK": 32}]},
        {"space": 3},
        {"mode": None},
    ],
)
def test_refuses(options):
    with pytest.raises(UsageError):
        tuned({32: 1.0, 64: 2.0}, **options)


def test_a_number_written_as_text_is_shown_as_text():
    with pytest.raises(UsageError, match="time_limit_s; got '10'; expected a positive number of seconds, or None"):
        tuned({32: 1.0, 64: 2.0}, time_limit_s="10")


@pytest.mark.parametrize("mode", ["off", "cached"])
def test_what_is_no_configuration_is_told_how_to_write_it(mode):
    with pytest.raises(UsageError, match=r'default: .*expected a triton\.Config; write triton\.Config\(\{"BLOCK": 16\}, num_warps=8\)'):
        tuned({32: 1.0, 64: 2.0}, default={"BLOCK": 16, "num_warps": 8}, mode=mode)


def test_key_must_be_an_argument():
    import triton

    if tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9):
        with pytest.raises(ValueError, match="not kernel arguments"):
            tuned({32: 1.0, 64: 2.0}, key=["size"])
    else:
        kernel, _ = tuned({32: 1.0, 64: 2.0}, key=["size"])
        assert call(kernel) == 32


def test_a_space_is_all_its_combinations():
    kernel, bench = tuned(lambda launch: launch["BLOCK"] / launch["num_warps"], space={"BLOCK": [32, 64], "num_warps": [4, 8]})
    assert len(kernel.configs) == 4
    assert call(kernel) == 32 and kernel.best_config.num_warps == 8
    assert len(bench.measured) == 4


HEAVY = {"torch", "triton", "numpy", "optuna", "plotly", "jinja2", "rich", "multiprocessing"}
OURS = {
    "advisor.measurement.measuring",
    "advisor.pipelines",
    "advisor.learned",
    "advisor.compiled",
    "advisor.search",
    "advisor.gpus.hardware",
}
"""What a kernel that is not launched yet needs nothing of."""


def loaded_by(tmp_path, code, names):
    """Of these modules, those that a program of its own has loaded."""
    (tmp_path / "program.py").write_text(f"{code}\nimport sys\nprint(sorted({names!r} & set(sys.modules)))\n")
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, cwd=tmp_path, env=environment, check=True)
    return done.stdout.strip()


def test_nothing_heavy_is_loaded_by_the_face(tmp_path):
    assert (
        loaded_by(tmp_path, "import advisor; advisor.autotune", HEAVY | OURS | {"sqlite3", "advisor.tables", "advisor.python_source"})
        == "[]"
    )


def test_decorating_a_kernel_loads_nothing_heavy_but_triton(tmp_path):
    code = """
import advisor, triton
import triton.language as tl

@advisor.autotune(configs=[triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr, n)
"""
    assert loaded_by(tmp_path, code, OURS | {"optuna", "plotly", "jinja2", "rich", "advisor.python_source.source"}) == "[]"
