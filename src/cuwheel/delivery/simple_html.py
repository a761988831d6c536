"""The pages of the simple repository API as HTML, escaped here alone, and read back to be checked."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from html import escape
from html.parser import HTMLParser

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.delivery.simple_api import API_VERSION, Hashes, Project, ProjectList, PublishedFile
from cuwheel_core.errors import MalformedError
from cuwheel_core.support import bounded
from cuwheel_core.support.wording import file_name

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
_HASH = re.compile(r"(?:^|&)sha256=([^&]*)")


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


def as_html_shows(file: PublishedFile) -> PublishedFile:
    """Without what only the JSON has."""
    secure = file.provenance if file.provenance and file.provenance.startswith(_SECURE) else None
    return replace(file, provenance=secure, provenance_hashes=None)


class _Link(Struct):
    attributes: dict[str, str]
    text: list[str] = []  # in pieces: what never ends is not copied for each of them


class Links(HTMLParser):
    """What a page links to, as an installer reads it: no more than `most` links. `name`: of the page, in errors.

    `base`: what they are relative to, where the page says so.
    """

    def __init__(self, text: str, name: str, *, most: int = sys.maxsize) -> None:
        super().__init__(convert_charrefs=True)
        self.base = ""
        self._found: list[_Link] = []
        self._open: _Link | None = None
        self._most = most
        try:
            self.feed(_without_open_end(text))
            self.close()
        except (AssertionError, ValueError) as error:  # what html.parser raises for declarations it cannot read
            raise MalformedError(name, f"is not a page of a package index: {error}") from error

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "base" and not self.base:
            self.base = attributes.get("href", "")
        elif tag == "a" and attributes.get("href") and len(self._found) < self._most:
            self._open = _Link(attributes)
            self._found.append(self._open)

    def handle_data(self, data: str) -> None:
        if self._open:
            self._open.text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._open = None

    def projects(self) -> list[str]:
        """The names that a list of projects links to."""
        return [each.attributes["href"].rstrip("/") for each in self._found]

    def files(self) -> list[PublishedFile]:
        """Those of a project; without what HTML does not show."""
        return [_published(each.attributes, "".join(each.text).strip()) for each in self._found]


def _without_open_end(text: str) -> str:
    """The text up to a comment, or a tag, that never ends: html.parser reads all that follows once more for each."""
    begin = text.find("<!--", text.rfind("-->") + 1)
    closed = text if begin < 0 else text[:begin]
    return closed[: closed.rfind(">") + 1]


def _published(attributes: dict[str, str], label: str) -> PublishedFile:
    url, _, fragment = attributes["href"].partition("#")
    size = attributes.get("data-size", "")
    yanked = attributes.get("data-yanked")
    return PublishedFile(
        filename=label or file_name(url),
        url=url,
        hashes=_hashes(fragment) or Hashes(),
        requires_python=attributes.get("data-requires-python"),
        size=bounded.whole(size),
        upload_time=attributes.get("data-upload-time"),
        yanked=False if yanked is None else yanked or True,
        core_metadata=_hashes(attributes.get("data-core-metadata", "")) or False,
        dist_info_metadata=_hashes(attributes.get("data-dist-info-metadata", "")) or False,
        facts=_hashes(attributes.get("data-cuwheel-facts", "")),
        provenance=attributes.get("data-provenance"),
    )


def _hashes(text: str) -> Hashes | None:
    found = _HASH.search(text)
    return Hashes(found[1]) if found else None
