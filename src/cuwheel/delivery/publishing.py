"""`cuwheel publish`: wheels looked at, an update decided, and carried out under the index's lock."""

from __future__ import annotations

import contextlib
import functools
from collections import defaultdict
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.delivery import (
    arrivals,
    attestations,
    index_folder,
    page,
    signing,
    simple_api,
    transaction,
    update,
    variants,
)
from cuwheel.delivery.index_folder import JOURNAL, IndexFolder, Journal
from cuwheel.delivery.simple_api import SCHEMA, Project, ProjectList
from cuwheel.delivery.variants import PublishedVariant
from cuwheel.errors import MalformedError, UnreadableError, UsageError
from cuwheel.support import codec, files, log, quoting
from cuwheel.support.finding import Finding, gravest_first
from cuwheel.support.wording import first_few, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from cuwheel.delivery.arrivals import Arrival
    from cuwheel.delivery.index_folder import Site
    from cuwheel.delivery.request import PublishRequest
    from cuwheel.delivery.simple_api import PublishedFile
    from cuwheel.delivery.transaction import Step
    from cuwheel.delivery.update import Update


# An index that is served somewhere, brought into a folder that is to be published in its place.
# Static hosting is replaced whole: what a job without a memory publishes has to have all that was there before.


def bring_existing(place: str, index: IndexFolder) -> bool:
    """Whether it brought one. Nothing happens where the folder has an index, or where none is served yet.

    Under the index's lock. What it writes counts as an interrupted run: the one that follows makes every page of it.
    """
    listing = f"{index_folder.list_page()}.json"
    if index.path(listing).exists() and not index.path(JOURNAL).exists():
        return False
    where = index_folder.open_site(place)
    data = where.read(listing)
    if data is None:
        log.info("there is no index at %s yet: this is the first one", where.name)
        return False
    listed = simple_api.parse_page(data, ProjectList, f"{where.name}/{listing}")
    if listed.schema != SCHEMA:
        raise MalformedError(where.name, "is not an index that cuwheel made")
    pages = {each.name: _served_project(where, each.name) for each in listed.projects}
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
                _bring_file(where, name, file, index)
            _write(index, f"{index_folder.project_page(name)}.json", simple_api.encode_page(page))
        for path in (index_folder.SUMS, index_folder.SIGNATURE):
            if (content := where.read(path)) is not None:
                _write(index, path, content)
        _write(index, listing, data)
    return True


def _write(index: IndexFolder, relative: str, data: bytes) -> None:
    path = index.path(relative)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, data)


def _served_project(where: Site, name: str) -> Project:
    if not index_folder.is_project(name):
        raise MalformedError(where.name, f"lists {name[:100]!r}, which is not a normalised name")
    path = f"{index_folder.project_page(name)}.json"
    data = where.read(path)
    if data is None:
        hint = quoting.here(["cuwheel", "publish", "--check", where.name])
        raise UnreadableError(f"{where.name}/{path}", "is listed but missing", hint=hint)
    page = simple_api.parse_page(data, Project, f"{where.name}/{path}")
    problem = index_folder.strange_files(page.files)
    if problem or page.name != name:
        raise MalformedError(f"{where.name}/{path}", problem or f"is the page of {page.name[:100]!r}")
    return page


def _bring_file(where: Site, project: str, file: PublishedFile, index: IndexFolder) -> None:
    page = f"{index_folder.project_page(project)}.json"
    for link, name, sha256 in _links(file):
        with where.file(page, link) as path:
            if path is None:
                raise UnreadableError(f"{where.name}: {name}", "is linked but missing")
            if sha256 and files.sha256(path) != sha256:
                raise MalformedError(f"{where.name}: {name}", "its content is not what the page says")
            to = index.path(index_folder.file_path(name))
            to.parent.mkdir(parents=True, exist_ok=True)
            files.copy(path, to)


def _links(file: PublishedFile) -> Iterator[tuple[str, str, str]]:
    """Link, name and hash of a file, unless it stays where it is, and of what lies beside it."""
    if index_folder.is_here(file.url):
        yield file.url, file.filename, file.sha256
    for suffix, sha256 in file.beside():
        yield file.url + suffix, file.filename + suffix, sha256


_LARGEST_ASSET = 2 << 30
Outcome: TypeAlias = Literal["added", "present", "refused", "sound", "wrong", "uploaded", "planned", "skipped"]


class PublishedWheel(Struct, frozen=True, kw_only=True):
    """`added`: it was not there before. `present`: it was, with the same content. `refused`: see the findings.

    `sound`, `wrong`: what a check of the index says of it. `uploaded`, or `planned` by a dry run; `skipped` where an
    upload before it failed, or where another wheel was refused: then none is added.
    """

    file: str
    sha256: str
    size: int
    added: bool
    outcome: Outcome
    channels: tuple[str, ...] = ()


class Change(Struct, frozen=True, kw_only=True):
    """A file of the folder that is written or removed."""

    path: str
    action: Literal["written", "removed"]
    size: int | None = None


class Published(Struct, frozen=True, kw_only=True):
    """`channels`: all that the index has afterwards. `removed`, `yanked`, `unyanked`: names of files."""

    wheels: tuple[PublishedWheel, ...]
    channels: tuple[str, ...]
    removed: tuple[str, ...]
    yanked: tuple[str, ...]
    unyanked: tuple[str, ...]
    changes: tuple[Change, ...]
    variants: tuple[PublishedVariant, ...]
    findings: tuple[Finding, ...]


