"""Run a program and write down every Triton launch: kernel source, types, constants, shapes, strides, grid, and times on a GPU.

The program computes what it would compute anyway. Child processes are recorded too. `advisor advise LAUNCHES.jsonl` reads the file.
The exit code is the program's own; 128 and the signal's number where a signal ended it.

examples:
  advisor record -o launches.jsonl -- python serve.py
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from advisor.cli.options import file_output, positive_integer
from advisor.system.errors import agree, several
from advisor.system.processes import program_of, run_with
from advisor.system.writing import unwritable

SHOWN = 10
"""Warnings that are printed; all are in the record."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor record`."""
    parser.add_argument(
        "-o", "--output", required=True, type=file_output, metavar="LAUNCHES.jsonl", help="file to write (replaced where it exists)"
    )
    parser.add_argument(
        "--contents",
        action="append",
        default=[],
        metavar="NAME",
        help="also write what this integer tensor holds, up to 65,536 elements (an argument's name; `all` for all): "
        "`advisor measure` needs it of indices, lengths and counts",
    )
    parser.add_argument(
        "--first",
        type=positive_integer,
        metavar="N",
        help="keep the first N distinct launches of each kernel; later ones cost nothing, and are not counted",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the program and its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Run the program with the recorder on its path; its exit code is returned."""
    from advisor.rows.launches import FORMAT, read_launches

    command = program_of(arguments.command, "advisor record -o LAUNCHES.jsonl -- python train.py")
    output = Path(arguments.output).absolute()
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(f'{{"format": "{FORMAT}"}}\n', encoding="utf-8")
    except OSError as error:
        raise unwritable(output, error, "name another file with -o") from None
    variables = {"ADVISOR_RECORD": str(output), "ADVISOR_RECORD_CONTENTS": ",".join(arguments.contents)}
    variables["ADVISOR_RECORD_FIRST"] = str(arguments.first or "")
    code = run_with(command, variables, f"interrupted; what was launched until then is in {arguments.output}")
    records = read_launches(output)
    kernels = {launch.kernel for launch in records.launches}
    times = sum(launch.count for launch in records.launches)
    trials = sum(launch.count for launch in records.launches if launch.tuning)
    recorded = f"{several(times, 'launch')} of {several(len(kernels), 'kernel')}, {len(records.launches)} distinct"
    recorded += f"; {trials} of the launches {agree(trials, 'is a trial', 'are trials')} of an autotuner" if trials else ""
    print(f"advisor: {recorded}, in {arguments.output}", file=sys.stderr)
    problems = list(dict.fromkeys(records.problems))  # several processes may say the same
    for problem in problems[:SHOWN]:
        print(f"advisor: warning: {problem}", file=sys.stderr)
    if len(problems) > SHOWN:
        print(f"advisor: warning: {len(problems) - SHOWN} more like these are in the record", file=sys.stderr)
    return code
