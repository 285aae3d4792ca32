"""Which calls launch a kernel, and which launch something else that has its name."""

from __future__ import annotations

import ast
import textwrap

import pytest

from advisor.python_source.launch_sites import launches
from advisor.python_source.source import parse_source

HEAD = "import triton\nimport triton.language as tl\n"
KERNEL = "@triton.jit\ndef {0}(x, BLOCK: tl.constexpr):\n    tl.store(x, BLOCK)\n"
KERNELS = HEAD + KERNEL.format("f") + KERNEL.format("g") + "kernel = f\n"


@pytest.mark.parametrize(
    "launcher",
    [
        "def run(x):\n    kernel[(1,)](x, 64)\n",
        "def run(x):\n    f[(1,)](x, 64)\n",
        "def run(x):\n    wrap_triton(kernel)[(1,)](x, 64)\n",
        "def run(x):\n    global kernel\n    kernel[(1,)](x, 64)\n",
        "def run(x):\n    def other(kernel):\n        pass\n    kernel[(1,)](x, 64)\n",
        "kernel[(1,)](x, 64)\n",
        "def run(x):\n    fast = f\n    fast[(1,)](x, 64)\n",
        "def run(x):\n    fast = f if x.numel() > 9 else g\n    fast[(1,)](x, 64)\n",
        "def run(x):\n    if x.numel() > 9:\n        fast = g\n    else:\n        fast = f\n    fast[(1,)](x, 64)\n",
        "def run(x):\n    fast = f\n    def inner():\n        fast[(1,)](x, 64)\n",
    ],
)
def test_a_kernel_is_launched_by_its_names(launcher: str) -> None:
    assert len(list(launches(parse_source(KERNELS + launcher, "k.py"), "f"))) == 1


@pytest.mark.parametrize(
    "launcher",
    [
        "def run(x):\n    kernel = g\n    kernel[(1,)](x, 64)\n",
        "def run(x):\n    f = g\n    f[(1,)](x, 64)\n",
        "def run(x):\n    if x:\n        fast = g\n        fast[(1,)](x, 64)\n    else:\n        fast = f\n",
        "def run(x, kernel):\n    kernel[(1,)](x, 64)\n",
        "def run(x, kernel):\n    kernel.run(x, 64, grid=(1,), warmup=False)\n",
        "def run(x):\n    f.run(x, 64)\n",
        "def run(x):\n    f.run(x, 64, grid=(1,), warmup=True)\n",
        "def run(x):\n    f.warmup(x, 64, grid=(1,))\n",
        "def run(x, *, kernel):\n    def inner():\n        wrap_triton(kernel)[(1,)](x, 64)\n",
        "async def run(x, kernel):\n    kernel[(1,)](x, 64)\n",
        "run = lambda x, kernel: kernel[(1,)](x, 64)\n",
        "def run(x):\n    fast = f\n    for fast in (g,):\n        fast[(1,)](x, 64)\n",
        "def run(x, fast=f):\n    fast[(1,)](x, 64)\n",
        "def run(x):\n    fast = f\n    fast = wrapped(fast)\n    fast[(1,)](x, 64)\n",
        "def run(x):\n    for kernel in (f, g):\n        kernel[(1,)](x, 64)\n",
        "def run(x):\n    [kernel[(1,)](x, 64) for kernel in (f, g)]\n",
        "def run(x):\n    from elsewhere import g as kernel\n    kernel[(1,)](x, 64)\n",
        "def run(x):\n    def kernel():\n        pass\n    kernel[(1,)](x, 64)\n",
        "def run(x):\n    global kernel\n    kernel = g\n    kernel[(1,)](x, 64)\n",
        "def choose():\n    global kernel\n    kernel = g\ndef run(x):\n    kernel[(1,)](x, 64)\n",
    ],
)
def test_what_a_function_binds_is_another(launcher: str) -> None:
    assert not list(launches(parse_source(KERNELS + launcher, "k.py"), "f"))


def test_a_kernel_of_a_function_is_launched_in_it() -> None:
    kernel = textwrap.indent(KERNEL.format("f"), "    ")
    text = f"{HEAD}def run(x):\n    def inner(y):\n        pass\n{kernel}    f[(1,)](x, 64)\n"
    ((scopes, call),) = launches(parse_source(text, "k.py"), "f")
    assert [each.name for each in scopes if isinstance(each, ast.FunctionDef)] == ["run"] and call.lineno == text.count("\n")
