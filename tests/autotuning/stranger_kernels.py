"""A product and attention as strangers write them: no name says what they are."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product(
    x,
    w,
    y,
    rows,
    cols,
    depth,
    sx,
    sxd,
    swd,
    sw,
    sy,
    syc,
    TILE_R: tl.constexpr,
    TILE_C: tl.constexpr,
    TILE_D: tl.constexpr,
    SWIZZLE: tl.constexpr,
    PARTS: tl.constexpr,
):
    pid = tl.program_id(0)
    part = tl.program_id(1)
    nr = tl.cdiv(rows, TILE_R)
    nc = tl.cdiv(cols, TILE_C)
    per = SWIZZLE * nc
    first = (pid // per) * SWIZZLE
    size = min(nr - first, SWIZZLE)
    pr = first + ((pid % per) % size)
    pc = (pid % per) // size
    r = pr * TILE_R + tl.arange(0, TILE_R)
    c = pc * TILE_C + tl.arange(0, TILE_C)
    d = tl.arange(0, TILE_D)
    total = tl.zeros((TILE_R, TILE_C), dtype=tl.float32)
    chunk = tl.cdiv(tl.cdiv(depth, TILE_D), PARTS)
    for i in range(part * chunk, min((part + 1) * chunk, tl.cdiv(depth, TILE_D))):
        k = i * TILE_D + d
        a = tl.load(x + r[:, None] * sx + k[None, :] * sxd, mask=(r < rows)[:, None] & (k < depth)[None, :], other=0.0)
        b = tl.load(w + k[:, None] * swd + c[None, :] * sw, mask=(k < depth)[:, None] & (c < cols)[None, :], other=0.0)
        total = tl.dot(a, b, total)
    at = y + r[:, None] * sy + c[None, :] * syc
    inside = (r < rows)[:, None] & (c < cols)[None, :]
    if PARTS == 1:
        tl.store(at, total.to(y.dtype.element_ty), mask=inside)
    else:
        tl.atomic_add(at, total.to(y.dtype.element_ty), mask=inside)


@triton.jit
def flash(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    scale,
    Z,
    H,
    HK,
    N_CTX,
    sqb,
    sqh,
    sqm,
    skb,
    skh,
    skn,
    svb,
    svh,
    svn,
    sob,
    soh,
    som,
    CAUSAL: tl.constexpr,
    HEAD: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    start = tl.program_id(0)
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    rows = start * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    d = tl.arange(0, HEAD)
    q = tl.load(q_ptr + b * sqb + h * sqh + rows[:, None] * sqm + d[None, :], mask=rows[:, None] < N_CTX, other=0.0)
    m = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, HEAD), tl.float32)
    end = N_CTX
    if CAUSAL:
        end = tl.minimum((start + 1) * ROWS, N_CTX)
    for n in range(0, end, COLS):
        c = n + cols
        k = tl.load(k_ptr + b * skb + (h // (H // HK)) * skh + c[None, :] * skn + d[:, None], mask=c[None, :] < N_CTX, other=0.0)
        s = tl.dot(q, k) * scale
        if CAUSAL:
            s = tl.where(rows[:, None] >= c[None, :], s, float("-inf"))
        s = tl.where(c[None, :] < N_CTX, s, float("-inf"))
        mn = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - mn[:, None])
        alpha = tl.exp2(m - mn)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(v_ptr + b * svb + (h // (H // HK)) * svh + c[:, None] * svn + d[None, :], mask=c[:, None] < N_CTX, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc)
        m = mn
    acc = acc / total[:, None]
    tl.store(o_ptr + b * sob + h * soh + rows[:, None] * som + d[None, :], acc.to(o_ptr.dtype.element_ty), mask=rows[:, None] < N_CTX)
