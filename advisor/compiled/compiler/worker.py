"""The process that compiles. Needs triton and the standard library only, so that any interpreter that has triton can run it.

One JSON request per line on stdin, one JSON answer per line on the descriptor that stdout was; what triton prints goes nowhere.
It never runs the author's file: it imports the modules `advisor.python_source.rebuild` wrote, and refuses kernels that reach for
anything outside triton's language.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import importlib.util
import json
import os
import re
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
MOST_ANSWERED_BYTES = 64_000_000


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


def checked(modules: dict[str, str], entry: str, kernel: str) -> types.ModuleType:
    """The module that holds the kernel, imported, once nothing in any of the generated modules leads out of triton's language."""
    guard().watch()
    module = importlib.import_module(entry)
    for name, text in modules.items():
        if not name.endswith("_prelude.py"):
            guard().check_chains(importlib.import_module(name[:-3]), text, kernel if name[:-3] == entry else "")
    return module


def decode(value: Any, module: types.ModuleType) -> Any:
    """A constant of a request: JSON, with types of triton as {"dtype": "fp32"}, tuples as {"tuple": [...]}, and functions of the rebuilt
    module as {"function": name}."""
    if isinstance(value, dict) and "function" in value:
        function = vars(module)[value["function"]]
        if type(function).__name__ not in ("JITFunction", "ConstexprFunction"):
            raise guard().RefusedError(value["function"])
        return function
    if isinstance(value, dict) and "dtype" in value:
        import triton.language as tl

        named = getattr(tl, value["dtype"])
        guard().harmless(named, f"tl.{value['dtype']}")
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
        constants = {tuple(path): decode(value, module) for path, value in request["constexprs"]}
        attributes = {tuple(path): value for path, value in request["attrs"]}
        signature = {name: tuple(kind) if isinstance(kind, list) else kind for name, kind in request["signature"].items()}
        source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attributes)
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
    """What makes pointers of block pointers where Triton no longer has them."""
    return beside(str(Path(__file__).with_name("block_pointers.py")))


def guard() -> types.ModuleType:
    """What holds a kernel to a list of what it may ask for and call."""
    return beside(str(Path(__file__).with_name("guard.py")))


def beside(path: str) -> types.ModuleType:
    """The module of a file of ours: this one may be run by a Python that has no `advisor`."""
    name = f"advisor_{Path(path).stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
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
            found[name + "_error"] = f"{tool}: timed out after {TOOL_TIMEOUT_S} s, a limit that no option raises"
        except OSError as error:
            found[name + "_error"] = f"{tool}: {type(error).__name__}"
    return found


def reason(error: BaseException) -> str:
    """Why it failed, in one line: triton's innermost message, without the source it prints around it."""
    where = ""
    for cause in causes(error):
        # Triton prints "at line:column: source of the function ... ^ message": the message is what follows the caret.
        function = re.search(r"^\s*def (\w+)", str(getattr(cause, "src", "")), re.MULTILINE)
        line = getattr(getattr(cause, "node", None), "lineno", None)
        where = f"line {line} from `def {function[1]}`: " if function and line else where
    first = innermost(error)
    if guard().REFUSED:
        return where + repr(guard().REFUSED[-1])
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


