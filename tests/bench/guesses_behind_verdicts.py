"""Which verdicts of time, in comparisons that were made of public commits, have a guess behind them and are no identity of code.

    advisor compare SHA~1 SHA --gpu H100 --repository CLONE -o OUT/COMMIT    # for each commit
    python tests/bench/guesses_behind_verdicts.py OUT/*/comparison.json

A verdict of a difference must have none: its row's label would say "(guessed)", or its grid "not known". The same code, launched alike,
takes as long whatever is guessed. Prints each that does not hold, and how many verdicts there are; exit code 1 where one does not hold.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from advisor.comparison.kernels.time_verdict import TIME_VERDICTS  # noqa: E402

GUESSES = ("guessed", "unknown")


def verdicts(comparison: dict[str, Any]) -> Iterator[tuple[str, float, bool]]:
    """Each verdict of time: of which kernel on which GPU, the change, and whether a guess is behind it."""
    for subject in comparison["subjects"]:
        compiled = {gpu: row["label"] for row in subject["resources"] for gpu in row["gpu"].split(", ")}
        for row in subject["static"]:
            if row["verdict"] in TIME_VERDICTS:
                said = f"{compiled.get(row['gpu'], '')} {row['label']}"
                yield f"{subject['title']} on {row['gpu']}", row["change"] or 0.0, any(word in said for word in GUESSES)


def main(paths: list[str]) -> int:
    """Runs it; returns an exit code."""
    found = [(path, *each) for path in paths for each in verdicts(json.loads(Path(path).read_text()))]
    wrong = [each for each in found if each[3] and abs(each[2]) > 1e-9]
    for path, name, change, _ in wrong:
        print(f"{path}: {name}: {100 * change:+.1f} % with a guess behind it")
    print(
        f"{len(found)} verdicts of time, {sum(each[3] for each in found)} where something is guessed, {len(wrong)} of them of a difference"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
