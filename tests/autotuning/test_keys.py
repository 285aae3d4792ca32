"""Keys, configurations' identities, sources, and the recognition of problems."""

from __future__ import annotations

import subprocess
import sys

import pytest

from advisor.autotuning import keys
from advisor.autotuning.keys import code_hash, passed_constants, source_hash
from advisor.autotuning.ranking import evaluate, problem_of_call, recognise
from advisor.result.schema import Problem
from advisor.system.errors import UsageError

from .fakes import FakeKernel, Tensor

tl = pytest.importorskip("triton.language")


def test_power_of_two():
    assert [keys.round_up_to_power_of_two(n) for n in (1, 2, 3, 4, 1000, 1024, 1025)] == [1, 2, 4, 4, 1024, 1024, 2048]
    assert [keys.round_up_to_power_of_two(n) for n in (0, -3, 2.5, None, True)] == [0, -3, 2.5, None, True]


def test_a_reader_tells_calls_apart():
    read = keys.fast_reader(("a", "b", "n", "s"), ("n",), {}, frozenset(), frozenset({"a"}), frozenset({"b"}))
    half, full = Tensor("fp16"), Tensor("fp32")
    assert read(half, None, 4, 1) == read(a=half, b=None, n=4, s=2, grid=(1,), warmup=False)
    different = {read(half, None, 4, 1), read(full, None, 4, 1), read(half, full, 4, 1), read(half, None, 5, 1), read(half, None, 4, full)}
    assert len(different) == 5
    with pytest.raises(AttributeError):
        read(None, None, 4, 1)


def test_calls_of_many_kinds_are_all_decided_rightly():
    from .kernels import tuned

    kernel, bench = tuned({32: 1.0, 64: 2.0}, cache_results=False)
    kinds = [(Tensor("fp16"), 1), (None, 1), (Tensor("fp32"), 1), (3, 1), (Tensor("fp16"), Tensor("i32")), (None, 2)]
    for _ in range(3):
        for kind in kinds:
            kernel[(1,)](*kind)
    assert len(kernel.cache) == 5  # None and 3 have no dtype: one key
    assert len(bench.measured) == 10


def test_unstable_keys_are_not_written_down():
    assert keys.stable_text((1, "torch.float16")) == "(1, 'torch.float16')"
    assert keys.stable_text((object(),)) is None and keys.stable_text((lambda: 0,)) is None


def test_identities():
    import triton

    values = {"A": 1, "B": True}
    one = keys.identity(triton.Config(values, num_warps=8))
    assert one == keys.identity(triton.Config({"B": True, "A": 1}, num_warps=8, num_ctas=1))
    others = [
        triton.Config({"A": 1, "B": 1}, num_warps=8),
        triton.Config(values),
        triton.Config(values, num_warps=8, maxnreg=64),
        triton.Config(values, num_warps=8, pre_hook=print),
        triton.Config(values, num_warps=8, ir_override="x.ttir"),
        triton.Config(values, num_warps=8, ir_override="y.ttir"),
    ]
    assert len({one, *map(keys.identity, others)}) == 7
    assert keys.parameters(one) == {"A": 1, "B": True, "num_warps": 8, "num_stages": 3}


SOURCE = """
import triton, triton.language as tl
{above}
LIMIT = {limit}
@triton.jit
def helper(x):
    return x + {amount}
@triton.jit
def kernel(x, BLOCK: tl.constexpr):
    tl.store(x, helper(LIMIT) + tl.cdiv(BLOCK, 2))
"""


def hash_of(tmp_path, **changes):
    values = {"above": "", "limit": "tl.constexpr(3)", "amount": 1, **changes}
    path = tmp_path / "source_kernel.py"
    path.write_text(SOURCE.format(**values))
    code = "import source_kernel; from advisor.autotuning.keys import source_hash; print(source_hash(source_kernel.kernel))"
    done = subprocess.run(
        [sys.executable, "-B", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**__import__("os").environ, "PYTHONPATH": f"{tmp_path}:."},
    )
    return done.stdout.strip()


def test_the_source_hash_is_of_what_is_compiled(tmp_path):
    base = hash_of(tmp_path)
    assert len(base) == 64
    assert hash_of(tmp_path, above="# moved\n\n\n") == base
    assert hash_of(tmp_path, amount=2) != base
    assert hash_of(tmp_path, limit="tl.constexpr(4)") != base


def test_constants_of_a_call_are_told_alike_in_every_process():
    def plain(x, n, A: tl.constexpr, B: tl.constexpr = 3, C: tl.constexpr = None):
        """Only its annotations count."""

    kernel, named = FakeKernel(plain), {"x": Tensor(), "n": 8, "C": None, "B": tl.float16, "A": (1, "a")}
    assert passed_constants(kernel, named, ["n"]) == "A=(1, 'a'), B=dtype(fp16), C=None"
    assert passed_constants(kernel, named, ["A", "B"]) == "C=None"
    assert passed_constants(kernel, {"x": Tensor(), "A": object()}, []) == "A=object"
    assert passed_constants(kernel, {"A": FakeKernel(recursive)}, []).removeprefix("A=") == source_hash(FakeKernel(recursive))
    nested = {"A": ((1, "a"), tl.float16, FakeKernel(recursive), object())}
    assert passed_constants(kernel, nested, []) == f"A=((1, 'a'), dtype(fp16), {source_hash(FakeKernel(recursive))}, object)"


