"""What `advise` tells to change, against the predictor that it shows the predictions of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advisor import load_predictor
from advisor.advising import advise_target
from advisor.advising.choice import Measured
from advisor.advising.targets import Request, Target
from advisor.advising.targets.resolve import resolve_target
from advisor.diagnosis.neighbours import change
from advisor.learned.base import Predictor
from advisor.pipelines import configuration_batch, problem_batch
from advisor.result.schema import Configuration, Latency, LaunchReport, Result

EXAMPLE = Path(__file__).resolve().parents[2] / "reports" / "examples" / "E=128,N=768,device_name=NVIDIA_H20.json"
H100 = Path("vllm") / "fused_moe" / "E=8,N=14336,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8.json"
REMEDY = re.compile(r"((?:\w+=\d+(?: and )?)+): (?:([\d.,]+) µs predicted|reaches|at best)")


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return load_predictor()


@pytest.fixture(params=["example", "corpus"])
def target(request: pytest.FixtureRequest) -> Target:
    """Tables whose entries are near enough to the best that rules, not recommendations, say what to change."""
    if request.param == "example":
        return resolve_target(str(EXAMPLE), Request(model="Qwen3-30B-A3B", tokens=(1, 2, 64, 1024)))
    folder = request.getfixturevalue("corpus_dir")
    return resolve_target(str(folder / H100), Request(assume=True, tokens=(1024, 1536, 3072)))


def test_remedies_are_the_predictors_own_and_no_net_loss(target: Target, predictor: Predictor) -> None:
    result = advise_target(target, predictor, command="")

    def predicted(launch: LaunchReport, configuration: Configuration) -> float:
        return float(predictor.predict(problem_batch([launch.problem]), configuration_batch([configuration]), target.gpu).us[0])

    by_id = {launch.id: launch for launch in result.launches}
    together = {launch.id: [each for each in result.launches if each.decision == launch.decision] for launch in result.launches}
    for launch in result.launches:
        for finding in launch.findings:
            said = REMEDY.match(finding.remedy)
            if finding.net_saving_us is None or said is None or launch.configuration is None:
                continue
            remedy = change(launch.configuration, {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", said.group(1))})
            if said.group(2):
                assert float(said.group(2).replace(",", "")) == pytest.approx(predicted(launch, remedy), rel=0.006)
            else:
                assert "µs" not in finding.remedy.partition(";")[0], "what it is limited to is no latency of its own"
            won = sum(predicted(each, launch.configuration) - predicted(each, remedy) for each in together[launch.id])
            assert won > 0 and finding.net_saving_us <= won * (1 + 1e-6), finding
    for action in result.actions:
        if action.rule is None:
            saved = [
                now.us - now.us / each.recommendation.speedup
                for i in action.launches
                if (each := by_id[i]).recommendation and (now := each.measured or each.predicted)
            ]
            layers = [each for each in result.layers if each.predicted and each.recommended and set(each.launches) <= set(action.launches)]
            whole = sum(each.predicted.us - each.recommended.us for each in layers)
            assert action.saving_us == pytest.approx(whole or sum(saved)), "losses included"
            assert not whole or 0 < whole <= 1.02 * sum(saved), "a layer gains no more than its products"


@pytest.mark.parametrize(("factor", "advised"), [(0.2, False), (0.9, False), (1.2, True)])
def test_a_kernel_measured_faster_than_its_recommendation_keeps_what_it_runs(predictor: Predictor, factor: float, advised: bool) -> None:
    """What runs is not known here, only how long it took: below the bound, between it and the recommendation, above."""
    gemm = resolve_target("gemm", Request(gpu="H200", sizes={"M": 4096, "N": 4096, "K": 4096}))

    def told(measured: dict[str, Measured]) -> Result:
        return advise_target(gemm, predictor, command="", measured=measured)

    (launch,) = told({}).launches
    assert launch.recommendation is not None
    latency = Latency(us=factor * launch.recommendation.latency.us, origin="measured", source="rows")
    result = told({launch.id: Measured(latency=latency)})
    assert (result.launches[0].recommendation is not None) is advised
    assert bool(result.actions) is advised


@pytest.mark.parametrize(("gpu", "device"), [(None, "NVIDIA_H20"), ("H20", "NVIDIA_H20"), ("H200", "NVIDIA_H200")])
def test_an_exported_table_is_named_for_the_gpu_that_was_asked_about(predictor: Predictor, gpu: str | None, device: str) -> None:
    """Under the other's name, that GPU would load what was chosen for this one."""
    target = resolve_target(str(EXAMPLE), Request(gpu=gpu, model="Qwen3-30B-A3B"))
    (table,) = [export for export in advise_target(target, predictor, command="").exports if export.kind == "table"]
    assert table.name == f"E=128,N=768,device_name={device}.json"
