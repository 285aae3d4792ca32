"""Sizes that stand in where nothing says any: large ones, as a kernel is judged at, by what kernels call them."""

from __future__ import annotations

import re
from collections.abc import Iterable

VOCABULARY = re.compile(r"cross_?entropy|vocab|logits?|logprob|ce_loss", re.IGNORECASE)
"""What a kernel is called whose rows are as long as a vocabulary."""
ROW = re.compile(
    r"(n_?|num_?)?(cols?|columns?)|n|(?-i:V)|row_(size|len\w*)|hidden(_(size|dim))?|(model_|d_|input_)?dim|d_model|features?", re.IGNORECASE
)
OF_VOCABULARY = 128_256
"""Tokens of Llama 3 (its model card)."""

BLOCK = re.compile(r"x?block(_?size)?(_x)?", re.IGNORECASE)
"""A kernel's one block, and `OF_BLOCK` its elements, as tutorials and libraries launch kernels along one dimension."""
OF_BLOCK = 1_024

_SIZES = tuple(
    (re.compile(pattern, re.IGNORECASE), size)
    for pattern, size in (
        (r"\w*vocab\w*", OF_VOCABULARY),
        (r"(n_?|num_?|total_?)?(elements?|elems?|numel|size)|numel|xnumel", 2**24),
        (r"(n_?|num_?|total_?)?(rows?|tokens?)|m|x?_?rows", 8_192),
        (r"(?-i:[BZ])|(n_?|num_?)?batch(es|_size)?|batchsize", 4),
        (r"(?-i:[TSL])|sq|sk|n_ctx\w*|(max_?)?(seq|ctx|context)_?(len)?\w*|\w*seq_?lens?\w*|length", 4_096),
        (r"h_?kv|(n_?|num_?)?(kv_?heads?|heads?_?kv)", 8),
        (r"(?-i:H_?[QVOqvo]?)|(n_?|num_?)?(q_?)?heads?(_?q)?|heads?_num|nh", 32),
        (r"(?-i:[KVD])|d[kqv]|d_?head|head_?(dim|size)\w*|hd|dim_?[kqv]|d_?state|dstate", 128),
    )
)


def typical_size(name: str, kernel: str, others: Iterable[str]) -> int | None:
    """What a size of a kernel may be; None: the name says nothing of it.

    Args:
        name: Of a parameter.
        kernel: The kernel's name.
        others: Its other parameters: M, N and K of one kernel are those of a product.
    """
    if VOCABULARY.search(kernel) and ROW.fullmatch(name):
        return OF_VOCABULARY
    if name.upper() in ("M", "N", "K") and {"M", "N", "K"} <= {each.upper() for each in others}:
        return 4_096
    found = next((size for pattern, size in _SIZES if pattern.fullmatch(name)), None)
    return found if found is not None else 4_096 if ROW.fullmatch(name) else None
