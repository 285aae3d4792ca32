"""The little of torch.distributed that choosing needs: rank 0 decides, the others hear of it."""

from __future__ import annotations

import sys
from typing import Any


def ranks() -> int:
    """The number of processes in the default group; 1 where there is none."""
    group = _group()
    return int(group.get_world_size()) if group is not None else 1


def rank() -> int:
    """The rank of this process in the default group."""
    group = _group()
    return int(group.get_rank()) if group is not None else 0


def broadcast(value: Any) -> Any:
    """Rank 0's value, on every rank."""
    box = [value]
    group = _group()
    assert group is not None
    group.broadcast_object_list(box, src=0)
    return box[0]


def _group() -> Any:
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    module = getattr(torch, "distributed", None)
    return module if module is not None and module.is_available() and module.is_initialized() else None
