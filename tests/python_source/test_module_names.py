"""Names of a file that branches decide, and names that another file gives a value."""

from __future__ import annotations

import venv
from pathlib import Path

import pytest

from advisor.compiled.compiler.compile import version
from advisor.compiled.guesses.inference import guesses
from advisor.gpus.hardware import load_gpu, offline
from advisor.python_source import target_questions
from advisor.python_source.kernel_forms import RebuildError
from advisor.python_source.literal_values import Symbol
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.rebuild import rebuild
from advisor.python_source.source import parse_source, read_source
from advisor.system.errors import UsageError

HEAD = "import os\nimport torch\nimport triton\nimport triton.language as tl\n"
DEF = "    @triton.jit\n    def f(p):\n        return {}\n"
CALLS = "@triton.jit\ndef k(p):\n    tl.store(p, f(p))\n"


def test_what_triton_has_is_what_it_says() -> None:
    """The answers are read from its files."""
    triton = pytest.importorskip("triton")
    for module, name in ((triton, "triton"), (triton.language, "triton.language")):
        asked = ["gather", "make_tensor_descriptor", "no_such_name", "jit", "set_allocator", "language", "load", "math", "constexpr"]
        assert [target_questions.has(name, each) for each in asked] == [hasattr(module, each) for each in asked]
    assert target_questions.has("vllm.triton_utils.tl", "load") and not target_questions.has("vllm.triton_utils.triton", "load")
    assert target_questions.has("triton.language.math", "exp2") and not target_questions.has("triton.language.math", "nothing")
    assert not target_questions.has("vllm.triton_utils.tl.extra", "ascend")
    for module, name in (("triton.language.extra", "cuda"), ("triton.nothing", "x"), ("triton", "profiler"), ("torch", "load")):
        with pytest.raises(NotLiteralError, match="unknown"):
            target_questions.has(module, name)


