"""Kernels that would run, read, print or contact something while they are compiled: with all defences, and with the room alone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.compiled.compiler.kernel import Target
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.guesses.inference import Given
from advisor.compiled.launches.launch import KernelLaunch, inspect_launch
from advisor.python_source.source import parse_source
from advisor.system.errors import AdvisorError
from tests.comparison.repository import Repository

from .rooms import SECRET, listening, need_walls, unguard

HEAD = "import triton\nimport triton.language as tl\n\n"
WALK = "0.__globals__[__loader__].get_data.__func__.__globals__[sys].modules"
RUN = "__import__('os').system('echo > {canary}')"
ASM = 'y = tl.inline_asm_elementwise({text!r}, "={register}", [], dtype=tl.int32, is_pure=False, pack=1)\n    tl.store(x, y)'


def of_body(body: str) -> str:
    return f"@triton.jit\ndef k(x, N: tl.constexpr = 16):\n    {body}\n    tl.store(x, 1.0)\n"


def asm(text: str, register: str) -> str:
    return of_body(ASM.format(text=text, register=register))


NVIDIA, AMD = Target(backend="cuda", arch=90), Target(backend="hip", arch="gfx942", warp_size=64)
CT = "triton.backends.amd.compiler.ctypes"
ENDLESS = of_body("tl.store(x, N)").replace("= 16", "= 1e999")
HOSTILE = {
    "a library by a format": of_body(f"tl.static_assert(False, '{{{WALK}[ctypes].cdll[LIBRARY]}}'.format(tl.cdiv))"),
    "the environment by a format": of_body(f"tl.static_assert(False, '{{{WALK}[os].environ}}'.format(tl.cdiv))"),
    "a format_map": of_body(f"tl.static_assert(False, '{{x.{WALK[2:]}[os].environ}}'.format_map({{'x': tl.cdiv}}))"),
    "a format of a constant": "F: tl.constexpr = '{" + WALK + "[os].environ}'\n" + of_body("tl.static_assert(False, F.format(tl.cdiv))"),
    "a format as a function": of_body(f"f = '{{{WALK}[os].environ}}'.format\n    tl.static_assert(False, f(tl.cdiv))"),
    "a method of str": of_body(f"tl.static_assert(False, str.format('{{{WALK}[os].environ}}', tl.cdiv))"),
    "a percent sign": of_body("tl.static_assert(False, '%r' % tl.cdiv)"),
    "an f-string": of_body(f"tl.static_assert(False, f'{{{WALK.replace('0.', 'tl.cdiv.')}}}')"),
    "a specification of an f-string": of_body("tl.static_assert(False, f'{N:{N}}')"),
    "print": of_body(f"tl.static_print('{{{WALK}[os].environ}}'.format(tl.cdiv))"),
    "print to a file": of_body("tl.static_print('x', file=tl.core.builtins.open('CANARY', 'w'))"),
    "a decorator": "import os\ndef d(f):\n    os.system('echo > CANARY')\n    return f\n@d\n" + of_body("pass"),
    "a decorator's argument": f"@triton.autotune(configs=[{RUN}], key=[])\n" + of_body("pass"),
    "a heuristic": f"@triton.heuristics({{'N': lambda a: {RUN}}})\n" + of_body("pass"),
    "a default": f"@triton.jit\ndef k(x, N: tl.constexpr = {RUN}):\n    tl.store(x, N)\n",
    "an annotation": f"@triton.jit\ndef k(x: {RUN}, N: tl.constexpr = 16):\n    tl.store(x, N)\n",
    "an annotation in text": f'@triton.jit\ndef k(x: "{RUN}", N: tl.constexpr = 16):\n    tl.store(x, N)\n',
    "a return annotation": f"@triton.jit\ndef k(x, N: tl.constexpr = 16) -> {RUN}:\n    tl.store(x, N)\n",
    "an annotation in the body": of_body(f"y: {RUN} = 1"),
    "a class body": f"class C:\n    {RUN}\n" + of_body("tl.store(x, C.y)"),
    "a class in a kernel": of_body(f"class C:\n        {RUN}"),
    "a metaclass": f"class M(type):\n    def __new__(*a):\n        {RUN}\nclass C(metaclass=M):\n    y = 1\n" + of_body("tl.store(x, C.y)"),
    "__set_name__": f"class S:\n    def __set_name__(s, o, n):\n        {RUN}\nclass C:\n    y = S()\n" + of_body("tl.store(x, C.y)"),
    "a descriptor": f"class D:\n    def __get__(s, o, t):\n        {RUN}\nclass C:\n    y = D()\n" + of_body("tl.store(x, C.y)"),
    "a module's __getattr__": f"def __getattr__(n):\n    {RUN}\n" + of_body("tl.store(x, MISSING)"),
    "a global": f"Y = {RUN}\n" + of_body("tl.store(x, Y)"),
    "a constexpr": f"Y = tl.constexpr({RUN})\n" + of_body("tl.store(x, Y)"),
    "a constexpr function": f"@triton.constexpr_function\ndef f(n):\n    return {RUN}\n" + of_body("tl.store(x, f(N))"),
    "a constexpr function that formats": f"@triton.constexpr_function\ndef f(n):\n    return '{{{WALK}}}'.format(n)\n"
    + of_body("tl.static_assert(False, f(tl.cdiv))"),
    "a default over several lines": "@triton.constexpr_function\ndef f(n=\"\"\"\n    exec('import ctypes') #\"\"\", m=1): return n\n"
    + of_body("tl.store(x, f(N))"),
    "a getattr of a function's Python": "@triton.constexpr_function\ndef g(o):\n    return o.fn\n@triton.jit\ndef h(o):\n"
    "    return str(o.get_capture_scope())\n" + of_body("tl.static_assert(N < 0, g(h)(h))"),
    "a format as a method of str": "@triton.constexpr_function\ndef f(n):\n    return str.format('{0.fn.__globals__}', n)\n"
    + of_body("tl.static_assert(False, f(tl.cdiv))"),
    "assembly that a variant splits": asm('.$(incbin$|incbin$) "FILE"\nv_mov_b32 $0, 0', "v"),
    "assembly that a variant repeats": asm(".$(rept$|rept$) 1000000\nv_mov_b32 $0, 0\n.$(endr$|endr$)", "v"),
    "assembly with a modifier": asm(".${:comment}incbin 'FILE'\nv_mov_b32 $0, 0", "v"),
    "assembly after an instruction": asm('v_mov_b32 $0, 0\n.incbin "FILE"', "v"),
    "assembly of PTX after an instruction": asm('mov.u32 $0, 0; .file 1 "FILE";', "r"),
    "assembly behind a comment that ends": asm('; a */\n.incbin "FILE"\nv_mov_b32 $0, 0', "v"),
    "assembly in a comment in a comment": asm("/* a /* b */ .file 1 \"FILE\"; */ mov.b32 $0, 0;", "r"),
    "assembly with a number in a comment of words": asm("/* .reqntid 512 */ mov.b32 $0, 0;", "r"),
    "assembly behind a comment of one machine": asm('; /*\n.incbin "FILE"\n; */\nv_mov_b32 $0, 0', "v"),
    "assembly behind a carriage return": asm('// \r.incbin "FILE"\nv_mov_b32 $0, 0', "v"),
    "assembly that a carriage return separates": asm("v_mov_b32 $0, 0\r.rept 1000000000\rv_nop\r.endr", "v"),
    "assembly that says how many registers": asm("/*\n.vgpr_count: 4\n*/\nv_mov_b32 $0, 0", "v"),
    "assembly with a number in a comment": asm("/*\n\t.file\t" + "9" * 5000 + "\n*/ mov.b32 $0, 0;", "r"),
    "assembly of PTX that calls": asm("call ($0), vprintf, (0, 0);", "r"),
    'an environment as a global': "E = triton.knobs.os.environ\n" + of_body("tl.static_assert(False, E)"),
    'an environment that is formatted': "E = tl.constexpr(triton.knobs.os.environ)\n" + of_body("tl.static_assert(False, f'{E}')"),
    'a module of a back end': "S = triton.backends.sys.argv\n" + of_body("tl.static_assert(False, S)"),
    'a library as an element': f"C = ({CT}.cdll,)\n@triton.constexpr_function\ndef f(n):\n"
    "    return str(C[0]['libm.so.6'])\n"
    + of_body("tl.store(x, f(N))"),
    "a print to Python's own": f"F = tl.constexpr({CT}.pythonapi)\n" + of_body("tl.static_print('x', file=F)"),
    'a descriptor that is none': f"C = tl.constexpr(({CT}.cdll,))\n"
    + of_body("tl.store_tensor_descriptor(C[0]['libm.so.6'], 'abc', 'b')"),
    "a float of one's own": "from triton.language.core import builtins\nfloat = builtins.exec\n" + ENDLESS,
    'a float that is imported': "from triton.backends.amd.compiler import subprocess as float\n" + ENDLESS,
    'a property': "D = triton.runtime.driver.default\n" + of_body("tl.store(x, D)"),
    "modules of the language's modules": "D = tl.core.knobs.runtime\n" + of_body("tl.static_assert(False, D)"),
    "a driver that is imported": "from triton.language.target_info import driver as d\nD = d.default\n" + of_body("tl.store(x, D)"),
    "a module of Python's that is imported": "from triton.language.core import inspect\nD = inspect.os\n"
    + of_body("tl.static_assert(False, D)"),
    "a globals of one's own": "from triton.language.target_info import current_target as globals\nX = globals.a\n"
    + of_body("tl.store(x, X)"),
    "a variant in a comment": asm("mov.u32 $0, 0; // $(a$|b$)", "r"),
    "a lambda": of_body(f"y = (lambda: {RUN})()"),
    "a comprehension": of_body(f"y = [{RUN} for i in range(1)]"),
    "an import": of_body("import os\n    os.system('echo > CANARY')"),
    "getattr": of_body("getattr(tl.core, 'builtins').open('CANARY', 'w')"),
    "hasattr": of_body("hasattr(tl.core, 'builtins')"),
    "a context": of_body("with tl.core.builtins.open('CANARY', 'w'):\n        pass"),
    "an iterator": of_body("for i in tl.core.builtins.open('CANARY', 'w'):\n        pass"),
    "Triton's own imports": of_body("tl.core.knobs.runtime.os.system('echo > CANARY')"),
    "a private argument": of_body("tl.load(x, _semantic=N)"),
    "the builder": of_body("x.handle.get_context()"),
    "a function of Triton's that is not its language": of_body("tl.core.builtin(tl.core.builtins.exec)('1')"),
    "a library of others": of_body(
        "y = tl.core.extern_elementwise('lib', 'LIBRARY', [x], {(tl.core.dtype('fp32'),): ('f', tl.core.dtype('fp32'))}, is_pure=True)"
    ),
    "another kernel's Python": "@triton.jit\ndef h(m):\n    m.fn(m)\n" + of_body("h(h)"),
    "a file in PTX": asm('.file 1 "FILE"', "r"),
    "an include in PTX": asm('.include "FILE"', "r"),
    "a second program in PTX": asm("} .extern .func f(); {", "r"),
    "a file in AMD's assembly": asm('.incbin "FILE"\nv_mov_b32 $0, 0', "v"),
    "a file without end": asm('.incbin "/dev/zero"\nv_mov_b32 $0, 0', "v"),
    "an include in AMD's assembly": asm('.include "FILE"\nv_mov_b32 $0, 0', "v"),
    "after a comment": asm('/**/.incbin "FILE"\nv_mov_b32 $0, 0', "v"),
    "after a label": asm('l: .incbin "FILE"\nv_mov_b32 $0, 0', "v"),
    "in a variant": asm('$(.incbin "FILE"$|nop$)\nv_mov_b32 $0, 0', "v"),
    "by a macro": asm('.macro m\n.incbin "FILE"\n.endm\nm\nv_mov_b32 $0, 0', "v"),
    "an endless fill": asm(".fill 1 << 40, 8, 0\nv_mov_b32 $0, 0", "v"),
    "an endless repetition": asm(".rept 1 << 40\nv_mov_b32 $0, 0\n.endr", "v"),
    "a huge power": of_body("y: tl.constexpr = 10 ** (10 ** 10)\n    tl.store(x, y)"),
    "a huge text": of_body("y: tl.constexpr = 'x' * (1 << 40)\n    tl.static_assert(False, y)"),
    "a huge shift": of_body("y: tl.constexpr = 1 << (1 << 40)\n    tl.store(x, y)"),
    "a loop without end": of_body("for i in tl.static_range(1 << 40):\n        tl.store(x, i)"),
    "deep brackets": of_body("y = " + "(" * 150 + "1" + ")" * 150),
    "a deep expression": of_body("y = " + "-" * 5000 + "1"),
    "a deep chain": of_body("y = x" + ".T" * 5000),
    "a kernel that calls itself": "@triton.jit\ndef h(x):\n    h(x)\n" + of_body("h(x)"),
    "a name that steers a terminal": of_body("tl.static_assert(False, '\\x1b]0;owned\\x07\\x1b[2J<script> \\u202e @all')"),
}  # fmt: skip
ENDLESS_WAYS = ("a huge power", "a loop without end")
"""What goes on until it is stopped."""
PATIENCE_S = 10
"""For all others, which end by themselves, on a busy machine too."""

REFUSED = (
    "format",
    "percent",
    "specification",
    "getattr",
    "extern library",
    "assembly",
    "comment",
    "label",
    "variant",
    "macro",
    "PTX",
    "context",
    "several lines",
)
"""What the guard says of itself, and not the compiler."""


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[str, Pool]]:
    """A compile process with all defences, and one with the room alone: each starts with its first request, and again after it was killed.
    It runs nothing of a request itself, and what answers one ends with it."""
    with Pool(1, timeout_s=PATIENCE_S, budget_s=3600) as guarded, Pool(1, timeout_s=PATIENCE_S, budget_s=3600) as free:
        yield {"guard": guarded, "room alone": free}


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A cache for each: what is the same in all tests, the smallest kernel for a target, is compiled once."""
    return {name: str(tmp_path_factory.mktemp("cache")) for name in ("guard", "room alone")}


