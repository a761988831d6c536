"""The page of an index: the wheel that runs on a machine, all wheels against all GPUs, and a page for each wheel.

Its data are scripts: of the tables, of each project and of each wheel.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from packaging.specifiers import InvalidSpecifier

from cuwheel.delivery import index_folder, page_verdicts
from cuwheel.delivery.simple_api import FACTS
from cuwheel.delivery.transaction import Remove, Write
from cuwheel.device_code import description, wheel_facts
from cuwheel.machine.fleet import from_gpu
from cuwheel.support import codec, files, limited, pages
from cuwheel.support.verbs import VERBS
from cuwheel.verdicts import torch_releases
from cuwheel.version import __version__
from cuwheel.wheel import requirements
from cuwheel_core.facts import toolkits
from cuwheel_core.facts.gpus import all_gpus
from cuwheel_core.facts.tables import tables
from cuwheel_core.support import bounded, printable
from cuwheel_core.support.wording import file_name, size
from cuwheel_core.verdicts import drivers, predict
from cuwheel_core.wheel.tags import WheelName

if TYPE_CHECKING:
    import jinja2

    from cuwheel.delivery.index_folder import IndexFolder
    from cuwheel.delivery.simple_api import Project, PublishedFile
    from cuwheel.delivery.update import Update
    from cuwheel.device_code.wheel_facts import WheelFacts


# The data: a page that was opened from a folder may not fetch anything, but it may load scripts. Each hands one
# value to the page.

# What ends a script, or a line of one, in the eyes of some reader.
_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}

_HYPHENS = 4  # in the name of a wheel, at least
_EXTRA = re.compile(r"""extra == ["']([^"']+)["']""")
# `cuda12`, `cu128`, `cuda-12.x`, `cuda12_pip`; not `cuda12-local`, for which CUDA must be there.
_CUDA_EXTRA = re.compile(r"(?:cuda|cu|gpu)[-_.]?(\d{2,3})?(?:\.?[x\d]+)?(?:[-_]pip)?", re.IGNORECASE)
_CUDA_PART = re.compile(r"cu(?:da)?[-_]?(\d{2})", re.IGNORECASE)
_MARK = re.compile(rb"// cuwheel \S+ of ([0-9a-f]{64})\n")


def script_of(kind: str, key: str, value: object) -> bytes:
    """A call that hands `value` to the page. `kind`: what it is of; `key`: of which."""
    text = ", ".join(codec.encode(each).decode() for each in (kind, key, value))
    for character, written in _ESCAPED.items():
        text = text.replace(character, written)
    return f"cuwheel({text});\n".encode()


@cache
def machines_script() -> bytes:
    """What people choose from: GPUs by name, systems, drivers, Pythons."""
    generations = {row.capability: row.generation for row in tables().architectures.architecture}
    rules = tables().gpus.normalisation
    gpus = []
    for gpu in all_gpus():
        machine = from_gpu(gpu.name)
        place = next(
            (each.key for each in page_verdicts.PLACES if (each.os, each.cpu) == (machine.os, machine.cpu)), ""
        )
        gpus.append((gpu.name, machine.capability, place, generations[gpu.capability].lower()))
    value = {
        "gpus": gpus,
        "aliases": tables().gpus.aliases,
        "ambiguous": {row.name: row.meanings for row in tables().gpus.ambiguous},
        "rules": {"ignore": rules.ignore, "glued": rules.glued, "brands": rules.brands, "lines": rules.lines},
        "generations": generations,
        "places": [(each.key, each.words) for each in page_verdicts.PLACES],
        "capabilities": {
            place.key: [str(each) for each in page_verdicts.capabilities(place)] for place in page_verdicts.PLACES
        },
        "pythons": page_verdicts.PYTHONS,
        "drivers": [
            (row.version, row.driver.linux, row.driver.windows)
            for row in reversed(toolkits.all_toolkits())
            if row.driver.linux
        ],
        "torch": page_verdicts.torch_cudas(),
        "torch_releases": torch_releases.known_torch_releases(),
        "verb": "install" if "install" in VERBS else "find",
    }
    return machines_mark() + script_of("machines", "", value)


def machines_mark() -> bytes:
    """How it begins: the same cuwheel makes the same of its tables."""
    return f"// cuwheel {__version__}\n".encode()


def is_shown(file: str) -> bool:
    """Variants are for installers that know them: the page has the plain wheel."""
    if file.count("-") == _HYPHENS:  # neither a build number nor a variant: a page may have thousands of these
        return file.endswith(".whl")
    name = WheelName.parse(file)
    return name is not None and name.variant is None


def project_script(page: Project) -> bytes:
    """Its wheels by release, the newest first: names alone, so that a project of thousands stays small."""
    wheels = [each for each in page.files if is_shown(each.filename)]
    by_version: dict[str, list[PublishedFile]] = {each: [] for each in reversed(page.versions)}
    for each in wheels:
        spelled = index_folder.spelled_version(each.filename)
        version = spelled if spelled in by_version else str(index_folder.version_of(spelled) or spelled)
        by_version.setdefault(version, []).append(each)
    releases: dict[str, list[dict[str, Any]]] = {}
    for version, listed in by_version.items():
        if listed:
            releases.setdefault(version.partition("+")[0], []).extend(map(_listed, listed))
    return script_of("project", page.name, {"releases": list(releases.items())})


def _listed(file: PublishedFile) -> dict[str, Any]:
    """`url`: where its files are not in the index itself."""
    row: dict[str, Any] = {"file": file.filename}
    if not index_folder.is_here(file.url):
        row["url"] = file.url
    if file.yanked is not False:
        row["yanked"] = file.yanked if isinstance(file.yanked, str) else ""
    if torch := _torch_of(file.channels):
        row["torch"] = torch
    return row


@lru_cache(maxsize=1024)
def _torch_of(channels: tuple[str, ...]) -> str:
    """The release that a channel names; many files are in the same ones."""
    return next((each.rpartition("/torch")[2] for each in channels if "/torch" in each), "")


def wheel_script(facts: WheelFacts) -> bytes:
    judged = codec.builtins(page_verdicts.verdicts_of_wheel(facts))
    value = {
        "version": facts.version,
        "sha256": facts.sha256,
        "size": facts.size,
        "excluded": list(_excluded(facts.requires_python)),
        "requires": facts.requires_python or "",
        **judged,
    }
    if not facts.libraries and all(each.endswith("-any") for each in facts.tags):
        value["pure"] = True
    if extras := cuda_extras(facts.requires_dist):
        value["extras"] = extras
        majors = {drivers.cuda_major(each) for each in wheel_facts.survey(facts).libraries} - {None}
        if len(majors) == 1:
            value["cuda"] = str(majors.pop())
    if unfit := dict(torch_releases.unfit_torch_releases(wheel_facts.survey(facts))):
        value["torch"] = unfit
    return wheel_mark(facts) + script_of("wheel", facts.file, value)


def cuda_extras(requires: Iterable[str]) -> dict[str, str]:
    """The extras that bring CUDA's libraries, by the major of that CUDA: `{"12": "cuda12"}`.

    One that names no CUDA (`cuda`, `gpu`) is of the one that its requirements name.
    """
    required: dict[str, list[str]] = {}
    for text in requires:
        if each := requirements.parse(text):
            for extra in _EXTRA.findall(str(each.marker)):
                required.setdefault(extra, []).append(f"{each.name} {' '.join(each.extras)}")
    found: dict[str, str] = {}
    for extra in sorted(required, key=len):  # `cuda12` before `cuda12_pip`
        named = _CUDA_EXTRA.fullmatch(extra)
        if not named:
            continue
        majors = {named[1]} if named[1] else {part[1] for text in required[extra] if (part := _CUDA_PART.search(text))}
        if len(majors) == 1:
            found.setdefault(majors.pop()[:2], extra)
    return dict(sorted(found.items()))


def wheel_mark(facts: WheelFacts) -> bytes:
    """How its script begins: the same cuwheel makes the same of the same facts."""
    digest = files.sha256_of(wheel_facts.encoded(facts))
    return f"// cuwheel {__version__} of {digest}\n".encode()


def made_of(script: bytes) -> str:
    """The hash of the facts that a wheel's script was made of; empty where it does not say."""
    found = _MARK.match(script)
    return found[1].decode() if found else ""


