"""Bytes on their way into a new library: device code compressed anew into a spool, and pieces copied between files."""

from __future__ import annotations

import os
import struct
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from cuwheel.changes.binaries.draft import Patch, Piece, Replacement, round_up
from cuwheel.support import system_calls
from cuwheel.support.finding import finding
from cuwheel_core.device_code import fatbin
from cuwheel_core.device_code.fatbin import FLAG_LZ4, FLAG_ZSTD
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.support import opening
from cuwheel_core.support.buffer import Buffer, MemoryBuffer, OutOfBoundsError, zstd_compressed
from cuwheel_core.support.finding import Finding

if TYPE_CHECKING:
    from cuwheel.changes.binaries.draft import Draft, NewFile
    from cuwheel.changes.binaries.plan import EntryDecision, LibraryPlan
    from cuwheel_core.device_code.libraries import Compression


# Device code compressed anew, losslessly and on all cores, into a file of its own until its place is known.

# Measured on bitsandbytes' and NCCL's cubins: 9 stores them in 10 % of their size at 70 MB/s and core. 12 stores 1 to
# 2 % less at half the speed, 19 stores 15 to 20 % less at a thirtieth of it. All are read
# back at 0.8 to 1.6 GB/s, with no order among them that the noise would let one see.
_ZSTD_LEVEL = 9
_LZ4_LEVEL = 6  # 17 % of their size; 9 stores 1 % less at a third of the speed
_ALIGNMENT = 8
_HIGHEST_RATIO = 200  # what shrinks further is not code, and readers take it for a bomb
_WORTH_IT = 16  # smaller by one part in so many
# Memory that all entries in work may take together, what the compressor takes for one, and for a small one.
_BUDGET = 160_000_000
_TABLES, _SMALL_TABLES, _SMALL = 16_000_000, 4_000_000, 1 << 18
_LARGEST = 1 << 27  # one larger than that, decompressed, is left as it is
_STEP = 1 << 18
_PAYLOAD_AT, _COMPRESSED_AT, _FLAGS_AT, _REAL_AT = 0x08, 0x10, 0x28, 0x38
_FLAGS: dict[Compression, int] = {"none": 0, "lz4": FLAG_LZ4, "zstd": FLAG_ZSTD}


class Spool(Struct, kw_only=True):
    """`replacements`: by the offset of the entry that each is for."""

    fileno: int | None = None
    replacements: dict[int, Replacement] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    _size: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, offset: int, header: bytes, data: bytes) -> None:
        with self._lock:
            at, self._size = self._size, self._size + len(data)
            self.replacements[offset] = Replacement(header, at, len(data))
        if self.fileno is not None:
            write_all(self.fileno, data, at)


@contextmanager
def spool(folder: Path, buffer: Buffer, plan: LibraryPlan) -> Iterator[Spool]:
    """Whatever the plan wants compressed anew and is the smaller for it."""
    wanted = [each for each in plan.entries if each.keep and each.recompress_to]
    if not wanted:
        yield Spool()
        return
    try:
        file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed below
    except OSError as error:
        raise UnreadableError.from_os(error, folder) from error
    with file:
        made = Spool(fileno=file.fileno())
        _compress_all(made, buffer, wanted)
        yield made


def _compress_all(made: Spool, buffer: Buffer, wanted: list[EntryDecision]) -> None:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only here

    budget = _Budget(_BUDGET)
    large: list[EntryDecision] = []

    def work(each: EntryDecision) -> None:
        if each.entry.real_bytes > _LARGEST:
            large.append(each)
            return
        tables = _TABLES if each.entry.real_bytes > _SMALL else _SMALL_TABLES
        with budget.take(each.entry.real_bytes + each.bytes + tables):
            _compress_one(made, buffer, each)

    # The largest first, or one core would be left with it at the end.
    order = sorted(wanted, key=lambda each: (-each.entry.real_bytes, each.entry.offset))
    try:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(work, order))
    except OSError as error:
        raise UnreadableError.from_os(error) from error
    if large:
        made.findings.append(
            finding(
                "too-large-to-recompress",
                f"{len(large)} entries are too large to recompress within the memory limit and stay as they are",
                evidence=tuple(f"{each.entry.arch} at {each.entry.offset:#x}" for each in large[:5]),
            )
        )


def _compress_one(made: Spool, buffer: Buffer, each: EntryDecision) -> None:
    head = buffer.read(each.entry.offset, each.entry.header_size)
    stored = each.entry.compressed_bytes or each.bytes - each.entry.header_size
    real = fatbin.read_payload(
        buffer, each.entry.offset + each.entry.header_size, stored, each.entry.real_bytes, each.entry.compression
    )
    wanted = each.recompress_to or "none"
    data = compressed(real, wanted)
    size = round_up(len(data), _ALIGNMENT)
    if size + size // _WORTH_IT >= each.bytes - each.entry.header_size or len(real) > _HIGHEST_RATIO * size:
        return
    if not _unpacks_to(data, real, wanted):
        raise MalformedError(buffer.name, f"device code at {each.entry.offset:#x} did not survive compression")
    made.add(each.entry.offset, _header(head, size, len(data), len(real), wanted), data.ljust(size, b"\0"))


def _header(head: bytes, size: int, compressed: int, real: int, wanted: Compression) -> bytes:
    """The old header, but for the fields that tell how the payload is stored."""
    new = bytearray(head)
    struct.pack_into("<QI", new, _PAYLOAD_AT, size, compressed)
    (flags,) = struct.unpack_from("<Q", head, _FLAGS_AT)
    struct.pack_into("<Q", new, _FLAGS_AT, flags & ~(FLAG_LZ4 | FLAG_ZSTD) | _FLAGS[wanted])
    struct.pack_into("<Q", new, _REAL_AT, real)
    return bytes(new)