@pytest.fixture(params=["guard", "room alone"])
def workers(
    request: pytest.FixtureRequest, pools: dict[str, Pool], caches: dict[str, str], free_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Pool:
    """A compile process with all defences, or with all switched off but the room."""
    need_walls()
    monkeypatch.setenv("ADVISOR_CACHE_DIR", caches[request.param])
    if request.param == "room alone":
        unguard(free_folder, monkeypatch)
        monkeypatch.setattr("advisor.python_source.rebuild.check_module", lambda *anything: None)
        monkeypatch.setattr("advisor.python_source.rebuild.check_constexpr_function", lambda *anything: None)
    return pools[request.param]


@pytest.mark.parametrize("way", list(HOSTILE))
def test_a_hostile_kernel_does_nothing(
    way: str, workers: Pool, pools: dict[str, Pool], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, canary = tmp_path / "secret", tmp_path / "canary"
    secret.write_text(SECRET)
    text = HOSTILE[way].replace("{canary}", str(canary)).replace("CANARY", str(canary))
    text = HEAD + text.replace("LIBRARY", str(tmp_path / "e.so")).replace("FILE", str(secret))
    target = AMD if '"=v"' in text else NVIDIA
    monkeypatch.setattr(workers, "timeout_s", 1 if way in ENDLESS_WAYS else PATIENCE_S)
    said = ""
    try:
        launch = KernelLaunch(source=parse_source(text, tmp_path / "k.py"), kernel="k", given=Given(types={"x": "*fp32"}))
        found = inspect_launch(launch, target, workers, sass=False)
        said = found.compiled.ptx + found.compiled.amdgcn + found.compiled.ttir
        assert SECRET.encode().hex() not in said
    except AdvisorError as error:
        said = str(error)
        assert said.isprintable(), said
    assert not canary.exists()
    assert SECRET not in said + "".join(capfd.readouterr())
    if workers is pools["guard"] and any(word in way for word in REFUSED):
        assert any(
            word in said for word in ("refused", "not allowed", "would run Python", "nothing but reckon", "is neither", "is not read")
        ), said


WHOLE = HEAD + of_body("tl.static_assert(False, '{WALK[ctypes].cdll[LIBRARY]} {WALK[os].environ}'.format(tl.cdiv))").replace("WALK", WALK)
CONSTRUCTOR = """#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void run(void) {{ open("{canary}", O_CREAT | O_WRONLY, 0600); puts(getenv("HARMLESS_CANARY")); }}
"""


@pytest.mark.parametrize("command", ["inspect", "advise", "compare"])
def test_the_commands_run_no_library_and_print_no_secret(
    command: str, defence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The hole as it was found: a library that a format string names was loaded, and the environment stood in the comment."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    canary, library = tmp_path / "canary", tmp_path / "e.so"
    (tmp_path / "e.c").write_text(CONSTRUCTOR.format(canary=canary))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "e.c")], check=True)
    text = WHOLE.replace("LIBRARY", str(library))
    repository = Repository(tmp_path / "repository")
    repository.commit({"k.py": text.replace("tl.static_assert", "pass #")})
    repository.commit({"k.py": text})
    monkeypatch.chdir(repository.folder)
    out = tmp_path / "out"
    commands = {
        "inspect": ["inspect", "k.py::k", "--target", "sm_90"],
        "advise": ["advise", "k.py::k", "--gpu", "H100", "--output", str(out)],
        "compare": ["compare", "HEAD^", "HEAD", "--gpu", "H100", "--output", str(out), "--require-sandbox"],
    }
    with listening() as listener:
        code = main(commands[command])
        assert listener.visitors() == 0
    assert code in (0, 1, 2, 4)
    assert not canary.exists()
    printed = "".join(capfd.readouterr()) + "".join(path.read_text() for path in out.rglob("*") if path.is_file())
    assert SECRET not in printed
    if command == "compare":
        assert "sandbox" in (out / "comment.md").read_text()
        assert "Sandbox: kernels are compiled without network" in (out / "comparison.html").read_text()
    if defence == "guard":
        assert "refused" in printed


