"""Decorators under other names: what tunes a kernel is read, and what is not read is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.compiled.launches.launch_options import LaunchOptions, one_launch
from advisor.python_source.described import heuristic_values
from advisor.python_source.source import SourceFile, parse_source, read_source

HEAD = "import functools\nimport advisor\nimport triton\nimport triton.language as tl\n"
LIST = "[triton.Config({'BLOCK': b}, num_warps=8) for b in (64, 128)]"
KERNEL = "@triton.jit\ndef {0}(x, n, BLOCK: tl.constexpr):\n    tl.store(x + tl.arange(0, BLOCK), n)\n"


def source(before: str, decorator: str) -> SourceFile:
    return parse_source(f"{HEAD}{before}\n{decorator}\n" + KERNEL.format("k"), "k.py")


@pytest.mark.parametrize(
    ("before", "decorator"),
    [
        ("from triton import autotune as tune", f"@tune({LIST}, ['n'])"),
        ("import triton as T", f"@T.autotune(configs={LIST}, key=['n'])"),
        ("from flag_gems import libentry, libtuner", f"@libentry()\n@libtuner(configs={LIST}, key=['n'])"),
        ("", "@advisor.autotune(configs={'BLOCK': [64, 128], 'num_warps': 8}, key=['n'], mode='predict')"),
        ("", f"@staticmethod\n@triton.autotune(configs={LIST}, key=['n'])"),
    ],
)
def test_what_tunes_a_kernel_is_read_under_any_name(before: str, decorator: str) -> None:
    function = source(before, decorator).kernel("k")
    assert function.autotune is not None and function.autotune.problem is None and not function.unread
    assert [(c.parameters, c.num_warps) for c in function.autotune.configs] == [({"BLOCK": 64}, 8), ({"BLOCK": 128}, 8)]
    assert function.autotune.key == ("n",)


def test_a_space_has_all_combinations_in_the_order_of_the_drop_in() -> None:
    from advisor.autotuning.keys import expand

    pytest.importorskip("triton")
    space = "{'BLOCK': [64, 128], 'num_warps': (4, 8), 'num_stages': [2], 'G': range(2)}"
    autotune = source("", f"@advisor.autotune({space}, [])").kernel("k").autotune
    assert autotune is not None
    assert [(c.parameters, c.num_warps, c.num_stages) for c in autotune.configs] == [
        (c.kwargs, c.num_warps, c.num_stages) for c in expand({"BLOCK": [64, 128], "num_warps": (4, 8), "num_stages": [2], "G": range(2)})
    ]


def test_heuristics_under_another_name() -> None:
    found = source("from triton import heuristics as h", "@h({'BLOCK': lambda a: 16 * a['n']})")
    assert heuristic_values(found, found.kernel("k"), {"n": 4}) == ({"BLOCK": 64}, {})


def test_heuristics_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "sizes.py").write_text("def block(args):\n    return 16 * args['n']\n")
    path = tmp_path / "k.py"
    path.write_text(
        "import triton\nfrom sizes import block\n\n@triton.heuristics({'BLOCK': block, 'G': unknown})\n@triton.jit\ndef k(n): pass\n"
    )
    found = read_source(path)
    values, unknown = heuristic_values(found, found.kernel("k"), {"n": 4})
    assert values == {"BLOCK": 64} and unknown.keys() == {"G"}


@pytest.mark.parametrize(
    ("before", "decorator", "said"),
    [
        ("from elsewhere import tuned", "@tuned(8)", "@tuned"),
        ("from elsewhere import tuned", "@tuned", "@tuned"),
        ("if f():\n    t = triton.autotune([], [])\nelse:\n    t = print", "@t", "@t"),
        ("def tuned(a):\n    a = 2 * a\n    return triton.autotune(a)", "@tuned(1)", "@tuned"),
        ("def tuned():\n    return triton.autotune()", "@tuned(1)", "@tuned"),
        ("tuned = tuned", "@tuned(1)", "@tuned"),
        (f"tuned = triton.autotune(configs={LIST}, key=['n'])", "@tuned", "@tuned"),
    ],
)
def test_a_decorator_that_is_not_read_is_said(before: str, decorator: str, said: str) -> None:
    found = source(before, decorator)
    assert found.kernel("k").autotune is None
    (note,) = one_launch(found, "k", LaunchOptions()).notes
    assert note == f"What {said} does to a launch of k is not read: it may set the configuration."


def test_decorators_that_grow_or_go_round_are_not_followed_for_ever() -> None:
    ten = ", ".join(["c"] * 10)
    grown = "".join(f"def grow{i}(c):\n    return grow{i + 1}([{ten}])\n" for i in range(8)) + f"def grow8(c):\n    return [{ten}]\n"
    assert source(grown, f"@grow0({LIST})").kernel("k").unread
    assert source("a = b\nb = a", "@a").kernel("k").name == "k"


ANNOTATED = """
@triton.jit
def k(x, a, b: tl.int64, c: int, d: "i32", e: tl.int32, f: tl.float32, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), a + b + c + d + e)
"""


def test_of_a_one_whose_type_is_annotated_triton_makes_no_constant(tmp_path: Path) -> None:
    """As its own runtime has it, which is asked what it tells the compiler of an argument that is 1."""
    pytest.importorskip("triton")
    from importlib import util

    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend
    from triton.runtime.jit import create_function_from_signature

    path = tmp_path / "annotated.py"
    path.write_text(f"import triton\nimport triton.language as tl\n{ANNOTATED}")
    described = util.spec_from_file_location("annotated", path)
    module = util.module_from_spec(described)
    described.loader.exec_module(module)
    specialised = create_function_from_signature(module.k.signature, module.k.params, make_backend(GPUTarget("cuda", 90, 32)))
    kinds = specialised(*[1] * 7, BLOCK=64)[1]
    by_triton = {name for name, (kind, *_) in zip("xabcde", kinds, strict=False) if kind != "constexpr"} - {"x"}
    assert read_source(path).kernel("k").unfolded & set("abcde") == by_triton == set("bcde")
