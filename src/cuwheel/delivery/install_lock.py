"""The lock of `cuwheel install`: for each kind of machine of a fleet the very files, with their hashes.

It is written on one machine and read on others: nothing in it is believed that could lead out of a folder, and no file
is taken whose hash is another.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from cuwheel.errors import MalformedError, UnavailableError
from cuwheel.facts import versions
from cuwheel.network import addresses
from cuwheel.support import codec, files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cuwheel.machine.fleet import Machine

NAME = "install.lock"
SCHEMA = "cuwheel.install-lock/1"
_LARGEST = 1 << 26
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=[A-Za-z0-9._-]+", re.ASCII)
_AGAIN = "write it anew: cuwheel install NAME --lock fleet.toml"
_SCHEMES = ("https://", "http://", "file://")


class LockedFile(Struct, frozen=True, kw_only=True):
    """`url` has no login in it."""

    name: str
    version: str
    file: str
    url: str
    sha256: str
    size: int | None = None


class Part(Struct, frozen=True, kw_only=True):
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
    files: tuple[LockedFile, ...]


class InstallLock(Struct, frozen=True, kw_only=True):
    schema: str = SCHEMA
    wanted: tuple[str, ...]
    parts: tuple[Part, ...]


def write(path: Path, lock: InstallLock) -> None:
    """Beside it, then under its name."""
    files.write(path, msgspec.json.format(codec.encode(lock), indent=1) + b"\n", durable=True)


def read(path: Path) -> InstallLock:
    """Raises where it is not one, or was changed by hand so that it contradicts itself."""
    data = files.read(path, _LARGEST, "a lock", hint="write one: cuwheel install NAME --lock fleet.toml")
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
            if not _SHA256.fullmatch(each.sha256):
                yield f"{name!r} has no sha256"
            if not each.url.startswith(_SCHEMES):
                yield f"{name!r} has no address"
        yield from (
            f"{name[:40]!r} is not a setting"
            for name, value in part.pins.items()
            if not _VARIABLE.fullmatch(f"{name}={value}")
        )


def part_for(lock: InstallLock, machines: Sequence[Machine]) -> Part:
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


def _is_same(part: Part, other: Part) -> bool:
    return {each.sha256 for each in part.files} == {each.sha256 for each in other.files}


def _differences(part: Part, machine: Machine) -> Iterator[str]:
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


def all_files(lock: InstallLock) -> tuple[LockedFile, ...]:
    """Each once. Two files of one name and different content cannot lie in one folder."""
    found: dict[str, LockedFile] = {}
    for part in lock.parts:
        for each in part.files:
            known = found.setdefault(each.file, each)
            if known.sha256 != each.sha256:
                raise MalformedError(each.file, "is in the lock with two different hashes")
    return tuple(found.values())
