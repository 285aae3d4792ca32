"""Profiles of others: read, matched to launches where that is certain, and what is not matched is said."""

from __future__ import annotations

import gzip
import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.gpus.hardware import load_gpu
from advisor.measurement.importers import UNITS_US, dimensions, launched_ctas, number, read_profile
from advisor.measurement.kernel_file import find_kernels
from advisor.measurement.launch import Launch
from advisor.result.schema import Configuration
from advisor.system.errors import InputError

from .conftest import moe

FIXTURES = Path(__file__).parent / "fixtures"
GPU = load_gpu("H200")


def launch(**changes) -> Launch:
    """The launch that the fixtures profile: 12,288 CTAs of 4 warps."""
    parameters = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
    configuration = Configuration(parameters={**parameters, **changes.pop("parameters", {})}, **changes)
    return Launch(kernel=find_kernels("fused_moe_kernel")[0], problem=moe(64), configuration=configuration)


@pytest.fixture
def fixture(tmp_path):
    """A fixture with the grid that our launch has."""

    def read(name):
        path = tmp_path / name
        path.write_text((FIXTURES / name).read_text().replace("12288", str(launched_ctas(launch(), GPU))))
        return path

    return read


def test_a_pipe_is_read_once():
    reading, writing = os.pipe()

    def write():
        with os.fdopen(writing, "wb") as pipe:
            pipe.write((FIXTURES / "ncu_raw.csv").read_bytes())

    threading.Thread(target=write, daemon=True).start()
    found = read_profile(Path(f"/dev/fd/{reading}"))
    assert found is not None and found.format == "nsight-compute" and found.records


@pytest.mark.parametrize(
    ("name", "format_", "samples"),
    [
        ("ncu_raw.csv", "nsight-compute", (61.44, 61.952)),
        ("ncu_details.csv", "nsight-compute", (61.44,)),
        ("torch_trace.json", "torch-profiler", (61.44, 60.8)),
        ("proton.hatchet", "proton", (61.44,)),
    ],
)
def test_a_launch_finds_its_record_and_the_rest_is_said(fixture, name, format_, samples):
    found = read_profile(fixture(name), [launch()], GPU)
    assert found.format == format_
    (match,) = found.matches
    assert match.record.samples_us == pytest.approx(samples) and match.launch == launch()
    assert found.unmatched and all(reason for reason in found.unmatched)


def test_what_was_left_out_says_why(fixture):
    raw = " | ".join(read_profile(fixture("ncu_raw.csv"), [launch()], GPU).unmatched)
    assert (
        "gemm_kernel: no usable duration" in raw
        and "a line with 3 cells" in raw
        and "this kernel is not among the launches to measure" in raw
    )
    details = " | ".join(read_profile(fixture("ncu_details.csv"), [launch()], GPU).unmatched)
    assert "fortnights" in details and "combine_kernel" in details
    trace = " | ".join(read_profile(fixture("torch_trace.json"), [launch()], GPU).unmatched)
    assert "99 CTAs" in trace and "nvjet" in trace and "no_duration_kernel" in trace
    proton = " | ".join(read_profile(fixture("proton.hatchet"), [launch()], GPU).unmatched)
    assert "cpu_only: no time" in proton and "a frame that is not an object" in proton


def test_threads_gpu_and_ambiguity(fixture):
    wide = read_profile(fixture("torch_trace.json"), [launch(num_warps=8)], GPU)
    assert not wide.matches and "128 threads per CTA" in " ".join(wide.unmatched)
    other = read_profile(fixture("torch_trace.json"), [launch()], load_gpu("H100"))
    assert not other.matches and "ran on H200" in " ".join(other.unmatched)
    for name in ("ncu_raw.csv", "ncu_details.csv"):
        ampere = fixture(name)
        ampere.write_text(ampere.read_text().replace('"9.0"', '"8.0"'))
        found = read_profile(ampere, [launch()], GPU)
        assert not found.matches and "ran on compute capability 8.0, not on H200 (9.0)" in " ".join(found.unmatched)
    alike = read_profile(fixture("torch_trace.json"), [launch(), launch(num_stages=4)], GPU)
    assert not alike.matches and "2 launches look alike" in " ".join(alike.unmatched)


