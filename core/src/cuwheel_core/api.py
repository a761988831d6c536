"""What the core promises: files and packages into values, and what becomes of them on a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from cuwheel_core.device_code.items import FileItem, Item, ZipItem, foreign, may_be_binary, unread
from cuwheel_core.device_code.kernels import names_in
from cuwheel_core.device_code.libraries import Kind, Library
from cuwheel_core.device_code.library import is_foreign, read_library, recognise
from cuwheel_core.errors import CuwheelError, MalformedError, UnreadableError
from cuwheel_core.facts import gpus
from cuwheel_core.facts.arch import Arch
from cuwheel_core.support.buffer import Buffer, FileBuffer, MemoryBuffer
from cuwheel_core.support.finding import Finding
from cuwheel_core.verdicts.choice import Code, How, choose, loadable_code
from cuwheel_core.verdicts.device import Device
from cuwheel_core.verdicts.drivers import loader_of
from cuwheel_core.verdicts.predict import Outcome, Prediction, Reach, reach_of, reaches_by_path
from cuwheel_core.wheel import metadata
from cuwheel_core.wheel.metadata import Distribution
from cuwheel_core.wheel.tags import WheelName
from cuwheel_core.wheel.zip_reader import ZipReader

# The worst first, of what becomes of a kernel in several places.
_HOWS: tuple[How, ...] = ("none", "jit", "compatible", "native")


class PlacedKernel(Struct, frozen=True, kw_only=True):
    """A kernel in one piece of device code; its container is counted from 0 over the file, None for a bare cubin."""

    name: str
    kind: Kind
    arch: Arch
    container: int | None
    registers: int | None = None
    shared_bytes: int | None = None
    stack_bytes: int | None = None


class Contents(Struct, frozen=True, kw_only=True):
    """A wheel, a folder or an environment: its libraries, and what could not be read. `distribution`: of a wheel."""

    path: str
    libraries: tuple[Library, ...]
    findings: tuple[Finding, ...] = ()
    distribution: Distribution | None = None


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


def device(name: str, **known: str) -> Device:
    """A GPU by its name (`h100`) or capability (`9.0`, `sm_90`); `known`: its `driver`, `os` and other fields."""
    capability = gpus.current_capability(gpus.capability_of(name))
    tegra = gpus.is_tegra(capability)
    base = Device(capability=capability, tegra=tegra, **({"os": "linux", "cpu": "aarch64"} if tegra else {}))  # type: ignore[arg-type]
    return replace(base, **known) if known else base


def read(source: str | os.PathLike[str] | bytes, name: str = "") -> Library:
    """The device code of one file: ELF, PE, an archive, a fat binary, a cubin or PTX; `name`: what bytes are called.

    Raises MalformedError and UnreadableError.
    """
    with closing(_buffer(source, name)) as buffer:
        return read_library(buffer, detail="containers")


def read_package(path: str | os.PathLike[str]) -> Contents:
    """All libraries of a wheel, which is not unpacked, or below a folder, such as an environment's site-packages.

    A file that cannot be read is a finding, and not the end.
    """
    findings: list[Finding] = []
    libraries: list[Library] = []
    about: Distribution | None = None
    for buffer, of in _buffers(Path(path), findings):
        about = of
        try:
            libraries.append(read_library(buffer, detail="containers"))
        except MalformedError as error:
            findings.append(unread(buffer.name, error))
    return Contents(path=str(path), libraries=tuple(libraries), findings=tuple(findings), distribution=about)


def kernels(source: str | os.PathLike[str] | bytes, name: str = "") -> tuple[PlacedKernel, ...]:
    """Every kernel in every piece of a file's device code, by its mangled name; those of LTO-IR nobody can name."""
    with closing(_buffer(source, name)) as buffer:
        entries = read_library(buffer, detail="entries").entries
        return tuple(
            PlacedKernel(
                name=each.name,
                kind=entry.kind,
                arch=entry.arch,
                container=entry.container,
                registers=each.registers,
                shared_bytes=each.shared_bytes,
                stack_bytes=each.stack_bytes,
            )
            for entry in entries
            for each in names_in(buffer, entry)
        )


def outcome(library: Library, on: Device) -> Prediction:
    """What becomes of a library there: its `outcome`, `predicted_error`, and the `conditions` that must hold for that.

    Needs its containers, as `read` has them.
    """
    return reach_of(library).on(on)


