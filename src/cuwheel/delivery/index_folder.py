"""A published folder as it stands: the pages that are its truth, its sums, and what an interrupted run left."""

from __future__ import annotations

import bisect
import contextlib
import re
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from cuwheel.delivery import layout, simple_api
from cuwheel.delivery.simple_api import PROVENANCE, Hashes, ListedProject, Project, ProjectList
from cuwheel.errors import MalformedError, UsageError
from cuwheel.support import codec, files, locking, quoting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from cuwheel.delivery.simple_api import PublishedFile

_PUBLISHING = f"{layout.PRIVATE}/publishing"
JOURNAL = f"{_PUBLISHING}/journal.json"
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_HEX_DIGITS, _DIGITS = b"0123456789abcdef", 64
_LINK = rf"(?:{re.escape(layout.HERE)}\1{{}}|https?://[!-~]+)"
_LINKS = rf"{_LINK.format('')}(?: {_LINK.format(re.escape(PROVENANCE))})?"
_ENTRIES = re.compile(rf"(?:({layout.FILE_NAME}) {_LINKS}(?: {layout.CHANNEL})* ?\n)*", re.ASCII)
_SERIAL = re.compile(rb"# serial (\d{1,18})\n\Z")
_LONGEST_SERIAL = 28
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

    def size(self, relative: str) -> int | None:
        """None where there is no such file."""
        try:
            return self.path(relative).stat().st_size
        except OSError:
            return None

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
        if problem := strange(found.files) if found.name == name else f"is the page of {found.name!r}":
            hint = f"{quoting.here(['cuwheel', 'publish', '--check', str(self.root)])} names all that is wrong"
            raise MalformedError(self.path(path), problem, hint)
        return found

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


def strange(files: Sequence[PublishedFile]) -> str:
    """What no page of ours says: it would be written on into other pages, or lead out of the folder.

    All files are looked at together, since there may be thousands of them.
    """
    entries = [_entry(each) for each in files]
    if not _ENTRIES.fullmatch("".join(entries)):
        wrong = next(each for each in entries if not _ENTRIES.fullmatch(each))
        return f"has a file that is not one of an index by cuwheel: {wrong.strip()[:200]!r}"
    hashes = [
        each.sha256
        for file in files
        for each in (file.hashes, file.core_metadata, file.dist_info_metadata, file.facts, file.provenance_hashes)
        if isinstance(each, Hashes) and each.sha256
    ]
    if any(len(each) != _DIGITS for each in hashes) or "".join(hashes).encode().translate(None, _HEX_DIGITS):
        return "has a hash that is not a sha256"
    return ""


def _entry(file: PublishedFile) -> str:
    """Its name, where it is, and its channels. A link may spell `+` and `!` in two ways."""
    links = f"{file.url} {file.provenance}" if file.provenance else file.url
    if "%" in links:
        links = links.replace("%2B", "+").replace("%21", "!")
    return f"{file.filename} {links} {' '.join(file.channels)}\n"


def sums(data: bytes) -> dict[str, str]:
    """Path → sha256, of the lines that say so."""
    lines = (line.partition("  ") for line in data.decode("utf-8", "replace").splitlines())
    return {path: digest for digest, _, path in lines if _HEX.fullmatch(digest) and path}


def changed_sums(data: bytes, changes: Mapping[str, str | None], *, sound: bool) -> bytes:
    """A file of sums with other hashes for some paths, or without those that have none.

    `sound`: the rest of it is as `sums_text` writes it, so that tens of thousands of lines need not be read.
    """
    if not sound:
        whole = {**sums(data), **changes}
        return sums_text({path: digest for path, digest in whole.items() if digest})
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    for path, digest in changes.items():
        at = bisect.bisect_left(lines, f"{path}\n", key=lambda line: line[_PATH_AT:])
        there = at < len(lines) and lines[at][_PATH_AT:] == f"{path}\n"
        lines[at : at + there] = [f"{digest}  {path}\n"] if digest else []
    return "".join(lines).encode()


def serial(data: bytes) -> tuple[int, bytes]:
    """The number of an index's list of hashes, and the list without it. Each change has a higher one: whoever remembers
    it notices an older list, though that is signed, too.
    """
    match = _SERIAL.search(data, max(0, len(data) - _LONGEST_SERIAL))
    return (int(match[1]), data[: match.start()]) if match else (0, data)


def with_serial(data: bytes, number: int) -> bytes:
    """In a comment, which `sha256sum --check` passes over."""
    return data + f"# serial {number}\n".encode()


def sums_text(sums: Mapping[str, str]) -> bytes:
    """As `sha256sum --check` reads it."""
    return "".join(f"{digest}  {path}\n" for path, digest in sorted(sums.items())).encode()
