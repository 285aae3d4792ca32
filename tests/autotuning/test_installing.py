"""`advisor.install()` and `advisor run`: kernels whose decorators are not ours."""

from __future__ import annotations

import copy
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.cli import main

from .fakes import Bench, FakeKernel, Tensor
from .kernels import configs, scale

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def installing():
    from advisor.autotuning import installing

    installing._made.clear()
    installing._decided.clear()
    yield installing
    installing.uninstall()


def decorated(**options):
    """A kernel under Triton's own decorator."""
    import triton

    kernel = FakeKernel(scale)
    bench = Bench(kernel, lambda launch: {16: 3.0, 32: 1.0}[launch["BLOCK"]])
    return triton.autotune(configs(16, 32), key=["n"], do_bench=bench, **options)(kernel), bench


def test_tritons_decorator_makes_our_tuner_until_it_is_restored(installing):
    import triton

    from advisor.autotuning.tuner import Tuner

    theirs, original = decorated()[0], triton.runtime.Autotuner
    installing.install()
    installing.install()
    kernel, bench = decorated()
    kernel[(1,)](Tensor(), 64)
    assert isinstance(kernel, Tuner) and kernel.best_config.kwargs == {"BLOCK": 32} and len(bench.measured) == 2
    assert isinstance(theirs, triton.runtime.Autotuner) and isinstance(kernel, triton.runtime.Autotuner)
    again, bench = decorated()
    again[(1,)](Tensor(), 64)
    assert not bench.measured and again.decision.how == "cached"
    installing.uninstall()
    assert triton.runtime.Autotuner is triton.runtime.autotuner.Autotuner is original
    assert type(decorated()[0]) is original


def test_what_a_class_of_a_library_overrides_is_kept(installing):
    from triton.runtime.autotuner import Autotuner as Earlier

    installing.install()
    from triton.runtime.autotuner import Autotuner

    from advisor.autotuning.tuner import Tuner

    seen = []

    class Cached(Autotuner):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.own = "there"

        def run(self, *args, **kwargs):
            seen.append(kwargs["grid"])
            return super().run(*args, **kwargs)

    class Policy(Autotuner):
        def run(self, *args, **kwargs):
            return "policy"

    class Before(Earlier):
        pass

    def of(kind):
        kernel = FakeKernel(scale)
        made = kind(kernel, ["x", "n", "BLOCK"], configs(16, 32), ["n"], None, None, do_bench=Bench(kernel, lambda launch: 1.0))
        return made, made.run(Tensor(), 64, grid=(1,), warmup=False) if kind is not Before else None

    (cached, _), (policy, said), (before, _) = map(of, (Cached, Policy, Before))
    assert isinstance(cached, Tuner) and cached.own == "there" and seen == [(1,)] and cached.decision.how == "measured"
    assert not isinstance(policy, Tuner) and said == "policy" and isinstance(policy, Autotuner)
    assert [(each.fate, each.why) for each in installing.fates()] == [
        ("taken", ""), ("kept", installing.OWN_POLICY), ("left", installing.EARLIER),
    ]  # fmt: skip
    words = installing.in_words(installing.fates())
    assert words.startswith("3 tuners: 1 taken, 1 kept (") and "Policy: a policy of its own)" in words and "1 left" in words
    assert before.configs


PROGRAM = """
import torch, triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"B": b}) for b in (64, 256)], key=["n"], do_bench=lambda run, quantiles: [len(str(run()))] * 3)
@triton.jit
def double(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, 2 * tl.load(x + o, mask=o < n), mask=o < n)

x = torch.arange(1000.0)
y = torch.empty_like(x)
double[lambda meta: (triton.cdiv(1000, meta["B"]),)](x, y, 1000)
print(float(y.sum()))
raise SystemExit(7)
"""


