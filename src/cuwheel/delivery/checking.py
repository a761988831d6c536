"""`cuwheel publish --check`: every page, link, hash, metadata file, facts file, channel and sum of an index.

What the flat index's JSON says is held against the files, and everything else against that JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import fields, replace

from cuwheel.delivery import arrivals, index_folder, page, signatures, simple_api, simple_html, transaction, update
from cuwheel.delivery.publishing import Publish, PublishedWheel, merged_findings
from cuwheel.delivery.simple_api import (
    FACTS,
    METADATA,
    PROVENANCE,
    Hashes,
    ListedProject,
    Project,
    ProjectList,
    PublishedFile,
)
from cuwheel.delivery.variants import in_channels, is_document, variants_by_document
from cuwheel.device_code import wheel_facts
from cuwheel.errors import NetworkError
from cuwheel.network import addresses
from cuwheel.proving import wheel_rules
from cuwheel.support import files, log
from cuwheel.support.finding import finding
from cuwheel.verdicts.wheel_tags import WheelSubject
from cuwheel.wheel import variant
from cuwheel.wheel.file import WheelFile
from cuwheel_core.errors import CuwheelError, MalformedError, UnreadableError
from cuwheel_core.support.finding import Finding, examine
from cuwheel_core.support.wording import first_few

if TYPE_CHECKING:
    from cuwheel.delivery.index_folder import IndexFolder, Site
    from cuwheel.wheel.variant import Variant


# The pages of an index: each is there, can be read, and says what the flat index's JSON says.

Page = TypeVar("Page", bound="Project | ProjectList")
_RENEW_PAGES = (
    "make the pages anew: cuwheel publish FOLDER/files --to FOLDER; then bring the folder to the server again"
)


class PageChecks:
    """`findings`: what is wrong, by the path of the page."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.findings: list[tuple[str, Finding]] = []

    def listed(self) -> ProjectList:
        """The projects of the index: without this page there is nothing to check."""
        path = f"{index_folder.list_page()}.json"
        data = self.site.read(path)
        if data is None:
            hint = "give the folder or the address of an index, such as cuwheel publish --check index"
            raise UnreadableError(self.site.name, f"there is no index here: it has no {path}", hint)
        return simple_api.parse_page(data, ProjectList, f"{self.site.name}/{path}")

    def projects(self, listed: ProjectList) -> dict[str, Project]:
        """Those whose own page can be read; the others get a finding."""
        found = {each.name: self._project(each) for each in listed.projects}
        return {name: page for name, page in found.items() if page}

    def _project(self, listed: ListedProject) -> Project | None:
        path = f"{index_folder.project_page(listed.name)}.json"
        page = self._parsed(path, Project) if index_folder.is_project(listed.name) else None
        if page is None:
            return None
        problems = [f"it is the page of {page.name!r}"] if page.name != listed.name else []
        problems += [] if page.files else ["it has no files"]
        strange = index_folder.strange_files(page.files)
        problems += [strange] if strange else []
        problems += [f"it names {name} twice" for name in _twice(page.files)]
        expected = update.project_page(page.name, page.files)
        if page.versions != expected.versions:
            problems.append(f"its versions are {list(page.versions)}, and its files have {list(expected.versions)}")
        self._wrong(path, problems)
        return None if strange else page

    def derived(self, listed: ProjectList, projects: Mapping[str, Project]) -> None:
        """Everything that is made of the projects' own pages."""
        for name, own in projects.items():
            self._html(f"{index_folder.project_page(name)}.html", own)
            for channel in update.channels_of(own):
                inside = update.channel_page(own, channel)
                self._both(index_folder.project_page(name, channel), inside)
        self._channels(listed, projects)
        self._html(f"{index_folder.list_page()}.html", listed)
        for channel in sorted(
            {each for row in listed.projects for each in row.channels if index_folder.is_channel(each)}
        ):
            self._both(index_folder.list_page(channel), update.project_list(listed, channel))
        for path, problem in page.page_problems(self.site.read, projects):
            self._wrong(path, [problem])

    def _channels(self, listed: ProjectList, projects: Mapping[str, Project]) -> None:
        path = f"{index_folder.list_page()}.json"
        for row in listed.projects:
            if not index_folder.is_project(row.name):
                self._wrong(path, [f"it lists {row.name!r}, which is not a normalised name"])
            elif (page := projects.get(row.name)) and row.channels != (own := update.channels_of(page)):
                message = (
                    f"it says that {row.name} is in {_channel_words(row.channels)}, but it is in {_channel_words(own)}"
                )
                self.findings.append((path, finding("index-channel", message, fix=_RENEW_PAGES)))

    def _both(self, path: str, expected: Project | ProjectList) -> None:
        found = self._parsed(f"{path}.json", type(expected))
        if found is not None:
            self._wrong(f"{path}.json", list(differences(expected, _rows(found))))
        self._html(f"{path}.html", expected)

    def _html(self, path: str, expected: Project | ProjectList) -> None:
        data = self.site.read(path)
        if data is None:
            self._wrong(path, ["it is not there"])
            return
        try:
            links = simple_html.Links(data.decode("utf-8", "replace"), path)
        except MalformedError as error:
            self._wrong(path, [error.problem])
            return
        rows: Sequence[PublishedFile | ListedProject]
        if isinstance(expected, Project):
            rows = links.files()
            shown = tuple(simple_html.as_html_shows(each) for each in expected.files)
            expected = replace(expected, files=shown)
        else:
            rows = [ListedProject(name) for name in links.projects()]
        self._wrong(path, list(differences(expected, rows)))

    def _parsed(self, path: str, type_: type[Page]) -> Page | None:
        data = self.site.read(path)
        if data is None:
            self._wrong(path, ["it is not there"])
            return None
        try:
            return simple_api.parse_page(data, type_, path)
        except CuwheelError as error:
            self._wrong(path, [error.problem if isinstance(error, MalformedError) else error.message])
            return None

    def _wrong(self, path: str, problems: Sequence[str]) -> None:
        if problems:
            about = finding("index-page", problems[0], evidence=first_few(problems[1:]), fix=_RENEW_PAGES)
            self.findings.append((path, about))


