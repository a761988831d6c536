"""What the core promises: files and packages into values, and what becomes of them on a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

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
from cuwheel_core.verdicts.coverage import CoverageMatrix, matrix_of
from cuwheel_core.verdicts.device import Device
from cuwheel_core.verdicts.predict import Prediction, reach_of
from cuwheel_core.wheel import metadata
from cuwheel_core.wheel.metadata import Distribution
from cuwheel_core.wheel.tags import WheelName
from cuwheel_core.wheel.zip_reader import ZipReader


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
    machines = {name: device(each) if isinstance(each, str) else each for name, each in named.items()}
    findings: list[Finding] = []
    every = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return matrix_of((each for path in every for each in _buffers(Path(path), findings)), machines, findings)


def _name_of(on: Device) -> str:
    return on.gpu or str(on.capability)


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
