"""One configuration in the place of another: what it takes over from it, less what a launch refuses."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from advisor.configs.launchability import refused_parameters
from advisor.configs.names import TableName
from advisor.schema import Configuration


def replacement(configuration: Configuration, today: Configuration | None, *, table: TableName | None, vendor: str,
                searched: Collection[str] = ()) -> Configuration:  # fmt: skip
    """The configuration as it is launched instead of `today`'s.

    What was not searched (waves_per_eu, USE_TMA, num_ctas, …) stays as it is today, in today's order. An entry of a table loses what the
    launch refuses: it would raise the same KeyError with the best blocks.

    Args:
        configuration: What was found.
        today: What runs now; None: nothing to take over.
        table: The table that it becomes an entry of; None: it becomes none, and every parameter is the kernel's own.
        vendor: Of the GPU, as `GpuSpec.vendor`.
        searched: Launch options that were searched besides num_warps and num_stages.
    """
    if today is None:
        return configuration
    refused = refused_parameters(today.parameters, vendor, table) if table is not None else ()
    parameters = {name: configuration.parameters.get(name, value) for name, value in today.parameters.items()
                  if name in configuration.parameters or name not in refused}  # fmt: skip
    parameters |= {name: value for name, value in configuration.parameters.items() if name not in parameters}
    kept = {name: getattr(today, name) for name in ("num_ctas", "maxnreg") if name not in searched}
    return replace(configuration, parameters=parameters, **kept)
