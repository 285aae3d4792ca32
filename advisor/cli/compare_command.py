"""Compare two sides, and say what the change does to speed: did it help?

BASE and HEAD are two results (result.json), two files of measured rows, two versions of a tuned table, two Python files with kernels,
two folders, or two git revisions of the repository at hand, also as BASE..HEAD, and as BASE...HEAD, which is --merge-base BASE HEAD.
A revision alone is compared with HEAD. Revisions are read from git's object store: nothing is checked out, imported or run.

examples:
  advisor compare main HEAD
  advisor compare --merge-base origin/main --gpu H100 --gpu H200 --output advisor-compare
  advisor compare before/result.json after/result.json --fail-on regressed,predicted-regressed
  advisor compare --baseline .advisor/baselines rows.csv
  advisor compare --render advisor-compare/comparison.json --format md

The exit code is 0 where the gate passes, 1 where it fails, 4 where nothing can be compared, 5 where no kernel and no table changed.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli import options
from advisor.system.errors import InputError, UsageError, printable

if TYPE_CHECKING:
    from advisor.comparison import Options
    from advisor.learned.base import Predictor
    from advisor.result.comparison_schema import ComparisonResult

HELP = "two results or revisions: verdicts, a pull-request comment, an exit code"

FORMATS = ("text", "md", "json", "sarif")
NOT_COMPARABLE = 4
NOTHING_CHANGED = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor compare`."""
    parser.add_argument("sides", nargs="*", metavar="BASE HEAD", help="two files, two folders or two git revisions (HEAD: HEAD)")
    parser.add_argument("--merge-base", metavar="REF", help="compare HEAD with the commit it has in common with REF")
    parser.add_argument("--baseline", metavar="DIR", help="compare one result or rows file with the one stored for its GPU and Triton")
    parser.add_argument("--update", action="store_true", help="store HEAD as the new baseline (only with --baseline)")
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        action="append",
        default=[],
        help="GPU to predict kernels and two tables for (tables in folders and revisions are for that of their name); "
        "repeat it, or separate with commas",
    )
    parser.add_argument(
        "--fail-on",
        type=options.gate_conditions,
        metavar="LIST",
        help="what makes the exit code 1: regressed, inconclusive, failed, cannot-launch, spills, predicted-regressed, ceiling<70, or none "
        "(default: regressed,failed,cannot-launch)",
    )
    parser.add_argument(
        "--launches",
        metavar="FILE",
        action="append",
        default=[],
        help="a record of `advisor record`: changed kernels are compared on what they were launched with",
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="what to print")
    parser.add_argument("-o", "--output", metavar="DIR", help="also write comment.md, summary.md, comparison.html, .json and .sarif there")
    parser.add_argument("--render", metavar="FILE", help="show a comparison.json that was written before, and compare nothing")
    parser.add_argument("--no-compile", action="store_true", help="leave compiled resources out")
    parser.add_argument("--repository", metavar="DIR", default=".", help="where the git repository lies (default: here)")
    parser.add_argument("--weights", metavar="FILE", help="weights that `advisor train` wrote (default: those shipped)")
    options.add_model_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare, write, print; 1 where the gate failed."""
    result = _render(arguments) if arguments.render else _compare(arguments)
    for warning in result.warnings:
        options.warn(warning)
    if arguments.output:
        _write(result, Path(arguments.output))
    _print(result, arguments.format)
    return exit_code(result)


def exit_code(result: ComparisonResult) -> int:
    """The exit code that goes with a comparison; every surface's words come from the same gate."""
    from advisor.comparison.gate import comparable

    if result.gate.failed:
        # It has names of files in it: on a runner, a line that begins with :: is a command.
        print(f"advisor: gate failed: {printable(result.gate.sentence)}", file=sys.stderr)
        return 1
    if not result.subjects:
        uncommitted = " between these commits; what is not committed is not compared" if result.head.revision else ""
        print(f"advisor: no kernel and no table changed{uncommitted}", file=sys.stderr)
        return NOTHING_CHANGED
    if not comparable(result.subjects):
        print("advisor: not comparable", file=sys.stderr)
        return NOT_COMPARABLE
    measured = set(result.measured_counts)
    return NOT_COMPARABLE if measured == {"not comparable"} else 0


