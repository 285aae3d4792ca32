"""The process that compiles. Needs triton and the standard library only, so that any interpreter that has triton can run it.

One JSON request per line on stdin, one JSON answer per line on the descriptor that stdout was; what triton prints goes nowhere.
It never runs the author's file: it imports the modules `advisor.python_source.rebuild` wrote, and refuses kernels that reach for
anything outside triton's language.
"""

from __future__ import annotations

import ast
import base64
import difflib
import importlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOOL_TIMEOUT_S = 60
PARENT_CHECK_S = 0.5
ALLOWED_TRITON = {"cdiv", "next_power_of_2", "language", "constexpr", "jit"}


class RefusedError(Exception):
    """The kernel names something that is not triton's language."""

    def __repr__(self) -> str:
        return f"refused: {self} is not triton's language, and would run Python while compiling"  # as Triton's own error quotes it


class AbsentError(RefusedError):
    """The kernel names something that a module of triton's language does not have: another version's.

    Attributes:
        kind: "absent" where every compilation comes to the name; "refused" where it may stand in what is left out.
        line: Where the name stands in its file.
        near: A name that the module does have, and that is almost the same; None: there is none.
    """

    def __init__(self, name: str, kind: str, line: int, near: str | None) -> None:
        super().__init__(name)
        self.kind, self.line, self.near = kind, line, near

    def reason(self, version: str) -> str:
        """What is absent from which triton, and what that may come from, in one line."""
        said = f"Triton {version} has no {self}: line {self.line} "
        if self.near is not None:
            said += f"misspells {self.near}, or "
        return said + "is written for another version, whose Python ADVISOR_TRITON_PYTHON can name"