def end_with(parent: int, folder: str) -> None:
    """End this process, what it started (ptxas) and its `folder` as soon as `parent` is gone, however that ended.

    PR_SET_PDEATHSIG would end it with the *thread* that started it, which a pool outlives, and would leave ptxas running.
    """
    starter = os.getppid()  # `parent`, or a script between it and this interpreter

    def watch() -> None:
        while os.getppid() == starter and is_running(parent):
            time.sleep(PARENT_CHECK_S)
        with contextlib.suppress(OSError):
            room().remove_folder(folder)
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
    """Serve requests until stdin ends, or until the process that `sys.argv` names, with the folder it made for this one, is gone.

    Each is answered by a process of its own, in the room of `sys.argv[3]`, with a folder of its own: what a kernel does to the one that
    compiles it, no other meets. `sys.argv[4]` is where triton is imported from, if it is not installed.
    """
    parent, folder = int(sys.argv[1]), sys.argv[2]
    if sys.argv[4]:
        sys.path.append(sys.argv[4])
    end_with(parent, folder)
    answers = os.dup(1)
    quiet = os.open(os.devnull, os.O_RDWR)
    os.dup2(quiet, 1)
    if not os.environ.get("ADVISOR_DEBUG"):
        os.dup2(quiet, 2)
    readable = warm_up()
    adopt_orphans()
    walls = room().Room(readable)
    for count, line in enumerate(sys.stdin):
        own = f"{folder}/{count}"  # a new one for each: what cannot be removed, nobody after it finds
        os.mkdir(own, 0o700)  # noqa: PTH102
        answer = answered_in(walls, own, line)
        try:
            room().remove_folder(own)
        except OSError:
            write_all(answers, answer + b"\n")
            return
        write_all(answers, answer + b"\n")


def room() -> types.ModuleType:
    """The walls that a request is answered within."""
    return beside(sys.argv[3])


def answered_in(walls: Any, folder: str, line: str) -> bytes:
    """The answer to a request, of a process that ends with it and may write its `folder`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            request = json.loads(line)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.environ["HOME"] = os.environ["TMPDIR"] = tempfile.tempdir = folder
            stand = walls.enter(folder, request.get("seconds", TOOL_TIMEOUT_S))
            os.closerange(3, writing)
            os.closerange(writing + 1, 4096)
            answer = {"walls": stand, "reached": room().probe()} if request.get("walls") else answered(request)
            text = json.dumps(answer, default=lambda v: base64.b64encode(v).decode() if isinstance(v, bytes) else str(v))
            write_all(writing, text.encode("utf-8", "surrogateescape"))
        finally:
            os._exit(0)
    os.close(writing)
    data = bytearray()
    while len(data) <= MOST_ANSWERED_BYTES and (piece := os.read(reading, 1 << 20)):
        data += piece
    os.close(reading)
    if len(data) > MOST_ANSWERED_BYTES:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    end_leftovers()
    if len(data) > MOST_ANSWERED_BYTES:
        return json.dumps({"error": f"the compiled code is larger than {MOST_ANSWERED_BYTES:,} bytes", "kind": "failed"}).encode()
    if not data or b"\n" in data:
        return json.dumps({"error": f"the compiler crashed (exit code {code})", "kind": "crash"}).encode()
    return bytes(data)


def answered(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request, failures included."""
    try:
        return handle(request)
    except guard().AbsentError as error:
        from triton import __version__

        return {"error": error.reason(__version__), "kind": error.kind}
    except guard().RefusedError as error:
        return {"error": repr(error), "kind": "refused"}
    except ImportError as error:
        kind = "missing" if (error.name or "").split(".")[0] == "triton" and "triton" not in sys.modules else "failed"
        return {"error": reason(error), "kind": kind}
    except OSError as error:  # the temporary folder's disk is full, say: no word of the kernel, and nothing to remember
        return {"error": f"reading or writing a file failed ({error}); is there room in the temporary folder?", "kind": "crash"}
    except Exception as error:
        kind = "crash" if isinstance(innermost(error), MemoryError) else "refused" if guard().REFUSED else "failed"
        return {"error": reason(error), "kind": kind}
    except BaseException as error:
        return {"error": reason(error), "kind": "failed"}


def warm_up() -> list[str]:
    """Imports what a compilation needs, and makes IR of the smallest kernel, so that the processes that follow find it done.

    Returns:
        The folders that they read.
    """
    try:
        import triton
        import triton.compiler
    except ImportError:  # which each request is told
        return []
    guard().watch()
    block_pointers().provide()
    return [str(Path(triton.__file__).resolve().parent)]


def adopt_orphans() -> None:
    """Makes this process the parent of what processes that it started leave behind."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def end_leftovers() -> None:
    """Ends this worker, with all of its group, where a request left a process running, which nothing of Triton's does."""
    with contextlib.suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                os.killpg(0, signal.SIGKILL)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all of `data`: a pipe takes a part at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    main()
