"""An update of an index as steps, and the steps carried out.

The index is whole after each step: what is linked to comes before the link, what was linked to goes after it. Files,
sums, pages of projects, lists; then pages that nobody lists, sums without what goes, and last the files. The JSON of
the flat index is a project's truth and is written before all that is derived from it: whatever interrupts the rest, the
next run derives it again. Everything new is written beside its place first, then renamed, one step after the other.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from cuwheel.delivery import index_folder, simple_api, simple_html, update
from cuwheel.delivery.index_folder import JOURNAL, changed_sums, serial, with_serial
from cuwheel.delivery.simple_api import FACTS, METADATA, PROVENANCE
from cuwheel.support import codec, files, log, system_calls
from cuwheel_core.errors import UnreadableError

if TYPE_CHECKING:
    from cuwheel.delivery.index_folder import IndexFolder, Journal
    from cuwheel.delivery.simple_api import Project, ProjectList, PublishedFile
    from cuwheel.delivery.update import Update
    from cuwheel.support.log import Progress


# A project's pages in the flat index and in its channels, written once for all of them. A channel lists some of the
# flat index's files, with links that begin a folder or two deeper: its pages are made of the flat ones' lines, since
# there may be thousands. `update.channel_page` is what they say.

# None of these can be in a text: there a quotation mark is escaped in JSON, and a bracket in HTML.
_CHANNELS = b',"_channels":'  # the last key of a file
_LINK = '<a href="'
_KEYS = ('"url":"', '"provenance":"')


def rendered_pages(page: Project, channels: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Paths and contents, the flat index first."""
    lines, rows = simple_api.json_lines(page.files), simple_html.html_rows(page.files)
    title = simple_html.html_title(page.name)
    path = index_folder.project_page(page.name)
    yield f"{path}.json", simple_api.json_with_lines(page, lines)
    yield f"{path}.html", simple_html.html_with_rows(title, rows)
    for channel in channels:
        inside = [number for number, each in enumerate(page.files) if channel in each.channels]
        if not inside:
            continue
        path = index_folder.project_page(page.name, channel)
        names = (page.files[number].filename for number in inside)
        versions = page.versions if len(inside) == len(page.files) else index_folder.versions_in(names, page.versions)
        # Which channels a file is in, the flat index alone says.
        own_lines = [lines[number].rpartition(_CHANNELS)[0] + b"}" for number in inside]
        data = simple_api.json_with_lines(replace(page, versions=versions), own_lines)
        for key in _KEYS:
            data = data.replace(
                (key + index_folder.HERE).encode(), (key + index_folder.link_from(channel, index_folder.HERE)).encode()
            )
        html = "".join([rows[number] for number in inside])
        html = html.replace(_LINK + index_folder.HERE, _LINK + index_folder.link_from(channel, index_folder.HERE))
        yield f"{path}.json", data
        yield f"{path}.html", simple_html.html_with_rows(title, [html])


# An update as steps, in the order that was said above.


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
Signer: TypeAlias = "Callable[[bytes], bytes]"


def steps_of(
    index: IndexFolder, wanted: Update, generators: Iterable[Generator] = (), sign: Signer | None = None
) -> list[Step]:
    """Those that change something. `generators`: what makes further pages of an update. `sign`: makes a signature."""
    found: list[Step] = []
    done: dict[str, Step] = {}  # the step before that was about the same path
    for step in _all_steps(index, wanted, generators, sign):
        if _changes(index, step, done.get(step.path)):
            found.append(step)
            done[step.path] = step
    return found


def _all_steps(
    index: IndexFolder, wanted: Update, generators: Iterable[Generator], sign: Signer | None
) -> Iterator[Step]:
    for each in wanted.arrivals:
        yield Copy(index_folder.file_path(each.name), each.path, each.sha256, each.size)
        yield Write(index_folder.file_path(each.name + METADATA), each.metadata)
        yield Write(index_folder.file_path(each.name + FACTS), each.facts)
        if each.provenance:
            yield Write(index_folder.file_path(each.name + PROVENANCE), each.provenance)
    documents = [Write(index_folder.file_path(name), data) for name, data in wanted.documents.items()]
    yield from (each for each in documents if not index.path(each.path).exists())
    number, hashes = serial(index.read(index_folder.SUMS) or b"")
    # Of what was given, and of what an interrupted run may have left without them.
    published = filter(None, (wanted.published(each.name) for each in wanted.arrivals))
    repaired = wanted.repairs.projects if wanted.repairs else ()
    listed = (each for name in repaired for each in wanted.projects[name].files)
    changed = {path: digest for each in (*published, *listed) for path, digest in sums_of(each)}
    sums = changed_sums(hashes, changed, sound=wanted.trusts_pages)
    number += sign is not None and sums != hashes  # a list that nobody signed may be replaced by any other
    signature = index.read(index_folder.SIGNATURE) or b""
    signed = _signed(with_serial(sums, number) if number else sums, signature, sign)
    yield from signed
    for page in wanted.projects.values():
        if page.files:
            yield from (Write(path, data) for path, data in rendered_pages(page, wanted.channels))
    yield from _written(index_folder.list_page(), wanted.listed)
    for channel in wanted.channels:
        inside = update.project_list(wanted.listed, channel)
        if inside.projects:
            yield from _written(index_folder.list_page(channel), inside)
    yield from documents  # those that change their content: what is new in them is linked to by now
    for generate in generators:
        yield from generate(index, wanted)
    yield from _unlisted(wanted)
    lost = sorted(path for name in wanted.gone for path in index_folder.paths_beside(name))
    remaining = changed_sums(sums, dict.fromkeys(lost), sound=True)
    if remaining != sums:
        number += sign is not None
        yield from _signed(with_serial(remaining, number) if number else remaining, signed[-1].data, sign)
    yield from map(Remove, lost)


