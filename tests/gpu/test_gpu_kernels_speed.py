"""How fast the kernels are against what a user would use instead. Printed (`-s`); asserted for the large gemm only."""

import itertools
import statistics

import pytest
from kernel_harness import load

pytestmark = pytest.mark.gpu

ROUNDS = 5
"""Rounds in which every contender runs once: clocks and heat drift over all of them alike."""


def rounds(contenders, count=ROUNDS):
    """Median milliseconds of each contender, L2 flushed before every launch, all taking turns."""
    from triton.testing import do_bench

    samples = {name: [] for name in contenders}
    for _ in range(count):
        for name, function in contenders.items():
            samples[name].append(do_bench(function, warmup=10, rep=50, return_mode="median"))
    return {name: statistics.median(values) for name, values in samples.items()}


def fitting(module, kernel, inputs, configs):
    """Runs of the configurations that this GPU has room for."""
    from triton.runtime.errors import OutOfResources

    runs = {}
    for config in configs:
        run = getattr(module, module.KERNELS[kernel]["prepare"])(inputs, config)
        try:
            run()
        except OutOfResources:
            continue
        runs[" ".join(f"{name}={value}" for name, value in config.items())] = run
    assert runs, "not one configuration fits this GPU"
    return runs


def report(capsys, title, times, work, unit):
    """One line per contender, fastest first; `work` in `unit` x 1e12 (TFLOP/s, TB/s)."""
    with capsys.disabled():
        print(f"\n{title}")
        for name, milliseconds in sorted(times.items(), key=lambda item: item[1]):
            print(f"  {1e3 * milliseconds:10.1f} us {work / milliseconds / 1e9:8.2f} {unit}  {name}")


def generator(device):
    import torch

    return torch.Generator(device).manual_seed(0)


