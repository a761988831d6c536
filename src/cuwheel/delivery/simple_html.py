"""The pages of the simple repository API as HTML, escaped here alone, and read back to be checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from html import escape
from html.parser import HTMLParser

from msgspec.structs import replace

from cuwheel.delivery.simple_api import API_VERSION, Hashes, Project, ProjectList, PublishedFile
from cuwheel.support.wording import file_name

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
