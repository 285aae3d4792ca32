"""Kernels of the kinds that public libraries launch, small enough to count by hand: `tests/advising/test_kernel_report.py`."""

import triton
import triton.language as tl


@triton.jit
def decode(q_ptr, k_ptr, v_ptr, o_ptr, scale, length, HEADS: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    b, h = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, D)
    rows = ((b * HEADS + h) * GROUP + tl.arange(0, GROUP))[:, None] * D + d[None, :]
    q = tl.load(q_ptr + rows)
    most = tl.full((GROUP,), -float("inf"), tl.float32)
    total = tl.zeros((GROUP,), tl.float32)
    out = tl.zeros((GROUP, D), tl.float32)
    for at in range(0, length, BLOCK):
        n = at + tl.arange(0, BLOCK)
        places = ((b * length + n) * HEADS + h)[:, None] * D + d[None, :]
        s = tl.dot(q, tl.trans(tl.load(k_ptr + places))) * scale
        new = tl.maximum(most, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        keep = tl.exp(most - new)
        total = total * keep + tl.sum(p, 1)
        out = out * keep[:, None] + tl.dot(p.to(tl.bfloat16), tl.load(v_ptr + places))
        most = new
    tl.store(o_ptr + rows, out / total[:, None])


@triton.jit
def prefill(q_ptr, k_ptr, v_ptr, o_ptr, scale, length, D: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    start = tl.program_id(0) * BLOCK_M
    base = tl.program_id(1) * length
    m, d = start + tl.arange(0, BLOCK_M), tl.arange(0, D)
    q = tl.load(q_ptr + (base + m)[:, None] * D + d[None, :])
    most = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    out = tl.zeros((BLOCK_M, D), tl.float32)
    end = start + BLOCK_M if CAUSAL else length
    for at in range(0, end, BLOCK_N):
        n = at + tl.arange(0, BLOCK_N)
        places = (base + n)[:, None] * D + d[None, :]
        s = tl.dot(q, tl.trans(tl.load(k_ptr + places))) * scale
        if CAUSAL:
            s = tl.where(m[:, None] >= n[None, :], s, -float("inf"))
        new = tl.maximum(most, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        keep = tl.exp(most - new)
        total = total * keep + tl.sum(p, 1)
        out = out * keep[:, None] + tl.dot(p.to(tl.bfloat16), tl.load(v_ptr + places))
        most = new
    tl.store(o_ptr + (base + m)[:, None] * D + d[None, :], out / total[:, None])


@triton.jit
def scan(x_ptr, y_ptr, length, width, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr):
    t, c = tl.arange(0, BLOCK_T), tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    before = tl.zeros((BLOCK_C,), tl.float32)
    for at in range(0, length, BLOCK_T):
        places = (tl.program_id(1) * length + at + t)[:, None] * width + c[None, :]
        x = tl.load(x_ptr + places)
        tl.store(y_ptr + places, tl.cumsum(x, 0) + before[None, :])
        before += tl.sum(x, 0)


@triton.jit
def int4_experts(
    a_ptr, b_ptr, s_ptr, c_ptr, expert_ptr, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr
):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    expert = tl.load(expert_ptr + tl.program_id(0))
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for at in range(0, K, BLOCK_K):
        k = at + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :])
        packed = tl.load(b_ptr + (expert * (K // 2) + k // 2)[:, None] * N + n[None, :])
        b = (packed >> ((k % 2) * 4)[:, None]) & 15
        s = tl.load(s_ptr + (expert * (K // GROUP) + k // GROUP)[:, None] * N + n[None, :])
        total += tl.dot(a, ((b.to(tl.float32) - 8) * s).to(tl.bfloat16))
    tl.store(c_ptr + m[:, None] * N + n[None, :], total)


@triton.jit
def layer_norm_backward(x_ptr, dy_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    c = tl.arange(0, WIDTH)
    w = tl.load(w_ptr + c).to(tl.float32)
    dw, db = tl.zeros((WIDTH,), tl.float32), tl.zeros((WIDTH,), tl.float32)
    for i in range(ROWS):
        row = tl.program_id(0) * ROWS + i
        x, dy = tl.load(x_ptr + row * WIDTH + c).to(tl.float32), tl.load(dy_ptr + row * WIDTH + c).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        unit = (x - tl.load(mean_ptr + row)) * rstd
        weighed = w * dy
        along, offset = tl.sum(unit * weighed, 0) / WIDTH, tl.sum(weighed, 0) / WIDTH
        tl.store(dx_ptr + row * WIDTH + c, (weighed - (unit * along + offset)) * rstd)
        dw += dy * unit
        db += dy
    tl.store(dw_ptr + tl.program_id(0) * WIDTH + c, dw)
    tl.store(db_ptr + tl.program_id(0) * WIDTH + c, db)


@triton.jit
def top_k(x_ptr, y_ptr, WIDTH: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    tl.store(y_ptr + row * K + tl.arange(0, K), tl.topk(tl.load(x_ptr + row * WIDTH + tl.arange(0, WIDTH)), K))


@triton.jit
def rotary(x_ptr, cos_ptr, sin_ptr, y_ptr, HEADS: tl.constexpr, HALF: tl.constexpr):
    token, d = tl.program_id(0), tl.arange(0, HALF)
    cos, sin = tl.load(cos_ptr + token * HALF + d)[None, :], tl.load(sin_ptr + token * HALF + d)[None, :]
    first = (token * HEADS + tl.arange(0, HEADS))[:, None] * (2 * HALF) + d[None, :]
    a, b = tl.load(x_ptr + first), tl.load(x_ptr + first + HALF)
    tl.store(y_ptr + first, a * cos - b * sin)
    tl.store(y_ptr + first + HALF, b * cos + a * sin)


@triton.jit
def chunk_states(k_ptr, v_ptr, g_ptr, h_ptr, length, K: tl.constexpr, V: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_V: tl.constexpr):
    head, v = tl.program_id(1), tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    k, t = tl.arange(0, K), tl.arange(0, BLOCK_T)
    state = tl.zeros((K, BLOCK_V), tl.float32)
    for chunk in range(length // BLOCK_T):
        tl.store(h_ptr + ((head * (length // BLOCK_T) + chunk) * K + k)[:, None] * V + v[None, :], state)
        rows = head * length + chunk * BLOCK_T + t
        keys = tl.load(k_ptr + rows[None, :] * K + k[:, None])
        values = tl.load(v_ptr + rows[:, None] * V + v[None, :])
        state = state * tl.exp(tl.load(g_ptr + head * (length // BLOCK_T) + chunk)) + tl.dot(keys, values)


@triton.jit
def chunk_outputs(
    q_ptr, k_ptr, v_ptr, h_ptr, o_ptr, length, K: tl.constexpr, V: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_V: tl.constexpr
):
    chunk, head = tl.program_id(1), tl.program_id(2)
    v, k, t = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V), tl.arange(0, K), tl.arange(0, BLOCK_T)
    rows = head * length + chunk * BLOCK_T + t
    q = tl.load(q_ptr + rows[:, None] * K + k[None, :])
    s = tl.dot(q, tl.load(k_ptr + rows[None, :] * K + k[:, None]))
    s = tl.where(t[:, None] >= t[None, :], s, 0.0)
    out = tl.dot(q, tl.load(h_ptr + ((head * (length // BLOCK_T) + chunk) * K + k)[:, None] * V + v[None, :]))
    out += tl.dot(s.to(tl.bfloat16), tl.load(v_ptr + rows[:, None] * V + v[None, :]))
    tl.store(o_ptr + rows[:, None] * V + v[None, :], out)


@triton.jit
def state_update(
    state_ptr, x_ptr, dt_ptr, a_ptr, b_ptr, c_ptr, o_ptr, HEADS: tl.constexpr, D: tl.constexpr, STATE: tl.constexpr, BLOCK_D: tl.constexpr
):
    batch, head = tl.program_id(1), tl.program_id(2)
    d, n = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D), tl.arange(0, STATE)
    rows = (batch * HEADS + head) * D + d
    places = rows[:, None] * STATE + n[None, :]
    dt, x = tl.load(dt_ptr + batch * HEADS + head), tl.load(x_ptr + rows)
    decay = tl.exp(tl.load(a_ptr + head) * dt)
    state = tl.load(state_ptr + places) * decay + (tl.load(b_ptr + batch * STATE + n) * dt)[None, :] * x[:, None]
    tl.store(state_ptr + places, state)
    tl.store(o_ptr + rows, tl.sum(state * tl.load(c_ptr + batch * STATE + n)[None, :], 1))


@triton.jit
def state_passing(s_ptr, decay_ptr, o_ptr, width, CHUNKS: tl.constexpr, BLOCK: tl.constexpr):
    head, c = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    state = tl.zeros((BLOCK,), tl.float32)
    for chunk in range(CHUNKS):
        places = (head * CHUNKS + chunk) * width + c
        tl.store(o_ptr + places, state)
        state = state * tl.exp(tl.load(decay_ptr + head * CHUNKS + chunk)) + tl.load(s_ptr + places)


@triton.jit
def rms_norm(x_ptr, w_ptr, y_ptr, WIDTH: tl.constexpr):
    places = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    x = tl.load(x_ptr + places).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, 0) / WIDTH + 1e-6)
    tl.store(y_ptr + places, x * rstd * tl.load(w_ptr + tl.arange(0, WIDTH)))


@triton.jit
def softmax(x_ptr, y_ptr, WIDTH: tl.constexpr):
    places = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    x = tl.load(x_ptr + places).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + places, e * (1 / tl.sum(e, 0)))