HOOKS = """
import functools
SIZE = {size}
def helper(given):
    return {{"a", "b", "c", "d"}} & {{{helped}}}
def make(outer, default={default}):
    def hook(given, default=default):
        given["x"] = [SIZE + outer + default for _ in given if helper(given) in {{"p", "q", "r"}}]
    return hook
hook = functools.partial(make({outer}), {given})
"""


def test_the_hash_of_a_function_is_of_what_it_does(tmp_path):
    def hash_of(above="", **changes):
        (tmp_path / "hooks.py").write_text(above + HOOKS.format(**{"size": 1, "helped": 2, "default": 3, "outer": 4, "given": 5} | changes))
        code = "import hooks; from advisor.autotuning.keys import code_hash; print(code_hash(hooks.hook), code_hash(hooks.hook))"
        done = subprocess.run(
            [sys.executable, "-B", "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**__import__("os").environ, "PYTHONPATH": f"{tmp_path}:."},
        )
        first, second = done.stdout.split()
        assert first == second
        return first

    alike = {hash_of(), hash_of(above="# moved\n\n")}  # sets of text have another order in every process
    assert len(alike) == 1
    others = [hash_of(**{name: 9}) for name in ("size", "helped", "default", "outer", "given")]
    assert len({*alike, *others}) == 6
    assert code_hash(print) != code_hash(len) and code_hash(Tensor()) == code_hash(Tensor("other"))  # known by name or type


def test_no_source_no_hash():
    exec_scope: dict = {}
    exec("def made(x, n, BLOCK): pass", exec_scope)
    assert source_hash(FakeKernel(exec_scope["made"])) is None


def test_a_kernel_that_calls_itself():
    kernel = FakeKernel(recursive)
    recursive.__globals__["recursive_kernel"] = kernel
    assert source_hash(kernel) == source_hash(kernel)


def recursive(n):
    return recursive_kernel(n)  # noqa: F821


def test_expressions():
    named = {"M": 6, "a": Tensor(shape=(4, 8)), "flag": True, "none": None}
    assert evaluate("M // 2 + a.shape[1] * 2", named) == 19
    assert evaluate("not flag", named) is False and evaluate("none == None", named) is True
    for text in ("a.dtype", "unknown", "__import__('os')", "M(", "a.shape[5]"):
        with pytest.raises((UsageError, IndexError)):
            evaluate(text, named)


def test_operators_are_told_apart():
    entry = {
        "family": "fused_moe",
        "dtype": "a",
        "weight_dtype": "b",
        "ops": {"w13": {"when": "not LAST", "sizes": {"M": "m"}}, "w2": {"sizes": {"M": "m * 2"}}},
    }
    named = {"a": Tensor("torch.bfloat16"), "b": Tensor("torch.float8_e4m3fn"), "m": 3, "LAST": False}
    problem = problem_of_call(entry, named)
    assert (problem.op, problem.sizes, problem.dtype, problem.weight_dtype) == ("w13", {"M": 3}, "bf16", "fp8")
    assert problem_of_call(entry, {**named, "LAST": True}).sizes == {"M": 6}
    with pytest.raises(UsageError):
        problem_of_call(entry, {**named, "a": 3})


@pytest.mark.parametrize(("precision", "dtype"), [("ieee", "fp32"), ("tf32", "tf32"), ("tf32x3", "tf32"), ("bf16x6", "tf32")])
def test_products_on_matrix_units_are_not_exact_ones(precision, dtype):
    """An fp32 problem's bound is that of the vector units, which such a launch beats."""
    entry = {"family": "gemm", "dtype": "a", "precision": "P", "ops": {"gemm": {"sizes": {"M": "m", "N": "m", "K": "m"}}}}
    assert problem_of_call(entry, {"a": Tensor("torch.float32"), "m": 64, "P": precision}).dtype == dtype
    assert problem_of_call(entry, {"a": Tensor("torch.bfloat16"), "m": 64, "P": precision}).dtype == "bf16"


@pytest.mark.parametrize(("dtype", "block"), [("float8_e4m3fn", (128, 128)), ("bfloat16", None)])
def test_operands_with_scales_in_blocks_are_known_by_their_entry(dtype, block):
    from advisor.measurement.kernel_file import find_kernels, kernel_entry

    (kernel,) = find_kernels("fused_moe::fused_moe_kernel")
    named = {
        "topk_weights_ptr": Tensor(shape=(16, 2)),
        "a_ptr": Tensor(f"torch.{dtype}"),
        "c_ptr": Tensor("torch.bfloat16"),
        "b_ptr": Tensor(f"torch.{dtype}", shape=(8, 512, 512)),
        "N": 512,
        "K": 512,
        "MUL_ROUTED_WEIGHT": False,
    }
    assert problem_of_call(kernel_entry(kernel), named).block_shape == block


def test_hints_may_be_problems():
    problem = Problem(family="gemm", op="gemm", sizes={"M": 1, "N": 2, "K": 3})
    found, _ = recognise(FakeKernel(recursive), {"x": 1}, None, lambda args: problem)
    assert found.problem is problem
    found, _ = recognise(FakeKernel(recursive), {"x": Tensor("torch.float16")}, "gemm", lambda args: {"M": 1, "N": 2, "K": 3})
    assert found.problem.dtype == "fp16"
    found, why = recognise(FakeKernel(recursive), {}, None, lambda args: {"M": 1})
    assert found is None and "family" in why
