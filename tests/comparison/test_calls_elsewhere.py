"""Files that call a function of another one which launches a kernel: `invoke(x, config)`, as serving stacks do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from advisor.comparison.kernels import launchers, reading

from .repository import compared, compared_files

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)

def invoke(x, config, even, activation=None):
    n = x.numel()
    scale[(triton.cdiv(n, config["BLOCK"]),)](x, n, EVEN=even, **config)
    return activation(x) if activation else x

def doubled(x):
    return invoke(x, {"BLOCK": 64}, False)

def shape_of(x):
    return x.shape
"""
TOOLS = "def warps_for(n):\n    return 8 if n > 4096 else 4\n\n\ndef name_of(n):\n    return str(n)\n"
MODEL = """
import torch
IMPORT
from pkg.tools import name_of, warps_for


def chosen(n):
    return {"BLOCK": 1024, "num_warps": warps_for(n)}


class Layer:
    def __init__(self, even=True):
        self.even = even
        self.name = name_of(3)

    def forward(self, x):
        x = x.contiguous()
        return CALL(x, chosen(x.numel()), even=self.even, activation=torch.relu)
"""
SAID = "The kernel is the same; how {file} launches it by invoke changed: {change}."


def files(statement: str = "from pkg.kernels import invoke", call: str = "invoke", **more: str) -> dict[str, str]:
    named = {path.replace("__", "/") + ".py": text for path, text in more.items()}
    model = MODEL.replace("IMPORT", statement).replace("CALL", call)
    return {"pkg/__init__.py": "", "pkg/kernels.py": KERNELS, "pkg/tools.py": TOOLS, "serve/model.py": model, **named}


def edited(base, old, new, path="serve/model.py"):
    assert base[path].count(old) == 1
    return {path: base[path].replace(old, new)}


@pytest.mark.parametrize(
    ("statement", "call", "more"),
    [
        ("from pkg.kernels import invoke", "invoke", {}),
        ("from pkg.kernels import invoke as run", "run", {}),
        ("from pkg import kernels", "kernels.invoke", {}),
        ("import pkg.kernels", "pkg.kernels.invoke", {}),
        ("import pkg.kernels as k", "k.invoke", {}),
        ("from pkg.handed import invoke", "invoke", {"pkg__handed": "from .kernels import invoke\n"}),
        (
            "from pkg.ops import invoke",
            "invoke",
            {
                "pkg__ops": KERNELS.partition("@triton")[0] + "from .jit import scale\n\ndef invoke" + KERNELS.partition("def invoke")[2],
                "pkg__jit": KERNELS.partition("def invoke")[0],
                "pkg__kernels": "",
            },
        ),
    ],
)
def test_what_another_file_passes_to_the_function_is_a_change_of_the_kernel(repository, predictor, statement, call, more):
    base = files(statement, call, **more)
    (subject,) = compared_files(repository, predictor, base, edited(base, '"BLOCK": 1024', '"BLOCK": 512')).subjects
    assert subject.title == f"pkg/{'jit' if 'pkg__jit' in more else 'kernels'}.py::scale"
    assert subject.notes[0] == SAID.format(file="serve/model.py", change="what config=chosen(x.numel()) comes from")


def test_what_a_function_imports_is_followed(repository, predictor):
    base = files("")
    statement = "        from pkg.kernels import invoke\n"
    base["serve/model.py"] = base["serve/model.py"].replace("        x = x.con", f"{statement}        x = x.con")
    (subject,) = compared_files(repository, predictor, base, edited(base, "1024", "512")).subjects
    assert subject.notes[0] == SAID.format(file="serve/model.py", change="what config=chosen(x.numel()) comes from")


