"""What the callers of a launcher give its arguments."""

from __future__ import annotations

import ast

import pytest

from advisor.python_source.callers import given_by_callers
from advisor.python_source.launch_site import LaunchSite
from advisor.python_source.launch_sites import grid_from_launches, is_handed, launches
from advisor.python_source.source import parse_source

KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def k(x_ptr, w_ptr, n, BLOCK: tl.constexpr, FLAG: tl.constexpr):
    pass

"""


def given(text, *, callers=()):
    """What the arguments of the function around the only launch are given: constants, and "something" for what is not None."""
    source = parse_source(KERNEL + text, "k.py").given(callers=tuple(parse_source(*each) for each in callers))
    ((scopes, _),) = launches(source, "k")
    return {name: "something" if value is None else value.value for name, value in given_by_callers(source, scopes).items()}


@pytest.mark.parametrize(
    ("callers", "flag"),
    [
        ("def user(x):\n    run(x, True)\n", True),
        ("def user(x, flag=False):\n    run(x, flag)\n", False),
        ("def user(x, limit=-100):\n    run(x, limit)\n", -100),
        ("def user(x, flag):\n    run(x, flag)\n", "something"),
        ("def user(x, flag: bool | None):\n    run(x, flag)\n", None),
        ("def user(x, weight=None):\n    weight = weight.contiguous()\n    run(x, weight)\n", None),
        ("def outer(x, flag=True):\n    inner(x, flag)\n\ndef inner(x, flag):\n    run(x, flag)\n", True),
        ("def user(x):\n    large, small = 16, 8\n    run(x, small)\n", 8),
    ],
    ids=["constant", "default", "negative", "required", "optional", "its-own-method", "two-calls-up", "local"],
)
def test_given_by_callers(callers, flag):
    assert given(f"def run(x, flag):\n    k[(1,)](x, x, 1, 64, flag)\n\n{callers}")["flag"] == flag


@pytest.mark.parametrize(
    "callers",
    [
        "def user(x):\n    run(x, True)\n    run(x, False)\n",  # they do not agree
        "def user(x, flag=False):\n    flag = x.ndim > 2\n    run(x, flag)\n",  # another value by then
        "def user(x, *more):\n    run(x, *more)\n",
        "def user(x, **more):\n    run(x, **more)\n",
        "class Other:\n    def user(self, x):\n        run(x, self.flag)\n",
        "def user(x, flag=None):\n    if flag is None:\n        flag = 8\n    run(x, flag)\n",
        "def user(x):\n    small = 8\n    small *= x.ndim\n    run(x, small)\n",
    ],
)
def test_given_by_callers_unknown(callers):
    assert "flag" not in given(f"def run(x, flag):\n    k[(1,)](x, x, 1, 64, flag)\n\n{callers}")


@pytest.mark.parametrize("call", ["tl.gather(x, 1, 0)", "torch.gather(x, 1, 0)", "nn.functional.gather(x, 1, 0)"])
def test_others_functions_of_the_name_are_not_callers(call):
    """As FlagGems' `gather(inp, dim, index)` beside kernels that say `tl.gather`."""
    other = f"import triton.language as tl\nimport torch\nfrom torch import nn\n\ndef f(x):\n    return {call}\n"
    assert given("def gather(x, dim, index):\n    k[(1,)](x, index, 1, 64, True)\n", callers=[(other, "other.py")]).get("index") != 0


AUTOGRAD = """
def run(x, weight, flag, mode):
    k[(1,)](x, weight, 1, 64, flag)

class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, flag=False, mode="llama"):
        ctx.flag = flag
        out = run(x, weight, flag, mode)
        mode = out
        return out

    @staticmethod
    def backward(ctx, grad):
        run(grad, None, ctx.flag, "llama")
"""


def test_given_by_callers_autograd():
    assert given(AUTOGRAD) == {"x": "something", "flag": False, "mode": "llama"}  # weight: one call has it, one has not


def test_given_by_callers_other_file():
    """Calls of other files count where these import the function."""
    other = "from k import run\n\ndef user(x):\n    run(x, True)\n", "other.py"
    stranger = "def run(x, flag):\n    pass\n\nrun(1, None)\n", "stranger.py"
    assert given("def run(x, flag):\n    k[(1,)](x, x, 1, 64, flag)\n", callers=(other, stranger))["flag"] is True


def test_given_by_callers_recursion():
    """Functions that call each other end."""
    text = "def run(x, flag):\n    k[(1,)](x, x, 1, 64, flag)\n    other(x, flag)\n\ndef other(x, flag):\n    run(x, flag)\n"
    assert given(text)["flag"] == "something"


def test_source_without_launch_function():
    source = parse_source(KERNEL + "k[(1,)](1, 2, 3, 64, True)\n", "k.py")
    assert given_by_callers(source, []) == {}
    assert isinstance(source.tree, ast.Module)


