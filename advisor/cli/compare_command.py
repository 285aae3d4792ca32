"""Compare two sides, and say what the change does to speed: did it help?

BASE and HEAD are two results (result.json), two files of measured rows, two versions of a tuned table, two Python files with kernels,
two folders, or two git revisions of the repository at hand, also as BASE..HEAD, and as BASE...HEAD, which is --merge-base BASE HEAD.
A revision alone is compared with HEAD. Revisions are read from git's object store: nothing is checked out, imported or run.
Kernels and tables of both sides are predicted with a warm L2, as in a benchmark loop; a result.json keeps the --cache it was made with.

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
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli import options
from advisor.system.errors import UsageError, printable
from advisor.system.reading import read_bytes

if TYPE_CHECKING:
    from advisor.comparison import Options
    from advisor.learned.base import Predictor
    from advisor.result.comparison_schema import ComparisonResult

FORMATS = ("text", "md", "json", "sarif", "github")
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
    parser.add_argument(
        "--settings", metavar="FILE", help="an advisor.toml of your own, which counts in place of the base's: sizes to judge kernels at"
    )
    parser.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an argument or constant of changed kernels, or a name of the function that launches them, before advisor.toml's",
    )
    parser.add_argument(
        "--signature",
        action="append",
        default=[],
        metavar="NAME=TYPE",
        help="the type of a tensor of changed kernels: 'x_ptr=*fp16,w_ptr=*i8'",
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="what to print (github: annotations for a workflow)")
    parser.add_argument("-o", "--output", metavar="DIR", help="also write comment.md, summary.md, comparison.html, .json and .sarif there")
    parser.add_argument("--render", metavar="FILE", help="show a comparison.json that was written before, and compare nothing")
    parser.add_argument("--no-compile", action="store_true", help="leave compiled resources out")
    sandbox = parser.add_mutually_exclusive_group()
    sandbox.add_argument(
        "--require-sandbox",
        action="store_true",
        help="exit with 4 where this machine has no sandbox to compile untrusted kernels in (`advisor doctor`)",
    )
    sandbox.add_argument("--trust-source", action="store_true", help="compile revisions without a sandbox too")
    parser.add_argument(
        "--compile-limit",
        metavar="S[,ALL]",
        help="seconds of one compilation, and of all together with what is predicted of tables (default: 60 of one)",
    )
    parser.add_argument("--repository", metavar="DIR", default=".", help="where the git repository lies (default: here)")
    parser.add_argument("--weights", metavar="FILE", help="weights that `advisor train` wrote (default: those shipped)")
    options.add_options(parser, *options.MODEL)


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

    from advisor.comparison.sides import OF_MODEL
    from advisor.result.comparison_schema import LARGEST_BYTES, comparison_from_json

    if arguments.sides or arguments.baseline or arguments.merge_base:
        raise UsageError("--render compares nothing: give it no sides", " ".join(arguments.sides) or None)
    unused = (
        "gpu",
        "fail_on",
        "launches",
        "settings",
        "arg",
        "update",
        "no_compile",
        "require_sandbox",
        "trust_source",
        "weights",
        *OF_MODEL,
    )
    given = [f"--{name.replace('_', '-')}" for name in unused if getattr(arguments, name)]
    if given:
        raise UsageError(
            "--render shows what was compared, and what its gate said",
            ", ".join(given),
            None,
            "leave it out, or compare the two sides with it",
        )
    path = options.existing_file(arguments.render)
    return comparison_from_json(read_bytes(path, path.name, "a comparison.json", LARGEST_BYTES), name=path.name)


def _compare(arguments: argparse.Namespace) -> ComparisonResult:
    from advisor.comparison.trees.git import refuse_unknown
    from advisor.compiled.launches import written_values

    types = written_values.assignments(arguments.signature, "--signature")
    args = written_values.numbers(arguments.arg, "--arg")  # first: one that lacks its value takes the word behind it, a side
    args |= {name: written_values.type_name(f"*{str(kind).lstrip('*')}") for name, kind in types.items()}
    unknown = [side for side in arguments.sides if not Path(side).exists() and ".." not in side]
    if unknown and not arguments.baseline and not arguments.merge_base:
        refuse_unknown(unknown, Path(arguments.repository))  # before the packages that compare are loaded
    from advisor.advising.targets import Request
    from advisor.comparison import Options
    from advisor.comparison.sides import compare_sides, in_a_room
    from advisor.learned import load_predictor

    predictor = load_predictor(Path(arguments.weights) if arguments.weights else None)
    options.limit_compilations(arguments)
    wanted = Options(
        gpus=tuple(options.gpu_names(arguments.gpu)),
        fail_on=arguments.fail_on,
        compiling=not arguments.no_compile,
        launches=tuple(options.existing_file(name) for name in arguments.launches),
        settings=options.existing_file(arguments.settings) if arguments.settings else None,
        args=args,
        command=_command(sys.argv[1:]),
        weights=arguments.weights,
        processes=True,
        request=Request(
            model=arguments.model,
            hidden_size=arguments.hidden_size,
            top_k=arguments.top_k,
            tensor_parallel=arguments.tensor_parallel,
            expert_parallel=arguments.expert_parallel,
            assume=True,
            distribution="random",
        ),
    )
    if arguments.update and not arguments.baseline:
        raise UsageError("--update stores a baseline", None, "--baseline DIR", "say where with --baseline DIR")
    if arguments.baseline:
        return _baseline(arguments, wanted, predictor)
    wanted, warning = in_a_room(
        wanted, arguments.sides, merge_base=arguments.merge_base, trusted=arguments.trust_source, required=arguments.require_sandbox
    )
    if warning:
        options.warn(warning)
    return compare_sides(arguments.sides, wanted, predictor, merge_base=arguments.merge_base, repository=Path(arguments.repository))


def _command(given: Sequence[str]) -> str:
    """The command that compares the same again, without where it writes: two runs of it give one comment."""
    writing = argparse.ArgumentParser(add_help=False)
    writing.add_argument("-o", "--output")
    return shlex.join(["advisor", *writing.parse_known_args(given)[1]])


def _baseline(arguments: argparse.Namespace, wanted: Options, predictor: Predictor) -> ComparisonResult:
    """HEAD against what is stored for its GPU and Triton version; stored only where that is asked for."""
    from advisor.comparison import compare_files, new_result
    from advisor.comparison.sides import missing_baseline, refuse_unused
    from advisor.comparison.trees.git import of_result, of_rows
    from advisor.measurement.measured_rows import read_measured
    from advisor.result.comparison_schema import LARGEST_BYTES
    from advisor.result.result_json import from_json

    if arguments.merge_base:
        raise UsageError("--baseline names the other side, and so does --merge-base", arguments.merge_base, None, "leave one of them out")
    if len(arguments.sides) != 1:
        raise UsageError("--baseline takes one side", " ".join(arguments.sides) or None, "one result.json or ROWS.csv")
    head = options.existing_file(arguments.sides[0])
    rows = head.name.endswith(".csv")
    refuse_unused(wanted, "rows" if rows else "result")
    if rows:
        place = of_rows(Path(arguments.baseline), list(read_measured(head)), head.name)
    else:
        result = from_json(read_bytes(head, head.name, "a result.json", LARGEST_BYTES), name=head.name)
        place = of_result(Path(arguments.baseline), result)
    if place.is_file():
        comparison = compare_files(place, head, wanted, predictor)
    elif rows:
        comparison = missing_baseline(head, str(place), wanted, predictor)
    else:
        comparison = new_result(result, wanted, predictor, str(place))
    if not place.is_file() and not arguments.update:
        options.warn(f"no baseline at {place}: everything is new; --update stores this one")
    if arguments.update:
        options.write_text(place, head.read_text(encoding="utf-8"), "name another folder with --baseline")
        print(f"advisor: stored as baseline {place}", file=sys.stderr)
    return comparison


def _write(result: ComparisonResult, folder: Path) -> None:
    from advisor.rendering.comparison_files import to_comment, to_page, to_sarif, to_summary
    from advisor.result.comparison_schema import comparison_to_json

    options.write_text(folder / "comparison.json", comparison_to_json(result))
    options.write_text(folder / "comment.md", to_comment(result))
    options.write_text(folder / "summary.md", to_summary(result))
    options.write_text(folder / "comparison.html", to_page(result))
    options.write_text(folder / "comparison.sarif", to_sarif(result))
    print(f"advisor: wrote {folder}/comment.md, summary.md, comparison.html, .json and .sarif", file=sys.stderr)


def _print(result: ComparisonResult, style: str) -> None:
    from advisor.rendering.comparison_files import to_annotations, to_comment, to_sarif, to_text
    from advisor.result.comparison_schema import comparison_to_json

    if style == "json":
        sys.stdout.write(comparison_to_json(result))
    elif style == "md":
        print(to_comment(result))
    elif style == "sarif":
        sys.stdout.write(to_sarif(result))
    elif style == "github":
        sys.stdout.write(to_annotations(result))
    else:
        sys.stdout.write(to_text(result))