def always_compiled(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """What of a kernel is compiled whatever its constants are: what stands under no condition, and after no return."""
    for statement in function.body:
        nodes = list(ast.walk(statement))
        under = {id(inner) for node in nodes if is_conditional(node) for inner in ast.walk(node)}
        yield from (node for node in nodes if id(node) not in under)
        if any(isinstance(node, ast.Return) for node in nodes):
            return


def is_conditional(node: ast.AST) -> bool:
    """Whether constants may leave out what stands below a node; a `static_range` may be of no rounds."""
    if isinstance(node, ast.For):
        return "static_range" in ast.unparse(node.iter)
    return isinstance(node, (ast.If, ast.IfExp, ast.BoolOp))


def check_chains(module: types.ModuleType, text: str, kernel: str = "") -> None:
    """Resolve every attribute chain that starts at a global; refuse what leads out of triton's language.

    Names that the kernel assigns itself shadow globals; a chain is refused all the same, which is the safe side.
    """
    check_held(module)
    tree = ast.parse(text)
    inside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    always = {id(node) for function in functions if function.name == kernel for node in always_compiled(function)}
    for node in (n for function in functions for statement in function.body for n in ast.walk(statement)):
        if not isinstance(node, (ast.Attribute, ast.Name)) or id(node) in inside:
            continue
        parts: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            parts.insert(0, inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name) or inner.id not in vars(module):
            continue
        value: Any = vars(module)[inner.id]
        allowed(value, inner.id, inner.id)
        for part in parts:
            if isinstance(value, types.ModuleType) and value.__name__ == "triton" and part not in ALLOWED_TRITON:
                raise RefusedError(f"{inner.id}.{'.'.join(parts)}")
            if not hasattr(value, part):
                if isinstance(value, types.ModuleType):  # also in a branch left out: a module may gain names while it compiles
                    kind = "absent" if id(node) in always else "refused"
                    near = difflib.get_close_matches(part, [name for name in dir(value) if name[0] != "_"], n=1, cutoff=0.75)
                    raise AbsentError(".".join((inner.id, *parts)), kind, node.lineno, near[0] if near else None)
                break
            if not isinstance(value, types.ModuleType) and callable(value) and not isinstance(value, type):
                raise RefusedError(f"{inner.id}.{'.'.join(parts)}")  # attributes of functions lead anywhere
            value = getattr(value, part)
            allowed(value, part, f"{inner.id}.{'.'.join(parts)}")
        if isinstance(value, types.ModuleType):  # a module that is passed around could be asked for anything later
            raise RefusedError(".".join((inner.id, *parts)))


def check_held(module: types.ModuleType) -> None:
    """Refuse what globals and defaults hold within them: of a parameter or of an element, no chain tells where its attributes lead."""
    for name, value in vars(module).items():
        if name.startswith("__") or isinstance(value, types.ModuleType):
            continue
        if isinstance(value, (tuple, list, dict)) or type(value).__name__ == "constexpr":
            harmless(value, name)
        function = getattr(value, "fn", value)
        if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
            for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
                harmless(default, f"a default of {name}")


def harmless(value: Any, what: str) -> None:
    """Raise where a value is, or holds, a module or a callable from elsewhere: a kernel that is given it could ask it for anything."""
    if isinstance(value, dict):
        value = (*value, *value.values())
    if type(value).__name__ == "constexpr":
        value = value.value
    if isinstance(value, (tuple, list)):
        for each in value:
            harmless(each, what)
    elif isinstance(value, types.ModuleType):
        raise RefusedError(f"{what}, a module,")
    else:
        allowed(value, getattr(value, "__name__", ""), what)


def allowed(value: Any, name: str, chain: str) -> None:
    """Raise where `value` is a module outside triton.language (`math` and rebuilt ones aside), or a callable from elsewhere."""
    if isinstance(value, types.ModuleType):
        if value.__name__ not in ("triton", "math") and not value.__name__.startswith(("triton.language", "rebuilt_")):
            raise RefusedError(chain)
        return
    if callable(value) and not isinstance(value, type):
        home = str(getattr(value, "__module__", "") or "")
        if type(value).__name__ in ("JITFunction", "InterpretedFunction", "constexpr", "dtype", "ConstexprFunction"):
            return
        if name not in ALLOWED_TRITON and not home.startswith(("triton.language", "rebuilt_")) and home != "math":
            raise RefusedError(chain)
    if isinstance(value, type) and value.__module__.startswith("triton._C.") and hasattr(value, "__members__"):
        return  # an enumeration that triton's language takes over from its C++, such as tl.PropagateNan
    if isinstance(value, type) and not value.__module__.startswith("triton.language") and value.__module__ != "builtins":
        raise RefusedError(chain)


def load(folder: Path, modules: dict[str, str], entry: str, kernel: str) -> types.ModuleType:
    """Write the generated modules to `folder` and import the one that holds the kernel."""
    for name, text in modules.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name in list(sys.modules):
        if name.startswith("rebuilt_"):
            del sys.modules[name]
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        return checked(modules, entry, kernel)
    finally:
        sys.path.remove(str(folder))


def guard_attributes() -> None:
    """Hold what an attribute turns out to be to triton's language wherever a rebuilt kernel asks for one while it is compiled: also of a
    parameter, of an element and of a result, where no chain of names tells beforehand what is asked."""
    from triton.compiler.code_generator import CodeGenerator

    original = CodeGenerator.visit_Attribute
    if getattr(original, "guards", False):
        return

    def visit_Attribute(self: Any, node: ast.Attribute) -> Any:
        value = original(self, node)
        if not str(self.gscope.get("__name__", "rebuilt_")).startswith("rebuilt_"):  # triton's own, or a kernel that was imported
            return value
        try:
            check_attribute(value, node.attr)
        except RefusedError:
            raise RefusedError(ast.unparse(node)) from None
        return value

    visit_Attribute.guards = True  # type: ignore[attr-defined]
    CodeGenerator.visit_Attribute = visit_Attribute


def check_attribute(value: Any, name: str) -> None:
    """Raise where an attribute is a namespace, or a function that is neither triton's nor a method of a plain value.

    A jitted function's own methods and its `fn`, which would be called as Python, are none of those.
    """
    plain = isinstance(value, types.BuiltinMethodType) and isinstance(value.__self__, (bool, int, float, str, tuple, list))
    if plain or type(value).__name__ in ("BoundJITMethod", "BoundConstexprFunction"):
        return
    if isinstance(value, (dict, types.MappingProxyType)):
        raise RefusedError(name)
    if isinstance(value, types.FunctionType) and value.__module__.startswith("rebuilt_"):
        raise RefusedError(name)
    allowed(value, name, name)


def checked(modules: dict[str, str], entry: str, kernel: str) -> types.ModuleType:
    """The module that holds the kernel, imported, once nothing in any of the generated modules leads out of triton's language."""
    guard_attributes()
    module = importlib.import_module(entry)
    for name, text in modules.items():
        if not name.endswith("_prelude.py"):
            check_chains(importlib.import_module(name[:-3]), text, kernel if name[:-3] == entry else "")
    return module


def decode(value: Any, module: types.ModuleType) -> Any:
    """A constant of a request: JSON, with types of triton as {"dtype": "fp32"}, tuples as {"tuple": [...]}, and functions of the rebuilt
    module as {"function": name}."""
    if isinstance(value, dict) and "function" in value:
        function = vars(module)[value["function"]]
        if type(function).__name__ not in ("JITFunction", "ConstexprFunction"):
            raise RefusedError(value["function"])
        return function
    if isinstance(value, dict) and "dtype" in value:
        import triton.language as tl

        named = getattr(tl, value["dtype"])
        harmless(named, f"tl.{value['dtype']}")
        return named
    if isinstance(value, dict) and "tuple" in value:
        return tuple(decode(v, module) for v in value["tuple"])
    if isinstance(value, dict) and "float" in value:
        return float(value["float"])
    return value


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Compile one kernel; the answer holds texts, the cubin's analysis and the metadata, or `error`."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    if "cubin" in request:  # compiled already: Triton's cache
        with tempfile.TemporaryDirectory(prefix="advisor-cubin-") as folder:
            tools = disassemble(base64.b64decode(request["cubin"]), Path(folder), request.get("sass", True))
        return {"tools": tools, "triton": triton.__version__}
    backend, arch, warp_size = request["target"]
    target = GPUTarget(backend, arch, warp_size)
    answer_for(target)
    with tempfile.TemporaryDirectory(prefix="advisor-compile-") as folder:
        cache_in(folder)
        block_pointers().provide()
        module = load(Path(folder), request["modules"], request["entry"], request["kernel"])
        function = vars(module)[request["kernel"]]
        constants = {name: decode(value, module) for name, value in request["constexprs"].items()}
        attributes = {tuple(path): value for path, value in request["attrs"]}
        source = ASTSource(fn=function, signature=request["signature"], constexprs=constants, attrs=attributes)
        if request.get("only") == "ttir":
            text = only_ttir(source, target, request["options"]).replace(folder + "/", "")
            return {"asm": {"ttir": text}, "metadata": rewritten(), "triton": triton.__version__}
        compiled = triton.compile(source, target=target, options=request["options"])
        metadata = {k: plain(v) for k, v in compiled.metadata._asdict().items()} | rewritten()
        texts = {k: v for k, v in compiled.asm.items() if isinstance(v, str) and k in ("ttir", "ttgir", "ptx", "amdgcn")}
        texts = {k: v.replace(folder + "/", "") for k, v in texts.items()}  # alike where the same comes out of another compilation
        answer: dict[str, Any] = {"asm": texts, "metadata": metadata, "triton": triton.__version__}
        cubin = compiled.asm.get("cubin")
        if isinstance(cubin, bytes):
            answer["tools"] = disassemble(cubin, Path(folder), request.get("sass", True))
        return answer


def cache_in(folder: str) -> None:
    """Has Triton keep what it compiles in `folder`, under keys that hold for this folder alone.

    Triton's own keys would tell one Triton from another by a hash of all its files, which reads hundreds of megabytes in each process.
    """
    from triton.runtime import cache

    os.environ["TRITON_CACHE_DIR"] = folder + "/cache"
    cache.triton_key = lambda: folder


def block_pointers() -> types.ModuleType:
    """The module beside this file, which may be run by a Python that has no `advisor`."""
    name = "advisor_block_pointers"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("block_pointers.py"))
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def rewritten() -> dict[str, Any]:
    """What is told, with the metadata of a kernel, of what this Triton did not compile as it is written."""
    return {"rewritten": "block pointers"} if block_pointers().were_made() else {}


