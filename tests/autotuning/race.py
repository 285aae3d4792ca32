"""One of several processes that tune the same keys at once; `test_processes.py` starts them, and kills some.

Prints the winners as JSON. Every finished measurement appends a line to the log: process, key, configuration.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]

KEYS = (1, 2, 3)
BLOCKS = tuple(range(16, 26))


def main(log: str) -> None:
    """Tunes every key, and says what won."""
    from triton.runtime.driver import driver

    from autotuning.fakes import FakeDriver
    from autotuning.kernels import call, tuned

    driver.set_active(FakeDriver())
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def latency(launch: dict) -> float:
        time.sleep(0.02)
        os.write(descriptor, f"{os.getpid()} {launch['n']} {launch['BLOCK']}\n".encode())
        # Every process measures something else: only a shared decision makes them agree.
        return 1.0 + (hash((os.getpid(), launch["n"], launch["BLOCK"])) % 1000) / 1000

    kernel, _ = tuned(latency, space={"BLOCK": list(BLOCKS)})
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps([call(kernel, n=key) for key in KEYS]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
