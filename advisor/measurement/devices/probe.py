"""Is there a usable GPU? Asked in a process of its own; and the error that says what one needs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from advisor.system.errors import NoGpuError, shorten
from advisor.system.processes import python_command

TIMEOUT_S = 120.0
# What drivers make in /dev on Linux: NVIDIA's, of its small boards too, AMD's, and Windows' beneath its Linux.
DEVICE_FILES = ("nvidia*", "nvhost*", "nvgpu*", "nvmap", "kfd", "dxg")

_SCRIPT = """
import json
try:
    import torch
except Exception as error:
    found = {"error": f"torch cannot be imported ({type(error).__name__}: {error}); pip install 'triton-advisor[torch]'"}
else:
    try:
        if not torch.cuda.is_available():
            built = torch.version.cuda or torch.version.hip
            found = {"error": "torch sees no GPU" if built else "this torch is built for CPUs only"}
        else:
            torch.zeros(1, device="cuda").item()
            major, minor = torch.cuda.get_device_capability(0)
            found = {"name": torch.cuda.get_device_name(0), "capability": 10 * major + minor}
    except Exception as error:
        found = {"error": f"the GPU does not answer ({type(error).__name__}: {error})"}
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The outcome of looking for a GPU: the driver's name and compute capability x 10, or why there is none."""

    name: str | None = None
    capability: int | None = None
    error: str | None = None


def probe_gpu() -> Probe:
    """Looks for a GPU through torch, without loading either here: it takes seconds, which Linux without a GPU need not wait for."""
    if sys.platform == "linux" and not any(any(Path("/dev").glob(pattern)) for pattern in DEVICE_FILES):
        return Probe(error="there is no device of a GPU in /dev")
    try:
        done = subprocess.run(
            python_command(_SCRIPT), capture_output=True, text=True, timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
        )
        lines = done.stdout.strip().splitlines()
        answer = json.loads(lines[-1]) if lines else {"error": f"the look ended with status {done.returncode}"}
        if "error" in answer:
            return Probe(error=shorten(answer["error"]))
        return Probe(name=str(answer["name"]), capability=int(answer["capability"]))
    except subprocess.TimeoutExpired:
        return Probe(error=f"the GPU did not answer within {TIMEOUT_S:g} s, a limit that no option raises: is it stuck (nvidia-smi)?")
    except (OSError, ValueError, TypeError, KeyError) as error:
        return Probe(error=f"the look failed ({type(error).__name__})")


def no_gpu(reason: str) -> NoGpuError:
    """The error that says what is needed."""
    return NoGpuError(
        "no usable GPU on this machine",
        reason,
        "an NVIDIA GPU with its driver, and torch with CUDA (pip install 'triton-advisor[torch]')",
        "run where there is one",
    )
