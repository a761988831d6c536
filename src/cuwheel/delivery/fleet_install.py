"""What every kind of machine of a fleet installs: resolved for all at once, written into a lock, and read from one.

A lock has for each kind of machine the very files, with their hashes. It is written on one machine and read on others:
nothing in it is believed that could lead out of a folder, and no file is taken whose hash is another.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace as with_fields  # noqa: TID251 - of its own dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuwheel.delivery import best_candidate, candidates, choosing, environment_changes, requirements_file
from cuwheel.delivery.install_answer import Package, Part, initial_answer
from cuwheel.errors import MalformedError, UnavailableError, UsageError
from cuwheel.facts import versions
from cuwheel.machine.fleet import Machine, machines_named, with_platform
from cuwheel.network import addresses, resolver, transfer
from cuwheel.network.resolver import Release
from cuwheel.support import codec, files, log
from cuwheel.support.wording import size
from cuwheel.wheel.metadata import normalised

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.delivery.best_candidate import Search
    from cuwheel.delivery.choosing import Choice
    from cuwheel.delivery.install_answer import Install
    from cuwheel.delivery.request import InstallRequest

_GLIBC = "2.28"  # of manylinux_2_28, which current wheels are for


def write_or_download(request: InstallRequest) -> Install:
    """A lock written, with its files where they are asked for; or those of one that is there, brought into a folder.

    Nothing is written where a machine is not served, or in a dry run.
    """
    if request.lock is None:
        path = request.locked or Path(NAME)
        files_there = download(read_lock(path), request.download or Path(), request.find_links)
        return initial_answer(path.name, downloaded=files_there, dry_run=request.dry_run)
    kinds: dict[Machine, list[Machine]] = {}
    for machine in machines_named([request.lock], request.refine):
        if machine.python is None:
            raise UsageError(
                f"the fleet file does not say which Python {machine.name} has",
                hint='add python = "3.12", or give --python',
            )
        known = with_platform(machine)  # what the fleet file does not say is as it is here
        kinds.setdefault(replace(known, name="", count=1), []).append(known)
    found = []
    for alike in kinds.values():
        log.info("resolving for %s", ", ".join(each.name for each in alike))
        found.append(_resolved(request, tuple(alike)))
    answer = initial_answer(
        request.wanted or request.lock.name, parts=tuple(part for part, _ in found), dry_run=request.dry_run
    )
    parts = tuple(each for _, each in found if each)
    if len(parts) < len(found) or request.dry_run:
        return answer
    wanted = (request.wanted,) if request.wanted else (str(request.requirements),)
    lock = InstallLock(wanted=wanted, parts=parts)
    path = request.output or Path(NAME)
    write_lock(path, lock)
    done = download(lock, request.download, request.find_links) if request.download else ()
    return replace(answer, lock=str(path), downloaded=done, written=True)


def _resolved(request: InstallRequest, alike: tuple[Machine, ...]) -> tuple[Part, LockPart | None]:
    """What one kind of machine installs: as it is shown, and as a lock has it, if all that was asked for runs there.

    What has to be compiled is compiled by nobody else: wheels alone.
    """
    machine = alike[0]
    own = with_fields(request, on=(machine,), refine=None, env=None, wheel_only=True, gpus=())
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
        packages={each.name: f"{_version(each)} ({each.ruling.outcome if each.ruling else ''})" for each in choices},
        fallback=next((each.fallback for each in choices if each.fallback), None),
        pins=settings.needed,
        files=tuple(map(_locked, releases)),
    )
    return replace(_part(names, choices, ""), pins=locked.pins, files=locked.files), locked


def _part(machines: tuple[str, ...], choices: Sequence[Choice], problem: str) -> Part:
    packages = tuple(each.package for each in choices)
    return Part(machines=machines, packages=packages, pins={}, files=(), problem=problem)


def _version(choice: Choice) -> str:
    return str(choice.ruling.candidate.version) if choice.ruling else ""


def _releases(search: Search, choices: Sequence[Choice], machine: Machine, rest: Sequence[str]) -> tuple[Release, ...]:
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
    found = resolver.resolve_with(wanted, environment_changes.index_variables(search))
    others = [each for each in found if normalised(each.name) not in own]
    if search.request.indexes:  # a name that one of them has is from there
        candidates.origins(others, search.places, search.session)
    return (*own.values(), *others)


def _with_extras(choice: Choice) -> str:
    extras = choice.requirement.extras if choice.fallback != "cpu build" else ()
    return f"{choice.name}[{','.join(sorted(extras))}]" if extras else choice.name


def _locked(release: Release) -> Release:
    """With a hash, and without a login."""
    sha256 = release.sha256
    if sha256 is None:
        with tempfile.TemporaryDirectory(prefix="cuwheel-") as scratch:
            sha256 = files.sha256(_fetched(release.url, Path(scratch, release.file), None, release.size))
    return replace(release, name=normalised(release.name), url=addresses.plain(release.url), sha256=sha256)


def download(lock: InstallLock, folder: Path, find_links: Sequence[str] = ()) -> tuple[str, ...]:
    """All files of the lock into one folder, each checked; those that are there already stay."""
    wanted = all_files(lock)
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


def found_in(wanted: Release, find_links: Sequence[str]) -> Path | None:
    """The file in one of these folders; one of that name with another content is no such file."""
    for each in find_links:
        folder = addresses.local_path(each)
        path = folder / wanted.file if folder else None
        if path and path.is_file() and files.sha256(path) == wanted.sha256:
            return path.absolute()
    return None


# The lock.

NAME = "install.lock"
SCHEMA = "cuwheel.install-lock/1"
_LARGEST = 1 << 26
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=[A-Za-z0-9._-]+", re.ASCII)
_AGAIN = "write it anew: cuwheel install NAME --lock fleet.toml"
_SCHEMES = ("https://", "http://", "file://")


class LockPart(Struct, frozen=True, kw_only=True):
    """One kind of machine: what is known of it, and what is installed there. Null: it does not matter.

    `driver`, `glibc`: the oldest that will do. `packages`: those that the lock is for, and how they run. `files`: they
    and all that they require.
    """

    machines: tuple[str, ...]
    capability: str
    os: str
    cpu: str
    python: str
    glibc: str | None
    driver: str | None
    packages: dict[str, str]
    fallback: str | None
    pins: dict[str, str]
    files: tuple[Release, ...]


class InstallLock(Struct, frozen=True, kw_only=True):
    schema: str = SCHEMA
    wanted: tuple[str, ...]
    parts: tuple[LockPart, ...]


def write_lock(path: Path, lock: InstallLock) -> None:
    """Beside it, then under its name."""
    files.write(path, msgspec.json.format(codec.encode(lock), indent=1) + b"\n", durable=True)


def read_lock(path: Path) -> InstallLock:
    """Raises where it is not one, or was changed by hand so that it contradicts itself."""
    data = files.read_limited(path, _LARGEST, "a lock", hint="write one: cuwheel install NAME --lock fleet.toml")
    try:
        head = codec.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(path, f"is not a lock of cuwheel install: {error}") from error
    codec.refuse_newer(head, SCHEMA, path)
    if not isinstance(head, dict) or head.get("schema") != SCHEMA:
        raise MalformedError(path, "is not a lock of cuwheel install", hint=_AGAIN)
    try:
        found = codec.decode(data, InstallLock)
    except msgspec.ValidationError as error:
        raise MalformedError(path, f"is not a lock of cuwheel install: {error}") from error
    if problems := list(dict.fromkeys(_problems(found))):
        raise MalformedError(path, "; ".join(problems[:3]), hint=_AGAIN)
    return found


def _problems(lock: InstallLock) -> Iterator[str]:
    """Names and hashes become paths, addresses and variables."""
    if not lock.parts:
        yield "it is for no machine"
    for part in lock.parts:
        for each in part.files:
            name = each.file[:80]
            if not addresses.is_file_name(each.file) or not each.file.endswith(".whl"):
                yield f"{name!r} is not the name of a wheel"
            if not _SHA256.fullmatch(each.sha256 or ""):
                yield f"{name!r} has no sha256"
            if not each.url.startswith(_SCHEMES):
                yield f"{name!r} has no address"
        yield from (
            f"{name[:40]!r} is not a setting"
            for name, value in part.pins.items()
            if not _VARIABLE.fullmatch(f"{name}={value}")
        )


def part_for(lock: InstallLock, machines: Sequence[Machine]) -> LockPart:
    """That of these machines, which are the GPUs of one; an error says how near the others are."""
    fitting = [[part for part in lock.parts if not list(_differences(part, each))] for each in machines]
    common = [part for part in fitting[0] if all(any(_is_same(part, other) for other in each) for each in fitting[1:])]
    if common:
        return max(common, key=lambda part: (versions.key(part.driver or "0"), versions.key(part.glibc or "0")))
    lines = []
    for part in lock.parts:
        reasons = dict.fromkeys(reason for each in machines for reason in _differences(part, each))
        lines.append(f"{', '.join(part.machines[:3])}: {'; '.join(reasons) or 'other files for another of its GPUs'}")
    raise UnavailableError(
        f"the lock has no part for this machine ({'; '.join(lines[:6])})",
        hint="add it to the fleet file and lock again: cuwheel install NAME --lock fleet.toml",
    )


def _is_same(part: LockPart, other: LockPart) -> bool:
    return {each.sha256 for each in part.files} == {each.sha256 for each in other.files}


def _differences(part: LockPart, machine: Machine) -> Iterator[str]:
    """Why a part is not for a machine. What is not known of the machine is no reason."""
    exact = (
        ("GPU", part.capability, machine.capability),
        ("system", part.os, machine.os),
        ("CPU", part.cpu, machine.cpu),
    )
    for what, wanted, has in exact:
        if has is not None and str(has) != wanted:
            yield f"its {what} is {wanted}, here it is {has}"
    if machine.python and versions.minor(machine.python) != part.python:
        yield f"it is for Python {part.python}, here it is {versions.minor(machine.python)}"
    for what, least, own in (("glibc", part.glibc, machine.glibc), ("driver", part.driver, machine.driver)):
        if least and own and not versions.at_least(own, least):
            yield f"it needs {what} {least}, here it is {own}"


def all_files(lock: InstallLock) -> tuple[Release, ...]:
    """Each once. Two files of one name and different content cannot lie in one folder."""
    found: dict[str, Release] = {}
    for part in lock.parts:
        for each in part.files:
            known = found.setdefault(each.file, each)
            if known.sha256 != each.sha256:
                raise MalformedError(each.file, "is in the lock with two different hashes")
    return tuple(found.values())


def packages_of(part: LockPart) -> tuple[Package, ...]:
    """As the lock has them."""
    known = {each.name: each for each in part.files}
    return tuple(
        Package(
            name=name,
            wanted=name,
            version=known[name].version if name in known else None,
            file=known[name].file if name in known else None,
            outcome="unknown",
            fallback=None,
            why="the lock says so",
            passed=(),
            build=None,
        )
        for name in part.packages
    )