def publish(request: PublishRequest) -> Published:
    """Decided first: where one wheel is refused, nothing is written."""
    unattested = (
        tuple(attestations.make(arrivals.wheel_paths(request.named, request.platform))) if request.attest else ()
    )
    given = arrivals.read_arrivals(request.named, request.platform)
    index = IndexFolder(request.to)
    index.must_be_ours()
    made = variants.MadeVariants(arrivals=(), variants=(), findings=())
    brought = False
    with contextlib.ExitStack() as stack:
        if request.variants and not any(each.refused for each in given):
            made = stack.enter_context(variants.made_variants(given, index))
            given += made.arrivals
        if not request.dry_run and not any(each.refused for each in given):
            stack.enter_context(index.locked())
            if request.existing:
                brought = bring_existing(request.existing, index)
        wanted = update.decide(index, [each for each in given if not each.refused], request)
        refused = {each.name for each in given if each.refused} | wanted.refused.keys()
        todo = (
            []
            if refused
            else transaction.steps_of(index, wanted, _generators(index, request), _signer(index, request.sign))
        )
        if not refused and not request.dry_run:
            transaction.carry_out(index, todo, wanted.journal)
    yanked, unyanked = ((), ()) if refused else wanted.withdrawn
    return Published(
        wheels=tuple(_wheel(each, wanted, refused) for each in given),
        channels=wanted.all_channels,
        removed=() if refused else wanted.gone,
        yanked=yanked,
        unyanked=unyanked,
        changes=tuple(_changes(todo)),
        variants=() if refused else made.variants,
        findings=(*_findings(given, wanted, request, brought=brought), *made.findings, *unattested),
    )


def _generators(index: IndexFolder, request: PublishRequest) -> list[transaction.Generator]:
    """Of further pages. The page of a catalogue comes before the link to it, and goes after."""
    asked = request.catalogue
    shown = asked != index_folder.NO_CATALOGUE if asked else index.path(index_folder.CATALOGUE_PAGE).exists()
    own: transaction.Generator = functools.partial(page.page_steps, with_catalogue=shown)
    if not asked:
        return [own]
    from cuwheel.delivery import catalogue_reach  # noqa: PLC0415 - the judge of whole catalogues takes long to import

    catalogue = catalogue_reach.catalogue_page_generator(asked)
    return [catalogue, own] if shown else [own, catalogue]


def _signer(index: IndexFolder, key: Path | None) -> transaction.Signer | None:
    if key is not None:
        return functools.partial(signing.sign, key)
    if index.path(index_folder.SIGNATURE).exists():
        raise UsageError("this index is signed, so every change of it must be", hint="--sign ~/.ssh/id_ed25519")
    return None


def _wheel(arrival: Arrival, wanted: Update, refused: Iterable[str]) -> PublishedWheel:
    """Where one is refused, none is added."""
    new = arrival.name in wanted.new
    listed = wanted.published(arrival.name) or arrival.file
    outcome: Outcome = "refused" if arrival.name in refused else "present"
    if new and outcome == "present":
        outcome = "skipped" if refused else "added"
    return PublishedWheel(
        file=arrival.name,
        sha256=arrival.sha256,
        size=arrival.size,
        added=outcome == "added",
        outcome=outcome,
        channels=listed.channels if listed else (),
    )


def _changes(todo: Sequence[Step]) -> Iterator[Change]:
    """Each path once, as it ends: sums are written twice where something goes."""
    last = {each.path: each for each in todo}
    for path, each in last.items():
        if isinstance(each, transaction.Remove):
            yield Change(path=path, action="removed")
        else:
            count = each.size if isinstance(each, transaction.Copy) else len(each.data)
            yield Change(path=path, action="written", size=count)


def _findings(given: Sequence[Arrival], wanted: Update, request: PublishRequest, *, brought: bool) -> Iterator[Finding]:
    """`brought`: the pages to make whole are those of an index that was just copied here, which is no news."""
    if wanted.repairs and not brought:
        yield Finding(
            rule="publish-interrupted",
            severity="note",
            message="an earlier run was interrupted: its pages are made whole",
            evidence=first_few(wanted.repairs.projects),
        )
    found = [(each.name, finding) for each in given for finding in each.findings]
    found += wanted.refused.items()
    if request.files_url:
        found += [(each.name, _too_large(each)) for each in given if each.size > _LARGEST_ASSET]
    yield from merged(found)


def merged(found: Iterable[tuple[str, Finding]]) -> tuple[Finding, ...]:
    """One finding for all files of which it says the same; the gravest first."""
    names: dict[Finding, list[str]] = defaultdict(list)
    for name, each in found:
        names[each].append(name)
    merged_findings = []
    for each, named in names.items():
        if len(named) == 1:
            merged_findings.append(replace(each, message=f"{named[0]}: {each.message}"))
        else:
            evidence = (*each.evidence, *first_few(named))
            merged_findings.append(replace(each, message=f"{len(named)} wheels: {each.message}", evidence=evidence))
    return gravest_first(merged_findings)


def _too_large(arrival: Arrival) -> Finding:
    return Finding(
        rule="publish-asset-size",
        severity="warning",
        message=f"it has {size(arrival.size)}, and release assets may have at most 2 GiB",
        fix="slim it for the machines that need it (cuwheel slim), or serve it from elsewhere",
    )
