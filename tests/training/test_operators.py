"""Reading and fitting published operators, on rows made by hand."""

from pathlib import Path

import numpy as np
import pytest

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

from advisor.gpus.hardware import load_gpu  # noqa: E402
from advisor.learned.operators import model as operator_model  # noqa: E402
from advisor.learned.operators.work import KINDS, columns_of  # noqa: E402
from advisor.training.operators import fitting, reading  # noqa: E402

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


def test_read_leaves_out_what_is_below_the_bound(tmp_path: Path) -> None:
    written(tmp_path / "h100_sxm" / "mla_bmm" / "sglang" / "0.5.14")
    written(tmp_path / "h100_sxm" / "mla_bmm" / "vllm" / "0.24.0", slow=0.1)
    told: list[str] = []
    (found,) = reading.read([tmp_path], progress=told.append)[KIND]
    assert found.gpu == "H100" and 80 <= len(found) < 160
    assert any("below the bound" in each for each in told)
    assert {each.stack for each in found.series} >= {"sglang"}


def test_the_fit_finds_the_constants_and_what_is_left_out_is_judged_beside_a_baseline(tmp_path: Path) -> None:
    tokens = tuple(round(1.4**i) for i in range(4, 29))
    written(tmp_path / "h100_sxm" / "mla_bmm" / "sglang" / "0.5.14", slow=1.3, tokens=tokens, noise=0.02)
    table = fitting.joined(KIND, reading.read([tmp_path])[KIND])
    fitted = fitting.fit(table, lambda text: None)
    every = fitted.held_out["pairs"]["all"]
    assert every["mape"] < 4 and every["mape"] < every["baseline"] and fitted.is_better
    assert "gpus" not in fitted.held_out  # there is one
    found = fitted.predict(table.parts[0].rows, table.which, load_gpu("H100"))
    assert np.abs(np.log(found.us / table.us)).mean() < 0.03
    inside = (found.low_us <= table.us) & (table.us <= found.high_us)
    assert inside.mean() > 0.7


def test_pairs_left_out_share_no_batch_and_length_with_the_others(tmp_path: Path) -> None:
    written(tmp_path / "h100_sxm" / "mla_bmm" / "sglang" / "0.5.14", tokens=tuple(2**i for i in range(13)))
    table = fitting.joined(KIND, reading.read([tmp_path])[KIND])
    ((out, gpu),) = fitting._splits(table, "pairs", None)
    tokens = table.parts[0].rows.sizes["num_tokens"]
    assert gpu == "" and 0 < out.sum() < len(table) and not set(tokens[out]) & set(tokens[~out])
