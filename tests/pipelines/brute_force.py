"""What kernels do, counted one CTA, one step and one element at a time: the yardstick of the closed forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil


@dataclass
class Count:
    """Sums over all CTAs of a launch."""

    ctas: int = 0
    steps: int = 0  # trips of the main loop
    flop: int = 0  # of the products, padding included
    fma: int = 0  # of the rest
    xu: int = 0
    load_bytes: float = 0
    store_bytes: float = 0
    most_steps: int = 0
    distinct: dict[tuple, float] = field(default_factory=dict)

    def load(self, key: tuple, width: float) -> None:
        self.load_bytes += width
        self.distinct[key] = width

    def store(self, key: tuple, width: float, distinct: bool = True) -> None:
        self.store_bytes += width
        if distinct:
            self.distinct[key] = width

    @property
    def distinct_bytes(self) -> float:
        return sum(self.distinct.values())


def _scales(count: Count, group: object, row_keys: list, columns: list, ks: list, quantum: tuple[int, int] | None) -> None:
    """The float32 scales a whole CTA reads: one per row and k block, one per column block and k block."""
    if quantum is None:
        return
    for k in sorted({k // quantum[1] for k in ks}):
        for row in row_keys:
            count.load(("a scale", row, k), 4)
        for n in sorted({n // quantum[0] for n in columns}):
            count.load(("b scale", group, n, k), 4)


def gemm(m, n, k, batch, block_m, block_n, block_k, split, in_bytes, out_bytes, quantum=None) -> Count:
    count = Count()
    steps = ceil(k / (block_k * split))
    for b in range(batch):
        for first_row in range(0, m, block_m):
            for first_column in range(0, n, block_n):
                for part in range(split):
                    count.ctas += 1
                    rows = [r for r in range(first_row, first_row + block_m) if r < m]
                    columns = [c for c in range(first_column, first_column + block_n) if c < n]
                    for step in range(steps):
                        count.steps += 1
                        count.flop += 2 * block_m * block_n * block_k
                        first_k = (part * steps + step) * block_k
                        for depth in range(first_k, first_k + block_k):
                            if depth < k:
                                for r in rows:
                                    count.load(("a", b, r, depth), in_bytes)
                                for c in columns:
                                    count.load(("b", b, depth, c), in_bytes)
                    _scales(count, b, [(b, r) for r in rows], columns, list(range(k)), quantum)
                    for r in rows:
                        for c in columns:
                            count.store(("c", b, r, c), out_bytes if split == 1 else 4)
                            count.distinct["c", b, r, c] = out_bytes  # the parts are extra, not distinct results
    return count


def route_round_robin(tokens: int, experts: int, topk: int) -> list[list[int]]:
    """Slots of each expert; slot i belongs to token i // topk."""
    held: list[list[int]] = [[] for _ in range(experts)]
    for slot in range(tokens * topk):
        held[slot % experts].append(slot)
    return held


def route_histogram(histogram: Sequence[int], tokens: int) -> list[list[int]]:
    """As many slots per expert as the histogram says, tokens in turn."""
    held: list[list[int]] = []
    choices = [0] * tokens
    token = 0
    topk = sum(histogram) // tokens
    for load in histogram:
        mine = []
        for _ in range(load):
            mine.append(token * topk + choices[token])
            choices[token] += 1
            token = (token + 1) % tokens
        held.append(mine)
    return held


