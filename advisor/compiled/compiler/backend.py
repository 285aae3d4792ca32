"""From Triton's IR to machine code, and what the tools say of that. Part of the worker: nothing of a kernel's source runs here.

The IR is a stranger's text: it may have been written by anything that ran where it was made. So `check_ir` holds it to Triton's own
operations, and the assembly in it to instructions.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TOOL_TIMEOUT_S = 60
DIALECTS = ("arith", "builtin", "cf", "math", "scf", "tt", "ttg", "ub")
"""MLIR's dialects that IR before layouts is written in."""
FOREIGN = re.compile(r"\b(?:llvm\.(?!intr\.assume\b)|(?:nvvm|rocdl|gpu|spirv|dlti|nvgpu|amdgpu)\.)\w")
"""Attributes of dialects that come later, some of which carry assembly."""
TEXTS = re.compile(r'"(?:[^"\\]|\\.)*"(\s*=)?', re.DOTALL)
FUNCTION = re.compile(r"^ *tt\.func .*?\battributes \{(.*)\} (?:\{|loc\()", re.MULTILINE)
"""The attributes of a function, of which Triton's own have a dialect: others would be LLVM's."""
NAMES = re.compile(r'(?:@|loc\()"(?:[^"\\]|\\.)*?\\(?:[01][0-9A-Fa-f]|7F|22|5C|n|t|")', re.DOTALL)
"""Symbols and places of a source with control characters, quotes or backslashes: assemblers' comments repeat them."""
LIBRARY = re.compile(r"__(?:nv|ocml|ockl|triton|imf|hip)_?\w+")
"""Functions of the libraries that come with Triton."""


class IrRefusedError(Exception):
    """Assembly in IR contains what no kernel may."""


class NoIrError(Exception):
    """A text is no IR that Triton makes of a kernel."""


def make_code(request: Mapping[str, Any], target: Any, text: str, folder: str) -> dict[str, Any]:
    """Compile IR; the answer holds texts, the cubin's analysis and the metadata."""
    import triton
    from triton.runtime import cache

    # Triton's own keys would tell one Triton from another by a hash of all its files, hundreds of megabytes in each process, and its tools
    # by what they print of themselves.
    os.environ["TRITON_CACHE_DIR"] = folder + "/cache"
    cache.triton_key = lambda: folder
    type(triton.compiler.make_backend(target)).hash = lambda self: folder
    path = Path(folder, "kernel.ttir")
    path.write_text(text, encoding="utf-8")
    text = check_ir(str(path), request["kernel"], target)
    path.write_text(text, encoding="utf-8")
    compiled = triton.compile(str(path), target=target, options=dict(request["options"]))
    metadata = {k: plain(v) for k, v in compiled.metadata._asdict().items()}
    texts = {k: v for k, v in compiled.asm.items() if isinstance(v, str) and k in ("ttgir", "ptx", "amdgcn")}
    texts = {k: v.replace(folder + "/", "") for k, v in texts.items()}  # alike where the same comes out of another compilation
    answer: dict[str, Any] = {"asm": {"ttir": text} | texts, "metadata": metadata}
    cubin = compiled.asm.get("cubin")
    if isinstance(cubin, bytes):
        answer["tools"] = disassemble(cubin, folder, request.get("sass", True))
    return answer


def check_ir(path: str, kernel: str, target: Any) -> str:
    """Check that IR is Triton's of a kernel, and that assembly in it is instructions.

    Args:
        path: The file that holds it.
        kernel: Name of the kernel.
        target: What it is compiled for.

    Returns:
        The IR as it was understood: what is not in it was not looked at.

    Raises:
        NoIrError: The IR is not Triton's.
        IrRefusedError: The assembly is more.
    """
    from triton._C.libtriton import ir
    from triton.compiler.compiler import make_backend

    context = ir.context()
    ir.load_dialects(context)
    make_backend(target).load_dialects(context)
    try:
        module = ir.parse_mlir_module(path, context)
    except RuntimeError:
        raise NoIrError("it cannot be parsed") from None
    module.context = context  # which must live as long
    text = str(module)  # as it was understood: without comments, and names without quotes that need none
    for found in TEXTS.finditer(text):
        if found[1]:
            raise NoIrError(f"an attribute in quotes, {found[0][:40]}")
    if "{-#" in text or FOREIGN.search(TEXTS.sub("", text)):
        raise NoIrError("attributes of another dialect")
    for found in FUNCTION.finditer(TEXTS.sub("", text)):
        names = re.findall(r"(?:^|, )([\w.]+)", found[1])
        if others := [name for name in names if name != "noinline" and not name.startswith(("tt.", "ttg."))]:
            raise NoIrError(f"an attribute of a function, {others[0][:40]}")
    if (steering := NAMES.search(text)) is not None:
        raise NoIrError(f"a name with characters that steer an assembler, {steering[0][:40]}")
    if not module.has_function(kernel) or not re.search(rf"tt\.func public @{re.escape(kernel)}\(", text):
        raise NoIrError("the kernel is not in it")
    refused: list[Exception] = []

    def look(operation: Any) -> None:
        name = operation.get_name()
        if name.split(".")[0] not in DIALECTS and name != "llvm.intr.assume":  # `tl.assume`
            refused.append(NoIrError(f"an operation of another dialect, {name}"))
        elif name == "tt.elementwise_inline_asm":
            why = not_instructions(operation.get_str_attr("asm_string") or "", is_ptx=target.backend == "cuda")
            refused.extend([IrRefusedError(why)] if why else [])
        elif name == "tt.extern_elementwise":
            symbol = operation.get_str_attr("symbol") or ""
            if operation.get_str_attr("libname") or operation.get_str_attr("libpath") or not LIBRARY.fullmatch(symbol):
                refused.append(NoIrError(f"a call of {symbol[:40]}, which no library of Triton's has"))

    module.walk(look)
    if refused:
        raise refused[0]
    return text


