"""Fixtures shared by all tests."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from advisor.learned.estimator import LearnedPredictor
    from advisor.learned.weights import Weights

ROOT = Path(__file__).resolve().parent.parent
# Two fits whose OpenMP threads wait for each other on all cores take many times as long, and on a busy machine so does one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The tests start hundreds of processes: where no bytecode is kept, each of them would compile the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# What an earlier run decided or stored may not stand in for what this one does; all workers of a run share a folder of its own. Compiled
# kernels alone are kept from run to run: their names say everything that decides them (ADVISOR_TESTS_COLD=1 compiles all anew).
if "PYTEST_XDIST_WORKER" not in os.environ:
    own_cache = tempfile.mkdtemp(prefix="advisor-tests-")
    atexit.register(shutil.rmtree, own_cache, ignore_errors=True)
    os.environ["ADVISOR_CACHE_DIR"] = own_cache
    os.environ["XDG_CONFIG_HOME"] = own_cache  # nor weights of the user's
    if not os.environ.get("ADVISOR_TESTS_COLD"):
        kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "triton-advisor-tests" / "compiled"
        with contextlib.suppress(OSError):  # a home that cannot be written to: this run compiles for itself
            kept.mkdir(parents=True, exist_ok=True)
            (Path(own_cache) / "compiled").symlink_to(kept)
# Python leaves an interrupt ignored where it starts with it ignored (nohup, a shell's background); tests of Ctrl-C send some.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Trying configurations fills the time that it is given; tests of it give some.
os.environ["ADVISOR_TRY_FOR"] = "0"
IN_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")
# How long inputs take to make says how busy the machine is (the tables of Unicode are built with the first text), nothing of the code.
settings.register_profile("advisor", derandomize=IN_CI, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("advisor")


LONGEST = (
    "comparison/test_time_verdict.py",
    "kernels/test_kernels_compile.py",
    "compiled/test_record.py",
    "comparison/test_workflows.py",
    "kernels/test_kernels_in_interpreter.py",
    "training/test_judging.py",
    "measurement/test_doors_on_a_stand_in.py",
    "search/test_tune_command.py",
    "security/test_kernels.py",
    "measurement/test_replay.py",
    "cli/test_corpus.py",
    "compiled/test_inspect.py",
    "security/test_gate.py",
    "security/test_sandbox.py",
    "security/test_large_inputs.py",
    "measurement/test_measure_command.py",
    "security/test_escape.py",
    "rendering/test_page_in_browser.py",
    "search/test_postgres.py",
    "measurement/test_plan.py",
    "training/test_own_launches.py",
    "training/test_operators.py",
    "training/test_configured_training.py",
    "training/test_published_products.py",
    "test_packaging.py",
    "test_readme.py",
)
"""Files that take ten seconds and more where no compiled kernel is kept, the longest first. They are begun in this order, so that in the
end no worker waits for another that is in one."""


def pytest_configure(config: pytest.Config) -> None:
    """Files are begun in the order of collection: pytest-xdist would begin with those of most tests. Pools hand a worker on."""
    config.option.loadscopereorder = False
    gc.disable()  # what collection makes lives to the end
    sys.path.append(str(Path(__file__).parent))  # pytest may have begun elsewhere
    import kept_workers

    kept_workers.keep()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first. What runs on a GPU runs with whatever torch and Triton are there: a warning of theirs is shown, and fails
    nothing."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0].removeprefix("tests/"), len(LONGEST)))
    for item in items:
        if item.get_closest_marker("gpu") is not None:
            item.add_marker(pytest.mark.filterwarnings("default"), append=False)


def pytest_collection_finish() -> None:
    """Modules and tests live to the end: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """The interpreter ends as it would have: what is frozen it would not take down, and libraries would say that it leaks."""
    gc.unfreeze()


def missing(what: str) -> None:
    """Fail in CI, skip elsewhere: something the test needs is not there."""
    if IN_CI:
        pytest.fail(f"{what}: must be there in CI")
    pytest.skip(what)


def _folder(variable: str, default: str) -> Path:
    path = Path(os.environ.get(variable) or ROOT.parent / "shared" / default)
    if not path.is_dir():
        missing(f"{variable} names no folder ({path.name} is not here)")
    return path.resolve()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the published measurements (environment variable ADVISOR_DATA)."""
    return _folder("ADVISOR_DATA", "data")


@pytest.fixture(scope="session")
def corpus_dir() -> Path:
    """The folder with tuned tables in production (environment variable ADVISOR_CORPUS)."""
    return _folder("ADVISOR_CORPUS", "corpus")


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a headless-capable Chromium."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    missing("no Chromium on the PATH")
    raise AssertionError("unreachable")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the measurements of a synthetic world (`tests.learned.samples`)."""
    from tests.learned import samples

    return samples.write(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def weights(world: Path) -> Weights:
    """Weights trained on all of that world, with fewer trees than those that ship: enough to learn its few laws. Workers share them."""
    pytest.importorskip("sklearn")
    import fcntl

    from advisor.learned import weights as store
    from advisor.learned.moe import moe_physics
    from advisor.training import moe_training, rank_training
    from advisor.training.training import train

    path = Path(os.environ["ADVISOR_CACHE_DIR"]) / "tests-weights.npz"
    with path.with_suffix(".lock").open("w") as lock, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            few = {"max_iter": 24, "learning_rate": 0.5, "max_bins": 15}
            patch.setattr(moe_physics, "fit", functools.partial(moe_physics.fit, steps=20))  # the world's law is what it starts from
            for name in ("CALIBRATION_FOLDS", "GPU_FOLDS"):
                patch.setattr(moe_training, name, 2)
            exact, options = moe_training.OWN_GROWTH["exact"]
            patch.setitem(moe_training.OWN_GROWTH, "exact", (exact, options | few))
            for module, name in ((moe_training, "GROWTH"), (moe_training, "SCALE"), (rank_training, "QUICK"), (rank_training, "CLOSE")):
                patch.setattr(module, name, getattr(module, name) | few)
            for name in ("FIRST", "FIRST_AFAR"):
                patch.setattr(rank_training, name, {"rounds": 80, "learning_rate": 0.2})
            patch.setattr(rank_training, "STEPS", 100)
            store.save(train([world]), path)
    return store.load(path)


@pytest.fixture(scope="session")
def predictor(weights: Weights) -> LearnedPredictor:
    """The predictor of these weights."""
    from advisor.learned.estimator import LearnedPredictor

    return LearnedPredictor(weights)


@pytest.fixture
def not_disassembled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are of what the code computes and moves: to disassemble it takes longer than to compile a small kernel."""
    from advisor.compiled import launch_report
    from advisor.compiled.launches.launch import Inspection, inspect_launch

    def inspected(*asked: Any, **named: Any) -> Inspection:
        found = inspect_launch(*asked, sass=False, **named)
        return replace(found, compiled=replace(found.compiled, sass=""))  # also where an earlier compilation left it in the cache

    monkeypatch.setattr(launch_report, "inspect_launch", inspected)


@pytest.fixture
def own_gpu(tmp_path: Path) -> Callable[..., Path]:
    """Writes the description of a GPU of the user's own: the H200's text with `changes` applied, sources left out."""

    def write(*changes: tuple[str, str], sources: bool = False) -> Path:
        text = (ROOT / "ceilings" / "h200.toml").read_text(encoding="utf-8")
        if not sources:
            text = text[: text.index("[sources]")]
        for pattern, replacement in changes:
            text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
            assert count, f"nothing to change: {pattern}"
        path = tmp_path / "my.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write
