"""Targets that the installed Triton compiles nothing for, be that said by ptxas or by a pass, or by an abort of LLVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.cli import main
from advisor.compiled.compiler.compile import supported
from advisor.compiled.launches.target import compile_target

from .shared_pool import POOL

pytest.importorskip("triton")
ONE = "import triton\nimport triton.language as tl\n@triton.jit\ndef k(x):\n    tl.store(x, {value})\n"


@pytest.mark.parametrize("target", ["sm_42", "sm_88", "sm_99", "gfx123"])
def test_a_target_that_nothing_compiles_for_is_a_usage_error(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "k.py"
    file.write_text(ONE.format(value="1.0"), encoding="utf-8")
    assert main(["inspect", str(file), "--target", target]) == 2
    said = capsys.readouterr().err
    assert f"does not compile for this target; got {target}; expected one that it does, such as sm_" in said
    assert " sm_80, " in said and " sm_90, " in said and "memory" not in said


def test_a_kernel_that_does_not_compile_is_not_its_targets_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "k.py"
    file.write_text(ONE.format(value="tl.arange(0, 3)"), encoding="utf-8")
    assert main(["inspect", str(file), "--target", "sm_90"]) == 2
    assert "k does not compile for sm_90" in capsys.readouterr().err


def test_the_machine_is_not_the_targets_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where no compiler gets as far as an answer, no target is said to be without one."""
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ADVISOR_COMPILE_MEMORY_BYTES", str(1 << 20))
    file = tmp_path / "k.py"
    file.write_text(ONE.format(value="1.0"), encoding="utf-8")
    assert main(["inspect", str(file), "--target", "sm_90"]) == 2
    assert "does not compile for this target" not in capsys.readouterr().err


def test_those_that_work_are_found_beside_those_that_do_not() -> None:
    wanted = [compile_target(name) for name in ("sm_99", "sm_90", "gfx942", "sm_42")]
    assert [each.name for each in supported(wanted, POOL)] == ["sm_90", "gfx942"]