def test_the_triton_that_compiles_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of another Python, where one is named: its version decides branches, its files what it has."""
    venv.create(tmp_path / "other", with_pip=False)
    site = next((tmp_path / "other").glob("lib/python*/site-packages"))
    folder = site / "triton" / "language"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("")
    (folder / "__init__.py").write_text("def only_there(): ...\n")
    facts = site / "triton-9.9.9.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: triton\nVersion: 9.9.9\n")
    python = tmp_path / "other" / "bin" / "python"
    branches = "if triton.__version__ == '9.9.9' and hasattr(tl, 'only_there'):\n    A = 1\nelse:\n    A = 2\n"
    assert parse_source(HEAD + branches, "k.py").constant("A") == 2
    monkeypatch.setenv("ADVISOR_TRITON_PYTHON", str(python))
    assert parse_source(HEAD + branches, "k.py").constant("A") == 1
    assert version() == "9.9.9" == offline(load_gpu("H200")).triton


@pytest.mark.parametrize("known", ["hasattr(tl, 'load')", "not hasattr(triton.language, 'nothing')", "not hasattr(triton, 'load')"])
def test_branches_on_what_triton_has_are_decided(known: str) -> None:
    both = parse_source(HEAD + f"if {known}:\n{DEF.format(1)}else:\n{DEF.format(2)}", "k.py")
    assert both.functions["f"].line == 7
    other = parse_source(HEAD + f"if {known}:\n    f = tl.load\nelse:\n{DEF.format(2)}{CALLS}", "k.py")
    assert set(other.functions) == {"k"} and other.constant("f") == Symbol("tl.load")
    assert "def f" not in "".join(rebuild(other, "k").modules.values())
    assert next(guesses(other, other.kernel("k"))).signature == {"p": "*bf16"}  # through f, p is loaded from
    with pytest.raises(UsageError, match=r"f is in the end no kernel.*k\.py::f:9") as error:
        other.kernel("f")
    source, name = other.named(str(error.value).rsplit("::", 1)[1])
    assert source.kernel(name).line == 9


@pytest.mark.parametrize(
    "condition", ["torch.cuda.is_available()", "hasattr(torch, 'compile')", "hasattr(tl, name)", "hasattr(other, 'f')"]
)
@pytest.mark.parametrize("given", ["    f = tl.load\n", "    if True:\n        f, g = tl.load, 1\n"])
def test_a_kernel_beside_an_assignment_is_undecided(condition: str, given: str) -> None:
    made = parse_source(HEAD + f"if {condition}:\n{given}else:\n{DEF.format(2)}{CALLS}", "k.py")
    assert set(made.functions) == {"k"}
    with pytest.raises(UsageError, match=r"f is defined in 2 branches.*k\.py::f:\d"):
        made.kernel("f")
    with pytest.raises(Exception, match=r"f is defined in 2 branches"):
        rebuild(made, "k")


@pytest.mark.parametrize(
    "text",
    [
        f"if torch.cuda.is_available():\n{DEF.format(1)}f = triton.autotune([], [])(f)\n",
        f"if torch.cuda.is_available():\n{DEF.format(1)}    f = torch.compile(f)\n",
        f"try:\n    from fast import f\nexcept ImportError:\n{DEF.format(1)}",
        f"if torch.cuda.is_available():\n    n: int = 1\n{DEF.format(1)}",
        f"if torch.cuda.is_available():\n    def run():\n        f = 1\nelse:\n{DEF.format(1)}",
        f"if torch.cuda.is_available():\n{DEF.format(1)}else:\n    f = None\n",
        f"if torch.cuda.is_available():\n    f: object = None\n    g = 1\nelse:\n{DEF.format(1)}",
        f"if torch.cuda.is_available():\n{DEF.format(1)}else:\n    f, g = False, {{}}\n",
        f"try:\n    import fast\n{DEF.format(1)}except ImportError:\n    f = None\n",
        f"try:\n    import fast\n{DEF.format(1)}except ImportError:\n    fast, f = None, ()\n",
    ],
)
def test_a_kernel_that_stands_beside_nothing_else_is_found(text: str) -> None:
    """What cannot be called stands in for it where it is not there; for a function that is no kernel as well."""
    assert set(parse_source(HEAD + text, "k.py").functions) == {"f"}
    plain = parse_source(HEAD + text.replace("    @triton.jit\n", ""), "k.py")
    assert "f" in plain.plain_functions


@pytest.mark.parametrize(
    ("between", "is_told"),
    [
        ("MOCKED", True),
        ("if not HAVE:\nMOCKED", True),
        ("if HAVE:\n    pass\nelse:\nMOCKED", True),
        ("if HAVE:\nMOCKED", False),
        ("HAVE = False\nif not HAVE:\nMOCKED", False),
        ("HAVE = bool(0)\nif not HAVE:\nMOCKED", False),
        ("def lost():\n    global HAVE\n    HAVE = False\n\nlost()\nif not HAVE:\nMOCKED", False),
    ],
)
def test_what_stands_for_triton_where_it_is_not_there_is_not_meant(between: str, is_told: bool) -> None:
    imported = "try:\n    import triton\n    import triton.language as tl\n    HAVE = True\nexcept ImportError:\n    HAVE = False\n"
    mocked = between.replace("MOCKED", "    triton = Mock()\n    triton.jit = same\n    tl = Mock()\n")
    kernel = "\n@triton.jit\ndef k(x):\n    tl.store(x, 1)\n"
    assert ("k" not in parse_source(imported + mocked + kernel, "k.py").undecided) is is_told


def test_two_kernels_beside_a_placeholder_are_undecided() -> None:
    text = f"if torch.cuda.is_available():\n{DEF.format(1)}elif torch.xpu.is_available():\n{DEF.format(2)}else:\n    f = None\n"
    assert "f is defined in 3 branches" in parse_source(HEAD + text, "k.py").undecided["f"]


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("A and B and MODE != 'plain'", 2),
        ("A or MODE == 'plain'", 1),
        ("MODE == 'plain' or A", 1),
        ("not (A or B or MODE == 'plain')", 2),
        ("not (A and MODE != 'plain')", 1),
        ("A and MODE == 'plain'", None),
        ("A or MODE != 'plain'", None),
    ],
)
def test_one_part_decides_a_condition_whatever_the_others_are(condition: str, value: int | None) -> None:
    """As flash-linear-attention's list of precisions, of which the environment has the last word."""
    text = "from elsewhere import A\nB = torch.cuda.is_available()\nMODE = os.environ.get('MODE', 'plain')\n"
    made = parse_source(f"{HEAD}{text}if {condition}:\n    x = 1\nelse:\n    x = 2\n", "k.py")
    if value is None:
        with pytest.raises(NotLiteralError, match="x is defined in 2 branches"):
            made.constant("x")
    else:
        assert made.constant("x") == value and made.unset == {"MODE"}


