"""The containers of a library as the driver sees them, and what it links at load where no linked code fits.

Some containers stand alone, some a device link made, and some it was made from. The driver links those that fit:
- An object that would have to be compiled and cannot be, or a cubin of a toolkit that is newer than the driver, spoils
  the link for all kernels; the first in the order of the file gives the error.
- Objects that nothing in them fits are left out. If another one calls into them the link fails: 300 for all kernels.
- Otherwise the kernels in the objects that fit run, and those in the others have no name: 500. So it is with variables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cuwheel_core.device_code.libraries import Absent, Container, DeviceCode, Library, Symbols
from cuwheel_core.device_code.sections import FATBIN_SECTIONS
from cuwheel_core.facts import cuda_libraries, gpus
from cuwheel_core.support.wording import file_name
from cuwheel_core.verdicts.choice import (
    INVALID_SOURCE,
    NO_KERNEL_IMAGE,
    SYMBOL_NOT_FOUND,
    Choice,
    Code,
    CudaError,
    loadable_code,
    serves,
)

if TYPE_CHECKING:
    from cuwheel_core.facts.arch import Arch


# A container by its number in the file; cubins that stand in none, by their row.
Place: TypeAlias = int | DeviceCode
_REGISTERING = ("elf", "pe")  # the others are loaded as a whole
# When a library that nobody described is taken for one that chooses its kernels itself.
_MANY_CONTAINERS = 16
_SHARE_APART = 0.1


class Module(Struct, frozen=True):
    """A container, or a cubin that stands in none; those alike are one, `count` of them.

    `empty`: it holds nothing at all, as opposed to nothing that a driver could load. `own`: it is not registered with
    the runtime; the library's own code finds and loads it. `symbols`: of a relocatable object, where they are known.
    `absent`: what the host registers and some of its entries have not, by their place in `codes`.
    `managed`: it holds variables in managed memory alone.
    """

    codes: tuple[Code, ...]
    section: str
    relocatable: bool
    device_linked: bool
    empty: bool = False
    own: bool = False
    symbols: Symbols | None = None
    count: int = 1
    absent: tuple[Absent, ...] = ()
    managed: bool = False

    @property
    def words(self) -> str:
        """`sm_80, compute_90 (in .nv_fatbin)`."""
        held = ", ".join(dict.fromkeys(str(code.arch) for code in self.codes)) or "nothing"
        return f"{held} (in {self.section})" if self.section else held

    @property
    def for_chosen_gpus(self) -> bool:
        """All of it is for one capability or family: a list that was given to this file on purpose."""
        return bool(self.codes) and all(code.arch.suffix for code in self.codes)

    @property
    def machine_code(self) -> frozenset[Arch]:
        return frozenset(code.arch for code in self.codes if code.arch.kind == "sm")


class Choosing(Struct, frozen=True):
    """Whether a library picks kernels for the machine itself; and whether that is only a guess from its containers.

    `many`: it has so many containers that their lists tell something.
    """

    itself: bool = False
    guessed: bool = False
    many: bool = False


def modules(library: Library) -> tuple[Module, ...]:
    """The modules of a library, those alike as one: what the runtime registers, and what its own code loads."""
    return _count_alike(modules_by_place(library).values())


def modules_by_place(library: Library) -> dict[Place, Module]:
    """What the runtime registers, and what the library's own code loads from elsewhere in the file.

    Left out: LTO-IR alone, which no driver loads; what stands in the sections of registered code without being
    registered, as linkers leave it behind; what holds neither a kernel nor a variable that the host registers, which no
    GPU can miss; and the driver's own code.
    Objects and archives have the modules of what will be linked from them.
    """
    if is_driver_copy(library):
        return {}
    rows = library.device_code
    linked = device_linked(library)
    kept = any(not row.linked for row in rows) and library.type != "relocatable"
    left_behind = _left_behind(library) | without_kernels(library)
    registers = library.format in _REGISTERING
    by_code: dict[tuple[int, ...], tuple[Code, ...]] = {}
    found: dict[Place, Module] = {}
    for index, container in enumerate(library.containers):
        if index in left_behind or (not container.code and index in linked):
            continue  # of the latter nvcc registers one for every shared library; most have nothing in it
        code = [rows[each] for each in container.code]
        codes = by_code.get(container.code)
        if codes is None:
            codes = by_code[container.code] = tuple(_codes(code))
        made_by_link = index in linked or (kept and not linked and all(row.linked for row in code))
        own = registers and container.section not in FATBIN_SECTIONS
        made = _module(code, codes, container.section, device_linked=made_by_link, own=own)
        lacks = tuple(_absent(container, code))
        found[index] = replace(made, symbols=container.symbols, absent=lacks, managed=container.managed)
    inside = {index for container in library.containers for index in container.code}
    for index, row in enumerate(rows):
        if index not in inside:
            own = registers and row.section not in FATBIN_SECTIONS
            codes = tuple(_codes([row]))
            found[row] = _module([row], codes, row.section, device_linked=kept and row.linked, own=own)
    if library.type == "relocatable":
        found = {place: replace(each, relocatable=False, device_linked=False) for place, each in found.items()}
    return {place: each for place, each in found.items() if each.codes or each.empty}


def is_driver_copy(library: Library) -> bool:
    """Whether it is a copy of the driver's: the code inside does not belong to the package."""
    return any(cuda_libraries.is_driver_library(name) for name in (library.soname, file_name(library.path)) if name)


