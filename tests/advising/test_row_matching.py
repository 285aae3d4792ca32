"""Which measured rows belong to which launches."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.advising import advise_target
from advisor.advising.measured.row_matching import match
from advisor.advising.targets import CONFIGURATION_UNKNOWN, Request, Target
from advisor.advising.targets.resolve import resolve_target
from advisor.cli import main
from advisor.learned import load_predictor
from advisor.result.result_json import from_json
from advisor.result.schema import Configuration
from advisor.system.errors import InputError, NothingMatchedError

SIZES = {"E": 128, "N": 768, "H": 2048, "topk": 8}


@pytest.fixture
def layer():
    """The bundled kernel's launches for 64 tokens, w13 and w2."""
    return resolve_target("fused_moe", Request(gpu="H200", tokens=(64,), sizes=SIZES))


def written(folder: Path, header: str, *lines: str) -> Path:
    path = folder / "rows.csv"
    path.write_text("\n".join([f"gemm,M,E,topk,H,N,{header},latency_us", *(f"w13,64,128,8,2048,768,{line}" for line in lines)]) + "\n")
    return path


def test_what_measure_writes_of_a_layer_is_matched(tmp_path, layer):
    """Of four launches two are products; what they ran with is not what vLLM launches without a table."""
    rows = tmp_path / "rows.csv"
    assert main(["measure", "fused_moe", "--device", "fake,gpu=H200", "--model", "Qwen3-30B-A3B", "--tokens", "64", "-o", str(rows)]) == 0
    found = match(layer, rows)
    assert set(found.measured) == {"w13-M64", "w2-M64"} and "2 rows belong to none" in found.unmatched
    assert {launch.source for launch in found.target.launches} == {"as simulated in rows.csv"}
    assert len({launch.configuration.label() for launch in found.target.launches}) == 1
    assert any("the one simulated there" in text for text in found.target.unknowns)


def test_rows_that_name_no_configuration_are_said_to(tmp_path, layer):
    found = match(layer, written(tmp_path, "note", "a,100"))
    assert "rows.csv does not say which configuration was measured: 1 of 2 launches is taken to have run as shown." in found.target.unknowns
    named = written(tmp_path, "BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,GROUP_SIZE_M,num_warps,num_stages", "16,64,64,1,4,3,100")
    assert not any("does not say" in text for text in match(layer, named).target.unknowns)


def test_of_a_sweep_the_fastest_is_what_runs(tmp_path):
    rows = tmp_path / "rows.csv"
    assert main(["measure", "softmax", "--device", "fake", "--sizes", "B=64,H=512", "--configurations", "all", "-o", str(rows)]) == 0
    found = match(resolve_target("softmax", Request(gpu="H200", sizes={"B": 64, "H": 512})), rows)
    launch = found.target.launches[0]
    latencies = [float(line.split(",ok,")[0].split(",")[-3]) for line in rows.read_text().splitlines()[1:]]
    assert found.measured[launch.id].latency.us == pytest.approx(min(latencies))
    assert {"BLOCK_SIZE", "ROWS_PER_CTA"} <= launch.configuration.parameters.keys()
    assert CONFIGURATION_UNKNOWN not in found.target.unknowns and any(f"up to {len(latencies)}" in text for text in found.target.unknowns)


def test_a_kernel_without_a_block_size_is_another_than_one_with(tmp_path):
    """A row that names no BLOCK_SIZE took its rows whole."""
    rows = tmp_path / "rows.csv"
    rows.write_text("gpu,op,B,H,BLOCK_SIZE,num_warps,latency_us\nH200,softmax,64,512,4096,8,18\nH200,softmax,64,512,,8,25\n")
    found = match(resolve_target("softmax", Request(gpu="H200", sizes={"B": 64, "H": 512})), rows)
    (measured,) = found.measured.values()
    assert found.target.launches[0].configuration.parameters == {"BLOCK_SIZE": 4096} and measured.latency.us == 18
    assert [(its.parameters, latency.us) for its, latency in measured.others] == [({}, 25)]


@pytest.mark.parametrize("option", ["num_ctas", "maxnreg"])
def test_rows_with_another_launch_option_are_another_configuration(tmp_path, option):
    rows = tmp_path / "rows.csv"
    rows.write_text(
        f"gpu,op,B,H,BLOCK_SIZE,num_warps,{option},latency_us\nH200,softmax,64,512,4096,8,,18\nH200,softmax,64,512,4096,8,2,25\n"
    )
    (measured,) = match(resolve_target("softmax", Request(gpu="H200", sizes={"B": 64, "H": 512})), rows).measured.values()
    assert measured.latency.us == 18 and [(getattr(its, option), latency.us) for its, latency in measured.others] == [(2, 25)]


