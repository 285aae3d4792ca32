"""What other tuners found for a kernel: Triton's cache and triton-dejavu's, imported or found on this machine."""

from __future__ import annotations

import json

import pytest

from advisor.autotuning import internals
from advisor.autotuning.decisions import foreign
from advisor.autotuning.decisions.cache import default_cache
from advisor.autotuning.decisions.exchange import import_path

from .kernels import call, configs, tuned

LATENCIES = {32: 3.0, 64: 1.0, 128: 2.0}


def tritons_file(best=64):
    """As triton.autotune writes it."""
    timings = [[{**config.__dict__}, [1.0 if config.kwargs["BLOCK"] == best else 5.0] * 3] for config in configs(*LATENCIES)]
    timings[0][1] = [float("inf")] * 3
    return json.dumps({"key": [1024, "torch.bfloat16"], "configs_timings": timings})


def test_tritons_file_is_imported(tmp_path, fresh_cache):
    path = tmp_path / "scale.autotune.json"
    path.write_text(tritons_file())
    assert import_path(default_cache(), path, "NVIDIA H200").origin == "triton"
    kernel, bench = tuned(LATENCIES)
    assert call(kernel) == 64 and not bench.measured and kernel.decision.how == "imported"
    assert [timing.state for timing in kernel.decision.timings] == ["crash", "measured", "measured"]
    call(kernel, n=2048)
    assert len(bench.measured) == 3


def test_tritons_own_file_is_found(monkeypatch, tmp_path):
    path = tmp_path / "scale.autotune.json"
    path.write_text(tritons_file(128))
    monkeypatch.setattr(internals, "triton_timings_file", lambda fn, key, configs: path)
    kernel, bench = tuned(LATENCIES)
    assert call(kernel) == 128 and not bench.measured and "imported" in kernel.decision.how
    path.write_text("damaged")
    kernel, bench = tuned(LATENCIES)
    assert call(kernel, n=1) == 64 and len(bench.measured) == 3


def test_the_name_of_tritons_file_is_tritons(tmp_path, monkeypatch):
    """What triton.autotune(cache_results=True) writes, we find."""
    import triton
    from triton.runtime.autotuner import Autotuner

    @triton.jit
    def kernel(x, n, BLOCK: triton.language.constexpr):
        pass

    theirs = Autotuner(kernel, kernel.arg_names, configs(16, 32), ["n"], None, None)
    written = {config: [1.0, 1.0, 1.0] for config in configs(16, 32)}

    def bench():
        theirs.cache[(5,)] = configs(16)[0]
        theirs.configs_timings = written

    theirs.check_disk_cache((5,), configs(16, 32), bench)
    found = internals.triton_timings_file(kernel, (5,), configs(16, 32))
    assert found is not None and found.name == "kernel.autotune.json"
    timings = foreign.read_foreign(found, foreign.read_json(found))
    assert [each.row.us for each in timings] == [1000.0, 1000.0] and timings[0].key == "(5,)" and timings[0].kernel == "kernel"
    assert internals.triton_timings_file(kernel, (6,), configs(16, 32)) is None


DEJAVU = {
    "signature": "JITFunction(module:scale)",
    "total_bench_time_s": 1.5,
    "evaluated_configs": 3,
    "keys": ["n"],
    "cache": {"(1024, 'torch.bfloat16')": "BLOCK: 128, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None"},
    "timings": {"(1024, 'torch.bfloat16')": [0.5, 0.4, 0.6]},
}


@pytest.mark.parametrize("older", [False, True])
def test_dejavu_is_read(older, tmp_path, monkeypatch):
    document = dict(DEJAVU)
    if older:
        document["timings"] = {key: {"values": values, "lables": ["ms"]} for key, values in DEJAVU["timings"].items()}
    version = f"triton_{internals.triton_version()}"
    folder = tmp_path / "dejavu_0.7" / "cuda_12.4" / "torch_2.5" / version / "gpu_NVIDIA_H200" / "scale" / "x"
    folder.mkdir(parents=True)
    (folder / "cache.json").write_text(json.dumps(document))
    monkeypatch.setenv("TRITON_DEJAVU_STORAGE", str(tmp_path))
    kernel, bench = tuned(LATENCIES)
    assert call(kernel) == 128 and not bench.measured and kernel.decision.how == "imported"
    assert kernel.decision.timings[2].us == 500.0
    call(kernel, n=3)
    assert len(bench.measured) == 3


def test_dejavu_of_another_gpu_is_not(tmp_path, monkeypatch):
    folder = tmp_path / "gpu_NVIDIA_A100-SXM4-80GB" / "scale"
    folder.mkdir(parents=True)
    (folder / "cache.json").write_text(json.dumps(DEJAVU))
    monkeypatch.setenv("TRITON_DEJAVU_STORAGE", str(tmp_path))
    kernel, bench = tuned(LATENCIES)
    assert call(kernel) == 64 and len(bench.measured) == 3
