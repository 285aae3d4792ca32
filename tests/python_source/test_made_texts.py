"""Texts that a file puts together for its kernels: assembly, of a template."""

from __future__ import annotations

import pytest

from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import parse_source

TEMPLATE = '''
def make(n):
    template = """
        mov.f32 ${out}, ${into};
    """
    text = ""
    for i in range(n):
        text += "{" + template.format(out=i, into=i + n) + "}\\n"
    return " ".join(text.split("\\n"))


def constraints(n):
    return ",".join("=r" for i in range(n))


ASM = make(2)
CONSTRAINTS = constraints(2)
'''


def test_assembly_of_a_template_is_read() -> None:
    """As flash-linear-attention makes its softplus."""
    source = parse_source(TEMPLATE, "k.py")
    assert " ".join(source.constant("ASM").split()) == "{ mov.f32 $0, $2; } { mov.f32 $1, $3; }"
    assert source.constant("CONSTRAINTS") == "=r,=r"


@pytest.mark.parametrize("call", [
    "'{0.__class__}'.format(1)", "'{0!r}'.format(1)", "'{:>99999999}'.format(1)", "'{0[a]}'.format(1)", "'{a}'.format(1)", "'{'.format(1)",
    "('{0}' * 6000).format('a' * 6000)", "'a'.split(5)", "'a'.split('')", "','.join([1])", "'a'.format(**{'a': 1})", "'{}'.format(x)",
])  # fmt: skip
def test_what_is_more_than_a_text_put_in_is_not(call: str) -> None:
    with pytest.raises(NotLiteralError):
        parse_source(f"A = {call}\n", "k.py").constant("A")
