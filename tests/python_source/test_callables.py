"""Functions that pick and make configurations: given to `filter` and `map`, bound by `partial`, passed on to others."""

from __future__ import annotations

import pytest

from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import parse_source

HEAD = "import functools\nimport os\nimport torch\nimport triton\nimport triton.language as tl\nfrom functools import partial\n"
LIST = "every = [triton.Config({'BLOCK': b}, num_warps=w) for b in (64, 128, 256) for w in (4, 8)]\n"
KERNEL = "@triton.autotune(configs={}, key=['n'])\n@triton.jit\ndef k(x, n, BLOCK: tl.constexpr):\n    pass\n"


def found(text: str, configs: str, arch: int | None = None) -> list[tuple[int, int]]:
    source = parse_source(HEAD + LIST + text + KERNEL.format(configs), "k.py")
    autotune = source.on("cuda" if arch else None, arch).kernel("k").autotune
    assert autotune is not None
    if not autotune.configs:
        raise NotLiteralError(autotune.problem)
    return [(each.parameters["BLOCK"], each.num_warps) for each in autotune.configs]


KEEP = "def keep(config):\n    return config.kwargs['BLOCK'] * config.num_warps >= 1024\n"
WITH_LEAST = "    return c.kwargs['BLOCK'] * c.num_warps >= least\n"
KEPT = [(128, 8), (256, 4), (256, 8)]


@pytest.mark.parametrize(
    ("text", "configs"),
    [
        (KEEP, "list(filter(keep, every))"),
        (KEEP, "[c for c in every if keep(c)]"),
        (KEEP, "[c for c, good in zip(every, map(keep, every)) if good]"),
        ("", "list(filter(lambda c: c.kwargs['BLOCK'] * c.num_warps >= 1024, every))"),
        ("keep = lambda c: c.kwargs.get('BLOCK', 0) * c.num_warps >= 1024\n", "list(filter(keep, every))"),
        ("def keep(c, least):\n" + WITH_LEAST, "list(filter(partial(keep, least=1024), every))"),
        ("def keep(least, c):\n" + WITH_LEAST, "list(filter(functools.partial(keep, 1024), every))"),
        (
            f"def chosen(least):\n    def keep(c):\n    {WITH_LEAST}    return list(filter(keep, every))\n",
            "chosen(1024)",
        ),
        (KEEP + "def chosen(test, configs):\n    return [c for c in configs if test(c)]\n", "chosen(keep, every)"),
        (
            "LEAST = 1024\ndef chosen():\n    global LEAST\n    return [c for c in every if keep(c, LEAST)]\n"
            "def keep(c, least):\n" + WITH_LEAST,
            "chosen()",
        ),
    ],
)
def test_what_a_function_keeps_is_what_there_is(text: str, configs: str) -> None:
    assert found(text, configs) == KEPT


@pytest.mark.parametrize(
    "text",
    [
        "def zero(nargs):\n    nargs['x'].zero_()\n"
        "def made(hook=None):\n    return [triton.Config({'BLOCK': 64}, num_warps=8, pre_hook=hook)]\n",
        "def zero(nargs):\n    pass\ndef made(hook):\n    config = triton.Config\n    return [config({'BLOCK': 64}, num_warps=8)]\n",
    ],
)
def test_a_hook_that_is_passed_on_hides_no_list(text: str) -> None:
    assert found(text, "made(zero)") == [(64, 8)]


def test_a_test_that_asks_for_the_target_is_answered_for_it() -> None:
    text = "def keep(c):\n    return not (torch.cuda.get_device_capability()[0] == 9 and c.num_warps == 4)\n"
    assert len(found(text, "list(filter(keep, every))", 90)) == 3
    assert len(found(text, "list(filter(keep, every))", 80)) == 6
    with pytest.raises(NotLiteralError):
        found(text, "list(filter(keep, every))")


def test_a_flag_of_the_environment_in_small_letters_is_read() -> None:
    text = "QUICK = os.environ.get('QUICK', 'NO').lower() in ('1', 'yes')\n"
    assert len(found(text, "every[:1] if QUICK else every")) == 6


@pytest.mark.parametrize(
    ("text", "configs"),
    [
        ("def keep(c):\n    return unknown(c)\n", "list(filter(keep, every))"),
        ("def keep(c):\n    return tl.float32\n", "list(filter(keep, every))"),
        ("", "list(filter(unknown, every))"),
        ("def f(c):\n    pass\n", "[triton.Config({'BLOCK': f})]"),
        ("", "[triton.Config({'BLOCK': lambda: 4})]"),
        ("def keep(c):\n    return keep(c)\n", "list(filter(keep, every))"),
    ],
)
def test_what_is_not_known_is_no_list(text: str, configs: str) -> None:
    with pytest.raises(NotLiteralError):
        found(text, configs)