def _excluded(requires: str | None) -> Iterable[str]:
    """The Pythons that its metadata does not allow; none where it says nothing that can be understood."""
    try:
        allowed = limited.specifiers(requires or "")
    except InvalidSpecifier:
        return ()
    # By some release of the minor: `>=3.10.2` is for 3.10, too.
    return (
        each for each in page_verdicts.PYTHONS if not (allowed.contains(f"{each}.99") or allowed.contains(f"{each}.0"))
    )


# What the page of a wheel shows: its code by architecture, its libraries, what it needs, how it was built.


class Row(NamedTuple):
    """`share`: of the largest, in percent."""

    name: str
    kind: str
    entries: int
    size: str
    share: int


class LibraryRow(NamedTuple):
    path: str
    size: str
    toolkits: str
    archs: str
    reach: str


class WheelPage:
    """`url`: of the wheel, seen from its page; empty where it is not known."""

    def __init__(self, facts: WheelFacts, url: str) -> None:
        self.facts, self.url = facts, url
        self._survey = wheel_facts.survey(facts)

    @property
    def title(self) -> str:
        return f"{self.facts.name} {self.facts.version}"

    @property
    def size(self) -> str:
        return size(self.facts.size)

    @property
    def toolkits(self) -> str:
        return ", ".join(dict.fromkeys(each for library in self.facts.libraries for each in library.toolkits))

    @property
    def libraries_needed(self) -> str:
        """From outside the wheel, and not of every system."""
        inside = {file_name(each.path) for each in self.facts.libraries} | {
            each.soname for each in self.facts.libraries
        }
        needed = dict.fromkeys(name for each in self.facts.libraries for name in each.needed if name not in inside)
        return ", ".join(needed)

    @cached_property
    def architectures(self) -> list[Row]:
        """Machine code first, each by its number."""
        stored: Counter[tuple[str, str]] = Counter()
        count: Counter[tuple[str, str]] = Counter()
        for library in self.facts.libraries:
            for row in library.device_code:
                stored[row.kind, row.arch] += row.bytes
                count[row.kind, row.arch] += row.count
        most = max(stored.values(), default=0) or 1
        return [
            Row(arch, kind, count[kind, arch], size(held), max(1, 100 * held // most))
            for (kind, arch), held in sorted(stored.items(), key=lambda item: _order(*item[0]))
        ]

    @cached_property
    def with_code(self) -> list[LibraryRow]:
        found = []
        for library, facts in zip(self._survey.libraries, self.facts.libraries, strict=True):
            reach = predict.coverage_of(library)
            archs = dict.fromkeys(row.arch for row in library.device_code)
            if archs:
                words = predict.coverage_in_words(reach, once_linked=library.type == "relocatable") if reach else ""
                row = LibraryRow(library.path, size(facts.size), ", ".join(library.toolkits), ", ".join(archs), words)
                found.append(row)
        return found

    @property
    def others(self) -> int:
        return len(self.facts.libraries) - len(self.with_code)

    @property
    def build(self) -> Iterator[tuple[str, str]]:
        """The rows about the build, for a wheel that cuwheel built."""
        about = self.facts.description
        if about is None:
            return
        yield from (("built", each) for each in description.words(about))
        if about.python:
            yield "Python", about.python
        if tools := about.toolchain:
            yield "toolkit", f"CUDA {tools.release} for {tools.platform}"
        if about.requires:
            yield "built with", ", ".join(about.requires)
        if about.sources:
            yield "sources", f"sha256 {about.sources}"
        for each in about.plan:
            yield "planned for", f"{each.machine} ({each.capability}): {each.how} by {each.by}"


def _order(kind: str, arch: str) -> tuple[bool, int, str]:
    digits = "".join(each for each in arch if each.isdecimal())
    return kind != "cubin", bounded.digits(digits or "0"), arch


INDEX = "index.html"
FOLDER = "page"
_MACHINES = f"{FOLDER}/machines.js"
_TEMPLATES = Path(__file__).with_name("templates")


def page_steps(index: IndexFolder, wanted: Update, *, with_catalogue: bool = False) -> Iterator[Write | Remove]:
    """What an update of an index changes of its page. `with_catalogue`: it has the page of a catalogue, too."""
    new = [facts for facts in _arrived(index, wanted) if not _is_made(index, facts)]
    projects = [page for page in wanted.projects.values() if page.files]
    names = [each.name for each in wanted.listed.projects]
    made = page_files(new, projects, names, with_catalogue=with_catalogue)
    # Whether this release of cuwheel wrote them: working them out takes longer than all else of a small wheel.
    if not (wanted.trusts_pages and (index.read(_MACHINES) or b"").startswith(machines_mark())):
        made = {**same_for_all(), **made}
    yield from (Write(path, data) for path, data in made.items())
    for file in wanted.gone:
        yield from map(Remove, paths_of_wheel(file))
    for name, page in wanted.projects.items():
        if not page.files:
            yield Remove(project_path(name))


def _is_made(index: IndexFolder, facts: WheelFacts) -> bool:
    script, own_page = paths_of_wheel(facts.file)
    return (index.read(script) or b"").startswith(wheel_mark(facts)) and index.path(own_page).exists()


def _arrived(index: IndexFolder, wanted: Update) -> Iterator[WheelFacts]:
    """The wheels that were given, and those that an interrupted run was about to add."""
    facts = {each.name: each.facts for each in wanted.arrivals}
    listed = {file.filename for page in wanted.projects.values() for file in page.files}
    interrupted = [each for each in (wanted.repairs.files if wanted.repairs else ()) if each in listed]
    for file in dict.fromkeys((*facts, *interrupted)):
        data = facts.get(file) or index.read(index_folder.file_path(file + FACTS))
        if data and is_shown(file):
            yield wheel_facts.parse(data, file + FACTS)


def page_files(
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
    catalogue = index_folder.CATALOGUE_PAGE if with_catalogue else ""
    made[INDEX] = render("index.html.j2", links=links, catalogue=catalogue, version=__version__)
    for page in listed:
        made[project_path(page.name)] = project_script(page)
    for facts in new:
        script, own_page = paths_of_wheel(facts.file)
        made[script] = wheel_script(facts)
        made[own_page] = render("wheel.html.j2", wheel=WheelPage(facts, urls.get(facts.file, "")), version=__version__)
    return made


def paths_of_wheel(file: str) -> tuple[str, str]:
    """What belongs to a wheel, and goes with it."""
    return f"{FOLDER}/wheels/{file}.js", f"{FOLDER}/wheels/{file}.html"


def project_path(name: str) -> str:
    """What belongs to a project, and goes with it."""
    return f"{FOLDER}/projects/{name}.js"


def page_problems(read: Callable[[str], bytes | None], projects: Mapping[str, Project]) -> Iterator[tuple[str, str]]:
    """What is wrong with the page of an index: a path, and what about it. `read`: None where there is no such file."""
    start = (read(INDEX) or b"").decode("utf-8", "replace")
    if lacks := [name for name in projects if f'href="{_link(name)}"' not in start]:
        yield INDEX, f"it does not link to {lacks[0]}" if start else "it is not there"
    linked = [index_folder.CATALOGUE_PAGE] if f'href="{index_folder.CATALOGUE_PAGE}"' in start else []
    yield from ((path, "it is not there") for path in (*same_for_all(), *linked) if read(path) is None)
    for name, page in projects.items():
        if read(project_path(name)) != project_script(page):
            yield project_path(name), "it is not what the project's own page says"
        for file in page.files:
            if is_shown(file.filename) and (wrong := _wrong(read, file)):
                yield wrong


def _wrong(read: Callable[[str], bytes | None], file: PublishedFile) -> tuple[str, str] | None:
    script, own_page = paths_of_wheel(file.filename)
    data = read(script)
    if data is None or read(own_page) is None:
        return (script if data is None else own_page), "it is not there"
    of = made_of(data)
    return None if file.facts and of == file.facts.sha256 else (script, "it was made of other facts of this wheel")


def _link(name: str) -> str:
    return f"{index_folder.project_page(quote(name))}.html"


def same_for_all() -> dict[str, bytes]:
    """The code, the style and the tables: the same for every index that this cuwheel writes."""
    styles = [pages.SHARED_TEMPLATES / "page.css", _TEMPLATES / "index.css"]
    scripts = [_TEMPLATES / "page.js", pages.SHARED_TEMPLATES / "nvidia_smi.js"]
    return {
        f"{FOLDER}/page.js": b"".join(each.read_bytes() for each in scripts),
        f"{FOLDER}/page.css": b"".join(each.read_bytes() for each in styles),
        _MACHINES: machines_script(),
    }


def render(template: str, **values: object) -> bytes:
    return printable.text(_environment().get_template(template).render(**values)).encode()


@cache
def _environment() -> jinja2.Environment:
    return pages.html_templates(_TEMPLATES)
