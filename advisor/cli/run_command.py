"""Run a program with its kernels tuned by the advisor, though it decorates them with triton.autotune.

Every `triton.autotune` of the program and its libraries works as `advisor.autotune`: configurations are ranked, only the most promising
are measured, and timings are kept between processes. A library with a policy of its own keeps it. The last line says what it won: per
kernel, the first configuration of its list against the chosen one, measured in the same rounds, and the time that tuning took.
ADVISOR_AUTOTUNE chooses the mode (measure, predict, cached, exhaustive, off). Child processes of the program are tuned too.
The exit code is the program's own; 128 and the signal's number where a signal ended it.

examples:
  advisor run -- python serve.py
  advisor run --report tuned -- python -m pytest tests
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from advisor.cli import main
from advisor.system.processes import program_of, run_with
from advisor.system.settings import read_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor run`."""
    parser.add_argument("--report", metavar="DIR", help="also write a report on what the tuning cache then holds")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the program and its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Run the program with our tuner in Triton's place; its exit code is returned."""
    from advisor.autotuning.decisions.cache import FILE_NAME
    from advisor.autotuning.installing import CENSUS, in_words, read_census, won_in_words

    command = program_of(arguments.command, "advisor run -- python serve.py")
    with tempfile.TemporaryDirectory() as folder:
        census = Path(folder) / "census"
        census.touch()
        code = run_with(command, {"ADVISOR_AUTOTUNE_INSTALL": "1", CENSUS: str(census)}, "interrupted")
        tuners = read_census(census.read_text(encoding="utf-8").splitlines())
    for line in filter(None, (in_words(tuners), won_in_words(tuners))):
        print(f"advisor: {line}", file=sys.stderr)
    if arguments.report is not None:
        main(["advise", os.fspath(read_settings().cache_dir / FILE_NAME), "--output", os.fspath(arguments.report)])
    return code