def test_values_of_other_files_are_read(tmp_path: Path) -> None:
    """Also where a package hands them on; what such a file asks of the environment is said of the file that imports from it."""
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("from .lists import CONFIGS as TUNED, GATHERS\n", encoding="utf-8")
    sizes = "GATHERS = hasattr(tl, 'gather')\nSIZES = [int(os.environ.get('BLOCK', '64'))]\n"
    lists = f"{HEAD}{sizes}CONFIGS = [triton.Config({{'BLOCK': b}}) for b in SIZES]\n"
    (tmp_path / "pack" / "lists.py").write_text(lists, encoding="utf-8")
    path = tmp_path / "k.py"
    kernel = "@triton.autotune(configs=TUNED, key=[])\n@triton.jit\ndef k(x, BLOCK: tl.constexpr):\n    pass\n"
    path.write_text(f"{HEAD}from pack import TUNED, GATHERS\n{kernel}n = 1 if GATHERS else 2\n", encoding="utf-8")
    made = read_source(path)
    autotune = made.kernel("k").autotune
    assert autotune is not None and [each.parameters for each in autotune.configs] == [{"BLOCK": 64}]
    assert made.unset == {"BLOCK"} and made.constant("n") == 1


def test_values_of_files_that_import_each_other_are_soon_left(tmp_path: Path) -> None:
    for ours, theirs in (("a", "b"), ("b", "a")):
        text = f"from {theirs} import {theirs}\n{ours} = 1 if {theirs} and {theirs} and {theirs} else 2\n"
        (tmp_path / f"{ours}.py").write_text(text, encoding="utf-8")
    with pytest.raises(NotLiteralError):
        read_source(tmp_path / "a.py").constant("a")


@pytest.mark.parametrize("first", ["f = tl.load", "f = tl.extra.nowhere.libdevice.tanh", "f = tl.no_such"])
@pytest.mark.parametrize("second", ["f = tl.exp2", "f = tl.no_such_either"])
def test_a_branch_that_takes_what_triton_lacks_does_not_run(first: str, second: str) -> None:
    made = parse_source(f"{HEAD}if asked():\n    {first}\nelse:\n    {second}\n", "k.py")
    there = [each.removeprefix("f = ") for each in (first, second) if each in ("f = tl.load", "f = tl.exp2")]
    if len(there) == 1:
        assert made.constant("f") == Symbol(there[0])
    elif there:
        with pytest.raises(NotLiteralError, match="f is defined in 2 branches"):
            made.constant("f")


@pytest.mark.parametrize(("body", "line"), [("f = tl.no_such", 8), ("g = int('1')\n    f = tl.load", 8), ("f = tl.load", None)])
def test_a_try_that_takes_what_triton_has_is_decided(body: str, line: int | None) -> None:
    made = parse_source(HEAD + f"try:\n    {body}\nexcept AttributeError:\n{DEF.format(2)}{CALLS}", "k.py")
    if line is None:
        assert "f" not in made.functions and made.constant("f") == Symbol("tl.load")
    elif body.startswith("g"):  # which may fail for another reason
        assert "f" not in made.functions and "f is defined in 2 branches" in made.undecided["f"]
    else:
        assert made.functions["f"].line == line + 1


