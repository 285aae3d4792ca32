"""Two revisions: tables and kernels that changed, read from git and never run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.comparison.trees import git
from advisor.rendering import figures
from advisor.rendering.comparison_files import MARKER, to_comment, to_page, to_sarif, to_text
from advisor.system.errors import InputError

from .conftest import KERNEL, TABLE, entry, table
from .repository import compared

SETTINGS = """
gpus = ["H100", "MI300X"]
[kernels."kernels/matmul.py::matmul"]
family = "gemm"
problems = [{M = 64, N = 4096, K = 4096}, {M = 4096, N = 4096, K = 4096, dtype = "fp16"}]
"""


def surfaces(comparison) -> tuple[str, str, str]:
    return to_comment(comparison), to_page(comparison), to_sarif(comparison)


def test_a_changed_table_is_compared_entry_by_entry(repository, predictor):
    base = repository.commit({f"configs/{TABLE}": table(M1=entry(), M64=entry(stages=5), M4096=entry(128, 128, 64, 3, 8))})
    head = repository.commit({f"configs/{TABLE}": table(M1=entry(), M64=entry(), M4096=entry(16, 32, 64, 3))})
    found = compared(repository, base, head, predictor)
    (subject,) = found.subjects
    rows = {row.label: row for row in subject.static}
    assert subject.kind == "table" and subject.change == "modified"
    assert rows["M=1"].verdict == "predicted-unchanged" and not rows["M=1"].changed and rows["M=1"].change == 0
    assert rows["M=4096"].verdict == "predicted-regressed" and rows["M=4096"].change > 0.5
    assert all(row.default is not None and row.ceiling.us <= row.head.predicted.us for row in subject.static)
    assert found.gpus == ("H200",) and not found.gate.failed
    comment, page, _ = surfaces(found)
    assert comment.startswith(MARKER) and "predictions only, nothing was measured" in comment
    assert "Looks worse than what it replaces" in comment and comment.index("M=4096") < comment.index("M=1 ")
    assert "M=4096" in page and not re.search(r"(src|href)=.?https?:", page)


def test_rows_that_say_the_same_are_one_line_of_text(repository, predictor):
    entries = {f"M{count}": entry() for count in (1, 2, 4, 8, 16, 32)}
    base = repository.commit({TABLE: table(**entries)})
    text = to_text(compared(repository, base, repository.commit({TABLE: table(**{**entries, "M4": entry(stages=5)})}), predictor))
    assert "M=1, M=2, M=8, M=16 and 1 more  H200  (the same configurations on both sides)" in text and text.count("  M=4  H200  ") == 1
    text = to_text(compared(repository, base, repository.commit({TABLE: table(**entries)[:-9]}), predictor))
    assert text.count("not valid JSON") == 1 + 1 + 1 + 1 and "M=1, M=2, M=4, M=8 and 2 more  H200  (not valid JSON" in text


def test_tables_of_one_name_are_told_apart(repository, predictor):
    paths = [f"configs/{folder}/{TABLE}" for folder in ("triton_3_4_0", "triton_3_5_1")]
    other = "E=64,N=768,device_name=NVIDIA_H200.json"
    base = repository.commit(dict.fromkeys([*paths, f"other/{other}"], table(M1=entry())))
    changed = {path: table(M1=entry(256, 256, 128, 5, 8)) for path in paths}
    head = repository.commit({**changed, f"other/{other}": table(M1=entry(32))})
    found = compared(repository, base, head, predictor)
    assert [subject.title for subject in found.subjects] == [*paths, other]
    assert all(any(path in sentence for sentence in found.gate.triggered) for path in paths)


def test_an_entry_that_is_not_changed_is_not_said_to_be_slower_than_the_default(repository, predictor):
    slow = entry(128, 32, 64, 2)
    base = repository.commit({TABLE: table(M1=entry(), M64=slow)})
    comment = to_comment(compared(repository, base, repository.commit({TABLE: table(M1=entry(stages=5), M64=slow)}), predictor))
    assert "slower than the stack's default" not in comment
    comment = to_comment(compared(repository, base, repository.commit({TABLE: table(M1=slow, M64=slow)}), predictor))
    assert "slower than the stack's default:** M=1 on H200" in comment


def test_predicted_regressions_gate_only_where_that_is_asked_for(repository, predictor):
    base = repository.commit({TABLE: table(M4096=entry(128, 128, 64, 3, 8))})
    head = repository.commit({TABLE: table(M4096=entry(16, 32, 64, 3))})
    assert not compared(repository, base, head, predictor).gate.failed
    found = compared(repository, base, head, predictor, fail_on=("predicted-regressed",))
    assert found.gate.failed and "M=4096" in found.gate.sentence
    assert compared(repository, base, head, predictor, fail_on=("ceiling<90",)).gate.failed


def test_what_cannot_launch_gates_by_default(repository, predictor):
    base = repository.commit({TABLE: table(M64=entry())})
    head = repository.commit({TABLE: table(M64=entry(256, 256, 128, 5, 8))})
    found = compared(repository, base, head, predictor)
    assert found.static_counts == {"cannot-launch": 1} and found.gate.failed and "cannot-launch" in found.gate.sentence
    comment, _, sarif = surfaces(found)
    assert "❌" in comment and "Findings cured" not in comment and "M=64 on H200 (cannot launch)" in comment
    (row,) = found.subjects[0].static
    (result,) = [each for each in json.loads(sarif)["runs"][0]["results"] if each["ruleId"] == "cannot-launch"]
    told = figures.microseconds(row.advice.latency.us)  # of both GEMMs, as in the comment
    assert f"{told} µs predicted" in result["message"]["text"] and f"{told} µs predicted" in comment
    assert "cannot launch (no CTA fits an SM" in result["message"]["text"]
    assert re.search(r"µs predicted \(base\) -> cannot launch  ", to_text(found))
    back = compared(repository, head, base, predictor)
    assert back.static_counts == {"launches-again": 1} and not back.gate.failed


def test_a_new_table_is_compared_with_what_runs_without_it(repository, predictor):
    base = repository.commit({"README": "x"})
    head = repository.commit({TABLE: table(M64=entry(), M1024=entry(64, 128))})
    (subject,) = compared(repository, base, head, predictor).subjects
    assert subject.change == "added" and all(row.compared_with == "default" and row.change is not None for row in subject.static)
    (gone,) = compared(repository, head, base, predictor).subjects
    assert gone.change == "removed"
    for row, back in zip(subject.static, gone.static, strict=True):  # without the table the stack's default runs
        assert back.head == row.default and back.base.predicted == row.head.predicted and back.cured_findings == ()
        assert back.change == pytest.approx(1 / (1 + row.change) - 1)


@pytest.mark.parametrize(("stack", "comma", "stages"), [("vllm", ",", 2), ("sglang", ", ", 3)])
def test_a_new_gemm_table_is_compared_with_its_own_stacks_default(repository, predictor, stack, comma, stages):
    name = f"N=1536,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128{comma}128].json"
    base = repository.commit({"README": "x"})
    head = repository.commit({f"{stack}/{name}": table(M64=entry(64, 128, 128, 3))})
    (subject,) = compared(repository, base, head, predictor).subjects
    (row,) = subject.static
    assert row.default.configuration.num_stages == stages


def test_a_changed_kernel_is_compared_on_the_problems_that_are_named(repository, predictor):
    base = repository.commit({"kernels/matmul.py": KERNEL.format(m=16), "advisor.toml": SETTINGS})
    head = repository.commit({"kernels/matmul.py": KERNEL.format(m=128)})
    (subject,) = compared(repository, base, head, predictor).subjects
    assert subject.title == "kernels/matmul.py::matmul" and len(subject.static) == 4
    assert {row.gpu for row in subject.static} == {"H100", "MI300X"}
    assert len(subject.configurations_added) == len(subject.configurations_removed) == 1
    assert any(row.verdict == "predicted-improved" for row in subject.static)


def test_gpus_that_the_kernels_file_rules_out_are_left_out(repository, predictor):
    described = KERNEL + "\nKERNELS = {{'matmul': {{'family': 'gemm', 'min_capability': {least}}}}}\n"
    settings = SETTINGS.replace('"MI300X"]', '"MI300X", "A100"]')
    base = repository.commit({"kernels/matmul.py": described.format(m=16, least=90), "advisor.toml": settings})
    head = repository.commit({"kernels/matmul.py": described.format(m=128, least=90)})
    (subject,) = compared(repository, base, head, predictor).subjects
    assert {row.gpu for row in subject.static} == {"H100"}
    assert "Left out: MI300X, A100, for the kernel's file asks for sm_90 or later." in subject.notes
    wider = repository.commit({"kernels/matmul.py": described.format(m=128, least=80)})
    (subject,) = compared(repository, head, wider, predictor).subjects
    assert {row.gpu: row.base is None for row in subject.static} == {"H100": False, "A100": True}


def test_comments_and_docstrings_are_no_change(repository, predictor):
    base = repository.commit({"kernels/matmul.py": KERNEL.format(m=16)})
    documented = KERNEL.format(m=16).replace("    tl.store", '    """Copies."""\n    pass\n    tl.store')
    head = repository.commit({"kernels/matmul.py": "# a comment\n" + documented})
    assert compared(repository, base, head, predictor).subjects == ()


@pytest.mark.parametrize(
    ("become", "changed"), [(("@slow\nclass", "@quick\nclass"), 0), (("def other", "@quick\n    def other"), 0), (("1", "2"), 1)]
)
def test_what_stands_around_a_kernel_in_a_class_is_no_change(repository, predictor, become, changed):
    text = "import triton\nimport triton.language as tl\n\n@slow\nclass Case:\n    @staticmethod\n    @triton.jit\n    def one(x_ptr):\n"
    text += "        tl.store(x_ptr, 1)\n\n    def other(self):\n        Case.one[(9,)](self.x)\n"
    base = repository.commit({"kernels/case.py": text})
    head = repository.commit({"kernels/case.py": text.replace(*become)})
    assert len(compared(repository, base, head, predictor).subjects) == changed


def test_the_base_decides_what_gates(repository, predictor):
    base = repository.commit({"advisor.toml": 'fail_on = ["predicted-regressed"]', TABLE: table(M4096=entry(128, 128, 64, 3, 8))})
    head = repository.commit({"advisor.toml": 'fail_on = ["none"]', TABLE: table(M4096=entry(16, 32, 64, 3))})
    assert compared(repository, base, head, predictor).gate.failed


def test_a_table_is_compared_at_the_token_counts_that_are_named(repository, predictor):
    settings = '[tables."configs/*.json"]\nmodel = "Qwen3-30B-A3B"\ntokens = [200, 64]'
    base = repository.commit({"advisor.toml": settings, f"configs/{TABLE}": table(M1=entry(), M64=entry(), M256=entry(32))})
    head = repository.commit({f"configs/{TABLE}": table(M1=entry(32), M64=entry(), M256=entry(64))})
    (subject,) = compared(repository, base, head, predictor).subjects
    assert [row.label for row in subject.static] == ["M=64", "M=200"]
    assert [side.source for side in (subject.static[1].base, subject.static[1].head)] == ["table entry 256"] * 2


@pytest.mark.parametrize(
    "text",
    [
        "gpu = ['H100']",
        "gpus = 'H100'",
        "gpus = ['/etc/passwd']",
        "gpus = ['x.toml']",
        "[kernels.a]\nfamly = 'gemm'",
        "=",
        "[tables.a]\ntokens = 64",
        "[tables.a]\ntokens = [0]",
        "[tables.a]\ntop_k = '8'",
        "[tables.a]\nmodel = 8",
    ],
)
def test_settings_that_are_off_are_refused_with_what_is_known(repository, predictor, text):
    base = repository.commit({"advisor.toml": text})
    head = repository.commit({"advisor.toml": text, "x": "y"})
    with pytest.raises(InputError, match=r"advisor\.toml"):
        compared(repository, base, head, predictor)


# ------------------------------------------------------------------------------------------------- hostile pull requests

MARKUP = "<img src=x onerror=alert(1)>"


def test_import_time_side_effects_do_not_happen(repository, predictor, tmp_path):
    witness = tmp_path / "ran"
    attack = f"import pathlib; pathlib.Path({str(witness)!r}).write_text('x')\n"
    base = repository.commit({"kernels/matmul.py": KERNEL.format(m=16), "kernels/__init__.py": "", "conftest.py": "", "setup.py": ""})
    literal = f"\nKERNELS = {{'matmul': {{'family': __import__('os').system('touch {witness}')}}}}\n"
    bomb = attack + KERNEL.format(m=128) + literal
    head = repository.commit(
        {
            "kernels/matmul.py": bomb,
            "kernels/__init__.py": attack,
            "conftest.py": attack,
            "setup.py": attack,
            "sitecustomize.py": attack,
            ".gitattributes": "*.py diff=evil filter=evil\n",
        }
    )
    repository.git("config", "filter.evil.smudge", f"touch {witness}")
    repository.git("config", "diff.evil.textconv", f"touch {witness}")
    repository.git("config", "core.fsmonitor", f"touch {witness}")
    found = compared(repository, base, head, predictor)
    surfaces(found)
    assert [subject.title for subject in found.subjects] == ["kernels/matmul.py::matmul"]
    assert not witness.exists()


def test_ten_megabytes_of_source_are_left_out_with_a_reason(repository, predictor):
    base = repository.commit({"big.py": KERNEL.format(m=16)})
    head = repository.commit({"big.py": KERNEL.format(m=16) + "x = 1\n" * 1_700_000})
    found = compared(repository, base, head, predictor)
    assert found.gate.failed and "too large: 10,2" in found.subjects[0].new_issues[0].evidence


@pytest.mark.parametrize("source", ["(" * 5000 + ")" * 5000, "@triton.jit\ndef f(:\n", "\x00 triton jit", "triton jit \udcff"])
def test_source_that_does_not_parse_is_left_out_with_a_reason(repository, predictor, source):
    data = ("import triton # jit\n" + source).encode("utf-8", "surrogateescape")
    base = repository.commit({"odd.py": KERNEL.format(m=16)})
    head = repository.commit({"odd.py": data})
    found = compared(repository, base, head, predictor)
    (subject,) = found.subjects
    assert subject.new_issues[0].rule == "unreadable" and found.gate.failed
    surfaces(found)


def test_markup_in_names_and_values_shows_up_escaped(repository, predictor):
    name = f"E=128,N=768,device_name=NVIDIA_H200{MARKUP}.json"
    folder = f"{MARKUP}`|@all\n"
    base = repository.commit({"README": "x"})
    head = repository.commit({f"{folder}/{name}": table(M64=entry()), f"{folder}/{MARKUP}.py": KERNEL.format(m=16)})
    comment, page, sarif = surfaces(compared(repository, base, head, predictor))
    assert "<img" not in page and MARKUP.replace("<", "&lt;").replace(">", "&gt;") in page
    spans = re.compile(r"(`+)(?!`).*?[^`]\1(?!`)|```.*?```", re.DOTALL)
    outside_code = spans.sub("", comment)
    assert "<img" not in outside_code and "@all" not in outside_code and "<img" in comment
    uris = re.findall(r'"uri": "([^"]*)"', sarif)
    assert uris and not any("<" in uri or "\n" in uri for uri in uris)


def test_links_out_of_the_tree_are_not_followed(repository, predictor, tmp_path):
    secret = tmp_path / "secret.json"
    secret.write_text(table(M64=entry(32)))
    base = repository.commit({TABLE: table(M64=entry()), "matmul.py": KERNEL.format(m=16)})
    links = {"matmul.py": Path("/etc/passwd"), "new.py": Path("../../../../etc/hostname"), "folder": Path("/etc")}
    head = repository.commit({TABLE: secret, **links})
    found = compared(repository, base, head, predictor)
    said = {subject.path: subject.change for subject in found.subjects}
    assert said == {TABLE: "type changed", "matmul.py": "type changed", "new.py": "added"}
    assert all("symbolic link" in subject.notes[0] and not subject.static for subject in found.subjects)
    assert "root:" not in "".join(surfaces(found))


def test_a_file_that_becomes_a_folder_or_a_submodule(repository, predictor):
    base = repository.commit({TABLE: table(M64=entry()), "sub.py": KERNEL.format(m=16)})
    repository.commit({TABLE: None, "sub.py": None})
    head = repository.commit({f"{TABLE}/inner.json": "{}"})
    assert [subject.change for subject in compared(repository, base, head, predictor).subjects] == ["removed", "removed"]
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{base},sub.py")
    repository.git("commit", "--quiet", "-m", "submodule")
    found = compared(repository, base, repository.git("rev-parse", "HEAD"), predictor)
    assert "submodule" in next(subject for subject in found.subjects if subject.path == "sub.py").notes[0]


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"64": 1}', '{"64": {"BLOCK_SIZE_M": "16"}}', '{"999999999999999999999": {}}', "[" * 100_000, "\x00"]
)
def test_broken_tables_are_findings_not_failures(repository, predictor, content):
    base = repository.commit({TABLE: table(M64=entry())})
    head = repository.commit({TABLE: content})
    (subject,) = compared(repository, base, head, predictor).subjects
    assert subject.new_issues and subject.new_issues[0].severity == "error"
    surfaces(compared(repository, base, head, predictor))


def test_hostile_literals_end_in_notes(repository, predictor):
    wide = "[" + "0, " * 1000 + "]"
    spaces = [f"{{'A': {wide}, 'B': {wide}}}", "{1: 2}", "{'BLOCK_SIZE_M': ['x']}", "{'num_warps': [" + "9" * 40 + "]}", "{'A': []}"]
    base = repository.commit({"README": "x"})
    for space in spaces:
        text = "import triton\nimport triton.language as tl\n@triton.jit\ndef k(a):\n    tl.store(a, 0)\n"
        text += "KERNELS = {'k': {'family': 'gemm', 'ops': {'gemm': {}}, 'example': {'M': -1, 'N': 2, 'K': 0}, "
        text += f"'space': {space}}}}}\n"
        head = repository.commit({"k.py": text})
        found = compared(repository, base, head, predictor)
        assert found.subjects and found.subjects[0].notes
        surfaces(found)


@pytest.mark.parametrize("copies", [1, 60, 200])
def test_more_than_fits_a_comment_is_cut_and_said(repository, predictor, copies):
    tokens = (1, 8, 64, 512, 1024, 4096)
    base = repository.commit({TABLE: table(**{f"M{m}": entry() for m in tokens})})
    head = repository.commit({TABLE: table(**{f"M{m}": entry(16, 32, 32, 2) for m in tokens})})
    found = compared(repository, base, head, predictor)
    comment = to_comment(replace(found, subjects=found.subjects * copies))
    assert len(comment) <= 60_000 and comment.startswith(MARKER)
    assert ("left out for length" in comment) == (copies > 1)


# ------------------------------------------------------------------------------------------------------------ the command


@pytest.fixture
def history(repository, monkeypatch):
    repository.commit({TABLE: table(M64=entry()), "README": "1"})
    repository.git("branch", "feature")
    repository.commit({"README": "2"})
    repository.git("checkout", "--quiet", "feature")
    repository.commit({TABLE: table(M64=entry(stages=3))})
    monkeypatch.chdir(repository.folder)
    return repository


def test_revisions_and_merge_base_from_the_command_line(history, capsys):
    assert main(["compare", "main", "HEAD", "--no-compile"]) == 0
    assert "M=64" in capsys.readouterr().out
    assert main(["compare", "--merge-base", "main", "--no-compile", "--format", "md"]) == 0
    assert "merge base with main" in capsys.readouterr().out
    assert main(["compare", "HEAD", "HEAD"]) == 5
    told = capsys.readouterr()
    assert "gate: Nothing was compared" in told.out and "what is not committed is not compared" in told.err
    assert main(["compare", "no-such-thing", "HEAD"]) == 2
    assert main(["compare", "--upload-pack=touch x", "HEAD"]) == 2
    assert main(["compare", "main", "HEAD", "--fail-on", "unheard-of"]) == 2
    assert "one of regressed" in capsys.readouterr().err


def test_two_runs_give_one_comment_wherever_they_write_it(history, capsys, monkeypatch, tmp_path):
    comments = []
    for given in (["-o", "one"], [f"--output={tmp_path}/another"]):
        command = ["compare", "main", "HEAD", "--no-compile", *given]
        monkeypatch.setattr("sys.argv", ["advisor", *command])
        assert main(command) == 0
        comments.append(Path(given[-1].removeprefix("--output="), "comment.md").read_text())
    assert comments[0] == comments[1] and "advisor compare main HEAD --no-compile\n" in comments[0]


@pytest.mark.parametrize(
    ("written", "sides", "label"),
    [
        ("main..feature", ["main", "feature"], "main"),
        ("main..", ["main", "HEAD"], "main"),
        ("main...feature", ["--merge-base", "main", "feature"], "merge base with main"),
        ("main...", ["--merge-base", "main"], "merge base with main"),
    ],
)
def test_a_range_is_read_as_git_diff_does(history, capsys, written, sides, label):
    assert main(["compare", *sides, "--no-compile", "--format", "json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    assert main(["compare", written, "--no-compile", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["base"]["label"] == label
    assert {**found, "command": "", "created_at": ""} == {**expected, "command": "", "created_at": ""}


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("no-such-thing..HEAD", "no-such-thing: neither"),
        ("HEAD...no-such-thing", "no-such-thing: neither"),
        ("../no-such-thing.json", "../no-such-thing.json: neither"),
        ("no-such/../thing", "no-such/../thing: neither"),
    ],
)
def test_what_is_no_range_is_named_as_it_was_written(history, capsys, written, named):
    assert main(["compare", written]) == 2
    assert capsys.readouterr().err.startswith(f"advisor: error: {named}")


def test_the_working_tree_is_left_alone(history):
    def state():
        return history.git("status", "--porcelain"), history.git("rev-parse", "HEAD"), sorted(p.name for p in history.folder.iterdir())

    before = state()
    main(["compare", "main", "HEAD", "--no-compile"])
    assert state() == before


def test_outside_a_repository(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert main(["compare", "main", "HEAD"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_option_is_no_revision(repository):
    repository.commit({"a": "b"})
    assert git.commit(repository.folder, "--help") is None
    assert git.commit(repository.folder, "HEAD") is not None


GROWN = """import torch
import triton
import triton.language as tl

