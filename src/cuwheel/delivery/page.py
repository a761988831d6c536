"""The page of an index: the wheel that runs on a machine, all wheels against all GPUs, and a page for each wheel.

What is new is worked out; what was there is left alone. A wheel has a script with its verdicts and a page of its own,
a project a script with the names of its wheels, and the index one page with the names of its projects.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from cuwheel import html_templates, printable
from cuwheel.delivery import page_data
from cuwheel.delivery.wheel_page import WheelPage
from cuwheel.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cuwheel.delivery.simple_api import Project
    from cuwheel.inspection.wheel_facts import WheelFacts

INDEX = "index.html"
FOLDER = "page"
_TEMPLATES = Path(__file__).with_name("templates")


def files(new: Iterable[WheelFacts], projects: Iterable[Project], names: Iterable[str]) -> Mapping[str, bytes]:
    """What is to be written, by path in the index's folder.

    `new`: wheels that came, or whose facts changed. `projects`: as they are now, those in which anything changed.
    `names`: of all projects that the index has.
    """
    listed = list(projects)
    urls = {file.filename: f"../../simple/{page.name}/{file.url}" for page in listed for file in page.files}
    made = _same_for_all()
    made[INDEX] = _render("index.html.j2", names=sorted(names), version=__version__)
    for page in listed:
        made[project_path(page.name)] = page_data.project(page)
    for facts in new:
        script, own_page = paths_of(facts.file)
        made[script] = page_data.wheel(facts)
        made[own_page] = _render("wheel.html.j2", wheel=WheelPage(facts, urls.get(facts.file, "")), version=__version__)
    return made


def paths_of(file: str) -> tuple[str, str]:
    """What belongs to a wheel, and goes with it."""
    return f"{FOLDER}/wheels/{file}.js", f"{FOLDER}/wheels/{file}.html"


def project_path(name: str) -> str:
    """What belongs to a project, and goes with it."""
    return f"{FOLDER}/projects/{name}.js"


def _same_for_all() -> dict[str, bytes]:
    """The code, the style and the tables: the same for every index that this cuwheel writes."""
    styles = [html_templates.SHARED / "page.css", _TEMPLATES / "index.css"]
    return {
        f"{FOLDER}/page.js": (_TEMPLATES / "page.js").read_bytes(),
        f"{FOLDER}/page.css": b"".join(each.read_bytes() for each in styles),
        f"{FOLDER}/machines.js": page_data.machines(),
    }


def _render(template: str, **values: object) -> bytes:
    made = html_templates.environment(_TEMPLATES)
    made.filters["quoted"] = quote
    return printable.text(made.get_template(template).render(**values)).encode()
