"""Which GPUs a library's device code reaches, in a sentence: by the code alone, where `check` knows the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.facts import architectures
from cuwheel.support.units import runs
from cuwheel.verdicts import reach

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel.device_code.libraries import Library
    from cuwheel.verdicts.predict import Outcome
    from cuwheel.verdicts.reach import Reach

_NATIVE: tuple[Outcome, ...] = ("native", "compatible")


class Coverage(Struct, frozen=True, kw_only=True):
    """Capabilities by how every container serves them; `partial`: some containers do, others do not.

    `future`: GPUs later than all known ones can use it, through PTX.
    """

    native: tuple[str, ...]
    jit: tuple[str, ...]
    partial: tuple[str, ...]
    future: bool


def of(library: Library) -> Coverage | None:
    """None where there is no device code that a driver could load. Needs the library's containers."""
    return of_reach(reach.of(library))


def of_reach(found: Reach) -> Coverage | None:
    """None where it has no device code."""
    if not found.has_code:
        return None
    outcomes = found.sweep()
    *known, newer = outcomes

    def those(*wanted: Outcome) -> tuple[str, ...]:
        return tuple(str(device) for device in known if outcomes[device] in wanted)

    return Coverage(
        native=those(*_NATIVE),
        jit=those("jit"),
        partial=those("partial"),
        future=outcomes[newer] in (*_NATIVE, "jit"),
    )


def words(coverage: Coverage, *, once_linked: bool = False) -> str:
    """The coverage in one sentence. `once_linked`: of an object or archive, which runs nowhere as it is."""
    parts = [f"runs natively on {ranges(coverage.native)}"] if coverage.native else []
    if through := " and ".join(_through_ptx(coverage)):
        parts.append(f"{through} through PTX compiled by the driver")
    if not (coverage.native or coverage.jit or coverage.partial):
        parts.append("runs on no known GPU")
    if coverage.partial:
        parts.append(f"only part of it serves {ranges(coverage.partial)}")
    if not coverage.future:
        parts.append("no newer GPU (it has no PTX for them)")
    return ("once linked: " if once_linked else "") + "; ".join(parts)


def _through_ptx(coverage: Coverage) -> Iterator[str]:
    """Those after the last native one go without saying where the PTX serves all that come."""
    order = [str(each) for each in architectures.current_capabilities()]
    after = order[order.index(coverage.native[-1]) + 1 :] if coverage.native else []
    implied = after if coverage.future and set(after) <= set(coverage.jit) else []
    if listed := [each for each in coverage.jit if each not in implied]:
        yield ranges(listed)
    if coverage.future:
        yield "newer GPUs"


def ranges(capabilities: Iterable[str]) -> str:
    """`7.5 to 9.0, 10.0, 12.0`: a run has no known capability missing in between."""
    order = [str(each) for each in architectures.current_capabilities()]
    return ", ".join(map(_run, runs(sorted(capabilities, key=order.index), order)))


def _run(run: list[str]) -> str:
    return f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(run)  # noqa: PLR2004 - a pair is a list
