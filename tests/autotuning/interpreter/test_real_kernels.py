"""What Triton's own autotuner tests hold, told anew with our decorator, on kernels that really run (in the interpreter).

Of Triton's `test_autotuner.py` (3.9), these have no counterpart here:
  - `test_override_ttir`, `test_override_ttgir`, `test_override_ptx`, `test_exceed_tmem`, `test_exceed_threads`, and `test_kwargs` with
    `use_cuda_graph`: they need a GPU. What they ask of the autotuner (options reach the launch, post_hook sees the failure) is in
    `test_decorator.py` with a fake kernel.
  - `test_config_ir_override_changes_disk_cache_key`: asks for `str(Config)`, which is Triton's own class (and differs in 3.6); that
    our cache tells such configurations apart is in `test_keys.py`.
  - `test_prune_configs_fractional_top_k_after_early_prune` builds `triton.runtime.Autotuner` by hand: in `test_decorator.py`.
"""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from advisor.autotuning.decorator import autotune  # noqa: E402


def bench(run, quantiles):
    run()
    run()
    return [1.0, 1.0, 1.0]


def configs(*blocks, name="BLOCK"):
    return [triton.Config({name: block}) for block in blocks]


def grid(meta):
    # Of 100 elements; not of meta["N"], which the interpreter of Triton 3.6 gives as something numpy 2.5 does not take for an integer.
    return (-(-100 // meta["BLOCK"]),)


@triton.jit
def increment(x, N, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, mask=offsets < N) + 1, mask=offsets < N)


@triton.jit
def copy(out, x, N, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < N), mask=offsets < N)