def _count_alike(found: Iterable[Module]) -> tuple[Module, ...]:
    """Gives those containers one tuple that have the same entries: of thousands most are alike."""
    alike: dict[tuple[object, ...], list[Module]] = {}
    for each in found:
        names = id(each.symbols) if each.symbols else None
        kind = (each.section, each.relocatable, each.device_linked, each.empty, each.own, each.managed)
        key = (id(each.codes), *kind, names, each.absent)
        alike.setdefault(key, []).append(each)
    return tuple(replace(each[0], count=len(each)) for each in alike.values())


def _left_behind(library: Library) -> frozenset[int]:
    """The containers that nothing loads: no wrapper names them, nor are they where the library would look itself."""
    registration = library.registration
    if library.format not in _REGISTERING or any(each.container is None for each in registration.wrappers):
        return frozenset()  # loaded as a whole; or what some wrappers name could not be told
    named = {each.container for each in registration.wrappers}
    found = enumerate(library.containers)
    return frozenset(index for index, each in found if index not in named and each.section in FATBIN_SECTIONS)


def device_linked(library: Library) -> frozenset[int]:
    """The containers that a device link made."""
    wrappers = library.registration.wrappers
    return frozenset(each.container for each in wrappers if each.device_linked and each.container is not None)


def without_kernels(library: Library) -> frozenset[int]:
    """The containers that no GPU can miss.

    Of a device link only all of it or nothing: its kernels may be in the objects alone.
    """
    linked = device_linked(library)
    found = {index for index, each in enumerate(library.containers) if each.without_kernels}
    of_link = {
        index
        for index, each in enumerate(library.containers)
        if index in linked or FATBIN_SECTIONS.get(each.section) is False
    }
    return frozenset(found if of_link <= found else found - of_link)


def _module(
    rows: Sequence[DeviceCode], codes: tuple[Code, ...], section: str, *, device_linked: bool, own: bool
) -> Module:
    # Of an empty container the section alone tells.
    relocatable = all(not row.linked for row in rows) if rows else FATBIN_SECTIONS.get(section) is False
    return Module(
        codes=codes,
        section=section,
        relocatable=relocatable,
        device_linked=device_linked and not relocatable and not own,
        empty=not rows,
        own=own,
    )


def _codes(rows: Iterable[DeviceCode]) -> Iterable[Code]:
    return (found for row in rows if (found := loadable_code(row)))


def _absent(container: Container, rows: Sequence[DeviceCode]) -> Iterable[Absent]:
    """Counted without the entries that no driver chooses among."""
    places = [place for place, row in enumerate(rows) if loadable_code(row)]
    return (replace(each, entry=places.index(each.entry)) for each in container.absent if each.entry in places)


def objects_of_its_own(found: Sequence[Module]) -> tuple[Module, ...]:
    """The relocatable objects without those that libcudadevrt brought, told by the names of its functions.

    Where all objects were compiled for the same, names are not known, and each fits or none does.
    """
    objects = [each for each in found if each.relocatable]
    own = [each for each in objects if each.symbols is None or not each.symbols.of_runtime]
    return tuple(own or objects)


