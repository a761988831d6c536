"""What is compiled of a library's PTX, with which options, and the entry that it becomes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from cuwheel.changes.binaries import compiling
from cuwheel.changes.graft.subject import Subject
from cuwheel.machine.fleet import Machine
from cuwheel.toolchains import assembler
from cuwheel_core.facts.arch import Capability
from tests.unit.changes.binaries.engine import read

if TYPE_CHECKING:
    from cuwheel.changes.binaries.compiling import Aim, ToCompile
    from cuwheel_core.device_code.libraries import Entry

BIN = Path(__file__).parents[3] / "fixtures" / "bin"


def what_to_compile(name: str, *words: str) -> ToCompile:
    return compiling.what_to_compile(read(BIN / name), compiling.aims_of(words))


def wanted(name: str, *words: str) -> list[tuple[int, str, str]]:
    return [(each.container, str(each.ptx.arch), str(each.arch)) for each in what_to_compile(name, *words).wanted]


def test_the_ptx_that_the_driver_would_take() -> None:
    assert wanted("ptx-130.so", "sm_80") == [(0, "compute_75", "sm_80")]
    assert wanted("ptx-130.so", "h100") == [(0, "compute_90", "sm_90")]
    assert wanted("ptx-130.so", "sm_120", "12.0", "rtx 5090") == [(0, "compute_90", "sm_120")]
    assert wanted("ptx-130.so", "sm_80,sm_86") == [(0, "compute_75", "sm_80"), (0, "compute_75", "sm_86")]
    assert wanted("ptx-130.so", "sm_90a") == [(0, "compute_90", "sm_90a")]


def test_not_where_there_is_machine_code_or_nothing_fits() -> None:
    assert wanted("plain-130.so", "sm_90", "sm_86", "sm_75") == []  # 8.6 runs what is for 8.0
    assert wanted("plain-130.so", "sm_100") == [(0, "compute_90", "sm_100")]


@pytest.mark.parametrize(
    ("name", "arch", "source", "made"),
    [("specific-130.so", "sm_90", "compute_90a", "sm_90a"), ("family-130.so", "sm_103", "compute_100f", "sm_103")],
)
def test_ptx_for_one_gpu_keeps_its_suffix_and_a_familys_does_not(name: str, arch: str, source: str, made: str) -> None:
    library = read(BIN / name)
    without = replace(library, entries=tuple(each for each in library.entries if each.kind == "ptx"))
    (found,) = compiling.what_to_compile(without, compiling.aims_of([arch])).wanted
    assert (found.ptx.arch, found.arch) == (source, made)


def test_objects_are_linked_where_nothing_linked_fits() -> None:
    """rdc-130.so has a linked container for some GPUs; for others the driver would link the objects."""
    assert what_to_compile("rdc-130.so", "sm_90").wanted == ()
    (link,) = what_to_compile("rdc-130.so", "sm_120").wanted
    assert [(each.entry.kind, each.options) for each in link.objects] == [("ptx", ("--compile-only",))] * 2
    assert link.container not in {each.entry.container for each in link.objects}
    (link,) = what_to_compile("lto-130.so", "sm_120").wanted
    assert {each.entry.kind for each in link.objects} == {"lto-ir"}
    assert link.options == ("-lto", "-ftz=0", "-prec-div=1", "-prec-sqrt=1", "-fma=1")


def test_objects_without_a_linker_are_compiled_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """nvJitLink is there since CUDA 12; before, the driver links what was compiled."""
    monkeypatch.setattr(assembler, "has_linker", lambda _: False)
    found = what_to_compile("rdc-130.so", "sm_120").wanted
    assert [(each.container, each.objects, each.options) for each in found] == [
        (number, (), ("--compile-only",)) for number in (0, 1)
    ]


def test_a_driver_that_is_known_decides_who_compiles() -> None:
    machine = Machine(name="old", capability=Capability.parse("9.0"), driver="580.65.06", os="linux")
    (aim,) = compiling.aims_of([machine])
    assert (aim.driver, aim.ptx_isa) == ("13.0", "9.0")
    library = read(BIN / "ptx-130.so")
    newer = replace(library, entries=tuple(replace(each, ptx_isa="9.4") for each in library.entries))
    assert [each.cuda for each in compiling.what_to_compile(library, [aim]).wanted] == ["13.0"]
    assert [each.cuda for each in compiling.what_to_compile(newer, [aim]).wanted] == ["13.4"]


def test_the_oldest_driver_of_machines_with_the_same_gpu_decides() -> None:
    new, old, other = (
        Machine(name=driver, capability=Capability.parse(gpu), driver=driver, os="linux")
        for driver, gpu in (("580.65.06", "9.0"), ("570.26", "9.0"), ("595.45.04", "12.0"))
    )
    assert [each.driver for each in compiling.aims_of([new, old, other])] == ["12.8", "12.8", "13.2"]


def test_what_no_ptxas_can_do_is_told() -> None:
    library = read(BIN / "ptx-130.so")
    old = Machine(name="old", capability=Capability.parse("9.0"), driver="535.54.03", os="linux")
    found = compiling.what_to_compile(library, compiling.aims_of([old]))
    assert not found.wanted
    (told,) = found.untouched
    assert told.rule == "compile-no-ptxas"
    assert "a driver for CUDA 12.2 does not load" in told.message


def with_options(options: str) -> tuple[ToCompile, Aim]:
    library = read(BIN / "ptx-130.so")
    entries = tuple(replace(each, options=options) for each in library.entries)
    (aim,) = compiling.aims_of(["sm_90"])
    return compiling.what_to_compile(replace(library, entries=entries), [aim]), aim


@pytest.mark.parametrize(
    ("options", "handed"),
    [
        ("", ()),
        ("-O1  -maxrregcount=32", ("-O=1", "-maxrregcount=32")),
        ("-O 3 -maxrregcount 64", ("-O=3", "-maxrregcount=64")),
        ("-g --dont-merge-basicblocks --return-at-end", ("-g", "--dont-merge-basicblocks", "--return-at-end")),
        ("--generate-line-info -v -Werror", ("--generate-line-info",)),
        (
            "--def-load-cache=cg -allow-expensive-optimizations true",
            ("--def-load-cache=cg", "-allow-expensive-optimizations=true"),
        ),
    ],
)
def test_options_are_handed_on(options: str, handed: tuple[str, ...]) -> None:
    assert with_options(options)[0].wanted[0].options == handed


@pytest.mark.parametrize(
    "options",
    [
        "-o /etc/passwd",
        "--output-file=/etc/passwd",
        "-optf=words.txt",
        "--options-file words.txt",
        "other.ptx",
        "-arch=sm_80",
        "-maxrregcount ../x",
        "-maxrregcount=/x",
        "-O3;rm",
        "--input-as-string x",
        "-maxrregcount",
        "@file",
    ],
)
def test_options_that_are_none_are_not(options: str) -> None:
    found, _ = with_options(options)
    assert not found.wanted
    assert [each.rule for each in found.untouched] == ["compile-options"]


# The entry that a cubin becomes: the cubins of the fixtures, put into entries again.


def _cubins() -> list[tuple[str, Entry, bytes, bytes]]:
    found = []
    for path in sorted((*BIN.glob("*-13?.so"), BIN / "windows-130.dll")):
        with Subject(path, path.name) as subject:
            for held in (each for container in subject.held for each in container if each.entry.kind == "cubin"):
                raw = held.raw
                found.append(
                    (path.name, held.entry, held.data, subject.buffer.read(raw.offset, raw.header_size + raw.payload))
                )
    return found


def test_an_entry_is_what_fatbinary_writes() -> None:
    """Byte for byte where it is stored raw; compressed by another program, but for the sizes and the payload."""
    wrong, raw, packed = [], 0, 0
    for name, entry, code, theirs in _cubins():
        ours = compiling.entry_of(code, entry.arch, entry)
        if entry.compression == "none":
            raw += 1
            same = ours == theirs
        else:
            packed += 1
            same = _without_sizes(ours, entry) == _without_sizes(theirs, entry)
        wrong += [] if same else [f"{name}: {entry.arch} at {entry.offset:#x}"]
    assert not wrong, "\n".join(wrong)
    assert raw > 10
    assert packed > 3


def _without_sizes(data: bytes, entry: Entry) -> bytes:
    return data[:8] + data[20 : entry.header_size]


def test_a_container_counts_once_however_many_gpus() -> None:
    library = read(BIN / "ptx-130.so")
    without = replace(library, registration=replace(library.registration, wrappers=()))
    (left,) = compiling.what_to_compile(without, compiling.aims_of(["sm_120", "b200"])).untouched
    assert (left.rule, "container 0 stays as before" in left.message) == ("compile-unregistered", True)
    assert len(what_to_compile("bare-130.fatbin", "sm_120", "b200").wanted) == 2  # nothing has to register a file


def test_who_would_take_more_memory_than_is_left_waits() -> None:
    """All small ones at once, and what is larger than the whole machine by itself."""
    room, order = compiling._Room(100), []
    may_end = {size: threading.Event() for size in (60, 50, 900)}
    begun = {size: threading.Event() for size in may_end}

    def work(size: int) -> None:
        with room.taken(size):
            begun[size].set()
            order.append(size)
            may_end[size].wait(60)

    workers = [threading.Thread(target=work, args=(size,)) for size in may_end]
    workers[0].start()
    assert begun[60].wait(60)
    with room.taken(30), room.taken(10):
        workers[1].start()
        assert not begun[50].wait(0.2)
    may_end[60].set()
    assert begun[50].wait(60)
    workers[2].start()
    assert not begun[900].wait(0.2)
    may_end[50].set()
    assert begun[900].wait(60)
    may_end[900].set()
    for each in workers:
        each.join()
    assert order == [60, 50, 900]


def test_where_nobody_knows_the_memory_nobody_waits() -> None:
    room = compiling._Room(None)
    with room.taken(10**12), room.taken(10**12):
        pass
