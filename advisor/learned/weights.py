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
from advisor.learned.layers import products
from advisor.learned.layers.products import LayerProducts
from advisor.learned.library import direct, kernels
from advisor.learned.library.direct import DirectModel
from advisor.learned.library.kernels import LibraryModel
from advisor.learned.moe import model as moe
from advisor.learned.moe.model import MoeModel
from advisor.learned.own_rows import OwnRows
from advisor.system.errors import InputError
from advisor.system.reading import read_bytes
from advisor.system.resources import folder
from advisor.system.settings import read_settings
from advisor.system.writing import replacing

# 2: gemm has a fitted physics; 3: split L2s, launch in clocks, forests of sweeps; 4: physics of the order; 5: listwise forests;
# 6: evidence of measured launches; 7: buffers of small tiles on Hopper, more forests for GPUs never swept
FORMAT = 11
SHIPPED = "learned.npz"
SILICON = "silicon.npz"
"""What was learned of whole layers and of library kernels (`training.silicon_training`); shipped beside the other."""

SILICON_PREFIXES = ("library/", "moe_layer/", own_rows.PREFIX)
OWN = "weights.npz"
"""The user's own, in the folder of settings: what `advisor calibrate` wrote there."""

SIZE_LIMIT_BYTES = 64_000_000
UNPACKED_LIMIT_BYTES = 256_000_000


@dataclass(frozen=True, kw_only=True)
class Weights:
    """All learned models, and where they are from."""

    moe: MoeModel | None
    direct: dict[str, DirectModel]
    configured: ConfiguredModel | None = None
    about: dict[str, Any] = field(default_factory=dict)  # training data, groups left out, versions
    silicon: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # arrays by name, with one of `SILICON_PREFIXES`

    @cached_property
    def library(self) -> dict[str, LibraryModel]:
        """Models of measured library kernels, by kind."""
        return kernels.load_all(self.silicon)

    @cached_property
    def layer_products(self) -> LayerProducts | None:
        """The products of measured layers."""
        return products.load(self.silicon)

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
        """Eight hexadecimal digits that change with any weight."""
        sha = hashlib.sha256()
        for name, array in sorted(self.arrays().items()):
            sha.update(name.encode())
            sha.update(np.ascontiguousarray(array).tobytes())
        return sha.hexdigest()[:8]


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
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", (2026, 1, 1, 0, 0, 0)), buffer.getvalue(), zipfile.ZIP_DEFLATED, 9)


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
    """Read weights.

    Raises:
        InputError: The file is missing, is not weights of this format, or would need pickle.
    """
    name = Path(path).name
    try:
        stored = _arrays(read_bytes(path, name, "weights that `advisor train` wrote", SIZE_LIMIT_BYTES))
        meta = json.loads(str(stored["meta"]))
        if meta["format"] != FORMAT:
            raise InputError(f"{name}: weights of another format", meta["format"], f"format {FORMAT}", "train them anew")
        return Weights(
            moe=moe.load(stored, meta["moe"]) if meta["moe"] else None,
            direct={kind: direct.load(stored, kind, stored_kind) for kind, stored_kind in meta["direct"].items()},
            configured=configured.load(stored, meta["configured"]) if meta.get("configured") else None,
            about=meta["about"],
            silicon=_silicon(stored) or _beside(Path(path)),
        )
    except InputError:
        raise
    except UNREADABLE as error:
        raise InputError(
            f"{name}: cannot be read as weights ({type(error).__name__})",
            os.fspath(path),
            "a file that `advisor train` wrote",
            "train it anew",
        ) from None


def _arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of an archive. Nothing is made room for before it is known to be there.

    Raises:
        ValueError: Together they are too large, one is not as large as its head says, or a number is none.
    """
    stored = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if sum(member.file_size for member in archive.infolist()) > UNPACKED_LIMIT_BYTES:
            raise ValueError(f"over {UNPACKED_LIMIT_BYTES:,} bytes, unpacked")
        for member in archive.infolist():
            with archive.open(member) as stream:
                version = np.lib.format.read_magic(stream)
                head = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, kind = head(stream)
                if kind.hasobject or math.prod(shape) * kind.itemsize != member.file_size - stream.tell():
                    raise ValueError(f"{member.filename} is not as large as it says")
            with archive.open(member) as stream:
                array = np.lib.format.read_array(stream, allow_pickle=False)
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ValueError(f"{member.filename} holds what is no number")
            stored[member.filename.removesuffix(".npy")] = array
    return stored


def _silicon(stored: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name: values for name, values in stored.items() if name.startswith(SILICON_PREFIXES)}


def _beside(path: Path) -> dict[str, NDArray[Any]]:
    """The other half of the shipped weights."""
    other = path.with_name(SILICON)
    if path != shipped() or not other.is_file():
        return {}
    with np.load(other, allow_pickle=False) as archive:
        return _silicon({key: archive[key] for key in archive.files})


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
