"""Kernels read by parsing: configurations, heuristics, rebuilt modules, and that nothing of a file runs."""

from __future__ import annotations

import ast
import importlib.util
import math
from pathlib import Path

import pytest

from advisor.compiled.compiler.kernel import CompileError, Target
from advisor.compiled.demand.assembly import matrix_instruction
from advisor.compiled.guesses.assumptions import shown_together
from advisor.compiled.guesses.inference import Given, guesses
from advisor.compiled.launches.launch import KernelLaunch, inspect_launch
from advisor.python_source.described import heuristic_values
from advisor.python_source.kernel_forms import ReachError
from advisor.python_source.literal_values import Constexpr, Symbol
from advisor.python_source.literals import MAX_ITEMS, NotLiteralError
from advisor.python_source.rebuild import RebuildError, rebuild
from advisor.python_source.source import parse_source
from advisor.system.errors import AdvisorError, InputError, UsageError

from .shared_pool import POOL

HEAD = "import os\nimport triton\nimport triton.language as tl\n"
SM_90 = Target(backend="cuda", arch=90)

TUNED = (
    HEAD
    + '''
BLOCKS = [64, 128]
LIMIT: tl.constexpr = tl.constexpr(2 ** 4)

def configs():
    """Configurations."""
    return [triton.Config({"BLOCK": b, "G": 8}, num_warps=w, num_stages=s) for b in BLOCKS for w in (4, 8) for s in range(2, 4) if b * w > 256]

@triton.autotune(configs=configs() + [triton.Config({"BLOCK": 32, "G": 1})], key=["n", "k"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def kernel(x_ptr, ids_ptr, n, k, eps, BLOCK: tl.constexpr, G: tl.constexpr, EVEN: tl.constexpr, ACT: tl.constexpr = "relu"):
    row = tl.program_id(0)
    where = tl.load(ids_ptr + row)
    offsets = where * k + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    if ACT == "relu":
        x = helper(x) + eps + LIMIT
    tl.store(x_ptr + offsets, x, mask=offsets < n)

@triton.jit
def helper(x):
    return tl.maximum(x, 0.0)
'''  # noqa: E501
)


def test_configurations_are_read() -> None:
    function = parse_source(TUNED, "k.py").kernel("kernel")
    assert function.autotune is not None and function.autotune.problem is None
    assert function.autotune.key == ("n", "k")
    assert len(function.autotune.configs) == 7
    assert function.autotune.configs[-1].parameters == {"BLOCK": 32, "G": 1}
    assert function.autotune.configs[0].num_warps == 8


def test_heuristics_are_evaluated() -> None:
    source = parse_source(TUNED, "k.py")
    assert heuristic_values(source, source.kernel("kernel"), {"n": 256, "BLOCK": 64}) == ({"EVEN": True}, {})
    values, unknown = heuristic_values(source, source.kernel("kernel"), {"BLOCK": 64})
    assert not values and "EVEN" in unknown


def test_signature_is_inferred() -> None:
    source = parse_source(TUNED, "k.py")
    guess = next(guesses(source, source.kernel("kernel"), Given()))
    assert guess.signature["x_ptr"] == "*bf16"
    assert guess.signature["ids_ptr"] == "*i64"
    assert guess.signature["eps"] == "fp32"
    assert guess.signature["n"] == "i32"
    assert guess.constexprs["ACT"] == "relu"
    assert guess.constexprs["BLOCK"] == 64


def test_types_of_numbers_are_guessed_from_values_and_said() -> None:
    source = parse_source(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
        "def k(x_ptr, factor, n, stride, eps, w: tl.int64, B: tl.constexpr):\n"
        "    o = tl.arange(0, B)\n    tl.store(x_ptr + o * stride * w, factor + eps, mask=o < n)\n",
        Path("k.py"),
    )
    function = source.kernel("k")
    plain = next(guesses(source, function, Given(constexprs={"B": 16})))
    assert {"factor, n, stride: i32", "eps: fp32"} <= set(plain.assumed)
    types = shown_together(plain.assumptions)[0]
    assert types.startswith("x_ptr: *bf16 ") and types.endswith("(--element or --signature changes types)")
    given = next(guesses(source, function, Given(constexprs={"B": 16}, scalars={"factor": 2.5, "n": 2**40, "stride": 8})))
    assert [given.signature[name] for name in ("factor", "n", "stride", "w")] == ["fp32", "i64", "i32", "i64"]
    assert not [text for text in given.assumed if "i32" in text]


