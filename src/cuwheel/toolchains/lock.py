"""cuwheel.lock: the toolkits that were used, each archive with its hash, so that the same ones can be had again."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuwheel.errors import ConfigurationError, NewerSchemaError, UsageError
from cuwheel.network import addresses
from cuwheel.support import codec, files
from cuwheel.toolchains.archives import join_address, text_of
from cuwheel.toolchains.toolchain import Archive, ProviderName, Recipe
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.facts import versions
from cuwheel_core.support import opening

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel.toolchains.toolchain import Installed, Wanted

NAME = "cuwheel.lock"
SCHEMA: Final = "cuwheel.lock/1"
_HEAD = "# What cuwheel built with. Written by `--lock` of build and toolchain install; used by `--locked`.\n"
_HINT = "write one with: cuwheel toolchain install VERSION --lock"
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SERVERS = ("https://", "http://")


class Locked(Struct, frozen=True, kw_only=True):
    """One toolkit on one platform."""

    cuda: str
    release: str
    provider: ProviderName
    platform: str
    identity: str
    components: tuple[str, ...]
    archive: tuple[Archive, ...] = ()

    def recipe(self) -> Recipe:
        return Recipe(
            provider=self.provider,
            cuda=self.cuda,
            release=self.release,
            platform=self.platform,
            components=self.components,
            archives=self.archive,
            found_via=NAME,
        )


class Requirements(Struct, frozen=True, kw_only=True):
    """Python's packages that a build was made with: all of them, each a wheel with its hash."""

    cuda: str
    python: str
    platform: str
    archive: tuple[Archive, ...] = ()


class Lock(Struct, frozen=True, kw_only=True):
    schema: Literal["cuwheel.lock/1"] = SCHEMA
    toolchain: tuple[Locked, ...] = ()
    requirements: tuple[Requirements, ...] = ()


def locked(chosen: Recipe | Installed) -> Locked:
    """Addresses on this machine are left out: the file is for others too."""
    if not chosen.archives and chosen.provider != "system":
        raise UsageError(
            f"a toolkit of the provider {chosen.provider} cannot be locked: it is not a set of files with hashes",
            hint="choose another: --provider system,index,redist,debian,conda",
        )
    entry = Locked(
        cuda=chosen.cuda,
        release=chosen.release,
        provider=chosen.provider,
        platform=chosen.platform,
        identity="",
        components=chosen.components,
        archive=_for_others(chosen.archives),
    )
    return replace(entry, identity=entry.recipe().identity)


def _lasting(archive: Archive) -> str:
    """The address, if it is one for others too: not on this disk, and without a query, which signs it for us alone."""
    signed = archive.kind == "wheel" and "?" in archive.url  # the index is asked for it again
    return archive.url if archive.url.startswith(_SERVERS) and not signed else ""


def _for_others(archives: Iterable[Archive]) -> tuple[Archive, ...]:
    return tuple(replace(each, url=_lasting(each)) for each in archives)


def update(path: Path, *entries: Locked | Requirements) -> None:
    """Add toolkits or requirements to the file, in place of those of the same version, platform and Python."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(path.parent):
            before = read_lock(path) if path.exists() else Lock()
            rows = {_place(each): each for each in (*before.toolchain, *before.requirements, *entries)}
            files.write(path, text(rows[place] for place in sorted(rows)))
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error


def _place(entry: Locked | Requirements) -> tuple[bool, tuple[int, ...], str, tuple[int, ...]]:
    """Toolkits first, by version; what has the same place takes it."""
    python = entry.python if isinstance(entry, Requirements) else ""
    return bool(python), versions.key(entry.cuda), entry.platform, versions.key(python)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time changes a lock. The folder itself is held: nothing is left behind in somebody's project.

    On Windows no folder can be: there it is a file in the cache that stands for it.
    """
    place, flags = folder, os.O_RDONLY
    if os.name == "nt":
        place, flags = files.cache_folder() / "locks" / files.sha256_of(str(folder.resolve()).encode())[:16], os.O_RDWR
        place.parent.mkdir(parents=True, exist_ok=True)
        flags |= os.O_CREAT
    handle = opening.open_file(place, flags)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot: then the last one wins
            files.wait_for_lock(handle)
        yield
    finally:
        os.close(handle)


def read_lock(path: Path) -> Lock:
    try:
        return _checked(codec.read_toml(path), str(path))
    except msgspec.DecodeError as error:
        raise MalformedError(path, f"is not a {NAME}: {error}", _HINT) from error
    except OSError as error:
        raise UnreadableError.from_os(error, path, hint=_HINT) from error


