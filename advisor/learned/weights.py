"""Weights as one .npz file without pickle: named arrays, and a JSON text that says what they are."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned import own_rows
from advisor.learned.configured import model as configured
from advisor.learned.configured.model import ConfiguredModel
from advisor.learned.layers import layer_model
from advisor.learned.layers.layer_model import LayerProducts
from advisor.learned.library import direct, kernels
from advisor.learned.library.direct import DirectModel
from advisor.learned.library.kernels import LibraryModel
from advisor.learned.moe import model as moe
from advisor.learned.moe.model import MoeModel
from advisor.learned.own_rows import OwnRows
from advisor.system.errors import InputError
from advisor.system.reading import read_bytes
from advisor.system.resources import OnDemand, folder
from advisor.system.settings import read_settings
from advisor.system.writing import replacing

# 2: gemm has a fitted physics; 3: split L2s, launch in clocks, forests of sweeps; 4: physics of the order; 5: listwise forests;
# 6: evidence of measured launches; 7: buffers of small tiles on Hopper, more forests for GPUs never swept; 12: launches
# that begin with a cold cache, among the configured ones
FORMAT = 12
SHIPPED = "learned.npz"
SILICON = "silicon.npz"
"""What was learned of whole layers and of library kernels (`training.silicon`); shipped beside the other."""

SILICON_PREFIXES = ("library/", "moe_layer/", own_rows.PREFIX)
OWN = "weights.npz"
"""The user's own, in the folder of settings: what `advisor calibrate` wrote there."""

SIZE_LIMIT_BYTES = 64_000_000
UNPACKED_LIMIT_BYTES = 256_000_000


@dataclass(frozen=True, kw_only=True)
class Weights:
    """All learned models, and where they are from."""

    moe: MoeModel | None
    direct: Mapping[str, DirectModel]
    configured: ConfiguredModel | None = None
    about: dict[str, Any] = field(default_factory=dict)  # training data, groups left out, versions
    silicon: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # arrays by name, with one of `SILICON_PREFIXES`
    stored: Mapping[str, int] | None = field(default=None, init=False)  # checksums of the files' arrays; None: of no file as it is

    @cached_property
    def library(self) -> Mapping[str, LibraryModel]:
        """Models of measured library kernels, by kind."""
        return kernels.load_all(self.silicon)

    @cached_property
    def layer_products(self) -> LayerProducts | None:
        """The products of measured layers."""
        return layer_model.load_products(self.silicon)

    @cached_property
    def corrections(self) -> dict[tuple[str, str], OwnRows]:
        """Rows that `advisor calibrate` was given, by GPU and kind of launch."""
        return own_rows.load_all(self.silicon)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything as named arrays; "meta" is JSON text."""
        out: dict[str, NDArray[Any]] = dict(self.silicon)
        meta: dict[str, Any] = {"format": FORMAT, "about": self.about, "moe": None, "direct": {}, "configured": None}
        if self.moe:
            arrays, meta["moe"] = self.moe.arrays()
            out |= arrays
        if self.configured:
            arrays, meta["configured"] = self.configured.arrays()
            out |= arrays
        for kind, model in self.direct.items():
            arrays, meta["direct"][kind] = model.arrays()
            out |= arrays
        return out | {"meta": np.array(json.dumps(meta, sort_keys=True))}

    def digest(self) -> str:
        """Eight hexadecimal digits that change with any weight; of a file they need nothing of it unpacked."""
        checksums = self.stored or {name: zlib.crc32(_member(array)) for name, array in self.arrays().items()}
        return hashlib.sha256(json.dumps(sorted(checksums.items())).encode()).hexdigest()[:8]


def save(weights: Weights, path: Path | str) -> None:
    """Write the file, the same bytes for the same weights.

    Raises:
        UsageError: It cannot be written.
    """
    save_arrays(weights.arrays(), path)


def save_arrays(arrays: Mapping[str, NDArray[Any]], path: Path | str) -> None:
    """Write named arrays, the same bytes for the same values (a zip member otherwise carries the time).

    Raises:
        UsageError: The file cannot be written.
    """
    with (
        replacing(Path(path), "choose another place with -o") as place,
        zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
    ):
        for name, array in sorted(arrays.items()):
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", (2026, 1, 1, 0, 0, 0)), _member(array), zipfile.ZIP_DEFLATED, 9)


def _member(array: NDArray[Any]) -> bytes:
    """An array as it stands in an archive."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()


