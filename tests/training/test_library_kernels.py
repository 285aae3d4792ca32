"""Training of library kernels: rows of the publisher's files through `predict` give what training's own evaluation gives."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.cli import main
from advisor.gpus.hardware import load_gpu
from advisor.learned import weights
from advisor.training.silicon import library_kernels

pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("lightgbm")
from pyarrow import parquet  # noqa: E402

COUNT = 700


def folder_of(tmp_path: Path) -> Path:
    """GEMM and decode of two GPUs, with latencies that follow a plain rule."""
    rng = np.random.default_rng(1)
    for gpu, speed in (("h100_sxm", 1.0), ("h200_sxm", 0.8)):
        m, n, k = rng.integers(1, 4000, COUNT), rng.choice([96, 1000, 4096], COUNT), rng.choice([130, 1024, 5000], COUNT)
        ms = speed * (4e-3 + 2.5 * m * n * k / 6e11 + n * k / 1e9)
        write(tmp_path / gpu / "gemm/vllm/0.24.0/gemm_perf.parquet", kernel_source="torch.nn.functional.linear", gemm_dtype="bfloat16",
              m=m, n=n, k=k, latency=ms)  # fmt: skip
        batch, step, heads = rng.integers(1, 90, COUNT), rng.integers(1, 9000, COUNT), rng.choice([8, 16, 24], COUNT)
        ms = speed * (6e-3 + batch * step * 8 * 128 * 4 / 2.5e9)
        write(tmp_path / gpu / "attention/vllm/0.24.0/generation_attention_perf.parquet", kernel_source="vllm_flash_attn_fa3",
              op_name="generation_attention", batch_size=batch, isl=np.ones(COUNT, dtype=int), num_heads=heads,
              num_key_value_heads=np.full(COUNT, 8), head_dim=np.full(COUNT, 128), attn_dtype="bfloat16", kv_cache_dtype="bfloat16",
              step=step, latency=ms)  # fmt: skip
    return tmp_path


def write(path: Path, **columns: object) -> None:
    path.parent.mkdir(parents=True)
    parquet.write_table(pyarrow.table({name: [each] * COUNT if isinstance(each, str) else each for name, each in columns.items()}), path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory):
    patch = pytest.MonkeyPatch()
    for name, rounds in (("WHOLE", 60), ("OF_FOLD", 30), ("OF_GPU", 15)):
        patch.setattr(library_kernels, name, getattr(library_kernels, name)._replace(rounds=rounds, steps=20))
    folder = folder_of(tmp_path_factory.mktemp("published"))
    out = folder.parent / f"{folder.name}.npz"
    from advisor.training.silicon import train

    weights.save(weights.Weights(moe=None, direct={}, silicon=train([folder])), out)
    patch.undo()
    return folder, out


def test_predict_gives_what_training_evaluates(trained, tmp_path: Path) -> None:
    folder, file = trained
    models = weights.load(file).library
    for kind, name in (
        ("gemm bf16", "gemm/vllm/0.24.0/gemm_perf"),
        ("attention decode", "attention/vllm/0.24.0/generation_attention_perf"),
    ):
        table = parquet.read_table(folder / "h200_sxm" / f"{name}.parquet").slice(0, 200)
        with (tmp_path / "rows.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["gpu", "framework", "version", *table.column_names])
            writer.writerows(("h200_sxm", "VLLM", "0.24.0", *row.values()) for row in table.to_pylist())
        assert main(["predict", str(tmp_path / "rows.csv"), "-o", str(tmp_path / "out.csv"), "--weights", str(file)]) == 0
        with (tmp_path / "out.csv").open() as stream:
            served = np.array([float(row["predicted_us"]) for row in csv.DictReader(stream)])
        measured = table["latency"].to_numpy() * 1e3
        assert np.median(np.abs(served / measured - 1)) < 0.1, kind
        (part,) = [each for each in library_kernels.read([folder], ["H200"]) if each.kind == kind]
        (us, _, _), seen = models[kind].predict(library_kernels.problem_of(part), load_gpu("H200"))
        assert seen
        assert {"left out", "nearest shapes", "bound", "GPU left out"} <= set(models[kind].held_out["H200"])
        by_latency = dict(zip(np.round(part.latency_us, 6).tolist(), us.tolist(), strict=True))
        expected = np.array([by_latency.get(each, np.nan) for each in np.round(measured, 6).tolist()])
        assert np.isfinite(expected).mean() > 0.9, kind
        assert np.nanmax(np.abs(np.maximum(expected, 0) / served - 1)) < 1e-3, kind


def test_what_cannot_be_right_is_left_out_and_counted(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    path = folder / "h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet"
    table = parquet.read_table(path).to_pydict()
    table["latency"][3] = 1e-5
    parquet.write_table(pyarrow.table(table), path)
    said: list[str] = []
    parts = library_kernels.read([folder], ["H100"], said.append)
    assert any("below the bound" in text and "left out 1 of" in text for text in said)
    assert sum(len(part.latency_us) for part in parts if part.kind.startswith("gemm")) < COUNT


def test_rows_of_one_problem_are_merged_to_their_median(tmp_path: Path) -> None:
    path = tmp_path / "h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet"
    write(path, kernel_source="x", gemm_dtype="bfloat16", m=np.full(COUNT, 7), n=np.full(COUNT, 96), k=np.full(COUNT, 130),
          latency=np.linspace(0.004, 0.006, COUNT))  # fmt: skip
    (part,) = library_kernels.read([tmp_path])
    assert part.latency_us.tolist() == pytest.approx([5.0])


def test_nearest_shapes_reach_as_much_of_their_bounds(tmp_path: Path) -> None:
    parts = library_kernels.read([folder_of(tmp_path)], ["H100"])
    same = library_kernels.nearest_shapes(parts, parts)
    assert set(same) == {"gemm bf16", "attention decode"} and max(same.values()) < 0.1
    out = [part.take(np.flatnonzero(part.group == part.group[0])) for part in parts]
    others = [part.take(np.flatnonzero(part.group != part.group[0])) for part in parts]
    apart = library_kernels.nearest_shapes(others, out)
    assert all(1 < apart[kind] < 60 for kind in same)
    slower = [replace(part, latency_us=2 * part.latency_us) for part in parts]
    assert list(library_kernels.nearest_shapes(slower, parts).values()) == pytest.approx([100, 100], abs=0.2)
