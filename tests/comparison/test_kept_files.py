from __future__ import annotations

import pytest

from advisor.comparison.kernels.kernel_source import KeptFiles
from advisor.system.errors import InputError


def test_a_file_is_parsed_once() -> None:
    files = KeptFiles(largest_bytes=100)
    first = files.parsed(b"a = 1\n", "a.py")
    assert files.parsed(b"a = 1\n", "a.py") is first
    assert files.parsed(b"a = 2\n", "a.py").text == "a = 2\n"
    assert files.parsed(b"a = 1\n", "b.py").path.name == "b.py"


def test_what_was_asked_for_longest_ago_goes_first() -> None:
    files = KeptFiles(largest_bytes=13)
    first, second = files.parsed(b"a = 1\n", "a.py"), files.parsed(b"b = 1\n", "b.py")
    assert files.parsed(b"a = 1\n", "a.py") is first
    files.parsed(b"c = 1\n", "c.py")
    assert files.parsed(b"a = 1\n", "a.py") is first
    assert files.parsed(b"b = 1\n", "b.py") is not second


def test_a_file_that_is_larger_than_all_that_is_kept_is_parsed_all_the_same() -> None:
    files = KeptFiles(largest_bytes=3)
    assert files.parsed(b"a = 1\n", "a.py").text == "a = 1\n"
    assert files.parsed(b"b = 1\n", "b.py").text == "b = 1\n"


@pytest.mark.parametrize(("data", "said"), [(b"def f(:\n", "is not Python"), (b"a = '\xff'\n", "not UTF-8")])
def test_what_is_no_python_is_told_each_time(data: bytes, said: str) -> None:
    files = KeptFiles(largest_bytes=100)
    for _ in range(2):
        with pytest.raises(InputError, match=said):
            files.parsed(data, "a.py")
