"""Contents of a repository's files, asked of git for many at once and kept: a process for each file is most of the time that a comparison
of many takes."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

from advisor.comparison.trees import git

LARGEST_KEPT_BYTES = 1_000_000
"""Of one file: no kernel file and no table is larger."""
MOST_KEPT_BYTES = 128_000_000
"""Of all files together; past it, what is kept is dropped and begun anew."""


class Blobs:
    """The blobs of a repository, by identity. What is behind an identity never changes, so that nothing here becomes stale."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: dict[str, int] = {}
        self._contents: dict[str, bytes] = {}
        self._kept_bytes = 0

    def sizes(self, identities: Collection[str]) -> dict[str, int]:
        """Sizes in bytes, asked for at once.

        Raises:
            InputError: One was left out of a partial clone.
        """
        unknown = sorted({each for each in identities if each not in self._sizes})
        if unknown:
            self._sizes |= git.sizes(self._folder, unknown)
        return {each: self._sizes[each] for each in identities if each in self._sizes}

    def read(self, identity: str) -> bytes:
        """The content of one."""
        content = self._contents.get(identity)
        if content is None:
            content = git.blob(self._folder, identity)
            self._keep(identity, content)
        return content

    def fetch(self, identities: Collection[str]) -> None:
        """Read at once what will be asked for, as far as there is room to keep it.

        Raises:
            InputError: One was left out of a partial clone.
        """
        room = MOST_KEPT_BYTES - self._kept_bytes
        wanted = []
        for identity, size in self.sizes(identities).items():
            if size <= min(LARGEST_KEPT_BYTES, room) and identity not in self._contents:
                wanted.append(identity)
                room -= size
        for identity, content in git.blobs(self._folder, wanted).items() if wanted else ():
            self._keep(identity, content)

    def _keep(self, identity: str, content: bytes) -> None:
        if len(content) > LARGEST_KEPT_BYTES:
            return
        if self._kept_bytes + len(content) > MOST_KEPT_BYTES:
            self._contents.clear()
            self._kept_bytes = 0
        self._contents[identity] = content
        self._kept_bytes += len(content)


@lru_cache(maxsize=2)
def blobs_of(folder: Path) -> Blobs:
    """Those of a repository, shared by both sides: most of what they hold is the same."""
    return Blobs(folder)
