"""Windows binaries slimmed: smaller files that Windows' rules hold for, and whatever forbids a change is seen."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pefile
import pytest

from cuwheel.changes.binaries import pe_references
from cuwheel.changes.binaries.rewrite import slim_library
from cuwheel_core.device_code import library as reader
from cuwheel_core.device_code import pe
from cuwheel_core.support.buffer import MemoryBuffer
from tests.fixtures import manifest, windows
from tests.fixtures.windows import Dll
from tests.unit.changes.binaries import engine

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.changes.binaries.rewrite import Rewritten

HIDDEN = engine.container(engine.entry("sm_80", engine.noise(77, 60_000)))


def slimmed(data: bytes, folder: Path, *gpus: str, **options: Any) -> tuple[Rewritten, bytes]:
    source, target = folder / "source.dll", folder / "target.dll"
    source.write_bytes(data)
    result = slim_library(source, target, engine.plan(source, *(gpus or ("9.0",)), **options))
    return result, target.read_bytes() if result.written else b""


def must_be_sound(before: bytes, after: bytes, *, also: tuple[tuple[int, int], ...] = ()) -> None:
    assert list(pe_references.broken_rules(pe.read_pe(MemoryBuffer("new", after)))) == []
    assert windows.host_differences(before, after, also=also) == []
    new = {each for each in pefile.PE(data=after).get_warnings() if "% of the file" not in each}
    assert new <= set(pefile.PE(data=before).get_warnings())


@pytest.mark.parametrize(
    "wish",
    [
        Dll(),
        Dll(padding=8),
        Dll(checksum=True),
        Dll(overlay=b"an installer's archive"),
        Dll(symbols=True),
        Dll(debug=True, symbols=True, checksum=True),
        Dll(traits=windows.PROGRAM),
        Dll(headers_size=4096),
        Dll(machine=windows.ARM64, debug=True, checksum=True),
    ],
    ids=["plain", "padded-wrappers", "checksum", "overlay", "symbols", "debug", "program", "long-headers", "arm64"],
)
def test_what_is_kept_is_the_same_and_the_file_is_sound(wish: Dll, tmp_path: Path) -> None:
    before = wish.build()
    result, after = slimmed(before, tmp_path)
    must_be_sound(before, after)
    assert [[each.arch for each in result.change.dropped]] == [["sm_80", "sm_100"]]
    kept = [inside[1:2] for inside in engine.contents(tmp_path / "source.dll")]
    assert engine.contents(tmp_path / "target.dll") == kept
    assert result.change.bytes_after == len(after) < len(before) / 2
    found = reader.read_library(MemoryBuffer("new", after), detail="entries")
    assert [each.container for each in found.registration.wrappers] == [0, 1, 2, 3]
    for old, new in zip(windows.rows(before), windows.rows(after), strict=True):
        assert old[:3] == new[:3], "names, sizes in memory and addresses stay"
    if wish.checksum:
        assert windows.stored_checksum(after) == windows.checksum(after)
    else:
        assert windows.stored_checksum(after) == 0
    assert after.endswith(wish.overlay)
    header = pefile.PE(data=after).OPTIONAL_HEADER
    saved = len(before) - len(after)
    assert header.SizeOfInitializedData == pefile.PE(data=before).OPTIONAL_HEADER.SizeOfInitializedData - saved


def test_the_fixture_of_a_real_linker(tmp_path: Path) -> None:
    source = manifest.HERE / "bin" / "windows-130.dll"
    result, after = slimmed(source.read_bytes(), tmp_path)
    assert result.written
    must_be_sound(source.read_bytes(), after)
    assert [each.arch for each in engine.read(tmp_path / "target.dll").entries] == ["sm_90"]


def test_recompressed_code_is_smaller_still(tmp_path: Path) -> None:
    code = bytes(each & 3 for each in engine.noise(5, 200_000))
    before = Dll(containers=[engine.container(engine.entry("sm_90", code))]).build()
    result, after = slimmed(before, tmp_path, recompress=True)
    must_be_sound(before, after)
    assert [(each.before, each.after) for each in result.change.recompressed] == [("none", "zstd")]
    assert len(after) < len(before) / 2


def test_debug_data_and_symbols_are_where_the_tables_say(tmp_path: Path) -> None:
    wish = Dll(debug=True, symbols=True)
    before = wish.build()
    _, after = slimmed(before, tmp_path)
    old, new = pefile.PE(data=before), pefile.PE(data=after)
    entry = new.DIRECTORY_ENTRY_DEBUG[0].struct
    assert after[entry.PointerToRawData :][:4] == b"RSDS"
    assert entry.AddressOfRawData == old.DIRECTORY_ENTRY_DEBUG[0].struct.AddressOfRawData
    at = new.FILE_HEADER.PointerToSymbolTable
    symbols = [struct.unpack_from("<8sIhHBB", after, at + 18 * index) for index in range(4)]
    found = reader.read_library(MemoryBuffer("new", after), detail="containers")
    last = found.containers[-1].offset - next(r[4] for r in windows.rows(after) if r[0] == ".nv_fatb")
    assert symbols[0][:3] == (b"last".ljust(8, b"\0"), last, 4)
    assert symbols[1][1:3] == (0, 6)
    assert symbols[3][1:3] == (7, -1)


def test_a_signed_file_is_left_unless_asked(tmp_path: Path) -> None:
    before = Dll(signature=b"certificate".ljust(64, b"\0"), checksum=True).build()
    plan = engine.plan(_written(tmp_path, before), "9.0")
    assert not plan.changes
    assert [(each.rule, each.fix) for each in plan.untouched] == [("signed", "add --drop-signature")]
    result, after = slimmed(before, tmp_path, drop_signature=True)
    assert result.written
    must_be_sound(before, after)
    assert not pe.read_pe(MemoryBuffer("new", after)).signed
    assert b"certificate" not in after
    assert windows.stored_checksum(after) == windows.checksum(after)


def _written(folder: Path, data: bytes) -> Path:
    path = folder / "source.dll"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Dll(relocated=False), "no base relocations"),
        (Dll(exports=(1, 0)), "exports a symbol in its device code"),
        (Dll(lea=(1, 0)), "its code takes the address of a container"),
        (Dll(machine=windows.ARM64, lea=(1, 0)), "its code takes the address of a container"),
        (Dll(hybrid=True), "code for two kinds of processors"),
        (Dll(machine=windows.ARM64, hybrid=True), "code for two kinds of processors"),
        (Dll(inside=(2, 24)), "points into its device code"),
        (Dll(signature=bytes(64), dll_traits=0x1E0), "with a valid signature only"),
        (Dll(signature=bytes(64), overlay=b""), None),
    ],
    ids=[
        *("no-relocations", "export", "lea", "arm64-adrp", "arm64ec", "arm64x", "pointer-inside", "integrity"),
        "signature-asked-for",
    ],
)
def test_what_forbids_a_change(wish: Dll, words: str | None, tmp_path: Path) -> None:
    before = wish.build()
    result, _ = slimmed(before, tmp_path, drop_signature=True)
    assert result.written == (words is None)
    if words:
        assert [each.rule for each in result.findings] == ["cannot-rewrite"]
        assert words in result.findings[0].message
    assert (tmp_path / "source.dll").read_bytes() == before


def test_an_instruction_that_leads_elsewhere_forbids_nothing(tmp_path: Path) -> None:
    """Only the exact start of a container that moves: other addresses in device code are chance."""
    both = [(machine, place) for machine in (windows.X86_64, windows.ARM64) for place in ((1, 8), (0, 0))]
    for machine, place in both:  # the first container stays where it is
        before = Dll(machine=machine, lea=place).build()
        result, after = slimmed(before, tmp_path)
        assert result.written
        must_be_sound(before, after)


def test_another_machine_is_left(tmp_path: Path) -> None:
    plan = engine.plan(_written(tmp_path, Dll(machine=0x5064).build()), "9.0")
    assert [each.rule for each in plan.untouched] == ["other-machine"]


def test_a_container_that_nothing_names_stays_and_the_rest_moves(tmp_path: Path) -> None:
    """It lies between the others: what is before it and behind it goes, and the section becomes two."""
    before = Dll(unnamed=(2,)).build()
    result, after = slimmed(before, tmp_path)
    assert result.written
    must_be_sound(before, after)
    assert windows.rows(after)[3][0] == windows.rows(after)[4][0] == ".nv_fatb"
    start = windows.rows(before)[3][2] + Dll().starts()[2]
    size = len(Dll().containers[2])
    assert windows.image(after)[start : start + size] == windows.image(before)[start : start + size]


def test_dynamic_relocations_are_in_the_section_that_the_header_says(tmp_path: Path) -> None:
    """It says that by the section's number, which is another one where a section before it became two."""
    result, after = slimmed(Dll(unnamed=(2,), dynamic=(7, 16)).build(), tmp_path)
    assert result.written
    assert [row[0] for row in windows.rows(after)].index(".reloc") == 7
    found = pefile.PE(data=after)
    at = found.get_offset_from_rva(found.OPTIONAL_HEADER.DATA_DIRECTORY[10].VirtualAddress)
    assert struct.unpack_from("<IH", after, at + 0xE0) == (16, 8)


