"""Toolkits in the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.report.toolchain import Toolchain as ToolchainAnswer


def toolchain(  # noqa: PLR0913 - the options of the verb, all by keyword
    version: str,
    *,
    components: Sequence[str] = (),
    providers: Sequence[str] = (),
    cache: Path | None = None,
    offline: bool = False,
    upgrade: bool = False,
    source: str | None = None,
    locked: Path | None = None,
    lock: Path | None = None,
    host_compiler: str | None = None,
    redist_url: str | None = None,
    apt_sources: str | None = None,
    image: str | None = None,
    dry_run: bool = False,
) -> ToolchainAnswer:
    """A CUDA toolkit and a host compiler that it takes, installed into the cache if they are not there yet."""
    from cuwheel.report.toolchain import Toolchain
    from cuwheel.toolchains import lock as lock_
    from cuwheel.toolchains import notes, provide, store
    from cuwheel.toolchains.values import Recipe

    wish = provide.Wish(
        version=version,
        components=tuple(components),
        providers=tuple(providers),
        cache=cache,
        offline=offline,
        upgrade=upgrade,
        source=source,
        locked=locked,
        host_compiler=host_compiler,
        redist_url=redist_url,
        apt_sources=apt_sources,
        image=image,
    )
    where = str(store.open_store(cache).folder)
    if dry_run:
        decision = provide.decide(wish)
        chosen = decision.chosen
        return Toolchain(
            action="install",
            cache=where,
            toolkits=() if isinstance(chosen, Recipe) else (chosen,),
            recipe=chosen if isinstance(chosen, Recipe) else None,
            trail=decision.trail,
        )
    made = provide.provide(wish)
    if lock:
        lock_.update(lock, lock_.locked(made.toolkit))
    return Toolchain(
        action="install",
        cache=where,
        toolkits=(made.toolkit,),
        host_compiler=made.host_compiler,
        settings=made.settings,
        lock=str(lock) if lock else None,
        trail=made.trail,
        findings=notes.examine(made),
    )


def toolchains(*, cache: Path | None = None) -> ToolchainAnswer:
    """The toolkits that are installed."""
    from cuwheel.report.toolchain import Toolchain
    from cuwheel.toolchains import store

    there = store.open_store(cache)
    return Toolchain(action="list", cache=str(there.folder), toolkits=there.all())


def toolchain_env(
    version: str,
    *,
    components: Sequence[str] = (),
    providers: Sequence[str] = (),
    cache: Path | None = None,
    host_compiler: str | None = None,
) -> ToolchainAnswer:
    """The variables that lead build systems to an installed toolkit, as lines for a shell to eval."""
    from cuwheel.errors import UsageError
    from cuwheel.report.toolchain import Toolchain
    from cuwheel.toolchains import provide, settings, store

    made = provide.find(
        provide.Wish(
            version=version,
            components=tuple(components),
            providers=tuple(providers),
            cache=cache,
            host_compiler=host_compiler,
        )
    )
    if made.prefix:
        raise UsageError(f"this CUDA {version} is in a container", hint="run inside: " + " ".join(made.prefix))
    return Toolchain(
        action="env",
        cache=str(store.open_store(cache).folder),
        toolkits=(made.toolkit,),
        host_compiler=made.host_compiler,
        settings=made.settings,
        lines=settings.lines(made.settings),
    )


def toolchain_verify(
    version: str,
    *,
    components: Sequence[str] = (),
    providers: Sequence[str] = (),
    cache: Path | None = None,
    host_compiler: str | None = None,
) -> ToolchainAnswer:
    """Whether an installed toolkit compiles and links for every architecture that it claims."""
    from cuwheel.report.toolchain import Toolchain
    from cuwheel.toolchains import notes, provide, store, verify

    made = provide.find(
        provide.Wish(
            version=version,
            components=tuple(components),
            providers=tuple(providers),
            cache=cache,
            host_compiler=host_compiler,
        )
    )
    return Toolchain(
        action="verify",
        cache=str(store.open_store(cache).folder),
        toolkits=(made.toolkit,),
        host_compiler=made.host_compiler,
        settings=made.settings,
        verification=verify.verify(made),
        findings=notes.examine(made),
    )


def toolchain_fetch(  # noqa: PLR0913 - the options of the verb, all by keyword
    version: str,
    *,
    to: Path,
    components: Sequence[str] = (),
    providers: Sequence[str] = (),
    cache: Path | None = None,
    offline: bool = False,
    upgrade: bool = False,
    locked: Path | None = None,
    redist_url: str | None = None,
    apt_sources: str | None = None,
    image: str | None = None,
    dry_run: bool = False,
) -> ToolchainAnswer:
    """The archives of a toolkit in a folder, with their lock, for `toolchain(version, source=folder)` elsewhere."""
    from cuwheel.report.toolchain import Toolchain
    from cuwheel.toolchains import carry, lock, provide, store

    wish = provide.Wish(
        version=version,
        components=tuple(components),
        providers=tuple(providers),
        cache=cache,
        offline=offline,
        upgrade=upgrade,
        locked=locked,
        redist_url=redist_url,
        apt_sources=apt_sources,
        image=image,
    )
    recipe, files = carry.fetch(wish, to, dry_run=dry_run)
    return Toolchain(
        action="fetch",
        cache=str(store.open_store(cache).folder),
        recipe=recipe,
        fetched=tuple(path.name for path in files),
        lock=str(to / lock.NAME),
    )


def toolchain_remove(
    version: str | None,
    *,
    components: Sequence[str] = (),
    providers: Sequence[str] = (),
    downloads: bool = False,
    cache: Path | None = None,
) -> ToolchainAnswer:
    """Remove installed toolkits: those of a version, or all."""
    from cuwheel.report.toolchain import Toolchain
    from cuwheel.toolchains import provide, store

    there = store.open_store(cache)
    wish = provide.Wish(version=version or "", components=tuple(components), providers=tuple(providers), cache=cache)
    doomed = provide.installed_like(wish) if version else there.all()
    for each in doomed:
        there.remove(each)
    freed = sum(each.size for each in doomed) + (there.remove_downloads() if downloads else 0)
    return Toolchain(action="remove", cache=str(there.folder), toolkits=doomed, freed=freed)
