"""The cache file: damaged, unwritable, of another version, forked, exported and imported."""

from __future__ import annotations

import json
import logging
import os
import signal
import sqlite3
from dataclasses import replace

import pytest

from advisor.autotuning.decisions.cache import FILE_NAME, Cache, ProblemKey, Row
from advisor.autotuning.decisions.exchange import entries, import_path, to_json
from advisor.system.errors import InputError, NotOursError

from . import kernels
from .fakes import Tensor
from .kernels import GEMM_SPACE, call, call_gemm, tuned

tl = pytest.importorskip("triton.language")
from triton.runtime.errors import OutOfResources  # noqa: E402

LATENCIES = {32: 3.0, 64: 1.0, 128: 2.0}
KEY = ProblemKey(kernel="k", source="s", triton="3.9.0", gpu="H200", key="(1,)")


def test_decisions_survive_the_process(fresh_cache):
    call(tuned(LATENCIES)[0])
    from advisor.autotuning.decisions import cache

    cache._caches.clear()
    kernel, bench = tuned(LATENCIES)
    assert call(kernel) == 64 and not bench.measured and kernel.decision.how == "cached"
    assert [timing.us for timing in kernel.decision.timings] == [3000.0, 1000.0, 2000.0]


def test_another_process_does_not_decide_for_other_constants(fresh_cache):
    """Constants make another kernel, though no other tuning key: what fits with some need not fit with others."""
    from advisor.autotuning.decisions import cache

    def latency(launch):
        if launch["BLOCK"] * launch["WIDTH"] > 4096:
            raise OutOfResources(300000, 232448, "shared memory")
        return LATENCIES[launch["BLOCK"]]

    def decided(width):
        cache._caches.clear()
        kernel, bench = tuned(latency, sized, space=kernels.configs(*LATENCIES))
        return call(kernel, WIDTH=width), len(bench.measured)

    assert decided(32) == (64, 3) and decided(32) == (64, 0)
    assert decided(128) == (32, 3) and decided(128) == (32, 0)
    kernel, _ = tuned(latency, sized, space=kernels.configs(*LATENCIES), cache_dir=fresh_cache / "other")
    assert call(kernel, WIDTH=128) == 32 and call(kernel, WIDTH=32) == 32  # one process, one key: as triton.autotune


def test_options_of_a_call_are_told_apart_as_its_constants_are(fresh_cache):
    """A configuration may leave num_warps open, for the call to say."""
    import triton

    from advisor.autotuning.decisions import cache

    def decided(warps):
        cache._caches.clear()
        space = [triton.Config({"BLOCK": block}, num_warps=None) for block in LATENCIES]
        kernel, bench = tuned(lambda launch: abs(launch["BLOCK"] - 16 * launch["num_warps"]), space=space)
        return call(kernel, num_warps=warps), len(bench.measured)

    assert decided(2) == (32, 3) and decided(8) == (128, 3) and decided(2) == (32, 0)


@pytest.mark.parametrize("changed", ["heuristic", "hook"])
def test_other_heuristics_and_hooks_are_other_kernels(changed, fresh_cache):
    """The one computes what is compiled; the other may set what the launch depends on, as the block of a descriptor."""
    import triton

    from advisor.autotuning.decisions import cache
    from advisor.autotuning.decorator import autotune

    from .fakes import Bench, FakeKernel, Tensor

    def decided(amount):
        cache._caches.clear()
        kernel = FakeKernel(sized)
        bench = Bench(kernel, lambda launch: LATENCIES[launch["BLOCK"]])
        width = triton.heuristics({"WIDTH": lambda args: args["n"] + (amount if changed == "heuristic" else 0)})
        hook = (lambda args: (*args["x"].shape, amount)) if changed == "hook" else None
        space = [triton.Config({"BLOCK": block}, pre_hook=hook) for block in LATENCIES]
        autotune(space, ["n"], do_bench=bench)(width(kernel))[(1,)](Tensor(), 8)
        return len(bench.measured)

    assert [decided(1), decided(1), decided(2), decided(1)] == [3, 0, 3, 0]


def test_what_is_called_otherwise_in_every_process_is_not_written_down(fresh_cache):
    import triton

    from advisor.autotuning.decisions.cache import default_cache

    space = [triton.Config({"BLOCK": block, "ACTIVATION": object()}) for block in (32, 64)]
    kernel, bench = tuned(LATENCIES | {}, lambda x, n, BLOCK, ACTIVATION: None, space=space)
    assert call(kernel) == 64 and len(bench.measured) == 2 and not default_cache().problems()