@pytest.mark.parametrize(
    ("path", "old", "new", "change"),
    [
        ("serve/model.py", "even=self.even", "even=False", "even=self.even → even=False"),
        ("serve/model.py", "even=True", "even=False", "what even=self.even comes from"),
        ("serve/model.py", "chosen(x.numel())", "chosen(64)", "config=chosen(x.numel()) → config=chosen(64)"),
        ("pkg/tools.py", "4096", "8192", "what config=chosen(x.numel()) comes from"),  # the calling file is the same
    ],
)
def test_all_that_comes_to_the_launch_counts(repository, predictor, path, old, new, change):
    base = files()
    (subject,) = compared_files(repository, predictor, base, edited(base, old, new, path)).subjects
    assert subject.title == "pkg/kernels.py::scale" and subject.notes[0] == SAID.format(file="serve/model.py", change=change)
    assert ("serve/model.py is unchanged; what it imports changed with pkg/tools.py." in subject.notes) is (path == "pkg/tools.py")


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("serve/model.py", "torch.relu", "torch.sigmoid"),
        ("serve/model.py", "x.contiguous()", "x.clone()"),
        ("serve/model.py", "name_of(3)", "name_of(4)"),
        ("pkg/tools.py", "str(n)", "repr(n)"),
        ("pkg/kernels.py", "x.shape", "tuple(x.shape)"),
    ],
)
def test_what_does_not_come_to_the_launch_is_none(repository, predictor, path, old, new):
    base = files()
    assert not compared_files(repository, predictor, base, edited(base, old, new, path)).subjects


def test_a_file_that_calls_it_besides_changes_no_launch(repository, predictor):
    base = files()
    assert not compared_files(repository, predictor, base, {"tests/test_model.py": base["serve/model.py"].replace("1024", "16")}).subjects


def test_several_files_that_changed_with_one_are_told_together(repository, predictor):
    base = files()
    base["serve/other.py"] = base["serve/model.py"]
    (subject,) = compared_files(repository, predictor, base, edited(base, "4096", "8192", "pkg/tools.py")).subjects
    assert "serve/model.py, serve/other.py are unchanged; what they import changed with pkg/tools.py." in subject.notes


def test_the_kernel_and_a_call_are_one_change(repository, predictor):
    base = files()
    head = {**edited(base, "1024", "512"), **edited(base, "* 2", "* 3", "pkg/kernels.py")}
    (subject,) = compared_files(repository, predictor, base, head).subjects
    assert subject.notes[0].startswith("How serve/model.py launches it by invoke changed: ")


def test_what_a_limit_leaves_out_is_said(repository, predictor, monkeypatch):
    monkeypatch.setattr(launchers, "LARGEST_CALLERS", 1)
    base = {**files(), "serve/a.py": "x = 1\n"}
    found = compared_files(repository, predictor, base, {**edited(base, "1024", "512"), "serve/a.py": "x = 2\n"})
    assert not found.subjects and found.warnings == (
        "1 files were not looked through for calls of functions that launch other files' kernels: there are more than 1.",
    )


def test_what_many_files_import_is_read_once_for_all(repository, predictor, monkeypatch):
    written, whole = Counter[str](), Counter[str]()
    write_bytes, calls = Path.write_bytes, reading.Reading.calls

    def counted_write(path, data):
        written["/".join(path.parts[-3:])] += 1
        return write_bytes(path, data)

    def counted_calls(self, entry, names):
        whole[f"{self.folder.name} {entry.path}"] += 1
        return calls(self, entry, names)

    layers = {
        f"serve__layer_{number}": MODEL.replace("IMPORT", "from pkg.kernels import invoke").replace("CALL", "invoke") for number in range(3)
    }
    base = files(**layers)
    head = edited(base, "8 if", "16 if", "pkg/tools.py")
    commits = repository.commit(base), repository.commit(head)
    monkeypatch.setattr(Path, "write_bytes", counted_write)
    monkeypatch.setattr(reading.Reading, "calls", counted_calls)
    subject = compared(repository, *commits, predictor).subjects[0]
    assert subject.notes[:3] == (
        "The kernel is the same; how serve/layer_0.py, serve/layer_1.py, serve/layer_2.py, serve/model.py launch it by invoke changed: "
        "what config=chosen(x.numel()) comes from.",
        "What changed behind that: warps_for.",
        "serve/layer_0.py, serve/layer_1.py, serve/layer_2.py, serve/model.py are unchanged; what they import changed with pkg/tools.py.",
    )
    assert sorted(whole.values()) == [1] * 6 + [2] * 2  # of the first, to name what is behind it
    assert written["base/pkg/tools.py"] == written["head/pkg/tools.py"] == 1