def coverage(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], devices: Sequence[str | Device]
) -> CoverageMatrix:
    """Which kernels have code for which GPU, over all libraries of these files, wheels and folders."""
    named = {each if isinstance(each, str) else _name_of(each): each for each in devices}
    machines = [device(each) if isinstance(each, str) else each for each in named.values()]
    libraries: list[LibraryRow] = []
    rows: list[KernelRow] = []
    findings: list[Finding] = []
    unread_pieces = 0
    for path in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        for buffer, about in _buffers(Path(path), findings):
            try:
                library = read_library(buffer, detail="entries")
                if not library.device_code:
                    continue
                reach = reaches_by_path([library], about)[library.path]
                libraries.append(_library_coverage(reach, machines))
                rows += _kernel_coverage(buffer, library, machines, findings)
                unread_pieces += sum(each.kind not in ("cubin", "ptx") for each in library.entries)
            except MalformedError as error:
                findings.append(unread(buffer.name, error))
    return CoverageMatrix(
        devices=tuple(named),
        libraries=tuple(libraries),
        kernels=tuple(rows),
        unread=unread_pieces,
        findings=tuple(findings),
    )


def _name_of(on: Device) -> str:
    return on.gpu or str(on.capability)


def _library_coverage(reach: Reach, machines: Sequence[Device]) -> LibraryRow:
    return LibraryRow(path=reach.library.path, outcomes=tuple(reach.on(each).outcome for each in machines))


def _kernel_coverage(
    buffer: Buffer, library: Library, machines: Sequence[Device], findings: list[Finding]
) -> Iterator[KernelRow]:
    """A kernel runs where the entry that the driver takes of one of its containers holds it.

    Relocatable objects count by themselves: which of them a link at load takes is told of the library.
    """
    containers: dict[object, list[tuple[Code, frozenset[str]]]] = {}
    for entry in library.entries:
        code = loadable_code(entry)
        if code is None:
            continue
        try:
            held = frozenset(each.name for each in names_in(buffer, entry))
        except MalformedError as error:
            findings.append(unread(library.path, error))
            continue
        home = ("cubin", entry.offset) if entry.container is None else entry.container
        containers.setdefault(home, []).append((code, held))
    every = sorted({name for each in containers.values() for _, held in each for name in held})
    best: dict[str, list[How]] = {name: ["none"] * len(machines) for name in every}
    for at, machine in enumerate(machines):
        loader = loader_of(library, machine)
        if loader is None:
            continue
        for pieces in containers.values():
            choice = choose([code for code, _ in pieces], loader)
            if choice.how == "none" or choice.entry is None:
                continue
            for name in pieces[choice.entry][1]:
                best[name][at] = max(best[name][at], choice.how, key=_HOWS.index)
    return (KernelRow(library=library.path, name=name, on=tuple(best[name])) for name in every)


def _buffer(source: str | os.PathLike[str] | bytes, name: str) -> Buffer:
    if isinstance(source, bytes):
        return MemoryBuffer(name or "bytes", source)
    return FileBuffer(Path(source), name)


def _buffers(path: Path, findings: list[Finding]) -> Iterator[tuple[Buffer, Distribution | None]]:
    """Each library of a file, a wheel or a folder, open while it is looked at."""
    if path.suffix == ".whl" and not path.is_dir():
        with closing(ZipReader(path)) as reader:
            findings += reader.findings
            items = [ZipItem(reader, each) for each in reader.members.values() if may_be_binary(each.name)]
            about = _distribution(reader, path.name)
            yield from ((buffer, about) for buffer in _opened(items, findings))
    elif path.is_dir():
        yield from ((buffer, None) for buffer in _opened(_folder_items(path), findings))
    else:
        with closing(FileBuffer(path)) as buffer:
            yield buffer, None


def _opened(items: Iterable[Item], findings: list[Finding]) -> Iterator[Buffer]:
    for item in items:
        try:
            head = item.head()
            if is_foreign(head):
                findings.append(foreign(item.path))
                continue
            if recognise(MemoryBuffer(item.path, head)) is None:
                continue
            buffer = item.open(lambda _: None)
        except CuwheelError as error:
            findings.append(unread(item.path, error))
            continue
        with closing(buffer):
            yield buffer


def _folder_items(root: Path) -> Iterator[Item]:
    """The files below a folder that may be binaries; of several links to one file the first."""
    seen: set[tuple[int, int]] = set()
    if not os.access(root, os.R_OK):
        raise UnreadableError(root, "cannot be read")
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            place = Path(folder, name)
            try:
                status = place.stat()
            except (OSError, ValueError):
                continue
            if not may_be_binary(name) or not place.is_file() or (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            yield FileItem(place.relative_to(root).as_posix(), status.st_size, place)


def _distribution(reader: ZipReader, file_name: str) -> Distribution:
    name = WheelName.parse(file_name)
    texts = [
        reader.text(next((each for each in reader.members if each.endswith(f".dist-info/{wanted}")), "")) or ""
        for wanted in ("METADATA", "WHEEL")
    ]
    return metadata.from_texts(texts[0], texts[1], name)
