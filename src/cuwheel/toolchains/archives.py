"""Wheels of the index as archives of a toolkit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.errors import UnavailableError
from cuwheel.network import addresses, resolver
from cuwheel.support import files
from cuwheel.toolchains.toolchain import Archive

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def resolve(
    requirements: Sequence[str], *, dependencies: bool = True, offline: bool = False, python: str | None = None
) -> tuple[Archive, ...]:
    """`python`: another version than the one that asks."""
    wanted = resolver.Wanted(
        requirements=tuple(requirements), dependencies=dependencies, offline=offline, python=python
    )
    return tuple(_archive(each) for each in resolver.resolve(wanted))


def _archive(release: resolver.Release) -> Archive:
    local = addresses.local_path(release.url)
    sha256 = release.sha256 or (files.sha256(local) if local else None)
    if sha256 is None:
        raise UnavailableError(f"the index gives no sha256 for {release.file}, and unchecked files are not installed")
    return Archive(
        kind="wheel",
        name=release.name,
        version=release.version,
        file=release.file,
        url=release.url,
        sha256=sha256,
        size=release.size,
    )


def with_addresses(archives: Sequence[Archive], *, offline: bool = False) -> tuple[Archive, ...]:
    """Where the index has the wheels that a lock only names. The hash decides whether it is the same file."""
    lacking = [each for each in archives if each.kind == "wheel" and not each.url]
    if not lacking or offline:
        return tuple(archives)
    found = {
        each.sha256: each.url
        for each in resolve([f"{each.name}=={each.version}" for each in lacking], dependencies=False)
    }
    return tuple(replace(each, url=each.url or found.get(each.sha256, "")) for each in archives)


def in_order(archives: Iterable[Archive]) -> tuple[Archive, ...]:
    return tuple(sorted(archives, key=lambda each: (each.kind, each.name)))