def sized(x, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Keeps BLOCK x WIDTH elements."""


@pytest.mark.parametrize("keep", [False, None])
def test_what_is_not_to_be_kept(keep, fresh_cache, monkeypatch):
    from advisor.autotuning import internals

    if keep is None:
        monkeypatch.setattr(internals, "is_interpreted", lambda: True)
    for _ in range(2):
        kernel, bench = tuned(LATENCIES, cache_results=keep)
        assert call(kernel) == 64 and len(bench.measured) == 3
    assert not fresh_cache.exists()


@pytest.mark.parametrize("keep", [None, False])
def test_a_folder_of_its_own(keep, tmp_path):
    """It says where, not whether."""
    call(tuned(LATENCIES, cache_dir=tmp_path / "mine", cache_results=keep)[0])
    assert (tmp_path / "mine" / FILE_NAME).exists() == (keep is None)


def test_a_kernel_without_a_known_source_is_not_kept(tmp_path, monkeypatch):
    """Only its number in this process would tell it from others, and the next process numbers anew."""
    from advisor.autotuning.tuner import Tuner

    monkeypatch.setattr(Tuner, "source_hash", lambda self: None)
    call(tuned(LATENCIES, cache_dir=tmp_path / "mine")[0])
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("options", [{"key": ["N", "K"]}, {"key": ["M", "N", "K"], "key_buckets": {"M": lambda tokens: 0}}])
def test_timings_stay_of_the_problem_they_were_measured_on(options, fresh_cache):
    """The key does not tell 16 tokens from 8192: the second call is served by what the first one measured, and measures nothing."""
    from advisor.autotuning.decisions.cache import default_cache

    for tokens, mode in ((4, "cached"), (16, "measure"), (8192, "measure")):
        kernel, bench = tuned(lambda launch: 1.0, kernels.gemm_kernel, GEMM_SPACE, mode=mode, **options)
        call_gemm(kernel, tokens)
        assert bool(bench.measured) == (tokens == 16) and kernel.decision.how == {4: "default", 16: "measured", 8192: "cached"}[tokens]
    assert {json.loads(key.problem)["sizes"]["M"] for key in default_cache().problems()} == {16}


@pytest.mark.parametrize("read", ["a_ptr", "b_ptr"])
def test_a_size_that_a_tensor_has_is_not_in_the_key(read, fresh_cache):
    from advisor.autotuning.decisions.cache import default_cache

    for tokens in (16, 8192):
        kernel, _ = tuned(
            lambda launch: 1.0,
            kernels.gemm_kernel,
            GEMM_SPACE,
            key=["M", "N", "K"],
            family="gemm",
            problem=lambda args: {"M": args[read].shape[0], "N": args["N"], "K": args["K"]},
        )
        kernel[(1,)](Tensor(shape=(tokens, 1)), Tensor(shape=(tokens, 1)), Tensor(), 512, 1024, 1024)
    (key,) = default_cache().problems()
    assert key.problem is not None and json.loads(key.problem)["sizes"]["M"] == 16


def test_timings_of_an_unknown_problem_stay_so(fresh_cache):
    cache = Cache(fresh_cache)
    cache.add_problem(KEY)
    named = replace(KEY, family="gemm", problem="{}")
    cache.record_all(KEY.id, [Row(config="{}", state="measured", us=1.0)])
    cache.add_problem(named)
    assert cache.problems() == [KEY]


@pytest.mark.parametrize("content", [b"not a database", b"SQLite format 3\x00" + b"\xff" * 5000, b""])
def test_a_damaged_file_is_a_warning(content, fresh_cache, caplog):
    fresh_cache.mkdir()
    (fresh_cache / FILE_NAME).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert call(tuned(LATENCIES)[0]) == 64
        kernel, bench = tuned(LATENCIES)
        assert call(kernel) == 64 and not bench.measured  # remembered in memory
    assert len([record for record in caplog.records if "cannot be used" in record.message]) == bool(content)


def test_damage_in_the_middle_is_a_warning(fresh_cache, caplog):
    kernel, _ = tuned(LATENCIES)
    call(kernel)
    from advisor.autotuning.decisions.cache import default_cache

    default_cache()._do(lambda connection: connection.execute("DROP TABLE timings"))
    with caplog.at_level(logging.WARNING):
        assert call(kernel, n=5) == 64
    assert any("cannot be used" in record.message for record in caplog.records)


def test_a_folder_that_cannot_be_made(fresh_cache, caplog):
    fresh_cache.write_text("in the way")
    with caplog.at_level(logging.WARNING):
        assert call(tuned(LATENCIES)[0]) == 64
    assert "tuning goes on in memory" in caplog.text


def test_a_read_only_file_is_read(fresh_cache, caplog, monkeypatch):
    call(tuned(LATENCIES)[0])
    from advisor.autotuning.decisions import cache, decision

    for each in cache._caches.values():
        each.close()
    cache._caches.clear()

    def refuse(path):
        raise sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr(decision, "_file", refuse)
    with caplog.at_level(logging.WARNING):
        kernel, bench = tuned(LATENCIES)
        assert call(kernel) == 64 and not bench.measured
        assert call(kernel, n=3) == 64 and len(bench.measured) == 3
    assert "it is read, and new results stay in memory" in caplog.text


@pytest.mark.parametrize(("version", "said"), [(99, "later version"), (2, "earlier version")])
def test_another_version_is_left_alone(version, said, fresh_cache, caplog):
    call(tuned(LATENCIES)[0])
    from advisor.autotuning.decisions import cache

    cache.default_cache().close()
    connection = sqlite3.connect(fresh_cache / FILE_NAME)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    cache._caches.clear()
    with caplog.at_level(logging.WARNING):
        kernel, bench = tuned(LATENCIES)
        assert call(kernel) == 64 and len(bench.measured) == 3
    assert said in caplog.text


def test_a_fork_opens_its_own_connection(fresh_cache):
    cache = Cache(fresh_cache)
    cache.add_problem(KEY)
    child = os.fork()
    if child == 0:
        try:
            cache.record_all(KEY.id, [Row(config="{}", state="measured", us=1.0)])
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert cache.rows(KEY.id)["{}"].us == 1.0


def test_what_a_child_writes_outlives_its_parents_connection(fresh_cache):
    """A connection that crossed the fork would let the child believe that it holds locks on the file, and its parent that nobody does."""
    cache = Cache(fresh_cache)
    cache.add_problem(KEY)
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            cache.rows(KEY.id)
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            cache.record_all(KEY.id, [Row(config="{}", state="measured", us=1.0)])
            os._exit(0)
        finally:
            os._exit(1)
    os.read(ready[0], 1)
    cache.close()
    os.write(go[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
    assert Cache(fresh_cache).rows(KEY.id)["{}"].us == 1.0


def test_a_child_does_not_wait_for_a_thread_that_it_has_not(fresh_cache):
    import threading

    cache = Cache(fresh_cache)
    cache.add_problem(KEY)
    inside, on = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: cache._do(lambda connection: inside.set() or on.wait(10)))
    thread.start()
    inside.wait(10)
    threading.Timer(0.2, on.set).start()
    child = os.fork()  # while the thread is in the middle of something
    if child == 0:
        signal.alarm(10)
        cache.rows(KEY.id)
        os._exit(0)
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_the_first_decision_stands(fresh_cache):
    cache = Cache(fresh_cache)
    assert cache.decide("p", "list", "a", "measured") == "a"
    assert cache.decide("p", "list", "b", "measured") == "a"
    assert cache.decision("p", ["other", "list"]) == ("a", "measured")


def test_export_and_import(fresh_cache, tmp_path):
    from advisor.autotuning.decisions.cache import default_cache

    call(tuned(LATENCIES)[0])
    gemm, _ = tuned(lambda launch: 1.0, kernels.gemm_kernel, GEMM_SPACE, key=["M", "N", "K"])
    call_gemm(gemm)
    text = to_json(entries(default_cache()))
    (tmp_path / "export.json").write_text(text)
    other = Cache(tmp_path / "other")
    assert import_path(other, tmp_path / "export.json") == 2
    assert sum(len(other.rows(key.id)) for key in other.problems()) == 11

    def without_times(text):
        problems = json.loads(text)["problems"]
        return sorted(({**each, "decisions": [decision[:3] for decision in each["decisions"]]} for each in problems), key=str)

    assert without_times(to_json(entries(other))) == without_times(text)
    kernel, bench = tuned(LATENCIES, cache_dir=tmp_path / "other")
    assert call(kernel) == 64 and not bench.measured


def test_importing_overwrites_nothing(fresh_cache, tmp_path):
    cache = Cache(fresh_cache)
    cache.add_problem(KEY)
    cache.record_all(KEY.id, [Row(config="{}", state="measured", us=1.0)])
    (tmp_path / "e.json").write_text(to_json(entries(cache)).replace('"us": 1.0', '"us": 9.0'))
    import_path(cache, tmp_path / "e.json")
    assert cache.rows(KEY.id)["{}"].us == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"a": 1}',
        '{"format": "triton-advisor tuning cache", "version": 2}',
        '{"format": "triton-advisor tuning cache", "version": 1, "problems": [{}]}',
        '{"format": "triton-advisor tuning cache", "version": 1, "problems": 3}',
        '{"configs_timings": [[1, 2]], "key": [1]}',
        '{"configs_timings": [[{"kwargs": {}}, ["a"]]], "key": [1]}',
        '{"configs_timings": [[{"kwargs": {}}, [-1, 1, 1]]], "key": [1]}',
        '{"signature": "f", "cache": {"(1,)": 3}, "timings": 5}',
    ],
)
def test_files_that_cannot_be_imported(text, fresh_cache, tmp_path):
    path = tmp_path / "f.json"
    path.write_text(text)
    with pytest.raises((InputError, NotOursError)):
        import_path(Cache(fresh_cache), path, "H200")
