"""Device code that a library finds by itself, emptied in place: it reads zeros there, and all else as it was."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard

from cuwheel.changes.binaries import elf_references, payloads
from cuwheel.changes.binaries.rewrite import slim_library
from cuwheel_core.device_code import elf
from cuwheel_core.device_code.fatbin import CONTAINER
from cuwheel_core.errors import MalformedError
from cuwheel_core.support.buffer import MemoryBuffer
from tests.integration.test_rewrite_layouts import LAYOUTS, SHARED, load, run_tool
from tests.unit.changes.binaries import engine
from tests.unit.changes.binaries.engine import container, entry, noise

SOURCE = Path(__file__).parent / "src" / "resources.c"
LARGE = 60_000
POINTERS = 3000  # enough relocations to make room for a hundred program headers
PLACES = {name: LAYOUTS[name] for name in ("shared", "stripped", "one-segment", "huge-pages", "relr", "both-hashes")}
TOOLS = [(layout, tool) for layout in ("shared", "one-segment") for tool in ("strip", "patchelf", "objcopy")]


class Piece(NamedTuple):
    """Device code in a library, and what must stand there after slimming for 9.0."""

    section: str
    data: bytes
    after: bytes


def emptied(data: bytes) -> bytes:
    """A container that says that it holds nothing."""
    return CONTAINER.pack(*CONTAINER.unpack_from(data)[:3], 0).ljust(len(data), b"\0")


def resource(seed: int, *archs: str) -> Piece:
    data = container(*(entry(arch, noise(seed, LARGE)) for arch in archs))
    return Piece('.resource,"a"', data, data if any("90" in arch for arch in archs) else emptied(data))


def cubin(seed: int, arch: int, *, packed: bool) -> Piece:
    """By its header, which is all that is read of one that is compressed."""
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1\x33\7", 2, 190, 1, 0, 0, 0, arch, 64, 0, 0, 0, 0, 0)
    data = head + noise(seed, LARGE)
    stored = zstandard.ZstdCompressor().compress(data) if packed else data
    return Piece('.loose,"aw"', stored, stored if arch == 90 else bytes(len(stored)))


def pieces() -> list[Piece]:
    """As in cuBLASLt: containers with descriptions between them, then cubins in runs of several architectures."""
    found = []
    for seed in range(30):
        found.append(resource(seed, "sm_100f") if seed % 5 else resource(seed, "sm_90", "sm_100"))
        if seed % 7 == 0:
            words = noise(seed + 900, 9000)
            found.append(Piece('.resource,"a"', words, words))
    cubins = (cubin(seed, (75, 80, 90, 80)[seed % 4], packed=True) for seed in range(40))
    return [*found, resource(77, "sm_100", "sm_120a"), *cubins]


def build(folder: Path, flags: tuple[str, ...], found: list[Piece]) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    lines, starts, ends = [], [], []
    for index, piece in enumerate(found):
        (folder / f"{index}.bin").write_bytes(piece.data)
        lines += [f".section {piece.section}", ".balign 8", f'p{index}: .incbin "{index}.bin"', f"e{index}:"]
        starts.append(f".quad p{index}")
        ends.append(f".quad e{index}")
    lines += [
        '.section .data.rel.ro,"aw"',
        ".balign 8",
        ".globl starts, ends, count",
        ".hidden starts, ends, count",
        "starts:",
        *starts,
    ]
    lines += ["ends:", *ends, f"count: .quad {len(found)}", f".rept {POINTERS}", ".quad p0", ".endr"]
    lines += ['.section .nv_fatbin,"a"', ".balign 8", 'named: .incbin "named.bin"']
    lines += ['.section .nvFatBinSegment,"aw"', ".balign 8", ".int 0x466243b1, 1", ".quad named, 0"]
    (folder / "named.bin").write_bytes(
        container(*(entry(arch, noise(5, LARGE)) for arch in ("sm_75", "sm_80", "sm_86", "sm_90")))
    )
    (folder / "places.s").write_text("\n".join([*lines, '.section .note.GNU-stack,""', ""]))
    out = folder / "library.so"
    command = ["gcc", "-Os", *flags, "-fno-lto", str(SOURCE), "places.s", "-o", str(out)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return out


def hashed(data: bytes) -> str:
    return f"{zlib.adler32(data):08x}"


@pytest.mark.parametrize(("layout", "tool"), [*((each, "") for each in PLACES), *TOOLS])
def test_every_layout(tmp_path: Path, layout: str, tool: str) -> None:
    found = pieces()
    source = build(tmp_path, PLACES[layout], found)
    assert load(source)[: len(found)] == [hashed(each.data) for each in found]
    slim = tmp_path / "slim.so"
    result = slim_library(source, slim, engine.plan(source, "9.0"))
    assert result.written, result.findings
    gone = sum(len(each.data) for each in found if each.data != each.after)
    # All but two pages of each piece, where the relocations leave room for as many program headers: RELR is short.
    assert result.change.bytes_before - result.change.bytes_after > (
        gone / 4 if layout == "relr" else gone - len(found) * 8192
    )
    wanted = [hashed(each.after) for each in found]
    assert load(slim)[: len(found)] == wanted
    _must_be_sound(slim)
    if tool:
        run_tool(tool, slim)
        assert load(slim)[: len(found)] == wanted


def test_only_what_no_machine_could_load_goes(tmp_path: Path) -> None:
    """Not by what the driver would choose: PTX, code of unknown use and whatever a target could load all stay."""
    found = [
        resource(1, "sm_80", "compute_80"),
        resource(2, "sm_80", "lto_80"),
        resource(3, "sm_100"),
        cubin(4, 100, packed=True),
        cubin(5, 90, packed=True),
    ]
    source = build(tmp_path, SHARED, found)
    dropped = [each.entry for each in engine.plan(source, "9.0").entries if not each.keep]
    assert [(each.arch, each.section) for each in dropped] == [
        *(("sm_75", ".nv_fatbin"), ("sm_80", ".nv_fatbin"), ("sm_86", ".nv_fatbin")),
        ("sm_100", ".resource"),
        ("sm_100", ".loose"),
    ]
    both = [each.entry.arch for each in engine.plan(source, "9.0", "10.3").entries if not each.keep]
    assert both == ["sm_75", "sm_80", "sm_86"]


@pytest.mark.parametrize("tool", ["", "strip", "patchelf"])
def test_containers_that_nothing_names_in_their_own_section(tmp_path: Path, tool: str) -> None:
    """Emptied where they stand, and nothing else is put into their place; with others for a target they stay whole."""
    found = [
        each._replace(section='.nv_fatbin,"a"')
        for each in (resource(1, "sm_80"), resource(2, "sm_80", "sm_90"), resource(3, "sm_100", "sm_120"))
    ]
    source = build(tmp_path, SHARED, found)
    assert load(source)[:3] == [hashed(each.data) for each in found]
    slim = tmp_path / "slim.so"
    result = slim_library(source, slim, engine.plan(source, "9.0"))
    assert result.change.bytes_before - result.change.bytes_after > 5 * LARGE
    if tool:
        run_tool(tool, slim)
    assert load(slim)[:3] == [hashed(each.after) for each in found]


def test_what_the_loader_writes_to_is_no_device_code(tmp_path: Path) -> None:
    found = [resource(1, "sm_100")]
    source = build(tmp_path, SHARED, found)
    plan = engine.plan(source, "9.0")
    data = source.read_bytes()
    table = next(each for each in _rows(data) if each[1] == 4)
    inside = next(each for each in plan.entries if each.entry.section == ".resource").entry.offset + 5000
    address = next(row[3] + inside - row[4] for row in _rows(data) if row[4] <= inside < row[4] + row[5])
    source.write_bytes(data[: table[4]] + struct.pack("<Q", address) + data[table[4] + 8 :])
    result = slim_library(source, tmp_path / "slim.so", plan)
    assert not result.written
    assert "writes into what seems to be device code" in result.findings[-1].message


def test_room_that_patchelf_left_is_used(tmp_path: Path) -> None:
    """It moves sections to the end and fills their places: so are libraries of cuDNN."""
    found = pieces()
    source = build(tmp_path, SHARED, found)
    run_tool("patchelf", source)
    slim = tmp_path / "slim.so"
    result = slim_library(source, slim, engine.plan(source, "9.0"))
    gone = sum(len(each.data) for each in found if each.data != each.after)
    assert result.change.bytes_before - result.change.bytes_after > gone - len(found) * 8192
    assert load(slim)[: len(found)] == [hashed(each.after) for each in found]


@pytest.mark.parametrize("letter", [b"X", b"Z"])
def test_what_patchelf_fills_its_old_places_with_is_free(tmp_path: Path, letter: bytes) -> None:
    """One letter or the other, by its version; what something points at is not free, whatever stands there."""
    source = build(tmp_path, SHARED, pieces())
    run_tool("patchelf", source)
    data = source.read_bytes()
    filled = max(re.finditer(b"X{64,}|Z{64,}", data), key=lambda each: len(each[0]))
    data = data[: filled.start()] + letter * len(filled[0]) + data[filled.end() :]
    library = elf.read_elf(MemoryBuffer("library", data))
    assert elf_references.is_free(library, filled.start(), filled.end())
    other = data[: filled.start()] + b"A" * len(filled[0]) + data[filled.end() :]
    assert not elf_references.is_free(elf.read_elf(MemoryBuffer("library", other)), filled.start(), filled.end())


def test_another_file_than_the_planned_one(tmp_path: Path) -> None:
    found = pieces()
    source = build(tmp_path, SHARED, found)
    plan = engine.plan(source, "9.0")
    cubin_at = next(each.entry.offset for each in plan.entries if each.entry.container is None and not each.keep)
    data = bytearray(source.read_bytes())
    data[cubin_at : cubin_at + 4] = b"text"
    source.write_bytes(data)
    result = slim_library(source, tmp_path / "slim.so", plan)
    assert not result.written
    assert "not the file that was planned for" in result.findings[-1].message


def test_a_wrong_byte_of_what_stays_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = pieces()
    source = build(tmp_path, SHARED, found)
    plan = engine.plan(source, "9.0")
    kept = next(each.entry.offset for each in plan.entries if each.entry.container is None and each.keep)
    whole = payloads.write_pieces

    def damaging(source: int, spool: int | None, target: int, pieces: object, patches: object) -> None:
        listed = list(pieces)  # type: ignore[call-overload]
        at = next(each.place + kept - each.offset for each in listed if each.offset <= kept < each.offset + each.size)
        whole(source, spool, target, listed, [*patches, (at, b"?")])  # type: ignore[misc]

    monkeypatch.setattr(payloads, "write_pieces", damaging)
    with pytest.raises(MalformedError):
        slim_library(source, tmp_path / "slim.so", plan)


def _must_be_sound(path: Path) -> None:
    """By readelf. eu-elflint expects memory without bytes behind the last segment alone."""
    done = subprocess.run(["readelf", "-aW", path], capture_output=True, text=True, check=True)
    assert not done.stderr, done.stderr


def _rows(data: bytes) -> list[tuple[int, ...]]:
    at, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    return [struct.unpack_from("<IIQQQQIIQQ", data, at + 64 * index) for index in range(count)]
