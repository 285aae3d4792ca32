"""Exports of a report to paste: `triton.Config`s, and tables under the name a stack looks for."""

from __future__ import annotations

from dataclasses import replace

from advisor.advising.targets import Target
from advisor.gpus.hardware import GpuSpec, match_device_name
from advisor.result.schema import Configuration, Export, LaunchReport, Recommendation
from advisor.tables.names import TableName
from advisor.tables.neighbourhood import restated
from advisor.tables.tables import Table, merge, render_table


def triton_config(configuration: Configuration) -> str:
    """A paste-ready `triton.Config(...)`."""
    parameters = ", ".join(f"{name!r}: {value!r}" for name, value in configuration.parameters.items())
    options = f"num_warps={configuration.num_warps}, num_stages={configuration.num_stages}"
    if configuration.num_ctas != 1:
        options += f", num_ctas={configuration.num_ctas}"
    if configuration.maxnreg is not None:
        options += f", maxnreg={configuration.maxnreg}"
    return f"triton.Config({{{parameters}}}, {options})".replace("'", '"')


def table_name_on(name: TableName, gpu: GpuSpec) -> TableName:
    """The name of a table for `gpu`: its own, unless that says another GPU, which would then load what was chosen for this one."""
    said = match_device_name(name.device_name)
    if said is None or said.name == gpu.name:
        return name
    return replace(name, device_name=gpu.sglang_device_name() if name.stack == "sglang" else gpu.vllm_device_name())


def recommended_exports(target: Target, launches: tuple[LaunchReport, ...]) -> tuple[Export, ...]:
    """The recommended table (or list of triton.Config), where there is anything to change."""
    by_share: dict[str, Recommendation] = {}
    shares = {launch.id: launch for launch in target.launches}
    for report in launches:
        if report.recommendation is not None:
            by_share.setdefault(shares[report.id].share, report.recommendation)
    if not by_share:
        return ()
    out = []
    if target.table is not None:
        tables: dict[str, tuple[Table, dict[int, Configuration]]] = {}
        for launch in target.launches:
            if launch.share in by_share and launch.tokens is not None:
                table = launch.table or target.table
                tables.setdefault(table.path, (table, {}))[1][launch.tokens] = by_share[launch.share].configuration
        for table, updates in tables.values():
            name = table_name_on(table.name, target.gpu).file_name()
            kept = restated(table, updates, target.gpu)
            out.append(Export(name=name, kind="table", content=render_table(merge(table, {**kept, **updates}))))
    distinct = dict.fromkeys(recommendation.triton_config for recommendation in by_share.values())
    out.append(Export(name="triton.Config list", kind="triton-configs", content="[\n" + "".join(f"    {c},\n" for c in distinct) + "]\n"))
    return tuple(out)
