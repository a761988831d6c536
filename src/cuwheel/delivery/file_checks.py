"""The files of an index: each is what its page says, and so is what lies beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.delivery import attestations, channels
from cuwheel.delivery.simple_api import FACTS, METADATA, PROVENANCE, Hashes
from cuwheel.device_code import wheel_facts
from cuwheel.errors import CuwheelError, NetworkError
from cuwheel.network import addresses
from cuwheel.proving import wheel_rules
from cuwheel.support import files
from cuwheel.support.finding import Finding
from cuwheel.verdicts import rule
from cuwheel.verdicts.wheel_tags import WheelSubject
from cuwheel.wheel.file import WheelFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cuwheel.delivery.simple_api import PublishedFile
    from cuwheel.delivery.site import Site

_REPLACE = "do not install it; publish the original again, or remove it: cuwheel publish --to FOLDER --remove FILE"
_RENEW = "publish the wheel again: cuwheel publish FOLDER/files --to FOLDER"
_LARGEST = 64 << 20  # of what lies beside a wheel


def of(site: Site, page: str, file: PublishedFile) -> Iterator[Finding]:
    """`page`: the path of the page that links to it."""
    try:
        yield from _of(site, page, file)
    except NetworkError as error:
        yield _found("index-link", error.message, fix=error.hint or _REPLACE)


def _of(site: Site, page: str, file: PublishedFile) -> Iterator[Finding]:
    with site.file(page, file.url) as path:
        if path is None:
            yield _found("index-link", f"the link leads nowhere: {file.url}", fix=_REPLACE)
            return
        if path.name != file.filename:
            yield _found("index-link", f"the link leads to another file: {file.url}", fix=_REPLACE)
            return
        size = path.stat().st_size
        if file.size is not None and size != file.size:
            short = "truncated" if size < file.size else "too long"
            yield _found("index-hash", f"it is {short}: {size:,} bytes, and the page says {file.size:,}", fix=_REPLACE)
            return
        if file.sha256 and (sha256 := files.sha256(path)) != file.sha256:
            hashes = (f"the page says {file.sha256}", f"the file has {sha256}")
            yield _found("index-hash", "its content is not what the page says", *hashes, fix=_REPLACE)
            return
        if file.wheel:
            yield from _wheel(site, page, file, path)


def _wheel(site: Site, page: str, file: PublishedFile, path: Path) -> Iterator[Finding]:
    try:
        with WheelFile(path) as wheel:
            metadata = wheel.read(f"{wheel.info}METADATA")
            facts = wheel_facts.of_wheel(wheel, sha256=file.sha256)
            yield from rule.examine(
                wheel_rules.VARIANT_RULES, WheelSubject(wheel=wheel, survey=wheel_facts.survey(facts))
            )
    except (CuwheelError, KeyError) as error:
        problem = error.message if isinstance(error, CuwheelError) else "it has no METADATA"
        yield _found("index-hash", f"it is not a wheel that can be read: {problem}", fix=_REPLACE)
        return
    both = (file.core_metadata, file.dist_info_metadata)
    if problem := _beside(site, page, file.url + METADATA, metadata, both):
        yield _found("index-metadata", problem, fix=_RENEW)
    if problem := _beside(site, page, file.url + FACTS, wheel_facts.encoded(facts), (file.facts,)):
        yield _found("index-facts", problem, fix=_RENEW)
    if file.provenance and (problem := _provenance(site, page, file)):
        yield _found("index-provenance", problem, fix=_RENEW)
    if file.requires_python != facts.requires_python:
        message = f"the page says requires-python {file.requires_python}, and its METADATA {facts.requires_python}"
        yield _found("index-metadata", message, fix=_RENEW)
    # Which plain wheels stand beside variants is the page's to know.
    there = tuple(each for each in file.channels if facts.variant or each != channels.VARIANTS)
    if (wanted := channels.of(facts).names) != there:
        message = f"it is in {', '.join(file.channels) or 'no channel'} and belongs in {', '.join(wanted) or 'none'}"
        yield _found("index-channel", message, fix=_RENEW)


def _provenance(site: Site, page: str, file: PublishedFile) -> str:
    with site.file(page, file.provenance or "") as path:
        if path is None:
            return f"there is no {file.filename}{PROVENANCE} beside it"
        data = b"".join(files.chunks(path)) if path.stat().st_size <= attestations.LARGEST else b""
    if file.provenance_hashes != Hashes(files.sha256_of(data)):
        return "its attestations are not those that the page has the hash of"
    return attestations.problem(data, file.filename, file.sha256)


def _beside(site: Site, page: str, link: str, wanted: bytes, hashes: Sequence[object]) -> str:
    """What is wrong with a file beside a wheel. `hashes`: those that the page has for it."""
    name = addresses.file_name(link)
    with site.file(page, link) as path:
        if path is None:
            return f"there is no {name} beside it"
        data = b"".join(files.chunks(path)) if path.stat().st_size <= _LARGEST else b""
    if data != wanted:
        return f"{name} is not what is in the wheel"
    if any(each != Hashes(files.sha256_of(wanted)) for each in hashes):
        return f"the page has another hash for {name}"
    return ""


def _found(rule: str, message: str, *evidence: str, fix: str) -> Finding:
    return Finding(rule=rule, severity="error", message=message, evidence=evidence, fix=fix)
