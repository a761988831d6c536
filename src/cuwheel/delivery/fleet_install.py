"""What every kind of machine of a fleet installs: resolved for all at once, for a lock and one folder of files."""

from __future__ import annotations

import tempfile
from dataclasses import replace as with_fields  # noqa: TID251 - of its own dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import Requirement

from cuwheel.delivery import (
    best_candidate,
    candidates,
    choosing,
    environment_changes,
    install_lock,
    requirements_file,
    together,
)
from cuwheel.delivery.choosing import Choice
from cuwheel.delivery.install_lock import InstallLock, LockedFile, Part
from cuwheel.errors import UsageError
from cuwheel.facts import versions
from cuwheel.machine.fleet import Machine, with_platform
from cuwheel.machine.named import machines_named
from cuwheel.network import addresses, resolver, transfer
from cuwheel.network.settings import read_settings
from cuwheel.support import files, log
from cuwheel.support.wording import size
from cuwheel.wheel.metadata import normalised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.delivery.request import InstallRequest
    from cuwheel.network.resolver import Release

_GLIBC = "2.28"  # of manylinux_2_28, which current wheels are for


class Resolved(Struct, frozen=True, kw_only=True):
    """One kind of machine. `part` is None where something that was asked for does not run there."""

    machines: tuple[Machine, ...]
    choices: tuple[Choice, ...]
    part: Part | None = None
    problem: str = ""


class Fleet(Struct, frozen=True, kw_only=True):
    """`lock`: None unless every machine is served."""

    kinds: tuple[Resolved, ...]
    lock: InstallLock | None = None


def resolve(request: InstallRequest, fleet: Path) -> Fleet:
    kinds: dict[Machine, list[Machine]] = {}
    for machine in machines_named([fleet], request.refine):
        known = _complete(machine)
        kinds.setdefault(replace(known, name="", count=1), []).append(known)
    found = []
    for alike in kinds.values():
        log.info("resolving for %s", ", ".join(each.name for each in alike))
        found.append(_resolved(request, tuple(alike)))
    wanted = (request.wanted,) if request.wanted else (str(request.requirements),)
    parts = tuple(each.part for each in found if each.part)
    lock = InstallLock(wanted=wanted, parts=parts) if len(parts) == len(found) else None
    return Fleet(kinds=tuple(found), lock=lock)


def _complete(machine: Machine) -> Machine:
    """What a resolution must know of a machine, where the fleet file does not say it: as it is here."""
    if machine.python is None:
        raise UsageError(
            f"the fleet file does not say which Python {machine.name} has", hint='add python = "3.12", or give --python'
        )
    return with_platform(machine)


def _resolved(request: InstallRequest, alike: tuple[Machine, ...]) -> Resolved:
    """What has to be compiled is compiled by nobody else: wheels alone."""
    machine = alike[0]
    own = with_fields(request, on=(machine,), refine=None, env=None, wheel_only=True, gpus=())
    listed = requirements_file.read(request.requirements, machine.python) if request.requirements else None
    if listed:
        own = listed.applied(own)
        chosen = together.choose_together(own, listed.named, None)
        choices, problem = chosen.choices, chosen.problem
    else:
        choices, problem = (choosing.choose(own, request.wanted, None),), ""
    start = Resolved(machines=alike, choices=choices, problem=problem)
    if problem or not all(each.is_made for each in choices):
        return start
    releases = _releases(own, choices, machine, listed.rest({each.name for each in choices}) if listed else ())
    with_torch = together.with_required_torch(own, choices, {normalised(each.name) for each in releases}, None)
    if with_torch != choices:
        choices, start = with_torch, replace(start, choices=with_torch)
        releases = _releases(own, choices, machine, ())
    settings = together.settings_for(choices, releases)
    if settings.problems:
        return replace(start, problem="; ".join(f"{name}: {why}" for name, why in settings.problems.items()))
    part = Part(
        machines=tuple(each.name for each in alike),
        capability=str(machine.capability),
        os=machine.os or "",
        cpu=machine.cpu or "",
        python=versions.minor(machine.python or ""),
        glibc=machine.glibc,
        driver=machine.driver,
        packages={each.name: f"{_version(each)} ({each.ruling.outcome if each.ruling else ''})" for each in choices},
        fallback=next((each.fallback for each in choices if each.fallback), None),
        pins=settings.needed,
        files=tuple(map(_locked, releases)),
    )
    return replace(start, part=part)


