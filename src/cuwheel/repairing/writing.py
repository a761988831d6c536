"""The repaired wheel as a file: other tags, requirements and libraries, RECORD anew, the same bytes every time."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.errors import MalformedError
from cuwheel.repairing import requirements
from cuwheel.wheel import record
from cuwheel.wheel.zip_writer import Traits, ZipWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_TEXT = 1 << 24
_FOLDER = 0o40755 << 16 | 0x10


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`info`: the dist-info folder with its slash. `files`: member → the file that takes its place."""

    info: str
    platforms: tuple[str, ...]
    requires: tuple[str, ...]
    files: Mapping[str, Path]


def write(wheel: Path, made: Path, change: Change) -> None:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - 20 ms, where there is work to do

    try:
        with zipfile.ZipFile(wheel) as archive, made.open("wb") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
            _write(archive, ZipWriter(file, pool), change)
            file.flush()
            os.fsync(file.fileno())
    except zipfile.BadZipFile as error:
        raise MalformedError(wheel, str(error), hint="build the wheel again") from error


def _write(archive: zipfile.ZipFile, writer: ZipWriter, change: Change) -> None:
    """Every member in its order without its folder, RECORD last. Signatures go: they are of another RECORD."""
    listed = change.info + "RECORD"
    skipped = {listed, *(change.info + each for each in record.SIGNATURES)}
    digests: dict[str, record.Digest] = {}
    for info in archive.infolist():
        if info.is_dir() or info.filename in skipped:
            continue
        traits = Traits.of(info)
        if place := change.files.get(info.filename):
            digests[info.filename] = record.digest_of(place)
            with place.open("rb") as stream:
                writer.add(traits, stream, place.stat().st_size)
            continue
        if info.filename in (change.info + "WHEEL", change.info + "METADATA"):
            data = _text(archive, info)
            data = retagged(data, change.platforms) if info.filename.endswith("/WHEEL") else data
            data = requirements.added_to(data, change.requires) if info.filename.endswith("/METADATA") else data
            digests[info.filename] = record.digest_of_bytes(data)
            writer.add(traits, io.BytesIO(data), len(data))
            continue
        with archive.open(info) as stream:
            digests[info.filename] = _digest(stream)
        with archive.open(info) as stream:
            writer.add(traits, stream, info.file_size)  # type: ignore[arg-type]
    text = record.listing(digests, listed).encode("utf-8", "surrogateescape")
    writer.add(Traits.of(archive.getinfo(listed)), io.BytesIO(text), len(text))
    writer.finish()


def _text(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    if info.file_size > _MOST_TEXT:
        raise MalformedError(info.filename, f"claims {info.file_size:,} bytes")
    return archive.read(info)


def _digest(stream: object) -> record.Digest:
    import hashlib  # noqa: PLC0415

    hasher, count = hashlib.sha256(), 0
    while chunk := stream.read(1 << 20):  # type: ignore[attr-defined]
        hasher.update(chunk)
        count += len(chunk)
    return record.Digest(sha256=hasher.hexdigest(), size=count)


def retagged(wheel: bytes, platforms: Sequence[str]) -> bytes:
    """WHEEL with the tags of other platforms, and said not to be pure; all else as it is."""
    lines = wheel.splitlines(keepends=True)
    newline = b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"
    kept: list[bytes] = []
    pairs: list[bytes] = []
    place = None
    for line in lines:
        key, _, value = line.partition(b":")
        if key.strip().lower() == b"tag":
            place = len(kept) if place is None else place
            pairs.append(value.strip().rpartition(b"-")[0])
        elif key.strip().lower() == b"root-is-purelib":
            kept.append(b"Root-Is-Purelib: false" + newline)
        else:
            kept.append(line if line.endswith(b"\n") else line + newline)
    tags = [
        b"Tag: " + pair + b"-" + platform.encode() + newline for pair in dict.fromkeys(pairs) for platform in platforms
    ]
    place = len(kept) if place is None else place
    return b"".join([*kept[:place], *tags, *kept[place:]])
