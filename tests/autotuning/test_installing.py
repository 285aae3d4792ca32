"""`advisor.install()`: Triton's decorator and class replaced, what others override kept, and all put back."""

from __future__ import annotations

import abc
import subprocess
import sys
from collections import Counter

import pytest
import triton
from triton.runtime import autotuner

from .fakes import Bench, FakeKernel
from .kernels import call, configs, scale


@pytest.fixture
def installed():
    from advisor.autotuning import installing

    installing._seen.clear()
    installing.install()
    yield installing
    installing.uninstall()


def _made(kind, **more):
    """A kernel that a library wraps in its own class; 16 is the faster block."""
    kernel = FakeKernel(scale)
    bench = Bench(kernel, lambda launch: float(launch["BLOCK"]))
    return kind(kernel, kernel.arg_names, configs(32, 16), ["n"], None, None, do_bench=bench, **more), bench


def test_triton_s_names_are_replaced_and_put_back():
    import advisor

    before = (triton.autotune, triton.runtime.Autotuner, autotuner.Autotuner, autotuner.autotune, autotuner.Autotuner.__init__)
    advisor.install()
    advisor.install()
    try:
        assert triton.autotune is advisor.autotune and triton.runtime.Autotuner is autotuner.Autotuner is not before[1]
    finally:
        advisor.uninstall()
    assert (triton.autotune, triton.runtime.Autotuner, autotuner.Autotuner, autotuner.autotune, autotuner.Autotuner.__init__) == before


def test_what_somebody_else_put_there_since_is_left(installed, monkeypatch):
    own = object()
    triton.autotune = own
    installing = installed
    installing.uninstall()
    assert triton.autotune is own
    triton.autotune = autotuner.autotune


def test_triton_s_own_decorator_makes_our_tuner(installed):
    """`from triton import autotune` was done before."""
    from advisor.autotuning.tuner import Tuner

    theirs = next(before for owner, name, before, _ in installed._replaced if owner is autotuner and name == "autotune")
    assert isinstance(theirs(configs(16, 32), ["n"])(FakeKernel(scale)), Tuner)


def test_a_subclass_keeps_what_it_overrides(installed):
    class Loads(triton.runtime.Autotuner, abc.ABC):  # as fla's, which looks into its own files first
        asked = 0

        def __init__(self, fn, *args, **kwargs):
            super().__init__(fn, *args, **kwargs)
            self.kernel_name = fn.__name__

        def run(self, *args, **kwargs):
            self.asked += 1
            return super().run(*args, **kwargs)

    kernel, bench = _made(Loads)
    assert call(kernel) == call(kernel) == 16
    assert kernel.asked == 2 and kernel.kernel_name == "scale" and len(bench.measured) == 2
    assert kernel.decision.how == "measured"
    assert isinstance(kernel, autotuner.Autotuner) and issubclass(Loads, autotuner.Autotuner)
    assert installed.summary()["taken", scale.__module__.partition(".")[0]] == 1 and installed.summary()["decided", "measured"] == 1


def test_a_policy_of_its_own_is_kept_and_said(installed):
    class Policy(triton.runtime.Autotuner):  # as FlagGems' LibTuner
        def run(self, *args, **kwargs):
            self.best_config = self.configs[0]
            return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())

    class Named(Policy):
        pass

    kernel, bench = _made(Named)
    assert call(kernel) == 32 and not bench.measured
    assert not hasattr(kernel, "decision") and isinstance(kernel, triton.runtime.Autotuner)
    assert installed.summary() == Counter({("kept", "Policy has a policy of its own"): 1})


def test_a_class_that_was_there_before_is_left_and_said():
    from advisor.autotuning import installing

    class Early(autotuner.Autotuner):
        pass

    installing._seen.clear()
    installing.install()
    try:
        kernel, _ = _made(Early)
        assert call(kernel) == 16 and isinstance(kernel, triton.runtime.Autotuner)
        assert installing.summary() == Counter({("left", "Early was there before install()"): 1})
    finally:
        installing.uninstall()


def test_torch_reads_the_signature_of_triton_s(installed):
    import inspect

    assert "num_warps" not in inspect.signature(autotuner.Autotuner.__init__).parameters
    assert inspect.signature(autotuner.Autotuner.__init__).parameters["do_bench"].default is None


@pytest.mark.parametrize("where", ["installed", "decorated"])
def test_a_tool_that_patches_run_on_the_class_sees_every_launch(where, request, monkeypatch):
    from advisor.autotuning.tuner import Tuner

    if where == "installed":
        request.getfixturevalue("installed")
    kernel, bench = _made(triton.runtime.Autotuner if where == "installed" else Tuner)
    assert call(kernel, 1) == 16
    seen = []
    real = autotuner.Autotuner.run

    def run(self, *args, **kwargs):
        seen.append(self)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(autotuner.Autotuner, "run", run)
    before = len(kernel.fn.launches)
    assert call(kernel, 1) == 16 and call(kernel, 2) == 16
    assert seen == [kernel, kernel] and kernel.decision.how == "measured"
    assert len(bench.measured) == 4 and len(kernel.fn.launches) == before + 4  # two are trials
    monkeypatch.undo()
    assert call(kernel, 2) == 16 and len(seen) == 2


def test_a_program_runs_as_it_would_and_says_what_was_tuned(tmp_path):
    """In a process of its own, with a sitecustomize of its own."""
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.own_sitecustomize = True\n")
    (tmp_path / "program.py").write_text(
        "import torch, triton, triton.language as tl\n"
        "assert own_sitecustomize\n"
        "def double(x, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(x + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)\n"
        "listed = [triton.Config({'BLOCK': block}) for block in (16, 32)]\n"
        "kernel = triton.autotune(listed, ['n'], restore_value=['x'])(triton.jit(double))\n"
        "x = torch.ones(40)\n"
        "kernel[lambda meta: (triton.cdiv(40, meta['BLOCK']),)](x, 40)\n"
        "print(x.sum().item())\n"
        "raise SystemExit(7)\n"
    )
    import os

    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "advisor", "run", "--", sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 7 and done.stdout == "80.0\n", done.stderr
    assert "1 tuner taken (__main__: 1); 0 tuners kept; 0 tuners left; 1 decision (1 measured) in" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "no Python process of it loaded Triton"),
        (['[["taken", "fla", 2]]', '[["taken", "fla", 1], ["left", "Early was there before install()", 1]]'], "3 tuners taken (fla: 3)"),
        (['[["decided", "cached", 2], ["seconds", "cached", 0.25]]'], "2 decisions (2 cached) in 0.2 s"),
    ],
)
def test_the_last_line(lines, said):
    from advisor.cli.run_command import told

    assert said in told(lines)
