"""The examples in docstrings run, and every public name has one."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import advisor
from advisor import _HOMES

ROOT = Path(__file__).resolve().parents[1]
MORE = ("result.problem", "system.resources", "diagnosis.rule")
"""Modules with examples beside those that public names are loaded from."""
MODULES = sorted({*_HOMES.values(), *MORE, "autotuning.lookup", "search.sampler"})
OPTIONS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from the repository's root, but for what they write and what an earlier run of them wrote."""
    if name.startswith("autotuning"):
        pytest.importorskip("triton")
    for part in ("tests", "triton_kernels", "reports", "ceilings"):
        (tmp_path / part).symlink_to(ROOT / part)
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testmod(import_module(f"advisor.{name}"), optionflags=OPTIONS)
    assert not failed
    if name in MORE:
        assert tried


@pytest.mark.parametrize("name", sorted(_HOMES))
def test_every_public_name_has_an_example(name: str) -> None:
    found = getattr(advisor, name)
    assert ">>>" in (found.__doc__ or ""), f"advisor.{name}: no example in its docstring"
