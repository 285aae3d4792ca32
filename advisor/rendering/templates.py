"""The templates of `reports/`, compiled once for all processes of a user: compiling the page takes as long as filling it."""

from __future__ import annotations

import contextlib
from typing import Any

from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket

from advisor.system.settings import read_settings


class _Kept(FileSystemBytecodeCache):
    """Compiled templates in the user's cache folder; where that cannot be written, none are kept."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            super().dump_bytecode(bucket)


def environment(templates: str, **options: Any) -> Environment:
    """An environment of the templates in a folder, which fails where one asks for what it was not given.

    Args:
        templates: The folder.
        options: Further options of `jinja2.Environment`.
    """
    place, bytecode = read_settings().cache_dir / "templates", None
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        bytecode = _Kept(str(place))
    loader = FileSystemLoader(templates)
    return Environment(
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=bytecode,
        auto_reload=False,
        **options,
    )
