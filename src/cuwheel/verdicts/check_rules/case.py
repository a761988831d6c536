"""What the rules of `check` are asked about, and how they speak of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.device_code.contents import Survey, TorchExports
from cuwheel.machine.fleet import Machine
from cuwheel.verdicts.library_sources import Needed
from cuwheel.verdicts.loading import Loading
from cuwheel_core.device_code.libraries import Library
from cuwheel_core.verdicts.modules import Module
from cuwheel_core.verdicts.predict import Prediction

if TYPE_CHECKING:
    from cuwheel_core.verdicts.choice import CudaError


class LibraryCase(Struct, frozen=True, kw_only=True):
    """One library on one machine. `torch`: the installed one's symbols, where they were read. `survey`: of what."""

    library: Library
    machine: Machine
    prediction: Prediction
    needed: tuple[Needed, ...] = ()
    modules: tuple[Module, ...] = ()
    torch: TorchExports | None = None
    survey: Survey | None = None

    @property
    def code(self) -> Prediction:
        """What its code alone comes to, whatever else stops it."""
        return self.prediction.code or self.prediction

    @property
    def gpu(self) -> str:
        return gpu_in_words(self.machine)


class PackageCase(Struct, frozen=True, kw_only=True):
    """The whole target on one machine. `with_code`: the paths of the libraries in which a driver finds something."""

    survey: Survey
    machine: Machine
    loading: Loading
    with_code: frozenset[str]


def unreadable(survey: Survey) -> bool:
    """Whether a file in it is damaged that may hold what is asked about."""
    return any(each.rule == "library-unreadable" and each.severity == "error" for each in survey.findings)


def gpu_in_words(machine: Machine) -> str:
    """`H100 (9.0)`, or `GPU of capability 9.0`."""
    if machine.gpu and machine.capability:
        return f"{machine.gpu} ({machine.capability})"
    return f"GPU of capability {machine.capability}" if machine.capability else machine.gpu or "GPU"


def error_words(error: CudaError) -> str:
    return f"error {error.code} ({error.name})"
