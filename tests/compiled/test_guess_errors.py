"""What is said of guesses that do not compile, and which are tried then."""

from __future__ import annotations

from advisor.compiled.compiler.failures import reason
from advisor.compiled.compiler.kernel import CompileError, Target
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.guesses.guess_errors import with_guess
from advisor.compiled.guesses.inference import Given, Guess, guesses
from advisor.compiled.launches.launch import compile_launch
from advisor.compiled.launches.target import make_launch
from advisor.python_source.source import parse_source

HEAD = "import triton\nimport triton.language as tl\n"
JIT = HEAD + "@triton.jit\n"


def test_reason_has_no_address():
    """It would be another one in every run."""
    error = RuntimeError("Unsupported function referenced: <function double at 0x7f1f133698a0>")
    assert reason(error) == "RuntimeError: Unsupported function referenced: <function double>"


def guessed(text: str) -> list[Guess]:
    source = parse_source(text, "k.py")
    return list(guesses(source, source.kernel("k")))


def test_errors_of_guesses_say_what_was_guessed_and_how_to_give_it() -> None:
    refused = CompileError("k does not compile for sm_90", "dimensions")
    guess = Guess(signature={"a": "tensordesc<bf16[1,1]>", "p": "*i64", "q": "*i64"}, constexprs={}, options={})
    found = str(with_guess(refused, guess, Given(types={"q": "*i64"})))
    assert "a: tensordesc<bf16[1,1]>, p: *i64)" in found and '--signature "a=tensordesc<bf16[128,64]>"' in found
    assert with_guess(refused, guess, Given(types=guess.signature)) is refused


def test_what_no_argument_mends_asks_for_none() -> None:
    refused = CompileError(
        "k does not compile for sm_90", 'NameError("Cannot access global variable LOG2_E from within @jit\'ed function")'
    )
    assert with_guess(refused, Guess(signature={"p": "*i64"}, constexprs={}, options={}), Given()) is refused


def test_an_error_about_two_floats_is_not_blamed_on_integers() -> None:
    refused = CompileError("k does not compile for sm_90", "Both operands must be same dtype. Got bf16 and fp16")
    guess = Guess(signature={"q": "*bf16", "ids": "*i64"}, constexprs={}, options={})
    found = str(with_guess(refused, guess, Given()))
    assert "types were guessed (q: *bf16)" in found and found.endswith("--element fp16") and "ids" not in found
    typed = with_guess(refused, guess, Given(types={"q": "*bf16"}))
    assert found != str(with_guess(refused, guess, Given(element_given=True))) == str(typed)


def test_elements_are_tried_as_those_of_what_they_meet(pool: Pool) -> None:
    text = JIT + (
        "def k(q, out):\n    o = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]\n    x = tl.load(q + o)\n"
        "    tl.store(out + o, tl.dot(x, tl.zeros((32, 32), tl.int8)))\n"
    )
    compiled, guess, failures = compile_launch(make_launch(parse_source(text, "k.py"), "k"), Target(backend="cuda", arch=90), pool, False)
    assert guess.signature["q"] == compiled.signature["q"] == "*i8" and "int8" in failures[0]


def test_errors_of_guesses_suggest_the_other_width_and_name_the_constants() -> None:
    """A wrong type is blamed on no argument alone where constants are guessed, too, for the list that says them cannot be read."""
    words = "x" * 300 + " but is re-assigned to int64"
    refused = CompileError("k does not compile for sm_90", words)
    text = HEAD + (
        "from nowhere import LIST\n@triton.autotune(LIST, key=[])\n@triton.jit\n"
        "def k(x, sizes, BLOCK: tl.constexpr, HOW: tl.constexpr, EPS: tl.constexpr = 1.0):\n"
        "    for i in range(tl.load(sizes)):\n        tl.store(x + tl.arange(0, BLOCK), EPS)\n"
    )
    found = str(with_guess(refused, guessed(text)[0], Given()))
    assert "re-assigned to int64" in found
    assert "constants were guessed (BLOCK = 64, HOW = 1), for the list of @triton.autotune is not read (" in found
    assert found.endswith('--signature "sizes=*i32" or --constexpr "BLOCK=..."')
    source = parse_source(text, "k.py")
    given = Given(constexprs={"BLOCK": 16, "HOW": 2}, types={"sizes": "*i32"})
    assert with_guess(refused, next(guesses(source, source.kernel("k"), given)), given) is refused


def test_more_guessed_constants_than_are_shown_are_counted() -> None:
    names = [f"SIZE_{i}" for i in range(6)]
    text = HEAD + f"@triton.jit\ndef k(x, {', '.join(f'{name}: tl.constexpr' for name in names)}):\n    tl.store(x, {' + '.join(names)})\n"
    found = str(with_guess(CompileError("k does not compile for sm_90", "no"), guessed(text)[0], Given()))
    assert "SIZE_3 = 64, and 2 more)" in found and "SIZE_4" not in found
