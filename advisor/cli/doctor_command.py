"""Say what this machine has for the advisor: its Triton, its cache, and the sandbox that untrusted kernels are compiled in.

Each layer of it is built, and then tested from within, by a process like those that compile. The exit code is 0 where all work, and
4 where one does not: then untrusted kernels are compiled only with `advisor compare --trust-source`.

examples:
  advisor doctor
"""

from __future__ import annotations

import argparse
import json
import platform

from advisor import __version__
from advisor.system import triton_install
from advisor.system.settings import read_settings

NOT_SAFE = 4
OF_WALLS = {
    "environment": "only variables that a compiler needs are handed on",
    "files": "only Python, Triton and system libraries are read, and one temporary folder is written (Landlock)",
    "system": "no network, no other process, no owner or mode of a file (seccomp)",
    "limits": "memory, processor time, size of files, number of processes",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor doctor`."""
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """Print what is there, wall by wall."""
    from advisor.compiled.compiler.pool import walls

    stand = walls()
    facts = {
        "advisor": __version__,
        "python": platform.python_version(),
        "triton": triton_install.version(),
        "cache": str(read_settings().cache_dir),
        "walls": {name: {"stands": not lacks, "lacks": lacks or None} for name, lacks in stand.items()},
    }
    if arguments.format == "json":
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    else:
        for name in ("advisor", "python", "triton", "cache"):
            print(f"{name:<12} {facts[name] or 'none: kernels are not compiled (pip install triton)'}")
        print("\nSandbox for compiling kernels")
        for name, lacks in stand.items():
            print(f"  {name:<12} {f'MISSING: {lacks}' if lacks else f'works: {OF_WALLS[name]}'}")
    return NOT_SAFE if any(stand.values()) else 0