def test_a_program_runs_as_without_and_its_tuners_are_counted(tmp_path, monkeypatch, capfd):
    pytest.importorskip("torch")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "sitecustomize.py").write_text("print('chained')\n")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    plain = subprocess.run([sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, check=False)
    assert main(["run", "--", sys.executable, str(tmp_path / "program.py")]) == plain.returncode == 7
    out, said = capfd.readouterr()
    assert out == plain.stdout == "chained\n999000.0\n"
    assert "advisor: 1 tuner: 1 taken; 1 kernel decided (1 measured), 2 measurements in " in said


def test_a_tuner_that_a_forked_child_has_too_is_counted_once(installing, tmp_path):
    installing.install()
    census = tmp_path / "census"
    tuners = [decorated()[0] for _ in range(2)]
    if (child := os.fork()) == 0:
        tuners[0][(1,)](Tensor(), 64)
        installing._write(str(census))
        os._exit(0)
    os.waitpid(child, 0)
    installing._write(str(census))
    assert len(census.read_text().splitlines()) == 4
    words = installing.in_words(installing.read_census(census.read_text().splitlines()))
    assert words.startswith("2 tuners: 2 taken; 1 kernel decided (1 measured), 2 measurements in ")


def test_a_tuner_that_is_gone_when_the_program_ends_is_counted(installing):
    """As Triton's own tests make them, one in every function."""
    installing.install()
    decorated()[0][(1,)](Tensor(), 64)
    gc.collect()
    assert installing.in_words(installing.fates()).startswith("1 tuner: 1 taken; 1 kernel decided (1 measured), 2 measurements in ")


def test_what_a_copy_decides_is_told_of_its_tuner(installing):
    """unsloth copies its tuners, one for each card."""
    installing.install()
    kernel, _ = decorated()
    copied = copy.copy(kernel)
    copied[(1,)](Tensor(), 64)
    assert [(fate.fate, fate.how, fate.measurements) for fate in installing.fates()] == [("taken", "measured", 2)]


def test_a_program_without_tuners(capfd):
    assert main(["run", "--", sys.executable, "-c", "print(1)"]) == 0
    assert "no tuner was made" in capfd.readouterr().err
    assert main(["run"]) == 2


@pytest.mark.parametrize(
    ("mode", "called", "seen"),
    [("off", True, [0]), ("cached", False, [0]), ("predict", True, [37]), ("measure", True, [37, 0, 1]), ("exhaustive", True, range(40))],
)
def test_torch_compile_sees_what_would_be_chosen(mode, called, seen, monkeypatch):
    from advisor.autotuning.tuner import TORCH_READS

    from .kernels import call, tuned

    blocks = list(range(16, 56))
    kernel, _ = tuned({block: 1.0 if block == 53 else 2.0 for block in blocks}, top_k=3)
    if called:
        call(kernel)
    monkeypatch.setenv("ADVISOR_AUTOTUNE", mode)
    torch = {"__name__": TORCH_READS, "kernel": kernel}
    found = eval("kernel.configs", torch)
    assert [blocks.index(each.kwargs["BLOCK"]) for each in found] == list(seen)
    assert len(kernel.configs) == 40


def test_a_tool_that_patches_the_class_sees_every_launch(installing, monkeypatch):
    installing.install()
    import triton

    seen, run = [], triton.runtime.Autotuner.run

    def traced(self, *args, **kwargs):
        seen.append(kwargs["grid"])
        return run(self, *args, **kwargs)

    monkeypatch.setattr(triton.runtime.Autotuner, "run", traced)
    kernel, _ = decorated()
    for _ in range(2):
        kernel[(3,)](Tensor(), 64)
    assert seen == [(3,), (3,)] and kernel.best_config.kwargs == {"BLOCK": 32}


def test_what_tuning_won_is_said_kernel_by_kernel(installing, monkeypatch):
    monkeypatch.setenv(installing.CENSUS, os.devnull)
    installing.install()
    kernel, bench = decorated()
    kernel[(1,)](Tensor(), 64)
    kernel[(1,)](Tensor(), 128)
    assert (kernel.decision.default_us, kernel.decision.chosen_us) == (3000.0, 1000.0)
    assert len(bench.repeated) == 4, "both once more for each key, alternately"
    (fate,) = installing.fates()
    assert (fate.default_us, fate.chosen_us) == (6000.0, 2000.0)
    said = installing.won_in_words([fate])
    assert "scale 6,000 to 2,000 µs (3.00 times as fast, tuned in" in said
    again, bench = decorated()
    again[(1,)](Tensor(), 64)
    assert not bench.measured and "tuned before" in installing.won_in_words([installing._fate(again, "1")])
    assert installing.won_in_words([]) == ""


def test_a_decorated_kernel_does_not_pay_for_what_only_run_says(installing):
    installing.install()
    kernel, bench = decorated()
    kernel[(1,)](Tensor(), 64)
    assert not bench.repeated
