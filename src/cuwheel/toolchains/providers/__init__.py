"""Where toolkits come from, in the order in which they are tried. Each decides first, and acts when told to."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, cast, get_args

from cuwheel.errors import UnavailableError
from cuwheel.machine.profile import Attempt
from cuwheel.toolchains.toolchain import ProviderName
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts import toolkits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cuwheel.toolchains.toolchain import Installed, Recipe, Wanted
    from cuwheel.toolchains.workplace import Surroundings, Workplace

ORDER: tuple[ProviderName, ...] = get_args(ProviderName)
_FOR_OTHERS: tuple[ProviderName, ...] = (
    "system",
    "index",
    "redist",
)  # whose parts for two processors can be put together
_ON_WINDOWS: tuple[ProviderName, ...] = ("system", "index")


class Provider(Protocol):
    """What a module of this package holds."""

    def decide(self, wanted: Wanted, around: Surroundings) -> Recipe:
        """What to do; raises with the reason where this provider cannot."""

    def make(self, recipe: Recipe, workplace: Workplace) -> Installed:
        """Do it."""


def chosen(names: Sequence[str]) -> tuple[ProviderName, ...]:
    """Those named, in the order in which they were named; else all."""
    known: dict[str, ProviderName] = {name: name for name in ORDER}
    return tuple(dict.fromkeys(known[name] for name in names)) or ORDER


def provider(name: ProviderName) -> Provider:
    return cast("Provider", importlib.import_module(f"cuwheel.toolchains.providers.{name}"))


def first_recipe(names: Sequence[ProviderName], wanted: Wanted, around: Surroundings) -> Recipe:
    """The recipe of the first of these that has one; raises with what all of them say."""
    reasons = []
    for name in names:
        try:
            return provider(name).decide(wanted, around)
        except CuwheelError as error:
            reasons.append(error.message.splitlines()[0])
    raise UnavailableError("; ".join(reasons))


def decide(
    wanted: Wanted, around: Surroundings, have: Callable[[ProviderName], Installed | None]
) -> tuple[Recipe | Installed, tuple[Attempt, ...]]:
    """The first provider's that can: what `have` finds in the store, else a recipe. And what the others said."""
    trail: list[Attempt] = []
    for name in wanted.providers:
        if found := have(name):
            trail.append(Attempt(fact="toolchain", tried=name, outcome=f"installed before: {found.root}"))
            return found, tuple(trail)
        if wanted.system == "windows" and name not in _ON_WINDOWS:
            trail.append(Attempt(fact="toolchain", tried=name, outcome="is for Linux alone"))
            continue
        if wanted.target and name not in _FOR_OTHERS:
            trail.append(Attempt(fact="toolchain", tried=name, outcome=f"is not for {wanted.target} on {wanted.cpu}"))
            continue
        try:
            recipe = provider(name).decide(wanted, around)
        except CuwheelError as error:
            trail.append(Attempt(fact="toolchain", tried=name, outcome=_in_a_line(error)))
            continue
        trail.append(Attempt(fact="toolchain", tried=name, outcome=recipe.found_via or "can"))
        return recipe, tuple(trail)
    raise none_can(wanted, trail)


def _in_a_line(error: CuwheelError) -> str:
    """An error in one line: what happened, and the last that a program said of it."""
    lines = [line.strip(" |") for line in error.message.splitlines() if line.strip(" |")]
    return lines[0] if len(lines) == 1 else f"{lines[0]}: {lines[-1]}"


def none_can(wanted: Wanted, trail: Sequence[Attempt]) -> UnavailableError:
    parts = ", ".join(row.name for row in wanted.components if not row.base)
    hint = "cuwheel lookup cuda lists the versions; what providers need: cuwheel toolchain install --help"
    if wanted.l4t:
        hint = (
            f"bring JetPack's toolkit, a board's /usr/local/cuda-{wanted.cuda}: --provider system=FOLDER; or build "
            f"with CUDA {toolkits.last_joined()} or later, which servers and newer JetPacks share"
        )
    if wanted.offline:
        hint = "--offline uses only earlier downloads: run once without it, or bring the files: cuwheel toolchain fetch"
    asked = f"{wanted.asked}{f' with {parts}' if parts else ''}{f' for {wanted.target}' if wanted.target else ''}"
    tried = (f"  - {each.tried}: {each.outcome}" for each in trail)
    return UnavailableError((f"no provider has CUDA {asked}:", *tried), hint=hint)