@triton.jit
def fill(x, out, N, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if x is not None:
        tl.store(x + offsets, tl.full([BLOCK], 1, dtype=x.dtype.element_ty), mask=offsets < N)
    else:
        tl.store(out + offsets, tl.full([BLOCK], 1, dtype=out.dtype.element_ty), mask=offsets < N)


def test_where_no_gpu_is_the_interpreter_needs_no_benchmark_of_the_users(monkeypatch):
    """As the message of a launch without a GPU promises; triton.autotune asks for a driver there, and fails."""
    from triton.runtime.driver import driver

    def none():
        raise RuntimeError("0 active drivers ([]). There should only be one.")

    monkeypatch.setattr(driver, "_default", None)
    monkeypatch.setattr(driver, "_active", None)
    monkeypatch.setattr(sys.modules["triton.runtime.driver"], "_create_driver", none)
    kernel = autotune(configs(32, 64), ["N"], restore_value=["x"])(increment)
    x = torch.zeros(100)
    kernel[grid](x, 100)
    kernel[grid](x, 100)
    assert (x == 2).all() and kernel.decision.how == "measured" and kernel.decision.measurements == 2


def test_arguments_by_name_in_any_order():
    x, out = torch.randn(100), torch.zeros(100)
    kernel = autotune(configs(32, 64), ["N"], do_bench=bench)(copy)
    kernel[grid](out, x, 100)
    kernel[grid](N=50, x=x, out=out)
    assert len(kernel.cache) == 2
    torch.testing.assert_close(out, x)


def test_a_dtype_as_a_key():
    @triton.jit
    def convert(out, x, N, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + offsets, tl.load(x + offsets, mask=offsets < N).to(DTYPE), mask=offsets < N)

    kernel = autotune(configs(32, 64), ["DTYPE"], do_bench=bench, cache_results=True)(convert)
    x, out = torch.randn(100), torch.zeros(100)
    for _ in range(2):
        kernel[grid](out, x, 100, tl.float32)
    assert len(kernel.cache) == 1
    torch.testing.assert_close(out, x)


@pytest.mark.parametrize("by_name", [False, True])
def test_restored_values(by_name):
    kernel = autotune(configs(32, 64), ["N"], restore_value=["x"], do_bench=bench)(increment)
    x = torch.zeros(100)
    kernel[grid](x=x, N=100) if by_name else kernel[grid](x, 100)
    assert (x == 1).all()


@pytest.mark.parametrize("parameter", ["reset_to_zero", "restore_value"])
@pytest.mark.parametrize("none", [False, True])
@pytest.mark.parametrize("by_name", [False, True])
def test_optional_arguments(parameter, none, by_name):
    out = torch.full((100,), 2.0)
    x = None if none else out
    kernel = autotune(configs(32, 64), ["N"], **{parameter: ["x"]}, do_bench=bench)(fill)
    kernel[grid](x=x, out=out, N=100) if by_name else kernel[grid](x, out, 100)
    assert (out == 1).all()


def test_under_and_over_heuristics():
    @triton.jit
    def add(x, N, AMOUNT: tl.constexpr, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + offsets, tl.load(x + offsets, mask=offsets < N) + AMOUNT, mask=offsets < N)

    heuristics = triton.heuristics({"AMOUNT": lambda args: args["N"] // 10})
    tune = autotune(configs(32, 64), ["N"], restore_value=["x"], do_bench=bench)
    for kernel in (tune(heuristics(add)), heuristics(tune(add))):
        x = torch.zeros(100)
        kernel[grid](x, 100)
        kernel[grid](x, 100)
        assert (x == 20).all()


@pytest.mark.parametrize("outer", [autotune, triton.autotune])
@pytest.mark.parametrize("inner", [autotune, triton.autotune])
def test_an_autotuner_around_another_goes_well_where_no_option_is_set_twice(outer, inner):
    """With heuristics in between; as two of Triton's do."""

    @triton.jit
    def fill(x, N, AMOUNT: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), AMOUNT + 0.0, mask=tl.arange(0, BLOCK) < N)

    below = triton.heuristics({"AMOUNT": lambda args: args["BLOCK"]})(inner(configs_of("ROWS"), ["N"], do_bench=bench)(fill))
    nothing = {"num_warps": None, "num_stages": None, "num_ctas": None}
    kernel, x = outer(configs_of("BLOCK", **nothing), ["N"], do_bench=bench)(below), torch.zeros(16)
    for _ in range(2):
        kernel[(1,)](x, 16)
        assert (x == 32).all()
        x.zero_()
    kernel = outer(configs_of("BLOCK"), ["N"], do_bench=bench)(below)
    with pytest.raises(TypeError, match=r"multiple values for .*num_warps"):
        kernel[(1,)](x, 16)


def configs_of(name, **options):
    return [triton.Config({name: value}, **options) for value in (32, 64)]


@pytest.mark.parametrize("kind", ["early_config_prune", "perf_model"])
def test_one_configuration_left_is_not_measured(kind, monkeypatch):
    def never(run, quantiles):
        raise AssertionError("measured")

    from triton import knobs

    heard = []
    monkeypatch.setattr(knobs.autotuning, "listener", lambda **told: heard.append(told), raising=False)
    prune = {"early_config_prune": lambda given, named, **_: [given[1]]}
    if kind == "perf_model":
        prune = {"perf_model": lambda **args: -args["BLOCK"], "top_k": 1}
    kernel = autotune(configs(32, 64), ["N"], prune_configs_by=prune, do_bench=never)(copy)
    x, out = torch.randn(100), torch.zeros(100)
    kernel[grid](out, x, N=100)
    torch.testing.assert_close(out, x)
    assert kernel.best_config == kernel.configs[1] and not heard


def test_wrong_results_are_left_out():
    @triton.jit
    def sum_blocks(out, x, N, BLOCK: tl.constexpr):
        # Wrong for blocks below N: only the first block is summed.
        offsets = tl.arange(0, BLOCK)
        tl.store(out, tl.sum(tl.load(x + offsets, mask=offsets < N, other=0.0)))

    def fastest_first(run, quantiles):
        run()
        return [1.0 / (1 + len(order))] * 3

    order = []
    kernel = autotune(configs(128, 32), ["N"], do_bench=fastest_first, check_output=True)(sum_blocks)
    x, out = torch.ones(100), torch.zeros(1)
    kernel[(1,)](out, x, 100)
    assert out.item() == 100 and [timing.state for timing in kernel.decision.timings] == ["measured", "output"]


@pytest.mark.parametrize("before", [-1.0, 2.0])
def test_an_output_left_unwritten_is_found_out(before):
    """A grid that forgets the block: the second configuration writes 16 elements of 64, and is faster."""

    @triton.jit
    def double(x, y, N, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(y + offsets, 2 * tl.load(x + offsets, mask=offsets < N), mask=offsets < N)

    def faster_and_faster(run, quantiles):
        run()
        order.append(None)
        return [1.0 / len(order)] * 3

    order = []
    kernel = autotune(configs(64, 16), ["N"], do_bench=faster_and_faster, check_output=True, outputs=["y"])(double)
    x, y = torch.ones(64), torch.full((64,), before)
    kernel[(1,)](x, y, 64)
    assert [timing.state for timing in kernel.decision.timings] == ["measured", "output"]
    assert (x == 1).all() and (y == 2).all()


def test_nothing_is_kept_of_the_interpreter(tmp_path, monkeypatch):
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))
    kernel = autotune(configs(32, 64), ["N"], do_bench=bench)(copy)
    kernel[grid](torch.zeros(100), torch.zeros(100), 100)
    assert not (tmp_path / "cache").exists()


def test_bundled_gemm_is_recognised():
    import importlib.util
    from pathlib import Path

    path = Path(__file__).resolve().parents[3] / "triton_kernels" / "gemm.py"
    spec = importlib.util.spec_from_file_location("bundled_gemm", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    from advisor.autotuning.ranking import recognise

    a, b, c = torch.zeros(8, 16, dtype=torch.bfloat16), torch.zeros(16, 32, dtype=torch.bfloat16), torch.zeros(8, 32)
    found, why = recognise(module.gemm_kernel, {"a_ptr": a, "b_ptr": b, "c_ptr": c, "M": 8, "N": 32, "K": 16}, None, None)
    assert found is not None, why
    assert found.problem.sizes == {"M": 8, "N": 32, "K": 16} and found.problem.dtype == "bf16"
