"""A campaign from end to end on the fake device: the bundled kernels, faults in it, cut off and gone on with, ceilings beside it."""

from __future__ import annotations

import itertools
import json
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.gpus.hardware import load_gpu
from advisor.measurement.devices.ceilings import FIGURES, file_name, specified_figures, write_ceilings
from advisor.measurement.devices.device import parse_device
from advisor.measurement.launch import Batch
from advisor.measurement.measured_rows import MeasuredRow, read_measured
from advisor.measurement.measuring import measure, run_plan
from advisor.measurement.plan import batches_of, read_plan
from advisor.measurement.scheduler import Limits, Scheduler
from advisor.system.errors import NothingMatchedError

from .conftest import KERNELS, launches, violations

CAMPAIGN = Path(__file__).parents[1] / "gpu" / "campaign.toml"
MINI = """
version = 1
configurations_per_visit = 4
[[sweep]]
kernel = "fused_moe::fused_moe_kernel"
share = 4
configurations = 4
op = ["w13", "w2"]
M = [1, 64, 4096]
routing = ["uniform", "skewed"]
problems = [{E = 128, topk = 8, H = 2048, N = 768}, {E = 8, topk = 2, H = 4096, N = 14336}]
[[sweep]]
kernel = "gemm::gemm_persistent_kernel"
configurations = 4
M = [64, 4096]
problems = [{N = 4096, K = 4096}]
[[sweep]]
kernel = "attention::attention_kernel"
configurations = 4
causal = [0, 1]
problems = [{B = 1, H = 32, H_kv = 8, M = 512, N = 512, D = 128}]
[[sweep]]
kernel = "softmax::softmax_kernel"
configurations = 4
cache = ["warm", "cold"]
B = [256]
H = [8192]
"""
LAUNCHES = 4 * (2 * 3 * 2 * 2 + 2 + 2 + 2)
DEVICE = "fake,faults=illegal-access+crash+wrong-output+out-of-memory:0.04"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A campaign that ran undisturbed, and one that was cut off again and again."""
    folder = tmp_path_factory.mktemp("campaign")
    (folder / "mini.toml").write_text(MINI)
    whole = run_plan(folder / "mini.toml", folder / "whole.csv", device=DEVICE, ceilings_folder=folder)
    assert whole.finished and whole.measured + sum(whole.failed.values()) == LAUNCHES and whole.skipped == 0
    again = Counter()
    for batches in (1, 3, 2):
        with pytest.raises(KeyboardInterrupt):
            run_plan(folder / "mini.toml", folder / "cut.csv", device=DEVICE, watch=InterruptAfter(batches))
        known = list(read_measured(folder / "cut.csv"))
        again.update(row.key() for row in known if not row.lasting)
    rest = run_plan(folder / "mini.toml", folder / "cut.csv", device=DEVICE)
    assert rest.finished and rest.skipped == sum(row.lasting for row in known)
    (folder / "again.json").write_text(json.dumps(again))
    return folder


class InterruptAfter:
    """Ctrl-C when so many batches are on the disk."""

    def __init__(self, batches):
        self.left = batches

    def __call__(self, progress):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_cut_off_and_gone_on_with_is_the_same(folder):
    """Every launch that had crashed when the run was cut off was tried once more, and nothing else was; the rows read are the same."""
    cut, whole = (list(read_measured(folder / name)) for name in ("cut.csv", "whole.csv"))
    assert sorted(cut, key=MeasuredRow.key) == sorted(whole, key=MeasuredRow.key)
    lines = {name: Counter((folder / name).read_text().splitlines()[1:]) for name in ("cut.csv", "whole.csv")}
    again, of_key = json.loads((folder / "again.json").read_text()), {row.key(): row for row in whole}
    assert sum((lines["cut.csv"] - lines["whole.csv"]).values()) == sum(again.values())
    assert set(lines["cut.csv"]) == set(lines["whole.csv"]) and all(not of_key[key].lasting for key in again)


def test_every_launch_has_a_row_and_faults_are_typed(folder):
    rows = list(read_measured(folder / "whole.csv"))
    assert len(rows) == len({row.key() for row in rows}) == LAUNCHES
    status = Counter(row.status for row in rows)
    assert status["ok"] > 0.9 * LAUNCHES and LAUNCHES - status["ok"] > 0 and len(status) >= 3
    assert {row.problem.family for row in rows} == {"fused_moe", "gemm", "attention", "normalization"}
    assert {row.problem.cache for row in rows} == {"warm", "cold"} and any(row.problem.routing for row in rows)
    assert all(len(row.rounds) >= 10 and row.noise_floor is not None for row in rows if row.status == "ok")


def test_the_bound_holds_on_every_row(folder):
    assert violations(read_measured(folder / "whole.csv")) == []


def test_ceilings_of_a_fake_say_so(folder):
    data = tomllib.loads((folder / "h200.ceilings.toml").read_text())
    assert data["gpu"] == "H200" and data["origin"] == "simulated by the fake device" and "gpu_uuid" not in data["fingerprint"]
    assert data["bf16_flop_per_s"]["specified"] == pytest.approx(specified_figures(load_gpu("H200"))["bf16_flop_per_s"], rel=1e-4)
    assert data["dram_copy_bytes_per_s"]["measured_over_specified"] == 0.9


def test_ceilings_are_of_plain_products():
    gpu = load_gpu("RTX 5090")
    specified = specified_figures(gpu)
    assert specified["fp8_flop_per_s"] == gpu.peak_tensor_flop_per_s("fp8") / 2
    assert specified["bf16_flop_per_s"] == gpu.peak_tensor_flop_per_s("bf16")


def test_ceilings_files(tmp_path):
    fingerprint = read_one_fingerprint(tmp_path)
    path = write_ceilings(tmp_path / "new" / "folder", "Some GPU (40 GB)", dict.fromkeys(FIGURES, 2.0), fingerprint, "measured")
    assert path.name == "some-gpu-40-gb.ceilings.toml" == file_name("Some GPU (40 GB)")
    assert all(tomllib.loads(path.read_text())[name]["measured"] == 2.0 for name in FIGURES)


def read_one_fingerprint(folder):
    return measure(launches(1)[:1], folder / "one.csv", device="fake").fingerprint


def test_the_real_campaign_runs_on_the_fake_device(tmp_path):
    """Its first batches, through workers: nothing in the file is wrong before it meets a GPU."""
    first = list(itertools.islice(batches_of(read_plan(CAMPAIGN), load_gpu("H200")), 26))
    summary = measure([launch for batch in first for launch in batch.launches], tmp_path / "rows.csv", device="fake,samples=1")
    assert summary.finished and not summary.failed and not summary.faults and summary.measured > 150


def test_a_hang_at_the_deadline_does_not_outlast_it(tmp_path):
    summary = measure(launches(1), tmp_path / "rows.csv", device="fake,faults=hang:1", time_limit_s=2.0, limits=Limits(launch_s=60))
    assert not summary.finished and summary.measured == 0


def test_no_more_is_drawn_than_is_measured_next():
    """Drawing a batch takes a tenth of a second and more; where nothing compiles ahead, two are enough."""
    drawn = []
    with Scheduler(parse_device("fake,samples=1")) as scheduler:
        for count, _ in enumerate(scheduler.run(drawn.append(each) or Batch(launches=(each,)) for each in launches(2)), 1):
            assert len(drawn) <= count + 2
    assert count == len(drawn) == 12


def test_nothing_is_drawn_after_the_deadline():
    now = [0.0]
    with Scheduler(parse_device("fake"), clock=lambda: now[0]) as scheduler:
        scheduler.compile_workers, scheduler.description = 4, replace(scheduler.description, target=("cuda", 90, 32))

        def slow():
            for each in launches(9):
                now[0] += 10
                yield Batch(launches=(each,))

        assert list(scheduler.run(slow(), deadline=25)) == [] and now[0] == 30


def test_a_problem_whose_inputs_find_no_memory_is_left_out_and_has_no_rows(tmp_path):
    sweep = f"version = 1\n[[sweep]]\nkernel = '{KERNELS}::%s'\nB = [16, 32]\nH = [32]\ndtype = ['fp32']\n"
    (tmp_path / "plan.toml").write_text(sweep % "scale_kernel" + (sweep % "inputs_kernel").partition("\n")[2])
    summary = run_plan(tmp_path / "plan.toml", tmp_path / "rows.csv", device="fake,execute=1")
    assert summary.finished and [text for text in summary.warnings if "inputs_kernel gelu B=16 H=32" in text] and len(summary.warnings) == 2
    assert {row.kernel for row in read_measured(tmp_path / "rows.csv")} == {"scale_kernel"}


def test_ceilings_that_cannot_be_kept_do_not_end_the_campaign(tmp_path):
    sweep = f"version = 1\n[[sweep]]\nkernel = '{KERNELS}::scale_kernel'\nB = [16]\nH = [32]\ndtype = ['fp32']\n"
    (tmp_path / "plan.toml").write_text(sweep)
    (tmp_path / "file").touch()
    for number, folder in enumerate((tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nope"))):
        summary = run_plan(tmp_path / "plan.toml", tmp_path / f"{number}.csv", device="fake", ceilings_folder=str(folder))
        assert summary.finished and summary.measured and summary.ceilings is None
        assert "--ceilings-dir" in summary.warnings[0] and "not measured" in summary.warnings[0]


def test_nothing_to_measure(tmp_path):
    with pytest.raises(NothingMatchedError):
        measure([], tmp_path / "rows.csv", device="fake")
