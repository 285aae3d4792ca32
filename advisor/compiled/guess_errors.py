"""What to give in place of a guess that does not compile: types that may be other than the kernel's source tells."""

from __future__ import annotations

from advisor.compiled.errors import CompileError
from advisor.compiled.inference import Given, Guess

MOST_SHOWN = 4


def with_guess(error: CompileError, guess: Guess, given: Given) -> CompileError:
    """The error of a guess, with the guessed types that may explain it, and how to give others.

    Args:
        error: What the compiler said.
        guess: What it was given.
        given: What was not guessed of it.
    """
    if error.kind != "failed" or error.remedy is not None:
        return error
    guessed = {name: kind for name, kind in guess.signature.items() if name not in given.types}
    descriptors = [name for name, kind in guessed.items() if kind.startswith("tensordesc")]
    integers = [name for name, kind in guessed.items() if kind.startswith(("*i", "*u"))]
    doubtful = [*descriptors, *integers][:MOST_SHOWN]
    if not doubtful:
        return error
    shown = ", ".join(f"{name}: {guessed[name]}" for name in doubtful)
    example = f"{doubtful[0]}=tensordesc<{given.element}[128,64]>" if descriptors else f"{doubtful[0]}=*{given.element}"
    remedy = f'types were guessed ({shown}); if one is wrong, give it: --signature "{example}"'
    return CompileError(error.what, error.got, error.limit, remedy, error.kind)
