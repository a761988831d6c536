"""An index that is served somewhere, brought into a folder that is to be published in its place.

Static hosting is replaced whole: what a job without a memory publishes has to have all that was there before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.delivery import index_folder, layout, simple_api, site, update
from cuwheel.delivery.index_folder import JOURNAL, Journal
from cuwheel.delivery.simple_api import SCHEMA, Project, ProjectList
from cuwheel.errors import MalformedError, UnreadableError
from cuwheel.support import codec, files, log, quoting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.delivery.index_folder import IndexFolder
    from cuwheel.delivery.simple_api import PublishedFile
    from cuwheel.delivery.site import Site


def bring(place: str, index: IndexFolder) -> bool:
    """Whether it brought one. Nothing happens where the folder has an index, or where none is served yet.

    Under the index's lock. What it writes counts as an interrupted run: the one that follows makes every page of it.
    """
    listing = f"{layout.list_page()}.json"
    if index.path(listing).exists() and not index.path(JOURNAL).exists():
        return False
    where = site.of(place)
    data = where.read(listing)
    if data is None:
        log.info("there is no index at %s yet: this is the first one", where.name)
        return False
    listed = simple_api.parse(data, ProjectList, f"{where.name}/{listing}")
    if listed.schema != SCHEMA:
        raise MalformedError(where.name, "is not an index that cuwheel made")
    pages = {each.name: _project(where, each.name) for each in listed.projects}
    everything = [file for page in pages.values() for file in page.files]
    journal = Journal(
        projects=tuple(pages),
        channels=tuple(sorted({channel for page in pages.values() for channel in update.channels_of(page)})),
        files=tuple(each.filename for each in everything),
    )
    with files.errors_of(index.root, "publish again to go on"):
        _write(index, JOURNAL, codec.encode(journal))
        for name, page in pages.items():
            for file in page.files:
                _bring(where, name, file, index)
            _write(index, f"{layout.project_page(name)}.json", simple_api.encoded(page))
        for path in (layout.SUMS, layout.SIGNATURE):
            if (content := where.read(path)) is not None:
                _write(index, path, content)
        _write(index, listing, data)
    return True


def _write(index: IndexFolder, relative: str, data: bytes) -> None:
    path = index.path(relative)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, data)


def _project(where: Site, name: str) -> Project:
    if not layout.is_project(name):
        raise MalformedError(where.name, f"lists {name[:100]!r}, which is not a normalised name")
    path = f"{layout.project_page(name)}.json"
    data = where.read(path)
    if data is None:
        hint = quoting.here(["cuwheel", "publish", "--check", where.name])
        raise UnreadableError(f"{where.name}/{path}", "is listed but missing", hint=hint)
    page = simple_api.parse(data, Project, f"{where.name}/{path}")
    problem = index_folder.strange(page.files)
    if problem or page.name != name:
        raise MalformedError(f"{where.name}/{path}", problem or f"is the page of {page.name[:100]!r}")
    return page


def _bring(where: Site, project: str, file: PublishedFile, index: IndexFolder) -> None:
    page = f"{layout.project_page(project)}.json"
    for link, name, sha256 in _links(file):
        with where.file(page, link) as path:
            if path is None:
                raise UnreadableError(f"{where.name}: {name}", "is linked but missing")
            if sha256 and files.sha256(path) != sha256:
                raise MalformedError(f"{where.name}: {name}", "its content is not what the page says")
            to = index.path(layout.file(name))
            to.parent.mkdir(parents=True, exist_ok=True)
            files.copy(path, to)


def _links(file: PublishedFile) -> Iterator[tuple[str, str, str]]:
    """Link, name and hash of a file, unless it stays where it is, and of what lies beside it."""
    if layout.is_here(file.url):
        yield file.url, file.filename, file.sha256
    for suffix, sha256 in file.beside():
        yield file.url + suffix, file.filename + suffix, sha256
