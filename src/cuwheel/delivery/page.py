"""The page of an index: the wheel that runs on a machine, all wheels against all GPUs, and a page for each wheel.

What is new is worked out; what was there is left alone. A wheel has a script with its verdicts and a page of its own,
a project a script with the names of its wheels, and the index one page with the names of its projects.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from cuwheel.delivery import layout, page_data
from cuwheel.delivery.simple_api import FACTS
from cuwheel.delivery.steps import Remove, Write
from cuwheel.delivery.wheel_page import WheelPage
from cuwheel.device_code import wheel_facts
from cuwheel.support import html_templates, wording
from cuwheel.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import jinja2

    from cuwheel.delivery.index_folder import IndexFolder
    from cuwheel.delivery.simple_api import Project, PublishedFile
    from cuwheel.delivery.update import Update
    from cuwheel.device_code.wheel_facts import WheelFacts

INDEX = "index.html"
FOLDER = "page"
_MACHINES = f"{FOLDER}/machines.js"
_TEMPLATES = Path(__file__).with_name("templates")


def generate(index: IndexFolder, wanted: Update, *, with_catalogue: bool = False) -> Iterator[Write | Remove]:
    """What an update of an index changes of its page. `with_catalogue`: it has the page of a catalogue, too."""
    new = [facts for facts in _arrived(index, wanted) if not _is_made(index, facts)]
    projects = [page for page in wanted.projects.values() if page.files]
    names = [each.name for each in wanted.listed.projects]
    made = files(new, projects, names, with_catalogue=with_catalogue)
    if not (wanted.trusts_pages and _has_same_for_all(index)):
        made = {**same_for_all(), **made}
    yield from (Write(path, data) for path, data in made.items())
    for file in wanted.gone:
        yield from map(Remove, paths_of(file))
    for name, page in wanted.projects.items():
        if not page.files:
            yield Remove(project_path(name))


def _has_same_for_all(index: IndexFolder) -> bool:
    """Whether this release of cuwheel wrote them: working them out takes longer than all else of a small wheel."""
    return (index.read(_MACHINES) or b"").startswith(page_data.machines_mark())


def _is_made(index: IndexFolder, facts: WheelFacts) -> bool:
    script, own_page = paths_of(facts.file)
    return (index.read(script) or b"").startswith(page_data.mark(facts)) and index.path(own_page).exists()


def _arrived(index: IndexFolder, wanted: Update) -> Iterator[WheelFacts]:
    """The wheels that were given, and those that an interrupted run was about to add."""
    given = {each.name: each.facts for each in wanted.arrivals}
    there = {file.filename for page in wanted.projects.values() for file in page.files}
    interrupted = [each for each in (wanted.repairs.files if wanted.repairs else ()) if each in there]
    for file in dict.fromkeys((*given, *interrupted)):
        data = given.get(file) or index.read(layout.file(file + FACTS))
        if data and page_data.is_shown(file):
            yield wheel_facts.parse(data, file + FACTS)


def files(
    new: Iterable[WheelFacts], projects: Iterable[Project], names: Iterable[str], *, with_catalogue: bool = False
) -> Mapping[str, bytes]:
    """What is to be written, by path in the index's folder.

    `new`: wheels that came, or whose facts changed. `projects`: as they are now, those in which anything changed.
    `names`: of all projects that the index has.
    """
    listed = list(projects)
    urls = {file.filename: file.url for page in listed for file in page.files}  # from a folder as deep as theirs
    made = {}
    links = [(name, _link(name)) for name in sorted(names)]
    catalogue = layout.CATALOGUE_PAGE if with_catalogue else ""
    made[INDEX] = render("index.html.j2", links=links, catalogue=catalogue, version=__version__)
    for page in listed:
        made[project_path(page.name)] = page_data.project(page)
    for facts in new:
        script, own_page = paths_of(facts.file)
        made[script] = page_data.wheel(facts)
        made[own_page] = render("wheel.html.j2", wheel=WheelPage(facts, urls.get(facts.file, "")), version=__version__)
    return made


def paths_of(file: str) -> tuple[str, str]:
    """What belongs to a wheel, and goes with it."""
    return f"{FOLDER}/wheels/{file}.js", f"{FOLDER}/wheels/{file}.html"


def project_path(name: str) -> str:
    """What belongs to a project, and goes with it."""
    return f"{FOLDER}/projects/{name}.js"


def problems(read: Callable[[str], bytes | None], projects: Mapping[str, Project]) -> Iterator[tuple[str, str]]:
    """What is wrong with the page of an index: a path, and what about it. `read`: None where there is no such file."""
    start = (read(INDEX) or b"").decode("utf-8", "replace")
    if lacks := [name for name in projects if f'href="{_link(name)}"' not in start]:
        yield INDEX, f"it does not link to {lacks[0]}" if start else "it is not there"
    linked = [layout.CATALOGUE_PAGE] if f'href="{layout.CATALOGUE_PAGE}"' in start else []
    yield from ((path, "it is not there") for path in (*same_for_all(), *linked) if read(path) is None)
    for name, page in projects.items():
        if read(project_path(name)) != page_data.project(page):
            yield project_path(name), "it is not what the project's own page says"
        for file in page.files:
            if page_data.is_shown(file.filename) and (wrong := _wrong(read, file)):
                yield wrong


def _wrong(read: Callable[[str], bytes | None], file: PublishedFile) -> tuple[str, str] | None:
    script, own_page = paths_of(file.filename)
    data = read(script)
    if data is None or read(own_page) is None:
        return (script if data is None else own_page), "it is not there"
    of = page_data.made_of(data)
    return None if file.facts and of == file.facts.sha256 else (script, "it was made of other facts of this wheel")


def _link(name: str) -> str:
    return f"{layout.project_page(quote(name))}.html"


def same_for_all() -> dict[str, bytes]:
    """The code, the style and the tables: the same for every index that this cuwheel writes."""
    styles = [html_templates.SHARED / "page.css", _TEMPLATES / "index.css"]
    scripts = [_TEMPLATES / "page.js", html_templates.SHARED / "nvidia_smi.js"]
    return {
        f"{FOLDER}/page.js": b"".join(each.read_bytes() for each in scripts),
        f"{FOLDER}/page.css": b"".join(each.read_bytes() for each in styles),
        _MACHINES: page_data.machines(),
    }


def render(template: str, **values: object) -> bytes:
    return wording.printable_text(_environment().get_template(template).render(**values)).encode()


@cache
def _environment() -> jinja2.Environment:
    return html_templates.environment(_TEMPLATES)
