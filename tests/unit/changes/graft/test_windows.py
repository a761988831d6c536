"""Windows libraries with further device code: a section more, the same host side, and whatever stands against it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.changes.binaries import pe_references, rewrite
from cuwheel.changes.graft import host
from cuwheel.changes.graft.subject import Subject
from cuwheel_core.device_code import pe
from cuwheel_core.errors import MalformedError
from cuwheel_core.support.buffer import MemoryBuffer
from tests.fixtures import manifest, small_wheel, windows
from tests.fixtures.windows import Dll
from tests.unit.changes.binaries import engine

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel_core.device_code.fatbin import RawEntry


def dll(*archs: str, **rest: Any) -> Dll:
    """Four containers with these architectures, each with code of its own."""
    numbers = {arch: int("".join(filter(str.isdigit, arch))) for arch in archs}
    made = [
        engine.container(
            *(engine.entry(arch, engine.noise(number + 1000 * n, 9_000)) for arch, number in numbers.items())
        )
        for n in range(4)
    ]
    return Dll(containers=made, **rest)


def written(folder: Path, name: str, wish: Dll) -> Path:
    path = folder / name
    path.write_bytes(wish.build())
    return path


def grown(folder: Path, base: Dll, *, drop_signature: bool = False) -> bytes:
    """With the code of a donor for two further architectures."""
    source, giver = written(folder, "base.dll", base), written(folder, "donor.dll", dll("sm_100", "sm_120"))
    with Subject(source, "base.dll", drop_signature=drop_signature) as ours, Subject(giver, "donor.dll") as theirs:
        contents: dict[int, list[RawEntry | rewrite.Foreign]] = {
            number: [
                *(each.raw for each in held),
                *(rewrite.Foreign(theirs.buffer, one.raw) for one in theirs.held[number]),
            ]
            for number, held in enumerate(ours.held)
        }
        size = rewrite.grow_library(
            source, ours.buffer, folder / "new.dll", contents, lambda _: None, drop_signature=drop_signature
        )
    data = (folder / "new.dll").read_bytes()
    assert size == len(data)
    return data


@pytest.mark.parametrize(
    "rest",
    [{}, {"checksum": True, "debug": True}, {"symbols": True}, {"padding": 8}, {"headers_size": 4096}],
    ids=["plain", "checksum", "symbols", "padded-wrappers", "long-headers"],
)
def test_further_code_goes_into_a_section_of_its_own(tmp_path: Path, rest: dict[str, Any]) -> None:
    base = dll("sm_80", "sm_90", **rest)
    before, after = base.build(), grown(tmp_path, base)
    assert list(pe_references.broken_rules(pe.read_pe(MemoryBuffer("new", after)))) == []
    assert windows.host_differences(before, after) == []
    archs = [[str(each.arch) for each in held] for held in _held(tmp_path / "new.dll")]
    assert archs == [["sm_80", "sm_90", "sm_100", "sm_120"]] * 4
    old, new = engine.contents(tmp_path / "base.dll"), engine.contents(tmp_path / "new.dll")
    assert [each[:2] for each in new] == old
    assert [each[2:] for each in new] == engine.contents(tmp_path / "donor.dll")
    last = windows.rows(after)[-1]
    assert last[0] == ".nv_fatb"
    assert last[2] == max(row[2] for row in windows.rows(after)), "behind all others in memory"
    if rest.get("checksum"):
        assert windows.stored_checksum(after) == windows.checksum(after)
    with Subject(tmp_path / "base.dll", "base") as ours, Subject(tmp_path / "new.dll", "new") as made:
        assert host.difference(ours, made) == ""


def _held(path: Path) -> list[list[Any]]:
    with Subject(path, path.name) as subject:
        return [[each.entry for each in held] for held in subject.held]


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ({"signature": bytes(64)}, "it is signed"),
        ({"overlay": b"an archive"}, "something follows its sections"),
        ({"behind_table": b"bound imports"}, "no room for another section header"),
        ({"lea": (1, 0)}, "takes the address of a container"),
        ({"relocated": False}, "no base relocations"),
    ],
    ids=["signed", "overlay", "no-room", "lea", "no-relocations"],
)
def test_what_forbids_it(tmp_path: Path, rest: dict[str, Any], words: str) -> None:
    with pytest.raises(MalformedError, match=words):
        grown(tmp_path, dll("sm_80", **rest))
    assert not (tmp_path / "new.dll").exists()


def test_a_signature_goes_if_that_was_asked_for(tmp_path: Path) -> None:
    after = grown(tmp_path, dll("sm_80", signature=b"certificate".ljust(64, b"\0"), checksum=True), drop_signature=True)
    assert list(pe_references.broken_rules(pe.read_pe(MemoryBuffer("new", after)))) == []
    assert b"certificate" not in after
    assert windows.stored_checksum(after) == windows.checksum(after)


def test_host_sides_with_device_code_of_other_sizes(tmp_path: Path) -> None:
    """What stands behind the device code is elsewhere, and its pointers with it; the build's own marks do not count."""
    base = written(tmp_path, "base.dll", dll("sm_80", debug=True, inside=(0, 0)))
    donor = written(tmp_path, "donor.dll", dll("sm_90", "sm_100", debug=True, inside=(0, 0)))
    data = donor.read_bytes()
    donor.write_bytes(data.replace(b"RSDS" + b"p" * 8, b"RSDS" + b"q" * 8))
    with Subject(base, "base.dll") as ours, Subject(donor, "donor.dll") as theirs:
        assert host.difference(ours, theirs) == ""


