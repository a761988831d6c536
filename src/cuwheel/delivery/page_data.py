"""The data of an index's page: what it needs of the tables, of a project and of a wheel, as scripts.

A page that was opened from a folder may not fetch anything, but it may load scripts: each hands one value to the page.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from cuwheel.delivery import layout, page_verdicts
from cuwheel.device_code import wheel_facts
from cuwheel.facts import toolkits
from cuwheel.facts.gpus import all_gpus
from cuwheel.facts.tables import tables
from cuwheel.machine.fleet import from_gpu
from cuwheel.support import codec, files
from cuwheel.support.verbs import VERBS
from cuwheel.verdicts import library_sources
from cuwheel.version import __version__
from cuwheel.wheel.metadata import WheelName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cuwheel.delivery.simple_api import Project, PublishedFile
    from cuwheel.device_code.wheel_facts import WheelFacts

# What ends a script, or a line of one, in the eyes of some reader.
_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}

_HYPHENS = 4  # in the name of a wheel, at least
_MARK = re.compile(rb"// cuwheel \S+ of ([0-9a-f]{64})\n")


def script(kind: str, key: str, value: object) -> bytes:
    """A call that hands `value` to the page. `kind`: what it is of; `key`: of which."""
    text = ", ".join(codec.encode(each).decode() for each in (kind, key, value))
    for character, written in _ESCAPED.items():
        text = text.replace(character, written)
    return f"cuwheel({text});\n".encode()


@cache
def machines() -> bytes:
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
        "torch_releases": library_sources.known_torch_releases(),
        "verb": "install" if "install" in VERBS else "find",
    }
    return machines_mark() + script("machines", "", value)


def machines_mark() -> bytes:
    """How it begins: the same cuwheel makes the same of its tables."""
    return f"// cuwheel {__version__}\n".encode()


def is_shown(file: str) -> bool:
    """Variants are for installers that know them: the page has the plain wheel."""
    if file.count("-") == _HYPHENS:  # neither a build number nor a variant: a page may have thousands of these
        return file.endswith(".whl")
    name = WheelName.parse(file)
    return name is not None and name.variant is None


def project(page: Project) -> bytes:
    """Its wheels by release, the newest first: names alone, so that a project of thousands stays small."""
    wheels = [each for each in page.files if is_shown(each.filename)]
    by_version: dict[str, list[PublishedFile]] = {each: [] for each in reversed(page.versions)}
    for each in wheels:
        spelled = layout.spelled_version(each.filename)
        version = spelled if spelled in by_version else str(layout.version(spelled) or spelled)
        by_version.setdefault(version, []).append(each)
    releases: dict[str, list[dict[str, Any]]] = {}
    for version, listed in by_version.items():
        if listed:
            releases.setdefault(version.partition("+")[0], []).extend(map(_listed, listed))
    return script("project", page.name, {"releases": list(releases.items())})


def _listed(file: PublishedFile) -> dict[str, Any]:
    """`url`: where its files are not in the index itself."""
    row: dict[str, Any] = {"file": file.filename}
    if not layout.is_here(file.url):
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


def wheel(facts: WheelFacts) -> bytes:
    judged = codec.builtins(page_verdicts.of(facts))
    value = {
        "version": facts.version,
        "sha256": facts.sha256,
        "size": facts.size,
        "excluded": list(_excluded(facts.requires_python)),
        "requires": facts.requires_python or "",
        **judged,
    }
    if unfit := dict(library_sources.unfit_torch_releases(wheel_facts.survey(facts))):
        value["torch"] = unfit
    return mark(facts) + script("wheel", facts.file, value)


def mark(facts: WheelFacts) -> bytes:
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
        allowed = SpecifierSet(requires or "")
    except InvalidSpecifier:
        return ()
    # By some release of the minor: `>=3.10.2` is for 3.10, too.
    return (
        each for each in page_verdicts.PYTHONS if not (allowed.contains(f"{each}.99") or allowed.contains(f"{each}.0"))
    )
