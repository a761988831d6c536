"""Readers of binaries and of the zip that they come in."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from cuwheel.device_code.survey import survey
from cuwheel_core.device_code import cubin, fatbin, library, loose
from cuwheel_core.wheel import zip_reader
from cuwheel_core.wheel.zip_reader import ZipReader
from tests.fixtures.damage import wheel
from tests.fuzz import binaries, wheels
from tests.fuzz.harness import CountingBuffer, Harness, containers, fixtures

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cuwheel_core.device_code.libraries import Compression

_SMALL = 24_000  # what is beyond it says nothing new, and is slow
_MOST_INFLATED = 1 << 20
_KINDS: tuple[Compression, ...] = ("lz4", "zstd", "none")
PTX = b""".version 8.7
.target sm_90, debug
.address_size 64
.visible .entry _Z1fPf(
 .param .u64 _Z1fPf_param_0
)
.maxntid 256, 1, 1
{ ret; }
.extern .func (.param .b32 a) vprintf (.param .b64 b);
.weak .func g() { ret; }
.visible .global .align 4 .u32 counter;
.file 1 "a.cu"
"""


def _read_library(data: bytes) -> None:
    library.read_library(CountingBuffer("fuzzed", data), detail="entries", search="whole")


def _read_fatbin(data: bytes) -> None:
    buffer = CountingBuffer("fuzzed", data)
    for entry in library.read_library(buffer, detail="entries").entries:
        stored = entry.compressed_bytes or entry.bytes
        fatbin.read_payload(buffer, entry.offset + entry.header_size, stored, entry.real_bytes, entry.compression)


def _read_cubin(data: bytes) -> None:
    found = cubin.open_buffer(CountingBuffer("fuzzed", data))
    found.kernels()
    _ = (found.arch, found.linked, found.abi)
    cubin.toolkit(data)


def _read_payload(data: bytes) -> None:
    """The first byte says how it is packed, the next four how large it was."""
    kind = _KINDS[data[0] % len(_KINDS)] if data else "none"
    buffer = CountingBuffer("fuzzed", data[5:])
    fatbin.payload_start(buffer, 0, buffer.size, kind)
    fatbin.zstd_frame(buffer, 0, buffer.size)
    fatbin._lz4_decoded(data[5:], 4096)  # what a browser uses
    fatbin.read_payload(buffer, 0, buffer.size, int.from_bytes(data[1:5], "little"), kind)


def _read_ptx(data: bytes) -> None:
    buffer = CountingBuffer("fuzzed", data)
    if loose.is_ptx(buffer):
        loose.read_ptx(buffer)
    cubin.ptx_symbols(data)
    cubin.ptx_kernels(data)
    loose.read_packed_cubin(buffer, "fuzzed", 0, buffer.size)


def _read_inflate(data: bytes) -> None:
    """Four bytes for the size, four for the checksum, and the stream."""
    size, crc = (int.from_bytes(data[at : at + 4], "little") for at in (0, 4))
    buffer = CountingBuffer("fuzzed", data[8:])
    packed = zip_reader.Packed(buffer, 0, buffer.size, min(size, _MOST_INFLATED), crc, "fuzzed")
    zip_reader.start_inflating(packed, 64)
    opened = zip_reader.InflatedBuffer(packed, None, lambda _count: None)
    opened.read(0, min(opened.size, 100))
    opened.read(max(0, opened.size - 100), min(opened.size, 100))
    opened.close()


def _read_zip(folder: Path) -> Callable[[bytes], None]:
    path = folder / "pkg-1.0-py3-none-any.whl"

    def read(data: bytes) -> None:
        opened = ZipReader(path, CountingBuffer("fuzzed", data))
        for member in list(opened.members.values())[:50]:
            opened.head(member, 16)
            if member.size < _MOST_INFLATED:
                opened.open(member, lambda _count: None)
                opened.text(member.name)

    return read


def _read_wheel(folder: Path) -> Callable[[bytes], None]:
    path = folder / "pkg-1.0-py3-none-any.whl"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        survey(path)

    return read


def _zips() -> list[bytes]:
    small = min(fixtures("fatbin", "elf"), key=len)
    return [
        wheel.wheel({"pkg/a.so": small}),
        wheel.wheel({"pkg/a.so": small, "pkg/b.so": small[:200]}, compression=0),
        wheel.wheel({"pkg/__init__.py": b"import ctypes\nctypes.CDLL('a.so')\n", "pkg/a.so": small[:400]}),
    ]


def _mutate_wheel(data: bytes, seed: int) -> bytes:
    return wheels.mutate(b"\n" + data, seed).partition(b"\n")[2]


def _deflated() -> list[bytes]:
    made = []
    for content in (b"", b"abc" * 100, bytes(range(256)) * 40, b"\0" * 300_000):
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        head = len(content).to_bytes(4, "little") + zlib.crc32(content).to_bytes(4, "little")
        made.append(head + packer.compress(content) + packer.flush())
    return made


def _payloads() -> list[bytes]:
    """As the fixtures' fat binaries hold them."""
    made = []
    for data in (*fixtures("fatbin"), *containers()):
        for entry in library.read_library(CountingBuffer("seed", data), detail="entries").entries:
            stored = entry.compressed_bytes or entry.bytes
            kind = _KINDS.index(entry.compression)
            at = entry.offset + entry.header_size
            made.append(bytes([kind]) + entry.real_bytes.to_bytes(4, "little") + data[at : at + stored])
    return [each for each in made if len(each) < _SMALL][:40]


def _small(*formats: str) -> list[bytes]:
    return [each for each in fixtures(*formats) if len(each) <= _SMALL]


HARNESSES: dict[str, Callable[[Path], Harness]] = {
    "elf": lambda _: Harness(_small("elf"), _read_library, binaries.mutate),
    "pe": lambda _: Harness(_small("pe"), _read_library, binaries.mutate),
    "archive": lambda _: Harness(fixtures("archive"), _read_library),
    "fatbin": lambda _: Harness(
        [each for each in (*fixtures("fatbin"), *containers()) if len(each) <= _SMALL], _read_fatbin, binaries.mutate
    ),
    "payload": lambda _: Harness(_payloads(), _read_payload),
    "cubin": lambda _: Harness(fixtures("cubin"), _read_cubin, binaries.mutate),
    "ptx": lambda _: Harness([PTX], _read_ptx),
    "inflate": lambda _: Harness(_deflated(), _read_inflate),
    "zip": lambda folder: Harness(_zips(), _read_zip(folder), _mutate_wheel),
    "wheel": lambda folder: Harness(_zips(), _read_wheel(folder), _mutate_wheel),
}
