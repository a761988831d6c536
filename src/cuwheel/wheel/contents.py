"""A wheel opened to be examined: names, the texts of its metadata, the digests of its files. Nothing is unpacked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.errors import UnreadableError
from cuwheel.finding import Finding
from cuwheel.wheel.zip_reader import ZipReader

if TYPE_CHECKING:
    from collections.abc import Iterable


_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """`sizes`: of the members that can be read, by name; `findings`: of those that cannot, and why.

    `infos`: the dist-info folders at its top, with a slash; `metadata`, `wheel`, `record`: the texts of the first.
    """

    path: Path
    sizes: Mapping[str, int]
    findings: tuple[Finding, ...]
    infos: tuple[str, ...]
    metadata: str | None
    wheel: str | None
    record: str | None
    texts: Mapping[str, str]

    @property
    def info(self) -> str:
        return self.infos[0] if self.infos else ""


def read(path: Path) -> Contents:
    """Raises where it is no zip file at all."""
    reader = ZipReader(path)
    try:
        tops = dict.fromkeys(name.partition("/")[0] + "/" for name in reader.members if "/" in name)
        infos = tuple(sorted(top for top in tops if top.endswith(".dist-info/")))
        first = infos[0] if infos else ""
        texts = {name: reader.text(first + name) for name in ("METADATA", "WHEEL", "RECORD", "top_level.txt")}
        return Contents(
            path=path,
            sizes={name: member.size for name, member in reader.members.items()},
            findings=tuple(reader.findings),
            infos=infos,
            metadata=texts["METADATA"],
            wheel=texts["WHEEL"],
            record=texts["RECORD"],
            texts={name: text for name, text in texts.items() if text is not None},
        )
    finally:
        reader.close()


def sha256(path: Path) -> str:
    """Of the whole file, as people publish it."""
    hasher = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                hasher.update(chunk)
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error
    return hasher.hexdigest()


def installed_names(names: Iterable[str]) -> dict[str, str]:
    """Where each member of a wheel lies in site-packages; those that go elsewhere (scripts, headers) are left out."""
    found = {}
    for name in names:
        top, _, rest = name.partition("/")
        if top.endswith(".data"):
            kind, _, inner = rest.partition("/")
            if kind in ("purelib", "platlib") and inner:
                found[name] = inner
        elif not top.endswith(".dist-info"):
            found[name] = name
    return found