def test_rebuilt_module_keeps_lines_and_drops_the_rest() -> None:
    rebuilt = rebuild(parse_source(TUNED, "k.py"), "kernel")
    text = rebuilt.modules["rebuilt_0.py"]
    nodes = [node for node in ast.walk(ast.parse(text)) if hasattr(node, "lineno")]
    places = {tuple(place) for node, place in zip(nodes, rebuilt.positions["rebuilt_0.py"], strict=True) if ast.unparse(node) == "tl.load"}
    written = [node for node in ast.walk(ast.parse(TUNED)) if isinstance(node, ast.Attribute) and ast.unparse(node) == "tl.load"]
    assert places == {(node.lineno, node.col_offset) for node in written if node.lineno > TUNED[: TUNED.index("def kernel")].count("\n")}
    assert "import os" not in "".join(rebuilt.modules.values())
    assert "autotune" not in text and "helper" in text


@pytest.mark.parametrize(
    "text",
    [
        "A = [0] * 10**9",
        "A = 10 ** 10 ** 10",
        "A = [x for x in range(10**9)]",
        f"A = [(a, b) for a in range({MAX_ITEMS}) for b in range(9)]",
        "A = open('x')",
        "A = (lambda: 1)()",
        "A = __import__('os')",
        "A = 'x' * 10**9",
        "A = f'{open}'",
        "A = f'{1:>9999999}'",
        "A = A",
    ],
)
def test_only_small_literals_are_evaluated(text: str) -> None:
    with pytest.raises(NotLiteralError):
        parse_source(text, "k.py").constant("A")


def test_not_python_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"k\.py, line 1"):
        parse_source("def (", "k.py")
    with pytest.raises(UsageError, match="one of kernel"):
        parse_source(TUNED, "k.py").kernel("nothing")