_WORDS = r"[\w $,:`'()\[\]<>=+&|-]|\.(?=[ \n*]|$)"
COMMENTS = {
    True: re.compile(rf"//(?:{_WORDS}|\*)*(?=\n|$)|/\*(?:{_WORDS}|[\t\n])*\*/", re.ASCII),
    False: re.compile(rf";(?:{_WORDS}|\*)*(?=\n|$)", re.ASCII),
}
"""Of PTX, and of AMD's assembly: words alone. What reads numbers off assembly must not find any in one, and nothing in one begins or ends
another."""
PTX_STATEMENT = re.compile(r"(?:@!?[%$\w]+[ \t\n]+)?([a-z]\w*)(?:\.\w+|::\w+)*(?:[ \t\n][\w \t\n%$,\[\]{}()+\-.|&^~!<>]*)?", re.ASCII)
PTX_INSTRUCTIONS = re.compile(
    r"abs|activemask|add|addc|alloca|and|applypriority|atom|bar|barrier|bfe|bfi|bfind|bmsk|brev|brkpt|bra|clz|clusterlaunchcontrol|cnot|"
    r"copysign|cos|cp|createpolicy|cvt|cvta|discard|div|dp2a|dp4a|elect|ex2|exit|fence|fma|fns|getctarank|griddepcontrol|isspacep|ld|"
    r"ldmatrix|ldu|lea|lg2|lop3|mad|mad24|madc|mapa|match|max|mbarrier|membar|min|mma|mov|movmatrix|mul|mul24|multimem|nanosleep|neg|"
    r"not|or|pmevent|popc|prefetch|prefetchu|prmt|rcp|red|redux|rem|ret|rsqrt|sad|selp|set|setmaxnreg|setp|shf|shfl|shl|shr|sin|slct|"
    r"sqrt|st|stmatrix|sub|subc|szext|tanh|tcgen05|testp|trap|vabsdiff|vadd|vmad|vmax|vmin|vote|vsub|wgmma|xor"
)
"""First words of PTX's instructions (PTX ISA 8.8, chapter 9). No calls: there is nothing to call."""
PTX_DECLARATION = re.compile(
    r"\.reg[ \t]*(?:\.v[248][ \t]+)?\.(?:pred|[bsuf](?:8|16|32|64|128)|f16x2|bf16|bf16x2)[ \t]+[\w%$<>, \t\n]+", re.ASCII
)
AMD_STATEMENT = re.compile(r"(?:v|s|ds|global|flat|buffer|scratch)_\w+(?:[ \t][\w \t$,\[\]:.+\-|()]*)?", re.ASCII)
LABEL = re.compile(r"[A-Za-z_$%][\w$%]*:(?!:)", re.ASCII)


def not_instructions(text: str, *, is_ptx: bool) -> str | None:
    """Why inline assembly is not a list of instructions; None: it is one.

    A directive may read files or never end with some, and so may a macro. What LLVM writes in the place of `$0` is a register; its variants
    (`$(a$|b$)`) and modifiers (`${0:c}`) put texts together that are not seen here.
    """
    commands = COMMENTS[is_ptx].sub(" ", text)
    if found := re.search(r"\$[({|)}]", text) or re.search(r"[\"'`\\#]|[^\t\n -~]|//|/\*|\*/", commands):
        return f"refused: {found[0]!r} in inline assembly, which is to be a list of instructions"
    for line in commands.split(";" if is_ptx else "\n"):
        statement = line.strip(" \t\r\n{}") if is_ptx else line.strip()  # braces around statements are a scope of registers
        statement = LABEL.sub("", statement, count=1).strip()
        if is_ptx:
            instruction = PTX_STATEMENT.fullmatch(statement)
            good = PTX_DECLARATION.fullmatch(statement) is not None or (
                instruction is not None and PTX_INSTRUCTIONS.fullmatch(instruction[1]) is not None
            )
        else:
            good = AMD_STATEMENT.fullmatch(statement) is not None
        if statement and not good:
            return f"refused: {statement[:40]!r} in inline assembly is no instruction on the list, and may read files"
    return None


def plain(value: Any) -> Any:
    """A metadata value as JSON."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return str(value)


def disassemble(cubin: bytes, folder: str, sass: bool) -> dict[str, str]:
    """What cuobjdump says of a cubin: resources, and the instructions."""
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    path = Path(folder, "kernel.cubin")
    path.write_bytes(cubin)
    found = {}
    instructions = ("sass", "nvdisasm", ["-c", "-g", "-ndf"])  # what it would infer of jumps over the branch stack, nobody reads
    wanted = [("resources", "cuobjdump", ["-res-usage"]), *[instructions] * sass]
    for name, tool, options in wanted:
        try:
            done = subprocess.run(
                [str(tools / tool), *options, str(path)], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
            )
            found[name] = done.stdout if done.returncode == 0 else ""
            if done.returncode:
                found[name + "_error"] = done.stderr.strip()[:300]
        except subprocess.TimeoutExpired:
            found[name + "_error"] = f"{tool}: timed out after {TOOL_TIMEOUT_S} s, a limit that no option raises"
        except OSError as error:
            found[name + "_error"] = f"{tool}: {type(error).__name__}"
    return found
