"""What is measured, in every mode, and what is said about it."""

from __future__ import annotations

import logging
import math

import pytest
import triton

from advisor.autotuning import internals, keys, ranking
from advisor.autotuning.ranking import Recognised
from advisor.result.schema import Problem
from advisor.system.errors import UsageError

from . import kernels
from .kernels import GEMM_SPACE, call, call_gemm, configs, tuned

LATENCIES = {32: 3.0, 64: 1.0, 128: 2.0}


def test_the_fastest_is_chosen_once_per_key():
    kernel, bench = tuned(LATENCIES)
    assert call(kernel) == 64
    assert call(kernel) == 64
    assert len(bench.measured) == 3
    call(kernel, n=2048)
    assert len(bench.measured) == 6 and len(kernel.cache) == 2
    assert kernel.decision.how == "measured" and kernel.decision.measurements == 3
    assert "given order" in kernel.decision.ranked_by
    assert [timing.us for timing in kernel.decision.timings] == [3000.0, 1000.0, 2000.0]
    assert kernel.configs_timings == {config: [ms] * 3 for config, ms in zip(configs(*LATENCIES), LATENCIES.values(), strict=True)}


def test_what_the_user_puts_into_the_cache_is_told_as_the_decision():
    from .fakes import Tensor

    kernel, bench = tuned(LATENCIES)
    key = (1024, "torch.bfloat16")
    kernel.cache[key] = kernel.configs[2]
    assert kernel.decide(Tensor(), 1024, grid=(1,)).config is kernel.configs[2] and not bench.measured
    kernel.cache.clear()
    measured = kernel.decide(Tensor(), 1024, grid=(1,))
    assert measured.how == "measured" and measured.config is kernel.configs[1]
    kernel.cache[key] = kernel.configs[0]
    assert call(kernel) == 32
    assert (kernel.decision.config, kernel.decision.reason) == (kernel.configs[0], "kernel.cache holds it")
    kernel.cache[key] = configs(64)[0]  # equal to what was measured
    assert call(kernel) == 64 and kernel.decision is measured


def test_a_thread_is_told_its_own_decision():
    import threading

    from .fakes import Tensor

    kernel, _ = tuned(LATENCIES)
    decide, others = kernel._decide, []

    def interrupted(args, kwargs):
        config = decide(args, kwargs)
        if not others:
            others.append(threading.Thread(target=lambda: kernel.decide(Tensor(), 7, grid=(1,))))
            others[0].start()
            others[0].join(0.5)
        return config

    kernel._decide = interrupted
    assert kernel.decide(Tensor(), 1024, grid=(1,)).key == (1024, "torch.bfloat16")
    others[0].join(10)
    assert kernel.decision.key == (7, "torch.bfloat16")


def test_a_configuration_that_is_listed_twice_is_measured_once_and_kept():
    for measured in (3, 0):
        kernel, bench = tuned(LATENCIES, space=configs(32, 64, 128, 64, 32))
        assert call(kernel) == 64 and len(bench.measured) == measured
    assert [timing.config.kwargs["BLOCK"] for timing in kernel.decision.timings] == [32, 64, 128]


def test_dtypes_are_part_of_the_key():
    from .fakes import Tensor

    kernel, bench = tuned(LATENCIES)
    kernel[(1,)](Tensor("torch.float16"), 8)
    kernel[(1,)](Tensor("torch.bfloat16"), 8)
    kernel[(1,)](x=Tensor("torch.float16"), n=8)
    kernel[(1,)](None, 8)
    kernel[(1,)](None, 8)
    assert len(bench.measured) == 9
    assert set(kernel.cache) == {(8, "torch.float16"), (8, "torch.bfloat16"), (8,)}


def test_ties_go_to_the_first():
    kernel, _ = tuned({32: 1.004, 64: 1.0, 128: 1.003})
    assert call(kernel) == 32
    shown = [line.split()[0] for line in str(kernel.decision).splitlines() if line.startswith("  ")]
    assert shown == ["1,000", "1,003", "1,004"], "the fastest first"
    exact, _ = tuned({32: 1.004, 64: 1.0, 128: 1.003}, noise=0.0, cache_results=False)
    assert call(exact) == 64


def test_a_known_family_is_ranked_and_only_the_first_are_measured():
    kernel, bench = tuned(lambda launch: launch["BLOCK_SIZE_M"] / 64, kernels.gemm_kernel, GEMM_SPACE, key=["M", "N", "K"])
    call_gemm(kernel)
    assert len(kernel.configs) == 384 and len(bench.measured) == 8
    decision = kernel.decision
    assert decision.how == "measured" and "gemm" in decision.ranked_by
    measured = [timing for timing in decision.timings if timing.state == "measured"]
    assert len(measured) == 8 and all(timing.predicted_us > 0 for timing in measured)
    predicted = [timing.predicted_us for timing in decision.timings if timing.predicted_us]
    assert predicted[:8] == sorted(predicted)[:8]
    assert "predicted" in decision.explain() and str(decision) == decision.explain() and "0x" not in str(decision)


