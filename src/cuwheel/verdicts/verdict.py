"""The verdict on a target and a machine: values, named as the JSON names them, and how they add up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.support.finding import Finding
from cuwheel.verdicts.choice import CudaError
from cuwheel.verdicts.predict import Containers, Outcome, Taken

if TYPE_CHECKING:
    from collections.abc import Iterable

# The best first. `unknown` is better than `fails` only where nothing is known to fail.
ORDER: tuple[Outcome, ...] = ("native", "compatible", "jit", "partial", "unknown", "fails")


GOOD: tuple[Outcome, ...] = ("native", "compatible", "jit")


class LibraryVerdict(Struct, frozen=True, kw_only=True):
    """`loaded`: null where it depends on what is not known. `optional`: the rest works without it. `main`: it is what
    the package is for.

    `rests_on`: the entries that the driver takes.
    """

    path: str
    outcome: Outcome
    containers: Containers
    predicted_error: CudaError | None
    loaded: bool | None
    optional: bool
    main: bool
    rests_on: tuple[Taken, ...]
    conditions: tuple[str, ...]


class Verdict(Struct, frozen=True, kw_only=True):
    """`machine` is its name. `conditions`: what was not known and must hold.

    `main`: what the libraries come to that the package is for. `summary`: of `partial`, what works and what does not.
    """

    target: str
    machine: str
    outcome: Outcome
    main: Outcome = "unknown"
    summary: str = ""
    predicted_error: CudaError | None
    conditions: tuple[str, ...]
    libraries: tuple[LibraryVerdict, ...]
    findings: tuple[Finding, ...]


def together(libraries: Iterable[LibraryVerdict]) -> Outcome:
    """All of them must serve; one that is opened only when asked for, or only linked, leaves the rest working.

    How those run that the rest works without does not matter beside the others.
    """
    found = list(libraries)
    deciding = [each for each in found if not each.optional]
    outcome = worst(each.outcome for each in deciding) if deciding else "native"
    if outcome in ("fails", "unknown"):
        return outcome
    if any(each.optional and each.outcome not in GOOD for each in found):
        return "partial"
    counted = deciding or [each for each in found if each.main] or found
    return worst(each.outcome for each in counted)


def main_part(libraries: Iterable[LibraryVerdict]) -> Outcome:
    """What the package is for: where nobody said which libraries that are, all of them."""
    found = list(libraries)
    return worst(each.outcome for each in [each for each in found if each.main] or found)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """`unknown` where there is nothing to go by."""
    return max(outcomes, key=ORDER.index, default="unknown")


def best(outcomes: Iterable[Outcome]) -> Outcome:
    """Of several that it could be. Where one is not known and the others fail, nobody knows that it fails."""
    return min(outcomes, key=ORDER.index, default="unknown")


def error_of(libraries: Iterable[LibraryVerdict]) -> CudaError | None:
    """The first error that the program meets: of a library that it cannot do without, if there is one."""
    failed = [each for each in libraries if each.outcome in ("fails", "partial") and each.predicted_error]
    failed.sort(key=lambda each: (each.optional, each.outcome != "fails"))
    return failed[0].predicted_error if failed else None