def answer_for(target: Any) -> None:
    """Tells Triton, in this process, which GPU it compiles for; none is looked for from here on.

    It is what a kernel is answered that asks while it compiles (`target_info.cuda_capability_geq`): this machine's driver, if it has one,
    would speak of another.
    """
    from triton.runtime.driver import driver

    class Offline:
        get_current_target = staticmethod(lambda: target)
        get_current_device = staticmethod(lambda: 0)
        get_current_stream = staticmethod(lambda device=None: 0)

    driver.set_active(Offline())


def only_ttir(source: Any, target: Any, options: dict[str, Any]) -> str:
    """The IR before anything depends on the target's layouts."""
    import triton
    from triton._C.libtriton import ir
    from triton.compiler.compiler import make_backend

    backend = make_backend(target)
    parsed = backend.parse_options(dict(options))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(target, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context)
    del triton
    metadata: dict[str, Any] = {}
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed, source.language)
    return str(stages["ttir"](module, metadata))


def plain(value: Any) -> Any:
    """A metadata value as JSON."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return str(value)


def disassemble(cubin: bytes, folder: Path, sass: bool) -> dict[str, str]:
    """What cuobjdump says of a cubin: resources, and the instructions."""
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    found = {}
    wanted = [("resources", "cuobjdump", ["-res-usage"])]
    if sass:
        wanted.append(("sass", "nvdisasm", ["-c", "-g", "-ndf"]))  # what it would infer of jumps over the branch stack, nobody reads
    for name, tool, options in wanted:
        try:
            done = subprocess.run(
                [str(tools / tool), *options, str(path)], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
            )
            found[name] = done.stdout if done.returncode == 0 else ""
            if done.returncode:
                found[name + "_error"] = done.stderr.strip()[:300]
        except subprocess.TimeoutExpired:
            found[name + "_error"] = f"{tool}: given up after {TOOL_TIMEOUT_S} s, a limit that no option raises"
        except OSError as error:
            found[name + "_error"] = f"{tool}: {type(error).__name__}"
    return found


def reason(error: BaseException) -> str:
    """Why it failed, in one line: triton's innermost message, without the source it prints around it."""
    where = ""
    for cause in causes(error):
        # Triton prints "at line:column: source of the function ... ^ message": the message is what follows the caret.
        place = re.match(r"at (\d+):\d+:\s*(?:@.*\s+)*def (\w+)", str(cause))
        where = f"line {place.group(1)} from `def {place.group(2)}`: " if place else where
    first = innermost(error)
    text = str(first) or str(error)
    text = text.rsplit("^\n", 1)[-1] if "^\n" in text else text
    text = " ".join(text.split())[:400] or type(first).__name__
    return f"{where}{type(first).__name__}: {text}"  # where first: what is too long is cut at its end


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error, what it was raised from, what that was raised from, and so on."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def innermost(error: BaseException) -> BaseException:
    """The error that all of it began with."""
    return list(causes(error))[-1]


