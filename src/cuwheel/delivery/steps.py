"""An update as steps, in an order in which the index is whole after each of them.

What is linked to comes before the link, what was linked to goes after it: files, sums, pages of projects, lists; then
pages that nobody lists, sums without what goes, and last the files. The JSON of the flat index is a project's truth and
is written before all that is derived from it: whatever interrupts the rest, the next run derives it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from cuwheel.delivery import layout, project_pages, simple_api, simple_html, update
from cuwheel.delivery.index_folder import changed_sums, serial, with_serial
from cuwheel.delivery.simple_api import FACTS, METADATA, PROVENANCE
from cuwheel.support import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from cuwheel.delivery.index_folder import IndexFolder
    from cuwheel.delivery.simple_api import ProjectList, PublishedFile
    from cuwheel.delivery.update import Update


class Copy(NamedTuple):
    path: str
    source: Path
    sha256: str
    size: int


class Write(NamedTuple):
    path: str
    data: bytes


class Remove(NamedTuple):
    path: str


Step: TypeAlias = "Copy | Write | Remove"
Generator: TypeAlias = "Callable[[IndexFolder, Update], Iterable[Write | Remove]]"
Sign: TypeAlias = "Callable[[bytes], bytes]"


def of(
    index: IndexFolder, wanted: Update, generators: Iterable[Generator] = (), sign: Sign | None = None
) -> list[Step]:
    """Those that change something. `generators`: what makes further pages of an update. `sign`: makes a signature."""
    found: list[Step] = []
    done: dict[str, Step] = {}  # the step before that was about the same path
    for step in _all(index, wanted, generators, sign):
        if _changes(index, step, done.get(step.path)):
            found.append(step)
            done[step.path] = step
    return found


def _all(index: IndexFolder, wanted: Update, generators: Iterable[Generator], sign: Sign | None) -> Iterator[Step]:
    for each in wanted.arrivals:
        yield Copy(layout.file(each.name), each.path, each.sha256, each.size)
        yield Write(layout.file(each.name + METADATA), each.metadata)
        yield Write(layout.file(each.name + FACTS), each.facts)
        if each.provenance:
            yield Write(layout.file(each.name + PROVENANCE), each.provenance)
    documents = [Write(layout.file(name), data) for name, data in wanted.documents.items()]
    yield from (each for each in documents if not index.path(each.path).exists())
    number, hashes = serial(index.read(layout.SUMS) or b"")
    sums = changed_sums(hashes, _sums(wanted), sound=wanted.trusts_pages)
    number += sign is not None and sums != hashes  # a list that nobody signed may be replaced by any other
    signature = index.read(layout.SIGNATURE) or b""
    signed = _signed(with_serial(sums, number) if number else sums, signature, sign)
    yield from signed
    yield from _pages(wanted)
    yield from _lists(wanted)
    yield from documents  # those that change their content: what is new in them is linked to by now
    for generate in generators:
        yield from generate(index, wanted)
    yield from _unlisted(wanted)
    lost = sorted(path for name in wanted.gone for path in layout.beside(name))
    remaining = changed_sums(sums, dict.fromkeys(lost), sound=True)
    if remaining != sums:
        number += sign is not None
        yield from _signed(with_serial(remaining, number) if number else remaining, signed[-1].data, sign)
    yield from map(Remove, lost)


def _signed(sums: bytes, before: bytes, sign: Sign | None) -> list[Write]:
    """The sums and their signature. In between, the file of signatures has both: one of them fits what is read."""
    if sign is None:
        return [Write(layout.SUMS, sums)]
    signature = sign(sums)
    return [Write(layout.SIGNATURE, signature + before), Write(layout.SUMS, sums), Write(layout.SIGNATURE, signature)]


def _changes(index: IndexFolder, step: Step, before: Step | None) -> bool:
    path = index.path(step.path)
    if isinstance(step, Remove):
        return path.exists() if before is None else not isinstance(before, Remove)
    if isinstance(step, Copy):
        return not path.exists() or files.sha256(path) != step.sha256
    if isinstance(before, Write):
        return before.data != step.data
    return index.size(step.path) != len(step.data) or index.read(step.path) != step.data


def _sums(wanted: Update) -> Mapping[str, str]:
    """Of what was given, and of what an interrupted run may have left without them."""
    given = filter(None, (wanted.published(each.name) for each in wanted.arrivals))
    repaired = wanted.repairs.projects if wanted.repairs else ()
    listed = (each for name in repaired for each in wanted.projects[name].files)
    return {path: digest for each in (*given, *listed) for path, digest in sums_of(each)}


def sums_of(file: PublishedFile) -> Iterator[tuple[str, str]]:
    """What SHA256SUMS says of a file and of what lies beside it."""
    path = layout.file(file.filename)
    yield from ((path + suffix, sha256) for suffix, sha256 in (("", file.sha256), *file.beside()) if sha256)


def _pages(wanted: Update) -> Iterator[Write]:
    for page in wanted.projects.values():
        if page.files:
            yield from (Write(path, data) for path, data in project_pages.rendered(page, wanted.channels))


def _lists(wanted: Update) -> Iterator[Write]:
    yield from _written(layout.list_page(), wanted.listed)
    for channel in wanted.channels:
        inside = update.project_list(wanted.listed, channel)
        if inside.projects:
            yield from _written(layout.list_page(channel), inside)


def _unlisted(wanted: Update) -> Iterator[Remove]:
    """Lists of channels that have nothing any more, then pages of projects that no list has."""
    for channel in wanted.channels:
        if channel not in wanted.all_channels:
            yield from _removed(layout.list_page(channel))
    for name, page in wanted.projects.items():
        there = update.channels_of(page)
        for channel in wanted.channels:
            if channel not in there:
                yield from _removed(layout.project_page(name, channel))
        if not page.files:
            yield from _removed(layout.project_page(name))


def _written(path: str, page: ProjectList) -> Iterator[Write]:
    yield Write(f"{path}.json", simple_api.encoded(page))
    yield Write(f"{path}.html", simple_html.page(page))


def _removed(path: str) -> Iterator[Remove]:
    yield Remove(f"{path}.json")
    yield Remove(f"{path}.html")
