"""What can be surveyed, behind one protocol: a wheel, a folder, a file, an installed distribution."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from cuwheel.device_code import elf
from cuwheel.device_code.fatbin import CONTAINER, ENTRY, KIND_CUBIN, KIND_PTX, MAGIC, compression_of, payload_start_size
from cuwheel.errors import CuwheelError, NetworkError, UnknownNameError, UnreadableError
from cuwheel.support.buffer import FileBuffer, occurrences
from cuwheel.support.files import head, read_if_present
from cuwheel.support.finding import Finding
from cuwheel.wheel import metadata, variant
from cuwheel.wheel import metadata as installed_files
from cuwheel.wheel.metadata import distributions, site_packages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cuwheel.device_code.elf import Segment
    from cuwheel.support.buffer import Buffer
    from cuwheel.wheel.file import WheelFile
    from cuwheel.wheel.metadata import Distribution
    from cuwheel.wheel.variant import Variant
    from cuwheel.wheel.zip_reader import Member, ZipReader


# Keeps what readers of device code come back for while a file streams by, so that little is inflated twice.
#
# It only guesses: what it kept serves reads of exactly that place, and everything else is read again. So of an
# ELF file it searches what is loaded as data alone: of a library of 450 MB most is code, or names for debuggers.

_HEADER_KEPT = 128  # the longest header seen; longer ones are read again
_MOST_PIECES = 1 << 17
_PAYLOADS_KEPT = 1 << 22  # bytes of payloads that are kept
_LARGEST_TABLES = 1 << 22  # of a segment with what the loader fills in: pointers to device code are there


class HeaderCapture:
    def __init__(self) -> None:
        self.pieces: dict[int, bytes] = {}
        self._pending = b""
        self._next: int | None = None  # where a header is expected; None while searching for a container
        self._stop = 0  # the end of the container that `_next` is in
        self._searched: tuple[Segment, ...] | None = None  # where containers are looked for; None: everywhere
        self._smallest: dict[tuple[int, ...], tuple[int, int]] = {}  # size and place of a cubin of each kind
        self._room = _PAYLOADS_KEPT

    def feed(self, offset: int, chunk: bytes) -> bool:
        """The bytes at `offset`; calls come in order and leave no gap. Whether all of them should be kept."""
        end = offset + len(chunk)
        if not offset:
            self._searched = elf.data_segments(chunk)
        inside = [each for each in self._searched or () if each.offset < end and offset < each.offset + each.file_size]
        if (self._searched is not None and not inside) if self._next is None else self._next >= end:
            self._pending = b""  # in code, or in a payload: nothing to look at
        else:
            self._look(offset, chunk)
        return any(each.flags & elf.PF_W and each.file_size <= _LARGEST_TABLES for each in inside)

    def _look(self, offset: int, chunk: bytes) -> None:
        data = self._pending + chunk
        base = offset - len(self._pending)
        position = 0
        while True:
            if self._next is None:
                found = next(occurrences(data, MAGIC, 1, position), -1)
                if found < 0:
                    self._pending = data[max(len(data) - len(MAGIC) + 1, position) :]
                    return
                self._next = self._stop = base + found
            position = self._next - base
            if len(self.pieces) >= _MOST_PIECES:
                self._next, self._pending = sys.maxsize, b""  # no real file has so many: look no further
                return
            if position + _HEADER_KEPT > len(data):
                self._pending = data[position:]
                return
            self._next = self._keep(self._next, data, position)
            position += 1

    def _keep(self, at: int, data: bytes, position: int) -> int | None:
        """Keep what stands at `at`; where the next header is expected, if this was one."""
        following: int
        head = data[position : position + _HEADER_KEPT]
        if at >= self._stop:
            _, _, header, size = CONTAINER.unpack_from(head)
            if head[:4] != MAGIC or header < CONTAINER.size:
                return None
            self._stop = at + header + size
            following = at + header
        else:
            kind, _, header, payload, compressed, _, minor, _, arch, _, _, flags, _, _ = ENTRY.unpack_from(head)
            if header < ENTRY.size:
                return None
            following = at + header + payload
            stored = compressed or payload
            wanted = 0
            if kind == KIND_PTX:  # its first lines say its version
                wanted = payload_start_size(stored, compression_of(flags) if compressed else "none")
            elif kind == KIND_CUBIN:  # the smallest of each kind tells who wrote it
                wanted = self._smaller((arch, flags, minor), payload, stored, at + header)
            # One that the next piece of the file completes is read again: few are.
            if 0 < wanted <= min(self._room, len(data) - position - header):
                start = position + header
                self.pieces[at + header] = data[start : start + wanted]
                self._room -= wanted
        self.pieces[at] = head
        return following

    def _smaller(self, key: tuple[int, ...], payload: int, stored: int, at: int) -> int:
        """How much to keep of a cubin: nothing where a smaller one was seen, whose place it takes otherwise."""
        size, place = self._smallest.get(key, (sys.maxsize, -1))
        if payload >= size:
            return 0
        self._room += len(self.pieces.pop(place, b""))
        self._smallest[key] = payload, at
        return stored


HEAD = 4096
_PYTHON_LIMIT = 1 << 20
# Text by name: a wheel has thousands, and opening each to see that it is none of ours takes longer
# than everything else.
_TEXT = (
    "c cc cfg cmake cpp cu cuh css csv cxx gz h hpp html hxx inc inl ipynb js json md pc png po proto pxd py pyc "
    "pyi pyx rst s sh svg toml txt typed xml yaml yml"
)
_TEXT_SUFFIXES = frozenset(f".{each}" for each in _TEXT.split())

SUFFIXES = (".whl", ".so", ".dll", ".pyd")  # a name that ends so is a path, never what is installed


class Item(Protocol):
    """A file of the target."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...

    def head(self) -> bytes:
        """Its first bytes, at little cost."""

    def open(self, advance: Callable[[int], None]) -> Buffer: ...


