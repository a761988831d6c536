"""The variants of an index: each release that has some has their document, and it says what the wheels say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.delivery import layout, variant_sets
from cuwheel.delivery.simple_api import FACTS
from cuwheel.device_code import wheel_facts
from cuwheel.errors import CuwheelError
from cuwheel.support.finding import Finding
from cuwheel.support.wording import first_few
from cuwheel.wheel import variant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.delivery.simple_api import Project, PublishedFile
    from cuwheel.delivery.site import Site
    from cuwheel.wheel.variant import Variant

_RENEW = "make it anew: cuwheel publish FOLDER/files --to FOLDER"


def of(site: Site, name: str, page: Project) -> Iterator[tuple[str, Finding]]:
    """What is wrong, by the file that it is wrong with. `name`: of the project."""
    where = f"{layout.project_page(name)}.json"
    files = {each.filename: each for each in page.files}
    wanted = variant_sets.sets(files)
    for document in sorted({*wanted, *filter(variant_sets.is_document, files)}):
        wheels = [files[str(each)] for each in wanted.get(document, ())]
        problems = _problems(site, where, files.get(document), wheels)
        if found := list(problems):
            yield document, _finding("index-variants", found[0], *first_few(found[1:]))
    for before, after in zip(page.files, variant_sets.in_channels(page.files), strict=True):
        if before.channels != after.channels:
            message = f"it is in {_words(before)}, and belongs in {_words(after)}"
            yield before.filename, _finding("index-channel", message)


def _problems(site: Site, where: str, document: PublishedFile | None, wheels: list[PublishedFile]) -> Iterator[str]:
    if document is None:
        yield f"it is not there, and {wheels[0].filename} is a variant"
        return
    if not wheels:
        yield "the release has no variants"
        return
    with site.file(where, document.url) as path:
        if path is None:
            return  # of the link it is told already
        try:
            described = {each.label: each for each in variant.parse(path.read_bytes(), document.filename).variants}
        except (CuwheelError, OSError) as error:
            yield str(error).removeprefix(f"{document.filename}: ")
            return
    labels = {each.wheel.variant for each in wheels if each.wheel}
    yield from (f"it has {label}, and no wheel has this label" for label in sorted(described.keys() - labels))
    for each in wheels:
        own = _variant(site, where, each)
        if own and own.label not in described:
            yield f"it lacks {own.label}, the label of {each.filename}"
        elif own and not variant.same(own, described[own.label]):
            yield f"{own.label} is not what {each.filename} says"


def _variant(site: Site, where: str, wheel: PublishedFile) -> Variant | None:
    """None where that cannot be told: of the wheel and what lies beside it others tell."""
    with site.file(where, wheel.url + FACTS) as path:
        try:
            return wheel_facts.load(path).variant if path else None
        except CuwheelError:
            return None


def _words(file: PublishedFile) -> str:
    return ", ".join(file.channels) or "no channel"


def _finding(rule: str, message: str, *evidence: str) -> Finding:
    return Finding(rule=rule, severity="error", message=message, evidence=evidence, fix=_RENEW)
