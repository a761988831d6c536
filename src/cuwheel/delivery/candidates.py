"""Every file of a project that the user's indexes and folders offer, as far as a requirement allows it.

An index answers in PEP 691 JSON or PEP 503 HTML; one bad file hides no other.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import urljoin

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidSdistFilename
from packaging.version import InvalidVersion, Version

from cuwheel.delivery import simple_api, simple_html
from cuwheel.errors import NetworkError, NewerSchemaError, UnavailableError, UsageError
from cuwheel.network import addresses, client, resolver, transfer
from cuwheel.support import codec, files, limited, log
from cuwheel_core.errors import CuwheelError, MalformedError, UnknownNameError, UnreadableError
from cuwheel_core.fix import Fix
from cuwheel_core.wheel.tags import WheelName, normalised

if TYPE_CHECKING:
    from cuwheel.network.resolver import Release
    from cuwheel.network.settings import Settings


# What an index says of a project's files.

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_JSON = ("application/vnd.pypi.simple.v1+json", "application/json")
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MOST_FILES = 100_000  # of one project; those with a release for every night have some ten thousand
_LONGEST = 4096
_SAFE = ("http", "https")


class IndexFile(Struct, frozen=True, kw_only=True):
    """A file that an index offers. `url` has no login in it; `file` is safe to be the name of one.

    `yanked`: why it was withdrawn, None where it was not. `uploaded`: when, as the index writes it. `facts`: the hash
    of its facts file; empty where the index does not say whether there is one.
    """

    file: str
    url: str
    sha256: str | None = None
    size: int | None = None
    requires_python: str | None = None
    yanked: str | None = None
    uploaded: str | None = None
    facts: str = ""


class _JsonPage(msgspec.Struct):
    meta: simple_api.Meta
    files: tuple[msgspec.Raw, ...] = ()


@functools.lru_cache(8)
def listed_files(body: bytes, kind: str, url: str) -> tuple[IndexFile, ...]:
    """`kind`: the media type. `url`: of the page, which its links are relative to. Several questions of one command
    may be about one page, and to read a thousand links takes as long as to fetch them.
    """
    is_json = kind in _JSON or (not kind and body.lstrip()[:1] == b"{")
    return tuple(_from_json(body, url) if is_json else _from_html(body, url))


class _TooManyError(MalformedError):
    """Not read in part: pages list their newest files last, as often as not."""

    def __init__(self, url: str) -> None:
        hint = "no project has so many: name another index with --index, or a folder of wheels with --find-links"
        super().__init__(url, f"lists more than {_MOST_FILES:,} files", hint)


def _from_json(body: bytes, url: str) -> Iterator[IndexFile]:
    page = codec.parse(body, _JsonPage, url, "a page of a package index")
    if not page.meta.api_version.startswith("1."):
        raise NewerSchemaError(url, f"simple API {page.meta.api_version}", simple_api.API_VERSION)
    if len(page.files) > _MOST_FILES:
        raise _TooManyError(url)
    for raw in page.files:
        try:
            published = codec.decode(raw, simple_api.PublishedFile)
        except msgspec.DecodeError as error:
            log.debug("%s: a file is not read: %s", url, error)
            continue
        made = _listed_file(url, published)
        if made and made.file == published.filename:
            yield made


def _from_html(body: bytes, url: str) -> Iterator[IndexFile]:
    page = simple_html.Links(body.decode("utf-8", "replace"), url, most=_MOST_FILES + 1)
    listed = page.files()
    if len(listed) > _MOST_FILES:
        raise _TooManyError(url)
    base = _joined(url, page.base) or url
    for published in listed:
        if made := _listed_file(base, published):
            yield made


def _listed_file(page: str, published: simple_api.PublishedFile) -> IndexFile | None:
    """A file that a page lists; None for a link of a server to files of this machine, which it may not send us to."""
    url = _joined(page, published.url)
    if url is None:
        return None
    try:
        name = addresses.file_name(url)
    except CuwheelError:
        return None
    sha256, size = published.sha256.lower(), published.size or 0
    requires_python, yanked = published.requires_python or "", published.yanked
    facts = published.facts.sha256 if published.facts else ""
    return IndexFile(
        file=name,
        url=url,
        sha256=sha256 if _SHA256.fullmatch(sha256) else None,
        size=size if size > 0 else None,
        requires_python=requires_python if 0 < len(requires_python) <= _LONGEST else None,
        yanked=yanked[:_LONGEST] if isinstance(yanked, str) else "" if yanked else None,
        uploaded=published.upload_time,
        facts=facts if _SHA256.fullmatch(facts) else "",
    )


def _joined(page: str, href: str) -> str | None:
    if len(href) > _LONGEST:
        return None
    try:
        url = addresses.plain(urljoin(page, href.strip()))
        scheme = addresses.split(url).scheme
    except (CuwheelError, ValueError):
        return None
    own = addresses.split(page).scheme
    return url if scheme in _SAFE or (scheme == "file" and own == "file") else None


_LARGEST_PAGE = 1 << 27
_AT_ONCE = 8
_SOURCES = (".tar.gz", ".zip")
_PAGES = ("index.json", "index.html")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)


class Candidate(Struct, frozen=True, kw_only=True):
    """`wheel` is None for a source distribution. `index`: where it was listed."""

    listing: IndexFile
    version: Version
    wheel: WheelName | None
    index: str

    @property
    def file(self) -> str:
        return self.listing.file

    @property
    def path(self) -> Path | None:
        """Where the file is, if it is on this machine already."""
        return addresses.local_path(self.listing.url)

    @property
    def build(self) -> tuple[int, str, str]:
        """What orders the builds of a release, as installers do: the later is taken.

        By a number of any length, since an index may list anything: the longer is the greater.
        """
        build = (self.wheel.build if self.wheel else None) or ""
        rest = build.lstrip("0123456789")
        number = build.removesuffix(rest).lstrip("0")
        return (len(number) if build else -1, number, rest)


class Claim(Enum):
    """How much the word of a source counts."""

    ALONE = "alone"  # a project that it has comes from such sources alone
    BESIDE = "beside"  # its files are added to those of others
    SHARED = "shared"  # together with the others of its kind, where none alone has it
    FIRST = "first"  # like that, but only the first of its kind that has the project


class Source(Protocol):
    """Somewhere that files of projects are listed. `place`: as answers name it."""

    @property
    def place(self) -> str: ...

    @property
    def claim(self) -> Claim: ...

    def files_of(self, project: str, session: client.Session) -> Iterable[IndexFile]:
        """All that it lists of a project; `NotThereError` where it has none."""


class IndexSource(NamedTuple):
    """A simple index, on a server or in a folder."""

    place: str
    claim: Claim

    def files_of(self, project: str, session: client.Session) -> Iterable[IndexFile]:
        return _of_index(self.place, project, session)


class LinksSource(NamedTuple):
    """A folder of wheels, or a page that links to some."""

    place: str
    claim: Claim = Claim.BESIDE

    def files_of(self, project: str, session: client.Session) -> Iterable[IndexFile]:  # noqa: ARG002 - of any project
        return _of_links(self.place, session)


class Places(NamedTuple):
    """Where to look. `first_only`: the first index that knows a project is the only one asked for it.

    `own`: indexes that somebody named. A project that one of them has comes from them alone, whatever version the
    others have; all other projects come from `indexes`, which pip or uv is configured with.
    """

    indexes: tuple[str, ...]
    find_links: tuple[str, ...] = ()
    first_only: bool = False
    own: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """All that is asked, those first whose files count where two have one of the same name."""
        configured = Claim.FIRST if self.first_only else Claim.SHARED
        return (
            *(IndexSource(each, Claim.ALONE) for each in self.own),
            *map(LinksSource, self.find_links),
            *(IndexSource(each, configured) for each in self.indexes),
        )

    @property
    def known(self) -> tuple[str, ...]:
        """All indexes."""
        return (*self.own, *self.indexes)


def parse_requirement(text: str) -> Requirement:
    """`NAME[SPEC]` as somebody wrote it."""
    try:
        found = limited.requirement(text)
    except InvalidRequirement as error:
        raise UsageError(
            f"{text!r} is not a name with versions: {str(error).splitlines()[0]}", hint="cuwheel find 'torch>=2.5'"
        ) from error
    if found.url or found.marker or not _NAME.fullmatch(found.name):
        raise UsageError(
            f"{text!r} must be a name with versions, and nothing else", hint=Fix.run("cuwheel find", found.name)
        )
    return found


def configured_places(
    found: Settings, *, indexes: Sequence[str] = (), find_links: Sequence[str] = (), no_index: bool = False
) -> Places:
    """What the command line says, and for names that it leaves open what pip, or else uv, is configured with.

    `no_index`: no other index than those of the command line.
    """
    by_pip = found.pip.chooses or not found.uv.chooses
    its = found.pip if by_pip else found.uv
    links = tuple(map(addresses.plain, (*find_links, *its.find_links)))
    own = tuple(simple_index(addresses.plain(each)) for each in indexes)
    if no_index or its.no_index:
        return Places((), links, own=own)
    named = [each.url for each in its.indexes]
    strategy = found.environ.get("UV_INDEX_STRATEGY", "first-index")
    if its.public:
        named = [resolver.public_index(), *named] if by_pip else [*named, resolver.public_index()]
    others = tuple(each for each in named if each.rstrip("/") not in {place.rstrip("/") for place in own})
    return Places(others, links, first_only=not by_pip and strategy == "first-index", own=own)


@functools.cache
def simple_index(index: str) -> str:
    """An address as installers take it: of what `cuwheel publish` wrote, the simple index in it."""
    if addresses.local_path(index) is not None or index.rstrip("/").endswith(f"/{simple_api.SIMPLE}"):
        return index
    inside = f"{index.rstrip('/')}/{simple_api.SIMPLE}"
    return inside if _answers_at(inside) else index


def _answers_at(index: str) -> bool:
    try:
        with client.request("GET", f"{index.rstrip('/')}/", {"Accept": ACCEPT}):
            return True
    except NetworkError:  # whether the server is there at all is found out when it is asked for a project
        return False


def asked_first(where: Places, settings: Settings, given: Sequence[str]) -> dict[str, str]:
    """All indexes as variables of pip and uv; `given`: those of `own`, with their logins.

    uv takes each name from the first index that has it. pip takes the newest version of any: `origins` tells.
    """
    own = [
        address_of(addresses.with_login(simple_index(addresses.plain(each)), addresses.parted(each)[1]))
        for each in given
    ]
    others = [address_of(addresses.with_login(each, client.login_at_once(each, settings))) for each in where.indexes]
    *first, last = own + others
    found = {
        "PIP_INDEX_URL": own[0],
        "PIP_EXTRA_INDEX_URL": " ".join([*own[1:], *others]) or own[0],  # in place of what pip is configured with
        "UV_DEFAULT_INDEX": last,
        "UV_INDEX": " ".join(first),
        "UV_INDEX_STRATEGY": "first-index",
        "PIP_NO_INDEX": "0",
    }
    return {name: value for name, value in found.items() if value}


def address_of(index: str) -> str:
    """An index as installers take it."""
    folder = addresses.local_path(index)
    if folder is None:
        return index
    simple = folder / simple_api.SIMPLE
    return files.absolute(simple if simple.is_dir() else folder).as_uri()


def origins(releases: Iterable[Release], where: Places, session: client.Session) -> dict[str, str]:
    """Normalised name → the index that lists the file; refused where `own` has the project, and not this file."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda each: (normalised(each.name), _origin(each, where, session)), releases))
    return dict(found)