@pytest.mark.parametrize(
    ("section", "at", "words"),
    [
        (".rsrc", 3, ".rsrc is not the same"),
        (".text", 40, ".text is not the same"),
        (".data", 70, ".data is not the same"),
    ],
)
def test_host_sides_that_differ(tmp_path: Path, section: str, at: int, words: str) -> None:
    base, donor = written(tmp_path, "base.dll", dll("sm_80")), tmp_path / "donor.dll"
    data = bytearray(dll("sm_90", "sm_100").build())
    place = next(row[4] for row in windows.rows(bytes(data)) if row[0] == section)
    data[place + at] ^= 0x55
    donor.write_bytes(data)
    with Subject(base, "base.dll") as ours, Subject(donor, "donor.dll") as theirs:
        assert words in host.difference(ours, theirs)


def test_host_sides_with_other_relocations(tmp_path: Path) -> None:
    base, donor = written(tmp_path, "base.dll", dll("sm_80")), tmp_path / "donor.dll"
    data = bytearray(dll("sm_80").build())
    place = next(row[4] for row in windows.rows(bytes(data)) if row[0] == ".reloc")
    struct.pack_into("<H", data, place + 8, 10 << 12 | 0x10)
    donor.write_bytes(data)
    with Subject(base, "base.dll") as ours, Subject(donor, "donor.dll") as theirs:
        assert "is not the same" in host.difference(ours, theirs)


def test_a_wheel_split_by_architecture_and_put_together_again(tmp_path: Path) -> None:
    source = manifest.HERE / "bin" / "windows-130.dll"
    wheel = small_wheel.Wheel(
        name="pkg", tag="py3-none-win_amd64", files={"pkg/own.dll": source.read_bytes(), "pkg/__init__.py": ""}
    ).write(tmp_path)
    parts = api.graft(wheel, split=True, output=tmp_path / "parts")
    assert len(parts.outputs) == 2
    made = api.graft(parts.outputs[0], parts.outputs[1:], output=tmp_path / "whole")
    assert made.written
    assert made.proof
    assert made.proof.kind == "record"
    survey = api.inspect(made.outputs[0])
    assert [str(row.arch) for row in survey.libraries[0].device_code] == [
        str(row.arch) for row in engine.read(source).device_code
    ]


def test_linux_and_windows_do_not_mix(tmp_path: Path) -> None:
    linux, windows_ = manifest.HERE / "bin" / "plain-130.so", manifest.HERE / "bin" / "windows-130.dll"
    made = api.graft(linux, windows_, output=tmp_path / "out.so")
    assert not made.written
    assert [each.rule for each in made.findings] == ["graft-other-machine"]


def test_a_dry_run_needs_no_place_for_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of the libraries, where the result would have the name of the first."""
    monkeypatch.chdir(tmp_path)
    for name in ("base.dll", "donor.dll"):
        (tmp_path / name).write_bytes((manifest.HERE / "bin" / "windows-130.dll").read_bytes())
    found = api.graft("base.dll", "donor.dll", dry_run=True)
    assert [each.rule for each in found.findings] == ["graft-nothing-new"]
