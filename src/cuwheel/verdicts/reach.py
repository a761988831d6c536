"""What a library's device code serves, GPU by GPU: the one model behind `inspect`'s sentence and `check`'s verdict."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.device_code.libraries import Library
from cuwheel.facts import architectures, libraries
from cuwheel.facts.arch import Capability
from cuwheel.support.units import file_name
from cuwheel.verdicts.choose import Device
from cuwheel.verdicts.modules import Choosing, Module, choosing, modules
from cuwheel.verdicts.predict import Outcome, by_code, of_modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cuwheel.device_code.libraries import Survey
    from cuwheel.machine.fleet import Machine
    from cuwheel.verdicts.predict import Prediction

_LOOSE = ("fatbin", "ptx")
# Packages that link device code when they run: cudf hands its fat binary to numba-cuda, as a file to link.
_LINKS = re.compile(r"(?:numba-cuda|pynvjitlink|nvidia-nvjitlink)(?![a-z])")


class Reach(Struct, frozen=True, kw_only=True):
    """A library and its modules, which are the same for every machine.

    `by_linker`: the package hands it to nvJitLink, and the driver gets machine code alone.
    """

    library: Library
    modules: tuple[Module, ...]
    chooses: Choosing
    by_linker: bool = False

    @property
    def has_code(self) -> bool:
        """Whether there is anything that a driver could load."""
        return bool(self.modules)

    def on(self, machine: Machine) -> Prediction:
        return of_modules(self.library, self.modules, self.chooses, machine, by_linker=self.by_linker)

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
    found = {library.path: of(library) for library in survey.libraries}
    found |= {path: replace(each, modules=()) for path, each in found.items() if only_for_tools(each.library, survey)}
    return found | {path: replace(found[path], by_linker=True) for path in _for_linker(survey)}


def only_for_tools(library: Library, survey: Survey) -> bool:
    """Whether a package bundles it for its profiler, as triton CUPTI: what the package is for does not run in it."""
    about = survey.distribution
    if about is None or about.name.startswith("nvidia-"):
        return False
    return any(libraries.is_for_tools(name) for name in (library.soname, file_name(library.path)) if name)


def _for_linker(survey: Survey) -> Iterator[str]:
    """The files of a package that it hands to nvJitLink: device code alone, with LTO-IR, which no driver loads, or PTX
    where the package requires a linker. What loads a file of no package is not known.
    """
    if survey.distribution is None:
        return
    requires = [each for each in survey.distribution.requires if "extra ==" not in each]
    links = any(map(_LINKS.match, requires))
    for each in survey.libraries:
        kinds = {row.kind for row in each.device_code}
        if each.format in _LOOSE and ("lto-ir" in kinds or (links and kinds == {"ptx"})):
            yield each.path


def served_together(sweeps: Sequence[Mapping[Capability, Outcome]]) -> bool:
    """Whether there is a GPU on which none of these fails. Otherwise they are not meant to run together."""
    return not sweeps or any(all(each[device] != "fails" for each in sweeps) for device in sweeps[0])
