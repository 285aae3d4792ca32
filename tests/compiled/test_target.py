"""What the command line says of a kernel, and what it answers to mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.compiled.target import assignments, numbers, open_kernel
from advisor.errors import NothingMatchedError, UsageError


def test_assignments_are_lists_too() -> None:
    assert numbers(["M=1,N=2", "eps = 1e-5"], "--arg") == {"M": 1, "N": 2, "eps": 1e-5}
    assert assignments(["A=(1, 2),B=tl.float32,C=relu"], "--constexpr").keys() == {"A", "B", "C"}
    assert assignments(["A=(1, 2),B=1"], "--constexpr")["A"] == (1, 2)
    with pytest.raises(UsageError, match="NAME=VALUE"):
        assignments(["M=1", "N"], "--arg")


@pytest.mark.parametrize(
    ("text", "said"),
    [("import torch\n", "no Triton kernel in this file; expected functions decorated with @triton.jit"),
     ("from triton.experimental import gluon\n@gluon.jit\ndef k(x):\n    pass\n", "got Gluon, which is not supported"),
     ("from triton.experimental.gluon import language as gl\n", "Gluon, which is not supported")],
)  # fmt: skip
def test_a_file_without_kernels_is_said_to_have_none(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(NothingMatchedError) as caught:
        open_kernel(str(path))
    assert said in str(caught.value) and "one of" not in str(caught.value)
