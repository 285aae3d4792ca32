"""Which integer tensors decide what a kernel does, told from its syntax tree."""

from __future__ import annotations

import ast

import pytest

from advisor.measurement.index_tensors import deciding
from advisor.measurement.kernel_file import bundled_files, find_kernels

KERNEL = """
import triton.language as tl
from rebuilt_1 import pick as choose

def helper(address, at):
    return tl.load(address + at)

def place(base, at, n):
    return base + at, at < n

def far(address, at):
    return helper(address, at)

def free(lock):
    tl.atomic_xchg(lock, 0)

def order(pid, group, kind):
    if kind == tl.int8:
        return pid // group
    return pid

def walk(pointer, steps):
    for step in range(steps):
        tl.store(pointer + step, step)

def kernel(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    {body}
"""
PICK = "def pick(row, table):\n    if row > 0:\n        tl.store(table, row)\n"

DECIDES = {
    "address": "i = tl.load(x + o); tl.store(y + i, 1)",
    "address, in steps": "p = x + o; i = tl.load(p).to(tl.int64); i *= 4; q = y; q += i; tl.store(q, 1)",
    "mask": "tl.store(y + o, 1, mask=tl.load(x + o) > 0)",
    "positional mask": "tl.load(y + o, tl.load(x + o) > 0, 0.0)",
    "branch": "if tl.load(x) > o: return",
    "choice": "z = y if tl.load(x) else n",
    "bound": "for k in range(0, tl.load(x + 1)): tl.store(y + k, 1)",
    "loop": "while tl.load(x) < n: n += 1",
    "carried by a loop": "i = n\n    for k in range(4):\n        tl.load(y + i)\n        i = tl.load(x + k)",
    "tensor of a descriptor": "i = x.load([o]); y.store([i, 0], 1)",
    "descriptor made": "tl.make_tensor_descriptor(y, [tl.load(x)], [1], [B]).load([0])",
    "count": "i = tl.atomic_add(x, 1); tl.store(y + i, 1)",
    "helper that loads": "tl.store(y + helper(x, o), 1)",
    "helper that goes by it": "walk(steps=tl.load(x), pointer=y)",
    "imported helper": "choose(tl.load(x), y)",
    "helper that loads in another": "tl.store(y + far(x, o), 1)",
    "loaded at what a helper placed": "p, m = place(x, o, n); tl.store(y + tl.load(p, mask=m), 1)",
    "placed by a helper": "p, m = place(y, tl.load(x), n); tl.store(p, 1, mask=m)",
    "picked, and gone by": "i = tl.gather(tl.load(x + o), o, 0); tl.store(y + i, 1)",
    "rows of a descriptor": "i = tl.load(x + o); y.gather(i, 0)",
    "count put back elsewhere": "i = tl.atomic_add(x, 1); tl.store(y + i, 1); tl.store(y, 0)",
    "read and put back": "i = tl.load(x); tl.store(y + i, 1); tl.store(x, 0)",
    "second of two": "a, i = n, tl.load(x); tl.store(y + i, a)",
}
DATA = {
    "operand": "a = tl.load(x + o, mask=o < n); tl.store(y + o, tl.dot(a, a), mask=o < n)",
    "unpacked": "w = tl.load(x + o) >> 4 & 15; acc = tl.zeros([B], tl.float32); acc += w * 2; tl.store(y + o, acc)",
    "chosen from": "m = tl.load(x + o); tl.store(y + o, tl.where(m > 0, m, 0), o < n)",
    "output": "tl.store(x + o, o, mask=o < n)",
    "lock": "while tl.atomic_cas(x, 0, 1) == 1: pass\n    tl.atomic_xchg(x, 0)",
    "counter": "if tl.atomic_add(x, 1) == n - 1:\n        tl.store(x, 0)\n        tl.store(y + o, 1)",
    "counters": "p = x + o\n    c = tl.atomic_add(p, 1)\n    if c == n - 1: tl.atomic_xchg(p, val=0)",
    "counter a helper puts back": "if tl.atomic_add(x, 1) == n - 1: free(x + 0)",
    "placed by a helper": "p, m = place(x, o, n); q, _ = place(y, o, n); tl.store(q, tl.load(p, mask=m) * 2, mask=m)",
    "output placed by a helper": "p, m = place(x, o, n); tl.store(p, o, mask=m)",
    "its type to a helper": "i = order(tl.program_id(0), n, x.dtype.element_ty); tl.store(y + i, tl.load(x + o))",
    "type of what is loaded": "v = tl.load(x + o)\n    if v.dtype == tl.int8: v = v * 2\n    tl.store(y + o, v)",
    "picked by": "codes = tl.load(x + o); tl.store(y + o, tl.gather(tl.load(y + o), codes, 0))",
    "operand through a helper": "tl.store(y + o, helper(x, o))",
    "descriptor of data": "y.store([o, 0], x.load([o, 0]))",
    "first of two": "a, i = tl.load(x), n; tl.store(y + i, a)",
    "default of a load": "tl.load(y + o, mask=o < n, other=tl.load(x))",
}


@pytest.mark.parametrize("body", DECIDES.values(), ids=DECIDES)
def test_what_decides(body):
    assert deciding([KERNEL.format(body=body), PICK], "kernel", ["x"]) == ["x"]


@pytest.mark.parametrize("body", DATA.values(), ids=DATA)
def test_what_is_only_data(body):
    assert deciding([KERNEL.format(body=body), PICK], "kernel", ["x"]) == []


def test_the_bundled_kernels_go_by_their_routing_and_lengths_alone():
    found = {}
    for file in bundled_files():
        text = file.read_text()
        functions = {node.name: node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
        for kernel in find_kernels(str(file)):
            names = [each.arg for each in functions[kernel.function].args.args if each.arg.endswith(("_ptr", "_desc"))]
            found |= {kernel.function: set(named)} if (named := deciding([text], kernel.function, names)) else {}
    assert found == {
        "fused_moe_kernel": {"sorted_token_ids_ptr", "expert_ids_ptr", "num_tokens_post_padded_ptr"},
        "decode_kernel": {"key_lengths_ptr"},
    }
