"""Which kernels have code for which GPU, over all libraries of a package: `predict`'s model, asked kernel by kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cuwheel_core.device_code.items import unread
from cuwheel_core.device_code.kernels import names_in
from cuwheel_core.device_code.libraries import DeviceCode, Entry, Library
from cuwheel_core.device_code.library import read_library
from cuwheel_core.errors import MalformedError
from cuwheel_core.support.finding import Finding
from cuwheel_core.verdicts.choice import How, loadable_code
from cuwheel_core.verdicts.modules import Module, Place, modules_by_place
from cuwheel_core.verdicts.predict import Outcome, Reach, reaches_by_path

if TYPE_CHECKING:
    from cuwheel_core.support.buffer import Buffer
    from cuwheel_core.verdicts.device import Device
    from cuwheel_core.wheel.metadata import Distribution

# The worst first, of what becomes of a kernel in several places.
_HOWS: tuple[How, ...] = ("none", "jit", "compatible", "native")


class KernelRow(Struct, frozen=True, kw_only=True):
    """A kernel of a library, and for each device, in their order, how it runs there: `none` where it has no code."""

    library: str
    name: str
    on: tuple[How, ...]


class LibraryRow(Struct, frozen=True, kw_only=True):
    """A library with device code, and for each device, in their order, what becomes of it."""

    path: str
    outcomes: tuple[Outcome, ...]


class CoverageMatrix(Struct, frozen=True, kw_only=True):
    """Kernels × GPUs. `unread`: pieces of LTO-IR, whose kernels nobody but NVIDIA's linker can name."""

    schema: Literal["cuwheel.coverage/1"] = "cuwheel.coverage/1"
    devices: tuple[str, ...]
    libraries: tuple[LibraryRow, ...]
    kernels: tuple[KernelRow, ...]
    unread: int = 0
    findings: tuple[Finding, ...] = ()

    def lacking(self, device: str) -> tuple[KernelRow, ...]:
        """The kernels without code for one of the devices."""
        at = self.devices.index(device)
        return tuple(each for each in self.kernels if each.on[at] == "none")


def matrix_of(
    buffers: Iterable[tuple[Buffer, Distribution | None]], devices: Mapping[str, Device], findings: list[Finding]
) -> CoverageMatrix:
    """The matrix of these files, each with the package that it is of; `findings`: what reading them has found."""
    libraries: list[LibraryRow] = []
    rows: list[KernelRow] = []
    unread_pieces = 0
    for buffer, about in buffers:
        try:
            library = read_library(buffer, detail="entries")
            if not library.device_code:
                continue
            reach = reaches_by_path([library], about)[library.path]
            outcomes = tuple(reach.on(each).outcome for each in devices.values())
            libraries.append(LibraryRow(path=library.path, outcomes=outcomes))
            rows += _kernel_rows(buffer, reach, tuple(devices.values()), findings)
            unread_pieces += sum(each.kind not in ("cubin", "ptx") for each in library.entries)
        except MalformedError as error:
            findings.append(unread(buffer.name, error))
    return CoverageMatrix(
        devices=tuple(devices),
        libraries=tuple(libraries),
        kernels=tuple(rows),
        unread=unread_pieces,
        findings=tuple(findings),
    )


def _kernel_rows(
    buffer: Buffer, reach: Reach, machines: Sequence[Device], findings: list[Finding]
) -> Iterator[KernelRow]:
    """A kernel runs where the entry that the driver takes of one of its containers holds it."""
    loaded = modules_by_place(reach.library) if reach.modules else {}
    pieces = list(_pieces(buffer, reach.library, loaded, findings))
    every = sorted({name for _, entries in pieces for held in entries for name in held})
    best: dict[str, list[How]] = {name: ["none"] * len(machines) for name in every}
    for at, machine in enumerate(machines):
        choices = reach.choices_on(machine, loaded)
        for place, entries in pieces:
            choice = choices.get(place)
            if choice is None or choice.how == "none" or choice.entry is None:
                continue
            for name in entries[choice.entry]:
                best[name][at] = max(best[name][at], choice.how, key=_HOWS.index)
    return (KernelRow(library=reach.library.path, name=name, on=tuple(best[name])) for name in every)


def _pieces(
    buffer: Buffer, library: Library, loaded: Mapping[Place, Module], findings: list[Finding]
) -> Iterator[tuple[Place, tuple[frozenset[str], ...]]]:
    """The names in each container and each loose cubin that anything loads, for each entry that a driver may take.

    Kernels that libcudadevrt brought into a device link are nobody's to launch.
    """
    loose = {_row_key(place): place for place in loaded if isinstance(place, DeviceCode)}
    containers: dict[int, list[Entry]] = {}
    for entry in filter(loadable_code, library.entries):
        if entry.container is not None:
            containers.setdefault(entry.container, []).append(entry)
        elif place := loose.get(_row_key(entry)):
            yield place, (_names(buffer, library, entry, findings),)
    for index, entries in containers.items():
        module = loaded.get(index)
        if module and not (module.symbols and module.symbols.of_runtime):
            yield index, tuple(_names(buffer, library, each, findings) for each in entries)


def _row_key(code: Entry | DeviceCode) -> tuple[str, ...]:
    return code.kind, code.arch, code.section, str(code.linked), code.compression


def _names(buffer: Buffer, library: Library, entry: Entry, findings: list[Finding]) -> frozenset[str]:
    try:
        return frozenset(each.name for each in names_in(buffer, entry))
    except MalformedError as error:
        findings.append(unread(library.path, error))
        return frozenset()
