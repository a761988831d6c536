"""`cuwheel publish --check`: every page, link, hash, metadata file, facts file, channel and sum of an index.

What the flat index's JSON says is held against the files, and everything else against that JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.delivery import file_checks, index_folder, layout, signing, site, steps, variant_checks
from cuwheel.delivery.page_checks import PageChecks
from cuwheel.delivery.publishing import PublishedWheel, merged
from cuwheel.support import log
from cuwheel.support.finding import Finding
from cuwheel.support.wording import first_few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cuwheel.delivery.index_folder import IndexFolder
    from cuwheel.delivery.simple_api import Project
    from cuwheel.delivery.site import Site

_RENEW = "make it anew: cuwheel publish FOLDER/files --to FOLDER"


class Checked(Struct, frozen=True, kw_only=True):
    """`wheels`: each "sound" or "wrong"."""

    place: str
    wheels: tuple[PublishedWheel, ...]
    channels: tuple[str, ...]
    findings: tuple[Finding, ...]


def check(place: str | Path, signers: Path | None = None) -> Checked:
    """An index in a folder, or on a server: then every file is downloaded. `signers`: one of them must have signed."""
    found = site.of(place)
    pages = PageChecks(found)
    listed = pages.listed()
    projects = pages.projects(listed)
    pages.derived(listed, projects)
    wheels, findings = _files(found, projects)
    findings += [each for name, page in projects.items() for each in variant_checks.of(found, name, page)]
    findings += [(layout.SUMS, each) for each in _sums(found, projects)]
    findings += [(layout.SIGNATURE, each) for each in _signature(found, signers)]
    if isinstance(found, site.FolderSite):
        findings += list(_leftovers(found.index, projects))
    return Checked(
        place=found.name,
        wheels=wheels,
        channels=tuple(sorted({each for row in listed.projects for each in row.channels})),
        findings=tuple(merged([*pages.findings, *findings])),
    )


def _files(
    found: Site, projects: Mapping[str, Project]
) -> tuple[tuple[PublishedWheel, ...], list[tuple[str, Finding]]]:
    wheels, findings = [], []
    every = [(layout.project_page(name), each) for name, page in projects.items() for each in page.files]
    with log.progress("checking", sum(each.size or 0 for _, each in every) or None) as progress:
        for page, each in every:
            problems = list(file_checks.of(found, f"{page}.json", each))
            findings += [(each.filename, problem) for problem in problems]
            progress.advance(each.size or 0)
            wheels.append(
                PublishedWheel(
                    file=each.filename,
                    sha256=each.sha256,
                    size=each.size or 0,
                    added=False,
                    outcome="wrong" if problems else "sound",
                    channels=each.channels,
                )
            )
    return tuple(wheels), findings


def _sums(found: Site, projects: Mapping[str, Project]) -> Iterator[Finding]:
    data = found.read(layout.SUMS)
    wanted = {path: digest for page in projects.values() for each in page.files for path, digest in steps.sums_of(each)}
    there = index_folder.sums(data or b"")
    problems = [f"it lacks {path}" for path in sorted(wanted.keys() - there.keys())]
    problems += [f"it has {path}, which no page links to" for path in sorted(there.keys() - wanted.keys())]
    problems += [
        f"{path}: it says {there[path]}, and the page {wanted[path]}"
        for path in sorted(wanted.keys() & there.keys())
        if wanted[path] != there[path]
    ]
    if not problems and index_folder.serial(data or b"")[1] != index_folder.sums_text(wanted):
        problems = ["it has lines that are not sums"]
    if data is None or problems:
        problem = "it is not there" if data is None else problems[0]
        yield Finding(
            rule="index-sums",
            severity="error",
            message=problem,
            evidence=first_few(problems[1:]) if data is not None else (),
            fix=_RENEW,
        )


def _signature(found: Site, signers: Path | None) -> Iterator[Finding]:
    signature = found.read(layout.SIGNATURE)
    if signers is None:
        if signature is not None:
            yield Finding(
                rule="index-signature",
                severity="note",
                message="the index is signed, but it is not known by whom it should be",
                fix="--signers FILE, in the format of ssh-keygen's ALLOWED SIGNERS",
            )
        return
    problem = "it is not there: the index is not signed"
    if signature is not None:
        problem = signing.verify(found.read(layout.SUMS) or b"", signature, signers).problem
    if problem:
        yield Finding(
            rule="index-signature",
            severity="error",
            message=problem,
            fix="do not install from this index until its publisher has signed it: cuwheel publish … --sign KEY",
        )


def _leftovers(index: IndexFolder, projects: Mapping[str, Project]) -> Iterator[tuple[str, Finding]]:
    """What is in the folder and not in the index. On a server nobody can list it."""
    linked = {path for page in projects.values() for each in page.files for path in layout.beside(each.filename)}
    there = {layout.file(each.name) for each in index.path(layout.FILES).glob("*")}
    if extra := sorted(there - linked):
        yield (
            extra[0],
            Finding(
                rule="index-unlisted",
                severity="warning",
                message=f"no page links to {'it' if len(extra) == 1 else f'this and {len(extra) - 1} more files'}",
                evidence=first_few(extra[1:]),
                fix="publish it (cuwheel publish FOLDER/files --to FOLDER), or delete it",
            ),
        )
    journal = index.journal()
    if journal is not None:
        yield (
            str(index.root),
            Finding(
                rule="publish-interrupted",
                severity="warning",
                message="publishing was interrupted, or is still running",
                fix="run it again; the next run makes the index whole",
            ),
        )
    known = {channel for page in projects.values() for each in page.files for channel in each.channels}
    known |= set(journal.channels) if journal is not None else set()  # half made, as was said above
    for path in sorted({*index.root.glob("*/simple"), *index.root.glob("*/*/simple")}):
        channel = path.parent.relative_to(index.root).as_posix()
        if layout.is_channel(channel) and channel not in known:
            yield (
                channel,
                Finding(
                    rule="index-channel",
                    severity="error",
                    message="this channel is there, but no file of the index belongs in it",
                    fix=f"remove the folder {channel}/simple",
                ),
            )
