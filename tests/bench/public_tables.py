"""How many public tuned tables are advised in full, and why the others are not.

    python tests/bench/public_tables.py [--every N] FOLDER

A table is advised in full where every entry has a latency that measured launches or layers stand behind, where no configuration is passed
over, and where a layer's or linear's whole time stands beside its products. Others are counted by their reason in one line. Prints both,
and exits with 1 where a table has neither.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

import advisor  # noqa: E402
from advisor.learned.base import ANALYTICAL  # noqa: E402
from advisor.result.schema import Result  # noqa: E402
from advisor.system.errors import AdvisorError  # noqa: E402

FULL = "advised in full"


def outcome(path: Path) -> str:
    """`FULL`, or the line that says why not; empty where there is neither."""
    try:
        result = advisor.advise(path)
    except AdvisorError as error:
        return " ".join(str(error).removeprefix(f"{path.name}: ").split())
    return lacking(result) or FULL


def lacking(result: Result) -> str | None:
    """Why a result is not in full, in its own words; None where it is."""
    said = (*result.verdict.notes, *result.verdict.unknowns, *result.warnings)
    if any(launch.predicted is None or launch.predicted.source == ANALYTICAL for launch in result.launches):
        return next((line for line in said if "analytical model alone" in line or "cannot run" in line), "")
    tokens = {launch.problem.sizes["M"] for launch in result.launches}
    alone = all("_down" in result.target for _ in tokens)  # a table of w2 alone has no layer
    if len(result.layers) < len(tokens) and not alone:
        return next((line for line in said if "layer" in line), "")
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1, help="look at each N-th table alone")
    arguments = parser.parse_args()
    found = Counter()
    silent = []
    for path in sorted(arguments.folder.rglob("*.json"))[:: arguments.every]:
        line = outcome(path)
        if not line:
            silent.append(path.name)
        found[re.sub(r"\b[\d,]+(?:\.\d+)?\b", "#", line)] += 1
    total = sum(found.values())
    for line, count in found.most_common():
        print(f"{count:5}  {100 * count / total:5.1f} %  {line or 'no reason'}")
    full = found[FULL]
    rest = f"{total - full - len(silent)} with a reason, {len(silent)} without"
    print(f"{full} of {total} tables advised in full ({100 * full / total:.1f} %), {rest}")
    print(*(f"no reason: {name}" for name in silent[:20]), sep="\n")
    return 1 if silent else 0


if __name__ == "__main__":
    raise SystemExit(main())
