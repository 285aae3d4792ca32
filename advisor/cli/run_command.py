"""Run a program with `triton.autotune` replaced everywhere, third-party packages included: `advisor.install()` before its first line.

Configurations are chosen as by `@advisor.autotune`: the model ranks where it knows the kernel's family, timings are kept between
processes, and ADVISOR_AUTOTUNE names another mode (predict, cached, exhaustive, off). A library that chooses by a policy of its own keeps
it. Child processes are included. The last line says what was tuned, where from, and how long it took. The exit code is the program's own;
128 and the signal's number where a signal ended it.

examples:
  advisor run -- python serve.py
  advisor run --report tuned -- python train.py
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from advisor.compiled.recorder import hook
from advisor.system.programs import command_of, run_hooked
from advisor.system.counting import several
from advisor.system.settings import read_settings

HELP = "run a program with triton.autotune replaced everywhere"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor run`."""
    parser.add_argument(
        "--report", nargs="?", const="advisor-report", metavar="DIR", help="write the page on what is tuned to DIR (advisor-report)"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the program and its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Run the program with the hook on its path; its exit code is returned."""
    command = command_of(arguments.command, "advisor run -- python serve.py")
    with tempfile.TemporaryDirectory(prefix="advisor-run-") as folder:
        log = Path(folder) / "summaries.jsonl"
        variables = {"ADVISOR_AUTOTUNE_INSTALL": "1", "ADVISOR_RUN_LOG": str(log)}
        code = run_hooked(command, Path(hook.__file__).parent, variables, "interrupted; what was tuned until then is in the cache")
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    print(f"advisor: {told(lines)}", file=sys.stderr)
    if arguments.report is not None:
        from advisor.autotuning.decisions.cache import FILE_NAME
        from advisor.cli import main

        cache = read_settings().cache_dir / FILE_NAME
        if not cache.exists() or main(["advise", str(cache), "--output", arguments.report]) != 0:
            print(f"advisor: warning: no page is written: {cache} holds nothing that was tuned on a GPU", file=sys.stderr)
    return code


def told(lines: list[str]) -> str:
    """One line of the summaries of the processes (`installing.tell`)."""
    if not lines:
        return "nothing was tuned: no Python process of it loaded Triton and came to its end"
    total: Counter[tuple[str, str]] = Counter()
    for line in lines:
        for what, of, count in json.loads(line):
            total[what, of] += count
    parts = []
    for what in ("taken", "kept", "left"):
        those = {of: count for (which, of), count in sorted(total.items()) if which == what}
        why = ", ".join(f"{of}: {count}" for of, count in those.items())
        parts.append(f"{several(sum(those.values()), 'tuner')} {what}" + (f" ({why})" if why else ""))
    decided = {of: count for (what, of), count in sorted(total.items()) if what == "decided"}
    seconds = sum(count for (what, _), count in total.items() if what == "seconds")
    how = ", ".join(f"{count} {of}" for of, count in decided.items())
    parts.append(f"{several(sum(decided.values()), 'decision')}" + (f" ({how}) in {seconds:.1f} s" if decided else ""))
    return "; ".join(parts)
