"""Reading and fitting published operators, on rows made by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

from advisor.cli import main  # noqa: E402
from advisor.gpus.hardware import load_gpu  # noqa: E402
from advisor.learned import weights  # noqa: E402
from advisor.learned.library.series_model import number  # noqa: E402
from advisor.learned.operators import model as operator_model  # noqa: E402
from advisor.learned.operators.work import KINDS, columns_of, timed_kernel  # noqa: E402
from advisor.training.silicon import operators, series  # noqa: E402

KIND = "MLA products"


def written(folder: Path, slow: float = 1.0, tokens: tuple[int, ...] = (1, 8, 64, 512, 4096), noise: float = 0.0) -> None:
    """Products that take what the reference says of them before it is fitted."""
    cells = [(t, h, op) for t in tokens for h in (1, 2, 4, 8, 16, 32, 64, 128) for op in ("mla_gen_pre", "mla_gen_post")]
    names = ("num_tokens", "num_heads", "op_name")
    columns = {name: [each[i] for each in cells] for i, name in enumerate(names)}
    words = {"kernel_source": ["bmm"] * len(cells), "bmm_dtype": ["bfloat16"] * len(cells)}
    rows = columns_of(KIND, {name: np.array(each) for name, each in (columns | words).items()}, len(cells))
    stages = KINDS[KIND].stages(rows, load_gpu("H100"))
    us, _ = operator_model.reference(stages, operator_model.start(len(stages)))
    us = us * slow * np.exp(noise * np.random.default_rng(0).normal(size=us.size))
    folder.mkdir(parents=True)
    table = pyarrow.table(columns | words | {"latency": (us / 1e3).tolist()})
    parquet.write_table(table, folder / "mla_bmm_perf.parquet")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, operators.Table, operator_model.OperatorModel]:
    """A folder of products that take 1.3 times what the reference says, its rows, and what is fitted to them with little
    training: 400 rows of one law ask for no more."""
    data = tmp_path_factory.mktemp("data")
    written(data / "h100_sxm" / "mla_bmm" / "sglang" / "0.5.14", 1.3, tuple(round(1.4**i) for i in range(4, 29)), noise=0.02)
    table = operators.joined(KIND, operators.read([data])[KIND])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators, "WHOLE", replace(operators.WHOLE, rounds=60, steps=80))
        return data, table, operators.fit(table, lambda text: None)


def test_read_leaves_out_what_is_below_the_bound(tmp_path: Path) -> None:
    written(tmp_path / "h100_sxm" / "mla_bmm" / "sglang" / "0.5.14")
    written(tmp_path / "h100_sxm" / "mla_bmm" / "vllm" / "0.24.0", slow=0.1)
    told: list[str] = []
    (found,) = operators.read([tmp_path], progress=told.append)[KIND]
    assert found.gpu == "H100" and 80 <= len(found) < 160
    assert any("below the bound" in each for each in told)
    assert {each.stack for each in found.series} >= {"sglang"}


def test_the_fit_finds_the_constants_and_what_is_left_out_is_judged_beside_a_baseline(
    fitted: tuple[Path, operators.Table, operator_model.OperatorModel],
) -> None:
    _, table, model = fitted
    every = model.held_out["pairs"]["all"]
    assert every["mape"] < 4 and every["mape"] < every["baseline"] and model.is_better
    assert "gpus" not in model.held_out  # there is one
    found = model.predict(table.parts[0].rows, table.which, load_gpu("H100"))
    assert np.abs(np.log(found.us / table.us)).mean() < 0.03
    inside = (found.low_us <= table.us) & (table.us <= found.high_us)
    assert inside.mean() > 0.7


def test_pairs_left_out_share_no_batch_and_length_with_the_others(tmp_path: Path) -> None:
    written(tmp_path / "h100_sxm" / "mla_bmm" / "sglang" / "0.5.14", tokens=tuple(2**i for i in range(13)))
    table = operators.joined(KIND, operators.read([tmp_path])[KIND])
    (split,) = operators.splits(table, "pairs", None)
    tokens, out = table.parts[0].rows.sizes["num_tokens"], split.out
    assert not split.identities and 0 < out.sum() < len(table) and not set(tokens[out]) & set(tokens[~out])


def test_intervals_of_gpus_left_out_are_judged_by_the_errors_of_their_relatives() -> None:
    """Errors on Hopper ten times those on Blackwell: each is judged by the other GPU of its generation, a single one by its other half."""
    gpu = np.array(["H100", "H200", "B200", "B300"])[np.arange(4000) % 4]
    errors = np.random.default_rng(0).normal(size=4000) * np.where(np.char.startswith(gpu, "H"), 10, 1)
    inside = series.held_by_relatives(errors, gpu)
    assert [inside[gpu == name].mean() for name in ("H100", "B200")] == pytest.approx([0.8, 0.8], abs=0.05)
    slower = errors + 50 * ((gpu == "H100") * 1 - (gpu == "H200"))  # than its sibling says, which is as much faster
    assert series.held_by_relatives(slower, gpu)[gpu == "H100"].mean() == pytest.approx(0.8, abs=0.05)
    apart = np.isin(gpu, ["H100", "B200"])
    assert series.held_by_relatives(errors[apart], gpu[apart])[gpu[apart] == "H100"].mean() < 0.3
    alone = gpu == "H100"
    assert series.held_by_relatives(errors[alone], gpu[alone]).mean() == pytest.approx(0.8, abs=0.05)


def test_convolutions_over_keys_alone_are_told_apart_by_who_timed_them(tmp_path: Path) -> None:
    """TensorRT-LLM's convolution takes the same time with any number of value heads, and no longer than its bound allows."""
    assert timed_kernel("causal_conv1d_fn", "gdn", "trtllm", number("1.3.0rc20")) == "causal_conv1d_fn_of_keys"
    assert timed_kernel("causal_conv1d_update", "gdn", "sglang", number("0.5.10")) == "causal_conv1d_update_of_keys"
    for stack, version in (("sglang", "0.5.14"), ("vllm", "0.24.0"), ("sglang", "")):
        assert timed_kernel("causal_conv1d_fn", "gdn", stack, number(version)) == "causal_conv1d_fn"
    cells = {"op_name": ["gdn"] * 2, "batch_size": [64] * 2, "seq_len": [1024] * 2, "num_k_heads": [16] * 2, "head_k_dim": [128] * 2}
    cells |= {"num_v_heads": [16, 64], "head_v_dim": [128] * 2, "phase": ["context"] * 2, "d_conv": [4] * 2}
    least = {}
    for stack in ("trtllm", "vllm"):
        kernel = timed_kernel("causal_conv1d_fn", "gdn", stack, 10300)
        rows = columns_of("linear attention", {name: np.array(each) for name, each in (cells | {"kernel_source": [kernel] * 2}).items()}, 2)
        least[stack], _ = operator_model.bound(rows, load_gpu("B200"))
    assert least["trtllm"][0] == least["trtllm"][1] < 204 < least["vllm"][1]  # 204 us were measured, 1,170 of vLLM's
    assert least["vllm"][0] < least["vllm"][1] < 1170


def test_single_kinds_are_fitted_beside_those_of_the_output(
    fitted: tuple[Path, operators.Table, operator_model.OperatorModel],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each kind's table is fitted: the one that the same rows were made into above is fitted once."""
    data, table, model = fitted

    def fit(given: operators.Table, progress: object) -> operator_model.OperatorModel:
        assert given.series == table.series and np.array_equal(given.us, table.us)
        return model

    monkeypatch.setattr(operators, "fit", fit)
    output = tmp_path / "mine.npz"
    weights.save_arrays({"DSA decode/constants": np.ones(3), f"{KIND}/old": np.ones(1)}, output)
    command = ["train", "--operators", str(data), "-o", str(output)]
    assert main([*command, "--only", "Products"]) == 2 and "MLA products" in capsys.readouterr().err
    assert main([*command, "--only", KIND]) == 0
    assert f"{KIND}: pairs left out" in capsys.readouterr().out
    with np.load(output) as found:
        assert found["DSA decode/constants"].tolist() == [1, 1, 1] and f"{KIND}/about" in found and f"{KIND}/old" not in found
    (fitted,) = operator_model.load_shipped(output).values()
    assert fitted.kind == KIND and fitted.measured.keys() == {"H100"}
