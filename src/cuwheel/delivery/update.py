"""What an index is going to be: decided from what it is, what arrives and what is to go. Nothing is written here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.delivery import index_folder, variants
from cuwheel.delivery.arrivals import Arrival
from cuwheel.delivery.index_folder import Journal
from cuwheel.delivery.simple_api import PROVENANCE, SCHEMA, ListedProject, Project, ProjectList, PublishedFile
from cuwheel.support import limited
from cuwheel.support.files import sha256
from cuwheel.support.finding import finding
from cuwheel_core.errors import UnknownNameError
from cuwheel_core.support import bounded, wording
from cuwheel_core.support.finding import Finding
from cuwheel_core.wheel.tags import WheelName, normalised

if TYPE_CHECKING:
    from packaging.version import Version

    from cuwheel.delivery.index_folder import IndexFolder
    from cuwheel.delivery.request import PublishRequest

_EPOCH = "SOURCE_DATE_EPOCH"
_LAST = 253_402_300_799  # the last second that a date of four digits can tell
_PLATFORM_LABEL = re.compile(r"cu\d|torch|pt\d|cpu|rocm|cxx", re.ASCII)  # of a local version: what it was built for


class Update(Struct, frozen=True, kw_only=True, dict=True):
    """`projects`: every one that is touched, as it is going to be; without files it goes. `before`: as they are.

    `listed`: all projects afterwards. `arrivals`: what was given and is going to be there; `new`: those that were not.
    `refused`: those whose name has other content already. `documents`: of variants, by their names.
    `repairs`: what an interrupted run was about to change. `trusts_pages`: what pages and sums say of other files is
    taken as it is; where nothing is new they may be damaged, and are made anew.
    """

    before: Mapping[str, Project]
    projects: Mapping[str, Project]
    listed: ProjectList
    arrivals: tuple[Arrival, ...]
    new: frozenset[str]
    refused: Mapping[str, Finding]
    documents: Mapping[str, bytes] = {}
    repairs: Journal | None = None
    trusts_pages: bool = False

    @cached_property
    def gone(self) -> tuple[str, ...]:
        """Names of files that go, those too which an interrupted run left without a page that links to them."""
        kept = {each.filename for project in self.projects.values() for each in project.files}
        before = {each.filename for project in self.before.values() for each in project.files}
        return tuple(sorted({*before, *(self.repairs.files if self.repairs else ())} - kept))

    @property
    def withdrawn(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of files that are yanked now and were not, or for another reason; and of those that no longer are."""
        before = {each.filename: each.yanked for project in self.before.values() for each in project.files}
        changed = [each for name, each in self._files.items() if before.get(name, False) != each.yanked]
        yanked = sorted(each.filename for each in changed if each.yanked is not False)
        return tuple(yanked), tuple(sorted(each.filename for each in changed if each.yanked is False))

    @cached_property
    def channels(self) -> tuple[str, ...]:
        """Those that have, or had, a file of a project that is touched."""
        pages = (*self.before.values(), *self.projects.values())
        found = {channel for page in pages for each in page.files for channel in each.channels}
        return tuple(sorted({*found, *(self.repairs.channels if self.repairs else ())}))

    @cached_property
    def _files(self) -> Mapping[str, PublishedFile]:
        return {each.filename: each for page in self.projects.values() for each in page.files}

    def published(self, name: str) -> PublishedFile | None:
        """A file of a project that is touched, as it is going to be."""
        return self._files.get(name)

    @property
    def all_channels(self) -> tuple[str, ...]:
        return tuple(sorted({channel for each in self.listed.projects for channel in each.channels}))

    @property
    def journal(self) -> Journal:
        """For a run that has to finish or to undo this one."""
        files = (*sorted(self.new), *self.gone)
        return Journal(projects=tuple(self.projects), channels=self.channels, files=files)