@pytest.mark.parametrize(
    ("body", "caught", "value"),
    [
        ("f = tl.load\n    OK = True", "OK = False", True),
        ("f = tl.no_such\n    OK = True", "OK = False", False),
        ("OK = True\n    f = tl.no_such", "OK = False", False),
        ("f = tl.no_such\n    OK = True", "f = None", "before"),
        ("OK = True\n    f = tl.no_such\n    OK = False", "pass", True),
        ("f = torch.no_such\n    OK = True", "OK = False", None),
        ("f = tl.load\n    a, b = OK = True", "OK = False", None),
    ],
)
def test_a_try_that_notes_whether_triton_has_a_name_is_decided(body: str, caught: str, value: object) -> None:
    """What runs before the name that fails, and then what catches it."""
    made = parse_source(f"{HEAD}OK = 'before'\ntry:\n    {body}\nexcept AttributeError:\n    {caught}\n", "k.py")
    if value is None:
        with pytest.raises(NotLiteralError, match="OK is defined in 2 branches"):
            made.constant("OK")
    else:
        assert made.constant("OK") == value


def test_a_name_that_only_one_condition_gives_stays_unknown() -> None:
    made = parse_source(f"{HEAD}f = 1\nif asked():\n    f = tl.no_such\nelif asked_more():\n    f = tl.load\n", "k.py")
    with pytest.raises(NotLiteralError, match="under a condition that is unknown"):
        made.constant("f")


@pytest.mark.parametrize(
    ("module", "read"),
    [("triton.runtime._allocation", True), ("triton.runtime.jit", False), ("triton.language", False), ("triton.language._x", False)],
)
def test_how_triton_allocates_memory_is_no_part_of_a_kernel(module: str, read: bool) -> None:
    text = f"import {module} as part\npart._allocator = make()\n"
    assert (parse_source(HEAD + text + "@triton.jit\ndef k(p):\n    tl.store(p, 1)\n", "k.py").undecided == {}) is read


def test_a_decorator_of_another_triton_is_named(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text(HEAD + "@tl.constexpr_function\ndef f(p):\n    return 1\n\n\n" + CALLS)
    with pytest.raises(RebuildError, match=r"f is decorated with tl\.constexpr_function: the Triton at hand has no such functions"):
        rebuild(read_source(path), "k")


@pytest.mark.parametrize(
    ("imported", "caught", "known"),
    [
        ("import triton", "ImportError", True),
        ("import triton", "ModuleNotFoundError", True),
        ("import triton", "Exception", False),  # what the version is compared with may raise, too
        ("import no_such", "ImportError", False),
    ],
)
def test_what_is_worked_out_beside_an_import_that_succeeds_is_what_runs(imported: str, caught: str, known: bool) -> None:
    """As Mamba asks for the version of Triton, where there is one."""
    text = f"try:\n    {imported}\n    RECENT = asked(1) or 2 > 1\nexcept {caught}:\n    RECENT = False\n"
    made = parse_source(f"{HEAD}def asked(n):\n    return n > 2\n{text}", "k.py")
    if known:
        assert made.constant("RECENT") is True
    else:
        with pytest.raises(NotLiteralError, match="RECENT is defined in 2 branches"):
            made.constant("RECENT")


def test_names_that_are_unpacked_from_what_a_function_gives_are_known() -> None:
    lists = "def listed(n):\n    return [triton.Config({'B': n})], [triton.Config({'B': n}), triton.Config({'B': 64})]\n\n"
    kernel = "\n@triton.autotune(configs=CONFIGS, key=[])\n@triton.jit\ndef k(x, B: tl.constexpr):\n    pass\n"
    for configs, blocks in (("one", [16]), ("more", [16, 64])):
        tuned = parse_source(f"{HEAD}{lists}(one, more) = listed(16)\n{kernel.replace('CONFIGS', configs)}", "k.py").kernel("k").autotune
        assert tuned is not None and [config.parameters["B"] for config in tuned.configs] == blocks
    tuned = parse_source(f"{HEAD}one, more = 1, 2, 3\n{kernel.replace('CONFIGS', 'one')}", "k.py").kernel("k").autotune
    assert tuned is not None and tuned.problem is not None and "one is unpacked in line" in tuned.problem
