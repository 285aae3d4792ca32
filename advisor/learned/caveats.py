"""What to know of predictions before they are believed, said the same by every command that shows some."""

from __future__ import annotations

from collections.abc import Iterable

from advisor.hardware import GpuSpec


def unmeasured_vendor(gpus: Iterable[GpuSpec]) -> tuple[str, ...]:
    """A sentence where a GPU is of a vendor that no measurement behind the shipped models is from; nothing for the others."""
    names = list(dict.fromkeys(gpu.name for gpu in gpus if gpu.vendor == "amd"))
    if not names:
        return ()
    specified = f"the figures of {', '.join(names)} are specified ones"
    return (f"No AMD measurement is behind this: the models were fitted to NVIDIA GPUs, and {specified}.",)
