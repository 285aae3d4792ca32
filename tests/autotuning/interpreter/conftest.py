"""These tests run with TRITON_INTERPRET=1 only, which must be set before triton is imported.

`tests/autotuning/test_interpreted.py` starts them in a process of their own.
"""

import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (2, 3)]

if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore_glob = ["test_*.py"]
else:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "kernels"))
    from kernel_harness import mend_interpreter

    mend_interpreter()
