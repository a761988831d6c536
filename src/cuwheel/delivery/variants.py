"""Variants of a release in an index: made of the plain wheels with `--variants`, and the document that installers read.

`NAME-VERSION-variants.json` changes its content with every variant that comes or goes, so pages have no hash of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.changes.stamp import variants
from cuwheel.delivery import arrivals, index_folder
from cuwheel.delivery.arrivals import VARIANTS, Arrival
from cuwheel.delivery.simple_api import FACTS, Hashes, PublishedFile
from cuwheel.device_code import wheel_facts
from cuwheel.support.files import scratch_beside
from cuwheel.wheel import variant
from cuwheel.wheel.variant import Property
from cuwheel_core.errors import CuwheelError, MalformedError, UnreadableError
from cuwheel_core.support.finding import Finding
from cuwheel_core.support.wording import file_name
from cuwheel_core.wheel.tags import WheelName

if TYPE_CHECKING:
    from cuwheel.delivery.index_folder import IndexFolder
    from cuwheel.wheel.variant import Document, VariantSet


# The document that installers read, and who stands in the channel for the variants.

_HYPHENS = 5  # in the name of a variant wheel, at least: a page may have thousands of others


def variants_by_document(files: Iterable[str]) -> dict[str, list[WheelName]]:
    """The variant wheels among these names, by the document that they belong to."""
    found: dict[str, list[WheelName]] = {}
    for file in files:
        name = WheelName.parse(file) if file.count("-") >= _HYPHENS else None
        if name and name.variant:
            found.setdefault(variant.set_name(name), []).append(name)
    return found


def documents(index: IndexFolder, files: Iterable[str], arrivals: Sequence[Arrival]) -> dict[str, bytes]:
    """The documents of a project that is going to have these files: one for each release with variants."""
    arrived = {each.name: each.variants for each in arrivals}
    made = {}
    for name, wheels in variants_by_document(files).items():
        document = variant.together((_document(index, wheel, arrived) for wheel in wheels), name)
        made[name] = variant.encoded(_with_providers(document, index, name))
    return made


def _with_providers(document: Document, index: IndexFolder, name: str) -> Document:
    """Facts do not tell whom else than NVIDIA a variant asks; what is published now does."""
    used = {each.namespace for one in document.variants for each in one.properties} - document.providers.keys()
    data = index.read(index_folder.file_path(name)) if used else None
    try:
        before = variant.parse(data, name) if data else None
    except CuwheelError:
        before = None
    known = {each: before.providers[each] for each in sorted(used) if before and each in before.providers}
    return replace(document, namespaces=(*document.namespaces, *known), providers={**document.providers, **known})


def _document(index: IndexFolder, wheel: WheelName, arrived: Mapping[str, Document | None]) -> Document:
    if document := arrived.get(str(wheel)):
        return document
    facts = index_folder.file_path(f"{wheel}{FACTS}")
    data = index.read(facts)
    own = wheel_facts.parse(data, facts).variant if data else None
    if own is None:
        raise MalformedError(
            index.path(facts), "does not say which variant it is", hint="cuwheel publish FOLDER/files --to FOLDER"
        )
    return variant.for_nvidia([own])


def put_documents(index: IndexFolder, files: dict[str, PublishedFile], made: Mapping[str, bytes], now: str) -> None:
    """The documents among the files of a project, in place of those that it had, and its files in their channels."""
    documents = {name: files.pop(name) for name in list(files) if is_document(name)}
    links = {name: files[str(wheels[-1])].url for name, wheels in variants_by_document(files).items()}
    for name, data in made.items():
        before = documents.get(name)
        kept = before is not None and index.read(index_folder.file_path(name)) == data
        files_url = "" if index_folder.is_here(links[name]) else links[name].rpartition("/")[0]
        files[name] = PublishedFile(
            filename=name,
            url=index_folder.file_link(name, files_url),
            hashes=Hashes(),
            size=len(data),
            upload_time=before.upload_time if before and kept else now,
        )
    files |= {each.filename: each for each in in_channels(files.values())}


def is_document(name: str) -> bool:
    return name.endswith("-variants.json")


def in_channels(files: Iterable[PublishedFile]) -> list[PublishedFile]:
    """Adds the channel for variants to the variants, their documents and the plain wheels of the version."""
    listed = list(files)
    known = {each.filename for each in listed if is_document(each.filename)}
    if not known and not any(VARIANTS in each.channels for each in listed):
        return listed
    made = []
    for file in listed:
        name = WheelName.parse(file.filename)
        belongs = (variant.set_name(name) if name else file.filename) in known
        channels = {*file.channels, VARIANTS} if belongs else {*file.channels} - {VARIANTS}
        made.append(replace(file, channels=tuple(sorted(channels))))
    return made


class PublishedVariant(Struct, frozen=True, kw_only=True):
    """A variant wheel: its name, what it says, and the plain wheel whose files it has."""

    file: str
    label: str
    properties: tuple[Property, ...]
    made_from: str
    document: str


class MadeVariants(Struct, frozen=True, kw_only=True):
    """`arrivals`: the variants, and plain wheels without a label that were not given."""

    arrivals: tuple[Arrival, ...]
    variants: tuple[PublishedVariant, ...]
    findings: tuple[Finding, ...]


@contextlib.contextmanager
def made_variants(arrived: Sequence[Arrival], index: IndexFolder) -> Iterator[MadeVariants]:
    """The files are there as long as the block lasts, on the file system of the index."""
    beside = index.root.parent
    plain = [each.path for each in arrived if (name := WheelName.parse(each.name)) and not name.variant]
    try:
        beside.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnreadableError.from_os(error, beside) from error
    with scratch_beside(beside) as folder:
        sets, findings = variants.write_all(plain, folder)
        known = {each.name for each in arrived} | _plain_in(index, sets)
        paths = [Path(path) for each in sets for path in (*(wheel.path for wheel in each.wheels), *each.plain)]
        new = [each for each in paths if each.parent == folder and each.name not in known]
        yield MadeVariants(
            arrivals=tuple(arrivals.read_arrivals(new)),
            variants=tuple(_rows(sets)),
            findings=findings,
        )


def _plain_in(index: IndexFolder, sets: Sequence[VariantSet]) -> set[str]:
    """A plain wheel that is published stays the one, whichever serves more machines now."""
    named = [name for each in sets for path in each.plain if (name := WheelName.parse(file_name(path)))]
    projects = {each.project for each in named}
    return {
        each.filename
        for project in projects
        for each in index.project(project).files
        if each.wheel and not each.wheel.variant
    }


def _rows(sets: Sequence[VariantSet]) -> Iterator[PublishedVariant]:
    for each in sets:
        for wheel in each.wheels:
            yield PublishedVariant(
                file=file_name(wheel.path),
                label=wheel.label,
                properties=wheel.properties,
                made_from=file_name(wheel.made_from),
                document=file_name(each.document),
            )
