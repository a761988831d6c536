"""Device code out of static archives: told by its bytes, and by nothing else."""

from __future__ import annotations

import shutil
import struct
from typing import TYPE_CHECKING

import pytest

from cuwheel.building.gate_units import Archives, words_of
from tests.fixtures import systems
from tests.unit.building.wheels import BIN, call, found, judge, record, rules, wheel
from tests.unit.device_code import build

if TYPE_CHECKING:
    from pathlib import Path

OWN = build.entry(build.CUBIN, 90, build.cubin({"own": (8, 0, 0)}))
SEVENTY = build.entry(build.CUBIN, 75, build.cubin({"theirs": (8, 0, 0)}, sm=75))
HUNDRED = build.entry(build.CUBIN, 100, build.cubin({"theirs": (8, 0, 0)}, sm=100), flags=0x11 | build.ZSTD)
PTX = build.entry(build.PTX, 121, b".version 9.0\n.target sm_121\n", isa=(9, 0))


def _object(*containers: bytes) -> bytes:
    return build.Elf(type=1, sections=[build.Section(name="__nv_relfatbin", data=b"".join(containers))]).build()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A toolkit with one archive of device code among its archives."""
    library = tmp_path / "kit" / "lib"
    library.mkdir(parents=True)
    theirs = _object(build.container(SEVENTY, HUNDRED, PTX))
    (library / "libcudadevrt.a").write_bytes(build.archive(("none.o", _object()), ("theirs.o", theirs)))
    (library / "libempty.a").write_bytes(build.archive())
    (library / "libtext.a").write_text("INPUT ( libelsewhere.a )\n")
    (library / "libcut.a").write_bytes(build.archive(("x.o", theirs))[:200])
    (tmp_path / "kit" / "lib64").symlink_to("lib")
    return tmp_path / "kit"


def _built(tmp_path: Path, *containers: bytes) -> Path:
    return wheel(tmp_path, {"demo/libx.so": build.library(build.container(OWN), *containers).build()})


def test_what_the_toolkits_archives_bring_is_listed(tmp_path: Path, root: Path) -> None:
    path = _built(tmp_path, build.container(SEVENTY, HUNDRED, PTX))
    result = judge(path, "sm_90", toolkit_root=str(root))
    assert result.findings == ()
    (listed,) = result.listed
    assert listed.archs == ("sm_75", "sm_100", "compute_121")
    assert listed.origin == "libcudadevrt.a of the toolkit"
    assert listed.containers == 1
    assert listed.bytes == len(SEVENTY) + len(HUNDRED) + len(PTX)


def test_without_that_toolkit_the_same_code_was_planned_by_nobody(tmp_path: Path) -> None:
    path = _built(tmp_path, build.container(SEVENTY, HUNDRED, PTX))
    assert rules(judge(path, "sm_90")) == {
        "architecture-not-planned",
        "ptx-not-planned",
        "planned-architecture-missing",
    }


def test_a_part_of_it_is_recognised_too(tmp_path: Path, root: Path) -> None:
    """As nvprune leaves it."""
    assert judge(_built(tmp_path, build.container(HUNDRED)), "sm_90", toolkit_root=str(root)).succeeded


def test_one_entry_of_another_hand_makes_it_anothers(tmp_path: Path, root: Path) -> None:
    stranger = build.entry(build.CUBIN, 80, build.cubin({"theirs": (8, 0, 0)}, sm=80))
    path = _built(tmp_path, build.container(SEVENTY, HUNDRED, stranger))
    assert "architecture-not-planned" in rules(judge(path, "sm_90", toolkit_root=str(root)))


def test_the_same_size_and_name_are_not_the_same_bytes(tmp_path: Path, root: Path) -> None:
    changed = bytearray(SEVENTY)
    changed[-1] ^= 1
    path = _built(tmp_path, build.container(bytes(changed)))
    assert "architecture-not-planned" in rules(judge(path, "sm_90", toolkit_root=str(root)))


@systems.LINUX_PATHS
def test_an_archive_of_others_is_named_and_not_excused(tmp_path: Path, root: Path) -> None:
    outside = tmp_path / "third" / "libthird.a"
    outside.parent.mkdir()
    shutil.move(root / "lib" / "libcudadevrt.a", outside)
    path = _built(tmp_path, build.container(SEVENTY))
    linked = record(call(9, "-shared x.o -L../third -lthird -o libx.so", program="/usr/bin/g++", cwd=str(root)))
    finding = found(judge(path, "sm_90", toolkit_root=str(root), record=linked), "architecture-not-planned")
    assert finding.message.endswith(f"it comes from {root}/../third/libthird.a, which does not belong to the toolkit")
    assert finding.fix == 'to accept it: [gate] allow = ["libx.so:sm_75"]'
    allowed = judge(path, "sm_90", toolkit_root=str(root), record=linked, allow=("libx.so:sm_75",))
    assert allowed.succeeded
    assert [each.origin for each in allowed.listed] == ["allowed by libx.so:sm_75"]


def test_a_toolkit_behind_links_is_the_toolkit(tmp_path: Path, root: Path) -> None:
    """The parts of a toolkit may lie in other folders, with links between."""
    elsewhere = tmp_path / "parts"
    elsewhere.mkdir()
    shutil.move(root / "lib" / "libcudadevrt.a", elsewhere)
    (root / "lib" / "libcudadevrt.a").symlink_to(elsewhere / "libcudadevrt.a")
    assert judge(_built(tmp_path, build.container(SEVENTY)), "sm_90", toolkit_root=str(root)).succeeded


@pytest.mark.parametrize(
    "words",
    [
        "x.o {third}/libthird.a",
        "x.o -L{third} -lthird",
        "x.o -L {third} -l third",
        "x.o -L{third} -l:libthird.a",
        "-dlink x.o --library-path={third} --library=third",
        "x.o ../third/libthird.a",
    ],
)
def test_how_calls_name_their_archives(tmp_path: Path, root: Path, words: str) -> None:
    third = tmp_path / "third"
    third.mkdir()
    shutil.copy(BIN / "archive-130.a", third / "libthird.a")
    program = "/kit/bin/nvcc" if "-dlink" in words else "/usr/bin/g++"
    linked = record(call(1, words.format(third=third), program=program, cwd=str(root)))
    first = Archives(str(root), linked)._candidates()[0]
    assert (first.name, first.of_toolkit) == ("libthird.a", False)


def test_what_calls_name_is_looked_into_first(root: Path) -> None:
    linked = record(call(1, "x.o -ltext", program="/usr/bin/g++"), call(2, "x.o -lgone -L/nowhere"))
    names = [each.name for each in Archives(str(root), linked)._candidates()]
    assert names == ["libtext.a", "libcudadevrt.a", "libcut.a", "libempty.a"]


def test_words_of_response_files_count_even_if_a_quote_is_left_open() -> None:
    from cuwheel.building.recording.calls import ResponseFile

    texts = {"a.rsp": '-lone "two words"', "b.rsp": "-lthree 'open", "c.rsp": None}
    files = tuple(ResponseFile(path=name, text=text) for name, text in texts.items())
    told = words_of(call(1, "@a.rsp -x @b.rsp @c.rsp", response_files=files))
    assert told[:4] == ("-lone", "two words", "-x", "-lthree")


def _functions(*names: str) -> bytes:
    """A relocatable cubin that defines device functions and no kernel."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    symbols = bytes(24)
    for name in names:
        symbols += struct.pack("<IBBHQQ", strings.index(name.encode()), 0x12, 0, 3, 0, 16)
    sections = [
        build.Section(name=".strtab", data=strings, type=build.STRTAB, flags=0),
        build.Section(name=".symtab", data=symbols, type=build.SYMTAB, flags=0, link=1),
        build.Section(name=".text.f", data=bytes(16)),
    ]
    return build.Elf(machine=build.CUDA, type=1, osabi=0x41, abi=8, flags=75 << 8, sections=sections).build()


@pytest.mark.parametrize(
    ("names", "root", "listed"),
    [
        (("cudaMalloc", "__cudaCDP2Free"), "", True),
        (("cudaMalloc", "mine"), "", False),
        (("cudaMalloc",), "/nowhere", False),  # where archives can be compared, names prove nothing
    ],
)
def test_without_a_toolkit_to_compare_the_runtime_is_known_by_its_functions(
    tmp_path: Path, names: tuple[str, ...], root: str, *, listed: bool
) -> None:
    theirs = build.container(build.entry(build.CUBIN, 75, _functions(*names)))
    file = build.library(build.container(OWN), relocatable=theirs)
    result = judge(wheel(tmp_path, {"demo/libx.so": file.build()}), "sm_90", toolkit_root=root)
    assert result.succeeded == listed
    assert bool(result.listed) == listed