def differences(expected: Project | ProjectList, found: Sequence[PublishedFile | ListedProject]) -> Iterator[str]:
    """In words, a line for each file or project. Channels are the flat index's own, and are not compared."""
    wanted = {_name(each): replace(each, channels=()) for each in _rows(expected)}
    listed = {_name(each): replace(each, channels=()) for each in found}
    yield from (f"it lacks {name}" for name in sorted(wanted.keys() - listed.keys()))
    yield from (f"it has {name}, which should not be there" for name in sorted(listed.keys() - wanted.keys()))
    for name in sorted(wanted.keys() & listed.keys()):
        for field in fields(wanted[name]):
            one, other = getattr(wanted[name], field.name), getattr(listed[name], field.name)
            if one != other:
                yield f"{name}: {field.encode_name} is {other!r} and should be {one!r}"


def _rows(page: Project | ProjectList) -> Sequence[PublishedFile | ListedProject]:
    return page.files if isinstance(page, Project) else page.projects


def _name(row: PublishedFile | ListedProject) -> str:
    return row.filename if isinstance(row, PublishedFile) else row.name


def _twice(files: Sequence[PublishedFile]) -> list[str]:
    names = [each.filename for each in files]
    return sorted({each for each in names if names.count(each) > 1}) if len(set(names)) < len(names) else []


def _channel_words(channels: Sequence[str]) -> str:
    return ", ".join(channels) or "no channel"


# The files of an index: each is what its page says, and so is what lies beside it.

_REPLACE = "do not install it; publish the original again, or remove it: cuwheel publish --to FOLDER --remove FILE"
_RENEW_BESIDE = "publish the wheel again: cuwheel publish FOLDER/files --to FOLDER"
_LARGEST = 64 << 20  # of what lies beside a wheel


def check_file(site: Site, page: str, file: PublishedFile) -> Iterator[Finding]:
    """`page`: the path of the page that links to it."""
    try:
        yield from _file_problems(site, page, file)
    except NetworkError as error:
        yield finding("index-link", error.message, fix=error.hint or _REPLACE)


def _file_problems(site: Site, page: str, file: PublishedFile) -> Iterator[Finding]:
    with site.file(page, file.url) as path:
        if path is None:
            yield finding("index-link", f"the link leads nowhere: {file.url}", fix=_REPLACE)
            return
        if path.name != file.filename:
            yield finding("index-link", f"the link leads to another file: {file.url}", fix=_REPLACE)
            return
        size = path.stat().st_size
        if file.size is not None and size != file.size:
            short = "truncated" if size < file.size else "too long"
            yield finding("index-hash", f"it is {short}: {size:,} bytes, and the page says {file.size:,}", fix=_REPLACE)
            return
        if file.sha256 and (sha256 := files.sha256(path)) != file.sha256:
            hashes = (f"the page says {file.sha256}", f"the file has {sha256}")
            yield finding("index-hash", "its content is not what the page says", evidence=hashes, fix=_REPLACE)
            return
        if file.wheel:
            yield from _wheel(site, page, file, path)