def files_of(index: str, project: str) -> tuple[IndexFile, ...]:
    """All that an index lists of a project."""
    with client.Session() as session:
        try:
            return tuple(_of_index(index, project, session))
        except client.NotThereError:
            return ()


def _origin(release: Release, where: Places, session: client.Session) -> str:
    project = normalised(release.name)

    def listed_by(index: str) -> list[IndexFile]:
        try:
            return [each for each in _of_index(index, project, session) if _candidate(each, project, index)]
        except client.NotThereError:
            return []

    local = addresses.local_path(release.url)
    if local and (folder := next((each for each in where.find_links if _is_in(local, each)), None)):
        return folder
    for index in where.own:
        if there := listed_by(index):
            if any(_is_same_file(each, release) for each in there):
                return index
            raise UnavailableError(
                f"{release.file} is not from {index}, which has {project} itself: another index has that name, too",
                hint='pip takes the newest of all indexes; uv takes a name from one: pip install "cuwheel[build]"',
            )
    for index in where.indexes:
        with contextlib.suppress(NetworkError, UnreadableError):
            if any(_is_same_file(each, release) for each in listed_by(index)):
                return index
    return release.url


def _is_in(path: Path, place: str) -> bool:
    folder = addresses.local_path(place)
    return folder is not None and path.is_relative_to(files.absolute(folder))


