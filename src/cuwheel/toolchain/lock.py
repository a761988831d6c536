"""cuwheel.lock: the toolkits that were used, each archive with its hash, so that the same ones can be had again."""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from cuwheel import decode, files
from cuwheel.errors import ConfigurationError, MalformedError, NewerSchemaError, UnreadableError, UsageError
from cuwheel.facts import versions
from cuwheel.network import addresses
from cuwheel.toolchain import downloads
from cuwheel.toolchain.values import Archive, ProviderName, Recipe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel.toolchain.values import Installed, Request

NAME = "cuwheel.lock"
SCHEMA: Final = "cuwheel.lock/1"
_HEAD = "# What cuwheel built with. Written by `cuwheel toolchain install --lock`; used by `--locked`.\n"
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SERVERS = ("https://", "http://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    schema: Literal["cuwheel.lock/1"] = SCHEMA
    toolchain: tuple[Locked, ...] = ()


def locked(chosen: Recipe | Installed) -> Locked:
    """Addresses on this machine are left out: the file is for others too."""
    if not chosen.archives and chosen.provider != "system":
        raise UsageError(
            f"a toolkit of the provider {chosen.provider} cannot be locked: it is no set of files with hashes",
            hint="choose another: --provider system,index,redist,debian,conda",
        )
    entry = Locked(
        cuda=chosen.cuda,
        release=chosen.release,
        provider=chosen.provider,
        platform=chosen.platform,
        identity="",
        components=chosen.components,
        archive=tuple(replace(each, url=_lasting(each)) for each in chosen.archives),
    )
    return replace(entry, identity=entry.recipe().identity)


def _lasting(archive: Archive) -> str:
    """The address, if it is one for others too: not on this disk, and without a query, which signs it for us alone."""
    signed = archive.kind == "wheel" and "?" in archive.url  # the index is asked for it again
    return archive.url if archive.url.startswith(_SERVERS) and not signed else ""


def update(path: Path, entry: Locked) -> None:
    """Add a toolkit to the file, in place of the one of the same version and platform."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(path.parent):
            before = read(path).toolchain if path.exists() else ()
            kept = [each for each in before if (each.cuda, each.platform) != (entry.cuda, entry.platform)]
            rows = sorted([*kept, entry], key=lambda each: (versions.key(each.cuda), each.platform))
            files.write(path, text(rows))
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time changes a lock. The folder itself is held: nothing is left behind in somebody's project."""
    import fcntl  # noqa: PLC0415 - not on Windows, where no toolkit can be installed

    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot: then the last one wins
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def read(path: Path) -> Lock:
    try:
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        hint = "write one with: cuwheel toolchain install VERSION --lock"
        raise UnreadableError.from_os(error, path, hint=hint) from error


def parse(data: bytes, name: str) -> Lock:
    try:
        found = decode.toml(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedError(name, f"is no {NAME}: {error}") from error
    schema = str(found.get("schema", ""))
    version = schema.rpartition("/")[2]
    if schema.startswith("cuwheel.lock/") and version.isdigit() and int(version[:9]) > int(SCHEMA[-1]):
        raise NewerSchemaError(name, schema, SCHEMA)
    problems: list[str] = []
    result = decode.convert(found, Lock, NAME, problems)
    if result is None:
        raise ConfigurationError(name, problems)
    strange = [each.file for row in result.toolchain for each in row.archive if not _is_plain(each)]
    if strange:
        raise MalformedError(name, f"has archives that are no plain files with a sha256: {', '.join(strange)}")
    changed = [each.cuda for each in result.toolchain if each.archive and each.recipe().identity != each.identity]
    if changed:
        raise MalformedError(name, f"was edited: the identity of CUDA {', '.join(changed)} does not fit its archives")
    return result


def _is_plain(archive: Archive) -> bool:
    """Names and hashes become paths in the cache: they must not lead out of it."""
    hashed = _SHA256.fullmatch(archive.sha256) is not None or archive.kind == "conda"
    return hashed and addresses.is_file_name(archive.file)


def recipe_for(request: Request, source: str | None, path: Path | None) -> Recipe:
    """What a lock, or the folder that `fetch` filled, says of this version and platform."""
    if source:
        name = downloads.join(source, NAME)
        found = parse(downloads.text_of(source, NAME, offline=request.offline), name)
    else:
        path = path or Path(NAME)
        name, found = str(path), read(path)
    platform = f"linux-{request.cpu}"
    for each in found.toolchain:
        if each.cuda == request.cuda and each.platform == platform and request.exact in (None, each.release):
            lacking = {row.name for row in request.components} - set(each.components)
            if lacking:
                raise UsageError(f"{name}: its CUDA {each.cuda} has no {', '.join(sorted(lacking))}")
            return each.recipe()
    there = ", ".join(f"{each.cuda} for {each.platform}" for each in found.toolchain) or "nothing"
    raise UsageError(f"{name} has no CUDA {request.asked} for {platform}, but {there}")


def text(rows: Iterable[Locked]) -> str:
    return _HEAD + f'schema = "{SCHEMA}"\n' + "".join(_tables(rows))


def _tables(rows: Iterable[Locked]) -> Iterator[str]:
    for row in rows:
        yield "\n[[toolchain]]\n"
        yield from _pairs(row, skip="archive")
        for archive in row.archive:
            yield "\n[[toolchain.archive]]\n"
            yield from _pairs(archive)


def _pairs(value: Locked | Archive, skip: str = "") -> Iterator[str]:
    """JSON's strings, numbers and lists are TOML's too."""
    for name, each in msgspec.to_builtins(value).items():
        if name != skip and each not in (None, "", (), []):
            yield f"{name} = {json.dumps(each, ensure_ascii=False)}\n"
