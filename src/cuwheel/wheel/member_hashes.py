"""The files of a wheel against the hashes that its RECORD has of them. Nothing is unpacked to disk."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zipfile
import zlib
from typing import TYPE_CHECKING, NamedTuple

from cuwheel import log
from cuwheel.wheel.metadata import record_rows
from cuwheel.wheel.zip_reader import ZipReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_CHUNK = 1 << 20
# What RECORD may be signed with (PEP 427: sha256 or better); Python has more under these names than wheels use.
ALGORITHMS = ("sha256", "sha384", "sha512")
_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, OSError, RuntimeError, KeyError)


class Compared(NamedTuple):
    """`wrong`: files with another hash. `broken`: those that cannot be read, and why."""

    wrong: frozenset[str]
    broken: dict[str, str]


def is_strong(text: str) -> bool:
    """`sha256=…` and its like; only these are compared."""
    return text.partition("=")[0] in ALGORITHMS


def wrong(wheel: Path, info: str) -> list[str]:
    """The files that are not what RECORD says of them, or cannot be unpacked. `info`: the dist-info folder."""
    reader = ZipReader(wheel)
    try:
        hashes = {row.path: row.hash for row in record_rows(reader.text(info + "RECORD") or "")}
        # What RECORD has no hash of has the checksum of the zip.
        unlisted = {name: f"{ALGORITHMS[0]}=" for name in reader.members if not is_strong(hashes.get(name, ""))}
    finally:
        reader.close()
    listed = {name: text for name, text in hashes.items() if is_strong(text)}
    found, unpacked = compare(wheel, listed), compare(wheel, unlisted)
    return sorted({*found.wrong, *found.broken, *unpacked.broken})


def compare(wheel: Path, listed: Mapping[str, str]) -> Compared:
    """`listed`: members, and their hashes as RECORD writes them."""
    wanted = {name: text.partition("=") for name, text in listed.items() if is_strong(text)}
    wrong: set[str] = set()
    broken: dict[str, str] = {}
    with zipfile.ZipFile(wheel) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        with log.progress("hashing", sum(sizes.get(name, 0) for name in wanted)) as progress:
            for name, (algorithm, _, encoded) in wanted.items():
                try:
                    digest = _digest(archive, name, algorithm, progress.advance)
                except _ERRORS as error:
                    broken[name] = str(error)
                    continue
                if digest != _decoded(encoded):
                    wrong.add(name)
    return Compared(frozenset(wrong), broken)


def _digest(archive: zipfile.ZipFile, name: str, algorithm: str, advance: Callable[[int], None]) -> bytes:
    hasher = hashlib.new(algorithm)
    with archive.open(name) as member:
        while chunk := member.read(_CHUNK):
            hasher.update(chunk)
            advance(len(chunk))
    return hasher.digest()


def _decoded(encoded: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (binascii.Error, ValueError):
        return b""
