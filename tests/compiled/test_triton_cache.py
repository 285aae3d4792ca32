"""Entries of Triton's own cache as targets: what is in them, and what is not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.compiled.launch_report import is_compiled_target, targets_from
from advisor.compiled.launches.launch_options import LaunchOptions
from advisor.compiled.launches.triton_cache import cached_kernels, is_cache_target
from advisor.system.errors import NothingMatchedError, UsageError

pytest.importorskip("triton")

KERNELS = """
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, y_ptr, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y_ptr + o, 2 * tl.load(x_ptr + o, mask=o < n), mask=o < n)


@triton.jit
def total(x_ptr, y_ptr, n, B: tl.constexpr):
    found = tl.zeros((B,), tl.float32)
    for i in range(0, n, B):
        found += tl.load(x_ptr + i + tl.arange(0, B))
    tl.store(y_ptr, tl.sum(found, 0))
"""

COMPILE = """
import sys
sys.path.insert(0, sys.argv[1])
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import kernels
for name in ("scale", "total"):
    source = ASTSource(fn=getattr(kernels, name), signature={"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "B": "constexpr"},
                       constexprs={"B": 256}, attrs={(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]})
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 2})
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that Triton itself wrote, for sm_90, without a GPU; the source lies beside it."""
    folder = tmp_path_factory.mktemp("triton")
    (folder / "kernels.py").write_text(KERNELS)
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "cache"), "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-c", COMPILE, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "cache"


def test_entries_are_found(cache: Path) -> None:
    entries = cached_kernels(str(cache))
    assert {entry.name for entry in entries} == {"scale", "total"}
    assert is_cache_target(str(cache)) and is_compiled_target(str(cache))
    one = entries[0]
    assert one.target.name == "sm_90"
    for text in (str(one.folder), str(one.folder / f"{one.name}.json")):
        assert [entry.name for entry in cached_kernels(text)] == [one.name]
    assert [entry.name for entry in cached_kernels(f"{cache}::total")] == ["total"]
    with pytest.raises(NothingMatchedError, match="for nothing"):
        cached_kernels(f"{cache}::nothing")


def test_other_folders_are_no_caches(tmp_path: Path) -> None:
    (tmp_path / "E=8,N=64,device_name=NVIDIA_H100.json").write_text("{}")
    assert not is_cache_target(str(tmp_path)) and not is_cache_target(str(tmp_path / "nothing"))


def test_inspect_shows_resources_lines_and_what_is_not_recorded(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", f"{cache}::total", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kernel"] == "total" and found["target"] == "sm_90"
    assert found["resources"]["registers"] > 0 and found["resources"]["spill_bytes"] == 0
    assert found["resources"]["num_warps"] == 2 and found["options"]["num_warps"] == 2
    assert found["signature"] == {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}
    assert any("argument n" in text for text in found["assumptions"])
    assert any("grid is not given" in text for text in found["assumptions"])
    assert main(["inspect", f"{cache}::total"]) == 0
    shown = capsys.readouterr().out
    assert "found += tl.load(x_ptr" in shown and "records neither grid nor sizes" in shown


def test_what_is_given_is_counted(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["inspect", f"{cache}::scale", "--arg", "n=1000", "--grid", "cdiv(n, 256)", "--gpu", "H200", "--format", "json"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["grid"] == [4, 1, 1]
    assert found["demand"]["load_bytes"] == 4000 == found["demand"]["store_bytes"]
    assert not found["assumptions"]


def test_several_entries_are_a_list(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(cache), "--target", "sm_90", "--format", "json"]) == 0
    assert {each["kernel"] for each in json.loads(capsys.readouterr().out)} == {"scale", "total"}


def test_advise_makes_a_report(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", str(cache), "--gpu", "H200", "--output", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert {launch["kernel"] for launch in result["launches"]} == {"scale", "total"}
    for launch in result["launches"]:
        assert launch["occupancy"]["registers_origin"] == "compiled"
        assert launch["ceiling"] is None and launch["configuration_source"] == "Triton's cache"
        assert launch["source_lines"]
    assert any("records neither grid nor sizes" in text for text in result["verdict"]["unknowns"])
    page = (tmp_path / "report.html").read_text()
    assert "found += tl.load(x_ptr" in page


def test_code_for_another_gpu_is_named(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", str(cache), "--gpu", "A100", "--output", str(tmp_path)]) == 2
    assert "sm_90" in capsys.readouterr().err
    assert main(["inspect", str(cache), "--gpu", "A100"]) == 2


def test_entries_for_other_gpus_are_one_sentence(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "cache"
    shutil.copytree(cache, copy)
    for entry in cached_kernels(str(cache)):
        folder = copy / f"other-{entry.name}"
        shutil.copytree(entry.folder, folder)
        other = {**entry.metadata, "target": {**entry.metadata["target"], "arch": 80}, "hash": "f" * 32}
        (folder / f"{entry.name}.json").write_text(json.dumps(other))
    assert main(["advise", str(copy), "--gpu", "H200", "--output", str(tmp_path / "out")]) == 0
    said = "2 of 4 entries are code for other GPUs than H200 and left out: 2 for sm_80."
    assert said in capsys.readouterr().err
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["warnings"] == [said] and len(result["launches"]) == 2
    assert main(["inspect", str(copy), "--gpu", "H200"]) == 0
    assert "not for sm_90 are left out: 2 for sm_80" in capsys.readouterr().err.strip()


def test_entries_of_one_kernel_are_told_apart(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "cache"
    shutil.copytree(cache, copy)
    entry = next(each for each in cached_kernels(str(cache)) if each.name == "scale")
    for name, stages in (("aaaaaaaa", 3), ("bbbbbbbb", 4), ("cccccccc", 4)):
        folder = copy / name
        shutil.copytree(entry.folder, folder)
        (folder / "scale.json").write_text(json.dumps({**entry.metadata, "num_stages": stages, "hash": name}))
    assert main(["advise", f"{copy}::scale", "--gpu", "H200", "--output", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert printed.count("scale  programs=1") == 1  # one heading, a row for each
    page = (tmp_path / "out" / "report.html").read_text()
    assert main(["advise", f"{copy}::scale", "--gpu", "H200", "--output", str(tmp_path / "out"), "--format", "md"]) == 0
    markdown = capsys.readouterr().out.replace("\\", "")
    for label in ("num_stages=4 bbbbbbbb", "num_stages=4 cccccccc", "num_stages=3 aaaaaaaa"):
        assert label in printed and label in page and label in markdown, label


def test_options_that_are_compiled_in_are_refused(cache: Path) -> None:
    for asked in (LaunchOptions(constexprs={"B": 4}), LaunchOptions(options={"num_warps": 8}), LaunchOptions(arguments={"q": 1})):
        with pytest.raises(UsageError):
            targets_from(str(cache), asked)


def test_damaged_entries_are_left_out(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "cache"
    shutil.copytree(cache, copy)
    for entry in cached_kernels(str(copy)):
        if entry.name == "total":
            (entry.folder / "total.cubin").write_bytes(b"damaged")
        else:
            (entry.folder / "scale.json").write_text("[]")
    assert main(["inspect", str(copy)]) == 2
    assert "Traceback" not in capsys.readouterr().err
    for entry in cached_kernels(str(copy)):
        (entry.folder / f"{entry.name}.ttir").write_text("this is no IR")
    assert main(["advise", str(copy), "--gpu", "H200", "--output", str(tmp_path / "out")]) == 2


def test_only_files_with_the_kernel_are_shown(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The IR names the file its lines come from; a cache from elsewhere must not make us show any other file."""
    copy, secret = tmp_path / "cache", tmp_path / "secret.py"
    shutil.copytree(cache, copy)
    secret.write_text("def total():\n    return 'a secret of this machine'\n" * 20)
    entry = cached_kernels(f"{copy}::total")[0]
    path = entry.folder / "total.ttir"
    path.write_text(path.read_text().replace(str(cache.parent / "kernels.py"), str(secret)))
    assert main(["inspect", f"{copy}::total"]) == 0
    assert "secret of" not in capsys.readouterr().out