def _render(arguments: argparse.Namespace) -> ComparisonResult:
    from advisor.comparison.of_files import OF_MODEL
    from advisor.result.comparison_json import comparison_from_json

    if arguments.sides or arguments.baseline or arguments.merge_base:
        raise UsageError("--render compares nothing: give it no sides", " ".join(arguments.sides) or None)
    unused = ("gpu", "fail_on", "launches", "update", "no_compile", "weights", *OF_MODEL)
    given = [f"--{name.replace('_', '-')}" for name in unused if getattr(arguments, name)]
    if given:
        raise UsageError(
            "--render shows what was compared, and what its gate said",
            ", ".join(given),
            None,
            "leave it out, or compare the two sides with it",
        )
    path = options.existing_file(arguments.render)
    return comparison_from_json(path.read_bytes(), name=path.name)


def _compare(arguments: argparse.Namespace) -> ComparisonResult:
    from advisor.advising.targets import Request
    from advisor.comparison import Options
    from advisor.learned import load_predictor

    predictor = load_predictor(Path(arguments.weights) if arguments.weights else None)
    wanted = Options(
        gpus=tuple(options.gpu_names(arguments.gpu)),
        fail_on=arguments.fail_on,
        compiling=not arguments.no_compile,
        launches=tuple(options.existing_file(name) for name in arguments.launches),
        command=shlex.join(["advisor", *sys.argv[1:]]),
        request=Request(
            model=arguments.model,
            hidden_size=arguments.hidden_size,
            top_k=arguments.top_k,
            tensor_parallel=arguments.tensor_parallel,
            expert_parallel=arguments.expert_parallel,
            assume=True,
        ),
    )
    if arguments.update and not arguments.baseline:
        raise UsageError("--update stores a baseline", None, "--baseline DIR", "say where with --baseline DIR")
    if arguments.baseline:
        return _baseline(arguments, wanted, predictor)
    _take_range(arguments)
    return _two_sides(arguments, wanted, predictor)


def _take_range(arguments: argparse.Namespace) -> None:
    """Read a side that is a range of revisions as `git diff` does: BASE..HEAD as the two, BASE...HEAD with their merge base; HEAD
    stands for one that is left out. No revision has two dots in its name."""
    name = arguments.sides[0] if len(arguments.sides) == 1 else ""
    if ".." not in name or "../" in name or "/.." in name or arguments.merge_base is not None or Path(name).exists():
        return  # no range, or the path of a file that is not there
    base, dots, head = name.partition("..." if "..." in name else "..")
    arguments.sides = [base or "HEAD", head or "HEAD"]
    if dots == "...":
        arguments.merge_base = arguments.sides.pop(0)


def _two_sides(arguments: argparse.Namespace, wanted: Options, predictor: Predictor) -> ComparisonResult:
    from advisor.comparison import compare_files, compare_trees
    from advisor.comparison.of_files import folder_settings
    from advisor.comparison.trees.trees import FolderTree

    sides = list(arguments.sides)
    if arguments.merge_base is None:
        if len(sides) not in (1, 2):
            raise UsageError("compare needs two sides", " ".join(sides) or None, "BASE HEAD", "see `advisor compare --help`")
        paths = [Path(side) for side in sides]
        if len(paths) == 2 and all(path.is_dir() for path in paths):
            base, head = (FolderTree(folder=path, label=side) for path, side in zip(paths, sides, strict=True))
            return compare_trees(base, head, wanted, predictor)
        if len(paths) == 2 and all(path.is_file() for path in paths):
            return compare_files(paths[0], paths[1], wanted, predictor, folder_settings(Path()))
        if len(paths) == 2 and all(path.exists() for path in paths):
            raise InputError("the two sides are not of a kind", " and ".join(sides), "two files or two folders")
    elif len(sides) > 1:
        raise UsageError("--merge-base takes one side", " ".join(sides), "HEAD (default: HEAD)")
    return _revisions(arguments, sides, wanted, predictor)


def _revisions(arguments: argparse.Namespace, sides: list[str], wanted: Options, predictor: Predictor) -> ComparisonResult:
    from advisor.comparison import compare_trees
    from advisor.comparison.trees import git
    from advisor.comparison.trees.trees import RevisionTree

    folder = git.repository(Path(arguments.repository))
    if folder is None and sides and all(Path(side).exists() for side in sides):
        raise _one_path(sides[0], sides)
    if folder is None:
        missing = next((side for side in sides if not Path(side).exists()), arguments.repository)
        raise InputError(
            f"{missing}: no such file, and {arguments.repository} is no git repository whose revision it could be",
            remedy="check the path, or name the repository with --repository DIR",
        )
    head_name = (sides[0] if sides else "HEAD") if arguments.merge_base else (sides[1] if len(sides) == 2 else "HEAD")
    base_name = arguments.merge_base or sides[0]
    found = {name: git.commit(folder, name) for name in (base_name, head_name)}
    lost = [name for name, commit in found.items() if commit is None]
    for name in lost:
        if not Path(name).exists():
            raise _lost(folder, name)
    if lost:
        raise _one_path(lost[0], sides)
    commits = [found[base_name] or "", found[head_name] or ""]
    base, label = commits[0], base_name
    if arguments.merge_base:
        base, label = git.merge_base(folder, commits[0], commits[1]), f"merge base with {base_name}"
    trees = [RevisionTree(folder=folder, label=name, revision=commit) for name, commit in ((label, base), (head_name, commits[1]))]
    return compare_trees(trees[0], trees[1], wanted, predictor)


