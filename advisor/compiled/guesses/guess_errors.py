"""What to give in place of a guess that does not compile: types and constants that may be other than the kernel's source tells."""

from __future__ import annotations

import re

from advisor.compiled.compiler.errors import CompileError
from advisor.compiled.guesses.assumptions import shown_value
from advisor.compiled.guesses.inference import Given, Guess

MOST_SHOWN = 4
_OTHER_WIDTH = {"*i64": "*i32", "*i32": "*i64"}
"""What integers are that turn out not to be as wide as was guessed, which is likelier than that they are none."""
_FLOATS = re.compile(r"\b(?:bf16|fp16|fp32|fp64)\b")


def with_guess(error: CompileError, guess: Guess, given: Given) -> CompileError:
    """The error of a guess, with the guessed types and constants that may explain it, and how to give others.

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
    said: list[str] = []
    options: list[str] = []
    floats = list(dict.fromkeys(_FLOATS.findall(str(error.got))))
    elements = [name for name, kind in guessed.items() if kind == f"*{given.element}"][:MOST_SHOWN]
    if elements and len(floats) > 1 and not given.element_given:  # no integer is to blame
        other = next(kind for kind in floats if kind != given.element)
        said.append(f"types were guessed ({', '.join(f'{name}: {guessed[name]}' for name in elements)})")
        options.append(f"--element {other}")
    elif doubtful:
        said.append(f"types were guessed ({', '.join(f'{name}: {guessed[name]}' for name in doubtful)})")
        other = f"tensordesc<{given.element}[128,64]>" if descriptors else _OTHER_WIDTH.get(guessed[doubtful[0]], f"*{given.element}")
        options.append(f'--signature "{doubtful[0]}={other}"')
    if constants := guess.invented[:MOST_SHOWN]:
        why = f", for the list of @triton.autotune is not read ({guess.unread})" if guess.unread else ""
        shown = ", ".join(f"{name} = {shown_value(guess.constexprs[name])}" for name in constants)
        more = f", and {len(guess.invented) - MOST_SHOWN} more" if len(guess.invented) > MOST_SHOWN else ""
        said.append(f"constants were guessed ({shown}{more}){why}")
        options.append(f'--constexpr "{constants[0]}=..."')
    if not said:
        return error
    remedy = f"{'; '.join(said)}; if one is wrong, give it: {' or '.join(options)}"
    return CompileError(error.what, error.got, error.limit, remedy, error.kind)