def choosing(library: Library, found: Sequence[Module]) -> Choosing:
    """The guess: it has many containers, and no GPU could use them all, or a tenth of them or more share no
    architecture with the list that most of them were compiled for. No build from one list looks like that. Those that
    `slim` emptied shared none with what it kept.
    """
    for name in (library.soname, file_name(library.path)):
        if name and (known := cuda_libraries.known_library(name)) and known.chooses_kernels_itself:
            return Choosing(itself=True)
    lists: Counter[frozenset[Arch]] = Counter()
    for each in found:
        if not each.relocatable:
            lists[frozenset(code.arch for code in each.codes)] += each.count
    total = lists.total()
    if total < _MANY_CONTAINERS:
        return Choosing()
    emptied = lists.pop(frozenset(), 0)
    commonest = lists.most_common(1)[0][0] if lists else frozenset()
    apart = emptied + sum(count for each, count in lists.items() if not each & commonest)
    guessed = apart >= _SHARE_APART * total or not _serve_one_gpu(lists)
    return Choosing(itself=guessed, guessed=guessed, many=True)


def _serve_one_gpu(lists: Collection[frozenset[Arch]]) -> bool:
    """Whether there is a GPU that every one of them has something for."""
    known = gpus.current_capabilities()
    return any(all(any(serves(arch, device) for arch in each) for each in lists) for device in known)


# What the driver makes of relocatable objects when no linked code fits: it links those that fit, at load.

_BUILT_IN = frozenset({"vprintf", "malloc", "free", "__assertfail", "__assert_fail"})  # the driver brings these itself


class RelocatableObject(Struct, frozen=True):
    """A relocatable object, and what the driver would take of it."""

    module: Module
    choice: Choice

    @property
    def fits(self) -> bool:
        return self.choice.how != "none"

    @property
    def symbols(self) -> Symbols | None:
        return self.module.symbols


class LinkResult(Struct, frozen=True, kw_only=True):
    """`error`: of all kernels. Without one the kernels of the objects `in_it` run, those of `left_out` give 500.

    `alternatives`: what else it may be, where the names in the objects are not known. `too_new`: the toolkit is.
    """

    error: CudaError | None = None
    in_it: tuple[RelocatableObject, ...] = ()
    left_out: tuple[RelocatableObject, ...] = ()
    alternatives: tuple[CudaError, ...] = ()
    too_new: bool = False


def link_objects(objects: Sequence[RelocatableObject], *, too_new: bool) -> LinkResult:
    """`too_new`: the driver cannot link cubins of the toolkit that wrote these."""
    for each in objects:
        if too_new and each.choice.how in ("native", "compatible"):
            return LinkResult(error=NO_KERNEL_IMAGE, too_new=True)
        if each.choice.error not in (None, NO_KERNEL_IMAGE):
            return LinkResult(error=each.choice.error)
    fitting = tuple(each for each in objects if each.fits)
    missing = tuple(each for each in objects if not each.fits)
    if not fitting:
        return LinkResult(error=SYMBOL_NOT_FOUND)
    if not missing:
        return LinkResult(in_it=fitting)
    if any(each.symbols is None for each in fitting):
        return LinkResult(error=SYMBOL_NOT_FOUND, alternatives=(INVALID_SOURCE,))
    if _needs_missing(fitting, missing):
        return LinkResult(error=INVALID_SOURCE)
    if not any(map(_registered, fitting)):
        return LinkResult(error=SYMBOL_NOT_FOUND)
    return LinkResult(in_it=fitting, left_out=tuple(filter(_registered, missing)))


def _registered(each: RelocatableObject) -> bool:
    """Whether the host has names of it. An object that nothing is left of had kernels, for all that is known."""
    names = each.symbols
    return names is None or (not names.of_runtime and bool(names.kernels or names.variables))


def _needs_missing(fitting: Sequence[RelocatableObject], missing: Sequence[RelocatableObject]) -> bool:
    """Whether the objects that fit need one that does not."""
    wanted = {name for each in _known_symbols(fitting) for name in each.wanted} - _defined_names(fitting)
    if wanted & _defined_names(missing):
        return True
    # What nobody brings must have been in an object whose names are not known.
    return any(each.symbols is None for each in missing) and bool(wanted - _BUILT_IN)


def _defined_names(objects: Sequence[RelocatableObject]) -> frozenset[str]:
    return frozenset(name for each in _known_symbols(objects) for name in (*each.functions, *each.kernels))


def _known_symbols(objects: Sequence[RelocatableObject]) -> Iterable[Symbols]:
    return (each.symbols for each in objects if each.symbols is not None)
