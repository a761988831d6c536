"""A toolchain, ready to build with: decided, then fetched, then completed by a host compiler."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel import log
from cuwheel.errors import UnavailableError, UnknownNameError, UsageError
from cuwheel.facts import toolchains, toolkits, versions
from cuwheel.machine.profile import Attempt
from cuwheel.machine.world import World
from cuwheel.network import addresses
from cuwheel.toolchains import archives, host_compiler, lock, providers, settings
from cuwheel.toolchains.downloads import Supply
from cuwheel.toolchains.making import Making
from cuwheel.toolchains.store import open_store
from cuwheel.toolchains.values import HostCompiler, Installed, Recipe, Request, Toolchain
from cuwheel.toolchains.world import Surroundings

if TYPE_CHECKING:
    from cuwheel.facts.rows.toolkits import Toolkit
    from cuwheel.toolchains.values import ProviderName

_PATCH = re.compile(r"(?:cuda)?[\s_-]*v?(\d+\.\d+\.\d+)", re.IGNORECASE | re.ASCII)
_CPUS = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a person, or a build, asks for. An empty tuple of providers means all, in their order.

    `source`: the folder or URL that `fetch` filled. `locked`: a cuwheel.lock, whose toolkit is installed and no other.
    `host_compiler`: a program; empty for none at all, None to choose one.
    """

    version: str
    components: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    cache: Path | None = None
    offline: bool = False
    upgrade: bool = False
    source: str | None = None
    locked: Path | None = None
    host_compiler: str | None = None
    redist_url: str | None = None
    apt_sources: str | None = None
    image: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is going to be done: `chosen` is a recipe, or what is installed already."""

    request: Request
    chosen: Recipe | Installed
    around: Surroundings
    supply: Supply
    trail: tuple[Attempt, ...]


def provide(wish: Wish) -> Toolchain:
    """The toolchain of a wish, installed if it is not there yet."""
    decision = decide(wish)
    compiler = _compiler(wish, decision.chosen)  # before anything is fetched: without one a toolkit is of no use
    toolkit = carry_out(decision)
    decision.around.store.touch(toolkit)
    return _complete(toolkit, compiler, decision.trail)


def foresee(wish: Wish) -> Toolchain:
    """The toolchain that `provide` would give: nothing is fetched, and a toolkit that is not there yet has no size."""
    decision = decide(wish)
    compiler = _compiler(wish, decision.chosen)
    return _complete(_expected(decision), compiler, decision.trail)


def _expected(decision: Decision) -> Installed:
    chosen = decision.chosen
    if isinstance(chosen, Installed):
        return chosen
    store = decision.around.store
    folder = store.place(chosen)
    conda = store.folder / "conda" / folder.name
    return Installed(
        identity=chosen.identity,
        provider=chosen.provider,
        cuda=chosen.cuda,
        release=chosen.release,
        version=chosen.release,
        platform=chosen.platform,
        components=chosen.components,
        folder=str(folder),
        root=chosen.place or str(conda if chosen.provider == "conda" else folder / "root"),
        size=0,
        archives=chosen.archives,
        prefix=chosen.prefix,
        found_via=chosen.found_via,
    )


def _complete(toolkit: Installed, compiler: HostCompiler | None, trail: tuple[Attempt, ...]) -> Toolchain:
    compiler = toolkit.host_compiler or compiler
    chosen = settings.settings(toolkit, compiler)
    return Toolchain(toolkit=toolkit, host_compiler=compiler, settings=chosen, trail=trail)


def decide(wish: Wish) -> Decision:
    wish = replace(wish, source=wish.source and addresses.plain(wish.source))
    store = open_store(wish.cache)
    around = Surroundings.here(store)
    request = request_of(wish, around)
    supply = Supply(store=store, offline=wish.offline, base=wish.source)
    if wish.source or wish.locked:
        recipe = lock.recipe_for(request, wish.source, wish.locked)
        if recipe.provider != "system":
            return _as_locked(wish, request, recipe, around, supply)
        request = replace(request, providers=("system",), exact=recipe.release)

    def have(name: ProviderName) -> Installed | None:
        if wish.upgrade or name == "system":  # a system's toolkit may have gone or changed: it is looked at again
            return None
        fitting = [each for each in store.all() if each.provider == name and serves(each, request)]
        return max(fitting, key=_closeness, default=None)

    chosen, trail = providers.decide(request, around, have)
    return Decision(request=request, chosen=chosen, around=around, supply=supply, trail=trail)


def _as_locked(wish: Wish, request: Request, recipe: Recipe, around: Surroundings, supply: Supply) -> Decision:
    if not wish.source:
        recipe = replace(recipe, archives=archives.with_addresses(recipe.archives, offline=wish.offline))
    chosen = around.store.find(recipe.identity) or recipe
    return Decision(request=request, chosen=chosen, around=around, supply=supply, trail=())


def carry_out(decision: Decision) -> Installed:
    if isinstance(decision.chosen, Installed):
        return decision.chosen
    recipe = decision.chosen
    log.info("CUDA %s from %s: %s", recipe.release, recipe.provider, recipe.found_via)

    def fill(scratch: Path, final: Path) -> Installed:
        making = Making(scratch=scratch, final=final, supply=decision.supply)
        return providers.provider(recipe.provider).make(recipe, making)

    return decision.around.store.make(recipe, fill)


def request_of(wish: Wish, around: Surroundings) -> Request:
    """All mistakes of a wish at once."""
    problems: list[str] = []
    row: Toolkit | None = None
    try:
        row = toolkits.find_toolkit(wish.version)
    except UnknownNameError as error:
        if not (wish.components or wish.providers):
            raise
        problems.append(f"{error.message} ({error.hint})")
    for name in wish.components:
        try:
            toolchains.find_components(name)
        except UnknownNameError as error:
            problems.append(f"{error.message} ({error.hint})" if error.hint else error.message)
    unknown = [name for name in wish.providers if name not in providers.ORDER]
    problems += [f"there is no provider {name!r}: there are {', '.join(providers.ORDER)}" for name in unknown]
    if problems or row is None:
        raise UsageError("; ".join(problems), hint="cuwheel toolchain --help")
    match = _PATCH.fullmatch(wish.version.strip())
    return Request(
        toolkit=row,
        exact=match[1] if match else None,
        components=toolchains.with_base(wish.components),
        providers=providers.chosen(wish.providers),
        cpu=_cpu(around),
        offline=wish.offline,
        redist_url=wish.redist_url and addresses.plain(wish.redist_url),
        apt_sources=wish.apt_sources,
        image=wish.image,
    )


def serves(toolkit: Installed, request: Request) -> bool:
    """Whether what is installed is what is asked for, or more."""
    wanted = {row.name for row in request.components}
    patch = request.exact is None or request.exact in (toolkit.version, _patch(toolkit.release))
    return toolkit.cuda == request.cuda and patch and wanted <= set(toolkit.components)


def _closeness(toolkit: Installed) -> tuple[int, tuple[int, ...]]:
    """What brings the least that was not asked for, and of those the newest."""
    return -len(toolkit.components), versions.key(toolkit.release)


def _patch(release: str) -> str:
    """`13.0.3.0`, as the index writes it, is 13.0.3."""
    return ".".join(release.split(".")[:3])


def _cpu(around: Surroundings) -> str:
    machine = around.machine
    if machine.platform != "linux" or machine.cpu not in _CPUS:
        raise UnavailableError(f"toolkits can be installed on Linux, x86-64 and arm64, not on {machine.platform}")
    return _CPUS[machine.cpu]


def _compiler(wish: Wish, chosen: Recipe | Installed) -> HostCompiler | None:
    if wish.host_compiler == "" or chosen.provider in ("conda", "container"):  # none is wanted, or they bring one
        return None
    return host_compiler.choose(World.here(), toolkits.find_toolkit(chosen.cuda), wish.host_compiler)


def installed_like(wish: Wish) -> tuple[Installed, ...]:
    """What the store has for a wish, last used first; nothing is looked for elsewhere."""
    store = open_store(wish.cache)
    request = request_of(wish, Surroundings.here(store))
    found = [each for each in store.all() if serves(each, request) and each.provider in request.providers]
    return tuple(sorted(found, key=store.last_used, reverse=True))


def find(wish: Wish) -> Toolchain:
    """As `provide`, but only what was installed before: the last used of those that fit."""
    there = installed_like(wish)
    if not there:
        options = [f"--with {','.join(wish.components)}"] if wish.components else []
        options += [f"--provider {','.join(wish.providers)}"] if wish.providers else []
        words = " ".join(["cuwheel toolchain install", wish.version, *options])
        raise UnavailableError(f"CUDA {wish.version} is not installed", hint=words)
    return _complete(there[0], _compiler(wish, there[0]), ())
