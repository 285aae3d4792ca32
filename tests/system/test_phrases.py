"""Every sentence that users read: short, in the field's own terms, with a subject."""

from __future__ import annotations

import ast
import re
import string
from pathlib import Path

import pytest

from advisor.system.resources import glossary, phrase, phrases

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 20
"""Words of a sentence."""
BANNED = (
    "told",
    "untold",
    "unsaid",
    "asked for",
    "is taken as",
    "are taken as",
    "not known",
    "nothing is said",
    "is said",
    "left alone",
    "for want of",
    "what it is",
    "may be quite another",
    "beside the point",
    "takes another",
    "at the best one's",
    "figures are means over draws",
    "so many times",
    "lies outside",
    "stands for",
    "room for it",
    "a stranger's",
    "uniform routing",
    "looked at",
    "stranger",
    "again and again",
    "lies side by side",
    "give each program less",
    "do the same work",
    "is not known",
    "one program was counted",
    "which bytes",
    "takes the time",
    " hang on",
    " hangs on",
    "grid hang",
)
"""Words of a dialect, and riddles: say it in the terms of GPU programming."""
PACKAGES = sorted(path.name for path in (ROOT / "advisor").iterdir() if (path / "__init__.py").exists() and path.name != "training")
"""All but what only trains: its texts are a log of the fit."""
DATA = re.compile(r"<|\n|^INSERT |problems = \[")
"""In literals that are no sentences: markup, tables and code over several lines, SQL, an example of TOML."""
NO_SUBJECT = re.compile(r"^(is|are|was|were|has|have|said|given|taken|known|told|asked)\b", re.IGNORECASE)


def texts() -> list[tuple[str, str]]:
    """Key and text of every phrase, those for one and for many apart, placeholders replaced by a word."""
    found = []
    for key, value in phrases().items():
        for name, text in value.items() if isinstance(value, dict) else [("", value)]:
            found.append((f"{key} {name}".strip(), re.sub(r"\{\w+\}", "X", text)))
    return found


def sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.:;!?])\s+", text) if part.strip()]


@pytest.mark.parametrize(("key", "text"), texts(), ids=[key for key, _ in texts()])
def test_a_phrase_is_short_plain_and_has_a_subject(key: str, text: str) -> None:
    for sentence in sentences(text):
        assert len(sentence.split()) <= LONGEST, f"{key}: {len(sentence.split())} words: {sentence}"
    assert not [word for word in BANNED if word in text.lower()], key
    for sentence in re.split(r"(?<=[.!?])\s+", text):
        assert not NO_SUBJECT.match(sentence), f"{key}: no subject: {sentence}"


def literals(path: Path) -> list[tuple[int, str]]:
    """Line and text of every literal that may be a sentence; f-strings with a word for each placeholder."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node) if part is not node}
    found = []
    for node in ast.walk(tree):
        if id(node) in docs or id(node) in inner:
            continue
        if isinstance(node, ast.JoinedStr):
            found.append((node.lineno, "".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append((node.lineno, node.value))
    return [(line, text) for line, text in found if len(text.split()) >= 4 and not DATA.search(text)]


@pytest.mark.parametrize("package", PACKAGES)
def test_texts_in_code_are_short_and_plain(package: str) -> None:
    wrong = []
    for path in sorted((ROOT / "advisor" / package).rglob("*.py")):
        for line, text in literals(path):
            where = f"{path.relative_to(ROOT)}:{line}: {text}"
            wrong += [where for sentence in sentences(text) if len(sentence.split()) > LONGEST + 5]
            wrong += [f"{where} [{word}]" for word in BANNED if word in text.lower()]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", sorted((ROOT / "reports").rglob("*.jinja")), ids=lambda path: path.name)
def test_templates_use_no_banned_word(path: Path) -> None:
    text = re.sub(r"{[{%#].*?[}%#]}|<[^>]*>", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL).lower()
    assert not [word for word in BANNED if word in text], path.name


def test_a_planted_riddle_is_found() -> None:
    assert [word for word in BANNED if word in "nothing is said of what tuning could win"]
    assert NO_SUBJECT.match("Is not known here.") and not NO_SUBJECT.match("The grid is missing.")
    assert len(sentences("One. Two: three")) == 3


def test_every_phrase_is_used() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "advisor").rglob("*.py"))
    unused = [key for key in phrases() if not key.startswith("term.") and key not in code and f"{key.split('.')[0]}.{{" not in code]
    assert not unused


def test_a_phrase_takes_its_values_and_refuses_to_go_without() -> None:
    assert phrase("screen.left_out", count=1).startswith("1 more launch has") and phrase("screen.left_out", count=3).startswith("3 more")
    with pytest.raises(KeyError):
        phrase("note.guessed")
    with pytest.raises(KeyError):
        phrase("note.no_such_phrase")
    for value in phrases().values():
        for text in value.values() if isinstance(value, dict) else [value]:
            assert all(name is None or name.isidentifier() for _, name, *_ in string.Formatter().parse(text))


def test_the_glossary_page_holds_every_term() -> None:
    page = (ROOT / "reports/docs/glossary.md").read_text(encoding="utf-8")
    assert [f"| {term} | {meaning} |" for term, meaning in glossary().items() if f"| {term} | {meaning} |" not in page] == []
