"""Exports of a report to paste: `triton.Config`s, and tables under the name a stack looks for."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.advising.targets import Target
from advisor.diagnosis.rule import microseconds
from advisor.gpus.hardware import GpuSpec, match_device_name
from advisor.learned.layers.moe_layer import TRITON_OF_SGLANG
from advisor.result.schema import Configuration, Export, ExportRow, LaunchReport
from advisor.system import grouped, triton_install
from advisor.tables.audit import entry_errors
from advisor.tables.names import TableName, table_dtype, unreachable_reasons
from advisor.tables.tables import Table, render_table
from advisor.tables.tuned_table import TunedTable, default_table


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
    named_gpu = match_device_name(name.device_name)
    if named_gpu is None or named_gpu.name == gpu.name:
        return name
    return replace(name, device_name=gpu.sglang_device_name() if name.stack == "sglang" else gpu.vllm_device_name())


def layer_table_name(target: Target) -> TableName | None:
    """The name of the table that the stack looks for where a layer has none; no launch need ask for it. None: the target is no layer."""
    problem = target.launches[0].problem
    if problem.family != "fused_moe" or target.stack is None:
        return None
    sglang, gpu = target.stack == "sglang", target.gpu
    return TableName(
        stack="sglang" if sglang else "vllm",
        kind="fused_moe",
        E=problem.sizes["E"],
        N=problem.sizes["N"],
        dtype=table_dtype(problem.dtype, problem.weight_dtype),
        block_shape=problem.block_shape,
        block_shape_spaced=sglang,
        device_name=gpu.sglang_device_name() if sglang else gpu.vllm_device_name(),
        triton_version=_triton_folder() if sglang else None,
    )


def _triton_folder() -> str:
    """The version in the name of SGLang's folder: of the Triton here without what is no number (`+git…`, `rc1`: SGLang sorts its folders
    by integers and would stop at it), or, without one, of the newest SGLang that is known; SGLang falls back to any."""
    version = re.match(r"\d+(\.\d+)*", triton_install.version() or "")
    return version[0] if version else TRITON_OF_SGLANG[0][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedTable:
    """A table with the entries whose prediction wins by more than its doubt, and a row for every launch that it serves."""

    tuned: TunedTable
    rows: tuple[ExportRow, ...]

    @property
    def export(self) -> Export:
        """The table as results carry it."""
        table = self.tuned.table
        return Export(name=table.name.file_name(), kind="table", content=render_table(table), rows=self.rows)


def predicted_tables(target: Target, launches: tuple[LaunchReport, ...]) -> tuple[PredictedTable, ...]:
    """The tables of a target with what is recommended, each under the name its stack looks for; none where no launch asks for one.

    A layer without a table gets one with all that is recommended. Into a table that is there an entry goes only where what the launches
    that are decided together gain is more than the doubt about it: the sum of the upper ends of what is predicted for them stays below
    what runs now. An entry that `advisor audit` finds an error in does not go in. Of a layer without a table, SGLang gets
    one for each GEMM (`_down` for the second) where they differ.
    """
    base = target.table.name if target.table is not None else layer_table_name(target)
    if base is None or (target.table is None and unreachable_reasons(base)):
        return ()
    planned = {launch.id: launch for launch in target.launches}
    together = grouped((report.decision or report.id, report) for report in launches)
    verdicts = {report.id: _decided(group, new=target.table is None) for group in together.values() for report in group}
    tables: dict[str, tuple[Table | None, TableName, list[LaunchReport]]] = {}
    for report in launches:
        launch = planned[report.id]
        if launch.tokens is None:
            continue
        table = launch.table or target.table
        down = table is None and target.stack == "sglang" and report.problem.op == "w2"
        name = table_name_on(table.name, target.gpu) if table is not None else replace(base, down=down)
        tables.setdefault(name.file_name(), (table, name, []))[2].append(report)
    predicted = []
    for table, name, reports in tables.values():
        winners, rows = {}, []
        for report in reports:
            won, reason = verdicts[report.id]
            advice, tokens = report.recommendation, planned[report.id].tokens or 0
            if won and advice is not None and (wrong := entry_errors(advice.configuration, name, target.gpu)):
                won, reason = False, f"not written: {wrong[0].message}"
            if won and advice is not None:
                winners[tokens] = advice.configuration
            rows.append(_row(report, tokens, won, reason))
        token_counts = tuple(planned[report.id].tokens or 0 for report in reports)
        before = table or default_table(name, reports[0].problem, target.gpu, token_counts, target.stack_version)
        tuned = TunedTable(before=replace(before, name=name), winners=winners, tuned=token_counts, gpu=target.gpu, new=table is None)
        predicted.append(PredictedTable(tuned=tuned, rows=tuple(rows)))
    up = {item.tuned.table.name.down: item.tuned.table.document for item in predicted}
    return tuple(
        item for item in predicted if not (item.tuned.new and item.tuned.table.name.down and up.get(False) == item.tuned.table.document)
    )


def _decided(group: Sequence[LaunchReport], *, new: bool) -> tuple[bool, str]:
    """Whether what is recommended for launches that are decided together goes into their table, and why (not); `new`: there is none."""
    if all(report.recommendation is None for report in group):
        return False, "nothing is predicted to be faster by enough"
    befores = [report.before(report.recommendation.latency if report.recommendation else None) for report in group]
    now = sum(latency.us if latency else math.inf for latency in befores)
    then = [report.recommendation.latency if report.recommendation else report.measured or report.predicted for report in group]
    high = sum(math.inf if latency is None else latency.high_us or latency.us for latency in then)
    if math.isinf(now):
        return math.isfinite(high), "what runs now cannot launch"
    if new and high >= now:
        return True, f"recommended; the doubt reaches {microseconds(high)} where {microseconds(now)} run without a table"
    if high < now:
        return True, f"at most {microseconds(high)} where {microseconds(now)} run now"
    return False, f"kept: the recommended one may take {microseconds(high)}, and {microseconds(now)} run now"


def _row(report: LaunchReport, tokens: int, won: bool, reason: str) -> ExportRow:
    now, advice = report.measured or report.predicted, report.recommendation
    after = advice.latency if won and advice is not None else now
    return ExportRow(
        launch=report.id,
        tokens=tokens,
        before=report.configuration,
        before_us=now.us if now else None,
        after=advice.configuration if won and advice is not None else report.configuration,
        after_us=after.us if after else None,
        low_us=after.low_us if after else None,
        high_us=after.high_us if after else None,
        changed=won and advice is not None,
        reason=reason,
    )


def recommended_exports(target: Target, launches: tuple[LaunchReport, ...]) -> tuple[Export, ...]:
    """The recommended tables (or list of triton.Config), where there is anything to change."""
    configurations = dict.fromkeys(report.recommendation.triton_config for report in launches if report.recommendation is not None)
    if not configurations:
        return ()
    listed = "[\n" + "".join(f"    {configuration},\n" for configuration in configurations) + "]\n"
    return (
        *(table.export for table in predicted_tables(target, launches) if table.tuned.winners),
        Export(name="triton.Config list", kind="triton-configs", content=listed),
    )
