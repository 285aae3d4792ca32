"""The devices without a GPU pass the tests of the protocol; what is particular to the fake one; and recordings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.measurement.devices.device import open_device, parse_device
from advisor.measurement.devices.fake import FakeDevice, normal, unit
from advisor.measurement.kernel_file import find_kernels
from advisor.measurement.launch import Batch, Launch, Timing
from advisor.measurement.measuring import measure
from advisor.measurement.replay import read_recording
from advisor.measurement.rounds import run_batch
from advisor.result.schema import Configuration, Fingerprint, Problem
from advisor.system.errors import AdvisorError, InputError, UsageError

from .conftest import configuration, elementwise, kernel, launches, moe


@pytest.fixture(params=["fake", "fake,execute=1"])
def device(request):
    return open_device(parse_device(request.param))


def test_protocol(device):
    assert device.gpu_name == "H200" and device.gpu.name == "H200"
    assert isinstance(device.fingerprint(), Fingerprint) and device.fingerprint().gpu == "H200"
    bench = device.open(kernel("scale_kernel"), elementwise(), 0)
    launched = bench.launch(configuration(512, 4))
    bench.check(launched)
    first, again = (bench.time(launched, 3, 0) for _ in range(2))
    assert isinstance(first, Timing) and first == again and all(sample > 0 for sample in first.samples_us)
    assert bench.timer(launched) == "simulated"
    bench.close()
    assert all(value > 0 for value in device.measure_ceilings().values())


def test_one_outcome_per_launch_in_order(device):
    todo = launches(1)
    outcomes = run_batch(device, Batch(launches=tuple(todo)))
    assert len(outcomes) == len(todo) and all(o.failure is None and len(o.rounds) >= 10 for o in outcomes)
    assert all(o.noise_floor is not None for o in outcomes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gpu",
        "recorded:rows.csv",
        "fake:file",
        "cuda,gpu=H200",
        "fake,speed=1",
        "fake,noise=much",
        "fake,faults=2",
        "fake,faults=x:0.1",
    ],
)
def test_no_such_device(text):
    with pytest.raises(AdvisorError):
        open_device(parse_device(text))


@pytest.mark.parametrize("option", ["noise=nan", "noise=-1", "sample_noise=inf", "drift=nan", "gpu=H2000"])
def test_an_option_no_device_can_have_is_a_usage_error(option):
    """Said of what was written, before a worker process is started with it."""
    with pytest.raises(UsageError):
        parse_device(f"fake,{option}")


def test_device_texts():
    assert parse_device("fake,gpu=4090").options == {"gpu": "4090"}  # a name, and no number
    assert parse_device("fake,gpu=A100,noise=0.02").options == {"gpu": "A100", "noise": 0.02}


def test_random_numbers_depend_on_nothing_else():
    assert unit("a", 1) == unit("a", 1) != unit("a", 2)
    values = [normal(i) for i in range(4000)]
    assert abs(sum(values)) / 4000 < 0.06 and 0.93 < sum(v * v for v in values) / 4000 < 1.07


def test_a_configuration_that_does_not_fit_is_out_of_resources():
    big = Configuration(parameters={"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 256, "GROUP_SIZE_M": 1}, num_stages=5)
    launch = Launch(kernel=find_kernels("fused_moe_kernel")[0], problem=moe(), configuration=big)
    (outcome,) = run_batch(FakeDevice(), Batch(launches=(launch,)))
    assert outcome.failure.kind == "out-of-resources"


def test_throttled_rounds_do_not_count():
    outcomes = run_batch(FakeDevice({"throttle": 0.2, "noise": 0.001}), Batch(launches=tuple(launches(1)[:2])))
    for outcome in outcomes:
        dropped = [r for r in outcome.rounds if r.discarded]
        assert dropped and "60 %" in dropped[0].discarded and outcome.throttle == ("sw-thermal",)
        assert sum(r.discarded is None for r in outcome.rounds) >= 10


# ------------------------------------------------------------------------------------------------------- recordings


def test_published_sweeps_are_replayed(data_dir):
    recording = read_recording(data_dir / "fused_moe_near_optimal.csv.gz", gpu="A40")
    problem = next(iter(recording))
    latencies = [recording.latency_us(problem, configuration) for configuration in recording.configurations(problem)]
    assert len(latencies) > 1 and latencies == sorted(latencies), "the fastest first"
    assert {problem.family for problem in recording} == {"fused_moe"} and len(recording) > 1000
    with pytest.raises(UsageError, match=r"several GPUs.*--gpu NAME"):
        read_recording(data_dir / "fused_moe_near_optimal.csv.gz")
    with pytest.raises(UsageError, match="no rows of this GPU"):
        read_recording(data_dir / "fused_moe_near_optimal.csv.gz", gpu="H200")


def test_sweep_summaries_are_replayed(data_dir):
    recording = read_recording(data_dir / "fused_moe_sweep_summary.csv.gz", gpu="A100")
    problem = next(iter(recording))
    assert len(recording.configurations(problem)) == 1


def test_not_recorded(tmp_path):
    measure(launches(1), tmp_path / "rows.csv", device="fake")
    recording = read_recording(tmp_path / "rows.csv")
    assert recording.latency_us(elementwise(), launches(1)[0].configuration) > 0
    assert recording.latency_us(elementwise(999), configuration()) is recording.latency_us(elementwise(), configuration(2048)) is None
    assert recording.configurations(elementwise(999)) == ()


MOE = {"gpu": "H200", "gemm": "w13", "M": 64, "E": 128, "topk": 8, "H": 2048, "N": 768, "num_warps": 4, "num_stages": 3}


@pytest.mark.parametrize(
    ("column", "asked", "other"),
    [
        ("cache", "warm", "cold"),
        ("block_shape", None, "128 128"),
        ("weight_dtype", None, "fp8"),
        ("output_dtype", None, "fp32"),
    ],
)
def test_a_recorded_latency_is_of_the_same_types_and_cache_state(tmp_path, column, asked, other):
    """Where the file says what they are; rows that do not say it are taken for what was asked."""
    problem = Problem(family="fused_moe", op="w13", sizes={name: MOE[name] for name in ("M", "E", "topk", "H", "N")})
    rows = [{**MOE, column: asked or "", "latency_us": 183.7}, {**MOE, column: other, "latency_us": 192.8}]
    elsewhere = replace(problem, **{column: (128, 128) if column == "block_shape" else other})
    config = Configuration(parameters={}, num_warps=4, num_stages=3)

    def recording(given):
        (tmp_path / "rows.csv").write_text("\n".join([",".join(given[0]), *(",".join(map(str, row.values())) for row in given)]) + "\n")
        return read_recording(tmp_path / "rows.csv")

    both = recording(rows)
    assert both.latency_us(problem, config) == 183.7 and both.latency_us(elsewhere, config) == 192.8
    assert elsewhere not in recording(rows[:1])
    unsaid = recording([{name: value for name, value in rows[0].items() if name != column}])
    assert unsaid.latency_us(problem, config) == unsaid.latency_us(elsewhere, config) == 183.7


def test_a_file_without_latencies_is_refused(tmp_path):
    path = tmp_path / "shapes.csv"
    path.write_text("gpu,M,N,K\nH200,1,2,3\n")
    with pytest.raises(InputError, match="no latency"):
        read_recording(path)
