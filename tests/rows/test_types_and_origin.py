"""Types of weights and outputs, and blocks of scales, in the cells of a row."""

from __future__ import annotations

import pytest

from advisor.rows.types_and_origin import StoredTypes, read_stored_types
from advisor.system.errors import InputError


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        ({}, StoredTypes()),
        ({"weight_dtype": " ", "output_dtype": "", "block_shape": ""}, StoredTypes()),
        ({"weight_dtype": "INT4", "output_dtype": "torch.float32"}, StoredTypes(weight_dtype="int4", output_dtype="fp32")),
        ({"weight_dtype": "float8_e4m3fn"}, StoredTypes(weight_dtype="fp8")),
        *(({"block_shape": text}, StoredTypes(block_shape=(64, 128))) for text in ("64 128", "[64, 128]", "64x128", "(64,128)")),
    ],
)
def test_cells_are_read(cells, found):
    assert read_stored_types(cells, "rows.csv: row 1") == found


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("weight_dtype", "int9"),
        ("output_dtype", "bf17"),
        ("block_shape", "128"),
        ("block_shape", "0 128"),
        ("block_shape", "1 2 3"),
        ("block_shape", "-8 8"),
        ("block_shape", "99999 8"),
        ("block_shape", "x"),
        ("block_shape", "128 128.5"),
    ],
)
def test_what_is_none_is_named(column, cell):
    with pytest.raises(InputError) as caught:
        read_stored_types({column: cell}, "rows.csv: row 7")
    assert f"rows.csv: row 7: {column}" in str(caught.value) and caught.value.got == cell and caught.value.limit and caught.value.remedy
