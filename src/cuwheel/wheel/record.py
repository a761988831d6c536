"""RECORD: the files of a distribution with their hashes, changed row by row and otherwise left as it is."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from cuwheel.support import files
from cuwheel_core.wheel.metadata import record_rows

SIGNATURES = ("RECORD.jws", "RECORD.p7s")


class Digest(Struct, frozen=True, kw_only=True):
    """A file's content as RECORD states it."""

    sha256: str
    size: int

    @property
    def hash(self) -> str:
        """`sha256=…`, urlsafe and without padding."""
        return "sha256=" + base64.urlsafe_b64encode(bytes.fromhex(self.sha256)).rstrip(b"=").decode()


def digest_of(path: Path) -> Digest:
    return digest_of_chunks(files.chunks(path))


def digest_of_bytes(data: bytes) -> Digest:
    return digest_of_chunks((data,))


def digest_of_chunks(chunks: Iterable[bytes]) -> Digest:
    hasher, size = hashlib.sha256(), 0
    for chunk in chunks:
        hasher.update(chunk)
        size += len(chunk)
    return Digest(sha256=hasher.hexdigest(), size=size)


def changed(
    text: str,
    digests: Mapping[str, Digest],
    *,
    removed: Iterable[str] = (),
    added: Mapping[str, Digest] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> str:
    """The text with other hashes for some rows, without some, with some more before RECORD's own row.

    A row without a hash stays without one: its writer did not want it checked.
    """
    gone, names = set(removed), renamed or {}
    lines: list[str] = []
    end = "\r\n" if "\r\n" in text else "\n"
    own = None
    for line, path, *checks in record_rows(text):
        if "\0" in line:
            continue
        if path in gone:
            continue
        if path.endswith(".dist-info/RECORD"):
            own = len(lines)
        digest, name = digests.get(path), names.get(path, path)
        if digest is None and name == path:
            lines.append(line if line.endswith("\n") else line + end)
        elif digest is None or not "".join(checks):
            lines.append(_line([name, *checks], end))
        else:
            lines.append(_line([name, digest.hash, str(digest.size)], end))
    extra = [_line([name, digest.hash, str(digest.size)], end) for name, digest in (added or {}).items()]
    place = len(lines) if own is None else own
    return "".join([*lines[:place], *extra, *lines[place:]])


def _line(fields: list[str], end: str) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator=end).writerow(fields)
    return stream.getvalue()
