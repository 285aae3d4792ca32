"""The type of a tensor's elements, through all that keeps it."""

from __future__ import annotations

import pytest

from advisor.python_source.launch_site import LaunchSite
from advisor.python_source.launch_sites import launches
from advisor.python_source.launch_walk import DEFAULT
from advisor.python_source.literal_values import Symbol
from advisor.python_source.source import parse_source

MADE = "torch.empty(n, dtype=torch.int8)"
HEAD = "import torch\nimport triton\n@triton.jit\ndef k(x):\n    pass\n"


def type_of(text: str, before: str = "") -> str | None:
    lines = ["def run(x, n, kind, wanted):", "    M, N = x.shape", f"    made = {MADE}", *(f"    {line}" for line in before.splitlines())]
    source = parse_source(HEAD + "\n".join([*lines, f"    k[(1,)]({text})\n"]), "k.py")
    ((scopes, call),) = launches(source, "k")
    return LaunchSite(source, source.kernel("k"), scopes, call, None, None).types().get("x")


@pytest.mark.parametrize(
    "text",
    [
        MADE,
        "made",
        f"{MADE}.view(-1, 4)",
        "made.view(-1)",
        "made.view(M)",
        "made.view(n * 2)",
        "made.view((4, n))",
        "made.view(x.shape)",
        "made.view(*x.shape)",
        "made.view(x.size(0))",
        "made.reshape(kind)",
        "made.contiguous()",
        "made.t()",
        "made.T",
        "made.transpose(0, 1)",
        "made.permute(1, 0)",
        "made.flatten()",
        "made.squeeze(0).unsqueeze(-1).detach()",
        "made[0]",
        "made[:, 1:]",
        "made.view(-1, 4)[0]",
        "made if wanted else None",
        "None if wanted else made.t()",
        "torch.empty_like(made)",
        "made.new_zeros(4)",
        "x.new_empty(4, dtype=torch.int8)",
        "(made, x)[0]",
        "made" + ".t()" * 8,
    ],
)
def test_a_type_is_kept(text: str) -> None:
    assert type_of(text) == "int8"


@pytest.mark.parametrize("asserted", ["x.dtype == torch.int8", "n > 1 and x.dtype == torch.int8", "x.dtype == torch.int8, 'weights'"])
def test_a_type_is_what_is_asserted(asserted: str) -> None:
    assert type_of("x", f"assert {asserted}") == type_of("x.t()", f"assert {asserted}") == "int8"


@pytest.mark.parametrize(("kind", "known"), [("int8", "int8"), ("float32", None)])
def test_a_tensor_of_another_type_is_converted_where_it_is_one(kind: str, known: str | None) -> None:
    assert type_of("x", f"if x.dtype != torch.int8:\n    x = x.to(torch.{kind})") == known


@pytest.mark.parametrize("asserted", ["x.dtype != torch.int8", "n > 1 or x.dtype == torch.int8", "x.dtype == kind.dtype"])
def test_a_type_is_not_what_may_be_another(asserted: str) -> None:
    assert type_of("x", f"assert {asserted}") is None


def test_names_are_followed_as_far_as_they_are_assigned_once() -> None:
    assert type_of("c", "a = made.view(-1)\nb = a\nc = b.t()") == "int8"
    assert type_of("b", "a = made.view(-1)\na = x\nb = a") is None
    assert type_of("a", "a = a.view(-1)") is None


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "x.view(-1)",
        "made.view(kind)",
        "made.view(dtype=kind)",
        "made.to(kind)",
        "made.to(kind.device)",
        "x.to(dtype=kind)",
        "made if wanted else x",
        "made + 1",
        "torch.empty_like(made, dtype=kind)",
        "made.shape",
        "helper(x, dtype=torch.int8)",
        "torch.Size(4, dtype=torch.int8)",
    ],
)
def test_a_type_that_is_not_said_is_not_known(text: str) -> None:
    assert type_of(text) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x.float()", "float32"),
        ("made.half().t()", "float16"),
        ("x.bfloat16()", "bfloat16"),
        ("x.to(torch.float32)", "float32"),
        ("made.view(torch.uint8)", "uint8"),
        ("x[..., 8:].view(torch.float32)", "float32"),
        ("x.to(n, dtype=torch.int64)", "int64"),
    ],
)
def test_a_tensor_that_is_converted_has_the_type_that_it_is_converted_to(text: str, kind: str) -> None:
    assert type_of(text) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("torch.rand(n, device='cuda')", "float32"),
        ("torch.zeros((n, 4)).cuda()", "float32"),
        ("torch.randint(0, 9, (n,))", "int64"),
        ("torch.arange(n + 1)", "int64"),
        ("torch.arange(0, n, 0.5)", None),
        ("torch.full((n,), wanted)", None),
        ("torch.empty(n, dtype=kind)", None),
        ("x.new_empty(n)", None),
    ],
)
def test_a_type_that_a_call_of_torch_does_not_name_is_torchs(text: str, kind: str | None) -> None:
    """The same where the function around the launch makes the tensor, and where its caller does."""
    assert type_of(text) == kind
    called = f"def run(x):\n    k[(1,)](x)\ndef main(x, n, kind, wanted):\n    run({text})\n"
    source = parse_source(HEAD + called, "k.py")
    ((scopes, call),) = launches(source, "k")
    assert LaunchSite(source, source.kernel("k"), scopes, call, None, None).types().get("x") == kind