def test_an_argument_that_nobody_passes_is_followed():
    """`dx` is None where nobody calls: what stands for it has no line of its own in the file."""
    launch = "        k[(n,)](x, x, n, 64, True)\n    return dx, dw\n"
    text = "def run(dx: torch.Tensor | None, dw: torch.Tensor | None):\n    for x in (dx, dw):\n        n, m = x.shape\n" + launch
    found = grid_from_launches(parse_source(KERNEL + text, "k.py").on("cuda", 90), "k", {"n": 4096}, {}, ())
    assert found is not None and found.grid == (4096,)


CALLED = """
import torch, triton
@triton.jit
def k(x, w, b, y, M, N, K, HAS: "tl.constexpr"):
    pass
def run(x, w, b=None):
    M, K = x.shape
    y = torch.empty((M, w.shape[0]), dtype=x.dtype)
    k[(M,)](x, w, b, y, M, w.shape[0], K, HAS=b is not None)
TOKENS = 4096
if __name__ == "__main__":
    x = torch.randn((TOKENS, 512), device="cuda", dtype=torch.float16)
    w = torch.randn(512, 1024, device="cuda").half().requires_grad_()
    b = torch.zeros(size=(1024,), dtype=torch.float16)
    run(x, w.t(), b)
    triton.testing.do_bench(lambda: run(x, w.t(), b))
"""


@pytest.mark.parametrize(
    ("old", "new", "sizes", "has"),
    [
        ("", "", (4096, 1024, 512), True),
        ("TOKENS = 4096", "TOKENS = int(sys.argv[1])", (None, 1024, 512), True),
        ("    run(x, w.t(), b)\n", "    run(x[:8], w.t(), b)\n", (None, 1024, None), True),  # two calls that differ
        ("    run(x, w.t(), b)\n", "    run(x, w.t())\n", (4096, 1024, 512), False),
        ("torch.zeros(size=(1024,), dtype=torch.float16)", "made(1024)", (4096, 1024, 512), False),
    ],
)
def test_shapes_that_all_calls_agree_on_are_the_launches(old, new, sizes, has):
    source = parse_source(CALLED.replace(old, new) if old else CALLED, "k.py")
    ((scopes, call),) = launches(source, "k")
    site = LaunchSite(source, source.kernel("k"), scopes, call, None, None)
    values = {name: item.value for name, item in site.other_numbers({}, {}).items()}
    assert tuple(values.get(name) for name in ("M", "N", "K")) == sizes
    assert ("b" in given_by_callers(source, scopes)) is has


ONE_CALL = """def settings(n):
    return max(16, n // 8), 8 if n > 512 else 4

def run(x, block, warps, out):
    rows, n = x.shape
    k[(rows, triton.cdiv(n, block))](x, out, n, block, False, num_warps=warps)

def user(x):
    rows, n = x.shape
    block, warps = settings(n)
    x = x.float().contiguous()
    {call}
"""


@pytest.mark.parametrize(
    ("call", "known"),
    [
        ("run(x, block, warps, torch.empty_like(x))", True),
        ("run(x, out=torch.empty_like(x), warps=warps, block=block)", True),
        ("run(x, block, warps, torch.empty_like(x)); run(x, 64, 4, x)", False),
        ("run(x, *settings(n), torch.empty_like(x))", False),
    ],
)
def test_what_the_only_call_of_a_launcher_works_out_is_passed(call, known):
    source = parse_source(KERNEL + ONE_CALL.format(call=call), "k.py")
    ((scopes, launch),) = launches(source, "k")
    site = LaunchSite(source, source.kernel("k"), scopes, launch, None, None)
    constants, options = site.constants({"n": 1024}, ["num_warps"])
    found = constants["BLOCK"].value if "BLOCK" in constants else None, options["num_warps"].value if "num_warps" in options else None
    assert found == ((128, 8) if known else (None, None))
    if known:
        assert site.types() == {"x_ptr": "float32", "w_ptr": "float32"}


def test_a_launcher_that_calls_itself_is_followed_no_further():
    text = "def run(x, block):\n    k[(1,)](x, x, 1, block, False)\n    run(x, block * 2)\n"
    source = parse_source(KERNEL + text, "k.py")
    ((scopes, launch),) = launches(source, "k")
    assert "BLOCK" not in LaunchSite(source, source.kernel("k"), scopes, launch, None, None).constants({}, [])[0]


def test_elements_of_a_tensor_follow_from_the_shape_that_callers_give_it():
    source = parse_source(
        "import torch, triton\n@triton.jit\ndef k(x, n):\n    pass\n"
        "def run(offsets):\n    bags = offsets.numel() - 1\n    k[(bags,)](offsets, bags)\n"
        "if __name__ == '__main__':\n    B, D = 16384, 4\n    run(torch.zeros(B * D + 1, dtype=torch.int64))\n",
        "k.py",
    )
    found = grid_from_launches(source, "k", {})
    assert found is not None and found.grid == (65536,) and found.numbers["n"] == 65536