def _wheel(site: Site, page: str, file: PublishedFile, path: Path) -> Iterator[Finding]:
    try:
        with WheelFile(path) as wheel:
            metadata = wheel.read(f"{wheel.info}METADATA")
            facts = wheel_facts.of_wheel(wheel, sha256=file.sha256)
            yield from examine(wheel_rules.VARIANT_RULES, WheelSubject(wheel=wheel, survey=wheel_facts.survey(facts)))
    except (CuwheelError, KeyError) as error:
        problem = error.message if isinstance(error, CuwheelError) else "it has no METADATA"
        yield finding("index-hash", f"it is not a wheel that can be read: {problem}", fix=_REPLACE)
        return
    both = (file.core_metadata, file.dist_info_metadata)
    if problem := _beside(site, page, file.url + METADATA, metadata, both):
        yield finding("index-metadata", problem, fix=_RENEW_BESIDE)
    if problem := _beside(site, page, file.url + FACTS, wheel_facts.encoded(facts), (file.facts,)):
        yield finding("index-facts", problem, fix=_RENEW_BESIDE)
    if file.provenance and (problem := _provenance(site, page, file)):
        yield finding("index-provenance", problem, fix=_RENEW_BESIDE)
    if file.requires_python != facts.requires_python:
        message = f"the page says requires-python {file.requires_python}, and its METADATA {facts.requires_python}"
        yield finding("index-metadata", message, fix=_RENEW_BESIDE)
    # Which plain wheels stand beside variants is the page's to know.
    channels = tuple(each for each in file.channels if facts.variant or each != arrivals.VARIANTS)
    if (wanted := arrivals.channels_of_wheel(facts).names) != channels:
        message = f"it is in {_channel_words(file.channels)} and belongs in {', '.join(wanted) or 'none'}"
        yield finding("index-channel", message, fix=_RENEW_BESIDE)


def _provenance(site: Site, page: str, file: PublishedFile) -> str:
    with site.file(page, file.provenance or "") as path:
        if path is None:
            return f"there is no {file.filename}{PROVENANCE} beside it"
        data = b"".join(files.chunks(path)) if path.stat().st_size <= signatures.LARGEST_PROVENANCE else b""
    if file.provenance_hashes != Hashes(files.sha256_of(data)):
        return "its attestations are not those that the page has the hash of"
    return signatures.problem_of_provenance(data, file.filename, file.sha256)


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


# The variants of an index: each release that has some has their document, and it says what the wheels say.

_RENEW = "make it anew: cuwheel publish FOLDER/files --to FOLDER"


def check_variants(site: Site, name: str, page: Project) -> Iterator[tuple[str, Finding]]:
    """What is wrong, by the file that it is wrong with. `name`: of the project."""
    where = f"{index_folder.project_page(name)}.json"
    files = {each.filename: each for each in page.files}
    wanted = variants_by_document(files)
    for document in sorted({*wanted, *filter(is_document, files)}):
        wheels = [files[str(each)] for each in wanted.get(document, ())]
        problems = _variant_problems(site, where, files.get(document), wheels)
        if found := list(problems):
            yield document, finding("index-variants", found[0], evidence=first_few(found[1:]), fix=_RENEW)
    for before, after in zip(page.files, in_channels(page.files), strict=True):
        if before.channels != after.channels:
            message = f"it is in {_channel_words(before.channels)}, and belongs in {_channel_words(after.channels)}"
            yield before.filename, finding("index-channel", message, fix=_RENEW)


def _variant_problems(
    site: Site, where: str, document: PublishedFile | None, wheels: list[PublishedFile]
) -> Iterator[str]:
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
    """The variant of a published wheel; None where that cannot be told, which other checks tell."""
    with site.file(where, wheel.url + FACTS) as path:
        try:
            return wheel_facts.load(path).variant if path else None
        except CuwheelError:
            return None


