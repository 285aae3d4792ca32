"""A kernel whose traffic depends on an index tensor: the example of reports/docs/launch-file.md."""

import triton
import triton.language as tl


@triton.jit
def gather_rows(x_ptr, index_ptr, y_ptr, stride_x, D: tl.constexpr):
    """y[row] = x[index[row]]."""
    row = tl.program_id(0)
    source = tl.load(index_ptr + row)
    d = tl.arange(0, D)
    tl.store(y_ptr + row * D + d, tl.load(x_ptr + source * stride_x + d))