def test_code_that_the_library_finds_by_itself_goes_in_place(tmp_path: Path) -> None:
    """The table of sections needs room: the headers grow, and everything behind them moves."""
    before = Dll(hidden=HIDDEN, headers_size=512 + 256 + 256, debug=True, symbols=True).build()
    result, after = slimmed(before, tmp_path)
    assert result.written
    data = next(r for r in windows.rows(before) if r[0] == ".data")
    must_be_sound(before, after, also=((data[2] + 64, data[2] + 64 + len(HIDDEN)),))
    assert [r[0] for r in windows.rows(after)].count(".data") == 2
    assert len(before) - len(after) > len(HIDDEN) - 2 * windows.PAGE + 200_000
    inside = windows.image(after)[data[2] + 64 : data[2] + 64 + len(HIDDEN)]
    assert inside[:4] == HIDDEN[:4]
    assert not any(inside[8:])
    symbols = struct.unpack_from("<8sIhHBB", after, pefile.PE(data=after).FILE_HEADER.PointerToSymbolTable + 18)
    assert symbols[2] == 7, "the number of .rsrc, behind a section more"


def test_without_room_for_section_headers_zeros_stay(tmp_path: Path) -> None:
    """Something stands behind the table of sections: nothing may be written over it."""
    before = Dll(hidden=HIDDEN, behind_table=b"bound imports").build()
    result, after = slimmed(before, tmp_path)
    assert result.written
    assert [each.rule for each in result.findings] == ["file-keeps-its-size"]
    assert b"bound imports" in after
    assert len(windows.rows(after)) == len(windows.rows(before))
    data = next(r for r in windows.rows(before) if r[0] == ".data")
    must_be_sound(before, after, also=((data[2] + 64, data[2] + 64 + len(HIDDEN)),))