def test_one_launch_is_not_measured_twice_where_few_are_measured():
    seen = []

    def latency(launch):
        seen.append((launch["BLOCK_SIZE_N"], launch["GROUP_SIZE_M"]))
        return float(len(set(seen)))  # none is near another, and measured again

    # Two row tiles: groups of 2, 4 and 8 order them alike.
    space = {"BLOCK_SIZE_M": [64], "BLOCK_SIZE_N": [32, 64, 128], "BLOCK_SIZE_K": [64], "GROUP_SIZE_M": [8, 4, 2, 1]}
    kernel, _ = tuned(latency, kernels.gemm_kernel, space, key=["M", "N", "K"], top_k=6)
    call_gemm(kernel, M=128)
    assert len(seen) == len({(n, group > 1) for n, group in seen}) >= 4
    everything, _ = tuned(latency, kernels.gemm_kernel, space, key=["M", "N", "K"], mode="exhaustive", cache_results=False)
    seen.clear()
    call_gemm(everything, M=128)
    assert len(seen) == 12


@pytest.mark.parametrize("groups", [(1, 4), (4, 1)])
def test_rank_of_one_row_of_tiles_groups_before_it_does_not(groups):
    listed = [{"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": group} for group in groups]
    problem = Problem(family="gemm", op="gemm", sizes={"M": 16, "N": 4096, "K": 4096})
    identities = [keys.identity(triton.Config(each, num_warps=4, num_stages=3)) for each in listed]
    ranked = ranking.rank(identities, Recognised(problem=problem, how="hint"), "", "NVIDIA H100 80GB HBM3")
    assert ranked.modelled and [groups[place] for place in ranked.order] == [4, 1]
    assert ranked.scores[groups.index(1)] == math.inf > ranked.scores[groups.index(4)]


def test_the_next_are_measured_where_none_of_the_first_works():
    seen = []

    def latency(launch):
        seen.append(launch)
        if len(seen) <= 8:
            raise RuntimeError("PassManager::run failed")
        return float(len(seen))

    kernel, _ = tuned(latency, kernels.gemm_kernel, GEMM_SPACE, key=["M", "N", "K"])
    call_gemm(kernel)
    assert len(seen) == 16
    assert sum(timing.state == "compile" for timing in kernel.decision.timings) == 8


@pytest.mark.parametrize("hint", [lambda args: {"M": args["n"], "N": 512, "K": 512, "dtype": "bf16"}, None])
def test_hints_name_the_problem(hint):
    def plain(x, n, BLOCK_M, BLOCK_N, BLOCK_K):
        """A GEMM by other names."""

    space = {"BLOCK_M": [16, 32, 64, 128], "BLOCK_N": [32, 64, 128], "BLOCK_K": [32, 64], "num_warps": [4, 8]}
    kernel, bench = tuned(lambda launch: 1.0, plain, space, family="gemm", problem=hint, top_k=4)
    kernel[(1,)](None, 256)
    assert len(bench.measured) == (4 if hint else 48)
    assert ("hint" in kernel.decision.ranked_by) == bool(hint)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"problem": lambda args: args["nothing"]}, "KeyError: 'nothing'"),
        ({"problem": lambda args: {"X": 1}, "family": "gemm"}, "gemm/gemm needs the sizes M, N, K"),
        ({"problem": lambda args: {"M": 1, "N": 1, "K": 1}}, "name no family"),
    ],
)
def test_a_hint_that_fails_is_no_reason_to_stop_and_said_once(options, said, caplog):
    kernel, _ = tuned(LATENCIES, **options)
    assert call(kernel) == 64 and "problem= failed" in kernel.decision.ranked_by
    call(kernel, n=1025)
    warned = [record.message for record in caplog.records]
    assert len(warned) == 1 and said in warned[0] and "given order" in warned[0]


def test_exhaustive_measures_everything_and_stands_for_measure():
    kernel, bench = tuned(lambda launch: launch["BLOCK_SIZE_M"], kernels.gemm_kernel, GEMM_SPACE, key=["M", "N", "K"], mode="exhaustive")
    call_gemm(kernel)
    assert len(bench.measured) == 384
    again, bench = tuned(lambda launch: launch["BLOCK_SIZE_M"], kernels.gemm_kernel, GEMM_SPACE, key=["M", "N", "K"])
    call_gemm(again)
    assert again.decision.how == "cached" and not bench.measured
    assert again.best_config.kwargs["BLOCK_SIZE_M"] == 16


