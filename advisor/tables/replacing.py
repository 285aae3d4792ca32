"""One configuration in the place of another: what it takes over from it, less what a launch refuses."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from advisor.gpus.hardware import GpuSpec
from advisor.result.schema import Configuration
from advisor.tables.launchability import lacks_split_k, refused_ctas, refused_parameters
from advisor.tables.names import TableName


def replacement(
    configuration: Configuration, today: Configuration | None, *, table: TableName | None, gpu: GpuSpec, searched: Collection[str] = ()
) -> Configuration:
    """The configuration as it is launched instead of `today`'s.

    What was not searched (waves_per_eu, USE_TMA, num_ctas, …) stays as it is today, in today's order. An entry of a table loses what the
    launch refuses, and gets the SPLIT_K that its kernel asks for: it would raise the same error with the best blocks. `num_ctas` that no
    launch has goes, and so does `maxnreg` where another tile or other warps take today's place: it is how many registers a thread of
    today's needs.

    Args:
        configuration: What was found.
        today: What runs now; None: nothing to take over.
        table: The table that it becomes an entry of; None: it becomes none, and every parameter is the kernel's own.
        gpu: That it is launched on.
        searched: Launch options that were searched besides num_warps and num_stages.
    """
    if today is None:
        return configuration
    refused = set(refused_parameters(today.parameters, gpu.vendor, table, gpu.compute_capability)) if table is not None else set()
    tile = {name: value for name, value in configuration.parameters.items() if name != "GROUP_SIZE_M"}
    same = configuration.num_warps == today.num_warps and tile.items() <= today.parameters.items()
    if not same:
        refused.add("maxnreg")
    parameters = {
        name: configuration.parameters.get(name, value)
        for name, value in today.parameters.items()
        if name in configuration.parameters or name not in refused
    }
    parameters |= {name: value for name, value in configuration.parameters.items() if name not in parameters}
    if table is not None and lacks_split_k(parameters, table):
        parameters["SPLIT_K"] = 1
    kept: dict[str, Any] = {}
    if "num_ctas" not in searched:
        kept["num_ctas"] = today.num_ctas if refused_ctas(today.num_ctas, gpu.compute_capability) is None else 1
    if "maxnreg" not in searched:
        kept["maxnreg"] = today.maxnreg if same else None
    return replace(configuration, parameters=parameters, **kept)