def test_a_type_has_one_name() -> None:
    assert type_of("torch.arange(4, dtype=torch.long)") == "int64"


@pytest.mark.parametrize(
    ("before", "kind"),
    [
        ("kind = torch.float8_e4m3fn", "float8_e4m3fn"),
        ("kind = made.dtype", "int8"),
        ("kind = x.dtype", None),
        ("kind = torch.half if wanted else torch.float16", "float16"),
        ("kind = torch.int8 if wanted else torch.uint8", None),
    ],
)
def test_a_type_may_have_a_name(before: str, kind: str | None) -> None:
    assert type_of("torch.empty_like(x, dtype=kind)", before) == type_of("x.to(kind)", before) == kind


PASSED = """
import torch, triton
import triton.language as tl
KINDS = {torch.bfloat16: tl.bfloat16, torch.float8_e4m3fn: tl.float8e4nv}
@triton.jit
def k(x, most: tl.constexpr, TO: tl.constexpr, FROM: tl.constexpr):
    pass
def run(x, kind: torch.dtype = torch.float8_e4m3fn):
    known = OTHERS[x.dtype]
    limits = torch.finfo(kind)
    k[(1,)](x, limits.max, KINDS[kind], known)
    print(limits)
"""


def test_a_type_that_an_argument_has_by_default_decides_constants() -> None:
    source = parse_source(PASSED, "k.py")
    ((scopes, call),) = launches(source, "k")
    site = LaunchSite(source, source.kernel("k"), scopes, call, None, None)
    constants, _ = site.constants({}, ())
    assert {name: item.value for name, item in constants.items()} == {"most": 448.0, "TO": Symbol("tl.float8e4nv")}
    assert all(item.hangs == {DEFAULT} for item in constants.values())  # another call may name another type
    assert site.of_elements() == {"FROM"}  # whatever the table of another file holds


SAVED = """
import torch, triton
@triton.jit
def k(x, y):
    pass
def forward(x, wanted):
    rstd = torch.empty(4, dtype=torch.float32)
    if wanted:
        y = torch.zeros(4, dtype=torch.int32)
    else:
        y = torch.ones(4, dtype=torch.int32)
    return y, rstd
def backward(rstd, y):
    k[(1,)](rstd, y)
class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y, rstd = forward(x, True)
        ctx.save_for_backward(x, y, rstd)
    @staticmethod
    def backward(ctx, grad):
        x, y, rstd = ctx.saved_tensors
        backward(rstd, y)
"""


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ("", "", {"x": "float32", "y": "int32"}),
        ("        backward(rstd, y)", "        k[(1,)](rstd, y)", {"x": "float32", "y": "int32"}),
        ("torch.ones(4, dtype=torch.int32)", "torch.ones(4)", {"x": "float32"}),
        ("    return y, rstd", "    if wanted:\n        return rstd, y\n    return y, rstd", {}),
        ("save_for_backward(x, y, rstd)", "save_for_backward(*x, y, rstd)", {}),
        ("y, rstd = forward(x, True)", "y, rstd = other(x, True)", {}),
    ],
)
def test_a_type_is_that_of_what_forward_keeps(old: str, new: str, kinds: dict[str, str]) -> None:
    text = SAVED.replace(old, new) if old else SAVED
    source = parse_source(text, "k.py")
    scopes, call = list(launches(source, "k"))[-1]
    assert LaunchSite(source, source.kernel("k"), scopes, call, None, None).types() == kinds