UNREADABLE = (
    zipfile.BadZipFile,  # no archive
    EOFError,  # one that was cut off
    zlib.error,  # one that was damaged
    RuntimeError,  # one that is encrypted or packed by another method (NotImplementedError), or JSON that nests too deep (RecursionError)
    ValueError,  # no array, one of another size or that needs pickle, a number that is none, no JSON
    OverflowError,  # a size that no array can have
    MemoryError,  # one for which there is no room
    LookupError,  # an array or a part of the description is missing
    TypeError,  # a part of it is of another type
    AttributeError,  # a list where a mapping belongs
    AssertionError,  # parts of the fused-MoE model that belong together (`moe.load`)
    OSError,  # the half that lies beside the shipped weights is not read
)
"""What a file that is no weights, or a damaged one, raises while it is read."""


def load(path: Path | str) -> Weights:
    """Read weights: of those that come with the advisor what is asked for, when it is; others whole, because anything may be in them.

    Raises:
        InputError: The file is missing, is not weights of this format, or would need pickle.
    """
    path = Path(path)
    try:
        stored, checksums = _arrays(read_bytes(path, path.name, "weights that `advisor train` wrote", SIZE_LIMIT_BYTES))
        meta = json.loads(str(stored["meta"]))
        if meta["format"] != FORMAT:
            raise InputError(f"{path.name}: weights of another format", meta["format"], f"format {FORMAT}", "train them anew")
        ours, other = path == shipped(), path.with_name(SILICON)
        beside, checksums_beside = _arrays(other.read_bytes()) if ours and other.is_file() else (stored, {})
        silicon = OnDemand((name for name in beside if name.startswith(SILICON_PREFIXES)), beside.__getitem__)
        direct_models = OnDemand(meta["direct"], lambda kind: direct.load(stored, kind, meta["direct"][kind]))
        if not ours:
            stored.make_all()
            direct_models.make_all()
        weights = Weights(
            moe=moe.load(stored, meta["moe"]) if meta["moe"] else None,
            direct=direct_models,
            configured=configured.load(stored, meta["configured"]) if meta.get("configured") else None,
            about=meta["about"],
            silicon=silicon,
        )
        checksums |= {name: checksum for name, checksum in checksums_beside.items() if name in silicon}
        object.__setattr__(weights, "stored", checksums)
        return weights
    except InputError:
        raise
    except UNREADABLE as error:
        raise InputError(
            f"{path.name}: cannot be read as weights ({type(error).__name__})",
            os.fspath(path),
            "a file that `advisor train` wrote",
            "train it anew",
        ) from None


def _arrays(data: bytes) -> tuple[OnDemand[NDArray[Any]], dict[str, int]]:
    """The arrays of an archive, each unpacked when it is asked for, and their checksums. Nothing is made room for before it is known to be
    there.

    Raises:
        ValueError: Together they are too large; when it is asked for: one is not as large as its head says, or a number is none.
    """
    archive = zipfile.ZipFile(io.BytesIO(data))
    members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
    if sum(member.file_size for member in archive.infolist()) > UNPACKED_LIMIT_BYTES:
        raise ValueError(f"over {UNPACKED_LIMIT_BYTES:,} bytes, unpacked")

    def unpacked(name: str) -> NDArray[Any]:
        data = archive.read(members[name])
        stream = io.BytesIO(data)
        version = np.lib.format.read_magic(stream)
        head = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, kind = head(stream)
        if kind.hasobject or math.prod(shape) * kind.itemsize != len(data) - stream.tell():
            raise ValueError(f"{name} is not as large as it says")
        array: NDArray[Any] = np.ndarray(shape, kind, data, stream.tell(), order="F" if fortran else "C")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"{name} holds what is no number")
        return array

    return OnDemand(members, unpacked), {name: member.CRC for name, member in members.items()}


def own_folder() -> Path:
    """The user's configuration folder."""
    return read_settings().config_dir


def in_use() -> Path | None:
    """The weights in the user's configuration folder, else those that come with the advisor."""
    folder = own_folder() / OWN
    return folder if folder.is_file() else shipped()


def shipped() -> Path | None:
    """The weights that come with the advisor, where it has some."""
    try:
        path = folder("ceilings") / SHIPPED
    except FileNotFoundError:
        return None
    return path if path.is_file() else None