def check_index(place: str | Path, signers: Path | None = None) -> Publish:
    """An index in a folder, or on a server: then every file is downloaded. `signers`: one of them must have signed."""
    found = index_folder.open_site(place)
    pages = PageChecks(found)
    listed = pages.listed()
    projects = pages.projects(listed)
    pages.derived(listed, projects)
    wheels, findings = _files(found, projects)
    findings += [each for name, page in projects.items() for each in check_variants(found, name, page)]
    findings += [(index_folder.SUMS, each) for each in _sums(found, projects)]
    findings += [(index_folder.SIGNATURE, each) for each in _signature(found, signers)]
    if isinstance(found, index_folder.FolderSite):
        findings += list(_leftovers(found.index, projects))
    return Publish(
        action="check",
        place=found.name,
        wheels=wheels,
        channels=tuple(sorted({each for row in listed.projects for each in row.channels})),
        findings=tuple(merged_findings([*pages.findings, *findings])),
    )


def _files(
    found: Site, projects: Mapping[str, Project]
) -> tuple[tuple[PublishedWheel, ...], list[tuple[str, Finding]]]:
    wheels, findings = [], []
    every = [(index_folder.project_page(name), each) for name, page in projects.items() for each in page.files]
    with log.progress("checking", sum(each.size or 0 for _, each in every) or None) as progress:
        for page, each in every:
            problems = list(check_file(found, f"{page}.json", each))
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
    data = found.read(index_folder.SUMS)
    wanted = {
        path: digest for page in projects.values() for each in page.files for path, digest in transaction.sums_of(each)
    }
    listed = index_folder.parse_sums(data or b"")
    problems = [f"it lacks {path}" for path in sorted(wanted.keys() - listed.keys())]
    problems += [f"it has {path}, which no page links to" for path in sorted(listed.keys() - wanted.keys())]
    problems += [
        f"{path}: it says {listed[path]}, and the page {wanted[path]}"
        for path in sorted(wanted.keys() & listed.keys())
        if wanted[path] != listed[path]
    ]
    if not problems and index_folder.serial(data or b"")[1] != index_folder.sums_text(wanted):
        problems = ["it has lines that are not sums"]
    if data is None or problems:
        problem = "it is not there" if data is None else problems[0]
        yield finding("index-sums", problem, evidence=first_few(problems[1:]) if data is not None else (), fix=_RENEW)


def _signature(found: Site, signers: Path | None) -> Iterator[Finding]:
    signature = found.read(index_folder.SIGNATURE)
    if signers is None:
        if signature is not None:
            yield finding(
                "index-signature",
                "the index is signed, but it is not known by whom it should be",
                fix="--signers FILE, in the format of ssh-keygen's ALLOWED SIGNERS",
                severity="note",
            )
        return
    problem = "it is not there: the index is not signed"
    if signature is not None:
        problem = signatures.verify(found.read(index_folder.SUMS) or b"", signature, signers).problem
    if problem:
        yield finding("index-signature", problem)


def _leftovers(index: IndexFolder, projects: Mapping[str, Project]) -> Iterator[tuple[str, Finding]]:
    """What is in the folder and not in the index. On a server nobody can list it."""
    linked = {
        path for page in projects.values() for each in page.files for path in index_folder.paths_beside(each.filename)
    }
    present = {index_folder.file_path(each.name) for each in index.path(index_folder.FILES).glob("*")}
    if extra := sorted(present - linked):
        yield (
            extra[0],
            finding(
                "index-unlisted",
                f"no page links to {'it' if len(extra) == 1 else f'this and {len(extra) - 1} more files'}",
                evidence=first_few(extra[1:]),
            ),
        )
    journal = index.journal()
    if journal is not None:
        yield (
            str(index.root),
            finding(
                "publish-interrupted",
                "publishing was interrupted, or is still running",
                fix="run it again; the next run makes the index whole",
                severity="warning",
            ),
        )
    known = {channel for page in projects.values() for each in page.files for channel in each.channels}
    known |= set(journal.channels) if journal is not None else set()  # half made, as was said above
    for path in sorted({*index.root.glob("*/simple"), *index.root.glob("*/*/simple")}):
        channel = path.parent.relative_to(index.root).as_posix()
        if index_folder.is_channel(channel) and channel not in known:
            yield (
                channel,
                finding(
                    "index-channel",
                    "this channel is there, but no file of the index belongs in it",
                    fix=f"remove the folder {channel}/simple",
                ),
            )
