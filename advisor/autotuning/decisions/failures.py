"""Why a configuration was left out: a state with a reason, and whether that is for good."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.autotuning.decisions.decision import State
from advisor.autotuning.watching import NeverEndsError
from advisor.system.errors import MeasurementError, shorten

_STATES: dict[str, State] = {
    "compile-error": "compile",
    "out-of-resources": "fit",
    "hang": "time",
    "wrong-output": "output",
}


class TooSlowError(MeasurementError):
    """One run of a configuration took longer than the limit."""


class OutputDiffersError(MeasurementError):
    """A configuration wrote something other than the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """`lasting`: a property of the configuration, which the cache keeps. `fatal`: nothing runs in this process any more."""

    state: State
    reason: str
    lasting: bool
    fatal: bool


def left_out(error: Exception, stage: str) -> LeftOut:
    """The reason that an exception gives for leaving a configuration out; `stage` is compile or launch."""
    from advisor.measurement.launch import classify, is_fatal  # loads the models

    reason = shorten(f"{type(error).__name__}: {error}", 300)
    if isinstance(error, (TooSlowError, OutputDiffersError, NeverEndsError)):
        state: State = "output" if isinstance(error, OutputDiffersError) else "time"
        return LeftOut(state=state, reason=shorten(str(error), 300), lasting=True, fatal=isinstance(error, NeverEndsError))
    failure = classify(error, stage)
    fatal = is_fatal(error, failure)
    if _is_compiler(error):
        return LeftOut(state="compile", reason=reason, lasting=True, fatal=False)
    state = _STATES.get(failure.kind, "crash")
    # A lost context is the configuration's doing. Anything else unknown (the GPU's memory was full) may go well next time.
    return LeftOut(state=state, reason=reason, lasting=fatal or state in ("fit", "output"), fatal=fatal)


def _is_compiler(error: BaseException) -> bool:
    """Raised by Triton's front end, its passes or ptxas; by name, for the types move between versions."""
    names = {base.__name__ for base in type(error).__mro__}
    if names & {"CompilationError", "CompileTimeAssertionFailure", "PTXASError", "UnsupportedLanguageConstruct", "MLIRCompilationError"}:
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and ("PassManager::run failed" in text or "failed to translate module" in text)
