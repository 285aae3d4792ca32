"""`python -m advisor`: the same as the command `advisor`."""

from __future__ import annotations

from advisor.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
