"""What the tool answers, written down as it is, and what changed between two such files: the check of a change that is to change nothing.

    python tests/bench/behaviour_baseline.py write OUT.json [--checkout DIR] [--kernels DIR]... [--data DIR] [--corpus DIR] [--at-most N]
    python tests/bench/behaviour_baseline.py compare BEFORE.json AFTER.json [--show N]

`write` runs the public commands of a checkout (`advisor predict` and `rank` on samples of the data, `audit` and `advise` on samples of
the tuned tables), and reads the launches of every kernel file below the folders of `--kernels`: unpacked wheels of kernel libraries, say.
A part whose folder is not given is left out. The data are $ADVISOR_DATA and $ADVISOR_CORPUS unless they are named.
`compare` prints how many answers of each part changed, and the first of each field; it exits with 1 where any did.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import gzip
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

DATA_FILES = {"predict": 30, "rank": 10}
"""Data files that each command is asked of."""
ROWS_OF_A_FILE = {"predict": 100, "rank": 4}
"""Rows of each of them."""
TABLES = 60
"""Tuned tables that are audited."""
ADVISED = 6
"""Tuned tables that advice is asked of."""
SECONDS_OF_A_KERNEL = 30
"""Longest that a kernel is read."""
GPU = "H100"
SIZE = 4096
"""Given for every integer argument, in the second of two readings of a launch."""

PLACES = {
    "read_source": ("python_source.source", "configs.source"),
    "LaunchOptions": ("compiled.launches.launch_options", "compiled.launch_options"),
    "one_launch": ("compiled.launches.launch_options", "compiled.launch_options"),
    "guesses": ("compiled.guesses.inference", "compiled.inference"),
    "rebuild": ("python_source.rebuild", "configs.rebuild"),
    "load_gpu": ("gpus.hardware", "hardware"),
}
"""Where functions were found that no command stands for, the newest place first; a place that is not listed is searched for."""


def located(name: str) -> Any:
    """A function or class of the `advisor` that can be imported, wherever it lies now.

    Raises:
        LookupError: No module defines it.
    """
    import advisor

    for place in PLACES[name]:
        try:
            return getattr(importlib.import_module(f"advisor.{place}"), name)
        except (ImportError, AttributeError):
            continue
    root = Path(str(advisor.__file__)).parent
    near = PLACES[name][0].rpartition(".")[2]
    defining = [path for path in root.rglob("*.py") if re.search(rf"^(def|class) {name}\b", path.read_text(), re.MULTILINE)]
    for path in sorted(defining, key=lambda path: path.stem != near):
        module = ".".join(("advisor", *path.relative_to(root).with_suffix("").parts))
        return getattr(importlib.import_module(module), name)
    raise LookupError(f"{name}: no module of {root} defines it")


def advisor_command(*arguments: str) -> dict[str, Any]:
    """Exit code and output of one command: {"exit": …, "out": …, "err": …}."""
    done = subprocess.run([sys.executable, "-m", "advisor", *arguments], capture_output=True, text=True, check=False)
    return {"exit": done.returncode, "out": done.stdout, "err": done.stderr if done.returncode else ""}


def opened(path: Path) -> Any:
    """A CSV file, packed or not."""
    return gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="")


def spread_out(items: Sequence[Any], count: int) -> list[Any]:
    """At most `count` of the items, evenly spread, the same ones each time."""
    return [items[i * len(items) // count] for i in range(count)] if len(items) > count else list(items)


def data_answers(data: Path) -> dict[str, Any]:
    """Answers of `predict` and `rank` on rows of the data files, by file and row."""
    found: dict[str, Any] = {}
    files = sorted(each for each in data.rglob("*") if each.name.endswith((".csv", ".csv.gz")) and each.stat().st_size < 30_000_000)
    top = [each for each in files if each.parent == data]
    for command, count in DATA_FILES.items():
        for path in [*top, *spread_out([each for each in files if each not in top], count - len(top))]:
            name = f"{command} {path.relative_to(data).as_posix()}"
            with opened(path) as file:
                head, *rows = csv.reader(file)
            with tempfile.TemporaryDirectory() as folder:
                sample, out = Path(folder, path.name.removesuffix(".gz")), Path(folder, "out.csv")
                with sample.open("w", newline="") as file:
                    csv.writer(file).writerows([head, *spread_out(rows, ROWS_OF_A_FILE[command])])
                done = advisor_command(command, str(sample), "-o", str(out))
                lines = list(csv.DictReader(out.read_text().splitlines())) if done["exit"] == 0 else []
            found[name] = {"exit": done["exit"], "err": done["err"].replace(folder, "")}
            found |= {f"{name} {number}": line for number, line in enumerate(lines)}
    return found


def table_answers(corpus: Path) -> dict[str, Any]:
    """Issues of `audit` for a sample of the tuned tables, and the results of `advise` for fewer, by table."""
    tables = sorted(corpus.rglob("*.json"))
    audited = spread_out(tables, TABLES)
    done = advisor_command("audit", *map(str, audited), "--format", "json")
    found: dict[str, Any] = {
        "audit": {"exit": done["exit"], "out": json.loads(done["out"]) if done["out"].startswith("{") else done["err"]}
    }
    for table in spread_out([each for each in tables if each.name.startswith("E=")], ADVISED):
        done = advisor_command("advise", str(table), "--tokens", "1", "64", "2048", "--format", "json")
        result = json.loads(done["out"]) if done["out"].startswith("{") else done["err"]
        found[f"advise {table.relative_to(corpus).as_posix()}"] = {"exit": done["exit"], "out": result}
    return found


def plain(value: Any) -> Any:
    """A value as JSON holds it; what is no number, text or container is its type and what is printed of it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value) if each.repr}
    if isinstance(value, Mapping):
        return {str(key): plain(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


def answer(ask: Callable[[], Any]) -> Any:
    """What is answered, or the error; an error of Python's own is an answer too."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SECONDS_OF_A_KERNEL)
    try:
        return plain(ask())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)


class Kernels:
    """What is read of kernels: their autotune lists and parameters, launches with and without sizes, the first guess, the text."""

    def __init__(self) -> None:
        self.read = located("read_source")
        self.options, self.one_launch, self.guesses = located("LaunchOptions"), located("one_launch"), located("guesses")
        self.rebuild, self.gpu = located("rebuild"), located("load_gpu")(GPU)

    def answers(self, path: Path) -> dict[str, Any]:
        """By kernel and what is asked of it."""
        try:
            source = self.read(path).on(*self.gpu.triton_target[:2])
            names = list(source.definitions)
        except Exception as error:
            return {"": f"{type(error).__name__}: {error}"}
        found: dict[str, Any] = {"kernels": names}
        for name in names:
            function = answer(lambda name=name: source.kernel(name))  # type: ignore[misc]
            kept = ("parameters", "autotune", "heuristics", "unread", "unspecialized", "inductor")
            found[name] = {"function": {k: v for k, v in function.items() if k in kept} if isinstance(function, dict) else function}
            if isinstance(function, str):
                continue
            first = answer(lambda name=name: next(iter(self.guesses(source, source.kernel(name)))))  # type: ignore[misc]
            found[name]["guess"] = first
            found[name]["rebuilt"] = answer(lambda name=name: self._text(source, name))  # type: ignore[misc]
            found[name]["launch"] = answer(lambda name=name: self._launch(source, name, {}))  # type: ignore[misc]
            if isinstance(first, dict):
                sizes = {k: SIZE + i for i, (k, v) in enumerate(sorted(first["signature"].items())) if v == "i32" and "stride" not in k}
                found[name]["sized"] = answer(lambda name=name, sizes=sizes: self._launch(source, name, sizes))  # type: ignore[misc]
        return found

    def _text(self, source: Any, kernel: str) -> str:
        return "\n".join(self.rebuild(source, kernel).modules.values())

    def _launch(self, source: Any, kernel: str, sizes: Mapping[str, int]) -> dict[str, Any]:
        launch = self.one_launch(source, kernel, self.options(arguments=sizes), self.gpu)
        return {each.name: getattr(launch, each.name) for each in dataclasses.fields(launch) if each.name != "source"}


def kernel_files(folder: Path, at_most: int) -> list[Path]:
    """Python files with kernels below a folder, spread evenly where there are more than wanted."""
    found = [path for path in sorted(folder.rglob("*.py")) if path.is_file() and "@triton.jit" in path.read_text(errors="replace")]
    return spread_out(found, at_most)


def collect(arguments: argparse.Namespace) -> None:
    """Write what the `advisor` that can be imported answers."""
    import advisor

    found: dict[str, Any] = {"checkout": str(Path(str(advisor.__file__)).parents[1])}
    reader = Kernels() if arguments.kernels else None
    files: dict[str, Any] = {}
    for folder in arguments.kernels:
        for path in kernel_files(folder, arguments.at_most):
            assert reader is not None
            files |= {f"{path.relative_to(folder).as_posix()}::{name}": each for name, each in reader.answers(path).items()}
    found["kernels"] = files
    if arguments.data is not None:
        found["data"] = data_answers(arguments.data)
    if arguments.corpus is not None:
        found["tables"] = table_answers(arguments.corpus)
    Path(arguments.output).write_text(json.dumps(found, indent=0, sort_keys=True))


def differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every place at which two answers differ: where it is, and what stands there in each."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{path}[{number}]")
    elif before != after:
        yield path, before, after


def compare(before: Mapping[str, Any], after: Mapping[str, Any], show: int) -> int:
    """Print what changed; returns how many answers did."""
    total = 0
    for part in sorted(({*before, *after}) - {"checkout"}):
        old, new = before.get(part), after.get(part)
        if old is None or new is None:
            print(f"{part}: only in {'the second' if old is None else 'the first'}")
            continue
        changed = [(key, list(differences(old.get(key), new.get(key)))) for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
        print(f"{part}: {len(changed)} of {len({*old, *new})} changed")
        fields = Counter(".".join(re.sub(r"\[\d+\]", "", place).split(".")[:3]) for _, all_of in changed for place, _, _ in all_of)
        for field, count in fields.most_common():
            print(f"  {count:6d} {field}")
        for key, all_of in changed[:show]:
            for place, was, now in all_of[:4]:
                print(f"  {key} {place}:\n      {str(was)[:300]}\n      {str(now)[:300]}")
        total += len(changed)
    return total


def main() -> int:
    """Run one of the two modes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    for mode in ("write", "collect"):  # `collect` is `write` within the checkout
        one = modes.add_parser(mode)
        one.add_argument("output", type=Path)
        one.add_argument("--checkout", type=Path, default=Path(__file__).resolve().parents[2])
        one.add_argument("--kernels", type=Path, action="append", default=[])
        one.add_argument("--at-most", type=int, default=200, help="kernel files of each folder")
        one.add_argument("--data", type=Path, default=os.environ.get("ADVISOR_DATA"))
        one.add_argument("--corpus", type=Path, default=os.environ.get("ADVISOR_CORPUS"))
    two = modes.add_parser("compare")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    two.add_argument("--show", type=int, default=20, help="changed answers that are printed")
    arguments = parser.parse_args()
    if arguments.mode == "compare":
        return 1 if compare(json.loads(arguments.before.read_text()), json.loads(arguments.after.read_text()), arguments.show) else 0
    if arguments.mode == "collect":
        collect(arguments)
        return 0
    environment = {**os.environ, "PYTHONPATH": str(arguments.checkout.resolve()), "PYTHONHASHSEED": "0"}
    return subprocess.run([sys.executable, __file__, "collect", *sys.argv[2:]], env=environment, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