REFUSED = {
    "module": "os.system('touch PWNED')",
    "runtime": "triton.runtime.os.system('touch PWNED')",
    "core": "tl.core.inspect.os.system('touch PWNED')",
    "conditional": "(tl if N else tl).core.inspect.os.system('touch PWNED')",
    "alias": "m = tl.core.inspect\n    m.os.system('touch PWNED')",
    "argument": "helper(tl.core)",
    "getattr": "getattr(tl.core, 'inspect')",
    "dunder": "tl.load.__globals__['os'].system('touch PWNED')",
    "import": "import os\n    os.system('touch PWNED')",
    "evaluation": "eval('1')",
    "enumeration": "tl.PropagateNan.mro()[-1]",
    "mathematics": "import math\n    helper(math)",
    "unbound": "if N is None:\n        getattr = 1\n    getattr(tl.core, 'inspect')",
    "builtins": "tl.core.builtins.eval('1')",
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_hostile_kernels_do_not_run(name: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    mark = tmp_path / "PWNED"
    body = REFUSED[name].replace("PWNED", str(mark))
    text = HEAD + f"@triton.jit\ndef helper(m):\n    m.inspect.os.system('touch {mark}')\n"
    text += f"@triton.jit\ndef k(x, N: tl.constexpr):\n    {body}\n    tl.store(x, N)\n"
    launch = KernelLaunch(source=parse_source(text, tmp_path / "k.py"), kernel="k")
    with pytest.raises(AdvisorError):
        inspect_launch(launch, Target(backend="cuda", arch=90), POOL, sass=False)
    assert not mark.exists()


HELPER = "@triton.jit\ndef helper(m: tl.constexpr = {}):\n    {}\n"
OPENED = "builtins.open('PWNED', 'w')"
ASKED = f"m.get_capture_scope().get('tl').core.{OPENED}"
HELD = {  # what is defined above, the kernel's parameter, its body, and what is given for the parameter
    "default": ("", "N: tl.constexpr = tl.core", f"N.{OPENED}", None),
    "default of a helper": (HELPER.format("tl.core", f"m.{OPENED}"), "N", "helper()", None),
    "function as a default": (HELPER.format("tl.core.builtins.open", "m('PWNED', 'w')"), "N", "helper()", None),
    "global": ("HOLDS = tl.constexpr((tl.core, 1))\n", "N", f"HOLDS[0].{OPENED}", None),
    "constant": ("", "N: tl.constexpr", f"N.{OPENED}", Symbol("tl.core")),
    "constant in a tuple": ("", "N: tl.constexpr", f"N[0].{OPENED}", (Symbol("tl.core"),)),
    "method of a function": ("", "N: tl.constexpr = tl.sigmoid", f"N.get_capture_scope().get('core').{OPENED}", None),
    "method of a helper": (HELPER.format("1", ASKED), "N", "helper(helper)", None),
    "Python of a helper": (
        HELPER.format("1", ASKED.replace("m.", "m.value.")) + "@triton.jit\ndef other(m):\n    m.fn(m)\n",
        "N",
        "other(helper)",
        None,
    ),
}


@pytest.mark.parametrize("name", list(HELD))
def test_hostile_constants_lead_nowhere(name: str, tmp_path: Path) -> None:
    """Of a parameter, no chain tells where its attributes lead: what holds a module, or a function from elsewhere, is given to none."""
    pytest.importorskip("triton")
    mark = tmp_path / "PWNED"
    above, parameter, body, given = HELD[name]
    text = f"{HEAD}{above}@triton.jit\ndef k(x, {parameter}):\n    {body}\n    tl.store(x, 1.0)\n".replace("PWNED", str(mark))
    launch = KernelLaunch(source=parse_source(text, tmp_path / "k.py"), kernel="k", given=Given(constexprs={"N": given} if given else {}))
    with pytest.raises((CompileError, ReachError), match=r"is not triton's language|is not read"):
        inspect_launch(launch, Target(backend="cuda", arch=90), POOL, sass=False)
    assert not mark.exists()


@pytest.mark.parametrize("given", ["tl.float16", "tl.sigmoid", "tl.exp"])
def test_types_and_functions_of_triton_can_be_given(given: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    use = "tl.load(x).to(N)" if given == "tl.float16" else "N(tl.load(x))"
    text = f"{HEAD}@triton.jit\ndef k(x, N: tl.constexpr = {given}):\n    tl.store(x, {use})\n"
    for constants in ({}, {"N": Symbol(given)}):
        asked = Given(types={"x": "*fp32"}, constexprs=constants)
        launch = KernelLaunch(source=parse_source(text, tmp_path / "k.py"), kernel="k", given=asked)
        assert "tt.store" in inspect_launch(launch, SM_90, POOL, sass=False).compiled.ttir


@pytest.mark.parametrize(("default", "length"), [("(2, 3)", 2), ("[2, 3]", 2), ("()", 0)])
def test_defaults_are_kept_in_their_place(default: str, length: int, tmp_path: Path) -> None:
    """One that is left out after another makes a header that is no Python."""
    pytest.importorskip("triton")
    text = f"{HEAD}@triton.jit\ndef k(x, B: tl.constexpr = 64, S: tl.constexpr = {default}):\n    tl.store(x + tl.arange(0, B), len(S))\n"
    launch = KernelLaunch(source=parse_source(text, tmp_path / "k.py"), kernel="k", given=Given(types={"x": "*i32"}))
    assert f"dense<{length}> : tensor<64xi32>" in inspect_launch(launch, SM_90, POOL, sass=False).compiled.ttir


def test_defaults_decorators_and_annotations_do_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "PWNED"
    touch = f"os.system('touch {mark}')"
    text = HEAD + f"@(lambda f: ({touch}, f)[1])\n@triton.jit\ndef k(x: {touch}, N: tl.constexpr = {touch}):\n    tl.store(x, 1.0)\n"
    rebuilt = rebuild(parse_source(text, tmp_path / "k.py"), "k")
    assert "os.system" not in "".join(rebuilt.modules.values())


def test_what_would_have_to_run_is_named() -> None:
    text = HEAD + "SIZE = os.cpu_count()\n@triton.jit\ndef k(x):\n    tl.store(x, SIZE)\n"
    with pytest.raises(RebuildError, match="SIZE"):
        rebuild(parse_source(text, "k.py"), "k")


COUNTED = """
STEP = 2

@triton.constexpr_function
def digits(n):
    return n.bit_length()

@triton.constexpr_function
def padded(n, least: int = 16):
    p = max(least, 1)
    while p < n:
        p *= STEP
    return p if digits(p) < 31 else n
"""
PADS = (
    "import triton.language as tl\n{0}\n@triton.jit\ndef k(x, D: tl.constexpr):\n    B: tl.constexpr = {1}(D)\n"
    "    tl.store(x + tl.arange(0, B), 1.0)\n"
)


@pytest.mark.parametrize(("where", "name"), [(COUNTED, "padded"), ("from sizes import padded as p", "p"), ("import sizes", "sizes.padded")])
def test_constexpr_functions_are_called(where: str, name: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "sizes.py").write_text("import triton\n" + COUNTED, encoding="utf-8")
    source = parse_source("import triton\n" + PADS.format(where, name), tmp_path / "k.py")
    found = inspect_launch(KernelLaunch(source=source, kernel="k", given=Given(constexprs={"D": 100})), SM_90, POOL, sass=False)
    assert "tensor<128x" in found.compiled.ttir
    assert parse_source("import triton\n" + COUNTED + "A = padded(100)", "k.py").constant("A") == 128  # where a file launches, too


VALUES = (
    HEAD
    + """
import torch
from triton.language.core import _unwrap_if_constexpr

LARGEST = tl.constexpr(65504.0)

def plain(o):
    return o.value if isinstance(o, tl.constexpr) else o

@tl.constexpr
def int_type(bits: tl.constexpr, signed: tl.constexpr) -> tl.dtype:
    bits = plain(bits)
    return tl.core.get_int_dtype(bits, plain(signed))

@tl.constexpr
def sign(bits: tl.constexpr) -> int:
    return 1 << (_unwrap_if_constexpr(bits) - 1)

@triton.jit
def k(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < 3, other=LARGEST)
    bits: tl.constexpr = v.dtype.primitive_bitwidth
    low: tl.constexpr = sign(bits)
    t = int_type(bits, False)
    tl.store(y + i, v.to(t, bitcast=True) ^ tl.full((), value=low, dtype=t))
"""
)


def test_functions_that_are_constants_are_called(tmp_path: Path) -> None:
    """As in FlagGems' sort: functions under `@tl.constexpr`, and what they call."""
    pytest.importorskip("triton")
    launch = KernelLaunch(
        source=parse_source(VALUES, tmp_path / "k.py"), kernel="k", given=Given(types={"x": "*fp16", "y": "*u16"}, constexprs={"B": 16})
    )
    text = inspect_launch(launch, SM_90, POOL, sass=False).compiled.ttir
    assert "tensor<16xf16> -> tensor<16xi16>" in text and "-32768" in text and "6.550400e+04" in text


def test_a_branch_that_is_left_out_may_raise(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    text = HEAD + "@triton.jit\ndef k(x, N: tl.constexpr):\n    if N == 1:\n        tl.store(x, 1.0)\n"
    text += "    else:\n        raise ValueError(f'{N} is not 1')\n"
    launch = KernelLaunch(source=parse_source(text, tmp_path / "k.py"), kernel="k", given=Given(constexprs={"N": 1}))
    assert "tt.store" in inspect_launch(launch, SM_90, POOL, sass=False).compiled.ttir
    launch = KernelLaunch(source=launch.source, kernel="k", given=Given(constexprs={"N": 2}))
    with pytest.raises(CompileError, match="Raise"):
        inspect_launch(launch, SM_90, POOL, sass=False)


@pytest.mark.parametrize("decorator", ["triton.constexpr_function", "tl.constexpr", "through"])
@pytest.mark.parametrize(
    "body",
    [
        "return os.getpid()",
        "return tl.core.inspect.os.getpid()",
        "return n.to_bytes(1)",
        "return [0 for eval in (1,)] + eval('1')",
        "return max([n], key=n.to_bytes)",
        "f = n.to_bytes\n    return f(1)",
        "return n.__class__",
        "n.real = 1\n    return 1",
        "import os\n    return 1",
        "return (lambda: 1)()",
        "return open('x')",
        "return f'{n.real}'",
    ],
)
def test_constexpr_functions_do_nothing_but_reckon(body: str, decorator: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    functions = f"@{decorator}\ndef f(n):\n    {body}\n"
    if decorator == "through":  # what such a function calls is held to the same
        functions = f"def g(n):\n    {body}\n@tl.constexpr\ndef f(n):\n    return g(n)\n"
    text = HEAD + PADS.format(functions, "f")
    launch = KernelLaunch(source=parse_source(text, tmp_path / "k.py"), kernel="k", given=Given(constexprs={"D": 100}))
    why = "nothing but reckon|would run Python|is not read|is neither a literal|is not triton's language"
    with pytest.raises((RebuildError, CompileError), match=why):
        inspect_launch(launch, SM_90, POOL, sass=False)


REEXPORTED = (
    "from pack.triton_utils import tl, triton, tldevice as device\n@triton.jit\ndef k(x):\n    tl.store(x, device.exp(tl.load(x)))\n"
)


@pytest.mark.parametrize(
    "module",
    [
        None,  # not to be read: taken at its name
        "if READY:\n    import triton\n    import triton.language as tl\n    from triton.language.extra import libdevice as tldevice\n"
        "else:\n    tl = triton = tldevice = Placeholder()\n",
        "from .more import tl, triton, libdevice as tldevice\n",
    ],
)
def test_triton_imported_from_elsewhere_is_triton(module: str | None, tmp_path: Path) -> None:
    """As in `from vllm.triton_utils import tl, triton`."""
    if module is not None:
        (tmp_path / "pack").mkdir()
        (tmp_path / "pack" / "triton_utils.py").write_text(module, encoding="utf-8")
        (tmp_path / "pack" / "more.py").write_text("import triton, triton.language as tl\nfrom triton.language.extra import libdevice\n")
    source = parse_source(REEXPORTED, tmp_path / "k.py")
    assert {"tl", "triton", "device"} <= source.module_names.triton_roots
    prelude = rebuild(source, "k").modules["rebuilt_0_prelude.py"]
    assert "import triton.language.extra.libdevice as device" in prelude and "pack" not in prelude


SHIM = """from pack.vendors import backend
try:
    tl_extra_shim = backend.module_of_the_vendor()
except ImportError:
    import triton
    try:
        tl_extra_shim = triton.language.extra.libdevice
    except AttributeError:
        tl_extra_shim = triton.language.math
"""


@pytest.mark.parametrize("shim", [None, SHIM])
@pytest.mark.parametrize("call", ["tl_extra_shim.tanh", "tanh"])
def test_a_shim_of_the_mathematical_functions_stands_for_tritons_own(shim: str | None, call: str, tmp_path: Path) -> None:
    """As in FlagGems: `from flag_gems.utils import tl_extra_shim`."""
    if shim is not None:
        (tmp_path / "pack").mkdir()
        (tmp_path / "pack" / "__init__.py").write_text("from .shim import tl_extra_shim\n", encoding="utf-8")
        (tmp_path / "pack" / "shim.py").write_text(shim, encoding="utf-8")
    text = HEAD + "from pack import tl_extra_shim\ntanh = tl_extra_shim.tanh\n"
    source = parse_source(text + f"@triton.jit\ndef k(x):\n    tl.store(x, {call}(tl.load(x)))\n", tmp_path / "k.py")
    assert "import triton.language.extra.libdevice as tl_extra_shim" in rebuild(source, "k").modules["rebuilt_0_prelude.py"]


@pytest.mark.parametrize(
    "shim", ["class tl_extra_shim:\n    pass\n", "from math import erf as tl_extra_shim\n", "tl_extra_shim = vendor()\n"]
)
def test_something_else_of_a_shims_name_is_refused(shim: str, tmp_path: Path) -> None:
    (tmp_path / "pack.py").write_text(shim, encoding="utf-8")
    text = HEAD + "from pack import tl_extra_shim\n@triton.jit\ndef k(x):\n    tl.store(x, tl_extra_shim.tanh(tl.load(x)))\n"
    with pytest.raises(RebuildError, match="tl_extra_shim is neither"):
        rebuild(parse_source(text, tmp_path / "k.py"), "k")


def test_the_mathematical_functions_of_another_vendor_are_tritons_own() -> None:
    text = HEAD + "from triton.language.extra.intel import libdevice\n@triton.jit\ndef k(x):\n    tl.store(x, libdevice.rint(tl.load(x)))\n"
    launch = KernelLaunch(source=parse_source(text, "k.py"), kernel="k", given=Given(types={"x": "*fp32"}))
    found = inspect_launch(launch, Target(backend="cuda", arch=90), POOL, sass=False)
    assert "__nv_rint" in found.compiled.ttir


def test_triton_imported_by_an_enclosing_function_is_triton() -> None:
    text = "def make():\n    import triton\n    import triton.language as tl\n\n    @triton.jit\n    def k(x):\n        tl.store(x, 1.0)\n"
    assert "tl.store" in rebuild(parse_source(text, "k.py"), "k").modules["rebuilt_0.py"]


def test_what_a_kernel_asks_torch_or_an_enum_is_answered_by_numbers() -> None:
    text = (
        "import torch as th\nimport triton\nimport triton.language as tl\nfrom enum import Enum\n"
        "class Kind(Enum):\n    GENERAL = 0\n    NF4 = 1\nNF4 = tl.constexpr(Kind.NF4.value)\n\n@triton.jit\ndef k(x, y):\n"
        "    LOW: tl.constexpr = th.finfo(th.float8_e4m3fn).min\n    KIND: tl.constexpr = NF4\n"
        "    if tl.constexpr(th.version.hip is not None):\n"
        "        tl.store(y, 1)\n    tl.store(x, tl.maximum(tl.load(x), LOW) + {more})\n"
    )
    modules = rebuild(parse_source(text.format(more=0), "k.py").on("cuda", 90), "k").modules
    module = modules["rebuilt_0.py"]
    assert "NF4 = tl.constexpr(1)" in modules["rebuilt_0_prelude.py"]
    assert "LOW: tl.constexpr = -448.0" in module and "tl.constexpr(False)" in module
    on_amd = rebuild(parse_source(text.format(more=0), "k.py").on("hip", "gfx942"), "k").modules["rebuilt_0.py"]
    assert "tl.constexpr(True)" in on_amd
    with pytest.raises(RebuildError, match="th is neither a literal"):
        rebuild(parse_source(text.format(more="th.rand(1)"), "k.py").on("cuda", 90), "k")


def test_a_constant_under_the_condition_of_its_kernel_is_known() -> None:
    """Set once, in the branch in which the kernel is defined: whether it runs is not the question."""
    text = (
        "import triton\nimport triton.language as tl\nfrom elsewhere import there, is_ROCM\nif there():\n"
        "    SIDE = tl.constexpr(32 * 16)\n    IS_ROCM = tl.constexpr(is_ROCM())\n    @triton.jit\n"
        "    def k(x):\n        tl.store(x, SIDE + IS_ROCM)\n"
    )
    prelude = rebuild(parse_source(text, "k.py").on("cuda", 90), "k").modules["rebuilt_0_prelude.py"]
    assert "SIDE = tl.constexpr(512)" in prelude and "IS_ROCM = tl.constexpr(False)" in prelude
    with pytest.raises(RebuildError, match="line 5 under a condition that is unknown"):
        rebuild(parse_source(text.replace("    @", "@").replace("    def k", "def k"), "k.py").on("cuda", 90), "k")


def test_another_module_of_the_name_is_not_triton(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "triton_utils.py").write_text("import os as tl\nimport triton\n", encoding="utf-8")
    with pytest.raises(RebuildError, match="tl is neither"):
        rebuild(parse_source(REEXPORTED, tmp_path / "k.py"), "k")


def test_what_a_package_hands_on_is_found_where_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("from .inner import twice\n", encoding="utf-8")
    (tmp_path / "pack" / "inner.py").write_text(HEAD + "@triton.jit\ndef twice(x):\n    return x + x\n", encoding="utf-8")
    text = HEAD + "from pack import twice as both\n@triton.jit\ndef k(x):\n    tl.store(x, both(tl.load(x)))\n"
    rebuilt = rebuild(parse_source(text, tmp_path / "k.py"), "k")
    assert "from rebuilt_1 import twice as both" in rebuilt.modules["rebuilt_0.py"]


def test_a_parameter_may_have_the_name_of_a_function_of_python() -> None:
    """`input` is a common name of a pointer; nothing of Python is meant."""
    text = HEAD + "@triton.jit\ndef k(input, out):\n    open = tl.load(input)\n    tl.store(out, open)\n"
    assert "tl.load(input)" in rebuild(parse_source(text, "k.py"), "k").modules["rebuilt_0.py"]
    with pytest.raises(RebuildError, match="input would run Python"):
        rebuild(parse_source(text.replace("k(input, out)", "k(out)"), "k.py"), "k")


WORKED_OUT = (
    HEAD
    + """
import math

ALPHA = tl.constexpr(math.sqrt(2.0 / math.pi))
CORES = tl.constexpr(os.cpu_count())

@triton.jit
def k(x_ptr, N: tl.constexpr = 3):
    x = tl.maximum(tl.load(x_ptr), math.log2(8.0), propagate_nan=tl.PropagateNan.ALL)
    tl.store(x_ptr, x * ALPHA * N)
"""
)


def test_mathematics_is_worked_out() -> None:
    source = parse_source(WORKED_OUT, "k.py")
    assert source.constant("ALPHA") == Constexpr((2 / math.pi) ** 0.5)
    with pytest.raises(NotLiteralError, match="cpu_count"):
        source.constant("CORES")


def test_mathematics_compiles() -> None:
    pytest.importorskip("triton")
    launch = KernelLaunch(source=parse_source(WORKED_OUT, "k.py"), kernel="k", given=Given(element="fp32"))
    inspection = inspect_launch(launch, Target(backend="cuda", arch=90), POOL, sass=False)
    assert "arith.maximumf" in inspection.compiled.ttir and inspection.guess.constexprs["N"] == 3


def test_a_module_that_only_looks_like_mathematics_is_refused(tmp_path: Path) -> None:
    text = HEAD + "import os as math\n@triton.jit\ndef k(x):\n    tl.store(x, math.getpid())\n"
    with pytest.raises(RebuildError, match="math is neither"):
        rebuild(parse_source(text, tmp_path / "k.py"), "k")


@pytest.mark.parametrize(
    "name", ["tl.advanced_long_ago(x)", "tl.math.nothing_of_this_name", "tl._experimental_make_tensor_descriptor(x, [1], [1], [1])"]
)
def test_what_another_triton_has_is_said_to_be_absent(name: str) -> None:
    pytest.importorskip("triton")
    source = parse_source(HEAD + f"@triton.jit\ndef k(x):\n    tl.store(x, {name})\n", "k.py")
    with pytest.raises(CompileError, match=rf"Triton \S+ has no {name.split('(')[0]}: .* another version") as caught:
        inspect_launch(KernelLaunch(source=source, kernel="k"), Target(backend="cuda", arch=90), POOL, sass=False)
    assert caught.value.kind == "absent"  # no other guess is tried
    line = source.text[: source.text.index("tl.store")].count("\n") + 1
    assert f": line {line} is written for" in str(caught.value) and "ADVISOR_TRITON_PYTHON" in str(caught.value)


def test_a_misspelt_name_is_told_from_another_version() -> None:
    pytest.importorskip("triton")
    source = parse_source(HEAD + "@triton.jit\ndef k(x):\n    tl.store(x, tl.laod(x))\n", "k.py")
    with pytest.raises(CompileError, match=r"has no tl\.laod: line \d+ misspells load, or is written for another version"):
        inspect_launch(KernelLaunch(source=source, kernel="k"), Target(backend="cuda", arch=90), POOL, sass=False)


EXTENSION = (
    HEAD
    + """
@triton.jit
def first():
    return tl.program_id(0)

@triton.jit
def unused():
    return os.getpid()
"""
)
CALLS_A_FILE = HEAD + "from pack import extension as ext\n@triton.jit\ndef k(x):\n    tl.store(x + BODY, 1.0)\n"


def test_kernels_are_called_as_attributes_of_their_file(tmp_path: Path) -> None:
    """As in FlagGems: `from flag_gems.utils import triton_lang_extension as tle`, `tle.program_id(0)`."""
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "extension.py").write_text(EXTENSION, encoding="utf-8")
    source = parse_source(CALLS_A_FILE.replace("BODY", "ext.first()"), tmp_path / "k.py")
    assert "getpid" not in "".join(rebuild(source, "k").modules.values())
    if importlib.util.find_spec("triton") is not None:
        inspection = inspect_launch(KernelLaunch(source=source, kernel="k"), Target(backend="cuda", arch=90), POOL, sass=False)
        assert "tt.get_program_id" in inspection.compiled.ttir


@pytest.mark.parametrize("body", ["ext.os.getpid()", "ext.unused()", "ext.first.fn.os", "ext.tl.core.inspect.os.getpid()", "helper(ext)"])
def test_a_file_leads_to_nothing_but_its_kernels(body: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "extension.py").write_text(EXTENSION, encoding="utf-8")
    text = CALLS_A_FILE.replace("BODY", f"ext.first() + {body}") + "@triton.jit\ndef helper(m):\n    return m.triton\n"
    with pytest.raises(InputError, match=r"neither|refused|private") as caught:
        launch = KernelLaunch(source=parse_source(text, tmp_path / "k.py"), kernel="k")
        inspect_launch(launch, Target(backend="cuda", arch=90), POOL, sass=False)
    assert not isinstance(caught.value, CompileError) or caught.value.kind == "refused"


@pytest.mark.parametrize(("backend", "kept", "other"), [("cuda", "x + 1", "x + 2"), ("hip", "x + 2", "x + 1")])
def test_what_a_kernel_imports_is_read_for_its_target(tmp_path: Path, backend: str, kept: str, other: str) -> None:
    head = "import torch\nimport triton\nimport triton.language as tl\n"
    helper = head + (
        "if torch.version.hip:\n    @triton.jit\n    def rounded(x):\n        return x + 2\n"
        "else:\n    @triton.jit\n    def rounded(x):\n        return x + 1\n"
    )
    (tmp_path / "helper.py").write_text(helper)
    text = head + "from helper import rounded\n@triton.jit\ndef k(p):\n    tl.store(p, rounded(tl.load(p)))\n"
    source = parse_source(text, tmp_path / "k.py")
    with pytest.raises(RebuildError):
        rebuild(source, "k")  # for no target it is not known which counts
    found = "".join(rebuild(source.on(backend), "k").modules.values())
    assert kept in found and other not in found


@pytest.mark.parametrize(
    ("around", "called", "import_"),
    [
        ("from triton.language.extra import libdevice", "libdevice.rint", "from triton.language.extra import libdevice as libdevice"),
        ("from triton.language.extra import libdevice\n    up = libdevice.ceil", "up", "up = libdevice.ceil"),
        ("up = tl.math.ceil", "up", "up = tl.math.ceil"),
    ],
)
def test_what_an_enclosing_function_gives_a_name_is_what_the_kernel_sees(around: str, called: str, import_: str) -> None:
    text = f"{HEAD}def make():\n    {around}\n\n    @triton.jit\n    def k(x):\n        tl.store(x, {called}(tl.load(x)))\n    return k\n"
    assert import_ in rebuild(parse_source(text, "k.py"), "k").modules["rebuilt_0_prelude.py"]


def test_a_name_of_tritons_that_another_file_hands_on_is_tritons(tmp_path: Path) -> None:
    (tmp_path / "asked.py").write_text("from triton.language.target_info import is_cuda as on_cuda\n", encoding="utf-8")
    text = HEAD + "from asked import on_cuda as asks\n@triton.jit\ndef k(x):\n    if asks():\n        tl.store(x, 1.0)\n"
    prelude = rebuild(parse_source(text, tmp_path / "k.py"), "k").modules["rebuilt_0_prelude.py"]
    assert "from triton.language.target_info import is_cuda as asks" in prelude


def test_a_default_that_is_not_known_leaves_a_header_that_python_takes() -> None:
    text = HEAD + "from there import least\n@triton.jit\ndef k(x, A: tl.constexpr = 2, LOW: tl.constexpr = least(), N: tl.constexpr = 1):\n"
    module = rebuild(parse_source(text + "    tl.store(x, LOW)\n", "k.py"), "k").modules["rebuilt_0.py"]
    assert "LOW: tl.constexpr=None, N: tl.constexpr=1" in module
    compile(module, "k.py", "exec")


LIMITED = """import torch
import triton
import triton.language as tl

TOP = tl.constexpr(torch.iinfo(torch.int8).max)

@triton.jit
def k(x_ptr, y_ptr, B: tl.constexpr, LOW: tl.constexpr = torch.finfo(torch.float8_e4m3fn).min):
    i = tl.arange(0, B)
    tl.store(y_ptr + i, tl.minimum(tl.maximum(tl.load(x_ptr + i), LOW), TOP))
"""


def test_limits_of_types_are_known_without_torch() -> None:
    """Those of a kernel's default, and of a name that it takes from its file."""
    launch = KernelLaunch(source=parse_source(LIMITED, "k.py"), kernel="k", given=Given(element="fp32"))
    ttir = inspect_launch(launch, SM_90, POOL, sass=False).compiled.ttir
    assert "-4.480000e+02" in ttir and "1.270000e+02" in ttir


def test_a_constant_of_two_branches_is_known_where_one_is_taken() -> None:
    given = "try:\n    HAS = True\nexcept ImportError:\n    HAS = False\nif HAS:\n    C = tl.constexpr(3.0)\nelse:\n    C = 4.0\n"
    text = f"{HEAD}{given}@triton.jit\ndef k(x):\n    tl.store(x, C)\n"
    assert "C = tl.constexpr(3.0)" in rebuild(parse_source(text, "k.py"), "k").modules["rebuilt_0_prelude.py"]


def test_an_assumption_of_a_kernel_is_compiled() -> None:
    """`tl.assume` is an operation of another dialect in Triton's own IR."""
    pytest.importorskip("triton")
    source = parse_source(HEAD + "@triton.jit\ndef k(x, n):\n    tl.assume(n > 0)\n    tl.store(x, n)\n", "k.py")
    found = inspect_launch(KernelLaunch(source=source, kernel="k"), Target(backend="cuda", arch=90), POOL, sass=False)
    assert "llvm.intr.assume" in found.compiled.ttir


COMMENTED = "/* Of one\n word. */ mov.u32 $0, 0; // Unpack `a` (it is one), into `b`."
CHOSEN = "lop3.b32 $0, 1, 2, 3, (0xf0 & 0xcc) | 0xaa;"
FUNCTION = "y = tl.inline_asm_elementwise({!r}, '={}', [], tl.int32, False, 1)"
LANGUAGE_NAMES = {
    "a module's function": ("philox = tl.random.philox\n", "N: tl.constexpr = 1", "tl.store(x, 1.0)"),
    "an alias of triton": ("import triton as T\nF = T.language.float32\n", "N: tl.constexpr = 1", "tl.store(x, tl.load(x).to(F))"),
    "comments of assembly": ("", "N: tl.constexpr = 1", FUNCTION.format(COMMENTED, "r")),
    "a sum in assembly": ("", "N: tl.constexpr = 1", FUNCTION.format(CHOSEN, "r")),
    "what a type has": ("W = tl.constexpr(tl.float32.primitive_bitwidth)\n", "N: tl.constexpr = 1", "tl.store(x, W)"),
    "a type under another name": (
        "from triton.language import float32 as f32\n",
        "T: tl.constexpr = f32",
        "tl.store(x, tl.full((), 1, T))",
    ),
    "an enumeration of a type": ("", "N: tl.constexpr = 1", "tl.static_assert(tl.int8.int_signedness == tl.dtype.SIGNEDNESS.SIGNED)"),
}


@pytest.mark.parametrize("how", list(LANGUAGE_NAMES))
def test_names_of_the_language_are_read(how: str) -> None:
    pytest.importorskip("triton")
    above, parameter, body = LANGUAGE_NAMES[how]
    source = parse_source(f"{HEAD}{above}@triton.jit\ndef k(x, {parameter}):\n    {body}\n", "k.py")
    assert inspect_launch(KernelLaunch(source=source, kernel="k"), Target(backend="cuda", arch=90), POOL, sass=False).compiled.ptx


def test_comments_of_amds_assembly_are_read() -> None:
    pytest.importorskip("triton")
    body = FUNCTION.format("v_mov_b32 $0, 1 ; v_mfma_ is (not) one, of the machine.", "v")
    source = parse_source(f"{HEAD}@triton.jit\ndef k(x):\n    {body}\n    tl.store(x, y)\n", "k.py")
    found = inspect_launch(KernelLaunch(source=source, kernel="k"), Target(backend="hip", arch="gfx942", warp_size=64), POOL, sass=False)
    assert "v_mfma_" in found.compiled.amdgcn and matrix_instruction(found.compiled) is None


@pytest.mark.parametrize(
    "again", ["import shim as tl", "from shim import store as tl", "tl = other", "tl = shim", "def tl():\n    pass", "class tl:\n    pass"]
)
def test_a_name_that_is_bound_again_is_tritons_no_more(again: str, tmp_path: Path) -> None:
    """Python takes the last; a change could have another function judged than the one that runs."""
    (tmp_path / "shim.py").write_text("import triton\n@triton.jit\ndef store(p, v):\n    pass\n", encoding="utf-8")
    text = f"{HEAD}import shim\n@triton.jit\ndef other(p, v):\n    pass\n{again}\n@triton.jit\ndef k(x):\n    tl.store(x, 1.0)\n"
    source = parse_source(text, tmp_path / "k.py")
    with pytest.raises(UsageError, match=r"cannot tell: tl is bound again in line .; give what binds the name again another one"):
        rebuild(source, "k")
