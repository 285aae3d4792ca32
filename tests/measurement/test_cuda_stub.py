"""The CUDA device's own code, on a stand-in for `torch.cuda`: what a GPU would do is pretended, everything around it is real."""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import types

import pytest

from advisor.measurement.devices import ceiling_kernels
from advisor.measurement.devices.device import open_device, parse_device
from advisor.measurement.kernel_file import KernelRef
from advisor.measurement.launch import Batch, Launch
from advisor.measurement.rounds import run_batch
from advisor.result.schema import Configuration, Problem
from advisor.system.errors import MeasurementError, NoGpuError

torch = pytest.importorskip("torch")

KERNEL = """
KERNELS = {"double_kernel": {
    "family": "elementwise", "ops": {"gelu": {"sizes": {"B": "b", "H": "h"}}}, "dtypes": ["fp32"],
    "space": {"BLOCK_SIZE": [256, 512], "num_warps": [4]}, "make_inputs": "make_inputs", "prepare": "prepare",
    "reference": "reference", "tolerance": {"fp32": [1e-6, 1e-6]},
}}

def make_inputs(problem, device, generator):
    import torch
    x = torch.randn(problem["B"], problem["H"], generator=generator)
    return {"problem": problem, "x": x, "output": torch.empty_like(x)}

def reference(inputs):
    return 2 * inputs["x"].double()

def prepare(inputs, config):
    assert set(config) == {"BLOCK_SIZE", "num_warps"}, config
    def run():
        if config["BLOCK_SIZE"] == 512 and "wrong" in __file__:
            inputs["output"][0, 0] = 0.0
            return inputs["output"]
        inputs["output"].copy_(inputs["x"]).mul_(2)
        import torch
        torch.cuda.spend({256: 5.0, 512: 8.0}[config["BLOCK_SIZE"]])
        return inputs["output"]
    return run
"""


class Gpu:
    """Its clock in microseconds, and the graph that is being captured. Nothing passes but what kernels, events and replays take."""

    now = 0.0
    capturing = None


EVENT_US, REPLAY_US = 1.25, 7.0  # what an event takes, and what a replay does besides its launches
KERNEL_US = {256: 5.0, 512: 8.0}


def spend(duration_us):
    """A kernel: into the graph where one is captured, else onto the clock."""
    if Gpu.capturing is not None:
        Gpu.capturing.took += duration_us
    else:
        Gpu.now += duration_us


class Event:
    early = 0  # how many times the GPU begins before everything is enqueued

    def __init__(self, enable_timing=False):
        self.at = None

    def query(self):
        Event.early -= 1
        return Event.early >= 0

    def record(self):
        Gpu.now += EVENT_US
        self.at = Gpu.now

    def synchronize(self):
        """It was."""

    def elapsed_time(self, other):
        return (other.at - self.at) / 1e3


class Stream:
    def wait_stream(self, other):
        """Nothing waits here."""


class Graph:
    captures = True

    def __init__(self):
        self.took = REPLAY_US

    def capture_begin(self):
        if not self.captures:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        Gpu.capturing = self

    def capture_end(self):
        Gpu.capturing = None

    def replay(self):
        Gpu.now += self.took


@pytest.fixture
def stub(monkeypatch):
    """A torch whose `cuda` pretends."""
    properties = types.SimpleNamespace(name="NVIDIA H200", uuid="0-1", L2_cache_size=1 << 20, multi_processor_count=132)
    slept = []
    cuda = types.SimpleNamespace(
        is_available=lambda: True,
        get_device_properties=lambda _: properties,
        Event=Event,
        CUDAGraph=Graph,
        Stream=Stream,
        current_stream=Stream,
        stream=lambda stream: contextlib.nullcontext(),
        synchronize=lambda: None,
        empty_cache=lambda: None,
        _sleep=slept.append,
        mem_get_info=lambda: (1 << 24, 1 << 24),
        slept=slept,
        spend=spend,
    )

    class Torch(types.ModuleType):
        def __getattr__(self, name):
            found = getattr(torch, name)
            if name in ("empty", "randn", "rand", "zeros", "randint"):
                return lambda *a, device=None, **k: found(*a, **k)
            return found

    module = Torch("torch")
    module.cuda = cuda
    module.version = types.SimpleNamespace(cuda="13.0", hip=None)
    module.Generator = lambda device=None: torch.Generator()
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(ceiling_kernels, "empty_kernel", {(1,): lambda: None})
    return module


@pytest.fixture
def kernel(tmp_path):
    def write(name="right"):
        path = tmp_path / f"{name}.py"
        path.write_text(KERNEL)
        return KernelRef(file=str(path), function="double_kernel")

    return write


def batch(kernel, cache="warm", rows=4):
    problem = Problem(family="elementwise", op="gelu", sizes={"B": rows, "H": 33}, dtype="fp32", cache=cache)
    launches = [Launch(kernel=kernel, problem=problem, configuration=Configuration(parameters={"BLOCK_SIZE": b})) for b in (256, 512)]
    return Batch(launches=tuple(launches), max_rounds=10)