def decide(index: IndexFolder, arrivals: Sequence[Arrival], request: PublishRequest) -> Update:
    """Raises where a file to yank or to remove is not in the index."""
    draft = _Draft(index)
    for name in draft.repairs.projects if draft.repairs else ():
        draft.files(name)
    new = {each.name for each in arrivals if draft.add(each, request.files_url or "")}
    for project, file in draft.chosen(request.yank):
        draft.put(project, replace(file, yanked=request.reason or True))
    for project, file in draft.chosen(request.unyank):
        draft.put(project, replace(file, yanked=False))
    for project, file in draft.chosen(request.remove):
        del draft.files(project)[file.filename]
    if request.keep:
        projects = [_project_of(each) for each in arrivals] or list(draft.listed)
        for project in dict.fromkeys(projects):
            draft.keep(project, request.keep)
    remaining = [each for each in arrivals if each.name in draft.files(_project_of(each))]
    return draft.update(remaining, new)


class _Draft:
    """The pages of the projects that are touched, each read when it is first asked for."""

    def __init__(self, index: IndexFolder) -> None:
        self.index = index
        self.listed = dict(index.listed())
        self.repairs = index.journal()
        self.before: dict[str, Project] = {}
        self.refused: dict[str, Finding] = {}
        self._files: dict[str, dict[str, PublishedFile]] = {}
        # Of this run, for every file of it; or the time that people set to get the same bytes again.
        epoch = bounded.whole(os.environ.get(_EPOCH, ""))
        when = datetime.now(timezone.utc) if epoch is None else datetime.fromtimestamp(min(epoch, _LAST), timezone.utc)
        self._now = when.strftime("%Y-%m-%dT%H:%M:%SZ")

    def files(self, project: str) -> dict[str, PublishedFile]:
        if project not in self._files:
            page = self.before[project] = self.index.project(project)
            self._files[project] = {each.filename: each for each in page.files}
        return self._files[project]

    def put(self, project: str, file: PublishedFile) -> None:
        self.files(project)[file.filename] = file

    def add(self, arrival: Arrival, files_url: str) -> bool:
        """Whether it is new. What is there keeps its link, its time and its mark; what is said of it is renewed."""
        project = _project_of(arrival)
        earlier = self.files(project).get(arrival.name)
        published = earlier.sha256 if earlier else self._unlisted(arrival)
        if arrival.file is None or published not in ("", arrival.sha256):
            self.refused[arrival.name] = finding(
                "publish-file-differs",
                "the index has a file of this name with other content",
                evidence=(f"published: sha256 {published}", f"given: sha256 {arrival.sha256}"),
            )
            return False
        url = earlier.url if earlier else index_folder.file_link(arrival.name, files_url)
        moment = (earlier and earlier.upload_time) or self._now
        attested = arrival.file.provenance_hashes or (earlier.provenance_hashes if earlier else None)
        listed = replace(
            arrival.file,
            url=url,
            upload_time=moment,
            yanked=earlier.yanked if earlier else False,
            provenance=url + PROVENANCE if attested else None,
            provenance_hashes=attested,
        )
        self.put(project, listed)
        return earlier is None

    def _unlisted(self, arrival: Arrival) -> str:
        """The hash of a file of that name which no page links to, unless an interrupted run left it."""
        path = self.index.path(index_folder.file_path(arrival.name))
        known = self.repairs is not None and arrival.name in self.repairs.files
        return "" if known or not path.exists() else sha256(path)

    def chosen(self, words: Iterable[str]) -> list[tuple[str, PublishedFile]]:
        return [found for word in words for found in self._chosen(word)]

    def _chosen(self, word: str) -> list[tuple[str, PublishedFile]]:
        """Finds a file by its name, or all of `name==version`; a version without a local label means all labels."""
        project, fits = _meaning(word)
        files = self.files(project)
        found = [(project, each) for name, each in files.items() if fits(name)]
        # What an interrupted run has removed already need not be there.
        if not found and not any(map(fits, self.repairs.files if self.repairs else ())):
            raise UnknownNameError("file in this index", word, wording.similar_names(word, [*files, *self.listed]))
        return found

    def keep(self, project: str, count: int) -> None:
        """The newest releases. A label for CUDA or torch makes no release of its own; that of a build does."""
        files = self.files(project)
        releases = {name: _release_of(own) for name in files if (own := _version(name))}
        newest = sorted(set(releases.values()))[-count:]
        for name, release in releases.items():
            if release not in newest:
                del files[name]

    def update(self, arrivals: Sequence[Arrival], new: Collection[str]) -> Update:
        trusts_pages = bool(new) and self.repairs is None
        documents: dict[str, bytes] = {}
        for files in self._files.values():
            made = variants.documents(self.index, files, arrivals)
            variants.put_documents(self.index, files, made, self._now)
            documents |= made
        projects = {}
        for name, files in self._files.items():
            known = self.before[name].versions if trusts_pages else ()
            projects[name] = project_page(name, files.values(), known)
        listed = dict(self.listed)
        for name, page in projects.items():
            listed[name] = ListedProject(name, channels_of(page))
        remaining = [each for name, each in sorted(listed.items()) if name not in projects or projects[name].files]
        return Update(
            before=self.before,
            projects=projects,
            listed=ProjectList(schema=SCHEMA, projects=tuple(remaining)),
            arrivals=tuple(arrivals),
            new=frozenset(each.name for each in arrivals if each.name in new),
            refused=self.refused,
            documents=documents,
            repairs=self.repairs,
            trusts_pages=trusts_pages,
        )