def _is_same_file(listing: IndexFile, release: Release) -> bool:
    return listing.file == release.file and (not release.sha256 or listing.sha256 in (None, release.sha256))


def releases_of(requirement: str) -> set[Version]:
    """The versions that the configured indexes have of it."""
    with client.Session() as session:
        return {
            each.version
            for each in list_candidates(parse_requirement(requirement), configured_places(session.settings), session)
        }


def no_such_release(requirement: Requirement, where: Places, session: client.Session) -> UnknownNameError:
    """Makes the error for a release that a project does not have: it names the versions that are there."""
    found = {each.version for each in list_candidates(limited.requirement(requirement.name), where, session)}
    known = f"{min(found)} to {max(found)}" if len(found) > 1 else str(*found)
    name = f"{requirement.name}{requirement.specifier}"
    return UnknownNameError(
        "release", name, hint=Fix.run("cuwheel find", requirement.name, text=f"your indexes have {known}")
    )


class Listed(NamedTuple):
    """`previews`: pre-releases that the requirement would allow if it named one."""

    allowed: tuple[Candidate, ...]
    previews: tuple[Candidate, ...]


def list_candidates(requirement: Requirement, where: Places, session: client.Session) -> tuple[Candidate, ...]:
    """All that the requirement allows."""
    return list_all(requirement, where, session).allowed


