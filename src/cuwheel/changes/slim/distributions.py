"""Environments and folders of installed packages: where their libraries are, and which RECORD lists them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.device_code.survey import survey
from cuwheel.errors import UnreadableError
from cuwheel.machine import python_environment
from cuwheel.machine.world import World
from cuwheel.support.confined import leads_inside
from cuwheel.support.finding import Finding
from cuwheel.wheel import metadata
from cuwheel.wheel.metadata import recorded_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cuwheel.device_code.libraries import Library

_OURS = ".cuwheel"


class Layout(Struct, frozen=True, kw_only=True):
    """`places`: the folders that are searched for libraries. `sites`: those that hold dist-info folders."""

    root: Path
    places: tuple[Path, ...]
    sites: tuple[Path, ...]


class Owner(Struct, frozen=True, kw_only=True):
    """The distribution that a file belongs to, and the file's name in its RECORD."""

    info: Path
    row: str

    @property
    def name(self) -> str:
        found = metadata.installed_at(self.info)
        return found.name if found else ""

    @property
    def version(self) -> str:
        found = metadata.installed_at(self.info)
        return found.version if found else ""


def of_environment(env: Path) -> Layout:
    """A virtual environment, a conda environment, or a prefix such as /usr/local."""
    root = env.resolve()
    _, folders = python_environment.locate(World.here(), env)
    sites = tuple(each for each in folders if leads_inside(root, each))
    if not sites:
        raise UnreadableError(env, f"its packages are elsewhere: {folders[0]}", hint="use that environment")
    if (root / "conda-meta").is_dir():  # conda's own packages put libraries beside Python's
        places = tuple(each for each in (root / "lib", root / "targets") if each.is_dir())
        return Layout(root=root, places=places, sites=sites)
    return Layout(root=root, places=sites, sites=sites)


def of_folder(folder: Path) -> Layout:
    root = folder.resolve()
    sites = [Path(place) for place, names, _ in os.walk(root) if any(each.endswith(".dist-info") for each in names)]
    return Layout(root=root, places=(root,), sites=tuple(sorted(sites)))


def read(layout: Layout) -> tuple[list[Library], list[Finding]]:
    """Every library with all its entries; their paths are relative to the root."""
    libraries: dict[str, Library] = {}
    findings: list[Finding] = []
    for place in layout.places:
        found = survey(place, detail="entries")
        findings += found.findings
        for library in found.libraries:
            path = real_path(layout.root, place / library.path)
            if path and path.parts[0] != _OURS:
                libraries[path.as_posix()] = replace(library, path=path.as_posix())
    return [libraries[path] for path in sorted(libraries)], _unread_note(findings)


def _unread_note(findings: list[Finding]) -> list[Finding]:
    """An environment has many files that are no concern of ours (pip brings starters for Windows)."""
    unread = [each for each in findings if each.severity != "note" and f"{_OURS}/" not in each.message]
    if not unread:
        return []
    return [
        Finding(
            rule="library-unreadable",
            severity="note",
            message=f"{len(unread)} files could not be read as libraries and stay unchanged",
            evidence=tuple(each.message for each in unread[:3]),
        )
    ]


def real_path(root: Path, file: Path) -> Path | None:
    """Where the file itself is, relative to the root.

    A link into the root stands for what it names; one that leads out of it (uv can link to its cache) is
    replaced by a file of its own, so that the cache stays as it is.
    """
    if file.is_symlink() and leads_inside(root, file):
        return file.resolve().relative_to(root)
    folder = file.parent.resolve()
    return (folder / file.name).relative_to(root) if leads_inside(root, folder) else None


def owners(layout: Layout, paths: Iterable[str]) -> dict[str, Owner]:
    """Which distribution has each of these files, as far as a RECORD says."""
    wanted = {os.path.normpath(layout.root / path): path for path in paths}
    names = {Path(each).name for each in wanted}
    found: dict[str, Owner] = {}
    for site in layout.sites:
        for listed in sorted(site.glob("*.dist-info/RECORD")):
            if not leads_inside(layout.root, listed.parent):
                continue  # a link to another environment's, which is not ours to change
            for row in _rows_naming(listed, names):
                path = wanted.get(os.path.normpath(site / row))
                if path is not None:
                    found.setdefault(path, Owner(info=listed.parent, row=row))
    return found


def _rows_naming(listed: Path, names: set[str]) -> Iterator[str]:
    return (path for path in recorded_files(read_text(listed)) if path.rpartition("/")[2] in names)


def read_text(path: Path) -> str:
    """Bytes that are no UTF-8 come back as they were: see `as_bytes`."""
    return path.read_bytes().decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def without_record(paths: Iterable[str], known: Mapping[str, Owner]) -> tuple[Finding, ...]:
    lost = sorted(set(paths) - set(known))
    if not lost:
        return ()
    return (
        Finding(
            rule="in-no-record",
            severity="note",
            message=f"{len(lost)} of the slimmed libraries are listed in no RECORD",
            evidence=tuple(lost[:5]),
        ),
    )
