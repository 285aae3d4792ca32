"""What other tuners found for a kernel, imported: Triton's own results and triton-dejavu's."""

from __future__ import annotations

import json

import pytest

from advisor.autotuning.decisions.cache import default_cache
from advisor.autotuning.decisions.exchange import import_path

from .kernels import call, configs, tuned

LATENCIES = {32: 3.0, 64: 1.0, 128: 2.0}
DEJAVU = {
    "signature": "JITFunction(module:scale)",
    "total_bench_time_s": 1.5,
    "evaluated_configs": 3,
    "keys": ["n"],
    "cache": {"(1024, 'torch.bfloat16')": "BLOCK: 128, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None"},
    "timings": {"(1024, 'torch.bfloat16')": [0.5, 0.4, 0.6]},
}


def tritons(latencies, key):
    """As triton.autotune writes it, of latencies in milliseconds."""
    timings = [(config.__dict__, [latencies[config.kwargs["BLOCK"]]] * 3) for config in configs(*latencies)]
    return json.dumps({"key": key, "configs_timings": timings})


def test_tritons_results_are_used(tmp_path, fresh_cache):
    path = tmp_path / "scale.autotune.json"
    path.write_text(tritons({32: float("inf"), 64: 5.0, 128: 1.0}, [1024, "torch.bfloat16"]))
    import_path(default_cache(), path, "NVIDIA H200")
    kernel, bench = tuned(LATENCIES)
    assert call(kernel) == 128 and not bench.measured and kernel.decision.how == "imported"
    assert [(timing.state, timing.us) for timing in kernel.decision.timings] == [("crash", None), ("measured", 5e3), ("measured", 1e3)]
    call(kernel, n=2048)
    assert len(bench.measured) == 3


def test_a_choice_that_is_not_in_the_list_is_not_used(tmp_path, fresh_cache):
    path = tmp_path / "scale.autotune.json"
    path.write_text(tritons({256: 1.0}, [1024, "torch.bfloat16"]))
    import_path(default_cache(), path, "NVIDIA H200")
    kernel, bench = tuned(LATENCIES)
    assert call(kernel) == 64 and len(bench.measured) == 3


@pytest.mark.parametrize("timings, us", [([0.5, 0.4, 0.6], 500.0), ({"values": [0.5, 0.4, 0.6], "lables": ["ms"]}, 500.0), (None, None)])
@pytest.mark.parametrize("gpu, is_used", [("NVIDIA_H200", True), ("NVIDIA_A100-SXM4-80GB", False)])
def test_triton_dejavus_are_used_on_the_gpu_of_their_path(timings, us, gpu, is_used, tmp_path, fresh_cache):
    path = tmp_path / "triton_3.2.0" / f"gpu_{gpu}" / "scale" / "x" / "cache.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(DEJAVU | {"timings": {"(1024, 'torch.bfloat16')": timings}}))
    import_path(default_cache(), path)
    kernel, bench = tuned(LATENCIES)
    assert call(kernel) == (128 if is_used else 64) and bool(bench.measured) != is_used
    assert not is_used or kernel.decision.timings[2].us == us