def limit_memory() -> None:
    """A kernel with absurd blocks must not take the machine down."""
    try:
        import resource

        limit = int(os.environ.get("ADVISOR_COMPILE_MEMORY_BYTES", 12 << 30))
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    except (ImportError, ValueError, OSError):
        pass


def end_with(parent: int, folder: str) -> None:
    """End this process, what it started (ptxas) and its `folder` as soon as `parent` is gone, however that ended.

    PR_SET_PDEATHSIG would end it with the *thread* that started it, which a pool outlives, and would leave ptxas running.
    """
    starter = os.getppid()  # `parent`, or a script between it and this interpreter

    def watch() -> None:
        while os.getppid() == starter and is_running(parent):
            time.sleep(PARENT_CHECK_S)
        shutil.rmtree(folder, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)  # the pool started a group for this process

    threading.Thread(target=watch, daemon=True).start()


def is_running(pid: int) -> bool:
    """Whether there is a process of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def main() -> None:
    """Serve requests until stdin ends, or until the process that `sys.argv` names, with the folder it made for this one, is gone."""
    end_with(int(sys.argv[1]), sys.argv[2])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    if not os.environ.get("ADVISOR_DEBUG"):
        os.dup2(quiet, 2)
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    limit_memory()
    for line in sys.stdin:
        try:
            answer = handle(json.loads(line))
        except AbsentError as error:
            from triton import __version__

            answer = {"error": error.reason(__version__), "kind": error.kind}
        except RefusedError as error:
            answer = {"error": repr(error), "kind": "refused"}
        except ImportError as error:
            kind = "missing" if (error.name or "").split(".")[0] == "triton" and "triton" not in sys.modules else "failed"
            answer = {"error": reason(error), "kind": kind}
        except OSError as error:  # the temporary folder's disk is full, say: no word of the kernel, and nothing to remember
            answer = {"error": f"reading or writing a file failed ({error}); is there room in the temporary folder?", "kind": "crash"}
        except Exception as error:
            kind = "crash" if isinstance(innermost(error), MemoryError) else "failed"  # the limit is this process's own, not the kernel's
            answer = {"error": reason(error), "kind": kind}
        except BaseException as error:
            answer = {"error": reason(error), "kind": "failed"}
        answers.write(json.dumps(answer, default=lambda v: base64.b64encode(v).decode() if isinstance(v, bytes) else str(v)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