def _version(choice: Choice) -> str:
    return str(choice.ruling.candidate.version) if choice.ruling else ""


def _releases(
    request: InstallRequest, choices: Sequence[Choice], machine: Machine, rest: Sequence[str]
) -> tuple[Release, ...]:
    own = {each.name: environment_changes.release_of(each) for each in choices}
    asked = [*(f"{_with_extras(each)}=={_version(each)}" for each in choices), *rest]
    glibc = machine.glibc or _GLIBC
    platform = (
        f"manylinux_{'_'.join(glibc.split('.')[:2])}_{machine.cpu}"
        if machine.os == "linux"
        else best_candidate.platform_of(machine)
    )
    wanted = resolver.Wanted(
        requirements=tuple(asked),
        platform=platform,
        python=versions.minor(machine.python or ""),
        order=best_candidate.tag_order_of(machine),
    )
    found = resolver.resolve_with(wanted, environment_changes.index_variables(request))
    others = [each for each in found if normalised(each.name) not in own]
    if request.indexes:  # a name that one of them has is from there
        candidates.origins(others, candidates.configured_places(read_settings(), indexes=request.indexes))
    return (*own.values(), *others)


def _with_extras(choice: Choice) -> str:
    extras = Requirement(choice.wanted).extras if choice.fallback != "cpu build" else ()
    return f"{choice.name}[{','.join(sorted(extras))}]" if extras else choice.name


def _locked(release: Release) -> LockedFile:
    sha256 = release.sha256
    if sha256 is None:
        with tempfile.TemporaryDirectory(prefix="cuwheel-") as scratch:
            sha256 = files.sha256(_fetched(release.url, Path(scratch, release.file), None, release.size))
    return LockedFile(
        name=normalised(release.name),
        version=release.version,
        file=release.file,
        url=addresses.plain(release.url),
        sha256=sha256,
        size=release.size,
    )


def download(lock: InstallLock, folder: Path, find_links: Sequence[str] = ()) -> tuple[str, ...]:
    """All files of the lock into one folder, each checked; those that are there already stay."""
    wanted = install_lock.all_files(lock)
    total = sum(each.size or 0 for each in wanted)
    log.info("downloading %s files%s into %s", len(wanted), f" ({size(total)})" if total else "", folder)
    folder.mkdir(parents=True, exist_ok=True)
    for each in wanted:
        to = folder / each.file
        if not (to.is_file() and files.sha256(to) == each.sha256):
            local = found_in(each, find_links)
            _fetched(local.as_uri() if local else each.url, to, each.sha256, each.size)
    return tuple(each.file for each in wanted)


def _fetched(url: str, to: Path, sha256: str | None, length: int | None) -> Path:
    local = addresses.local_path(url)
    if local is None:
        transfer.download(url, to, sha256=sha256, size=length, label=to.name)
        return to
    made = files.copy(local, to)
    if sha256 and files.sha256(made) != sha256:
        made.unlink()
        raise UsageError(f"{local} is not the file of the lock: its sha256 is another")
    return made


def found_in(wanted: LockedFile, find_links: Sequence[str]) -> Path | None:
    """The file in one of these folders; one of that name with another content is no such file."""
    for each in find_links:
        folder = addresses.local_path(each)
        path = folder / wanted.file if folder else None
        if path and path.is_file() and files.sha256(path) == wanted.sha256:
            return path.absolute()
    return None
