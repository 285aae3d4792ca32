"""Limits of number types from a table: what torch says, read without it."""

from __future__ import annotations

import math

import pytest

from advisor.python_source import number_limits
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import parse_source

HEAD = "import math\nimport numpy as np\nimport torch\nimport torch as th\nfrom math import inf, log2\nfrom torch import float16\n"


def test_the_table_says_what_torch_says() -> None:
    torch = pytest.importorskip("torch")
    for asked in ("finfo", "iinfo"):
        known = {"finfo": number_limits._FLOATS, "iinfo": number_limits._INTEGERS}[asked]
        for name in (name for name in known if hasattr(torch, name)):
            limits = number_limits.limits(f"torch.{asked}", name)
            said = getattr(torch, asked)(getattr(torch, name))
            assert limits is not None and {key: getattr(said, key) for key in limits.values} == limits.values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("torch.finfo(torch.float32).max", 3.4028234663852886e38),
        ("-th.finfo(th.half).max", -65504.0),
        ("th.finfo(float16).tiny", 2.0**-14),
        ("torch.finfo(torch.bfloat16).eps", 0.0078125),
        ("torch.iinfo(torch.int).min", -(2**31)),
        ("torch.iinfo(torch.uint8).max", 255),
        ("np.iinfo(np.int64).max", 2**63 - 1),
        ("np.finfo(np.float32).smallest_normal", 2.0**-126),
        ("torch.finfo(TYPE).bits", 8),
        ("-inf", -math.inf),
        ("np.inf", math.inf),
        ("torch.pi", math.pi),
        ("math.tau", math.tau),
        ("log2(8)", 3.0),
        ("float('-inf')", -math.inf),
    ],
)
def test_limits_and_constants_are_worked_out(text: str, value: float) -> None:
    source = parse_source(f"{HEAD}TYPE = torch.float8_e4m3fn if torch.version.hip is None else torch.float8_e4m3fnuz\nA = {text}\n", "k.py")
    assert source.on("cuda").constant("A") == value


@pytest.mark.parametrize(
    "text",
    [
        "torch.finfo(torch.int32).max",
        "torch.iinfo(torch.float32).max",
        "torch.finfo(TYPE).max",
        "torch.finfo(torch.float32).name",
        "torch.float32",
        "torch.finfo(os.system('true')).max",
        "mine.finfo(torch.float32).max",
    ],
)
def test_what_is_not_in_the_table_is_not_read(text: str) -> None:
    with pytest.raises(NotLiteralError):
        parse_source(f"{HEAD}import os\nimport mine\nTYPE = os.name\nA = {text}\n", "k.py").constant("A")


def test_a_name_that_may_be_another_module_is_not_taken_for_torch() -> None:
    text = "try:\n    import torch\nexcept ImportError:\n    torch = {}\nA = torch.finfo(torch.float32).bits\n"
    assert parse_source(text.format("None"), "k.py").constant("A") == 32
    with pytest.raises(NotLiteralError):
        parse_source(text.format("Shim()"), "k.py").constant("A")
