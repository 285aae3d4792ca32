"""What other tuners found for a kernel: Triton's cache and triton-dejavu's, imported."""

from __future__ import annotations

import json

import pytest

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


DEJAVU = {
    "signature": "JITFunction(module:scale)",
    "total_bench_time_s": 1.5,
    "evaluated_configs": 3,
    "keys": ["n"],
    "cache": {"(1024, 'torch.bfloat16')": "BLOCK: 128, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None"},
    "timings": {"(1024, 'torch.bfloat16')": [0.5, 0.4, 0.6]},
}


@pytest.mark.parametrize("older", [False, True])
def test_dejavu_is_read(older, tmp_path, fresh_cache):
    document = dict(DEJAVU)
    if older:
        document["timings"] = {key: {"values": values, "lables": ["ms"]} for key, values in DEJAVU["timings"].items()}
    folder = tmp_path / "dejavu_0.7" / "cuda_12.4" / "torch_2.5" / "triton_3.2.0" / "gpu_NVIDIA_H200" / "scale" / "x"
    folder.mkdir(parents=True)
    (folder / "cache.json").write_text(json.dumps(document))
    import_path(default_cache(), folder / "cache.json", None)
    kernel, bench = tuned(LATENCIES)
    assert call(kernel) == 128 and not bench.measured and kernel.decision.how == "imported"
    assert kernel.decision.timings[2].us == 500.0
    call(kernel, n=3)
    assert len(bench.measured) == 3


def test_dejavu_of_another_gpu_is_not(tmp_path, fresh_cache):
    folder = tmp_path / "gpu_NVIDIA_A100-SXM4-80GB" / "scale"
    folder.mkdir(parents=True)
    (folder / "cache.json").write_text(json.dumps(DEJAVU))
    import_path(default_cache(), folder / "cache.json", None)
    kernel, bench = tuned(LATENCIES)
    assert call(kernel) == 64 and len(bench.measured) == 3