def large_gemm_configs(module, problem, capability):
    """The default and its neighbours."""
    base = module.default_persistent(problem)
    changes = [
        {},
        {"num_stages": 3},
        {"num_stages": 3, "EPILOGUE_SUBTILE": 1},
        {"GROUP_SIZE_M": 16},
        {"GROUP_SIZE_M": 4},
        {"FLATTEN": False},
        {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 128},
        {"BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "num_stages": 3},
        {"WARP_SPECIALIZE": True, "num_stages": 3},
    ]
    configs = [{**base, **change} for change in changes]
    return [config for config in configs if module.valid_persistent(config, {**problem, "capability": capability})]


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_large_gemm_reaches_85_percent_of_cublas(device, capability, capsys, dtype):
    import torch

    module = load("gemm")
    problem = {"op": "gemm", "M": 8192, "N": 8192, "K": 8192, "dtype": dtype}
    inputs = module.make_inputs(problem, device, generator(device))
    a, b = inputs["a"], inputs["b"]
    kernel, configs = "gemm_kernel", [module.default(problem)]
    if 90 <= capability < 110:
        kernel, configs = "gemm_persistent_kernel", large_gemm_configs(module, problem, capability)
    out = torch.empty_like(inputs["output"])
    contenders = {"cuBLAS": lambda: torch.matmul(a, b, out=out), **fitting(module, kernel, inputs, configs)}
    times = rounds(contenders)
    report(capsys, f"gemm 8192 x 8192 x 8192 {dtype}", times, 2 * 8192**3, "TFLOP/s")
    share = times["cuBLAS"] / min(value for name, value in times.items() if name != "cuBLAS")
    if capability == 90:
        assert share >= 0.85, f"{100 * share:.1f} % of cuBLAS"


@pytest.mark.parametrize(("m", "n", "k"), [(1, 4096, 4096), (16, 4096, 14336), (256, 4096, 4096), (2048, 14336, 4096)])
def test_gemm_beside_cublas(device, capsys, m, n, k):
    import torch

    module = load("gemm")
    problem = {"op": "gemm", "M": m, "N": n, "K": k, "dtype": "bf16"}
    inputs = module.make_inputs(problem, device, generator(device))
    a, b = inputs["a"], inputs["b"]
    contenders = {"cuBLAS": lambda: torch.matmul(a, b), "ours, default": lambda: module.gemm(a, b)}
    report(capsys, f"gemm {m} x {n} x {k} bf16", rounds(contenders), 2 * m * n * k, "TFLOP/s")


@pytest.mark.parametrize(("m", "causal"), [(1024, 1), (4096, 0), (4096, 1), (1, 1)])
def test_attention_beside_sdpa(device, capsys, m, causal):
    import torch

    module = load("attention")
    decode = m == 1
    n = 8192 if decode else m
    batch = 32 if decode else max(1, 16384 // m)
    op, kernel = ("decode", "decode_kernel") if decode else ("prefill", "attention_kernel")
    problem = {"op": op, "B": batch, "H": 32, "H_kv": 8, "M": m, "N": n, "D": 128, "causal": causal, "dtype": "bf16"}
    inputs = module.make_inputs(problem, device, generator(device))
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    if decode:
        configs = [{**module.default_decode(problem), "NUM_KV_SPLITS": splits} for splits in (1, 2, 4, 8)]
    else:
        shapes = [(128, 64, 8, 3), (128, 64, 8, 2), (128, 128, 8, 2), (64, 64, 4, 3), (128, 32, 4, 3)]
        configs = [dict(zip(module.KERNELS[kernel]["space"], shape, strict=True)) for shape in shapes]
    attend = torch.nn.functional.scaled_dot_product_attention
    contenders = {
        # One query sees all keys; SDPA's causal mask would hide all but the first.
        "SDPA": lambda: attend(q, k, v, is_causal=bool(causal) and not decode, enable_gqa=True),
        **fitting(module, kernel, inputs, configs),
    }
    work = 4 * batch * 32 * m * n * 128 / (2 if causal and not decode else 1)
    report(capsys, f"attention {problem}", rounds(contenders), work, "TFLOP/s")


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "softmax", "silu_and_mul"])
@pytest.mark.parametrize(("rows", "columns"), [(4096, 4096), (16384, 8192), (64, 128256)])
def test_rows_beside_torch(device, capsys, name, rows, columns):
    import torch

    module = load(name)
    problem = {"op": name, "B": rows, "H": columns, "dtype": "bf16"}
    inputs = module.make_inputs(problem, device, generator(device))
    x, functional = inputs["x"], torch.nn.functional
    baseline = {
        "rms_norm": lambda: functional.rms_norm(x, (columns,), inputs["weight"], 1e-6),
        "layer_norm": lambda: functional.layer_norm(x, (columns,), inputs["weight"], inputs["bias"]),
        "softmax": lambda: torch.softmax(x, -1),
        "silu_and_mul": lambda: functional.silu(x[:, :columns]) * x[:, columns:],
    }[name]
    base = module.default(problem)
    candidates = [base, *({**base, "BLOCK_SIZE": block, "num_warps": warps} for block, warps in itertools.product((2048, 8192), (4, 8)))]
    configs = [config for config in candidates if module.valid(config, problem)]
    contenders = {"torch": baseline, **fitting(module, f"{name}_kernel", inputs, configs)}
    moved = 2 * rows * columns * (3 if name == "silu_and_mul" else 2)
    report(capsys, f"{name} {rows} x {columns} bf16", rounds(contenders), moved, "TB/s")


@pytest.mark.parametrize("tokens", [1, 64, 4096])
def test_fused_moe_beside_a_loop_over_experts(device, capsys, tokens):
    import torch

    module = load("fused_moe")
    problem = {"op": "w13", "M": tokens, "E": 128, "topk": 8, "H": 2048, "N": 768, "dtype": "bf16"}
    inputs = module.make_inputs(problem, device, generator(device))
    ids, a, b = inputs["topk_ids"].flatten().long(), inputs["a"], inputs["b"]
    order = torch.argsort(ids)
    slots = torch.split(order, torch.bincount(ids, minlength=128).tolist())
    grouped = a[order // 8].contiguous()
    offsets = torch.cumsum(torch.bincount(ids, minlength=128), 0).to(torch.int32)
    contenders = {"a loop over experts": lambda: [a[chunk // 8] @ b[e].T for e, chunk in enumerate(slots) if chunk.numel()]}
    if hasattr(torch, "_grouped_mm"):
        contenders["torch._grouped_mm, rows sorted beforehand"] = lambda: torch._grouped_mm(grouped, b.transpose(1, 2), offs=offsets)
    base = module.default(problem)
    configs = [base, *({**base, "BLOCK_SIZE_N": n, "num_stages": s} for n, s in itertools.product((64, 128), (3, 4)))]
    contenders |= fitting(module, "fused_moe_kernel", inputs, configs)
    report(capsys, f"fused MoE w13, {tokens} tokens", rounds(contenders), 2 * tokens * 8 * 2048 * 1536, "TFLOP/s")
