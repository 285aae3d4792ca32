"""`advisor cache`."""

from __future__ import annotations

import json
import sqlite3

import pytest

from advisor.autotuning.decisions.cache import FILE_NAME, Cache, ProblemKey, Row
from advisor.cli import main

from .kernels import call, configs, tuned

tl = pytest.importorskip("triton.language")

LATENCIES = {32: 3.0, 64: 1.0, 128: 2.0}


@pytest.fixture
def filled(fresh_cache):
    call(tuned(LATENCIES)[0])
    return fresh_cache


def test_ls(filled, capsys):
    assert main(["cache", "ls", "--timings"]) == 0
    out = capsys.readouterr().out
    assert "scale  H200  (1024, 'torch.bfloat16')" in out and "BLOCK=64" in out and "1,000 µs" in out and "3,000 µs" in out
    assert main(["cache", "ls", "--format", "json", "--gpu", "NVIDIA_H200"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["configuration"]["BLOCK"] == 64 and entry["latency_us"] == 1000.0 and len(entry["timings"]) == 3
    assert main(["cache", "ls", "--kernel", "other"]) == 5
    captured = capsys.readouterr()
    assert captured.out == "" and "got other" in captured.err
    assert main(["cache", "ls", "--kernel", "other", "--format", "json"]) == 5
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize("asked", [["cache", "ls"], ["advise", "cache"]])
def test_an_empty_cache_is_called_that(filled, asked, capsys):
    assert main(["cache", "prune", "--kernel", "scale"]) == 0
    capsys.readouterr()
    assert main(asked) == 5
    err = capsys.readouterr().err
    assert "the cache is empty; run a kernel with @advisor.autotune first" in err and "like it" not in err


def test_ls_tells_problems_of_one_key_apart(fresh_cache, capsys):
    for width in (32, 128):
        call(tuned(LATENCIES, sized, space=configs(*LATENCIES))[0], WIDTH=width)
    assert main(["cache", "ls"]) == 0
    out = capsys.readouterr().out
    assert all(f"sized  H200  (1024, 'torch.bfloat16')  WIDTH={width}  Triton" in out for width in (32, 128))
    assert main(["cache", "ls", "--format", "json"]) == 0
    assert {entry["constants"] for entry in json.loads(capsys.readouterr().out)} == {"WIDTH=32", "WIDTH=128"}


def sized(x, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Keeps BLOCK x WIDTH elements."""


def test_export_import(filled, tmp_path, capsys):
    file = str(tmp_path / "tuned.json")
    assert main(["cache", "export", file]) == 0
    assert main(["cache", "import", file, "--dir", str(tmp_path / "new")]) == 0
    assert main(["cache", "ls", "--dir", str(tmp_path / "new")]) == 0
    assert "BLOCK=64" in capsys.readouterr().out


def test_ls_shows_what_is_damaged(fresh_cache, capsys):
    cache = Cache(fresh_cache)
    for number, problem in enumerate(("not JSON", "[" * 100_000)):
        cache.add_problem(key := ProblemKey(kernel="k", source="", triton="", gpu="H200", key=str(number), family="gemm", problem=problem))
        cache.record_all(key.id, [Row(config=each, state="measured", us=1.0) for each in ("[1]", "half a {")])
        cache.decide(key.id, "list", "[1]", "measured")
    cache.close()
    for format_ in ("text", "json"):
        assert main(["cache", "ls", "--timings", "--format", format_]) == 0
        out = capsys.readouterr().out
        assert out.count("half a {") == 2 and "[1]" in out.replace("\n", "").replace(" ", "")


def test_a_decision_for_no_configuration_is_damage(filled, tmp_path, capsys):
    file = tmp_path / "tuned.json"
    assert main(["cache", "export", str(file)]) == 0
    document = json.loads(file.read_text())
    document["problems"][0]["decisions"][0][1] = "[1]"
    file.write_text(json.dumps(document))
    assert main(["cache", "import", str(file), "--dir", str(tmp_path / "new")]) == 2
    assert "a damaged export" in capsys.readouterr().err


def test_import_from_a_folder(tmp_path, capsys):
    document = {"key": [1], "configs_timings": [[{"kwargs": {"BLOCK": 1}, "num_warps": 4}, [1.0, 1.0, 1.0]]]}
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "k.autotune.json").write_text(json.dumps(document))
    (tmp_path / "in" / "cache.json").write_text("{}")
    assert main(["cache", "import", str(tmp_path / "in")]) == 2
    assert "say which with --gpu NAME" in capsys.readouterr().err
    assert main(["cache", "import", str(tmp_path / "in"), "--gpu", "H200"]) == 0
    assert "skipped" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    for name, status in (("in/cache.json", 2), ("nothing.json", 2), ("empty", 5)):
        assert main(["cache", "import", str(tmp_path / name)]) == status


def test_a_cache_that_cannot_be_written_keeps_nothing_and_says_so(filled, tmp_path, capsys):
    file, blocked = str(tmp_path / "tuned.json"), tmp_path / "blocked"
    assert main(["cache", "export", file]) == 0
    blocked.write_text("a file where a folder should be")
    capsys.readouterr()
    assert main(["cache", "import", file, "--dir", str(blocked)]) == 2
    error = capsys.readouterr().err
    assert "cannot be written" in error and "--dir" in error and "problems from" not in error
    with sqlite3.connect(filled / FILE_NAME) as connection:
        connection.execute("PRAGMA user_version = 99")  # a later version's: it is read only
    connection.close()
    assert main(["cache", "prune", "--all"]) == 2 and "cannot be written" in capsys.readouterr().err


def test_prune(filled, capsys):
    assert main(["cache", "prune"]) == 2
    assert main(["cache", "prune", "--older-than", "1"]) == 0
    for days in ("-1", "nan", "inf", "-inf", "soon"):  # all that came of a slip was an empty cache
        assert main(["cache", "prune", f"--older-than={days}"]) == 2, days
        assert "number of days" in capsys.readouterr().err
    assert main(["cache", "prune", "--kernel", "scale", "--dry-run"]) == 0
    out, error = capsys.readouterr()
    assert "scale" in out and f"advisor: {len(out.splitlines())} problem" in error and "would be forgotten" in error
    assert main(["cache", "prune", "--gpu", "A100"]) == 0
    assert "advisor: 0 problems forgotten" in capsys.readouterr().err
    main(["cache", "ls"])
    assert "BLOCK=64" in capsys.readouterr().out
    assert main(["cache", "prune", "--all"]) == 0
    capsys.readouterr()
    main(["cache", "ls"])
    assert capsys.readouterr().out == ""


def test_a_damaged_cache_is_called_that(fresh_cache, capsys):
    fresh_cache.mkdir()
    (fresh_cache / FILE_NAME).write_bytes(b"damaged" * 100)
    for wanted in (["ls"], ["ls", "--format", "json"], ["export", str(fresh_cache / "x.json")]):  # it does not say that there is nothing
        capsys.readouterr()
        assert main(["cache", *wanted]) == 2
        out, error = capsys.readouterr()
        assert error.count("advisor") == 2 and "cannot be read" in error and "remove it" in error and not out, error


def test_without_a_cache(fresh_cache):
    assert main(["cache", "ls"]) == 5
    assert main(["cache", "export", "x.json"]) == 5
