"""What is rebuilt of a file reads as the tree that was checked, whatever its defaults, strings, encodings and ends of lines are."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.python_source import syntax
from advisor.python_source.language import LanguageError, check_module
from advisor.python_source.rebuild import rebuild
from advisor.python_source.source import parse_source, read_source
from advisor.system.errors import AdvisorError

TEXTS = st.text(st.characters(exclude_categories=()), max_size=30) | st.sampled_from(
    ['"""', "'''", "\\", "\n", "\r\n", "\f", "\x85", "\u2028", "#", '""" #', "\n    exec('x')\n#", "\ufeff", "\x00", "\ud800"]
)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()
VALUES = st.recursive(NUMBERS | TEXTS, lambda inner: st.tuples(inner) | st.tuples(inner, inner), max_leaves=4)


def forms(text: str) -> list[str]:
    """Ways to write a string literal, several lines included, as far as each says the same."""
    found = [repr(text), ascii(text), f"({text[:3]!a}\n  {text[3:]!a})"]
    for quotes in ('"""', "'''"):
        raw = f"{quotes}{text}{quotes}"
        try:
            if ast.literal_eval(raw) == text:
                found.append(raw)
        except (SyntaxError, ValueError):
            pass
    return found


@st.composite
def sources(draw: st.DrawFn) -> tuple[str, object, str]:
    """A file with a constexpr function that has a default, the default's value, and a statement of its body."""
    value = draw(VALUES)
    written = draw(st.sampled_from(forms(value))) if isinstance(value, str) else repr(value)
    other = draw(TEXTS)
    body = f"x = {draw(st.sampled_from(forms(other)))}"
    gap = draw(st.sampled_from(["", "\n", "\n\n", "# a comment\n", "# -*- coding: latin-1 -*-\n"]))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text = f"{gap}import triton\nimport triton.language as tl\n\n\n@triton.constexpr_function\n"
    text += f"def f(n, m={written}):\n    {body}\n    return n\n"
    text += f"\n\n@triton.jit\ndef k(x, N: tl.constexpr = {written}):\n    {body}\n    tl.store(x, f(1))\n"
    return text.replace("\n", end) if "\r" not in text else text, value, body


@given(sources())
def test_the_rebuilt_text_is_the_checked_tree(made: tuple[str, object, str]) -> None:
    text, value, _ = made
    try:
        written = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
        rebuilt = rebuild(parse_source(text, "k.py"), "k")
    except (AdvisorError, SyntaxError, ValueError):
        return  # no Python, or refused in words
    tree = ast.parse(rebuilt.modules["rebuilt_0.py"])
    check_module(tree)
    assert len(rebuilt.positions["rebuilt_0.py"]) == sum(hasattr(node, "lineno") for node in ast.walk(tree))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert set(functions) == {"f", "k"}
    for name, node in functions.items():
        assert [ast.dump(each) for each in node.body] == [ast.dump(each) for each in written[name].body]
        given_ = ast.literal_eval(node.args.defaults[-1]) if not isinstance(node.args.defaults[-1], ast.Call) else None
        assert given_ is None or repr(given_) == repr(value)
    assert not [node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.ImportFrom, ast.Import))]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_a_file_in_another_encoding(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_bytes(
        f"# -*- coding: {encoding} -*-\nimport triton\nimport triton.language as tl\n@triton.jit\ndef k(x, N: tl.constexpr = 'é'):\n"
        "    tl.store(x, 1.0)\n".encode(encoding)
    )
    try:
        rebuilt = rebuild(read_source(path), "k")
    except AdvisorError:
        return
    assert "'é'" in rebuilt.modules["rebuilt_0.py"]


@pytest.mark.parametrize(
    ("first", "encoding"),
    [
        (b"x = 1", "utf-8-sig"),
        (b"# -*- coding: utf-8 -*-", "utf-8-sig"),
        (b"# vim: set fileencoding=UTF-8 :", "utf-8-sig"),
        (b"# coding: latin-1", "iso-8859-1"),
        (b"# coding: utf-8 coding: latin-1", "utf-8"),
        (b"# decoding", "utf-8"),
    ],
)
def test_the_encoding_that_a_file_declares(first: bytes, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is parsed for it only where Python may read it in another one."""
    parsed = []
    monkeypatch.setattr(syntax, "parse", lambda text: parsed.append(text) or ast.parse(text))
    assert syntax.declared_encoding(first + b"\ny = 2\n") == encoding
    assert bool(parsed) is (encoding != "utf-8-sig")


MODULES = [
    "import os", "import triton, os", "from os import path", "from triton import *", "from . import x", "from triton._C import libtriton",
    "import triton.runtime._x as y", "from triton import __builtins__ as b", "x = open('y')", "x = [i for i in (1,)]", "x = lambda: 1",
    "x = tl.core.builtins.exec('1')", "x = tl.core.__loader__", "x: int = 1", "x.y = 1", "x, y = 1, 2", "del x", "print(1)", "__x = 1",
    "class C:\n    pass", "for i in (1,):\n    pass", "if True:\n    import os", "if 'os' not in globals():\n    import triton",
    "if 'os' not in globals():\n    try:\n        import os\n    except ImportError:\n        pass",
    "if 'a' not in globals():\n    try:\n        import triton as a\n    except ImportError:\n        import os",
    "def f():\n    pass", "@triton.jit\nasync def f():\n    pass", "@triton.autotune()\ndef f():\n    pass",
    "@triton.jit\n@x\ndef f():\n    pass", "@triton.jit\ndef f(x=open('y')):\n    pass", "@triton.jit\ndef f(x: open('y')):\n    pass",
    "@triton.jit\ndef f() -> x:\n    pass", "@triton.jit\ndef __f():\n    pass", "@triton.jit\ndef f(__x):\n    pass",
    "@triton.jit\ndef f(x):\n    import os", "@triton.jit\ndef f(x):\n    lambda: 1", "@triton.jit\ndef f(x):\n    x.__class__",
    "@triton.jit\ndef f(x):\n    __x", "@triton.jit\ndef f(x):\n    yield 1", "@triton.jit\ndef f(x):\n    b'x'",
    "@triton.jit\ndef f(x):\n    try:\n        pass\n    finally:\n        pass", "@triton.jit\ndef f(x):\n    class C:\n        pass",
]  # fmt: skip
FUNCTIONS = [
    "return o.fn", "return o._x", "return o.value.__class__", "return [i for i in (1,)]", "return f'{o}'", "return o.format(1)",
    "return str.format", "return max(o, key=o)", "return o(1)", "x = len\n    return x(o)", "o[0] = 1", "o.x = 1", "import os", "global x",
    "def g():\n        pass", "return (y := 1)", "return {1: 2}", "return lambda: 1", "with o:\n        pass", "raise o", "del o",
    "try:\n        pass\n    except o:\n        pass", "return o.value.fn", "return b'x'", "return *o, 1", "return o.gi_frame",
    "return __x",
]  # fmt: skip


@pytest.mark.parametrize("text", MODULES)
def test_a_module_that_is_not_of_the_language(text: str) -> None:
    with pytest.raises(LanguageError):
        check_module(ast.parse(f"import triton\nimport triton.language as tl\n{text}\n"))


@pytest.mark.parametrize("decorator", ["triton.constexpr_function", "tl.constexpr"])
@pytest.mark.parametrize("text", FUNCTIONS)
def test_a_constexpr_function_that_is_not_of_the_language(text: str, decorator: str) -> None:
    with pytest.raises(LanguageError):
        check_module(ast.parse(f"import triton\nimport triton.language as tl\n@{decorator}\ndef f(o):\n    {text}\n"))
