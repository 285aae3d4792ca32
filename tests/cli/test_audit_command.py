"""`advisor audit`: options that contradict each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.cli import main

EXAMPLE = Path(__file__).resolve().parents[2] / "reports" / "examples" / "E=128,N=768,device_name=NVIDIA_H20.json"


@pytest.mark.parametrize("gates", ["predicted-regret", "error,predicted-regret"])
def test_a_gate_on_what_is_left_out_is_refused(capsys, gates):
    """It would pass whatever the tables hold."""
    assert main(["audit", str(EXAMPLE), "--no-regret", "--fail-on", gates]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert "--no-regret" in printed.err and "--fail-on predicted-regret" in printed.err


def test_other_gates_need_no_predictions():
    assert main(["audit", str(EXAMPLE), "--no-regret", "--fail-on", "error"]) == 0
