"""The simple repository API as values, as JSON and as HTML: a project with its files, and the list of projects.

PEP 503, 691, 700, 714, 740. Keys that begin with an underscore are the index's own (PEP 691 leaves them to it): they
carry what cuwheel knows of a file, so that a project's `index.json` is all that has to be read to publish one more.
HTML is escaped here alone, and read back.
"""

from __future__ import annotations

from functools import lru_cache
from html import escape
from html.parser import HTMLParser
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuwheel.device_code import wheel_facts
from cuwheel.errors import MalformedError, NewerSchemaError
from cuwheel.support import codec
from cuwheel.support.wording import file_name
from cuwheel.wheel.metadata import WheelName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


API_VERSION = "1.3"
SCHEMA = "cuwheel.index/1"
# What stands behind a wheel's name for the files beside it.
METADATA, FACTS, PROVENANCE = ".metadata", wheel_facts.SUFFIX, ".provenance"
LARGEST_PAGE = 1 << 28
SIMPLE = "simple"  # the folder of an index that has its pages

Page = TypeVar("Page", bound="Project | ProjectList")
_FILE_KEYS = {
    "requires_python": "requires-python",
    "upload_time": "upload-time",
    "core_metadata": "core-metadata",
    "dist_info_metadata": "dist-info-metadata",
    "facts": "_facts",
    "provenance_hashes": "_provenance",
    "channels": "_channels",
}


class Meta(Struct, frozen=True, rename={"api_version": "api-version"}):
    api_version: str = API_VERSION


class Hashes(Struct, frozen=True, omit_defaults=True, gc=False):
    """Of a file. Others than this one are not read."""

    sha256: str = ""


class PublishedFile(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, rename=_FILE_KEYS):
    """A file of a project, as its page shows it.

    `hashes`: without any for a file that changes its content, such as the list of variants. `yanked`: a reason or True.
    `core_metadata`, `dist_info_metadata`: the hash of `<file>.metadata`, under both names that installers know.
    `facts`: the hash of `<file>.cuwheel.json`. `provenance`: a link to its attestations. `channels`: `cu130`,
    `cu130/torch2.11`.
    """

    filename: str
    url: str
    hashes: Hashes
    requires_python: str | None = None
    size: int | None = None
    upload_time: str | None = None
    yanked: bool | str = False
    core_metadata: Hashes | bool = False
    dist_info_metadata: Hashes | bool = False
    facts: Hashes | None = None
    provenance: str | None = None
    provenance_hashes: Hashes | None = None
    channels: tuple[str, ...] = ()

    @property
    def wheel(self) -> WheelName | None:
        """None for what lies beside the wheels."""
        return WheelName.parse(self.filename)

    @property
    def sha256(self) -> str:
        return self.hashes.sha256

    def files_beside(self) -> Iterator[tuple[str, str]]:
        """What lies beside it: the suffix of its name, and its sha256, which may be empty."""
        for suffix, hashes in (
            (METADATA, self.core_metadata),
            (FACTS, self.facts),
            (PROVENANCE, self.provenance_hashes),
        ):
            if isinstance(hashes, Hashes):
                yield suffix, hashes.sha256


class Project(Struct, frozen=True, kw_only=True):
    """`name` is normalised."""

    meta: Meta = Meta()
    name: str
    versions: tuple[str, ...] = ()
    files: tuple[PublishedFile, ...] = ()


class ListedProject(Struct, frozen=True, omit_defaults=True, rename={"channels": "_channels"}):
    """`channels`: those that have a file of it."""

    name: str
    channels: tuple[str, ...] = ()


class ProjectList(Struct, frozen=True, kw_only=True, rename={"schema": "_schema"}):
    """`schema`: of the folder's layout; an index that another tool made has none."""

    meta: Meta = Meta()
    schema: str = ""
    projects: tuple[ListedProject, ...] = ()


def encode_page(page: Project | ProjectList) -> bytes:
    """A line for each file, so that people and `diff` can read it."""
    return json_with_lines(page, json_lines(page.files if isinstance(page, Project) else page.projects))


def json_lines(rows: Iterable[PublishedFile | ListedProject]) -> list[bytes]:
    return codec.encode_lines(rows).splitlines()


def json_with_lines(page: Project | ProjectList, written: Iterable[bytes]) -> bytes:
    """`written`: its files or projects, as JSON."""
    key = "files" if isinstance(page, Project) else "projects"
    head, _, tail = codec.encode(msgspec.structs.replace(page, **{key: ()})).rpartition(b"[]")
    return b"".join((head, b"[\n", b",\n".join(written), b"\n]", tail, b"\n"))


def parse_page(data: bytes, type_: type[Page], name: str) -> Page:
    """What stands in somebody's folder, or on a server. `name`: what it is called in errors."""
    try:
        found = codec.decode(data, type_)
    except msgspec.DecodeError as error:
        raise MalformedError(name, f"is not a page of a package index: {error}") from error
    if not found.meta.api_version.startswith("1."):
        raise NewerSchemaError(name, f"simple API {found.meta.api_version}", API_VERSION)
    if isinstance(found, ProjectList) and found.schema not in ("", SCHEMA):
        raise NewerSchemaError(name, found.schema, SCHEMA)
    return found


