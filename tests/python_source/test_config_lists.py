"""Lists of configurations and kernels, read in the order of the file: what changes them counts, and what is not known is said."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import SourceFile, parse_source
from advisor.system.errors import InputError, UsageError

HEAD = "import os\nimport torch\nimport triton\nimport triton.language as tl\n"
CONFIGS = "[triton.Config({'BLOCK': b}) for b in (128, 256)]"
KERNEL = "@triton.autotune(configs=configs, key=['n'])\n@triton.jit\ndef k(x, n, BLOCK: tl.constexpr):\n    pass\n"


def blocks(text: str, backend: str | None = None, kernel: str = "k") -> list[int]:
    autotune = parse_source(HEAD + text, "k.py").on(backend).kernel(kernel).autotune
    assert autotune is not None
    if not autotune.configs:
        raise NotLiteralError(autotune.problem)
    return [each.parameters["BLOCK"] for each in autotune.configs]


MORE = "append(triton.Config({'BLOCK': 512}))"


@pytest.mark.parametrize(
    "text",
    [
        f"configs = {CONFIGS}\na = configs\na.{MORE}",
        f"configs = {CONFIGS}\na = configs\nb = a\na = 3\nb += [triton.Config({{'BLOCK': 512}})]",
        f"a = {CONFIGS}\nconfigs = a\na.{MORE}",
        f"a = configs = {CONFIGS}\na.{MORE}",
        f"configs = {CONFIGS}\na = configs\na.pop()",
        f"configs = {CONFIGS}\nif os.listdir():\n    a = configs\n    a.{MORE}",
        f"a = {CONFIGS}\nb = a\nconfigs = a\nb.{MORE}",
    ],
)
def test_what_is_changed_by_a_second_name_is_not_known(text: str) -> None:
    with pytest.raises(NotLiteralError, match="may have a second name"):
        blocks(f"{text}\n{KERNEL}")


def test_a_second_name_within_the_branch_of_the_kernel_changes_nothing_by_itself() -> None:
    inner = "".join(f"    {line}\n" for line in (f"configs = {CONFIGS}\na = configs\n" + KERNEL).splitlines())
    assert blocks(f"if fast():\n{inner}") == [128, 256]


def test_a_number_has_no_second_name() -> None:
    assert parse_source("N = 4\nM = N\nM += 1\nif L:\n    K = N\n    K += 1\n", "k.py").constant("N") == 4


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("configs.pop()", "changed in line 6"),
        ("configs[0] = configs[1]", "changed in line 6"),
        ("configs += [triton.Config({'BLOCK': 512})]", "changed in line 6"),
        ("for b in (512,):\n    configs.append(triton.Config({'BLOCK': b}))", "changed in line 6"),
        ("del configs[1]", "changed in line 6"),
        ("import random\nrandom.shuffle(configs)", "changed in line 7"),
        ("for c in configs:\n    c.num_warps = 8", "changed in line 6"),
        ("if os.listdir():\n    configs = configs[:1]", "line 7 under a condition that is unknown"),
        ("try:\n    import fast\nexcept ImportError:\n    configs = []", "line 9 under a condition"),
    ],
)
def test_a_list_that_is_changed_otherwise_is_not_read(change: str, why: str) -> None:
    with pytest.raises(NotLiteralError, match=why):
        blocks(f"configs = {CONFIGS}\n{change}\n{KERNEL}")


def test_each_kernel_has_the_list_of_its_own_line() -> None:
    text = f"configs = {CONFIGS}\n{KERNEL}configs = [triton.Config({{'BLOCK': 64}})]\n{KERNEL.replace('def k', 'def other')}"
    assert blocks(text) == [128, 256]
    assert blocks(text, kernel="other") == [64]


def test_a_kernel_within_a_function_has_that_functions_list() -> None:
    inner = "".join(f"    {line}\n" for line in (f"configs = {CONFIGS}\n" + KERNEL).splitlines())
    assert blocks(f"def make():\n{inner}    return k\nconfigs = [triton.Config({{'BLOCK': 32}})]\n") == [128, 256]
    with pytest.raises(NotLiteralError, match="configs is an argument of make"):
        blocks(f"configs = []\ndef make(configs):\n{inner.split(chr(10), 1)[1]}    return k\n")


@pytest.mark.parametrize(
    "condition",
    [
        "torch.version.cuda",
        "torch.version.hip is None",
        "is_cuda()",
        "not platform.is_rocm()",
        "IS_NVIDIA",
        "not _is_hip",
        "triton.runtime.driver.active.get_current_target().backend == 'cuda'",
    ],
)
def test_branches_for_a_vendor_are_decided_where_the_target_is_known(condition: str) -> None:
    text = f"\nif {condition}:\n    configs = {CONFIGS}\nelse:\n    configs = [triton.Config({{'BLOCK': 32}})]\n{KERNEL}"
    assert blocks(text, "cuda") == [128, 256]
    assert blocks(text, "hip") == [32]
    with pytest.raises(NotLiteralError, match=r"configs is defined in 2 branches \(lines 7, 9\); which one runs is unknown"):
        blocks(text)


def test_a_version_that_is_compared_is_not_known() -> None:
    text = f"\nif torch.version.cuda < '12.8':\n    configs = {CONFIGS}\nelse:\n    configs = []\n{KERNEL}"
    with pytest.raises(NotLiteralError, match="configs is defined in 2 branches"):
        blocks(text, "cuda")


@pytest.mark.parametrize(
    ("arch", "blackwell", "hopper"),
    [(90, False, True), (100, True, False), (120, True, False), (80, False, False), ("gfx942", False, False)],
)
def test_a_generation_asked_for_by_an_imported_name_is_the_targets(arch: int | str, blackwell: bool, hopper: bool) -> None:
    text = "from fla.utils import IS_NVIDIA_BLACKWELL, IS_NVIDIA_HOPPER\n"
    text += "A = [2] if IS_NVIDIA_BLACKWELL else [2, 4]\nB = IS_NVIDIA_HOPPER\n"
    source = parse_source(HEAD + text, "k.py")
    read = source.on("hip" if isinstance(arch, str) else "cuda", arch)
    assert (read.constant("A") == [2], read.constant("B")) == (blackwell, hopper)
    with pytest.raises(NotLiteralError, match="IS_NVIDIA_BLACKWELL is imported in line"):
        source.on("cuda").constant("A")


@pytest.mark.parametrize(
    ("asked", "answers"),
    [
        ("torch.cuda.get_device_capability()[0] >= 9", (False, False, True, True)),
        ("torch.cuda.get_device_properties(0).major >= 9", (False, False, True, True)),
        ("(9, 0) == (torch.cuda.get_device_properties(0).major, torch.cuda.get_device_properties(0).minor)", (False, False, True, False)),
        ("torch.cuda.is_available() and torch.cuda.get_device_capability(0) == (9, 0)", (False, False, True, False)),
        ("check_shared_mem('ampere')", (True, False, True, False)),
        ("check_shared_mem()", (True, False, True, False)),
        ("not (TESLA or is_tesla())", (True, True, True, True)),
    ],
)
def test_what_is_asked_of_the_gpu_is_answered_for_the_target(asked: str, answers: tuple[bool, ...]) -> None:
    text = "from fla.utils import check_shared_mem, is_tesla\nTESLA = 'Tesla' in torch.cuda.get_device_name(0)\n"
    text += f"A = tl.constexpr('tf32' if {asked} else 'ieee')\nif {asked}:\n    B = 1\nelse:\n    B = 2\n"
    source = parse_source(HEAD + text, "k.py")
    for target, answer in zip((("cuda", 80), ("cuda", 89), ("cuda", 90), ("hip", "gfx942")), answers, strict=True):
        read = source.on(*target)
        assert (read.constant("A").value, read.constant("B")) == (("tf32", 1) if answer else ("ieee", 2))
    with pytest.raises(NotLiteralError):
        source.on("cuda").constant("B")


@pytest.mark.parametrize("imported", [False, True])
def test_a_check_of_shared_memory_that_can_be_followed_counts(imported: bool, tmp_path: Path) -> None:
    own = "def check_shared_mem(kind):\n    return kind == 'small'\n"
    (tmp_path / "memory.py").write_text(own)
    text = f"{'from memory import check_shared_mem' if imported else own}\nA = [check_shared_mem('small'), check_shared_mem('ampere')]\n"
    source = parse_source(HEAD + text, tmp_path / "k.py")
    for target in (("cuda", 90), ("cuda", 75), ("hip", "gfx942"), (None, None)):
        assert source.on(*target).constant("A") == [True, False]


def test_a_check_of_shared_memory_that_cannot_be_followed_is_of_what_gpus_are_described_with(tmp_path: Path) -> None:
    (tmp_path / "memory.py").write_text(
        "def check_shared_mem(kind='none'):\n    try:\n        return most() >= least(kind)\n    except Exception:\n        return False\n"
    )
    text = f"{HEAD}from memory import check_shared_mem\nA = [check_shared_mem('ada'), check_shared_mem('ampere'), check_shared_mem()]\n"
    source = parse_source(text, tmp_path / "k.py")
    for target, answers in {
        ("cuda", 70): [False] * 3,
        ("cuda", 75): [False] * 3,
        ("hip", "gfx950"): [True, False, True],
        ("cuda", 87): [True] * 3,
        ("cuda", 90): [True] * 3,
        ("hip", "gfx90a"): [False] * 3,
    }.items():
        assert source.on(*target).constant("A") == answers
    for target in (("cuda", 62), ("hip", "gfx1100"), ("cuda", None)):
        with pytest.raises(NotLiteralError, match="in line"):
            source.on(*target).constant("A")


def test_a_flag_in_small_letters_is_the_targets_too(tmp_path: Path) -> None:
    (tmp_path / "flags.py").write_text(
        "import torch\nis_nvidia = platform() == 'nvidia'\nis_fast = is_nvidia and torch.cuda.get_device_capability(0)[0] >= 8\n"
    )
    source = parse_source(f"{HEAD}from flags import is_fast\nif is_fast:\n    A = 1\nelse:\n    A = 2\n", tmp_path / "k.py")
    assert [source.on("cuda", arch).constant("A") for arch in (75, 90)] == [2, 1]
    assert source.on("hip", "gfx942").constant("A") == 2


def test_a_try_with_two_lists_is_not_read() -> None:
    with pytest.raises(NotLiteralError, match=r"2 branches \(lines 7, 9\)"):
        blocks(f"try:\n    import fast\n    configs = {CONFIGS}\nexcept ImportError:\n    configs = []\n{KERNEL}")


def test_versions_of_triton_decide() -> None:
    pytest.importorskip("triton")
    text = "from packaging.version import Version\nif Version(triton.__version__) >= Version('2.0.0'):\n    A = 1\nelse:\n    A = 2\n"
    assert parse_source(HEAD + text, "k.py").constant("A") == 1
    assert parse_source(HEAD + text.replace("2.0.0", "99.1"), "k.py").constant("A") == 2
    text = "from packaging import version as v\nA = v.parse(triton.__version__) >= v.parse('2.0.0')\n"
    assert parse_source(HEAD + text, "k.py").constant("A") is True


@pytest.mark.parametrize(
    "asked",
    ["os.environ.get('FULL', '0') == '1'", "bool(int(os.getenv('FULL', '0')))", "os.environ.get('FULL')", "'FULL' in os.environ"],
)
def test_environment_variables_count_as_not_set_and_are_named(asked: str) -> None:
    source = parse_source(f"{HEAD}if {asked}:\n    A = 1\nelse:\n    A = 2\n", "k.py")
    assert source.constant("A") == 2 and source.unset == {"FULL"}


TWICE = (
    "if torch.version.hip is None:\n    @triton.jit\n    def k(x):\n        pass\nelse:\n    @triton.jit\n    def k(x, y):\n        pass\n"
)


def test_a_kernel_of_two_branches_is_the_one_of_the_target() -> None:
    source = parse_source(HEAD + TWICE, "k.py")
    assert len(source.on("cuda").kernel("k").parameters) == 1
    assert len(source.on("hip").kernel("k").parameters) == 2
    with pytest.raises(UsageError, match=r"defined in 2 branches \(lines 7, 11\); which one runs is unknown.*--gpu"):
        source.kernel("k")
    with pytest.raises(NotLiteralError, match="2 branches"):
        source.constant("k")


def test_a_function_of_two_branches_is_the_one_of_the_target() -> None:
    text = f"if is_hip():\n    def get():\n        return []\nelse:\n    def get():\n        return {CONFIGS}\n"
    text += KERNEL.replace("configs=configs", "configs=get()")
    assert blocks(text, "cuda") == [128, 256]
    with pytest.raises(NotLiteralError, match="get is defined in 2 branches"):
        blocks(text)


def test_a_function_sees_the_files_names_and_not_its_callers() -> None:
    text = "BLOCK = 64\nSIZES = [BLOCK, 2 * BLOCK]\ndef make(BLOCK):\n    return [triton.Config({'BLOCK': s}) for s in SIZES]\n"
    assert blocks(text + KERNEL.replace("configs=configs", "configs=make(1024)")) == [64, 128]


def test_names_are_restored_where_a_function_cannot_be_followed() -> None:
    evaluator = parse_source("def f(a):\n    return open(a)\n", "k.py").evaluator({"a": 1})
    with pytest.raises(NotLiteralError):
        evaluator.evaluate(ast.parse("f(2)", mode="eval").body)
    assert evaluator.names == {"a": 1} and evaluator.depth == 0


def test_functions_that_build_lists_are_followed() -> None:
    text = (
        "def get(warps=(4, 8)):\n    assert warps\n"
        "    out: list = []\n    for b in (128, 256):\n        for w in warps:\n            if b * w > 600:\n"
        "                out.append(triton.Config({'BLOCK': b}, num_warps=w))\n"
        "    out.extend([triton.Config({'BLOCK': 32})])\n    return out\n"
    )
    assert blocks(text + KERNEL.replace("configs=configs", "configs=get()")) == [128, 256, 256, 32]
    assert blocks(text + KERNEL.replace("configs=configs", "configs=get(warps=[8])")) == [128, 256, 32]


@pytest.mark.parametrize(
    "body",
    [
        "out = A\n    out.append(1)\n    return A",
        "A.append(1)\n    return A",
        "for i in range(10**9):\n        pass\n    return []",
        "out = []\n    while True:\n        out.append(1)\n    return out",
    ],
)
def test_functions_that_do_more_are_not_followed(body: str) -> None:
    with pytest.raises(NotLiteralError):
        parse_source(f"A = [0]\ndef f():\n    {body}\nB = f()\n", "k.py").constant("B")


def kernels(text: str) -> set[str]:
    source: SourceFile = parse_source(text, "k.py")
    return set(source.functions)


@pytest.mark.parametrize(
    ("head", "decorator", "found"),
    [
        ("import triton as tr", "tr.jit", True),
        ("from triton import jit as tjit", "tjit", True),
        ("from triton import jit", "jit(noinline=True)", True),
        ("from triton.runtime.jit import jit", "jit", True),
        ("from vllm.triton_utils import tl, triton", "triton.jit", True),
        ("import triton\njit = triton.jit", "jit", True),
        ("", "triton.jit", True),
        ("from numba import jit", "jit(nopython=True)", False),
        ("import numba", "numba.jit", False),
        ("import jax as triton", "jax.jit", False),
        ("import torch", "torch.jit.script", False),
        ("from triton.experimental import gluon", "gluon.jit", False),
    ],
)
def test_kernels_are_told_by_what_jit_is_imported_from(head: str, decorator: str, found: bool) -> None:
    assert kernels(f"{head}\n@{decorator}\ndef k(x):\n    pass\n") == ({"k"} if found else set())


def test_files_that_nest_deeply_or_refer_in_circles_are_read() -> None:
    text = f"A = {' + '.join(['1'] * 120)}\nB = 2\n"
    source = parse_source(text + TWICE.replace("torch.version.hip is None", "A"), "k.py")
    assert (source.constant("A"), source.constant("B")) == (120, 2) and "k" not in source.undecided
    with pytest.raises(InputError, match="nested deeper"):
        parse_source(text.replace("A = 1", f"A = {'1 + ' * 900}1"), "k.py").constant("B")
    chain = "".join(f"def f{i}():\n    return f{i + 1}() + f{i + 1}()\n" for i in range(60)) + "C = f0()\nD = E\nE = D\n"
    for name in ("C", "D", "E"):
        with pytest.raises(NotLiteralError):
            parse_source(chain, "k.py").constant(name)


@pytest.mark.parametrize(
    ("loop", "found"),
    [
        ("for b in (16, 32, 64, 128):\n    if b == 32:\n        continue\n    if b > 64:\n        break\n    {add}\n", [16, 64]),
        ("for b in (16, 32):\n    for c in (1, 2):\n        break\n    else:\n        b = 0\n    {add}\n", [16, 32]),
        ("for b in (16, 32):\n    {add}\nelse:\n    {add}\n", [16, 32, 32]),
        ("b = 8\nwhile True:\n    b *= 2\n    if b > 32:\n        break\n    {add}\n", [16, 32]),
    ],
)
def test_loops_are_left_and_go_on(loop: str, found: list[int]) -> None:
    body = textwrap.indent(loop.format(add="out.append(triton.Config({'BLOCK': b}))"), "    ")
    assert blocks("def get():\n    out = []\n" + body + "    return out\n" + KERNEL.replace("configs=configs", "configs=get()")) == found


def test_loops_that_would_take_for_ever_are_given_up() -> None:
    text = "def make():\n    for i in range(1000):\n        for j in range(1000):\n            pass\n    return [1]\nA = make()\n"
    with pytest.raises(NotLiteralError, match="too much to evaluate"):
        parse_source(text, "k.py").constant("A")


def test_loops_within_loops_are_looked_through_once() -> None:
    """Looking for what they change took twice as long with every level."""
    nested = "".join("    " * depth + f"for i{depth} in A:\n" for depth in range(40)) + "    " * 40 + "B = 1\n"
    source = parse_source(nested + "A = [1]\nC = [1]\n", "k.py")
    assert source.constant("C") == [1]
    changing = parse_source("C = [1]\nfor c in C:\n    c.x = 2\nfor c in C:\n    pass\n", "k.py")
    assert [s.lineno for s in changing.module_names.statements("C")] == [1, 2]