def project_page(name: str, files: Iterable[PublishedFile], known: Sequence[str] = ()) -> Project:
    """The page of a project in the flat index. `known`: versions that it had before, in order."""
    ordered = tuple(sorted(files, key=lambda each: each.filename))
    return Project(
        name=name, versions=index_folder.versions_in((each.filename for each in ordered), known), files=ordered
    )


def channel_page(page: Project, channel: str) -> Project:
    """The page of a channel: its links lead out of the channel's folder, and channels are the flat index's to know."""
    files = tuple(
        replace(
            each,
            url=index_folder.link_from(channel, each.url),
            provenance=each.provenance and index_folder.link_from(channel, each.provenance),
            channels=(),
        )
        for each in page.files
        if channel in each.channels
    )
    versions = index_folder.versions_in((each.filename for each in files), page.versions)
    return Project(name=page.name, versions=versions, files=files)


def channels_of(page: Project) -> tuple[str, ...]:
    return tuple(sorted({channel for each in page.files for channel in each.channels}))


def project_list(listed: ProjectList, channel: str) -> ProjectList:
    """The list of those projects that have a file in the channel."""
    return replace(
        listed, projects=tuple(ListedProject(each.name) for each in listed.projects if channel in each.channels)
    )


def _meaning(word: str) -> tuple[str, Callable[[str], bool]]:
    """The project that a file name or `name==version` belongs to, and whether it means a file."""
    name, _, version = word.partition("==")
    if not version:
        wheel = index_folder.wheel_name(word)
        return wheel.project if wheel else "", lambda file: file == word
    project, wanted = str(normalised(name)), limited.specifiers(f"=={version}")

    def fits(file: str) -> bool:
        wheel = index_folder.wheel_name(file)
        own = _version(file)
        return bool(wheel and own and wheel.project == project and wanted.contains(own, prereleases=True))

    return project, fits


def _version(file: str) -> Version | None:
    wheel = WheelName.parse(file)
    return index_folder.version_of(wheel.version) if wheel else None


def _release_of(version: Version) -> Version:
    """`1.0+cu130` is 1.0; `1.0+42.cu130`, as `cuwheel build --set label=42` writes it, is 1.0+42."""
    labels = takewhile(lambda each: not _PLATFORM_LABEL.match(each), (version.local or "").split("."))
    build = ".".join(labels)
    return limited.version(f"{version.public}+{build}" if build else version.public)


def _project_of(arrival: Arrival) -> str:
    wheel = index_folder.wheel_name(arrival.name)
    return wheel.project if wheel else ""