# The simple repository API as HTML: the one place that escapes, and the way back.

_HEAD = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="pypi:repository-version" content="{version}">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; base-uri 'none'; form-action 'none'">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
</head>
<body>
<h1>{title}</h1>
"""
_TAIL = "</body>\n</html>\n"
_SECURE = "https://"  # PEP 740 allows no other address in HTML
_SPECIAL = "&<>\"'\0"
_HASHED = ("data-core-metadata", "data-dist-info-metadata", "data-cuwheel-facts")


def html_page(shown: Project | ProjectList) -> bytes:
    if isinstance(shown, Project):
        return html_with_rows(html_title(shown.name), html_rows(shown.files))
    rows = [f'<a href="{escape(each.name)}/">{escape(each.name)}</a><br>\n' for each in shown.projects]
    return html_with_rows("Simple index", rows)


def html_title(name: str) -> str:
    return f"Links for {name}"


def html_with_rows(title: str, rows: Iterable[str]) -> bytes:
    return "".join((_HEAD.format(version=API_VERSION, title=escape(title)), *rows, _TAIL)).encode()


def html_rows(files: Sequence[PublishedFile]) -> list[str]:
    """Names, links and hashes have hardly ever anything to escape: they are looked through once, and not each."""
    hashes = (each.sha256 for file in files for each in _hashes_of(file) if isinstance(each, Hashes))
    known = "".join([*(f"{each.url}{each.filename}{each.sha256}" for each in files), *hashes])
    escaped = _escaped if any(each in known for each in _SPECIAL) else str
    return [_html_row(each, escaped) for each in files]


def _html_row(file: PublishedFile, escaped: Callable[[str], str]) -> str:
    """`escaped`: for its name, its links and its hashes."""
    fragment = f"#sha256={escaped(file.sha256)}" if file.sha256 else ""
    parts = [f'<a href="{escaped(file.url)}{fragment}"']
    if file.requires_python:
        parts.append(f'data-requires-python="{_escaped(file.requires_python)}"')
    if file.yanked:
        parts.append(f'data-yanked="{_escaped(file.yanked) if isinstance(file.yanked, str) else ""}"')
    for name, hashes in zip(_HASHED, _hashes_of(file), strict=True):
        if hashes:
            parts.append(f'{name}="{"true" if hashes is True else f"sha256={escaped(hashes.sha256)}"}"')
    if file.provenance and file.provenance.startswith(_SECURE):
        parts.append(f'data-provenance="{_escaped(file.provenance)}"')
    if file.size is not None:
        parts.append(f'data-size="{file.size}"')
    if file.upload_time:
        parts.append(f'data-upload-time="{_escaped(file.upload_time)}"')
    return f"{' '.join(parts)}>{escaped(file.filename)}</a><br>\n"


def _hashes_of(file: PublishedFile) -> tuple[Hashes | bool | None, ...]:
    return file.core_metadata, file.dist_info_metadata, file.facts


@lru_cache(maxsize=256)  # many files have the same Python and time
def _escaped(text: str) -> str:
    return escape(text.replace("\0", ""))


def files_of_html(text: str) -> tuple[PublishedFile, ...]:
    """What a page of a project links to, as an installer reads it; without what HTML does not show."""
    return tuple(_read_html(attributes, label) for attributes, label in _anchors(text))


def as_html_shows(file: PublishedFile) -> PublishedFile:
    """Without what only the JSON has."""
    secure = file.provenance if file.provenance and file.provenance.startswith(_SECURE) else None
    return replace(file, provenance=secure, provenance_hashes=None)


def projects_of_html(text: str) -> tuple[str, ...]:
    """The names that a list of projects links to."""
    return tuple(attributes.get("href", "").rstrip("/") for attributes, _ in _anchors(text))


def _read_html(attributes: Mapping[str, str], label: str) -> PublishedFile:
    url, _, fragment = attributes.get("href", "").partition("#")
    size = attributes.get("data-size", "")
    yanked = attributes.get("data-yanked")
    return PublishedFile(
        filename=label or file_name(url),
        url=url,
        hashes=_hashes(fragment) or Hashes(),
        requires_python=attributes.get("data-requires-python"),
        size=int(size[:19]) if size.isascii() and size.isdigit() else None,
        upload_time=attributes.get("data-upload-time"),
        yanked=False if yanked is None else yanked or True,
        core_metadata=_hashes(attributes.get("data-core-metadata", "")) or False,
        dist_info_metadata=_hashes(attributes.get("data-dist-info-metadata", "")) or False,
        facts=_hashes(attributes.get("data-cuwheel-facts", "")),
        provenance=attributes.get("data-provenance"),
    )


def _hashes(text: str) -> Hashes | None:
    name, _, value = text.partition("=")
    return Hashes(value) if name == "sha256" else None


def _anchors(text: str) -> list[tuple[dict[str, str], str]]:
    reader = _Anchors()
    reader.feed(text)
    reader.close()
    return reader.found


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[dict[str, str], str]] = []
        self._open: dict[str, str] | None = None
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self._open, self._text = {name: value or "" for name, value in attrs}, ""

    def handle_data(self, data: str) -> None:
        self._text += data if self._open is not None else ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._open is not None:
            self.found.append((self._open, self._text.strip()))
            self._open = None