def test_devices_and_counts(fixture):
    (record,) = (r for r in read_profile(fixture("torch_trace.json")).records if r.grid and r.grid[0] > 1000)
    assert record.gpu == "NVIDIA H200" and record.count == 2
    (record,) = read_profile(fixture("proton.hatchet")).records
    assert record.count == 10


def test_gzipped_and_no_profile(fixture, tmp_path):
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(fixture("torch_trace.json").read_bytes()))
    assert read_profile(packed, [launch()], GPU).matches
    for content in ("", "M,N\n1,2\n", '"ID","GPU"\n', "nothing\nhere"):
        (tmp_path / "rows.csv").write_text(content)
        assert read_profile(tmp_path / "rows.csv") is None


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b"[]",
        b"[1]",
        b"{",
        b"\xff\xfe\x00",
        b"\x1f\x8bnot gzip",
        b"[" * 100_000,
        b'{"traceEvents": 3}',
        b'"ID","Process ID"\n',
        b'[{"frame": {}, "metrics": NaN}',
    ],
)
def test_what_is_no_profile_is_refused(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError):
        read_profile(path)


@pytest.mark.parametrize(("content", "got"), [('{"schema": 1, "launches": []}', "the keys schema, launches"), ("[1]", "a list")])
def test_other_json_is_told_what_is_read(tmp_path, content, got):
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(InputError, match=f"result.json: JSON, but no profile; got {got}; expected rows .*ncu --csv.*Chrome trace.*; give "):
        read_profile(tmp_path / "result.json")


KEYS = ["name", "dur", "cat", "args", "grid", "frame", "metrics", "children", "time (ns)", "count"]
json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=120, deadline=None)
@given(st.lists(json_values, max_size=4), st.booleans())
def test_strange_documents_are_read_or_refused(tmp_path_factory, values, proton):
    document = (
        [{"frame": values, "children": values, "metrics": {}}]
        if proton
        else {
            "traceEvents": [{"cat": "kernel", "name": value, "dur": value, "args": value} for value in values],
            "deviceProperties": values,
        }
    )
    path = tmp_path_factory.mktemp("x") / "file.json"
    path.write_text(json.dumps(document))
    try:
        found = read_profile(path)
    except InputError:
        return
    assert all(sample > 0 for record in found.records for sample in record.samples_us)


def test_numbers_and_dimensions():
    assert [number(x) for x in ("1,234.5", 2, True, "n/a", float("nan"), "1" * 100)] == [1234.5, 2.0, None, None, None, None]
    assert [dimensions(x) for x in ("(2, 3, 1)", [4], "7x8", [1.5], [0], None, "", [1, 2, 3, 4])] == [
        (2, 3, 1),
        (4,),
        (7, 8),
        (),
        (),
        (),
        (),
        (),
    ]


def test_a_duration_is_read_in_its_own_unit(fixture):
    """Nsight Compute writes `0.0025` ms of the one kernel, 2.5 µs; 61.44 µs of the other."""
    path = fixture("ncu_details.csv")
    path.write_text(path.read_text().replace("combine_kernel", "fused_moe_kernel"))
    times = [us for match in read_profile(path, [launch()], GPU).matches for us in match.record.samples_us]
    texts = " | ".join(read_profile(path, [launch()], GPU).unmatched)
    assert UNITS_US["ms"] == UNITS_US["msecond"] == UNITS_US["millisecond"] == 1e3
    assert UNITS_US["ns"] == 1e-3 and UNITS_US["us"] == 1.0 and UNITS_US["s"] == 1e6
    assert all(us < 100 for us in times), texts