def test_predict_measures_nothing_and_repeats_itself():
    chosen = set()
    for _ in range(2):
        kernel, bench = tuned(lambda launch: 1.0, kernels.gemm_kernel, GEMM_SPACE, key=["M", "N", "K"], mode="predict")
        chosen.add(str(call_gemm(kernel)))
        assert not bench.measured and kernel.decision.how == "predicted"
    assert len(chosen) == 1
    unknown, bench = tuned(LATENCIES, mode="predict")
    assert call(unknown) == 32 and unknown.decision.how == "default" and "no family" in unknown.decision.reason


def test_cached_never_measures_and_says_so_once(caplog):
    with caplog.at_level(logging.WARNING):
        kernel, bench = tuned(LATENCIES, mode="cached", default=configs(128)[0])
        assert call(kernel) == 128 and call(kernel, n=7) == 128
    assert not bench.measured and kernel.decision.how == "default"
    assert len([record for record in caplog.records if "nothing is decided" in record.message]) == 1
    call(tuned(LATENCIES)[0])
    after, bench = tuned(LATENCIES, mode="cached")
    assert call(after) == 64 and after.decision.how == "cached" and not bench.measured


def test_the_environment_overrides_the_decorator(monkeypatch):
    monkeypatch.setenv("ADVISOR_AUTOTUNE", "off")
    kernel, bench = tuned(LATENCIES, mode="exhaustive")
    assert call(kernel) == 32 and not bench.measured and kernel.decision.how == "off"
    monkeypatch.setenv("ADVISOR_AUTOTUNE", "sometimes")
    with pytest.raises(UsageError, match="ADVISOR_AUTOTUNE"):
        call(tuned(LATENCIES)[0])


def test_nothing_is_measured_while_a_graph_is_captured(monkeypatch, caplog):
    monkeypatch.setattr(internals, "is_capturing", lambda: True)
    kernel, bench = tuned(LATENCIES)
    with caplog.at_level(logging.WARNING):
        assert call(kernel) == 32 and call(kernel) == 32
    assert not bench.measured and kernel.decision.provisional and not kernel.cache
    assert len([record for record in caplog.records if "captured" in record.message]) == 1
    modelled, bench = tuned(lambda launch: 1.0, kernels.gemm_kernel, GEMM_SPACE, key=["M", "N", "K"])
    call_gemm(modelled)
    assert not bench.measured and modelled.decision.how == "predicted"
    monkeypatch.setattr(internals, "is_capturing", lambda: False)
    assert call(kernel) == 64 and kernel.decision.how == "measured"
    monkeypatch.setattr(internals, "is_capturing", lambda: True)
    decided, bench = tuned(LATENCIES)
    assert call(decided) == 64 and decided.decision.how == "cached" and not bench.measured


def test_a_kernel_may_be_loaded_while_a_graph_is_captured(monkeypatch):
    """The driver forbids it unless the thread's mode is relaxed, which lasts no longer than the launch."""
    mode = [0]  # CU_STREAM_CAPTURE_MODE_GLOBAL
    seen = []

    def exchange(pointer):
        mode[0], pointer._obj.value = pointer._obj.value, mode[0]

    monkeypatch.setattr(internals, "_capture_mode_exchange", lambda: exchange)
    kernel, _ = tuned(LATENCIES)
    launch = kernel.fn.run
    monkeypatch.setattr(kernel.fn, "run", lambda *args, **kwargs: seen.append(mode[0]) or launch(*args, **kwargs))
    monkeypatch.setattr(internals, "is_capturing", lambda: True)
    call(kernel)
    assert seen == [internals.RELAXED] and mode == [0]
    monkeypatch.setattr(internals, "is_capturing", lambda: False)
    call(kernel)
    assert seen[-1] == 0 and mode == [0]


def test_editing_the_list_measures_only_what_is_new():
    call(tuned(LATENCIES)[0])
    kernel, bench = tuned({**LATENCIES, 256: 0.5})
    assert call(kernel) == 256
    assert [launch["BLOCK"] for launch in bench.measured] == [256]
    fewer, bench = tuned({32: 3.0, 128: 2.0})
    assert call(fewer) == 128 and not bench.measured


