"""Every kernel at real sizes on a GPU: fresh random inputs, poisoned outputs, references in fp64."""

import itertools
import multiprocessing
import os
import random
from concurrent.futures import ProcessPoolExecutor

import pytest
from kernel_harness import check_inputs, compare, load, poison

from advisor.measurement.kernel_file import block_shape_of, bundled_files, find_kernels, load_module, tolerance_of
from advisor.measurement.scheduler import compile_launch, use_offline_target
from advisor.result.schema import Configuration, Problem

pytestmark = pytest.mark.gpu

SEED = int(os.environ.get("KERNEL_SEED") or random.SystemRandom().randrange(2**31))
"""Fresh every run; a failure prints it, and KERNEL_SEED=… repeats it."""

SAMPLED = 6
"""Valid configurations tried beside the default, per problem."""

QWEN3 = {"E": 128, "topk": 8, "H": 2048, "N": 768}
MIXTRAL = {"E": 8, "topk": 2, "H": 4096, "N": 14336}
DEEPSEEK_SHARE = {"E": 32, "topk": 8, "H": 7168, "N": 2048}  # DeepSeek-V3's experts on one of eight ranks

PROBLEMS = [
    *(
        ("fused_moe", "fused_moe_kernel", {"op": op, "M": m, **sizes, "dtype": dtype})
        for op, (m, sizes, dtype) in itertools.product(
            ("w13", "w2"),
            [
                (1, QWEN3, "bf16"),
                (33, QWEN3, "fp16"),
                (2048, QWEN3, "bf16"),
                (17, MIXTRAL, "bf16"),
                (513, MIXTRAL, "fp16"),
                (64, QWEN3, "fp8"),
                (1000, DEEPSEEK_SHARE, "fp8"),
                (7, {"E": 5, "topk": 3, "H": 777, "N": 333}, "bf16"),
            ],
        )
    ),
    ("fused_moe", "activation_kernel", {"op": "activation", "M": 1023, **QWEN3, "dtype": "bf16"}),
    ("fused_moe", "combine_kernel", {"op": "combine", "M": 1023, **QWEN3, "dtype": "bf16"}),
    *(
        ("gemm", kernel, {"op": "gemm", "M": m, "N": n, "K": k, "dtype": dtype})
        for kernel, (m, n, k, dtype) in itertools.product(
            ("gemm_kernel", "gemm_persistent_kernel"),
            [
                (4096, 4096, 4096, "bf16"),
                (1, 4096, 14336, "bf16"),
                (333, 4112, 1008, "fp16"),
                (2048, 5120, 4096, "fp8"),
                (1000, 1008, 2048, "tf32"),
            ],
        )
    ),
    ("gemm", "gemm_kernel", {"op": "gemm", "M": 1027, "N": 515, "K": 1031, "dtype": "fp32"}),
    ("gemm", "gemm_kernel", {"op": "gemm", "M": 1027, "N": 515, "K": 1031, "dtype": "bf16"}),
    *(
        (
            "attention",
            "attention_kernel",
            {"op": "prefill", **dict(zip(("B", "H", "H_kv", "M", "N", "D"), sizes, strict=True)), "causal": causal, "dtype": dtype},
        )
        for sizes, causal, dtype in [
            ((2, 32, 8, 2048, 2048, 128), 1, "bf16"),
            ((1, 16, 16, 1000, 1500, 64), 0, "fp16"),
            ((1, 8, 2, 777, 1777, 128), 1, "fp16"),
            ((2, 12, 4, 515, 515, 80), 1, "bf16"),
            ((1, 4, 1, 300, 100, 128), 1, "bf16"),
        ]
    ),
    *(
        (
            "attention",
            "decode_kernel",
            {"op": "decode", **dict(zip(("B", "H", "H_kv", "M", "N", "D"), sizes, strict=True)), "causal": 1, "dtype": dtype},
        )
        for sizes, dtype in [
            ((32, 32, 8, 1, 8192, 128), "bf16"),
            ((1, 64, 8, 1, 60001, 128), "bf16"),
            ((3, 24, 8, 4, 1023, 96), "fp16"),
        ]
    ),
    *(
        (name, f"{name}_kernel", {"op": name, "B": rows, "H": columns, "dtype": dtype})
        for name, (rows, columns, dtype) in itertools.product(
            ("rms_norm", "layer_norm", "softmax", "silu_and_mul"),
            [(4096, 4096, "bf16"), (1, 8192, "fp16"), (333, 777, "fp32"), (65, 128256, "bf16"), (100_003, 64, "fp16")],
        )
    ),
]


