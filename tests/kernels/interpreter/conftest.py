"""These tests run with TRITON_INTERPRET=1 only, which must be set before triton is imported.

`tests/kernels/test_kernels_in_interpreter.py` starts them in a process of their own, because Triton's own library
functions (`tl.sum`, `tl.cdiv`) are interpreted or compiled for the life of a process.
"""

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parents[1]))

settings.register_profile(
    "interpreter",
    derandomize=True,
    deadline=None,
    max_examples=int(os.environ.get("KERNEL_EXAMPLES", "6")),
    database=None,
    suppress_health_check=list(HealthCheck),
)

if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore_glob = ["test_*.py"]
else:
    settings.load_profile("interpreter")  # only here: a profile holds for every test of a process

    from kernel_harness import mend_interpreter

    mend_interpreter()