class Texts(NamedTuple):
    """The Python of a target. `names`: of its files. `read`: None where one cannot be read."""

    names: tuple[str, ...]
    read: Callable[[str], str | None]


NO_TEXTS = Texts(names=(), read=lambda _: None)


class Source(NamedTuple):
    target: str
    kind: Literal["wheel", "folder", "file", "distribution"]
    size: int
    items: tuple[Item, ...]  # those that may be binaries
    distribution: Distribution | None = None
    findings: tuple[Finding, ...] = ()
    texts: Texts = NO_TEXTS
    variant: Variant | None = None
    close: Callable[[], None] = lambda: None


class FileItem(NamedTuple):
    path: str
    size: int
    place: Path

    def head(self) -> bytes:
        try:
            with self.place.open("rb", buffering=0) as file:
                return file.read(HEAD)
        except OSError as error:
            raise UnreadableError.from_os(error, self.place) from error

    def open(self, advance: Callable[[int], None]) -> Buffer:
        advance(self.size)
        return FileBuffer(self.place, self.path)


class ZipItem(NamedTuple):
    reader: ZipReader
    member: Member

    @property
    def path(self) -> str:
        return self.member.name

    @property
    def size(self) -> int:
        return self.member.size

    def head(self) -> bytes:
        return self.reader.head(self.member, HEAD)

    def open(self, advance: Callable[[int], None]) -> Buffer:
        return self.reader.open(self.member, advance, HeaderCapture())


def find_source(target: str | Path, *, env: Path | None = None) -> Source:
    """The target as the user wrote it: a path that exists, else the name of what is installed.

    With `env`, a bare name is always what is installed there.
    """
    path = Path(target)
    is_path = len(path.parts) != 1 or path.suffix in SUFFIXES
    if (env is None or is_path) and _kind(path) == "folder":
        return _folder(path)
    if (env is None or is_path) and _kind(path) == "file":
        return _wheel(path) if path.suffix == ".whl" else _file(path)
    if is_path:
        raise UnreadableError(path, "no such file or folder")
    return installed_source(str(target), env=env)


