"""Files that TorchInductor generates: the decorators are read, the kernels compiled, nothing imported."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from advisor.compiled.compiler.kernel import Target
from advisor.compiled.guesses.inference import guesses
from advisor.compiled.launch_report import targets_from
from advisor.compiled.launches.inductor import inductor_launches
from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.launch_options import LaunchOptions
from advisor.python_source import imports
from advisor.python_source.kernel_forms import RebuildError
from advisor.python_source.rebuild import rebuild
from advisor.system.errors import NothingMatchedError

from .shared_pool import POOL

KERNEL = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties

@triton_heuristics.pointwise(
    size_hints={'x': 4096},
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*bf16', 'out_ptr0': '*bf16', 'xnumel': 'i32', 'XBLOCK': 'constexpr'},
                 'device': DeviceProperties(type='cuda', index=0, cc=90), 'constants': {}, 'configs': [{(0,): [['tt.divisibility', 16]]}]},
    inductor_meta={'kernel_name': 'triton_poi_fused_silu_0', 'mutated_arg_names': []},
    min_elem_per_thread=0
)
@triton.jit
def triton_poi_fused_silu_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + (xindex), xmask).to(tl.float32)
    tmp1 = tl_math.exp(tmp0) + libdevice.rsqrt(tmp0)
    tl.store(out_ptr0 + (xindex), tmp1, xmask)
"""