def test_rows_of_another_kernel_of_the_family_are_not_its(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("gpu,kernel,M,N,K,latency_us\nH200,gemm_persistent_kernel,64,512,512,5.0\nH200,gemm_kernel,64,512,512,9.0\n")
    found = match(resolve_target("gemm", Request(gpu="H200", sizes={"M": 64, "N": 512, "K": 512})), rows)
    assert [each.latency.us for each in found.measured.values()] == [9.0]


@pytest.mark.parametrize(
    ("header", "mine", "other", "request_of"),
    [
        ("cache", "cold", "warm", {"cache": "cold"}),
        ("cache", "", "cold", {}),
        ("routing", "4 " * 128, "uniform", {"routing": (4,) * 128}),
        ("routing", "uniform", "4 " * 128, {}),
        ("dtype", "bfloat16", "fp16", {}),
        ("weight_dtype", "", "int8", {}),
        ("output_dtype", "bf16", "fp32", {}),
    ],
)
def test_the_whole_problem_is_compared(tmp_path, header, mine, other, request_of):
    """A warm row says nothing of a cold launch, and the median of both of neither."""
    target = resolve_target("fused_moe", Request(gpu="H200", tokens=(64,), sizes=SIZES, **request_of))
    found = match(target, written(tmp_path, header, f"{mine},300", f"{other},100"))
    assert found.measured["w13-M64"].latency.us == 300 and found.measured["w13-M64"].latency.low_us is None
    with pytest.raises(NothingMatchedError, match="--cache"):
        match(target, written(tmp_path, header, f"{other},100"))


def test_blocks_of_scales_and_split_k_are_compared(tmp_path):
    table = tmp_path / "E=128,N=768,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
    table.write_text(
        '{"64": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}}'
    )
    target = resolve_target(str(table), Request(hidden_size=2048, top_k=8))
    header = "dtype,block_shape,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,num_warps,num_stages,parameters"
    lines = ["fp8,128 128,16,64,128,4,4,,300", "fp8,,16,64,128,4,4,,100", 'fp8,128 128,16,64,128,4,4,"{""num_ctas"": 2}",200']
    found = match(target, written(tmp_path, header, *lines))
    assert [each.latency.us for each in found.measured.values()] == [300]
    with pytest.raises(NothingMatchedError):  # a table says what runs: no other configuration is taken for it
        match(target, written(tmp_path, header, "fp8,128 128,32,64,128,4,4,,100"))


FLOAT32 = "E=128,N=768,device_name=NVIDIA_H200,dtype=float32.json"


@pytest.mark.parametrize("dtype", ["float32", "fp32", "tf32"])
def test_rows_of_float32_are_those_of_its_table(tmp_path, dtype):
    """Rows name the type of the operands in memory, the table's launches how their products are made."""
    target = float32_layer(tmp_path)
    header = "dtype,weight_dtype,output_dtype"
    for line in (f"{dtype},,", f"{dtype},{dtype},{dtype}"):
        assert match(target, written(tmp_path, header, f"{line},300", "bf16,,,100")).measured["w13-M64"].latency.us == 300
    with pytest.raises(NothingMatchedError):
        match(target, written(tmp_path, header, f"{dtype},bf16,,300"))
    assert match(target, written(tmp_path, f"gpu,{header}", "H100,tf32,,,100", f"H200,{dtype},,,300")).measured["w13-M64"].latency.us == 300


def test_exact_products_beside_those_of_tf32_are_other_launches(tmp_path):
    rows = written(tmp_path, "dtype", "fp32,900", "tf32,300")
    assert match(float32_layer(tmp_path), rows).measured["w13-M64"].latency.us == 300
    for dtype, us in (("fp32", 900), ("tf32", 300)):
        layer = resolve_target("fused_moe", Request(gpu="H200", tokens=(64,), sizes=SIZES, dtype=dtype))
        assert match(layer, rows).measured["w13-M64"].latency.us == us
    exact = resolve_target("fused_moe", Request(gpu="H200", tokens=(64,), sizes=SIZES, dtype="fp32"))
    with pytest.raises(NothingMatchedError):  # no table: who asks for exact products means them
        match(exact, written(tmp_path, "dtype", "tf32,300"))


def float32_layer(folder: Path) -> Target:
    """A layer of float32 with a table."""
    (folder / FLOAT32).write_text(
        '{"64": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}}'
    )
    return resolve_target(str(folder / FLOAT32), Request(hidden_size=2048, top_k=8))


def shown(folder: Path, rows: Path, capsys) -> list[str]:
    """What every surface says of softmax with the rows given."""
    arguments = ["advise", "softmax", "--gpu", "H200", "--sizes", "B=64,H=512", "--measured", str(rows), "--output", str(folder)]
    texts = []
    for style in ("text", "md", "json"):
        assert main([*arguments, "--format", style]) == 0
        texts.append(capsys.readouterr().out)
    page = (folder / "report.html").read_text(encoding="utf-8")
    return [*texts, page[page.index("<body") :]]


def test_simulated_rows_are_nowhere_called_measured(tmp_path, capsys):
    rows, other = tmp_path / "rows.csv", tmp_path / "other.csv"
    assert main(["measure", "softmax", "--device", "fake", "--sizes", "B=64,H=512", "--configurations", "4", "-o", str(rows)]) == 0
    other.write_text(rows.read_text())
    capsys.readouterr()
    text, markdown, document, page = shown(tmp_path / "out", rows, capsys)
    assert re.search(r"simulated +3\.", text) and "measured" not in text.partition("report:")[0]
    assert "| simulated | ceiling (predicted) |" in markdown and re.search(r"µs( ±\S+ %)? simulated \|", markdown)
    result = from_json(document)
    (launch,) = result.launches
    assert launch.measured.origin == result.verdict.origin == "simulated"
    assert {part.origin for part in launch.gap} <= {"simulated", "predicted"}
    assert "tag measured" not in page and "tag simulated" in page and ">Simulated<" in page and "says that it is simulated" in page
    assert main(["compare", str(rows), str(other), "--output", str(tmp_path / "compared")]) == 0
    compared = capsys.readouterr().out
    assert "4 unchanged (simulated)" in compared and "µs simulated" in compared and "measured)" not in compared
    page = (tmp_path / "compared" / "comparison.html").read_text(encoding="utf-8")
    assert "tag measured" not in page and "unchanged (simulated)" in (tmp_path / "compared" / "comment.md").read_text(encoding="utf-8")
    assert '"origin": "measured"' not in (tmp_path / "compared" / "comparison.json").read_text(encoding="utf-8")


def test_rows_that_do_not_say_so_stay_measured(tmp_path, capsys):
    rows = tmp_path / "rows.csv"
    rows.write_text("gpu,op,B,H,latency_us,timer,origin\nH200,softmax,64,512,9.5,graph,\n")
    text, markdown, document, page = shown(tmp_path / "out", rows, capsys)
    assert from_json(document).launches[0].measured.origin == "measured"
    assert re.search(r"measured +9\.50", text) and "µs measured |" in markdown and "tag measured" in page
    assert all(
        "simulated" not in each
        for each in (text, markdown, document, page.replace("measured, simulated, predicted", "").replace("measured or simulated", ""))
    )


def test_a_median_with_a_simulated_row_is_simulated(tmp_path):
    rows = tmp_path / "rows.csv"
    target = resolve_target("softmax", Request(gpu="H200", sizes={"B": 64, "H": 512}))
    for cells, origin in (("9.5,\nH200,softmax,64,512,9.7,", "measured"), ("9.5,\nH200,softmax,64,512,9.7,simulated", "simulated")):
        rows.write_text(f"gpu,op,B,H,latency_us,origin\nH200,softmax,64,512,{cells}\n")
        assert [each.latency.origin for each in match(target, rows).measured.values()] == [origin]


def test_a_sum_is_as_uncertain_as_its_parts():
    """One simulated latency among measured ones: the sum is no measurement, and the report says how many of each."""
    from advisor.advising.verdict import verdict
    from advisor.rendering.figures import origins
    from tests.rendering.factory import launch, result

    first = launch(64, measured=True)
    faked = replace(first, measured=replace(first.measured, origin="simulated"))
    found = verdict((first, faked), ())
    assert found.origin == "simulated"
    assert origins(replace(result(), launches=(first, faked), verdict=found)) == "1 measured, 1 simulated"


def test_rounds_clocks_and_floor_of_a_row_reach_the_page(tmp_path):
    rows, folder = tmp_path / "rows.csv", tmp_path / "out"
    sizes = ["--sizes", "B=64,H=512"]
    assert main(["measure", "softmax", "--device", "fake", *sizes, "--configurations", "4", "-o", str(rows)]) == 0
    assert main(["advise", "softmax", *sizes, "--gpu", "H200", "--measured", str(rows), "--output", str(folder)]) == 0
    launch = from_json((folder / "result.json").read_bytes()).launches[0]
    assert launch.measured.low_us <= launch.measured.us <= launch.measured.high_us and launch.measured.coverage == 0.99
    assert len(launch.measured_rounds.rounds) == 10 and launch.measured_rounds.noise_floor > 0
    assert all(each.samples_us and each.sm_clock_mhz for each in launch.measured_rounds.rounds)
    assert 'id="measurement"' in (folder / "report.html").read_text()


@pytest.mark.parametrize("samples", ["0 0 0", "nan nan", "9 -9", "9;inf", "1e308 1e308", "5e-324"])
def test_samples_that_are_no_times_are_refused_by_row(tmp_path, layer, samples):
    with pytest.raises(InputError, match=f"rows.csv: row 1: samples_us.*{samples}.*microseconds"):
        match(layer, written(tmp_path, "samples_us", f"{samples},100"))


@pytest.mark.parametrize("column", ["routing", "block_shape"])
def test_numbers_of_thousands_of_digits_are_no_launchs(tmp_path, column):
    rows = written(tmp_path, column, f"{'9' * 5000},100", ",200")
    table = tmp_path / "E=128,N=768,device_name=NVIDIA_H200.json"
    table.write_text('{"64": {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}}')
    found = match(resolve_target(str(table), Request(hidden_size=2048, top_k=8)), rows)
    assert [each.latency.us for each in found.measured.values()] == [200.0]
    assert "1 of 2 launches has a measurement; 1 row belongs to none" in found.unmatched


@pytest.mark.parametrize("status", ["wrong-output", "FAILED", "Timeout after 60 s"])
def test_what_failed_has_no_speed(tmp_path, layer, status):
    with pytest.raises(NothingMatchedError, match=f"only launches that failed.*{status}.*whose output is right"):
        match(layer, written(tmp_path, "status", f"{status},100"))
    found = match(layer, written(tmp_path, "status", f"{status},100", "ok,200", ",201"))
    assert found.measured["w13-M64"].latency.us == 200.5 and "0 rows belong to none; 1 failed" in found.unmatched


@pytest.mark.parametrize("status", ["success", "cached", "1"])
def test_other_words_for_success_are_as_good(tmp_path, layer, status):
    assert match(layer, written(tmp_path, "status", f"{status},100")).measured["w13-M64"].latency.us == 100


def swept(folder: Path, *lines: str) -> Path:
    return written(folder, "BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,GROUP_SIZE_M,num_warps,num_stages", *lines)


def test_a_configuration_measured_to_be_faster_is_recommended_as_measured(tmp_path, layer):
    launches = tuple(replace(each, configuration=configuration(64, 64, 64, 1, 4, 3)) for each in layer.launches)
    rows = swept(tmp_path, "64,64,64,1,4,3,215", "16,128,128,32,4,2,183.7", "16,256,64,1,8,3,197.8")
    found = match(replace(layer, launches=launches), rows)
    assert "0 rows belong to none" in found.unmatched
    report = advise_target(found.target, load_predictor(), command="", measured=found.measured).launches[0]
    advice = report.recommendation
    assert (advice.latency.origin, advice.latency.us, advice.configuration) == ("measured", 183.7, configuration(16, 128, 128, 32, 4, 2))
    assert advice.speedup == pytest.approx(215 / 183.7) and report.p_speedup_10pct == 1.0 and "fastest of 3" in advice.reason
    assert report.ceiling.us <= 183.7


def test_a_launch_of_which_nothing_was_measured_is_not_said_to_be(tmp_path, layer):
    """And a configuration that keeps not what is fixed, or was measured for one of two launches, was not chosen from."""
    launches = tuple(
        replace(each, configuration=configuration(64, 64, 64, 1, 4, 3), frozen_parameters=("BLOCK_SIZE_M",)) for each in layer.launches
    )
    lines = ["64,64,64,1,4,3,215", "64,128,128,32,4,2,183.7", "64,256,64,1,8,3,197.8", "16,256,64,1,8,3,180"]

    def reasons(rows: Path) -> list[str]:
        found = match(replace(layer, launches=launches), rows)
        return [
            each.recommendation.reason
            for each in advise_target(found.target, load_predictor(), command="", measured=found.measured).launches
        ]

    rows = swept(tmp_path, *lines)
    assert [reason.partition("; one entry serves 2 launches")[0] for reason in reasons(rows)] == [
        "the fastest of 3 configurations measured for w13-M64 (w2-M64 as predicted)"
    ] * 2
    both = "".join(f"w2,64,128,8,2048,768,{line}\n" for line in lines[:2])
    rows.write_text(rows.read_text() + both)
    assert all(reason.startswith("the fastest of 2 configurations measured; one entry serves 2 launches") for reason in reasons(rows))


def test_what_is_ranked_first_and_was_measured_slower_is_not_recommended(tmp_path, layer):
    launch = layer.launches[0]
    target = replace(layer, launches=(replace(launch, configuration=configuration(16, 16, 32, 1, 8, 2)),))
    first = advise_target(target, load_predictor(), command="").launches[0].recommendation.configuration
    cells = ",".join(str(first.parameters[f"BLOCK_SIZE_{each}"]) for each in "MNK")
    cells += f",{first.parameters['GROUP_SIZE_M']},{first.num_warps},{first.num_stages}"
    found = match(target, swept(tmp_path, "16,16,32,1,8,2,200", f"{cells},205"))
    assert advise_target(found.target, load_predictor(), command="", measured=found.measured).launches[0].recommendation is None


def configuration(m: int, n: int, k: int, group: int, warps: int, stages: int) -> Configuration:
    blocks = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": group}
    return Configuration(parameters=blocks, num_warps=warps, num_stages=stages)


def test_rows_of_other_configurations_alone_are_not_said_to_belong_to_nothing(tmp_path):
    table = tmp_path / "E=128,N=768,device_name=NVIDIA_H200.json"
    entry = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}
    table.write_text(json.dumps({"64": entry, "96": entry}))
    target = resolve_target(str(table), Request(hidden_size=2048, top_k=8))
    rows = swept(tmp_path, "16,128,128,32,4,2,183.7", "16,256,64,1,8,3,197.8")
    with pytest.raises(NothingMatchedError, match=r"2 rows of its problems with other configurations.*measure that too"):
        match(target, rows)
    with rows.open("a") as file:
        file.write("w13,96,128,8,2048,768,64,64,64,1,4,3,215\nw13,77,128,8,2048,768,64,64,64,1,4,3,215\n")
    found = match(target, rows)
    assert set(found.measured) == {"w13-M96"}
    assert "; 1 row belongs to none; 2 rows are of other configurations where what runs was not measured" in found.unmatched


