"""A published index: where things are in it, the folder as it stands, and a site as its users meet it.

Every path is relative to the folder, with slashes, as it stands in links.
"""

from __future__ import annotations

import bisect
import contextlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, unquote, urljoin

import msgspec
from msgspec import Struct
from packaging.version import InvalidVersion, Version

from cuwheel.delivery import simple_api
from cuwheel.delivery.simple_api import FACTS, METADATA, PROVENANCE, SIMPLE, Hashes, ListedProject, Project, ProjectList
from cuwheel.errors import UsageError
from cuwheel.network import addresses, transfer
from cuwheel.network.client import StatusError
from cuwheel.support import codec, confined, files, limited, quoting
from cuwheel_core.errors import MalformedError
from cuwheel_core.support import bounded
from cuwheel_core.wheel.tags import WheelName, normalised

if TYPE_CHECKING:
    from cuwheel.delivery.simple_api import PublishedFile


FILES = "files"
SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
PAGE = "index.html"
CATALOGUE_PAGE = "catalogue.html"
SHIPPED_CATALOGUE, NO_CATALOGUE = "shipped", "none"  # in place of a folder or an address
PRIVATE = ".cuwheel"  # a run under way: its lock and its journal
HERE = f"../../{FILES}/"  # from a project's page in the flat index to the files
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._]*[A-Za-z0-9])?", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_.]+", re.ASCII)
_BUILD = re.compile(r"\d[A-Za-z0-9_.]*", re.ASCII)
_VARIANT = re.compile(r"[0-9a-z_.]+", re.ASCII)
CHANNEL = r"(?:cu[0-9]{2,4}(?:/torch[0-9]{1,2}\.[0-9]{1,3})?|variants)"
FILE_NAME = r"[A-Za-z0-9][A-Za-z0-9._+!-]{1,200}(?:\.whl|-variants\.json)"
_FILE = re.compile(FILE_NAME, re.ASCII)
_CHANNEL = re.compile(CHANNEL, re.ASCII)
_FEW = 100  # versions to be put among those that are in order
_LONGEST = 200  # of a file name's 255 bytes, so that `.cuwheel.json` and a writer's own suffix fit


def wheel_name(file: str) -> WheelName | None:
    """The name of a wheel that may stand in a link and in a folder; None for any other, whatever it was made for."""
    name = WheelName.parse(file)
    if name is None or len(file) > _LONGEST or not _NAME.fullmatch(name.name):
        return None
    tags = all(map(_TAG.fullmatch, (name.python, name.abi, name.platform)))
    optional = (name.build is None or _BUILD.fullmatch(name.build)) and (
        name.variant is None or _VARIANT.fullmatch(name.variant)
    )
    return name if tags and optional and version_of(name.version) else None


def is_file(name: str) -> bool:
    """Whether a file of this name may be in an index: a wheel, or a list of variants. Pages have thousands of them."""
    return bool(_FILE.fullmatch(name))


def is_project(name: str) -> bool:
    """Whether it is a normalised name of a project."""
    return bool(_NAME.fullmatch(name.replace("-", "_"))) and normalised(name) == name


def is_channel(name: str) -> bool:
    return bool(_CHANNEL.fullmatch(name))


@lru_cache(maxsize=1 << 15)  # a project's pages, those of its channels too, have the same ones
def version_of(spelled: str) -> Version | None:
    """The version as it stands in a file name."""
    try:
        return limited.version(spelled.replace("_", "-"))
    except InvalidVersion:
        return None


def spelled_version(file: str) -> str:
    """The version in the name of a wheel, or of what lies beside it, as it is spelt; empty where it is no such name."""
    return (*file.split("-", 2), "", "")[1]


def versions_in(files: Iterable[str], known: Sequence[str] = ()) -> tuple[str, ...]:
    """Those in these names, in the standard's spelling, the lowest first.

    `known`: some of them that are in order already. Thousands need not be taken apart again for a new one.
    """
    spelled = {spelled_version(each) for each in files}
    ordered = [each for each in known if each in spelled]
    found = {str(parsed) for each in spelled.difference(ordered) if (parsed := version_of(each))}.difference(ordered)
    if len(found) > _FEW:
        return tuple(sorted([*ordered, *found], key=limited.version))
    for each in found:
        bisect.insort(ordered, each, key=limited.version)
    return tuple(ordered)


