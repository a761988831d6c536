"""What every kind of machine of a fleet installs: resolved for all at once, and written into locks (`lock_files`)."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace as with_fields  # noqa: TID251 - of its own dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.delivery import best_candidate, candidates, choosing, environment_changes, lock_files, requirements_file
from cuwheel.delivery.install_answer import Part, initial_answer
from cuwheel.delivery.lock_files import InstallLock, LockPart
from cuwheel.errors import UsageError
from cuwheel.machine.fleet import Machine, Machines, machines_named, with_platform
from cuwheel.network import addresses, resolver, transfer
from cuwheel.support import files, log
from cuwheel.verdicts import wheel_tags
from cuwheel_core.facts import versions
from cuwheel_core.support.wording import size
from cuwheel_core.verdicts.condition import outcome_in_words
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from cuwheel.delivery.best_candidate import Choice, Search
    from cuwheel.delivery.install_answer import Install
    from cuwheel.delivery.request import InstallRequest
    from cuwheel.network.resolver import Release


def write_or_download(request: InstallRequest) -> Install:
    """A lock written, with its files where they are asked for; or those of one that is there, brought into a folder.

    It is for the machines that are served; those that are not are in the answer, too. A dry run writes nothing.
    """
    if request.lock is None:
        path = request.locked or Path()
        files_there = download(lock_files.read_lock(path), request.download or Path(), request.find_links)
        return initial_answer(path.name, downloaded=files_there, dry_run=request.dry_run)
    found = resolve_fleet(request, request.lock)
    answer = initial_answer(
        request.wanted or request.lock.name, parts=tuple(part for part, _ in found), dry_run=request.dry_run
    )
    parts = tuple(each for _, each in found if each)
    if not parts or request.dry_run:
        return answer
    lock = InstallLock(wanted=(request.wanted or str(request.requirements),), parts=parts)
    folder = request.output or Path()
    done = download(lock, request.download, request.find_links) if request.download else ()
    written = lock_files.write_locks(folder, lock, request.lock_as or ("pylock",))
    return replace(answer, lock=str(folder), locks=tuple(map(str, written)), downloaded=done, written=True)


def resolve_fleet(request: InstallRequest, fleet: Machines) -> list[tuple[Part, LockPart | None]]:
    """Each kind of machine once: as it is shown, and as a lock has it, where all that was asked for runs there."""
    kinds: dict[Machine, list[Machine]] = {}
    for machine in machines_named(fleet, request.refine):
        if machine.python is None:
            raise UsageError(
                f"the fleet file does not say which Python {machine.name} has",
                hint='add python = "3.12", or give --set python=3.12',
            )
        known = with_platform(machine)  # what the fleet file does not say is as it is here
        kinds.setdefault(replace(known, name="", count=1), []).append(known)
    found: list[tuple[Part, LockPart | None]] = []
    for alike in kinds.values():
        log.info("resolving for %s", ", ".join(each.name for each in alike))
        found.append(_resolved(request, tuple(alike)))
    return found


def _resolved(request: InstallRequest, alike: tuple[Machine, ...]) -> tuple[Part, LockPart | None]:
    """What one kind of machine installs: as it is shown, and as a lock has it, if all that was asked for runs there.

    What has to be compiled is compiled by nobody else: wheels alone.
    """
    machine = alike[0]
    own = with_fields(request, on=(machine,), refine=None, env=None, fallback=request.without_source)
    listed = requirements_file.read_requirements(request.requirements, machine.python) if request.requirements else None
    own = listed.applied(own) if listed else own
    names = tuple(each.name for each in alike)
    with best_candidate.search_for(own, None) as search:
        problem = ""
        if listed:
            chosen = choosing.choose_together(search, own, listed.named)
            choices, problem = chosen.choices, chosen.problem
        else:
            choice = choosing.choose(search, own, request.requirement)
            choices = (replace(choice, wanted=request.wanted),)
        if problem or not all(each.is_made for each in choices):
            return _part(names, choices, problem), None
        releases = _releases(search, choices, machine, listed.rest({each.name for each in choices}) if listed else ())
        with_torch = choosing.with_required_torch(search, own, choices, {normalised(each.name) for each in releases})
        if with_torch != choices:
            choices = with_torch
            releases = _releases(search, choices, machine, ())
    settings = choosing.settings_for(choices, releases)
    if settings.problems:
        return _part(names, choices, "; ".join(f"{name}: {why}" for name, why in settings.problems.items())), None
    locked = LockPart(
        machines=names,
        capability=str(machine.capability),
        os=machine.os or "",
        cpu=machine.cpu or "",
        python=versions.minor(machine.python or ""),
        glibc=machine.glibc,
        driver=machine.driver,
        packages={each.name: f"{_version(each)} ({_outcome(each)})" for each in choices},
        fallback=next((each.fallback for each in choices if each.fallback), None),
        pins=settings.needed,
        files=tuple(map(_locked, releases)),
        why={each.name: "; ".join(each.taken.reasons) for each in choices if each.taken},
    )
    return replace(_part(names, choices, ""), pins=locked.pins, files=locked.files), locked


def _part(machines: tuple[str, ...], choices: Sequence[Choice], problem: str) -> Part:
    packages = tuple(each.package for each in choices)
    return Part(machines=machines, packages=packages, pins={}, files=(), problem=problem)


def _outcome(choice: Choice) -> str:
    """The outcome with all that must hold for it."""
    return outcome_in_words(choice.taken.outcome, choice.taken.requires) if choice.taken else ""


def _version(choice: Choice) -> str:
    return str(choice.taken.candidate.version) if choice.taken else ""


def _releases(search: Search, choices: Sequence[Choice], machine: Machine, rest: Sequence[str]) -> tuple[Release, ...]:
    own = {each.name: environment_changes.release_of(each) for each in choices}
    asked = [*(f"{_with_extras(each)}=={_version(each)}" for each in choices), *rest]
    wanted = resolver.Wanted(
        requirements=tuple(asked),
        platform=wheel_tags.platform_to_ask_for(machine),
        python=versions.minor(machine.python or ""),
        order=best_candidate.tag_order_of(machine),
    )
    found = resolver.resolve_with(wanted, environment_changes.index_variables(search))
    others = [each for each in found if normalised(each.name) not in own]
    indexes = {each.name: each.taken.candidate.index for each in choices if each.taken}
    indexes |= candidates.origins(others, search.places, search.session)  # a name that one of `own` has is from there
    of_index = {name: candidates.address_of(index) for name, index in indexes.items() if index in search.places.known}
    return tuple(replace(each, index=of_index.get(normalised(each.name), "")) for each in (*own.values(), *others))


def _with_extras(choice: Choice) -> str:
    extras = choice.requirement.extras if choice.fallback != "cpu build" else ()
    return f"{choice.name}[{','.join(sorted(extras))}]" if extras else choice.name


def _locked(release: Release) -> Release:
    """The release as a lock has it: with a hash, and without a login."""
    sha256 = release.sha256
    if sha256 is None:
        with tempfile.TemporaryDirectory(prefix="cuwheel-") as scratch:
            sha256 = files.sha256(_fetched(release.url, Path(scratch, release.file), None, release.size))
    return replace(release, name=normalised(release.name), url=addresses.plain(release.url), sha256=sha256)


def download(lock: InstallLock, folder: Path, find_links: Sequence[str] = ()) -> tuple[str, ...]:
    """All files of the lock into one folder, each checked; those that are there already stay."""
    wanted = lock_files.all_files(lock)
    total = sum(each.size or 0 for each in wanted)
    log.info("downloading %s files%s into %s", len(wanted), f" ({size(total)})" if total else "", folder)
    folder.mkdir(parents=True, exist_ok=True)
    for each in wanted:
        to = folder / each.file
        if not (to.is_file() and files.sha256(to) == each.sha256):
            local = found_in(each, find_links)
            _fetched(local.as_uri() if local else each.url, to, each.sha256, each.size)
    return tuple(each.file for each in wanted)


def fetched(release: Release, folder: Path) -> Path:
    """The file of a lock, in this folder, checked."""
    return _fetched(release.url, folder / release.file, release.sha256, release.size)


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


def found_in(wanted: Release, find_links: Sequence[str]) -> Path | None:
    """The file in one of these folders; one of that name with another content is no such file."""
    for each in find_links:
        folder = addresses.local_path(each)
        path = folder / wanted.file if folder else None
        if path and path.is_file() and files.sha256(path) == wanted.sha256:
            return files.absolute(path)
    return None
