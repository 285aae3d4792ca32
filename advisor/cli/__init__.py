"""The command line: one file per command, each with `add_arguments(parser)` and `run(arguments) -> exit code`."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from advisor import __version__
from advisor.system.errors import AdvisorError, MissingDependencyError, printable, shorten
from advisor.system.settings import read_settings
from advisor.system.writing import remedy_for

COMMANDS = {
    "advise": "how fast a launch could be, what holds it back, what to change",
    "model": "what a whole step of a model takes, and which kernel to work on first",
    "audit": "check tuned tables offline",
    "predict": "predict the latency of every row of a CSV file",
    "rank": "the best configurations of every problem, predicted",
    "train": "fit the learned model to measured launches",
    "evaluate": "errors, coverage, ranking and diagnosis quality on measured rows",
    "calibrate": "correct the weights by rows measured on your own GPU",
    "inspect": "compiled resources and demand per source line of any kernel",
    "record": "run a program and write down every Triton launch",
    "run": "run a program, its kernels tuned by the advisor in place of triton.autotune",
    "measure": "time launches on this machine's GPU",
    "tune": "search for better configurations, on a GPU or in recorded rows",
    "compare": "two results or revisions: verdicts, a pull-request comment, an exit code",
    "cache": "the tuning cache of @advisor.autotune",
    "gpus": "what GPUs are known, and their figures",
    "models": "what models are known, and the sizes of their experts",
    "rules": "what the diagnosis looks for",
    "explain": "what a rule or a term means",
    "schema": "the JSON Schema of result.json",
    "doctor": "what this machine has: Triton, the cache, the sandbox that compiles untrusted kernels",
}
"""Commands in the order in which help lists them, each with a line of help: the list imports none of their modules."""

PACKAGES = {
    "numpy": "numpy",
    "triton": "triton",
    "optuna": "optuna",
    "jinja2": "jinja2",
    "rich": "rich",
    "torch": "torch",
    "sklearn": "scikit-learn",
    "lightgbm": "lightgbm",
    "pyarrow": "pyarrow",
}
"""What pip calls the packages that are imported, by their modules' names."""
PLACES = {"DIR": "a folder"} | dict.fromkeys(("FILE", "OUT.csv", "ROWS.csv", "LAUNCHES.jsonl", "WEIGHTS"), "a file")
"""What options take whose values are names of files and folders, as help calls it."""
INTERRUPTED = 130
INTERNAL_FAILURE = 3


SAME = (
    ("--tokens", "--batch", "--decode", "--batch-size", "--num-tokens", "--concurrency"),
    ("--context", "--contexts", "--context-length", "--seq-len", "--kv-len", "--max-model-len"),
    ("--prefill", "--prompt", "--input-len", "--isl", "--tokens"),
    ("--tp", "--tensor-parallel", "--tensor-parallel-size", "--tp-size"),
    ("--ep", "--expert-parallel", "--enable-expert-parallel", "--ep-size"),
    ("--stack", "--engine", "--backend", "--framework"),
    ("--gpu", "--device", "--target", "--arch"),
    ("--dtype", "--quantization", "--precision", "--element"),
    ("--output", "--out", "--export", "--report"),
    ("--sizes", "--shape", "--shapes", "--arg", "--args"),
    ("--cache", "--cold", "--warm"),
)
"""Options of one meaning, as commands and serving stacks call it: what a command does not know is answered with its own."""


