"""The files of a wheel against the hashes that its RECORD has of them. Nothing is unpacked to disk."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TYPE_CHECKING, NamedTuple, Protocol

from cuwheel.errors import MalformedError
from cuwheel.support import log
from cuwheel.wheel.metadata import record_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cuwheel.wheel.zip_reader import Member, ZipReader

# What RECORD may be signed with (PEP 427: sha256 or better); Python has more under these names than wheels use.
ALGORITHMS = ("sha256", "sha384", "sha512")
_WEAK = ("md5", "sha1", "sha224")  # nobody may rely on these, but what they say must be true too


class Hashed(Protocol):
    """An open wheel, as far as it is looked at here."""

    @property
    def record(self) -> str | None: ...
    @property
    def members(self) -> Mapping[str, Member]: ...
    @property
    def sizes(self) -> Mapping[str, int]: ...
    @property
    def zip(self) -> ZipReader: ...


class Compared(NamedTuple):
    """`wrong`: files with another hash. `broken`: those that cannot be read, and why."""

    wrong: frozenset[str]
    broken: dict[str, str]


def is_strong(text: str) -> bool:
    """`sha256=…` and its like."""
    return text.partition("=")[0] in ALGORITHMS


def wrong(wheel: Hashed) -> list[str]:
    """The files that are not what RECORD says of them, or cannot be unpacked."""
    rows = [row for row in record_rows(wheel.record or "") if row.path in wheel.members]
    listed = {row.path: row.hash for row in rows if row.hash}
    # What RECORD has no hash of has the checksum of the zip.
    unlisted = dict.fromkeys((name for name in wheel.members if name not in listed), f"{ALGORITHMS[0]}=")
    found, unpacked = compare(wheel, listed), compare(wheel, unlisted)
    sizes = {row.path for row in rows if row.size and row.size != str(wheel.sizes[row.path])}
    lost = {row.path for row in record_rows(wheel.record or "") if is_strong(row.hash)} - wheel.members.keys()
    return sorted({*found.wrong, *found.broken, *unpacked.broken, *sizes, *lost})


def compare(wheel: Hashed, listed: Mapping[str, str]) -> Compared:
    """`listed`: members, and their hashes as RECORD writes them; a hash of a kind that nobody knows is wrong."""
    split = {name: text.partition("=") for name, text in listed.items()}
    wanted = {name: parts for name, parts in split.items() if parts[0] in (*ALGORITHMS, *_WEAK)}
    differing = split.keys() - wanted.keys()
    broken: dict[str, str] = {}
    with log.progress("hashing", sum(wheel.sizes.get(name, 0) for name in wanted)) as progress:
        for name, (algorithm, _, encoded) in wanted.items():
            member = wheel.members.get(name)
            if member is None:
                broken[name] = "it is not in the wheel"
                continue
            hasher = hashlib.new(algorithm, usedforsecurity=False)
            try:
                for chunk in wheel.zip.chunks(member):
                    hasher.update(chunk)
                    progress.advance(len(chunk))
            except MalformedError as error:
                broken[name] = error.problem
                continue
            if hasher.digest() != _decoded(encoded):
                differing.add(name)
    return Compared(frozenset(differing), broken)


def _decoded(encoded: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (binascii.Error, ValueError):
        return b""
