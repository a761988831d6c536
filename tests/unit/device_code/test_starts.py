"""A library by its start: how far it is read, what that tells, and where all of it has to be read."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.device_code import starts
from cuwheel.device_code.survey import Sparing, survey_wheel
from cuwheel.wheel.file import WheelFile
from cuwheel_core.device_code import elf, library
from cuwheel_core.device_code.fatbin import CONTAINER
from cuwheel_core.device_code.libraries import READ_IN_PART
from cuwheel_core.support.buffer import MemoryBuffer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel_core.device_code.items import Item
    from cuwheel_core.device_code.libraries import Library
    from cuwheel_core.wheel.metadata import Distribution

FIXTURES = Path(__file__).parents[2] / "fixtures" / "bin"
NAMES = ["many-130.so", "plain-130.so", "plain-124.so", "windows-130.dll", "aarch64-130.so", "rdc-130.so"]
PIECE = 512


def _pieces(data: bytes) -> Iterator[tuple[bytes, int]]:
    """As a stream that takes a byte of the wheel for each of the library."""
    head = max(PIECE, 4096)
    for start, stop in [(0, head), *((at, at + PIECE) for at in range(head, len(data), PIECE))]:
        yield data[start:stop], min(stop, len(data))


def _whole(name: str) -> Library:
    return library.read_library(MemoryBuffer(name, (FIXTURES / name).read_bytes()), detail="containers")


def _many_containers() -> bytes:
    """A library for Windows with the same fat binary nine times."""
    data, first = (FIXTURES / "windows-130.dll").read_bytes(), _whole("windows-130.dll").containers[0]
    stop = first.offset + first.size
    return data[:stop] + data[first.offset : stop] * 8 + data[stop:]


def _start(name: str, data: bytes | None = None) -> starts.Start | None:
    data = data if data is not None else (FIXTURES / name).read_bytes()
    return starts.read_start(name, len(data), _pieces(data))


@pytest.mark.parametrize("name", NAMES)
def test_the_start_says_what_the_whole_file_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "_NOTHING_NEW", 10_000)  # until so much was read
    monkeypatch.setattr(starts, "_WITHOUT_CODE", (FIXTURES / name).stat().st_size)
    found, whole = _start(name), _whole(name)
    assert found is not None
    assert {(each.arch, each.kind, each.linked) for each in found.library.device_code} == {
        (each.arch, each.kind, each.linked) for each in whole.device_code
    }
    assert (found.library.format, found.library.machine) == (whole.format, whole.machine)
    assert found.library.toolkits == whole.toolkits
    assert len(found.library.containers) == len(whole.containers)


def test_it_stops_where_containers_have_nothing_new() -> None:
    whole, found = _whole("windows-130.dll"), _start("many.dll", _many_containers())
    assert found is not None
    assert len(found.library.containers) == 1 + starts._NOTHING_NEW
    assert {each.arch for each in found.library.device_code} == {each.arch for each in whole.device_code}
    assert "the first" in found.how_far.message
    assert found.how_far.rule == READ_IN_PART


def test_a_container_that_does_not_end_there_has_to_be_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    first = _whole("plain-130.so").containers[0]
    monkeypatch.setattr(starts, "_MOST", first.offset + first.size // 2)
    assert _start("plain-130.so") is None


def test_one_that_ends_before_enough_was_seen_has_to_be_read_whole() -> None:
    assert _start("plain-130.so") is None


def test_code_that_names_the_magic_number_is_no_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime compares with it; and what claims more than the file has is none either."""
    data = bytearray((FIXTURES / "amd.so").read_bytes())
    claimed = CONTAINER.pack(0xBA55ED50, 1, 16, 1 << 40)
    for segment in elf.data_segments(bytes(data[:4096])) or ():
        at = (segment.offset + 1024) // 8 * 8
        data[at : at + len(claimed)] = claimed
    monkeypatch.setattr(starts, "_WITHOUT_CODE", len(data))
    found = _start("amd.so", bytes(data))
    assert found is not None
    assert found.library.containers == ()
    assert "no code for GPUs" in found.how_far.message


def _torch(folder: Path) -> Path:
    path = folder / "torch-2.15.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("torch/lib/torch_cuda.dll", _many_containers())
        archive.write(FIXTURES / "windows-130.dll", "torch/lib/torch_cpu.dll")
        archive.write(FIXTURES / "plain-124.so", "torch/lib/libc10_cuda.so")
        archive.write(FIXTURES / "archive-130.a", "torch/lib/libdnnl.a")
        archive.writestr("torch-2.15.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.15.0\n")
        archive.writestr("torch-2.15.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: cp312-cp312-manylinux_2_28_x86_64\n")
        archive.writestr("torch-2.15.0.dist-info/RECORD", "")
    return path


@pytest.mark.parametrize("alone", [True, False])
def test_a_wheel_is_read_as_far_as_it_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, alone: bool) -> None:
    monkeypatch.setattr(starts, "LARGE", 3_000)  # plain-124.so is smaller
    asked: list[str] = []

    def decides(largest: Library, distribution: Distribution) -> bool:
        asked.append(f"{distribution.name} {largest.path}")
        return alone

    with WheelFile(_torch(tmp_path)) as wheel:
        found = survey_wheel(wheel, detail="containers", sparing=Sparing(decides, lambda *_: False, lambda _: None))
    assert asked == ["torch torch/lib/torch_cuda.dll"]
    paths = [each.path.rpartition("/")[2] for each in found.libraries]
    assert paths == (["torch_cuda.dll"] if alone else ["libc10_cuda.so", "torch_cpu.dll", "torch_cuda.dll"])
    assert {each.rule for each in found.findings} >= {READ_IN_PART}
    if not alone:  # the table of packages says that it has none: nobody looked
        assert found.libraries[1].device_code == ()
        assert found.libraries[0].device_code == _whole("plain-124.so").device_code


def test_what_is_for_another_machine_is_not_read_and_what_is_read_is_said_before(tmp_path: Path) -> None:
    begun: list[str] = []

    def is_elsewhere(head: Library, _: Distribution) -> bool:
        return head.format == "pe"

    def begins(items: Sequence[Item]) -> None:
        begun.extend(each.path for each in items)

    with WheelFile(_torch(tmp_path)) as wheel:
        found = survey_wheel(wheel, detail="containers", sparing=Sparing(lambda *_: False, is_elsewhere, begins))
    assert begun == ["torch/lib/libc10_cuda.so"]
    read = {each.path.rpartition("/")[2]: bool(each.device_code) for each in found.libraries}
    assert read == {"libc10_cuda.so": True, "torch_cpu.dll": False, "torch_cuda.dll": False}