@pytest.mark.parametrize("embedded", [False, True])
def test_generated_kernels(embedded: bool, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    file = tmp_path / "generated.py"
    quoted = KERNEL.replace("'", '"')
    file.write_text(f"k = async_compile.triton('k', {quoted!r}, device_str='cuda')\n" if embedded else KERNEL)
    launches = inductor_launches(file)
    assert [launch.kernel for launch in launches] == ["triton_poi_fused_silu_0"]
    assert launches[0].given.scalars == {"xnumel": 4096}
    assert targets_from(str(file))[0].id == "triton_poi_fused_silu_0"
    inspection = inspect_launch(launches[0], Target(backend="cuda", arch=90), POOL, sass=False)
    assert inspection.compiled.signature["in_ptr0"] == "*bf16"
    assert inspection.demand.xu_op > 0


def test_files_without_kernels(tmp_path: Path) -> None:
    file = tmp_path / "plain.py"
    file.write_text("x = 1\n")
    with pytest.raises(NothingMatchedError):
        inductor_launches(file)


GENERATED = """import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.hints import ReductionHint

@triton_heuristics.{kind}(
    size_hints={hints},{extra}
    triton_meta={{'signature': {signature}, 'constants': {{}}}},
    inductor_meta={{'grid_type': '{grid}'}},
)
@triton.jit
def generated({arguments}):
{body}
"""
ROWS = "{'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'r0_numel': 'i32'}"
LOOPED = """    xnumel = 3000
    r0_numel = 5000
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    total = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for offset in tl.range(0, r0_numel, R0_BLOCK):
        index = offset + tl.arange(0, R0_BLOCK)[None, :]
        total += tl.load(in_ptr0 + xindex * 5000 + index, (xindex < xnumel) & (index < r0_numel), other=0.0)
    tl.store(out_ptr0 + xindex, tl.sum(total, 1)[:, None], xindex < xnumel)"""
POINTWISE = """    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    mask = xindex < xnumel
    tl.store(out_ptr0 + xindex, triton_helpers.doubled(tl.load(in_ptr0 + xindex, mask)), mask)"""
HELPERS = """import triton
import triton.language as tl


@triton.jit
def doubled(x):
    return 2 * x
"""


def looped(folder: Path) -> Path:
    file = folder / "looped.py"
    file.write_text(
        GENERATED.format(
            kind="reduction",
            hints="{'x': 4096, 'r0_': 8192}",
            extra="\n    reduction_hint=ReductionHint.INNER,",
            signature=ROWS,
            grid="Grid1D",
            arguments="in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr",
            body=LOOPED,
        )
    )
    return file


def pointwise(folder: Path, hints: str = "{'x': 131072}") -> Path:
    file = folder / "pointwise.py"
    file.write_text(
        GENERATED.format(
            kind="pointwise",
            hints=hints,
            extra="",
            signature="{'in_ptr0': '*bf16', 'out_ptr0': '*bf16', 'xnumel': 'i32'}",
            grid="Grid1D",
            arguments="in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr",
            body=POINTWISE,
        )
    )
    return file


def test_the_file_says_sizes_and_grid(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    launch = inductor_launches(looped(tmp_path))[0]
    assert launch.given.scalars == {"xnumel": 3000, "r0_numel": 5000}  # of the body: the hints are rounded up
    assert launch.grid == (3000,)  # one row at a time, as rows are long
    assert launch.given.constexprs == {"XBLOCK": 1, "R0_BLOCK": 2048}
    assert any("heuristics of TorchInductor" in text for text in launch.assumed)
    demand = inspect_launch(launch, Target(backend="cuda", arch=90), POOL, sass=False).demand
    assert demand.load_bytes == pytest.approx(3000 * 5000 * 4, rel=0.01)


@pytest.mark.parametrize("hints", ["{'x': 131072}", "[131072]"])
def test_hints_stand_for_sizes_that_vary(hints: str, tmp_path: Path) -> None:
    launch = inductor_launches(pointwise(tmp_path, hints))[0]
    assert (launch.grid, launch.given.constexprs) == ((128,), {"XBLOCK": 1024})
    assert any(text.startswith("xnumel=131072, the hint") for text in launch.assumed)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("triton_meta", "None"),
        ("triton_meta", "cfg.META"),
        ("triton_meta", "5"),
        ("triton_meta", "{'signature': 5, 'constants': 5}"),
        ("inductor_meta", "cfg.META"),
        ("inductor_meta", "None"),
        ("inductor_meta", "{'grid_type': ['Grid1D']}"),
        ("size_hints", "5"),
        ("size_hints", "cfg.HINTS"),
        ("size_hints", "None"),
    ],
)
def test_an_argument_of_another_kind_says_nothing(argument: str, value: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    file = looped(tmp_path)
    text = re.sub(rf"{argument}=.*,\n", f"{argument}={value},\n", file.read_text())
    assert f"{argument}={value},\n" in text
    file.write_text(text)
    launch = inductor_launches(file)[0]
    assert launch.given.scalars == {"xnumel": 3000, "r0_numel": 5000}
    assert launch.grid == (None if "grid_type" in value else (3000,))
    function = launch.source.kernel(launch.kernel)
    assert next(guesses(launch.source, function, launch.given)).signature["in_ptr0"].startswith("*")


def test_what_is_given_counts(tmp_path: Path) -> None:
    given = LaunchOptions(constexprs={"XBLOCK": 256}, arguments={"xnumel": 1000}, options={"num_warps": 2})
    launch = targets_from(f"{pointwise(tmp_path)}::generated", given)[0].launch
    assert launch.grid == (4,)
    assert launch.given.options["num_warps"] == 2
    assert not launch.assumed


def test_one_kernel_of_those_held_as_strings(tmp_path: Path) -> None:
    file = tmp_path / "output_code.py"
    text = looped(tmp_path).read_text()
    file.write_text(f"first = 1\nkernel = async_compile.triton('generated', '''\n{text}''', device_str='cuda')\n")
    launch = targets_from(f"{file}::generated")[0].launch
    assert launch.grid == (3000,)
    line = launch.source.kernel("generated").line
    assert file.read_text().split("\n")[line - 1].startswith("def generated(")


def test_helpers_are_read_from_the_installed_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = tmp_path / "torch" / "_inductor" / "runtime"
    runtime.mkdir(parents=True)
    (runtime / "triton_helpers.py").write_text(HELPERS)
    generated = tmp_path / "generated"
    generated.mkdir()
    launch = inductor_launches(pointwise(generated))[0]
    monkeypatch.setattr(imports, "MOST_ABOVE", 0)  # which is not near the file
    found = SimpleNamespace(submodule_search_locations=[str(tmp_path / "torch")])
    monkeypatch.setattr(imports.util, "find_spec", lambda name: found if name == "torch" else None)
    assert "def doubled(x):" in "".join(rebuild(launch.source, launch.kernel).modules.values())
    monkeypatch.setattr(imports.util, "find_spec", lambda name: None)
    with pytest.raises(RebuildError, match="install the torch that generated the kernel"):
        rebuild(launch.source, launch.kernel)
