"""`advisor advise` on a tuning cache: what ran in production becomes a report."""

from __future__ import annotations

import pytest

from advisor.autotuning.decisions.cache import FILE_NAME, Cache, ProblemKey, Row
from advisor.autotuning.decisions.exchange import read_cache_file
from advisor.autotuning.tunable import Options
from advisor.cli import main

from .reports import EXPORT, advised, edited


@pytest.mark.parametrize("form", ["word", "folder", "file", "export"])
def test_every_form_of_target_gives_the_same(form, produced, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    export = tmp_path / "tuned.json"
    assert main(["cache", "export", str(export)]) == 0
    before = (produced / FILE_NAME).read_bytes()
    forms = {"word": "cache", "folder": produced, "file": produced / FILE_NAME, "export": export}
    if form == "folder":  # the folder of this test is called `cache`: the word must not hide it
        assert (tmp_path / "cache").is_dir()
    result = advised(tmp_path, forms[form])
    assert (produced / FILE_NAME).read_bytes() == before
    assert result.gpu == "H200" and len(result.tuned) == 3 and len(result.launches) == 2
    by_launch = {problem.launch: problem for problem in result.tuned}
    for launch in result.launches:
        problem = by_launch[launch.id]
        assert launch.problem.family == "gemm" and launch.measured.us == problem.latency_us
        assert launch.measured.origin == "measured" and launch.bound.us < launch.measured.us
        assert launch.ceiling.us <= launch.measured.us and launch.configuration == problem.configuration
        assert launch.predicted is not None and problem.prediction_error > 0
    out = capsys.readouterr().out
    assert "tuned scale (1024, 'torch.bfloat16')" in out and "its family was unknown" in out


def test_every_timing_and_every_reason_is_there(produced, tmp_path, capsys):
    result = advised(tmp_path, produced)
    small = next(problem for problem in result.tuned if problem.key.startswith("(16,"))
    left_out = [timing for timing in small.timings if timing.us is None]
    assert left_out and all(timing.state == "fit" and "shared memory" in timing.reason for timing in left_out)
    assert all(timing.predicted_us > 0 for timing in small.timings)
    measured = [timing for timing in small.timings if timing.us is not None]
    assert [timing.us for timing in measured] == sorted(timing.us for timing in measured)
    # Of what is tied the first of the model's order when it was decided, with a warm L2; the report predicts for a cold one.
    entry = next(entry for entry in read_cache_file(produced / FILE_NAME) if entry.key.key.startswith("(16,"))
    tied = [row for row in entry.rows if row.us is not None and row.us <= (1 + Options().noise) * measured[0].us]
    (chosen,) = (row for row in tied if row.config == entry.best)
    assert small.latency_us == chosen.us and chosen.predicted_us <= (1 + 1e-6) * min(row.predicted_us for row in tied)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "does not fit the GPU" in page and "Tuned in production" in page
    assert "offline: nothing was run for this report; what is measured was given to it" in page
    assert main(["advise", str(produced), "--output", str(tmp_path / "out"), "--format", "md"]) == 0
    assert "3 tuned problems" in capsys.readouterr().out


def test_latencies_that_an_export_calls_simulated_are_nowhere_called_measured(tmp_path, capsys):
    result = advised(tmp_path, EXPORT)
    printed = capsys.readouterr().out
    assert {problem.origin for problem in result.tuned} == {"simulated"} == {launch.measured.origin for launch in result.launches}
    assert result.verdict.origin == "simulated"
    assert printed.count("8 simulated") == 3 and "measured" not in printed
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert ">simulated µs<" in page and "what was given to it says that it is simulated" in page
    assert "measured µs<" not in page and "autotune (measured)" not in page
    assert main(["cache", "import", str(EXPORT), "--dir", str(tmp_path / "kept")]) == 2
    assert "simulated" in capsys.readouterr().err and not Cache(tmp_path / "kept").problems()


def test_runs_that_are_not_known_apart_have_no_interval(tmp_path):
    result = advised(tmp_path, EXPORT)
    assert all(timing.low_us == timing.us == timing.high_us for problem in result.tuned for timing in problem.timings)
    assert all(launch.measured.low_us is None and launch.measured.coverage is None for launch in result.launches)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "60 % interval" not in page and "234.4–234.4" not in page
    assert "cold cache · gemm" in page and "cold cache · cold cache" not in page


def test_what_was_tuned_before_the_source_changed_is_not_counted(produced, tmp_path):
    cache = Cache(produced)
    key = next(each for each in cache.problems() if each.key.startswith("(512,"))
    old = ProblemKey(**{**{name: getattr(key, name) for name in ("kernel", "triton", "gpu", "key", "family", "problem")}, "source": "old"})
    cache.add_problem(old)
    cache.record_all(old.id, cache.rows(key.id).values())
    cache._do(lambda connection: connection.execute("UPDATE problems SET used = 1 WHERE source = 'old'"))
    cache.close()
    result = advised(tmp_path, produced)
    assert len(result.tuned) == 4 and len(result.launches) == 2
    assert sum("tuned anew since" in problem.note for problem in result.tuned) == 1


def test_one_kernel_one_gpu_or_a_report_for_each(produced, tmp_path, capsys):
    cache = Cache(produced)
    elsewhere = ProblemKey(kernel="scale", source="s", triton="3.9.0", gpu="<b>GPU</b>", key="(1,)")
    cache.add_problem(elsewhere)
    cache.record_all(elsewhere.id, [Row(config='{"BLOCK":16}', state="measured", us=3.0)])
    cache.close()
    capsys.readouterr()
    assert main(["advise", str(produced), "--output", str(tmp_path / "both")]) == 0
    assert "Worst first" in capsys.readouterr().out and (tmp_path / "both" / "overview.html").is_file()
    assert (tmp_path / "both" / "h200" / "report.html").exists()
    page = (tmp_path / "both" / "-b-gpu--b-" / "report.html").read_text(encoding="utf-8")
    assert "<b>GPU</b>" not in page and "&lt;b&gt;GPU" in page
    assert len(advised(tmp_path, f"{produced}::scale", "--gpu", "NVIDIA H200").tuned) == 1
    assert main(["advise", f"{produced}::nothing"]) == 5
    assert main(["advise", str(produced), "--gpu", "A100"]) == 5
    assert main(["advise", str(produced), "--tokens", "1"]) == 2
    assert "--tokens is for tables and bundled kernels" in capsys.readouterr().err


def test_damaged_and_hostile_caches(tmp_path, capsys, fresh_cache):
    damaged = tmp_path / FILE_NAME
    damaged.write_bytes(b"SQLite format 3\0" + b"x" * 4000)
    assert main(["advise", str(damaged)]) == 2
    assert "cannot be read as a tuning cache" in capsys.readouterr().err
    assert main(["advise", "cache"]) == 5
    cache = Cache(fresh_cache)
    for number, (family, problem) in enumerate(
        [
            ("gemm", '{"op":"gemm","sizes":{"M":0,"N":1,"K":1},"dtype":"bf16"}'),
            ("gemm", "[" * 5000),
            ("<script>", "{}"),
            ("gemm", '{"op":"gemm","sizes":{"M":1e400},"dtype":"bf16"}'),
            ("gemm", '{"op":"x","sizes":{"M":8},"dtype":"bf16"}'),
        ]
    ):
        key = ProblemKey(
            kernel="<script>alert(1)</script>",
            source=str(number),
            triton="",
            gpu="H200",
            key=f"({number},)",
            family=family,
            problem=problem,
        )
        cache.add_problem(key)
        names = ["not json", '{"BLOCK_SIZE_M":16,"BLOCK_SIZE_N":1e999,"BLOCK_SIZE_K":16}', '{"num_warps":"x"}']
        cache.record_all(key.id, [Row(config=each, state="measured", us=1.0) for each in names])
    cache.close()
    result = advised(tmp_path, fresh_cache)
    assert len(result.tuned) == 5 and not result.launches and all(problem.note for problem in result.tuned)
    assert "<script>alert" not in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("us", -5),
        ("us", 0),
        ("us", 1e-300),
        ("us", 1e300),
        ("us", float("nan")),
        ("us", float("inf")),
        ("us", None),
        ("high_us", 1.0),
        pytest.param("us", 10**400, id="us-beyond floats"),
        ("low_us", 1e9),
        ("at", float("nan")),
        ("config", "[1]"),
        ("config", "3"),
        ("family", {}),
        ("problem", []),
        ("state", float("inf")),
    ],
)
def test_what_no_cache_holds_is_damage(field, value, tmp_path, capsys):
    assert main(["advise", str(edited(tmp_path, field, value)), "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "damaged" in error and error.count("\n") == 1
    cache = Cache(tmp_path / "kept")
    cache.add_problem(key := ProblemKey(kernel="k", source="s", triton="", gpu="H200", key="()"))
    cache.record_all(key.id, [Row(config="{}", state="measured", us=float("inf"))])
    cache.close()
    assert main(["advise", str(tmp_path / "kept" / FILE_NAME), "--output", str(tmp_path / "out")]) == 2


def test_a_mean_of_equal_samples_is_no_damage_in_its_last_digit(tmp_path):
    cache = Cache(tmp_path / "kept")
    cache.add_problem(key := ProblemKey(kernel="k", source="s", triton="", gpu="H200", key="()"))
    ends = {"low_us": 1455.8482636081935, "high_us": 1455.8482636081935}
    cache.record_all(key.id, [Row(config="{}", state="measured", us=1455.8482636081937, **ends)])
    cache.close()
    assert [timing.us for problem in advised(tmp_path, tmp_path / "kept" / FILE_NAME).tuned for timing in problem.timings] == [
        1455.8482636081937
    ]


def test_a_problem_without_timings_is_listed(tmp_path):
    result = advised(tmp_path, edited(tmp_path, "timings", []))
    assert len(result.tuned) == 4 and [problem for problem in result.tuned if not problem.timings]


def test_options_of_kernels_in_files_are_refused(tmp_path, capsys):
    assert main(["advise", str(EXPORT), "--grid", "1", "--num-warps", "4", "--output", str(tmp_path)]) == 2
    assert "--grid, --num-warps" in capsys.readouterr().err


def test_an_unknown_kernel_is_answered_with_those_there_are(tmp_path, capsys):
    assert main(["advise", f"{EXPORT}::nope", "--output", str(tmp_path)]) == 5
    assert "gemm_kernel on H200, scale on H200" in capsys.readouterr().err
