"""How many kernels of public packages are counted, and how many keep a loop of unknown trips once what is asked for is given.

    python tests/bench/public_kernels.py [--sample N] [--seed S] [--list OUT.json] [--run ADVISOR_FOLDER…] FOLDER…

A FOLDER is an unpacked wheel (`pip download --no-deps` fetches one, and nothing of it is run). Each kernel is inspected for an H100 as
`advisor inspect FILE::KERNEL --gpu H100` does; then again with typical values (`TYPICAL`) for what that asks for, until it asks for
nothing new. Helpers, which return a value, are no kernels. Prints a line for each kernel that does not compile or keeps such a loop.
With `--run` (needs `coverage`) also how many statements in functions of these folders fewer than one kernel in a hundred runs.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from advisor.advising.missing_options import missing_options  # noqa: E402
from advisor.compiled.compiler.kernel import (  # noqa: E402
    CompileError,
    Target,
    items_of,
)
from advisor.compiled.compiler.pool import Pool  # noqa: E402
from advisor.compiled.demand.likely_places import guessed_trips  # noqa: E402
from advisor.compiled.ir.execution import not_given  # noqa: E402
from advisor.compiled.launches.launch import Inspection, inspect_launch  # noqa: E402
from advisor.compiled.launches.launch_options import LaunchOptions, one_launch  # noqa: E402
from advisor.gpus.hardware import load_gpu  # noqa: E402
from advisor.python_source.source import SourceFile, read_source  # noqa: E402
from advisor.system.errors import AdvisorError  # noqa: E402

TYPICAL = {"arg": 4096, "content": 4096, "grid": "64,8,2"}
"""What is answered where an option of this name is asked for; for constants, what was guessed."""
OTHER_TRITON = r"an import (import|from) triton\.\S+"
"""In what is said of a file that takes a module from Triton which this one does not have: no arguments mend that."""
ROUNDS = 3
GPU = load_gpu("H100")


def kernels(folders: list[Path]) -> Iterator[tuple[Path, SourceFile, str]]:
    """Every kernel of the files below some folders, with its folder."""
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            text = path.read_text(errors="replace")
            if "triton" in text and "jit" in text:
                source = read_source(path)
                yield from ((folder, source, name) for name in source.launched)


def answered(inspection: Inspection, asked: dict[str, Any], contents: bool) -> dict[str, Any]:
    """What was given, with typical values for the sizes that are asked for besides, or for what tensors hold."""
    found = {**asked, "arguments": dict(asked["arguments"]), "constexprs": dict(asked["constexprs"]), "contents": dict(asked["contents"])}
    tables = {"arg": "arguments", "constexpr": "constexprs", "content": "contents"}
    options = [f"--content {name}=…" for name in not_given(inspection.demand.unknown)] if contents else missing_options(inspection)
    for option in options:
        kind, name = re.fullmatch(r"--(\w+) ?'?([^=…]*).*", option).groups()  # type: ignore[union-attr]
        if kind == "grid":
            found["grid"] = TYPICAL["grid"]
        else:
            items = len(items_of(inspection.guess.signature.get(name, "")))
            value = TYPICAL.get(kind, inspection.guess.constexprs.get(name))
            found[tables[kind]].setdefault(name, (value,) * items if items else value)
    return found


def tried(source: SourceFile, name: str, pool: Pool) -> tuple[str, list[str], list[str]]:
    """What became of a kernel (`ok`, `helper`, or why it was not counted), and why trips of its loops stay unknown: once the sizes are
    given, and once what tensors hold is too."""
    asked: dict[str, Any] = {"arguments": {}, "constexprs": {}, "contents": {}}
    found: Inspection | None = None
    loops: list[list[str]] = []
    for contents in (False, True):
        for _ in range(ROUNDS):
            more = asked if found is None else answered(found, asked, contents)
            if found is not None and more == asked:
                break
            asked = more
            try:
                found = inspect_launch(one_launch(*source.named(name), LaunchOptions(**asked), GPU), Target.of(GPU), pool, sass=False)
            except AdvisorError as error:
                if isinstance(error, CompileError) and error.kind == "helper":
                    return "helper", [], []
                if found is None and (getattr(error, "kind", "") == "absent" or re.search(OTHER_TRITON, str(error))):
                    return f"for another Triton: {error}", [], []
                return (f"failed: {error}", [], []) if found is None else ("ok", [f"with what it asks for: {error}"], [])
        assert found is not None
        loops.append(sorted(guessed_trips(found.demand)))
    return "ok", loops[0], loops[1]


def rarely_run(ran: Counter[tuple[str, int]], kernels: int, folder: Path) -> tuple[int, int]:
    """Of the statements in functions of a folder's files but for what is raised: all, and those that fewer than one in a hundred of the
    kernels ran, whose lines are counted in `ran`."""
    places = {
        (str(path), statement.lineno)
        for path in folder.rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        for statement in ast.walk(function)
        if isinstance(statement, ast.stmt) and statement is not function and not isinstance(statement, ast.Raise)
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
    }
    return len(places), sum(100 * ran[place] < kernels for place in places)


def main(arguments: list[str]) -> int:
    """Runs it; returns an exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--sample", type=int, help="so many kernels, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--list", type=Path, help="write what became of each here")
    parser.add_argument("--run", type=Path, nargs="+", default=[], help="folders of advisor/ whose statements are counted")
    given = parser.parse_args(arguments)
    found = list(kernels(given.folders))
    ran: Counter[tuple[str, int]] = Counter()
    watched = None
    if given.run:
        from coverage import Coverage

        watched = Coverage(data_file=None, config_file=False, include=[f"{folder.resolve()}/*" for folder in given.run])
    if given.sample:
        random.Random(given.seed).shuffle(found)
    counts: dict[str, Counter[str]] = {}
    listed: dict[str, Any] = {}
    with Pool(1) as pool:
        for folder, source, name in found:
            if given.sample and sum(count["kernels"] for count in counts.values()) >= given.sample:
                break
            start = time.perf_counter()
            if watched is not None:
                watched.erase()
                watched.start()
                source = read_source(source.path)
            outcome, loops, left = tried(source, name, pool)
            if watched is not None:
                watched.stop()
            if outcome == "helper":
                continue
            if watched is not None:
                lines = watched.get_data()
                ran.update((path, line) for path in lines.measured_files() for line in lines.lines(path) or ())
            count = counts.setdefault(folder.name, Counter())
            count.update(
                {
                    "kernels": 1,
                    "counted": outcome == "ok",
                    "other": outcome.startswith("for another"),
                    "loops": bool(loops),
                    "left": bool(left),
                }
            )
            where = f"{source.path.relative_to(folder)}::{name}"
            listed[where] = {"outcome": outcome, "loops": loops, "left": left, "seconds": round(time.perf_counter() - start, 1)}
            if given.list:
                given.list.write_text(json.dumps(listed, indent=1))
            if outcome != "ok" or loops:
                print(f"{where}: {outcome} {'; '.join(loops)}"[:300].replace("\n", " "), flush=True)
    for folder, count in [*counts.items(), ("all", sum(counts.values(), Counter[str]()))]:
        n = count["kernels"]
        counted, other, loops, left = (f"{100 * count[each] / n:.1f} %" for each in ("counted", "other", "loops", "left"))
        rest = f"{loops} keep a loop once sizes are given, {left} once what tensors hold is"
        print(f"{folder}: {n} kernels, {counted} are counted, {other} are for another Triton; {rest}")
    for folder in given.run:
        every, rare = rarely_run(ran, sum(count["kernels"] for count in counts.values()), folder.resolve())
        print(f"{folder}: {every} statements in functions, {rare} of which fewer than one kernel in a hundred runs")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
