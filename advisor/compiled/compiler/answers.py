"""What a compile worker answered, checked: it may have been written by the kernel that was to be compiled.

The worker's own words say which process a text is from, how it ended and what its walls lacked. The text itself is data of an enemy: it is
held to a form and to ranges, and what breaks them is said to be what it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from advisor.system.errors import printable, shorten

LONGEST_ERROR = 600
LONGEST_QUOTED = 390
"""So that an error (`CompileError.longest_got`) shows where the quotation ends."""
INTERFERED = "the kernel's code interfered with its compiler: what came back is no answer of the compiler's"
KINDS = {"reader": ("failed", "refused", "absent", "unsure", "crash"), "compiler": ("failed", "refused", "interfered", "crash")}
"""What a process may say of a failure: it saw none of the others."""
RANGES = {"num_warps": (1, 64), "num_ctas": (1, 64), "num_stages": (0, 1_000), "shared": (0, 1 << 30)}
"""Least and most of what metadata say."""
ASM = ("ttir", "ttgir", "ptx", "amdgcn")
TOOLS = ("resources", "sass", "resources_error", "sass_error")


def read_answer(request: Mapping[str, Any], head: Mapping[str, Any], text: bytes) -> dict[str, Any]:
    """The answer to a request.

    Args:
        request: What was asked.
        head: The worker's own words: `from`, `lacks` (wall -> what it lacks), `code`, `triton`, `rewritten`.
        text: What the last process wrote that worked on it.

    Returns:
        Of a request for walls, `{"walls": {wall: what it lacks}}`; of another `{"asm", "tools", "metadata", "triton", "walled"}`, as far
        as they were asked for, or `{"error", "kind"}`. `walled` says whether all walls stood. The kinds: `failed` (Triton refuses it),
        `refused` (it would run Python), `absent` (this Triton lacks what it names), `unsure` (the
        same, of what may be left out), `interfered`, `crash`, `missing` (no triton), `walls`
        (it was not looked at, for a wall does not stand).
    """
    lacks = {str(wall): str(why) for wall, why in head["lacks"].items() if why}
    if head["from"] == "walls":
        return {"walls": {wall: str(why) for wall, why in head["lacks"].items()}}
    if head["from"] == "missing":
        return _failed("missing", "triton cannot be imported by the Python that compiles")
    if lacks and request.get("sealed"):
        return _failed("walls", "; ".join(f"{wall}: {why}" for wall, why in lacks.items()))
    if head.get("over"):
        return _failed("crash", f"a limit ended the compilation: {head['over']}")
    if head["code"] != 0:
        return _failed("crash", f"the compiler crashed (exit code {head['code']})")
    answer = _of_reader(text) if head["from"] == "reader" else _of_compiler(text, request)
    if answer is None:
        return _failed("interfered", INTERFERED) if head["from"] == "reader" else _failed("crash", "the compiler's answer cannot be read")
    if head.get("rewritten") and "metadata" in answer:
        answer["metadata"]["rewritten"] = "block pointers"
    return answer | {"triton": str(head["triton"]), "walled": not lacks}


def _failed(kind: str, error: str) -> dict[str, Any]:
    return {"error": printable(shorten(error, LONGEST_ERROR)), "kind": kind}


def _of_reader(text: bytes) -> dict[str, Any] | None:
    first, rest = text[:1], text[1:]
    if first in (b"I", b"R"):  # handed on where more than IR was asked for
        try:
            return {"asm": {"ttir": rest.decode()}, "metadata": {"rewritten": "block pointers"} if first == b"R" else {}}
        except UnicodeDecodeError:
            return None
    return _failure(rest, "reader") if first == b"E" else None


def _of_compiler(text: bytes, request: Mapping[str, Any]) -> dict[str, Any] | None:
    if (failure := _failure(text, "compiler")) is not None:
        return failure
    answer = _object(text)
    return answer if answer is not None and _is_whole(answer, request["kernel"]) else None


def _is_whole(answer: Mapping[str, Any], kernel: str) -> bool:
    """Whether an answer is a compiler's of a kernel."""
    tools, asm, metadata = answer.get("tools", {}), answer.get("asm", {}), answer.get("metadata", {})
    if not answer.keys() <= {"asm", "metadata", "tools"} or not _are_texts(tools, TOOLS) or not _are_texts(asm, ASM):
        return False
    if not isinstance(metadata, dict) or metadata.get("name") != kernel or not asm.get("ttir") or not (asm.get("ptx") or asm.get("amdgcn")):
        return False
    values = [(metadata.get(name), least, most) for name, (least, most) in RANGES.items()]
    return all(value is None or (isinstance(value, int) and least <= value <= most) for value, least, most in values)


def is_kept(answer: Mapping[str, Any], kernel: str, only: str | None) -> bool:
    """Whether what a file says is an answer that `read_answer` gave, to a request for a kernel or `only` for its IR."""
    said = {name: value for name, value in answer.items() if name not in ("triton", "walled")}
    if answer.get("walled") is not True or not isinstance(answer.get("triton"), str):
        return False
    if "error" in said:
        return said.keys() == {"error", "kind"} and _are_texts(said, ("error", "kind"))
    if only == "ttir":
        return said.keys() == {"asm", "metadata"} and _are_texts(said["asm"], ("ttir",)) and isinstance(said["metadata"], dict)
    return _is_whole(said, kernel)


def _failure(text: bytes, who: str) -> dict[str, Any] | None:
    said = _object(text)
    if said is None or said.keys() != {"error", "kind"} or not isinstance(said["error"], str) or said["kind"] not in KINDS[who]:
        return None
    if said["kind"] == "interfered":
        return _failed("interfered", f"{INTERFERED} ({quoted(said['error'])})")
    return _failed(said["kind"], quoted(said["error"]))


def quoted(text: str) -> str:
    """A text from within a room, marked as somebody's words: it may say whatever the kernel's author liked."""
    return "“" + shorten(text, LONGEST_QUOTED).replace("“", '"').replace("”", '"') + "”"


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _are_texts(value: Any, names: tuple[str, ...]) -> bool:
    return isinstance(value, dict) and value.keys() <= set(names) and all(isinstance(each, str) for each in value.values())
