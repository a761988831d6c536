"""What an index says of a project's files: PEP 691 JSON or PEP 503 HTML. One bad file hides no other."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuwheel.delivery import simple_api
from cuwheel.errors import CuwheelError, MalformedError, NewerSchemaError
from cuwheel.network import addresses
from cuwheel.support import codec, log

if TYPE_CHECKING:
    from collections.abc import Iterator

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_JSON = ("application/vnd.pypi.simple.v1+json", "application/json")
_HASH = re.compile(r"(?:^|&)sha256=([0-9a-fA-F]{64})(?:&|$)", re.ASCII)
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


def files(body: bytes, kind: str, url: str) -> tuple[IndexFile, ...]:
    """`kind`: the media type. `url`: of the page, which its links are relative to."""
    is_json = kind in _JSON or (not kind and body.lstrip()[:1] == b"{")
    return tuple(_from_json(body, url) if is_json else _from_html(body, url))


class _TooManyError(MalformedError):
    """Not read in part: pages list their newest files last, as often as not."""

    def __init__(self, url: str) -> None:
        hint = "no project has so many: name another index with --index, or a folder of wheels with --find-links"
        super().__init__(url, f"lists more than {_MOST_FILES:,} files", hint)


def _from_json(body: bytes, url: str) -> Iterator[IndexFile]:
    try:
        page = codec.decode(body, _JsonPage)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(url, f"is not a page of a package index: {error}") from error
    if not page.meta.api_version.startswith("1."):
        raise NewerSchemaError(url, f"simple API {page.meta.api_version}", simple_api.API_VERSION)
    if len(page.files) > _MOST_FILES:
        raise _TooManyError(url)
    for raw in page.files:
        try:
            published = codec.decode(raw, simple_api.PublishedFile)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            log.debug("%s: a file is not read: %s", url, error)
            continue
        yanked = published.yanked if isinstance(published.yanked, str) else "" if published.yanked else None
        made = _file(
            url,
            published.url,
            sha256=published.sha256,
            size=published.size,
            requires_python=published.requires_python,
            yanked=yanked,
        )
        if made and made.file == published.filename:
            facts = published.facts.sha256 if published.facts else ""
            yield replace(made, uploaded=published.upload_time, facts=facts if _SHA256.fullmatch(facts) else "")


def _from_html(body: bytes, url: str) -> Iterator[IndexFile]:
    parser = _Links(url)
    try:
        parser.feed(body.decode("utf-8", "replace"))
        parser.close()
    except (AssertionError, ValueError) as error:  # what html.parser raises for declarations it cannot read
        raise MalformedError(url, f"is not a page of a package index: {error}") from error
    base = _joined(url, parser.base) if parser.base else url
    for link in parser.links:
        href, _, fragment = link.get("href", "").partition("#")
        hashed = _HASH.search(fragment)
        size = link.get("data-size", "")
        made = _file(
            base or url,
            href,
            sha256=hashed[1] if hashed else None,
            size=int(size[:18]) if size.isascii() and size.isdigit() else None,
            requires_python=link.get("data-requires-python") or None,
            yanked=link.get("data-yanked"),
        )
        if made:
            yield replace(made, uploaded=link.get("data-upload-time"))


class _Links(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.url = url
        self.base = ""
        self.links: list[dict[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "base" and not self.base:
            self.base = given.get("href", "")
        elif tag == "a" and given.get("href"):
            if len(self.links) == _MOST_FILES:
                raise _TooManyError(self.url)
            self.links.append(given)


def _file(
    page: str,
    href: str,
    *,
    sha256: str | None,
    size: int | None,
    requires_python: str | None,
    yanked: str | None,
) -> IndexFile | None:
    """None for what leads nowhere: a page on a server may not send us to files of this machine."""
    url = _joined(page, href)
    if url is None:
        return None
    try:
        name = addresses.file_name(url)
    except CuwheelError:
        return None
    digest = (sha256 or "").lower()
    return IndexFile(
        file=name,
        url=url,
        sha256=digest if _SHA256.fullmatch(digest) else None,
        size=size if size is not None and size > 0 else None,
        requires_python=requires_python if requires_python and len(requires_python) <= _LONGEST else None,
        yanked=yanked if yanked is None else yanked[:_LONGEST],
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
