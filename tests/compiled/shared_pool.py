"""One compile process for all tests of a process that ask for no other: to start one costs more than most compilations."""

from __future__ import annotations

import atexit

from advisor.compiled.compiler.pool import Pool

POOL = Pool(1)  # its process starts with the first request
atexit.register(POOL.close)