def project_page(project: str, channel: str = "") -> str:
    """The path of a project's page, without `.json` or `.html`."""
    return f"{list_page(channel).removesuffix('index')}{project}/index"


def list_page(channel: str = "") -> str:
    return "/".join(filter(None, (channel, SIMPLE, "index")))


def file_link(file: str, files_url: str = "") -> str:
    """The link of a file on a page of the flat index. `files_url`: the address of the folder that holds the files."""
    return f"{files_url.rstrip('/')}/{quote(file)}" if files_url else HERE + quote(file)


def link_from(channel: str, link: str) -> str:
    """The same link from a page of a channel, which is a folder or two deeper."""
    return "../" * len(channel.split("/")) + link if channel and link.startswith(HERE) else link


def is_here(link: str) -> bool:
    """Whether a link of the flat index leads to this folder's own files."""
    return link.startswith(HERE)


def file_path(name: str) -> str:
    return f"{FILES}/{name}"


def paths_beside(name: str) -> Iterator[str]:
    """A wheel and what lies beside it."""
    yield file_path(name)
    yield file_path(name + METADATA)
    yield file_path(name + FACTS)
    yield file_path(name + PROVENANCE)


_PUBLISHING = f"{PRIVATE}/publishing"
JOURNAL = f"{_PUBLISHING}/journal.json"
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_HEX_DIGITS, _DIGITS = b"0123456789abcdef", 64
_LINK = rf"(?:{re.escape(HERE)}\1{{}}|https?://[!-~]+)"
_LINKS = rf"{_LINK.format('')}(?: {_LINK.format(re.escape(PROVENANCE))})?"
_ENTRIES = re.compile(rf"(?:({FILE_NAME}) {_LINKS}(?: {CHANNEL})* ?\n)*", re.ASCII)
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
        self.root = files.absolute(root)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One publisher at a time; another one is waited for."""
        for private in (PRIVATE, _PUBLISHING):
            confined.must_be_a_folder(self.root / private)
        with files.folder_lock(self.root / _PUBLISHING, patient=True):
            yield

    def must_be_ours(self) -> None:
        """Never write over what somebody else made."""
        if self.path(f"{list_page()}.json").exists() or self.path(JOURNAL).exists():
            self.listed()
            return
        theirs = [each for each in (SIMPLE, FILES, PAGE, SUMS) if self.path(each).exists()]
        if theirs:
            raise UsageError(
                f"{self.root} is not an index that cuwheel made: it has {', '.join(theirs)}",
                hint="publish into a new folder: cuwheel publish dist/*.whl --to index",
            )

    def path(self, relative: str) -> Path:
        return self.root / relative

    def place(self, relative: str) -> Path:
        """Where a file is written; its folders are made, and none of them is a link."""
        folder, _, name = relative.rpartition("/")
        return confined.make_folders(self.root, folder) / name

    def read(self, relative: str) -> bytes | None:
        """Reads a page of the index; None where there is no such file."""
        return files.read_if_present(self.path(relative), simple_api.LARGEST_PAGE, "a page of an index")

    def size(self, relative: str) -> int | None:
        """The size of a file of the index; None where there is no such file."""
        try:
            return self.path(relative).stat().st_size
        except OSError:
            return None

    def listed(self) -> Mapping[str, ListedProject]:
        path = f"{list_page()}.json"
        data = self.read(path)
        if data is None:
            return {}
        found = simple_api.parse_page(data, ProjectList, str(self.path(path)))
        if found.schema != simple_api.SCHEMA:
            raise UsageError(
                f"{self.root} is not an index that cuwheel made", hint="publish into a new folder: --to index"
            )
        return {each.name: each for each in found.projects}

    def project(self, name: str) -> Project:
        """A project, without files where there is none of that name."""
        path = f"{project_page(name)}.json"
        data = self.read(path)
        if data is None:
            return Project(name=name)
        found = simple_api.parse_page(data, Project, str(self.path(path)))
        if problem := strange_files(found.files) if found.name == name else f"is the page of {found.name!r}":
            hint = f"{quoting.here(['cuwheel', 'publish', '--check', str(self.root)])} names all that is wrong"
            raise MalformedError(self.path(path), problem, hint)
        return found

    def journal(self) -> Journal | None:
        data = self.read(JOURNAL)
        if data is None:
            return None
        try:
            found = codec.decode(data, Journal)
        except msgspec.DecodeError:
            return Journal()
        return Journal(
            projects=tuple(each for each in found.projects if is_project(each)),
            channels=tuple(filter(is_channel, found.channels)),
            files=tuple(filter(is_file, found.files)),
        )


def strange_files(files: Sequence[PublishedFile]) -> str:
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


def parse_sums(data: bytes) -> dict[str, str]:
    """Path → sha256, of the lines that say so."""
    lines = (line.partition("  ") for line in data.decode("utf-8", "replace").splitlines())
    return {path: digest for digest, _, path in lines if _HEX.fullmatch(digest) and path}


def changed_sums(data: bytes, changes: Mapping[str, str | None], *, sound: bool) -> bytes:
    """A file of sums with other hashes for some paths, or without those that have none.

    `sound`: the rest of it is as `sums_text` writes it, so that tens of thousands of lines need not be read.
    """
    if not sound:
        whole = {**parse_sums(data), **changes}
        return sums_text({path: digest for path, digest in whole.items() if digest})
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    for path, digest in changes.items():
        at = bisect.bisect_left(lines, f"{path}\n", key=lambda line: line[_PATH_AT:])
        listed = at < len(lines) and lines[at][_PATH_AT:] == f"{path}\n"
        lines[at : at + listed] = [f"{digest}  {path}\n"] if digest else []
    return "".join(lines).encode()


def serial(data: bytes) -> tuple[int, bytes]:
    """The number of an index's list of hashes, and the list without it. Each change has a higher one: whoever remembers
    it notices an older list, though that is signed, too.
    """
    match = _SERIAL.search(data, max(0, len(data) - _LONGEST_SERIAL))
    return (bounded.digits(match[1]), data[: match.start()]) if match else (0, data)


def with_serial(data: bytes, number: int) -> bytes:
    """The sums with a serial number in a comment, which `sha256sum --check` passes over."""
    return data + f"# serial {number}\n".encode()


def sums_text(sums: Mapping[str, str]) -> bytes:
    """The sums as `sha256sum --check` reads them."""
    return "".join(f"{digest}  {path}\n" for path, digest in sorted(sums.items())).encode()


# A published index as its users meet it: in a folder, or on a server.

_ABSENT = (404, 410)


class Site(Protocol):
    """`name`: as people know it. Paths are relative to the folder of the index."""

    name: str

    def read(self, path: str) -> bytes | None:
        """A page; None where there is none."""

    def file(self, page: str, link: str) -> contextlib.AbstractContextManager[Path | None]:
        """What a page links to, on this disk as long as the block lasts; None where the link leads nowhere."""


class FolderSite:
    def __init__(self, root: Path) -> None:
        self.index = IndexFolder(root)
        self.name = str(root)

    def read(self, path: str) -> bytes | None:
        return self.index.read(path)

    @contextlib.contextmanager
    def file(self, page: str, link: str) -> Iterator[Path | None]:
        if "://" in link:
            with _downloaded(link) as path:
                yield path
            return
        relative = unquote(urljoin(f"http://index/{page}", link)).removeprefix("http://index/")
        try:
            path = confined.inside(self.index.root.resolve(), relative, self.index.path(page))
        except MalformedError:
            yield None
            return
        yield path if path.is_file() else None


class WebSite:
    def __init__(self, url: str) -> None:
        base = url.rstrip("/").removesuffix(f"/{PAGE}").removesuffix(f"/{SIMPLE}")
        self.name = addresses.plain(base)

    def read(self, path: str) -> bytes | None:
        try:
            return transfer.fetch(f"{self.name}/{path}", limit=simple_api.LARGEST_PAGE)
        except StatusError as error:
            if error.status in _ABSENT:
                return None
            raise

    @contextlib.contextmanager
    def file(self, page: str, link: str) -> Iterator[Path | None]:
        url = urljoin(f"{self.name}/{page}", link)
        if not url.startswith(("https://", "http://")):
            yield None
            return
        with _downloaded(url) as path:
            yield path


def open_site(place: str | Path) -> Site:
    text = str(place)
    if text.startswith(("https://", "http://")):
        return WebSite(text)
    local = addresses.local_path(text)
    return FolderSite(local or Path(place))


@contextlib.contextmanager
def _downloaded(url: str) -> Iterator[Path | None]:
    with tempfile.TemporaryDirectory(prefix="cuwheel-check-") as folder:
        path = Path(folder, addresses.file_name(url))
        with contextlib.suppress(StatusError):
            transfer.download(url, path)
        yield path if path.exists() else None
