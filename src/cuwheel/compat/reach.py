"""What a library's device code serves, GPU by GPU: the one model behind `inspect`'s sentence and `check`'s verdict."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.compat.choose import Device
from cuwheel.compat.modules import Choosing, Module, choosing, modules
from cuwheel.compat.predict import Outcome, by_code, of_modules
from cuwheel.facts import architectures
from cuwheel.facts.arch import Capability
from cuwheel.inspection.libraries import Library

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cuwheel.compat.predict import Prediction
    from cuwheel.inspection.libraries import Survey
    from cuwheel.machine.fleet import Machine


class Reach(Struct, frozen=True, kw_only=True):
    """A library and its modules, which are the same for every machine."""

    library: Library
    modules: tuple[Module, ...]
    chooses: Choosing

    @property
    def has_code(self) -> bool:
        """Whether there is anything that a driver could load."""
        return bool(self.modules)

    def on(self, machine: Machine) -> Prediction:
        return of_modules(self.library, self.modules, self.chooses, machine)

    def by_code(self, device: Device) -> Prediction:
        """On a GPU, whatever else of its machine may stop the library."""
        return by_code(self.modules, self.chooses, device)

    def sweep(self) -> dict[Capability, Outcome]:
        """On every known capability and on one newer than all of them, by the code alone."""
        return dict(_swept(self.modules, self.chooses))


@lru_cache(maxsize=1024)  # a package may have thousands of cubins for a few architectures
def _swept(found: tuple[Module, ...], chooses: Choosing) -> dict[Capability, Outcome]:
    known = architectures.current_capabilities()
    newer = Capability(known[-1].major + 1, 0)
    return {each: by_code(found, chooses, Device(capability=each)).outcome for each in (*known, newer)}


def of(library: Library) -> Reach:
    """Needs the library's containers."""
    found = modules(library)
    return Reach(library=library, modules=found, chooses=choosing(library, found))


def of_all(survey: Survey) -> dict[str, Reach]:
    """By path."""
    return {library.path: of(library) for library in survey.libraries}


def served_together(sweeps: Sequence[Mapping[Capability, Outcome]]) -> bool:
    """Whether there is a GPU on which none of these fails. Otherwise they are not meant to run together."""
    return not sweeps or any(all(each[device] != "fails" for each in sweeps) for device in sweeps[0])
