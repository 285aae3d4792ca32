"""What is left out is left out, in every kind of split, and the rest is judged whole."""

from __future__ import annotations

from itertools import pairwise

import pytest

from advisor.system.errors import InputError
from advisor.training import data, evaluate

GEMMS = "gpu,M,N,K,latency_us\n" + "".join(
    f"{gpu},{m},{n},{k},{10 + m * n * k / 1e8}\n"
    for gpu in ("H20", "H800")
    for n, k in ((512, 1024), (1024, 512), (2048, 2048), (4096, 512))
    for m in range(1, 60)
)


@pytest.fixture
def rows(world, tmp_path):
    (tmp_path / "gemm_fp8.csv").write_text(GEMMS)
    return data.read([world, tmp_path])


def names(parts, label):
    return {name for part in parts for name in label(part)}


@pytest.mark.parametrize(
    ("by", "group", "label"),
    [
        ("model", "fused_moe", evaluate._models),
        ("gpu", "fused_moe", evaluate._gpus),
        ("gpu", "gemm/fp8", evaluate._gpus),
        ("shape", "gemm/fp8", evaluate._shapes),
        ("nk", "gemm/fp8", evaluate._matrices),
    ],
)
def test_groups_do_not_overlap_and_are_judged_once(rows, by, group, label):
    made = [s for s in evaluate.splits_of(rows, by) if s.group == group]
    assert len(made) > 1
    for split in made:
        assert not names(split.kept, label) & names(split.test, label)
    judged = [names(s.test, label) for s in made]
    assert all(not a & b for a, b in pairwise(judged))
    assert sum(len(p) for s in made for p in s.test) == sum(len(p) for p in evaluate.groups(rows)[group])


def test_the_sweeps_of_a_gpu_are_left_out_and_its_served_launches_kept(rows):
    made = evaluate.splits_of(rows, "sweep")
    swept = {part.gpu.name for part in rows if part.kind == "best"}
    assert {names(split.test, evaluate._gpus).pop() for split in made} == swept
    for split in made:
        (gpu,) = names(split.test, evaluate._gpus)
        assert {part.kind for part in split.test} == {"exact", "best"}
        assert {part.kind for part in split.kept if part.gpu.name == gpu} == {"served"}
        assert sum(map(len, split.kept + split.test)) == sum(map(len, evaluate.groups(rows)["fused_moe"]))


def test_given_gpus_are_left_out_together(rows):
    made = {s.group: s for s in evaluate.split_without(rows, ("L40", "H800"))}
    assert set(made) == {"fused_moe", "gemm/fp8"}
    assert names(made["fused_moe"].kept, evaluate._gpus) == {"A100"}
    assert names(made["fused_moe"].test, evaluate._gpus) == {"L40", "H800"}


def test_nothing_to_leave_out(world):
    with pytest.raises(InputError, match="leave out by shape"):
        evaluate.splits_of(data.read([world]), "shape")
    with pytest.raises(InputError, match="H20"):
        evaluate.split_without(data.read([world]), ("H20",))
