"""What the rules of the gate are asked about: the wheel, what it was to be, and its containers sorted out."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.building import gate_units
from cuwheel.building.gate_units import Allowance, Unit
from cuwheel.building.gate_values import Listed, Wanted
from cuwheel.device_code.libraries import Library, Survey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel.facts.arch import Arch

DEBUG = "debug"  # among the words of `allow`, beside architectures


class Case(Struct, frozen=True, kw_only=True, dict=True):
    """`units`: of the libraries that the build itself made. `foreign`: NVIDIA's libraries that stand in the wheel."""

    survey: Survey
    wanted: Wanted
    units: tuple[Unit, ...]
    foreign: tuple[Library, ...] = ()

    @cached_property
    def planned(self) -> frozenset[str]:
        return gate_units.planned(self.wanted)

    @cached_property
    def allowance(self) -> Allowance:
        return Allowance(self.wanted.table.allow)

    @property
    def libraries(self) -> tuple[Library, ...]:
        """Those that the build made."""
        foreign = {library.path for library in self.foreign}
        return tuple(
            library
            for library in self.survey.libraries
            if library.path not in foreign and not self.allowance.whole(library.path)
        )

    def from_sources(self) -> Iterator[Unit]:
        """What was compiled from the sources, and holds something."""
        return (
            unit
            for unit in self.units
            if not unit.from_toolkit and not unit.inert and not self.allowance.whole(unit.library)
        )

    def judged(self) -> Iterator[Unit]:
        """Of those, the ones that must hold the plan: all but what `allow` names whole."""
        return (unit for unit in self.from_sources() if not self.is_allowed_whole(unit))

    def is_allowed_whole(self, unit: Unit) -> bool:
        """All of it is unplanned and allowed: a file with flags of its own, which the configuration accepts."""
        return bool(unit.codes) and all(
            arch not in self.planned and self.allowance.word(unit.library, arch) for arch in unit.archs
        )

    def unplanned(self, unit: Unit) -> tuple[str, ...]:
        """Neither planned nor allowed."""
        extra = unit.archs - self.planned
        return tuple(sorted(arch for arch in extra if not self.allowance.word(unit.library, arch)))

    def listed(self) -> tuple[Listed, ...]:
        """Unplanned code that is accepted, by library and by where it came from."""
        found: dict[tuple[str, str], list[tuple[Unit, Arch, int]]] = {}
        for unit in self.units:
            for code in unit.codes:
                if code.arch not in self.planned and (origin := self._origin(unit, code.arch)):
                    found.setdefault((unit.library, origin), []).append((unit, code.arch, code.bytes))
        return tuple(
            Listed(
                library=library,
                archs=tuple(sorted({arch for _, arch, _ in rows}, key=order)),
                containers=len({unit.number for unit, _, _ in rows}),
                bytes=sum(size for _, _, size in rows),
                origin=origin,
            )
            for (library, origin), rows in found.items()
        )

    def _origin(self, unit: Unit, arch: str) -> str:
        if unit.from_toolkit and unit.origin:
            return f"{unit.origin.name} of the toolkit"
        if unit.inert:
            return "an empty device link" if unit.device_linked else "a source file without kernels"
        word = self.allowance.word(unit.library, arch)
        return f"allowed by {word}" if word else ""


def order(arch: str) -> tuple[bool, int, str]:
    """Machine code first, each kind by number."""
    kind, _, number = arch.partition("_")
    digits = number.rstrip("af")
    return kind != "sm", int(digits) if digits.isdigit() else 0, arch


def joined(archs: Iterable[str]) -> str:
    return " ".join(sorted(set(archs), key=order))


def of(count: int, total: int, noun: str) -> str:
    """`both containers`, `2 of 5 containers`, `its container`."""
    if total == 1:
        return f"its {noun}"
    return f"all {total} {noun}s" if count == total else f"{count} of {total} {noun}s"