configs = [triton.Config({"BLOCK": 128})] + [triton.Config({"BLOCK": b}) for b in (256, 512)]


@triton.autotune(configs=configs, key=["n"])
@triton.jit
def grown(x, n, BLOCK: tl.constexpr):
    tl.store(x, 0)


if torch.version.hip is None:
    @triton.jit
    def either(x):
        tl.store(x, 1)
else:
    @triton.jit
    def either(x):
        tl.store(x, 2)
"""


def test_what_a_list_has_more_and_every_branch_count_as_changes(repository, predictor):
    base = repository.commit({"k.py": GROWN})
    head = repository.commit({"k.py": GROWN.replace("(256, 512)", "(256, 4096)").replace("tl.store(x, 1)", "tl.store(x, 3)")})
    found = {subject.title: subject for subject in compared(repository, base, head, predictor, gpus=("H200", "MI300X")).subjects}
    assert set(found) == {"k.py::grown", "k.py::either"}
    assert found["k.py::grown"].configurations_added == ("BLOCK=4096 num_warps=4 num_stages=3",)
    assert not any("2 branches" in note for note in found["k.py::either"].notes)  # each GPU has one of them


def test_a_kernel_under_another_name_of_triton_is_compared(repository, predictor):
    text = "import triton as tr\nimport triton.language as tl\n\n\n@tr.jit\ndef k(x):\n    tl.store(x, 1)\n"
    base, head = repository.commit({"k.py": text}), repository.commit({"k.py": text.replace("x, 1", "x, 2")})
    assert [subject.title for subject in compared(repository, base, head, predictor).subjects] == ["k.py::k"]


def test_a_git_that_does_not_end_is_given_up(repository, monkeypatch):
    monkeypatch.setattr(git, "TIMEOUT_S", 0.0)
    with pytest.raises(InputError, match=r"git \S+ was given up; got no end after 0 s; .*limit.*name two files"):
        git.entries(repository.folder, "HEAD")
