"""On PYTHONPATH, with TRITON_INTERPRET=1: programs find a GPU, whose kernels run in Triton's interpreter and whose tensors lie on the CPU.

What is timed is the CPU; everything around it, the processes and their doors included, is what a GPU would see.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from types import SimpleNamespace


class Event:
    """A CUDA event on the CPU's clock."""

    def __init__(self, enable_timing=False):
        self.at = 0.0

    def record(self, stream=None):
        self.at = time.perf_counter()

    def query(self):
        return False

    def synchronize(self):
        """It was."""

    def elapsed_time(self, other):
        return 1e3 * (other.at - self.at)


class Stream:
    """Nothing waits."""

    cuda_stream = 0

    def wait_stream(self, other):
        """Nothing waits."""


class Graph:
    """Refuses to capture: launches are timed one by one."""

    def capture_begin(self, *_, **__):
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    def capture_end(self):
        """Nothing was captured."""


def pretend(torch):
    """Gives torch a GPU, and takes tensors that are meant for it to the CPU."""
    properties = SimpleNamespace(name="NVIDIA H200", uuid="0-1", L2_cache_size=1 << 20, multi_processor_count=132, total_memory=140 << 30)
    pretended = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda *_: properties.name,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda *_: properties,
        "mem_get_info": lambda *_: (1 << 24, 1 << 24),
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
        "current_stream": lambda *_: Stream(),
        "stream": lambda stream: contextlib.nullcontext(),
        "is_current_stream_capturing": lambda: False,
        "_sleep": lambda cycles: None,
        "Event": Event,
        "Stream": Stream,
        "CUDAGraph": Graph,
    }
    for name, value in pretended.items():
        setattr(torch.cuda, name, value)
    torch.version.cuda = "13.0"
    generator = torch.Generator
    torch.Generator = lambda device=None: generator()

    class OnCpu(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            here = lambda value: "cpu" if isinstance(value, (str, torch.device)) and str(value).startswith("cuda") else value  # noqa: E731
            return function(*map(here, args), **{name: here(value) for name, value in (kwargs or {}).items()})

    OnCpu().__enter__()


def drive(module):
    """Gives Triton a driver that passes for the GPU's."""
    from tests.autotuning.fakes import FakeDriver

    class Driver(FakeDriver):
        def get_device_interface(self):
            return SimpleNamespace(Event=Event, synchronize=lambda: None)

        def get_active_torch_device(self):
            import torch

            return torch.device("cpu")

    module.driver._active = Driver()


def find(module):
    """Lets the look for a GPU's device find something."""
    module.DEVICE_FILES = ("null",)


class After:
    """Changes a module once it is imported."""

    changes = {"torch": pretend, "triton.runtime.driver": drive, "advisor.measurement.devices.probe": find}  # noqa: RUF012

    def find_spec(self, name, path=None, target=None):
        if name not in self.changes:
            return None
        change = self.changes.pop(name)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


for name in After.changes.keys() & sys.modules.keys():
    After.changes.pop(name)(sys.modules[name])  # a Python that had loaded it (`tests/loaded`)
sys.meta_path.insert(0, After())
