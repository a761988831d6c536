"""How large a job's libraries will be, going by a wheel that was built from the same sources."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cuwheel.errors import UsageError
from cuwheel.facts import toolkits, versions
from cuwheel.support import quoting
from cuwheel.support.units import file_name, some
from cuwheel.verdicts.planning.plan import ArchSize, Size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cuwheel.device_code.libraries import Library, Survey
    from cuwheel.facts.arch import Arch


def predict(survey: Survey, cuda: str, archs: Sequence[Arch]) -> Size:
    """The unpacked libraries with this list instead of theirs.

    A wheel may have one library for each CUDA version: those of the version nearest to `cuda` are taken.
    """
    libraries = _nearest([each for each in survey.libraries if each.device_code], cuda)
    if not libraries:
        raise UsageError(
            f"{file_name(survey.target)} has no device code, so its size says nothing about architectures",
            hint=quoting.here(["cuwheel", "inspect", survey.target]),
        )
    known = _bytes(libraries)
    total = sum(each.size for each in libraries)
    other = total - sum(known.values())
    rows = tuple(_row(arch, known) for arch in archs)
    return Size(
        bytes=other + sum(row.bytes for row in rows),
        other_bytes=other,
        archs=rows,
        like_bytes=total,
        libraries=tuple(each.path for each in libraries),
        method=_method(survey, libraries, rows),
    )


def _nearest(libraries: Sequence[Library], cuda: str) -> list[Library]:
    """The libraries of the toolkit nearest to `cuda`: of its major before others, then by release."""
    order = [row.version for row in toolkits.all_toolkits()]
    wanted = order.index(cuda)

    def distance(library: Library) -> tuple[bool, int]:
        found = [version for each in library.toolkits if (version := versions.minor(each)) in order]
        if not found:
            return False, 0  # nothing says otherwise
        return min((versions.major(each) != versions.major(cuda), abs(order.index(each) - wanted)) for each in found)

    best = min(map(distance, libraries), default=None)
    return [each for each in libraries if distance(each) == best]


def _bytes(libraries: Iterable[Library]) -> Counter[Arch]:
    """Stored bytes of each architecture that was asked for.

    Relocatable machine code alone was not: CUDA's own libcudadevrt brings some for every architecture there is, and
    PTX for the newest of them. Other PTX stays relocatable where it was asked for: a device link makes none.
    """
    known: Counter[Arch] = Counter()
    for library in libraries:
        linked = {row.arch for row in library.device_code if row.linked}
        brought = {row.arch for row in library.device_code if row.kind == "cubin"} - linked
        unasked = {each.capability for each in brought} - {each.capability for each in linked}
        for row in library.device_code:
            own = not linked or row.arch in linked
            if (row.kind == "cubin" and own) or (row.kind == "ptx" and (own or row.arch.capability not in unasked)):
                known[row.arch] += row.bytes
    return known


def _row(arch: Arch, known: Counter[Arch]) -> ArchSize:
    alike = [each for each in known if each.kind == arch.kind] or list(known)
    like = min(alike, key=lambda each: _unlikeness(each, arch))
    return ArchSize(arch=arch, bytes=known[like], like=like)


def _unlikeness(each: Arch, arch: Arch) -> tuple[bool, bool, int, bool]:
    return (
        each != arch,
        each.capability.major != arch.capability.major,
        abs(each.capability.number - arch.capability.number),
        each.suffix != arch.suffix,
    )


def _method(survey: Survey, libraries: Sequence[Library], rows: Sequence[ArchSize]) -> str:
    built = sorted({versions.minor(each) for library in libraries for each in library.toolkits}, key=versions.key)
    by = f", built by CUDA {', '.join(built)}" if built else ""
    named = some([file_name(library.path) for library in libraries], 3)
    guessed = [f"{row.arch} like {row.like}" for row in rows if row.arch != row.like]
    estimates = f"; not in it, estimated from the nearest: {', '.join(guessed)}" if guessed else ""
    return (
        f"unpacked size of {named} of {file_name(survey.target)}{by}, with the stored bytes of each architecture "
        f"of the list and everything else as it is{estimates}"
    )
