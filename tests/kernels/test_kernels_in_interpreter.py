"""Every kernel against its reference in Triton's interpreter: one process per file of `interpreter/`.

`TRITON_INTERPRET` counts when triton is imported, and other tests of this process compile.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests import loaded

FOLDER = Path(__file__).parent / "interpreter"
FILES = sorted(path.name for path in FOLDER.glob("test_*.py"))


@pytest.mark.parametrize("name", FILES)
def test_interpreted(name):
    pytest.importorskip("torch")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    for variable in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST"):
        environment.pop(variable, None)
    # Overflow on the way to an infinity is what numpy warns of, and what the kernels mean.
    command = [*loaded.python(), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning", name]
    done = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