def test_buckets():
    kernel, bench = tuned(LATENCIES, key_buckets={"n": "pow2"})
    for n in (513, 600, 1000, 1024):
        assert call(kernel, n=n) == 64
    assert len(bench.measured) == 3 and list(kernel.cache) == [(1024, "torch.bfloat16")]
    call(kernel, n=1025)
    assert len(bench.measured) == 6
    own, _ = tuned(LATENCIES, key_buckets={"n": lambda n: n // 1000}, cache_results=False)
    for n in (1, 999, 1000):
        call(own, n=n)
    assert sorted(key[0] for key in own.cache) == [0, 1]


def test_kernels_whose_source_differs_do_not_share():
    def scale(x, n, BLOCK):
        """Another kernel of the same name."""
        return n

    call(tuned(LATENCIES)[0])
    other, bench = tuned(LATENCIES, scale)
    call(other)
    assert len(bench.measured) == 3


def test_gpus_do_not_share(fake_driver):
    call(tuned(LATENCIES)[0])
    fake_driver.name = "NVIDIA H100 80GB HBM3"
    kernel, bench = tuned(LATENCIES)
    call(kernel)
    assert len(bench.measured) == 3


def test_clearing_the_dictionary_decides_again(monkeypatch):
    kernel, bench = tuned(LATENCIES, cache_results=False)
    call(kernel)
    kernel.cache.clear()
    call(kernel)
    assert kernel.decision.how == "cached" and len(bench.measured) == 3  # this process remembers the timings
    kernel.cache[(1024, "torch.bfloat16")] = configs(128)[0]
    assert call(kernel) == 128
    kernel.cache = {(1024, "torch.bfloat16"): configs(32)[0]}
    assert call(kernel) == 32


def test_hot_calls_do_not_look_again(monkeypatch):
    kernel, _ = tuned(LATENCIES, key_buckets={"n": "pow2"})
    call(kernel, n=5)
    monkeypatch.setattr(kernel, "_slow", None)
    assert call(kernel, n=5) == call(kernel, n=8) == 64


def test_warmup_decides_ahead():
    from advisor.autotuning import decorator as face
    from advisor.autotuning.decisions.decision import Decision

    from .fakes import Tensor

    kernel, bench = tuned(LATENCIES)
    decisions = face.warmup(kernel, [{"x": Tensor(), "n": 8}, {"x": Tensor(), "n": 16, "grid": (2,)}], grid=(1,))
    assert [type(each) for each in decisions] == [Decision, Decision] and len(bench.measured) == 6
    call(kernel, n=8)
    assert len(bench.measured) == 6
    with pytest.raises(UsageError, match="no grid"):
        face.warmup(kernel, [{"x": Tensor(), "n": 8}])
    with pytest.raises(UsageError, match="no such argument"):
        face.warmup(kernel, [{"y": 1}], grid=(1,))
    with pytest.raises(UsageError, match="not decorated"):
        face.warmup(kernels.scale, [{}], grid=(1,))


def test_warmup_decides_for_calls_of_another_process_too():
    """A call passes its arguments in the kernel's order, however the shape names them; its element types are in the key in that order."""
    from advisor.autotuning import decorator as face

    from .fakes import Tensor

    def mixed(x, y, n, BLOCK):
        pass

    given = {"n": 8, "y": Tensor("torch.int8"), "x": Tensor("torch.float16")}
    face.warmup(tuned(LATENCIES, mixed)[0], [given], grid=(1,))
    kernel, bench = tuned(LATENCIES, mixed)
    kernel[(1,)](given["x"], given["y"], 8)
    assert not bench.measured and kernel.decision.how == "cached"


def test_warmup_makes_tensors():
    torch = pytest.importorskip("torch")
    from advisor.autotuning import decorator as face

    kernel, bench = tuned(LATENCIES)
    face.warmup(kernel, [{"x": ((4, 5), "bf16"), "n": 8}], grid=(1,), device="cpu")
    assert bench.measured[0]["x"].shape == (4, 5) and bench.measured[0]["x"].dtype == torch.bfloat16


def test_rank_zero_decides(monkeypatch):
    from advisor.autotuning import choosing

    sent = []
    monkeypatch.setattr(choosing, "ranks", lambda: 2)
    monkeypatch.setattr(choosing, "rank", lambda: 0)
    monkeypatch.setattr(choosing, "broadcast", lambda value: sent.append(value) or value)
    first, bench = tuned(LATENCIES, distributed=True)
    assert call(first) == 64 and len(bench.measured) == 3
    monkeypatch.setattr(choosing, "rank", lambda: 1)
    monkeypatch.setattr(choosing, "broadcast", lambda value: sent[-1])
    other, bench = tuned({32: 1.0, 64: 9.0, 128: 9.0}, distributed=True, cache_results=False)
    assert call(other) == 64 and not bench.measured and "rank 0" in other.decision.reason
    monkeypatch.setattr(choosing, "rank", lambda: 0)
    monkeypatch.setattr(choosing, "broadcast", lambda value: sent.append(value) or value)
    unlisted = configs(512)[0]
    decided, _ = tuned(LATENCIES, distributed=True, mode="cached", default=unlisted, cache_results=False, key=[])
    assert call(decided, n=99) == 512 and sent[-1] == {"config": None}