KEPT = """def settings(n):
    return triton.next_power_of_2(n), 8 if n > 512 else 4

class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, flag=True):
        rows, n = x.shape
        BLOCK, warps = settings(n)
        ctx.BLOCK, ctx.n = BLOCK, n
        ctx.warps = warps
        {more}
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        k[(dy.shape[0],)](dy, dy, ctx.n, ctx.BLOCK, ctx.flag, num_warps=ctx.warps)
        return dy, None
"""


@pytest.mark.parametrize(
    ("more", "block", "flag"),
    [
        ("ctx.flag = flag", 1024, True),
        ("ctx.flag, ctx.BLOCK = not flag, 64", None, False),  # it is given two values
        ("if flag is None:\n            ctx.flag = False\n        else:\n            ctx.flag = flag", 1024, True),
        ("other.flag = flag", 1024, None),
    ],
)
def test_what_forward_keeps_is_what_backward_passes(more, block, flag):
    source = parse_source(KERNEL + KEPT.format(more=more), "k.py")
    ((scopes, launch),) = launches(source, "k")
    site = LaunchSite(source, source.kernel("k"), scopes, launch, None, None)
    constants, options = site.constants({"n": 1024}, ["num_warps"])
    assert {name: item.value for name, item in constants.items()} == {
        name: value for name, value in (("BLOCK", block), ("FLAG", flag)) if value is not None
    }
    assert {name: item.value for name, item in options.items()} == {"num_warps": 8}


@pytest.mark.parametrize(
    ("strides", "block"),
    [
        ("*(x.stride(0), x.stride(1))", 64),
        ("*(x.stride(0), x.stride(1)) if x is not None else 0", 64),
        ("*(x.stride(0), *more)", None),
        ("*((1, 2) if x is not None else (3, 4))", None),
    ],
)
def test_what_stands_behind_a_tuple_that_is_spread_has_its_place(strides, block):
    """As in mamba's `selective_state_update`."""
    kernel = KERNEL.replace("x_ptr, w_ptr, n,", "x_ptr, first, second,")
    source = parse_source(f"{kernel}def run(x, more):\n    k[(1,)](x, {strides}, 64, FLAG=True)\n", "k.py")
    ((scopes, launch),) = launches(source, "k")
    constants, _ = LaunchSite(source, source.kernel("k"), scopes, launch, None, None).constants({}, [])
    assert (constants["BLOCK"].value if "BLOCK" in constants else None) == block


@pytest.mark.parametrize(
    ("before", "flag"),
    [
        ("if flag:", (True, set())),
        ("if not flag:", (False, set())),
        ("if x is None:\n        pass\n    elif flag:", (True, set())),
        ("if n > 4:", (True, {"default", "switch"})),
    ],
)
def test_a_flag_is_what_the_launch_stands_under(before, flag):
    """As in FBGEMM 8a938d6164: whatever its default is, which callers need not take."""
    source = parse_source(f"{KERNEL}def run(x, n, flag=True):\n    {before}\n        k[(1,)](x, x, n, 64, flag)\n", "k.py")
    ((scopes, launch),) = launches(source, "k")
    constants, _ = LaunchSite(source, source.kernel("k"), scopes, launch, None, None).constants({}, [])
    assert (constants["FLAG"].value, {*constants["FLAG"].hangs}) == flag


def test_what_a_grid_is_given_is_changed_by_nothing():
    """As in attorch 7a43008bcc: a launcher whose names may all be changed, for it asks the kernel for its best configuration."""
    text = "def run(x, n):\n    grid = lambda META: (triton.cdiv(n, META['BLOCK']),)\n    k[grid](x, x, n, FLAG=True)\n"
    text += "    META = k.best_config.kwargs\n    META['BLOCK'] = 1\n    return META\n"
    found = grid_from_launches(parse_source(KERNEL + text, "k.py"), "k", {"n": 1024, "BLOCK": 64})
    assert found is not None and found.grid == (16,)


@pytest.mark.parametrize(
    ("body", "passed", "handed"),
    [("pass", "block", True), ("pass", "ctx.block", True), ("block = block * 2", "block", False), ("block = 64", "block", False)],
)
def test_what_a_caller_passes_and_is_not_known_is_handed_all_the_same(body, passed, handed):
    """As in Liger-Kernel b7025a70: what other launches of the file pass is as good a guess then."""
    text = f"def run(ctx, x, block):\n    {body}\n    k[(1,)](x, x, 1, {passed}, False)\n\ndef user(ctx, x):\n    run(ctx, x, made(x))\n"
    source = parse_source(KERNEL + text, "k.py")
    ((scopes, launch),) = launches(source, "k")
    assert is_handed(LaunchSite(source, source.kernel("k"), scopes, launch, None, None), "BLOCK") is handed
