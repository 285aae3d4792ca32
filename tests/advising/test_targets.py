"""From a target to a result: what is recommended for a table can be launched, and is right."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from advisor.advising import advise_target
from advisor.advising.audit_regret import regrets
from advisor.advising.targets import Request
from advisor.advising.targets.resolve import resolve_target
from advisor.advising.targets.table_targets import table_target
from advisor.learned import load_predictor
from advisor.pipelines import problem_batch
from advisor.rendering import figures
from advisor.rendering.markdown import to_markdown
from advisor.rendering.page import to_html
from advisor.tables.audit import audit_table
from advisor.tables.tables import read_table

ENTRY = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 2}


def written(folder, name, entries):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(entries))
    return path


@pytest.mark.parametrize(
    "name",
    [
        "E=256,N=256,device_name=NVIDIA_B200,dtype=fp8_w8a8,block_shape=[128, 128].json",
        "E=512,N=320,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[64,64].json",
        "N=576,K=5120,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[32, 32].json",
        "E=128,N=768,device_name=NVIDIA_A100-SXM4-80GB,block_shape=[64,64].json",  # int8
    ],
)
def test_the_audit_finds_no_fault_in_what_is_recommended(tmp_path, name):
    tokens = (1, 64, 4096)
    path = written(tmp_path, name, {str(m): ENTRY for m in tokens})
    result = advise_target(table_target(path, Request(assume=True)), load_predictor(), command="")
    [export] = [export for export in result.exports if export.kind == "table"]
    path.write_text(export.content)
    table, issues = audit_table(path)
    assert table is not None
    assert {issue.check for issue in issues} & {"wrong-scales", "clamped-block-k", "does-not-fit"} == set()
    deepest = [launch.ceiling_configuration.parameters["BLOCK_SIZE_K"] for launch in result.launches if launch.ceiling_configuration]
    assert max(deepest) <= table.name.block_shape[1]


UP = "E=256,N=512,device_name=NVIDIA_H20-3e.json"
DOWN = "E=256,N=512,device_name=NVIDIA_H20-3e_down.json"
LAYER = Request(hidden_size=7168, top_k=8)


def two_tables(folder, up_rows=64):
    folder = folder / "triton_3_5_1"
    up = written(folder, UP, {"1": {**ENTRY, "BLOCK_SIZE_K": 64}, "1024": {**ENTRY, "BLOCK_SIZE_M": up_rows, "BLOCK_SIZE_K": 64}})
    down = {**ENTRY, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "USE_TMA": True, "num_stages": 3}
    return up, written(folder, DOWN, {"1": down, "1024": {**down, "BLOCK_SIZE_M": 128}})


def test_w2_runs_with_the_entry_of_its_own_table(tmp_path):
    up, _ = two_tables(tmp_path)
    target = table_target(up, LAYER)
    w13, w2 = (next(each for each in target.launches if each.id == f"{op}-M1024") for op in ("w13", "w2"))
    assert w13.configuration is not None and w13.configuration.parameters["BLOCK_SIZE_N"] == 64
    assert w2.configuration is not None and w2.configuration.num_stages == 3
    assert [w2.configuration.parameters[f"BLOCK_SIZE_{axis}"] for axis in "MN"] == [64, 128]  # the rows are w13's
    assert w2.decision_id != w13.decision_id and any(DOWN in unknown for unknown in target.unknowns)
    [alone] = [each for each in table_target(up.with_name(DOWN), LAYER).launches if each.tokens == 1024]
    assert alone.configuration == w2.configuration


@pytest.mark.parametrize("rows", [16, 64, 256])
def test_w13_and_w2_keep_one_block_size_m(tmp_path, rows):
    up, _ = two_tables(tmp_path, rows)
    result = advise_target(table_target(up, LAYER), load_predictor(), command="")
    by_id = {launch.id: launch for launch in result.launches}
    for tokens in (1, 1024):
        pair = [by_id[f"{op}-M{tokens}"] for op in ("w13", "w2")]
        runs = [each.recommendation.configuration if each.recommendation else each.configuration for each in pair]
        assert len({each.parameters["BLOCK_SIZE_M"] for each in runs}) == 1
        assert len({each.decision for each in pair}) == 1  # so that what one loses counts against what the other gains
    changed = {export.name: json.loads(export.content) for export in result.exports if export.kind == "table"}
    for name, op in ((UP, "w13"), (DOWN, "w2")):
        for tokens in ("1", "1024"):
            found = by_id[f"{op}-M{tokens}"].recommendation
            if found is not None:
                assert changed[name][tokens].items() >= found.configuration.parameters.items()
    if rows == 256:  # 32 rows an expert
        assert set(changed) == {UP, DOWN}
        assert "_down table:" in (result.actions[0].snippet or "")


def test_the_audit_judges_each_table_by_its_own_entries(tmp_path):
    up, down = two_tables(tmp_path)
    tables = [read_table(up), read_table(down)]
    (first, *_), (second, *_) = regrets(tables, load_predictor())
    launches = {each.id: each for each in advise_target(table_target(up, Request(assume=True)), load_predictor(), command="").launches}
    assert first.predicted_us == pytest.approx(launches["w13-M1"].predicted.us)
    assert second.predicted_us == pytest.approx(launches["w2-M1"].predicted.us)


@pytest.mark.parametrize(
    ("name", "request_", "ranks"),
    [
        ("E=32,N=4096,device_name=NVIDIA_H200.json", Request(model="Llama-4-Maverick"), 4),  # the split is inferred
        ("E=32,N=4096,device_name=NVIDIA_H200.json", Request(hidden_size=5120, top_k=1, expert_parallel=4), 4),
        ("E=128,N=768,device_name=NVIDIA_H200.json", Request(model="Qwen3-30B-A3B"), None),
    ],
)
def test_what_expert_parallelism_is_taken_to_mean_is_said_of_a_table_too(tmp_path, name, request_, ranks):
    said = [text for text in table_target(written(tmp_path, name, {"64": ENTRY}), request_).unknowns if "are on this rank" in text]
    assert len(said) == (ranks is not None)
    assert ranks is None or f"With {ranks} ranks" in said[0]


def test_what_does_not_compile_cannot_launch_and_is_replaced(tmp_path):
    entry = {**ENTRY, "BLOCK_SIZE_K": 16}
    path = written(tmp_path, "E=128,N=768,device_name=NVIDIA_H200,dtype=fp8_w8a8.json", {"64": entry})
    result = advise_target(table_target(path, Request(assume=True)), load_predictor(), command="")
    for launch in result.launches:
        assert launch.predicted is None and launch.recommendation is not None
        assert launch.recommendation.configuration.parameters["BLOCK_SIZE_K"] >= 32
        [finding] = [finding for finding in launch.findings if finding.rule == "cannot-launch"]
        assert finding.severity == "error" and "32 or more of fp8" in finding.evidence


def test_what_the_launch_refuses_cannot_launch_and_has_no_speed(tmp_path):
    """One CTA of it fits; the KeyError comes before that."""
    path = written(tmp_path, "E=128,N=768,device_name=NVIDIA_H20.json", {"64": {**ENTRY, "FOO": 1}})
    result = advise_target(table_target(path, Request(assume=True)), load_predictor(), command="")
    assert result.verdict.sentence == "None of the 2 launches can run with their configurations." and result.verdict.current_us == 0
    for launch in result.launches:
        assert launch.predicted is None and launch.occupancy.resident_ctas_per_sm > 0 and figures.stuck(launch)
        assert "FOO" not in launch.recommendation.configuration.parameters
        [finding] = [finding for finding in launch.findings if finding.rule == "cannot-launch"]
        assert finding.title == "The launcher rejects FOO" and "KeyError" in finding.evidence
    assert "0.00" not in to_markdown(result).partition("| launch |")[0]
    page = to_html(result)
    assert "against the bound of this configuration" in page and ">of now<" not in page and '<i class="now"' not in page


def test_a_gpu_that_only_the_name_does_not_know_is_told_as_that(tmp_path):
    path = written(tmp_path, "E=128,N=768,device_name=NVIDIA_B999.json", {"64": ENTRY})
    result = advise_target(table_target(path, Request(gpu="H20", assume=True)), load_predictor(), command="")
    [finding] = [finding for finding in result.table_findings if finding.rule == "unknown-gpu"]
    assert "the name says NVIDIA_B999" in finding.evidence and "for H20" in finding.evidence
    assert "nothing is predicted" not in f"{finding.title} {finding.evidence}" and result.launches[0].predicted is not None


def test_the_longest_pipeline_is_the_one_that_binds_a_configuration():
    """Its bound leaves out what the L2 carries again, which the page shows a longer bar of."""
    target = resolve_target("gemm", Request(gpu="H200", sizes={"M": 4096, "N": 4096, "K": 4096}))
    result = advise_target(target, load_predictor(), command="")
    (launch,) = result.launches
    assert launch.config_binding_pipeline == max(launch.pipelines, key=lambda part: part.time_us).pipeline == "l2"
    assert result.verdict.sentence.startswith("L2-bound at ") and result.launches[0].binding_pipeline == "tensor"


@pytest.mark.parametrize(("dtype", "gpu", "said"), [("fp32", "H100", True), ("tf32", "H100", False), ("fp32", "P100", False)])
def test_it_is_said_that_the_bound_of_fp32_is_of_exact_products(dtype: str, gpu: str, said: bool) -> None:
    target = resolve_target("gemm::gemm_kernel", Request(gpu=gpu, dtype=dtype))
    unknowns = advise_target(target, load_predictor(None), command="").verdict.unknowns
    assert any("exact products" in text for text in unknowns) == said


@pytest.mark.parametrize(("dtype", "gpu", "said"), [("fp16", "RTX 4090", True), ("bf16", "RTX 4090", False), ("fp16", "L40S", False)])
def test_it_is_said_that_the_bound_of_fp16_is_of_products_summed_up_in_fp32(dtype: str, gpu: str, said: bool) -> None:
    result = advise_target(resolve_target("gemm::gemm_kernel", Request(gpu=gpu, dtype=dtype)), load_predictor(None), command="")
    assert any("summed up in fp32" in text for text in result.verdict.unknowns) == said


@pytest.mark.parametrize(("name", "sizes"), [("silu_and_mul", {"B": 32768, "H": 64}), ("softmax", {"B": 8192, "H": 64})])
def test_the_ceiling_of_a_kernel_is_one_that_its_own_space_reaches(name, sizes):
    """Not that of other kernels of the family, which may take several short rows at once."""
    target = resolve_target(name, Request(gpu="A100", sizes=sizes))
    predictor = load_predictor()
    (launch,) = advise_target(target, predictor, command="").launches
    members = predictor.predict(problem_batch([launch.problem]), target.space, target.gpu).us
    assert launch.ceiling.us == pytest.approx(members.min())


def test_a_finding_beside_a_configuration_that_is_kept_says_that_its_remedy_is_not_sure_enough():
    asked = Request(model="Qwen3-235B-A22B", tensor_parallel=8, gpu="H100", tokens=(1,))
    launches = advise_target(resolve_target("fused_moe", asked), load_predictor(), command="").launches
    cures = [finding for launch in launches if launch.kept for finding in launch.findings if finding.net_saving_us is not None]
    assert cures and all(finding.remedy.endswith("; this change is not sure enough to be recommended") for finding in cures)


@pytest.mark.parametrize("gpu", ["MI300X", "H200"])
def test_what_is_not_likely_to_win_is_not_recommended(gpu):
    """Of an MI300X's products nothing was measured: what is ranked first there is said, with its probability, and not recommended."""
    result = advise_target(
        resolve_target("fused_moe", Request(model="Qwen3-30B-A3B", gpu=gpu, tokens=(16384,))), load_predictor(), command=""
    )
    offered = [launch.recommendation for launch in result.launches if launch.recommendation is not None]
    assert bool(offered) == (gpu == "H200")
    for launch in result.launches:
        assert launch.recommendation is None or launch.kept is None
    if gpu == "B200":
        kept = [launch.kept for launch in result.launches if launch.kept]
        assert kept and all(text.startswith("No better configuration is sure enough: BLOCK_SIZE_M=") for text in kept)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"B": 4096, "H": 4096}, {"BLOCK_SIZE": 4096, "ROWS_PER_CTA": 1}),  # as good with up to 8 rows together
        ({"B": 65536, "H": 128}, {"BLOCK_SIZE": 128, "ROWS_PER_CTA": 32}),  # as good with 64
    ],
)
def test_of_configurations_that_cannot_be_told_apart_the_one_nearest_to_the_files_own_is_taken(sizes, expected):
    target = resolve_target("softmax", Request(gpu="H20", sizes=sizes))
    assert target.launches[0].default_configuration is not None and target.launches[0].default_configuration.parameters == expected
    (report,) = advise_target(target, load_predictor(), command="").launches
    assert report.recommendation.configuration.parameters == expected
    near, kept = (
        report.recommendation.latency.us <= 1.005 * report.ceiling.us,
        "no other is known to be faster" in report.recommendation.reason,
    )
    assert near or kept
    bare = replace(target, launches=tuple(replace(each, default_configuration=None) for each in target.launches))
    (other,) = advise_target(bare, load_predictor(), command="").launches
    assert other.recommendation.configuration != report.recommendation.configuration
    assert other.recommendation.latency.us <= report.recommendation.latency.us


def test_what_is_not_known_of_one_launch_is_said_of_one():
    gemm = Request(gpu="B200", sizes={"M": 4096, "N": 4096, "K": 4096})
    notes = advise_target(resolve_target("gemm", gemm), load_predictor(), command="").verdict.notes
    assert "1 time comes from the analytical model alone: no measured data covers it." in notes
    layer = advise_target(
        resolve_target("fused_moe", Request(model="Qwen3-30B-A3B", gpu="MI300X", tokens=(64,))), load_predictor(), command=""
    )
    assert "2 of 2 times come from the analytical model alone: no measured data covers them." in layer.verdict.notes
