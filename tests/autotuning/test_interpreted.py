"""Real kernels under our decorator, in Triton's interpreter: a process of its own, because TRITON_INTERPRET counts at import."""

import os
import subprocess
from pathlib import Path

import pytest

from tests import loaded

FOLDER = Path(__file__).parent / "interpreter"


def test_interpreted(tmp_path):
    pytest.importorskip("torch")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "ADVISOR_CACHE_DIR": str(tmp_path)}
    for variable in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST"):
        environment.pop(variable, None)
    command = [*loaded.python(), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning", "."]
    done = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
