"""Releases of a Python package as pip has them, unpacked to be parsed: nothing of them is installed or run."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from advisor.system.errors import MissingDependencyError
from advisor.system.settings import read_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release: the day that its wheel was built, and the folder that it is unpacked in."""

    built: date
    folder: Path


def releases(package: str, progress: Callable[[str], None]) -> list[Release]:
    """All releases of a package, the oldest first; those that the cache folder lacks are fetched.

    Raises:
        MissingDependencyError: There are none in the cache folder, and pip cannot fetch them.
    """
    wheels = read_settings().cache_dir / "releases" / package
    if not any(wheels.glob("*.whl")):
        wheels.mkdir(parents=True, exist_ok=True)
        progress(f"fetching the releases of {package} with pip, to be parsed")
        for version in _versions(package, wheels):
            _pip(["download", "--no-deps", "--only-binary", ":all:", "-d", str(wheels), f"{package}=={version}"], wheels)
    return sorted(_unpacked(wheels), key=lambda release: release.built)


def _unpacked(wheels: Path) -> Iterator[Release]:
    for wheel in wheels.glob("*.whl"):
        folder = wheels / wheel.name.removesuffix(".whl")
        with zipfile.ZipFile(wheel) as archive:
            built = max(member.date_time[:3] for member in archive.infolist())
            if not folder.is_dir():
                archive.extractall(folder)
        yield Release(built=date(*built), folder=folder)


def _versions(package: str, wheels: Path) -> list[str]:
    listed = _pip(["index", "versions", package], wheels).partition("Available versions:")[2].splitlines()
    return [version.strip() for version in listed[0].split(",")] if listed else []


def _pip(arguments: list[str], wheels: Path) -> str:
    done = subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode and arguments[0] == "index":
        why = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        raise MissingDependencyError(f"pip cannot fetch what was measured: {why}", remedy=f"put the wheels of its releases into {wheels}")
    return done.stdout