def list_all(requirement: Requirement, where: Places, session: client.Session) -> Listed:
    """Each file once; the first place that lists one decides where it comes from."""
    project = normalised(requirement.name)
    sources = where.sources
    alone = [each for each in sources if each.claim is Claim.ALONE]
    found: dict[str, Candidate] = {}
    # One of these that does not answer may be the one that has it: no other is asked in its place.
    for source, answer in _ask_all(alone, project, session, every=True):
        for file in answer:
            if made := _candidate(file, project, source.place):
                found.setdefault(made.file, made)
    servers = [each.place for each in alone if addresses.local_path(each.place) is None]
    if not found and (wrong := [each for each in servers if not _answers_at(each)]):
        # Its names would be looked for elsewhere, where anybody may have taken them.
        raise UnreadableError(wrong[0], "is not a package index", hint="give the address that ends in /simple")
    asked = [each for each in sources if each.claim is Claim.BESIDE or (each.claim is not Claim.ALONE and not found)]
    decided = False
    for source, answer in _ask_all(asked, project, session):
        if decided and source.claim is Claim.FIRST:
            continue
        listed_there = [each for file in answer if (each := _candidate(file, project, source.place))]
        decided = decided or (bool(listed_there) and source.claim is Claim.FIRST)
        for each in listed_there:
            found.setdefault(each.file, each)
    if not found:
        searched = " or ".join(each.place for each in (*alone, *asked))
        searched = f"{searched} has none: check the spelling, or name" if searched else "there is no index to ask: name"
        raise UnknownNameError("package", requirement.name, hint=f"{searched} its index with --index")
    return _allowed(requirement, found.values())


def _ask_all(
    asked: Sequence[Source], project: str, session: client.Session, *, every: bool = False
) -> Iterator[tuple[Source, tuple[IndexFile, ...]]]:
    """In order, asked at the same time. One that cannot be reached is a warning, unless none can, or `every` must."""
    failures: list[NetworkError | UnreadableError] = []

    def ask(source: Source) -> tuple[IndexFile, ...] | NetworkError | UnreadableError:
        try:
            return tuple(source.files_of(project, session))
        except client.NotThereError:
            return ()
        except (NetworkError, UnreadableError) as error:
            return error

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(ask, asked))
    for source, answer in zip(asked, answers, strict=True):
        if isinstance(answer, tuple):
            yield source, answer
        else:
            failures.append(answer)
    if failures and (every or len(failures) == len(asked)):
        raise failures[0]
    for error in failures:
        log.warning("%s: only the other places were asked", error.message)


