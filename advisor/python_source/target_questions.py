"""What files ask of the machine they run on (`torch.version.hip`, `is_cuda()`, `triton.__version__`), answered for a known target."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from advisor.gpus.hardware import list_gpus
from advisor.python_source.bindings import bound_by, own_nodes
from advisor.python_source.language import TYPES
from advisor.python_source.literal_values import TorchType
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.syntax import parse
from advisor.system import triton_install

BACKENDS = {"nvidia": "cuda", "amd": "hip"}
"""Triton's backend of a GPU's vendor."""
VENDORS = {backend: vendor for vendor, backend in BACKENDS.items()}
_ASKED = re.compile(r"_*is_(cuda|nvidia|hip|rocm|amd|xpu|intel|npu|musa)(?:_backend)?", re.IGNORECASE)
_ASKED_ARCH = frozenset({"get_arch", "get_gfx", "get_gfx_arch"})
"""Functions that give the architecture, as Triton names it (aiter, `arch_info.get_arch`; its `jit.utils.chip_info.get_gfx`)."""
_MEANT = {"cuda": "cuda", "nvidia": "cuda", "hip": "hip", "rocm": "hip", "amd": "hip"}
_GENERATIONS = {"hopper": (9,), "blackwell": (10, 12), "sm90": (9,), "sm100": (10,), "sm120": (12,), "tesla": (6, 7)}
"""Generations of NVIDIA's and first numbers of their compute capabilities, as flash-linear-attention asks (0.6.0, `fla.utils`) and LightLLM
(1.0.1, `"Tesla" in torch.cuda.get_device_name(0)`, which is so of V100 and T4)."""
_ASKED_GENERATION = re.compile(rf"_*is_(?:nvidia_)?({'|'.join(_GENERATIONS)})|(TESLA)", re.IGNORECASE)
_MEMORIES = {"ada": 101_376, "ampere": 166_912, "hopper": 232_448}
"""Bytes of shared memory of a CTA that flash-linear-attention asks for by a name (0.6.0, `fla.utils`); `_OTHER_MEMORY` by any other."""
_OTHER_MEMORY = 102_400
_MOST_SHARED: dict[tuple[str, int | str], int] = {("cuda", 87): 166_912, ("cuda", 110): 232_448, ("hip", "gfx90a"): 65_536}
"""Bytes of shared memory that one CTA may have on targets of which no GPU is described (CUDA C++ Programming Guide, technical
specifications; CDNA 2 ISA guide, local data share)."""
_RELEASE = re.compile(r"(\d+(?:\.\d+)*)(?:\.post\d+)?(?:\+.*)?")


_FLOATS = {
    "float64": ((2 - 2.0**-52) * 2.0**1023, 2.0**-52, 2.0**-1022),
    "float32": ((2 - 2.0**-23) * 2.0**127, 2.0**-23, 2.0**-126),
    "bfloat16": ((2 - 2.0**-7) * 2.0**127, 2.0**-7, 2.0**-126),
    "float16": (65504.0, 2.0**-10, 2.0**-14),
    "float8_e4m3fn": (448.0, 2.0**-3, 2.0**-6),
    "float8_e4m3fnuz": (240.0, 2.0**-3, 2.0**-7),
    "float8_e5m2": (57344.0, 2.0**-2, 2.0**-14),
}
"""Largest number, distance of the next above 1, smallest normal number (IEEE 754; OCP 8-bit floating point specification, 1.0)."""


@dataclass(frozen=True, slots=True)
class CurrentTarget:
    """What `triton.runtime.driver.active.get_current_target()` gives, as far as it is asked."""

    backend: str
    arch: int | str | None  # None: not known


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What `torch.cuda.get_device_properties(0)` gives, as far as the target says it."""

    major: int
    minor: int


_OTHER_NAMES = {"long": "int64", "int": "int32", "short": "int16", "double": "float64", "float": "float32", "half": "float16"}


def torch_type(name: str) -> TorchType | None:
    """The type that torch has by a name, whichever of its names; None: it has none so called."""
    name = _OTHER_NAMES.get(name, name)
    return TorchType(name) if name == "bool" or TYPES.fullmatch(name) else None


def limit_of_type(kind: Any, limit: str) -> float | int:
    """`torch.finfo(torch.float16).max`, `torch.iinfo(torch.int64).min` and the like.

    Raises:
        NotLiteralError: The type is not known, or something else is asked of it.
    """
    name = kind.name if isinstance(kind, TorchType) else ""
    if name in _FLOATS:
        largest, step, least = _FLOATS[name]
        answers: dict[str, float | int] = {"max": largest, "min": -largest, "eps": step, "tiny": least, "smallest_normal": least}
    else:
        matched = re.fullmatch(r"(u?)int(8|16|32|64)", name)
        bits = int(matched.group(2)) if matched else 0
        unsigned = bool(matched and matched.group(1))
        answers = {"bits": bits, "max": 2 ** (bits - (not unsigned)) - 1, "min": 0 if unsigned else -(2 ** (bits - 1))} if bits else {}
    if limit not in answers:
        raise NotLiteralError(f"{limit} of {name or 'a type'} is unknown")
    return answers[limit]