def test_what_the_loader_writes_into_is_no_device_code(tmp_path: Path) -> None:
    """A pointer among what looks like code that nothing registers: it stays as it is."""
    data = bytearray(Dll(hidden=HIDDEN, inside=(0, 0)).build())
    place = next(r for r in windows.rows(bytes(data)) if r[0] == ".reloc")[4]
    address = next(r for r in windows.rows(bytes(data)) if r[0] == ".data")[2]
    at = next(each for each in range(place, place + 64, 4) if struct.unpack_from("<I", data, each)[0] == address)
    struct.pack_into("<H", data, at + 8, 10 << 12 | 0x800)  # from the pointer before the code to the midst of it
    result, _ = slimmed(bytes(data), tmp_path)
    assert not result.written
    assert "its loader writes into what seems to be device code" in result.findings[-1].message


def broken(at: int, value: int, width: int) -> bytes:
    data = bytearray(Dll().build())
    data[at : at + width] = value.to_bytes(width, "little")
    return bytes(data)


OPTIONAL = 0x80 + 24
TABLE = OPTIONAL + 240


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (broken(OPTIONAL + 36, 100, 4), "a file alignment"),
        (broken(OPTIONAL + 36, 16, 4), "a file alignment"),
        (broken(OPTIONAL + 32, 2048, 4), "a section alignment"),
        (broken(OPTIONAL + 60, 100, 4), "headers of 100 bytes"),
        (broken(OPTIONAL + 56, 0x5000, 4), "an image of"),
        (broken(OPTIONAL + 108, 17, 4), "17 directories"),
        (broken(OPTIONAL + 16, 0x7FFFFFFF, 4), "an entry point"),
        (broken(OPTIONAL + 112 + 8 * 5 + 4, 0x7FFFFFFF, 4), "directory 5"),
        (broken(TABLE + 40 + 12, 0x9000, 4), "section .rdata at 0x9000"),
        (broken(TABLE + 3 * 40 + 20, 0x801, 4), "not aligned in the file"),
        (broken(TABLE + 3 * 40 + 16, 0x7FFFF000, 4), "outside the file"),
        (broken(TABLE + 2 * 40 + 20, 1024, 4), "share bytes"),
    ],
)
def test_every_rule_of_the_loader(data: bytes, words: str) -> None:
    found = list(pe_references.broken_rules(pe.read_pe(MemoryBuffer("broken", data))))
    assert any(words in each for each in found), found


def test_padded_wrappers_are_all_read() -> None:
    """Incremental linking rounds each up to 32 bytes; bytes that are neither wrapper nor zero are damage."""
    found = reader.read_library(MemoryBuffer("padded", Dll(padding=8).build()), detail="containers")
    assert [each.container for each in found.registration.wrappers] == [0, 1, 2, 3]
    assert found.registration.unnamed == ()
    data = bytearray(Dll(padding=8).build())
    at = next(r[4] for r in windows.rows(bytes(data)) if r[0] == ".nvFatBi")
    data[at + 24] = 1
    found = reader.read_library(MemoryBuffer("damaged", bytes(data)), detail="containers")
    assert [each.rule for each in found.findings] == ["registration-damaged"]