WORDS = "</details></script><img src=x onerror=alert(1)> @everyone [x](https://evil.example) | `x` ```\\n# Passed\\n\\x1b[2J\\u202e"


def test_words_of_a_kernel_stand_in_a_comment_as_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a kernel says as it fails to compile is anyone's: it makes no heading, link, mention or element of a report."""
    need_walls()
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))
    repository = Repository(tmp_path / "repository")
    kernel = HEAD + '@triton.jit\ndef k(x, N: tl.constexpr = 16):\n    tl.static_assert(N < 0, "MESSAGE")\n    tl.store(x, 1.0)\n'
    repository.commit({"k.py": kernel.replace("N < 0", "N > 0").replace("MESSAGE", WORDS), "advisor.toml": ""})
    repository.commit({"k.py": kernel.replace("MESSAGE", WORDS)})
    monkeypatch.chdir(repository.folder)
    main(["compare", "HEAD^", "HEAD", "--gpu", "H100", "--output", str(tmp_path / "out")])
    comment, page = ((tmp_path / "out" / name).read_text() for name in ("comment.md", "comparison.html"))
    assert "onerror" in comment + page  # it is told
    for text in (comment, page, *capfd.readouterr()):
        assert not {"\x1b", "\u202e"} & set(text)
        assert "<img src=x" not in text or text is not page
    assert "<img" not in comment.replace("\\<img", "")
    assert "\n# Passed" not in comment
    assert "@everyone" not in comment.replace("`", "").replace("@\u200beveryone", "")
