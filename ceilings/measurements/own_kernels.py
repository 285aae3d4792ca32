"""Kernels of many kinds as people write them, each launched at several sizes: a program to record."""

# ruff: noqa: PIE808
import sys

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=m) + tl.load(y_ptr + i, mask=m), mask=m)


@triton.jit
def gelu_tanh_kernel(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    x = tl.load(x_ptr + i, mask=m).to(tl.float32)
    u = 0.7978845608 * (x + 0.044715 * x * x * x)
    t = 2 * tl.sigmoid(2 * u) - 1
    tl.store(o_ptr + i, 0.5 * x * (1 + t), mask=m)


@triton.jit
def gelu_erf_kernel(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    x = tl.load(x_ptr + i, mask=m).to(tl.float32)
    tl.store(o_ptr + i, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=m)


@triton.jit
def dropout_kernel(x_ptr, o_ptr, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    x = tl.load(x_ptr + i, mask=m)
    r = tl.rand(seed, i)
    tl.store(o_ptr + i, tl.where(r > p, x / (1 - p), 0.0), mask=m)


@triton.jit
def adamw_kernel(p_ptr, g_ptr, m_ptr, v_ptr, n, lr, b1, b2, eps, wd, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = i < n
    p = tl.load(p_ptr + i, mask=k)
    g = tl.load(g_ptr + i, mask=k).to(tl.float32)
    m = tl.load(m_ptr + i, mask=k) * b1 + g * (1 - b1)
    v = tl.load(v_ptr + i, mask=k) * b2 + g * g * (1 - b2)
    p = p * (1 - lr * wd) - lr * m / (tl.sqrt(v) + eps)
    tl.store(p_ptr + i, p, mask=k)
    tl.store(m_ptr + i, m, mask=k)
    tl.store(v_ptr + i, v, mask=k)


@triton.jit
def sum_rows_kernel(x_ptr, o_ptr, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in range(0, cols, BLOCK):
        i = c + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * stride + i, mask=i < cols, other=0.0).to(tl.float32)
    tl.store(o_ptr + row, tl.sum(acc, axis=0))


@triton.jit
def sum_columns_kernel(x_ptr, o_ptr, rows, cols, stride, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    acc = tl.zeros((BLOCK_R, BLOCK_C), dtype=tl.float32)
    for r0 in range(0, rows, BLOCK_R):
        r = r0 + tl.arange(0, BLOCK_R)
        acc += tl.load(x_ptr + r[:, None] * stride + c[None, :], mask=(r[:, None] < rows) & (c[None, :] < cols), other=0.0)
    tl.store(o_ptr + c, tl.sum(acc, axis=0), mask=c < cols)


@triton.jit
def softmax_online_kernel(x_ptr, o_ptr, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    top = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in range(0, cols, BLOCK):
        i = c + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + i, mask=i < cols, other=-float("inf")).to(tl.float32)
        new = tl.maximum(top, x)
        total = total * tl.exp(tl.where(top == -float("inf"), -1e30, top) - tl.where(new == -float("inf"), 0.0, new)) + tl.exp(
            x - tl.where(new == -float("inf"), 0.0, new)
        )
        top = new
    high = tl.max(top, axis=0)
    den = tl.sum(total * tl.exp(top - high), axis=0)
    for c in range(0, cols, BLOCK):
        i = c + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + i, mask=i < cols, other=-float("inf")).to(tl.float32)
        tl.store(o_ptr + row * stride + i, tl.exp(x - high) / den, mask=i < cols)


@triton.jit
def cross_entropy_kernel(x_ptr, label_ptr, loss_ptr, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    y = tl.load(label_ptr + row)
    top = -float("inf")
    total = 0.0
    for c in range(0, cols, BLOCK):
        i = c + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + i, mask=i < cols, other=-float("inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new), axis=0)
        top = new
    picked = tl.load(x_ptr + row * stride + y).to(tl.float32)
    tl.store(loss_ptr + row, top + tl.log(total) - picked)


@triton.jit
def layer_norm_forward_kernel(x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    k = i < cols
    x = tl.load(x_ptr + row * stride + i, mask=k, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / cols
    d = tl.where(k, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(d * d, axis=0) / cols + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    tl.store(
        y_ptr + row * stride + i, d * rstd * tl.load(w_ptr + i, mask=k).to(tl.float32) + tl.load(b_ptr + i, mask=k).to(tl.float32), mask=k
    )


@triton.jit
def layer_norm_backward_kernel(x_ptr, dy_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, stride, rows, cols, per, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    k = i < cols
    w = tl.load(w_ptr + i, mask=k, other=0.0).to(tl.float32)
    dw = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(p * per, min((p + 1) * per, rows)):
        x = tl.load(x_ptr + row * stride + i, mask=k, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * stride + i, mask=k, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + row)
        rstd = tl.load(rstd_ptr + row)
        h = tl.where(k, (x - mean) * rstd, 0.0)
        g = dy * w
        a = tl.sum(h * g, axis=0) / cols
        b = tl.sum(g, axis=0) / cols
        tl.store(dx_ptr + row * stride + i, (g - h * a - b) * rstd, mask=k)
        dw += dy * h
    tl.store(dw_ptr + p * cols + i, dw, mask=k)


@triton.jit
def rope_kernel(q_ptr, cos_ptr, sin_ptr, stride_t, stride_h, heads, HALF: tl.constexpr, HEADS: tl.constexpr):
    t = tl.program_id(0)
    h = tl.arange(0, HEADS)
    i = tl.arange(0, HALF)
    c = tl.load(cos_ptr + t * HALF + i)[None, :]
    s = tl.load(sin_ptr + t * HALF + i)[None, :]
    at = q_ptr + t * stride_t + h[:, None] * stride_h + i[None, :]
    m = (h[:, None] < heads) & (i[None, :] < HALF)
    x = tl.load(at, mask=m)
    y = tl.load(at + HALF, mask=m)
    tl.store(at, x * c - y * s, mask=m)
    tl.store(at + HALF, y * c + x * s, mask=m)


@triton.jit
def quantize_fp8_kernel(x_ptr, q_ptr, s_ptr, n, GROUP: tl.constexpr):
    g = tl.program_id(0)
    i = g * GROUP + tl.arange(0, GROUP)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    s = tl.maximum(tl.max(tl.abs(x), axis=0), 1e-10) / 448.0
    tl.store(q_ptr + i, (x / s).to(tl.float8e4nv), mask=i < n)
    tl.store(s_ptr + g, s)


@triton.jit
def quantize_rows_int8_kernel(x_ptr, q_ptr, s_ptr, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + i, mask=i < cols, other=0.0).to(tl.float32)
    s = tl.maximum(tl.max(tl.abs(x), axis=0), 1e-10) / 127.0
    tl.store(q_ptr + row * stride + i, (x / s).to(tl.int8), mask=i < cols)
    tl.store(s_ptr + row, s)


@triton.jit
def swiglu_backward_kernel(dc_ptr, a_ptr, b_ptr, da_ptr, db_ptr, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    k = i < cols
    dc = tl.load(dc_ptr + row * stride + i, mask=k, other=0.0).to(tl.float32)
    a = tl.load(a_ptr + row * stride + i, mask=k, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + row * stride + i, mask=k, other=0.0).to(tl.float32)
    s = tl.sigmoid(a)
    tl.store(db_ptr + row * stride + i, dc * a * s, mask=k)
    tl.store(da_ptr + row * stride + i, dc * b * s * (1 + a * (1 - s)), mask=k)


@triton.jit
def embedding_kernel(id_ptr, w_ptr, o_ptr, cols, BLOCK: tl.constexpr):
    t = tl.program_id(0)
    row = tl.load(id_ptr + t).to(tl.int64)
    for c in range(0, cols, BLOCK):
        i = c + tl.arange(0, BLOCK)
        tl.store(o_ptr + t * cols + i, tl.load(w_ptr + row * cols + i, mask=i < cols), mask=i < cols)


@triton.jit
def index_add_kernel(id_ptr, x_ptr, o_ptr, cols, BLOCK: tl.constexpr):
    t = tl.program_id(0)
    row = tl.load(id_ptr + t).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(o_ptr + row * cols + i, tl.load(x_ptr + t * cols + i, mask=i < cols), mask=i < cols)


@triton.jit
def transpose_kernel(x_ptr, o_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = (m[:, None] < M) & (n[None, :] < N)
    x = tl.load(x_ptr + m[:, None] * N + n[None, :], mask=k)
    tl.store(o_ptr + n[:, None] * M + m[None, :], tl.trans(x), mask=tl.trans(k))


@triton.jit
def cumsum_kernel(x_ptr, o_ptr, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + i, mask=i < cols, other=0.0).to(tl.float32)
    tl.store(o_ptr + row * stride + i, tl.cumsum(x, axis=0), mask=i < cols)


@triton.jit
def argmax_kernel(x_ptr, o_ptr, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + i, mask=i < cols, other=-float("inf")).to(tl.float32)
    tl.store(o_ptr + row, tl.argmax(x, axis=0))


@triton.jit
def scan_state_kernel(x_ptr, a_ptr, o_ptr, T, D, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    h = tl.zeros((BLOCK,), dtype=tl.float32)
    for t in range(0, T):
        at = (b * T + t) * D + i
        h = h * tl.load(a_ptr + at, mask=i < D, other=0.0) + tl.load(x_ptr + at, mask=i < D, other=0.0)
        tl.store(o_ptr + at, h, mask=i < D)


@triton.jit
def causal_conv1d_kernel(x_ptr, w_ptr, o_ptr, T, D, BT: tl.constexpr, BD: tl.constexpr, W: tl.constexpr):
    b = tl.program_id(2)
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    acc = tl.zeros((BT, BD), dtype=tl.float32)
    for w in tl.static_range(W):
        s = t - W + 1 + w
        x = tl.load(x_ptr + (b * T + s[:, None]) * D + d[None, :], mask=(s[:, None] >= 0) & (s[:, None] < T) & (d[None, :] < D), other=0.0)
        acc += x.to(tl.float32) * tl.load(w_ptr + d * W + w, mask=d < D, other=0.0)[None, :]
    acc = acc * tl.sigmoid(acc)
    tl.store(o_ptr + (b * T + t[:, None]) * D + d[None, :], acc, mask=(t[:, None] < T) & (d[None, :] < D))


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr
):
    pid = tl.program_id(0)
    nm = tl.cdiv(M, BM)
    nn = tl.cdiv(N, BN)
    per = GM * nn
    first = (pid // per) * GM
    size = min(nm - first, GM)
    pm = first + ((pid % per) % size)
    pn = (pid % per) // size
    rm = (pm * BM + tl.arange(0, BM)) % M
    rn = (pn * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    a = a_ptr + rm[:, None] * sam + rk[None, :] * sak
    b = b_ptr + rk[:, None] * sbk + rn[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(a, mask=rk[None, :] < K - k * BK, other=0.0)
        y = tl.load(b, mask=rk[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        a += BK * sak
        b += BK * sbk
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    tl.store(c_ptr + om[:, None] * scm + on[None, :] * scn, acc.to(c_ptr.dtype.element_ty), mask=(om[:, None] < M) & (on[None, :] < N))


@triton.jit
def matmul_int4_kernel(a_ptr, b_ptr, s_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    shift = (rk % 8) * 4
    for k in range(0, K, BK):
        x = tl.load(a_ptr + rm[:, None] * K + (k + rk)[None, :], mask=rm[:, None] < M, other=0.0)
        q = tl.load(b_ptr + ((k + rk) // 8)[:, None] * N + rn[None, :])
        s = tl.load(s_ptr + (k // BK) * N + rn)
        y = (((q >> shift[:, None]) & 0xF) - 8).to(tl.bfloat16) * s[None, :]
        acc = tl.dot(x, y, acc)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(tl.bfloat16), mask=rm[:, None] < M)


@triton.jit
def matmul_block_fp8_kernel(a_ptr, b_ptr, as_ptr, bs_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, 128)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, 128)):
        x = tl.load(a_ptr + rm[:, None] * K + (k * 128 + rk)[None, :], mask=rm[:, None] < M, other=0.0)
        y = tl.load(b_ptr + rn[None, :] * K + (k * 128 + rk)[:, None])
        s = tl.load(as_ptr + rm * (K // 128) + k, mask=rm < M, other=0.0)
        t = tl.load(bs_ptr + (rn // 128) * (K // 128) + k)
        acc += tl.dot(x, y) * s[:, None] * t[None, :]
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(tl.bfloat16), mask=rm[:, None] < M)


@triton.jit
def flash_forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, l_ptr, scale, H, N, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):
    start = tl.program_id(0)
    base = tl.program_id(1).to(tl.int64) * N * D
    m = start * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + base + m[:, None] * D + d[None, :], mask=m[:, None] < N, other=0.0)
    top = tl.full((BM,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    end = N
    if CAUSAL:
        end = min(N, (start + 1) * BM)
    for s in range(0, end, BN):
        k = tl.load(k_ptr + base + (s + n)[None, :] * D + d[:, None], mask=(s + n)[None, :] < N, other=0.0)
        x = tl.dot(q, k) * scale
        if CAUSAL:
            x = tl.where(m[:, None] >= (s + n)[None, :], x, -1e9)
        new = tl.maximum(top, tl.max(x, 1))
        p = tl.exp2(x - new[:, None])
        f = tl.exp2(top - new)
        total = total * f + tl.sum(p, 1)
        acc = acc * f[:, None]
        v = tl.load(v_ptr + base + (s + n)[:, None] * D + d[None, :], mask=(s + n)[:, None] < N, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc)
        top = new
    tl.store(o_ptr + base + m[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.bfloat16), mask=m[:, None] < N)
    tl.store(l_ptr + tl.program_id(1) * N + m, top + tl.log2(total), mask=m < N)


@triton.jit
def group_norm_kernel(x_ptr, y_ptr, w_ptr, b_ptr, size, per, eps, BLOCK: tl.constexpr):
    g = tl.program_id(0).to(tl.int64)
    s = tl.zeros((BLOCK,), dtype=tl.float32)
    q = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in range(0, size, BLOCK):
        i = c + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + g * size + i, mask=i < size, other=0.0).to(tl.float32)
        s += x
        q += x * x
    mean = tl.sum(s, axis=0) / size
    rstd = tl.rsqrt(tl.sum(q, axis=0) / size - mean * mean + eps)
    for c in range(0, size, BLOCK):
        i = c + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + g * size + i, mask=i < size, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + i // per, mask=i < size, other=0.0)
        b = tl.load(b_ptr + i // per, mask=i < size, other=0.0)
        tl.store(y_ptr + g * size + i, (x - mean) * rstd * w + b, mask=i < size)


def rand(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def power(n):
    return triton.next_power_of_2(n)


def elementwise():
    for n in (4_096, 100_000, 1_000_000, 8_388_608, 67_108_864):
        for dtype in (torch.bfloat16, torch.float32):
            x, y = rand(n, dtype=dtype), rand(n, dtype=dtype)
            o = torch.empty_like(x)
            add_kernel[(triton.cdiv(n, 1024),)](x, y, o, n, BLOCK=1024)
        x = rand(n)
        o = torch.empty_like(x)
        for block in (256, 2048):
            gelu_tanh_kernel[(triton.cdiv(n, block),)](x, o, n, BLOCK=block)
        gelu_erf_kernel[(triton.cdiv(n, 1024),)](x, o, n, BLOCK=1024)
        dropout_kernel[(triton.cdiv(n, 1024),)](x, o, n, 0.1, 12345, BLOCK=1024)
        if n <= 8_388_608:
            p, m, v = (rand(n, dtype=torch.float32).abs() for _ in range(3))
            adamw_kernel[(triton.cdiv(n, 1024),)](p, x, m, v, n, 1e-3, 0.9, 0.95, 1e-8, 0.1, BLOCK=1024)
        quantize_fp8_kernel[(triton.cdiv(n, 128),)](
            x,
            torch.empty(n, device="cuda", dtype=torch.float8_e4m3fn),
            torch.empty(triton.cdiv(n, 128), device="cuda"),
            n,
            GROUP=128,
            num_warps=1,
        )


def rows():
    for r, c in ((1, 4096), (16, 5120), (256, 1024), (1024, 2880), (4096, 7168), (16384, 2048), (128, 32000), (2048, 50257)):
        x = rand(r, c)
        o = torch.empty_like(x)
        f = torch.empty(r, device="cuda")
        sum_rows_kernel[(r,)](x, f, c, c, BLOCK=1024)
        softmax_online_kernel[(r,)](x, o, c, c, BLOCK=1024)
        cross_entropy_kernel[(r,)](x, torch.randint(c, (r,), device="cuda"), f, c, c, BLOCK=4096)
        sum_columns_kernel[(triton.cdiv(c, 64),)](x, torch.empty(c, device="cuda"), r, c, c, BLOCK_R=32, BLOCK_C=64)
        if c <= 8192:
            b = power(c)
            w = rand(c)
            warps = 4 if b <= 2048 else 8
            mean, rstd = torch.zeros(r, device="cuda"), torch.ones(r, device="cuda")
            layer_norm_forward_kernel[(r,)](x, o, w, w, mean, rstd, c, c, 1e-5, BLOCK=b, num_warps=warps)
            g = min(r, 132)
            layer_norm_backward_kernel[(g,)](
                x,
                o,
                w,
                mean,
                rstd,
                torch.empty_like(x),
                torch.empty(g, c, device="cuda"),
                c,
                r,
                c,
                triton.cdiv(r, g),
                BLOCK=b,
                num_warps=warps,
            )
            swiglu_backward_kernel[(r,)](x, o, rand(r, c), torch.empty_like(x), torch.empty_like(x), c, c, BLOCK=b, num_warps=warps)
            quantize_rows_int8_kernel[(r,)](x, torch.empty(r, c, device="cuda", dtype=torch.int8), f, c, c, BLOCK=b, num_warps=warps)
            cumsum_kernel[(r,)](x, o, c, c, BLOCK=b, num_warps=warps)
            argmax_kernel[(r,)](x, torch.empty(r, device="cuda", dtype=torch.int32), c, c, BLOCK=b, num_warps=warps)


def moves():
    for t, c in ((1, 4096), (64, 2048), (2048, 4096), (16384, 1024)):
        table = rand(32000, c)
        ids = torch.randint(32000, (t,), device="cuda")
        x = torch.empty(t, c, device="cuda", dtype=torch.bfloat16)
        embedding_kernel[(t,)](ids, table, x, c, BLOCK=1024)
        index_add_kernel[(t, triton.cdiv(c, 1024))](
            ids, rand(t, c, dtype=torch.float32), rand(32000, c, dtype=torch.float32), c, BLOCK=1024
        )
        q = rand(t, 32, 128)
        rope_kernel[(t,)](q, rand(t, 64), rand(t, 64), 32 * 128, 128, 32, HALF=64, HEADS=32)
    for m, n in ((512, 512), (4096, 4096), (8192, 1000)):
        transpose_kernel[(triton.cdiv(m, 64), triton.cdiv(n, 64))](
            rand(m, n), torch.empty(n, m, device="cuda", dtype=torch.bfloat16), m, n, BM=64, BN=64
        )
    for b, t, d in ((1, 256, 4096), (4, 1024, 1024), (16, 512, 2048)):
        x = rand(b, t, d)
        scan_state_kernel[(b, triton.cdiv(d, 128))](x, torch.rand_like(x), torch.empty_like(x), t, d, BLOCK=128)
        causal_conv1d_kernel[(triton.cdiv(t, 32), triton.cdiv(d, 64), b)](x, rand(d, 4), torch.empty_like(x), t, d, BT=32, BD=64, W=4)
    for b, groups, per, hw in ((2, 32, 10, 4096), (1, 32, 4, 16384), (8, 32, 20, 256)):
        size = per * hw
        group_norm_kernel[(b * groups,)](
            rand(b * groups * size),
            rand(b * groups * size),
            rand(per, dtype=torch.float32),
            rand(per, dtype=torch.float32),
            size,
            hw,
            1e-5,
            BLOCK=2048,
        )


def products():
    for m, n, k in ((16, 4096, 4096), (128, 2048, 7168), (1000, 3000, 1000), (4096, 4096, 4096)):
        for bm, bn, bk, w, s in ((16 if m < 64 else 64, 64, 64, 4, 4), (16 if m < 64 else 128, 128, 64, 8, 3), (64, 256, 32, 4, 3)):
            for dtype in (torch.bfloat16, torch.float32) if bm == 64 and bn == 64 else (torch.float16,):
                a, b = rand(m, k, dtype=dtype), rand(n, k, dtype=dtype).t()
                c = torch.empty(m, n, device="cuda", dtype=dtype)
                matmul_kernel[(triton.cdiv(m, bm) * triton.cdiv(n, bn),)](
                    a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), BM=bm, BN=bn, BK=bk, GM=8, num_warps=w, num_stages=s
                )
        if k % 128 == 0:
            bm = 16 if m < 64 else 64
            c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
            q = torch.randint(-(2**31), 2**31 - 1, (k // 8, n), device="cuda", dtype=torch.int32)
            matmul_int4_kernel[(triton.cdiv(m, bm), n // 64)](
                rand(m, k), q, rand(k // 128, n), c, m, n, k, BM=bm, BN=64, BK=128, num_warps=4, num_stages=3
            )
            a8, b8 = rand(m, k).to(torch.float8_e4m3fn), rand(n, k).to(torch.float8_e4m3fn)
            matmul_block_fp8_kernel[(triton.cdiv(m, bm), n // 128)](
                a8,
                b8,
                torch.rand(m, k // 128, device="cuda"),
                torch.rand(n // 128, k // 128, device="cuda"),
                c,
                m,
                n,
                k,
                BM=bm,
                BN=128,
                num_warps=4,
                num_stages=4,
            )
    for z, n, d in ((32, 512, 64), (32, 2048, 128), (64, 4096, 64), (8, 1000, 128)):
        q, k, v = (rand(z, n, d) for _ in range(3))
        for causal in (False, True):
            flash_forward_kernel[(triton.cdiv(n, 128), z)](
                q,
                k,
                v,
                torch.empty_like(q),
                torch.empty(z, n, device="cuda"),
                0.18,
                z,
                n,
                CAUSAL=causal,
                BM=128,
                BN=64,
                D=d,
                num_warps=8 if d == 128 else 4,
                num_stages=3,
            )


if __name__ == "__main__":
    for part in (elementwise, rows, moves, products):
        try:
            part()
            torch.cuda.synchronize()
        except Exception as error:  # one part's fault leaves the others
            print(part.__name__, type(error).__name__, str(error)[:300], file=sys.stderr)