def configurations(module, entry, problem):
    """The default, and valid ones in random order."""
    space, valid = entry["space"], getattr(module, entry["valid"])
    candidates = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    candidates = [config for config in candidates if valid(config, problem)]
    random.Random(SEED).shuffle(candidates)
    return [getattr(module, entry["default"])(problem), *candidates]


def bundled(file):
    """A kernel file under the name that processes share: Triton's disk cache goes by it."""
    return load_module(next(path for path in bundled_files() if path.stem == file))


def compiling(pool, file, kernel, problem, capability):
    """What `test_matches_reference` is likely to launch, on its way into Triton's disk cache."""
    module = bundled(file)
    entry = module.KERNELS[kernel]
    sizes = {name: value for name, value in problem.items() if name not in ("op", "dtype")}
    described = Problem(
        family=entry["family"], op=problem["op"], sizes=sizes, dtype=problem["dtype"], block_shape=block_shape_of(entry, problem["dtype"])
    )
    (ref,) = find_kernels(f"{file}::{kernel}")
    chosen = configurations(module, entry, {**problem, "capability": capability})[: SAMPLED + 1]
    return [pool.submit(compile_launch, ref, described, Configuration.from_flat(config)) for config in chosen]


@pytest.fixture(scope="module")
def compiled(request):
    """(file, kernel, problem) → waits until its launches are compiled: on all cores, those of later tests while the first ones run.

    One after the other they take longer than everything else together. A launch that fails to compile fails again where it is made.
    """
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    major, minor = torch.cuda.get_device_capability()
    capability = 10 * major + minor
    asked = [item.callspec.params for item in request.session.items if getattr(item, "function", None) is test_matches_reference]
    workers = max(1, (os.cpu_count() or 2) - 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # as the fixture `device` does: the cache goes by it, too
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), use_offline_target, ("cuda", capability, 32))
        futures = {
            str(each): compiling(pool, each["file"], each["kernel"], each["problem"], capability)
            for each in asked
            if capability >= least_capability(bundled(each["file"]).KERNELS[each["kernel"]], each["problem"])
        }

        def wait(file, kernel, problem):
            for future in futures.get(str({"file": file, "kernel": kernel, "problem": problem}), ()):
                future.exception()

        yield wait
        pool.shutdown(cancel_futures=True)


def least_capability(entry, problem):
    return max(entry.get("min_capability", 0), 89 if problem["dtype"] == "fp8" else 0)


def skip_what_cannot_run(entry, problem, capability):
    needs = least_capability(entry, problem)
    if capability < needs:
        pytest.skip(f"needs sm_{needs}, this is sm_{capability}")


@pytest.mark.parametrize(
    ("file", "kernel", "problem"), PROBLEMS, ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value
)
def test_matches_reference(device, capability, compiled, file, kernel, problem):
    import torch
    from triton.runtime.errors import OutOfResources

    module = bundled(file)
    entry = module.KERNELS[kernel]
    skip_what_cannot_run(entry, problem, capability)
    compiled(file, kernel, problem)
    inputs = getattr(module, entry["make_inputs"])(problem, device, torch.Generator(device).manual_seed(SEED))
    want = getattr(module, entry["reference"])(inputs)
    ran = 0
    for config in configurations(module, entry, {**problem, "capability": capability}):
        poison(inputs["output"])
        try:
            got = getattr(module, entry["prepare"])(inputs, config)()
        except OutOfResources:  # this GPU has less shared memory than the space has been made for
            continue
        torch.cuda.synchronize()
        compare(got, want, tolerance_of(entry, problem["dtype"], problem), f"KERNEL_SEED={SEED} {problem} {config}")
        ran += 1
        if ran > SAMPLED:
            break
    assert ran, "not one configuration fits this GPU"