class _Parser(argparse.ArgumentParser):
    """Usage errors in one line, like every other error, and exit code 2; options are written out, so that a misspelt one is none."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **more})

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Refuses what it does not know here, where its command is known, and names the nearest option."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [item.split("=")[0] for item in unknown if item.startswith("-")]
            known = self._option_string_actions
            meant = [name for option in options for names in SAME if option in names for name in names if name in known]
            close = list(dict.fromkeys(meant or (near for option in options for near in difflib.get_close_matches(option, known, n=1))))
            self.error(f"unrecognized arguments: {' '.join(unknown)}" + (f"; did you mean {', '.join(close)}?" if close else ""))
        self._refuse_empty_places(parsed)
        return parsed, unknown

    def _refuse_empty_places(self, parsed: argparse.Namespace) -> None:
        """An empty name of a file or folder is none: as a path it would be the current folder, as an option one that was left out."""
        for action in self._actions:
            value = getattr(parsed, action.dest, None)
            if action.option_strings and action.metavar in PLACES and "" in (value if isinstance(value, list) else [value]):
                name = "/".join(action.option_strings)
                remedy = "?" if action.required else "? leave the option out"
                self.error(f"argument {name}: must name {PLACES[action.metavar]} (got ''); is a variable unset{remedy}")

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())}; see `{self.prog} --help`\n")


def _formatter() -> type[argparse.HelpFormatter]:
    """With colours where rich-argparse is installed, on which nothing but help depends."""
    try:
        from rich_argparse import RawDescriptionRichHelpFormatter
    except ModuleNotFoundError:
        return argparse.RawDescriptionHelpFormatter

    # Brackets in our texts are brackets, not markup.
    RawDescriptionRichHelpFormatter.text_markup = False
    RawDescriptionRichHelpFormatter.help_markup = False
    return RawDescriptionRichHelpFormatter


def _module(command: str) -> Any:
    return import_module(f"advisor.cli.{command}_command")


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The list of commands; with `only`, that command with its arguments. No other command's module is imported."""
    needs_help = only is None
    formatter = _formatter() if needs_help or "--help" in sys.argv or "-h" in sys.argv else argparse.HelpFormatter
    parser = _Parser(
        prog="advisor",
        description="How fast a Triton kernel can be, how far away it is, why, and what to change.",
        formatter_class=formatter,
    )
    parser.add_argument("--version", action="version", version=f"triton-advisor {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for name in COMMANDS:
        if only in (None, name):
            module = _module(name) if only else None
            sub = commands.add_parser(name, help=COMMANDS[name], description=module.__doc__ if module else None, formatter_class=formatter)
            if module is not None:
                module.add_arguments(sub)
                sub.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code is one of those of `reports/docs/reference.md`."""
    _open_streams()
    _replace_unencodable()
    _be_plain_on_an_unnamed_terminal()
    try:
        if argv is None and sys.argv[1:2] == ["complete"] and "COMP_LINE" in os.environ:
            print("\n".join(completions(os.environ["COMP_LINE"][: int(os.environ.get("COMP_POINT", "100000"))])))
            return 0
        return _run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt as stop:
        return _fail(str(stop) or "interrupted", INTERRUPTED)
    except ModuleNotFoundError as error:
        package = PACKAGES.get((error.name or "").partition(".")[0])
        if package is None or read_settings().debug:
            raise
        missing = MissingDependencyError(
            "a package that this needs is not installed", f"no module {error.name}", package, f"pip install {package}"
        )
        return _fail(str(missing), missing.exit_code)


def _run(arguments: list[str]) -> int:
    only = arguments[0] if arguments and arguments[0] in COMMANDS else None
    if arguments and not only and not arguments[0].startswith("-"):
        close = difflib.get_close_matches(arguments[0], COMMANDS, n=1)
        near = f"did you mean {close[0]}?" if close else f"it is one of {', '.join(COMMANDS)}"
        return _fail(f"no command {printable(arguments[0])!r}; {near}; see `advisor --help`", 2)
    parser = build_parser(only)
    try:
        parsed = parser.parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    if parsed.command is None:
        parser.print_help()
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper) and (parsed.command == "schema" or getattr(parsed, "format", None) in ("json", "sarif")):
        sys.stdout.reconfigure(encoding="utf-8")  # which JSON is, whatever the terminal takes
    try:
        code = int(parsed.run(parsed))
        sys.stdout.flush()
        return code
    except AdvisorError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader went away (`advisor … | head`): nothing more to say, and nothing to flush at exit.
        _silence_stdout()
        return 0
    except OSError as error:
        if read_settings().debug:
            raise
        where = _place(error)
        _silence_stdout()
        remedy = remedy_for(error, "see to it, then run it again")
        return _fail(f"{where}: cannot be read or written ({error.strerror or error}); {remedy}", INTERNAL_FAILURE)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in PACKAGES:
            raise
        if read_settings().debug:
            raise
        where = type(error).__name__
        return _fail(f"internal failure ({where}: {error}); set ADVISOR_DEBUG=1 for the traceback, and please report it", INTERNAL_FAILURE)


def _open_streams() -> None:
    """Streams that the caller closed (`advisor … >&-`) swallow what is written to them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open as long as the process


def _replace_unencodable() -> None:
    """Characters that a stream's encoding does not have (µ in ASCII, ≤ in Latin-1) become a question mark: no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _be_plain_on_an_unnamed_terminal() -> None:
    """A terminal that TERM does not name may know no escapes; rich takes it for one that does, unless told, or colours are forced."""
    if os.name == "posix" and not os.environ.get("TERM") and not os.environ.get("FORCE_COLOR"):
        os.environ["TERM"] = "dumb"


def _place(error: OSError) -> str:
    """The file that could not be read or written; a failed write to something open does not say, but files that were asked for name
    themselves (`advisor.system.writing`)."""
    if isinstance(error.filename, (str, bytes)):
        return shorten(os.fsdecode(error.filename))
    return f"standard output, or a temporary file in {tempfile.gettempdir()}"


def _silence_stdout() -> None:
    """Point standard output nowhere, so that the interpreter's own flush at exit cannot fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> int:
    print(f"advisor: error: {printable(' '.join(message.split()))}", file=sys.stderr)
    return code


NAMED_VALUES = {"--gpu": "gpus", "--model": "models", "--stack": "stacks"}
"""Options whose values have names."""


def completions(line: str) -> list[str]:
    """What the last word of a command line may become: the shell completes with it, without a package of its own.

    `complete -o default -C 'advisor complete' advisor` (zsh: after `bashcompinit`) has the shell run that command with the line in
    COMP_LINE and take what it prints for the candidates (bash's manual, "Programmable Completion"); where nothing is printed it completes
    file names.
    """
    words = line.split()
    last = "" if line[-1:].isspace() else words.pop() if words else ""
    if len(words) <= 1:
        return _starting(COMMANDS, last)
    command, before = words[1], words[-1]
    if command not in COMMANDS:
        return []
    parser = build_parser(command)
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    known = commands.choices[command]._option_string_actions
    if last.startswith("-"):
        return _starting(known, last)
    if before in NAMED_VALUES:
        return _starting(_names(NAMED_VALUES[before]), last)
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
    if what == "stacks":
        return ("vllm", "sglang")
    from advisor.system.resources import folder

    return ("fused_moe", *(file.stem for file in folder("triton_kernels").glob("*.py")))


def _starting(names: Iterable[str], start: str) -> list[str]:
    return sorted({name for name in names if name.lower().startswith(start.lower())})
