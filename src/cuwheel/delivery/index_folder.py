"""A published folder as it stands: the pages that are its truth, its sums, and what an interrupted run left."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from cuwheel import codec, files, locking
from cuwheel.delivery import layout, simple_api
from cuwheel.delivery.simple_api import PROVENANCE, ListedProject, Project, ProjectList
from cuwheel.errors import MalformedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cuwheel.delivery.simple_api import PublishedFile

_PUBLISHING = f"{layout.PRIVATE}/publishing"
JOURNAL = f"{_PUBLISHING}/journal.json"
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_HEXES = re.compile(r"(?:[0-9a-f]{64},)*", re.ASCII)
_SUMS = re.compile(r"(?:[0-9a-f]{64}  .+\n)*", re.ASCII)
_PATH_AT = 66  # in a line of sums: behind the hash and two blanks


class Journal(Struct, frozen=True, kw_only=True):
    """What a run is about to change. Where it is found by another run, that one did not come to its end."""

    projects: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class IndexFolder:
    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One publisher at a time; another one is waited for."""
        with locking.locked(self.root / _PUBLISHING, patient=True):
            yield

    def must_be_ours(self) -> None:
        """Never write over what somebody else made."""
        if self.path(f"{layout.list_page()}.json").exists() or self.path(JOURNAL).exists():
            self.listed()
            return
        theirs = [each for each in (layout.SIMPLE, layout.FILES, layout.PAGE, layout.SUMS) if self.path(each).exists()]
        if theirs:
            raise UsageError(
                f"{self.root} is not an index that cuwheel made: it has {', '.join(theirs)}",
                hint="publish into a new folder: cuwheel publish dist/*.whl --to index",
            )

    def path(self, relative: str) -> Path:
        return self.root / relative

    def read(self, relative: str) -> bytes | None:
        """None where there is no such file."""
        return files.read_if_present(self.path(relative), simple_api.LARGEST_PAGE, "a page of an index")

    def listed(self) -> Mapping[str, ListedProject]:
        path = f"{layout.list_page()}.json"
        data = self.read(path)
        if data is None:
            return {}
        found = simple_api.parse(data, ProjectList, str(self.path(path)))
        if found.schema != simple_api.SCHEMA:
            raise UsageError(
                f"{self.root} is not an index that cuwheel made", hint="publish into a new folder: --to index"
            )
        return {each.name: each for each in found.projects}

    def project(self, name: str) -> Project:
        """Without files where there is none of that name."""
        path = f"{layout.project_page(name)}.json"
        data = self.read(path)
        if data is None:
            return Project(name=name)
        found = simple_api.parse(data, Project, str(self.path(path)))
        problem = (
            f"is the page of {found.name!r}"
            if found.name != name
            else next(filter(None, map(strange, found.files)), "")
        )
        if problem:
            hint = f"cuwheel publish --check {self.root} names all that is wrong"
            raise MalformedError(self.path(path), problem, hint)
        return found

    def sums(self) -> dict[str, str]:
        return sums(self.read(layout.SUMS) or b"")

    def journal(self) -> Journal | None:
        data = self.read(JOURNAL)
        if data is None:
            return None
        try:
            found = codec.decode(data, Journal)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Journal()
        return Journal(
            projects=tuple(each for each in found.projects if layout.is_project(each)),
            channels=tuple(filter(layout.is_channel, found.channels)),
            files=tuple(filter(layout.is_file, found.files)),
        )


def strange(file: PublishedFile) -> str:
    """What no page of ours says: it would be written on into other pages, or lead out of the folder."""
    hashes = (file.hashes, file.core_metadata, file.dist_info_metadata, file.facts, file.provenance_hashes)
    if not layout.is_file(file.filename):
        return f"names a file {file.filename!r}"
    if not layout.is_link(file.url, file.filename):
        return f"links to {file.url!r}"
    if file.provenance and not layout.is_link(file.provenance, file.filename + PROVENANCE):
        return f"links to {file.provenance!r}"
    if file.channels and not all(map(layout.is_channel, file.channels)):
        return f"names a channel {next(each for each in file.channels if not layout.is_channel(each))!r}"
    values = [f"{value}," for each in hashes if isinstance(each, dict) for value in each.values()]
    if not _HEXES.fullmatch("".join(values)):
        return f"has a hash of {file.filename} that is none"
    return ""


def sums(data: bytes) -> dict[str, str]:
    """Path → sha256, of the lines that say so."""
    text = data.decode("utf-8", "replace")
    if _SUMS.fullmatch(text):  # as we write it: there may be tens of thousands of lines
        return {line[_PATH_AT:]: line[: _PATH_AT - 2] for line in text.split("\n") if line}
    lines = (line.partition("  ") for line in text.splitlines())
    return {path: digest for digest, _, path in lines if _HEX.fullmatch(digest) and path}


def sums_text(sums: Mapping[str, str]) -> bytes:
    """As `sha256sum --check` reads it."""
    return "".join(f"{digest}  {path}\n" for path, digest in sorted(sums.items())).encode()
