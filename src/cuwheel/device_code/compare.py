"""What changed between two surveys: bytes of each part, and everything gained and lost. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import asdict

from cuwheel.support.answer import Answer
from cuwheel_core.device_code.libraries import Library, PartName
from cuwheel_core.facts.arch import Arch

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.device_code.kernels import Kernels


class PartChange(Struct, frozen=True, kw_only=True):
    """Bytes that serve one purpose, before and after."""

    name: PartName
    arch: Arch | None
    before: int
    after: int
    difference: int
    percent: float | None  # of what it was; None where there was nothing


class SizeChange(Struct, frozen=True, kw_only=True):
    before: int
    after: int
    difference: int
    percent: float | None


class ValueChange(Struct, frozen=True, kw_only=True):
    """Something that has one value: a symbol ceiling, the number of wrappers."""

    name: str
    before: str | None
    after: str | None


class SetChange(Struct, frozen=True, kw_only=True):
    gained: tuple[str, ...]
    lost: tuple[str, ...]


class LibraryComparison(Struct, frozen=True, kw_only=True):
    before: str | None  # the paths; None where it is only in the other
    after: str | None
    size: SizeChange
    parts: tuple[PartChange, ...]
    architectures: SetChange
    needed: SetChange
    values: tuple[ValueChange, ...]  # ceilings, toolkits, registration: those that differ
    module_ids: SetChange


class KernelChange(Struct, frozen=True, kw_only=True):
    """Kernels of one architecture of one library."""

    library: str
    arch: Arch
    gained: tuple[str, ...]
    lost: tuple[str, ...]


class Compare(Answer, frozen=True, kw_only=True):
    """The answer of `cuwheel compare`."""

    schema: Literal["cuwheel.compare/1"] = "cuwheel.compare/1"
    before: str
    after: str
    size: SizeChange  # of the targets as they are: for wheels, compressed
    parts: tuple[PartChange, ...]  # of all libraries together, unpacked
    architectures: SetChange
    needed: SetChange
    libraries: tuple[LibraryComparison, ...]
    kernels: tuple[KernelChange, ...] | None  # None where they were not read

    @property
    def succeeded(self) -> bool:
        return True


def compare(before: Survey, after: Survey, *, kernels: tuple[Kernels, Kernels] | None = None) -> Compare:
    pairs = list(_pairs(before.libraries, after.libraries))
    return Compare(
        before=before.target,
        after=after.target,
        size=_size(before.size, after.size),
        parts=_parts(before.libraries, after.libraries),
        architectures=_sets(_archs(before.libraries), _archs(after.libraries)),
        needed=_sets(_needed(before.libraries), _needed(after.libraries)),
        libraries=tuple(_library(old, new) for old, new in pairs),
        kernels=tuple(_kernels(pairs, *kernels)) if kernels else None,
    )


def _pairs(before: Sequence[Library], after: Sequence[Library]) -> Iterator[tuple[Library | None, Library | None]]:
    """Libraries of the same path; two single files are compared whatever they are called."""
    if len(before) == len(after) == 1:
        yield before[0], after[0]
        return
    new = {each.path: each for each in after}
    for each in before:
        yield each, new.pop(each.path, None)
    for each in new.values():
        yield None, each


def _library(old: Library | None, new: Library | None) -> LibraryComparison:
    before, after = [each for each in (old,) if each], [each for each in (new,) if each]
    old_values, new_values = _described(old), _described(new)
    return LibraryComparison(
        before=old.path if old else None,
        after=new.path if new else None,
        size=_size(old.size if old else 0, new.size if new else 0),
        parts=_parts(before, after),
        architectures=_sets(_archs(before), _archs(after)),
        needed=_sets(_needed(before), _needed(after)),
        values=tuple(
            ValueChange(name=name, before=old_values.get(name), after=new_values.get(name))
            for name in dict.fromkeys([*old_values, *new_values])
            if old_values.get(name) != new_values.get(name)
        ),
        module_ids=_sets(
            [name for each in before for name in each.registration.module_ids],
            [name for each in after for name in each.registration.module_ids],
        ),
    )


def _parts(before: Iterable[Library], after: Iterable[Library]) -> tuple[PartChange, ...]:
    old, new = _bytes(before), _bytes(after)
    changes = []
    for name, arch in dict.fromkeys([*old, *new]):
        changes.append(PartChange(name=name, arch=arch, **asdict(_size(old[name, arch], new[name, arch]))))
    return tuple(changes)


def _bytes(libraries: Iterable[Library]) -> Counter[tuple[PartName, Arch | None]]:
    sizes: Counter[tuple[PartName, Arch | None]] = Counter()
    for library in libraries:
        for part in library.parts:
            sizes[part.name, part.arch] += part.bytes
    return sizes


def _size(before: int, after: int) -> SizeChange:
    return SizeChange(
        before=before,
        after=after,
        difference=after - before,
        percent=100 * (after - before) / before if before else None,
    )


def _sets(before: Iterable[str], after: Iterable[str]) -> SetChange:
    old, new = dict.fromkeys(before), dict.fromkeys(after)
    return SetChange(
        gained=tuple(each for each in new if each not in old), lost=tuple(each for each in old if each not in new)
    )


def _archs(libraries: Iterable[Library]) -> list[str]:
    return [row.arch for library in libraries for row in library.device_code]


def _needed(libraries: Iterable[Library]) -> list[str]:
    return [name for library in libraries for name in library.needed]


def _described(library: Library | None) -> dict[str, str | None]:
    if library is None:
        return {}
    registration = library.registration
    return {
        "glibc": library.glibc,
        "glibcxx": library.glibcxx,
        "cxxabi": library.cxxabi,
        "soname": library.soname,
        "cudart": f"{library.cudart.linkage} {library.cudart.major or ''}".strip() if library.cudart else None,
        "toolkits": ", ".join(library.toolkits) or None,
        "wrappers": str(len(registration.wrappers)),
        "containers": str(registration.containers),
        "containers that no wrapper names": str(len(registration.unnamed)),
    }


def _kernels(
    pairs: Iterable[tuple[Library | None, Library | None]], before: Kernels, after: Kernels
) -> Iterator[KernelChange]:
    old, new = _by_arch(before), _by_arch(after)
    for before_library, right in pairs:
        had = old.get(before_library.path, {}) if before_library else {}
        has = new.get(right.path, {}) if right else {}
        path = right.path if right else before_library.path if before_library else ""
        for arch in dict.fromkeys([*had, *has]):
            change = _sets(had.get(arch, {}), has.get(arch, {}))
            if change.gained or change.lost:
                yield KernelChange(library=path, arch=arch, gained=change.gained, lost=change.lost)


def _by_arch(found: Kernels) -> dict[str, dict[Arch, dict[str, None]]]:
    """Library → architecture → kernels, by the names that people read."""
    names: dict[str, dict[Arch, dict[str, None]]] = {}
    for code in found.code:
        of_arch = names.setdefault(code.library, {}).setdefault(code.arch, {})
        of_arch.update(dict.fromkeys(kernel.demangled for kernel in code.kernels))
    return names
