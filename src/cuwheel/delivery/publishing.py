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
    existing,
    layout,
    page,
    signing,
    steps,
    transaction,
    update,
    variants,
)
from cuwheel.delivery.index_folder import IndexFolder
from cuwheel.delivery.variants import PublishedVariant
from cuwheel.errors import UsageError
from cuwheel.support.finding import Finding, gravest_first
from cuwheel.support.wording import first_few, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from cuwheel.delivery.arrivals import Arrival
    from cuwheel.delivery.request import PublishRequest
    from cuwheel.delivery.steps import Step
    from cuwheel.delivery.update import Update

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
    unattested = tuple(attestations.make(arrivals.paths(request.named, request.platform))) if request.attest else ()
    given = arrivals.read_all(request.named, request.platform)
    index = IndexFolder(request.to)
    index.must_be_ours()
    made = variants.Made(arrivals=(), variants=(), findings=())
    brought = False
    with contextlib.ExitStack() as stack:
        if request.variants and not any(each.refused for each in given):
            made = stack.enter_context(variants.of(given, index))
            given += made.arrivals
        if not request.dry_run and not any(each.refused for each in given):
            stack.enter_context(index.locked())
            if request.existing:
                brought = existing.bring(request.existing, index)
        wanted = update.decide(index, [each for each in given if not each.refused], request)
        refused = {each.name for each in given if each.refused} | wanted.refused.keys()
        todo = [] if refused else steps.of(index, wanted, _generators(index, request), _signer(index, request.sign))
        if not refused and not request.dry_run:
            transaction.execute(index, todo, wanted.journal)
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


def _generators(index: IndexFolder, request: PublishRequest) -> list[steps.Generator]:
    """Of further pages. The page of a catalogue comes before the link to it, and goes after."""
    asked = request.catalogue
    shown = asked != layout.NO_CATALOGUE if asked else index.path(layout.CATALOGUE_PAGE).exists()
    own: steps.Generator = functools.partial(page.generate, with_catalogue=shown)
    if not asked:
        return [own]
    from cuwheel.delivery import catalogue_page  # noqa: PLC0415 - the judge of whole catalogues takes long to import

    catalogue = catalogue_page.generator(asked)
    return [catalogue, own] if shown else [own, catalogue]


def _signer(index: IndexFolder, key: Path | None) -> steps.Sign | None:
    if key is not None:
        return functools.partial(signing.sign, key)
    if index.path(layout.SIGNATURE).exists():
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
        if isinstance(each, steps.Remove):
            yield Change(path=path, action="removed")
        else:
            count = each.size if isinstance(each, steps.Copy) else len(each.data)
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
    for each, files in names.items():
        if len(files) == 1:
            merged_findings.append(replace(each, message=f"{files[0]}: {each.message}"))
        else:
            evidence = (*each.evidence, *first_few(files))
            merged_findings.append(replace(each, message=f"{len(files)} wheels: {each.message}", evidence=evidence))
    return gravest_first(merged_findings)


def _too_large(arrival: Arrival) -> Finding:
    return Finding(
        rule="publish-asset-size",
        severity="warning",
        message=f"it has {size(arrival.size)}, and release assets may have at most 2 GiB",
        fix="slim it for the machines that need it (cuwheel slim), or serve it from elsewhere",
    )
