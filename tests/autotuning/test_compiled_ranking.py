"""Kernels that nobody described, ranked by their code."""

from __future__ import annotations

import collections
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch
import triton

from advisor.autotuning import compiled_ranking, internals
from advisor.autotuning.measuring import Call

from .fakes import FakeDriver
from .stranger_kernels import flash, product

pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")

SIDES = ("TILE_R", "TILE_C", "TILE_D", "SWIZZLE", "PARTS")


@pytest.fixture(autouse=True)
def h100(fake_driver, monkeypatch):
    from triton.runtime.driver import driver

    monkeypatch.setattr(driver, "_active", FakeDriver("NVIDIA H100 80GB HBM3"))
    for kernel in (product, flash):
        kernel.device_caches.clear()


def made(shape, dtype=None):
    return torch.empty(shape, dtype=dtype or torch.bfloat16, device="meta")


def of_product(m, n, k, dtype=None):
    """Arguments of a product, its right operand transposed, and its grid."""
    x, w, y = made((m, k), dtype), made((n, k), dtype).t(), made((m, n))
    grid = lambda meta: (triton.cdiv(m, meta["TILE_R"]) * triton.cdiv(n, meta["TILE_C"]), meta["PARTS"])  # noqa: E731
    return (x, w, y, m, n, k, *x.stride(), *w.stride(), *y.stride()), grid


def of_attention(b, h, h_kv, n, d, causal):
    q, k, v, o = made((b, h, n, d)), made((b, h_kv, n, d)), made((b, h_kv, n, d)), made((b, h, n, d))
    strides = [stride for each in (q, k, v, o) for stride in each.stride()[:3]]
    return (q, k, v, o, 1.0, b, h, h_kv, n, *strides, causal, d), lambda meta: (triton.cdiv(n, meta["ROWS"]), b * h)


def configs(names, *values):
    """Configurations of blocks, warps and stages."""
    return [triton.Config(dict(zip(names, each, strict=False)), num_warps=each[-2], num_stages=each[-1]) for each in values]


def ranked(kernel, listed, arguments, grid):
    """What the code of a kernel says of its configurations."""
    named = dict(zip(kernel.arg_names, arguments, strict=False))
    call = Call(args=arguments, kwargs={"grid": grid}, named=named, configs=listed, identities=[str(each) for each in listed])
    tuner = SimpleNamespace(fn=kernel)
    return compiled_ranking.rank_by_code(tuner, call, internals.current_device(), "no family is known for it")


@pytest.fixture
def problems(monkeypatch):
    """The problems that were recognised, and the configurations by the family's names."""
    seen = []
    rank = compiled_ranking.rank

    def noted(identities, recognised, why, gpu, configurations):
        seen.append((recognised.problem, configurations))
        return rank(identities, recognised, why, gpu, configurations=configurations)

    monkeypatch.setattr(compiled_ranking, "rank", noted)
    return seen


@pytest.mark.parametrize("sizes", [(4096, 4096, 4096), (16, 28672, 4096), (1000, 776, 3001)])
def test_the_sizes_of_a_product_are_read_off_its_code(sizes, problems):
    listed = configs(SIDES, (64, 128, 64, 8, 1, 4, 3), (128, 64, 32, 4, 1, 8, 3), (64, 128, 64, 8, 4, 4, 4))
    found = ranked(product, listed, *of_product(*sizes))
    assert found.modelled and "its code: gemm" in found.by
    problem, configurations = problems[0]
    assert (problem.family, problem.dtype, problem.sizes) == ("gemm", "bf16", dict(zip("MNK", sizes, strict=True)))
    flat = [each.flat() for each in configurations]
    assert [each["BLOCK_SIZE_M"] for each in flat] == [64, 128, 64] and [each["BLOCK_SIZE_K"] for each in flat] == [64, 32, 64]
    assert [each["SPLIT_K"] for each in flat] == [1, 1, 4] and [each["GROUP_SIZE_M"] for each in flat] == [8, 4, 8]


@pytest.mark.parametrize("causal", [0, 1])
def test_the_sizes_of_attention_are_read_off_its_code(causal, problems):
    listed = configs(("ROWS", "COLS"), (128, 64, 8, 3), (64, 32, 4, 3))
    found = ranked(flash, listed, *of_attention(2, 16, 4, 1000, 64, causal))
    assert found.modelled and "its code: attention" in found.by
    problem, configurations = problems[0]
    assert problem.sizes == {"B": 2, "H": 16, "H_kv": 4, "M": 1000, "N": 1000, "D": 64, "causal": causal}
    assert [each.parameters for each in configurations] == [{"BLOCK_M": 128, "BLOCK_N": 64}, {"BLOCK_M": 64, "BLOCK_N": 32}]


def test_of_a_long_list_a_sample_is_translated_where_names_stand_for_sides(problems, monkeypatch):
    translated = []
    only = internals._source

    def counted(*args):
        source = only(*args)
        make = source.make_ttir
        return internals.Source(
            key=source.key, constants=source.constants, options=source.options, make_ttir=lambda: (translated.append(1), make())[1]
        )

    monkeypatch.setattr(internals, "_source", counted)
    monkeypatch.setattr(compiled_ranking, "_modules", collections.OrderedDict())
    values = [(m, n, k, g, 1, 4, 3) for m in (16, 32, 64, 128) for n in (32, 64, 128) for k in (32, 64, 128) for g in (1, 4, 8)]
    found = ranked(product, configs(SIDES, *values), *of_product(512, 4096, 4096))
    assert found.modelled and 0 < len(translated) <= compiled_ranking.SAMPLED + 3 < len(values)
    assert [each.parameters["BLOCK_SIZE_N"] for each in problems[0][1]] == [value[1] for value in values]


def test_what_the_front_end_refuses_is_tried_last():
    listed = configs(SIDES, (64, 48, 64, 8, 1, 4, 3), (128, 64, 32, 4, 1, 8, 3))
    found = ranked(product, listed, *of_product(4096, 4096, 4096))
    assert found.modelled and found.order == (1, 0) and found.scores[0] == float("inf")