def compressed(data: bytes, wanted: Compression) -> bytes:
    if wanted == "lz4":
        import lz4.block  # noqa: PLC0415 - only where drivers are old

        packed: bytes = lz4.block.compress(data, mode="high_compression", compression=_LZ4_LEVEL, store_size=False)
        return packed
    return zstd_compressed(data, _ZSTD_LEVEL)


def _unpacks_to(data: bytes, real: bytes, wanted: Compression) -> bool:
    if wanted == "lz4":
        return fatbin.read_payload(MemoryBuffer("compressed", data), 0, len(data), len(real), wanted) == real
    import zstandard  # noqa: PLC0415 - only here

    reader = zstandard.ZstdDecompressor().stream_reader(data)  # in steps: a second copy may be large
    for at in range(0, len(real), _STEP):
        expected = real[at : at + _STEP]
        if reader.read(len(expected)) != expected:
            return False
    return not reader.read(1)


class _Budget:
    """Lets work begin while the bytes in work stay below a limit; one piece may always begin."""

    def __init__(self, limit: int) -> None:
        self._limit, self._used = limit, 0
        self._freed = threading.Condition()

    @contextmanager
    def take(self, count: int) -> Iterator[None]:
        with self._freed:
            self._freed.wait_for(lambda: not self._used or self._used + count <= self._limit)
            self._used += count
        try:
            yield
        finally:
            with self._freed:
                self._used -= count
                self._freed.notify_all()


# Bytes from one file into another, in pieces and without holding them: memory stays small whatever the size.

# In the cache of one core. Faster than copy_file_range where nothing lies on the same place of a page.
_CHUNK = 1 << 18


def write_pieces(
    source: int, spool: int | None, target: int, pieces: Iterable[Piece], patches: Iterable[Patch]
) -> None:
    """Pieces first, patches over them. All three are file descriptors."""
    chunk = memoryview(bytearray(_CHUNK))
    try:
        for piece in pieces:
            if piece.data:
                write_all(target, piece.data, piece.place)
            elif piece.spool and spool is not None:
                _copy_range(spool, piece.offset, target, piece.place, piece.size, chunk)
            else:
                _copy_range(source, piece.offset, target, piece.place, piece.size, chunk)
        for place, data in patches:
            write_all(target, data, place)
    except OSError as error:
        raise UnreadableError.from_os(error) from error


def write_beside(
    source: Path, target: Path, made: Draft | NewFile, spool: int | None, must_hold: Callable[[Path], object]
) -> None:
    """Beside `target`, then renamed, if `must_hold` does not raise for what was written. `spool`: open, or None."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".cuwheel", dir=target.parent)
    except OSError as error:
        raise UnreadableError.from_os(error, target.parent) from error
    beside = Path(name)
    try:
        with os.fdopen(handle, "r+b", buffering=0) as file, source.open("rb", buffering=0) as original:
            system_calls.set_mode(file.fileno(), os.fstat(original.fileno()).st_mode & 0o7777)
            os.ftruncate(file.fileno(), made.size)
            write_pieces(original.fileno(), spool, file.fileno(), made.pieces, made.patches)
            if made.checksum_at is not None:
                write_checksum(file.fileno(), made.checksum_at, made.size)
        must_hold(beside)
        system_calls.rename_over(beside, target)
    except OSError as error:
        raise UnreadableError.from_os(error, target) from error
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()


def first_differing(source: Path, written: Path, pieces: Iterable[Piece], spool: int | None = None) -> Piece | None:
    """The first piece that is not the same bytes as where it came from."""
    with source.open("rb", buffering=0) as old, written.open("rb", buffering=0) as new:
        for each in pieces:
            original = spool if each.spool and spool is not None else old.fileno()
            if not each.data and not same_bytes(original, each.offset, new.fileno(), each.place, each.size):
                return each
    return None


def same_bytes(one: int, at: int, other: int, place: int, size: int) -> bool:
    """Whether two files hold the same bytes there."""
    while size:
        count = min(size, _CHUNK)
        first = opening.read_at(one, count, at)
        if not first or first != opening.read_at(other, len(first), place):
            return False
        at, place, size = at + len(first), place + len(first), size - len(first)
    return True


def write_checksum(target: int, place: int, size: int) -> None:
    """What a PE file's header says of all its bytes: their words added up, carries too, and the file's size.

    `place`: of its four bytes, which count as zeros. As a number, a piece is its words' sum modulo 65,535.
    """
    try:
        write_all(target, bytes(4), place)
        total, nonzero = 0, False
        for at in range(0, size, _CHUNK):
            number = int.from_bytes(opening.read_at(target, min(_CHUNK, size - at), at), "little")
            total, nonzero = (total + number) % 0xFFFF, nonzero or bool(number)
        folded = total or (0xFFFF if nonzero else 0)
        write_all(target, (folded + size).to_bytes(8, "little")[:4], place)
    except OSError as error:
        raise UnreadableError.from_os(error) from error


def _copy_range(source: int, offset: int, target: int, place: int, size: int, chunk: memoryview) -> None:
    while size:
        count = system_calls.read_into(source, chunk[: min(size, _CHUNK)], offset)
        if not count:  # it was cut while it was read
            raise OutOfBoundsError("the file", offset, size, offset)
        write_all(target, chunk[:count], place)
        offset, place, size = offset + count, place + count, size - count


def write_all(target: int, data: bytes | memoryview, place: int) -> None:
    rest = memoryview(data)
    while rest:
        count = system_calls.write_at(target, rest, place)
        rest, place = rest[count:], place + count