def _signed(sums: bytes, before: bytes, sign: Signer | None) -> list[Write]:
    """The sums and their signature. In between, the file of signatures has both: one of them fits what is read."""
    if sign is None:
        return [Write(index_folder.SUMS, sums)]
    signature = sign(sums)
    return [
        Write(index_folder.SIGNATURE, signature + before),
        Write(index_folder.SUMS, sums),
        Write(index_folder.SIGNATURE, signature),
    ]


def _changes(index: IndexFolder, step: Step, before: Step | None) -> bool:
    path = index.path(step.path)
    if isinstance(step, Remove):
        return path.exists() if before is None else not isinstance(before, Remove)
    if isinstance(step, Copy):
        return not path.exists() or files.sha256(path) != step.sha256
    if isinstance(before, Write):
        return before.data != step.data
    return index.size(step.path) != len(step.data) or index.read(step.path) != step.data


def sums_of(file: PublishedFile) -> Iterator[tuple[str, str]]:
    """What SHA256SUMS says of a file and of what lies beside it."""
    path = index_folder.file_path(file.filename)
    yield from ((path + suffix, sha256) for suffix, sha256 in (("", file.sha256), *file.files_beside()) if sha256)


def _unlisted(wanted: Update) -> Iterator[Remove]:
    """Lists of channels that have nothing any more, then pages of projects that no list has."""
    for channel in wanted.channels:
        if channel not in wanted.all_channels:
            yield from _removed(index_folder.list_page(channel))
    for name, page in wanted.projects.items():
        channels = update.channels_of(page)
        for channel in wanted.channels:
            if channel not in channels:
                yield from _removed(index_folder.project_page(name, channel))
        if not page.files:
            yield from _removed(index_folder.project_page(name))


def _written(path: str, page: ProjectList) -> Iterator[Write]:
    yield Write(f"{path}.json", simple_api.encode_page(page))
    yield Write(f"{path}.html", simple_html.html_page(page))


def _removed(path: str) -> Iterator[Remove]:
    yield Remove(f"{path}.json")
    yield Remove(f"{path}.html")


_HINT = "the index still serves what it did before; publish again to go on"


def carry_out(index: IndexFolder, steps: Sequence[Step], journal: Journal) -> None:
    """Under the index's lock."""
    with files.errors_of(index.root, _HINT):
        # What a run that was killed had not finished goes: nobody else writes while we hold the lock. It may also have
        # been killed while it wrote the journal itself: then there is none, only its draft.
        folder = index.root if index.journal() is not None else index.path(JOURNAL).parent
        for path in list(folder.rglob(".*.part")):
            path.unlink(missing_ok=True)
            _remove_empty(path.parent, index.root)
        if steps:
            _carry_out(index, steps, journal)
        index.path(JOURNAL).unlink(missing_ok=True)


def _carry_out(index: IndexFolder, steps: Sequence[Step], journal: Journal) -> None:
    files.must_have_room(index.root, sum(each.size for each in steps if isinstance(each, Copy)))
    repairing = index.path(JOURNAL).exists()
    files.write(index.path(JOURNAL), codec.encode(journal))
    staged: list[Path | None] = []
    try:
        _stage_all(index, steps, staged)
    except BaseException:
        with contextlib.suppress(OSError):
            for unfinished in filter(None, staged):
                unfinished.unlink(missing_ok=True)
                _remove_empty(unfinished.parent, index.root)
            if not repairing:
                index.path(JOURNAL).unlink()
        raise
    for step, path in zip(steps, staged, strict=True):
        _commit(index, step, path)
    changed = {index.path(each.path).parent for each in steps}
    files.sync_all((), sorted({folder for each in changed for folder in _folders(index, each)}))


def _stage_all(index: IndexFolder, steps: Sequence[Step], staged: list[Path | None]) -> None:
    """Everything new on the disk, under names that nobody knows; those are added to `staged`, one for each step."""
    room = sum(each.size for each in steps if isinstance(each, Copy))
    with log.progress("publishing", room or None) as progress:
        for step in steps:
            removed = isinstance(step, Remove)
            staged.append(None if removed else files.temporary_sibling(index.place(step.path)))
            if path := staged[-1]:
                with path.open("xb") as file:
                    _fill(file, step, progress)
    journal = index.path(JOURNAL)
    files.sync_all((journal, *filter(None, staged)), _folders(index, journal.parent))


def _fill(file: IO[bytes], step: Step, progress: Progress) -> None:
    """What is published is what was examined: a file that changes in between is refused."""
    if not isinstance(step, Copy):
        file.write(b"" if isinstance(step, Remove) else step.data)
        return
    hasher = hashlib.sha256()
    for chunk in files.chunks(step.source):
        hasher.update(chunk)
        file.write(chunk)
        progress.advance(len(chunk))
    if hasher.hexdigest() != step.sha256:
        raise UnreadableError(
            step.source, "it changed while it was being published", hint="publish it again; nothing was changed"
        )


def _commit(index: IndexFolder, step: Step, staged: Path | None) -> None:
    path = index.path(step.path)
    if staged:
        system_calls.rename_over(staged, path)
    else:
        path.unlink(missing_ok=True)
        _remove_empty(path.parent, index.root)


def _folders(index: IndexFolder, inner: Path) -> Iterator[Path]:
    """From a folder up to the root, since any of them may be new; not those that went with the last file."""
    for folder in (inner, *inner.parents):
        if folder.is_dir():
            yield folder
        if folder == index.root:
            return


def _remove_empty(folder: Path, root: Path) -> None:
    with contextlib.suppress(OSError):  # one that is not empty stays
        while folder != root:
            folder.rmdir()
            folder = folder.parent
