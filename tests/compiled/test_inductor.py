"""Files that TorchInductor generates: the decorators are read, the kernels compiled, nothing imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.compiled.kernel import Target
from advisor.compiled.launch import inspect_launch
from advisor.compiled.launch_report import targets_from
from advisor.compiled.pool import Pool
from advisor.compiled.records import inductor_launches
from advisor.errors import NothingMatchedError

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
    with Pool(1) as pool:
        inspection = inspect_launch(launches[0], Target(backend="cuda", arch=90), pool, sass=False)
    assert inspection.compiled.signature["in_ptr0"] == "*bf16"
    assert inspection.demand.xu_op > 0


def test_files_without_kernels(tmp_path: Path) -> None:
    file = tmp_path / "plain.py"
    file.write_text("x = 1\n")
    with pytest.raises(NothingMatchedError):
        inductor_launches(file)
