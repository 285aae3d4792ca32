"""Reading the `status` of a measured row: whether anything of it was measured."""

from __future__ import annotations

import re

_FAILURE_STEMS = (
    "illegal",
    "outofmemory",
    "insufficientmemory",
    "oom",
    "outofresource",
    "notrecorded",
    "wrong",
    "incorrect",
    "invalid",
    "mismatch",
    "crash",
    "segfault",
    "error",
    "fail",
    "exception",
    "timeout",
    "timedout",
    "abort",
    "kill",
    "cancel",
    "skip",
    "reject",
    "unsupported",
    "notsupported",
    "infeasible",
    "pruned",
)
"""What stands somewhere in the `status` of a row that has no latency, its letters alone: in what `advisor measure` writes, in the names of
CUDA's, Triton's and Python's errors, and in what other tuners write."""

_FAILURE_WORDS = ("hang", "hung", "false", "no", "bad")
_SUCCESSES = (
    "ok",
    "okay",
    "success",
    "successful",
    "succeeded",
    "pass",
    "passed",
    "correct",
    "valid",
    "verified",
    "done",
    "completed",
    "true",
)
"""First words of a status that says what else there is to say after them: `ok (max error 0.01)`."""

_NONE_OF = re.compile(r"\b(?:no|0|zero|without)[\s:=-]+\w+", re.IGNORECASE)
"""`passed, 0 errors`: what did not happen."""


def failed(status: str) -> bool:
    """Whether a row's status says that nothing of it was measured, whatever its latency cells hold."""
    first = re.match(r"[^a-z]*([a-z]+)", status.lower())
    if first is not None and first.group(1) in _SUCCESSES:
        return False
    said = "".join(filter(str.isalpha, _NONE_OF.sub("", status))).lower()
    return said in _FAILURE_WORDS or any(stem in said for stem in _FAILURE_STEMS)