def installed_source(name: str, *, env: Path | None = None) -> Source:
    """A distribution of this environment, or of the one at `env`, as its RECORD lists it."""
    return _installed(installed_info(name, env=env))


def installed_info(name: str, *, env: Path | None = None) -> Path:
    """The dist-info folder of an installed distribution."""
    places = list(_site_packages(env))
    wanted = metadata.normalised(name)
    for place in places:
        for each in distributions(place):
            if each.name == wanted:
                return each.info
    searched = ", ".join(str(place) for place in places) or "no site-packages folder"
    raise UnknownNameError("file, folder or installed distribution", name, hint=f"searched {searched}")


def _kind(path: Path) -> Literal["folder", "file"] | None:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error
    if stat.S_ISDIR(mode):
        return "folder"
    if not stat.S_ISREG(mode):  # a pipe would make us wait for ever
        raise UnreadableError(path, "is neither a file nor a folder")
    return "file"


def _wheel(path: Path) -> Source:
    from cuwheel.wheel.file import WheelFile  # noqa: PLC0415 - zipfile costs 15 ms

    wheel = WheelFile(path)
    return source_of_wheel(wheel)._replace(close=wheel.close)


def source_of_wheel(wheel: WheelFile) -> Source:
    """A wheel that is open already, and stays so."""
    distribution = wheel.distribution  # first: reading METADATA is what finds it damaged
    findings = list(wheel.zip.findings)
    missing = [each for each in ("METADATA", "RECORD") if wheel.info + each not in wheel.members]
    if missing:
        findings.append(_incomplete(wheel.path.name, f"no {missing[0]}"))
    is_variant, unclear = _variant(wheel)
    return Source(
        target=str(wheel.path),
        kind="wheel",
        size=wheel.size,
        distribution=distribution,
        items=tuple(ZipItem(wheel.zip, each) for each in wheel.members.values() if _may_be_binary(each.name)),
        findings=(*findings, *unclear, *_cut_wheel(wheel)),
        texts=Texts(names=tuple(wheel.members), read=wheel.text),
        variant=is_variant,
    )


def _variant(wheel: WheelFile) -> tuple[Variant | None, tuple[Finding, ...]]:
    """What it says it is a variant for. One that cannot be understood is a finding, and not the end."""
    try:
        return variant.of_wheel(wheel), ()
    except (NetworkError, UnreadableError):
        raise
    except CuwheelError as error:
        unreadable = Finding(
            rule="variant-unreadable",
            severity="warning",
            message=error.message,
            fix="build the wheel again; installers that know variants refuse it",
        )
        return None, (unreadable,)


def _file(path: Path) -> Source:
    item = FileItem(str(path), path.stat().st_size, path)
    owner = installed_files.owner_of_file(path.absolute())
    cut = cut_to_workload([owner.info]) if owner else ()
    return Source(target=str(path), kind="file", size=item.size, items=(item,), findings=cut)


def _folder(path: Path) -> Source:
    found = _items(path, _walk(path))
    found["findings"] = (*found["findings"], *cut_to_workload(each.info for each in distributions(path)))  # type: ignore[misc]
    return Source(target=str(path), kind="folder", **found)  # type: ignore[arg-type]


def _cut_wheel(wheel: WheelFile) -> tuple[Finding, ...]:
    name = wheel.info + metadata.SLIM_NOTE
    traced = metadata.workload_commands(wheel.text(name)) if name in wheel.members else None
    return (metadata.cut_to_workload([wheel.distribution.name], traced),) if traced is not None else ()


def cut_to_workload(infos: Iterable[Path]) -> tuple[Finding, ...]:
    """Where distributions were cut to a workload, one finding for all of them."""
    marks: dict[str, tuple[str, ...]] = {}
    for info in infos:
        try:
            traced = metadata.workload_commands(
                read_if_present(info / metadata.SLIM_NOTE, metadata.SLIM_NOTE_LIMIT, "a note")
            )
        except CuwheelError:
            continue
        if traced is not None:
            marks[info.name.partition("-")[0]] = traced
    words = dict.fromkeys(word for each in marks.values() for word in each)
    return (metadata.cut_to_workload(marks, words),) if marks else ()


