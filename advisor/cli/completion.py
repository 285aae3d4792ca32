"""Shell completion without a package of its own: `complete -o default -C 'advisor complete' advisor` (zsh: after `bashcompinit`).

The shell runs that command with the line in COMP_LINE and takes what it prints for the candidates (bash's manual, "Programmable
Completion"); where nothing is printed it completes file names.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

VALUES = {"--gpu": "gpus", "--model": "models"}
"""Options whose values have names."""


def completions(line: str) -> list[str]:
    """What the last word of a command line may become."""
    from advisor.cli import COMMANDS, build_parser

    words = line.split()
    last = "" if line[-1:].isspace() else words.pop() if words else ""
    if len(words) <= 1:
        return _starting(COMMANDS, last)
    command, before = words[1], words[-1]
    if command not in COMMANDS:
        return []
    parser = build_parser(command)
    (commands,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    known = commands.choices[command]._option_string_actions
    if last.startswith("-"):
        return _starting(known, last)
    if before in VALUES:
        return _starting(_names(VALUES[before]), last)
    if before in known and known[before].choices:
        return _starting(map(str, known[before].choices or ()), last)
    return _starting(_names("targets"), last) if command in ("advise", "tune", "measure", "inspect") else []


def _names(what: str) -> Iterable[str]:
    if what == "gpus":
        from advisor.gpus.hardware import list_gpus

        return (gpu.name.replace(" ", "-") for gpu in list_gpus())
    if what == "models":
        from advisor.tables.models import MODELS

        return (model.name for model in MODELS)
    from advisor.system.resources import folder

    return ("fused_moe", *(file.stem for file in folder("triton_kernels").glob("*.py")))


def _starting(names: Iterable[str], start: str) -> list[str]:
    return sorted({name for name in names if name.lower().startswith(start.lower())})