def _lost(folder: Path, name: str) -> InputError:
    """That a name is no revision that is here; of a clone without all of its history, how it gets here."""
    from advisor.comparison.trees import git

    what = f"{name}: neither a path nor a revision of this repository"
    if not git.is_shallow(folder):
        return InputError(what, remedy="check the spelling, or fetch it")
    return InputError(
        what,
        "a shallow clone, which lacks a part of the history",
        "a clone that has both commits",
        "run `git fetch --unshallow origin`, or clone all of it (actions/checkout: fetch-depth: 0)",
    )


def _one_path(name: str, sides: list[str]) -> UsageError:
    """That a path has nothing of its kind beside it."""
    return UsageError(
        f"{name} is a path, and is compared with another one",
        " ".join(sides),
        "two files, two folders or two revisions",
        "name the other side, or where its baseline lies with --baseline DIR",
    )


def _baseline(arguments: argparse.Namespace, wanted: Options, predictor: Predictor) -> ComparisonResult:
    """HEAD against what is stored for its GPU and Triton version; stored only where that is asked for."""
    from advisor.comparison import compare_files, new_result
    from advisor.comparison.of_files import missing_baseline, refuse_unused
    from advisor.comparison.trees import baselines
    from advisor.measurement.rows import read_measured
    from advisor.result.result_json import from_json

    if arguments.merge_base:
        raise UsageError("--baseline names the other side, and so does --merge-base", arguments.merge_base, None, "leave one of them out")
    if len(arguments.sides) != 1:
        raise UsageError("--baseline takes one side", " ".join(arguments.sides) or None, "one result.json or ROWS.csv")
    head = options.existing_file(arguments.sides[0])
    rows = head.name.endswith(".csv")
    refuse_unused(wanted, "rows" if rows else "result")
    if rows:
        place = baselines.of_rows(Path(arguments.baseline), list(read_measured(head)), head.name)
    else:
        result = from_json(head.read_bytes(), name=head.name)
        place = baselines.of_result(Path(arguments.baseline), result)
    if place.is_file():
        found = compare_files(place, head, wanted, predictor)
    elif rows:
        found = missing_baseline(head, str(place), wanted, predictor)
    else:
        found = new_result(result, wanted, predictor, str(place))
    if not place.is_file() and not arguments.update:
        options.warn(f"no baseline at {place}: everything is new; --update stores this one")
    if arguments.update:
        options.write_text(place, head.read_text(encoding="utf-8"), "name another folder with --baseline")
        print(f"advisor: stored as baseline {place}", file=sys.stderr)
    return found


def _write(result: ComparisonResult, folder: Path) -> None:
    from advisor.rendering.comparison_markdown import to_comment, to_summary
    from advisor.rendering.comparison_page import to_page
    from advisor.rendering.comparison_sarif import to_sarif
    from advisor.result.comparison_json import comparison_to_json

    options.write_text(folder / "comparison.json", comparison_to_json(result))
    options.write_text(folder / "comment.md", to_comment(result))
    options.write_text(folder / "summary.md", to_summary(result))
    options.write_text(folder / "comparison.html", to_page(result))
    options.write_text(folder / "comparison.sarif", to_sarif(result))
    print(f"advisor: wrote {folder}/comment.md, summary.md, comparison.html, .json and .sarif", file=sys.stderr)


def _print(result: ComparisonResult, style: str) -> None:
    if style == "json":
        from advisor.result.comparison_json import comparison_to_json

        sys.stdout.write(comparison_to_json(result))
    elif style == "md":
        from advisor.rendering.comparison_markdown import to_comment

        print(to_comment(result))
    elif style == "sarif":
        from advisor.rendering.comparison_sarif import to_sarif

        sys.stdout.write(to_sarif(result))
    else:
        from advisor.rendering.comparison_text import to_text

        sys.stdout.write(to_text(result))