class Present:
    """A value of which only that it is there is known: a version of torch's."""

    def __eq__(self, other: object) -> bool:
        if other is None:
            return False
        raise NotLiteralError("a version of torch is unknown")

    def __lt__(self, other: object) -> bool:
        raise NotLiteralError("a version of torch is unknown")

    __le__ = __gt__ = __ge__ = __lt__
    __hash__ = object.__hash__


def torch_version(name: str, backend: str | None) -> Any:
    """`torch.version.cuda` or `torch.version.hip`.

    Raises:
        NotLiteralError: The target is not known.
    """
    if backend is None:
        raise NotLiteralError(f"torch.version.{name} is unknown without a target")
    return Present() if backend == name else None


def asked_target(name: str, backend: str | None, arch: int | str | None) -> bool | int | str | None:
    """The answer to `is_hip()`, `IS_NVIDIA`, `IS_NVIDIA_HOPPER`, `TESLA`, `get_arch()` and the like; None: it is another question, or the
    target is not known.

    Args:
        name: The function or the constant.
        backend: Triton's backend of the target.
        arch: Its architecture: 90, gfx942.
    """
    if backend is None:
        return None
    if name in _ASKED_ARCH:
        return arch
    if architecture := _ASKED.fullmatch(name):
        return _MEANT.get(architecture.group(1).lower()) == backend
    if not (architecture := _ASKED_GENERATION.fullmatch(name)):
        return None
    if backend != "cuda":
        return False
    return None if not isinstance(arch, int) else arch // 10 in _GENERATIONS[architecture[architecture.lastindex or 1].lower()]


def capability(backend: str | None, arch: int | str | None) -> tuple[int, int]:
    """`torch.cuda.get_device_capability()`: (9, 0) of sm_90, (9, 4) of gfx942.

    Raises:
        NotLiteralError: The target is not known.
    """
    if backend == "cuda" and isinstance(arch, int):
        return divmod(arch, 10)
    if backend == "hip" and (version_ := re.fullmatch(r"gfx(\d{1,2})(\d)[0-9a-f]", str(arch))):
        return int(version_.group(1)), int(version_.group(2))
    raise NotLiteralError("the compute capability of the GPU is unknown without a target")


def enough_shared_memory(architecture: Any, backend: str | None, arch: int | str | None) -> bool | None:
    """The answer to `check_shared_mem("ampere")`, flash-linear-attention's question whether a CTA may have as much as on such a GPU; None:
    it is another question, or what the target has is not known."""
    if backend is None or arch is None or not isinstance(architecture, str):
        return None
    most = _shared_memories().get((backend, arch))
    return None if most is None else most >= _MEMORIES.get(architecture.lower(), _OTHER_MEMORY)


@cache
def _shared_memories() -> dict[tuple[str, int | str], int]:
    """Bytes of shared memory that one CTA may have, by backend and architecture."""
    return _MOST_SHARED | {gpu.triton_target[:2]: gpu.smem_bytes_per_cta for gpu in list_gpus()}


def version(text: Any) -> tuple[int, ...]:
    """`Version(text)` as numbers that compare alike.

    Raises:
        NotLiteralError: It is no plain release; those before a release are ordered by more rules than these.
    """
    matched = _RELEASE.fullmatch(text) if isinstance(text, str) else None
    if matched is None:
        raise NotLiteralError(f"{text!r} is not a plain version")
    numbers = [int(part) for part in matched.group(1).split(".")]
    while numbers and numbers[-1] == 0:  # 3.0 is 3.0.0
        numbers.pop()
    return tuple(numbers)


def triton_version() -> str:
    """The version of the triton that compiles.

    Raises:
        NotLiteralError: It is not installed.
    """
    installed = triton_install.version()
    if installed is None:
        raise NotLiteralError("triton.__version__ is unknown: it is not installed")
    return installed


_USUAL = {"triton": ("triton",), "tl": ("triton", "language")}
"""Names that stand for triton's modules wherever they come from."""


def has(module: str, name: str) -> bool:
    """Whether a module of triton has a name.

    Args:
        module: By what it is called where it comes from: `triton.language`, `vllm.triton_utils.tl.math`.
        name: Of what is asked for.

    Raises:
        NotLiteralError: It is no module of triton whose names are known, or whether it has this one is not known.
    """
    parts = module.split(".")
    first = next((i for i, part in enumerate(parts) if part in _USUAL), len(parts))
    names, inner = _names((*_USUAL.get("".join(parts[first : first + 1]), ()), *parts[first + 1 :]), triton_install.folder())
    if name in names:
        return True
    if name in inner or "*" in names or name.startswith("__"):  # there if something imported it
        raise NotLiteralError(f"whether {module} has {name} is unknown")
    return False


@cache
def _names(module: tuple[str, ...], installed: Path | None) -> tuple[frozenset[str], frozenset[str]]:
    """The names that a module's file binds, and those of files and folders in its folder, where triton is `installed`."""
    shown = ".".join(module)
    if not module or installed is None:
        raise NotLiteralError(f"what {shown or 'a module other than triton'} has is unknown")
    folder = installed.joinpath(*module[1:])
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    try:
        tree = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        raise NotLiteralError(f"what {shown} has is unknown: {path.name} of it cannot be read") from None
    names = frozenset(name for node in own_nodes(tree) for name in bound_by(node))
    return names, frozenset(item.stem for item in folder.iterdir()) if folder.is_dir() else frozenset()