def _of_index(index: str, project: str, session: client.Session) -> Iterable[IndexFile]:
    if folder := addresses.local_path(index):
        return _of_folder_index(folder, project)
    page = transfer.read_page(f"{index.rstrip('/')}/{project}/", accept=ACCEPT, limit=_LARGEST_PAGE, session=session)
    return listed_files(page.body, page.kind, page.url)


def _of_folder_index(folder: Path, project: str) -> Iterable[IndexFile]:
    """A simple index in a folder, or the folder that `cuwheel publish` wrote, which has one in it."""
    if not folder.is_dir():
        raise UnreadableError(folder, "no such folder")
    for place in (folder / project, folder / "simple" / project):
        for name in _PAGES:
            if (place / name).is_file():
                return _of_page(place / name)
        if place.is_dir():
            return tuple(_in_folder(place))
    return ()


def is_folder_of_wheels(index: str) -> bool:
    """A folder with wheels beside each other, and not a folder of projects."""
    folder = addresses.local_path(index)
    if folder is None or not folder.is_dir() or (folder / simple_api.SIMPLE).is_dir():
        return False
    return any(each.suffix == ".whl" and each.is_file() for each in folder.iterdir())


def _of_links(place: str, session: client.Session) -> Iterable[IndexFile]:
    local = addresses.local_path(place)
    if local is None:
        page = transfer.read_page(place, accept=ACCEPT, limit=_LARGEST_PAGE, session=session)
        return listed_files(page.body, page.kind, page.url)
    if local.is_dir():
        return tuple(_in_folder(local))
    if not local.is_file():
        raise UnreadableError(local, "no such file or folder")
    return _of_page(local)


def _of_page(path: Path) -> Iterable[IndexFile]:
    body = files.read_limited(path, _LARGEST_PAGE, "a page of an index")
    kind = "application/json" if path.suffix == ".json" else "text/html"
    return listed_files(body, kind, files.absolute(path).as_uri())


def _in_folder(folder: Path) -> Iterator[IndexFile]:
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise UnreadableError.from_os(error, folder) from error
    for path in paths:
        if path.name.endswith((".whl", *_SOURCES)) and addresses.is_file_name(path.name) and path.is_file():
            yield IndexFile(file=path.name, url=files.absolute(path).as_uri(), size=path.stat().st_size)


def _candidate(listing: IndexFile, project: str, index: str) -> Candidate | None:
    """The candidate that a file is; None if it is another project's, or neither a wheel nor a source distribution."""
    try:
        if wheel := WheelName.parse(listing.file):
            if wheel.project != project:
                return None
            return Candidate(listing=listing, version=limited.version(wheel.release), wheel=wheel, index=index)
        if listing.file.endswith(_SOURCES):
            name, version = limited.sdist_file(listing.file)
            return Candidate(listing=listing, version=version, wheel=None, index=index) if name == project else None
    except (InvalidVersion, InvalidSdistFilename):
        log.debug("%s: %s has no version that can be read", index, listing.file)
    return None


def _allowed(requirement: Requirement, found: Iterable[Candidate]) -> Listed:
    """Previews only where they are asked for, or where there is nothing else; withdrawn files only by their version."""
    fitting = [each for each in found if requirement.specifier.contains(each.version, prereleases=True)]
    if any(each.operator in ("==", "===") for each in requirement.specifier):
        fitting = [replace(each, listing=replace(each.listing, yanked=None)) for each in fitting]
    finished = [each for each in fitting if not each.version.is_prerelease]
    if requirement.specifier.prereleases or not finished:
        return Listed(tuple(fitting), ())
    return Listed(tuple(finished), tuple(each for each in fitting if each.version.is_prerelease))