@pytest.mark.parametrize("op", ["w13", "w2"])
@pytest.mark.parametrize("shape", ["one expert takes all", "a few take most"])
def test_skewed_routing(device, op, shape):
    import torch

    module = load("fused_moe")
    tokens, experts, topk = 500, 64, 4
    if shape == "one expert takes all":
        routing = [tokens] * topk + [0] * (experts - topk)
    else:
        routing = [tokens, tokens, 400, 300, 200, 50, 40, 7, 2, 1] + [0] * (experts - 10)
    problem = {"op": op, "M": tokens, "E": experts, "topk": topk, "H": 1024, "N": 512, "dtype": "bf16", "routing": tuple(routing)}
    inputs = module.make_inputs(problem, device, torch.Generator(device).manual_seed(SEED))
    check_inputs(module, "fused_moe_kernel", inputs, module.default(problem))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_alignment_waits_for_nothing(device):
    """No host synchronization on the way: the whole layer can be captured in a CUDA graph."""
    import torch

    module = load("fused_moe")
    generator = torch.Generator(device).manual_seed(SEED)
    x = torch.randn(100, 1024, dtype=torch.bfloat16, device=device, generator=generator)
    w13 = torch.randn(16, 1024, 1024, dtype=torch.bfloat16, device=device, generator=generator) / 32
    w2 = torch.randn(16, 1024, 512, dtype=torch.bfloat16, device=device, generator=generator) / 32
    ids = module.make_routing({"M": 100, "E": 16, "topk": 4}, device, generator)
    weights = torch.rand(100, 4, device=device, generator=generator)
    first = module.fused_moe(x, w13, w2, weights, ids)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        module.fused_moe(x, w13, w2, weights, ids)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = module.fused_moe(x, w13, w2, weights, ids)
    ids.copy_(module.make_routing({"M": 100, "E": 16, "topk": 4}, device, generator))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, module.fused_moe(x, w13, w2, weights, ids))
    assert not torch.equal(out, first)
    compare(out, module.reference_layer(x, w13, w2, weights, ids), [2e-2, 1e-2], f"KERNEL_SEED={SEED} layer")


def test_split_k_gives_the_same_bits_every_time(device):
    import torch

    module = load("gemm")
    problem = {"op": "gemm", "M": 64, "N": 256, "K": 8192, "dtype": "bf16"}
    inputs = module.make_inputs(problem, device, torch.Generator(device).manual_seed(SEED))
    run = module.prepare(inputs, {**module.default(problem), "SPLIT_K": 8})
    first = run().clone()
    assert all(torch.equal(run(), first) for _ in range(20))


@pytest.mark.parametrize("persistent", [False, True])
def test_outputs_past_2_31_elements(device, capability, persistent):
    import torch

    if torch.cuda.get_device_properties(0).total_memory < 24e9:
        pytest.skip("needs 24 GB")
    module = load("gemm")
    m, n, k = 46_000, 48_000, 128
    problem = {"op": "gemm", "M": m, "N": n, "K": k, "dtype": "bf16"}
    if persistent:
        skip_what_cannot_run(module.KERNELS["gemm_persistent_kernel"], problem, capability)
    inputs = module.make_inputs(problem, device, torch.Generator(device).manual_seed(SEED))
    poison(inputs["output"])
    prepare, default = (module.prepare_persistent, module.default_persistent) if persistent else (module.prepare, module.default)
    got = prepare(inputs, default(problem))()
    for rows in (slice(0, 500), slice(m - 500, m)):
        want = module.reference({**inputs, "a": inputs["a"][rows]})
        compare(got[rows], want, [1e-2, 1e-3], f"rows {rows}")
    assert not torch.isnan(got.view(-1)[::9973]).any()
