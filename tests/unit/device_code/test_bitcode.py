from __future__ import annotations

from pathlib import Path

import pytest

from cuwheel.device_code import bitcode
from cuwheel.device_code.survey import survey

FIXTURES = Path(__file__).parents[2] / "fixtures" / "bitcode"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
def test_what_it_was_compiled_for(arch: str) -> None:
    assert bitcode.architecture((FIXTURES / f"{arch}.bc").read_bytes()) == arch


def test_what_says_nothing_or_two_things() -> None:
    data = (FIXTURES / "sm_80.bc").read_bytes()
    assert bitcode.architecture(b"") is None
    assert bitcode.architecture(b"\0" + data) is None  # no bitcode
    assert bitcode.architecture(data[:200]) is None
    assert bitcode.architecture(data[:220]) is None  # in the midst of the attribute
    other = (FIXTURES / "sm_90.bc").read_bytes()
    assert bitcode.architecture(data + other[4:]) is None


def test_any_bytes_are_read() -> None:
    data = (FIXTURES / "sm_80.bc").read_bytes()
    for at in range(200, 260):
        for value in (0, 0x5A, 0xFF):
            bitcode.architecture(data[:at] + bytes([value]) * 8 + data[at + 8 :])


def test_families_by_name_and_content(tmp_path: Path) -> None:
    lib = tmp_path / "pkg" / "lib"
    lib.mkdir(parents=True)
    sm_80, sm_90 = ((FIXTURES / f"{arch}.bc").read_bytes() for arch in ("sm_80", "sm_90"))
    (lib / "libdev_sm_80.bc").write_bytes(sm_80)
    (lib / "libdev_sm_90.bc").write_bytes(sm_90)
    (lib / "alone_sm_90.bc").write_bytes(sm_90)
    (lib / "wrong_sm_80.bc").write_bytes(sm_90)
    (lib / "wrong_sm_90.bc").write_bytes(sm_80)
    (lib / "nothing_sm_80.bc").write_bytes(b"text")
    (lib / "nothing_sm_90.bc").write_bytes(b"")
    found = survey(tmp_path).bitcode
    assert [(each.path, each.arch, each.bytes) for each in found] == [
        ("pkg/lib/libdev_sm_80.bc", "sm_80", len(sm_80)),
        ("pkg/lib/libdev_sm_90.bc", "sm_90", len(sm_90)),
    ]