def _installed(info: Path) -> Source:
    texts = {name: installed_files.read_info_file(info, name) for name in ("METADATA", "WHEEL", "RECORD")}
    root = info.parent
    recorded = tuple(metadata.recorded_files(texts["RECORD"]))
    found = _items(root, (root / each for each in (*recorded, *_added(info, recorded))))
    if not texts["RECORD"]:
        found["findings"] = (_incomplete(info.name, "no RECORD, so its files are not known"),)
    found["findings"] = (*found["findings"], *cut_to_workload([info]))  # type: ignore[misc]
    return Source(
        target=info.name.removesuffix(".dist-info"),
        kind="distribution",
        distribution=metadata.from_texts(texts["METADATA"], texts["WHEEL"]),
        **found,  # type: ignore[arg-type]
    )


def _added(info: Path, recorded: Iterable[str]) -> list[str]:
    """What somebody put beside a distribution's libraries after it was installed, such as a second name for one."""
    listed = {each.replace("\\", "/") for each in recorded}
    binaries = (each for each in listed if _may_be_binary(each) and ".dist-info/" not in each)
    folders = sorted({each.rpartition("/")[0] for each in binaries if not each.startswith(("..", "/"))} - {""})
    found = {f"{folder}/{name}" for folder in folders for name in _names(info.parent / folder)} - listed
    found = {each for each in found if _may_be_binary(each) and (info.parent / each).is_file()}
    others = (each.info for each in distributions(info.parent) if found and each.info != info)
    return sorted(found.difference(*map(installed_files.installed_files, others)))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone
    except OSError:
        return []


def _items(root: Path, files: Iterable[Path]) -> dict[str, object]:
    """Links to one file are one library, unless it has another name than a version (`lib.so`, `lib.so.1`): then
    somebody gave it that name for those who load it by that.
    """
    items, findings, total = [], [], 0
    seen: dict[tuple[int, int], set[str]] = {}
    python: dict[str, Path] = {}
    for file in files:
        try:
            status = file.stat()
        except (OSError, ValueError) as error:
            findings.append(Finding(rule="unreadable", severity="error", message=f"{file} cannot be read: {error}"))
            continue
        names = seen.setdefault((status.st_dev, status.st_ino), set())
        stem = file.name.partition(".")[0]
        if not stat.S_ISREG(status.st_mode) or stem in names:
            continue
        total += 0 if names else status.st_size
        names.add(stem)
        if _may_be_binary(file.name):
            items.append(FileItem(os.path.relpath(file, root).replace(os.sep, "/"), status.st_size, file))
        elif file.suffix == ".py" and status.st_size <= _PYTHON_LIMIT:
            python[os.path.relpath(file, root).replace(os.sep, "/")] = file
    texts = Texts(names=tuple(python), read=lambda name: head(python[name], _PYTHON_LIMIT))
    return {"size": total, "items": tuple(items), "findings": tuple(findings), "texts": texts}


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            yield Path(folder, name)


def _site_packages(env: Path | None) -> Iterator[Path]:
    if env is None:
        yield from (Path(each) for each in sys.path if each and Path(each).is_dir())
        return
    yield from (env, *site_packages(env))


def _may_be_binary(name: str) -> bool:
    return os.path.splitext(name)[1].lower() not in _TEXT_SUFFIXES  # noqa: PTH122 - 12,000 times: Path is slow


def unread(path: str, error: CuwheelError) -> Finding:
    return Finding(
        rule="library-unreadable",
        severity="error",
        message=error.message if path in error.message else f"{path}: {error.message}",
        fix=error.hint or "build or download the file again",
    )


def foreign(path: str) -> Finding:
    return Finding(
        rule="library-foreign",
        severity="note",
        message=f"{path} was not read: a 32-bit or big-endian file, which current CUDA does not make",
    )


def _incomplete(name: str, what: str) -> Finding:
    return Finding(
        rule="wheel-incomplete",
        severity="warning",
        message=f"{name} has {what}",
        fix="build it again with a standard build backend",
    )