@pytest.mark.parametrize(
    ("said", "asked", "belongs"),
    [
        ("balanced", None, True),
        ("uniform", None, True),
        ("", "random", True),  # nothing is said of it
        ("balanced", "random", False),
        ("random", "random", True),
        ("power_law_1.2", "power_law:1.2", True),
        ("power_law:1.2", "power_law:1.1", False),
    ],
)
def test_rows_of_another_routing_are_not_taken(tmp_path, said, asked, belongs):
    target = resolve_target("fused_moe", Request(gpu="H200", tokens=(64,), sizes=SIZES, distribution=asked))
    rows = written(tmp_path, "routing", f"{said},100")
    if belongs:
        assert match(target, rows).measured["w13-M64"].latency.us == 100
    else:
        with pytest.raises(NothingMatchedError):
            match(target, rows)


@pytest.mark.parametrize("routing", ["balanced", "random", "power_law:1.2"])
def test_every_command_reads_the_routings_that_predict_documents(tmp_path, capsys, routing):
    columns = "gpu,routing,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,GROUP_SIZE_M,num_warps,num_stages"
    rows = written(tmp_path, columns, f"H200,{routing},16,64,128,1,4,3,100", f"H200,{routing},16,128,128,1,4,3,90")
    assert main(["predict", str(rows), "-o", str(tmp_path / "out.csv")]) == 0
    assert main(["compare", str(rows), str(rows)]) == 0
    options = ["--gpu", "H200", "--sizes", "E=128,N=768,H=2048,topk=8", "--tokens", "64", "--routing", routing, "--trials", "2"]
    assert main(["tune", "fused_moe", *options, "--recorded", str(rows), "-o", str(tmp_path / "tuned")]) == 0
    assert "best found 90.0" in capsys.readouterr().out
