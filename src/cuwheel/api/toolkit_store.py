"""Toolkits in the cache, and all else that is kept there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.report import cache as cache_report
from cuwheel.report import toolchain as report
from cuwheel.report.toolchain import Toolchain
from cuwheel.support.request_fields import takes_request
from cuwheel.toolchains import kept, provide
from cuwheel.toolchains import verify as verifying
from cuwheel.toolchains.request import CacheRequest, ToolchainRequest
from cuwheel.toolchains.store import open_store
from cuwheel.toolchains.toolchain import must_be_outside, shell_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.report.cache import Cache


@takes_request(ToolchainRequest)
def toolchain(request: ToolchainRequest) -> Toolchain:
    """A CUDA toolkit and a host compiler that it takes, installed into the cache if they are not there yet."""
    if request.dry_run:
        return report.foreseen(provide.decide(request))
    made = report.ready("install", provide.provide(request), open_store(request.cache))
    return replace(made, lock=str(request.lock) if request.lock else None)


def toolchains(*, cache: Path | None = None) -> Toolchain:
    """The toolkits that are installed."""
    there = open_store(cache)
    return Toolchain(action="list", cache=str(there.folder), toolkits=there.all())


@takes_request(ToolchainRequest)
def toolchain_env(request: ToolchainRequest) -> Toolchain:
    """The variables that lead build systems to an installed toolkit, as lines for a shell to eval."""
    made = provide.find(request)
    must_be_outside(made)
    return replace(report.ready("env", made, open_store(request.cache)), lines=shell_lines(made.settings))


@takes_request(ToolchainRequest)
def toolchain_verify(request: ToolchainRequest) -> Toolchain:
    """Whether an installed toolkit compiles and links for every architecture that it claims."""
    made = provide.find(request)
    return replace(report.ready("verify", made, open_store(request.cache)), verification=verifying.verify(made))


def toolchain_fetch(request: ToolchainRequest, *, to: Path) -> Toolchain:
    """The archives of a toolkit in a folder, with their lock, for `toolchain(version, fetched=folder)` elsewhere."""
    return report.fetched(*provide.fetch(request, to), to, open_store(request.cache))


def toolchain_remove(
    version: str | None = None,
    *,
    components: Sequence[str] = (),
    providers: Sequence[str] = (),
    every: bool = False,
    downloads: bool = False,
    cache: Path | None = None,
) -> Toolchain:
    """Remove installed toolkits: those of a version, or `every` one; and with `downloads` what they were made from."""
    there = open_store(cache)
    request = ToolchainRequest(version, components=components, providers=providers, cache=cache) if version else None
    gone, freed = provide.remove(request, there, every=every, downloads=downloads)
    return Toolchain(action="remove", cache=str(there.folder), toolkits=gone, freed=freed)


@takes_request(CacheRequest)
def cache(request: CacheRequest) -> Cache:
    """What is kept on this machine, by kind; with `prune` what is old, or too much, is removed."""
    place = open_store(request.cache).folder
    found = kept.things(place, request.env)
    return cache_report.answer_of(place, found, kept.prune(place, found, request) if request.prune else None)
