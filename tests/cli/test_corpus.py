"""Every table in production gets a report, or one line that says why not."""

from __future__ import annotations

from pathlib import Path

from advisor.advising.public import report_on_launches
from advisor.advising.targets import Request
from advisor.advising.targets.resolve import tables_in
from advisor.advising.targets.table_targets import table_target
from advisor.cli import main
from advisor.cli.advise_reports import write
from advisor.learned import load_predictor
from advisor.system.errors import AdvisorError
from advisor.tables.names import is_table_name, parse_table_name


def test_every_table_is_read_or_refused_with_a_reason(corpus_dir):
    read, reasons = 0, {}
    for path in tables_in(corpus_dir):
        try:
            read += bool(table_target(path, Request(assume=True)).launches)
        except AdvisorError as error:
            reasons[path.name] = str(error)
    assert read >= 630
    assert all(reason and "\n" not in reason for reason in reasons.values())
    unknown_gpu = [name for name, reason in reasons.items() if "not described" in reason]
    assert len(unknown_gpu) < 60


def one_of_each_kind(corpus_dir: Path) -> list[Path]:
    """Tables of every stack, kernel and operand type that the corpus has, and of every kernel and device."""
    seen: set[tuple[object, ...]] = set()
    paths = []
    for path in tables_in(corpus_dir):
        if is_table_name(path):
            name = parse_table_name(path)
            kinds = {(name.stack, name.kind, name.dtype), (name.kind, name.device_name)}
            paths += [path] if kinds - seen else []
            seen |= kinds
    return paths


def test_a_table_of_each_kind_gets_a_report(corpus_dir, tmp_path):
    """A small and a large token count in turn; all tables, with all their entries, take a quarter of an hour."""
    predictor = load_predictor()
    reported = 0
    for number, path in enumerate(one_of_each_kind(corpus_dir)):
        try:
            target = table_target(path, Request(assume=True, tokens=(2048,) if number % 2 else (1,)))
        except AdvisorError:
            continue
        if not target.launches:  # a null entry: another kernel runs there
            continue
        result = report_on_launches(target, predictor, None, command="")
        assert result.verdict.bound_us <= result.verdict.ceiling_us * (1 + 1e-9)
        reported += 1
        if number % 20 == 0:
            write(result, tmp_path / str(number))
    assert reported >= 45


def test_the_audit_does_the_whole_corpus(corpus_dir, capsys):
    """All of it without predictions, which a table of each kind has."""
    assert main(["audit", "--no-regret", str(corpus_dir)]) == 0
    assert f"{len(list(corpus_dir.rglob('*.json')))} files" in capsys.readouterr().out
    paths = one_of_each_kind(corpus_dir)
    assert main(["audit", *map(str, paths)]) == 0
    assert f"{len(paths)} files" in capsys.readouterr().out
