"""Files of kernels are parsed once, as long as they are asked for."""

from __future__ import annotations

import pytest

from advisor.comparison.kernels.importers import parse
from advisor.system.errors import InputError


def test_a_file_is_parsed_once() -> None:
    data = b"import triton\n"
    assert parse(data, "a.py") is parse(bytes(bytearray(data)), "a.py")
    assert parse(data, "a.py") is not parse(data, "b.py") and parse(data, "a.py") is not parse(data + b"# more\n", "a.py")


@pytest.mark.parametrize(("data", "said"), [(b"def f(:\n", "is not Python"), (b"a = '\xff'\n", "not UTF-8")])
def test_what_is_no_python_is_told_each_time(data: bytes, said: str) -> None:
    for _ in range(2):
        with pytest.raises(InputError, match=said):
            parse(data, "a.py")
