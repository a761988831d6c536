"""The pages of an index: each is there, can be read, and says what the flat index's JSON says."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import fields, replace

from cuwheel.delivery import index_folder, layout, page, simple_api, simple_html, update
from cuwheel.delivery.simple_api import ListedProject, Project, ProjectList, PublishedFile
from cuwheel.errors import CuwheelError, UnreadableError
from cuwheel.support.finding import Finding
from cuwheel.support.wording import first_few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cuwheel.delivery.site import Site

Page = TypeVar("Page", bound="Project | ProjectList")
_RENEW = "make the pages anew: cuwheel publish FOLDER/files --to FOLDER; then bring the folder to the server again"


class PageChecks:
    """`findings`: what is wrong, by the path of the page."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.findings: list[tuple[str, Finding]] = []

    def listed(self) -> ProjectList:
        """Without this page there is nothing to check."""
        path = f"{layout.list_page()}.json"
        data = self.site.read(path)
        if data is None:
            hint = "give the folder or the address of an index, such as cuwheel publish --check index"
            raise UnreadableError(self.site.name, f"there is no index here: it has no {path}", hint)
        return simple_api.parse(data, ProjectList, f"{self.site.name}/{path}")

    def projects(self, listed: ProjectList) -> dict[str, Project]:
        """Those whose own page can be read; the others get a finding."""
        found = {each.name: self._project(each) for each in listed.projects}
        return {name: page for name, page in found.items() if page}

    def _project(self, listed: ListedProject) -> Project | None:
        path = f"{layout.project_page(listed.name)}.json"
        page = self._parsed(path, Project) if layout.is_project(listed.name) else None
        if page is None:
            return None
        problems = [f"it is the page of {page.name!r}"] if page.name != listed.name else []
        problems += [] if page.files else ["it has no files"]
        strange = index_folder.strange(page.files)
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
            self._html(f"{layout.project_page(name)}.html", own)
            for channel in update.channels_of(own):
                inside = update.channel_page(own, channel)
                self._both(layout.project_page(name, channel), inside)
        self._channels(listed, projects)
        self._html(f"{layout.list_page()}.html", listed)
        for channel in sorted({each for row in listed.projects for each in row.channels if layout.is_channel(each)}):
            self._both(layout.list_page(channel), update.project_list(listed, channel))
        for path, problem in page.problems(self.site.read, projects):
            self._wrong(path, [problem])

    def _channels(self, listed: ProjectList, projects: Mapping[str, Project]) -> None:
        path = f"{layout.list_page()}.json"
        for row in listed.projects:
            if not layout.is_project(row.name):
                self._wrong(path, [f"it lists {row.name!r}, which is not a normalised name"])
            elif (page := projects.get(row.name)) and row.channels != (own := update.channels_of(page)):
                message = f"it says that {row.name} is in {_words(row.channels)}, but it is in {_words(own)}"
                finding = Finding(rule="index-channel", severity="error", message=message, fix=_RENEW)
                self.findings.append((path, finding))

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
        text = data.decode("utf-8", "replace")
        rows: Sequence[PublishedFile | ListedProject]
        if isinstance(expected, Project):
            rows = simple_html.files(text)
            shown = tuple(simple_html.as_shown(each) for each in expected.files)
            expected = replace(expected, files=shown)
        else:
            rows = [ListedProject(name) for name in simple_html.projects(text)]
        self._wrong(path, list(differences(expected, rows)))

    def _parsed(self, path: str, type_: type[Page]) -> Page | None:
        data = self.site.read(path)
        if data is None:
            self._wrong(path, ["it is not there"])
            return None
        try:
            return simple_api.parse(data, type_, path)
        except CuwheelError as error:
            self._wrong(path, [error.message.removeprefix(f"{path}: ")])
            return None

    def _wrong(self, path: str, problems: Sequence[str]) -> None:
        if problems:
            finding = Finding(
                rule="index-page", severity="error", message=problems[0], evidence=first_few(problems[1:]), fix=_RENEW
            )
            self.findings.append((path, finding))


def differences(expected: Project | ProjectList, found: Sequence[PublishedFile | ListedProject]) -> Iterator[str]:
    """In words, a line for each file or project. Channels are the flat index's own, and are not compared."""
    wanted = {_name(each): replace(each, channels=()) for each in _rows(expected)}
    there = {_name(each): replace(each, channels=()) for each in found}
    yield from (f"it lacks {name}" for name in sorted(wanted.keys() - there.keys()))
    yield from (f"it has {name}, which should not be there" for name in sorted(there.keys() - wanted.keys()))
    for name in sorted(wanted.keys() & there.keys()):
        for field in fields(wanted[name]):
            one, other = getattr(wanted[name], field.name), getattr(there[name], field.name)
            if one != other:
                yield f"{name}: {field.encode_name} is {other!r} and should be {one!r}"


def _rows(page: Project | ProjectList) -> Sequence[PublishedFile | ListedProject]:
    return page.files if isinstance(page, Project) else page.projects


def _name(row: PublishedFile | ListedProject) -> str:
    return row.filename if isinstance(row, PublishedFile) else row.name


def _twice(files: Sequence[PublishedFile]) -> list[str]:
    names = [each.filename for each in files]
    return sorted({each for each in names if names.count(each) > 1}) if len(set(names)) < len(names) else []


def _words(channels: Sequence[str]) -> str:
    return ", ".join(channels) or "no channel"