def moe_product(op, held, topk, h, n, block_m, block_n, block_k, in_bytes, out_bytes, quantum=None) -> Count:
    width, depth = (2 * n, h) if op == "w13" else (h, n)
    count = Count()
    for expert, slots in enumerate(held):
        for first in range(0, len(slots), block_m):
            mine = slots[first : first + block_m]
            rows = [slot // topk if op == "w13" else slot for slot in mine]
            for first_column in range(0, width, block_n):
                count.ctas += 1
                columns = [c for c in range(first_column, first_column + block_n) if c < width]
                for first_k in range(0, depth, block_k):
                    count.steps += 1
                    count.flop += 2 * block_m * block_n * block_k
                    for k in range(first_k, min(first_k + block_k, depth)):
                        for row in rows:
                            count.load(("a", row, k), in_bytes)
                        for c in columns:
                            count.load(("b", expert, c, k), in_bytes)
                _scales(count, expert, rows, columns, list(range(depth)), quantum)
                for slot in mine:
                    for c in columns:
                        count.store(("c", slot, c), out_bytes)
    return count


def rows_of_blocks(rows, columns, inputs, block, rows_per_cta, element_bytes, flop, special) -> Count:
    """An elementwise kernel in blocks of rows_per_cta x block results, each from `inputs` elements."""
    count = Count()
    for first_row in range(0, rows, rows_per_cta):
        for first in range(0, columns, block):
            count.ctas += 1
            count.fma += rows_per_cta * block * flop
            count.xu += rows_per_cta * block * special
            for r in range(first_row, min(first_row + rows_per_cta, rows)):
                for c in range(first, min(first + block, columns)):
                    for i in range(inputs):
                        count.load(("x", r, c, i), element_bytes)
                    count.store(("out", r, c), element_bytes)
    return count


def flat_blocks(elements, inputs, block, element_bytes, flop, special) -> Count:
    return rows_of_blocks(1, elements, inputs, block, 1, element_bytes, flop, special)


def normalization(op, rows, length, block, rows_per_cta, element_bytes) -> Count:
    vectors = {"softmax": 0, "rms_norm": 1, "layer_norm": 2}[op]
    count = Count()
    one_pass = length <= block
    for first_row in range(0, rows, rows_per_cta):
        count.ctas += 1
        mine = range(first_row, min(first_row + rows_per_cta, rows))
        count.xu += rows_per_cta  # rsqrt, or the reciprocal of the sum
        for reading in (0,) if one_pass else (0, 1):
            for first in range(0, length, block):
                count.steps += 1
                if op == "softmax":
                    count.xu += rows_per_cta * block
                for c in range(first, min(first + block, length)):
                    for r in mine:
                        count.load(("x", r, c), element_bytes)
                    if one_pass or reading == 1:
                        for v in range(vectors):
                            count.load(("weight", v, c), element_bytes)
                        for r in mine:
                            count.store(("out", r, c), element_bytes)
    return count


def attention(op, batch, heads, kv_heads, m, n, d, causal, block_m, block_n, splits, element_bytes) -> Count:
    count = Count()
    group = heads // kv_heads
    block_d = 1
    while block_d < d:
        block_d *= 2
    packed = op == "decode"
    for b in range(batch):
        for head in range(kv_heads if packed else heads):
            kv = head if packed else head // group
            # Rows of a tile: queries of one head, or in decode (query, head of the group) pairs.
            rows = [(q, head * group + g) for q in range(m) for g in range(group)] if packed else [(q, head) for q in range(m)]
            for first_row in range(0, len(rows), block_m):
                for part in range(splits):
                    count.ctas += 1
                    mine = rows[first_row : first_row + block_m]
                    begin, end = 0, n
                    if packed:
                        per_split = ceil(ceil(n / splits) / block_n) * block_n
                        begin, end = part * per_split, min((part + 1) * per_split, n)
                    elif causal:
                        end = min(n, first_row + block_m + n - m)
                    for q, h in mine:
                        for i in range(d):
                            count.load(("q", b, h, q, i), element_bytes)
                    steps = 0
                    for first in range(begin, end, block_n):
                        steps += 1
                        count.flop += 2 * (2 * block_m * block_n * block_d)
                        count.xu += block_m * block_n + block_m
                        for key in range(first, min(first + block_n, n)):
                            for i in range(d):
                                count.load(("k", b, kv, key, i), element_bytes)
                                count.load(("v", b, kv, key, i), element_bytes)
                    count.steps += steps
                    count.most_steps = max(count.most_steps, steps)
                    for q, h in mine:
                        for i in range(d):
                            count.store(("o", b, h, q, i), element_bytes if splits == 1 else 4)
                            count.distinct["o", b, h, q, i] = element_bytes
                        if splits > 1:
                            count.store(("lse", b, h, q), 4, distinct=False)
    return count


def pairs_seen(m: int, n: int, causal: bool) -> int:
    """Query-key pairs of a head: query i sees n - m + i + 1 keys."""
    return sum(1 for q in range(m) for k in range(n) if not causal or k <= q + n - m)
