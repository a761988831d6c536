"""Whatever the bytes are: only our errors, in bounded work and memory, and parts that add up."""

from __future__ import annotations

import contextlib
import io
import tracemalloc
import zipfile
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuwheel.device_code.survey import survey
from cuwheel_core.device_code import library
from cuwheel_core.device_code.fatbin import MAGIC
from cuwheel_core.errors import CuwheelError
from cuwheel_core.support.buffer import MemoryBuffer, occurrences
from tests.unit.device_code import build

if TYPE_CHECKING:
    from pathlib import Path

CUBIN = build.cubin({"_Z4axpyIfEv": (32, 16, 1024), "plain": (8, 0, 0)})
CONTAINER = build.container(
    build.entry(build.CUBIN, 90, CUBIN, flags=0x11 | build.ZSTD),
    build.entry(build.CUBIN, 100, CUBIN, flags=0x11 | build.FAMILY),
    build.entry(build.PTX, 120, b".visible .entry plain()\n" * 8, options="-g", identifier="k.cu"),
)
SEEDS = {
    "elf": build.library(CONTAINER, CONTAINER, relocatable=CONTAINER).build(),
    "dynamic": build.dynamic(needed=("libc.so.6",), runpath="/a:/b", soname="x", glibc="GLIBC_2.28").build(),
    "pe": build.pe({".nv_fatb": CONTAINER, ".nvFatBi": build.wrapper(0x180000400)}, ("cudart64_12.dll",)),
    "archive": build.archive(("a.o", build.library(CONTAINER).build()), ("b.o", build.library(CONTAINER).build())),
    "fatbin": CONTAINER,
    "cubin": CUBIN,
    "hidden": build.Elf(sections=[build.Section(name=".rodata", data=CONTAINER + CUBIN)]).build(),
}
# What breaks readers: nothing, everything, signs, and sizes just beyond.
_SPITEFUL = st.sampled_from([b"\0" * 8, b"\xff" * 8, b"\x80", b"\x7f\xff\xff\xff", b"\x01\0\0\0\0\0\0\x80", MAGIC])
READS_PER_BYTE, READS_FREE = 4, 20_000
MEMORY_PER_BYTE, MEMORY_FREE = 64, 8 << 20


class Counting(MemoryBuffer):
    def __init__(self, data: bytes) -> None:
        super().__init__("x", data)
        self.reads = 0

    def read(self, offset: int, count: int) -> bytes:
        self.reads += 1
        assert self.reads < READS_FREE + READS_PER_BYTE * self.size, "it reads again and again"
        return super().read(offset, count)


def examine(data: bytes) -> None:
    try:
        found = library.read_library(Counting(data), detail="entries", search="whole")
    except CuwheelError:
        return
    assert sum(part.bytes for part in found.parts) == len(data)
    assert sum(row.count for row in found.device_code) == len(found.entries)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(SEEDS[draw(st.sampled_from(sorted(SEEDS)))])
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data) - 1))
        piece = draw(st.one_of(_SPITEFUL, st.binary(min_size=1, max_size=8)))
        data[at : at + len(piece)] = piece
    cut = draw(st.integers(0, 3))
    return bytes(data[: draw(st.integers(0, len(data)))]) if cut == 0 else bytes(data)


@settings(max_examples=600, deadline=2000)
@given(mutated())
def test_mutated_files(data: bytes) -> None:
    examine(data)


@settings(max_examples=200, deadline=2000)
@given(st.sampled_from([b"\x7fELF\x02\x01\x01", b"MZ", b"!<arch>\n", MAGIC, b""]), st.binary(max_size=600))
def test_noise(start: bytes, data: bytes) -> None:
    examine(start + data)


@settings(max_examples=60, deadline=None)
@given(mutated())
def test_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        examine(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_FREE + MEMORY_PER_BYTE * len(data)


def wheel_of(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pkg-1.dist-info/METADATA", "Name: pkg\nVersion: 1\n")
        archive.writestr("pkg/lib.so", data)
    return stream.getvalue()


WHEEL = wheel_of(SEEDS["elf"])


@settings(max_examples=200, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(WHEEL) - 1), _SPITEFUL), min_size=1, max_size=4), st.data())
def test_mutated_wheels(tmp_path: Path, changes: list[tuple[int, bytes]], draw: st.DataObject) -> None:
    data = bytearray(WHEEL)
    for at, piece in changes:
        data[at : at + len(piece)] = piece
    if draw.draw(st.booleans()):
        del data[draw.draw(st.integers(0, len(data))) :]
    path = tmp_path / "pkg-1-py3-none-any.whl"
    path.write_bytes(data)
    with contextlib.suppress(CuwheelError):
        survey(path)


KINDS = st.sampled_from([build.PTX, build.CUBIN, build.LTO])
ENTRIES = st.lists(
    st.tuples(KINDS, st.integers(20, 199), st.binary(max_size=200), st.sampled_from([0, build.ZSTD]), st.booleans()),
    max_size=5,
)


@settings(max_examples=200)
@given(st.lists(st.tuples(ENTRIES, st.integers(0, 5)), min_size=1, max_size=4))
def test_what_is_built_is_read(containers: list[tuple[list[tuple[int, int, bytes, int, bool]], int]]) -> None:
    """Padding between containers is a multiple of the alignment, as linkers leave it."""
    data, expected = b"", []
    for index, (entries, padding) in enumerate(containers):
        built = []
        for kind, arch, payload, packed, debug in entries:
            flags = packed | (build.DEBUG if debug else 0)
            built.append(build.entry(kind, arch, payload, flags=flags))
            expected.append((index, {1: "ptx", 2: "cubin", 8: "lto-ir"}[kind], arch, debug))
        data += build.container(*built) + bytes(8 * padding)
    found = library.read_library(MemoryBuffer("x", data), detail="entries")
    read = [(each.container, each.kind, int(each.arch.split("_")[1]), each.debug) for each in found.entries]
    assert read == expected
    assert len(found.containers) == len(containers)
    assert [each for each in found.findings if each.rule == "fatbin-damaged"] == []


@given(st.binary(max_size=400), st.binary(min_size=1, max_size=4), st.integers(0, 10), st.data())
def test_occurrences_are_all_there_are(data: bytes, needle: bytes, start: int, draw: st.DataObject) -> None:
    rare = draw.draw(st.integers(0, len(needle) - 1))
    expected = [at for at in range(start, len(data)) if data.startswith(needle, at)]
    assert list(occurrences(data, needle, rare, start)) == expected