def test_a_batch_by_graphs_and_by_events(stub, kernel):
    device = open_device(parse_device("cuda"))
    assert device.gpu_name == "H200" and device.l2_bytes == 1 << 20
    outcomes = run_batch(device, batch(kernel()))
    assert [o.failure for o in outcomes] == [None, None] and [o.timer for o in outcomes] == ["graph", "graph"]
    assert all(len(o.rounds) == 10 and all(s > 0 for r in o.rounds for s in r.samples_us) for o in outcomes)
    cold = run_batch(device, batch(kernel(), "cold"))
    assert {o.timer for o in cold} == {"events"}
    for found in (outcomes, cold):  # neither what a replay costs nor what events add
        for outcome, took in zip(found, KERNEL_US.values(), strict=True):
            assert {s for r in outcome.rounds for s in r.samples_us} == {took}
    assert stub.cuda.slept and min(stub.cuda.slept) > 0


def test_a_machine_that_enqueues_slowly_is_given_longer(stub, monkeypatch):
    device = open_device(parse_device("cuda"))
    for early, longer in ((0, [1]), (1, [1, 4]), (2, [1, 4, 16]), (9, [1, 4, 16])):
        monkeypatch.setattr(Event, "early", early)
        stub.cuda.slept.clear()
        runs = []
        assert len(device.time_events(lambda runs=runs: runs.append(1), 3)) == 3
        assert [held / stub.cuda.slept[0] for held in stub.cuda.slept] == longer and len(runs) == 3 * len(longer)


def test_a_lost_context_is_told_by_what_lost_it(stub, kernel, monkeypatch):
    """Freeing memory fails too then, and says less."""
    from advisor.measurement.devices import cuda
    from advisor.measurement.rounds import FatalFailure

    def lost(*_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(cuda.CudaBench, "launch", lost)
    stub.cuda.empty_cache = lost
    with pytest.raises(FatalFailure) as caught:
        run_batch(open_device(parse_device("cuda")), batch(kernel()))
    assert caught.value.index == 0 and caught.value.failure.kind == "illegal-access"


def test_what_cannot_be_captured_is_timed_by_events(stub, kernel, monkeypatch):
    monkeypatch.setattr(Graph, "captures", False)
    outcomes = run_batch(open_device(parse_device("cuda")), batch(kernel()))
    assert {o.timer for o in outcomes} == {"events"} and all(o.failure is None for o in outcomes)


def test_no_garbage_is_collected_while_a_graph_is_captured(stub, kernel, monkeypatch):
    """A kernel that is collected unloads its module, and the capture ends: the launch would be timed otherwise than the others."""
    collecting = []
    monkeypatch.setattr(Graph, "capture_begin", lambda self: collecting.append(gc.isenabled()))
    monkeypatch.setattr(Graph, "capture_end", lambda self: collecting.append(gc.isenabled()))
    run_batch(open_device(parse_device("cuda")), batch(kernel()))
    assert collecting == [False] * 8 and gc.isenabled()


def test_wrong_output_has_no_latency(stub, kernel):
    right, wrong = run_batch(open_device(parse_device("cuda")), batch(kernel("wrong")))
    assert right.failure is None and wrong.failure.kind == "wrong-output" and "132 of 132" in wrong.failure.message and not wrong.rounds


def test_fingerprint_and_ceilings(stub, monkeypatch):
    from advisor.measurement.devices import ceilings

    monkeypatch.setattr(ceilings, "MATRIX", 64)
    monkeypatch.setattr(ceilings, "VECTOR_MATRIX", 64)
    device = open_device(parse_device("cuda"))
    found = device.fingerprint()
    assert (found.gpu, found.cuda, found.gpu_uuid, found.mode) == ("H200", "13.0", "GPU-0-1", "gpu") and found.triton and found.torch
    figures = device.measure_ceilings()
    assert {"dram_copy_bytes_per_s", "dram_read_bytes_per_s", "fp32_fma_flop_per_s"} <= set(figures) <= set(ceilings.FIGURES)
    assert all(math.isfinite(value) and value > 0 for value in figures.values())


@pytest.mark.parametrize(("version", "available", "reason"), [(None, True, "not built for CUDA"), ("13.0", False, "sees no GPU")])
def test_no_gpu(stub, version, available, reason):
    stub.version.cuda, stub.cuda.is_available = version, lambda: available
    with pytest.raises(NoGpuError, match=reason) as caught:
        open_device(parse_device("cuda"))
    assert "NVIDIA GPU" in str(caught.value) and caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (RuntimeError("Failed to find C compiler. Please specify via CC environment variable."), "install a C compiler"),
        (PermissionError(13, "Permission denied", "/root/.triton/cache"), "TRITON_CACHE_DIR"),
        (OSError(28, "No space left on device"), "make room"),
        (RuntimeError("0 active drivers ([]). There should only be one."), "nvidia-smi"),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), "nvidia-smi"),
    ],
)
def test_a_machine_that_launches_nothing_says_so_at_once(stub, monkeypatch, error, remedy):
    def fail():
        raise error

    monkeypatch.setattr(ceiling_kernels, "empty_kernel", {(1,): fail})
    with pytest.raises(MeasurementError, match=f"cannot be launched on this machine; got {type(error).__name__}.*expected.*{remedy}"):
        open_device(parse_device("cuda"))