def parse(data: bytes, name: str) -> Lock:
    try:
        found = codec.parse_toml(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedError(name, f"is not a {NAME}: {error}", _HINT) from error
    return _checked(found, name)


def _checked(found: dict[str, Any], name: str) -> Lock:
    schema = str(found.get("schema", ""))
    if codec.is_newer(schema, SCHEMA):
        raise NewerSchemaError(name, schema, SCHEMA)
    problems: list[str] = []
    result = codec.convert_or_list_problems(found, Lock, NAME, problems)
    if result is None:
        raise ConfigurationError(name, problems, _HINT)
    rows: tuple[Locked | Requirements, ...] = (*result.toolchain, *result.requirements)
    strange = [each.file for row in rows for each in row.archive if not _is_plain(each)]
    if strange:
        raise MalformedError(name, f"has archives that are not plain files with a sha256: {', '.join(strange)}", _HINT)
    changed = [each.cuda for each in result.toolchain if each.archive and each.recipe().identity != each.identity]
    if changed:
        problem = f"was edited: the identity of CUDA {', '.join(changed)} does not match its archives"
        raise MalformedError(name, problem, _HINT)
    return result


def _is_plain(archive: Archive) -> bool:
    """Names and hashes become paths in the cache: they must not lead out of it."""
    hashed = _SHA256.fullmatch(archive.sha256) is not None or archive.kind == "conda"
    return hashed and addresses.is_file_name(archive.file)


def recipe_for(wanted: Wanted, source: str | None, path: Path | None) -> Recipe:
    """What a lock, or the folder that `fetch` filled, says of this version and platform."""
    name, found = _opened(source, path, offline=wanted.offline)
    platform = wanted.platform
    for each in found.toolchain:
        if each.cuda == wanted.cuda and each.platform == platform and wanted.exact in (None, each.release):
            lacking = {row.name for row in wanted.components} - set(each.components)
            if lacking:
                raise UsageError(f"{name}: its CUDA {each.cuda} has no {', '.join(sorted(lacking))}")
            return each.recipe()
    listed = ", ".join(f"{each.cuda} for {each.platform}" for each in found.toolchain) or "nothing"
    raise UsageError(f"{name} has no CUDA {wanted.asked} for {platform}, only {listed}")


def _opened(source: str | None, path: Path | None, *, offline: bool) -> tuple[str, Lock]:
    if source:
        name = join_address(source, NAME)
        return name, parse(text_of(source, NAME, offline=offline), name)
    path = path or Path(NAME)
    return str(path), read_lock(path)


def requirements_for(
    toolkit: Installed, python: str, source: str | None, path: Path | None, *, offline: bool
) -> tuple[Archive, ...] | None:
    """Packages of a build with this toolkit and Python; None where the lock is of toolkits alone."""
    _, found = _opened(source, path, offline=offline)
    wanted = (toolkit.cuda, python, toolkit.platform)
    return next(
        (each.archive for each in found.requirements if (each.cuda, each.python, each.platform) == wanted), None
    )


def all_requirements(cuda: str, platform: str, path: Path | None) -> tuple[Requirements, ...]:
    """Packages for a toolkit, for every Python that the lock knows."""
    found = read_lock(path).requirements if path else ()
    return tuple(each for each in found if (each.cuda, each.platform) == (cuda, platform))


def requirements(toolkit: Installed, python: str, archives: Iterable[Archive]) -> Requirements:
    return Requirements(cuda=toolkit.cuda, python=python, platform=toolkit.platform, archive=_for_others(archives))


def text(rows: Iterable[Locked | Requirements]) -> str:
    return _HEAD + f'schema = "{SCHEMA}"\n' + "".join(_tables(rows))


def _tables(rows: Iterable[Locked | Requirements]) -> Iterator[str]:
    for row in rows:
        table = "requirements" if isinstance(row, Requirements) else "toolchain"
        yield f"\n[[{table}]]\n"
        yield from _pairs(row, skip="archive")
        for archive in row.archive:
            yield f"\n[[{table}.archive]]\n"
            yield from _pairs(archive)


def _pairs(value: Locked | Requirements | Archive, skip: str = "") -> Iterator[str]:
    """JSON's strings, numbers and lists are TOML's too."""
    for name, each in codec.builtins(value).items():
        if name != skip and each not in (None, "", (), []):
            yield f"{name} = {json.dumps(each, ensure_ascii=False)}\n"
