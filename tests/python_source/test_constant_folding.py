"""What kernels ask of torch while they compile, written as literals in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.python_source.rebuild import RebuildError, rebuild
from advisor.python_source.source import parse_source

HEAD = "import os\nimport torch\nimport triton\nimport triton.language as tl\n"


def kernel(body: str, backend: str | None, head: str = HEAD) -> str:
    source = parse_source(f"{head}@triton.jit\ndef k(x, B: tl.constexpr):\n    {body}\n    tl.store(x, B)\n", "k.py")
    return rebuild(source.on(backend), "k").modules["rebuilt_0.py"]


@pytest.mark.parametrize(
    ("body", "cuda", "hip"),
    [
        ("t = tl.int8 if torch.version.hip is not None else tl.int16", "tl.int8 if (False) else", "tl.int8 if (True) else"),
        ("if torch.version.hip:\n        B = 1", "if (None):", "if (True):"),
        ("if B > 1 and not torch.version.cuda:\n        B = 1", "if B > 1 and (False):", "if B > 1 and (True):"),
        ("if B > 1 or torch.version.cuda:\n        B = 1", "if B > 1 or (True):", "if B > 1 or (None):"),
        ("if tl.constexpr(torch.version.hip is not None):\n        B = 1", "tl.constexpr((False))", "tl.constexpr((True))"),
        ("n = bool(torch.version.hip)", "n = (False)", "n = (True)"),
        ("n = triton.runtime.driver.active.get_current_target().backend == 'hip'", "n = (False)", "n = (True)"),
        ("é = 'é'; n = torch.inf", "é = 'é'; n = (float('inf'))", "é = 'é'; n = (float('inf'))"),
        ("n = (torch.\n        pi) + B", "n = ((3.141592653589793\n)) + B", "n = ((3.141592653589793\n)) + B"),
    ],
)
def test_questions_about_the_target_and_types_are_answered(body: str, cuda: str, hip: str) -> None:
    for backend, text in (("cuda", cuda), ("hip", hip)):
        made = kernel(body, backend)
        assert text in made and "torch" not in made.split("def k", 1)[1]
        lines = [number for number, line in enumerate(made.splitlines(), 1) if "tl.store(x, B)" in line]
        assert lines == [len((HEAD + body).splitlines()) + 3]  # where its author wrote it


def test_a_kernel_on_one_line_is_answered() -> None:
    text = HEAD + "@triton.jit\ndef k(x): tl.store(x, torch.pi)\n"
    assert "tl.store(x, 3.141592653589793)" in rebuild(parse_source(text, "k.py").on("cuda"), "k").modules["rebuilt_0.py"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("n = torch.version.cuda > '6'", "torch is neither .*; got .*version"),
        ("n = torch.version.cuda", "got torch.version.cuda, of which only that it is there is known"),
        ("n = torch.cuda.device_count()", "torch is neither .*; got .*torch.cuda.device_count"),
        ("n = torch.finfo(x).max", "torch is neither"),
        ("torch = B; n = torch.inf", None),
    ],
)
def test_what_else_is_asked_of_torch_is_refused(body: str, why: str | None) -> None:
    if why is None:
        assert "torch.inf" in kernel(body, "cuda")  # its own name: triton says what is wrong with it
        return
    with pytest.raises(RebuildError, match=f"{why}.*; give the kernel what it needs as a tl.constexpr argument or a literal"):
        kernel(body, "cuda")


def test_without_a_target_the_remedy_is_to_give_one() -> None:
    with pytest.raises(RebuildError, match=r"got torch.version.hip is None \(torch.version.hip is not known without a target\); .* --gpu"):
        kernel("n = torch.version.hip is None", None)


def test_a_constant_that_is_not_read_says_what_could_be(tmp_path: Path) -> None:
    text = "LANES = os.cpu_count()\n@triton.jit\ndef k(x):\n    tl.store(x, LANES)\n"
    with pytest.raises(RebuildError) as caught:
        rebuild(parse_source(HEAD + text, "k.py").on("cuda"), "k")
    error = caught.value
    assert error.what == "k.py:8: the value of LANES is not known without running the file"
    assert str(error.got).startswith("os.cpu_count() (") and error.limit and "write the value itself" in str(error.remedy)
    (tmp_path / "lanes.py").write_text("import os\n" + text.splitlines()[0] + "\n", encoding="utf-8")
    with pytest.raises(RebuildError, match=r"LANES is neither.*; got LANES of lanes\.py: .*cpu_count"):
        rebuild(parse_source(f"{HEAD}from lanes import LANES\n{text.split(chr(10), 1)[1]}", tmp_path / "k.py"), "k")
